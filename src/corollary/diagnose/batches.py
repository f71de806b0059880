r"""Batches so small that their statistics are noise.

A running mean with momentum :math:`m` over batches of :math:`b` rows errs by :math:`\sigma^2 m / ((2 - m) b)`, so that its
distance from the mean of the data, in deviations, tells how many rows a batch had; a net that still moves errs by more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import copied, quiet

__all__ = ["batch_norm_noise"]

NORM = nn.modules.batchnorm._BatchNorm
MEDIAN = 0.455  # of a squared normal number


def batch_norm_noise(exam: Exam) -> None:
    """Estimate the rows of a batch from the running means of batch normalisation."""
    s = exam.subject
    if s.net is None or exam.trace is None:
        return
    net = copied(s.net).float()
    entered: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, args: entered.__setitem__(name, args[0].detach())

    norms = {n: m for n, m in net.named_modules() if isinstance(m, NORM) and m.running_mean is not None}
    for name, m in norms.items():
        m.register_forward_pre_hook(keep(name))
    if not norms:
        return
    with torch.no_grad(), quiet(net):
        s.call(net.eval(), s.train.first(512))
    rows = []
    for name, h in entered.items():
        m = norms[name]
        h = h.movedim(1, -1).reshape(-1, h.shape[1])
        off = float(((m.running_mean - h.mean(0)).square() / (h.var(0, unbiased=False) + 1e-12)).median())
        momentum = m.momentum or 0.1
        rows.append(MEDIAN * momentum / (2 - momentum) / max(off, 1e-9))
    exam.facts["rows of a batch by batch norm"] = rows
