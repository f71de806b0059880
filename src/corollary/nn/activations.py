r"""Activation functions by name.

Torch's own where it has them; here are only those it lacks: the absolute value unit
:math:`|z|`, the heaviside step (whose derivative is zero almost everywhere), and maxout,
:math:`h_i(x) = \max_{j \le k} (W_{ij}^\top x + b_{ij})`, of which the k-hinge is the one-unit case.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from corollary.errors import unknown

__all__ = ["ACTIVATIONS", "AbsU", "Heaviside", "Maxout", "activation"]


class AbsU(nn.Module):
    """The absolute value unit."""

    def forward(self, z: Tensor) -> Tensor:
        """Return |z|."""
        return z.abs()


class Heaviside(nn.Module):
    """The step of the first neuron models: 1 where z >= 0, else 0; no gradient passes."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the indicator of z >= 0."""
        return (z >= 0).to(z.dtype)


class Maxout(nn.Module):
    """Take the maximum over groups of ``k`` neighbouring features: (..., k m) -> (..., m)."""

    def __init__(self, k: int = 2) -> None:
        super().__init__()
        self.k = k

    def forward(self, z: Tensor) -> Tensor:
        """Return the maxima."""
        return z.unflatten(-1, (-1, self.k)).amax(-1)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "absu": AbsU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "heaviside": Heaviside,
    "identity": nn.Identity,
    "leaky": nn.LeakyReLU,
    "maxout": Maxout,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softmax": lambda: nn.Softmax(dim=-1),
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}
ALIASES = {
    "leaky_relu": "leaky",
    "logistic": "sigmoid",
    "linear": "identity",
    "k-hinge": "maxout",
    "step": "heaviside",
}


def activation(name: str) -> nn.Module:
    """Return the activation of this name as a module.

    >>> import torch
    >>> activation("absu")(torch.tensor([-2.0, 3.0]))
    tensor([2., 3.])
    """
    name = ALIASES.get(name, name)
    if name not in ACTIVATIONS:
        raise unknown("nn.activation", "activation", name, [*ACTIVATIONS, *ALIASES])
    return ACTIVATIONS[name]()
