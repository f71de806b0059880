"""Mini-batches from data larger than memory: memory maps, Parquet, image folders, torch data sets, streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.data.sources import BLOCK, Source
from corollary.engine.batches import Batch, Batches, TensorBatches

__all__ = ["SourceBatches", "batches_of", "blocks", "chunks", "drawn", "gathered"]

DRAWN = 2**22  # bytes of rows that a start looks at


class SourceBatches:
    """Rows of a source, gathered batch by batch; the next batch is read while one is being used.

    Parameters
    ----------
    source : Source
        What the module is called with.
    target, weight : Tensor, optional
        Targets and weights of all samples, in memory.
    rows : array of int, optional
        The samples that are meant; all by default.
    device : device, default="cpu"
        Where the batches go.
    """

    def __init__(
        self,
        source: Source,
        target: Tensor | None = None,
        weight: Tensor | None = None,
        rows: np.ndarray | None = None,
        device: Any = "cpu",
    ) -> None:
        self.source, self.rows, self.device = source, rows, device
        self.target, self.weight = target, weight

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.source) if self.rows is None else len(self.rows)

    @property
    def bytes(self) -> int:
        """Bytes that an epoch reads."""
        return self.source.nbytes * len(self) // max(1, len(self.source))

    def count(self, batch_size: int) -> int:
        """Return the number of batches in an epoch."""
        return -(-len(self) // batch_size)

    def take(self, rows: Tensor) -> SourceBatches:
        """Return batches over some of the samples."""
        if self.source.sequential:
            do = "Pass validation data of its own, or read the samples into memory."
            raise errors.value(
                "fit", "early_stopping holds out samples of data that are no stream", "one", do
            )
        chosen = rows.cpu().numpy()
        chosen = chosen if self.rows is None else self.rows[chosen]
        target, weight = (None if t is None else t[rows.cpu()] for t in (self.target, self.weight))
        return SourceBatches(self.source, target, weight, chosen, self.device)

    def to(self, device: Any) -> SourceBatches:
        """Return batches that go to a device as they come."""
        return SourceBatches(self.source, self.target, self.weight, self.rows, device)

    def epoch(self, order: Tensor | None, batch_size: int, start: int = 0) -> Iterator[Batch]:
        """Yield batches from the ``start``-th on.

        A source that is cheap to read in some orders only chooses one of them, by what the given order says.
        """
        if self.source.sequential:
            yield from self._streamed(batch_size, start)
            return
        places = self._places(order)
        with ThreadPoolExecutor(1) as pool:
            n, ahead = len(self) if places is None else len(places), None
            for begin in range(start * batch_size, n, batch_size):
                now = ahead or pool.submit(self._gather, places, begin, batch_size)
                last = begin + batch_size >= n
                ahead = None if last else pool.submit(self._gather, places, begin + batch_size, batch_size)
                yield self._batch(*now.result())

    def _places(self, order: Tensor | None) -> np.ndarray | None:
        """Return in which order the samples come, as places among ``rows``; None for their own."""
        if order is None:
            return None
        # two entries of a random order make the seed of the source's own
        own = self.source.order(int(order[0]) * len(order) + int(order[-1]))
        if own is None or len(order) != len(self):  # a curriculum chose some of the samples
            return order.numpy()
        if self.rows is None:
            return own
        place = np.full(len(self.source), -1)
        place[self.rows] = np.arange(len(self.rows))
        found = place[own]
        return found[found >= 0]

    def _gather(self, places: np.ndarray | None, begin: int, batch_size: int) -> tuple[np.ndarray, Any]:
        if places is None:
            where = np.arange(begin, min(begin + batch_size, len(self)))
        else:
            where = places[begin : begin + batch_size]
        return self.source._read(where if self.rows is None else self.rows[where]), torch.from_numpy(where)

    def _streamed(self, batch_size: int, start: int) -> Iterator[Batch]:
        begin = start * batch_size
        for x in self.source.batches(batch_size, start):  # type: ignore[attr-defined]
            yield self._batch(x, torch.arange(begin, begin + len(x)))
            begin += len(x)

    def _batch(self, x: np.ndarray, where: Tensor) -> Batch:
        target, weight = (None if t is None else t[where].to(self.device) for t in (self.target, self.weight))
        return Batch((torch.from_numpy(x).to(self.device),), target, weight, len(x))

    def state_dict(self) -> Any:
        """Return the position of a stream that knows it, as a plain value; None for all else."""
        return self.source.state_dict() if self.source.sequential else None  # type: ignore[attr-defined]

    def load_state_dict(self, state: Any) -> None:
        """Go on from a position."""
        if state is not None:
            self.source.load_state_dict(state)  # type: ignore[attr-defined]


def batches_of(X: Any, target: Tensor | None = None, weight: Tensor | None = None) -> Batches:
    """Return the batches of rows: of an array or a tensor in memory, or several of them, or of a source."""
    if isinstance(X, Source):
        return SourceBatches(X, target, weight)
    parts = X if isinstance(X, tuple) else (X,)
    rows = tuple(
        x if isinstance(x, Tensor) else torch.from_numpy(np.require(x, requirements=["C", "W"]))
        for x in parts
    )
    return TensorBatches(rows, target, weight)


def chunks(X: Any, size: int) -> Iterator[Any]:
    """Yield consecutive rows of an array or a source; of several arrays tuples of them."""
    if isinstance(X, tuple):
        yield from zip(*(chunks(x, size) for x in X))
        return
    if isinstance(X, Source) and X.sequential:
        yield from X.batches(size, 0)  # type: ignore[attr-defined]
        return
    for begin in range(0, len(X), size):
        yield X[begin : begin + size]


def blocks(X: Any, rows: slice | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield some consecutive rows of an array or a source, about 4 MB at a time, as (which of them, values in float64).

    What learns from sums over the data walks through them with this, in memory or not. The slices count from the
    first of ``rows`` (all by default; a process's share, :meth:`corollary.engine.run.Run.shard`, else), and a source
    that gives other rows than its shape says is an error.
    """
    begin, end, _ = (rows or slice(None)).indices(X.shape[0])
    step = max(1, BLOCK // max(1, 8 * int(np.prod(X.shape[1:]))))
    done = 0
    if isinstance(X, Source) and X.sequential:
        parts = _cut(X.blocks(), begin, end)
    else:
        parts = (X[at : min(end, at + step)] for at in range(begin, end, step))
    for part in parts:
        yield slice(done, done + len(part)), np.asarray(part, dtype=np.float64)
        done += len(part)
    if done != end - begin:
        raise errors.value("fit", f"the source must give its {end - begin} rows", f"{done} of them")


def _cut(parts: Iterator[np.ndarray], begin: int, end: int) -> Iterator[np.ndarray]:
    """Yield what lies between two rows of the parts of a stream."""
    at = 0
    for part in parts:
        kept = part[max(0, begin - at) : max(0, end - at)]
        at += len(part)
        if len(kept):
            yield kept


def drawn(X: Any, least: int, choose: Callable[[int, int], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return some rows of a source for a start, about 4 MB and at least so many, and their numbers; all of a small one.

    ``choose(n, count)`` draws ``count`` different numbers below ``n``.
    """
    n = len(X)
    count = max(least, DRAWN * n // max(1, X.nbytes))
    rows = np.arange(n) if n <= count else np.sort(choose(n, count))
    return gathered(X, rows), rows


def gathered(X: Any, rows: np.ndarray) -> np.ndarray:
    """Return some rows, given in rising order, of an array or a source; a stream is walked through for them."""
    if not (isinstance(X, Source) and X.sequential):
        return np.asarray(X[rows])
    at, found = 0, []
    for part in X.blocks():
        first, last = np.searchsorted(rows, [at, at + len(part)])
        found.append(part[rows[first:last] - at])
        at += len(part)
    return np.concatenate(found)
