r"""Layers of normalising flows: invertible maps with a cheap inverse and log-determinant.

A flow maps data :math:`x` to :math:`z = f(x)` with a simple density, so that by the change of variables

.. math:: \log p(x) = \log p_Z(f(x)) + \log |\det \partial f / \partial x|. \tag{1}

Every layer here has ``forward(x, context) -> z, log_det`` and ``inverse(z, context) -> x``; ``context`` is a tensor of
features to condition on, or None.

*QR-linear*: :math:`z = Q R x + b` with :math:`Q` a product of reflections and :math:`R` triangular with diagonal
:math:`e^{r}`; :math:`\log \det = \sum_i r_i` (2) at O(d²).

*Planar*: :math:`z = x + \hat u \tanh(w^\top x + b)` with :math:`\det = 1 + \hat u^\top w\, (1 - \tanh^2)` (3), invertible where
:math:`w^\top \hat u > -1`, which
:math:`\hat u = u + (\operatorname{softplus}(w^\top u) - 1 - w^\top u)\, w / \lVert w \rVert^2` ensures. Its
inverse needs the root of one increasing function of one variable (4).

*Coupling*: some coordinates pass unchanged and decide shift and scale of the others,
:math:`z_b = x_b e^{s(x_a)} + t(x_a)` (5); *autoregressive*: each coordinate's shift and scale depend on those before it (6). Both
have triangular Jacobians, :math:`\log\det = \sum s`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "MADE",
    "AffineCoupling",
    "Chain",
    "MaskedAutoregressive",
    "Planar",
    "QRLinear",
    "Reorder",
    "Reverse",
    "SplitCoupling",
    "Squeeze",
    "soft_clip",
]

SLOPE = math.log(1e3)  # log-scales stay within this of zero: a layer stretches by at most a thousand


def soft_clip(a: Tensor, slope: float = SLOPE) -> Tensor:
    """Return log-scales that are about ``a`` near zero and never leave (-slope, slope)."""
    return a / (1 + a.abs() / slope)


class Chain(nn.Module):
    """Layers one after the other; the log-determinants add up."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return z and the log-determinant (n,)."""
        total = x.new_zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x, context)
            total = total + log_det
        return x, total

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return x."""
        for layer in reversed(self.layers):
            z = layer.inverse(z, context)  # type: ignore[operator]
        return z


class QRLinear(nn.Module):
    """An affine map with a matrix in QR form, eq. 2.

    Parameters
    ----------
    d : int
        Number of coordinates.
    n_reflections : int, optional
        How many reflections make up Q; by default min(d, 32). With d of them any rotation can be reached.
    context : int, default=0
        Features to condition on, of which the shift b is a linear function.
    """

    def __init__(self, d: int, n_reflections: int | None = None, context: int = 0) -> None:
        super().__init__()
        count = min(d, 32) if n_reflections is None else n_reflections
        count -= count % 2  # pairs: begins near the identity
        self.vectors = nn.Parameter(torch.randn(count, d), requires_grad=count > 0)
        with torch.no_grad():
            self.vectors[1::2] = self.vectors[::2] + 0.01 * torch.randn_like(self.vectors[::2])
        self.upper = nn.Parameter(torch.zeros(d, d), requires_grad=d > 1)  # one number has nothing above it
        self.log_diagonal = nn.Parameter(torch.zeros(d))
        self.shift = nn.Parameter(torch.zeros(d))
        self.context = nn.Linear(context, d, bias=False) if context else None

    def shifted(self, context: Tensor | None) -> Tensor:
        """Return b, of each sample if there is a context."""
        return self.shift if self.context is None or context is None else self.shift + self.context(context)

    def triangle(self) -> Tensor:
        """Return R."""
        return self.upper.triu(1) + torch.diag(self.log_diagonal.exp())

    def _reflect(self, x: Tensor, vectors: Any) -> Tensor:
        for v in vectors:
            x = x - torch.outer(x @ v, v) * (2 / v.square().sum())
        return x

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return Q R x + b and its log-determinant."""
        z = self._reflect(x @ self.triangle().T, self.vectors.flip(0)) + self.shifted(context)
        return z, self.log_diagonal.sum().expand(len(x))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the x of z, by reflections and a triangular solve."""
        y = self._reflect(z - self.shifted(context), self.vectors)
        return torch.linalg.solve_triangular(self.triangle(), y.T, upper=True).T


class Planar(nn.Module):
    """A bend along one direction, eqs. 3 and 4."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(d) / math.sqrt(d))
        self.u = nn.Parameter(0.1 * torch.randn(d))
        self.b = nn.Parameter(torch.zeros(()))

    def direction(self) -> Tensor:
        """Return u-hat, whose product with w is above -1."""
        wu = self.w @ self.u
        return self.u + (F.softplus(wu) - 1 - wu) * self.w / self.w.square().sum()

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return z and the log-determinant, eq. 3."""
        u = self.direction()
        h = torch.tanh(x @ self.w + self.b)
        return x + h[:, None] * u, torch.log1p((u @ self.w) * (1 - h.square()))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return x: a = w.x solves a + (w.u) tanh(a + b) = w.z, eq. 4, by bisection, then Newton's step."""
        u = self.direction()
        wu, target = u @ self.w, z @ self.w
        low, high = target - wu.abs(), target + wu.abs()
        for _ in range(60):
            middle = (low + high) / 2
            above = middle + wu * torch.tanh(middle + self.b) > target
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return z - torch.tanh((low + high) / 2 + self.b)[:, None] * u


class AffineCoupling(nn.Module):
    """Coordinates under the mask pass and decide what happens to the others, eq. 5.

    Parameters
    ----------
    mask : Tensor
        1 for coordinates that pass; of the shape of one sample, or broadcast to it.
    net : nn.Module
        Called with the masked sample (and the context, if any), returns shift and raw log-scale, twice the channels.
    slope : float, default=log(1000)
        Bound on the log-scales.
    """

    def __init__(self, mask: Tensor, net: nn.Module, slope: float = SLOPE) -> None:
        super().__init__()
        self.slope = slope
        self.register_buffer("mask", mask)
        self.mask: Tensor
        self.net = net

    def _parameters_of(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        kept = x * self.mask
        out = self.net(kept) if context is None else self.net(kept, context)
        shift, raw = out.chunk(2, 1)
        return shift * (1 - self.mask), soft_clip(raw, self.slope) * (1 - self.mask)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return z and the log-determinant."""
        shift, log_scale = self._parameters_of(x, context)
        return x * log_scale.exp() + shift, log_scale.flatten(1).sum(1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return x."""
        shift, log_scale = self._parameters_of(z, context)
        return (z - shift) * (-log_scale).exp()


class SplitCoupling(nn.Module):
    """A coupling, eq. 5, between the first columns or channels and the rest: each network sees and moves one part only.

    Parameters
    ----------
    n_first : int
        How many columns or channels the first part has.
    net : nn.Module
        Called with the part that passes (and the context, if any), returns shift and raw log-scale of the other.
    passes : {"first", "second"}, default="first"
        Which part passes and decides.
    slope : float, default=log(1000)
        Bound on the log-scales.
    """

    def __init__(self, n_first: int, net: nn.Module, passes: str = "first", slope: float = SLOPE) -> None:
        super().__init__()
        self.n_first, self.passes, self.slope = n_first, passes, slope
        self.net = net

    def _split(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the part that passes, the part that is transformed, and its shift and log-scale."""
        a, b = x[:, : self.n_first], x[:, self.n_first :]
        kept, moved = (a, b) if self.passes == "first" else (b, a)
        out = self.net(kept) if context is None else self.net(kept, context)
        shift, raw = out.chunk(2, 1)
        return kept, moved, shift, soft_clip(raw, self.slope)

    def _join(self, kept: Tensor, moved: Tensor) -> Tensor:
        return torch.cat((kept, moved) if self.passes == "first" else (moved, kept), 1)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return z and the log-determinant."""
        kept, moved, shift, log_scale = self._split(x, context)
        return self._join(kept, torch.addcmul(shift, moved, log_scale.exp())), log_scale.flatten(1).sum(1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return x."""
        kept, moved, shift, log_scale = self._split(z, context)
        return self._join(kept, (moved - shift) * (-log_scale).exp())


class MADE(nn.Module):
    """A network whose k-th outputs depend on the inputs before the k-th only, by masks on its weights.

    Parameters
    ----------
    d : int
        Number of coordinates.
    hidden_layer_sizes : sequence of int
        Widths of the hidden layers.
    context : int, default=0
        Features to condition on, which every unit may see.
    """

    def __init__(self, d: int, hidden_layer_sizes: Sequence[int], context: int = 0) -> None:
        super().__init__()
        degrees = [torch.arange(d)]
        degrees += [torch.arange(width) % max(d - 1, 1) for width in hidden_layer_sizes]
        masks = [(b[:, None] >= a[None, :]) for a, b in zip(degrees, degrees[1:])]
        masks.append((torch.arange(d)[:, None] > degrees[-1][None, :]).repeat(2, 1))
        self.layers = nn.ModuleList(nn.Linear(m.shape[1], m.shape[0]) for m in masks)
        for i, mask in enumerate(masks):
            self.register_buffer(f"mask{i}", mask.to(torch.get_default_dtype()))
        self.context = nn.Linear(context, masks[0].shape[0], bias=False) if context else None
        for start in self.layers[-1].parameters():  # begins as the identity
            nn.init.zeros_(start)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return shifts and raw log-scales side by side, (n, 2 d)."""
        for i, layer in enumerate(self.layers):
            x = F.linear(x, layer.weight * getattr(self, f"mask{i}"), layer.bias)  # type: ignore[arg-type]
            if i == 0 and self.context is not None and context is not None:
                x = x + self.context(context)
            if i < len(self.layers) - 1:
                x = F.relu(x)
        return x


class MaskedAutoregressive(nn.Module):
    """Each coordinate is shifted and scaled by a function of those before it, eq. 6.

    The density takes one pass; drawing takes one pass for each coordinate, with all samples at once.

    Parameters
    ----------
    net : nn.Module
        Such as :class:`MADE`: the k-th shift and log-scale depend on coordinates before the k-th.
    slope : float, default=log(1000)
        Bound on the log-scales.
    """

    def __init__(self, net: nn.Module, slope: float = SLOPE) -> None:
        super().__init__()
        self.slope = slope
        self.net = net

    def _parameters_of(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        out = self.net(x) if context is None else self.net(x, context)
        shift, raw = out.chunk(2, 1)
        return shift, soft_clip(raw, self.slope)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return z and the log-determinant."""
        shape = x.shape
        x = x.flatten(1)
        shift, log_scale = self._parameters_of(x, context)
        return (x * log_scale.exp() + shift).reshape(shape), log_scale.sum(1)

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return x, coordinate after coordinate."""
        shape = z.shape
        z = z.flatten(1)
        x = torch.zeros_like(z)
        for k in range(z.shape[1]):
            shift, log_scale = self._parameters_of(x, context)
            x[:, k] = (z[:, k] - shift[:, k]) * (-log_scale[:, k]).exp()
        return x.reshape(shape)


class Reverse(nn.Module):
    """Turn the order of the coordinates round."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the coordinates in reverse order; volumes stay."""
        return x.flatten(1).flip(1).reshape(x.shape), x.new_zeros(len(x))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return them in their old order."""
        return z.flatten(1).flip(1).reshape(z.shape)


class Reorder(nn.Module):
    """Put the columns into a fixed order."""

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.register_buffer("order", order)
        self.register_buffer("back", order.argsort())
        self.order: Tensor
        self.back: Tensor

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the columns in the new order; volumes stay."""
        return x[:, self.order], x.new_zeros(len(x))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return them in their old order."""
        return z[:, self.back]


class Squeeze(nn.Module):
    """Images with half the side and four times the channels: every 2 x 2 block becomes four channels."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (n, 4 c, h / 2, w / 2)."""
        return F.pixel_unshuffle(x, 2), x.new_zeros(len(x))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Tensor:
        """Return (n, c, h, w)."""
        return F.pixel_shuffle(z, 2)
