"""Base of the estimators on sets: validation of inputs, standardisation of features, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.base import Data
from corollary.data.kinds import check_sets
from corollary.engine.ragged import Ragged
from corollary.engine.run import current
from corollary.gradient import GradientTrained
from corollary.sequences.common import evaluated, scale_of
from corollary.shapes import Array, Count, Dtype, Maybe

__all__ = ["BaseSets"]


class BaseSets(GradientTrained):
    """Takes a list of ``(m, d)`` arrays of any sizes m."""

    input = "set"
    _training_defaults = {"epochs": 100, "learning_rate": 3e-3, "batch_size": 32, "clip_norm": 1.0}
    _fitted = {
        "dtype_": Dtype(),
        "n_outputs_": Maybe(Count(1)),
        "feature_mean_": Maybe(Array("n_features_in_")),
        "feature_scale_": Maybe(Array("n_features_in_")),
    }

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        known = {} if reset else {"dimension": self.n_features_in_}
        return check_sets(X, type(self).__name__, **known, **self._checks)

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        dtype = np.result_type(*{part.dtype for part in data.X})
        return {"n_features_in_": data.X[0].shape[1], "dtype_": str(dtype)}

    def _scale(self, sets: list[np.ndarray]) -> None:
        """Learn the shift and the scale of each feature."""
        self.feature_mean_, self.feature_scale_ = scale_of(sets)

    def _ragged(self, sets: list[np.ndarray], device: Any = None) -> Ragged:
        return Ragged.of(sets, getattr(torch, self.dtype_), current().device if device is None else device)

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        X = torch.zeros(2, 5, self.n_features_in_, dtype=next(self.module_.parameters()).dtype)
        return {"X": X, "lengths": torch.tensor([5, 3])}, {"X": {0: "n", 1: "elements"}, "lengths": {0: "n"}}

    def _evaluate(self, X: list[np.ndarray], call: Callable[[Tensor, Tensor], Tensor]) -> list[np.ndarray]:
        return evaluated(self._ragged(X, next(self.module_.parameters()).device), call)
