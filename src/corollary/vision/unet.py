r"""U-Net: an encoder-decoder network for segmentation, with skip connections.

On the way down, :math:`L` times: two 3 x 3 convolutions, then a 2 x 2 maximum that halves the sides while the
channels double. On the way up, :math:`L` times: a transposed 2 x 2 convolution that doubles the sides, the
maps of the same height from the way down beside it, and two 3 x 3 convolutions. A 1 x 1 convolution gives each
pixel its logits. As published (64 channels, :math:`L = 4`, no padding) an image of 572 x 572 becomes a map of
388 x 388; with padding, sizes are kept, and images whose sides :math:`2^L` does not divide are padded by
repeating their border and cut again.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.errors import value
from corollary.vision.net import Conv, initialise, is_small, pair

__all__ = ["UNet"]


class Double(nn.Sequential):
    """Two 3 x 3 convolutions; without padding each takes one pixel off every border."""

    def __init__(self, n_in: int, n_out: int, padding: bool, norm: bool) -> None:
        layers = [Conv(n_in, n_out, norm=norm), Conv(n_out, n_out, norm=norm)]
        if not padding:
            for layer in layers:
                layer[0].padding = (0, 0)
        super().__init__(*layers)


class UNet(nn.Module):
    """A net from images to maps of the same size.

    Parameters
    ----------
    channels : int, default=1
        Channels of the images.
    n_classes : int, default=2
        Channels of the output.
    size : int or (int, int), default=572
        Sides of the images that it is for; only the defaults below depend on them.
    width : int, optional
        Channels of the first level. 64 as published, 16 for images up to 64 pixels.
    depth : int, optional
        Times that the sides are halved. 4 as published, fewer for small images.
    padding : bool, default=True
        Whether convolutions keep the size; False as published.
    norm : bool, default=True
        Whether batch normalisation follows each convolution; False as published.

    References
    ----------
    .. [1] O. Ronneberger, P. Fischer, T. Brox (2015). U-Net: convolutional networks for biomedical image
       segmentation. MICCAI, figure 1.

    Examples
    --------
    >>> UNet(size=28)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 2, 28, 28])
    """

    def __init__(
        self,
        *,
        channels: int = 1,
        n_classes: int = 2,
        size: int | tuple[int, int] = 572,
        width: int | None = None,
        depth: int | None = None,
        padding: bool = True,
        norm: bool = True,
    ) -> None:
        super().__init__()
        small = is_small(size)
        width = width or (16 if small else 64)
        self.depth = depth or (4 if not small else max(1, min(4, min(pair(size)).bit_length() - 3)))
        self.padding = padding
        widths = [width * 2**i for i in range(self.depth + 1)]
        inputs = [channels, *widths[:-1]]
        self.down = nn.ModuleList(Double(n, m, padding, norm) for n, m in zip(inputs, widths))
        steps = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(n, m, 2, 2) for n, m in steps)
        self.join = nn.ModuleList(Double(n, m, padding, norm) for n, m in steps)
        self.head = nn.Conv2d(width, n_classes, 1)
        initialise(self)
        for up in self.up:  # each pixel is one mixture of the channels below it
            nn.init.normal_(up.weight, std=up.in_channels**-0.5)
        nn.init.normal_(self.head.weight, std=width**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of every pixel."""
        h, w = x.shape[2:]
        if self.padding:
            bottom, right = -h % 2**self.depth, -w % 2**self.depth
            x = F.pad(x, (0, right, 0, bottom), mode="replicate") if bottom or right else x
        kept = []
        for i, block in enumerate(self.down):
            if i > 0:
                self._check(x)
                x = F.max_pool2d(x, 2)
            x = block(x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, kept[-2::-1]):
            x = up(x)
            x = join(torch.cat([_middle(beside, x.shape[2], x.shape[3]), x], 1))
        x = self.head(x)
        return x[:, :, :h, :w] if self.padding else x

    def _check(self, x: Tensor) -> None:
        h, w = x.shape[2:]
        if h % 2 or w % 2:
            do = "Use padding=True, or sides such as 572 for depth 4."
            raise value("UNet", "every level must have even sides to be halved", f"{h} x {w}", do)


def _middle(x: Tensor, h: int, w: int) -> Tensor:
    top, left = (x.shape[2] - h) // 2, (x.shape[3] - w) // 2
    return x[:, :, top : top + h, left : left + w]
