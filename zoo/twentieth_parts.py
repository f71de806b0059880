"""What the twentieth author's cases share: the tables, windows, tickets and graphs of her former employers, nets and loops."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

ME = "twentieth"
Pair = tuple[torch.Tensor, torch.Tensor]


def tensor(a: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(a)).to(dtype)


def sigmoid(t: Any) -> Any:
    return 1 / (1 + np.exp(-t))


def parted(x: Any, y: Any, share: float = 0.7) -> tuple[Any, Any]:
    """Split rows that are already in random order."""
    n = int(len(y) * share)
    if isinstance(x, tuple):
        return (tuple(a[:n] for a in x), y[:n]), (tuple(a[n:] for a in x), y[n:])
    return (x[:n], y[:n]), (x[n:], y[n:])


def scaled(train: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor]:
    mean, std = train.mean(0), train.std(0).clamp_min(1e-6)
    return [(a - mean) / std for a in (train, *others)]


# ---------------------------------------------------------------- the bank


def credit(seed: int, n: int = 3000, *, raw: bool = False, offset: float = -0.6, sharp: float = 1.6) -> Pair:
    """Applications for a loan and whether they defaulted: 7 numbers, 3 + 4 categories."""
    r = np.random.default_rng(seed)
    z = r.normal(size=(n, 3))
    age = np.clip(43 + 12 * z[:, 2], 19, 80)
    income = np.exp(10.3 + 0.4 * z[:, 0] + 0.2 * r.normal(size=n))
    debt = np.exp(9.0 + 0.3 * z[:, 0] + 0.6 * z[:, 1] + 0.3 * r.normal(size=n))
    used = sigmoid(0.9 * z[:, 1] + 0.6 * r.normal(size=n))
    late = r.poisson(np.exp(-0.5 + 0.6 * z[:, 1]))
    tenure = (age - 18) * r.beta(2, 3, n)
    asked = r.poisson(np.exp(-0.1 + 0.3 * z[:, 1]))
    home = np.argmax(r.gumbel(size=(n, 3)) + np.stack([z[:, 0], 0 * z[:, 0], -z[:, 0]], 1), 1)
    purpose = r.integers(0, 4, n)
    t = np.log(debt / income) + 1.3
    f = (
        1.1 * t
        + 0.9 * np.sqrt(late)
        + 1.2 * ((age - 45) / 15) ** 2 * 0.5
        + 1.5 * t * (used - 0.5)
        - 0.04 * tenure
    )
    f = f + np.array([-0.5, 0.1, 0.5])[home] + np.array([-0.4, 0.0, 0.3, 0.6])[purpose] - 0.7
    y = (r.random(n) < sigmoid(sharp * f + offset)).astype(np.float32)
    if raw:
        columns = [age, income, debt, used, late, tenure, asked]
    else:
        columns = [(age - 43) / 12, np.log(income) - 10.3, np.log(debt) - 9, 4 * used - 2]
        columns += [np.sqrt(late) - 0.7, tenure / 8 - 1.2, np.sqrt(asked) - 0.8]
    x = np.stack([*columns, *np.eye(3)[home].T, *np.eye(4)[purpose].T], 1)
    return tensor(x), tensor(y)


# ---------------------------------------------------------------- the hospital


def vitals(seed: int, n: int = 2400, classes: int = 3, d: int = 10, noise: float = 0.4) -> Pair:
    """Correlated laboratory values and a triage group that is a smooth function of four hidden states."""
    r = np.random.default_rng(seed)
    z = r.normal(size=(n, 4))
    mixing = np.random.default_rng(77).normal(size=(4, d))
    x = z @ mixing * 0.6 + 0.35 * r.normal(size=(n, d))
    scores = [
        z[:, 0] * z[:, 1] * 1.6,
        z[:, 2] ** 2 - 0.8,
        1.3 * z[:, 3] + 0.5 * z[:, 0],
        np.sin(2 * z[:, 1]) * 1.4,
    ]
    scores += [z[:, 2] - z[:, 3] * z[:, 0], -(z[:, 1] ** 2) + 1]
    y = np.argmax(np.stack(scores[:classes], 1) * 2 + noise * r.gumbel(size=(n, classes)), 1)
    return tensor(x), tensor(y, torch.long)


def scans(
    seed: int, n: int = 900, size: int = 16, noise: float = 0.35
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images with nothing, a solid or a ring-shaped lesion; the class and the mask of the lesion."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 3, n)
    grid = np.arange(size)
    cx, cy = r.uniform(4, size - 4, (2, n, 1, 1))
    radius = r.uniform(2.2, 3.6, (n, 1, 1))
    distance = np.hypot(grid[None, :, None] - cx, grid[None, None, :] - cy)
    solid = distance < radius
    ring = solid & (distance > radius - 1.4)
    mask = np.where((y == 1)[:, None, None], solid, np.where((y == 2)[:, None, None], ring, False))
    smooth = r.normal(size=(n, size // 4, size // 4)).repeat(4, 1).repeat(4, 2) * 0.25
    image = smooth + noise * r.normal(size=(n, size, size)) + 1.1 * mask
    return tensor(image[:, None]), tensor(y, torch.long), tensor(mask[:, None])


def digits(seed: int, n: int = 1797, *, flat: bool = True) -> Pair:
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))[:n]
    x = x[order] / 8 - 1 + 0.05 * np.random.default_rng(seed).normal(size=(len(order), 64))  # the scanner's
    return tensor(x if flat else x.reshape(-1, 1, 8, 8)), tensor(y[order], torch.long)


def bundled(name: str, seed: int, *, kind: torch.dtype = torch.long) -> Pair:
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return tensor(x[order]), tensor(y[order], kind)


# ---------------------------------------------------------------- the sensor company


def windows(seed: int, n: int = 1500, length: int = 48, classes: int = 4, noise: float = 0.5) -> Pair:
    """Three channels of vibration (rows, channels, time): rhythm, coupling of the channels and a burst tell the class."""
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    t = np.arange(length)
    rhythm = np.array([6.0, 6.0, 9.0, 9.0, 4.0])[y] * r.uniform(0.9, 1.1, n)
    phase = r.uniform(0, 6.3, n)
    lag = np.array([0.0, 1.5, 0.0, 1.5, 0.7])[y]
    size = r.uniform(0.7, 1.3, n)
    wave = lambda shift: (
        size[:, None] * np.sin(6.283 * t / length * rhythm[:, None] + (phase + shift)[:, None])
    )
    x = np.stack([wave(0 * lag), wave(lag), 0.4 * wave(0 * lag) + 0.4 * wave(lag)], 1)
    at = r.integers(4, length - 8, n)
    burst = ((t >= at[:, None]) & (t < at[:, None] + 5)) * np.where(y == 1, 1.5, 0.0)[:, None]
    x[:, 2] += burst
    return tensor(x + noise * r.normal(size=x.shape)), tensor(y, torch.long)


def plant(seed: int, n: int = 2500, d: int = 8, targets: int = 1, noise: float = 0.25) -> Pair:
    """Readings of a plant (correlated, heavy tails) and smooth yields."""
    r = np.random.default_rng(seed)
    z = r.normal(size=(n, d))
    z[:, 1:] += 0.5 * z[:, :-1]
    x = z / z.std(0)
    x[:, -1] = r.standard_t(4, n) / 1.4
    y = [np.sin(1.8 * x[:, 0]) + 0.8 * x[:, 1] * x[:, 2] + 0.4 * x[:, 3] + 0.3 * np.tanh(x[:, -1])]
    y += [np.cos(x[:, 1] + x[:, 4]) + 0.5 * x[:, 5], np.abs(x[:, 2]) - 0.6 * x[:, 0] * x[:, 5]]
    y = np.stack(y[:targets], 1)
    y = (y - y.mean(0)) / y.std(0) + noise * r.normal(size=y.shape)
    return tensor(x), tensor(y)


# ---------------------------------------------------------------- the shop


def demand(seed: int, n: int = 2500, back: int = 28, ahead: int = 1) -> Pair:
    """Windows (rows, days, [sales, promotion, weekday sine, cosine]) of many articles, and the next days' sales, scaled."""
    r = np.random.default_rng(seed)
    days = back + ahead
    level, weekly, trend = r.normal(0, 0.8, (n, 1)), r.uniform(0.3, 1, (n, 1)), r.normal(0, 0.02, (n, 1))
    start = r.integers(0, 7, (n, 1))
    day = start + np.arange(days)
    promotion = (r.random((n, days)) < 0.15).astype(float)
    season = weekly * np.sin(6.283 * day / 7) + 0.3 * np.cos(12.566 * day / 7)
    noise = np.zeros((n, days))
    for i in range(1, days):
        noise[:, i] = 0.7 * noise[:, i - 1] + 0.25 * r.normal(size=n)
    sales = level + trend * np.arange(days) + season + 0.8 * promotion + noise
    x = np.stack([sales, promotion, np.sin(6.283 * day / 7), np.cos(6.283 * day / 7)], 2)[:, :back]
    return tensor(x), tensor(sales[:, back:] - 0.8 * promotion[:, back:])


def flat_demand(seed: int, n: int = 2500) -> Pair:
    """The same as a table: 28 sales, 28 promotions and the weekday."""
    x, y = demand(seed, n)
    return torch.cat([x[..., 0], x[..., 1], x[:, -1, 2:]], 1), y


def counts(seed: int, n: int = 3000) -> Pair:
    """Orders per hour: small counts with a log-linear and periodic mean."""
    r = np.random.default_rng(seed)
    x = r.normal(size=(n, 5))
    hour = r.uniform(0, 24, n)
    rate = np.exp(0.4 + 0.5 * x[:, 0] - 0.4 * x[:, 1] * (x[:, 2] > 0) + 0.9 * np.sin(6.283 * hour / 24))
    x = np.concatenate([x, np.stack([np.sin(6.283 * hour / 24), np.cos(6.283 * hour / 24)], 1)], 1)
    return tensor(x), tensor(r.poisson(rate))


def ratings(
    seed: int, n: int = 7000, users: int = 150, items: int = 90, rank: int = 3, noise: float = 0.35
) -> Pair:
    """Pairs (user, item) without repeats, and centred ratings."""
    r = np.random.default_rng(seed)
    pick = r.permutation(users * items)[:n]
    u, i = pick // items, pick % items
    p, q = r.normal(size=(users, rank)), r.normal(size=(items, rank))
    y = 0.5 * r.normal(size=users)[u] + 0.6 * r.normal(size=items)[i] + 0.6 * (p[u] * q[i]).sum(1)
    return tensor(np.stack([u, i], 1), torch.long), tensor(y + noise * r.normal(size=n))[:, None]


def clicks(seed: int, n: int = 6000) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Ids (segment, item, place) and numbers of an impression, and whether it was clicked."""
    r = np.random.default_rng(seed)
    ids = np.stack([r.integers(0, 12, n), r.zipf(1.6, n).clip(1, 30) - 1, r.integers(0, 5, n)], 1)
    fixed = np.random.default_rng(5)
    p, q, place = (
        fixed.normal(size=(12, 2)),
        fixed.normal(size=(30, 2)),
        np.array([0.8, 0.4, 0.0, -0.4, -0.8]),
    )
    x = r.normal(size=(n, 3))
    f = (
        1.3 * (p[ids[:, 0]] * q[ids[:, 1]]).sum(1)
        + place[ids[:, 2]]
        + 0.8 * x[:, 0]
        - 0.6 * x[:, 1] ** 2
        + 0.2
    )
    return (tensor(ids, torch.long), tensor(x)), tensor(r.random(n) < sigmoid(f))


# ---------------------------------------------------------------- support tickets


def tickets(
    seed: int, n: int = 1800, length: int = 20, topics: int = 5, vocabulary: int = 120
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Word ids (0 pads), their mask, and the topic: the more frequent family of words, urged by a marker before them."""
    r = np.random.default_rng(seed)
    y = r.integers(0, topics, n)
    long = r.integers(8, length + 1, n)
    common = 20 + (r.zipf(1.5, (n, length)) - 1) % (vocabulary - 20 - topics * 8)
    own = vocabulary - topics * 8 + y[:, None] * 8 + r.integers(0, 8, (n, length))
    other = vocabulary - topics * 8 + r.integers(0, topics * 8, (n, length))
    chance = r.random((n, length))
    ids = np.where(chance < 0.2, own, np.where(chance < 0.34, other, common))
    mask = np.arange(length) < long[:, None]
    return (tensor(ids * mask, torch.long), tensor(mask, torch.long)), tensor(y, torch.long)


def tagged(seed: int, n: int = 700, length: int = 16, reach: int = 1, vocabulary: int = 40) -> Pair:
    """Word ids and a tag per word, which depends on the word's family and on that of the word `reach` before; -100 pads."""
    r = np.random.default_rng(seed)
    ids = r.integers(1, vocabulary, (n, length))
    family = ids % 4
    before = np.concatenate([np.zeros((n, reach), int), family[:, :-reach]], 1)
    tags = np.where(before >= 2, (family + 1) % 4, family) % 3
    noisy = r.random((n, length)) < 0.03
    tags = np.where(noisy, r.integers(0, 3, (n, length)), tags)
    mask = np.arange(length) < r.integers(9, length + 1, n)[:, None]
    return tensor(ids * mask, torch.long), tensor(np.where(mask, tags, -100), torch.long)


# ---------------------------------------------------------------- devices in a network


def devices(
    seed: int, n: int = 600, groups: int = 4, d: int = 12, spread: float = 1.6
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Readings of devices, the normalised adjacency of who talks to whom, the type, and which devices are labelled."""
    r = np.random.default_rng(seed)
    y = r.integers(0, groups, n)
    x = r.normal(size=(groups, d))[y] + spread * r.normal(size=(n, d))
    chance = np.where(y[:, None] == y[None, :], 12 / n, 2.0 / n)
    a = np.triu(r.random((n, n)) < chance, 1)
    a = (a + a.T + np.eye(n)).astype(np.float32)
    s = a.sum(1) ** -0.5
    known = torch.as_tensor(r.random(n) < 0.6)
    return tensor(x / x.std(0)), tensor(a * s[:, None] * s[None, :]), tensor(y, torch.long), known


# ---------------------------------------------------------------- nets


def mlp(
    *sizes: int, act: Callable[[], nn.Module] = nn.ReLU, norm: bool = False, drop: float = 0.0
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b)] * norm + [act()] + ([nn.Dropout(drop)] if drop else [])
    return nn.Sequential(*layers)


def waves(
    classes: int = 4, width: int = 24, kernel: int = 7, channels: int = 3, norm: bool = True
) -> nn.Sequential:
    """A net for windows."""
    block = lambda a, b: [
        nn.Conv1d(a, b, kernel, padding=kernel // 2),
        *[nn.BatchNorm1d(b)] * norm,
        nn.ReLU(),
    ]
    body = [*block(channels, width), nn.MaxPool1d(2), *block(width, width), nn.AdaptiveAvgPool1d(1)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(width, classes))


def eyes(classes: int = 3, width: int = 12, norm: bool = True) -> nn.Sequential:
    """A net for scans."""
    block = lambda a, b: [nn.Conv2d(a, b, 3, padding=1), *[nn.BatchNorm2d(b)] * norm, nn.ReLU()]
    body = [*block(1, width), *block(width, width), nn.MaxPool2d(2), *block(width, 2 * width)]
    return nn.Sequential(*body, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes))


class Reader(nn.Module):
    """A recurrent net over (rows, time, channels) that answers from its last state."""

    def __init__(self, inputs: int, width: int, outputs: int, kind: type[nn.Module] = nn.GRU, **more: Any):
        super().__init__()
        self.rnn = kind(inputs, width, batch_first=True, **more)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Output(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


class Encoder(nn.Module):
    """A small transformer, called as `net(**batch)` in its loop."""

    def __init__(
        self, vocabulary: int = 120, width: int = 24, classes: int = 5, drop: float = 0.1, length: int = 20
    ):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(drop)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.last = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        h = self.words(input_ids) + self.places[: input_ids.shape[1]]
        z = self.norm(h)
        score = self.query(z) @ self.key(z).transpose(1, 2) / z.shape[-1] ** 0.5
        score = score.masked_fill(attention_mask[:, None, :] == 0, -1e9)
        h = h + self.drop(score.softmax(-1) @ self.value(z))
        h = h + self.drop(self.narrow(F.gelu(self.wide(self.last(h)))))
        m = attention_mask[..., None].float()
        return self.classifier((h * m).sum(1) / m.sum(1).clamp_min(1))


class Model(nn.Module):
    """A net in the style of the well-known hub: a dict in, a dict with the loss and the scores out."""

    def __init__(self, **more: Any):
        super().__init__()
        self.encoder = Encoder(**more)

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        logits = self.encoder(batch["input_ids"], batch["attention_mask"])
        if "labels" in batch:
            return {"loss": F.cross_entropy(logits, batch["labels"]), "logits": logits}
        return {"logits": logits}


class Adapter(nn.Module):
    """What is needed to hand such a net to tools that call it with tensors."""

    def __init__(self, net: Model):
        super().__init__()
        self.net = net

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.net({"input_ids": input_ids, "attention_mask": attention_mask})["logits"]

    def learn(
        self,
        train: Any,
        held: Any,
        *,
        epochs: int,
        lr: float = 4e-3,
        decay: float = 0.05,
        warm: int = 20,
        clip: float = 1.0,
    ) -> tuple[list[dict[str, float]], torch.optim.Optimizer]:
        """The customary loop: no decay for biases and norms, a warm-up, a linear descent, clipping."""
        groups: list[dict[str, Any]] = [
            {
                "params": [p for p in self.parameters() if p.requires_grad and p.dim() > 1],
                "weight_decay": decay,
            },
            {
                "params": [p for p in self.parameters() if p.requires_grad and p.dim() < 2],
                "weight_decay": 0.0,
            },
        ]
        opt = torch.optim.AdamW(groups, lr)
        (ids, mask), y = train
        total = epochs * (-(-len(y) // 64))
        plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min((k + 1) / warm, max(0.02, 1 - k / total)))
        history = []
        for _ in range(epochs):
            self.train()
            losses = []
            for i in torch.randperm(len(y)).split(64):
                loss = self.net({"input_ids": ids[i], "attention_mask": mask[i], "labels": y[i]})["loss"]
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters(), clip)
                opt.step()
                plan.step()
                opt.zero_grad()
                losses.append(loss.item())
            self.eval()
            with torch.no_grad():
                value = F.cross_entropy(self(*held[0]), held[1]).item()
            history.append({"loss": sum(losses) / len(losses), "val_loss": value})
        return history, opt


class Bag(nn.Module):
    """The mean of the words' vectors, and a head."""

    def __init__(self, vocabulary: int = 120, width: int = 24, classes: int = 5):
        super().__init__()
        self.words, self.head = nn.Embedding(vocabulary, width), mlp(width, 32, classes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        m = mask[..., None].float()
        return self.head((self.words(ids) * m).sum(1) / m.sum(1).clamp_min(1))


class Factors(nn.Module):
    """Matrix factorisation with biases."""

    def __init__(self, users: int = 150, items: int = 90, rank: int = 4, size: float = 0.1):
        super().__init__()
        self.user, self.item = nn.Embedding(users, rank), nn.Embedding(items, rank)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, 0, size)
        for e in (self.user_bias, self.item_bias):
            nn.init.zeros_(e.weight)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        u, i = pair[:, 0], pair[:, 1]
        return self.user_bias(u) + self.item_bias(i) + (self.user(u) * self.item(i)).sum(1, keepdim=True)


class Clicks(nn.Module):
    """Embedded ids beside numbers."""

    def __init__(self, width: int = 6, hidden: int = 32, drop: float = 0.0):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(k, width) for k in (12, 30, 5))
        self.head = mlp(3 * width + 3, hidden, 1, drop=drop)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([*(t(ids[:, k]) for k, t in enumerate(self.tables)), x], 1)).squeeze(1)


class Graph(nn.Module):
    """Graph convolutions: x and the normalised adjacency in, a row per node out."""

    def __init__(self, inputs: int = 12, width: int = 16, classes: int = 4, hops: int = 2, drop: float = 0.3):
        super().__init__()
        sizes = [inputs, *[width] * (hops - 1), classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.drop = nn.Dropout(drop)

    def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        for k, layer in enumerate(self.layers):
            x = a @ layer(self.drop(x))
            x = F.relu(x) if k < len(self.layers) - 1 else x
        return x


# ---------------------------------------------------------------- loops


def rows(x: Any, i: torch.Tensor, n: int) -> Any:
    return tuple(a[i] if len(a) == n else a for a in x) if isinstance(x, tuple) else x[i]


def called(net: nn.Module, x: Any) -> torch.Tensor:
    return net(*x) if isinstance(x, tuple) else net(x)


def batches(n: int, size: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    order = torch.randperm(n, generator=generator)
    for k in range(0, n, size):
        if len(order[k : k + size]) > 1 or size == 1:
            yield order[k : k + size]


def bce(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(output.reshape(y.shape), y.float())


def tags_loss(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), y.flatten())


LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": bce,
    "nll": F.nll_loss,
}


def fit(
    net: nn.Module,
    train: tuple[Any, torch.Tensor],
    held: tuple[Any, torch.Tensor] | None = None,
    loss: str | Callable[..., torch.Tensor] = "cross_entropy",
    *,
    epochs: int = 20,
    size: int = 64,
    lr: float = 3e-3,
    decay: float = 0.0,
    opt: torch.optim.Optimizer | None = None,
    keep: bool = False,
    cool: bool = False,
    clip: float | None = None,
    skip: bool = False,
    seed: int = 0,
) -> tuple[list[dict[str, float]], torch.optim.Optimizer]:
    """Train; `keep` the best epoch, `cool` the rate down, `clip` gradients, `skip` batches whose loss is not finite."""
    cost = LOSSES[loss] if isinstance(loss, str) else loss
    opt = opt or torch.optim.AdamW(net.parameters(), lr, weight_decay=decay)
    plan = (
        torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs, eta_min=opt.param_groups[0]["lr"] * 0.05)
        if cool
        else None
    )
    generator = torch.Generator().manual_seed(seed)
    (x, y), history, best, state = train, [], float("inf"), None
    for _ in range(epochs):
        net.train()
        total = seen = 0.0
        for i in batches(len(y), size, generator):
            opt.zero_grad()
            value = cost(called(net, rows(x, i, len(y))), y[i])
            if skip and not torch.isfinite(value):
                continue
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            opt.step()
            total, seen = total + value.item() * len(i), seen + len(i)
        if plan:
            plan.step()
        row = {"loss": total / max(seen, 1)}
        if held is not None:
            net.eval()
            with torch.no_grad():
                row["val_loss"] = float(cost(called(net, held[0]), held[1]))
            if keep and row["val_loss"] < best:
                best, state = row["val_loss"], copy.deepcopy(net.state_dict())
        history.append(row)
    if state is not None:
        net.load_state_dict(state)
    net.eval()
    return history, opt


def full(
    net: nn.Module,
    train: tuple[Any, torch.Tensor],
    held: tuple[Any, torch.Tensor] | None,
    loss: str | Callable[..., torch.Tensor],
    *,
    epochs: int = 100,
    lr: float = 1e-2,
    decay: float = 0.0,
    opt: torch.optim.Optimizer | None = None,
    keep: bool = False,
) -> tuple[list[dict[str, float]], torch.optim.Optimizer]:
    """Train on all rows at once (graphs: rows without a label count -100)."""
    cost = LOSSES[loss] if isinstance(loss, str) else loss
    opt = opt or torch.optim.Adam(net.parameters(), lr, weight_decay=decay)
    history, best, state = [], float("inf"), None
    for _ in range(epochs):
        net.train()
        opt.zero_grad()
        value = cost(called(net, train[0]), train[1])
        value.backward()
        opt.step()
        row = {"loss": value.item()}
        if held is not None:
            net.eval()
            with torch.no_grad():
                row["val_loss"] = float(cost(called(net, held[0]), held[1]))
            if keep and row["val_loss"] < best:
                best, state = row["val_loss"], copy.deepcopy(net.state_dict())
        history.append(row)
    if state is not None:
        net.load_state_dict(state)
    net.eval()
    return history, opt


def stepping(
    make: Callable[[nn.Module], torch.optim.Optimizer], update: Callable[..., float | None]
) -> Callable[..., Any]:
    """A user's `step(model, batch)`, which makes an optimiser for each model that it meets."""
    made: WeakKeyDictionary[nn.Module, torch.optim.Optimizer] = WeakKeyDictionary()

    def step(model: nn.Module, batch: Any) -> Any:
        if model not in made:
            made[model] = make(model)
        return update(model, batch, made[model])

    return step


def given(
    net: nn.Module, train: Any, held: Any, loss: Any, history: Any = None, opt: Any = None, **more: Any
) -> dict[str, Any]:
    """Collect the arguments, without those that are None."""
    named = {"validation": held, "loss": loss, "history": history, "optimizer": opt, **more}
    return {"model": net, "data": train} | {k: v for k, v in named.items() if v is not None}
