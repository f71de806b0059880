r"""Linear regression by least squares: plain, with a bound on the norm of the weights, and ridge regression.

With centred data the minimiser of :math:`\frac12 \lVert y - X w \rVert^2 + \frac\alpha2 \lVert w \rVert^2` solves

.. math:: (X^\top X + \alpha I)\, w = X^\top y, \tag{1}

and the minimiser of :math:`\frac12 \lVert y - X w \rVert^2` over :math:`\lVert w \rVert \le R` is the same vector
for the :math:`\alpha \ge 0` at which :math:`\lVert w \rVert = R`. It is reached by projected descent

.. math:: w \leftarrow \Pi_R \big( w - \tfrac1L (X^\top X w - X^\top y) \big), \qquad L = \lambda_{\max}(X^\top X), \tag{2}

:math:`\Pi_R(w) = w \min\{1, R / \lVert w \rVert\}`, with Nesterov's momentum.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import linalg, sparse
from sklearn import linear_model
from sklearn.utils._param_validation import Interval, StrOptions

from corollary.base import Data, Estimator, Regressor
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics, Once, State
from corollary.engine.run import current
from corollary.linalg.moments import moments_of
from corollary.shapes import Array, Dtype, Either, Flag, Number

__all__ = ["LinearRegression", "Ridge", "normal_equations", "project_ball"]


def normal_equations(X: Any, y: np.ndarray, weight: np.ndarray | None, centre: bool) -> tuple[Any, ...]:
    """Return XᵀX (d, d), Xᵀy (d, k), and the means of X and y, of weighted and centred data, over all processes."""
    run, n = current(), X.shape[0]
    if isinstance(X, Source):
        d, (total, mean, S) = X.shape[1], moments_of(X, y, weight)
        S, mean = (S, mean) if centre else (S + total * np.outer(mean, mean), 0 * mean)
        return S[:d, :d], S[:d, d:], mean[:d], mean[d:]
    rows = run.shard(n)
    w = np.ones(n) if weight is None else weight
    X, y, w = X[rows], y[rows].astype(np.float64), w[rows]
    total = float(run.sum(np.array(w.sum())))
    WX = X.multiply(w[:, None]).tocsr() if sparse.issparse(X) else X * w[:, None]
    G = run.sum(np.asarray((X.T @ WX).toarray() if sparse.issparse(X) else X.T @ WX, np.float64))
    b = run.sum(np.asarray(WX.T @ y, np.float64))
    x_sum = run.sum(np.asarray(WX.sum(axis=0), np.float64).ravel())
    y_sum = run.sum(w @ y)
    x_mean, y_mean = (x_sum / total, y_sum / total) if centre else (0 * x_sum, 0 * y_sum)
    return G - total * np.outer(x_mean, x_mean), b - total * np.outer(x_mean, y_mean), x_mean, y_mean


def project_ball(w: np.ndarray, radius: float) -> np.ndarray:
    """Return the nearest point with columns no longer than ``radius``."""
    return w * np.minimum(1.0, radius / np.maximum(np.linalg.norm(w, axis=0), np.finfo(float).tiny))


def solved(G: np.ndarray, b: np.ndarray, alpha: float) -> np.ndarray:
    """Return the shortest solution of eq. 1: directions without variance, up to rounding, get no weight."""
    e, U = linalg.eigh(G + alpha * np.eye(len(G)))
    kept = e > len(G) * np.finfo(np.float64).eps * e[-1]
    return np.asarray(U[:, kept] @ ((U[:, kept].T @ b) / e[kept, None]))


class Descent(Iteration):
    """Projected descent with momentum, eq. 2, on the normal equations."""

    shares = True
    saved = ("w", "ahead", "t")

    def __init__(
        self, G: np.ndarray, b: np.ndarray, alpha: float, radius: float, max_iter: int, tol: float
    ) -> None:
        super().__init__(max_iter)
        self.G, self.b, self.alpha, self.radius, self.tol = G, b, alpha, radius, tol
        self.L = float(linalg.eigh(G, eigvals_only=True, subset_by_index=[len(G) - 1] * 2)[0]) + alpha or 1.0
        self.w, self.ahead, self.t = np.zeros_like(b), np.zeros_like(b), 1.0

    def sweep(self) -> Metrics:
        """Take one step; momentum starts anew when it points uphill."""
        gradient = self.G @ self.ahead + self.alpha * self.ahead - self.b
        w = project_ball(self.ahead - gradient / self.L, self.radius)
        step = w - self.w
        if float(((self.ahead - w) * step).sum()) > 0:
            self.t = 1.0
        t = (1 + math.sqrt(1 + 4 * self.t**2)) / 2
        self.ahead, self.t = w + (self.t - 1) / t * step, t
        self.w = w
        moved = float(np.linalg.norm(step)) / max(float(np.linalg.norm(w)), 1e-300)
        self.converged = moved <= self.tol
        return {"relative_step": moved}


class _Linear(Regressor, Estimator):
    _multi_output = True
    _checks = {"accept_sparse": ("csr", "csc")}
    _reads_sources = True
    _fitted = {
        "_single": Flag(),
        "_dtype": Dtype(),
        "coef_": Either(Array("n_features_in_"), Array("targets", "n_features_in_")),
        "intercept_": Either(Number(), Array("targets")),
    }

    def fit(self, X, y=None, sample_weight=None):
        """Fit rows X (n, d) to targets y (n,) or (n, k), optionally weighted."""
        return self._fit(X, y, sample_weight)

    def _descent(self, data: Data, alpha: float, radius: float) -> Descent:
        y = data.y.reshape(len(data.y), -1)
        G, b, x_mean, y_mean = normal_equations(data.X, y, data.sample_weight, self.fit_intercept)
        learner = Descent(G, b, alpha, radius, self.max_iter, self.tol)
        learner.means = x_mean, y_mean
        return learner

    def _once(self, model: Any, data: Data) -> Once:
        def from_sums() -> State:
            y = data.y.reshape(len(data.y), -1)
            G, b, x_mean, y_mean = normal_equations(data.X, y, data.sample_weight, self.fit_intercept)
            w = solved(G, b, getattr(self, "alpha", 0.0))
            return {"coef": w.T, "intercept": y_mean - x_mean @ w}

        if isinstance(data.X, Source):
            return Once(from_sums, shares=True)

        def solve() -> State:
            model.fit(data.X, data.y, data.sample_weight)
            return {"coef": np.atleast_2d(model.coef_), "intercept": np.atleast_1d(model.intercept_)}

        return Once(solve)

    def _learner(self, data: Data) -> Any:
        self._single, self._dtype = data.y.ndim == 1, str(data.X.dtype)
        return self._solver_for(data)

    def _adopt(self, learner: Any) -> None:
        dtype = np.dtype(self._dtype)
        if isinstance(learner, Once):
            coef, intercept = learner.results["coef"], learner.results["intercept"]
        else:
            x_mean, y_mean = learner.means
            coef, intercept = learner.w.T, y_mean - x_mean @ learner.w
        if not self.fit_intercept:
            intercept = np.zeros(len(coef))
        self.coef_ = (coef[0] if self._single else coef).astype(dtype)
        self.intercept_ = dtype.type(intercept[0]) if self._single else np.asarray(intercept, dtype)
        self.n_iter_ = learner.n_iter

    def _predict(self, X: Any) -> np.ndarray:
        return X @ self.coef_.T + self.intercept_


class LinearRegression(_Linear):
    """Fit a linear function by least squares.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether to fit a constant as well.
    solver : {"exact", "descent"}, default="exact"
        scikit-learn's closed form, or gradient descent with momentum.
    max_iter : int, default=10000
        Most steps of descent.
    tol : float, default=1e-8
        Descent stops when a step is shorter than this part of the weights.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features_in_,) or (n_targets, n_features_in_)
        The weights.
    intercept_ : float or ndarray of shape (n_targets,)
        The constant.
    n_iter_ : int
        Steps taken.

    Notes
    -----
    Minimises the squared error, (1) with alpha = 0; O(n d²), and O(d²) a step of descent. Where several weights
    fit equally well both solvers find the shortest. Rows on disk (:mod:`corollary.data.sources`) are read in blocks, and (1) is
    solved from their sums in float64: that loses twice the digits of the condition number of X, where a solver in memory loses
    them once.

    Examples
    --------
    >>> from corollary import LinearRegression
    >>> LinearRegression().fit([[0], [1], [2]], [1, 3, 5]).predict([[10]]).round(6)
    array([21.])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "fit_intercept": ["boolean"],
        "solver": [StrOptions({"exact", "descent"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, fit_intercept=True, solver="exact", max_iter=10000, tol=1e-8):
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol

    def _solver_for(self, data: Data) -> Any:
        if self.solver == "descent":
            return self._descent(data, 0.0, math.inf)
        return self._once(linear_model.LinearRegression(fit_intercept=self.fit_intercept, tol=1e-12), data)


class Ridge(_Linear):
    r"""Fit a linear function by least squares with an L2 penalty on the weights (ridge regression).

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty; larger makes shorter weights.
    fit_intercept : bool, default=True
        Whether to fit a constant, which is not penalised.
    solver : {"auto", "descent"}, default="auto"
        scikit-learn's closed form, or (projected) gradient descent.
    radius : float, optional
        The constrained view: instead of a penalty, weights no longer than this, by projected descent.
    max_iter : int, default=10000
        Most steps of descent.
    tol : float, default=1e-8
        Descent stops when a step is shorter than this part of the weights.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features_in_,) or (n_targets, n_features_in_)
        The weights.
    intercept_ : float or ndarray of shape (n_targets,)
        The constant.
    multiplier_ : ndarray of shape (n_targets,)
        The penalty that gives the same weights: alpha, or what belongs to ``radius``.
    n_iter_ : int
        Steps taken.

    Notes
    -----
    Minimises half the squared error plus alpha / 2 times the squared length, (1); or half the squared error in
    a ball, (2). O(n d²), and O(d²) a step of descent. Rows on disk are read in blocks, and (1) is solved from their sums.
    The notes' 000 pairs (1) with the loss :math:`\frac{1}{2n} \sum (\cdot)^2 + \lambda \lVert w \rVert^2`, whose solution
    has :math:`\alpha = 2 n \lambda` (erratum E26).

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import Ridge
    >>> X, y = np.eye(3), np.array([3.0, 0.0, -3.0])
    >>> Ridge(1.0, fit_intercept=False).fit(X, y).coef_
    array([ 1.5,  0. , -1.5])
    >>> bool(np.isclose(Ridge(radius=1.0, fit_intercept=False).fit(X, y).multiplier_[0], 18**0.5 - 1))
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "solver": [StrOptions({"auto", "descent"})],
        "radius": [None, Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }
    _fitted = {"multiplier_": Array(None, low=0)}

    def __init__(
        self, alpha=1.0, *, fit_intercept=True, solver="auto", radius=None, max_iter=10000, tol=1e-8
    ):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.radius = radius
        self.max_iter = max_iter
        self.tol = tol

    def _solver_for(self, data: Data) -> Any:
        if self.radius is not None:
            return self._descent(data, 0.0, self.radius)
        if self.solver == "descent":
            return self._descent(data, self.alpha, math.inf)
        return self._once(linear_model.Ridge(self.alpha, fit_intercept=self.fit_intercept), data)

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        self.multiplier_ = np.full(len(np.atleast_2d(self.coef_)), float(self.alpha))
        if self.radius is not None:  # on the sphere Xᵀy - XᵀX w = multiplier * w
            pull = learner.b - learner.G @ learner.w
            self.multiplier_ = np.maximum((pull * learner.w).sum(axis=0) / (learner.w**2).sum(axis=0), 0.0)
