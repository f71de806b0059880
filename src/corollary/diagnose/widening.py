"""Whether a wider view helps: the same net with wider windows, trained anew, beside one that was only trained anew.

What decides may lie beyond what a unit sees wherever it stands in an image, so that no fixed place is outside the view.
Then only an intervention tells: kernels become at least five wide, and dilation doubles from layer to layer.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.lab import Result
from corollary.diagnose.subject import quiet, redraw
from corollary.diagnose.trials import GOOD, Trials

__all__ = ["wider_view"]

KINDS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CLEAR = 0.15  # of what is possible, gained on held-out rows: other draws of one net differ by less
REACH = 12  # places that a widened net sees at least
RATE, LONGER = 5 * GOOD, 3  # a rate that suits small convolutional nets, and how much longer than other runs
SECONDS, LEAST = 1.5, 60  # of a run, and the steps below which nothing is learned


def wider_view(exam: Exam) -> None:
    """Train the net anew with and without wider windows."""
    s, lab = exam.subject, exam.lab
    if lab is None or s.output is None or exam.facts.get("untrained") or exam.facts.get("weights broken"):
        return
    settled = any(sure >= 0.75 for sure in exam.sure.values())
    chance = exam.performance.get("train chance", 0.0)
    score = exam.valid_score if math.isfinite(exam.valid_score) else exam.score
    fine = exam.fine and score > chance + CLEAR * (1 - chance)  # as good as others, and not because none can
    if settled or fine or not any(isinstance(m, KINDS) for m in s.net.modules()):
        return
    trials = exam.facts.setdefault("trials", Trials(exam))
    wide = _twin(exam, widen=True)
    if wide is None:
        return
    steps = int(min(LONGER * trials.steps, max(LEAST, SECONDS / lab._time_step(wide))))
    options = {"steps": steps, "rate": RATE, "anneal": True, "dropout": 0.0}
    b = _gain(lab.run("new, wider view", wide, **options), chance)
    a = _gain(lab.run("new, same view", _twin(exam, widen=False), **options), chance)
    exam.facts["same and wider view"] = [a, b]
    if b > a + CLEAR:
        said = f"trained anew with wider windows it gains {b:.2f} on rows it has not seen, with its own windows {a:.2f}"
        exam.find("receptive-field-too-small", a, said, where="convolutions", sure=0.85)


def _twin(exam: Exam, widen: bool) -> Any:
    """Return a copy with new weights; None where wider windows do not fit."""
    s = exam.subject
    with quiet(s.given):
        torch.manual_seed(0)
        net = s.twin("new")
        if widen and not widened(net):
            return None
        try:
            exam.lab.measure(net, exam.lab.watched)
        except (RuntimeError, ValueError, IndexError):
            return None
    for p in net.parameters():
        p.requires_grad_(p.is_floating_point())
    return net


def _gain(r: Result, chance: float) -> float:
    """Return the score above chance, as a share of what is possible, on held-out rows if there are any."""
    score = r.valid_score if math.isfinite(r.valid_score) else r.score
    return (score - chance) / max(1e-9, 1 - chance)


def widened(net: nn.Module) -> int:
    """Widen the windows of convolutions that keep their input's size, and return how many there were."""
    todo = [(parent, name, m) for parent in net.modules() for name, m in parent.named_children() if _plain(m)]
    least = max(5, 1 + 2 * math.ceil(REACH / 2 / (2 ** len(todo) - 1)))
    for depth, (parent, name, m) in enumerate(todo):
        k = tuple(max(least, side) for side in m.kernel_size)
        d = 2 ** min(depth, 3)
        made: Any = type(m)(
            m.in_channels, m.out_channels, k, padding=tuple(d * (side // 2) for side in k), dilation=d,
            groups=m.groups, bias=m.bias is not None,
        )  # fmt: skip
        redraw(made)
        setattr(parent, name, made)
    return len(todo)


def _plain(m: nn.Module) -> bool:
    """Whether a convolution keeps the size: stride one, odd windows, padded by their half."""
    if not isinstance(m, KINDS) or m.padding_mode != "zeros" or isinstance(m.padding, str):
        return False
    half = [d * (k - 1) // 2 for k, d in zip(m.kernel_size, m.dilation)]
    return set(m.stride) == {1} and all(k % 2 for k in m.kernel_size) and list(m.padding) == half
