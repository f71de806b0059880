"""The base class of the regularisers of :mod:`corollary.engine.regularisers`: an object with one number and some hooks."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from torch import Tensor

from corollary import errors
from corollary.engine.batches import Batch
from corollary.engine.objective import Supervised

__all__ = ["HOOKS", "TINY", "Regulariser"]

TINY = float(np.finfo(np.float32).tiny)
HOOKS = ("on_batch", "on_loss", "on_gradient", "after_step")


class Regulariser(BaseEstimator):  # type: ignore[misc]
    """A regulariser of one number; ``name`` is its field of ``Training``."""

    name = ""
    needs_target = False  # whether output and target must be apart
    low: ClassVar[float | None] = None  # the least number that makes sense, checked where there is one

    def attach(self, learner: Any) -> None:
        """Remember the learner; raise if this cannot work with its objective."""
        self._learner = learner
        if self.low is not None:
            self._check(self.low)
        objective = learner.players[0].objective
        if self.needs_target and not isinstance(objective, Supervised):
            must = f"{self.name} needs a model whose loss compares an output with a target"
            got = f"{learner.owner}, which has an objective of its own"
            raise errors.value(learner.owner, must, got, f"Leave {self.name} out.")

    def _real(self, batch: Batch) -> list[int]:
        """Return which inputs hold real numbers; raise if none does."""
        found = [i for i, t in enumerate(batch.inputs) if isinstance(t, Tensor) and t.is_floating_point()]
        if not found:
            must = f"{self.name} needs inputs of real numbers"
            do = f"Leave {self.name} out, or use dropout."
            raise errors.value(self._learner.owner, must, "codes, tokens or nodes", do)
        return found

    def _criterion(self) -> Any:
        """Return the criterion of the learner's objective."""
        return self._learner.players[0].objective.criterion

    def _n_classes(self) -> int:
        """Return the number of classes; raise if there are none."""
        criterion = self._criterion()
        if not hasattr(criterion, "soften"):
            must, do = f"{self.name} needs classes", f"Leave {self.name} out."
            raise errors.value(self._learner.owner, must, "a model without them", do)
        return int(criterion.n_classes)

    def _player(self, vectors: Any) -> Any:
        """Return the player that these vectors belong to."""
        return next(player for player in self._learner.players if player.vectors()[0] is vectors[0])

    def _check(self, low: float, high: float = np.inf) -> None:
        number = getattr(self, next(iter(inspect.signature(type(self)).parameters)))
        if isinstance(number, bool) or not isinstance(number, int | float) or not low <= number < high:
            bound = f"at least {low:g}" if high == np.inf else f"in [{low:g}, {high:g})"
            bound = "above 0" if 0 < low <= TINY else bound
            raise errors.value("Training", f"{self.name} must be a number {bound}", repr(number))
