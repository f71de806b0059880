"""A classifier of texts on top of BERT's first state, from scratch or from what a BERT has learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.base import Classifier, Data, as_tensor
from corollary.engine.ragged import RaggedBatches
from corollary.engine.run import current
from corollary.language.bert_base import BaseBERT
from corollary.language.encoder import BertNetwork, sentence_types

__all__ = ["BERTClassifier"]


def classification_loss(module: nn.Module, tokens: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross-entropy."""
    return F.cross_entropy(module(tokens, lengths), y)


class ClassifyingNetwork(nn.Module):
    """A head on the pooled state; the heads of pre-training are left alone."""

    def __init__(self, bert: BertNetwork, n_out: int, dropout: float, part: int) -> None:
        super().__init__()
        self.bert, self.part = bert, part
        for part in (bert.guess, bert.guess_norm, bert.follows):
            part.requires_grad_(False)
        bert.guess_bias.requires_grad_(False)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(bert.pooler.out_features, n_out)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the logits (b, n_out)."""
        types = sentence_types(tokens, self.part, self.bert.types.num_embeddings)
        return self.head(self.drop(self.bert.pooled(self.bert(tokens, lengths, types))))


class BERTClassifier(Classifier, BaseBERT):
    """Classify texts with a BERT.

    From scratch, or from what a :class:`BERT` has learned: ``BERT.fine_tune(X, y)`` makes one. A pair of sentences is one
    text with ``[SEP]`` between them.

    Parameters
    ----------
    n_layers : int, default=2
        Depth.
    dimension : int, default=128
        Width; a multiple of ``n_heads``.
    n_heads : int, default=4
        Attentions side by side.
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
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : torch.nn.Module
        The network (``bert``) and its head.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy of a linear map of the pooled first state.

    Examples
    --------
    >>> from corollary import BERTClassifier, Training
    >>> texts = ["warm sun", "cold snow", "sun and sea", "snow and ice"] * 6
    >>> model = BERTClassifier(1, dimension=16, n_heads=2, training=Training(20, learning_rate=0.01), random_state=0)
    >>> model.fit(texts, [1, 0, 1, 0] * 6).predict(["sun", "snow"])
    array([1, 0])
    """

    def _learner(self, data: Data) -> Any:
        if not hasattr(self, "pretrained_"):
            self._begin(data.X)
        x = self._framed(data.X, current().device)
        batches = RaggedBatches(x, as_tensor(data.y).to(x.flat.device))
        return self._descend(classification_loss, batches=batches, stratify=data.y)

    def _module(self) -> nn.Module:
        module = ClassifyingNetwork(self._network(), len(self.classes_), self.dropout, self.tokenizer_.part)
        if hasattr(self, "pretrained_"):
            module.bert.load_state_dict(self.pretrained_)
        return module

    def _predict_proba(self, X: list[str]) -> np.ndarray:
        return np.stack(self._evaluate(X, lambda tokens, lengths: self.module_(tokens, lengths).softmax(1)))
