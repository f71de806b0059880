"""What the estimators on sets share: the border, the scale of the features, and evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.base import GradientTrained
from corollary.data.kinds import check_sets
from corollary.engine.ragged import Ragged
from corollary.engine.run import current
from corollary.sequences.common import in_batches

__all__ = ["BaseSets"]


class BaseSets(GradientTrained):
    """Takes a list of ``(m, d)`` arrays of any sizes m."""

    input = "set"
    _training_defaults = {"epochs": 100, "learning_rate": 3e-3, "batch_size": 32, "clip_norm": 1.0}

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        known = {} if reset else {"dimension": self.n_features_in_}
        sets = check_sets(X, type(self).__name__, **known, **self._checks)
        if reset:
            self.n_features_in_ = sets[0].shape[1]
            self.dtype_ = str(np.result_type(*{part.dtype for part in sets}))
        return sets

    def _scale(self, sets: list[np.ndarray]) -> None:
        """Learn the shift and the scale of each feature."""
        elements = np.concatenate(sets).astype(np.float64)
        spread = elements.std(0) if len(elements) else np.ones(self.n_features_in_)
        self.feature_mean_ = elements.mean(0) if len(elements) else np.zeros(self.n_features_in_)
        self.feature_scale_ = np.where(spread > 0, spread, 1.0)

    def _ragged(self, sets: list[np.ndarray], device: Any = None) -> Ragged:
        return Ragged.of(sets, getattr(torch, self.dtype_), current().device if device is None else device)

    def _evaluate(self, X: list[np.ndarray], call: Callable[[Tensor, Tensor], Tensor]) -> list[np.ndarray]:
        """Return ``call(padded, lengths)`` for each set, in the order given."""
        data = self._ragged(X, next(self.module_.parameters()).device)
        out: list[Any] = [None] * len(X)
        with torch.inference_mode():
            for rows, x, lengths in in_batches(data):
                for row, result in zip(rows.tolist(), call(x, lengths).cpu().numpy()):
                    out[row] = result
        return out
