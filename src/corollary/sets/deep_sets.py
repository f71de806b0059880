r"""Deep sets: classification and regression of sets by permutation-invariant networks.

:math:`f(X) = \rho(\sum_{x \in X} \phi(x) / \bar m,\; \max_{x \in X} \mathrm{ReLU}(\phi(x)))` with two small networks,
:class:`corollary.nn.DeepSets`, and the usual size :math:`\bar m` of a set; a set's result does not depend on the order of its
elements, nor on what it is batched with. Elements are seen as they are, standardised over all sets, and relative to their set:
minus its mean, divided by its spread (:mod:`corollary.sets.places` says when only that).
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.engine.ragged import RaggedBatches
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientClassifier, GradientRegressor
from corollary.losses import REGRESSION
from corollary.nn.deep_sets import POOLINGS, DeepSets, set_pool
from corollary.sequences.network import Standardise
from corollary.sets.common import BaseSets
from corollary.sets.places import what_to_see
from corollary.shapes import Number, Text

__all__ = ["DeepSetsClassifier", "DeepSetsRegressor"]


def relative(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return elements (b, m, d) minus the mean of their set, divided by its spread; 0 for a single element."""
    centred = x - set_pool(x, lengths, "mean")[:, None]
    spread = set_pool(centred.square().mean(2, keepdim=True), lengths, "mean")[:, None].sqrt()
    return centred / spread.clamp_min(1e-6)


class _Scaled(nn.Module):
    """Standardise elements, by all sets or by their own or both, then read the set."""

    def __init__(self, net: DeepSets, width: int, seen: str) -> None:
        super().__init__()
        self.inputs = Standardise(width)
        self.seen = seen
        self.net = net

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        h = self.inputs(x)
        views = {"absolute": h} if self.seen == "absolute" else {"relative": relative(h, lengths)}
        if self.seen == "both":
            views = {"absolute": h, **views}
        return self.net(torch.cat([*views.values()], 2), lengths)


class _BaseDeepSets(BaseSets):
    _checks = {"min_size": 0}
    _fitted = {"seen_": Text(("absolute", "relative", "both")), "mean_size_": Number(1)}
    _start = (*BaseSets._start, "seen_", "mean_size_")
    _parameter_constraints = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "pooling": [StrOptions({*POOLINGS, "both"})],
        "relative": ["boolean", StrOptions({"auto", "only"})],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        hidden_layer_sizes=(64, 64),
        *,
        pooling="both",
        relative="auto",
        dropout=0.0,
        training=None,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.pooling = pooling
        self.relative = relative
        self.dropout = dropout
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"hidden_layer_sizes": (8,), "training": Training(epochs=3)}

    def _module(self) -> _Scaled:
        sizes = np.atleast_1d(self.hidden_layer_sizes).tolist()
        if not sizes or min(sizes) < 1:
            raise value(
                type(self).__name__, "hidden_layer_sizes must be positive, one at least", tuple(sizes)
            )
        d = self.n_features_in_
        net = DeepSets(
            d * (1 + (self.seen_ == "both")),
            self.n_outputs_,
            sizes,
            pooling=self.pooling,
            dropout=self.dropout,
            size=self.mean_size_,
        )
        module = _Scaled(net, d, self.seen_).to(getattr(torch, self.dtype_))
        module.inputs.mean.copy_(torch.as_tensor(self.feature_mean_))
        module.inputs.scale.copy_(torch.as_tensor(self.feature_scale_))
        return module

    def _measure(self, data: Data) -> None:
        self._scale(data.X)
        self.mean_size_ = max(1.0, float(np.mean([len(part) for part in data.X])))
        self.seen_ = {True: "both", False: "absolute", "only": "relative", "auto": ""}[self.relative]
        self.seen_ = self.seen_ or what_to_see(data.X, data.y)

    def _batches(self, data: Data) -> RaggedBatches:
        return RaggedBatches(self._ragged(data.X), *self._supervision(data))


class DeepSetsClassifier(GradientClassifier, _BaseDeepSets):
    """Classify sets of any size with a permutation-invariant network.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(64, 64)
        Widths of the network that reads each element. Wider and deeper fit more.
    pooling : {"both", "sum", "mean", "max"}, default="both"
        How elements are joined. Sums can count, maxima see outlines; "both" are the two beside each other.
    relative : {"auto", "only"} or bool, default="auto"
        Whether an element is described relative to its set, minus the set's mean and divided by its spread, so that shapes
        anywhere and of any size are alike: beside what it is (True), or instead ("only"). "auto" is True, and "only"
        where sets are moved or scaled and the targets do not depend on it (:mod:`corollary.sets.places`).
    dropout : float, default=0.0
        Share of activations dropped after pooling while training; more regularises more.
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
    module_ : torch.nn.Module
        The trained network; called with padded sets and sizes it gives logits.
    n_features_in_ : int
        Width of an element.
    seen_ : {"absolute", "relative", "both"}
        How elements are described.
    mean_size_ : float
        What sums are divided by.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy. An epoch costs O(elements * number of weights). A set may be empty: shape (0, d).

    References
    ----------
    .. [1] M. Zaheer et al. (2017). Deep sets. NeurIPS.

    Examples
    --------
    >>> from corollary import DeepSetsClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(m, 2)) for m in rng.integers(1, 9, size=100)]
    >>> y = [len(x) > 4 for x in X]
    >>> bool(DeepSetsClassifier(random_state=0).fit(X, y).score(X, y) > 0.7)
    True
    """

    _parameter_constraints = {
        **_BaseDeepSets._parameter_constraints,
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

    def __init__(
        self,
        hidden_layer_sizes=(64, 64),
        *,
        pooling="both",
        relative="auto",
        dropout=0.0,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        super().__init__(
            hidden_layer_sizes,
            pooling=pooling,
            relative=relative,
            dropout=dropout,
            training=training,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self.n_outputs_ = len(self.classes_)

    def _predict_proba(self, X: list[np.ndarray]) -> np.ndarray:
        return np.stack(self._evaluate(X, lambda x, lengths: self.module_(x, lengths).softmax(1)))


class DeepSetsRegressor(GradientRegressor, _BaseDeepSets):
    """Predict numbers from sets of any size with a permutation-invariant network.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(64, 64)
        Widths of the network that reads each element. Wider and deeper fit more.
    pooling : {"both", "sum", "mean", "max"}, default="both"
        How elements are joined. Sums can count, maxima see outlines; "both" are the two beside each other.
    relative : {"auto", "only"} or bool, default="auto"
        Whether an element is described relative to its set, minus the set's mean and divided by its spread, so that shapes
        anywhere and of any size are alike: beside what it is (True), or instead ("only"). "auto" is True, and "only"
        where sets are moved or scaled and the targets do not depend on it (:mod:`corollary.sets.places`).
    dropout : float, default=0.0
        Share of activations dropped after pooling while training; more regularises more.
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
    module_ : torch.nn.Module
        The trained network; its output is standardised.
    target_mean_, target_scale_ : ndarray of shape (1,)
        What turns its output into targets.
    n_features_in_ : int
        Width of an element.
    seen_ : {"absolute", "relative", "both"}
        How elements are described.
    mean_size_ : float
        What sums are divided by.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean loss of the standardised targets, by default half the squared error. A set may be empty: shape (0, d).

    Examples
    --------
    >>> from corollary import DeepSetsRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.integers(0, 10, size=(m, 1)).astype(float) for m in rng.integers(1, 9, size=200)]
    >>> y = [x.sum() for x in X]
    >>> bool(DeepSetsRegressor(random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    _parameter_constraints = {
        **_BaseDeepSets._parameter_constraints,
        "loss": [StrOptions(set(REGRESSION))],
        "quantile": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        hidden_layer_sizes=(64, 64),
        *,
        pooling="both",
        relative="auto",
        dropout=0.0,
        loss="squared",
        quantile=0.5,
        training=None,
        random_state=None,
    ):
        super().__init__(
            hidden_layer_sizes,
            pooling=pooling,
            relative=relative,
            dropout=dropout,
            training=training,
            random_state=random_state,
        )
        self.loss = loss
        self.quantile = quantile

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self._measure_targets(data)

    def _predict(self, X: list[np.ndarray]) -> np.ndarray:
        return self._unscaled(np.stack(self._evaluate(X, self.module_)))
