"""What it costs to watch a training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bench.harness import Draw, Pair, claim
from corollary.diagnose import Watch


@claim("watch", peer="torch", aim=0.97)
def watch(draw: Draw) -> Pair:
    """A plain PyTorch loop with Watch.after_step, against the same loop without it.

    A look costs two passes over the parameters, each step a call and the reading of the loss; looks are made as often as 1 %
    of the time allow for both. The first is made at once.
    """
    width, depth = draw.size("width", 32, 512), draw.choice("layers", (1, 3))
    batch = draw.size("batch", 16, 256)
    rng = torch.Generator().manual_seed(0)
    X = torch.randn(4096, 64, generator=rng)
    y = torch.randint(0, 10, (4096,), generator=rng)
    steps = max(60, int(2e9 / (batch * (64 * width + (depth - 1) * width**2) * 6)))
    steps = min(steps, 4000)

    def trained(watch: Any) -> float:
        torch.manual_seed(0)
        inner = [part for _ in range(depth - 1) for part in (nn.Linear(width, width), nn.ReLU())]
        net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), *inner, nn.Linear(width, 10))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        loss = torch.zeros(())
        for step in range(steps):
            at = step * batch % (4096 - batch)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(X[at : at + batch]), y[at : at + batch])
            loss.backward()
            optimizer.step()
            if watch is not None:
                watch.after_step(net, loss)
        return float(loss.detach())

    def same(ours: float, peer: float) -> dict[str, float]:
        if ours != peer:
            raise AssertionError("watching changed the training")
        return {"loss": ours}

    return Pair(lambda: trained(Watch(say=lambda text: None)), lambda: trained(None), same)
