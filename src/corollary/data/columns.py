"""How tables and texts became columns of numbers: learned once, kept as JSON, repeated on new data.

A model fitted to the columns *width, colour=blue, colour=red* must meet the same columns in new data, whatever their order
in the file, whatever else is there, and whichever categories happen to occur. What is kept of a column is one of

=============================  ==================================================================
``name``                       a number, taken as it is
``name fill mean scale``       a number beside other kinds of columns: filled, then standardised
``name fill mean scale date``  a date, in seconds, likewise
``name values``                a category, one column of zeros and ones for each value
=============================  ==================================================================

and of texts the ``words`` that are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset

__all__ = [
    "Reading",
    "as_columns",
    "as_counts",
    "dates_numbers_others",
    "is_numeric",
    "learn_columns",
    "numbers_of",
    "seconds",
]

Reading = dict[str, Any]


def is_numeric(dtype: Any) -> bool:
    """Whether a pandas type holds real numbers."""
    from pandas.api import types

    return bool(types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype))


def dates_numbers_others(frame: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the columns of a frame by kind."""
    dates = [c for c, d in frame.dtypes.items() if str(d).startswith(("datetime", "timedelta"))]
    numbers = [c for c, d in frame.dtypes.items() if is_numeric(d)]
    return dates, numbers, [c for c in frame.columns if c not in dates and c not in numbers]


# --- tables ----------------------------------------------------------------------------------------------


def learn_columns(X: Any, names: Any) -> list[Reading]:
    """Return how to read the columns of an array or of a frame of mixed columns."""
    if not hasattr(X, "iloc"):
        return [{"name": str(name)} for name in names or ()]
    dates, numbers, others = dates_numbers_others(X)
    found = [{"name": str(c), **_scaling(_floats(X[c]))} for c in numbers]
    found += [{"name": str(c), **_scaling(seconds(X[c])), "date": True} for c in dates]
    return found + [{"name": str(c), "values": _values(X[c])} for c in others]


def _scaling(values: np.ndarray) -> dict[str, float]:
    known = values[~np.isnan(values)]
    fill = float(np.median(known)) if len(known) else 0.0
    filled = np.where(np.isnan(values), fill, values)
    return {"fill": fill, "mean": float(filled.mean()), "scale": float(filled.std()) or 1.0}


def _values(column: Any) -> list[str | None]:
    """Return the categories in order; a missing value is one of them, the last."""
    texts: list[str | None] = [*sorted({str(value) for value in column.dropna().unique()})]
    return [*texts, None] if column.isna().any() else texts


def numbers_of(frame: Any, columns: list[Reading], owner: str = "load") -> np.ndarray:
    """Return the columns of a frame as a 2-D array of numbers, read as was learned."""
    by_name = {str(name): i for i, name in enumerate(frame.columns)}
    parts = [_read(frame.iloc[:, by_name[column["name"]]], column, owner) for column in columns]
    return np.column_stack(parts)


def _read(column: Any, how: Reading, owner: str) -> np.ndarray:
    if "values" in how:
        return _indicators(column, how["values"])
    try:
        values = seconds(column) if how.get("date") else _floats(column)
    except (TypeError, ValueError) as error:
        must = f"column {how['name']!r} must hold {'dates' if how.get('date') else 'numbers'}, as in the fit"
        raise errors.value(owner, must, str(column.dtype)) from error
    if "mean" not in how:
        return values
    return (np.where(np.isnan(values), how["fill"], values) - how["mean"]) / how["scale"]


def _indicators(column: Any, values: list[str | None]) -> np.ndarray:
    """Return (n, len(values)) zeros and ones; a value that was not met in the fit gives zeros."""
    import pandas as pd

    known = [value for value in values if value is not None]
    codes = pd.Index(known, dtype=object).get_indexer(column.astype(object).map(str))
    codes = np.where(column.isna(), len(known), codes)
    codes = np.where((codes < 0) | (codes >= len(values)), len(values), codes)
    return np.eye(len(values) + 1)[codes, : len(values)]


def _floats(column: Any) -> np.ndarray:
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def seconds(column: Any) -> np.ndarray:
    """Return dates of a column or a frame as numbers; NaN where there is none."""
    values = column.to_numpy().astype("datetime64[s]")
    return np.where(np.isnat(values), np.nan, values.astype(float))


def as_columns(dataset: Dataset, columns: list[Reading], owner: str) -> Dataset:
    """Return a table with the columns that were learned, found by their names where the data have names."""
    X, names = dataset.X, [str(name) for name in dataset.feature_names or ()]
    wanted = [column["name"] for column in columns]
    missing = [name for name in wanted if name not in names]
    if missing and (names or len(columns[0]) > 1):
        must, got = f"the data must have the columns of the fit; {missing[0]!r} is missing", ", ".join(names)
        raise errors.value(owner, must, got or "columns without names", "Name the columns as in the fit.")
    if hasattr(X, "iloc"):
        X = numbers_of(X, columns, owner)
    elif names and any(len(column) > 1 for column in columns):
        import pandas as pd

        X = numbers_of(pd.DataFrame(X, columns=names), columns, owner)
    elif names and names != wanted:
        X = X[:, [names.index(name) for name in wanted]]
    return replace(dataset, X=X, feature_names=_headings(columns) or dataset.feature_names)


def _headings(columns: list[Reading]) -> list[str]:
    return [
        column["name"] if value is ... else f"{column['name']}={value}"
        for column in columns
        for value in column.get("values", [...])
    ]


# --- texts -----------------------------------------------------------------------------------------------


def as_counts(dataset: Dataset, words: list[str] | None) -> Dataset:
    """Return texts as a sparse matrix of word counts: of these words, or of all but rare and very common ones."""
    from sklearn.feature_extraction.text import CountVectorizer

    many = len(dataset.X) >= 100
    reader = CountVectorizer(min_df=2 if many else 1, max_df=0.5 if many else 1.0)
    if words is not None:
        reader = CountVectorizer(vocabulary=words)
    counts = reader.fit_transform(dataset.X)
    names = reader.get_feature_names_out().tolist()
    return replace(dataset, X=counts.astype("float64"), kind="table", feature_names=names)
