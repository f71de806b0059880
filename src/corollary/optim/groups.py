"""Helpers for the ``step`` of an optimiser: the loss of a closure, and the gradients of a parameter group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["called", "gradients_of"]


def called(closure: Callable[[], Any] | None) -> Any:
    """Return the loss of a closure, which is called with gradients enabled; None without a closure."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def gradients_of(group: dict[str, Any]) -> tuple[list[Tensor], Any]:
    """Return the parameters of a group that have a gradient, and their gradients with weight decay added."""
    params = [p for p in group["params"] if p.grad is not None]
    gradients: Any = [p.grad for p in params]
    if group["weight_decay"]:
        gradients = torch._foreach_add(gradients, params, alpha=group["weight_decay"])
    return params, gradients
