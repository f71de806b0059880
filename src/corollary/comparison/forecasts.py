"""Forecasts: of the future only. Parts are cut in time, and measured against the naive forecast's error.

Split ``j`` of ``n`` fits to each series up to a point in its last share ``test`` and measures the steps that follow,
so that every measured step lies after everything that was fitted (rolling origin).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from corollary import errors
from corollary.comparison.rivals import Rival
from corollary.data.dataset import Dataset

__all__ = ["Naive", "ahead", "in_time", "naive", "season_of"]

LONGEST = 24  # steps that are forecast at once


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
    """Return errors of the last steps forecast from those before: scaled by the naive error (MASE), and RMSE."""
    horizon = held.extra.get("horizon") or min(LONGEST, int(getattr(model, "horizon", 1)))
    series = [np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in held.X]
    known = [x[:-horizon] for x in series]
    said = [np.asarray(f, dtype=np.float64)[:horizon] for f in model.predict(known)]
    came = [x[-horizon:] for x in series]
    scales = [np.abs(np.diff(x, axis=0)).mean(0) + 1e-12 for x in known]
    errors_ = [a[: len(b)] - b[: len(a)] for a, b in zip(said, came)]
    return {
        "MASE": float(np.mean([np.mean(np.abs(e) / s) for e, s in zip(errors_, scales)])),
        "RMSE": float(np.sqrt(np.mean(np.concatenate([e.ravel() for e in errors_]) ** 2))),
    }


def season_of(x: np.ndarray) -> int:
    """Return the lag (2 or more) at which a differenced series is most like itself; 1 if at none.

    >>> season_of(np.sin(2 * np.pi * np.arange(120) / 12))
    12
    """
    d = np.diff(np.asarray(x, dtype=np.float64).ravel())
    d = d - d.mean()
    if len(d) < 8 or not d.any():
        return 1
    size = 2 ** int(np.ceil(np.log2(2 * len(d))))
    power = np.abs(np.fft.rfft(d, size)) ** 2
    own = np.fft.irfft(power)[: len(d) // 2 + 1]
    own = own / own[0]
    lag = int(own[2:].argmax()) + 2
    return lag if own[lag] > 2 / np.sqrt(len(d)) else 1


class Naive(BaseEstimator):
    """Forecast the last value, the value one season ago, or the mean.

    Parameters
    ----------
    kind : {"last", "season", "mean"}, default="last"
        What comes next.
    horizon : int, default=24
        Steps ahead.
    """

    def __init__(self, kind: str = "last", horizon: int = LONGEST) -> None:
        self.kind = kind
        self.horizon = horizon

    def fit(self, X: Any, y: Any = None) -> Naive:
        """Find the season of the longest series."""
        longest = max(X, key=len)
        self.season_ = season_of(np.asarray(longest).reshape(len(longest), -1)[:, 0])
        return self

    def predict(self, X: Any) -> list[np.ndarray]:
        """Return the next steps of each series, (horizon, d)."""
        return [self._ahead(np.asarray(x, dtype=np.float64).reshape(len(x), -1)) for x in X]

    def _ahead(self, x: np.ndarray) -> np.ndarray:
        steps = np.arange(self.horizon)
        if self.kind == "mean":
            return np.tile(x.mean(0), (self.horizon, 1))
        season = min(self.season_, len(x)) if self.kind == "season" else 1
        return x[len(x) - season + steps % season]


def naive(dataset: Dataset) -> list[Rival]:
    """Return the last value, the last season, and the mean."""
    titles = {"last": "the last value", "season": "the last season again", "mean": "the mean so far"}

    def make(kind: str) -> Any:
        return lambda data, seed: Naive(kind, data.extra.get("horizon", 1))

    ids = {"last": "naive", "season": "seasonal-naive", "mean": "mean"}
    return [Rival(ids[kind], title, "baseline", "sequence", make(kind)) for kind, title in titles.items()]
