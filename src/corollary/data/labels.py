"""Names of users, items and nodes: from what a model is asked with to the numbers it computes with, and back.

A model that was fitted to a table of (user, item, value), or to a graph whose nodes have names, speaks in these names. One
that was fitted to a matrix, or to a graph numbered from 0, has row, column and node numbers only.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import as_array
from corollary.data.indices import check_index

__all__ = ["as_names", "named", "names_to_keep", "places", "places_of_pairs"]


def names_to_keep(labels: Any) -> np.ndarray | None:
    """Return labels as an array of strings or integers; None where they say no more than numbers from 0 do.

    >>> names_to_keep([0, 1, 2]), names_to_keep(["a", "b"]).tolist(), names_to_keep([(0, 1), (1, 0)])
    (None, ['a', 'b'], None)
    """
    if labels is None:
        return None
    labels = list(labels)
    words = all(isinstance(label, str) for label in labels)
    if not words and not all(
        isinstance(label, int | np.integer) and not isinstance(label, bool) for label in labels
    ):
        return None
    array = np.array(labels)
    if len(np.unique(array)) != len(array) or (not words and np.array_equal(array, np.arange(len(array)))):
        return None
    return array


def places(
    values: Any, names: Any, size: int, what: str, owner: str, *, strangers: bool = False
) -> np.ndarray:
    """Return the numbers of users, items or nodes, given by name if there are names and by number otherwise.

    Parameters
    ----------
    values : array-like, or one of them
        Names or numbers.
    names : ndarray, optional
        The names, in the order of their numbers.
    size : int
        How many there are.
    what : str
        What they are called, for messages.
    owner : str
        Who asks.
    strangers : bool, default=False
        Whether a name that is not there is -1, with a warning, rather than an error.

    Examples
    --------
    >>> places(["b", "a"], np.array(["a", "b"]), 2, "user", "ALS")
    array([1, 0])
    """
    if names is None:
        array = np.atleast_1d(as_array(values))
        if array.dtype.kind in "US" or (
            array.dtype == object and any(isinstance(v, str) for v in array.ravel())
        ):
            do = (
                "Fit it to a table of (user, item, value), or to a graph whose nodes have names, to use them."
            )
            must = f"{what}s of this model are numbers from 0 to {size - 1}"
            raise errors.kind(owner, must, repr(array.ravel().tolist()[0]), do)
        return check_index(values, size, what, owner)
    given = [values] if isinstance(values, str | bytes) or np.ndim(values) == 0 else list(values)
    known = {name: i for i, name in enumerate(np.asarray(names).tolist())}
    plain = [value.item() if isinstance(value, np.generic) else value for value in given]
    # ids that were read as numbers may be given as words, and words as numbers
    if any(_absent(value, known) for value in plain):
        by_word = {str(name): i for name, i in known.items()}
        found = [known[v] if not _absent(v, known) else by_word.get(str(v), -1) for v in plain]
    else:
        found = [known[value] for value in plain]
    lost = [value for value, place in zip(plain, found) if place < 0]
    if lost and not strangers:
        raise errors.unknown(owner, what, str(lost[0]), [str(name) for name in list(known)[:1000]])
    if lost:
        some = (
            f"{len(lost)} {what}s that the fit has not seen, the first {lost[0]!r}"
            if len(lost) > 1
            else f"{what} {lost[0]!r}"
        )
        text = f"{owner}: {some}: answered as the average {what} would be."
        text = (
            text
            if len(lost) > 1
            else f"{owner}: the fit has not seen {some}; answered as the average {what} would be."
        )
        warnings.warn(text, errors.CorollaryWarning, stacklevel=4)
    return np.array(found, dtype=np.int64)


def _absent(value: Any, known: dict[Any, int]) -> bool:
    try:
        return value not in known
    except TypeError:  # a list, for instance
        return True


def places_of_pairs(
    pairs: Any,
    names: tuple[Any, Any],
    shape: tuple[int, int],
    what: tuple[str, str],
    owner: str,
    *,
    strangers: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Return row and column numbers of (row, column) pairs, given by name or by number."""
    if hasattr(pairs, "iloc"):
        columns = [pairs.iloc[:, j].tolist() for j in range(min(2, pairs.shape[1]))]
        ok = pairs.shape[1] == 2
    elif hasattr(pairs, "ndim"):
        array = as_array(pairs)
        ok, columns = array.ndim == 2 and array.shape[1] == 2, [*array.T] if array.ndim == 2 else []
    else:
        listed = [
            tuple(pair) if not isinstance(pair, str) and np.ndim(pair) == 1 else (pair,) for pair in pairs
        ]
        ok, columns = all(len(pair) == 2 for pair in listed), [list(column) for column in zip(*listed)]
    if ok and not columns:
        columns = [np.empty(0, np.int64), np.empty(0, np.int64)]
    if not ok:
        got = f"shape {np.shape(pairs)}" if hasattr(pairs, "shape") else repr(pairs)[:60]
        do = f"Pass np.column_stack([{what[0]}s, {what[1]}s]), or [({what[0]}, {what[1]})]."
        raise errors.value(owner, "pairs must have shape (n, 2)", got, do)
    rows, others = (
        places(values, labels, size, word, owner, strangers=strangers)
        for values, labels, size, word in zip(columns, names, shape, what)
    )
    return rows, others


def as_names(numbers: np.ndarray, names: Any) -> np.ndarray:
    """Return numbers as names, and -1 as the empty name; as they are where there are no names.

    >>> as_names(np.array([1, -1]), np.array(["a", "b"])).tolist()
    ['b', '']
    """
    if names is None:
        return numbers
    names = np.asarray(names)
    found = names[np.maximum(numbers, 0)]
    return np.where(numbers < 0, "" if names.dtype.kind in "US" else -1, found)


def named(X: Any, keys: tuple[str, ...]) -> tuple[np.ndarray | None, ...]:
    """Return the names that a data set has under these keys of its ``extra``."""
    extra = getattr(X, "extra", None) or {}
    return tuple(names_to_keep(extra.get(key)) for key in keys)
