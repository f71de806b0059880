"""Direct solvers of PCA: LAPACK, covariance eigenvectors, block Krylov, ARPACK; and how the data are centred for them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import torch
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.decomposition._pca import _infer_dimension
from sklearn.utils.sparsefuncs import mean_variance_axis
from torch import Tensor

from corollary.base import as_tensor
from corollary.data.sources import Source
from corollary.engine.learner import State
from corollary.engine.run import current
from corollary.linalg import Centred, krylov_svd, largest_eigenpairs, sum_of_squares
from corollary.linalg.moments import CentredBlocks, moments_of
from corollary.linear import latent

__all__ = ["arpack", "centred", "covariance", "filled_start", "full", "krylov", "moments"]

MEAN_HEAVY = 4.0  # squared mean over variance from which float32 rows are centred by a copy
SMALL_NOISE = 1e-6  # of the variance: EM starts from no less, for from zero it never moves


def full(X: np.ndarray, k: Any) -> State:
    """Return the exact decomposition, eq. 1, by LAPACK."""
    mean = X.mean(axis=0)
    _, s, Vt = linalg.svd(X - mean, full_matrices=False)
    return _cut(mean, s, Vt, k, len(X))


def covariance(X: Any, k: Any) -> State:
    """Return the eigenvectors of the covariance; the data are centred only where float32 would cancel."""
    n = X.shape[0]
    if isinstance(X, Source):
        found = moments_of(X)
        result = _eigen(found.scatter, found.mean, k, n)
        return {**result, **{name: result[name].astype(X.dtype) for name in ("mean", "values", "rows")}}
    if sparse.issparse(X):
        mean = mean_variance_axis(X, axis=0)[0].astype(X.dtype)
        C = (X.T @ X).toarray()  # (d, d); X itself stays sparse
    else:
        rows = X[current().shard(n)]
        mean, C = _blas_mean(rows, n), _scatter(rows)
        if X.dtype == np.float32 and (n * mean**2 > MEAN_HEAVY / (1 + MEAN_HEAVY) * C.diagonal()).any():
            return _eigen(_scatter(rows - mean), mean, k, n)
    return _eigen(C - n * np.outer(mean, mean), mean, k, n)


def _scatter(rows: np.ndarray) -> np.ndarray:
    """Return XᵀX of all processes' rows, whatever their layout; NumPy sees that it is symmetric and computes half of it."""
    return current().sum(torch.from_numpy(rows.T @ rows)).numpy()  # type: ignore[no-any-return]


def _eigen(C: np.ndarray, mean: np.ndarray, k: Any, n: int) -> State:
    d = len(C)
    if not (isinstance(k, Integral) and 0 < k < d):
        e, rows = largest_eigenpairs(C, d)
        return _cut(mean, np.sqrt(np.maximum(e, 0)), rows, k, n)
    e, rows = largest_eigenpairs(C, int(k))
    total = float(np.trace(C, dtype=np.float64))
    left = max(0.0, total - float(e.sum(dtype=np.float64))) / (n - 1)
    return {
        "mean": mean,
        "values": np.sqrt(np.maximum(e, 0)),
        "rows": rows,
        "total": total / (n - 1),
        "left": left,
    }


def _cut(mean: np.ndarray, s: np.ndarray, rows: np.ndarray, k: Any, n: int) -> State:
    """Keep as many components as are asked for, of a whole spectrum."""
    variance = s.astype(np.float64) ** 2 / (n - 1)
    total = float(variance.sum())
    if k == "mle":
        k = int(_infer_dimension(variance, n))
    elif 0 < k < 1:
        share = np.cumsum((variance / total).astype(s.dtype))
        k = int(np.searchsorted(share, k, side="right")) + 1
    k = int(k)
    left = float(variance[k : min(n, rows.shape[1])].sum())
    return {"mean": mean, "values": s[:k], "rows": rows[:k], "total": total, "left": left}


def krylov(X: Any, k: int, **options: Any) -> State:
    """Return the largest triplets by block Krylov; see :func:`corollary.linalg.krylov_svd`."""
    mean, total = moments(X)
    found = krylov_svd(centred(X, mean, total), k, **options)
    values, rows = (part.numpy().astype(X.dtype, copy=False) for part in found)
    return {"mean": mean.numpy(), "values": values, "rows": rows, "total": total}


def arpack(X: Any, k: int, tol: float, seed: int) -> State:
    """Return the largest triplets by ARPACK's Lanczos iteration."""
    mean, total = moments(X)
    m = mean.numpy()
    A: Any = X - m if not sparse.issparse(X) else _implicit(X, m)
    first = np.random.default_rng(seed).uniform(-1, 1, min(X.shape)).astype(X.dtype)
    _, s, Vt = svds(A, k=k, tol=tol, v0=first)
    return {"mean": m, "values": s[::-1].copy(), "rows": Vt[::-1].copy(), "total": total}


def _implicit(X: Any, m: np.ndarray) -> LinearOperator:
    return LinearOperator(
        X.shape,
        matvec=lambda v: X @ v - m @ v,
        rmatvec=lambda u: X.T @ u - m * u.sum(),
        matmat=lambda V: X @ V - m @ V,
        rmatmat=lambda U: X.T @ U - np.outer(m, U.sum(axis=0)),
        dtype=X.dtype,
    )


# --- data ------------------------------------------------------------------------------------------------


def moments(X: Any) -> tuple[Tensor, float]:
    """Return the mean (d,) and the total variance over all processes."""
    n = X.shape[0]
    if isinstance(X, Source):
        found = moments_of(X, diagonal=True)
        return torch.from_numpy(found.mean), float(found.scatter.sum()) / max(n - 1, 1)
    if sparse.issparse(X):
        mean, variance = mean_variance_axis(X, axis=0)
        return as_tensor(mean), float(variance.sum(dtype=np.float64)) * n / max(n - 1, 1)
    run = current()
    rows = as_tensor(X[run.shard(n)])
    mean = _mean(rows, n)
    second = float(run.sum(torch.tensor(sum_of_squares(rows), dtype=torch.float64)))
    total = second - n * float(mean @ mean)
    if total < second / (1 + MEAN_HEAVY):  # cancelled: once more, centred
        total = float(run.sum(torch.tensor(sum_of_squares(rows - mean.to(rows.dtype)), dtype=torch.float64)))
    return mean.to(rows.dtype), total / max(n - 1, 1)


def _mean(rows: Tensor, n: int, chunk: int = 4096) -> Tensor:
    """Return the mean (d,) of all processes' rows in float64; chunks are summed in their own precision."""
    parts = [torch.ones(len(part), dtype=part.dtype) @ part for part in rows.split(chunk)]
    total: Tensor = current().sum(torch.stack(parts).sum(0, dtype=torch.float64))
    return total / n


def _blas_mean(rows: np.ndarray, n: int, chunk: int = 4096) -> np.ndarray:
    """Return the same mean in the type of the rows, by NumPy: beside the scatter one pool of threads is awake, not two."""
    ones = np.ones(min(chunk, len(rows)), rows.dtype)
    total = np.zeros(rows.shape[1])
    for at in range(0, len(rows), chunk):
        part = rows[at : at + chunk]
        total += ones[: len(part)] @ part
    return (current().sum(torch.from_numpy(total)).numpy() / n).astype(rows.dtype)


def centred(X: Any, mean: Tensor, total: float) -> Any:
    """Return the operator of this process's centred rows; float64 and far-off rows are centred by a copy."""
    n = X.shape[0]
    if isinstance(X, Source):
        return CentredBlocks(X, mean.numpy())
    rows = X[current().shard(n)]
    if sparse.issparse(X):
        return Centred(rows, mean, n)
    if X.dtype == np.float64 or float(mean @ mean) > MEAN_HEAVY * total:
        return Centred(as_tensor(rows) - mean, None, n)
    return Centred(as_tensor(rows), mean, n)


def filled_start(X: np.ndarray, k: int, seed: int) -> latent.Latent:
    """Return where EM begins: the components of the data with column means in the holes."""
    mean = np.nanmean(X, axis=0, dtype=np.float64)
    filled = torch.from_numpy(np.where(np.isnan(X), 0.0, X - mean))
    found = krylov_svd(Centred(filled, None, len(X)), k, seed=seed)
    variance = found.values.square() / len(X)
    rest = max(float(filled.square().sum()) / len(X) - float(variance.sum()), 0.0)
    sigma2 = max(
        rest / max(X.shape[1] - k, 1), SMALL_NOISE * float(variance.mean()), np.finfo(np.float64).tiny
    )
    W = found.rows.T * (variance - sigma2).clamp(min=sigma2).sqrt()
    return latent.Latent(W, torch.from_numpy(mean), torch.tensor(sigma2, dtype=torch.float64))
