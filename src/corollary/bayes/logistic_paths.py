r"""Transitions of Hamiltonian Monte Carlo on the posterior of a logistic regression, compiled.

Small posteriors spend more time between the calls of torch than inside them. Here a whole transition of a chain is one loop:
the energy, the path of leapfrog steps

.. math::
    y \leftarrow y + \tfrac\epsilon2 g, \qquad \theta \leftarrow \theta + \epsilon\, s \odot y, \qquad
    g \leftarrow X^\top(t - \sigma(X\theta)) - \lambda\theta, \qquad y \leftarrow y + \tfrac\epsilon2 g, \tag{1}

the energy at its end, and whether that is accepted. The data are cut into tiles of ``TILE`` rows, kept by columns, so that
rows fill the registers and a tile stays in the nearest cache while all chains of a thread pass over it. In single precision

.. math:: e^v = 2^k e^r, \qquad k = \lfloor v / \log 2 + \tfrac12 \rfloor, \tag{2}

takes :math:`e^r` from its Taylor series, :math:`|r| \le 0.35`, to rounding, and :math:`2^k` is written into the exponent's bits:
unlike a call of the library's function, that runs in registers too. Many rows share a logarithm in the likelihood,

.. math:: -\log p(t \mid \theta) = \sum_i (1 - t_i) z_i + \log \prod_i (1 + e^{-z_i}), \qquad z = X\theta. \tag{3}
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["TILE", "tiles", "transition"]

TILE = 256  # rows
LANES = 32  # products of TILE / LANES factors up to exp(60) each, of which logarithms are taken
FLAT = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "cache": True, "nogil": True}
LARGEST = np.float32(60)  # beyond it the sigmoid is 0 or 1 to rounding, and eq. 3 linear
PER_LOG2, LOG2_HIGH, LOG2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
LOG2 = math.log(2)
HALF, ONE = np.float32(1 / 2), np.float32(1)
C3, C4, C5, C6 = (np.float32(1 / f) for f in (6, 24, 120, 720))  # of the Taylor series, 1 / k!


def tiles(X: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, d) and labels (n,) as tiles (m, d, TILE) and (m, TILE), filled up with zeros.

    >>> X, t = tiles(np.ones((130, 3)), np.ones(130))
    >>> X.shape, t.shape, X.sum()
    ((1, 3, 256), (1, 256), np.float64(390.0))
    """
    n, d = X.shape
    m = -(-n // TILE)
    rows, labels = np.zeros((m * TILE, d), X.dtype), np.zeros(m * TILE, X.dtype)
    rows[:n], labels[:n] = X, t
    return np.ascontiguousarray(rows.reshape(m, TILE, d).transpose(0, 2, 1)), labels.reshape(m, TILE)


@njit(**FLAT)
def _exponentials(z, out, bits):  # pragma: no cover - compiled
    """Write exp(-z), with z kept within LARGEST, into out (n,); ``bits`` (n,) is for eq. 2."""
    if z.itemsize == 8:
        for i in range(len(z)):
            out[i] = math.exp(min(max(-z[i], -60.0), 60.0))
        return
    powers = bits.view(np.float32)
    for i in range(len(z)):
        v = min(max(-z[i], -LARGEST), LARGEST)
        k = np.floor(v * PER_LOG2 + HALF)
        r = v - k * LOG2_HIGH - k * LOG2_LOW
        out[i] = ONE + r * (ONE + r * (HALF + r * (C3 + r * (C4 + r * (C5 + r * C6)))))
        bits[i] = (np.int32(k) + np.int32(127)) << np.int32(23)
    for i in range(len(z)):
        out[i] *= powers[i]


@njit(**FLAT)
def _log_likelihood(t, z, e, lanes):  # pragma: no cover - compiled
    """Return minus eq. 3 of a tile, from its labels, logits z and their exponentials e = exp(-z) within LARGEST."""
    lanes[:] = 1.0
    total = 0.0
    for low in range(0, TILE, LANES):
        for i in range(LANES):
            lanes[i] *= 1.0 + np.float64(e[low + i])
    for i in range(TILE):
        total += (1 - t[i]) * z[i] + max(-z[i] - LARGEST, 0.0)
    for i in range(LANES):
        total += math.log(lanes[i])
    return -total


@njit(**FLAT)
def _logits(X, theta, z):  # pragma: no cover - compiled
    """Write X theta of a tile X (d, TILE) into z, four columns at a time."""
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


@njit(**FLAT)
def _add_slopes(X, z, g):  # pragma: no cover - compiled
    """Add X^T z of a tile X (d, TILE) to g, four columns at a time."""
    d, n = X.shape
    whole, zero = d // 4 * 4, X[0, 0] * 0
    for j in range(0, whole, 4):
        a, b, c, e = X[j], X[j + 1], X[j + 2], X[j + 3]
        u, v, w, x = zero, zero, zero, zero
        for i in range(n):
            u += z[i] * a[i]
            v += z[i] * b[i]
            w += z[i] * c[i]
            x += z[i] * e[i]
        g[j] += u
        g[j + 1] += v
        g[j + 2] += w
        g[j + 3] += x
    for j in range(whole, d):
        u = zero
        for i in range(n):
            u += z[i] * X[j, i]
        g[j] += u


@njit(**FLAT)
def _glide(X, t, n, theta, y, g, variance, step, n_steps, precision, values):  # pragma: no cover - compiled
    """Move positions, momenta and gradients (chains, d) in place by ``n_steps`` of eq. 1; write log-likelihoods."""
    chains, d = theta.shape
    half = step * HALF
    z, out, bits = np.empty_like(t[0]), np.empty_like(t[0]), np.empty(TILE, np.int32)
    lanes = np.empty(LANES)
    values[:] = (len(X) * TILE - n) * LOG2  # rows of zeros have this likelihood, and do not count
    for s in range(n_steps):
        for c in range(chains):
            for j in range(d):
                y[c, j] += half * g[c, j]
                theta[c, j] += step * variance[j] * y[c, j]
                g[c, j] = -precision * theta[c, j]
        for m in range(len(X)):
            for c in range(chains):
                _logits(X[m], theta[c], z)
                _exponentials(z, out, bits)
                if s == n_steps - 1:
                    values[c] += _log_likelihood(t[m], z, out, lanes)
                for i in range(TILE):
                    out[i] = t[m, i] - ONE / (ONE + out[i])
                _add_slopes(X[m], out, g[c])
        for c in range(chains):
            for j in range(d):
                y[c, j] += half * g[c, j]


@njit(**FLAT)
def _half_square(v, weights):  # pragma: no cover - compiled
    total = 0.0
    for j in range(len(v)):
        total += 0.5 * np.float64(weights[j]) * np.float64(v[j]) ** 2
    return total


@njit(parallel=True, **FLAT)
def transition(
    X, t, n, theta, log_p, g, y, log_u, variance, step, n_steps, precision, threads, told
):  # pragma: no cover - compiled
    """Follow a path of each chain and accept its end or stay; theta, g (chains, d) and log_p (chains,) change in place.

    ``X`` and ``t`` are the :func:`tiles` of n rows, ``y`` (chains, d) the momenta, which are lost, ``log_u`` (chains,) the
    logarithms of uniform numbers, ``variance`` (d,) the inverse mass; all are contiguous and of one type, and so are ``step`` and
    ``precision``. Into ``told`` (chains, 4) go the energies at both ends of the path, the probability of accepting, and the
    energy that is kept.
    """
    chains = len(theta)
    prior = np.full(theta.shape[1], precision)
    for w in prange(threads):
        low, high = w * chains // threads, (w + 1) * chains // threads
        at, slope, values = theta[low:high].copy(), g[low:high].copy(), np.empty(high - low)
        for c in range(low, high):
            told[c, 0] = _half_square(y[c], variance) - log_p[c]
        _glide(X, t, n, at, y[low:high], slope, variance, step, n_steps, precision, values)
        for c in range(low, high):
            end = values[c - low] - _half_square(at[c - low], prior)
            after = _half_square(y[c], variance) - end
            gain = told[c, 0] - after
            told[c, 1] = after if gain == gain else np.inf  # a path that left the numbers is not accepted
            told[c, 2] = math.exp(min(gain, 0.0)) if gain == gain else 0.0
            told[c, 3] = told[c, 0]
            if log_u[c] <= gain:
                theta[c], g[c], log_p[c], told[c, 3] = at[c - low], slope[c - low], end, after
