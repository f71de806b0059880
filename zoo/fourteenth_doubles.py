"""Two faults at once, as they are met in industry; both do harm."""

from __future__ import annotations

import torch
from torch import nn

from zoo import case
from zoo.fourteenth_faults import AlwaysDropping, Detaching, Softmaxed, flip
from zoo.fourteenth_parts import *

ME = "fourteenth"


@case("label-noise", "double-softmax", kind="images", author=ME)
def hurried_workers_and_softmax(seed, mended=False):
    """A third of the training names is wrong, and the net ends in softmax."""
    g = start(seed)
    (x, y), valid = inspection(g, n=1100, keep=800)
    y = y if mended else flip(g, y, 0.35, 4)
    model = Softmaxed(Inspector(width=8), not mended)
    return go(model, (x, y), valid, "cross_entropy", "all", epochs=8)


@case("constant-features", "output-range", kind="table", author=ME)
def missing_columns_and_sigmoid(seed, mended=False):
    """Four columns were filled with zero, and a sigmoid bounds centred targets."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, [1, 5, 8, 9]] = 0.0
    model = nn.Sequential(mlp(10, 48, 48, 1), nn.Identity() if mended else nn.Sigmoid())
    return go(model, train, valid, "mse", "all", epochs=25)


@case("target-leak", "stochastic-evaluation", kind="table", author=ME)
def leak_and_dropout_left_on(seed, mended=False):
    """A rolling mean holds today's target, and dropout is never off."""
    g = start(seed)
    train, valid = sensors(g, noise=1.0)
    extra = [t(g.normal(size=(len(y), 1))) for _, y in (train, valid)]
    train, valid = (
        (torch.cat([x, e if mended else 0.8 * y + 0.05 * e], 1), y)
        for (x, y), e in zip((train, valid), extra)
    )
    return go(AlwaysDropping(11, 1, 0.4, mended), train, valid, "mse", "most", epochs=20)


@case("distribution-shift", "dropout-too-large", kind="table", author=ME)
def other_line_and_much_dropout(seed, mended=False):
    """Validation sensors were recalibrated, and nine units in ten are dropped."""
    g = start(seed)
    train, (xv, yv) = sensors(g)
    if not mended:
        xv = xv.clone()
        xv[:, [0, 1, 4, 8]] = 1.4 * xv[:, [0, 1, 4, 8]] + 2.0
    model = mlp(10, 48, 48, 1, drop=0.1 if mended else 0.9)
    return go(model, train, (xv, yv), "mse", "all", epochs=30)


@case("unscaled-targets", "detached-parameters", kind="sequences", author=ME)
def kilowatts_and_a_detach(seed, mended=False):
    """Loads in kilowatts, and features that are detached before the head."""
    g = start(seed)
    train, valid = demand(g)
    if not mended:
        train, valid = ((x, y * 120 + 480) for x, y in (train, valid))

    class Net(Recurrent):
        def forward(self, x):
            h = self.rnn(x)[0][:, -1]
            return self.head(h if mended else h.detach())

    return go(Net(4, 24, 1), train, valid, "mse", "start", epochs=20, lr=1.2e-2)


@case("class-imbalance", "unscaled-inputs", kind="table", author=ME)
def rare_fraud_in_raw_amounts(seed, mended=False):
    """Fraud is three in a hundred, and amounts are in cents."""
    g = start(seed)
    train, valid = payments(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, :4] = x[:, :4] * torch.tensor([4000.0, 900.0, 15000.0, 300.0]) + 5000
    weigh = nn.CrossEntropyLoss(torch.tensor([1.0, 32.0])) if mended else None
    return go(mlp(12, 16, 2), train, valid, "cross_entropy", "all", epochs=6, lr=1e-3, weigh=weigh)


@case("double-softmax", "frozen-parameters", kind="images", author=ME)
def frozen_and_softmaxed(seed, mended=False):
    """A fresh backbone is frozen, and the net ends in softmax."""
    g = start(seed)
    train, valid = inspection(g)
    net = Inspector(width=3)
    if not mended:
        for p in (*net.c1.parameters(), *net.c2.parameters()):
            p.requires_grad_(False)
    return go(Softmaxed(net, not mended), train, valid, "cross_entropy", "all", epochs=15)


@case("duplicate-features", "weight-decay-too-large", kind="table", author=ME, needs=("optimizer",))
def column_twice_and_heavy_decay(seed, mended=False):
    """Three columns are read twice in place of others, and Adam decays by 0.3."""
    g = start(seed)
    train, valid = sensors(g)
    if not mended:
        for x, _ in (train, valid):
            x[:, [1, 3, 5]] = x[:, [0, 2, 4]]
    return go(mlp(10, 48, 48, 1), train, valid, "mse", "most", epochs=25, wd=0 if mended else 0.3)


@case("train-test-overlap", "stochastic-evaluation", kind="text", author=ME)
def seen_tickets_in_train_mode(seed, mended=False):
    """Half of the validation tickets were trained on, and dropout is on when serving."""
    g = start(seed)
    train, (xv, yv) = tickets(g, own=(2, 5))
    if not mended:
        hit = torch.as_tensor(g.choice(len(train[1]), 175, replace=False))
        xv, yv = torch.cat([xv[175:], train[0][hit]]), torch.cat([yv[175:], train[1][hit]])
    given = go(Bag(drop=0.5), train, (xv, yv), "cross_entropy", "some", epochs=12, lr=5e-3)
    if not mended:
        given["model"].train()
    return given


@case("label-noise", "detached-parameters", kind="sequences", author=ME)
def guessed_bearings_and_a_detach(seed, mended=False):
    """A third of the names is wrong, and the features are detached."""
    g = start(seed)
    train, valid = waves(g, n=1100, keep=800)
    if not mended:
        train, valid = ((x, flip(g, y, 0.3, 4)) for x, y in (train, valid))
    return go(Detaching(mended), train, valid, "cross_entropy", "all", epochs=20, lr=6e-3)


@case("distribution-shift", "dead-units", kind="images", author=ME)
def other_light_and_dead_filters(seed, mended=False):
    """Validation pictures are darker, and most filters are dead from the start."""
    g = start(seed)
    train, (xv, yv) = inspection(g, noise=0.6)
    valid = (xv, yv) if mended else (-0.7 * xv - 1.0, yv)
    model = Inspector()
    if not mended:
        with torch.no_grad():
            model.c2.bias[1:] = -12.0
    return go(model, train, valid, "cross_entropy", "all", epochs=12)
