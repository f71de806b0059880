"""Layers far narrower than those around them, behind which the answer is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.baselines import Problem, baselines, problem
from corollary.diagnose.exam import TRACED, Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import copied, quiet
from corollary.diagnose.tables import dense
from corollary.diagnose.trace import WEIGHTED

__all__ = ["bottleneck"]

ROWS = 128  # of the answers that are compared
NARROW = 16  # units from which a layer is wide enough for most
ASIDE = 0.05  # of the size of the outputs, that they still vary by while a layer that all passes through says the same


def bottleneck(exam: Exam) -> None:
    """A layer far narrower than those around it, behind which the answer is gone."""
    s, t = exam.subject, exam.trace
    if t is None or s.net is None:
        return
    states = []
    for c in t.calls:
        if c.name in WEIGHTED and c.out.ndim >= 2:
            states.append((c.where, c.units.shape[1], c))
    if len(states) < 2:
        return
    x = s.train.x
    inputs = x.shape[1] if isinstance(x, Tensor) and x.ndim == 2 else 10**6
    widths = [w for _, w, _ in states]
    inner = sorted(range(len(widths) - 1), key=lambda i: widths[i])
    inner = [i for i in inner if _leads_on(states[i][2], [c for _, _, c in states[i + 1 :]])]
    through = (i for i in inner if widths[i] >= NARROW or not _passed_by(exam, states[i][0]))
    narrow = next(through, None)
    if narrow is None:
        return
    width = widths[narrow]
    before = max([*widths[:narrow], min(inputs, 10**4)])
    after = max(widths[narrow + 1 :])
    exam.facts["narrowest"] = [states[narrow][0], width, before, after]
    outputs = widths[-1]
    hour_glass = (
        max(widths[:narrow], default=0) >= 4 * width and max(widths[narrow + 1 : -1], default=0) >= 4 * width
    )
    # many inputs and many answers, and one number between them
    one = width == 1 and inputs >= 8 and outputs >= 4
    inner_narrow = hour_glass or (max(widths[:narrow], default=0) >= 8 * width) or one
    code = s.task == "reconstruction" and after >= 2 * width and before >= 2 * width
    if not (inner_narrow or code):
        return
    if s.task == "reconstruction":
        if _variational(exam):
            return  # such a code is narrow by design, and as wide as its prior lets it
        _narrow_code(exam, states[narrow][0], width)
        return
    if width >= NARROW or exam.fine:
        return
    upstream = next((i for i in range(narrow - 1, -1, -1) if widths[i] >= 4 * width), None)
    lost = _lost(exam, None if upstream is None else states[upstream][2], states[narrow][2])
    exam.facts["lost in narrow layer"] = lost
    if lost is None or lost[0] > lost[1] + 0.06 or width <= max(2, (outputs - 1) // 3):
        said = f"{states[narrow][0]} is {width} wide between {before} and {after}"
        said += (
            ""
            if lost is None
            else f"; a simple model gains {lost[0]:.2f} before it and {lost[1]:.2f} after it"
        )
        exam.find("bottleneck", width, said, where=states[narrow][0], sure=0.85, repair={"width": 4 * width})


def _leads_on(layer: Any, later: list[Any]) -> bool:
    """Whether later layers depend on one; a head beside others is no way through."""
    if not layer.out.requires_grad:
        return True
    ends = [c.out.sum() for c in later if c.out.requires_grad]
    grad = torch.autograd.grad(ends, [layer.out], allow_unused=True, retain_graph=True) if ends else [None]
    return grad[0] is not None


def _passed_by(exam: Exam, where: str) -> bool:
    """Whether answers still tell rows apart while a layer says the same of all of them: a gate, or the scores of attention."""
    s = exam.subject
    net = copied(s.net).eval()
    part = dict(net.named_modules()).get(where)
    if not where or part is None or s.train.whole:  # the number of its edges tells a node apart all the same
        return False
    same = part.register_forward_hook(
        lambda _m, _i, out: out[:1].expand_as(out) if isinstance(out, Tensor) else None
    )
    rows = s.train.first(ROWS)
    with torch.no_grad(), quiet(net):
        z = main_output(s.call(net, rows)).float()
        same.remove()
        usual = main_output(s.call(net, rows)).float()
    return bool(z.std(0).mean() > ASIDE * usual.std(0).mean())


def _lost(exam: Exam, before: Any, after: Any) -> tuple[float, float] | None:
    """Return what simple models gain from the states before and after a layer."""
    s = exam.subject
    y = s.train.y
    if not isinstance(y, Tensor) or before is None:
        return None
    # the states are of the traced rows
    rows = np.arange(s.train.n)
    if not s.train.whole and s.train.n > TRACED:
        rows = np.sort(np.random.default_rng(3).choice(s.train.n, TRACED, replace=False))
    p = problem(s.train, s.task, exam.reader, rows=rows)
    if p is None or len(p.rows) != len(rows):
        return None

    def gain(c: Any) -> float:
        h = c.out.detach().float()
        if len(h) != len(rows):
            return float("nan")
        h = h.reshape(len(h), -1).cpu().numpy()
        return baselines(Problem(h[:, :400], p.y, p.classes, p.rows), None, 30).gain

    return gain(before), gain(after)


def _variational(exam: Exam) -> bool:
    """Whether the code is a distribution: ``encode`` returns a mean and a logarithm of the variance."""
    s = exam.subject
    if not hasattr(s.net, "encode"):
        return False
    device, dtype = s.place(s.net)
    with torch.no_grad(), quiet(s.net):
        code = s.net.eval().encode(s.train.first(8).to(device, dtype).x)  # type: ignore[operator]
    return not isinstance(code, Tensor)


def _narrow_code(exam: Exam, where: str, width: int) -> None:
    """A code that is smaller than the data's own dimension: what PCA of that size keeps, and of a larger one."""
    s = exam.subject
    flat = dense(s.train.x).reshape(s.train.n, -1)
    flat = flat - flat.mean(0)
    spectrum = np.square(np.linalg.svd(flat[:1000], compute_uv=False))
    kept = np.cumsum(spectrum) / spectrum.sum()
    score = exam.score
    exam.facts["code"] = {"width": width, "kept": float(kept[min(width, len(kept)) - 1]), "score": score}
    linear = float(kept[min(width, len(kept)) - 1])
    double = float(kept[min(4 * width, len(kept)) - 1])
    if score < 0.8 and linear < 0.8 and double > linear + 0.1 and score > linear - 0.25:
        said = (
            f"{width} numbers keep {linear:.0%} of the variance, {4 * width} would keep {double:.0%}; "
            f"the model explains {score:.0%}"
        )
        exam.find("bottleneck", width, said, where=where, sure=0.85, repair={"latent": 4 * width})
