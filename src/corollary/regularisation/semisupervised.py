r"""Semi-supervised learning: self-training with pseudo-labels, and a consistency penalty.

*Self-training*: a classifier learns the samples with labels, then takes its own answers for labels where it is sure,
:math:`\max_k p(k \mid x) \ge \tau` (pseudo-labels), and learns again, until nothing new is sure. *Consistency*: a network is
to say the same of a sample whichever units drop and whatever small noise is added, labelled or not,

.. math::
    \mathcal L + \lambda\, \frac{1}{n} \sum_i
    \lVert p(\cdot \mid x_i + \varepsilon_i) - p(\cdot \mid x_i + \varepsilon'_i) \rVert^2, \tag{1}

with :math:`\mathcal L` over the samples with labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor, nn

from corollary import errors
from corollary.base import Classifier, Data
from corollary.engine.batches import Batch
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.regulariser import Regulariser
from corollary.engine.training import Training
from corollary.gradient import GradientClassifier
from corollary.regularisation.around import Around, aligned, apart, mixture, rows_of, was_stopped, with_seed
from corollary.shapes import Array, Maybe, Model
from corollary.validation import check_target, to_numpy

__all__ = ["Consistency", "SelfTraining", "has_label"]


def has_label(y: Any) -> np.ndarray:
    """Return which samples have a label: -1, None and NaN mean none.

    >>> has_label(["a", None, "b"]).tolist(), has_label([0, 1, -1]).tolist()
    ([True, False, True], [True, True, False])
    """
    y = np.asarray(y)
    if y.dtype == object:
        return np.array(
            [not (label is None or label != label or _minus_one(label)) for label in y], dtype=bool
        )
    if y.dtype.kind == "f":
        return np.asarray(~np.isnan(y) & (y != -1))
    return np.asarray(y != -1) if y.dtype.kind in "iu" else np.ones(len(y), dtype=bool)


def _minus_one(label: Any) -> bool:
    return not isinstance(label, str | bool) and label == -1


class Consistency(Regulariser):
    """Penalise that two passes of a network say different things of the same samples, eq. 1.

    Parameters
    ----------
    rate : float
        The factor of the penalty.
    noise : float, default=0.1
        Standard deviation of the noise on real inputs in both passes; dropout makes them differ too.
    """

    name = "consistency"
    needs_target = True

    def __init__(self, rate: float, noise: float = 0.1) -> None:
        self.rate = rate
        self.noise = noise

    def attach(self, learner: Any) -> None:
        """Check the rate."""
        super().attach(learner)
        self._check(0.0)

    def on_loss(self, loss: Tensor, module: nn.Module, batch: Batch) -> Tensor:
        """Return the penalised loss."""
        one, other = (self._said(module, batch.inputs) for _ in range(2))
        return loss + self.rate * (one - other).square().sum(-1).mean()

    def _said(self, module: nn.Module, inputs: Sequence[Any]) -> Tensor:
        noisy = tuple(
            t + self.noise * torch.randn_like(t) if isinstance(t, Tensor) and t.is_floating_point() else t
            for t in inputs
        )
        out = self._learner.players[0].objective.output(module, noisy)
        return (out[0] if isinstance(out, tuple) else out).softmax(1)  # type: ignore[no-any-return]


class _Rounds(Iteration):
    """Fit, label what is sure, and fit again; a step is a round."""

    saved = ("member", "codes", "round")
    varying = {"member": Maybe(Model())}
    can_diverge = False

    def __init__(self, model: Any, data: Data, seed: int, settings: dict[str, Any]) -> None:
        super().__init__(max_iter=model.max_iter + 1)
        self.model, self.data, self.seed, self.settings = model, data, seed, settings
        self.member: Any = None
        self.codes = np.array(data.y)
        self.round = np.where(self.codes >= 0, 0, -1)

    def step(self) -> Metrics | None:
        """Fit to the labels there are; a round whose time was up does not count, and is done anew when the fit goes on."""
        member = with_seed(self.model._prototype(), self.seed)
        with apart(self.settings):
            member = self.model._taught(member, self.data.X, self.codes)
        if was_stopped(member):
            self.member = self.member or member
            return None
        self.member = member
        return super().step()

    def sweep(self) -> Metrics:
        """Add the labels that are sure."""
        known = np.flatnonzero(self.codes >= 0)
        with apart(self.settings):
            open_ = np.flatnonzero(self.codes < 0)
            if not len(open_) or self.n_iter > self.model.max_iter:
                self.converged = True
                return {"labelled": float(len(known))}
            said = aligned(self.member, rows_of(self.data.X, open_), len(self.model.classes_))
        sure = said.max(1) > self.model.threshold
        self.codes[open_[sure]] = said[sure].argmax(1)
        self.round[open_[sure]] = self.n_iter
        self.converged = not sure.any()
        return {"labelled": float(len(known) + sure.sum())}


class SelfTraining(Classifier, Around):
    """Semi-supervised classification: pseudo-labels for unlabelled samples where the classifier is confident.

    Parameters
    ----------
    estimator : classifier or str, default="mlp"
        Any classifier with probabilities, of any kind of samples, or its id in the catalog.
    threshold : float, default=0.75
        Probability above which an answer becomes a label. Higher takes fewer, with fewer errors.
    max_iter : int, default=10
        Most rounds in which labels are added.
    consistency : float, default=0.0
        Factor of the penalty (1) on all samples, for networks.
    random_state : int or RandomState, optional
        Seed of the members.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimator_ : classifier
        The last fit; it knows the classes as 0, 1, ...
    transduction_ : ndarray of shape (n_samples,)
        The class of each training sample, given or found, as a number into ``classes_``; -1 where none was sure.
    n_iter_ : int
        Rounds of fitting.
    labeled_iter_ : ndarray of shape (n_samples,)
        The round in which it was found; 0 for those given, -1 for none.
    history_ : list of dict
        A row per round, with the number of samples that have a label.

    Notes
    -----
    In y, -1, None and NaN mean no label. The rounds are those of scikit-learn's SelfTrainingClassifier with a threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from corollary import SelfTraining
    >>> X, y = load_iris(return_X_y=True)
    >>> few = np.where(np.arange(150) % 10 == 0, y, -1)  # 15 labels
    >>> bool(SelfTraining("softmax-regression").fit(X, few).score(X, y) > 0.8)
    True
    """

    _expected_failures = {"check_classifiers_classes": "it takes -1 for a class, which here means no label"}
    _fitted = {
        "estimator_": Model(),
        "transduction_": Array(None, kind="iu", low=-1),
        "labeled_iter_": Array("transduction_", kind="iu", low=-1),
    }
    _parameter_constraints = {
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "consistency": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, estimator=None, *, threshold=0.75, max_iter=10, consistency=0.0, random_state=None):
        self.estimator = estimator
        self.threshold = threshold
        self.max_iter = max_iter
        self.consistency = consistency
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"estimator": "softmax-regression", "max_iter": 3}

    def _check_y(self, X: Any, y: Any) -> np.ndarray:
        """Return the codes of the classes, -1 where there is no label."""
        if y is None:
            check_target(self, X, y)
        given = np.asarray(y, dtype=object) if isinstance(y, list) else np.asarray(to_numpy(y))
        given = column_or_1d(given, warn=True) if given.ndim == 2 else given
        there = has_label(given)
        given = np.where(there, given, given[there][0] if there.any() else given)  # none is missing now
        given = check_target(self, X, np.asarray(given.tolist()) if given.dtype == object else given)
        if not there.any():
            must = "some samples must have a label (-1, None and NaN mean none)"
            raise errors.value(type(self).__name__, must, "none that has", "Label a few of each class.")
        check_classification_targets(given[there])
        self.classes_, codes = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"the one class {self.classes_.tolist()[0]!r}"
            raise errors.value(type(self).__name__, "y must have at least two classes", got)
        return np.where(there, codes, -1)

    def _learner(self, data: Data) -> _Rounds:
        member = self._prototype()
        if not is_classifier(member) or not hasattr(type(member), "predict_proba"):
            must = "estimator must be a classifier with probabilities"
            raise errors.kind(type(self).__name__, must, repr(self.estimator))
        if self.consistency and not isinstance(member, GradientClassifier):
            must = "consistency needs a network"
            raise errors.value(type(self).__name__, must, repr(self.estimator), "Leave it at 0.")
        return _Rounds(self, data, self._seed(), self._settings())

    def _taught(self, member: Any, X: Any, codes: np.ndarray) -> Any:
        """Return a member fitted to the samples with labels; with consistency the others take part, without weight."""
        known = np.flatnonzero(codes >= 0)
        if not self.consistency:
            return member.fit(rows_of(X, known), codes[known])
        plan = member.training if member.training is not None else Training()
        kept = plan.get_params(deep=False)
        kept["regularisers"] = (*(plan.regularisers or ()), Consistency(float(self.consistency)))
        weight = (codes >= 0).astype(np.float64)
        return member.set_params(training=Training(**kept)).fit(X, np.maximum(codes, 0), sample_weight=weight)

    def _adopt(self, learner: _Rounds) -> None:
        if learner.member is not None:
            self.estimator_ = learner.member
            self.n_iter_ = learner.n_iter
            self.transduction_, self.labeled_iter_ = learner.codes.copy(), learner.round.copy()

    def _predict_proba(self, X: Any) -> np.ndarray:
        return aligned(self.estimator_, X, len(self.classes_))

    def _differentiable(self) -> tuple[Any, Any]:
        return mixture([(self.estimator_, None)], len(self.classes_), type(self).__name__)
