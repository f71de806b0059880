"""Regression with infinitely wide networks, as in :mod:`corollary.kernels.base`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from corollary import errors
from corollary.base import Data, Regressor
from corollary.engine.learner import State
from corollary.kernels import solvers
from corollary.kernels.base import Wide
from corollary.shapes import Count, Maybe, Number
from corollary.theory.infinite import ROOT_TWO
from corollary.validation import as_given, as_tensor, finite, to_numpy

__all__ = ["NNGP", "NTKRegressor"]


class _WideRegressor(Regressor, Wide):
    _multi_output = True
    _parameter_constraints = {**Wide._parameter_constraints, "normalize_y": ["boolean"]}
    _fitted = {"target_ndim_": Count(1, 3)}

    def __init__(
        self,
        n_layers=2,
        *,
        activation="relu",
        weight_std=ROOT_TWO,
        bias_std=0.1,
        residual=False,
        kernel_size=None,
        alpha=0.1,
        normalize_y=True,
        solver="auto",
        n_components=1000,
        max_iter=200,
        tol=1e-6,
        random_state=None,
    ):
        super().__init__(
            n_layers,
            activation=activation,
            weight_std=weight_std,
            bias_std=bias_std,
            residual=residual,
            kernel_size=kernel_size,
            alpha=alpha,
            solver=solver,
            n_components=n_components,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )
        self.normalize_y = normalize_y

    def _targets(self, data: Data) -> np.ndarray:
        y = np.asarray(data.y, np.float64).reshape(len(data.y), -1)
        self.target_ndim_ = data.y.ndim
        self.target_mean_, self.target_scale_ = np.zeros(y.shape[1]), np.ones(y.shape[1])
        if self.normalize_y:
            spread = y.std(0)
            self.target_mean_, self.target_scale_ = y.mean(0), np.where(spread > 0, spread, 1.0)
        return (y - self.target_mean_) / self.target_scale_  # type: ignore[no-any-return]

    def _shaped(self, found: np.ndarray) -> np.ndarray:
        return (found[..., 0] if self.target_ndim_ == 1 else found).astype(self.dtype_)

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return self._shaped(self._outputs(X))

    def predict(self, X, return_std=False, return_cov=False):
        """Return the predicted targets; also their standard deviation, or the covariance (n, n) or (n, n, k), if asked."""
        if not (return_std or return_cov):
            return super().predict(X)
        checked = self._query(X)
        C = finite(self, self._covariance(checked))
        mean = as_given(X, finite(self, self._predict(checked)))
        if return_cov:
            return mean, as_given(X, self._shaped(C[..., None] * self.target_scale_**2))
        deviation = np.sqrt(np.diagonal(C).clip(min=0))
        return mean, as_given(X, self._shaped(deviation[:, None] * self.target_scale_))


class NNGP(_WideRegressor):
    """Gaussian process regression with the kernel (NNGP) of an infinitely wide random network.

    The prediction of Bayesian inference over all weights of the network, with its uncertainty, in closed form. Bring the
    inputs to about unit size: rows of mean square 1 are what the default spreads suit.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers. More make the kernel flatter in the angle between inputs.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Standard deviation of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Standard deviation of the biases; more makes functions more constant near zero.
    residual : bool, default=False
        Whether each hidden layer after the first adds to its input.
    kernel_size : int, optional
        For images: side, odd, of convolutions in the hidden layers.
    alpha : float, default=0.1
        Variance of the noise of the (normalised) targets; more smooths more.
    normalize_y : bool, default=True
        Whether targets are brought to mean 0 and variance 1.
    tune : bool, default=False
        Whether weight_std, bias_std and alpha are chosen by the largest log marginal likelihood, starting from those
        given; what is zero stays zero.
    solver : {"auto", "cholesky", "cg", "nystrom"}, default="auto"
        A factorisation, exact; conjugate gradients, for more samples than a matrix fits (above 8000 by default); or
        a low-rank approximation with ``n_components`` landmarks.
    n_components : int, default=1000
        Landmarks, which also precondition conjugate gradients.
    max_iter : int, default=200
        Most steps of conjugate gradients or of tuning.
    tol : float, default=1e-6
        Conjugate gradients stop at this relative residual, tuning at this relative gain.
    random_state : int or RandomState, optional
        Seed for the landmarks.

    Attributes
    ----------
    weight_std_, bias_std_, alpha_ : float
        The spreads and the noise that were used.
    log_marginal_likelihood_ : float or None
        Of the normalised targets, where a factorisation was made.
    jitter_ : float
        What had to be added to the diagonal besides alpha; a warning says so.
    X_fit_, dual_coef_ : ndarray of shape (n, n_features_in_) and (n, n_outputs)
        The samples, or landmarks, and what their kernel is multiplied by.
    n_iter_ : int
        Steps.

    Notes
    -----
    O(n³) with a factorisation, O(n²) a step of conjugate gradients, O(n m²) for m landmarks.

    References
    ----------
    .. [1] J. Lee, Y. Bahri, R. Novak, S. Schoenholz, J. Pennington, J. Sohl-Dickstein (2018). Deep neural networks as
       Gaussian processes. ICLR.
    .. [2] Y. Cho, L. Saul (2009). Kernel methods for deep learning. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import NNGP
    >>> X = np.linspace(-3, 3, 30)[:, None]
    >>> model = NNGP(activation="erf", alpha=1e-3).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[0.5], [9.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(0.5)) < 0.05), bool(std[1] > 5 * std[0])
    (True, True)
    """

    _kernel_name = "nngp"
    _parameter_constraints = {**_WideRegressor._parameter_constraints, "tune": ["boolean"]}
    _fitted = {"log_marginal_likelihood_": Maybe(Number())}

    def __init__(
        self,
        n_layers=2,
        *,
        activation="relu",
        weight_std=ROOT_TWO,
        bias_std=0.1,
        residual=False,
        kernel_size=None,
        alpha=0.1,
        normalize_y=True,
        tune=False,
        solver="auto",
        n_components=1000,
        max_iter=200,
        tol=1e-6,
        random_state=None,
    ):
        super().__init__(
            n_layers,
            activation=activation,
            weight_std=weight_std,
            bias_std=bias_std,
            residual=residual,
            kernel_size=kernel_size,
            alpha=alpha,
            normalize_y=normalize_y,
            solver=solver,
            n_components=n_components,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
        )
        self.tune = tune

    def _plan(self, X: Tensor, y: Tensor) -> Any:
        if not self.tune:
            return super()._plan(X, y)
        if self.solver_ != "cholesky":
            do = "Tune on a part of the samples, then fit with what was found."
            raise errors.value(type(self).__name__, "tune needs solver='cholesky'", repr(self.solver_), do)
        given = self._spreads()
        free = [name for name, size in given.items() if size > 0]

        def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
            if np.abs(theta).max() > 20:
                return -math.inf, np.zeros_like(theta)
            return self._evidence(X, y, free, theta)

        start = np.log([given[name] for name in free])
        learner = solvers.Ascent(objective, start, self.max_iter, self.tol)
        learner.free = free  # type: ignore[attr-defined]
        return learner

    def _tuned(self, learner: Any) -> State:
        """Take over the spreads that were found, and solve with them."""
        for name, found in zip(learner.free, np.exp(learner.x)):
            setattr(self, f"{name}_", float(found))
        return self._factorised(*learner.data)

    def _spreads(self) -> dict[str, float]:
        return {"weight_std": self.weight_std_, "bias_std": self.bias_std_, "alpha": self.alpha_}

    def _evidence(self, X: Tensor, y: Tensor, free: list[str], theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log marginal likelihood and its gradient where the logarithms of the free spreads are theta."""

        def covariance(found: Tensor) -> Tensor:
            spreads: dict[str, Any] = {**self._spreads(), **dict(zip(free, found))}
            noise = spreads.pop("alpha")
            return self._kernel(X, **spreads) + noise * torch.eye(len(X), dtype=X.dtype)

        return solvers.evidence_and_gradient(covariance, theta, y, type(self).__name__)

    def log_marginal_likelihood(self, X: Any, y: Any, gradient: bool = False) -> Any:
        """Return the log marginal likelihood of targets under the fitted spreads, with the fitted scale of the targets.

        Parameters
        ----------
        X, y : arrays of shape (n, ...) and (n,) or (n, k)
            Samples and targets.
        gradient : bool, default=False
            Whether to return also a dict of its derivatives by the logarithms of weight_std, bias_std and alpha.
        """
        check_is_fitted(self)
        x = as_tensor(np.asarray(self._query(X), np.float64))
        y = (np.asarray(to_numpy(y), np.float64).reshape(len(x), -1) - self.target_mean_) / self.target_scale_
        free = [name for name, size in self._spreads().items() if size > 0]
        theta = np.log([self._spreads()[name] for name in free])
        found, slopes = self._evidence(x, torch.from_numpy(y), free, theta)
        return (found, dict(zip(free, slopes.tolist()))) if gradient else found

    def _keep(self, found: State, y: Tensor) -> None:
        self.log_marginal_likelihood_ = found.get("evidence")


class NTKRegressor(_WideRegressor):
    """Regression with the neural tangent kernel: an infinitely wide network trained to convergence by gradient flow.

    Bring the inputs to about unit size: rows of mean square 1 are what the default spreads suit.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers. More make the kernel flatter in the angle between inputs.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Standard deviation of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Standard deviation of the biases; more makes functions more constant near zero.
    residual : bool, default=False
        Whether each hidden layer after the first adds to its input.
    kernel_size : int, optional
        For images: side, odd, of convolutions in the hidden layers.
    alpha : float, default=0.1
        Ridge; more smooths more. 0 is the limit of gradient flow, which fits the training targets exactly.
    normalize_y : bool, default=True
        Whether targets are brought to mean 0 and variance 1.
    solver : {"auto", "cholesky", "cg", "nystrom"}, default="auto"
        A factorisation, exact; conjugate gradients, for more samples than a matrix fits (above 8000 by default); or
        a low-rank approximation with ``n_components`` landmarks.
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
    jitter_ : float
        What had to be added to the diagonal besides alpha; a warning says so.
    X_fit_, dual_coef_ : ndarray of shape (n, n_features_in_) and (n, n_outputs)
        The samples, or landmarks, and what their kernel is multiplied by.
    n_iter_ : int
        Steps.

    Notes
    -----
    O(n³) with a factorisation, O(n²) a step of conjugate gradients, O(n m²) for m landmarks. The standard deviations of
    ``predict`` are over the random start of the network, equation (2), and need the factorisation. The notes' 001
    calls the limit kernel ridge regression; it has no ridge (erratum E85).

    References
    ----------
    .. [1] A. Jacot, F. Gabriel, C. Hongler (2018). Neural tangent kernel: convergence and generalization in neural
       networks. NeurIPS.
    .. [2] J. Lee et al. (2019). Wide neural networks of any depth evolve as linear models under gradient descent. NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.preprocessing import scale
    >>> from corollary import NTKRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = NTKRegressor(n_layers=1, alpha=5.0).fit(scale(X[:300]), y[:300])
    >>> bool(model.score(scale(X[300:]), y[300:]) > 0.4)
    True
    """

    _kernel_name = "ntk"

    def _covariance(self, X: np.ndarray) -> np.ndarray:
        if self.solver_ != "cholesky":
            must = "the spread over starts needs solver='cholesky'"
            raise errors.value(type(self).__name__, must, repr(self.solver_))
        x, kept = as_tensor(np.asarray(X, np.float64)), self._kept()
        cross = self._kernels(kept, x)
        a = solvers.solve(torch.from_numpy(self.factor_), cross.ntk)
        inside = self._kernels(kept).nngp @ a - cross.nngp
        return (self._kernels(x).nngp + a.T @ inside - cross.nngp.T @ a).numpy()  # type: ignore[no-any-return]
