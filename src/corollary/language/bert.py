r"""BERT: a bidirectional transformer encoder, pre-trained by masked language modelling.

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
from corollary.engine.random import seeded
from corollary.errors import unknown, value
from corollary.language.bert_answerer import BERTAnswerer
from corollary.language.bert_base import BaseBERT
from corollary.language.bert_classifier import BERTClassifier, BERTRegressor
from corollary.language.bert_tagger import BERTTagger
from corollary.language.checkpoints import bert_weights, dtype_of
from corollary.language.encoder import BertNetwork, sentence_types
from corollary.language.pretraining import pretraining_loss, sentence_pairs
from corollary.nn.pretrained import fill_pretrained
from corollary.sequences.network import pool
from corollary.shapes import Flag

__all__ = ["BERT"]

TASKS = {cls._task: cls for cls in (BERTClassifier, BERTRegressor, BERTTagger, BERTAnswerer)}
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class BERT(Transformer, BaseBERT):
    """Pre-train a bidirectional transformer encoder on texts, by masked language modelling and next-sentence prediction.

    ``fit`` pre-trains on documents; ``transform`` gives a vector for each text; ``fill`` guesses masked words;
    ``fine_tune`` gives it a head for a task; ``from_transformers`` loads pre-trained weights. A pair of
    sentences is one text with ``[SEP]`` between them.

    Parameters
    ----------
    n_layers : int, default=2
        Number of transformer layers. More learn more, and need more texts. The published sizes are 12 and 24.
    width : int, default=128
        Width of the token states, a multiple of ``n_heads``; cost grows with its square. The published sizes are 768 and 1024.
    n_heads : int, default=4
        Attention heads of each layer. The published sizes are 12 and 16.
    inner_width : int, optional
        Hidden width of the feed-forward layers, four times the width by default.
    max_length : int, default=128
        The most tokens that are read; longer texts are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words in the vocabulary.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, sentence pairs, masks, order of samples and dropout.

    Attributes
    ----------
    module_ : BertNetwork
        The trained network.
    tokenizer_ : WordPieces
        What turns texts into tokens.
    guesses_ : bool
        Whether the head that guesses tokens has been trained.
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
    >>> model = BERT(1, width=16, n_heads=2, training=Training(2), random_state=0).fit(texts)
    >>> model.transform(["the sun"]).shape
    (1, 16)
    """

    _fitted = {"guesses_": Flag()}

    def transform(self, X):
        """Return the mean of the last states, (n, width), for each text."""
        return super().transform(X)

    def fill(self, X):
        """Return each text with every ``[MASK]`` replaced by its most probable piece of a word."""
        check_is_fitted(self)
        texts = check_texts(X, "BERT")
        if not self.guesses_:
            must = "to fill gaps, the weights must have the head for masked tokens"
            raise value("BERT", must, "weights without it", "Take them from a BertForMaskedLM, or fit.")
        self._check_tokenizer()
        t = self.tokenizer_
        for i, codes in enumerate(t.encode_all(texts)):
            if len(codes) > self.max_length - 2:
                must = (
                    f"a text to fill must fit into max_length={self.max_length} tokens, two of them its frame"
                )
                raise value("BERT", must, f"{len(codes)} in text {i}", "Cut it around the gap.")

        def guess(tokens: Tensor, lengths: Tensor) -> Tensor:  # -> (b, t), -1 where nothing is to be guessed
            logits = self.module_.guesses(self._states(tokens, lengths))
            logits[..., [t.pad, t.unknown, t.open, t.part, t.mask]] = -torch.inf
            return torch.where(tokens == t.mask, logits.argmax(-1), -1)

        guessed = [row[row >= 0].tolist() for row in self._evaluate(self._framed(texts), guess)]
        return [
            "".join(part + word for part, word in zip(text.split("[MASK]"), [*map(t.piece, codes), ""]))
            for text, codes in zip(texts, guessed)
        ]

    def fine_tune(
        self, X, y, *, task="classification", freeze=None, rate_decay=1.0, training=None, random_state=None
    ):
        """Return a model with a head for a task, trained on X and y from these weights on.

        Parameters
        ----------
        X, y : lists
            What the model of the task takes: texts and labels for a :class:`BERTClassifier`, texts and numbers for a
            :class:`BERTRegressor`, lists of words and of their labels for a :class:`BERTTagger`, pairs of question and
            passage and answers for a :class:`BERTAnswerer`.
        task : {"classification", "regression", "tagging", "answering"}, default="classification"
            Which of them to return.
        freeze : int, str or list of str, optional
            Layers that stay as they are: the first so many, -1 for all but the head; or parameters of ``module_`` by
            the beginning of their names or by patterns such as ``"*.bias"``.
        rate_decay : float, default=1.0
            Factor of the learning rate from each layer to the one below it.
        training : Training, optional
            Settings of gradient descent; by default slowly, so that what was learned is kept.
        random_state : int or RandomState, optional
            Seed; by default this model's.

        Notes
        -----
        ``fit`` of what is returned, and of its clones, starts from these weights again. Its file holds the tuned ones
        only: ``fit`` of a model that was loaded goes on from those.
        """
        check_is_fitted(self)
        if task not in TASKS:
            raise unknown("BERT", "task", task, TASKS)
        names = ("n_layers", "width", "n_heads", "inner_width", "max_length", "dropout", "vocabulary_size")
        model = TASKS[task](
            **{name: getattr(self, name) for name in names},
            training=training,
            random_state=self.random_state if random_state is None else random_state,
        )
        return model._start_from(self, freeze, rate_decay).fit(X, y)

    # --- hooks -------------------------------------------------------------------------------------------

    def _measure(self, data: Data) -> None:
        self._begin(data.X)
        self.guesses_ = True

    def _aim(self) -> Any:
        return partial(pretraining_loss, tokenizer=self.tokenizer_)

    def _batches(self, data: Data) -> RaggedBatches:
        rows, types, follows = sentence_pairs(
            [[self.tokenizer_.encode(s) for s in SENTENCE.split(text) if s.strip()] for text in data.X],
            self.tokenizer_,
            self.max_length,
            self._rng(),
        )
        inputs = Ragged.of(rows, torch.int64), Ragged.of(types, torch.int64)
        return RaggedBatches(inputs, as_tensor(follows))

    def _module(self) -> BertNetwork:
        return self._network()

    def _transform(self, X: list[str]) -> np.ndarray:
        def mean(tokens: Tensor, lengths: Tensor) -> Tensor:
            return pool(self._states(tokens, lengths), lengths, "mean")

        return np.stack(self._evaluate(self._framed(X), mean))

    def _states(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, t, d)."""
        types = sentence_types(tokens, self.tokenizer_.part, self.module_.types.num_embeddings)
        return self.module_(tokens, lengths, types)

    @classmethod
    def from_transformers(cls, source: Any, *, tokenizer: Any = None) -> BERT:
        """Return a fitted BERT with the weights of one of the package transformers.

        Parameters
        ----------
        source : model, or path
            A ``BertModel``, ``BertForPreTraining`` or other BERT, or a directory as ``save_pretrained`` writes it, with
            ``config.json`` and ``model.safetensors``, its shards, or ``pytorch_model.bin``; nothing is downloaded.
            Heads of pre-training that it lacks are new, and ``fill`` needs one.
        tokenizer : path or tokenizer, optional
            A file, a directory, or a fast tokenizer of transformers; by default that of the directory, if it has one.
        """
        model, config, weights = cls._sized(source, tokenizer)
        found = bert_weights(weights, config["num_hidden_layers"])
        model.dtype_ = dtype_of(found)
        with seeded(0):
            model.module_ = fill_pretrained(
                model._network, found, "BERT", optional=("pooler", "guess", "follows")
            )
        model.guesses_ = "guess.weight" in found
        return model
