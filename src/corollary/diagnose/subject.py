"""What is examined: a module, its data, its loss and what is known of its training, in one form.

Whatever was given, :class:`Subject` holds a copy of the module that may be measured and trained, samples that can be taken in
part, and a loss of an output and a target. Nothing here changes what the user handed over.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose.objectives import Criterion, criterion_of

__all__ = ["IGNORED", "Samples", "Settings", "Subject", "main_output", "unwrapped"]

OWNER = "diagnose"
IGNORED = -100  # labels that are not counted, as in torch
ROWS = 2048  # rows that are looked at; more would tell the same more slowly


def as_tensor(value: Any) -> Any:
    """Return arrays, frames and lists of numbers as tensors; leave anything else."""
    if isinstance(value, Tensor):
        return value.detach()
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, (list, np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            array = array.astype(np.float32) if array.dtype == np.float64 else array
            return torch.from_numpy(np.ascontiguousarray(array))
        if array.dtype.kind in "OUS" and array.ndim == 1:  # labels that are words
            return torch.from_numpy(np.unique(array.astype(str), return_inverse=True)[1])
    return value


@dataclass
class Samples:
    """Inputs by position and by name, with the targets; ``split`` says which of them have a row per sample."""

    args: list[Any]
    kwargs: dict[str, Any]
    y: Any
    n: int
    weight: Any = None

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Samples:
        """Return samples of inputs (one, a tuple or a dict) and targets."""
        y = as_tensor(y) if y is not None else None
        if isinstance(X, Mapping) or hasattr(X, "input_ids"):
            kwargs = {key: as_tensor(value) for key, value in dict(X).items()}
            if y is None and "labels" in kwargs:
                y = kwargs.pop("labels")
            args: list[Any] = []
        else:
            args = [as_tensor(x) for x in X] if isinstance(X, tuple) else [as_tensor(X)]
            kwargs = {}
        if isinstance(y, Tensor) and y.ndim > 0:
            n = len(y)
        else:
            first = next((t for t in [*args, *kwargs.values()] if isinstance(t, Tensor) and t.ndim), None)
            n = 0 if first is None else len(first)
        return cls(args, kwargs, y, n)

    def __len__(self) -> int:
        return self.n

    @property
    def whole(self) -> bool:
        """Whether all samples must be passed at once: a graph with its adjacency."""
        rest = [t for t in [*self.args[1:], *self.kwargs.values()] if isinstance(t, Tensor)]
        square = any(t.ndim == 2 and t.shape[0] == t.shape[1] == self.n for t in rest)
        sparse = any(t.layout != torch.strided for t in rest)
        edges = any(
            t.ndim == 2 and t.shape[0] == 2 and not t.is_floating_point() and self.n != 2 for t in rest
        )
        return square or sparse or edges

    @property
    def restores(self) -> bool:
        """Whether the targets are the inputs themselves, as of an auto-encoder."""
        x, y = self.x, self.y
        if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not y.is_floating_point():
            return False
        return x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y)

    @property
    def x(self) -> Any:
        """The first input, on which the data are judged."""
        for value in [*self.args, *self.kwargs.values()]:
            if isinstance(value, Tensor) and value.ndim and len(value) == self.n:
                return value
        return self.args[0] if self.args else next(iter(self.kwargs.values()), None)

    def take(self, rows: Any) -> Samples:
        """Return some of the samples; of a graph all nodes stay, with the other labels not counted."""
        if isinstance(rows, slice):
            rows = torch.arange(self.n)[rows]
        rows = torch.as_tensor(rows)
        if self.whole:
            y = self.y
            if isinstance(y, Tensor) and len(y) == self.n:
                keep = torch.zeros(self.n, dtype=torch.bool)
                keep[rows] = True
                y = _masked(y, keep)
            return Samples(self.args, self.kwargs, y, self.n)

        def part(value: Any) -> Any:
            rowwise = isinstance(value, Tensor) and value.ndim and len(value) == self.n
            return value[rows.to(value.device)] if rowwise else value

        args = [part(a) for a in self.args]
        return Samples(args, {k: part(v) for k, v in self.kwargs.items()}, part(self.y), len(rows))

    @property
    def counted(self) -> Tensor:
        """Which rows have a target that counts."""
        if not isinstance(self.y, Tensor) or not self.y.ndim:
            return torch.ones(self.n, dtype=torch.bool)
        if self.y.is_floating_point():
            bad = self.y == IGNORED
        else:
            bad = self.y == IGNORED
        return ~bad.reshape(len(self.y), -1).all(1)

    def to(self, device: Any, dtype: Any = None) -> Samples:
        """Return the samples on a device, real inputs in a type."""

        def moved(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            real = value.is_floating_point() and dtype is not None
            return value.to(device=device, dtype=dtype) if real else value.to(device)

        args = [moved(a) for a in self.args]
        y = self.y.to(device) if isinstance(self.y, Tensor) else self.y
        return Samples(args, {k: moved(v) for k, v in self.kwargs.items()}, y, self.n)

    def replaced(self, x: Tensor) -> Samples:
        """Return the samples with another first input."""
        if self.args:
            return Samples([x, *self.args[1:]], self.kwargs, self.y, self.n)
        key = next(iter(self.kwargs))
        return Samples([], {**self.kwargs, key: x}, self.y, self.n)


def _masked(y: Tensor, keep: Tensor) -> Tensor:
    if y.is_floating_point():  # no value says "not counted" for real targets, so NaN is dropped by the loss
        y = y.clone()
        y[~keep] = float(IGNORED)
        return y
    y = y.clone()
    y[~keep] = IGNORED
    return y


@dataclass
class Settings:
    """How it was trained, as far as that is known."""

    optimizer: str | None = None  # "adam", "sgd", ...
    learning_rate: float | None = None
    weight_decay: float | None = None
    momentum: float = 0.0
    decoupled: bool = False  # whether the decay is AdamW's
    batch_size: int | None = None
    trained: set[int] | None = None  # ids of the parameters that the optimiser holds
    steps: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    cut: float = 1.0  # what a schedule has left of the rate, which is the one before it

    @classmethod
    def of(cls, optimizer: Any, batch_size: Any) -> Settings:
        """Read a torch optimiser."""
        if optimizer is None:
            return cls(batch_size=batch_size)
        groups = getattr(optimizer, "param_groups", None)
        if not groups:
            raise errors.kind(
                OWNER, "optimizer must be a torch optimiser", repr(optimizer), "Leave it out if it is gone."
            )
        name = type(optimizer).__name__.lower()
        first = groups[0]
        rates = [float(max(g["lr"], g.get("initial_lr", 0.0))) for g in groups]
        steps = [int(s["step"]) for s in optimizer.state.values() if "step" in s]
        return cls(
            name,
            max(rates),
            max(float(g.get("weight_decay", 0.0)) for g in groups),
            float(first.get("momentum", 0.0)),
            "adamw" in name or bool(first.get("decoupled_weight_decay", False)),
            batch_size,
            {id(p) for g in groups for p in g["params"]},
            max(steps) if steps else None,
            {k: first[k] for k in ("betas", "eps", "nesterov", "alpha") if k in first},
            max(float(g["lr"]) for g in groups) / max(*rates, 1e-300),
        )


def unwrapped(model: Any) -> Any:
    """Return the module inside DDP, DataParallel, torch.compile or skorch."""
    seen = 0
    while seen < 5:
        seen += 1
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        else:
            break
    return model


def main_output(out: Any) -> Any:
    """Return the tensor of an output of any form: itself, its logits, its first entry."""
    if isinstance(out, Tensor):
        return out
    for name in ("logits", "prediction_logits", "last_hidden_state", "reconstruction", "sample"):
        found = out.get(name) if isinstance(out, Mapping) else getattr(out, name, None)
        if isinstance(found, Tensor):
            return found
    values = out.values() if isinstance(out, Mapping) else out if isinstance(out, (tuple, list)) else ()
    for value in values:
        found = main_output(value)
        if isinstance(found, Tensor):
            return found
    return None


@contextmanager
def quiet(net: nn.Module) -> Iterator[None]:
    """Leave torch's random state as it was."""
    devices = sorted({p.device.index for p in net.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        yield


class Subject:
    """A copy of the model with its samples, loss and settings.

    Attributes
    ----------
    given : nn.Module or None
        The module as it was handed over, never changed.
    net : nn.Module or None
        A copy in evaluation mode, in the precision of the original.
    train, valid : Samples
        At most ``ROWS`` rows of each, drawn at random; ``all_train`` and ``all_valid`` are everything.
    """

    def __init__(
        self,
        module: nn.Module | None,
        train: Samples,
        valid: Samples | None,
        *,
        loss: Any = None,
        settings: Settings | None = None,
        history: Any = None,
        initial: Mapping[str, Any] | None = None,
        step: Any = None,
        owner: Any = None,
    ) -> None:
        self.given, self.owner, self.step, self.initial = module, owner, step, initial
        self.restores = train.restores
        if self.restores:  # nothing is there to be aligned with: the same as no targets
            train = replace(train, y=None)
            valid = None if valid is None else replace(valid, y=None)
        self.settings = settings or Settings()
        self.history = tidy_history(history)
        self.all_train, self.all_valid = train, valid
        rng = np.random.default_rng(0)
        self.rows = np.arange(train.n) if train.whole else _some(rng, train, ROWS)
        self.train = train if len(self.rows) == train.n else train.take(self.rows)
        self.valid = None
        if valid is not None and valid.n:
            rows = _some(rng, valid, ROWS)
            self.valid = valid if valid.whole or len(rows) == valid.n else valid.take(rows)
        self.net: nn.Module | None = None
        self.mode = False
        if module is not None:
            self.mode = module.training
            self.net = copied(module)
        self.error: str | None = None  # what the forward pass raised
        self.output: Any = None  # of the training rows, evaluation mode
        self.criterion: Criterion = criterion_of(loss, None, train.y, None)
        if self.net is not None:
            self._look(loss)

    def _look(self, loss: Any) -> None:
        assert self.net is not None
        with quiet(self.net), torch.no_grad():
            try:
                self.output = self.call(self.net.eval(), self.train)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
        main = main_output(self.output)
        if isinstance(main, Tensor) and main.device.type == "meta":
            self.error, self.output, main = (
                "its weights are on the meta device and have no values",
                None,
                None,
            )
        y = self.train.y if self.train.y is not None else self.train.x
        self.criterion = criterion_of(loss, main, y, self.train.x, supervised=self.train.y is not None)

    # --- calling -----------------------------------------------------------------------------------------

    def place(self, net: nn.Module) -> tuple[Any, Any]:
        """Return the device and the real type of a module."""
        like = next((p for p in net.parameters() if p.is_floating_point()), None)
        if like is None:
            like = next((b for b in net.buffers() if b.is_floating_point()), None)
        return (torch.device("cpu"), None) if like is None else (like.device, like.dtype)

    def call(self, net: nn.Module, samples: Samples, chunk: int = 1024) -> Any:
        """Return the module's output for samples, in chunks where no gradient is wanted."""
        device, dtype = self.place(net)
        if torch.is_grad_enabled() or samples.whole or samples.n <= chunk:
            s = samples.to(device, dtype)
            return net(*s.args, **s.kwargs)
        parts = []
        for begin in range(0, samples.n, chunk):
            s = samples.take(slice(begin, begin + chunk)).to(device, dtype)
            parts.append(net(*s.args, **s.kwargs))
        return _joined(parts)

    def target(self, samples: Samples) -> Any:
        """Return what the output is compared with: the targets, or the inputs themselves."""
        return samples.y if samples.y is not None else samples.x

    def loss(self, net: nn.Module, samples: Samples) -> Tensor:
        """Return the mean loss of a module over samples, as the user's loss says."""
        out = self.call(net, samples)
        device, dtype = self.place(net)
        target = self.target(samples)
        if isinstance(target, Tensor):
            target = target.to(device)
            if target.is_floating_point() and dtype is not None and not self.criterion.custom:
                target = target.to(dtype)
        if samples.whole and isinstance(target, Tensor):  # a graph: only labelled nodes count
            keep = samples.counted.to(device)
            if not bool(keep.all()):
                out, target = _kept(out, keep), target[keep]
        return self.criterion(out, target)

    def twin(self, start: str = "present") -> nn.Module:
        """Return a float copy to train: from the weights as they are, the initial ones, or newly drawn ones."""
        assert self.given is not None
        net = copied(self.given).float()
        if start == "initial" and self.initial is not None:
            net.load_state_dict({k: v for k, v in self.initial.items()}, strict=False)
        elif start == "new":
            redraw(net)
        return net

    @property
    def task(self) -> str:
        """What is learned: "classes", "binary", "multilabel", "regression", "reconstruction" or "density"."""
        return self.criterion.task


def copied(module: nn.Module) -> nn.Module:
    """Return a deep copy without hooks and gradients."""
    gradients = [(p, p.grad) for p in module.parameters()]
    for p, _ in gradients:
        p.grad = None
    try:
        net = copy.deepcopy(module)
    except (RuntimeError, TypeError):  # a kept tensor of the graph cannot be copied; the parts can
        memo = {id(v): v.detach().clone() for v in _stray(module)}
        net = copy.deepcopy(module, memo)
    finally:
        for p, g in gradients:
            p.grad = g
    for part in net.modules():
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(part, name).clear()
    return net


def _stray(module: nn.Module) -> Iterator[Tensor]:
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, Tensor) and value.grad_fn is not None:
                yield value


def redraw(net: nn.Module) -> None:
    """Draw new weights: the layers' own start, Kaiming's where a module has none."""
    done: set[int] = set()
    for part in net.modules():
        own = list(part.parameters(recurse=False))
        if own and hasattr(part, "reset_parameters") and callable(part.reset_parameters):
            try:
                part.reset_parameters()
                done.update(map(id, own))
            except (TypeError, RuntimeError):
                continue
    for p in net.parameters():
        if id(p) not in done and p.is_floating_point():
            with torch.no_grad():
                if p.ndim >= 2:
                    fan_in = max(1, p[0].numel()) if p.ndim > 2 else max(1, min(p.shape))
                    p.normal_(0, 1 / math.sqrt(fan_in))
                elif float(p.std(unbiased=False)) > 0 and float(p.mean().abs()) < 0.5:
                    p.zero_()
    for part in net.modules():
        if hasattr(part, "reset_running_stats") and getattr(part, "track_running_stats", False):
            part.reset_running_stats()


def _some(rng: np.random.Generator, samples: Samples, most: int) -> np.ndarray:
    if samples.n <= most:
        return np.arange(samples.n)
    return np.sort(rng.choice(samples.n, most, replace=False))


def _joined(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts) if first.ndim else torch.stack(parts).mean()
    if isinstance(first, Mapping):
        return {
            k: _joined([p[k] for p in parts]) for k in first if isinstance(first[k], (Tensor, tuple, Mapping))
        }
    if isinstance(first, (tuple, list)):
        return (
            type(first)(_joined([p[i] for p in parts]) for i in range(len(first)))
            if type(first) in (tuple, list)
            else (tuple(_joined([p[i] for p in parts]) for i in range(len(first))))
        )
    return first


def _kept(out: Any, keep: Tensor) -> Any:
    if isinstance(out, Tensor):
        return out[keep] if out.ndim and len(out) == len(keep) else out
    if isinstance(out, Mapping):
        return {k: _kept(v, keep) for k, v in out.items()}
    return type(out)(_kept(v, keep) for v in out) if type(out) in (tuple, list) else out


def tidy_history(history: Any) -> dict[str, np.ndarray]:
    """Return the history as arrays by name: from a list of dicts, a dict of lists, a frame or a list of losses."""
    if history is None:
        return {}
    if hasattr(history, "to_dict") and hasattr(history, "columns"):
        history = {c: list(history[c]) for c in history.columns}
    if isinstance(history, Mapping):
        found = {str(k): v for k, v in history.items()}
    else:
        rows = list(history)
        if not rows:
            return {}
        if isinstance(rows[0], Mapping):
            names = {str(k) for row in rows for k in row}
            found = {k: [row.get(k, np.nan) for row in rows] for k in names}
        else:
            found = {"loss": rows}
    tidy = {}
    for key, values in found.items():
        try:
            tidy[key] = np.asarray([float(v) if v is not None else np.nan for v in np.atleast_1d(values)])
        except (TypeError, ValueError):
            continue
    for name, others in (
        ("loss", ("train_loss", "training_loss")),
        ("val_loss", ("valid_loss", "validation_loss", "test_loss")),
    ):
        for other in others:
            if name not in tidy and other in tidy:
                tidy[name] = tidy[other]
    return tidy
