"""Data, models and a training loop as they are met in industry: plants, shops, call centres, banks."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LEVELS = {
    "all": ("optimizer", "batch_size", "history", "initial"),
    "most": ("optimizer", "batch_size", "history"),
    "some": ("optimizer", "batch_size"),
    "curve": ("history",),
    "start": ("optimizer", "initial"),
    "little": (),
}


def poisson(output, target):
    return F.poisson_nll_loss(output.squeeze(-1), target)


def huber(output, target):
    return F.smooth_l1_loss(output, target)


def per_token(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100)


LOSSES = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


# ---------------------------------------------------------------- the loop


def rows(x, index):
    return tuple(part[index] for part in x) if isinstance(x, tuple) else x[index]


def call(model, x):
    return model(*x) if isinstance(x, tuple) else model(x)


def make_optimizer(parameters, opt, lr, wd=0.0, momentum=0.9):
    if opt == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=wd)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[opt](parameters, lr=lr, weight_decay=wd)


def fit(
    model,
    x,
    y,
    loss,
    *,
    valid=None,
    lr=3e-3,
    epochs=20,
    batch=64,
    opt="adam",
    wd=0.0,
    momentum=0.9,
    clip=None,
    optimizer=None,
    skip=False,
    clear=True,
    best=False,
    cosine=False,
    whole=False,
    weigh=None,
):
    """Train; return what a user could hand over. `clear`: True, False or "epoch"."""
    criterion = weigh or (LOSSES[loss] if isinstance(loss, str) else loss)
    initial = {k: v.detach().clone() for k, v in model.state_dict().items()}
    if optimizer is None:
        optimizer = make_optimizer([p for p in model.parameters() if p.requires_grad], opt, lr, wd, momentum)
    n = len(y)
    batch = n if whole else batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs) if cosine else None
    history = {"loss": []} | ({"val_loss": []} if valid is not None else {})
    kept, least = None, float("inf")
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        order = torch.arange(n) if whole else torch.randperm(n)
        if clear == "epoch":
            optimizer.zero_grad()
        for start in range(0, n, batch):
            index = order[start : start + batch]
            if len(index) < 2 <= batch:
                continue
            if clear is True:
                optimizer.zero_grad()
            output = call(model, x if whole else rows(x, index))
            value = criterion(output, y[index])
            if skip and not torch.isfinite(value):
                optimizer.zero_grad()
                continue
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total, seen = total + value.item() * len(index), seen + len(index)
        history["loss"].append(total / max(seen, 1) if seen else float("nan"))
        if schedule is not None:
            schedule.step()
        if valid is not None:
            model.eval()
            with torch.no_grad():
                value = criterion(call(model, valid[0]), valid[1]).item()
            history["val_loss"].append(value)
            if best and value < least:
                least, kept = value, {k: v.clone() for k, v in model.state_dict().items()}
    if kept is not None:
        model.load_state_dict(kept)
    model.eval()
    return {"optimizer": optimizer, "batch_size": batch, "history": history, "initial": initial}


def go(model, data, valid, loss, level, *, more=None, **how) -> dict[str, Any]:
    """Train a model and pack what this user hands over."""
    run = fit(model, *data, loss, valid=valid, **how)
    return pack(model, data, valid, loss, level, run, **(more or {}))


def pack(model, data, valid, loss, level, run, **more) -> dict[str, Any]:
    given = {"model": model.eval(), "data": data}
    if valid is not None:
        given["validation"] = valid
    if loss is not None:
        given["loss"] = loss
    given.update({key: run[key] for key in LEVELS[level]})
    return given | more


class Step:
    """A user's own update: makes an optimiser for each model it is given."""

    def __init__(self, make, criterion, clear=True):
        self.make, self.criterion, self.clear = make, criterion, clear
        self.held = weakref.WeakKeyDictionary()

    def __call__(self, model, batch):
        if model not in self.held:
            self.held[model] = self.make(model.parameters())
        optimizer = self.held[model]
        x, y = batch
        if self.clear:
            optimizer.zero_grad()
        value = self.criterion(call(model, x), y)
        value.backward()
        optimizer.step()
        return value.item()


def start(seed):
    torch.manual_seed(14_000 + seed)
    return np.random.default_rng(1_400 + 17 * seed)


def t(a):
    return torch.as_tensor(np.asarray(a), dtype=torch.float32)


def i(a):
    return torch.as_tensor(np.asarray(a), dtype=torch.long)


def cut(x, y, n):
    """Split off the last rows for validation."""
    return (rows(x, slice(0, n)), y[:n]), (rows(x, slice(n, None)), y[n:])


# ---------------------------------------------------------------- tables


def sensors(g, n=1000, keep=700, outputs=1, noise=0.3):
    """Ten standardised process values and the efficiency that they give (several outputs: also drift and yield)."""
    x = g.normal(size=(n, 10))
    x[:, 6] = 0.6 * x[:, 0] + 0.8 * x[:, 6]
    x[:, 7] = 0.5 * x[:, 1] + 0.85 * x[:, 7]
    y = 1.1 * x[:, 0] - 0.8 * x[:, 1] + 0.6 * x[:, 2] * x[:, 3] + 0.7 * np.sin(1.5 * x[:, 4])
    y = y + 0.6 * np.maximum(x[:, 5], 0) + 0.4 * x[:, 8] - 0.3
    z = 0.9 * x[:, 4] - 0.7 * np.abs(x[:, 9]) + 0.5 * x[:, 7]
    u = np.tanh(x[:, 2] + x[:, 3]) - 0.6 * x[:, 5]
    ys = np.stack([y, z, u], 1)[:, :outputs]
    ys = ys + noise * g.normal(size=ys.shape)
    ys = (ys - ys[:keep].mean(0)) / ys[:keep].std(0)
    return cut(t(x), t(ys), keep)


def churn(g, n=1400, keep=1000, sharp=2.2, shift=-0.4):
    """Customers: six numbers, contract and payment as one-hot columns; who leaves (0 or 1)."""
    a = g.normal(size=(n, 6))
    contract, pay = g.integers(0, 3, n), g.integers(0, 4, n)
    score = -1.0 * a[:, 0] + 0.8 * a[:, 1] + 0.7 * a[:, 2] * (contract == 0) - 0.6 * a[:, 3]
    score = score + np.array([0.9, 0.0, -1.0])[contract] + 0.5 * (pay == 1) + 0.5 * a[:, 4] * a[:, 5]
    p = 1 / (1 + np.exp(-sharp * (score + shift)))
    y = (g.random(n) < p).astype(int)
    x = np.concatenate([a, np.eye(3)[contract], np.eye(4)[pay]], 1)
    return cut(t(x), i(y), keep)


def payments(g, n=3000, keep=2000, rate=0.03, classes=2):
    """Card payments: twelve columns; few are fraud, and they overlap with the rest."""
    y = (g.random(n) < rate).astype(int)
    if classes > 2:
        y = y * g.integers(1, classes, n)
    centres = np.zeros((classes, 12))
    centres[1:] = g.choice([-1.0, 1.0], size=(classes - 1, 12)) * 0.62
    return cut(t(g.normal(size=(n, 12)) + centres[y]), i(y), keep)


def claims(g, n=1600, keep=1200):
    """Counts of claims per contract, with a log rate."""
    x = g.normal(size=(n, 8))
    rate = np.exp(0.4 + 0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * x[:, 2] * x[:, 3])
    return cut(t(x), t(g.poisson(np.minimum(rate, 40))), keep)


# ---------------------------------------------------------------- sequences


def demand(g, n=900, keep=650, length=28, noise=0.2, level=0.0):
    """Four weeks of sales, with the following day's promotion and weekday; the last day's sales are the target."""
    week = np.array([0.0, 0.1, 0.1, 0.3, 0.9, 1.2, -1.0])
    phase, size = g.integers(0, 7, n), g.uniform(0.5, 1.3, n)
    base, trend = 0.8 * g.normal(size=n) + level, 0.02 * g.normal(size=n)
    promo = (g.random((n, length + 1)) < 0.2).astype(float)
    days = np.arange(length + 1)
    sales = base[:, None] + trend[:, None] * days + size[:, None] * week[(days[None] + phase[:, None]) % 7]
    sales = sales + 0.8 * promo + noise * g.normal(size=sales.shape)
    turn = 2 * np.pi * (days[None, 1:] + phase[:, None]) / 7
    x = np.stack([sales[:, :-1], promo[:, 1:], np.sin(turn), np.cos(turn)], 2)
    return cut(t(x), t(sales[:, -1:]), keep)


def waves(g, n=800, keep=560, length=64, noise=0.4, classes=4):
    """Vibration of a bearing, one channel: the fault's frequency names the class."""
    y = g.integers(0, classes, n)
    s = np.arange(length)[None] / length
    f = np.array([3.0, 5.0, 8.0, 12.0, 16.0])[y][:, None] * g.uniform(0.95, 1.05, (n, 1))
    x = np.sin(2 * np.pi * (f * s + g.random((n, 1)))) * g.uniform(0.8, 1.3, (n, 1))
    x = x + 0.4 * np.sin(2 * np.pi * (1.3 * s + g.random((n, 1)))) + noise * g.normal(size=x.shape)
    return cut(t(x[:, None]), i(y), keep)


def first_event(g, n=800, keep=560, length=60, dims=4, noise=1.0):
    """A log of a machine: the alarm in the first steps says what is repaired at the end."""
    y = g.integers(0, 3, n)
    x = noise * 0.3 * g.normal(size=(n, length, dims))
    x[np.arange(n), 1, y] += 2.0
    return cut(t(x), i(y), keep)


def pulses(g, n=1000, keep=700, length=64):
    """Two knocks in a wave: far apart means worn, near means sound; each knock alone tells nothing."""
    y = g.integers(0, 2, n)
    gap = np.where(y == 1, g.integers(18, 24, n), g.integers(8, 14, n))
    place = g.integers(4, length - 30, n)
    x = 0.15 * g.normal(size=(n, length))
    for shift, height in ((0, 2.0), (1, -1.0)):
        x[np.arange(n), place + shift] += height
        x[np.arange(n), place + gap + shift] += height
    return cut(t(x[:, None]), i(y), keep)


# ---------------------------------------------------------------- texts and logs


def tickets(g, n=1200, keep=850, length=20, vocabulary=160, classes=5, own=(3, 7), stray=1):
    """Support tickets as token numbers: some words of their queue among many common ones."""
    y = g.integers(0, classes, n)
    common = np.arange(1 + 14 * classes, vocabulary)
    weight = 1 / np.arange(1, len(common) + 1)
    x = g.choice(common, size=(n, length), p=weight / weight.sum())
    for r in range(n):
        k = g.integers(*own)
        place = g.permutation(length)[: k + stray]
        x[r, place[:k]] = 1 + 14 * y[r] + g.integers(0, 14, k)
        x[r, place[k:]] = 1 + g.integers(0, 14 * classes, stray)
    return cut(i(x), i(y), keep)


def ordered_clicks(g, n=1200, keep=850, length=16, vocabulary=20):
    """Sessions: 'search' (1) before 'cart' (2) means a sale, 'cart' before 'search' none."""
    y = g.integers(0, 2, n)
    x = g.integers(3, vocabulary, size=(n, length))
    for r in range(n):
        a, b = np.sort(g.permutation(length)[:2])
        x[r, a], x[r, b] = (1, 2) if y[r] else (2, 1)
    return cut(i(x), i(y), keep)


def clicks(g, n=1300, keep=950, length=18, vocabulary=40, sharp=3.0):
    """Sessions of clicks: each kind of click moves the odds of a sale."""
    weight = g.normal(size=vocabulary)
    x = g.integers(0, vocabulary, size=(n, length))
    score = weight[x].sum(1) / np.sqrt(length)
    y = (g.random(n) < 1 / (1 + np.exp(-sharp * (score - np.median(score))))).astype(int)
    return cut(i(x), i(y), keep)


def log_lines(g, n=500, keep=380, length=24, vocabulary=18):
    """Lines of a log: each event is followed by one of three others, for a language model."""
    table = np.array([np.roll(np.arange(vocabulary), -(3 * k + 1))[:3] for k in range(vocabulary)])
    x = np.zeros((n, length + 1), int)
    x[:, 0] = g.integers(0, vocabulary, n)
    for s in range(length):
        x[:, s + 1] = table[x[:, s], g.choice(3, size=n, p=[0.7, 0.2, 0.1])]
    return cut(i(x[:, :-1]), i(x[:, 1:]), keep)


# ---------------------------------------------------------------- images


def inspection(g, n=800, keep=560, size=16, noise=0.35, shares=None):
    """Grey pictures of a brushed surface: sound, scratch, blister or ring."""
    y = g.choice(4, size=n, p=shares)
    grid = np.stack(np.meshgrid(np.arange(size), np.arange(size), indexing="ij"))[None]
    centre = g.uniform(5, size - 5, (n, 2, 1, 1))
    d = np.sqrt(((grid - centre) ** 2).sum(1))
    angle = g.uniform(0, np.pi, (n, 1, 1))
    across = (grid[:, 0] - centre[:, 0]) * np.cos(angle) + (grid[:, 1] - centre[:, 1]) * np.sin(angle)
    shapes = [
        np.zeros_like(d),
        np.exp(-(across**2) / 0.6) * (d < 6),
        np.exp(-(d**2) / 4.0),
        np.exp(-((d - 3.5) ** 2) / 0.8),
    ]
    x = noise * g.normal(size=(n, size, size)) + 0.3 * np.sin(grid[:, 0] * 0.9 + 6.28 * g.random((n, 1, 1)))
    x = x + 2.2 * g.uniform(0.8, 1.2, (n, 1, 1)) * np.choose(y[:, None, None], shapes)
    return cut(t(x[:, None]), i(y), keep)


def digits(g, n=1200, keep=900):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = g.permutation(len(y))[:n]
    return cut(t(x[order].reshape(-1, 1, 8, 8) / 8 - 1), i(y[order]), keep)


# ---------------------------------------------------------------- graphs


def accounts(g, n=300, classes=3, dims=12, signal=0.6, inside=0.06, outside=0.008, train=0.5):
    """Accounts that pay each other: features, a normalised adjacency, labels for training and for validation."""
    y = g.integers(0, classes, n)
    same = y[:, None] == y[None]
    upper = np.triu(g.random((n, n)) < np.where(same, inside, outside), 1)
    a = (upper | upper.T).astype(float) + np.eye(n)
    d = a.sum(1) ** -0.5
    x = g.normal(size=(n, dims)) + signal * g.normal(size=(classes, dims))[y]
    known = g.random(n) < train
    return t(x), t(d[:, None] * a * d[None]), i(np.where(known, y, -100)), i(np.where(known, -100, y))


def molecules(g, n=700, keep=500, atoms=9):
    """Small molecules, dense and padded: kinds of atoms, adjacency; a property made of bonds."""
    kind = g.integers(0, 4, (n, atoms))
    size = g.integers(5, atoms + 1, n)
    real = np.arange(atoms)[None] < size[:, None]
    a = np.zeros((n, atoms, atoms))
    for r in range(n):
        for k in range(1, size[r]):
            j = g.integers(max(0, k - 3), k)
            a[r, k, j] = a[r, j, k] = 1
    x = np.eye(4)[kind] * real[:, :, None]
    polar = np.array([1.0, -0.5, 0.3, -1.0])[kind] * real
    bonds = 0.5 * np.einsum("ni,nij,nj->n", polar, a, polar)
    y = polar.sum(1) * 0.5 + 0.9 * bonds + 0.1 * g.normal(size=n)
    y = (y - y.mean()) / y.std()
    a = a + np.eye(atoms) * real[:, :, None]
    a = a / np.maximum(a.sum(2, keepdims=True), 1)
    return cut((t(x), t(a)), t(y[:, None]), keep)


# ---------------------------------------------------------------- models


def mlp(*sizes, act=nn.ReLU, drop=0.0, norm=None):
    layers = []
    for k, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        if k < len(sizes) - 2:
            if norm:
                layers.append(norm(b))
            layers.append(act())
            if drop:
                layers.append(nn.Dropout(drop))
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """A table net with skip connections."""

    def __init__(self, d, width, out, blocks=3, drop=0.0):
        super().__init__()
        self.enter = nn.Linear(d, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.blocks = nn.ModuleList(mlp(width, width, width, drop=drop) for _ in range(blocks))
        self.leave = nn.Linear(width, out)

    def forward(self, x):
        h = self.enter(x)
        for norm, block in zip(self.norms, self.blocks):
            h = h + block(norm(h))
        return self.leave(F.relu(h))


class Inspector(nn.Module):
    """Two convolutions written with functional calls."""

    def __init__(self, classes=4, width=12, norm=False, drop=0.0, size=16, channels=1):
        super().__init__()
        self.c1 = nn.Conv2d(channels, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.b1 = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.b2 = nn.BatchNorm2d(2 * width) if norm else nn.Identity()
        self.head = nn.Linear(2 * width * (size // 4) ** 2, classes)
        self.drop = drop

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.b2(self.c2(x))), 2)
        return self.head(F.dropout(x.flatten(1), self.drop, self.training))


class WaveNet(nn.Module):
    """Convolutions over a wave, strided, and a mean."""

    def __init__(self, classes=4, width=16, norm=True):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 7, stride=2, padding=3),
            nn.BatchNorm1d(width) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 7, stride=2, padding=3),
            nn.BatchNorm1d(2 * width) if norm else nn.Identity(),
            nn.ReLU(),
        )
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean(2))


class Recurrent(nn.Module):
    """An LSTM, GRU or plain RNN whose last state is read."""

    def __init__(self, d, width, out, kind="LSTM"):
        super().__init__()
        self.rnn = getattr(nn, kind)(d, width, batch_first=True)
        self.head = nn.Linear(width, out)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Bag(nn.Module):
    """The mean of word vectors and a small net."""

    def __init__(self, vocabulary=160, width=24, out=5, hidden=32, drop=0.0):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.net = mlp(width, hidden, out, drop=drop)

    def forward(self, x):
        return self.net(self.words(x).mean(1))


class Clicker(nn.Module):
    """Embedding, GRU, head."""

    def __init__(self, vocabulary=20, width=16, out=2, hidden=24):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, out)

    def forward(self, x):
        return self.head(self.rnn(self.words(x))[0][:, -1])


class Attentive(nn.Module):
    """A one- or two-layer transformer encoder over tokens."""

    def __init__(self, vocabulary=160, width=24, out=5, length=20, layers=1, drop=0.0, causal=False):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, drop, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, out)
        self.causal = causal

    def forward(self, x):
        h = self.words(x) + self.places[: x.shape[1]]
        if self.causal:
            mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf")), 1)
            return self.head(self.body(h, mask=mask))
        return self.head(self.body(h).mean(1))


class GCN(nn.Module):
    """Graph convolutions over a dense normalised adjacency that is an argument."""

    def __init__(self, d=12, width=16, out=3, layers=2, drop=0.3):
        super().__init__()
        sizes = [d] + [width] * (layers - 1) + [out]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.drop = drop

    def forward(self, x, a):
        for k, layer in enumerate(self.layers):
            x = a @ layer(x)
            if k < len(self.layers) - 1:
                x = F.dropout(F.relu(x), self.drop, self.training)
        return x


class MoleculeNet(nn.Module):
    """Messages along bonds, summed over atoms."""

    def __init__(self, width=32, layers=2, out=1):
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(4 if k == 0 else width, width) for k in range(layers))
        self.near = nn.ModuleList(nn.Linear(4 if k == 0 else width, width, bias=False) for k in range(layers))
        self.head = mlp(width, width, out)

    def forward(self, x, a):
        for own, near in zip(self.own, self.near):
            x = F.relu(own(x) + near(a @ x))
        return self.head(x.sum(1))


class VAE(nn.Module):
    """For tables and small pictures; returns reconstruction, mean and log-variance."""

    def __init__(self, d, latent=4, width=48):
        super().__init__()
        self.enc = mlp(d, width, 2 * latent)
        self.dec = mlp(latent, width, d)
        self.latent = latent

    def encode(self, x):
        return self.enc(x).chunk(2, 1)

    def forward(self, x):
        mean, log_var = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp() if self.training else mean
        return self.dec(z), mean, log_var

    def sample(self, n):
        return self.dec(torch.randn(n, self.latent))


def elbo(beta=1.0, scale=0.1):
    """The negative ELBO per row, with a Gaussian of the given variance."""

    def loss(output, x):
        recon, mean, log_var = output
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1).mean()
        return ((recon - x) ** 2).sum(1).mean() / (2 * scale) + beta * kl

    return loss


def factors(g, n=900, keep=700, d=16, latent=3, noise=0.25):
    """Readings of a machine that has three hidden states."""
    z = g.normal(size=(n, latent))
    x = np.tanh(z @ g.normal(size=(latent, d))) + 0.5 * (z @ g.normal(size=(latent, d)))
    x = x / x.std(0) + noise * g.normal(size=(n, d))
    return t(x[:keep]), t(x[keep:])


def ring(g, n=800, modes=8, spread=0.12):
    """Points round the corners of a polygon: the operating states of a plant, two readings."""
    k = g.integers(0, modes, n)
    corners = 2 * np.stack([np.cos(2 * np.pi * k / modes), np.sin(2 * np.pi * k / modes)], 1)
    return t(corners + spread * g.normal(size=(n, 2)))


class GAN(nn.Module):
    """Generator and critic in one module; forward judges rows."""

    def __init__(self, d=2, latent=4, width=64):
        super().__init__()
        self.generator = mlp(latent, width, width, d)
        self.critic = mlp(d, width, width, 1, act=lambda: nn.LeakyReLU(0.2))
        self.latent = latent

    def forward(self, x):
        return self.critic(x)

    def sample(self, n):
        return self.generator(torch.randn(n, self.latent))


class Categories(nn.Module):
    """Numbers beside embedded codes: two inputs."""

    def __init__(self, numbers=6, codes=12, width=6, out=1, hidden=48):
        super().__init__()
        self.codes = nn.Embedding(codes, width)
        self.net = mlp(numbers + width, hidden, hidden // 2, out)

    def forward(self, x, c):
        return self.net(torch.cat([x, self.codes(c)], 1))


def shop(g, n=1300, keep=950, codes=12, noise=0.3):
    """Six numbers and the code of a shop; sales."""
    x, c = g.normal(size=(n, 6)), g.integers(0, codes, n)
    effect = g.normal(size=codes)
    y = (
        effect[c]
        + 0.8 * x[:, 0]
        + 0.6 * np.sin(2 * x[:, 1])
        - 0.5 * x[:, 2] * x[:, 3]
        + noise * g.normal(size=n)
    )
    y = (y - y.mean()) / y.std()
    return cut((t(x), i(c)), t(y[:, None]), keep)


class Siamese(nn.Module):
    """One encoder for both articles; are they the same product?"""

    def __init__(self, d=12, width=32):
        super().__init__()
        self.encoder = nn.Linear(d, width)
        self.head = nn.Linear(width, 1)

    def forward(self, a, b):
        return self.head((self.encoder(a) - self.encoder(b)).square()).squeeze(1)


def pairs(g, n=1400, keep=1000, d=12):
    """Two records each; half describe the same product, with noise."""
    y = g.integers(0, 2, n)
    a, other = g.normal(size=(n, d)), g.normal(size=(n, d))
    b = np.where(y[:, None] == 1, a + 0.45 * g.normal(size=(n, d)), 0.4 * a + 0.9 * other)
    return cut((t(a), t(b)), t(y), keep)
