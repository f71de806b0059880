"""The gradient learner: any module, any objective, one epoch a step.

Data stay tensors, batches are slices of one permuted copy, the parameters live in one
flat vector so that an update is one fused kernel, and losses are summed in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import optim
from corollary.engine.batches import Batch, Batches, epoch_order
from corollary.engine.learner import Metrics, State, freeze
from corollary.engine.loop import pause_wanted
from corollary.engine.objective import Objective
from corollary.engine.run import Run
from corollary.engine.training import Training
from corollary.errors import Diverged
from corollary.errors import value as value_error

__all__ = ["GradientLearner", "evaluate", "seeded"]

CHUNK = 4096  # rows evaluated at a time where no gradient is needed
ELEMENTWISE = {"Adagrad", "Adam", "AdamW", "RMSprop", "SGD"}  # these may see the parameters as one vector


@contextmanager
def seeded(seed: int | Tensor) -> Iterator[None]:
    """Draw from torch's global generator from a given state on, and leave it as it was."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if isinstance(seed, Tensor):
            torch.set_rng_state(seed)
        else:  # torch.manual_seed would also keep a stack trace for every kind of device that is not there
            torch.default_generator.manual_seed(seed)
            if torch.cuda.is_available():
                torch.cuda.manual_seed_all(seed)
        yield


class GradientLearner:
    """Descend on the mean of an objective over batches; a step is an epoch.

    Parameters
    ----------
    module : nn.Module
        What is trained, in place.
    objective : Supervised or callable
        ``objective(module, batch)`` returns the mean loss over the batch, or that and a
        dict of further metrics to average.
    batches : Batches
        The training data.
    training : Training
        How to descend; resolved.
    run : Run
        Where to run.
    seed : int
        Decides the order of the samples and all noise.
    owner : str
        The estimator's name, for messages.
    validate : callable, optional
        ``validate(module)`` is called after each epoch with the module in evaluation mode, the averaged one if that is
        what is returned; its metrics join the history.
    gradient : callable, optional
        ``gradient(module, batch)`` writes the gradients itself and returns the loss, where
        an explicit backward pass beats automatic differentiation.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        batches: Batches,
        training: Training,
        run: Run,
        *,
        seed: int,
        owner: str,
        validate: Callable[[nn.Module], Metrics] | None = None,
        gradient: Callable[..., Tensor] | None = None,
    ) -> None:
        self.dtype = _float_type(module)
        self.module = module.to(run.device)
        if run.precision is not None and run.precision.endswith("mixed"):
            self.module.float()  # the weights that half precision is mixed with are of single precision
        self.objective = objective
        self.batches = batches
        self.training = training
        self.run = run
        self.seed = seed
        self.owner = owner
        self.validate = validate
        self.epoch = self.batch = self.updates = 0
        self.sums: dict[str, float] = {}
        self.count = 0
        self.optimizer, self.flat = self._optimizer()
        self.gradient = gradient if self.flat and run.fabric is None else None
        self.average = self._averaged()
        self.wrapped: Any = self.module
        if run.fabric is not None:
            self.wrapped, self.optimizer = run.fabric.setup(self.module, self.optimizer)
        with seeded(seed):
            self.rng = torch.get_rng_state()

    # --- the protocol ------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """Whether every epoch has been run."""
        return bool(self.epoch >= self.training.epochs)

    def step(self) -> Metrics | None:
        """Run one epoch, or the rest of one; ``None`` if the engine asked for a pause."""
        batch_size = self.training.batch_size
        order = epoch_order(self.seed, self.epoch, len(self.batches)) if self.training.shuffle else None
        self.module.train()
        with seeded(self.rng):
            for batch in self.batches.epoch(order, batch_size, self.batch):
                self._update(batch)
                self.batch += 1
                if pause_wanted() and self.batch < self.batches.count(batch_size):
                    self.rng = torch.get_rng_state()
                    return None
            self.rng = torch.get_rng_state()
        metrics = {name: total / self.count for name, total in self.sums.items()}
        self.epoch, self.batch, self.sums, self.count = self.epoch + 1, 0, {}, 0
        if self.validate is not None:
            metrics.update(self._validated())
        return metrics

    def state(self) -> State:
        """Return weights, optimiser, averages, position and random state."""
        return {
            "module": freeze(dict(self.module.state_dict())),
            "optimizer": freeze(self.optimizer.state_dict()),
            "average": None if self.average is None else freeze(dict(self.average.state_dict())),
            "position": (self.epoch, self.batch, self.updates),
            "sums": dict(self.sums),
            "count": self.count,
            "rng": self.rng.clone(),
        }

    def restore(self, state: State) -> None:
        """Go back to a snapshot."""
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(freeze(state["optimizer"]))
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.epoch, self.batch, self.updates = state["position"]
        self.sums, self.count, self.rng = dict(state["sums"]), state["count"], state["rng"].clone()

    def result(self) -> nn.Module:
        """Return a copy of the trained module in evaluation mode, averaged if that was asked for."""
        module = copy.deepcopy(self._chosen()).eval()
        if self.run.precision is None:
            return module
        return module.double() if self.dtype is torch.float64 else module.float()

    # --- one update --------------------------------------------------------------------------------------

    def _update(self, batch: Batch) -> None:
        scale, batch = self._share(batch)
        self._set_rate()
        self._zero_grad()
        if self.gradient is not None:
            loss, metrics = self.gradient(self.module, batch), dict[str, Tensor]()
        else:
            out = self._objective(batch)
            loss, metrics = out if isinstance(out, tuple) else (out, {})
            if self.run.fabric is not None:
                self.run.fabric.backward(loss * scale)
            else:
                loss.backward()  # type: ignore[no-untyped-call]
        self._record({"loss": loss, **metrics}, batch.size, scale)
        if self.training.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._vectors(), self.training.clip_norm)
        self.optimizer.step()
        self.updates += 1
        if self.average is not None:
            self.average.update_parameters(self.module)

    def _objective(self, batch: Batch) -> Any:
        if self.run.precision is None:
            return self.objective(self.wrapped, batch)
        with _kernels(self.module, self.run):
            return self.objective(self.wrapped, typed(self.module, batch))

    def _record(self, metrics: dict[str, Any], size: int, scale: float) -> None:
        for name, value in metrics.items():
            number = value.item() if isinstance(value, Tensor) else float(value)
            if self.run.world > 1:
                number = float(self.run.sum(np.array(number * scale))) / self.run.world
            if not math.isfinite(number):
                raise Diverged(
                    f"{self.owner}: {name} became {number} at step {self.updates + 1} of epoch {self.epoch + 1} "
                    f"(learning_rate={self.training.learning_rate:g}). Lower learning_rate, set clip_norm, or "
                    "scale the data; the last finite state is kept."
                )
            self.sums[name] = self.sums.get(name, 0.0) + number * size
        self.count += size

    def _share(self, batch: Batch) -> tuple[float, Batch]:
        """Return this process's part of a batch, and the weight that makes the mean over processes the mean."""
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
        return scale, Batch(inputs, target, weight, batch.size)

    def _set_rate(self) -> None:
        training = self.training
        if training.schedule == "constant" and not training.warmup:
            return
        total = training.epochs * self.batches.count(training.batch_size)
        rate = training.learning_rate * optim.schedule(
            training.schedule, self.updates, total, training.warmup
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    # --- parameters as vectors ---------------------------------------------------------------------------

    def _optimizer(self) -> tuple[Any, bool]:
        """Make the optimiser over the parameters: matrices decay, biases and gains do not."""
        training = self.training
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if training.weight_decay:
            groups = [[p for p in trained if p.ndim >= 2], [p for p in trained if p.ndim < 2]]
        else:
            groups = [trained, []]
        kind = optim.NAMES[training.optimizer][0]
        if kind == "Muon" and any(p.ndim != 2 for p in trained):
            raise value_error(
                self.owner, "muon takes matrices only", "biases or kernels", "Use optimizer='adam'."
            )
        uniform = len({(p.dtype, p.device) for p in trained}) == 1
        mixed = self.run.precision is None or self.run.precision.endswith(
            "mixed"
        )  # else Fabric changes the type
        flat = kind in ELEMENTWISE and uniform and mixed
        decays = (training.weight_decay, 0.0)
        options: list[dict[str, Any]] = [
            {"params": [_flatten(group)] if flat else group, "weight_decay": decay}
            for group, decay in zip(groups, decays)
            if group
        ]
        return optim.create(training.optimizer, options, lr=training.learning_rate), flat

    def _vectors(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _zero_grad(self) -> None:
        if not self.flat:
            self.optimizer.zero_grad(set_to_none=True)
        elif self.gradient is None:
            for vector in self._vectors():
                vector.grad.zero_()  # type: ignore[union-attr]

    # --- averages and validation -------------------------------------------------------------------------

    def _averaged(self) -> Any:
        from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

        kind = self.training.average
        if kind is None:
            return None
        rule = None if kind == "polyak" else get_ema_multi_avg_fn(float(kind))  # type: ignore[no-untyped-call]
        return AveragedModel(self.module, multi_avg_fn=rule, use_buffers=True)

    def _validated(self) -> Metrics:
        module = self._chosen().eval()
        with torch.no_grad(), seeded(self.seed):
            metrics = self.validate(module) if self.validate is not None else {}
        module.train()
        return metrics

    def _chosen(self) -> nn.Module:
        """Return the module that is the result: the averaged one if there is one."""
        return self.average.module if self.average is not None and self.updates else self.module


def _float_type(module: nn.Module) -> torch.dtype | None:
    """Return the type of the module's weights, where it has any."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), None)


def typed(module: nn.Module, batch: Batch) -> Batch:
    """Return a batch in the type of the module's weights, which the run's precision may have changed."""
    dtype = _float_type(module)
    if dtype is None:
        return batch

    def change(t: Any) -> Any:
        return t.to(dtype) if isinstance(t, Tensor) and t.is_floating_point() else t

    return Batch(tuple(map(change, batch.inputs)), change(batch.target), change(batch.weight), batch.size)


@contextmanager
def _kernels(module: nn.Module, run: Run) -> Iterator[None]:
    """Leave oneDNN's LSTM out where it has none for half precision; torch's own takes its place."""
    if run.device != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        yield
        return
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(before and not any(isinstance(m, nn.LSTM) for m in module.modules()))
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _flatten(params: Sequence[nn.Parameter]) -> nn.Parameter:
    """Move parameters and their gradients into one vector each; the parameters become views of it."""
    total = sum(p.numel() for p in params)
    vector = nn.Parameter(torch.empty(total, dtype=params[0].dtype, device=params[0].device))
    vector.grad = torch.zeros_like(vector)
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


def evaluate(objective: Objective, module: nn.Module, batches: Batches, batch_size: int = CHUNK) -> Metrics:
    """Return the mean objective over all samples, batch by batch, as ``validation_`` metrics."""
    sums: dict[str, float] = {}
    for batch in batches.epoch(None, batch_size, 0):
        out = objective(module, typed(module, batch))
        loss, metrics = out if isinstance(out, tuple) else (out, {})
        for name, value in {"loss": loss, **metrics}.items():
            sums[name] = sums.get(name, 0.0) + value.item() * batch.size
    return {f"validation_{name}": total / len(batches) for name, total in sums.items()}
