r"""Comparison of optimisers on your own model: the same start, seed and number of gradient evaluations.

The unit of cost is one gradient of one sample. An optimiser that looks twice at a batch (SVRG, the extragradient) pays twice, one
that looks at all the data (gradient descent, L-BFGS, Newton) pays for all of it, a product with the Hessian counts as two
gradients, and a look by Newton's line search as one. Every optimiser runs with each of several learning rates, from the same
weights and over the same order of batches; the rate with the best median final loss over the seeds is kept, as one would
choose it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary import errors, optim
from corollary.theory.hessian import Surface, surface_of

__all__ = ["RACERS", "Race", "Result", "race"]

# The optimiser -> the learning rates that are tried.
RACERS: dict[str, Sequence[float]] = {
    "gd": (0.1, 0.5, 2.0),
    "sgd": (0.01, 0.05, 0.2),
    "heavy-ball": (0.002, 0.01, 0.05),
    "nesterov": (0.002, 0.01, 0.05),
    "adagrad": (0.01, 0.05, 0.2),
    "rmsprop": (0.001, 0.005, 0.02),
    "adam": (0.001, 0.005, 0.02),
    "amsgrad": (0.001, 0.005, 0.02),
    "adamw": (0.001, 0.005, 0.02),
    "muon": (0.002, 0.01, 0.05),
    "signsgd": (0.0005, 0.002, 0.01),
    "subgradient": (0.05, 0.2, 1.0),
    "svrg": (0.01, 0.05, 0.2),
    "extragradient": (0.01, 0.05, 0.2),
    "lbfgs": (1.0,),
    "newton": (1.0,),
}
EXTENSIONS, FACTOR = 4, 4.0  # how often, and how far, a grid of rates goes on where its end is best
WHOLE = ("gd", "lbfgs", "newton")  # those that look at all the data


class Result(NamedTuple):
    """One optimiser: its chosen rate, the passes over the data it had paid for at each record, and losses (seeds, records)."""

    optimizer: str
    learning_rate: float
    passes: np.ndarray
    losses: np.ndarray

    @property
    def final(self) -> float:
        """The median last loss."""
        return float(np.median(self.losses[:, -1]))

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the largest last loss over the seeds."""
        return float(self.losses[:, -1].min()), float(self.losses[:, -1].max())


class Race(NamedTuple):
    """The results, best first; :func:`corollary.plot.race` draws them."""

    results: tuple[Result, ...]
    passes: float

    def __str__(self) -> str:
        """Return a table."""
        rows = [f"{'optimizer':<14}{'rate':>8}{'loss':>12}   least to largest of the seeds"]
        for r in self.results:
            low, high = r.spread
            rows.append(f"{r.optimizer:<14}{r.learning_rate:>8g}{r.final:>12.4g}   {low:.4g} to {high:.4g}")
        return "\n".join(rows)


def race(
    model: Any,
    data: Any = None,
    *,
    optimizers: Sequence[str] | None = None,
    loss: Any = None,
    passes: float = 10,
    batch_size: int = 32,
    seeds: int = 3,
    learning_rates: Sequence[float] | None = None,
    records: int = 20,
    random_state: int = 0,
) -> Race:
    """Let optimisers race on a model and data, at an equal number of gradient evaluations.

    Parameters
    ----------
    model, data, loss
        As in :class:`corollary.theory.hessian.Surface`. The model is left as it is; all start from its weights.
    optimizers : sequence of str, optional
        Names of ``corollary.optim``; by default all of ``RACERS``, Muon if there are matrices.
    passes : float, default=10
        The budget: gradients of single samples, in multiples of the number of samples.
    batch_size : int, default=32
        Samples per step of those that take batches.
    seeds : int, default=3
        Orders of the samples.
    learning_rates : sequence of float, optional
        Rates tried for every optimiser; by default three for each, and more where the first or last is best. L-BFGS and
        Newton take 1.
    records : int, default=20
        How often the loss over all data is recorded; this is not paid for.
    random_state : int, default=0
        Of the orders.

    Returns
    -------
    Race
        ``results`` sorted by median final loss; one that diverges ends with an infinite one.

    Examples
    --------
    >>> import torch
    >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> model = torch.nn.Linear(2, 1)
    >>> found = race(model, (X, X.sum(1)), optimizers=["sgd", "newton"], passes=20, batch_size=1, seeds=2)
    >>> found.results[0].optimizer
    'newton'
    """
    surface = surface_of(model, data, loss).copy()
    matrices = any(p.ndim == 2 for p in surface.params)
    names = list(optimizers or [name for name in RACERS if name != "muon" or matrices])
    for name in names:
        if name not in RACERS:
            raise errors.unknown("race", "optimiser", name, RACERS)
    for what, number in (
        ("passes", passes),
        ("batch_size", batch_size),
        ("seeds", seeds),
        ("records", records),
    ):
        if not number > 0:
            raise errors.value("race", f"{what} must be positive", number)
    start = surface.get()

    def tried(name: str, rate: float) -> Result:
        count = 1 if name in WHOLE else seeds
        runs = [
            _Runner(surface, start, name, rate, batch_size, random_state + i).run(passes, records)
            for i in range(count)
        ]
        return Result(name, float(rate), runs[0][0], np.stack([found for _, found in runs]))

    results = [_best(name, learning_rates, tried) for name in names]
    return Race(tuple(sorted(results, key=lambda r: r.final)), float(passes))


def _best(name: str, rates: Sequence[float] | None, tried: Callable[[str, float], Result]) -> Result:
    """Return the result with the best rate; where that is at an end of our own grid, the grid goes on beyond it."""
    found = [tried(name, rate) for rate in sorted(rates or RACERS[name])]
    for _ in range(EXTENSIONS if rates is None and len(found) > 1 else 0):
        best = min(found, key=lambda r: r.final)
        if best is found[-1]:
            found.append(tried(name, FACTOR * best.learning_rate))
        elif best is found[0]:
            found.insert(0, tried(name, best.learning_rate / FACTOR))
        else:
            break
    return min(found, key=lambda r: r.final)


class _Runner:
    """One optimiser from the start to the end of its budget."""

    def __init__(
        self, surface: Surface, start: Tensor, name: str, rate: float, batch_size: int, seed: int
    ) -> None:
        self.surface, self.name, self.paid = surface, name, 0.0
        surface.put(start)
        self.x, self.y = (torch.cat(parts) for parts in zip(*surface.batches))
        self.size = len(self.x) if name in WHOLE else min(batch_size, len(self.x))
        self.rng = np.random.default_rng(seed)
        options = {"max_iter": 5} if name == "lbfgs" else {}
        self.optimizer = optim.create(name, surface.params, lr=rate, **options)

    def gradients(self, rows: Any) -> Callable[[], Tensor]:
        """Return the closure of a batch, which pays for each look."""
        surface, x, y = self.surface, self.x[rows], self.y[rows]

        def closure() -> Tensor:
            self.paid += len(x) / len(self.x)
            loss = surface.on_batch(x, y)
            if self.name == "newton":  # it differentiates itself
                return loss
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        return closure

    def batches(self) -> Any:
        """Yield the rows of batches for ever, in a new order each pass; SVRG takes its anchor between."""
        while True:
            if self.name == "svrg":
                self.optimizer.anchor(self.gradients(slice(None)))
            if self.size == len(self.x):
                yield slice(None)
                continue
            order = torch.from_numpy(self.rng.permutation(len(self.x)))
            yield from order.split(self.size)

    def run(self, passes: float, records: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the passes at which the loss is recorded, and the losses: the last one at or before each."""
        at, known = np.linspace(0, passes, records + 1), self._loss()
        found = [known]
        with self.surface.quiet():
            batches = self.batches()
            while self.paid < passes and math.isfinite(known):
                self.optimizer.step(self.gradients(next(batches)))
                if self.name == "newton":
                    self.paid += 2 * self.optimizer.products
                if self.name in WHOLE:  # a step may cost many passes: what it reaches counts from then on
                    found += [known] * (int((at < self.paid - 1e-9).sum()) - len(found))
                    known = self._loss()
                elif (due := int((at <= self.paid + 1e-9).sum())) > len(found):
                    found += [known] * (due - 1 - len(found))
                    known = self._loss()
                    found.append(known)
        return at, np.array(found + [known] * (len(at) - len(found)))

    def _loss(self) -> float:
        if self.name == "subgradient" and self.paid:
            with self.optimizer.averaged():
                value = self.surface.value()
        else:
            value = self.surface.value()
        return value if math.isfinite(value) else math.inf
