r"""Networks that see a noisy sample and how noisy it is: for tables a perceptron, for images a U-Net.

The noise level :math:`t` is told by sines and cosines of geometric frequencies, passed through a small network, and
added inside every block; a label is embedded and added to it. An extra label, the last, stands for "none".
"""

from __future__ import annotations

import math

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

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.label = nn.Embedding(n_classes + 1, width) if n_classes else None

    def forward(self, t: Tensor, label: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return (n, width)."""
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
        self.conditions = Conditions(width, n_classes)
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
    """

    def __init__(self, channels: int, width: int, depth: int, n_classes: int = 0) -> None:
        super().__init__()
        self.depth = depth
        widths = [width * min(2**i, 4) for i in range(depth + 1)]
        self.conditions = Conditions(width, n_classes)
        self.inlet = nn.Conv2d(channels, width, 3, padding=1)
        pairs = list(zip([width, *widths[:-1]], widths))
        self.down = nn.ModuleList(Residual(a, b, width) for a, b in pairs)
        self.halve = nn.ModuleList(nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1])
        self.middle = Residual(widths[-1], widths[-1], width)
        self.up = nn.ModuleList(Residual(2 * b, a, width) for a, b in reversed(pairs))
        self.norm = nn.GroupNorm(_groups(width), width)
        self.outlet = nn.Conv2d(width, channels, 3, padding=1)
        nn.init.zeros_(self.outlet.weight)

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """Return the prediction for noisy images at levels t (n,)."""
        c = self.conditions(t, label, x.dtype)
        h, w = x.shape[2:]
        x = F.pad(x, (0, -w % 2**self.depth, 0, -h % 2**self.depth))
        x, kept = self.inlet(x), []
        for i, block in enumerate(self.down):
            x = block(x, c)
            kept.append(x)
            x = self.halve[i](x) if i < self.depth else x
        x = self.middle(x, c)
        for i, block in enumerate(self.up):
            x = block(torch.cat([x, kept.pop()], 1), c)
            x = F.interpolate(x, scale_factor=2.0) if i < self.depth else x
        out: Tensor = self.outlet(F.silu(self.norm(x)))
        return out[:, :, :h, :w]


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
    return UNetDenoiser(c, width or (32 if max(h, w) <= 32 else 64), depth, n_classes)
