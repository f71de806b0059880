"""Short trainings of copies, with one setting changed and with none: what the descent is asked by.

A run is measured by the mean loss in evaluation mode over rows that are the same for all runs. Runs share their order of
batches, so that a difference comes from the setting.
"""

from __future__ import annotations

import inspect
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from corollary.diagnose.cost import cost
from corollary.diagnose.samples import Samples, kept, main_output
from corollary.diagnose.subject import Subject, quiet
from corollary.diagnose.trace import RANDOM

__all__ = ["Lab", "Result"]

WATCHED = 512  # rows on which a run is measured
# that need a closure, sparse gradients or matrices only, or are none
UNFIT = ("LBFGS", "SparseAdam", "Muon", "Optimizer")


class DropoutRate(TorchFunctionMode):
    """While active, every dropout has this rate, functional ones too."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in RANDOM:
            if len(args) > 1:
                args = (args[0], self.rate, *args[2:])
            else:
                kwargs["p"] = self.rate
        return func(*args, **kwargs)


@dataclass
class Result:
    """How a run went: the loss and score before and after, on training and on held-out rows."""

    loss: float
    score: float
    before: float
    losses: list[float] = field(default_factory=list)
    valid_loss: float = float("nan")
    valid_score: float = float("nan")
    net: nn.Module | None = None
    steps: int = 0
    rate: float = float("nan")  # that it was trained at


class Lab:
    """Trains copies of a subject's module for a bounded time."""

    def __init__(self, subject: Subject, deadline: float) -> None:
        self.subject, self.deadline = subject, deadline
        rng = np.random.default_rng(1)
        self.pool = self._labelled(subject.train)
        rows = (
            self.pool if len(self.pool) <= WATCHED else np.sort(rng.choice(self.pool, WATCHED, replace=False))
        )
        self.watched = subject.train if subject.train.whole else subject.train.take(rows)
        self.held: Samples | None = None
        if subject.valid is not None:
            free = self._labelled(subject.valid)
            rows = free if len(free) <= WATCHED else np.sort(rng.choice(free, WATCHED, replace=False))
            self.held = subject.valid if subject.valid.whole else subject.valid.take(rows)
        self.cost = float("nan")  # seconds per step
        self.runs: dict[str, Result] = {}

    @staticmethod
    def _labelled(samples: Samples) -> np.ndarray:
        return np.flatnonzero(samples.counted.numpy())

    def measure(self, net: nn.Module, samples: Samples | None) -> tuple[float, float]:
        """Return loss and score in evaluation mode."""
        if samples is None:
            return float("nan"), float("nan")
        was = net.training
        net.eval()
        with torch.no_grad(), quiet(net):
            torch.manual_seed(0)
            out = self.subject.call(net, samples)
            target = self.subject.target(samples)
            target = target.to(main_output(out).device) if isinstance(target, Tensor) else target
            keep = samples.counted
            z = main_output(out)
            if samples.whole and not bool(keep.all()):
                out, target = kept(out, keep), target[keep]
                z = main_output(out)
            loss = float(self.subject.criterion(out, target))
            score, _ = self.subject.criterion.score(z, target)
        net.train(was)
        return loss, score

    def steps_for(self, seconds: float, least: int = 20, most: int = 400) -> int:
        """Return how many steps fit into some seconds of a common processor, the same on every machine."""
        if math.isnan(self.cost):
            self.cost = self.cost_of_step(self.subject.twin())
        return int(np.clip(seconds / self.cost, least, most))

    def cost_of_step(self, net: nn.Module) -> float:
        """Return the seconds that a step of a net takes on a common processor."""
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        batch = self._batch(np.random.default_rng(0), min(32, max(1, len(self.pool))))

        def step() -> None:
            optimizer.zero_grad()
            self.subject.loss(net, batch).backward()
            optimizer.step()

        net.train()
        with quiet(net):
            return cost(step)

    def _batch(self, rng: np.random.Generator, size: int) -> Samples:
        train = self.subject.train
        return (
            train if train.whole else train.take(rng.choice(self.pool, size, replace=size > len(self.pool)))
        )

    def run(
        self,
        name: str,
        net: nn.Module,
        *,
        steps: int,
        rate: float,
        optimizer: str = "adam",
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        decoupled: bool = False,
        batch_size: int = 32,
        rows: np.ndarray | None = None,
        change: Any = None,
        watched: Samples | None = None,
        anneal: bool = False,
        criterion: Any = None,
        dropout: float | None = None,
        clip_norm: float | None = None,
        options: dict[str, Any] | None = None,
        shares: dict[str, float] | None = None,
        still: bool = False,
    ) -> Result:
        """Train a net, if ``still`` in evaluation mode, and say how it went; the result is kept under its name.

        Parameters named in ``shares`` have that share of the rate.
        """
        subject = self.subject
        params = [p for p in net.parameters() if p.requires_grad]
        slower = {id(p): rate * shares[n] for n, p in net.named_parameters() if n in shares} if shares else {}
        groups = [{"params": [p], "lr": slower.get(id(p), rate)} for p in params] if slower else params
        made = _optimizer(
            groups, optimizer, decoupled, lr=rate, weight_decay=weight_decay, momentum=momentum, **(options or {})
        )  # fmt: skip
        watched = watched or self.watched
        before, _ = self.measure(net, watched)
        rng = np.random.default_rng(7)
        pool = self.pool if rows is None else rows
        size = max(1, min(batch_size, len(pool)))
        losses: list[float] = []
        net.train(not still)
        old = subject.criterion
        done = 0
        with quiet(net), nullcontext() if dropout is None else DropoutRate(dropout):
            torch.manual_seed(0)
            order = rng.permutation(pool)
            at = 0
            for i in range(steps):
                if time.perf_counter() > self.deadline:
                    raise TimeoutError(
                        f"the time limit was reached in step {i} of {steps} of the run {name!r}"
                    )
                if at + size > len(order):
                    order, at = rng.permutation(pool), 0
                batch = subject.train if subject.train.whole else subject.train.take(order[at : at + size])
                at += size
                if change is not None:
                    batch = change(batch)
                if anneal:
                    for g in made.param_groups:
                        g["lr"] = rate * (0.02 + 0.98 * min(1.0, 2 * (1 - i / steps)))
                made.zero_grad()
                if criterion is not None:
                    subject.criterion = criterion
                try:
                    loss = subject.loss(net, batch)
                finally:
                    subject.criterion = old
                if not loss.requires_grad:
                    break
                loss.backward()
                if clip_norm is not None:
                    nn.utils.clip_grad_norm_(params, clip_norm)
                made.step()
                losses.append(float(loss.detach()))
                done += 1
                if not math.isfinite(losses[-1]):
                    break
        watched = change(watched) if change is not None else watched
        if criterion is not None:
            subject.criterion = criterion
        try:
            loss_after, score = self.measure(net, watched)
            held = None if self.held is None else (change(self.held) if change is not None else self.held)
            valid_loss, valid_score = self.measure(net, held)
        finally:
            subject.criterion = old
        result = Result(loss_after, score, before, losses, valid_loss, valid_score, net, done, rate)
        self.runs[name] = result
        return result


def _optimizer(params: list[Any], name: str, decoupled: bool, **options: Any) -> Any:
    """Return an optimiser of torch by the name of its class, Adam where it has none; it takes what it knows of the options."""
    kinds = {k.lower(): v for k, v in vars(torch.optim).items() if isinstance(v, type) and k not in UNFIT}
    kind = kinds.get(name) or (torch.optim.AdamW if decoupled else torch.optim.Adam)
    known = inspect.signature(kind).parameters
    return kind(params, **{k: v for k, v in options.items() if k in known})
