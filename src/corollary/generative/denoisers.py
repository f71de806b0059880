r"""Denoising networks, conditioned on the noise level: a perceptron for tables, a U-Net for images.

The noise level :math:`t` is told by sines and cosines of geometric frequencies, passed through a small network, and
added inside every block; a label is embedded and added to it. An extra label, the last, stands for "none".
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["PerceptronDenoiser", "UNetDenoiser", "denoiser", "time_features"]


def time_features(t: Tensor, width: int) -> Tensor:
    """Return sines and cosines of t at geometric frequencies from 1 to 1/10000, (n,) -> (n, width)."""
    frequencies = torch.exp(
        -math.log(10_000) * torch.arange(width // 2, device=t.device, dtype=t.dtype) / (width // 2)
    )
    angles = t[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


class Conditions(nn.Module):
    """Noise level and label as one vector."""

    def __init__(self, width: int, n_out: int, n_classes: int) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, n_out), nn.SiLU(), nn.Linear(n_out, n_out))
        self.label = nn.Embedding(n_classes + 1, n_out) if n_classes else None

    def forward(self, t: Tensor, label: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return (n, n_out)."""
        found: Tensor = self.time(time_features(t.to(dtype), self.width))
        if self.label is None:
            return found
        none = torch.full_like(t, self.label.num_embeddings - 1, dtype=torch.long)
        return found + self.label(none if label is None else label)


class Block(nn.Module):
    """Add to x a two-layer network of x and the conditions."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, inner)
        self.conditions = nn.Linear(width, inner)
        self.second = nn.Linear(inner, width)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        """Return x with the change added."""
        return x + self.second(F.silu(self.first(self.norm(x)) + self.conditions(c)))


class PerceptronDenoiser(nn.Module):
    """A residual perceptron for rows (n, d)."""

    def __init__(self, d: int, width: int, n_layers: int, n_classes: int = 0) -> None:
        super().__init__()
        self.conditions = Conditions(width, width, n_classes)
        self.inlet = nn.Linear(d, width)
        self.blocks = nn.ModuleList(Block(width, 2 * width) for _ in range(n_layers))
        self.outlet = nn.Linear(width, d)
        nn.init.zeros_(self.outlet.weight)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the prediction for noisy rows at levels t (n,)."""
        c = self.conditions(t, label, x.dtype)
        h = self.inlet(x)
        for block in self.blocks:
            h = block(h, c)
        return self.outlet(F.silu(h))


class Residual(nn.Module):
    """Two normalised 3 x 3 convolutions with the conditions between them, added to the input."""

    def __init__(self, n_in: int, n_out: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(_groups(n_in), n_in), nn.GroupNorm(_groups(n_out), n_out)
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.conditions = nn.Linear(width, n_out)
        self.skip = nn.Identity() if n_in == n_out else nn.Conv2d(n_in, n_out, 1)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        """Return the maps."""
        h = self.conv1(F.silu(self.norm1(x))) + self.conditions(F.silu(c))[:, :, None, None]
        out: Tensor = self.skip(x) + self.conv2(F.silu(self.norm2(h)))
        return out


class UNetDenoiser(nn.Module):
    """A U-Net of residual blocks for images (n, c, h, w) of any size.

    Parameters
    ----------
    channels : int
        Channels of the images.
    width : int
        Channels of the first level; each further level has twice as many, up to four times.
    depth : int
        Times that the sides are halved.
    n_classes : int, default=0
        Labels to condition on.
    full : bool, default=False
        Whether the layout is that of [1]_ without attention: all maps of the way down are seen again on the way up, a
        convolution follows each doubling, and two blocks stand in the middle. It costs two to three times as much.

    References
    ----------
    .. [1] J. Ho, A. Jain, P. Abbeel (2020). Denoising diffusion probabilistic models. NeurIPS. Appendix B.
    """

    def __init__(
        self, channels: int, width: int, depth: int, n_classes: int = 0, *, full: bool = False
    ) -> None:
        super().__init__()
        self.depth, self.full = depth, full
        widths = [width * min(2**i, 4) for i in range(depth + 1)]
        inputs, time = [width, *widths[:-1]], 2 * width
        self.conditions = Conditions(width, time, n_classes)
        self.inlet = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b, time) for a, b in zip(inputs, widths))
        self.halve = nn.ModuleList(nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1])
        self.middle = nn.ModuleList(Residual(widths[-1], widths[-1], time) for _ in range(1 + full))
        self.up, kept = nn.ModuleList(), self._kept(width, widths)
        now = widths[-1]
        for out in reversed(widths if full else inputs):
            blocks = nn.ModuleList()
            for _ in range(1 + full):
                blocks.append(Residual(now + kept.pop(), out, time))
                now = out
            self.up.append(blocks)
        doubled = widths[:0:-1] if full else []
        self.smooth = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for w in doubled)
        self.norm = nn.GroupNorm(_groups(width), width)
        self.outlet = nn.Conv2d(width, channels, 3, padding=1)
        nn.init.zeros_(self.outlet.weight)

    def _kept(self, width: int, widths: list[int]) -> list[int]:
        """Return the channels of the maps that the way up sees, in the order in which they are made."""
        if not self.full:
            return list(widths)
        return [width, *(w for w in widths[:-1] for _ in range(2)), widths[-1]]

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the prediction for noisy images at levels t (n,)."""
        c = self.conditions(t, label, x.dtype)
        h, w = x.shape[2:]
        x = F.pad(x, (0, -w % 2**self.depth, 0, -h % 2**self.depth))
        x = self.inlet(x)
        kept = [x] if self.full else []
        for i, block in enumerate(self.down):
            x = block(x, c)
            kept.append(x)
            if i < self.depth:
                x = self.halve[i](x)
                kept += [x] if self.full else []
        for block in self.middle:
            x = block(x, c)
        for i, blocks in enumerate(self.up):
            for block in blocks:  # type: ignore[union-attr]
                x = block(torch.cat([x, kept.pop()], 1), c)
            if i < self.depth:
                x = F.interpolate(x, scale_factor=2.0)
                x = self.smooth[i](x) if self.full else x
        out: Tensor = self.outlet(F.silu(self.norm(x)))
        return out[:, :, :h, :w]

    @classmethod
    def from_diffusers(cls, given: Any) -> UNetDenoiser:
        """Return a net with the weights of a ``diffusers.UNet2DModel`` of plain blocks, one in each level on the way down."""
        width, *others = given.config.block_out_channels
        net = cls(given.config.in_channels, width, len(others), full=True)
        parts: list[tuple[Any, Any]] = [
            (net.conditions.time[0], given.time_embedding.linear_1),
            (net.conditions.time[2], given.time_embedding.linear_2),
            (net.inlet, given.conv_in),
            (net.norm, given.conv_norm_out),
            (net.outlet, given.conv_out),
        ]
        parts += [(ours, level.downsamplers[0].conv) for ours, level in zip(net.halve, given.down_blocks)]
        parts += [(ours, level.upsamplers[0].conv) for ours, level in zip(net.smooth, given.up_blocks)]
        blocks: list[tuple[Any, Any]] = [
            (ours, level.resnets[0]) for ours, level in zip(net.down, given.down_blocks)
        ]
        blocks += zip(net.middle, given.mid_block.resnets)
        for level, theirs in zip(net.up, given.up_blocks):
            blocks += zip(level, theirs.resnets)  # type: ignore[arg-type]
        for ours, resnet in blocks:
            parts += [
                (getattr(ours, name), getattr(resnet, name)) for name in ("norm1", "norm2", "conv1", "conv2")
            ]
            parts.append((ours.conditions, resnet.time_emb_proj))
            if resnet.conv_shortcut is not None:
                parts.append((ours.skip, resnet.conv_shortcut))
        for ours, theirs in parts:
            ours.load_state_dict(theirs.state_dict())
        return net


def _groups(channels: int) -> int:
    return math.gcd(channels, 8)


def denoiser(
    shape: tuple[int, ...], width: int | None, n_layers: int | None, n_classes: int
) -> PerceptronDenoiser | UNetDenoiser:
    """Return a network for samples of a shape, its sizes chosen from it where they are not given.

    Rows get 4 blocks of 128 to 512 units, images as many halvings as leave sides of at least 4 (at most 3), and 32 channels
    up to 32 pixels, 64 above.
    """
    if len(shape) == 1:
        d = shape[0]
        return PerceptronDenoiser(d, width or min(512, max(128, 32 * round(d / 8))), n_layers or 4, n_classes)
    c, h, w = shape
    depth = n_layers or max(1, min(3, min(h, w).bit_length() - 3))
    net = UNetDenoiser(c, width or (32 if max(h, w) <= 32 else 64), depth, n_classes)
    return net.to(memory_format=torch.channels_last)  # convolutions are faster so
