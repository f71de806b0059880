"""What the twelfth author's cases are made of: data, nets, loops."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

LOSSES = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


# ---- loops ----------------------------------------------------------------------------------------------------------


def seeded(seed):
    torch.manual_seed(7919 * seed + 12)


def adam(lr=3e-3, decay=0.0):
    return lambda p: torch.optim.Adam(p, lr, weight_decay=decay)


def adamw(lr=3e-3, decay=0.01):
    return lambda p: torch.optim.AdamW(p, lr, weight_decay=decay)


def sgd(lr=0.1, momentum=0.9, decay=0.0):
    return lambda p: torch.optim.SGD(p, lr, momentum=momentum, weight_decay=decay)


def take(x, rows, n):
    if isinstance(x, tuple):
        return tuple(part[rows] if len(part) == n else part for part in x)
    return x[rows]


def call(model, x):
    return model(*x) if isinstance(x, tuple) else model(x)


def fit(
    model,
    train,
    held=None,
    loss="cross_entropy",
    *,
    epochs=25,
    batch=64,
    opt=None,
    parameters=None,
    best=False,
    schedule=False,
    weights=None,
    clip=None,
    noise=None,
    attack=0.0,
    callback=None,
):
    """Train and return all that could be handed to diagnose."""
    start = copy.deepcopy(model.state_dict())
    paired = isinstance(train, tuple)
    x, y = train if paired else (train, train)
    n = len(y)
    objective = LOSSES.get(loss, loss)
    optimizer = (opt or adam())(list(model.parameters()) if parameters is None else list(parameters))
    plan = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs, 0.1 * optimizer.param_groups[0]["lr"])
        if schedule
        else None
    )
    history, kept, lowest = [], None, math.inf
    batch = batch or n
    for _ in range(epochs):
        model.train()
        total, count = 0.0, 0
        order = torch.multinomial(weights, n, replacement=True) if weights is not None else torch.randperm(n)
        if batch >= n and weights is None:
            order = torch.arange(n)
        for rows in order.split(batch):
            if len(rows) < min(batch, 2):
                continue
            xb, yb = (x, y) if len(rows) == n and weights is None else (take(x, rows, n), y[rows])
            if noise is not None:
                xb = noise(xb)
            if attack:
                xb = xb.clone().requires_grad_()
                (slope,) = torch.autograd.grad(objective(model(xb), yb), xb)
                xb = (xb + attack * slope.sign()).detach()
            value = objective(call(model, xb), yb)
            optimizer.zero_grad()
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total, count = total + value.item(), count + 1
        if plan:
            plan.step()
        row = {"loss": total / max(count, 1)}
        model.eval()
        if held is not None:
            xv, yv = held if paired else (held, held)
            with torch.no_grad():
                row["val_loss"] = objective(call(model, xv), yv).item()
            if best and row["val_loss"] < lowest:
                lowest, kept = row["val_loss"], copy.deepcopy(model.state_dict())
        history.append(row)
        if callback:
            callback(model)
    if kept is not None:
        model.load_state_dict(kept)
    model.eval()
    optimizer.zero_grad(set_to_none=True)
    return {
        "model": model,
        "data": train,
        "validation": held,
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": min(batch, n),
        "history": history,
        "initial": start,
    }


def hand(run, *names):
    """What the user hands over: the model, data and loss, and the named arguments."""
    always = ("model", "data", "validation", "loss")
    names = ("optimizer", "batch_size", "history", "initial") if names == ("all",) else names
    return {k: v for k, v in run.items() if k in always + names and v is not None}


class Update:
    """A user's own update, with one optimiser per model."""

    def __init__(self, loss, opt, clear=True, every=1):
        self.loss, self.opt, self.clear, self.every, self.made = LOSSES.get(loss, loss), opt, clear, every, {}

    def __call__(self, model, batch):
        if id(model) not in self.made:
            self.made[id(model)] = [model, self.opt(list(model.parameters())), 0]
        entry = self.made[id(model)]
        optimizer = entry[1]
        x, y = batch
        value = self.loss(call(model, x), y) / self.every
        value.backward()
        entry[2] += 1
        if entry[2] % self.every == 0:
            optimizer.step()
            if self.clear:
                optimizer.zero_grad()
        return value.item() * self.every


def loop(model, train, held, loss, step, *, epochs=15, batch=64):
    """Train with the user's own update."""
    x, y = train
    history = []
    for _ in range(epochs):
        model.train()
        values = [
            step(model, (take(x, rows, len(y)), y[rows])) for rows in torch.randperm(len(y)).split(batch)
        ]
        model.eval()
        with torch.no_grad():
            history.append(
                {
                    "loss": sum(values) / len(values),
                    "val_loss": LOSSES.get(loss, loss)(call(model, held[0]), held[1]).item(),
                }
            )
    model.zero_grad(set_to_none=True)
    return {
        "model": model,
        "data": train,
        "validation": held,
        "loss": loss,
        "step": step,
        "batch_size": batch,
        "history": history,
    }


# ---- data -----------------------------------------------------------------------------------------------------------


def split(x, y, n):
    """The first n rows and the others."""
    if isinstance(x, tuple):
        return (tuple(p[:n] for p in x), y[:n]), (tuple(p[n:] for p in x), y[n:])
    return (x[:n], y[:n]), (x[n:], y[n:])


def standard(x):
    return (x - x.mean(0)) / x.std(0)


def clinic(seed, n=1500, held=600, d=8, k=3, noise=0.5, sharp=1.0):
    """Laboratory values and one of k diagnoses; a smooth nonlinear rule."""
    seeded(seed)
    x = torch.randn(n + held, d) @ (torch.eye(d) + 0.15 * torch.randn(d, d))
    x = standard(x)
    direction = torch.linalg.qr(torch.randn(d, d))[0]
    z = x @ direction
    scores = torch.stack(
        [
            2.2 * torch.sin(1.3 * sharp * z[:, j % 3] + 2.1 * j)
            + 1.6 * z[:, (j + 1) % d] * (1 if j % 2 else -1)
            for j in range(k)
        ],
        1,
    )
    scores = scores - scores.mean(0)
    scores = scores + noise * -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-6, 1 - 1e-6)))
    return split(x, scores.argmax(1), n)


def sensors(seed, n=1500, held=600, d=8, noise=0.2, column=True):
    """Process sensors and a standardised yield."""
    seeded(seed)
    x = torch.randn(n + held, d)
    y = (
        torch.sin(1.6 * x[:, 0])
        + 0.6 * x[:, 1] * x[:, 2]
        + 0.7 * x[:, 3]
        + 0.4 * x[:, 4].abs()
        - 0.3 * x[:, 5]
    )
    y = standard(y) + noise * torch.randn(n + held)
    return split(x, y[:, None] if column else y, n)


def spectra(seed, n=1500, held=600, d=16, out=6):
    """Several responses to several inputs, of full rank."""
    seeded(seed)
    x = torch.randn(n + held, d)
    mix = torch.linalg.qr(torch.randn(d, d))[0][:, :out]
    y = torch.tanh(1.2 * x @ mix) + 0.2 * torch.sin(2 * x @ mix)
    return split(x, standard(y) + 0.1 * torch.randn(n + held, out), n)


def rare(seed, n=1800, held=1200, d=6, share=0.03, apart=2.2):
    """A rare adverse event shifted in some values."""
    seeded(seed)
    y = (torch.rand(n + held) < share).long()
    x = torch.randn(n + held, d)
    x[:, :3] += apart / math.sqrt(3) * y[:, None] * torch.tensor([1.0, -1.0, 1.0])
    return split(x, y, n)


def stamps(seed, n=1000, held=500, k=4, size=12, noise=0.6, shift=2, channels=1):
    """Small images of k shapes, shifted and noisy, standardised."""
    seeded(seed)
    shapes = F.interpolate(torch.randn(k, channels, 4, 4), size=size, mode="bicubic")
    shapes = shapes / shapes.std((1, 2, 3), keepdim=True)
    y = torch.arange(n + held) % k
    y = y[torch.randperm(n + held)]
    x = shapes[y]
    if shift:
        moves = torch.randint(-shift, shift + 1, (n + held, 2))
        x = torch.stack([torch.roll(a, m.tolist(), (1, 2)) for a, m in zip(x, moves)])
    x = x + noise * torch.randn_like(x)
    return split((x - x.mean()) / x.std(), y, n)


def waves(seed, n=1000, held=500, k=3, length=32, noise=0.5, channels=2):
    """Accelerometer windows of k activities, told apart by frequency."""
    seeded(seed)
    y = torch.randint(0, k, (n + held,))
    time = torch.arange(length)[None, :, None]
    frequency = (0.25 + 0.3 * y + 0.04 * torch.randn(n + held))[:, None, None]
    phase = 6.3 * torch.rand(n + held, 1, channels)
    x = torch.sin(frequency * time + phase) * 1.3 + noise * torch.randn(n + held, length, channels)
    return split(x, y, n)


def load(seed, n=1200, held=500, length=24, noise=0.15):
    """Windows of a standardised load curve and its next value: a nonlinear oscillation with a season."""
    seeded(seed)
    steps = n + held + length + 61
    s, values = torch.zeros(2), []
    kicks = noise * torch.randn(steps)
    for t in range(steps):
        new = 1.5 * s[0] - 0.75 * s[1] + 0.3 * math.sin(2 * math.pi * t / 12) + kicks[t]
        s = torch.stack([torch.tanh(new / 2.5) * 2.5, s[0]])
        values.append(s[0])
    series = torch.stack(values)[60:]
    series = (series - series[:n].mean()) / series[:n].std()
    windows = series.unfold(0, length + 1, 1)[: n + held]
    return split(windows[:, :-1, None].contiguous(), windows[:, -1:].contiguous(), n)


def notes(seed, n=1200, held=500, k=4, words=60, length=14, hits=4):
    """Short notes: fillers and some key words of their topic."""
    seeded(seed)
    y = torch.randint(0, k, (n + held,))
    x = torch.randint(8 * k, words, (n + held, length))
    for j in range(hits):
        stray = torch.rand(n + held) < 0.12
        topic = torch.where(stray, torch.randint(0, k, (n + held,)), y)
        x[:, j] = topic * 8 + torch.randint(0, 8, (n + held,))
    x = torch.stack([row[torch.randperm(length)] for row in x])
    return split(x, y, n)


def chain(seed, n=500, held=250, words=20, length=16):
    """Sentences of a random grammar (each word has few followers) and their next words."""
    seeded(seed)
    table = torch.softmax(2.5 * torch.randn(words, words), 1)
    now = torch.randint(0, words, (n + held,))
    said = [now]
    for _ in range(length):
        now = torch.multinomial(table[now], 1)[:, 0]
        said.append(now)
    said = torch.stack(said, 1)
    return split(said[:, :-1].contiguous(), said[:, 1:].contiguous(), n), table


def citations(seed, n=240, k=3, d=10, inside=0.12, outside=0.015, strength=0.7):
    """A graph with communities: ((features, adjacency), labels) with half of the labels for training."""
    seeded(seed)
    y = torch.arange(n) % k
    y = y[torch.randperm(n)]
    chance = torch.where(y[:, None] == y[None], inside, outside)
    edges = torch.triu(torch.rand(n, n) < chance, 1).float()
    edges = edges + edges.T + torch.eye(n)
    degree = edges.sum(1).rsqrt()
    a = degree[:, None] * edges * degree[None]
    x = standard(strength * torch.randn(k, d)[y] + torch.randn(n, d))
    mine = torch.rand(n) < 0.5
    return ((x, a), y.masked_fill(~mine, -100)), ((x, a), y.masked_fill(mine, -100))


def molecules(seed, n=700, held=300, nodes=10, d=5):
    """Small graphs and a property that depends on neighbours' features."""
    seeded(seed)
    x = torch.randn(n + held, nodes, d)
    a = torch.triu((torch.rand(n + held, nodes, nodes) < 0.3).float(), 1)
    a = a + a.transpose(1, 2) + torch.eye(nodes)
    a = a / a.sum(2, keepdim=True)
    y = standard((torch.relu(a @ x[:, :, :1] + x[:, :, 1:2]) + 0.5 * torch.tanh(a @ x[:, :, 2:3])).mean(1))
    return split((x, a), y + 0.1 * torch.randn_like(y), n)


def manifold(seed, n=1200, held=500, d=12, inner=4, noise=0.15):
    """Points near a curved surface of few dimensions, standardised."""
    seeded(seed)
    z = torch.randn(n + held, inner)
    x = torch.tanh(z @ torch.randn(inner, 24)) @ torch.randn(24, d)
    x = standard(x) + noise * torch.randn(n + held, d)
    return x[:n], x[n:]


def clusters(seed, n=1000, held=500, k=6, d=2, spread=0.15):
    """Points in k clumps."""
    seeded(seed)
    y = torch.randint(0, k, (n + held,))
    if d == 2:
        angle = 2 * math.pi * torch.arange(k) / k
        centres = 1.4 * torch.stack([angle.cos(), angle.sin()], 1)
    else:
        centres = 1.5 * torch.randn(k, d)
    x = centres[y] + spread * torch.randn(n + held, d)
    return x[:n], x[n:]


# ---- nets -----------------------------------------------------------------------------------------------------------


def mlp(*sizes, act=nn.ReLU, drop=0.0, norm=False, end=None):
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b)] if norm else []
            layers.append(act())
            layers += [nn.Dropout(drop)] if drop else []
    return nn.Sequential(*layers, *([end] if end else []))


class Residual(nn.Module):
    """A table net of residual blocks."""

    def __init__(self, d, k, width=32, depth=3, drop=0.0):
        super().__init__()
        self.first = nn.Linear(d, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Dropout(drop),
                nn.Linear(width, width),
            )
            for _ in range(depth)
        )
        self.last = nn.Linear(width, k)

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return self.last(h)


class Functional(nn.Module):
    """A two-layer net with functional calls."""

    def __init__(self, d, k, width=48, squeeze=False):
        super().__init__()
        self.a, self.b, self.c, self.squeeze = (
            nn.Linear(d, width),
            nn.Linear(width, width),
            nn.Linear(width, k),
            squeeze,
        )

    def forward(self, x):
        out = self.c(F.relu(self.b(F.relu(self.a(x)))))
        return out.squeeze(-1) if self.squeeze else out


def cnn(k, size=12, channels=1, width=8, norm=False, drop=0.0):
    n = (lambda c: [nn.BatchNorm2d(c)]) if norm else (lambda c: [])
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        *n(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        *n(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(drop),
        nn.Linear(2 * width * (size // 4) ** 2, k),
    )


class ResidualCNN(nn.Module):
    def __init__(self, k, channels=1, width=12):
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1)
        self.n1, self.n2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.c1, self.c2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width * 9, k)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.stem(x)), 2)
        h = F.relu(h + self.c2(F.relu(self.n1(self.c1(h)))))
        return self.head(F.adaptive_avg_pool2d(F.relu(self.n2(h)), 3).flatten(1))


class Recurrent(nn.Module):
    def __init__(self, d, k, width=24, cell="GRU", pool=False, **more):
        super().__init__()
        self.cell = getattr(nn, cell)(d, width, batch_first=True, **more)
        self.head, self.pool = nn.Linear(width, k), pool

    def forward(self, x):
        h, _ = self.cell(x)
        return self.head(h.mean(1) if self.pool else h[:, -1])


class Temporal(nn.Module):
    """Dilated convolutions; the last step or all steps are read."""

    def __init__(self, d, k, width=16, dilations=(1, 2, 4, 8), last=True):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(d if i == 0 else width, width, 3, dilation=s) for i, s in enumerate(dilations)
        )
        self.dilations, self.head, self.last = dilations, nn.Linear(width, k), last

    def forward(self, x):
        h = x.transpose(1, 2)
        for conv, s in zip(self.convs, self.dilations):
            h = F.relu(conv(F.pad(h, (2 * s, 0))))
        h = h.transpose(1, 2)
        return self.head(h[:, -1] if self.last else h)


class Bag(nn.Module):
    """Mean of embeddings, then a small net."""

    def __init__(self, words, k, width=16, hidden=32, drop=0.0):
        super().__init__()
        self.embed, self.net = nn.Embedding(words, width), mlp(width, hidden, k, drop=drop)

    def forward(self, x):
        return self.net(self.embed(x).mean(1))


class Attentive(nn.Module):
    """Embeddings pooled by a learnt query."""

    def __init__(self, words, k, width=16):
        super().__init__()
        self.embed, self.score, self.head = (
            nn.Embedding(words, width),
            nn.Linear(width, 1),
            nn.Linear(width, k),
        )

    def forward(self, x):
        e = self.embed(x)
        return self.head((torch.softmax(self.score(torch.tanh(e)), 1) * e).sum(1))


class Transformer(nn.Module):
    """A small encoder; causal with a word per step, or pooled with a class per row."""

    def __init__(self, words, k, width=24, length=32, causal=False, drop=0.0, numeric=0):
        super().__init__()
        self.embed = nn.Linear(numeric, width) if numeric else nn.Embedding(words, width)
        self.place = nn.Parameter(0.1 * torch.randn(length, width))
        self.q, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * width, width)
        )
        self.head, self.causal = nn.Linear(width, k), causal

    def forward(self, x):
        h = self.embed(x) + self.place[: x.shape[1]]
        q, key, v = (p.unflatten(2, (2, -1)).transpose(1, 2) for p in self.q(self.n1(h)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(q, key, v, is_causal=self.causal)
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        h = h + self.feed(self.n2(h))
        return self.head(h) if self.causal else self.head(h.mean(1))


class GCN(nn.Module):
    """Graph convolutions with a normalised adjacency as second input."""

    def __init__(self, d, k, width=16, depth=2, pool=False, skip=False, drop=0.0):
        super().__init__()
        sizes = [d] + [width] * (depth - 1) + [width if pool else k]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.head = nn.Linear(width, k) if pool else None
        self.skip, self.drop = skip, nn.Dropout(drop)

    def forward(self, x, a):
        h = x
        for i, layer in enumerate(self.layers):
            new = a @ layer(self.drop(h))
            if i < len(self.layers) - 1 or self.head is not None:
                new = F.relu(new)
            h = h + new if self.skip and h.shape == new.shape else new
        return self.head(h.mean(-2)) if self.head is not None else h


class Coder(nn.Module):
    """An autoencoder."""

    def __init__(self, d, inner=4, width=48, end=None):
        super().__init__()
        self.down, self.up = mlp(d, width, inner), mlp(inner, width, d, end=end)

    def forward(self, x):
        return self.up(self.down(x))


class VAE(nn.Module):
    """A variational autoencoder; deterministic when it predicts."""

    def __init__(self, d, inner=4, width=48):
        super().__init__()
        self.inner = inner
        self.body, self.mean, self.spread = (
            mlp(d, width, width),
            nn.Linear(width, inner),
            nn.Linear(width, inner),
        )
        self.decode = mlp(inner, width, width, d)

    def encode(self, x):
        h = F.relu(self.body(x))
        return self.mean(h), self.spread(h)

    def forward(self, x):
        mean, logvar = self.encode(x)
        z = mean + torch.randn_like(mean) * (logvar / 2).exp() if self.training else mean
        return self.decode(z), mean, logvar

    def sample(self, n):
        return self.decode(torch.randn(n, self.inner))


def elbo(beta=1.0, variance=0.1):
    """The negative evidence bound per row, with a Gaussian decoder of the given variance."""

    def loss(output, x):
        back, mean, logvar = output
        rebuilt = ((back - x) ** 2).sum(1).mean() / (2 * variance)
        return rebuilt + beta * 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()

    return loss


class Generator(nn.Module):
    """A generator of points from noise."""

    def __init__(self, d, inner=4, width=48):
        super().__init__()
        self.inner, self.net = inner, mlp(inner, width, width, d)

    def forward(self, z):
        return self.net(z)

    def sample(self, n):
        return self(torch.randn(n, self.inner))


def energy(a, b):
    """The energy distance of two samples."""
    return 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()


def match(model, x, distance=energy, steps=700, lr=3e-3, batch=128):
    """Train a generator to come near to the data."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        value = distance(model.sample(batch), x[torch.randint(0, len(x), (batch,))])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        plan.step()
    optimizer.zero_grad(set_to_none=True)
    model.eval()
    return model


def adversarial(model, x, *, steps=400, critic_steps=1, lr=1e-3, batch=128):
    """Train a generator against a critic."""
    critic = mlp(x.shape[1], 48, 48, 1, act=nn.LeakyReLU)
    og = torch.optim.Adam(model.parameters(), lr, betas=(0.5, 0.9))
    oc = torch.optim.Adam(critic.parameters(), lr, betas=(0.5, 0.9))
    for step in range(steps):
        if critic_steps >= 1 or step % round(1 / critic_steps) == 0:
            for _ in range(max(1, int(critic_steps))):
                real, fake = (
                    critic(x[torch.randint(0, len(x), (batch,))]),
                    critic(model.sample(batch).detach()),
                )
                value = F.softplus(-real).mean() + F.softplus(fake).mean()
                oc.zero_grad()
                value.backward()
                oc.step()
        value = F.softplus(-critic(model.sample(batch))).mean()
        og.zero_grad()
        value.backward()
        og.step()
    og.zero_grad(set_to_none=True)
    model.eval()
    return model


class Wrapped(nn.Module):
    """A module followed by a function."""

    def __init__(self, inner, after=None, before=None):
        super().__init__()
        self.inner, self.after, self.before = inner, after, before

    def forward(self, *x):
        if self.before is not None:
            x = (self.before(x[0]), *x[1:])
        out = self.inner(*x)
        return out if self.after is None else self.after(out)


def refill(model, weight=None, bias=None, kind=(nn.Linear,)):
    """Set all weights and biases of the layers of a kind by functions of the tensor."""
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, kind):
                if weight:
                    weight(m.weight)
                if bias and m.bias is not None:
                    bias(m.bias)
    return model


def tokens_loss(output, target):
    """Cross-entropy over all the steps; −100 is padding."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten())
