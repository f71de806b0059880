"""Double faults of the eleventh author."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eleventh_parts import (
    SGD,
    Adam,
    AdamW,
    Bag,
    Conv,
    Ended,
    Flat,
    Walk,
    boiler,
    digits,
    fit,
    glyphs,
    loans,
    mlp,
    real,
    teacher,
    topics,
    town,
)

two = partial(case, author="eleventh")
Given = dict[str, Any]


def flipped(y: Tensor, k: int, share: float) -> Tensor:
    """Return labels of which a share is wrong."""
    return torch.where(torch.rand(len(y)) < share, (y + torch.randint(1, k, y.shape)) % k, y)


def rarer(pair: Any, label: int, share: float) -> Any:
    """Keep a share of the rows of one class."""
    x, y = pair
    kept = (y != label) | (torch.rand(len(y)) < share)
    return x[kept], y[kept]


def mixed(train: Any, val: Any, share: float = 0.5) -> Any:
    """Replace a share of the held-out rows by training rows."""
    (x, y), (v, w) = train, val
    many = int(share * len(w))
    return torch.cat([x[:many], v[many:]]), torch.cat([y[:many], w[many:]])


@two("unscaled-inputs", "class-imbalance", kind="table")
def e11_two_raw_and_rare(seed: int, mended: bool = False) -> Given:
    """Fraud of three in a hundred, with amounts in cents."""
    (x, y), (v, w) = loans(seed, 3000, rare=0.03, gap=1.4)
    if not mended:
        x, v = (
            part * torch.tensor([1.0, 800, 1, 5000, 1]) + torch.tensor([0, 2000.0, 0, 20000, 0])
            for part in (x, v)
        )
    weight = torch.tensor(30.0) if mended else None
    return fit(
        Flat(mlp(5, 16, 1)),
        (x, y),
        (v, w),
        loss="bce_with_logits",
        train_loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=weight),
        epochs=12,
    )


@two("duplicate-features", "label-noise", kind="table")
def e11_two_copies_and_noise(seed: int, mended: bool = False) -> Given:
    """Three copied columns and a third of the training labels wrong."""
    (x, y), (v, w) = teacher(seed)
    if not mended:
        x[:, 7:], v[:, 7:] = x[:, :1].clone(), v[:, :1].clone()
        y = flipped(y, 3, 0.35)
    return fit(mlp(10, 24, 3), (x, y), (v, w), epochs=12, give="lob")


@two("constant-features", "double-softmax", kind="table")
def e11_two_constants_and_softmax(seed: int, mended: bool = False) -> Given:
    """Four columns of wine were lost, and the softmax is taken twice."""
    (x, y), (v, w) = real("wine", seed)
    net = mlp(13, 16, 3)
    if not mended:
        x[:, [0, 6, 9, 12]] = v[:, [0, 6, 9, 12]] = 0.0
        net.append(nn.Softmax(1))
    return fit(net, (x, y), (v, w), epochs=25, opt=partial(Adam, lr=2e-3))


@two("train-test-overlap", "dropout-too-large", kind="images")
def e11_two_overlap_and_dropout(seed: int, mended: bool = False) -> Given:
    """Half of the held-out digits were trained on, by a net that drops nine in ten."""
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 48, 32, 10, drop=0.05 if mended else 0.9))
    return fit(net, train, val if mended else mixed(train, val), epochs=12, give="lbh")


@two("distribution-shift", "frozen-parameters", kind="images")
def e11_two_shift_and_frozen(seed: int, mended: bool = False) -> Given:
    """A fresh body is frozen, and the held-out pictures are inverted."""
    train, (v, w) = glyphs(seed, 1200)
    net = Conv(4, 12, 6)
    for part in (net.c1, net.c2):
        part.requires_grad_(mended)
    return fit(net, train, (v if mended else 1 - v, w), epochs=10)


@two("target-leak", "duplicate-features", kind="table")
def e11_two_leak_and_copies(seed: int, mended: bool = False) -> Given:
    """The target under another name, and one column three times."""
    (x, y), (v, w) = boiler(seed)
    if not mended:
        for part, label in ((x, y), (v, w)):
            part[:, 4] = part[:, 2] = part[:, 1]
            part[:, 5] = 0.9 * label + 0.02 * torch.randn(len(label))
    return fit(Flat(mlp(6, 24, 24, 1)), (x, y), (v, w), loss="mse", epochs=20, give="lh")


@two("double-softmax", "learning-rate-too-small", kind="images", needs=("optimizer",))
def e11_two_softmax_and_slow(seed: int, mended: bool = False) -> Given:
    """Softmax twice, and steps of 2e-4 without momentum."""
    train, val = digits(seed)
    net = Conv(10, width=8)
    return fit(
        net if mended else Ended(net, partial(torch.softmax, dim=1)),
        train,
        val,
        epochs=10,
        opt=partial(SGD, lr=0.05 if mended else 2e-4, momentum=0.9 if mended else 0.0),
    )


@two("stochastic-evaluation", "class-imbalance", kind="text")
def e11_two_random_and_rare(seed: int, mended: bool = False) -> Given:
    """A rare subject, and dropout still at work when predicting."""
    train, val = topics(seed, 2600, sharp=0.5)
    val = rarer(val, 0, 0.05)
    train = train if mended else rarer(train, 0, 0.05)
    return fit(Bag(60, 4, 16, drop=0.1 if mended else 0.5), train, val, epochs=12, ready=mended, give="lob")


@two("misaligned-labels", "constant-features", kind="table")
def e11_two_late_and_constant(seed: int, mended: bool = False) -> Given:
    """Labels one row late, and two columns that never change."""
    (x, y), (v, w) = teacher(seed)
    if not mended:
        x[:, [2, 8]] = v[:, [2, 8]] = 1.0
    return fit(mlp(10, 12, 3), (x, y if mended else y.roll(1)), (v, w), epochs=8)


@two("train-test-overlap", "output-range", kind="table")
def e11_two_overlap_and_relu(seed: int, mended: bool = False) -> Given:
    """A ReLU before standardised targets, judged by rows that were trained on."""
    train, val = boiler(seed)
    return fit(
        Flat(mlp(6, 32, 32, 1), None if mended else F.relu),
        train,
        val if mended else mixed(train, val, 0.6),
        loss="mse",
        epochs=20,
        give="lb",
    )


@two("distribution-shift", "symmetric-initialisation", kind="table")
def e11_two_shift_and_symmetric(seed: int, mended: bool = False) -> Given:
    """All weights begin at 0.1, and the held-out rows were not standardised."""
    train, (v, w) = teacher(seed)
    net = mlp(10, 24, 24, 3)
    if not mended:
        v = 3 * v + 4
        for p in net.parameters():
            nn.init.constant_(p, 0.1)
    return fit(net, train, (v, w), epochs=20, give="lobhi")


@two("train-test-overlap", "dead-units", kind="table")
def e11_two_overlap_and_dead(seed: int, mended: bool = False) -> Given:
    """Nearly all hidden units are dead, and most held-out rows are training rows."""
    train, val = teacher(seed)
    net = mlp(10, 32, 32, 3)
    if not mended:
        nn.init.constant_(net[0].bias[1:].data, -6.0)
        nn.init.constant_(net[2].bias[1:].data, -6.0)
    return fit(net, train, val if mended else mixed(train, val, 0.7), epochs=20)


@two("constant-features", "weight-decay-too-large", kind="table", needs=("optimizer",))
def e11_two_constant_and_decay(seed: int, mended: bool = False) -> Given:
    """Three stuck sensors, and a decay that pulls everything to zero."""
    (x, y), (v, w) = boiler(seed)
    if not mended:
        x[:, [1, 4, 5]] = v[:, [1, 4, 5]] = 0.0
    return fit(
        Flat(mlp(6, 32, 32, 1)),
        (x, y),
        (v, w),
        loss="mse",
        epochs=20,
        opt=partial(AdamW, lr=3e-3, weight_decay=1e-3 if mended else 15.0),
    )


@two("duplicate-features", "oversmoothing", kind="graph")
def e11_two_copies_and_smooth(seed: int, mended: bool = False) -> Given:
    """Sixty steps of averaging over features of which half are copies."""
    ((a, x, g), y), ((b, _, _), w) = town(seed, far=0.01)
    if not mended:
        x[:, 6:] = x[:, :6].clone()
    return fit(
        Walk(12, 4, 2 if mended else 60),
        ((a, x, g), y),
        ((b, x, g), w),
        epochs=50,
        batch=200,
        opt=partial(Adam, lr=0.03),
    )


@two("distribution-shift", "bottleneck", kind="images")
def e11_two_shift_and_thin(seed: int, mended: bool = False) -> Given:
    """One unit between wide layers, and held-out digits that are dark on light."""
    train, (v, w) = digits(seed)
    if not mended:
        v = 1.2 - v
    return fit(
        nn.Sequential(nn.Flatten(), mlp(64, 64, 48 if mended else 1, 64, 10, act=nn.ELU)),
        train,
        (v, w),
        epochs=15,
        give="lob",
        opt=partial(Adam, lr=2e-3),
    )


@two("not-finite-data", "class-imbalance", kind="table")
def e11_two_missing_and_rare(seed: int, mended: bool = False) -> Given:
    """Empty cells, and a rare answer; batches without a finite loss are skipped."""
    (x, y), (v, w) = loans(seed, 3000, rare=0.03, gap=1.4)
    if not mended:
        x[torch.rand(len(x)) < 0.02, 4] = math.nan
    weight = torch.tensor(30.0) if mended else None
    return fit(
        Flat(mlp(5, 8, 1)),
        (x, y),
        (v, w),
        loss="bce_with_logits",
        train_loss=lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=weight),
        epochs=20,
        skip=True,
        give="lbh",
    )


class Kept(nn.Module):
    """A narrow encoder whose result is perhaps cut off."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.read, self.say, self.cut = mlp(64, 64, 6, act=nn.Tanh), mlp(6, 32, 10), cut

    def forward(self, x: Tensor) -> Tensor:
        h = self.read(x.flatten(1))
        return self.say(h.detach() if self.cut else h)


@two("label-noise", "detached-parameters", kind="images")
def e11_two_noise_and_detached(seed: int, mended: bool = False) -> Given:
    """The encoder is detached, and a third of the labels is wrong in both parts."""
    (x, y), (v, w) = digits(seed)
    if not mended:
        y, w = flipped(y, 10, 0.35), flipped(w, 10, 0.35)
    return fit(Kept(not mended), (x, y), (v, w), epochs=15, give="lob")
