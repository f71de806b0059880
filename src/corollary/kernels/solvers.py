r"""Linear systems with a kernel matrix: Cholesky, conjugate gradients, Nyström; the evidence and its gradient.

With :math:`C = K + \alpha I = L L^\top` regression with the kernel predicts :math:`k(x)^\top C^{-1} y` with the variance
:math:`k(x, x) - \lVert L^{-1} k(x) \rVert^2` (1). The log marginal likelihood of n targets and its gradient are

.. math::
    \log p(y) = -\tfrac12 y^\top C^{-1} y - \sum_i \log L_{ii} - \tfrac n2 \log 2\pi, \qquad
    \frac{\partial \log p}{\partial C} = \tfrac12 (C^{-1} y y^\top C^{-1} - C^{-1}), \tag{2}

and leaving out a target the prediction for it is :math:`y_i - [C^{-1} y]_i / [C^{-1}]_{ii}` (3).

Nyström's method replaces K by :math:`V^\top V` with :math:`V = L_m^{-1} K_{mn}` for m landmarks with
:math:`K_{mm} = L_m L_m^\top`; the system is then of size m (4). Conjugate gradients need products with K only, and
converge fast if preconditioned by (4).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.engine.learner import Iteration, Metrics

__all__ = [
    "Ascent",
    "ConjugateGradients",
    "Nystrom",
    "cholesky",
    "evidence",
    "evidence_and_gradient",
    "left_out",
    "solve",
]

FIRST, LAST = 1e-12, 1e-3  # jitter that is tried, relative to the mean of the diagonal


def cholesky(K: Tensor, owner: str) -> tuple[Tensor, float]:
    """Return the lower factor of a symmetric matrix, and how much had to be added to its diagonal; a warning says so.

    Raises
    ------
    ValueError
        If the matrix is not positive definite even so, with its smallest eigenvalue.
    """
    L, failed = torch.linalg.cholesky_ex(K)
    scale = float(K.diagonal().mean())
    if not math.isfinite(scale):
        raise errors.value(
            owner, "the kernel matrix must be finite", "NaN or infinity", "Scale the inputs to unit size."
        )
    jitter = 0.0
    while int(failed):
        jitter = 10 * jitter or FIRST * scale
        if not 0 < jitter <= LAST * scale:
            low = float(torch.linalg.eigvalsh(K)[0])
            do = "Raise alpha, or leave out inputs that occur twice."
            raise errors.value(
                owner, "the kernel matrix must be positive definite", f"the eigenvalue {low:.2g}", do
            )
        shifted = K.clone()
        shifted.diagonal().add_(jitter)
        L, failed = torch.linalg.cholesky_ex(shifted)
    if jitter:
        text = (
            f"{owner}: the kernel matrix is not positive definite to rounding; {jitter:.2g} was added to its "
            f"diagonal, whose mean is {scale:.2g}. Raise alpha to choose it yourself."
        )
        warnings.warn(text, errors.CorollaryWarning, stacklevel=2)
    return L, jitter


def solve(L: Tensor, y: Tensor) -> Tensor:
    """Return C^-1 y from the lower factor of C."""
    return torch.cholesky_solve(y, L)


def evidence(L: Tensor, y: Tensor) -> Tensor:
    """Return the log marginal likelihood of targets (n, k), summed over the k, eq. 2."""
    n, k = y.shape
    fit = torch.linalg.solve_triangular(L, y, upper=False).square().sum()
    return -0.5 * fit - k * (L.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi))


def left_out(L: Tensor, y: Tensor) -> Tensor:
    """Return the leave-one-out predictions (n, k), eq. 3."""
    inverse = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype), upper=False).square().sum(0)
    return y - solve(L, y) / inverse[:, None]


# --- few landmarks ------------------------------------------------------------------------------------------


class Nystrom:
    """The system of m landmarks, eq. 4; also a preconditioner, because it solves with V'V + alpha I.

    Parameters
    ----------
    Kmm : Tensor of shape (m, m)
        The kernel of the landmarks.
    rows : callable
        Returns the kernel (b, m) of the samples of a slice with the landmarks.
    y : Tensor of shape (n, k)
        The targets.
    alpha : float
        What is added to the diagonal.
    block : int
        Samples at a time.
    owner : str
        Name of the estimator, at the start of errors.
    keep : bool
        Whether V is kept for later products.
    """

    def __init__(
        self,
        Kmm: Tensor,
        rows: Callable[[slice], Tensor],
        y: Tensor,
        alpha: float,
        block: int,
        owner: str,
        keep: bool = False,
    ) -> None:
        m, n = len(Kmm), len(y)
        shift = FIRST * float(Kmm.diagonal().mean()) * m  # landmarks that are alike are expected
        Kmm = Kmm.clone()
        Kmm.diagonal().add_(shift)
        self.L, self.jitter = cholesky(Kmm, owner)
        self.alpha = max(alpha, shift)
        self._rows, self._slices = rows, [slice(i, i + block) for i in range(0, n, block)]
        self._kept: dict[int, Tensor] | None = {} if keep else None
        inner, right = torch.zeros_like(Kmm), torch.zeros(m, y.shape[1], dtype=Kmm.dtype)
        for part in self._slices:
            V = self._features(part)
            inner.addmm_(V, V.T)
            right.addmm_(V, y[part])
        inner.diagonal().add_(self.alpha)
        self.inner, more = cholesky(inner, owner)
        self.jitter = max(self.jitter, more)
        self.weights = torch.linalg.solve_triangular(self.L.T, solve(self.inner, right), upper=True)

    def _features(self, part: slice) -> Tensor:
        if self._kept is not None and part.start in self._kept:
            return self._kept[part.start]
        V = torch.linalg.solve_triangular(self.L, self._rows(part).T, upper=False)
        if self._kept is not None:
            self._kept[part.start] = V
        return V

    def precondition(self, r: Tensor) -> Tensor:
        """Return (V'V + alpha I)^-1 r for r of shape (n, k), up to a factor, by Woodbury's identity."""
        inside = sum(self._features(part) @ r[part] for part in self._slices)
        inside = solve(self.inner, inside)  # type: ignore[arg-type]
        return r - torch.cat([self._features(part).T @ inside for part in self._slices])

    def leverage(self) -> Tensor:
        """Return the diagonal (n,) of V' (V V' + alpha I)^-1 V: how far each fitted value follows its own target."""
        parts = [
            torch.linalg.solve_triangular(self.inner, self._features(part), upper=False).square().sum(0)
            for part in self._slices
        ]
        return torch.cat(parts)


# --- conjugate gradients ------------------------------------------------------------------------------------


class ConjugateGradients(Iteration):
    """Solve C X = B for B of shape (n, k) by products with C, a column beside the other."""

    saved = ("x", "r", "p", "rho")
    can_diverge = False

    def __init__(
        self,
        product: Callable[[Tensor], Tensor],
        precondition: Callable[[Tensor], Tensor],
        B: Tensor,
        max_iter: int,
        tol: float,
    ) -> None:
        super().__init__(max_iter)
        self.product, self.precondition, self.tol = product, precondition, tol
        self.size = torch.linalg.vector_norm(B, dim=0).clamp(min=torch.finfo(B.dtype).tiny)
        self.x, self.r = torch.zeros_like(B), B.clone()
        self.p = precondition(self.r)
        self.rho = (self.r * self.p).sum(0)

    def sweep(self) -> Metrics:
        """Take one step; a column that is solved stays as it is."""
        Ap = self.product(self.p)
        tiny = torch.finfo(Ap.dtype).tiny
        step = torch.where(self.rho > tiny, self.rho / (self.p * Ap).sum(0).clamp(min=tiny), 0.0)
        self.x, self.r = self.x + step * self.p, self.r - step * Ap
        z = self.precondition(self.r)
        rho = (self.r * z).sum(0)
        self.p = z + torch.where(self.rho > tiny, rho / self.rho.clamp(min=tiny), 0.0) * self.p
        self.rho = rho
        left = float((torch.linalg.vector_norm(self.r, dim=0) / self.size).max())
        self.converged = left <= self.tol
        return {"relative_residual": left}


# --- hyper-parameters ---------------------------------------------------------------------------------------


class Ascent(Iteration):
    """Climb a smooth function of a few variables by BFGS with a line search.

    ``objective(x)`` returns the value and the gradient, an array.
    """

    saved = ("x", "value", "gradient", "inverse")

    def __init__(
        self,
        objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
        start: np.ndarray,
        max_iter: int,
        tol: float,
    ) -> None:
        super().__init__(max_iter)
        self.objective, self.tol = objective, tol
        self.x, self.inverse = start, np.eye(len(start))
        self.value, self.gradient = objective(start)
        self.inverse /= max(1.0, float(np.abs(self.gradient).max()))

    def sweep(self) -> Metrics:
        """Go along the quasi-Newton direction, half as far until it is up."""
        direction = self.inverse @ self.gradient
        length = min(1.0, 2.0 / max(float(np.abs(direction).max()), 1e-300))  # a factor e^2 at most
        for _ in range(25):
            x = self.x + length * direction
            value, gradient = self.objective(x)
            if value >= self.value + 1e-4 * length * float(direction @ self.gradient):
                break
            length /= 2
        else:
            self.converged = True
            return {"log_marginal_likelihood": self.value}
        s, y = x - self.x, self.gradient - gradient
        if s @ y > 1e-12 * float(np.linalg.norm(s) * np.linalg.norm(y)):
            turn = np.eye(len(s)) - np.outer(s, y) / (s @ y)
            self.inverse = turn @ self.inverse @ turn.T + np.outer(s, s) / (s @ y)
        gain = value - self.value
        self.x, self.value, self.gradient = x, value, gradient
        self.converged = gain <= self.tol * max(1.0, abs(value))
        return {"log_marginal_likelihood": value}


def evidence_and_gradient(
    kernel: Callable[[Tensor], Tensor], theta: np.ndarray, y: Tensor, owner: str
) -> tuple[float, Any]:
    """Return the log marginal likelihood at exp(theta) and its gradient by theta; ``kernel`` makes C of exp(theta)."""
    free = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        C = kernel(free.exp())
    with torch.no_grad():
        L, _ = cholesky(C.detach(), owner)
        inverse = torch.cholesky_inverse(L)
        coef = inverse @ y
        slope = 0.5 * (coef @ coef.T - y.shape[1] * inverse)  # eq. 2
        found = float(evidence(L, y))
    (gradient,) = torch.autograd.grad(C, free, slope)
    return found, gradient.numpy()
