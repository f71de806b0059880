r"""Hamiltonian Monte Carlo: proposals far away that follow the gradient of the log-density.

With a momentum :math:`y` and the inverse mass :math:`\Sigma`, an estimate of the target's covariance, the energy is

.. math:: H(\theta, y) = \tfrac12 y^\top \Sigma y - \log p(\theta), \qquad y \sim \mathcal N(0, \Sigma^{-1}). \tag{1}

Its flow :math:`\dot\theta = \Sigma y`, :math:`\dot y = \nabla\log p(\theta)` keeps :math:`H` and the volume. The leapfrog

.. math::
    y \leftarrow y + \tfrac\epsilon2 \nabla\log p(\theta), \qquad \theta \leftarrow \theta + \epsilon\Sigma y, \qquad
    y \leftarrow y + \tfrac\epsilon2 \nabla\log p(\theta) \tag{2}

keeps the volume exactly, runs backwards when :math:`y` is turned, and errs in :math:`H` by :math:`O(\epsilon^2)`; so
accepting the end of :math:`L` steps with probability :math:`\min(1, e^{H - H'})` (3) leaves :math:`p` unchanged. With
:math:`\Sigma` the true covariance, a path of length :math:`\pi/2` from a Gaussian ends at an independent draw; the length of
each path is drawn between half and one and a half times ``path_length``, so that no direction comes back to where it began
every time.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from corollary.bayes.adaptation import Spread
from corollary.bayes.density import Target
from corollary.bayes.metropolis import log_acceptance
from corollary.bayes.sampler import AdaptiveChains, AdaptiveSampler

__all__ = ["HMC", "energy", "leapfrog"]

DIVERGED = 1000.0  # an error in the energy beyond it is called a divergence, as in Stan


def energy(log_p: Tensor, y: Tensor, spread: Spread) -> Tensor:
    """Return eq. 1 of each chain."""
    return 0.5 * (y * spread.apply(y)).sum(1) - log_p


def leapfrog(
    target: Target, theta: Tensor, y: Tensor, gradient: Tensor, step: float, n_steps: int, spread: Spread
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return position, log-density, momentum and gradient after ``n_steps`` of eq. 2; two half steps in a row are one."""
    y = torch.add(y, gradient, alpha=0.5 * step)
    for _ in range(n_steps - 1):
        theta = torch.add(theta, spread.apply(y), alpha=step)
        y = torch.add(y, target.slope(theta), alpha=step)
    theta = torch.add(theta, spread.apply(y), alpha=step)
    log_p, gradient = target.gradient(theta)
    return theta, log_p, torch.add(y, gradient, alpha=0.5 * step), gradient


class HamiltonianChains(AdaptiveChains):
    """Hamiltonian transitions, with the same number of leapfrog steps in all chains."""

    statistics = ("acceptance", "diverging", "energy", "n_steps")

    def momentum(self) -> Tensor:
        """Draw a momentum for every chain."""
        return self.spread.unscale(self.normal())

    def path(self, n_steps: int) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor, Tensor]:
        """Return the end of a path, and the energies before and after."""
        y = self.momentum()
        before = energy(self.log_p, y, self.spread)
        end = leapfrog(self.target, self.theta, y, self.gradient, self.step_size, n_steps, self.spread)
        return end, before, energy(end[1], end[2], self.spread).nan_to_num(nan=torch.inf)

    def trial(self) -> float:
        """Return the mean acceptance of a path of one step."""
        _, before, after = self.path(1)
        return float(log_acceptance(-before, -after).exp().mean())

    def length(self) -> int:
        """Draw the number of steps of the next path."""
        u = float(torch.rand((), generator=self.generator, device=self.theta.device))
        steps = math.ceil((0.5 + u) * self.model.path_length / self.step_size)
        return min(max(1, steps), self.model.max_steps)

    def transition(self) -> dict[str, Tensor]:
        """Follow a path, and accept its end or stay."""
        n_steps = self.length()
        before, after, acceptance, energies = (
            self._compiled(n_steps) if self.compiled else self._accepted(n_steps)
        )
        return {
            "acceptance": acceptance,
            "diverging": after - before > DIVERGED,
            "energy": energies,
            "n_steps": torch.full_like(before, n_steps),
        }

    def _accepted(self, n_steps: int) -> tuple[Tensor, ...]:
        """Move; return the energies before and after the path, the acceptance, and the energy where the chain is now."""
        (theta, log_p, _, gradient), before, after = self.path(n_steps)
        log_a = log_acceptance(-before, -after)
        accepted = self.log_uniform() <= log_a
        self.move(accepted, theta, log_p, gradient)
        return before, after, log_a.exp(), torch.where(accepted, after, before)

    @property
    def compiled(self) -> bool:
        """Whether the target brings whole transitions, and can make these."""
        target, on = self.target, self.theta.device.type
        return (
            target.transition is not None
            and self.spread.kind != "dense"
            and on == "cpu"
            and target.world == 1
        )

    def _compiled(self, n_steps: int) -> tuple[Tensor, ...]:
        """Do what :meth:`_accepted` does by the target's own loop."""
        y, log_u = self.momentum(), self.log_uniform()
        self.theta, self.log_p, self.gradient, told = self.target.transition(  # type: ignore[misc]
            self.theta, self.log_p, self.gradient, y, log_u, self.step_size, n_steps, self.spread.matrix
        )
        return told.unbind(1)


class HMC(AdaptiveSampler):
    """Draw from a density by Hamiltonian Monte Carlo with paths of a given length, many chains at once.

    All chains take the same number of steps, so that no evaluation is wasted; where the best length of a path is unknown or
    differs from place to place, use :class:`~corollary.bayes.NUTS`, which finds it.

    Parameters
    ----------
    n_chains : int, default=4
        Chains, which run as one batch; more cost little until the batch fills the processor.
    n_draws : int, default=1000
        Draws that each chain keeps. A resumed fit may ask for more of them.
    warmup : int, default=1000
        Transitions before the first kept draw, in which step size and covariance are learned.
    thin : int, default=1
        Transitions per kept draw; more save memory, not time.
    step_size : float, optional
        Step of the leapfrog; learned by default.
    covariance : {"diagonal", "dense", "identity"}, default="diagonal"
        What the warm-up learns of the target's covariance, the inverse of the mass; "dense" follows correlations, and costs
        O(d²).
    target_acceptance : float, default=0.8
        Acceptance that the step size is learned for; more makes smaller steps and fewer divergences.
    path_length : float, default=1.5708
        Mean length of a path, in standard deviations of the target as far as they are learned. Longer paths cross a target
        with strong correlations, at a higher cost.
    max_steps : int, default=1000
        Most steps of a path.
    random_state : int or RandomState, optional
        Seed of all random numbers.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The draws.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        ``log_density``, ``acceptance`` (the probability), ``diverging``, ``energy`` and ``n_steps`` of each draw.
    step_size_ : float
        What was used after the warm-up.
    covariance_ : ndarray of shape (d,) or (d, d)
        What was learned of the covariance: its diagonal, or all of it.
    n_iter_ : int
        Engine steps done: warm-up transitions and kept draws.
    history_ : list of dict
        Means over the chains of every step.

    Notes
    -----
    A transition costs path_length / step_size gradients of all chains. A path whose energy errs by more than 1000 *diverged*:
    the leapfrog met a curvature that its step does not resolve, as in the neck of a funnel, and the draws may miss that
    region. A funnel ``v ~ N(0, 9), x ~ N(0, exp(v))`` is such a target: no step size suits both its ends, and HMC, like
    every sampler here, does not reach its neck; sample ``x / exp(v / 2)`` instead.

    References
    ----------
    .. [1] R. M. Neal (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo, chapter 5.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.bayes import HMC
    >>> sampler = HMC(n_chains=4, n_draws=500, warmup=200, random_state=0)
    >>> table = sampler.fit(lambda theta: -0.5 * theta.square().sum(1), np.zeros(3)).summary()
    >>> bool((table["r_hat"] < 1.02).all() and (abs(table["mean"]) < 5 * table["mcse_mean"]).all())
    True
    """

    _chains = HamiltonianChains
    _parameter_constraints = {
        **AdaptiveSampler._parameter_constraints,
        "path_length": [Interval(Real, 0, None, closed="neither")],
        "max_steps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_chains=4,
        n_draws=1000,
        warmup=1000,
        *,
        thin=1,
        step_size=None,
        covariance="diagonal",
        target_acceptance=0.8,
        path_length=1.5708,
        max_steps=1000,
        random_state=None,
    ):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.covariance = covariance
        self.target_acceptance = target_acceptance
        self.path_length = path_length
        self.max_steps = max_steps
        self.random_state = random_state
