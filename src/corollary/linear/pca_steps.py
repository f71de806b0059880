r"""Iterative solvers of PCA: power iteration, gradient ascent, incremental batches.

With :math:`C = A^\top A` of the centred rows :math:`A`:

- *power with deflation*: :math:`v \leftarrow C v / \lVert C v \rVert`, kept orthogonal to the
  components already found; the error falls by :math:`\lambda_2 / \lambda_1` a step (1).
- *gradient*: ascend :math:`\operatorname{tr} V^\top C V` over orthonormal :math:`V`,
  :math:`V \leftarrow \operatorname{orth}(V + \eta\, C V)`, :math:`\eta = 20 / \lambda_1` (2).
- *incremental*: after :math:`n` rows with mean :math:`\mu` and :math:`S V^\top`, a batch of
  :math:`m` rows with mean :math:`\nu` gives the triplets of the stack

  .. math:: \big[\, S V^\top;\; X - \nu;\; \sqrt{nm / (n + m)}\, (\mu - \nu) \,\big]. \tag{3}

The notes say that the power method converges to :math:`u_1` if :math:`\langle v_0, u_1 \rangle \ne 0`;
it converges to :math:`\pm u_1`, and for matrices that are not symmetric it is the coefficient of
:math:`u_1` in the eigenbasis that must not vanish (erratum E34).

References
----------
.. [1] D. Ross, J. Lim, R. Lin, M. Yang (2008). Incremental learning for robust visual
   tracking. IJCV 77, 125-141.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary.engine.learner import Iteration, Metrics
from corollary.engine.run import current
from corollary.linalg import Operator, orthonormal
from corollary.shapes import Array, Count, List, Maybe, Number

__all__ = ["GradientAscent", "Incremental", "PowerMethod", "Seen", "merge"]

STEP = 20.0  # times 1 / lambda_1: a long step is safe, since the basis is made orthonormal again


class PowerMethod(Iteration):
    """Find one component a sweep by power iteration, and deflate; eq. 1."""

    shares = True
    saved = ("rows", "values", "rng")
    varying = {"rows": Array("found", "A.1"), "values": Array("found")}

    def __init__(self, A: Operator, k: int, rng: np.random.Generator, max_steps: int, tol: float) -> None:
        super().__init__(max_iter=k)
        self.A, self.rng, self.max_steps, self.tol = A, rng, max_steps, tol
        self.rows = torch.zeros(0, A.shape[1], dtype=A.dtype)
        self.values = torch.zeros(0, dtype=A.dtype)

    def sweep(self) -> Metrics:
        """Find the next component."""
        v = self._outside(torch.from_numpy(self.rng.standard_normal(self.A.shape[1])).to(self.A.dtype))
        steps, change = 0, float("inf")
        while steps < self.max_steps and change > self.tol:
            before, steps = v, steps + 1
            v = self._outside(self.A.back(self.A.dot(v[:, None]))[:, 0])
            change = float((v - before).norm())
        value = self.A.back(self.A.dot(v[:, None]))[:, 0] @ v
        self.rows = torch.cat([self.rows, v[None]])
        self.values = torch.cat([self.values, value.clamp(min=0).sqrt()[None]])
        return {"singular_value": float(self.values[-1]), "power_steps": steps}

    def _outside(self, v: Tensor) -> Tensor:
        for _ in range(2):
            v = v - self.rows.T @ (self.rows @ v)
        return v / v.norm().clamp(min=torch.finfo(v.dtype).tiny)


class GradientAscent(Iteration):
    """Ascend the captured variance over orthonormal bases, one full gradient a sweep; eq. 2."""

    shares = True
    saved = ("V",)

    def __init__(self, A: Operator, k: int, rng: np.random.Generator, max_iter: int, tol: float) -> None:
        super().__init__(max_iter)
        self.A, self.tol = A, tol
        self.V = orthonormal(torch.from_numpy(rng.standard_normal((A.shape[1], k))).to(A.dtype))

    def sweep(self) -> Metrics:
        """Take one step and make the basis orthonormal again."""
        CV = self.A.back(self.A.dot(self.V))
        inner = self.V.T @ CV
        largest = torch.linalg.matrix_norm(inner, 2).clamp(min=torch.finfo(inner.dtype).tiny)
        gradient = CV - self.V @ inner
        self.converged = bool(gradient.norm() <= self.tol * largest)
        self.V = orthonormal(self.V + (STEP / largest) * CV)
        return {"captured": float(inner.trace()), "gradient": float(gradient.norm() / largest)}

    def result(self) -> tuple[Tensor, Tensor]:
        """Return singular values and rows: the basis turned to its principal axes."""
        image = self.A.dot(self.V).double()
        e, U = torch.linalg.eigh(current().sum(image.T @ image))
        rows = (self.V @ U.flip(1).to(self.V.dtype)).T
        return e.flip(0).clamp(min=0).sqrt().to(self.V.dtype), rows


class Seen(NamedTuple):
    """What is kept of the rows seen so far."""

    n: int
    mean: np.ndarray  # (d,)
    squares: float  # sum of squared distances from the mean
    values: np.ndarray  # (k,)
    rows: np.ndarray  # (k, d)


def merge(seen: Seen | None, X: np.ndarray, k: int) -> Seen:
    """Return mean, components and singular values after one more batch, eq. 3."""
    m = len(X)
    nu = X.mean(axis=0, dtype=np.float64)
    centred = X - nu.astype(X.dtype)
    squares = float(np.sum(centred.astype(np.float64) ** 2))
    if seen is None:
        n, mean, stack = m, nu, centred
    else:
        n = seen.n + m
        gap = seen.mean - nu
        weight = seen.n * m / n
        squares += seen.squares + weight * float(gap @ gap)
        mean = seen.mean - gap * (m / n)
        bridge = (np.sqrt(weight) * gap).astype(X.dtype)
        stack = np.vstack([seen.values[:, None] * seen.rows, centred, bridge])
    s, Vt = np.linalg.svd(stack, full_matrices=False)[1:]
    return Seen(n, mean, squares, s[:k], Vt[:k])


class Incremental(Iteration):
    """Merge one batch a sweep."""

    saved = ("seen",)
    varying = {"seen": Maybe(List([Count(1), Array("X.1"), Number(), Array("found"), Array("found", "X.1")]))}

    def __init__(self, X: Any, k: int, batch_size: int) -> None:
        self.X, self.k = X, k
        starts = list(range(0, len(X), batch_size))
        if len(starts) > 1 and len(X) - starts[-1] < k:  # a last batch shorter than k joins the one before
            starts.pop()
        self.bounds = [*starts, len(X)]
        super().__init__(max_iter=len(starts))
        self.seen: Any = None

    def sweep(self) -> Metrics:
        """Merge the next batch."""
        rows = slice(self.bounds[self.n_iter - 1], self.bounds[self.n_iter])
        seen = None if self.seen is None else Seen(*self.seen)
        self.seen = tuple(merge(seen, self.X[rows], self.k))
        return {"rows": float(self.bounds[self.n_iter])}
