r"""Sharded training: each process keeps the optimiser's state of one slice of the parameters.

With :math:`P` processes a flat parameter vector :math:`w` of length :math:`n` is cut into :math:`P` slices of
:math:`k = \lceil n / P \rceil` numbers (the last one is padded with zeros). In each update

1. every process computes the gradient of its share of the batch,
2. *reduce-scatter*: process :math:`p` receives slice :math:`p` of the mean gradient,
3. process :math:`p` updates slice :math:`p` with its optimiser, whose state has :math:`k` numbers for each moment,
4. *all-gather*: every process receives all of :math:`w`.

This is the second stage of ZeRO [1]_. The optimiser's state is sharded, for Adam twice the size of the parameters; the
parameters themselves stay whole in every process, unlike with FSDP's full sharding. As many numbers are sent as by DDP's
all-reduce. A checkpoint is gathered by the first process and not written in shards by :mod:`torch.distributed.checkpoint`,
because the files of that are pickles, which this library never reads, and because one file with a checksum can be resumed by
any number of processes and with either strategy.

References
----------
.. [1] S. Rajbhandari, J. Rasley, O. Ruwase, Y. He (2020). ZeRO: Memory optimizations toward training trillion parameter
   models. SC20. Section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from corollary import errors
from corollary.engine.learner import State

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = ["SHARDABLE", "Shard", "check_shardable", "from_all", "on_slots", "share_buffers"]

# Optimisers that update every number by itself, so that one slice can be updated without the others.
SHARDABLE = {"Adagrad", "Adam", "AdamW", "RMSprop", "SGD", "SignSGD"}


def check_shardable(owner: str, optimizer: str, kind: str, flat: bool) -> None:
    """Raise unless a model's parameters can be sharded: one flat vector, and an optimiser that is elementwise."""
    if kind not in SHARDABLE:
        must = "strategy='fsdp' needs an optimiser that updates every number by itself"
        do = "Use 'adam', 'adamw', 'sgd' or 'rmsprop', or strategy='ddp'."
        raise errors.value(owner, must, repr(optimizer), do)
    if not flat:
        must = "strategy='fsdp' needs parameters that are all of one type and on one device"
        raise errors.value(owner, must, "several", "Convert the module, or use strategy='ddp'.")


class Shard:
    """The slice of a flat vector that this process updates.

    Parameters
    ----------
    vector : nn.Parameter
        All parameters, with their gradients; the memory of both is padded to a multiple of the number of processes.
    run : Run
        Which process this is, and of how many.

    Attributes
    ----------
    own : nn.Parameter of shape (k,)
        The slice, in the same memory; what the optimiser is given.
    """

    def __init__(self, vector: nn.Parameter, run: Run) -> None:
        assert vector.grad is not None
        self.vector, self.rank, self.world = vector, run.rank, run.world
        size = -(-vector.numel() // run.world)
        padded = (run.world * size,)
        self.values = vector.data.as_strided(padded, (1,))
        self.gradient = vector.grad.as_strided(padded, (1,))
        self.rows = slice(run.rank * size, (run.rank + 1) * size)
        self.own = nn.Parameter(self.values[self.rows])
        self.own.grad = self.gradient[self.rows]

    def reduce(self, whole: bool) -> None:
        """Make the gradient the mean over the processes: all of it if ``whole``, else this process's slice."""
        self.gradient /= self.world
        if whole:
            dist.all_reduce(self.gradient)
        else:
            mine = torch.empty_like(self.own)
            dist.reduce_scatter_tensor(mine, self.gradient)
            self.gradient[self.rows] = mine

    @torch.no_grad()
    def spread(self) -> None:
        """Send the updated slice to the other processes, and receive theirs."""
        dist.all_gather_into_tensor(self.values, self.own.detach().clone())

    def joined(self, part: Tensor) -> Tensor:
        """Return the slices of all processes as one vector, in the first process; the others get their own back."""
        parts = [torch.empty_like(part) for _ in range(self.world)] if self.rank == 0 else None
        dist.gather(part.contiguous(), parts, dst=0)
        return part if parts is None else torch.cat(parts)[: self.vector.numel()]

    def cut(self, whole: Tensor) -> Tensor:
        """Return this process's slice of a whole vector."""
        padded = whole.new_zeros(len(self.values))
        padded[: len(whole)] = whole
        return padded[self.rows].clone()


def on_slots(state: State, changes: list[Callable[[Tensor], Tensor]]) -> State:
    """Return an optimiser's state with the vectors of its k-th parameter changed by the k-th function."""
    slots = {
        key: {
            name: changes[key](value) if isinstance(value, Tensor) and value.ndim else value
            for name, value in slot.items()
        }
        for key, slot in state["state"].items()
    }
    return {**state, "state": slots}


def share_buffers(module: nn.Module) -> None:
    """Give all processes the first one's buffers, such as running means, as DDP does before every forward pass."""
    for buffer in module.buffers():
        dist.broadcast(buffer, src=0)


def from_all(value: Any, run: Run) -> list[Any]:
    """Return what each process gives, in order of rank, in the first process; the others get an empty list."""
    parts: list[Any] = [None] * run.world if run.rank == 0 else []
    dist.gather_object(value, parts or None, dst=0)
    return parts
