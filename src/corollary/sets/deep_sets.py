r"""Classes and numbers of sets.

:math:`f(X) = \rho(\sum_{x \in X} \phi(x))` with two small networks, :class:`corollary.nn.DeepSets`, on standardised
features; a set's result does not depend on the order of its elements, nor on what it is batched with.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Classifier, Data, Regressor, as_tensor
from corollary.engine.ragged import RaggedBatches
from corollary.engine.training import Training
from corollary.errors import value
from corollary.nn.deep_sets import POOLINGS, DeepSets
from corollary.sequences.network import Standardise
from corollary.sets.common import BaseSets

__all__ = ["DeepSetsClassifier", "DeepSetsRegressor"]


class _Scaled(nn.Module):
    """Standardise elements, then read the set."""

    def __init__(self, net: DeepSets, width: int) -> None:
        super().__init__()
        self.inputs = Standardise(width)
        self.net = net

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.net(self.inputs(x), lengths)


class _BaseDeepSets(BaseSets):
    _checks = {"min_size": 0}
    _parameter_constraints = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "pooling": [StrOptions(set(POOLINGS))],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self, hidden_layer_sizes=(64, 64), *, pooling="sum", dropout=0.0, training=None, random_state=None
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.pooling = pooling
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
        net = DeepSets(
            self.n_features_in_, self.n_outputs_, sizes, pooling=self.pooling, dropout=self.dropout
        )
        module = _Scaled(net, self.n_features_in_).to(getattr(torch, self.dtype_))
        module.inputs.mean.copy_(torch.as_tensor(self.feature_mean_))
        module.inputs.scale.copy_(torch.as_tensor(self.feature_scale_))
        return module

    def _batches(self, X: list[np.ndarray], y: np.ndarray) -> RaggedBatches:
        self._scale(X)
        x = self._ragged(X)
        return RaggedBatches(x, as_tensor(y).to(x.flat.device))


class DeepSetsClassifier(Classifier, _BaseDeepSets):
    """Classify sets of any size.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(64, 64)
        Widths of the network that reads each element. Wider and deeper fit more.
    pooling : {"sum", "mean", "max"}, default="sum"
        How elements are joined. Sums can count; means and maxima cannot.
    dropout : float, default=0.0
        Share of activations dropped after pooling while training; more regularises more.
    training : Training, optional
        How to descend.
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

    def _learner(self, data: Data) -> Any:
        self.n_outputs_ = len(self.classes_)
        return self._descend(_cross_entropy, batches=self._batches(data.X, data.y), stratify=data.y)

    def _predict_proba(self, X: list[np.ndarray]) -> np.ndarray:
        return np.stack(self._evaluate(X, lambda x, lengths: self.module_(x, lengths).softmax(1)))


class DeepSetsRegressor(Regressor, _BaseDeepSets):
    """Predict numbers from sets of any size.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(64, 64)
        Widths of the network that reads each element. Wider and deeper fit more.
    pooling : {"sum", "mean", "max"}, default="sum"
        How elements are joined. Sums can count; means and maxima cannot.
    dropout : float, default=0.0
        Share of activations dropped after pooling while training; more regularises more.
    training : Training, optional
        How to descend.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network; its output is standardised.
    target_mean_, target_scale_ : float
        What turns its output into targets.
    n_features_in_ : int
        Width of an element.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises half the mean squared error of the standardised targets. A set may be empty: shape (0, d).

    Examples
    --------
    >>> from corollary import DeepSetsRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.integers(0, 10, size=(m, 1)).astype(float) for m in rng.integers(1, 9, size=200)]
    >>> y = [x.sum() for x in X]
    >>> bool(DeepSetsRegressor(random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    def _learner(self, data: Data) -> Any:
        self.n_outputs_ = 1
        y = np.asarray(data.y, dtype=np.float64)
        self.target_mean_, self.target_scale_ = float(y.mean()), float(y.std()) or 1.0
        scaled = ((y - self.target_mean_) / self.target_scale_).astype(self.dtype_)
        return self._descend(_half_squared, batches=self._batches(data.X, scaled))

    def _predict(self, X: list[np.ndarray]) -> np.ndarray:
        out = np.stack(self._evaluate(X, self.module_))[:, 0]
        return out * np.asarray(self.target_scale_, out.dtype) + np.asarray(self.target_mean_, out.dtype)


def _cross_entropy(module: nn.Module, x: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(module(x, lengths), y)


def _half_squared(module: nn.Module, x: Tensor, lengths: Tensor, y: Tensor) -> Tensor:
    return 0.5 * (module(x, lengths)[:, 0] - y).square().mean()
