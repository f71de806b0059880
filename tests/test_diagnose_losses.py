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
