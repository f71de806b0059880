"""What the checks of several topics share: random matrices, finite differences, quadrature."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

__all__ = [
    "gauss_hermite",
    "gaussian_kl",
    "gradient",
    "hessian",
    "jacobian",
    "orthogonal",
    "quadrature",
    "simplex",
    "spd",
]


def jacobian(f: Callable[[np.ndarray], Any], x: Any, step: float = 1e-5) -> np.ndarray:
    """Central differences of ``f`` at ``x``: an array of shape ``f(x).shape + x.shape``."""
    x = np.asarray(x, dtype=float)
    columns = []
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        columns.append((np.asarray(f(up), dtype=float) - np.asarray(f(down), dtype=float)) / (2 * step))
    stacked = np.stack(columns, axis=-1)
    return stacked.reshape(stacked.shape[:-1] + x.shape)


def gradient(f: Callable[[np.ndarray], Any], x: Any, step: float = 1e-5) -> np.ndarray:
    """Central differences of the scalar function ``f``, in the shape of ``x``."""
    return jacobian(f, x, step)


def hessian(f: Callable[[np.ndarray], Any], x: Any, step: float = 1e-4) -> np.ndarray:
    """Central second differences of the scalar function ``f`` of a vector (error about 1e-7)."""
    return jacobian(lambda y: jacobian(f, y, step), x, step)


def spd(rng: np.random.Generator, d: int, low: float = 0.5, high: float = 2.0) -> np.ndarray:
    """A random symmetric positive definite matrix with its extreme eigenvalues at ``low`` and ``high``."""
    values = np.concatenate([[low, high], rng.uniform(low, high, size=max(d - 2, 0))])[:d]
    Q = orthogonal(rng, d)
    return (Q * values) @ Q.T


def orthogonal(rng: np.random.Generator, d: int) -> np.ndarray:
    """A random orthogonal matrix, uniform over the group."""
    Q, R = np.linalg.qr(rng.normal(size=(d, d)))
    return Q * np.sign(np.diag(R))


def simplex(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random probability vectors along the last axis, uniform over the simplex."""
    e = rng.exponential(size=shape)
    return e / e.sum(axis=-1, keepdims=True)


@cache
def _legendre(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(n)


def quadrature(f: Callable[[np.ndarray], Any], low: float, high: float, n: int = 200) -> Any:
    """The integral of ``f`` over [low, high] by Gauss and Legendre; ``f`` maps (n,) to (..., n)."""
    nodes, weights = _legendre(n)
    half = (high - low) / 2
    return half * (np.asarray(f(low + half * (nodes + 1))) @ weights)


@cache
def _hermite(n: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def gauss_hermite(mean: Any, covariance: Any, n: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Points (n^d, d) and weights that integrate against a Gaussian, exact to degree 2n - 1."""
    mean, covariance = np.atleast_1d(mean), np.atleast_2d(covariance)
    nodes, weights = _hermite(n)
    d = len(mean)
    z = np.stack(np.meshgrid(*[nodes] * d, indexing="ij"), axis=-1).reshape(-1, d)
    w = np.prod(np.stack(np.meshgrid(*[weights] * d, indexing="ij"), axis=-1).reshape(-1, d), axis=1)
    return mean + z @ np.linalg.cholesky(covariance).T, w


def gaussian_kl(mean: Any, covariance: Any, other_mean: Any, other_covariance: Any) -> float:
    """KL divergence of the first Gaussian from the second, in closed form."""
    shift = np.asarray(other_mean) - mean
    ratio = np.linalg.solve(other_covariance, covariance)
    distance = shift @ np.linalg.solve(other_covariance, shift)
    return 0.5 * float(np.trace(ratio) + distance - len(shift) - np.linalg.slogdet(ratio)[1])
