"""Data, models and the loop shared by the tenth author's cases."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

NAMED = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


# ---------------------------------------------------------------- data: each returns (X, y, X_val, y_val)
def _cut(X, y, seed, held):
    order = np.random.default_rng(seed + 77).permutation(len(y))
    a, b = order[held:], order[:held]
    return X[a], y[a], X[b], y[b]


def _t(X, y):
    X = torch.as_tensor(np.ascontiguousarray(X), dtype=torch.float32)
    y = torch.as_tensor(y)
    return X, (y.float() if y.is_floating_point() else y.long())


def digits(seed, n=1000, held=500, flat=True):
    X, y = datasets.load_digits(return_X_y=True)
    keep = np.random.default_rng(seed).permutation(len(y))[: n + held]
    X = X[keep] / 16 * 2 - 0.6
    X = X if flat else X.reshape(-1, 1, 8, 8)
    return _cut(*_t(X, y[keep]), seed, held)


def cancer(seed, held=170):
    X, y = datasets.load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    return _cut(*_t(X, y.astype(np.float32)), seed, held)


def wine(seed, held=55):
    X, y = datasets.load_wine(return_X_y=True)
    return _cut(*_t((X - X.mean(0)) / X.std(0), y), seed, held)


def blobs(seed, n=1000, held=500, k=5, d=12, sep=1.4, flip=0.0):
    X, y = datasets.make_classification(
        n + held,
        d,
        n_informative=d - 2,
        n_redundant=0,
        n_classes=k,
        n_clusters_per_class=2,
        class_sep=sep,
        flip_y=flip,
        random_state=seed,
    )
    X = (X - X.mean(0)) / X.std(0)
    return _cut(*_t(X, y), seed, held)


def friedman(seed, n=900, held=400, d=8, noise=0.5):
    X, y = datasets.make_friedman1(n + held, d, noise=noise, random_state=seed)
    X = (X - 0.5) / 0.289
    return _cut(*_t(X, (y - y.mean()) / y.std()), seed, held)


def spirals(seed, n=700, held=300, turns=1.3, noise=0.06):
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, n + held)
    t = np.sqrt(r.uniform(0.02, 1, n + held))
    a = t * turns * 2 * np.pi + y * np.pi
    X = np.stack([t * np.cos(a), t * np.sin(a)], 1) * 1.8 + noise * r.normal(size=(n + held, 2))
    return _cut(*_t(X, y), seed, held)


def shapes(seed, n=800, held=300, side=12, noise=0.25):
    """Bars lying, bars standing, crosses and frames, anywhere in the picture."""
    r = np.random.default_rng(seed)
    X = noise * r.normal(size=(n + held, 1, side, side))
    y = r.integers(0, 4, n + held)
    for i, c in enumerate(y):
        a, b = r.integers(0, side - 4, 2)
        if c == 0:
            X[i, 0, a + 2, b : b + 5] += 1
        elif c == 1:
            X[i, 0, a : a + 5, b + 2] += 1
        elif c == 2:
            X[i, 0, a + 2, b : b + 5] += 1
            X[i, 0, a : a + 5, b + 2] += 1
        else:
            X[i, 0, a : a + 5, [b, b + 4]] += 1
            X[i, 0, [a, a + 4], b : b + 5] += 1
    return _cut(*_t(X, y), seed, held)


def waves(seed, n=700, held=300, length=40, noise=0.3):
    """Four wave forms (sine, square, saw, chirp) with random phase; rows are (1, length)."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 4, n + held)
    t = np.arange(length) / length
    X = np.empty((n + held, 1, length))
    for i, c in enumerate(y):
        f, p = r.uniform(2.5, 3.5), r.uniform()
        u = (f * t + p) % 1
        if c == 0:
            w = np.sin(2 * np.pi * u)
        elif c == 1:
            w = np.sign(u - 0.5)
        elif c == 2:
            w = 2 * u - 1
        else:
            w = np.sin(2 * np.pi * (1.5 * f * t * t + 0.5 * f * t + p))
        X[i, 0] = w + noise * r.normal(size=length)
    return _cut(*_t(X, y), seed, held)


def reviews(seed, n=900, held=400, vocab=60, length=16):
    """Sentences of token numbers; the sign of the summed valences of the words is the class."""
    r = np.random.default_rng(seed)
    value = np.where(np.arange(vocab) % 3 == 0, 0.0, np.where(np.arange(vocab) % 3 == 1, 1.0, -1.0))
    X = r.integers(1, vocab, (n + held, length))
    s = value[X].sum(1)
    y = (s + 0.1 * r.normal(size=n + held) > 0).astype(np.int64)
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    return _cut(X, y, seed, held)


def topics(seed, n=900, held=400, vocab=80, length=20, k=5, share=0.3):
    """Sentences whose topic words (a tenth of the vocabulary each) are mixed with common words."""
    r = np.random.default_rng(seed)
    y = r.integers(0, k, n + held)
    common = r.integers(40, vocab, (n + held, length))
    own = y[:, None] * 8 + r.integers(0, 8, (n + held, length))
    other = r.integers(0, 40, (n + held, length))
    u = r.uniform(size=(n + held, length))
    X = np.where(u < share, own, np.where(u < share + 0.15, other, common))
    return _cut(torch.as_tensor(X), torch.as_tensor(y), seed, held)


def series(seed, n=800, held=300, width=12):
    """Windows of a noisy sum of two periods, and the value that comes next, in the order of time."""
    r = np.random.default_rng(seed)
    t = np.arange(n + held + width + 1)
    s = np.sin(t / 3) + 0.6 * np.sin(t / 7.3 + 1) + 0.1 * r.normal(size=len(t))
    X = np.stack([s[i : i + width] for i in range(n + held)])
    y = s[width : width + n + held]
    X, y = _t(X[..., None], y.astype(np.float32))
    return X[:n], y[:n], X[n:], y[n:]


def community(seed, n=320, k=4, inside=0.07, outside=0.008, d=8, strength=0.7):
    """A stochastic block model with weak features: (features, adjacency, edge_index, labels, training mask)."""
    r = np.random.default_rng(seed)
    y = r.integers(0, k, n)
    p = np.where(y[:, None] == y[None], inside, outside)
    A = np.triu(r.uniform(size=(n, n)) < p, 1)
    A = (A | A.T).astype(np.float32)
    centre = r.normal(size=(k, d))
    X = strength * centre[y] + r.normal(size=(n, d))
    train = r.uniform(size=n) < 0.5
    edges = torch.as_tensor(np.stack(np.nonzero(A)))
    return (
        torch.as_tensor(X, dtype=torch.float32),
        torch.as_tensor(A),
        edges,
        torch.as_tensor(y),
        torch.as_tensor(train),
    )


def molecules(seed, n=500, held=250, nodes=12):
    """Small graphs with a node feature; the class is whether marked nodes are joined to many marked nodes."""
    r = np.random.default_rng(seed)
    A = np.triu(r.uniform(size=(n + held, nodes, nodes)) < 0.25, 1)
    A = (A | A.transpose(0, 2, 1)).astype(np.float32)
    mark = (r.uniform(size=(n + held, nodes)) < 0.5).astype(np.float32)
    pairs = np.einsum("bi,bij,bj->b", mark, A, mark) / 2
    y = (pairs > np.median(pairs)).astype(np.int64)
    X = np.stack([mark, 1 - mark], 2)
    X, A, y = torch.as_tensor(X), torch.as_tensor(A), torch.as_tensor(y)
    return (X[:n], A[:n]), y[:n], (X[n:], A[n:]), y[n:]


def ring(seed, n=1000, modes=8, radius=2.0, noise=0.08):
    r = np.random.default_rng(seed)
    c = r.integers(0, modes, n)
    a = 2 * np.pi * c / modes
    X = radius * np.stack([np.cos(a), np.sin(a)], 1) + noise * r.normal(size=(n, 2))
    return torch.as_tensor(X, dtype=torch.float32)


# ---------------------------------------------------------------- models
def mlp(*sizes, act=nn.ReLU, end=()):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(act())
    return nn.Sequential(*layers, *end)


class Squeeze(nn.Module):
    """A net with one output, as a vector."""

    def __init__(self, body, act=None):
        super().__init__()
        self.body, self.act = body, act

    def forward(self, x):
        out = self.body(x).squeeze(-1)
        return out if self.act is None else self.act(out)


class Dense(nn.Module):
    """Two hidden layers in functional style."""

    def __init__(self, d, k, width=64, drop=0.0):
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(d, width), nn.Linear(width, width), nn.Linear(width, k)
        self.drop = drop

    def forward(self, x):
        x = F.dropout(F.relu(self.fc1(x)), self.drop, self.training)
        x = F.dropout(F.relu(self.fc2(x)), self.drop, self.training)
        return self.out(x)


class Conv(nn.Module):
    """Two convolutions, a pooling between, and a linear head on the mean over the places or on all of them."""

    def __init__(self, k, side=8, width=16, kernel=3, flat=True, end=None):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, kernel, padding=kernel // 2)
        self.c2 = nn.Conv2d(width, 2 * width, kernel, padding=kernel // 2)
        self.flat, self.end = flat, end
        self.head = nn.Linear(2 * width * (side // 2) ** 2 if flat else 2 * width, k)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.relu(self.c2(x))
        x = self.head(x.flatten(1) if self.flat else x.amax((2, 3)))
        return x if self.end is None else self.end(x)


class Conv1(nn.Module):
    def __init__(self, k, width=24, kernel=7, norm=True):
        super().__init__()
        self.a = nn.Conv1d(1, width, kernel, padding=kernel // 2)
        self.b = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.na = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.nb = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.head = nn.Linear(width, k)

    def forward(self, x):
        x = torch.relu(self.na(self.a(x)))
        x = torch.relu(self.nb(self.b(x)))
        return self.head(x.mean(2))


class Recurrent(nn.Module):
    """A GRU, LSTM or plain RNN whose last state is read; takes (rows, time, features)."""

    def __init__(self, d, k, width=32, cell=nn.GRU, squeeze=False, channels_first=False, **extra):
        super().__init__()
        self.rnn = cell(d, width, batch_first=True, **extra)
        self.head = nn.Linear(width, k)
        self.squeeze, self.channels_first = squeeze, channels_first

    def forward(self, x):
        out, _ = self.rnn(x.transpose(1, 2) if self.channels_first else x)
        out = self.head(out[:, -1])
        return out.squeeze(-1) if self.squeeze else out


class Bag(nn.Module):
    """The mean of the words' vectors, then a small net."""

    def __init__(self, vocab, k, dim=16, width=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.net = mlp(dim, width, k)

    def forward(self, tokens):
        return self.net(self.emb(tokens).mean(1))


class TextRnn(nn.Module):
    def __init__(self, vocab, k, dim=16, width=32, cell=nn.GRU):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = cell(dim, width, batch_first=True)
        self.head = nn.Linear(width, k)

    def forward(self, tokens):
        out, _ = self.rnn(self.emb(tokens))
        return self.head(out.mean(1))


class Attend(nn.Module):
    """One block of self-attention written by hand."""

    def __init__(self, vocab, k, dim=24, heads=2, length=20):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, dim), nn.Parameter(0.1 * torch.randn(length, dim))
        self.qkv, self.mix = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = mlp(dim, 2 * dim, dim, act=nn.GELU)
        self.head, self.heads = nn.Linear(dim, k), heads

    def forward(self, tokens):
        x = self.emb(tokens) + self.pos[: tokens.shape[1]]
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.mix(a)
        x = x + self.ff(self.n2(x))
        return self.head(x.mean(1))


def normalised(A):
    A = A + torch.eye(len(A))
    s = A.sum(1).rsqrt()
    return s[:, None] * A * s[None]


class Gcn(nn.Module):
    """Graph convolutions on a dense adjacency that is an input; takes (features, adjacency)."""

    def __init__(self, d, k, layers=2, width=32):
        super().__init__()
        sizes = [d] + [width] * (layers - 1) + [k]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, A):
        P = normalised(A)
        for i, layer in enumerate(self.layers):
            x = P @ layer(x)
            if i < len(self.layers) - 1:
                x = F.relu(x)
        return x


class EdgeNet(nn.Module):
    """Mean aggregation over an edge_index; takes (features, edge_index)."""

    def __init__(self, d, k, layers=2, width=32, own=True):
        super().__init__()
        sizes = [d] + [width] * layers
        self.near = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.self_ = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])) if own else None
        self.head = nn.Linear(width, k)

    def forward(self, x, edge_index):
        s, t = edge_index
        count = torch.zeros(len(x)).index_add_(0, t, torch.ones(len(t))).clamp(min=1)[:, None]
        for i, near in enumerate(self.near):
            m = torch.zeros_like(x).index_add_(0, t, x[s]) / count
            if self.self_ is None:
                x = F.relu(near((m * count + x) / (count + 1)))
            else:
                x = F.relu(near(m) + self.self_[i](x))
        return self.head(x)


class NodeLookup(nn.Module):
    """Knows its graph: takes node numbers and answers for these nodes."""

    def __init__(self, X, A, net):
        super().__init__()
        self.register_buffer("X", X)
        self.register_buffer("A", A)
        self.net = net

    def forward(self, nodes):
        return self.net(self.X, self.A)[nodes]


class GraphClass(nn.Module):
    """Sum of neighbours, twice, then the sum over the nodes; takes (node features, adjacency) of many graphs."""

    def __init__(self, d=2, k=2, width=24):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(2 * d, width), nn.Linear(2 * width, width), nn.Linear(width, k)

    def forward(self, x, A):
        x = F.relu(self.a(torch.cat([x, A @ x], -1)))
        x = F.relu(self.b(torch.cat([x, A @ x], -1)))
        return self.head(x.mean(1))


class Vae(nn.Module):
    def __init__(self, d, latent=4, width=64, beta=1.0, noise=0.25):
        super().__init__()
        self.enc, self.dec = mlp(d, width, 2 * latent), mlp(latent, width, d)
        self.latent, self.beta, self.noise = latent, beta, noise

    def encode(self, x):
        mean, logvar = self.enc(x).chunk(2, -1)
        return mean, logvar.clamp(-10, 10)

    def decode(self, z):
        return self.dec(z)

    def forward(self, x):
        mean, logvar = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        return self.decode(z), mean, logvar

    def objective(self, x):
        r, mean, logvar = self(x)
        rec = ((r - x) ** 2).sum(1) / (2 * self.noise**2)
        kl = 0.5 * (mean**2 + logvar.exp() - logvar - 1).sum(1)
        return (rec + self.beta * kl).mean()

    def sample(self, n):
        return self.decode(torch.randn(n, self.latent))


# ---------------------------------------------------------------- the loop
def adam(rate=3e-3, **extra):
    return lambda model: torch.optim.Adam(model.parameters(), lr=rate, **extra)


def adamw(rate=3e-3, **extra):
    return lambda model: torch.optim.AdamW(model.parameters(), lr=rate, **extra)


def sgd(rate=0.05, momentum=0.9, **extra):
    return lambda model: torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum, **extra)


def take(X, rows, n):
    if isinstance(X, dict):
        return {k: take(v, rows, n) for k, v in X.items()}
    if isinstance(X, (tuple, list)):
        return tuple(take(v, rows, n) for v in X)
    return X[rows] if len(X) == n else X


def call(model, X):
    return model(*X) if isinstance(X, tuple) else model(X)


def resolve(loss):
    return NAMED[loss] if isinstance(loss, str) else loss


GIVE = {
    "bare": (),
    "loss": ("loss",),
    "opt": ("loss", "optimizer", "batch_size"),
    "hist": ("loss", "optimizer", "batch_size", "history"),
    "past": ("loss", "history"),
    "init": ("loss", "optimizer", "initial"),
    "all": ("loss", "optimizer", "batch_size", "history", "initial"),
}


def shape_data(X, y, form, batch):
    if form == "numpy":
        return X.numpy(), y.numpy()
    if form == "loader":
        return torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(X, y), batch_size=batch, shuffle=False
        )
    return X, y


def train(
    seed,
    data,
    net,
    *,
    loss="cross_entropy",
    opt=None,
    batch=32,
    epochs=15,
    give="all",
    form="tensor",
    update=None,
    clip=None,
    shuffle=True,
    stop=False,
    after=None,
    schedule=None,
):
    """Train ``net()`` on the data as written and return what a user would hand to diagnose."""
    X, y, Xv, yv = data
    torch.manual_seed(seed)
    model = net()
    initial = copy.deepcopy(model.state_dict())
    optimizer = (opt or adam())(model)
    plan = schedule(optimizer) if schedule else None
    measure, history, best = resolve(loss), [], (math.inf, None)
    n = len(y)
    g = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        model.train()
        total, order = 0.0, torch.randperm(n, generator=g) if shuffle else torch.arange(n)
        for rows in order.split(batch):
            xb, yb = take(X, rows, n), y[rows]
            if update is not None:
                value = update(model, optimizer, xb, yb)
            else:
                optimizer.zero_grad()
                value = measure(call(model, xb), yb)
                if value.requires_grad:
                    value.backward()
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
            total += float(value.detach()) * len(rows) / n
        if plan is not None:
            plan.step()
        row = {"loss": total}
        if Xv is not None:
            model.eval()
            with torch.no_grad():
                row["val_loss"] = float(measure(call(model, Xv), yv))
            if stop and row["val_loss"] < best[0]:
                best = row["val_loss"], copy.deepcopy(model.state_dict())
        history.append(row)
    if best[1] is not None:
        model.load_state_dict(best[1])
    model.eval()
    if after:
        after(model)
    given = {"model": model, "data": shape_data(X, y, form, batch)}
    if Xv is not None:
        given["validation"] = shape_data(Xv, yv, form, batch)
    everything = {
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": batch,
        "history": history,
        "initial": initial,
    }
    given.update({key: everything[key] for key in GIVE[give]})
    return given


def train_vae(seed, X, Xv, net, *, opt=None, batch=64, epochs=30, give="opt", objective=None):
    """Train a generative model by its own objective."""
    torch.manual_seed(seed)
    model = net()
    initial = copy.deepcopy(model.state_dict())
    optimizer = (opt or adam(2e-3))(model)
    history = []
    for _ in range(epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(X)).split(batch):
            optimizer.zero_grad()
            value = model.objective(X[rows])
            value.backward()
            optimizer.step()
            total += float(value.detach()) * len(rows) / len(X)
        history.append({"loss": total})
    model.eval()
    given = {"model": model, "data": X}
    if Xv is not None:
        given["validation"] = Xv
    everything = {"optimizer": optimizer, "batch_size": batch, "history": history, "initial": initial}
    given.update({key: everything[key] for key in GIVE[give] if key in everything})
    return given


class Step:
    """A user's update: makes one optimiser per model it is given and keeps it."""

    def __init__(self, loss, make, clear="always", every=50):
        self.loss, self.make, self.clear, self.every = resolve(loss), make, clear, every
        self.known = {}

    def __call__(self, model, batch):
        x, y = batch
        if id(model) not in self.known:
            self.known[id(model)] = [model, self.make(model), 0]
        entry = self.known[id(model)]
        optimizer = entry[1]
        if self.clear == "always" or (self.clear == "rarely" and entry[2] % self.every == 0):
            optimizer.zero_grad()
        entry[2] += 1
        value = self.loss(call(model, x), y)
        value.backward()
        optimizer.step()
        return value.detach()
