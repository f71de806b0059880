"""The loss by name or as given, the task it belongs to, and how good an output is in the task's own terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary import errors
from corollary.diagnose.samples import main_output

__all__ = ["Criterion", "criterion_of", "guessed"]

ALIASES = {
    "ce": "cross_entropy", "crossentropy": "cross_entropy", "cross-entropy": "cross_entropy",
    "mean_squared_error": "mse", "squared": "mse", "l2": "mse", "mse_loss": "mse",
    "mae": "l1", "absolute": "l1", "l1_loss": "l1", "smooth_l1": "huber", "huber_loss": "huber",
    "bce_logits": "bce_with_logits", "binary_cross_entropy_with_logits": "bce_with_logits",
    "binary_cross_entropy": "bce", "nll_loss": "nll",
}  # fmt: skip
NAMES = ("cross_entropy", "mse", "bce_with_logits", "nll", "bce", "l1", "huber")
TYPES = {
    nn.CrossEntropyLoss: "cross_entropy", nn.MSELoss: "mse", nn.BCEWithLogitsLoss: "bce_with_logits", nn.NLLLoss: "nll",
    nn.BCELoss: "bce", nn.L1Loss: "l1", nn.SmoothL1Loss: "huber", nn.HuberLoss: "huber",
}  # fmt: skip
FUNCTIONS = {
    F.cross_entropy: "cross_entropy", F.mse_loss: "mse", F.binary_cross_entropy_with_logits: "bce_with_logits",
    F.nll_loss: "nll", F.binary_cross_entropy: "bce", F.l1_loss: "l1", F.smooth_l1_loss: "huber", F.huber_loss: "huber",
}  # fmt: skip

BATCH = 64  # rows that a loss of rows beside each other compares
NEIGHBOURS = 7  # that tell the class of a row


@dataclass
class Criterion:
    """A loss of (output, target), with the task that output and target speak of."""

    name: str  # one of NAMES, or "custom"
    task: str
    function: Callable[..., Any] | None = None  # the user's own, called as it stands
    was_given: bool = False
    logarithms: bool = False  # whether outputs are logarithms of answers, as for counts
    degree: float = math.nan  # of a loss that is dearer to one side, as for quantiles
    # what a loss of numbers does not ask for: their "level", so that only order counts, or "length"
    free: str = ""
    opposed: bool = False  # whether a loss of rows beside each other is less for wrong neighbours

    @property
    def custom(self) -> bool:
        """Whether the loss is the user's own function."""
        return self.function is not None

    def __call__(self, out: Any, target: Any) -> Tensor:
        """Return the mean loss; of rows beside each other in batches, as in training, unless a gradient is wanted."""
        if self.task == "embedding" and len(target) >= 2 * BATCH and not torch.is_grad_enabled():
            parts = zip(out.tensor_split(len(target) // BATCH), target.tensor_split(len(target) // BATCH))
            return torch.stack([self(z, y) for z, y in parts]).mean()
        if self.function is not None:
            whole = isinstance(out, Tensor) or self.name not in NAMES  # torch's own losses take no dict
            value = self.function(out if whole else main_output(out), target)
            value = value[0] if isinstance(value, (tuple, list)) else value
            if isinstance(value, dict):
                value = value.get("loss", next(iter(value.values())))
            return value.mean() if value.ndim else value
        z = main_output(out)
        # nothing to compare with: the size of the output, so that there is a gradient
        if self.name == "none":
            return z.float().square().mean()
        z, target = aligned(self.name, z, target)
        return named(self.name, z, target)

    def answers(self, z: Any) -> Any:
        """Return outputs on the scale of the targets."""
        return z.float().exp() if self.logarithms and isinstance(z, Tensor) else z

    def score(self, z: Any, y: Any) -> tuple[float, float]:
        """Return how good outputs are in the terms of the task, and how good a constant answer is."""
        if not isinstance(z, Tensor) or not isinstance(y, Tensor) or z.numel() != y.numel():
            return quality(self.answers(z), y, self.task)
        from corollary.diagnose.terms import best_constant, in_order

        if self.free == "level":
            return in_order(z, y), 0.0
        if self.free == "length":
            z, y = F.normalize(z.float().reshape(len(y), -1), dim=1), y.float().reshape(len(y), -1)
            return quality(z * y.norm(dim=1, keepdim=True).to(z), y, self.task)
        if math.isnan(self.degree):
            return quality(self.answers(z), y, self.task)
        y = y.float()
        with torch.no_grad():
            least = best_constant(self, y)[0]
            share = float(self(z.detach().float().reshape(y.shape), y)) / max(least, 1e-30)
        return 1 - share ** (2 / self.degree), 0.0

    def each(self, out: Any, target: Any) -> Tensor | None:
        """Return one loss per sample, where the loss has a name."""
        z = main_output(out)
        if self.name in ("custom", "none") or z is None:
            return None
        z, target = aligned(self.name, z, target)
        values = named(self.name, z, target, "none")
        return values.reshape(len(values), -1).mean(1) if values.ndim > 1 else values


def aligned(name: str, z: Tensor, target: Any) -> tuple[Tensor, Tensor]:
    """Return output and target in the shapes and types that a loss by name takes."""
    if name in ("cross_entropy", "nll"):
        if not target.is_floating_point():
            target = target.long()
            if target.ndim == 2 and target.shape[1] == 1 and z.ndim == 2:
                target = target[:, 0]
            on_last = z.ndim == target.ndim + 1 and z.ndim > 2 and z.shape[:-1] == target.shape
            if on_last and (z.shape[0], *z.shape[2:]) != tuple(target.shape):
                z = z.movedim(-1, 1)
        elif target.ndim == z.ndim - 1 or (target.ndim == 2 and target.shape[1] == 1 and z.shape[1] != 1):
            target = target.reshape(len(target), *z.shape[2:]).long()
        else:
            target = target.to(z.dtype)
        return z, target
    target = target.to(z.dtype)
    if z.shape != target.shape and z.numel() == target.numel():
        target = target.reshape(z.shape)
    return z, target


def named(name: str, z: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return a loss by name."""
    if name == "cross_entropy":
        return F.cross_entropy(z, target, reduction=reduction)
    if name == "nll":
        return F.nll_loss(z, target, reduction=reduction)
    if name == "bce_with_logits":
        return F.binary_cross_entropy_with_logits(z, target, reduction=reduction)
    if name == "bce":
        return F.binary_cross_entropy(z, target, reduction=reduction)
    if z.shape != target.shape:
        must = "output and target must have the same shape"
        raise errors.value("diagnose", must, f"{tuple(z.shape)} and {tuple(target.shape)}")
    if name == "l1":
        return F.l1_loss(z, target, reduction=reduction)
    if name == "huber":
        return F.huber_loss(z, target, reduction=reduction)
    return F.mse_loss(z, target, reduction=reduction)


def guessed(z: Any, y: Any, supervised: bool) -> str:
    """Return the loss that output and target suggest."""
    if not supervised or not isinstance(y, Tensor) or not isinstance(z, Tensor):
        return "mse"
    if not y.is_floating_point():
        if z.ndim == y.ndim + 1 and z.shape[1 if z.shape[0] == y.shape[0] else 0] > 1:
            rows = z.detach().float().exp().sum(1)
            return (
                "nll" if bool((rows - 1).abs().max() < 1e-3) and bool((z <= 1e-6).all()) else "cross_entropy"
            )
        if len(torch.unique(y[:5000])) <= 2 and z.numel() == y.numel():
            return "bce_with_logits"
        return "cross_entropy" if z.ndim > 1 and z.shape[-1] > 1 and z.numel() != y.numel() else "mse"
    values = torch.unique(y[:5000])
    if len(values) <= 2 and set(values.tolist()) <= {0.0, 1.0} and z.numel() == y.numel():
        return "bce_with_logits"
    return "mse"


def criterion_of(loss: Any, z: Any, y: Any, x: Any, supervised: bool = True) -> Criterion:
    """Return the criterion of a loss by name, of a function, or of none."""
    if isinstance(loss, str):
        name = ALIASES.get(loss.lower(), loss.lower())
        if name not in NAMES:
            raise errors.unknown("diagnose", "loss", loss, NAMES, "Or pass a function of (output, target).")
        return Criterion(name, task_of(name, z, y, supervised), None, True)
    if loss is None:
        name = guessed(z, y, supervised)
        task = task_of(name, z, y, supervised)
        return Criterion(name if task != "density" else "none", task)
    if isinstance(loss, type):
        got, do = f"the class {loss.__name__}", f"Write {loss.__name__}()."
        raise errors.kind("diagnose", "loss must be a name or a function of (output, target)", got, do)
    if not callable(loss):
        raise errors.kind("diagnose", "loss must be a name or a function of (output, target)", repr(loss))
    name = (
        TYPES.get(type(loss)) or FUNCTIONS.get(loss, "custom")
        if _hashable(loss)
        else TYPES.get(type(loss), "custom")
    )
    task = task_of(name if name != "custom" else guessed(z, y, supervised), z, y, supervised)
    return Criterion(name, task, loss, True)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def task_of(name: str, z: Any, y: Any, supervised: bool) -> str:
    """Return the task of targets under a loss."""
    if not supervised or not isinstance(y, Tensor):
        return (
            "reconstruction"
            if isinstance(z, Tensor) and isinstance(y, Tensor) and z.shape == y.shape
            else "density"
        )
    if name in ("cross_entropy", "nll"):
        return "classes"
    if name in ("bce_with_logits", "bce"):
        return "binary" if y.ndim == 1 or y.shape[1:].numel() == 1 else "multilabel"
    return "regression"


# --- how good an output is -------------------------------------------------------------------------------


def labels_of(z: Tensor, y: Tensor, task: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return predicted labels, true labels and the probabilities of the predicted ones, flat, without those not counted."""
    z = z.detach().float().cpu()
    y = y.detach().cpu()
    if task == "classes":
        if (
            z.ndim == y.ndim + 1
            and z.ndim > 2
            and z.shape[:-1] == y.shape
            and (z.shape[0], *z.shape[2:]) != tuple(y.shape)
        ):
            z = z.movedim(-1, 1)
        if y.is_floating_point() and y.ndim == z.ndim:
            y = y.argmax(1)
        k = z.shape[1]
        flat = z.movedim(1, -1).reshape(-1, k)
        true = y.reshape(-1).long()
        keep = (true != -100) & (true >= 0) & (true < k)
        flat, true = flat[keep], true[keep]
        sums = flat.sum(1)
        p = flat if bool((sums - 1).abs().max() < 1e-3) and bool((flat >= 0).all()) else flat.softmax(1)
        top = p.max(1)
        return top.indices.numpy(), true.numpy(), top.values.numpy()
    flat, true = z.reshape(-1), y.reshape(-1).float()
    keep = true != -100
    flat, true = flat[keep], true[keep]
    p = flat if bool(((flat >= 0) & (flat <= 1)).all()) else flat.sigmoid()
    said = (p > 0.5).numpy().astype(int)
    return said, true.round().numpy().astype(int), torch.maximum(p, 1 - p).numpy()


def _neighbours(z: Tensor, y: Tensor) -> tuple[float, float]:
    """Return how often the nearest rows tell the class of a row, and how often the commonest class does."""
    z, y = z.detach().float().cpu().reshape(len(y), -1), y.detach().cpu().long()
    apart = torch.cdist(z, z).fill_diagonal_(math.inf)
    near = apart.topk(min(NEIGHBOURS, len(y) - 1), largest=False).indices
    said = y[near].mode(1).values
    return float((said == y).float().mean()), float(torch.unique(y, return_counts=True)[1].max() / len(y))


def quality(z: Any, y: Any, task: str) -> tuple[float, float]:
    """Return the score (accuracy, or the share of variance explained) and that of a constant answer."""
    if not isinstance(z, Tensor) or not isinstance(y, Tensor) or not len(y):
        return float("nan"), float("nan")
    if task == "embedding":
        return _neighbours(z, y)
    if task == "ordinal":  # each output says whether the class is beyond it
        z, task = F.one_hot((z > 0).sum(1), z.shape[1] + 1).float(), "classes"
    if task in ("classes", "binary", "multilabel"):
        said, true, _ = labels_of(z, y, task)
        if not len(true):
            return float("nan"), float("nan")
        return float((said == true).mean()), float(np.bincount(true - true.min()).max() / len(true))
    z, y = z.detach().float().cpu(), y.detach().float().cpu()
    if z.numel() != y.numel():
        return float("nan"), float("nan")
    z = z.reshape(len(y), -1)
    y = y.reshape(len(y), -1)
    keep = (y != -100).all(1)
    z, y = z[keep], y[keep]
    rest = float((z - y).square().mean())
    spread = float((y - y.mean(0)).square().mean())
    return (1 - rest / spread if spread > 0 else float("nan")), 0.0
