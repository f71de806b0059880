r"""Forecasting of time series by exponential smoothing and a recurrent network.

A series is smoothed first (:mod:`corollary.sequences.smoothing`): on logarithms where they fit better, its level, trend and
season say what is expected, :math:`\mu^{t+1}`, and what comes instead are innovations :math:`e^t` of scale
:math:`\sigma`. Where there are covariates :math:`c^t`, :math:`\Theta^\top c^t` is taken off before, with :math:`\Theta` by ridge
regression of changes on changes. A causal network reads :math:`e^t / \sigma`, the values themselves where they stay around one
level, and :math:`c^{t+1}`, and says the next innovation,

.. math:: \hat x^{t+1} = \mu^{t+1} + \sigma f(e^1, \dots, e^t), \tag{1}

so that the mean of :math:`\lVert f - e^{t+1} / \sigma \rVert^2 / d` is least (2). Longer forecasts feed :math:`\hat x^{t+1}`
back as :math:`x^{t+1}`. The end of every series is held out: it says when to stop, how wide intervals are, and the share

.. math:: w = \min\Big(1, \max\Big(0, \frac{\langle x - \mu, \hat x - \mu \rangle}{\lVert \hat x - \mu \rVert^2}\Big)\Big) \tag{3}

of the network in the forecast :math:`(1 - w) \mu + w \hat x`, for each feature. With :math:`w = 0` it is that of
Holt and Winters.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from corollary.base import Data
from corollary.engine.batches import Batch
from corollary.engine.ragged import Ragged, RaggedBatches
from corollary.errors import value
from corollary.sequences.adjusting import READ, Adjusted, Adjusting, pieces
from corollary.sequences.backtesting import backtest
from corollary.sequences.common import BaseSequenceNetwork, in_batches
from corollary.sequences.network import RECURRENT, SequenceNetwork
from corollary.shapes import Array, Count
from corollary.tuning import Tunable
from corollary.validation import to_numpy

__all__ = ["SequenceForecaster"]

LEVELS = np.arange(1, 100) / 100  # whose quantiles of the errors are kept
ORIGINS = 128  # most points in time that held-out forecasts start from
HELD_OUT = 0.2  # share of every series, its end, that the network does not learn from
ENOUGH = 20  # errors that a quantile is taken from
LARGEST = 8.0  # innovations beyond so many scales are cut off: a spike shall not rule the fit


def step_error(module: nn.Module, batch: Batch) -> Tensor:
    """Return the mean squared error of eq. 2 over the steps of a batch that count."""
    wrong = (module(batch.inputs[0]) - batch.target).square().mean(-1)
    return (wrong * batch.weight).sum() / batch.weight.sum().clamp_min(1)


def share_of(base: np.ndarray, net: np.ndarray, came: np.ndarray) -> np.ndarray:
    """Return eq. 3 for each feature; steps that nobody knows yet are NaN in ``came`` and do not count."""
    known = np.isfinite(came)
    ahead = np.where(known, net - base, 0.0)
    missed = np.where(known, came - base, 0.0)
    axes = tuple(range(ahead.ndim - 1))
    length = (ahead**2).sum(axes)
    return np.clip((ahead * missed).sum(axes) / np.where(length > 0, length, 1.0), 0.0, 1.0)


def error_quantiles(wrong: np.ndarray) -> np.ndarray:
    """Return quantiles (levels, horizon, d) of absolute errors (n, horizon, d) at each step ahead.

    Those of a level p are the ceil((n + 1) p)-th smallest of n, as in conformal prediction. Where fewer than ``ENOUGH`` are
    known, the errors of the last step ahead that has enough grow on with the root of the steps.
    """
    n = np.isfinite(wrong).sum(0).min(-1)  # (horizon,)
    last = max(1, int((n >= min(ENOUGH, n[0])).sum()))
    out = np.empty((len(LEVELS), *wrong.shape[1:]))
    for k in range(last):
        known = np.sort(np.abs(wrong[np.isfinite(wrong[:, k]).all(-1), k]), axis=0)
        place = np.minimum(np.ceil(LEVELS * (len(known) + 1)).astype(int), len(known)) - 1
        out[:, k] = known[place]
    steps = np.arange(last + 1, wrong.shape[1] + 1)
    out[:, last:] = out[:, last - 1 : last] * np.sqrt(steps / last)[None, :, None]
    return np.maximum.accumulate(out, axis=1)


class SequenceForecaster(Adjusting, BaseSequenceNetwork):
    """Forecast series of numbers of any length.

    Takes a list of series ``(t, d)`` or ``(t,)`` of floats, which may differ in length, and learns to continue them; one
    series ``(t,)`` alone, as an array or a column of a frame, counts as a list of one. Logarithms, trend and season
    are found in the data, taken off, and put back; a network forecasts what they leave, and counts as much as held-out
    forecasts are better with it.

    Parameters
    ----------
    cell : {"rnn", "lstm", "gru", "lru", "tcn"}, default="gru"
        Recurrent cell, or "tcn" for a convolutional network. Gated cells remember longer than "rnn".
    horizon : int, default=1
        How many steps ``predict`` looks ahead. Errors grow with it, since forecasts are fed back.
    seasonality : int, "auto" or None, default="auto"
        Steps in a season: 12 for months, 7 for days. "auto" takes one that the autocorrelation shows and that makes the
        series easier to forecast; None has none.
    transform : {"auto", "log"} or None, default="auto"
        Whether the logarithm is forecast: where it grows in proportion, and so do its seasons.
    width : int, optional
        Width of the states. Wider remembers more. By default 16 to 64, by the number of steps.
    n_layers : int, optional
        Depth: how many recurrences are stacked. By default 2; for "tcn" as many blocks as see ``max_length`` steps.
    dropout : float, default=0.0
        Share of activations dropped at random while training; more regularises more.
    truncation : int, optional
        Let gradients flow back over at most so many steps: for long series.
    max_length : int, optional
        Most steps that the network reads: longer series are learned in pieces, and continued from their end. By
        default four seasons, and 64 to 512 steps.
    training : Training, optional
        Settings of gradient descent. By default at most 100 epochs in batches that make about ten updates an epoch; the
        last fifth of every series is held out, and ten epochs without an improvement there are the end.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : SequenceNetwork
        The trained network; called with padded inputs it gives the next innovation after every step, in its scale.
    seasonality_ : ndarray of shape (n_features_in_,)
        Steps in a season of each feature; 1 for none.
    trend_ : list of {"mean", "none", "damped", "linear"}
        What each feature follows apart from its season: one mean, a level that moves, or a trend.
    log_ : ndarray of shape (n_features_in_,)
        Whether logarithms are taken.
    smoothing_ : ndarray of shape (n_features_in_, 4)
        The shares alpha, beta, gamma and phi of :mod:`corollary.sequences.smoothing`.
    start_seasons_ : ndarray of shape (n_features_in_,)
        How many seasons, at most, the first one is averaged over.
    network_share_ : ndarray of shape (n_features_in_,)
        Share of the network in the forecast, eq. 3.
    error_quantiles_ : ndarray of shape (99, horizon, n_features_in_)
        Percentiles of the absolute errors of held-out forecasts, in scales of the innovations.
    innovation_scale_ : ndarray of shape (n_features_in_,)
        Scale of the innovations.
    covariate_weights_ : ndarray of shape (n_covariates_, n_features_in_)
        Effect of covariates of variance 1, where there are some.
    n_features_in_ : int
        Width d of a step.
    n_layers_, width_, max_length_ : int
        Number of layers, width and longest input of the network.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises equation (2) of :mod:`corollary.sequences.forecaster`. An epoch costs
    O(steps * width^2 * n_layers). A recurrent cell reads the series once and goes on from its state; "lru" and
    "tcn" read it again for every step ahead. A season is learned from two of them or more.

    References
    ----------
    .. [1] C. C. Holt (2004). Forecasting seasonals and trends by exponentially weighted moving averages. Int. J. Forecasting 20.
    .. [2] S. Smyl (2020). A hybrid method of exponential smoothing and recurrent neural networks. Int. J. Forecasting 36.

    Examples
    --------
    >>> from corollary import SequenceForecaster
    >>> wave = np.sin(0.3 * np.arange(200.0))
    >>> model = SequenceForecaster(horizon=3, width=16, random_state=0).fit([wave] * 4)
    >>> bool(np.abs(model.predict([wave[:150]])[0, :, 0] - wave[150:153]).max() < 0.2)
    True
    >>> low, high = model.predict_interval([wave[:150]], coverage=0.9)
    >>> low.shape
    (1, 3, 1)
    """

    role = "forecaster"
    _usual_depth = 2
    _parameter_constraints = {
        **{
            k: v
            for k, v in BaseSequenceNetwork._parameter_constraints.items()
            if k not in ("bidirectional", "embedding_dimension")
        },
        "horizon": [Interval(Integral, 1, None, closed="left")],
        "seasonality": [StrOptions({"auto"}), None, Interval(Integral, 1, None, closed="left")],
        "transform": [StrOptions({"auto", "log"}), None],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "max_length": [None, Interval(Integral, 2, None, closed="left")],
    }
    _fitted = {
        "width_": Count(1),
        "max_length_": Count(1),
        "pieces_": Count(),
        "held_out_": Count(),
        "network_share_": Array("n_features_in_", low=0.0, high=1.0),
        "error_quantiles_": Array(len(LEVELS), None, "n_features_in_", low=0.0),
    }
    _start = (*Tunable._start, *Adjusting._learned_of_series, "width_", "max_length_")

    def __init__(
        self,
        cell="gru",
        *,
        horizon=1,
        seasonality="auto",
        transform="auto",
        width=None,
        n_layers=None,
        dropout=0.0,
        truncation=None,
        max_length=None,
        training=None,
        random_state=None,
    ):
        self.cell = cell
        self.horizon = horizon
        self.seasonality = seasonality
        self.transform = transform
        self.width = width
        self.n_layers = n_layers
        self.dropout = dropout
        self.truncation = truncation
        self.max_length = max_length
        self.training = training
        self.random_state = random_state

    def fit(self, X, y=None, *, covariates=None, validation=None):
        """Learn to continue series.

        Parameters
        ----------
        X : list of arrays of shape (t,) or (t, d)
            The series.
        y : None
            Ignored.
        covariates : list of arrays of shape (t,) or (t, c), optional
            What is known of every step beforehand, one array for each series: prices, holidays, the hour. Steps beyond the
            series are left for ``predict``.
        validation : tuple, optional
            ``(X,)`` or ``(X, covariates)`` on which the loss is measured after every epoch.

        Returns
        -------
        self
        """
        self._fit(X, extra=covariates, validation=validation)
        return self

    def predict(self, X, *, covariates=None):
        """Return the next ``horizon`` steps of each series, (n, horizon, d); ``covariates`` reach as far as those."""
        return self._forecast(X, covariates)[0]

    def predict_interval(self, X, *, coverage=0.9, covariates=None):
        """Return the lower and upper ends of intervals that hold each of the next steps with this probability.

        Parameters
        ----------
        X, covariates
            As ``predict`` takes them.
        coverage : float, default=0.9
            The probability, from 0.01 to 0.99.

        Returns
        -------
        lower, upper : ndarray of shape (n, horizon, d)

        Notes
        -----
        Their widths are quantiles of the errors of held-out forecasts, each step ahead for itself (conformal prediction), so
        that they hold where the future errs as the end of the data did.
        """
        if not LEVELS[0] <= coverage <= LEVELS[-1]:
            raise value(type(self).__name__, "coverage must lie in [0.01, 0.99]", repr(coverage))
        _, z, scale, future = self._forecast(X, covariates)
        kept = np.array(
            [
                [np.interp(coverage, LEVELS, column) for column in row.T]
                for row in self.error_quantiles_.transpose(1, 0, 2)
            ]
        )
        steps = np.arange(1, self.horizon + 1)
        within = kept[np.minimum(steps, len(kept)) - 1] * np.sqrt(np.maximum(steps / len(kept), 1.0))[:, None]
        reach = within[None] * scale[:, None]
        return tuple(self._unsmoothed(z + sign * reach, future).astype(self.dtype_) for sign in (-1, 1))

    def backtest(self, X, *, n_origins=5, horizon=None, refit=True, coverage=0.9, covariates=None):
        """Return errors from several points in time, beside the naive and the seasonal naive forecast.

        See :func:`corollary.sequences.backtest`; this model stays as it is.
        """
        options = {"n_origins": n_origins, "horizon": horizon, "refit": refit, "coverage": coverage}
        return backtest(self, X, **options, covariates=covariates)

    def score(self, X, y=None, *, covariates=None):
        """Return R^2 of the forecasts one step ahead, over all steps of all series."""
        parts = self._query(X)
        covariates = self._covariates(covariates, parts, 0)
        seen = self._adjusted(parts, covariates)
        said = self._unsmoothed(self._next_values(seen)[None], self._steps(covariates, parts))[0]
        inner = np.delete(np.arange(len(said)), np.cumsum(seen.lengths) - seen.lengths)
        if len(inner) < 2:
            raise value(type(self).__name__, "score needs at least two steps to compare", len(inner))
        return float(r2_score(np.concatenate(parts)[inner], said[inner]))

    # --- data --------------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        values = to_numpy(X)
        alone = getattr(values, "ndim", 0) == 1 and getattr(values.dtype, "kind", "") in ("i", "u", "f")
        parts = super()._check([np.asarray(values, np.float64)] if alone else X, reset)
        if reset and self.kind_ != "vector":
            raise value(
                type(self).__name__, "series must be of real numbers", "codes or strings", "Pass floats."
            )
        if reset and min(map(len, parts)) < 2:
            i = int(np.argmin([len(part) for part in parts]))
            raise value(
                type(self).__name__, "series must have 2 steps or more to learn from", f"1 in series {i}"
            )
        return parts

    def _data(self, X: Any, y: Any, sample_weight: Any, extra: Any = None) -> Data:
        data = super()._data(X, y, sample_weight)
        fresh = vars(self).get("_going_on", {}).get("first", True) and "pretrained_" not in vars(self)
        return data._replace(extra=self._covariates(extra, data.X, 0, reset=fresh))

    def _validation(self, given: Any) -> Data:
        covariates = given[1] if isinstance(given, tuple) and len(given) > 1 else None
        data = super()._validation(given[:1] if isinstance(given, tuple) else given)
        return data._replace(extra=self._covariates(covariates, data.X, 0, reset=True))

    def _covariates(self, given: Any, parts: list[np.ndarray], ahead: int, reset: bool = False) -> Any:
        """Return covariates (t, c) of each series that reach ``ahead`` steps beyond it; None if there are none."""
        name, n = type(self).__name__, 0 if reset else self.n_covariates_
        if given is None:
            if n:
                do = "Pass covariates=, one array of shape (t, c) for each series."
                raise value(name, f"the {n} covariates of the fit must be given", "none", do)
            return None
        if not reset and not n:
            raise value(name, "the model was fitted without covariates", "some", "Fit with covariates=.")
        values = to_numpy(given)
        alone = len(parts) == 1 and getattr(values, "ndim", 0) in (1, 2) and len(values) >= len(parts[0])
        found = [np.asarray(to_numpy(c), np.float64) for c in ([values] if alone else given)]
        found = [c[:, None] if c.ndim == 1 else c for c in found]
        if len(found) != len(parts):
            raise value(name, f"there must be covariates of each of the {len(parts)} series", len(found))
        for i, (x, c) in enumerate(zip(parts, found)):
            if c.ndim != 2 or len(c) < len(x) + ahead or c.shape[1] != (n or found[0].shape[1]):
                must = f"covariates of series {i} must have shape ({len(x) + ahead}, {n or found[0].shape[1]}) or more steps"
                raise value(name, must, f"shape {c.shape}")
            if not np.isfinite(c).all():
                raise value(name, f"covariates of series {i} must be finite", "NaN or infinity")
        return found

    def _steps(self, covariates: Any, parts: list[np.ndarray]) -> np.ndarray | None:
        """Return the standardised covariates of all steps, (1, N, c)."""
        if covariates is None:
            return None
        return np.concatenate([c[: len(x)] for x, c in zip(parts, self._standard(covariates))])[None]

    # --- learning ----------------------------------------------------------------------------------------

    def _measure(self, data: Data) -> None:
        steps = sum(map(len, data.X))
        self._measure_series(data.X, data.extra)
        usual = min(512, max(64, 4 * int(self.seasonality_.max())))
        longest = max(map(len, data.X))
        self.max_length_ = min(longest, self.max_length or usual)
        self.width_ = self.width or (16 if steps < 1000 else 32 if steps < 10000 else 64)
        super()._measure(data._replace(X=[x[: self.max_length_] for x in data.X]))
        self.n_outputs_ = self.n_features_in_

    def _scale_inputs(self, parts: list[np.ndarray]) -> None:
        """Leave the scales to what adjusts the series."""

    def _module(self) -> nn.Module:
        return SequenceNetwork(
            2 * self.n_features_in_ + self.n_covariates_,
            self.n_outputs_,
            self.cell,
            width=self.width_,
            n_layers=self.n_layers_,
            dropout=self.dropout,
            truncation=self.truncation,
            pooling=None,
        ).to(getattr(torch, self.dtype_))

    @property
    def _training_defaults(self) -> dict[str, Any]:
        """Return the training defaults: about ten updates an epoch, and early stopping by the held-out part."""
        return {
            "epochs": 100,
            "learning_rate": 3e-3,
            "batch_size": int(np.clip(getattr(self, "pieces_", 320) // 10, 1, 32)),
            "clip_norm": 1.0,
            "early_stopping": getattr(self, "held_out_", 1) > 0,
            "validation_fraction": HELD_OUT,
        }

    def _learner(self, data: Data) -> Any:
        self._ready(data)
        cuts = self._cuts(np.array([len(x) for x in data.X]))
        seen = self._adjusted(data.X, data.extra)
        batches = self._windows(seen, np.zeros_like(cuts), cuts)
        self.pieces_ = len(batches)
        validation = None
        if data.validation is not None:
            other = self._adjusted(data.validation.X, data.validation.extra)
            validation = self._windows(other, np.zeros_like(other.lengths), other.lengths)
        elif self.held_out_:
            validation = self._windows(seen, cuts, seen.lengths)
        learner = self._descend(step_error, batches, validation=validation)
        learner.held = (data.X, data.extra, cuts)
        return learner

    def _cuts(self, lengths: np.ndarray) -> np.ndarray:
        """Return how many steps of each series the network learns from; the rest are held out."""
        training = self.training.validation_fraction if self.training is not None else None
        held = (lengths * (training or HELD_OUT)).astype(int)
        held = np.minimum(held, lengths - 2)
        self.held_out_ = int(held.max()) if held.sum() >= 8 else 0
        return lengths - held if self.held_out_ else lengths

    def _windows(self, seen: Adjusted, first: np.ndarray, last: np.ndarray) -> RaggedBatches:
        """Return batches of pieces in which the innovations from the ``first`` to before the ``last`` step count."""
        dtype = getattr(torch, self.dtype_)
        starts = np.cumsum(seen.lengths) - seen.lengths
        begin = np.maximum(0, first - self.max_length_)
        kept = last - begin > 1
        low, high = pieces((last - begin - 1)[kept], self.max_length_)
        rows = np.concatenate(
            [np.arange(a, b - 1) for a, b in zip((starts + begin)[kept], (starts + last)[kept])]
        )
        step = rows + 1 - np.repeat(starts[kept], (last - begin - 1)[kept])  # of the target, in its series
        counts = step >= np.repeat(np.maximum(first, 1)[kept], (last - begin - 1)[kept])
        lengths = torch.as_tensor(high - low)
        cut = [
            seen.inputs[rows].clip(-LARGEST, LARGEST),
            seen.innovations[rows + 1].clip(-LARGEST, LARGEST),
            counts,
        ]
        columns = [Ragged(torch.as_tensor(column).to(dtype), lengths) for column in cut]
        return RaggedBatches(columns[0], columns[1], columns[2])

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        self._calibrate(*learner.held)

    def _calibrate(self, parts: list[np.ndarray], covariates: Any, cuts: np.ndarray) -> None:
        """Learn the share of the network and the quantiles of errors from forecasts whose outcome is known."""
        d, h = self.n_features_in_, self.horizon
        self.network_share_ = np.zeros(d)
        normal = norm.ppf((1 + LEVELS) / 2)[:, None, None] * np.sqrt(np.arange(1, h + 1))[None, :, None]
        self.error_quantiles_ = np.repeat(normal, d, axis=2)
        lengths = np.array([len(x) for x in parts])
        held = _origins(cuts, lengths) if self.held_out_ else []
        if held:
            base, net, came, scale = self._known(parts, covariates, held)
            self.network_share_ = share_of(base / scale, net / scale, came / scale)
        wrong = [self._errors(base, net, came, scale)] if held else []
        if len(held) < ENOUGH and (lengths >= 8).any():
            inner = _origins(np.maximum(lengths // 2, 4), cuts)
            wrong += [self._errors(*self._known(parts, covariates, inner))] if inner else []
        if wrong:
            self.error_quantiles_ = error_quantiles(np.concatenate(wrong))

    def _errors(self, base: np.ndarray, net: np.ndarray, came: np.ndarray, scale: np.ndarray) -> np.ndarray:
        return (came - base - self.network_share_ * (net - base)) / scale

    def _known(
        self, parts: list[np.ndarray], covariates: Any, origins: list[tuple[int, int]]
    ) -> tuple[Any, ...]:
        """Return both forecasts from each origin (series, step), what came (NaN beyond the end), and the scales."""
        h = self.horizon
        given = [parts[i][:t] for i, t in origins]
        beside = None if covariates is None else [_reaching(covariates[i], t + h) for i, t in origins]
        base, net, scale, _ = self._paths(given, beside)
        came = np.full(base.shape, np.nan)
        for row, (i, t) in enumerate(origins):
            after = parts[i][t : t + h]
            c = None if beside is None else [beside[row][t : t + len(after)]]
            came[row, : len(after)] = self._smoothed([after], c)
        return base, net, came, scale[:, None]

    # --- forecasting -------------------------------------------------------------------------------------

    def _forecast(self, X: Any, covariates: Any) -> tuple[np.ndarray, ...]:
        parts = self._query(X)
        covariates = self._covariates(covariates, parts, self.horizon)
        base, net, scale, future = self._paths(parts, covariates)
        z = base + self.network_share_ * (net - base)
        return self._unsmoothed(z, future).astype(self.dtype_), z, scale, future

    def _paths(self, parts: list[np.ndarray], covariates: Any) -> tuple[np.ndarray, ...]:
        """Return the forecasts (n, horizon, d) without and with the network, the scales (n, d), and future covariates."""
        future = None
        if covariates is not None:
            future = np.stack(
                [c[len(x) : len(x) + self.horizon] for x, c in zip(parts, self._standard(covariates))]
            )
            covariates = [c[max(0, len(x) - READ) :] for x, c in zip(parts, covariates)]
        seen = self._adjusted([x[-READ:] for x in parts], covariates)
        smoothers, states = self._smoothers(), list(seen.states)
        base = np.empty((len(parts), self.horizon, self.n_features_in_))
        nothing = np.zeros(len(parts))
        for k in range(self.horizon):
            for j, smoother in enumerate(smoothers):
                base[:, k, j] = smoother.expect(states[j])
                states[j] = smoother.advance(states[j], nothing)
        return base, self._networked(seen, future), seen.scale, future

    def _networked(self, seen: Adjusted, future: np.ndarray | None) -> np.ndarray:
        """Return forecasts by eq. 1, fed back."""
        like = next(self.module_.parameters())
        ends = np.cumsum(seen.lengths)
        tails = [seen.inputs[max(a, b - self.max_length_) : b] for a, b in zip(ends - seen.lengths, ends)]
        data = Ragged.of([tail.clip(-LARGEST, LARGEST) for tail in tails], like.dtype, like.device)
        out = np.empty((len(tails), self.horizon, self.n_features_in_))
        read = self._stepped if self.cell in RECURRENT else self._reread
        with torch.inference_mode():
            for rows, x, lengths in in_batches(data):
                rows = rows.numpy()
                states = [state.take(rows) for state in seen.states]
                ahead = None if future is None else future[rows]
                out[rows] = self._fed_back(read(x, lengths), states, seen.scale[rows], ahead)
        return out

    def _fed_back(
        self, reader: Any, states: list[Any], scale: np.ndarray, future: np.ndarray | None
    ) -> np.ndarray:
        smoothers, z = self._smoothers(), np.empty((len(scale), self.horizon, self.n_features_in_))
        said = next(reader)
        for k in range(self.horizon):
            e = np.clip(said.double().cpu().numpy(), -LARGEST, LARGEST)
            for j, smoother in enumerate(smoothers):
                z[:, k, j] = smoother.expect(states[j]) + e[:, j] * scale[:, j]
                states[j] = smoother.advance(states[j], e[:, j] * scale[:, j])
            after = np.zeros((len(z), 0)) if future is None else future[:, min(k + 1, self.horizon - 1)]
            step = np.concatenate([e, self._values(z[:, k]), after], 1).clip(-LARGEST, LARGEST)
            if k + 1 < self.horizon:
                said = reader.send(torch.as_tensor(step).to(said))
        return z

    def _stepped(self, x: Tensor, lengths: Tensor) -> Any:
        """Yield the predicted innovation after each series' end, then after each step that is sent, from the recurrent state."""
        net, cell = self.module_, self.module_.encoder.cell
        packed = pack_padded_sequence(net.inputs(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        state = cell(packed)[1]
        while True:
            top = (state[0] if isinstance(state, tuple) else state)[-1]  # of an LSTM, without its memory
            step = yield net.head(top)
            state = cell(net.inputs(step)[:, None], state)[1]

    def _reread(self, x: Tensor, lengths: Tensor) -> Any:
        """Do the same without a recurrent state, by reading the whole series again."""
        rows, end = torch.arange(len(x), device=x.device), lengths.to(x.device)
        while True:
            step = yield self.module_(x)[rows, end - 1]
            if int(end.max()) == x.shape[1]:
                x = torch.cat([x, x.new_zeros(len(x), 1, x.shape[2])], 1)
            x[rows, end] = step
            end = end + 1

    def _next_values(self, seen: Adjusted) -> np.ndarray:
        """Return what was expected of every step, (N, d), as series are smoothed; of first steps without the network."""
        scale = np.repeat(seen.scale, seen.lengths, axis=0)
        expected = seen.values - seen.innovations * scale
        low, high = pieces(seen.lengths, self.max_length_)
        tails = [seen.inputs[a:b].clip(-LARGEST, LARGEST) for a, b in zip(low, high)]
        padded = self._evaluate(tails, lambda x, lengths: self.module_(x))
        said = np.concatenate([part[: b - a] for part, a, b in zip(padded, low, high)])
        inner = np.delete(np.arange(len(expected)), np.cumsum(seen.lengths) - seen.lengths)
        expected[inner] += self.network_share_ * said[inner - 1] * scale[inner]
        return expected


def _origins(first: np.ndarray, last: np.ndarray) -> list[tuple[int, int]]:
    """Return at most ``ORIGINS`` places (series, step) from the first to before the last step of the series, evenly."""
    series = [i for i in np.unique(np.linspace(0, len(first) - 1, ORIGINS).astype(int)) if first[i] < last[i]]
    each = max(1, ORIGINS // max(1, len(series)))
    steps = [np.unique(np.linspace(first[i], last[i] - 1, each).astype(int)) for i in series]
    return [(int(i), int(t)) for i, found in zip(series, steps) for t in found]


def _reaching(c: np.ndarray, steps: int) -> np.ndarray:
    """Return covariates over so many steps; the last are repeated where there are no more."""
    return c[np.minimum(np.arange(steps), len(c) - 1)]
