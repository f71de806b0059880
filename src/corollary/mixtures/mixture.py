r"""EM for a mixture of any component that can be fitted to weighted data.

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp
from sklearn.cluster import kmeans_plusplus
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Estimator
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics, State
from corollary.engine.run import current
from corollary.engine.sources import blocks, drawn
from corollary.linalg.moments import Moments, moments_of
from corollary.mixtures.posterior import BaseMixture
from corollary.shapes import Anything, Array, Count, Flag, Index, Maybe, Number, Record

__all__ = ["COMPONENTS", "Component", "Mixture"]

TINY = 1e-300


class Component(ABC):
    """A family of densities of rows with a weighted maximum-likelihood fit; parameters are a dict of (k, ...) arrays."""

    owner = "Mixture"  # who an error speaks for

    @abstractmethod
    def check(self, X: np.ndarray) -> None:
        """Raise if the data cannot come from this family."""

    @abstractmethod
    def statistics(self, X: np.ndarray) -> np.ndarray:
        """Return what eq. 2 averages, of shape (n, f)."""

    def measure(self, X: Any) -> None:
        """Check all rows of an array or a source, and remember what their statistics need."""
        for _, block in blocks(X):
            self.check(block)

    @abstractmethod
    def maximise(self, mean: np.ndarray, overall: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:
        """Return the parameters from mean statistics (k, f), those of all rows (f,), and counts (k,)."""

    @abstractmethod
    def log_prob(self, X: np.ndarray, theta: dict[str, np.ndarray]) -> np.ndarray:
        """Return log-densities (n, k)."""

    @abstractmethod
    def sample(self, theta: dict[str, np.ndarray], z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw one row from each component in ``z``."""


class Gaussian(Component):
    """Independent Gaussian features."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing

    def check(self, X: np.ndarray) -> None:
        """Take any finite numbers."""

    def measure(self, X: Any) -> None:
        """Remember the mean."""
        self.centre = X.mean(axis=0, dtype=np.float64) if isinstance(X, np.ndarray) else whole(X).mean

    def statistics(self, X: np.ndarray) -> np.ndarray:
        """Return x and x², from the mean of all rows: far from 0 the squares would leave no digits for the variance."""
        Y = X - self.centre
        return np.hstack([Y, Y**2])

    def maximise(self, mean: np.ndarray, overall: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:
        """Return means and variances; a pseudo-count has the variance of all rows."""
        d = mean.shape[1] // 2
        m, whole = mean[:, :d], overall[d:] - overall[:d] ** 2
        weight = count[:, None] / (count[:, None] + self.smoothing)
        v = weight * np.maximum(mean[:, d:] - m**2, 0) + (1 - weight) * whole
        return {"mean": m + self.centre, "variance": np.maximum(v, 1e-12 * np.maximum(whole, 1e-12))}

    def log_prob(self, X: np.ndarray, theta: dict[str, np.ndarray]) -> np.ndarray:
        """Return the table's first row."""
        m, v = theta["mean"], theta["variance"]
        centre = m.mean(axis=0)
        Y, m = X - centre, m - centre
        quadratic = (Y**2) @ (1 / v).T - 2 * Y @ (m / v).T + (m**2 / v).sum(axis=1)
        return -0.5 * (quadratic + np.log(2 * math.pi * v).sum(axis=1))

    def sample(self, theta: dict[str, np.ndarray], z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rows."""
        return rng.normal(theta["mean"][z], np.sqrt(theta["variance"][z]))


class _Mean(Component):
    """A family whose parameter is a function of the mean of x alone."""

    def __init__(self, smoothing: float) -> None:
        self.smoothing = smoothing

    def statistics(self, X: np.ndarray) -> np.ndarray:
        """Return x."""
        return X

    def smoothed(self, mean: np.ndarray, prior: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Return means with pseudo-counts at ``prior``."""
        return (count[:, None] * mean + self.smoothing * prior) / (count[:, None] + self.smoothing)


class Bernoulli(_Mean):
    """Independent bits."""

    def check(self, X: np.ndarray) -> None:
        """Take zeros and ones."""
        if not np.isin(X, (0, 1)).all():
            raise errors.value(
                self.owner, "bernoulli data must be 0 or 1", f"{_outside(X, (0, 1))}", "Binarise X."
            )

    def maximise(self, mean: np.ndarray, overall: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:
        """Return probabilities."""
        return {"probability": self.smoothed(mean, np.full(len(overall), 0.5), count)}

    def log_prob(self, X: np.ndarray, theta: dict[str, np.ndarray]) -> np.ndarray:
        """Return the table's second row."""
        p = np.clip(theta["probability"], TINY, 1 - 1e-16)
        return X @ (np.log(p) - np.log1p(-p)).T + np.log1p(-p).sum(axis=1)

    def sample(self, theta: dict[str, np.ndarray], z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rows."""
        return (rng.random((len(z), theta["probability"].shape[1])) < theta["probability"][z]).astype(
            np.float64
        )


class Poisson(_Mean):
    """Independent counts."""

    def check(self, X: np.ndarray) -> None:
        """Take whole numbers from zero."""
        if (X < 0).any() or (X != np.round(X)).any():
            raise errors.value(
                self.owner, "poisson data must be counts", f"{_outside(X)}", "Use whole numbers from 0."
            )

    def maximise(self, mean: np.ndarray, overall: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:
        """Return rates."""
        return {"rate": np.maximum(self.smoothed(mean, overall, count), 1e-12)}

    def log_prob(self, X: np.ndarray, theta: dict[str, np.ndarray]) -> np.ndarray:
        """Return the table's third row."""
        r = theta["rate"]
        return X @ np.log(r).T - r.sum(axis=1) - gammaln(X + 1).sum(axis=1)[:, None]

    def sample(self, theta: dict[str, np.ndarray], z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rows."""
        return rng.poisson(theta["rate"][z]).astype(np.float64)


class Exponential(_Mean):
    """Independent waiting times."""

    def check(self, X: np.ndarray) -> None:
        """Take numbers from zero."""
        if (X < 0).any():
            raise errors.value(self.owner, "exponential data must not be negative", f"minimum {X.min():g}")

    def maximise(self, mean: np.ndarray, overall: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:
        """Return rates."""
        return {"rate": 1 / np.maximum(self.smoothed(mean, overall, count), 1e-12)}

    def log_prob(self, X: np.ndarray, theta: dict[str, np.ndarray]) -> np.ndarray:
        """Return the table's fourth row."""
        return np.log(theta["rate"]).sum(axis=1) - X @ theta["rate"].T

    def sample(self, theta: dict[str, np.ndarray], z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rows."""
        return rng.exponential(1 / theta["rate"][z])


class Categorical(_Mean):
    """Independent symbols 0, 1, ...; features may have different numbers of them."""

    def __init__(self, smoothing: float, sizes: np.ndarray | None = None) -> None:
        super().__init__(smoothing)
        self.sizes = sizes

    def measure(self, X: Any) -> None:
        """Remember the largest symbol of each feature."""
        self.sizes = np.max([self._largest(block) for _, block in blocks(X)], axis=0)

    def _largest(self, X: np.ndarray) -> np.ndarray:
        if (X < 0).any() or (X != np.round(X)).any():
            raise errors.value(self.owner, "categorical data must be whole numbers from 0", f"{_outside(X)}")
        return X.max(axis=0).astype(np.int64) + 1  # type: ignore[no-any-return]

    def check(self, X: np.ndarray) -> None:
        """Take whole numbers from zero up to the largest of the fit."""
        largest = self._largest(X)
        if (largest > self.sizes).any():
            j = int(np.argmax(largest > self.sizes))
            raise errors.value(
                self.owner, f"feature {j} must stay below {self.sizes[j]}, as in fit", f"{largest[j] - 1}"
            )

    def statistics(self, X: np.ndarray) -> np.ndarray:
        """Return one-hot rows."""
        return np.hstack([X[:, j, None] == np.arange(size) for j, size in enumerate(self.sizes)]).astype(
            np.float64
        )

    def maximise(self, mean: np.ndarray, overall: np.ndarray, count: np.ndarray) -> dict[str, np.ndarray]:
        """Return probabilities (k, sum of sizes)."""
        return {"probability": self.smoothed(mean, 1 / np.repeat(self.sizes, self.sizes), count)}

    def log_prob(self, X: np.ndarray, theta: dict[str, np.ndarray]) -> np.ndarray:
        """Return the table's last row."""
        return self.statistics(X) @ np.log(np.maximum(theta["probability"], TINY)).T

    def sample(self, theta: dict[str, np.ndarray], z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rows by inverting the cumulative probabilities of each feature."""
        ends = np.cumsum(self.sizes)
        parts = [
            theta["probability"][:, end - size : end].cumsum(axis=1) for size, end in zip(self.sizes, ends)
        ]
        u = rng.random((len(z), len(parts)))
        return np.stack(
            [(u[:, j, None] > part[z, :-1]).sum(axis=1) for j, part in enumerate(parts)], 1
        ).astype(float)


COMPONENTS = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "exponential": Exponential,
    "gaussian": Gaussian,
    "poisson": Poisson,
}


def whole(X: Any) -> Moments:
    """Return mean and squared deviations of the features."""
    return moments_of(X, diagonal=True)


def _outside(X: np.ndarray, allowed: tuple[int, ...] = ()) -> str:
    wrong = X[~np.isin(X, allowed)] if allowed else X[(X < 0) | (X != np.round(X))]
    return f"{wrong.flat[0]:g}"


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
