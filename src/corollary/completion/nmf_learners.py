"""The learners of non-negative matrix factorisation: coordinate descent, multiplicative updates, projected least squares.

Equations are those of :mod:`corollary.completion.nmf`. A sweep updates the rows of W, then, unless H is held, the rows of Hᵀ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.decomposition import _nmf as reference
from sklearn.utils import check_random_state

from corollary import linalg
from corollary.completion import nmf_kernels as kernels
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics, State
from corollary.engine.run import current
from corollary.engine.sources import blocks
from corollary.linalg.dense import packed, partial_sums, row_major, summed, unpacked

__all__ = ["SOLVERS", "CoordinateDescent", "Factorisation", "Multiplicative", "ProjectedALS"]

LARGE = 1 << 14  # entries from which a sweep over dense data reads them once, by compiled loops
CHECK_EVERY = 10  # multiplicative sweeps between two looks at the loss
SMALLEST = np.finfo(np.float64).eps  # smaller entries of H become zero under the divergences beta <= 1


class _View:
    """X or its transpose: what one half of a sweep reads."""

    def __init__(self, X: Any, masked: bool) -> None:
        self.X, self.masked, self.sparse = X, masked, sparse.issparse(X)
        self.tensor = linalg.sparse_tensor(X) if self.sparse and not masked else None

    def dot(self, B: np.ndarray, rows: slice) -> np.ndarray:
        """Return these rows of X B."""
        other = torch.from_numpy(B)
        if self.tensor is not None:
            return (self.tensor @ other)[rows].numpy()
        return (torch.from_numpy(self.X)[rows] @ other).numpy()

    def csr(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.X.indptr[rows.start : rows.stop + 1], self.X.indices, self.X.data


class _SourceView(_View):
    """The same for rows that stay on disk: every product reads all of them, block by block."""

    def __init__(self, X: Source, transposed: bool) -> None:
        self.X, self.masked, self.transposed = X, False, transposed

    def dot(self, B: np.ndarray, rows: slice) -> np.ndarray:
        """Return these rows of X B, or of Xᵀ B."""
        if not self.transposed:
            found = [block @ B for _, block in blocks(self.X, rows)]
            return np.concatenate(found).astype(B.dtype)
        total = np.zeros((self.X.shape[1], B.shape[1]))
        for part, block in blocks(self.X):
            total += block.T @ B[part]
        return total[rows].astype(B.dtype)


class Factorisation(Iteration):
    """Sweeps over W and, unless it is held, H; several processes share the rows of each."""

    shares = True
    saved = ("W", "Ht", "rng", "loss", "first")

    def __init__(self, model: Any, X: Any, W: np.ndarray, H: np.ndarray, masked: bool, hold_H: bool) -> None:
        super().__init__(model.max_iter)
        self.W, self.Ht, self.hold_H, self.tol = (
            np.ascontiguousarray(W),
            np.ascontiguousarray(H.T),
            hold_H,
            model.tol,
        )
        self.beta = reference._beta_loss_to_float(model.beta_loss)
        self.shuffle, self.rng = model.shuffle, check_random_state(model._numpy_seed())
        self.penalties = model._penalties(X.shape)
        self.X, self.masked = X, masked
        if isinstance(X, Source):
            self.rows, self.columns = _SourceView(X, False), None if hold_H else _SourceView(X, True)
            self.loss = self.first = math.inf
            return
        self.rows: Any = _View(X, masked)
        self.columns: Any = None if hold_H else _View(X.T.tocsr() if sparse.issparse(X) else X.T, masked)
        self.loss = self.first = math.inf

    def halves(self) -> Any:
        """Yield what each half of a sweep works on: the data, the factor to update, the other factor, the penalties."""
        yield self.rows, self.W, self.Ht, self.penalties[0]
        if not self.hold_H:
            yield self.columns, self.Ht, self.W, self.penalties[1]

    def divergence(self) -> float:
        """Return the loss of eq. 1 without penalties."""
        if isinstance(self.X, Source):
            H = self.Ht.T
            return 0.5 * sum(
                float(np.square(block - self.W[rows] @ H).sum()) for rows, block in blocks(self.X)
            )
        if self.beta == 2 and isinstance(self.X, np.ndarray):
            # by torch: threads of NumPy's product would go on spinning beside those of the loops
            X, W, Ht = (torch.from_numpy(part) for part in (self.X, self.W, self.Ht))
            return 0.5 * linalg.sum_of_squares(torch.addmm(X, W, Ht.T, alpha=-1))
        if not sparse.issparse(self.X) or (self.beta not in (1, 2)):
            return float(reference._beta_divergence(self.X, self.W, self.Ht.T, self.beta))
        if self.beta == 2 and not self.masked:
            return float(reference._beta_divergence(self.X, self.W, self.Ht.T, 2))
        parts = np.zeros(len(self.W))
        whole = self.rows.csr(slice(0, len(self.W)))
        kernels.divergence_known(*whole, self.W, self.Ht, self.beta == 2, parts)
        total = float(parts.sum())
        if not self.masked:  # entries that are not stored are zeros, whose divergence is (WH)_ij
            everywhere = self.W.sum(0, dtype=np.float64) @ self.Ht.sum(0, dtype=np.float64)
            stored = np.zeros(len(self.W))
            ones = (whole[0], whole[1], np.zeros_like(whole[2]))
            kernels.divergence_known(*ones, self.W, self.Ht, False, stored)
            total += float(everywhere) - float(stored.sum())
        return total


def _gathered(A: np.ndarray, rows: slice) -> None:
    """Give every process what the others did to their rows."""
    run = current()
    if run.world > 1:
        mine = np.zeros_like(A)
        mine[rows] = A[rows]
        A[:] = run.sum(mine)


class CoordinateDescent(Factorisation):
    """HALS, eq. 2 left, on Gram matrices.

    Dense data are read once a sweep: a pass over the rows of X that updates W gives XᵀW on the way, and
    one over columns that lie together updates H and gives the X Hᵀ of the next sweep. Where H is held, X Hᵀ stays.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.products: list[Any] = [None, None]  # X Hᵀ and XᵀW, where a pass has left them
        dense = isinstance(self.X, np.ndarray) and self.X.size >= LARGE and not self.hold_H
        self.fused = (0 if row_major(self.X) else 1) if dense else None  # the half that reads X

    def restore(self, state: State) -> None:
        """Go back to a snapshot; products that are at hand belong to other factors."""
        super().restore(state)
        self.products = [None, None]

    def sweep(self) -> Metrics:
        """Go once over all coordinates of W and H."""
        total = self._half(0) + (0.0 if self.hold_H else self._half(1))
        self.first = total if self.n_iter == 1 else self.first
        self.converged = self.first == 0 or total / self.first <= self.tol
        return {"violation": total}

    def _half(self, half: int) -> float:
        """Descend on the rows of W (half 0) or of Hᵀ (1); return the sum of their projected gradients."""
        run, (l1, l2), view = current(), self.penalties[half], (self.rows, self.columns)[half]
        A, B = (self.W, self.Ht) if half == 0 else (self.Ht, self.W)
        rows, order = run.shard(len(A)), self._order()
        part, violation = A[rows], np.zeros(rows.stop - rows.start)
        l1, l2 = A.dtype.type(l1), A.dtype.type(l2)
        if self.masked:
            kernels.descend_known(*view.csr(rows), part, B, l1, l2, order, violation)
        elif half == self.fused:
            sums = partial_sums(len(part), len(B), B.shape[1], A.dtype)
            kernels.descend_dense(view.X[rows], part, _gram(B, l2), packed(B), l1, order, violation, sums)
            whole = run.sum(unpacked(sums.sum(0), B.shape[1]))
            self.products[1 - half] = whole[run.shard(len(B))]
        else:
            C = self._product(half, rows) - l1
            kernels.descend_rows(part, _gram(B, l2), C, order, violation)
        _gathered(A, rows)
        return float(run.sum(np.array(violation.sum())))

    def _product(self, half: int, rows: slice) -> np.ndarray:
        """Return these rows of X Hᵀ (half 0) or XᵀW (1): what a pass has left, or a product made for this."""
        if self.products[half] is not None:
            return self.products[half]  # type: ignore[no-any-return]
        if half == 0 and self.fused == 1:  # no pass has been made yet, or a resume has forgotten what it left
            mine = current().shard(len(self.Ht))
            return current().sum(summed(self.X.T[mine], self.Ht[mine]))[rows]  # type: ignore[no-any-return]
        view, B = (self.columns, self.W) if half else (self.rows, self.Ht)
        found: np.ndarray = view.dot(B, rows)
        self.products[half] = found if self.hold_H else None
        return found

    def _order(self) -> np.ndarray:
        K = self.W.shape[1]
        return self.rng.permutation(K) if self.shuffle else np.arange(K)


def _gram(B: np.ndarray, l2: float) -> np.ndarray:
    """Return BᵀB with the squared penalty on its diagonal."""
    G = np.ascontiguousarray(summed(B, B))
    G.flat[:: len(G) + 1] += B.dtype.type(l2)
    return G


class Multiplicative(Factorisation):
    """Multiplicative updates: eq. 3 on stored entries, scikit-learn's for dense data and other divergences."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first = self.loss = math.sqrt(2 * max(0.0, self.divergence()))
        self.fused = self.masked or (sparse.issparse(self.X) and self.beta == 1)

    def sweep(self) -> Metrics:
        """Multiply all entries of W and H once."""
        self._fused() if self.fused else self._dense()
        if self.tol > 0 and self.n_iter % CHECK_EVERY == 0:
            loss = math.sqrt(2 * max(0.0, self.divergence()))
            self.converged = (self.loss - loss) < self.tol * self.first
            self.loss = loss
        return {"loss": self.loss}

    def _fused(self) -> None:
        run = current()
        for view, A, B, (l1, l2) in self.halves():
            rows, dtype = run.shard(len(A)), A.dtype.type
            sums = np.empty(0, A.dtype) if self.masked else B.sum(0)
            kernels.multiply_rows(*view.csr(rows), A[rows], B, sums, dtype(l1), dtype(l2), self.beta == 2)
            _gathered(A, rows)
        if self.beta <= 1 and not self.hold_H:
            self.Ht[self.Ht < SMALLEST] = 0

    def _dense(self) -> None:
        beta, H = self.beta, np.ascontiguousarray(self.Ht.T)
        gamma = 1.0 / (2 - beta) if beta < 1 else (1.0 / (beta - 1) if beta > 2 else 1.0)
        (l1, l2), (m1, m2) = self.penalties
        self.W = reference._multiplicative_update_w(
            self.X, self.W, H, beta, l1, l2, gamma, update_H=not self.hold_H
        )[0]
        if beta < 1:
            self.W[self.W < SMALLEST] = 0
        if not self.hold_H:
            H = reference._multiplicative_update_h(self.X, self.W, H, beta, m1, m2, gamma)
            if beta <= 1:
                H[H < SMALLEST] = 0
            self.Ht = np.ascontiguousarray(H.T)


class ProjectedALS(Factorisation):
    """Least squares clipped at zero, eq. 2 right; a heuristic, whose loss may rise."""

    def sweep(self) -> Metrics:
        """Solve for W, then for H."""
        for view, A, B, (l1, l2) in self.halves():
            every = slice(0, len(A))
            other = torch.from_numpy(B)
            G = (other.T @ other).double().numpy()
            ridge = l2 + 1e-10 * max(np.trace(G), 1e-300)  # factors that died would make G singular
            solved = np.linalg.solve(
                G + ridge * np.eye(len(G)), (view.dot(B, every).astype(np.float64) - l1).T
            )
            A[:] = np.maximum(solved.T, 0)
        loss = math.sqrt(2 * max(0.0, self.divergence()))
        self.first = loss if self.n_iter == 1 else self.first
        self.converged = self.n_iter > 1 and abs(self.loss - loss) <= self.tol * self.first
        self.loss = loss
        return {"loss": loss}


SOLVERS = {"cd": CoordinateDescent, "mu": Multiplicative, "als": ProjectedALS}
