"""Taggers trained by gradient descent: the cross-entropy of every part of a sequence, a set or a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary.base import Data, Tagger
from corollary.gradient.codes import known_codes
from corollary.gradient.trained import GradientTrained

__all__ = ["GradientTagger"]


class GradientTagger(Tagger, GradientTrained):
    """A tagger whose criterion is the cross-entropy of every part, weighted by its sequence and its class."""

    def fit(self, X, y=None, sample_weight=None, *, validation=None):
        """Train on X with one list of labels y for each, optionally weighted.

        ``validation`` is a tuple (X, y) on which the loss is measured after every epoch.
        """
        return self._fit(X, y, sample_weight, validation=validation)

    def _known_y(self, X: Any, y: Any) -> list[np.ndarray]:
        return [known_codes(self, labels) for labels in self._labels(X, y)]

    def _supervision(self, data: Data, codes: list[np.ndarray] | None = None) -> tuple[Any, Any]:
        """Return the classes of the parts, and their weights; both ragged, so that padding weighs nothing."""
        from corollary.engine.ragged import Ragged

        codes = data.y if codes is None else codes
        weights = self._weights(codes, data.sample_weight)
        return Ragged.of(codes), Ragged.of([w.astype(getattr(self, "dtype_", "float32")) for w in weights])

    def _criterion(self) -> Any:
        from corollary.losses import CrossEntropy

        return CrossEntropy(len(self.classes_), axis=-1)

    def _graph(self) -> tuple[Any, Any, dict[str, Any]]:
        from corollary.export import Classes

        return self._graph_call(), Classes(-1), {"classes": np.asarray(self.classes_).tolist()}
