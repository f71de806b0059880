r"""Layers as linear operators, and the power method for their largest singular value.

The operator norm of a linear map :math:`A` is its largest singular value,
:math:`\sigma(A) = \max_v \lVert A v \rVert_2 / \lVert v \rVert_2`. The power method

.. math:: u \leftarrow \frac{A v}{\lVert A v \rVert}, \qquad v \leftarrow \frac{A^\top u}{\lVert A^\top u \rVert}, \qquad
    \sigma \approx u^\top A v, \tag{1}

needs products with :math:`A` and :math:`A^\top` only, so a convolution is treated as the operator it is on images of a given
size, not as its kernel reshaped into a matrix: the two have different norms. An affine layer is :math:`A v = f(v) - f(0)`, and
:math:`A^\top u` is its backward pass. The Jacobian of a network at an input is another such operator, one for each sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Affine", "Jacobian", "Matrix", "Operator", "affine_layers", "power_iteration", "unit"]

AFFINE = 1e-3  # relative deviation from additivity up to which a layer counts as affine; activations miss it by far


def unit(v: Tensor) -> Tensor:
    """Return every row (n, ...) divided by its length; rows of zeros stay."""
    sizes = torch.linalg.vector_norm(v.flatten(1), dim=1).clamp_min(torch.finfo(v.dtype).tiny)
    return v / sizes.reshape(-1, *[1] * (v.ndim - 1))


class Operator:
    """A linear map of each row: a call, and its adjoint."""

    def __call__(self, v: Tensor) -> Tensor:
        """Return A v."""
        raise NotImplementedError

    def adjoint(self, u: Tensor) -> Tensor:
        """Return the adjoint of A times u."""
        raise NotImplementedError


def power_iteration(A: Operator, v: Tensor, n_iter: int) -> tuple[Tensor, Tensor]:
    """Return the singular vectors u and v after some rounds of eq. 1, for each row of v; a zero map leaves v.

    >>> _, v = power_iteration(Matrix(torch.tensor([[3.0, 0.0], [0.0, 1.0]])), torch.ones(1, 2), 20)
    >>> v.round(decimals=4)
    tensor([[1., 0.]])
    """
    for _ in range(n_iter):
        w = A.adjoint(unit(A(v).detach())).detach()
        moved = w.flatten(1).any(1).reshape(-1, *[1] * (w.ndim - 1))
        v = torch.where(moved, unit(w), v)
    return unit(A(v).detach()), v


class Matrix(Operator):
    """A weight matrix; a tensor of more axes is taken as the matrix of its first axis against the others."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, v: Tensor) -> Tensor:
        """Return W v for each row."""
        return v @ self.weight.flatten(1).T

    def adjoint(self, u: Tensor) -> Tensor:
        """Return the transpose of W times u."""
        return u @ self.weight.detach().flatten(1)

    def start(self) -> Tensor:
        """Return the leading right singular vector (1, n_in)."""
        return torch.linalg.svd(self.weight.detach().flatten(1), full_matrices=False)[2][:1]


class Affine(Operator):
    """The linear part of an affine layer on inputs of one shape."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        self.layer = layer
        self.shape = shape  # of one sample

    def __call__(self, v: Tensor) -> Tensor:
        """Return f(v) - f(0)."""
        return self.layer(v) - self.layer(torch.zeros_like(v))  # type: ignore[no-any-return]

    def adjoint(self, u: Tensor) -> Tensor:
        """Return the backward pass of u."""
        with torch.enable_grad():
            v = torch.zeros(len(u), *self.shape, dtype=u.dtype, device=u.device, requires_grad=True)
            return torch.autograd.grad(self.layer(v), v, u)[0]

    def start(self, n_iter: int = 30) -> Tensor:
        """Return a right singular vector (1, ...) of a few dozen iterations from a fixed draw."""
        like = next(self.layer.parameters())
        v = torch.randn(1, *self.shape, generator=torch.Generator().manual_seed(0)).to(like)
        with torch.no_grad():
            return power_iteration(self, unit(v), n_iter)[1]


class Jacobian(Operator):
    """The derivative of outputs by inputs, sample by sample; one forward pass serves all products.

    Parameters
    ----------
    z : Tensor of shape (n, ...)
        Outputs, row i of which depends on row i of the inputs only.
    x : Tensor of shape (n, ...)
        The inputs they were computed from, which require a gradient.
    """

    def __init__(self, z: Tensor, x: Tensor) -> None:
        self.z, self.x = z, x
        self.u = torch.zeros_like(z, requires_grad=True)
        # The backward pass is linear in u: its derivative by u is the forward product.
        (self.back,) = torch.autograd.grad(z, x, self.u, create_graph=True)

    def __call__(self, v: Tensor) -> Tensor:
        """Return J v."""
        return torch.autograd.grad(self.back, self.u, v, retain_graph=True)[0]

    def adjoint(self, u: Tensor) -> Tensor:
        """Return the transpose of J times u."""
        return torch.autograd.grad(self.z, self.x, u, retain_graph=True)[0]

    def form(self, u: Tensor, v: Tensor) -> Tensor:
        """Return u J v for each sample, differentiable by the network's weights."""
        (back,) = torch.autograd.grad(self.z, self.x, u, create_graph=True)
        return (back * v).flatten(1).sum(1)


def affine_layers(module: nn.Module, call: Callable[[], Any]) -> dict[str, Affine]:
    """Return the innermost parts of a module that are affine maps of one real tensor, by name.

    ``call()`` runs the module, in evaluation mode; what each part gets then says on which shape it is a map. Whether it is
    affine is tried: :math:`f(a + b) + f(0) = f(a) + f(b)`.
    """
    shapes: dict[str, tuple[int, ...]] = {}

    def watch(name: str) -> Any:
        def see(part: nn.Module, inputs: tuple[Any, ...]) -> None:
            if len(inputs) == 1 and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point():
                shapes.setdefault(name, tuple(inputs[0].shape[1:]))

        return see

    parts = {name: part for name, part in module.named_modules() if not any(True for _ in part.children())}
    hooks = [part.register_forward_pre_hook(watch(name)) for name, part in parts.items()]
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            call()
            like = next(p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point())
            return {
                name: Affine(parts[name], shape)
                for name, shape in shapes.items()
                if _is_affine(parts[name], shape, like)
            }
    finally:
        for hook in hooks:
            hook.remove()
        for part in training:
            part.training = True


def _is_affine(part: nn.Module, shape: tuple[int, ...], like: Tensor) -> bool:
    rng = torch.Generator().manual_seed(0)
    a, b = (3 * torch.randn(1, *shape, generator=rng).to(like) for _ in range(2))
    outputs = [part(v) for v in (torch.zeros_like(a), a, b, a + b)]
    if not all(isinstance(out, Tensor) and out.is_floating_point() for out in outputs):
        return False
    zero, one, two, both = outputs
    gap, scale = (both + zero - one - two).norm(), (one - zero).norm() + (two - zero).norm()
    return bool(gap <= AFFINE * scale)
