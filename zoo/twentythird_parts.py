"""Data, nets and the training loop that the twenty-third author's cases share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

ME = "twentythird"


# ------------------------------------------------------------------------------------------------ loop
def like_target(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error of outputs shaped as the target is."""
    return F.mse_loss(output.reshape(y.shape), y)


def per_token(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy per token, padding not counted."""
    return F.cross_entropy(output.flatten(0, -2), y.flatten(), ignore_index=-100)


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "cross_entropy": lambda o, y: per_token(o, y) if o.dim() == 3 else F.cross_entropy(o, y),
    "mse": like_target,
    "bce_with_logits": lambda o, y: F.binary_cross_entropy_with_logits(o.reshape(y.shape), y.float()),
    "nll": F.nll_loss,
}


def take(x: Any, rows: torch.Tensor, count: int) -> Any:
    """Return rows of a tensor, or of those tensors of a tuple that have as many rows as there are examples."""
    if isinstance(x, tuple):
        return tuple(part[rows] if len(part) == count else part for part in x)
    return x[rows]


def call(net: nn.Module, x: Any) -> Any:
    return net(*x) if isinstance(x, tuple) else net(x)


def fit(
    net: nn.Module,
    data: Any,
    held: Any = None,
    loss: Any = "cross_entropy",
    *,
    epochs: int = 20,
    batch: int = 64,
    lr: float = 3e-3,
    opt: str = "adam",
    decay: float = 0.0,
    clip: float | None = None,
    plan: str | None = "cosine",
    best: bool = False,
    clear: bool = True,
) -> dict[str, Any]:
    """Train in minibatches and return everything that a user could hand over."""
    (x, y), measure = data, LOSSES.get(loss, loss) if isinstance(loss, str) else loss
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    weights = [p for p in net.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = {
        "adam": lambda: torch.optim.Adam(weights, lr, weight_decay=decay),
        "adamw": lambda: torch.optim.AdamW(weights, lr, weight_decay=decay),
        "sgd": lambda: torch.optim.SGD(weights, lr, weight_decay=decay),
        "momentum": lambda: torch.optim.SGD(weights, lr, momentum=0.9, weight_decay=decay, nesterov=True),
        "rmsprop": lambda: torch.optim.RMSprop(weights, lr, weight_decay=decay),
    }[opt]()
    steps = epochs * math.ceil(len(y) / batch)
    follow: Any = None
    if plan == "cosine":
        follow = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=lr * 0.05)
    elif plan == "onecycle":
        follow = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    history, kept, lowest = [], None, float("inf")
    for _ in range(epochs):
        net.train()
        total = 0.0
        order = torch.randperm(len(y))
        for rows in order.split(batch):
            if len(rows) == 1 and batch > 1:  # batch norm needs two
                if follow:
                    follow.step()
                continue
            if clear:
                optimizer.zero_grad()
            value = measure(call(net, take(x, rows, len(y))), y[rows])
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(weights, clip)
            optimizer.step()
            if follow:
                follow.step()
            total += value.item() * len(rows)
        record = {"loss": total / len(y)}
        net.eval()
        if held is not None:
            with torch.no_grad():
                record["val_loss"] = measure(call(net, held[0]), held[1]).item()
            if best and record["val_loss"] < lowest:
                lowest, kept = record["val_loss"], {k: v.clone() for k, v in net.state_dict().items()}
        history.append(record)
    if kept is not None:
        net.load_state_dict(kept)
    net.eval()
    given = {"model": net, "data": data, "loss": loss, "optimizer": optimizer, "batch_size": batch}
    if held is not None:
        given["validation"] = held
    return given | {"history": history, "initial": initial}


def only(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the model, the data and the named arguments, as a user who hands over little."""
    return {k: v for k, v in given.items() if k in ("model", "data", *names)}


def fitted(net: nn.Module, parts: Any, loss: Any = "cross_entropy", **settings: Any) -> dict[str, Any]:
    return fit(net, *parts, loss, **settings)


# ------------------------------------------------------------------------------------------------ nets
def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU, drop: float = 0.0, norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [
            nn.Linear(a, b),
            *([nn.BatchNorm1d(b)] if norm else []),
            act(),
            *([nn.Dropout(drop)] if drop else []),
        ]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Lambda(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: Any) -> Any:
        return self.function(*x)


def convs(channels: list[int], out: int, *, norm: bool = True, pool: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(channels[:-1], channels[1:])):
        layers += [nn.Conv2d(a, b, 3, padding=1), *([nn.BatchNorm2d(b)] if norm else []), nn.ReLU()]
        if pool and i < len(channels) - 2:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels[-1], out))


class Recurrent(nn.Module):
    """Embedding (or none), a recurrent layer, a head on the last state, the mean or every step."""

    def __init__(
        self, inputs: int, width: int, out: int, *, cell=nn.GRU, words: int = 0, both=False, read="last"
    ):
        super().__init__()
        self.embed = nn.Embedding(words, inputs, padding_idx=0) if words else None
        self.cell = cell(inputs, width, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (2 if both else 1), out)
        self.read = read

    def forward(self, x):
        h = self.cell(self.embed(x) if self.embed else x)[0]
        if self.read == "last":
            h = h[:, -1]
        elif self.read == "mean":
            h = h.mean(1)
        return self.head(h)


class Attention(nn.Module):
    """A small transformer encoder over steps, tokens or patches."""

    def __init__(self, inputs, width, out, length, *, words=0, layers=1, each=False, drop=0.1):
        super().__init__()
        self.into = nn.Embedding(words, width) if words else nn.Linear(inputs, width)
        angle = torch.arange(length)[:, None] * 10 ** (-2 * torch.arange(0, width, 2) / width)
        self.place = nn.Parameter(torch.cat([angle.sin(), angle.cos()], 1) * 0.7)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, drop, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, out)
        self.each = each

    def forward(self, x):
        h = self.norm(self.body(self.into(x) + self.place))
        return self.head(h if self.each else h.mean(1))


class Vae(nn.Module):
    """A Gaussian encoder and a decoder of means."""

    def __init__(self, inputs: int, hidden: int, codes: int):
        super().__init__()
        self.codes = codes
        self.into = mlp(inputs, hidden, 2 * codes)
        self.out = mlp(codes, hidden, inputs)

    def encode(self, x):
        return self.into(x).chunk(2, 1)

    def forward(self, x):
        return self.out(self.encode(x)[0])

    def sample(self, n):
        with torch.no_grad():
            return self.out(torch.randn(n, self.codes))


def fit_vae(net, x, *, epochs=40, batch=64, lr=2e-3, beta=1.0, spread=0.3, held=None):
    """Train by the evidence lower bound; ``spread`` is the decoder's standard deviation."""

    def bound(x):
        mean, log_variance = net.encode(x)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = ((net.out(code) - x) ** 2).sum(1) / (2 * spread**2)
        rate = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(1)
        return (error + beta * rate).mean()

    optimizer = torch.optim.Adam(net.parameters(), lr)
    history = []
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            value = bound(x[rows])
            value.backward()
            optimizer.step()
            total += value.item() * len(rows) / len(x)
        history.append({"loss": total})
        if held is not None:
            with torch.no_grad():
                history[-1]["val_loss"] = bound(held).item()
    net.eval()
    given = {"model": net, "data": x, "optimizer": optimizer, "batch_size": batch, "history": history}
    return given | ({} if held is None else {"validation": held})


# ------------------------------------------------------------------------------------------------ data
def tensors(x, y):
    x = torch.as_tensor(np.array(x))
    y = torch.as_tensor(np.array(y))
    return x.float() if x.is_floating_point() else x.long(), y.float() if y.is_floating_point() else y.long()


def ready(x, y, seed, *, share=0.75, scale=True, shuffle=True):
    """Split into training and held-out rows; numbers are standardised by the training rows."""
    x, y = tensors(x, y)
    rows = torch.as_tensor(np.random.default_rng(seed + 99).permutation(len(y)) if shuffle else range(len(y)))
    a, b = rows[: int(share * len(y))], rows[int(share * len(y)) :]
    if scale and x.is_floating_point():
        mean, sd = x[a].mean(0), x[a].std(0)
        x = (x - mean) / torch.where(sd > 0, sd, torch.ones_like(sd))
    return (x[a], y[a]), (x[b], y[b])


def standard(parts):
    """Standardise a numeric target by the training rows."""
    (x, y), (u, v) = parts
    return (x, (y - y.mean(0)) / y.std(0)), (u, (v - y.mean(0)) / y.std(0))


def churn(seed, n=4000):
    """Customers: who leaves (binary, about 40 %)."""
    g = np.random.default_rng(seed)
    tenure, age = g.exponential(24, n), g.normal(45, 13, n).clip(18, 90)
    fee = g.gamma(4, 12, n) + 0.3 * tenure
    calls = g.poisson(1.2 + 0.8 * (fee > 60))
    plan = g.integers(0, 4, n)
    usage = fee * g.lognormal(0, 0.4, n)
    z = (
        1.6 * np.exp(-tenure / 12)
        + 0.9 * calls * (plan != 2)
        - 0.03 * (age - 45)
        + 1.2 * np.sin(fee / 18)
        - 1.9
    )
    y = g.random(n) < 1 / (1 + np.exp(-1.6 * z))
    return np.column_stack([tenure, age, fee, calls, usage, np.eye(4)[plan]]), y.astype(np.float64)


def homes(seed, n=3000):
    """Houses: log price."""
    g = np.random.default_rng(seed)
    area, year = g.lognormal(4.6, 0.4, n), g.uniform(1900, 2022, n)
    lat, lon = g.uniform(0, 1, n), g.uniform(0, 1, n)
    rooms = np.round(area / 28 + g.normal(0, 0.7, n)).clip(1)
    kind = g.integers(0, 3, n)
    near = np.exp(-6 * ((lat - 0.6) ** 2 + (lon - 0.4) ** 2))
    y = 0.8 * np.log(area) + 0.9 * near + 0.004 * np.abs(year - 1960) + 0.15 * kind * near + 0.05 * rooms
    x = np.column_stack([area, year, lat, lon, rooms, np.eye(3)[kind]])
    return x, y + 7 + g.standard_t(5, n) * 0.08


def plant(seed, n=3000, targets=3):
    """A chemical plant: several measured outputs of correlated controls."""
    g = np.random.default_rng(seed)
    base = g.normal(size=(n, 5))
    x = np.column_stack([base, base @ g.normal(size=(5, 5)) * 0.6 + 0.5 * g.normal(size=(n, 5))])
    w, v = g.normal(size=(10, 6)) / 3, g.normal(size=(6, targets))
    y = np.tanh(x @ w) @ v + 0.3 * x[:, :targets] * x[:, 3:4]
    return x * g.uniform(0.5, 20, 10) + 5, y + 0.25 * g.normal(size=y.shape)


def soil(seed, n=3000, classes=5, spread=0.75):
    """Soil samples in several classes, each of two clusters."""
    g = np.random.default_rng(seed)
    centres = g.normal(size=(classes, 2, 6)) * 1.5
    y, part = g.integers(0, classes, n), g.integers(0, 2, n)
    z = centres[y, part] + spread * g.normal(size=(n, 6))
    return np.column_stack([z, z @ g.normal(size=(6, 3)) + 0.5 * g.normal(size=(n, 3))]), y


def claims(seed, n=6000):
    """Insurance: number of claims, log-linear and a bit nonlinear."""
    g = np.random.default_rng(seed)
    age, power = g.uniform(18, 80, n), g.integers(3, 12, n)
    town, bonus = g.integers(0, 2, n), g.normal(size=n)
    rate = np.exp(0.3 + 0.5 * np.cos((age - 20) / 12) + 0.09 * power + 0.3 * town + 0.3 * bonus)
    return np.column_stack([age, power, town, bonus]), g.poisson(rate / 1.5).astype(np.float64)


def clicks(seed, n=8000, sizes=(12, 7, 24, 5)):
    """Advertisements: only categories, as integers; clicked or not."""
    g = np.random.default_rng(seed)
    x = np.column_stack([g.integers(0, s, n) for s in sizes])
    parts = [g.normal(size=(s, 3)) for s in sizes]
    h = [p[x[:, i]] for i, p in enumerate(parts)]
    z = (h[0] * h[1]).sum(1) + h[2][:, 0] + 0.8 * h[3][:, 1] - 0.3
    return x, (g.random(n) < 1 / (1 + np.exp(-1.3 * z))).astype(np.float64)


def loans(seed, n=6000, rare=0.06):
    """Loans: few default, and these can be told fairly well."""
    g = np.random.default_rng(seed)
    y = g.random(n) < rare
    z = g.normal(size=(n, 6))
    z[:, 0] += 2.6 * y
    z[:, 1] -= 2.2 * y * np.sign(z[:, 2])
    z[:, 3] *= 1 + 1.5 * y
    return np.column_stack([z, np.exp(0.5 * z[:, 0] + 0.3 * g.normal(size=n))]), y.astype(np.float64)


def power(seed, n=4000):
    """Electricity: demand by hour, temperature and day, in time order."""
    g = np.random.default_rng(seed)
    hour, day = np.arange(n) % 24, np.arange(n) // 24 % 7
    warm = 12 + 8 * np.sin(np.arange(n) / 90) + 2 * g.normal(size=n)
    y = 40 + 9 * np.sin((hour - 7) * np.pi / 12) * (1 + 0.4 * (day > 4)) + 0.05 * (warm - 16) ** 2
    angle = hour * np.pi / 12
    x = np.column_stack([np.sin(angle), np.cos(angle), day > 4, warm, g.normal(5, 2, n)])
    return x, y + 1.5 * g.normal(size=n)


def rings(seed, n=2000, dims=2):
    """Two interleaved rings with noise columns."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 2, n)
    a = g.uniform(0, 2 * np.pi, n)
    r = 1 + y + 0.17 * g.normal(size=n)
    x = np.column_stack([r * np.cos(a), r * np.sin(a), g.normal(size=(n, dims - 2))])
    return x, y.astype(np.float64)


def bundled(name):
    return getattr(datasets, f"load_{name}")(return_X_y=True)


PIXELS = 54  # of the digits that are inked more than now and then


def inked():
    """Return the digits as rows of those pixels that vary."""
    x = bundled("digits")[0]
    often = (x > 0).sum(0)
    return x[:, np.sort(np.argsort(-often, kind="stable")[:PIXELS])] / 8 - 1


def digits(seed, *, image=True, share=0.75):
    x, y = bundled("digits")
    if not image:
        return ready(inked(), y, seed, share=share, scale=False)
    return ready((x / 8 - 1).reshape(-1, 1, 8, 8), y, seed, share=share, scale=False)


def figures(seed, n=1600, size=16, noise=0.25):
    """Images of a disc, a square, a cross or two bars at any place."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 4, n)
    r = g.uniform(2.5, 4.5, n)[:, None, None]
    cx, cy = (g.uniform(4.5, size - 5.5, n)[:, None, None] for _ in range(2))
    i, j = np.mgrid[:size, :size]
    a, b = np.abs(i - cy), np.abs(j - cx)
    forms = [
        a**2 + b**2 < r**2,
        (np.maximum(a, b) < r) & (np.maximum(a, b) > r - 1.6),
        ((a < 1) | (b < 1)) & (np.maximum(a, b) < r + 0.5),
        (np.abs(a - 2) < 1) & (b < r + 0.5),
    ]
    x = np.stack(forms, 1)[np.arange(n), y] * g.uniform(0.7, 1.3, n)[:, None, None]
    return (x + noise * g.normal(size=x.shape))[:, None], y


def gratings(seed, n=1500, size=16, classes=6, noise=0.7):
    """Images of stripes in several directions, with random phase and width."""
    g = np.random.default_rng(seed)
    y = g.integers(0, classes, n)
    t = (y * np.pi / classes + 0.07 * g.normal(size=n))[:, None, None]
    i, j = np.mgrid[:size, :size]
    k, phase = (
        g.uniform(lo, hi, n)[:, None, None] for lo, hi in ((2 * np.pi / 7, 2 * np.pi / 4), (0, 2 * np.pi))
    )
    x = np.sin(k * (i * np.cos(t) + j * np.sin(t)) + phase)
    return (x + noise * g.normal(size=x.shape))[:, None], y


def masks(seed, n=500, size=16):
    """Noisy images of blobs and thin lines; the mask has the blobs only."""
    g = np.random.default_rng(seed)
    i, j = np.mgrid[:size, :size]
    mask = np.zeros((n, size, size), bool)
    lines = mask.copy()
    for _ in range(2):
        cy, cx, r = (g.uniform(lo, hi, n)[:, None, None] for lo, hi in ((2, 14), (2, 14), (2, 4)))
        mask |= (i - cy) ** 2 + (j - cx) ** 2 < r**2
        c, s = g.uniform(2, 14, n)[:, None, None], g.choice([-1, 0, 1], n)[:, None, None]
        lines |= np.abs(i + s * (j - size / 2) - c) < 0.7
    x = (mask | lines) + 0.35 * g.normal(size=mask.shape)
    return x[:, None], mask[:, None].astype(np.float64)


def waves(seed, n=1500, steps=40, classes=4, noise=0.5):
    """Series of one channel: the class is how fast and whether rising in pitch."""
    g = np.random.default_rng(seed)
    y = g.integers(0, classes, n)
    t = np.linspace(0, 1, steps)
    pitch = (2 + 3 * (y % 2))[:, None] + 5 * (y // 2)[:, None] * t * 0.6
    x = np.sin(2 * np.pi * (pitch * t + g.uniform(0, 1, (n, 1)))) * g.uniform(0.7, 1.4, (n, 1))
    drift = 0.7 * g.normal(size=(n, 1)) + 1.2 * g.normal(size=(n, 1)) * (t - 0.5)
    return (x + drift + noise * g.normal(size=x.shape))[..., None], y


def demand(seed, n=2000, window=24, ahead=1):
    """A seasonal series cut into windows: predict what comes next."""
    g = np.random.default_rng(seed)
    t = np.arange(n + window + ahead)
    level = np.zeros(len(t))
    shock = g.normal(size=len(t))
    for i in range(1, len(t)):
        level[i] = 0.9 * level[i - 1] + 0.25 * shock[i]
    s = np.sin(2 * np.pi * t / 12) + 0.5 * np.sin(2 * np.pi * t / 7) * np.cos(2 * np.pi * t / 24) + level
    cut = np.lib.stride_tricks.sliding_window_view(s, window + ahead)[:n]
    return cut[:, :window, None], cut[:, window:] if ahead > 1 else cut[:, window]


def reviews(seed, n=2500, length=20, words=120):
    """Token rows padded with 0: mood words count, a negation turns the next word around."""
    g = np.random.default_rng(seed)
    x = g.integers(20, words, (n, length))
    lean = g.choice([-1, 1], n)
    for j in range(length):
        mood = g.random(n) < 0.35
        good = g.random(n) < np.where(lean > 0, 0.72, 0.28)
        x[:, j] = np.where(mood, np.where(good, g.integers(2, 10, n), g.integers(10, 18, n)), x[:, j])
    x[g.random(x.shape) < 0.08] = 1
    size = g.integers(8, length + 1, n)
    x[np.arange(length) >= size[:, None]] = 0
    value = ((x >= 2) & (x < 10)).astype(float) - ((x >= 10) & (x < 18))
    turned = np.concatenate([np.ones((n, 1)), np.where(x[:, :-1] == 1, -1.0, 1.0)], 1)
    z = (value * turned).sum(1)
    return x, (g.random(n) < 1 / (1 + np.exp(-2 * z))).astype(np.float64)


def speech(seed, n=800, length=16, words=60, tags=5, reach=1, pad=True):
    """Tokens with a tag each, which depends on the token and on the one ``reach`` before."""
    g = np.random.default_rng(seed)
    world = np.random.default_rng(7)
    group = world.integers(0, tags, words)
    turn = world.integers(0, tags, (tags, tags))
    x = g.integers(1, words, (n, length))
    before = np.roll(group[x], reach, 1)
    before[:, :reach] = 0
    y = turn[group[x], before]
    noise = g.random(y.shape) < 0.04
    y = np.where(noise, g.integers(0, tags, y.shape), y)
    if pad:
        beyond = np.arange(length) >= g.integers(length // 2, length + 1, n)[:, None]
        x, y = np.where(beyond, 0, x), np.where(beyond, -100, y)
    return x, y


def topics(seed, n=2500, words=200, classes=6):
    """Counts of words in short documents of several topics."""
    g = np.random.default_rng(seed)
    world = np.random.default_rng(3)
    base = world.dirichlet(np.full(words, 0.4), classes) * 0.45 + world.dirichlet(np.full(words, 2.0)) * 0.55
    y = g.integers(0, classes, n)
    return np.stack([g.multinomial(k, base[c]) for k, c in zip(g.integers(15, 50, n), y)]).astype(float), y


def names(seed, n=2400, length=9, classes=4, letters=16):
    """Character strings, each of a Markov chain of its language."""
    g = np.random.default_rng(seed)
    chains = np.random.default_rng(5).dirichlet(np.full(letters, 0.5), (classes, letters)).cumsum(-1)
    y = g.integers(0, classes, n)
    x = np.zeros((n, length), int)
    x[:, 0] = g.integers(0, letters, n)
    for j in range(1, length):
        x[:, j] = (chains[y, x[:, j - 1]] < g.random((n, 1))).sum(1).clip(0, letters - 1)
    return x + 1, y


def blocks(seed, n=900, classes=4, inside=0.025, across=0.0025, noise=1.6):
    """A graph of communities: features, normalised adjacency, class of each node."""
    g = np.random.default_rng(seed)
    y = g.integers(0, classes, n)
    p = np.where(y[:, None] == y, inside, across)
    a = np.triu(g.random((n, n)) < p, 1)
    a = (a | a.T) + np.eye(n)
    d = a.sum(1)
    x = g.normal(size=(classes, 12))[y] + noise * g.normal(size=(n, 12))
    return tensors(x, y) + (torch.as_tensor(a / np.sqrt(np.outer(d, d))).float(),)


class Nodes(nn.Module):
    """A graph convolution net that owns its graph; asked for node numbers."""

    def __init__(self, x, a, width, out, depth=2, drop=0.3):
        super().__init__()
        self.register_buffer("x", x)
        self.register_buffer("a", a)
        sizes = [x.shape[1], *[width] * (depth - 1), out]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(sizes[:-1], sizes[1:]))
        self.drop = nn.Dropout(drop)

    def forward(self, nodes):
        h = self.x
        for layer in self.layers[:-1]:
            h = self.drop(torch.relu(self.a @ layer(h)))
        return (self.a @ self.layers[-1](h))[nodes]


def molecules(seed, n=1200, size=10, kinds=4):
    """Small graphs: atom kinds one-hot, bonds; the class depends on bonds between kinds."""
    g = np.random.default_rng(seed)
    kind = g.integers(0, kinds, (n, size))
    a = np.triu(g.random((n, size, size)) < 0.25, 1)
    a = (a | a.transpose(0, 2, 1)).astype(float)
    value = np.array([[0, 1, -1, 0.5], [1, 0, 0, -1], [-1, 0, 1, 0], [0.5, -1, 0, 0]])
    z = (a * value[kind[:, :, None], kind[:, None]]).sum((1, 2)) / 2 + 0.4 * g.normal(size=n)
    x = torch.as_tensor(np.eye(kinds)[kind]).float()
    return x, torch.as_tensor(a).float(), torch.as_tensor((z > np.median(z)).astype(np.float32))


def factors(seed, n=2000, codes=3, width=20, noise=0.15):
    """Points near a curved sheet in many dimensions."""
    g, world = np.random.default_rng(seed), np.random.default_rng(11)
    z = g.normal(size=(n, codes))
    x = np.tanh(z @ world.normal(size=(codes, 16))) @ world.normal(size=(16, width)) / 3
    x = torch.as_tensor(x + noise * g.normal(size=x.shape)).float()
    return (x - x.mean(0)) / x.std(0)


def blobs(seed, n=1500, modes=6, radius=2.0, spread=0.15):
    """Points in the plane around the corners of a polygon."""
    g = np.random.default_rng(seed)
    a = g.integers(0, modes, n) * 2 * np.pi / modes
    x = np.column_stack([np.cos(a), np.sin(a)]) * radius + spread * g.normal(size=(n, 2))
    return torch.as_tensor(x).float()
