"""Roots of what diagnose once said wrongly: each is measured here, and the sound neighbour of a fault stays silent."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.baselines import foretells
from corollary.diagnose.graphs import _averages
from corollary.diagnose.trace import Call
from corollary.diagnose.weights import like_a_draw


def alarms(*args, **options):
    return {f.cause for f in corollary.diagnose(*args, **options).alarms}


def line(weights, bias=0.0):
    """Return a linear model that says a number per row, with weights that are known."""
    model = nn.Sequential(nn.Linear(len(weights), 1), nn.Flatten(0))
    model[0].weight.data[0] = torch.tensor(weights)
    model[0].bias.data.fill_(bias)
    return model


def test_next_words_are_known_where_labels_are_counted():
    words = torch.randint(0, 9, (20, 12), generator=torch.Generator().manual_seed(0))
    x, y = words[:, :-1], words[:, 1:].clone()
    y[:, 5:] = -100
    assert foretells(x, y)
    assert not foretells(x, x)


@pytest.mark.parametrize("shape", [(48, 48), (96, 32), (40, 12)])
def test_a_scaled_draw_is_told_from_weights_that_gradients_have_made(shape):
    rng = torch.Generator().manual_seed(0)
    W = 20 * torch.randn(*shape, generator=rng)
    pull = torch.randn(shape[0], 1, generator=rng) @ torch.randn(1, shape[1], generator=rng)
    assert like_a_draw(W)
    assert like_a_draw(torch.rand(*shape, generator=rng))
    assert not like_a_draw(W + 20 * pull)


def test_logarithms_of_counts_are_scored_as_counts():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3)).astype(np.float32)
    weights = [0.8, -0.5, 0.3]
    y = rng.poisson(np.exp(X @ weights)).astype(np.float32)
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    loss = lambda z, t: F.poisson_nll_loss(z, t)  # noqa: E731
    report = corollary.diagnose(line(weights), (X[:400], y[:400]), (X[400:], y[400:]), loss=loss)
    assert report.measurements["valid score"] > 0.3
    assert not report.alarms


@pytest.mark.parametrize(("loss", "noisy"), [("huber", False), ("mse", True)])
def test_outliers_are_no_fault_under_a_loss_that_withstands_them(loss, noisy):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 4)).astype(np.float32)
    weights = [2.0, -1.0, 1.0, 0.5]
    y = (X @ np.float32(weights) + 0.1 * rng.standard_normal(900)).astype(np.float32)
    y[:600] += np.where(rng.random(600) < 0.12, 20 * rng.standard_normal(600), 0)
    X, y = torch.from_numpy(X), torch.from_numpy(y)
    found = alarms(line(weights), (X[:600], y[:600]), (X[600:], y[600:]), loss=loss)
    assert ("label-noise" in found) == noisy


@pytest.mark.parametrize("tells", [True, False])
def test_columns_that_differ_by_what_tells_the_class_do_not_repeat(tells):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    price = rng.standard_normal(400)
    other = price + 0.01 * ((2 * y - 1) if tells else rng.standard_normal(400))
    X = np.stack([price, other, *rng.standard_normal((2, 400))], 1)
    X, y = torch.tensor(X, dtype=torch.float32), torch.from_numpy(y)
    torch.manual_seed(0)
    found = alarms(nn.Linear(4, 2), (X, y), loss="cross_entropy")
    assert ("duplicate-features" in found) != tells


@pytest.mark.parametrize(("rate", "alarm"), [(1e-5, True), (0.1, False)])
def test_weights_as_drawn_beside_a_tiny_rate_are_no_untrained_net(rate, alarm):
    torch.manual_seed(0)
    X = torch.randn(400, 6)
    y = (X[:, 0] + X[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
    plain = torch.optim.SGD(model.parameters(), rate)
    found = alarms(model, (X, y), loss="cross_entropy", optimizer=plain, batch_size=32)
    assert ("learning-rate-too-small" in found) == alarm


class Player(nn.Module):
    """A generator that was trained, beside a critic that nobody asked."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Linear(4, 8)
        self.critic = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.generator.weight.data.mul_(3.0)

    def forward(self, x):
        return self.critic(x)

    def sample(self, n):
        return self.generator(torch.randn(n, 4))


def test_a_critic_that_samples_do_without_is_not_frozen():
    torch.manual_seed(0)
    model = Player()
    with torch.no_grad():
        X = model.sample(400)
    assert "frozen-parameters" not in alarms(model, X)


def test_means_over_one_graph_are_averages_as_those_over_many():
    A = torch.rand(6, 6)
    out = torch.zeros(3, 6, 2)
    assert _averages(Call("matmul", "", out, A))
    assert _averages(Call("matmul", "", out, A.expand(3, 6, 6)))
    assert not _averages(Call("matmul", "", out, A - 1))
    assert not _averages(Call("matmul", "", out, torch.rand(2, 2)))
