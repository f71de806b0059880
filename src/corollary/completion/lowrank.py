r"""Sparse plus low rank: what the iterates of the spectral completers are made of.

With :math:`\Omega` the known entries, every iterate is :math:`M = S + \sum_p L_p R_p^\top`, where
:math:`S` lives on :math:`\Omega` and the factors are thin. Neither is ever added up: all that is needed are

.. math::
    M Q = S Q + \sum_p L_p (R_p^\top Q), \qquad M^\top Q = S^\top Q + \sum_p R_p (L_p^\top Q), \tag{1}

and the entries of :math:`L R^\top` on :math:`\Omega` (2). The leading singular triplets come from subspace
iteration, started where the last one ended:

.. math::
    Q = \operatorname{orth}(M V), \qquad M^\top Q = V' \Sigma W^\top, \qquad U = Q W. \tag{3}
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor

from corollary import linalg
from corollary.base import Completer, Data, Estimator
from corollary.compiled import njit
from corollary.data.ratings import check_ratings
from corollary.shapes import Array, Count, List, Number

__all__ = ["BaseSpectral", "Known", "Triplets", "inner", "leading"]


class Triplets(NamedTuple):
    """Left vectors (n, r), singular values (r,) and right vectors (m, r)."""

    U: Tensor
    s: Tensor
    V: Tensor

    def top(self, r: int) -> Triplets:
        """Keep the first ``r``."""
        return Triplets(self.U[:, :r], self.s[:r], self.V[:, :r])

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return L and R with L Rᵀ the matrix."""
        return self.U * self.s, self.V


@njit(parallel=True, fastmath=True, cache=True)
def _entries(indptr, indices, L, R, out):  # pragma: no cover - compiled
    for i in prange(len(indptr) - 1):
        row = L[i]
        for e in range(indptr[i], indptr[i + 1]):
            other = R[indices[e]]
            total = row[0] * other[0]
            for k in range(1, len(row)):
                total += row[k] * other[k]
            out[e] = total


class Known:
    """The pattern of the known entries, and one sparse matrix on it whose values change."""

    def __init__(self, R: Any) -> None:
        self.R = R
        self.shape = R.shape
        self.target = torch.from_numpy(R.data)
        numbered = type(R)((np.arange(R.nnz), R.indices, R.indptr), shape=R.shape).T.tocsr()
        self.order = torch.from_numpy(numbered.data)
        self.S = linalg.sparse_tensor(R.copy())
        self.St = linalg.sparse_tensor(R.T.tocsr())
        self.share = len(self.target) / (R.shape[0] * R.shape[1])  # of all entries that are known

    def put(self, values: Tensor) -> None:
        """Make ``values`` those of S, in the order of the CSR matrix."""
        self.S.values().copy_(values)
        self.St.values().copy_(values[self.order])

    def entries(self, factors: tuple[Tensor, Tensor]) -> Tensor:
        """Return the entries of L Rᵀ on the pattern, eq. 2."""
        L, R = (f.contiguous().numpy() for f in factors)
        out = np.zeros(self.R.nnz, self.R.dtype)
        if L.shape[1]:
            _entries(self.R.indptr, self.R.indices, L, R, out)
        return torch.from_numpy(out)


def leading(known: Known, parts: list[tuple[Tensor, Tensor]], V: Tensor, power: int = 1) -> Triplets:
    """Return the singular triplets of M in the space that subspace iteration from V reaches, eq. 3."""
    for _ in range(power):
        Q = known.S @ V
        for L, R in parts:
            Q += L @ (R.T @ V)
        Q = linalg.orthonormal(Q)
        B = known.St @ Q
        for L, R in parts:
            B += R @ (L.T @ Q)
        V = linalg.orthonormal(B)
    # B = V (VᵀB): an SVD of the small square gives that of B
    W, s, Zt = torch.linalg.svd(V.T @ B, full_matrices=False)
    return Triplets(Q @ Zt.T, s, V @ W)


def inner(a: Triplets, b: Triplets) -> float:
    """Return the inner product of two matrices given by their triplets."""
    (L, R), (P, S) = a.factors(), b.factors()
    return float(((L.T @ P).double() * (R.T @ S).double()).sum())


class BaseSpectral(Completer, Estimator):
    """Base of the completers that end as a mean, biases and singular triplets."""

    input = "ratings"
    _fitted = {
        "shape_": List([Count(1), Count(1)]),
        "mean_": Number(),
        "row_bias_": Array("shape_.0"),
        "column_bias_": Array("shape_.1"),
        "rank_": Count(),
        "left_": Array("shape_.0", "rank_"),
        "right_": Array("shape_.1", "rank_"),
        "singular_values_": Array("rank_"),
    }

    def _check(self, X: Any, reset: bool) -> Any:
        return check_ratings(X, type(self).__name__, shape=None if reset else self.shape_)

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        return {"shape_": data.X.shape}

    def _centred(self, R: Any) -> Any:
        """Return the ratings minus mean and biases, where asked for; keep those."""
        from corollary.completion.baseline import damped_biases

        none = (0.0, np.zeros(R.shape[0]), np.zeros(R.shape[1]))
        self.mean_, self.row_bias_, self.column_bias_ = damped_biases(R, 10.0) if self.bias else none
        rows = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
        rest = R.data - self.mean_ - self.row_bias_[rows] - self.column_bias_[R.indices]
        return type(R)((rest.astype(R.dtype), R.indices, R.indptr), shape=R.shape)

    def _adopt(self, learner: Any) -> None:
        found: Triplets = learner.found
        self.n_iter_ = learner.n_iter
        self.left_, self.right_ = found.U.contiguous().numpy(), found.V.contiguous().numpy()
        self.singular_values_ = found.s.numpy()
        self.rank_ = len(self.singular_values_)

    def _average(self) -> tuple[float, np.ndarray, np.ndarray]:
        return self.mean_, self.row_bias_, self.column_bias_

    def _predict(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        low = np.einsum("nk,k,nk->n", self.left_[rows], self.singular_values_, self.right_[columns])
        return (low + self.mean_ + self.row_bias_[rows] + self.column_bias_[columns]).astype(low.dtype)
