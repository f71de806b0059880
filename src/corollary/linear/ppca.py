r"""Probabilistic principal component analysis.

:math:`x = \mu + W z + \varepsilon` with :math:`z \sim \mathcal N(0, I_q)` and
:math:`\varepsilon \sim \mathcal N(0, \sigma^2 I_d)`. With eigenpairs :math:`(\lambda_i, u_i)` of the sample
covariance :math:`S = \frac1n \sum_t (x_t - \mu)(x_t - \mu)^\top` the likelihood is largest at

.. math::
    \sigma^2 = \frac{1}{d - q} \sum_{i > q} \lambda_i, \qquad w_i = \sqrt{\lambda_i - \sigma^2}\; u_i. \tag{1}

Where entries are missing there is no closed form; :mod:`corollary.linear.latent` has the EM, the
posterior over :math:`z` and the density of what is seen.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Density, Estimator, Generator, Transformer
from corollary.data.sources import Source
from corollary.engine.learner import Once, State
from corollary.linalg import krylov_svd
from corollary.linalg.moments import has_nan
from corollary.linear import latent, pca_solvers
from corollary.shapes import Array, Dtype, Number

__all__ = ["ProbabilisticPCA", "closed_form"]

LARGE = 1000  # features beyond which few components are found by block Krylov


def closed_form(X: Any, q: int, seed: int = 0) -> latent.Latent:
    """Return the maximum-likelihood parameters, eq. 1, in float64."""
    n, d = X.shape
    X = X.astype(np.float64, copy=False)
    mean, total = pca_solvers.moments(X)
    if min(n, d) <= LARGE:
        found = pca_solvers.covariance(X, q) if d <= n or isinstance(X, Source) else pca_solvers.full(X, q)
        values, rows = torch.from_numpy(found["values"].copy()), torch.from_numpy(found["rows"].copy())
    else:
        A = pca_solvers.centred(X, mean, total)
        values, rows = krylov_svd(A, q, seed=seed, tol=1e-12, restarts=50)
    variance = values.square() / n
    total *= (n - 1) / n
    left = max(total - float(variance.sum()), 0.0) / max(d - q, 1)
    sigma2 = torch.tensor(max(left, latent.SMALL * total / d, np.finfo(np.float64).tiny), dtype=torch.float64)
    return latent.Latent(
        ((variance - sigma2).clamp(min=0).sqrt()[:, None] * rows).T.contiguous(), mean, sigma2
    )


class ProbabilisticPCA(Transformer, Density, Generator, ClassNamePrefixFeaturesOutMixin, Estimator):
    r"""Fit probabilistic PCA: the Gaussian latent-variable model whose axes are the principal components.

    Use it for a density, a posterior over the components, samples, or data with missing values.

    Parameters
    ----------
    n_components : int, optional
        Latent dimensions; more fit more covariance. By default one less than the features.
    method : {"auto", "closed", "em"}, default="auto"
        "auto" takes the closed form, or EM where values are missing.
    tol : float, default=1e-6
        EM stops when the mean log-likelihood rises by less.
    max_iter : int, default=1000
        Most sweeps of EM.
    random_state : int or RandomState, optional
        Seed for the start and for ``sample``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        W transposed; rows are orthogonal, longest first.
    mean_ : ndarray of shape (n_features_in_,)
        The mean.
    noise_variance_ : float
        The noise variance sigma² of every feature.
    n_iter_ : int
        Sweeps.

    Notes
    -----
    The closed form reads rows on disk in blocks; EM takes them into memory.
    Maximises the likelihood of the entries that are not NaN. The closed form costs O(n d²), a sweep
    O(p q³ + n d q²) for p patterns of holes. Of the notes, 000 has :math:`S W =
    \mathrm{diag}(\lambda) W` for :math:`S W = W \mathrm{diag}(\lambda)` (erratum E91), 001 takes the root of
    :math:`\max\{0, \sqrt{\lambda_i - \sigma^2}\}` (E92) and 003 the eigenvalues of
    :math:`X X^\top` without the 1/n (E94); equation (1) is what maximises the likelihood.

    References
    ----------
    .. [1] M. Tipping, C. Bishop (1999). Probabilistic principal component analysis. JRSS B 61, 611-622.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import ProbabilisticPCA
    >>> X, _ = load_iris(return_X_y=True)
    >>> X[::5, 2] = float("nan")
    >>> model = ProbabilisticPCA(2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3).shape
    ((150, 2), (3, 4))
    """

    _checks = {"ensure_all_finite": "allow-nan", "ensure_min_samples": 2}
    _reads_sources = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [None, Interval(Integral, 1, None, closed="left")],
        "method": [StrOptions({"auto", "closed", "em"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "_dtype": Dtype(),
        "components_": Array("n_components", "n_features_in_"),
        "mean_": Array("n_features_in_"),
        "noise_variance_": Number(),
    }

    def __init__(self, n_components=None, *, method="auto", tol=1e-6, max_iter=1000, random_state=None):
        self.n_components = n_components
        self.method = method
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2}

    def _learner(self, data: Data) -> Any:
        X, q = data.X, self.n_components or max(1, min(data.X.shape) - 1)
        if q > min(X.shape):
            raise errors.value(
                "ProbabilisticPCA",
                f"n_components must be at most min(n_samples, n_features)={min(X.shape)}",
                q,
            )
        holes = has_nan(X)
        if holes and self.method == "closed":
            raise errors.value(
                "ProbabilisticPCA", 'method="closed" needs data without NaN', "NaN in X", 'Use method="em".'
            )
        self._dtype = str(X.dtype)
        if holes or self.method == "em":
            X = X[:] if isinstance(X, Source) else X
            latent.check_holes(X, "ProbabilisticPCA")
            return latent.EM(X, pca_solvers.filled_start(X, q, self._seed()), self.max_iter, self.tol)
        seed = self._seed()

        def solve() -> State:
            return closed_form(X, q, seed)._asdict()

        return Once(solve, shares=True)

    def _adopt(self, learner: Any) -> None:
        model = latent.Latent(**learner.results) if isinstance(learner, Once) else learner.model
        spread, rows = latent.principal(model)
        signs = rows.gather(1, rows.abs().argmax(1, keepdim=True)).sign()
        dtype = np.dtype(self._dtype)
        self.components_ = (spread.sqrt()[:, None] * rows * signs).numpy().astype(dtype)
        self.mean_ = model.mu.numpy().astype(dtype)
        self.noise_variance_ = float(model.sigma2)
        self.n_iter_ = learner.n_iter

    def _latent(self) -> latent.Latent:
        W = torch.from_numpy(self.components_.T.astype(np.float64))
        return latent.Latent(
            W,
            torch.from_numpy(self.mean_.astype(np.float64)),
            torch.tensor(self.noise_variance_, dtype=torch.float64),
        )

    def posterior(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (n, q) and covariance (n, q, q) of the latents given the entries of X that are seen."""
        X = self._query(X)
        data = latent.Holes.of(X[:] if isinstance(X, Source) else X)
        E = latent.posterior(data, self._latent())
        return E.mean.numpy(), E.covariance[data.which].numpy()

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return latent.posterior(latent.Holes.of(X), self._latent()).mean.numpy().astype(X.dtype)

    def _inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        return Z @ self.components_ + self.mean_

    def _log_prob(self, X: np.ndarray) -> np.ndarray:
        return latent.posterior(latent.Holes.of(X), self._latent()).log_prob.numpy().astype(X.dtype)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n, len(self.components_)))
        noise = np.sqrt(self.noise_variance_) * rng.standard_normal((n, self.n_features_in_))
        return (z @ self.components_ + self.mean_ + noise).astype(self.components_.dtype)

    def get_covariance(self) -> np.ndarray:
        """Return the covariance of x, W Wᵀ + sigma² I."""
        return self.components_.T @ self.components_ + self.noise_variance_ * np.eye(self.n_features_in_)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
