"""Reading: from what a user has (data sets, frames of mixed columns, lists of texts) to the arrays that are checked.

The fit decides how words, dates and pixels become numbers, and keeps it in ``columns_``, ``pixel_levels_`` and ``reading_``;
new data are read in the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.base.hooks import Hooks
from corollary.data import kinds
from corollary.data.columns import as_columns, fit_columns, is_mixed, is_numeric, left_out, numbers_of
from corollary.data.convert import as_input
from corollary.data.dataset import Dataset
from corollary.data.frames import as_frame
from corollary.data.images import levels_of
from corollary.data.texts import as_texts, one_text
from corollary.roles import roles
from corollary.validation import check_complete, to_numpy

__all__ = ["Reading"]


class Reading(Hooks):
    """Reads training data, and new data as those of the fit were read."""

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return X and y of the training data as arrays; columns of words and dates are encoded, as ``columns_`` then says."""
        for name in ("columns_", "pixel_levels_", "reading_"):
            self.__dict__.pop(name, None)
        names, known = None, {}
        X = self._counted(X)
        if isinstance(X, Dataset):
            y = X.y if y is None else y
            X = self._given(X, None)
            if X.kind == "table":
                names, known = X.feature_names, X.extra.get("columns", {})
            if "reading" in X.extra:
                self.reading_ = X.extra["reading"]
            X = X.X
        if "image" in (self.input, *self.also):
            if self.input == "image" and isinstance(X, list | tuple):
                X = kinds.check_images(X, type(self).__name__, scale=False, bounded=False)
            if levels := levels_of(X):
                self.pixel_levels_ = levels
        X, frame = self._as_frame(X)
        gaps = self._checks.get("ensure_all_finite") == "allow-nan"
        if self.input != "table" or (frame is None and not names) or hasattr(X, "tocsr"):
            return X, y
        if frame is not None and names is None and not is_mixed(frame, gaps):
            return X, y
        uses = {"classifier": "classes", "regressor": "numbers"}
        target = next((uses[role] for role in roles(type(self)) if role in uses), None)
        worded = getattr(getattr(y, "dtype", None), "kind", "O") not in "biufUS"
        if target is not None and y is not None and worded:
            check_complete(type(self).__name__, np.asarray(y, dtype=object))
        self.columns_, X = fit_columns(X, names, to_numpy(y), target, known, gaps, self._takes_sparse())
        if note := left_out(self.columns_, type(self).__name__):
            warnings.warn(note, errors.CorollaryWarning, stacklevel=5)
        return X, y

    def _read_batch(self, X: Any, y: Any, first: bool) -> tuple[Any, Any]:
        """Return X and y of a batch for ``partial_fit``: the first batch decides how columns are encoded."""
        if first:
            return self._read(X, y)
        return self._read_again(X), X.y if y is None and isinstance(X, Dataset) else y

    def _read_again(self, X: Any) -> Any:
        """Return new data encoded as those of the fit were; an array is taken as it is."""
        columns, frame = getattr(self, "columns_", None), None
        X = self._counted(X)
        if isinstance(X, Dataset):
            X = self._given(X, getattr(self, "reading_", None))
            if columns is not None:
                return as_columns(X, columns, type(self).__name__, sparse=self._takes_sparse()).X
            X = X.X
        else:
            X, frame = self._as_frame(X)
        if frame is not None and columns is not None:
            return numbers_of(frame, columns, type(self).__name__, sparse=self._takes_sparse())
        if frame is not None and is_mixed(frame, gaps=True):
            strange = next(c for c, dtype in frame.dtypes.items() if not is_numeric(dtype))
            do = "Fit on a frame with that column, or leave it out."
            must = "X must hold numbers, as in the fit"
            raise errors.value(type(self).__name__, must, f"column {str(strange)!r} of other values", do)
        return X

    def _as_frame(self, X: Any) -> tuple[Any, Any]:
        """Return X of a table model, dicts of columns and records turned into a frame; and the frame, or None for an array."""
        if self.input != "table" or hasattr(X, "tocsr"):
            return X, None
        name, must = (
            type(self).__name__,
            "X must be numbers of shape (n, d), a data frame or a dict of columns",
        )
        if isinstance(X, str | Path):
            do = f"Read the file first: fit(data.load({str(X)!r}, target=...)), or predict(data.load({str(X)!r}))."
            raise errors.kind(name, must, f"the string {str(X)!r}", do)
        frame = as_frame(X, name)
        if frame is None and isinstance(X, Mapping):
            got = f"a dict whose {str(next(iter(X)))!r} is no column" if X else "an empty dict"
            raise errors.kind(name, must, got, "Make a list of it, with one value per row.")
        return (X if frame is None else frame), frame

    def _takes_sparse(self) -> bool:
        return bool(self._checks.get("accept_sparse", False))

    def _counted(self, X: Any) -> Any:
        """Return X; a list of texts given to a table model becomes a data set of texts, which is then read as word counts."""
        texts = as_texts(X) if self.input == "table" else None
        if texts is None:
            return X
        if not self._checks.get("accept_sparse"):
            do = "Use a model of texts (`corollary list --input text`), or make numbers of them first."
            must = "X must be numbers of shape (n, d)"
            raise errors.value(type(self).__name__, must, f"{len(texts)} texts", do)
        return Dataset(texts, kind="text", name="texts")

    def _given(self, dataset: Dataset, reading: Any) -> Dataset:
        """Return the data set converted to the estimator's input kind; the columns of a table are not encoded yet."""
        if dataset.kind == self.input == "table":
            return dataset
        if getattr(self, "reads_whole_files", False):
            dataset = one_text(dataset)
        return as_input(dataset, self.input, type(self).__name__, reading, self.also)
