r"""Extractive question answering with BERT, from scratch or fine-tuned: the span of a passage that answers a question.

``[CLS] question [SEP] passage [SEP]`` is read, and every token has two outputs, :math:`a_t` and :math:`b_t` (eq. 1 of
:mod:`corollary.language.bert_heads`): the answer begins at s and ends at e with

.. math:: p(s, e) = \mathrm{softmax}(a)_s \, \mathrm{softmax}(b)_e, \tag{1}

both over the tokens of the passage and ``[CLS]``, which stands for "no answer". The answer given is the most probable pair with
:math:`s \le e`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from corollary.base import Data, as_tensor
from corollary.engine.objective import Supervised
from corollary.engine.ragged import RaggedBatches
from corollary.errors import kind, value
from corollary.language.bert_heads import BaseHead
from corollary.losses import cross_entropy
from corollary.roles.targets import given_target

__all__ = ["BERTAnswerer"]

FORM = 'X must be a list of pairs (question, passage), or of strings "question [SEP] passage"'


class Read(NamedTuple):
    """A question and its passage as tokens."""

    tokens: np.ndarray
    allowed: np.ndarray  # where an answer may begin and end
    first: int  # the place of the passage
    offsets: np.ndarray  # (tokens of the passage, 2), in characters


def span_logits(module: nn.Module, tokens: Tensor, lengths: Tensor, allowed: Tensor, _: Tensor) -> Tensor:
    """Return the logits (b, t, 2) of the first and the last token of the answers."""
    return module(tokens, lengths).masked_fill(~allowed[..., None], -torch.inf)


def best_span(logits: Tensor, allowed: Tensor) -> Tensor:
    """Return the most probable first and last token, (b, 2), for logits (b, t, 2)."""
    begin, end = logits.masked_fill(~allowed[..., None], -torch.inf).unbind(-1)
    pairs = begin[:, :, None] + end[:, None]
    pairs = pairs.masked_fill(~torch.ones_like(pairs, dtype=torch.bool).triu(), -torch.inf)
    pairs[:, 0, 1:] = -torch.inf  # no answer is no beginning of one
    best = pairs.flatten(1).argmax(1)
    return torch.stack([best // logits.shape[1], best % logits.shape[1]], 1)


class BERTAnswerer(BaseHead):
    """Answer questions by a span of a passage (extractive question answering) with a BERT.

    From scratch, or by ``BERT.fine_tune(X, y, task="answering")``. X has pairs (question, passage), or both as one string with
    ``[SEP]`` between them; y has the answers: strings that stand in the passage, of which the first place counts, or pairs
    (begin, end) of character positions in it; "" where the passage has no answer.

    Parameters
    ----------
    n_layers : int, default=2
        Number of transformer layers. More learn more, and need more texts.
    width : int, default=128
        Width of the token states, a multiple of ``n_heads``; cost grows with its square.
    n_heads : int, default=4
        Attention heads of each layer.
    inner_width : int, optional
        Hidden width of the feed-forward layers, four times the width by default.
    max_length : int, default=128
        The most tokens that are read, question and passage together; longer passages are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words in the vocabulary.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : HeadedNetwork
        The network (``bert``) and its head: tokens (b, t) and lengths (b,) to logits (b, t, 2).
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises half the mean of -log p of equation (1) of :mod:`corollary.language.bert_answerer`; O(t^2 d + t d^2) per text and
    layer. ``BERTAnswerer.from_transformers`` reads a ``BertForQuestionAnswering``.

    References
    ----------
    .. [1] J. Devlin, M.-W. Chang, K. Lee, K. Toutanova (2019). BERT: pre-training of deep bidirectional transformers
       for language understanding. NAACL, sections 4.2 and 4.3.

    Examples
    --------
    >>> from corollary import BERTAnswerer, Training
    >>> X = [("who?", "anna saw the sea"), ("who?", "the sun saw bert"), ("what?", "the ice is cold")] * 8
    >>> plan = Training(30, learning_rate=0.01, batch_size=8)
    >>> model = BERTAnswerer(1, width=16, n_heads=2, dropout=0.0, training=plan, random_state=0)
    >>> model.fit(X, ["anna", "bert", "the ice"] * 8).predict(X[:2])
    ['anna', 'bert']
    """

    role = "answerer"
    _architecture, _task = "BertForQuestionAnswering", "answering"
    _head, _pooled = "qa_outputs", False

    @classmethod
    def _test_data(cls) -> tuple[list[tuple[str, str]], list[str]]:
        rng = np.random.default_rng(0)
        passages = [rng.choice(["sun", "sea", "snow", "ice"], size=4).tolist() for _ in range(20)]
        return [("first" if i % 2 else "last", " ".join(p)) for i, p in enumerate(passages)], [
            p[0 if i % 2 else -1] for i, p in enumerate(passages)
        ]

    def predict(self, X):
        """Return, for each question, the part of its passage that answers it; "" if none does."""
        pairs = self._query(X)
        self._check_tokenizer()
        reads = [self._framed_pair(pair) for pair in pairs]
        tokens, allowed = ([read[k] for read in reads] for k in range(2))
        spans = self._evaluate(tokens, self._best_spans, allowed)
        return [
            passage[read.offsets[begin - read.first, 0] : read.offsets[end - read.first, 1]] if begin else ""
            for (_, passage), read, (begin, end) in zip(pairs, reads, spans)
        ]

    def score(self, X, y=None):
        """Return the share of questions that are answered exactly."""
        y, pairs = given_target(self, X, y), self._query(X)
        wanted = [passage[slice(*span)] for (_, passage), span in zip(pairs, self._check_y(pairs, y))]
        return float(np.mean([a == b for a, b in zip(self.predict(X), wanted)]))

    # --- hooks -------------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> list[tuple[str, str]]:
        owner = type(self).__name__
        if isinstance(X, str | bytes) or not isinstance(X, Iterable):
            raise kind(owner, FORM, type(X).__name__, "Wrap a single one in a list.")
        pairs = [tuple(part.partition("[SEP]")[::2]) if isinstance(part, str) else part for part in X]
        for i, pair in enumerate(pairs):
            if not isinstance(pair, Iterable) or [isinstance(part, str) for part in pair] != [True, True]:
                raise kind(owner, FORM, f"{type(pair).__name__} at {i}")
            if not pair[1].strip():
                do = 'Leave it out, or put "[SEP]" between question and passage.'
                raise value(owner, "every passage must have words", f"none in pair {i}", do)
        if not pairs:
            raise value(owner, FORM, "an empty list")
        return [(str(question), str(passage)) for question, passage in pairs]

    def _check_y(self, X: list[tuple[str, str]], y: Any) -> np.ndarray:
        """Return begin and end of every answer in its passage, in characters; both 0 if there is none."""
        owner, must = type(self).__name__, f"y must have one answer per pair ({len(X)})"
        if y is None or isinstance(y, str) or not hasattr(y, "__len__"):
            raise kind(owner, must, type(y).__name__, "Pass strings, or pairs of positions.")
        if len(y) != len(X):
            raise value(owner, must, len(y), "Leave out the pairs without one.")
        return np.array(
            [self._located(i, passage, answer) for i, ((_, passage), answer) in enumerate(zip(X, y))]
        )

    def _located(self, i: int, passage: str, answer: Any) -> tuple[int, int]:
        owner = type(self).__name__
        if isinstance(answer, str):
            begin = passage.find(answer)
            if begin < 0:
                do = 'Copy it from there; "" is no answer.'
                raise value(owner, f"answer {i} must stand in its passage", repr(answer[:60]), do)
            answer = begin, begin + len(answer)
        try:
            begin, end = map(int, answer)
        except (TypeError, ValueError):
            raise kind(
                owner, f"answer {i} must be a string or a pair (begin, end)", repr(answer)[:60]
            ) from None
        if not (0 <= begin <= end <= len(passage)):
            must = f"answer {i} must lie within the {len(passage)} characters of its passage"
            raise value(owner, must, f"{begin} to {end}")
        text = passage[begin:end]
        begin += len(text) - len(text.lstrip())  # no piece of a word holds a blank
        return (begin, begin + len(text.strip())) if text.strip() else (0, 0)

    def _framed_pair(self, pair: tuple[str, str]) -> Read:
        """Frame a pair; a question may take up to half the context, the passage what is left."""
        t = self.tokenizer_
        question = t.encode(pair[0])[: self.max_length // 2 - 2]
        codes, offsets = t.locate(pair[1])
        room = self.max_length - len(question) - 3
        tokens = np.array([t.open, *question, t.part, *codes[:room], t.part])
        first = len(question) + 2
        places = np.arange(len(tokens))
        allowed = (places == 0) | ((places >= first) & (places < len(tokens) - 1))
        return Read(tokens, allowed, first, np.array(offsets[:room]).reshape(-1, 2))

    def _measure(self, data: Data) -> None:
        self._prepare([text for pair in data.X for text in pair])
        self.n_outputs_ = 2

    def _aim(self) -> Supervised:
        # The tokens are the classes, twice: the loss of a pair is -log p of eq. 1, halved in the mean.
        return Supervised(cross_entropy, forward=span_logits)

    def _batches(self, data: Data) -> RaggedBatches:
        reads = [self._framed_pair(pair) for pair in data.X]
        spans = np.array(
            [self._tokens_of(i, read, *span) for i, (read, span) in enumerate(zip(reads, data.y))]
        )
        x, allowed = (self._ragged([read[k] for read in reads]) for k in range(2))
        return RaggedBatches((x, allowed), as_tensor(spans), self._as_weight(data.sample_weight))

    def _tokens_of(self, i: int, read: Read, begin: int, end: int) -> tuple[int, int]:
        if begin == end:
            return 0, 0
        inside = np.flatnonzero((read.offsets[:, 0] < end) & (read.offsets[:, 1] > begin))
        if not len(inside) or read.offsets[-1, 1] < end:
            must = f"answer {i} must lie within what max_length={self.max_length} tokens holds of its passage"
            read_to = read.offsets[-1, 1] if len(read.offsets) else 0
            do = "Raise max_length, or cut the passage around it."
            raise value(type(self).__name__, must, f"characters {begin} to {end} of {read_to} read", do)
        return read.first + int(inside[0]), read.first + int(inside[-1])

    def _best_spans(self, tokens: Tensor, lengths: Tensor, allowed: Tensor, _: Tensor) -> Tensor:
        return best_span(self.module_(tokens, lengths), allowed)

    def _labelled(self, config: dict[str, Any]) -> None:
        if self.n_outputs_ != 2:
            raise value(type(self).__name__, "the head must have 2 outputs, begin and end", self.n_outputs_)
