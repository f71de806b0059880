"""Several labels per sample: lists of labels, or a table of zeros and ones with a column for each."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors

__all__ = ["indicators", "label_sets"]


def label_sets(y: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the labels there are and which of them each sample has (n, n_labels); None if y is something else.

    A table of zeros and ones whose rows all have a single one is something else: classes, one per sample.

    >>> label_sets([["sea", "sun"], [], ["sun"]])
    (array(['sea', 'sun'], dtype='<U3'), array([[1., 1.],
           [0., 0.],
           [0., 1.]]))
    >>> label_sets(["sea", "sun"]) is None
    True
    """
    listed = _lists(y)
    if listed is not None:
        classes = np.array(sorted({label for labels in listed for label in labels}))
        return (classes, indicators(listed, classes)) if len(classes) else None
    table = y.toarray() if hasattr(y, "toarray") else y
    names = [str(name) for name in y.columns] if hasattr(y, "columns") else None
    try:
        array = np.asarray(table)
    except ValueError:
        return None
    if (
        array.ndim != 2
        or array.shape[1] < 2
        or array.dtype.kind not in "biuf"
        or not np.isin(array, (0, 1)).all()
    ):
        return None
    if (array.sum(1) == 1).all():
        return None
    return np.arange(array.shape[1]) if names is None else np.array(names), array.astype(np.float64)


def indicators(y: Any, classes: np.ndarray, owner: str = "fit") -> np.ndarray:
    """Return which of these labels each sample has; raise if it has another one."""
    listed = _lists(y)
    if listed is None:
        array = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        if array.ndim != 2 or array.shape[1] != len(classes):
            must = f"y must have one list of labels per sample, or {len(classes)} columns of zeros and ones"
            raise errors.value(owner, must, f"shape {array.shape}")
        return array.astype(np.float64)
    place = {label: i for i, label in enumerate(classes.tolist())}
    out = np.zeros((len(listed), len(classes)))
    for row, labels in zip(out, listed):
        for label in labels:
            if label not in place:
                raise errors.unknown(owner, "label", str(label), [str(name) for name in place])
            row[place[label]] = 1.0
    return out


def _lists(y: Any) -> list[list[Any]] | None:
    """Return lists, tuples or sets of labels; lists of numbers of one length are a table."""
    if isinstance(y, np.ndarray) and y.ndim == 2 and all(isinstance(label, str) for label in y.flat):
        return [*map(list, y.tolist())]
    if not isinstance(y, list | tuple) and not (
        isinstance(y, np.ndarray) and y.dtype == object and y.ndim == 1
    ):
        return None
    parts = list(y)
    if not parts or not all(isinstance(part, list | tuple | set | frozenset) for part in parts):
        return None
    plain = [[label.item() if isinstance(label, np.generic) else label for label in part] for part in parts]
    numbers = all(isinstance(label, int | float) for part in plain for label in part)
    if (
        numbers
        and len({len(part) for part in plain}) == 1
        and not any(isinstance(part, set | frozenset) for part in parts)
    ):
        return None
    return plain
