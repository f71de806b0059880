r"""Bagging: the same estimator fitted to bootstrap samples, and its answers averaged.

From :math:`n` samples, :math:`K` times :math:`n` are drawn with replacement; of each draw's :math:`n` samples a share
:math:`1 - (1 - 1/n)^n \to 1 - 1/e \approx 0.632` are distinct. The members :math:`\theta^k` fitted to them answer together,

.. math:: p(y \mid x) = \frac{1}{K} \sum_{k=1}^{K} p(y \mid x; \theta^k), \tag{1}

whose log-loss is at most the mean of theirs (Jensen), and whose squared error is theirs less the variance among them. The
samples that a member has not seen, about 37 %, are *out of its bag*: the members without a sample answer for it as for new
data, and the score of these answers estimates the score on new data without any held out.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import is_classifier, is_regressor
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import has_fit_parameter

from corollary import errors
from corollary.base import Classifier, Data, Estimator, Regressor
from corollary.engine.interrupts import time_left
from corollary.engine.learner import Iteration, Metrics
from corollary.regularisation.around import (
    Around,
    aligned,
    apart,
    member_of,
    mixture,
    rows_of,
    was_stopped,
    with_seed,
)
from corollary.shapes import Array, Index, List, Maybe, Model, Number

__all__ = ["Bagging", "BaggingClassifier", "BaggingRegressor", "Bag", "draw"]

DRAWS = 100  # tries for a bag with more than one class in it


# --- what a bag is ---------------------------------------------------------------------------------------


class Bag(NamedTuple):
    """The samples that a member is fitted to, the features that it sees, and its seed."""

    rows: np.ndarray
    features: np.ndarray | None  # None: all
    seed: int


def draw(
    seed: int, sizes: tuple[int, int], *, rows: int, features: int, bootstrap: bool, bootstrap_features: bool
) -> Bag:
    """Draw a bag from ``sizes`` samples and features; from a seed it is the one that scikit-learn draws."""
    rng = check_random_state(seed)
    columns = _indices(rng, bootstrap_features, sizes[1], features) if sizes[1] else None
    chosen = _indices(rng, bootstrap, sizes[0], rows)
    whole = columns is not None and features == sizes[1] and not bootstrap_features
    return Bag(chosen, None if whole else columns, seed)


def _indices(rng: Any, bootstrap: bool, n: int, size: int) -> np.ndarray:
    if bootstrap:
        return np.asarray(rng.randint(0, n, size))
    return np.asarray(sample_without_replacement(n, size, random_state=rng))


def _fitted(member: Any, bag: Bag, data: Data, settings: dict[str, Any]) -> Any:
    """Return a member fitted to its bag; the work of one job.

    Estimators of other libraries that take weights get all samples, and as weights how often each was drawn: trees sort each
    sample once.
    """
    with apart(settings):
        member = with_seed(member, bag.seed)
        if isinstance(member, Estimator) or not has_fit_parameter(member, "sample_weight"):
            return member.fit(_seen(rows_of(data.X, bag.rows), bag), data.y[bag.rows])
        drawn = np.bincount(bag.rows, minlength=len(data.y)).astype(np.float64)
        return member.fit(_seen(data.X, bag), data.y, sample_weight=drawn)


def _seen(X: Any, bag: Any) -> Any:
    features = bag if bag is None or isinstance(bag, np.ndarray) else bag.features
    return X if features is None else X[:, features]


class _Members(Iteration):
    """Fit the members one by one, or several at a time in processes, and sum their out-of-bag predictions."""

    saved = ("members", "sums", "counts")
    varying = {"members": List(Model())}
    can_diverge = False

    def __init__(self, model: Any, data: Data, bags: list[Bag], settings: dict[str, Any]) -> None:
        super().__init__(max_iter=len(bags))
        self.model, self.data, self.bags, self.settings = model, data, bags, settings
        self.members: list[Any] = []
        self.unfinished_member: Any = None
        self.ahead: dict[int, Any] = {}  # members that other jobs have fitted already
        n = len(data.y)
        self.sums, self.counts = np.zeros((n, *model._answer_shape(data))), np.zeros(n)

    def step(self) -> Metrics | None:
        """Fit the next member; one whose time was up does not count, and is fitted anew when the fit goes on."""
        k = len(self.members)
        if k not in self.ahead:
            self._fit_ahead(k)
        if was_stopped(self.ahead[k]):
            self.unfinished_member = self.ahead[k]
            self.ahead = {}
            return None
        return super().step()

    def sweep(self) -> Metrics:
        """Take in the next member."""
        k = len(self.members)
        member = self.ahead.pop(k)
        if self.model.oob_score and self.model.bootstrap:
            out = np.setdiff1d(np.arange(len(self.data.y)), self.bags[k].rows)
            if len(out):
                with apart(self.settings):
                    said = self.model._answers(member, _seen(rows_of(self.data.X, out), self.bags[k]))
                self.sums[out] += said
                self.counts[out] += 1
        self.members.append(member)
        score = self.score()
        return {} if score is None else {"oob_score": score}

    def _fit_ahead(self, k: int) -> None:
        several = max(1, effective_n_jobs(self.model.n_jobs))
        settings = self.settings if several == 1 else {**self.settings, "time_limit": time_left()}
        bags = dict(enumerate(self.bags[k : k + several], k))
        jobs = (delayed(_fitted)(self.model._prototype(), bag, self.data, settings) for bag in bags.values())
        self.ahead = dict(zip(bags, Parallel(self.model.n_jobs)(jobs)))

    def answers(self) -> np.ndarray:
        """Return the mean out-of-bag predictions; NaN for a sample that is in every bag."""
        counts = self.counts.reshape(-1, *[1] * (self.sums.ndim - 1))
        return np.divide(self.sums, counts, out=np.full_like(self.sums, np.nan), where=counts > 0)

    def score(self) -> float | None:
        """Return the out-of-bag score, over the samples that have a prediction."""
        there = self.counts > 0
        if there.sum() < 2:
            return None
        return self.model._score(self.data.y[there], self.answers()[there])


# --- estimators ------------------------------------------------------------------------------------------


class _BaseBagging(Around):
    _parameter_constraints = {
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "max_samples": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="right"),
        ],
        "max_features": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="right"),
        ],
        "bootstrap": ["boolean"],
        "bootstrap_features": ["boolean"],
        "oob_score": ["boolean"],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
    }
    _fitted = {
        "estimators_": List(Model()),
        "estimators_features_": List(Maybe(Index(None, below="n_features_in_")), n="estimators_"),
        "oob_score_": Maybe(Number()),
    }

    def __init__(
        self,
        estimator=None,
        n_estimators=10,
        *,
        max_samples=1.0,
        max_features=1.0,
        bootstrap=True,
        bootstrap_features=False,
        oob_score=True,
        n_jobs=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.bootstrap_features = bootstrap_features
        self.oob_score = oob_score
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learner(self, data: Data) -> _Members:
        self._check_role()
        return _Members(self, data, self._bags(data), self._settings())

    def _bags(self, data: Data) -> list[Bag]:
        n, d = len(data.y), data.X.shape[1] if self.input == "table" else 0
        sizes = {"rows": self._size("max_samples", n), "features": self._size("max_features", d) if d else 0}
        if not d and (self.max_features != 1.0 or self.bootstrap_features):
            must = "features can be drawn of tables only"
            raise errors.value(type(self).__name__, must, f"{self.input}s", "Leave max_features at 1.0.")
        how = {**sizes, "bootstrap": self.bootstrap, "bootstrap_features": self.bootstrap_features}
        start = self._seed() if self.random_state is None else self.random_state
        seeds = check_random_state(start).randint(np.iinfo(np.int32).max, size=self.n_estimators)
        return [self._bag(int(seed), (n, d), how, data.y) for seed in seeds]

    def _bag(self, seed: int, sizes: tuple[int, int], how: dict[str, Any], y: np.ndarray) -> Bag:
        """Return a bag of a seed; where only one class is in it, that of the next seed."""
        for more in range(DRAWS):
            bag = draw(seed + more, sizes, **how)
            if not isinstance(self, Classifier) or len(np.unique(y[bag.rows])) > 1:
                return bag
        must = "a bag must hold more than one class"
        raise errors.value(type(self).__name__, must, f"one in {DRAWS} draws", "Raise max_samples.")

    def _size(self, name: str, n: int) -> int:
        """Return the number of samples or features of n, given as a share or as a number."""
        wanted = getattr(self, name)
        size = max(1, int(wanted * n)) if isinstance(wanted, float) else int(wanted)
        if size > n:
            raise errors.value(type(self).__name__, f"{name} must be at most {n}", size)
        return size

    def _adopt(self, learner: _Members) -> None:
        if not learner.members and learner.unfinished_member is None:
            return
        self.estimators_ = list(learner.members) or [learner.unfinished_member]
        self.estimators_features_ = [bag.features for bag in learner.bags[: len(self.estimators_)]]
        for name in ("oob_score_", self._out_of_bag):
            self.__dict__.pop(name, None)
        score = learner.score()
        if score is not None:
            self.oob_score_ = score
            setattr(self, self._out_of_bag, learner.answers())

    def _mean(self, X: Any) -> np.ndarray:
        """Return the mean answer of the members, eq. 1."""
        total: Any = 0.0
        for member, features in zip(self.estimators_, self.estimators_features_):
            total = total + self._answers(member, _seen(X, features))
        return np.asarray(total / len(self.estimators_))


class BaggingClassifier(Classifier, _BaseBagging):
    """Average the probabilities of classifiers fitted to bootstrap samples.

    Helps most where the estimator has a high variance: deep networks, trees, few data.

    Parameters
    ----------
    estimator : classifier or str, default="mlp"
        What is fitted again and again: any classifier, of any kind of samples, or its id in the catalog. One of
        scikit-learn is taken too, but can be neither saved nor resumed.
    n_estimators : int, default=10
        Members. More vary less, and cost in proportion.
    max_samples, max_features : int or float, default=1.0
        Samples and, of tables, features that a member sees, as a number or a share.
    bootstrap, bootstrap_features : bool, default=True and False
        Whether they are drawn with replacement.
    oob_score : bool, default=True
        Whether to estimate the accuracy on new data from the samples that members have not seen; needs ``bootstrap``.
    n_jobs : int, optional
        Members fitted at once, in processes; -1 takes all processors. The result does not depend on it.
    random_state : int or RandomState, optional
        Seed for the bags and for the members.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimators_ : list of classifiers
        The members; they know the classes as 0, 1, ...
    estimators_features_ : list of ndarray
        The features that each sees; None for all.
    oob_score_ : float
        Out-of-bag accuracy: each sample is predicted by the members that were not fitted to it.
    oob_decision_function_ : ndarray of shape (n_samples, n_classes)
        Their probabilities; NaN for a sample that is in every bag.
    history_ : list of dict
        A row per member, with the score out of the bags so far.

    Notes
    -----
    Bags and seeds are those of scikit-learn's class of the same name. A bag with one class only is drawn again. A step is one
    member: a fit that is stopped is usable with those it has, and resumed with the next.

    References
    ----------
    .. [1] L. Breiman (1996). Bagging predictors. Machine Learning 24(2), 123-140.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import BaggingClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BaggingClassifier("softmax-regression", 20, random_state=0).fit(X, y)
    >>> bool(model.oob_score_ > 0.9)
    True
    """

    _out_of_bag = "oob_decision_function_"
    _fitted = {"oob_decision_function_": Maybe(Array(None, "classes_", finite=False))}

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"estimator": "softmax-regression", "n_estimators": 4}

    def _check_role(self) -> None:
        if not is_classifier(self._prototype()):
            do = "Use Bagging(estimator), or BaggingRegressor for numbers."
            raise errors.kind(type(self).__name__, "estimator must be a classifier", repr(self.estimator), do)

    def _answer_shape(self, data: Data) -> tuple[int, ...]:
        return (len(self.classes_),)

    def _answers(self, member: Any, X: Any) -> np.ndarray:
        return aligned(member, X, len(self.classes_))

    def _score(self, y: np.ndarray, answers: np.ndarray) -> float:
        return float(np.mean(answers.argmax(1) == y))

    def _predict_proba(self, X: Any) -> np.ndarray:
        return self._mean(X)

    def _differentiable(self) -> tuple[Any, Any]:
        members = list(zip(self.estimators_, self.estimators_features_))
        return mixture(members, len(self.classes_), type(self).__name__)


class BaggingRegressor(Regressor, _BaseBagging):
    """Average the predictions of regressors fitted to bootstrap samples.

    Parameters
    ----------
    estimator : regressor or str, default="mlp-regressor"
        What is fitted again and again: any regressor, of any kind of samples, or its id in the catalog. One of
        scikit-learn is taken too, but can be neither saved nor resumed.
    n_estimators : int, default=10
        Members. More vary less, and cost in proportion.
    max_samples, max_features : int or float, default=1.0
        Samples and, of tables, features that a member sees, as a number or a share.
    bootstrap, bootstrap_features : bool, default=True and False
        Whether they are drawn with replacement.
    oob_score : bool, default=True
        Whether to estimate the score on new data from the samples that members have not seen; needs ``bootstrap``.
    n_jobs : int, optional
        Members fitted at once, in processes; -1 takes all processors. The result does not depend on it.
    random_state : int or RandomState, optional
        Seed for the bags and for the members.

    Attributes
    ----------
    estimators_ : list of regressors
        The members.
    estimators_features_ : list of ndarray
        The features that each sees; None for all.
    oob_score_ : float
        Out-of-bag R2: each sample is predicted by the members that were not fitted to it.
    oob_prediction_ : ndarray of shape (n_samples,)
        Their predictions; NaN for a sample that is in every bag.
    history_ : list of dict
        A row per member, with the score out of the bags so far.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from corollary import Bagging, BaggingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BaggingRegressor("ridge", 20, random_state=0).fit(X, y)
    >>> bool(model.oob_score_ > 0.3)
    True
    """

    _default = "mlp-regressor"
    _out_of_bag = "oob_prediction_"
    _fitted = {"oob_prediction_": Maybe(Array(None, finite=False))}

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"estimator": "ridge", "n_estimators": 4}

    def _check_role(self) -> None:
        if not is_regressor(self._prototype()):
            do = "Use Bagging(estimator), or BaggingClassifier for classes."
            raise errors.kind(type(self).__name__, "estimator must be a regressor", repr(self.estimator), do)

    def _answer_shape(self, data: Data) -> tuple[int, ...]:
        return ()

    def _answers(self, member: Any, X: Any) -> np.ndarray:
        return np.asarray(member.predict(X), dtype=np.float64)

    def _score(self, y: np.ndarray, answers: np.ndarray) -> float:
        return float(r2_score(y, answers))

    def _predict(self, X: Any) -> np.ndarray:
        return self._mean(X)


def Bagging(estimator: Any = None, n_estimators: int = 10, **params: Any) -> Any:
    """Return a :class:`BaggingClassifier` or a :class:`BaggingRegressor`, by what the estimator is.

    >>> from corollary import Bagging
    >>> Bagging("ridge", 5), Bagging("mlp", n_jobs=2)
    (BaggingRegressor(estimator='ridge', n_estimators=5), BaggingClassifier(estimator='mlp', n_jobs=2))
    """
    member = member_of(estimator, "mlp", "Bagging")
    for wanted, cls in ((is_classifier, BaggingClassifier), (is_regressor, BaggingRegressor)):
        if wanted(member):
            return cls(estimator, n_estimators, **params)
    must = "estimator must be a classifier or a regressor, whose answers can be averaged"
    raise errors.kind("Bagging", must, repr(estimator))
