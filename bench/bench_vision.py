"""Nets for images against transformers': whole training steps with copied weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.harness import THREADS, Draw, Pair, claim
from corollary.engine.player import flatten

CLASSES = 10
STEPS = 3  # so that going back to the start weighs little


def _trainer(module: torch.nn.Module, x: Tensor, y: Tensor, logits: Any, flat: bool) -> Any:
    """Return a call that trains from a fixed state for some steps and returns the losses.

    ``flat`` parameters lie in one vector, as the engine's do.
    """
    start = copy.deepcopy(module.state_dict())
    parameters = list(module.parameters())
    moved = [flatten(parameters)] if flat else parameters

    def train() -> list[float]:
        module.load_state_dict(start)
        optimizer = torch.optim.SGD(moved, 1e-3, momentum=0.9, fused=flat)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=not flat)
            loss = F.cross_entropy(logits(module(x)), y)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    return train


def _equal(ours: list[float], peer: list[float]) -> dict[str, float]:
    gap = max(abs(a - b) for a, b in zip(ours, peer))
    if gap > 1e-3:
        raise AssertionError(f"losses of the same steps differ: {ours} and {peer}")
    return {"loss": ours[-1], "difference": gap}


@claim("resnet18-step", peer="transformers", aim=1.1)
def resnet18_step(draw: Draw) -> Pair:
    """ResNet-18 training step

    Four fifths of the time are convolutions, oneDNN's on both sides, most of them backward. What is saved is among the rest:
    pooling and normalisation in channels-last memory, copies of wide layers' gradients (they stay channels-first), and
    one fused update of one vector.
    """
    from transformers import ResNetConfig, ResNetForImageClassification

    from corollary.vision import ResNet

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    settings = {"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
    peer = ResNetForImageClassification(ResNetConfig(num_labels=CLASSES, **settings))
    ours = ResNet.from_transformers(peer).to(memory_format=torch.channels_last)
    side = draw.choice("side", (32, 64, 96, 128, 192))
    batch = max(2, draw.size("pixels", 60_000, 250_000) // side**2)
    x, y = torch.rand(batch, 3, side, side), torch.randint(0, CLASSES, (batch,))
    inside = x.contiguous(memory_format=torch.channels_last)
    return Pair(
        _trainer(ours.train(), inside, y, lambda out: out, flat=True),
        _trainer(peer.train(), x, y, lambda out: out.logits, flat=False),
        _equal,
        repeats=5,
    )
