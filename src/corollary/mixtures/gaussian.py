r"""The Gaussian mixture by expectation maximisation.

.. math::
    p(x) = \sum_{z=1}^k \pi_z\, \mathcal N(x; \mu_z, \Sigma_z), \qquad
    q_{tz} = \frac{\pi_z\, \mathcal N(x_t; \mu_z, \Sigma_z)}{\sum_\zeta \pi_\zeta\, \mathcal N(x_t; \mu_\zeta,
    \Sigma_\zeta)}. \tag{1}

With sample weights :math:`w_t` and :math:`N_z = \sum_t w_t q_{tz}` the M step is

.. math::
    \pi_z = \frac{N_z}{\sum_\zeta N_\zeta}, \qquad \mu_z = \frac{1}{N_z} \sum_t w_t q_{tz} x_t, \qquad
    \Sigma_z = \frac{1}{N_z} \sum_t w_t q_{tz} x_t x_t^\top - \mu_z \mu_z^\top + \epsilon I, \tag{2}

for "full" covariances; "tied" averages :math:`\Sigma_z` over :math:`\pi`, "diag" keeps its diagonal,
"spherical" the diagonal's mean, and "unit" is the identity, the mixture of the notes. The likelihood never
falls (but for :math:`\epsilon`). Stepwise EM, behind ``partial_fit``, moves the averages :math:`s` of the
sums in (2) a part of the way towards those of a batch,
:math:`s \leftarrow (1 - \eta_t) s + \eta_t \hat s`, :math:`\eta_t = (t + 1)^{-0.6}` (3).
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import _gaussian_mixture as checks
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from corollary.base import Data, Estimator
from corollary.data.sources import Source
from corollary.engine.run import current
from corollary.engine.sources import drawn
from corollary.mixtures.gaussian_em import EM
from corollary.mixtures.gaussian_moments import (
    TINY,
    Parameters,
    constrained,
    form,
    log_joint,
    m_step,
    maximised,
)
from corollary.mixtures.posterior import BaseMixture
from corollary.shapes import Array, Choice, Count, Either, Flag, Index, List, Maybe, Number
from corollary.validation import finite

__all__ = ["GaussianMixture", "Parameters", "log_joint"]

DECAY = 0.6  # of the step size in (3)


class GaussianMixture(BaseMixture, Estimator):
    """Fit a mixture of Gaussians by EM.

    A drop-in for scikit-learn's, several times faster, with sample weights, batches
    (``partial_fit``), unit covariances, and everything that the engine gives.

    Parameters
    ----------
    n_components : int, default=1
        How many Gaussians; more fit finer structure and need more data.
    covariance_type : {"full", "tied", "diag", "spherical", "unit"}, default="full"
        What shape they may have; "unit" has identity covariance throughout.
    tol : float, default=1e-3
        Stop when the mean log-likelihood changes by less; larger stops sooner.
    reg_covar : float, default=1e-6
        Added to the variances; larger keeps components from collapsing on few points.
    max_iter : int, default=100
        Most sweeps of a start.
    n_init : int, default=1
        How many starts; the best is kept.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        How a start assigns the samples.
    weights_init, means_init, precisions_init : array-like, optional
        Where to start instead.
    random_state : int or RandomState, optional
        Seed for the starts and for ``sample``.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit.
    verbose, verbose_interval : int
        Whether to show a progress bar, as ``Run(progress=True)`` does for any fit; the interval is not needed.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Share of each component.
    means_ : ndarray of shape (n_components, n_features_in_)
        Centres.
    covariances_, precisions_, precisions_cholesky_ : ndarray
        (k, d, d) full, (d, d) tied, (k, d) diag, (k,) spherical and unit.
    labels_ : ndarray of shape (n_samples,)
        The component of each row that was fitted.
    converged_ : bool
        Whether the best start converged.
    n_iter_ : int
        Its sweeps.
    lower_bound_, lower_bounds_ : float and list of float
        Its mean log-likelihood, last and after each sweep.
    history_ : list of dict
        Log-likelihood and seconds of every sweep of every start.

    Notes
    -----
    Maximises the weighted mean log-likelihood; the steps are equations (1) and (2) above. Rows on disk
    (:mod:`corollary.data.sources`) are read in blocks, once a sweep; a start then looks at 4 MB of them. A sweep
    costs O(n k d²) for full and tied, O(n k d) for the others. Up to 64 features it runs in
    float64 over cache-sized blocks (the first fit compiles for some seconds, then from disk); wider
    data and components a thousand times narrower than the data take scikit-learn's way.

    References
    ----------
    .. [1] A. Dempster, N. Laird, D. Rubin (1977). Maximum likelihood from incomplete data via the EM
       algorithm. JRSS B 39, 1-38.
    .. [2] O. Cappé, E. Moulines (2009). On-line expectation-maximization. JRSS B 71, 593-613.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import GaussianMixture
    >>> X, _ = load_iris(return_X_y=True)
    >>> model = GaussianMixture(3, random_state=0).fit(X)
    >>> model.means_.shape, round(model.score(X), 2)
    ((3, 4), -1.2)
    """

    _checks = {"ensure_min_samples": 2}
    _reads_sources = True
    _expected_failures: ClassVar[dict[str, str]] = {
        "check_clustering": "asks for three groups by n_clusters; here it is n_components, by default 1",
        "check_sample_weight_equivalence_on_dense_data": "with several components k-means starts from rows drawn at "
        "random: repeated rows draw others, and the components come in another order",
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions({"full", "tied", "diag", "spherical", "unit"})],
        "tol": [Interval(Real, 0.0, None, closed="left")],
        "reg_covar": [Interval(Real, 0.0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions({"kmeans", "random", "random_from_data", "k-means++"})],
        "weights_init": ["array-like", None],
        "means_init": ["array-like", None],
        "precisions_init": ["array-like", None],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "verbose_interval": [Interval(Integral, 1, None, closed="left")],
    }
    _covariance_shapes = Choice(
        "covariance_type",
        {
            "full": Array("n_components", "n_features_in_", "n_features_in_"),
            "tied": Array("n_features_in_", "n_features_in_"),
            "diag": Array("n_components", "n_features_in_"),
            "spherical": Array("n_components"),
            "unit": Array("n_components"),
        },
    )
    _fitted = {
        "weights_": Array("n_components", low=0),
        "means_": Array("n_components", "n_features_in_"),
        "covariances_": _covariance_shapes,
        "precisions_cholesky_": _covariance_shapes,
        "precisions_": _covariance_shapes,
        "converged_": Flag(),
        "lower_bound_": Number(finite=False),
        "lower_bounds_": List(Number()),
        "labels_": Maybe(Index(None, below="n_components")),
        "_batches": Maybe(Count()),
        "_averages": Maybe(
            List(
                [
                    Array("n_components"),
                    Array("n_components", "n_features_in_"),
                    Either(
                        Array("n_components", "n_features_in_", "n_features_in_"),
                        Array("n_components", "n_features_in_"),
                    ),
                ]
            )
        ),
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weights_init=None,
        means_init=None,
        precisions_init=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 2, "max_iter": 20, "tol": 0.1}

    # --- fitting -----------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Fit rows X (n, d), optionally weighted: weight 2 counts as two equal rows."""
        self._fit(X, y, sample_weight)
        if not self.converged_ and self.max_iter > 0:
            warnings.warn(
                "Best performing initialization did not converge. Try different init parameters, or increase "
                "max_iter, tol, or check for degenerate data.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit and return the component of each row."""
        return self.fit(X, y, sample_weight).predict(X)

    def _learner(self, data: Data) -> EM:
        self._check_start(data.X)
        if self.warm_start and hasattr(self, "converged_"):
            return EM(self, data, self._parameters(), self.lower_bound_)
        return EM(self, data, None, -math.inf)

    def _check_start(self, X: np.ndarray) -> None:
        k, d, kind = self.n_components, X.shape[1], form(self.covariance_type)
        if len(X) < k:
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {k}, n_samples = {len(X)}"
            )
        if self.weights_init is not None:
            checks._check_weights(self.weights_init, k, xp=np)
        if self.means_init is not None:
            checks._check_means(self.means_init, k, d, xp=np)
        if self.precisions_init is not None:
            checks._check_precisions(self.precisions_init, kind, k, d, xp=np)

    def _random(self) -> np.random.RandomState:
        """Return the generator that scikit-learn would draw from, but never the global one."""
        return check_random_state(self._seed() if self.random_state is None else self.random_state)

    def _start(self, X: np.ndarray, weight: Any, random: np.random.RandomState) -> Parameters:
        """Return the parameters that a start begins with; of rows on disk some are drawn for it."""
        given = (self.weights_init, self.means_init, self.precisions_init)
        complete = all(part is not None for part in given)
        if isinstance(X, Source) and not complete:
            choose = partial(random.choice, replace=False)
            X, rows = drawn(X, 100 * self.n_components, choose)
            weight = None if weight is None else weight[rows]
        q = None if complete else self._assign(X, weight, random)
        return self._initial(X, q if q is None or weight is None else q * weight[:, None])

    def _assign(self, X: np.ndarray, weight: Any, random: np.random.RandomState) -> np.ndarray:
        n, k = len(X), self.n_components
        q = np.zeros((n, k))
        if self.init_params == "kmeans":
            labels = KMeans(k, n_init=1, random_state=random).fit(X, sample_weight=weight).labels_
            q[np.arange(n), labels] = 1
        elif self.init_params == "random":
            q = random.uniform(size=(n, k))
            q /= q.sum(axis=1)[:, None]
        elif self.init_params == "random_from_data":
            q[random.choice(n, size=k, replace=False), np.arange(k)] = 1
        else:
            q[kmeans_plusplus(X, k, sample_weight=weight, random_state=random)[1], np.arange(k)] = 1
        return q

    def _initial(self, X: np.ndarray, q: np.ndarray | None) -> Parameters:
        kind, k = self.covariance_type, self.n_components
        if q is not None:
            first = m_step(X[current().shard(len(X))], q[current().shard(len(X))], kind, self.reg_covar)
        else:
            first = Parameters(*(np.empty(0),) * 4)  # all is given
        weights = first.weights if self.weights_init is None else np.asarray(self.weights_init, np.float64)
        means = first.means if self.means_init is None else np.asarray(self.means_init, np.float64)
        if self.precisions_init is None or kind == "unit":
            covariances = np.ones(k) if kind == "unit" else first.covariances
            return Parameters(
                weights,
                means,
                covariances,
                checks._compute_precision_cholesky(covariances, form(kind), xp=np),
            )
        precisions = np.asarray(self.precisions_init, np.float64)
        factors = checks._compute_precision_cholesky_from_precisions(precisions, kind, xp=np)
        inverse = np.linalg.inv(precisions) if kind in ("full", "tied") else 1 / precisions
        return Parameters(weights, means, inverse, factors)

    def _initialize(self, X: np.ndarray, resp: np.ndarray) -> None:
        """Set the parameters from responsibilities; scikit-learn's name, which its tests use."""
        self._set_parameters(self._initial(X, resp), X.dtype)

    def _adopt(self, learner: EM) -> None:
        best = learner.result()
        self._set_parameters(best["parameters"], learner.X.dtype)
        self.converged_ = bool(best["converged"])
        self.n_iter_ = best["n_iter"]
        self.lower_bound_, self.lower_bounds_ = best["bound"], list(best["bounds"])
        if learner.done:
            self.labels_ = self._by_blocks(self._predict, learner.X)

    def _set_parameters(self, parameters: Any, dtype: Any = None) -> None:
        p = Parameters(*parameters)
        dtype = dtype or p.means.dtype
        self.weights_, self.means_ = p.weights.astype(dtype), p.means.astype(dtype)
        self.covariances_ = p.covariances.astype(dtype)
        self.precisions_cholesky_ = p.precisions_cholesky.astype(dtype)
        factors = p.precisions_cholesky
        full = self.covariance_type in ("full", "tied")
        self.precisions_ = (factors @ np.swapaxes(factors, -1, -2) if full else factors**2).astype(dtype)

    def _parameters(self) -> Parameters:
        kept = (self.weights_, self.means_, self.covariances_, self.precisions_cholesky_)
        return Parameters(*(part.astype(np.float64) for part in kept))

    # --- batches -----------------------------------------------------------------------------------------

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the mixture with one more batch by stepwise EM, eq. 3; the first must have ``n_components`` rows."""
        self._validate_params()
        first = not hasattr(self, "_batches")
        data = self._data(X, None, sample_weight) if first else self._later_batch(X, sample_weight)
        data = data._replace(X=data.X[:]) if isinstance(data.X, Source) else data
        if first:
            self._check_start(data.X)
            start = self._start(data.X, data.sample_weight, self._random())
            self._batches, self._averages = 0, None
        else:
            start = self._parameters()
        self._step_towards(data, start)
        return self

    def _later_batch(self, X: Any, sample_weight: Any) -> Data:
        X = self._query(X)
        return Data(X, None, self._check_weight(X, sample_weight))

    def _step_towards(self, data: Data, start: Parameters) -> None:
        joint = log_joint(data.X, start, self.covariance_type)
        norm = logsumexp(joint, axis=1)
        w = np.ones(len(data.X)) if data.sample_weight is None else data.sample_weight
        q = np.exp(joint - norm[:, None]) * (w / w.sum())[:, None]
        fresh = [q.sum(axis=0), q.T @ data.X, self._second(data.X, q)]
        rate = (self._batches + 1) ** -DECAY
        kept = self._averages if self._averages is not None else fresh
        self._averages = [old + rate * (new - old) for old, new in zip(kept, fresh)]
        self._batches += 1
        N, first, second = self._averages
        N = N + TINY
        means = first / N[:, None]
        second = second / N.reshape((-1,) + (1,) * (second.ndim - 1))
        C = constrained(second, means, N, self.covariance_type, self.reg_covar)
        self._set_parameters(maximised(N, means, C, self.covariance_type), data.X.dtype)
        self.lower_bound_ = float(norm @ w / w.sum())
        self.lower_bounds_ = [*getattr(self, "lower_bounds_", []), self.lower_bound_]
        self.n_iter_, self.converged_ = self._batches, True

    def _second(self, X: np.ndarray, q: np.ndarray) -> np.ndarray:
        if self.covariance_type not in ("full", "tied"):
            return q.T @ X**2
        return np.stack([(q[:, z, None] * X).T @ X for z in range(q.shape[1])])

    # --- using -------------------------------------------------------------------------------------------

    def _joint(self, X: np.ndarray) -> np.ndarray:
        return log_joint(X, self._parameters(), self.covariance_type)

    def sample(self, n_samples=1, *, return_components=False):
        """Draw rows, component by component; with an integer ``random_state`` every call draws the same ones.

        Parameters
        ----------
        n_samples : int, default=1
            How many.
        return_components : bool, default=False
            Whether to return (rows, components), as scikit-learn's does.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(
                f"Invalid value for 'n_samples': {n_samples} . The sampling requires at least one sample."
            )
        drawn = self._labelled_sample(n_samples, self._rng())
        finite(self, drawn[0])
        return drawn if return_components else drawn[0]

    def _labelled_sample(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        p, d = self._parameters(), self.n_features_in_
        counts = rng.multinomial(n, p.weights / p.weights.sum())
        z = np.repeat(np.arange(len(counts)), counts)
        noise = rng.standard_normal((n, d))
        if self.covariance_type in ("full", "tied"):
            L = np.linalg.cholesky(p.covariances)
            noise = noise @ L.T if L.ndim == 2 else np.einsum("nij,nj->ni", L[z], noise)
        else:
            noise *= np.sqrt(p.covariances[z].reshape(n, -1))
        return (p.means[z] + noise).astype(self.means_.dtype), z

    def _n_parameters(self) -> int:
        k, d = self.means_.shape
        shape = {
            "full": k * d * (d + 1) // 2,
            "tied": d * (d + 1) // 2,
            "diag": k * d,
            "spherical": k,
            "unit": 0,
        }
        return int(shape[self.covariance_type] + k * d + k - 1)

    def bic(self, X):
        """Return the Bayesian information criterion on X; lower is better."""
        return -2 * self.score(X) * len(X) + self._n_parameters() * math.log(len(X))

    def aic(self, X):
        """Return the Akaike information criterion on X; lower is better."""
        return -2 * self.score(X) * len(X) + 2 * self._n_parameters()
