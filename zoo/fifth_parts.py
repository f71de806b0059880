"""Data sets, networks and training loops of the fifth author, who has not read the rules."""

from __future__ import annotations

import copy
import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

ME = "fifth"
NOTED: list[float] = []


def note(value):
    """Keep a score (higher is better) on rows that are not handed over."""
    NOTED.append(float(value))


# ---------------------------------------------------------------- data


def tensor(a):
    t = torch.as_tensor(np.asarray(a))
    return t.float() if t.is_floating_point() else t.long()


def three(X, y, seed, shares=(0.6, 0.8)):
    """Training, validation and unseen parts."""
    order = np.random.default_rng(500 + seed).permutation(len(y))
    X, y = tensor(X), tensor(y)
    return [(X[i], y[i]) for i in map(torch.as_tensor, np.split(order, [int(s * len(y)) for s in shares]))]


def standard(parts):
    m, s = parts[0][0].mean(0), parts[0][0].std(0) + 1e-8
    return [((X - m) / s, y) for X, y in parts]


def standard_y(parts):
    m, s = parts[0][1].mean(), parts[0][1].std()
    return [(X, (y - m) / s) for X, y in parts]


def wine(seed, raw=False):
    parts = three(*datasets.load_wine(return_X_y=True), seed)
    return parts if raw else standard(parts)


def cancer(seed, raw=False):
    parts = three(*datasets.load_breast_cancer(return_X_y=True), seed)
    return parts if raw else standard(parts)


def diabetes(seed):
    X, y = datasets.load_diabetes(return_X_y=True)
    return standard(three(X, y[:, None], seed))


def digits(seed, flat=False, n=1400, raw=False):
    X, y = datasets.load_digits(return_X_y=True)
    rows = np.random.default_rng(seed + 9).permutation(len(y))[:n]
    X = X[rows] if raw else X[rows] / 16
    return three(X if flat else X.reshape(-1, 1, 8, 8), y[rows], seed)


def customers(seed, n=1200, d=10, classes=3, noise=0.5, nonlinear=True):
    """A table: three classes by the size of a non-linear score of six columns."""
    rng = np.random.default_rng(seed + 20)
    X = rng.standard_normal((n, d))
    s = X[:, 0] + 0.8 * X[:, 1] - X[:, 2] + (1.2 * X[:, 3] * X[:, 4] + np.abs(X[:, 5]) if nonlinear else 0)
    s = s + noise * rng.standard_normal(n)
    y = np.digitize(s, np.quantile(s, np.linspace(0, 1, classes + 1)[1:-1]))
    return three(X, y, seed)


def houses(seed, n=1000, d=8, noise=0.15):
    """A regression of a smooth function, of unit size; target of shape (n, 1)."""
    rng = np.random.default_rng(seed + 40)
    X = rng.standard_normal((n, d))
    f = X[:, 0] + np.sin(1.5 * X[:, 1]) + 0.7 * X[:, 2] * X[:, 3] + 0.5 * np.maximum(X[:, 4], 0)
    f = (f - f.mean()) / f.std()
    return three(X, (f + noise * rng.standard_normal(n))[:, None], seed)


def annuli(seed, n=900, noise=0.12):
    """Three concentric rings in the plane."""
    rng = np.random.default_rng(seed + 60)
    y = rng.integers(0, 3, n)
    a, r = rng.uniform(0, 2 * np.pi, n), 0.5 + 0.7 * y + noise * rng.standard_normal(n)
    return three(np.stack([r * np.cos(a), r * np.sin(a)], 1), y, seed)


def board(seed, n=1600, cells=3):
    """A chess board of cells × cells fields in the plane."""
    rng = np.random.default_rng(seed + 80)
    X = rng.uniform(-1.7, 1.7, (n, 2))
    c = np.floor((X + 1.7) / 3.4 * cells).astype(int)
    return three(X, c.sum(1) % 2, seed)


def tones(seed, n=700, steps=32, noise=0.5, classes=3):
    """Series whose class is the frequency; the phase is random."""
    rng = np.random.default_rng(seed + 100)
    y = rng.integers(0, classes, n)
    t = np.arange(steps) / steps
    X = np.sin(2 * np.pi * ((2 + 2 * y)[:, None] * t + rng.random((n, 1)))) + noise * rng.standard_normal(
        (n, steps)
    )
    return three(X[:, :, None], y, seed)


def recall(seed, n=800, steps=40):
    """Series whose class is the sign of the first value; the rest is noise."""
    rng = np.random.default_rng(seed + 120)
    y = rng.integers(0, 2, n)
    X = 0.3 * rng.standard_normal((n, steps))
    X[:, 0] = (2 * y - 1) * rng.uniform(0.8, 1.6, n)
    return three(X[:, :, None], y, seed)


def topics(seed, n=1000, length=18, words=150, classes=4, keys=4, shares=None):
    """Documents of word numbers, padded by 0; each topic has ten key words."""
    rng = np.random.default_rng(seed + 140)
    y = rng.choice(classes, n, p=shares)
    X = rng.integers(1 + 10 * classes, words, (n, length))
    for row, label in zip(X, y):
        size = rng.integers(length // 2, length + 1)
        row[rng.permutation(size)[:keys]] = 1 + 10 * label + rng.integers(0, 10, keys)
        row[size:] = 0
    return three(X, y, seed)


def stripes(seed, n=700, side=12, noise=0.5, classes=4):
    """Images of stripes in four directions."""
    rng = np.random.default_rng(seed + 160)
    y = rng.integers(0, classes, n)
    u, v = np.meshgrid(np.arange(side), np.arange(side))
    a = (np.pi * y / classes)[:, None, None]
    X = np.sin(1.6 * (u * np.cos(a) + v * np.sin(a)) + rng.uniform(0, 6.28, (n, 1, 1)))
    return three((X + noise * rng.standard_normal(X.shape))[:, None], y, seed)


def society(seed, n=300, classes=3, d=10, inside=0.06, outside=0.006, apart=0.6, known=0.4):
    """A graph of communities: (X, A), labels with -100 where unknown, for training, validation and the unseen nodes."""
    rng = np.random.default_rng(seed + 180)
    y = rng.integers(0, classes, n)
    A = np.triu(rng.random((n, n)) < np.where(y[:, None] == y, inside, outside), 1)
    A = (A | A.T) + np.eye(n)
    deg = A.sum(1)
    A = A / np.sqrt(deg[:, None] * deg)
    X = rng.standard_normal((n, d)) + apart * rng.standard_normal((classes, d))[y]
    return (tensor(X), tensor(A)), masks(y, rng, known)


def masks(y, rng, known=0.4):
    part = rng.permutation(len(y))
    cuts = [int(known * len(y)), int((known + 0.25) * len(y))]
    out = []
    for rows in np.split(part, cuts):
        m = np.full(len(y), -100)
        m[rows] = y[rows]
        out.append(torch.tensor(m))
    return out


def petals(seed, n=1500, k=8, spread=0.06):
    """Points near k places on the unit circle."""
    rng = np.random.default_rng(seed + 200)
    a = 2 * np.pi * rng.integers(0, k, n) / k
    return tensor(np.stack([np.cos(a), np.sin(a)], 1) + spread * rng.standard_normal((n, 2)))


def sheets(seed, n=900, d=20, inner=4, noise=0.1):
    """Points near a curved sheet of few dimensions in d dimensions."""
    rng = np.random.default_rng(seed + 220)
    z = rng.standard_normal((n, inner))
    W = rng.standard_normal((inner, d)) / np.sqrt(inner)
    X = np.tanh(z @ W) * 1.5 + noise * rng.standard_normal((n, d))
    return three(X, X, seed)


# ---------------------------------------------------------------- networks


def mlp(*sizes, act=nn.ReLU, drop=0.0, norm=False, end=()):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b)] + ([nn.BatchNorm1d(b)] if norm else []) + [act()]
        layers += [nn.Dropout(drop)] if drop else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]), *end)


def convnet(side=8, width=12, classes=10, norm=True, drop=0.0, end=(), hidden=0):
    def block(a, b):
        return (
            [nn.Conv2d(a, b, 3, padding=1)]
            + ([nn.BatchNorm2d(b)] if norm else [])
            + [nn.ReLU(), nn.MaxPool2d(2)]
        )

    flat = 2 * width * (side // 4) ** 2
    head = (
        [nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, classes)]
        if hidden
        else [nn.Linear(flat, classes)]
    )
    return nn.Sequential(
        *block(1, width), *block(width, 2 * width), nn.Flatten(), nn.Dropout(drop), *head, *end
    )


class Recurrent(nn.Module):
    def __init__(self, cell=nn.GRU, d=1, width=24, classes=3, layers=1, **more):
        super().__init__()
        self.rnn = cell(d, width, layers, batch_first=True, **more)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


class Reader(nn.Module):
    """Embeddings, positions, transformer layers, masked mean."""

    def __init__(self, words=150, width=24, classes=4, layers=1, drop=0.1, length=18):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=drop, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        keep = (x != 0).unsqueeze(-1).float()
        h = self.body(self.embed(x) + self.place, src_key_padding_mask=x == 0)
        return self.head((h * keep).sum(1) / keep.sum(1))


class Bag(nn.Module):
    """Mean of embeddings and a perceptron."""

    def __init__(self, words=150, width=16, hidden=32, classes=4, drop=0.0):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.net = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(drop), nn.Linear(hidden, classes)
        )

    def features(self, x):
        return self.embed(x).sum(1) / (x != 0).sum(1, keepdim=True)

    def forward(self, x):
        return self.net(self.features(x))


class GraphNet(nn.Module):
    def __init__(self, d=10, width=16, classes=3, layers=2, drop=0.0):
        super().__init__()
        self.lins = nn.ModuleList(nn.Linear(d if i == 0 else width, width) for i in range(layers))
        self.out, self.drop = nn.Linear(width, classes), drop

    def forward(self, x, A):
        for lin in self.lins:
            x = F.dropout(F.relu(A @ lin(x)), self.drop, self.training)
        return self.out(x)


class VAE(nn.Module):
    def __init__(self, d, latent=4, hidden=48):
        super().__init__()
        self.latent = latent
        self.enc = mlp(d, hidden, 2 * latent)
        self.dec = mlp(latent, hidden, d)

    def encode(self, x):
        return self.enc(x).chunk(2, -1)

    def forward(self, x):
        mean, logvar = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        return self.dec(z)

    def sample(self, n):
        return self.dec(torch.randn(n, self.latent))


class Generator(nn.Module):
    def __init__(self, latent=4, hidden=48, d=2):
        super().__init__()
        self.latent = latent
        self.net = mlp(latent, hidden, hidden, d)

    def forward(self, z):
        return self.net(z)

    def sample(self, n):
        return self.net(torch.randn(n, self.latent))


# ---------------------------------------------------------------- training

adam = partial(partial, torch.optim.Adam)
adamw = partial(partial, torch.optim.AdamW)
sgd = partial(partial, torch.optim.SGD)
rms = partial(partial, torch.optim.RMSprop)

LOSSES = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def take(X, rows):
    if isinstance(X, dict):
        return {k: v[rows] for k, v in X.items()}
    return tuple(v[rows] for v in X) if isinstance(X, tuple) else X[rows]


def call(model, X):
    return model(*X) if isinstance(X, tuple) else model(X)


@torch.no_grad()
def accuracy(model, part):
    out = call(model, part[0])
    keep = part[1] != -100
    if out.ndim == 1 or out.shape[-1] == 1:
        return ((out.reshape(-1) > 0) == (part[1].reshape(-1) > 0.5)).float().mean().item()
    return (out.argmax(-1) == part[1])[keep].float().mean().item()


@torch.no_grad()
def balanced(model, part):
    out = call(model, part[0])
    said = (out.reshape(-1) > 0).long() if out.shape[-1] == 1 else out.argmax(-1)
    y = part[1].reshape(-1).long()
    return float(np.mean([(said[y == c] == c).float().mean() for c in y.unique()]))


@torch.no_grad()
def r2(model, part):
    out = call(model, part[0])
    value = (1 - F.mse_loss(out, part[1]) / part[1].var(unbiased=False)).item()
    return max(-5.0, value) if math.isfinite(value) else -5.0


@torch.no_grad()
def ece(model, part, bins=10):
    p = torch.softmax(call(model, part[0]), -1)
    conf, said = p.max(-1)
    right = (said == part[1]).float()
    which = (conf * bins).long().clamp(max=bins - 1)
    return sum(
        float((which == b).float().mean() * (conf[which == b].mean() - right[which == b].mean()).abs())
        for b in range(bins)
        if (which == b).any()
    )


def fit(
    model, parts, loss="cross_entropy", opt=None, *, epochs=12, batch=32, seed=0, metric=None, schedule=None,
    params=None, finite_only=False, clip=None, hand=None, step=None, score=True, **more,
):  # fmt: skip
    """Train as users do, note the score on unseen rows, return what the user hands over."""
    data, val, test = parts
    f = LOSSES.get(loss, loss)
    initial = copy.deepcopy(model.state_dict())
    optimizer = (opt or adam(lr=3e-3))(params if params is not None else model.parameters())
    plan = schedule(optimizer) if schedule else None
    X, y = data
    g, history = torch.Generator().manual_seed(seed), []
    for _ in range(epochs):
        model.train()
        total, count = 0.0, 0
        for rows in torch.randperm(len(y), generator=g).split(batch):
            if len(rows) < 2 <= batch:
                continue
            if step is not None:
                value = step(model, (take(X, rows), y[rows]))
            else:
                value = f(call(model, take(X, rows)), y[rows])
                if finite_only and not torch.isfinite(value):
                    continue
                optimizer.zero_grad()
                value.backward()
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
            total, count = total + float(torch.as_tensor(value).detach()) * len(rows), count + len(rows)
        if plan:
            plan.step()
        model.eval()
        row = {"loss": total / count if count else float("nan")}
        if val is not None:
            with torch.no_grad():
                row["val_loss"] = float(f(call(model, val[0]), val[1]))
        history.append(row)
    model.eval()
    if score:
        note((metric or (r2 if loss == "mse" else accuracy))(model, test))
    out = dict(
        model=model, data=data, validation=val, loss=loss, optimizer=optimizer, batch_size=batch, history=history,
        initial=initial,
    )  # fmt: skip
    if step is not None:
        out["step"] = step
        out.pop("optimizer")
    out.update(more)
    return {k: v for k, v in out.items() if k in ("model", "data") or v is not None}


def fit_graph(model, inputs, labels, opt=None, *, epochs=100, **more):
    """Full-batch training of a node classifier."""
    train, val, test = labels
    initial = copy.deepcopy(model.state_dict())
    optimizer = (opt or adam(lr=1e-2))(model.parameters())
    history = []
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        value = F.cross_entropy(model(*inputs), train)
        value.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            history.append({"loss": value.item(), "val_loss": F.cross_entropy(model(*inputs), val).item()})
    note(accuracy(model, (inputs, test)))
    out = dict(
        model=model, data=(inputs, train), validation=(inputs, val), loss="cross_entropy", optimizer=optimizer,
        batch_size=len(train), history=history, initial=initial,
    )  # fmt: skip
    out.update(more)
    return out


def fit_vae(model, X, val, *, beta=1.0, noise=0.1, epochs=30, batch=64, opt=None, seed=0):
    """The usual bound: squared error over the noise's variance plus beta times the divergence."""
    initial = copy.deepcopy(model.state_dict())
    optimizer = (opt or adam(lr=3e-3))(model.parameters())
    g, history = torch.Generator().manual_seed(seed), []

    def bound(x):
        mean, logvar = model.encode(x)
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(-1)
        return ((model(x) - x) ** 2).sum(-1).div(2 * noise**2).mean() + beta * kl.mean(), kl.mean()

    for _ in range(epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(X), generator=g).split(batch):
            optimizer.zero_grad()
            value, _kl = bound(X[rows])
            value.backward()
            optimizer.step()
            total += value.item() * len(rows)
        model.eval()
        with torch.no_grad():
            history.append({"loss": total / len(X), "val_loss": bound(val)[0].item()})
    with torch.no_grad():
        note(1 - ((model(val) - val) ** 2).mean().item() / val.var(0).mean().item())
    return dict(
        model=model,
        data=X,
        validation=val,
        optimizer=optimizer,
        batch_size=batch,
        history=history,
        initial=initial,
    )


def covered(model, X, k=8):
    """The share of the modes on the circle that get at least a fifth of their due."""
    with torch.no_grad():
        s = model.sample(2000)
    a = 2 * math.pi * torch.arange(k) / k
    d, near = torch.cdist(s, torch.stack([a.cos(), a.sin()], 1)).min(1)
    return float((torch.bincount(near[d < 0.3], minlength=k) > 0.2 * 2000 / k).float().mean())
