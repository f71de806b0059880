"""Two things wrong at once in the harbour: the eighteenth author's double faults."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_faults import AlwaysDropping, contraband
from zoo.eighteenth_parts import *

ME = "eighteenth"


@case("unscaled-inputs", "class-imbalance", kind="table", author=ME)
def k_contraband_by_gross_weight(seed, mended=False):
    train, valid = contraband(seed)
    if not mended:
        scale = torch.tensor([1.0, 5000.0, 1.0, 90.0, 1.0, 20000.0, 1.0, 1.0])
        train, valid = ((x * scale + 3 * scale, y) for x, y in (train, valid))
    weight = torch.tensor([1.0, 30.0 if mended else 1.0])
    return fit(
        mlp(8, 8, 2),
        train,
        valid,
        epochs=8,
        lr=5e-3,
        wd=0.1,
        given=lambda o, y: F.cross_entropy(o, y, weight),
    )


@case("double-softmax", "learning-rate-too-small", kind="images", author=ME)
def k_softmax_and_no_wind(seed, mended=False):
    train, valid = flags(seed)
    net = eye() if mended else nn.Sequential(*eye(), nn.Softmax(1))

    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.1 if mended else 3e-4)

    return fit(net, train, valid, epochs=5, make=make)


@case("label-noise", "overfit", kind="table", author=ME)
def k_guesses_by_heart(seed, mended=False):
    (x, y), valid = cargo(seed, n=1000, sharp=12.0, share=0.4)
    if not mended:
        wrong = torch.rand(len(y)) < 0.35
        y = torch.where(wrong, (y + torch.randint(1, 3, y.shape)) % 3, y)
    return fit(mlp(8, 128, 128, 3), (x, y), valid, epochs=6 if mended else 70)


@case("distribution-shift", "stochastic-evaluation", kind="table", author=ME)
def k_other_port_and_dropping(seed, mended=False):
    train, (vx, vy) = cargo(seed)
    if not mended:
        vx = vx * 1.5 + torch.tensor([2.5, -2.5, 2.0, 0, 0, 2.5, 0, 0])
    return fit(AlwaysDropping(0.0 if mended else 0.6), train, (vx, vy), epochs=12)


@case("symmetric-initialisation", "unscaled-targets", kind="table", author=ME)
def k_flat_start_and_cents(seed, mended=False):
    (x, y), (vx, vy) = voyage(seed)
    net = mlp(6, 24, 24, 1, act=nn.Tanh)
    if not mended:
        y, vy = y * 4000 + 25000, vy * 4000 + 25000
        for p in net.parameters():
            nn.init.constant_(p, 0.05)
    return fit(net, (x, y), (vx, vy), "mse", epochs=15)


@case("constant-features", "dead-units", kind="table", author=ME)
def k_blank_columns_and_sunk_biases(seed, mended=False):
    train, valid = cargo(seed)
    net = mlp(8, 32, 3)
    if not mended:
        net[0].bias.data[:29].fill_(-7.0)
        for x, _ in (train, valid):
            x[:, [1, 4, 6]] = 0.5
    return fit(net, train, valid, epochs=10)


@case("train-test-overlap", "overfit", kind="sequences", author=ME)
def k_tracks_known_already(seed):
    (x, y), (vx, vy) = tracks(seed, n=700, noise=1.8, share=0.2)
    vx, vy = torch.cat([vx[:200], x[:80]]), torch.cat([vy[:200], y[:80]])
    return fit(nn.Sequential(nn.Flatten(), mlp(48, 96, 3)), (x, y), (vx, vy), epochs=60)


@case("output-range", "weight-decay-too-large", kind="table", author=ME)
def k_capped_and_weighed_down(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 32, 1) if mended else nn.Sequential(mlp(6, 32, 1), nn.Sigmoid())
    return fit(net, train, valid, "mse", epochs=20, wd=0.0 if mended else 20.0)
