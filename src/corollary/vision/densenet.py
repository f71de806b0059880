r"""DenseNet: every layer sees all maps before it.

Layer :math:`\ell` of a block adds :math:`k` maps (the growth rate) to what it is given,

.. math:: x_\ell = [\,x_{\ell-1},\; H_\ell(x_{\ell-1})\,], \qquad
    H = \text{BN, ReLU, } 1{\times}1 \to 4k, \text{ BN, ReLU, } 3{\times}3 \to k; \tag{1}

between blocks a 1 x 1 convolution halves the number of maps and a pooling the sides.

===== =========== ============= ===========
depth growth      layers        parameters
===== =========== ============= ===========
121   32          6 12 24 16      7,978,856
161   48          6 12 36 24     28,681,000
169   32          6 12 32 32     14,149,480
201   32          6 12 48 32     20,013,928
===== =========== ============= ===========
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from corollary.errors import unknown
from corollary.nn.normalisation import BatchNorm2d
from corollary.nn.shortcuts import Dense
from corollary.vision.net import COARSE, ImageNet, check_size, halving, initialise, is_small

__all__ = ["DenseNet"]

BLOCKS = {121: (6, 12, 24, 16), 161: (6, 12, 36, 24), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}
GROWTH = {121: 32, 161: 48, 169: 32, 201: 32}
BOTTLENECK = 4  # width of the 1 x 1 convolution, in growth rates


class DenseNet(ImageNet):
    """A net whose layers are all connected.

    Parameters
    ----------
    depth : {121, 161, 169, 201} or sequence of int, default=121
        A published depth, or the number of layers of each block.
    channels : int, default=3
        Channels of the images.
    n_classes : int, default=1000
        Width of the output.
    size : int or (int, int), default=224
        Sides of the images; up to 64 pixels the stem is of 3 x 3 convolutions, pooled to at most 16.
    width : int, optional
        The growth rate. 32 or 48 as published, 12 for small images.

    References
    ----------
    .. [1] G. Huang, Z. Liu, L. van der Maaten, K. Q. Weinberger (2017). Densely connected convolutional
       networks. CVPR, table 1.
    """

    def __init__(
        self,
        depth: int | Sequence[int] = 121,
        *,
        channels: int = 3,
        n_classes: int = 1000,
        size: int | tuple[int, int] = 224,
        width: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(depth, int) and depth not in BLOCKS:
            raise unknown("DenseNet", "depth", str(depth), map(str, BLOCKS))
        small = is_small(size)
        blocks = BLOCKS[depth] if isinstance(depth, int) else tuple(depth)
        check_size("DenseNet", size, 2 ** (len(blocks) - 1) if small else 32)
        k = width or (12 if small else GROWTH[depth] if isinstance(depth, int) else 32)
        n = 2 * k
        layers: list[nn.Module] = [nn.Conv2d(channels, n, 3, 1, 1, bias=False)]
        layers += halving(size, n, COARSE)
        if not small:
            layers = [nn.Conv2d(channels, n, 7, 2, 3, bias=False), *_rectified(n), nn.MaxPool2d(3, 2, 1)]
        for i, count in enumerate(blocks):
            if i > 0:
                layers += [*_rectified(n), nn.Conv2d(n, n // 2, 1, bias=False), nn.AvgPool2d(2)]
                n //= 2
            for _ in range(count):
                layers.append(Dense(_layer(n, k)))
                n += k
        self.features = nn.Sequential(*layers, *_rectified(n))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, n_classes))
        initialise(self)


def _rectified(n: int) -> list[nn.Module]:
    return [BatchNorm2d(n), nn.ReLU(inplace=True)]


def _layer(n_in: int, growth: int) -> nn.Sequential:
    inner = BOTTLENECK * growth
    return nn.Sequential(
        *_rectified(n_in),
        nn.Conv2d(n_in, inner, 1, bias=False),
        *_rectified(inner),
        nn.Conv2d(inner, growth, 3, padding=1, bias=False),
    )
