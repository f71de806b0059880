"""Base of the image networks: features, then a head; and how published layouts adapt to small images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.normalisation import BatchNorm2d

__all__ = [
    "Conv",
    "ImageNet",
    "Pointwise",
    "ResponseNorm",
    "Standardise",
    "WideConv2d",
    "halving",
    "is_small",
    "pair",
    "check_size",
]

SMALL = 64  # sides up to this get a stem of 3 x 3, and a narrow default width
WIDE = 2**20  # weights from which a convolution keeps its channels first
FINE, COARSE = 24, 16  # sides up to which that stem halves images, for nets of few and of many layers


class ImageNet(nn.Module):
    """A net for images: ``features`` (n, c, h, w) -> maps or a vector, ``head`` -> logits (n, n_classes)."""

    features: Any
    head: nn.Module

    def forward(self, x: Tensor) -> Any:
        """Return the logits."""
        return self.head(self.features(x))

    @property
    def module_(self) -> ImageNet:
        """The net itself, under the name that fitted estimators have for theirs."""
        return self


class Pointwise(nn.Conv2d):
    """A 1 x 1 convolution without bias; with a stride, of every so-many-th pixel.

    The pixels are picked before the product: the same numbers, and with channels last oneDNN's own strided
    1 x 1 kernel (torch 2.13) writes past its buffer when the weights of fewer than 8 channels are differentiated.
    """

    def __init__(self, n_in: int, n_out: int, step: int = 1) -> None:
        super().__init__(n_in, n_out, 1, bias=False)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        """Return the mixed channels."""
        return super().forward(x if self.step == 1 else x[:, :, :: self.step, :: self.step])


class WideConv2d(nn.Conv2d):
    """A convolution of so many weights, on few pixels, that it is faster with the channels first in memory.

    With the channels last, torch 2.13 copies weights and their gradients number by number, in one thread: for 512 x 512 x
    3 x 3 weights that takes as long as the products. The numbers are the same in either order.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps, with the channels first in memory."""
        return super().forward(x.contiguous())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> WideConv2d:
        super()._apply(fn, recurse)
        self.weight.data = self.weight.data.contiguous()
        return self


class Conv(nn.Sequential):
    """A convolution that keeps the size (for stride 1), batch normalisation unless ``norm`` is False, and ReLU."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        norm: bool = True,
        activation: nn.Module | None = None,
    ) -> None:
        layers: list[nn.Module] = [_convolution(n_in, n_out, kernel, stride, bias=not norm)]
        if norm:
            layers.append(BatchNorm2d(n_out))
        layers.append(nn.ReLU(inplace=True) if activation is None else activation)
        super().__init__(*layers)


def _convolution(n_in: int, n_out: int, kernel: int, stride: int, bias: bool) -> nn.Conv2d:
    if kernel == 1 and stride > 1 and not bias:
        return Pointwise(n_in, n_out, stride)
    wide = kernel > 1 and n_in * n_out * kernel**2 >= WIDE
    return (WideConv2d if wide else nn.Conv2d)(n_in, n_out, kernel, stride, kernel // 2, bias=bias)


class ResponseNorm(nn.LocalResponseNorm):
    """Torch's normalisation over neighbouring channels, also for bfloat16, for which it has no kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised maps."""
        return super().forward(x.float()).to(x.dtype) if x.dtype == torch.bfloat16 else super().forward(x)


class Standardise(nn.Module):
    """Give every channel mean 0 and variance 1, with statistics of the training images."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, channels, 1, 1))
        self.register_buffer("scale", torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the standardised images, with the channels last in memory, where convolutions are fastest."""
        return ((x - self.mean) / self.scale).contiguous(memory_format=torch.channels_last)


def pair(size: int | Sequence[int]) -> tuple[int, int]:
    """Return height and width."""
    h, w = (size, size) if isinstance(size, int) else size
    return int(h), int(w)


def is_small(size: int | Sequence[int]) -> bool:
    """Whether images of this size get the small stem and width."""
    return min(pair(size)) <= SMALL


def halving(size: int | Sequence[int], width: int, fine: int = FINE) -> list[nn.Module]:
    """Return what follows the stem for small images: maxima over 2 x 2 until no more than ``fine`` pixels are left.

    Deep layers cost with the pixels of their maps, and a training on a processor is short: on 48 x 48 pixels four times
    the epochs at a quarter of the pixels are worth more than sharper maps.
    """
    side, layers = min(pair(size)), []
    while side > fine:
        layers += [Conv(width, width), nn.MaxPool2d(2)] if layers else [nn.MaxPool2d(2)]
        side //= 2
    return layers


def check_size(owner: str, size: int | Sequence[int], least: int) -> tuple[int, int]:
    """Return height and width, which must be at least ``least``."""
    h, w = pair(size)
    if min(h, w) < least:
        do = f"Resize them to {least} x {least} or more."
        raise value(owner, f"images must be at least {least} x {least}", f"{h} x {w}", do)
    return h, w


def initialise(module: nn.Module) -> None:
    """Draw convolutions so that rectified activations keep their variance (He et al., 2015), full layers too.

    A smaller output layer would slow the start: averages over maps differ little from image to image.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="linear")
            nn.init.zeros_(part.bias)
