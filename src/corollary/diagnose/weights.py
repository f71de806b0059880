"""Where the weights are, beside where torch draws them: as drawn, hardly moved, collapsed or far away."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import kstest
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.trace import rms

__all__ = ["State", "beyond_start", "can_stand_out", "drawn", "like_a_draw", "untouched", "weights_state"]


# of where the singular values of random matrices end: by chance the largest is 0.05 beyond at most
EDGE = 1.15


def untouched(module: nn.Module, p: Tensor, kind: str) -> bool | None:
    """Whether a parameter looks as torch drew it; None where that cannot be told.

    Linear and convolutional layers start uniformly within ``1 / sqrt(fan_in)``, recurrent ones within
    ``1 / sqrt(hidden_size)``, embeddings normally, gains at one. What a training adds may leave that distribution as it
    is, but no matrix of random entries (:func:`like_a_draw`).
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
        same = kstest((v[:2000].numpy() / bound + 1) / 2, "uniform").pvalue > 1e-3
        return bool(same) and (p.ndim < 2 or like_a_draw(p))
    if isinstance(module, nn.Embedding):
        if module.padding_idx is not None:
            v = (
                torch.cat([p[: module.padding_idx], p[module.padding_idx + 1 :]])
                .detach()
                .float()
                .ravel()
                .cpu()
            )
        return (
            bool(kstest(v[:2000].numpy(), "norm").pvalue > 1e-3) and like_a_draw(p) if len(v) >= 16 else None
        )
    if isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)):
        return bool((v == (1.0 if kind == "weight" else 0.0)).all())
    return None


def like_a_draw(W: Tensor) -> bool:
    r"""Whether a matrix looks as if its entries were drawn independently, at whatever scale.

    The largest singular value of such an :math:`m \times n` matrix is about :math:`\sigma (\sqrt m + \sqrt n)`, the edge of
    Marchenko and Pastur. What gradients add is of low rank and stands out beyond it.
    """
    W = W.detach().float().cpu().reshape(len(W), -1)
    edge = float(W.std()) * (math.sqrt(W.shape[0]) + math.sqrt(W.shape[1]))
    return float(torch.linalg.matrix_norm(W - W.mean(), 2)) < EDGE * edge


def can_stand_out(W: Tensor) -> bool:
    """Whether a matrix of its shape would lie beyond that edge if gradients had made all of it, so that it is of rank one."""
    m, n = len(W), W[0].numel()
    return math.sqrt(m * n) > EDGE * (math.sqrt(m) + math.sqrt(n))


def drawn(net: nn.Module) -> dict[str, bool | None]:
    """Return for every parameter whether it looks untouched."""
    found = {}
    for prefix, module in net.named_modules():
        for kind, p in module.named_parameters(recurse=False):
            found[f"{prefix}.{kind}" if prefix else kind] = untouched(module, p, kind)
    return found


def beyond_start(net: nn.Module, name: str, p: Tensor) -> bool:
    """Whether a matrix has entries a tenth beyond where torch draws them."""
    module = dict(net.named_modules()).get(name.rpartition(".")[0])
    if p.ndim < 2 or module is None:
        return False
    fan = getattr(module, "hidden_size", None) or p[0].numel()
    return isinstance(module, nn.Embedding) or float(p.detach().abs().max()) > 1.1 / math.sqrt(max(1, fan))


@dataclass
class State:
    """Where the weights are, relative to a default start."""

    ratio: float = float("nan")  # size of the weights over that of a default start, median over layers
    smallest: float = float("nan")
    largest: float = float("nan")
    beyond: float = float("nan")  # share of weights outside of what is drawn
    moved: float = float("nan")  # distance from the initial weights, relative to their size
    decayed: float = float("nan")  # cosine of the gradient with minus the weights


def weights_state(exam: Exam) -> State:
    """Return where the weights are."""
    s = exam.subject
    net = s.net
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)
    ratios, beyond, total = [], 0, 0
    for m in net.modules():
        if not isinstance(m, kinds):
            continue
        for p in m.parameters(recurse=False):
            if p.ndim < 2:
                continue
            fan = m.hidden_size if isinstance(m, nn.RNNBase) else max(1, p[0].numel())
            bound = 1 / math.sqrt(fan)
            ratios.append(rms(p) / (bound / math.sqrt(3)))
            beyond += int((p.detach().abs() > bound * (1 + 1e-4)).sum())
            total += p.numel()
    state = State()
    if ratios:
        state.ratio, state.smallest, state.largest = float(np.median(ratios)), min(ratios), max(ratios)
        state.beyond = beyond / max(1, total)
    if s.initial is not None:
        a = b = 0.0
        for n, p in net.named_parameters():
            if n in s.initial and s.initial[n].shape == p.shape:
                a += float((p.detach().float().cpu() - s.initial[n].detach().float().cpu()).square().sum())
                b += float(s.initial[n].detach().float().square().sum())
        state.moved = math.sqrt(a / b) if b else float("nan")
        began, now = [], []
        for n, p in net.named_parameters():
            if p.ndim >= 2 and n in s.initial and s.initial[n].shape == p.shape:
                began.append(rms(s.initial[n]))
                now.append(rms(p))
        if began and min(began) > 0:
            shrunk = [a / b for a, b in zip(now, began)]
            exam.facts["weights over initial"] = [float(np.median(shrunk)), max(shrunk)]
    t = exam.trace
    if t is not None:
        dot = g2 = w2 = 0.0
        for n, p in net.named_parameters():
            g = t.gradients.get(n)
            if g is not None and p.ndim >= 2:
                dot -= float((g.float() * p.detach().float()).sum())
                g2 += float(g.float().square().sum())
                w2 += float(p.detach().float().square().sum())
        if g2 and w2:
            state.decayed = dot / math.sqrt(g2 * w2)
            exam.facts["decay estimate"] = dot / w2
    return state
