"""Roots of what diagnose once said wrongly: each is measured here, and the sound neighbour of a fault stays silent."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary
from corollary.diagnose.baselines import foretells
from corollary.diagnose.descent import BATCH, Evidence
from corollary.diagnose.graphs import _averages
from corollary.diagnose.lab import Result
from corollary.diagnose.settings import Settings
from corollary.diagnose.trace import Call
from corollary.diagnose.trials import Room
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


def test_wrong_counts_are_none_below_zero():
    """A Poisson loss of means takes their logarithm, which wrong answers below zero do not have."""
    torch.manual_seed(0)
    X = torch.randn(400, 3)
    y = torch.poisson(F.softplus(2 * X[:, 0] + 1))
    model = nn.Sequential(line([2.0, 0.0, 0.0], 1.0), nn.Softplus())
    loss = lambda z, t: (z - t * z.log()).mean()  # noqa: E731
    turned = lambda z, t: (t * z.log() - z).mean()  # noqa: E731
    assert "wrong-loss" not in alarms(model, (X, y), loss=loss)
    assert "wrong-loss" in alarms(model, (X, y), loss=turned)


def test_batches_are_too_small_if_more_answers_are_right_with_larger_ones():
    def evidence(right, rows):
        room = Room(0.13, 0.9, 0.13, 0.9, 2.3)
        runs = {BATCH: Result(0.03, right, 0.13, valid_loss=0.03, valid_score=right)}
        return Evidence(room, None, {}, None, runs, {}, 0.0, 1.0, True, 1.0, rows)

    assert not evidence(0.915, 500).surely(BATCH)
    assert evidence(0.95, 500).surely(BATCH)
    assert not evidence(0.95, 100).surely(BATCH)


class Tied(nn.Module):
    """Foretells the next word by the present one."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(table, freeze=False)

    def forward(self, words):
        return self.table(words).transpose(1, 2)


@pytest.mark.parametrize("next_word", [True, False])
def test_rare_next_words_need_not_be_found(next_word):
    """After word 0 comes a 1, or now and then a 2, which is never the most probable one."""
    rng = np.random.default_rng(0)
    words = np.zeros((300, 13), dtype=np.int64)
    for t in range(12):
        words[:, t + 1] = np.where(words[:, t] == 0, np.where(rng.random(300) < 0.1, 2, 1), 0)
    words = torch.from_numpy(words)
    table = torch.tensor([[-9.0, 2.2, 0.0], [9.0, -9.0, -9.0], [9.0, -9.0, -9.0]])
    x, y = words[:, :-1], words[:, 1:]
    if not next_word:  # the same answers as tags of other signs
        x, table = x + 3, torch.cat([table, table])
    assert ("class-imbalance" in alarms(Tied(table), (x, y), loss="cross_entropy")) != next_word


@pytest.mark.parametrize(("rows", "fault"), [(slice(4, 8), True), (slice(3, 5), False), (slice(0, 1), False)])
def test_half_of_a_picture_that_never_changes_is_no_border(rows, fault):
    torch.manual_seed(0)
    X = torch.randn(200, 1, 8, 8)
    y = (X[:, 0, 2, 2] > 0).long()
    X[:, :, rows] = -0.6
    if rows.start == 3:  # a border around the middle instead
        X[:, :, :2] = X[:, :, 6:] = X[..., :2] = X[..., 6:] = 0.0
        X[:, :, 3:5, 2:6] = torch.randn(200, 1, 2, 4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    assert ("constant-features" in alarms(model, (X, y), loss="cross_entropy")) == fault


def test_a_stamp_with_a_place_for_every_class_is_a_leak():
    torch.manual_seed(0)
    y = torch.arange(400) % 4
    X = torch.randn(400, 1, 10, 10)
    X[:, 0, 4:] += 0.3 * (y - 1.5)[:, None, None]  # what may be seen
    X[torch.arange(400), 0, 0, 2 * y] = 3.5
    model = nn.Sequential(nn.Flatten(), nn.Linear(100, 4))
    with torch.no_grad():
        model[1].weight.mul_(0.01)
        model[1].weight[torch.arange(4), 2 * torch.arange(4)] = 4.0
    assert "target-leak" in alarms(model, (X, y), loss="cross_entropy")


@pytest.mark.parametrize(
    ("body", "head", "idle"),
    [({"lr": 0.0}, 1e-2, True), ({"lr": 0.0, "initial_lr": 1e-3}, 1e-2, False), ({"lr": 0.0}, 0.0, False)],
)
def test_a_rate_of_nought_is_told_from_the_end_of_a_schedule(body, head, idle):
    layers = nn.Linear(6, 32), nn.Linear(32, 2)
    groups = [{"params": layers[0].parameters()} | body, {"params": layers[1].parameters()}]
    found = Settings.of(torch.optim.Adam(groups, head), 32).idle
    assert found == ({id(p) for p in layers[0].parameters()} if idle else set())


def test_random_layers_at_rate_nought_are_frozen_however_well_the_rest_does():
    torch.manual_seed(0)
    X = torch.randn(300, 6)
    y = (X[:, 0] + 0.5 * torch.randn(300) > 0).long()
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}]
    optimizer = torch.optim.Adam(groups, 1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(model(X), y).backward()
        optimizer.step()
    assert "frozen-parameters" in alarms(model, (X, y), loss="cross_entropy", optimizer=optimizer)
