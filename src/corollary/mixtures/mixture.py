r"""Mixture models by EM, for any component with a weighted maximum-likelihood fit.

.. math::
    p(x) = \sum_z \pi_z\, p(x; \theta_z), \qquad q_{tz} \propto \pi_z\, p(x_t; \theta_z), \qquad
    \pi_z = \tfrac1s \sum_t q_{tz}, \qquad \theta_z = \arg\max_\theta \sum_t q_{tz} \log p(x_t; \theta). \tag{1}

The features of a row are independent given :math:`z`. With :math:`\bar x = \sum_t q_t x_t / \sum_t q_t` the weighted maximum
of the likelihood is

=============  =====================================================  ============================================
component      :math:`\log p(x; \theta)`                               :math:`\theta`
=============  =====================================================  ============================================
gaussian       :math:`-\frac12 [\log 2 \pi v + (x - m)^2 / v]`          :math:`m = \bar x,\; v = \overline{x^2} - \bar x^2`
bernoulli      :math:`x \log p + (1 - x) \log (1 - p)`                  :math:`p = \bar x`
poisson        :math:`x \log r - r - \log x!`                           :math:`r = \bar x`
exponential    :math:`\log r - r x`                                     :math:`r = 1 / \bar x`
categorical    :math:`\log p_x`                                         :math:`p_c = \overline{[x = c]}`
=============  =====================================================  ============================================

every one a function of means, so that the M step is a sum over rows (2). The likelihood never falls; where it could
rise without bound (a variance or a probability of zero) ``smoothing`` pseudo-counts keep it finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.cluster import kmeans_plusplus
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Estimator
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics, State
from corollary.engine.run import current
from corollary.engine.sources import blocks, drawn
from corollary.mixtures.components import COMPONENTS, TINY, Categorical, Component, whole
from corollary.mixtures.posterior import BaseMixture
from corollary.shapes import Anything, Array, Count, Flag, Index, Maybe, Number, Record

__all__ = ["COMPONENTS", "Component", "Mixture"]


class EM(Iteration):
    """Sweeps of eq. 1; several starts one after the other, the best end is kept."""

    shares = True
    saved = ("start", "inner", "weights", "theta", "bound", "best", "rng")
    varying = {
        "start": Count(),
        "inner": Count(),
        "weights": Array(None, low=0),
        "theta": Record(Array(None, None)),
        "best": Record(Anything()),
    }

    def __init__(self, model: Mixture, component: Component, data: Data) -> None:
        super().__init__(model.n_init * model.max_iter)
        run = current()
        self.model, self.component, self.X = model, component, data.X
        self.share = run.shard(len(data.X))
        w = np.ones(len(data.X)) if data.sample_weight is None else data.sample_weight
        self.w, self.total = w[self.share, None], float(w.sum())
        self.held: Any = None
        if not isinstance(data.X, Source):
            self.held = data.X[self.share], self.w, component.statistics(data.X[self.share])
        self.overall = run.sum(sum((w * F).sum(axis=0) for _, w, F in self._parts())) / self.total
        self.rng = model._rng()
        self.start = self.inner = 0
        self.sums: Any = None
        self.weights, self.theta, self.bound = np.zeros(0), {}, -math.inf
        self.best: dict[str, Any] = {}

    @property
    def done(self) -> bool:
        """Whether every start has ended."""
        return self.start >= self.model.n_init

    def _parts(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield this process's rows with their weights and statistics: all at once, or block by block from disk."""
        if self.held is not None:
            yield self.held
            return
        for rows, block in blocks(self.X, self.share):
            yield block, self.w[rows], self.component.statistics(block)

    def _assignment(self) -> Callable[[np.ndarray], tuple[np.ndarray, Any]]:
        """Return the first responsibilities: each row to the nearest of spread-out rows, softened."""
        k, few = self.model.n_components, self.X
        if isinstance(self.X, Source):
            found = whole(self.X)
            scale = np.maximum(np.sqrt(found.scatter / found.total), 1e-12)
            few, _ = drawn(self.X, 100 * k, partial(self.rng.choice, replace=False))
        else:
            scale = np.maximum(self.X.std(axis=0), 1e-12)
        seeds = kmeans_plusplus(few / scale, k, random_state=int(self.rng.integers(2**31 - 1)))[0]

        def respond(rows: np.ndarray) -> tuple[np.ndarray, Any]:
            distance = ((rows[:, None] / scale - seeds) ** 2).sum(-1)
            q = np.full(distance.shape, 0.1 / k)
            q[np.arange(len(q)), distance.argmin(axis=1)] += 0.9
            return q, 0.0

        return respond

    def _posterior(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return responsibilities and log-likelihoods of rows."""
        with np.errstate(divide="ignore"):
            joint = self.component.log_prob(rows, self.theta) + np.log(self.weights)
        norm = logsumexp(joint, axis=1, keepdims=True)
        return np.exp(joint - norm), norm

    def _summed(self, respond: Any) -> tuple[tuple[np.ndarray, np.ndarray], float]:
        """Return counts and sums of statistics of the components over all rows, and the log-likelihood."""
        run, k = current(), self.model.n_components
        counts, sums, total = np.zeros(k), np.zeros((k, len(self.overall))), 0.0
        for rows, w, F in self._parts():
            q, norm = respond(rows)
            total += float((w * norm).sum())
            q = q * w
            counts += q.sum(axis=0)
            sums += q.T @ F
        return (run.sum(counts), run.sum(sums)), float(run.sum(np.array(total)))

    def _maximise(self, N: np.ndarray, sums: np.ndarray) -> None:
        self.weights = N / N.sum()
        self.theta = self.component.maximise(sums / np.maximum(N, TINY)[:, None], self.overall, N)

    def restore(self, state: State) -> None:
        """Go back to a snapshot; the sums follow from the parameters."""
        super().restore(state)
        self.sums = None

    def sweep(self) -> Metrics:
        """Do one M and one E step."""
        if self.sums is None:  # a new start, or one that was resumed
            self.sums, _ = self._summed(self._assignment() if self.inner == 0 else self._posterior)
        self._maximise(*self.sums)
        self.sums, total = self._summed(self._posterior)
        bound = total / self.total
        change, self.bound, self.inner, start = bound - self.bound, bound, self.inner + 1, self.start
        converged = abs(change) < self.model.tol
        if converged or self.inner >= self.model.max_iter:
            if not self.best or bound > self.best["bound"]:
                kept = {"weights": self.weights, "theta": self.theta, "bound": bound}
                self.best = {**kept, "n_iter": self.inner, "converged": converged}
            self.start, self.inner, self.bound, self.sums = self.start + 1, 0, -math.inf, None
        return {"log_likelihood": bound, "start": start}


def _width(model: Any) -> int:
    return int(model._sizes.sum()) if model.component == "categorical" else int(model.n_features_in_)


class Mixture(BaseMixture, Estimator):
    """Fit a mixture of independent Gaussian, Bernoulli, Poisson, exponential or categorical features by EM.

    Parameters
    ----------
    n_components : int, default=1
        How many components; more fit finer structure.
    component : {"gaussian", "bernoulli", "poisson", "exponential", "categorical"}, default="gaussian"
        The family of every feature.
    smoothing : float, default=1e-3
        Pseudo-counts; more keep parameters further from their bounds. Zero is plain maximum likelihood.
    tol : float, default=1e-6
        Stop when the mean log-likelihood changes by less.
    max_iter : int, default=200
        Most sweeps of a start.
    n_init : int, default=1
        Starts; the best is kept.
    random_state : int or RandomState, optional
        Seed for the starts and for ``sample``.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Share of each component.
    parameters_ : dict of ndarray
        By name, each (n_components, ...): mean and variance, probability, or rate.
    labels_ : ndarray of shape (n_samples,)
        The component of each row that was fitted.
    lower_bound_ : float
        Mean log-likelihood at the end.
    converged_, n_iter_ : bool and int
        Of the best start.

    Notes
    -----
    Maximises the weighted mean log-likelihood (1). A sweep costs O(n d k).

    References
    ----------
    .. [1] A. Dempster, N. Laird, D. Rubin (1977). Maximum likelihood from incomplete data via the EM algorithm. JRSS B 39.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import Mixture
    >>> X = np.random.default_rng(0).poisson([[1, 9]] * 50 + [[9, 1]] * 50)
    >>> Mixture(2, component="poisson", random_state=0).fit(X).weights_.round(1)
    array([0.5, 0.5])
    """

    _reads_sources = True
    _expected_failures: ClassVar[dict[str, str]] = {
        "check_clustering": "asks for three groups by n_clusters; here it is n_components, by default 1",
        "check_sample_weight_equivalence_on_dense_data": "with several components the start draws rows at random: "
        "repeated rows draw others, and the components come in another order",
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "component": [StrOptions(set(COMPONENTS))],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "weights_": Array("n_components", low=0),
        "_sizes": Maybe(Index("n_features_in_", below=2**31, low=1)),
        "parameters_": Record(Array("n_components", _width)),
        "labels_": Maybe(Index(None, below="n_components")),
        "lower_bound_": Number(),
        "converged_": Flag(),
    }

    def __init__(
        self,
        n_components=1,
        *,
        component="gaussian",
        smoothing=1e-3,
        tol=1e-6,
        max_iter=200,
        n_init=1,
        random_state=None,
    ):
        self.n_components = n_components
        self.component = component
        self.smoothing = smoothing
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 20}

    def fit(self, X, y=None, sample_weight=None):
        """Fit rows X (n, d), optionally weighted."""
        return self._fit(X, y, sample_weight)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit and return the component of each row."""
        return self.fit(X, y, sample_weight).predict(X)

    def _family(self) -> Component:
        if self.component == "categorical":
            return Categorical(self.smoothing, getattr(self, "_sizes", None))
        return COMPONENTS[self.component](self.smoothing)

    def _learner(self, data: Data) -> EM:
        if len(data.X) < self.n_components:
            raise errors.value(
                "Mixture",
                f"n_samples must be at least n_components={self.n_components}",
                f"n_samples = {len(data.X)}",
            )
        vars(self).pop("_sizes", None)
        family = self._family()
        family.measure(data.X)
        return EM(self, family, data._replace(X=data.X.astype(np.float64)))

    def _adopt(self, learner: EM) -> None:
        best = learner.best or {
            "weights": learner.weights, "theta": learner.theta, "bound": learner.bound,
            "n_iter": learner.inner, "converged": False,
        }  # fmt: skip
        if isinstance(learner.component, Categorical):
            self._sizes = learner.component.sizes
        self.weights_, self.parameters_ = best["weights"], dict(best["theta"])
        self.lower_bound_, self.n_iter_ = best["bound"], best["n_iter"]
        self.converged_ = bool(best["converged"])
        if learner.done:
            self.labels_ = self._by_blocks(lambda rows: self._joint(rows).argmax(axis=1), learner.X)

    def _joint(self, X: np.ndarray) -> np.ndarray:
        family = self._family()
        family.check(X)
        with np.errstate(divide="ignore"):
            return family.log_prob(X.astype(np.float64), self.parameters_) + np.log(self.weights_)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.choice(len(self.weights_), size=n, p=self.weights_ / self.weights_.sum())
        return self._family().sample(self.parameters_, z, rng)
