r"""Matrix completion by singular value thresholding, with a nuclear-norm penalty (soft-impute) or exactly.

:math:`\Pi_\Omega` keeps the known entries of :math:`A` and sets the others to zero, and

.. math::
    \operatorname{shrink}_\tau(M) = U \operatorname{diag}(\sigma - \tau)_+ V^\top
      = \arg\min_B \tfrac12 \lVert M - B \rVert_F^2 + \tau \lVert B \rVert_*. \tag{1}

Soft-impute minimises, by proximal gradient steps of length one,

.. math::
    \tfrac12 \lVert \Pi_\Omega(A - B) \rVert_F^2 + \tau \lVert B \rVert_*, \qquad
    B \leftarrow \operatorname{shrink}_\tau\big(B + \Pi_\Omega(A - B)\big), \tag{2}

here with Nesterov's momentum, dropped when the objective rises. Singular value thresholding ascends on the dual of

.. math::
    \min_B\ \tau \lVert B \rVert_* + \tfrac12 \lVert B \rVert_F^2 \quad\text{s.t.}\quad \Pi_\Omega(B) = \Pi_\Omega(A),
    \qquad B = \operatorname{shrink}_\tau(Y), \quad Y \leftarrow Y + \eta\, \Pi_\Omega(A - B). \tag{3}

In (2) the argument is sparse plus low rank, in (3) it is sparse: no full matrix is ever formed.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from corollary import errors, linalg
from corollary.base import Data
from corollary.completion.lowrank import BaseSpectral, Known, Triplets, inner, leading
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array, List, Number

__all__ = ["SingularValueThresholding"]

FIRST_RANK, GROWTH = 8, 8  # columns of the first subspace, and how many more when all of them survive
OVERSAMPLE = 4  # columns beyond the rank, without which the last triplets converge slowly


class _Shrinkage(Iteration):
    """What both methods share: a subspace that grows until it holds all that survives the shrinkage."""

    saved = ("U", "s", "V", "space", "fitted", "rng")
    varying = {
        "U": Array("known.0", "triplets"),
        "s": Array("triplets"),
        "V": Array("known.1", "triplets"),
        "space": Array("known.1", None),
    }

    def __init__(self, known: Known, tau: float, max_rank: int | None, max_iter: int, tol: float, seed: int):
        super().__init__(max_iter)
        self.known, self.tau, self.tol = known, tau, tol
        smaller = min(known.shape)
        self.max_rank = smaller if max_rank is None else max_rank
        self.limit = min(smaller, self.max_rank + OVERSAMPLE)
        self.rng = np.random.default_rng(seed)
        dtype = known.target.dtype
        self.U, self.s, self.V = (
            torch.zeros(shape, dtype=dtype) for shape in ((known.shape[0], 0), 0, (known.shape[1], 0))
        )
        self.space = self._widened(
            torch.zeros(known.shape[1], 0, dtype=dtype), min(self.limit, FIRST_RANK + OVERSAMPLE)
        )
        self.full = False  # whether the subspace was too narrow for all that survived
        self.fitted = torch.zeros_like(known.target)  # the current matrix on the known entries

    @property
    def found(self) -> Triplets:
        return Triplets(self.U, self.s, self.V)

    def _widened(self, V: Tensor, count: int) -> Tensor:
        fresh = torch.from_numpy(self.rng.standard_normal((len(V), count))).to(V.dtype)
        return linalg.orthonormal(torch.cat([V, fresh - V @ (V.T @ fresh)], 1))

    def shrink(self, parts: list[tuple[Tensor, Tensor]], power: int) -> Triplets:
        """Apply eq. 1 to the sparse matrix of ``known`` plus the parts, within a subspace.

        Where nearly all of it survives, the next one is wider: early iterates would need a far
        larger rank than the solution has.
        """
        whole = leading(self.known, parts, self.space, power)
        width, rank = len(whole.s), int((whole.s > self.tau).sum())
        self.full = rank + OVERSAMPLE > width and width < self.limit
        self.space = self._widened(whole.V, min(GROWTH, self.limit - width)) if self.full else whole.V
        rank = min(rank, self.max_rank)
        return whole.top(rank)._replace(s=whole.s[:rank] - self.tau)

    def adopt(self, found: Triplets) -> None:
        self.U, self.s, self.V = (part.contiguous() for part in found)
        self.fitted = self.known.entries(found.factors())


class SoftImpute(_Shrinkage):
    """Accelerated proximal gradient steps, eq. 2."""

    saved = (*_Shrinkage.saved, "last", "last_fitted", "momentum", "loss")
    varying = {"last": List([Array("known.0", "before"), Array("before"), Array("known.1", "before")])}

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.last, self.last_fitted = tuple(self.found), self.fitted
        self.momentum, self.loss = 1.0, math.inf

    def sweep(self) -> Metrics:
        grown = (1 + math.sqrt(1 + 4 * self.momentum**2)) / 2
        c = (self.momentum - 1) / grown
        self.known.put(self.known.target - (1 + c) * self.fitted + c * self.last_fitted)
        now, before = self.found, Triplets(*self.last)
        (L, R), (P, S) = now.factors(), before.factors()
        found = self.shrink(
            [((1 + c) * L, R), (-c * P, S)] if c else [(L, R)], power=1 if self.n_iter > 4 else 2
        )
        self.last, self.last_fitted, self.momentum = tuple(now), self.fitted, grown
        self.adopt(found)
        rest = (self.known.target - self.fitted).double()
        loss = float(0.5 * rest @ rest + self.tau * self.s.double().sum())
        if loss > self.loss:
            self.momentum = 1.0
        self.loss = loss
        size = inner(found, found)
        change = max(0.0, size + inner(now, now) - 2 * inner(found, now))
        self.converged = not self.full and math.sqrt(change) <= self.tol * math.sqrt(size)
        return {"loss": loss, "rank": float(len(self.s))}


class DualAscent(_Shrinkage):
    """Singular value thresholding, eq. 3."""

    saved = (*_Shrinkage.saved, "Y")

    def __init__(self, *args: Any, step: float) -> None:
        super().__init__(*args)
        self.step_size = step
        target = self.known.target
        self.known.put(target)
        size = float(leading(self.known, [], self.space, 4).s[0])
        # as many steps as leave the first matrix at zero are taken at once
        self.Y = target * max(1.0, math.ceil(self.tau / (step * size))) * step

    def sweep(self) -> Metrics:
        self.known.put(self.Y)
        self.adopt(self.shrink([], power=2))
        rest = self.known.target - self.fitted
        self.Y = self.Y + self.step_size * rest
        error = float(rest.double().norm() / self.known.target.double().norm().clamp(min=1e-300))
        self.converged = error <= self.tol
        return {"error": error, "rank": float(len(self.s))}


class SingularValueThresholding(BaseSpectral):
    """Complete a matrix by soft-thresholding its singular values, for a small nuclear norm.

    Soft-impute fits noisy entries with a matrix of small nuclear norm; "svt" reproduces exact entries.

    Parameters
    ----------
    threshold : float, optional
        What is taken off the singular values. Raising it lowers the rank. By default a fiftieth of the
        largest singular value of the known entries for soft-impute, and five times the geometric mean
        of the sides times their root-mean-square for "svt".
    method : {"soft-impute", "svt"}, default="soft-impute"
        Eq. (2) or (3) of the module's page.
    step : float, optional
        Step of "svt"; by default 1.2 / the share of known entries. Larger ones may diverge.
    max_rank : int, optional
        Largest rank; a lower one is faster.
    bias : bool, default=False
        Whether mean, row and column biases are taken off first, as suits ratings.
    max_iter : int, default=200
        Most steps.
    tol : float, default=1e-4
        Stop when the matrix changes relatively by no more than this (soft-impute), or when the known
        entries are met as well as this ("svt").
    random_state : int or RandomState, optional
        Seed for the first subspace.

    Attributes
    ----------
    left_, right_ : ndarray of shape (n_rows, rank_), (n_columns, rank_)
        Singular vectors of the completed matrix.
    singular_values_ : ndarray of shape (rank_,)
        Its singular values.
    rank_ : int
        Its rank.
    threshold_ : float
        The threshold used.
    mean_, row_bias_, column_bias_ : float, ndarray, ndarray
        What was taken off first.
    shape_ : tuple
        Rows and columns.
    n_iter_ : int
        Steps taken.
    history_ : list of dict
        Step, loss (or error), rank and seconds.

    Notes
    -----
    A step costs O(r per entry) and O(r^2) per row and column; memory is the entries and the factors, never
    the full matrix. Some notes give the limit of (3) with weight 1 / (2 tau) on the squared norm: it is 1/2.

    References
    ----------
    .. [1] R. Mazumder, T. Hastie, R. Tibshirani (2010). Spectral regularization algorithms for learning
       large incomplete matrices. JMLR 11, 2287-2322.
    .. [2] J.-F. Cai, E. Candès, Z. Shen (2010). A singular value thresholding algorithm for matrix
       completion. SIAM Journal on Optimization 20(4), 1956-1982.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import SingularValueThresholding
    >>> A = np.outer([1.0, 2, 3, 4], [1.0, 1, 2, 2])
    >>> A[3, 3] = np.nan
    >>> SingularValueThresholding(0.01, random_state=0).fit(A).predict([[3, 3]]).round(1)
    array([8.])
    """

    _parameter_constraints = {
        "threshold": [None, Interval(Real, 0, None, closed="neither")],
        "method": [StrOptions({"soft-impute", "svt"})],
        "step": [None, Interval(Real, 0, None, closed="neither")],
        "max_rank": [None, Interval(Integral, 1, None, closed="left")],
        "bias": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"threshold_": Number(0)}

    def __init__(
        self,
        threshold=None,
        *,
        method="soft-impute",
        step=None,
        max_rank=None,
        bias=False,
        max_iter=200,
        tol=1e-4,
        random_state=None,
    ):
        self.threshold = threshold
        self.method = method
        self.step = step
        self.max_rank = max_rank
        self.bias = bias
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 5}

    def _learner(self, data: Data) -> _Shrinkage:
        if self.max_rank is not None and self.max_rank > min(data.X.shape):
            must = f"max_rank must be at most the smaller side of the matrix ({min(data.X.shape)})"
            raise errors.value("SingularValueThresholding", must, self.max_rank)
        known, seed = Known(self._centred(data.X)), self._seed()
        self.threshold_ = float(self.threshold) if self.threshold is not None else self._default(known)
        settings = (known, self.threshold_, self.max_rank, self.max_iter, self.tol, seed)
        if self.method == "soft-impute":
            return SoftImpute(*settings)
        return DualAscent(*settings, step=self.step if self.step is not None else 1.2 / known.share)

    def _default(self, known: Known) -> float:
        if self.method == "svt":
            scale = float(known.target.double().square().mean().sqrt())
            return 5 * math.sqrt(known.shape[0] * known.shape[1]) * scale or 1.0
        start = torch.ones(known.shape[1], 1, dtype=known.target.dtype)
        return float(leading(known, [], linalg.orthonormal(start), 20).s[0]) / 50 or 1.0
