r"""VGG: stacks of 3 x 3 convolutions, the number of channels doubled whenever the sides are halved.

===== =========================== =============
depth convolutions per stage      parameters
===== =========================== =============
11    1 1 2 2 2                     132,863,336
13    2 2 2 2 2                     133,047,848
16    2 2 3 3 3                     138,357,544
19    2 2 4 4 4                     143,667,240
===== =========================== =============

Two such layers see 5 x 5 pixels with 18 instead of 25 weights per pair of channels.
"""

from __future__ import annotations

from torch import nn

from corollary.errors import unknown
from corollary.vision.alexnet import full_layers
from corollary.vision.net import Conv, ImageNet, check_size, initialise, is_small

__all__ = ["VGG"]

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(ImageNet):
    """A deep plain net of small kernels.

    Parameters
    ----------
    depth : {11, 13, 16, 19}, default=16
        Layers with weights. More see more, and are harder to train.
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=1000
        Width of the output.
    size : int or (int, int), default=224
        Sides of the images; a side of one is not halved again.
    width : int, optional
        Channels of the first stage; 64 as published, 16 for images up to 64 pixels.
    norm : bool, optional
        Whether batch normalisation follows each convolution; by default for small images only, where it
        lets the net train without the published pre-training.

    References
    ----------
    .. [1] K. Simonyan, A. Zisserman (2015). Very deep convolutional networks for large-scale image
       recognition. ICLR, tables 1 and 2.
    """

    def __init__(
        self,
        depth: int = 16,
        *,
        channels: int = 3,
        n_classes: int = 1000,
        size: int | tuple[int, int] = 224,
        width: int | None = None,
        norm: bool | None = None,
    ) -> None:
        super().__init__()
        if depth not in STAGES:
            raise unknown("VGG", "depth", str(depth), map(str, STAGES))
        small = is_small(size)
        h, w = check_size("VGG", size, 2)
        width = width or (16 if small else 64)
        norm = small if norm is None else norm
        layers: list[nn.Module] = []
        for stage, count in enumerate(STAGES[depth]):
            n_out = width * min(2**stage, 8)
            for _ in range(count):
                layers.append(Conv(channels, n_out, norm=norm))
                channels = n_out
            if min(h, w) >= 2:
                layers.append(nn.MaxPool2d(2))
                h, w = h // 2, w // 2
        self.features = nn.Sequential(*layers)
        self.head = full_layers(channels * h * w, 64 * width if not small else 16 * width, n_classes)
        initialise(self.features)
