"""What every regulariser of :mod:`corollary.engine.regularisers` is: an object with one number and some hooks."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from corollary import errors
from corollary.engine.objective import Supervised

__all__ = ["HOOKS", "Regulariser"]

HOOKS = ("on_batch", "on_loss", "on_gradient", "after_step")


class Regulariser(BaseEstimator):  # type: ignore[misc]
    """A regulariser of one number; ``name`` is its field of ``Training``."""

    name = ""
    needs_target = False  # whether output and target must be apart

    def attach(self, learner: Any) -> None:
        """Remember the learner; raise if this cannot work with its objective."""
        self._learner = learner
        objective = learner.players[0].objective
        if self.needs_target and not isinstance(objective, Supervised):
            must = f"{self.name} needs a model whose loss compares an output with a target"
            got = f"{learner.owner}, which has an objective of its own"
            raise errors.value(learner.owner, must, got, f"Leave {self.name} out.")

    def _check(self, low: float, high: float = np.inf) -> None:
        number = getattr(self, next(iter(inspect.signature(type(self)).parameters)))
        if isinstance(number, bool) or not isinstance(number, int | float) or not low <= number < high:
            bound = f"at least {low:g}" if high == np.inf else f"in [{low:g}, {high:g})"
            raise errors.value("Training", f"{self.name} must be a number {bound}", repr(number))
