r"""Regression and classification with infinitely wide networks.

A random network of infinite width is a Gaussian process with the NNGP kernel K; conditioning it on data is Bayesian
inference over all of its weights. Training every weight by gradient flow instead ends, on average over the start, at the
regression with the tangent kernel :math:`\Theta` without ridge, :math:`f(x) = \Theta(x, X) \Theta^\dagger y` (1); over
starts it spreads with

.. math:: K(x, x) - 2 a^\top K(X, x) + a^\top K(X, X)\, a, \qquad a = \Theta^{-1} \Theta(X, x). \tag{2}

Both kernels are those of :mod:`corollary.theory.infinite`; both are solved with :math:`\alpha` on the diagonal, the variance
of the noise of the targets. For classes the targets are indicators, and probabilities the softmax of the outputs over a
temperature, which is chosen by the likelihood of each label given all others (leave-one-out).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from corollary import errors
from corollary.base import Classifier, Data, Estimator, Regressor
from corollary.border import as_given, finite, to_numpy
from corollary.data import kinds
from corollary.engine.learner import Once, State
from corollary.kernels import solvers
from corollary.shapes import Array, Count, Dtype, List, Maybe, Number, Text
from corollary.theory.infinite import ACTIVATIONS, MEMORY, ROOT_TWO, infinite_kernels

__all__ = ["NNGP", "NNGPClassifier", "NTKClassifier", "NTKRegressor"]

LARGE = 8000  # samples beyond which solver="auto" does not factorise: their matrix takes half a gigabyte


class _Wide(Estimator):
    """Kernel, solvers and files of all four; a subclass names its kernel and turns y into targets."""

    also: ClassVar[tuple[str, ...]] = ("image",)
    _kernel_name: ClassVar[str]  # a field of theory.infinite.Kernels
    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS) | {"leaky_relu"})],
        "weight_std": [Interval(Real, 0, None, closed="neither")],
        "bias_std": [Interval(Real, 0, None, closed="left")],
        "residual": ["boolean"],
        "kernel_size": [None, Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions({"auto", "cholesky", "cg", "nystrom"})],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "sample_shape_": List(Count(1)),
        "dtype_": Dtype(),
        "solver_": Text(("cholesky", "cg", "nystrom")),
        "weight_std_": Number(0),
        "bias_std_": Number(0),
        "alpha_": Number(0),
        "jitter_": Number(0),
        "n_outputs_": Count(1),
        "target_mean_": Array("n_outputs_"),
        "target_scale_": Array("n_outputs_"),
        "X_fit_": Array("kept", "n_features_in_"),
        "dual_coef_": Array("kept", "n_outputs_"),
        "factor_": Maybe(Array("kept", "kept")),
        "inner_": Maybe(Array("kept", "kept")),
    }

    def __init__(
        self,
        n_layers=2,
        *,
        activation="relu",
        weight_std=ROOT_TWO,
        bias_std=0.1,
        residual=False,
        kernel_size=None,
        alpha=0.01,
        solver="auto",
        n_components=1000,
        max_iter=200,
        tol=1e-6,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.activation = activation
        self.weight_std = weight_std
        self.bias_std = bias_std
        self.residual = residual
        self.kernel_size = kernel_size
        self.alpha = alpha
        self.solver = solver
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    # --- the kernel --------------------------------------------------------------------------------------

    def _kernels(self, A: Tensor, B: Tensor | None = None, **spreads: Any) -> Any:
        spreads = spreads or {
            "weight_std": getattr(self, "weight_std_", self.weight_std),
            "bias_std": getattr(self, "bias_std_", self.bias_std),
        }
        return infinite_kernels(
            A,
            B,
            n_layers=self.n_layers,
            activation=self.activation,
            residual=self.residual,
            kernel_size=self.kernel_size,
            **spreads,
        )

    def _kernel(self, A: Tensor, B: Tensor | None = None, **spreads: Any) -> Tensor:
        return getattr(self._kernels(A, B, **spreads), self._kernel_name)  # type: ignore[no-any-return]

    def kernel(self, A: Any, B: Any = None) -> np.ndarray:
        """Return the kernel of rows or images A (n, ...) and B (m, ...), by default A, with the fitted spreads if fitted."""
        checked = [self._as_samples(part) for part in (A, B) if part is not None]
        return self._kernel(*checked).numpy()

    def _as_samples(self, X: Any) -> Tensor:
        name, X = type(self).__name__, np.asarray(to_numpy(X))
        if self.kernel_size is not None or X.ndim in (3, 4):
            X = kinds.check_images(X, name, levels=self._pixel_levels())
        if X.ndim < 2 or X.dtype.kind not in "fiub" or not np.isfinite(X).all():
            raise errors.value(name, "a kernel needs finite rows (n, d) or images", f"shape {X.shape}")
        return torch.from_numpy(np.array(X, np.float64))

    # --- what goes in ------------------------------------------------------------------------------------

    def _check(self, X: Any, reset: bool) -> Any:
        name, shape = type(self).__name__, tuple(getattr(X, "shape", ()))
        images = len(shape) in (3, 4)
        if not reset and len(self.sample_shape_) == 3 and not images:
            must = f"samples must be images of shape {tuple(self.sample_shape_)}, as in fit"
            raise errors.value(name, must, f"shape {shape}")
        if not images:
            rows = super()._check(X, reset)
            if reset:
                if self.kernel_size is not None:
                    do = "Pass images (n, h, w) or (n, c, h, w), or set kernel_size=None."
                    raise errors.value(name, "kernel_size needs images", f"shape {shape}", do)
                self.sample_shape_ = (int(rows.shape[1]),)
            return rows
        found = kinds.check_images(X, name, levels=self._pixel_levels())
        if reset:
            self.sample_shape_ = tuple(int(side) for side in found.shape[1:])
            self.n_features_in_ = math.prod(self.sample_shape_)
        elif found.shape[1:] != tuple(self.sample_shape_):
            must = f"samples must have the fitted shape {tuple(self.sample_shape_)}"
            raise errors.value(name, must, tuple(found.shape[1:]))
        return found

    def _targets(self, data: Data) -> np.ndarray:
        """Return targets (n, k), scaled as the model sees them, and keep how."""
        raise NotImplementedError

    # --- fitting -----------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Any:
        if self.kernel_size is not None and self.kernel_size % 2 == 0:
            raise errors.value(type(self).__name__, "kernel_size must be odd", self.kernel_size)
        X = torch.from_numpy(np.asarray(data.X, np.float64))
        y = torch.from_numpy(np.ascontiguousarray(self._targets(data), np.float64))
        self.dtype_, self.n_outputs_ = str(data.X.dtype), y.shape[1]
        self.weight_std_, self.bias_std_ = float(self.weight_std), float(self.bias_std)
        self.alpha_ = float(self.alpha)
        self.solver_ = self.solver
        if self.solver == "auto":
            self.solver_ = "cholesky" if len(X) <= LARGE else "cg"
        learner = self._plan(X, y)
        learner.data = X, y
        return learner

    def _plan(self, X: Tensor, y: Tensor) -> Any:
        if self.solver_ == "cholesky":
            return Once(lambda: self._factorised(X, y))
        if self.solver_ == "nystrom":
            return Once(lambda: self._few(X, y))
        few = self._nystrom(X, y, keep=len(X) * self.n_components * 8 <= 2 * MEMORY)
        learner = solvers.ConjugateGradients(self._product(X), few.precondition, y, self.max_iter, self.tol)
        learner.few = few
        return learner

    def _factorised(self, X: Tensor, y: Tensor) -> State:
        C = self._kernel(X)
        C.diagonal().add_(self.alpha_)
        L, jitter = solvers.cholesky(C, type(self).__name__)
        found = {"coef": solvers.solve(L, y), "factor": L, "left_out": solvers.left_out(L, y)}
        return {**found, "jitter": jitter, "evidence": float(solvers.evidence(L, y))}

    def _nystrom(self, X: Tensor, y: Tensor, keep: bool = False) -> solvers.Nystrom:
        n, m = len(X), min(len(X), self.n_components)
        self._chosen = np.sort(self._rng().permutation(n)[:m])
        Z = X[torch.from_numpy(self._chosen)]
        block = max(1, MEMORY // (8 * m))
        return solvers.Nystrom(
            self._kernel(Z),
            lambda part: self._kernel(X[part], Z),
            y,
            self.alpha_,
            block,
            type(self).__name__,
            keep,
        )

    def _few(self, X: Tensor, y: Tensor) -> State:
        few = self._nystrom(X, y)
        fitted = torch.cat([few._rows(part) @ few.weights for part in few._slices])
        out = y - (y - fitted) / (1 - few.leverage()).clamp(min=1e-12)[:, None]
        found = {"coef": few.weights, "factor": few.L, "inner": few.inner, "alpha": few.alpha}
        return {**found, "left_out": out, "jitter": few.jitter, "chosen": self._chosen}

    def _product(self, X: Tensor) -> Callable[[Tensor], Tensor]:
        """Return what multiplies by the kernel of X plus alpha; the kernel is kept if it fits into memory."""
        kept = self._kernel(X) if len(X) ** 2 * 8 <= 2 * MEMORY else None
        block = max(1, MEMORY // (8 * len(X)))

        def product(p: Tensor) -> Tensor:
            if kept is not None:
                return kept @ p + self.alpha_ * p
            parts = [self._kernel(X[i : i + block], X) @ p for i in range(0, len(X), block)]
            return torch.cat(parts) + self.alpha_ * p

        return product

    def _adopt(self, learner: Any) -> None:
        X, y = learner.data
        if isinstance(learner, solvers.ConjugateGradients):
            few = learner.few
            out = y - self.alpha_ * learner.x / (1 - few.leverage()).clamp(min=1e-12)[:, None]
            found: State = {"coef": learner.x, "jitter": few.jitter, "left_out": out}
        else:
            found = learner.results if isinstance(learner, Once) else self._tuned(learner)
        kept = X if found.get("chosen") is None else X[torch.from_numpy(found["chosen"])]
        self.__dict__.pop("_chosen", None)
        self.X_fit_ = kept.flatten(1).numpy()
        self.dual_coef_, self.jitter_ = found["coef"].numpy(), float(found["jitter"])
        self.factor_ = found["factor"].numpy() if "factor" in found else None
        self.inner_ = found["inner"].numpy() if "inner" in found else None
        self.alpha_ = float(found.get("alpha", self.alpha_))
        self.n_iter_ = learner.n_iter
        self._keep(found, y)

    def _tuned(self, learner: Any) -> State:
        """Return what a learner of the hyper-parameters has found."""
        raise NotImplementedError

    def _keep(self, found: State, y: Tensor) -> None:
        """Keep what a subclass needs besides."""

    # --- asking ------------------------------------------------------------------------------------------

    def _kept(self) -> Tensor:
        return torch.from_numpy(self.X_fit_).reshape(-1, *self.sample_shape_)

    def _outputs(self, X: np.ndarray) -> np.ndarray:
        """Return the scaled outputs (n, k)."""
        x, kept = torch.from_numpy(np.asarray(X, np.float64)), self._kept()
        coef, block = torch.from_numpy(self.dual_coef_), max(1, MEMORY // (8 * len(kept)))
        parts = [self._kernel(part, kept) @ coef for part in x.split(block)]
        return torch.cat(parts).numpy() * self.target_scale_ + self.target_mean_  # type: ignore[no-any-return]

    def _covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior covariance (n, n) of the scaled outputs, eq. 1 of the solvers."""
        x, kept = torch.from_numpy(np.asarray(X, np.float64)), self._kept()
        cross = self._kernel(kept, x)
        if self.solver_ == "cg":
            few = self._nystrom(kept, torch.zeros(len(kept), 1, dtype=torch.float64), keep=True)
            self.__dict__.pop("_chosen", None)
            inverse = solvers.ConjugateGradients(
                self._product(kept), few.precondition, cross, self.max_iter, self.tol
            )
            while not inverse.done:
                inverse.step()
            return (self._kernel(x) - cross.T @ inverse.x).numpy()  # type: ignore[no-any-return]
        V = torch.linalg.solve_triangular(torch.from_numpy(self.factor_), cross, upper=False)
        C = self._kernel(x) - V.T @ V
        if self.inner_ is not None:
            inner = torch.linalg.solve_triangular(torch.from_numpy(self.inner_), V, upper=False)
            C += self.alpha_ * inner.T @ inner
        return C.numpy()  # type: ignore[no-any-return]


# --- regression ---------------------------------------------------------------------------------------------


class _WideRegressor(Regressor, _Wide):
    _multi_output = True
    _parameter_constraints = {**_Wide._parameter_constraints, "normalize_y": ["boolean"]}
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
    """Gaussian process regression with the covariance of an infinitely wide random network.

    The prediction of Bayesian inference over all weights of the network, with its uncertainty, in closed form. Bring the
    inputs to about unit size: rows of mean square 1 are what the default spreads suit.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers. More make the kernel flatter in the angle between inputs.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Spread of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Spread of the biases; more makes functions more constant near zero.
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
        x = torch.from_numpy(np.asarray(self._query(X), np.float64))
        y = (np.asarray(to_numpy(y), np.float64).reshape(len(x), -1) - self.target_mean_) / self.target_scale_
        free = [name for name, size in self._spreads().items() if size > 0]
        theta = np.log([self._spreads()[name] for name in free])
        found, slopes = self._evidence(x, torch.from_numpy(y), free, theta)
        return (found, dict(zip(free, slopes.tolist()))) if gradient else found

    def _keep(self, found: State, y: Tensor) -> None:
        self.log_marginal_likelihood_ = found.get("evidence")


class NTKRegressor(_WideRegressor):
    """Kernel regression with the tangent kernel: an infinitely wide network trained to the end by gradient flow.

    Bring the inputs to about unit size: rows of mean square 1 are what the default spreads suit.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers. More make the kernel flatter in the angle between inputs.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Spread of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Spread of the biases; more makes functions more constant near zero.
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
        x, kept = torch.from_numpy(np.asarray(X, np.float64)), self._kept()
        cross = self._kernels(kept, x)
        a = solvers.solve(torch.from_numpy(self.factor_), cross.ntk)
        inside = self._kernels(kept).nngp @ a - cross.nngp
        return (self._kernels(x).nngp + a.T @ inside - cross.nngp.T @ a).numpy()  # type: ignore[no-any-return]


# --- classes ------------------------------------------------------------------------------------------------


class _WideClassifier(Classifier, _Wide):
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

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        return softmax(self._outputs(X) / self.temperature_, axis=1).astype(self.dtype_)  # type: ignore[no-any-return]


class NNGPClassifier(_WideClassifier):
    """Classify with the covariance of an infinitely wide random network, by regression on indicators of the classes.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Spread of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Spread of the biases.
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
    """Classify with the tangent kernel: an infinitely wide network trained on indicators of the classes by gradient flow.

    Parameters
    ----------
    n_layers : int, default=2
        Hidden layers.
    activation : str, default="relu"
        "relu", "leaky", "erf" or "identity" in closed form; "gelu", "silu", "tanh", "sigmoid", "softplus", "elu" by quadrature.
    weight_std : float, default=sqrt(2)
        Spread of the weights times the root of the fan-in; more varies faster.
    bias_std : float, default=0.1
        Spread of the biases.
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
