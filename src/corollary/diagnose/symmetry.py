"""Hidden units that are alike: equal weights get equal gradients and stay equal."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.trace import RECTIFIERS, SQUASHERS, WEIGHTED
from corollary.diagnose.weights import weights_state

__all__ = ["symmetric"]


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


def _one_group(W: Tensor) -> bool:
    """Whether units equal each other exactly, or most are one group: as they were drawn, not by what they have learned."""
    rows = W.reshape(len(W), -1)[:256]
    size = float(rows.norm(dim=1).mean())
    apart = torch.cdist(rows, rows).fill_diagonal_(float("inf")).min(1).values
    centred = (rows - rows.mean(0)).norm(dim=1) < 0.01 * size
    return float((apart < 1e-5 * size).float().mean()) > 0.3 or float(centred.float().mean()) > 0.3


def symmetric(exam: Exam) -> None:
    """Hidden layers whose units are all alike, now or where they began."""
    s = exam.subject
    if s.net is None or exam.facts.get("weights broken") or _decayed(exam):
        return
    order = [c.where for c in exam.trace.layers()] if exam.trace is not None else []
    last = order[-1] if order else None
    hidden = {n: W for n, W in _matrices(s.net) if n.rpartition(".")[0] != last}
    alike = {n: _alike(exam, n, W) for n, W in hidden.items()}
    exam.facts["equal units"] = max(alike.values(), default=0.0)
    alike = {n: share for n, share in alike.items() if share > 0.3}
    if not alike:
        _alike_responses(exam)
        return
    if s.initial is None and exam.fine and not any(_one_group(hidden[n]) for n in alike):
        return  # groups that a penalty has brought together on the way, where they do no harm
    zero = all(float(hidden[n].abs().max()) < 1e-12 for n in alike)
    if zero and len(alike) == len(hidden) and (s.settings.weight_decay or 0.0) > 1e-2:
        return  # the decay has made them so
    name, share = next(iter(alike.items()))
    said = f"{share:.0%} of the units of {name} equal another one: they get the same gradient for ever"
    where = ", ".join(list(alike)[:5])
    exam.find("symmetric-initialisation", share, said, where=where, repair={"initialise": "kaiming"})


def _decayed(exam: Exam) -> bool:
    """Whether units may be alike because a strong decay has shrunk them: their weights began apart, or are short."""
    s = exam.subject
    usual = 0.3 if s.settings.decoupled else 1e-2
    if not (s.settings.weight_decay or 0.0) > 3 * usual:
        return False
    if s.initial is None:
        return weights_state(exam).ratio < 0.7
    began = [s.initial.get(n) for n, _ in _matrices(s.net)]
    return all(equal_units(W.float().cpu()) < 0.3 for W in began if isinstance(W, Tensor))


def _alike(exam: Exam, name: str, W: Tensor) -> float:
    """Return the share of equal units of a layer; zero where they are few, or where it does no harm."""
    share = equal_units(W)
    began = exam.subject.initial.get(name) if exam.subject.initial is not None else None
    if not isinstance(began, Tensor) or began.shape != W.shape:
        return share if share > 0.6 else 0.0
    began = began.detach().float().cpu()
    first = equal_units(began)
    if share > 0.6 or (first > 0.6 and share > 0.3):
        return share
    drawn_apart = first > 0.9 and bool(began.any()) and not exam.fine  # by what came after, too late
    return first if drawn_apart else 0.0


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
