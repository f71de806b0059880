"""What the eighth author's cases share: a course teacher's data sets, small models and an ordinary training loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[Any, Any]
Loss = str | Callable[[Any, Any], Tensor]

NAMED: dict[str, Callable[[Any, Any], Tensor]] = {
    "cross_entropy": lambda o, y: F.cross_entropy(
        o.flatten(0, 1) if o.dim() == 3 else o, y.flatten() if o.dim() == 3 else y
    ),
    "mse": lambda o, y: F.mse_loss(o.reshape(y.shape), y),
    "bce_with_logits": lambda o, y: F.binary_cross_entropy_with_logits(o.reshape(y.shape), y),
    "nll": lambda o, y: F.nll_loss(o, y),
}


def adam(rate: float = 3e-3, decay: float = 0.0) -> Callable[[Any], torch.optim.Optimizer]:
    """Return a maker of Adam."""
    return lambda parameters: torch.optim.Adam(parameters, lr=rate, weight_decay=decay)


def sgd(
    rate: float = 0.1, momentum: float = 0.0, decay: float = 0.0
) -> Callable[[Any], torch.optim.Optimizer]:
    """Return a maker of gradient descent."""
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay)


def pick(x: Any, rows: Tensor, n: int) -> tuple[Any, ...]:
    """Return the given rows of every input that has one row per target."""
    xs = x if isinstance(x, tuple) else (x,)
    return tuple(v[rows] if len(v) == n else v for v in xs)


def fit(
    model: nn.Module,
    data: Any,
    validation: Any = None,
    *,
    loss: Loss = "cross_entropy",
    optimizer: Callable[[Any], torch.optim.Optimizer] | torch.optim.Optimizer | None = None,
    epochs: int = 20,
    batch: int | None = 32,
    give: str = "vohib",
    clear: bool = True,
    scheduler: Callable[[Any], Any] | None = None,
    norm: float | None = None,
) -> dict[str, Any]:
    """Train as a student would and return what ``diagnose`` is given.

    ``give``: v(alidation), o(ptimizer), h(istory), i(nitial), b(atch size) are handed over. ``batch=None`` is full batch.
    """
    x, y = data if isinstance(data, tuple) else (data, data)
    n = len(y)
    initial = copy.deepcopy(model.state_dict())
    if not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = (optimizer or adam())([p for p in model.parameters() if p.requires_grad])
    plan = scheduler(optimizer) if scheduler else None
    measure = NAMED[loss] if isinstance(loss, str) else loss
    history = []
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        order = torch.randperm(n) if batch else torch.arange(n)
        for rows in order.split(batch or n):
            if len(rows) < 2 and n > 1 and (batch or n) > 1:
                continue
            inputs = pick(x, rows, n) if batch else (x if isinstance(x, tuple) else (x,))
            value = measure(model(*inputs), y[rows] if batch else y)
            if clear:
                optimizer.zero_grad()
            value.backward()
            if norm:
                nn.utils.clip_grad_norm_(model.parameters(), norm)
            optimizer.step()
            total += value.item() * len(rows)
            seen += len(rows)
        if plan:
            plan.step()
        entry = {"loss": total / max(seen, 1)}
        if validation is not None and "h" in give:
            entry["val_loss"] = held(model, validation, measure)
        history.append(entry)
    model.eval()
    built: dict[str, Any] = {"model": model, "data": data, "loss": loss}
    if "v" in give and validation is not None:
        built["validation"] = validation
    if "o" in give:
        built["optimizer"] = optimizer
    if "h" in give:
        built["history"] = history
    if "i" in give:
        built["initial"] = initial
    if "b" in give and batch:
        built["batch_size"] = batch
    return built


def held(model: nn.Module, validation: Any, measure: Callable[[Any, Any], Tensor]) -> float:
    """Return the loss on held-out rows."""
    x, y = validation if isinstance(validation, tuple) else (validation, validation)
    model.eval()
    with torch.no_grad():
        return measure(model(*x) if isinstance(x, tuple) else model(x), y).item()


# data ------------------------------------------------------------------------------------------------------------------


def split(x: Any, y: Any, seed: int, share: float = 0.3) -> tuple[Pair, Pair]:
    """Return training and held-out rows as tensors."""
    x, y = np.asarray(x), np.asarray(y)
    order = np.random.default_rng(seed).permutation(len(y))
    cut = int(len(y) * share)
    x = x.astype(np.int64 if x.dtype.kind in "iu" else np.float32)
    y = y.astype(np.int64 if y.dtype.kind in "iu" else np.float32)
    xt, yt = torch.from_numpy(x), torch.from_numpy(y)
    return (xt[order[cut:]], yt[order[cut:]]), (xt[order[:cut]], yt[order[:cut]])


def scaled(train: Pair, test: Pair) -> tuple[Pair, Pair]:
    """Standardise the columns by the training rows."""
    mean, std = train[0].mean(0), train[0].std(0)
    std = torch.where(std > 0, std, torch.ones_like(std))
    return ((train[0] - mean) / std, train[1]), ((test[0] - mean) / std, test[1])


def real(name: str, seed: int, standard: bool = True, share: float = 0.3) -> tuple[Pair, Pair]:
    """Return one of scikit-learn's tables; targets as they are."""
    bunch = getattr(datasets, f"load_{name}")()
    pair = split(bunch.data.astype(np.float32), bunch.target, seed, share)
    return scaled(*pair) if standard else pair


def diabetes(seed: int) -> tuple[Pair, Pair]:
    """Return the diabetes table, inputs and target standardised."""
    (x, y), (u, v) = real("diabetes", seed)
    mean, std = y.mean(), y.std()
    return (x, (y - mean) / std), (u, (v - mean) / std)


def cancer(seed: int) -> tuple[Pair, Pair]:
    """Return the breast-cancer table with float targets."""
    (x, y), (u, v) = real("breast_cancer", seed)
    return (x, y.float()), (u, v.float())


def digits(seed: int, flat: bool = False, limit: int = 1800) -> tuple[Pair, Pair]:
    """Return 8x8 digits in [-1, 1], as images or rows."""
    x, y = datasets.load_digits(return_X_y=True)
    x = (x / 8 - 1).astype(np.float32)
    order = np.random.default_rng(seed + 1).permutation(len(y))[:limit]
    x = x[order] if flat else x[order].reshape(-1, 1, 8, 8)
    return split(x, y[order], seed)


def friedman(seed: int, n: int = 700, noise: float = 0.5) -> tuple[Pair, Pair]:
    """Return Friedman's first regression, standardised."""
    x, y = datasets.make_friedman1(n, 8, noise=noise, random_state=seed)
    return scaled(*split(x, (y - y.mean()) / y.std(), seed))


def blobs(
    seed: int, n: int = 600, classes: int = 4, features: int = 12, apart: float = 1.6
) -> tuple[Pair, Pair]:
    """Return a made classification table."""
    x, y = datasets.make_classification(
        n,
        features,
        n_informative=min(features, 8),
        n_redundant=0,
        n_classes=classes,
        class_sep=apart,
        flip_y=0.0,
        n_clusters_per_class=1,
        random_state=seed,
    )
    return scaled(*split(x, y, seed))


def moons(seed: int, n: int = 600, noise: float = 0.15) -> tuple[Pair, Pair]:
    """Return two moons."""
    x, y = datasets.make_moons(n, noise=noise, random_state=seed)
    return scaled(*split(x, y, seed))


def waves(
    seed: int, n: int = 600, length: int = 40, noise: float = 0.4, classes: int = 3
) -> tuple[Pair, Pair]:
    """Return noisy sines, squares and saw-teeth of random phase and period: (n, length, 1)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    phase = rng.random((n, 1)) + np.arange(length) / rng.uniform(8, 14, (n, 1))
    shape = np.stack([np.sin(2 * np.pi * phase), np.sign(np.sin(2 * np.pi * phase)), 2 * (phase % 1) - 1])
    x = shape[y, np.arange(n)] * 1.2 + rng.normal(0, noise, (n, length))
    return split(x[..., None].astype(np.float32), y, seed)


def forecast(seed: int, n: int = 600, length: int = 24, noise: float = 0.2) -> tuple[Pair, Pair]:
    """Return windows of many unrelated two-tone series, and the value after each window."""
    rng = np.random.default_rng(seed)
    t = np.arange(length + 1) + rng.uniform(0, 100, (n, 1))
    a, b = rng.uniform(0.5, 1.5, (2, n, 1))
    x = a * np.sin(t * 2 * np.pi / 9) + b * np.sin(t * 2 * np.pi / 17) + rng.normal(0, noise, (n, length + 1))
    return split(x[:, :-1, None].astype(np.float32), x[:, -1].astype(np.float32), seed)


def reviews(seed: int, n: int = 900, length: int = 20, words: int = 60) -> tuple[Pair, Pair]:
    """Return token rows: words 1-8 praise, 9-16 complain; five opinions each, mostly of one kind; two classes."""
    rng = np.random.default_rng(seed)
    x = rng.integers(17, words, (n, length))
    tone = rng.integers(0, 2, n)
    for row, t in zip(x, tone, strict=True):
        kinds = np.where(rng.random(5) < 0.8, t, 1 - t)
        row[rng.choice(length, 5, replace=False)] = rng.integers(1, 9, 5) + 8 * (1 - kinds)
    praise = (x < 9).sum(1) - ((x > 8) & (x < 17)).sum(1)
    return split(x, (praise > 0).astype(int), seed)


def topics(
    seed: int, n: int = 900, classes: int = 4, length: int = 14, told: int = 4, words: int = 60
) -> tuple[Pair, Pair]:
    """Return token rows in which ``told`` words belong to the row's topic (four words per topic)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.integers(4 * classes + 1, words, (n, length))
    for row, c in zip(x, y, strict=True):
        row[rng.choice(length, told, replace=False)] = rng.integers(1, 5, told) + 4 * c
    return split(x, y, seed)


def letters(seed: int, length: int = 8, n: int = 2400) -> tuple[Pair, Pair]:
    """Return windows of scikit-learn's data descriptions and the letter that follows (27 symbols); the last part is held out."""
    names = ("wine", "breast_cancer", "diabetes", "iris", "digits", "linnerud")
    text = "".join(getattr(datasets, f"load_{k}")().DESCR for k in names)
    text = " ".join("".join(c if c.isalpha() and c.isascii() else " " for c in text.lower()).split())
    codes = torch.tensor([0 if c == " " else ord(c) - 96 for c in text])
    windows = codes.unfold(0, length + 1, 1)
    cut = int(len(windows) * 0.8)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(cut - length)[:n])
    test = windows[cut::2]
    train = windows[order]
    return (train[:, :-1], train[:, -1]), (test[:, :-1], test[:, -1])


def sets(seed: int, n: int = 600, size: int = 16) -> tuple[Pair, Pair]:
    """Return point clouds: a ring, a blob or two clumps, turned and moved at random."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    angle = rng.uniform(0, 2 * np.pi, (n, size))
    ring = np.stack([np.cos(angle), np.sin(angle)], 2) * 1.2
    blob = rng.normal(0, 0.8, (n, size, 2))
    way = rng.uniform(0, 2 * np.pi, (n, 1))
    sign = rng.choice([-1, 1], (n, size))
    clumps = np.stack([np.cos(way) * sign, np.sin(way) * sign], 2) * 1.2
    x = np.stack([ring, blob, clumps])[y, np.arange(n)] + rng.normal(0, 0.15, (n, size, 2))
    return split(x.astype(np.float32), y, seed)


def citations(
    seed: int, n: int = 240, classes: int = 4, inside: float = 0.07, outside: float = 0.008, tell: float = 0.8
) -> tuple[Pair, Pair]:
    """Return a block-model graph: ((features, normalised adjacency), labels); labels of the other part are -100."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    edges = rng.random((n, n)) < np.where(y[:, None] == y, inside, outside)
    a = np.triu(edges, 1)
    a = a + a.T + np.eye(n)
    d = a.sum(1) ** -0.5
    adjacency = torch.from_numpy((a * d[:, None] * d).astype(np.float32))
    x = torch.from_numpy(
        (rng.normal(0, 1, (classes, 16))[y] * tell + rng.normal(0, 1, (n, 16))).astype(np.float32)
    )
    train, test = torch.from_numpy(y), torch.from_numpy(y).clone()
    mine = torch.from_numpy(rng.random(n) < 0.5)
    train = torch.where(mine, train, -100)
    test = torch.where(mine, -100, test)
    return ((x, adjacency), train), ((x, adjacency), test)


def molecules(seed: int, n: int = 400, nodes: int = 10) -> tuple[Pair, Pair]:
    """Return small graphs with three features per node; the class is whether nodes of type 0 are mostly linked to type 1."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    kind = rng.integers(0, 3, (n, nodes))
    zero_one = (kind[:, :, None] == 0) & (kind[:, None] == 1)
    zero_two = (kind[:, :, None] == 0) & (kind[:, None] == 2)
    chance = np.full((n, nodes, nodes), 0.15)
    chance = np.where(zero_one, np.where(y, 0.6, 0.1)[:, None, None], chance)
    chance = np.where(zero_two, np.where(y, 0.1, 0.6)[:, None, None], chance)
    a = rng.random(chance.shape) < chance
    a = (a | a.transpose(0, 2, 1)) & ~np.eye(nodes, dtype=bool)
    a = a + np.eye(nodes)
    a = a / a.sum(2, keepdims=True)
    x = torch.from_numpy(np.eye(3)[kind].astype(np.float32))
    t, labels = torch.from_numpy(a.astype(np.float32)), torch.from_numpy(y)
    cut = n // 3
    return ((x[cut:], t[cut:]), labels[cut:]), ((x[:cut], t[:cut]), labels[:cut])


# models ----------------------------------------------------------------------------------------------------------------


def mlp(
    *sizes: int,
    act: Callable[[], nn.Module] = nn.ReLU,
    drop: float = 0.0,
    last: nn.Module | None = None,
) -> nn.Sequential:
    """Return a stack of linear layers."""
    parts: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
        parts.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            parts.append(act())
            if drop:
                parts.append(nn.Dropout(drop))
    if last is not None:
        parts.append(last)
    return nn.Sequential(*parts)


class Net(nn.Module):
    """An encoder, what is done with its answer, and a head."""

    def __init__(
        self, encoder: nn.Module, head: nn.Module, between: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.between = encoder, head, between

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x)
        return self.head(self.between(h) if self.between else h)


class After(nn.Module):
    """A model and a last function."""

    def __init__(self, model: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(self.model(*x))


def cnn(classes: int = 10, channels: int = 8, norm: bool = False, drop: float = 0.0) -> nn.Sequential:
    """Return a small network for 8x8 images."""
    parts: list[nn.Module] = [nn.Conv2d(1, channels, 3, padding=1)]
    parts += [nn.BatchNorm2d(channels)] if norm else []
    parts += [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3, padding=1)]
    parts += [nn.BatchNorm2d(2 * channels)] if norm else []
    parts += [nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    parts += [nn.Dropout(drop)] if drop else []
    return nn.Sequential(*parts, nn.Linear(8 * channels, classes))


class Recurrent(nn.Module):
    """A recurrent layer over numbers or tokens and a head on its last state."""

    def __init__(
        self,
        cell: str = "GRU",
        inputs: int = 1,
        hidden: int = 24,
        outputs: int = 3,
        words: int = 0,
        between: Callable[[Tensor], Tensor] | None = None,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, inputs) if words else nn.Identity()
        self.rnn = getattr(nn, cell)(inputs, hidden, batch_first=True)
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(hidden, outputs)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        h = self.rnn(self.embed(x))[0][:, -1]
        return self.head(self.drop(self.between(h) if self.between else h))


class Transformer(nn.Module):
    """Token and place embeddings, encoder layers, mean, head."""

    def __init__(
        self,
        words: int = 60,
        length: int = 20,
        width: int = 24,
        layers: int = 1,
        outputs: int = 2,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(0.1 * torch.randn(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, drop, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x) + self.places
        for layer in self.layers:
            h = layer(h)
        return self.head(h.mean(1))


class Convolved(nn.Module):
    """Graph convolutions with a dense adjacency as the second input; ``pool`` for one answer per graph."""

    def __init__(self, inputs: int, width: int, outputs: int, layers: int = 2, pool: bool = False) -> None:
        super().__init__()
        sizes = [inputs] + [width] * (layers - 1) + [width if pool else outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.head = nn.Linear(width, outputs) if pool else None

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = a @ layer(x)
            if self.head is not None or i < len(self.layers) - 1:
                x = x.relu()
        return self.head(x.mean(-2)) if self.head is not None else x


class DeepSet(nn.Module):
    """A network per point, a mean, a network."""

    def __init__(
        self, inputs: int = 2, width: int = 32, outputs: int = 3, act: Callable[[], nn.Module] = nn.ReLU
    ) -> None:
        super().__init__()
        self.point = mlp(inputs, width, width, act=act)
        self.head = mlp(width, width, outputs, act=act)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.point(x).mean(1))


class Signal(nn.Module):
    """One-dimensional convolutions over (n, length, channels), a pooling over time and a head."""

    def __init__(
        self,
        kernels: tuple[int, ...] = (5, 5),
        width: int = 16,
        outputs: int = 2,
        inputs: int = 1,
        pool: str = "max",
        stride: int = 1,
    ) -> None:
        super().__init__()
        sizes = [inputs] + [width] * len(kernels)
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, k, padding=k // 2, stride=stride)
            for a, b, k in zip(sizes, sizes[1:], kernels, strict=False)
        )
        self.head = nn.Linear(width, outputs)
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x.amax(2) if self.pool == "max" else x.mean(2))


class VAE(nn.Module):
    """A variational autoencoder; returns reconstruction, mean and log-variance."""

    def __init__(self, inputs: int = 64, width: int = 48, code: int = 6) -> None:
        super().__init__()
        self.body = mlp(inputs, width, width)
        self.mean, self.spread = nn.Linear(width, code), nn.Linear(width, code)
        self.decoder = mlp(code, width, inputs)
        self.code = code

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x.flatten(1)).relu()
        return self.mean(h), self.spread(h).clamp(-8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, v = self.encode(x)
        z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
        return self.decoder(z).reshape(x.shape), m, v

    def sample(self, n: int) -> Tensor:
        return self.decoder(torch.randn(n, self.code))


def evidence(weight: float = 1.0, noise: float = 0.3) -> Callable[[Any, Any], Tensor]:
    """Return the negative evidence bound with a Gaussian decoder of the given noise."""

    def loss(output: Any, x: Tensor) -> Tensor:
        r, m, v = output
        fit = ((r - x) ** 2).flatten(1).sum(1) / (2 * noise**2)
        kl = 0.5 * (m**2 + v.exp() - 1 - v).sum(1)
        return (fit + weight * kl).mean()

    return loss


class Generator(nn.Module):
    """A generator with ``sample``."""

    def __init__(self, net: nn.Module, code: int) -> None:
        super().__init__()
        self.net, self.code = net, code

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)

    def sample(self, n: int) -> Tensor:
        return self.net(torch.randn(n, self.code))


def ring(n: int, seed: int) -> Tensor:
    """Return eight clumps on a circle."""
    rng = np.random.default_rng(seed)
    angle = rng.integers(0, 8, n) * np.pi / 4
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * 2 + rng.normal(0, 0.1, (n, 2))
    return torch.from_numpy(x.astype(np.float32))


def matched(x: Tensor, code: int, width: int, steps: int) -> Generator:
    """Train a generator by the energy distance: the healthy twin."""
    g = Generator(mlp(code, width, width, x.shape[1]), code)
    optimizer = torch.optim.Adam(g.parameters(), lr=3e-3)
    for _ in range(steps):
        a, b, c = x[torch.randint(len(x), (128,))], g.sample(128), g.sample(128)
        value = 2 * torch.cdist(a, b).mean() - torch.cdist(b, c).mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return g.eval()
