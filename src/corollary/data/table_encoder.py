"""Mixed columns as numbers in a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.data.columns import LEFT_OUT, fit_columns, numbers_of
from corollary.data.detect import told_kinds
from corollary.data.encodings import headings
from corollary.data.frames import as_frame

__all__ = ["TableEncoder"]


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a frame of numbers, dates, categories and texts into numbers.

    Parameters
    ----------
    columns : dict of str to str, optional
        What columns are (number, category, date, text, id, ignore) where the reader would see it otherwise.
    gaps : bool, default=False
        Whether NaN may stay in numbers; otherwise they get the median and a column that says so.

    Attributes
    ----------
    columns_ : list of dict
        What was learned about each column, as plain values.

    Examples
    --------
    >>> import pandas as pd
    >>> from corollary.data import encoder
    >>> frame = pd.DataFrame({"height": [1.0, 3.0], "colour": ["red", "blue"]})
    >>> encoder().fit(frame).transform(frame)
    array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]])
    """

    def __init__(self, columns: dict[str, str] | None = None, gaps: bool = False):
        self.columns = columns
        self.gaps = gaps

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn how to read the columns."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn how to read the columns, and return them as numbers; mean targets are cross-fitted."""
        frame = self._frame(X)
        target = None
        if y is not None:
            target = "numbers" if type_of_target(y).startswith("continuous") else "classes"
        told = told_kinds(self.columns, frame.columns)
        self.columns_, numbers = fit_columns(frame, None, y, target, told, self.gaps)
        return numbers

    def transform(self, X: Any) -> np.ndarray:
        """Return the columns as numbers, read as in the fit."""
        check_is_fitted(self)
        return numbers_of(self._frame(X), self.columns_, "TableEncoder")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of numbers."""
        check_is_fitted(self)
        kept = [column for column in self.columns_ if column["kind"] not in LEFT_OUT]
        return np.array([name for column in kept for name in headings(column)], dtype=object)

    def _frame(self, X: Any) -> Any:
        frame = as_frame(X, "TableEncoder")
        if frame is None:
            must = "X must be a data frame, a dict of columns or rows with words"
            raise errors.kind("TableEncoder", must, type(X).__name__, "pd.DataFrame(X).")
        return frame
