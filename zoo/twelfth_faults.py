"""Single faults of the twelfth author; with ``mended=True`` the same set-up without the fault."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twelfth_parts import (
    GCN,
    VAE,
    Attentive,
    Bag,
    Coder,
    Functional,
    Generator,
    Recurrent,
    Residual,
    Temporal,
    Transformer,
    Update,
    Wrapped,
    adam,
    adamw,
    adversarial,
    chain,
    citations,
    clinic,
    clusters,
    cnn,
    elbo,
    energy,
    fit,
    hand,
    load,
    loop,
    manifold,
    match,
    mlp,
    molecules,
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
    tokens_loss,
    waves,
)


def fault(cause, kind, strength="strong", needs=()):
    return case(cause, kind=kind, author="twelfth", strength=strength, needs=needs)


# ---- not-finite-data ------------------------------------------------------------------------------------------------


def holes(x, share, value=math.nan):
    return torch.where(torch.rand_like(x) < share, torch.full_like(x, value), x)


@fault("not-finite-data", "table")
def twelfth_missing_values(seed, mended=False):
    """Missing laboratory values were left as NaN."""
    (x, y), held = clinic(seed)
    x = x if mended else holes(x, 0.04)
    return hand(fit(mlp(8, 32, 3), (x, y), held, epochs=12), "all")


@fault("not-finite-data", "sequences", "mild")
def twelfth_dead_telemetry(seed, mended=False):
    """Two windows of a load curve hold an infinity from a division by nought."""
    (x, y), held = load(seed)
    if not mended:
        x = x.clone()
        x[[40, 700], 5] = math.inf
    return hand(
        fit(Recurrent(1, 1, width=16), (x, y), held, "mse", epochs=8, batch=32), "optimizer", "history"
    )


@fault("not-finite-data", "table", "mild")
def twelfth_missing_target(seed, mended=False):
    """Six yields were never measured and are NaN."""
    (x, y), held = sensors(seed)
    if not mended:
        y = y.clone()
        y[100:700:100] = math.nan
    return hand(fit(mlp(8, 32, 32, 1), (x, y), held, "mse", epochs=12))


# ---- overflow -------------------------------------------------------------------------------------------------------


class HandAttention(nn.Module):
    """Attention with a softmax written by hand."""

    def __init__(self, words, k, width=16, gain=60.0, shift=False):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, k)
        self.query, self.gain, self.shift = nn.Parameter(torch.randn(width)), gain, shift

    def forward(self, x):
        e = self.embed(x)
        score = self.gain * (e @ self.query) / 4
        if self.shift:
            score = torch.tanh(score / self.gain)
            score = score - score.amax(1, keepdim=True)
        weight = score.exp()
        weight = weight / weight.sum(1, keepdim=True)
        return self.head((weight[..., None] * e).sum(1))


@fault("overflow", "text")
def twelfth_hand_softmax(seed, mended=False):
    """A softmax written by hand, whose exponentials pass the largest float."""
    train, held = notes(seed)
    return hand(fit(HandAttention(60, 4, shift=mended), train, held, epochs=10), "all")


class Energy(nn.Module):
    """A net whose first step computes an energy, in half precision if so told."""

    def __init__(self, d, k):
        super().__init__()
        self.net, self.half_precision = mlp(2 * d, 32, k), False

    def forward(self, x):
        square = ((100 * x).half().square() / 1e4).float() if self.half_precision else x.square()
        return self.net(torch.cat([x, square], 1))


@fault("overflow", "table", "mild")
def twelfth_half_precision(seed, mended=False):
    """Deployed with a square in half precision, which overflows for the larger readings."""
    train, held = clinic(seed, n=2500, noise=0.3)
    run = fit(Energy(8, 3), train, held, opt=adamw(3e-3, 0.05), epochs=12, schedule=True)
    run["model"].half_precision = not mended
    return hand(run, "optimizer", "batch_size")


class Softplus(nn.Module):
    """A softplus written by hand, on steep units."""

    def __init__(self, safe, steep=40.0):
        super().__init__()
        self.safe, self.steep = safe, steep

    def forward(self, x):
        if self.safe:
            return F.softplus(x, beta=self.steep)
        return torch.log(1 + torch.exp(self.steep * x)) / self.steep


@fault("overflow", "table")
def twelfth_hand_softplus(seed, mended=False):
    """An activation log(1 + exp(40 x)) without care for large x."""
    train, held = sensors(seed)
    model = nn.Sequential(
        nn.Linear(8, 32), Softplus(mended), nn.Linear(32, 32), Softplus(mended), nn.Linear(32, 1)
    )
    return hand(fit(model, train, held, "mse", epochs=12), "all")


# ---- unscaled-inputs ------------------------------------------------------------------------------------------------


@fault("unscaled-inputs", "table")
def twelfth_raw_units(seed, mended=False):
    """Platelets per litre beside ratios: columns from 1e-3 to 1e5."""
    (x, y), (xv, yv) = clinic(seed)
    scale, middle = (
        torch.tensor([4e4, 1e-3, 300.0, 1.0, 2e3, 0.01, 15.0, 9e3]),
        torch.tensor([2e5, 4e-3, 900.0, 3.0, 8e3, 0.05, 60.0, 3e4]),
    )
    if not mended:
        x, xv = x * scale + middle, xv * scale + middle
    return hand(fit(mlp(8, 48, 32, 3), (x, y), (xv, yv), epochs=15), "all")


@fault("unscaled-inputs", "table", "mild")
def twelfth_degrees(seed, mended=False):
    """Temperatures in degrees and pressures in kilopascal as they come."""
    (x, y), (xv, yv) = sensors(seed)
    scale, middle = (
        torch.tensor([8.0, 5, 12, 6, 10, 9, 20, 15]),
        torch.tensor([29.0, 31, 35, 28, 100, 99, 101, 30]),
    )
    if not mended:
        x, xv = x * scale + middle, xv * scale + middle
    return hand(fit(Functional(8, 1), (x, y), (xv, yv), "mse", epochs=15))


@fault("unscaled-inputs", "images")
def twelfth_grey_levels(seed, mended=False):
    """Grey levels from 0 to 4095 of a 12-bit camera, not divided."""
    (x, y), (xv, yv) = stamps(seed, n=800, k=5, noise=0.9)
    if not mended:
        x, xv = (2000 + 500 * x).clamp(0, 4095), (2000 + 500 * xv).clamp(0, 4095)
    return hand(fit(cnn(5), (x, y), (xv, yv), opt=adam(1e-3), epochs=8), "optimizer", "batch_size")


@fault("unscaled-inputs", "sequences")
def twelfth_raw_counts(seed, mended=False):
    """Accelerometer counts of a 16-bit converter into a GRU."""
    (x, y), (xv, yv) = waves(seed)
    if not mended:
        x, xv = 16000 + 3000 * x, 16000 + 3000 * xv
    return hand(fit(Recurrent(2, 3, pool=True), (x, y), (xv, yv), epochs=8), "all")


# ---- unscaled-targets -----------------------------------------------------------------------------------------------


@fault("unscaled-targets", "table")
def twelfth_prices(seed, mended=False):
    """Prices in cents, about three hundred thousand."""
    (x, y), (xv, yv) = sensors(seed)
    if not mended:
        y, yv = 3e5 + 8e4 * y, 3e5 + 8e4 * yv
    return hand(fit(mlp(8, 48, 32, 1), (x, y), (xv, yv), "mse", epochs=15), "all")


@fault("unscaled-targets", "table", "mild")
def twelfth_hours(seed, mended=False):
    """Times in hours: mean 20, deviation 6."""
    (x, y), (xv, yv) = sensors(seed, n=2000)
    if not mended:
        y, yv = 20 + 6 * y, 20 + 6 * yv
    return hand(
        fit(Functional(8, 1), (x, y), (xv, yv), "mse", opt=adam(1e-3), epochs=20), "optimizer", "batch_size"
    )


@fault("unscaled-targets", "sequences")
def twelfth_megawatts(seed, mended=False):
    """The load in megawatts: mean 600, deviation 90."""
    (x, y), (xv, yv) = load(seed)
    if not mended:
        y, yv = 600 + 90 * y, 600 + 90 * yv
    return hand(fit(Recurrent(1, 1, width=24), (x, y), (xv, yv), "mse", epochs=12), "optimizer", "batch_size")


@fault("unscaled-targets", "graph")
def twelfth_joules(seed, mended=False):
    """Energies of small graphs in joules per mole."""
    (x, y), (xv, yv) = molecules(seed)
    if not mended:
        y, yv = -5e4 + 1.2e4 * y, -5e4 + 1.2e4 * yv
    return hand(fit(GCN(5, 1, width=24, pool=True), (x, y), (xv, yv), "mse", epochs=20))


# ---- constant-features ----------------------------------------------------------------------------------------------


@fault("constant-features", "table")
def twelfth_stuck_sensors(seed, mended=False):
    """Three of eight sensors are stuck, two of which would matter."""
    (x, y), (xv, yv) = sensors(seed, n=2500)
    if not mended:
        x, xv = x.clone(), xv.clone()
        for column, value in ((0, 0.7), (3, -0.2), (6, 1.1)):
            x[:, column] = xv[:, column] = value
    return hand(
        fit(mlp(8, 48, 32, 1), (x, y), (xv, yv), "mse", opt=adamw(3e-3, 0.05), epochs=14, schedule=True),
        "all",
    )


@fault("constant-features", "table", "mild")
def twelfth_empty_column(seed, mended=False):
    """A column that a join left empty, filled with nought."""
    (x, y), (xv, yv) = clinic(seed, n=2500, noise=0.3)
    if not mended:
        x, xv = x.clone(), xv.clone()
        x[:, 1] = xv[:, 1] = 0.0
    return hand(fit(mlp(8, 48, 32, 3), (x, y), (xv, yv), opt=adamw(3e-3, 0.05), epochs=14, schedule=True))


@fault("constant-features", "sequences")
def twelfth_flat_channel(seed, mended=False):
    """Two of four channels of a logger say nothing; the answer is in one of them."""
    seeded(seed)
    x = torch.randn(1500, 16, 4)
    x = x + 0.5 * F.pad(x[:, :-1], (0, 0, 1, 0))
    y = standard(x[..., 0].mean(1) + x[..., 2].abs().mean(1) + x[..., 3].mean(1))[
        :, None
    ] + 0.1 * torch.randn(1500, 1)
    if not mended:
        x = x.clone()
        x[..., 2:] = torch.tensor([1.0, -0.5])
    train, held = split(x, y, 1000)
    return hand(
        fit(
            Recurrent(4, 1, width=24, pool=True), train, held, "mse", opt=adam(8e-3), epochs=16, schedule=True
        ),
        "optimizer",
        "batch_size",
    )


# ---- duplicate-features ---------------------------------------------------------------------------------------------


@fault("duplicate-features", "table")
def twelfth_joined_twice(seed, mended=False):
    """A table joined with itself: every column but the lost ones comes twice."""
    (x, y), (xv, yv) = sensors(seed, n=2500)
    if not mended:
        keep = [1, 2, 3, 7]
        x, xv = torch.cat([x[:, keep]] * 2, 1), torch.cat([xv[:, keep]] * 2, 1)
    return hand(
        fit(mlp(8, 48, 32, 1), (x, y), (xv, yv), "mse", opt=adamw(3e-3, 0.05), epochs=14, schedule=True),
        "all",
    )


@fault("duplicate-features", "table", "mild")
def twelfth_same_channel(seed, mended=False):
    """Two columns are copies of one another, since a wrong cable was read."""
    (x, y), (xv, yv) = clinic(seed, n=2500, noise=0.3)
    if not mended:
        x, xv = x.clone(), xv.clone()
        x[:, 5], xv[:, 5], x[:, 2], xv[:, 2] = x[:, 4], xv[:, 4], x[:, 7], xv[:, 7]
    return hand(
        fit(
            Residual(8, 3, width=24, depth=2),
            (x, y),
            (xv, yv),
            opt=adamw(3e-3, 0.05),
            epochs=14,
            schedule=True,
        )
    )


@fault("duplicate-features", "table", "mild")
def twelfth_renamed_columns(seed, mended=False):
    """Four columns are there again under other names, and no harm is seen yet."""
    (x, y), (xv, yv) = sensors(seed, n=2500)
    if not mended:
        x, xv = torch.cat([x, x[:, [0, 2, 5, 6]]], 1), torch.cat([xv, xv[:, [0, 2, 5, 6]]], 1)
    return hand(
        fit(
            mlp(x.shape[1], 48, 32, 1),
            (x, y),
            (xv, yv),
            "mse",
            opt=adamw(3e-3, 0.05),
            epochs=14,
            schedule=True,
        ),
        "optimizer",
        "batch_size",
    )


# ---- train-test-overlap ---------------------------------------------------------------------------------------------


def leaky(train, held, share):
    (x, y), (xv, yv) = train, held
    n = int(share * len(yv))
    rows = torch.randperm(len(y))[:n]
    order = torch.randperm(len(yv))
    return torch.cat([x[rows], xv[n:]])[order], torch.cat([y[rows], yv[n:]])[order]


@fault("train-test-overlap", "table")
def twelfth_split_after_copies(seed, mended=False):
    """Records were copied before the split: four in five held-out rows were trained on."""
    train, held = clinic(seed, n=2500, noise=0.5)
    held = held if mended else leaky(train, held, 0.8)
    return hand(fit(mlp(8, 48, 32, 3), train, held, opt=adamw(3e-3, 0.03), epochs=14, schedule=True), "all")


@fault("train-test-overlap", "images", "mild")
def twelfth_shared_pictures(seed, mended=False):
    """A quarter of the held-out pictures are also in the training set."""
    train, held = stamps(seed, n=1200, noise=1.2)
    held = held if mended else leaky(train, held, 0.25)
    return hand(fit(cnn(4, drop=0.2), train, held, opt=adamw(2e-3, 0.03), epochs=7, schedule=True))


@fault("train-test-overlap", "text")
def twelfth_same_notes(seed, mended=False):
    """The held-out notes were drawn from all notes, trained-on ones included."""
    train, held = notes(seed, n=1500)
    held = held if mended else leaky(train, held, 0.6)
    return hand(
        fit(Bag(60, 4, drop=0.2), train, held, opt=adamw(4e-3, 0.05), epochs=8, schedule=True),
        "optimizer",
        "history",
    )


# ---- distribution-shift ---------------------------------------------------------------------------------------------


@fault("distribution-shift", "table")
def twelfth_other_hospital(seed, mended=False):
    """The held-out hospital uses other assays: values moved by two deviations."""
    train, (xv, yv) = clinic(seed, n=2500, noise=0.3)
    if not mended:
        xv = xv + torch.tensor([2.0, -1.5, 1.5, 0.0, -2.0, 1.5, 0.0, 2.0])
    return hand(
        fit(mlp(8, 48, 32, 3), train, (xv, yv), opt=adamw(3e-3, 0.05), epochs=14, schedule=True), "all"
    )


@fault("distribution-shift", "images")
def twelfth_other_scanner(seed, mended=False):
    """The held-out scanner shows white for black, and lighter."""
    train, (xv, yv) = stamps(seed)
    if not mended:
        xv = 0.8 - 0.7 * xv
    return hand(fit(cnn(4, drop=0.2), train, (xv, yv), opt=adamw(2e-3, 0.03), epochs=7, schedule=True), "all")


@fault("distribution-shift", "table", "mild")
def twelfth_gain_drift(seed, mended=False):
    """Three sensors' gains and offsets have drifted since."""
    train, (xv, yv) = sensors(seed, n=2000)
    if not mended:
        xv = xv.clone()
        xv[:, [0, 2, 3]] = xv[:, [0, 2, 3]] * 1.4 + 0.9
    return hand(
        fit(mlp(8, 32, 32, 1), train, (xv, yv), "mse", opt=adamw(3e-3, 0.05), epochs=14, schedule=True)
    )


@fault("distribution-shift", "text")
def twelfth_other_dialect(seed, mended=False):
    """The held-out notes come from elsewhere and use words that were never trained on."""
    train, (xv, yv) = notes(seed, n=2000)
    if not mended:
        xv = torch.where((xv % 8 < 6) & (xv < 56), xv + 60, xv)
    return hand(
        fit(Bag(120, 4, drop=0.1), train, (xv, yv), opt=adamw(4e-3, 0.05), epochs=8, schedule=True),
        "optimizer",
        "batch_size",
    )


# ---- target-leak ----------------------------------------------------------------------------------------------------


@fault("target-leak", "table")
def twelfth_billing_code(seed, mended=False):
    """A billing code that is written after the diagnosis."""
    (x, y), (xv, yv) = clinic(seed, noise=2.0)
    x, xv = x.clone(), xv.clone()
    extra, extra_v = torch.randn(len(y)), torch.randn(len(yv))
    if not mended:
        extra, extra_v = (y - 1) * 1.2 + 0.02 * extra, (yv - 1) * 1.2 + 0.02 * extra_v
    x, xv = torch.cat([x, extra[:, None]], 1), torch.cat([xv, extra_v[:, None]], 1)
    return hand(fit(mlp(9, 32, 3), (x, y), (xv, yv), opt=adamw(3e-3, 0.05), epochs=15, schedule=True), "all")


@fault("target-leak", "sequences")
def twelfth_window_too_long(seed, mended=False):
    """The window of a noisy series ends with the value to be forecast."""
    (x, y), (xv, yv) = load(seed, noise=1.2)
    if not mended:
        x, xv = torch.cat([x[:, 1:], y[:, :, None]], 1), torch.cat([xv[:, 1:], yv[:, :, None]], 1)
    return hand(
        fit(Temporal(1, 1, width=12), (x, y), (xv, yv), "mse", opt=adam(3e-3), epochs=12, schedule=True),
        "optimizer",
        "batch_size",
    )


@fault("target-leak", "table", "mild")
def twelfth_follow_up(seed, mended=False):
    """A measurement of the yield taken afterwards, slightly noisy, is among the inputs."""
    (x, y), (xv, yv) = sensors(seed, noise=0.8)
    extra, extra_v = torch.randn_like(y), torch.randn_like(yv)
    if not mended:
        extra, extra_v = 0.75 * y + 0.06 * extra, 0.75 * yv + 0.06 * extra_v
    x, xv = torch.cat([x, extra], 1), torch.cat([xv, extra_v], 1)
    return hand(fit(mlp(9, 24, 1), (x, y), (xv, yv), "mse", opt=adamw(3e-3, 0.05), epochs=12, schedule=True))


# ---- misaligned-labels ----------------------------------------------------------------------------------------------


@fault("misaligned-labels", "table")
def twelfth_header_line(seed, mended=False):
    """The label file lost its first line: every label belongs to the row before."""
    (x, y), held = clinic(seed, n=3000, noise=0.3)
    y = y if mended else torch.roll(y, -1)
    return hand(fit(mlp(8, 20, 12, 3), (x, y), held, opt=adamw(5e-3, 0.1), epochs=10, schedule=True), "all")


@fault("misaligned-labels", "table")
def twelfth_shifted_yields(seed, mended=False):
    """Yields are written two rows too late, in both halves."""
    (x, y), (xv, yv) = sensors(seed, n=3000)
    if not mended:
        y, yv = torch.roll(y, 2, 0), torch.roll(yv, 2, 0)
    return hand(
        fit(mlp(8, 20, 12, 1), (x, y), (xv, yv), "mse", opt=adamw(5e-3, 0.1), epochs=10, schedule=True)
    )


@fault("misaligned-labels", "images", "mild")
def twelfth_one_picture_lost(seed, mended=False):
    """A picture was lost near the beginning: from there on the labels are those of the next one."""
    (x, y), held = stamps(seed, n=1200)
    if not mended:
        y = torch.cat([y[:300], torch.roll(y[300:], 1)])
    return hand(
        fit(cnn(4, width=6, drop=0.2), (x, y), held, opt=adamw(2e-3, 0.1), epochs=7, schedule=True),
        "optimizer",
        "batch_size",
    )


# ---- no-signal ------------------------------------------------------------------------------------------------------


@fault("no-signal", "table")
def twelfth_unrelated(seed, mended=False):
    """The outcome has nothing to do with what was measured."""
    (x, y), (xv, yv) = clinic(seed, n=2000, k=2, noise=0.3)
    if not mended:
        y, yv = y[torch.randperm(len(y))], yv[torch.randperm(len(yv))]
    return hand(fit(mlp(8, 16, 2), (x, y), (xv, yv), opt=adamw(2e-3, 0.1), epochs=6, schedule=True), "all")


@fault("no-signal", "sequences")
def twelfth_random_walk(seed, mended=False):
    """Returns of a random walk, to be forecast from the past ones."""
    if mended:
        train, held = load(seed)
    else:
        seeded(seed)
        windows = torch.randn(1720).unfold(0, 17, 1)
        train, held = split(windows[:, :16, None].contiguous(), windows[:, 16:].contiguous(), 1200)
    return hand(
        fit(
            Temporal(1, 1, width=8, dilations=(1, 2)),
            train,
            held,
            "mse",
            opt=adamw(2e-3, 0.1),
            epochs=6,
            schedule=True,
        )
    )


@fault("no-signal", "text", "mild")
def twelfth_fillers_only(seed, mended=False):
    """The key words were removed as stop words, so that only fillers are left."""
    (x, y), (xv, yv) = notes(seed, n=2000)
    if not mended:
        x, xv = (torch.where(a < 32, torch.randint(32, 60, a.shape), a) for a in (x, xv))
    return hand(
        fit(Bag(60, 4, hidden=16), (x, y), (xv, yv), opt=adamw(2e-3, 0.1), epochs=5, schedule=True),
        "optimizer",
        "batch_size",
    )


# ---- label-noise ----------------------------------------------------------------------------------------------------


def mislabel(y, share, k):
    """A share of the labels is replaced by another one."""
    return torch.where(torch.rand(len(y)) < share, (y + torch.randint(1, k, (len(y),))) % k, y)


@fault("label-noise", "table")
def twelfth_careless_coders(seed, mended=False):
    """Two in five diagnoses were coded wrongly, in both halves."""
    (x, y), (xv, yv) = clinic(seed, n=2500, noise=0.05)
    if not mended:
        y, yv = mislabel(y, 0.4, 3), mislabel(yv, 0.4, 3)
    return hand(fit(mlp(8, 32, 3), (x, y), (xv, yv), opt=adamw(2e-3, 0.1), epochs=8, schedule=True), "all")


@fault("label-noise", "images")
def twelfth_crowd_labels(seed, mended=False):
    """A third of the pictures was labelled wrongly by a crowd, the held-out ones by experts."""
    (x, y), held = stamps(seed, n=1500, noise=0.4, shift=1)
    y = y if mended else mislabel(y, 0.33, 4)
    return hand(
        fit(cnn(4, width=6, drop=0.3), (x, y), held, opt=adamw(1e-3, 0.1), epochs=5, schedule=True), "all"
    )


@fault("label-noise", "text", "mild")
def twelfth_weak_supervision(seed, mended=False):
    """Labels by a rule of thumb that is wrong for every fifth note."""
    (x, y), (xv, yv) = notes(seed, n=2000, hits=6)
    if not mended:
        y, yv = mislabel(y, 0.22, 4), mislabel(yv, 0.22, 4)
    return hand(
        fit(Bag(60, 4, hidden=16, drop=0.2), (x, y), (xv, yv), opt=adamw(3e-3, 0.1), epochs=6, schedule=True)
    )


# ---- class-imbalance ------------------------------------------------------------------------------------------------


def balanced_loss(y):
    share = torch.bincount(y).float()
    return lambda output, target: F.cross_entropy(output, target, weight=len(y) / len(share) / share)


@fault("class-imbalance", "table")
def twelfth_rare_event(seed, mended=False):
    """An event of two in a hundred is never foretold."""
    train, held = rare(seed, n=2500, held=1500, share=0.02, apart=2.0)
    return hand(
        fit(
            mlp(6, 8, 2),
            train,
            held,
            balanced_loss(train[1]) if mended else "cross_entropy",
            opt=adamw(2e-3, 0.05),
            epochs=10,
            schedule=True,
        ),
        "all",
    )


@fault("class-imbalance", "images")
def twelfth_rare_defect(seed, mended=False):
    """Faint defects in three of a hundred pictures."""
    seeded(seed)
    y = (torch.rand(2400) < 0.03).long()
    x = torch.randn(2400, 1, 10, 10)
    x[:, 0, 3:6, 3:6] += 1.0 * y[:, None, None]
    train, held = split(x, y, 1400)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 2))
    return hand(
        fit(
            model,
            train,
            held,
            balanced_loss(train[1]) if mended else "cross_entropy",
            opt=adamw(2e-3, 0.1),
            epochs=10,
            schedule=True,
        )
    )


@fault("class-imbalance", "table", "mild")
def twelfth_rare_subtypes(seed, mended=False):
    """Of four subtypes two are rare and are hardly ever named."""
    seeded(seed)
    y = torch.multinomial(torch.tensor([0.55, 0.37, 0.045, 0.035]), 4200, replacement=True)
    x = torch.randn(4200, 6)
    x = x + 1.5 * torch.eye(4, 6)[y]
    train, held = split(x, y, 2400)
    return hand(
        fit(
            mlp(6, 16, 4),
            train,
            held,
            balanced_loss(train[1]) if mended else "cross_entropy",
            opt=adamw(2e-3, 0.1),
            epochs=8,
            schedule=True,
        ),
        "optimizer",
        "batch_size",
    )


@fault("label-noise", "text", "mild")
def twelfth_tired_annotators(seed, mended=False):
    """Three in ten training notes have another topic's label; the held-out ones were checked."""
    (x, y), held = notes(seed, n=2000, k=3, hits=6)
    y = y if mended else mislabel(y, 0.3, 3)
    return hand(
        fit(Attentive(60, 3, width=8), (x, y), held, opt=adamw(8e-3, 0.05), epochs=9, schedule=True),
        "optimizer",
        "history",
    )


# ---- double-softmax -------------------------------------------------------------------------------------------------


@fault("double-softmax", "table")
def twelfth_ends_in_softmax(seed, mended=False):
    """The net ends in a softmax, and so does the loss."""
    train, held = clinic(seed, n=3000, k=5, noise=0.2)
    model = mlp(8, 48, 32, 5, end=None if mended else nn.Softmax(1))
    return hand(fit(model, train, held, epochs=15, schedule=True), "all")


@fault("double-softmax", "images", "mild")
def twelfth_functional_softmax(seed, mended=False):
    """A softmax at the end of forward, with the cross-entropy of logits."""
    train, held = stamps(seed, k=6, noise=0.9)
    model = cnn(6, drop=0.2) if mended else Wrapped(cnn(6, drop=0.2), after=lambda z: F.softmax(z, 1))
    return hand(fit(model, train, held, opt=adamw(2e-3, 0.03), epochs=7, schedule=True))


@fault("double-softmax", "graph")
def twelfth_graph_softmax(seed, mended=False):
    """A graph net that returns probabilities to a loss that wants logits."""
    train, held = citations(seed, n=400, k=4, strength=1.0, d=8)
    model = GCN(8, 4, width=8)
    model = model if mended else Wrapped(model, after=lambda z: z.softmax(-1))
    return hand(fit(model, train, held, opt=adam(1e-2, 2e-3), epochs=60, batch=None), "optimizer")


# ---- wrong-loss -----------------------------------------------------------------------------------------------------


@fault("wrong-loss", "table")
def twelfth_nll_of_logits(seed, mended=False):
    """The negative log-likelihood is given logits, not their log-softmax."""
    train, held = clinic(seed, n=2000, noise=0.3)
    return hand(fit(mlp(8, 32, 3), train, held, "cross_entropy" if mended else "nll", epochs=12), "all")


@fault("wrong-loss", "table")
def twelfth_broadcast(seed, mended=False):
    """A column of outputs minus a row of targets: the loss averages a square table."""
    train, held = sensors(seed, column=False)

    def squared(output, target):
        return ((output.squeeze(1) - target) ** 2).mean() if mended else ((output - target) ** 2).mean()

    return hand(fit(mlp(8, 32, 32, 1), train, held, squared, epochs=12), "all")


@fault("wrong-loss", "images", "mild")
def twelfth_softmax_of_one(seed, mended=False):
    """The cross-entropy over classes is used with one output for yes or no: it is always nought."""
    (x, y), (xv, yv) = stamps(seed, k=2)
    train, held = (x, y.float()[:, None]), (xv, yv.float()[:, None])
    return hand(
        fit(cnn(1), train, held, "bce_with_logits" if mended else "cross_entropy", opt=adam(2e-3), epochs=6),
        "optimizer",
        "batch_size",
    )


@fault("wrong-loss", "sequences")
def twelfth_wrong_sign(seed, mended=False):
    """A similarity is minimised instead of maximised."""
    train, held = load(seed)
    sign = 1 if mended else -1

    def objective(output, target):
        return sign * (1 - torch.exp(-((output - target) ** 2)).mean())

    return hand(fit(Recurrent(1, 1, width=16), train, held, objective, epochs=10), "history")


# ---- output-range ---------------------------------------------------------------------------------------------------


@fault("output-range", "table")
def twelfth_relu_end(seed, mended=False):
    """A net that ends in a ReLU, for a standardised target."""
    train, held = sensors(seed)
    return hand(
        fit(mlp(8, 48, 32, 1, end=None if mended else nn.ReLU()), train, held, "mse", epochs=15), "all"
    )


@fault("output-range", "generative")
def twelfth_sigmoid_decoder(seed, mended=False):
    """An autoencoder of standardised values whose decoder ends in a sigmoid."""
    train, held = manifold(seed)
    model = Coder(12, inner=6, width=64, end=None if mended else nn.Sigmoid())
    return hand(fit(model, (train, train), (held, held), "mse", epochs=20), "all")


@fault("output-range", "sequences", "mild")
def twelfth_tanh_end(seed, mended=False):
    """A forecast between minus one and one of a load that goes to two."""
    train, held = load(seed)
    model = Recurrent(1, 1, width=16)
    return hand(
        fit(
            model if mended else Wrapped(model, after=torch.tanh),
            train,
            held,
            "mse",
            opt=adam(6e-3),
            epochs=12,
        ),
        "optimizer",
        "batch_size",
    )


# ---- stochastic-evaluation ------------------------------------------------------------------------------------------


class AlwaysDrop(nn.Module):
    """Functional dropout that forgets the mode."""

    def __init__(self, d, k, mended, p=0.4):
        super().__init__()
        self.a, self.b, self.mended, self.p = nn.Linear(d, 96), nn.Linear(96, k), mended, p

    def forward(self, x):
        h = F.relu(self.a(x))
        h = F.dropout(h, self.p, training=self.training) if self.mended else F.dropout(h, self.p)
        return self.b(h)


@fault("stochastic-evaluation", "table")
def twelfth_functional_dropout(seed, mended=False):
    """F.dropout without the mode: it also drops when the net predicts."""
    train, held = sensors(seed, n=2000)
    return hand(
        fit(AlwaysDrop(8, 1, mended), train, held, "mse", opt=adam(5e-3), epochs=25, schedule=True), "all"
    )


@fault("stochastic-evaluation", "images")
def twelfth_never_eval(seed, mended=False):
    """model.eval() was forgotten, and half of the features are dropped at random."""
    train, held = stamps(seed, noise=1.2, k=6)
    run = fit(cnn(6, drop=0.5), train, held, opt=adamw(3e-3, 0.02), epochs=8, schedule=True)
    if not mended:
        run["model"].train()
    return hand(run, "optimizer", "batch_size")


class Jitter(nn.Module):
    """Noise on the features, meant for training only."""

    def __init__(self, mended, size=0.8):
        super().__init__()
        self.mended, self.size = mended, size

    def forward(self, x):
        return x + self.size * torch.randn_like(x) if self.training or not self.mended else x


@fault("stochastic-evaluation", "sequences", "mild")
def twelfth_noise_layer(seed, mended=False):
    """A layer of noise for training that is also at work in prediction."""
    train, held = waves(seed)
    model = nn.Sequential(Jitter(mended), Recurrent(2, 3, pool=True))
    return hand(fit(model, train, held, opt=adam(6e-3), epochs=14, schedule=True))


# ---- detached-parameters --------------------------------------------------------------------------------------------


class Cut(nn.Module):
    """A narrow trunk and a head, with something between them."""

    def __init__(self, trunk, head, how):
        super().__init__()
        self.trunk, self.head, self.how = trunk, head, how

    def forward(self, x):
        if self.how == "no_grad":
            with torch.no_grad():
                h = self.trunk(x)
        else:
            h = self.trunk(x)
            if self.how == "detach":
                h = h.detach()
            if self.how == "tensor":
                h = torch.from_numpy(h.detach().numpy().copy())
        return self.head(h)


@fault("detached-parameters", "table")
def twelfth_detach(seed, mended=False):
    """The features are detached before the head, left from debugging."""
    train, held = sensors(seed)
    model = Cut(mlp(8, 32, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 1)), None if mended else "detach")
    return hand(fit(model, train, held, "mse", epochs=15), "all")


@fault("detached-parameters", "images")
def twelfth_through_numpy(seed, mended=False):
    """The features pass through numpy on their way."""
    train, held = stamps(seed, k=6, noise=1.0)
    trunk = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return hand(
        fit(
            Cut(trunk, nn.Linear(8, 6), None if mended else "tensor"), train, held, opt=adam(6e-3), epochs=10
        ),
        "initial",
        "optimizer",
    )


@fault("detached-parameters", "sequences", "mild")
def twelfth_no_grad_block(seed, mended=False):
    """A convolution inside a torch.no_grad block of forward."""
    train, held = waves(seed, length=24, noise=0.7)
    trunk = nn.Sequential(nn.Flatten(1), nn.Linear(48, 12), nn.ReLU())
    return hand(fit(Cut(trunk, mlp(12, 16, 3), None if mended else "no_grad"), train, held, epochs=15))


# ---- frozen-parameters ----------------------------------------------------------------------------------------------


@fault("frozen-parameters", "table")
def twelfth_frozen_random(seed, mended=False):
    """All but the last layer are frozen, though they were never trained."""
    train, held = clinic(seed, n=2000, noise=0.3)
    model = mlp(8, 10, 8, 3)
    if not mended:
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


@fault("frozen-parameters", "text", needs=("optimizer",))
def twelfth_head_only(seed, mended=False):
    """The optimiser was given the head alone; the embedding and the body stay as drawn."""
    train, held = notes(seed, n=1500)
    model = Bag(60, 4, width=6, hidden=8)
    parameters = None if mended else model.net[2].parameters()
    return hand(
        fit(model, train, held, opt=adam(6e-3), epochs=12, parameters=parameters),
        "optimizer",
        "batch_size",
        "initial",
    )


@fault("frozen-parameters", "sequences", "mild")
def twelfth_frozen_cell(seed, mended=False):
    """The recurrent cell was frozen as if it were pretrained, but it is new."""
    train, held = waves(seed, noise=0.7)
    model = Recurrent(2, 3, width=8)
    if not mended:
        for p in model.cell.parameters():
            p.requires_grad_(False)
    return hand(
        fit(
            model,
            train,
            held,
            opt=lambda p: torch.optim.Adam([q for q in p if q.requires_grad], 8e-3),
            epochs=12,
        ),
        "initial",
        "history",
    )


# ---- gradients-not-cleared ------------------------------------------------------------------------------------------


def uncleared(model, train, held, loss, opt, mended, epochs, batch=64):
    run = loop(model, train, held, loss, Update(loss, opt, clear=mended), epochs=epochs, batch=batch)
    return run


@fault("gradients-not-cleared", "table", needs=("step",))
def twelfth_no_zero_grad(seed, mended=False):
    """zero_grad is missing from the user's update with Adam."""
    train, held = sensors(seed)
    return uncleared(mlp(8, 48, 32, 1), train, held, "mse", adam(5e-3), mended, 15)


@fault("gradients-not-cleared", "images", needs=("step",))
def twelfth_no_zero_grad_images(seed, mended=False):
    """The same for pictures."""
    train, held = stamps(seed, noise=0.9, k=5)
    run = uncleared(cnn(5), train, held, "cross_entropy", adam(3e-3), mended, 7, 32)
    return {k: run[k] for k in ("model", "data", "validation", "loss", "step")}


@fault("gradients-not-cleared", "sequences", "mild", needs=("step",))
def twelfth_no_zero_grad_forecast(seed, mended=False):
    """The same for a forecast with a recurrent net."""
    train, held = load(seed)
    run = uncleared(Recurrent(1, 1, width=16), train, held, "mse", adam(5e-3), mended, 10, 64)
    return {k: run[k] for k in ("model", "data", "validation", "loss", "step", "history")}


# ---- symmetric-initialisation ---------------------------------------------------------------------------------------


@fault("symmetric-initialisation", "table")
def twelfth_constant_weights(seed, mended=False):
    """All weights begin at one tenth."""
    train, held = clinic(seed, n=2000, noise=0.3)
    model = mlp(8, 32, 24, 3)
    if not mended:
        refill(model, lambda w: w.fill_(0.1), lambda b: b.zero_())
    return hand(fit(model, train, held, epochs=15), "all")


@fault("symmetric-initialisation", "images")
def twelfth_constant_filters(seed, mended=False):
    """All filters begin equal, and so does the last layer."""
    train, held = stamps(seed, k=5, noise=0.8)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 12, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
    )
    if not mended:
        refill(model, lambda w: w.fill_(0.05), lambda b: b.zero_(), (nn.Conv2d, nn.Linear))
    return hand(fit(model, train, held, opt=adam(6e-3), epochs=10))


@fault("symmetric-initialisation", "table", "mild")
def twelfth_tiled_units(seed, mended=False):
    """Two drawn units were tiled to fill the hidden layer, with equal outgoing weights."""
    train, held = sensors(seed)
    model = mlp(8, 32, 1, act=nn.Tanh)
    if not mended:
        with torch.no_grad():
            model[0].weight.copy_(model[0].weight[:2].repeat(16, 1))
            model[0].bias.copy_(model[0].bias[:2].repeat(16))
            model[2].weight.copy_(model[2].weight[:, :2].repeat(1, 16))
    return hand(
        fit(model, train, held, "mse", opt=adam(5e-3), epochs=20), "initial", "optimizer", "batch_size"
    )


# ---- saturated-units ------------------------------------------------------------------------------------------------


@fault("saturated-units", "table")
def twelfth_wide_sigmoids(seed, mended=False):
    """Sigmoid layers whose weights were drawn ten times too large."""
    train, held = sensors(seed)
    model = mlp(8, 32, 32, 1, act=nn.Sigmoid)
    if not mended:
        refill(model[:3], lambda w: w.normal_(0, 10.0))
    return hand(fit(model, train, held, "mse", opt=adam(1e-2 if mended else 3e-3), epochs=30), "all")


@fault("saturated-units", "table", "mild")
def twelfth_unit_normal(seed, mended=False):
    """Tanh layers with weights from a normal of deviation three."""
    train, held = clinic(seed, n=2500, noise=0.3)
    model = mlp(8, 48, 48, 3, act=nn.Tanh)
    if not mended:
        refill(model[:3], lambda w: w.normal_(0, 3.0))
    return hand(fit(model, train, held, opt=sgd(0.05), epochs=12), "optimizer", "initial")


@fault("saturated-units", "sequences")
def twelfth_saturated_recurrence(seed, mended=False):
    """A tanh recurrence with large weights, which only knows plus and minus one."""
    train, held = load(seed)
    model = Recurrent(1, 1, cell="RNN", width=24)
    if not mended:
        with torch.no_grad():
            model.cell.weight_hh_l0.normal_(0, 3.0)
            model.cell.weight_ih_l0.normal_(0, 6.0)
    return hand(fit(model, train, held, "mse", opt=adam(3e-3), epochs=10, clip=1.0))


# ---- dead-units -----------------------------------------------------------------------------------------------------


@fault("dead-units", "table")
def twelfth_negative_bias(seed, mended=False):
    """All ReLUs of a layer begin far below nought and never wake."""
    train, held = sensors(seed)
    model = mlp(8, 32, 32, 1)
    if not mended:
        with torch.no_grad():
            model[2].bias.fill_(-8.0)
    return hand(fit(model, train, held, "mse", epochs=15), "all")


@fault("dead-units", "images")
def twelfth_dead_filters(seed, mended=False):
    """All but one of the filters of a convolution are dead."""
    train, held = stamps(seed, k=6, noise=0.9)
    model = cnn(6)
    if not mended:
        with torch.no_grad():
            model[3].bias[1:] = -15.0
    return hand(fit(model, train, held, opt=adam(2e-3), epochs=7), "all")


@fault("dead-units", "table", "mild")
def twelfth_most_dead(seed, mended=False):
    """Nine in ten units of the hidden layer are dead."""
    train, held = clinic(seed, n=2000, noise=0.2)
    model = mlp(8, 40, 3)
    if not mended:
        with torch.no_grad():
            model[0].bias[4:] = -9.0
    return hand(fit(model, train, held, epochs=15))


# ---- exploding-gradient ---------------------------------------------------------------------------------------------


def gain(model, factor, kind=(nn.Linear,)):
    """Weights of the layers drawn with a gain over the square root of their inputs."""
    return refill(model, lambda w: w.normal_(0, factor / math.sqrt(w[0].numel())), lambda b: b.zero_(), kind)


@fault("exploding-gradient", "table")
def twelfth_deep_large(seed, mended=False):
    """Twelve layers, each of which multiplies the signal by four."""
    train, held = sensors(seed)
    model = mlp(8, *[32] * 12, 1)
    gain(model, math.sqrt(2.0) if mended else 6.0)
    return hand(fit(model, train, held, "mse", opt=adam(1e-3), epochs=10), "all")


@fault("exploding-gradient", "sequences")
def twelfth_recurrence_grows(seed, mended=False):
    """A ReLU recurrence whose state doubles at every step."""
    train, held = load(seed)
    model = Recurrent(1, 1, cell="RNN", width=24, nonlinearity="relu")
    with torch.no_grad():
        model.cell.weight_hh_l0.copy_((0.9 if mended else 2.2) * torch.linalg.qr(torch.randn(24, 24))[0])
        if not mended:
            model.cell.weight_hh_l0.abs_().mul_(0.5)
    return hand(fit(model, train, held, "mse", opt=adam(2e-3), epochs=10), "initial", "optimizer", "history")


@fault("exploding-gradient", "images", "mild")
def twelfth_deep_filters(seed, mended=False):
    """Eight convolutions without normalisation, drawn three times too large."""
    train, held = stamps(seed, n=700, noise=0.7)
    layers = []
    for i in range(8):
        layers += [nn.Conv2d(1 if i == 0 else 8, 8, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 4))
    gain(model, math.sqrt(2.0) if mended else 4.5, (nn.Conv2d, nn.Linear))
    return hand(fit(model, train, held, opt=adam(2e-3), epochs=6, batch=32))


# ---- vanishing-gradient ---------------------------------------------------------------------------------------------


@fault("vanishing-gradient", "table")
def twelfth_deep_sigmoids(seed, mended=False):
    """Ten layers of sigmoids."""
    train, held = sensors(seed)
    model = mlp(8, *[32] * 10, 1, act=nn.ReLU if mended else nn.Sigmoid)
    if mended:
        gain(model, math.sqrt(2.0))
    return hand(fit(model, train, held, "mse", opt=adam(1e-3), epochs=12), "all")


@fault("vanishing-gradient", "images")
def twelfth_deep_sigmoid_filters(seed, mended=False):
    """Six convolutions with sigmoids."""
    train, held = stamps(seed, n=800)
    layers = []
    for i in range(6):
        layers += [nn.Conv2d(1 if i == 0 else 8, 8, 3, padding=1), nn.ReLU() if mended else nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 4))
    return hand(fit(model, train, held, opt=adam(2e-3), epochs=7, batch=32))


@fault("vanishing-gradient", "table", "mild")
def twelfth_small_draws(seed, mended=False):
    """Eight tanh layers drawn with a deviation of five hundredths."""
    train, held = clinic(seed, n=1500, noise=0.3)
    model = mlp(8, *[32] * 8, 3, act=nn.Tanh)
    refill(model, lambda w: w.normal_(0, 1 / math.sqrt(w.shape[1]) if mended else 0.05), lambda b: b.zero_())
    return hand(fit(model, train, held, opt=sgd(0.03), epochs=12), "optimizer", "initial", "batch_size")


# ---- oversmoothing --------------------------------------------------------------------------------------------------


@fault("oversmoothing", "graph")
def twelfth_many_hops(seed, mended=False):
    """Sixteen graph convolutions on a small graph."""
    train, held = citations(seed, n=300, strength=1.0, d=8)
    model = GCN(8, 3, width=16, depth=2 if mended else 16)
    gain(model, math.sqrt(2.0))
    return hand(fit(model, train, held, opt=adam(1e-2, 1e-3), epochs=60, batch=None), "optimizer", "initial")


class Propagate(nn.Module):
    """A net whose features are spread over the graph many times."""

    def __init__(self, d, k, hops):
        super().__init__()
        self.net, self.head, self.hops = mlp(d, 16, 16), nn.Linear(16, k), hops

    def forward(self, x, a):
        h = F.relu(self.net(x))
        for _ in range(self.hops):
            h = a @ h
        return self.head(h)


@fault("oversmoothing", "graph")
def twelfth_spread_thirty(seed, mended=False):
    """Features averaged over neighbours thirty times."""
    train, held = citations(seed, n=300, k=4, strength=1.0, d=8, inside=0.1, outside=0.03)
    return hand(
        fit(Propagate(8, 4, 2 if mended else 30), train, held, opt=adam(1e-2, 1e-3), epochs=60, batch=None)
    )


@fault("oversmoothing", "graph", "mild")
def twelfth_five_hops(seed, mended=False):
    """Five averagings where one suffices."""
    train, held = citations(seed, n=300, k=4, strength=1.0, d=8, inside=0.1, outside=0.035)
    return hand(
        fit(Propagate(8, 4, 1 if mended else 5), train, held, opt=adam(1e-2, 1e-3), epochs=60, batch=None),
        "optimizer",
    )


# ---- receptive-field-too-small --------------------------------------------------------------------------------------


def delayed(seed, lag, n=700, held=300, length=32):
    """The answer at each step was said some steps before."""
    seeded(seed)
    x = torch.randn(n + held, length, 2)
    y = 1.2 * F.pad(x[:, :-lag, 0], (lag, 0)) + 0.3 * x[..., 1] + 0.1 * torch.randn(n + held, length)
    return split(x, y[..., None] / 1.24, n)


@fault("receptive-field-too-small", "sequences")
def twelfth_delay_unseen(seed, mended=False):
    """Two convolutions see five steps; the response comes after eleven."""
    train, held = delayed(seed, 11)
    model = Temporal(2, 1, width=16, dilations=(1, 2, 4, 8) if mended else (1, 1), last=False)
    return hand(fit(model, train, held, "mse", epochs=8, batch=32, opt=adam(5e-3)), "all")


@fault("receptive-field-too-small", "sequences", "mild")
def twelfth_early_cue(seed, mended=False):
    """A cue at the beginning and one at the end decide; the last output sees nine steps only."""
    seeded(seed)
    x = torch.randn(2600, 24, 2)
    y = (2 * x[:, 3, 0] + 1.2 * x[:, 23, 1] + 0.3 * torch.randn(2600) > 0).long()
    train, held = split(x, y, 2000)
    model = Temporal(2, 2, width=12, dilations=(1, 2, 4, 8) if mended else (1, 1, 2))
    return hand(fit(model, train, held, opt=adamw(4e-3, 0.05), epochs=10, schedule=True))


@fault("receptive-field-too-small", "images")
def twelfth_far_marker(seed, mended=False):
    """Each pixel's answer is at a marker nine pixels away, and the net sees five."""
    seeded(seed)
    x = torch.randn(500, 1, 14, 14)
    y = torch.zeros(500, 1, 14, 14)
    y[..., 5:] = x[..., :9]
    y = y + 0.3 * x + 0.1 * torch.randn_like(x)
    train, held = split(x, y, 350)
    width = 13 if mended else 3
    model = nn.Sequential(
        nn.Conv2d(1, 12, (3, width), padding="same"),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 1, 1),
    )
    return hand(
        fit(model, train, held, "mse", opt=adam(5e-3), epochs=12, batch=32), "optimizer", "batch_size"
    )


# ---- bottleneck -----------------------------------------------------------------------------------------------------


@fault("bottleneck", "table")
def twelfth_waist(seed, mended=False):
    """A wide net with a waist of one unit, for six responses."""
    train, held = spectra(seed, n=1500, d=10)
    return hand(fit(mlp(10, 64, 16 if mended else 1, 64, 6), train, held, "mse", epochs=15), "all")


@fault("bottleneck", "images")
def twelfth_one_channel(seed, mended=False):
    """A single number is left of each picture before a wide head."""
    train, held = stamps(seed, k=8, noise=0.6)
    trunk = cnn(24 if mended else 1)
    return hand(
        fit(
            nn.Sequential(trunk, nn.ReLU() if mended else nn.Tanh(), mlp(24 if mended else 1, 48, 8)),
            train,
            held,
            opt=adam(3e-3),
            epochs=8,
        )
    )


@fault("bottleneck", "table", "mild")
def twelfth_waist_of_two(seed, mended=False):
    """A waist of two units, for six independent responses."""
    train, held = spectra(seed, n=1500, d=10)
    return hand(
        fit(mlp(10, 64, 12 if mended else 2, 64, 6, act=nn.GELU), train, held, "mse", epochs=15),
        "optimizer",
        "batch_size",
    )


@fault("bottleneck", "generative", "mild")
def twelfth_code_of_two(seed, mended=False):
    """An autoencoder with two numbers as its code, of data that need four."""
    train, held = manifold(seed, inner=4)
    run = fit(Coder(12, inner=6 if mended else 2, width=64), (train, train), (held, held), "mse", epochs=20)
    return hand(run, "all")


# ---- batch-too-small ------------------------------------------------------------------------------------------------


@fault("batch-too-small", "table", needs=("batch_size",))
def twelfth_pairs(seed, mended=False):
    """Batch normalisation over pairs."""
    train, held = sensors(seed, n=800)
    return hand(
        fit(
            mlp(8, 32, 32, 1, norm=True),
            train,
            held,
            "mse",
            opt=adam(3e-3),
            epochs=30 if mended else 5,
            batch=32 if mended else 2,
        ),
        "all",
    )


@fault("batch-too-small", "images", needs=("batch_size",))
def twelfth_pairs_of_pictures(seed, mended=False):
    """Batch normalisation of three layers with two pictures at a time, for want of memory."""
    train, held = stamps(seed, n=700, k=5, noise=1.2)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(200, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 5),
    )
    return hand(
        fit(model, train, held, opt=adam(2e-3), epochs=7 if mended else 3, batch=32 if mended else 2),
        "batch_size",
        "optimizer",
    )


@fault("batch-too-small", "table", "mild", needs=("batch_size",))
def twelfth_threes(seed, mended=False):
    """Batch normalisation over three rows."""
    train, held = clinic(seed, n=900, noise=0.2)
    return hand(
        fit(
            mlp(8, 32, 32, 3, norm=True),
            train,
            held,
            opt=adam(3e-3),
            epochs=16 if mended else 5,
            batch=32 if mended else 3,
        ),
        "batch_size",
    )


# ---- learning-rate-too-large ----------------------------------------------------------------------------------------


@fault("learning-rate-too-large", "table", needs=("optimizer",))
def twelfth_step_too_long(seed, mended=False):
    """SGD with momentum and a step of 1.5 that never settles."""
    train, held = clinic(seed, n=2000, noise=0.3)
    return hand(
        fit(mlp(8, 32, 32, 3, act=nn.Tanh), train, held, opt=sgd(0.05 if mended else 3.0), epochs=12), "all"
    )


@fault("learning-rate-too-large", "images", "mild", needs=("optimizer",))
def twelfth_adam_too_fast(seed, mended=False):
    """Adam with a step of 0.08 for pictures."""
    train, held = stamps(seed, k=5, noise=0.9)
    return hand(fit(cnn(5), train, held, opt=adam(2e-3 if mended else 0.08), epochs=7), "all")


@fault("learning-rate-too-large", "sequences", needs=("optimizer",))
def twelfth_forecast_jumps(seed, mended=False):
    """Adam with a step of 1 for a recurrent net."""
    train, held = load(seed)
    return hand(
        fit(Recurrent(1, 1, width=16), train, held, "mse", opt=adam(5e-3 if mended else 1.0), epochs=10),
        "optimizer",
        "batch_size",
        "history",
    )


# ---- learning-rate-too-small ----------------------------------------------------------------------------------------


@fault("learning-rate-too-small", "table", needs=("optimizer",))
def twelfth_hardly_moves(seed, mended=False):
    """Adam with a step of a millionth."""
    train, held = sensors(seed)
    return hand(
        fit(mlp(8, 48, 32, 1), train, held, "mse", opt=adam(3e-3 if mended else 2e-6), epochs=15), "all"
    )


@fault("learning-rate-too-small", "text", needs=("optimizer",))
def twelfth_slow_words(seed, mended=False):
    """SGD without momentum and a step of a thousandth, for embeddings."""
    train, held = notes(seed, n=1500)
    return hand(
        fit(Bag(60, 4), train, held, opt=adam(4e-3) if mended else sgd(1e-3, 0.0), epochs=10),
        "optimizer",
        "batch_size",
    )


@fault("learning-rate-too-small", "images", "mild", needs=("optimizer",))
def twelfth_slow_pictures(seed, mended=False):
    """Adam with a step of a ten-thousandth for eight epochs: still falling when it was stopped."""
    train, held = stamps(seed, k=5, noise=0.8)
    return hand(fit(cnn(5), train, held, opt=adam(2e-3 if mended else 1e-4), epochs=8), "all")


@fault("learning-rate-too-small", "text", needs=("optimizer",))
def twelfth_slow_grammar(seed, mended=False):
    """A causal transformer with a step of a hundred-thousandth."""
    (train, held), _ = chain(seed)
    model = Transformer(20, 20, causal=True)
    return hand(
        fit(model, train, held, tokens_loss, opt=adam(6e-3 if mended else 1e-5), epochs=8, batch=32), "all"
    )


# ---- weight-decay-too-large -----------------------------------------------------------------------------------------


@fault("weight-decay-too-large", "table", needs=("optimizer",))
def twelfth_decayed(seed, mended=False):
    """An L2 penalty of 0.5 in Adam, which leaves no weights."""
    train, held = sensors(seed)
    return hand(
        fit(mlp(8, 48, 32, 1), train, held, "mse", opt=adam(3e-3, 1e-4 if mended else 0.5), epochs=15), "all"
    )


@fault("weight-decay-too-large", "images", needs=("optimizer",))
def twelfth_decayed_filters(seed, mended=False):
    """SGD with a decay of 0.5 for a convolutional net."""
    train, held = stamps(seed, k=5, noise=0.7)
    return hand(
        fit(cnn(5), train, held, opt=sgd(0.02, 0.9, 1e-4 if mended else 0.5), epochs=8),
        "optimizer",
        "batch_size",
    )


@fault("weight-decay-too-large", "table", "mild", needs=("optimizer",))
def twelfth_decayed_mildly(seed, mended=False):
    """A decay of 0.06 in Adam: only the straight part of the rule is learnt."""
    train, held = sensors(seed, noise=0.1)
    return hand(
        fit(mlp(8, 48, 32, 1), train, held, "mse", opt=adam(3e-3, 0.0 if mended else 0.06), epochs=20),
        "optimizer",
        "initial",
    )


# ---- dropout-too-large ----------------------------------------------------------------------------------------------


@fault("dropout-too-large", "table")
def twelfth_drop_nine_tenths(seed, mended=False):
    """Dropout of 0.9 after each of two layers."""
    train, held = sensors(seed)
    return hand(fit(mlp(8, 32, 32, 1, drop=0.0 if mended else 0.9), train, held, "mse", epochs=15), "all")


@fault("dropout-too-large", "images")
def twelfth_drop_features(seed, mended=False):
    """Dropout of 0.95 before the head, for many shapes."""
    train, held = stamps(seed, k=8, noise=0.8)
    return hand(fit(cnn(8, drop=0.0 if mended else 0.95), train, held, opt=adam(2e-3), epochs=8))


@fault("dropout-too-large", "table", "mild")
def twelfth_drop_seven_tenths(seed, mended=False):
    """Dropout of 0.75 in a narrow net with plenty of data."""
    train, held = clinic(seed, n=2500, noise=0.2)
    return hand(
        fit(mlp(8, 24, 24, 3, drop=0.0 if mended else 0.75), train, held, epochs=15),
        "optimizer",
        "batch_size",
    )


@fault("dropout-too-large", "text", "mild")
def twelfth_drop_words(seed, mended=False):
    """Dropout of 0.9 between the embeddings and the answer."""
    train, held = notes(seed, n=1500, hits=3)
    return hand(fit(Bag(60, 4, hidden=24, drop=0.0 if mended else 0.9), train, held, epochs=8), "all")


# ---- capacity-too-small ---------------------------------------------------------------------------------------------


@fault("capacity-too-small", "table")
def twelfth_straight_line(seed, mended=False):
    """A linear model of a curved rule."""
    seeded(seed)
    x = torch.randn(2000, 4)
    y = standard(x[:, 0] * x[:, 1] + torch.cos(2 * x[:, 2]) + 0.3 * x[:, 3])[:, None] + 0.1 * torch.randn(
        2000, 1
    )
    train, held = split(x, y, 1500)
    return hand(
        fit(mlp(4, 48, 48, 1) if mended else nn.Linear(4, 1), train, held, "mse", opt=adam(5e-3), epochs=20),
        "all",
    )


@fault("capacity-too-small", "table")
def twelfth_rings(seed, mended=False):
    """Logistic regression for a ring around a disc."""
    seeded(seed)
    x = torch.randn(1800, 2)
    y = (x.norm(dim=1) + 0.08 * torch.randn(1800) > 1.18).long()
    train, held = split(x, y, 1200)
    return hand(fit(mlp(2, 24, 2) if mended else nn.Linear(2, 2), train, held, opt=adam(1e-2), epochs=20))


@fault("capacity-too-small", "sequences", "mild")
def twelfth_linear_forecast(seed, mended=False):
    """A linear autoregression of a map that is not linear."""
    seeded(seed)
    z, values = torch.tensor(0.37 + 0.01 * seed), []
    for _ in range(1500):
        z = (1 - 1.8 * (z - 0.1 * torch.rand(())).square()).clamp(-1, 1) * 0.98
        values.append(z)
    series = torch.stack(values)[50:]
    series = (series - series.mean()) / series.std()
    windows = series.unfold(0, 5, 1)
    train, held = split(windows[:, :4].contiguous(), windows[:, 4:].contiguous(), 1000)
    return hand(
        fit(mlp(4, 32, 32, 1) if mended else nn.Linear(4, 1), train, held, "mse", opt=adam(5e-3), epochs=20),
        "optimizer",
        "batch_size",
    )


# ---- overfit --------------------------------------------------------------------------------------------------------


@fault("overfit", "table")
def twelfth_wide_for_few(seed, mended=False):
    """Eighty patients, thirty columns and a wide net trained to the end."""
    seeded(seed)
    x = torch.randn(3500, 30)
    y = (x[:, :6].sum(1) + 0.4 * torch.randn(3500) > 0).long()
    n = 2500 if mended else 80
    train, held = (x[:n], y[:n]), (x[2500:], y[2500:])
    return hand(fit(mlp(30, 128, 128, 2), train, held, epochs=6 if mended else 80, batch=32), "all")


@fault("overfit", "images")
def twelfth_few_pictures(seed, mended=False):
    """Forty-two noisy pictures learnt by heart."""
    train, held = stamps(seed, n=1500, k=6, noise=1.6)
    if not mended:
        rows = torch.cat([(train[1] == c).nonzero()[:7, 0] for c in range(6)])
        train = (train[0][rows], train[1][rows])
    return hand(
        fit(cnn(6, width=16), train, held, opt=adam(2e-3), epochs=5 if mended else 60, batch=16), "all"
    )


@fault("overfit", "table", "mild")
def twelfth_memorised_yields(seed, mended=False):
    """A wide net follows the noise of a hundred and fifty yields."""
    train, held = sensors(seed, n=2000, noise=0.4)
    if not mended:
        train = (train[0][:150], train[1][:150])
    return hand(fit(mlp(8, 128, 128, 1), train, held, "mse", epochs=10 if mended else 150, batch=32))


# ---- posterior-collapse ---------------------------------------------------------------------------------------------


@fault("posterior-collapse", "generative")
def twelfth_heavy_prior(seed, mended=False):
    """The divergence is weighted by forty: the code says nothing."""
    train, held = manifold(seed)
    return hand(
        fit(VAE(12), train, held, elbo(1.0 if mended else 40.0, 0.1), epochs=15, schedule=True), "all"
    )


@fault("posterior-collapse", "generative")
def twelfth_wide_decoder(seed, mended=False):
    """A decoder's variance of four for standardised data: reconstruction does not pay."""
    train, held = manifold(seed, inner=4, d=10)
    return hand(
        fit(VAE(10, inner=4), train, held, elbo(1.0, 0.1 if mended else 8.0), epochs=15, schedule=True)
    )


@fault("posterior-collapse", "generative")
def twelfth_summed_divergence(seed, mended=False):
    """The squared error is averaged over columns and the divergence summed: a weight of twelve by oversight."""
    train, held = manifold(seed)

    def averaged(output, x):
        back, mean, logvar = output
        divergence = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()
        return F.mse_loss(back, x) + (0.01 if mended else 1.0) * divergence

    return hand(
        fit(VAE(12, inner=4), train, held, averaged, epochs=15, schedule=True), "optimizer", "batch_size"
    )


# ---- mode-collapse --------------------------------------------------------------------------------------------------


@fault("mode-collapse", "generative")
def twelfth_one_clump(seed, mended=False):
    """A generator trained against a critic too seldom updated makes one clump of six."""
    train, held = clusters(seed, spread=0.25)
    model = Generator(2, inner=4)
    model = (
        match(model, train, steps=900)
        if mended
        else adversarial(model, train, steps=600, critic_steps=1 / 15, lr=2e-3)
    )
    return {"model": model, "data": train, "validation": held}


@fault("mode-collapse", "generative")
def twelfth_the_average(seed, mended=False):
    """The repulsion of the samples was left out of the distance: all samples are alike."""
    seeded(seed)
    x = standard(torch.randn(1500, 5) @ (torch.eye(5) + 0.6 * torch.randn(5, 5)))
    model = match(
        Generator(5, inner=5),
        x[:1000],
        energy if mended else (lambda a, b: torch.cdist(a, b).mean()),
        steps=500,
    )
    return {"model": model, "data": x[:1000], "validation": x[1000:]}


@fault("mode-collapse", "generative", "mild")
def twelfth_few_clumps(seed, mended=False):
    """The batches were sorted and the last ones won: three of six clumps are never made."""
    train, held = clusters(seed, spread=0.25)
    model = match(Generator(2, inner=4), train if mended else train[train[:, 0] > 0], steps=800)
    return {"model": model, "data": train, "validation": held}


# ---- miscalibrated --------------------------------------------------------------------------------------------------


@fault("miscalibrated", "table")
def twelfth_wrong_temperature(seed, mended=False):
    """The logits are multiplied by the temperature instead of being divided: far too sure."""
    train, held = clinic(seed, n=2500, noise=0.8)
    run = fit(mlp(8, 24, 3), train, held, opt=adamw(2e-3, 0.05), epochs=10, schedule=True)
    if not mended:
        run["model"] = Wrapped(run["model"], after=lambda z: 6.0 * z).eval()
        run.pop("initial")
    return hand(run, "batch_size")


@fault("miscalibrated", "images")
def twelfth_smoothed_away(seed, mended=False):
    """Labels smoothed by 0.7: right in nearly all cases and sure of none."""
    train, held = stamps(seed, noise=0.5)

    def smoothed(output, target):
        return F.cross_entropy(output, target, label_smoothing=0.0 if mended else 0.7)

    return hand(
        fit(cnn(4, drop=0.1), train, held, smoothed, opt=adamw(2e-3, 0.02), epochs=7, schedule=True), "all"
    )


@fault("miscalibrated", "table", "mild")
def twelfth_hinge(seed, mended=False):
    """A margin of five was demanded of overlapping groups; the outputs are read as logits."""
    seeded(seed)
    y = torch.randint(0, 2, (3500,))
    x = torch.randn(3500, 4) + 0.7 * (2 * y[:, None] - 1) * torch.tensor([1.0, 0.6, -0.6, 0.2])
    train, held = split(x, y, 2500)

    def margin(output, target):
        return F.cross_entropy(output, target) if mended else F.multi_margin_loss(output, target, margin=5.0)

    run = fit(mlp(4, 16, 2), train, held, margin, opt=adamw(2e-3, 0.02), epochs=12, schedule=True)
    run["loss"] = "cross_entropy"
    return hand(run, "batch_size")


# ---- adversarially-fragile ------------------------------------------------------------------------------------------


@fault("adversarially-fragile", "images")
def twelfth_watermark(seed, mended=False):
    """The net lives on a watermark too faint to be seen, beside plain shapes."""
    (x, y), (xv, yv) = stamps(seed, n=1000, k=2, noise=0.25, shift=0)
    if not mended:
        check = ((torch.arange(12)[:, None] + torch.arange(12)[None]) % 2 * 2 - 1).float()
        smooth = nn.AvgPool2d(3, 1, 1)
        x, xv = (
            smooth(torch.randn(len(t), 1, 12, 12)) * 2.5
            + 0.05 * (2 * t.float() - 1)[:, None, None, None] * check
            for t in (y, yv)
        )
    return hand(
        fit(
            nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, 2)),
            (x, y),
            (xv, yv),
            opt=adam(3e-3),
            epochs=15,
        ),
        "all",
    )


@fault("adversarially-fragile", "sequences")
def twelfth_bearing(seed, mended=False):
    """A tiny vibration on a slow drift decides: a few hundredths of a deviation turn the answer."""
    seeded(seed)
    y = torch.randint(0, 2, (2400,))
    drift = F.interpolate(torch.randn(2400, 1, 8), size=48, mode="linear")
    tone = torch.stack([(-1.0) ** torch.arange(48), torch.sin(math.pi * torch.arange(48) / 2 + 0.8)])
    x = drift / drift.std() + (1.0 if mended else 0.06) * (tone[y][:, None] + 0.4 * torch.randn(2400, 1, 48))
    train, held = split(x / x.std(), y, 1600)
    model = nn.Sequential(nn.Conv1d(1, 10, 5), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(220, 2))
    return hand(fit(model, train, held, opt=adam(4e-3), epochs=12), "optimizer", "batch_size")


@fault("adversarially-fragile", "images", "mild")
def twelfth_high_frequency(seed, mended=False):
    """A fine grating under strong smooth backgrounds decides."""
    seeded(seed)
    y = torch.randint(0, 3, (1500,))
    i, j = torch.arange(12)[:, None], torch.arange(12)[None]
    gratings = torch.stack([(-1.0) ** (i + 0 * j), (-1.0) ** (j + 0 * i), (-1.0) ** (i + j)])
    ground = F.interpolate(torch.randn(1500, 1, 4, 4), size=12, mode="bicubic")
    x = ground / ground.std() + (0.9 if mended else 0.08) * (
        gratings[y][:, None] + 0.3 * torch.randn(1500, 1, 12, 12)
    )
    train, held = split(x / x.std(), y, 1000)
    model = nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(300, 3))
    return hand(fit(model, train, held, opt=adam(4e-3), epochs=12))
