"""Thresholding, dual certificates and a solver behind the checks of matrix completion."""

from __future__ import annotations

import numpy as np

__all__ = [
    "certified",
    "nuclear_completion",
    "random_mask",
    "samples_needed",
    "shrink",
    "singular_values",
    "tangent",
    "truncate",
]


def random_mask(rng, n, m, share=0.6):
    """A random mask with an observed and a missing entry in every row (for n, m >= 3)."""
    mask = (rng.random((n, m)) < share).astype(float)
    for k in range(max(n, m)):
        mask[k % n, k % m], mask[k % n, (k + 1) % m] = 1.0, 0.0
    return mask


def singular_values(M):
    """The singular values, largest first."""
    return np.linalg.svd(M, compute_uv=False)


def shrink(M, tau):
    """Soft thresholding of the singular values."""
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    return (U * np.maximum(s - tau, 0)) @ Vt


def truncate(M, k):
    """The nearest matrix of rank ``k``."""
    U, s, Vt = np.linalg.svd(M, full_matrices=False)
    return (U[:, :k] * s[:k]) @ Vt[:k]


def tangent(U, V, M):
    """Projection on the matrices that share the row or the column space."""
    UM = U @ (U.T @ M)
    return UM + (M - UM) @ V @ V.T


def certified(U, V, mask):
    """Whether a dual certificate proves that nuclear-norm minimisation recovers the matrix.

    Least squares (conjugate gradients) on the tangent space gives the certificate of Candès and Recht.
    """
    E = U @ V.T
    x, r, p = np.zeros_like(E), E, E
    start = length = (r * r).sum()
    for _ in range(100):
        image = tangent(U, V, mask * p)
        step = length / (p * image).sum()
        x, r = x + step * p, r - step * image
        old, length = length, (r * r).sum()
        if length < 1e-14 * start:
            Y = mask * x
            return np.linalg.norm(Y - tangent(U, V, Y), 2) < 1
        p = r + length / old * p
    return False  # some direction of the tangent space is not seen at all


def samples_needed(rng, n, k):
    """A random sign matrix of rank ``k`` and the entries it takes, in a random order, to certify recovery."""
    U, V = (np.linalg.qr(rng.choice([-1.0, 1.0], size=(n, k)))[0] for _ in range(2))
    order = rng.permutation(n * n).reshape(n, n)
    low, high = 2 * n * k - k * k - 1, n * n
    while high - low > 0.02 * low:
        middle = (low + high) // 2
        low, high = (low, middle) if certified(U, V, order < middle) else (middle, high)
    return U, V, order, high


def nuclear_completion(A, seen, steps=400):
    """The matrix of least nuclear norm that agrees with ``A`` where seen (Douglas and Rachford)."""
    Z = seen * A
    for _ in range(steps):
        B = shrink(Z, 0.3)
        Z = Z + np.where(seen, A, 2 * B - Z) - B
    return B
