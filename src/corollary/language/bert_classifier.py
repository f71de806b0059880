r"""Text classification and regression with BERT, from scratch or fine-tuned: a linear head on the first state.

With the output z of eq. 1 of :mod:`corollary.language.bert_heads`, a class has :math:`p(y \mid x) = \mathrm{softmax}(z)_y` (1),
and a number is :math:`\mu + \sigma z` (2) with mean and deviation of the training targets. From scratch, the linear scores of
counted phrases (:mod:`corollary.sequences.ngrams`) are added to the z of classes, and W = 0 to begin with.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from corollary.base import Data
from corollary.engine.budget import Budget
from corollary.engine.ragged import RaggedBatches
from corollary.errors import value
from corollary.gradient import GradientClassifier, GradientRegressor
from corollary.language.bert_heads import BaseHead, HeadedNetwork
from corollary.losses import REGRESSION
from corollary.sequences.ngrams import ScoresPhrases, silence

__all__ = ["BERTClassifier", "BERTRegressor"]


class BERTClassifier(ScoresPhrases, GradientClassifier, BaseHead):
    """Classify texts with a BERT.

    From scratch, or from what a :class:`BERT` has learned: ``BERT.fine_tune(X, y)`` makes one. A pair of sentences is one
    text with ``[SEP]`` between them.

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
        The most tokens that are read; longer texts are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words in the vocabulary.
    ngrams : int, default=2
        Longest phrase, in words, that is also counted and scored linearly, in the whole text; 0 leaves the linear part out.
        A model that starts from what a BERT has learned has none.
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
    ngrams_ : list of str
        The phrases of the linear part, if there is one; ``top_ngrams()`` says which of them speak for which class.
    module_ : HeadedNetwork
        The network (``bert``) and its head: tokens (b, t) and lengths (b,) to logits (b, n_classes).
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy of a linear map of the pooled first state, added to the scores of the linear part, which is
    fitted first; O(t^2 d + t d^2) per text and layer.
    ``BERTClassifier.from_transformers`` reads a ``BertForSequenceClassification``.

    References
    ----------
    .. [1] J. Devlin, M.-W. Chang, K. Lee, K. Toutanova (2019). BERT: pre-training of deep bidirectional transformers
       for language understanding. NAACL, section 4.1.

    Examples
    --------
    >>> from corollary import BERTClassifier, Training
    >>> texts = ["warm sun", "cold snow", "sun and sea", "snow and ice"] * 6
    >>> plan = Training(20, learning_rate=0.01, batch_size=8)
    >>> model = BERTClassifier(1, width=16, n_heads=2, training=plan, random_state=0)
    >>> model.fit(texts, [1, 0, 1, 0] * 6).predict(["sun", "snow"])
    array([1, 0])
    """

    _architecture, _task = "BertForSequenceClassification", "classification"

    @property
    def _budget(self) -> Budget | None:
        return None if hasattr(self, "pretrained_") else Budget(800, batch_sizes=(8, 32), epochs=(5, 30))

    _several_labels = True
    _parameter_constraints = {
        **BaseHead._parameter_constraints,
        "ngrams": [Interval(Integral, 0, 5, closed="both")],
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
        ngrams=2,
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
        self.ngrams = ngrams
        self.class_weight = class_weight

    def _measure(self, data: Data) -> None:
        self._prepare(data.X)
        self.n_outputs_ = len(self.classes_)
        if not hasattr(self, "pretrained_"):
            self._measure_phrases(data)

    def _module(self) -> HeadedNetwork:
        module = super()._module()
        if hasattr(self, "ngrams_"):
            silence(module.head)
        return module

    def _batches(self, data: Data) -> RaggedBatches:
        inputs = (self._ragged(self._framed(data.X)), *self._others(data.X))
        return RaggedBatches(inputs, *self._supervision(data))

    def _others(self, texts: list[str]) -> tuple[Any, ...]:
        scores = self._scores(texts)
        return () if scores is None else (scores,)

    def _predict_proba(self, X: list[str]) -> np.ndarray:
        rows = self._evaluate(
            self._framed(X), lambda *inputs: self._chances(self.module_(*inputs)), *self._others(X)
        )
        return np.stack(rows)

    def _graph_inputs(self) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        return self._with_scores(*super()._graph_inputs())

    def _labelled(self, config: dict[str, Any]) -> None:
        super()._labelled(config)
        problem = config.get("problem_type") or ("regression" if self.n_outputs_ == 1 else None)
        if problem in ("regression", "multi_label_classification"):
            do = "Use BERTRegressor." if problem == "regression" else "Use module_ of BERTRegressor, by hand."
            raise value("BERTClassifier", "the head must tell one class of several", f"one for {problem}", do)


class BERTRegressor(GradientRegressor, BaseHead):
    """Predict one or more numbers of a text with a BERT: a rating, a price, how alike two sentences are.

    From scratch, or by ``BERT.fine_tune(X, y, task="regression")``. A pair of sentences is one text with ``[SEP]``
    between them.

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
        The most tokens that are read; longer texts are cut.
    dropout : float, default=0.1
        Share of activations dropped at random while training; more regularises more.
    vocabulary_size : int, default=8000
        The most pieces of words in the vocabulary.
    loss : {"squared", "absolute", "huber", "quantile", "poisson"}, default="squared"
        What is minimised. "absolute" gives medians, "quantile" the quantile named below, "poisson" the rate of counts;
        "absolute" and "huber" mind outliers less.
    quantile : float, default=0.5
        Level of the "quantile" loss.
    training : Training, optional
        Settings of gradient descent: optimiser, learning rate, epochs, batch size.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    target_mean_, target_scale_ : ndarray of shape (n_outputs,)
        What turns the standardised output into targets.
    module_ : HeadedNetwork
        The network (``bert``) and its head: tokens (b, t) and lengths (b,) to standardised targets (b, n_outputs).
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean loss of standardised targets, by default half the squared error; O(t^2 d + t d^2) per text and layer.
    ``BERTRegressor.from_transformers`` reads a ``BertForSequenceClassification`` of problem type "regression".

    References
    ----------
    .. [1] J. Devlin, M.-W. Chang, K. Lee, K. Toutanova (2019). BERT: pre-training of deep bidirectional transformers
       for language understanding. NAACL, section 4.1.

    Examples
    --------
    >>> from corollary import BERTRegressor, Training
    >>> texts = ["warm sun", "cold snow", "sun and sea", "snow and ice"] * 6
    >>> plan = Training(40, learning_rate=0.01, batch_size=8)
    >>> model = BERTRegressor(1, width=16, n_heads=2, training=plan, random_state=0)
    >>> sun, snow = model.fit(texts, [30.0, -10.0, 30.0, -10.0] * 6).predict(["warm sun", "cold snow"])
    >>> bool(sun > 10 > snow)
    True
    """

    _architecture, _task = "BertForSequenceClassification", "regression"
    _multi_output = True

    _parameter_constraints = {
        **BaseHead._parameter_constraints,
        "loss": [StrOptions(set(REGRESSION))],
        "quantile": [Interval(Real, 0, 1, closed="neither")],
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
        loss="squared",
        quantile=0.5,
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
        self.loss = loss
        self.quantile = quantile

    def _measure(self, data: Data) -> None:
        self._prepare(data.X)
        self._measure_targets(data)

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._ragged(self._framed(data.X)), *self._supervision(data))

    def _predict(self, X: list[str]) -> np.ndarray:
        return self._unscaled(np.stack(self._evaluate(self._framed(X), self.module_)))

    def _labelled(self, config: dict[str, Any]) -> None:
        problem = config.get("problem_type") or ("regression" if self.n_outputs_ == 1 else "classification")
        if problem != "regression":
            must = "the head must be one for regression"
            raise value("BERTRegressor", must, f"one for {problem}", "Use BERTClassifier.")
        self.target_ndim_ = 1 if self.n_outputs_ == 1 else 2
        self.target_mean_, self.target_scale_ = np.zeros(self.n_outputs_), np.ones(self.n_outputs_)
