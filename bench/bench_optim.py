"""Steps of our optimisers against torch's fused SGD at equal parameters."""

import torch
from torch import nn

from bench.harness import Draw, Pair, claim
from corollary.optim import SVRG, Projected, SignSGD

STEPS = 50
RATE = 1e-3


def parameters(draw: Draw) -> list[nn.Parameter]:
    """Return one large tensor, or many small ones, with gradients."""
    total, parts = draw.size("parameters", 10_000, 2_000_000), draw.choice("tensors", (1, 8, 40))
    made = [
        nn.Parameter(torch.randn(total // parts, generator=torch.Generator().manual_seed(i)))
        for i in range(parts)
    ]
    for p in made:
        p.grad = torch.ones_like(p)
    return made


def moved(step, p: nn.Parameter) -> float:
    """Take the steps; return how far the first number has gone, which is the same for all: every gradient is one."""
    before = float(p.detach()[0])
    for _ in range(STEPS):
        step()
    return before - float(p.detach()[0])


def against_sgd(draw: Draw, make) -> Pair:
    """Pair our steps with torch's."""
    ours, theirs = parameters(draw), parameters(draw)
    step, fused = make(ours), torch.optim.SGD(theirs, lr=RATE, fused=True)

    def quality(ours, theirs):
        assert abs(ours - theirs) <= 1e-3 * STEPS * RATE  # rounding of single precision
        return {"moved": ours, "peer": theirs}

    return Pair(lambda: moved(step, ours[0]), lambda: moved(fused.step, theirs[0]), quality)


@claim("signsgd-step", peer="torch", aim=1 / 1.3)
def signs(draw):
    """SignSGD's step against fused SGD's

    A million parameters are read and written once on both sides, at the speed of memory.
    """
    return against_sgd(draw, lambda params: SignSGD(params, lr=RATE).step)


@claim("svrg-move", peer="torch", aim=1 / 1.3)
def variance_reduced(draw):
    """SVRG's move, gradients given, against fused SGD's step"""
    return against_sgd(draw, lambda params: SVRG(params, lr=RATE).move)


@claim("projected-step", peer="torch", aim=1 / 1.3)
def projected(draw):
    """A projected step, inside the ball, against fused SGD's

    A million parameters are read and written once on both sides, at the speed of memory; ours sums their squares too.
    """
    make = torch.optim.SGD
    return against_sgd(draw, lambda params: Projected(make(params, lr=RATE, fused=True), radius=1e9).step)
