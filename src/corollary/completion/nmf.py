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
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.decomposition import _nmf as reference
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Data, Estimator, Transformer
from corollary.completion.nmf_learners import SOLVERS, Factorisation
from corollary.data.sources import Source
from corollary.linalg.moments import has_nan, moments_of
from corollary.shapes import Array, Count, Number

__all__ = ["NMF"]


class _Start(tuple):
    """First factors given by the user, and the learner made from them: only it has the final W."""

    learner: Factorisation


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

    def _learner(self, data: Data) -> Factorisation:
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

    def _adopt(self, learner: Factorisation) -> None:
        self.components_ = np.ascontiguousarray(learner.Ht.T)
        self.n_components_ = len(self.components_)
        self.n_iter_ = learner.n_iter
        self.reconstruction_err_ = math.sqrt(2 * max(0.0, learner.divergence()))
        self._warn(learner)

    def _warn(self, learner: Factorisation) -> None:
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
        """Return the seed for scikit-learn's own functions, so that they never use the global state."""
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
