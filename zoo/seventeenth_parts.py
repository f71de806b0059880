"""Data, nets and the one training loop of the seventeenth author's cases: public services of an imagined town.

Its hospital, schools, buses, library, orchestra, sports clubs and farms keep records; every maker draws them anew from a seed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case

Rows = tuple[Any, Tensor]

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def town(
    *causes: str, kind: str, strength: str = "strong", needs: tuple[str, ...] = ()
) -> Callable[[Any], Any]:
    """Register this author's case, which draws its nets from its seed alone."""

    def register(make: Any) -> Any:
        @functools.wraps(make)
        def seeded(seed: int, **others: bool) -> dict[str, Any]:
            torch.manual_seed(17000 + seed)
            return make(seed, **others)

        return case(*causes, kind=kind, author="seventeenth", strength=strength, needs=needs)(seeded)

    return register


# ---- records


def floats(values: Any) -> Tensor:
    """Return single precision."""
    return torch.as_tensor(np.asarray(values, dtype=np.float32))


def standard(x: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and deviation 1."""
    return (x - x.mean(0)) / x.std(0).clip(1e-9)


def halves(x: Any, y: Tensor, first: int) -> tuple[Rows, Rows]:
    """Return the first rows to train by and the others to validate by."""
    if isinstance(x, tuple):
        return (tuple(part[:first] for part in x), y[:first]), (tuple(part[first:] for part in x), y[first:])
    return (x[:first], y[:first]), (x[first:], y[first:])


def bins(score: np.ndarray, parts: int) -> Tensor:
    """Return equally frequent levels of a score."""
    edges = np.quantile(score, np.linspace(0, 1, parts + 1)[1:-1])
    return torch.as_tensor(np.searchsorted(edges, score), dtype=torch.long)


def coin(logit: np.ndarray, rng: np.random.Generator) -> Tensor:
    """Return a column of zeros and ones drawn with the given log-odds."""
    return floats(rng.random(len(logit)) < 1 / (1 + np.exp(-logit)))[:, None]


def vitals(seed: int, n: int) -> tuple[np.ndarray, np.random.Generator]:
    """Return pulse, systolic pressure, temperature, breaths, oxygen and age of emergency patients, as measured."""
    rng = np.random.default_rng(1700 + seed)
    return np.stack(
        [
            rng.normal(86, 18, n),
            rng.normal(127, 21, n),
            rng.normal(37.3, 0.8, n),
            rng.normal(17, 4, n),
            99 - rng.gamma(2.0, 1.5, n),
            rng.uniform(1, 95, n),
        ],
        1,
    ), rng


def triage(seed: int, n: int = 1400, noise: float = 0.35, levels: int = 4) -> tuple[Tensor, Tensor]:
    """Return standardised vital signs and the nurse's level of urgency."""
    x, rng = vitals(seed, n)
    z = standard(x)
    score = 1.1 * z[:, 0] - 0.7 * z[:, 1] + 0.8 * np.abs(z[:, 2]) + z[:, 3] - 1.2 * z[:, 4] + 0.5 * z[:, 5]
    return floats(z), bins(score + 0.5 * z[:, 3] * z[:, 5] + noise * rng.normal(size=n), levels)


def stays(seed: int, n: int = 1400, bias: float = 0.0, gain: float = 1.6) -> tuple[Tensor, Tensor]:
    """Return eight standardised facts about a stay in hospital, and whether the patient came back within a month."""
    rng = np.random.default_rng(2700 + seed)
    z = rng.normal(size=(n, 8))
    logit = z[:, 0] + 0.8 * z[:, 1] - 0.7 * z[:, 2] + 0.9 * z[:, 3] * z[:, 4] + 0.4 * z[:, 5]
    return floats(z), coin(gain * logit + bias, rng)


def delays(seed: int, n: int = 1400, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Return six standardised facts about a bus run, and how late it was (in deviations)."""
    rng = np.random.default_rng(3700 + seed)
    z = rng.normal(size=(n, 6))
    late = 0.8 * z[:, 0] + 0.9 * np.tanh(1.5 * z[:, 1]) + 0.6 * z[:, 2] * z[:, 3] + 0.5 * np.abs(z[:, 4])
    late = late - 0.4 * z[:, 5] + noise * rng.normal(size=n)
    return floats(z), floats(standard(late))[:, None]


def marks(seed: int, n: int = 900, columns: int = 6, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    """Return what a school knows of its pupils before the examination, and the mark: a linear matter."""
    rng = np.random.default_rng(4700 + seed)
    z = rng.normal(size=(n, columns))
    weight = np.linspace(1.0, 0.2, columns) * np.where(np.arange(columns) % 3 == 2, -1, 1)
    mark = z @ weight + noise * rng.normal(size=n)
    return floats(z), floats(standard(mark))[:, None]


def instruments(
    seed: int, n: int = 1200, classes: int = 8, columns: int = 12, spread: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return spectral features of recorded notes, and the instrument: Gaussian clouds around fixed centres."""
    centre = np.random.default_rng(57).normal(size=(classes, columns)) * 1.5
    rng = np.random.default_rng(5700 + seed)
    y = rng.integers(0, classes, n)
    return floats(centre[y] + spread * rng.normal(size=(n, columns))), torch.as_tensor(y)


def pitch(seed: int, n: int = 1000, rings: int = 3, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Return where on the field a shot was taken (two spirals' arms per team), and the team: not linear at all."""
    rng = np.random.default_rng(6700 + seed)
    y = rng.integers(0, rings, n)
    t = rng.uniform(0.3, 1.6, n)
    turn = 3.2 * t + 2 * np.pi * y / rings
    x = np.stack([t * np.cos(turn), t * np.sin(turn)], 1) + noise * rng.normal(size=(n, 2))
    return floats(standard(x)), torch.as_tensor(y)


def digits(seed: int, first: int = 900, flat: bool = False) -> tuple[Rows, Rows]:
    """Return handwritten digits, as on the library's slips: images between 0 and 1."""
    bundle = load_digits()
    order = np.random.default_rng(7700 + seed).permutation(len(bundle.target))[: first + 600]
    x = floats(bundle.data[order] / 16.0)
    return halves(x if flat else x.view(-1, 1, 8, 8), torch.as_tensor(bundle.target[order]), first)


def leaves(seed: int, n: int = 700, noise: float = 0.35, side: int = 12) -> tuple[Tensor, Tensor]:
    """Return pictures of leaves and their disease: spots, stripes along or stripes across, or none."""
    rng = np.random.default_rng(8700 + seed)
    y = rng.integers(0, 4, n)
    rows, columns = np.mgrid[:side, :side]
    pictures = noise * rng.normal(size=(n, side, side))
    for i, kind in enumerate(y):
        phase = rng.uniform(0, 2 * np.pi)
        if kind == 1:
            for r, c in rng.integers(1, side - 1, (5, 2)):
                pictures[i, r - 1 : r + 1, c - 1 : c + 1] += 1.3
        elif kind >= 2:
            pictures[i] += 0.8 * np.sin(1.6 * (rows if kind == 2 else columns) + phase)
    return floats(pictures[:, None]), torch.as_tensor(y)


def metres(
    seed: int, n: int = 600, length: int = 40, noise: float = 0.4, periods: tuple[int, ...] = (3, 4, 5)
) -> tuple[Tensor, Tensor]:
    """Return the loudness of an orchestra's beats, (rows, length, 1), and the metre: the accents' period."""
    rng = np.random.default_rng(9700 + seed)
    y = rng.integers(0, len(periods), n)
    t = np.arange(length)
    period = np.array(periods)[y]
    start = rng.integers(0, period)
    accents = ((t[None] + start[:, None]) % period[:, None]) == 0
    return floats(accents + noise * rng.normal(size=(n, length)))[..., None], torch.as_tensor(y)


def wards(seed: int, n: int = 700, length: int = 30, kinds: int = 4) -> tuple[Tensor, Tensor]:
    """Return hospital paths, (rows, length, kinds + 2): the first stop is the ward asked for, the rest is wandering."""
    rng = np.random.default_rng(10700 + seed)
    y = rng.integers(0, kinds, n)
    x = 0.3 * rng.normal(size=(n, length, kinds + 2))
    x[np.arange(n), 0, y] += 2.0
    return floats(x), torch.as_tensor(y)


def words(
    seed: int, n: int = 900, length: int = 10, letters: int = 14, tongues: int = 4
) -> tuple[Tensor, Tensor]:
    """Return words as letter numbers (from 1; 0 pads) and their dialect: each has its own table of what follows what."""
    table = np.random.default_rng(117).dirichlet(np.full(letters, 0.35), size=(tongues, letters))
    rng = np.random.default_rng(11700 + seed)
    y = rng.integers(0, tongues, n)
    x = np.zeros((n, length), dtype=np.int64)
    x[:, 0] = rng.integers(0, letters, n)
    steps = table.cumsum(-1)
    for t in range(1, length):
        x[:, t] = (rng.random((n, 1)) > steps[y, x[:, t - 1]]).sum(1).clip(max=letters - 1)
    x += 1
    x[np.arange(length)[None] >= rng.integers(6, length + 1, n)[:, None]] = 0
    return torch.as_tensor(x), torch.as_tensor(y)


def tunes(seed: int, n: int = 300, length: int = 17, notes: int = 12) -> tuple[Tensor, Tensor]:
    """Return folk tunes, (rows, length - 1), and the next notes: which depend on the last two."""
    table = np.random.default_rng(127).dirichlet(np.full(notes, 0.25), size=(4, notes))
    rng = np.random.default_rng(12700 + seed)
    x = rng.integers(0, notes, (n, length))
    steps = table.cumsum(-1)
    for t in range(2, length):
        x[:, t] = (rng.random((n, 1)) > steps[x[:, t - 2] % 4, x[:, t - 1]]).sum(1).clip(max=notes - 1)
    return torch.as_tensor(x[:, :-1]), torch.as_tensor(x[:, 1:])


def letters_to_office(
    seed: int, n: int = 800, length: int = 14, terms: int = 120, offices: int = 5, plain: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Return citizens' letters as word numbers and the office they are for: each office has words of its own."""
    rng = np.random.default_rng(13700 + seed)
    y = rng.integers(0, offices, n)
    own = y[:, None] * (terms // (2 * offices)) + rng.integers(0, terms // (2 * offices), (n, length))
    common = terms // 2 + (rng.zipf(1.5, (n, length)) - 1) % (terms // 2)
    return torch.as_tensor(np.where(rng.random((n, length)) < plain, own, common)), torch.as_tensor(y)


def network(
    seed: int, n: int = 240, parts: int = 4, inside: float = 0.12, outside: float = 0.01, blur: float = 1.5
) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Return the bus network: (stops' features, normalised adjacency), and the district of half the stops, twice.

    Labels of the other half are -100.
    """
    rng = np.random.default_rng(14700 + seed)
    y = rng.permutation(np.arange(n) % parts)
    joined = rng.random((n, n)) < np.where(y[:, None] == y[None], inside, outside)
    joined = np.triu(joined, 1)
    a = joined + joined.T + np.eye(n)
    scale = 1 / np.sqrt(a.sum(1))
    x = np.eye(parts)[y] @ np.random.default_rng(147).normal(size=(parts, 10)) + blur * rng.normal(
        size=(n, 10)
    )
    known = rng.permutation(n) < n // 2
    train, held = torch.as_tensor(np.where(known, y, -100)), torch.as_tensor(np.where(known, -100, y))
    return (floats(x), floats(a * scale[:, None] * scale)), train, held


def circles(seed: int, n: int = 500, pupils: int = 12) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return school classes as (pupils' features, friendships), and whether friends resemble each other."""
    rng = np.random.default_rng(15700 + seed)
    y = rng.integers(0, 2, n)
    trait = rng.choice([-1.0, 1.0], (n, pupils))
    alike = trait[:, :, None] * trait[:, None, :]
    chance = np.where(alike * (2 * y - 1)[:, None, None] > 0, 0.45, 0.15)
    joined = np.triu(rng.random((n, pupils, pupils)) < chance, 1)
    a = joined + joined.transpose(0, 2, 1)
    a = a / a.sum(2, keepdims=True).clip(1)
    x = np.stack([trait, 0.3 * rng.normal(size=trait.shape)], 2)
    return (floats(x), floats(a)), torch.as_tensor(y)


def runners(seed: int, n: int = 800, groups: int = 6) -> Tensor:
    """Return (pace, climb) of runners: as many tight groups on a circle."""
    rng = np.random.default_rng(16700 + seed)
    turn = 2 * np.pi * rng.integers(0, groups, n) / groups
    return floats(np.stack([2 * np.cos(turn), 2 * np.sin(turn)], 1) + 0.12 * rng.normal(size=(n, 2)))


def panels(seed: int, n: int = 900, columns: int = 12, noise: float = 0.3) -> Tensor:
    """Return blood panels: as many standardised values, driven by three hidden conditions."""
    mix = np.random.default_rng(177).normal(size=(3, columns))
    rng = np.random.default_rng(17700 + seed)
    return floats(standard(np.tanh(rng.normal(size=(n, 3))) @ mix + noise * rng.normal(size=(n, columns))))


# ---- nets


def mlp(
    *sizes: int, act: Callable[[], nn.Module] = nn.ReLU, drop: float = 0.0, norm: Any = None
) -> nn.Sequential:
    """Return dense layers."""
    layers: list[nn.Module] = []
    for i, o in zip(sizes[:-2], sizes[1:-1], strict=True):
        layers += [
            nn.Linear(i, o),
            *([norm(o)] if norm else []),
            act(),
            *([nn.Dropout(drop)] if drop else []),
        ]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def camera(classes: int, channels: int = 12, side: int = 8, norm: bool = False) -> nn.Sequential:
    """Return two convolutions, a pool each, and a dense layer."""
    c = channels
    return nn.Sequential(
        nn.Conv2d(1, c, 3, padding=1),
        *([nn.BatchNorm2d(c)] if norm else []),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(c, 2 * c, 3, padding=1),
        *([nn.BatchNorm2d(2 * c)] if norm else []),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * c * (side // 4) ** 2, classes),
    )


class Listener(nn.Module):
    """A recurrent net over (rows, time, channels), read at its last step or averaged."""

    def __init__(self, cell: Any, inputs: int, width: int, classes: int, average: bool = False) -> None:
        super().__init__()
        self.body = cell(inputs, width, batch_first=True)
        self.head = nn.Linear(width, classes)
        self.average = average

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.body(x)
        return self.head(states.mean(1) if self.average else states[:, -1])


class Reader(nn.Module):
    """Words to a class: embedding, pairs of neighbours, mean over what is not padding."""

    def __init__(self, terms: int, width: int, classes: int, drop: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(terms, width, padding_idx=0)
        self.pair = nn.Conv1d(width, 2 * width, 2, padding=1)
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        h = torch.relu(self.pair(self.embed(tokens).transpose(1, 2)))[..., 1:]
        seen = (tokens > 0).float()[:, None]
        return self.head(self.drop((h * seen).sum(2) / seen.sum(2)))


class Bag(nn.Module):
    """The mean of word vectors, then dense layers."""

    def __init__(self, terms: int, width: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(terms, width, mode="mean")
        self.rest = mlp(width, 32, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.rest(self.embed(tokens))


class Stops(nn.Module):
    """Graph convolutions: as many rounds of asking the neighbours."""

    def __init__(self, inputs: int, width: int, classes: int, rounds: int = 2, drop: float = 0.0) -> None:
        super().__init__()
        sizes = [inputs] + [width] * (rounds - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(sizes[:-1], sizes[1:], strict=True))
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = self.drop(torch.relu(adjacency @ layer(x)))
        return adjacency @ self.layers[-1](x)


class Vae(nn.Module):
    """A variational autoencoder with dense networks; ``beta`` weighs the divergence from the prior."""

    def __init__(
        self, columns: int, latent: int = 3, width: int = 48, beta: float = 1.0, sigma: float = 0.4
    ) -> None:
        super().__init__()
        self.encoder = mlp(columns, width, 2 * latent)
        self.decoder = mlp(latent, width, columns)
        self.latent, self.beta, self.sigma = latent, beta, sigma

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, -1)
        return mean, log_variance.clamp(-8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encode(x)[0])

    def sample(self, n: int) -> Tensor:
        return self.decoder(torch.randn(n, self.latent))

    def objective(self, x: Tensor) -> Tensor:
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        missed = ((self.decoder(z) - x) ** 2).sum(1) / (2 * self.sigma**2)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1)
        return (missed + self.beta * divergence).mean()


class Draws(nn.Module):
    """A generator of rows out of noise."""

    def __init__(self, latent: int, width: int, columns: int) -> None:
        super().__init__()
        self.latent = latent
        self.net = mlp(latent, width, width, columns)

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)

    def sample(self, n: int) -> Tensor:
        return self(torch.randn(n, self.latent))


# ---- training


def pick(x: Any, rows: Tensor, n: int) -> Any:
    """Return those rows of every input that has as many rows as there are answers; an adjacency stays whole."""
    if isinstance(x, tuple):
        return tuple(part[rows] if len(part) == n else part for part in x)
    return x[rows]


def answer(model: nn.Module, x: Any) -> Any:
    """Return the model's output for one or several inputs."""
    return model(*x) if isinstance(x, tuple) else model(x)


def copy_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the state as it is now."""
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def fit(
    model: nn.Module,
    data: Rows,
    validation: Rows | None = None,
    *,
    loss: Any = "cross_entropy",
    lr: float = 5e-3,
    epochs: int = 30,
    batch_size: int = 64,
    optimizer: Any = torch.optim.Adam,
    params: Any = None,
    clear: bool = True,
    cosine: bool = False,
    clip: float | None = None,
    change: Callable[[Any, Tensor], tuple[Any, Tensor]] | None = None,
    best: bool = False,
    finite: bool = False,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """Train, and return all that a user might hand over.

    ``change`` alters a batch (augmentation); ``best`` goes back to the epoch of the least validation loss; ``finite`` skips
    batches whose loss is not a number; ``clear=False`` forgets ``zero_grad``.
    """
    (x, y), n = data, len(data[1])
    measure = LOSSES[loss] if isinstance(loss, str) else loss
    initial = copy_of(model)
    opt = optimizer(params if params is not None else model.parameters(), lr=lr, **settings)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs) if cosine else None
    dice = torch.Generator().manual_seed(1717 + seed)
    whole = isinstance(x, tuple) and any(part.shape[:2] == (n, n) for part in x)
    history, kept, least = [], None, float("inf")
    for epoch in range(epochs):
        model.train()
        total = 0.0
        chunks = [slice(None)] if whole else torch.randperm(n, generator=dice).split(batch_size)
        for rows in chunks:
            bx, by = (x, y) if whole else (pick(x, rows, n), y[rows])
            if change is not None:
                bx, by = change(bx, by)
            if clear:
                opt.zero_grad()
            value = measure(answer(model, bx), by)
            if finite and not torch.isfinite(value):
                continue
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            opt.step()
            total += value.item() * (1 if whole else len(rows) / n)
        if schedule is not None:
            schedule.step()
        row = {"epoch": epoch, "loss": total}
        if validation is not None:
            model.eval()
            with torch.no_grad():
                row["val_loss"] = measure(answer(model, validation[0]), validation[1]).item()
            if best and row["val_loss"] < least:
                least, kept = row["val_loss"], copy_of(model)
        history.append(row)
    if kept is not None:
        model.load_state_dict(kept)
    given = {"model": model.eval(), "data": data, "validation": validation, "loss": loss, "optimizer": opt}
    return given | {"batch_size": n if whole else batch_size, "history": history, "initial": initial}


def only(run: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    """Return model, data, validation and loss, and what else of the run this user kept."""
    return {key: run[key] for key in ("model", "data", "validation", "loss", *names)} | more


def train_vae(
    model: Vae, x: Tensor, *, lr: float = 3e-3, epochs: int = 40, batch_size: int = 128
) -> dict[str, Any]:
    """Train a variational autoencoder; return optimiser, history and the first state."""
    initial = copy_of(model)
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    history = []
    for _ in range(epochs):
        total = 0.0
        for batch in x[torch.randperm(len(x))].split(batch_size):
            opt.zero_grad()
            value = model.objective(batch)
            value.backward()
            opt.step()
            total += value.item() * len(batch) / len(x)
        history.append({"loss": total})
    model.eval()
    return {
        "model": model,
        "data": x,
        "optimizer": opt,
        "history": history,
        "initial": initial,
        "batch_size": batch_size,
    }


def energy_distance(a: Tensor, b: Tensor) -> Tensor:
    """Return twice the mean distance between two samples less those within them: 0 only for equal distributions."""
    return 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()
