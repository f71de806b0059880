r"""What a network is made of: parameters, multiplications, shapes, receptive fields and memory, layer by layer.

One call of the module is traced operation by operation (a ``TorchDispatchMode``), so functional calls are seen as well as
layers. An operation belongs to the innermost module whose ``forward`` is running. Counted are the multiply-accumulates
(MACs) of matrix products and convolutions, by the formulas of ``torch.utils.flop_counter``; with :math:`o` output positions,
:math:`K` kernels of :math:`k` weights on :math:`c` channels

.. math:: \text{MACs} = n\, o\, K k c, \qquad \text{FLOPs} = 2\, \text{MACs}. \tag{1}

What is done entry by entry (activations, normalisation, biases) is not, as is usual. *Memory* is what the layer keeps for the
backward pass: every tensor that autograd saves, once, without parameters and inputs.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

from corollary import errors
from corollary.diagnose.fields import Fields

__all__ = ["Layer", "Summary", "arguments", "module_of", "summary", "undisturbed", "unfused"]

aten = torch.ops.aten


class Layer(NamedTuple):
    """One line of a summary."""

    name: str  # as in named_modules; "" is the module itself
    type: str
    depth: int
    calls: int
    output: Any  # shape, or shapes in the structure of the output; None if it is never called
    parameters: int  # its own, those of its parts and those counted before left out
    trainable: int
    macs: int  # of its own operations
    receptive_field: tuple[int, ...] | None  # along the axes that convolutions and poolings have slid over
    memory: int  # bytes that are kept for the backward pass
    shared: int  # parameters that an earlier line has counted


@dataclass(frozen=True, repr=False)
class Summary:
    """A table of layers with totals; prints as a table.

    Attributes
    ----------
    layers : list of Layer
        The module and its parts, in order.
    parameters, trainable : int
        Numbers of parameters; shared ones count once.
    macs, flops : int
        Multiply-accumulates of one call, and twice that.
    memory : int
        Bytes kept between the forward and the backward pass of one call in training mode.
    parameter_bytes, buffer_bytes, input_bytes : int
        What the parameters, the buffers and the input take.
    receptive_field : tuple of int or None
        Input positions per axis that one unit of the output can depend on; None if convolutions are absent or were lost
        track of.
    unused : list of str
        Parameters that no operation read.
    """

    layers: list[Layer]
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    unused: list[str]
    input: Any

    @property
    def parameters(self) -> int:
        """Number of parameters, shared ones once."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def trainable(self) -> int:
        """Number of parameters with ``requires_grad``."""
        return sum(layer.trainable for layer in self.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one call."""
        return sum(layer.macs for layer in self.layers)

    @property
    def flops(self) -> int:
        """Twice the multiply-accumulates."""
        return 2 * self.macs

    @property
    def memory(self) -> int:
        """Bytes kept for the backward pass."""
        return sum(layer.memory for layer in self.layers)

    @property
    def receptive_field(self) -> tuple[int, ...] | None:
        """Input positions per axis that one unit of the output can depend on."""
        return self.layers[0].receptive_field

    @cached_property
    def frame(self) -> Any:
        """The layers as a pandas data frame, one row each."""
        import pandas as pd

        rows = [{**layer._asdict(), "flops": 2 * layer.macs} for layer in self.layers]
        return pd.DataFrame(rows).set_index("name")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the totals, and a dict per layer."""
        names = ("parameters", "trainable", "macs", "flops", "memory", "parameter_bytes", "buffer_bytes")
        totals = {name: getattr(self, name) for name in (*names, "input_bytes", "receptive_field", "unused")}
        return {**totals, "layers": [layer._asdict() for layer in self.layers]}

    def __str__(self) -> str:
        """Return the table and the totals."""
        head = ("layer", "output", "parameters", "MACs", "field", "memory")
        rows = [
            (
                "  " * layer.depth
                + (f"{layer.name.rpartition('.')[2]}: " if layer.name else "")
                + layer.type,
                _shape_text(layer.output),
                f"{layer.parameters:,}" + (" (shared)" if layer.shared else "")
                if layer.parameters or layer.shared
                else "",
                f"{layer.macs:,}" if layer.macs else "",
                "×".join(map(str, layer.receptive_field)) if layer.receptive_field else "",
                _bytes(layer.memory) if layer.memory else "",
            )
            for layer in self.layers
        ]
        lines = _aligned([head, *rows])
        lines.insert(1, "-" * max(map(len, lines)))
        total = (
            f"{self.parameters:,} parameters ({_bytes(self.parameter_bytes)}), {self.trainable:,} trainable"
        )
        lines += [lines[1], total]
        lines.append(f"{self.macs:,} MACs, {self.flops:,} FLOPs for input {_shape_text(self.input)}")
        lines.append(f"{_bytes(self.memory)} kept for the backward pass")
        if self.unused:
            few = ", ".join(self.unused[:5]) + (" …" if len(self.unused) > 5 else "")
            lines.append(f"{len(self.unused)} parameters are not used by this call: {few}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{self}</pre>"


def summary(model: Any, input: Any) -> Summary:
    """Return parameters, FLOPs, shapes, receptive fields and memory of a module, layer by layer.

    Parameters
    ----------
    model : nn.Module or fitted estimator
        Called as it is used to predict; modes, buffers, random state and hooks are as before. A compiled module or one that
        is wrapped for several processes is taken out of its wrapper.
    input : Tensor, array, tuple, dict, or shape
        What the module is called with. A tuple or list holds positional arguments, a dict keyword arguments (or the one
        argument, where ``forward`` does not know its keys); integers alone are a shape, batch first, filled with noise.

    Returns
    -------
    Summary

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    >>> found = summary(net, (1, 1, 8, 8))
    >>> found.parameters, found.macs
    (114, 1368)
    >>> found.frame.loc["2", ["output", "receptive_field"]].tolist()
    [(1, 4, 3, 3), (4, 4)]
    """
    module = module_of(model, "summary")
    args, kwargs = arguments(module, input)
    with undisturbed(module):
        module.eval()
        tape = _traced(module, args, kwargs)
    memory = _kept(module, args, kwargs)
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    used, layers, seen = tape.storages, [], set()
    fields = _field_sizes(tape)
    for name, part in module.named_modules():
        own = [p for p in part.parameters(recurse=False)]
        new = {id(p): p for p in own if id(p) not in seen}
        seen |= set(new)
        layers.append(
            Layer(
                name,
                type(part).__name__,
                name.count(".") + 1 if name else 0,
                tape.calls[name],
                tape.outputs.get(name),
                sum(p.numel() for p in new.values()),
                sum(p.numel() for p in new.values() if p.requires_grad),
                tape.macs[name],
                fields.get(name),
                memory[name],
                sum(p.numel() for p in own) - sum(p.numel() for p in new.values()),
            )
        )
    return Summary(
        layers,
        sum(_size(p) for p in module.parameters()),
        sum(_size(b) for b in module.buffers()),
        sum(_size(t) for t in given),
        [name for name, p in module.named_parameters() if _storage(p) not in used],
        _shapes(given[0] if len(given) == 1 else [*args, *kwargs.values()]),
    )


# --- what is called, and with what -----------------------------------------------------------------------


def module_of(model: Any, owner: str) -> nn.Module:
    """Return the module of a model: itself, what it wraps, or an estimator's ``module_``."""
    module = model if isinstance(model, nn.Module) else getattr(model, "module_", None)
    if not isinstance(module, nn.Module):
        do = "Fit it first, or pass the module."
        got = type(model).__name__ if not isinstance(model, type) else f"the class {model.__name__}"
        raise errors.kind(owner, "model must be a torch module, or a fitted estimator with one", got, do)
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def arguments(module: nn.Module, input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments that an input stands for, on the module's device and of its type."""
    first = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)
    device, dtype = (None, torch.float32) if first is None else (first.device, first.dtype)

    def placed(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            value = torch.from_numpy(np.ascontiguousarray(value))
        if isinstance(value, Tensor):
            return value.to(device, dtype) if value.is_floating_point() else value.to(device)
        return value

    if isinstance(input, tuple | list) and input and all(type(n) is int for n in input):
        noise = torch.rand(*input, generator=torch.Generator().manual_seed(0))
        return (placed(noise),), {}
    if isinstance(input, Mapping):
        known = inspect.signature(module.forward).parameters.values()
        names = {p.name for p in known}
        if any(p.kind is p.VAR_KEYWORD for p in known) or set(input) <= names:
            return (), {key: tree_map(placed, value) for key, value in input.items()}
        return ({key: tree_map(placed, value) for key, value in input.items()},), {}
    if isinstance(input, tuple | list) and any(
        isinstance(v, Tensor | np.ndarray) for v in tree_leaves(input)
    ):
        return tuple(tree_map(placed, value) for value in input), {}
    if hasattr(input, "to_numpy"):
        input = input.to_numpy()
    found = placed(input)
    if not isinstance(found, Tensor):
        do = "Pass a tensor, a tuple of them, a dict of keyword arguments, or a shape such as (1, 3, 32, 32)."
        raise errors.kind("summary", "input must be what the module is called with", type(input).__name__, do)
    return (found,), {}


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put modes, buffers, gradients and the random state back as they were, whatever happens inside."""
    modes = [(m, m.training) for m in module.modules()]
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    slopes = [(p, p.grad) for p in module.parameters()]
    devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for m, training in modes:
            m.training = training
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
        for p, slope in slopes:
            p.grad = slope


# --- the trace -------------------------------------------------------------------------------------------


def _flops(*args: Any) -> int:
    """Return twice the size of the first of the shapes: one multiplication and one addition for each entry."""
    return 2 * prod(args[0].shape)


FORMULAS = {
    **flop_registry,
    aten.mv: lambda a, b, **_: _flops(a),
    aten.addmv: lambda c, a, b, **_: _flops(a),
    aten.dot: lambda a, b, **_: _flops(a),
    aten.vdot: lambda a, b, **_: _flops(a),
    aten._sparse_mm: None,  # counted by the entries that are there
    aten._sparse_addmm: None,
    aten._trilinear: lambda a, w, b, *_, **__: 2 * a.shape[0] * prod(w.shape[-3:]),
}


class _Tape(TorchDispatchMode):
    """Counts, shapes and fields of one call, by the module that is running."""

    def __init__(self, inputs: list[Tensor]) -> None:
        super().__init__()
        self.running: list[str] = []
        self.macs: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.outputs: dict[str, Any] = {}
        self.tensors: dict[str, list[Tensor]] = {}
        self.storages: set[int] = set()
        self.fields = Fields(inputs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet not in FORMULAS and func is not torch.ops.prim.device.default:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self.storages |= {_storage(t) for t in tensors}
        if packet in FORMULAS:
            sparse = next((t for t in tensors if t.layout is not torch.strided), None)
            count = (
                2 * sparse._nnz() * out.shape[-1]
                if sparse is not None
                else FORMULAS[packet](*args, **kwargs, out_val=out)
            )
            self.macs[self.running[-1] if self.running else ""] += count // 2
        self.fields.follow(func, args, out)
        return out

    @contextmanager
    def listening(self, module: nn.Module) -> Iterator[None]:
        """Know, by hooks that are taken off again, which module runs."""
        with ExitStack() as stack:
            for name, part in module.named_modules():
                stack.callback(part.register_forward_pre_hook(lambda m, x, n=name: self._enter(n)).remove)
                stack.callback(part.register_forward_hook(lambda m, x, y, n=name: self._leave(n, y)).remove)
            yield

    def _enter(self, name: str) -> None:
        self.running.append(name)
        self.calls[name] += 1

    def _leave(self, name: str, output: Any) -> None:
        self.running.pop()
        if name not in self.outputs:
            self.outputs[name] = _shapes(output)
            self.tensors[name] = [t for t in tree_leaves(_plain(output)) if isinstance(t, Tensor)][:1]


def _traced(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Tape:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    tape = _Tape(given)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), unfused(), tape.listening(module), tape:
        _call(module, args, kwargs, given)
    return tape


@contextmanager
def unfused() -> Iterator[None]:
    """Let recurrent and attention layers run as single operations: fused kernels hide their products from the count."""
    fast = torch.backends.mha.get_fastpath_enabled()
    before = torch.backends.mkldnn.set_flags(False, None, None, None)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.set_flags(before[0], None, None, None)


def _call(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor]) -> Any:
    try:
        return module(*args, **kwargs)
    except Exception as error:
        shapes = ", ".join(str(tuple(t.shape)) for t in given) or "no tensors"
        first = next((f"{n} {tuple(p.shape)}" for n, p in module.named_parameters()), "none")
        must = f"{type(module).__name__} must run on the input"
        got = f"{type(error).__name__} ({str(error).splitlines()[0].rstrip('.') if str(error) else 'no message'})"
        do = f"The input has shape {shapes}, the first parameter is {first}; a tuple or a dict gives several arguments."
        raise errors.value("summary", must, got, do) from error


def _field_sizes(tape: _Tape) -> dict[str, tuple[int, ...]]:
    found = {}
    for name, tensors in tape.tensors.items():
        sizes = tape.fields.sizes(tensors[0]) if tensors else None
        if sizes:
            found[name] = tuple(size for _, size in sorted(sizes.items()))
    return found


def _kept(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Counter[str]:
    """Return the bytes that autograd saves for the backward pass, by module; in training mode if it runs there."""
    for training in (True, False):
        try:
            return _saved(module, args, kwargs, training)
        except Exception:
            continue  # such as batch normalisation of one row
    return Counter()


def _saved(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool) -> Counter[str]:
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    seen = {_storage(t) for t in (*module.parameters(), *module.buffers(), *given)}
    tape, kept = _Tape([]), Counter[str]()

    def pack(t: Tensor) -> Tensor:
        where = _storage(t)
        if where not in seen:
            seen.add(where)
            kept[tape.running[-1] if tape.running else ""] += _size(t)
        return t

    with undisturbed(module), torch.enable_grad(), tape.listening(module):
        module.train(training)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            result = module(*args, **kwargs)  # noqa: F841 - its graph must live until all is counted
    return kept


# --- plain values ----------------------------------------------------------------------------------------


def _plain(output: Any) -> Any:
    if isinstance(output, Mapping):
        return dict(output)
    if hasattr(output, "__dict__") and not isinstance(output, Tensor | nn.Module):
        return vars(output)
    return output


def _shapes(output: Any) -> Any:
    if isinstance(output, Tensor):
        return tuple(output.shape)
    if isinstance(output, Mapping):
        return {key: _shapes(value) for key, value in output.items()}
    if isinstance(output, tuple | list):
        return [_shapes(value) for value in output]
    return None if output is None else type(output).__name__


def _shape_text(shapes: Any) -> str:
    if isinstance(shapes, dict):
        return ", ".join(f"{key}: {_shape_text(value)}" for key, value in shapes.items())
    if isinstance(shapes, list):
        return ", ".join(map(_shape_text, shapes))
    return "" if shapes is None else str(shapes)


def _storage(t: Tensor) -> int:
    try:
        return int(t.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse, or wrapped
        return id(t)


def _size(t: Tensor) -> int:
    return t.numel() * t.element_size()


def _bytes(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    raise AssertionError("unreachable")


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    left = (0, 1)
    return [
        "  ".join(
            cell.ljust(w) if j in left else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
