r"""Scaling of data before a generative model sees them, with the change of the log-density.

A density of continuous data is needed, so values that lie on a grid (grey levels, counts, rounded measurements) get
uniform noise of one step: *dequantisation*. For :math:`\tilde x = x + u \delta`, :math:`u \sim U[0, 1)`, and any density
:math:`p` of :math:`\tilde x`,

.. math:: \log P(x) \ge \mathbb E_u \log p(x + u \delta) + \textstyle\sum_j \log \delta_j, \tag{1}

so bits per dimension of grid data are :math:`-(\log p + \sum_j \log \delta_j) / (d \log 2)` (2) and cannot be made as
small as one likes. Then each feature is shifted and scaled, :math:`z = (\tilde x - m) / s`, or, for data in a bounded range,
mapped to the real line by :math:`y = a + (1 - 2a)(\tilde x - m) / s,\; z = \log y / (1 - y)`. Or columns on a grid are
brought to normal shape by their histograms (:mod:`corollary.generative.margins`), and what comes out is made uncorrelated by
:math:`\Sigma^{-1/2}` with the shrunk covariance :math:`\Sigma` of Ledoit and Wolf: a model that then changes nothing has the
columns' own distributions and all correlations between them. Pixels of images with at most 256 levels are brought to normal shape
likewise, each by its own histogram, and left correlated. Densities change by

.. math:: \log p(\tilde x) = \log p(z) + \textstyle\sum_j \log |\partial z_j / \partial x_j|. \tag{3}
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor

from corollary.generative.margins import MOST, Margins

__all__ = ["Scaling", "grid_step"]

MARGIN = 0.05  # a: how far the logit keeps from the ends of the range
ROWS = 20_000  # rows that are looked at for a grid
LEVELS = 2**16  # most steps between smallest and largest value of a grid
ROUNDING = 0.02  # of a step: how far from its level a number of a grid may lie
NEAR = 3  # steps of a grid within which a number is looked for
FLAT = 1e-4  # least variance of a direction that is stretched to variance 1


def grid_step(values: np.ndarray) -> float:
    """Return the step of the grid on which values lie, or 0 if there is none.

    A grid has repeated values, at most 65,536 steps, and gaps that are multiples of the smallest one. A constant
    counts as a grid of step 1.

    >>> float(round(grid_step(np.array([0.1, 0.3, 0.3, 0.7])), 6)), grid_step(np.array([0.0, 0.31, 0.7234]))
    (0.2, 0.0)
    """
    distinct = np.unique(np.asarray(values, np.float64))
    if len(distinct) == 1:
        return 1.0
    gaps = np.diff(distinct)
    step, extent = float(gaps.min()), float(distinct[-1] - distinct[0])
    if len(distinct) == np.size(values) or extent > LEVELS * step:
        return 0.0
    multiples = (distinct - distinct[0]) / step
    return step if np.abs(multiples - np.round(multiples)).max() < ROUNDING else 0.0


def _spread(X: np.ndarray, n: int) -> np.ndarray:
    """Return at most n rows, spread over all: data sorted by kind may begin with few levels."""
    return X[:: -(-len(X) // n)]


def _ends(least: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the darkest and the brightest level in [0, 1] of pixels on a grid, or 0 and 1, from the least value seen."""
    safe = np.where(step > 0, step, 1.0)
    low = np.where(step > 0, least - np.floor(least / safe + ROUNDING) * safe, 0.0)
    return low, np.where(step > 0, low + np.floor((1 - low) / safe + ROUNDING) * safe, 1.0)


class Scaling(NamedTuple):
    """Dequantise, shift and scale: data to the space in which a model works, and back.

    All arrays have the shape of one sample, or can be broadcast to it.
    """

    # "standard": mean 0, variance 1; "signed": to [-1, 1]; "logit": to all reals; "shaped": normal; "white": and uncorrelated
    kind: str
    step: np.ndarray  # of the grid; 0 where values are continuous
    low: np.ndarray  # the smallest value, where the grid begins
    shift: np.ndarray
    scale: np.ndarray
    n: int = 0  # rows that were counted
    below: np.ndarray | None = None  # their shares below each level of a grid, for "shaped" and "white"
    root: np.ndarray | None = None  # symmetric matrix (d, d) that makes features uncorrelated, for "white"
    root_log_det: float = 0.0

    @classmethod
    def learn(cls, X: np.ndarray, kind: str = "standard", dequantise: bool = True) -> Self:
        """Return the scaling for rows (n, d), feature by feature, or images (n, c, h, w) in [0, 1], all pixels alike."""
        images = X.ndim > 2
        flat = X.reshape(-1, 1) if images else X
        seen = _spread(X, max(1, ROWS // X[0].size)).reshape(-1, 1) if images else _spread(X, ROWS)
        step = np.array([grid_step(column) for column in seen.T]) if dequantise else np.zeros(flat.shape[1])
        low = flat.min(axis=0).astype(np.float64)
        high = flat.max(axis=0).astype(np.float64)
        if images:
            low, high = _ends(low, step)
        if kind == "shaped":
            grid = step[0] > 0 and round((high[0] - low[0]) / step[0]) < MOST
            return (
                cls._of_pixels(X, *(float(part[0]) for part in (step, low, high)))
                if grid
                else cls.learn(X, "logit")
            )
        if kind in ("standard", "white"):
            shift = flat.mean(axis=0, dtype=np.float64) + step / 2
            spread = np.sqrt(flat.var(axis=0, dtype=np.float64) + step**2 / 12)
            scale = np.where(spread > 0, spread, 1.0)
        else:
            extent = np.where(high + step > low, high + step - low, 1.0)
            shift, scale = (low, extent) if kind == "logit" else (low + extent / 2, extent / 2)
        shape = (1, 1, 1) if images else (-1,)
        parts = [part.reshape(shape) for part in (step, low, shift, scale)]
        if kind != "white":
            return cls(kind, *parts)
        shaped = cls(kind, *parts, len(flat), Margins.count(flat, step, low, high))
        noise = torch.from_numpy(np.random.default_rng(0).random(flat.shape))
        root, log_det = _whitening(shaped.forward(torch.tensor(flat, dtype=torch.float64), noise)[0].numpy())
        return shaped._replace(root=root, root_log_det=log_det)

    @classmethod
    def _of_pixels(cls, X: np.ndarray, step: float, low: float, high: float) -> Self:
        """Return the scaling of images on a grid by the histogram of every pixel."""
        flat = X.reshape(len(X), -1)
        below = Margins.count(flat, *(np.full(flat.shape[1], part) for part in (step, low, high)))
        shift = X.mean(axis=0, dtype=np.float64) + step / 2
        scale = np.sqrt(X.var(axis=0, dtype=np.float64) + step**2 / 12)
        return cls("shaped", np.full((1, 1, 1), step), np.full((1, 1, 1), low), shift, scale, len(X), below)

    def _margins(self, like: Tensor) -> Margins | None:
        if self.below is None or len(self.below) < 2:
            return None
        parts = [np.broadcast_to(part, self.shift.shape).ravel() for part in self[1:5]]
        wide = [torch.tensor(part, dtype=torch.float64, device=like.device) for part in (*parts, self.below)]
        return Margins(*wide, self.n)

    def tensors(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return step, low, shift and scale as tensors of the same type and device."""
        parts = (torch.as_tensor(part, dtype=like.dtype, device=like.device) for part in self[1:5])
        step, low, shift, scale = parts
        return step, low, shift, scale

    def forward(self, x: Tensor, u: Tensor | float = 0.5) -> tuple[Tensor, Tensor]:
        """Return z and log |det dz/dx| of each sample, with noise ``u`` in [0, 1) in every step of the grid, eq. 3."""
        step, _, shift, scale = self.tensors(x)
        z = (x + u * step - shift) / scale
        slopes = -scale.log().expand_as(z)
        if self.kind == "logit":
            y = (MARGIN + (1 - 2 * MARGIN) * z).clamp(1e-6, 1 - 1e-6)
            slopes = slopes + math.log(1 - 2 * MARGIN) - y.log() - (-y).log1p()
            z = y.logit()
        margins = self._margins(x)
        if margins is not None:
            normal, steep = (part.to(x.dtype) for part in margins.forward((x + u * step).flatten(1)))
            shaped = margins.shaped.reshape(z.shape[1:])
            z = torch.where(shaped, normal.reshape(z.shape), z)
            slopes = torch.where(shaped, steep.reshape(z.shape), slopes)
        log_det = slopes.flatten(1).sum(1)
        if self.root is None:
            return z, log_det
        root = torch.as_tensor(self.root, dtype=x.dtype, device=x.device)
        return z @ root, log_det + self.root_log_det

    def backward(self, z: Tensor, on_grid: bool = True) -> Tensor:
        """Return the data that z stands for; on the grid where there is one, unless that is not wanted."""
        step, low, shift, scale = self.tensors(z)
        if self.kind == "logit":
            z = (z.sigmoid() - MARGIN) / (1 - 2 * MARGIN)
        if self.root is not None:
            z = z @ torch.linalg.inv(torch.as_tensor(self.root, dtype=z.dtype, device=z.device))
        x, margins = z * scale + shift, self._margins(z)
        if margins is not None:
            shaped = margins.backward(z.flatten(1)).to(z.dtype).reshape(z.shape)
            x = torch.where(margins.shaped.reshape(z.shape[1:]), shaped, x)
        if not on_grid:
            return x
        level = torch.floor((x - low) / step.clamp_min(1e-30))
        if step.ndim == 3:  # pixels have no levels beyond black and white
            level = level.clamp_min(0).minimum(self._last(step, low))
        else:  # of what was never below zero, such as counts, nothing is
            zero = -torch.floor(low / step.clamp_min(1e-30) + ROUNDING)
            level = torch.where(low >= 0, level.maximum(zero), level)
        return torch.where(step > 0, low + level * step, x)

    @staticmethod
    def _last(step: Tensor, low: Tensor) -> Tensor:
        """Return the number of the brightest level of pixels, counted from 0."""
        return torch.floor((1 - low) / torch.where(step > 0, step, 1.0) + ROUNDING)

    def cells(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return begin, end and width of the step of the grid that shifted and scaled pixels lie in; width 0 is no grid.

        The darkest and the brightest level take all that is beyond them.
        """
        step, low, shift, scale = self.tensors(z)
        level = torch.floor((z * scale + shift - low) / torch.where(step > 0, step, 1.0))
        begin = torch.where(step > 0, (low + level * step - shift) / scale, z)
        last, end = self._last(step, low), begin + step / scale
        begin = torch.where((step > 0) & (level <= 0), -math.inf, begin)
        return begin, torch.where((step > 0) & (level >= last), math.inf, end), step / scale

    def nearby(self, z: Tensor, variance: Tensor) -> Tensor:
        """Return the expected middle of the step of the grid that pixels z, with normal errors of a variance, stand for.

        The levels count as equally probable; those more than ``NEAR`` steps away are left out.
        """
        step, low, shift, scale = self.tensors(z)
        safe = torch.where(step > 0, step, 1.0)
        level = torch.floor((z * scale + shift - low) / safe)
        mean, total = torch.zeros_like(z), torch.zeros_like(z)
        last = self._last(step, low)
        level = level.clamp_min(0).minimum(last)
        least = (z - (low + (level + 0.5) * safe - shift) / scale).square()
        for offset in range(-NEAR, NEAR + 1):
            other = level + offset
            middle = (low + (other + 0.5) * safe - shift) / scale
            weight = ((least - (z - middle).square()) / (2 * variance)).exp() * (
                (other >= 0) & (other <= last)
            )
            mean, total = mean + weight * middle, total + weight
        return torch.where(step > 0, mean / total, z)

    def bits(self, log_prob: np.ndarray, d: int) -> np.ndarray:
        """Return eq. 2: bits per dimension from the log-density of samples with d numbers each."""
        steps = np.broadcast_to(np.where(self.step > 0, self.step, 1.0).ravel(), (d,))
        return -(log_prob + np.log(steps).sum()) / (d * math.log(2))

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain values, for a fitted attribute."""
        return self._asdict()


def _whitening(X: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the root of the inverse of the shrunk covariance of centred rows, and its log-determinant."""
    if len(X) < 2:
        return np.eye(X.shape[1]), 0.0
    values, vectors = np.linalg.eigh(ledoit_wolf(X, assume_centered=True)[0])
    values = values.clip(FLAT)
    return (vectors * values**-0.5) @ vectors.T, float(-0.5 * np.log(values).sum())
