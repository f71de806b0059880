r"""Base of the MCMC samplers: many chains as one batch, warm-up with adaptation, draws, and a summary.

A sampler is a Markov chain whose stationary law has the log-density that it is given. All chains of a fit are rows of one
tensor, so that one call of the log-density serves them all. A step of the engine is one transition of every chain; the first
``warmup`` of them are thrown away, and used to adapt where the sampler adapts; of the rest every ``thin``-th is kept. So a
fit can be watched, stopped, killed and resumed bit for bit like any other, and with ``Run(directory)`` the draws go to disk
as they are made. With ``Run(processes=2)`` each process calls the log-density for its share of the chains, which pays where
one call takes milliseconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from corollary import errors
from corollary.base import Data, Estimator
from corollary.bayes import diagnostics
from corollary.bayes.adaptation import COVARIANCES, DualAveraging, Spread, windows
from corollary.bayes.density import Posterior, Target, as_start
from corollary.engine.draws import Draws
from corollary.engine.learner import Iteration, Metrics, State
from corollary.engine.random import generator
from corollary.engine.run import current
from corollary.shapes import Array, Choice, Count, Number, Record
from corollary.validation import digest

__all__ = ["AdaptiveChains", "AdaptiveSampler", "Chains", "Sampler"]

LONG, STUCK = 15, 0.02  # of so many draws, a share that says that a chain does not move
POWER = 2.0  # by which a first step size is raised or lowered until it is reasonable


class Chains(Iteration):
    """The learner of a sampler; a subclass writes :meth:`transition`.

    Parameters
    ----------
    model : Sampler
        The settings.
    target : Target
        The log-density.
    start : Tensor of shape (chains, d)
        Where the chains begin.
    seed : int
        Decides all random numbers.
    """

    can_diverge = False  # a transition that leaves the support is not taken
    shares = True  # each process calls the log-density for its share of the chains
    saved = ("theta", "log_p", "gradient", "generator", "draws", "kept", "invalid")
    statistics: ClassVar[tuple[str, ...]] = ()  # what a transition tells of every chain
    uses_gradient: ClassVar[bool] = True

    def __init__(self, model: Any, target: Target, start: Tensor, seed: int) -> None:
        super().__init__(model.warmup + model.n_draws)
        self.model, self.target, self.warmup = model, target, model.warmup
        self.theta, self.generator = start, generator(seed, start.device)
        target.check(start, self.uses_gradient)
        self.log_p, self.gradient = self.evaluate(start)
        names = ("log_density", *self.statistics)
        self.draws = Draws("theta", tuple(start.shape), start.cpu().numpy().dtype)
        self.kept = Draws("statistics", (len(start), len(names)))

    @property
    def invalid(self) -> int:
        """How many values of the log-density were NaN or plus infinity."""
        return self.target.invalid

    @invalid.setter
    def invalid(self, count: int) -> None:
        self.target.invalid = count

    def evaluate(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-densities and gradients; no gradient, zeros, where the sampler needs none."""
        if self.uses_gradient:
            return self.target.gradient(theta)
        return self.target.value(theta), torch.zeros_like(theta)

    def transition(self) -> dict[str, Tensor]:
        """Move every chain once; return the ``statistics`` of each."""
        raise NotImplementedError

    def adapt(self, found: dict[str, Tensor]) -> None:
        """Learn from a transition of the warm-up."""

    def sweep(self) -> Metrics:
        """Make one transition of the warm-up, or those that one kept draw takes."""
        warm = self.n_iter <= self.warmup
        found = self.transition()
        if warm:
            self.adapt(found)
        else:
            diverging = found.get("diverging")
            for _ in range(self.model.thin - 1):
                found = self.transition()
                if diverging is not None:
                    found["diverging"] = diverging = diverging | found["diverging"]
        rows = [self.log_p, *(found[name] for name in self.statistics)]
        told = np.stack([row.cpu().numpy() for row in rows], 1).astype(np.float64)
        if not warm:
            self.draws.append(self.theta.cpu().numpy())
            self.kept.append(told)
        means = dict(zip(("log_density", *self.statistics), told.mean(0).tolist()))
        means.pop("energy", None)
        return {**means, "warmup": float(warm)}

    def normal(self) -> Tensor:
        """Return standard normal numbers of the shape of theta."""
        like = self.theta
        return torch.randn(like.shape, generator=self.generator, dtype=like.dtype, device=like.device)

    def log_uniform(self) -> Tensor:
        """Return the logarithm of a uniform number for every chain."""
        like = self.theta
        u = torch.rand(len(like), generator=self.generator, dtype=like.dtype, device=like.device)
        return torch.log1p(-u)  # of (0, 1]: never minus infinity

    def move(self, accepted: Tensor, theta: Tensor, log_p: Tensor, gradient: Tensor) -> None:
        """Take over the proposals of the chains that accepted theirs."""
        self.theta = torch.where(accepted[:, None], theta, self.theta)
        self.gradient = torch.where(accepted[:, None], gradient, self.gradient)
        self.log_p = torch.where(accepted, log_p, self.log_p)


class AdaptiveChains(Chains):
    """Chains whose step size and covariance (inverse mass matrix) are adapted during the warm-up."""

    saved = (*Chains.saved, "adapted")
    statistics = ("acceptance",)

    def __init__(self, model: Any, target: Target, start: Tensor, seed: int) -> None:
        super().__init__(model, target, start, seed)
        self.spread = Spread(model.covariance, start)
        self.dual = DualAveraging(model.target_acceptance)
        self.step_size = 1.0 if model.step_size is None else float(model.step_size)
        self.first, self.ends = windows(self.warmup)

    @property
    def adapted(self) -> State:
        """What the warm-up has found so far."""
        return {"step_size": self.step_size, "dual": self.dual.state, "spread": self.spread.state}

    @adapted.setter
    def adapted(self, state: State) -> None:
        self.step_size, self.dual.state, self.spread.state = (
            state["step_size"],
            state["dual"],
            state["spread"],
        )

    @property
    def adapts(self) -> bool:
        """Whether the step size is to be found."""
        return self.model.step_size is None

    def trial(self) -> float:
        """Return the mean acceptance probability of one short move from here, without moving."""
        raise NotImplementedError

    def sweep(self) -> Metrics:
        """Find a first step size at the first sweep; then make a transition."""
        if self.n_iter == 1 and self.adapts:
            self._find_step()
        return {**super().sweep(), "step_size": self.step_size}

    def _find_step(self) -> None:
        """Raise or lower the step size until a short move is accepted as often as is wanted."""
        wanted = self.dual.target
        up = self.trial() > wanted
        for _ in range(60):
            self.step_size *= POWER if up else 1 / POWER
            if (self.trial() > wanted) != up:
                break
        self.dual.restart(self.step_size)

    def adapt(self, found: dict[str, Tensor]) -> None:
        """Update the step size by dual averaging, and the covariance at the ends of the windows."""
        if self.adapts:
            self.step_size = self.dual.update(float(found["acceptance"].mean()))
        if self.first < self.n_iter <= (self.ends[-1] if self.ends else 0):
            self.spread.update(self.theta)
            if self.n_iter in self.ends:
                self.spread.renew()
                if self.adapts and self.spread.kind != "identity":
                    self._find_step()
        if self.adapts and self.n_iter == self.warmup:
            self.step_size = self.dual.final()


class Sampler(Estimator):
    """Base of the samplers: ``fit(log_density, start)`` draws, ``draws_`` are the draws."""

    input = "log-density"
    _chains: ClassVar[type[Chains]]
    _parameter_constraints = {
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "warmup": [Interval(Integral, 0, None, closed="left")],
        "thin": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "draws_": Array("n_chains", "kept", "parameters"),
        "statistics_": Record(Array("n_chains", "kept", kind="fb", finite=False)),
        "n_invalid_": Count(),
    }

    def fit(self, log_density: Any, start: Any) -> Self:
        """Draw from a density.

        Parameters
        ----------
        log_density : callable
            The logarithm of the density, up to a constant, written with torch for all chains at once: it takes a tensor of
            shape (n_chains, d) and returns one of shape (n_chains,). Minus infinity and NaN are outside the support. A
            :class:`~corollary.bayes.Posterior` is one. One that has a method ``gradient``, (n_chains, d) -> (n_chains, d), as
            :class:`~corollary.bayes.LogisticPosterior`, is asked for its gradient there, which is faster than torch's.
        start : array-like of shape (d,) or (n_chains, d)
            Where the chains start, all at one point or each at its own; chains that start apart let R-hat notice what
            they disagree about. Its type, float32 or float64, is that of the draws.

        Returns
        -------
        self
        """
        self._fit(log_density, start)
        warn_of(self.statistics_, self.n_invalid_, type(self).__name__)
        return self

    def _data(self, X: Any, y: Any, sample_weight: Any, extra: Any = None) -> Data:
        run = current()
        device = "cpu" if run.requested_device == "auto" else run.device
        return Data(as_start(y, self.n_chains, type(self).__name__, device), extra=X)

    def _learner(self, data: Data) -> Chains:
        return self.chains(data.extra, data.X, self._seed(), type(self).__name__)

    def chains(self, log_density: Any, start: Tensor, seed: int, owner: str) -> Chains:
        """Return the learner that draws from a density; ``owner`` stands at the start of its error messages."""
        return self._chains(self, Target(log_density, owner), start, seed)

    def _fingerprint(self, data: Data) -> State:
        """Return what must be equal in a resumed fit; of the log-density, its values at the start to four digits."""
        kept = super()._fingerprint(data._replace(extra=None))
        values = Target(data.extra, type(self).__name__).value(data.X).tolist()
        rows = digest(data.extra.data) if isinstance(data.extra, Posterior) else ""
        return {**kept, "log_density": [*(f"{value:.4g}" for value in values), rows]}

    def _adopt(self, learner: Chains) -> None:
        self.n_iter_ = learner.n_iter
        self.draws_, self.statistics_ = collected(learner)
        self.n_invalid_ = learner.invalid

    # --- what the draws say ------------------------------------------------------------------------------

    def summary(self, names: Sequence[str] | None = None) -> Any:
        """Return :func:`corollary.bayes.summary` of the draws: a data frame with a row per parameter."""
        check_is_fitted(self)
        return diagnostics.summary(self.draws_, names)

    def to_arviz(self, names: Sequence[str] | None = None) -> Any:
        """Return draws and statistics as ArviZ's ``InferenceData``; needs the package arviz."""
        check_is_fitted(self)
        return diagnostics.to_arviz(self.draws_, self.statistics_, names)


class AdaptiveSampler(Sampler):
    """Base of the samplers that adapt step size and covariance."""

    _parameter_constraints = {
        **Sampler._parameter_constraints,
        "step_size": [None, Interval(Real, 0, None, closed="neither")],
        "covariance": [StrOptions(set(COVARIANCES))],
        "target_acceptance": [Interval(Real, 0, 1, closed="neither")],
    }
    _fitted = {
        "step_size_": Number(0),
        "covariance_": Choice(
            "covariance",
            {
                "dense": Array("draws_.2", "draws_.2"),
                **dict.fromkeys(("diagonal", "identity"), Array("draws_.2")),
            },
        ),
    }

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)
        self.step_size_ = float(learner.step_size)
        self.covariance_ = learner.spread.matrix.cpu().numpy()


def collected(learner: Chains) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return draws (chains, draws, d), and statistics (chains, draws) by name."""
    kept = learner.kept.array()
    names = ("log_density", *learner.statistics)
    statistics = {name: np.ascontiguousarray(kept[:, :, i].T) for i, name in enumerate(names)}
    if "diverging" in statistics:
        statistics["diverging"] = statistics["diverging"] > 0
    return np.ascontiguousarray(learner.draws.array().transpose(1, 0, 2)), statistics


def warn_of(statistics: dict[str, np.ndarray], invalid: int, owner: str) -> None:
    """Warn of chains that do not move, divergences, a low energy fraction, and log-densities that were NaN."""
    if invalid:
        text = f"log_density was NaN or plus infinity {invalid} times, which counted as outside the support."
        warnings.warn(f"{owner}: {text}", errors.CorollaryWarning, stacklevel=3)
    moves = statistics.get("acceptance", np.ones((1, 0)))
    if moves.shape[1] >= LONG and (still := int((moves.mean(1) < STUCK).sum())):
        text = (
            f"{still} of {len(moves)} chains hardly moved: less than {STUCK:.0%} of their steps were accepted"
        )
        warnings.warn(
            f"{owner}: {text}. Raise warmup, or lower step_size.", errors.CorollaryWarning, stacklevel=3
        )
    diverging = statistics.get("diverging", np.zeros(0))
    if count := int(diverging.sum()):
        text = f"{count} of {diverging.size} transitions after the warm-up diverged: the draws may miss a part of the support"
        do = "Raise target_acceptance, or reparametrise; statistics_['diverging'] says where."
        warnings.warn(f"{owner}: {text}. {do}", errors.CorollaryWarning, stacklevel=3)
    energy = statistics.get("energy", np.zeros((0, 0)))
    if energy.shape[1] >= 100 and (low := float(np.min(diagnostics.bfmi(energy)))) < 0.3:
        text = f"the energy fraction (E-BFMI) should be at least 0.3; got {low:.2f}: the tails are explored slowly"
        warnings.warn(f"{owner}: {text}. Reparametrise.", errors.CorollaryWarning, stacklevel=3)
