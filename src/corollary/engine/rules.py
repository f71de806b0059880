r"""Update rules: how gradients become one update of the parameters.

One network: plain, gradient accumulation, SAM, SVRG, Newton, L-BFGS. Games: alternating, simultaneous, extragradient.

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
from torch.nn.attention import SDPBackend, sdpa_kernel

from corollary import errors, optim
from corollary.engine.batches import Batch
from corollary.engine.learner import State, freeze
from corollary.optim.directions import ascent
from corollary.optim.looking import look_ahead

__all__ = [
    "RULES",
    "Accumulating",
    "Alternating",
    "ExtraGradient",
    "Plain",
    "Rule",
    "Simultaneous",
    "rule_for",
]


class Rule:
    """One update of the players from a batch."""

    saved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **options: Any) -> None:
        self.options = options

    @property
    def waiting(self) -> bool:
        """Whether the last batch has moved nothing yet."""
        return False

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


class Accumulating(Rule):
    """The mean gradient of several batches goes to the optimiser: that of one batch as large as all of them."""

    saved = ("sums", "mass", "count")

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches
        self.sums: list[Tensor] = []
        self.mass, self.count = 0.0, 0

    def update(self, learner: Any, batch: Batch) -> None:
        """Add the gradient of a batch; move by their mean after the last of them, and at the end of the epoch."""
        (player,) = learner.players
        learner.record(learner.differentiate(player, batch), batch)
        found = [g * learner.mass for g in player.gradients()]
        self.sums = [a.add_(b) for a, b in zip(self.sums, found)] if self.count else found
        self.mass, self.count = self.mass + learner.mass, self.count + 1
        if self.count < self.batches and not learner.at_last_batch():
            return
        for vector, total in zip(player.vectors(), self.sums):
            total /= self.mass if self.mass > 0 else 1.0
            vector.grad = total if vector.grad is None else vector.grad.copy_(total)
        self.sums, self.mass, self.count = [], 0.0, 0
        learner.advance(player)

    @property
    def waiting(self) -> bool:
        """Whether gradients still wait for others before they move anything."""
        return self.count > 0


# --- several players -------------------------------------------------------------------------------------


def _turn(learner: Any) -> list[Any]:
    """Return the players who move now: those with fewer ``steps`` wait for the last batches of a round."""
    most = max(player.steps for player in learner.players)
    return [p for p in learner.players if learner.updates % most >= most - p.steps]


class Alternating(Rule):
    """Players move one after the other."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Move those whose turn it is."""
        for player in _turn(learner):
            learner.record(learner.differentiate(player, batch), batch, player)
            learner.advance(player)


class Simultaneous(Rule):
    """Players move from the same point."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Take the gradients of those whose turn it is, then move."""
        moving = _turn(learner)
        for player in moving:
            learner.record(learner.differentiate(player, batch), batch, player)
        for player in moving:
            learner.advance(player)


class ExtraGradient(Rule):
    """Players look one step ahead, and move by the gradients they find there."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Extrapolate those whose turn it is, come back, move."""
        players, first = _turn(learner), True

        def differentiate() -> None:
            nonlocal first
            for player in players:
                found = learner.differentiate(player, batch)
                if first:
                    learner.record(found, batch, player if len(learner.players) > 1 else None)
            first = False

        look_ahead([v for p in players for v in p.vectors()], [p.move for p in players], differentiate)
        for player in players:
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
    """Gradients of batches corrected by an anchor's, with :class:`corollary.optim.SVRG`; the anchor is where the epoch began."""

    def begin(self, learner: Any) -> None:
        """Take the gradient over all data."""
        (player,) = learner.players

        def closure() -> None:
            full = [torch.zeros_like(v) for v in player.vectors()]
            for batch in learner.batches.epoch(None, learner.training.batch_size, 0):
                learner.differentiate(player, learner.share(batch))
                for total, g in zip(full, player.gradients()):
                    total.add_(g, alpha=batch.size / len(learner.batches))
            for v, total in zip(player.vectors(), full):
                v.grad = total if v.grad is None else v.grad.copy_(total)

        player.optimizer.anchor(closure)

    def update(self, learner: Any, batch: Batch) -> None:
        """Take the gradient here and at the anchor, with the same noise, and move."""
        (player,) = learner.players
        noise, found = learner.stream.now(), {}

        def closure() -> None:
            learner.stream.go(noise)
            found.update(learner.differentiate(player, batch))

        player.optimizer.look(closure)
        learner.record(found, batch)
        learner.advance(player)


class Newton(Rule):
    """Damped Newton steps, by :class:`corollary.optim.Newton`."""

    def update(self, learner: Any, batch: Batch) -> None:
        """Solve for the direction and move along it."""
        (player,) = learner.players
        noise = learner.stream.now()
        found: dict[str, Tensor] = {}

        def closure() -> Tensor:
            learner.stream.go(noise)
            with learner.stream:
                loss, metrics = learner.loss(player, batch)
            if not found:
                found.update({"loss": loss.detach(), **metrics})
            return loss  # type: ignore[no-any-return]

        player.zero_grad()
        # the fused one has no second derivative
        with (
            learner.around_gradient(),
            sdpa_kernel(SDPBackend.MATH),
        ):
            player.optimizer.look(closure)
        learner.record(found, batch)
        learner.advance(player)


class Closure(Rule):
    """An optimiser that is given the gradients as a closure: torch's L-BFGS with its line search, Polyak's step size."""

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
            if learner.run.world == 1:
                return found["loss"]
            return learner.run.sum(found["loss"] * learner.scale) / learner.run.world  # type: ignore[no-any-return]

        player.optimizer.step(closure)
        learner.moved(player)


RULES: dict[str, type[Rule]] = {
    "alternating": Alternating,
    "extragradient": ExtraGradient,
    "lbfgs": Closure,
    "newton": Newton,
    "plain": Plain,
    "sam": SharpnessAware,
    "simultaneous": Simultaneous,
    "subgradient": Closure,
    "svrg": VarianceReduced,
}
GAMES = ("alternating", "extragradient", "simultaneous")


def rule_for(name: str | None, training: Any, players: int, owner: str) -> Rule:
    """Return the rule of this name, or the one that players and optimiser ask for."""
    if name is None:
        games = players == 1 or training.optimizer in GAMES
        name = training.optimizer if games and training.optimizer in RULES else None
        name = name or ("alternating" if players > 1 else "plain")
    if name not in RULES:
        raise errors.unknown(owner, "rule", name, RULES)
    if players > 1 and name not in GAMES:
        raise errors.value(owner, f"the rule of {players} players must be one of {', '.join(GAMES)}", name)
    if players > 1 and training.optimizer in RULES and training.optimizer != name:
        must = f"the optimiser of {players} players must look at each batch once"
        raise errors.value(owner, must, repr(training.optimizer), f"Use 'adam'; their rule is {name!r}.")
    if training.accumulate > 1:
        if name != "plain":
            must = "accumulate takes an optimiser that looks at each batch once, and one player"
            do = "Leave accumulate at 1" + (", or use 'adam'." if players == 1 else ".")
            raise errors.value(owner, must, f"the rule {name!r}", do)
        return Accumulating(training.accumulate)
    given = {
        k: v for k, v in (training.optimizer_options or {}).items() if k in optim.RULE_OPTIONS.get(name, {})
    }
    return RULES[name](**{**optim.RULE_OPTIONS.get(name, {}), **given})
