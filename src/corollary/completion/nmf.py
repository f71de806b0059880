r"""Non-negative matrix factorisation.

:math:`X \approx W H` with :math:`W, H \ge 0`, by minimising

.. math::
    \sum_{ij \in \Omega} d(x_{ij}, (WH)_{ij}) + \text{penalties}, \qquad
    d = \tfrac12 (x - y)^2 \ \text{ or }\ x \log \tfrac xy - x + y \ \text{ or another } \beta\text{-divergence}, \tag{1}

where :math:`\Omega` are all entries, or the known ones where some are missing. With the other factor fixed, the
squared loss of a row :math:`w` is a quadratic with :math:`G = H H^\top` and :math:`c = H x`; the exact step along
one coordinate (HALS, coordinate descent) and the solution clipped at zero (projected ALS) are

.. math::
    w_k \leftarrow \max\big(0,\ w_k - ((G w)_k - c_k + \lambda_1) / G_{kk}\big), \qquad
    w \leftarrow \max\big(0,\ (G + \lambda_2 I)^{-1} (c - \lambda_1)\big), \tag{2}

and for the Kullback-Leibler divergence the multiplicative step, which needs the stored entries of a sparse row only,

.. math::
    w_k \leftarrow w_k\, \frac{\sum_j h_{kj}\, x_j / (wH)_j}{\sum_j h_{kj} + \lambda_1 + \lambda_2 w_k}. \tag{3}
"""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.decomposition import _nmf as reference
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from corollary import errors, linalg
from corollary.base import Data, Estimator, Transformer
from corollary.completion import nmf_kernels as kernels
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics, State
from corollary.engine.run import current
from corollary.engine.sources import blocks
from corollary.linalg.dense import packed, partial_sums, row_major, summed, unpacked
from corollary.linalg.moments import has_nan, moments_of
from corollary.shapes import Array, Count, Number

__all__ = ["NMF"]

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


class _Factorisation(Iteration):
    """Sweeps over W and, unless it is held, H; several processes share the rows of each."""

    shares = True
    saved = ("W", "Ht", "rng", "loss", "first")

    def __init__(self, model: NMF, X: Any, W: np.ndarray, H: np.ndarray, masked: bool, hold_H: bool) -> None:
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


class CoordinateDescent(_Factorisation):
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


class Multiplicative(_Factorisation):
    """Multiplicative updates: eq. 3 on stored entries, scikit-learn's for dense data and other divergences."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first = self.loss = math.sqrt(2 * max(0.0, self.divergence()))
        self.fused = self.masked or (sparse.issparse(self.X) and self.beta == 1)

    def sweep(self) -> Metrics:
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


class ProjectedALS(_Factorisation):
    """Least squares clipped at zero, eq. 2 right; a heuristic, whose loss may rise."""

    def sweep(self) -> Metrics:
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


class _Start(tuple):
    """First factors given by the user, and the learner made from them: only it has the final W."""

    learner: _Factorisation


SOLVERS = {"cd": CoordinateDescent, "mu": Multiplicative, "als": ProjectedALS}


class NMF(ClassNamePrefixFeaturesOutMixin, Transformer, Estimator):
    """Factorise a non-negative matrix into two non-negative factors.

    A drop-in for scikit-learn's class that also takes missing entries (NaN), resumes, and is several
    times faster for the Kullback-Leibler divergence of sparse counts.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Parts. More fit better; "auto" takes those of a custom H, else as None the number of features.
    init : {"random", "nndsvd", "nndsvda", "nndsvdar", "custom"}, optional
        First factors; by default "nndsvda" where n_components allows it, else "random".
    solver : {"cd", "mu", "als"}, default="cd"
        Coordinate descent (HALS), multiplicative updates, or projected alternating least squares.
    beta_loss : float or {"frobenius", "kullback-leibler", "itakura-saito"}, default="frobenius"
        The divergence; other than "frobenius" only with "mu".
    tol : float, default=1e-4
        Stop when the projected gradient ("cd"), or the decrease of the loss, is below this share of the first one; smaller
        takes longer.
    max_iter : int, default=200
        Most sweeps over both factors.
    random_state : int or RandomState, optional
        Seed for random first factors and the order of coordinates.
    alpha_W : float, default=0.0
        Weight of the penalty on W; raising it shrinks it.
    alpha_H : float or "same", default="same"
        Weight of the penalty on H.
    l1_ratio : float, default=0.0
        Share of the penalty that is absolute rather than squared; raising it makes the factors sparser.
    verbose : int, default=0
        Whether to show a progress bar, as ``Run(progress=True)`` does for any fit.
    shuffle : bool, default=False
        Whether "cd" visits the coordinates in random order.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        H, the parts.
    n_components_ : int
        Their number.
    reconstruction_err_ : float
        Root of twice the divergence on the known entries.
    n_iter_ : int
        Sweeps done.
    history_ : list of dict
        Step, loss (or violation of the optimality conditions) and seconds.

    Notes
    -----
    Minimises eq. (1) of the module's page. A sweep costs O(n m k) for dense X, O(k) per stored entry for
    sparse or incomplete X, and O((n + m) k^2) for "cd". A row without known entries gets zeros. Complete rows on disk
    (:mod:`corollary.data.sources`) are read in blocks, twice a sweep, by "cd" and "als" from random or custom first factors
    (random is then the default); anything else takes them into memory.

    References
    ----------
    .. [1] A. Cichocki, A.-H. Phan (2009). Fast local algorithms for large scale nonnegative matrix and
       tensor factorizations. IEICE Transactions E92-A(3), 708-721.
    .. [2] D. D. Lee, H. S. Seung (2001). Algorithms for non-negative matrix factorization. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import NMF
    >>> X = np.outer([1.0, 2, 3], [1.0, 0, 2])
    >>> X[2, 2] = np.nan
    >>> model = NMF(1, random_state=0)
    >>> float((model.fit_transform(X) @ model.components_)[2, 2].round(2))
    6.0
    """

    _checks = {"accept_sparse": ("csr", "csc"), "ensure_all_finite": "allow-nan"}
    _reads_sources = True
    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None, StrOptions({"auto"})],
        "init": [StrOptions({"random", "nndsvd", "nndsvda", "nndsvdar", "custom"}), None],
        "solver": [StrOptions(set(SOLVERS))],
        "beta_loss": [StrOptions({"frobenius", "kullback-leibler", "itakura-saito"}), Real],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "alpha_W": [Interval(Real, 0, None, closed="left")],
        "alpha_H": [Interval(Real, 0, None, closed="left"), StrOptions({"same"})],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "verbose": ["verbose"],
        "shuffle": ["boolean"],
    }
    _fitted = {
        "n_components_": Count(1),
        "components_": Array("n_components_", "n_features_in_", low=0),
        "reconstruction_err_": Number(),
    }

    def __init__(
        self,
        n_components="auto",
        *,
        init=None,
        solver="cd",
        beta_loss="frobenius",
        tol=1e-4,
        max_iter=200,
        random_state=None,
        alpha_W=0.0,
        alpha_H="same",
        l1_ratio=0.0,
        verbose=0,
        shuffle=False,
    ):
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.beta_loss = beta_loss
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.verbose = verbose
        self.shuffle = shuffle

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2, "max_iter": 500}

    @classmethod
    def _test_data(cls) -> tuple[np.ndarray, None]:
        return np.random.default_rng(0).gamma(1.0, size=(40, 6)), None

    # --- fitting -----------------------------------------------------------------------------------------

    def fit(self, X, y=None, W=None, H=None):
        """Factorise X, dense (NaN where unknown) or sparse; W and H are first factors for init="custom"."""
        self.fit_transform(X, W=W, H=H)
        return self

    def fit_transform(self, X, y=None, W=None, H=None):
        """Factorise X and return W (n_samples, n_components)."""
        start = _Start((W, H))
        self._fit(X, None, None, start)
        return start.learner.W

    def _learner(self, data: Data) -> _Factorisation:
        given = self._within_reach(data.X)
        X, masked = self._prepared(given)
        self._check_solver(masked)
        if masked and (np.diff(X.tocsc().indptr) == 0).any():
            column = int(np.flatnonzero(np.diff(X.tocsc().indptr) == 0)[0])
            must = "every column must have a known entry"
            raise errors.value("NMF", must, f"only NaN in column {column}", "Leave it out.")
        W, H = self._first(given, *data.extra)
        learner = SOLVERS[self.solver](self, X, W, H, masked, False)
        data.extra.learner = learner
        return learner

    def _adopt(self, learner: _Factorisation) -> None:
        self.components_ = np.ascontiguousarray(learner.Ht.T)
        self.n_components_ = len(self.components_)
        self.n_iter_ = learner.n_iter
        self.reconstruction_err_ = math.sqrt(2 * max(0.0, learner.divergence()))
        self._warn(learner)

    def _warn(self, learner: _Factorisation) -> None:
        if learner.n_iter == self.max_iter and self.tol > 0:
            text = "Maximum number of iterations %d reached. Increase it to improve convergence."
            warnings.warn(text % self.max_iter, ConvergenceWarning, stacklevel=2)

    def _within_reach(self, X: Any) -> Any:
        """Return X; rows on disk come into memory where the sums over blocks do not suffice.

        The Kullback-Leibler divergence needs only the entries that are not zero.
        """
        if not isinstance(X, Source):
            return X
        complete = not has_nan(X)
        if self.solver != "mu" and self.init in (None, "random", "custom") and complete:
            return X
        if complete and reference._beta_loss_to_float(self.beta_loss) == 1:
            return sparse.vstack([sparse.csr_matrix(block) for block in X.blocks()], format="csr")
        return X[:]

    def _prepared(self, X: Any) -> tuple[Any, bool]:
        """Return X, or the known entries of an incomplete one as CSR, and which of the two."""
        if isinstance(X, Source):
            for block in X.blocks():
                self._prepared(block)
            return X, False
        values = X.data if sparse.issparse(X) else X
        missing = bool(np.isnan(values).any())
        if np.nanmin(values, initial=0) < 0:
            raise ValueError("Negative values in data passed to NMF (input X)")
        if sparse.issparse(X):
            if missing:
                do = "Pass a dense array with NaN where entries are unknown."
                raise errors.value("NMF", "stored entries of a sparse X must be known", "NaN", do)
            return X.tocsr(), False
        if not missing:
            return X if X.flags.writeable else X.copy(), False  # of a DataFrame; torch would warn
        rows, columns = np.nonzero(~np.isnan(X))
        return sparse.csr_matrix((X[rows, columns], (rows, columns)), shape=X.shape), True

    def _check_solver(self, masked: bool) -> None:
        if self.solver != "mu" and self.beta_loss not in (2, "frobenius"):
            raise ValueError(
                f"Invalid beta_loss parameter: solver {self.solver!r} does not handle beta_loss = {self.beta_loss!r}"
            )
        if self.solver == "mu" and self.init == "nndsvd":
            text = (
                "The multiplicative update ('mu') solver cannot update zeros present in the initialization, and so "
                "leads to poorer results when used jointly with init='nndsvd'. You may try init='nndsvda' or "
                "init='nndsvdar' instead."
            )
            warnings.warn(text, UserWarning, stacklevel=2)
        if masked and self.solver == "als":
            raise errors.value("NMF", 'solver="als" needs complete data', "NaN", 'Take solver="cd".')
        if masked and reference._beta_loss_to_float(self.beta_loss) not in (1, 2):
            must = 'missing entries need beta_loss "frobenius" or "kullback-leibler"'
            raise errors.value("NMF", must, repr(self.beta_loss))

    def _first(self, X: Any, W: Any, H: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the first factors."""
        count = X.shape[1] if self.n_components is None else self.n_components
        self._check_zeros(X)
        if self.init == "custom":
            reference._check_init(H, (count, X.shape[1]), "NMF (input H)")
            reference._check_init(W, (X.shape[0], count), "NMF (input W)")
            if H.dtype != X.dtype or W.dtype != X.dtype:
                raise TypeError(
                    f"H and W should have the same dtype as X. Got H.dtype = {H.dtype} and W.dtype = {W.dtype}."
                )
            return W.copy(), H.copy()
        if W is not None or H is not None:
            text = "When init!='custom', provided W or H are ignored. Set  init='custom' to use them as initialization."
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        if isinstance(X, Source):
            return self._random_first(X, X.shape[1] if count == "auto" else count)
        if not sparse.issparse(X) and np.isnan(X).any():
            X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
        count = X.shape[1] if count == "auto" else count
        return reference._initialize_nmf(X, count, init=self.init, random_state=self._numpy_seed())

    def _random_first(self, X: Source, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scikit-learn's random first factors, of the data's size."""
        (n, m), random = X.shape, check_random_state(self._numpy_seed())
        scale = math.sqrt(float(moments_of(X, diagonal=True).mean.mean()) / count)
        H = scale * random.standard_normal(size=(count, m)).astype(X.dtype, copy=False)
        W = scale * random.standard_normal(size=(n, count)).astype(X.dtype, copy=False)
        return np.abs(W), np.abs(H)

    def _check_zeros(self, X: Any) -> None:
        if reference._beta_loss_to_float(self.beta_loss) <= 0 and X.min() == 0:
            raise ValueError(
                "When beta_loss <= 0 and X contains zeros, the solver may diverge. Please add small values to X, "
                "or use a positive beta_loss."
            )

    def _numpy_seed(self) -> Any:
        """Return what scikit-learn's own functions may draw from: never the global state."""
        return self._seed() if self.random_state is None else self.random_state

    def _penalties(self, shape: tuple[int, int]) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return (absolute, squared) weights for W and for H, scaled by the length of what they explain."""
        n, m = shape
        alpha_H = self.alpha_W if self.alpha_H == "same" else self.alpha_H
        share = self.l1_ratio
        return (m * self.alpha_W * share, m * self.alpha_W * (1 - share)), (
            n * alpha_H * share,
            n * alpha_H * (1 - share),
        )

    # --- using -------------------------------------------------------------------------------------------

    def _transform(self, X: Any) -> np.ndarray:
        X, masked = self._prepared(X)
        self._check_zeros(X)
        H = self.components_.astype(X.dtype, copy=False)
        first = math.sqrt(X.mean() / len(H)) if self.solver == "mu" else 0.0
        W = np.full((X.shape[0], len(H)), first, X.dtype)
        learner = SOLVERS[self.solver](self, X, W, H, masked, True)
        while not learner.done:
            learner.step()
        self._warn(learner)
        return learner.W

    def inverse_transform(self, X):
        """Return X H, for features X (n_samples, n_components)."""
        check_is_fitted(self)
        return X @ self.components_

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that X must not be negative and that its precision stays."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
