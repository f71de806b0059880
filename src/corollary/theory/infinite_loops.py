r"""The recursion of the infinite-width kernels, compiled: each pair of samples goes through all layers by itself.

With the variances of every layer known, which are a few numbers for each sample, an entry of either kernel needs nothing but its
own covariance (equations 1 to 4 of :mod:`corollary.theory.infinite`). So one pass over the Gram matrix does what takes a pass for
every operation on tensors. Activations whose expectations have no closed form are left to torch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["pairs"]

ERF, IDENTITY = 2, 3  # places in corollary.theory.infinite.CLOSED; the others are ReLU and its leaky form
FLAT = {"error_model": "numpy", "cache": True, "nogil": True}


@njit(**FLAT)
def _dual(kind, leak, K, a, b):  # pragma: no cover - compiled
    """Return E[phi(u) phi(v)] and E[phi'(u) phi'(v)] of one pair, of covariance K and variances a and b."""
    if kind == IDENTITY:
        return K, 1.0
    if kind == ERF:
        scale = (1 + 2 * a) * (1 + 2 * b)
        sine = min(max(2 * K / math.sqrt(scale), -1.0), 1.0)
        return (2 / math.pi) * math.asin(sine), (4 / math.pi) / math.sqrt(max(scale - 4 * K * K, 1.0))
    norm = math.sqrt(a) * math.sqrt(b)
    c = min(max(K / norm, -1.0), 1.0)
    left = math.pi - math.acos(c)
    value = (math.sqrt(max(1 - c * c, 0.0)) + left * c) * norm / (2 * math.pi)
    slope = left / (2 * math.pi)
    return leak * K + (1 - leak) ** 2 * value, leak + (1 - leak) ** 2 * slope


@njit(parallel=True, **FLAT)
def pairs(K, T, qa, qb, kind, leak, w, b, residual, same):  # pragma: no cover - compiled
    """Replace first covariances K (n, m) by the NNGP kernel, and fill T (n, m) with the tangent kernel.

    ``qa`` (layers, n) and ``qb`` (layers, m) are the variances before every activation. With ``same`` both sides are one set of
    samples: half of the pairs are computed, and the angle of a sample with itself is exactly zero.
    """
    n, m = K.shape
    layers = len(qa)
    for p in prange(n):
        # long and short rows in turn, so that threads have equal work
        i = p // 2 if p % 2 == 0 else n - 1 - p // 2
        for j in range(i if same else 0, m):
            k, t = np.float64(K[i, j]), np.float64(K[i, j])
            for layer in range(layers):
                at = qa[layer, i] if same and i == j else k
                value, slope = _dual(kind, leak, at, qa[layer, i], qb[layer, j])
                value = w * w * value + b * b
                tangent = value + w * w * t * slope
                if residual and layer < layers - 1:
                    value, tangent = k + value, t + tangent
                k, t = value, tangent
            K[i, j], T[i, j] = k, t
    if same:
        for i in prange(n):
            for j in range(i):
                K[i, j], T[i, j] = K[j, i], T[j, i]
