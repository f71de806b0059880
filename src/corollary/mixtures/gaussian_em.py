"""The learner of the Gaussian mixture: EM from several starts, by fast products or by careful differences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from corollary.base import Data
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.run import current
from corollary.engine.sources import blocks
from corollary.linalg.moments import moments_of
from corollary.mixtures.gaussian_moments import (
    TINY,
    Parameters,
    coefficients,
    constrained,
    log_joint,
    m_step,
    maximised,
    unpacked,
)
from corollary.shapes import Anything, Array, Count, Either, List, Maybe, Number, Record

if TYPE_CHECKING:
    from corollary.mixtures.gaussian import GaussianMixture

__all__ = ["EM"]

WIDEST = 64  # features up to which a sweep works on products of coordinates
SPREAD = 1e6  # variance over the narrowest component's beyond which those products would cancel


class EM(Iteration):
    """Sweeps of EM from ``n_init`` starts, one after the other; the best end is kept."""

    shares = True
    saved = ("trial", "inner", "parameters", "bound", "bounds", "best", "random")
    varying = {
        "trial": Count(),
        "inner": Count(),
        "parameters": Maybe(List(Either(*(Array(*(None,) * sides) for sides in range(1, 4))), 4)),
        "bounds": List(Number()),
        "best": Record(Anything()),
    }

    def __init__(self, model: GaussianMixture, data: Data, start: Parameters | None, bound: float) -> None:
        self.model, self.n_init = model, model.n_init if start is None else 1
        super().__init__(max_iter=self.n_init * model.max_iter)
        self.X, self.weight, self.kind = data.X, data.sample_weight, model.covariance_type
        self.random = model._random()
        self.trial = self.inner = 0
        self.parameters: Any = start
        self.bound, self.bounds = bound, []
        self.best: dict[str, Any] = {}
        self.share = current().shard(len(self.X))
        self.row_weight = None if self.weight is None else self.weight[self.share]
        self.total = len(self.X) if self.weight is None else float(self.weight.sum())
        self.columns: Any = None
        if isinstance(self.X, Source):
            found = moments_of(self.X, diagonal=True)
            self.rows: Any = None
            self.centre, self.variance = found.mean, found.scatter / found.total
            return
        self.rows = self.X[self.share]
        self.centre = self.X.mean(axis=0, dtype=np.float64)
        self.variance = self.X.var(axis=0, dtype=np.float64)

    @property
    def done(self) -> bool:
        """Whether every start has converged or used up its iterations."""
        return self.trial >= self.n_init or self.model.max_iter == 0

    def initial(self) -> Parameters:
        """Return where a start begins."""
        return self.model._start(self.X, self.weight, self.random)

    def sweep(self) -> Metrics:
        """Do one E and one M step of the present start."""
        p = Parameters(*self.parameters) if self.parameters is not None else self.initial()
        if self.products_are_safe(p):
            from corollary.mixtures.gaussian_kernels import one_blas_thread

            with one_blas_thread():
                bound, self.parameters = self.fast(p)
        else:
            bound, self.parameters = self.careful(p)
        self.inner += 1
        self.bounds.append(bound)
        converged = abs(bound - self.bound) < self.model.tol
        self.bound = bound
        trial = self.trial
        if converged or self.inner >= self.model.max_iter:
            self._end(converged)
        return {"log_likelihood": bound, "start": trial}

    def _end(self, converged: bool) -> None:
        if not self.best or self.bound > self.best["bound"]:
            self.best = {
                "parameters": self.parameters,
                "bound": self.bound,
                "bounds": self.bounds,
                "n_iter": self.inner,
                "converged": converged,
            }
        self.trial, self.inner, self.bounds, self.bound, self.parameters = (
            self.trial + 1,
            0,
            [],
            -math.inf,
            None,
        )

    def result(self) -> dict[str, Any]:
        """Return the best end, or where things stand if a start was interrupted."""
        if self.best:
            return self.best
        p = self.parameters if self.parameters is not None else self.initial()
        return {
            "parameters": p, "bound": self.bound, "bounds": self.bounds, "n_iter": self.inner, "converged": False,
        }  # fmt: skip

    # --- two ways to do the same -------------------------------------------------------------------------

    def products_are_safe(self, p: Parameters) -> bool:
        """Whether the centred data's products are not so large that small covariances drown in rounding."""
        d = self.X.shape[1]
        if d > WIDEST:
            return False
        factors = p.precisions_cholesky
        sharpest = (factors**2).sum(axis=-1) if self.kind in ("full", "tied") else (factors**2).reshape(-1, 1)
        return bool((sharpest * self.variance).max() < SPREAD)

    def fast(self, p: Parameters) -> tuple[float, Parameters]:
        """Do one sweep on features that are products, equation 1 of the kernels."""
        from corollary.mixtures.gaussian_kernels import sweep

        full = self.kind in ("full", "tied")
        if self.columns is None and self.rows is not None:
            self.columns = np.ascontiguousarray((self.rows - self.centre.astype(self.X.dtype)).T)
            self.centre = self.centre.astype(self.X.dtype).astype(np.float64)
        features = coefficients(p, self.kind, self.centre)
        if self.rows is None:
            each = [sweep((x - self.centre).T.copy(), w, *features, full) for x, w in self._blocks()]
            parts = [sum(part) for part in zip(*each)]
        else:
            parts = list(sweep(self.columns, self.row_weight, *features, full))
        run = current()
        N, S, value = run.sum(parts[0]) + TINY, run.sum(parts[1]), run.sum(np.array(parts[2]))
        first, second = unpacked(S / N[:, None], self.X.shape[1], full)
        C = constrained(second, first, N, self.kind, self.model.reg_covar)
        return float(value) / self.total, maximised(N, first + self.centre, C, self.kind)

    def _blocks(self) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield this process's rows block by block, and their weights."""
        for rows, block in blocks(self.X, self.share):
            yield block, None if self.row_weight is None else self.row_weight[rows]

    def careful(self, p: Parameters) -> tuple[float, Parameters]:
        """Do one sweep on differences from the means, for wide data or sharp components."""
        if self.rows is None:
            return self._careful_blocks(p)
        joint = log_joint(self.rows, p, self.kind)
        norm = logsumexp(joint, axis=1)
        q = np.exp(joint - norm[:, None])
        if self.row_weight is not None:
            q, norm = q * self.row_weight[:, None], norm * self.row_weight
        bound = float(current().sum(np.array(norm.sum(dtype=np.float64)))) / self.total
        return bound, m_step(self.rows, q, self.kind, self.model.reg_covar)

    def _careful_blocks(self, p: Parameters) -> tuple[float, Parameters]:
        """Do so block by block: moments of the differences from the present means, which the new ones are near."""
        (k, d), full = p.means.shape, self.kind in ("full", "tied")
        N, first, value = np.zeros(k), np.zeros((k, d)), 0.0
        second = np.zeros((k, d, d) if full else (k, d))
        for x, w in self._blocks():
            joint = log_joint(x, p, self.kind)
            norm = logsumexp(joint, axis=1)
            q = np.exp(joint - norm[:, None]) * (1.0 if w is None else w[:, None])
            value += float(norm.sum() if w is None else w @ norm)
            N += q.sum(axis=0)
            for z in range(k):
                gap = x - p.means[z]
                first[z] += q[:, z] @ gap
                second[z] += (q[:, z, None] * gap).T @ gap if full else q[:, z] @ gap**2
        run = current()
        N = run.sum(N) + TINY
        moved = run.sum(first) / N[:, None]
        second = run.sum(second) / N.reshape((-1,) + (1,) * (second.ndim - 1))
        C = constrained(second, moved, N, self.kind, self.model.reg_covar)
        return float(run.sum(np.array(value))) / self.total, maximised(N, p.means + moved, C, self.kind)
