r"""Marginal transforms: columns of discrete values brought to normal shape by their histograms.

A level that occurs :math:`c_l` times in :math:`n` rows gets the share :math:`(c_l + k q_l) / (n + k)` (3), where :math:`k` is the
number of different levels in the column and :math:`q` the mean of an even share and of the same estimate for blocks of 16 levels,
spread evenly within them: the more of what is seen is new, the more is left to what was not seen (Witten and Bell). With
these shares, spread evenly over the steps of the levels, as a density :math:`h` with distribution function :math:`H`,

.. math::
    F(x) = (1 - \epsilon)\, H(x) + \epsilon\, \Phi\Bigl( \frac{x - m}{s} \Bigr), \qquad \epsilon = \frac1{n + 1},
    \qquad z = \Phi^{-1}(F(x)), \tag{1}

is standard normal if x has the density :math:`F'`. The Gaussian, worth one row, makes nothing impossible. The log-slope of z is
:math:`\log F'(x) - \log \varphi(z)` (2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["MOST", "Margins"]

MOST = 256  # levels of a column that is described by its histogram
BLOCK = 16  # neighbouring levels that vouch for each other
LOG_2PI = math.log(2 * math.pi)
FAR = 30.0  # deviations outside the grid within which an inverse is looked for
HALVINGS = 60


class Margins(NamedTuple):
    """Histograms of columns; a column without one has no shares and is left to others."""

    step: Tensor  # (d,)
    low: Tensor
    mean: Tensor
    deviation: Tensor
    below: Tensor  # (levels + 1, d): share of the rows below each level, 1 above the last
    n: int

    @staticmethod
    def count(X: np.ndarray, step: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return the shares below each level (levels + 1, d) of columns on grids; zeros where there is no histogram."""
        safe = np.where(step > 0, step, 1.0)
        highest = np.rint((high - low) / safe)
        shaped = (step > 0) & (highest < MOST)
        sides = int(highest[shaped].max()) + 1 if shaped.any() else 0
        below = np.zeros((sides + 1, X.shape[1]))
        for j in np.flatnonzero(shaped):
            levels = int(highest[j]) + 1
            places = np.rint((X[:, j] - low[j]) / step[j]).clip(0, levels - 1)
            counts = np.bincount(places.astype(int), minlength=levels)
            below[1 : levels + 1, j] = np.cumsum(_shares(counts))
            below[levels + 1 :, j] = 1.0
        return below

    @property
    def shaped(self) -> Tensor:
        """Which columns have a histogram (d,)."""
        return self.below[-1] > 0

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z of eq. 1 and the log-slopes of eq. 2, of the shape of x, in float64."""
        x, epsilon = x.double(), 1 / (self.n + 1)
        share, mass, inside = self._histogram(x)
        t = (x - self.mean) / self.deviation
        density = (1 - epsilon) * torch.where(inside, mass / self.step, 0.0)
        density = density + epsilon * torch.exp(-0.5 * (t.square() + LOG_2PI)) / self.deviation
        lower, upper = self._tails(share, t)
        tail = torch.special.ndtri(torch.minimum(lower, upper).clamp_min(1e-300))  # exact on both sides
        z = torch.where(lower < upper, tail, -tail)
        return z, density.clamp_min(1e-300).log() + 0.5 * (z.square() + LOG_2PI)

    def _histogram(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return H(x), the share of the level of x, and whether x lies on the grid."""
        place = (x - self.low) / torch.where(self.step > 0, self.step, 1.0)
        level = place.floor().clamp(0, max(len(self.below) - 2, 0)).long()
        before = self.below.gather(0, level)
        mass, within = self.below.gather(0, level + 1) - before, place - level
        return before + mass * within.clamp(0, 1), mass, (within >= 0) & (within < 1)

    def _tails(self, share: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return F and 1 - F of eq. 1, each exact where it is small."""
        epsilon = 1 / (self.n + 1)
        lower = (1 - epsilon) * share + epsilon * _phi(t)
        return lower, (1 - epsilon) * (1 - share) + epsilon * _phi(-t)

    def backward(self, z: Tensor) -> Tensor:
        """Return the x of z, by halving an interval."""
        z = z.double()
        below, above_it = _phi(z), _phi(-z)
        reach = FAR * self.deviation + self.step * len(self.below)
        low, high = (self.low + sign * reach + torch.zeros_like(z) for sign in (-1, 1))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            lower, upper = self._tails(self._histogram(middle)[0], (middle - self.mean) / self.deviation)
            above = torch.where(z < 0, lower > below, upper < above_it)
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return (low + high) / 2


def _shares(counts: np.ndarray) -> np.ndarray:
    """Return the shares of levels, eq. 3."""
    blocks = np.arange(len(counts)) // BLOCK
    coarse, sizes = np.bincount(blocks, counts), np.bincount(blocks)
    q = (_mixed(coarse, sizes / len(counts)) / sizes)[blocks]
    return _mixed(counts, (q + 1 / len(counts)) / 2)


def _mixed(counts: np.ndarray, prior: np.ndarray) -> np.ndarray:
    k = np.count_nonzero(counts)
    found: np.ndarray = (counts + k * prior) / (counts.sum() + k)
    return found


def _phi(t: Tensor) -> Tensor:
    """Return the normal distribution function, also where it is tiny."""
    return 0.5 * torch.special.erfc(-t / math.sqrt(2))
