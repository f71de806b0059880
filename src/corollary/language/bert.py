r"""BERT: texts understood from both sides.

The network of :mod:`corollary.language.encoder` learns the two tasks of :mod:`corollary.language.pretraining` from
documents. What it has learned is then used: as features, to fill gaps, or fine-tuned with a head of its own.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from corollary.base import Data, Transformer, as_tensor
from corollary.data.kinds import check_texts
from corollary.engine.ragged import Ragged, RaggedBatches
from corollary.engine.run import current
from corollary.engine.sgd import seeded
from corollary.errors import value
from corollary.language.bert_base import BaseBERT
from corollary.language.bert_classifier import BERTClassifier
from corollary.language.checkpoints import bert_weights, read_checkpoint, tokenizer_path
from corollary.language.encoder import BertNetwork
from corollary.language.pretraining import pretraining_loss, sentence_pairs
from corollary.language.subwords import WordPieces
from corollary.sequences.network import pool

__all__ = ["BERT"]

SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class BERT(Transformer, BaseBERT):
    """Learn to understand texts from texts alone.

    ``fit`` pre-trains on documents; ``transform`` gives a vector for each text; ``fill`` guesses masked words;
    ``fine_tune`` makes a classifier of it; ``from_transformers`` takes weights that others have trained. A pair of
    sentences is one text with ``[SEP]`` between them.

    Parameters
    ----------
    n_layers : int, default=2
        Depth. The published sizes are 12 and 24.
    dimension : int, default=128
        Width; a multiple of ``n_heads``. The published sizes are 768 and 1024.
    n_heads : int, default=4
        Attentions side by side. The published sizes are 12 and 16.
    inner : int, optional
        Width of the layers between, four times the dimension by default.
    context : int, default=128
        The most tokens that are read; longer texts are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words that are told apart.
    training : Training, optional
        How to descend.
    random_state : int or RandomState, optional
        Seed for initial weights, sentence pairs, masks, order of samples and dropout.

    Attributes
    ----------
    module_ : BertNetwork
        The trained network.
    tokenizer_ : WordPieces
        What turns texts into tokens.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss, its two parts and seconds of every epoch.

    Notes
    -----
    Minimises equation (2) of :mod:`corollary.language.pretraining`; O(t^2 d + t d^2) per text and layer. Only hidden tokens go
    through the output matrix, which is most of the work of a small model. A word with characters that ``fit`` has not
    seen is read as the symbol ``[UNK]``; an empty text is read as its frame alone.

    References
    ----------
    .. [1] J. Devlin, M.-W. Chang, K. Lee, K. Toutanova (2019). BERT: pre-training of deep bidirectional transformers
       for language understanding. NAACL.

    Examples
    --------
    >>> from corollary import BERT, Training
    >>> texts = ["The sun is warm. The sea is blue.", "Snow is cold. Ice is cold too."] * 4
    >>> model = BERT(1, dimension=16, n_heads=2, training=Training(2), random_state=0).fit(texts)
    >>> model.transform(["the sun"]).shape
    (1, 16)
    """

    def transform(self, X):
        """Return the mean of the last states, (n, dimension), for each text."""
        return super().transform(X)

    def fill(self, X):
        """Return each text with every ``[MASK]`` replaced by its most probable piece of a word."""
        check_is_fitted(self)
        texts = check_texts(X, "BERT")
        for i, codes in enumerate(self._encoded(texts)):
            if len(codes) > self.context - 2:
                must = f"a text to fill must fit into the context of {self.context} tokens, two of them its frame"
                raise value("BERT", must, f"{len(codes)} in text {i}", "Cut it around the gap.")
        t = self.tokenizer_

        def guess(tokens: Tensor, lengths: Tensor) -> Tensor:  # -> (b, t), -1 where nothing is to be guessed
            logits = self.module_.guesses(self._states(tokens, lengths))
            logits[..., [t.pad, t.unknown, t.open, t.part, t.mask]] = -torch.inf
            return torch.where(tokens == t.mask, logits.argmax(-1), -1)

        guessed = [row[row >= 0].tolist() for row in self._evaluate(texts, guess)]
        return [
            "".join(part + word for part, word in zip(text.split("[MASK]"), [*map(t.piece, codes), ""]))
            for text, codes in zip(texts, guessed)
        ]

    def fine_tune(self, X, y, *, training=None, random_state=None):
        """Return a :class:`BERTClassifier` that starts from these weights and is trained on texts X with labels y."""
        check_is_fitted(self)
        names = ("n_layers", "dimension", "n_heads", "inner", "context", "dropout", "vocabulary_size")
        model = BERTClassifier(
            **{name: getattr(self, name) for name in names},
            training=training,
            random_state=self.random_state if random_state is None else random_state,
        )
        model.pretrained_ = dict(self.module_.state_dict())
        model.tokenizer_, model.options_ = self.tokenizer_, self.options_
        return model.fit(X, y)

    # --- hooks -------------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Any:
        self._begin(data.X)
        rows, types, follows = sentence_pairs(
            [[self.tokenizer_.encode(s) for s in SENTENCE.split(text) if s.strip()] for text in data.X],
            self.tokenizer_,
            self.context,
            self._rng(),
        )
        device = current().device
        batches = RaggedBatches(
            Ragged.of(rows, torch.int64, device),
            Ragged.of(types, torch.int64, device),
            as_tensor(follows).to(device),
        )
        return self._descend(partial(pretraining_loss, tokenizer=self.tokenizer_), batches=batches)

    def _module(self) -> BertNetwork:
        return self._network()

    def _transform(self, X: list[str]) -> np.ndarray:
        rows = self._evaluate(X, lambda tokens, lengths: pool(self._states(tokens, lengths), lengths, "mean"))
        return np.stack(rows)

    @classmethod
    def from_transformers(cls, source: Any, *, tokenizer: str | None = None) -> BERT:
        """Return a fitted BERT with the weights of one of the package transformers.

        Parameters
        ----------
        source : model, or path
            A ``BertModel``, ``BertForPreTraining`` or other BERT, or a directory as ``save_pretrained`` writes it,
            with ``config.json`` and ``model.safetensors``; nothing is downloaded. Heads that it lacks are new.
        tokenizer : str, optional
            Path of the tokenizer; by default that of the directory, if it has one.
        """
        config, weights = read_checkpoint(source, "BERT", "bert")
        model = cls(
            config["num_hidden_layers"],
            dimension=config["hidden_size"],
            n_heads=config["num_attention_heads"],
            inner=config["intermediate_size"],
            context=config["max_position_embeddings"],
            dropout=float(config.get("hidden_dropout_prob", 0.1)),
            vocabulary_size=config["vocab_size"],
        )
        model.options_ = {
            "activation": config.get("hidden_act", "gelu"),
            "epsilon": config.get("layer_norm_eps", 1e-12),
            "n_types": config.get("type_vocab_size", 2),
        }
        model.tokenizer_ = None
        with seeded(0):
            model.module_ = model._network()
        found = bert_weights(weights, config["num_hidden_layers"])
        model.module_.load_state_dict({**model.module_.state_dict(), **found})
        model.module_.to(next(iter(found.values())).dtype).eval()
        where = tokenizer or tokenizer_path(source, "tokenizer.json", "vocab.txt")
        model.tokenizer_ = None if where is None else WordPieces.read(where)
        model.n_iter_, model.history_ = 0, []
        return model
