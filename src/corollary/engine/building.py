"""Building modules from files: sizes are compared with the stored weights before memory is allocated.

A model's parameters and sizes say which module to build, and a file of a few bytes can ask for a billion units or
layers. So the module is first built on torch's ``meta`` device, where tensors have shapes and no memory, with a bound on
the number of its parts; only if its shapes are those of the stored weights is it built again to be filled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as registry

from corollary.engine.random import seeded
from corollary.shapes import Mismatch

__all__ = ["filled", "outline", "sized"]

PARTS = 64  # parts of a module, and registrations while it is built, for each stored tensor, and as many again times 16
EXTRA = 2**24  # bytes that a module may have beyond four times its stored weights: masks, positions


def filled(make: Callable[[], nn.Module], weights: Mapping[str, Tensor], name: str) -> nn.Module:
    """Return the module that ``make`` builds, with these weights, in evaluation mode; raise if names or shapes differ."""
    outline(make, weights, name)
    with seeded(0):
        module = make()
    module.load_state_dict(weights)
    return module.eval()


def outline(make: Callable[[], nn.Module], weights: Mapping[str, Tensor], name: str) -> None:
    """Raise unless a module built without memory has exactly the names and shapes of these weights."""
    have = sized(make, weights, name).state_dict()
    strange = sorted(have.keys() ^ weights.keys())
    if strange:
        where = "is missing" if strange[0] in have else "has no place in the module"
        raise Mismatch(f"the weight {strange[0]!r} of {name} {where}.")
    for key, weight in weights.items():
        if weight.shape != have[key].shape:
            must = f"the weight {key!r} of {name} must be of shape {tuple(have[key].shape)}"
            raise Mismatch(f"{must}; got shape {tuple(weight.shape)}.")


def sized(make: Callable[[], nn.Module], weights: Mapping[str, Tensor], name: str) -> nn.Module:
    """Return the module without memory; raise if it has far more parts or bytes than these weights."""
    with _bounded(PARTS * (16 + len(weights)), name), torch.device("meta"):
        module = make()
    stored = sum(weight.nbytes for weight in weights.values())
    needed = sum(part.nbytes for part in (*module.parameters(), *module.buffers()))
    if needed > 4 * stored + EXTRA:
        raise Mismatch(f"the module of {name} must not take {needed} bytes for {stored} bytes of weights.")
    return module


@contextmanager
def _bounded(most: int, name: str) -> Iterator[None]:
    """Raise as soon as this thread registers more parameters, buffers and parts of modules than ``most``."""
    thread, count = threading.get_ident(), 0

    def hook(*_: Any) -> None:
        nonlocal count
        if threading.get_ident() == thread:
            count += 1
            if count > most:
                raise Mismatch(
                    f"the module of {name} must not have {count} parts or more for the weights stored."
                )

    hooks = [
        register(hook)
        for register in (
            registry.register_module_module_registration_hook,
            registry.register_module_parameter_registration_hook,
            registry.register_module_buffer_registration_hook,
        )
    ]
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()
