"""R-hat, effective sample sizes and Monte-Carlo errors against ArviZ."""

import tempfile
import warnings

import numpy as np
import pytest

from corollary import bayes

# Once a day ArviZ warns of its next version and writes that down, and of two workers that import it then, one fails.
with warnings.catch_warnings(), tempfile.TemporaryDirectory() as cache, pytest.MonkeyPatch.context() as patch:
    warnings.simplefilter("ignore", FutureWarning)
    patch.setenv("XDG_CACHE_HOME", cache)
    arviz = pytest.importorskip("arviz")


def draws(C, S, d=8):
    """Return autoregressive chains from antithetic to sticky, one of them rounded and one with a chain apart."""
    rng = np.random.default_rng(C * S)
    x = rng.normal(size=(C, S, d))
    for t in range(1, S):
        x[:, t] += np.linspace(-0.9, 0.99, d) * x[:, t - 1]
    x[..., 2] = np.round(x[..., 2])
    x[0, :, 3] += 3
    return x


# 101 and 1001 draws: a quantile falls on a draw; odd numbers: the middle draw is left out
@pytest.mark.parametrize(("C", "S"), [(4, 300), (1, 101), (2, 4), (3, 7), (2, 1001)])
def test_numbers_are_those_of_arviz(C, S):
    x = draws(C, S)
    theirs = {
        "ess_bulk": lambda v: arviz.ess(v, method="bulk"),
        "ess_tail": lambda v: arviz.ess(v, method="tail"),
        "mcse_mean": lambda v: arviz.mcse(v, method="mean"),
    }
    if C > 1:  # ArviZ has no R-hat of one chain
        theirs["r_hat"] = arviz.rhat
    table = bayes.summary(x)
    for name, ask in theirs.items():
        wanted = [np.squeeze(ask(x[..., i])) for i in range(x.shape[2])]
        np.testing.assert_allclose(table[name], wanted, rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(bayes.ess(x, "mean")[0], np.squeeze(arviz.ess(x[..., 0], method="mean")), 1e-6)
    np.testing.assert_allclose(bayes.bfmi(x[..., 1]), arviz.bfmi(x[..., 1]), rtol=1e-9)


def test_a_parameter_that_never_moves():
    x = draws(2, 50)[..., :2]
    x[..., 0] = 1.5
    table = bayes.summary(x, ["still", "moving"])
    assert table.loc["still", "ess_bulk"] == 100 and np.isnan(table.loc["still", "r_hat"])
    assert np.isfinite(table.loc["moving"]).all()


def test_one_parameter_and_tensors():
    import torch

    x = draws(2, 50)[..., :1]
    assert bayes.r_hat(x[..., 0]).shape == (1,)
    np.testing.assert_array_equal(bayes.r_hat(torch.as_tensor(x)), bayes.r_hat(x))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: bayes.summary(np.zeros(5)),
            r"must be numbers of shape \(chains, draws, d\); got float64 of",
        ),
        (lambda: bayes.summary(np.zeros((2, 3, 1))), "at least 4 draws; got 2 chains of 3"),
        (lambda: bayes.r_hat([["a"] * 5] * 2), "draws must be numbers"),
        (lambda: bayes.summary(np.zeros((2, 5, 2)), ["a"]), "a name for each of 2 parameters; got 1"),
        (lambda: bayes.ess(np.zeros((2, 5)), "bluk"), "no kind named 'bluk'. Closest: 'bulk'"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_arviz_reads_what_is_exported():
    sampler = bayes.HMC(2, 20, 20, random_state=0).fit(lambda t: -0.5 * t.square().sum(1), np.zeros(2))
    data = sampler.to_arviz(["a", "b"])
    np.testing.assert_array_equal(data.posterior["b"], sampler.draws_[..., 1])
    np.testing.assert_array_equal(data.sample_stats["diverging"], sampler.statistics_["diverging"])
    np.testing.assert_array_equal(data.sample_stats["lp"], sampler.statistics_["log_density"])
    assert bayes.to_arviz(sampler.draws_).posterior["theta"].shape == (2, 20, 2)


def test_pictures_of_draws():
    from corollary import plot

    x = draws(3, 60)[..., :3]
    diverging = np.zeros((3, 60), bool)
    diverging[1, :5] = True
    assert len(plot.trace(x, ["a", "b", "c"], diverging).axes) == 6
    # one chain stands apart in the last parameter: its ranks are not flat
    figure = plot.ranks(draws(3, 60)[..., 3:4], bins=6)
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert len(figure.axes) == 3 and sum(heights) == 60 and heights[-1] > 30
    figure = plot.joint(x, diverging=diverging)
    assert len(figure.axes) == 6
    points, marked = figure.axes[1].lines
    assert len(points.get_xdata()) == 175 and len(marked.get_xdata()) == 5
    assert all(plot.save(f).startswith(b"\x89PNG") for f in (figure, plot.trace(x)))
    for call in (plot.trace, plot.ranks, plot.joint):
        with pytest.raises(ValueError, match=r"draws must have shape \(chains, draws, d\); got shape \(3,\)"):
            call(np.zeros(3))
        with pytest.raises(ValueError, match="a name for each of 3 parameters; got 1"):
            call(x, ["a"])
    with pytest.raises(ValueError, match=r"diverging must have shape \(3, 60\)"):
        plot.joint(x, diverging=[True])
