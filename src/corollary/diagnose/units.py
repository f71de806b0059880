"""Units that hardly answer: rectified ones that are zero on all rows, squashing ones at their ends.

They are looked for where the weights are now and, if it is known, where they began.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary.diagnose.descent import abnormal
from corollary.diagnose.exam import Exam
from corollary.diagnose.flow import far_away
from corollary.diagnose.lab import Result
from corollary.diagnose.subject import quiet
from corollary.diagnose.trace import SQUASHERS, WEIGHTED, Call, Trace, rms
from corollary.diagnose.trials import Trials
from corollary.diagnose.weights import can_stand_out, like_a_draw, untouched, weights_state

__all__ = ["dead_units", "doubtful_units", "saturated"]

FLAT = 0.99  # |tanh| from which its slope is below 0.02; of a sigmoid the same after 2 s - 1
ENDED = 0.35  # share of a layer's activations at their ends that no usual start has
MILD = 0.8  # how sure it is where less than half of the activations are at their ends
FAR = 4.0  # times the size that weights are drawn with
CELLS = {"lstm", "gru", "rnn_tanh"}
# standard errors: of k rows that differ, all for one of two models, the difference is k +- sqrt(k)
CLEAR = 3.0
MANY = 8  # units that all lie on one side by chance in less than one of a hundred layers
BEYOND = 0.2  # share of dead units above that of a usual start: three deviations of a layer of 40


def dead_shares(t: Trace) -> list[tuple[str, float, int, float]]:
    """Return for every rectified layer the share of its units that are zero on all rows, their number, and how far below zero."""
    found = []
    for c in t.hidden:
        if c.name in ("relu", "relu6") and c.out.ndim >= 2:
            h = c.units
            dead = (h <= 0).all(0)
            depth = 0.0
            if bool(dead.any()) and isinstance(c.entered, Tensor) and c.entered.shape == c.out.shape:
                before = Call(c.name, c.where, c.entered, None, convolved=c.convolved).units[:, dead]
                depth = float(before.mean(0).abs().median())
            found.append((c.where, float(dead.float().mean()), h.shape[1], depth))
    return found


def dead_units(exam: Exam) -> None:
    """Rectified units that are zero for every row, beyond those that a usual start has on these data."""
    t, s = exam.trace, exam.subject
    if t is None:
        return
    shares = [r for r in dead_shares(t) if not _held(exam, r[0], r[2])]
    exam.facts["dead"] = shares
    if not shares:
        return
    total = sum(r[2] for r in shares)
    overall = sum(r[1] * r[2] for r in shares) / max(1, total)
    at = max(range(len(shares)), key=lambda i: shares[i][1])
    where, worst, width, depth = shares[at]
    if worst <= 0.3:
        return
    began = None
    if s.initial is not None:
        began = max((r[1] for r in dead_shares(exam.traced(s.twin("initial")))), default=0.0)
    usual = _usually_dead(exam)
    exam.facts["dead at the start"], exam.facts["dead at a usual start"] = began, usual
    said = f"{worst:.0%} of the {width} units of {where or 'a rectified layer'} are zero on all rows"
    said += f"; with new weights {usual:.0%} are" + (
        "" if began is None else f", at the start {began:.0%} were"
    )
    well = exam.fine
    sure = 0.0
    if began is not None:
        if began > max(0.3, usual + BEYOND) and not (well and worst < 0.6):
            sure = 0.95
        elif worst > max(0.5, usual + BEYOND) and not well and math.isfinite(exam.score):
            sure = 0.5  # died on the way: something else killed them, if the model is known to fail
    elif (worst > 0.5 or overall > 0.4) and worst > usual + BEYOND:
        # they died on the way
        late = depth <= 0.5 or (_travelled(exam) and not _never_moved(exam, where, width))
        sure = 0.0 if well and worst < 0.7 else 0.5 if late else 0.85
    if sure:
        exam.find("dead-units", worst, said, where=where, sure=sure, repair={"initialise": "kaiming"},
                  evidence={"layers": [r[0] for r in shares], "dead": [r[1] for r in shares]})  # fmt: skip


def _travelled(exam: Exam) -> bool:
    """Whether the weights are far larger than any usual start, so that what one sees came with the descent."""
    state = weights_state(exam)
    return state.ratio > 2 or state.largest > 4


def _driven(exam: Exam, where: str) -> bool:
    """Whether the weights into a layer are far larger than any usual start and have the form that gradients give them."""
    calls = exam.trace.calls
    at = next((i for i, c in enumerate(calls) if c.where == where and c.name in SQUASHERS | CELLS), None)
    module = None if at is None else _fed_by(exam, at)
    matrices = [] if module is None else [p for p in module.parameters(recurse=False) if p.ndim >= 2]
    far = [p for p in matrices if rms(p) * math.sqrt(3 * p[0].numel()) > FAR and can_stand_out(p)]
    return bool(far) and not any(like_a_draw(p) for p in far)


def _came_late(exam: Exam, where: str, began: float | None) -> bool:
    """Whether units came to their ends on the way, by a descent that went too far; at a usual rate their start is why it did."""
    if began is not None:
        return began <= ENDED
    usual = abnormal(exam).get("learning-rate-too-large", 1.0) <= 0
    return (far_away(exam) or (not usual and _driven(exam, where))) and not _held_by_biases(exam, where)


def _held_by_biases(exam: Exam, where: str) -> bool:
    """Whether biases alone hold most units of a layer at an end, all at the same one: descents move them both ways."""
    calls = exam.trace.calls
    at = next((i for i, c in enumerate(calls) if c.where == where and c.name in SQUASHERS), None)
    fed = None if at is None else _fed_by(exam, at)
    b = getattr(fed, "bias", None)
    if not isinstance(b, Tensor) or len(b) < MANY:
        return False
    b = b.detach().float()
    ends = b.sigmoid() * 2 - 1 if calls[at].name in ("sigmoid", "hardsigmoid") else b.tanh()
    return bool((b > 0).all() or (b < 0).all()) and float(ends.abs().median()) > FLAT


def _fed_by(exam: Exam, at: int) -> nn.Module | None:
    """Return the module with the last weights before a call."""
    name = next((c.where for c in reversed(exam.trace.calls[: at + 1]) if c.name in WEIGHTED), None)
    return None if name is None else dict(exam.subject.net.named_modules()).get(name)


def _rectified(exam: Exam, where: str, width: int) -> tuple[Call, nn.Module | None]:
    """Return the call of a rectifier, and the module with the weights before it."""
    calls = exam.trace.calls
    at = next(
        i
        for i, c in enumerate(calls)
        if c.where == where and c.name in ("relu", "relu6") and c.units.shape[1] == width
    )
    return calls[at], _fed_by(exam, at)


def _held(exam: Exam, where: str, width: int) -> bool:
    """Whether units are held as another training left them: no change of this one revives them."""
    if exam.facts.get("frozen", {}).get("random", 1.0):
        return False
    weight = getattr(_rectified(exam, where, width)[1], "weight", None)
    return isinstance(weight, Tensor) and not weight.requires_grad


def _never_moved(exam: Exam, where: str, width: int) -> bool:
    """Whether the weights into dead units are as torch draws them: no gradient has ever reached these units."""
    call, module = _rectified(exam, where, width)
    dead = (call.units <= 0).all(0)
    W = getattr(module, "weight", None)
    if not isinstance(W, Tensor) or len(W) != width:
        return False
    return untouched(module, W[dead.to(W.device)], "weight") is True


def _usually_dead(exam: Exam) -> float:
    """Return the largest share of a layer that is dead under new weights: rows that are alike leave half of it dead."""
    found = []
    for seed in range(2):
        with quiet(exam.subject.given):
            torch.manual_seed(seed)
            net = exam.subject.twin("new")
        found.append(max((r[1] for r in dead_shares(exam.traced(net))), default=0.0))
    return float(np.mean(found))


def doubtful_units(exam: Exam) -> None:
    """Whether dead or saturated units hold the model back: if so, the same net learns more from new weights than from these."""
    began = (("dead-units", "dead at the start", 1.0), ("saturated-units", "saturated at the start", MILD))
    asked = [
        cause
        for cause, fact, most in began
        if 0.6 <= exam.sure.get(cause, 0.0) <= most and not (exam.facts.get(fact) or 0.0) > 0.3
    ]
    if not asked or exam.lab is None or exam.subject.output is None:
        return
    trials = exam.facts.setdefault("trials", Trials(exam))
    long = {"rate": 3e-3, "steps": 3 * trials.steps}
    here, new = trials.good("long", **long), trials.good("new long", "new", **long)
    exam.facts["from here and anew"] = [here.loss, new.loss]
    scale = exam.constant_loss
    slack = 0.05 * scale if math.isfinite(scale) else 0.0
    if here.loss <= 1.15 * new.loss + slack and not _more_right(exam, here, new):
        for cause in asked:
            exam.drop(cause)


def _more_right(exam: Exam, here: Result, new: Result) -> bool:
    """Whether new weights learn more right answers by more rows than chance makes differ, on rows of both kinds."""
    lab, rows = exam.lab, exam.subject.task in ("classes", "binary")
    if not rows or lab.held is None or new.loss > here.loss:
        return False
    asked = ((new.score - here.score, lab.watched), (new.valid_score - here.valid_score, lab.held))
    return all(gain * int(part.counted.sum()) > CLEAR**2 for gain, part in asked)


def flat_share(t: Trace) -> list[tuple[str, float, float]]:
    """Return for every hidden squashing layer the share of its values at the ends, and the median slope."""
    found = []
    last = t.hidden
    for c in last:
        if c.name not in SQUASHERS:
            continue
        h = c.out.detach().float()
        h = 2 * h - 1 if c.name in ("sigmoid", "hardsigmoid") else h
        found.append((c.where, float((h.abs() > FLAT).float().mean()), float((1 - h.square()).median())))
    return found


def saturated(exam: Exam) -> None:
    """Sigmoid or tanh units, and gates of recurrent cells, at their ends."""
    t, s = exam.trace, exam.subject
    if t is None:
        return
    shares = flat_share(t) + flat_cells(s.net, t)
    if not shares:
        return
    exam.facts["saturated"] = shares
    where, worst, _ = max(shares, key=lambda r: r[1])
    began = None
    if s.initial is not None:
        try:
            net = s.twin("initial")
            first = exam.traced(net)
            began = max((r[1] for r in flat_share(first) + flat_cells(net, first)), default=0.0)
        except Exception:
            began = None
    exam.facts["saturated at the start"] = began
    well = exam.fine
    if worst > 0.8 or (worst > 0.4 and not well) or (began is not None and began > 0.35 and worst > 0.3):
        if worst <= 0.9 and well and (began is None or began < 0.35):
            return
        said = f"{worst:.0%} of the activations of {where or 'a squashing layer'} are at an end, where the slope is below 0.02"
        said += "" if began is None else f"; at the start {began:.0%} were"
        if _by_inputs(exam):
            return
        most = worst > 0.5  # fewer are doubtful, and asked about by runs, if the start is known
        late = _came_late(exam, where, began) and (most or began is None)
        exam.find("saturated-units", worst, said, where=where, sure=0.5 if late else 0.9 if most else MILD,
                  repair={"initialise": "xavier"}, evidence={"shares": [r[1] for r in shares]})  # fmt: skip


def _by_inputs(exam: Exam) -> bool:
    """Whether inputs of unusual size bring any start to the ends: then newly drawn weights are there too."""
    suspected = exam.facts.get("scale suspected")
    if suspected is None:
        return False
    with quiet(exam.subject.given):
        torch.manual_seed(0)
        net = exam.subject.twin("new")
    t = exam.traced(net)
    usual = max((r[1] for r in flat_share(t) + flat_cells(net, t)), default=0.0)
    exam.facts["saturated at a usual start"] = usual
    if usual <= ENDED:
        return False
    size, said, where, evidence, repair = suspected
    said += f"; with newly drawn weights {usual:.0%} of the activations of a layer are at an end"
    exam.find("unscaled-inputs", size, said, where=where, evidence=evidence, repair=repair, sure=0.9)
    return True


def flat_cells(net: nn.Module, t: Trace) -> list[tuple[str, float, float]]:
    """Return the same for the first layer of recurrent modules: torch computes their gates where no call is seen."""
    found, parts = [], dict(net.named_modules())
    for c in t.calls:
        cell = parts.get(c.where)
        if c.name not in CELLS or not isinstance(cell, nn.RNNBase) or c.entered.ndim != 3:
            continue
        h = gates(cell, c.entered.detach().float())
        found.append((c.where, float((h.abs() > FLAT).float().mean()), float((1 - h.square()).median())))
    return found


def gates(cell: Any, x: Tensor) -> Tensor:
    """Return the gates of a cell's first layer over the steps, scaled to -1 to 1."""
    first = type(cell)(cell.input_size, cell.hidden_size, bias=cell.bias, batch_first=cell.batch_first)
    own = cell.state_dict()
    first.load_state_dict({n: own[n].float().cpu() for n in first.state_dict()})
    x = x.cpu()
    with torch.no_grad():
        states = first(x)[0]
        steps = 1 if cell.batch_first else 0
        before = torch.cat(
            [torch.zeros_like(states.narrow(steps, 0, 1)), states.narrow(steps, 0, x.shape[steps] - 1)], steps
        )
        a = nn.functional.linear(x, first.weight_ih_l0, first.bias_ih_l0 if cell.bias else None)
        a = a + nn.functional.linear(before, first.weight_hh_l0, first.bias_hh_l0 if cell.bias else None)
    if isinstance(cell, nn.RNN):
        return a.tanh()
    width, new = cell.hidden_size, 2  # the third block of both kinds of cell is the new value, under a tanh
    inner = torch.arange(a.shape[-1]) // width == new
    return torch.where(inner, a.tanh(), 2 * a.sigmoid() - 1)
