r"""What a step of training costs, counted and not timed, so that a busy or a slow machine finds what any other finds.

Each operation that torch runs, forward and backward, costs a call, the movement of its numbers and its multiplications:

.. math:: t = c_1\,\text{calls} + c_2\,\text{bytes} + c_3\,\text{FLOPs}. \tag{1}

The three prices are those of a common processor: steps of seventy nets of the zoo take between a half and twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from corollary.diagnose.tape import FORMULAS, size

__all__ = ["cost"]

CALL, BYTE, FLOP = 1.2e-5, 5e-11, 3e-11  # seconds
aten = torch.ops.aten


def _recurrent(x: Tensor, *weights: Any, **_: Any) -> int:
    """Return the FLOPs of a fused recurrent layer: every step multiplies the matrices of input and state."""
    return 2 * prod(x.shape[:2]) * sum(w.numel() for w in weights[:2])


FUSED = {
    aten.mkldnn_rnn_layer: _recurrent,
    aten.mkldnn_rnn_layer_backward: lambda *given, **_: 2 * _recurrent(*given),
}


class _Meter(TorchDispatchMode):
    """Counts calls, bytes and FLOPs of all that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.bytes = self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        self.calls += 1
        self.bytes += sum(_bytes(t) for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor))
        packet = func.overloadpacket
        if packet in FUSED:
            self.flops += FUSED[packet](*args, **kwargs)
        elif FORMULAS.get(packet) is not None:
            self.flops += FORMULAS[packet](*args, **kwargs, out_val=out)
        return out


def _bytes(t: Tensor) -> int:
    return size(t) if t.layout is torch.strided else 2 * t._nnz() * t.element_size()  # a number and its place


def cost(step: Callable[[], Any]) -> float:
    """Return the seconds (1) of a step, which is run once."""
    meter = _Meter()
    with meter:
        step()
    return CALL * meter.calls + BYTE * meter.bytes + FLOP * meter.flops
