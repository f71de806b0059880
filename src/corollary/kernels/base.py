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
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from corollary import errors
from corollary.base import Data, Estimator
from corollary.data import kinds
from corollary.engine.learner import Once, State
from corollary.kernels import solvers
from corollary.shapes import Array, Count, Dtype, List, Maybe, Number, Text
from corollary.theory.infinite import ACTIVATIONS, MEMORY, ROOT_TWO, infinite_kernels
from corollary.validation import as_tensor, to_numpy

__all__ = ["Wide"]

LARGE = 8000  # samples beyond which solver="auto" does not factorise: their matrix takes half a gigabyte


class Wide(Estimator):
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
            if reset and self.kernel_size is not None:
                do = "Pass images (n, h, w) or (n, c, h, w), or set kernel_size=None."
                raise errors.value(name, "kernel_size needs images", f"shape {shape}", do)
            return rows
        found = kinds.check_images(X, name, levels=self._pixel_levels())
        if not reset and found.shape[1:] != tuple(self.sample_shape_):
            must = f"samples must have the fitted shape {tuple(self.sample_shape_)}"
            raise errors.value(name, must, tuple(found.shape[1:]))
        return found

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        shape = tuple(int(side) for side in data.X.shape[1:])
        return {"sample_shape_": shape, "n_features_in_": math.prod(shape), "dtype_": str(data.X.dtype)}

    def _targets(self, data: Data) -> np.ndarray:
        """Return targets (n, k), scaled as the model sees them, and keep how."""
        raise NotImplementedError

    # --- fitting -----------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Any:
        if self.kernel_size is not None and self.kernel_size % 2 == 0:
            raise errors.value(type(self).__name__, "kernel_size must be odd", self.kernel_size)
        X = as_tensor(np.asarray(data.X, np.float64))
        y = as_tensor(np.asarray(self._targets(data), np.float64))
        self.n_outputs_ = y.shape[1]
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
        """Return the function v -> (K + alpha I) v for the kernel K of X, which is kept if it fits into memory."""
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
        """Return the solution with the hyper-parameters that the learner has found."""
        raise NotImplementedError

    def _keep(self, found: State, y: Tensor) -> None:
        """Keep further results, where a subclass has any."""

    # --- asking ------------------------------------------------------------------------------------------

    def _kept(self) -> Tensor:
        return torch.from_numpy(self.X_fit_).reshape(-1, *self.sample_shape_)

    def _outputs(self, X: np.ndarray) -> np.ndarray:
        """Return the scaled outputs (n, k)."""
        x, kept = as_tensor(np.asarray(X, np.float64)), self._kept()
        coef, block = torch.from_numpy(self.dual_coef_), max(1, MEMORY // (8 * len(kept)))
        parts = [self._kernel(part, kept) @ coef for part in x.split(block)]
        return torch.cat(parts).numpy() * self.target_scale_ + self.target_mean_  # type: ignore[no-any-return]

    def _covariance(self, X: np.ndarray) -> np.ndarray:
        """Return the posterior covariance (n, n) of the scaled outputs, eq. 1 of the solvers."""
        x, kept = as_tensor(np.asarray(X, np.float64)), self._kept()
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
