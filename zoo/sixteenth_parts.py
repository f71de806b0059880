"""Data, nets and the training loop of the sixteenth author: what people post on the forum and bring to the lab."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case

AUTHOR = "sixteenth"
post = partial(case, author=AUTHOR)

Pair = tuple[Any, Tensor]
Sets = tuple[Pair, Pair]


# --- data -------------------------------------------------------------------------------------------------------------


def halves(x: Any, y: Any, seed: int, share: float = 0.65, shuffle: bool = True) -> Sets:
    """Split into rows for training and rows held out, as tensors; also seeds torch for the nets made afterwards."""
    torch.manual_seed(seed + 16)
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    x = x.float() if x.is_floating_point() else x
    y = y.float() if y.is_floating_point() else y.long()
    order = torch.randperm(len(y)) if shuffle else torch.arange(len(y))
    cut = int(share * len(y))
    a, b = order[:cut], order[cut:]
    return (x[a], y[a]), (x[b], y[b])


def scaled(sets: Sets) -> Sets:
    """Standardise both parts by the statistics of the training rows."""
    (x, y), (u, v) = sets
    mean, std = x.mean(0), x.std(0).clamp_min(1e-6)
    return ((x - mean) / std, y), ((u - mean) / std, v)


def bundled(name: str, seed: int, share: float = 0.65, raw: bool = False) -> Sets:
    """One of scikit-learn's own tables (wine, breast_cancer, iris, diabetes), standardised unless raw."""
    if name == "diabetes":
        x, y = datasets.load_diabetes(return_X_y=True, scaled=not raw)
        y = y[:, None] if raw else ((y - 152) / 77)[:, None]
    else:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        _, first = np.unique(x, axis=0, return_index=True)
        x, y = x[first], y[first]
    sets = halves(x, y, seed, share)
    return sets if raw else scaled(sets)


def binary(sets: Sets) -> Sets:
    """Turn class numbers into a column of zeros and ones for a single logit."""
    return tuple((x, y.float()[:, None]) for x, y in sets)


def digits(seed: int, n: int = 1500, flat: bool = False, noise: float = 0.08, classes: int = 10) -> Sets:
    """Handwritten digits, cropped to the columns with ink, with a little sensor noise."""
    rng = np.random.default_rng(seed)
    raw = datasets.load_digits()
    rows = rng.permutation(np.flatnonzero(raw.target < classes))[:n]
    x = raw.images[rows][:, :, 1:7] / 16 + noise * rng.normal(size=(len(rows), 8, 6))
    x = x.reshape(len(rows), -1) if flat else x[:, None]
    return halves(x, raw.target[rows], seed)


def clouds(
    seed: int, n: int = 1500, d: int = 8, classes: int = 3, gap: float = 1.5, shares: Iterable[float] = ()
) -> Sets:
    """Gaussian clouds, one per class, that overlap a little."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, d))
    centres *= gap / np.linalg.norm(centres, axis=1, keepdims=True) * 1.6
    y = rng.choice(classes, n, p=list(shares) or None)
    return halves(centres[y] + rng.normal(size=(n, d)), y, seed)


def surface(seed: int, n: int = 1500, d: int = 6, noise: float = 0.1) -> Sets:
    """A smooth curved surface with noise; the target has mean 0 and deviation 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = np.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2] * 0.5 + 0.7 * x[:, 3] - 0.5 * x[:, 4]
    y = (y - y.mean()) / y.std() + noise * rng.normal(size=n)
    return halves(x, y[:, None], seed)


def spirals(seed: int, n: int = 1200, turns: float = 1.5, noise: float = 0.05) -> Sets:
    """Two spirals wound round each other."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    t = np.sqrt(rng.uniform(0.05, 1, n))
    angle = 2 * np.pi * turns * t + np.pi * y
    x = np.stack([t * np.cos(angle), t * np.sin(angle)], 1) * 2 + noise * rng.normal(size=(n, 2))
    return halves(x, y, seed)


def pictures(seed: int, n: int = 1000, size: int = 12, noise: float = 0.25, jitter: int = 2) -> Sets:
    """Squares, crosses, stripes and frames at random places of noisy grey images."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    x = noise * rng.normal(size=(n, 1, size, size))
    shapes = np.zeros((4, 7, 7))
    shapes[0, 1:6, 1:6] = 1
    shapes[1, 3], shapes[1, :, 3] = 1, 1
    shapes[2, ::2] = 1
    shapes[3, [0, -1]], shapes[3, :, [0, -1]] = 1, 1
    corner = size // 2 - 3 + rng.integers(-jitter, jitter + 1, (n, 2))
    for i, (r, c) in enumerate(corner.clip(0, size - 7)):
        x[i, 0, r : r + 7, c : c + 7] += shapes[y[i]]
    return halves(x, y, seed)


def waves(seed: int, n: int = 900, steps: int = 32, classes: int = 3, noise: float = 0.3) -> Sets:
    """Sine waves of random phase; the class is the frequency."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    t = np.linspace(0, 2 * np.pi, steps, endpoint=False)
    x = np.sin((1 + 2 * y[:, None]) * t + rng.uniform(0, 6.28, (n, 1))) + noise * rng.normal(size=(n, steps))
    return halves(x[:, :, None], y, seed)


def recall(seed: int, n: int = 900, steps: int = 20, classes: int = 3, at: int = 0) -> Sets:
    """Sequences of noise whose label is shown at one early step only."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = 0.5 * rng.normal(size=(n, steps, classes))
    x[np.arange(n), at, y] += 3
    return halves(x, y, seed)


def series(seed: int, n: int = 1000, steps: int = 16, noise: float = 0.15) -> Sets:
    """Windows of many independent oscillations; the target is the next value."""
    rng = np.random.default_rng(seed)
    t = np.arange(steps + 1)
    speed, phase = rng.uniform(0.3, 1.0, (n, 1)), rng.uniform(0, 6.28, (n, 1))
    x = np.sin(speed * t + phase) + noise * rng.normal(size=(n, steps + 1))
    return halves(x[:, :-1, None], x[:, -1:], seed)


def reviews(seed: int, n: int = 1500, words: int = 60, steps: int = 14) -> Sets:
    """Reviews of 6 to 14 words, padded by 0; some words praise, some blame, most say nothing."""
    rng = np.random.default_rng(seed)
    weight = np.zeros(words)
    weight[1:13], weight[13:25] = 1, -1
    x = rng.integers(1, words, (n, steps))
    x[np.arange(steps) >= rng.integers(6, steps + 1, (n, 1))] = 0
    score = weight[x].sum(1)
    keep = score != 0
    return halves(x[keep], (score[keep] > 0).astype(int), seed)


def tags(seed: int, n: int = 800, words: int = 40, steps: int = 12, back: int = 1) -> Sets:
    """Sentences whose words are tagged by their own group and that of the word ``back`` before; padding is -100."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, words)
    x = rng.integers(1, words, (n, steps))
    before = np.roll(group[x], back, axis=1)
    before[:, :back] = 0
    y = group[x] * 2 + before
    padded = np.arange(steps) >= rng.integers(back + 4, steps + 1, (n, 1))
    x[padded], y[padded] = 0, -100
    return halves(x, y, seed)


def communities(
    seed: int, n: int = 300, classes: int = 3, inside: float = 0.1, across: float = 0.012, signal: float = 0.7
) -> tuple[Sets, Tensor, Tensor]:
    """A graph of communities: node numbers with labels, the nodes' features and the normalised adjacency."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    link = rng.random((n, n)) < np.where(y[:, None] == y, inside, across)
    a = np.triu(link, 1)
    a = a + a.T + np.eye(n)
    scale = 1 / np.sqrt(a.sum(1))
    features = signal * rng.normal(size=(classes, 8))[y] + rng.normal(size=(n, 8))
    sets = halves(np.arange(n), y, seed)
    return sets, torch.tensor(features).float(), torch.tensor(a * scale[:, None] * scale).float()


def ring(seed: int, n: int = 800, modes: int = 8, width: float = 0.08) -> tuple[Tensor, Tensor]:
    """Small clouds on a circle, for training and held out."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * rng.integers(0, modes, n) / modes
    x = 1.4 * np.stack([np.cos(angle), np.sin(angle)], 1) + width * rng.normal(size=(n, 2))
    (a, _), (b, _) = halves(x, np.zeros(n), seed)
    return a, b


# --- nets -------------------------------------------------------------------------------------------------------------


def mlp(
    *sizes: int,
    act: type[nn.Module] = nn.ReLU,
    drop: float = 0.0,
    norm: bool = False,
    end: Iterable[nn.Module] = (),
) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b)] * norm + [act()] + [nn.Dropout(drop)] * (drop > 0)
    return nn.Sequential(*layers, *end)


def convnet(
    classes: int,
    channels: Iterable[int] = (8, 16),
    kernel: int = 3,
    norm: bool = False,
    act: type[nn.Module] = nn.ReLU,
    drop: float = 0.0,
) -> nn.Sequential:
    """Convolutions with pooling, a mean over the image and a linear head."""
    layers: list[nn.Module] = []
    before = 1
    for i, c in enumerate(channels):
        layers += [nn.Conv2d(before, c, kernel, padding=kernel // 2)] + [nn.BatchNorm2d(c)] * norm + [act()]
        layers += [nn.MaxPool2d(2)] * (i == 0)
        before = c
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten()] + [nn.Dropout(drop)] * (drop > 0)
    return nn.Sequential(*layers, nn.Linear(4 * before, classes))


class Recurrent(nn.Module):
    """A recurrent layer, read at its last step by a linear head."""

    def __init__(self, kind: str, inputs: int, hidden: int, outputs: int, words: int = 0, **more: Any):
        super().__init__()
        self.embedding = nn.Embedding(words, inputs) if words else nn.Identity()
        self.rnn = getattr(nn, kind)(inputs, hidden, batch_first=True, **more)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(self.embedding(x))[0][:, -1])


class Bag(nn.Module):
    """The mean of the embeddings of all words that are not padding, and a small net on it."""

    def __init__(self, words: int, width: int, outputs: int, hidden: int = 16, drop: float = 0.0):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.head = mlp(width, hidden, outputs, drop=drop)

    def forward(self, x: Tensor) -> Tensor:
        kept = (x > 0).sum(1, keepdim=True).clamp_min(1)
        return self.head(self.embedding(x).sum(1) / kept)


class Tagger(nn.Module):
    """Embeddings, causal convolutions over the sentence and scores for every word."""

    def __init__(self, words: int, width: int, outputs: int, kernels: Iterable[int] = (3,)):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, k) for k in kernels)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x).transpose(1, 2)
        for layer in self.layers:
            h = F.relu(layer(F.pad(h, (layer.kernel_size[0] - 1, 0))))
        return self.head(h.transpose(1, 2))


class GCN(nn.Module):
    """Graph convolutions over a fixed graph; it is asked about node numbers."""

    def __init__(self, features: Tensor, adjacency: Tensor, classes: int, layers: int = 2, hidden: int = 16):
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("adjacency", adjacency)
        sizes = [features.shape[1]] + [hidden] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, nodes: Tensor) -> Tensor:
        h = self.features
        for layer in self.layers:
            h = self.adjacency @ layer(h)
            h = F.relu(h) if layer is not self.layers[-1] else h
        return h[nodes]


class VAE(nn.Module):
    """A variational autoencoder that answers (reconstruction, mean, log-variance)."""

    def __init__(self, inputs: int, latent: int, hidden: int = 32):
        super().__init__()
        self.encoder = mlp(inputs, hidden, 2 * latent)
        self.decoder = mlp(latent, hidden, inputs)
        self.latent = latent

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return mean, log_variance

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else mean
        return self.decoder(z), mean, log_variance

    def sample(self, n: int) -> Tensor:
        return self.decoder(torch.randn(n, self.latent))


def elbo(beta: float, spread: float = 0.3) -> Callable[[tuple[Tensor, Tensor, Tensor], Tensor], Tensor]:
    """Return the loss of a VAE whose KL term weighs ``beta``."""

    def loss(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        answer, mean, log_variance = output
        error = ((answer - target) ** 2).sum(1).mean() / (2 * spread**2)
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return error + beta * kl

    return loss


class Generator(nn.Module):
    """A net that turns noise of the data's width into samples."""

    def __init__(self, width: int, hidden: int = 48):
        super().__init__()
        self.width = width
        self.net = mlp(width, hidden, hidden, width)

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)

    def sample(self, n: int) -> Tensor:
        return self(torch.randn(n, self.width))


# --- loop -------------------------------------------------------------------------------------------------------------


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of every word's scores; padding (-100) does not count."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


LOSSES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def call(model: nn.Module, x: Any) -> Any:
    """Apply a module to one input or to a tuple of inputs."""
    return model(*x) if isinstance(x, tuple) else model(x)


def take(x: Any, rows: Tensor, n: int) -> Any:
    """Choose rows of every input that has n of them."""
    if isinstance(x, tuple):
        return tuple(part[rows] if len(part) == n else part for part in x)
    return x[rows]


def measured(model: nn.Module, pair: Any, loss: Callable[[Any, Tensor], Tensor]) -> float:
    """Return the loss in evaluation mode; the mode before is put back."""
    x, y = pair if isinstance(pair, tuple) else (pair, pair)
    mode = model.training
    model.eval()
    with torch.no_grad():
        value = loss(call(model, x), y).item()
    model.train(mode)
    return value


def run(
    model: nn.Module,
    train: Any,
    test: Any,
    loss: Any = "cross_entropy",
    *,
    lr: float = 0.01,
    epochs: int = 40,
    batch: int = 32,
    sgd: bool = False,
    momentum: float = 0.0,
    decay: float = 0.0,
    give: str = "",
    optimizer: torch.optim.Optimizer | None = None,
    step: Callable[[nn.Module, Any], Any] | None = None,
    train_loss: Callable[[Any, Tensor], Tensor] | None = None,
    evaluate: bool = True,
    patience: int = 0,
) -> dict[str, Any]:
    """Train as most people do and return what is handed over; ``give`` names the optional parts."""
    x, y = train if isinstance(train, tuple) else (train, train)
    n, function = len(y), LOSSES.get(loss, loss)
    initial = copy.deepcopy(model.state_dict())
    if optimizer is None:
        chosen = [p for p in model.parameters() if p.requires_grad]
        optimizer = (
            torch.optim.SGD(chosen, lr=lr, momentum=momentum, weight_decay=decay)
            if sgd
            else torch.optim.AdamW(chosen, lr=lr, weight_decay=decay)
        )
    history: list[dict[str, float]] = []
    best: tuple[float, int, Any] = (float("inf"), 0, None)
    for epoch in range(epochs):
        model.train()
        for rows in torch.randperm(n).split(batch):
            if len(rows) < min(2, batch):
                continue
            part = (take(x, rows, n), y[rows])
            if step is not None:
                step(model, part)
                continue
            optimizer.zero_grad()
            (train_loss or function)(call(model, part[0]), part[1]).backward()
            optimizer.step()
        seen = {"loss": measured(model, train, function), "val_loss": measured(model, test, function)}
        history.append(seen)
        if patience and seen["val_loss"] < best[0]:
            best = (seen["val_loss"], epoch, copy.deepcopy(model.state_dict()))
        if patience and epoch - best[1] >= patience:
            break
    if patience and best[2] is not None:
        model.load_state_dict(best[2])
    model.train(not evaluate)
    optional = {"optimizer": optimizer, "batch_size": batch, "history": history, "initial": initial}
    result = {"model": model, "data": train, "validation": test, "loss": loss}
    if step is not None:
        result["step"] = step
    return result | {name: optional[name] for name in give.split()}


def energy(fake: Tensor, real: Tensor) -> Tensor:
    """Return the energy distance between two samples."""
    return (
        2 * torch.cdist(fake, real).mean() - torch.cdist(fake, fake).mean() - torch.cdist(real, real).mean()
    )


def draw(generator: nn.Module, train: Tensor, objective: Any, steps: int = 500, lr: float = 3e-3) -> None:
    """Train a sampler by an objective of (its samples, real rows)."""
    optimizer = torch.optim.Adam(generator.parameters(), lr=lr)
    for _ in range(steps):
        real = train[torch.randint(len(train), (128,))]
        optimizer.zero_grad()
        objective(generator.sample(128), real).backward()
        optimizer.step()
    generator.eval()


def duel(
    generator: nn.Module, critic: nn.Module, train: Tensor, steps: int, extra: int = 1, lr: float = 1e-3
) -> None:
    """Train a generator against a critic; the generator moves ``extra`` times for each move of the critic."""
    one = torch.optim.Adam(generator.parameters(), lr=lr, betas=(0.5, 0.9))
    two = torch.optim.Adam(critic.parameters(), lr=lr, betas=(0.5, 0.9))
    for t in range(steps):
        if t % extra == 0:
            real = train[torch.randint(len(train), (128,))]
            two.zero_grad()
            fake = generator.sample(128).detach()
            (F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()).backward()
            two.step()
        one.zero_grad()
        F.softplus(-critic(generator.sample(128))).mean().backward()
        one.step()
    generator.eval()
