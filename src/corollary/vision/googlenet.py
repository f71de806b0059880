r"""GoogLeNet: modules that look at several scales at once, made cheap by 1 x 1 convolutions.

An inception module concatenates four branches,

.. math:: [\,1{\times}1,\; 1{\times}1 \to 3{\times}3,\; 1{\times}1 \to 5{\times}5,\; \max_{3\times3} \to 1{\times}1\,], \tag{1}

where a 1 x 1 convolution to :math:`b` channels before a :math:`k \times k` one turns :math:`k^2 c c'`
multiplications per pixel into :math:`cb + k^2 b c'`. As published the net has 6,998,552 parameters, and
13,378,280 with the two auxiliary classifiers that send gradients into its middle while training.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corollary.vision.net import (
    COARSE,
    Conv,
    ImageNet,
    ResponseNorm,
    check_size,
    halving,
    initialise,
    is_small,
)

__all__ = ["GoogLeNet", "Inception"]

# Channels of 1x1; 3x3 reduced, 3x3; 5x5 reduced, 5x5; after pooling (Szegedy et al., 2015, table 1).
MODULES = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
POOLED_BEFORE = ("4a", "5a")
AUXILIARY_AFTER = ("4a", "4d")


class Inception(nn.Module):
    """Four branches beside each other, eq. 1: (n, n_in, h, w) -> (n, sum of branches, h, w)."""

    def __init__(self, n_in: int, widths: tuple[int, ...], norm: bool) -> None:
        super().__init__()
        one, three_in, three, five_in, five, pooled = widths
        self.one = Conv(n_in, one, 1, norm=norm)
        self.three = nn.Sequential(Conv(n_in, three_in, 1, norm=norm), Conv(three_in, three, 3, norm=norm))
        self.five = nn.Sequential(Conv(n_in, five_in, 1, norm=norm), Conv(five_in, five, 5, norm=norm))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), Conv(n_in, pooled, 1, norm=norm))
        self.n_out = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        """Return the branches, concatenated."""
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


class GoogLeNet(ImageNet):
    """The net of inception modules that won ImageNet in 2014.

    Parameters
    ----------
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=1000
        Width of the output.
    size : int or (int, int), default=224
        Sides of the images; up to 64 pixels the stem is of 3 x 3 convolutions, pooled to at most 16.
    width : int, optional
        Channels of the first layer, a multiple of 4; the others keep their proportions. 64 as published,
        16 for small images.
    norm : bool, optional
        Whether batch normalisation follows each convolution; by default for small images only.
    auxiliary : bool, default=False
        Whether two further classifiers branch off; in training the output is then a tuple of three logits.

    References
    ----------
    .. [1] C. Szegedy et al. (2015). Going deeper with convolutions. CVPR, table 1.
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        n_classes: int = 1000,
        size: int | tuple[int, int] = 224,
        width: int | None = None,
        norm: bool | None = None,
        auxiliary: bool = False,
    ) -> None:
        super().__init__()
        small = is_small(size)
        check_size("GoogLeNet", size, 4)
        width = width or (16 if small else 64)
        norm = small if norm is None else norm
        self.stem = _small_stem(channels, width, size) if small else _stem(channels, width, norm)
        self.blocks = nn.ModuleDict()
        self.auxiliary = nn.ModuleDict()
        n = width if small else 3 * width
        for name, published in MODULES.items():
            module = Inception(n, tuple(max(1, w * width // 64) for w in published), norm)
            pool = [nn.MaxPool2d(3, 2, 1)] if name in POOLED_BEFORE else []
            self.blocks[name] = nn.Sequential(*pool, module)
            n = module.n_out
            if auxiliary and name in AUXILIARY_AFTER:
                self.auxiliary[name] = _auxiliary(n, n_classes, norm)
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.4), nn.Linear(n, n_classes)
        )
        initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """Return the maps before the last pooling."""
        return self._walk(x)[0]

    def forward(self, x: Tensor) -> Any:
        """Return the logits, with those of the auxiliary classifiers while these are trained."""
        maps, side = self._walk(x)
        logits = self.head(maps)
        return (logits, *side) if side else logits

    def _walk(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        x, side = self.stem(x), []
        for name, block in self.blocks.items():
            x = block(x)
            if self.training and name in self.auxiliary:
                side.append(self.auxiliary[name](x))
        return x, side


def _stem(channels: int, width: int, norm: bool) -> nn.Sequential:
    return nn.Sequential(
        Conv(channels, width, 7, 2, norm=norm),
        nn.MaxPool2d(3, 2, 1),
        ResponseNorm(5),
        Conv(width, width, 1, norm=norm),
        Conv(width, 3 * width, 3, norm=norm),
        ResponseNorm(5),
        nn.MaxPool2d(3, 2, 1),
    )


def _small_stem(channels: int, width: int, size: Any) -> nn.Module:
    return nn.Sequential(Conv(channels, width), *halving(size, width, COARSE))


def _auxiliary(n_in: int, n_classes: int, norm: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(4),
        Conv(n_in, 128, 1, norm=norm),
        nn.Flatten(),
        nn.Linear(2048, 1024),
        nn.ReLU(inplace=True),
        nn.Dropout(0.7),
        nn.Linear(1024, n_classes),
    )
