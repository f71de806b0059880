"""Draws that only grow: what a sampler keeps of every step, without ever copying or rewriting it.

A sampler names a :class:`Draws` in its ``saved`` attributes and appends to it. A snapshot of the learner
then holds a :class:`Mark`, which is a length and costs nothing; a checkpoint appends the new draws to a
file of their own (:mod:`corollary.engine.checkpoints`). So n draws cost O(n), whatever is kept when.

>>> draws = Draws("mean", shape=(2,))
>>> for value in ([0.0, 1.0], [2.0, 3.0]):
...     draws.append(value)
>>> mark = draws.mark()
>>> draws.append([4.0, 5.0])
>>> draws.restore(mark)
>>> draws.array().tolist()
[[0.0, 1.0], [2.0, 3.0]]
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Draws", "Mark"]

BLOCK_BYTES = 2**20  # memory grows by blocks of about this size


class Draws:
    """An append-only sequence of arrays of one shape and type.

    Parameters
    ----------
    name : str
        A name that no other draws of the same learner have; it becomes a file's name.
    shape : tuple of int, default=()
        The shape of one draw.
    dtype : data type, default=float64
        The type of its entries.
    """

    def __init__(self, name: str, shape: tuple[int, ...] = (), dtype: Any = np.float64) -> None:
        self.name, self.shape, self.dtype = name, tuple(shape), np.dtype(dtype)
        self.draw_bytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self.per_block = max(1, BLOCK_BYTES // max(1, self.draw_bytes))
        self._blocks: list[np.ndarray] = []
        self._length = 0

    def __len__(self) -> int:
        """Return the number of draws."""
        return self._length

    def __getitem__(self, i: int) -> np.ndarray:
        """Return one draw."""
        i = i + self._length if i < 0 else i
        if not 0 <= i < self._length:
            raise IndexError(f"Draws: index must be below {self._length}; got {i}.")
        block, row = divmod(i, self.per_block)
        return np.asarray(self._blocks[block][row])

    def append(self, value: Any) -> None:
        """Add one draw."""
        block, row = divmod(self._length, self.per_block)
        if block == len(self._blocks):
            self._blocks.append(np.empty((self.per_block, *self.shape), self.dtype))
        self._blocks[block][row] = value
        self._length += 1

    def array(self, begin: int = 0, end: int | None = None) -> np.ndarray:
        """Return draws ``begin`` to ``end`` as one new array of shape (n, *shape)."""
        end = self._length if end is None else end
        out = np.empty((max(0, end - begin), *self.shape), self.dtype)
        at = begin
        while at < end:
            block, row = divmod(at, self.per_block)
            stop = min(end, at - row + self.per_block)
            out[at - begin : stop - begin] = self._blocks[block][row : row + stop - at]
            at = stop
        return out

    def mark(self) -> Mark:
        """Return the present length, to come back to."""
        return Mark(self, self._length)

    def restore(self, kept: Mark | np.ndarray) -> None:
        """Go back to a mark, or take over the draws of other draws' mark or of an array."""
        if isinstance(kept, Mark) and kept.draws is self:
            self._length = kept.length
            del self._blocks[-(-self._length // self.per_block) :]
            return
        values = np.asarray(kept.array() if isinstance(kept, Mark) else kept)
        if values.shape[1:] != self.shape or values.dtype != self.dtype:
            got = f"{values.shape[1:]} of {values.dtype}"
            raise ValueError(f"Draws: {self.name} must be {self.shape} of {self.dtype}; got {got}.")
        self._blocks, self._length = [], len(values)
        for begin in range(0, len(values), self.per_block):
            block = np.empty((self.per_block, *self.shape), self.dtype)
            part = values[begin : begin + self.per_block]
            block[: len(part)] = part
            self._blocks.append(block)


class Mark:
    """A length of some draws: what a snapshot keeps of them."""

    def __init__(self, draws: Draws, length: int) -> None:
        self.draws, self.length = draws, length

    def array(self, begin: int = 0) -> np.ndarray:
        """Return the marked draws from ``begin`` on."""
        return self.draws.array(begin, self.length)

    def __reduce__(self) -> Any:
        """Travel to another process as the draws themselves."""
        return _marked, (self.draws.name, self.draws.shape, self.draws.dtype, self.array())


def _marked(name: str, shape: tuple[int, ...], dtype: Any, values: np.ndarray) -> Mark:
    draws = Draws(name, shape, dtype)
    draws.restore(values)
    return draws.mark()
