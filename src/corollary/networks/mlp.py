r"""The multi-layer perceptron.

With activations :math:`a^0 = x` and widths :math:`d_0, \dots, d_L`, layer :math:`\ell` computes

.. math::
    z^\ell = a^{\ell-1} W_\ell^\top + b_\ell, \qquad a^\ell = \phi(z^\ell), \tag{1}

the last without :math:`\phi`. For a loss :math:`\mathcal L` the errors
:math:`\delta^\ell = \partial \mathcal L / \partial z^\ell` obey

.. math::
    \delta^{\ell-1} = (\delta^\ell W_\ell) \odot \phi'(z^{\ell-1}), \qquad
    \nabla_{W_\ell} = (\delta^\ell)^\top a^{\ell-1}, \qquad
    \nabla_{b_\ell} = \textstyle\sum_n \delta^\ell_n, \tag{2}

and for the mean cross-entropy of a softmax, as for half the mean squared error of a linear output,
:math:`\delta^L = (\hat y - y) / n` (3). A small network spends most of its time in bookkeeping, so where
the layers are plain, (2) is computed as it stands, in place; otherwise by automatic differentiation.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor, nn

from corollary.base import Data
from corollary.engine.batches import Batch
from corollary.engine.sources import batches_of
from corollary.engine.training import Training
from corollary.errors import value
from corollary.gradient import GradientClassifier, GradientRegressor, GradientTrained
from corollary.losses import REGRESSION, shares
from corollary.nn.activations import ACTIVATIONS, ALIASES, activation
from corollary.nn.mlp import MLP
from corollary.nn.normalisation import NORMS
from corollary.shapes import Array, Count, Dtype, List, Maybe

__all__ = ["MLP", "MLPClassifier", "MLPRegressor"]


# --- equations 2 and 3, for plain layers -----------------------------------------------------------------

# phi and phi' as functions of the activation a = phi(z), in place where they can be.
PLAIN = {
    nn.ReLU: (torch.relu_, lambda d, a: torch.ops.aten.threshold_backward(d, a, 0)),
    nn.Tanh: (torch.tanh_, lambda d, a: torch.ops.aten.tanh_backward(d, a)),
    nn.Sigmoid: (torch.sigmoid_, lambda d, a: torch.ops.aten.sigmoid_backward(d, a)),
    nn.Identity: (lambda z: z, lambda d, a: d),
}


class Backpropagation:
    """Write the gradients of equation (2) into a plain network's parameters.

    ``output_error(z, y, weight)`` returns the loss and the error of the last layer, equation (3).
    """

    def __init__(self, output_error: Any) -> None:
        self.output_error = output_error
        self.module: nn.Module | None = None

    def _attach(self, module: nn.Sequential) -> None:
        """Keep references to the layers: in a small network looking them up for every batch would cost time."""
        layers = list(module.children())
        self.module = module
        self.phi, self.derivative = PLAIN[type(layers[1])] if len(layers) > 1 else PLAIN[nn.Identity]
        self.layers = [(layer.weight, layer.weight.T, layer.bias) for layer in layers[::2]]
        self.gradients = [(layer.weight.grad, layer.bias.grad) for layer in layers[::2]]

    @torch.no_grad()
    def __call__(self, module: nn.Sequential, x: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """Compute loss and gradients for one batch; return the loss."""
        if self.module is not module:
            self._attach(module)
        activations = [x]
        for _, WT, b in self.layers[:-1]:
            activations.append(self.phi(torch.addmm(b, activations[-1], WT)))
        _, WT, b = self.layers[-1]
        loss, delta = self.output_error(torch.addmm(b, activations[-1], WT), y, weight)
        for (W, _, _), (dW, db), a in zip(
            reversed(self.layers), reversed(self.gradients), reversed(activations)
        ):
            torch.mm(delta.T, a, out=dW)
            torch.sum(delta, 0, out=db)
            if a is not x:
                delta = self.derivative(torch.mm(delta, W), a)
        return loss

    def on(self, module: nn.Sequential, batch: Batch) -> Tensor:
        """Compute loss and gradients for a batch of the engine."""
        return self(module, batch.inputs[0], batch.target, batch.weight)


def softmax_error(z: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the weighted mean cross-entropy and its derivative by the logits, eq. 3."""
    log_p = torch.log_softmax(z, 1)
    picked = log_p.gather(1, y[:, None])[:, 0]
    w = shares(weight) if weight is not None else None
    loss = -(picked.mean() if w is None else picked @ w)
    delta = log_p.exp_()
    delta.scatter_add_(1, y[:, None], torch.full_like(delta[:, :1], -1.0))
    return loss, delta.div_(len(y)) if w is None else delta.mul_(w[:, None])


def squared_error(z: Tensor, y: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return half the weighted mean squared error and its derivative by the output, eq. 3."""
    delta = z - y
    w = shares(weight) if weight is not None else torch.full_like(y[:, 0], 1 / len(y))
    loss = 0.5 * (delta.square().sum(1) @ w)
    return loss, delta.mul_(w[:, None])


# --- estimators ------------------------------------------------------------------------------------------


class _BaseMLP(GradientTrained):
    _reads_sources = True
    _parameter_constraints = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions({*ACTIVATIONS, *ALIASES})],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "norm": [None, StrOptions(set(NORMS))],
        "residual": ["boolean"],
        "random_state": ["random_state"],
    }
    _fitted = {
        "dtype_": Dtype(),
        "n_outputs_": Count(1),
        "n_samples_": Maybe(Count()),
        "coefs_": List(Array(None, None)),
        "intercepts_": List(Array(None)),
    }

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        *,
        activation="relu",
        dropout=0.0,
        norm=None,
        residual=False,
        training=None,
        random_state=None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.dropout = dropout
        self.norm = norm
        self.residual = residual
        self.training = training
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"hidden_layer_sizes": (8,), "training": Training(epochs=60, learning_rate=1e-2)}

    @property
    def _training_defaults(self) -> dict[str, Any]:
        return self._perceptron_defaults()

    def _module(self) -> MLP:
        widths = (self.n_features_in_, *np.atleast_1d(self.hidden_layer_sizes).tolist(), self.n_outputs_)
        options = {"dropout": self.dropout, "norm": self.norm, "residual": self.residual}
        module = MLP(widths, self.activation, **options)
        for layer in module.modules():  # as scikit-learn starts: wider than torch does, off the ground sooner
            if isinstance(layer, nn.Linear) and layer.weight.is_leaf:  # not one that is normalised
                nn.init.xavier_uniform_(layer.weight)
        return module.to(getattr(torch, self.dtype_))

    def _measure(self, data: Data) -> None:
        sizes = np.atleast_1d(self.hidden_layer_sizes)
        if sizes.size and sizes.min() < 1:
            raise value(type(self).__name__, "hidden_layer_sizes must be positive", tuple(sizes.tolist()))
        self.dtype_ = str(data.X.dtype)
        self.n_samples_ = len(data.X) if isinstance(data.X, np.ndarray) else 0

    def _batches(self, data: Data) -> Any:
        return batches_of(data.X.astype(self.dtype_, copy=False), *self._supervision(data))

    def _backpropagation(self, error: Any) -> Any:
        """Return the explicit backward pass, equations 2 and 3, if all layers are plain; otherwise None."""
        plain = type(activation(self.activation)) in PLAIN
        plain = plain and not (self.dropout or self.norm or self.residual)
        return Backpropagation(error).on if plain else None

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        linear = [layer for layer in self.module_.modules() if isinstance(layer, nn.Linear)]
        self.coefs_ = [
            layer.weight.detach().numpy(force=True).T for layer in linear if layer.bias is not None
        ]
        self.intercepts_ = [
            layer.bias.detach().numpy(force=True) for layer in linear if layer.bias is not None
        ]


class MLPClassifier(GradientClassifier, _BaseMLP):
    """Classify rows with a multi-layer perceptron.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(100,)
        Widths of the hidden layers. Wider and deeper fit more, and need more data.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    dropout : float, default=0.0
        Share of hidden units dropped at random while training; more regularises more.
    norm : {None, "batch", "layer", "weight"}, default=None
        Normalisation before each activation, or of the weights. "batch" normalises a batch of one row with
        its running statistics.
    residual : bool, default=False
        Whether each hidden layer adds to its input, which lets deep stacks train.
    class_weight : dict or "balanced", optional
        Weights of the classes.
    training : Training, optional
        Settings of gradient descent. By default at most 100 epochs in batches of 32; of 500 rows or more in memory a
        tenth is held out, and ten epochs without an improvement there are the end.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    module_ : torch.nn.Module
        The trained network; its output are logits.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases of the linear layers.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean cross-entropy. An epoch costs O(n * number of weights).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(MLPClassifier(random_state=0).fit(X, y).score(X, y) > 0.9)
    True
    """

    _several_labels = True
    _parameter_constraints = {
        **_BaseMLP._parameter_constraints,
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        *,
        activation="relu",
        dropout=0.0,
        norm=None,
        residual=False,
        class_weight=None,
        training=None,
        random_state=None,
    ):
        super().__init__(
            hidden_layer_sizes,
            activation=activation,
            dropout=dropout,
            norm=norm,
            residual=residual,
            training=training,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self.n_outputs_ = len(self.classes_)

    def _explicit(self, data: Data) -> Any:
        return self._backpropagation(softmax_error) if data.y.ndim == 1 else None

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self._forward(X, lambda x: self._chances(self.module_(x)))


class MLPRegressor(GradientRegressor, _BaseMLP):
    """Predict numbers with a multi-layer perceptron.

    Targets are standardised while training, so that one learning rate suits any scale.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(100,)
        Widths of the hidden layers. Wider and deeper fit more, and need more data.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    dropout : float, default=0.0
        Share of hidden units dropped at random while training; more regularises more.
    norm : {None, "batch", "layer", "weight"}, default=None
        Normalisation before each activation, or of the weights. "batch" normalises a batch of one row with
        its running statistics.
    residual : bool, default=False
        Whether each hidden layer adds to its input, which lets deep stacks train.
    loss : {"squared", "absolute", "huber", "quantile", "poisson"}, default="squared"
        What is minimised. "absolute" gives medians, "quantile" the quantile named below, "poisson" the rate of counts;
        "absolute" and "huber" mind outliers less.
    quantile : float, default=0.5
        Level of the "quantile" loss.
    training : Training, optional
        Settings of gradient descent. By default at most 100 epochs in batches of 32; of 500 rows or more in memory a
        tenth is held out, and ten epochs without an improvement there are the end.
    random_state : int or RandomState, optional
        Seed for initial weights, order of samples and dropout.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained network; its output is standardised, or for "poisson" the logarithm of the rate.
    target_mean_, target_scale_ : ndarray of shape (n_outputs,)
        What turns its output into targets.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds of every epoch.

    Notes
    -----
    Minimises the mean loss of the standardised targets, by default half the squared error.
    An epoch costs O(n * number of weights).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from corollary import MLPRegressor, Training
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MLPRegressor((32,), training=Training(learning_rate=0.01), random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.4)
    True
    """

    _multi_output = True
    _parameter_constraints = {
        **_BaseMLP._parameter_constraints,
        "loss": [StrOptions(set(REGRESSION))],
        "quantile": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        *,
        activation="relu",
        dropout=0.0,
        norm=None,
        residual=False,
        loss="squared",
        quantile=0.5,
        training=None,
        random_state=None,
    ):
        super().__init__(
            hidden_layer_sizes,
            activation=activation,
            dropout=dropout,
            norm=norm,
            residual=residual,
            training=training,
            random_state=random_state,
        )
        self.loss = loss
        self.quantile = quantile

    def _measure(self, data: Data) -> None:
        super()._measure(data)
        self._measure_targets(data)

    def _explicit(self, data: Data) -> Any:
        return self._backpropagation(squared_error) if self.loss == "squared" else None

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return self._unscaled(self._forward(X)).astype(X.dtype)
