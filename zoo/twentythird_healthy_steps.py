"""Healthy trainings whose own update is handed over."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentythird_parts import *
from zoo.twentythird_parts import ME


def driven(net, data, held, step, loss, epochs, batch):
    """Train by calling ``step`` and return what the user knows."""
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    history = []
    for _ in range(epochs):
        net.train()
        losses = [step(net, (data[0][r], data[1][r])) for r in torch.randperm(len(data[1])).split(batch)]
        net.eval()
        with torch.no_grad():
            history.append(
                {"loss": float(np.mean(losses)), "val_loss": LOSSES[loss](net(held[0]), held[1]).item()}
            )
    net.__dict__.pop("its")
    return {
        "model": net, "data": data, "validation": held, "loss": loss, "batch_size": batch, "history": history,
        "initial": initial, "step": step,
    }  # fmt: skip


@case(kind="table", author=ME)
def tw3_gradients_gathered(seed):
    def step(net, batch):
        """Four micro-batches, then one step."""
        if "its" not in net.__dict__:
            net.__dict__["its"] = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.01)
        total = 0.0
        parts = list(zip(batch[0].chunk(4), batch[1].chunk(4)))
        net.its.zero_grad()
        for x, y in parts:
            value = F.cross_entropy(net(x), y) / len(parts)
            value.backward()
            total += value.item()
        net.its.step()
        return total

    return driven(mlp(9, 48, 48, 5), *ready(*soil(seed), seed), step, "cross_entropy", 20, 64)


@case(kind="images", author=ME)
def tw3_smoothed_and_moved(seed):
    def step(net, batch):
        """Shift the images by a pixel, clip, clear after the step."""
        if "its" not in net.__dict__:
            net.__dict__["its"] = torch.optim.Adam(net.parameters(), 3e-3)
        x, y = batch
        i, j = torch.randint(-1, 2, (2,)).tolist()
        value = F.cross_entropy(net(x.roll((i, j), (2, 3))), y)
        value.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        net.its.step()
        net.its.zero_grad(set_to_none=True)
        return value.item()

    parts = ready(*figures(seed, n=1200), seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(),
        nn.Linear(96, 4),
    )  # fmt: skip
    return driven(net, *parts, step, "cross_entropy", 12, 32)
