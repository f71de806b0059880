r"""Linear algebra that several chapters share: Gram matrices, orthonormal bases, block Krylov.

The largest singular triplets of :math:`A \in \mathbb R^{n \times d}` are sought in the Krylov space

.. math:: \mathcal K = \operatorname{span}\{Q, (A^\top A) Q, \dots, (A^\top A)^{b-1} Q\}, \tag{1}

with a random block :math:`Q` of a few more columns than are wanted. For an orthonormal basis
:math:`B` of it, :math:`A B = U S W^\top` gives the values :math:`S` and the right vectors
:math:`B W` (2). The same :math:`b` products as in :math:`b` power iterations, but all of them are
kept, so that the error falls about twice as many digits a product.

References
----------
.. [1] C. Musco, C. Musco (2015). Randomized block Krylov methods for stronger and faster
   approximate singular value decomposition. NIPS.
.. [2] Y. Yamamoto, Y. Nakatsukasa, Y. Yanagisawa, T. Fukaya (2015). Roundoff error analysis of
   the CholeskyQR2 algorithm. ETNA 44, 306-326.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from corollary.engine.run import current

__all__ = [
    "Centred",
    "Operator",
    "SVD",
    "gram",
    "krylov_svd",
    "largest_eigenpairs",
    "orthonormal",
    "sparse_tensor",
    "sum_of_squares",
]

ILL_CONDITIONED = 1e-6  # smallest over largest pivot below which Cholesky is not trusted
EXHAUSTED = 100.0  # times the rounding unit: a block this small adds nothing
KRYLOV_BLOCKS = 5  # products in a cycle, unless asked for otherwise
THINNEST, THICKEST = 8, 64  # columns of a factor for which products are compiled; dense ones take any few
LARGE, LARGE_SPARSE = 2**18, 2**24  # multiplications from which that pays
RESIDUAL = 1e-6  # of the largest eigenvalue: as exact as float32 eigenvectors get


class SVD(NamedTuple):
    """Singular values (k,), descending, and right vectors as rows (k, d)."""

    values: Tensor
    rows: Tensor


class Operator(Protocol):
    """A matrix known by its products."""

    shape: tuple[int, int]
    dtype: torch.dtype

    def dot(self, Q: Tensor, out: Tensor | None = None) -> Tensor:
        """Return A Q for this process's rows, written into ``out`` if there is one."""

    def back(self, Y: Tensor) -> Tensor:
        """Return Aᵀ Y, summed over the processes."""


# --- bases -----------------------------------------------------------------------------------------------


def gram(X: Tensor) -> Tensor:
    """Return XᵀX (d, d); NumPy sees that it is symmetric and computes half of it."""
    rows = X.numpy()
    return torch.from_numpy(rows.T @ rows)


def exact_gram(X: Tensor, chunk: int = 4096) -> Tensor:
    """Return XᵀX in float64; chunks of a float32 matrix are widened one at a time, while they fit the cache."""
    total = torch.zeros(X.shape[1], X.shape[1], dtype=torch.float64)
    for part in X.split(chunk):
        wide = part.double()
        total.addmm_(wide.T, wide)
    return total


def orthonormal(Y: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns: CholeskyQR, or QR where they are nearly dependent."""
    L, info = torch.linalg.cholesky_ex(exact_gram(Y))
    pivots = L.diagonal()
    if info or not pivots.min() > ILL_CONDITIONED * pivots.max():
        return torch.linalg.qr(Y.double())[0].to(Y.dtype)
    R = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype), upper=False).T
    return Y @ R.to(Y.dtype)


def extend(basis: Tensor, block: Tensor) -> Tensor:
    """Return an orthonormal basis of what ``block`` adds to ``basis``; twice is enough."""
    for _ in range(2):
        block = orthonormal(block - basis @ (basis.T @ block))
    return block


def _krylov(A: Operator, Q: Tensor, blocks: int) -> tuple[Tensor, Tensor | list[Tensor]]:
    """Return an orthonormal basis of eq. 1 and its image under A, block by block: one tensor if all are as wide."""
    basis, first, scale = Q, A.dot(Q), 0.0
    images = first.new_empty(blocks, *first.shape)
    images[0] = first
    for i in range(1, blocks):
        room = min(A.shape) - basis.shape[1]
        if room < 1:
            return basis, images[:i]
        block = A.back(images[i - 1])
        scale = scale or float(block.norm())
        if float(block.norm()) <= EXHAUSTED * torch.finfo(block.dtype).eps * scale:
            return basis, images[:i]  # the space is invariant: what is left is rounding
        Q = extend(basis, block[:, :room])
        basis = torch.cat([basis, Q], 1)
        if Q.shape[1] < first.shape[1]:  # the space is full
            return basis, [*images[:i], A.dot(Q)]
        A.dot(Q, images[i])
    return basis, images


def _start(A: Operator, width: int, seed: int) -> Tensor:
    """Return a random orthonormal block; where rows are few, one in their span."""
    n, d = A.shape
    draws = torch.randn(
        min(n, d), min(width, n, d), dtype=A.dtype, generator=torch.Generator().manual_seed(seed)
    )
    block = A.back(draws[current().shard(n)]) if n < d else draws
    return orthonormal(orthonormal(block))  # a small random block may be ill-conditioned


# --- singular and eigenvalues ----------------------------------------------------------------------------


def krylov_svd(
    A: Operator,
    k: int,
    *,
    blocks: int = KRYLOV_BLOCKS,
    oversample: int = 8,
    seed: int = 0,
    tol: float = 0.0,
    restarts: int = 0,
) -> SVD:
    """Return the ``k`` largest singular values of A and their right vectors, eq. 1 and 2.

    Parameters
    ----------
    A : Operator
        The matrix, by its products.
    k : int
        How many triplets.
    blocks : int
        Products with AᵀA in a cycle; more are more exact.
    oversample : int
        Columns of a block beyond ``k``.
    seed : int
        For the random first block.
    tol, restarts : float and int
        Go on for up to ``restarts`` more cycles, each from the best vectors of the last, until
        no value changes by more than ``tol`` of itself.
    """
    width = k + oversample
    found = _rayleigh_ritz(*_krylov(A, _start(A, width, seed), blocks), width)
    for _ in range(restarts):
        before = found.values[:k]
        found = _rayleigh_ritz(*_krylov(A, orthonormal(found.rows.T), blocks), width)
        change = (found.values[:k] - before).abs()
        if bool((change <= tol * found.values[:k]).all()):
            break
    return SVD(found.values[:k], found.rows[:k].contiguous())


def _rayleigh_ritz(basis: Tensor, images: Tensor | list[Tensor], k: int) -> SVD:
    """Solve the small problem, eq. 2, and keep ``k`` of its triplets."""
    run = current()
    if run.world == 1 and basis.dtype == torch.float64:  # no squared condition number
        R = torch.linalg.qr(torch.cat([*images], 1), mode="r")[1]
        s, Wt = torch.linalg.svd(R, full_matrices=False)[1:]
    else:
        e, W = torch.linalg.eigh(run.sum(_gram_of(images)))
        s, Wt = e.clamp(min=0).sqrt().flip(0), W.flip(1).T
    return SVD(s[:k].to(basis.dtype), Wt[:k].to(basis.dtype) @ basis.T)


def _gram_of(images: Tensor | list[Tensor]) -> Tensor:
    """Return the products of all columns of all blocks in float64; large blocks are not put side by side."""
    if not isinstance(images, Tensor) or images.numel() * len(images) * images.shape[2] < LARGE:
        return exact_gram(torch.cat([*images], 1))
    from corollary.linalg.dense import gram_of_blocks

    return torch.from_numpy(gram_of_blocks(images.numpy()))


def largest_eigenpairs(G: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``k`` largest eigenvalues of a symmetric matrix, descending, and their vectors as rows.

    A few of many in float32 are found by block Krylov; if their residuals are not small, and in all other
    cases, LAPACK is asked for all. NumPy throughout: its threads and torch's would wait for each other.
    """
    d, width = len(G), k + 8
    if G.dtype == np.float32 and 8 * width < d:
        Q = np.random.default_rng(0).standard_normal((d, width), np.float32)
        basis = np.linalg.qr(Q)[0]
        for _ in range(KRYLOV_BLOCKS - 1):
            Q = G @ basis[:, -width:]
            for _ in range(2):
                Q = np.linalg.qr(Q - basis @ (basis.T @ Q))[0]
            basis = np.concatenate([basis, Q], 1)
        wide, moved = basis.astype(np.float64), (G @ basis).astype(np.float64)
        T = wide.T @ moved
        e, U = np.linalg.eigh((T + T.T) / 2)
        e, U = e[::-1][:k], U[:, ::-1][:, :k]
        V = wide @ U
        if np.linalg.norm(moved @ U - V * e, axis=0).max() <= RESIDUAL * e[0]:
            return e.astype(G.dtype), V.T.astype(G.dtype)
    e, V = np.linalg.eigh(G)
    return e[::-1][:k].copy(), V[:, ::-1][:, :k].T.copy()


# --- operators -------------------------------------------------------------------------------------------


class Rows:
    """A matrix by its products: a dense tensor or a SciPy matrix, by compiled loops where they pay."""

    def __init__(self, X: Any) -> None:
        self.sparse = not isinstance(X, Tensor)
        self.X = _sorted(X) if self.sparse else X
        self.size = self.X.nnz if self.sparse else X.numel()

    def dot(self, Q: Tensor, out: Tensor | None = None) -> Tensor:
        """Return X Q."""
        if self._compiles(Q.shape[1]):
            out = Q.new_empty(self.X.shape[0], Q.shape[1]) if out is None else out
            self._compiled.product(Q.numpy(), out.numpy())
            return out
        return torch.mm(self._torch if self.sparse else self.X, Q, out=out)

    def back(self, Y: Tensor) -> Tensor:
        """Return Xᵀ Y."""
        if self._compiles(Y.shape[1]):
            return torch.from_numpy(self._compiled.back_product(Y.numpy()))
        return self._transposed @ Y if self.sparse else (Y.T @ self.X).T  # the long side last: faster

    def _compiles(self, K: int) -> bool:
        if self.sparse:
            return THINNEST <= K <= THICKEST and self.size * K >= LARGE_SPARSE
        return K <= THICKEST and self.size * K >= LARGE

    @cached_property
    def _compiled(self) -> Any:
        if self.sparse:
            from corollary.linalg.sparse import SparseRows

            return SparseRows(self.X)
        from corollary.linalg.dense import DenseRows

        return DenseRows(self.X.numpy())

    @cached_property
    def _torch(self) -> Tensor:
        return sparse_tensor(self.X)

    @cached_property
    def _transposed(self) -> Tensor:
        return sparse_tensor(self.X.T)


class Centred:
    """The rows of this process, dense or sparse, minus a mean; never formed."""

    def __init__(self, X: Any, mean: Tensor | None, n: int) -> None:
        self.rows = Rows(X)
        self.mean = mean
        self.shape = (n, X.shape[1])
        self.dtype = X.dtype if isinstance(X, Tensor) else getattr(torch, X.dtype.name)

    def dot(self, Q: Tensor, out: Tensor | None = None) -> Tensor:
        """Return (X - 1 mᵀ) Q."""
        Y = self.rows.dot(Q, out)
        return Y if self.mean is None else Y.sub_(self.mean @ Q)

    def back(self, Y: Tensor) -> Tensor:
        """Return (X - 1 mᵀ)ᵀ Y, summed over the processes."""
        Z = self.rows.back(Y)
        if self.mean is not None:
            Z = Z.sub_(torch.outer(self.mean, Y.sum(0)))
        total: Tensor = current().sum(Z)
        return total


def _sorted(matrix: Any) -> Any:
    """Return a SciPy matrix as CSR with sorted columns; the given one is not changed."""
    csr = matrix.tocsr()
    return csr if csr.has_sorted_indices else csr.sorted_indices()


def sparse_tensor(matrix: Any) -> Tensor:
    """Return a SciPy matrix as torch CSR over the same memory, whose products are several times SciPy's."""
    csr = _sorted(matrix)
    parts = (torch.from_numpy(np.ascontiguousarray(part)) for part in (csr.indptr, csr.indices, csr.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")
        return torch.sparse_csr_tensor(*parts, size=csr.shape)  # type: ignore[misc, arg-type]


def sum_of_squares(X: Tensor) -> float:
    """Return the sum of squared entries of a matrix, rows summed in float64."""
    return float(torch.linalg.vector_norm(X, dim=1).double().square().sum())
