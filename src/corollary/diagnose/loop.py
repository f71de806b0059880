"""Faults of the user's own loop: gradients that are never cleared, parameters that a step leaves where they were."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import copied, quiet
from corollary.diagnose.trace import rms

__all__ = ["loop"]

STEPS = 8  # times that the user's own step is looked at


def loop(exam: Exam) -> None:
    """Run the user's own step on a copy and look at what it leaves behind."""
    s = exam.subject
    if s.given is None:
        return
    if s.step is None:
        _left_gradients(exam)
        return
    rows = s.train.first(s.settings.batch_size or 32)
    batch = rows.inputs, s.target(rows) if s.restores else rows.y
    begun = s.twin("initial" if s.initial is not None else "new")
    nets = [begun] if exam.facts.get("weights broken") else [copied(s.given), begun]
    for net in nets:  # where a descent has ended in dead units or in NaN no gradient is left to be seen
        share, where = _heaped(s.step, net.train(), batch)
        if where:
            said = f"the gradients of {share:.0%} of the numbers still hold those of steps that were taken already"
            exam.find("gradients-not-cleared", share, said, where=where)
            if "overflow" in exam.sure:
                exam.sure["overflow"] = 0.5  # numbers grow beyond bounds where gradients add up
            return
    _left_behind(exam, nets[0], batch)


def _heaped(step: Any, net: nn.Module, batch: Any) -> tuple[float, str]:
    """Return the share of numbers whose gradients are never cleared though the step moves them, and their names."""
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    with quiet(net), torch.enable_grad():
        torch.manual_seed(0)
        step(net, batch)
        kept = _never_cleared(step, net, batch)
    moved = dict(net.named_parameters())
    kept = [n for n in kept if not torch.equal(moved[n].detach(), before[n])]
    share = sum(before[n].numel() for n in kept) / max(1, sum(p.numel() for p in before.values()))
    return share, ", ".join(kept[:6])


def _left_behind(exam: Exam, net: nn.Module, batch: Any) -> None:
    """Parameters that all steps leave where they are, though the loss has a gradient for them."""
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    with quiet(net), torch.enable_grad():
        torch.manual_seed(0)
        for _ in range(STEPS):
            exam.subject.step(net, batch)
    still = [n for n, p in net.named_parameters() if p.requires_grad and torch.equal(p.detach(), before[n])]
    matrices = [n for n in still if before[n].ndim >= 2]
    gradients = exam.trace.gradients if exam.trace is not None else {}
    flows = [n for n in matrices if gradients.get(n) is not None and rms(gradients[n]) > 1e-8]
    if flows:
        said = f"the step leaves {len(still)} parameters where they were, though the loss has a gradient for them"
        exam.find("frozen-parameters", len(still), said, where=", ".join(flows[:6]))


def _never_cleared(step: Any, net: nn.Module, batch: Any) -> list[str]:
    """Return the parameters that two steps in a row move while an old gradient, marked by its size, outlasts both.

    Gradients that are added up on purpose are cleared between one move and the next. What outlasts most pairs of moves is
    stale, though some later step may clear it.
    """
    return (
        _stale(step, copied(net), batch, in_place=True)
        or _stale(step, net, batch, in_place=False)
        or _stale(step, net, batch, in_place=True)
    )


def _stale(step: Any, net: nn.Module, batch: Any, in_place: bool) -> list[str]:
    """Return the parameters of most marks that outlast two steps, of the net itself or of copies of it.

    A step that counts its calls, or has made its optimiser for one net, must see that net all along; the marks stay in its
    momentum, which copies keep out.
    """
    stale = dict.fromkeys((n for n, _ in net.named_parameters()), 0)
    for _ in range(STEPS):
        for n in _outlasting(step, net if in_place else copied(net), net, batch):
            stale[n] += 1
        step(net, batch)
    return [n for n, times in stale.items() if times >= STEPS / 2]


def _outlasting(step: Any, probe: nn.Module, net: nn.Module, batch: Any) -> set[str]:
    """Return the parameters whose marked gradients outlast two steps."""
    marker = 1e3
    old = {n: p.grad.detach().clone() for n, p in net.named_parameters() if p.grad is not None}
    weights = copy.deepcopy(net.state_dict())
    for n, p in probe.named_parameters():
        p.grad = old[n] * marker if n in old else None
    outlasts = set(old)
    for _ in range(2):
        probe.load_state_dict(weights)
        step(probe, batch)
        for n, p in probe.named_parameters():
            size = float(old[n].square().sum()) if n in old else 0.0
            left = 0.0 if p.grad is None or n not in old else float((p.grad * old[n]).sum())
            kept = 0 < 0.5 * marker * size < left < math.inf
            if not kept or torch.equal(p.detach(), weights[n]):
                outlasts.discard(n)
    probe.load_state_dict(weights)
    for n, p in probe.named_parameters():
        p.grad = old.get(n)
    return outlasts


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
