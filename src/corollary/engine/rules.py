r"""Rules: how gradients on demand become one update.

For one player with parameters :math:`w`: the plain rule hands the gradient of a batch to the optimiser; others look more
than once (:mod:`corollary.optim.directions`). For several players, :math:`F` their gradients side by side:

* *alternating*: one after the other, each seeing where those before it have gone;
* *simultaneous*: all at once from the same point, :math:`w' = w - \eta F(w)`;
* *extragradient*: :math:`w' = w - \eta F(w - \eta F(w))`, which converges where the other two circle.

A rule asks the learner to ``differentiate`` a player's objective on a batch, to ``record`` metrics, and to ``advance``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from corollary import errors, optim
from corollary.engine.batches import Batch
from corollary.engine.learner import State, freeze
from corollary.engine.player import Player
from corollary.optim.directions import ascent, conjugate_gradient, variance_reduced

__all__ = ["RULES", "Alternating", "ExtraGradient", "Plain", "Rule", "Simultaneous", "rule_for"]

ARMIJO = 1e-4  # share of the decrease that the gradient promises which a Newton step must keep
HALVINGS = 30


class Rule:
    """One update of the players from a batch."""

    saved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **options: Any) -> None:
        self.options = options

    def begin(self, learner: Any) -> None:
        """Prepare an epoch."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Make one update."""
        raise NotImplementedError

    def state(self) -> State:
        """Return copies of what must be kept between updates."""
        return {name: freeze(getattr(self, name)) for name in self.saved}

    def restore(self, state: State) -> None:
        """Go back to a snapshot."""
        for name in self.saved:
            setattr(self, name, freeze(state[name]))


class Plain(Rule):
    """The gradient of the batch goes to the optimiser."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Make one update."""
        (player,) = learner.players
        learner.record(learner.differentiate(player, batch), batch)
        learner.advance(player)


# --- several players -------------------------------------------------------------------------------------


class Alternating(Rule):
    """Players move one after the other; those with fewer ``steps`` wait for the last batches of a round."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Move those whose turn it is."""
        most = max(player.steps for player in learner.players)
        turn = learner.updates % most
        for player in learner.players:
            if turn >= most - player.steps:
                learner.record(learner.differentiate(player, batch), batch, player)
                learner.advance(player)


class Simultaneous(Rule):
    """All players move from the same point."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Take all gradients, then move."""
        for player in learner.players:
            learner.record(learner.differentiate(player, batch), batch, player)
        for player in learner.players:
            learner.advance(player)


class ExtraGradient(Rule):
    """All players look one step ahead, and move by the gradients they find there."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Extrapolate, come back, move."""
        for player in learner.players:
            learner.record(learner.differentiate(player, batch), batch, player)
        before = [player.copies() for player in learner.players]
        for player in learner.players:
            player.optimizer.step()
        for player in learner.players:
            learner.differentiate(player, batch)
        for player, values in zip(learner.players, before):
            player.put(values)
            learner.advance(player)


# --- one player that looks twice -------------------------------------------------------------------------


class SharpnessAware(Rule):
    """The gradient at the worst point of a small ball, eq. 3 of :mod:`corollary.optim.directions`."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Climb, look, come back, move."""
        (player,) = learner.players
        noise = learner.stream.now()
        learner.record(learner.differentiate(player, batch), batch)
        before = player.copies()
        climb = ascent(player.gradients(), self.options["rho"])
        player.put([w + e for w, e in zip(before, climb)])
        learner.stream.go(noise)
        learner.differentiate(player, batch)
        player.put(before)
        learner.advance(player)


class VarianceReduced(Rule):
    """Gradients of batches corrected by an anchor's, eq. 2; the anchor is where the epoch began."""

    saved = ("anchor", "full")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.anchor: list[Tensor] = []
        self.full: list[Tensor] = []

    def begin(self, learner: Any) -> None:
        """Take the gradient over all data."""
        (player,) = learner.players
        self.anchor = player.copies()
        self.full = [torch.zeros_like(v) for v in self.anchor]
        for batch in learner.batches.epoch(None, learner.training.batch_size, 0):
            learner.differentiate(player, batch)
            for total, g in zip(self.full, player.gradients()):
                total.add_(g, alpha=batch.size / len(learner.batches))

    def update(self, learner: Any, batch: Batch) -> None:
        """Look at both points with the same noise, and move."""
        (player,) = learner.players
        here, noise = player.copies(), learner.stream.now()
        player.put(self.anchor)
        learner.differentiate(player, batch)
        at_anchor = [g.clone() for g in player.gradients()]
        player.put(here)
        learner.stream.go(noise)
        learner.record(learner.differentiate(player, batch), batch)
        for v, a, full in zip(player.vectors(), at_anchor, self.full):
            v.grad = v.grad if v.grad is not None else torch.zeros_like(v)
            v.grad.copy_(variance_reduced(v.grad, a, full))
        learner.advance(player)


class Newton(Rule):
    """Damped Newton steps, eq. 1, by conjugate gradients on products with the Hessian, shortened until the loss falls."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Solve for the direction and move along it."""
        (player,) = learner.players
        params, noise = player.trained, learner.stream.now()
        with learner.stream:
            loss, metrics = learner.loss(player, batch)
        gradients = torch.autograd.grad(loss, params, create_graph=True, allow_unused=True)
        gradients = tuple(torch.zeros_like(p) if g is None else g for g, p in zip(gradients, params))
        flat = torch.cat([g.reshape(-1) for g in gradients])

        def product(v: Tensor) -> Tensor:
            parts = torch.autograd.grad(flat, params, v, retain_graph=True, allow_unused=True)
            rows = [(torch.zeros_like(p) if h is None else h).reshape(-1) for h, p in zip(parts, params)]
            damping: float = self.options["damping"]
            return torch.cat(rows) + damping * v

        g = flat.detach()
        limits = {"max_iter": self.options["max_iter"], "tol": self.options["tol"]}
        direction = conjugate_gradient(product, g, **limits)
        learner.record({"loss": loss.detach(), **metrics}, batch)
        slope = float(g @ direction)
        step = self._shortened(learner, player, batch, noise, float(loss.detach()), direction, slope)
        player.zero_grad()
        _write(params, direction * step)
        learner.advance(player)

    def _shortened(
        self, learner: Any, player: Player, batch: Batch, noise: Any, loss: float, d: Tensor, slope: float
    ) -> float:
        """Return the largest of 1, 1/2, 1/4, ... with which the loss falls enough (Armijo)."""
        before, rate, step = player.copies(), player.optimizer.param_groups[0]["lr"], 1.0
        after = learner.stream.now()
        for _ in range(HALVINGS):
            with torch.no_grad():
                offset = 0
                for p in player.trained:
                    p.sub_(d[offset : offset + p.numel()].view_as(p), alpha=step * rate)
                    offset += p.numel()
                learner.stream.go(noise)
                with learner.stream:
                    found = float(learner.loss(player, batch)[0])
            player.put(before)
            if found <= loss - ARMIJO * step * rate * slope:
                break
            step /= 2
        learner.stream.go(after)
        return step


def _write(params: list[Tensor], flat: Tensor) -> None:
    """Write one vector into the gradients of parameters, which may be views of a flat one."""
    offset = 0
    for p in params:
        part = flat[offset : offset + p.numel()].view(p.shape)
        if p.grad is None:
            p.grad = part.clone()
        else:
            p.grad.copy_(part)
        offset += p.numel()


class LBFGS(Rule):
    """torch's quasi-Newton steps with a line search, each from the last gradients and moves."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Let the optimiser look as often as it needs to."""
        (player,) = learner.players
        noise, first = learner.stream.now(), True

        def closure() -> Tensor:
            nonlocal first
            learner.stream.go(noise)
            found: dict[str, Tensor] = learner.differentiate(player, batch)
            learner.change_gradient(player)
            if first:
                learner.record(found, batch)
            first = False
            return found["loss"]

        player.optimizer.step(closure)
        learner.moved(player)


RULES: dict[str, type[Rule]] = {
    "alternating": Alternating,
    "extragradient": ExtraGradient,
    "lbfgs": LBFGS,
    "newton": Newton,
    "plain": Plain,
    "sam": SharpnessAware,
    "simultaneous": Simultaneous,
    "svrg": VarianceReduced,
}
GAMES = ("alternating", "extragradient", "simultaneous")


def rule_for(name: str | None, training: Any, players: int, owner: str) -> Rule:
    """Return the rule of this name, or the one that players and optimiser ask for."""
    if name is None:
        name = "alternating" if players > 1 else training.optimizer
        name = name if name in RULES else "plain"
    if name not in RULES:
        raise errors.unknown(owner, "rule", name, RULES)
    if players > 1 and name not in GAMES:
        raise errors.value(owner, f"the rule of {players} players must be one of {', '.join(GAMES)}", name)
    given = {
        k: v for k, v in (training.optimizer_options or {}).items() if k in optim.RULE_OPTIONS.get(name, {})
    }
    return RULES[name](**{**optim.RULE_OPTIONS.get(name, {}), **given})
