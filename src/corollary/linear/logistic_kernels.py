"""The curvature of softmax regression along a direction, in one pass over dense rows."""

from __future__ import annotations

import numpy as np
from numba import prange

from corollary.compiled import njit
from corollary.linalg.dense import BLOCK, accumulate, accumulate_back, packed, partial_sums, unpacked
from corollary.linalg.threads import threads

__all__ = ["curvature"]

FLAT = {"fastmath": True, "error_model": "numpy", "cache": True, "parallel": True}


def curvature(X: np.ndarray, P: np.ndarray, w: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return the sum over rows of [x 1] w (p ⊙ v - p (p · v))ᵀ with v = Vᵀ [x 1], eq. 2.

    Shapes (n, d), (n, K), (n,), (d + 1, K) -> (d + 1, K), all of one type. Rows are read once: blocks of them stay in the
    cache from the first product to the second.
    """
    (n, d), K = X.shape, P.shape[1]
    sums = partial_sums(n, d, K, X.dtype)
    last = np.zeros((len(sums), K), X.dtype)
    with threads(work=n * d * K):
        _curvature(X, P, w, packed(V[:-1]), V[-1], sums, last)
    return np.concatenate([unpacked(sums.sum(0), K), last.sum(0, keepdims=True)])


@njit(**FLAT)
def _curvature(X, P, w, V, v, sums, last):  # pragma: no cover - compiled
    n, K = P.shape
    parts, (p, _, width) = len(sums), V.shape
    for part in prange(parts):
        stop = (part + 1) * n // parts
        block = np.empty((p, BLOCK, width), X.dtype)
        for first in range(part * n // parts, stop, BLOCK):
            count = min(BLOCK, stop - first)
            block[:] = 0
            accumulate(block, 0, X, first, count, V)
            for i in range(count):
                mean, weight = X.dtype.type(0), w[first + i]
                for q in range(p):  # panel by panel: columns q width to (q + 1) width
                    for k in range(min(width, K - q * width)):
                        block[q, i, k] = P[first + i, q * width + k] * (block[q, i, k] + v[q * width + k])
                        mean += block[q, i, k]
                for q in range(p):
                    for k in range(min(width, K - q * width)):
                        block[q, i, k] = weight * (block[q, i, k] - P[first + i, q * width + k] * mean)
                        last[part, q * width + k] += block[q, i, k]
            accumulate_back(sums[part], X, first, count, block, 0)
