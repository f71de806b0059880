r"""A large sparse matrix times a thin dense one, and its transpose times one, neither with a transposed copy.

:math:`X Q` gathers rows of :math:`Q`, one row of :math:`X` at a time. :math:`X^\top Y` spreads rows of :math:`Y`, one
range of columns at a time, each by one thread: what is added to stays in the cache, and no two threads add to the
same place. Sums run in the order of the rows, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange

from corollary.compiled import njit
from corollary.linalg.tiles import REGISTER, gather, spread

__all__ = ["SparseRows"]

BLOCKS = 64  # of rows, with nearly equal numbers of entries
NARROW = 4  # registers that a row's sums take at most
FLAT = {"fastmath": True, "error_model": "numpy", "cache": True}

_gather_1, _gather_2, _gather_3, _gather_4 = gather(1), gather(2), gather(3), gather(4)
_spread_1, _spread_2, _spread_3, _spread_4 = spread(1), spread(2), spread(3), spread(4)


class SparseRows:
    """A CSR matrix with sorted columns, for products with matrices that are a register wide or wider."""

    def __init__(self, csr: Any) -> None:
        self.shape, self.nnz = csr.shape, csr.nnz
        self.start, self.index, self.value = csr.indptr, csr.indices, csr.data
        shares = np.linspace(0, csr.nnz, BLOCKS + 1)[1:-1]
        cut = np.minimum(np.searchsorted(self.start, shares), csr.shape[0])
        self.blocks = np.concatenate([[0], cut, [csr.shape[0]]])
        self.splits = np.empty((0, 0), self.start.dtype)

    def product(self, Q: np.ndarray, Y: np.ndarray) -> None:
        """Write X Q into Y."""
        _product(self.blocks, self.start, self.index, self.value, np.ascontiguousarray(Q), Y)

    def back_product(self, Y: np.ndarray) -> np.ndarray:
        """Return Xᵀ Y."""
        if not self.splits.size:
            self.splits = self._split(2 * get_num_threads())
        Z = np.zeros((self.shape[1], Y.shape[1]), Y.dtype)
        _back_product(self.splits, self.index, self.value, np.ascontiguousarray(Y), Z)
        return Z

    def _split(self, ranges: int) -> np.ndarray:
        """Return where each row's entries of each range of columns begin; all ranges have like numbers of entries."""
        upto = np.cumsum(np.bincount(self.index, minlength=self.shape[1]))
        bounds = np.searchsorted(upto, np.linspace(0, self.nnz, ranges + 1)[1:-1], side="right")
        splits = np.empty((self.shape[0], ranges + 1), self.start.dtype)
        _split_rows(self.start, self.index, bounds, splits)
        return splits


@njit(parallel=True, **FLAT)
def _split_rows(start, index, bounds, splits):  # pragma: no cover - compiled
    for i in prange(len(splits)):
        e, last = start[i], start[i + 1]
        splits[i, 0], splits[i, -1] = e, last
        for c in range(len(bounds)):
            while e < last and index[e] < bounds[c]:
                e += 1
            splits[i, c + 1] = e


@njit(**FLAT)
def _group(left, lanes):  # pragma: no cover - compiled
    """Return how many of the columns that are left go together: what remains fills a register."""
    return left if left <= NARROW * lanes else (NARROW - 1) * lanes


@njit(parallel=True, **FLAT)
def _product(blocks, start, index, value, Q, Y):  # pragma: no cover - compiled
    K, lanes = Q.shape[1], REGISTER // Q.itemsize
    for block in prange(len(blocks) - 1):
        k = 0
        while k < K:
            width = _group(K - k, lanes)
            registers = (width + lanes - 1) // lanes
            for i in range(blocks[block], blocks[block + 1]):
                at, e, last = i * K + k, start[i], start[i + 1]
                if registers == 4:
                    _gather_4(Y, at, value, index, e, last, Q, k, K, width)
                elif registers == 3:
                    _gather_3(Y, at, value, index, e, last, Q, k, K, width)
                elif registers == 2:
                    _gather_2(Y, at, value, index, e, last, Q, k, K, width)
                else:
                    _gather_1(Y, at, value, index, e, last, Q, k, K, width)
            k += width


@njit(parallel=True, **FLAT)
def _back_product(splits, index, value, Y, Z):  # pragma: no cover - compiled
    K, lanes = Y.shape[1], REGISTER // Y.itemsize
    for c in prange(splits.shape[1] - 1):
        k = 0
        while k < K:
            width = _group(K - k, lanes)
            registers = (width + lanes - 1) // lanes
            for i in range(len(splits)):
                at, e, last = i * K + k, splits[i, c], splits[i, c + 1]
                if registers == 4:
                    _spread_4(Z, k, value, index, e, last, Y, at, K, width)
                elif registers == 3:
                    _spread_3(Z, k, value, index, e, last, Y, at, K, width)
                elif registers == 2:
                    _spread_2(Z, k, value, index, e, last, Y, at, K, width)
                else:
                    _spread_1(Z, k, value, index, e, last, Y, at, K, width)
            k += width
