"""Batches so small that their statistics are noise."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn

from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import quiet

__all__ = ["batch_norm_noise"]


def batch_norm_noise(exam: Exam) -> None:
    """Running statistics of batch normalisation that are far from those of the data: batches were tiny."""
    s = exam.subject
    if s.net is None or exam.trace is None:
        return
    norms = [
        (n, m)
        for n, m in s.net.named_modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None
    ]
    if not norms:
        return
    net = copy.deepcopy(s.net).float()
    entered: dict[str, Tensor] = {}
    hooks = []
    for name, m in net.named_modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            hooks.append(
                m.register_forward_pre_hook(
                    lambda mod, args, name=name: entered.__setitem__(name, args[0].detach())
                )
            )
    rows = s.train if s.train.whole or s.train.n <= 512 else s.train.take(np.arange(512))
    with torch.no_grad(), quiet(net):
        s.call(net.eval(), rows)
    for h in hooks:
        h.remove()
    off = []
    for name, m in norms:
        if name not in entered:
            continue
        h = entered[name].movedim(1, -1).reshape(-1, entered[name].shape[1])
        spread = h.var(0, unbiased=False) + 1e-12
        off.append(float(((m.running_mean.float() - h.mean(0)).square() / spread).median()))
    exam.facts["batch norm offset"] = off
    if s.settings.batch_size is not None and s.settings.batch_size <= 4 and len(norms):
        exam.facts["tiny batches with norm"] = True
