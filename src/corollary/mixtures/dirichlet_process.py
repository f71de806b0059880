r"""The Dirichlet process mixture: the number of components is learned.

A Dirichlet process with concentration :math:`\alpha` gives every sample a parameter, and many samples the same one. With
the process integrated out, samples are seated one after the other like the customers of a Chinese restaurant, at a table
:math:`k` with :math:`n_k` customers or at a new one:

.. math:: P(z_i = k \mid z_{<i}) = \frac{n_k}{i - 1 + \alpha}, \qquad P(z_i = \text{new}) = \frac{\alpha}{i - 1 + \alpha}, \tag{1}

so that, whatever the order,

.. math:: P(z) = \frac{\Gamma(\alpha)}{\Gamma(\alpha + n)}\, \alpha^K \prod_{k=1}^K \Gamma(n_k), \qquad
    \mathbb E[K] = \sum_{i=1}^n \frac{\alpha}{\alpha + i - 1}. \tag{2}

The parameters of the components are integrated out too (:mod:`corollary.mixtures.conjugate`). Gibbs sampling takes one
customer out and seats it anew, given all others,

.. math:: P(z_i = k \mid \cdot) \propto n_k^{-i}\, p(x_i \mid x_{z = k}^{-i}), \qquad
    P(z_i = \text{new} \mid \cdot) \propto \alpha\, p(x_i). \tag{3}

The first sweep seats everybody by (3) with nobody there, or all together where that is more probable, which is also asked
whenever the tables have doubled: in many dimensions nearly everybody would get a table. The concentration,
with prior :math:`\mathrm{Gamma}(a, b)`, is drawn with the help of :math:`\eta \sim \mathrm{Beta}(\alpha + 1, n)`:

.. math:: \alpha \sim \rho\, \mathrm{Gamma}(a + K, b - \ln \eta) + (1 - \rho)\, \mathrm{Gamma}(a + K - 1, b - \ln \eta),
    \qquad \frac{\rho}{1 - \rho} = \frac{a + K - 1}{n (b - \ln \eta)}. \tag{4}

Whole tables move too: two customers are picked; their table is split, or their two tables are merged, by allocating the
others in turn with probabilities as in (3), whose product :math:`q` enters the test of Metropolis and Hastings:

.. math:: \frac{P(z', X)}{P(z, X)} \cdot \frac1q = \alpha\, \frac{\Gamma(n_1) \Gamma(n_2)}{\Gamma(n_1 + n_2)}\,
    \frac{p(X_1)\, p(X_2)}{p(X_1 \cup X_2)} \cdot \frac1q \quad \text{(split; a merge has the inverse)}. \tag{5}
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from scipy.stats import gamma
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Estimator
from corollary.engine.learner import Iteration, Metrics
from corollary.mixtures import restaurant_kernels as kernels
from corollary.mixtures.components import COMPONENTS
from corollary.mixtures.conjugate import CODES, Family, GaussianFamily, RateFamily, SymbolFamily
from corollary.mixtures.posterior import BaseMixture
from corollary.mixtures.restaurant_kernels import Tables
from corollary.shapes import Array, Choice, Count, Either, Index, Maybe, Number, Record

__all__ = ["DirichletProcessMixture", "expected_tables", "log_seating"]

MANY = 64  # tables from which on a first seating is weighed against a single table


# --- equations -------------------------------------------------------------------------------------------


def log_seating(counts: np.ndarray, alpha: float) -> float:
    """Return the log-probability of a seating with these numbers of customers, eq. 2."""
    n = float(np.sum(counts))
    tables = sum(math.lgamma(c) for c in counts)
    return len(counts) * math.log(alpha) + tables + math.lgamma(alpha) - math.lgamma(alpha + n)


def expected_tables(n: int, alpha: float) -> float:
    """Return the expected number of tables of n customers, eq. 2."""
    return float((alpha / (alpha + np.arange(n))).sum())


def draw_concentration(
    alpha: float, K: int, n: int, prior: tuple[float, float], rng: np.random.Generator
) -> float:
    """Draw the concentration given K tables of n customers, eq. 4."""
    a, b = prior
    b = b - math.log(rng.beta(alpha + 1, n))
    odds = (a + K - 1) / (n * b)
    shape = a + K if rng.random() < odds / (1 + odds) else a + K - 1
    return float(rng.gamma(shape, 1 / b))


# --- learner ---------------------------------------------------------------------------------------------


class Seating(Iteration):
    """Gibbs sweeps, eq. 3, with splits and merges, eq. 5; the most probable seating is kept."""

    saved = ("z", "alpha", "best", "rng")
    varying = {
        "z": Index("rows", below="rows", low=-1),
        "alpha": Number(0),
        "best": Record(
            {
                "joint": Maybe(Number(finite=False)),
                "z": Maybe(Index("rows", below="rows")),
                "alpha": Maybe(Number(0)),
            }
        ),
    }

    def __init__(self, model: DirichletProcessMixture, family: Family, rows: np.ndarray) -> None:
        super().__init__(model.max_iter)
        self.model, self.family, self.rows, self.rng = model, family, rows, model._rng()
        self.z, self.constant = np.full(len(rows), -1), float(family.constant(rows).sum())
        a, b = model.concentration_prior
        self.alpha = a / b if model.concentration is None else float(model.concentration)
        self.best: dict[str, Any] = {}

    def sweep(self) -> Metrics:
        """Seat every customer anew and try to split or merge; tables are counted afresh, so that nothing drifts."""
        n, K = len(self.rows), int(self.z.max()) + 1
        t = self.family.tables(2 * K + 16)
        kernels.place(self.rows, self.z, self.family.prior, t)
        t, slots, K = self._seat(t, np.arange(2 * K + 16), K)
        for _ in range(self.model.split_merge if n > 1 else 0):
            t, slots = _with_spare(t, slots, K)
            order, u = self.rng.permutation(n), self.rng.random(n)
            accept = 1 - self.rng.random()
            K = kernels.split_or_merge(
                self.rows, self.z, order, u, accept, self.family.prior, t, slots, K, self.alpha
            )
        self.z = np.unique(self.z, return_inverse=True)[1]
        if self.model.concentration is None:
            self.alpha = draw_concentration(self.alpha, K, n, self.model.concentration_prior, self.rng)
        joint = self.log_joint(Tables(*(part[slots[:K]] for part in t)))
        if not self.best or joint > self.best["joint"]:
            self.best = {"joint": joint, "z": self.z.copy(), "alpha": self.alpha}
        return {"log_joint": joint, "components": K, "concentration": self.alpha}

    def _seat(self, t: Tables, slots: np.ndarray, K: int) -> tuple[Tables, np.ndarray, int]:
        n, first = len(self.rows), K == 0
        order, u, done = self.rng.permutation(n), self.rng.random(n), 0
        while done < n:
            short = len(slots) >= MANY and K + kernels.SPARE > len(slots)
            if first and short and self._better_together(t, slots, K, order[:done]):
                return self._all_together()
            t, slots = _with_spare(t, slots, K)
            done, K = kernels.seat(
                self.rows, self.z, order, u, done, self.family.prior, t, slots, K, self.alpha
            )
        return self._all_together() if first and self._better_together(t, slots, K, order) else (t, slots, K)

    def _better_together(self, t: Tables, slots: np.ndarray, K: int, seated: np.ndarray) -> bool:
        """Return whether those who are seated had better share one table: many small ones are slow to merge."""
        one = self.family.tables(1)
        kernels.place(self.rows[seated], np.zeros(len(seated), np.int64), self.family.prior, one)
        apart, together = (
            self.log_joint(Tables(*(part[rows] for part in seating)))
            for seating, rows in ((t, slots[:K]), (one, slice(1)))
        )
        return together > apart

    def _all_together(self) -> tuple[Tables, np.ndarray, int]:
        """Seat everybody at one table."""
        self.z, one = np.zeros_like(self.z), self.family.tables(16)
        kernels.place(self.rows, self.z, self.family.prior, one)
        return one, np.arange(16), 1

    def log_joint(self, t: Tables) -> float:
        """Return log P(z, X), and of the concentration where it is drawn."""
        joint = log_seating(t.n, self.alpha) + float(self.family.log_evidence(t).sum()) + self.constant
        if self.model.concentration is None:
            a, b = self.model.concentration_prior
            joint += float(gamma.logpdf(self.alpha, a, scale=1 / b))
        return joint


def _with_spare(t: Tables, slots: np.ndarray, K: int) -> tuple[Tables, np.ndarray]:
    """Return twice as many tables if few are free."""
    count = len(slots)
    if K + kernels.SPARE <= count:
        return t, slots
    more = Tables(*(np.concatenate([part, np.repeat(part[-1:], count, axis=0)]) for part in t))
    return more, np.append(slots, np.arange(count, 2 * count))


# --- estimator -------------------------------------------------------------------------------------------


def _tables(model: Any) -> int:
    return int(model.n_components_) + 1  # the last is the empty one


def _statistics(model: Any) -> int:
    return int(model._prior["sizes"].sum()) if "sizes" in model._prior else int(model.n_features_in_)


def _scale_rows(model: Any) -> int:
    return (
        int(model.n_features_in_) if (model.component, model.covariance_type) == ("gaussian", "full") else 1
    )


def _scale_columns(model: Any) -> int:
    return 1 if (model.component, model.covariance_type) == ("gaussian", "spherical") else _statistics(model)


class DirichletProcessMixture(BaseMixture, Estimator):
    """Fit a mixture whose number of components is learned, by Gibbs sampling (Chinese restaurant process).

    Use it where the number of groups is not known. Of all sweeps the most probable seating is kept: labels, weights and
    densities are those of that one sample. What every sweep had (components, concentration) is in ``history_``.

    Parameters
    ----------
    component : {"gaussian", "bernoulli", "categorical", "poisson", "exponential"}, default="gaussian"
        The family of the components; features are independent in all but "gaussian".
    covariance_type : {"full", "diag", "spherical"}, default="full"
        Gaussian only: what shape a component may have.
    concentration : float, optional
        How readily a new component is opened; more gives more components. Learned by default.
    concentration_prior : pair of float, default=(1.0, 1.0)
        Shape and rate of the gamma prior of a learned concentration.
    mean_prior : array-like of shape (n_features,), optional
        Gaussian only: where components are expected; the mean of the data by default.
    mean_precision_prior : float, default=0.1
        Gaussian only: how many rows that expectation weighs; more pulls components together.
    covariance_prior : float or array-like, default=0.1
        Gaussian only: the covariance expected within a component. A number is a share of the variances of the data: less
        expects tighter, and finds more, components. Else (d, d) for "full", (d,) for the others.
    degrees_of_freedom_prior : float, optional
        Gaussian only: how firmly that is believed. By default as little as a mean allows: d + 2, or 3 if not "full".
    smoothing : float, default=1.0
        The other families: pseudo-counts of each symbol, or shape of the prior of the rates; more makes components
        more alike.
    split_merge : int, default=5
        Split and merge proposals (Metropolis-Hastings) per sweep; they free a sampler that is stuck. 0 is plain Gibbs sampling.
    max_iter : int, default=100
        Sweeps; more find a more probable seating.
    random_state : int or RandomState, optional
        Seed of the sampler and of ``sample``.

    Attributes
    ----------
    n_components_ : int
        Components of the kept seating.
    weights_ : ndarray of shape (n_components_,)
        Their shares of the rows, largest first.
    parameters_ : dict of ndarray
        Their expected parameters: mean and covariance, probability, or rate.
    means_, covariances_ : ndarray
        Gaussian only, the same.
    labels_ : ndarray of shape (n_samples,)
        The component of each row that was fitted, in the kept seating.
    concentration_ : float
        The concentration of that sweep.
    log_joint_ : float
        Log-probability of that seating with the data and the concentration.
    n_iter_ : int
        Sweeps done.
    history_ : list of dict
        Log-probability, components, concentration and seconds of every sweep.

    Notes
    -----
    Samples from P(z | X), equations (3) to (5). A sweep costs O(n K d²) for full covariances, whose
    Cholesky factors change by rank one with each customer, and O(n K d) for the others. ``score_samples`` is the
    predictive density, a new component included. ``predict_proba`` is among the components that are there. Constant
    features count as having a millionth of the mean variance. Sweeps cannot be shared between processes; each does all.

    References
    ----------
    .. [1] R. M. Neal (2000). Markov chain sampling methods for Dirichlet process mixture models. JCGS 9, algorithm 3.
    .. [2] M. D. Escobar, M. West (1995). Bayesian density estimation and inference using mixtures. JASA 90, 577-588.
    .. [3] D. B. Dahl (2005). Sequentially-allocated merge-split sampler for conjugate and nonconjugate Dirichlet process
       mixture models. Technical report, Texas A&M University.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import DirichletProcessMixture
    >>> X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [20, 0], [0, 20]], 30, axis=0)
    >>> model = DirichletProcessMixture(max_iter=30, random_state=0).fit(X)
    >>> model.n_components_, model.predict([[19, 1], [20, -1]]).tolist() == [model.labels_[30]] * 2
    (3, True)
    """

    _checks = {"ensure_min_samples": 2}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "component": [StrOptions(set(COMPONENTS))],
        "covariance_type": [StrOptions(set(CODES))],
        "concentration": [Interval(Real, 0, None, closed="neither"), None],
        "concentration_prior": [tuple, list],
        "mean_prior": ["array-like", None],
        "mean_precision_prior": [Interval(Real, 0, None, closed="neither")],
        "covariance_prior": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "degrees_of_freedom_prior": [Interval(Real, 0, None, closed="neither"), None],
        "smoothing": [Interval(Real, 0, None, closed="neither")],
        "split_merge": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "n_components_": Count(1),
        "labels_": Index(None, below="n_components_"),
        "weights_": Array("n_components_", low=0),
        "parameters_": Record(Either(*(Array("n_components_", *(None,) * n) for n in range(3)))),
        "means_": Maybe(Array("n_components_", "n_features_in_")),
        "covariances_": Maybe(Either(*(Array("n_components_", *("n_features_in_",) * n) for n in range(3)))),
        "concentration_": Number(0),
        "log_joint_": Number(finite=False),
        "_prior": Choice(
            "component",
            {
                "gaussian": Record(
                    {
                        "centre": Array("n_features_in_"),
                        "covariance": Choice(
                            "covariance_type",
                            {
                                "full": Array("n_features_in_", "n_features_in_"),
                                "diag": Array("n_features_in_"),
                                "spherical": Array("n_features_in_"),
                            },
                        ),
                        "nu": Number(0),
                    }
                ),
                "bernoulli": Record({"sizes": Index("n_features_in_", below=3, low=2)}),
                "categorical": Record({"sizes": Index("n_features_in_", below=2**31, low=1)}),
                "poisson": Record({"mean": Array("n_features_in_")}),
                "exponential": Record({"mean": Array("n_features_in_")}),
            },
        ),
        "_tables": Record(
            {
                "n": Array(_tables, low=0),
                "a": Array(_tables, _statistics),
                "B": Array(_tables, _scale_rows, _scale_columns),
                "c": Array(_tables),
            }
        ),
    }

    def __init__(
        self,
        component="gaussian",
        *,
        covariance_type="full",
        concentration=None,
        concentration_prior=(1.0, 1.0),
        mean_prior=None,
        mean_precision_prior=0.1,
        covariance_prior=0.1,
        degrees_of_freedom_prior=None,
        smoothing=1.0,
        split_merge=5,
        max_iter=100,
        random_state=None,
    ):
        self.component = component
        self.covariance_type = covariance_type
        self.concentration = concentration
        self.concentration_prior = concentration_prior
        self.mean_prior = mean_prior
        self.mean_precision_prior = mean_precision_prior
        self.covariance_prior = covariance_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.smoothing = smoothing
        self.split_merge = split_merge
        self.max_iter = max_iter
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 10}

    # --- fitting -----------------------------------------------------------------------------------------

    def _learner(self, data: Data) -> Seating:
        prior = self.concentration_prior
        if len(prior) != 2 or not all(isinstance(p, Real) and p > 0 for p in prior):
            must = "concentration_prior must be two numbers above 0 (shape and rate)"
            raise errors.value("DirichletProcessMixture", must, repr(prior))
        family = self._prior_of(data.X.astype(np.float64))
        return Seating(self, family, family.encode(data.X))

    def _prior_of(self, X: np.ndarray) -> Family:
        """Return the family with its prior made from the data, and keep what a file must hold of it."""
        if self.component == "gaussian":
            options = (self.mean_prior, self.covariance_prior, self.mean_precision_prior)
            made = GaussianFamily.from_data(X, self.covariance_type, *options, self.degrees_of_freedom_prior)
            self._prior = {"centre": made.centre, "covariance": made.covariance, "nu": made.prior.nu}
            return made
        if self.component in ("bernoulli", "categorical"):
            largest = np.full(X.shape[1], 1.0) if self.component == "bernoulli" else X.max(axis=0)
            self._prior = {"sizes": np.maximum(largest, 0).astype(np.int64) + 1}
        else:
            self._prior = {"mean": X.mean(axis=0)}
        return self._family()

    def _family(self) -> Family:
        prior = self._prior
        if "sizes" in prior:
            return SymbolFamily(self.component, prior["sizes"], self.smoothing)
        if "mean" in prior:
            return RateFamily(self.component, prior["mean"], self.smoothing)
        kappa = self.mean_precision_prior
        return GaussianFamily(self.covariance_type, prior["centre"], prior["covariance"], kappa, prior["nu"])

    def _adopt(self, learner: Seating) -> None:
        best = learner.best or {"joint": -math.inf, "z": np.zeros_like(learner.z), "alpha": learner.alpha}
        sizes = np.bincount(best["z"])
        place = np.empty_like(sizes)
        place[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
        self.labels_, self.n_components_ = place[best["z"]], len(sizes)
        tables = learner.family.seated(learner.rows, self.labels_)
        self._tables = tables._asdict()
        self.weights_ = tables.n[:-1] / len(learner.rows)
        self.parameters_ = learner.family.parameters(Tables(*(part[:-1] for part in tables)))
        if self.component == "gaussian":
            self.means_, self.covariances_ = self.parameters_["mean"], self.parameters_["covariance"]
        self.concentration_, self.log_joint_ = float(best["alpha"]), float(best["joint"])
        self.n_iter_ = learner.n_iter

    # --- using -------------------------------------------------------------------------------------------

    def _shares(self) -> np.ndarray:
        """Return the probability of each table, and of a new one, for the next customer, eq. 1."""
        shares = np.append(self._tables["n"][:-1], self.concentration_)
        return shares / shares.sum()

    def _joint_or_new(self, X: np.ndarray) -> np.ndarray:
        """Return log-probabilities (n, n_components_ + 1) of a row with each table, the last a new one."""
        return self._family().log_predictive(X, Tables(**self._tables)) + np.log(self._shares())

    def _joint(self, X: np.ndarray) -> np.ndarray:
        return self._joint_or_new(X)[:, :-1]

    def _log_prob(self, X: np.ndarray) -> np.ndarray:
        return logsumexp(self._joint_or_new(X), axis=1).astype(X.dtype)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        z = rng.choice(self.n_components_ + 1, size=n, p=self._shares())
        return self._family().sample(Tables(**self._tables), z, rng)
