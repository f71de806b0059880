r"""Mean and scatter of rows that are read block by block.

For rows with weights of sum :math:`w`, mean :math:`\mu` and scatter
:math:`S = \sum_t w_t (x_t - \mu)(x_t - \mu)^\top`, a further block :math:`(w', \mu', S')` gives

.. math::
    \mu \leftarrow \mu + \tfrac{w'}{w + w'}\, \delta, \qquad
    S \leftarrow S + S' + \tfrac{w w'}{w + w'}\, \delta \delta^\top, \qquad \delta = \mu' - \mu. \tag{1}

Nothing large is subtracted from anything large, so that data far from zero lose no digits, and any number of blocks and of
processes give the same up to rounding.

References
----------
.. [1] T. Chan, G. Golub, R. LeVeque (1983). Algorithms for computing the sample variance. Amer. Statist. 37, 242-247.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary.data.sources import Source
from corollary.engine.run import current
from corollary.engine.sources import blocks

__all__ = ["CentredBlocks", "Moments", "has_nan", "moments_of"]


class Moments(NamedTuple):
    """Sum of the weights, mean (d,), and scatter: (d, d), or its diagonal (d,)."""

    total: float
    mean: np.ndarray
    scatter: np.ndarray


def merged(a: Moments, b: Moments) -> Moments:
    """Return the moments of both together, eq. 1."""
    total = a.total + b.total
    if not total > 0:
        return a
    gap = b.mean - a.mean
    spread = np.outer(gap, gap) if a.scatter.ndim == 2 else gap**2
    shared = a.total / total * b.total
    return Moments(total, a.mean + b.total / total * gap, a.scatter + b.scatter + shared * spread)


def _of_block(X: np.ndarray, w: np.ndarray | None, diagonal: bool) -> Moments:
    total = float(len(X)) if w is None else float(w.sum())
    mean = (X.sum(0) if w is None else w @ X) / (total or 1.0)
    gap = X - mean
    weighted = gap if w is None else gap * w[:, None]
    return Moments(total, mean, np.einsum("ij,ij->j", weighted, gap) if diagonal else weighted.T @ gap)


def moments_of(
    X: Any, y: np.ndarray | None = None, weight: np.ndarray | None = None, *, diagonal: bool = False
) -> Moments:
    """Return the moments of the rows of an array or a source over all processes, in one pass and in float64.

    Parameters
    ----------
    X : array or Source of shape (n, d)
        The rows.
    y : array of shape (n, k), optional
        Further columns, in memory.
    weight : array of shape (n,), optional
        Weights of the rows.
    diagonal : bool
        Whether the diagonal of the scatter is enough.

    >>> found = moments_of(np.array([[1.0, 2.0], [3.0, 6.0]]))
    >>> found.mean, found.scatter
    (array([2., 4.]), array([[2., 4.],
           [4., 8.]]))
    """
    run = current()
    share = run.shard(X.shape[0])
    d = X.shape[1] + (0 if y is None else y.shape[1])
    found = Moments(0.0, np.zeros(d), np.zeros(d if diagonal else (d, d)))
    y = None if y is None else y[share]
    w = None if weight is None else np.asarray(weight, np.float64)[share]
    for rows, block in blocks(X, share):
        block = block if y is None else np.hstack([block, y[rows]])
        found = merged(found, _of_block(block, None if w is None else w[rows], diagonal))
    if run.world == 1:
        return found
    total = float(run.sum(np.array(found.total)))
    mean = run.sum(found.total * found.mean) / total
    gap = found.mean - mean
    moved = found.total * (gap**2 if diagonal else np.outer(gap, gap))
    return Moments(total, mean, run.sum(found.scatter + moved))


class CentredBlocks:
    """The rows of a source in this process's share, minus a mean, by their products; an :class:`~corollary.linalg.Operator`."""

    def __init__(self, X: Any, mean: np.ndarray) -> None:
        self.X, self.mean, self.share = X, mean, current().shard(X.shape[0])
        self.shape = (X.shape[0], X.shape[1])
        self.dtype = torch.float64

    def dot(self, Q: Tensor, out: Tensor | None = None) -> Tensor:
        """Return (X - 1 mᵀ) Q for this process's rows."""
        n = self.share.stop - self.share.start
        out = torch.empty(n, Q.shape[1], dtype=self.dtype) if out is None else out
        for rows, block in blocks(self.X, self.share):
            out[rows] = torch.from_numpy(block - self.mean) @ Q
        return out

    def back(self, Y: Tensor) -> Tensor:
        """Return (X - 1 mᵀ)ᵀ Y, summed over the processes."""
        total = torch.zeros(self.shape[1], Y.shape[1], dtype=self.dtype)
        for rows, block in blocks(self.X, self.share):
            total.addmm_(torch.from_numpy(block - self.mean).T, Y[rows])
        found: Tensor = current().sum(total)
        return found


def has_nan(X: Any) -> bool:
    """Whether any entry of an array or a source is NaN; the sum tells at once that none is."""
    if isinstance(X, Source):
        return any(map(has_nan, X.blocks()))
    with np.errstate(all="ignore"):
        return bool(np.isnan(X.sum())) and bool(np.isnan(X).any())
