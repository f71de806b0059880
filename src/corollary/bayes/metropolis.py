r"""The Metropolis-Hastings algorithm: propose a point, and accept it with a probability that leaves the target invariant.

From :math:`\theta` a move to :math:`\theta'` is proposed with density :math:`r(\theta' \mid \theta)` and accepted with
probability

.. math:: a(\theta \to \theta') = \min\Big\{1, \frac{r(\theta \mid \theta')}{r(\theta' \mid \theta)}
    \frac{p(\theta')}{p(\theta)}\Big\}, \tag{1}

so that :math:`p(\theta) r(\theta' \mid \theta) a(\theta \to \theta')` is symmetric: detailed balance, whatever :math:`r` is.
The random walk proposes :math:`\theta' = \theta + \epsilon \Sigma^{1/2} z` with :math:`z \sim \mathcal N(0, I)` (2), whose
ratio of :math:`r` is one; :math:`\Sigma` and :math:`\epsilon` are learned in the warm-up, the latter for an acceptance of
0.234, which is best in many dimensions [2]_.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corollary import errors
from corollary.bayes.sampler import AdaptiveChains, AdaptiveSampler

__all__ = ["Metropolis", "log_acceptance"]


def log_acceptance(log_p: Tensor, log_p_new: Tensor, log_ratio: Tensor | float = 0.0) -> Tensor:
    """Return the logarithm of eq. 1; ``log_ratio`` is log r(old | new) - log r(new | old)."""
    found = log_p_new - log_p + log_ratio
    return found.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).clamp(max=0.0)


class MetropolisChains(AdaptiveChains):
    """Metropolis-Hastings transitions: random walks, eq. 2, or a given proposal."""

    uses_gradient = False

    @property
    def adapts(self) -> bool:
        """Whether the step size is to be found; a given proposal has none."""
        return super().adapts and self.model.proposal is None

    def propose(self) -> tuple[Tensor, Tensor | float]:
        """Return new positions, and the logarithms of their ratio of r."""
        given = self.model.proposal
        if given is None:
            return self.theta + self.step_size * self.spread.scale(self.normal()), 0.0
        theta, log_ratio = given(self.theta, self.generator)
        if theta.shape != self.theta.shape or log_ratio.shape != self.log_p.shape:
            must = f"proposal must return positions {tuple(self.theta.shape)} and a log-ratio for each chain"
            raise errors.value(
                self.target.owner, must, f"shapes {tuple(theta.shape)} and {tuple(log_ratio.shape)}"
            )
        return theta, log_ratio

    def trial(self) -> float:
        """Return the mean acceptance of one proposal."""
        theta, log_ratio = self.propose()
        return float(log_acceptance(self.log_p, self.target.value(theta), log_ratio).exp().mean())

    def transition(self) -> dict[str, Tensor]:
        """Propose, and accept or stay."""
        theta, log_ratio = self.propose()
        log_p = self.target.value(theta)
        log_a = log_acceptance(self.log_p, log_p, log_ratio)
        self.move(self.log_uniform() <= log_a, theta, log_p, self.gradient)
        return {"acceptance": log_a.exp()}


class Metropolis(AdaptiveSampler):
    """Draw from a density by random-walk Metropolis, many chains at once; no gradient is needed.

    Use it where the log-density has no gradient, or for a few dimensions; otherwise :class:`~corollary.bayes.NUTS` gives far
    more effective draws per evaluation.

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
        Factor of the proposal's standard deviations; learned by default.
    covariance : {"diagonal", "dense", "identity"}, default="diagonal"
        What the warm-up learns of the target's covariance for its proposals; "dense" follows correlations, and costs O(d²).
    target_acceptance : float, default=0.234
        Acceptance that the step size is learned for; more makes smaller steps.
    proposal : callable, optional
        ``proposal(theta, generator)`` returns new positions (n_chains, d) and log r(old | new) - log r(new | old) of shape
        (n_chains,), in the place of the random walk; then nothing is learned. It must draw from ``generator`` only.
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
    A transition costs one evaluation of the log-density of all chains. In d dimensions the autocorrelation grows as d.

    References
    ----------
    .. [1] W. K. Hastings (1970). Monte Carlo sampling methods using Markov chains and their applications. Biometrika 57.
    .. [2] G. O. Roberts, A. Gelman, W. R. Gilks (1997). Weak convergence and optimal scaling of random walk Metropolis
       algorithms. Annals of Applied Probability 7(1), 110-120.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.bayes import Metropolis
    >>> sampler = Metropolis(random_state=0).fit(lambda theta: -theta.abs().sum(1), np.zeros(2))
    >>> bool(np.abs(sampler.summary()["sd"] - np.sqrt(2)).max() < 0.3)
    True
    """

    _chains = MetropolisChains

    def __init__(
        self,
        n_chains=4,
        n_draws=1000,
        warmup=1000,
        *,
        thin=1,
        step_size=None,
        covariance="diagonal",
        target_acceptance=0.234,
        proposal=None,
        random_state=None,
    ):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.covariance = covariance
        self.target_acceptance = target_acceptance
        self.proposal = proposal
        self.random_state = random_state

    _parameter_constraints = {**AdaptiveSampler._parameter_constraints, "proposal": [None, callable]}

    def _given_parts(self) -> dict[str, Any]:
        return {} if self.proposal is None else {"proposal": self.proposal}
