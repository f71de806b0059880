"""Adversarial networks: the optimal critic, its divergence, penalties, collapse, divergence of a player, exact resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from torch import nn

from corollary import GAN, Run, Training, load
from corollary.engine.batches import TensorBatches
from corollary.engine.player import Player
from corollary.engine.random import seeded
from corollary.engine.sgd import GradientLearner
from corollary.errors import Diverged
from corollary.generative.adversaries import Adversaries
from corollary.generative.gan import critic_loss, generator_loss, gradient_penalty
from corollary.testing.checks import check_resume

SMALL = {"latent": 2, "width": 16, "n_layers": 1, "random_state": 0}
GRID = np.linspace(-8, 9, 4001)
P, Q = norm(0, 1).pdf(GRID), norm(1.5, 0.8).pdf(GRID)


def jensen_shannon():
    M = (P + Q) / 2
    return np.trapezoid(0.5 * P * np.log(P / M) + 0.5 * Q * np.log(Q / M), GRID)


def ring(n=512, modes=8):
    angle = 2 * np.pi * (np.arange(n) % modes) / modes
    noise = 0.1 * np.random.default_rng(0).normal(size=(n, 2))
    return (2 * np.stack([np.cos(angle), np.sin(angle)], 1) + noise).astype(np.float32)


# --- losses -------------------------------------------------------------------------------------------------


def value(score):
    """Return E_p log D + E_q log(1 - D) by quadrature."""
    return -np.trapezoid(P * np.logaddexp(0, -score) + Q * np.logaddexp(0, score), GRID)


def test_the_optimal_critic_is_the_log_ratio_and_its_loss_the_divergence():
    best = np.log(P / Q)
    assert value(best) == pytest.approx(2 * jensen_shannon() - np.log(4), abs=1e-9)
    rng = np.random.default_rng(0)
    assert all(value(best + e * rng.normal(size=GRID.size)) < value(best) for e in (0.01, 0.1, 1))
    # The library's loss on samples is minus that value: 40,000 draws, four standard errors of about 0.004.
    x, y = (torch.from_numpy(norm(m, s).rvs(40_000, random_state=1)) for m, s in ((0, 1), (1.5, 0.8)))
    ratio = lambda t: torch.from_numpy(norm(0, 1).logpdf(t) - norm(1.5, 0.8).logpdf(t))  # noqa: E731
    found = critic_loss(ratio(x), ratio(y), "non-saturating")
    assert float(found) == pytest.approx(np.log(4) - 2 * jensen_shannon(), abs=0.02)


def test_a_trained_critic_finds_the_optimal_one():
    """The generator stands still at N(1.5, 0.8²); the critic's probabilities approach p / (p + q)."""

    def objective(module, batch):
        (x,) = batch.inputs
        fake = 1.5 + 0.8 * torch.randn_like(x)
        return critic_loss(module.critic(x), module.critic(fake), "minimax")

    with seeded(0):
        module = Adversaries((1,), 1, width=32, n_layers=2)
        data = TensorBatches(torch.randn(4096, 1))
    plan = Training(epochs=8, learning_rate=1e-2, schedule="cosine", batch_size=256).resolved()
    learner = GradientLearner(
        module, [Player(objective, "critic")], data, plan, Run(device="cpu"), seed=0, owner="GAN"
    )
    while not learner.done:
        learner.step()
    with torch.no_grad():
        found = module.critic(torch.from_numpy(GRID).float()[:, None]).sigmoid().double().numpy()
    mass = (P + Q) / 2
    assert np.trapezoid(mass * np.abs(found - P / (P + Q)), GRID) < 0.04  # on average where there is mass


def test_gradients_of_the_generator_vanish_for_minimax_only():
    score = torch.full((5,), -20.0, requires_grad=True)  # the critic is sure
    gradients = {}
    for loss in ("minimax", "non-saturating", "wasserstein"):
        gradients[loss] = float(torch.autograd.grad(generator_loss(score, loss), score)[0].abs().sum())
    assert gradients["minimax"] < 1e-8 < 0.99 < gradients["non-saturating"]
    assert gradients["wasserstein"] == pytest.approx(1)


def test_the_penalty_is_zero_for_slope_one():
    u = torch.tensor([0.6, 0.8])
    a, b = torch.randn(20, 2), torch.randn(20, 2)
    assert float(gradient_penalty(lambda x: x @ u, a, b)) == pytest.approx(0, abs=1e-10)
    assert float(gradient_penalty(lambda x: 3 * x @ u, a, b)) == pytest.approx(4, rel=1e-5)


def test_spectral_norm_and_clipping_bound_the_critic():
    with seeded(0):
        module = Adversaries((6,), 2, width=16, n_layers=2, spectral=True).eval()
    for layer in (*module.critic.layers, *module.critic.heads):
        assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1, abs=0.15)
    model = GAN("wasserstein", training=Training(epochs=3), **SMALL).fit(ring(128))
    assert max(float(p.detach().abs().max()) for p in model.module_.critic.parameters()) <= 0.05 + 1e-6


# --- the estimator ------------------------------------------------------------------------------------------


def test_images_labels_and_files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (12, 3, 9, 7)).astype(np.uint8)
    y = np.array(["a", "b"] * 6)
    for loss, spectral in (("wasserstein-gp", False), ("minimax", True)):
        model = GAN(loss, conditional=True, spectral_norm=spectral, training=Training(epochs=1), **SMALL).fit(
            X, y
        )
        drawn = model.sample(4, "b")
        assert drawn.shape == (4, 3, 9, 7) and 0 <= drawn.min() and drawn.max() <= 1
        again = load(model.save(tmp_path / "gan.safetensors"))
        np.testing.assert_array_equal(again.sample(4, "b"), drawn)
        np.testing.assert_array_equal(again.discriminate(X, y), model.discriminate(X, y))
    assert ((model.discriminate(X, y) >= 0) & (model.discriminate(X, y) <= 1)).all()


def test_collapse_is_seen():
    """A generator that always says one point covers few data, though all it draws is near them."""
    X = ring()
    model = GAN(training=Training(epochs=1), **SMALL)
    model._check(X, reset=True)
    measure = model._collapse(TensorBatches(model._scale(X)))
    point = model._scaling.forward(torch.from_numpy(X[:1]))[0]

    class Stuck(nn.Module):
        def __init__(self, fake):
            super().__init__()
            self.fake, self.scale = fake, nn.Parameter(torch.ones(1))

        def generator(self, z, label=None):
            return self.fake[torch.arange(len(z)) % len(self.fake)]

    with torch.no_grad():
        stuck = measure(Stuck(point))
        honest = measure(Stuck(model._scaling.forward(torch.from_numpy(ring() + 0.01))[0]))
    assert stuck["near"] == 1 and stuck["coverage"] < 0.05
    assert honest["near"] > 0.95 and honest["coverage"] > 0.95


def test_a_ring_of_eight():
    """Some 300 updates: every mode but at most one gets its samples, and the history shows how coverage grew."""
    plan = Training(epochs=40, learning_rate=3e-3, average=0.98)
    model = GAN(latent=2, training=plan, random_state=0).fit(ring())
    drawn = model.sample(800)
    angle = 2 * np.pi * np.arange(8) / 8
    centres = 2 * np.stack([np.cos(angle), np.sin(angle)], 1)
    distance = np.linalg.norm(drawn[:, None] - centres, axis=2)
    hits = np.bincount(distance.argmin(1)[distance.min(1) < 0.5], minlength=8)
    assert (hits >= 10).sum() >= 7
    first, last = model.history_[0], model.history_[-1]
    assert last["coverage"] > first["coverage"] + 0.15 and last["near"] > first["near"]


def test_the_report_says_how_much_is_covered():
    from corollary.data import Dataset
    from corollary.reporting.by_role import _drawn

    X = ring(60)
    model = GAN(training=Training(epochs=1), **SMALL).fit(X)
    (title, text, _), *_ = _drawn(model, Dataset(X, kind="table", name="ring"))
    assert title == "Coverage" and f"{model.history_[-1]['coverage']:.0%} of the data" in text


@pytest.mark.parametrize("rule", ["alternating", "extragradient"])
def test_both_players_resume_exactly_in_the_middle_of_a_round(rule):
    model = GAN(
        "wasserstein-gp", rule=rule, critic_steps=3, training=Training(epochs=3, batch_size=16), **SMALL
    )
    check_resume(model, ring(100), None)


@pytest.mark.parametrize("who, rates", [("critic", (0.001, 1e30)), ("generator", (1e30, 0.001))])
def test_a_diverging_game_names_the_player_and_keeps_finite_weights(who, rates):
    plan = Training(epochs=20, learning_rate=rates[0], optimizer="sgd", optimizer_options={}, average=None)
    model = GAN("wasserstein-gp", critic_learning_rate=rates[1], critic_steps=1, training=plan, **SMALL)
    with pytest.raises(Diverged, match=f"the {who} ran away"):
        model.fit(ring(256))
    assert all(p.isfinite().all() for p in model.module_.parameters())


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: GAN(conditional=True).fit(ring(40)), "conditional=True needs labels"),
        (lambda: GAN(training=Training(early_stopping=True)).fit(ring(40)), "a loss that falls"),
        (
            lambda: (
                GAN(conditional=True, training=Training(epochs=1), **SMALL)
                .fit(ring(40), np.arange(40) % 2)
                .sample(1, label=5)
            ),
            "no label named '5'",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.filterwarnings("ignore:.*samples must differ")
def test_hardly_any_data_are_enough_to_run():
    for X in (ring(1), ring(3), np.zeros((4, 8, 8)), np.full((5, 2), 3.0)):
        drawn = GAN(training=Training(epochs=1), **SMALL).fit(X).sample(3)
        assert len(drawn) == 3 and np.isfinite(drawn).all()


def test_two_processes_play_the_game_of_one():
    X = np.random.default_rng(0).normal(size=(45, 2))  # the last batch has one row, for two processes
    model = GAN(latent=2, width=8, loss="wasserstein-gp", critic_steps=2, random_state=0)
    model.set_params(training=Training(epochs=2, batch_size=11))
    one = clone(model).fit(X)
    with Run(processes=2):
        two = clone(model).fit(X)
    for (name, a), b in zip(one.module_.state_dict().items(), two.module_.state_dict().values(), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-7, atol=1e-9, err_msg=name)  # float64 sums in another order
    for a, b in zip(one.history_, two.history_, strict=True):
        assert a["critic_loss"] == pytest.approx(b["critic_loss"], rel=1e-7)
