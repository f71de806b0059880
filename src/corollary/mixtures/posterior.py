r"""Base of the mixtures: labels, responsibilities and densities from joint log-probabilities of row and component.

.. math::
    p(x) = \sum_z p(x, z), \qquad p(z \mid x) = \frac{p(x, z)}{p(x)}, \qquad \hat z = \arg\max_z p(x, z). \tag{1}
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logsumexp

from corollary.base import Clusterer, Density, Generator
from corollary.validation import as_given

__all__ = ["BaseMixture"]


class BaseMixture(Clusterer, Density, Generator):
    """A mixture in one hook, ``_joint``."""

    def _joint(self, X: np.ndarray) -> np.ndarray:
        """Return log p(x, z), of shape (n, n_components)."""
        raise NotImplementedError

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return self._joint(X).argmax(axis=1)

    def predict_proba(self, X: Any) -> Any:
        """Return the posterior probability of each component, of shape (n, n_components)."""
        return as_given(X, self._answer(self._posterior, X))  # type: ignore[attr-defined]

    def _posterior(self, X: np.ndarray) -> np.ndarray:
        joint = self._joint(X)
        return np.exp(joint - logsumexp(joint, axis=1, keepdims=True)).astype(X.dtype)

    def _log_prob(self, X: np.ndarray) -> np.ndarray:
        return logsumexp(self._joint(X), axis=1).astype(X.dtype)
