"""Gradients that vanish or explode, over the layers and over the steps of a recurrent net.

They are looked for where the weights are now and, if it is known, where they began.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from corollary.diagnose.descent import abnormal
from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import quiet
from corollary.diagnose.trace import WEIGHTED, Call, Trace, rms, sensitivity
from corollary.diagnose.view import parts_score
from corollary.diagnose.weights import like_a_draw, weights_state

__all__ = ["far_away", "gradients"]

GROWS = 100.0  # of the derivative by the first steps over that by the last
# of signals through a deep net: 1.3 times per layer over 12 layers, where a sound start keeps them
GROWN = 30.0
COLLAPSED = 0.3  # of the size that weights are drawn with
GREW = 5.0  # of gradients of a deep net that diverged at a usual rate
FAR = 4.0  # times the size that weights are drawn with, that only long steps lead to
EACH = 1.3  # of signals in every layer, where outputs are far too large already
DEEP = 6  # layers from which growth of a factor of two in each is a hundredfold
LEARNED = 0.75  # of what is possible: a gradient that grew has not kept the net from it
SMALL = 0.4  # of the size that torch draws weights with: a layer that was drawn much smaller
SHRUNK = 1e-2  # of gradients at both ends, of a net that has not learned: worth a look at other starts
RATIO = 1e-3  # of gradients at both ends, from which a single step size fits only one


def learned(exam: Exam, share: float = 0.9) -> bool:
    """Whether such a share of what is possible was learned of the training rows, be it by heart."""
    return exam.score > share + (1 - share) * exam.performance.get("train chance", 0.0)


def flow(t: Trace) -> list[tuple[str, float, float]]:
    """Return for every layer with weights the size of its output and of the gradient there."""
    return [(c.where, rms(c.out), rms(c.gradient)) for c in t.layers() if c.gradient is not None]


def decay(t: Trace) -> float:
    """Return the gradient at the first layer as a share of that at the last one."""
    calls = [c for c in t.layers() if c.gradient is not None]
    if len(calls) < 2 or not rms(calls[-1].gradient):
        return 1.0
    top = max(calls[-2:], key=lambda c: rms(c.gradient))
    low = min(calls[:2], key=lambda c: rms(c.gradient))
    ratio = rms(low.gradient) / rms(top.gradient)
    # a mean over places divides the gradient among them
    spread = math.sqrt(max(1.0, places(low) / places(top)))
    return ratio if ratio >= 1 else min(1.0, ratio * spread)


def places(c: Call) -> float:
    """Return how many times a layer's units are there for one row: at pixels or steps."""
    return c.out.numel() / max(1, len(c.out) * c.units.shape[1])


def gradients(exam: Exam) -> None:
    """Gradients that shrink or grow by orders of magnitude on the way back."""
    t, s = exam.trace, exam.subject
    broken = exam.facts.get("weights broken")
    if t is None or exam.has("overflow") or (broken and s.initial is None):
        return
    if broken:  # what it became cannot be looked at; where it began can
        t = exam.traced(s.twin("initial"))
    rows = flow(t)
    exam.facts["flow"] = rows
    ratio = decay(t)
    began = None
    if s.initial is not None:
        try:
            began = decay(exam.traced(s.twin("initial")))
        except Exception:
            began = None
    elif not exam.fine and len(rows) >= DEEP:
        known = s.settings.learning_rate is not None  # then runs tell what else it may be
        began = _at_a_start(exam) if ratio < SHRUNK or not known else None
        began = _at_a_small_start(exam) if began is None and ratio >= SHRUNK else began
    exam.facts["gradient ratio"], exam.facts["gradient ratio at the start"] = ratio, began
    if len(rows) >= 3:
        _depth(exam, rows, ratio, began)
    if not exam.has("vanishing-gradient", "exploding-gradient"):
        _steps(exam)


def _at_a_start(exam: Exam) -> float | None:
    """Return the ratio that the net has with newly drawn weights if none of it could learn; it may have got over it since."""
    found = []
    for seed in range(2):
        with quiet(exam.subject.given):
            torch.manual_seed(seed)
            found.append(decay(exam.traced(exam.subject.twin("new"))))
    return max(found) if max(found) < RATIO else None


def _at_a_small_start(exam: Exam) -> float | None:
    """Return the ratio at newly drawn weights as small as those of the layer that has kept the smallest, if none could learn.

    Nothing but the descent has made the others larger, unless it has a decay.
    """
    s, state = exam.subject, weights_state(exam)
    if not state.smallest < SMALL or s.settings.weight_decay or not math.isfinite(state.smallest):
        return None
    with quiet(s.given):
        torch.manual_seed(0)
        net = s.twin("new")
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim >= 2:
                p.mul_(state.smallest)
    ratio = decay(exam.traced(net))
    return ratio if ratio < RATIO else None


def _depth(exam: Exam, rows: list[Any], ratio: float, began: float | None) -> None:
    where = rows[0][0]
    growth = rows[-1][1] / max(rows[0][1], 1e-30)
    sizes = [r[1] for r in rows]
    well = exam.fine
    seen = [r for r in (ratio, began) if r is not None and math.isfinite(r)]
    if (
        min(seen) < RATIO
        and not learned(exam)
        and not (well and ratio > 1e-2)
        and not exam.has("symmetric-initialisation")
        and (not exam.has("dead-units") or _beyond_dead(exam, rows, ratio, began))
    ):
        if well and ratio > RATIO:
            return
        worst = min(seen)
        said = f"the gradient at {where} is {worst:.1e} of that at the last layer, over {len(rows)} layers"
        sure = 0.9 if not exam.has("saturated-units") else 0.6
        if began >= RATIO if began is not None else far_away(exam) or _decayed(exam):
            sure = 0.5  # it came on the way: something else brought it about
        elif exam.has("dead-units"):
            exam.sure["dead-units"] = min(exam.sure["dead-units"], 0.6)  # units that nothing reaches
        exam.find("vanishing-gradient", worst, said, where=where, sure=sure, repair={"initialise": "kaiming"},
                  evidence={"layers": [r[0] for r in rows], "gradient": [r[2] for r in rows]})  # fmt: skip
    elif (
        max(seen) > _bearable(exam, len(rows))
        or _led_nowhere(exam, rows, ratio if began is None else began)
        or (growth > 1e4 and max(sizes) > 1e3 and not far_away(exam))
        or (max(sizes) > 1e5 and not exam.has("unscaled-inputs") and not far_away(exam))
        or _swamped(exam, rows, growth, seen)
    ):
        value = max(*seen, growth)
        said = f"from the first layer to the last signals grow {growth:.1e} times, and the gradient back {max(seen):.1e} times"
        exam.find("exploding-gradient", value, said, where=where, sure=0.9, repair={"initialise": "kaiming", "clip_norm": 1.0},
                  evidence={"layers": [r[0] for r in rows], "gradient": [r[2] for r in rows], "size": sizes})  # fmt: skip


def _bearable(exam: Exam, layers: int) -> float:
    """Return the growth of the gradient that is no fault yet: less where it diverged, and least if the rate was a usual one."""
    if not exam.facts.get("weights broken"):
        return 1 / RATIO
    usual = abnormal(exam).get("learning-rate-too-large", 1.0) < 0
    return GREW if usual and layers >= DEEP else GROWN


def far_away(exam: Exam) -> bool:
    """Whether a rate above the usual has made the weights far larger than any usual start."""
    state = weights_state(exam)
    return abnormal(exam).get("learning-rate-too-large", -1.0) > 0.5 and (
        state.ratio > 2 or state.largest > 4
    )


def _decayed(exam: Exam) -> bool:
    """Whether a decay above the usual has made the weights far smaller than any usual start."""
    return abnormal(exam).get("weight-decay-too-large", -1.0) > 0.5 and weights_state(exam).ratio < COLLAPSED


def _fades(exam: Exam) -> bool:
    """Whether what rows differ by has faded before it comes to the layer that has the most dead units."""
    shares = exam.facts.get("dead", ())
    dead = max(shares, key=lambda r: r[1])[0]
    rows = []
    for c in exam.trace.calls:
        if c.where == dead:
            break
        if c.name in WEIGHTED and c.out.is_floating_point():
            rows.append(rms(c.units - c.units.mean(0)))
    return len(rows) >= DEEP // 2 and min(rows) < RATIO * rows[0]


def _beyond_dead(exam: Exam, rows: list[Any], ratio: float, began: float | None) -> bool:
    r"""Whether the gradient of a deep net shrinks by far more than dead units account for.

    A layer with the share :math:`d` of its units dead lets :math:`\sqrt{1 - d}` of the gradient pass.
    """
    if began is None and _fades(exam):
        return True
    shares = [r[1] for r in exam.facts.get("dead", ())]
    if began is not None:  # before any of them could die on the way
        ratio, shares = began, [exam.facts.get("dead at the start") or 0.0] * len(shares)
    return len(rows) >= DEEP and ratio < RATIO * math.prod(math.sqrt(1 - share) for share in shares)


def _led_nowhere(exam: Exam, rows: list[Any], ratio: float) -> bool:
    """Whether the gradient grew a hundredfold over a deep net, whose loss is above that of a constant answer."""
    worse = exam.performance.get("train loss", float("nan")) > exam.constant_loss
    return len(rows) >= DEEP and ratio > GROWS and worse and not exam.fine


def _swamped(exam: Exam, rows: list[Any], growth: float, seen: list[float]) -> bool:
    """Whether signals or gradients that grow with depth make outputs so large that a constant answer would be far better."""
    constant, loss = exam.constant_loss, exam.performance.get("train loss", float("nan"))
    much = min(GROWN, EACH ** (len(rows) - 1))
    grown = growth > much or max(r for r in seen if r is not None) > GROWN
    deep = (
        len(rows) >= 5
        and grown
        and not exam.has("unscaled-inputs", "unscaled-targets")
        and not far_away(exam)
    )
    return deep and math.isfinite(constant) and loss > GROWN * constant


def _steps(exam: Exam) -> None:
    """The same along the steps of a recurrent net: how much early steps count."""
    t, s = exam.trace, exam.subject
    recurrent = any(c.name in ("rnn_tanh", "rnn_relu", "lstm", "gru") for c in t.calls)
    recurrent = recurrent or any(isinstance(m, nn.RNNCellBase) for m in s.net.modules())
    loops = _looped(t)
    if not recurrent and not loops:
        return
    rows = s.train if s.train.whole or s.train.n <= 128 else s.train.take(np.arange(128))
    broken = exam.facts.get("weights broken")
    now = _profile(exam, s.twin("initial") if broken else s.net, rows)
    if now is None:
        return
    g, ratio = now
    began = _profile(exam, s.twin("initial"), rows) if s.initial is not None else None
    exam.facts["step profile"] = g.tolist()
    exam.facts["step ratio"] = [ratio, None if began is None else began[1]]
    cell = next((c.where for c in t.calls if c.name in ("rnn_tanh", "rnn_relu", "lstm", "gru")), "")
    first, sure = (began, 0.9) if s.initial is not None else (_profile_as_large(exam, rows), 0.6)
    wild = first is not None and (first[1] > GROWS or first[0].max() > 1e4)
    if wild and not exam.fine and not (ratio > GROWS or g.max() > 1e4):
        g, ratio = first  # it began so, and what followed was no training
    else:
        sure = 0.9
    harmless = exam.fine or exam.gain > LEARNED or learned(exam)  # what was learned had a gradient
    if (ratio > GROWS or g.max() > 1e4) and (broken or not harmless):
        said = f"the derivative by the first steps is {ratio:.1e} times that by the last"
        exam.find(
            "exploding-gradient",
            ratio,
            said,
            where=cell,
            sure=sure,
            evidence={"profile": g},
            repair={"clip_norm": 1.0},
        )
        return
    sure = 0.9
    if began is not None and began[1] < ratio:
        g, ratio = began
    elif s.initial is None and ratio >= RATIO and not exam.fine and not learned(exam, 0.3):
        fresh = _profile(exam, s.twin("new"), rows)  # what it began like is not known; most begin so
        if fresh is not None and fresh[1] < RATIO:
            (g, ratio), sure = fresh, 0.6
    # where every step has an answer early ones matter to their own; what was learned had a gradient
    idle = s.train.y is None or learned(exam) or (now[1] > 1e-2 and learned(exam, 0.3))
    if ratio < RATIO and not idle and not exam.fine and _early_matters(exam, len(g)):
        said = f"the derivative by the first steps is {ratio:.1e} of that by the last, over {len(g)} steps"
        sure = 0.5 if began is not None and began[1] >= RATIO else sure  # or it came on the way
        exam.find("vanishing-gradient", ratio, said, where=cell, sure=sure, evidence={"profile": g})


def _profile(exam: Exam, net: Any, rows: Any) -> tuple[np.ndarray, float] | None:
    """Return the size of the derivative by every step, and that by the first steps over that by the last."""
    found = sensitivity(exam.subject, net, rows)
    if found is None or found[1].ndim not in (2, 3):
        return None
    over = (
        (0,)
        if found[1].ndim == 2
        else (0, 1)
        if exam.steps_last and found[1].shape == rows.x.shape
        else (0, 2)
    )
    g = found[1].float().square().mean(over).sqrt().cpu().numpy()
    if len(g) < 5 or not np.isfinite(g).all() or not g.max():
        return None
    k = max(1, len(g) // 10)
    return g, float(np.median(g[:k])) / max(float(np.median(g[-k:])), 1e-300)


def _profile_as_large(exam: Exam, rows: Any) -> tuple[np.ndarray, float] | None:
    """Return the profile of new weights as large as the recurrent ones are now, if these still look like a draw.

    What gradients add has low rank, so the size of such a matrix is that of its start; unless steps were so long that
    they have made noise of all weights. In units at their ends so large weights are what brought them there.
    """
    s = exam.subject
    if (
        exam.fine
        or exam.has("saturated-units")
        or not any(isinstance(m, nn.RNNBase) for m in s.net.modules())
    ):
        return None
    with quiet(s.given):
        torch.manual_seed(0)
        net = s.twin("new")
    now, new = dict(s.net.named_parameters()), [(n, p) for n, p in net.named_parameters() if p.ndim >= 2]
    larger = {n: rms(now[n]) / rms(p) for n, p in new if rms(p)}
    if any(ratio > FAR for n, ratio in larger.items() if "weight_hh" not in n):
        return None
    drawn = [(n, p) for n, p in new if "weight_hh" in n and larger[n] > 1 and like_a_draw(now[n])]
    with torch.no_grad():
        for n, p in drawn:
            p.mul_(larger[n])
    return _profile(exam, net, rows) if drawn else None


def _looped(t: Trace) -> bool:
    """Whether one layer is called again and again: a hand-written recurrence."""
    names = [c.where for c in t.layers() if c.name == "linear"]
    return bool(names) and max(names.count(n) for n in set(names)) >= 5


def _early_matters(exam: Exam, steps: int) -> bool:
    """Whether early steps say something about the target that late ones do not."""
    late = parts_score(exam, range(steps // 2, steps))
    whole = exam.baselines.gain if exam.baselines is not None and exam.baselines.held else float("nan")
    early = parts_score(exam, range(steps // 2))
    exam.facts["early, late and all steps"] = [early, late, whole]
    if not (np.isfinite(whole) and np.isfinite(late)):
        return True
    return late < 0.1 or max(whole, early) > late + 0.1
