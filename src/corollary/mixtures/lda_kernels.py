r"""Compiled loops of latent Dirichlet allocation, over documents in CSR form.

Every document is handled by one thread, every word's sums by one thread in the order of its documents,
and every block of documents starts from the same counts: nothing depends on the number of threads.

Variational inference needs :math:`e^{\psi(x)}`, never :math:`\psi` alone. With
:math:`u = x (x + 5)` and :math:`y = x + \frac{11}{2}`

.. math::
    e^{\psi(x)} = \exp\!\Big(\!-\frac{2x + 5}{u} \cdot \frac{3u^2 + 20u + 24}{(u + 4)(u + 6)}\Big) \Big(
    y + \frac{1}{24 y} - \frac{37}{5760 y^3} + \frac{10313}{2903040 y^5} - \frac{5509121}{1393459200 y^7}
    \Big), \tag{1}

the recurrence :math:`\psi(x + 1) = \psi(x) + 1/x` six times as one fraction, then the expansion at
infinity: no logarithm, one exponential, and both in arithmetic that runs on whole vectors.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from corollary.compiled import njit

__all__ = ["bound", "e_step", "em_rows", "exp_psi", "fold_in_rows", "log_predictions", "word_sums"]

FAST = {"contract", "reassoc", "nsz", "arcp"}  # infinity keeps its meaning
OPTIONS = {"fastmath": FAST, "error_model": "numpy", "cache": True}
LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
MAGIC = 1.5 * 2.0**52  # added to a small whole number, leaves it in the low bits
LOWEST = -1000.0  # exponents of two below this count as zero
TINY = 1e-300


# --- equation 1 ------------------------------------------------------------------------------------------


@njit(**OPTIONS)
def _exp_psi(x, out, power):  # pragma: no cover - compiled
    """Write exp(psi(x)) for a row; ``power`` is room for as many float64."""
    for k in range(x.size):
        v = np.float64(x[k])
        u = v * (v + 5.0)
        s = (2.0 * v + 5.0) / u * ((3.0 * u * u + 20.0 * u + 24.0) / ((u + 4.0) * (u + 6.0)))
        t = max(-s * LOG2E, LOWEST)
        whole = np.floor(t + 0.5)
        power[k] = whole + MAGIC
        r = (t - whole) * LN2
        e = 1.0 / 39916800.0
        e = e * r + 1.0 / 3628800.0
        e = e * r + 1.0 / 362880.0
        e = e * r + 1.0 / 40320.0
        e = e * r + 1.0 / 5040.0
        e = e * r + 1.0 / 720.0
        e = e * r + 1.0 / 120.0
        e = e * r + 1.0 / 24.0
        e = e * r + 1.0 / 6.0
        e = e * r + 0.5
        e = e * r + 1.0
        e = e * r + 1.0
        y = v + 5.5
        i = 1.0 / y
        j = i * i
        tail = 37 / 5760 - j * (10313 / 2903040 - j * (5509121 / 1393459200))
        out[k] = e * (y + i * (1 / 24 - j * tail))
    bits = power.view(np.int64)
    for k in range(x.size):
        bits[k] = (bits[k] + 1023) << 52
    for k in range(x.size):
        out[k] *= power[k]


@njit(parallel=True, **OPTIONS)
def exp_psi(X):  # pragma: no cover - compiled
    """Return exp(psi(X)) for a matrix of positive numbers."""
    out = np.empty(X.shape)
    for i in prange(X.shape[0]):
        _exp_psi(X[i], out[i], np.empty(X.shape[1]))
    return out


# --- variational inference -------------------------------------------------------------------------------


@njit(**OPTIONS)
def _responses(B, counts, theta, eps, share, acc):  # pragma: no cover - compiled
    """Write share_w = c_w / (theta . b_w + eps) and acc = sum_w share_w b_w; four words at a time."""
    n, K = counts.size, theta.size
    acc[:] = 0
    w = 0
    while w + 4 <= n:
        b0, b1, b2, b3 = B[w], B[w + 1], B[w + 2], B[w + 3]
        z0 = z1 = z2 = z3 = eps
        for k in range(K):
            t = theta[k]
            z0 += t * b0[k]
            z1 += t * b1[k]
            z2 += t * b2[k]
            z3 += t * b3[k]
        z0, z1, z2, z3 = counts[w] / z0, counts[w + 1] / z1, counts[w + 2] / z2, counts[w + 3] / z3
        share[w], share[w + 1], share[w + 2], share[w + 3] = z0, z1, z2, z3
        for k in range(K):
            acc[k] += z0 * b0[k] + z1 * b1[k] + z2 * b2[k] + z3 * b3[k]
        w += 4
    while w < n:
        b0 = B[w]
        z0 = eps
        for k in range(K):
            z0 += theta[k] * b0[k]
        z0 = counts[w] / z0
        share[w] = z0
        for k in range(K):
            acc[k] += z0 * b0[k]
        w += 1


@njit(**OPTIONS)
def _expected_theta(gamma, theta, power):  # pragma: no cover - compiled
    """Write exp(E[log theta]) under Dir(gamma)."""
    total = np.float64(0)
    for k in range(gamma.size):
        total += gamma[k]
    single = np.empty(1)
    single[0] = total
    scale = np.empty(1)
    _exp_psi(single, scale, np.empty(1))
    _exp_psi(gamma, theta, power)
    for k in range(gamma.size):
        theta[k] /= scale[0]


@njit(**OPTIONS)
def _fit_document(
    words, counts, Eb, alpha, gamma, theta, share, max_iter, tol
):  # pragma: no cover - compiled
    n, K = counts.size, alpha.size
    eps = np.finfo(Eb.dtype).eps
    B, acc, power = np.empty((n, K), Eb.dtype), np.empty(K, Eb.dtype), np.empty(K)
    for e in range(n):  # gathered once: it stays in cache while the document is fitted
        b, row = B[e], Eb[words[e]]
        for k in range(K):
            b[k] = row[k]
    _expected_theta(gamma, theta, power)
    for _ in range(max_iter):
        _responses(B, counts, theta, eps, share, acc)
        change = 0.0
        for k in range(K):
            new = alpha[k] + theta[k] * acc[k]
            change += abs(new - gamma[k])
            gamma[k] = new
        _expected_theta(gamma, theta, power)
        if change < tol * K:
            break
    _responses(B, counts, theta, eps, share, acc)


@njit(parallel=True, **OPTIONS)
def e_step(
    indptr, indices, counts, Eb, alpha, gamma, theta, share, max_iter, tol
):  # pragma: no cover - compiled
    """Fit the Dirichlet of every document, in place.

    Eb (V, K) holds exp(E[log beta]); gamma (D, K) starts where it stands and ends fitted; theta (D, K)
    becomes exp(E[log theta]); share (nnz,) becomes c / (theta . b), what the topics' sums are made of.
    """
    for d in prange(indptr.size - 1):
        i, j = indptr[d], indptr[d + 1]
        _fit_document(indices[i:j], counts[i:j], Eb, alpha, gamma[d], theta[d], share[i:j], max_iter, tol)


@njit(parallel=True, **OPTIONS)
def word_sums(start, order, document, share, theta, out):  # pragma: no cover - compiled
    """Write sum_d share_dw theta_d for every word w: (V, K); start and order sort the entries by word."""
    for w in prange(start.size - 1):
        row = out[w]
        row[:] = 0
        for j in range(start[w], start[w + 1]):
            e = order[j]
            s, t = share[e], theta[document[e]]
            for k in range(row.size):
                row[k] += s * t[k]


@njit(parallel=True, **OPTIONS)
def bound(indptr, indices, counts, log_theta, log_beta):  # pragma: no cover - compiled
    """Return sum_w c_w log sum_k exp(E[log theta_k] + E[log beta_kw]) for every document: (D,)."""
    K = log_theta.shape[1]
    out = np.zeros(indptr.size - 1)
    for d in prange(indptr.size - 1):
        t = log_theta[d]
        for e in range(indptr[d], indptr[d + 1]):
            b = log_beta[indices[e]]
            top = t[0] + b[0]
            for k in range(1, K):
                top = max(top, t[k] + b[k])
            z = 0.0
            for k in range(K):
                z += math.exp(t[k] + b[k] - top)
            out[d] += counts[e] * (top + math.log(z))
    return out


# --- fixed topics ----------------------------------------------------------------------------------------


@njit(**OPTIONS)
def _fold_in_document(words, counts, T, alpha, theta, max_iter, tol):  # pragma: no cover - compiled
    n, K = counts.size, theta.size
    B, acc, share = np.empty((n, K), T.dtype), np.empty(K, T.dtype), np.empty(n, T.dtype)
    for e in range(n):
        B[e] = T[words[e]]
    for _ in range(max_iter):
        _responses(B, counts, theta, TINY, share, acc)
        total = 0.0
        for k in range(K):
            acc[k] = alpha[k] + theta[k] * acc[k]
            total += acc[k]
        if not total > 0:  # no words and no prior
            break
        change = 0.0
        for k in range(K):
            new = acc[k] / total
            change += abs(new - theta[k])
            theta[k] = new
        if change < tol * K:
            break


@njit(parallel=True, **OPTIONS)
def fold_in_rows(indptr, indices, counts, T, alpha, theta, max_iter, tol):  # pragma: no cover - compiled
    """Fit the mixtures theta (D, K) of documents under topics T (V, K), in place."""
    for d in prange(indptr.size - 1):
        i, j = indptr[d], indptr[d + 1]
        _fold_in_document(indices[i:j], counts[i:j], T, alpha, theta[d], max_iter, tol)


@njit(parallel=True, **OPTIONS)
def log_predictions(indptr, indices, theta, T):  # pragma: no cover - compiled
    """Return log sum_z theta_dz p(w | z) for every stored entry: (nnz,)."""
    out = np.empty(indices.size)
    for d in prange(indptr.size - 1):
        t = theta[d]
        for e in range(indptr[d], indptr[d + 1]):
            b = T[indices[e]]
            z = 0.0
            for k in range(t.size):
                z += t[k] * b[k]
            out[e] = math.log(max(z, TINY))
    return out


@njit(**OPTIONS)
def _em_document(words, counts, T, theta, out, share):  # pragma: no cover - compiled
    n, K = counts.size, theta.size
    B, acc = np.empty((n, K), T.dtype), np.empty(K, T.dtype)
    for e in range(n):
        b, row = B[e], T[words[e]]
        for k in range(K):
            b[k] = row[k]
    _responses(B, counts, theta, np.finfo(T.dtype).tiny, share, acc)
    total = 0.0
    for k in range(K):
        total += theta[k] * acc[k]
    for k in range(K):
        out[k] = theta[k] * acc[k] / total if total > 0 else theta[k]


@njit(parallel=True, **OPTIONS)
def em_rows(indptr, indices, counts, T, theta, share):  # pragma: no cover - compiled
    """Return the mixtures (D, K) after one step of EM, and write c / (theta . t) into share (nnz,)."""
    out = np.empty_like(theta)
    for d in prange(indptr.size - 1):
        i, j = indptr[d], indptr[d + 1]
        _em_document(indices[i:j], counts[i:j], T, theta[d], out[d], share[i:j])
    return out
