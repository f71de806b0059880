r"""Leapfrog paths through the posterior of a logistic regression, compiled.

Small posteriors spend more time between the calls of torch than inside them. Here a whole path of a chain,

.. math::
    y \leftarrow y + \tfrac\epsilon2 g, \qquad \theta \leftarrow \theta + \epsilon\, s \odot y, \qquad
    g \leftarrow X^\top(t - \sigma(X\theta)) - \lambda\theta, \qquad y \leftarrow y + \tfrac\epsilon2 g, \tag{1}

is one loop, chains in parallel; data are kept by columns, so that rows fill the registers. In single precision

.. math:: e^v = 2^k e^r, \qquad k = \lfloor v / \log 2 + \tfrac12 \rfloor, \tag{2}

takes :math:`e^r` from its Taylor series, :math:`|r| \le 0.35`, to rounding, and :math:`2^k` is written into the exponent's bits:
unlike a call of the library's function, that runs in registers too.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

__all__ = ["glide"]

FLAT = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "cache": True, "nogil": True}
LARGEST = np.float32(60)  # beyond it the sigmoid is 0 or 1 to rounding
PER_LOG2, LOG2_HIGH, LOG2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
HALF, ONE = np.float32(1 / 2), np.float32(1)
C3, C4, C5, C6 = (np.float32(1 / f) for f in (6, 24, 120, 720))  # of the Taylor series, 1 / k!


@njit(**FLAT)
def _residuals(t, z, bits):  # pragma: no cover - compiled
    """Replace z (n,) by t - sigmoid(z); ``bits`` (n,) is for eq. 2."""
    if z.itemsize == 8:
        for i in range(len(z)):
            z[i] = t[i] - 1 / (1 + np.exp(-z[i]))
        return
    powers = bits.view(np.float32)
    for i in range(len(z)):
        v = min(max(-z[i], -LARGEST), LARGEST)
        k = np.floor(v * PER_LOG2 + HALF)
        r = v - k * LOG2_HIGH - k * LOG2_LOW
        z[i] = ONE + r * (ONE + r * (HALF + r * (C3 + r * (C4 + r * (C5 + r * C6)))))
        bits[i] = (np.int32(k) + np.int32(127)) << np.int32(23)
    for i in range(len(z)):
        z[i] = t[i] - ONE / (ONE + z[i] * powers[i])


@njit(**FLAT)
def _slope(X, t, theta, precision, z, bits, g):  # pragma: no cover - compiled
    """Write the gradient of the log-density at theta (d,) into g; X is (d, n), four columns are read at a time."""
    d, n = X.shape
    whole = d // 4 * 4
    z[:] = 0
    for j in range(0, whole, 4):
        a, b, c, e = X[j], X[j + 1], X[j + 2], X[j + 3]
        u, v, w, x = theta[j], theta[j + 1], theta[j + 2], theta[j + 3]
        for i in range(n):
            z[i] += u * a[i] + v * b[i] + w * c[i] + x * e[i]
    for j in range(whole, d):
        for i in range(n):
            z[i] += theta[j] * X[j, i]
    _residuals(t, z, bits)
    zero = X[0, 0] * 0
    for j in range(0, whole, 4):
        a, b, c, e = X[j], X[j + 1], X[j + 2], X[j + 3]
        u, v, w, x = zero, zero, zero, zero
        for i in range(n):
            u += z[i] * a[i]
            v += z[i] * b[i]
            w += z[i] * c[i]
            x += z[i] * e[i]
        g[j], g[j + 1], g[j + 2], g[j + 3] = u, v, w, x
    for j in range(whole, d):
        u = zero
        for i in range(n):
            u += z[i] * X[j, i]
        g[j] = u
    for j in range(d):
        g[j] -= precision * theta[j]


@njit(parallel=True, **FLAT)
def glide(X, t, theta, y, g, variance, step, n_steps, precision):  # pragma: no cover - compiled
    """Move positions, momenta and gradients (chains, d) in place by ``n_steps`` of eq. 1.

    X (d, n) and t (n,) are the data, ``variance`` (d,) the inverse mass; all are contiguous and of one type, and so are ``step``
    and ``precision``.
    """
    d, n = X.shape
    half = step * HALF
    for c in prange(len(theta)):
        z, bits = np.empty_like(t), np.empty(n, np.int32)
        for _ in range(n_steps):
            for j in range(d):
                y[c, j] += half * g[c, j]
                theta[c, j] += step * variance[j] * y[c, j]
            _slope(X, t, theta[c], precision, z, bits, g[c])
            for j in range(d):
                y[c, j] += half * g[c, j]
