"""What a model declares and what it writes: class variables, and the hooks that the base classes call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from corollary import errors
from corollary.engine.learner import Learner
from corollary.engine.loop import EarlyStopping
from corollary.shapes import Columns, Count, Labels, List, Maybe, Number, Plain, Record, Text

__all__ = ["Data", "Hooks"]


class Data(NamedTuple):
    """Validated data of a fit: inputs, targets, sample weights."""

    X: Any
    y: Any = None
    sample_weight: np.ndarray | None = None
    extra: Any = None
    validation: Any = None  # another one of these, which is only measured on


class Hooks(BaseEstimator):  # type: ignore[misc]
    """Settings and hooks of a model, without any of the machinery that calls them."""

    input: ClassVar[str] = "table"
    also: ClassVar[tuple[str, ...]] = ()  # further kinds of input that are taken as they are
    # What a fitted model holds: type, shape and range of every attribute; joined to the tables of the bases.
    _fitted: ClassVar[Mapping[str, Any]] = {
        "n_features_in_": Maybe(Count(1)),
        "feature_names_in_": Maybe(Labels("n_features_in_")),
        "n_iter_": Maybe(Count()),
        "history_": Maybe(List(Record(Number(finite=False)))),
        "columns_": Maybe(Columns()),
        "pixel_levels_": Maybe(Count(1)),
        "stopped_": Maybe(Text()),
        "reading_": Maybe(Plain()),
    }
    # How scikit-learn (tables) or `corollary.data.kinds` (the rest) shall check X.
    _checks: ClassVar[Mapping[str, Any]] = {}
    _reads_sources: ClassVar[bool] = False  # whether X may be a source: data that are read batch by batch
    _parameter_constraints: ClassVar[dict[str, Any]] = {}  # scikit-learn's form; what has none is not checked

    def _learner(self, data: Data) -> Learner:
        """Return the learner that fits checked data."""
        raise NotImplementedError

    def _adopt(self, learner: Any) -> None:
        """Copy what was learned into fitted attributes."""
        raise NotImplementedError

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        """Return sizes and types of checked training data by fitted attribute; one that is None is not kept.

        Further data are checked against them, and a module is built of them. The number of columns of a table is kept by
        scikit-learn's own check.
        """
        return {}

    def _stopping(self) -> EarlyStopping | None:
        """Return the rule of early stopping; None leaves it to the run."""
        return None

    def _total(self, learner: Any) -> int | None:
        """Return the number of steps a fit may take, for the progress bar."""
        return getattr(learner, "max_iter", None)

    def _module(self) -> Any:
        """Return a new, untrained torch module of the fitted sizes; used when loading."""
        raise NotImplementedError

    def _check_y(self, X: Any, y: Any) -> Any:
        """Return checked targets, and keep what later calls need of them (classes); None where the model has no targets."""
        return None

    def _validation(self, given: Any) -> Data:
        """Return the checked validation data."""
        raise errors.kind(type(self).__name__, "there must be something to validate", "validation data")

    def _given_parts(self) -> dict[str, Any]:
        """Return the parameters that no file can hold (modules, functions): :func:`corollary.load` has to be given them again."""
        return {}
