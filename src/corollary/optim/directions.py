r"""What an update is made of, as functions of vectors: shared by the engine and by optimisers of one's own.

With gradient :math:`g`, Hessian :math:`H` and step size :math:`\eta`: the damped Newton direction solves

.. math:: (H + \lambda I)\, p = g \tag{1}

by conjugate gradients, which need products :math:`Hv` only. Variance-reduced stochastic gradients (SVRG) correct the
gradient of a batch by that at an anchor, whose full gradient is known,

.. math:: g_B(w) - g_B(\tilde w) + \nabla f(\tilde w). \tag{2}

A sharpness-aware step takes the gradient at the worst point of a ball, :math:`w + \rho\, g / \lVert g \rVert` (3). The
proximal map of :math:`t \lVert w \rVert_1` is the soft threshold :math:`\mathrm{sign}(w) \max(|w| - t, 0)` (4), and that of
the indicator of a ball the projection :math:`w \min(1, r / \lVert w \rVert)` (5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = [
    "ascent",
    "conjugate_gradient",
    "flat_gradient",
    "hessian_product",
    "norm",
    "project",
    "put",
    "soft_threshold",
    "variance_reduced",
    "write",
]

BLOCK = 2**13  # entries from which on a tensor is worth a call of its own
PLAIN = ({(torch.float32, True)}, {(torch.float64, True)})  # type, and whether on the CPU: where dot is fast
SMALLEST = 1e-31  # below it squares of single precision have lost digits, as its least number is 1e-38


# --- parameters as one vector ----------------------------------------------------------------------------


@torch.no_grad()
def put(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Set tensors to values, in place."""
    for tensor, value in zip(tensors, values):
        tensor.copy_(value)


def write(params: Sequence[Tensor], flat: Tensor) -> None:
    """Write one vector into the gradients of parameters, which may be views of a flat one."""
    for p, part in zip(params, flat.split([p.numel() for p in params])):
        if p.grad is None:
            p.grad = part.view(p.shape).clone()
        else:
            p.grad.copy_(part.view(p.shape))


def flat_gradient(loss: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Return the gradient as one vector that can be differentiated again; zeros where a parameter has no part in it."""
    return _flat(torch.autograd.grad(loss, params, create_graph=True, allow_unused=True), params)


def hessian_product(gradient: Tensor, params: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the map from v to the Hessian times v, given the gradient of :func:`flat_gradient`.

    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> hessian_product(flat_gradient((w ** 3).sum(), [w]), [w])(torch.ones(2))
    tensor([ 6., 12.])
    """
    if not gradient.requires_grad:  # a loss that is linear in all parameters
        return torch.zeros_like

    def product(v: Tensor) -> Tensor:
        return _flat(torch.autograd.grad(gradient, params, v, retain_graph=True, allow_unused=True), params)

    return product


def _flat(parts: Sequence[Tensor | None], params: Sequence[Tensor]) -> Tensor:
    rows = [(torch.zeros_like(p) if part is None else part).reshape(-1) for part, p in zip(parts, params)]
    return torch.cat(rows)


# --- directions ------------------------------------------------------------------------------------------


def norm(vectors: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of several tensors taken as one vector.

    >>> norm([torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])])
    tensor(5.)
    """
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(vectors)))


def _length(vectors: Sequence[Tensor]) -> float | Tensor:
    """Return the norm by dot products, which are the fastest pass over numbers, where squares keep their digits."""
    if {(v.dtype, v.is_cpu) for v in vectors} in PLAIN:
        square = sum(torch.dot(part, part).item() for part in _parts(vectors))
        if SMALLEST < square < math.inf:
            return math.sqrt(square)
    if all(v.is_cpu for v in vectors):
        return math.hypot(*(torch.linalg.vector_norm(v, dtype=torch.float64).item() for v in vectors))
    return norm(vectors)


def _parts(vectors: Sequence[Tensor]) -> list[Tensor]:
    """Return vectors with the same entries: small tensors make one, since a call costs more than to copy them."""
    small = [v for v in vectors if v.numel() <= BLOCK]
    large = [v.reshape(-1) for v in vectors if v.numel() > BLOCK]
    return [*large, torch._C._nn.flatten_dense_tensors(small)] if small else large


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, *, max_iter: int = 50, tol: float = 1e-6
) -> Tensor:
    """Return an approximate solution of eq. 1, where ``product(v)`` is the damped matrix times v.

    Stops when the residual is ``tol`` times that of zero, or where the curvature is not positive: what was found until
    then descends, and if it is nothing, ``b`` itself does.

    >>> conjugate_gradient(lambda v: torch.tensor([2.0, 4.0]) * v, torch.tensor([2.0, 4.0])).round(decimals=4)
    tensor([1., 1.])
    """
    x, r = torch.zeros_like(b), b.clone()
    p, rr = r.clone(), r @ r
    target = tol * tol * rr
    for i in range(max_iter):
        if rr <= target:
            break
        Ap = product(p)
        curvature = p @ Ap
        if curvature <= 0:
            return b.clone() if i == 0 else x
        alpha = rr / curvature
        x += alpha * p
        r -= alpha * Ap
        rr, old = r @ r, rr
        p = r + (rr / old) * p
    return x


def variance_reduced(gradient: Tensor, at_anchor: Tensor, full: Tensor) -> Tensor:
    """Return eq. 2."""
    return gradient - at_anchor + full


def ascent(gradients: Sequence[Tensor], rho: float) -> list[Tensor]:
    """Return the perturbation of eq. 3, shaped as the gradients."""
    scale = rho / norm(gradients).clamp_min(torch.finfo(gradients[0].dtype).tiny)
    return [scale * g for g in gradients]


def soft_threshold(w: Tensor, t: float) -> Tensor:
    """Return eq. 4.

    >>> soft_threshold(torch.tensor([-2.0, 0.5, 3.0]), 1.0)
    tensor([-1.,  0.,  2.])
    """
    return w.sign() * (w.abs() - t).clamp_min(0)


def project(vectors: Sequence[Tensor], radius: float) -> None:
    """Shrink several tensors, in place, so that together they lie in the ball of eq. 5."""
    length = _length(vectors)
    if length > radius:
        torch._foreach_mul_(vectors, radius / length)
