"""Faults of the start: equal units, dead and saturated units, gradients that vanish or explode.

They are looked for where the weights are now and, if it is known, where they began.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import main_output, quiet
from corollary.diagnose.trace import RECTIFIERS, SQUASHERS, WEIGHTED, Call, Trace, rms, sensitivity

__all__ = ["CHECKS"]

FLAT = 0.99  # |tanh| from which its slope is below 0.02; of a sigmoid the same after 2 s - 1
GROWS = 100.0  # of the derivative by the first steps over that by the last
BEYOND = 0.2  # share of dead units above that of a usual start: three deviations of a layer of 40
GROWN = (
    30.0  # of signals through a deep net: 1.3 times per layer over 12 layers, where a sound start keeps them
)
RATIO = 1e-3  # of gradients at both ends, from which a single step size fits only one


def _matrices(net: nn.Module) -> list[tuple[str, Tensor]]:
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase, nn.RNNCellBase)
    found = []
    for prefix, module in net.named_modules():
        for kind, p in module.named_parameters(recurse=False):
            known = isinstance(module, kinds) or (p.ndim == 2 and not isinstance(module, nn.Embedding))
            if p.ndim >= 2 and known and p.is_floating_point():
                found.append((f"{prefix}.{kind}" if prefix else kind, p.detach().float().cpu()))
    return found


def equal_units(W: Tensor) -> float:
    """Return the share of rows of a weight that equal another one, up to a per cent of their size."""
    rows = W.reshape(len(W), -1)
    if len(rows) < 3 or rows.shape[1] < 2:
        return 0.0
    rows = rows[:256]
    centre = rows.mean(0)
    size = float(rows.norm(dim=1).mean())
    if size < 1e-12:
        return 1.0
    off = (rows - centre).norm(dim=1) / size
    distances = torch.cdist(rows, rows) / size
    distances.fill_diagonal_(float("inf"))
    return max(float((distances.min(1).values < 0.01).float().mean()), float((off < 0.01).float().mean()))


def symmetric(exam: Exam) -> None:
    """Hidden layers whose units are all alike."""
    s = exam.subject
    if s.net is None or exam.facts.get("weights broken"):
        return
    layers = _matrices(s.net)
    order = [c.where for c in exam.trace.layers()] if exam.trace is not None else []
    last = order[-1] if order else ""
    worst, where, when = 0.0, "", "now"
    start = (
        {n: v.detach().float().cpu() for n, v in s.initial.items() if isinstance(v, Tensor)}
        if s.initial is not None
        else {}
    )
    alike = []
    for name, W in layers:
        if last and name.rpartition(".")[0] == last:
            continue
        share = equal_units(W)
        began = equal_units(start[name]) if name in start and start[name].shape == W.shape else None
        if share > worst:
            worst, where = share, name
        if share > 0.6 or (began is not None and began > 0.6 and share > 0.3):
            alike.append((name, share))
    exam.facts["equal units"] = worst
    fed = [name for name, _ in alike]
    if not alike:
        _alike_responses(exam)
        return
    weights = dict(layers)
    zero = all(float(weights[n].abs().max()) < 1e-12 for n in fed)
    if (
        zero
        and len(fed) == len([n for n, _ in layers if n.rpartition(".")[0] != last])
        and s.settings.weight_decay
        and s.settings.weight_decay > 1e-2
    ):
        return
    said = f"{alike[0][1]:.0%} of the units of {alike[0][0]} equal another one: they get the same gradient for ever"
    exam.find("symmetric-initialisation", alike[0][1], said, where=", ".join(fed[:5]), repair={"initialise": "kaiming"},
              evidence={"when": when})  # fmt: skip
    exam.facts["where equal"] = where


def _alike_responses(exam: Exam) -> None:
    """Units that respond nearly alike though their weights differ a little."""
    t = exam.trace
    if t is None or exam.subject.train.n < 20:
        return
    found = []
    last, before = main_output(t.output), ""
    for c in t.calls:
        before = c.where if c.name in WEIGHTED else before
        if c.out is last:
            continue
        if c.name not in RECTIFIERS | SQUASHERS | {"gelu", "silu", "elu", "softplus"} or c.out.ndim < 2:
            continue
        h = c.units[:2000]
        h = h[:, h.std(0) > 1e-7 * (1 + h.abs().mean())]
        if h.shape[1] < 4 or c.units.shape[1] < 4:
            continue
        z = (h - h.mean(0)) / h.std(0)
        R = (z.T @ z / len(z)).abs()
        R.fill_diagonal_(0)
        found.append(
            (float((R > 0.999).float().sum(1).gt(0.5 * (len(R) - 1)).float().mean()), c.where, before)
        )
    exam.facts["alike responses"] = [f[0] for f in found]
    weights = dict(_matrices(exam.subject.net))
    for share, where, before in found:
        W = next((w for n, w in weights.items() if n.rpartition(".")[0] == before), None)
        if share > 0.8 and not exam.has("unscaled-inputs"):
            rows = None if W is None else W.reshape(len(W), -1)
            if rows is not None:
                if rows.shape[1] < 4:
                    continue  # of one or two inputs all units say much the same
                unit = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
                if float((unit @ unit.T).abs().median()) < 0.95:
                    continue
            said = f"{share:.0%} of the units of {where or 'a hidden layer'} respond alike (correlation above 0.999)"
            exam.find(
                "symmetric-initialisation",
                share,
                said,
                where=where,
                sure=0.8,
                repair={"initialise": "kaiming"},
            )
            return


# --- units -----------------------------------------------------------------------------------------------


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
    shares = dead_shares(t)
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
    well = _does_well(exam)
    sure = 0.0
    if began is not None:
        if began > max(0.3, usual + BEYOND) and not (well and worst < 0.6):
            sure = 0.95
        elif worst > max(0.5, usual + BEYOND) and not well:
            sure = 0.5  # died on the way: something else killed them
    elif (worst > 0.5 or overall > 0.4) and worst > usual + BEYOND:
        late = depth <= 0.5 or _travelled(exam)  # they died on the way
        sure = 0.0 if well and worst < 0.7 else 0.5 if late else 0.85
    if sure:
        exam.find("dead-units", worst, said, where=where, sure=sure, repair={"initialise": "kaiming"},
                  evidence={"layers": [r[0] for r in shares], "dead": [r[1] for r in shares]})  # fmt: skip


def _travelled(exam: Exam) -> bool:
    """Whether the weights are far larger than any usual start, so that what one sees came with the descent."""
    from corollary.diagnose.descent import weights_state

    state = weights_state(exam)
    return state.ratio > 2 or state.largest > 4


def _usually_dead(exam: Exam) -> float:
    """Return the largest share of a layer that is dead under new weights: rows that are alike leave half of it dead."""
    found = []
    for seed in range(2):
        with quiet(exam.subject.given):
            torch.manual_seed(seed)
            net = exam.subject.twin("new")
        found.append(max((r[1] for r in dead_shares(exam.traced(net))), default=0.0))
    return float(np.mean(found))


def _does_well(exam: Exam) -> bool:
    from corollary.diagnose.graph import _fine

    return _fine(exam)


def _learned(exam: Exam, share: float = 0.9) -> bool:
    """Whether such a share of what is possible was learned of the training rows, be it by heart."""
    return exam.score > share + (1 - share) * exam.performance.get("train chance", 0.0)


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
    well = _does_well(exam)
    if worst > 0.8 or (worst > 0.4 and not well) or (began is not None and began > 0.35 and worst > 0.3):
        if worst <= 0.9 and well and (began is None or began < 0.35):
            return
        said = f"{worst:.0%} of the activations of {where or 'a squashing layer'} are at an end, where the slope is below 0.02"
        said += "" if began is None else f"; at the start {began:.0%} were"
        exam.find("saturated-units", worst, said, where=where, sure=0.9 if worst > 0.5 else 0.8,
                  repair={"initialise": "xavier"}, evidence={"shares": [r[1] for r in shares]})  # fmt: skip


def flat_cells(net: nn.Module, t: Trace) -> list[tuple[str, float, float]]:
    """Return the same for the first layer of recurrent modules: torch computes their gates where no call is seen."""
    found, parts = [], dict(net.named_modules())
    for c in t.calls:
        cell = parts.get(c.where)
        if (
            c.name not in ("lstm", "gru", "rnn_tanh")
            or not isinstance(cell, nn.RNNBase)
            or c.entered.ndim != 3
        ):
            continue
        h = gates(cell, c.entered.detach().float())
        found.append((c.where, float((h.abs() > FLAT).float().mean()), float((1 - h.square()).median())))
    return found


def gates(cell: nn.RNNBase, x: Tensor) -> Tensor:
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


# --- flow ------------------------------------------------------------------------------------------------


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
    spread = math.sqrt(
        max(1.0, places(low) / places(top))
    )  # a mean over places divides the gradient among them
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
    exam.facts["gradient ratio"], exam.facts["gradient ratio at the start"] = ratio, began
    if len(rows) >= 3:
        _depth(exam, rows, ratio, began)
    if not exam.has("vanishing-gradient", "exploding-gradient"):
        _steps(exam)


def _depth(exam: Exam, rows: list[Any], ratio: float, began: float | None) -> None:
    where = rows[0][0]
    growth = rows[-1][1] / max(rows[0][1], 1e-30)
    sizes = [r[1] for r in rows]
    well = _does_well(exam)
    seen = [r for r in (ratio, began) if r is not None and math.isfinite(r)]
    if (
        min(seen) < RATIO
        and not _learned(exam)
        and not (well and ratio > 1e-2)
        and not exam.has("dead-units", "symmetric-initialisation")
    ):
        if well and ratio > RATIO:
            return
        worst = min(seen)
        said = f"the gradient at {where} is {worst:.1e} of that at the last layer, over {len(rows)} layers"
        sure = 0.9 if not exam.has("saturated-units") else 0.6
        if began is not None and began >= RATIO:
            sure = 0.5  # it came on the way: something else brought it about
        exam.find("vanishing-gradient", worst, said, where=where, sure=sure, repair={"initialise": "kaiming"},
                  evidence={"layers": [r[0] for r in rows], "gradient": [r[2] for r in rows]})  # fmt: skip
    elif (
        max(seen)
        > (30 if exam.facts.get("weights broken") else 1 / RATIO)  # it diverged: less growth is enough
        or (growth > 1e4 and max(sizes) > 1e3)
        or (max(sizes) > 1e5 and not exam.has("unscaled-inputs"))
        or _swamped(exam, rows, growth)
    ):
        value = max(*seen, growth)
        said = f"from the first layer to the last signals grow {growth:.1e} times, and the gradient back {max(seen):.1e} times"
        exam.find("exploding-gradient", value, said, where=where, sure=0.9, repair={"initialise": "kaiming", "clip_norm": 1.0},
                  evidence={"layers": [r[0] for r in rows], "gradient": [r[2] for r in rows], "size": sizes})  # fmt: skip


def _swamped(exam: Exam, rows: list[Any], growth: float) -> bool:
    """Whether signals that grow from layer to layer make outputs so large that a constant answer would be far better."""
    from corollary.diagnose.descent import level

    constant, loss = level(exam), exam.performance.get("train loss", float("nan"))
    deep = len(rows) >= 5 and growth > GROWN and not exam.has("unscaled-inputs", "unscaled-targets")
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
    wild = began is not None and (began[1] > GROWS or began[0].max() > 1e4)
    if wild and not _does_well(exam) and not (ratio > GROWS or g.max() > 1e4):
        g, ratio = began  # it began so, and what followed was no training
    if (ratio > GROWS or g.max() > 1e4) and not (_does_well(exam) and not broken):
        said = f"the derivative by the first steps is {ratio:.1e} times that by the last"
        exam.find(
            "exploding-gradient",
            ratio,
            said,
            where=cell,
            sure=0.9,
            evidence={"profile": g},
            repair={"clip_norm": 1.0},
        )
        return
    if began is not None and began[1] < ratio:
        g, ratio = began
    # where every step has an answer early ones matter to their own; what was learned had a gradient
    idle = s.train.y is None or _learned(exam) or (now[1] > 1e-2 and _learned(exam, 0.3))
    if ratio < RATIO and not idle and not _does_well(exam) and _early_matters(exam, len(g)):
        said = f"the derivative by the first steps is {ratio:.1e} of that by the last, over {len(g)} steps"
        sure = 0.5 if began is not None and began[1] >= RATIO else 0.9  # or it came on the way
        exam.find("vanishing-gradient", ratio, said, where=cell, sure=sure, evidence={"profile": g})


def _profile(exam: Exam, net: Any, rows: Any) -> tuple[np.ndarray, float] | None:
    """Return the size of the derivative by every step, and that by the first steps over that by the last."""
    found = sensitivity(exam.subject, net, rows)
    if found is None or found[1].ndim != 3:
        return None
    over = (0, 1) if exam.steps_last and found[1].shape == rows.x.shape else (0, 2)
    g = found[1].float().square().mean(over).sqrt().cpu().numpy()
    if len(g) < 5 or not np.isfinite(g).all() or not g.max():
        return None
    k = max(1, len(g) // 10)
    return g, float(np.median(g[:k])) / max(float(np.median(g[-k:])), 1e-300)


def _looped(t: Trace) -> bool:
    """Whether one layer is called again and again: a hand-written recurrence."""
    names = [c.where for c in t.layers() if c.name == "linear"]
    return bool(names) and max(names.count(n) for n in set(names)) >= 5


def _early_matters(exam: Exam, steps: int) -> bool:
    """Whether early steps say something about the target that late ones do not."""
    from corollary.diagnose.architecture import parts_score

    late = parts_score(exam, range(steps // 2, steps))
    whole = exam.baselines.gain if exam.baselines is not None and exam.baselines.held else float("nan")
    early = parts_score(exam, range(steps // 2))
    exam.facts["early, late and all steps"] = [early, late, whole]
    if not (np.isfinite(whole) and np.isfinite(late)):
        return True
    return late < 0.1 or max(whole, early) > late + 0.1


CHECKS = (symmetric, dead_units, saturated, gradients)
