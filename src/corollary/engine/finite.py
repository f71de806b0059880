"""Divergence: a learner whose step gives NaN or infinity goes back to its last finite state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from corollary.engine.clock import now
from corollary.engine.learner import Learner, Metrics, State
from corollary.errors import Diverged

__all__ = ["LastFinite"]

LARGE = 2**22  # bytes: a larger state is not copied before every step
COPY_SHARE = 20  # copying a large state takes at most one part in so many of the time


class LastFinite:
    """The last finite state of a learner, to which it returns when a step diverges.

    A small state is copied before every step. A large one is copied less often, so that copying takes a small share of the
    time; the state that returns may then be some steps old.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.kept: list[State] = []  # newest first
        self.cost, self.last = 0.0, -math.inf
        self.large = False

    def step(self, owner: str, number: int) -> Metrics | None:
        """Make step ``number`` of the learner; raise :class:`~corollary.errors.Diverged` if a metric is not finite."""
        if getattr(self.learner, "can_diverge", True):
            self._keep()
        try:
            metrics = self.learner.step()
            for key, value in (metrics or {}).items():
                if not math.isfinite(value):
                    raise Diverged(
                        f"{owner}: {key} must stay finite; got {value} at step {number}. "
                        "Scale the data or raise the regularisation; the last finite state is kept."
                    )
        except Diverged:
            if self.kept:
                broken = len(self.kept) > 1 and not _still_finite(self.kept[1], self.kept[0])
                self.learner.restore(self.kept[1 if broken else 0])
            raise
        return metrics

    def _keep(self) -> None:
        begin = now()
        if self.large and begin - self.last < COPY_SHARE * self.cost:
            return
        state = self.learner.state()
        self.large = _size(state) > LARGE
        if not self.large:  # the last update may have broken it, which only the next step will show
            self.kept = [state, *self.kept[:1]]
        elif not self.kept or _still_finite(self.kept[0], state):
            self.kept = [state]
        self.last = now()
        self.cost = self.last - begin


def _leaves(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the arrays of a state, each with its path of keys."""
    if isinstance(state, dict | list | tuple):
        for key, part in state.items() if isinstance(state, dict) else enumerate(state):
            if not isinstance(part, int | float | str):
                yield from _leaves(part, (*path, key))
    elif hasattr(state, "dtype") and getattr(state, "ndim", False):
        yield path, state


def _size(state: State) -> int:
    return sum(leaf.nbytes for _, leaf in _leaves(state))


def _finite(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
    return not array.is_floating_point() or bool(array.isfinite().all())


def _still_finite(before: State, now: State) -> bool:
    """Whether no array has become NaN or infinite; what was so before (an empty slot, a bound) does not count."""
    broken = [path for path, leaf in _leaves(now) if not _finite(leaf)]
    if not broken:
        return True
    old = dict(_leaves(before))
    return all(path in old and not _finite(old[path]) for path in broken)
