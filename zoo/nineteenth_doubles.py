"""Homework with two faults at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from zoo import case
from zoo.nineteenth_model import dilated, far_echo, looped
from zoo.nineteenth_parts import *
from zoo.nineteenth_parts import ME, Flat


@case("unscaled-inputs", "class-imbalance", kind="table", author=ME)
def ta2_raw_and_rare(seed, mended=False):
    x, y = loans(seed, 6000, noise=1.0)
    kept = (y == 0) | (torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.04)
    x, y = x[kept], y[kept]
    if not mended:
        x = x * torch.tensor([9000.0, 4000, 12, 20, 2, 1, 1, 1, 1]) + torch.tensor(
            [42000.0, 15000, 44, 60, 4, 0, 0, 0, 0]
        )
    train, val = split(x, y, seed)
    f = (
        nn.BCEWithLogitsLoss(pos_weight=(1 - train[1]).sum() / train[1].sum())
        if mended
        else "bce_with_logits"
    )
    return fit(Flat(mlp(9, 16, 1)), train, val, f, epochs=40, batch=128, lr=1e-3)


@case("label-noise", "overfit", kind="table", author=ME)
def ta2_memorised_errors(seed, mended=False):
    train, val = split(*motors(seed, 1000, spread=0.6), seed)
    r = torch.Generator().manual_seed(seed)
    other = torch.where(
        torch.rand(len(train[1]), generator=r) < 0.35,
        torch.randint(0, 5, train[1].shape, generator=r),
        train[1],
    )
    if mended:
        return fit(mlp(10, 32, 5), train, val, epochs=25)
    return fit(mlp(10, 160, 160, 5), (train[0], other), val, epochs=120, lr=2e-3)


@case("double-softmax", "learning-rate-too-small", kind="images", author=ME, needs=("optimizer",))
def ta2_softmax_and_crawl(seed, mended=False):
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 32, 10), *([] if mended else [nn.Softmax(1)]))
    return without(fit(net, train, val, epochs=25, lr=3e-3 if mended else 3e-5), "initial")


@case("constant-features", "dropout-too-large", kind="table", author=ME)
def ta2_empty_columns_and_dropout(seed, mended=False):
    x, y = motors(seed)
    x = x if mended else torch.cat([x, torch.tensor([0.0, 1, -0.4, 0.5]).repeat(len(x), 1)], 1)
    train, val = split(x, y, seed)
    net = mlp(x.shape[1], 32, 32, 5, drop=0.1 if mended else 0.93)
    return fit(net, train, val, epochs=25)


@case("distribution-shift", "overfit", kind="table", author=ME)
def ta2_other_clinic(seed, mended=False):
    x, y = flats(seed, 1500 if mended else 300, noise=0.7)
    train, val = split(x, y, seed, 0.4)
    if mended:
        return fit(Flat(mlp(8, 24, 1)), train, val, "mse", epochs=40, best=True)
    val = (val[0] * 1.3 + torch.tensor([1.5, 1.0, -1.2, 0, 1.5, 0, 0.8, -1.5]), val[1])
    return fit(Flat(mlp(8, 128, 128, 1)), train, val, "mse", epochs=150, batch=32)


@case("frozen-parameters", "output-range", kind="table", author=ME)
def ta2_frozen_and_clipped(seed, mended=False):
    train, val = split(*arm(seed), seed)
    net = nn.Sequential(*mlp(3, 24, 12, 3), *([] if mended else [nn.Sigmoid()]))
    for p in net[:4].parameters():
        p.requires_grad_(mended)
    given = [p for p in net.parameters() if p.requires_grad]
    return fit(net, train, val, "mse", epochs=40, lr=5e-3, params=given)


class Careless(nn.Module):
    def __init__(self, d, out, on):
        super().__init__()
        self.a, self.b, self.on = nn.Linear(d, 64), nn.Linear(64, out), on

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(nn.functional.dropout(h, 0.4, self.on or self.training)).squeeze(-1)


@case("stochastic-evaluation", "duplicate-features", kind="table", author=ME)
def ta2_dice_and_copies(seed, mended=False):
    x, y = flats(seed)
    x = x if mended else torch.cat([x, x[:, [0, 2, 3]]], 1)
    train, val = split(x, y, seed)
    return without(fit(Careless(x.shape[1], 1, not mended), train, val, "mse", epochs=40), "history")


@case("vanishing-gradient", "duplicate-features", kind="table", author=ME)
def ta2_deep_on_copies(seed, mended=False):
    x, y = motors(seed)
    train, val = split(x if mended else torch.cat([x, x[:, :4]], 1), y, seed)
    net = mlp(train[0].shape[1], *[24] * 8, 5, act=nn.ReLU if mended else nn.Sigmoid)
    return fit(net, train, val, epochs=20, lr=1e-3)


@case("gradients-not-cleared", "constant-features", kind="table", author=ME, needs=("step",))
def ta2_heap_and_blanks(seed, mended=False):
    x, y = flats(seed)
    x = x if mended else torch.cat([x, torch.tensor([1.0, 0, -0.5]).repeat(len(x), 1)], 1)
    train, val = split(x, y, seed)
    make = lambda m: torch.optim.Adam(m.parameters(), 3e-3)
    return looped(
        Flat(mlp(x.shape[1], 48, 1)), train, val, nn.functional.mse_loss, make, clear=mended, name="mse"
    )


@case("receptive-field-too-small", "class-imbalance", kind="sequences", author=ME)
def ta2_short_sighted_and_rare(seed, mended=False):
    x, _ = far_echo(seed, 260)
    old = torch.cat([torch.zeros(len(x), 20), x[:, 0, :-20]], 1)
    y = (old + 0.9 * x[:, 0] > 2.9).float()
    train, val = split(x, y, seed)
    net = dilated([1, 16, 16, 16, 1], [1, 4, 16, 16] if mended else [1, 1, 1, 1])
    f = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(15.0)) if mended else "bce_with_logits"
    return fit(net, train, val, f, epochs=30, batch=16, lr=4e-3)


@case("misaligned-labels", "unscaled-inputs", kind="table", author=ME)
def ta2_offset_and_raw(seed, mended=False):
    train, val = split(*motors(seed), seed)
    if not mended:
        m = torch.tensor(np.geomspace(1, 5000, 10), dtype=torch.float32)
        train, val = ((a * m + 2 * m, b) for a, b in (train, val))
        train = (train[0], train[1].roll(1))
    return fit(mlp(10, 32, 5), train, val, epochs=15, lr=1e-3)
