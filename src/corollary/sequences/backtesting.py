r"""Backtesting: forecasts from several points in time, compared with what came and with naive forecasts.

From an origin :math:`t` the steps :math:`t + 1, \dots, t + h` are forecast (a rolling origin). Errors are in units of the
series, and relative to the mean absolute change from step to step,

.. math:: \mathrm{MASE} = \frac{1}{h} \sum_{k \le h} |\hat x^{t+k} - x^{t+k}|
   \Big/ \frac{1}{t-1} \sum_{s < t} |x^{s+1} - x^s|, \tag{1}

so that what repeats the last value has about 1 one step ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from corollary import errors
from corollary.sequences.smoothing import season_of

__all__ = ["Naive", "backtest", "forecast_errors", "origins"]

LONGEST = 24  # steps that are forecast at once where nobody says


class Naive(BaseEstimator):  # type: ignore[misc]
    """Forecast the last value, the value one season ago, or the mean.

    Parameters
    ----------
    kind : {"last", "season", "mean"}, default="last"
        Which forecast: the last value, the value one season ago, or the mean.
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


def origins(lengths: Sequence[int], horizon: int, n_origins: int) -> np.ndarray:
    """Return how many steps of each series are known at each origin, (n_origins, n); the last leaves ``horizon`` steps.

    >>> origins([20, 30], horizon=4, n_origins=3)
    array([[ 8, 18],
           [12, 22],
           [16, 26]])
    """
    back = horizon * np.arange(n_origins, 0, -1)
    return np.asarray(lengths)[None, :] - back[:, None]


def forecast_errors(
    said: Sequence[np.ndarray], came: Sequence[np.ndarray], known: Sequence[np.ndarray]
) -> dict[str, float]:
    """Return MASE (eq. 1) and RMSE of forecasts (h, d), given what came and what was known before."""
    scales = [np.abs(np.diff(x, axis=0)).mean(0) + 1e-12 for x in known]
    wrong = [a[: len(b)] - b[: len(a)] for a, b in zip(said, came)]
    return {
        "MASE": float(np.mean([np.mean(np.abs(e) / s) for e, s in zip(wrong, scales)])),
        "RMSE": float(np.sqrt(np.mean(np.concatenate([e.ravel() for e in wrong]) ** 2))),
    }


def backtest(
    model: Any,
    X: Sequence[Any],
    *,
    n_origins: int = 5,
    horizon: int | None = None,
    refit: bool = True,
    coverage: float = 0.9,
    covariates: Sequence[Any] | None = None,
) -> dict[str, dict[str, float]]:
    """Return the errors of a forecaster, the naive and the seasonal naive forecast from several points in time.

    Parameters
    ----------
    model : estimator
        A forecaster; it is copied, and stays as it is.
    X : list of arrays of shape (t,) or (t, d)
        The series.
    n_origins : int, default=5
        Points in time, ``horizon`` steps apart; from the last one, forecasts reach the end.
    horizon : int, optional
        Steps ahead; by default the model's.
    refit : bool, default=True
        Whether a new model is fitted to what was known at each point. Without, the fitted model itself forecasts, which
        is honest only for steps that it has not seen.
    coverage : float, default=0.9
        Of the intervals that are counted, where the model has some.
    covariates : list of arrays, optional
        As ``fit`` and ``predict`` take them.

    Returns
    -------
    dict
        For "model", "naive" and "seasonal naive": MASE and RMSE, means over the points, and for the model the share of
        steps inside its intervals, ``"coverage"``.

    Examples
    --------
    >>> from corollary import SequenceForecaster, Training
    >>> wave = 10 + np.arange(80) / 10 + np.tile([0.0, 3.0, 1.0, -4.0], 20)
    >>> found = SequenceForecaster(horizon=4, training=Training(5), random_state=0).backtest(wave, n_origins=2)
    >>> found["model"]["RMSE"] < found["seasonal naive"]["RMSE"] < found["naive"]["RMSE"]
    True
    """
    horizon = int(model.horizon if horizon is None else horizon)
    series = as_series(X)
    beside = None
    if covariates is not None:
        beside = as_series([covariates] if len(series) == 1 and hasattr(covariates, "ndim") else covariates)
    places = origins([len(x) for x in series], horizon, n_origins)
    if places.min() < 2:
        do = "Take fewer origins, or a smaller horizon."
        must = f"series must have {n_origins * horizon + 2} steps or more for {n_origins} origins"
        raise errors.value("backtest", must, f"{min(map(len, series))} in the shortest", do)
    rows: dict[str, list[dict[str, float]]] = {"model": [], "naive": [], "seasonal naive": []}
    for starts in places:
        known = [x[:t] for x, t in zip(series, starts)]
        came = [x[t : t + horizon] for x, t in zip(series, starts)]
        given = {} if beside is None else {"covariates": [c[: t + horizon] for c, t in zip(beside, starts)]}
        asked = model
        if refit:
            asked = clone(model).set_params(horizon=horizon).fit(known, **given)
        found = forecast_errors(asked.predict(known, **given), came, known)
        if hasattr(asked, "predict_interval"):
            low, high = asked.predict_interval(known, coverage=coverage, **given)
            inside = [(a[:horizon] <= x) & (x <= b[:horizon]) for a, b, x in zip(low, high, came)]
            found["coverage"] = float(np.mean(inside))
        rows["model"].append(found)
        for name, kind in (("naive", "last"), ("seasonal naive", "season")):
            rows[name].append(forecast_errors(Naive(kind, horizon).fit(known).predict(known), came, known))
    return {
        name: {key: float(np.mean([row[key] for row in found])) for key in found[0]}
        for name, found in rows.items()
    }


def as_series(X: Any) -> list[np.ndarray]:
    """Return series as a list of arrays (t, d); one alone is a list of one."""
    alone = getattr(X, "ndim", 0) == 1 and getattr(getattr(X, "dtype", None), "kind", "O") in "iuf"
    return [np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in ([X] if alone else X)]
