"""Sequences of different lengths: one flat tensor, padded batch by batch, like lengths together.

The steps of all sequences lie one after another in one tensor, so a batch is one gather and no sample is
touched by Python. Batches are cut from pools of the shuffled order that are sorted by length: a batch
pads little, and the order still depends on (seed, epoch) only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.engine.batches import Batch

__all__ = ["Ragged", "RaggedBatches", "bucketed", "padding_mask"]

POOL = 50  # batches per pool: larger pools pad less, smaller ones mix more


class Ragged:
    """Sequences ``(t_i, ...)`` in one tensor ``(sum t_i, ...)``; lengths stay on the CPU."""

    def __init__(self, flat: Tensor, lengths: Tensor) -> None:
        self.flat = flat
        self.lengths = lengths
        self.starts = torch.cumsum(lengths, 0) - lengths

    @classmethod
    def of(cls, parts: Sequence[Any], dtype: torch.dtype | None = None, device: Any = None) -> Ragged:
        """Join arrays; sequences of no steps are allowed."""
        flat = torch.from_numpy(np.concatenate([np.asarray(part) for part in parts]))
        lengths = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        return cls(flat.to(device=device, dtype=dtype or flat.dtype), lengths)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.lengths)

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``(b, t, ...)``, zero after each sequence's end, and the lengths ``(b,)``."""
        lengths = self.lengths[rows]
        steps = torch.arange(int(lengths.max()) if len(lengths) else 0)
        inside = steps < lengths[:, None]
        where = torch.where(inside, self.starts[rows][:, None] + steps, 0).to(self.flat.device)
        inside = inside.to(self.flat.device)
        out = self.flat[where] if len(self.flat) else self.flat.new_zeros(*where.shape, *self.flat.shape[1:])
        return out.masked_fill_(~inside.reshape(inside.shape + (1,) * (out.ndim - 2)), 0), lengths

    def to(self, device: Any) -> Ragged:
        """Return the same sequences on a device."""
        return Ragged(self.flat.to(device), self.lengths)

    def take(self, rows: Tensor) -> Ragged:
        """Return some of the sequences."""
        lengths = self.lengths[rows]
        begin = torch.repeat_interleave(self.starts[rows] - (torch.cumsum(lengths, 0) - lengths), lengths)
        where = begin + torch.arange(int(lengths.sum()))
        return Ragged(self.flat[where.to(self.flat.device)], lengths)


Column = Ragged | Tensor


class RaggedBatches:
    """Batches of columns that share their first axis; a ragged input gives padded steps and lengths.

    Parameters
    ----------
    inputs : Ragged, Tensor, or tuple of those
        What the module is called with; at least one is ragged.
    target : Ragged or Tensor, optional
        The targets; ragged ones are padded with 0.
    weight : Ragged or Tensor, optional
        How much each sequence, or each step, counts; steps beyond the end have weight 0.
    pool : int
        How many batches are sorted by length together; 0 leaves the order alone.
    """

    def __init__(
        self,
        inputs: Column | tuple[Column, ...],
        target: Column | None = None,
        weight: Column | None = None,
        *,
        pool: int = POOL,
    ) -> None:
        self.inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self.target = target
        self.weight = weight
        self.pool = pool
        ragged = [column for column in self.inputs if isinstance(column, Ragged)]
        self.lengths = torch.stack([column.lengths for column in ragged]).sum(0)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.lengths)

    def count(self, batch_size: int) -> int:
        """Return the number of batches in an epoch."""
        return -(-len(self) // batch_size)

    def _map(self, change: Callable[[Column], Column]) -> RaggedBatches:
        target, weight = (None if c is None else change(c) for c in (self.target, self.weight))
        return RaggedBatches(tuple(change(c) for c in self.inputs), target, weight, pool=self.pool)

    def take(self, rows: Tensor) -> RaggedBatches:
        """Return batches over some of the sequences."""
        return self._map(lambda c: c.take(rows) if isinstance(c, Ragged) else c[rows.to(c.device)])

    def to(self, device: Any) -> RaggedBatches:
        """Return the same sequences on a device."""
        return self._map(lambda c: c.to(device))

    def epoch(self, order: Tensor | None, batch_size: int, start: int = 0) -> Iterator[Batch]:
        """Yield batches from the ``start``-th on."""
        if order is None:
            chosen = list(torch.split(torch.arange(len(self)), batch_size))
        else:
            chosen = bucketed(self.lengths, order, batch_size, self.pool)
        for rows in chosen[start:]:
            yield self.batch(rows)

    def batch(self, rows: Tensor) -> Batch:
        """Return one batch: steps and lengths for a ragged input, rows for the rest."""
        inputs: list[Any] = []
        for column in self.inputs:
            inputs += column.padded(rows) if isinstance(column, Ragged) else [column[rows.to(column.device)]]
        return Batch(tuple(inputs), _padded(self.target, rows), _padded(self.weight, rows), len(rows))


def _padded(column: Column | None, rows: Tensor) -> Tensor | None:
    if isinstance(column, Ragged):
        return column.padded(rows)[0]
    return None if column is None else column[rows.to(column.device)]


def bucketed(lengths: Tensor, order: Tensor, batch_size: int, pool: int = POOL) -> list[Tensor]:
    """Return batches of row numbers: pools of ``order`` sorted by length, then the batches shuffled."""
    if not pool:
        return list(torch.split(order, batch_size))
    batches: list[Tensor] = []
    for part in torch.split(order, pool * batch_size):
        longest = torch.argsort(lengths[part], descending=True, stable=True)
        batches += torch.split(part[longest], batch_size)
    seed = int(order[0]) * len(order) + int(order[-1])  # the order is random, so it can seed what follows
    shuffle = torch.randperm(len(batches), generator=torch.Generator().manual_seed(seed))
    return [batches[i] for i in shuffle.tolist()]


def padding_mask(lengths: Tensor, steps: int, device: Any = None) -> Tensor:
    """Return ``(b, steps)``, True inside each sequence."""
    return (torch.arange(steps) < lengths.cpu()[:, None]).to(device)
