"""Small nets of usual form on images, sequences and texts: what a net that is not too small learns of them.

Flat features say little where what decides may be anywhere. A few convolutions with a maximum and a mean over all places, and
coarse places beside them, learn most of what small examples of these kinds hold, in a second or two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.diagnose.cost import cost
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import IGNORED, Samples

__all__ = ["net_gain"]

WIDTH, STEPS, ROWS, RATE, DECAY = 32, 300, 48, 4e-3, 1e-3
SECONDS, LEAST = 1.5, 60  # of a common processor, and steps below which nothing is learned
SIDE = 4  # coarse places along each side


class Pooled(nn.Module):
    """Convolutions, then maximum and mean over all places and the means of coarse places, then a perceptron."""

    def __init__(self, channels: int, outputs: int, axes: int, words: int = 0) -> None:
        super().__init__()
        conv: Any = nn.Conv1d if axes == 1 else nn.Conv2d
        self.coarse: Any = nn.AdaptiveAvgPool1d if axes == 1 else nn.AdaptiveAvgPool2d
        self.words = nn.Embedding(words, WIDTH) if words else None
        first = WIDTH if words else channels
        layers = [conv(first, WIDTH, 5, padding=2)]
        layers += [conv(WIDTH, WIDTH, 3, padding=d, dilation=d) for d in (2, 4)]
        self.convolutions = nn.ModuleList(layers)
        self.hidden = nn.Linear(WIDTH * (2 + SIDE**axes), 2 * WIDTH)
        self.head = nn.Linear(2 * WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return an output per row."""
        h = x if self.words is None else self.words(x).movedim(2, 1)
        for i, layer in enumerate(self.convolutions):
            h = F.relu(layer(h)) + (h if i else 0)
        coarse = self.coarse(SIDE)(h)
        flat = torch.cat([h.flatten(2).amax(2), h.flatten(2).mean(2), coarse.flatten(1)], 1)
        return self.head(F.relu(self.hidden(flat)))


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
    made = _made(exam, inside)
    if made is None or inside.n < 40 or held.n < 20:
        return float("nan")
    net, read = made
    answer, target = _fitted(net, read(inside), _target(inside, s.task), read(held)), _target(held, s.task)
    if s.task == "regression":
        score, chance = 1 - float((answer[:, 0] - target).square().mean() / target.var()), 0.0
    else:
        counts = torch.unique(target, return_counts=True)[1]
        score, chance = float((answer.argmax(1) == target).float().mean()), float(counts.max() / counts.sum())
    exam.facts["reference net"] = (score - chance) / max(1e-9, 1 - chance)
    return float(exam.facts["reference net"])


def _target(samples: Samples, task: str) -> Tensor:
    y = samples.y.detach().cpu().reshape(len(samples.y), -1)[:, 0]
    return y.float() if task == "regression" else y.round().long()


def _made(exam: Exam, train: Samples) -> tuple[nn.Module, Any] | None:
    """Return a net for this kind of inputs, and how they are read; None for tables and for several answers per row."""
    x, y = train.x, train.y
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or bool((y == IGNORED).any()):
        return None
    if y.reshape(len(y), -1).shape[1] != 1:
        return None
    outputs = 1 if exam.subject.task == "regression" else int(y.max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not x.is_floating_point():
            if x.ndim != 2 or x.shape[1] < 4 or int(x.min()) < 0 or int(x.max()) > 50000:
                return None
            words = max(
                int(t.max()) for t in (x, *([] if exam.subject.valid is None else [exam.subject.valid.x]))
            )
            return Pooled(0, outputs, 1, words + 1), lambda p: p.x.cpu().long()
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

        return Pooled(channels, outputs, x.ndim - 2), read


def _fitted(net: nn.Module, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Train the net and return its answers, of numbers on their own scale."""
    mean, std = (y.mean(), y.std().clamp_min(1e-8)) if y.is_floating_point() else (0.0, 1.0)
    descent = torch.optim.AdamW(net.parameters(), RATE, weight_decay=DECAY)
    rng = torch.Generator().manual_seed(0)

    def step() -> None:
        rows = torch.randint(len(x), (min(ROWS, len(x)),), generator=rng)
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
