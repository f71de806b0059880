"""The gradient learner: trains any module on any objective by mini-batch gradient descent; a step is an epoch.

Batches are slices of one permuted copy of the data, the parameters of each player lie in one flat vector so that an update is
one fused kernel, and losses are summed in float64. A rule (:mod:`corollary.engine.rules`) makes an update from gradients;
regularisers (:mod:`corollary.engine.regularisers`) change batches, losses, gradients and weights.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors, optim
from corollary.engine.batches import Batch, Batches, epoch_order, float_type, typed
from corollary.engine.interrupts import pause_wanted
from corollary.engine.learner import Metrics, State, freeze
from corollary.engine.objective import Objective
from corollary.engine.player import Player
from corollary.engine.random import Stream, generator, seeded
from corollary.engine.regularisers import HOOKS, regularisers
from corollary.engine.rules import Alternating, Newton, Plain, Simultaneous, rule_for
from corollary.engine.run import Run
from corollary.engine.sharding import from_all, share_buffers
from corollary.engine.training import Training
from corollary.errors import CorollaryWarning, Diverged

__all__ = ["GradientLearner", "evaluate"]

CHUNK = 4096  # rows evaluated at a time where no gradient is needed
RATES = (1e-6, 1e1)  # between which a learning rate is looked for
TRIALS = 100  # updates that the search may take


class GradientLearner:
    """Train a module by gradient descent on the mean of an objective over batches; a step is an epoch.

    Parameters
    ----------
    module : nn.Module
        What is trained, in place.
    objective : Supervised or callable, or sequence of Player
        ``objective(module, batch)`` returns the mean loss over the batch, or that and a dict of further metrics to
        average. Several players have an objective each.
    batches : Batches
        The training data.
    training : Training
        Settings of gradient descent, with every field set (``Training.resolved``).
    run : Run
        Where to run.
    seed : int
        Decides the order of the samples and all noise.
    owner : str
        Name of the estimator, used at the start of error messages.
    validate : callable, optional
        ``validate(module)`` is called after each epoch with the module in evaluation mode, the averaged one if that is
        what is returned; its metrics join the history.
    gradient : callable, optional
        ``gradient(module, batch)`` writes the gradients itself and returns the loss, where
        an explicit backward pass beats automatic differentiation.
    rule : str, optional
        How gradients become an update, one of ``corollary.engine.rules.RULES``.
    """

    pauses = True  # between batches

    def __init__(
        self,
        module: nn.Module,
        objective: Objective | Sequence[Player],
        batches: Batches,
        training: Training,
        run: Run,
        *,
        seed: int,
        owner: str,
        validate: Callable[[nn.Module], Metrics] | None = None,
        gradient: Callable[..., Tensor] | None = None,
        rule: str | None = None,
    ) -> None:
        self.dtype = float_type(module)
        self.module = module.to(run.device)
        if run.precision is not None and run.precision.endswith("mixed"):
            self.module.float()  # the weights that half precision is mixed with are of single precision
        self.batches = batches
        self.training = training
        self.run = run
        self.seed = seed
        self.owner = owner
        self.validate = validate
        self.epoch = self.batch = self.updates = 0
        self.sums: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.order: Tensor | None = None
        given = [Player(objective, gradient=gradient)] if callable(objective) else list(objective)
        self.stream, self.generator = Stream(seed, run.device), generator(seed, run.device)
        self.seeks_rate = training.learning_rate == "auto"
        if self.seeks_rate:
            if len(given) > 1:
                must, do = "learning_rate='auto' needs one loss that falls", "Name a rate, such as 1e-3."
                raise errors.value(owner, must, f"a game of {len(given)}", do)
            self.training = training = training.overridden(learning_rate=RATES[0])
        self.players = [player.bind(self.module, training, run, owner) for player in given]
        self.rule = rule_for(rule, training, len(given), owner)
        self.shares = not isinstance(self.rule, Newton)  # its curvature would be that of a part of the batch
        self.scale = 1.0
        self.regularisers = [copy.copy(part) for part in regularisers(training)]
        for part in self.regularisers:
            if hasattr(part, "attach"):
                part.attach(self)
        self.hooks = {hook: [part for part in self.regularisers if hasattr(part, hook)] for hook in HOOKS}
        # Whether more than the optimiser looks at the gradients; a sharded optimiser itself needs only its slice.
        simple = type(self.rule) in (Alternating, Plain, Simultaneous)
        self.whole_gradients = not simple or bool(self.hooks["on_gradient"])
        self.orders = [part for part in self.regularisers if hasattr(part, "order")]
        self.around = [part for part in self.regularisers if hasattr(part, "around_gradient")]
        self.updating = False
        self.frozen_norms = _frozen_norms(self.module)
        self.wrapped = self._wrapped()
        explicit = type(self.rule) is Plain and not self.hooks["on_batch"] and not self.hooks["on_loss"]
        if not (explicit and self.players[0].flat and run.fabric is None):
            for player in self.players:
                player.gradient = None
        self.listeners = [player.listen() for player in self.players if player.gradient is None]

    def _use_rate(self, rate: float) -> None:
        self.training.learning_rate = rate
        for player in self.players:
            player.training.learning_rate = player.overrides.get("learning_rate", rate)
            player.set_rate(1.0)

    def _wrapped(self) -> Any:
        """Return the module as it is called: compiled, and shared between processes."""
        wrapped: Any = self.module
        # Fabric comes first: it records how torch.compile is called, to compile again around its own wrapper.
        fabric = self.run.fabric
        if self.training.compile:
            wrapped = torch.compile(wrapped, backend=_backend(self.training.compile))
        if fabric is not None and len(self.players) == 1:
            (player,) = self.players
            wrapped, player.optimizer = fabric.setup(wrapped, player.optimizer)
        return wrapped

    @property
    def optimizer(self) -> Any:
        """The optimiser of the first player, for callbacks."""
        return self.players[0].optimizer

    # --- the protocol ------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether every epoch has been run."""
        return bool(self.epoch >= self.training.epochs)

    def step(self) -> Metrics | None:
        """Run one epoch, or the rest of one; ``None`` if the engine asked for a pause."""
        batch_size = self.training.batch_size
        self.module.train()
        for norm in self.frozen_norms:
            norm.eval()
        if self.seeks_rate:
            found = find_rate(self)
            if found is None:
                return None
            self._use_rate(found)
            self.seeks_rate = False
        with self.stream.open():
            if self.batch == 0:
                self._begin()
            shuffled = self.training.shuffle or self.orders
            order = self._order() if shuffled else None
            for batch in self.batches.epoch(order, batch_size, self.batch):
                self._update(batch)
                self.batch += 1
                more = self.batch < self._count() or self.validate is not None
                if pause_wanted(together=True) and more:
                    return None
        self._warn_of_unused()
        metrics = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.epoch, self.batch, self.sums, self.counts, self.order = self.epoch + 1, 0, {}, {}, None
        if self.validate is not None:
            metrics.update(self._validated())
        return metrics

    def _warn_of_unused(self) -> None:
        """Warn, after the first epoch, of parameters that no loss depends on."""
        silent = [name for waiting in self.listeners for name in waiting()]
        self.listeners = []
        if silent and self.run.rank == 0:
            few = ", ".join(silent[:5]) + (" …" if len(silent) > 5 else "")
            text = f"{self.owner}: {len(silent)} parameters get no gradient and stay as they are: {few}. "
            do = "Use them in forward, or set requires_grad_(False)."
            warnings.warn(text + do, CorollaryWarning, stacklevel=2)

    def _begin(self) -> None:
        """Prepare an epoch: what the rule needs, and the samples that a curriculum chooses."""
        if self.orders:
            order = torch.arange(len(self.batches))
            if self.training.shuffle:
                order = epoch_order(self.seed, self.epoch, len(self.batches))
            for part in self.orders:
                order = part.order(self, order)
            self.order = order
        self.rule.begin(self)

    def _order(self) -> Tensor:
        if self.order is not None:
            return self.order
        return epoch_order(self.seed, self.epoch, len(self.batches))

    def _count(self) -> int:
        """Return the number of batches in this epoch."""
        if self.order is not None:
            return -(-len(self.order) // int(self.training.batch_size))
        return self.batches.count(self.training.batch_size)

    def state(self) -> State:
        """Return weights, optimisers, averages, position and random states."""
        return {
            "module": freeze(dict(self.module.state_dict())),
            "players": [player.state() for player in self.players],
            "rule": self.rule.state(),
            "regularisers": [part.state() if hasattr(part, "state") else None for part in self.regularisers],
            "position": (self.epoch, self.batch, self.updates),
            "rate": None if self.seeks_rate else float(self.training.learning_rate),
            "sums": dict(self.sums),
            "counts": dict(self.counts),
            "order": freeze(self.order),
            "rng": self.stream.now(),
            "generator": self.generator.get_state(),
            "source": self._source(),
        }

    def gathered(self, state: State) -> State:
        """Return a snapshot with what the other processes hold: slices of optimisers, and their random states."""
        if self.run.world == 1:
            return state
        players = [player.gathered(kept) for player, kept in zip(self.players, state["players"])]
        return {**state, "players": players, "streams": from_all(state["rng"], self.run)}

    def restore(self, state: State) -> None:
        """Go back to a snapshot, of this process or gathered by the first."""
        self.module.load_state_dict(state["module"])
        for player, kept in zip(self.players, state["players"]):
            player.restore(kept)
        self.rule.restore(state["rule"])
        for part, kept in zip(self.regularisers, state["regularisers"]):
            if kept is not None:
                part.restore(kept)
        self.epoch, self.batch, self.updates = state["position"]
        if self.seeks_rate and state["rate"] is not None:
            self.training.learning_rate, self.seeks_rate = state["rate"], False
            for player in self.players:
                player.training.learning_rate = player.overrides.get("learning_rate", state["rate"])
        self.sums, self.counts, self.order = (
            dict(state["sums"]),
            dict(state["counts"]),
            freeze(state["order"]),
        )
        streams = state.get("streams", ())
        self.stream.go(streams[self.run.rank] if len(streams) == self.run.world else state["rng"])
        self.generator.set_state(state["generator"])
        if state["source"] is not None:
            self.batches.load_state_dict(state["source"])  # type: ignore[attr-defined]

    def _source(self) -> Any:
        """Return the position of a stream of samples, if it has one."""
        return self.batches.state_dict() if self.batch and hasattr(self.batches, "state_dict") else None

    def unfinished(self) -> Metrics:
        """Return the means over the batches of an epoch that was left half-way."""
        return {name: total / self.counts[name] for name, total in self.sums.items()}

    def result(self) -> nn.Module:
        """Return a copy of the trained module in evaluation mode, averaged if that was asked for."""
        module = copy.deepcopy(self._chosen()).eval()
        if self.run.precision is None:
            return module
        return module.double() if self.dtype is torch.float64 else module.float()

    # --- one update: what a rule asks for ----------------------------------------------------------------

    def at_last_batch(self) -> bool:
        """Whether the epoch ends with the batch at hand."""
        return self.batch + 1 >= self._count()

    def _update(self, batch: Batch) -> None:
        if self.training.accumulate > 1:
            self.mass = float(batch.size if batch.weight is None else batch.weight.sum())
        batch = self.share(batch)
        if self.players[0].shards:
            share_buffers(self.module)
        self._set_rate()
        for part in self.hooks["on_batch"]:
            batch = part.on_batch(batch, self.wrapped, self.generator)
        self.updating = True
        try:
            self.rule.update(self, batch)
        finally:
            self.updating = False
        self.updates += not self.rule.waiting

    def loss(self, player: Player, batch: Batch) -> tuple[Tensor, Mapping[str, Any]]:
        """Return a player's loss on a batch, with what regularisers add, and its metrics."""
        if self.run.precision is None:
            out = player.objective(self.wrapped, batch)
        else:
            with _kernels(self.module, self.run):
                out = player.objective(self.wrapped, typed(self.module, batch))
        loss, metrics = out if isinstance(out, tuple) else (out, {})
        for part in self.hooks["on_loss"]:
            loss = part.on_loss(loss, self.wrapped, batch)
        return loss, metrics

    def differentiate(self, player: Player, batch: Batch) -> dict[str, Any]:
        """Write the gradients of a player's loss into its parameters; return the loss and the metrics."""
        if player.gradient is not None:
            return {"loss": player.gradient(self.module, batch)}
        player.zero_grad()
        only = {} if len(self.players) == 1 else {"inputs": player.trained}
        with self.around_gradient():
            with self.stream:
                loss, metrics = self.loss(player, batch)
            if self.run.fabric is not None:
                self.run.fabric.backward(loss * self.scale, **only)
            else:
                loss.backward(**only)  # type: ignore[no-untyped-call]
        if self.run.world > 1 and (player.shards or len(self.players) > 1):
            player.reduce_gradients(self.run.world, self.whole_gradients)
        return {"loss": loss.detach(), **metrics}

    def around_gradient(self) -> Any:
        """Return the context in which the gradients of an update are taken."""
        if not self.around or not self.updating:
            return nullcontext()
        stack = ExitStack()
        for part in self.around:
            stack.enter_context(part.around_gradient())
        return stack

    def change_gradient(self, player: Player) -> None:
        """Let regularisers change the gradients."""
        for part in self.hooks["on_gradient"]:
            part.on_gradient(player.vectors())

    def advance(self, player: Player) -> None:
        """Move a player by its gradients."""
        if self.hooks["on_gradient"]:
            self.change_gradient(player)
        player.move()
        self.moved(player)

    def moved(self, player: Player) -> None:
        """Let regularisers and the player's projection change the weights, and update the average."""
        for part in self.hooks["after_step"]:
            part.after_step(player.vectors())
        if player.project is not None:
            with torch.no_grad():
                player.project(player.vectors())
        if player.average is not None:
            player.average.update_parameters(player.module)

    def record(self, metrics: Mapping[str, Any], batch: Batch, player: Player | None = None) -> None:
        """Add metrics to the sums of the epoch; those of one of several players carry its name."""
        prefix = f"{player.part}_" if player is not None and player.part else ""
        for name, value in metrics.items():
            number = value.item() if isinstance(value, Tensor) else float(value)
            if self.run.world > 1:
                number = float(self.run.sum(np.array(number * self.scale))) / self.run.world
            if not math.isfinite(number):
                raise Diverged(
                    f"{self.owner}: {prefix}{name} became {number} at step {self.updates + 1} of epoch "
                    f"{self.epoch + 1} (learning_rate={self.training.learning_rate:g}){self._culprit(player)}. Lower "
                    "learning_rate, set clip_norm, or scale the data; the last finite state is kept."
                )
            name = prefix + name
            self.sums[name] = self.sums.get(name, 0.0) + number * batch.size
            self.counts[name] = self.counts.get(name, 0) + batch.size

    def _culprit(self, player: Player | None) -> str:
        """Return the name of the player that diverged: the one whose weights have grown most, or are NaN."""
        if player is None or len(self.players) == 1:
            return ""
        worst = max(self.players, key=lambda p: (p.growth(), p is player))
        return f"; the {worst.part} ran away: its weights are {worst.growth():.3g} times those of the start"

    def share(self, batch: Batch) -> Batch:
        """Return this process's part of a batch; ``scale`` makes the mean over processes the mean over samples."""
        self.scale, part = self._share(batch)
        return part

    def _share(self, batch: Batch) -> tuple[float, Batch]:
        world, rank = self.run.world, self.run.rank
        if world == 1:
            return 1.0, batch
        part = -(-batch.size // world)
        rows = slice(rank * part, min(batch.size, (rank + 1) * part))
        mine = max(0, rows.stop - rows.start)
        scale = mine * world / batch.size
        if mine and batch.weight is not None:
            whole = float(batch.weight.sum())
            scale = float(batch.weight[rows].sum()) * world / whole if whole > 0 else scale
        if mine == 0:  # nothing left for this one: any row, with weight zero
            rows = slice(0, 1)
        target, weight = (t[rows] if isinstance(t, Tensor) else t for t in (batch.target, batch.weight))
        inputs = tuple(t[rows] if isinstance(t, Tensor) else t for t in batch.inputs)
        return scale, Batch(inputs, target, weight, batch.size, rows)

    def _set_rate(self) -> None:
        training = self.training
        if training.schedule == "constant" and not training.warmup:
            return
        total = training.epochs * -(-self.batches.count(training.batch_size) // training.accumulate)
        factor = optim.schedule(training.schedule, self.updates, total, training.warmup)
        for player in self.players:
            player.set_rate(factor)

    # --- averages and validation -------------------------------------------------------------------------

    def _validated(self) -> Metrics:
        module = self._chosen().eval()
        with torch.no_grad(), seeded(self.seed, self.run.device):
            metrics = self.validate(module) if self.validate is not None else {}
        module.train()
        if self.run.world == 1:
            return metrics
        # The first process's figures are everyone's: buffers, such as running means, may differ between processes.
        own = {name: value if self.run.rank == 0 else 0.0 for name, value in metrics.items()}
        return {name: float(self.run.sum(np.array(value))) for name, value in own.items()}

    def _chosen(self) -> nn.Module:
        """Return the module to validate and to return: with averaged weights if there are any."""
        averaged = [player for player in self.players if player.average is not None]
        if not averaged or not self.updates:
            return self.module
        if averaged[0].part == "":
            return averaged[0].average.module  # type: ignore[no-any-return]
        module = copy.deepcopy(self.module)
        for player in averaged:
            module.get_submodule(player.part).load_state_dict(player.average.module.state_dict())
        return module


def _frozen_norms(module: nn.Module) -> list[nn.Module]:
    """Return the batch normalisations whose parameters are frozen: they keep their running statistics too."""
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]
    return [
        norm for norm in norms if [*norm.parameters()] and not any(p.requires_grad for p in norm.parameters())
    ]


def _backend(asked: Any) -> Any:
    """Return the backend of ``torch.compile`` that ``Training.compile`` asks for."""
    if not isinstance(asked, str):
        return "inductor" if asked is True else asked
    known = torch._dynamo.list_backends(exclude_tags=())
    if asked not in known:
        raise errors.unknown("Training", "backend of torch.compile", asked, known)
    return asked


def find_rate(learner: GradientLearner) -> float | None:
    """Learning-rate range test: return the rate at which the loss falls fastest while the rate grows from update to update.

    The loss is smoothed over updates, and the test ends where it has grown to four times its least. The learner is left as
    it was. ``None`` means that the engine asked for a pause; the next test begins anew, and finds the same.
    """
    before, low, high = learner.state(), *RATES
    rates = np.geomspace(low, high, TRIALS)
    losses: list[float] = []
    smooth, paused = 0.0, False

    def batches() -> Iterator[Batch]:
        while True:
            order = epoch_order(learner.seed, len(losses), len(learner.batches))
            learner.rule.begin(learner)
            yield from learner.batches.epoch(order, learner.training.batch_size, 0)

    with learner.stream.open():
        learner.module.train()
        for rate, batch in zip(rates, batches()):
            learner._use_rate(float(rate))
            learner.sums, learner.counts = {}, {}
            try:
                learner._update(batch)
            except Diverged:
                break
            loss = next(iter(learner.sums.values())) / next(iter(learner.counts.values()))
            smooth = 0.9 * smooth + 0.1 * loss
            losses.append(smooth / (1 - 0.9 ** (len(losses) + 1)))
            paused = pause_wanted(together=True, checkpoint=False)
            if losses[-1] > 4 * abs(min(losses)) or paused:
                break
    learner.restore(before)
    if paused:
        return None
    if len(losses) < 3:
        return low
    slopes = np.gradient(np.array(losses[: 1 + int(np.argmin(losses))] or losses))
    return float(rates[int(np.argmin(slopes))]) if len(slopes) > 1 else low


@contextmanager
def _kernels(module: nn.Module, run: Run) -> Iterator[None]:
    """Disable oneDNN for LSTMs on processors without bfloat16 support, where its kernel is missing."""
    if run.device != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        yield
        return
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(before and not any(isinstance(m, nn.LSTM) for m in module.modules()))
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def evaluate(
    objective: Objective | Sequence[Player], module: nn.Module, batches: Batches, batch_size: int = CHUNK
) -> Metrics:
    """Return the mean objective over all samples, batch by batch, as ``validation_`` metrics."""
    sides = [("", objective)] if callable(objective) else [(f"{p.part}_", p.objective) for p in objective]
    sums: dict[str, float] = {}
    for batch in batches.epoch(None, batch_size, 0):
        for prefix, side in sides:
            out = side(module, typed(module, batch))
            loss, metrics = out if isinstance(out, tuple) else (out, {})
            for name, value in {"loss": loss, **metrics}.items():
                sums[prefix + name] = sums.get(prefix + name, 0.0) + value.item() * batch.size
    return {f"validation_{name}": total / len(batches) for name, total in sums.items()}
