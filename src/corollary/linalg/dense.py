r"""Products of a large dense matrix with a thin one, compiled for the registers they need.

A library's product packs the large matrix into panels first, which for a factor of a few dozen columns costs as much
as the product. Here a tile of the result, ``ROWS`` by up to ``WIDEST`` registers, stays in registers while

.. math:: y_{rk} \leftarrow y_{rk} + \sum_t x_{rt} b_{tk} \tag{1}

runs over :math:`t`; only the thin matrix is packed. The large one may have any strides, so that its transpose is the
same loop; a column-major one is read as the transpose that it is. Rows go in blocks of ``BLOCK``, few enough to stay in
the cache while a second product, with the transpose, reads them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from corollary.compiled import njit
from corollary.linalg.tiles import WIDE, tile

__all__ = [
    "BLOCK",
    "DenseRows",
    "accumulate",
    "accumulate_back",
    "dot",
    "gram_of_blocks",
    "packed",
    "partial_sums",
    "row_major",
    "scatter",
    "summed",
    "unpacked",
]

# 12 registers of sums, 3 of b and 1 of x: all 16; processors with wide ones have 32 of them
ROWS, WIDEST = (4 if WIDE == 32 else 8), 3
BLOCK = 16  # rows; more of them lie on more pages than the processor remembers
CHUNK = 2048  # columns of x at a time, so that their rows of b stay in the cache
FEW = 1024  # columns that lie together, each on pages of its own: a row through so many is still read quickly
TALL, FLUSH = 256, 512  # rows that a product with itself takes in at a time, and sums in the type of the data
PARTS = 8  # sums of a transposed product: fixed, so that the result does not depend on the threads
FLAT = {"fastmath": True, "error_model": "numpy", "cache": True, "nogil": True}

_tile_1, _tile_2, _tile_3, _line = (tile(*size, WIDE) for size in ((ROWS, 1), (ROWS, 2), (ROWS, 3), (1, 1)))


@njit(**FLAT)
def _strips(y, at_y, x, at_x, rows, x_row, x_t, b, at_b, n):  # pragma: no cover - compiled
    """Run eq. 1 for ``rows`` rows of y, tile by tile; y and b are one panel of their columns, (rows, width)."""
    width = b.shape[1]
    registers = width * y.itemsize // WIDE
    for start in range(0, n, CHUNK):
        count = min(CHUNK, n - start)
        c, a = (at_b + start) * width, at_x + start * x_t
        for i in range(0, rows - ROWS + 1, ROWS):
            o, e = (at_y + i) * width, a + i * x_row
            if registers == 3:
                _tile_3(y, o, width, x, e, x_row, x_t, b, c, width, count)
            elif registers == 2:
                _tile_2(y, o, width, x, e, x_row, x_t, b, c, width, count)
            else:
                _tile_1(y, o, width, x, e, x_row, x_t, b, c, width, count)
        for i in range(rows // ROWS * ROWS, rows):
            o, e = (at_y + i) * width, a + i * x_row
            for k in range(0, width, width // registers):
                _line(y, o + k, width, x, e, x_row, x_t, b, c + k, width, count)


@njit(**FLAT)
def accumulate(y, at, x, first, count, b):  # pragma: no cover - compiled
    """Add x[first : first + count] b to as many rows of y from ``at``; y and b in panels."""
    row, column = x.strides[0] // x.itemsize, x.strides[1] // x.itemsize
    for p in range(len(b)):
        _strips(y[p], at, x, first * row, count, row, column, b[p], 0, x.shape[1])


@njit(**FLAT)
def accumulate_back(y, x, first, count, b, at):  # pragma: no cover - compiled
    """Add x[first : first + count]ᵀ b[at : at + count] to y; y and b in panels."""
    row, column = x.strides[0] // x.itemsize, x.strides[1] // x.itemsize
    for p in range(len(b)):
        _strips(y[p], 0, x, first * row, x.shape[1], column, row, b[p], at, count)


# --- panels ----------------------------------------------------------------------------------------------


def panels(n: int, K: int, dtype: Any) -> np.ndarray:
    """Return zeros (p, n, width) with room for K columns in p panels of one to three registers."""
    lanes = WIDE // np.dtype(dtype).itemsize
    registers = -(-K // lanes)
    p = -(-registers // WIDEST)
    return np.zeros((p, n, -(-registers // p) * lanes), dtype)


def packed(B: np.ndarray) -> np.ndarray:
    """Return the columns of B (n, K) in panels, zeros behind them."""
    n, K = B.shape
    wide = panels(n, K, B.dtype)
    width = wide.shape[2]
    for p, panel in enumerate(wide):
        part = B[:, p * width : (p + 1) * width]
        panel[:, : part.shape[1]] = part
    return wide


def unpacked(wide: np.ndarray, K: int) -> np.ndarray:
    """Return the K columns (n, K) that are kept in panels."""
    return wide.transpose(1, 0, 2).reshape(wide.shape[1], -1)[:, :K]


def partial_sums(n: int, m: int, K: int, dtype: Any) -> np.ndarray:
    """Return zeros (parts, p, m, width): sums (m, K) over n rows, one for each part of them."""
    parts = max(1, min(PARTS, n // (4 * BLOCK)))
    return np.zeros((parts, *panels(m, K, dtype).shape), dtype)


# --- whole products --------------------------------------------------------------------------------------


class DenseRows:
    """A dense matrix of any strides, for products with thin matrices of the same type."""

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def product(self, B: np.ndarray, Y: np.ndarray) -> None:
        """Write X B into Y."""
        Y[:] = dot(self.X, B)

    def back_product(self, B: np.ndarray) -> np.ndarray:
        """Return Xᵀ B."""
        return dot(self.X.T, B)


def row_major(X: np.ndarray) -> bool:
    """Whether rows, rather than columns, lie together in memory."""
    return abs(X.strides[0]) >= abs(X.strides[1])


def dot(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return X B; where columns lie together and are many, as sums over them."""
    if not row_major(X) and X.shape[1] > FEW:
        return summed(X.T, B)
    wide = panels(len(X), B.shape[1], X.dtype)
    _product(X, packed(B), wide)
    return unpacked(wide, B.shape[1])


def summed(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return Xᵀ B as a sum over the rows of X."""
    n, d = X.shape
    sums = partial_sums(n, d, B.shape[1], X.dtype)
    _back_product(X, packed(B), sums)
    return unpacked(sums.sum(0), B.shape[1])


@njit(parallel=True, **FLAT)
def _product(X, B, Y):  # pragma: no cover - compiled
    for block in prange((len(X) + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        accumulate(Y, first, X, first, min(BLOCK, len(X) - first), B)


@njit(parallel=True, **FLAT)
def _back_product(X, B, sums):  # pragma: no cover - compiled
    n, parts = len(X), len(sums)
    for part in prange(parts):
        stop = (part + 1) * n // parts
        for first in range(part * n // parts, stop, BLOCK):
            accumulate_back(sums[part], X, first, min(BLOCK, stop - first), B, first)


def scatter(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of the columns (d,) and XᵀX (d, d) in float64, from one pass over X.

    Products are summed in the type of X over ``FLUSH`` rows, so float32 data lose few digits.
    """
    n, d = X.shape
    parts = max(1, min(PARTS, n // FLUSH))
    total, sums = np.zeros((parts, d)), np.zeros((parts, *panels(d, d, X.dtype).shape))
    _scatter(X, total, sums)
    lower = np.tril(unpacked(sums.sum(0), d))
    return total.sum(0), lower + np.tril(lower, -1).T


@njit(**FLAT)
def _pack_rows(X, first, count, wide, total):  # pragma: no cover - compiled
    """Copy rows of X into panels, in the order in which they lie, and add them to the sums of the columns."""
    d, width = X.shape[1], wide.shape[2]
    if X.strides[0] >= X.strides[1]:
        for i in range(count):
            for q in range(len(wide)):
                for k in range(min(width, d - q * width)):
                    wide[q, i, k] = X[first + i, q * width + k]
                    total[q * width + k] += wide[q, i, k]
        return
    for j in range(d):
        s = 0.0
        for i in range(count):
            wide[j // width, i, j % width] = X[first + i, j]
            s += X[first + i, j]
        total[j] += s


@njit(parallel=True, **FLAT)
def _scatter(X, total, sums):  # pragma: no cover - compiled
    n, d = X.shape
    parts, p, _, width = sums.shape
    row, column = X.strides[0] // X.itemsize, X.strides[1] // X.itemsize
    for part in prange(parts):
        wide, fresh = np.zeros((p, TALL, width), X.dtype), np.empty((p, d, width), X.dtype)
        stop = (part + 1) * n // parts
        for begin in range(part * n // parts, stop, FLUSH):
            fresh[:] = 0
            for first in range(begin, min(begin + FLUSH, stop), TALL):
                count = min(TALL, stop - first)
                _pack_rows(X, first, count, wide, total[part])
                for q in range(p):  # on and below the diagonal
                    at = q * width
                    _strips(
                        fresh[q], at, X, first * row + at * column, d - at, column, row, wide[q], 0, count
                    )
            for q in range(p):
                for j in range(q * width, d):
                    for k in range(width):
                        sums[part, q, j, k] += fresh[q, j, k]


def gram_of_blocks(Y: np.ndarray) -> np.ndarray:
    """Return the products of all columns of blocks Y (b, n, K), summed in float64: (b K, b K)."""
    b, n, K = Y.shape
    sums = partial_sums(n, b * K, b * K, np.float64)
    _gram(Y, sums)
    lower = np.tril(unpacked(sums.sum(0), b * K))
    return lower + np.tril(lower, -1).T


@njit(parallel=True, **FLAT)
def _gram(Y, sums):  # pragma: no cover - compiled
    b, n, K = Y.shape
    parts, p, total, width = sums.shape
    for part in prange(parts):
        stop = (part + 1) * n // parts
        rows, wide = np.zeros((2 * BLOCK, total)), np.zeros((p, 2 * BLOCK, width))
        for first in range(part * n // parts, stop, 2 * BLOCK):
            count = min(2 * BLOCK, stop - first)
            for i in range(count):
                for c in range(b):
                    for k in range(K):
                        rows[i, c * K + k] = Y[c, first + i, k]
                for q in range(p):
                    for k in range(min(width, total - q * width)):
                        wide[q, i, k] = rows[i, q * width + k]
            for q in range(p):  # on and below the diagonal
                at = q * width
                _strips(sums[part, q], at, rows, at, total - at, 1, total, wide[q], 0, count)
