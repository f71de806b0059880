"""What was given as data, as samples; what was given as a model, as a subject."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map

from corollary import errors
from corollary.diagnose.samples import IGNORED, Samples, binds
from corollary.diagnose.settings import OWNER, Settings
from corollary.diagnose.subject import Subject, unwrapped

__all__ = ["prepared", "read"]


class NoRows(ValueError):
    """Data without rows."""


MOST = 20000  # rows read from a loader
TARGETS = ("labels", "label", "targets", "target", "y")  # what they are called in a batch that is a dict


def prepared(
    model: Any,
    data: Any,
    validation: Any = None,
    *,
    loss: Any = None,
    settings: Settings | None = None,
    history: Any = None,
    initial: Mapping[str, Any] | None = None,
    step: Any = None,
) -> Subject:
    """Return the subject of a module, or of an estimator that has one, with data of any form."""
    module, settings = unwrapped(model), settings or Settings()
    if isinstance(module, nn.Module) and any(map(is_lazy, module.parameters())):
        got, do = "lazy layers without any", "Call it once with some rows, then train it."
        raise errors.value(OWNER, "model must have weights", got, do)
    if not isinstance(module, nn.Module):
        from corollary.diagnose.estimators import subject_of

        return subject_of(module, data, validation, loss, settings, history, initial, step)
    train, notes = shifted(module, read(data, module)), []
    if validation is None and has_graph(data) and _mask(data, "val_mask") is not None:
        valid = graph_samples(data, "val_mask", module)
    else:
        try:
            valid = None if validation is None else shifted(module, read(validation, module, "val_mask"))
        except NoRows:
            valid = None
            notes.append(("validation", "validation has no rows: only the training data were looked at"))
    if valid is not None and valid.y is None and isinstance(train.y, Tensor) and not train.restores:
        valid = None
        notes.append(
            (
                "validation",
                "validation has no targets: pass it as (X, y); only the training data were looked at",
            )
        )
    if initial and began(module, initial) is None:
        notes.append(
            ("initial", "initial has no parameter of the model, by name and shape, and was not used")
        )
    a, b = train.x, None if valid is None else valid.x
    tables = isinstance(a, Tensor) and isinstance(b, Tensor) and a.ndim == b.ndim == 2
    if tables and a.is_floating_point() and a.shape[1] != b.shape[1]:
        got = f"training X {tuple(a.shape)} and validation X {tuple(b.shape)}"
        raise errors.value(OWNER, "validation must have the columns of the training data", got)
    return Subject(
        module, train, valid, loss=loss, settings=settings, history=history, initial=began(module, initial), step=step,
        notes=notes,
    )  # fmt: skip


def began(module: nn.Module, initial: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the initial weights by the module's own names, without what wrappers put before them; None if none is known."""
    own = dict(module.named_parameters())
    found: dict[str, Any] = {}
    for name, value in (initial or {}).items():
        for prefix in ("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."):
            if name not in own and name.removeprefix(prefix) in own:
                name = name.removeprefix(prefix)
        if name in own and getattr(value, "shape", None) != own[name].shape:
            return None  # of another model
        found[name] = value
    return found if any(n in own for n in found) else None


def shifted(module: nn.Module, samples: Samples) -> Samples:
    """Return samples of a language model of transformers with each label at the step that predicts it.

    A causal model's labels move one step back; one with encoder and decoder gets the labels that the decoder reads.
    """
    y, ids = samples.y, samples.kwargs.get("input_ids")
    reads = getattr(module, "prepare_decoder_input_ids_from_labels", None)
    if (
        callable(reads)
        and isinstance(y, Tensor)
        and y.ndim == 2
        and "decoder_input_ids" not in samples.kwargs
    ):
        with torch.no_grad():
            read_before = reads(labels=y)
        return replace(samples, kwargs={**samples.kwargs, "decoder_input_ids": read_before})
    causal = type(module).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    if not causal or not isinstance(y, Tensor) or ids is None or y.shape != ids.shape:
        return samples
    ahead = torch.cat([y[:, 1:], torch.full_like(y[:, :1], IGNORED)], 1)
    return Samples(samples.args, samples.kwargs, ahead, samples.n)


def read(data: Any, module: nn.Module | None = None, mask: str = "train_mask") -> Samples:
    """Return samples of (X, y), of X, of a loader, of a data set or of a graph; the module's forward says what is an input."""
    if isinstance(data, Samples):
        return data
    if hasattr(data, "X") and hasattr(data, "y") and not isinstance(data, (tuple, list, Tensor)):
        return Samples.of(data.X, data.y)
    if has_graph(data):
        return graph_samples(data, mask, module)
    if isinstance(data, list) and _batches(data):
        return joined(data, module)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return checked(named(Samples.of(*data), module), module)
    if isinstance(data, (tuple, list)) and len(data) == 1:
        return checked(named(Samples.of(data[0]), module), module)
    if isinstance(data, (tuple, list)) and len(data) > 2 and _rows_alike(data):
        taken = _inputs(data, module)
        return checked(Samples.of(tuple(data[:taken]) if taken > 1 else data[0], data[taken]))
    if isinstance(data, (Tensor, np.ndarray, Mapping)) or any(
        hasattr(data, n) for n in ("to_numpy", "toarray")
    ):
        return checked(named(Samples.of(data), module), module)
    if isinstance(data, torch.utils.data.Dataset):
        data = torch.utils.data.DataLoader(data, batch_size=256)
    if hasattr(data, "__iter__") and not isinstance(data, str):
        return joined(data, module)
    raise errors.kind(OWNER, "data must be (X, y), X, a loader or a data set", type(data).__name__)


def _batches(data: list[Any]) -> bool:
    """Whether a list holds batches: dicts, or pairs of arrays of the same form from one to the next."""
    if not data or all(isinstance(b, Mapping) for b in data):
        return bool(data)
    if not all(
        isinstance(b, (tuple, list)) and 1 < len(b) < 9 and _rows_alike(b) and b[0].ndim > 1 for b in data
    ):
        return False
    return len({tuple(tuple(t.shape[1:]) for t in b) for b in data}) == 1


def _rows_alike(parts: Any) -> bool:
    """Whether all are arrays with as many rows: a batch of several inputs with its targets."""
    sizes = {len(p) if isinstance(p, (Tensor, np.ndarray)) and p.ndim else -1 for p in parts}
    return len(sizes) == 1 and sizes != {-1}


def _inputs(parts: Any, module: nn.Module | None) -> int:
    """Return how many parts of a batch are inputs: all but the last, or fewer if the module takes fewer."""
    last = len(parts) - 1
    if module is None:
        return last
    signature = inspect.signature(module.forward)
    return next((k for k in range(last, 0, -1) if binds(signature, *parts[:k])), last)


def named(samples: Samples, module: nn.Module | None) -> Samples:
    """Return samples of a dict with the targets taken from it, and without what the module's forward does not take."""
    if not samples.kwargs or module is None:
        return samples
    signature = inspect.signature(module.forward)
    names = set(signature.parameters)
    inputs, y, n = dict(samples.kwargs), samples.y, samples.n
    for key in TARGETS:
        if y is None and key in inputs and key not in names and len(inputs) > 1:
            y = inputs.pop(key)
            n = len(y) if isinstance(y, Tensor) and y.ndim else n
    every = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if not every and names & set(inputs):
        inputs = {k: v for k, v in inputs.items() if k in names}
    if len(inputs) == 1 and not every and not names & set(inputs):
        return Samples(list(inputs.values()), {}, y, n, key=next(iter(inputs)))
    return Samples(samples.args, inputs, y, n)


def has_graph(data: Any) -> bool:
    """Whether it is an object that holds a graph, as those of PyTorch Geometric do."""
    parts = [getattr(data, name, None) for name in ("x", "edge_index", "y")]
    return all(isinstance(t, Tensor) for t in parts)


def graph_samples(data: Any, mask: str, module: nn.Module | None = None) -> Samples:
    """Return the nodes of a graph, or a batch of graphs; those outside of a mask that it may hold are not counted."""
    y, keep = data.y.detach().clone(), _mask(data, mask)
    if keep is not None and len(y) == len(keep):
        y[~keep] = IGNORED
    names = [] if module is None else list(inspect.signature(module.forward).parameters)[2:]
    more = {k: getattr(data, k) for k in names if isinstance(getattr(data, k, None), Tensor)}
    nodes, edges = len(data.x), data.edge_index.shape[1]
    rest = {k: getattr(data, k, None) for k in ("batch", "edge_attr", "edge_weight", "pos")}
    parts = {k: t for k, t in rest.items() if isinstance(t, Tensor) and len(t) in (nodes, edges)}
    return Samples([data.x.detach(), data.edge_index], more, y, len(y), like=data, parts=parts)


def _mask(data: Any, name: str) -> Tensor | None:
    keep = getattr(data, name, None)
    return keep if isinstance(keep, Tensor) and keep.dtype == torch.bool and keep.ndim == 1 else None


def joined(loader: Any, module: nn.Module | None = None) -> Samples:
    """Return the batches of a loader as one."""
    parts, graphs, rows = [], [], 0
    for batch in _each(loader):
        part = read(batch, module)
        graphs += [batch] if has_graph(batch) else []
        parts.append(part)
        rows += part.n
        if rows >= MOST:
            break
    if not parts and iter(loader) is loader:
        got = "an iterator that is at its end"
        raise NoRows(errors.wording(OWNER, "data must have rows", got, "Pass the loader, not its iterator."))
    if not parts:
        raise NoRows(errors.wording(OWNER, "data must have rows", f"an empty {type(loader).__name__}"))
    if graphs:
        return _one_graph(graphs, module)
    first = parts[0]
    fill = _padding(module)
    args = [_cat([p.args[i] for p in parts], fill) for i in range(len(first.args))]
    kwargs = {k: _cat([p.kwargs[k] for p in parts], 0 if "mask" in k else fill) for k in first.kwargs}
    y = tree_map(lambda *values: _cat(list(values), IGNORED), *(p.y for p in parts))
    return replace(first, args=args, kwargs=kwargs, y=y, n=rows)


def _each(loader: Any) -> Iterator[Any]:
    """Yield the batches of a loader, or say which loader is needed."""
    try:
        yield from loader
    except RuntimeError as error:
        if "equal size" not in str(error):
            raise
        do = "Pass the loader that it was trained with, whose collate_fn makes batches of them."
        raise errors.value(OWNER, "the items of a data set must be of one size", str(error), do) from error


def _one_graph(graphs: list[Any], module: nn.Module | None) -> Samples:
    """Return batches of graphs as one graph that falls into them."""
    from torch_geometric.data import Batch

    each = [g for b in graphs for g in (b.to_data_list() if isinstance(b, Batch) else [b])]
    return graph_samples(Batch.from_data_list(each), "train_mask", module)


def _cat(values: list[Any], fill: int) -> Any:
    """Return parts as one; whole numbers of unequal lengths, such as tokens, are filled up to the longest."""
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(values)
    if not isinstance(first, Tensor) or not first.ndim:
        return first
    sizes = {tuple(v.shape[1:]) for v in values}
    if len(sizes) == 1:
        return torch.cat(values)
    if len({len(size) for size in sizes}) > 1:
        must, got = (
            "batches must have inputs and targets of one form",
            " and ".join(map(str, sorted(sizes, key=len))),
        )
        raise errors.value(OWNER, must, f"rows of shape {got}")
    longest = [max(size) for size in zip(*sizes)]
    made = first.new_full((sum(map(len, values)), *longest), 0 if first.is_floating_point() else fill)
    begin = 0
    for v in values:
        made[(slice(begin, begin + len(v)), *(slice(n) for n in v.shape[1:]))] = v
        begin += len(v)
    return made


def _padding(module: nn.Module | None) -> int:
    """Return the number that a module's embedding takes for no token, zero if it does not say."""
    known = (
        [m.padding_idx for m in module.modules() if isinstance(m, nn.Embedding)] if module is not None else []
    )
    return next((i for i in known if i is not None), 0)


def checked(samples: Samples, module: nn.Module | None = None) -> Samples:
    """Return samples whose inputs and targets have as many rows, or say so."""
    x, y = samples.x, samples.y
    if not samples.n:
        raise NoRows(errors.wording(OWNER, "data must have rows", "none"))
    # of an estimator that encodes for itself
    if module is None and isinstance(x, np.ndarray) and x.ndim == 2:
        return replace(samples, args=[torch.from_numpy(np.stack([_numbers(c) for c in x.T], 1))])
    if module is not None and isinstance(x, np.ndarray):
        word = next((v for v in x.reshape(-1) if not isinstance(v, Real)), x.dtype)
        do = "Pass what the module is called with: text and dates encoded."
        raise errors.value(OWNER, "X must hold numbers", f"{word!r} among them", do)
    if isinstance(x, Tensor) and isinstance(y, (Tensor, np.ndarray)) and y.ndim and x.ndim:
        sizes = [
            len(t) for t in [*samples.args, *samples.kwargs.values()] if isinstance(t, Tensor) and t.ndim
        ]
        if len(y) not in sizes and samples.graphs is None:
            got = f"X {tuple(x.shape)} and y {tuple(y.shape)}"
            raise errors.value(
                OWNER, "X and y must have as many rows", got, "Pass (X, y); several inputs go into a tuple X."
            )
    return samples


def _numbers(column: np.ndarray) -> np.ndarray:
    """Return a column as numbers, one per word where it holds words."""
    try:
        return column.astype(np.float32)
    except (TypeError, ValueError):
        return np.unique(column.astype(str), return_inverse=True)[1].astype(np.float32)
