r"""AlexNet, as published: five convolutions, two of them in two groups, and three full layers.

====== ================================== ============ ============
layer  what                               output       parameters
====== ================================== ============ ============
1      96 kernels 11 x 11, stride 4       96 x 55²           34,944
2      256 kernels 5 x 5, two groups      256 x 27²         307,456
3      384 kernels 3 x 3                  384 x 13²         885,120
4      384 kernels 3 x 3, two groups      384 x 13²         663,936
5      256 kernels 3 x 3, two groups      256 x 13²         442,624
6, 7   full, dropout 1/2                  4096           54,534,144
8      full                               1000            4,097,000
====== ================================== ============ ============

in all 60,965,224. Overlapping pooling (3 x 3, stride 2) follows layers 1, 2 and 5, response normalisation
layers 1 and 2. Images up to 64 pixels get a first layer of 5 x 5 kernels without stride.
"""

from __future__ import annotations

from torch import nn

from corollary.errors import value
from corollary.nn.normalisation import BatchNorm2d
from corollary.vision.net import ImageNet, ResponseNorm, check_size, initialise, is_small

__all__ = ["AlexNet"]


class AlexNet(ImageNet):
    """The net that won ImageNet in 2012.

    Parameters
    ----------
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=1000
        Width of the output.
    size : int or (int, int), default=224
        Sides of the images.
    width : int, optional
        Kernels of the first layer, a multiple of 6; the others keep their proportions. 96 as published,
        24 for images up to 64 pixels.
    norm : bool, optional
        Whether batch normalisation follows each convolution, instead of response normalisation; by default for
        small images only.

    References
    ----------
    .. [1] A. Krizhevsky, I. Sutskever, G. E. Hinton (2012). ImageNet classification with deep convolutional
       neural networks. NeurIPS, section 3.5.
    """

    def __init__(
        self,
        *,
        channels: int = 3,
        n_classes: int = 1000,
        size: int | tuple[int, int] = 224,
        width: int | None = None,
        norm: bool | None = None,
    ) -> None:
        super().__init__()
        small = is_small(size)
        h, w = check_size("AlexNet", size, 4 if small else 63)
        a = width or (24 if small else 96)
        if a % 6:
            raise value("AlexNet", "width must be a multiple of 6", a, f"Use width={-(-a // 6) * 6}.")
        b, c = 8 * a // 3, 4 * a
        hidden = 4096 * a // 96 if not small else 8 * a
        norm = small if norm is None else norm
        layers: list[nn.Module] = []
        first = nn.Conv2d(channels, a, 5, padding=2) if small else nn.Conv2d(channels, a, 11, 4, 2)
        h, w = (h, w) if small else ((h - 7) // 4 + 1, (w - 7) // 4 + 1)
        h, w = _add(layers, first, h, w, norm, response=True, pool=True)
        second = nn.Conv2d(a, b, 5, padding=2, groups=2)
        h, w = _add(layers, second, h, w, norm, response=True, pool=True)
        for n_in, n_out, groups in ((b, c, 1), (c, c, 2), (c, b, 2)):
            layer = nn.Conv2d(n_in, n_out, 3, padding=1, groups=groups)
            h, w = _add(layers, layer, h, w, norm, pool=n_out == b)
        self.features = nn.Sequential(*layers)
        self.head = full_layers(b * h * w, hidden, n_classes)
        initialise(self.features)


def full_layers(n_in: int, hidden: int, n_classes: int) -> nn.Sequential:
    """Return two hidden full layers with dropout 1/2, and the output."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(n_in, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(hidden, hidden),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(hidden, n_classes),
    )


def _add(
    layers: list[nn.Module],
    convolution: nn.Conv2d,
    h: int,
    w: int,
    norm: bool,
    response: bool = False,
    pool: bool = False,
) -> tuple[int, int]:
    """Add a convolution and what follows it; return the new sides, halved if there was something to pool."""
    layers.append(convolution)
    if norm:
        layers.append(BatchNorm2d(convolution.out_channels))
    layers.append(nn.ReLU(inplace=True))
    if response and not norm:  # torch divides alpha by 5, the paper does not
        layers.append(ResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0))
    if not pool or min(h, w) < 3:
        return h, w
    layers.append(nn.MaxPool2d(3, 2))
    return (h - 3) // 2 + 1, (w - 3) // 2 + 1
