"""Exponential smoothing, what forecasts are made of, intervals, covariates and backtests."""

import numpy as np
import pytest
from statsmodels.tsa.holtwinters import ExponentialSmoothing
from statsmodels.tsa.stattools import acf as reference_acf
from statsmodels.tsa.stattools import kpss

from corollary import SequenceForecaster, Training, load
from corollary.sequences import backtest
from corollary.sequences.adjusting import covariate_weights, pieces
from corollary.sequences.backtesting import Naive, forecast_errors
from corollary.sequences.forecaster import error_quantiles, share_of
from corollary.sequences.smoothing import (
    SEASONS,
    Smoother,
    _first,
    acf,
    candidate_seasons,
    fit_smoother,
    is_level_stationary,
)

FEW = Training(3)


def growing(n=120, seed=0, season=12, noise=0.03):
    """Return a series that grows in proportion, with a season in proportion."""
    rng, t = np.random.default_rng(seed), np.arange(n)
    return np.exp(4 + 0.01 * t + 0.25 * np.sin(2 * np.pi * t / season) + noise * rng.normal(size=n))


def ahead(smoother, x, steps):
    """Return the forecasts of a smoother from the end of a series."""
    _, state = smoother.run(smoother.forward(x), [len(x)])
    out = []
    for _ in range(steps):
        out.append(smoother.backward(smoother.expect(state))[0])
        state = smoother.advance(state, np.zeros(1))
    return np.array(out)


# --- smoothing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "season, trend, damped", [(None, None, False), (4, "add", False), (4, "add", True), (None, "add", True)]
)
def test_smoothing_is_holts_and_winters_recursion(season, trend, damped):
    x = growing(48, season=4)
    m = season or 1
    ours = Smoother(
        m,
        "none" if trend is None else "damped" if damped else "linear",
        0.4,
        0.08,
        0.2,
        0.9 if damped else 1.0,
    )
    ours = Smoother(**{**ours.plain(), "beta": 0.08 if trend else 0.0, "gamma": 0.2 if season else 0.0})
    errors, _ = ours.run(x, [len(x)])
    state = np.zeros(2 + m)
    _first(x, m, trend is not None, SEASONS[0], state)
    start = {"initialization_method": "known", "initial_level": state[0]}
    start |= {"initial_trend": state[1]} if trend else {}
    start |= {"initial_seasonal": state[2:]} if season else {}
    theirs = ExponentialSmoothing(x, trend=trend, damped_trend=damped, seasonal="add" if season else None,
                                  seasonal_periods=season, **start)  # fmt: skip
    told = {
        "smoothing_level": 0.4,
        "smoothing_trend": 0.08 / 0.4,
        "smoothing_seasonal": 0.2,
        "damping_trend": 0.9,
    }
    told = {k: v for k, v in told.items() if k != "smoothing_trend" or trend}
    told = {k: v for k, v in told.items() if k != "smoothing_seasonal" or season}
    told = {k: v for k, v in told.items() if k != "damping_trend" or damped}
    fitted = theirs.fit(**told, optimized=False)
    np.testing.assert_allclose(errors, fitted.resid, rtol=1e-9, atol=1e-9)  # the same sums in float64
    # statsmodels updates the season of the very last step by another formula, which a fourth step ahead would show.
    np.testing.assert_allclose(ahead(ours, x, 3), fitted.forecast(3), rtol=1e-9)


def test_series_are_smoothed_apart_and_states_go_on():
    a, b = growing(40, 1), growing(30, 2)
    smoother = Smoother(12, "linear", 0.3, 0.05, 0.1)
    errors, state = smoother.run(np.concatenate([a, b]), [40, 30])
    np.testing.assert_array_equal(errors[40:], smoother.run(b, [30])[0])
    before = smoother.run(np.concatenate([a[:39], b[:29]]), [39, 29])[1]
    last = np.array([a[39], b[29]])
    after = smoother.advance(before, last - smoother.expect(before))
    for name in ("level", "slope", "season", "place"):
        np.testing.assert_allclose(getattr(after, name), getattr(state, name), rtol=1e-12)
    with pytest.raises(ValueError, match="sum to the number"):
        smoother.run(a, [39])


def test_autocorrelation_and_stationarity_are_statsmodels():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=300)
    np.testing.assert_allclose(acf(noise - noise.mean(), 20), reference_acf(noise, nlags=20), atol=1e-12)
    walk = np.cumsum(noise)
    with pytest.warns(Warning):  # statsmodels: the p-value is outside of its table
        assert kpss(walk, nlags=5)[1] < 0.05
    assert is_level_stationary([noise]) and not is_level_stationary([walk])


def test_seasons_logarithms_and_trends_are_found():
    assert candidate_seasons([growing()])[0] == 12
    assert candidate_seasons([np.random.default_rng(0).normal(size=20)] * 3) is not None
    found = fit_smoother([growing()])
    assert found.log and found.period == 12 and found.trend == "linear"
    rng = np.random.default_rng(0)
    flat = fit_smoother([rng.normal(size=200)])
    assert flat.period == 1 and not flat.log and flat.trend == "none" and flat.alpha < 0.1
    walk = fit_smoother([100 + np.cumsum(rng.normal(size=300))], log=False)
    assert walk.alpha > 0.8 and walk.period == 1
    assert fit_smoother([growing()], period=6).period == 6 and fit_smoother([growing()], None).period == 1


def test_the_shares_are_about_the_best():
    x = growing(100, 3)
    ours = fit_smoother([x], 12, log=False)
    theirs = ExponentialSmoothing(x, trend="add", seasonal="add", seasonal_periods=12).fit()
    # Ours begins with an estimate of level, slope and season, theirs optimises those too.
    assert np.mean(ours.run(x, [100])[0] ** 2) < 1.3 * np.mean(theirs.resid**2)


# --- the forecaster --------------------------------------------------------------------------------------


def test_defaults_hold_against_holt_winters():
    wrong = []
    for seed in range(3):
        x = growing(144, seed)
        model = SequenceForecaster(horizon=24, random_state=0, training=Training(5)).fit(x[:120])
        theirs = (
            ExponentialSmoothing(x[:120], trend="add", seasonal="mul", seasonal_periods=12).fit().forecast(24)
        )
        season = np.tile(x[108:120], 2)
        wrong.append(
            [np.sqrt(np.mean((f - x[120:]) ** 2)) for f in (model.predict(x[:120])[0, :, 0], theirs, season)]
        )
        assert model.seasonality_.tolist() == [12] and model.log_.all()
    ours, theirs, season = np.mean(wrong, 0)
    assert ours < 1.1 * theirs and ours < 0.5 * season


def test_the_network_counts_where_smoothing_cannot_follow():
    rng = np.random.default_rng(0)

    def logistic(n):
        x = [rng.uniform(0.1, 0.9)]
        while len(x) < n:
            x.append(3.9 * x[-1] * (1 - x[-1]))
        return np.array(x)

    series = [logistic(40) for _ in range(30)]
    plan = Training(40, learning_rate=0.02, batch_size=8)
    model = SequenceForecaster("tcn", width=16, n_layers=1, training=plan, random_state=0).fit(series)
    assert model.network_share_[0] > 0.9 and model.score(series) > 0.95
    noise = [rng.normal(size=100) for _ in range(10)]
    calm = SequenceForecaster(training=FEW, random_state=0).fit(noise)
    assert calm.trend_ == ["mean"] and np.abs(calm.predict(noise)).mean() < 0.4  # there is nothing to follow


def test_what_is_fed_back_is_smoothing_alone_where_the_network_says_nothing():
    x = growing(80, season=4)
    model = SequenceForecaster(horizon=5, training=FEW, random_state=0).fit(x)
    for p in model.module_.head.parameters():
        p.data.zero_()
    base, net, *_ = model._paths([x[:, None]], None)
    np.testing.assert_allclose(net, base, rtol=1e-12)
    np.testing.assert_allclose(
        model._unsmoothed(base, None)[0, :, 0], ahead(model._smoothers()[0], x, 5), rtol=1e-12
    )


def test_the_share_is_the_least_squares_one():
    rng = np.random.default_rng(0)
    base, net, came = rng.normal(size=(3, 20, 4, 2))
    came = 0.7 * base + 0.3 * net + 0.01 * came
    np.testing.assert_allclose(share_of(base, net, came), 0.3, atol=0.02)
    assert share_of(base, net, net + (net - base)).tolist() == [1, 1]
    assert share_of(base, net, base - net).tolist() != [1, 1] and share_of(base, base, came).tolist() == [
        0,
        0,
    ]


def test_intervals_cover():
    walk = 50 + np.cumsum(np.random.default_rng(0).normal(size=(150, 70)), axis=1)
    known, came = [*walk[:, :60]], walk[:, 60:, None]
    model = SequenceForecaster(horizon=10, width=4, training=Training(1), random_state=0).fit(known)
    low, high = model.predict_interval(known, coverage=0.8)
    inside = (low <= came) & (came <= high)
    # Errors along a walk are alike, so 150 walks count as at most 150: a standard error of 0.033.
    assert abs(inside.mean() - 0.8) < 0.1
    width = (high - low)[0, :, 0]
    assert (np.diff(width) >= 0).all() and 2.2 < width[-1] / width[0] < 4.5  # about the root of 10
    wide = model.predict_interval(known, coverage=0.95)
    assert (wide[0] <= low).all() and (wide[1] >= high).all()
    with pytest.raises(ValueError, match=r"coverage must lie in \[0.01, 0.99\]; got 1.5"):
        model.predict_interval(known, coverage=1.5)


def test_quantiles_of_errors_are_conformal_and_go_on_with_the_root():
    wrong = np.arange(1.0, 100.0)[:, None, None] * np.ones((99, 4, 1))
    wrong[1:, 2:] = np.nan
    found = error_quantiles(wrong)
    assert found[89, 0, 0] == 90 and found[49, 1, 0] == 50
    np.testing.assert_allclose(found[:, 3] / found[:, 1], np.sqrt(2))


def test_covariates_are_used_and_asked_for():
    rng = np.random.default_rng(0)
    c = rng.integers(0, 2, size=(160, 1)).astype(float)
    x = 20 + np.cumsum(0.1 * rng.normal(size=160)) + 5 * c[:, 0]
    weights = covariate_weights([x[:, None]], [c])
    assert weights[0, 0] == pytest.approx(5, abs=0.1)
    model = SequenceForecaster(horizon=10, training=FEW, random_state=0).fit(x[:150], covariates=c[:150])
    found = model.predict(x[:150], covariates=c)[0, :, 0]
    plain = (
        SequenceForecaster(horizon=10, training=FEW, random_state=0).fit(x[:150]).predict(x[:150])[0, :, 0]
    )
    assert np.abs(found - x[150:]).mean() < 0.3 * np.abs(plain - x[150:]).mean()
    assert model.score(x, covariates=c) > 0.9
    tested = model.backtest(x, n_origins=2, covariates=c)
    assert tested["model"]["RMSE"] < tested["naive"]["RMSE"]
    with pytest.raises(ValueError, match="the 1 covariates of the fit must be given; got none"):
        model.predict(x)
    with pytest.raises(ValueError, match=r"must have shape \(170, 1\) or more steps; got shape \(160, 1\)"):
        model.predict([x], covariates=[c])
    with pytest.raises(ValueError, match="fitted without covariates"):
        SequenceForecaster(training=FEW).fit(x).predict(x, covariates=c)
    with pytest.raises(ValueError, match="must be finite"):
        model.fit(x, covariates=c * np.nan)


def test_series_of_other_scales_are_learned_alike():
    series = [scale * growing(60, seed, 4) for seed, scale in enumerate([1e-3, 1.0, 1e4])]
    model = SequenceForecaster(horizon=4, transform=None, training=FEW, random_state=0).fit(
        [s[:-4] for s in series]
    )
    assert model.own_scale_
    for s, f in zip(series, model.predict([s[:-4] for s in series])):
        assert np.abs(f[:, 0] / s[-4:] - 1).mean() < 0.2


def test_long_series_are_learned_in_pieces():
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000)
    model = SequenceForecaster(max_length=100, training=Training(1), random_state=0).fit(x)
    seen = model._adjusted([x[:, None]], None)
    batches = model._windows(seen, np.array([0]), np.array([2400]))
    assert int(batches.lengths.max()) <= 100 and int(batches.lengths.sum()) == 2399
    held = model._windows(seen, np.array([2400]), np.array([3000]))
    assert float(held.weight.flat.sum()) == 600 and int(held.lengths.sum()) == 699  # with what is read before
    begin, end = pieces(np.array([250, 3]), 100)
    assert (end - begin).tolist() == [83, 83, 84, 3] and begin[-1] == 250


def test_a_file_keeps_what_was_learned(tmp_path):
    x = growing(90)
    model = SequenceForecaster(horizon=6, training=FEW, random_state=0).fit(x)
    again = load(model.save(tmp_path / "m.safetensors"))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(again.predict_interval(x), model.predict_interval(x))
    assert again.seasonality_.tolist() == [12] and again.trend_ == model.trend_


def test_what_a_forecaster_refuses():
    with pytest.raises(ValueError, match="feature 0 must be positive, since logarithms are taken; got -1"):
        SequenceForecaster(transform="log", training=FEW).fit(np.array([-1.0, 2.0, 3.0, 4.0]))
    model = SequenceForecaster(training=FEW, random_state=0).fit(growing(60))
    assert model.log_[0]
    with pytest.raises(ValueError, match="must be positive"):
        model.predict(np.array([0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match="12 steps or more for 5 origins; got 8 in the shortest"):
        SequenceForecaster(horizon=2).backtest(np.arange(8.0))


# --- backtests -------------------------------------------------------------------------------------------


def test_a_backtest_never_sees_the_future():
    seen = []

    class Spy(Naive):
        def fit(self, X, y=None):
            seen.append([len(x) for x in X])
            return super().fit(X, y)

    x = np.arange(50.0)
    found = backtest(Spy("last", 5), [x, x[:40]], n_origins=3)
    assert seen == [[35, 25], [40, 30], [45, 35]]
    assert found["model"] == found["naive"]
    assert found["naive"]["RMSE"] == pytest.approx(np.sqrt(np.mean(np.arange(1, 6) ** 2)))
    assert found["naive"]["MASE"] == pytest.approx(3.0)
    assert forecast_errors([x[:3, None]], [x[:3, None]], [x[:, None]]) == {"MASE": 0.0, "RMSE": 0.0}


@pytest.mark.parametrize("seasons", SEASONS)
def test_the_first_season_is_a_mean_of_several(seasons):
    """With shares of zero nothing moves, so the state at the end is the one that the series began with."""
    rng = np.random.default_rng(0)
    x = np.tile([1.0, -2.0, 4.0, 0.5], 15) + rng.normal(size=60)
    still = Smoother(4, "none", 0.0, 0.0, 0.0, seasons=seasons)
    state = still.run(x, np.array([60]))[1]
    table = x[: 4 * seasons].reshape(seasons, 4)
    change = (table[-1].mean() - table[0].mean()) / (
        4 * (seasons - 1)
    )  # a line through the first and the last mean
    line = table.mean() + change * (np.arange(4 * seasons) - (4 * seasons - 1) / 2)
    np.testing.assert_allclose(state.season[0], (table - line.reshape(seasons, 4)).mean(0), atol=1e-12)


def test_how_many_seasons_are_averaged_is_decided_by_forecasts():
    """Ten are taken where forecasts inside the series are clearly better with them, and where there are so many."""
    weeks = pytest.importorskip(
        "statsmodels.api", reason="its weeks of carbon dioxide"
    ).datasets.co2.load_pandas()
    x = weeks.data["co2"].interpolate().to_numpy()[-520:]
    assert fit_smoother([x], period=52).seasons == 10
    assert fit_smoother([x[-200:]], period=52).seasons == 4
