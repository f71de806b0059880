"""Classifiers: one class per sample, soft targets, or several labels per sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from corollary import errors
from corollary.data.multilabel import indicators, label_sets
from corollary.roles.targets import class_weights, given_target
from corollary.shapes import Flag, Labels, Maybe
from corollary.validation import as_given, check_target, finite, to_numpy

__all__ = ["Classifier"]


class Classifier(ClassifierMixin):  # type: ignore[misc]
    """Predicts one of several classes. Hook: ``_predict_proba(X)`` of shape (n, n_classes)."""

    role = "classifier"
    _fitted: ClassVar[Mapping[str, Any]] = {"classes_": Labels(), "multilabel_": Maybe(Flag())}
    classes_: np.ndarray
    _soft_targets: ClassVar[bool] = False  # whether y may be probabilities (n, n_classes)
    _several_labels: ClassVar[bool] = False  # whether a sample may have any number of labels

    def _check_y(self, X: Any, y: Any) -> Any:
        self.__dict__.pop("multilabel_", None)
        several = label_sets(y) if y is not None else None
        if several is not None:
            self.classes_, y = several[0], self._check_labels(X, several[1])
            self.multilabel_ = True
            return y
        soft = self._soft_targets and _columns(y) > 1
        y = check_target(self, X, y, multi_output=soft)
        if soft:
            self.classes_ = np.arange(y.shape[1])
            return self._check_probabilities(y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise errors.value(
                type(self).__name__,
                "y must have at least two classes",
                f"the one class {self.classes_.tolist()[0]!r}",
            )
        return codes

    def _check_labels(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return which labels each sample has (n, n_labels)."""
        owner = type(self).__name__
        if not self._several_labels:
            do = "Use a model that takes several (MLPClassifier, TextCNN, BERTClassifier, SequenceClassifier), or scikit-learn's "
            raise errors.value(
                owner,
                "y must have one label per sample",
                "several",
                do + "MultiOutputClassifier around this one.",
            )
        if getattr(self, "class_weight", None) is not None:
            must = "class_weight is for one label per sample"
            raise errors.value(
                owner, must, f"several, and class_weight={self.class_weight!r}", "Leave it out."
            )  # type: ignore[attr-defined]
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(y) != rows:
            raise errors.value(owner, f"y must have one entry per sample ({rows})", len(y))
        return y

    def _check_probabilities(self, y: np.ndarray) -> np.ndarray:
        """Return soft targets (n, n_classes), whose classes are 0, 1, ..."""
        if y.dtype.kind not in "fiub" or y.min() < 0 or not np.allclose(y.sum(1), 1.0, atol=1e-4):
            got = f"shape {y.shape}, which are none"
            do = "Pass one label per sample, or rows that are not negative and sum to 1."
            raise errors.value(type(self).__name__, "y of two axes must hold probabilities", got, do)
        return y.astype(np.float64)

    def _weights(self, data: Any) -> np.ndarray | None:
        """Return each sample's weight, times that of its class where the model has a ``class_weight``."""
        if getattr(self, "class_weight", None) is None:
            return data.sample_weight  # type: ignore[no-any-return]
        by_class = class_weights(self.class_weight, self.classes_, data.y)  # type: ignore[attr-defined]
        return np.asarray(by_class if data.sample_weight is None else by_class * data.sample_weight)

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, in the order of ``classes_``; of several labels, each by itself."""
        return as_given(X, finite(self, self._answer(self._predict_proba, X)))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy; the labels are those of the Dataset by default. Of several labels, all must be right."""
        y = given_target(self, X, y)
        if getattr(self, "multilabel_", False):
            y = indicators(y, self.classes_, type(self).__name__).astype(np.int64)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> Any:
        """Return the most probable class; where samples have several labels, which of ``classes_`` each has (n, n_labels)."""
        chances = np.asarray(finite(self, self._answer(self._predict_proba, X)))  # type: ignore[attr-defined]
        if getattr(self, "multilabel_", False):
            return as_given(X, (chances > 0.5).astype(np.int64))
        return as_given(X, self.classes_[chances.argmax(axis=-1)])

    @available_if(lambda self: self._several_labels)  # type: ignore[untyped-decorator]
    def predict_labels(self, X: Any) -> list[list[Any]]:
        """Return the labels of each sample, the most probable first."""
        chances = np.asarray(self.predict_proba(X))
        if not getattr(self, "multilabel_", False):
            return [[label] for label in self.classes_[chances.argmax(1)].tolist()]
        order = np.argsort(-chances, axis=1, kind="stable")
        return [
            [self.classes_[j].item() for j in places_ if row[j] > 0.5] for row, places_ in zip(chances, order)
        ]


def _columns(y: Any) -> int:
    """Return the number of columns of a two-dimensional target; 1 for any other, ragged ones included."""
    try:
        shape = np.asarray(to_numpy(y)).shape
    except ValueError:
        return 1
    return int(shape[1]) if len(shape) == 2 else 1
