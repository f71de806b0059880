"""Faults of the graph: parameters that get no gradient, and parameters that stand still."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from corollary.diagnose.descent import ODD, SMALL, abnormal
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import copied, quiet
from corollary.diagnose.trace import SQUASHERS, Call, rms
from corollary.diagnose.trials import Trials
from corollary.diagnose.weights import beyond_start, can_stand_out, drawn, like_a_draw

__all__ = ["detached", "frozen"]

VAST = 1e18  # of gradients, from which their squares overflow: an optimiser that divides by their root then stands still
PLENTY = 64  # numbers of a matrix; fewer look like a draw after some training too
LEARNED = 0.8  # of the loss with layers newly drawn, what those that were learned elsewhere stay below
LITTLE = 0.05  # of a constant answer's loss: what training all parameters must gain at least
HELD = 0.02  # of all numbers: random ones that are held fixed and are worth a word


def _change(exam: Exam, name: str) -> float:
    """Return how much the output changes when a parameter does, relative to its size."""
    s = exam.subject
    net = copied(s.net)
    rows = s.train if s.train.whole or s.train.n <= 32 else s.train.take(np.arange(32))
    p = dict(net.named_parameters())[name]
    with torch.no_grad(), quiet(net):
        torch.manual_seed(0)
        first = main_output(s.call(net.eval(), rows)).float()
        noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(0)).to(p)
        p.add_(noise * (p.float().abs().mean() + 0.1).to(p))
        torch.manual_seed(0)
        second = main_output(s.call(net, rows)).float()
    return float((first - second).abs().max()) / (float(first.abs().max()) + 1e-12)


def detached(exam: Exam) -> None:
    """Parameters that change the output but get no gradient."""
    t, s = exam.trace, exam.subject
    if t is None or s.net is None:
        return
    if t.unregistered:
        size = sum(p.numel() for p in t.unregistered)
        said = (
            f"{len(t.unregistered)} tensors ({size} numbers) that the output depends on are no parameters "
            "of the module: no optimiser sees them"
        )
        exam.find("detached-parameters", size, said, where=str([tuple(p.shape) for p in t.unregistered[:4]]))
        return
    wanted = {n for n, p in s.net.named_parameters() if p.requires_grad}
    silent = [n for n in wanted if t.gradients.get(n) is None]
    zero = [n for n in wanted if t.gradients.get(n) is not None and not bool((t.gradients[n] != 0).any())]
    used = [n for n in sorted(silent) if _change(exam, n) > 1e-6]
    stepped = [] if used else [n for n in sorted(zero)[:12] if _flat(exam, n)]
    found = used or _always_zero(exam, stepped)
    if not found:
        return
    total = sum(p.numel() for p in s.net.parameters())
    size = sum(p.numel() for n, p in s.net.named_parameters() if n in found)
    said = (
        f"{len(found)} parameters ({size / total:.0%} of the numbers) change the output but get no gradient"
    )
    exam.find("detached-parameters", size / total, said, where=", ".join(found[:6]))


def _always_zero(exam: Exam, names: list[str]) -> list[str]:
    """Return the parameters whose gradient is zero with newly drawn weights too: a step cuts it whatever the weights are."""
    if not names:
        return []
    fresh = exam.traced(exam.subject.twin("new")).gradients
    return [n for n in names if (g := fresh.get(n)) is None or not bool((g != 0).any())]


def _flat(exam: Exam, name: str) -> bool:
    """Whether a parameter with zero gradient changes the output all the same: a step function, such as rounding."""
    if any(_shut(c) for c in exam.trace.calls) or exam.has("output-range", "overflow"):
        return False
    return _change(exam, name) > 1e-3 and abs(exam.trace.loss) > 1e-8


def _shut(c: Call) -> bool:
    """Whether no unit of an activation lets a gradient pass: all dead, all at an end, or all dropped perhaps."""
    h = c.out.detach().float()
    if c.name in ("relu", "relu6"):
        return not bool((h > 0).any())
    if c.name in SQUASHERS or c.name == "softmax":
        return bool(((h.abs() > 1 - 1e-6) | ((h.abs() < 1e-9) & (c.name != "tanh"))).all())
    return bool(c.options.get("active"))


def frozen(exam: Exam) -> None:
    """Random layers that are held fixed, or that the optimiser never got."""
    s = exam.subject
    if s.given is None or s.net is None:
        return
    named = dict(s.given.named_parameters())
    total = sum(p.numel() for p in named.values())
    if not total:
        return
    off = [n for n, p in named.items() if not p.requires_grad]
    if s.output is not None and 0 < len(off) < len(named):  # what is not used may stand still
        off = [n for n in off if not named[n].is_floating_point() or _change(exam, n) > 0]
    missing: list[str] = []
    idle: list[str] = []
    if s.settings.trained is not None and any(id(p) in s.settings.trained for p in named.values()):
        missing = [n for n, p in named.items() if p.requires_grad and id(p) not in s.settings.trained]
        missing = [n for n in missing if _stands(s.initial, n, named[n])]  # others belong to a second player
        idle = [n for n, p in named.items() if p.requires_grad and id(p) in s.settings.idle]
    looks = drawn(s.net)
    exam.facts["untouched"] = looks
    if _of_another(exam, named, looks):
        return
    known = {n: v for n, v in looks.items() if v is not None}
    fresh = [n for n, v in known.items() if v]
    new = bool(known) and len(fresh) == len(known)  # an untrained net
    exam.facts["untrained"] = _untrained(exam, named, new and not off and not missing)
    if missing:
        share = sum(named[n].numel() for n in missing) / total
        random = [n for n in missing if looks.get(n) is not False]
        matrices = [n for n in random if named[n].ndim >= 2]
        if share > HELD and (matrices or share > 0.2) and not _as_good(exam, missing):
            said = f"{len(missing)} parameters ({share:.0%} of the numbers) were not handed to the optimiser"
            exam.find(
                "frozen-parameters", share, said, where=", ".join(missing[:6]), repair={"requires_grad": True}
            )
            return
    if _no_rate(exam, named, [n for n in idle if looks.get(n) is not False], total):
        return
    if off:
        share = sum(named[n].numel() for n in off) / total
        random = [n for n in off if looks.get(n) is True or (looks.get(n) is None and named[n].ndim >= 2)]
        rated = [n for n in off if looks.get(n) is not None and named[n].ndim >= 2]
        if _as_made([named[n] for n in off]):
            random = [n for n in off if named[n].ndim >= 2]
        elif rated and not any(looks[n] for n in rated):
            random = _other_draws(s.net, off)  # the others were trained elsewhere: frozen on purpose
        held = sum(named[n].numel() for n in random) / total
        exam.facts["frozen"] = {"share": share, "random": held}
        if held > HELD and not _as_good(exam, off) and not _learned(exam, random):
            said = (
                f"{len(off)} parameters ({share:.0%} of the numbers) are held fixed, and {held:.0%} look "
                "as they were drawn at random"
            )
            exam.find(
                "frozen-parameters", held, said, where=", ".join(random[:6]), repair={"requires_grad": True}
            )
        return
    _stayed(exam, named, known, total)


def _other_draws(net: nn.Module, names: list[str]) -> list[str]:
    """Return the tables of embeddings that were drawn independently in another size than torch's."""
    tables = {f"{n}.weight": m for n, m in net.named_modules() if isinstance(m, nn.Embedding)}
    held = {n: tables[n].weight for n in names if n in tables}
    return [n for n, W in held.items() if can_stand_out(W) and like_a_draw(W)]


def _no_rate(exam: Exam, named: dict[str, Any], idle: list[str], total: int) -> bool:
    """Whether random layers have a rate of zero; who means to hold them fixed says so by requires_grad."""
    share = sum(named[n].numel() for n in idle) / total
    matrices = [n for n in idle if named[n].ndim >= 2 and _stands(exam.subject.initial, n, named[n])]
    if share < HELD or not matrices:
        return False
    said = f"the optimiser's rate is 0 for {len(idle)} parameters ({share:.0%} of the numbers), which stand as they were drawn"
    exam.find("frozen-parameters", share, said, where=", ".join(matrices[:6]), repair={"requires_grad": True})
    return True


def _of_another(exam: Exam, named: dict[str, Any], looks: dict[str, bool | None]) -> bool:
    """Whether the optimiser holds none of the parameters, and all are where they began although it has made steps."""
    s = exam.subject
    held = s.settings.trained
    if held is None or any(id(p) in held for p in named.values()) or not (s.settings.steps or s.history):
        return False
    if s.initial is not None:
        still = all(n in s.initial and _stands(s.initial, n, p) for n, p in named.items())
    else:
        known = [v for v in looks.values() if v is not None]
        still = bool(known) and all(known)
    if still:
        said = "none of the parameters were handed to the optimiser, and all stand where they started"
        exam.find(
            "frozen-parameters", 1.0, said, where=", ".join(list(named)[:6]), repair={"requires_grad": True}
        )
    return still


def _as_made(held: list[Tensor]) -> bool:
    """Whether all offsets and gains are exactly zero or one: any training moves them, however the matrices were drawn."""
    flat = [p.detach() for p in held if p.ndim == 1 and len(p) > 1]
    return bool(flat) and all(bool((p == 0).all()) or bool((p == 1).all()) for p in flat)


def _stands(initial: Any, name: str, p: Tensor) -> bool:
    """Whether a parameter is where it began, as far as that is known."""
    began = None if initial is None else initial.get(name)
    return not isinstance(began, Tensor) or torch.equal(began.detach().cpu(), p.detach().cpu())


def _untrained(exam: Exam, named: dict[str, Any], new: bool) -> bool:
    """Whether the net was never trained: no history, and weights where they were drawn."""
    s = exam.subject
    if s.history.get("loss", np.zeros(0)).size or s.settings.steps:
        return False
    if s.settings.optimizer == "sgd" and abnormal(exam)[SMALL] > ODD:
        return False  # it keeps no count of its steps, and such a rate leaves the weights where they were
    counters = [b for n, b in s.net.named_buffers() if n.endswith("num_batches_tracked")]
    if any(int(b) > 0 for b in counters):
        return False
    if s.initial is not None:
        return all(
            n in s.initial and torch.equal(s.initial[n].cpu(), p.detach().cpu()) for n, p in named.items()
        )
    return new


def _stayed(exam: Exam, named: dict[str, Any], known: dict[str, bool], total: int) -> None:
    """Layers that stand where they started while others have moved."""
    s = exam.subject
    if exam.facts.get("untrained") or exam.has("detached-parameters"):
        return
    if s.initial is not None:
        still = [n for n, p in named.items() if n in s.initial and _stands(s.initial, n, p)]
    else:
        modules = dict(s.net.named_modules())
        still = []
        for prefix, module in modules.items():
            own = [f"{prefix}.{k}" if prefix else k for k, _ in module.named_parameters(recurse=False)]
            large = isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.RNNBase)) and all(
                known.get(n) is not False for n in own
            )
            if own and large and any(known.get(n) and named[n].numel() >= PLENTY for n in own):
                still += own
    moved = [n for n in named if n not in still]
    matrices = [n for n in still if named[n].ndim >= 2]
    share = sum(named[n].numel() for n in still) / max(1, total)
    if not matrices or not moved or share < 0.05:
        return
    if s.initial is None and not any(
        known.get(n) is False and beyond_start(s.net, n, named[n]) for n in moved
    ):
        return  # a rate that is too small leaves all of them near their start
    gradients = exam.trace.gradients if exam.trace is not None else {}
    flows = [n for n in matrices if gradients.get(n) is not None and 1e-9 < rms(gradients[n]) < VAST]
    if flows and not _as_good(exam, still) and not _of_a_critic(exam, still):
        said = (
            f"{len(still)} parameters ({share:.0%} of the numbers) stand exactly where they started, "
            "though the loss has a gradient for them"
        )
        exam.find("frozen-parameters", share, said, where=", ".join(matrices[:6]), sure=0.7 if s.initial is None else 1.0,
                  repair={"requires_grad": True})  # fmt: skip


def _of_a_critic(exam: Exam, names: list[str]) -> bool:
    """Whether samples are made without these parameters, where by what loss they were trained is not known."""
    s = exam.subject
    if not hasattr(s.net, "sample") or s.criterion.was_given:
        return False
    other = s.twin().eval()
    for n, p in other.named_parameters():
        if n in names:
            p.data.mul_(2.0).add_(1.0)
    made = []
    for net in (s.net.eval(), other):
        with torch.no_grad(), quiet(net):
            torch.manual_seed(0)
            made.append(main_output(net.sample(8)))  # type: ignore[operator]
    return torch.equal(*made)


def _learned(exam: Exam, fixed: list[str]) -> bool:
    """Whether layers that are held fixed serve better than newly drawn ones, when all others are trained anew."""
    if exam.lab is None or exam.subject.output is None:
        return False
    trials, names = exam.facts.setdefault("trials", Trials(exam)), tuple(fixed)
    mine = trials.good("the rest anew", "new", frozen=names, kept=names)
    drawn = trials.good("the rest anew, these drawn", "new", frozen=names)
    a, b = (r.valid_loss if math.isfinite(r.valid_loss) else r.loss for r in (mine, drawn))
    exam.facts["fixed as they are and newly drawn"] = [a, b]
    return a < LEARNED * b


def _as_good(exam: Exam, fixed: list[str]) -> bool:
    """Whether the model does well although parameters stand still: training them too gains nothing on held-out rows."""
    if not exam.fine:
        return False
    if exam.lab is None or exam.subject.output is None:
        return True
    trials = exam.facts.setdefault("trials", Trials(exam))
    kept = trials.good("frozen as it is", frozen=tuple(fixed))
    free = trials.good("all parameters trained")
    a, b = (r.valid_loss if math.isfinite(r.valid_loss) else r.loss for r in (kept, free))
    exam.facts["frozen and trained"] = [a, b]
    scale = exam.constant_loss
    worth = LITTLE * scale if math.isfinite(scale) else 0.0
    return not (b < 0.85 * a and a - b > worth)
