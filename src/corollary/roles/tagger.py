"""Taggers: one label for every step of a sequence, element of a set or token of a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from corollary import errors
from corollary.roles.targets import class_weights, given_target
from corollary.shapes import Labels
from corollary.validation import check_complete, finite

__all__ = ["Tagger"]


class Tagger:
    """Labels every part of a sequence, a set or a text. Hook: ``_probabilities(X)``, one array (parts, n_classes) each."""

    role = "tagger"
    _fitted: ClassVar[Mapping[str, Any]] = {"classes_": Labels()}
    classes_: np.ndarray
    _whole: ClassVar[str] = "sequence"
    _parts: ClassVar[str] = "steps"

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """Return, for each sample, the probabilities (parts, n_classes) of the labels of its parts."""
        return [finite(self, part) for part in self._probabilities(self._query(X))]  # type: ignore[attr-defined, no-any-return]

    def predict(self, X: Any) -> list[np.ndarray]:
        """Return, for each sample, the most probable label of every part."""
        return [self.classes_[p.argmax(1)] for p in self.predict_proba(X)]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the share of parts that are labelled rightly."""
        y = given_target(self, X, y)
        wanted, found = self._labels(self._query(X), y), self.predict(X)  # type: ignore[attr-defined]
        return float(np.mean(np.concatenate(wanted) == np.concatenate(found)))

    def _labels(self, X: Any, y: Any) -> list[np.ndarray]:
        owner, must = type(self).__name__, f"y must have one list of labels per {self._whole} ({len(X)})"
        if y is None or isinstance(y, str) or not hasattr(y, "__len__"):
            raise errors.kind(owner, must, type(y).__name__, f"Pass the labels of all {self._parts} as y.")
        if len(y) != len(X):
            raise errors.value(owner, must, len(y), "Leave out what has no labels.")
        listed = (part.tolist() if hasattr(part, "tolist") else part for part in y)
        labels = [np.asarray(list(part) if hasattr(part, "__iter__") else part) for part in listed]
        for i, (part, x) in enumerate(zip(labels, X)):
            if part.shape != (len(x),):
                must = f"{self._whole} {i} has {len(x)} {self._parts} and must have as many labels"
                do = f"Give the {self._parts} that have none a label of their own."
                raise errors.value(owner, must, f"labels of shape {part.shape}", do)
        return labels

    def _weights(self, codes: list[np.ndarray], sample_weight: np.ndarray | None) -> list[np.ndarray]:
        """Return the weight of every part: that of its sequence times that of its class."""
        flat = np.ones(sum(map(len, codes)))
        if getattr(self, "class_weight", None) is not None:
            flat = class_weights(self.class_weight, self.classes_, np.concatenate(codes))  # type: ignore[attr-defined]
        parts = np.split(flat, np.cumsum([len(part) for part in codes])[:-1])
        return parts if sample_weight is None else [part * w for part, w in zip(parts, sample_weight)]

    def _check_y(self, X: Any, y: Any) -> list[np.ndarray]:
        labels = self._labels(X, y)
        flat = np.concatenate(labels)
        check_complete(type(self).__name__, flat)
        check_classification_targets(flat)
        self.classes_, codes = np.unique(flat, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"only {self.classes_.tolist()[0]!r}"
            raise errors.value(type(self).__name__, "y must have at least two classes", got)
        return np.split(codes, np.cumsum([len(part) for part in labels])[:-1])
