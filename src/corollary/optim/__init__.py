"""Optimisers and schedules by name: torch's own wherever torch has them, and those that torch does not have.

``SignSGD``, ``Subgradient``, ``SVRG``, ``Newton``, ``ExtraGradient``, ``Muon`` and ``Projected`` are torch optimisers for any
code; :func:`create` makes them by name, and ``Training(optimizer=...)`` uses the same classes. ``race`` runs all of them on a
model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import Any

from corollary.errors import unknown, value
from corollary.optim.schedule import robbins_monro, schedule

_WHERE = {
    "ExtraGradient": "looking",
    "Muon": "muon",
    "Newton": "looking",
    "Projected": "projection",
    "SVRG": "looking",
    "SignSGD": "first_order",
    "Subgradient": "first_order",
    "average": "averaging",
}
_PATHS = ("Path", "trajectory")

__all__ = [  # noqa: PLE0604
    "NAMES",
    "RULES",
    "create",
    "race",
    "robbins_monro",
    "schedule",
    "trajectory",
    *_WHERE,
]

# The name used in the field -> torch's class, or ours, and what it fixes.
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
    "projected": ("Projected", {}),
    "rmsprop": ("RMSprop", {}),
    "sgd": ("SGD", {}),
    "signsgd": ("SignSGD", {}),
}
# Those whose ``step`` needs a closure, because it looks at the loss itself or more than once.
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "extragradient": ("ExtraGradient", {}),
    "lbfgs": ("LBFGS", {"line_search_fn": "strong_wolfe"}),
    "newton": ("Newton", {}),
    "sam": ("Adam", {}),
    "subgradient": ("Subgradient", {}),
    "svrg": ("SVRG", {}),
}
# what the engine itself takes
RULE_OPTIONS: dict[str, dict[str, Any]] = {"sam": {"rho": 0.05, "base": "adam"}}
FUSED = {"Adagrad", "Adam", "AdamW", "SGD"}


def kind_of(name: str | type) -> tuple[str, dict[str, Any]]:
    """Return the kind of an optimiser and what its name fixes; a class of neither torch nor ours is a kind of its own."""
    if isinstance(name, type):
        import torch

        own = getattr(torch.optim, name.__name__, None) is name
        needs = inspect.signature(name.step).parameters.get("closure") if hasattr(name, "step") else None
        if not issubclass(name, torch.optim.Optimizer) or (needs and needs.default is needs.empty):
            must = "an optimiser's class must be one of torch's kind, whose step needs no closure"
            raise value("optim.create", must, name.__name__, f"Or use a name: {', '.join(RULES)}.")
        return name.__name__ if own else f"{name.__module__}.{name.__qualname__}", {}
    if name not in NAMES and name not in RULES:
        raise unknown("optim.create", "optimiser", name, [*NAMES, *RULES])
    return NAMES[name] if name in NAMES else RULES[name]


def create(name: str | type, params: Iterable[Any] | None = None, **options: Any) -> Any:
    """Return the optimiser of this name over ``params``, or a factory if none are given.

    Parameters
    ----------
    name : str or class
        One of ``NAMES``, or of ``RULES``, whose ``step`` needs a closure; or a class of torch's kind.
    params : iterable of Tensor or dict, optional
        What is optimised.
    **options
        The optimiser's own, such as ``lr``; for "projected" the set, and ``base``, the name of the optimiser that moves
        ("sgd" unless told otherwise), with its options.

    Examples
    --------
    >>> import torch
    >>> type(create("heavy-ball", [torch.nn.Parameter(torch.zeros(2))], lr=0.1)).__name__
    'SGD'
    >>> create("projected", [torch.nn.Parameter(torch.ones(2))], lr=0.1, radius=1.0).set
    'radius'
    """
    if name == "sam":
        must, do = (
            "'sam' is a rule of two gradients around another optimiser",
            "Use Training(optimizer='sam').",
        )
        raise value("optim.create", must, "a plain optimiser to make", do)
    if name == "projected":
        make = _projected(**options)
        return make if params is None else make(params)
    kind, fixed = kind_of(name)
    if kind in FUSED:
        fixed = {"fused": True, **fixed}
    cls = name if isinstance(name, type) else _class(kind)
    given = inspect.signature(cls.__init__).parameters
    known = [option for option in given if option not in ("self", "params")]
    free = any(option.kind is option.VAR_KEYWORD for option in given.values())
    for option in options:
        if option not in known and not free:
            shown = repr(name) if isinstance(name, str) else cls.__name__
            raise unknown(f"optimizer {shown}", "option", option, known)
    make = partial(cls, **{**fixed, **options})
    return make if params is None else make(params)


def _class(kind: str) -> Any:
    import torch

    return (
        getattr(import_module(f"corollary.optim.{_WHERE[kind]}"), kind)
        if kind in _WHERE
        else getattr(torch.optim, kind)
    )


def _projected(base: str = "sgd", **options: Any) -> Any:
    """Return a factory of projected optimisers over another by name."""
    if base not in NAMES or base == "projected":
        raise unknown("optimizer 'projected'", "base", base, [name for name in NAMES if name != "projected"])
    cls = _class("Projected")
    own = {name: options.pop(name) for name in inspect.signature(cls).parameters if name in options}
    make = create(base, **options)
    return lambda params: cls(make(params), **own)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return _class(name)
    if name in _PATHS:
        return getattr(import_module("corollary.optim.paths"), name)
    if name == "race":  # it needs losses, which stand above this package, so it is found by the catalog
        from corollary import catalog

        return catalog.resolve(name)
    raise AttributeError(f"module 'corollary.optim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
