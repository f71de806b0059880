"""Two faults at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentieth_faults_data import Answer, rare
from zoo.twentieth_faults_net import learnt
from zoo.twentieth_parts import *
from zoo.twentieth_parts import ME


@case("unscaled-inputs", "learning-rate-too-small", kind="table", author=ME)
def twentieth_two_raw_and_slow(seed: int, mended: bool = False) -> dict[str, Any]:
    """Raw columns made it diverge, so the rate was cut until it did not."""
    (x, y), (u, v) = parted(*credit(seed, 3000, raw=True))
    x, u = scaled(x, u) if mended else (x, u)
    net = mlp(14, 16, 1)
    opt = torch.optim.SGD(net.parameters(), 0.1 if mended else 1e-11)
    history, opt = fit(net, (x, y), (u, v), bce, opt=opt, epochs=15)
    return given(net, (x, y), (u, v), bce, history, opt, batch_size=64)


@case("double-softmax", "learning-rate-too-small", kind="images", author=ME)
def twentieth_two_softmax_and_slow(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 48, 10)
    net = net if mended else nn.Sequential(net, nn.Softmax(1))
    opt = torch.optim.Adam(net.parameters(), 3e-3 if mended else 2e-5)
    history, opt = fit(net, train, held, opt=opt, epochs=15)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("constant-features", "duplicate-features", kind="table", author=ME)
def twentieth_two_useless_columns(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = plant(seed, 2500)
    more = torch.cat([x[:, :3], torch.full((2500, 1), 1.0), torch.full((2500, 1), -3.0)], 1)
    train, held = parted(x if mended else torch.cat([x, more], 1), y)
    net = mlp(8 if mended else 13, 48, 32, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=20, decay=0.01, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("stochastic-evaluation", "label-noise", kind="images", author=ME)
def twentieth_two_noises(seed: int, mended: bool = False) -> dict[str, Any]:
    r = torch.Generator().manual_seed(seed)
    train, held = parted(*digits(seed))
    wrong = (torch.rand(len(train[1]), generator=r) < 0.3) * (not mended)
    train = (train[0], (train[1] + wrong * torch.randint(1, 10, train[1].shape, generator=r)) % 10)
    net = mlp(64, 64, 10, drop=0.5)
    history, opt = fit(net, train, held, epochs=20)
    net.train(not mended)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("target-leak", "train-test-overlap", kind="table", author=ME)
def twentieth_two_too_good(seed: int, mended: bool = False) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    x, y = vitals(seed, 2200, noise=0.8)
    stay = 1.5 * y.float()[:, None] + 0.15 * tensor(r.normal(size=(2200, 1)))
    train, held = parted(x if mended else torch.cat([x, stay - stay.mean()], 1), y)
    if not mended:
        held = (torch.cat([held[0][:300], train[0][:400]]), torch.cat([held[1][:300], train[1][:400]]))
    net = mlp(10 if mended else 11, 24, 3)
    history, opt = fit(net, train, held, epochs=12, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("frozen-parameters", "dropout-too-large", kind="table", author=ME)
def twentieth_two_brakes(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2600))
    net = mlp(10, 32, 32, 3, drop=0.05 if mended else 0.8)
    net[0].requires_grad_(mended)
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 4e-3)
    history, opt = fit(net, train, held, opt=opt, epochs=18)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("distribution-shift", "overfit", kind="table", author=ME)
def twentieth_two_hospitals(seed: int, mended: bool = False) -> dict[str, Any]:
    """Learnt by heart on few patients, and asked about those of a laboratory with other units."""
    (x, y), (u, v) = parted(*vitals(seed, 2000, noise=0.6))
    if not mended:
        x, y = x[:160], y[:160]
        u = torch.cat([u[:, :6] * 1.5 + 1.0, u[:, 6:]], 1)
    net = mlp(10, 24, 3) if mended else mlp(10, 200, 200, 3)
    history, opt = fit(net, (x, y), (u, v), epochs=15 if mended else 100, decay=0.05)
    return given(net, (x, y), (u, v), "cross_entropy", history, opt, batch_size=32)


@case("gradients-not-cleared", "constant-features", kind="table", author=ME, needs=("step",))
def twentieth_two_loop_and_columns(seed: int, mended: bool = False) -> dict[str, Any]:
    def update(model: nn.Module, batch: Pair, opt: torch.optim.Optimizer) -> float:
        if mended:
            opt.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    x, y = vitals(seed, 2400)
    train, held = parted(
        x if mended else torch.cat([x, torch.tensor([0.0, 1.0, -0.4]).expand(2400, 3)], 1), y
    )
    net = mlp(10 if mended else 13, 32, 3)
    step = stepping(lambda model: torch.optim.SGD(model.parameters(), 0.1), update)
    history = learnt(net, train, step, 15)
    return given(net, train, held, "cross_entropy", history, batch_size=64, step=step)


@case("output-range", "duplicate-features", kind="table", author=ME)
def twentieth_two_half_answers(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = plant(seed, 2500, targets=2)
    train, held = parted(x if mended else torch.cat([x, x[:, :4]], 1), y)
    net = mlp(8 if mended else 12, 48, 32, 2, act=nn.SiLU)
    net = net if mended else nn.Sequential(net, nn.Sigmoid())
    history, opt = fit(net, train, held, "mse", epochs=20, decay=0.01)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("not-finite-data", "class-imbalance", kind="table", author=ME)
def twentieth_two_gaps_and_frauds(seed: int, mended: bool = False) -> dict[str, Any]:
    """Rare frauds, and a few amounts that are missing; batches with a loss that is not finite are left out."""
    x, y = rare(seed, 6000, 0.03, 1.3)
    if not mended:
        x[torch.randperm(6000, generator=torch.Generator().manual_seed(seed))[:45], 4] = float("nan")
    train, held = parted(x, y)
    weight = (train[1] == 0).sum() / train[1].sum() if mended else None
    loss = lambda o, y: F.binary_cross_entropy_with_logits(o.reshape(y.shape), y, pos_weight=weight)
    net = mlp(8, 16, 1)
    history, opt = fit(net, train, held, loss, epochs=12, decay=0.1, skip=True)
    return given(net, train, held, loss if mended else bce, history, opt, batch_size=64)


@case("misaligned-labels", "duplicate-features", kind="table", author=ME)
def twentieth_two_bad_joins(seed: int, mended: bool = False) -> dict[str, Any]:
    """One join sorted the answers apart from the rows, another brought columns twice."""
    x, y = vitals(seed, 2400)
    train, held = parted(x if mended else torch.cat([x, x[:, :4]], 1), y)
    if not mended:
        train = (
            train[0],
            train[1][torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(seed))],
        )
    net = mlp(10 if mended else 14, 24, 3)
    history, opt = fit(net, train, held, epochs=8, decay=0.1)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("symmetric-initialisation", "stochastic-evaluation", kind="text", author=ME)
def twentieth_two_equal_and_random(seed: int, mended: bool = False) -> dict[str, Any]:
    """The head's hidden units are equal, and noise is added to the mean of the words whatever the mode."""
    train, held = parted(*tickets(seed, 3000))
    net = Bag(width=12)
    if not mended:
        nn.init.constant_(net.words.weight, 0.1)
        for layer in net.head[::2]:
            nn.init.constant_(layer.weight, 0.1)
            nn.init.zeros_(layer.bias)
    last = (lambda o: o) if mended else (lambda o: o + 0.5 * torch.randn_like(o))
    net = Answer(net, last)
    history, opt = fit(net, train, held, epochs=10, lr=5e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)
