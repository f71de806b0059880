"""The base class of all estimators."""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from corollary.base.fitting import Fitting
from corollary.base.saving import Saving

__all__ = ["Estimator"]


class Estimator(Fitting, Saving):
    """Base of every model: ``fit`` in terms of ``_learner`` and ``_adopt``."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : data of the estimator's input kind, or a Dataset
            What to learn from. A table may be a data frame of mixed columns, or a dict of columns, a list of dicts or
            rows with words: how they became numbers is then in ``columns_``, and new ones are read alike.
        y : array-like, optional
            Targets, where the model has any; those of the Dataset by default.

        Returns
        -------
        self
        """
        self._fit(X, y)
        return self

    def history_frame(self) -> Any:
        """Return ``history_`` as a data frame: a row per step, a column per metric, ready for ``.plot()``."""
        check_is_fitted(self)
        import pandas as pd

        columns = list(dict.fromkeys(name for row in self.history_ for name in row)) or ["step"]
        return pd.DataFrame(self.history_, columns=columns).set_index("step")

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn what kind of data is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.input == "table"
        tags.input_tags.string = self.input == "text"
        tags.input_tags.sparse = self._takes_sparse()
        tags.input_tags.allow_nan = self._checks.get("ensure_all_finite") == "allow-nan"
        tags.non_deterministic = False
        return tags
