"""Optimisers and schedules by name: torch's own wherever torch has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial
from typing import Any

from corollary.errors import unknown
from corollary.optim.schedule import schedule

__all__ = ["NAMES", "RULES", "create", "schedule"]

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
# Updates that look at the data more than once: torch's optimiser that moves, and what the rule itself takes.
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "lbfgs": ("LBFGS", {"line_search_fn": "strong_wolfe"}),
    "newton": ("SGD", {}),
    "sam": ("Adam", {}),
    "svrg": ("SGD", {}),
}
RULE_OPTIONS: dict[str, dict[str, Any]] = {
    "newton": {"damping": 1e-3, "max_iter": 50, "tol": 1e-6},
    "sam": {"rho": 0.05, "base": "adam"},
}
FUSED = {"Adagrad", "Adam", "AdamW", "SGD"}


def create(name: str, params: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return torch's optimiser of this name over ``params``, or a factory if none are given.

    >>> import torch
    >>> type(create("heavy-ball", [torch.nn.Parameter(torch.zeros(2))], lr=0.1)).__name__
    'SGD'
    """
    if name not in NAMES and name not in RULES:
        raise unknown("optim.create", "optimiser", name, [*NAMES, *RULES])
    import torch

    kind, fixed = NAMES[name] if name in NAMES else RULES[name]
    if kind in FUSED:
        fixed = {"fused": True, **fixed}
    cls = getattr(torch.optim, kind)
    known = [
        option for option in inspect.signature(cls.__init__).parameters if option not in ("self", "params")
    ]
    for option in options:
        if option not in known:
            raise unknown(f"optimizer {name!r}", "option", option, known)
    make = partial(cls, **{**fixed, **options})
    return make if params is None else make(params)
