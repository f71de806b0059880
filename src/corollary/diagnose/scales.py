"""Sizes of inputs and targets: far from one, the start and the step size fit neither."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.columns import columns
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import IGNORED, Samples, main_output
from corollary.diagnose.trace import NORMS, WEIGHTED
from corollary.diagnose.trials import Trials

__all__ = ["scaled_inputs", "unscaled_inputs", "unscaled_targets"]

LARGE, SMALL = 8.0, 0.02  # sizes of an input beyond which it is looked at; between them a default start fits
BEHIND = 0.2  # of what is possible, that makes columns suspect which are far smaller than others
APART = 30.0  # times that one target varies as much as another
PLAIN = 30.0  # from here on no confirmation is needed: the condition number is near a thousand


def sizes(x: Tensor) -> np.ndarray:
    """Return the typical size of every feature: median and middle spread, which few extreme values do not move."""
    flat = columns(x)
    middle = np.median(flat, 0)
    low, high = np.percentile(flat, [10, 90], axis=0)
    spread = (high - low) / 2.56
    rare = spread <= 0
    spread = np.where(rare, flat.std(0), spread)
    return np.sqrt(middle**2 + spread**2)


def unscaled_inputs(exam: Exam) -> None:
    """Features whose size, where they enter the first weights, is far from one; of further inputs, as they are given."""
    s = exam.subject
    x = s.train.x
    _further(exam)
    if not isinstance(x, Tensor) or not x.is_floating_point() or s.train.n < 4:
        return
    entering = x
    if exam.trace is not None:
        names = WEIGHTED | NORMS | {"matmul", "mm"}
        for c in exam.trace.calls:
            if c.name in names:
                if c.name in NORMS:
                    return
                if (
                    isinstance(c.entered, Tensor)
                    and c.entered.is_floating_point()
                    and c.name not in ("matmul", "mm")
                ):
                    entering = c.entered
                break
        if entering is not x and entering.shape[1:] != x.shape[1:]:
            entering = x if entering.numel() < x.numel() / 8 else entering
    if entering.ndim > x.ndim:
        entering = x
    typical = sizes(entering)
    typical = typical[typical > 0]
    if not len(typical):
        return
    apart = entering.ndim == 2 and _apart(entering) and _fails(exam)
    largest, middle = float(typical.max()), float(np.median(typical))
    smallest = float(np.percentile(typical, 5))
    exam.facts["input size"] = [smallest, middle, largest]
    where = f"column {int(np.argmax(sizes(entering)))}" if entering.ndim == 2 else "X"
    said = f"features that enter the first weights are of size {smallest:.3g} to {largest:.3g}; a start expects about 1"
    repair = {"standardise_inputs": True}
    evidence = {"sizes": sizes(entering)[:200]}
    if largest > PLAIN or largest < SMALL / 10:
        exam.find("unscaled-inputs", largest, said, where=where, evidence=evidence, repair=repair)
    elif largest > LARGE or largest < SMALL or apart:
        exam.facts["scale suspected"] = (largest, said, where, evidence, repair, 0.7 if apart else 0.9)


def _apart(x: Tensor) -> bool:
    """Whether a column that varies from row to row, not in some rows only as a pixel near a border does, is far smaller."""
    flat, typical = columns(x), sizes(x)
    varies = np.diff(np.percentile(flat, [10, 90], axis=0), axis=0)[0] > 0
    return bool(varies.any() and typical[varies].min() < SMALL * np.median(typical))


def _fails(exam: Exam) -> bool:
    """Whether simple models, which see every column in its own scale, are far ahead."""
    base = exam.baselines
    return base is not None and bool(base.held) and base.gain > exam.gain + BEHIND


def _further(exam: Exam) -> None:
    """Real inputs beside the first one that nothing normalises."""
    samples = exam.subject.train
    if samples.whole or exam.trace is None:
        return
    normed = [
        tuple(c.entered.shape[1:])
        for c in exam.trace.calls
        if c.name in NORMS and isinstance(c.entered, Tensor)
    ]
    for name, t in samples.named:
        rows = t.ndim >= 2 and len(t) == samples.n and t.is_floating_point() and t.layout == torch.strided
        if t is samples.x or not rows or tuple(t.shape[1:]) in normed:
            continue
        typical = sizes(t)
        largest = float(typical.max(initial=0.0))
        if largest > PLAIN or 0 < largest < SMALL / 10:
            said = f"features of {name} are of size {typical.min():.3g} to {largest:.3g}; a start expects about 1"
            where = f"{name}, column {int(typical.argmax())}" if t.ndim == 2 else name
            exam.find("unscaled-inputs", largest, said, where=where, evidence={"sizes": typical[:200]})


def unscaled_targets(exam: Exam) -> None:
    """Real targets that are far from the size of outputs at the start."""
    s = exam.subject
    y = s.train.y
    if s.task != "regression" or not isinstance(y, Tensor) or not y.is_floating_point():
        return
    y = y.reshape(len(y), -1).float()
    y = y[(y != IGNORED).all(1)]
    size = float(sizes(y).max())
    std = float(y.std(0, unbiased=False).max())
    exam.facts["target size"] = size
    large, small = size > 10, std < 0.02
    if not large and not small:
        return
    score = exam.valid_score if np.isfinite(exam.valid_score) else exam.score
    reachable = exam.baselines.score if exam.baselines is not None and exam.baselines.held else 0.5
    if np.isfinite(score) and score > max(0.5, reachable - 0.1):
        _drowned(exam)
        return  # the net undoes the scale itself
    said = (
        f"targets are of size {size:.3g} with deviation {std:.3g}; outputs start near 1, and explain "
        f"{score:.2f} of their variance"
    )
    exam.find("unscaled-targets", size if large else std, said, where="y", sure=1.0 if size > 30 or small else 0.85,
              repair={"standardise_targets": True})  # fmt: skip


def _drowned(exam: Exam) -> None:
    """Whether one of several targets varies so much more than another that the loss follows it alone."""
    s = exam.subject
    z, y = main_output(s.output), s.train.y
    if (
        s.criterion.name not in ("mse", "l1")
        or not isinstance(z, Tensor)
        or z.shape != y.shape
        or y.ndim != 2
    ):
        return
    z, y = z.detach().float().cpu(), y.detach().float().cpu()
    keep = (y != IGNORED).all(1)
    z, y = z[keep], y[keep]
    spread = y.var(0, unbiased=False)
    told = 1 - (z - y).square().mean(0) / spread.clamp_min(1e-30)
    apart = (spread.max() / spread.clamp_min(1e-30)).sqrt()
    behind = (apart > APART) & (told < told[spread.argmax()] - BEHIND) & (spread > 0)
    if not bool(behind.any()):
        return
    column = int(torch.where(behind, told, torch.inf).argmin())
    said = (
        f"target {column} varies {float(apart[column]):.3g} times less than another, which the loss follows: "
    )
    said += f"{float(told[column]):.2f} of its variance is explained, {float(told[spread.argmax()]):.2f} of the other's"
    exam.find("unscaled-targets", float(apart[column]), said, where=f"y, column {column}",
              repair={"standardise_targets": True})  # fmt: skip


def scaled_inputs(exam: Exam) -> None:
    """Whether inputs of unusual size slow the descent down: the same start with them standardised."""
    suspected = exam.facts.get("scale suspected")
    s = exam.subject
    if suspected is None or exam.lab is None or exam.has("unscaled-inputs"):
        return
    size, said, where, evidence, repair, sure = suspected
    trials = exam.facts.get("trials") or Trials(exam)
    raw = trials.good("new, raw", "new")
    x = s.train.x.float()
    steps = 2 if exam.steps_last else 1
    dims = (0,) if x.ndim == 2 else (0, steps) if x.ndim == 3 else (0, *range(2, x.ndim))
    mean, std = x.mean(dims, keepdim=True), x.std(dims, keepdim=True).clamp_min(1e-8)

    def change(samples: Samples) -> Samples:
        return samples.replaced((samples.x - mean.to(samples.x)) / std.to(samples.x))

    even = trials.good("new, scaled", "new", change=change)
    exam.facts["scaled run"] = [raw.loss, even.loss]
    if even.loss < 0.7 * raw.loss or not math.isfinite(raw.loss):
        exam.find("unscaled-inputs", size, f"{said}; standardised the loss is {even.loss:.3g} instead of {raw.loss:.3g}",
                  where=where, evidence=evidence, repair=repair, sure=sure)  # fmt: skip
