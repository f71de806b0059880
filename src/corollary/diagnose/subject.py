"""What is examined: a module, its data, its loss and what is known of its training, in one form.

Whatever was given, :class:`Subject` holds a copy of the module that may be measured and trained, samples that can be taken in
part, and a loss of an output and a target. Nothing here changes what the user handed over.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from corollary import errors
from corollary.diagnose.objectives import Criterion, criterion_of
from corollary.diagnose.samples import IGNORED, Samples, coded, joined, kept, main_output
from corollary.diagnose.settings import OWNER, Settings, tidy_history
from corollary.diagnose.terms import look

__all__ = ["Subject", "copied", "quiet", "redraw", "unwrapped"]

ROWS = 2048  # rows that are looked at; more would tell the same more slowly


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
        notes: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.notes = list(notes)  # what was found out while reading: what about, and what
        train, valid, words = coded(train, valid)
        self.words = words
        # classes of validation that the output has no place for, by share of rows
        self.unseen: dict[str, float] = {}
        if words:
            few = ", ".join(f"{word} = {i}" for i, word in enumerate(words[:5])) + (
                ", …" if len(words) > 5 else ""
            )
            self.notes.append(("labels", f"labels that are words are read in alphabetical order: {few}"))
        self.given, self.owner, self.step, self.initial = module, owner, step, initial
        self.restores = train.restores
        if self.restores:  # nothing is there to be aligned with: the same as no targets
            train = replace(train, y=None)
            valid = None if valid is None else replace(valid, y=None)
        if module is not None:
            train = train.fitted(module)
            valid = None if valid is None else valid.fitted(module)
        self.settings = settings or Settings()
        self.history = tidy_history(history)
        if (
            owner is None
            and history is not None
            and len(history)
            and not {"loss", "val_loss"} & set(self.history)
        ):
            known = ", ".join(map(repr, self.history)) or "no numbers"
            self.notes.append(
                ("history", f'history has no "loss" or "val_loss", only {known}, and was not used')
            )
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
        self.obstacle = ""  # what keeps checks that need an output or a loss from being made
        self.output: Any = None  # of the training rows, evaluation mode
        self.criterion: Criterion = criterion_of(loss, None, train.y, None)
        if train.y is None and self.criterion.name in ("cross_entropy", "nll"):
            raise errors.value(OWNER, f"{self.criterion.name} needs targets", "X alone", "Pass (X, y).")
        if self.net is not None:
            self._look(loss)

    def _look(self, loss: Any) -> None:
        assert self.net is not None
        self.error = self._called()
        if self.error is not None and self.train.key:
            given, self.train = self.train, self.train.as_dict()
            if self._called() is None:
                self.error, self.all_train = None, self.all_train.as_dict()
                if self.valid is not None and self.all_valid is not None:
                    self.valid, self.all_valid = self.valid.as_dict(), self.all_valid.as_dict()
            else:
                self.train = given
        main = main_output(self.output)
        if main is None and self.error is None:
            self.error = f"it returns {type(self.output).__name__}, in which there is no tensor"
        if isinstance(main, Tensor) and main.device.type == "meta":
            self.error, self.output, main = (
                "its weights are on the meta device and have no values",
                None,
                None,
            )
        y = self.train.y if self.train.y is not None else self.train.x
        self.criterion = criterion_of(loss, main, y, self.train.x, supervised=self.train.y is not None)
        with quiet(self.net), torch.no_grad():
            look(self.criterion, self.output, self.train.y)
        self._leave_unseen()
        self.obstacle = self._obstacle()

    def _called(self) -> str | None:
        """Call the model; return what it raises."""
        assert self.net is not None
        with quiet(self.net), torch.no_grad():
            try:
                self.output = self.call(self.net.eval(), self.train)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return None

    def _leave_unseen(self) -> None:
        """Find the classes of validation that the output has no place for, and leave their rows out."""
        z, valid = main_output(self.output), self.valid
        one = (
            valid is not None
            and isinstance(valid.y, Tensor)
            and valid.y.numel() == valid.n
            and not valid.whole
        )
        if z is None or z.ndim != 2 or z.shape[1] < 2 or self.task != "classes" or not one:
            return
        assert valid is not None
        y = valid.y.reshape(-1)
        bad = (y != IGNORED) & ((y < 0) | (y >= z.shape[1]))
        for label in torch.unique(y[bad]).long().tolist():
            name = self.words[label] if 0 <= label < len(self.words) else str(label)
            self.unseen[name] = float((y == label).float().mean())
        if self.unseen:
            kept_rows = np.flatnonzero(~bad.numpy())
            self.valid = valid.take(kept_rows) if len(kept_rows) else None

    def _obstacle(self) -> str:
        """Return why nothing that needs an output, or a loss, can be measured; empty where it can."""
        if self.error is not None:
            return "left out: it needs the model, which could not be called"
        try:
            with torch.no_grad(), quiet(self.given):
                self.loss_of(self.output, self.train)
        except Exception:
            return "left out: it needs the loss, which cannot take output and target"
        return ""

    # --- calling -----------------------------------------------------------------------------------------

    def place(self, net: nn.Module) -> tuple[Any, Any]:
        """Return the device and the real type of a module."""
        like: Tensor | None = next((p for p in net.parameters() if p.is_floating_point()), None)
        if like is None:
            like = next((b for b in net.buffers() if b.is_floating_point()), None)
        return (torch.device("cpu"), None) if like is None else (like.device, like.dtype)

    def call(self, net: nn.Module, samples: Samples, chunk: int = 1024) -> Any:
        """Return the module's output for samples, in chunks where no gradient is wanted."""
        device, dtype = self.place(net)
        if torch.is_grad_enabled() or samples.whole or samples.n <= chunk:
            return samples.to(device, dtype).call(net)
        parts = []
        for begin in range(0, samples.n, chunk):
            parts.append(samples.take(slice(begin, begin + chunk)).to(device, dtype).call(net))
        return joined(parts)

    def target(self, samples: Samples) -> Any:
        """Return what the output is compared with: the targets, or the inputs themselves."""
        return samples.y if samples.y is not None else samples.x

    def loss(self, net: nn.Module, samples: Samples) -> Tensor:
        """Return the mean loss of a module over samples, as the user's loss says."""
        return self.loss_of(self.call(net, samples), samples, net)

    def loss_of(self, out: Any, samples: Samples, net: nn.Module | None = None) -> Tensor:
        """Return the mean loss of outputs for samples."""
        device, dtype = self.place(self.net if net is None else net)
        target = self.target(samples)
        if isinstance(target, (tuple, Mapping)):
            target = tree_map(lambda t: t.to(device) if isinstance(t, Tensor) else t, target)
        if isinstance(target, Tensor):
            target = target.to(device)
            if target.is_floating_point() and dtype is not None and not self.criterion.custom:
                target = target.to(dtype)
        if samples.whole and isinstance(target, Tensor):  # a graph: only labelled nodes count
            keep = samples.counted.to(device)
            if not bool(keep.all()):
                out, target = kept(out, keep), target[keep]
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
    if isinstance(net, torch.jit.ScriptModule):
        return _leaves(net)  # which has no hooks that could be taken off
    for part in net.modules():
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            getattr(part, name).clear()
    return net


def _leaves(net: nn.Module) -> nn.Module:
    """Return a copied scripted module with parameters that can be trained: copies of them are computed from the others."""
    for part in net.modules():
        for name, p in part.named_parameters(recurse=False):
            if not p.is_leaf:
                setattr(part, name, nn.Parameter(p.detach().clone(), p.requires_grad))
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
            part.reset_running_stats()  # type: ignore[operator]


def _some(rng: np.random.Generator, samples: Samples, most: int) -> np.ndarray:
    if samples.n <= most:
        return np.arange(samples.n)
    return np.sort(rng.choice(samples.n, most, replace=False))
