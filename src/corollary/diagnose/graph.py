"""Faults of the graph and the loop: parameters that get no gradient, that stand still, and gradients that are never cleared."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from scipy.stats import kstest
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import copied, main_output, quiet
from corollary.diagnose.trace import rms

__all__ = ["CHECKS", "untouched"]

STEPS = 8  # of the user's own, in which gradients that are added on purpose are cleared at least once
RARE = 0.7  # share of the commonest class from which accuracy says little


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
    found = used or stepped
    if not found:
        return
    total = sum(p.numel() for p in s.net.parameters())
    size = sum(p.numel() for n, p in s.net.named_parameters() if n in found)
    said = (
        f"{len(found)} parameters ({size / total:.0%} of the numbers) change the output but get no gradient"
    )
    exam.find("detached-parameters", size / total, said, where=", ".join(found[:6]))


def _flat(exam: Exam, name: str) -> bool:
    """Whether a parameter with zero gradient changes the output all the same: a step function, not a dead unit."""
    if any(c.name in ("relu", "dropout") for c in exam.trace.calls) or exam.has("output-range", "overflow"):
        return False
    return _change(exam, name) > 1e-3 and abs(exam.trace.loss) > 1e-8


# --- frozen ----------------------------------------------------------------------------------------------


def untouched(module: nn.Module, p: Tensor, kind: str) -> bool | None:
    """Whether a parameter looks as torch drew it; None where that cannot be told.

    Linear and convolutional layers start uniformly within ``1 / sqrt(fan_in)``, recurrent ones within
    ``1 / sqrt(hidden_size)``, embeddings normally, gains at one.
    """
    v = p.detach().float().reshape(-1).cpu()
    if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase, nn.RNNCellBase)):
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            bound = 1 / math.sqrt(module.hidden_size)
        else:
            bound = 1 / math.sqrt(max(1, module.weight[0].numel()))
        if bool((v.abs() > bound * (1 + 1e-6)).any()):
            return False
        if len(v) < 16 or not bool(v.any()):  # attention starts its biases at zero; trained ones are not
            return None
        return bool(kstest((v[:2000].numpy() / bound + 1) / 2, "uniform").pvalue > 1e-3)
    if isinstance(module, nn.Embedding):
        if module.padding_idx is not None:
            v = (
                torch.cat([p[: module.padding_idx], p[module.padding_idx + 1 :]])
                .detach()
                .float()
                .ravel()
                .cpu()
            )
        return bool(kstest(v[:2000].numpy(), "norm").pvalue > 1e-3) if len(v) >= 16 else None
    if isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)):
        return bool((v == (1.0 if kind == "weight" else 0.0)).all())
    return None


def drawn(net: nn.Module) -> dict[str, bool | None]:
    """Return for every parameter whether it looks untouched."""
    found = {}
    for prefix, module in net.named_modules():
        for kind, p in module.named_parameters(recurse=False):
            found[f"{prefix}.{kind}" if prefix else kind] = untouched(module, p, kind)
    return found


def start_scale(net: nn.Module, state: Any, name: str) -> float | None:
    """Return the size of a weight relative to a default start."""
    module_name, _, _ = name.rpartition(".")
    module = dict(net.named_modules()).get(module_name)
    if not isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)):
        return None
    return rms(state) * math.sqrt(3 * max(1, module.weight[0].numel()))


def frozen(exam: Exam) -> None:
    """Random layers that are held fixed, or that the optimiser never got."""
    s = exam.subject
    if s.given is None or s.net is None:
        return
    named = dict(s.given.named_parameters())
    total = sum(p.numel() for p in named.values())
    off = [n for n, p in named.items() if not p.requires_grad]
    missing: list[str] = []
    if s.settings.trained is not None and any(id(p) in s.settings.trained for p in named.values()):
        missing = [n for n, p in named.items() if p.requires_grad and id(p) not in s.settings.trained]
        missing = [n for n in missing if _stands(s.initial, n, named[n])]  # others belong to a second player
    looks = drawn(s.net)
    exam.facts["untouched"] = looks
    known = {n: v for n, v in looks.items() if v is not None}
    fresh = [n for n, v in known.items() if v]
    new = bool(known) and len(fresh) == len(known)  # an untrained net
    exam.facts["untrained"] = _untrained(exam, named, new and not off and not missing)
    if missing:
        share = sum(named[n].numel() for n in missing) / total
        random = [n for n in missing if looks.get(n) is not False]
        matrices = [n for n in random if named[n].ndim >= 2]
        if share > 0.02 and (matrices or share > 0.2) and not _as_good(exam, missing):
            said = f"{len(missing)} parameters ({share:.0%} of the numbers) were not handed to the optimiser"
            exam.find(
                "frozen-parameters", share, said, where=", ".join(missing[:6]), repair={"requires_grad": True}
            )
            return
    if off:
        share = sum(named[n].numel() for n in off) / total
        random = [n for n in off if looks.get(n) is True or (looks.get(n) is None and named[n].ndim >= 2)]
        rated = [n for n in off if looks.get(n) is not None and named[n].ndim >= 2]
        if rated and not any(looks[n] for n in rated):
            random = []  # trained elsewhere: frozen on purpose
        held = sum(named[n].numel() for n in random) / total
        exam.facts["frozen"] = {"share": share, "random": held}
        if held > 0.02 and not _as_good(exam, off):
            said = (
                f"{len(off)} parameters ({share:.0%} of the numbers) are held fixed, and {held:.0%} look "
                "as they were drawn at random"
            )
            exam.find(
                "frozen-parameters", held, said, where=", ".join(random[:6]), repair={"requires_grad": True}
            )
        return
    _stayed(exam, named, known, total)


def _stands(initial: Any, name: str, p: Tensor) -> bool:
    """Whether a parameter is where it began, as far as that is known."""
    began = None if initial is None else initial.get(name)
    return not isinstance(began, Tensor) or torch.equal(began.detach().cpu(), p.detach().cpu())


def _untrained(exam: Exam, named: dict[str, Any], new: bool) -> bool:
    """Whether the net was never trained: no history, and weights where they were drawn."""
    s = exam.subject
    if s.history.get("loss", np.zeros(0)).size or s.settings.steps:
        return False
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
            if own and large and any(known.get(n) for n in own):
                still += own
    moved = [n for n in named if n not in still]
    matrices = [n for n in still if named[n].ndim >= 2]
    share = sum(named[n].numel() for n in still) / max(1, total)
    if not matrices or not moved or share < 0.05:
        return
    if s.initial is None and not any(known.get(n) is False and _far(s.net, n, named[n]) for n in moved):
        return  # a rate that is too small leaves all of them near their start
    gradients = exam.trace.gradients if exam.trace is not None else {}
    flows = [n for n in matrices if gradients.get(n) is not None and rms(gradients[n]) > 1e-9]
    if flows and not _as_good(exam, still):
        said = (
            f"{len(still)} parameters ({share:.0%} of the numbers) stand exactly where they started, "
            "though the loss has a gradient for them"
        )
        exam.find("frozen-parameters", share, said, where=", ".join(matrices[:6]), sure=0.7 if s.initial is None else 1.0,
                  repair={"requires_grad": True})  # fmt: skip


def _far(net: nn.Module, name: str, p: Tensor) -> bool:
    """Whether a matrix has entries a tenth beyond where torch draws them."""
    module = dict(net.named_modules()).get(name.rpartition(".")[0])
    if p.ndim < 2 or module is None:
        return False
    fan = getattr(module, "hidden_size", None) or p[0].numel()
    return isinstance(module, nn.Embedding) or float(p.detach().abs().max()) > 1.1 / math.sqrt(max(1, fan))


def _as_good(exam: Exam, fixed: list[str]) -> bool:
    """Whether the model does well although parameters stand still: training them too gains nothing on held-out rows."""
    if not _fine(exam):
        return False
    if exam.lab is None or exam.subject.output is None:
        return True
    from corollary.diagnose.descent import Trials

    trials = exam.facts.setdefault("trials", Trials(exam))
    kept = trials.good("frozen as it is", frozen=tuple(fixed))
    free = trials.good("all parameters trained")
    a, b = (r.valid_loss if math.isfinite(r.valid_loss) else r.loss for r in (kept, free))
    exam.facts["frozen and trained"] = [a, b]
    return not b < 0.85 * a


def _fine(exam: Exam) -> bool:
    """Whether the model does what simple models can, where it was not trained."""
    base = exam.baselines
    score = exam.valid_score if np.isfinite(exam.valid_score) else exam.score
    if not np.isfinite(score):
        return False
    if base is None or not base.held:
        return score > 0.9
    reach = max(base.score, base.valid_score if np.isfinite(base.valid_score) else -1.0)
    if base.chance > RARE and base.labels is not None and exam.subject.task in ("classes", "binary"):
        mine, theirs = exam.balanced, _balanced(base)
        if mine > max(0.6, theirs - 0.02):
            return True  # it finds the rare classes, which a plain accuracy does not count
    left = (1 - score) / max(1e-9, 1 - base.chance)
    possible = (1 - reach) / max(1e-9, 1 - base.chance)
    return left < possible * 1.1 + 0.03


def _balanced(base: Any) -> float:
    """Return the mean recall of the best simple model, on rows it did not see."""
    y = base.problem.y
    found = [base.labels[g.argmax(1)] for g in base.guesses.values()]
    return max(float(np.mean([(said[y == k] == k).mean() for k in base.labels])) for said in found)


# --- the loop --------------------------------------------------------------------------------------------


def loop(exam: Exam) -> None:
    """Run the user's own step on a copy and look at what it leaves behind."""
    s = exam.subject
    if s.given is None:
        return
    if s.step is None:
        _left_gradients(exam)
        return
    net = copied(s.given)
    if exam.facts.get("weights broken"):  # where it diverged nothing can be seen
        net = s.twin("initial" if s.initial is not None else "new")
    net.train()
    rows = s.train if s.train.whole else s.train.take(np.arange(min(s.train.n, s.settings.batch_size or 32)))
    batch = _batch(rows, s.target(rows) if s.restores else rows.y)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    with quiet(net), torch.enable_grad():
        torch.manual_seed(0)
        s.step(net, batch)
        kept = _never_cleared(s.step, net, batch)
    kept = [n for n in kept if not torch.equal(dict(net.named_parameters())[n].detach(), before[n])]
    if kept:  # of parameters that the step moves
        share = sum(before[n].numel() for n in kept) / sum(p.numel() for p in before.values())
        said = f"after {STEPS} steps the gradients of {share:.0%} of the numbers still hold all those before them"
        exam.find("gradients-not-cleared", share, said, where=", ".join(kept[:6]))
        return
    still = [n for n, p in net.named_parameters() if p.requires_grad and torch.equal(p.detach(), before[n])]
    matrices = [n for n in still if before[n].ndim >= 2]
    gradients = exam.trace.gradients if exam.trace is not None else {}
    flows = [n for n in matrices if gradients.get(n) is not None and rms(gradients[n]) > 1e-8]
    if flows:
        said = f"the step leaves {len(still)} parameters where they were, though the loss has a gradient for them"
        exam.find("frozen-parameters", len(still), said, where=", ".join(flows[:6]))


def _never_cleared(step: Any, net: nn.Module, batch: Any) -> list[str]:
    """Return the parameters whose old gradient, marked by its size, is left after every one of some steps."""
    marker, kept = 1e3, [n for n, _ in net.named_parameters()]
    for _ in range(STEPS):
        old = {n: p.grad.detach().clone() for n, p in net.named_parameters() if p.grad is not None}
        sizes = {n: float(g.square().sum()) for n, g in old.items()}
        weights = copy.deepcopy(net.state_dict())
        for n, p in net.named_parameters():
            if n in old:
                p.grad = old[n] * marker
        step(net, batch)
        after = {n: p.grad for n, p in net.named_parameters() if p.grad is not None and n in old}
        left = {n: float((after[n] * old[n]).sum()) for n in after}
        kept = [n for n in kept if 0 < 0.5 * marker * sizes.get(n, 0.0) < left.get(n, 0.0) < math.inf]
        if not kept:
            break
        net.load_state_dict(weights)
        for n, p in net.named_parameters():
            if n in old:
                p.grad = old[n]
        step(net, batch)
    return kept


def _batch(rows: Any, y: Any) -> tuple[Any, Any]:
    X = rows.kwargs if not rows.args else rows.args[0] if len(rows.args) == 1 else tuple(rows.args)
    return X, y


def _left_gradients(exam: Exam) -> None:
    """Gradients that came with the model and are far longer than any batch gives."""
    s, t = exam.subject, exam.trace
    if t is None or s.given is None or (s.train.y is None and not s.criterion.was_given):
        return
    held = s.settings.trained  # what no optimiser holds is cleared by none, and does no harm
    named = s.given.named_parameters()
    kept = {n: p.grad for n, p in named if p.grad is not None and (held is None or id(p) in held)}
    fresh = {n: g for n, g in t.gradients.items() if g is not None and n in kept}
    if not fresh:
        return
    a = sum(float(kept[n].float().square().sum()) for n in fresh) ** 0.5
    size = s.settings.batch_size or 32
    net = copied(s.net)
    norms = []
    with quiet(net):
        for k in range(6):
            rows = (
                s.train
                if s.train.whole
                else s.train.take(
                    np.random.default_rng(k).choice(s.train.n, min(size, s.train.n), replace=False)
                )
            )
            net.zero_grad()
            s.loss(net.train(), rows).backward()
            norms.append(
                sum(float(p.grad.square().sum()) for p in net.parameters() if p.grad is not None) ** 0.5
            )
    usual = max(norms)
    exam.facts["kept gradient"] = [a, usual]
    if a > 30 * usual + 1e-6 and math.isfinite(a):
        said = f"the gradients that came with the model are {a / max(usual, 1e-12):.0f} times longer than a batch gives"
        exam.find("gradients-not-cleared", a / max(usual, 1e-12), said, where="parameters' .grad", sure=0.9)


CHECKS = (detached, frozen, loop)
