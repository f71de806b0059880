"""Curriculum learning: the easy samples first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary import errors
from corollary.engine.batches import Batch
from corollary.engine.regulariser import Regulariser

__all__ = ["Curriculum"]


class Curriculum(Regulariser):
    r"""Curriculum learning: train on the easy samples first, ``Training(curriculum="loss")``.

    A share of the samples that grows from ``start`` to all over the first half of the epochs, the easiest first.

    Parameters
    ----------
    difficulty : array-like of shape (n_samples,), "loss" or "self-paced"
        A score, larger for harder samples; "loss" takes the losses of the model at the beginning of each epoch;
        "self-paced" gives the hardest of each batch no weight.
    start : float, default=0.25
        The share at first.

    Notes
    -----
    In epoch :math:`t` of :math:`T`, counted from 0, the :math:`\pi_t n` easiest of :math:`n` samples are seen, with

    .. math:: \pi_t = \min\{1,\; \pi_0 + (1 - \pi_0)\, t / \lfloor T / 2 \rfloor\}. \tag{1}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import Curriculum, MLPClassifier, Training
    >>> X, y = load_iris(return_X_y=True)
    >>> plan = Training(epochs=60, learning_rate=0.02, curriculum=Curriculum("loss", start=0.5))
    >>> bool(MLPClassifier(training=plan, random_state=0).fit(X, y).score(X, y) > 0.9)
    True
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
                found.append(_each(objective.losses(module, batch), batch.weight).double().cpu())
        module.train()
        return torch.cat(found)

    def on_batch(self, batch: Batch, module: nn.Module, rng: torch.Generator) -> Batch:
        """Give the hardest samples no weight, if the pace is the batch's own."""
        if not isinstance(self.difficulty, str) or self.difficulty != "self-paced" or self.pace() >= 1:
            return batch
        with torch.no_grad(), self._learner.stream:
            losses = _each(self._learner.players[0].objective.losses(module, batch), batch.weight)
        kept = max(1, round(self.pace() * len(losses)))
        keep = (losses <= losses.kthvalue(kept).values).to(losses.dtype)
        old = batch.weight
        keep = keep if old is None else old * keep.reshape(-1, *[1] * (old.ndim - 1))
        return batch._replace(weight=keep)


def _each(losses: Tensor, weight: Tensor | None) -> Tensor:
    """Return one loss per sample: the mean over its parts, of which padding weighs nothing."""
    if losses.ndim == 1 or weight is None or weight.shape != losses.shape:
        return losses.reshape(len(losses), -1).mean(1)
    parts = weight.flatten(1)
    return (losses.flatten(1) * parts).sum(1) / parts.sum(1).clamp_min(torch.finfo(parts.dtype).tiny)
