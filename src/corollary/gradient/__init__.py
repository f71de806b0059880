"""Base classes of all estimators trained by gradient descent: classifiers, regressors, taggers.

A subclass stores ``training`` and ``random_state``, builds ``_module()`` from fitted sizes, and returns
``self._descend(objective, batches)`` from ``_learner``. Classifiers, regressors and taggers get weights, soft targets and
losses from three base classes of their own, so that every one of them takes the same.
"""

from __future__ import annotations

from corollary.gradient.classifier import GradientClassifier
from corollary.gradient.codes import known_codes
from corollary.gradient.regressor import GradientRegressor
from corollary.gradient.tagger import GradientTagger
from corollary.gradient.trained import GradientTrained

__all__ = ["GradientClassifier", "GradientRegressor", "GradientTagger", "GradientTrained", "known_codes"]
