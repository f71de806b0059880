"""What BERT's pre-training and its fine-tuning share: sizes, subwords, reading."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from corollary.base import GradientTrained
from corollary.engine.ragged import Ragged
from corollary.engine.training import Training
from corollary.errors import value
from corollary.language.encoder import BertNetwork, sentence_types
from corollary.language.subwords import WordPieces
from corollary.language.tokens import KeepsTokenizer
from corollary.sequences.common import in_batches

__all__ = ["BaseBERT"]


class BaseBERT(KeepsTokenizer, GradientTrained):
    """What pre-training and fine-tuning share: sizes, subwords, reading."""

    input = "text"
    _restore = WordPieces.restore
    _training_defaults = {
        "epochs": 10, "optimizer": "adamw", "learning_rate": 5e-4, "batch_size": 32, "warmup": 20, "weight_decay": 0.01,
        "clip_norm": 1.0,
    }  # fmt: skip
    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "dimension": [Interval(Integral, 1, None, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "inner": [None, Interval(Integral, 1, None, closed="left")],
        "context": [Interval(Integral, 5, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "vocabulary_size": [Interval(Integral, 10, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_layers=2,
        *,
        dimension=128,
        n_heads=4,
        inner=None,
        context=128,
        dropout=0.1,
        vocabulary_size=8000,
        training=None,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.dimension = dimension
        self.n_heads = n_heads
        self.inner = inner
        self.context = context
        self.dropout = dropout
        self.vocabulary_size = vocabulary_size
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        sizes = {"n_layers": 1, "dimension": 8, "n_heads": 2, "context": 24, "vocabulary_size": 60}
        return {**sizes, "training": Training(epochs=2)}

    def _network(self) -> BertNetwork:
        return BertNetwork(
            self.tokenizer_.size if self.tokenizer_ is not None else self.vocabulary_size,
            self.context,
            dimension=self.dimension,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            inner=self.inner or 4 * self.dimension,
            dropout=self.dropout,
            **self.options_,
        )

    def _begin(self, texts: list[str]) -> None:
        self.tokenizer_ = WordPieces.train(texts, self.vocabulary_size)
        self.options_ = {}

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        if self.tokenizer_ is None:
            do = "Pass tokenizer= to from_transformers, or use module_ with integers."
            raise value(type(self).__name__, "texts need a tokenizer", "a model without one", do)
        return [self.tokenizer_.encode(text) for text in texts]

    def _framed(self, texts: list[str], device: Any) -> Ragged:
        """Return ``[CLS] text [SEP]``, cut to the context; a text may be two sentences parted by ``[SEP]``."""
        t = self.tokenizer_
        rows = [[t.open, *codes[: self.context - 2], t.part] for codes in self._encoded(texts)]
        return Ragged.of([np.array(row) for row in rows], torch.int64, device)

    def _states(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, t, d) of BERT itself."""
        types = sentence_types(tokens, self.tokenizer_.part, self.module_.types.num_embeddings)
        return self.module_(tokens, lengths, types)

    def _evaluate(self, texts: list[str], call: Any) -> list[np.ndarray]:
        """Return ``call(tokens, lengths)`` of each framed text, batch by batch."""
        data = self._framed(texts, next(self.module_.parameters()).device)
        out: list[Any] = [None] * len(texts)
        with torch.inference_mode():
            for rows, tokens, lengths in in_batches(data, 8192):
                for row, result in zip(rows.tolist(), call(tokens, lengths).cpu().numpy()):
                    out[row] = result
        return out
