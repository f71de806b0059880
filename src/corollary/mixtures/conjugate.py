r"""Conjugate priors: families whose posterior, evidence and predictive law are closed forms.

A Gaussian with :math:`\mu \mid \Sigma \sim \mathcal N(m_0, \Sigma / \kappa_0)` and :math:`\Sigma` inverse Wishart with
:math:`\nu_0` degrees of freedom and scale :math:`\Psi_0` has, after :math:`n` rows,

.. math::
    \kappa_n = \kappa_0 + n, \quad \nu_n = \nu_0 + n, \quad m_n = \frac{\kappa_0 m_0 + \sum_t x_t}{\kappa_n}, \quad
    \Psi_n = \Psi_0 + \sum_t x_t x_t^\top + \kappa_0 m_0 m_0^\top - \kappa_n m_n m_n^\top, \tag{1}

.. math::
    p(x_1, \ldots, x_n) = \pi^{-nd/2}\, \frac{\Gamma_d(\nu_n / 2)}{\Gamma_d(\nu_0 / 2)}\,
    \frac{|\Psi_0|^{\nu_0/2}}{|\Psi_n|^{\nu_n/2}} \Big(\frac{\kappa_0}{\kappa_n}\Big)^{d/2}, \tag{2}

and the next row is Student-t with :math:`\nu_n - d + 1` degrees of freedom, centre :math:`m_n` and scale
:math:`\Psi_n (\kappa_n + 1) / (\kappa_n (\nu_n - d + 1))` (3). With independent features (2) is a product over them, with
:math:`d = 1` in each; with one variance for all, :math:`\nu_n = \nu_0 + nd` and :math:`\Psi_n` is the sum of its
diagonal. Symbols have a Dirichlet prior with :math:`a` pseudo-counts of each, rates a gamma prior with shape :math:`a`.
With counts :math:`n_v`, sum :math:`s` and :math:`B(\alpha, \beta) = \Gamma(\alpha) \beta^{-\alpha}`:

===============  ==================================================================================================
family           evidence of one feature
===============  ==================================================================================================
categorical      :math:`\frac{\Gamma(Va)}{\Gamma(Va + n)} \prod_v \frac{\Gamma(a + n_v)}{\Gamma(a)}`
poisson          :math:`\frac{B(a + s,\; b + n)}{B(a, b)} \prod_t \frac{1}{x_t!}`, with :math:`b = a / \bar x`
exponential      :math:`\frac{B(a + n,\; b + s)}{B(a, b)}`, with :math:`b = a \bar x`
===============  ==================================================================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import gammaln, multigammaln

from corollary import errors
from corollary.mixtures import restaurant_kernels as kernels
from corollary.mixtures.components import COMPONENTS, Categorical
from corollary.mixtures.restaurant_kernels import Prior, Tables

__all__ = ["Family", "GaussianFamily", "RateFamily", "SymbolFamily"]

CODES = {"full": kernels.FULL, "diag": kernels.DIAGONAL, "spherical": kernels.SPHERICAL}
FLATTEST = 1e-6  # least variance of a feature that a prior is made from, over the features' mean


class Family(ABC):
    """A family with its prior; ``empty`` is the row of the empty table."""

    prior: Prior
    empty: Tables

    def tables(self, count: int) -> Tables:
        """Return ``count`` empty tables, and the one that stays empty, last."""
        return Tables(*(np.repeat(part, count + 1, axis=0) for part in self.empty))

    def seated(self, rows: np.ndarray, z: np.ndarray) -> Tables:
        """Return the tables of encoded rows, numbered 0, 1, ... by z, and the empty one."""
        t = self.tables(int(z.max(initial=-1)) + 1)
        kernels.place(rows, z, self.prior, t)
        return t

    def log_predictive(self, X: np.ndarray, t: Tables) -> np.ndarray:
        """Return the log-densities (n, C) of rows given the customers of each table."""
        return kernels.predictive(self.encode(X), self.prior, t) + self.constant(X)[:, None]

    def constant(self, X: np.ndarray) -> np.ndarray:
        """Return the part (n,) of the log-density that is the same at every table, which the kernels leave out."""
        return np.zeros(len(X))

    @abstractmethod
    def encode(self, X: np.ndarray) -> np.ndarray:
        """Return rows as the kernels take them; raises if they cannot come from the family."""

    @abstractmethod
    def log_evidence(self, t: Tables) -> np.ndarray:
        """Return the log marginal likelihood (C,) of the customers of each table, but for their ``constant``."""

    @abstractmethod
    def parameters(self, t: Tables) -> dict[str, np.ndarray]:
        """Return the expected parameters of each table."""

    @abstractmethod
    def sample(self, t: Tables, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw one row from the predictive law of each table in ``z``."""


class GaussianFamily(Family):
    """Normal-inverse-Wishart, with features dependent ("full"), independent ("diag") or of one variance."""

    def __init__(
        self, kind: str, centre: np.ndarray, covariance: np.ndarray, kappa: float, nu: float
    ) -> None:
        self.kind, self.centre, self.covariance, self.d = kind, centre, covariance, len(centre)
        self.prior = Prior(CODES[kind], float(kappa), float(nu), np.zeros(0), np.zeros(0))
        # the scale whose expected covariance is the given one
        if kind == "full":
            B = np.linalg.cholesky((nu - self.d - 1) * covariance).T
        else:
            B = (nu - 2) * (covariance if kind == "diag" else covariance.mean(keepdims=True))[None]
        self.empty = Tables(np.zeros(1), np.zeros((1, self.d)), np.ascontiguousarray(B)[None], np.zeros(1))
        kernels._normalise(self.prior, self.empty, 0)

    @classmethod
    def from_data(
        cls, X: np.ndarray, kind: str, centre: Any, covariance: Any, kappa: float, nu: float | None
    ) -> GaussianFamily:
        """Return the family with what is not given taken from the data; a covariance of s is s times its variances."""
        d, owner = X.shape[1], "DirichletProcessMixture"
        least = d + 1 if kind == "full" else 2
        nu = least + 1 if nu is None else nu
        if nu <= least:
            raise errors.value(owner, f"degrees_of_freedom_prior must be above {least}", nu, "Leave it None.")
        centre = X.mean(axis=0) if centre is None else np.asarray(centre, np.float64)
        if centre.shape != (d,):
            raise errors.value(owner, f"mean_prior must have shape ({d},)", centre.shape)
        if np.ndim(covariance) == 0:
            v = X.var(axis=0)
            v = np.maximum(v, FLATTEST * v.mean()) if v.any() else np.ones(d)
            covariance = covariance * (np.diag(v) if kind == "full" else v)
        covariance = np.asarray(covariance, np.float64)
        if covariance.shape != ((d, d) if kind == "full" else (d,)):
            shape = f"({d}, {d})" if kind == "full" else f"({d},)"
            raise errors.value(
                owner, f"covariance_prior must be a number or have shape {shape}", covariance.shape
            )
        if (np.linalg.eigvalsh(covariance) if kind == "full" else covariance).min() <= 0:
            raise errors.value(owner, "covariance_prior must be positive definite", "one that is not")
        return cls(kind, centre, covariance, kappa, nu)

    def encode(self, X: np.ndarray) -> np.ndarray:
        """Return rows with the prior's centre at zero."""
        return np.ascontiguousarray(X - self.centre, np.float64)

    def _freedom(self, t: Tables) -> np.ndarray:
        """Return the degrees of freedom of eq. 1."""
        return self.prior.nu + t.n * (self.d if self.kind == "spherical" else 1)

    def _log_scale(self, t: Tables) -> np.ndarray:
        """Return log-determinants (full), summed logarithms (diag) or the logarithm (spherical) of the scales."""
        if self.kind == "full":
            return 2 * np.log(np.diagonal(t.B, axis1=1, axis2=2)).sum(axis=1)
        return np.log(t.B[:, 0]).sum(axis=1)

    def log_evidence(self, t: Tables) -> np.ndarray:
        """Return eq. 2."""
        d, kappa, nu0, nu = self.d, self.prior.kappa, self.prior.nu, self._freedom(t)
        if self.kind == "full":
            gammas = multigammaln_each(nu / 2, d) - multigammaln(nu0 / 2, d)
        else:
            gammas = (d if self.kind == "diag" else 1) * (gammaln(nu / 2) - gammaln(nu0 / 2))
        scales = nu0 / 2 * self._log_scale(self.empty) - nu / 2 * self._log_scale(t)
        return gammas + scales - d / 2 * (t.n * math.log(math.pi) - np.log(kappa / (kappa + t.n)))

    def parameters(self, t: Tables) -> dict[str, np.ndarray]:
        """Return posterior means of the centre and of the covariance."""
        nu = self._freedom(t)
        if self.kind == "full":
            C = np.swapaxes(t.B, 1, 2) @ t.B / (nu - self.d - 1)[:, None, None]
        else:
            C = t.B[:, 0] / (nu - 2)[:, None]
        return {"mean": t.a + self.centre, "covariance": C[:, 0] if self.kind == "spherical" else C}

    def sample(self, t: Tables, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw from eq. 3: a Gaussian over the root of a chi-square."""
        d, nu, kappa = self.d, self._freedom(t)[z], self.prior.kappa + t.n[z]
        noise = rng.standard_normal((len(z), d))
        if self.kind == "full":
            noise, nu = np.einsum("ni,nij->nj", noise, t.B[z]), nu - d + 1
        else:
            noise *= np.sqrt(t.B[z, 0])
        spread = rng.chisquare(nu[:, None], (len(z), d if self.kind == "diag" else 1))
        return self.centre + t.a[z] + noise * np.sqrt((1 + 1 / kappa)[:, None] / spread)


class SymbolFamily(Family):
    """Independent symbols 0, 1, ... with Dirichlet priors; bits have two of them."""

    def __init__(self, kind: str, sizes: np.ndarray, a: float) -> None:
        self.sizes, self.starts = sizes, np.cumsum(sizes) - sizes
        self.component = Categorical(a, sizes) if kind == "categorical" else COMPONENTS[kind](a)
        self.component.owner = "DirichletProcessMixture"
        f = int(sizes.sum())
        self.prior = Prior(kernels.CATEGORICAL, 0.0, 0.0, np.full(f, float(a)), a * sizes.astype(np.float64))
        shape = self.prior.shape
        self.empty = Tables(np.zeros(1), shape[None].copy(), np.log(shape)[None, None], np.zeros(1))
        kernels._normalise(self.prior, self.empty, 0)

    def encode(self, X: np.ndarray) -> np.ndarray:
        """Return the place of each symbol among those of all features."""
        self.component.check(X)
        return np.ascontiguousarray(X + self.starts, np.float64)

    def log_evidence(self, t: Tables) -> np.ndarray:
        """Return the table's first row, summed over features."""
        total = self.prior.rate
        symbols = (gammaln(t.a) - gammaln(self.prior.shape)).sum(axis=1)
        return symbols + (gammaln(total) - gammaln(total + t.n[:, None])).sum(axis=1)

    def parameters(self, t: Tables) -> dict[str, np.ndarray]:
        """Return posterior mean probabilities; for bits those of a one."""
        p = t.a / np.repeat(self.prior.rate + t.n[:, None], self.sizes, axis=1)
        return {"probability": p if isinstance(self.component, Categorical) else p[:, 1::2]}

    def sample(self, t: Tables, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw rows; given a table the features are independent, with its mean probabilities."""
        return self.component.sample(self.parameters(t), z, rng)


class RateFamily(Family):
    """Independent Poisson counts or exponential times with gamma priors of the rates."""

    def __init__(self, kind: str, mean: np.ndarray, a: float) -> None:
        self.kind, self.mean = kind, mean
        self.component = COMPONENTS[kind](a)
        self.component.owner = "DirichletProcessMixture"
        mean = np.where(mean > 0, mean, 1.0)
        shape, rate = np.full(len(mean), float(a)), a / mean if kind == "poisson" else a * mean
        code = kernels.POISSON if kind == "poisson" else kernels.EXPONENTIAL
        self.prior = Prior(code, 0.0, 0.0, shape, rate)
        start = shape if kind == "poisson" else rate
        self.empty = Tables(np.zeros(1), start[None].copy(), np.zeros((1, 1, len(mean))), np.zeros(1))
        kernels._normalise(self.prior, self.empty, 0)

    def encode(self, X: np.ndarray) -> np.ndarray:
        """Return rows."""
        self.component.check(X)
        return np.ascontiguousarray(X, np.float64)

    def constant(self, X: np.ndarray) -> np.ndarray:
        """Return minus log x! for counts."""
        return -gammaln(X + 1.0).sum(axis=1) if self.kind == "poisson" else super().constant(X)

    def _gamma(self, t: Tables) -> tuple[np.ndarray, np.ndarray]:
        """Return shape and rate (C, d) of the posteriors."""
        n = t.n[:, None]
        return (t.a, self.prior.rate + n) if self.kind == "poisson" else (self.prior.shape + n, t.a)

    def log_evidence(self, t: Tables) -> np.ndarray:
        """Return the table's last rows, summed over features."""
        log_b = lambda shape, rate: gammaln(shape) - shape * np.log(rate)
        return (log_b(*self._gamma(t)) - log_b(self.prior.shape, self.prior.rate)).sum(axis=1)

    def parameters(self, t: Tables) -> dict[str, np.ndarray]:
        """Return posterior mean rates."""
        shape, rate = self._gamma(t)
        return {"rate": shape / rate}

    def sample(self, t: Tables, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a rate from the posterior of each table in z, and a row with it."""
        shape, rate = self._gamma(t)
        return self.component.sample({"rate": rng.gamma(shape[z], 1 / rate[z])}, np.arange(len(z)), rng)


def multigammaln_each(a: np.ndarray, d: int) -> np.ndarray:
    """Return log Gamma_d of every entry; scipy's takes all or none."""
    i = np.arange(d)
    return d * (d - 1) / 4 * math.log(math.pi) + gammaln(a[:, None] - i / 2).sum(axis=1)
