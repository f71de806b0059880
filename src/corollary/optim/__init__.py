"""Optimisers and schedules by name: torch's own wherever torch has them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from corollary.errors import unknown
from corollary.optim.schedule import schedule

__all__ = ["NAMES", "create", "schedule"]

# The name used in the field -> torch's class and what it fixes.
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "adagrad": ("Adagrad", {}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "amsgrad": ("Adam", {"amsgrad": True}),
    "gd": ("SGD", {}),
    "heavy-ball": ("SGD", {"momentum": 0.9}),
    "minibatch": ("SGD", {}),
    "muon": ("Muon", {}),
    "nesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "rmsprop": ("RMSprop", {}),
    "sgd": ("SGD", {}),
}
FUSED = {"Adagrad", "Adam", "AdamW", "SGD"}


def create(name: str, params: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return torch's optimiser of this name over ``params``, or a factory if none are given.

    >>> import torch
    >>> type(create("heavy-ball", [torch.nn.Parameter(torch.zeros(2))], lr=0.1)).__name__
    'SGD'
    """
    if name not in NAMES:
        raise unknown("optim.create", "optimiser", name, NAMES)
    import torch

    kind, fixed = NAMES[name]
    if kind in FUSED:
        fixed = {"fused": True, **fixed}
    make = partial(getattr(torch.optim, kind), **{**fixed, **options})
    return make if params is None else make(params)
