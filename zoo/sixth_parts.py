"""Data and loops of the sixth author's cases."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine, make_friedman1
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[Any, Any]
LOSSES: dict[str, Callable[[Any, Any], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def floats(x: Any) -> Tensor:
    """Return single-precision numbers."""
    return torch.as_tensor(np.asarray(x), dtype=torch.float32)


def parted(x: Tensor, y: Tensor, seed: int, share: float = 0.3) -> tuple[Pair, Pair]:
    """Return shuffled training and held-out rows."""
    order = torch.as_tensor(np.random.default_rng(seed + 77).permutation(len(x)))
    cut = int(len(x) * (1 - share))
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def standard(train: Pair, held: Pair) -> tuple[Pair, Pair]:
    """Return both with the training columns' mean 0 and deviation 1."""
    m, s = train[0].mean(0), train[0].std(0).clamp_min(1e-6)
    return ((train[0] - m) / s, train[1]), ((held[0] - m) / s, held[1])


# tables


def cancer(seed: int, scaled: bool = True) -> tuple[Pair, Pair]:
    """569 tumours, 30 columns."""
    x, y = load_breast_cancer(return_X_y=True)
    both = parted(floats(x), torch.as_tensor(y).long(), seed)
    return standard(*both) if scaled else both


def wine(seed: int, scaled: bool = True) -> tuple[Pair, Pair]:
    """178 wines of three growers."""
    x, y = load_wine(return_X_y=True)
    both = parted(floats(x), torch.as_tensor(y).long(), seed, 0.35)
    return standard(*both) if scaled else both


def diabetes(seed: int) -> tuple[Pair, Pair]:
    """442 patients, standardised; the target in its own unit."""
    x, y = load_diabetes(return_X_y=True)
    return standard(*parted(floats(x), floats(y), seed))


def friedman(seed: int, n: int = 900, noise: float = 0.5, columns: int = 8) -> tuple[Pair, Pair]:
    """A smooth nonlinear regression with standardised target of shape (n, 1)."""
    x, y = make_friedman1(n, n_features=columns, noise=noise, random_state=seed)
    y = (y - y.mean()) / y.std()
    return standard(*parted(floats(x), floats(y)[:, None], seed))


def blobs(seed: int, n: int = 900, d: int = 10, classes: int = 4, spread: float = 2.0) -> tuple[Pair, Pair]:
    """Gaussian classes, each of two clouds, a little overlapping."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, 2, d)) * spread / math.sqrt(2)
    y = rng.integers(classes, size=n)
    x = centres[y, rng.integers(2, size=n)] + rng.normal(size=(n, d))
    return standard(*parted(floats(x), torch.as_tensor(y), seed))


def circles(seed: int, n: int = 700, noise: float = 0.1) -> tuple[Pair, Pair]:
    """A disc within a ring."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    r = np.where(y == 1, 1.6, 0.7) + noise * rng.normal(size=n)
    a = rng.uniform(0, 2 * np.pi, n)
    return parted(floats(np.stack([r * np.cos(a), r * np.sin(a)], 1)), torch.as_tensor(y), seed)


# images


def digits(seed: int, n: int | None = None) -> tuple[Pair, Pair]:
    """8 x 8 handwritten digits in [0, 1], with a channel."""
    x, y = load_digits(return_X_y=True)
    train, held = parted(floats(x / 16).reshape(-1, 1, 8, 8), torch.as_tensor(y).long(), seed)
    return (train[0][:n], train[1][:n]), held


def flat(*pairs: Pair) -> tuple[Pair, ...]:
    """Return pictures as rows, with a little noise of the scanner (so that no pixel is constant)."""
    rng = np.random.default_rng(len(pairs[0][1]))
    return tuple((x.flatten(1) + floats(0.04 * rng.normal(size=(len(x), 64))), y) for x, y in pairs)


def shapes(
    seed: int, n: int = 800, size: int = 16, noise: float = 0.15, classes: int = 4
) -> tuple[Pair, Pair]:
    """Squares, crosses, discs and ladders somewhere in a noisy picture."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    x = noise * rng.normal(size=(n, 1, size, size))
    grid = np.arange(7) - 3
    a, b = np.meshgrid(grid, grid, indexing="ij")
    stamp = [
        np.maximum(abs(a), abs(b)) == 3,
        (a == 0) | (b == 0),
        a**2 + b**2 <= 9,
        a % 2 == 1,
    ]
    for i, c in enumerate(y):
        r, s = rng.integers(0, size - 7 + 1, size=2)
        x[i, 0, r : r + 7, s : s + 7] += rng.uniform(0.7, 1.2) * stamp[c]
    return parted(floats(x), torch.as_tensor(y), seed)


# sequences


def waves(
    seed: int, n: int = 700, length: int = 48, noise: float = 0.2, channels: int = 1
) -> tuple[Pair, Pair]:
    """Sine, square, saw and double-humped waves of random phase: (n, channels, length)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    t = np.arange(length) / length
    p = 2 * np.pi * (rng.uniform(2.5, 3.5, (n, 1)) * t + rng.uniform(0, 1, (n, 1)))
    every = np.stack(
        [
            np.sin(p),
            np.sign(np.sin(p)) * 0.8,
            1.6 * ((p / 2 / np.pi) % 1 - 0.5),
            np.sin(p) * 0.7 + np.sin(2 * p) * 0.7,
        ]
    )
    x = every[y, np.arange(n)][:, None] + noise * rng.normal(size=(n, channels, length))
    return parted(floats(x), torch.as_tensor(y), seed)


def recall(seed: int, n: int = 600, length: int = 30, tokens: int = 4) -> tuple[Pair, Pair]:
    """The answer is the first token; noise follows. (n, length, tokens) one-hot and noise."""
    rng = np.random.default_rng(seed)
    s = rng.integers(tokens, size=(n, length))
    x = np.eye(tokens)[s]
    return parted(floats(x), torch.as_tensor(s[:, 0]), seed)


def series(seed: int, n: int = 900, window: int = 24, noise: float = 0.1) -> tuple[Pair, Pair]:
    """Windows of a quasi-periodic series and the next value; the later part is held out. (n, window, 1), (n, 1)."""
    rng = np.random.default_rng(seed)
    t = np.arange(n + window + 1)
    f = rng.uniform(0.9, 1.1)
    s = (
        np.sin(2 * np.pi * t * f / 17)
        + 0.6 * np.sin(2 * np.pi * t * f / 7.3 + 1)
        + noise * rng.normal(size=len(t))
    )
    x = np.lib.stride_tricks.sliding_window_view(s, window)[:n]
    y = s[window : window + n]
    cut = int(0.7 * n)
    gap = cut + window
    x, y = floats(x)[..., None], floats(y)[:, None]
    return (x[:cut], y[:cut]), (x[gap:], y[gap:])


# texts

GOOD = "great lovely superb brilliant moving funny fresh charming clever warm rich honest".split()
BAD = "dull awful boring clumsy stale weak empty noisy silly flat cold messy".split()
PLAIN = (
    "the a film story actor scene plot music camera script was is and with very this that it we saw last night in town of "
    "about two hours my friend said people whole first part end again old new big small"
).split()
WORDS = ["<pad>", "not", *GOOD, *BAD, *PLAIN]


def reviews(
    seed: int, n: int = 700, length: int = 14, negation: bool = False, mixed: float = 0.1
) -> tuple[Pair, Pair]:
    """Made-up reviews as word numbers, and whether they praise."""
    rng = np.random.default_rng(seed)
    at = {w: i for i, w in enumerate(WORDS)}
    x = np.zeros((n, length), dtype=np.int64)
    y = rng.integers(2, size=n)
    for i in range(n):
        k = rng.integers(length - 4, length + 1)
        row = [at[w] for w in rng.choice(PLAIN, k)]
        spots = rng.choice(np.arange(1, k), 3, replace=False)
        turned = negation and rng.random() < 0.5
        side = y[i] ^ turned
        for j, p in enumerate(spots):
            other = j == 2 and rng.random() < mixed * 3
            row[p] = at[rng.choice(GOOD if side ^ other else BAD)]
        if turned:
            row[0] = at["not"]
        x[i, :k] = row
    return parted(torch.as_tensor(x), torch.as_tensor(y), seed)


def counts(pair: Pair, size: int = len(WORDS)) -> Pair:
    """Return bags of words."""
    x, y = pair
    return F.one_hot(x, size).sum(1)[:, 1:].float(), y


# graphs


def blocks(
    seed: int,
    n: int = 300,
    k: int = 3,
    inside: float = 0.06,
    outside: float = 0.008,
    d: int = 16,
    signal: float = 0.6,
) -> tuple[Tensor, Tensor, Tensor]:
    """A stochastic block model: node features, adjacency with loops (not normalised), labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    p = np.where(y[:, None] == y[None], inside, outside)
    a = np.triu(rng.random((n, n)) < p, 1)
    a = (a | a.T).astype(float) + np.eye(n)
    x = signal * rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))
    return floats(x), floats(a), torch.as_tensor(y)


def normal(a: Tensor) -> Tensor:
    """Return D^-1/2 A D^-1/2."""
    r = a.sum(1).clamp_min(1e-9).rsqrt()
    return r[:, None] * a * r


def masked(y: Tensor, seed: int, share: float = 0.5) -> tuple[Tensor, Tensor]:
    """Return the labels of the training nodes and of the others, -100 elsewhere."""
    pick = torch.as_tensor(np.random.default_rng(seed + 5).random(len(y)) < share)
    return torch.where(pick, y, -100), torch.where(pick, -100, y)


# generative


def ring(seed: int, n: int = 1000, modes: int = 8, spread: float = 0.05) -> Tensor:
    """Points around a circle."""
    rng = np.random.default_rng(seed)
    a = 2 * np.pi * rng.integers(modes, size=n) / modes
    return floats(np.stack([np.cos(a), np.sin(a)], 1) + spread * rng.normal(size=(n, 2)))


def faces(seed: int, n: int = 700, size: int = 10) -> Tensor:
    """Smooth bumps at a random place, of random width, flattened: two to three true factors."""
    rng = np.random.default_rng(seed)
    g = np.arange(size)
    c = rng.uniform(2, size - 3, (n, 2))
    w = rng.uniform(1.0, 2.2, (n, 1))
    a = np.exp(-((g - c[:, :1]) ** 2) / 2 / w**2)
    b = np.exp(-((g - c[:, 1:]) ** 2) / 2 / w**2)
    x = a[:, :, None] * b[:, None] + 0.02 * rng.random((n, size, size))
    return floats(x.clip(0, 1)).flatten(1)


# loops


def rows(x: Any, index: Tensor) -> Any:
    """Return rows of a tensor, a tuple or a dict of them."""
    if isinstance(x, dict):
        return {k: v[index] for k, v in x.items()}
    if isinstance(x, tuple):
        return tuple(v[index] for v in x)
    return x[index]


def call(model: nn.Module, x: Any) -> Any:
    """Call a module with one input, several or named ones."""
    if isinstance(x, dict):
        return model(**x)
    return model(*x) if isinstance(x, tuple) else model(x)


def fit(
    model: nn.Module,
    data: Pair,
    validation: Pair | None,
    loss: Any,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    batch_size: int = 64,
    clip: float | None = None,
    scheduler: Any = None,
    skip: bool = False,
    every: Callable[[], None] | None = None,
) -> list[dict[str, float]]:
    """Train and return a dict per epoch."""
    f = LOSSES[loss] if isinstance(loss, str) else loss
    x, y = data
    history = []
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        for index in torch.randperm(len(y)).split(batch_size):
            if len(index) < 2 and batch_size > 1:
                continue
            optimizer.zero_grad()
            value = f(call(model, rows(x, index)), y[index])
            if skip and not torch.isfinite(value):
                continue
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if every:
                every()
            total += value.item() * len(index)
            seen += len(index)
        if scheduler:
            scheduler.step()
        line = {"loss": total / max(seen, 1)}
        if validation is not None:
            model.eval()
            with torch.no_grad():
                line["val_loss"] = float(f(call(model, validation[0]), validation[1]))
        history.append(line)
    model.eval()
    return history


def trained(
    model: nn.Module,
    data: Pair,
    validation: Pair | None = None,
    *,
    loss: Any = "cross_entropy",
    optimizer: torch.optim.Optimizer,
    epochs: int,
    batch_size: int = 64,
    **more: Any,
) -> dict[str, Any]:
    """Train and return all that a careful user can hand over."""
    initial = copy.deepcopy(model.state_dict())
    history = fit(model, data, validation, loss, optimizer, epochs, batch_size, **more)
    given = {
        "model": model,
        "data": data,
        "loss": loss,
        "optimizer": optimizer,
        "batch_size": batch_size,
        "history": history,
        "initial": initial,
    }
    if validation is not None:
        given["validation"] = validation
    return given


def fit_graph(
    model: nn.Module,
    x: tuple[Tensor, ...],
    y: Tensor,
    held: Tensor,
    optimizer: torch.optim.Optimizer,
    epochs: int,
) -> dict[str, Any]:
    """Train on a whole graph at a time."""
    initial = {k: v.clone() for k, v in model.state_dict().items()}
    history = []
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(*x), y, ignore_index=-100)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            history.append(
                {"loss": loss.item(), "val_loss": F.cross_entropy(model(*x), held, ignore_index=-100).item()}
            )
    return {
        "model": model,
        "data": (x, y),
        "validation": (x, held),
        "loss": "cross_entropy",
        "optimizer": optimizer,
        "batch_size": len(y),
        "history": history,
        "initial": initial,
    }


def mlp(*sizes: int, act: Callable[[], nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    """Return a plain perceptron."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:], strict=False)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(act())
            if dropout:
                layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers)


def small_cnn(classes: int = 10, width: int = 16, size: int = 8, norm: bool = False) -> nn.Sequential:
    """Two convolutions, a pool and a linear layer."""
    n = (lambda c: nn.BatchNorm2d(c)) if norm else (lambda c: nn.Identity())
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        n(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        n(2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (size // 4) ** 2, classes),
    )


class Reader(nn.Module):
    """Words, a recurrent net, an answer."""

    def __init__(
        self, words: int = len(WORDS), dim: int = 24, hidden: int = 32, classes: int = 2, dropout: float = 0.0
    ):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.rnn(self.embed(tokens))
        return self.head(self.drop(states.mean(1)))


class Forecaster(nn.Module):
    """An LSTM that says the next value."""

    def __init__(self, inputs: int = 1, hidden: int = 24, outputs: int = 1):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, batch_first=True)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0][:, -1])


class GCN(nn.Module):
    """Graph convolutions with a normalised adjacency."""

    def __init__(self, inputs: int, hidden: int, classes: int, layers: int = 2):
        super().__init__()
        sizes = [inputs] + [hidden] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = a @ layer(x)
            if i < len(self.layers) - 1:
                x = torch.relu(x)
        return x


class VAE(nn.Module):
    """A variational autoencoder."""

    def __init__(self, inputs: int, latent: int = 4, hidden: int = 64):
        super().__init__()
        self.latent = latent
        self.enc = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, inputs))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.enc(x).chunk(2, -1)
        return mean, log_variance

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance) if self.training else mean
        return self.dec(z), mean, log_variance

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        return self.dec(torch.randn(n, self.latent))


def elbo(beta: float = 1.0, scale: float = 0.1) -> Callable[[Any, Tensor], Tensor]:
    """Return the negative evidence bound of a Gaussian decoder of known scale, up to a constant."""

    def loss(output: Any, x: Tensor) -> Tensor:
        picture, mean, log_variance = output
        fit_ = ((picture - x) ** 2).sum(-1) / (2 * scale**2)
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)
        return (fit_ + beta * kl).mean()

    return loss
