"""Mutants of the formulary's right forms: the same formula, called with one argument changed.

A check that still holds when an argument is set to 1, scaled, shifted or transposed never used that
argument, and would let a slip in it pass.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from corollary.formulas.record import Formula

__all__ = ["Mutant", "mutants"]

Mutant = tuple[str, str, Callable[..., Any]]  # the argument, what is done to it, the changed formula


def ones(value: Any) -> Any:
    """The value 1, or an array of ones of the same shape and type."""
    if isinstance(value, torch.Tensor):
        return torch.ones_like(value)
    return np.ones_like(value) if isinstance(value, np.ndarray) else type(value)(1)


def scaled(value: Any) -> Any:
    """The value times 1.3, rounded up for a whole number."""
    return int(np.ceil(1.3 * value)) if isinstance(value, int | np.integer) else value * 1.3


def shifted(value: Any) -> Any:
    """The value plus 1."""
    return value + 1


def transposed(value: Any) -> Any:
    """The matrix transposed; None for anything else."""
    return value.T if getattr(value, "ndim", 0) == 2 else None


def negated(value: Any) -> Any:
    """The opposite truth value."""
    return ~value if isinstance(value, torch.Tensor | np.ndarray) else not value


CHANGES = {"one": ones, "scaled": scaled, "shifted": shifted, "transposed": transposed, "negated": negated}
NUMBER = (int, float, complex, np.number, np.ndarray, torch.Tensor)


def is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_) or getattr(value, "dtype", None) in (np.dtype(bool), torch.bool)


def changed(value: Any, change: str) -> Any:
    """Return the value changed, in its parts if it has parts; None where the change means nothing."""
    if isinstance(value, tuple | list):
        parts = [changed(part, change) for part in value]
        if all(part is None for part in parts):
            return None
        parts = [old if new is None else new for old, new in zip(value, parts, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_truth(value):
        return negated(value) if change == "negated" else None
    if isinstance(value, NUMBER) and change != "negated":
        if getattr(value, "dtype", None) == np.dtype(object):
            return None
        return CHANGES[change](value)
    if inspect.isfunction(value) or inspect.ismethod(value) or isinstance(value, np.ufunc):
        if change in ("one", "scaled", "shifted"):
            return lambda *args, **kwargs: _or_same(value(*args, **kwargs), change)
    return None


def _or_same(value: Any, change: str) -> Any:
    new = changed(value, change)
    return value if new is None else new


def names(right: Callable[..., Any]) -> list[str]:
    """The names of a formula's arguments."""
    return list(inspect.signature(right).parameters)


def calls(formula: Formula, seed: int) -> list[inspect.BoundArguments]:
    """The arguments of every call that the check makes of its claim."""
    signature, seen = inspect.signature(formula.right), []

    def claim(*args: Any, **kwargs: Any) -> Any:
        seen.append(signature.bind(*args, **kwargs))
        return formula.right(*args, **kwargs)

    formula.check(seed, claim)
    return seen


def mutants(formula: Formula, seed: int = 0) -> Iterator[Mutant]:
    """Yield the formula with each of its arguments changed in each way that changes a call of its check."""
    signature = inspect.signature(formula.right)
    seen = calls(formula, seed)
    for name in signature.parameters:
        for change in CHANGES:
            if any(changed(call.arguments.get(name), change) is not None for call in seen):
                yield name, change, _mutant(formula.right, signature, name, change)


def _mutant(right: Callable[..., Any], signature: inspect.Signature, name: str, change: str) -> Any:
    def claim(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if name in bound.arguments:
            bound.arguments[name] = _or_same(bound.arguments[name], change)
        return right(*bound.args, **bound.kwargs)

    return claim
