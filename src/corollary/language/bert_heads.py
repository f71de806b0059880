r"""BERT with a task head, the base of classifiers, regressors, taggers and answerers: a linear map of its states.

A head reads the whole text from the pooled first state, or every token from its own state,

.. math:: z = W \tanh(W_p H_0) + b, \qquad z_t = W H_t + b. \tag{1}

All weights below it are trained with it, from scratch or from what a BERT has learned. From there steps are short, at most
:math:`5 \cdot 10^{-5} \cdot 768 / d` for width d: the published rate at the published width, and Adam's steps should
shrink as a network grows wider.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor, nn

from corollary.engine.ragged import Ragged
from corollary.engine.random import seeded
from corollary.engine.run import current
from corollary.errors import value
from corollary.language.bert_base import BaseBERT
from corollary.language.checkpoints import bert_weights, dtype_of
from corollary.language.encoder import BertNetwork, sentence_types
from corollary.nn.pretrained import fill_pretrained
from corollary.shapes import Count, Labels, Maybe

__all__ = ["BaseHead", "HeadedNetwork"]

# What transformers calls the models with these heads.
ARCHITECTURES = {
    "BertForSequenceClassification": "BERTClassifier or BERTRegressor",
    "BertForTokenClassification": "BERTTagger",
    "BertForQuestionAnswering": "BERTAnswerer",
}


class HeadedNetwork(nn.Module):
    """Eq. 1; the heads of pre-training, and the pooler where it is not used, are left alone.

    Parameters
    ----------
    bert : BertNetwork
        What reads.
    n_out : int
        Outputs of the head.
    dropout : float
        Share of its inputs dropped while training.
    part : int
        The token that closes a sentence; none is -1.
    pooled : bool, default=True
        Whether the head reads the text, or every token.
    """

    def __init__(
        self, bert: BertNetwork, n_out: int, dropout: float, part: int, *, pooled: bool = True
    ) -> None:
        super().__init__()
        self.bert, self.part, self.is_pooled = bert, part, pooled
        for idle in (bert.guess, bert.guess_norm, bert.follows, *(() if pooled else (bert.pooler,))):
            idle.requires_grad_(False)
        bert.guess_bias.requires_grad_(False)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(bert.pooler.out_features, n_out)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, scores: Tensor | None = None) -> Tensor:
        """Return (b, n_out), or (b, t, n_out) if not pooled; ``scores`` are added."""
        types = sentence_types(tokens, self.part, self.bert.types.num_embeddings)
        h = self.bert(tokens, lengths, types)
        out = self.head(self.drop(self.bert.pooled(h) if self.is_pooled else h))
        return out if scores is None else out + scores


class BaseHead(BaseBERT):
    """A BERT with a head of ``n_outputs_``: made, moved, and read from transformers."""

    _architecture: ClassVar[str]  # in transformers
    _task: ClassVar[str]  # for BERT.fine_tune
    _head: ClassVar[str] = "classifier"  # what transformers calls it
    _pooled: ClassVar[bool] = True
    _fitted = {"n_outputs_": Count(1), "classes_": Maybe(Labels("n_outputs_"))}

    @property
    def _training_defaults(self) -> dict[str, Any]:
        scratch = BaseBERT._training_defaults
        tuned = min(scratch["learning_rate"], 5e-5 * 768 / self.width)
        return {**scratch, "learning_rate": tuned} if hasattr(self, "pretrained_") else scratch

    def _prepare(self, texts: list[str]) -> None:
        """Learn the pieces of words, unless a BERT has."""
        if not hasattr(self, "pretrained_"):
            self._begin(texts)
        self._check_tokenizer()

    def _module(self) -> HeadedNetwork:
        part = -1 if self.tokenizer_ is None else self.tokenizer_.part
        bert = self._network()
        if hasattr(self, "pretrained_"):
            bert.load_state_dict(self.pretrained_)
        module = HeadedNetwork(bert, self.n_outputs_, self.dropout, part, pooled=self._pooled)
        return module.to(bert.pooler.weight.dtype)

    def _ragged(self, rows: list[np.ndarray]) -> Ragged:
        return Ragged.of(rows, device=current().device)

    # --- files -------------------------------------------------------------------------------------------

    @classmethod
    def from_transformers(cls, source: Any, *, tokenizer: Any = None) -> Self:
        """Return a fitted model with the weights, head included, of one of the package transformers.

        Parameters
        ----------
        source : model, or path
            A model with this head, or a directory as ``save_pretrained`` writes it, with ``config.json`` and
            ``model.safetensors``, its shards, or ``pytorch_model.bin``; nothing is downloaded. ``fit`` trains a new
            head, from the weights below it on.
        tokenizer : path or tokenizer, optional
            A file, a directory, or a fast tokenizer of transformers; by default that of the directory, if it has one.
        """
        model, config, weights = cls._sized(source, tokenizer)
        model._check_architecture(config.get("architectures") or [""], weights)
        found = {f"bert.{name}": w for name, w in bert_weights(weights, model.n_layers, cls.__name__).items()}
        found |= {f"head.{end}": weights[f"{cls._head}.{end}"] for end in ("weight", "bias")}
        model.n_outputs_, model.dtype_ = len(found["head.bias"]), dtype_of(found)
        model._labelled(config)
        optional = ("bert.guess", "bert.follows", *(() if cls._pooled else ("bert.pooler",)))
        with seeded(0):
            model.module_ = fill_pretrained(model._module, found, cls.__name__, optional)
        model.pretrained_ = model._tuned_weights()
        return model

    def _tuned_weights(self) -> dict[str, Tensor]:
        return dict(self.module_.bert.state_dict())

    def _check_architecture(self, names: list[str], weights: dict[str, Tensor]) -> None:
        owner, wanted = type(self).__name__, self._architecture
        if names[0] in ARCHITECTURES and names[0] != wanted:
            raise value(owner, f"the model must be a {wanted}", names[0], f"Use {ARCHITECTURES[names[0]]}.")
        if f"{self._head}.weight" not in weights or f"{self._head}.bias" not in weights:
            do = f'BERT.from_transformers(source).fine_tune(X, y, task="{self._task}") trains a new one.'
            raise value(owner, f"the weights must have the head of a {wanted}", f"no {self._head!r}", do)

    def _labelled(self, config: dict[str, Any]) -> None:
        """Take what the outputs stand for from the configuration."""
        names = {int(number): name for number, name in config.get("id2label", {}).items()}
        self.classes_ = np.array([names.get(i, f"LABEL_{i}") for i in range(self.n_outputs_)])
