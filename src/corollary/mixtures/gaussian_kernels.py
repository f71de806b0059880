r"""One EM sweep of a Gaussian mixture over cache-sized blocks of rows.

The log-density of a component is linear in :math:`\phi(x) = (x, x x^\top)`, and so are the moments that
the M step needs. For a block of rows both are one small matrix product with the features, which are
made once and never leave the cache:

.. math:: \ell = c + W \phi, \qquad r = \operatorname{softmax}(\ell), \qquad S = r \phi^\top. \tag{1}

The rows are cut into a fixed number of stripes, and their sums are added in order, so that the
result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from corollary.compiled import njit

__all__ = ["Sums", "one_blas_thread", "sweep"]

STRIPES = 16
# log-responsibilities below this count as zero: subnormal numbers would be slow
LEAST = -80.0
ROUND = 1.5 * 2.0**52  # added to a number, it leaves the nearest integer in the lowest bits
ONE = 1023 << 52  # the bits of 1.0
LOG2E = 1 / math.log(2)
# log 2 in two parts: n times the first is exact
LN2_HIGH, LN2_LOW = (
    0.6931471803691238,
    1.9082149292705877e-10,
)
TAYLOR = tuple(1 / math.factorial(i) for i in range(13, -1, -1))  # error below 4e-18 for |t| <= log(2) / 2
CACHE = 1 << 17  # numbers that a block of features may hold


class Sums(NamedTuple):
    """Weighted sums over rows: responsibilities (k,), their features (k, f), and the log-likelihood."""

    N: np.ndarray
    S: np.ndarray
    log_likelihood: float


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")  # pragma: no cover
def _features(XT, begin, m, full, phi):
    d, size = XT.shape[0], phi.shape[1]
    for i in range(d):
        for r in range(m):
            phi[i, r] = XT[i, begin + r]
        for r in range(m, size):
            phi[i, r] = 0.0
    f = d
    for i in range(d):
        for j in range(i, d if full else i + 1):
            a, b, p = phi[i], phi[j], phi[f]
            for r in range(size):
                p[r] = a[r] * b[r]
            f += 1


@njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")  # pragma: no cover
def _exp(x, shift, power, bits):
    """Replace x by exp(x - shift), for x - shift in [-700, 0]; in plain arithmetic, so that it is vectorised.

    With n the nearest integer to u / log 2, exp(u) = 2ⁿ exp(u - n log 2), and the last is a polynomial for at
    most log(2) / 2. Adding 1.5 · 2⁵² to n leaves n in the lowest bits of the sum; shifted into the exponent they
    are 2ⁿ. ``power`` and ``bits`` are one buffer, seen as numbers and as integers.
    """
    size = len(x)
    for r in range(size):
        power[r] = (x[r] - shift[r]) * LOG2E + ROUND
    for r in range(size):
        n = power[r] - ROUND
        t = (x[r] - shift[r]) - n * LN2_HIGH - n * LN2_LOW
        p = TAYLOR[0]
        for c in TAYLOR[1:]:
            p = p * t + c
        x[r] = p
    for r in range(size):
        bits[r] = (bits[r] << 52) + ONE
    for r in range(size):
        x[r] *= power[r]


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")  # pragma: no cover
def _softmax(logits, c, weight, largest, scale, N, power, bits):
    """Turn logits into weighted responsibilities; return the weighted sum of their log-normalisers."""
    k, size = logits.shape
    for r in range(size):
        largest[r] = logits[0, r] + c[0]
        scale[r] = 0.0
    for q in range(k):
        row = logits[q]
        for r in range(size):
            row[r] += c[q]
            largest[r] = max(largest[r], row[r])
    for q in range(k):
        row = logits[q]
        for r in range(size):
            row[r] = max(row[r], largest[r] + LEAST)
        _exp(row, largest, power, bits)
        for r in range(size):
            scale[r] += row[r]
    total = 0.0
    for r in range(size):
        total += weight[r] * (largest[r] + np.log(scale[r]))
        scale[r] = weight[r] / scale[r]
    for q in range(k):
        row = logits[q]
        part = 0.0
        for r in range(size):
            row[r] *= scale[r]
            part += row[r]
        N[q] += part
    return total


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")  # pragma: no cover
def _stripe(XT, weight, W, c, full, begin, end, size, N, S):
    """Add the sums over rows [begin, end) to N and S; return their log-likelihood. Equation 1."""
    k, f = W.shape
    phi, logits = np.zeros((f, size)), np.zeros((k, size))
    largest, scale, w, power = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    bits = power.view(np.int64)
    total = 0.0
    for start in range(begin, end, size):
        m = min(size, end - start)
        for r in range(size):
            w[r] = (weight[start + r] if len(weight) else 1.0) if r < m else 0.0
        _features(XT, start, m, full, phi)
        np.dot(W, phi, logits)
        total += _softmax(logits, c, w, largest, scale, N, power, bits)
        S += np.dot(logits, phi.T)
    return total


@cache
def _threadpools() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> Any:
    """Return a context in which BLAS does not start threads of its own; for small matrices they only cost."""
    return _threadpools().limit(limits=1, user_api="blas")


def sweep(XT: np.ndarray, weight: np.ndarray | None, W: np.ndarray, c: np.ndarray, full: bool) -> Sums:
    """Return the sums of equation 1 over all columns of XT (d, n).

    ``W`` (k, f) and ``c`` (k,) are float64; ``full`` says whether the features are all products
    of two coordinates (upper triangle, row by row) or the squares alone.
    """
    n, (k, f) = XT.shape[1], W.shape
    size = max(32, min(512, CACHE // f // 32 * 32))
    share = -(-n // STRIPES)
    w = np.empty(0) if weight is None else weight
    N, S = np.zeros((STRIPES, k)), np.zeros((STRIPES, k, f))

    def work(p: int) -> Any:
        return _stripe(XT, w, W, c, full, min(n, p * share), min(n, (p + 1) * share), size, N[p], S[p])

    with one_blas_thread(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        parts = list(pool.map(work, range(STRIPES)))
    return Sums(N.sum(axis=0), S.sum(axis=0), float(np.sum(parts)))
