"""Numbers that leave their range: where a sum, a product or a power of finite numbers is infinite or not a number.

What overflows inside may look finite outside, as a quotient by infinity is zero. So every operation is watched as torch
runs it; constants such as a mask of -inf are no results of arithmetic and do not count.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.subject import quiet
from corollary.diagnose.trace import NORMS, WEIGHTED
from corollary.diagnose.trials import Trials

__all__ = ["not_finite", "overflow"]


def not_finite(exam: Exam) -> None:
    """NaN or infinite values in inputs or targets."""
    s = exam.subject
    for part, samples in (("training", s.all_train), ("validation", s.all_valid)):
        if samples is None:
            continue
        for name, t in [*samples.named, ("y", samples.y)]:
            if not isinstance(t, Tensor) or not t.is_floating_point() or t.layout != torch.strided:
                continue
            bad = ~torch.isfinite(t)
            count = int(bad.sum())
            if not count:
                continue
            where = f"{part} {name}"
            if t.ndim >= 2 and name != "y":
                columns = torch.nonzero(
                    bad.reshape(-1, t.shape[-1] if t.ndim != 4 else t[0].numel()).any(0)
                ).ravel()
                where += f", columns {columns[:8].tolist()}" if t.ndim == 2 else ""
            rows = torch.nonzero(bad.reshape(len(t), -1).any(1)).ravel() if t.ndim else torch.zeros(1)
            said = f"{count} of {t.numel()} values of the {where} are NaN or infinite, in {len(rows)} rows"
            exam.find(
                "not-finite-data", count / t.numel(), said, where=where, evidence={"rows": rows[:50].tolist()}
            )
            return


ARITHMETIC = {
    "add", "sub", "mul", "div", "pow", "exp", "exp2", "expm1", "prod", "cumprod", "sum", "mean", "cumsum", "square", "var",
    "mm", "bmm", "addmm", "baddbmm", "matmul", "convolution", "linalg_vector_norm", "norm", "reciprocal", "rsqrt", "cosh", "sinh",
}  # fmt: skip

POWERS = {"exp", "exp2", "expm1", "cosh", "sinh"}
DEEP = 6  # layers over which a gain of two per layer grows a hundredfold


class _Watch(TorchDispatchMode):
    """Notes the first operation whose inputs are finite and whose result is not, and how many rows it touches."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.share, self.dtype = "", 0.0, ""
        self.powers: list[str] = []  # what was called that grows beyond all bounds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in POWERS:
            self.powers.append(name)
        if not self.name and name in ARITHMETIC and isinstance(out, Tensor) and out.is_floating_point():
            bad = ~torch.isfinite(out)
            if bool(bad.any()) and all(_finite(t) for t in tree_leaves((args, kwargs or {}))):
                self.name, self.dtype = name, str(out.dtype).removeprefix("torch.")
                self.share = float(bad.reshape(len(out), -1).any(1).float().mean()) if out.ndim else 1.0
        return out


def _finite(t: Any) -> bool:
    if isinstance(t, Tensor):
        return not t.is_floating_point() or bool(torch.isfinite(t).all())
    return not isinstance(t, float) or math.isfinite(t)


def overflow(exam: Exam) -> None:
    """Finite inputs and weights whose output, loss, gradient or inner numbers are not; or weights that became so."""
    s = exam.subject
    if s.net is None or s.output is None or exam.has("not-finite-data"):
        return
    broken = [n for n, p in s.net.named_parameters() if not bool(torch.isfinite(p).all())]
    if broken:
        exam.facts["weights broken"] = True
        _broken(exam, broken)
        return
    share, what = _unfit(exam, s.net)
    if share > 0:
        exam.find("overflow", share, f"{what}, though data and weights are finite")
    else:
        _inside(exam)


def _broken(exam: Exam, broken: list[str]) -> None:
    """Weights that are not finite: by the arithmetic, if that fails at the start or while the loss falls; else by the descent."""
    s = exam.subject
    start = "their start" if s.initial is not None else "new ones"
    net = s.twin("initial" if s.initial is not None else "new")
    halves = [p.dtype for p in s.net.parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    if s.initial is not None and halves:
        net = net.to(halves[0])
    share, what = _unfit(exam, net)
    if share > 0:
        said = f"the weights are not finite, and from {start} {what} too"
        exam.find("overflow", share, said, where=broken[0])
    elif _breaks_while_falling(exam):
        said = f"the weights are not finite, and from {start} the loss becomes so without ever rising"
        exam.find("overflow", 1.0, said, where=broken[0])
    else:
        said = f"{len(broken)} parameters are NaN or infinite, though data and start are not: the descent diverged"
        exam.find("learning-rate-too-large", float("inf"), said, where=broken[0], severity="error")
        if s.initial is None:
            _suspects(exam, net)


def _suspects(exam: Exam, net: nn.Module) -> None:
    """What may have led to weights that are not finite where their start is not known: depth, and powers taken by hand."""
    calls = exam.traced(net).calls
    deep = sum(c.name in WEIGHTED for c in calls) >= DEEP and not any(c.name in NORMS for c in calls)
    steps = any(isinstance(m, (nn.RNNBase, nn.RNNCellBase)) for m in net.modules())
    deep = deep or any(isinstance(m, (nn.RNN, nn.RNNCell)) for m in net.modules())  # no gate holds these
    if deep or steps:
        said = "the weights are not finite, and nothing keeps signals in range over the layers or steps of this net"
        exam.find("exploding-gradient", float("inf"), said, sure=0.8 if deep else 0.7)
    with torch.no_grad(), quiet(net), _Watch() as watch:
        exam.subject.call(net.eval(), exam.subject.train.first(8))
    if watch.powers:
        said = (
            f"the weights are not finite, and the net takes {watch.powers[0]} of numbers that nothing bounds"
        )
        exam.find("overflow", 1.0, said, where=watch.powers[0], sure=0.7)


def _breaks_while_falling(exam: Exam) -> bool:
    """Whether the descent ends in NaN from a loss no higher than at the start: a rate that is too large raises it first."""
    if exam.lab is None:
        return False
    trials = exam.facts.setdefault("trials", Trials(exam))
    start = "initial" if exam.subject.initial is not None else "new"
    r = trials.run("control from the start", start)
    if not r.losses or all(map(math.isfinite, [*r.losses, r.loss])):
        return False
    finite = [v for v in r.losses if math.isfinite(v)]
    return len(finite) >= 10 and max(finite[-5:]) <= 1.5 * max(finite[:5])


def _unfit(exam: Exam, net: nn.Module) -> tuple[float, str]:
    """Return the share of rows whose output or loss is not finite, and what it was."""
    s = exam.subject
    with torch.no_grad(), quiet(net):
        for part, samples in (("training", s.train), ("validation", s.valid)):
            if samples is None:
                continue
            out = s.call(net.eval(), samples)
            z = main_output(out)
            bad = ~torch.isfinite(z.reshape(len(z), -1)).all(1) if z.ndim else ~torch.isfinite(z)[None]
            if bool(bad.any()):
                return float(bad.float().mean()), f"the output of {int(bad.sum())} {part} rows is not finite"
            loss = s.loss(net, samples)
            if not bool(torch.isfinite(loss)):
                return 1.0, f"the {part} loss is {float(loss)}"
    if exam.subject.net is net:
        with torch.enable_grad():
            gradients = exam.traced(net).gradients
        for name, g in gradients.items():
            if g is not None and not bool(torch.isfinite(g).all()):
                return float((~torch.isfinite(g)).float().mean()), f"the gradient of {name} is not finite"
    return 0.0, ""


def _inside(exam: Exam) -> None:
    """Operations that overflow on the way though the output is finite, where the model does not do well all the same."""
    s = exam.subject
    with torch.no_grad(), quiet(s.net), _Watch() as watch:
        s.call(s.net.eval(), s.train)
    if watch.name and not exam.fine:
        said = f"inside the net {watch.name} of finite numbers is not finite, for {watch.share:.0%} of the rows, in {watch.dtype}"
        exam.find("overflow", watch.share, said, where=watch.name, sure=0.9)
