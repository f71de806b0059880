"""Data, small networks and a loop for the cases of the third author, who has not read the rules."""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

__all__ = [
    "ME", "Conv", "Encoder", "GCN", "Ring", "Spoken", "block_graph", "bumps", "counted", "digits", "given", "iris_like",
    "mlp", "note", "phrases", "slope", "spirals", "split", "train",
]  # fmt: skip

ME = "third"
NOTED: list[float] = []


def note(value):
    """Keep the score on rows that nobody hands over: a repaired twin must beat the fault."""
    NOTED.append(float(value))


def split(X, y, seed, shares=(0.6, 0.8)):
    """Training, validation and unseen rows as float32 tensors and their targets."""
    order = np.random.default_rng(1000 + seed).permutation(len(y))
    cuts = [int(s * len(y)) for s in shares]
    X = torch.as_tensor(np.asarray(X))
    X = X.float() if X.is_floating_point() else X
    y = torch.as_tensor(np.asarray(y))
    y = y.float() if y.is_floating_point() else y.long()
    return [(X[i], y[i]) for i in map(torch.as_tensor, np.split(order, cuts))]


def scaled(parts):
    """Standardise by the training part."""
    mean, spread = parts[0][0].mean(0), parts[0][0].std(0) + 1e-6
    return [((X - mean) / spread, y) for X, y in parts]


def digits(seed, flat=False, n=1200):
    """Hand-written digits of 8 × 8 pixels in [0, 1]."""
    X, y = datasets.load_digits(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))[:n]
    X = X[rows] / 16
    return split(X if flat else X.reshape(-1, 1, 8, 8), y[rows], seed)


def slope(seed, n=900, raw=False, noise=0.3):
    """Impedance of a circuit (Friedman's second function): ranges that differ by a thousand."""
    X, y = datasets.make_friedman2(n, noise=noise * 100, random_state=seed)
    parts = split(X, y, seed)
    if raw:
        return parts
    mean, spread = parts[0][1].mean(), parts[0][1].std()
    return [(X, (y - mean) / spread) for X, y in scaled(parts)]


def spirals(seed, n=900, turns=1.0, noise=0.05):
    """Two spirals in the plane."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, n)
    angle = np.sqrt(rng.random(n)) * 2 * np.pi * turns + np.pi * label
    radius = (angle - np.pi * label) / (2 * np.pi * turns)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + noise * rng.standard_normal((n, 2))
    return scaled(split(X, label, seed))


def iris_like(seed, n=900, d=10, classes=4, apart=2.2):
    """Gaussian clouds with their own centres."""
    rng = np.random.default_rng(seed)
    centres = apart * rng.standard_normal((classes, d)) / np.sqrt(d) * 1.6
    y = rng.integers(0, classes, n)
    return scaled(split(centres[y] + rng.standard_normal((n, d)), y, seed))


def bumps(seed, n=700, steps=48, noise=0.3):
    """Series with one bump: in the first third, the middle or the last third."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    at = (y + rng.uniform(0.2, 0.8, n)) * steps / 3
    t = np.arange(steps)
    X = 2 * np.exp(-((t - at[:, None]) ** 2) / 8) + noise * rng.standard_normal((n, steps))
    return split(X[:, :, None], y, seed)


def phrases(seed, n=900, length=16, words=60):
    """Token sequences: positive if more of the first ten words than of the next ten occur."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.integers(20, words, (n, length))
    for row, label in zip(X, y):
        places = rng.permutation(length)
        row[places[:5]] = rng.integers(0, 10, 5) + 10 * (1 - label)
        row[places[5:7]] = rng.integers(0, 10, 2) + 10 * label
    return split(X, y, seed)


def counted(seed, n=800, d=12):
    """Rows whose target is a smooth function of three columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
    return split(X, y, seed)


def block_graph(seed, n=240, classes=3, d=8, inside=0.08, outside=0.01):
    """Nodes in communities: features, normalised dense adjacency, labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    chance = np.where(y[:, None] == y, inside, outside)
    A = np.triu(rng.random((n, n)) < chance, 1)
    A = (A | A.T) + np.eye(n)
    A = A / A.sum(1, keepdims=True)
    X = rng.standard_normal((n, d)) + 0.7 * rng.standard_normal((classes, d))[y]
    return torch.tensor(X).float(), torch.tensor(A).float(), torch.tensor(y)


def mlp(*sizes, act=nn.ReLU, drop=0.0, norm=False):
    """A perceptron; the last layer is linear."""
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm else []), act()]
        layers += [nn.Dropout(drop)] if drop else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Conv(nn.Module):
    """Two convolutions and a linear map."""

    def __init__(self, width=16, classes=10, side=8):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width * (side // 4) ** 2, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.a(x)), 2)
        x = F.max_pool2d(F.relu(self.b(x)), 2)
        return self.head(x.flatten(1))


class Spoken(nn.Module):
    """A recurrent net read at its last step."""

    def __init__(self, cell=nn.GRU, width=24, classes=3, d=1):
        super().__init__()
        self.cell, self.head = cell(d, width, batch_first=True), nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Encoder(nn.Module):
    """Words to vectors, one attention layer, the mean over places."""

    def __init__(self, words=60, width=24, classes=2, heads=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.mix = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.mix(self.words(x)).mean(1))


class GCN(nn.Module):
    """Graph convolutions H ← relu(A H W) and a linear map."""

    def __init__(self, d=8, width=16, classes=3, layers=2, drop=0.0):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d if i == 0 else width, width) for i in range(layers))
        self.head, self.drop = nn.Linear(width, classes), nn.Dropout(drop)

    def forward(self, x, A):
        for layer in self.maps:
            x = self.drop(F.relu(A @ layer(x)))
        return self.head(x)


class Ring(nn.Module):
    """A generator of points in the plane from noise."""

    def __init__(self, width=32):
        super().__init__()
        self.net = mlp(2, width, width, 2)

    def forward(self, z):
        return self.net(z)

    def sample(self, n):
        return self.net(torch.randn(n, 2))


def train(model, data, loss, optimizer, *, epochs=12, batch=32, val=None, seed=0, forward=None):
    """A plain loop; returns the history."""
    X, y = data
    forward = forward or model
    generator, history = torch.Generator().manual_seed(seed), []
    for _ in range(epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(y), generator=generator).split(batch):
            optimizer.zero_grad()
            value = loss(forward(X[rows]), y[rows])
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(rows)
        model.eval()
        row = {"loss": total / len(y)}
        if val is not None:
            with torch.no_grad():
                row["val_loss"] = float(loss(forward(val[0]), val[1]))
        history.append(row)
    return history


def given(model, data, val, loss, optimizer, batch, history, initial, **more):
    """What a user hands over."""
    return dict(
        model=model, data=data, validation=val, loss=loss, optimizer=optimizer, batch_size=batch, history=history,
        initial=initial, **more,
    )  # fmt: skip


def start(model):
    """The weights before training."""
    return copy.deepcopy(model.state_dict())
