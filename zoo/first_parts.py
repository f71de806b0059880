"""Data, networks and the plain training loop of the first author's cases (``first_*.py``)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

Given = dict[str, Any]
Pair = tuple[Any, Any]
NAMED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": lambda output, target: F.mse_loss(output, target.reshape(output.shape)),
    "bce_with_logits": lambda output, target: F.binary_cross_entropy_with_logits(
        output, target.reshape(output.shape)
    ),
    "nll": F.nll_loss,
}


# --- the loop -----------------------------------------------------------------------------------------------


def call(model: nn.Module, x: Any) -> Any:
    """Return the model's output for a tensor or a tuple of them."""
    return model(*x) if isinstance(x, tuple) else model(x)


def take(x: Any, rows: Tensor, n: int) -> Any:
    """Return the chosen rows of every input that has ``n`` of them."""
    return tuple(part[rows] if len(part) == n else part for part in x) if isinstance(x, tuple) else x[rows]


def fit(
    model: nn.Module,
    data: Any,
    validation: Any = None,
    *,
    loss: Any = "cross_entropy",
    optimizer: torch.optim.Optimizer | None = None,
    epochs: int = 15,
    batch_size: int = 32,
    without: tuple[str, ...] = (),
    numpy: bool = False,
    skip_bad: bool = False,
    clip: float | None = None,
) -> Given:
    """Train as everybody does and return what the user would hand over, less ``without``."""
    x, y = data
    criterion = NAMED[loss] if isinstance(loss, str) else loss
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 3e-3)
    initial = copy.deepcopy(model.state_dict())
    history = []
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        for rows in torch.randperm(len(y)).split(batch_size):
            if len(rows) < min(2, batch_size):
                continue
            optimizer.zero_grad()
            value = criterion(call(model, take(x, rows, len(y))), y[rows])
            if skip_bad and not torch.isfinite(value):
                continue
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            total, seen = total + value.item() * len(rows), seen + len(rows)
        record = {"loss": total / max(seen, 1)}
        if validation is not None:
            model.eval()
            with torch.no_grad():
                record["val_loss"] = criterion(call(model, validation[0]), validation[1]).item()
        history.append(record)
    model.eval()
    given = {
        "model": model,
        "data": data,
        "validation": validation,
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "history": history,
        "initial": initial,
    }
    if numpy:
        given["data"] = tuple(part.numpy() for part in data)
        if validation is not None:
            given["validation"] = tuple(part.numpy() for part in validation)
    return {key: value for key, value in given.items() if key not in without}


def fit_nodes(
    model: nn.Module,
    x: Tensor,
    adjacency: Tensor,
    y: Tensor,
    seen: Tensor,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    epochs: int = 60,
    labels: Tensor | None = None,
) -> Given:
    """Train on the marked nodes of one graph, whole; the other nodes' labels are -100."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-2)
    initial = copy.deepcopy(model.state_dict())
    train = torch.where(seen, y if labels is None else labels, -100)
    held = torch.where(seen, -100, y)
    history = []
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        value = F.cross_entropy(model(x, adjacency), train)
        value.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            history.append(
                {"loss": value.item(), "val_loss": F.cross_entropy(model(x, adjacency), held).item()}
            )
    return {
        "model": model,
        "data": ((x, adjacency), train),
        "validation": ((x, adjacency), held),
        "loss": "cross_entropy",
        "optimizer": optimizer,
        "batch_size": len(y),
        "history": history,
        "initial": initial,
    }


# --- data ---------------------------------------------------------------------------------------------------


def tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return float inputs and labels (integers stay integers)."""
    return torch.tensor(x, dtype=torch.float32), torch.tensor(
        y, dtype=torch.int64 if np.issubdtype(y.dtype, np.integer) else torch.float32
    )


def halves(x: Any, y: Any, seed: int, share: float = 0.7) -> tuple[Pair, Pair]:
    """Split at random into training and validation."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    cut = int(share * len(y))
    a, b = order[:cut], order[cut:]
    return (take(x, a, len(y)), y[a]), (take(x, b, len(y)), y[b])


def standardised(train: Pair, validation: Pair) -> tuple[Pair, Pair]:
    """Scale both by the training columns."""
    mean, deviation = train[0].mean(0), train[0].std(0).clamp_min(1e-6)
    return ((train[0] - mean) / deviation, train[1]), ((validation[0] - mean) / deviation, validation[1])


@lru_cache(maxsize=8)
def _bundle(name: str) -> tuple[np.ndarray, np.ndarray]:
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def digits(seed: int, n: int = 900, *, flat: bool = False, top: float = 1.0) -> tuple[Pair, Pair]:
    """Return scikit-learn's 8 x 8 digits with values from 0 to ``top``."""
    x, y = tensors(*_bundle("digits"))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:n]
    x = x[order] / 16 * top
    return halves(x if flat else x.reshape(-1, 1, 8, 8), y[order], seed)


def bundled(name: str, seed: int, *, scaled: bool = True, share: float = 0.7) -> tuple[Pair, Pair]:
    """Return scikit-learn's breast_cancer, wine or iris, split."""
    train, validation = halves(*tensors(*_bundle(name)), seed, share)
    return standardised(train, validation) if scaled else (train, validation)


def blobs(
    seed: int,
    n: int = 600,
    features: int = 10,
    classes: int = 3,
    *,
    apart: float = 2.5,
    per_class: int = 1,
    useful: int | None = None,
) -> tuple[Pair, Pair]:
    """Return Gaussian clusters at a distance ``apart`` from the origin, in the first ``useful`` of the columns."""
    rng = np.random.default_rng(seed)
    useful = useful or features
    centres = rng.normal(size=(classes * per_class, useful))
    centres *= apart / np.linalg.norm(centres, axis=1, keepdims=True)
    if len(centres) == 2:
        centres[1] = -centres[0]  # so that two classes overlap as much for every seed
    which = rng.integers(classes * per_class, size=n)
    x = rng.normal(size=(n, features))
    x[:, :useful] += centres[which]
    return halves(*tensors(x, which % classes), seed)


def houses(seed: int, n: int = 800, *, raw: bool = False, dollars: bool = False) -> tuple[Pair, Pair]:
    """Return a table like California's: eight columns and a price, by default both in units of deviation."""
    rng = np.random.default_rng(seed)
    income = rng.lognormal(1.2, 0.45, n)
    age = rng.uniform(1, 52, n)
    rooms = rng.lognormal(1.6, 0.3, n)
    bedrooms = rooms / rng.uniform(4, 6, n)
    people = rng.lognormal(7, 0.6, n)
    occupancy = rng.lognormal(1.0, 0.25, n)
    north, east = rng.uniform(32, 42, n), rng.uniform(-124, -114, n)
    coast = np.exp(-(((north - 34) / 2) ** 2) - ((east + 118) / 2.5) ** 2)
    price = (
        45e3 * income + 120e3 * coast - 18e3 * occupancy + 600 * age + 12e3 * np.sin(rooms) + 90e3
    ) + rng.normal(0, 22e3, n)
    x = np.stack([income, age, rooms, bedrooms, people, occupancy, north, east], 1)
    train, validation = halves(*tensors(x, price), seed)
    if not raw:
        train, validation = standardised(train, validation)
    if not dollars:
        mean, deviation = train[1].mean(), train[1].std()
        train, validation = (
            (train[0], (train[1] - mean) / deviation),
            (validation[0], (validation[1] - mean) / deviation),
        )
    return train, validation


def waves(seed: int, n: int = 500, length: int = 32, *, noise: float = 0.3) -> tuple[Pair, Pair]:
    """Return sines, squares and saw teeth of random phase and period, to be told apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    phase = rng.uniform(0, 2 * np.pi, (n, 1)) + 2 * np.pi * np.arange(length) / rng.uniform(9, 13, (n, 1))
    sine, saw = np.sin(phase), (phase / np.pi) % 2 - 1
    x = np.where(y[:, None] == 0, sine, np.where(y[:, None] == 1, np.sign(sine), saw))
    x = x + noise * rng.normal(size=x.shape)
    return halves(*tensors(x[:, :, None], y), seed)


def series(seed: int, n: int = 600, length: int = 16, *, ahead: int = 1) -> tuple[Pair, Pair]:
    """Return windows of a noisy sum of seasons and the value that follows, earlier ones for training."""
    rng = np.random.default_rng(seed)
    t = np.arange(n + length + ahead)
    value = np.sin(2 * np.pi * t / 17 + rng.uniform(0, 6)) + 0.6 * np.sin(2 * np.pi * t / 7.3)
    value = (value + 0.15 * rng.normal(size=len(t))) / 0.85
    x = np.stack([value[i : i + length] for i in range(n)])[:, :, None]
    y = value[length + ahead - 1 : length + ahead - 1 + n]
    x, y = tensors(x, y)
    cut = int(0.7 * n)
    return (x[:cut], y[:cut]), (x[cut + length :], y[cut + length :])


def topics(
    seed: int, n: int = 500, length: int = 16, classes: int = 4, *, vocabulary: int = 80, share: float = 0.3
) -> tuple[Pair, Pair]:
    """Return made texts: a share of the words comes from the topic's own twelve, the rest from all."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    own = y[:, None] * 12 + rng.integers(12, size=(n, length))
    x = np.where(rng.random((n, length)) < share, own, rng.integers(vocabulary, size=(n, length)))
    return halves(torch.tensor(x), torch.tensor(y), seed)


def negations(seed: int, n: int = 700, length: int = 12) -> tuple[Pair, Pair]:
    """Return made reviews with one word of praise or blame, which a "not" before it turns round (words 1, 2-5, 6-9)."""
    rng = np.random.default_rng(seed)
    x = rng.integers(10, 60, size=(n, length))
    good, turned = rng.integers(2, size=n), rng.integers(2, size=n)
    place = rng.integers(1, length, size=n)
    row = np.arange(n)
    x[row, place] = np.where(good == 1, rng.integers(2, 6, n), rng.integers(6, 10, n))
    x[row, place - 1] = np.where(turned == 1, 1, x[row, place - 1])
    apart = (place + rng.integers(2, length - 1, n)) % length  # "not" stands elsewhere in the others
    apart = np.where((apart == place) | (apart == place - 1), (place + 1) % length, apart)
    x[row, apart] = np.where((turned == 0) & (apart != place - 1), 1, x[row, apart])
    return halves(torch.tensor(x), torch.tensor(good ^ turned), seed)


def communities(
    seed: int,
    n: int = 160,
    classes: int = 4,
    *,
    inside: float = 0.16,
    outside: float = 0.02,
    signal: float = 0.7,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return features, normalised adjacency, classes and the marked nodes of a stochastic block model."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    chance = np.where(y[:, None] == y, inside, outside)
    a = np.triu(rng.random((n, n)) < chance, 1).astype(float)
    a = a + a.T + np.eye(n)
    root = 1 / np.sqrt(a.sum(1))
    x = rng.normal(size=(n, 16))
    x[np.arange(n), y] += signal * 2
    seen = torch.tensor(rng.random(n) < 0.5)
    return (
        *tensors(x, y)[:1],
        torch.tensor(root[:, None] * a * root, dtype=torch.float32),
        torch.tensor(y),
        seen,
    )


def ring(seed: int, n: int = 600, modes: int = 6) -> Tensor:
    """Return points of ``modes`` narrow Gaussians on a circle of radius 2."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * rng.integers(modes, size=n) / modes
    x = 2 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * rng.normal(size=(n, 2))
    return torch.tensor(x, dtype=torch.float32)


# --- networks -----------------------------------------------------------------------------------------------


def mlp(
    *sizes: int, activation: type[nn.Module] = nn.ReLU, dropout: float = 0.0, norm: bool = False
) -> nn.Sequential:
    """Return a perceptron with these widths, the first the inputs' and the last the outputs'."""
    layers: list[nn.Module] = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm else []), activation()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def cnn(width: int = 8, classes: int = 10, *, norm: bool = False, dropout: float = 0.0) -> nn.Sequential:
    """Return two convolutions with pooling for 8 x 8 pictures and a linear head."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.BatchNorm2d(width) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width) if norm else nn.Identity(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(8 * width, classes),
    )


class Filters(nn.Module):
    """Two convolutions over time, mean pooled."""

    def __init__(self, classes: int, width: int = 16, inputs: int = 1) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(inputs, width, 5), nn.Conv1d(width, width, 5)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of (n, length, inputs)."""
        return self.head(F.relu(self.two(F.relu(self.one(x.transpose(1, 2))))).mean(2))


class Recurrent(nn.Module):
    """A recurrent net whose last state is read by a linear head."""

    def __init__(
        self, outputs: int, width: int = 24, cell: type[nn.RNNBase] = nn.GRU, inputs: int = 1
    ) -> None:
        super().__init__()
        self.cell = cell(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of (n, length, inputs)."""
        return self.head(self.cell(x)[0][:, -1])


class Bag(nn.Module):
    """The mean of the words' vectors, then a perceptron."""

    def __init__(self, classes: int, width: int = 24, vocabulary: int = 80, dropout: float = 0.0) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.net = mlp(width, width, classes, dropout=dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of token ids (n, length)."""
        return self.net(self.words(x).mean(1))


class Words(nn.Module):
    """An embedding and a GRU."""

    def __init__(self, classes: int, width: int = 24, vocabulary: int = 80) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.rest = Recurrent(classes, width, inputs=width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of token ids (n, length)."""
        return self.rest(self.words(x))


class Transformer(nn.Module):
    """A small encoder over token ids, mean pooled."""

    def __init__(
        self, classes: int, width: int = 16, vocabulary: int = 80, length: int = 16, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(length, width))
        self.block = nn.TransformerEncoderLayer(
            width, 2, 2 * width, dropout, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of token ids (n, length)."""
        return self.head(self.block(self.words(x) + self.places[: x.shape[1]]).mean(1))


class GCN(nn.Module):
    """Graph convolutions by a normalised adjacency matrix."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:]))

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the scores of every node."""
        for layer in self.layers[:-1]:
            x = F.relu(adjacency @ layer(x))
        return adjacency @ self.layers[-1](x)


class Picked(nn.Module):
    """A graph net asked about the nodes of an index."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, index: Tensor, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the scores of the nodes in ``index``."""
        return self.net(x, adjacency)[index]


class VAE(nn.Module):
    """A variational autoencoder of flat pictures."""

    def __init__(
        self, inputs: int = 64, latent: int = 6, width: int = 48, last: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = mlp(inputs, width, 2 * latent)
        self.decoder = nn.Sequential(mlp(latent, width, inputs), last or nn.Identity())

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of the code."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return mean, log_variance

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstruction, mean and log-variance; in training from a sampled code."""
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp() if self.training else mean
        return self.decoder(z), mean, log_variance

    def sample(self, n: int) -> Tensor:
        """Draw new pictures."""
        return self.decoder(torch.randn(n, self.latent))


class GAN(nn.Module):
    """A generator and its discriminator, whose scores are the output."""

    def __init__(self, latent: int = 4, width: int = 32, outputs: int = 2) -> None:
        super().__init__()
        self.latent = latent
        self.generator = mlp(latent, width, width, outputs)
        self.discriminator = mlp(outputs, width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the discriminator's logits."""
        return self.discriminator(x)

    def sample(self, n: int) -> Tensor:
        """Draw new points."""
        return self.generator(torch.randn(n, self.latent))
