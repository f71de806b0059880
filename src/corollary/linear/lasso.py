r"""The lasso: least squares with an L1 penalty.

.. math:: \min_w\; P(w) = \tfrac1{2n} \lVert y - X w \rVert^2 + \lambda \lVert w \rVert_1. \tag{1}

One coordinate at a time is solved exactly. With :math:`G = X^\top X / n` and :math:`c = X^\top y / n`,

.. math::
    w_j \leftarrow S_\lambda \big( c_j - \textstyle\sum_{i \ne j} G_{ji} w_i \big) / G_{jj}, \qquad
    S_\lambda(u) = \operatorname{sign}(u) (|u| - \lambda)_+. \tag{2}

For the residual :math:`r`, :math:`g = X^\top r / n` and :math:`s = \min\{1, \lambda / \lVert g \rVert_\infty\}`, the point
:math:`s r` is feasible in the dual, so that

.. math::
    P(w) - P^\star \le \text{gap} = P(w) - \tfrac1n \big( s\, y^\top r - \tfrac{s^2}{2} r^\top r \big), \tag{3}

and a feature with :math:`|s g_j| + \lVert x_j \rVert \sqrt{2\,\text{gap} / n} < \lambda` is zero in every solution (4). Descent
works on a set of promising features whose Gram matrix is at hand; the rest is looked at once a
round, and only what (4) has not ruled out. Where features are nearly sums of others, sweeps of (2) creep; the weights that are
not zero then jump to the minimum of (1) for their signs, as far as (1) falls on the way there.

A path looks so often that it keeps :math:`X^\top X_A / n` for the features :math:`A` of the set, taken in a batch at a time:
then :math:`g = c - (X^\top X_A / n)\, w_A` (5) needs no pass over the data.

With an intercept, :math:`X` and :math:`y` in (1) are centred. The data are read as they lie all the same: for a residual that
sums to zero :math:`(X - 1 m^\top)^\top r = X^\top r` (6), so only the features of the working set are centred, in their copy.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn import linear_model
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval

from corollary import errors
from corollary.base import Data, Estimator, Regressor
from corollary.data.sources import Source
from corollary.engine.learner import Once, State
from corollary.linalg.moments import moments_of
from corollary.linear.lasso_solver import (
    AllFeatures,
    Features,
    FromSums,
    Path,
    WorkingSet,
    as_float64,
    column_means,
    offsets_are_small,
)
from corollary.shapes import Array, Dtype, Number

__all__ = ["Lasso", "lasso_path"]

SMALL = 2**21  # entries of a table on which plain sweeps are tried first: a working set would not pay
FEW = 60  # of those sweeps
SINGLE = 1e-5  # tolerance from which float32 data may stay float32
COARSE = 1e-7  # tolerance from which a path may look at the features in float32
WHOLE = 2**28  # multiplications of all features with each other up to which a path begins with them


def lasso_path(X, y, *, eps=1e-3, n_alphas=100, alphas=None, tol=1e-4, max_iter=1000):
    """Return the lasso's solutions for falling penalties, without an intercept.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Features; centre them for an intercept.
    y : ndarray of shape (n,)
        Targets.
    eps : float
        Smallest penalty over the largest, where ``alphas`` is not given.
    n_alphas : int
        How many penalties, evenly spaced in their logarithm.
    alphas : array-like, optional
        The penalties.
    tol : float
        Largest duality gap, relative to the mean square of y.
    max_iter : int
        Most rounds for each penalty; a penalty whose gap stays above ``tol`` is warned of.

    Returns
    -------
    alphas : ndarray of shape (n_alphas,)
        Penalties, descending; from the first on, if it was not given, all weights are zero.
    coefs : ndarray of shape (d, n_alphas)
        Weights.
    gaps : ndarray of shape (n_alphas,)
        Duality gaps, eq. 3.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from corollary.linear import lasso_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, _ = lasso_path(X, y - y.mean(), n_alphas=5)
    >>> (coefs != 0).sum(axis=0)
    array([ 0,  4,  7,  9, 10])
    """
    X, y = as_float64(np.asarray(X)), np.asarray(y, np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise errors.value("lasso_path", "X must be (n, d) and y (n,)", f"{X.shape} and {y.shape}")
    solver = _path_solver(X, y, tol, max_iter)
    if alphas is None:
        largest = solver.steepest()
        alphas = np.geomspace(1.0, eps, n_alphas) * largest
    alphas = np.sort(np.asarray(alphas, np.float64))[::-1]
    coefs, gaps = np.empty((X.shape[1], len(alphas))), np.empty(len(alphas))
    for i, alpha in enumerate(alphas):
        coefs[:, i], gaps[i] = solver.solve(float(alpha)), solver.gap
    _warn_of_gaps(gaps, solver.target)
    return alphas, coefs, gaps


def _warn_of_gaps(gaps: np.ndarray, target: float) -> None:
    """Warn of penalties whose gap, eq. 3, is not what was asked for."""
    if count := int((gaps > target).sum()):
        must = f"lasso_path: {count} of {len(gaps)} penalties did not converge to a gap of {target:.3g}; got {gaps.max():.3g}. "
        do = "Raise tol or max_iter, leave out the smallest penalties, or drop columns that are nearly sums of others."
        warnings.warn(must + do, ConvergenceWarning, stacklevel=3)


def _path_solver(X: np.ndarray, y: np.ndarray, tol: float, max_iter: int) -> WorkingSet:
    """Return the way that is shortest for tables of this size."""
    if X.size * X.shape[1] <= WHOLE:
        return AllFeatures(X, y, tol, max_iter)
    return Path(X, y, tol, max_iter) if tol >= COARSE else WorkingSet(Features(X), y, 0.0, tol, max_iter)


class Lasso(Regressor, Estimator):
    """Fit a linear function by least squares with an L1 penalty, which sets many weights to exactly zero.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty; larger leaves fewer weights.
    fit_intercept : bool, default=True
        Whether to fit a constant, which is not penalised.
    max_iter : int, default=1000
        Most rounds, each of many sweeps over a working set.
    tol : float, default=1e-4
        Largest duality gap, relative to the mean square of y; smaller is more exact.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features_in_,)
        The weights.
    intercept_ : float
        The constant.
    dual_gap_ : float
        The gap that was reached, (3).
    n_iter_ : int
        Rounds.

    Notes
    -----
    Minimises (1). A round costs O(n d) to look at every feature that is left, and O(a²) a sweep for a
    features in the working set. Sparse data go to scikit-learn's solver, which never makes them dense; so do tables of up to
    two million entries, if a few sweeps of it are enough. Rows on disk (a memory map, a ``ParquetTable``) are read once, for
    their O(d²) sums of products.

    References
    ----------
    .. [1] O. Fercoq, A. Gramfort, J. Salmon (2015). Mind the duality gap: safer rules for the lasso. ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from corollary import Lasso
    >>> X, y = load_diabetes(return_X_y=True)
    >>> Lasso(1.0).fit(X, y).coef_.round().tolist()
    [0.0, 0.0, 368.0, 6.0, 0.0, 0.0, 0.0, 0.0, 308.0, 0.0]
    """

    _checks = {"accept_sparse": ("csr", "csc")}
    _reads_sources = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }
    _fitted = {
        "_dtype": Dtype(),
        "coef_": Array("n_features_in_"),
        "intercept_": Number(),
        "dual_gap_": Number(),
    }

    def __init__(self, alpha=1.0, *, fit_intercept=True, max_iter=1000, tol=1e-4):
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def fit(self, X, y=None, sample_weight=None):
        """Fit rows X (n, d) to targets y (n,), optionally weighted."""
        return self._fit(X, y, sample_weight)

    def _learner(self, data: Data) -> Any:
        X, y, weight = data.X, data.y, data.sample_weight
        self._dtype = str(X.dtype)
        if sparse.issparse(X):
            return Once(lambda: self._plain(X, y, weight, 100 * self.max_iter))
        if isinstance(X, Source):
            return self._from_sums(X, y, weight)
        if X.size <= SMALL and (found := self._plain(X, y, weight, FEW))["sweeps"] < FEW:
            return Once(lambda: found)
        X, y = X if self.tol >= SINGLE else as_float64(X), y.astype(np.float64)
        w = None if weight is None else weight * (len(y) / weight.sum())
        root = None if w is None else np.sqrt(w)
        x_mean, y_mean, mean = np.zeros(X.shape[1]), 0.0, None
        if self.fit_intercept:
            x_mean, y_mean = mean, _ = column_means(X, w), np.average(y, weights=w)
        if mean is not None and not offsets_are_small(X, mean):
            X, mean = X - mean, None
        y = (y - y_mean) * (1.0 if root is None else root)
        features = Features(X, mean, root)
        learner = WorkingSet(features, y, self.alpha, self.tol, self.max_iter)
        learner.means = x_mean, y_mean
        return learner

    def _plain(self, X: Any, y: np.ndarray, weight: Any, max_iter: int) -> State:
        """Descend as scikit-learn does: its sweeps never make data dense and need no preparation."""
        if sparse.issparse(X):  # it takes 32-bit indices only
            X = type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
        model = linear_model.Lasso(
            self.alpha, fit_intercept=self.fit_intercept, max_iter=max_iter, tol=self.tol
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the gap tells
            model.fit(X, y, weight)
        names = ("coef_", "intercept_", "dual_gap_", "n_iter_")
        w, intercept, gap, sweeps = (getattr(model, name) for name in names)
        return {"w": w + 0.0, "intercept": float(intercept), "gap": float(gap), "sweeps": int(sweeps)}

    def _from_sums(self, X: Source, y: np.ndarray, weight: Any) -> FromSums:
        total, mean, S = moments_of(X, y.astype(np.float64)[:, None], weight)
        if not self.fit_intercept:
            S, mean = S + total * np.outer(mean, mean), 0 * mean
        S = S / total
        rest = (float(S[-1, -1]), len(X), self.alpha, self.tol, self.max_iter)
        learner = FromSums(S[:-1, :-1], S[:-1, -1].copy(), *rest)
        learner.means = mean[:-1], float(mean[-1])
        return learner

    def _adopt(self, learner: Any) -> None:
        dtype = np.dtype(self._dtype)
        if isinstance(learner, Once):
            w, intercept, gap = (learner.results[key] for key in ("w", "intercept", "gap"))
        else:
            w, gap = learner.weights(), float(learner.gap)
            intercept = learner.means[1] - learner.means[0] @ w
        self.coef_, self.intercept_ = w.astype(dtype), dtype.type(intercept)
        self.dual_gap_, self.n_iter_ = gap, learner.n_iter

    def _predict(self, X: Any) -> np.ndarray:
        return X @ self.coef_ + self.intercept_
