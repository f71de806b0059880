"""The compiled loop of skip-gram with negative sampling.

The negatives of a position are shared by all words of its window, so that the work on a position is two
small matrix products (contexts times targets, and back) instead of many vector products: six target
rows at a time stay in cache and registers. Without the GIL, several threads may run it on one pair of
tables without locks.
"""

from __future__ import annotations

import math

import numpy as np

from corollary.compiled import njit

__all__ = ["BLOCK", "GRID", "REACH", "noise_table", "sigmoid_table", "train_texts"]

FAST = {"contract", "reassoc", "nsz", "arcp", "ninf", "nnan"}
BLOCK = 6  # target rows worked on at once
REACH, GRID = 8.0, 2048  # sigmoids are looked up on a grid over (-REACH, REACH)
TABLE = 2**20
SMALLEST = np.float32(1e-37)  # of a likelihood, for its logarithm


def sigmoid_table() -> np.ndarray:
    """Return sigma in the middle of each cell of the grid."""
    x = (np.arange(GRID) + 0.5) / GRID * 2 * REACH - REACH
    return (1 / (1 + np.exp(-x))).astype(np.float32)


def noise_table(counts: np.ndarray, alpha: float) -> np.ndarray:
    """Return word numbers in proportion to counts ** alpha, for drawing by a random place in the table."""
    weights = counts.astype(np.float64) ** alpha
    ends = np.round(np.cumsum(weights) / weights.sum() * TABLE).astype(np.int64)
    return np.repeat(np.arange(len(counts), dtype=np.int32), np.diff(ends, prepend=0))


@njit(nogil=True, cache=True)
def _next(s):  # pragma: no cover - compiled
    s ^= s << np.uint64(13)
    s ^= s >> np.uint64(7)
    s ^= s << np.uint64(17)
    return s


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _cell(v):  # pragma: no cover - compiled
    """Return the cell of the sigmoid's grid that v lies in."""
    v = min(max(v, np.float32(-REACH)), np.float32(REACH - 1e-3))
    return np.int64((v + np.float32(REACH)) * np.float32(GRID / (2 * REACH)))


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _products(x, Z, g, m):  # pragma: no cover - compiled
    """Write g_q = x . O_q for the six rows from m on."""
    o0, o1, o2, o3, o4, o5 = Z[m], Z[m + 1], Z[m + 2], Z[m + 3], Z[m + 4], Z[m + 5]
    a0 = a1 = a2 = a3 = a4 = a5 = np.float32(0)
    for k in range(x.size):
        v = x[k]
        a0 += v * o0[k]
        a1 += v * o1[k]
        a2 += v * o2[k]
        a3 += v * o3[k]
        a4 += v * o4[k]
        a5 += v * o5[k]
    g[m], g[m + 1], g[m + 2], g[m + 3], g[m + 4], g[m + 5] = a0, a1, a2, a3, a4, a5


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _add_rows(x, Z, g, m):  # pragma: no cover - compiled
    """Add to x the sum of g_q O_q over the six rows from m on."""
    o0, o1, o2, o3, o4, o5 = Z[m], Z[m + 1], Z[m + 2], Z[m + 3], Z[m + 4], Z[m + 5]
    g0, g1, g2, g3, g4, g5 = g[m], g[m + 1], g[m + 2], g[m + 3], g[m + 4], g[m + 5]
    for k in range(x.size):
        x[k] += g0 * o0[k] + g1 * o1[k] + g2 * o2[k] + g3 * o3[k] + g4 * o4[k] + g5 * o5[k]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _add_contexts(y, X, G, q, n):  # pragma: no cover - compiled
    """Add to y the sum of G_cq X_c over c < n, four at a time; rows of G from n on are zero."""
    for c in range(0, n, 4):
        x0, x1, x2, x3 = X[c], X[c + 1], X[c + 2], X[c + 3]
        g0, g1, g2, g3 = G[c, q], G[c + 1, q], G[c + 2, q], G[c + 3, q]
        for k in range(y.size):
            y[k] += g0 * x0[k] + g1 * x1[k] + g2 * x2[k] + g3 * x3[k]


@njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
def _position(contexts, n, targets, m, inputs, outputs, rate, sigma, Z, X, G):  # pragma: no cover - compiled
    """Make one step on the window of a position: m targets, the first of them true; return its loss."""
    padded = (m + BLOCK - 1) // BLOCK * BLOCK
    for q in range(padded):
        o = Z[q]
        if q < m:
            y = outputs[targets[q]]
            for k in range(o.size):
                o[k] = y[k]
        else:
            for k in range(o.size):
                o[k] = 0
    loss = 0.0
    for c in range(n):
        x, kept, g = inputs[contexts[c]], X[c], G[c]
        for k in range(x.size):
            kept[k] = x[k]
        for b in range(0, padded, BLOCK):
            _products(kept, Z, g, b)
        likelihood = sigma[_cell(g[0])]
        g[0] = (np.float32(1) - likelihood) * rate
        for q in range(1, m):
            p = sigma[_cell(g[q])]
            g[q] = -p * rate
            likelihood *= np.float32(1) - p
        for q in range(m, padded):
            g[q] = 0
        loss -= math.log(max(likelihood, SMALLEST))
        for b in range(0, padded, BLOCK):
            _add_rows(x, Z, g, b)
    for c in range(n, (n + 3) // 4 * 4):
        for q in range(padded):
            G[c, q] = 0
    for q in range(m):
        _add_contexts(outputs[targets[q]], X, G, q, n)
    return loss


@njit(nogil=True, cache=True, error_model="numpy")
def train_texts(
    tokens,
    start,
    first,
    last,
    inputs,
    outputs,
    noise,
    keep,
    window,
    negative,
    rate0,
    rate1,
    floor,
    seed,
    sigma,
):  # pragma: no cover - compiled
    """Go once over texts ``first`` to ``last``; the rate falls linearly from rate0 to rate1. Return loss and pairs."""
    D, longest = inputs.shape[1], 0
    for i in range(first, last):
        longest = max(longest, start[i + 1] - start[i])
    kept, contexts = np.empty(longest, np.int64), np.empty(2 * window, np.int64)
    width = (negative + BLOCK) // BLOCK * BLOCK
    targets = np.empty(width, np.int64)
    Z = np.zeros((width, D), np.float32)
    X, G = np.zeros((2 * window + 4, D), np.float32), np.zeros((2 * window + 4, width), np.float32)
    s, places = np.uint64(seed), np.uint64(noise.size - 1)
    loss, pairs = 0.0, 0
    total = max(start[last] - start[first], 1)
    for i in range(first, last):
        done = (start[i] - start[first]) / total
        rate = np.float32(max(rate0 + (rate1 - rate0) * done, floor))
        n = 0
        for t in range(start[i], start[i + 1]):
            s = _next(s)
            if np.float64(s >> np.uint64(11)) * 2.0**-53 < keep[tokens[t]]:
                kept[n] = tokens[t]
                n += 1
        for j in range(n):
            s = _next(s)
            radius = 1 + np.int64((s >> np.uint64(33)) % np.uint64(window))
            c = 0
            for u in range(max(0, j - radius), min(n, j + radius + 1)):
                if u != j:
                    contexts[c] = kept[u]
                    c += 1
            if c == 0:
                continue
            targets[0], m = kept[j], 1
            for _ in range(negative):
                s = _next(s)
                word = noise[np.int64((s >> np.uint64(20)) & places)]
                if word != kept[j]:
                    targets[m] = word
                    m += 1
            loss += _position(contexts, c, targets, m, inputs, outputs, rate, sigma, Z, X, G)
            pairs += c
    return loss, pairs
