"""Ratings: who gave what how much, as a sparse matrix whose rows are users.

:func:`check_ratings` validates the input of every completer and recommender; :func:`read_ratings` reads
files of triples (user, item, value), among them all that MovieLens publishes.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import as_array
from corollary.data.dataset import Dataset
from corollary.data.sources import Source, as_source

__all__ = [
    "check_ratings",
    "dataset_from",
    "from_frame",
    "from_triples",
    "read_ratings",
    "times_of",
    "triple_columns",
]

_USER, _ITEM, _VALUE = ("user",), ("item", "movie", "artist", "book"), ("rating", "value", "score", "count")
_TIME = re.compile(r"^(time|date|when)|time(stamp)?$|[^a-z]date$|_at$")


def check_ratings(X: Any, owner: str, *, shape: tuple[int, int] | None = None, labels: bool = False) -> Any:
    """Return ratings as a CSR matrix of floats, or say what is wrong with them.

    Parameters
    ----------
    X : sparse matrix, DataFrame of (user, item, value), 2-D array with NaN where unknown, or Source
        The ratings. An entry that a sparse matrix stores is a rating, even if it is 0. A source (a memory-mapped array, a
        ``ParquetTable`` with columns for user, item and value) is read block by block: only its ratings come into memory.
    owner : str
        Name of the estimator, used at the start of error messages.
    shape : (int, int), optional
        Numbers of users and items that X must have, because a model was fitted to them.
    labels : bool, default=False
        Whether to return the labels of users and items as well.

    Returns
    -------
    csr_matrix, or (csr_matrix, users, items)
        Duplicate pairs are resolved by the last one, with a warning.
    """
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        R, users, items = from_frame(X, owner)
    elif (source := as_source(X)) is not None:
        R, users, items = _from_source(source, owner)
    else:
        R = _matrix(X, owner)
        users, items = np.arange(R.shape[0]), np.arange(R.shape[1])
    if R.nnz == 0:
        raise errors.value(owner, "there must be at least one rating", f"none in shape {R.shape}")
    if not np.isfinite(R.data).all():
        do = "Leave unknown ratings out of the matrix."
        raise errors.value(owner, "ratings must be finite", "NaN or infinity", do)
    if shape is not None and R.shape != tuple(shape):
        _wrong_shape(R.shape, shape, owner)
    return (R, users, items) if labels else R


def _wrong_shape(got: tuple[int, int], shape: tuple[int, int], owner: str) -> None:
    must = f"X must have one row per user ({shape[0]}) and one column per item ({shape[1]})"
    do = "Pass X.T if rows are items." if got == (shape[1], shape[0]) else ""
    raise errors.value(owner, must, f"shape {got}", do)


def _matrix(X: Any, owner: str) -> Any:
    from scipy import sparse

    if not sparse.issparse(X):
        X = _dense(X, owner)
    elif X.ndim != 2:
        raise errors.value(owner, "ratings must be a matrix with a row per user", f"shape {X.shape}")
    if not (np.issubdtype(X.dtype, np.number) or X.dtype == bool) or np.iscomplexobj(X):
        raise errors.kind(owner, "ratings must be real numbers", str(X.dtype))
    if X.format == "csr" and X.has_canonical_format:
        R = sparse.csr_matrix(X)
    else:
        coo = X.tocoo()
        rows, columns = coo.coords if hasattr(coo, "coords") else (coo.row, coo.col)
        R = from_triples(rows, columns, coo.data, X.shape, owner)
    return R if np.issubdtype(R.dtype, np.floating) else R.astype(np.float32)


def _dense(X: Any, owner: str) -> Any:
    """Return a dense array with NaN for what is unknown as COO; known zeros stay ratings."""
    from scipy import sparse

    try:
        array = as_array(X)
        array = array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float32)
    except (TypeError, ValueError) as error:
        must = "ratings must be a sparse matrix, a frame of (user, item, value) or a 2-D array of numbers"
        raise errors.kind(owner, must, type(X).__name__) from error
    if array.ndim != 2:
        raise errors.value(owner, "ratings must be a matrix with a row per user", f"shape {array.shape}")
    rows, columns = np.nonzero(~np.isnan(array))
    return sparse.coo_matrix((array[rows, columns], (rows, columns)), shape=array.shape)


def _from_source(source: Source, owner: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the matrix of ratings on disk with the labels of its rows and columns."""
    from scipy import sparse

    names = getattr(source, "columns", ())
    triples = triple_columns(names)
    if triples is None:
        if source.ndim != 2:
            raise errors.value(owner, "ratings must be a matrix with a row per user", f"shape {source.shape}")
        R = sparse.vstack([_dense(block, owner).tocsr() for block in source.blocks()]).tocsr()
        return R, *map(np.arange, R.shape)
    places = [names.index(name) for name in triples]
    parts = [_triples(block[:, places], owner) for block in source.blocks()]
    users, rows = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    items, columns = np.unique(np.concatenate([part[1] for part in parts]), return_inverse=True)
    values = np.concatenate([part[2] for part in parts])
    return from_triples(rows, columns, values, (len(users), len(items)), owner), users, items


def _triples(block: np.ndarray, owner: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids of users and items, and values, of rows (user, item, value)."""
    for what, ids in (("user", block[:, 0]), ("item", block[:, 1])):
        wrong = ~((ids >= 0) & (ids == np.round(ids)))
        if wrong.any():
            must = f"{what} ids must be whole numbers from 0"
            raise errors.value(owner, must, f"{ids[wrong][0]}")
    return block[:, 0].astype(np.int64), block[:, 1].astype(np.int64), block[:, 2].astype(np.float32)


def from_triples(
    rows: Any, columns: Any, values: Any, shape: tuple[int, int] | None = None, owner: str = "load"
) -> Any:
    """Return the CSR matrix of these entries; of duplicates the last counts, with a warning."""
    from scipy import sparse

    rows, columns, values = np.asarray(rows, np.int64), np.asarray(columns, np.int64), np.asarray(values)
    shape = shape or (int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1)
    order = np.lexsort((columns, rows))  # stable: equal pairs keep the order in which they came
    rows, columns, values = rows[order], columns[order], values[order]
    last = np.ones(len(rows), bool)
    last[:-1] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    if not last.all():
        text = (
            f"{owner}: {len(last) - last.sum()} ratings repeat a (user, item) pair; the last of each counts."
        )
        warnings.warn(text, errors.CorollaryWarning, stacklevel=3)
    pairs = (rows[last], columns[last])
    return sparse.csr_matrix((values[last], pairs), shape=shape)


def from_frame(frame: Any, owner: str = "load") -> tuple[Any, np.ndarray, np.ndarray]:
    """Return the matrix of a frame of triples with the labels of its rows and columns, both sorted.

    Columns are found by name (``user``, ``item``, ``rating`` or ``value``, also as beginnings such
    as ``userId``); if one is not found, the first three are taken in that order. Where there are users and items alone, or
    with times, the value is how often each pair occurs.
    """
    if (pair := _pair_alone(frame.columns)) is not None:
        frame = frame.value_counts([*pair], sort=False, dropna=False).rename("count").reset_index()
    user, item, value = triple_columns(frame.columns) or _first_three(frame, owner)
    rows, users = _codes(frame[user], "user", owner)
    columns, items = _codes(frame[item], "item", owner)
    try:
        values = as_array(frame[value]).astype(np.float32)
    except (TypeError, ValueError) as error:
        must = f"ratings (column {str(value)!r}) must be numbers"
        raise errors.value(owner, must, str(frame[value].dtype)) from error
    if np.isnan(values).any():
        must = f"ratings (column {str(value)!r}) must be numbers"
        got = f"{np.isnan(values).sum()} missing of {len(values)}"
        raise errors.value(owner, must, got, "Leave unknown ratings out.")
    return from_triples(rows, columns, values, (len(users), len(items)), owner), users, items


def times_of(frame: Any, like: Any) -> np.ndarray | None:
    """Return when each stored entry of the matrix of a frame was made, as seconds or any number that grows; or None."""
    import pandas as pd

    user, item = (triple_columns(frame.columns) or frame.columns)[:2]
    column = next((name for name in frame.columns if _TIME.search(str(name).lower())), None)
    if column is None:
        return None
    times = frame[column]
    if not pd.api.types.is_numeric_dtype(times):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats that are guessed one by one
            times = pd.to_datetime(times, errors="coerce", utc=True)
        times = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    if times.isna().any():
        return None
    rows, columns = (pd.factorize(frame[name], sort=True)[0] for name in (user, item))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pairs that come again were spoken of when they were read
        found = from_triples(rows, columns, np.asarray(times, dtype=np.float64), like.shape)
    return np.asarray(found.data)


def triple_columns(names: Any) -> tuple[Any, Any, Any] | None:
    """Return the columns that hold user, item and value by their names, or None."""
    return _named(names, (_USER, _ITEM, _VALUE))  # type: ignore[return-value]


def _named(names: Any, wanted: tuple[tuple[str, ...], ...]) -> tuple[Any, ...] | None:
    """Return the first column whose name begins with one of the words, for each of these; None if one is not there."""
    hits = [next((n for n in names if str(n).lower().startswith(starts)), None) for starts in wanted]
    return None if None in hits else tuple(hits)


def _pair_alone(names: Any) -> tuple[Any, ...] | None:
    """Return the columns of users and items if there are no others but times."""
    pair = _named(names, (_USER, _ITEM))
    rest = [str(name).lower() for name in names if pair is not None and name not in pair]
    return pair if all(map(_TIME.search, rest)) else None


def _first_three(frame: Any, owner: str) -> list[Any]:
    if frame.shape[1] < 3:
        must = "ratings must have three columns (user, item, value)"
        do = "Call two of them user and item if each row is one time that a user turned to an item."
        raise errors.value(owner, must, f"{frame.shape[1]}: {', '.join(map(str, frame.columns))}", do)
    return list(frame.columns[:3])


def _codes(column: Any, what: str, owner: str) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    if column.isna().any():
        raise errors.value(owner, f"every {what} must have an id", f"{column.isna().sum()} missing")
    if pd.api.types.is_numeric_dtype(column) and (column < 0).any():
        raise errors.value(owner, f"{what} ids must not be negative", f"{column.min()}")
    codes, labels = pd.factorize(column, sort=True)
    return codes, np.asarray(labels)


def read_ratings(path: Path) -> Dataset:
    """Read a file of triples: comma, tab, ``::`` or blank between, with or without a header."""
    from corollary.data.tables import read_frame

    frame, _ = read_frame(path, separators=(",", "\t", "::", ";", " "))
    return dataset_from(frame, path)


def dataset_from(frame: Any, path: Path) -> Dataset:
    """Return a frame of triples as a data set."""
    R, users, items = from_frame(frame)
    extra: dict[str, Any] = {"users": users, "items": items}
    if (times := times_of(frame, R)) is not None:
        extra["times"] = times
    return Dataset(R, kind="ratings", name=path.stem, source=str(path), extra=extra)
