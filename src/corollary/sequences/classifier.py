r"""Classification of whole sequences by recurrent, convolutional and linear recurrent networks.

A :class:`~corollary.sequences.network.SequenceNetwork` reads a sequence and pools its states to one vector h;
:math:`p(y \mid x) = \mathrm{softmax}(W h + b)_y` (1), and the mean of :math:`-\log p` is minimised.
"""

from __future__ import annotations

import numpy as np
from sklearn.utils._param_validation import StrOptions

from corollary.base import Data
from corollary.engine.budget import Budget
from corollary.engine.ragged import RaggedBatches
from corollary.gradient import GradientClassifier
from corollary.sequences.common import BaseSequenceNetwork
from corollary.sequences.network import POOLINGS

__all__ = ["SequenceClassifier"]


class SequenceClassifier(GradientClassifier, BaseSequenceNetwork):
    """Classify sequences of any length with a recurrent or convolutional network.

    Takes a list of integer sequences ``(t,)``, of vector sequences ``(t, d)``, of strings (read character by
    character) or of lists of words; a character or word that ``fit`` has not seen counts as unknown. Vectors are
    standardised by the training data; batch size and epochs follow from their number (:mod:`corollary.engine.budget`).

    Parameters
    ----------
    cell : {"rnn", "lstm", "gru", "lru", "tcn"}, default="gru"
        Recurrent cell, or "tcn" for a convolutional network. Gated cells remember longer than "rnn"; "lru" and "tcn" are
        faster on long sequences.
    width : int, default=64
        Width of the states. Wider remembers more.
    n_layers : int, optional
        Depth. By default 1; for "tcn" as many blocks as see all of nearly every sequence, since each doubles how far
        back it sees.
    bidirectional : bool, default=False
        Whether to read from both ends.
    embedding_dimension : int, default=32
        Width of the embedding of integers, characters and words.
    pooling : {"auto", "last", "mean", "max", "both"}, default="auto"
        How the states become one vector; "both" are the last and the mean. "auto" takes the last state, which remembers the
        sequence, and both of "tcn", which remembers nothing.
    dropout : float, default=0.0
        Share of activations dropped at random while training; more regularises more.
    truncation : int, optional
        Let gradients flow back over at most so many steps, for recurrent cells that read one way: steadier on long
        sequences, but longer ties are not learned. States go on from piece to piece.
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
        The trained network; called with padded sequences and lengths it gives logits.
    kind_ : {"code", "vector", "string", "token"}
        What was fitted.
    alphabet_ : str or list of str
        The characters, or words, that were fitted.
    n_layers_ : int
        Number of layers.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy. An epoch costs O(steps * width^2 * n_layers). Batches are cut from
    sequences of like lengths. torch's own cells are used; its GRU applies the reset gate after the matrix product
    and names the update gate's complement, which is the notes' GRU up to names.

    References
    ----------
    .. [1] S. Hochreiter, J. Schmidhuber (1997). Long short-term memory. Neural Computation 9(8).
    .. [2] K. Cho et al. (2014). Learning phrase representations using RNN encoder-decoder. EMNLP.

    Examples
    --------
    >>> from corollary import SequenceClassifier
    >>> words = ["aab", "ab", "aaab", "bba", "ba", "bbba"] * 5
    >>> model = SequenceClassifier("gru", width=8, random_state=0).fit(words, [0, 0, 0, 1, 1, 1] * 5)
    >>> model.predict(["aaaab", "bbbba"])
    array([0, 1])
    """

    _several_labels = True
    _budget = Budget(600, batch_sizes=(8, 32), epochs=(30, 100))
    _parameter_constraints = {
        **BaseSequenceNetwork._parameter_constraints,
        "pooling": [StrOptions({"auto", *POOLINGS})],
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

    def __init__(
        self,
        cell="gru",
        *,
        width=64,
        n_layers=None,
        bidirectional=False,
        embedding_dimension=32,
        pooling="auto",
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
        self.pooling = pooling
        self.dropout = dropout
        self.truncation = truncation
        self.class_weight = class_weight
        self.training = training
        self.random_state = random_state

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self.n_outputs_ = len(self.classes_)

    def _pooled(self) -> str:
        if self.pooling != "auto":
            return str(self.pooling)
        return "both" if self.cell == "tcn" else "last"

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._ragged(data.X), *self._supervision(data))

    def _predict_proba(self, X: list[np.ndarray]) -> np.ndarray:
        return np.stack(self._evaluate(X, lambda x, lengths: self._chances(self.module_(x, lengths))))
