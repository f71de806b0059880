"""Double faults of the twelfth author; with ``first=False`` or ``second=False`` one of the two is left out."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twelfth_parts import (
    GCN,
    VAE,
    Bag,
    Generator,
    Recurrent,
    Temporal,
    Update,
    Wrapped,
    adam,
    adamw,
    citations,
    clinic,
    cnn,
    elbo,
    fit,
    hand,
    loop,
    manifold,
    match,
    mlp,
    notes,
    rare,
    refill,
    seeded,
    sensors,
    sgd,
    spectra,
    split,
    stamps,
    standard,
    waves,
)


def double(a, b, kind, strength="strong", needs=()):
    return case(a, b, kind=kind, author="twelfth", strength=strength, needs=needs)


def mislabel(y, share, k):
    return torch.where(torch.rand(len(y)) < share, (y + torch.randint(1, k, (len(y),))) % k, y)


def overlap(train, held, share):
    (x, y), (xv, yv) = train, held
    n = int(share * len(yv))
    rows = torch.randperm(len(y))[:n]
    return torch.cat([x[rows], xv[n:]]), torch.cat([y[rows], yv[n:]])


def balanced(y):
    share = torch.bincount(y).float()
    return lambda output, target: F.cross_entropy(output, target, weight=len(y) / len(share) / share)


@double("unscaled-inputs", "class-imbalance", "table")
def twelfth_raw_and_rare(seed, first=True, second=True):
    """Raw units in the columns, and an event of two in a hundred."""
    (x, y), (xv, yv) = rare(seed, n=2500, held=1500, share=0.02, apart=2.3)
    if first:
        scale, middle = (
            torch.tensor([4e3, 0.01, 300.0, 1.0, 2e4, 20.0]),
            torch.tensor([2e4, 0.05, 900.0, 3.0, 8e4, 60.0]),
        )
        x, xv = x * scale + middle, xv * scale + middle
    loss = "cross_entropy" if second else balanced(y)
    return hand(fit(mlp(6, 16, 2), (x, y), (xv, yv), loss, opt=adam(2e-3), epochs=12, schedule=True), "all")


@double("duplicate-features", "label-noise", "table")
def twelfth_copies_and_noise(seed, first=True, second=True):
    """Four columns come twice, and a third of the labels is wrong."""
    (x, y), (xv, yv) = clinic(seed, n=2500, noise=0.05)
    if first:
        x, xv = torch.cat([x, x[:, :4]], 1), torch.cat([xv, xv[:, :4]], 1)
    if second:
        y, yv = mislabel(y, 0.35, 3), mislabel(yv, 0.35, 3)
    return hand(
        fit(mlp(x.shape[1], 32, 3), (x, y), (xv, yv), opt=adamw(3e-3, 0.1), epochs=9, schedule=True), "all"
    )


@double("train-test-overlap", "double-softmax", "images")
def twelfth_shared_and_softmax(seed, first=True, second=True):
    """Half of the held-out pictures were trained on, and the net ends in a softmax."""
    train, held = stamps(seed, n=1200, k=6, noise=1.0)
    held = overlap(train, held, 0.5) if first else held
    model = cnn(6, drop=0.2)
    return hand(
        fit(
            Wrapped(model, after=lambda z: z.softmax(1)) if second else model,
            train,
            held,
            opt=adamw(2e-3, 0.03),
            epochs=8,
            schedule=True,
        ),
        "all",
    )


@double("distribution-shift", "class-imbalance", "table")
def twelfth_moved_and_rare(seed, first=True, second=True):
    """Another hospital's values have moved, and the event is rare."""
    train, (xv, yv) = rare(seed, n=2500, held=1500, share=0.025, apart=2.2)
    if first:
        xv = xv * 1.3 + torch.tensor([-1.5, 1.5, -1.5, 2.0, -2.0, 1.0])
    loss = "cross_entropy" if second else balanced(train[1])
    return hand(
        fit(mlp(6, 12, 2), train, (xv, yv), loss, opt=adamw(2e-3, 0.05), epochs=10, schedule=True),
        "optimizer",
        "batch_size",
    )


@double("double-softmax", "frozen-parameters", "table")
def twelfth_softmax_and_frozen(seed, first=True, second=True):
    """A softmax before the cross-entropy, and an untrained trunk that was frozen."""
    train, held = clinic(seed, n=2000, noise=0.2)
    model = mlp(8, 12, 10, 3, end=nn.Softmax(1) if first else None)
    if second:
        for p in model[:4].parameters():
            p.requires_grad_(False)
    return hand(
        fit(
            model,
            train,
            held,
            opt=lambda p: torch.optim.Adam([q for q in p if q.requires_grad], 5e-3),
            epochs=20,
        ),
        "all",
    )


@double("label-noise", "stochastic-evaluation", "images")
def twelfth_noise_and_mode(seed, first=True, second=True):
    """A third of the labels is wrong, and dropout is at work in prediction."""
    (x, y), held = stamps(seed, n=1500, k=4, noise=0.7)
    y = mislabel(y, 0.35, 4) if first else y
    run = fit(cnn(4, drop=0.6), (x, y), held, opt=adamw(2e-3, 0.1), epochs=6, schedule=True)
    if second:
        run["model"].train()
    return hand(run, "optimizer", "batch_size")


@double("constant-features", "dead-units", "table")
def twelfth_stuck_and_dead(seed, first=True, second=True):
    """Three stuck sensors, and a layer of which nearly all units are dead."""
    (x, y), (xv, yv) = sensors(seed, n=2000)
    if first:
        x, xv = x.clone(), xv.clone()
        x[:, 5:] = xv[:, 5:] = torch.tensor([0.4, -1.0, 2.0])
    model = mlp(8, 32, 32, 1)
    if second:
        with torch.no_grad():
            model[0].bias[2:] = -9.0
    return hand(fit(model, (x, y), (xv, yv), "mse", epochs=15), "all")


@double("duplicate-features", "dropout-too-large", "table")
def twelfth_copies_and_drop(seed, first=True, second=True):
    """A table joined with itself, and dropout of 0.85."""
    (x, y), (xv, yv) = sensors(seed, n=2000)
    if first:
        x, xv = torch.cat([x, x], 1), torch.cat([xv, xv], 1)
    return hand(
        fit(mlp(x.shape[1], 32, 32, 1, drop=0.85 if second else 0.0), (x, y), (xv, yv), "mse", epochs=15),
        "optimizer",
        "batch_size",
    )


@double("constant-features", "weight-decay-too-large", "table", needs=("optimizer",))
def twelfth_empty_and_decayed(seed, first=True, second=True):
    """Two empty columns, and a decay that leaves no weights."""
    (x, y), (xv, yv) = clinic(seed, n=2000, noise=0.3)
    if first:
        x, xv = x.clone(), xv.clone()
        x[:, [3, 6]] = xv[:, [3, 6]] = 0.0
    return hand(
        fit(mlp(8, 32, 32, 3), (x, y), (xv, yv), opt=adam(3e-3, 0.3 if second else 0.0), epochs=12), "all"
    )


@double("constant-features", "oversmoothing", "graph")
def twelfth_empty_and_smooth(seed, first=True, second=True):
    """Node features of which three are empty, averaged over twenty hops."""
    train, held = citations(seed, n=300, k=3, strength=1.0, d=8)
    if first:
        x = train[0][0].clone()
        x[:, 5:] = 0.0
        train, held = ((x, train[0][1]), train[1]), ((x, train[0][1]), held[1])
    return hand(
        fit(GCN(8, 3, depth=20 if second else 2), train, held, opt=adam(1e-2, 1e-3), epochs=50, batch=None),
        "optimizer",
        "initial",
    )


@double("unscaled-inputs", "receptive-field-too-small", "sequences")
def twelfth_raw_and_short(seed, first=True, second=True):
    """Raw counts, and a net that sees five steps where the response comes after eleven."""
    seeded(seed)
    x = torch.randn(900, 32, 2)
    y = 1.2 * F.pad(x[:, :-11, 0], (11, 0)) + 0.5 * x[..., 1] + 0.1 * torch.randn(900, 32)
    x = 5000 + 1500 * x if first else x
    train, held = split(x, standard(y.flatten()).reshape(900, 32, 1), 600)
    model = Temporal(2, 1, width=16, dilations=(1, 1) if second else (1, 2, 4, 8), last=False)
    return hand(fit(model, train, held, "mse", opt=adam(5e-3), epochs=8, batch=32), "all")


@double("duplicate-features", "bottleneck", "table")
def twelfth_copies_and_waist(seed, first=True, second=True):
    """Columns that come twice, and a waist of one unit for six responses."""
    (x, y), (xv, yv) = spectra(seed, n=1500, d=8)
    if first:
        x, xv = torch.cat([x, x[:, 2:6]], 1), torch.cat([xv, xv[:, 2:6]], 1)
    return hand(
        fit(mlp(x.shape[1], 48, 1 if second else 16, 48, 6), (x, y), (xv, yv), "mse", epochs=15),
        "optimizer",
        "batch_size",
    )


@double("train-test-overlap", "symmetric-initialisation", "table")
def twelfth_shared_and_equal(seed, first=True, second=True):
    """Held-out rows that were trained on, and a net of equal weights."""
    train, held = clinic(seed, n=2000, noise=0.3)
    held = overlap(train, held, 0.7) if first else held
    model = mlp(8, 32, 24, 3)
    if second:
        refill(model, lambda w: w.fill_(0.08), lambda b: b.zero_())
    return hand(fit(model, train, held, epochs=12), "initial", "optimizer", "batch_size")


@double("target-leak", "duplicate-features", "table", "mild")
def twelfth_leak_and_copies(seed, first=True, second=True):
    """A value measured after the outcome, and two columns that come twice."""
    (x, y), (xv, yv) = sensors(seed, n=2000, noise=0.8)
    if second:
        x, xv = torch.cat([x, x[:, [1, 4]]], 1), torch.cat([xv, xv[:, [1, 4]]], 1)
    if first:
        x, xv = (
            torch.cat([x, 0.7 * y + 0.03 * torch.randn_like(y)], 1),
            torch.cat([xv, 0.7 * yv + 0.03 * torch.randn_like(yv)], 1),
        )
    return hand(
        fit(mlp(x.shape[1], 24, 1), (x, y), (xv, yv), "mse", opt=adamw(4e-3, 0.05), epochs=12, schedule=True),
        "optimizer",
        "batch_size",
    )


@double("constant-features", "posterior-collapse", "generative")
def twelfth_empty_and_collapsed(seed, first=True, second=True):
    """Two empty columns, and a divergence weighted by fifty."""
    train, held = manifold(seed)
    if first:
        train, held = train.clone(), held.clone()
        train[:, 4:6] = held[:, 4:6] = 0.0
    return hand(
        fit(VAE(12), train, held, elbo(50.0 if second else 1.0, 0.1), epochs=15, schedule=True), "all"
    )


@double("duplicate-features", "mode-collapse", "generative")
def twelfth_copies_and_one(seed, first=True, second=True):
    """A table with two columns twice, and a generator whose samples are all alike."""
    seeded(seed)
    x = standard(torch.randn(1500, 4) @ (torch.eye(4) + 0.4 * torch.randn(4, 4)))
    x = torch.cat([x, x[:, :2]], 1) if first else torch.cat([x, torch.randn(1500, 2)], 1)
    model = Generator(6, inner=6)
    model = (
        match(model, x[:1000], lambda a, b: torch.cdist(a, b).mean(), steps=400)
        if second
        else match(model, x[:1000], steps=500)
    )
    return {"model": model, "data": x[:1000], "validation": x[1000:]}


@double("constant-features", "gradients-not-cleared", "sequences", needs=("step",))
def twelfth_flat_and_uncleared(seed, first=True, second=True):
    """A channel that says nothing, and an update that never clears its gradients."""
    (x, y), (xv, yv) = waves(seed, channels=3)
    if first:
        x, xv = x.clone(), xv.clone()
        x[..., 2] = xv[..., 2] = 0.3
    run = loop(
        Recurrent(3, 3, width=16, pool=True),
        (x, y),
        (xv, yv),
        "cross_entropy",
        Update("cross_entropy", adam(5e-3), clear=not second),
        epochs=10,
    )
    return {k: run[k] for k in ("model", "data", "validation", "loss", "step")}


@double("duplicate-features", "learning-rate-too-large", "table", needs=("optimizer",))
def twelfth_copies_and_leaps(seed, first=True, second=True):
    """Three columns that come twice, and steps that never settle."""
    (x, y), (xv, yv) = clinic(seed, n=2000, noise=0.3)
    if first:
        x, xv = torch.cat([x, x[:, 4:7]], 1), torch.cat([xv, xv[:, 4:7]], 1)
    model = mlp(x.shape[1], 32, 32, 3, act=nn.Tanh)
    return hand(fit(model, (x, y), (xv, yv), opt=sgd(3.0 if second else 0.05), epochs=12), "all")


@double("train-test-overlap", "learning-rate-too-small", "text", needs=("optimizer",))
def twelfth_shared_and_slow(seed, first=True, second=True):
    """Notes that are in both halves, and a step of a millionth."""
    train, held = notes(seed, n=1500)
    held = overlap(train, held, 0.5) if first else held
    return hand(fit(Bag(60, 4), train, held, opt=adam(1e-6 if second else 4e-3), epochs=8), "all")
