r"""Sequence tagging: a label for every step of a sequence.

The states :math:`h^t` of a :class:`~corollary.sequences.network.SequenceNetwork` are read out one by one,
:math:`p(y^t \mid x) = \mathrm{softmax}(W h^t + b)_{y^t}` (1); steps of the padding have no part in the loss.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils._param_validation import StrOptions

from corollary.base import Data
from corollary.engine.ragged import RaggedBatches
from corollary.gradient import GradientTagger
from corollary.sequences.common import BaseSequenceNetwork

__all__ = ["SequenceTagger"]


class SequenceTagger(GradientTagger, BaseSequenceNetwork):
    """Label every step of sequences of any length.

    Takes sequences as :class:`~corollary.SequenceClassifier` does, and for each a sequence of labels as long.

    Parameters
    ----------
    cell : {"rnn", "lstm", "gru", "lru", "tcn"}, default="gru"
        Recurrent cell, or "tcn" for a convolutional network. Gated cells remember longer than "rnn".
    width : int, default=64
        Width of the states. Wider remembers more.
    n_layers : int, optional
        Depth. By default 1; for "tcn" as many blocks as see all of nearly every sequence, since each doubles how far
        back it sees.
    bidirectional : bool, default=True
        Whether a label may depend on what comes after it.
    embedding_dimension : int, default=32
        Width of the embedding of integers, characters and words.
    dropout : float, default=0.0
        Share of activations dropped at random while training; more regularises more.
    truncation : int, optional
        Let gradients flow back over at most so many steps.
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
    module_ : SequenceNetwork
        The trained network; called with padded sequences and lengths it gives logits for every step.
    n_layers_ : int
        Number of layers.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy over the steps of each batch. An epoch costs
    O(steps * width^2 * n_layers).

    References
    ----------
    .. [1] M. Schuster, K. K. Paliwal (1997). Bidirectional recurrent neural networks. IEEE Trans. Signal Processing 45.

    Examples
    --------
    >>> from corollary import SequenceTagger
    >>> model = SequenceTagger(width=8, random_state=0).fit(["abba", "ab"] * 10, [[0, 1, 1, 0], [0, 1]] * 10)
    >>> model.predict(["bba"])
    [array([1, 1, 0])]
    """

    _parameter_constraints = {
        **BaseSequenceNetwork._parameter_constraints,
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

    def __init__(
        self,
        cell="gru",
        *,
        width=64,
        n_layers=None,
        bidirectional=True,
        embedding_dimension=32,
        dropout=0.0,
        truncation=None,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        self.cell = cell
        self.width = width
        self.n_layers = n_layers
        self.bidirectional = bidirectional
        self.embedding_dimension = embedding_dimension
        self.dropout = dropout
        self.truncation = truncation
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_data(cls) -> tuple[list[str], list[list[int]]]:
        rng = np.random.default_rng(0)
        texts = ["".join(rng.choice(list("abc"), size=rng.integers(2, 8))) for _ in range(20)]
        return texts, [[int(c == "b") for c in text] for text in texts]

    # --- hooks -------------------------------------------------------------------------------------------

    def _probabilities(self, X: list[np.ndarray]) -> list[np.ndarray]:
        found = self._evaluate(X, lambda x, lengths: self.module_(x, lengths).softmax(-1))
        return [p[: len(part)] for p, part in zip(found, X)]

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self.n_outputs_ = len(self.classes_)

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._ragged(data.X), *self._supervision(data))
