r"""Knowledge distillation: a student learns the probabilities that a teacher gives to all classes.

A teacher with logits :math:`v` says more with a temperature :math:`T > 1`, which brings out how it ranks the wrong classes,

.. math:: p_T(k \mid x) = \frac{e^{v_k / T}}{\sum_j e^{v_j / T}} \propto p(k \mid x)^{1/T}. \tag{1}

From the second form it can be had of any classifier with probabilities. A student with logits :math:`z` and tempered
probabilities :math:`q_T` minimises, with a share :math:`\alpha` for the labels themselves,

.. math:: (1 - \alpha)\, T^2\, H(p_T, q_T) + \alpha\, H(y, q_1), \qquad H(p, q) = -\textstyle\sum_k p_k \log q_k. \tag{2}

The gradient of :math:`H(p_T, q_T)` by the logits is :math:`(q_T - p_T) / T` and shrinks as :math:`1 / T^2`, hence the factor:
it keeps both parts on one scale. For large :math:`T` (2) matches the logits themselves.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from torch import Tensor

from corollary import errors
from corollary.base import Classifier, Data
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.objective import Supervised
from corollary.engine.training import Training
from corollary.gradient import GradientClassifier, GradientTrained
from corollary.losses import CrossEntropy, weighted_mean
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
from corollary.shapes import Maybe, Model
from corollary.validation import check_target

__all__ = ["Distiller", "Tempered", "tempered"]

FLOOR = 1e-30  # probabilities below it are taken as it: their logarithms are not infinite


# --- equations -------------------------------------------------------------------------------------------


def tempered(p: np.ndarray, temperature: float) -> np.ndarray:
    """Return probabilities (n, k) at a temperature, eq. 1.

    >>> tempered(np.array([[0.9, 0.1]]), 2.0).round(3)
    array([[0.75, 0.25]])
    """
    logits = np.log(np.maximum(p, FLOOR)) / temperature
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


class Tempered:
    """Eq. 2 as a criterion; the target (n, 2k) holds tempered probabilities and, beside them, the labels as indicators."""

    def __init__(self, criterion: CrossEntropy, temperature: float, hard_weight: float) -> None:
        self.criterion, self.temperature, self.hard_weight = criterion, temperature, hard_weight
        self.n_classes, self.soften = criterion.n_classes, criterion.soften

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """Return one loss per sample."""
        soft, hard = target[:, : self.n_classes], target[:, self.n_classes :]
        T = self.temperature
        cool = tuple(z / T for z in output) if isinstance(output, tuple) else output / T
        losses = (1 - self.hard_weight) * T**2 * self.criterion(cool, soft)
        return losses + self.hard_weight * self.criterion(output, hard) if self.hard_weight else losses

    def accuracy(self, output: Any, target: Tensor) -> Tensor:
        """Return where the student predicts the label, or the teacher's class if labels have no weight."""
        soft, hard = target[:, : self.n_classes], target[:, self.n_classes :]
        return self.criterion.accuracy(output, hard if self.hard_weight else soft)


class _Fitting(Iteration):
    """Fit a student that is no network in one step: every sample once for each class, weighted by its target."""

    saved = ("student",)
    varying = {"student": Maybe(Model())}
    can_diverge = False

    def __init__(self, student: Any, X: Any, target: np.ndarray, settings: dict[str, Any]) -> None:
        super().__init__(max_iter=1)
        self.work = (student, X, target, settings)
        self.student: Any = None

    def step(self) -> Metrics | None:
        """Fit; a student whose time was up is fitted anew when the fit goes on."""
        student, X, target, settings = self.work
        rows, codes = np.nonzero(target > target.max(1, keepdims=True) * 1e-9)
        with apart(settings):
            self.student = student.fit(rows_of(X, rows), codes, sample_weight=target[rows, codes])
        return None if was_stopped(self.student) else super().step()

    def sweep(self) -> Metrics:
        """Count one fit."""
        return {}


# --- the estimator ---------------------------------------------------------------------------------------


class Distiller(Classifier, Around):
    r"""Train a student classifier on the predicted probabilities of a teacher.

    A small student reaches more than from the labels alone, and answers faster than its teacher. Samples without labels
    serve too: ``fit(X)`` learns from a fitted teacher alone.

    Parameters
    ----------
    teacher : classifier or str, default="mlp"
        Any classifier with probabilities. One that is not fitted, as in a clone, is fitted to the same data first.
    student : classifier or str, default="mlp"
        What is trained: a network by (2); any other whose ``fit`` takes weights by the tempered targets as weights.
    temperature : float, default=2.0
        Above 1 brings out what the teacher thinks of the wrong classes.
    hard_weight : float, default=0.1
        The share of the loss that compares with the labels; 0 learns from the teacher alone.
    random_state : int or RandomState, optional
        Seed of the student, and of a teacher that is fitted here.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    student_ : classifier
        The fitted student; it knows the classes as 0, 1, ... ``student_.save(path)`` writes it alone.
    teacher_ : classifier
        The teacher, if it was fitted here.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    A student that is not trained by gradients has no temperature of its own: it learns the targets
    :math:`(1 - \alpha) p_T + \alpha y`. A file holds the student and the parameters, not a teacher's weights.

    References
    ----------
    .. [1] G. Hinton, O. Vinyals, J. Dean (2015). Distilling the knowledge in a neural network. arXiv 1503.02531.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import Distiller, MLPClassifier, Training
    >>> X, y = load_iris(return_X_y=True)
    >>> teacher = MLPClassifier((50, 50), training=Training(learning_rate=0.01), random_state=0).fit(X, y)
    >>> student = MLPClassifier((4,), training=Training(learning_rate=0.02))
    >>> model = Distiller(teacher, student, temperature=3.0, random_state=0).fit(X)  # no labels
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _around = ("student", "teacher")
    _fitted = {"student_": Model(), "teacher_": Maybe(Model())}
    _parameter_constraints = {
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "hard_weight": [Interval(Real, 0, 1, closed="both")],
        "random_state": ["random_state"],
    }

    def __init__(self, teacher=None, student=None, *, temperature=2.0, hard_weight=0.1, random_state=None):
        self.teacher = teacher
        self.student = student
        self.temperature = temperature
        self.hard_weight = hard_weight
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        from corollary.networks.mlp import MLPClassifier

        student = MLPClassifier((8,), training=Training(epochs=15, learning_rate=5e-2))
        return {"teacher": "softmax-regression", "student": student}

    def _plain_params(self) -> dict[str, Any]:
        """Return what a file holds: of teacher and student the parameters alone."""
        params = self.get_params(deep=False)
        bare = {
            name: member_of(params[name], self._default, type(self).__name__, name)
            for name in self._around
            if not isinstance(params[name], str | None)
        }
        return {**params, **bare}

    # --- classes and teachers ----------------------------------------------------------------------------

    def _ready(self) -> bool:
        """Whether the teacher is fitted already."""
        if self.teacher is None or isinstance(self.teacher, str):
            return False
        try:
            check_is_fitted(self.teacher)
        except NotFittedError:
            return False
        return True

    def _check_y(self, X: Any, y: Any) -> Any:
        if not self._ready():
            y = super()._check_y(X, y)
        elif y is None:
            self.classes_ = np.asarray(self.teacher.classes_)
        else:
            y = check_target(self, X, y)
            self.classes_ = np.asarray(self.teacher.classes_)
            self._check_known(np.unique(y), self.classes_, "teacher")
            y = np.searchsorted(self.classes_, y)
        if hasattr(self.student, "classes_"):
            self._check_known(self.classes_, np.asarray(self.student.classes_), "student")
        return y

    def _check_known(self, labels: np.ndarray, classes: np.ndarray, name: str) -> None:
        """Raise unless labels are classes of the teacher, or all classes of the student."""
        if len(np.setdiff1d(labels, classes)) or (name == "student" and len(classes) != len(labels)):
            must = f"the {name} must know the classes {labels.tolist()}"
            do = "Fit it to data with the same labels, or pass one that is not fitted."
            raise errors.value(type(self).__name__, must, f"one of {classes.tolist()}", do)

    def _taught(self, data: Data) -> np.ndarray:
        """Return the teacher's probabilities of our classes; fit it first, as a fit of the run, if it is not."""
        if self._ready():
            teacher, codes = self.teacher, False
        else:
            teacher, codes = self._new("teacher"), True
            self.teacher_ = teacher.fit(data.X, data.y)
        if not hasattr(teacher, "predict_proba"):
            do = "Use a classifier with predict_proba, for instance through CalibratedClassifierCV."
            raise errors.value(type(self).__name__, "the teacher must have probabilities", repr(teacher), do)
        if codes:
            return aligned(teacher, data.X, len(self.classes_))
        return np.asarray(teacher.predict_proba(self._named(teacher, data.X)), dtype=np.float64)

    def _named(self, teacher: Any, X: Any) -> Any:
        """Return a table with the names of its columns, where it came with them and the teacher knows its own."""
        if not (hasattr(self, "feature_names_in_") and hasattr(teacher, "feature_names_in_")):
            return X
        import pandas as pd

        return pd.DataFrame(X, columns=self.feature_names_in_)

    def _new(self, name: str) -> Any:
        """Return a new teacher or student with its seed."""
        member = member_of(getattr(self, name), self._default, type(self).__name__, name)
        if not is_classifier(member):
            raise errors.kind(type(self).__name__, f"{name} must be a classifier", repr(member))
        return member if self.random_state is None else with_seed(member, self._seed())

    # --- learning ----------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Any:
        settings, student = self._settings(), self._new("student")
        kinds = [getattr(part, "input", "table") for part in (self._member("teacher"), student)]
        if kinds[0] != kinds[1]:
            must = "teacher and student must take the same kind of samples"
            raise errors.value(type(self).__name__, must, f"{kinds[0]} and {kinds[1]}")
        self.__dict__.pop("teacher_", None)
        soft = tempered(self._taught(data), self.temperature)
        alpha = 0.0 if data.y is None else float(self.hard_weight)
        self._soft = soft
        hard = soft if data.y is None else np.eye(len(self.classes_))[data.y]
        aim = student._aim() if _descends(student, len(self.classes_)) else None
        if aim is not None and isinstance(aim.criterion, CrossEntropy):
            return self._descent(student, aim, data, soft, hard, alpha)
        if not has_fit_parameter(student, "sample_weight"):
            must = "the student must be a network, or its fit must take sample_weight"
            raise errors.value(type(self).__name__, must, repr(student), "Use another student.")
        return _Fitting(student, data.X, (1 - alpha) * soft + alpha * hard, settings)

    def _descent(
        self, student: Any, aim: Supervised, data: Data, soft: np.ndarray, hard: np.ndarray, alpha: float
    ) -> Any:
        """Return the student's own learner with eq. 2 for its loss."""
        given = student._data(data.X, soft, None)  # learns sizes, classes and how to read X
        weight = student._weights(given._replace(y=hard))
        if getattr(student, "class_weight", None) is not None:
            student.set_params(class_weight=None)  # it is in the weights now
        criterion = Tempered(aim.criterion, self.temperature, alpha)

        def metrics(output: Any, batch: Any) -> dict[str, Tensor]:
            right = criterion.accuracy(output, batch.target).double()
            return {"accuracy": weighted_mean(right, None if batch.weight is None else batch.weight.double())}

        given = given._replace(y=np.concatenate([soft, hard], axis=1), sample_weight=weight)
        student._measure(given)
        learner = student._descend(
            Supervised(criterion, forward=aim.forward, metrics=metrics), student._batches(given)
        )
        learner.student = student
        return learner

    def _drive(self, learner: Any, data: Data, *how: Any) -> Any:
        """Drive the student; a checkpoint of what another teacher said is not resumed."""
        return super()._drive(learner, data._replace(extra=self.__dict__.pop("_soft")), *how)

    def _member(self, name: str) -> Any:
        return member_of(getattr(self, name), self._default, type(self).__name__, name)

    def _stopping(self) -> Any:
        return self._prototype()._stopping() if isinstance(self._prototype(), GradientTrained) else None

    def _total(self, learner: Any) -> int | None:
        return learner.student._total(learner) if hasattr(learner, "training") else super()._total(learner)

    def _adopt(self, learner: Any) -> None:
        if hasattr(learner, "training"):
            learner.student._adopt(learner)
            learner.student.history_ = []
        if learner.student is not None:
            self.student_ = learner.student

    def _predict_proba(self, X: Any) -> np.ndarray:
        return aligned(self.student_, X, len(self.classes_))

    def _differentiable(self) -> tuple[Any, Any]:
        return mixture([(self.student_, None)], len(self.classes_), type(self).__name__)


def _descends(student: Any, n_classes: int) -> bool:
    """Whether a student is a network that the engine trains by the usual route; it is told its classes."""
    if not isinstance(student, GradientClassifier) or type(student)._learner is not GradientTrained._learner:
        return False
    student.classes_ = np.arange(n_classes)
    return True
