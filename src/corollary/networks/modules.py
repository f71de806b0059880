"""Modules that users bring: how one is built from an instance, a class or a function, and tried before it is trained."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.batches import Batch
from corollary.nn.normalisation import BatchNorm1d, BatchNorm2d, BatchNorm3d

__all__ = ["build", "reads_integers", "takes_one", "try_out"]

ALONE: dict[type, type] = {
    nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d,
    nn.BatchNorm3d: BatchNorm3d,
}


def build(module: Any, options: dict[str, Any], sizes: dict[str, Any], owner: str) -> nn.Module:
    """Return a new module: a copy of an instance, or what a class or function makes of options and sizes."""
    if isinstance(module, nn.Module):
        if options:
            do = "Pass the class, or set them in the instance."
            raise errors.value(owner, "options are arguments of a module's class", "a module", do)
        return copy.deepcopy(module)
    if not callable(module):
        do = "Pass an instance, a class or a function."
        raise errors.kind(owner, "module must be a torch.nn.Module, or make one", repr(module), do)
    known = inspect.signature(module).parameters
    told = {name: size for name, size in sizes.items() if name in known and name not in options}
    made = module(**options, **told)
    if not isinstance(made, nn.Module):
        raise errors.kind(owner, "module must return a torch.nn.Module", type(made).__name__)
    return made


def takes_one(module: nn.Module) -> nn.Module:
    """Let torch's batch normalisation take a last batch of one sample, which it refuses while training."""
    for part in module.modules():
        alone = ALONE.get(type(part))
        if alone is not None:
            part.__class__ = alone
    return module


def reads_integers(module: nn.Module) -> bool:
    """Whether integers stay integers: the module has an embedding that looks them up."""
    return any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


def try_out(module: nn.Module, objective: Any, batch: Batch, owner: str) -> None:
    """Raise before training if a module cannot be trained: shapes, NaN, a loss without a gradient."""
    module = copy.deepcopy(module).train()
    with torch.enable_grad():
        found = _first_loss(module, objective, batch, owner)
        loss = found[0] if isinstance(found, tuple) else found
        if not isinstance(loss, Tensor) or loss.ndim:
            got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise errors.value(owner, "the loss of a batch must be one number", got, "Take its mean.")
        if not torch.isfinite(loss):
            must = "the loss must be finite before the first update"
            do = "Look at the module's initial weights, and at the scale of X."
            raise errors.value(owner, must, f"{loss.item()} on the first {batch.size} samples", do)
        if not loss.requires_grad:
            must = "the loss must depend on parameters of the module"
            raise errors.value(owner, must, "none that it does", "Compute it from the module's output.")


def _first_loss(module: nn.Module, objective: Any, batch: Batch, owner: str) -> Any:
    """Return the objective on a batch; an error inside it is raised with the shapes of the inputs."""
    try:
        return objective(module, batch)
    except (IndexError, RuntimeError, TypeError) as error:
        shapes = " and ".join(f"{tuple(t.shape)} ({t.dtype})" for t in batch.inputs if isinstance(t, Tensor))
        must = f"the module must take a batch of inputs of shape {shapes}"
        got = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        raise errors.value(owner, must, got.rstrip("."), "Change the module, or the shape of X.") from error
