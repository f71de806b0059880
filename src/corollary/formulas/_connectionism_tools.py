"""Random data and small simulations behind the checks of connectionism."""

from __future__ import annotations

from itertools import product

import numpy as np

__all__ = [
    "binary_inputs",
    "perceptron_run",
    "random_signs",
    "separable_data",
    "sparse_patterns",
    "symmetric_coupling",
]


def binary_inputs(n):
    """Every vector of {0, 1}^n, as rows."""
    return np.array(list(product((0, 1), repeat=n)))


def random_signs(rng, *shape):
    """Fair random signs."""
    return np.where(rng.random(shape) < 0.5, -1, 1)


def separable_data(rng, s, n, margin):
    """Points in the unit ball with labels, at least ``margin`` away from a random hyperplane."""
    normal = rng.normal(size=n)
    normal /= np.linalg.norm(normal)
    X = rng.normal(size=(20 * s, n))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = X[np.abs(X @ normal) >= margin][:s]
    return X, np.where(X @ normal > 0, 1, -1)


def perceptron_run(X, y, epochs=1000):
    """Train from zero; return the mistakes in their order as (theta before, x, y)."""
    theta, mistakes = np.zeros(X.shape[1]), []
    for _ in range(epochs):
        clean = True
        for x, label in zip(X, y):
            if label * (x @ theta) <= 0:
                mistakes.append((theta, x, label))
                theta, clean = theta + label * x, False
        if clean:
            break
    return theta, mistakes


def sparse_patterns(rng, s, n, r):
    """``s`` binary patterns of length ``n`` with exactly ``r`` ones each."""
    ones = np.argsort(rng.random((s, n)), axis=1)[:, :r]
    X = np.zeros((s, n), np.float32)
    np.put_along_axis(X, ones, 1, axis=1)
    return X


def symmetric_coupling(rng, n):
    """Random symmetric weights without self-coupling, and biases."""
    theta = rng.normal(size=(n, n))
    theta = theta + theta.T
    np.fill_diagonal(theta, 0)
    return theta, rng.normal(size=n)
