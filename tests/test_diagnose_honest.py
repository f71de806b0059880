"""Faults beside what looks like them and is right: both are asked in one test, so that neither hides the other."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_iris
from torch import nn

from corollary import diagnose
from corollary.diagnose.columns import _constant
from corollary.diagnose.relation import _an_input
from corollary.diagnose.samples import Samples
from corollary.diagnose.settings import Settings
from corollary.diagnose.symmetry import _one_group
from corollary.diagnose.tables import Reader


def trained(net, X, y, loss, rate=5e-3, epochs=20, batch=64, optimizer=None):
    optimizer = optimizer or torch.optim.Adam([p for p in net.parameters() if p.requires_grad], rate)
    g = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=g).split(batch):
            optimizer.zero_grad()
            loss(net(X[rows]), y[rows]).backward()
            optimizer.step()
    return net


def causes(net, X, y, loss, **more):
    n = int(0.7 * len(X))
    report = diagnose(net.eval(), (X[:n], y[:n]), (X[n:], y[n:]), loss=loss, time_limit=300, **more)
    return [f.cause for f in report.alarms]


def perceptron(inputs, outputs, width=32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, outputs))


def test_rates_of_groups_are_kept_in_runs():
    """An offset takes a small rate, a table of means a large one: the largest for all diverges."""

    class Means(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.all = nn.Embedding(200, 1), nn.Parameter(torch.zeros(()))
            nn.init.zeros_(self.each.weight)

        def forward(self, i):
            return self.all + self.each(i).squeeze(1)

    rng = np.random.default_rng(0)
    shop = torch.from_numpy(rng.integers(0, 200, 6000))
    y = torch.from_numpy(rng.normal(size=200))[shop].float() + torch.from_numpy(rng.normal(size=6000)).float()
    net = Means()
    groups = [{"params": [net.all], "lr": 0.02}, {"params": net.each.parameters()}]
    optimizer = torch.optim.SGD(groups, 10.0)
    shares = Settings.of(optimizer, 256).shares
    assert shares == {id(net.all): pytest.approx(0.002)}
    trained(net, shop[:4200], y[:4200], F.mse_loss, epochs=30, batch=256, optimizer=optimizer)
    assert causes(net, shop, y, "mse", optimizer=optimizer, batch_size=256) == []


@pytest.mark.parametrize(("noise", "blamed"), [(0.01, False), (0.3, True)])
def test_a_range_is_too_small_by_what_is_lost_beyond_it(noise, blamed):
    """Half of the targets are zero, and half of these below it by noise."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(900, 4))
    y = np.clip(0.8 * x[:, 0] + 0.4 * x[:, 1], 0, 0.95) + noise * rng.normal(size=900)
    X, target = torch.from_numpy(x).float(), torch.from_numpy(y[:, None]).float()
    net = trained(nn.Sequential(perceptron(4, 1), nn.Sigmoid()), X[:600], target[:600], F.mse_loss)
    assert ("output-range" in causes(net, X, target, "mse")) is blamed


class Cosine(nn.Module):
    """Logits are cosines: with a scale that is learned they reach as far as they should."""

    def __init__(self, learned):
        super().__init__()
        torch.manual_seed(0)
        self.map, self.way = nn.Linear(4, 8), nn.Parameter(torch.randn(8))
        self.scale = nn.Parameter(torch.tensor(1.5)) if learned else 1.0

    def forward(self, x):
        return self.scale * F.cosine_similarity(self.map(x), self.way[None], dim=1)


@pytest.mark.parametrize("learned", [True, False])
def test_a_learned_scale_is_no_end_of_a_range(learned):
    rng = np.random.default_rng(2)
    X = torch.from_numpy(rng.normal(size=(900, 4))).float()
    y = (torch.rand(900, generator=torch.Generator().manual_seed(0)) < (2 * X[:, 0]).sigmoid()).float()
    net = trained(Cosine(learned), X[:600], y[:600], F.binary_cross_entropy_with_logits)
    assert ("output-range" in causes(net, X, y, "bce_with_logits")) is not learned


def test_others_that_tell_what_a_strong_column_leaves_open_belong_to_it():
    """Weight tells most of a price, cut and colour the rest; what a code that follows the answer leaves open nothing tells."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1500, 5)).astype(np.float32)
    price = 4 * x[:, 0] + 0.6 * x[:, 1] - 0.6 * x[:, 2] + 0.1 * rng.normal(size=1500)
    y = torch.from_numpy((price / price.std())[:, None]).float()
    X = torch.from_numpy(x)
    net = trained(perceptron(5, 1), X[:1050], y[:1050], F.mse_loss, epochs=30)
    assert "target-leak" not in causes(net, X, y, "mse")
    kind = rng.integers(0, 3, 1500)
    x[:, :2] += 1.2 * np.eye(3)[kind][:, :2]
    code = np.where(rng.random(1500) < 0.97, kind, rng.integers(0, 3, 1500))
    X = torch.from_numpy(np.concatenate([x, np.eye(3)[code]], 1)).float()
    net = trained(perceptron(8, 3), X[:1050], torch.from_numpy(kind[:1050]), F.cross_entropy)
    assert causes(net, X, torch.from_numpy(kind), "cross_entropy")[0] == "target-leak"


def test_petals_are_no_leak():
    """Two columns tell the kinds of iris apart, each nearly by itself, and a net on them needs no others."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    X, y = ((X - X.mean(0)) / X.std(0))[order], y[order]
    X, y = torch.from_numpy(X).float(), torch.from_numpy(y)
    net = trained(perceptron(4, 3, 8), X[:105], y[:105], F.cross_entropy, rate=2e-2, epochs=30, batch=16)
    assert "target-leak" not in causes(net, X, y, "cross_entropy")


def test_outliers_are_no_want_of_signal():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2400, 4))
    y = np.sin(1.5 * x[:, 0]) - x[:, 1] + 0.2 * rng.normal(size=2400)
    wild = rng.random(2400) < 0.05
    y[wild] += 8 * rng.standard_t(2, wild.sum())
    X, target = torch.from_numpy(x).float(), torch.from_numpy(y[:, None]).float()

    def cauchy(z, t):
        return torch.log1p(((z - t) / 0.3) ** 2).mean()

    net = trained(perceptron(4, 1), X[:1680], target[:1680], cauchy, epochs=30)
    assert "no-signal" not in causes(net, X, target, cauchy)
    shuffled = target[torch.from_numpy(rng.permutation(2400))]
    net = trained(perceptron(4, 1), X[:1680], shuffled[:1680], F.l1_loss, epochs=5)
    assert causes(net, X, shuffled, "l1")[0] == "no-signal"


def test_units_that_a_penalty_has_brought_together_are_not_those_of_one_start():
    g = torch.Generator().manual_seed(0)
    groups = torch.randn(4, 6, generator=g)
    merged = groups.repeat_interleave(3, 0) + 1e-3 * torch.randn(12, 6, generator=g)
    assert not _one_group(merged)
    assert _one_group(groups.repeat_interleave(3, 0))  # to the last digit, as of one draw
    assert _one_group(torch.ones(12, 6) + 1e-3 * torch.randn(12, 6, generator=g))


def test_a_target_in_grams_drowns_the_others():
    rng = np.random.default_rng(5)
    X = torch.from_numpy(rng.normal(size=(1200, 4))).float()
    y = torch.stack([X[:, 0] * X[:, 1], X[:, 2].sin(), X[:, 3] + X[:, 0]], 1)
    for scale, blamed in ((1.0, False), (1000.0, True)):
        target = y * torch.tensor([1.0, 1.0, scale])
        net = trained(perceptron(4, 3), X[:840], target[:840], F.mse_loss, rate=1e-2, epochs=60)
        assert ("unscaled-targets" in causes(net, X, target, "mse")) is blamed


class Bag(nn.Module):
    def __init__(self, table):
        super().__init__()
        torch.manual_seed(1)
        self.words = nn.Embedding.from_pretrained(table, freeze=True)
        self.head = perceptron(table.shape[1], 4)

    def forward(self, x):
        return self.head(self.words(x).mean(1))


def test_frozen_word_vectors_are_asked_whether_they_know_anything():
    rng = np.random.default_rng(6)
    y = rng.integers(0, 4, 1500)
    x = rng.integers(40, 160, (1500, 12))
    for row, k in zip(x, y):
        row[:4] = 10 * k + rng.integers(0, 10, 4)
    X, target = torch.from_numpy(rng.permuted(x, axis=1)), torch.from_numpy(y)
    meaning = 0.3 * torch.randn(160, 8, generator=torch.Generator().manual_seed(0))
    meaning[:40, :4] += torch.eye(4).repeat_interleave(10, 0)
    noise = 0.5 * torch.randn(160, 8, generator=torch.Generator().manual_seed(1))
    for table, blamed in ((meaning, False), (noise, True)):
        net = trained(Bag(table), X[:1050], target[:1050], F.cross_entropy, epochs=12)
        assert ("frozen-parameters" in causes(net, X, target, "cross_entropy")) is blamed


def scans(noise=0.45):
    g = torch.Generator().manual_seed(0)
    v, u = torch.meshgrid(torch.arange(14), torch.arange(14), indexing="ij")
    at = torch.randint(3, 11, (2, 500, 1, 1), generator=g)
    mask = ((u - at[0]) ** 2 + (v - at[1]) ** 2 < 5).float()
    return (mask + noise * torch.randn(mask.shape, generator=g))[:, None], mask


@pytest.mark.parametrize(("kernel", "blamed"), [(1, True), (5, False)])
def test_a_mask_of_noisy_pixels_needs_more_than_each_pixel(kernel, blamed):
    X, y = scans()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 10, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.Conv2d(10, 1, kernel, padding=kernel // 2),
    )
    net.append(nn.Flatten(1, 2))
    trained(net, X[:350], y[:350], F.binary_cross_entropy_with_logits, rate=1e-2, epochs=15, batch=32)
    assert ("receptive-field-too-small" in causes(net, X, y, "bce_with_logits")) is blamed


@pytest.mark.parametrize(("weight", "blamed"), [(1.0, True), (20.0, False)])
def test_a_mask_that_marks_nothing_is_an_imbalance(weight, blamed):
    g = torch.Generator().manual_seed(1)
    spots = (torch.rand(400, 1, 17, 17, generator=g) < 0.01).float()
    y = F.max_pool2d(spots, 2, 1)[:, 0]
    X = (y + 0.7 * torch.randn(y.shape, generator=g))[:, None]
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Flatten(1, 2)
    )

    def loss(z, t):
        return F.binary_cross_entropy_with_logits(z, t, pos_weight=torch.tensor(weight))

    trained(net, X[:280], y[:280], loss, rate=5e-3, epochs=15, batch=32)
    assert ("class-imbalance" in causes(net, X, y, loss)) is blamed


def test_a_word_is_looked_for_where_it_mostly_stands():
    rng = np.random.default_rng(7)
    x = rng.integers(1, 9, (300, 10))
    x[:, -1] = rng.integers(8, 10, 300)  # 9 stands here only, 8 elsewhere too
    samples = Samples.of(torch.from_numpy(x), torch.zeros(300, dtype=torch.long))
    reader = Reader(samples)
    assert reader.place_of(samples, 9) == 9
    assert reader.place_of(samples, 3) is None


def test_the_sign_of_a_step_is_an_input_of_the_next_window():
    rng = np.random.default_rng(8)
    series = rng.normal(size=700)
    X = np.stack([series[i : i + 8] for i in range(600)])
    up = (series[8:608] > 0).astype(int)
    assert _an_input(X, np.roll(up, 1))  # of the row before: the last step in this one
    assert not _an_input(X, up)


def windows_of(series, steps=16):
    cut = np.lib.stride_tricks.sliding_window_view(series, steps + 1)
    return torch.from_numpy(cut[:, :steps].copy()).float(), torch.from_numpy(cut[:, steps:].copy()).float()


@pytest.mark.parametrize("lifted", [False, True])
def test_a_series_that_wanders_is_not_shifted_by_what_comes_later(lifted):
    rng = np.random.default_rng(9)
    level = np.zeros(3600)
    for i in range(1, len(level)):
        level[i] = 0.95 * level[i - 1] + 0.25 * rng.normal()
    series = np.sin(2 * np.pi * np.arange(len(level)) / 12) + level
    if lifted:
        series[2520:] += 6
    X, y = windows_of(series)
    net = trained(perceptron(16, 1), X[:2500], y[:2500], F.mse_loss, epochs=8)
    report = diagnose(net.eval(), (X[:2500], y[:2500]), (X[2530:], y[2530:]), loss="mse", time_limit=300)
    assert ("distribution-shift" in [f.cause for f in report.alarms]) is lifted


def test_several_targets_are_compared_along_one_direction():
    """Small pictures that are cleaned of noise: a line knows their main direction well, and that is no lead over the net."""
    g = torch.Generator().manual_seed(0)
    at = torch.randint(2, 8, (2, 700, 1, 1), generator=g)
    v, u = torch.meshgrid(torch.arange(10), torch.arange(10), indexing="ij")
    clean = ((u - at[0]).abs() < 2).float() + ((v - at[1]).abs() < 2).float()
    X = (clean + 0.4 * torch.randn(clean.shape, generator=g))[:, None]
    y = clean[:, None]
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU()]
    net = trained(
        nn.Sequential(*layers, nn.Conv2d(12, 1, 3, padding=1)),
        X[:500],
        y[:500],
        F.mse_loss,
        epochs=60,
        batch=32,
    )
    report = diagnose(net.eval(), (X[:500], y[:500]), (X[500:], y[500:]), loss="mse", time_limit=300)
    assert report.subject.aligned["valid"] > 0.01
    assert "capacity-too-small" not in [f.cause for f in report.alarms]


def test_a_constant_column_is_seen_among_standardised_indicators():
    """Their background is below zero, so that a column of zeros is none of them; of rare words some are absent by chance."""
    rng = np.random.default_rng(10)
    kinds = np.eye(6)[rng.integers(0, 6, 500)]
    table = np.column_stack([(kinds - kinds.mean(0)) / kinds.std(0), np.zeros(500)]).astype(np.float32)
    assert _constant(table, True).tolist() == [6]
    words = (rng.random((500, 80)) < 0.02).astype(np.float32)
    words[:, 5] = 0
    assert _constant(words, True).tolist() == []
