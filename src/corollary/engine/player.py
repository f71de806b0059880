"""Players: parameters with an objective and an optimiser of their own.

Ordinary training has one player. A generative adversarial network has two: generator and critic are parts of one module, each
with its own objective. The parameters of a player lie in one flat vector where the optimiser allows it, so that an update is
one fused kernel, and a rule can save, move and restore them cheaply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corollary import errors, optim
from corollary.engine.kept import check_optimizer
from corollary.engine.learner import State, freeze
from corollary.engine.objective import Objective
from corollary.engine.run import Run
from corollary.engine.sharding import Shard, check_shardable, on_slots
from corollary.engine.training import Training

__all__ = ["Player", "flatten"]

ELEMENTWISE = {
    "Adagrad",
    "Adam",
    "AdamW",
    "ExtraGradient",
    "LBFGS",
    "RMSprop",
    "SGD",
    "SVRG",
    "SignSGD",
    "Subgradient",
}  # these may see the parameters as one vector


class Player:
    """Parameters of a module, the objective that they minimise, and their optimiser.

    Parameters
    ----------
    objective : Supervised or callable
        ``objective(module, batch)`` returns the mean loss over the batch, or that and further metrics. The module is the
        whole one, with every player's part in it.
    part : str, default=""
        The submodule whose parameters this player moves, by name; "" is all of them.
    steps : int, default=1
        How often it moves for each time the slowest player does.
    project : callable, optional
        ``project(vectors)`` changes the weights in place after every move, such as clipping them.
    gradient : callable, optional
        ``gradient(module, batch)`` writes the gradients itself and returns the loss.
    **training
        Fields of :class:`~corollary.Training` that are this player's own, such as ``learning_rate``.
    """

    def __init__(
        self,
        objective: Objective,
        part: str = "",
        *,
        steps: int = 1,
        project: Callable[[list[Tensor]], None] | None = None,
        gradient: Callable[..., Tensor] | None = None,
        **training: Any,
    ) -> None:
        self.objective = objective
        self.part = part
        self.steps = steps
        self.project = project
        self.gradient = gradient
        self.overrides = training

    def bind(self, module: nn.Module, training: Training, run: Run, owner: str) -> Player:
        """Find the parameters and make the optimiser."""
        self.owner = owner
        self.training = training.overridden(**self.overrides) if self.overrides else training
        self.module = module.get_submodule(self.part)
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        if not self.trained:
            raise errors.value(owner, f"{self.part or 'the module'} must have parameters to train", "none")
        mixed = run.precision is None or run.precision.endswith("mixed")  # else Fabric changes the type
        self.shards: list[Shard] = []  # this process's slices of the vectors, where the optimiser is sharded
        self.optimizer, self.flat = self._optimizer(mixed, run)
        self.average = self._averaged()
        self.start = self._size()
        return self

    def _size(self) -> float:
        with torch.no_grad():
            return float(torch.stack([p.norm().double() for p in self.trained]).norm())

    def growth(self) -> float:
        """Return how many times larger the weights are than at the start; infinite where they are no numbers."""
        size = self._size()
        return size / max(self.start, 1e-12) if math.isfinite(size) else math.inf

    # --- parameters as vectors ---------------------------------------------------------------------------

    def _optimizer(self, same_type: bool, run: Run) -> tuple[Any, bool]:
        """Make the optimiser over the parameters: matrices decay, biases and gains do not."""
        training = self.training
        apart = training.splits_matrices and training.optimizer != "lbfgs"
        self.matrices = [p for p in self.trained if p.ndim >= 2]
        groups = [self.trained, []]
        if apart and self.matrices:
            groups = [self.matrices, [p for p in self.trained if p.ndim < 2]]
        options = training.options()
        base = options.pop("base") if training.optimizer == "sam" else training.optimizer
        kind, _ = optim.kind_of(base)
        if kind == "Subgradient":  # the engine averages
            options.setdefault("average", False)
        uniform = len({(p.dtype, p.device) for p in self.trained}) == 1
        flat = kind in ELEMENTWISE and uniform and same_type
        if run.shards:
            check_shardable(self.owner, training.optimizer, kind, flat)
        parts = run.world if run.shards else 1
        vectors = [[flatten(group, parts)] if flat else group for group in groups if group]
        if parts > 1:
            self.shards = [Shard(vector, run) for (vector,) in vectors]
        moved = [[shard.own] for shard in self.shards] or vectors
        decays = (training.weight_decay if training.decays_in_optimizer else 0.0, 0.0)
        grouped: list[Any] = [
            {"params": vector, "weight_decay": decay} for vector, decay in zip(moved, decays)
        ]
        if kind == "LBFGS":
            grouped = [p for vector in vectors for p in vector]
        self.decayed = vectors[0] if flat and apart else self.matrices
        made = optim.create(base, grouped, lr=training.learning_rate, **options)
        return made, flat

    def vectors(self) -> list[Tensor]:
        """Return the tensors that the optimiser updates: one or two flat vectors, or the parameters."""
        if self.shards:
            return [shard.vector for shard in self.shards]
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def move(self) -> None:
        """Take a step of the optimiser by the gradients that are there."""
        (getattr(self.optimizer, "move", None) or self.optimizer.step)()
        for shard in self.shards:
            shard.spread()

    def reduce_gradients(self, world: int, whole: bool) -> None:
        """Average the gradients over the processes; unless ``whole``, a sharded one gets only its slice of them."""
        for shard in self.shards:
            shard.reduce(whole)
        if not self.shards:
            for vector in self.gradients():
                torch.distributed.all_reduce(vector)
                vector /= world

    def zero_grad(self) -> None:
        """Set the gradients to zero; an explicit backward pass overwrites them anyway."""
        if not self.flat:
            self.optimizer.zero_grad(set_to_none=True)
        else:
            for vector in self.vectors():
                vector.grad.zero_()  # type: ignore[union-attr]

    def listen(self) -> Callable[[], list[str]]:
        """Record which parameters get a gradient; return a function that lists the names of those that got none so far."""
        names = {id(p): name for name, p in self.module.named_parameters(prefix=self.part)}
        handles: dict[str, Any] = {}
        for p in self.trained:
            name = names[id(p)]
            handles[name] = p.register_post_accumulate_grad_hook(
                lambda _, name=name: handles.pop(name).remove()
            )
        count = len(handles)

        def waiting() -> list[str]:
            # if no parameter got a gradient from torch, the rule computes gradients itself
            silent = [*handles] if len(handles) < count else []
            for name in [*handles]:
                handles.pop(name).remove()
            return silent

        return waiting

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the vectors, zeros where a parameter has none."""
        return [torch.zeros_like(v) if v.grad is None else v.grad for v in self.vectors()]

    def copies(self) -> list[Tensor]:
        """Return copies of the vectors."""
        return [v.detach().clone() for v in self.vectors()]

    @torch.no_grad()
    def put(self, values: Sequence[Tensor]) -> None:
        """Set the vectors to values."""
        for vector, value in zip(self.vectors(), values):
            vector.copy_(value)

    def set_rate(self, factor: float) -> None:
        """Set the step size to ``factor`` times the learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.training.learning_rate * factor

    # --- state -------------------------------------------------------------------------------------------

    def _averaged(self) -> Any:
        kind = self.training.average
        return optim.average(self.module, kind) if kind else None

    def state(self) -> State:
        """Return the optimiser's state and the average; the weights are the module's."""
        average = None if self.average is None else freeze(dict(self.average.state_dict()))
        kept = {"optimizer": freeze(self.optimizer.state_dict()), "average": average}
        return {**kept, "sliced": True} if self.shards else kept

    def gathered(self, state: State) -> State:
        """Return a snapshot with the slices of all processes, in the first process; every process must ask."""
        if not self.shards:
            return state
        whole = on_slots(state["optimizer"], [shard.joined for shard in self.shards])
        return {"optimizer": whole, "average": state["average"]}

    def restore(self, state: State) -> None:
        """Go back to a snapshot of this process, or to a gathered one."""
        kept, sliced = state["optimizer"], "sliced" in state
        if self.shards and not sliced:
            kept = on_slots(kept, [shard.cut for shard in self.shards])
        if self.shards or not sliced:  # else this is the process that watches the others, which has no slice
            check_optimizer(self.optimizer, kept)
            self.optimizer.load_state_dict(freeze(kept))
        if self.average is not None:
            self.average.load_state_dict(state["average"])


def flatten(params: Sequence[nn.Parameter], parts: int = 1) -> nn.Parameter:
    """Move parameters and their gradients into one vector each; the parameters become views of it.

    The memory behind either vector is padded with zeros to a multiple of ``parts``.
    """
    total = sum(p.numel() for p in params)
    padded = torch.zeros(-(-total // parts) * parts, dtype=params[0].dtype, device=params[0].device)
    vector = nn.Parameter(padded[:total])
    vector.grad = torch.zeros_like(padded)[:total]
    offset = 0
    with torch.no_grad():
        for p in params:
            where = (p.shape, p.stride(), offset)
            if not _dense(p):
                where = (p.shape, torch.empty(p.shape).stride(), offset)
            view = vector.data.as_strided(*where)
            view.copy_(p)
            p.data = view
            p.grad = vector.grad.as_strided(*where)
            offset += p.numel()
    return vector


def _dense(p: Tensor) -> bool:
    """Whether the memory of ``p`` is gap-free, in whatever order of its axes."""
    return p.is_contiguous() or (p.ndim == 4 and p.is_contiguous(memory_format=torch.channels_last))
