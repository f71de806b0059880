"""Attention over edges, compiled: scores, softmax and weighted sums in one pass over each node's edges.

Edges are in the order of their targets. ``extra`` (scores of the edges themselves) and ``keep`` (what dropout
left, rescaled) may be empty. A node's row is written by one thread, so results do not depend on the threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from corollary.compiled import njit
from corollary.nn.sparse_kernels import FAST

__all__ = ["backward", "forward"]


@njit(fastmath=FAST, cache=True)
def _forward_rows(first, last, start, index, x, at_source, at_target, extra, keep, slope, alpha, out):
    heads = at_source.shape[1]
    width = x.shape[1] // heads
    top, total = np.empty(heads, x.dtype), np.empty(heads, x.dtype)
    has_extra, has_keep = extra.shape[0] > 0, keep.shape[0] > 0
    for i in range(first, last):
        row = out[i]
        row[:] = 0
        top[:] = -np.inf
        for e in range(start[i], start[i + 1]):
            for h in range(heads):
                s = at_source[index[e], h] + at_target[i, h]
                if has_extra:
                    s += extra[e, h]
                s = max(s, slope * s) if slope <= 1 else (s if s > 0 else slope * s)
                alpha[e, h] = s
                top[h] = max(top[h], s)
        total[:] = 0
        for e in range(start[i], start[i + 1]):
            for h in range(heads):
                alpha[e, h] = np.exp(alpha[e, h] - top[h])
                total[h] += alpha[e, h]
        for h in range(heads):
            total[h] = 1 / total[h] if total[h] > 0 else total[h]
        for e in range(start[i], start[i + 1]):
            source = x[index[e]]
            for h in range(heads):
                alpha[e, h] *= total[h]
                w = alpha[e, h] * keep[e, h] if has_keep else alpha[e, h]
                if width == 8:  # a constant length lets the compiler use whole registers
                    for c in range(8):
                        row[h * 8 + c] += w * source[h * 8 + c]
                else:
                    for c in range(h * width, (h + 1) * width):
                        row[c] += w * source[c]


@njit(fastmath=FAST, cache=True)
def _score_rows(
    first, last, start, index, x, at_source, at_target, extra, keep, slope, alpha, g, ds, d_target
):
    heads = at_source.shape[1]
    width = x.shape[1] // heads
    mean = np.empty(heads, x.dtype)
    has_extra, has_keep = extra.shape[0] > 0, keep.shape[0] > 0
    for i in range(first, last):
        row = g[i]
        mean[:] = 0
        d_target[i, :] = 0
        for e in range(start[i], start[i + 1]):
            source = x[index[e]]
            for h in range(heads):
                d = mean[h] * 0
                if width == 8:
                    for c in range(8):
                        d += row[h * 8 + c] * source[h * 8 + c]
                else:
                    for c in range(h * width, (h + 1) * width):
                        d += row[c] * source[c]
                if has_keep:
                    d *= keep[e, h]
                ds[e, h] = d
                mean[h] += alpha[e, h] * d
        for e in range(start[i], start[i + 1]):
            for h in range(heads):
                s = at_source[index[e], h] + at_target[i, h]
                if has_extra:
                    s += extra[e, h]
                d = alpha[e, h] * (ds[e, h] - mean[h])
                d = d if s > 0 else d * slope
                ds[e, h] = d
                d_target[i, h] += d


@njit(fastmath=FAST, cache=True)
def _source_rows(first, last, start, index, place, alpha, keep, ds, g, dx, d_source):
    heads = alpha.shape[1]
    width = g.shape[1] // heads
    has_keep = keep.shape[0] > 0
    for j in range(first, last):
        row = dx[j]
        row[:] = 0
        d_source[j, :] = 0
        for p in range(start[j], start[j + 1]):
            e = place[p]
            target = g[index[p]]
            for h in range(heads):
                d_source[j, h] += ds[e, h]
                w = alpha[e, h] * keep[e, h] if has_keep else alpha[e, h]
                if width == 8:
                    for c in range(8):
                        row[h * 8 + c] += w * target[h * 8 + c]
                else:
                    for c in range(h * width, (h + 1) * width):
                        row[c] += w * target[c]


@njit(parallel=True, cache=True)
def forward(bounds, start, index, x, at_source, at_target, extra, keep, slope, alpha, out):
    """Write the attention weights (E, heads) and the weighted sums (n, heads * width)."""
    for b in prange(bounds.size - 1):
        _forward_rows(
            bounds[b], bounds[b + 1], start, index, x, at_source, at_target, extra, keep, slope, alpha, out
        )


@njit(parallel=True, cache=True)
def _scores(bounds, start, index, x, at_source, at_target, extra, keep, slope, alpha, g, ds, d_target):
    for b in prange(bounds.size - 1):
        _score_rows(
            bounds[b],
            bounds[b + 1],
            start,
            index,
            x,
            at_source,
            at_target,
            extra,
            keep,
            slope,
            alpha,
            g,
            ds,
            d_target,
        )


@njit(parallel=True, cache=True)
def _sources(bounds, start, index, place, alpha, keep, ds, g, dx, d_source):
    for b in prange(bounds.size - 1):
        _source_rows(bounds[b], bounds[b + 1], start, index, place, alpha, keep, ds, g, dx, d_source)


def backward(
    rows, columns, place, x, at_source, at_target, extra, keep, slope, alpha, g, ds, d_target, dx, d_source
):
    """Write the gradients by scores ``ds``, by targets' and sources' terms, and by the features."""
    _scores(
        rows.bounds,
        rows.start,
        rows.index,
        x,
        at_source,
        at_target,
        extra,
        keep,
        slope,
        alpha,
        g,
        ds,
        d_target,
    )
    _sources(columns.bounds, columns.start, columns.index, place, alpha, keep, ds, g, dx, d_source)
