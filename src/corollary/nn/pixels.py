r"""Causal convolutions on images: every pixel from those above it and to the left of it.

Pixels are read row by row, and within a pixel channel by channel, so that

.. math:: P(x) = \prod_{i} P(x_i \mid x_1, \dots, x_{i-1}). \tag{1}

A *vertical* stack sees the rows above, a *horizontal* one the present row to the left (a single stack of masked square kernels
would not see all pixels above: a blind spot). At the pixel itself features and outputs belong to channels: features of channel
k see channels before the k-th in the first layer (mask A) and up to the k-th in later ones (mask B). Every layer is gated,

.. math::
    v = W_v * v' , \qquad h = W_h * h' + W_1 * \mathrm{down}(v) + r_i + c_j, \qquad
    v'' = \tanh(v_a) \odot \sigma(v_b), \qquad h'' = h' + W_2 (\tanh(h_a) \odot \sigma(h_b)), \tag{2}

where *down* shifts by one row and :math:`r_i`, :math:`c_j` are learned for each row and column: convolutions alone see the same
everywhere, and do not know how far down an empty image goes. To draw a pixel only its own column of horizontal features is
new, and the vertical ones once for each row: with the last rows of every layer kept, an image costs about as much as one
pass, not as one for each pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["GatedLayer", "PixelNetwork", "channel_mask"]


def channel_mask(n_out: int, n_in: int, channels: int, strict: bool, halves: int = 1) -> Tensor:
    """Return which inputs (n_out, n_in) each output may see at the pixel itself; both are split evenly over the channels.

    >>> channel_mask(2, 2, 2, strict=True).int().tolist(), channel_mask(2, 2, 2, strict=False).int().tolist()
    ([[0, 0], [1, 0]], [[1, 0], [1, 1]])
    """
    outs = (torch.arange(n_out // halves) * channels // (n_out // halves)).repeat(halves)
    ins = torch.arange(n_in) * channels // n_in
    return outs[:, None] > ins if strict else outs[:, None] >= ins


def _gate(x: Tensor) -> Tensor:
    a, b = x.chunk(2, 1)
    return a.tanh() * b.sigmoid()


class Masked(nn.Module):
    """A convolution over the ``reach`` pixels to the left and the pixel itself, masked by channel there."""

    def __init__(
        self, n_in: int, n_out: int, reach: int, channels: int, strict: bool = False, halves: int = 1
    ) -> None:
        super().__init__()
        self.reach = reach
        self.convolution = nn.Conv2d(n_in, n_out, (1, reach + 1))
        mask = torch.ones(n_out, n_in, 1, reach + 1)
        mask[:, :, 0, -1] = channel_mask(n_out, n_in, channels, strict, halves).float()
        self.register_buffer("mask", mask)
        self.mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of the same size."""
        weight = self.convolution.weight * self.mask
        return F.conv2d(F.pad(x, (self.reach, 0)), weight, self.convolution.bias)

    def column(self, window: Tensor) -> Tensor:
        """Return the output (n, n_out) at the last of ``reach + 1`` pixels (n, n_in, reach + 1)."""
        weight = (self.convolution.weight * self.mask)[:, :, 0].flatten(1)
        return F.linear(window.flatten(1), weight, self.convolution.bias)


class GatedLayer(nn.Module):
    """One layer of both stacks, eq. 2."""

    def __init__(
        self,
        n_in: tuple[int, int],
        width: int,
        reach: int,
        channels: int,
        n_classes: int,
        first: bool,
        sides: tuple[int, int],
    ) -> None:
        super().__init__()
        self.reach, self.first = reach, first
        self.row = nn.Parameter(torch.zeros(2 * width, sides[0], 1))
        self.across = nn.Parameter(torch.zeros(2 * width, 1, sides[1]))
        self.vertical = nn.Conv2d(n_in[0], 2 * width, (reach + 1, 2 * reach + 1))
        self.link = nn.Conv2d(2 * width, 2 * width, 1)
        self.horizontal = Masked(n_in[1], 2 * width, reach, channels, first, 2)
        self.out = Masked(width, width, 0, channels)
        self.label = nn.Embedding(n_classes, 4 * width) if n_classes else None

    def labelled(self, label: Tensor | None) -> tuple[Tensor | float, Tensor | float]:
        """Return what a label adds to both stacks, (n, 2 width) each."""
        if self.label is None or label is None:
            return 0.0, 0.0
        v, h = self.label(label).chunk(2, 1)
        return v, h

    def rows(self, v: Tensor) -> Tensor:
        """Return the vertical sums of the last of ``reach + 1`` rows or more, without padding above."""
        return self.vertical(F.pad(v, (self.reach, self.reach)))  # type: ignore[no-any-return]

    def forward(self, v: Tensor, h: Tensor, label: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the features of both stacks."""
        for_v, for_h = (t if isinstance(t, float) else t[:, :, None, None] for t in self.labelled(label))
        above = self.rows(F.pad(v, (0, 0, self.reach, 0))) + for_v
        down = F.pad(above, (0, 0, 1, 0))[:, :, :-1]
        added = self.out(_gate(self.horizontal(h) + self.link(down) + self.row + self.across + for_h))
        return _gate(above), added if self.first else h + added

    def column(self, window: Tensor, down: Tensor, for_h: Tensor | float) -> Tensor:
        """Return the horizontal features (n, width) of one pixel; ``down`` is what the link says there."""
        added = self.out.column(_gate(self.horizontal.column(window) + down + for_h)[:, :, None])
        return added if self.first else window[:, :, -1] + added


class PixelNetwork(nn.Module):
    """Numbers for every channel of every pixel, as functions of those before it in the order of reading.

    Parameters
    ----------
    channels : int
        Channels of the images.
    n_out : int
        Numbers for each channel of each pixel.
    sides : tuple of int
        Height and width of the images.
    width : int
        Features for each channel.
    n_layers : int
        Layers.
    n_classes : int, default=0
        Labels to condition on.
    """

    def __init__(
        self,
        channels: int,
        n_out: int,
        sides: tuple[int, int],
        width: int,
        n_layers: int,
        n_classes: int = 0,
    ) -> None:
        super().__init__()
        self.channels, self.n_out = channels, n_out
        width = width * channels
        self.layers: Any = nn.ModuleList(
            GatedLayer(
                (channels, channels) if i == 0 else (width, width),
                width,
                3 if i == 0 else 1,
                channels,
                n_classes,
                i == 0,
                sides,
            )
            for i in range(n_layers)
        )
        self.head: Any = nn.ModuleList(
            [Masked(width, width, 0, channels), Masked(width, channels * n_out, 0, channels)]
        )

    def forward(self, x: Tensor, label: Tensor | None = None) -> Tensor:
        """Return (n, channels, n_out, h, w) for images scaled to about [-1, 1]."""
        v = h = x
        for layer in self.layers:
            v, h = layer(v, h, label)
        for part in self.head:
            h = part(F.relu(h))
        return h.unflatten(1, (self.channels, self.n_out))

    def draw(
        self, x: Tensor, choose: Callable[[Tensor, int, int, int], Tensor], label: Tensor | None = None
    ) -> Tensor:
        """Return images, drawn channel by channel of pixel by pixel with only what is new computed.

        ``choose(out, i, j, k)`` gets the numbers (n, n_out) for channel k of the pixel in row i and column j, and returns
        its scaled values (n,); ``x`` gives the shape.
        """
        x = torch.zeros_like(x)
        n, _, height, _ = x.shape
        labelled = [layer.labelled(label) for layer in self.layers]
        sizes = [self.channels, *(layer.out.convolution.out_channels for layer in self.layers[:-1])]
        kept = [x.new_zeros(n, c, layer.reach + 1, x.shape[3]) for c, layer in zip(sizes, self.layers)]
        links = [
            layer.link(x.new_zeros(n, layer.link.in_channels, 1, x.shape[3]))[:, :, 0]
            for layer in self.layers
        ]
        for i in range(height):
            placed = [link + layer.row[:, i] + layer.across[:, 0] for link, layer in zip(links, self.layers)]
            self._draw_row(x, i, choose, placed, labelled)
            if i + 1 < height:
                links = self._next_row(x[:, :, i : i + 1], kept, labelled)
        return x

    def _draw_row(self, x: Tensor, i: int, choose, links, labelled) -> None:  # type: ignore[no-untyped-def]
        """Fill row i of x; the horizontal features of the row so far are kept for every layer."""
        n, channels, _, width = x.shape
        sizes = [channels, *(layer.out.convolution.out_channels for layer in self.layers)]
        reaches = [*(layer.reach for layer in self.layers), 0]
        row = [x.new_zeros(n, size, width + reach) for size, reach in zip(sizes, reaches)]
        for j in range(width):
            for k in range(channels):
                for depth, layer in enumerate(self.layers):
                    window = row[depth][:, :, j : j + reaches[depth] + 1]
                    found = layer.column(window, links[depth][:, :, j], labelled[depth][1])
                    row[depth + 1][:, :, j + reaches[depth + 1]] = found
                h = row[-1][:, :, j]
                for part in self.head:
                    h = part.column(F.relu(h)[:, :, None])
                out = h.unflatten(1, (channels, self.n_out))[:, k]
                x[:, k, i, j] = choose(out, i, j, k)
                row[0][:, k, j + reaches[0]] = x[:, k, i, j]

    def _next_row(self, v: Tensor, kept: list[Tensor], labelled) -> list[Tensor]:  # type: ignore[no-untyped-def]
        """Put the finished row into the kept ones of every layer; return what the row below hears of it."""
        links = []
        for depth, layer in enumerate(self.layers):
            kept[depth] = torch.cat([kept[depth][:, :, 1:], v], 2)
            for_v = labelled[depth][0]
            above = layer.rows(kept[depth]) + (for_v if isinstance(for_v, float) else for_v[:, :, None, None])
            links.append(layer.link(above)[:, :, 0])
            v = _gate(above)
        return links
