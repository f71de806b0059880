"""Forecasts: of the future only. Parts are cut in time, and measured against the naive forecast's error.

Split ``j`` of ``n`` fits to each series up to a point in its last share ``test`` and measures the steps that follow,
so that every measured step lies after everything that was fitted (rolling origin).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from corollary import errors
from corollary.comparison.rivals import Rival
from corollary.data.dataset import Dataset
from corollary.sequences.backtesting import LONGEST, Naive, as_series, forecast_errors

__all__ = ["LONGEST", "Naive", "ahead", "in_time", "naive"]


def in_time(dataset: Dataset, n: int, test: float) -> Iterator[tuple[Dataset, Dataset]]:
    """Yield series up to a point in time, and the same with the steps that follow; ``extra["cuts"]`` says where."""
    series = [np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in dataset.X]
    if min(map(len, series)) < 10:
        got = f"{min(map(len, series))} in the shortest"
        raise errors.value("compare", "series must have 10 steps or more to hold some out", got)
    for j in range(n):
        starts = [int(len(x) * (1 - test + test * j / n)) for x in series]
        steps = [max(1, min(LONGEST, int(len(x) * test / n))) for x in series]
        ends = [min(len(x), a + b) for x, a, b in zip(series, starts, steps)]
        horizon = min(b - a for a, b in zip(starts, ends))
        kept = replace(dataset, X=[x[:a] for x, a in zip(series, starts)], y=None)
        held = replace(dataset, X=[x[: a + horizon] for x, a in zip(series, starts)], y=None)
        extra = {**dataset.extra, "horizon": horizon}
        yield replace(kept, extra=extra), replace(held, extra=extra)


def ahead(model: Any, held: Dataset) -> dict[str, float]:
    """Return errors of forecasts of the held-out steps: scaled by the naive error (MASE), and RMSE.

    A model that looks less far ahead than there are steps is asked again from further on (a rolling origin).
    """
    steps = int(held.extra.get("horizon") or min(LONGEST, int(getattr(model, "horizon", 1))))
    horizon = min(steps, int(getattr(model, "horizon", steps)))
    series = as_series(held.X)
    said, came, known = [], [], []
    for first in range(0, steps - horizon + 1, horizon):
        before = [x[: len(x) - steps + first] for x in series]
        said += [np.asarray(f, dtype=np.float64)[:horizon] for f in model.predict(before)]
        came += [x[len(x) - steps + first :][:horizon] for x in series]
        known += before
    return forecast_errors(said, came, known)


def naive(dataset: Dataset) -> list[Rival]:
    """Return the last value, the last season, and the mean."""
    titles = {"last": "the last value", "season": "the last season again", "mean": "the mean so far"}

    def make(kind: str) -> Any:
        return lambda data, seed: Naive(kind, data.extra.get("horizon", 1))

    ids = {"last": "naive", "season": "seasonal-naive", "mean": "mean"}
    return [Rival(ids[kind], title, "baseline", "sequence", make(kind)) for kind, title in titles.items()]
