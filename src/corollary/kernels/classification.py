"""Classification with infinitely wide networks, as in :mod:`corollary.kernels.base`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from torch import Tensor

from corollary.base import Classifier, Data
from corollary.engine.learner import State
from corollary.kernels.base import Wide
from corollary.shapes import Number

__all__ = ["NNGPClassifier", "NTKClassifier"]


class _WideClassifier(Classifier, Wide):
    _fitted = {"temperature_": Number(0)}

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_layers": 1}

    def _targets(self, data: Data) -> np.ndarray:
        y = np.eye(len(self.classes_))[data.y]
        self.target_mean_, self.target_scale_ = y.mean(0), np.ones(y.shape[1])
        return y - self.target_mean_

    def _keep(self, found: State, y: Tensor) -> None:
        """Choose the temperature by the likelihood of each label given all others."""
        scores, labels = (part.numpy() + self.target_mean_ for part in (found["left_out"], y))
        labels = labels.argmax(1)

        def loss(log_t: float) -> float:
            log_p = log_softmax(scores / math.exp(log_t), axis=1)
            return -float(log_p[np.arange(len(labels)), labels].mean())

        self.temperature_ = math.exp(minimize_scalar(loss, bounds=(-6, 3), method="bounded").x)

    def _differentiable(self) -> tuple[Any, Tensor]:
        """Return the map from samples to logits, which attacks follow, and a tensor of the type it takes."""
        kept, coef, mean = (
            self._kept(),
            torch.from_numpy(self.dual_coef_),
            torch.from_numpy(self.target_mean_),
        )
        return lambda x: (self._kernel(x, kept) @ coef + mean) / self.temperature_, coef

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        return softmax(self._outputs(X) / self.temperature_, axis=1).astype(self.dtype_)  # type: ignore[no-any-return]


class NNGPClassifier(_WideClassifier):
    """Classify with the Gaussian process of an infinitely wide random network (NNGP), by regression on one-hot targets.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Standard deviation of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Standard deviation of the biases.
    residual : bool, default=False
        Whether each hidden layer after the first adds to its input.
    kernel_size : int, optional
        For images: side, odd, of convolutions in the hidden layers.
    alpha : float, default=0.01
        Added to the diagonal; more smooths more.
    solver : {"auto", "cholesky", "cg", "nystrom"}, default="auto"
        A factorisation, conjugate gradients (above 8000 samples by default), or landmarks.
    n_components : int, default=1000
        Landmarks, which also precondition conjugate gradients.
    max_iter : int, default=200
        Most steps of conjugate gradients.
    tol : float, default=1e-6
        Conjugate gradients stop at this relative residual.
    random_state : int or RandomState, optional
        Seed for the landmarks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    temperature_ : float
        What outputs are divided by before the softmax, chosen by leave-one-out likelihood.
    jitter_ : float
        What had to be added to the diagonal besides alpha; a warning says so.
    n_iter_ : int
        Steps.

    Notes
    -----
    O(n³) with a factorisation, O(n²) a step of conjugate gradients, O(n m²) for m landmarks.

    References
    ----------
    .. [1] J. Lee, Y. Bahri, R. Novak, S. Schoenholz, J. Pennington, J. Sohl-Dickstein (2018). Deep neural networks as
       Gaussian processes. ICLR.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import NNGPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NNGPClassifier(n_layers=1).fit(X[:500] / 16, y[:500])
    >>> bool(model.score(X[500:] / 16, y[500:]) > 0.93)
    True
    """

    _kernel_name = "nngp"


class NTKClassifier(_WideClassifier):
    """Classify with the neural tangent kernel: an infinitely wide network trained on one-hot targets by gradient flow.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Standard deviation of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Standard deviation of the biases.
    residual : bool, default=False
        Whether each hidden layer after the first adds to its input.
    kernel_size : int, optional
        For images: side, odd, of convolutions in the hidden layers.
    alpha : float, default=0.01
        Ridge; more smooths more. 0 is the limit of gradient flow.
    solver : {"auto", "cholesky", "cg", "nystrom"}, default="auto"
        A factorisation, conjugate gradients (above 8000 samples by default), or landmarks.
    n_components : int, default=1000
        Landmarks, which also precondition conjugate gradients.
    max_iter : int, default=200
        Most steps of conjugate gradients.
    tol : float, default=1e-6
        Conjugate gradients stop at this relative residual.
    random_state : int or RandomState, optional
        Seed for the landmarks.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    temperature_ : float
        What outputs are divided by before the softmax, chosen by leave-one-out likelihood.
    jitter_ : float
        What had to be added to the diagonal besides alpha; a warning says so.
    n_iter_ : int
        Steps.

    Notes
    -----
    O(n³) with a factorisation, O(n²) a step of conjugate gradients, O(n m²) for m landmarks.

    References
    ----------
    .. [1] S. Arora, S. Du, W. Hu, Z. Li, R. Salakhutdinov, R. Wang (2019). On exact computation with an infinitely wide
       neural net. NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import NTKClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NTKClassifier(n_layers=1).fit(X[:500] / 16, y[:500])
    >>> bool(model.score(X[500:] / 16, y[500:]) > 0.93)
    True
    """

    _kernel_name = "ntk"
