"""Iterations in pieces: learners with long sweeps can pause within one, for a time limit or a checkpoint.

A sweep that was left between two pieces goes on with the next piece, in the same fit or in a resumed one, and gives the same
result as without a pause.
"""

from __future__ import annotations

from abc import abstractmethod

from corollary.engine.interrupts import pause_wanted
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Count

__all__ = ["Piecewise"]


class Piecewise(Iteration):
    """An iteration whose sweep is done piece by piece.

    A subclass says how many there are (:meth:`count`), does one (:meth:`piece`), and sums up (:meth:`finish`); what it
    adds up on the way is among ``saved``, which begins with this class's. Within a sweep, ``n_iter`` counts those before it.
    """

    pauses = True
    saved = ("at",)
    varying = {"at": Count()}

    def __init__(self, max_iter: int, n_iter: int = 0) -> None:
        super().__init__(max_iter, n_iter)
        self.at = 0  # the piece that comes next

    @abstractmethod
    def count(self) -> int:
        """Return the number of pieces of a sweep."""

    @abstractmethod
    def piece(self, i: int) -> None:
        """Do piece number ``i``."""

    @abstractmethod
    def finish(self) -> Metrics:
        """Return the metrics of the whole sweep."""

    def sweep(self) -> Metrics:
        """Do all pieces that are left."""
        while (found := self.step()) is None:
            pass
        return found

    def step(self) -> Metrics | None:
        """Do pieces until the sweep is done, or the engine asks for a pause."""
        count = self.count()
        while self.at < count:
            self.piece(self.at)
            self.at += 1
            if self.at < count and pause_wanted():
                return None
        self.at = 0
        self.n_iter += 1
        return self.finish()
