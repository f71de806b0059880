r"""Truncated SVD: the best approximation of low rank.

Of all matrices of rank :math:`k`, the one nearest to :math:`X = U S V^\top` in the Frobenius and the
spectral norm is :math:`X_k = U_k S_k V_k^\top`, and :math:`\lVert X - X_k \rVert_F^2 = \sum_{i > k} s_i^2`
(Eckart and Young) (1). Nothing is centred, so sparse data stay sparse. The triplets are
found by LAPACK, by block Krylov (:mod:`corollary.linalg`), by ARPACK, or one by one by the power method.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import svds
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import svd_flip
from sklearn.utils.sparsefuncs import mean_variance_axis

from corollary import errors
from corollary.base import Data, Estimator, Transformer, as_tensor
from corollary.engine.learner import Once, State
from corollary.engine.run import current
from corollary.linalg import Centred, krylov_svd, sparse_tensor
from corollary.linear.pca_steps import PowerMethod
from corollary.shapes import Array

__all__ = ["TruncatedSVD"]


def operator(X: Any) -> Centred:
    """Return the products with this process's rows of a dense or sparse matrix."""
    rows = X[current().shard(X.shape[0])]
    return Centred(rows if sparse.issparse(X) else as_tensor(rows), None, X.shape[0])


class TruncatedSVD(Transformer, ClassNamePrefixFeaturesOutMixin, Estimator):
    """Reduce the dimension by a truncated singular value decomposition, without centring (latent semantic analysis of counts).

    A drop-in for scikit-learn's, with exact and power methods.

    Parameters
    ----------
    n_components : int, default=2
        The rank kept; a higher one comes nearer to the data.
    algorithm : {"randomized", "arpack", "exact", "power"}, default="randomized"
        Block Krylov, Lanczos, LAPACK (dense data only), or power iteration with deflation.
    n_iter : int, default=5
        Effort of "randomized": more is more exact. It makes 2 + ⌈n_iter / 2⌉ products with XᵀX,
        which together are at least as exact as n_iter power iterations.
    n_oversamples : int, default=10
        Extra columns of "randomized"; more make slowly falling spectra more exact.
    power_iteration_normalizer : {"auto", "QR", "LU", "none"}, default="auto"
        For compatibility; the basis is always orthonormal.
    random_state : int or RandomState, optional
        Seed for the random start.
    tol : float, default=0.0
        When "arpack" and "power" stop; 0 is as exact as the type allows.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        Right singular vectors; the largest entry of each is positive.
    singular_values_ : ndarray of shape (n_components,)
        Their values, descending.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
        Variance of each feature of ``transform(X)``, and its share of the total.

    Notes
    -----
    Minimises the squared error over matrices of rank k, (1). A product costs O(nnz (k + oversamples)).

    References
    ----------
    .. [1] C. Eckart, G. Young (1936). The approximation of one matrix by another of lower rank.
       Psychometrika 1, 211-218.

    Examples
    --------
    >>> from scipy.sparse import random
    >>> from corollary import TruncatedSVD
    >>> X = random(200, 100, density=0.05, random_state=0)
    >>> TruncatedSVD(5, random_state=0).fit_transform(X).shape
    (200, 5)
    """

    _checks = {"accept_sparse": ("csr", "csc"), "ensure_min_features": 2}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "algorithm": [StrOptions({"arpack", "randomized", "exact", "power"})],
        "n_iter": [Interval(Integral, 0, None, closed="left")],
        "n_oversamples": [Interval(Integral, 1, None, closed="left")],
        "power_iteration_normalizer": [StrOptions({"auto", "QR", "LU", "none"})],
        "random_state": ["random_state"],
        "tol": [Interval(Real, 0, None, closed="left")],
    }
    _fitted = {
        "components_": Array("rank", "n_features_in_"),
        "singular_values_": Array("rank"),
        "explained_variance_": Array("rank"),
        "explained_variance_ratio_": Array("rank"),
    }

    def __init__(
        self,
        n_components=2,
        *,
        algorithm="randomized",
        n_iter=5,
        n_oversamples=10,
        power_iteration_normalizer="auto",
        random_state=None,
        tol=0.0,
    ):
        self.n_components = n_components
        self.algorithm = algorithm
        self.n_iter = n_iter
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.tol = tol

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2}

    def _learner(self, data: Data) -> Any:
        X, k = data.X, self.n_components
        self._check_rank(X, k)
        if self.algorithm == "power":
            tol = self.tol or 10 * float(np.finfo(X.dtype).eps) ** 0.75
            learner: Any = PowerMethod(operator(X), k, self._rng(), 1000, tol)
        else:
            solve = {"randomized": self._krylov, "arpack": self._lanczos, "exact": self._lapack}[
                self.algorithm
            ]
            seed = self._seed()
            learner = Once(lambda: solve(X, k, seed))
        learner.moments = (
            mean_variance_axis(X, axis=0) if sparse.issparse(X) else (X.mean(axis=0), X.var(axis=0))
        )
        learner.n = X.shape[0]
        return learner

    def _check_rank(self, X: Any, k: int) -> None:
        least = min(X.shape)
        if self.algorithm == "exact" and sparse.issparse(X):
            raise errors.kind(
                "TruncatedSVD", 'algorithm="exact" takes dense data', "a sparse matrix", 'Use "arpack".'
            )
        if k > X.shape[1]:
            raise ValueError(f"n_components({k}) must be <= n_features({X.shape[1]}).")
        if k > least or (self.algorithm == "arpack" and k == least):
            bound = "less than" if self.algorithm == "arpack" else "at most"
            raise errors.value(
                "TruncatedSVD", f"n_components must be {bound} min(n_samples, n_features)={least}", k
            )

    def _krylov(self, X: Any, k: int, seed: int) -> State:
        A = operator(X)
        found = krylov_svd(A, k, blocks=2 + (self.n_iter + 1) // 2, oversample=self.n_oversamples, seed=seed)
        return {"values": found.values.numpy(), "rows": found.rows.numpy()}

    def _lanczos(self, X: Any, k: int, seed: int) -> State:
        start = np.random.default_rng(seed).uniform(-1, 1, min(X.shape)).astype(X.dtype)
        _, s, Vt = svds(X, k=k, tol=self.tol, v0=start)
        return {"values": s[::-1].copy(), "rows": Vt[::-1].copy()}

    def _lapack(self, X: np.ndarray, k: int, seed: int) -> State:
        _, s, Vt = torch.linalg.svd(as_tensor(X), full_matrices=False)
        return {"values": s[:k].numpy().copy(), "rows": Vt[:k].numpy().copy()}

    def _adopt(self, learner: Any) -> None:
        found = (
            learner.results if isinstance(learner, Once) else {"values": learner.values, "rows": learner.rows}
        )
        rows = np.ascontiguousarray(
            svd_flip(None, np.asarray(as_tensor(found["rows"])), u_based_decision=False)[1]
        )
        self.components_, self.singular_values_ = rows, as_tensor(found["values"]).numpy()
        mean, variance = (np.asarray(part, np.float64) for part in learner.moments)
        second = self.singular_values_.astype(np.float64) ** 2 / learner.n  # mean square of X v
        self.explained_variance_ = np.maximum(second - (rows @ mean) ** 2, 0).astype(rows.dtype)
        self.explained_variance_ratio_ = self.explained_variance_ / (variance.sum() or 1.0)

    def _transform(self, X: Any) -> np.ndarray:
        if sparse.issparse(X) and X.format == "csr" and X.dtype == self.components_.dtype:
            return (sparse_tensor(X) @ as_tensor(self.components_.T)).numpy()
        return np.asarray(X @ self.components_.T)

    def _inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        return Z @ self.components_

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = self.algorithm != "exact"
        return tags
