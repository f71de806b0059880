"""Samplers: moments of known targets, detailed balance, step errors, calibration, exact resume, bad input."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import chi2
from sklearn.base import clone

import corollary
from bayes_reference import EFFECTS, ERRORS, regression_data
from corollary import Run, bayes
from corollary.bayes.adaptation import Spread, windows
from corollary.bayes.density import Target
from corollary.bayes.hmc import energy, leapfrog
from corollary.bayes.nuts import slots
from corollary.errors import CorollaryWarning, Diverged, FitStopped

COVARIANCE = torch.tensor([[1.0, 1.2], [1.2, 4.0]]).double()
PRECISION = torch.linalg.inv(COVARIANCE)
MEAN = torch.tensor([1.0, -2.0]).double()


def gaussian(theta):
    centred = theta - MEAN
    return -0.5 * ((centred @ PRECISION) * centred).sum(1)


def check_moments(draws, mean, variance):
    """Means of draws and of their squares within 5 Monte-Carlo errors of the truth: wrong once in a million."""
    mean, variance = np.asarray(mean), np.asarray(variance)
    for x, wanted, size in ((draws, mean, variance**0.5), ((draws - mean) ** 2, variance, variance)):
        table = bayes.summary(x)
        assert (
            table["mcse_mean"] < 0.15 * size
        ).all()  # there are enough draws for the check to mean something
        assert (np.abs(table["mean"] - wanted) < 5 * table["mcse_mean"]).all(), table


EXACT = [
    bayes.Metropolis(100, 40, 300, thin=10),
    bayes.Metropolis(100, 40, 300, thin=5, covariance="dense"),
    bayes.HMC(100, 40, 150),
    bayes.HMC(100, 40, 150, covariance="identity", path_length=4.0),
    bayes.NUTS(100, 20, 80),
    bayes.NUTS(100, 20, 80, covariance="dense"),
    bayes.MALA(100, 40, 200, thin=5),
    bayes.MALA(100, 40, 200, thin=3, covariance="dense"),
]


@pytest.mark.parametrize("sampler", EXACT, ids=lambda s: f"{type(s).__name__}-{s.covariance}")
def test_moments_of_a_gaussian(sampler):
    sampler.set_params(random_state=0).fit(gaussian, np.zeros(2))
    assert sampler.draws_.shape == (sampler.n_chains, sampler.n_draws, 2)
    check_moments(sampler.draws_, MEAN, COVARIANCE.diagonal())
    product = (sampler.draws_ - MEAN.numpy()).prod(2)
    table = bayes.summary(product)
    assert abs(table["mean"] - 1.2).iloc[0] < 5 * table["mcse_mean"].iloc[0]


def test_langevin_steps_have_their_own_stationary_variance():
    """In one dimension with precision a, ULA has variance 1 / (a (1 - eta a / 2)); SGHMC solves a Lyapunov equation."""
    a, eta, gamma = 2.0, 0.3, 1.5
    target = lambda t: -0.5 * a * t.square().sum(1)
    ula = bayes.ULA(300, 60, 60, thin=5, step_size=eta, random_state=0).fit(target, [0.0])
    check_moments(ula.draws_, [0.0], [1 / (a * (1 - eta * a / 2))])
    kinetic = bayes.SGHMC(300, 60, 60, thin=5, step_size=eta, friction=gamma, random_state=0)
    kinetic.fit(target, [0.0])
    drift = np.array([[1 - eta**2 * a, eta * (1 - eta * gamma)], [-eta * a, 1 - eta * gamma]])
    kick = math.sqrt(2 * gamma * eta) * np.array([eta, 1.0])
    check_moments(kinetic.draws_, [0.0], [solve_discrete_lyapunov(drift, np.outer(kick, kick))[0, 0]])


def test_the_bias_of_sgld_falls_with_its_step():
    """Rows y ~ N(theta, 1): batches of n of N rows give the variance of a linear recursion, which tends to the posterior's."""
    N, n = 40, 10
    y = torch.as_tensor(np.random.default_rng(0).normal(size=N))
    posterior = bayes.Posterior(lambda t: -0.5 * t.square().sum(1), lambda t, y: -0.5 * (y - t).square(), y)
    mean, precision, noise = float(y.sum()) / (N + 1), N + 1, N**2 / n * float(y.var(correction=0))
    bias = []
    for eta, thin in ((0.016, 1), (0.004, 4)):
        sampler = bayes.SGLD(30, 400, 40, thin=thin, step_size=eta, batch_size=n, random_state=0)
        draws = sampler.fit(posterior, [mean]).draws_
        # x' = (1 - eta precision) x + eta (noise of the batch, the same for all chains) + sqrt(2 eta) z
        widened = (2 * eta + eta**2 * noise) / (1 - (1 - eta * precision) ** 2)
        bias.append(((draws - mean) ** 2).mean() - 1 / precision)
        # the noise that the chains share has about 200 independent values: 10% of the variance, twice that of the bias
        assert bias[-1] == pytest.approx(widened - 1 / precision, rel=0.5)
    assert bias[0] > 2 * bias[1]


def test_hmc_in_a_thousand_dimensions():
    """Condition number 1000: the learned diagonal makes the target round."""
    scale = torch.logspace(0, 1.5, 1000).double()
    sampler = bayes.HMC(8, 60, 250, random_state=0).fit(
        lambda t: -0.5 * (t / scale).square().sum(1), torch.zeros(1000).double()
    )
    z = sampler.draws_ / scale.numpy()
    # 480 draws, nearly independent: the mean of 1000 variances errs by about sqrt(2 / 480 / 1000) of autocorrelation time 3
    assert abs(z.var() - 1) < 0.02
    assert abs(z.mean((0, 1))).max() < 0.35
    table = sampler.summary()
    assert table["ess_bulk"].min() > 100 and table["r_hat"].max() < 1.1
    assert sampler.covariance_.shape == (1000,)
    assert np.corrcoef(np.log(sampler.covariance_), np.log(scale.numpy()))[0, 1] > 0.95


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")  # a path may diverge at the bend
def test_banana():
    """x ~ N(0, 1), y = z + (x² - 1): mean 0, variances 1 and 3."""
    log_density = lambda t: -0.5 * (t[:, 0].square() + (t[:, 1] - t[:, 0].square() + 1).square())
    sampler = bayes.NUTS(100, 30, 60, target_acceptance=0.9, random_state=0).fit(log_density, np.zeros(2))
    check_moments(sampler.draws_, [0.0, 0.0], [1.0, 3.0])


def test_the_funnel_is_missed_with_a_warning_and_found_after_reparametrisation():
    """v ~ N(0, 9), x_i ~ N(0, exp(v)): no step suits both ends."""

    def funnel(t):
        v, x = t[:, 0], t[:, 1:]
        return -v.square() / 18 - 0.5 * (x.square().sum(1) * (-v).exp() + 9 * v)

    sampler = bayes.NUTS(20, 100, 40, max_depth=4, random_state=0)
    with pytest.warns(CorollaryWarning, match=r"NUTS: (\d+ of 2000 transitions .* diverged|.*E-BFMI)"):
        sampler.fit(funnel, np.zeros(10))
    true_quantile = -6.98
    assert np.quantile(sampler.draws_[..., 0], 0.01) > true_quantile + 1  # the neck is not reached
    parametrised = lambda t: (
        -t[:, 0].square() / 18 - 0.5 * t[:, 1:].square().sum(1)
    )  # of v and x / exp(v / 2)
    free = bayes.NUTS(20, 40, 60, random_state=0).fit(parametrised, np.zeros(10))
    check_moments(free.draws_[..., :1], [0.0], [9.0])
    assert not free.statistics_["diverging"].any()


@pytest.mark.parametrize("cls", [bayes.HMC, bayes.NUTS])
def test_divergences_are_counted_and_located(cls):
    """One chain has a curvature that the step does not resolve, the other is round."""
    stiff = lambda t: -0.5 * t.square().sum(1) * torch.tensor([1e5, 1.0]).double()
    sampler = cls(2, 20, 0, step_size=0.5, random_state=0)
    still, diverged = "1 of 2 chains hardly moved", "20 of 40 transitions after the warm-up diverged"
    with pytest.warns(CorollaryWarning, match=diverged), pytest.warns(CorollaryWarning, match=still):
        sampler.fit(stiff, np.ones(2))
    assert sampler.statistics_["diverging"][0].all() and not sampler.statistics_["diverging"][1].any()


REFERENCE = json.loads(Path(__file__).with_name("bayes_reference.json").read_text())


def check_against_blackjax(name, draws):
    """Means within 4 Monte-Carlo errors of both."""
    table, wanted = bayes.summary(draws), REFERENCE[name]
    error = np.hypot(table["mcse_mean"], wanted["mcse"])
    assert (np.abs(table["mean"] - wanted["mean"]) < 4 * error).all(), table
    assert table["r_hat"].max() < 1.05


@pytest.mark.filterwarnings("ignore::corollary.errors.CorollaryWarning")  # a few paths may diverge
def test_eight_schools_as_by_blackjax():
    y, sigma = (torch.tensor(values).double() for values in (EFFECTS, ERRORS))

    def log_density(t):
        mu, log_tau, z = t[:, 0], t[:, 1], t[:, 2:]
        prior = (
            -0.5 * (mu / 5) ** 2 - torch.log1p((log_tau.exp() / 5) ** 2) + log_tau - 0.5 * z.square().sum(1)
        )
        return prior - 0.5 * ((y - mu[:, None] - log_tau.exp()[:, None] * z) / sigma).square().sum(1)

    draws = (
        bayes.NUTS(60, 40, 100, target_acceptance=0.9, random_state=0).fit(log_density, np.zeros(10)).draws_
    )
    effects = draws[..., :1] + np.exp(draws[..., 1:2]) * draws[..., 2:]
    check_against_blackjax("schools", np.concatenate([draws[..., :2], effects], axis=2))


@pytest.mark.parametrize(
    "sampler", [bayes.HMC(50, 40, 100), bayes.MALA(100, 40, 200, thin=5)], ids=lambda s: type(s).__name__
)
def test_logistic_regression_as_by_blackjax(sampler):
    X, y = (torch.as_tensor(part) for part in regression_data())
    likelihood = lambda w, X, y: (w @ X.T) * y - torch.nn.functional.softplus(w @ X.T)
    posterior = bayes.Posterior(lambda w: -0.5 * w.square().sum(1), likelihood, X, y)
    check_against_blackjax("logistic", sampler.set_params(random_state=0).fit(posterior, np.zeros(5)).draws_)


# --- the parts -------------------------------------------------------------------------------------------


def test_detailed_balance_on_a_finite_space():
    """Every pair (from, to) is a chain; the acceptances that the sampler reports make the target stationary."""
    rng = np.random.default_rng(0)
    n = 6
    log_p, r = torch.as_tensor(rng.normal(size=n)), rng.dirichlet(np.ones(n), size=n)
    i, j = (part.ravel() for part in np.indices((n, n)))
    log_ratio = torch.as_tensor(np.log(r[j, i]) - np.log(r[i, j]))
    moves = lambda theta, generator: (torch.as_tensor(j[:, None]).double(), log_ratio)
    sampler = bayes.Metropolis(n * n, 1, 0, proposal=moves, random_state=0)
    sampler.fit(lambda t: log_p[t[:, 0].long()], i[:, None].astype(float))
    K = r * sampler.statistics_["acceptance"].reshape(n, n)
    p = np.exp(log_p.numpy()) / np.exp(log_p.numpy()).sum()
    np.testing.assert_allclose(p[:, None] * K, (p[:, None] * K).T, atol=1e-14)
    K += np.diag(1 - K.sum(1))
    np.testing.assert_allclose(p @ K, p, atol=1e-14)


@pytest.mark.parametrize("covariance", ["identity", "dense"])
def test_leapfrog_errs_by_the_square_of_its_step_and_runs_backwards(covariance):
    target = Target(lambda t: -t.pow(4).sum(1) / 4 + t.sin().prod(1), "test")
    theta, y = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(0)).double()
    spread = Spread(covariance, theta)
    if covariance == "dense":
        spread.matrix = COVARIANCE
    log_p, gradient = target.gradient(theta)
    before, off = energy(log_p, y, spread), []
    for n in (20, 40, 80):
        end = leapfrog(target, theta, y, gradient, 1 / n, n, spread)
        off.append(float((energy(end[1], end[2], spread) - before).abs().max()))
    slope = np.polyfit(np.log([20, 40, 80]), np.log(off), 1)[0]
    assert slope == pytest.approx(-2, abs=0.1)
    back = leapfrog(target, end[0], -end[2], end[3], 1 / n, n, spread)
    torch.testing.assert_close(back[0], theta, rtol=0, atol=1e-10)
    torch.testing.assert_close(-back[2], y, rtol=0, atol=1e-10)


def test_slots_remember_the_beginnings_of_all_balanced_parts():
    """By enumeration: the parts of a tree of 32 leaves that end at a leaf begin where the slots say."""
    held = {}
    for n in range(32):
        slot, first = slots(n)
        if n % 2 == 0:
            held[slot] = n
        parts = [n + 1 - size for size in (2, 4, 8, 16, 32) if (n + 1) % size == 0]
        assert sorted(held[k] for k in range(first, slot + 1)) == sorted(parts)


@pytest.mark.parametrize("warmup", [0, 1, 19, 20, 21, 99, 150, 151, 1000, 1234])
def test_windows_fill_the_slow_phase(warmup):
    first, ends = windows(warmup)
    assert all(a < b for a, b in zip([first, *ends], [*ends, warmup + 1]))
    assert warmup < 20 or warmup - 51 <= ends[-1] < warmup


def test_a_covariance_is_that_of_all_draws():
    theta = torch.randn(7, 30, 3, generator=torch.Generator().manual_seed(0)).double() * 3 + 10
    for kind in ("diagonal", "dense"):
        spread = Spread(kind, theta[0])
        for rows in theta:
            spread.update(rows)
        spread.renew()
        wanted = np.cov(theta.reshape(-1, 3).numpy().T) * (210 / 215) + 1e-3 * 5 / 215 * np.eye(3)
        matrix = spread.matrix if kind == "dense" else torch.diag(spread.matrix)
        wanted = wanted if kind == "dense" else np.diag(np.diag(wanted))
        np.testing.assert_allclose(matrix, wanted, rtol=1e-10)
        noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)).double()
        # momenta have the inverse covariance: y' S y is the squared length of the noise
        y = spread.unscale(noise)
        torch.testing.assert_close((y * spread.apply(y)).sum(1), noise.square().sum(1))
        torch.testing.assert_close((spread.scale(noise) * y).sum(1), noise.square().sum(1))


# --- simulation-based calibration ------------------------------------------------------------------------

SIMULATED = {
    "Metropolis": bayes.Metropolis(thin=25),
    "HMC": bayes.HMC(thin=2),
    "NUTS": bayes.NUTS(),
    "MALA": bayes.MALA(thin=12),
    "ULA": bayes.ULA(thin=80, step_size=0.03),
    "SGLD": bayes.SGLD(thin=80, step_size=0.02, batch_size=10),
    "SGHMC": bayes.SGHMC(thin=25, step_size=0.15),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_simulation_based_calibration(name):
    """The rank of a parameter drawn from the prior among draws of the posterior of its own data is uniform.

    Every chain has data of its own: 240 logistic regressions of 12 rows, 11 draws of each.
    """
    rng, n, draws, rows = np.random.default_rng(0), 240, 11, 12
    truth, x = rng.normal(size=(n, 2)), torch.as_tensor(rng.normal(size=(rows, 2)))
    y = torch.as_tensor((rng.random((n, rows)) < 1 / (1 + np.exp(-truth @ x.numpy().T))).astype(float)).T
    posterior = bayes.Posterior(
        lambda t: -0.5 * t.square().sum(1),
        lambda t, x, y: (t @ x.T) * y.T - torch.nn.functional.softplus(t @ x.T),
        x,
        y,
    )
    sampler = SIMULATED[name].set_params(n_chains=n, n_draws=draws, warmup=100, random_state=0)
    found = sampler.fit(posterior, np.zeros(2)).draws_
    ranks = (found < truth[:, None]).sum(1)
    for k in range(2):
        counts = np.bincount(ranks[:, k], minlength=draws + 1)
        statistic = ((counts - n / (draws + 1)) ** 2).sum() / (n / (draws + 1))
        assert chi2.sf(statistic, draws) > 1e-4, counts


# --- the engine ------------------------------------------------------------------------------------------

SMALL = [
    bayes.Metropolis(3, 15, 25, thin=2),
    bayes.HMC(3, 15, 25, covariance="dense"),
    bayes.NUTS(3, 15, 25),
    bayes.MALA(3, 15, 25),
    bayes.ULA(3, 15, 25),
    bayes.SGLD(3, 15, 25, batch_size=4),
    bayes.SGHMC(3, 15, 25, batch_size=4),
]
ROWS = torch.as_tensor(np.random.default_rng(1).normal(size=(20, 2)))


def rows_posterior():
    return bayes.Posterior(
        lambda t: -0.5 * t.square().sum(1), lambda t, x: -0.5 * (x - t[:, None]).square().sum(2), ROWS
    )


class _Cut(Exception):
    pass


@pytest.mark.parametrize("sampler", SMALL, ids=lambda s: type(s).__name__)
def test_cut_off_and_resumed_bit_for_bit(sampler, tmp_path):
    sampler.set_params(random_state=0)
    before = torch.get_rng_state()
    whole = corollary.base.Estimator.__sklearn_clone__(sampler).fit(rows_posterior(), np.zeros(2))
    assert torch.equal(before, torch.get_rng_state())

    def cut_at(step):
        def cut(event):
            if event.step >= step:
                raise _Cut

        return cut

    for step in (1, 20, 33):  # in the first window, in the second, among the draws
        with pytest.raises(_Cut), Run(tmp_path, resume=True, checkpoint_every=0, callbacks=[cut_at(step)]):
            sampler.fit(rows_posterior(), np.zeros(2))
    with Run(tmp_path, resume=True):
        sampler.fit(rows_posterior(), np.zeros(2))
    assert np.array_equal(sampler.draws_, whole.draws_)
    assert corollary.testing.same(sampler.statistics_, whole.statistics_)
    rows = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in s.history_] for s in (sampler, whole)
    ]
    assert rows[0] == rows[1] and len(rows[0]) == 40
    assert list(tmp_path.rglob("draws_theta.part"))
    loaded = corollary.load(tmp_path / "model.safetensors")
    assert type(loaded) is type(sampler) and np.array_equal(loaded.draws_, whole.draws_)
    assert loaded.summary().equals(whole.summary())
    # more draws go on from there
    longer = corollary.base.Estimator.__sklearn_clone__(sampler).set_params(n_draws=18)
    with Run(tmp_path, resume=True):
        longer.fit(rows_posterior(), np.zeros(2))
    assert np.array_equal(longer.draws_[:, :15], whole.draws_) and longer.draws_.shape[1] == 18


def test_two_processes_give_the_draws_of_one():
    one, two = (bayes.HMC(3, 10, 20, random_state=0) for _ in range(2))
    own = bayes.LogisticPosterior(*regression_data())
    with Run(processes=2):
        two.fit(own, np.zeros(5))
        with pytest.raises(
            ValueError, match="several processes must be able to receive the work; got .*lambda"
        ):
            two.fit(lambda t: -t.square().sum(1), np.zeros(2))
    # products of two chains are not rounded as those of three, and paths of 200 steps enlarge that
    np.testing.assert_allclose(two.draws_, one.fit(own, np.zeros(5)).draws_, rtol=1e-6)


def test_another_density_is_not_resumed(tmp_path):
    sampler = bayes.ULA(2, 5, 0, random_state=0)
    with Run(tmp_path):
        sampler.fit(lambda t: -t.square().sum(1), np.ones(2))
    with pytest.raises(ValueError, match="a resumed fit must have log_density="), Run(tmp_path, resume=True):
        sampler.fit(lambda t: -2 * t.square().sum(1), np.ones(2))


def test_a_time_limit_in_the_warm_up_leaves_no_draws_and_a_word():
    sampler = bayes.HMC(2, 10, 10**6, random_state=0)
    with pytest.warns(FitStopped, match="stopped by time limit"), Run(time_limit=0.2):
        sampler.fit(gaussian, np.zeros(2))
    assert sampler.draws_.shape == (2, 0, 2)
    with pytest.raises(ValueError, match="at least 4 draws; got 2 chains of 0"):
        sampler.summary()


def test_data_frames_as_starts_and_data():
    """pandas gives out memory that must not be written to, of which torch warns: an error here."""
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(6, 2)))
    posterior = bayes.Posterior(lambda t: -t.square().sum(1), lambda t, x: -0.5 * (t @ x.T).square(), frame)
    sampler = bayes.HMC(2, 5, 5, random_state=0).fit(posterior, pd.DataFrame(np.zeros((2, 2))))
    plain = bayes.Posterior(posterior.log_prior, posterior.log_likelihood, frame.to_numpy(copy=True))
    assert np.array_equal(sampler.draws_, clone(sampler).fit(plain, np.zeros((2, 2))).draws_)


def test_types_and_starts():
    sampler = bayes.HMC(2, 10, 10, random_state=0)
    assert sampler.fit(lambda t: -t.square().sum(1), torch.zeros(3)).draws_.dtype == np.float32
    assert sampler.fit(lambda t: -t.square().sum(1), [0, 0]).draws_.dtype == np.float64
    apart = bayes.ULA(2, 1, 0, step_size=1e-12, random_state=0).fit(gaussian, [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_allclose(apart.draws_[:, 0], [[1, 2], [3, 4]], atol=1e-4)


# --- gradients of one's own ------------------------------------------------------------------------------


def test_the_posterior_of_logistic_regression_and_its_gradient():
    X, y = regression_data()
    found = bayes.LogisticPosterior(X, np.where(y > 0, "yes", "no"), prior=2.0)
    theta = torch.randn(
        3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )
    z = theta @ torch.as_tensor(X).T
    log_p = torch.distributions.Bernoulli(logits=z).log_prob(torch.as_tensor(y)).sum(1)
    log_p = log_p - theta.square().sum(1) / (2 * 2.0**2)
    torch.testing.assert_close(found(theta), log_p, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(log_p.sum(), theta)
    torch.testing.assert_close(found.gradient(theta.detach()), gradient, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.estimate(theta, torch.arange(len(X))), log_p, rtol=1e-12, atol=1e-12)
    assert found.gradient(theta.detach().float()).dtype == torch.float32


@pytest.mark.parametrize("cls", [bayes.HMC, bayes.NUTS, bayes.MALA])
def test_a_gradient_of_ones_own_gives_the_same_draws(cls):
    own = bayes.LogisticPosterior(*regression_data())
    settings = {"step_size": 0.1, "covariance": "identity", "random_state": 0}
    one, other = (cls(2, 5, 0, **settings).fit(f, np.zeros(5)) for f in (own, lambda t: own(t)))
    np.testing.assert_allclose(one.draws_, other.draws_, rtol=1e-9)  # rounding, over a few hundred steps


@pytest.mark.parametrize(
    ("gradient", "match"),
    [
        (
            lambda t: t,
            "log_density.gradient must be the gradient of log_density; got a difference of 4 at the start",
        ),
        (
            lambda t: t.sum(1),
            r"gradient must return a tensor of the shape of theta, \(4, 2\); got float64 of shape \(4,\)",
        ),
    ],
)
def test_a_wrong_gradient_of_ones_own(gradient, match):
    density = type("Density", (), {"__call__": lambda _, t: -t.square().sum(1) / 2})()
    density.gradient = gradient
    with pytest.raises(ValueError, match=f"HMC: .*{match}"):
        bayes.HMC().fit(density, [2.0, 2.0])


@pytest.mark.parametrize(
    ("X", "y", "prior", "match"),
    [
        (np.zeros(3), [0, 1, 0], 1.0, r"X must be finite rows \(n, d\); got shape \(3,\)"),
        ([[math.nan]], [0], 1.0, "X must be finite rows"),
        (np.zeros((3, 1)), [0, 1], 1.0, r"y must have one label for each of 3 rows; got shape \(2,\)"),
        (np.zeros((3, 1)), [0, 1, 2], 1.0, "y must hold two classes; got 3 of them"),
        (np.zeros((2, 1)), [0, 1], 0, "prior must be a positive number; got 0"),
    ],
)
def test_bad_logistic_posteriors(X, y, prior, match):
    with pytest.raises(ValueError, match=f"LogisticPosterior: {match}"):
        bayes.LogisticPosterior(X, y, prior)


# --- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("density", "start", "match"),
    [
        (
            lambda t: t.sum(),
            [0.0],
            r"one float per chain, a tensor of shape \(4,\); got float64 of shape \(\)",
        ),
        (lambda t: t, [0.0], r"got float64 of shape \(4, 1\).*sum over the last axis"),
        (lambda t: t.sum(1).tolist(), [0.0], "got list"),
        (
            lambda t: -t @ t,
            [0.0, 1.0],
            r"must take a tensor of shape \(4, 2\).*got RuntimeError: .*torch.func.vmap",
        ),
        (lambda t: t.sum(1).long(), [0.0], "got int64 of shape"),
        (
            lambda t: t.sum(1) * math.nan,
            [0.0],
            "finite at the start; got NaN or plus infinity for chain 0, at",
        ),
        (lambda t: t.log().sum(1), [0.0], "got minus infinity for chain 0, at .* Start inside the support"),
        (lambda t: t.detach().sum(1), [0.0], "must have a gradient"),
        (lambda t: t.abs().sqrt().sum(1), [0.0], "gradient of log_density must be finite at the start"),
        (lambda t: -((t - t.mean(0)) ** 2).sum(1), np.arange(4.0)[:, None], "depend on its own row only"),
        (gaussian, np.zeros((3, 2)), r"start must have shape \(d,\), or \(4, d\).*got shape \(3, 2\)"),
        (gaussian, [math.inf, 0.0], "start must be finite"),
        (gaussian, np.zeros((4, 0)), r"got shape \(4, 0\)"),
    ],
)
def test_bad_densities_and_starts(density, start, match):
    sampler = bayes.HMC(random_state=0)
    with pytest.raises(ValueError, match=f"HMC: .*{match}"):
        sampler.fit(density, start)
    assert not hasattr(sampler, "draws_")


def test_bad_kinds():
    with pytest.raises(TypeError, match="log_density must be a function; got ndarray"):
        bayes.NUTS().fit(np.zeros(3), np.zeros(2))
    with pytest.raises(TypeError, match="start must hold numbers"):
        bayes.NUTS().fit(gaussian, ["a", "b"])
    with pytest.raises(ValueError, match="The 'n_chains' parameter of NUTS"):
        bayes.NUTS(0).fit(gaussian, np.zeros(2))
    with pytest.raises(ValueError, match=r"Posterior: data must be arrays of one length"):
        bayes.Posterior(gaussian, gaussian, np.zeros(3), np.zeros(4))
    strange = bayes.Posterior(gaussian, lambda t, x: t.sum(1), np.zeros(3))
    with pytest.raises(
        ValueError, match=r"one value per chain and row, \(4, 3\); got float64 of shape \(4,\)"
    ):
        bayes.SGLD().fit(strange, np.zeros(2))
    with pytest.raises(ValueError, match="proposal must return positions"):
        bayes.Metropolis(proposal=lambda t, g: (t[:1], t[0])).fit(gaussian, np.zeros(2))


def test_nothing_is_lost_when_a_density_breaks_later():
    """NaN counts as outside the support, with a word; an unadjusted chain that leaves it keeps its draws."""
    half = lambda t: torch.where(t[:, 0] > 0, -t[:, 0], math.nan)
    with pytest.warns(CorollaryWarning, match=r"NaN or plus infinity \d+ times, which counted as outside"):
        sampler = bayes.Metropolis(20, 200, 200, thin=5, random_state=0).fit(half, [1.0])
    check_moments(sampler.draws_, [1.0], [1.0])
    wild = bayes.ULA(4, 1000, 0, step_size=3.0, random_state=0)  # beyond 2: x' = -2 x
    with pytest.raises(
        Diverged, match=r"ULA: log_density and its gradient must stay finite.*Lower step_size"
    ):
        wild.fit(lambda t: -0.5 * t.square().sum(1), [1.0])
    assert wild.draws_.shape[1] > 100 and np.isfinite(wild.draws_).all()

    def breaks(t):
        if len(calls) > 50:
            raise RuntimeError("the disk is full")
        calls.append(1)
        return -t.square().sum(1)

    def divides(t):
        ones.append(1)
        return -t.square().sum(1) + 0 * (1 / (50 - len(ones)))

    calls, ones, before = [], [], sampler.draws_
    with pytest.raises(ZeroDivisionError):  # no word of scaling data, of which there are none
        sampler.fit(divides, [1.0])
    with pytest.raises(RuntimeError, match="the disk is full"):
        sampler.fit(breaks, [1.0])
    assert sampler.draws_ is before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [3, 8, 21])  # fewer than four columns, whole groups of four, and a rest
@pytest.mark.parametrize("n", [100, 256, 600])  # less than a tile, a whole one, and a rest
def test_compiled_transitions_of_a_logistic_posterior_are_those_of_torch(dtype, d, n):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d)) * np.linspace(
        0.1, 30, d
    )  # sigmoids from flat to saturated, logits beyond 60
    sampler = bayes.HMC(5, 1, 0, step_size=1e-3, path_length=7e-3, random_state=0)
    start = torch.as_tensor(rng.standard_normal((5, d)), dtype=dtype)
    ours, theirs = (
        sampler.chains(bayes.LogisticPosterior(X, rng.random(n) < 0.4, prior=0.7), start.clone(), 3, "HMC")
        for rng in (np.random.default_rng(d), np.random.default_rng(d))
    )
    theirs.target.transition = None
    for chains in (ours, theirs):
        chains.spread.matrix = torch.linspace(0.5, 2, d, dtype=dtype)
        chains.spread.factor = chains.spread.matrix.sqrt()
    assert ours.compiled and not theirs.compiled
    rounding = 200 * torch.finfo(dtype).eps  # of sums of hundreds of terms over seven steps
    cut = n * math.exp(-20)  # torch's softplus leaves out this much of each row
    for _ in range(3):
        told = zip(ours.transition().values(), theirs.transition().values())
        names = ("theta", "log_p", "gradient")
        moved = ((getattr(ours, name), getattr(theirs, name)) for name in names)
        energy = float(theirs.log_p.abs().max())
        for mine, other in (*told, *moved):
            mine, other = mine.double(), other.double()
            assert float((mine - other).abs().max()) <= cut + rounding * max(energy, float(other.abs().max()))


def test_a_compiled_path_that_leaves_the_numbers_is_not_accepted():
    rng = np.random.default_rng(0)
    target = bayes.LogisticPosterior(rng.standard_normal((50, 2)), rng.random(50) < 0.5)
    sampler = bayes.HMC(4, 20, 0, step_size=1e200, path_length=3e200, random_state=0)
    with pytest.warns(CorollaryWarning):
        draws = sampler.fit(target, np.zeros(2)).draws_
    assert (draws == 0).all() and sampler.statistics_["diverging"].all()


def test_compiled_paths_refuse_weights_of_another_number():
    target = bayes.LogisticPosterior(np.eye(4), [0, 1, 0, 1])
    five = torch.zeros(2, 5, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"LogisticPosterior: there must be 4 weights; got 5"):
        target.transition(five, five[:, 0], five, five, five[:, 0], 0.1, 3, five[0])
