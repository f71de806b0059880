"""Does the repair repair? The model is trained for a bounded time as it is and with the repair, from the same start."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Lab
from corollary.diagnose.objectives import NAMES, Criterion, criterion_of, labels_of
from corollary.diagnose.samples import Samples, main_output
from corollary.diagnose.subject import Subject, quiet, redraw

__all__ = ["PROVABLE", "proved"]

SECONDS = 4.0  # of either training
LEAST, MOST = 60, 1500  # steps of either
PARTS = 12  # looks at validation, where the repair is to stop early
SETTINGS = ("learning_rate", "weight_decay", "dropout", "batch_size", "clip_norm")
DATA = ("standardise_inputs", "standardise_targets", "drop_columns", "roll_targets")
OTHER = ("class_weight", "loss", "initialise", "requires_grad", "zero_grad", "early_stopping", "temperature")
PROVABLE = (*SETTINGS, *DATA, *OTHER)


def proved(exam: Exam, repair: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of both trainings and the gain; only ``said`` where settings alone cannot repair."""
    used = {k: v for k, v in repair.items() if k in PROVABLE}
    if not used or exam.lab is None or exam.subject.output is None:
        return {"said": "what was found is not mended by settings alone, so that nothing was trained"}
    if "temperature" in used and len(used) == 1:
        return _tempered(exam, used["temperature"])
    steps = exam.lab.steps_for(SECONDS, LEAST, MOST)
    given = Training(exam, exam.subject, exam.lab, steps)
    mended = Training(exam, repaired(exam.subject, used), None, steps)
    stops = "early_stopping" in used
    kept = exam.subject.twin() if stops or (_of_start(used) and exam.subject.initial is None) else None
    before = given.measured(kept) if stops else given.run(kept)
    after = mended.run(options=used)
    found: dict[str, Any] = {"changed": used, "steps": 0 if stops else steps}
    for key in ("score", "balanced score", "validation score", "validation balanced score"):
        if math.isfinite(before.get(key, math.nan)) and math.isfinite(after.get(key, math.nan)):
            found[f"{key} as it is"], found[f"{key} repaired"] = before[key], after[key]
    balanced = "balanced " if "class_weight" in used else ""
    key = (
        f"validation {balanced}score"
        if f"validation {balanced}score as it is" in found
        else f"{balanced}score"
    )
    if f"{key} as it is" in found:
        found["gain"] = found[f"{key} repaired"] - found[f"{key} as it is"]
    elif not {*DATA, "loss"} & set(used):  # the loss alone tells, where it is the same
        key = "validation loss" if math.isfinite(before.get("validation loss", math.nan)) else "loss"
        found[f"{key} as it is"], found[f"{key} repaired"] = before[key], after[key]
        found["gain"] = before[key] - after[key]
    return found


def _of_start(used: dict[str, Any]) -> bool:
    return bool({"initialise", "requires_grad"} & set(used))


def repaired(subject: Subject, used: dict[str, Any]) -> Subject:
    """Return the subject with repaired data and loss."""
    train, valid = subject.train, subject.valid
    for change in _data_changes(subject, used):
        train, valid = change(train), None if valid is None else change(valid)
    if "roll_targets" in used and isinstance(train.y, Tensor):
        shift = int(used["roll_targets"])
        train = replace(train, y=train.y.flip(0) if shift == 0 else train.y.roll(-shift, 0))
    other = object.__new__(Subject)
    other.__dict__.update(subject.__dict__)
    other.train, other.valid = train, valid
    if used.get("loss") in NAMES:
        other.criterion = criterion_of(used["loss"], main_output(subject.output), train.y, train.x)
    if "class_weight" in used:
        other.criterion = _weighted(subject.criterion, used["class_weight"])
    return other


def _data_changes(subject: Subject, used: dict[str, Any]) -> list[Callable[[Samples], Samples]]:
    """Return the changes of the data, fitted on training rows, dropped columns as zeros."""
    changes: list[Callable[[Samples], Samples]] = []
    x, y = subject.train.x, subject.train.y
    if "drop_columns" in used and isinstance(x, Tensor):
        keep = torch.ones(x.shape[-1])
        keep[[c for c in used["drop_columns"] if c < x.shape[-1]]] = 0
        changes.append(lambda s: s.replaced(s.x * keep.to(s.x)))
    if "standardise_inputs" in used and isinstance(x, Tensor):
        dims = (0,) if x.ndim <= 2 else (0, 1) if x.ndim == 3 else (0, *range(2, x.ndim))
        mean, std = x.float().mean(dims, keepdim=True), x.float().std(dims, keepdim=True).clamp_min(1e-8)
        changes.append(lambda s: s.replaced((s.x - mean.to(s.x)) / std.to(s.x)))
    if "standardise_targets" in used and isinstance(y, Tensor):
        centre, scale = y.float().mean(0), y.float().std(0).clamp_min(1e-12)
        changes.append(lambda s: replace(s, y=(s.y.float() - centre) / scale))
    return changes


def _weighted(criterion: Criterion, weights: dict[int, float]) -> Criterion:
    size = max(int(k) for k in weights) + 1
    w = torch.ones(size)
    for k, v in weights.items():
        w[int(k)] = float(v)

    def loss(out: Any, target: Tensor) -> Tensor:
        z = main_output(out)
        if criterion.task == "binary":
            each = w.to(z)[target.reshape(-1).long()]
            target = target.reshape(z.shape).to(z)
            return F.binary_cross_entropy_with_logits(z, target, weight=each.reshape(z.shape))
        return F.cross_entropy(z, target.long(), weight=w[: z.shape[1]].to(z))

    return Criterion("custom", criterion.task, loss, True)


class Training:
    """One of the two trainings."""

    def __init__(self, exam: Exam, subject: Subject, lab: Lab | None, steps: int) -> None:
        self.exam, self.subject, self.steps = exam, subject, steps
        self.lab = lab or Lab(subject, float("inf"))
        self.lab.deadline = float("inf")

    def run(self, net: nn.Module | None = None, options: dict[str, Any] | None = None) -> dict[str, float]:
        """Train as given, or with the repaired settings, and measure."""
        used, s = options or {}, self.subject.settings
        if net is None:
            net = self._start(used)
        if not used and self.subject.step is not None:
            return self._own_steps(net)
        if "requires_grad" in used:
            for p in net.parameters():
                p.requires_grad_(p.is_floating_point())
        decay = used.get("weight_decay", s.weight_decay or 0.0)
        plan = {
            "optimizer": s.optimizer or "adam", "rate": used.get("learning_rate", s.learning_rate or 1e-3),
            "weight_decay": decay, "momentum": s.momentum, "decoupled": s.decoupled,
            "batch_size": min(512, used.get("batch_size", s.batch_size or 32)), "clip_norm": used.get("clip_norm"),
            "dropout": used.get("dropout"),
        }  # fmt: skip
        if "early_stopping" in used:
            return self._best(net, plan)
        self.lab.run("repaired" if used else "as it is", net, steps=self.steps, **plan)
        return self.measured(net)

    def _start(self, used: dict[str, Any]) -> nn.Module:
        s = self.subject
        with quiet(s.given):
            torch.manual_seed(0)
            net = s.twin("initial" if s.initial is not None else "new")
            if "initialise" in used:
                redraw(net)
        frozen = s.settings.trained
        for p, own in zip(net.parameters(), s.given.parameters()):
            p.requires_grad_(own.requires_grad and (not frozen or id(own) in frozen))
        return net

    def _own_steps(self, net: nn.Module) -> dict[str, float]:
        """Train by the user's own update."""
        s = self.subject
        size = min(len(self.lab.pool), s.settings.batch_size or 32)
        rng = np.random.default_rng(7)
        net.train()
        with quiet(net), torch.enable_grad():
            for _ in range(self.steps):
                rows = self.lab._batch(rng, size)
                s.step(net, (rows.inputs, rows.y))
        return self.measured(net)

    def _best(self, net: nn.Module, plan: dict[str, Any]) -> dict[str, float]:
        """Train in parts and return what was measured where validation was best."""
        best, chosen = float("inf"), {}
        for part in range(PARTS):
            result = self.lab.run(f"part {part}", net, steps=max(5, self.steps // PARTS), **plan)
            if result.valid_loss < best:
                best, chosen = result.valid_loss, self.measured(net)
        return chosen or self.measured(net)

    def measured(self, net: nn.Module | None) -> dict[str, float]:
        """Return the scores of a net on training and validation rows."""
        assert net is not None
        s, found = self.subject, {}
        for name, samples in (("", self.lab.watched), ("validation ", self.lab.held)):
            if samples is None:
                continue
            found[f"{name}loss"], found[f"{name}score"] = self.lab.measure(net, samples)
            if s.task in ("classes", "binary"):
                with torch.no_grad(), quiet(net):
                    z = main_output(s.call(net.eval(), samples))
                keep = samples.counted
                z, y = (z[keep], samples.y[keep]) if samples.whole else (z, samples.y)
                said, true, _ = labels_of(z, y, s.task)
                recalls = [float((said[true == c] == c).mean()) for c in np.unique(true)]
                found[f"{name}balanced score"] = float(np.mean(recalls)) if recalls else math.nan
        return found


def _tempered(exam: Exam, t: float) -> dict[str, Any]:
    """Return the held-out calibration with and without the temperature."""
    from corollary.diagnose.calibration import expected_error

    s = exam.subject
    samples = s.valid if s.valid is not None else s.train
    with torch.no_grad(), quiet(s.net):
        z = main_output(s.call(s.net.eval(), samples)).float()
    found: dict[str, Any] = {"changed": {"temperature": t}}
    for name, logits in (("as it is", z), ("repaired", z / t)):
        said, true, confidence = labels_of(logits, samples.y, s.task)
        found[f"calibration error {name}"] = expected_error(confidence, said == true)[0]
    found["gain"] = found["calibration error as it is"] - found["calibration error repaired"]
    return found
