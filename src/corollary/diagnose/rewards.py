"""What a loss rewards: the user's own function is asked about right answers, wrong ones and none, in several forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corollary.diagnose.exam import Exam
from corollary.diagnose.objectives import Criterion
from corollary.diagnose.samples import IGNORED, with_main

__all__ = [
    "best_output",
    "class_axis",
    "ideal",
    "one_sided",
    "softmax_inside",
    "takes_logits",
    "treats_as_numbers",
    "wanted",
]

UNIT = 1e-3  # how near to one the sums of probabilities are
# of logits, from sure to leaning; numbers compared with ones and zeros are best at one
SIZES = (6.0, 4.0, 2.5)
# the same, down to what a loss wants whose labels are smoothed by most of their weight
ASKED = (*SIZES, 1.0, 0.4)
SURE = (0.98, 0.6, 0.3)  # the same of probabilities: the part that is no even chance
FURTHER = 2.0  # times what the next class costs, that one half of all classes away costs of numbers only
ENDLESS = 60.0  # a logit whose softmax is one to the last place
NOUGHT = 1e-6  # stands for zero where a logarithm may be taken
POSITIVE = {"softplus", "relu", "exp"}  # a rate is made by them, not its logarithm
FEW = 0.05  # a count whose logarithm stands for that of none
PLAIN = 0.1  # of a loss: what right logits gain over right probabilities where a softmax comes after


def class_axis(z: Tensor, y: Tensor) -> int:
    """Return the axis of an output on which its classes lie."""
    if (
        z.ndim > 2
        and not y.is_floating_point()
        and z.shape[:-1] == y.shape
        and (z.shape[0], *z.shape[2:]) != tuple(y.shape)
    ):
        return z.ndim - 1
    return 1


def ideal(z: Tensor, y: Tensor) -> Tensor | None:
    """Return right answers in the form of an output: one where it should be sure, zero elsewhere; None where there is no such."""
    if not y.is_floating_point() and y.ndim == 2 and y.shape[1] == 1 and z.ndim == 2 and z.shape[1] > 1:
        y = y[:, 0]
    if not y.is_floating_point() and z.ndim == y.ndim + 1 and z.shape[class_axis(z, y)] > 1:
        axis = class_axis(z, y)
        k = z.shape[axis]
        made = F.one_hot(y.long().clamp(0, k - 1), k).float().movedim(-1, axis)
        return made if made.shape == z.shape else None
    if z.numel() != y.numel():
        return None
    t = y.reshape(z.shape).float()
    return torch.where(t == IGNORED, 0.0, t)


def takes_logits(criterion: Criterion, out: Any, z: Tensor, y: Tensor) -> bool:
    """Whether right logits are better than right probabilities by far: then the loss makes probabilities of what it gets."""
    right = ideal(z, y)
    if right is None or not bool(((right == 0) | (right == 1)).all()):
        return False
    nearly = right * (1 - 2e-6) + 1e-6
    try:
        with torch.no_grad():
            given = float(criterion(with_main(out, nearly.to(z)), y))
            logits = [float(criterion(with_main(out, (size * (2 * right - 1)).to(z)), y)) for size in SIZES]
    except Exception:
        return False
    least = min(logits)
    # a logarithm of numbers above one is below zero
    sound = bool(np.isfinite([given, *logits]).all()) and least >= 0
    return sound and (given - least > PLAIN or (given > PLAIN / 5 and least < given / 2))


def _logits(z: Tensor) -> bool:
    """Whether outputs go beyond what probabilities can be."""
    return bool(((z < 0) | (z > 1)).any())


def softmax_inside(criterion: Criterion, out: Any, z: Tensor, y: Tensor) -> bool:
    r"""Whether a loss takes the softmax or sigmoid of logits twice: the loss of right answers then ends at a known floor.

    For :math:`K` classes it is :math:`\log (e + K - 1) - 1` however sure the answers are, and one more for sure wrong ones.
    """
    right = ideal(z, y)
    if right is None or not bool(((right == 0) | (right == 1)).all()) or not _logits(z):
        return False
    axis = class_axis(z, y)
    several = right.ndim >= 2 and right.shape[axis] > 1 and right.ndim == y.ndim + 1
    wrong = right.roll(1, axis) if several else 1 - right
    try:
        with torch.no_grad():
            good, bad = (
                float(criterion(with_main(out, ENDLESS * (2 * o - 1).to(z)), y)) for o in (right, wrong)
            )
    except Exception:
        return False
    if several:
        floor = math.log(math.e + right.shape[axis] - 1) - 1
        ends = floor, floor + 1
    else:
        p, low, high = float(right.mean()), math.log(2), math.log1p(math.e)
        ends = p * (high - 1) + (1 - p) * low, p * low + (1 - p) * high
    return bad > 0 and abs(good / bad - ends[0] / ends[1]) < UNIT


def one_sided(criterion: Criterion, out: Any, z: Tensor, y: Tensor) -> tuple[list[int], list[int]] | None:
    """Return the classes towards which a loss draws outputs that say nothing, and all, if one is all that it asks for."""
    right = ideal(z, y)
    if right is None or not bool(((right == 0) | (right == 1)).all()) or not _logits(z):
        return None
    axis = class_axis(z, y)
    several = right.ndim >= 2 and right.shape[axis] > 1 and right.ndim == y.ndim + 1
    toward = right - 1 / right.shape[axis] if several else 2 * right - 1
    free = torch.zeros_like(right, dtype=torch.float32).requires_grad_(True)
    try:
        with torch.enable_grad():
            (g,) = torch.autograd.grad(criterion(with_main(out, free), y), free)
    except Exception:
        return None
    pull = -(g * toward).sum(axis) if several else -(g * toward)
    labels = right.argmax(axis) if several else right.long()
    drawn = {int(k): float(pull[labels == k].mean()) for k in labels.unique()}
    most = max(drawn.values())
    asked = [k for k, size in drawn.items() if size > UNIT * most]
    return (asked, sorted(drawn)) if most > 0 and len(drawn) >= 2 and len(asked) <= 1 else None


def best_output(exam: Exam, z: Tensor, y: Tensor) -> None:
    """Ask the user's loss about right outputs, as sure as it likes them best, about wrong ones and about none."""
    s = exam.subject
    if s.task == "regression" and not isinstance(s.output, Tensor):
        return  # which part is the answer is not known
    asked = _right_and_wrong(s.task, z, y)
    if asked is None:
        return
    right, none, wrong = asked
    mixed = [o[torch.from_numpy(np.random.default_rng(0).permutation(len(o)))] for o in right]
    with torch.no_grad():
        try:
            losses = [
                float(s.criterion(with_main(s.output, o.to(z)), y)) for o in (*right, none, *wrong, *mixed)
            ]
        except Exception:
            return
    sizes, flat = len(right), losses[len(right)]
    best = int(np.argmin(losses[:sizes]))
    good, bad, shuffled = losses[best], losses[sizes + 1 + best], losses[2 * sizes + 1 + best]
    exam.facts["loss of right, none, wrong"] = [good, flat, bad]
    slack = 1e-6 * (1 + abs(flat))
    cancels = not torch.equal(mixed[best], right[best]) and abs(shuffled - good) <= 1e-4 * abs(bad - good)
    over_rows = s.task == "classes" and _no_class_counts(exam, z, y, right[best], good, bad)
    sound = good <= bad - slack and good <= flat + slack and not cancels and not over_rows
    if sound or (s.task == "regression" and _rewards(exam, z, y)):
        _link(exam, z, y, good)
        return
    said = (
        f"the loss of right answers is {good:.3g}, of no answer {flat:.3g}, of wrong ones {bad:.3g}: "
        "it does not reward being right"
    )
    if cancels:
        said = f"the loss of right answers is {good:.3g}, and the same if they are given to other rows: errors cancel"
    if over_rows:
        said = "the loss stays the same if one class is favoured in all rows: its softmax runs over rows, not classes"
    exam.find("wrong-loss", good - bad, said, where="loss")


def _no_class_counts(exam: Exam, z: Tensor, y: Tensor, right: Tensor, good: float, bad: float) -> bool:
    """Whether outputs that favour one class in all rows are as good as right ones."""
    axis = class_axis(z, y)
    favour = torch.zeros([z.shape[axis] if i == axis else 1 for i in range(z.ndim)])
    favour.select(axis, 0).fill_(4 * SIZES[0])
    with torch.no_grad():
        favoured = float(exam.subject.criterion(with_main(exam.subject.output, (right + favour).to(z)), y))
    return abs(favoured - good) <= 1e-4 * abs(bad - good)


def treats_as_numbers(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """Whether a class far from the right one costs far more than the next one: then the loss takes classes for numbers."""
    right = ideal(z, y)
    if right is None or y.is_floating_point() or z.shape[class_axis(z, y)] < 4:
        return False
    k, steps = z.shape[class_axis(z, y)], (0, 1, z.shape[class_axis(z, y)] // 2)
    # the right class, the next one, and one half of all away
    away = [torch.where(y + d < k, y + d, y - d) for d in steps]
    outs = [SIZES[0] * made for t in away if (made := ideal(z, t)) is not None]
    try:
        with torch.no_grad():
            good, near, far = (
                float(exam.subject.criterion(with_main(exam.subject.output, o.to(z)), y)) for o in outs
            )
    except Exception:
        return False
    return bool(good < near < far) and far - good > FURTHER * (near - good)


def wanted(criterion: Criterion, classes: int) -> float:
    r"""Return the confidence that a loss rewards most where eight answers in ten are right; a proper one rewards 0.8.

    Ten rows say class :math:`k` with the same logits, eight of them rightly; the size of the logits with the least loss counts.
    """
    said = torch.arange(classes).repeat_interleave(10)
    true = (
        said
        + (torch.arange(10) >= 8).repeat(classes)
        * (1 + torch.arange(10) % max(1, classes - 1)).repeat(classes)
    ) % classes
    sizes = torch.linspace(0.1, 8, 80)
    losses = [float(criterion(size * F.one_hot(said, classes).float(), true)) for size in sizes]
    best = float(sizes[int(np.argmin(losses))].exp())
    return best / (best + classes - 1)


def _right_and_wrong(task: str, z: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor, list[Tensor]] | None:
    """Return right outputs, one that says nothing, and wrong ones, in the form of the net's own outputs.

    They come in several sizes: a loss with label smoothing is least at one that is less than sure.
    """
    if task == "classes" and not y.is_floating_point() and z.ndim >= 2:
        good = ideal(z, y)
        if good is None:
            return None
        axis = class_axis(z, y)
        k = z.shape[axis]
        bad, none = good.roll(1, axis), torch.zeros_like(good)
        if bool((z >= 0).all()) and float((z.sum(axis) - 1).abs().max()) < UNIT:  # probabilities
            return _mixed(good, 1 / k), none + 1 / k, _mixed(bad, 1 / k)
        if bool((z <= 0).all()) and float(z.logsumexp(axis).abs().max()) < UNIT:
            logs = [[(size * o).log_softmax(axis) for size in ASKED] for o in (good, bad)]
            return logs[0], none.log_softmax(axis), logs[1]
        return [size * good for size in ASKED], none, [size * bad for size in ASKED]
    if task not in ("regression", "binary", "multilabel") or z.numel() != y.numel():
        return None
    t = y.reshape(z.shape).float()
    if task == "regression":
        noise = torch.randn(t.shape, generator=torch.Generator().manual_seed(0)) * (float(t.std()) or 1.0)
        if _above_zero(z, y):
            return [t.clamp_min(NOUGHT)], (t + noise).abs(), [(t + 3 * noise).abs()]
        return [t], t + noise, [t + 3 * noise]
    if bool(((z >= 0) & (z <= 1)).all()):
        return _mixed(t, 0.5), torch.full_like(t, 0.5), _mixed(1 - t, 0.5)
    sides = 2 * t - 1
    return [size * sides for size in ASKED], torch.zeros_like(t), [-size * sides for size in ASKED]


def _mixed(p: Tensor, even: float) -> list[Tensor]:
    """Return probabilities that are nearer and nearer to even chances."""
    return [p * part + (1 - part) * even for part in SURE]


def _above_zero(z: Tensor, y: Tensor) -> bool:
    """Whether neither outputs nor targets are ever below zero: a loss may take their logarithm, and others are no answers."""
    return bool((z >= 0).all()) and bool((y >= 0).all())


def _rewards(exam: Exam, z: Tensor, y: Tensor) -> bool:
    """Whether the outputs that minimise a loss of numbers rise with the targets: they may be their logarithms."""
    shape = F.softplus if _above_zero(z, y) else torch.clone
    free = torch.zeros_like(z).requires_grad_(True)
    descent = torch.optim.Adam([free], 0.1)
    with torch.enable_grad():
        for _ in range(100):
            descent.zero_grad()
            loss = exam.subject.criterion(shape(free), y)
            if not loss.requires_grad or not bool(torch.isfinite(loss)):
                return False
            loss.backward()
            descent.step()
    a, b = free.detach().reshape(-1).numpy(), y.reshape(-1).float().numpy()
    rank = lambda v: v.argsort().argsort()  # noqa: E731
    distinct = len(np.unique(b)) > 1 and float(a.std()) > 1e-6
    return bool(distinct and np.corrcoef(rank(a + 1e-9 * b), rank(b))[0, 1] > 0.9)


def _link(exam: Exam, z: Tensor, y: Tensor, good: float) -> None:
    """Note that outputs are logarithms of the answers where a loss of numbers, none below zero, is less for those."""
    if exam.subject.task != "regression" or not bool((y >= 0).all()):
        return
    logs = y.reshape(z.shape).float().clamp_min(FEW).log()
    with torch.no_grad():
        least = float(exam.subject.criterion(with_main(exam.subject.output, logs), y))
    exam.subject.criterion.logarithms = least < good
    if least < good and exam.last_call in POSITIVE:
        said = f"outputs come from {exam.last_call} and are never below zero, and the loss takes them for logarithms"
        exam.find("wrong-loss", least, said, where="loss", repair={"log_input": False})
    exam.__dict__.pop("performance", None)  # was told on another scale
