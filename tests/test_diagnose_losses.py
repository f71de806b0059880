"""Faults that hide inside a loss of one's own."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import corollary


def first(*args, **options):
    return next((f.cause for f in corollary.diagnose(*args, **options).alarms), None)


def classes(n=900, k=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    X = 2.0 * rng.standard_normal((k, 6))[y] + rng.standard_normal((n, 6))
    return torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)


def trained(net, X, y, loss=F.cross_entropy, steps=150, rate=1e-2):
    torch.manual_seed(0)
    descent = torch.optim.Adam(net.parameters(), rate)
    for _ in range(steps):
        descent.zero_grad()
        loss(net(X), y).backward()
        descent.step()
    return net.eval()


def perceptron(*sizes):
    torch.manual_seed(0)
    parts = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


@pytest.mark.parametrize("inside", [True, False])
def test_a_second_softmax_inside_the_loss_is_known_by_its_floor(inside):
    X, y = classes()

    def loss(z, t):
        return F.cross_entropy(z.softmax(1) if inside else z, t)

    net = trained(perceptron(6, 24, 4), X[:600], y[:600], loss)
    found = first(net, (X[:600], y[:600]), (X[600:], y[600:]), loss=loss)
    assert (found == "double-softmax") == inside


@pytest.mark.parametrize("both", [True, False])
def test_a_loss_that_asks_for_one_class_only_is_wrong(both):
    X, y = classes(k=2)
    y = y.float()[:, None]

    def loss(z, t):
        p = z.sigmoid().clamp(1e-6, 1 - 1e-6)
        return -(t * p.log() + both * (1 - t) * (1 - p).log()).mean()

    net = trained(perceptron(6, 16, 1), X[:600], y[:600], loss)
    found = first(net, (X[:600], y[:600]), (X[600:], y[600:]), loss=loss)
    assert (found == "wrong-loss") != both


def test_what_the_loss_likes_and_no_number_explains_is_judged_by_the_loss():
    """A student of probabilities: its logits are far from them as numbers, and right."""
    X, y = classes()
    teacher = trained(perceptron(6, 32, 4), X, y, steps=60)
    with torch.no_grad():
        soft = teacher(X).softmax(1)

    def loss(z, t):
        return F.cross_entropy(z, t)

    net = trained(perceptron(6, 24, 4), X[:600], soft[:600], loss, 400)
    assert first(net, (X[:600], soft[:600]), (X[600:], soft[600:]), loss=loss) is None


def test_the_next_number_is_not_to_be_looked_at():
    """A causal net on a noisy recurrence is as good as can be; whole rows hold the answers."""
    rng = np.random.default_rng(0)
    noise, x = rng.standard_normal((500, 40)), np.zeros((500, 40), np.float32)
    for t in range(2, 40):
        x[:, t] = 1.2 * x[:, t - 1] - 0.6 * x[:, t - 2] + 0.5 * noise[:, t]
    x = torch.from_numpy(x[:, 8:, None])
    X, y = x[:, :-1], x[:, 1:]

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.look, self.answer = nn.Conv1d(1, 16, 3), nn.Conv1d(16, 1, 1)

        def forward(self, x):
            return self.answer(self.look(F.pad(x.mT, (2, 0))).relu()).mT

    torch.manual_seed(0)
    net = trained(Causal(), X[:350], y[:350], F.mse_loss, 300)
    assert first(net, (X[:350], y[:350]), (X[350:], y[350:]), loss="mse") is None


@pytest.mark.parametrize("joined", [True, False])
def test_ones_that_count_neighbours_are_no_constant_column(joined):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    A = rng.random((600, 8, 8)) < np.where(y, 0.6, 0.3)[:, None, None]
    A = torch.as_tensor(np.triu(A, 1) + np.triu(A, 1).transpose(0, 2, 1), dtype=torch.float32)
    x = torch.as_tensor(np.stack([np.ones((600, 8)), rng.standard_normal((600, 8))], 2), dtype=torch.float32)
    other = A if joined else A.sum(2)

    class Graphs(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 16), nn.Linear(16, 2)

        def forward(self, x, A):
            h = A @ x if A.ndim == 3 else A[..., None] * x
            return self.b(F.relu(self.a(h / 4)).mean(1))

    net, y = Graphs(), torch.as_tensor(y)
    descent = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(200):
        descent.zero_grad()
        F.cross_entropy(net(x[:400], other[:400]), y[:400]).backward()
        descent.step()
    report = corollary.diagnose(
        net, ((x[:400], other[:400]), y[:400]), ((x[400:], other[400:]), y[400:]), loss="cross_entropy"
    )
    assert ("constant-features" in {f.cause for f in report.alarms}) != joined
