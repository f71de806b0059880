r"""Distances between distributions, given by probabilities or by samples.

.. math::
    \operatorname{JS}(p, q) &= \tfrac12 \operatorname{KL}\big(p \,\|\, \tfrac{p + q}2\big)
        + \tfrac12 \operatorname{KL}\big(q \,\|\, \tfrac{p + q}2\big), \tag{1} \\
    W_r(p, q)^r &= \min_{\pi \in \Pi(p, q)} \textstyle\sum_{ij} \pi_{ij} \lVert a_i - b_j \rVert^r, \tag{2} \\
    \operatorname{MMD}^2 &= \mathbb E\, k(a, a') + \mathbb E\, k(b, b') - 2\, \mathbb E\, k(a, b). \tag{3}

In one dimension the optimal plan of (2) pairs quantiles; the sliced distance averages that over random directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment, linprog
from scipy.spatial.distance import cdist
from scipy.special import rel_entr, xlogy

from corollary import errors

__all__ = ["inception_score", "jensen_shannon", "mmd", "perplexity", "wasserstein"]


def jensen_shannon(p: Any, q: Any, bins: Any = None) -> float:
    """Return the Jensen-Shannon divergence (1) in nats: 0 if equal, log 2 if disjoint.

    Parameters
    ----------
    p, q : array-like of shape (k,)
        Weights of the same k outcomes, normalised here; or, with ``bins``, single numbers drawn from each.
    bins : int or array-like, optional
        Histogram bins over the range of both samples, as NumPy takes them.

    Examples
    --------
    >>> round(jensen_shannon([1, 0], [0, 1]), 4)
    0.6931
    """
    p, q = np.asarray(p, dtype=float).ravel(), np.asarray(q, dtype=float).ravel()
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        raise errors.value(
            "jensen_shannon", "p and q must be finite", "NaN or infinity", "Fill or drop them."
        )
    if bins is not None:
        edges = np.histogram_bin_edges(np.concatenate([p, q]), bins)
        p, q = np.histogram(p, edges)[0].astype(float), np.histogram(q, edges)[0].astype(float)
    if p.shape != q.shape:
        must, do = "p and q must have as many outcomes", "Pass bins= to compare samples."
        raise errors.value("jensen_shannon", must, f"{len(p)} and {len(q)}", do)
    if min(p.min(initial=0), q.min(initial=0)) < 0 or p.sum() <= 0 or q.sum() <= 0:
        raise errors.value("jensen_shannon", "weights must not be negative, nor all zero", "such weights")
    p, q = p / p.sum(), q / q.sum()
    middle = (p + q) / 2
    return float(0.5 * rel_entr(p, middle).sum() + 0.5 * rel_entr(q, middle).sum())


def wasserstein(
    a: Any,
    b: Any,
    *,
    order: float = 1.0,
    method: str = "auto",
    n_projections: int = 256,
    random_state: int = 0,
) -> float:
    """Return the Wasserstein distance of two samples, eq. 2.

    Parameters
    ----------
    a, b : array-like of shape (n,) or (n, d), and (m,) or (m, d)
        Samples, each row with the same weight.
    order : float, default=1.0
        The power r of the distances; the r-th root of the cost is returned.
    method : {"auto", "exact", "sliced"}, default="auto"
        "exact" sorts in one dimension, solves an assignment if n = m, and a linear program otherwise; "sliced" averages the
        one-dimensional cost over random directions. "auto" is exact up to a million pairs.
    n_projections : int, default=256
        Directions of the sliced distance; more has less noise.
    random_state : int, default=0
        For the directions.

    Notes
    -----
    One dimension costs O((n + m) log(n + m)), the assignment O(n³), a direction as much as one dimension.

    Examples
    --------
    >>> wasserstein([0.0, 1.0, 3.0], [5.0, 6.0, 8.0])
    5.0
    """
    a, b = _samples("wasserstein", a, b)
    if method not in ("auto", "exact", "sliced"):
        raise errors.unknown("wasserstein", "method", method, ("auto", "exact", "sliced"))
    if order < 1:
        raise errors.value("wasserstein", "order must be at least 1", order)
    if a.shape[1] == 1:
        return float(_along(a[:, 0], b[:, 0], order) ** (1 / order))
    if method == "sliced" or (method == "auto" and len(a) * len(b) > 1_000_000):
        directions = np.random.default_rng(random_state).standard_normal((a.shape[1], n_projections))
        directions /= np.linalg.norm(directions, axis=0)
        costs = [_along(x, y, order) for x, y in zip((a @ directions).T, (b @ directions).T)]
        return float(np.mean(costs) ** (1 / order))
    return float(_plan_cost(cdist(a, b) ** order) ** (1 / order))


def _samples(owner: str, a: Any, b: Any, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return two samples as tables (n, d) and (m, d) of finite numbers; single numbers are one column."""
    a, b = (np.asarray(x, dtype=float) for x in (a, b))
    a, b = (x.reshape(len(x), -1) if x.size else x.reshape(len(x), 0) for x in (a, b))
    if a.shape[1] != b.shape[1] or min(len(a), len(b)) < least:
        rows = "rows" if least == 1 else "at least two rows"
        must = f"both samples must have {rows} with as many columns"
        raise errors.value(owner, must, f"shapes {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise errors.value(owner, "both samples must be finite", "NaN or infinity", "Fill or drop them.")
    return a, b


def _along(a: np.ndarray, b: np.ndarray, order: float) -> float:
    """Return the cost of eq. 2 in one dimension: the integral over the difference of the quantile functions."""
    a, b = np.sort(a), np.sort(b)
    if len(a) == len(b):
        return float(np.mean(np.abs(a - b) ** order))
    at = np.union1d(np.arange(1, len(a) + 1) / len(a), np.arange(1, len(b) + 1) / len(b))
    middle = at - np.diff(at, prepend=0.0) / 2
    gaps = a[(middle * len(a)).astype(int)] - b[(middle * len(b)).astype(int)]
    return float((np.abs(gaps) ** order) @ np.diff(at, prepend=0.0))


def _plan_cost(costs: np.ndarray) -> float:
    """Return the least cost of a plan between uniform weights."""
    n, m = costs.shape
    if n == m:
        return float(costs[linear_sum_assignment(costs)].mean())
    rows = sparse.kron(sparse.eye_array(n), np.ones((1, m)))
    columns = sparse.kron(np.ones((1, n)), sparse.eye_array(m))
    weights = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    found = linprog(
        costs.ravel(), A_eq=sparse.vstack([rows, columns], format="csr"), b_eq=weights, method="highs"
    )
    return max(0.0, float(found.fun))


def mmd(a: Any, b: Any, bandwidth: float | None = None) -> float:
    """Return the unbiased squared maximum mean discrepancy (3) with a Gaussian kernel; about 0 if equal, may be negative.

    Parameters
    ----------
    a, b : array-like of shape (n, d) and (m, d)
        Samples.
    bandwidth : float, optional
        Standard deviation of the kernel; by default the median distance between all samples.

    References
    ----------
    .. [1] A. Gretton et al. (2012). A kernel two-sample test. JMLR 13, 723-773, eq. 3.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> mmd(X[:100], X[100:] + 3) > mmd(X[:100], X[100:])
    True
    """
    a, b = _samples("mmd", a, b, least=2)
    both = cdist(np.vstack([a, b]), np.vstack([a, b]), "sqeuclidean")
    width = float(np.median(both[np.triu_indices(len(both), 1)])) if bandwidth is None else bandwidth**2
    if width <= 0:
        raise errors.value(
            "mmd", "bandwidth must be positive", width, "Pass bandwidth= where most samples are equal."
        )
    K, n, m = np.exp(-both / (2 * width)), len(a), len(b)
    own = (K[:n, :n].sum() - n) / (n * (n - 1)) + (K[n:, n:].sum() - m) / (m * (m - 1))
    return float(own - 2 * K[:n, n:].mean())


def inception_score(probabilities: Any, classifier: Any = None) -> float:
    """Return exp of the mean divergence of p(y | x) from p(y): from 1 to the number of classes; higher is better.

    Parameters
    ----------
    probabilities : array-like of shape (n, classes), or samples
        Class probabilities of each drawn sample; with ``classifier``, the samples themselves.
    classifier : estimator, optional
        Its ``predict_proba`` gives the probabilities.

    References
    ----------
    .. [1] T. Salimans et al. (2016). Improved techniques for training GANs. NeurIPS, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> round(inception_score(np.eye(10)), 6)
    10.0
    """
    p = np.asarray(
        probabilities if classifier is None else classifier.predict_proba(probabilities), dtype=float
    )
    if p.ndim != 2 or p.min(initial=0) < 0 or not np.allclose(p.sum(axis=1), 1, atol=1e-3):
        must = "probabilities must be rows that sum to 1"
        raise errors.value("inception_score", must, f"shape {p.shape}", "Pass classifier= to score samples.")
    marginal = p.mean(axis=0)
    return float(np.exp(xlogy(p, p).sum(axis=1).mean() - xlogy(marginal, marginal).sum()))


def perplexity(log_prob: Any, counts: Any = None) -> float:
    """Return exp of minus the mean log-probability of a token.

    Parameters
    ----------
    log_prob : array-like
        Natural logarithms of the probabilities of tokens, or of whole texts with ``counts``.
    counts : array-like, optional
        How many tokens each text has.

    Examples
    --------
    >>> import numpy as np
    >>> round(perplexity(np.log([0.25, 0.25])), 6)
    4.0
    """
    log_prob = np.asarray(log_prob, dtype=float)
    total = log_prob.size if counts is None else float(np.sum(counts))
    if total <= 0:
        raise errors.value("perplexity", "there must be at least one token", total)
    if np.isnan(log_prob).any():
        raise errors.value("perplexity", "log-probabilities must be numbers", "NaN")
    return float(np.exp(-log_prob.sum() / total))
