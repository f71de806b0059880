"""Whether a wider view helps: the same net with wider windows, trained anew, beside one that was only trained anew.

What decides may lie beyond what a unit sees wherever it stands in an image or a text, so that no fixed place is outside the
view. Then only an intervention tells: kernels become at least five wide, and dilation doubles from layer to layer. Padding
grows with them, so that every layer keeps the size of its output.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from corollary.diagnose.baselines import foretells
from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.subject import quiet, redraw
from corollary.diagnose.trials import GOOD, Trials

__all__ = ["say_view", "views", "wider_view"]

KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CLEAR = 0.15  # of what is possible, gained on held-out rows: other draws of one net differ by less
# places that a widened net sees at least; of a second try, half of what there is up to this
REACH, FURTHER = (12, 32)
# the same where it halves what is wrong, and standard errors of it
HALVED, SURE = 0.05, 4.0
ENOUGH = 0.85  # of what is possible, from which a place by itself tells what it is
RATE, LONGER = 5 * GOOD, 3  # a rate that suits small convolutional nets, and how much longer than other runs
SECONDS, LEAST = 1.5, 60  # of a run, and the steps below which nothing is learned


def wider_view(exam: Exam) -> None:
    """Train the net anew with and without wider windows, where it does less than it should."""
    s, lab = exam.subject, exam.lab
    if lab is None or s.output is None or exam.facts.get("untrained") or exam.facts.get("weights broken"):
        return
    settled = any(sure >= 0.75 for sure in exam.sure.values())
    chance = exam.performance.get("train chance", 0.0)
    score = exam.valid_score if math.isfinite(exam.valid_score) else exam.score
    blind = not any(side for pair in exam.facts.get("receptive field", ((1, 1),)) for side in pair)
    # as good as others, and not because none can
    fine = exam.fine and not (blind and exam.gain < ENOUGH) and score > chance + CLEAR * (1 - chance)
    if settled or fine or not any(isinstance(m, KINDS) for m in s.net.modules()):
        return
    found = views(exam)
    if found is not None and (found[1] > found[0] + CLEAR or _halves(exam, *found)):
        say_view(exam, *found)


def _halves(exam: Exam, own: float, wide: float) -> bool:
    """Whether wider windows leave less than half of what is wrong, by more rows than chance makes differ."""
    rows = int((exam.lab.held or exam.lab.watched).counted.sum())
    luck = math.sqrt(max(0.0, own * (1 - own)) / max(1, rows))
    return wide - own > max(HALVED, SURE * luck) and 1 - wide < 0.5 * (1 - own)


def views(exam: Exam) -> tuple[float, float] | None:
    """Return what the net gains, trained anew, with its own windows and with wider ones; None where these do not fit."""
    lab = exam.lab
    s = exam.subject
    if not any(isinstance(m, KINDS) for m in s.net.modules()) or foretells(s.train.x, s.train.y):
        return None  # what comes next would be in view
    if exam.trace is not None and exam.trace.attends:
        return (
            None  # a convolution that cuts an image into patches sees little, and all that follows everything
        )
    chance = exam.performance.get("train chance", 0.0)
    trials = exam.facts.setdefault("trials", Trials(exam))
    wide = _twin(exam, REACH)
    if wide is None:
        return None
    steps = int(min(LONGER * trials.steps, max(LEAST, SECONDS / lab.cost_of_step(wide))))
    options: dict[str, Any] = {"steps": steps, "rate": RATE, "anneal": True, "dropout": 0.0}
    a = _gain(lab.run("new, same view", _twin(exam), **options), chance)
    b = _gain(lab.run("new, wider view", wide, **options), chance)
    further = _twin(exam, min(FURTHER, max(exam.subject.train.x.shape[1:]) // 2)) if b < a + CLEAR else None
    if further is not None:
        b = max(b, _gain(lab.run("new, much wider view", further, **options), chance))
    exam.facts["same and wider view"] = [a, b]
    return a, b


def say_view(exam: Exam, a: float, b: float) -> None:
    """Note that wider windows gain more."""
    said = f"trained anew with wider windows it gains {b:.2f} on rows it has not seen, with its own windows {a:.2f}"
    exam.find("receptive-field-too-small", a, said, where="convolutions", sure=0.85)


def _twin(exam: Exam, reach: int = 0) -> Any:
    """Return a copy with new weights, if asked for with windows that reach so far; None where these do not fit."""
    s = exam.subject
    with quiet(s.given):
        torch.manual_seed(0)
        net = s.twin("new")
        if reach and not widened(net, reach, every=_one_answer(s.train.y)):
            return None
        try:
            exam.lab.measure(net, exam.lab.watched)
        except (RuntimeError, ValueError, IndexError):
            return None
    for p in net.parameters():
        p.requires_grad_(p.is_floating_point())
    return net


def _one_answer(y: Any) -> bool:
    """Whether there is one answer for all that the net is given; of many, some may not be allowed to see all of it."""
    return isinstance(y, Tensor) and y[0].numel() == 1


def _gain(r: Result, chance: float) -> float:
    """Return the score above chance, as a share of what is possible, on held-out rows if there are any."""
    score = r.valid_score if math.isfinite(r.valid_score) else r.score
    return (score - chance) / max(1e-9, 1 - chance)


def widened(net: nn.Module, reach: int = REACH, every: bool = True) -> int:
    """Widen the windows of convolutions, or only of those that keep their input's size, and return how many there were."""
    todo = [
        (parent, name, m)
        for parent in net.modules()
        for name, m in parent.named_children()
        if isinstance(m, KINDS) and (every or (_keeps_size(m) and set(m.stride) == {1}))
    ]
    least = max(5, 1 + 2 * math.ceil(reach / 2 / (2 ** len(todo) - 1))) if todo else 0
    for depth, (parent, name, m) in enumerate(todo):
        setattr(parent, name, _wider(m, least, 2 ** min(depth, 3)))
    return len(todo)


def _wider(m: Any, least: int, dilation: int) -> nn.Module:
    """Return a convolution with windows of at least such a length and dilation, and outputs of the same size."""
    kernel, spread, padding = [], [], []
    for k, d, lost in zip(m.kernel_size, m.dilation, _lost(m)):
        d, k = max(d, dilation), max(k, least)
        d += lost % 2 and 1 - d % 2  # an odd number of places can only be made up for by an odd dilation
        k += (d * (k - 1) - lost) % 2
        kernel.append(k)
        spread.append(d)
        padding.append((d * (k - 1) - lost) // 2)
    made: Any = next(kind for kind in KINDS if isinstance(m, kind))(
        m.in_channels, m.out_channels, tuple(kernel), stride=m.stride, padding=tuple(padding), dilation=tuple(spread),
        groups=m.groups, bias=m.bias is not None, padding_mode=m.padding_mode,
    )  # fmt: skip
    redraw(made)
    return made


def _lost(m: Any) -> list[int]:
    """Return by how many places the output is shorter than the input along each side, at stride one."""
    windows = [d * (k - 1) for k, d in zip(m.kernel_size, m.dilation)]
    if isinstance(m.padding, str):
        return windows if m.padding == "valid" else [0] * len(windows)
    return [w - 2 * p for w, p in zip(windows, m.padding)]


def _keeps_size(m: Any) -> bool:
    """Whether windows are odd and padded by their half."""
    return all(k % 2 for k in m.kernel_size) and not any(_lost(m))
