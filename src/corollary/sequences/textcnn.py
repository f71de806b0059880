r"""TextCNN: a convolutional network over word vectors, with a linear model of n-grams.

With word vectors :math:`x_1, \dots, x_t` a filter of width w gives

.. math:: c_i = \mathrm{relu}(\langle W, [x_i, \dots, x_{i+w-1}] \rangle + b), \qquad \hat c = \max_i c_i, \tag{1}

so that :math:`\hat c` says how much of a phrase of w words is anywhere in the text. All :math:`\hat c` together are
classified linearly, and this is added to linear scores s of the phrases themselves (:mod:`corollary.sequences.ngrams`),

.. math:: p(y \mid x) = \mathrm{softmax}(s(x) + A \hat c + a)_y, \tag{2}

with A = 0 to begin with: training starts from what counted words tell. Windows that would reach beyond a text's end do not
take part in the maximum; a text shorter than w is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.engine.budget import Budget
from corollary.engine.ragged import Ragged, RaggedBatches, padding_mask
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientClassifier
from corollary.sequences import words
from corollary.sequences.common import in_batches
from corollary.sequences.ngrams import ScoresPhrases, silence
from corollary.shapes import List, Text

__all__ = ["TextCNN", "TextCNNNetwork"]


class TextCNNNetwork(nn.Module):
    """Logits (b, n_out) of padded texts (b, t), eqs. 1 and 2.

    Parameters
    ----------
    n_words : int
        Size of the vocabulary; number 0 pads and has a zero vector.
    n_out : int
        Number of classes.
    embedding_dimension : int
        Width of the word vectors.
    kernel_sizes : sequence of int
        Lengths of the filters, in words.
    n_filters : int
        Filters of each length.
    dropout : float
        Share of the features dropped while training.
    """

    def __init__(
        self,
        n_words: int,
        n_out: int,
        *,
        embedding_dimension: int = 64,
        kernel_sizes: Sequence[int] = (2, 3, 4),
        n_filters: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.kernel_sizes = tuple(kernel_sizes)
        self.words = nn.Embedding(n_words, embedding_dimension, padding_idx=words.PAD)
        self.filters = nn.ModuleList(
            nn.Conv1d(embedding_dimension, n_filters, size) for size in self.kernel_sizes
        )
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(n_filters * len(self.kernel_sizes), n_out)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, scores: Tensor | None = None) -> Tensor:
        """Classify; no lengths mean that all texts are full. ``scores`` (b, n_out) are added."""
        steps = tokens.shape[1]
        tokens = F.pad(tokens, (0, max(0, max(self.kernel_sizes) - steps)))
        x = self.words(tokens).transpose(1, 2)
        found = []
        for size, layer in zip(self.kernel_sizes, self.filters):
            c = F.relu(layer(x))
            if lengths is None:
                c = c[:, :, : max(1, steps - size + 1)]
            else:
                inside = padding_mask((lengths - size + 1).clamp_min(1), c.shape[2], c.device)
                c = c.masked_fill(~inside[:, None], 0.0)  # after relu, 0 is the least
            found.append(c.amax(2))
        logits = self.head(self.drop(torch.cat(found, 1)))
        return logits if scores is None else logits + scores


class TextCNN(ScoresPhrases, GradientClassifier):
    """Classify texts by a convolutional network over word vectors, on top of a linear model of n-gram counts.

    Parameters
    ----------
    kernel_sizes : sequence of int, default=(2, 3, 4)
        Lengths of the phrases, in words.
    n_filters : int, default=64
        Phrases of each length. More tell finer differences.
    embedding_dimension : int, default=64
        Width of the word vectors.
    dropout : float, default=0.5
        Share of the features dropped at random while training; more regularises more.
    vocabulary_size : int, default=20000
        How many of the most frequent words are told apart; all others count as one.
    min_count : int, default=1
        How often a word must occur to be told apart.
    max_length : int, default=400
        How many words of a text the filters read.
    ngrams : int, default=2
        Longest phrase, in words, that is also counted and scored linearly beside the filters, in the whole text; 0 leaves the
        linear part out.
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
    vocabulary_ : list of str
        The words, the most frequent first.
    ngrams_ : list of str
        The phrases of the linear part; ``top_ngrams()`` says which of them speak for which class.
    ngram_idf_, ngram_coef_, ngram_intercept_ : ndarray
        How rare each phrase is, and its weight for each class; what the scores begin with.
    module_ : TextCNNNetwork
        The trained network.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    The linear part, tf-idf and logistic regression, is fitted first; then the network minimises the mean cross-entropy of
    the sum, eq. 2, batch size and epochs following from the number of texts. An epoch costs
    O(words * embedding_dimension * n_filters * sum(kernel_sizes)). A word that ``fit`` has not seen counts as unknown; a
    text without words has features 0 but for the biases.

    References
    ----------
    .. [1] Y. Kim (2014). Convolutional neural networks for sentence classification. EMNLP.

    Examples
    --------
    >>> from corollary import TextCNN, Training
    >>> texts = ["warm sun over the sea", "cold snow and ice", "the sea is warm", "ice is cold"] * 5
    >>> model = TextCNN(n_filters=8, training=Training(60), random_state=0).fit(texts, ["summer", "winter"] * 10)
    >>> model.predict(["snow and ice", "the warm sea"]).tolist()
    ['winter', 'summer']
    """

    input = "text"
    _training_defaults = {"learning_rate": 2e-3}
    _budget = Budget(800, epochs=(5, 30))
    _several_labels = True
    _parameter_constraints = {
        "kernel_sizes": ["array-like"],
        "n_filters": [Interval(Integral, 1, None, closed="left")],
        "embedding_dimension": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "vocabulary_size": [Interval(Integral, 1, None, closed="left")],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "max_length": [Interval(Integral, 1, None, closed="left")],
        "ngrams": [Interval(Integral, 0, 5, closed="both")],
        "class_weight": [None, dict, StrOptions({"balanced"})],
        "random_state": ["random_state"],
    }
    _fitted = {"vocabulary_": List(Text())}

    def __init__(
        self,
        kernel_sizes=(2, 3, 4),
        *,
        n_filters=64,
        embedding_dimension=64,
        dropout=0.5,
        vocabulary_size=20000,
        min_count=1,
        max_length=400,
        ngrams=2,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.kernel_sizes = kernel_sizes
        self.n_filters = n_filters
        self.embedding_dimension = embedding_dimension
        self.dropout = dropout
        self.vocabulary_size = vocabulary_size
        self.min_count = min_count
        self.max_length = max_length
        self.ngrams = ngrams
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_filters": 4, "embedding_dimension": 8, "training": Training(epochs=3)}

    def _module(self) -> TextCNNNetwork:
        module = TextCNNNetwork(
            words.SPECIAL + len(self.vocabulary_),
            len(self.classes_),
            embedding_dimension=self.embedding_dimension,
            kernel_sizes=np.atleast_1d(self.kernel_sizes).tolist(),
            n_filters=self.n_filters,
            dropout=self.dropout,
        )
        if hasattr(self, "ngrams_"):
            silence(module.head)
        return module

    def _ragged(self, texts: list[str]) -> Ragged:
        parts = words.encode(texts, self.vocabulary_, "word")
        return Ragged.of([part[: self.max_length] for part in parts], device=current().device)

    def _measure(self, data: Data) -> None:
        kernel_sizes = np.atleast_1d(self.kernel_sizes)
        if not kernel_sizes.size or kernel_sizes.min() < 1:
            raise value("TextCNN", "kernel_sizes must be positive", tuple(kernel_sizes.tolist()))
        self.vocabulary_ = words.vocabulary(data.X, "word", self.vocabulary_size, self.min_count)
        self._measure_phrases(data)

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._inputs(data.X), *self._supervision(data))

    def _inputs(self, texts: list[str]) -> tuple[Any, ...]:
        scores = self._scores(texts)
        return (self._ragged(texts),) if scores is None else (self._ragged(texts), scores)

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        # texts that are shorter than the widest filter are given padded
        steps = 2 + int(np.max(self.kernel_sizes))
        inputs = {"tokens": torch.zeros(2, steps, dtype=torch.int64), "lengths": torch.tensor([steps, 2])}
        free = {"tokens": {0: "n", 1: "steps"}, "lengths": {0: "n"}}
        return self._with_scores(inputs, free)

    def _predict_proba(self, X: list[str]) -> np.ndarray:
        device = next(self.module_.parameters()).device
        data = RaggedBatches(self._inputs(X)).to(device)
        out = np.empty((len(X), len(self.classes_)), dtype=np.float32)
        with torch.inference_mode():
            for rows, *inputs in in_batches(data):
                out[rows.numpy()] = self._chances(self.module_(*inputs)).cpu().numpy()
        return out
