"""Mini-batches: inputs, targets and weights of samples for the gradient learner.

A source of samples has a length, gives the batches of an epoch in an order that depends on (seed, epoch) only, and can be
taken in part. What :class:`TensorBatches` does for rows of tensors, others do for sequences, windows and files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Batch", "Batches", "TensorBatches", "epoch_order", "float_type", "typed"]

COPY_LIMIT = 2**30  # bytes: larger data are gathered batch by batch instead of permuted at once


class Batch(NamedTuple):
    """Some samples: inputs of the module, targets, sample weights, and the size of the whole batch."""

    inputs: tuple[Any, ...]
    target: Any = None
    weight: Tensor | None = None
    size: int = 0
    rows: slice = slice(None)  # which of ``size`` samples are here, where processes share a batch

    def noise(self, draw: Callable[..., Tensor], *shape: int, like: Tensor) -> Tensor:
        """Return noise for this process's samples: those of the numbers that one process would draw for the whole batch.

        ``draw`` is ``torch.rand`` or ``torch.randn``.
        """
        return draw(self.size, *shape, dtype=like.dtype, device=like.device)[self.rows]


class Batches(Protocol):
    """Samples that come in batches."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def count(self, batch_size: int) -> int:
        """Return the number of batches in an epoch."""

    def epoch(self, order: Tensor | None, batch_size: int, start: int = 0) -> Iterator[Batch]:
        """Yield batches from the ``start``-th on; ``order`` is a permutation or None."""

    def take(self, rows: Tensor) -> Batches:
        """Return batches over some of the samples."""

    def to(self, device: Any) -> Batches:
        """Return batches whose tensors are, or will be, on a device."""


class TensorBatches:
    """Rows of tensors that share their first axis, all in memory.

    Parameters
    ----------
    inputs : Tensor or tuple of Tensor
        What the module is called with.
    target : Tensor, optional
        The targets.
    weight : Tensor, optional
        How much each sample counts.
    """

    def __init__(
        self, inputs: Tensor | tuple[Tensor, ...], target: Tensor | None = None, weight: Tensor | None = None
    ) -> None:
        self.inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self.target = target
        self.weight = weight
        present = [t for t in (*self.inputs, target, weight) if t is not None]
        self.n = len(present[0])
        self.bytes = sum(t.numel() * t.element_size() for t in present)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n

    def count(self, batch_size: int) -> int:
        """Return the number of batches in an epoch."""
        return -(-self.n // batch_size)

    def _map(self, change: Any) -> tuple[tuple[Tensor, ...], Tensor | None, Tensor | None]:
        target, weight = (None if t is None else change(t) for t in (self.target, self.weight))
        return tuple(change(t) for t in self.inputs), target, weight

    def take(self, rows: Tensor) -> Self:
        """Return batches over some of the rows."""
        return type(self)(*self._map(lambda t: t[rows.to(t.device)]))

    def to(self, device: Any) -> Self:
        """Return the same rows on a device."""
        return type(self)(*self._map(lambda t: t.to(device)))

    def epoch(self, order: Tensor | None, batch_size: int, start: int = 0) -> Iterator[Batch]:
        """Yield slices of one permuted copy, or gathered rows if a copy would be too large."""
        source: TensorBatches = self
        n = self.n if order is None else len(order)
        if order is not None and self.bytes <= COPY_LIMIT:
            source, order = self.take(order), None
        inputs, target, weight = source.inputs, source.target, source.weight
        for begin in range(start * batch_size, n, batch_size):
            rows: Any = slice(begin, begin + batch_size)
            if order is not None:
                rows = order[rows].to(inputs[0].device)
            yield Batch(
                tuple(t[rows] for t in inputs),
                None if target is None else target[rows],
                None if weight is None else weight[rows],
                min(batch_size, n - begin),
            )


def epoch_order(seed: int, epoch: int, n: int) -> Tensor:
    """Return the order of ``n`` samples, which depends on (seed, epoch) only."""
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])
    return torch.randperm(n, generator=torch.Generator().manual_seed(mixed))


def float_type(module: nn.Module) -> torch.dtype | None:
    """Return the type of the module's weights, where it has any."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), None)


def typed(module: nn.Module, batch: Batch) -> Batch:
    """Return a batch in the type of the module's weights, which the run's precision may have changed."""
    dtype = float_type(module)
    if dtype is None:
        return batch

    def change(t: Any) -> Any:
        return t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t

    inputs = tuple(map(change, batch.inputs))
    return batch._replace(inputs=inputs, target=change(batch.target), weight=change(batch.weight))
