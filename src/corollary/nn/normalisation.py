r"""Normalisation by name: torch's own, for a width or around a layer.

Batch and layer normalisation are layers; weight normalisation [1]_ is another form of a layer's matrix,

.. math:: w_i = g_i \frac{v_i}{\lVert v_i \rVert}, \tag{1}

whose length and direction are learned apart. So ``norm`` takes a width and returns a layer, or takes a layer
and returns it normalised.

Batch normalisation of a single value per channel, as in a last batch of one row, has no variance: such a batch
is normalised with the running statistics and leaves them as they are.

References
----------
.. [1] T. Salimans, D. P. Kingma (2016). Weight normalization: a simple reparameterization to accelerate
   training of deep neural networks. NeurIPS. Eq. (2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from corollary.errors import unknown, value

__all__ = ["NORMS", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "norm"]


if TYPE_CHECKING:
    from torch.nn.modules.batchnorm import _BatchNorm as _Base
else:
    _Base = object


class _Alone(_Base):
    """Normalise one value per channel with the running statistics; torch refuses it while training."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised values."""
        if self.training and x.numel() == self.num_features:
            running = (self.running_mean, self.running_var)
            return F.batch_norm(x, *running, self.weight, self.bias, training=False, eps=self.eps)
        return super().forward(x)


class BatchNorm1d(_Alone, nn.BatchNorm1d):
    """Torch's layer, which also takes a single row."""


class BatchNorm2d(_Alone, nn.BatchNorm2d):
    """Torch's layer, which also takes a single pixel."""


class BatchNorm3d(_Alone, nn.BatchNorm3d):
    """Torch's layer, which also takes a single voxel."""


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": BatchNorm1d,
    "layer": nn.LayerNorm,
    "none": lambda width: nn.Identity(),
    "weight": lambda width: _needs_a_layer(),
}
# After a convolution the channels come second, and statistics are taken over positions too.
AFTER_CONVOLUTION: dict[str, Callable[[int, int], nn.Module]] = {
    "batch": lambda width, axes: (BatchNorm1d, BatchNorm2d, BatchNorm3d)[axes - 1](width),
    "layer": lambda width, axes: nn.GroupNorm(1, width),
}


def norm(name: str | None, over: int | nn.Module) -> nn.Module:
    """Return the normalisation of this name over a width, or the layer ``over`` normalised.

    >>> norm("layer", 8).normalized_shape
    (8,)
    >>> type(norm("batch", nn.Conv2d(1, 8, 3))[1]).__name__
    'BatchNorm2d'
    >>> norm("weight", nn.Linear(3, 8)).weight.shape
    torch.Size([8, 3])
    """
    name = name or "none"
    if name not in NORMS:
        raise unknown("nn.norm", "normalisation", name, NORMS)
    if isinstance(over, int):
        return NORMS[name](over)
    if name == "none":
        return over
    if name == "weight":
        return weight_norm(over)
    return nn.Sequential(over, _after(name, over))


def _after(name: str, layer: nn.Module) -> nn.Module:
    if isinstance(layer, nn.Linear):
        return NORMS[name](layer.out_features)
    assert isinstance(layer.weight, Tensor) and isinstance(layer.out_channels, int)
    axes = layer.weight.ndim - 2
    return AFTER_CONVOLUTION[name](layer.out_channels, axes)


def _needs_a_layer() -> nn.Module:
    must = "weight normalisation needs the layer whose weights are normalised"
    raise value("nn.norm", must, "a width", "Pass the layer: norm('weight', nn.Linear(3, 8)).")
