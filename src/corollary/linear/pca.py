r"""Principal component analysis.

For rows :math:`x` with mean :math:`\mu`, the :math:`k` orthonormal directions that capture the most
variance, and from which the rows are rebuilt with the least squared error, are the first right
singular vectors of the centred data

.. math:: X - 1 \mu^\top = U S V^\top, \qquad \lambda_i = s_i^2 / (n - 1), \tag{1}

the eigenvectors of the covariance :math:`C = V \Lambda V^\top`. With
:math:`\sigma^2 = \frac{1}{r - k} \sum_{i > k} \lambda_i`, :math:`r = \min(n, d)`, they are also the
maximum-likelihood fit of a Gaussian with covariance

.. math:: V_k (\Lambda_k - \sigma^2 I) V_k^\top + \sigma^2 I, \tag{2}

whose log-density is, for :math:`t = V_k^\top (x - \mu)`,

.. math::
    -\tfrac12 \Big[ d \log 2\pi + \sum_{i \le k} \Big( \log \lambda_i + \frac{t_i^2}{\lambda_i} \Big)
    + (d - k) \log \sigma^2 + \frac{\lVert x - \mu \rVert^2 - \lVert t \rVert^2}{\sigma^2} \Big]. \tag{3}
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import linalg, sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.extmath import svd_flip

from corollary import errors
from corollary.base import Data, Density, Estimator, Transformer, as_tensor
from corollary.data.sources import Source
from corollary.engine.learner import Once
from corollary.linalg.moments import has_nan
from corollary.linear import latent, pca_solvers
from corollary.linear.pca_steps import GradientAscent, Incremental, PowerMethod, Seen, merge
from corollary.shapes import Array, Count, Dtype, Maybe, Number, Text

__all__ = ["PCA"]

WHOLE = ("full", "covariance_eigh")  # solvers that know the whole spectrum
STEPPED = ("power", "gradient", "incremental", "em")
MEMORY = ("full", "arpack", "em")  # solvers that need all rows at once
WIDEST = 4096  # features up to which the covariance of rows on disk is formed
SPARSE = ("auto", "arpack", "covariance_eigh", "krylov", "power", "gradient")


class PCA(Transformer, Density, ClassNamePrefixFeaturesOutMixin, Estimator):
    """Reduce the dimension by principal component analysis: the linear projection that keeps the most variance.

    A drop-in for scikit-learn's, with more solvers, missing values, and batches. Without
    missing values and with ``svd_solver="auto"`` the choice of solver is scikit-learn's.

    Parameters
    ----------
    n_components : int, float or "mle", optional
        How many to keep; more keep more variance. A fraction keeps as many as explain that
        share; "mle" guesses by Minka's evidence. By default all.
    copy : bool, default=True
        For compatibility; the data are never overwritten.
    whiten : bool, default=False
        Whether the features are scaled to unit variance.
    svd_solver : str, default="auto"
        "full" (LAPACK), "covariance_eigh" (for many rows of few features), "randomized"
        (block Krylov, a fixed number of products), "krylov" (block Krylov until converged, also
        sparse), "arpack", "power" (one component after another), "gradient" (ascent over bases),
        "incremental" (batch by batch, for data larger than memory), "em" (missing values).
    tol : float, default=0.0
        When the iterative solvers stop; 0 is each one's own choice. Larger is sooner and coarser.
    iterated_power : int or "auto", default="auto"
        Products after the first in "randomized"; more are more exact. "auto" is 4.
    n_oversamples : int, default=10
        Extra columns in "randomized" and "krylov"; more make slowly falling spectra more exact.
    power_iteration_normalizer : {"auto", "QR", "LU", "none"}, default="auto"
        For compatibility; the basis is always orthonormal.
    random_state : int or RandomState, optional
        Seed for the random starts.
    batch_size : int, optional
        Rows per step of "incremental"; by default five times the number of features.
    max_iter : int, default=1000
        Most steps of "power" (for each component), "gradient" and "em".

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        The principal axes, by falling variance; the largest entry of each is positive.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components_,)
        Variance along each axis, and its share of the total.
    singular_values_ : ndarray of shape (n_components_,)
        Of the centred data.
    mean_ : ndarray of shape (n_features_in_,)
        Mean of each feature.
    n_components_, n_samples_ : int
        How many axes, fitted on how many rows.
    noise_variance_ : float
        The variance left over per direction, of the density (2).
    n_iter_ : int
        Steps taken.
    history_ : list of dict
        One row per step.

    Notes
    -----
    Rows that stay on disk (a memory map, a Parquet folder, a data set: :mod:`corollary.data.sources`) are read in blocks:
    "auto" sums their covariance in float64 in one pass, or merges batches if there are more than 4096 features; "randomized",
    "krylov", "power" and "gradient" read all rows for each product; "full", "arpack" and "em" read them into memory.
    Cost for n rows, d features, k components: O(n d min(n, d)) "full", O(n d²) "covariance_eigh",
    O(n d k) per product "randomized" and "krylov", O(T n d k) "power" and "gradient" for T steps,
    O(n d b) "incremental" in batches of b rows, O(p k³ + n d k²) per sweep "em" for p patterns of holes.
    NaN in the data selects "em": the likelihood of what is seen is maximised, and new rows with
    NaN are completed by their conditional mean before they are projected. Sparse data are
    never made dense; the mean is subtracted inside the products. The notes let the power method
    converge to the first eigenvector; it may converge to its negative (erratum E34).

    References
    ----------
    .. [1] C. Musco, C. Musco (2015). Randomized block Krylov methods. NIPS.
    .. [2] M. Tipping, C. Bishop (1999). Probabilistic principal component analysis. JRSS B 61, eq. 12.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import PCA
    >>> X, _ = load_iris(return_X_y=True)
    >>> PCA(2).fit(X).explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    >>> X[::7, 1] = float("nan")
    >>> PCA(2).fit(X).transform(X).shape
    (150, 2)
    """

    _checks = {"accept_sparse": ("csr", "csc"), "ensure_all_finite": "allow-nan", "ensure_min_samples": 2}
    _reads_sources = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [
            Interval(Integral, 0, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            StrOptions({"mle"}),
            None,
        ],
        "copy": ["boolean"],
        "whiten": ["boolean"],
        "svd_solver": [StrOptions({"auto", "arpack", "randomized", "krylov", *WHOLE, *STEPPED})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "iterated_power": [StrOptions({"auto"}), Interval(Integral, 0, None, closed="left")],
        "n_oversamples": [Interval(Integral, 1, None, closed="left")],
        "power_iteration_normalizer": [StrOptions({"auto", "QR", "LU", "none"})],
        "random_state": ["random_state"],
        "batch_size": [None, Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }
    _fitted = {
        "_fit_svd_solver": Text(),
        "_dtype": Maybe(Dtype()),
        "n_samples_": Count(1),
        "mean_": Array("n_features_in_"),
        "n_components_": Count(),
        "components_": Array("n_components_", "n_features_in_"),
        "explained_variance_": Array("n_components_"),
        "explained_variance_ratio_": Array("n_components_"),
        "singular_values_": Array("n_components_"),
        "noise_variance_": Number(),
        "n_samples_seen_": Maybe(Count(1)),
        "_seen_mean": Maybe(Array("n_features_in_")),
        "_seen_squares": Maybe(Number()),
    }

    def __init__(
        self,
        n_components=None,
        *,
        copy=True,
        whiten=False,
        svd_solver="auto",
        tol=0.0,
        iterated_power="auto",
        n_oversamples=10,
        power_iteration_normalizer="auto",
        random_state=None,
        batch_size=None,
        max_iter=1000,
    ):
        self.n_components = n_components
        self.copy = copy
        self.whiten = whiten
        self.svd_solver = svd_solver
        self.tol = tol
        self.iterated_power = iterated_power
        self.n_oversamples = n_oversamples
        self.power_iteration_normalizer = power_iteration_normalizer
        self.random_state = random_state
        self.batch_size = batch_size
        self.max_iter = max_iter

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2}

    # --- fitting -----------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Any:
        X, tol = data.X, self.tol
        self._fit_svd_solver, k = self._choose(X)
        if isinstance(X, Source) and self._fit_svd_solver in MEMORY:
            X = X[:]
        self.n_samples_ = X.shape[0]
        vars(self).pop("n_samples_seen_", None)  # a new fit: partial_fit begins anew
        if self._fit_svd_solver == "em":
            latent.check_holes(X, "PCA")
            self._dtype = str(X.dtype)
            return latent.EM(X, pca_solvers.filled_start(X, k, self._seed()), self.max_iter, tol or 1e-6)
        if self._fit_svd_solver == "incremental":
            return Incremental(X, k, self.batch_size or max(k, 5 * X.shape[1]))
        if self._fit_svd_solver in ("power", "gradient"):
            mean, total = pca_solvers.moments(X)
            A, eps = pca_solvers.centred(X, mean, total), np.finfo(X.dtype).eps
            kind = PowerMethod if self._fit_svd_solver == "power" else GradientAscent
            learner: Any = kind(A, k, self._rng(), self.max_iter, tol or 10 * float(eps) ** 0.75)
            learner.mean, learner.total, self._dtype = mean, total, str(X.dtype)
            return learner
        alone = ("full", "arpack", *(("covariance_eigh",) if sparse.issparse(X) else ()))
        return Once(self._closed_form(X, k), shares=self._fit_svd_solver not in alone)

    def _closed_form(self, X: Any, k: Any) -> Any:
        solver, seed, tol = self._fit_svd_solver, self._seed(), self.tol
        extra = self.n_oversamples
        if solver == "randomized":
            blocks = 5 if self.iterated_power == "auto" else self.iterated_power + 1
            return lambda: pca_solvers.krylov(X, k, oversample=extra, seed=seed, blocks=blocks)
        if solver == "krylov":
            tol = tol or 100 * float(np.finfo(X.dtype).eps)
            options = {"oversample": extra, "seed": seed, "tol": tol}
            return lambda: pca_solvers.krylov(X, k, blocks=6, restarts=self.max_iter, **options)
        if solver == "arpack":
            return lambda: pca_solvers.arpack(X, k, tol, seed)
        return lambda: (pca_solvers.full if solver == "full" else pca_solvers.covariance)(X, k)

    def _choose(self, X: Any) -> tuple[str, Any]:
        """Return the solver and the number of components, or the error that scikit-learn would give."""
        solver, wanted, least = self.svd_solver, self.n_components, min(X.shape)
        if sparse.issparse(X):
            if solver not in SPARSE:
                raise TypeError(
                    'PCA only support sparse inputs with the "arpack" and "covariance_eigh" solvers, while '
                    f'"{solver}" was passed. Also "krylov", "power" and "gradient" take them.'
                )
            if not np.isfinite(X.data).all():
                raise errors.value(
                    "PCA", "sparse data must be finite", "NaN", "Store zeros, or pass an array."
                )
            solver = "krylov" if solver == "auto" else solver
        elif has_nan(X):
            if solver not in ("auto", "em"):
                raise errors.value(
                    "PCA", f"svd_solver={solver!r} needs data without NaN", "NaN in X", 'Use svd_solver="em".'
                )
            solver = "em"
        k = least - (solver == "arpack") if wanted is None else wanted
        if solver == "auto" and isinstance(X, Source):
            solver = (
                "covariance_eigh" if X.shape[1] <= WIDEST or not isinstance(k, Integral) else "incremental"
            )
        if solver == "auto":
            solver = self._automatic(X, k)
        self._check_count(solver, k, X.shape)
        return solver, k

    def _automatic(self, X: np.ndarray, k: Any) -> str:
        if X.shape[1] <= 1000 and X.shape[0] >= 10 * X.shape[1]:
            return "covariance_eigh"
        if max(X.shape) <= 500 or k == "mle":
            return "full"
        return "randomized" if 1 <= k < 0.8 * min(X.shape) else "full"

    def _check_count(self, solver: str, k: Any, shape: tuple[int, int]) -> None:
        least, end = min(shape), f"with svd_solver={solver!r}"
        if k == "mle" and solver in WHOLE:
            if shape[0] < shape[1]:
                raise ValueError("n_components='mle' is only supported if n_samples >= n_features")
        elif k == "mle":
            raise ValueError(f"n_components={k!r} cannot be a string {end}")
        elif solver in WHOLE and not 0 <= k <= least:
            raise ValueError(
                f"n_components={k} must be between 0 and min(n_samples, n_features)={least} {end}"
            )
        elif solver not in WHOLE and (not 1 <= k <= least or isinstance(k, float)):
            raise ValueError(
                f"n_components={k!r} must be between 1 and min(n_samples, n_features)={least} {end}"
            )
        elif solver == "arpack" and k == least:
            raise ValueError(
                f"n_components={k!r} must be strictly less than min(n_samples, n_features)={least} {end}"
            )

    def _adopt(self, learner: Any) -> None:
        self.n_iter_ = learner.n_iter
        if self._fit_svd_solver == "em":
            self._adopt_latent(learner.model)
        elif self._fit_svd_solver == "incremental":
            self._adopt_seen(Seen(*learner.seen), learner.X.dtype)
        elif self._fit_svd_solver in ("power", "gradient"):
            values, rows = learner.result() if hasattr(learner, "result") else (learner.values, learner.rows)
            dtype = np.dtype(self._dtype)
            self._set(
                learner.mean.numpy(), values.numpy().astype(dtype), rows.numpy().astype(dtype), learner.total
            )
        else:
            self._set(**learner.results)

    def _set(self, mean: Any, values: Any, rows: Any, total: float, left: Any = None) -> None:
        """Fill the fitted attributes from singular triplets; ``left`` is the rest of the spectrum."""
        dtype, k = rows.dtype, len(rows)
        n, rank = self.n_samples_, min(self.n_samples_, rows.shape[1])
        self.mean_ = mean.astype(dtype)
        self.components_ = np.ascontiguousarray(svd_flip(None, rows, u_based_decision=False)[1])
        self.n_components_ = k
        self.explained_variance_ = (values.astype(np.float64) ** 2 / (n - 1)).astype(dtype)
        self.explained_variance_ratio_ = (self.explained_variance_ / (total or 1.0)).astype(dtype)
        self.singular_values_ = values.astype(dtype)
        if left is None:
            left = max(0.0, total - self.explained_variance_.sum(dtype=np.float64))
        self.noise_variance_ = dtype.type(left / (rank - k)) if k < rank else 0.0

    def _adopt_latent(self, model: latent.Latent) -> None:
        """Turn W to its principal axes; what eq. 2 leaves over is sigma²."""
        spread, rows = latent.principal(model)
        sigma2, d = float(model.sigma2), len(model.mu)
        values = np.sqrt((spread.numpy() + sigma2) * (self.n_samples_ - 1))
        total = float(spread.sum()) + d * sigma2
        dtype = np.dtype(self._dtype)
        self._set(model.mu.numpy(), values.astype(dtype), rows.numpy().astype(dtype), total)
        self.noise_variance_ = dtype.type(sigma2)

    def _adopt_seen(self, seen: Seen, dtype: Any) -> None:
        self.n_samples_ = self.n_samples_seen_ = seen.n
        self._seen_mean, self._seen_squares = seen.mean, seen.squares
        self._set(seen.mean, seen.values.astype(dtype), seen.rows.astype(dtype), seen.squares / (seen.n - 1))

    def partial_fit(self, X: Any, y: Any = None) -> PCA:
        """Update the components with one more batch of rows (n, d); the first must have at least ``n_components`` rows."""
        self._validate_params()
        first = not hasattr(self, "n_samples_seen_")
        X = self._check(self._read_batch(X, y, first)[0], reset=first)
        if sparse.issparse(X) or np.isnan(X).any():
            raise errors.value(
                "PCA", "partial_fit takes dense rows without NaN", type(X).__name__, "Use fit."
            )
        k = self.n_components_ if not first else (self.n_components or min(X.shape))
        if not isinstance(k, Integral) or k > (min(X.shape) if first else X.shape[1]):
            raise errors.value(
                "PCA",
                "n_components must be an integer of at most the first batch's rows and features",
                repr(k),
            )
        before = None
        if not first:
            before = Seen(
                self.n_samples_seen_,
                self._seen_mean,
                self._seen_squares,
                self.singular_values_,
                self.components_,
            )
        seen = merge(before, X, k)
        self._fit_svd_solver = "incremental"
        self._adopt_seen(seen, X.dtype)
        return self

    # --- using -------------------------------------------------------------------------------------------

    def _transform(self, X: Any) -> np.ndarray:
        if not sparse.issparse(X) and has_nan(X):
            X = self._complete(X)
        Z = X @ self.components_.T
        Z -= self.mean_ @ self.components_.T
        return Z / self._scale() if self.whiten else Z

    def _inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        if Z.shape[1] != self.n_components_:
            raise errors.value("PCA", f"X must have n_components_={self.n_components_} columns", Z.shape[1])
        return (Z * self._scale() if self.whiten else Z) @ self.components_ + self.mean_

    def _scale(self) -> np.ndarray:
        scale = np.sqrt(self.explained_variance_)
        return np.maximum(scale, np.finfo(scale.dtype).eps)

    def _complete(self, X: np.ndarray) -> np.ndarray:
        """Return X with each NaN replaced by its mean given the rest of the row."""
        model = self._latent()
        z = latent.posterior(latent.Holes.of(X), model).mean
        return np.where(np.isnan(X), (z @ model.W.T + model.mu).numpy(), X).astype(X.dtype)

    def _latent(self) -> latent.Latent:
        spread = np.maximum(self.explained_variance_.astype(np.float64) - self.noise_variance_, 0)
        W = (np.sqrt(spread)[:, None] * self.components_).T
        sigma2 = max(float(self.noise_variance_), self._least_noise())
        return latent.Latent(
            torch.from_numpy(W), as_tensor(self.mean_).double(), torch.tensor(sigma2, dtype=torch.float64)
        )

    def _least_noise(self) -> float:
        """Return the least noise variance: without noise there would be no density."""
        return float(np.finfo(np.float64).eps * max(self.explained_variance_.max(initial=0.0), 1e-300) * 1e3)

    def _log_prob(self, X: Any) -> np.ndarray:
        if not sparse.issparse(X) and has_nan(X):
            return latent.posterior(latent.Holes.of(X), self._latent()).log_prob.numpy().astype(X.dtype)
        mean, rows = self.mean_.astype(np.float64), self.components_.astype(np.float64)
        d, k = len(mean), len(rows)
        if sparse.issparse(X):
            squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() - 2 * (X @ mean) + mean @ mean
            t = X @ rows.T - mean @ rows.T
        else:
            r = X - mean
            squares, t = np.einsum("ij,ij->i", r, r), r @ rows.T
        noise = max(float(self.noise_variance_), self._least_noise())
        variance = np.maximum(self.explained_variance_.astype(np.float64), noise)
        quadratic = (t * t / variance).sum(axis=1) + np.log(variance).sum() + d * math.log(2 * math.pi)
        if k < d:
            quadratic += (d - k) * math.log(noise) + np.maximum(squares - (t * t).sum(axis=1), 0) / noise
        return (-0.5 * quadratic).astype(X.dtype)

    def get_covariance(self) -> np.ndarray:
        """Return the covariance of the density (2), of shape (n_features_in_, n_features_in_)."""
        spread = np.maximum(self.explained_variance_ - self.noise_variance_, 0)
        C = (self.components_.T * spread) @ self.components_
        C[np.diag_indices_from(C)] += self.noise_variance_
        return C

    def get_precision(self) -> np.ndarray:
        """Return the inverse of :meth:`get_covariance`, by the matrix inversion lemma."""
        d, noise = self.components_.shape[1], self.noise_variance_
        if noise == 0:
            return linalg.inv(self.get_covariance())
        shrunk = 1 / np.maximum(self.explained_variance_, noise) - 1 / noise
        P = (self.components_.T * shrunk) @ self.components_
        P[np.diag_indices(d)] += 1 / noise
        return P

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn which types and layouts are kept."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = self.svd_solver in SPARSE
        tags.input_tags.allow_nan = self.svd_solver in ("auto", "em")
        return tags
