"""Base of the estimators on sequences: validation of inputs, parameters, evaluation in batches of similar lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.data.kinds import check_sequences
from corollary.engine.ragged import Ragged, RaggedBatches
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientTrained
from corollary.nn.temporal import layers_to_see
from corollary.sequences.network import CELLS, RECURRENT, SequenceNetwork
from corollary.shapes import Array, Count, Dtype, Either, List, Maybe, Plain, Text

__all__ = ["NAMES", "BaseSequence", "BaseSequenceNetwork", "evaluated", "in_batches", "scale_of"]

STEPS = 16384  # padded steps evaluated at a time where no gradient is needed
NAMES = {"string": "strings", "token": "lists of words", "code": "integers", "vector": "vectors"}


def in_batches(data: Ragged | RaggedBatches, steps: int = STEPS) -> Iterator[tuple[Tensor, ...]]:
    """Yield (rows, padded, lengths, ...) over sequences of like lengths, longest first."""
    batch = data.padded if isinstance(data, Ragged) else lambda rows: data.batch(rows).inputs
    order = torch.argsort(data.lengths, descending=True, stable=True)
    begin = 0
    while begin < len(order):
        longest = max(1, int(data.lengths[order[begin]]))
        rows = order[begin : begin + max(1, steps // longest)]
        yield rows, *batch(rows)
        begin += len(rows)


def evaluated(data: Ragged, call: Callable[[Tensor, Tensor], Tensor]) -> list[np.ndarray]:
    """Return ``call(padded, lengths)`` for each sequence, in the order given."""
    out: list[Any] = [None] * len(data)
    with torch.inference_mode():
        for rows, x, lengths in in_batches(data):
            for row, result in zip(rows.tolist(), call(x, lengths).cpu().numpy()):
                out[row] = result
    return out


def scale_of(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and spread of every feature over all steps; 0 and 1 where there is nothing to measure."""
    steps = np.concatenate(parts).astype(np.float64)
    if not len(steps):
        return np.zeros(steps.shape[1]), np.ones(steps.shape[1])
    spread = steps.std(0)
    return steps.mean(0), np.where(spread > 0, spread, 1.0)


def _kind_of(part: Any) -> str:
    if isinstance(part, str | list):
        return "string" if isinstance(part, str) else "token"
    return "code" if part.ndim == 1 else "vector"


class BaseSequence(GradientTrained):
    """Takes lists of integers, vectors, strings or words; strings are read character by character."""

    input = "sequence"
    _fitted = {
        "kind_": Text(("vector", "string", "token", "code")),
        "dtype_": Dtype(),
        "alphabet_": Maybe(Either(Text(), List(Plain()))),
        "n_codes_": Maybe(Count(1)),
    }

    def _check(self, X: Any, reset: bool) -> list[np.ndarray]:
        owner, known = type(self).__name__, {}
        if not reset and self.kind_ == "vector":
            known = {"dimension": self.n_features_in_}
        elif not reset and self.kind_ == "code":
            known = {"vocabulary": self.n_codes_}
        parts = check_sequences(X, owner, **known, **self._checks)
        kind = _kind_of(parts[0])
        if reset:
            self._learn_kind(kind, parts)
        elif kind != self.kind_:
            must = f"sequences must be of {NAMES[self.kind_]}, as in fit"
            raise value(owner, must, NAMES[kind], "Prepare them as those that were fitted.")
        return self._codes(parts) if kind in ("string", "token") else parts

    def _learn_kind(self, kind: str, parts: list[Any]) -> None:
        self.kind_ = kind
        if kind == "vector":
            self.n_features_in_ = parts[0].shape[1]
            self.dtype_ = str(np.result_type(*{part.dtype for part in parts}))
            return
        self.dtype_ = "float32"
        if kind in ("string", "token"):
            found = sorted(set().union(*parts))
            self.alphabet_ = "".join(found) if kind == "string" else found
            self.n_codes_ = len(self.alphabet_) + 1
        else:
            self.n_codes_ = int(max(part.max() for part in parts)) + 1

    def _codes(self, texts: list[Any]) -> list[np.ndarray]:
        """Return 1 + position in the alphabet; 0 for a character or word that fit has not seen."""
        known = {c: i + 1 for i, c in enumerate(self.alphabet_)}
        return [np.array([known.get(c, 0) for c in text], dtype=np.int64) for text in texts]

    def _ragged(self, parts: list[np.ndarray], device: Any = None) -> Ragged:
        dtype = getattr(torch, self.dtype_) if self.kind_ == "vector" else torch.int64
        return Ragged.of(parts, dtype, device)

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        shape, dtype = (
            ((2, 7), torch.int64) if self.kind_ != "vector" else ((2, 7, self.n_features_in_), None)
        )
        like = next(self.module_.parameters())
        X = torch.zeros(shape, dtype=dtype or like.dtype)
        return {"X": X, "lengths": torch.tensor([7, 4])}, {"X": {0: "n", 1: "steps"}, "lengths": {0: "n"}}

    def _evaluate(self, X: list[np.ndarray], call: Callable[[Tensor, Tensor], Tensor]) -> list[np.ndarray]:
        return evaluated(self._ragged(X, next(self.module_.parameters()).device), call)


class BaseSequenceNetwork(BaseSequence):
    """An estimator around a :class:`SequenceNetwork`."""

    _usual_depth = 1
    _training_defaults = {"epochs": 30, "learning_rate": 3e-3, "batch_size": 32, "clip_norm": 1.0}
    _parameter_constraints = {
        "cell": [StrOptions(set(CELLS))],
        "width": [Interval(Integral, 1, None, closed="left")],
        "n_layers": [None, Interval(Integral, 1, None, closed="left")],
        "bidirectional": ["boolean"],
        "embedding_dimension": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "truncation": [None, Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "n_outputs_": Count(1),
        "n_layers_": Count(1),
        "feature_mean_": Maybe(Array("n_features_in_")),
        "feature_scale_": Maybe(Array("n_features_in_")),
    }

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"width": 8, "training": Training(epochs=3, learning_rate=0.01)}

    def _module(self) -> nn.Module:
        codes = self.kind_ != "vector"
        network = SequenceNetwork(
            self.n_codes_ if codes else self.n_features_in_,
            self.n_outputs_,
            self.cell,
            width=self.width,
            n_layers=self.n_layers_,
            bidirectional=getattr(self, "bidirectional", False),
            dropout=self.dropout,
            truncation=self.truncation,
            embedding_dimension=getattr(self, "embedding_dimension", None) if codes else None,
            pooling=self._pooled(),
        ).to(getattr(torch, self.dtype_))
        if not codes:
            network.inputs.mean.copy_(torch.as_tensor(self.feature_mean_))
            network.inputs.scale.copy_(torch.as_tensor(self.feature_scale_))
        return network

    def _pooled(self) -> str | None:
        """Return how the states become one vector; None keeps one output per step."""
        return None

    def _depth(self, lengths: list[int]) -> int:
        """Return the usual depth; of a temporal convolution, one that sees all of nearly every sequence."""
        if self.cell != "tcn":
            return self._usual_depth
        return layers_to_see(int(np.quantile(lengths, 0.95)))

    def _measure(self, data: Data) -> None:
        """Choose the depth, and learn the scale of vectors."""
        if self.truncation is not None and (
            self.cell not in RECURRENT or getattr(self, "bidirectional", False)
        ):
            what = f"cell={self.cell!r}" if self.cell not in RECURRENT else "bidirectional=True"
            raise value(
                type(self).__name__,
                f"truncation needs a recurrent cell ({', '.join(RECURRENT)}) that runs one way",
                what,
                "Leave truncation at None.",
            )
        self.n_layers_ = self.n_layers or self._depth([len(part) for part in data.X])
        if self.kind_ == "vector":
            self._scale_inputs(data.X)

    def _scale_inputs(self, parts: list[np.ndarray]) -> None:
        """Learn what vectors are standardised by."""
        self.feature_mean_, self.feature_scale_ = scale_of(parts)
