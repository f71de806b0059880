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

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_leaves

from corollary.diagnose.calling import arguments, module_of, undisturbed
from corollary.diagnose.tape import field_sizes, kept_bytes, shapes_of, size, storage, traced

__all__ = ["Layer", "Summary", "summary"]


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
        tape = traced(module, args, kwargs)
    memory = kept_bytes(module, args, kwargs)
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    used, layers, seen = tape.storages, [], set()
    fields = field_sizes(tape)
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
        sum(size(p) for p in module.parameters()),
        sum(size(b) for b in module.buffers()),
        sum(size(t) for t in given),
        [name for name, p in module.named_parameters() if storage(p) not in used],
        shapes_of(given[0] if len(given) == 1 else [*args, *kwargs.values()]),
    )


def _shape_text(shapes: Any) -> str:
    if isinstance(shapes, dict):
        return ", ".join(f"{key}: {_shape_text(value)}" for key, value in shapes.items())
    if isinstance(shapes, list):
        return ", ".join(map(_shape_text, shapes))
    return "" if shapes is None else str(shapes)


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
