r"""Poolings that torch does not have: the minimum, and the mean weighted by a softmax.

Over each window :math:`\mathcal W`, with an inverse temperature :math:`\beta`,

.. math:: y = \sum_{i \in \mathcal W} \frac{e^{\beta x_i}}{\sum_{j \in \mathcal W} e^{\beta x_j}} x_i, \tag{1}

which is the mean for :math:`\beta = 0`, tends to the maximum for :math:`\beta \to \infty` and to the minimum
for :math:`\beta \to -\infty`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import value

__all__ = ["MinPool1d", "MinPool2d", "SoftmaxPool1d", "SoftmaxPool2d"]


class MinPool1d(nn.MaxPool1d):
    """Take the minimum over windows; arguments as for ``torch.nn.MaxPool1d``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the minima: the negated maxima of what is negated."""
        return -super().forward(-x)


class MinPool2d(nn.MaxPool2d):
    """Take the minimum over windows; arguments as for ``torch.nn.MaxPool2d``."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the minima: the negated maxima of what is negated."""
        return -super().forward(-x)


class _SoftmaxPool(nn.Module):
    axes: int

    def __init__(
        self, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = None, beta: float = 1.0
    ) -> None:
        super().__init__()
        self.kernel_size = _per_axis(kernel_size, self.axes)
        self.stride = self.kernel_size if stride is None else _per_axis(stride, self.axes)
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted means, eq. 1."""
        sizes = tuple(x.shape[-self.axes :])
        if any(k > n for k, n in zip(self.kernel_size, sizes)):
            must = "the window must fit into the input"
            raise value(type(self).__name__, must, f"kernel_size {self.kernel_size} and {sizes}")
        windows = x
        for axis, (k, s) in enumerate(zip(self.kernel_size, self.stride)):
            windows = windows.unfold(x.ndim - self.axes + axis, k, s)
        windows = windows.flatten(-self.axes)  # (..., *o, window)
        return (F.softmax(self.beta * windows, -1) * windows).sum(-1)

    def extra_repr(self) -> str:
        """Name the window."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, beta={self.beta}"


class SoftmaxPool1d(_SoftmaxPool):
    """Average over windows of (..., t) with softmax weights of sharpness ``beta``."""

    axes = 1


class SoftmaxPool2d(_SoftmaxPool):
    """Average over windows of (..., h, w) with softmax weights of sharpness ``beta``."""

    axes = 2


def _per_axis(v: int | Sequence[int], axes: int) -> tuple[int, ...]:
    return (v,) * axes if isinstance(v, int) else tuple(v)
