"""Losses that users bring, of torch's or their own: one number per sample, and what a classifier's output means."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary import errors, losses

__all__ = [
    "CLASSES",
    "LINKS",
    "TORCH_LOSSES",
    "ClassCriterion",
    "Fitting",
    "log_loss",
    "said",
    "unreduced",
]

# What a classifier's output means: names, torch's losses, and how it becomes probabilities.
LINKS: dict[str, Any] = {
    "cross-entropy": lambda z: z.softmax(1),
    "margin": lambda z: z.softmax(1),
    "binary": lambda z: _two(torch.sigmoid(z)),
    "nll": lambda z: z.exp(),
    "probability": lambda z: _two(z),
}
TORCH_LOSSES: dict[type, str] = {
    nn.CrossEntropyLoss: "cross-entropy",
    nn.MultiMarginLoss: "margin",
    nn.BCEWithLogitsLoss: "binary",
    nn.NLLLoss: "nll",
    nn.BCELoss: "probability",
}
CLASSES: dict[str, Any] = {
    "binary": losses.binary_cross_entropy,
    "cross-entropy": losses.cross_entropy,
    "margin": losses.margin,
    "nll": lambda output, target: log_loss(output, target),
}


def _two(p: Tensor) -> Tensor:
    """Return the probabilities of both classes from that of the second, (n,) or (n, 1) -> (n, 2)."""
    p = p.flatten()
    return torch.stack([1 - p, p], 1)


def log_loss(output: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Return minus the log-probability of the target, a class or soft, where the output holds log-probabilities."""
    if not target.is_floating_point():
        return F.nll_loss(output, target, weight, reduction="none")
    return -(target * output if weight is None else target * output * weight).sum(1)


def unreduced(loss: Any) -> Any:
    """Return a loss that gives one number per sample where it can: torch's own without their mean."""
    loss = loss() if isinstance(loss, type) else loss
    if type(loss) is nn.NLLLoss and loss.ignore_index < 0:  # torch's takes no soft targets
        return partial(log_loss, weight=loss.weight)
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        loss = copy.deepcopy(loss)
        loss.reduction = "none"
    return loss


def said(output: Any, owner: str) -> Tensor:
    """Return the tensor that a loss of torch compares: the first of several outputs, or that called "logits"."""
    if isinstance(output, Mapping):
        if "logits" not in output:
            must, do = (
                "an output that is a dict must have 'logits'",
                "Pass loss= and link= that take the dict.",
            )
            raise errors.value(owner, must, sorted(map(str, output)), do)
        return output["logits"]  # type: ignore[no-any-return]
    return output[0] if isinstance(output, tuple | list) else output


class Fitting:
    """A criterion that says which shapes do not fit, and turns (n, 1) into (n,) where the target is that.

    A loss of one's own gets the module's output as it is; a known one gets what is ``said``, which ``alike`` wants to
    have the shape of the target.
    """

    def __init__(self, criterion: Any, loss: Any, owner: str, alike: bool = False) -> None:
        self.criterion, self.name, self.owner = criterion, _named(loss), owner
        self.known = isinstance(loss, str) or _of_torch(loss)
        self.alike = alike and self.known

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """Return the losses."""
        output = said(output, self.owner) if self.known else output
        fitted = output
        if isinstance(output, Tensor) and output.shape != target.shape and output.numel() == target.numel():
            fitted = output.reshape(target.shape)
        try:
            if self.alike and fitted.shape != target.shape:
                raise ValueError("it has another shape")
            found = self.criterion(fitted, target)
            if isinstance(found, Tensor) and found.ndim and len(found) != len(target):
                raise ValueError(f"it gives {tuple(found.shape)} losses")
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            must = f"the module's output must fit loss={self.name} and targets of shape {tuple(target.shape)}"
            shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            got = f"an output of shape {shape} ({str(error).splitlines()[0]})"
            raise errors.value(self.owner, must, got, "Change the last layer, or loss=.") from error
        return found if not isinstance(found, Tensor) or found.ndim < 2 else found.flatten(1).mean(1)


class ClassCriterion(losses.CrossEntropy):
    """A criterion of one's own that knows the number of classes, so that labels can be smoothed and mixed."""

    def __init__(self, criterion: Fitting, n_classes: int) -> None:
        super().__init__(n_classes)
        object.__setattr__(self, "criterion", criterion)

    def __call__(self, output: Any, target: Tensor) -> Tensor:
        """Return the losses."""
        return self.criterion(output, target)  # type: ignore[attr-defined, no-any-return]


def _of_torch(loss: Any) -> bool:
    kind = loss if isinstance(loss, type) else type(loss)
    return kind.__module__.startswith("torch.nn.")


def _named(loss: Any) -> str:
    return repr(loss) if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
