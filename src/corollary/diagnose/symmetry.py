"""Hidden units that are alike: equal weights get equal gradients and stay equal."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import main_output
from corollary.diagnose.trace import RECTIFIERS, SQUASHERS, WEIGHTED

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
