r"""The No-U-Turn sampler: Hamiltonian paths that end where they begin to turn back.

A path is doubled, forwards or backwards at random, until it turns: with the first and last momentum :math:`y_-, y_+` of a
stretch and :math:`\rho` the sum of its momenta, less half of both ends, it has turned when

.. math:: \rho^\top \Sigma y_- \le 0 \quad\text{or}\quad \rho^\top \Sigma y_+ \le 0. \tag{1}

The criterion is asked of the whole path and of every balanced part of a doubling; a doubling with a part that has turned, or
whose energy errs by more than 1000, is thrown away and ends the path. Point :math:`i` has weight
:math:`w_i = e^{H_0 - H_i}`. Within a doubling the proposal is point :math:`i` with probability :math:`w_i / \sum_j w_j` (2),
chosen as the points come; a whole doubling of weight :math:`W'` replaces the proposal of the path before, of weight
:math:`W`, with probability :math:`\min(1, W'/W)` (3).

**In one loop.** Leaves of a doubling come one after the other, :math:`n = 0, 1, \dots, 2^j - 1`. An even leaf is the first
of parts that will end later: its momentum is kept in slot :math:`b(n)`, the number of ones in :math:`\lfloor n/2 \rfloor`.
An odd leaf ends as many parts as :math:`n` has trailing ones, which begin at the leaves in the last so many slots. So
:math:`j` slots are enough, nothing is called recursively, and chains whose paths are of different lengths run in one batch
until the last has ended.
"""

from __future__ import annotations

import math
from numbers import Integral

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from corollary.bayes.adaptation import Spread
from corollary.bayes.hmc import DIVERGED, HamiltonianChains, energy
from corollary.bayes.sampler import AdaptiveSampler

__all__ = ["NUTS", "slots", "turned"]

LOG_HALF = math.log(0.5)


def turned(rho: Tensor, first: Tensor, last: Tensor, spread: Spread) -> Tensor:
    """Return eq. 1 for stretches with this sum of momenta and these ends, (..., d) -> (...)."""
    direction = spread.apply(rho - 0.5 * (first + last))
    return ((direction * first).sum(-1) <= 0) | ((direction * last).sum(-1) <= 0)


def slots(n: int) -> tuple[int, int]:
    """Return the slot of leaf n, and the first slot whose part ends with it (one more than the slot if none does).

    >>> [slots(n) for n in range(8)]
    [(0, 1), (0, 0), (1, 2), (1, 0), (1, 2), (1, 1), (2, 3), (2, 0)]
    """
    ones = (n ^ (n + 1)).bit_length() - 1  # trailing ones of n
    slot = (n >> 1).bit_count()
    return slot, slot - ones + 1


class Path:
    """The paths of all chains in one transition: their two ends, their proposal, and the doubling that grows.

    A point is kept as one tensor (3, chains, d) of position, momentum and gradient, and one (2, chains) of log-density and
    energy. What is computed for a chain whose path has ended is never looked at.

    Parameters
    ----------
    chains : NoTurnChains
        What they start from.
    """

    def __init__(self, chains: NoTurnChains) -> None:
        self.chains, self.spread = chains, chains.spread
        y = chains.momentum()
        self.start = energy(chains.log_p, y, self.spread)
        point = torch.stack([chains.theta, y, chains.gradient])
        self.ends = torch.stack([point, point])  # (2, 3, C, d): back, front
        self.proposal = (point, torch.stack([chains.log_p, self.start]))
        self.rho, self.log_w = y, torch.zeros_like(self.start)
        C = len(y)
        self.depth, self.leaf = [0] * C, [0] * C
        self.running = torch.ones(C, dtype=torch.bool, device=y.device)
        self.alive = list(range(C))  # the same as a list
        self.bad = self.diverging = torch.zeros_like(self.running)
        self.acceptance = self.count = torch.zeros_like(self.start)
        self.slots = y.new_empty(2, chains.model.max_depth + 1, *y.shape)  # momenta, and sums up to them
        self.now, self.front, self.step = point, self.running, torch.zeros_like(y[:, :1])
        self.part_rho, self.part_log_w, self.part_proposal = y, self.log_w, self.proposal
        self._begin(self.running)

    def _begin(self, which: Tensor) -> None:
        """Begin a doubling in some chains, forwards or backwards."""
        self.front = torch.where(which, self.chains.log_uniform() <= LOG_HALF, self.front)
        row = which[:, None]
        self.now = torch.where(row, torch.where(self.front[:, None], self.ends[1], self.ends[0]), self.now)
        self.step = self.chains.step_size * (2 * self.front.to(self.step.dtype) - 1)[:, None]
        self.part_rho = self.part_rho.masked_fill(row, 0.0)
        self.part_log_w = self.part_log_w.masked_fill(which, -torch.inf)
        self.bad = self.bad & ~which
        for c in which.nonzero().flatten().tolist():
            self.leaf[c] = 0

    def grow(self) -> None:
        """Add a leaf to the doubling of every running chain; end the doublings that it completes."""
        self._step()
        self._look_back()
        whole = self.running.new_zeros(len(self.leaf))
        full = [c for c in self.alive if self.leaf[c] + 1 == 2 ** self.depth[c]]
        for c in self.alive:
            self.leaf[c] += 1
        if full:
            whole[full] = True
        bad = self.bad & self.running
        if full or bool(bad.any()):
            self._merge(whole & ~self.bad)
            self.running = self.running & ~bad
            self.alive = self.running.nonzero().flatten().tolist()
            if more := [c for c in full if c in set(self.alive)]:
                self._begin(torch.zeros_like(self.running).index_fill(0, self._index(more), True))

    def _index(self, chains: list[int]) -> Tensor:
        return torch.tensor(chains, device=self.running.device)

    def _step(self) -> None:
        """Take one step of the leapfrog in each chain's direction, and give the new leaf its weight, eq. 2."""
        theta, y, gradient = self.now
        step = self.step * self.running[:, None]  # who has ended stays where it is
        y = y + 0.5 * step * gradient
        theta = theta + step * self.spread.apply(y)
        log_p, gradient = self.chains.target.gradient(theta)
        y = y + 0.5 * step * gradient
        self.now = torch.stack([theta, y, gradient])
        after = energy(log_p, y, self.spread).nan_to_num(nan=torch.inf)
        log_w = self.start - after
        self.acceptance = self.acceptance + log_w.clamp(max=0).exp() * self.running
        self.count = self.count + self.running
        self.part_log_w = torch.logaddexp(self.part_log_w, log_w)
        # not so for NaN, where both are minus infinity
        chosen = self.chains.log_uniform() <= log_w - self.part_log_w
        leaf = (self.now, torch.stack([log_p, after]))
        self.part_proposal = _chosen(chosen, leaf, self.part_proposal)
        self.part_rho = self.part_rho + y
        diverging = (log_w < -DIVERGED) & self.running
        self.diverging, self.bad = self.diverging | diverging, self.bad | diverging

    def _look_back(self) -> None:
        """Keep the momentum of even leaves; ask the parts that odd ones end whether they have turned."""
        y, even, asked = self.now[1], [], []
        for c in self.alive:
            slot, first = slots(self.leaf[c])
            if self.leaf[c] % 2 == 0:
                even.append((slot, c))
            asked += [(k, c) for k in range(first, slot + 1)]
        if even:
            at, chain = self._index(even).T
            self.slots[:, at, chain] = torch.stack([y[chain], self.part_rho[chain]])
        if asked:
            at, chain = self._index(asked).T
            first, before = self.slots[:, at, chain]
            back = turned(self.part_rho[chain] - before + first, first, y[chain], self.spread)
            self.bad = self.bad.index_fill(0, chain[back], True)

    def _merge(self, which: Tensor) -> None:
        """Join a whole doubling to the path, eq. 3; end the paths that have turned or are as long as they may be."""
        better = which & (self.chains.log_uniform() <= self.part_log_w - self.log_w)
        self.proposal = _chosen(better, self.part_proposal, self.proposal)
        self.log_w = torch.where(which, torch.logaddexp(self.log_w, self.part_log_w), self.log_w)
        self.rho = torch.where(which[:, None], self.rho + self.part_rho, self.rho)
        grown = torch.stack([which & ~self.front, which & self.front])
        self.ends = torch.where(grown[:, None, :, None], self.now, self.ends)
        over = turned(self.rho, self.ends[0, 1], self.ends[1, 1], self.spread)
        for c in which.nonzero().flatten().tolist():
            self.depth[c] += 1
        longest = [j >= self.chains.model.max_depth for j in self.depth]
        self.running = self.running & ~(which & (over | torch.tensor(longest, device=over.device)))


def _chosen(which: Tensor, new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the new points for the chains in ``which``, the old ones for the others."""
    return torch.where(which[:, None], new[0], old[0]), torch.where(which, new[1], old[1])


class NoTurnChains(HamiltonianChains):
    """No-U-Turn transitions of all chains."""

    statistics = ("acceptance", "diverging", "energy", "n_steps", "depth")

    def transition(self) -> dict[str, Tensor]:
        """Grow the paths of all chains until the last has ended, and take over their proposals."""
        path = Path(self)
        while path.alive:
            path.grow()
        (self.theta, _, self.gradient), (self.log_p, after) = path.proposal
        return {
            "acceptance": path.acceptance / path.count,
            "diverging": path.diverging,
            "energy": after,
            "n_steps": path.count,
            "depth": torch.tensor(path.depth, device=self.theta.device),
        }


class NUTS(AdaptiveSampler):
    """Draw from a density by the No-U-Turn sampler, many chains at once: HMC that finds the length of its paths.

    The sampler to begin with for a log-density that has a gradient.

    Parameters
    ----------
    n_chains : int, default=4
        Chains, which run as one batch until the longest path of a transition has ended.
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
        Mean acceptance along a path that the step size is learned for; more makes smaller steps and fewer divergences.
    max_depth : int, default=10
        Most doublings of a path, which has at most 2 to this power steps.
    random_state : int or RandomState, optional
        Seed of all random numbers.

    Attributes
    ----------
    draws_ : ndarray of shape (n_chains, n_draws, d)
        The draws.
    statistics_ : dict of ndarray of shape (n_chains, n_draws)
        ``log_density``, ``acceptance`` (mean along the path), ``diverging``, ``energy``, ``n_steps`` and ``depth`` of each
        draw.
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
    A transition costs as many gradients of all chains as the longest of their paths has steps. The energy of a draw is that
    of its own point of the path. In the neck of a funnel paths diverge, as in :class:`~corollary.bayes.HMC`; divergences are
    counted and warned of.

    References
    ----------
    .. [1] M. D. Hoffman, A. Gelman (2014). The No-U-Turn sampler: adaptively setting path lengths in Hamiltonian Monte Carlo.
       JMLR 15, 1593-1623.
    .. [2] M. Betancourt (2017). A conceptual introduction to Hamiltonian Monte Carlo. arXiv:1701.02434, appendix A.
    .. [3] D. Phan, N. Pradhan, M. Jankowiak (2019). Composable effects for flexible and accelerated probabilistic
       programming in NumPyro. arXiv:1912.11554, section 3.1.

    Examples
    --------
    >>> import torch
    >>> from corollary.bayes import NUTS
    >>> covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]]).double()
    >>> target = torch.distributions.MultivariateNormal(torch.zeros(2).double(), covariance)
    >>> sampler = NUTS(n_draws=300, warmup=200, random_state=0).fit(target.log_prob, [3.0, -3.0])
    >>> bool((sampler.summary(["a", "b"])["r_hat"] < 1.05).all())
    True
    """

    _chains = NoTurnChains
    _parameter_constraints = {
        **AdaptiveSampler._parameter_constraints,
        "max_depth": [Interval(Integral, 1, 20, closed="both")],
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
        max_depth=10,
        random_state=None,
    ):
        self.n_chains = n_chains
        self.n_draws = n_draws
        self.warmup = warmup
        self.thin = thin
        self.step_size = step_size
        self.covariance = covariance
        self.target_acceptance = target_acceptance
        self.max_depth = max_depth
        self.random_state = random_state
