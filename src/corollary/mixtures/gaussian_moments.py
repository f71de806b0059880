r"""The equations of the Gaussian mixture: densities, and parameters from moments.

Numbers refer to the page of :class:`~corollary.mixtures.gaussian.GaussianMixture`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from sklearn.mixture import _gaussian_mixture as checks

from corollary.engine.run import current
from corollary.validation import as_tensor

__all__ = [
    "Parameters",
    "coefficients",
    "constrained",
    "form",
    "log_joint",
    "m_step",
    "maximised",
    "unpacked",
]

CHUNK = 2048  # rows that stay in cache while their densities are computed
TINY = 10 * np.finfo(np.float64).eps  # keeps an empty component from dividing by zero


class Parameters(NamedTuple):
    """Weights (k,), means (k, d), and covariances and Cholesky factors of the precisions by type."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    precisions_cholesky: np.ndarray


def form(kind: str) -> str:
    """Return how covariances of a type are stored; "unit" ones are spherical."""
    return "spherical" if kind == "unit" else kind


def log_joint(X: np.ndarray, p: Parameters, kind: str) -> np.ndarray:
    """Return log pi_z + log N(x_t; mu_z, Sigma_z), of shape (n, k), in float64."""
    k, d = p.means.shape
    log_det = checks._compute_log_det_cholesky(p.precisions_cholesky, form(kind), d, xp=np)
    with np.errstate(divide="ignore"):
        constant = np.log(p.weights) + log_det - 0.5 * d * math.log(2 * math.pi)
    factors, out = torch.from_numpy(p.precisions_cholesky), np.empty((len(X), k))
    if kind in ("full", "tied"):
        factors = factors.expand(k, d, d).transpose(0, 1).reshape(d, k * d)
    else:
        factors = factors.reshape(k, -1).expand(k, d)
    means = torch.from_numpy(p.means)
    for begin in range(0, len(X), CHUNK):
        rows = as_tensor(X[begin : begin + CHUNK]).double()
        for z in range(k):
            gap = rows - means[z]
            scaled = (
                gap @ factors[:, z * d : (z + 1) * d] if kind in ("full", "tied") else gap.mul_(factors[z])
            )
            out[begin : begin + CHUNK, z] = scaled.square_().sum(1).numpy()
    return constant - 0.5 * out


def constrained(second: np.ndarray, means: np.ndarray, N: np.ndarray, kind: str, reg: float) -> np.ndarray:
    """Return the covariances of eq. 2 from mean second moments: (k, d, d) if full or tied, else (k, d)."""
    k, d = means.shape
    if kind == "unit":
        return np.ones(k)
    if kind in ("full", "tied"):
        C = second - means[:, :, None] * means[:, None, :]
        if kind == "tied":
            C = np.einsum("k,kij->ij", N / N.sum(), C)
        C[..., np.arange(d), np.arange(d)] += reg
        return C
    variances = second - means**2 + reg
    return variances if kind == "diag" else variances.mean(axis=1)


def maximised(N: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str) -> Parameters:
    """Return the parameters with their precisions; raises where a covariance is not positive."""
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = checks._compute_precision_cholesky(covariances, form(kind), xp=np)
    return Parameters(N / N.sum(), means, covariances, factors)


def coefficients(p: Parameters, kind: str, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return W (k, f) and c (k,) such that the joint log-density is c + W phi(x - centre)."""
    means, factors = p.means - centre, p.precisions_cholesky
    k, d = means.shape
    log_det = checks._compute_log_det_cholesky(factors, form(kind), d, xp=np)
    if kind in ("full", "tied"):
        P = np.broadcast_to(factors @ np.swapaxes(factors, -1, -2), (k, d, d))
        i, j = np.triu_indices(d)
        linear = np.einsum("kij,kj->ki", P, means)
        W = np.hstack([linear, -0.5 * P[:, i, j] * np.where(i == j, 1.0, 2.0)])
    else:
        P = np.broadcast_to((factors**2).reshape(k, -1), (k, d))
        linear = P * means
        W = np.hstack([linear, -0.5 * P])
    with np.errstate(divide="ignore"):
        c = np.log(p.weights) + log_det - 0.5 * (d * math.log(2 * math.pi) + (linear * means).sum(axis=1))
    return np.ascontiguousarray(W), np.maximum(c, -1e300)


def unpacked(S: np.ndarray, d: int, full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the first moments (k, d) and second moments (k, d, d) or (k, d) in a block of sums."""
    if not full:
        return S[:, :d], S[:, d:]
    i, j = np.triu_indices(d)
    second = np.empty((len(S), d, d))
    second[:, i, j] = second[:, j, i] = S[:, d:]
    return S[:, :d], second


def m_step(X: np.ndarray, q: np.ndarray, kind: str, reg: float) -> Parameters:
    """Return eq. 2 for weighted responsibilities (n, k), from differences to the new means."""
    run = current()
    N = run.sum(q.sum(axis=0, dtype=np.float64)) + TINY
    means = run.sum((q.T @ X).astype(np.float64)) / N[:, None]
    k, d = means.shape
    full = kind in ("full", "tied")
    second = np.zeros((k, d, d) if full else (k, d))
    for z in range(k if kind != "unit" else 0):
        gap = X - means[z]
        second[z] = (q[:, z, None] * gap).T @ gap if full else q[:, z] @ gap**2
    second = run.sum(second) / (N[:, None, None] if full else N[:, None])
    return maximised(N, means, constrained(second, np.zeros_like(means), N, kind, reg), kind)
