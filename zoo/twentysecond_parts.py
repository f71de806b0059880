"""Data, nets and the loop shared by the twenty-second author's cases: small trainings of scientists."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

ME = "twentysecond"


def start(seed):
    torch.manual_seed(seed)
    return np.random.default_rng(seed)


def tensor(a):
    a = np.asarray(a)
    return torch.as_tensor(a, dtype=torch.float32 if a.dtype.kind == "f" else torch.long)


def split(x, y, share=0.75, scale=True):
    """Cut into training and held-out rows; standardise two-dimensional inputs by the training rows."""
    n = int(len(y) * share)
    y = tensor(y)
    if isinstance(x, tuple):
        x = tuple(tensor(a) for a in x)
        return SimpleNamespace(x=tuple(a[:n] for a in x), y=y[:n], vx=tuple(a[n:] for a in x), vy=y[n:], n=n)
    x = tensor(x)
    if scale and x.is_floating_point():
        x = (x - x[:n].mean(0)) / (x[:n].std(0) + 1e-6)
    return SimpleNamespace(x=x[:n], y=y[:n], vx=x[n:], vy=y[n:], n=n)


def z(a):
    return (a - a.mean(0)) / a.std(0)


def choose(rng, scores, sharp=3.0):
    return (z(scores) * sharp + rng.gumbel(size=scores.shape)).argmax(1)


def coin(rng, logit, sharp=3.0):
    logit = (logit - np.median(logit)) / logit.std() * sharp
    return (rng.random(len(logit)) < 1 / (1 + np.exp(-logit))).astype(float)[:, None]


# ---------------------------------------------------------------- tables


def stars(rng, n=1800, sharp=4.0):
    """A star catalogue: colours, magnitude, parallax; four types."""
    temp, lum, metal = rng.normal(size=(3, n))
    dust = rng.gamma(2, 0.4, n)
    e = 0.15 * rng.normal(size=(6, n))
    x = np.stack(
        [
            temp + 0.3 * dust + e[0],
            0.7 * temp - 0.3 * metal + 0.2 * dust + e[1],
            0.7 * metal + 0.4 * temp + e[2],
            -lum + 0.4 * temp**2 + dust + e[3],
            np.tanh(lum) + 0.2 * metal + e[4],
            dust + e[5],
        ],
        1,
    )
    return x, choose(
        rng, np.stack([temp + lum, temp**2 - metal, -temp - lum * metal, lum**2 - temp], 1), sharp
    )


def galaxies(rng, n=3000, noise=0.1):
    """Photometric redshift from five bands and two shapes."""
    shift, kind, lum = rng.gamma(3, 0.3, n), rng.normal(size=n), rng.normal(size=n)
    bands = [lum + np.sin(1.6 * shift + 0.6 * b) + 0.3 * b * kind for b in range(5)]
    x = np.stack([*bands, kind + 0.3 * rng.normal(size=n), np.log(0.3 + shift) - lum], 1)
    return x + noise * rng.normal(size=x.shape), z(shift + 0.05 * rng.normal(size=n))[:, None]


def habitats(rng, n=2000, sharp=4.0):
    """Presence of a species: climate, soil and a habitat of four kinds."""
    rain, warm, ph, slope = rng.normal(size=(4, n))
    height = -0.8 * warm + 0.4 * rng.normal(size=n)
    kind = rng.integers(0, 4, n)
    logit = 1.5 - (rain - 0.4) ** 2 - warm**2 + 0.8 * ph * (kind == 1) - 0.8 * ph * (kind == 2) + 0.3 * slope
    return np.concatenate([np.stack([rain, warm, ph, slope, height], 1), np.eye(4)[kind]], 1), coin(
        rng, logit, sharp
    )


def counts(rng, n=2000, top=1.0):
    """Species counts in plots: Poisson with a curved log rate."""
    x = rng.normal(size=(n, 6))
    x[:, 5] = 0.7 * x[:, 0] + 0.7 * x[:, 5]
    rate = np.exp(top + 0.8 * np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] - 0.3 * x[:, 3] ** 2)
    return x, rng.poisson(np.minimum(rate, 60)).astype(float)[:, None]


def reactor(rng, n=1500, noise=0.15):
    """Yields of three products by temperature, pressure, concentrations and a catalyst's properties."""
    x = rng.normal(size=(n, 8))
    x[:, 7] = 0.8 * x[:, 6] + 0.6 * x[:, 7]
    t = np.stack(
        [
            np.tanh(x[:, 0] + x[:, 1]) + 0.5 * x[:, 2] * x[:, 3],
            np.sin(1.5 * x[:, 1]) + 0.6 * x[:, 4],
            np.abs(x[:, 0]) - 0.7 * x[:, 5] * x[:, 6],
        ],
        1,
    )
    return x, z(t) + noise * rng.normal(size=t.shape)


def rings(rng, n=1500, k=3):
    """Momentum pairs of particles in k shells, hidden among four noise columns."""
    y = rng.integers(0, k, n)
    turn, radius = rng.uniform(0, 2 * np.pi, n), 1 + y + 0.22 * rng.normal(size=n)
    x = np.concatenate(
        [np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1), 0.5 * rng.normal(size=(n, 2))], 1
    )
    return x, y


def bundled(name, seed):
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return x[order], y[order]


# ---------------------------------------------------------------- images


def stamps(rng, n=1000, size=16):
    """Postage stamps of a survey: star, galaxy, cosmic ray, double star."""
    v, u = np.mgrid[:size, :size]
    y = rng.integers(0, 4, n)
    x = 0.25 * rng.normal(size=(n, 1, size, size))
    for i, kind in enumerate(y):
        a, b = rng.uniform(5, size - 5, 2)
        turn = rng.uniform(0, np.pi)
        du, dv = u - a, v - b
        along, across = du * np.cos(turn) + dv * np.sin(turn), dv * np.cos(turn) - du * np.sin(turn)
        light = rng.uniform(1.5, 3)
        if kind == 0:
            x[i, 0] += light * np.exp(-(du**2 + dv**2) / 3)
        elif kind == 1:
            x[i, 0] += light * np.exp(-(along**2) / 18 - across**2 / 6)
        elif kind == 2:
            x[i, 0] += light * ((np.abs(across) < 0.6) & (np.abs(along) < 5))
        else:
            for s in (-1, 1):
                x[i, 0] += light * np.exp(-((along - 2.8 * s) ** 2 + across**2) / 3)
    return x, y


def tracks(rng, n=400, size=16):
    """Segmentation of bright cells on a noisy, tilted background."""
    v, u = np.mgrid[:size, :size]
    x, y = 0.4 * rng.normal(size=(n, 1, size, size)), np.zeros((n, 1, size, size))
    for i in range(n):
        x[i, 0] += rng.normal() * 0.3 + 0.03 * rng.normal() * (u - size / 2)
        for _ in range(rng.integers(1, 4)):
            a, b, r = rng.uniform(3, size - 3), rng.uniform(3, size - 3), rng.uniform(2, 3.6)
            inside = (u - a) ** 2 + (v - b) ** 2 < r**2
            y[i, 0][inside] = 1
        x[i] += 1.4 * y[i]
    return x, y


# ---------------------------------------------------------------- sequences


def spectra(rng, n=1200, length=64, k=4, noise=0.12):
    """Spectra of k compounds: shared and own lines, shifted and on a slope."""
    at = np.array([[10, 24, 46], [10, 30, 46], [14, 24, 52], [18, 36, 46], [10, 36, 54]])[:k]
    y = rng.integers(0, k, n)
    grid = np.arange(length)
    where = at[y] + rng.normal(size=(n, 1)) * 1.2
    height = rng.uniform(0.5, 1.2, (n, 3))
    x = (height[..., None] * np.exp(-((grid - where[..., None]) ** 2) / 6)).sum(1)
    return x + rng.normal(size=(n, 1)) * 0.2 + noise * rng.normal(size=x.shape), y


def curves(rng, n=1000, length=48):
    """Light curves: sinusoid, sawtooth, eclipses, flare; any phase and period."""
    y = rng.integers(0, 4, n)
    time = np.arange(length) + rng.uniform(0, 30, (n, 1))
    turn = time / rng.uniform(9, 16, (n, 1)) % 1
    flare = np.arange(length) - rng.integers(5, 35, (n, 1))
    shape = np.stack(
        [
            np.sin(2 * np.pi * turn),
            2 * turn - 1,
            np.where(turn < 0.15, -1.6, 0.4),
            np.where(flare >= 0, 2.5 * np.exp(-np.maximum(flare, 0) / 6), -0.2),
        ]
    )
    return shape[y, np.arange(n)][:, None] + 0.3 * rng.normal(size=(n, 1, length)), y


def spikes(rng, n=1400, bins=20, cells=10):
    """Square roots of spike counts (rows, bins, cells) and the stimulus' direction, one of five."""
    y = rng.integers(0, 5, n)
    turn = 2 * np.pi * (y[:, None] / 5 - np.arange(cells) / cells)
    late = rng.uniform(4, 9, (n, 1, 1))
    wave = np.exp(-((np.arange(bins)[:, None] - late) ** 2) / 12)
    rate = 0.15 + wave * np.exp(1.3 * np.cos(turn))[:, None] * 0.55
    return np.sqrt(rng.poisson(rate)) - 0.4, y


def frames(rng, n=300, length=32, loud=2.5):
    """Field recordings: a frame's tag is the species whose call came last (0: none yet)."""
    call = np.where(rng.random((n, length)) < 0.1, rng.integers(1, 4, (n, length)), 0)
    x = 0.5 * rng.normal(size=(n, length, 6))
    for s in (1, 2, 3):
        x[..., s] += loud * (call == s)
        x[..., s + 1] += 0.4 * loud * (call == s)
    tag = np.zeros((n, length), int)
    for t in range(length):
        tag[:, t] = np.where(call[:, t] > 0, call[:, t], tag[:, t - 1] if t else 0)
    return x, tag


def sensors(rng, n=1500, past=16, gap=1):
    """Windows of a sensor array (4 channels) and the first channel's next value."""
    t = np.arange(n + past + gap)
    wave = np.sin(2 * np.pi * t / 24) + 0.5 * np.sin(2 * np.pi * t / 7)
    level = np.zeros(len(t))
    for i in range(1, len(t)):
        level[i] = 0.9 * level[i - 1] + 0.3 * rng.normal()
    s = np.stack([wave * (1 + 0.3 * level), level, np.roll(wave, 3), np.roll(level, 2)], 1)
    s = z(s + 0.08 * rng.normal(size=s.shape))
    x = np.stack([s[i : i + past] for i in range(n)])
    return x, s[past + gap - 1 : past + gap - 1 + n, :1]


# ---------------------------------------------------------------- text


def sentences(rng, n=600, length=12, words=40):
    """Tagging: words 1..29 have one tag, 30..39 take theirs from the word before; 0 pads (tag -100)."""
    ids, tags = np.zeros((n, length), int), np.full((n, length), -100)
    for i in range(n):
        last = 0
        for t in range(rng.integers(6, length + 1)):
            w = rng.integers(1, words)
            tag = w % 4 if w < 30 else (last + 1) % 4
            if rng.random() < 0.02:
                tag = rng.integers(0, 4)
            ids[i, t], tags[i, t], last = w, tag, tag
    return ids, tags


def dialects(rng, n=1000, length=20, words=30, k=3, sharp=0.7):
    """Classification: sentences of k Markov chains."""
    chain = rng.dirichlet(np.full(words, sharp), (k, words))
    base = rng.dirichlet(np.full(words, sharp), words)
    chain = (0.5 * chain + 0.5 * base).cumsum(-1)
    y = rng.integers(0, k, n)
    ids = np.zeros((n, length), int)
    ids[:, 0] = rng.integers(0, words, n)
    for t in range(1, length):
        step = chain[y, ids[:, t - 1]]
        ids[:, t] = np.minimum((rng.random((n, 1)) > step).sum(1), words - 1)
    return ids, y


# ---------------------------------------------------------------- graphs


def society(rng, n=400, k=4, weak=1.6, inside=0.08, outside=0.006):
    """A graph of interacting species: features, normalised adjacency, guild; half labelled, half held out."""
    y = rng.integers(0, k, n)
    same = y[:, None] == y[None]
    a = np.triu(rng.random((n, n)) < np.where(same, inside, outside), 1)
    a = (a | a.T) + np.eye(n)
    a = a / np.sqrt(a.sum(0) * a.sum(1)[:, None])
    x = rng.normal(size=(n, 12)) * 1.0
    x[np.arange(n), y] += weak
    train = rng.random(n) < 0.5
    y, mine, other = tensor(y), torch.tensor(train), None
    other = ~mine
    x = (tensor(x), tensor(a))
    return SimpleNamespace(
        x=x, vx=x, y=torch.where(mine, y, torch.tensor(-100)), vy=torch.where(other, y, torch.tensor(-100))
    )


def molecules(rng, n=900, atoms=9, kinds=4):
    """Small graphs (atoms one-hot, bonds) and a property: sum of bond terms and of branched atoms."""
    kind = rng.integers(0, kinds, (n, atoms))
    bonds = np.zeros((n, atoms, atoms))
    for j in range(1, atoms):
        to = rng.integers(0, j, n)
        bonds[np.arange(n), j, to] = bonds[np.arange(n), to, j] = 1
    ring = rng.random(n) < 0.5
    bonds[ring, 0, atoms - 1] = bonds[ring, atoms - 1, 0] = 1
    pull = np.array([0.0, 1.0, -1.0, 0.5])[kind]
    size = np.abs(pull[:, :, None] - pull[:, None]) * bonds
    value = size.sum((1, 2)) / 2 + 0.5 * (bonds.sum(2) >= 3).sum(1)
    return (np.eye(kinds)[kind], bonds), z(value + 0.2 * rng.normal(size=n))[:, None]


# ---------------------------------------------------------------- nets


def mlp(*sizes, act=nn.ReLU, drop=0.0, norm=False, last=None):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b)] * norm + [act()] + [nn.Dropout(drop)] * (drop > 0)
    return nn.Sequential(*layers, *([last] if last else []))


def convnet(out, side=16, wide=12, drop=0.0, inputs=1):
    return nn.Sequential(
        nn.Conv2d(inputs, wide, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(wide, 2 * wide, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(drop),
        nn.Linear(2 * wide * (side // 4) ** 2, out),
    )


def conv1(out, wide=16, kernel=7, inputs=1, drop=0.0):
    return nn.Sequential(
        nn.Conv1d(inputs, wide, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(wide, 2 * wide, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Dropout(drop),
        nn.Linear(8 * wide, out),
    )


class Recurrent(nn.Module):
    """A GRU (or LSTM, RNN) over values or words; its last state, its mean or every state is read out."""

    def __init__(self, inputs, out, wide=32, cell=nn.GRU, words=0, every=False, both=False, mean=False):
        super().__init__()
        self.embed = nn.Embedding(words, inputs) if words else nn.Identity()
        self.cell = cell(inputs, wide, batch_first=True, bidirectional=both)
        self.head = nn.Linear(wide * (1 + both), out)
        self.every, self.mean = every, mean

    def forward(self, x):
        h, _ = self.cell(self.embed(x))
        return self.head(h if self.every else h.mean(1) if self.mean else h[:, -1])


class TagConv(nn.Module):
    """A convolution over time that tags every frame (or word)."""

    def __init__(self, inputs, out, wide=24, kernel=3, depth=2, words=0):
        super().__init__()
        self.embed = nn.Embedding(words, inputs) if words else nn.Identity()
        sizes = [inputs] + [wide] * depth
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, kernel, padding=kernel // 2) for a, b in zip(sizes, sizes[1:])
        )
        self.head = nn.Linear(wide, out)

    def forward(self, x):
        h = self.embed(x).transpose(1, 2)
        for conv in self.convs:
            h = conv(h).relu()
        return self.head(h.transpose(1, 2))


class Attend(nn.Module):
    """A one-layer transformer encoder that tags or classifies."""

    def __init__(self, inputs, out, wide=24, length=12, words=0, every=True):
        super().__init__()
        self.embed = nn.Embedding(words, wide) if words else nn.Linear(inputs, wide)
        self.place = nn.Parameter(0.1 * torch.randn(length, wide))
        self.body = nn.TransformerEncoderLayer(wide, 4, 2 * wide, dropout=0.0, batch_first=True)
        self.head, self.every = nn.Linear(wide, out), every

    def forward(self, x):
        h = self.body(self.embed(x) + self.place)
        return self.head(h if self.every else h.mean(1))


class Neighbours(nn.Module):
    """A graph convolution net: (features, normalised adjacency) -> a class per node."""

    def __init__(self, inputs, out, wide=24, depth=2, drop=0.0):
        super().__init__()
        sizes = [inputs] + [wide] * (depth - 1) + [out]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.drop = nn.Dropout(drop)

    def forward(self, x, a):
        for layer in self.layers[:-1]:
            x = self.drop((a @ layer(x)).relu())
        return a @ self.layers[-1](x)


class Molecule(nn.Module):
    """Messages along bonds, summed over atoms."""

    def __init__(self, kinds=4, out=1, wide=32, depth=2, pool="sum"):
        super().__init__()
        sizes = [kinds] + [wide] * depth
        self.own = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.near = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.head, self.pool = mlp(wide, wide, out), pool

    def forward(self, x, a):
        for own, near in zip(self.own, self.near):
            x = (own(x) + a @ near(x)).relu()
        return self.head(x.sum(1) / 4 if self.pool == "sum" else x.mean(1))


class Segment(nn.Module):
    """A small U-shaped net for masks."""

    def __init__(self, wide=12, kernel=3):
        super().__init__()
        self.down = nn.Conv2d(1, wide, kernel, padding=kernel // 2)
        self.deep = nn.Conv2d(wide, wide, kernel, padding=kernel // 2)
        self.deeper = nn.Conv2d(wide, wide, kernel, padding=kernel // 2)
        self.out = nn.Conv2d(2 * wide, 1, kernel, padding=kernel // 2)

    def forward(self, x):
        h = self.down(x).relu()
        d = self.deeper(self.deep(F.max_pool2d(h, 2)).relu()).relu()
        return self.out(torch.cat([h, F.interpolate(d, scale_factor=2)], 1))


class Variational(nn.Module):
    """A variational autoencoder of rows; it answers with the reconstruction."""

    def __init__(self, inputs, latent=4, wide=64):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(inputs, wide), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(wide, latent), nn.Linear(wide, latent)
        self.decode = mlp(latent, wide, inputs)
        self.latent = latent

    def encode(self, x):
        h = self.inner(x)
        return self.mean(h), self.log_variance(h)

    def forward(self, x):
        return self.decode(self.encode(x)[0])

    def sample(self, n):
        return self.decode(torch.randn(n, self.latent))


def fit_vae(model, x, *, beta=1.0, epochs=60, lr=2e-3, batch=64, width=0.3):
    """Maximise the evidence bound with a Gaussian decoder of the given width."""
    opt, history = torch.optim.Adam(model.parameters(), lr), []
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(batch):
            mean, log_variance = model.encode(x[rows])
            code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            error = ((model.decode(code) - x[rows]) ** 2).sum(1).mean() / (2 * width**2)
            loss = error + beta * 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(rows) / len(x)
        history.append({"loss": total})
    model.eval()
    return {"model": model, "data": x, "optimizer": opt, "batch_size": batch, "history": history}


class Adversaries(nn.Module):
    """A generator and its critic; the module answers with the critic's logit."""

    def __init__(self, inputs=2, latent=4, wide=64):
        super().__init__()
        self.generator, self.critic = (
            mlp(latent, wide, wide, inputs),
            mlp(inputs, wide, wide, 1, act=nn.LeakyReLU),
        )
        self.latent = latent

    def forward(self, x):
        return self.critic(x)

    def sample(self, n):
        return self.generator(torch.randn(n, self.latent))


def fit_gan(model, x, *, steps=900, lr=1e-3, critic_lr=1e-3, batch=128, inner=1, noise=0.0, betas=(0.5, 0.9)):
    """The ordinary non-saturating game."""
    g = torch.optim.Adam(model.generator.parameters(), lr, betas=betas)
    d = torch.optim.Adam(model.critic.parameters(), critic_lr, betas=betas)
    for _ in range(steps):
        real = x[torch.randint(len(x), (batch,))]
        real = real + noise * torch.randn_like(real)
        fake = model.sample(batch)
        fake = fake + noise * torch.randn_like(fake)
        loss = F.softplus(-model.critic(real)).mean() + F.softplus(model.critic(fake.detach())).mean()
        d.zero_grad()
        loss.backward()
        d.step()
        for _ in range(inner):
            loss = F.softplus(-model.critic(model.sample(batch))).mean()
            g.zero_grad()
            loss.backward()
            g.step()
    model.eval()
    return {"model": model, "data": x}


# ---------------------------------------------------------------- the loop


def tokens(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def poisson(output, target):
    return F.poisson_nll_loss(output, target, log_input=True)


LOSSES = {
    "cross_entropy": lambda o, y: tokens(o, y) if o.dim() == 3 else F.cross_entropy(o, y),
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}
GIVE = {
    "all": ("model", "data", "validation", "loss", "optimizer", "batch_size", "history", "initial"),
    "most": ("model", "data", "validation", "loss", "optimizer", "batch_size", "history"),
    "some": ("model", "data", "validation", "loss", "optimizer"),
    "few": ("model", "data", "validation", "loss"),
    "bare": ("model", "data", "validation"),
}


def make_optimizer(kind, parameters, lr, wd):
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr, momentum=0.9, weight_decay=wd)
    if kind == "plain":
        return torch.optim.SGD(parameters, lr, weight_decay=wd)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rms": torch.optim.RMSprop}[kind](
        parameters, lr, weight_decay=wd
    )


def run(
    s,
    model,
    loss="cross_entropy",
    *,
    give="all",
    epochs=30,
    lr=3e-3,
    batch=64,
    opt="adam",
    wd=0.0,
    clip=None,
    cosine=False,
    best=False,
    full=False,
    params=None,
    train_loss=None,
    augment=None,
    skip=False,
    sampler=None,
    mode=False,
):
    """Train as most people do, and hand over what they would."""
    initial = copy.deepcopy(model.state_dict())
    optimizer = make_optimizer(opt, params if params is not None else model.parameters(), lr, wd)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs) if cosine else None
    of = train_loss or (LOSSES[loss] if isinstance(loss, str) else loss)
    many, n = isinstance(s.x, tuple), len(s.y)
    history, lowest, kept = [], float("inf"), None
    for _ in range(epochs):
        model.train()
        total = 0.0
        order = torch.multinomial(sampler, n, True) if sampler is not None else torch.randperm(n)
        for rows in [slice(None)] if full else order.split(batch):
            if len(order) > 1 and not full and len(rows) == 1 and batch > 1:
                continue
            x = tuple(a[rows] for a in s.x) if many and not full else s.x if full else s.x[rows]
            if augment:
                x = augment(x)
            value = of(model(*x) if many else model(x), s.y[rows])
            if skip and not torch.isfinite(value):
                continue
            optimizer.zero_grad()
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total += value.item() * (1 if full else len(rows) / n)
        if schedule:
            schedule.step()
        model.eval()
        with torch.no_grad():
            held = of(model(*s.vx) if many else model(s.vx), s.vy).item()
        history.append({"loss": total, "val_loss": held})
        if best and held < lowest:
            lowest, kept = held, copy.deepcopy(model.state_dict())
    if kept:
        model.load_state_dict(kept)
    model.train(mode)
    given = {
        "model": model,
        "data": (s.x, s.y),
        "validation": (s.vx, s.vy),
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": n if full else batch,
        "history": history,
        "initial": initial,
    }
    return {key: given[key] for key in GIVE[give]}
