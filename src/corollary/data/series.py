"""Tables with dates as series: one step a row, at even distances, one series for every name.

The date column, the distance of the steps and the column that names series are found in the table and kept as plain
values, so that new tables are read alike. A few rows that repeat a date are averaged. Steps that are missing, and gaps in a
column, are filled in along a straight line, with a word about how many.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.detect import Reading

__all__ = ["as_series", "following", "has_dates"]

DAY = 86400.0  # seconds
# Steps of the calendar, whose seconds vary: the range of their lengths in days, and pandas' name of the period.
CALENDAR = {"month": (27.5, 31.5, "M"), "quarter": (89.0, 93.0, "Q"), "year": (364.0, 367.0, "Y")}
SOME = 0.1  # share of the rows that may repeat a date of their series, and are averaged
_TIME = re.compile(
    r"time|date|year|month|week|day|hour|quarter|period|step|^t$|^$|^unnamed|^index$", re.IGNORECASE
)


def has_dates(dataset: Dataset) -> bool:
    """Whether a table has a column of dates, or of years or times at even distances."""
    frame = _frame(dataset)
    return frame is not None and _date_column(frame) is not None


def as_series(dataset: Dataset, reading: Reading) -> Dataset:
    """Return a table with a date column as a list of series (t, d), oldest step first.

    ``extra`` holds the ``dates`` of every step, the ``names`` of the series, and how far apart steps are (``frequency``); a
    target is what shall be forecast, and everything else is left out. A target that is the same in all rows of a series, and
    not in all series, is one of the series: its class, or a number that belongs to it.
    """
    known = reading.get("series", {})
    frame = _frame(dataset)
    date = known.get("date") or (None if frame is None else _date_column(frame))
    if frame is None or date is None or date not in frame.columns:
        do = "Give the table a column of dates (--column NAME=date), or pass a list of arrays."
        raise errors.value("load", "a table that becomes series must have a date column", dataset.name, do)
    frame = _with_target(dataset, frame)
    frame = _said(frame[frame[date].notna()].drop_duplicates(), frame, "repeat another and are left out")
    name = known["name"] if known else _name_column(frame, date)
    labels = _labels(dataset, frame, name)
    if labels is not None:
        frame = frame.drop(columns=frame.columns[-1])
    values = known.get("values") or _value_columns(dataset, frame, date, name, labels is not None)
    frame = _said(
        _averaged(frame, date, name, values), frame, "repeat a date of their series; means are taken"
    )
    groups = (
        {"": frame} if name is None else {str(key): part for key, part in frame.groupby(name, sort=False)}
    )
    step = known.get("step") or _step(groups, date)
    found = {key: _even(part, date, values, step) for key, part in groups.items()}
    found = {key: part for key, part in found.items() if len(part[0])}
    if not found:
        raise errors.value("load", "a series must have numbers", f"none in {', '.join(map(str, values))}")
    filled = sum(part[2] for part in found.values())
    if filled:
        text = f"load: {filled} missing values of {dataset.name!r} are filled in along straight lines between their neighbours."
        warnings.warn(text, errors.CorollaryWarning, stacklevel=3)
    extra = {**dataset.extra}
    if labels is None:  # whole series are not forecast
        extra |= {"dates": [part[1] for part in found.values()], "frequency": step}
    extra |= {"names": list(found)} if name is not None else {}
    learned = {"date": str(date), "name": name, "values": [str(v) for v in values], "step": step}
    extra["reading"] = {**dataset.extra.get("reading", {}), "series": learned}
    return replace(
        dataset,
        X=[part[0] for part in found.values()],
        y=None if labels is None else np.array([labels[key] for key in found]),
        kind="sequence",
        feature_names=list(values),
        extra=extra,
    )


def following(last: np.datetime64, step: dict[str, Any], n: int) -> np.ndarray:
    """Return the n dates that come after one.

    >>> following(np.datetime64("2024-01-31"), {"unit": "month", "count": 1}, 2)
    array(['2024-02-29', '2024-03-31'], dtype='datetime64[D]')
    """
    import pandas as pd

    if step["unit"] == "number":
        return np.float64(last) + step["count"] * np.arange(1, n + 1)
    first = pd.Timestamp(last)
    if step["unit"] == "second":
        dates = [first + pd.Timedelta(seconds=step["count"] * k) for k in range(1, n + 1)]
    elif step["unit"] == "weekday":
        dates = list(pd.bdate_range(first, periods=n + 1)[1:])
    else:
        months = {"month": 1, "quarter": 3, "year": 12}[step["unit"]] * int(step["count"])
        end = first.is_month_end and first.day < 31 or first.day == 31
        dates = [first + pd.DateOffset(months=months * k) for k in range(1, n + 1)]
        dates = [d + pd.offsets.MonthEnd(0) if end else d for d in dates]
    out = np.array(dates, dtype="datetime64[s]")
    return out.astype("datetime64[D]") if (out == out.astype("datetime64[D]")).all() else out


# --- what the columns are --------------------------------------------------------------------------------


def _date_column(frame: Any) -> Any:
    """Return the first column of dates that is not all gaps; of several, one whose name is a time's."""
    from pandas.api import types

    found = [
        c for c in frame.columns if types.is_datetime64_any_dtype(frame[c].dtype) and frame[c].notna().any()
    ]
    found += [c for c in frame.columns if not found and _counts_time(frame[c])]
    return next((c for c in found if _TIME.search(str(c))), found[0] if found else None)


def _counts_time(column: Any) -> bool:
    """Whether a column of numbers counts years, steps or the like: by its name, and even distances."""
    from pandas.api import types

    if not _TIME.search(str(column.name)) or not types.is_numeric_dtype(column.dtype) or column.isna().any():
        return False
    apart = np.diff(np.unique(column.to_numpy(dtype=np.float64)))
    return len(apart) > 1 and bool(np.median(np.abs(apart - np.median(apart))) <= 0.02 * np.median(apart))


def _frame(dataset: Dataset) -> Any:
    """Return a table as a frame; None for what has no names of columns."""
    import pandas as pd

    if hasattr(dataset.X, "columns"):
        return dataset.X
    names = dataset.feature_names
    if dataset.kind != "table" or not names or hasattr(dataset.X, "tocsr"):
        return None
    return pd.DataFrame(dataset.X, columns=[*names])


def _with_target(dataset: Dataset, frame: Any) -> Any:
    if dataset.y is None:
        return frame
    name = str(dataset.extra.get("target") or "target")
    return frame.assign(**{name: np.asarray(dataset.y)})


def _labels(dataset: Dataset, frame: Any, name: Any) -> dict[str, Any] | None:
    """Return the target of each series, if it has one for all its rows and they differ; None if it varies within them."""
    if dataset.y is None:
        return None
    target = frame.columns[-1]
    if (
        name is not None
        and (frame.groupby(name)[target].nunique() == 1).all()
        and frame[target].nunique() > 1
    ):
        return {str(key): value for key, value in frame.groupby(name)[target].first().items()}
    if np.asarray(dataset.y).dtype.kind not in "iufb":
        do = "Give the series names in a column, and every series one class."
        got = f"{dataset.y[0]!r} and others within one series"
        raise errors.value(
            "load", "what is forecast must be a number, or each series must be of one class", got, do
        )
    return None


def _averaged(frame: Any, date: Any, name: Any, values: list[Any]) -> Any:
    """Return a frame with each date of a series once, where few occur again."""
    by = [date] if name is None else [name, date]
    if not frame.duplicated(by).any():
        return frame
    return frame.groupby(by, sort=False, as_index=False)[values].mean()


def _said(found: Any, frame: Any, what: str) -> Any:
    """Return what is left of a frame, with a word about rows that were joined."""
    if len(found) < len(frame):
        text = f"load: {len(frame) - len(found)} of {len(frame)} rows {what}."
        warnings.warn(text, errors.CorollaryWarning, stacklevel=4)
    return found


def _value_columns(dataset: Dataset, frame: Any, date: Any, name: Any, labelled: bool) -> list[Any]:
    from pandas.api import types

    if dataset.y is not None and not labelled:
        return [frame.columns[-1]]
    numeric = [c for c in frame.columns if types.is_numeric_dtype(frame[c].dtype) and c not in (date, name)]
    if not numeric:
        raise errors.value("load", "a series must have a column of numbers", f"none beside {str(date)!r}")
    return numeric


def _name_column(frame: Any, date: Any) -> Any:
    """Return the column that names series, where dates occur more than once: with it, each occurs once."""
    if not frame[date].duplicated().any():
        return None
    able = [
        c
        for c in frame.columns
        if c != date and frame[c].nunique() <= len(frame) // 2 and frame[c].dtype.kind not in "fM"
    ]
    again = {c: int(frame.duplicated([date, c]).sum()) for c in able}
    best = min(again, key=again.__getitem__, default=None)
    if best is not None and again[best] <= SOME * len(frame):
        return str(best)
    if frame[date].duplicated().sum() <= SOME * len(frame):
        return None
    twice = frame[date][frame[date].duplicated()].iloc[0]
    do = "Give the series names in a column, or sum the rows of a date first."
    raise errors.value("load", "each series must have a date once", f"{twice} more than once", do)


# --- even steps ------------------------------------------------------------------------------------------


def _step(groups: dict[str, Any], date: Any) -> dict[str, Any]:
    """Return how far apart steps are: so many seconds, weekdays, or months, quarters and years of the calendar."""
    longest = max(groups.values(), key=len)
    if longest[date].dtype.kind != "M":
        times = np.unique(longest[date].to_numpy(dtype=np.float64))
        return {"unit": "number", "count": float(np.median(np.diff(times))) if len(times) > 1 else 1.0}
    dates = np.sort(longest[date].to_numpy().astype("datetime64[s]"))
    apart = np.diff(dates).astype(float)
    if not len(apart):
        return {"unit": "second", "count": DAY}
    usual = float(np.median(apart))
    for unit, (low, high, _) in CALENDAR.items():
        if low <= usual / DAY <= high:
            return {"unit": unit, "count": 1}
    weekdays = (dates.astype("datetime64[D]").view("int64") - 4) % 7  # Monday is 0
    if usual == DAY and len(dates) >= 10 and weekdays.max() < 5:
        return {"unit": "weekday", "count": 1}
    return {"unit": "second", "count": usual}


def _places(dates: np.ndarray, step: dict[str, Any]) -> np.ndarray:
    """Return which step each date is, from 0."""
    import pandas as pd

    if step["unit"] in ("second", "number"):
        return np.rint((dates - dates[0]).astype(float) / step["count"]).astype(int)
    if step["unit"] == "weekday":
        return np.busday_count(dates[0].astype("datetime64[D]"), dates.astype("datetime64[D]")).astype(int)
    number = pd.DatetimeIndex(dates).to_period(CALENDAR[step["unit"]][2]).asi8
    return np.asarray(number - number[0], dtype=int)


def _even(
    frame: Any, date: Any, values: list[Any], step: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return values (t, d) at even steps, their dates, and how many were filled in."""
    frame = frame.sort_values(date, kind="stable")
    X = frame[values].to_numpy(dtype=np.float64)
    inside = np.flatnonzero(np.isfinite(X).any(1))
    if not len(inside):
        return X[:0], np.zeros(0), 0
    X = X[inside[0] : inside[-1] + 1]
    dates = frame[date].to_numpy()[inside[0] : inside[-1] + 1]
    dates = dates.astype(np.float64 if step["unit"] == "number" else "datetime64[s]")
    place = _places(dates, step)
    if len(np.unique(place)) < len(place) or place[-1] >= 10 * len(place) + 10:
        text = "load: dates are not at even distances; the rows are taken as steps, one after another."
        warnings.warn(text, errors.CorollaryWarning, stacklevel=4)
        place = np.arange(len(place))
    out = np.full((place[-1] + 1, X.shape[1]), np.nan)
    out[place] = X
    gaps = ~np.isfinite(out)
    for j in np.flatnonzero(gaps.any(0)):
        if gaps[:, j].all():
            raise errors.value("load", f"column {str(values[j])!r} of a series must have numbers", "none")
        out[gaps[:, j], j] = np.interp(
            *(np.flatnonzero(gaps[:, j]), np.flatnonzero(~gaps[:, j])), out[~gaps[:, j], j]
        )
    every = np.concatenate([dates[:1], following(dates[0], step, place[-1]).astype(dates.dtype)])
    every[place] = dates
    return out, every, int(gaps.sum())
