"""Families of mixture components: Gaussian, Bernoulli, Poisson, exponential and categorical features.

Each has a weighted maximum-likelihood fit, log-densities and samples, by the table of :mod:`corollary.mixtures.mixture`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.special import gammaln

from corollary import errors
from corollary.engine.sources import blocks
from corollary.linalg.moments import Moments, moments_of

__all__ = [
    "COMPONENTS",
    "TINY",
    "Bernoulli",
    "Categorical",
    "Component",
    "Exponential",
    "Gaussian",
    "Poisson",
    "whole",
]

TINY = 1e-300  # stands for zero in a division or a logarithm


class Component(ABC):
    """A family of densities of rows with a weighted maximum-likelihood fit; parameters are a dict of (k, ...) arrays."""

    owner = "Mixture"  # at the start of error messages

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
