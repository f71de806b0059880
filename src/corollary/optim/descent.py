r"""A step of plain descent and the length of the point it leads to, in one pass over the parameters.

.. math:: w' = w - \eta\, g, \qquad \lVert w' \rVert^2 = \sum_i w_i'^2. \tag{1}

torch's fused step and a norm after it are two passes, and for a net of many small tensors the calls around them take several
times as long as the numbers. Here the tensors' addresses go to one compiled loop. It stands in for a step of ``torch.optim.SGD``
only where nobody can tell the difference; :func:`descend` returns None where somebody could.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import carray, types
from numba.extending import intrinsic
from torch import Tensor
from torch.autograd import _profiler_enabled
from torch.autograd.graph import increment_version
from torch.optim import SGD, Optimizer
from torch.optim import optimizer as torch_optimizer

from corollary.compiled import njit

__all__ = ["descend"]

# Squares that are added in the type of the parameters, before their sum goes to double precision.
BLOCK = 4096
MOST = 2**21  # entries; more of them are moved sooner by torch's threads than by one
TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


@intrinsic
def _pointer(typing, address, like):  # type: ignore[no-untyped-def]
    """Return the address as a pointer to numbers of the type of ``like``."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), generate


@njit(fastmath={"reassoc", "contract"}, error_model="numpy", cache=True, nogil=True)
def _step(tensors, rate):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Take eq. 1 in tensors given by rows: address of the parameters, address of the gradients, length."""
    total = 0.0
    for row in range(len(tensors)):
        n = tensors[row, 2]
        w, g = carray(_pointer(tensors[row, 0], rate), (n,)), carray(_pointer(tensors[row, 1], rate), (n,))
        for start in range(0, n, BLOCK):
            here, slope = w[start : start + BLOCK], g[start : start + BLOCK]
            square = here.dtype.type(0)
            for i in range(len(here)):
                here[i] -= rate * slope[i]
                square += here[i] * here[i]
            total += square
    return total


def descend(optimizer: Optimizer) -> float | None:
    """Take a step of the optimiser and return the sum of squares of all its parameters; None if no step was taken.

    Taken are steps of plain SGD, of one step size, for tensors of one type on the CPU, all with a gradient.
    """
    groups = optimizer.param_groups
    if type(optimizer) is not SGD or len(groups) != 1 or _is_watched(optimizer) or not _is_plain(groups[0]):
        return None
    params = groups[0]["params"]
    rows = _rows(params)
    if not rows:
        return None
    square = float(_step(np.array(rows), TYPES[params[0].dtype](groups[0]["lr"])))
    increment_version(params)  # so that autograd sees that they have changed
    return square


def _is_watched(optimizer: Optimizer) -> bool:
    """Return whether a hook, a schedule that counts steps, a profiler or a scaler of gradients waits for torch's own step."""
    return bool(
        torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or "step" in vars(optimizer)
        or getattr(optimizer, "grad_scale", None) is not None
        or getattr(optimizer, "found_inf", None) is not None
        or _profiler_enabled()
        or torch.compiler.is_compiling()
    )


def _is_plain(group: dict[str, Any]) -> bool:
    """Return whether the step is eq. 1."""
    more = ("momentum", "weight_decay", "maximize", "differentiable")
    return isinstance(group["lr"], float) and not any(group[name] for name in more)


def _rows(params: list[Tensor]) -> list[tuple[int, int, int]]:
    """Return where numbers and gradients lie, and how many; nothing if one tensor is not a plain array or they are many."""
    rows, dtype = [], params[0].dtype if params else None
    if dtype not in TYPES or sum(p.numel() for p in params) > MOST:
        return []
    for p in params:
        g = p.grad
        if g is None or type(g) is not Tensor or g.layout is not torch.strided or g.is_neg():
            return []
        if not (
            p.is_cpu and p.dtype is dtype and g.dtype is dtype and p.is_contiguous() and g.is_contiguous()
        ):
            return []
        if p.numel() != g.numel() or type(p) not in (Tensor, torch.nn.Parameter):
            return []
        rows.append((p.data_ptr(), g.data_ptr(), p.numel()))
    return rows
