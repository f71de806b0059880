"""Roles without targets: transformers, densities, generators, clusterers, topic models and associative memories."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClusterMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from corollary.validation import as_given, check_count, finite, to_numpy

__all__ = ["Clusterer", "Density", "Generator", "Memory", "TopicModel", "Transformer"]


class Transformer(TransformerMixin):  # type: ignore[misc]
    """Maps data to features. Hooks: ``_transform(X)`` and, where it can be undone, ``_inverse_transform(Z)``."""

    role = "transformer"

    def transform(self, X: Any) -> Any:
        """Return the features of X."""
        return as_given(X, finite(self, self._answer(self._transform, X)))  # type: ignore[attr-defined]

    @available_if(lambda self: hasattr(self, "_inverse_transform"))  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Any:
        """Return data from features: the inverse of ``transform``, or the nearest to it."""
        check_is_fitted(self)
        Z = check_array(to_numpy(X), dtype=(np.float64, np.float32), input_name="X")
        return as_given(X, finite(self, self._inverse_transform(Z)))  # type: ignore[attr-defined]


class Density:
    """Has a density. Hook: ``_log_prob(X)`` of shape (n,)."""

    role = "density"

    def score_samples(self, X: Any) -> Any:
        """Return the log-density of each sample, in nats."""
        return as_given(X, finite(self, self._answer(self._log_prob, X), log=True))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density per sample, in nats."""
        return float(np.mean(np.asarray(self._answer(self._log_prob, X), dtype=np.float64)))  # type: ignore[attr-defined]


class Generator:
    """Draws new samples. Hook: ``_sample(n, rng)``."""

    role = "generator"

    def sample(self, n_samples: int = 1) -> Any:
        """Draw new samples; with an integer ``random_state`` every call draws the same ones."""
        check_is_fitted(self)
        check_count(self, "n_samples", n_samples)
        return finite(self, self._sample(n_samples, self._rng()))  # type: ignore[attr-defined]


class Clusterer(ClusterMixin):  # type: ignore[misc]
    """Clusters samples. Hook: ``_predict(X)`` of shape (n,)."""

    role = "clusterer"

    def predict(self, X: Any) -> Any:
        """Return the cluster of each sample."""
        return as_given(X, finite(self, self._answer(self._predict, X)))  # type: ignore[attr-defined]

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit and return the cluster of each sample."""
        return self.fit(X, y).predict(X)  # type: ignore[attr-defined]


class TopicModel:
    """Explains counts of words by topics: has ``components_`` (topics, words) and ``perplexity(X)``."""

    role = "topic-model"


class Memory:
    """Recalls stored patterns. Hook: ``_recall(X)`` of the shape of X."""

    role = "memory"

    def recall(self, X: Any) -> Any:
        """Return, for each damaged pattern (cue), the stored state that recall ends in."""
        return as_given(X, finite(self, self._recall(self._query(X))))  # type: ignore[attr-defined]
