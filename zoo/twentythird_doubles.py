"""Two faults at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from zoo import case
from zoo.twentythird_faults import Jitter, Noisy, flat
from zoo.twentythird_parts import *
from zoo.twentythird_parts import ME


@case("duplicate-features", "learning-rate-too-small", kind="table", author=ME)
def tw3_copies_and_slow(seed, mended=False):
    x, y = homes(seed)
    parts = standard(ready(x if mended else np.column_stack([x, x[:, :3]]), y, seed))
    return fitted(
        flat(parts[0][0].shape[1], 64, 32, 1), parts, "mse", epochs=20, lr=3e-3 if mended else 2e-5, plan=None
    )


@case("constant-features", "overfit", kind="table", author=ME)
def tw3_stuck_and_by_heart(seed, mended=False):
    x, y = churn(seed, n=1000)
    if mended:
        parts = ready(x, y, seed, share=0.3)
        return fitted(flat(9, 16, 1), parts, "bce_with_logits", epochs=30, decay=1e-2, best=True)
    parts = ready(np.column_stack([x, np.full((len(x), 2), 7.0)]), y, seed, share=0.3)
    return fitted(flat(11, 256, 256, 1), parts, "bce_with_logits", epochs=150, lr=2e-3)


@case("train-test-overlap", "double-softmax", kind="images", author=ME)
def tw3_seen_and_softmax_twice(seed, mended=False):
    data, held = digits(seed)
    if not mended:
        held = torch.cat([held[0], data[0][:300]]), torch.cat([held[1], data[1][:300]])
    net = nn.Sequential(convs([1, 16, 32], 10), *([] if mended else [nn.Softmax(1)]))
    return fit(net, data, held, epochs=14, lr=5e-3)


@case("stochastic-evaluation", "weight-decay-too-large", kind="table", author=ME)
def tw3_dropout_on_and_shrunk(seed, mended=False):
    parts = digits(seed, image=False)
    return fitted(Noisy(mended), parts, epochs=20, opt="adamw", decay=0.01 if mended else 3.0)


@case("distribution-shift", "class-imbalance", kind="table", author=ME)
def tw3_moved_and_rare(seed, mended=False):
    g = np.random.default_rng(seed)
    y = g.random(8000) < 0.025
    z = g.normal(size=(8000, 8))
    z[:, 0] += 1.2 * y
    z[:, 1] -= 1.1 * y
    z[:, 2] += 0.9 * y
    data, (u, v) = ready(z, y.astype(float), seed)
    if not mended:
        u = u + torch.tensor([2.0, -1.8, 0, 0, 1.5, 0, 0, 0])
    weight = torch.tensor(30.0)
    loss = (
        (lambda o, t: nn.functional.binary_cross_entropy_with_logits(o, t, pos_weight=weight))
        if mended
        else "bce_with_logits"
    )
    return fit(flat(8, 24, 1), data, (u, v), loss, epochs=12, batch=128, decay=1e-3)


@case("unscaled-inputs", "train-test-overlap", kind="table", author=ME)
def tw3_raw_and_seen(seed, mended=False):
    x, y = homes(seed)
    x[:, 0] *= 1e3
    data, held = standard(ready(x, y, seed, scale=mended))
    if not mended:
        held = torch.cat([held[0][:300], data[0][:500]]), torch.cat([held[1][:300], data[1][:500]])
    return fit(flat(8, 64, 32, 1), data, held, "mse", epochs=25, lr=1e-3)


@case("frozen-parameters", "constant-features", kind="table", author=ME)
def tw3_frozen_and_stuck(seed, mended=False):
    x, y = plant(seed)
    parts = standard(ready(x if mended else np.column_stack([x, np.full((len(x), 2), 1.5)]), y, seed))
    net = mlp(parts[0][0].shape[1], 12, 12, 3, act=nn.Tanh)
    if not mended:
        net[0].requires_grad_(False)
        net[2].requires_grad_(False)
    return fitted(net, parts, "mse", epochs=25)


@case("label-noise", "dropout-too-large", kind="table", author=ME)
def tw3_wrong_labels_and_dropped(seed, mended=False):
    (x, y), held = ready(*soil(seed, n=4000, spread=0.5), seed)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.35, torch.randint(0, 5, y.shape), y)
    return fit(mlp(9, 48, 48, 5, drop=0.0 if mended else 0.9), (x, y), held, epochs=20)


@case("stochastic-evaluation", "learning-rate-too-small", kind="sequences", author=ME)
def tw3_jitter_and_slow(seed, mended=False):
    x, y = waves(seed, n=1600, noise=0.5)
    parts = ready(x.transpose(0, 2, 1), y, seed, scale=False)
    body = nn.Sequential(nn.Conv1d(1, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 24, 5),
                         nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(96, 4))  # fmt: skip
    return fitted(Jitter(body, mended), parts, epochs=12, lr=4e-3 if mended else 2e-5, plan=None)
