"""Updates of one factor of a non-negative factorisation, row by row; the rows do not depend on each other."""

from __future__ import annotations

import numpy as np
from numba import prange

from corollary.compiled import njit
from corollary.linalg.dense import BLOCK, accumulate, accumulate_back
from corollary.linalg.tiles import WIDE, tile

__all__ = ["descend_dense", "descend_known", "descend_rows", "divergence_known", "multiply_rows"]

FLAT = {"fastmath": True, "error_model": "numpy", "cache": True, "parallel": True}
LANES = BLOCK  # rows that are updated side by side
PARTS = 64  # of the rows, each with room of its own to work in
TINY = np.finfo(np.float32).eps  # what stands for a zero in a denominator, as in scikit-learn

line = tile(1, 1, WIDE)


@njit(**{**FLAT, "parallel": False})
def _descend(A, first, count, G, c, order, violation, a, slope):  # pragma: no cover - compiled
    """One sweep of eq. 2 over the coordinates of ``count`` rows side by side, given c = (X B)ᵀ (K, LANES).

    a (K, LANES), zero where there is no row, and slope (LANES,) are room to work in.
    """
    K, lanes = A.shape[1], WIDE // A.itemsize
    zero, one = A.dtype.type(0), A.dtype.type(1)
    total = np.zeros(LANES, A.dtype)
    for i in range(count):
        for k in range(K):
            a[k, i] = A[first + i, k]
    for k in order:
        for i in range(LANES):
            slope[i] = -c[k, i]
        for i in range(0, LANES, lanes):  # slope += G[k] a, a register of rows at a time
            line(slope, i, LANES, G, k * K, K, 1, a, i, LANES, K)
        step = one / G[k, k] if G[k, k] != zero else zero
        for i in range(LANES):
            total[i] += abs(min(slope[i], zero) if a[k, i] == zero else slope[i])
            a[k, i] = max(a[k, i] - step * slope[i], zero)
    for i in range(count):
        violation[first + i] = total[i]
        for k in range(K):
            A[first + i, k] = a[k, i]


@njit(**FLAT)
def descend_rows(A, G, C, order, violation):  # pragma: no cover - compiled
    """One sweep of eq. 2 over every row, given G = BᵀB and C = X B.

    ``violation`` gets each row's sum of projected gradients.
    """
    n, K = A.shape
    blocks = (n + LANES - 1) // LANES
    parts = min(PARTS, blocks)
    for part in prange(parts):
        c, a, slope = np.zeros((K, LANES), A.dtype), np.zeros((K, LANES), A.dtype), np.empty(LANES, A.dtype)
        for block in range(part * blocks // parts, (part + 1) * blocks // parts):
            first = block * LANES
            count = min(LANES, n - first)
            for i in range(count):
                for k in range(K):
                    c[k, i] = C[first + i, k]
            _descend(A, first, count, G, c, order, violation, a, slope)


@njit(**FLAT)
def descend_dense(X, A, G, B, l1, order, violation, sums):  # pragma: no cover - compiled
    """Like ``descend_rows``, for C = X B - l1 of dense rows, and XᵀA of the new A: X is read once for both.

    B and the ``sums`` of XᵀA, one for each part of the rows, lie in panels.
    """
    n, K = A.shape
    parts, (p, _, width) = len(sums), B.shape
    for part in prange(parts):
        stop = (part + 1) * n // parts
        c, a, slope = np.zeros((K, LANES), A.dtype), np.zeros((K, LANES), A.dtype), np.empty(LANES, A.dtype)
        block = np.empty((p, LANES, width), A.dtype)
        for first in range(part * n // parts, stop, LANES):
            count = min(LANES, stop - first)
            block[:] = 0
            accumulate(block, 0, X, first, count, B)
            for k in range(K):
                for i in range(count):
                    c[k, i] = block[k // width, i, k % width] - l1
            _descend(A, first, count, G, c, order, violation, a, slope)
            for k in range(K):
                for i in range(count):
                    block[k // width, i, k % width] = A[first + i, k]
            accumulate_back(sums[part], X, first, count, block, 0)


@njit(**FLAT)
def descend_known(indptr, indices, data, A, B, l1, l2, order, violation):  # pragma: no cover - compiled
    """Like ``descend_rows``, over the known entries alone: each row has its own G and C, never formed."""
    longest = 0
    for i in range(len(A)):
        longest = max(longest, indptr[i + 1] - indptr[i])
    for i in prange(len(A)):
        first, m = indptr[i], indptr[i + 1] - indptr[i]
        a = A[i]
        rest = np.empty(m, A.dtype)
        for e in range(m):
            b = B[indices[first + e]]
            s = data[first + e]
            for k in range(len(a)):
                s -= a[k] * b[k]
            rest[e] = s
        total = 0.0
        for k in order:
            slope, curve = l1 + l2 * a[k], l2
            for e in range(m):
                b = B[indices[first + e], k]
                slope -= rest[e] * b
                curve += b * b
            total += abs(min(slope, 0) if a[k] == 0 else slope)
            if curve != 0:
                fresh = max(a[k] - slope / curve, 0)
                change = fresh - a[k]
                a[k] = fresh
                if change != 0:
                    for e in range(m):
                        rest[e] -= change * B[indices[first + e], k]
        violation[i] = total


@njit(**FLAT)
def multiply_rows(indptr, indices, data, A, B, sums, l1, l2, squared):  # pragma: no cover - compiled
    """The multiplicative step, eq. 3, touching stored entries only.

    ``sums`` are the column sums of B, or empty if only stored entries are known; ``squared`` takes the
    Frobenius loss (known entries only) instead of the Kullback-Leibler divergence.
    """
    K = A.shape[1]
    one = A.dtype.type(1)
    for i in prange(len(A)):
        a = A[i]
        up, down = np.zeros(K, A.dtype), np.zeros(K, A.dtype)
        for e in range(indptr[i], indptr[i + 1]):
            b = B[indices[e]]
            s = a[0] * b[0]
            for k in range(1, K):
                s += a[k] * b[k]
            if squared:
                x, weight = data[e], s
            else:
                x, weight = data[e] / (s if s != 0 else A.dtype.type(TINY)), one
            for k in range(K):
                up[k] += x * b[k]
            if len(sums) == 0:
                for k in range(K):
                    down[k] += weight * b[k]
        for k in range(K):
            below = (sums[k] if len(sums) else down[k]) + l1 + l2 * a[k]
            a[k] *= up[k] / (below if below != 0 else A.dtype.type(TINY))


@njit(**FLAT)
def divergence_known(indptr, indices, data, A, B, squared, loss):  # pragma: no cover - compiled
    """Write each row's divergence over its stored entries."""
    for i in prange(len(A)):
        a = A[i]
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            b = B[indices[e]]
            s = 0.0
            for k in range(len(a)):
                s += a[k] * b[k]
            x = np.float64(data[e])
            if squared:
                total += 0.5 * (x - s) * (x - s)
            else:
                total += s - x
                if x > 0:
                    total += x * np.log(x / max(s, TINY))
        loss[i] = total
