"""Checking: inputs, targets and weights in the canonical form of a model's input kind, or an error that says what is wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from corollary import errors
from corollary.base.hooks import Data
from corollary.base.reading import Reading
from corollary.data import kinds
from corollary.data.sources import Source, as_source
from corollary.validation import quick_sum, to_numpy

__all__ = ["Checking"]

_KIND_CHECKS: dict[str, Any] = {
    "graph": kinds.check_graph,
    "image": kinds.check_images,
    "ratings": kinds.check_ratings,
    "sequence": kinds.check_sequences,
    "set": kinds.check_sets,
    "text": kinds.check_texts,
}


class Checking(Reading):
    """Checks training data, and new data against those of the fit."""

    def _data(self, X: Any, y: Any, sample_weight: Any, extra: Any = None) -> Data:
        """Return the checked training data."""
        X, y = self._read(X, y)
        X = self._admit(X, reset=True)
        y = X.target if y is None and isinstance(X, Source) else y
        y = self._check_y(X, y)
        return self._keep_sizes(Data(X, y, self._check_weight(X, sample_weight), extra))

    def _keep_sizes(self, data: Data) -> Data:
        """Keep the sizes of training data as fitted attributes; return the data."""
        for name, size in self._fitted_sizes(data).items():
            if size is None:
                self.__dict__.pop(name, None)
            else:
                setattr(self, name, size)
        return data

    def _check_weight(self, X: Any, sample_weight: Any) -> np.ndarray | None:
        if sample_weight is None:
            return None
        samples = np.empty(X.num_nodes) if hasattr(X, "num_nodes") else X
        return _check_sample_weight(sample_weight, samples, dtype=np.float64, ensure_non_negative=True)  # type: ignore[no-any-return]

    def _admit(self, X: Any, reset: bool) -> Any:
        """Return checked data; a source (data on disk) stays there, and each block is checked when it is read."""
        source = as_source(X) if self._reads_sources else None
        if source is None:
            return self._check(X, reset)
        head = self._check(source.head(max(1, self._checks.get("ensure_min_samples", 1))), reset)
        if reset:
            self._keep_sizes(Data(head))  # what is read later is checked against them
        return source.map(partial(self._check, reset=self.input != "table"))

    def _check(self, X: Any, reset: bool) -> Any:
        """Return X in the canonical form of the estimator's input kind."""
        if self.input == "table":
            options = {"dtype": (np.float64, np.float32), **self._checks}
            if not reset:  # a single row may be asked about, and the features are compared with the fit's
                options = {key: value for key, value in options.items() if not key.startswith("ensure_min")}
            if getattr(X, "ndim", 0) > 2 and not options.get("allow_nd"):
                must = "X must be a table of shape (n, d)"
                do = "For images use a model of images (`corollary list --input image`), or X.reshape(len(X), -1)."
                got = f"an array with dim {X.ndim}, shape {tuple(X.shape)}"
                raise errors.value(type(self).__name__, must, got, do)
            X = to_numpy(X)
            floats = isinstance(X, np.ndarray) and X.dtype in (np.float32, np.float64)
            if floats and np.isfinite(quick_sum(X)):
                options["ensure_all_finite"] = False  # scikit-learn's own pass would find nothing
            return validate_data(self, X, reset=reset, **options)
        deep = {"levels": self._pixel_levels()} if self.input == "image" else {}
        return _KIND_CHECKS[self.input](X, type(self).__name__, **self._checks, **deep)

    def _pixel_levels(self) -> int:
        """Return the largest value of 16-bit pixels, which are divided by it: that of the fit, or 65535 if it saw 8 bits."""
        return getattr(self, "pixel_levels_", 65535)

    def _query(self, X: Any) -> Any:
        """Return new data checked, encoded as in the fit; raise if the model is not fitted."""
        check_is_fitted(self)
        return self._admit(self._read_again(X), reset=False)

    def _answer(self, hook: Any, X: Any) -> Any:
        """Return the result of a hook for new data; data on disk are processed block by block."""
        return self._by_blocks(hook, self._query(X))

    def _by_blocks(self, hook: Any, X: Any) -> Any:
        return np.concatenate([hook(block) for block in X.blocks()]) if isinstance(X, Source) else hook(X)
