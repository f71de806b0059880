r"""Factor analysis.

:math:`x = \mu + W z + \varepsilon`, :math:`z \sim \mathcal N(0, I_m)`,
:math:`\varepsilon \sim \mathcal N(0, \Psi)`, :math:`\Psi = \operatorname{diag}(\psi)`. For fixed
:math:`\Psi` the best :math:`W` comes from the largest eigenpairs :math:`(s_i, v_i)` of
:math:`\Psi^{-1/2} S \Psi^{-1/2}`, :math:`S` the sample covariance, and for fixed :math:`W` the best
:math:`\Psi` is what is left of the diagonal:

.. math::
    W = \Psi^{1/2} V \sqrt{(\operatorname{diag}(s) - I)_+}, \qquad \psi = \operatorname{diag}(S - W W^\top). \tag{1}

.. math::
    \log p(X) = -\tfrac n2 \Big[ d \log 2\pi + \log |\Psi| + \sum_{i \le m} (\log s_i + 1) + \sum_{i > m} s_i \Big].
    \tag{2}

.. math::
    \operatorname{cov}(z \mid x) = (I + W^\top \Psi^{-1} W)^{-1}, \qquad
    \operatorname{E}(z \mid x) = \operatorname{cov}(z \mid x)\, W^\top \Psi^{-1} (x - \mu). \tag{3}
"""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from scipy import linalg
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.decomposition._factor_analysis import _ortho_rotation
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Density, Estimator, Generator, Transformer, as_tensor
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.run import current
from corollary.linalg import Centred, gram, krylov_svd
from corollary.linalg.moments import moments_of
from corollary.shapes import Array, Flag, List, Number

__all__ = ["FactorAnalysis"]

SMALL = 1e-12


class Alternation(Iteration):
    """Alternate the two halves of eq. 1; each sweep needs one small eigenproblem."""

    shares = True
    saved = ("psi", "W", "log_likelihoods")
    varying = {"W": Array(None, "psi"), "log_likelihoods": List(Number())}

    def __init__(self, X: Any, m: int, psi: np.ndarray, settings: FactorAnalysis, seed: int) -> None:
        super().__init__(settings.max_iter)
        run, self.n, self.m, self.tol, self.seed = current(), len(X), m, settings.tol, seed
        self.blocks = settings.iterated_power + 2
        wide = settings.svd_method == "randomized" and 2 * self.n < X.shape[1]
        if isinstance(X, Source):
            found = moments_of(X)
            self.mean, self.rows, self.S = torch.from_numpy(found.mean), None, found.scatter / self.n
            self.variance = self.S.diagonal().copy()
        else:
            rows = as_tensor(X[run.shard(self.n)])
            self.mean = run.sum(rows.sum(0)) / self.n
            rows = rows - self.mean
            self.rows = rows if wide else None
            self.S = None if wide else (run.sum(gram(rows)) / self.n).numpy()
            self.variance = (run.sum(rows.square().sum(0)) / self.n).numpy()
        self.psi, self.W = psi, np.zeros((m, X.shape[1]))
        self.log_likelihoods: list[float] = []

    def sweep(self) -> Metrics:
        """Find W for the present noise, then the noise for that W."""
        d, root = len(self.psi), np.sqrt(self.psi) + SMALL
        s, V = self._eigen(root)
        self.W = np.sqrt(np.maximum(s - 1, 0))[:, None] * V * root
        left = float((self.variance / root**2).sum() - s.sum())
        bracket = d * math.log(2 * math.pi) + np.log(self.psi).sum() + np.log(s).sum() + self.m + left
        value = float(-0.5 * self.n * bracket)
        self.converged = bool(self.log_likelihoods) and value - self.log_likelihoods[-1] < self.tol
        self.log_likelihoods.append(value)
        if not self.converged:
            self.psi = np.maximum(self.variance - (self.W**2).sum(axis=0), SMALL)
        return {"log_likelihood": value / self.n}

    def _eigen(self, root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the m largest eigenvalues of the scaled covariance, and their vectors as rows."""
        d = len(root)
        if self.m == 0:
            return np.zeros(0), np.zeros((0, d))
        if self.rows is None:
            e, V = linalg.eigh(
                self.S / root / root[:, None], subset_by_index=[d - self.m, d - 1], check_finite=False
            )
            return np.maximum(e[::-1], SMALL), V[:, ::-1].T
        scaled = self.rows / torch.from_numpy(root * math.sqrt(self.n))
        found = krylov_svd(
            Centred(scaled, None, self.n), self.m, blocks=self.blocks, oversample=10, seed=self.seed
        )
        return np.maximum(found.values.numpy() ** 2, SMALL), found.rows.numpy()


class FactorAnalysis(Transformer, Density, Generator, ClassNamePrefixFeaturesOutMixin, Estimator):
    r"""Fit factor analysis: covariances by a few latent factors, and a noise variance for every feature.

    A drop-in for scikit-learn's, which also samples and gives the posterior covariance.

    Parameters
    ----------
    n_components : int, optional
        How many factors; more explain more covariance. By default as many as features.
    tol : float, default=1e-2
        Stop when the log-likelihood of all samples rises by less.
    copy : bool, default=True
        For compatibility; the data are never overwritten.
    max_iter : int, default=1000
        Most sweeps.
    noise_variance_init : array-like of shape (n_features,), optional
        The noise to begin with; by default ones.
    svd_method : {"lapack", "randomized"}, default="randomized"
        "randomized" may use block Krylov where features are many more than rows.
    iterated_power : int, default=3
        Its products after the first; more are more exact.
    rotation : {"varimax", "quartimax"}, optional
        Rotate the factors towards simple structure.
    random_state : int or RandomState, default=0
        Seed for block Krylov and for ``sample``.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        W transposed.
    loglike_ : list of float
        Log-likelihood of each sweep.
    noise_variance_, mean_ : ndarray of shape (n_features_in_,)
        Noise of each feature, and its mean.
    n_iter_ : int
        Sweeps.

    Notes
    -----
    Maximises (2) by alternating the two exact solutions (1). The covariance is formed once, O(n d²), from
    rows in memory or on disk; a sweep
    then costs O(d² m) to O(d³), whatever the number of samples. The notes' 000 has the sign of the
    log-determinant wrong (erratum E90); 001 says that orthogonal columns suffice for :math:`W^+ = W^\top` in the limit of
    no noise, but they must be orthonormal (E93).

    References
    ----------
    .. [1] D. Barber (2012). Bayesian Reasoning and Machine Learning, algorithm 21.1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from corollary import FactorAnalysis
    >>> X, _ = load_digits(return_X_y=True)
    >>> FactorAnalysis(7).fit_transform(X).shape
    (1797, 7)
    """

    _checks = {"dtype": np.float64}
    _reads_sources = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 0, None, closed="left"), None],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "copy": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "noise_variance_init": ["array-like", None],
        "svd_method": [StrOptions({"randomized", "lapack"})],
        "iterated_power": [Interval(Integral, 0, None, closed="left")],
        "rotation": [StrOptions({"varimax", "quartimax"}), None],
        "random_state": ["random_state"],
    }
    _fitted = {
        "components_": Array("factors", "n_features_in_"),
        "mean_": Array("n_features_in_"),
        "noise_variance_": Array("n_features_in_"),
        "loglike_": List(Number()),
        "_converged": Flag(),
    }

    def __init__(
        self,
        n_components=None,
        *,
        tol=1e-2,
        copy=True,
        max_iter=1000,
        noise_variance_init=None,
        svd_method="randomized",
        iterated_power=3,
        rotation=None,
        random_state=0,
    ):
        self.n_components = n_components
        self.tol = tol
        self.copy = copy
        self.max_iter = max_iter
        self.noise_variance_init = noise_variance_init
        self.svd_method = svd_method
        self.iterated_power = iterated_power
        self.rotation = rotation
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2}

    def fit(self, X, y=None):
        """Fit rows X (n, d)."""
        self._fit(X)
        if not self._converged:
            warnings.warn(
                "FactorAnalysis did not converge. You might want to increase the number of iterations.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _learner(self, data: Data) -> Alternation:
        d = data.X.shape[1]
        psi = (
            np.ones(d)
            if self.noise_variance_init is None
            else np.asarray(self.noise_variance_init, np.float64)
        )
        if len(psi) != d:
            raise errors.value(
                "FactorAnalysis", f"noise_variance_init must have n_features={d} entries", len(psi)
            )
        m = d if self.n_components is None else self.n_components
        if m > d:
            raise errors.value("FactorAnalysis", f"n_components must be at most n_features={d}", m)
        return Alternation(data.X, m, psi, self, self._seed())

    def _adopt(self, learner: Alternation) -> None:
        self.components_ = learner.W.copy()
        if self.rotation is not None:
            self.components_ = _ortho_rotation(learner.W.T, method=self.rotation, tol=1e-6)[
                : self.n_components
            ]
        self.mean_, self.noise_variance_ = learner.mean.numpy(), learner.psi.copy()
        self.loglike_, self.n_iter_ = list(learner.log_likelihoods), learner.n_iter
        self._converged = bool(learner.converged)

    def _posterior_covariance(self) -> np.ndarray:
        """Return cov(z | x), eq. 3, the same for every row."""
        scaled = self.components_ / self.noise_variance_
        return linalg.inv(np.eye(len(scaled)) + scaled @ self.components_.T)

    def posterior(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (n, m) and the covariance (m, m) of the factors given rows X."""
        return self._answer(self._transform, X), self._posterior_covariance()

    def _transform(self, X: np.ndarray) -> np.ndarray:
        scaled = self.components_ / self.noise_variance_
        return (X - self.mean_) @ scaled.T @ self._posterior_covariance()

    def _log_prob(self, X: np.ndarray) -> np.ndarray:
        """Return log N(x; mu, W Wᵀ + Psi) by the matrix inversion lemma, O(d m) a row."""
        r = X - self.mean_
        b = r @ (self.components_ / self.noise_variance_).T
        C = self._posterior_covariance()
        quadratic = (r**2 / self.noise_variance_).sum(axis=1) - np.einsum(
            "ni,ij,nj->n", b, C, b, optimize=True
        )
        log_det = np.log(self.noise_variance_).sum() - np.linalg.slogdet(C)[1]
        return -0.5 * (quadratic + log_det + X.shape[1] * math.log(2 * math.pi))

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.standard_normal((n, len(self.components_)))
        noise = np.sqrt(self.noise_variance_) * rng.standard_normal((n, len(self.mean_)))
        return z @ self.components_ + noise + self.mean_

    def get_covariance(self) -> np.ndarray:
        """Return the covariance of x, W Wᵀ + Psi."""
        return self.components_.T @ self.components_ + np.diag(self.noise_variance_)

    def get_precision(self) -> np.ndarray:
        """Return its inverse, by the matrix inversion lemma."""
        if len(self.components_) == len(self.mean_):
            return linalg.inv(self.get_covariance())
        scaled = self.components_ / self.noise_variance_
        return np.diag(1 / self.noise_variance_) - scaled.T @ self._posterior_covariance() @ scaled

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
