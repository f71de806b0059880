"""Regressors: one number per sample, or several."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from corollary import errors
from corollary.roles.targets import given_target
from corollary.validation import as_given, check_target, finite

__all__ = ["Regressor"]


class Regressor(RegressorMixin):  # type: ignore[misc]
    """Predicts numbers. Hook: ``_predict(X)`` of the shape of y."""

    role = "regressor"
    _multi_output: ClassVar[bool] = False

    def _check_y(self, X: Any, y: Any) -> Any:
        y = check_target(self, X, y, multi_output=self._multi_output)
        try:
            return y.astype(X.dtype if getattr(X, "dtype", None) in (np.float32, np.float64) else np.float64)
        except (TypeError, ValueError) as error:
            do = "Use a classifier if they are labels."
            raise errors.value(
                type(self).__name__, "y must hold numbers", repr(y.ravel()[:1].tolist()[0]), do
            ) from error

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination; the targets are those of the Dataset by default."""
        return float(super().score(X, given_target(self, X, y), sample_weight))

    def predict(self, X: Any) -> Any:
        """Return the predicted targets."""
        return as_given(X, finite(self, self._answer(self._predict, X)))  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn whether several targets at once are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._multi_output
        return tags
