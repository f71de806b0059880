r"""LeNet-5, as published.

============ ========================================= ========== ==========
layer        what                                      output     parameters
============ ========================================= ========== ==========
C1           6 kernels 5 x 5                           6 x 28²           156
S2           sum of 2 x 2, coefficient and bias        6 x 14²            12
C3           16 kernels 5 x 5, 60 connected pairs      16 x 10²        1,516
S4           sum of 2 x 2, coefficient and bias        16 x 5²            32
C5           120 kernels 5 x 5                         120            48,120
F6           full                                      84             10,164
============ ========================================= ========== ==========

which are 60,000 trainable parameters. Each layer is squashed by :math:`1.7159 \tanh(2a/3)`. The published
output, distances to fixed bitmaps of the characters, only makes sense for ASCII: a full layer stands in its place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.vision.net import ImageNet, check_size

__all__ = ["LeNet5"]

# Which of the six maps of S2 each of the sixteen maps of C3 sees (LeCun et al., 1998, table I).
TABLE = [
    *([i, (i + 1) % 6, (i + 2) % 6] for i in range(6)),
    *([i, (i + 1) % 6, (i + 2) % 6, (i + 3) % 6] for i in range(6)),
    *([i, (i + 1) % 6, (i + 3) % 6, (i + 4) % 6] for i in range(3)),
    [0, 1, 2, 3, 4, 5],
]


SIDE = 32  # pixels of the images that the net was published for


def squash(a: Tensor) -> Tensor:
    """Return 1.7159 tanh(2a/3), which maps 1 to 1 and has its largest curvature there."""
    return 1.7159 * torch.tanh(2 / 3 * a)


class Subsample(nn.Module):
    """The sum over 2 x 2 windows, times a coefficient, plus a bias, for each map."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.coefficient = nn.Parameter(torch.full((channels, 1, 1), 0.25))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Halve both sides."""
        return 4 * F.avg_pool2d(x, 2) * self.coefficient + self.bias


class TableConv(nn.Module):
    """A convolution in which each output map sees only the input maps that a table lists."""

    def __init__(self, table: list[list[int]], n_in: int, kernel: int, padding: int) -> None:
        super().__init__()
        self.padding = padding
        self.shape = (len(table), n_in, kernel, kernel)
        links = sum(map(len, table))
        self.weight = nn.Parameter(torch.empty(links, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(len(table)))
        index = torch.full((len(table), n_in), links)  # the one past the last stands for zero
        count = 0
        for row, inputs in enumerate(table):
            for column in inputs:
                index[row, column] = count
                bound = (3 / (len(inputs) * kernel**2)) ** 0.5
                nn.init.uniform_(self.weight.data[count], -bound, bound)
                count += 1
        self.register_buffer("index", index, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the maps."""
        kernels = F.pad(self.weight, (0, 0, 0, 0, 0, 1))[self.index].reshape(self.shape)
        return F.conv2d(x, kernels, self.bias, padding=self.padding)


class LeNet5(ImageNet):
    """The net for handwritten digits.

    Parameters
    ----------
    channels : int, default=1
        Channels of the images.
    n_classes : int, default=10
        Width of the output.
    size : int or (int, int), default=32
        Sides of the images; smaller ones are padded where a kernel would not fit, larger ones averaged over squares
        until the shorter side has at most the published 32 pixels.

    References
    ----------
    .. [1] Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998). Gradient-based learning applied to document
       recognition. Proceedings of the IEEE 86(11), section II.B.

    Examples
    --------
    >>> net = LeNet5()
    >>> sum(p.numel() for p in net.features.parameters())
    60000
    """

    def __init__(self, *, channels: int = 1, n_classes: int = 10, size: int | tuple[int, int] = 32) -> None:
        super().__init__()
        h, w = check_size("LeNet5", size, 4)
        factor = -(-min(h, w) // SIDE)
        h, w = h // factor, w // factor
        first = 2 if min(h, w) < 32 else 0
        h, w = (h + 2 * first - 4) // 2, (w + 2 * first - 4) // 2
        second = 2 if min(h, w) < 10 else 0
        h, w = (h + 2 * second - 4) // 2, (w + 2 * second - 4) // 2
        squashed: list[nn.Module] = [
            nn.Conv2d(channels, 6, 5, padding=first),
            Subsample(6),
            TableConv(TABLE, 6, 5, second),
            Subsample(16),
            nn.Conv2d(16, 120, (h, w)),
            nn.Linear(120, 84),
        ]
        shrunk = [nn.AvgPool2d(factor)] if factor > 1 else []
        self.features = nn.Sequential(*shrunk, Squashed(*squashed)) if shrunk else Squashed(*squashed)
        self.head = nn.Linear(84, n_classes)


class Squashed(nn.Sequential):
    """Layers with a squashing function after each."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations of the last layer."""
        for layer in self:
            x = squash(layer(x.flatten(1) if isinstance(layer, nn.Linear) else x))
        return x
