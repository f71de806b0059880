"""One call of a module, operation by operation: products, shapes, fields, and what autograd keeps, by module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from corollary import errors
from corollary.diagnose.calling import undisturbed
from corollary.diagnose.fields import Fields

__all__ = ["field_sizes", "kept_bytes", "shapes_of", "size", "storage", "traced", "unfused"]

aten = torch.ops.aten


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


class Tape(TorchDispatchMode):
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
        self.storages |= {storage(t) for t in tensors}
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
        if isinstance(module, torch.jit.ScriptModule):
            got, do = "one that was scripted or traced", "Pass the module that it was made from."
            raise errors.kind("summary", "model must be a module whose layers can be listened to", got, do)
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
            self.outputs[name] = shapes_of(output)
            self.tensors[name] = [t for t in tree_leaves(_plain(output)) if isinstance(t, Tensor)][:1]


def traced(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tape:
    """Return the tape of one call."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    tape = Tape(given)
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


def field_sizes(tape: Tape) -> dict[str, tuple[int, ...]]:
    """Return the receptive field of every module's output, per axis."""
    found = {}
    for name, tensors in tape.tensors.items():
        sizes = tape.fields.sizes(tensors[0]) if tensors else None
        if sizes:
            found[name] = tuple(size for _, size in sorted(sizes.items()))
    return found


def kept_bytes(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Counter[str]:
    """Return the bytes that autograd saves for the backward pass, by module; in training mode if it runs there."""
    for training in (True, False):
        try:
            return _saved(module, args, kwargs, training)
        except Exception:
            continue  # such as batch normalisation of one row
    return Counter()


def _saved(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool) -> Counter[str]:
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    seen = {storage(t) for t in (*module.parameters(), *module.buffers(), *given)}
    tape, kept = Tape([]), Counter[str]()

    def pack(t: Tensor) -> Tensor:
        where = storage(t)
        if where not in seen:
            seen.add(where)
            kept[tape.running[-1] if tape.running else ""] += size(t)
        return t

    with undisturbed(module), torch.enable_grad(), tape.listening(module):
        module.train(training)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            result = module(*args, **kwargs)  # noqa: F841 - its graph must live until all is counted
    return kept


def _plain(output: Any) -> Any:
    if isinstance(output, Mapping):
        return dict(output)
    if hasattr(output, "__dict__") and not isinstance(output, Tensor | nn.Module):
        return vars(output)
    return output


def shapes_of(output: Any) -> Any:
    """Return the shapes of an output of any form."""
    if isinstance(output, Tensor):
        return tuple(output.shape)
    if isinstance(output, Mapping):
        return {key: shapes_of(value) for key, value in output.items()}
    if isinstance(output, tuple | list):
        return [shapes_of(value) for value in output]
    return None if output is None else type(output).__name__


def storage(t: Tensor) -> int:
    """Return what tells apart the memory of tensors."""
    try:
        return int(t.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # sparse, or wrapped
        return id(t)


def size(t: Tensor) -> int:
    """Return the bytes of a tensor."""
    return t.numel() * t.element_size()
