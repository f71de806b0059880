"""What the fifteenth author's cases share: simulated measurements from the natural sciences, small nets, and one loop."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

ME = "fifteenth"
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "mse": F.mse_loss,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "nll": F.nll_loss,
}


def dice(seed: int, salt: int = 0) -> np.random.Generator:
    """Return a generator of the seed's own."""
    return np.random.default_rng([1500, salt, seed])


def floats(a: Any) -> Tensor:
    """Return a float tensor."""
    return torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float32)


def whole(a: Any) -> Tensor:
    """Return a tensor of integers."""
    return torch.as_tensor(np.ascontiguousarray(a), dtype=torch.int64)


def standard(a: np.ndarray) -> np.ndarray:
    """Scale the columns to mean zero and variance one."""
    return (a - a.mean(0)) / a.std(0)


def rows(x: Any, chosen: Any) -> Any:
    """Take rows of a tensor or of each tensor of a tuple."""
    return tuple(part[chosen] for part in x) if isinstance(x, tuple) else x[chosen]


def cut(x: Any, y: Tensor, share: float = 0.7) -> tuple[Any, Any]:
    """Split into the first rows and the others."""
    n = int(share * len(y))
    return (rows(x, slice(n)), y[:n]), (rows(x, slice(n, None)), y[n:])


# ---------------------------------------------------------------- measurements


def spectra(
    seed: int, n: int = 900, bands: int = 40, kinds: int = 4, noise: float = 0.6
) -> tuple[Tensor, Tensor]:
    """Return emission spectra of some minerals, two lines each, on a sloping background."""
    r, at = dice(seed, 1), np.arange(bands)
    y = r.integers(kinds, size=n)
    x = noise * r.normal(size=(n, bands)) + np.outer(0.5 * r.normal(size=n), at / bands - 0.5)
    for shift, height in ((5, 1.6), (17, 1.2)):
        centre = (shift + 5 * y)[:, None] + 0.3 * r.normal(size=(n, 1))
        size = height * r.uniform(0.6, 1.4, size=(n, 1))
        x += size * np.exp(-0.5 * ((at - centre) / 1.3) ** 2)
    return floats(x), whole(y)


def light_curves(seed: int, n: int = 900, length: int = 48, noise: float = 0.45) -> tuple[Tensor, Tensor]:
    """Return brightness in time of pulsating, eclipsing and flaring stars."""
    r, t = dice(seed, 2), np.arange(length)
    y = r.integers(3, size=n)
    period, phase = r.uniform(10, 16, size=(n, 1)), r.uniform(0, 16, size=(n, 1))
    wave = np.sin(2 * np.pi * (t + phase) / period)
    dips = 0.6 - 2.2 * (((t + phase) % period) < 3)
    lag = t - r.uniform(2, 30, size=(n, 1))
    flare = 2.5 * np.where(lag > 0, np.exp(-np.clip(lag, 0, None) / 6), 0) - 0.5
    x = np.stack([wave, dips, flare])[y, np.arange(n)] + noise * r.normal(size=(n, length))
    return floats(x[:, None]), whole(y)


def expression(seed: int, n: int = 1800, genes: int = 24, noise: float = 0.5) -> tuple[Tensor, Tensor]:
    """Return standardised gene expressions driven by four pathways, and the cell's type, which two of them decide jointly."""
    r = dice(seed, 3)
    paths = r.normal(size=(n, 4))
    loads = r.normal(size=(4, genes))
    y = (paths[:, 0] * paths[:, 1] > 0) + 2 * (paths[:, 2] > 0)
    return floats(standard(paths @ loads + noise * r.normal(size=(n, genes)))), whole(y)


def dose(seed: int, n: int = 900, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Return eight standardised covariates of patients and the clearance of a drug."""
    r = dice(seed, 4)
    x = r.normal(size=(n, 8))
    y = (
        x[:, 0]
        + np.tanh(2 * x[:, 1])
        - 0.7 * x[:, 2] * (x[:, 3] > 0)
        + 0.5 * x[:, 4]
        + noise * r.normal(size=n)
    )
    return floats(x), floats(standard(y)[:, None])


def molecules(seed: int, n: int = 600, atoms: int = 9) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return atoms' kinds and bonds of molecules, and an energy of the atoms and of their bonds."""
    r = dice(seed, 5)
    kind = r.integers(4, size=(n, atoms))
    bonds = np.triu(r.random((n, atoms, atoms)) < 0.28, 1)
    bonds = (bonds | bonds.transpose(0, 2, 1)).astype(float)
    nodes = np.eye(4)[kind]
    charge = np.array([1.0, -1.0, 0.4, -0.4])[kind]
    y = 0.6 * charge.sum(1) + 0.8 * np.einsum("na,nab,nb->n", charge, bonds, charge) / 2
    y += 0.2 * r.normal(size=n)
    return (floats(nodes), floats(bonds)), floats(standard(y)[:, None])


def interactions(seed: int, n: int = 420, noise: float = 1.6) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return noisy traits of proteins, their interactions as an edge list, and their three families."""
    r = dice(seed, 6)
    y = r.integers(3, size=n)
    same = y[:, None] == y[None]
    bonds = np.triu(r.random((n, n)) < np.where(same, 0.05, 0.006), 1)
    edges = np.concatenate([np.argwhere(bonds), np.argwhere(bonds)[:, ::-1]]).T
    x = np.eye(3)[y] @ r.normal(size=(3, 8)) + noise * r.normal(size=(n, 8))
    return (floats(standard(x)), whole(edges)), whole(y)


def lakes(seed: int, n: int = 400) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return five readings of sensors in a lake, their averaging matrix, and three classes of oxygen around them."""
    r = dice(seed, 18)
    place = r.random((n, 2))
    apart = np.linalg.norm(place[:, None] - place[None], axis=2)
    near = (apart < 0.09).astype(float)
    near /= near.sum(1, keepdims=True)
    x = r.normal(size=(n, 5))
    level = near @ (x[:, 0] - x[:, 1])
    y = np.digitize(level + 0.05 * r.normal(size=n), np.quantile(level, [1 / 3, 2 / 3]))
    return (floats(x), floats(near)), whole(y)


def masked(x: Any, y: Tensor, share: float = 0.5) -> tuple[Any, Any]:
    """Split the nodes of one graph: the others' labels are not counted."""
    n = int(share * len(y))
    train, rest = y.clone(), y.clone()
    train[n:], rest[:n] = -100, -100
    return (x, train), (x, rest)


def fields(seed: int, n: int = 700, size: int = 12, noise: float = 1.9) -> tuple[Tensor, Tensor]:
    """Return satellite tiles with cloud streets along one of three directions."""
    r = dice(seed, 7)
    y = r.integers(3, size=n)
    angle = (y * np.pi / 3 + 0.12 * r.normal(size=n))[:, None, None]
    a, b = np.meshgrid(np.arange(size), np.arange(size))
    phase = r.uniform(0, 2 * np.pi, size=(n, 1, 1))
    x = 1.2 * np.sin(1.5 * (a * np.cos(angle) + b * np.sin(angle)) + phase) + noise * r.normal(
        size=(n, size, size)
    )
    return floats(x[:, None]), whole(y)


def micrographs(seed: int, n: int = 140, size: int = 16, noise: float = 0.8) -> tuple[Tensor, Tensor]:
    """Return noisy pictures of round cells and the mask of the cells."""
    r = dice(seed, 8)
    a, b = np.meshgrid(np.arange(size), np.arange(size))
    y = np.zeros((n, size, size), dtype=bool)
    for _ in range(2):
        u, v = r.uniform(2, size - 2, size=(2, n, 1, 1))
        y |= (a - u) ** 2 + (b - v) ** 2 < r.uniform(2.5, 4, size=(n, 1, 1)) ** 2
    x = 1.6 * y - 0.5 + noise * r.normal(size=y.shape)
    return floats(x[:, None]), floats(y[:, None])


def dna(seed: int, n: int = 900, length: int = 24) -> tuple[Tensor, Tensor]:
    """Return strings of four letters and which of three binding sites they hold, if any."""
    r = dice(seed, 9)
    x, y = r.integers(4, size=(n, length)), r.integers(3, size=n)
    sites = np.array([[3, 0, 3, 0, 0, 0], [2, 1, 1, 2, 1, 2], [1, 0, 3, 2, 3, 3]])
    for i, start in enumerate(r.integers(length - 6, size=n)):
        x[i, start : start + 6] = np.where(r.random(6) < 0.06, r.integers(4, size=6), sites[y[i]])
    return whole(x), whole(y)


def clouds(seed: int, n: int = 700, points: int = 20, noise: float = 0.12) -> tuple[Tensor, Tensor]:
    """Return points of a lidar on trunks (rods), crowns (shells) and ground (discs)."""
    r = dice(seed, 10)
    y = r.integers(3, size=n)
    x = r.normal(size=(n, points, 3))
    shell = x / np.linalg.norm(x, axis=2, keepdims=True)
    disc = 1.2 * shell * np.array([1, 1, 0.15])
    rod = 0.25 * shell + r.uniform(-1.2, 1.2, size=(n, points, 1)) * np.array([0, 0, 1])
    x = np.stack([rod, shell, disc])[y, np.arange(n)] + noise * r.normal(size=x.shape)
    return floats(1.6 * x), whole(y)


def simulator(seed: int, n: int = 900, outputs: int = 1) -> tuple[Tensor, Tensor]:
    """Return settings of a reactor model and what it computes."""
    r = dice(seed, 11)
    x = r.uniform(-1.7, 1.7, size=(n, 5))
    y = [
        np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2],
        np.exp(-(x[:, 3] ** 2)) + x[:, 0],
        x[:, 4] * x[:, 3] - x[:, 2],
    ]
    return floats(x), floats(standard(np.stack(y[:outputs], 1) + 0.05 * r.normal(size=(n, outputs))))


def climate(seed: int, n: int = 800, length: int = 20) -> tuple[Tensor, Tensor]:
    """Return windows of three monthly indices and the anomaly that follows, which a lagged product drives."""
    r = dice(seed, 12)
    x = r.normal(size=(n, length, 3))
    for t in range(1, length):
        x[:, t] = 0.6 * x[:, t - 1] + 0.8 * x[:, t]
    y = x[:, -1, 0] + x[:, -3, 1] - 0.8 * np.abs(x[:, -2, 2]) + 0.3 * r.normal(size=n)
    return floats(x), floats(standard(y)[:, None])


def residues(seed: int, n: int = 260, length: int = 22, reach: int = 2) -> tuple[Tensor, Tensor]:
    """Return chains of ten residues and the state of each, decided by its window; chains differ in length."""
    r = dice(seed, 13)
    x = r.integers(1, 11, size=(n, length))
    worth = r.permutation(np.linspace(-1.5, 1.5, 10))[x - 1]
    smooth = np.stack([np.convolve(w, np.ones(2 * reach + 1), "same") for w in worth])
    y = np.digitize(smooth + 0.15 * r.normal(size=x.shape), [-0.8, 0.8])
    tail = np.arange(length) >= r.integers(length - 8, length + 1, size=(n, 1))
    return whole(np.where(tail, 0, x)), whole(np.where(tail, -100, y))


def remission(seed: int, n: int = 900, strength: float = 1.5) -> tuple[Tensor, Tensor]:
    """Return six covariates and whether the patient was free of disease after five years (partly chance)."""
    r = dice(seed, 14)
    x = r.normal(size=(n, 6))
    score = strength * (x[:, 0] - x[:, 1] + 0.8 * x[:, 2] * x[:, 3])
    return floats(x), floats((r.random(n) < 1 / (1 + np.exp(-score)))[:, None])


def species(seed: int, n: int = 900) -> tuple[Tensor, Tensor]:
    """Return five conditions of plots and the number of animals counted there."""
    r = dice(seed, 15)
    x = r.normal(size=(n, 5))
    return floats(x), floats(
        r.poisson(np.exp(0.8 + 0.6 * x[:, 0] - 0.4 * x[:, 1] ** 2 + 0.3 * x[:, 2]))[:, None]
    )


def isotopes(seed: int, n: int = 600, modes: int = 6, spread: float = 0.15) -> Tensor:
    """Return two ratios of samples from some sources on a ring."""
    r = dice(seed, 16)
    angle = 2 * np.pi * r.integers(modes, size=n) / modes
    return floats(1.5 * np.stack([np.cos(angle), np.sin(angle)], 1) + spread * r.normal(size=(n, 2)))


def profiles(seed: int, n: int = 800, depth: int = 16, noise: float = 0.25) -> Tensor:
    """Return temperature profiles of a lake: level, depth of the step, and a wave."""
    r, z = dice(seed, 17), np.linspace(0, 1, depth)
    level, step, wave = r.normal(size=(n, 1)), r.uniform(0.2, 0.8, size=(n, 1)), r.normal(size=(n, 1))
    x = 0.7 * level + 1.2 * np.tanh((step - z) / 0.1) + 0.6 * wave * np.sin(2 * np.pi * z)
    return floats(standard(x + noise * r.normal(size=x.shape)))


# ---------------------------------------------------------------- nets


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU, norm: bool = False, drop: float = 0.0) -> nn.Sequential:
    """Return a plain stack of linear layers."""
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers += [nn.BatchNorm1d(b)] * norm + [act()] + [nn.Dropout(drop)] * (drop > 0)
    return nn.Sequential(*layers)


def conv1(channels: int, out: int, width: int = 12, kernel: int = 5, norm: bool = False) -> nn.Sequential:
    """Return two convolutions in time, a global mean and a linear layer."""
    return nn.Sequential(
        nn.Conv1d(channels, width, kernel, padding=kernel // 2),
        nn.BatchNorm1d(width) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Conv1d(width, width, kernel, padding=kernel // 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, out),
    )


class Tiles(nn.Module):
    """Two convolutions, pooled and read out, written functionally."""

    def __init__(self, out: int = 3, width: int = 8, drop: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 5, padding=2)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, out)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.relu(self.second(x))
        return self.head(self.drop(x.mean((2, 3))))


class Recurrent(nn.Module):
    """A recurrent net whose last state is read out."""

    def __init__(
        self, channels: int = 3, width: int = 16, out: int = 1, kind: type[nn.Module] = nn.GRU
    ) -> None:
        super().__init__()
        self.body = kind(channels, width, batch_first=True)
        self.head = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


class Motifs(nn.Module):
    """Letters, embedded; a convolution; the strongest answer anywhere."""

    def __init__(
        self, letters: int = 4, width: int = 16, out: int = 3, kernel: int = 6, drop: float = 0.0
    ) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, 6)
        self.scan = nn.Conv1d(6, width, kernel)
        self.drop = nn.Dropout(drop)
        self.head = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.scan(self.letters(x).transpose(1, 2)))
        return self.head(self.drop(h.amax(2)))


class Attentive(nn.Module):
    """One block of attention over a series' steps, then their mean."""

    def __init__(self, channels: int, out: int, width: int = 16, length: int = 64) -> None:
        super().__init__()
        self.inward = nn.Linear(channels, width)
        self.place = nn.Parameter(0.3 * torch.randn(length, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.inward(x) + self.place[: x.shape[1]]).mean(1))


class Energy(nn.Module):
    """Messages along dense bonds, then a sum over the atoms."""

    def __init__(self, width: int = 24, depth: int = 2, own: bool = True) -> None:
        super().__init__()
        self.inward = nn.Linear(4, width)
        self.layers = nn.ModuleList(nn.Linear((1 + own) * width, width) for _ in range(depth))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.own = own

    def forward(self, nodes: Tensor, bonds: Tensor) -> Tensor:
        h = torch.relu(self.inward(nodes))
        for layer in self.layers:
            if self.own:
                h = torch.relu(layer(torch.cat([h, bonds @ h / 3], -1)))
            else:
                with_self = bonds + torch.eye(bonds.shape[-1])
                h = torch.relu(layer(with_self @ h / with_self.sum(-1, keepdim=True)))
        return self.head(h).mean(1)


class Families(nn.Module):
    """A graph convolution over an edge list: means over the neighbours and the node itself."""

    def __init__(
        self, width: int = 16, depth: int = 2, channels: int = 8, out: int = 3, drop: float = 0.0
    ) -> None:
        super().__init__()
        sizes = [channels] + [width] * (depth - 1) + [out]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:], strict=True))
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        count = torch.ones(len(x)).index_add(0, edges[0], torch.ones(edges.shape[1]))
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = x.index_add(0, edges[0], x[edges[1]]) / count[:, None]
            if i < len(self.layers) - 1:
                x = self.drop(torch.relu(x))
        return x


class Cloud(nn.Module):
    """The same small net for every point, then the greatest answers."""

    def __init__(self, out: int = 3, width: int = 24) -> None:
        super().__init__()
        self.point = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.point(x).amax(1))


def segmenter(width: int = 8, kernel: int = 5, layers: int = 2, norm: bool = False) -> nn.Sequential:
    """Return convolutions that keep the size and give a logit per pixel."""
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Conv2d(width if i else 1, width, kernel, padding=kernel // 2)]
        parts += [nn.BatchNorm2d(width)] * norm + [nn.ReLU()]
    return nn.Sequential(*parts, nn.Conv2d(width, 1, 1))


class Tagger(nn.Module):
    """A state for every residue, from a window around it."""

    def __init__(
        self, kernels: tuple[int, ...] = (5,), width: int = 16, out: int = 3, letters: int = 11
    ) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, 8, padding_idx=0)
        self.scans = nn.ModuleList(
            nn.Conv1d(width if i else 8, width, k, padding=k // 2) for i, k in enumerate(kernels)
        )
        self.head = nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        h = self.letters(x).transpose(1, 2)
        for scan in self.scans:
            h = F.relu(scan(h))
        return self.head(h.transpose(1, 2))


def per_place(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy over all places that count."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


class Elbo(nn.Module):
    """A variational autoencoder; its forward pass gives reconstruction, mean and log-variance."""

    def __init__(self, size: int = 16, code: int = 3, width: int = 32) -> None:
        super().__init__()
        self.code = code
        self.encoder = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, width), nn.ReLU(), nn.Linear(width, size))

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, spread = self.encoder(x).chunk(2, -1)
        return mean, spread

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, spread = self.encode(x)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * spread) if self.training else mean
        return self.decoder(code), mean, spread

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        return self.decoder(torch.randn(n, self.code))


def elbo(beta: float = 1.0, noise: float = 0.25) -> Callable[[Any, Tensor], Tensor]:
    """Return the negative evidence bound for noise of known size."""

    def loss(output: Any, target: Tensor) -> Tensor:
        again, mean, spread = output
        divergence = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(-1)
        return (0.5 * ((again - target) ** 2).sum(-1) / noise + beta * divergence).mean()

    return loss


class Source(nn.Module):
    """A generator: noise in, samples out."""

    def __init__(self, size: int = 2, noise: int = 2, width: int = 32) -> None:
        super().__init__()
        self.noise = noise
        self.net = mlp(noise, width, width, size)

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        return self(torch.randn(n, self.noise))


# ---------------------------------------------------------------- the loop


class Run(NamedTuple):
    """What a training leaves behind."""

    history: list[dict[str, float]]
    initial: dict[str, Tensor]
    optimizer: torch.optim.Optimizer


def descend(parameters: Any, kind: str, lr: float, decay: float) -> torch.optim.Optimizer:
    """Return an optimiser by its name."""
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=lr, weight_decay=decay)
    if kind == "momentum":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=decay)
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rms": torch.optim.RMSprop}[kind]
    return make(parameters, lr=lr, weight_decay=decay)


def apply(model: nn.Module, x: Any) -> Any:
    """Call the model on one input or on a tuple of them."""
    return model(*x) if isinstance(x, tuple) else model(x)


def fit(
    model: nn.Module,
    train: Any,
    validation: Any = None,
    loss: Any = "cross_entropy",
    *,
    lr: float = 3e-3,
    epochs: int = 20,
    batch: int | None = 32,
    kind: str = "adam",
    decay: float = 0.0,
    seed: int = 0,
    clear: bool = True,
    parameters: Any = None,
    every: int = 0,
    jitter: float = 0.0,
) -> Run:
    """Train for some epochs (``batch=None``: all rows at once) and leave the model ready to predict."""
    criterion = LOSSES[loss] if isinstance(loss, str) else loss
    initial = {key: value.clone() for key, value in model.state_dict().items()}
    chosen = [p for p in model.parameters() if p.requires_grad] if parameters is None else list(parameters)
    optimizer = descend(chosen, kind, lr, decay)
    x, y = train if isinstance(train, tuple) else (train, train)
    generator, history = torch.Generator().manual_seed(seed), []
    for epoch in range(epochs):
        model.train()
        order = torch.randperm(len(y), generator=generator)
        losses = []
        for part in [None] if batch is None else order.split(batch):
            bx, by = (x, y) if part is None else (rows(x, part), y[part])
            if jitter:
                bx = bx + jitter * torch.randn(bx.shape, generator=generator)
            if clear or (every and epoch % every == 0):
                optimizer.zero_grad()
            value = criterion(apply(model, bx), by)
            value.backward()
            optimizer.step()
            losses.append(value.item())
        history.append({"loss": float(np.mean(losses))})
        if validation is not None:
            history[-1]["val_loss"] = held_out(model, validation, criterion)
    model.eval()
    return Run(history, initial, optimizer)


def held_out(model: nn.Module, validation: Any, criterion: Any) -> float:
    """Return the loss on the held-out rows."""
    model.eval()
    vx, vy = validation if isinstance(validation, tuple) else (validation, validation)
    with torch.no_grad():
        return float(criterion(apply(model, vx), vy))


def stepper(
    loss: Any, lr: float, kind: str = "adam", clear: bool = True, decay: float = 0.0
) -> Callable[..., float]:
    """Return the user's own update, with one optimiser per model that it is given."""
    made: weakref.WeakKeyDictionary[nn.Module, torch.optim.Optimizer] = weakref.WeakKeyDictionary()
    criterion = LOSSES[loss] if isinstance(loss, str) else loss

    def step(model: nn.Module, batch: Any) -> float:
        if model not in made:
            made[model] = descend(model.parameters(), kind, lr, decay)
        if clear:
            made[model].zero_grad()
        x, y = batch
        value = criterion(apply(model, x), y)
        value.backward()
        made[model].step()
        return value.item()

    return step


def hand(
    model: nn.Module, train: Any, validation: Any, loss: Any, run: Run, give: str, batch: int | None
) -> dict:
    """Return what the user hands over; the letters say what of optimizer, batch_size, history and initial."""
    given: dict[str, Any] = {"model": model, "data": train, "loss": loss}
    if validation is not None:
        given["validation"] = validation
    extra = {"o": ("optimizer", run.optimizer), "h": ("history", run.history), "i": ("initial", run.initial)}
    given.update(extra[letter] for letter in give if letter in extra)
    if "b" in give and batch is not None:
        given["batch_size"] = batch
    return given


def study(
    model: nn.Module, train: Any, validation: Any, loss: Any = "cross_entropy", give: str = "", **options: Any
) -> dict[str, Any]:
    """Train, and hand over what the letters say."""
    run = fit(model, train, validation, loss, **options)
    return hand(model, train, validation, loss, run, give, options.get("batch", 32))
