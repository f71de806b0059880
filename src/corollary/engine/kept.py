"""Validation of an optimiser's state from a checkpoint, before torch's compiled updates use it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corollary.optim import NAMES, RULES
from corollary.shapes import Mismatch, like

__all__ = ["check_optimizer"]


def check_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Raise unless a kept state is this optimiser's: its groups, and for each parameter tensors of its shape or scalars.

    torch compares neither, and its fused updates trust that all tensors of a parameter are of one size. A class that has
    no name in ``corollary.optim`` may keep tensors of other shapes (Adafactor: sums over rows and columns).
    """
    strict = type(optimizer).__name__ in {kind for kind, _ in (*NAMES.values(), *RULES.values())}
    have = optimizer.state_dict()
    like(have["param_groups"], state.get("param_groups"), "the groups of the optimiser")
    sizes = dict(enumerate(p.shape for group in optimizer.param_groups for p in group["params"]))
    for key, kept in state.get("state", {}).items():
        if key not in sizes or not isinstance(kept, dict):
            raise Mismatch(f"the optimiser has {len(sizes)} parameters; got a state of number {key!r}.")
        for name, value in kept.items():
            # L-BFGS keeps a list of past directions
            for part in value if isinstance(value, list) else [value]:
                _check_part(name, part, sizes[key], strict)


def _check_part(name: str, value: Any, shape: torch.Size, strict: bool) -> None:
    """Raise unless a part of an optimiser's state is a number, or a tensor of the parameter's shape."""
    fits = not isinstance(value, Tensor) or (
        value.shape in (shape, torch.Size([])) and value.is_floating_point()
    )
    if strict and not fits:
        got = f"{value.dtype} of shape {tuple(value.shape)}"
        raise Mismatch(f"{name} of the optimiser must be of shape {tuple(shape)}; got {got}.")
    if not isinstance(value, Tensor | int | float | bool | type(None)):
        raise Mismatch(f"{name} of the optimiser must be a tensor or a number; got {type(value).__name__}.")
