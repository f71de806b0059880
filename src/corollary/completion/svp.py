r"""Singular value projection.

Gradient descent on :math:`\frac12 \lVert \Pi_\Omega(A - B) \rVert_F^2` over the matrices of rank :math:`k`,

.. math::
    B \leftarrow \big[ B + \eta\, \Pi_\Omega(A - B) \big]_k, \tag{1}

where :math:`[M]_k` keeps the :math:`k` largest singular triplets. With a share :math:`p` of the entries known,
:math:`\Pi_\Omega` shrinks an incoherent matrix by about :math:`p`, so :math:`\eta \approx 1 / p`; a step that
raises the loss is taken back and halved.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from corollary import errors, linalg
from corollary.base import Data
from corollary.completion.lowrank import BaseSpectral, Known, Triplets, leading
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array

__all__ = ["SingularValueProjection"]


class _Projection(Iteration):
    """One step of eq. 1 a sweep; the step size is halved while the loss would rise."""

    saved = ("U", "s", "V", "space", "fitted", "step_size", "loss")
    varying = {"U": Array("known.0", "triplets"), "s": Array("triplets"), "V": Array("known.1", "triplets")}

    def __init__(self, known: Known, rank: int, step: float, max_iter: int, tol: float, seed: int) -> None:
        super().__init__(max_iter)
        self.known, self.rank, self.tol, self.step_size = known, rank, tol, step
        n, m = known.shape
        like = known.target
        self.U, self.s, self.V = like.new_zeros(n, 0), like.new_zeros(0), like.new_zeros(m, 0)
        start = np.random.default_rng(seed).standard_normal((m, min(n, m, rank + 4)))
        self.space = linalg.orthonormal(torch.from_numpy(start).to(like.dtype))
        self.fitted = torch.zeros_like(like)
        self.loss = float(0.5 * like.double() @ like.double())
        self.scale = max(self.loss, 1e-300)

    @property
    def found(self) -> Triplets:
        return Triplets(self.U, self.s, self.V)

    def sweep(self) -> Metrics:
        rest = self.known.target - self.fitted
        self.known.put(self.step_size * rest)
        whole = leading(self.known, [self.found.factors()], self.space, power=2)
        kept = whole.top(self.rank)
        fitted = self.known.entries(kept.factors())
        rest = (self.known.target - fitted).double()
        loss = float(0.5 * rest @ rest)
        if loss > self.loss and self.n_iter > 1:
            self.step_size *= 0.5
            self.converged = self.step_size < 1e-6
        else:
            self.converged = abs(self.loss - loss) <= self.tol * self.loss or loss <= 1e-14 * self.scale
            self.U, self.s, self.V = (part.contiguous() for part in kept)
            self.space, self.fitted, self.loss = whole.V, fitted, loss
        return {"loss": self.loss, "error": math.sqrt(self.loss / self.scale)}


class SingularValueProjection(BaseSpectral):
    """Complete a matrix by singular value projection: gradient steps projected onto the matrices of a given rank.

    Parameters
    ----------
    rank : int, default=5
        Rank of the completed matrix. More fits the known entries better, and needs more of them.
    step : float, optional
        Length of the first steps; by default 1 / the share of known entries, but at most 2.
    bias : bool, default=False
        Whether mean, row and column biases are taken off first, as suits ratings.
    max_iter : int, default=300
        Most steps.
    tol : float, default=1e-5
        Stop when a step changes the loss relatively by no more than this.
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
    mean_, row_bias_, column_bias_ : float, ndarray, ndarray
        What was taken off first.
    shape_ : tuple
        Rows and columns.
    n_iter_ : int
        Steps taken.
    history_ : list of dict
        Step, loss, relative error on the known entries and seconds.

    Notes
    -----
    The projection is not convex: recovery is proved for incoherent matrices with enough known entries.
    A step costs O(rank) per entry and O(rank^2) per row and column.

    References
    ----------
    .. [1] P. Jain, R. Meka, I. Dhillon (2010). Guaranteed rank minimization via singular value
       projection. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import SingularValueProjection
    >>> A = np.outer([1.0, 2, 3, 4], [1.0, 1, 2, 2])
    >>> A[3, 3] = np.nan
    >>> SingularValueProjection(1, random_state=0).fit(A).predict([[3, 3]]).round(1)
    array([8.])
    """

    _parameter_constraints = {
        "rank": [Interval(Integral, 1, None, closed="left")],
        "step": [None, Interval(Real, 0, None, closed="neither")],
        "bias": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(self, rank=5, *, step=None, bias=False, max_iter=300, tol=1e-5, random_state=None):
        self.rank = rank
        self.step = step
        self.bias = bias
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"rank": 2, "max_iter": 10}

    def _learner(self, data: Data) -> _Projection:
        if self.rank > min(data.X.shape):
            must = f"rank must be at most the smaller side of the matrix ({min(data.X.shape)})"
            raise errors.value("SingularValueProjection", must, self.rank)
        known = Known(self._centred(data.X))
        step = self.step if self.step is not None else min(2.0, 1 / known.share)
        return _Projection(known, self.rank, step, self.max_iter, self.tol, self._seed())
