"""Base of the sequence-to-sequence models: vocabularies, batches of text pairs, decoding."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.data.kinds import check_texts
from corollary.engine.objective import Supervised
from corollary.engine.ragged import Ragged, RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.errors import value
from corollary.gradient import GradientTrained
from corollary.losses import CrossEntropy
from corollary.roles.targets import given_target
from corollary.sequences import words
from corollary.sequences.common import in_batches
from corollary.shapes import Count, List, Text

__all__ = ["BaseTranslator", "next_symbols"]

PAIR_STEPS = 2048  # steps at a time where every step has the logits of a whole vocabulary


class BaseTranslator(GradientTrained):
    """Fits pairs of texts; a subclass gives the module and ``_decode(tokens, lengths)``."""

    input = "text"
    role = "translator"
    _parameter_constraints = {
        "unit": [StrOptions({"character", "word"})],
        "vocabulary_size": [Interval(Integral, 1, None, closed="left")],
        "beam_size": [Interval(Integral, 1, None, closed="left")],
        "length_penalty": [Interval(Real, 0, None, closed="left")],
        "max_length": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"vocabulary_": List(Text()), "target_vocabulary_": List(Text()), "longest_": Count(1)}

    @classmethod
    def _test_data(cls) -> tuple[list[str], list[str]]:
        rng = np.random.default_rng(0)
        texts = ["".join(rng.choice(list("abc"), size=rng.integers(1, 5))) for _ in range(16)]
        return texts, [text[::-1] for text in texts]

    def fit(self, X, y=None, sample_weight=None):
        """Learn to turn each text of X into the text of y at the same place; pairs may be weighted."""
        return self._fit(X, y, sample_weight)

    def predict(self, X):
        """Return the best text that the beam finds, for each text."""
        data = self._sources(self._query(X))
        out: list[Any] = [None] * len(data)
        with torch.inference_mode():
            for rows, tokens, lengths in in_batches(data, 4096 // self.beam_size):
                for row, codes in zip(rows.tolist(), self._decode(tokens, lengths)):
                    out[row] = words.decode(codes, self.target_vocabulary_, self._target_unit)
        return out

    def score(self, X, y=None):
        """Return the share of texts that come out exactly as in y, up to spaces if the unit is the word."""
        y, texts = given_target(self, X, y), self._query(X)
        wanted = [words.split(text, self._target_unit) for text in self._check_y(texts, y, filled=False)]
        found = [words.split(text, self._target_unit) for text in self.predict(texts)]
        return float(np.mean([a == b for a, b in zip(wanted, found)]))

    def score_pairs(self, X, y):
        """Return log p(y | x) of each pair, in nats."""
        batches = self._framed(X, y)
        out = np.empty(len(batches))
        with torch.inference_mode():
            for rows, *batch in in_batches(batches, PAIR_STEPS):
                losses, _ = _losses(self.module_, *batch)
                out[rows.numpy()] = -losses.double().sum(1).cpu().numpy()
        return out

    @property
    def _target_unit(self) -> str:
        """Words are read in lower case and written as people write them."""
        return "cased word" if self.unit == "word" else self.unit

    # --- hooks -------------------------------------------------------------------------------------------

    def _check_y(self, X: list[str], y: Any, filled: bool = True) -> list[str]:
        owner = type(self).__name__
        if y is None:
            raise value(owner, "y must be the texts that X is to become", "None", "Pass them as y.")
        texts = check_texts(y, owner, filled=filled)
        if len(texts) != len(X):
            must = f"y must have one text for each of X ({len(X)})"
            raise value(owner, must, len(texts), "Leave out what has no translation.")
        return texts

    def _framed(self, X: Any, y: Any) -> RaggedBatches:
        """Return the pairs that a question is about."""
        X = self._query(X)
        return RaggedBatches((self._sources(X), self._targets(self._check_y(X, y, filled=False))))

    def _measure(self, data: Data) -> None:
        self.vocabulary_ = words.vocabulary(data.X, self.unit, self.vocabulary_size)
        self.target_vocabulary_ = words.vocabulary(data.y, self._target_unit, self.vocabulary_size)
        self.longest_ = (
            max(len(part) for part in words.encode(data.y, self.target_vocabulary_, self._target_unit)) + 1
        )

    def _aim(self) -> Any:
        return Supervised(CrossEntropy(self._sizes()[1], axis=-1), forward=next_symbols)

    def _batches(self, data: Data) -> RaggedBatches:
        framed, weight = self._targets(data.y), self._as_weight(data.sample_weight)
        starts = framed.starts.to(framed.flat.device)
        rest = torch.ones(len(framed.flat), dtype=torch.bool, device=starts.device)
        rest[starts] = False  # the begin symbol is given, all after it are to be said
        lengths = framed.lengths - 1
        each = torch.ones(len(framed)) if weight is None else weight
        counts = each.repeat_interleave(lengths).to(starts.device)
        inputs = (self._sources(data.X), framed)
        return RaggedBatches(inputs, Ragged(framed.flat[rest], lengths), Ragged(counts, lengths))

    def _device(self) -> Any:
        return next(self.module_.parameters()).device if hasattr(self, "module_") else current().device

    def _sources(self, texts: list[str]) -> Ragged:
        """Return texts, each with its end symbol, so that none is empty."""
        parts = words.encode(texts, self.vocabulary_, self.unit)
        return Ragged.of(
            [np.append(part[: self.max_length], words.END) for part in parts], device=self._device()
        )

    def _targets(self, texts: list[str]) -> Ragged:
        """Return texts between the begin and the end symbol."""
        parts = words.encode(texts, self.target_vocabulary_, self._target_unit)
        framed = [np.concatenate([[words.BEGIN], part[: self.max_length], [words.END]]) for part in parts]
        return Ragged.of(framed, device=self._device())

    def _decode(self, tokens: Tensor, lengths: Tensor) -> list[list[int]]:
        """Return the numbers of the symbols of the answer to each row."""
        raise NotImplementedError

    def _sizes(self) -> tuple[int, int]:
        return words.SPECIAL + len(self.vocabulary_), words.SPECIAL + len(self.target_vocabulary_)

    def _longest_answer(self) -> int:
        return min(self.max_length, 2 * self.longest_)


def _losses(
    module: nn.Module, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return -log p of every symbol of y after the first, (b, t), 0 beyond its end; and where symbols are."""
    logits = next_symbols(module, x, x_lengths, y, y_lengths)
    inside = padding_mask(y_lengths - 1, y.shape[1] - 1, y.device)
    losses = F.cross_entropy(logits.transpose(1, 2), y[:, 1:], reduction="none")
    return losses * inside, inside


def next_symbols(module: nn.Module, x: Tensor, x_lengths: Tensor, y: Tensor, y_lengths: Tensor) -> Tensor:
    """Return the logits (b, t, n) of every symbol of y after the first."""
    logits: Tensor = module(x, x_lengths, y[:, :-1])
    return logits
