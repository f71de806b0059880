r"""Langevin samplers (MALA, ULA, SGLD, SGHMC): gradient ascent with noise, with or without a Metropolis correction.

The diffusion :math:`d\theta = \nabla\log p\,dt + \sqrt2\,dW` has the stationary density :math:`p`. Its discrete steps

.. math:: \theta' = \theta + \eta\Sigma\nabla\log p(\theta) + \sqrt{2\eta}\,\Sigma^{1/2} z, \qquad z \sim \mathcal N(0, I)
\tag{1}

are the *unadjusted* Langevin algorithm (ULA, with :math:`\Sigma = I`): a bias of order :math:`\eta` remains, for a standard
normal target the variance is :math:`1/(1 - \eta/2)`. The *Metropolis-adjusted* one (MALA) accepts a step with the
probability of Metropolis and Hastings, whose

.. math::
    \log\frac{r(\theta \mid \theta')}{r(\theta' \mid \theta)} = \frac{\lVert\theta' - \theta - \eta\Sigma g\rVert^2
    - \lVert\theta - \theta' - \eta\Sigma g'\rVert^2}{4\eta}, \qquad g = \nabla\log p(\theta), \tag{2}

in the norm of :math:`\Sigma^{-1}`, and is exact for any :math:`\eta`. *Stochastic gradient* Langevin dynamics (SGLD) is ULA
with the gradient of a batch, whose own noise adds a bias of the same order. With a momentum :math:`v` and friction
:math:`\gamma`,

.. math:: v \leftarrow (1 - \eta\gamma)v + \eta\nabla\log\tilde p(\theta) + \sqrt{2\gamma\eta}\,z, \qquad
    \theta \leftarrow \theta + \eta v, \tag{3}

is stochastic gradient Hamiltonian Monte Carlo (SGHMC) of unit mass: friction and noise balance so that
:math:`p(\theta)\mathcal N(v; 0, I)` is stationary as :math:`\eta \to 0`.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from corollary.bayes.density import Posterior
from corollary.bayes.metropolis import log_acceptance
from corollary.bayes.sampler import AdaptiveChains, AdaptiveSampler, Chains, Sampler
from corollary.errors import Diverged

__all__ = ["MALA", "SGHMC", "SGLD", "ULA"]


def langevin_step(theta: Tensor, gradient: Tensor, eta: float, noise: Tensor) -> Tensor:
    """Return eq. 1 with the identity for the covariance."""
    return theta + eta * gradient + math.sqrt(2 * eta) * noise


def kinetic_step(
    theta: Tensor, v: Tensor, gradient: Tensor, eta: float, gamma: float, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """Return position and momentum after eq. 3."""
    v = (1 - eta * gamma) * v + eta * gradient + math.sqrt(2 * gamma * eta) * noise
    return theta + eta * v, v


# --- with the correction ---------------------------------------------------------------------------------


class AdjustedChains(AdaptiveChains):
    """Langevin proposals with a Metropolis correction (MALA); the adapted step size is sqrt(2 eta)."""

    def propose(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return new positions, their log-densities and gradients, and the logarithm of the acceptance, eq. 1 and 2."""
        spread, eta, noise = self.spread, 0.5 * self.step_size**2, self.normal()
        theta = self.theta + eta * spread.apply(self.gradient) + self.step_size * spread.scale(noise)
        log_p, gradient = self.target.gradient(theta)
        # The step back, as noise: its norm is that of the inverse covariance.
        back = -noise - 0.5 * self.step_size * spread.whiten(self.gradient + gradient)
        log_ratio = 0.5 * (noise.square() - back.square()).sum(1)
        return theta, log_p, gradient, log_acceptance(self.log_p, log_p, log_ratio)

    def trial(self) -> float:
        """Return the mean acceptance of one proposal."""
        return float(self.propose()[3].exp().mean())

    def transition(self) -> dict[str, Tensor]:
        """Propose, and accept or stay."""
        theta, log_p, gradient, log_a = self.propose()
        self.move(self.log_uniform() <= log_a, theta, log_p, gradient)
        return {"acceptance": log_a.exp()}


class MALA(AdaptiveSampler):
    """Draw from a density by the Metropolis-adjusted Langevin algorithm, many chains at once.

    One gradient per transition; exact, unlike :class:`~corollary.bayes.ULA`. :class:`~corollary.bayes.HMC` takes several
    steps before it accepts, and mixes faster per gradient in many dimensions.

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
        Standard deviation of the noise of a step, the square root of 2 eta in equation (1), in standard deviations of the
        target as far as they are learned; learned by default.
    covariance : {"diagonal", "dense", "identity"}, default="diagonal"
        What the warm-up learns of the target's covariance; "dense" follows correlations, and costs O(d²).
    target_acceptance : float, default=0.574
        Acceptance that the step size is learned for; more makes smaller steps.
    random_state : int or RandomState, optional
        Seed of all random numbers.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The draws.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        ``log_density`` of each draw, and ``acceptance``, the probability with which its move was accepted.
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
    A transition costs one gradient of all chains. In d dimensions the autocorrelation grows as d to the power 1/3.

    References
    ----------
    .. [1] G. O. Roberts, R. L. Tweedie (1996). Exponential convergence of Langevin distributions and their discrete
       approximations. Bernoulli 2(4), 341-363.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.bayes import MALA
    >>> sampler = MALA(random_state=0).fit(lambda theta: -0.5 * theta.square().sum(1), np.zeros(2))
    >>> bool(np.abs(sampler.summary()["sd"] - 1).max() < 0.2)
    True
    """

    _chains = AdjustedChains

    def __init__(
        self,
        n_chains=4,
        n_draws=1000,
        warmup=1000,
        *,
        thin=1,
        step_size=None,
        covariance="diagonal",
        target_acceptance=0.574,
        random_state=None,
    ):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.covariance = covariance
        self.target_acceptance = target_acceptance
        self.random_state = random_state


# --- without it ------------------------------------------------------------------------------------------


class UnadjustedChains(Chains):
    """Langevin steps without a Metropolis correction (ULA); a step that leaves the support is an error."""

    def transition(self) -> dict[str, Tensor]:
        """Take one step."""
        self._settle(*self._step())
        return {}

    def _step(self) -> tuple[Tensor, Tensor]:
        """Return new positions, and momenta that are kept only where there are any."""
        return langevin_step(self.theta, self.gradient, self.model.step_size, self.normal()), self.gradient

    def _settle(self, theta: Tensor, momentum: Tensor) -> None:
        """Move there, unless it is outside the support."""
        log_p, gradient = self.evaluate(theta)
        if not bool(log_p.isfinite().all() and gradient.isfinite().all()):
            chain = int((~(log_p.isfinite() & gradient.isfinite().all(1))).nonzero()[0, 0])
            raise Diverged(
                f"{self.target.owner}: log_density and its gradient must stay finite; got {log_p[chain].item():g} in "
                f"chain {chain} at step {self.n_iter} (step_size={self.model.step_size:g}). Lower step_size, or use MALA, "
                "which rejects such steps; the draws so far are kept."
            )
        self.theta, self.log_p, self.gradient = theta, log_p, gradient


class BatchChains(UnadjustedChains):
    """Langevin steps (SGLD) with the gradient of a mini-batch of rows, the same rows for all chains."""

    def evaluate(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-densities and gradients, estimated from a new batch where the density is a posterior of rows."""
        posterior, size = self.target.function, self.model.batch_size
        if not isinstance(posterior, Posterior) or size is None or size >= len(posterior):
            return self.target.gradient(theta)
        rows = torch.randint(len(posterior), (size,), generator=self.generator, device=theta.device)
        return self.target.gradient(theta, lambda t: posterior.estimate(t, rows.to(posterior.data[0].device)))


class KineticChains(BatchChains):
    """Underdamped Langevin steps (SGHMC): with a momentum and friction, eq. 3."""

    saved = (*BatchChains.saved, "momentum")

    def __init__(self, model, target, start, seed) -> None:  # type: ignore[no-untyped-def]
        super().__init__(model, target, start, seed)
        self.momentum = self.normal()

    def _step(self) -> tuple[Tensor, Tensor]:
        settings = (self.model.step_size, self.model.friction, self.normal())
        return kinetic_step(self.theta, self.momentum, self.gradient, *settings)

    def _settle(self, theta: Tensor, momentum: Tensor) -> None:
        super()._settle(theta, momentum)
        self.momentum = momentum


class _FixedStep(Sampler):
    _parameter_constraints = {
        **Sampler._parameter_constraints,
        "step_size": [Interval(Real, 0, None, closed="neither")],
    }


class ULA(_FixedStep):
    """Draw approximately from a density by the unadjusted Langevin algorithm, many chains at once.

    Cheap and simple, with a bias that falls with the step size; :class:`~corollary.bayes.MALA` has none.

    Parameters
    ----------
    n_chains : int, default=4
        Chains, which run as one batch; more cost little until the batch fills the processor.
    n_draws : int, default=1000
        Draws that each chain keeps. A resumed fit may ask for more of them.
    warmup : int, default=1000
        Transitions before the first kept draw.
    thin : int, default=1
        Transitions per kept draw; more save memory, not time.
    step_size : float, default=0.01
        The step eta of equation (1). A larger one explores faster, and is further from the density; beyond twice the smallest
        variance of a Gaussian it diverges.
    random_state : int or RandomState, optional
        Seed of all random numbers.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The draws.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        ``log_density`` of each draw.
    n_iter_ : int
        Engine steps done: warm-up transitions and kept draws.
    history_ : list of dict
        Means over the chains of every step.

    Notes
    -----
    A transition costs one gradient of all chains. R-hat and ESS do not see the bias.

    References
    ----------
    .. [1] G. O. Roberts, R. L. Tweedie (1996). Exponential convergence of Langevin distributions and their discrete
       approximations. Bernoulli 2(4), 341-363.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.bayes import ULA
    >>> sampler = ULA(100, 200, 100, step_size=0.5, random_state=0)
    >>> wide = sampler.fit(lambda theta: -0.5 * theta.square().sum(1), np.zeros(1)).draws_.var()
    >>> bool(abs(wide - 1 / (1 - 0.5 / 2)) < 0.1)
    True
    """

    _chains = UnadjustedChains

    def __init__(self, n_chains=4, n_draws=1000, warmup=1000, *, thin=1, step_size=0.01, random_state=None):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.random_state = random_state


class SGLD(_FixedStep):
    """Draw approximately from a posterior by stochastic gradient Langevin dynamics, with a mini-batch of rows a step.

    Parameters
    ----------
    n_chains : int, default=4
        Chains, which run as one batch; more cost little until the batch fills the processor.
    n_draws : int, default=1000
        Draws that each chain keeps. A resumed fit may ask for more of them.
    warmup : int, default=1000
        Transitions before the first kept draw.
    thin : int, default=1
        Transitions per kept draw; more save memory, not time.
    step_size : float, default=1e-3
        The step eta of equation (1). A larger one explores faster, and is further from the posterior.
    batch_size : int, optional
        Rows of a :class:`~corollary.bayes.Posterior` that a gradient is estimated from; by default, and for any other
        log-density, all. Fewer are faster, and add noise that widens the draws.
    random_state : int or RandomState, optional
        Seed of all random numbers.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The draws.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        ``log_density`` of each draw, as its batch estimates it.
    n_iter_ : int
        Engine steps done: warm-up transitions and kept draws.
    history_ : list of dict
        Means over the chains of every step.

    Notes
    -----
    A transition costs one gradient of a batch for all chains. The bias falls with the step size; R-hat and ESS do not see it.

    References
    ----------
    .. [1] M. Welling, Y. W. Teh (2011). Bayesian learning via stochastic gradient Langevin dynamics. ICML.

    Examples
    --------
    >>> import torch
    >>> from corollary.bayes import SGLD, Posterior
    >>> x = torch.linspace(-1.0, 3.0, 200).double()  # with this prior, the mean has the posterior N(0.995, 1 / 201)
    >>> mean = Posterior(lambda t: -0.5 * t.square().sum(1), lambda t, x: -0.5 * (x - t).square(), x)
    >>> sampler = SGLD(16, 300, 200, step_size=1e-4, batch_size=50, random_state=0).fit(mean, [0.9])
    >>> bool(abs(sampler.draws_.mean() - 0.995) < 0.02)
    True
    """

    _chains = BatchChains
    _parameter_constraints = {
        **_FixedStep._parameter_constraints,
        "batch_size": [None, Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_chains=4,
        n_draws=1000,
        warmup=1000,
        *,
        thin=1,
        step_size=1e-3,
        batch_size=None,
        random_state=None,
    ):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.batch_size = batch_size
        self.random_state = random_state


class SGHMC(_FixedStep):
    """Draw approximately from a posterior by stochastic gradient Hamiltonian Monte Carlo, with a mini-batch of rows a step.

    The momentum carries a chain further than :class:`~corollary.bayes.SGLD` in the same number of steps, and averages the
    noise of batches.

    Parameters
    ----------
    n_chains : int, default=4
        Chains, which run as one batch; more cost little until the batch fills the processor.
    n_draws : int, default=1000
        Draws that each chain keeps. A resumed fit may ask for more of them.
    warmup : int, default=1000
        Transitions before the first kept draw.
    thin : int, default=1
        Transitions per kept draw; more save memory, not time.
    step_size : float, default=1e-2
        The step eta of equation (3). A larger one explores faster, and is further from the posterior.
    friction : float, default=1.0
        The friction gamma of equation (3). Less of it keeps the direction for longer, and lets more noise of the batches in.
    batch_size : int, optional
        Rows of a :class:`~corollary.bayes.Posterior` that a gradient is estimated from; by default, and for any other
        log-density, all.
    random_state : int or RandomState, optional
        Seed of all random numbers.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The draws.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        ``log_density`` of each draw, as its batch estimates it.
    n_iter_ : int
        Engine steps done: warm-up transitions and kept draws.
    history_ : list of dict
        Means over the chains of every step.

    Notes
    -----
    A transition costs one gradient of a batch for all chains. The bias falls with the step size; R-hat and ESS do not see it.

    References
    ----------
    .. [1] T. Chen, E. B. Fox, C. Guestrin (2014). Stochastic gradient Hamiltonian Monte Carlo. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.bayes import SGHMC
    >>> sampler = SGHMC(100, 300, 200, step_size=0.1, random_state=0)
    >>> draws = sampler.fit(lambda theta: -0.5 * theta.square().sum(1), np.zeros(1)).draws_
    >>> bool(abs(draws.var() - 1) < 0.15)
    True
    """

    _chains = KineticChains
    _parameter_constraints = {
        **SGLD._parameter_constraints,
        "friction": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_chains=4,
        n_draws=1000,
        warmup=1000,
        *,
        thin=1,
        step_size=1e-2,
        friction=1.0,
        batch_size=None,
        random_state=None,
    ):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.friction = friction
        self.batch_size = batch_size
        self.random_state = random_state
