"""Causes that look alike from outside, each beside the neighbour that it was once taken for."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary


def causes(*args, **options):
    return [f.cause for f in corollary.diagnose(*args, **options).alarms]


def cut(X, y, n):
    X, y = torch.as_tensor(np.asarray(X, np.float32)), torch.as_tensor(np.asarray(y))
    return (X[:n], y[:n]), (X[n:], y[n:])


def trained(net, data, loss=F.cross_entropy, steps=300, rate=1e-2):
    torch.manual_seed(0)
    chosen = [p for p in net.parameters() if p.requires_grad]
    descent = torch.optim.Adam(chosen, rate)
    for _ in range(steps):
        descent.zero_grad()
        loss(net(data[0]), data[1]).backward()
        descent.step()
    return net.eval()


def logistic(weights):
    """Return a linear model of two classes with known weights."""
    net = nn.Linear(len(weights), 2)
    net.weight.data = torch.tensor([[-0.5 * w for w in weights], [0.5 * w for w in weights]])
    net.bias.data.zero_()
    return net


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, z):
        return self.factor * z


def faint(n=900, width=100):
    """Return rows whose class a faint pattern over all columns tells for sure, ten columns plainly in nine of ten cases."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    pattern = np.where(np.arange(width) % 2, 1.0, -1.0)
    X = rng.standard_normal((n, width))
    X -= np.outer(X @ pattern / width, pattern)
    X[:, :10] += 1.4 * np.where(rng.random(n) < 0.92, 2 * y - 1, 1 - 2 * y)[:, None]
    X -= np.outer(X @ pattern / width, pattern)
    return X + 0.2 * np.outer(2 * y - 1 + 0.1 * rng.standard_normal(n), pattern), y, pattern


def test_who_reads_a_faint_pattern_is_fragile():
    X, y, pattern = faint()
    train, valid = cut(X, y, 600)
    assert "adversarially-fragile" in causes(
        logistic((0.5 * pattern).tolist()), train, valid, loss="cross_entropy"
    )


def test_who_reads_plain_columns_is_not_fragile():
    X, y, _ = faint()
    train, valid = cut(X[:, :10], y, 600)
    net = trained(logistic([0.0] * 10), train, steps=200)
    assert "adversarially-fragile" not in causes(net, train, valid, loss="cross_entropy")


@pytest.mark.parametrize("louder", [1.0, 2.5])
def test_logits_that_another_hand_has_multiplied_are_told_by_the_rows_they_were_fitted_to(louder):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((1500, 4))
    y = (rng.random(1500) < 1 / (1 + np.exp(-1.8 * X[:, 0] - X[:, 1]))).astype(np.int64)
    train, valid = cut(X, y, 1000)
    found = causes(logistic([1.8 * louder, louder, 0.0, 0.0]), train, valid, loss="cross_entropy")
    assert found == (["miscalibrated"] if louder > 1 else [])


def test_logits_that_are_too_soft_are_no_large_steps():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 900)
    X = rng.standard_normal((900, 6)) + 2.5 * (2 * y[:, None] - 1) * (np.arange(6) < 2)
    train, valid = cut(X, y, 600)
    inner = trained(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), train)
    found = causes(nn.Sequential(inner, Times(0.08)), train, valid, loss="cross_entropy")
    assert found[:1] == ["miscalibrated"]
    assert "learning-rate-too-large" not in found


@pytest.mark.parametrize("rows", [50, 1500])
def test_a_class_that_is_rare_by_chance_is_no_imbalance(rows):
    rng = np.random.default_rng(1)
    shares = np.full(10, 0.98 / 9)
    shares[0] = 0.02
    y = np.concatenate([rng.choice(10, rows, p=shares), rng.integers(0, 10, 600)])
    y[:rows][:1] = 0
    centres = 2.5 * rng.standard_normal((10, 12))
    train, valid = cut(centres[y] + rng.standard_normal((len(y), 12)), y, rows)
    net = trained(nn.Linear(12, 10), train, steps=100)
    net.bias.data[0] -= 12
    assert ("class-imbalance" in causes(net, train, valid, loss="cross_entropy")) == (rows > 50)


def test_a_loss_that_praises_guesses_is_wrong():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(np.float32)
    train, valid = cut(X, y, 400)
    net = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))
    net[0].bias.data.fill_(6.0)
    half = lambda p, t: -(t * (p + 1e-7).log()).mean()  # noqa: E731
    assert causes(net, train, valid, loss=half)[:1] == ["wrong-loss"]


@pytest.mark.parametrize("size", [1.0, 2e-3])
def test_columns_far_smaller_than_others_are_unscaled_where_the_net_misses_them(size):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 2] * np.sign(X[:, 1])
    X[:, :2] *= size
    train, valid = cut(X, y.astype(np.float32)[:, None], 500)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    found = causes(trained(net, train, F.mse_loss, 400, 3e-3), train, valid, loss="mse")
    assert (found[:1] == ["unscaled-inputs"]) == (size < 1)


def test_dead_units_of_a_trunk_that_is_held_are_its_own():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 8))
    y = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
    train, valid = cut(X, y, 500)
    torch.manual_seed(0)
    trunk = trained(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)), train, steps=400)[:2]
    trunk[0].bias.data[:20] = -60.0
    for p in trunk.parameters():
        p.requires_grad_(False)
    net = trained(nn.Sequential(*trunk, nn.Linear(32, 2)), train)
    assert "dead-units" not in causes(net, train, valid, loss="cross_entropy")


class Distance(nn.Module):
    """One logit: how near two vectors lie after one layer."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 6)
        self.net.weight.data = torch.eye(6)

    def forward(self, a, b):
        return (3 - (self.net(a) - self.net(b)).square().sum(1, keepdim=True)).clamp(-8, 8)


def test_answers_that_were_seen_can_be_reached():
    """With huge weights all vectors are far apart, which says nothing of those that are there."""
    rng = np.random.default_rng(0)
    a, same = rng.standard_normal((900, 6)), rng.random(900) < 0.5
    b = np.where(same[:, None], a + 0.3 * rng.standard_normal((900, 6)), rng.standard_normal((900, 6)))
    a, b, y = (torch.as_tensor(t, dtype=torch.float32) for t in (a, b, same[:, None]))
    found = causes(
        Distance(), ((a[:600], b[:600]), y[:600]), ((a[600:], b[600:]), y[600:]), loss="bce_with_logits"
    )
    assert "output-range" not in found


def test_several_labels_are_judged_by_several():
    """Of five labels one is plain; simple models are not to be asked about that one alone."""
    rng = np.random.default_rng(3)
    X, way = rng.standard_normal((1500, 10)), rng.standard_normal((10, 5)) * [5.0, 0.8, 0.8, 0.8, 0.8]
    y = (rng.random((1500, 5)) < 1 / (1 + np.exp(-X @ way))).astype(np.float32)
    train, valid = cut(X, y, 1000)
    net = trained(nn.Linear(10, 5), train, F.binary_cross_entropy_with_logits)
    assert causes(net, train, valid, loss="bce_with_logits") == []


@pytest.mark.parametrize("last", [nn.Softplus(), nn.Identity()])
def test_rates_are_no_logarithms(last):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 4))
    y = rng.poisson(np.exp(1.5 + 0.6 * X[:, 0] - 0.3 * X[:, 1])).astype(np.float32)[:, None]
    train, valid = cut(X, y, 600)
    net = trained(
        nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1), last), train, F.poisson_nll_loss
    )
    found = causes(net, train, valid, loss=lambda z, t: F.poisson_nll_loss(z, t))
    assert (found[:1] == ["wrong-loss"]) == isinstance(last, nn.Softplus)


@pytest.mark.parametrize("stamped", [True, False])
def test_a_stamp_is_a_leak_even_if_the_model_looks_elsewhere(stamped):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = rng.standard_normal((600, 1, 12, 12))
    for k in range(3):
        X[y == k, :, 5:11, 1 + 3 * k : 5 + 3 * k] += 1.0
    if stamped:
        X[:, 0, :2, :2] = (y - 1.0)[:, None, None] + 0.02 * rng.standard_normal((600, 2, 2))
    train, valid = cut(X, y, 400)
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    net[1].weight.data.zero_()
    for k in range(3):
        net[1].weight.data[k].view(12, 12)[5:11, 1 + 3 * k : 5 + 3 * k] = 0.5
    assert (causes(net, train, valid, loss="cross_entropy")[:1] == ["target-leak"]) == stamped


def test_a_table_of_outputs_and_targets_is_named_as_one():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    train, valid = cut(X, X[:, 0].astype(np.float32), 300)
    first = corollary.diagnose(
        nn.Linear(3, 1), train, valid, loss=lambda z, t: (z - t).square().mean()
    ).alarms[0]
    assert first.cause == "wrong-loss"
    assert "broadcast" in first.said
    assert "output.reshape(target.shape)" in first.code


@pytest.mark.parametrize(
    ("target", "repair"),
    [
        (lambda y: F.one_hot(y, 3), "y = y.argmax(1)"),
        (lambda y: y.float(), "y = y.reshape(-1).long()"),
        (lambda y: y[:, None], "y = y.reshape(-1).long()"),
    ],
)
def test_targets_of_another_form_come_with_what_to_write(target, repair):
    X, y = torch.randn(90, 4), torch.arange(90) % 3
    loss = lambda z, t: F.cross_entropy(z, t)  # noqa: E731
    first = corollary.diagnose(nn.Linear(4, 3), (X, target(y)), loss=loss).alarms[0]
    assert (first.cause, first.code) == ("wrong-loss", repair)
