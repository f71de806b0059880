r"""The perceptron.

For labels :math:`y \in \{-1, 1\}` it predicts :math:`\operatorname{sign}(w^\top x + b)` and learns from mistakes only,

.. math::
    \text{if } y\,(w^\top x + b) \le 0: \qquad w \leftarrow w + \eta\, y\, x, \quad b \leftarrow b + \eta\, y, \tag{1}

which is stochastic gradient descent on :math:`\max(0, -y (w^\top x + b))`. With :math:`\tilde x = (x, 1)`,
:math:`R = \max \lVert \tilde x \rVert` and any :math:`\tilde u` of length one that separates with margin
:math:`\gamma = \min y\, \tilde u^\top \tilde x > 0`, Novikov's bound says that from :math:`\tilde w = 0`

.. math:: \text{mistakes} \le (R / \gamma)^2, \tag{2}

whatever the order of the samples. The margin of the weights that were found is such a :math:`\gamma`. A penalty
shrinks the weights after every sample (3). The averaged perceptron answers with the mean of the weights over all
samples visited (4). Several classes are learned one against the rest.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, column_or_1d, compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight

from corollary import errors
from corollary.base import Classifier, Data, Estimator
from corollary.compiled import njit
from corollary.engine.learner import Iteration, Metrics
from corollary.roles.targets import given_target
from corollary.shapes import Array, Labels, Number
from corollary.validation import as_given, to_numpy

__all__ = ["Perceptron"]


@njit(cache=True)
def _shrink(w, total, seen, eta, l1, l2):  # pragma: no cover - compiled
    """Apply eq. 3 to all weights but the bias."""
    for j in range(len(w) - 1):
        shrunk = w[j] * (1 - eta * l2)
        shrunk = np.sign(shrunk) * max(abs(shrunk) - eta * l1, 0.0)
        total[j] += seen * (shrunk - w[j])
        w[j] = shrunk


@njit(cache=True)
def _epoch(
    indptr, indices, data, y, weight, order, w, total, seen, eta, l1, l2, intercept
):  # pragma: no cover
    """Apply eq. 1 (and 3, 4) once per row; w and total end with the bias. Return mistakes and summed loss.

    ``total`` gathers seen * (change of w), so that the mean of the weights is w - total / seen.
    """
    d, mistakes, loss = len(w) - 1, 0, 0.0
    for i in order:
        score = w[d]
        for e in range(indptr[i], indptr[i + 1]):
            score += w[indices[e]] * data[e]
        if y[i] * score <= 0:
            mistakes += 1
            loss -= weight[i] * y[i] * score
            move = eta * weight[i] * y[i]
            for e in range(indptr[i], indptr[i + 1]):
                w[indices[e]] += move * data[e]
                total[indices[e]] += seen * move * data[e]
            if intercept:
                w[d] += move
                total[d] += seen * move
        if l1 != 0 or l2 != 0:
            _shrink(w, total, seen, eta, l1, l2)
        seen += 1
    return mistakes, loss


@njit(cache=True, fastmath=True)
def _dense_epoch(X, y, weight, order, w, total, seen, eta, l1, l2, intercept):  # pragma: no cover - compiled
    """Do what ``_epoch`` does, for dense rows."""
    d, mistakes, loss = X.shape[1], 0, 0.0
    for i in order:
        x = X[i]
        score = w[d]
        for j in range(d):
            score += w[j] * x[j]
        if y[i] * score <= 0:
            mistakes += 1
            loss -= weight[i] * y[i] * score
            move = eta * weight[i] * y[i]
            for j in range(d):
                w[j] += move * x[j]
                total[j] += seen * move * x[j]
            if intercept:
                w[d] += move
                total[d] += seen * move
        if l1 != 0 or l2 != 0:
            _shrink(w, total, seen, eta, l1, l2)
        seen += 1
    return mistakes, loss


class _Mistakes(Iteration):
    """One epoch over the samples, for every class that has not stopped yet."""

    saved = ("w", "total", "mistakes", "best", "waited", "active", "epochs", "rng")

    def __init__(self, model: Perceptron, X: Any, y: np.ndarray, weight: np.ndarray, w: np.ndarray) -> None:
        super().__init__(model.max_iter)
        self.model, self.y, self.weight = model, y, weight
        self.dtype = X.dtype
        self.X = X.astype(np.float64) if sparse.issparse(X) else np.ascontiguousarray(X, np.float64)
        self.rng = model._rng()
        self.kept, self.held = np.arange(X.shape[0]), None
        if model.early_stopping:
            share, seed = model.validation_fraction, model._seed()
            codes = y.argmax(0) if len(y) > 1 else y[0]
            self.kept, self.held = train_test_split(
                self.kept, test_size=share, random_state=seed, stratify=codes
            )
        self.w, self.total = w, np.zeros_like(w)
        self.mistakes = np.zeros(len(y), int)
        self.best, self.waited = np.full(len(y), np.inf), np.zeros(len(y), int)
        self.active, self.epochs = np.ones(len(y), bool), np.zeros(len(y), int)

    def sweep(self) -> Metrics:
        model = self.model
        ratio = {"l1": 1.0, "l2": 0.0, "elasticnet": model.l1_ratio, None: 0.0}[model.penalty]
        alpha = model.alpha if model.penalty is not None else 0.0
        order = self.rng.permutation(self.kept) if model.shuffle else self.kept
        wrong, losses = 0, 0.0
        for c in np.flatnonzero(self.active):
            seen = float(self.epochs[c] * len(order) + 1)
            rows = (self.X.indptr, self.X.indices, self.X.data) if sparse.issparse(self.X) else (self.X,)
            visit = _epoch if len(rows) == 3 else _dense_epoch
            mistakes, loss = visit(
                *rows, self.y[c], self.weight, order, self.w[c], self.total[c], seen, model.eta0,
                alpha * ratio, alpha * (1 - ratio), model.fit_intercept,
            )  # fmt: skip
            self.epochs[c] += 1
            self.mistakes[c] += mistakes
            wrong, losses = wrong + mistakes, losses + loss
            self._judge(c, loss, len(order))
        self.converged = not self.active.any()
        return {"loss": losses / len(order), "mistakes": wrong}

    def _judge(self, c: int, loss: float, n: int) -> None:
        """Stop a class that no longer improves."""
        model = self.model
        if model.tol is None:
            return
        slack = model.tol * n
        if self.held is not None:
            right = self.y[c][self.held] * (self.X[self.held] @ self.w[c, :-1] + self.w[c, -1]) > 0
            loss, slack = -float(right.mean()), model.tol
        self.waited[c] = self.waited[c] + 1 if loss > self.best[c] - slack else 0
        self.best[c] = min(self.best[c], loss)
        self.active[c] = self.waited[c] < model.n_iter_no_change

    def weights(self) -> np.ndarray:
        if not self.model.average:
            return self.w
        visits = np.maximum(self.epochs * len(self.kept), 1)[:, None] + 1
        return self.w - self.total / visits


class Perceptron(LinearClassifierMixin, Estimator):
    """Classify with the perceptron, and report how its mistakes compare with Novikov's bound.

    A drop-in for scikit-learn's class, which can also average.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet"}, optional
        How weights are shrunk after every sample.
    alpha : float, default=0.0001
        Strength of the penalty; raising it shrinks more.
    l1_ratio : float, default=0.15
        Share of the absolute penalty in "elasticnet".
    fit_intercept : bool, default=True
        Whether there is a bias.
    max_iter : int, default=1000
        Most epochs.
    tol : float or None, default=1e-3
        A class stops when its loss has not fallen by this per sample for ``n_iter_no_change`` epochs;
        None goes on to ``max_iter``.
    shuffle : bool, default=True
        Whether every epoch has its own order.
    verbose : int, default=0
        Whether to show a progress bar, as ``Run(progress=True)`` does for any fit.
    eta0 : float, default=1.0
        Step; without a penalty it scales the weights and changes no prediction.
    n_jobs : int, optional
        Taken for compatibility.
    random_state : int or RandomState, default=0
        Seed for the order.
    early_stopping : bool, default=False
        Whether the score on held-out samples decides when to stop.
    validation_fraction : float, default=0.1
        Share of held-out samples.
    n_iter_no_change : int, default=5
        Epochs without improvement before a class stops.
    class_weight : dict or "balanced", optional
        Weights of the classes in the updates.
    warm_start : bool, default=False
        Whether a further fit starts at the weights found before.
    average : bool, default=False
        Whether the answer is the mean of the weights over all samples, which generalises better.

    Attributes
    ----------
    coef_ : ndarray of shape (1 or n_classes, n_features_in_)
        The weights.
    intercept_ : ndarray of shape (1 or n_classes,)
        The biases.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_iter_ : int
        Epochs run.
    t_ : float
        Samples visited, plus one.
    mistakes_ : ndarray of shape (1 or n_classes,)
        Mistakes made while learning.
    margin_ : ndarray of shape (1 or n_classes,)
        Smallest distance of a training sample from the boundary, in the space with the bias; negative
        where classes are not separated.
    novikov_bound_ : ndarray of shape (1 or n_classes,)
        Eq. (2) with that margin; infinite where classes are not separated. It holds for a plain perceptron
        from zero: without penalty, class weights or warm start.
    history_ : list of dict
        Step, loss, mistakes and seconds.

    Notes
    -----
    Eq. (1) of the module's page, O(stored entries) per epoch and class. Some notes print the update for a
    margin below 0 only: then nothing is ever learned from weights of zero.

    References
    ----------
    .. [1] F. Rosenblatt (1958). The perceptron. Psychological Review 65(6), 386-408.
    .. [2] A. B. J. Novikoff (1962). On convergence proofs on perceptrons. Symposium on the Mathematical
       Theory of Automata 12, 615-622.
    .. [3] Y. Freund, R. Schapire (1999). Large margin classification using the perceptron algorithm.
       Machine Learning 37(3), 277-296.

    Examples
    --------
    >>> from corollary import Perceptron
    >>> model = Perceptron(tol=None).fit([[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 0, 1])
    >>> bool((model.mistakes_ <= model.novikov_bound_).all()), model.predict([[1, 1]])
    (True, array([1]))
    """

    role: ClassVar[str] = "classifier"
    _expected_failures: ClassVar[dict[str, str]] = {
        f"check_sample_weight_equivalence_on_{kind}_data": (
            "samples are visited one by one: a row repeated is visited twice, a row of weight two moves twice as far; "
            "scikit-learn's own class fails this check for the same reason"
        )
        for kind in ("dense", "sparse")
    }
    _checks = {"accept_sparse": "csr"}
    _soft_targets = False
    _check_y = Classifier._check_y
    _parameter_constraints = {
        "penalty": [StrOptions({"l2", "l1", "elasticnet"}), None],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "fit_intercept": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left"), None],
        "shuffle": ["boolean"],
        "verbose": ["verbose"],
        "eta0": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "warm_start": ["boolean"],
        "average": ["boolean"],
    }
    _fitted = {
        "classes_": Labels(),
        "coef_": Array("planes", "n_features_in_"),
        "intercept_": Array("planes"),
        "t_": Number(),
        "mistakes_": Array("planes", kind="iu"),
        "margin_": Array("planes", finite=False),
        "novikov_bound_": Array("planes", finite=False),
    }

    def __init__(
        self,
        *,
        penalty=None,
        alpha=0.0001,
        l1_ratio=0.15,
        fit_intercept=True,
        max_iter=1000,
        tol=1e-3,
        shuffle=True,
        verbose=0,
        eta0=1.0,
        n_jobs=None,
        random_state=0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        class_weight=None,
        warm_start=False,
        average=False,
    ):
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.verbose = verbose
        self.eta0 = eta0
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.average = average

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 100}

    def fit(self, X, y=None, coef_init=None, intercept_init=None, sample_weight=None):
        """Learn from X, dense or sparse, and labels y; first weights may be given."""
        return self._fit(X, y, sample_weight, (coef_init, intercept_init))

    def _learner(self, data: Data) -> _Mistakes:
        count = 1 if len(self.classes_) == 2 else len(self.classes_)
        signs = np.where(data.y == np.arange(len(self.classes_))[:, None], 1.0, -1.0)
        signs = signs[1:] if count == 1 else signs
        weight = np.ones(len(data.y)) if data.sample_weight is None else data.sample_weight.copy()
        if self.class_weight is not None:
            labels = self.classes_[data.y]
            weight *= compute_class_weight(self.class_weight, classes=self.classes_, y=labels)[data.y]
        w = np.zeros((count, data.X.shape[1] + 1))
        self._start(w, *(data.extra or (None, None)))
        return _Mistakes(self, data.X, signs, weight, w)

    def _start(self, w: np.ndarray, coef: Any, intercept: Any) -> None:
        if coef is None and self.warm_start and getattr(self, "coef_", np.empty(0)).shape == w[:, :-1].shape:
            coef, intercept = self.coef_, self.intercept_
        if coef is not None:
            coef = np.asarray(coef, float).reshape(-1, w.shape[1] - 1) if np.size(coef) else np.empty((0, 0))
            if coef.shape != w[:, :-1].shape:
                must = f"coef_init must have shape {w[:, :-1].shape}"
                raise errors.value("Perceptron", must, f"shape {coef.shape}")
            w[:, :-1] = coef
        if intercept is not None:
            if np.size(intercept) not in (1, len(w)):
                must = f"intercept_init must have shape ({len(w)},)"
                raise errors.value("Perceptron", must, f"shape {np.shape(intercept)}")
            w[:, -1] = np.ravel(intercept)

    def _adopt(self, learner: _Mistakes) -> None:
        w = learner.weights()
        self.coef_, self.intercept_ = w[:, :-1].astype(learner.dtype), w[:, -1].astype(learner.dtype)
        self.n_iter_ = int(learner.epochs.max())
        self.t_ = float(learner.epochs.sum() * len(learner.kept) + 1)
        self.mistakes_ = learner.mistakes.copy()
        length = np.linalg.norm(w if self.fit_intercept else w[:, :-1], axis=1)
        distances = (
            learner.y * (learner.X @ w[:, :-1].T + w[:, -1]).T / np.where(length > 0, length, 1)[:, None]
        )
        self.margin_ = distances.min(axis=1)
        X = learner.X
        squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("nd,nd->n", X, X)
        squares = squares.max() + float(self.fit_intercept)
        separated = self.margin_ > 0
        self.novikov_bound_ = np.where(separated, squares / np.where(separated, self.margin_, 1) ** 2, np.inf)

    def decision_function(self, X):
        """Return the signed scores of each class against the rest; (n,) for two classes."""
        return as_given(X, super().decision_function(self._read_again(to_numpy(X))))

    def predict(self, X):
        """Return the label with the largest score."""
        return as_given(X, super().predict(to_numpy(X)))

    def score(self, X, y=None, sample_weight=None):
        """Return the accuracy; the labels are those of the Dataset by default."""
        return super().score(X, given_target(self, X, y), sample_weight)

    def partial_fit(self, X, y=None, classes=None, sample_weight=None):
        """Run one epoch over X from the weights found so far; the first call must name all classes."""
        first = not hasattr(self, "coef_")
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        known = np.unique(classes) if first else self.classes_
        if classes is not None and not np.array_equal(known, np.unique(classes)):
            must = f"classes must be those of the first call ({known.tolist()})"
            raise errors.value("Perceptron", must, np.unique(classes).tolist())
        with self._rolled_back_on_failure():
            self._validate_params()
            X, y = self._read_batch(X, y, first)
            X = self._check(X, reset=first)
            labels = column_or_1d(to_numpy(y), warn=True)
            check_consistent_length(X, labels)
            if len(np.setdiff1d(labels, known)):
                raise errors.value(
                    "Perceptron", "y must hold known classes only", np.setdiff1d(labels, known)[0]
                )
            self.classes_ = known
            codes = np.searchsorted(known, labels)
            if sample_weight is not None:
                sample_weight = _check_sample_weight(
                    sample_weight, X, dtype=np.float64, ensure_non_negative=True
                )
            start = (None, None) if first else (self.coef_, self.intercept_)
            learner = self._learner(Data(X, codes, sample_weight, start))
            learner.step()
            before = 0 if first else self.mistakes_
            self._adopt(learner)
            self.mistakes_ = self.mistakes_ + before
        return self
