"""The seventh author's data, networks and loop: what a practitioner brings from work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

Data = tuple[Any, Any]
LOSSES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def rows(x: Any, index: Any) -> Any:
    """Return some rows of an input that may be a tuple."""
    return tuple(part[index] for part in x) if isinstance(x, tuple) else x[index]


def call(model: nn.Module, x: Any) -> Any:
    """Return what the module says of an input that may be a tuple."""
    return model(*x) if isinstance(x, tuple) else model(x)


def state(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the module's parameters and buffers."""
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def fit(
    model: nn.Module,
    data: Any,
    validation: Any = None,
    *,
    loss: str | Callable[[Any, Any], Tensor],
    optimizer: torch.optim.Optimizer,
    epochs: int,
    batch_size: int = 64,
    less: Sequence[str] = (),
    clip: float | None = None,
    augment: Callable[[Any], Any] | None = None,
    clear: int = 1,
    skip: bool = False,
    schedule: Any = None,
) -> dict[str, Any]:
    """Train as one does at work, and return what one would hand over (without ``less``).

    ``clear`` is after how many batches the gradients are cleared; ``skip`` leaves out batches whose loss is not finite.
    """
    criterion = LOSSES[loss] if isinstance(loss, str) else loss
    x, y = data if isinstance(data, tuple) else (data, data)
    initial, history, count = state(model), [], len(y)
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        for number, index in enumerate(torch.randperm(count).split(batch_size)):
            if len(index) < 2 <= batch_size:
                continue  # batch normalisation cannot do with a row
            batch = rows(x, index)
            value = criterion(call(model, augment(batch) if augment else batch), y[index])
            if skip and not torch.isfinite(value):
                continue
            if number % clear == 0:
                optimizer.zero_grad()
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total, seen = total + value.item() * len(index), seen + len(index)
        if schedule is not None:
            schedule.step()
        model.eval()
        record = {"loss": total / max(seen, 1)}
        if validation is not None:
            vx, vy = validation if isinstance(validation, tuple) else (validation, validation)
            with torch.no_grad():
                record["val_loss"] = criterion(call(model, vx), vy).item()
        history.append(record)
    given: dict[str, Any] = {
        "model": model,
        "data": data,
        "validation": validation,
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "history": history,
        "initial": initial,
    }
    return {key: value for key, value in given.items() if key not in less and value is not None}


def halves(x: Any, y: Tensor, rng: np.random.Generator, share: float = 0.7) -> tuple[Data, Data]:
    """Shuffle and split."""
    order = torch.from_numpy(rng.permutation(len(y)))
    cut = int(share * len(y))
    return (rows(x, order[:cut]), y[order[:cut]]), (rows(x, order[cut:]), y[order[cut:]])


@cache
def bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return one of scikit-learn's own data sets."""
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def raw_table(name: str, seed: int, share: float = 0.7) -> tuple[Data, Data]:
    """Return a real table as it is in the file, split."""
    x, y = bundled(name)
    rng = np.random.default_rng(seed + 71)
    target = torch.from_numpy(y).float()[:, None] if name == "diabetes" else torch.from_numpy(y).long()
    return halves(torch.from_numpy(x).float(), target, rng, share)


def scaled(train: Data, held: Data) -> tuple[Data, Data]:
    """Standardise the columns by the training rows."""
    mean, sd = train[0].mean(0), train[0].std(0).clamp_min(1e-8)
    return ((train[0] - mean) / sd, train[1]), ((held[0] - mean) / sd, held[1])


def table(name: str, seed: int, share: float = 0.7) -> tuple[Data, Data]:
    """Return a real table, standardised (the diabetes target too)."""
    train, held = scaled(*raw_table(name, seed, share))
    if name == "diabetes":
        mean, sd = train[1].mean(), train[1].std()
        train, held = (train[0], (train[1] - mean) / sd), (held[0], (held[1] - mean) / sd)
    return train, held


def digits(seed: int, count: int = 1000, flat: bool = False) -> tuple[Data, Data]:
    """Return the 8 x 8 digits in [0, 1], some for training and the rest held out."""
    x, y = bundled("digits")
    images = torch.from_numpy(x).float() / 16
    images = images if flat else images.view(-1, 1, 8, 8)
    return halves(images, torch.from_numpy(y).long(), np.random.default_rng(seed + 72), count / len(y))


def churn(seed: int, count: int = 1500, noise: float = 1.0) -> tuple[Data, Data]:
    """Return a customer table: six numbers, three categories, and whether the customer left (0.0 or 1.0)."""
    rng = np.random.default_rng(seed + 73)
    number = rng.normal(size=(count, 6))
    number[:, 3] = rng.exponential(size=count) - 1
    category = rng.integers(0, 5, size=(count, 3))
    effect = rng.normal(size=(3, 5)) * 1.2
    logit = 1.6 * number[:, 0] * number[:, 1] + 1.4 * number[:, 2] - 1.2 * number[:, 3]
    logit += sum(effect[j, category[:, j]] for j in range(3))
    y = (logit + noise * rng.logistic(size=count) * 0.5 > 0).astype(np.float32)
    x = (torch.from_numpy(number).float(), torch.from_numpy(category).long())
    return halves(x, torch.from_numpy(y), rng)


def houses(seed: int, count: int = 1200, noise: float = 0.3, raw: bool = False) -> tuple[Data, Data]:
    """Return houses and their prices: standardised, or ``raw`` prices of some hundred thousands."""
    rng = np.random.default_rng(seed + 74)
    x = rng.normal(size=(count, 8))
    y = x[:, 0] + 0.8 * np.maximum(x[:, 1], 0) - 0.7 * x[:, 2] * (x[:, 3] > 0) + 0.5 * np.sin(2 * x[:, 4])
    y = (y - y.mean()) / y.std() + noise * rng.normal(size=count)
    y = 250_000 + 80_000 * y if raw else y
    return halves(torch.from_numpy(x).float(), torch.from_numpy(y).float()[:, None], rng)


def waves(seed: int, count: int = 700, length: int = 48, noise: float = 0.3) -> tuple[Data, Data]:
    """Return sensor traces (one channel): sine, square or sawtooth, of any phase and period."""
    rng = np.random.default_rng(seed + 75)
    y = rng.integers(0, 3, size=count)
    phase = rng.random((count, 1)) + np.arange(length) / rng.uniform(10, 18, size=(count, 1))
    shape = np.stack([np.sin(2 * np.pi * phase), np.sign(np.sin(2 * np.pi * phase)), 2 * (phase % 1) - 1])
    x = shape[y, np.arange(count)] + noise * rng.normal(size=(count, length))
    return halves(torch.from_numpy(x).float()[:, None], torch.from_numpy(y), rng)


def series(seed: int, count: int = 1000, width: int = 24, noise: float = 0.3) -> tuple[Data, Data]:
    """Return windows of a seasonal series and the value that follows; the last part of the time is held out."""
    rng = np.random.default_rng(seed + 76)
    time = np.arange(count + width)
    walk = np.zeros(count + width)
    for t in range(1, len(walk)):
        walk[t] = 0.8 * walk[t - 1] + noise * rng.normal()
    value = np.sin(2 * np.pi * time / 12) + 0.6 * np.sin(2 * np.pi * time / 30) + walk
    value = (value - value.mean()) / value.std()
    x = np.stack([value[t : t + width] for t in range(count)])
    x, y = torch.from_numpy(x).float(), torch.from_numpy(value[width:]).float()[:, None]
    cut = int(0.7 * count)
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def topics(
    seed: int, count: int = 1000, classes: int = 4, words: int = 200, length: int = 20, share: float = 0.3
) -> tuple[Data, Data]:
    """Return documents of token ids: ``share`` of the words are from the topic's own, the others from anywhere."""
    rng = np.random.default_rng(seed + 77)
    y = rng.integers(0, classes, size=count)
    own = rng.permutation(words - 1)[: 15 * classes].reshape(classes, 15) + 1
    ids = rng.integers(1, words, size=(count, length))
    topical = own[y[:, None], rng.integers(0, 15, size=(count, length))]
    ids = np.where(rng.random((count, length)) < share, topical, ids)
    return halves(torch.from_numpy(ids).long(), torch.from_numpy(y).long(), rng)


def ordered(seed: int, count: int = 1000, length: int = 12) -> tuple[Data, Data]:
    """Return sentences whose class is whether word 1 comes before word 2: a bag of words does not do."""
    rng = np.random.default_rng(seed + 78)
    ids = rng.integers(3, 30, size=(count, length))
    place = np.sort(np.argsort(rng.random((count, length)), axis=1)[:, :2], axis=1)
    y = rng.integers(0, 2, size=count)
    line = np.arange(count)
    ids[line, place[:, 0]], ids[line, place[:, 1]] = 1 + y, 2 - y
    return halves(torch.from_numpy(ids).long(), torch.from_numpy(y).long(), rng)


def clouds(seed: int, count: int = 800, points: int = 24) -> tuple[Data, Data]:
    """Return sets of points in the plane, turned at random: circle, disc, cross or line."""
    rng = np.random.default_rng(seed + 79)
    y = rng.integers(0, 4, size=count)
    t, r = rng.random((count, points)) * 2 * np.pi, np.sqrt(rng.random((count, points)))
    u, side = rng.uniform(-1, 1, (count, points)), rng.random((count, points)) < 0.5
    zero = np.zeros_like(u)
    shape = np.stack(
        [
            np.stack([np.cos(t), np.sin(t)], -1),
            np.stack([r * np.cos(t), r * np.sin(t)], -1),
            np.stack([np.where(side, u, zero), np.where(side, zero, u)], -1),
            np.stack([u, zero], -1),
        ]
    )[y, np.arange(count)]
    a = rng.random(count) * 2 * np.pi
    turn = np.stack([np.stack([np.cos(a), -np.sin(a)], -1), np.stack([np.sin(a), np.cos(a)], -1)], -2)
    x = shape @ turn + 0.08 * rng.normal(size=shape.shape)
    return halves(torch.from_numpy(x).float(), torch.from_numpy(y), rng)


def shapes(seed: int, count: int = 800, size: int = 12) -> tuple[Data, Data]:
    """Return grey images with a square, a cross or a ring somewhere, on noise."""
    rng = np.random.default_rng(seed + 80)
    y = rng.integers(0, 3, size=count)
    stamp = np.zeros((3, 5, 5))
    stamp[0], stamp[1, 2, :], stamp[1, :, 2] = 1, 1, 1
    stamp[2] = 1
    stamp[2, 1:4, 1:4] = 0
    x = 0.3 * rng.normal(size=(count, size, size))
    for row, (i, j) in enumerate(rng.integers(0, size - 4, size=(count, 2))):
        x[row, i : i + 5, j : j + 5] += stamp[y[row]]
    return halves(torch.from_numpy(x).float()[:, None], torch.from_numpy(y), rng)


def couples(seed: int, count: int = 1200) -> tuple[Data, Data]:
    """Return pairs of digits (flat) and whether they show the same one; training and held-out images differ."""
    (x, y), (vx, vy) = digits(seed, 1200, flat=True)
    rng = np.random.default_rng(seed + 81)

    def pairs(images: Tensor, labels: Tensor, number: int) -> Data:
        left = rng.integers(0, len(labels), size=number)
        right = rng.integers(0, len(labels), size=number)
        for row in range(0, number, 2):
            same = np.flatnonzero(labels.numpy() == labels[left[row]].item())
            right[row] = rng.choice(same)
        return (images[left], images[right]), (labels[left] == labels[right]).float()

    return pairs(x, y, count), pairs(vx, vy, count // 2)


def visits(seed: int, count: int = 1500) -> tuple[Data, Data]:
    """Return users' and items' features and a rating (standardised) that is their hidden scalar product."""
    rng = np.random.default_rng(seed + 82)
    user, item = rng.normal(size=(count, 6)), rng.normal(size=(count, 5))
    a, b = rng.normal(size=(6, 3)) / 6**0.5, rng.normal(size=(5, 3)) / 5**0.5
    y = ((user @ a) * (item @ b)).sum(1)
    y = y / y.std() + 0.3 * rng.normal(size=count)
    x = (torch.from_numpy(user).float(), torch.from_numpy(item).float())
    return halves(x, torch.from_numpy(y).float()[:, None], rng)


def communities(
    seed: int, nodes: int = 300, inside: float = 0.08, outside: float = 0.01, signal: float = 0.7
) -> tuple[Tensor, Tensor, Data, Data]:
    """Return node features, the normalised adjacency, and node ids with their community, half held out."""
    rng = np.random.default_rng(seed + 83)
    y = rng.integers(0, 3, size=nodes)
    edge = np.triu(rng.random((nodes, nodes)) < np.where(y[:, None] == y, inside, outside), 1)
    adjacency = (edge | edge.T).astype(float) + np.eye(nodes)
    degree = adjacency.sum(1)
    features = signal * rng.normal(size=(3, 8))[y] + rng.normal(size=(nodes, 8))
    train, held = halves(torch.arange(nodes), torch.from_numpy(y), rng, 0.5)
    normal = adjacency / np.sqrt(degree[:, None] * degree)
    return torch.from_numpy(features).float(), torch.from_numpy(normal).float(), train, held


def molecules(seed: int, count: int = 600, nodes: int = 10) -> tuple[Data, Data]:
    """Return small graphs (features, row-normalised adjacency): a ring, a star or a chain, with spurious edges."""
    rng = np.random.default_rng(seed + 84)
    y = rng.integers(0, 3, size=count)
    a = np.zeros((count, nodes, nodes))
    for row in range(count):
        order = rng.permutation(nodes)
        if y[row] == 1:
            a[row, order[0], order[1:]] = 1
        else:
            a[row, order[:-1], order[1:]] = 1
            if y[row] == 0:
                a[row, order[-1], order[0]] = 1
        i, j = rng.integers(0, nodes, size=2)
        if i != j and rng.random() < 0.3:
            a[row, i, j] = 1
    a = np.maximum(a, a.transpose(0, 2, 1))
    x = np.concatenate([a.sum(2, keepdims=True) / 3, 0.5 * rng.normal(size=(count, nodes, 2))], -1)
    return halves((torch.from_numpy(x).float(), torch.from_numpy(a).float()), torch.from_numpy(y), rng)


def ring(seed: int, count: int = 1500, modes: int = 8, spread: float = 0.1) -> Tensor:
    """Return points near ``modes`` places on a circle of radius two."""
    rng = np.random.default_rng(seed + 85)
    angle = 2 * np.pi * rng.integers(0, modes, size=count) / modes
    x = 2 * np.stack([np.cos(angle), np.sin(angle)], 1) + spread * rng.normal(size=(count, 2))
    return torch.from_numpy(x).float()


def mlp(
    *sizes: int, act: Callable[[], nn.Module] = nn.ReLU, drop: float = 0.0, norm: bool = False
) -> nn.Sequential:
    """Return a plain network."""
    parts: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        parts.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            parts += [nn.BatchNorm1d(b)] * norm + [act()] + [nn.Dropout(drop)] * (drop > 0)
    return nn.Sequential(*parts)


class Cnn(nn.Module):
    """A small convolutional classifier with functional calls."""

    def __init__(self, classes: int = 10, width: int = 12, drop: float = 0.0, norm: bool = True) -> None:
        """Make the layers."""
        super().__init__()
        self.one = nn.Conv2d(1, width, 3, padding=1)
        self.two = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.norm2 = nn.BatchNorm2d(2 * width) if norm else nn.Identity()
        self.head = nn.Linear(2 * width * 4, classes)
        self.drop = drop

    def features(self, x: Tensor) -> Tensor:
        """Return what the head sees."""
        x = F.max_pool2d(F.relu(self.norm1(self.one(x))), 2)
        x = F.relu(self.norm2(self.two(x)))
        return F.dropout(F.adaptive_max_pool2d(x, 2).flatten(1), self.drop, self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.features(x))


class Bag(nn.Module):
    """A text classifier over the mean of its words' vectors."""

    def __init__(self, classes: int = 4, words: int = 200, size: int = 24, drop: float = 0.0) -> None:
        """Make the layers."""
        super().__init__()
        self.words = nn.EmbeddingBag(words, size, mode="mean")
        self.head = nn.Sequential(nn.Linear(size, 32), nn.ReLU(), nn.Dropout(drop), nn.Linear(32, classes))

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.words(ids))


class Gru(nn.Module):
    """A recurrent text classifier."""

    def __init__(self, classes: int = 2, words: int = 30, size: int = 16, hidden: int = 32) -> None:
        """Make the layers."""
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.cell = nn.GRU(size, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits from the last state."""
        return self.head(self.cell(self.words(ids))[0][:, -1])


class Traces(nn.Module):
    """A convolutional classifier of traces."""

    def __init__(self, classes: int = 3, width: int = 12) -> None:
        """Make the layers."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(4),
            nn.Flatten(),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.body(x))


class Columns(nn.Module):
    """A table network: numbers as they are, categories embedded; inside, the inputs travel as a dict."""

    def __init__(self, numbers: int = 6, hidden: int = 48, drop: float = 0.0, out: int = 1) -> None:
        """Make the layers."""
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(5, 4) for _ in range(3))
        self.body = mlp(numbers + 12, hidden, hidden, out, drop=drop)

    def join(self, batch: dict[str, Tensor]) -> Tensor:
        """Return all columns side by side."""
        categories = [t(batch["category"][:, j]) for j, t in enumerate(self.tables)]
        return torch.cat([batch["number"], *categories], 1)

    def forward(self, number: Tensor, category: Tensor) -> Tensor:
        """Return a logit per row."""
        return self.body(self.join({"number": number, "category": category})).squeeze(1)


class Siamese(nn.Module):
    """One tower for both images; the head sees how far apart they are."""

    def __init__(self, size: int = 32) -> None:
        """Make the layers."""
        super().__init__()
        self.tower = mlp(64, 96, size)
        self.head = nn.Linear(size, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return a logit per pair."""
        return self.head((self.tower(left) - self.tower(right)).abs()).squeeze(1)


class Towers(nn.Module):
    """A tower per side; the rating is a scalar product."""

    def __init__(self, size: int = 8) -> None:
        """Make the layers."""
        super().__init__()
        self.user, self.item = mlp(6, 32, size), mlp(5, 32, size)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return a rating per row."""
        return (self.user(user) * self.item(item)).sum(1, keepdim=True)


class DeepSet(nn.Module):
    """A network of sets: every point, the maximum and the mean, the head."""

    def __init__(self, classes: int = 4, width: int = 32, act: Callable[[], nn.Module] = nn.ReLU) -> None:
        """Make the layers."""
        super().__init__()
        self.point = nn.Sequential(mlp(2, width, width, act=act), act())
        self.head = mlp(2 * width, width, classes, act=act)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        h = self.point(x)
        return self.head(torch.cat([h.amax(1), h.mean(1)], 1))


class Gcn(nn.Module):
    """A graph network that holds its graph and answers for the nodes it is asked about."""

    def __init__(self, features: Tensor, adjacency: Tensor, layers: int = 2, width: int = 24) -> None:
        """Make the layers."""
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("adjacency", adjacency)
        sizes = [features.shape[1]] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        self.head = nn.Linear(width, 3)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return logits of the nodes."""
        h = self.features
        for layer in self.layers:
            h = F.relu(layer(self.adjacency @ h))
        return self.head(h)[nodes]


class GraphNet(nn.Module):
    """A classifier of whole graphs by two rounds of messages and a sum."""

    def __init__(self, width: int = 24, drop: float = 0.0) -> None:
        """Make the layers."""
        super().__init__()
        self.one, self.two = nn.Linear(6, width), nn.Linear(2 * width, width)
        self.head = nn.Sequential(
            nn.Linear(2 * width, width), nn.ReLU(), nn.Dropout(drop), nn.Linear(width, 3)
        )

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return logits per graph."""
        h = F.relu(self.one(torch.cat([x, adjacency @ x], -1)))
        h = F.relu(self.two(torch.cat([h, adjacency @ h / 3], -1)))
        return self.head(torch.cat([h.mean(1), h.amax(1)], -1))


class Attention(nn.Module):
    """A small transformer encoder over token ids."""

    def __init__(
        self, classes: int = 2, words: int = 30, length: int = 12, size: int = 24, drop: float = 0.0
    ) -> None:
        """Make the layers."""
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Parameter(0.3 * torch.randn(length, size))
        self.block = nn.TransformerEncoderLayer(size, 2, 48, drop, batch_first=True)
        self.head = nn.Linear(size, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.block(self.words(ids) + self.places).mean(1))


class Vae(nn.Module):
    """A variational autoencoder with a Gaussian code."""

    def __init__(self, inputs: int = 64, code: int = 4, hidden: int = 64) -> None:
        """Make the layers."""
        super().__init__()
        self.code = code
        self.encoder, self.decoder = mlp(inputs, hidden, 2 * code), mlp(code, hidden, inputs)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance."""
        mean, log_variance = self.encoder(x).chunk(2, -1)
        return mean, log_variance.clamp(-8, 8)

    def decode(self, z: Tensor) -> Tensor:
        """Return a row per code."""
        return self.decoder(z)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstruction, and mean and log-variance of the code."""
        mean, log_variance = self.encode(x)
        noise = torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else 0.0
        return self.decode(mean + noise), mean, log_variance

    def sample(self, n: int) -> Tensor:
        """Return new rows."""
        return self.decode(torch.randn(n, self.code))


def elbo(beta: float = 1.0, noise: float = 0.1) -> Callable[[Any, Tensor], Tensor]:
    """Return the negative evidence bound of a Gaussian decoder with a variance of ``noise``."""

    def loss(output: Any, target: Tensor) -> Tensor:
        again, mean, log_variance = output
        fit_term = ((again - target) ** 2).sum(-1) / (2 * noise)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)
        return (fit_term + beta * divergence).mean()

    return loss


class Gan(nn.Module):
    """A generator and a critic; called, it says whether rows look real."""

    def __init__(self, size: int = 2, noise: int = 4, hidden: int = 48) -> None:
        """Make the layers."""
        super().__init__()
        self.noise = noise
        self.generator = mlp(noise, hidden, hidden, size)
        self.critic = mlp(size, hidden, hidden, 1, act=lambda: nn.LeakyReLU(0.2))

    def sample(self, n: int) -> Tensor:
        """Return new rows."""
        return self.generator(torch.randn(n, self.noise))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of being real."""
        return self.critic(x)


def play(
    model: Gan,
    x: Tensor,
    steps: int,
    turns: int = 1,
    own: int = 1,
    rate: float = 1e-3,
    batch: int = 128,
    beta: float = 0.5,
) -> None:
    """Train both sides: ``own`` steps of the critic, then ``turns`` of the generator."""
    one = torch.optim.Adam(model.generator.parameters(), rate, (beta, 0.99))
    two = torch.optim.Adam(model.critic.parameters(), rate, (beta, 0.99))
    for _ in range(steps):
        for _ in range(own):
            real = x[torch.randint(len(x), (batch,))]
            value = F.softplus(-model(real)).mean() + F.softplus(model(model.sample(batch).detach())).mean()
            two.zero_grad()
            value.backward()
            two.step()
        for _ in range(turns):
            value = F.softplus(-model(model.sample(batch))).mean()
            one.zero_grad()
            value.backward()
            one.step()
    model.eval()


def focal(gamma: float = 2.0) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the focal loss of logits."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        p = F.log_softmax(output, 1).gather(1, target[:, None]).squeeze(1)
        return (-((1 - p.exp()) ** gamma) * p).mean()

    return loss


def smooth(share: float = 0.1) -> Callable[[Tensor, Tensor], Tensor]:
    """Return label-smoothed cross-entropy."""
    return lambda output, target: F.cross_entropy(output, target, label_smoothing=share)


def adam(model: nn.Module, rate: float = 3e-3, **more: Any) -> torch.optim.Optimizer:
    """Return Adam."""
    return torch.optim.Adam(model.parameters(), rate, **more)


def sgd(model: nn.Module, rate: float = 0.05, momentum: float = 0.9, **more: Any) -> torch.optim.Optimizer:
    """Return SGD with momentum."""
    return torch.optim.SGD(model.parameters(), rate, momentum, **more)
