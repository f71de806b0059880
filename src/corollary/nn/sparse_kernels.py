"""Compiled loops over edges, on the CPU.

Every row is summed by one thread in the order of its edges, so results do not depend on the number
of threads. Rows are divided into blocks of nearly equal numbers of edges; small products are done
by the calling thread alone, since waking the others would take longer.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["FAST", "counting_sort", "edge_dot", "product"]

FAST = {"contract", "reassoc"}  # fused and reordered sums; NaN and infinity keep their meaning
SMALL = 2**19  # multiplications, a tenth of a millisecond, below which one thread is faster than several


@njit(cache=True)
def counting_sort(key, n):  # (E,) -> (n + 1,), (E,)
    """Return where each key's entries begin, and the stable order that sorts them."""
    start = np.zeros(n + 1, np.int64)
    for k in key:
        start[k + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    place = start[:-1].copy()
    order = np.empty(key.size, np.int64)
    for e in range(key.size):
        order[place[key[e]]] = e
        place[key[e]] += 1
    return start, order


@njit(fastmath=FAST, cache=True)
def _weighted_rows(first, last, start, index, value, B, out):
    d = B.shape[1]
    for i in range(first, last):
        row, e, end = out[i], start[i], start[i + 1]
        row[:] = 0
        while e + 4 <= end:  # four edges share one pass over the row
            b0, b1, b2, b3 = B[index[e]], B[index[e + 1]], B[index[e + 2]], B[index[e + 3]]
            v0, v1, v2, v3 = value[e], value[e + 1], value[e + 2], value[e + 3]
            for c in range(d):
                row[c] += v0 * b0[c] + v1 * b1[c] + v2 * b2[c] + v3 * b3[c]
            e += 4
        while e < end:
            b0, v0 = B[index[e]], value[e]
            for c in range(d):
                row[c] += v0 * b0[c]
            e += 1


@njit(fastmath=FAST, cache=True)
def _plain_rows(first, last, start, index, B, out):
    d = B.shape[1]
    for i in range(first, last):
        row, e, end = out[i], start[i], start[i + 1]
        row[:] = 0
        while e + 4 <= end:
            b0, b1, b2, b3 = B[index[e]], B[index[e + 1]], B[index[e + 2]], B[index[e + 3]]
            for c in range(d):
                row[c] += b0[c] + b1[c] + b2[c] + b3[c]
            e += 4
        while e < end:
            b0 = B[index[e]]
            for c in range(d):
                row[c] += b0[c]
            e += 1


@njit(parallel=True, cache=True)
def _weighted_blocks(bounds, start, index, value, B, out):
    for block in prange(bounds.size - 1):
        _weighted_rows(bounds[block], bounds[block + 1], start, index, value, B, out)


@njit(parallel=True, cache=True)
def _plain_blocks(bounds, start, index, B, out):
    for block in prange(bounds.size - 1):
        _plain_rows(bounds[block], bounds[block + 1], start, index, B, out)


def product(bounds, start, index, value, B, out):
    """Write CSR (n, m) times dense (m, d) into ``out``; ``value=None`` stands for ones."""
    small = index.size * B.shape[1] < SMALL
    if value is None and small:
        _plain_rows(0, len(out), start, index, B, out)
    elif value is None:
        _plain_blocks(bounds, start, index, B, out)
    elif small:
        _weighted_rows(0, len(out), start, index, value, B, out)
    else:
        _weighted_blocks(bounds, start, index, value, B, out)


@njit(fastmath=FAST, cache=True)
def _dots(first, last, target, source, A, B, out):
    for e in range(first, last):
        a, b = A[target[e]], B[source[e]]
        total = out[e] * 0
        for c in range(a.size):
            total += a[c] * b[c]
        out[e] = total


@njit(parallel=True, cache=True)
def _dots_blocks(blocks, target, source, A, B, out):
    size = (target.size + blocks - 1) // blocks
    for block in prange(blocks):
        _dots(block * size, min(target.size, (block + 1) * size), target, source, A, B, out)


def edge_dot(target, source, A, B, out):  # (E,), (E,), (n, d), (m, d) -> (E,)
    """Write, for each edge, the inner product of its target's row in A and its source's row in B."""
    out[:] = 0
    if target.size * A.shape[1] < SMALL:
        _dots(0, target.size, target, source, A, B, out)
    else:
        _dots_blocks(64, target, source, A, B, out)
