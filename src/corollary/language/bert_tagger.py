r"""Token classification (tagging) with BERT, from scratch or fine-tuned: a label for every word of a text.

A word may be several pieces; its first piece carries its label. With the outputs of eq. 1 of
:mod:`corollary.language.bert_heads`, :math:`p(y_w \mid x) = \mathrm{softmax}(z_{t(w)})_{y_w}` (1), where
:math:`t(w)` is the first piece of word w. A text of more pieces than the context is read in windows of whole words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from corollary.base import Data
from corollary.engine.ragged import RaggedBatches
from corollary.errors import kind, value
from corollary.gradient import GradientTagger
from corollary.language.bert_heads import BaseHead

__all__ = ["BERTTagger"]


def windows(sizes: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Return begin and end of runs of words, each as long as ``room`` pieces allow.

    >>> windows([2, 2, 1, 3], 4)
    [(0, 2), (2, 4)]
    """
    ends, cuts = np.cumsum(sizes), [0]
    while cuts[-1] < len(sizes):
        used = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, used + room, "right"))))
    return list(zip(cuts[:-1], cuts[1:]))


class BERTTagger(GradientTagger, BaseHead):
    """Label every word of texts with a BERT: part-of-speech tags, named entities.

    From scratch, or by ``BERT.fine_tune(X, y, task="tagging")``. A text is a list of words, y has one list of labels for
    each; both may also be strings, split at white space.

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
        The most tokens that are read at a time; longer texts are read in parts.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words in the vocabulary.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : HeadedNetwork
        The network (``bert``) and its head: tokens (b, t) and lengths (b,) to logits (b, t, n_classes).
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy over words; O(t^2 d + t d^2) per text and layer. Texts longer than the context are
    read in parts, so every word gets a label. ``BERTTagger.from_transformers`` reads a ``BertForTokenClassification``.

    References
    ----------
    .. [1] J. Devlin, M.-W. Chang, K. Lee, K. Toutanova (2019). BERT: pre-training of deep bidirectional transformers
       for language understanding. NAACL, section 5.3.

    Examples
    --------
    >>> from corollary import BERTTagger, Training
    >>> texts = [["the", "sun"], ["a", "sea"], ["the", "sea"], ["a", "sun"]] * 6
    >>> model = BERTTagger(1, width=16, n_heads=2, training=Training(20, learning_rate=0.01), random_state=0)
    >>> model.fit(texts, [["article", "noun"]] * 24).predict(["a sun"])[0].tolist()
    ['article', 'noun']
    """

    _architecture, _task = "BertForTokenClassification", "tagging"
    _pooled, _whole, _parts = False, "text", "words"

    _parameter_constraints = {
        **BaseHead._parameter_constraints,
        "class_weight": [None, dict, StrOptions({"balanced"})],
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
        class_weight=None,
        training=None,
        random_state=None,
    ):
        super().__init__(
            n_layers,
            width=width,
            n_heads=n_heads,
            inner_width=inner_width,
            max_length=max_length,
            dropout=dropout,
            vocabulary_size=vocabulary_size,
            training=training,
            random_state=random_state,
        )
        self.class_weight = class_weight

    @classmethod
    def _test_data(cls) -> tuple[list[list[str]], list[list[int]]]:
        rng = np.random.default_rng(0)
        texts = [
            rng.choice(["sun", "sea", "snow", "ice"], size=n).tolist() for n in rng.integers(1, 30, size=20)
        ]
        return texts, [[int(word in ("sun", "sea")) for word in text] for text in texts]

    def _check(self, X: Any, reset: bool) -> list[list[str]]:
        owner, must = type(self).__name__, "X must be a list of texts, each a list of words or a string"
        if isinstance(X, str | bytes) or not isinstance(X, Iterable) or getattr(X, "ndim", 1) != 1:
            raise kind(owner, must, type(X).__name__, "Wrap a single text in a list.")
        texts = [text.split() if isinstance(text, str) else text for text in X]
        for i, text in enumerate(texts):
            if not isinstance(text, Sequence | np.ndarray) or not all(isinstance(word, str) for word in text):
                raise kind(owner, must, f"{type(text).__name__} at {i}", "Decode or leave it out.")
            if not len(text):
                raise value(owner, "every text must have words", f"none in text {i}", "Leave it out.")
        if not texts:
            raise value(owner, must, "an empty list")
        return [[str(word) for word in text] for text in texts]

    def _labels(self, X: list[list[str]], y: Any) -> list[np.ndarray]:
        listed = isinstance(y, Iterable) and not isinstance(y, str)
        return super()._labels(
            X, [part.split() if isinstance(part, str) else part for part in y] if listed else y
        )

    def _windows(self, texts: list[list[str]]) -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
        """Return framed windows, where in each its words begin, and how many windows each text has."""
        self._check_tokenizer()
        t, room = self.tokenizer_, self.max_length - 2
        flat = iter(t.encode_words([word for text in texts for word in text]))
        rows, places, counts = [], [], []
        for text in texts:
            pieces = [next(flat)[:room] for _ in text]
            runs = windows([len(part) for part in pieces], room)
            for begin, end in runs:
                inside = [len(part) for part in pieces[begin:end]]
                rows.append(np.array([t.open, *sum(pieces[begin:end], []), t.part]))
                places.append(1 + np.cumsum(inside) - inside)
            counts.append(len(runs))
        return rows, places, counts

    def _measure(self, data: Data) -> None:
        self._prepare([" ".join(text) for text in data.X])
        self.n_outputs_ = len(self.classes_)

    def _batches(self, data: Data) -> RaggedBatches:
        rows, places, _ = self._windows(data.X)
        cuts = np.cumsum([len(place) for place in places])[:-1]
        words = np.concatenate(data.y), np.concatenate(self._weights(data.y, data.sample_weight))
        marks = [np.zeros(len(row), dtype=np.int64) for row in rows]
        weights = [np.zeros(len(row), dtype=self.dtype_) for row in rows]  # only first pieces of words count
        for mark, weight, place, code, w in zip(
            marks, weights, places, *(np.split(part, cuts) for part in words)
        ):
            mark[place], weight[place] = code, w
        return RaggedBatches(*(self._ragged(column) for column in (rows, marks, weights)))

    def _probabilities(self, X: list[list[str]]) -> list[np.ndarray]:
        rows, places, counts = self._windows(X)
        found = self._evaluate(rows, lambda tokens, lengths: self.module_(tokens, lengths).softmax(-1))
        parts = iter([p[place] for p, place in zip(found, places)])
        return [np.concatenate([next(parts) for _ in range(n)]) for n in counts]
