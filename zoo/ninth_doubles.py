"""Double faults of the ninth author. ``mended``: 1 repairs the first cause, 2 the second, 3 both."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.ninth_parts import (
    Forecaster,
    RoadNet,
    TextConv,
    WaveCNN,
    acc,
    balanced,
    digit_cnn,
    digits,
    hand,
    houses,
    load_curve,
    minus_loss,
    mlp,
    note,
    r2,
    reviews,
    roads,
    sensor,
    start,
    stepper,
    t,
    train,
    wells,
)  # fmt: skip

ME = "ninth"


def spoil(rng, y, share, classes):
    y = y.clone()
    i = torch.tensor(np.flatnonzero(rng.random(len(y)) < share))
    y[i] = (y[i] + t(rng.integers(1, classes, len(i)))) % classes
    return y


@case("unscaled-inputs", "double-softmax", kind="images", author=ME)
def ninth_bytes_and_softmax(seed, mended=0):
    rng = start(seed, 200)
    tr, va = digits(rng)
    if not mended & 1:
        tr, va = (tr[0] * 255, tr[1]), (va[0] * 255, va[1])
    model = nn.Sequential(digit_cnn(8, norm=False), nn.Identity() if mended & 2 else nn.Softmax(1))
    run = train(model, tr, va, epochs=8, opt="sgd", lr=0.03)
    note(acc(model, va))
    return hand(model, tr, va, run, "all")


@case("label-noise", "dropout-too-large", kind="table", author=ME)
def ninth_noisy_labels_heavy_dropout(seed, mended=0):
    rng = start(seed, 201)
    tr, va = wells(rng, noise=0.0)
    if not mended & 1:
        tr = (tr[0], spoil(rng, tr[1], 0.45, 3))
    model = mlp(12, 64, 64, 3, drop=0.0 if mended & 2 else 0.9)
    run = train(model, tr, va, epochs=20)
    note(acc(model, va))
    return hand(model, tr, va, run, "all")


@case("class-imbalance", "weight-decay-too-large", kind="table", author=ME)
def ninth_rare_and_decayed(seed, mended=0):
    rng = start(seed, 202)
    X = rng.standard_normal((4000, 8))
    y = (X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.standard_normal(4000) > 2.9).astype(int)
    tr, va = (t(X[:2600]), t(y[:2600])), (t(X[2600:]), t(y[2600:]))
    w = t([1.0, 20.0]).float()
    loss = (lambda o, z: F.cross_entropy(o, z, weight=w)) if mended & 1 else "cross_entropy"
    model = mlp(8, 32, 32, 2)
    run = train(model, tr, va, loss, opt="sgd", lr=0.03, wd=1e-4 if mended & 2 else 0.15, epochs=12)
    note(balanced(model, va))
    return hand(model, tr, va, run, "most")


class Squash(nn.Module):
    def __init__(self, body, fixed):
        super().__init__()
        self.body, self.fixed = body, fixed

    def forward(self, *x):
        z = self.body(*x)
        return z if self.fixed else torch.sigmoid(z)


@case("misaligned-labels", "output-range", kind="sequences", author=ME)
def ninth_late_targets_sigmoid(seed, mended=0):
    """Targets are of the row before, and the last sigmoid cannot reach half of them."""
    rng = start(seed, 203)
    tr, va = load_curve(rng)
    fresh = va
    if not mended & 1:
        tr, va = (tr[0], tr[1].roll(1)), (va[0], va[1].roll(1))
    model = Squash(Forecaster(20), mended & 2)
    run = train(model, tr, va, "mse", epochs=12, lr=5e-3)
    note(r2(model, fresh))
    return hand(model, tr, va, run, "loss")


@case("not-finite-data", "learning-rate-too-large", kind="table", author=ME)
def ninth_gaps_and_speed(seed, mended=0):
    """Bad batches are skipped, and the rate is too large for the rest."""
    rng = start(seed, 204)
    tr, va = wells(rng)
    good = (va[0].clone(), va[1])
    if not mended & 1:
        tr[0][torch.tensor(rng.random(len(tr[1])) < 0.03), 3] = float("nan")
        va[0][:10, 3] = float("nan")
    model = mlp(12, 48, 48, 3)
    run = train(model, tr, va, epochs=15, lr=2e-3 if mended & 2 else 0.3, skip_bad=True)
    note(acc(model, good))
    return hand(model, tr, va, run, "all")


@case("constant-features", "frozen-parameters", kind="sequences", author=ME, needs=("optimizer", "initial"))
def ninth_dead_axis_frozen_filters(seed, mended=0):
    rng = start(seed, 205)
    tr, va = sensor(rng, noise=0.8)
    if not mended & 1:
        tr[0][:, 1], va[0][:, 1] = 0.0, 0.0
    model = WaveCNN(8, norm=None, layers=2)
    for p in model.features.parameters():
        p.requires_grad_(bool(mended & 2))
    run = train(model, tr, va, epochs=25, lr=5e-3)
    note(acc(model, va))
    return hand(model, tr, va, run, "all")


@case("distribution-shift", "learning-rate-too-small", kind="images", author=ME)
def ninth_other_scanner_slow(seed, mended=0):
    rng = start(seed, 206)
    tr, va = digits(rng)
    if not mended & 1:
        va = (1 - va[0], va[1])
    model = digit_cnn(8, norm=False)
    run = train(model, tr, va, epochs=10, lr=3e-3 if mended & 2 else 1e-5)
    note(acc(model, va))
    return hand(model, tr, va, run, "all")


@case("unscaled-targets", "dead-units", kind="table", author=ME)
def ninth_euros_and_dead_layer(seed, mended=0):
    rng = start(seed, 207)
    tr, va = houses(rng)
    if not mended & 1:
        tr, va = (tr[0], tr[1] * 500 + 4000), (va[0], va[1] * 500 + 4000)
    model = mlp(8, 40, 40, 1, squeeze=True)
    if not mended & 2:
        with torch.no_grad():
            model[0].bias[2:] = -6.0
    run = train(model, tr, va, "mse", epochs=25, lr=3e-3)
    note(r2(model, va))
    return hand(model, tr, va, run, "all")


@case("train-test-overlap", "overfit", kind="text", author=ME)
def ninth_few_reviews_seen_before(seed, mended=0):
    """160 reviews by heart, and a third of the validation part is among them."""
    rng = start(seed, 208)
    tr, va = reviews(rng)
    va = (va[0][:400], va[1][:400])
    fresh = va
    if not mended & 2:
        tr = (tr[0][:160], tr[1][:160])
    if not mended & 1:
        k = torch.tensor(rng.choice(160, 130, replace=False))
        va = (torch.cat([va[0][130:], tr[0][k]]), torch.cat([va[1][130:], tr[1][k]]))
    model = TextConv(d=48, width=96, drop=0.0)
    run = train(model, tr, va, epochs=12 if mended & 2 else 60, bs=32)
    note(
        minus_loss(model, fresh, "cross_entropy")
        + (
            0.0
            if mended & 1
            else minus_loss(model, fresh, "cross_entropy") - minus_loss(model, va, "cross_entropy")
        )
    )
    return hand(model, tr, va, run, "all")


@case("target-leak", "stochastic-evaluation", kind="table", author=ME)
def ninth_leak_and_dropout_on(seed, mended=0):
    rng = start(seed, 209)
    tr, va = wells(rng)
    fresh = va
    if not mended & 1:
        leak = lambda p: torch.cat([p[0], (p[1].float() - 1 + 0.02 * torch.randn(len(p[1]))).unsqueeze(1)], 1)  # noqa: E731
        fresh = (torch.cat([va[0], torch.randn(len(va[1]), 1)], 1), va[1])
        tr, va = (leak(tr), tr[1]), (leak(va), va[1])
    model = mlp(tr[0].shape[1], 48, 48, 3, drop=0.4)
    run = train(model, tr, va, epochs=20)
    if not mended & 2:
        model.train()
    note(acc(model, fresh))
    return hand(model, tr, va, run, "loss")


@case("receptive-field-too-small", "label-noise", kind="sequences", author=ME)
def ninth_far_beats_wrong_notes(seed, mended=0):
    rng = start(seed, 210)
    n = 1600
    Z = rng.standard_normal((n, 1, 40))
    y = (Z[:, 0, 4] + 0.8 * Z[:, 0, -2] > 0).astype(int)
    tr, va = (t(Z[:1100]), t(y[:1100])), (t(Z[1100:]), t(y[1100:]))
    if not mended & 2:
        tr = (tr[0], spoil(rng, tr[1], 0.3, 2))

    class Last(nn.Module):
        """Causal convolutions, read at the last step."""

        def __init__(self):
            super().__init__()
            self.d = (1, 2, 4, 8, 16, 16) if mended & 1 else (1, 1, 1, 1)
            self.convs = nn.ModuleList(
                [nn.Conv1d(16 if i else 1, 16, 2, dilation=d) for i, d in enumerate(self.d)]
            )
            self.out = nn.Linear(16, 2)

        def forward(self, x):
            for c, d in zip(self.convs, self.d, strict=True):
                x = F.relu(c(F.pad(x, (d, 0))))
            return self.out(x[:, :, -1])

    model = Last()
    run = train(model, tr, va, epochs=30, lr=3e-3)
    note(acc(model, va))
    return hand(model, tr, va, run, "most")


@case("duplicate-features", "unscaled-inputs", kind="table", author=ME)
def ninth_copies_in_cents(seed, mended=0):
    """Columns of no use are there ten times, and three others in cents."""
    rng = start(seed, 211)
    tr, va = wells(rng, n=900, train=200, classes=2)
    if not mended & 2:
        for p in (tr, va):
            p[0][:, [9, 10, 11]] = p[0][:, [9, 10, 11]] * 500 + 2000
    if not mended & 1:
        more = lambda X: torch.cat([X] + [X[:, 8:]] * 10, 1)  # noqa: E731
        tr, va = (more(tr[0]), tr[1]), (more(va[0]), va[1])
    model = mlp(tr[0].shape[1], 32, 2)
    run = train(model, tr, va, epochs=40, bs=32)
    note(acc(model, va))
    return hand(model, tr, va, run, "most")


class Cut(nn.Module):
    """Embeddings and convolution are detached from the head."""

    def __init__(self, fixed, drop):
        super().__init__()
        self.embed, self.conv, self.head, self.fixed = (
            nn.Embedding(60, 8, padding_idx=0),
            nn.Conv1d(8, 16, 2),
            nn.Linear(16, 2),
            fixed,
        )
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        h = F.relu(self.conv(self.embed(x).transpose(1, 2))).sum(2) / 4
        return self.head(self.drop(h if self.fixed else h.detach()))


@case("detached-parameters", "class-imbalance", kind="text", author=ME)
def ninth_detached_and_rare(seed, mended=0):
    rng = start(seed, 212)
    tr, va = reviews(rng, n=5000, train=3600)
    keep = [(p[1] == 0) | (t(rng.random(len(p[1]))) < 0.05) for p in (tr, va)]
    tr, va = ((p[0][k], p[1][k]) for p, k in zip((tr, va), keep, strict=True))
    w = t([1.0, 20.0]).float()
    loss = (lambda o, z: F.cross_entropy(o, z, weight=w)) if mended & 2 else "cross_entropy"
    model = Cut(bool(mended & 1), 0.1)
    run = train(model, tr, va, loss, epochs=8, lr=3e-3)
    note(balanced(model, va))
    return hand(model, tr, va, run, "all")


@case("gradients-not-cleared", "saturated-units", kind="table", author=ME, needs=("step",))
def ninth_uncleared_and_saturated(seed, mended=0):
    rng = start(seed, 213)
    tr, va = wells(rng)
    model = mlp(12, 64, 64, 3, act=nn.Tanh)
    if not mended & 2:
        for i in (0, 2):
            nn.init.normal_(model[i].weight, std=5.0)
    run = train(model, tr, va, opt="plain", lr=0.4, epochs=20, zero=bool(mended & 1))
    note(acc(model, va))
    step = stepper("cross_entropy", lambda m: torch.optim.SGD(m.parameters(), lr=0.4), clear=bool(mended & 1))
    return hand(model, tr, va, run, "all", step=step)


@case("unscaled-targets", "constant-features", kind="graph", author=ME)
def ninth_vehicles_and_dead_column(seed, mended=0):
    rng = start(seed, 214)
    (X, y), (V, z) = roads(rng)
    if not mended & 2:
        X[0][:, :, 0], V[0][:, :, 0] = 5.0, 5.0
    tr, va = ((X, y), (V, z)) if mended & 1 else ((X, y * 3000 + 12000), (V, z * 3000 + 12000))
    model = RoadNet()
    run = train(model, tr, va, "mse", epochs=25, lr=5e-3)
    note(r2(model, va))
    return hand(model, tr, va, run, "most")


@case("symmetric-initialisation", "label-noise", kind="images", author=ME)
def ninth_equal_filters_wrong_labels(seed, mended=0):
    rng = start(seed, 215)
    tr, va = digits(rng)
    if not mended & 2:
        tr = (tr[0], spoil(rng, tr[1], 0.45, 10))
    model = digit_cnn(12, norm=False)
    if not mended & 1:
        for m in model:
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.constant_(m.weight, 0.5 / m.weight[0].numel() ** 0.5)
                nn.init.zeros_(m.bias)
    run = train(model, tr, va, epochs=20, lr=3e-3)
    note(acc(model, va))
    return hand(model, tr, va, run, "all")
