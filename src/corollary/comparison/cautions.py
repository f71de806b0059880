"""What an expert would ask before believing a board: columns that give the target away, and rows that dates put in order.

A column that tells the target of every row by itself, such as the day on which a customer left, is often known only after
the target is. And where the target changes slowly with a date, rows that are held out at random lie between rows of the
training part: their score is that of gaps filled in, and not of a forecast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary.data.columns import is_numeric
from corollary.data.dataset import Dataset

__all__ = ["cautions"]

MEMBERS = 10  # of the rarest class: fewer are told apart by chance
COLUMNS = 10_000
TOGETHER = 0.5  # correlation of targets that follow each other, above which dates matter
SHOWN = 3


def cautions(dataset: Dataset, task: str) -> list[str]:
    """Return sentences about columns that tell too much, of a table with one target for each row."""
    y = dataset.y
    if dataset.kind != "table" or task not in ("classification", "regression") or hasattr(dataset.X, "tocsr"):
        return []
    if y is None or np.ndim(y) != 1 or not 2 * MEMBERS <= len(y):
        return []
    columns = _columns(dataset)
    code = (
        np.unique(np.asarray(y), return_inverse=True)[1] if task == "classification" else np.asarray(y, float)
    )
    return [text for text in (_given_away(columns, code, task), _follows_dates(columns, code)) if text]


def _columns(dataset: Dataset) -> dict[str, Any]:
    """Return the columns by name, as series."""
    import pandas as pd

    names = [str(name) for name in dataset.feature_names or (f"x{i}" for i in range(dataset.X.shape[1]))]
    if hasattr(dataset.X, "iloc"):
        return {name: dataset.X.iloc[:, j] for j, name in enumerate(names[:COLUMNS])}
    return {name: pd.Series(dataset.X[:, j]) for j, name in enumerate(names[:COLUMNS])}


def _given_away(columns: dict[str, Any], y: np.ndarray, task: str) -> str:
    if task == "classification" and np.bincount(y).min() < MEMBERS:
        return ""
    tells = _tells_class if task == "classification" else _tells_number
    found = [repr(name) for name, column in columns.items() if tells(column, y)]
    if not found:
        return ""
    shown = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    alone = "alone tells" if len(found) == 1 else "each alone tell"
    do = "See that it is known when predictions are asked for, or leave it out: --column NAME=ignore or columns=."
    return f"{shown} {alone} the target of every row. {do}"


def _tells_class(column: Any, code: np.ndarray) -> bool:
    """Whether gaps, a threshold, or the values of a column tell the class of every row."""
    missing = column.isna().to_numpy()
    two = code.max() == 1
    if missing.any():
        return bool(two and (np.array_equal(missing, code == 0) or np.array_equal(missing, code == 1)))
    if is_numeric(column.dtype) or str(column.dtype).startswith("datetime"):
        values = column.to_numpy()
        low, high = values[code == 0], values[code == 1]
        return bool(two and (low.max() < high.min() or high.max() < low.min()))
    values, distinct = _codes(column)
    return distinct <= len(code) // 5 and len(np.unique(values * (code.max() + 1) + code)) == distinct


def _codes(column: Any) -> tuple[np.ndarray, int]:
    import pandas as pd

    codes, values = pd.factorize(column.astype(str))
    return codes.astype(np.int64), len(values)


def _tells_number(column: Any, y: np.ndarray) -> bool:
    """Whether a column of numbers has the target's order, up or down, among many different values."""
    if not is_numeric(column.dtype) or column.isna().any() or column.nunique() < 2 * MEMBERS:
        return False
    in_order = y[np.argsort(column.to_numpy(dtype=float), kind="stable")]
    steps = np.diff(in_order)
    return bool(np.ptp(y) > 0 and ((steps >= 0).all() or (steps <= 0).all()))


def _follows_dates(columns: dict[str, Any], y: np.ndarray) -> str:
    for name, column in columns.items():
        if not str(column.dtype).startswith("datetime") or column.nunique() < 0.9 * len(y):
            continue
        in_time = y[np.argsort(column.to_numpy(), kind="stable")].astype(float)
        together = (
            np.corrcoef(in_time[:-1], in_time[1:])[0, 1]
            if np.ptp(in_time[1:]) and np.ptp(in_time[:-1])
            else 0
        )
        if together > TOGETHER:
            alike = f"Targets that follow each other by {name!r} are alike (correlation {together:.2f})"
            means = "and parts are drawn at random: scores are of gaps filled in, not of forecasts"
            return f"{alike}, {means}. To forecast: --kind sequence, or kind='sequence'."
    return ""
