"""Which module is called, with what, and so that it is afterwards as it was before."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from corollary import errors

__all__ = ["alone", "arguments", "module_of", "surroundings", "undisturbed"]

P = ParamSpec("P")
T = TypeVar("T")


def module_of(model: Any, owner: str) -> nn.Module:
    """Return the module of a model: itself, what it wraps, or an estimator's ``module_``."""
    module = model if isinstance(model, nn.Module) else getattr(model, "module_", None)
    if not isinstance(module, nn.Module):
        do = "Fit it first, or pass the module."
        got = type(model).__name__ if not isinstance(model, type) else f"the class {model.__name__}"
        raise errors.kind(owner, "model must be a torch module, or a fitted estimator with one", got, do)
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = module.module
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def arguments(module: nn.Module, input: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments that an input stands for, on the module's device and of its type."""
    first = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)
    device, dtype = (None, torch.float32) if first is None else (first.device, first.dtype)

    def placed(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            value = torch.from_numpy(np.ascontiguousarray(value))
        if isinstance(value, Tensor):
            return value.to(device, dtype) if value.is_floating_point() else value.to(device)
        return value

    if isinstance(input, tuple | list) and input and all(type(n) is int for n in input):
        noise = torch.rand(*input, generator=torch.Generator().manual_seed(0))
        return (placed(noise),), {}
    if isinstance(input, Mapping):
        known = inspect.signature(module.forward).parameters.values()
        names = {p.name for p in known}
        if any(p.kind is p.VAR_KEYWORD for p in known) or set(input) <= names:
            return (), {key: tree_map(placed, value) for key, value in input.items()}
        return ({key: tree_map(placed, value) for key, value in input.items()},), {}
    if isinstance(input, tuple | list) and any(
        isinstance(v, Tensor | np.ndarray) for v in tree_leaves(input)
    ):
        return tuple(tree_map(placed, value) for value in input), {}
    if hasattr(input, "to_numpy"):
        input = input.to_numpy()
    found = placed(input)
    if not isinstance(found, Tensor):
        do = "Pass a tensor, a tuple of them, a dict of keyword arguments, or a shape such as (1, 3, 32, 32)."
        raise errors.kind("summary", "input must be what the module is called with", type(input).__name__, do)
    return (found,), {}


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put modes, buffers, gradients and the random state back as they were, whatever happens inside."""
    modes = [(m, m.training) for m in module.modules()]
    buffers = [(b, b.detach().clone()) for b in module.buffers()]
    slopes = [(p, p.grad) for p in module.parameters()]
    devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for m, training in modes:
            m.training = training
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
        for p, slope in slopes:
            p.grad = slope


@contextmanager
def surroundings() -> Iterator[None]:
    """Measure with gradients and in full precision wherever that is asked, and leave every random state as it was.

    Under ``no_grad``, ``inference_mode`` or ``autocast`` of the caller no parameter would get a gradient, and loaders and
    first imports draw random numbers.
    """
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(list(range(torch.cuda.device_count()))))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def alone(measure: Callable[P, T]) -> Callable[P, T]:
    """Return a measurement that is made in :func:`surroundings`."""

    @wraps(measure)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        with surroundings():
            return measure(*args, **kwargs)

    return made
