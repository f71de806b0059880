"""Tables that people hold in plain Python, as data frames: columns by name, records, rows of words and numbers.

===============================================  ==================================================
``{"size": [1, 2], "colour": ["red", "blue"]}``  columns by name
``{"size": 1, "colour": "red"}``                 one row
``[{"size": 1, "colour": "red"}, ...]``          a row each; a key that is absent is a gap
``[[1, "red"], [2, None]]``                      rows with words, dates or gaps: ``x0``, ``x1``, ...
named tuples, structured arrays                  rows with the names of their fields
``numpy`` arrays of strings or objects           as rows
``frame.iloc[0]``                                one row
===============================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.columns import frame_of

__all__ = ["as_frame"]

_CONTAINERS = (Mapping, list, tuple, set, frozenset, np.ndarray)


def as_frame(X: Any, owner: str = "load", words: bool = True) -> Any:
    """Return a table as a pandas frame, or None if it is an array of numbers or no table at all.

    Parameters
    ----------
    X : Any
        A frame, or one of the forms at the head of this module.
    owner : str
        Name at the start of error messages.
    words : bool, default=True
        Whether rows of nothing but words are a table; otherwise they may be sequences of tokens.

    Examples
    --------
    >>> as_frame([[1, "red"], [2, None]])
       x0   x1
    0   1  red
    1   2  NaN
    """
    if hasattr(X, "tocsr"):  # one of SciPy's sparse matrices is a dict
        return None
    if isinstance(X, Mapping):
        return _by_name(X, owner)
    if isinstance(X, list | tuple) and len(X):
        return _by_row(X, owner, words)
    if isinstance(X, np.ndarray):
        return _of_array(X)
    if hasattr(X, "to_frame") and getattr(X, "index", None) is not None and X.index.inferred_type == "string":
        return X.to_frame().T.infer_objects()  # a row of a frame
    return frame_of(X)


def _by_name(columns: Mapping[Any, Any], owner: str) -> Any:
    """Return columns of one length as a frame, single values as its only row, anything else as None."""
    import pandas as pd

    depths = {_depth(column) for column in columns.values()}
    if depths == {0}:
        return pd.DataFrame([{**columns}])
    if depths != {1}:
        return None
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len({*lengths.values()}) > 1:
        few, many = (pick(lengths, key=lambda name: lengths[name]) for pick in (min, max))
        got = f"{lengths[few]} in {few!r} and {lengths[many]} in {many!r}"
        raise errors.value(owner, "columns must have one length", got, "Write None where a value is missing.")
    return pd.DataFrame({name: _values(column) for name, column in columns.items()})


def _depth(column: Any) -> int:
    """Return how many axes a column has; lists of lists have two, whatever their lengths."""
    if isinstance(column, str | bytes | Mapping):
        return 2 if isinstance(column, Mapping) else 0
    if hasattr(column, "ndim"):
        return int(column.ndim)
    if not isinstance(column, Iterable):
        return 0
    return 2 if any(isinstance(value, _CONTAINERS) for value in column) else 1


def _values(column: Any) -> Any:
    """Return a column without an index of its own, which pandas would join by."""
    column = column.detach().cpu() if hasattr(column, "detach") else column
    return (
        column.array
        if hasattr(column, "iloc")
        else np.asarray(column)
        if hasattr(column, "ndim")
        else [*column]
    )


def _by_row(rows: Any, owner: str, words: bool) -> Any:
    import pandas as pd

    if all(isinstance(row, Mapping) for row in rows):
        return pd.json_normalize([{**row} for row in rows])
    if not all(isinstance(row, list | tuple) for row in rows):
        return None
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1 and words:
        got = f"rows of {lengths[0]} and of {lengths[-1]} values"
        raise errors.value(
            owner, "the rows of a table must have one length", got, "Write None for what is missing."
        )
    kinds = [{*map(type, row)} for row in rows]
    if len(lengths) > 1 or not _beyond_numbers(set().union(*kinds)):
        return None
    if not words and all(kind == {str} for kind in kinds):
        return None
    return _named(pd.DataFrame([*map(tuple, rows)]), getattr(rows[0], "_fields", None))


def _beyond_numbers(kinds: set[type]) -> bool:
    """Whether values are those of a table that no array of numbers can hold: words, dates or gaps, and no containers."""
    if any(issubclass(kind, _CONTAINERS) for kind in kinds):
        return False
    return any(issubclass(kind, str | date | np.datetime64 | type(None)) for kind in kinds)


def _of_array(X: np.ndarray) -> Any:
    import pandas as pd

    if X.dtype.names and X.ndim == 1:
        return pd.DataFrame.from_records(X)
    if X.ndim != 2 or X.dtype.kind not in "OU" or not X.size:
        return None
    if X.dtype.kind == "O" and not _beyond_numbers({*map(type, X.flat)}):
        return None
    return _named(pd.DataFrame(X), None)


def _named(frame: Any, names: Any) -> Any:
    frame = frame.infer_objects()
    return frame.set_axis([*names] if names else [f"x{i}" for i in range(frame.shape[1])], axis=1)
