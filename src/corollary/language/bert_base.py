"""Base of BERT and of its fine-tuned models: architecture, WordPiece tokenizer, evaluation of texts in batches."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from corollary.engine.ragged import Ragged, RaggedBatches
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientTrained
from corollary.language.checkpoints import BERT_DEFAULTS, tokenizer_of
from corollary.language.encoder import BertNetwork
from corollary.language.subwords import WordPieces
from corollary.language.tokens import KeepsTokenizer
from corollary.nn.pretrained import read_pretrained
from corollary.sequences.common import in_batches

__all__ = ["BaseBERT"]

STEPS = 8192  # padded tokens read at a time where no gradient is needed


class BaseBERT(KeepsTokenizer, GradientTrained):
    """Base of BERT and of its fine-tuned models: architecture, tokenizer, evaluation."""

    input = "text"
    _restore = WordPieces.restore
    _training_defaults = {
        "epochs": 10, "optimizer": "adamw", "learning_rate": 5e-4, "batch_size": 32, "warmup": 20, "weight_decay": 0.01,
        "clip_norm": 1.0,
    }  # fmt: skip
    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "inner_width": [None, Interval(Integral, 1, None, closed="left")],
        "max_length": [Interval(Integral, 5, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "vocabulary_size": [Interval(Integral, 10, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_layers=2,
        *,
        width=128,
        n_heads=4,
        inner_width=None,
        max_length=128,
        dropout=0.1,
        vocabulary_size=8000,
        training=None,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.width = width
        self.n_heads = n_heads
        self.inner_width = inner_width
        self.max_length = max_length
        self.dropout = dropout
        self.vocabulary_size = vocabulary_size
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        sizes = {"n_layers": 1, "width": 8, "n_heads": 2, "max_length": 24, "vocabulary_size": 60}
        return {**sizes, "training": Training(epochs=2)}

    def _network(self) -> BertNetwork:
        return BertNetwork(
            self.n_tokens_,
            self.max_length,
            width=self.width,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            inner_width=self.inner_width or 4 * self.width,
            dropout=self.dropout,
            **self.options_,
        ).to(getattr(torch, self.dtype_))

    def _begin(self, texts: list[str]) -> None:
        self.tokenizer_ = WordPieces.train(texts, self.vocabulary_size)
        self.n_tokens_, self.options_, self.dtype_ = self.tokenizer_.size, {}, "float32"

    # --- reading -----------------------------------------------------------------------------------------

    def _check_tokenizer(self) -> None:
        if self.tokenizer_ is None:
            do = "Pass tokenizer= to from_transformers, or use module_ with integers."
            raise value(type(self).__name__, "texts need a tokenizer", "a model without one", do)

    def _framed(self, texts: list[str]) -> list[np.ndarray]:
        """Return ``[CLS] text [SEP]``, cut to the context; a text may be two sentences parted by ``[SEP]``."""
        self._check_tokenizer()
        t, room = self.tokenizer_, self.max_length - 2
        return [np.array([t.open, *codes[:room], t.part]) for codes in t.encode_all(texts)]

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        inputs = {"tokens": torch.zeros(2, 5, dtype=torch.int64), "lengths": torch.tensor([5, 3])}
        return inputs, {"tokens": {0: "n", 1: "steps"}, "lengths": {0: "n"}}

    def _evaluate(self, rows: list[np.ndarray], call: Any, *others: Any) -> list[np.ndarray]:
        """Return ``call(tokens, lengths, ...)`` of each row of tokens, like lengths together; ``others`` likewise, or tensors."""
        device = next(self.module_.parameters()).device
        columns = (c if isinstance(c, Tensor) else Ragged.of(c, device=device) for c in (rows, *others))
        data = RaggedBatches(tuple(columns)).to(device)
        out: list[Any] = [None] * len(rows)
        with torch.inference_mode():
            for numbers, *batch in in_batches(data, STEPS):
                found = call(*batch)
                found = found.float() if found.dtype == torch.bfloat16 else found  # NumPy has no such type
                for number, result in zip(numbers.tolist(), found.cpu().numpy()):
                    out[number] = result
        return out

    # --- files -------------------------------------------------------------------------------------------

    @classmethod
    def _sized(cls, source: Any, tokenizer: Any) -> tuple[Self, dict[str, Any], dict[str, Tensor]]:
        """Return a model of the sizes of a checkpoint, without its weights; the configuration; the weights."""
        owner = cls.__name__
        settings = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}
        config, weights = read_pretrained(source, "bert", owner, BERT_DEFAULTS, **settings)
        model = cls(
            config["num_hidden_layers"],
            width=config["hidden_size"],
            n_heads=config["num_attention_heads"],
            inner_width=config["intermediate_size"],
            max_length=config["max_position_embeddings"],
            dropout=float(config["hidden_dropout_prob"]),
            vocabulary_size=config["vocab_size"],
        )
        model.options_ = {
            "activation": config["hidden_act"],
            "epsilon": config["layer_norm_eps"],
            "n_types": config["type_vocab_size"],
        }
        files, model.n_tokens_ = ("tokenizer.json", "vocab.txt"), config["vocab_size"]
        model.tokenizer_ = tokenizer_of(source, tokenizer, WordPieces, files, model.n_tokens_, owner)
        model.n_iter_, model.history_ = 0, []
        return model, config, weights
