"""A harbour's records, and one training loop: what the eighteenth author's cases are built from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

EVERYTHING = ("optimizer", "batch_size", "history", "initial")


def rng(seed: int, salt: int = 0) -> np.random.Generator:
    return np.random.default_rng([18, salt, seed])


def real(a: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(a), dtype=torch.float32)


def whole(a: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(a), dtype=torch.long)


def cut(x: Any, y: Any = None, share: float = 0.7) -> tuple[Any, Any]:
    """The first rows to train on, the others held out."""
    rows = len(x[0]) if isinstance(x, tuple) else len(x)
    k = int(share * rows)
    head = tuple(a[:k] for a in x) if isinstance(x, tuple) else x[:k]
    tail = tuple(a[k:] for a in x) if isinstance(x, tuple) else x[k:]
    return (head, tail) if y is None else ((head, y[:k]), (tail, y[k:]))


# --- records ---------------------------------------------------------------------------------------------------------


def cargo(
    seed: int, n: int = 1700, classes: int = 3, sharp: float = 3.0, share: float = 0.7
) -> tuple[Any, Any]:
    """Eight measures of a consignment; which of the sheds it belongs to."""
    r = rng(seed, 1)
    x = r.normal(size=(n, 8))
    scores = x @ r.normal(size=(8, classes)) / 2 + np.tanh(x[:, :1] * x[:, 1:2]) * r.normal(size=classes)
    return cut(real(x), whole((sharp * scores + r.gumbel(size=(n, classes))).argmax(1)), share)


def burn(x: np.ndarray) -> np.ndarray:
    """The fuel that a voyage should take, by speed, draught, wind, waves, distance, age."""
    return (
        0.8 * x[:, 0] + 0.3 * x[:, 0] ** 2 + 0.4 * x[:, 1] * x[:, 2] + np.sin(1.5 * x[:, 4]) + 0.2 * x[:, 5]
    )


def voyage(seed: int, n: int = 1500, noise: float = 0.3, share: float = 0.7) -> tuple[Any, Any]:
    """Six measures of a voyage and the fuel it took, both standardised."""
    r = rng(seed, 2)
    x = r.normal(size=(n, 6))
    y = burn(x) + noise * r.normal(size=n)
    return cut(real(x), real((y - y.mean()) / y.std())[:, None], share)


def flags(seed: int, n: int = 600, noise: float = 0.4, side: int = 12, share: float = 0.7) -> tuple[Any, Any]:
    """Signal flags seen through haze: a cross, a saltire, bars, a border."""
    r = rng(seed, 3)
    y = r.integers(4, size=n)
    x = noise * r.normal(size=(n, 1, side, side))
    i = np.arange(side)
    for picture, kind in zip(x[:, 0], y):
        a = r.integers(3, side - 3)
        if kind == 0:
            picture[a - 1 : a + 1] += 1
            picture[:, a - 1 : a + 1] += 1
        elif kind == 1:
            picture[i, i] += 1
            picture[i, side - 1 - i] += 1
        elif kind == 2:
            picture[a % 4 :: 4] += 1
        else:
            picture[[0, 1, -1, -2]] += 1
            picture[:, [0, 1, -1, -2]] += 1
    return cut(real(x), whole(y), share)


def tracks(
    seed: int, n: int = 600, steps: int = 24, noise: float = 0.4, share: float = 0.7
) -> tuple[Any, Any]:
    """Speed and rate of turn of a vessel: steady, zigzag, or one turn to berth."""
    r = rng(seed, 4)
    y = r.integers(3, size=n)
    x = noise * r.normal(size=(n, steps, 2))
    t = np.arange(steps)
    phase, when = r.uniform(0, 6, size=n), r.integers(4, steps - 6, size=n)
    x[y == 1, :, 1] += np.sin(0.9 * t + phase[y == 1, None])
    x[y == 2, :, 1] += 1.2 * (abs(t - when[y == 2, None]) < 3)
    x[..., 0] += np.where(y == 2, -0.4, 0.2)[:, None]
    return cut(real(x), whole(y), share)


def radio(seed: int, n: int = 900, words: int = 60, length: int = 14, own: float = 0.3, share: float = 0.7):
    """Radio messages as word numbers (0 fills up): about weather, cargo or pilots."""
    r = rng(seed, 5)
    y = r.integers(3, size=n)
    x = r.integers(25, words, size=(n, length))
    topical = 1 + 8 * y[:, None] + r.integers(8, size=(n, length))
    x = np.where(r.random((n, length)) < own, topical, x)
    x[np.arange(length) >= r.integers(7, length + 1, size=n)[:, None]] = 0
    return cut(whole(x), whole(y), share)


def lanes(seed: int, n: int = 240, within: float = 0.08, across: float = 0.008, spread: float = 1.2):
    """Ports, the lanes between them, and the coast each lies on: features, normalised adjacency, labels."""
    r = rng(seed, 6)
    y = r.integers(3, size=n)
    x = spread * r.normal(size=(n, 6)) + np.eye(3)[y] @ np.repeat(np.eye(3), 2, 1)
    a = np.triu(r.random((n, n)) < np.where(y[:, None] == y, within, across), 1)
    a = a + a.T + np.eye(n)
    d = a.sum(1) ** -0.5
    return real(x), real(a * d[:, None] * d), whole(y)


def masked(y: torch.Tensor, share: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels to learn from and labels held out, the others -100."""
    known = torch.arange(len(y)) < share * len(y)
    return torch.where(known, y, -100), torch.where(known, -100, y)


def berths(seed: int, n: int = 1200, modes: int = 4, spread: float = 0.12) -> torch.Tensor:
    """Where ships lie: about one of some berths on a round quay."""
    r = rng(seed, 7)
    angle = 2 * np.pi * r.integers(modes, size=n) / modes
    return real(np.c_[np.cos(angle), np.sin(angle)] + spread * r.normal(size=(n, 2)))


def soundings(seed: int, n: int = 1200, noise: float = 0.15) -> torch.Tensor:
    """Ten soundings that follow two hidden tides."""
    r = rng(seed, 8)
    z = r.normal(size=(n, 2))
    a = np.linalg.qr(rng(0, 8).normal(size=(10, 2)))[0].T * 10**0.5
    return real(np.tanh(z) @ a * 1.2 + noise * r.normal(size=(n, 10)))


# --- nets ------------------------------------------------------------------------------------------------------------


def mlp(*widths: int, act: Any = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def eye(classes: int = 4, channels: int = 12, norm: bool = False, side: int = 12) -> nn.Sequential:
    """A small convolutional net for the flags."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.BatchNorm2d(channels) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(channels * (side // 2) ** 2, classes),
    )


class Listener(nn.Module):
    """A recurrent net that answers from its mean state."""

    def __init__(
        self, inputs: int = 2, width: int = 16, classes: int = 3, kind: Any = nn.GRU, both: bool = False
    ):
        super().__init__()
        self.cell = kind(inputs, width, batch_first=True, bidirectional=both)
        self.answer = nn.Linear(width * (1 + both), classes)

    def forward(self, x):
        return self.answer(self.cell(x)[0].mean(1))


class Bag(nn.Module):
    """The mean of the words' vectors, fillers left out."""

    def __init__(self, words: int = 60, width: int = 12, classes: int = 3, drop: float = 0.0):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.drop = nn.Dropout(drop)
        self.answer = nn.Linear(width, classes)

    def forward(self, x):
        kept = (x > 0).unsqueeze(-1)
        return self.answer(self.drop((self.words(x) * kept).sum(1) / kept.sum(1).clamp(min=1)))


class Coast(nn.Module):
    """Graph convolutions over a normalised adjacency."""

    def __init__(self, depth: int = 2, width: int = 16, inputs: int = 6, classes: int = 3):
        super().__init__()
        sizes = [inputs] + [width] * (depth - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, adjacency):
        for k, layer in enumerate(self.layers):
            x = adjacency @ layer(x)
            if k < len(self.layers) - 1:
                x = x.relu()
        return x


class Tide(nn.Module):
    """A variational auto-encoder."""

    def __init__(self, inputs: int = 10, code: int = 2, width: int = 32):
        super().__init__()
        self.code = code
        self.inward = mlp(inputs, width, 2 * code)
        self.outward = mlp(code, width, inputs)

    def encode(self, x):
        return self.inward(x).chunk(2, 1)

    def forward(self, x):
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp() if self.training else mean
        return self.outward(z), mean, log_variance

    def sample(self, n):
        return self.outward(torch.randn(n, self.code))


def elbo(variance: float = 0.05, beta: float = 1.0):
    """The negative evidence bound of a Gaussian decoder with this variance."""

    def loss(output, x):
        made, mean, log_variance = output
        rest = ((made - x) ** 2).sum(1) / (2 * variance)
        return (rest + beta * 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)).mean()

    return loss


class Quay(nn.Module):
    """A generator of places from noise."""

    def __init__(self, noise: int = 2, width: int = 48, outputs: int = 2):
        super().__init__()
        self.noise = noise
        self.net = mlp(noise, width, width, outputs)

    def forward(self, z):
        return self.net(z)

    def sample(self, n):
        return self(torch.randn(n, self.noise))


def energy_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    def self_distance(x):
        return torch.cdist(x, x).sum() / (len(x) * (len(x) - 1))

    return 2 * torch.cdist(a, b).mean() - self_distance(a) - self_distance(b)


# --- the loop --------------------------------------------------------------------------------------------------------


def cross_entropy(output, y):
    return F.cross_entropy(output.flatten(0, -2), y.flatten())


LOSSES = {
    "cross_entropy": cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def rows_of(x: Any, y: Any, index: Any) -> tuple[Any, Any]:
    if isinstance(x, tuple):
        return tuple(a[index] if len(a) == len(y) else a for a in x), y[index]
    return x[index], y[index]


def fit(
    net: nn.Module,
    train: Any,
    valid: Any = None,
    loss: Any = "cross_entropy",
    *,
    epochs: int = 15,
    lr: float = 1e-2,
    batch: int = 64,
    wd: float = 0.0,
    make: Any = None,
    clip: float = 0.0,
    cosine: bool = False,
    jitter: Any = None,
    full: bool = False,
    clear: bool = True,
    tell: tuple[str, ...] = EVERYTHING,
    given: Any = None,
) -> dict[str, Any]:
    """Train, and return what ``diagnose`` is to be handed."""
    x, y = train if isinstance(train, tuple) else (train, train)
    measure = LOSSES.get(loss, loss) if isinstance(loss, str) else loss
    used = given or measure
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    optimizer = (
        make(net.parameters()) if make else torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=wd)
    )
    batch = len(y) if full else batch
    steps = max(1, len(y) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps) if cosine else None
    history: dict[str, list[float]] = {"loss": [], "val_loss": []}
    for _ in range(epochs):
        net.train()
        order, total = torch.randperm(len(y)), 0.0
        for k in range(steps):
            bx, by = (x, y) if full else rows_of(x, y, order[k * batch : (k + 1) * batch])
            if jitter:
                bx = jitter(bx)
            if clear:
                optimizer.zero_grad()
            value = used(net(*bx) if isinstance(bx, tuple) else net(bx), by)
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            if schedule:
                schedule.step()
            total += value.item() / steps
        history["loss"].append(total)
        net.eval()
        if valid is not None:
            vx, vy = valid if isinstance(valid, tuple) else (valid, valid)
            with torch.no_grad():
                history["val_loss"].append(measure(net(*vx) if isinstance(vx, tuple) else net(vx), vy).item())
    if valid is None:
        del history["val_loss"]
    net.eval()
    known = {"optimizer": optimizer, "batch_size": batch, "history": history, "initial": initial}
    handed = {"model": net, "data": train, "loss": loss} | {k: v for k, v in known.items() if k in tell}
    return handed if valid is None else handed | {"validation": valid}


def stepper(make: Any, measure: Any, clear: bool = True, pieces: int = 1):
    """A user's own update, which makes its optimiser when it first sees a model."""
    held: dict[str, Any] = {}

    def step(model, batch):
        if held.get("model") is not model:
            held.update(model=model, optimizer=make(model.parameters()))
        x, y = batch
        if clear:
            held["optimizer"].zero_grad()
        total = 0.0
        for a, b in zip(x.chunk(pieces), y.chunk(pieces)):
            value = measure(model(a), b) / pieces
            value.backward()
            total += value.item()
        held["optimizer"].step()
        return total

    return step
