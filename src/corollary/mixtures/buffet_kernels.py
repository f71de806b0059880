r"""Compiled Gibbs sweeps of the Indian buffet process with linear-Gaussian features (dishes).

Given the other rows, the features :math:`A` have mean :math:`M` (K, d) and, in every column alike, covariance :math:`S`
(K, K). A row :math:`x` with dishes :math:`z` that leaves or comes changes them by rank one. With
:math:`g = Sz`, :math:`q = z^\top g` and :math:`r = x - z^\top M`,

.. math::
    S \leftarrow S \pm \frac{g g^\top}{\sigma_x^2 \mp q}, \qquad
    M \leftarrow M \mp \frac{g r^\top}{\sigma_x^2 \mp q}, \tag{1}

the upper sign for leaving. A flip of one :math:`z_k` changes :math:`g`, :math:`q` and :math:`r` in :math:`O(K + d)`.
"""

from __future__ import annotations

import math

import numpy as np

from corollary.compiled import njit

__all__ = ["MOST", "explain", "sweep_rows"]

MOST = 20  # new dishes of one customer in one go
OPTIONS = {"cache": True, "error_model": "numpy"}


@njit(**OPTIONS)
def _shift(S, M, K, z, x, noise, sign):  # pragma: no cover - compiled
    """Let a row come (sign 1) or leave (sign -1), eq. 1."""
    g, r, q = np.zeros(K), x.copy(), 0.0
    for k in range(K):
        if z[k]:
            for j in range(K):
                g[j] += S[k, j]
            for j in range(len(x)):
                r[j] -= M[k, j]
    for k in range(K):
        if z[k]:
            q += g[k]
    scale = sign / (noise + sign * q)
    for k in range(K):
        for j in range(K):
            S[k, j] -= scale * g[k] * g[j]
        for j in range(len(x)):
            M[k, j] += scale * g[k] * r[j]


@njit(**OPTIONS)
def _drop(Z, m, S, M, k, K):  # pragma: no cover - compiled
    """Take dish k off the table: the last one, K - 1, takes its place."""
    last = K - 1
    if k != last:
        Z[:, k] = Z[:, last]
        m[k] = m[last]
        S[k, :K] = S[last, :K]
        S[:K, k] = S[:K, last]
        S[k, k] = S[last, last]
        M[k] = M[last]
    Z[:, last] = 0
    m[last] = 0


@njit(**OPTIONS)
def _flip(S, M, K, z, k, g, r, q, rr):  # pragma: no cover - compiled
    """Flip z_k; return the new q and squared length of r."""
    sign = -1.0 if z[k] else 1.0
    q += sign * 2 * g[k] + S[k, k]
    for j in range(K):
        g[j] += sign * S[k, j]
    rr = 0.0
    for j in range(len(r)):
        r[j] -= sign * M[k, j]
        rr += r[j] * r[j]
    z[k] = 1 - z[k]
    return q, rr


@njit(**OPTIONS)
def _log_normal(rr, v, d):  # pragma: no cover - compiled
    return -0.5 * (d * math.log(v) + rr / v)


@njit(**OPTIONS)
def _new_dishes(rate, rr, v, spread, d, u):  # pragma: no cover - compiled
    """Draw how many dishes of its own a row has, eq. 4 of the process."""
    logs = np.empty(MOST + 1)
    for j in range(MOST + 1):
        logs[j] = j * math.log(rate) - math.lgamma(j + 1.0) + _log_normal(rr, v + j * spread, d)
    weights = np.exp(logs - logs.max())
    u *= weights.sum()
    for j in range(MOST):
        u -= weights[j]
        if u < 0:
            return j
    return MOST


@njit(**OPTIONS)
def sweep_rows(X, Z, m, S, M, K, here, order, u, begin, alpha, noise, spread):  # pragma: no cover - compiled
    """Let rows choose anew, one after the other, eq. 3 and 4 of the process, from place ``begin`` of the order on.

    ``here`` says who has dined already; u (n, C + 1) are uniform numbers. Returns where it stopped, which is before the
    end if columns ran short, and the new number K of dishes.
    """
    d, g, r = X.shape[1], np.empty(Z.shape[1]), np.empty(X.shape[1])
    count = 0
    for i in range(len(here)):
        count += here[i]
    for p in range(begin, len(order)):
        if K + MOST > Z.shape[1]:
            return p, K
        i = order[p]
        x, z, own = X[i], Z[i], 0
        if here[i]:
            _shift(S, M, K, z, x, noise, -1)
            for k in range(K - 1, -1, -1):
                m[k] -= z[k]
                if m[k] == 0:
                    _drop(Z, m, S, M, k, K)
                    K -= 1
                    own += 1
        else:
            count += 1
            here[i] = True
        q = rr = 0.0
        g[:K] = 0
        r[:] = x
        for k in range(K):
            if z[k]:
                q += 2 * g[k] + S[k, k]
                g[:K] += S[k, :K]
                r -= M[k]
        for j in range(d):
            rr += r[j] * r[j]
        for k in range(K):
            before = _log_normal(rr, noise + q + own * spread, d)
            fresh_q, fresh_rr = _flip(S, M, K, z, k, g, r, q, rr)
            after = _log_normal(fresh_rr, noise + fresh_q + own * spread, d)
            odds = math.log(m[k] / (count - m[k]))
            change = after - before + (odds if z[k] else -odds)
            if u[i, k] < 1 / (1 + math.exp(-change)):
                q, rr = fresh_q, fresh_rr
            else:
                q, rr = _flip(S, M, K, z, k, g, r, fresh_q, fresh_rr)
        own = _new_dishes(alpha / count, rr, noise + q, spread, d, u[i, -1])
        for k in range(K, K + own):
            z[k] = 1
            S[k, : k + 1] = 0
            S[: k + 1, k] = 0
            S[k, k] = spread
            M[k] = 0
        K += own
        for k in range(K):
            m[k] += z[k]
        _shift(S, M, K, z, x, noise, 1)
    return len(order), K


@njit(**OPTIONS)
def explain(X, M, S, odds, noise, Z):  # pragma: no cover - compiled
    """Write into Z the dishes that explain each row best: no change of one or two of them is an improvement.

    With b = M r, a change of z by e (entries 1, 0, -1) makes q + 2 e'g + e'Se of q, and of the squared length of r
    its value less 2 e'b, plus e'MM'e: numbers that are there, whatever d is.
    """
    K, d = M.shape
    products = M @ M.T
    for i in range(len(X)):
        z, g, b = Z[i], np.zeros(K), M @ X[i]
        z[:] = 0
        q, rr = 0.0, (X[i] * X[i]).sum()
        while True:
            best, first, second = _log_normal(rr, noise + q, d) + 1e-9, -1, -1
            for k in range(K):
                e = -1.0 if z[k] else 1.0
                gain = e * odds[k]
                one_q, one_rr = q + 2 * e * g[k] + S[k, k], rr - 2 * e * b[k] + products[k, k]
                value = _log_normal(one_rr, noise + one_q, d) + gain
                if value > best:
                    best, first, second = value, k, -1
                for j in range(k):
                    f = -1.0 if z[j] else 1.0
                    two_q = one_q + 2 * f * (g[j] + e * S[k, j]) + S[j, j]
                    two_rr = one_rr - 2 * f * (b[j] - e * products[k, j]) + products[j, j]
                    value = _log_normal(two_rr, noise + two_q, d) + gain + f * odds[j]
                    if value > best:
                        best, first, second = value, k, j
            if first < 0:
                break
            for k in (first, second):
                if k >= 0:
                    e = -1.0 if z[k] else 1.0
                    q += 2 * e * g[k] + S[k, k]
                    rr += products[k, k] - 2 * e * b[k]
                    g += e * S[k]
                    b -= e * products[k]
                    z[k] = 1 - z[k]
