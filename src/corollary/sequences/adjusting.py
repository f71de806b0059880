r"""Preprocessing of series for a forecaster: logarithms, trend, season and covariates, removed before and put back after.

Covariates go first: with changes :math:`\Delta x^t = x^t - x^{t-1}`,

.. math:: \Theta = \arg\min_\Theta \sum_t \lVert \Delta x^t - \Theta^\top \Delta c^t \rVert^2
   + \lambda \lVert \Theta \rVert^2, \tag{1}

then level, trend and season (:mod:`corollary.sequences.smoothing`), which leave innovations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corollary.errors import value
from corollary.sequences.smoothing import (
    SEASONS,
    STEPS,
    TINY,
    TRENDS,
    Smoother,
    State,
    fit_smoother,
    is_level_stationary,
)
from corollary.shapes import Array, Count, Flag, Index, List, Maybe, Text

__all__ = ["READ", "Adjusted", "Adjusting", "covariate_weights", "pieces"]

READ = 20000  # steps of a series, its last ones, that a forecast is made from
LONGEST_SEASON = 100_000
RIDGE = 1e-3  # lambda of eq. 1, per step, for covariates of variance 1
APART = 3.0  # ratio of the scales of series from which each has its own


@dataclass
class Adjusted:
    """Series as a network reads them: the steps of all, one after another."""

    inputs: np.ndarray  # (N, 2 d + c): scaled innovations, scaled values, covariates of the next step
    innovations: np.ndarray  # (N, d), scaled
    values: np.ndarray  # (N, d), as they are smoothed
    scale: np.ndarray  # (n, d)
    lengths: np.ndarray
    states: list[State]  # of each feature


def pieces(lengths: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where pieces of about equal length, of at most so many steps, begin and end in all steps together.

    >>> pieces(np.array([5, 2]), 3)
    (array([0, 2, 5]), array([2, 5, 7]))
    """
    count = -(-lengths // longest)
    series = np.repeat(np.arange(len(lengths)), count)
    place = np.arange(len(series)) - np.repeat(np.cumsum(count) - count, count)
    start = (np.cumsum(lengths) - lengths)[series]
    return start + place * lengths[series] // count[series], start + (place + 1) * lengths[series] // count[
        series
    ]


def covariate_weights(parts: Sequence[np.ndarray], covariates: Sequence[np.ndarray]) -> np.ndarray:
    """Return Theta (c, d) of eq. 1."""
    dx = np.concatenate([np.diff(x, axis=0)[-STEPS:] for x in parts])
    dc = np.concatenate([np.diff(c[: len(x)], axis=0)[-STEPS:] for x, c in zip(parts, covariates)])
    gram = dc.T @ dc + RIDGE * len(dc) * np.eye(dc.shape[1])
    return np.linalg.solve(gram, dc.T @ dx)


class Adjusting:
    """The part of a forecaster that smooths: what it learns, and series as a network reads them."""

    _fitted = {
        "seasonality_": Index("n_features_in_", below=LONGEST_SEASON + 1, low=1),
        "trend_": List(Text(("mean", *TRENDS))),
        "smoothing_": Array("n_features_in_", 4, low=0.0, high=1.0),
        "start_seasons_": Index("n_features_in_", below=max(SEASONS) + 1, low=1),
        "log_": Array("n_features_in_", kind="b"),
        "around_level_": Array("n_features_in_", kind="b"),
        "innovation_scale_": Array("n_features_in_", low=0.0),
        "own_scale_": Flag(),
        "n_covariates_": Count(),
        "covariate_mean_": Maybe(Array("n_covariates_")),
        "covariate_scale_": Maybe(Array("n_covariates_")),
        "covariate_weights_": Maybe(Array("n_covariates_", "n_features_in_")),
    }
    _learned_of_series = tuple(_fitted)

    def _measure_series(self: Any, parts: list[np.ndarray], covariates: list[np.ndarray] | None) -> None:
        """Choose logarithms, seasons and trends for every feature, and learn all scales."""
        d = parts[0].shape[1]
        period = self.seasonality
        wanted = {"auto": None, "log": True, None: False}[self.transform]
        if wanted:
            self._check_positive(parts, range(d))
        found = [fit_smoother([x[:, j] for x in parts], period, wanted) for j in range(d)]
        self._keep_covariates(covariates)
        if covariates is not None:  # what they explain is no season
            z = [np.stack([s.forward(x[:, j]) for j, s in enumerate(found)], 1) for x in parts]
            self.covariate_weights_ = covariate_weights(z, self._standard(covariates))
            rest = [a - c[: len(a)] @ self.covariate_weights_ for a, c in zip(z, self._standard(covariates))]
            again = [fit_smoother([x[:, j] for x in rest], period, False) for j in range(d)]
            found = [_with_log(s, t.log) for s, t in zip(again, found)]
        self._keep(found)
        self._measure_scales(parts, covariates)

    def _keep(self: Any, found: list[Smoother]) -> None:
        self.seasonality_ = np.array([s.period for s in found])
        self.trend_ = ["mean" if s.mean is not None else s.trend for s in found]
        self.smoothing_ = np.array([[s.alpha, s.beta, s.gamma, s.phi] for s in found])
        self.start_seasons_ = np.array([s.seasons for s in found])
        self.log_ = np.array([s.log for s in found])
        self.feature_mean_ = np.array([s.mean or 0.0 for s in found])

    def _smoothers(self: Any) -> list[Smoother]:
        rows = zip(
            self.seasonality_,
            self.trend_,
            self.smoothing_,
            self.log_,
            self.feature_mean_,
            self.start_seasons_,
        )
        return [
            Smoother(int(m), "none", 0.0, 0.0, 0.0, 1.0, bool(log), float(mean))
            if trend == "mean"
            else Smoother(int(m), trend, *map(float, share), bool(log), seasons=int(seasons))
            for m, trend, share, log, mean, seasons in rows
        ]

    def _measure_scales(self: Any, parts: list[np.ndarray], covariates: list[np.ndarray] | None) -> None:
        d = parts[0].shape[1]
        smoothers, lengths = self._smoothers(), np.array([len(x) for x in parts])
        z = self._smoothed(parts, covariates)
        e = np.stack([s.run(z[:, j], lengths)[0] for j, s in enumerate(smoothers)], 1)
        ends = np.cumsum(lengths)[:-1]
        own = np.stack([np.sqrt((part**2).mean(0)) for part in np.split(e, ends)])
        usual = np.sqrt((e**2).mean(0))
        self.innovation_scale_ = np.where(usual > 0, usual, 1.0)
        low, high = np.quantile(own, [0.1, 0.9], axis=0)
        self.own_scale_ = bool(len(parts) > 1 and (high > APART * low).any())
        values = np.split(z, ends)
        self.around_level_ = np.array(
            [not self.own_scale_ and is_level_stationary([x[:, j] for x in values]) for j in range(d)]
        )
        mean, spread = z.mean(0), z.std(0)
        plain = np.array([trend != "mean" for trend in self.trend_])
        self.feature_mean_ = np.where(plain, mean, self.feature_mean_)
        self.feature_scale_ = np.where(spread > 0, spread, 1.0)

    def _keep_covariates(self: Any, covariates: list[np.ndarray] | None) -> None:
        for name in ("covariate_mean_", "covariate_scale_", "covariate_weights_"):
            self.__dict__.pop(name, None)
        self.n_covariates_ = 0 if covariates is None else covariates[0].shape[1]
        if covariates is not None:
            steps = np.concatenate(covariates)
            spread = steps.std(0)
            self.covariate_mean_, self.covariate_scale_ = steps.mean(0), np.where(spread > 0, spread, 1.0)

    def _standard(self: Any, covariates: list[np.ndarray]) -> list[np.ndarray]:
        return [(c - self.covariate_mean_) / self.covariate_scale_ for c in covariates]

    def _check_positive(self: Any, parts: Sequence[np.ndarray], logged: Any) -> None:
        for j in logged:
            least = min(float(x[:, j].min()) for x in parts)
            if least <= 0:
                must = f"feature {j} must be positive, since logarithms are taken"
                raise value(type(self).__name__, must, f"{least:g}", "Fit with transform=None.")

    def _smoothed(self: Any, parts: Sequence[np.ndarray], covariates: list[np.ndarray] | None) -> np.ndarray:
        """Return the steps of all series, (N, d), as they are smoothed."""
        self._check_positive(parts, np.flatnonzero(self.log_))
        z = np.concatenate(parts).astype(np.float64)
        z[:, self.log_] = np.log(z[:, self.log_])
        if self.n_covariates_:
            c = np.concatenate([c[: len(x)] for x, c in zip(parts, self._standard(covariates))])
            z -= c @ self.covariate_weights_
        return z

    def _unsmoothed(self: Any, z: np.ndarray, future: np.ndarray | None) -> np.ndarray:
        """Return (n, h, d) as series were given; ``future`` are standardised covariates (n, h, c)."""
        z = z if future is None else z + future @ self.covariate_weights_
        return np.stack([s.backward(z[..., j]) for j, s in enumerate(self._smoothers())], -1)

    def _adjusted(self: Any, parts: Sequence[np.ndarray], covariates: list[np.ndarray] | None) -> Adjusted:
        """Return series as the network reads them; of the last step's next covariates those that are there."""
        lengths = np.array([len(x) for x in parts])
        z = self._smoothed(parts, covariates)
        found = [s.run(z[:, j], lengths) for j, s in enumerate(self._smoothers())]
        e = np.stack([errors for errors, _ in found], 1)
        scale = np.broadcast_to(self.innovation_scale_, (len(parts), z.shape[1]))
        if self.own_scale_:
            first = np.cumsum(lengths) - lengths
            own = np.sqrt(np.add.reduceat(e**2, first) / lengths[:, None])
            size = np.add.reduceat(np.abs(z), first) / lengths[:, None]
            scale = np.maximum(own, 1e-9 * size + TINY)  # a series that never surprises will hardly do so
        e = e / np.repeat(scale, lengths, axis=0)
        after = np.zeros((len(z), 0))
        if self.n_covariates_:
            after = np.concatenate([_next(c, len(x)) for x, c in zip(parts, self._standard(covariates))])
        inputs = np.concatenate([e, self._values(z), after], 1)
        return Adjusted(inputs, e, z, scale, lengths, [state for _, state in found])

    def _values(self: Any, z: np.ndarray) -> np.ndarray:
        """Return values of features that stay around one level, standardised; zero for the others."""
        return np.where(self.around_level_, (z - self.feature_mean_) / self.feature_scale_, 0.0)


def _next(c: np.ndarray, steps: int) -> np.ndarray:
    """Return the covariates of the step after each; the last are repeated where there are no more."""
    return c[np.minimum(np.arange(1, steps + 1), len(c) - 1)]


def _with_log(smoother: Smoother, log: bool) -> Smoother:
    from dataclasses import replace

    return replace(smoother, log=log)
