"""Exact separability tests for the topics that count dichotomies and regions."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.optimize import lsq_linear, nnls

__all__ = ["count_dichotomies", "count_regions", "hard_margin", "is_separable"]


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
