r"""Noise that grows in time: stochastic differential equations whose densities go from data to a Gaussian.

Data with noise at time t are :math:`x_t = a(t)\, x_0 + s(t)\, \epsilon`, the solution of
:math:`dx = f(t)\, x\, dt + g(t)\, dw` (1). Time runs backwards in

.. math:: dx = [f x - g^2\, \nabla \log p_t(x)]\, dt + g\, d\bar w, \tag{2}

which draws samples, and in the *probability-flow* equation without noise that has the same densities,

.. math:: \frac{dx}{dt} = f x - \tfrac12 g^2\, \nabla \log p_t(x), \qquad
    \frac{d \log p_t(x_t)}{dt} = -\operatorname{div} \frac{dx}{dt}, \tag{3}

so that likelihoods are exact. *Variance exploding* (VE): :math:`a = 1`, :math:`s = \sigma_0 (\sigma_1 / \sigma_0)^t`, f = 0,
:math:`g^2 = 2 s^2 \log(\sigma_1 / \sigma_0)` (4). *Variance preserving* (VP): with
:math:`\beta(t) = \beta_0 + t (\beta_1 - \beta_0)` and :math:`B = \int_0^t \beta`, :math:`a = e^{-B/2}`,
:math:`s^2 = 1 - e^{-B}`, :math:`f = -\beta/2`, :math:`g^2 = \beta` (5). Seen as :math:`x / a`, both are data with noise
of deviation :math:`\sigma = s / a` (6), so one network knows the scores of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["SDE", "VE", "VP", "integrate", "reverse"]

BETA = (0.1, 20.0)  # of VP, at times 0 and 1


class SDE(NamedTuple):
    """Equation 1 between two noise levels, as functions of the time."""

    low: float  # smallest and largest sigma of eq. 6
    high: float

    def time(self, sigma: float) -> float:
        """Return when the noise is sigma."""
        raise NotImplementedError

    def scale(self, t: float) -> float:
        """Return a(t)."""
        raise NotImplementedError

    def sigma(self, t: float) -> float:
        """Return s / a at time t, eq. 6."""
        raise NotImplementedError

    def drift(self, t: float) -> float:
        """Return f(t)."""
        raise NotImplementedError

    def diffusion(self, t: float) -> float:
        """Return g(t)^2."""
        raise NotImplementedError

    def times(self, n: int) -> list[float]:
        """Return n + 1 times from the least noise to the most, even in the logarithm of sigma."""
        ratio = math.log(self.high / self.low)
        return [self.time(self.low * math.exp(ratio * i / n)) for i in range(n + 1)]

    def top(self, t: float) -> float:
        """Return the standard deviation at time t of data of variance 1."""
        return self.scale(t) * math.sqrt(1 + self.sigma(t) ** 2)


class VE(SDE):
    """Variance exploding, eq. 4."""

    def time(self, sigma: float) -> float:
        """Return when the noise is sigma."""
        return math.log(sigma / self.low) / math.log(self.high / self.low)

    def scale(self, t: float) -> float:
        """Return 1."""
        return 1.0

    def sigma(self, t: float) -> float:
        """Return s(t)."""
        return self.low * (self.high / self.low) ** t

    def drift(self, t: float) -> float:
        """Return 0."""
        return 0.0

    def diffusion(self, t: float) -> float:
        """Return g(t)^2."""
        return 2 * self.sigma(t) ** 2 * math.log(self.high / self.low)


class VP(SDE):
    """Variance preserving, eq. 5."""

    def _total(self, t: float) -> float:
        return BETA[0] * t + 0.5 * (BETA[1] - BETA[0]) * t * t

    def time(self, sigma: float) -> float:
        """Return when the noise is sigma: the root of B(t) = log(1 + sigma^2)."""
        rise = BETA[1] - BETA[0]
        return (math.sqrt(BETA[0] ** 2 + 2 * rise * math.log1p(sigma**2)) - BETA[0]) / rise

    def scale(self, t: float) -> float:
        """Return a(t)."""
        return math.exp(-self._total(t) / 2)

    def sigma(self, t: float) -> float:
        """Return s(t) / a(t)."""
        return math.sqrt(math.expm1(self._total(t)))

    def drift(self, t: float) -> float:
        """Return -beta / 2."""
        return -0.5 * self.diffusion(t)

    def diffusion(self, t: float) -> float:
        """Return beta(t)."""
        return BETA[0] + t * (BETA[1] - BETA[0])


def integrate(
    flow: Callable[..., tuple[Tensor, ...]], start: tuple[Tensor, ...], times: Sequence[float]
) -> tuple[Tensor, ...]:
    """Return where d(state)/dt = flow(*state, t) leads from the first time to the last, by Runge and Kutta's fourth order."""
    state = start
    for t, after in zip(times, times[1:]):
        h = after - t

        def moved(
            slope: tuple[Tensor, ...], by: float, state: tuple[Tensor, ...] = state
        ) -> tuple[Tensor, ...]:
            return tuple(x + by * k for x, k in zip(state, slope))

        k1 = flow(*state, t)
        k2 = flow(*moved(k1, h / 2), t + h / 2)
        k3 = flow(*moved(k2, h / 2), t + h / 2)
        k4 = flow(*moved(k3, h), after)
        state = tuple(x + h / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(state, k1, k2, k3, k4))
    return state


def reverse(
    sde: SDE,
    score: Callable[[Tensor, float], Tensor],
    x: Tensor,
    times: Sequence[float],
    noise: Callable[[], Tensor],
) -> Tensor:
    """Return x after eq. 2 from the last time down to the first, by Euler's and Maruyama's steps.

    ``score(x, t)`` is the gradient of log p_t; the last step adds no noise.
    """
    for t, after in zip(times[:0:-1], times[-2::-1]):
        h, g2 = t - after, sde.diffusion(t)
        x = x - h * (sde.drift(t) * x - g2 * score(x, t))
        if after != times[0]:
            x = x + math.sqrt(h * g2) * noise()
    return torch.as_tensor(x)
