"""Exact enumeration for the topics that count dichotomies and regions."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
from scipy.optimize import lsq_linear, nnls

__all__ = [
    "count_dichotomies",
    "count_folded_square",
    "count_pieces",
    "count_regions",
    "cover_number",
    "folding_network",
    "hard_margin",
    "is_separable",
]


def hard_margin(Z: np.ndarray) -> np.ndarray | None:
    """The shortest ``w`` with ``Z @ w >= 1``, or None if there is none.

    Least distance programming after Lawson and Hanson: one non-negative least-squares problem.
    """
    E = np.vstack([Z.T, np.ones(len(Z))])
    f = np.append(np.zeros(Z.shape[1]), 1.0)
    residual = E @ nnls(E, f)[0] - f
    if (E.T @ residual).min() < -1e-9:  # scipy's nnls may stop too early when columns tie
        residual = E @ lsq_linear(E, f, bounds=(0, np.inf), method="bvls").x - f
    return None if np.linalg.norm(residual) < 1e-9 else -residual[:-1] / residual[-1]


def is_separable(X: np.ndarray, y: np.ndarray) -> bool:
    """Whether some hyperplane through the origin has every ``x`` on the side its label says."""
    return hard_margin(y[:, None] * X) is not None


def count_dichotomies(X: np.ndarray) -> int:
    """How many of the 2^s labellings of the rows a hyperplane through the origin realises."""
    signs = [np.array((1, *rest)) for rest in product((-1, 1), repeat=len(X) - 1)]
    return 2 * sum(is_separable(X, y) for y in signs)  # a labelling and its negative go together


def count_regions(W: np.ndarray, b: np.ndarray) -> int:
    """How many of the 2^m sign patterns of ``W @ x + b`` some ``x`` realises strictly."""
    # With a homogenising coordinate that must be positive this is separability in one more dimension.
    rows = np.vstack([np.column_stack([W, b]), np.eye(W.shape[1] + 1)[-1]])
    patterns = product((-1, 1), repeat=len(W))
    return sum(is_separable(rows, np.array((*pattern, 1))) for pattern in patterns)


def count_pieces(layers, low, high):
    """Exact number of activation regions of a network of one input on an interval."""
    x, h = np.array([low, high]), np.array([[low], [high]])
    for W, b in layers:
        p = h @ W.T + b
        p[np.abs(p) < 1e-9] = 0.0  # a corner that only touches zero
        unit, at = np.nonzero((p[:-1] * p[1:] < 0).T)
        share = p[at, unit] / (p[at, unit] - p[at + 1, unit])
        crossings = x[at] + share * (x[at + 1] - x[at])
        values = p[at] + share[:, None] * (p[at + 1] - p[at])  # affine between breakpoints
        x, order = np.unique(np.append(x, crossings), return_index=True)
        h = np.maximum(np.vstack([p, values])[order], 0)
    return len(x) - 1


def folding_network(rng, m, L):
    """L layers of m units: all but the last fold the unit interval m times onto itself."""
    fold = m * np.ones((m, 1)), -np.arange(m, dtype=float)
    readout = (-1.0) ** np.arange(m) * np.append(1, 2 * np.ones(m - 1))
    thresholds = (np.arange(m) + rng.uniform(0.2, 0.8, size=m)) / m
    layers, before = [], np.ones((1, 1))
    for _ in range(L - 1):
        layers.append((fold[0] @ before, fold[1]))
        before = readout[None, :]
    return [*layers, (np.ones((m, 1)) @ before, -thresholds)]


def count_folded_square(rng, L, side=400):
    """Regions of the unit square under L layers of four units: all but the last fold either coordinate twice.

    The last layer draws four lines in general position, all crossings inside the square. A fine grid sees every
    region.
    """
    line = (np.arange(side) + 0.5) / side
    points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    codes = np.zeros(len(points), dtype=int)
    for _ in range(L - 1):
        codes = 4 * codes + (points > 0.5) @ [1, 2]
        points = 1 - np.abs(2 * points - 1)
    angles = np.pi / 4 * np.arange(4) + rng.uniform(-0.1, 0.1, size=4)
    sides = (points - 0.5) @ np.array([np.cos(angles), np.sin(angles)]) > np.array([0.12, -0.12, 0.12, 0.12])
    return len(np.unique(16 * codes + sides @ [1, 2, 4, 8]))


def cover_number(s, n):
    """Cover's number of dichotomies of s points in general position by hyperplanes through the origin of n-space."""
    return 2 * sum(comb(s - 1, i) for i in range(n))
