r"""Regularisers: small objects that change a batch, the loss, the gradients or the weights of an update.

========================================  =====================  ==========================================================
hook                                      may change             used by
========================================  =====================  ==========================================================
``on_batch(batch, module, rng)``          inputs, target,        input and target noise, label smoothing, mixing,
                                          weight                 augmentation, curricula, adversaries
``on_loss(loss, module, batch)``          the loss               spectral penalties, distillation
``on_gradient(vectors)``                  gradients              clipping, gradient noise
``after_step(vectors)``                   weights                l1, norm balls
========================================  =====================  ==========================================================

An object has any of the four. ``on_batch`` returns a batch and ``on_loss`` a loss; the other two work in place. What else it
may have: ``attach(learner)``, called once, where it can say that it does not fit the model; ``order(learner, order)``, which
chooses the samples of an epoch; ``state()`` and ``restore(state)`` if it remembers anything.

With a class index :math:`y` of :math:`K`, label smoothing by :math:`\varepsilon` gives the soft target
:math:`(1 - \varepsilon) e_y + \varepsilon / K` (1). Mixing draws :math:`\lambda \sim \mathrm{Beta}(\alpha, \alpha)` and takes
:math:`\lambda x_i + (1 - \lambda) x_j` with the target mixed alike (2).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from corollary import errors
from corollary.engine.batches import Batch
from corollary.engine.objective import Supervised
from corollary.optim.directions import project, soft_threshold

__all__ = [
    "FIELDS",
    "HOOKS",
    "L1",
    "Augment",
    "ClipNorm",
    "Curriculum",
    "GradientNoise",
    "InputNoise",
    "LabelSmoothing",
    "Mixup",
    "NormBall",
    "Spectral",
    "TargetNoise",
    "WeightDecay",
    "WeightNoise",
    "regularisers",
]

HOOKS = ("on_batch", "on_loss", "on_gradient", "after_step")


class Regulariser(BaseEstimator):  # type: ignore[misc]
    """A regulariser of one number; ``name`` is its field of ``Training``."""

    name = ""
    needs_target = False  # whether output and target must be apart

    def attach(self, learner: Any) -> None:
        """Remember the learner; raise if this cannot work with its objective."""
        self._learner = learner
        objective = learner.players[0].objective
        if self.needs_target and not isinstance(objective, Supervised):
            must = f"{self.name} needs a model whose loss compares an output with a target"
            got = f"{learner.owner}, which has an objective of its own"
            raise errors.value(learner.owner, must, got, f"Leave {self.name} out.")

    def _check(self, low: float, high: float = np.inf) -> None:
        number = getattr(self, next(iter(inspect.signature(type(self)).parameters)))
        if isinstance(number, bool) or not isinstance(number, int | float) or not low <= number < high:
            bound = f"at least {low:g}" if high == np.inf else f"in [{low:g}, {high:g})"
            raise errors.value("Training", f"{self.name} must be a number {bound}", repr(number))


def _real(batch: Batch, name: str, owner: str) -> list[int]:
    """Return which inputs hold real numbers; raise if none does."""
    found = [i for i, t in enumerate(batch.inputs) if isinstance(t, Tensor) and t.is_floating_point()]
    if not found:
        must = f"{name} needs inputs of real numbers"
        raise errors.value(owner, must, "codes or indices", f"Leave {name} out, or use dropout.")
    return found


# --- on the batch ----------------------------------------------------------------------------------------


class InputNoise(Regulariser):
    """Add normal noise of this standard deviation to the inputs."""

    name = "input_noise"

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with noisy inputs."""
        inputs = list(batch.inputs)
        for i in _real(batch, self.name, self._learner.owner):
            inputs[i] = inputs[i] + self.scale * _normal(inputs[i], rng)
        return batch._replace(inputs=tuple(inputs))


class TargetNoise(Regulariser):
    """Exchange classes for random ones with this probability; add normal noise of this deviation to numbers."""

    name = "target_noise"
    needs_target = True

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with noisy targets."""
        y = batch.target
        if y.is_floating_point():
            return batch._replace(target=y + self.scale * _normal(y, rng))
        classes = _classes(self)
        other = torch.randint(classes, y.shape, generator=rng, device=rng.device).to(y.device)
        turned = torch.rand(y.shape, generator=rng, device=rng.device).to(y.device) < self.scale
        return batch._replace(target=torch.where(turned, other, y))


class LabelSmoothing(Regulariser):
    """Give every class a share of the target, eq. 1."""

    name = "label_smoothing"
    needs_target = True

    def __init__(self, share: float) -> None:
        self.share = share

    def attach(self, learner: Any) -> None:
        """Check that there are classes."""
        super().attach(learner)
        self._check(0.0, 1.0)
        _classes(self)

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with soft targets."""
        soft = _softened(self, batch.target)
        return batch._replace(target=(1 - self.share) * soft + self.share / _classes(self))


class Mixup(Regulariser):
    """Mix each sample and its target with another, eq. 2; the parameter is that of the Beta distribution."""

    name = "mixup"
    needs_target = True

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the mixed batch."""
        if len(_real(batch, self.name, self._learner.owner)) < len(batch.inputs):
            must = "mixup needs samples of one size"
            raise errors.value(self._learner.owner, must, "sequences, sets or graphs", "Leave mixup out.")
        n, device = len(batch.inputs[0]), batch.inputs[0].device
        seed = int(torch.randint(2**62, (), generator=rng, device=rng.device))
        share = float(np.random.default_rng(seed).beta(self.alpha, self.alpha))
        other = torch.randperm(n, generator=rng, device=rng.device).to(device)

        def mixed(t: Tensor) -> Tensor:
            return share * t + (1 - share) * t[other]

        target = batch.target if batch.target.is_floating_point() else _softened(self, batch.target)
        weight = None if batch.weight is None else mixed(batch.weight)
        return Batch(tuple(mixed(t) for t in batch.inputs), mixed(target), weight, batch.size)


class Augment(Regulariser):
    """Show other views of the images: options of :func:`corollary.data.augment.augment`, or a function of one's own.

    A function is called as ``transform(images, generator=rng)``.
    """

    name = "augment"

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Return the batch with other views of its images."""
        from corollary.data.augment import augment

        images = batch.inputs[0]
        if isinstance(self.transform, dict):
            if not isinstance(images, Tensor) or images.ndim not in (3, 4):
                must = "augment needs images"
                got = f"inputs of shape {tuple(getattr(images, 'shape', ()))}"
                raise errors.value(self._learner.owner, must, got, "Pass a function of your own instead.")
            changed = augment(images, generator=rng, **self.transform)
        else:
            changed = self.transform(images, generator=rng)
        return batch._replace(inputs=(changed, *batch.inputs[1:]))


class Curriculum(Regulariser):
    """Begin with the easy samples: a share of them that grows from ``start`` to all over half of the epochs.

    Parameters
    ----------
    difficulty : array-like of shape (n_samples,), "loss" or "self-paced"
        A score, larger for harder samples; "loss" takes the losses of the model at the beginning of each epoch;
        "self-paced" gives the hardest of each batch no weight.
    start : float, default=0.25
        The share at first.
    """

    name = "curriculum"
    needs_target = True

    def __init__(self, difficulty: Any = "loss", start: float = 0.25) -> None:
        self.difficulty = difficulty
        self.start = start

    def attach(self, learner: Any) -> None:
        """Check the scores."""
        self.needs_target = isinstance(self.difficulty, str)
        super().attach(learner)
        if isinstance(self.difficulty, str):
            if self.difficulty not in ("loss", "self-paced"):
                raise errors.unknown("Training", "curriculum", self.difficulty, ("loss", "self-paced"))
            return
        scores = torch.as_tensor(np.asarray(self.difficulty, dtype=np.float64))
        if scores.shape != (len(learner.batches),):
            must = f"curriculum must have one difficulty per sample learned from ({len(learner.batches)})"
            do = "With early_stopping, pass validation data instead of holding some out."
            raise errors.value(learner.owner, must, f"shape {tuple(scores.shape)}", do)
        self._scores = scores

    def pace(self) -> float:
        """Return the share of samples that are seen in this epoch."""
        learner = self._learner
        half = max(1, learner.training.epochs // 2)
        return float(min(1.0, self.start + (1 - self.start) * learner.epoch / half))

    def order(self, learner: Any, order: Tensor) -> Tensor:
        """Return the easy part of an order of the samples."""
        if isinstance(self.difficulty, str) and self.difficulty == "self-paced":
            return order
        scores = self._losses(learner) if isinstance(self.difficulty, str) else self._scores
        kept = max(1, round(self.pace() * len(order)))
        easy = torch.zeros(len(scores), dtype=torch.bool)
        easy[torch.argsort(scores, stable=True)[:kept]] = True
        return order[easy[order]]

    @torch.no_grad()
    def _losses(self, learner: Any) -> Tensor:
        """Return the loss of every sample, in the order of the data."""
        objective, module = learner.players[0].objective, learner.module.eval()
        found = []
        with learner.stream:
            for batch in learner.batches.epoch(None, learner.training.batch_size, 0):
                losses = objective.losses(module, batch)
                found.append(losses.reshape(len(losses), -1).mean(1).double().cpu())
        module.train()
        return torch.cat(found)

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Give the hardest samples no weight, if the pace is the batch's own."""
        if not isinstance(self.difficulty, str) or self.difficulty != "self-paced" or self.pace() >= 1:
            return batch
        with torch.no_grad(), self._learner.stream:
            losses = self._learner.players[0].objective.losses(module, batch)
        losses = losses.reshape(len(losses), -1).mean(1)
        kept = max(1, round(self.pace() * len(losses)))
        keep = (losses <= losses.kthvalue(kept).values).to(losses.dtype)
        old = batch.weight
        keep = keep if old is None else old * keep.reshape(-1, *[1] * (old.ndim - 1))
        return batch._replace(weight=keep)


# --- on the loss -----------------------------------------------------------------------------------------


class WeightDecay(Regulariser):
    """Add half the squared weights times this to the loss, where the optimiser has no decay of its own."""

    name = "weight_decay"

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_loss(self, loss: Tensor, module: nn.Module, batch: Batch) -> Tensor:
        """Return the penalised loss."""
        for p in self._learner.players[0].matrices:
            loss = loss + 0.5 * self.rate * p.square().sum()
        return loss


class Spectral(Regulariser):
    """Add half the squared largest singular value of every layer, times this, to the loss.

    One power iteration an update follows the singular vectors as the weights move.
    """

    name = "spectral"

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def attach(self, learner: Any) -> None:
        """Begin with the leading singular vectors."""
        super().attach(learner)
        self._check(0.0)
        self._u = [
            torch.linalg.svd(W.detach().flatten(1), full_matrices=False)[0][:, 0]
            for W in learner.players[0].matrices
        ]

    def on_loss(self, loss: Tensor, module: nn.Module, batch: Batch) -> Tensor:
        """Return the penalised loss."""
        for i, p in enumerate(self._learner.players[0].matrices):
            W = p.flatten(1)
            with torch.no_grad():
                v = nn.functional.normalize(W.T @ self._u[i], dim=0)
                u = W @ v
                if u.any():  # weights of zero point nowhere
                    self._u[i] = nn.functional.normalize(u, dim=0)
            loss = loss + 0.5 * self.rate * (self._u[i] @ W @ v).square()
        return loss

    def state(self) -> dict[str, Any]:
        """Return the singular vectors."""
        return {"u": [u.clone() for u in self._u]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go back to a snapshot."""
        self._u = [u.clone().to(old.device) for u, old in zip(state["u"], self._u)]


# --- on the gradients ------------------------------------------------------------------------------------


class ClipNorm(Regulariser):
    """Shorten a gradient whose norm is larger than this."""

    name = "clip_norm"

    def __init__(self, largest: float) -> None:
        self.largest = largest

    def on_gradient(self, vectors: Sequence[Tensor]) -> None:
        """Clip in place."""
        nn.utils.clip_grad_norm_(vectors, self.largest)


class GradientNoise(Regulariser):
    """Add normal noise of this standard deviation to the gradients."""

    name = "gradient_noise"

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_gradient(self, vectors: Sequence[Tensor]) -> None:
        """Add the noise in place."""
        for v in vectors:
            if v.grad is not None:
                v.grad.add_(_normal(v.grad, self._learner.generator), alpha=self.scale)


# --- on the weights --------------------------------------------------------------------------------------


class L1(Regulariser):
    """Soft-threshold the weight matrices after each step, the proximal map of this times their absolute sum."""

    name = "l1"

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @torch.no_grad()
    def after_step(self, vectors: Sequence[Tensor]) -> None:
        """Shrink in place; small weights become exactly zero."""
        for player in self._learner.players:
            step = player.optimizer.param_groups[0]["lr"] * self.rate
            for w in player.decayed:
                w.copy_(soft_threshold(w, step))


class NormBall(Regulariser):
    """Project the weight matrices onto a ball of this radius after each step.

    Parameters
    ----------
    radius : float
        The largest norm.
    per : {"model", "layer", "unit"}, default="model"
        Whether all matrices together, each of them, or each of their rows has at most this norm.
    """

    name = "norm_ball"

    def __init__(self, radius: float, per: str = "model") -> None:
        self.radius = radius
        self.per = per

    def attach(self, learner: Any) -> None:
        """Check the choice."""
        super().attach(learner)
        self._check(0.0)
        if self.per not in ("layer", "model", "unit"):
            raise errors.unknown("NormBall", "per", self.per, ("layer", "model", "unit"))

    @torch.no_grad()
    def after_step(self, vectors: Sequence[Tensor]) -> None:
        """Project in place."""
        for player in self._learner.players:
            if self.per == "model":
                project(player.decayed, self.radius)
            elif self.per == "layer":
                for W in player.matrices:
                    project([W], self.radius)
            else:
                for W in player.matrices:
                    W.copy_(W.flatten(1).renorm(2, 0, self.radius).view_as(W))


class WeightNoise(Regulariser):
    """Take gradients at weights with normal noise of this standard deviation."""

    name = "weight_noise"

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Move the weights; the batch stays."""
        self._kept = [player.copies() for player in self._learner.players]
        for player, kept in zip(self._learner.players, self._kept):
            player.put([w + self.scale * _normal(w, rng) for w in kept])
        return batch

    def on_gradient(self, vectors: Sequence[Tensor]) -> None:
        """Move them back before the step."""
        for player, kept in zip(self._learner.players, self._kept):
            if player.vectors()[0] is vectors[0]:
                player.put(kept)


# --- the table -------------------------------------------------------------------------------------------

# The fields of Training that are regularisers, in the order in which they act.
FIELDS: dict[str, Any] = {
    "curriculum": Curriculum,
    "augment": Augment,
    "input_noise": InputNoise,
    "target_noise": TargetNoise,
    "label_smoothing": LabelSmoothing,
    "mixup": Mixup,
    "adversary": None,
    "weight_noise": WeightNoise,
    "spectral": Spectral,
    "clip_norm": ClipNorm,
    "gradient_noise": GradientNoise,
    "l1": L1,
    "norm_ball": NormBall,
}


def regularisers(training: Any) -> list[Any]:
    """Return the regularisers that a training asks for, from its fields and then its own."""
    found = []
    for name, make in FIELDS.items():
        value = getattr(training, name)
        if value is None or (isinstance(value, int | float) and value == 0):
            continue
        if not _is_one(value) and make is None:
            raise errors.kind("Training", f"{name} must have one of {', '.join(HOOKS)}", type(value).__name__)
        found.append(value if _is_one(value) else make(value))
    for value in training.regularisers or ():
        if not _is_one(value):
            do = "An unknown name may be a field of Training itself."
            raise errors.kind(
                "Training", f"regularisers must have one of {', '.join(HOOKS)}", repr(value), do
            )
        found.append(value)
    if training.weight_decay and not training.decays_in_optimizer:
        found.append(WeightDecay(training.weight_decay))
    return found


def _is_one(value: Any) -> bool:
    return any(hasattr(value, hook) for hook in HOOKS)


def _normal(like: Tensor, rng: torch.Generator) -> Tensor:
    drawn = torch.randn(like.shape, generator=rng, device=rng.device, dtype=like.dtype)
    return drawn.to(like.device)


def _classes(regulariser: Any) -> int:
    learner = regulariser._learner
    criterion = learner.players[0].objective.criterion
    if not hasattr(criterion, "soften"):
        must = f"{regulariser.name} needs classes"
        raise errors.value(learner.owner, must, "a model without them", f"Leave {regulariser.name} out.")
    return int(criterion.n_classes)


def _softened(regulariser: Any, target: Tensor) -> Tensor:
    _classes(regulariser)
    learner = regulariser._learner
    dtype = next(p.dtype for p in learner.module.parameters() if p.is_floating_point())
    return learner.players[0].objective.criterion.soften(target, dtype)  # type: ignore[no-any-return]
