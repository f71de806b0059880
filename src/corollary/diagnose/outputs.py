"""What outputs can reach, and whether they stand still from call to call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.rewards import class_axis, takes_logits
from corollary.diagnose.samples import IGNORED, Samples, main_output
from corollary.diagnose.subject import Subject, copied, quiet
from corollary.diagnose.trace import WEIGHTED

ROWS = 256
# of the variance of the targets, that is lost beyond the range: noise about an end of it is no more
NOISE = 3e-3
# of the range, in which outputs are at its end, and the share of them that a range holds back
NEAR, PILED = (0.05, 0.1)

__all__ = ["output_range", "stochastic_evaluation"]


def _last_layers(exam: Exam, net: nn.Module) -> Iterator[list[nn.Parameter]]:
    """Yield the parameters of modules with weights, the last called first."""
    parts = dict(net.named_modules())
    tables = {"embedding", "embedding_bag"}
    for kinds in (WEIGHTED - tables, tables):  # of products of embeddings these are the last
        for c in reversed([] if exam.trace is None else exam.trace.calls):
            own = list(parts[c.where].parameters(recurse=False)) if c.where in parts else []
            if c.name in kinds and own:
                yield [*own, *_loose(net)]


def _loose(net: nn.Module) -> list[nn.Parameter]:
    """Return the single numbers of modules that are no layers of torch's: scales and offsets of someone's own."""
    own = (m for m in net.modules() if not type(m).__module__.startswith("torch."))
    return [p for m in own for p in m.parameters(recurse=False) if p.numel() == 1]


def reachable(exam: Exam) -> tuple[Tensor, Tensor] | None:
    """Return the least and greatest outputs that large weights of the last layer reach, per output.

    Of several heads that is the one that makes the main output: other weights do not change it.
    """
    s = exam.subject
    net = copied(s.net).float()
    rows = s.train.first(ROWS)
    with torch.no_grad(), quiet(net):
        plain = main_output(s.call(net.eval(), rows)).detach().float().cpu()
        for own in _last_layers(exam, net):
            before = [p.detach().clone() for p in own]
            found = []
            for factor in (1e4, -1e4):
                for p, b in zip(own, before):
                    noise = torch.randn(b.shape, generator=torch.Generator().manual_seed(1)).to(b)
                    p.copy_(factor * (b + 0.1 * noise * (b.abs().mean() + 1e-3)))
                found.append(main_output(s.call(net, rows)).detach().float().cpu())
            if all(torch.equal(plain, z) for z in found):
                for p, b in zip(own, before):
                    p.copy_(b)
                continue
            z = torch.cat(found)
            z = z.reshape(len(z), -1)
            return z.min(0).values, z.max(0).values
    return None


def output_range(exam: Exam) -> None:
    """Targets that no weights of the last layer can reach."""
    s = exam.subject
    target = s.target(s.train)
    z = main_output(s.output)
    if s.net is None or z is None or not isinstance(target, Tensor) or exam.has("double-softmax"):
        return
    if s.task == "density" or not bool(torch.isfinite(z).all()):
        return
    ends = reachable(exam)
    if ends is None:
        return
    z = z.detach().float().cpu()
    own = z.reshape(len(z), -1)
    low, high = torch.minimum(ends[0], own.min(0).values), torch.maximum(ends[1], own.max(0).values)
    if s.task in ("regression", "reconstruction"):
        y = target.detach().float().cpu()
        if y.numel() != z.numel():
            return
        y = y.reshape(len(y), -1)
        y = y[(y != IGNORED).all(1)]
        spread = float(y.std()) or 1.0
        slack = 0.02 * spread
        bounded = (high - low) < 1e3 * (spread + float(y.abs().max()))
        below = (
            (y < low.min() - slack)
            if float(low.min()) > -1e3 * (spread + 1)
            else torch.zeros_like(y, dtype=torch.bool)
        )
        above = (
            (y > high.max() + slack)
            if float(high.max()) < 1e3 * (float(y.abs().max()) + 1)
            else torch.zeros_like(y, dtype=torch.bool)
        )
        share = float((below | above).float().mean())
        beyond = (low.min() - y).clamp_min(0) * below + (y - high.max()).clamp_min(0) * above
        lost = float(beyond.square().mean() / y.var(unbiased=False).clamp_min(1e-30))
        exam.facts["output range"] = [float(low.min()), float(high.max())]
        limit = 0.01 if s.task == "regression" else 0.03
        if share > limit and lost > NOISE:
            said = (
                f"{share:.1%} of the targets lie outside {float(low.min()):.3g} to {float(high.max()):.3g}, "
                "beyond which the last activation lets no output"
            )
            exam.find("output-range", share, said, where=exam.last_call or "output")
        elif bool(bounded.any()) and share == 0:
            exam.facts["bounded output"] = True
        return
    width = float((high - low).max())
    exam.facts["output range"] = [float(low.min()), float(high.max())]
    last = exam.last_call
    if width < 20 and s.criterion.custom and not takes_logits(s.criterion, s.output, z, target.cpu()):
        return  # a loss of probabilities is least within their range
    if s.task == "classes" and z.ndim >= 2 and s.criterion.name in ("cross_entropy", "custom"):
        k = z.shape[class_axis(z, target)]
        least = float(np.log1p((k - 1) * np.exp(-min(width, 50.0))))
        if width < 20 and least > 0.1 * np.log(k):
            said = f"logits can only span {width:.3g}, so that the loss stays above {least:.3g} whatever is learned"
            exam.find("output-range", width, said, where=last or "output")
            return
    if s.task in ("classes", "binary", "multilabel") and s.criterion.name in (
        "cross_entropy",
        "bce_with_logits",
        "custom",
    ):
        floor = float(low.min())
        stuck = float((z <= floor + 1e-9).float().mean()) if floor > -1.0 else 0.0
        if floor > -1e-6 and float(high.max()) > 100 and (stuck > 0.15 or s.task != "classes"):
            said = (
                f"outputs cannot be negative, and {stuck:.0%} of them are at zero, where no gradient passes"
            )
            exam.find("output-range", stuck, said, where=last or "output")
        elif s.task != "classes" and width < 5 and not (exam.fine and _free(z, floor, float(high.max()))):
            said = f"logits can only span {float(low.min()):.3g} to {float(high.max()):.3g}"
            exam.find("output-range", width, said, where=last or "output")


def stochastic_evaluation(exam: Exam) -> None:
    """Outputs that change from call to call, or with the other rows of the batch."""
    s = exam.subject
    if s.given is None or s.output is None:
        return
    generative = any(hasattr(s.given, n) for n in ("encode", "sample")) or _draws_codes(s)
    rows = s.train.first(64)
    if rows.whole:
        outs = _twice(exam, rows, rows)
    else:
        outs = _twice(exam, rows, rows)
    change = _relative(*outs)
    if change > 1e-4 and not generative:
        mode = "the model is in training mode: " if s.given.training else ""
        said = f"{mode}two calls on the same rows differ by {change:.1%} of the outputs' size"
        exam.find("stochastic-evaluation", change, said, where=_noisy(s.given), repair={"eval": True})
        return
    # it rounds by what a batch holds
    quantised = any("quantized" in type(m).__module__ for m in s.given.modules())
    if rows.whole or rows.n < 8 or quantised:
        return
    half = rows.take(np.arange(rows.n // 2))
    net = copied(s.given)
    net.train(s.mode)
    _restore_modes(s.given, net)
    with torch.no_grad(), quiet(net):
        whole, part = main_output(s.call(net, rows)), main_output(s.call(net, half))
    if whole.ndim and part.ndim and len(whole) == rows.n and len(part) == half.n:
        change = _relative(whole[: half.n], part)
        if change > 1e-2 and not generative:
            said = f"outputs change by {change:.1%} with what else is in the batch"
            exam.find("stochastic-evaluation", change, said, where=_noisy(s.given), repair={"eval": True})


def _free(z: Tensor, low: float, high: float) -> bool:
    """Whether few outputs lie at the ends of the range."""
    near = NEAR * (high - low)
    return float(((z < low + near) | (z > high - near)).float().mean()) < PILED


def _draws_codes(s: Subject) -> bool:
    """Whether inputs are restored by way of a mean and a variance of a code, which is drawn: noise that is meant so."""
    parts = list(s.output.values()) if isinstance(s.output, Mapping) else s.output
    if s.task != "reconstruction" or not isinstance(parts, (tuple, list)) or len(parts) < 3:
        return False
    code = [p.shape for p in parts[1:3] if isinstance(p, Tensor)]
    return len(code) == 2 and code[0] == code[1]


def _restore_modes(given: nn.Module, net: nn.Module) -> None:
    for a, b in zip(given.modules(), net.modules()):
        b.training = a.training


def _twice(exam: Exam, first: Samples, second: Samples) -> tuple[Tensor, Tensor]:
    s = exam.subject
    outs = []
    for seed, rows in ((1, first), (2, second)):
        net = copied(s.given)
        _restore_modes(s.given, net)
        with torch.no_grad(), quiet(net):
            torch.manual_seed(seed)
            outs.append(main_output(s.call(net, rows)).detach().float())
    return outs[0], outs[1]


def _relative(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return 0.0
    a, b = a.float(), b.float()
    both = torch.isfinite(a) & torch.isfinite(b)
    if not bool(both.any()):
        return 0.0
    size = float(a[both].std(unbiased=False)) + 1e-3 * float(a[both].abs().mean()) + 1e-12
    return float((a - b)[both].abs().mean()) / size


def _noisy(given: nn.Module) -> str:
    kinds = (nn.Dropout, nn.Dropout2d, nn.modules.batchnorm._BatchNorm, nn.AlphaDropout)
    return (
        ", ".join([n for n, m in given.named_modules() if isinstance(m, kinds) and m.training][:4])
        or "forward"
    )
