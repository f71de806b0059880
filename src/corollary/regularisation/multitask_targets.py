"""Targets of several tasks: read from dicts, frames and arrays, with gaps, as columns by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from corollary import errors
from corollary.validation import to_numpy

__all__ = ["ALONE", "TargetTable", "as_table", "kind_of", "plain", "present"]

MOST_CLASSES = 100  # whole numbers with more values than this are no labels, unless `tasks` says so
ALONE = "target"  # the name of a task that has none


class TargetTable(NamedTuple):
    """Targets by task, and the form in which they came."""

    columns: dict[str, np.ndarray]
    form: str  # vector, array, mapping or frame


def present(column: np.ndarray) -> np.ndarray:
    """Return which targets are there: not None, NaN or NaT."""
    if column.dtype.kind in "fc":
        return ~np.isnan(column)
    if column.dtype != object:
        return np.ones(len(column), bool)
    return np.array([not (value is None or value != value) for value in column], bool)


def plain(column: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Return the targets that are there, in a type of their own."""
    found = column[there]
    return np.array(found.tolist()) if found.dtype == object else found


def as_table(y: Any, rows: int, owner: str) -> TargetTable:
    """Return targets given as a dict, a frame, an array of columns or one vector, by task; raise unless each has n rows."""
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None.")
    if isinstance(y, Mapping):
        found = TargetTable({str(name): np.asarray(to_numpy(part)) for name, part in y.items()}, "mapping")
    elif hasattr(y, "columns") and hasattr(y, "to_numpy"):
        found = TargetTable({str(name): y[name].to_numpy() for name in y.columns}, "frame")
    else:
        array = np.asarray(to_numpy(y))
        if array.ndim > 2 or array.ndim == 0:
            do = "Pass a dict, a frame, or a column per task."
            raise errors.value(owner, "y must have one target per sample and task", array.shape, do)
        if array.ndim == 1:
            found = TargetTable({ALONE: array}, "vector")
        else:
            found = TargetTable({str(t): column for t, column in enumerate(array.T)}, "array")
    if not found.columns:
        raise errors.value(owner, "y must have at least one task", "none")
    for name, column in found.columns.items():
        if column.shape != (rows,):
            must = f"task {name!r} must have one target per sample ({rows})"
            raise errors.value(owner, must, f"shape {column.shape}", "Give samples without one NaN or None.")
    return found


def kind_of(column: np.ndarray) -> str:
    """Return what a task is from its targets: few whole numbers and words are labels."""
    if column.dtype.kind not in "iuf":
        return "classification"
    whole = column.dtype.kind in "iu" or np.array_equal(column, np.round(column))
    most = MOST_CLASSES if column.dtype.kind in "iu" else 20
    return "classification" if whole and len(np.unique(column)) <= most else "regression"
