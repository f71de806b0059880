"""Small nets of usual form on images, sequences and texts: what a net that is not too small learns of them.

Flat features say little where what decides may be anywhere. A few convolutions with a maximum and a mean over all places, and
coarse places beside them, learn most of what small examples of these kinds hold, in a second or two. Where every place has a
class of its own the convolutions answer for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.diagnose.baselines import foretells
from corollary.diagnose.cost import cost
from corollary.diagnose.exam import Exam
from corollary.diagnose.positions import field, places
from corollary.diagnose.samples import IGNORED, Samples

__all__ = ["net_gain"]

WIDTH, STEPS, ROWS, RATE, DECAY = 32, 300, 48, 4e-3, 1e-3
SECONDS, LEAST = 1.5, 60  # of a common processor, and steps below which nothing is learned
SIDE = 4  # coarse places along each side
PLACES, LEAST_ROWS = 5000, 8  # of a batch with an answer per place


class Convolutions(nn.Module):
    """States of all places: of words their embeddings first, then convolutions; of steps, what comes later may be hidden."""

    def __init__(self, channels: int, axes: int, words: int = 0, back: bool = False) -> None:
        super().__init__()
        conv: Any = nn.Conv1d if axes == 1 else nn.Conv2d
        self.words = nn.Embedding(words, WIDTH) if words else None
        self.layers = nn.ModuleList([conv(WIDTH if words else channels, WIDTH, 5)])
        self.layers.extend(conv(WIDTH, WIDTH, 3, dilation=d) for d in (2, 4))
        self.pads = [[2 * n, 0] if back else [n] * (2 * axes) for n in (2, 2, 4)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the states (n, width, *sides)."""
        h = x if self.words is None else self.words(x).movedim(2, 1)
        for i, (layer, pad) in enumerate(zip(self.layers, self.pads)):
            h = F.relu(layer(F.pad(h, pad))) + (h if i else 0)
        return h


class Pooled(nn.Module):
    """Convolutions, then maximum and mean over all places and the means of coarse places, then a perceptron."""

    def __init__(self, channels: int, outputs: int, axes: int, words: int = 0) -> None:
        super().__init__()
        self.coarse: Any = nn.AdaptiveAvgPool1d if axes == 1 else nn.AdaptiveAvgPool2d
        self.states = Convolutions(channels, axes, words)
        self.hidden = nn.Linear(WIDTH * (2 + SIDE**axes), 2 * WIDTH)
        self.head = nn.Linear(2 * WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return an output per row."""
        h = self.states(x)
        coarse = self.coarse(SIDE)(h)
        flat = torch.cat([h.flatten(2).amax(2), h.flatten(2).mean(2), coarse.flatten(1)], 1)
        return self.head(F.relu(self.hidden(flat)))


class PerPlace(nn.Module):
    """Convolutions, then a perceptron at every place."""

    def __init__(self, channels: int, outputs: int, axes: int, words: int = 0, back: bool = False) -> None:
        super().__init__()
        self.states = Convolutions(channels, axes, words, back)
        self.hidden = nn.Linear(WIDTH, 2 * WIDTH)
        self.head = nn.Linear(2 * WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs (n, outputs, *sides)."""
        return self.head(F.relu(self.hidden(self.states(x).movedim(1, -1)))).movedim(-1, 1)


class Made(NamedTuple):
    """A net, and how inputs and targets of samples are read for it."""

    net: nn.Module
    read: Callable[[Samples], Tensor]
    target: Callable[[Samples], Tensor]


def net_gain(exam: Exam) -> float:
    """Return its score above chance on rows it has not seen, as a share of what is possible; NaN where there is no such net."""
    s = exam.subject
    if "reference net" in exam.facts:
        return float(exam.facts["reference net"])
    exam.facts["reference net"] = float("nan")
    train = s.train
    if train.whole or s.task not in ("classes", "binary", "regression") or len(train.named) != 1:
        return float("nan")
    rows, cut = np.random.default_rng(0).permutation(train.n), train.n // 4
    inside, held = (
        (train, s.valid) if s.valid is not None else (train.take(rows[cut:]), train.take(rows[:cut]))
    )
    if inside.n < 40 or held.n < 20:
        return float("nan")
    made = _made(exam, inside)
    if made is None:
        return float("nan")
    target = made.target(held)
    answer = _fitted(made.net, made.read(inside), made.target(inside), made.read(held))
    if s.task == "regression":
        score, chance = 1 - float((answer[:, 0] - target).square().mean() / target.var()), 0.0
    else:
        said, target = answer.argmax(1)[target != IGNORED], target[target != IGNORED]
        counts = torch.unique(target, return_counts=True)[1]
        score, chance = float((said == target).float().mean()), float(counts.max() / counts.sum())
    exam.facts["reference net"] = (score - chance) / max(1e-9, 1 - chance)
    return float(exam.facts["reference net"])


def _target(samples: Samples, task: str) -> Tensor:
    y = samples.y.detach().cpu().reshape(len(samples.y), -1)[:, 0]
    return y.float() if task == "regression" else y.round().long()


def _made(exam: Exam, train: Samples) -> Made | None:
    """Return a net for this kind of inputs and targets; None for tables, and for several answers that are not of places."""
    s, x, y = exam.subject, train.x, train.y
    if not isinstance(x, Tensor) or not isinstance(y, Tensor):
        return None
    alone = y.reshape(len(y), -1).shape[1] == 1
    back = None if alone else _back(exam)
    if bool((y == IGNORED).any()) if alone else back is None:
        return None

    def target(samples: Samples) -> Tensor:
        return _target(samples, s.task) if alone else places(exam, samples).y.round().long()

    outputs = 1 if s.task == "regression" else int(target(train).max()) + 1
    inputs = _inputs(exam, train)
    if inputs is None:
        return None
    read, channels, axes, words = inputs
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if back is None:
            return Made(Pooled(channels, outputs, axes, words), read, target)
        return Made(PerPlace(channels, outputs, axes, words, back), read, target)


def _back(exam: Exam) -> bool | None:
    """Whether a place may know what came before only, as the model does; None where the two could not be compared."""
    s = exam.subject
    found = places(exam) if s.net is not None and s.task != "regression" else None
    reach = None if found is None else field(exam, found.sides)
    if reach is None or torch.equal(found.x[..., 0], found.y.to(found.x)):
        return None  # a place that is asked for itself
    if foretells(s.train.x, s.train.y):
        return True
    if not any((back == 0) != (ahead == 0) for back, ahead in reach):
        return False
    return True if len(reach) == 1 and reach[0][1] == 0 else None


def _inputs(exam: Exam, train: Samples) -> tuple[Callable[[Samples], Tensor], int, int, int] | None:
    """Return how inputs are read, their channels, their axes and how many words there are."""
    x = train.x
    if not x.is_floating_point():
        if x.ndim != 2 or x.shape[1] < 4 or int(x.min()) < 0 or int(x.max()) > 50000:
            return None
        valid = exam.subject.valid
        words = max(int(t.max()) for t in (x, *([] if valid is None else [valid.x])))
        return lambda p: p.x.cpu().long(), 0, 1, words + 1
    if x.ndim not in (3, 4) or (x.ndim == 4 and min(x.shape[2:]) < SIDE):
        return None
    last = x.ndim == 3 and not exam.steps_last
    channels = x.shape[2] if last else x.shape[1]
    axes = [i for i in range(x.ndim) if i != (2 if last else 1)]
    a = x.detach().cpu().float()
    mean, std = a.mean(axes, keepdim=True), a.std(axes, keepdim=True).clamp_min(1e-8)

    def read(samples: Samples) -> Tensor:
        t = (samples.x.detach().cpu().float() - mean) / std
        return t.movedim(2, 1) if last else t

    return read, channels, x.ndim - 2, 0


def _fitted(net: nn.Module, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Train the net and return its answers, of numbers on their own scale."""
    mean, std = (y.mean(), y.std().clamp_min(1e-8)) if y.is_floating_point() else (0.0, 1.0)
    descent = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    rng = torch.Generator().manual_seed(0)
    batch = min(ROWS, len(x), max(LEAST_ROWS, PLACES // y[0].numel()))

    def step() -> None:
        rows = torch.randint(len(x), (batch,), generator=rng)
        out = net(x[rows])
        loss = (
            F.mse_loss(out[:, 0], (y[rows] - mean) / std)
            if y.is_floating_point()
            else F.cross_entropy(out, y[rows])
        )
        descent.zero_grad()
        loss.backward()
        descent.step()

    with torch.enable_grad():
        descent.param_groups[0]["lr"] = RATE / 20
        steps = int(np.clip(SECONDS / cost(step), LEAST, STEPS))
        for i in range(1, steps):
            descent.param_groups[0]["lr"] = RATE * min(1.0, (i + 1) / 20, 2 * (1 - i / steps) + 0.02)
            step()
    with torch.no_grad():
        return torch.cat([net(part) for part in v.split(512)]) * std + mean
