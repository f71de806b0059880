"""Inputs and targets in one form: samples that can be taken in part, moved and masked."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from corollary.diagnose.small_graphs import Graphs

__all__ = ["IGNORED", "Samples", "binds", "coded", "joined", "kept", "main_output", "with_main"]

IGNORED = -100  # labels that are not counted, as in torch
# main parts of outputs
NAMED = ("logits", "prediction_logits", "last_hidden_state", "reconstruction", "sample")


def as_tensor(value: Any) -> Any:
    """Return arrays, frames and lists of numbers as tensors; leave anything else."""
    if isinstance(value, Tensor):
        value = value.detach()
        return value.clone() if value.is_inference() else value
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if hasattr(value, "toarray"):
        value = value.toarray()
    if isinstance(value, (list, np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            array = array.astype(np.float32) if array.dtype == np.float64 else array
            array = np.ascontiguousarray(array)
            return torch.from_numpy(array if array.flags.writeable else array.copy())
        if array.dtype.kind in "OUS" and array.ndim == 1:  # labels that are words, coded when all are known
            return array.astype(str)
    return value


def _inputs(X: Any, n: int | None) -> list[Any]:
    """Return inputs by position: one, or a tuple of them; a list of arrays is one where each is a row."""
    if isinstance(X, list) and X and all(isinstance(x, (Tensor, np.ndarray)) and x.ndim for x in X):
        shapes = {tuple(x.shape) for x in X}
        if {len(x) for x in X} == {n} and (len(shapes) > 1 or len(X) != n):
            X = tuple(X)
        elif len(shapes) == 1:
            X = torch.stack([torch.as_tensor(x) for x in X])
    return [as_tensor(x) for x in X] if isinstance(X, tuple) else [as_tensor(X)]


def _targets(y: Any) -> Any:
    """Return targets: one tensor, words, or a tuple or dict of several."""
    if isinstance(y, Mapping):
        return {key: as_tensor(value) for key, value in y.items()}
    if isinstance(y, tuple):
        several = all(isinstance(v, (Tensor, np.ndarray)) and v.ndim for v in y)
        return tuple(as_tensor(v) for v in y) if several and y else as_tensor(list(y))
    return as_tensor(y)


def coded(train: Samples, valid: Samples | None) -> tuple[Samples, Samples | None, list[str]]:
    """Return samples whose words for labels are numbers, in the order of training's words; and those words.

    Words that only validation has get the numbers from there on.
    """
    if not isinstance(train.y, np.ndarray):
        return train, valid, []
    words = np.unique(train.y)
    train = replace(train, y=torch.from_numpy(np.searchsorted(words, train.y)))
    if valid is not None and isinstance(valid.y, np.ndarray):
        words = np.concatenate([words, np.setdiff1d(valid.y, words)])
        order = np.argsort(words)
        valid = replace(valid, y=torch.from_numpy(order[np.searchsorted(words, valid.y, sorter=order)]))
    return train, valid, words.tolist()


@dataclass
class Samples:
    """Inputs by position and by name, with the targets; ``split`` says which of them have a row per sample."""

    args: list[Any]
    kwargs: dict[str, Any]
    y: Any
    n: int
    packed: bool = False  # whether the module takes its inputs as the one tuple or dict they came in
    # tensors of the module's own that are no parameters: a graph whose nodes the inputs name
    held: tuple[Tensor, ...] = ()
    key: str = ""  # the name that a single input had in the dict it came in
    like: Any = None  # an object with attributes x and edge_index, if the module takes them in one
    # what else of that object has a row per node or edge
    parts: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, X: Any, y: Any = None) -> Samples:
        """Return samples of inputs (one, a tuple or a dict) and targets."""
        y = _targets(y) if y is not None else None
        if isinstance(X, Mapping) or hasattr(X, "input_ids"):
            kwargs = {key: as_tensor(value) for key, value in dict(X).items()}
            if y is None and "labels" in kwargs:
                y = kwargs.pop("labels")
            args: list[Any] = []
        else:
            first = next((t for t in tree_leaves(y) if isinstance(t, (Tensor, np.ndarray)) and t.ndim), None)
            args = _inputs(X, None if first is None else len(first))
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
        if self.graphs is not None:
            return False
        if self.held and isinstance(self.x, Tensor) and self.x.is_floating_point():
            return True
        square = any(t.ndim == 2 and t.shape[0] == t.shape[1] == self.n for t in rest)
        sparse = any(t.layout != torch.strided for t in rest)
        edges = any(
            t.ndim == 2 and t.shape[0] == 2 and not t.is_floating_point() and self.n != 2 for t in rest
        )
        return square or sparse or edges

    @cached_property
    def graphs(self) -> Graphs | None:
        """Which nodes and edges belong to which sample, where samples are graphs that were put together as one."""
        return Graphs.of([*self.args, *self.kwargs.values(), *self.parts.values()], self.n)

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
        if self.graphs is not None:
            return self._mapped(self.graphs.picked(rows), len(rows))
        if self.whole:
            y = self.y
            if isinstance(y, Tensor) and len(y) == self.n:
                keep = torch.zeros(self.n, dtype=torch.bool)
                keep[rows] = True
                y = _masked(y, keep)
            return replace(self, y=y)

        def part(value: Any) -> Any:
            rowwise = isinstance(value, Tensor) and value.ndim and len(value) == self.n
            return value[rows.to(value.device)] if rowwise else value

        return self._mapped(part, len(rows))

    def _mapped(self, part: Callable[[Any], Any], n: int) -> Samples:
        """Return n samples, each tensor of which is a part of what it was."""
        args = [part(a) for a in self.args]
        kwargs = {k: part(v) for k, v in self.kwargs.items()}
        parts = {k: part(v) for k, v in self.parts.items()}
        return replace(self, args=args, kwargs=kwargs, y=tree_map(part, self.y), n=n, parts=parts)

    def first(self, rows: int) -> Samples:
        """Return at most so many samples; of a graph all."""
        return self if self.whole or self.n <= rows else self.take(np.arange(rows))

    def call(self, net: nn.Module) -> Any:
        """Return the output of a module for all samples."""
        return net(self.inputs) if self.packed else net(*self.args, **self.kwargs)

    @property
    def inputs(self) -> Any:
        """The inputs as they were handed over: one, a tuple or a dict, or an object that holds a graph."""
        if self.like is not None:
            made = copy.copy(self.like)
            made.x, made.edge_index = self.args
            for name, t in self.parts.items():
                setattr(made, name, t)
            if "batch" in self.parts and hasattr(made, "_num_graphs"):
                made._num_graphs = self.n
            return made
        return (
            dict(self.kwargs) if not self.args else self.args[0] if len(self.args) == 1 else tuple(self.args)
        )

    def fitted(self, net: nn.Module) -> Samples:
        """Return the samples in the form that the module's forward takes: spread over its arguments, or as one."""
        x = self.x
        if isinstance(x, Tensor) and (x[0].numel() == 1) != x.is_floating_point():
            own = [v for m in net.modules() for v in [*m._buffers.values(), *vars(m).values()]]
            own = [t for t in own if isinstance(t, Tensor) and t.ndim == 2]
            if x.is_floating_point():  # all nodes, of a graph that the module keeps to itself
                own = [t for t in own if x.ndim == 2 and _joins(t, self.n)]
            self = replace(self, held=tuple(own))  # noqa: PLW0642
        try:
            signature = inspect.signature(net.forward)
        except (TypeError, ValueError):
            return self
        plain = not self.kwargs and len(self.args) < 2
        if plain or binds(signature, *self.args, **self.kwargs):
            return replace(self, like=None)
        return replace(self, packed=binds(signature, None))

    def as_dict(self) -> Samples:
        """Return a single input in the dict that it came in."""
        return replace(self, args=[], kwargs={self.key: self.args[0]}, packed=True, key="")

    @property
    def named(self) -> list[tuple[str, Tensor]]:
        """The tensors among the inputs, by name."""
        found = [(f"input {i}" if len(self.args) > 1 else "X", a) for i, a in enumerate(self.args)]
        return [(name, t) for name, t in [*found, *self.kwargs.items()] if isinstance(t, Tensor)]

    @property
    def counted(self) -> Tensor:
        """Which rows have a target that counts."""
        if not isinstance(self.y, Tensor) or not self.y.ndim:
            return torch.ones(self.n, dtype=torch.bool)
        return ~(self.y == IGNORED).reshape(len(self.y), -1).all(1)

    def to(self, device: Any, dtype: Any = None) -> Samples:
        """Return the samples on a device, real inputs in a type."""

        def moved(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            real = value.is_floating_point() and dtype is not None
            return value.to(device=device, dtype=dtype) if real else value.to(device)

        args = [moved(a) for a in self.args]
        y = tree_map(lambda t: t.to(device) if isinstance(t, Tensor) else t, self.y)
        kwargs, parts = ({k: moved(v) for k, v in given.items()} for given in (self.kwargs, self.parts))
        return replace(self, args=args, kwargs=kwargs, y=y, parts=parts)

    def replaced(self, x: Tensor) -> Samples:
        """Return the samples with another first input."""
        if self.args:
            return replace(self, args=[x, *self.args[1:]])
        return replace(self, kwargs={**self.kwargs, next(iter(self.kwargs)): x})


def _joins(t: Tensor, n: int) -> bool:
    """Whether a matrix tells which of n nodes are joined: one for all pairs, or pairs of their numbers."""
    if t.layout != torch.strided or t.is_floating_point() or t.dtype == torch.bool:
        return t.shape[0] == t.shape[1] == n
    return t.shape[0] == 2 < t.shape[1] and n > 2 and n // 2 <= int(t.max()) < n


def binds(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    """Whether a function can be called with such arguments."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _masked(y: Tensor, keep: Tensor) -> Tensor:
    y = y.clone()
    y[~keep] = IGNORED
    return y


def main_output(out: Any) -> Any:
    """Return the tensor of an output of any form: itself, its logits, its first entry."""
    if isinstance(out, Tensor):
        return out
    for name in NAMED:
        found = out.get(name) if isinstance(out, Mapping) else getattr(out, name, None)
        if isinstance(found, Tensor):
            return found
    values = out.values() if isinstance(out, Mapping) else out if isinstance(out, (tuple, list)) else ()
    for value in values:
        found = main_output(value)
        if isinstance(found, Tensor):
            return found
    return None


def with_main(out: Any, z: Tensor, main: Any = None) -> Any:
    """Return an output of any form with another tensor in the place of its main one."""
    main = main_output(out) if main is None else main
    if out is main:
        return z
    if isinstance(out, (tuple, list)):
        parts = [with_main(v, z, main) for v in out]
        return type(out)(*parts) if hasattr(out, "_fields") else type(out)(parts)
    if isinstance(out, Tensor) or main is None:
        return out
    made = copy.copy(out)
    if isinstance(out, MutableMapping):
        for key, value in out.items():
            made[key] = with_main(value, z, main)
        return made
    for name in NAMED:
        if getattr(out, name, None) is main:
            setattr(made, name, z)
    return made


def joined(parts: list[Any]) -> Any:
    """Return outputs of any form, of one chunk of rows each, as one."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts) if first.ndim else torch.stack(parts).mean()
    if isinstance(first, MutableMapping):
        made = copy.copy(first)
        for k, value in first.items():
            if isinstance(value, (Tensor, tuple, Mapping)):
                made[k] = joined([p[k] for p in parts])
        return made
    if isinstance(first, (tuple, list)):
        return (
            type(first)(joined([p[i] for p in parts]) for i in range(len(first)))
            if type(first) in (tuple, list)
            else (tuple(joined([p[i] for p in parts]) for i in range(len(first))))
        )
    return first


def kept(out: Any, keep: Tensor) -> Any:
    """Return some rows of an output of any form."""
    if isinstance(out, Tensor):
        return out[keep] if out.ndim and len(out) == len(keep) else out
    if isinstance(out, MutableMapping):
        made = copy.copy(out)
        for k, v in out.items():
            made[k] = kept(v, keep)
        return made
    return type(out)(kept(v, keep) for v in out) if type(out) in (tuple, list) else out
