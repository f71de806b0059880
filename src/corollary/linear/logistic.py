r"""Logistic and softmax regression.

For labels :math:`y \in \{\pm1\}` and for :math:`b = (y + 1) / 2 \in \{0, 1\}` the loss of a linear score
:math:`z = x \cdot \theta` is the same,

.. math:: -\log \sigma(y z) = -b \log \sigma(z) - (1 - b) \log (1 - \sigma(z)), \tag{1}

with gradient :math:`-\sigma(-y z)\, y\, x = (\sigma(z) - b)\, x`. For :math:`k` classes with scores
:math:`z_i = x \cdot \theta_i` and one-hot :math:`y`

.. math::
    \ell = -\sum_i y_i z_i + \log \sum_j e^{z_j}, \qquad \nabla_{\theta_i} \ell = (p_i - y_i)\, x, \qquad
    \nabla^2 \ell\, [V] = x\, \big( p \odot v - p\, (p \cdot v) \big)^\top,\; v = V^\top x. \tag{2}

Adding the same vector to every :math:`\theta_i` changes nothing; the
penalty :math:`\frac1{2C} \sum_i \lVert \theta_i \rVert^2` picks the
solution whose weights sum to zero. Newton's direction is found by conjugate gradients, preconditioned by
Böhning's bound :math:`\nabla^2 \preceq \frac12 (I - \frac1k 1 1^\top) \otimes X^\top X`, one matrix for all classes (3).

References
----------
.. [1] D. Böhning (1992). Multinomial logistic regression algorithm. Ann. Inst. Statist. Math. 44, 197-200.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from sklearn import linear_model
from sklearn.utils import compute_sample_weight
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from corollary.base import Classifier, Data, Estimator, as_tensor
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics, Once, State
from corollary.engine.run import current
from corollary.engine.sources import blocks
from corollary.linalg import THICKEST, Rows
from corollary.linalg.dense import scatter
from corollary.linear.logistic_kernels import curvature
from corollary.shapes import Array
from corollary.validation import as_given

__all__ = ["LogisticRegression", "SoftmaxRegression", "loss_of_bits", "loss_of_signs"]

FORCING = 0.1  # residual of Newton's equation, relative to the gradient, at which CG stops
ARMIJO = 1e-4


def loss_of_signs(theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return losses (n,) and gradients (n, d) of eq. 1 for y in {-1, +1}."""
    m = y * (X @ theta)
    return np.logaddexp(0, -m), -(y * np.exp(-np.logaddexp(0, m)))[:, None] * X


def loss_of_bits(theta: np.ndarray, X: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return losses (n,) and gradients (n, d) of eq. 1 for b in {0, 1}."""
    z = X @ theta
    return np.logaddexp(0, z) - b * z, (np.exp(-np.logaddexp(0, -z)) - b)[:, None] * X


class _Problem:
    """Penalised mean loss, gradient and curvature over all processes; weights are (d + 1, k), the last row constants."""

    def __init__(self, X: Any, codes: np.ndarray, weight: Any, k: int, C: float, intercept: bool) -> None:
        run, n = current(), X.shape[0]
        rows = run.shard(n)
        self.run, self.k, self.intercept = run, k, intercept
        self.source, self.share, self.shape = X if isinstance(X, Source) else None, rows, X.shape
        self.kept = X.dtype  # of the weights that are kept
        self.X = None
        if self.source is None:
            self.X = Rows(X[rows] if sparse.issparse(X) else as_tensor(X[rows]))
        self.dtype = torch.float64 if self.source is not None else getattr(torch, X.dtype.name)
        self.last: tuple[Any, Any] = None, None  # weights and their log-probabilities
        self.plain = weight is None
        w = np.ones(n) if weight is None else weight
        self.total = float(w.sum())
        self.w = as_tensor(w[rows]).to(self.dtype)[:, None]
        self.y = as_tensor(codes[rows])
        self.penalty = torch.full((X.shape[1] + 1, 1), 1 / C, dtype=torch.float64)
        self.penalty[-1] = 0.0

    def parts(self) -> Iterator[tuple[slice, Rows]]:
        """Yield this process's rows: all at once, or block by block from where they stay."""
        if self.X is not None:
            yield slice(None), self.X
            return
        for rows, block in blocks(self.source, self.share):
            yield rows, Rows(torch.from_numpy(block))

    def scores(self, X: Rows, B: Tensor) -> Tensor:
        """Return [X 1] B."""
        wide = B.to(self.dtype)
        return X.dot(wide[:-1]).add_(wide[-1])

    def log_probabilities(self, X: Rows, B: Tensor) -> Tensor:
        """Return log p (n, k); those of all rows are kept, for the gradient is wanted where the loss was."""
        if B is self.last[0]:
            return self.last[1]  # type: ignore[no-any-return]
        Z = self.scores(X, B)
        # torch.log_softmax over a few classes is several times slower
        Z.sub_(torch.logsumexp(Z, 1, keepdim=True))
        if X is self.X:
            self.last = B, Z
        return Z

    def back(self, X: Rows, R: Tensor) -> Tensor:
        """Return [X 1]ᵀ R in float64."""
        last = R.sum(0, keepdim=True) if self.intercept else torch.zeros_like(R[:1])
        return torch.cat([X.back(R), last]).double()

    def value(self, B: Tensor) -> float:
        data = torch.zeros((), dtype=torch.float64)
        for rows, X in self.parts():
            gains = self.log_probabilities(X, B).gather(1, self.y[rows, None])[:, 0].double()
            data = data - (self.w[rows, 0].double() * gains).sum()
        return float(self.run.sum(data)) + 0.5 * float((self.penalty * B.square()).sum())

    def gradient(self, B: Tensor) -> tuple[Tensor, Tensor]:
        total, found = torch.zeros_like(B), []
        for rows, X in self.parts():
            found.append(self.log_probabilities(X, B).exp())
            R = found[-1].clone()
            R.scatter_add_(1, self.y[rows, None], torch.full_like(R[:, :1], -1.0))
            total += self.back(X, R.mul_(self.w[rows]))
        P = found[0] if len(found) == 1 else torch.cat(found)
        return self.run.sum(total) + self.penalty * B, P

    def curvature(self, P: Tensor, V: Tensor) -> Tensor:
        total = torch.zeros_like(V)
        for rows, X in self.parts():
            if not X.sparse and self.k <= THICKEST:
                arrays = (part.numpy() for part in (X.X, P[rows], self.w[rows, 0], V.to(self.dtype)))
                found = torch.from_numpy(curvature(*arrays)).double()
                found[-1] *= self.intercept
                total += found
                continue
            U = P[rows] * self.scores(X, V)
            total += self.back(X, (U - P[rows] * U.sum(1, keepdim=True)).mul_(self.w[rows]))
        return self.run.sum(total) + self.penalty * V  # type: ignore[no-any-return]

    def bound(self) -> Tensor:
        """Return the Cholesky factor of Böhning's bound, eq. 3, for one class."""
        d = self.shape[1]
        ones = self.w.sum(0).double()
        # The diagonal of a sparse matrix is enough of a preconditioner.
        if self.X is not None and self.X.sparse:
            squares = torch.from_numpy(self.X.X.power(2).T @ self.w.numpy())
            H = torch.diag(torch.cat([squares[:, 0].double(), ones]))
        else:
            H = torch.zeros(d + 1, d + 1, dtype=torch.float64)
            for rows, part in self.parts():
                X = part.X if self.plain else part.X * self.w[rows].sqrt()
                H[:d, :d] += torch.from_numpy(scatter(X.numpy())[1])
                H[:d, d] += part.back(self.w[rows])[:, 0].double() * self.intercept
            H[d, :d], H[d, d] = H[:d, d], ones[0]
        H = 0.5 * self.run.sum(H)
        diagonal = H.diagonal()
        diagonal += self.penalty[:, 0] + 1e-10 * diagonal.max()
        return torch.linalg.cholesky(H)


class NewtonCG(Iteration):
    """One Newton step a sweep, its direction by preconditioned conjugate gradients."""

    shares = True
    saved = ("B", "objective")

    def __init__(self, problem: _Problem, max_iter: int, tol: float) -> None:
        super().__init__(max_iter)
        self.problem, self.tol, self.factor = problem, tol, problem.bound()
        self.B = torch.zeros(len(problem.penalty), problem.k, dtype=torch.float64)
        self.objective = problem.value(self.B)

    def sweep(self) -> Metrics:
        """Find the direction, then halve the step until the loss falls enough."""
        problem = self.problem
        g, P = problem.gradient(self.B)
        steepest = float(g.abs().max()) / problem.total
        if steepest <= self.tol:
            self.converged = True
            return {"loss": self.objective / problem.total, "gradient": steepest}
        direction = self._solve(P, g)
        slope, step = float((g * direction).sum()), 1.0
        for _ in range(30):
            fresh = self.B + step * direction
            value = problem.value(fresh)
            if value <= self.objective + ARMIJO * step * slope:
                break
            step *= 0.5
        else:  # as exact as the type allows
            self.converged = True
            return {"loss": self.objective / problem.total, "gradient": steepest}
        self.converged = value >= self.objective  # no longer falls: as exact as the type allows
        self.B, self.objective = fresh, value
        return {"loss": value / problem.total, "gradient": steepest}

    def planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights (k, d) and constants (k,): the solution whose classes sum to zero."""
        B, dtype = self.B - self.B.mean(1, keepdim=True), self.problem.kept
        return np.ascontiguousarray(B[:-1].T.numpy()).astype(dtype), B[-1].numpy().astype(dtype)

    def _solve(self, P: Tensor, g: Tensor) -> Tensor:
        """Return an approximate solution of H v = -g."""
        v, r = torch.zeros_like(g), -g
        z = torch.cholesky_solve(r, self.factor)
        p, rz, target = z, (r * z).sum(), FORCING * float(g.norm())
        for _ in range(50):
            Hp = self.problem.curvature(P, p)
            step = rz / (p * Hp).sum()
            v, r = v + step * p, r - step * Hp
            if float(r.norm()) <= target:
                break
            z = torch.cholesky_solve(r, self.factor)
            rz, before = (r * z).sum(), rz
            p = z + (rz / before) * p
        return v


class _Linear(Classifier, Estimator):
    _checks = {"accept_sparse": ("csr", "csc")}
    _reads_sources = True
    _fitted = {"coef_": Array("planes", "n_features_in_"), "intercept_": Array("planes")}

    def fit(self, X, y=None, sample_weight=None):
        """Fit rows X (n, d) to labels y (n,), optionally weighted."""
        return self._fit(X, y, sample_weight)

    def _weighted(self, data: Data) -> Any:
        if self.class_weight is None:
            return data.sample_weight
        by_class = compute_sample_weight(self.class_weight, self.classes_[data.y])
        return by_class if data.sample_weight is None else by_class * data.sample_weight

    def decision_function(self, X):
        """Return the scores of the classes (n, k), or of the second class (n,) where there are two."""
        return as_given(X, self._answer(self._decide, X))

    def _decide(self, X: Any) -> np.ndarray:
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if scores.shape[1] == 1 else scores


class LogisticRegression(_Linear):
    """Classify rows by logistic regression with an L2 penalty.

    Two classes have one score; more have one each, as in :class:`SoftmaxRegression`.

    Parameters
    ----------
    C : float, default=1.0
        Inverse weight of the penalty; larger fits the data more closely.
    fit_intercept : bool, default=True
        Whether to fit a constant, which is not penalised.
    solver : {"lbfgs", "newton-cholesky", "newton-cg", "sag", "saga"}, default="lbfgs"
        scikit-learn's first- and second-order methods.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    max_iter : int, default=1000
        Most iterations.
    tol : float, default=1e-6
        Largest entry of the gradient at the end.
    random_state : int or RandomState, optional
        For "sag" and "saga".

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (1, n_features_in_) or (n_classes, n_features_in_)
        The weights.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The constants.
    n_iter_ : int
        Iterations of the solver.

    Notes
    -----
    Minimises the sum of (1) plus 1 / (2C) times the squared length. scikit-learn's solvers are at their best
    here and do the work; an iteration costs O(n d), of Newton O(n d²). Rows on disk (:mod:`corollary.data.sources`) are read in
    blocks by the Newton method of :class:`SoftmaxRegression`, whatever the solver.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from corollary import LogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> bool(LogisticRegression(solver="newton-cholesky").fit(X, y).score(X, y) > 0.95)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "solver": [StrOptions({"lbfgs", "newton-cholesky", "newton-cg", "sag", "saga"})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        C=1.0,
        *,
        fit_intercept=True,
        solver="lbfgs",
        class_weight=None,
        max_iter=1000,
        tol=1e-6,
        random_state=None,
    ):
        self.C = C
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _learner(self, data: Data) -> Any:
        if isinstance(data.X, Source):
            k = len(self.classes_)
            # Two scores that are each other's negative have half the squared length of the one that is their difference.
            C = self.C / 2 if k == 2 else self.C
            problem = _Problem(data.X, data.y, self._weighted(data), k, C, self.fit_intercept)
            return NewtonCG(problem, self.max_iter, self.tol)
        model = linear_model.LogisticRegression(
            C=self.C,
            fit_intercept=self.fit_intercept,
            solver=self.solver,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self._seed(),
        )

        def solve() -> State:
            model.fit(data.X, data.y, self._weighted(data))
            return {"coef": model.coef_, "intercept": model.intercept_, "n_iter": int(np.max(model.n_iter_))}

        return Once(solve)

    def _adopt(self, learner: Any) -> None:
        if isinstance(learner, NewtonCG):
            coef, intercept = learner.planes()
            two = len(coef) == 2
            self.coef_ = coef[1:] - coef[:1] if two else coef
            self.intercept_ = intercept[1:] - intercept[:1] if two else intercept
            self.n_iter_ = learner.n_iter
            return
        self.coef_, self.intercept_ = learner.results["coef"], np.atleast_1d(learner.results["intercept"])
        self.n_iter_ = learner.results["n_iter"]

    def _predict_proba(self, X: Any) -> np.ndarray:
        z = self._decide(X)
        if z.ndim == 1:
            z = np.stack([np.zeros_like(z), z], axis=1)
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)


class SoftmaxRegression(_Linear):
    """Classify rows by softmax (multinomial logistic) regression, with a weight vector for every class.

    Parameters
    ----------
    C : float, default=1.0
        Inverse weight of the penalty; larger fits the data more closely.
    fit_intercept : bool, default=True
        Whether to fit constants, which are not penalised.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    max_iter : int, default=100
        Most Newton steps.
    tol : float, default=1e-5
        Largest entry of the mean gradient at the end; float32 data cannot go much below 1e-6.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    coef_ : ndarray of shape (n_classes, n_features_in_)
        Weights; over the classes they sum to zero.
    intercept_ : ndarray of shape (n_classes,)
        Constants; they sum to zero.
    n_iter_ : int
        Newton steps.

    Notes
    -----
    Minimises the sum of (2) plus 1 / (2C) times the squared length of all weights, by Newton's method; a
    conjugate-gradient step costs O(n d k), and reads the rows once where they stay on disk
    (:mod:`corollary.data.sources`). The notes' 002 prints an alternative to (2) with the wrong sign and k times the log-sum
    (erratum E30).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import SoftmaxRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> round(SoftmaxRegression().fit(X, y).score(X, y), 2)
    0.97
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, C=1.0, *, fit_intercept=True, class_weight=None, max_iter=100, tol=1e-5):
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol

    def _learner(self, data: Data) -> NewtonCG:
        weight, k = self._weighted(data), len(self.classes_)
        problem = _Problem(data.X, data.y, weight, k, self.C, self.fit_intercept)
        return NewtonCG(problem, self.max_iter, self.tol)

    def _adopt(self, learner: NewtonCG) -> None:
        self.coef_, self.intercept_ = learner.planes()
        self.n_iter_ = learner.n_iter

    def _decide(self, X: Any) -> np.ndarray:
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _predict_proba(self, X: Any) -> np.ndarray:
        z = np.asarray(X @ self.coef_.T + self.intercept_)
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)
