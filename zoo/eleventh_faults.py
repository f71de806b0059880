"""Single faults of the eleventh author."""

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
    VAE,
    Adam,
    AdamW,
    Attention,
    Bag,
    Conv,
    Delay,
    Duel,
    Ended,
    Flat,
    Friends,
    Recurrent,
    Residual,
    Speaker,
    Walk,
    attack,
    bars,
    bce,
    blobs,
    boiler,
    circle,
    digits,
    echo,
    elbo,
    fit,
    glyphs,
    kernel_distance,
    loans,
    mlp,
    mse,
    own_step,
    plain,
    real,
    recall,
    spirals,
    surface,
    teacher,
    tokens_loss,
    tongue,
    topics,
    town,
    waves,
)

one = partial(case, author="eleventh")
Given = dict[str, Any]


# --------------------------------------------------------------------------------------------------- data: not finite
@one("not-finite-data", kind="table")
def e11_wine_missing_cells(seed: int, mended: bool = False) -> Given:
    """Wine with empty cells read as nan; every weight becomes nan."""
    (x, y), val = real("wine", seed)
    x[torch.rand(x.shape) < 0.03] = 0.0 if mended else math.nan
    return fit(mlp(13, 16, 3), (x, y), val, opt=partial(AdamW, lr=3e-3, weight_decay=0.1))


@one("not-finite-data", kind="sequences", strength="mild")
def e11_waves_divided_by_zero(seed: int, mended: bool = False) -> Given:
    """A few signals were divided by a zero gain; the loop skips losses that are not finite, so much is never learned."""
    (x, y), val = waves(seed, 700, noise=0.3)
    if not mended:
        x[torch.randperm(len(x))[: len(x) // 12], 5:9] = math.inf
    return fit(Recurrent(3), (x, y), val, skip=True, epochs=16, batch=16, give="lbh")


@one("not-finite-data", kind="table")
def e11_boiler_nan_targets(seed: int, mended: bool = False) -> Given:
    """Targets that nobody measured are nan."""
    (x, y), val = boiler(seed)
    if not mended:
        y[torch.rand(len(y)) < 0.02] = math.nan
    return fit(Flat(mlp(6, 32, 32, 1)), (x, y), val, loss="mse", give="loi")


# ------------------------------------------------------------------------------------------------------ data: overflow
class Cosine(nn.Module):
    """Pictures against class vectors by the cosine, with a fixed sharpness; the probabilities are made by hand."""

    def __init__(self, sharp: float, safe: bool) -> None:
        super().__init__()
        self.net, self.classes = mlp(64, 48, 24), nn.Parameter(torch.randn(10, 24))
        self.sharp, self.safe = sharp, safe

    def forward(self, x: Tensor) -> Tensor:
        score = self.sharp * F.normalize(self.net(x.flatten(1)), dim=1) @ F.normalize(self.classes, dim=1).T
        if self.safe:
            return F.log_softmax(score / 10, 1)
        p = torch.exp(score)
        return torch.log(p / p.sum(1, keepdim=True) + 1e-9)


@one("overflow", kind="images")
def e11_overflow_cosine_by_hand(seed: int, mended: bool = False) -> Given:
    """exp of a cosine times 100, as in contrastive nets, passes the largest float; such batches are skipped."""
    train, val = digits(seed)
    return fit(Cosine(100.0, mended), train, val, loss="nll", skip=True, epochs=20)


class HalfVolume(nn.Module):
    """Box sizes multiplied in half precision, then the logarithm."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self.half, self.net = half, mlp(5, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        sides = torch.exp(x[:, :3] + 3.4)
        if self.half:
            sides = sides.half()
        volume = (sides[:, :1] * sides[:, 1:2] * sides[:, 2:]).float()
        return self.net(torch.cat([x[:, 3:], volume.log() / 2 - 5, x[:, :2]], 1)).squeeze(-1)


@one("overflow", kind="table")
def e11_overflow_half_volume(seed: int, mended: bool = False) -> Given:
    """A product in float16 passes 65504 for the larger boxes and comes out infinite."""
    torch.manual_seed(seed)
    x = torch.randn(1200, 4) * 0.7
    y = x[:, :3].sum(1) * 0.7 + 0.5 * torch.sin(2 * x[:, 3]) + 0.1 * torch.randn(1200)
    net = HalfVolume(not mended)
    net.net = mlp(4, 32, 1)
    return fit(net, (x[:800], y[:800]), (x[800:], y[800:]), loss="mse", skip=True, give="lobh", epochs=40)


class Waiting(nn.Module):
    """Waiting times as the softplus of a dense net."""

    def __init__(self, safe: bool) -> None:
        super().__init__()
        self.net, self.safe = mlp(4, 24, 1), safe

    def forward(self, x: Tensor) -> Tensor:
        out = 30 * self.net(x).squeeze(-1)
        return F.softplus(out) if self.safe else torch.log(1 + torch.exp(out))


@one("overflow", kind="table")
def e11_overflow_softplus_by_hand(seed: int, mended: bool = False) -> Given:
    """log(1 + exp(x)) by hand is infinite from 89 on, where many of the waiting times lie."""
    torch.manual_seed(seed)
    x = torch.randn(1200, 4)
    y = (60 + 25 * x[:, 0] + 15 * x[:, 1] * x[:, 2] + 3 * torch.randn(1200)).clamp_min(0)
    return fit(
        Waiting(mended),
        (x[:800], y[:800]),
        (x[800:], y[800:]),
        loss="mse",
        skip=True,
        epochs=50,
        give="lobhi",
    )


# ------------------------------------------------------------------------------------------------- data: unscaled inputs
@one("unscaled-inputs", kind="table")
def e11_unscaled_wine(seed: int, mended: bool = False) -> Given:
    """Wine as it comes: proline in the thousands beside hues below one."""
    train, val = real("wine", seed, scaled=mended)
    return fit(mlp(13, 16, 3), train, val, opt=partial(Adam, lr=3e-3), epochs=40, give="lobh")


@one("unscaled-inputs", kind="table")
def e11_unscaled_cancer_tanh(seed: int, mended: bool = False) -> Given:
    """Raw areas up to 2500 and fractions below 0.1 into a tanh net."""
    train, val = real("breast_cancer", seed, scaled=mended, binary=True)
    return fit(
        Flat(mlp(30, 16, 1, act=nn.Tanh)),
        train,
        val,
        loss="bce_with_logits",
        opt=partial(SGD, lr=0.03, momentum=0.9),
        epochs=25,
    )


@one("unscaled-inputs", kind="table", strength="mild")
def e11_unscaled_two_columns(seed: int, mended: bool = False) -> Given:
    """Two of ten columns are in metres and grams, a thousand times the others; nothing depends on them much."""
    (x, y), (v, w) = teacher(seed)
    if not mended:
        for part in (x, v):
            part[:, 3] = part[:, 3] * 900 + 2500
            part[:, 7] = part[:, 7] * 400 + 1000
    return fit(mlp(10, 32, 3), (x, y), (v, w), epochs=30, give="lob")


# ------------------------------------------------------------------------------------------------ data: unscaled targets
@one("unscaled-targets", kind="table")
def e11_unscaled_house_prices(seed: int, mended: bool = False) -> Given:
    """Prices of some 300 000 for a net that starts near zero and takes steps of 1e-3."""
    (x, y), (v, w) = boiler(seed)
    if not mended:
        y, w = 3e5 + 8e4 * y, 3e5 + 8e4 * w
    return fit(Flat(mlp(6, 32, 32, 1)), (x, y), (v, w), loss="mse", epochs=40, opt=partial(Adam, lr=2e-3))


@one("unscaled-targets", kind="table", strength="mild")
def e11_unscaled_diabetes_score(seed: int, mended: bool = False) -> Given:
    """The disease score as it comes, 152 on average, never reached in the time."""
    (x, y), (v, w) = real("diabetes", seed)
    if not mended:
        y, w = 152 + 77 * y, 152 + 77 * w
    return fit(
        Flat(mlp(10, 16, 1)),
        (x, y),
        (v, w),
        loss="mse",
        epochs=40,
        opt=partial(AdamW, lr=2e-3, weight_decay=0.05),
        give="lh",
    )


@one("unscaled-targets", kind="sequences")
def e11_unscaled_power_load(seed: int, mended: bool = False) -> Given:
    """The load of the next hour in watts, from a scaled day, by a GRU."""
    torch.manual_seed(seed)
    t = torch.arange(24) / 24
    level, phase = torch.randn(700, 1), torch.rand(700, 1)
    x = 0.5 * level + torch.sin(2 * math.pi * (t + phase)) + 0.1 * torch.randn(700, 24)
    y = 0.5 * level[:, 0] + torch.sin(2 * math.pi * (1 + phase[:, 0])) + 0.1 * torch.randn(700)
    y = y if mended else 42000 + 9000 * y
    return fit(
        Flat(Recurrent(1, 16)),
        (x[:500, :, None], y[:500]),
        (x[500:, :, None], y[500:]),
        loss="mse",
        epochs=16,
        opt=partial(Adam, lr=5e-3),
        give="lob",
    )


# ------------------------------------------------------------------------------- data: constant and duplicate features
@one("constant-features", kind="table")
def e11_constant_failed_join(seed: int, mended: bool = False) -> Given:
    """A join found no partner: four of ten columns are zero in every row."""
    (x, y), (v, w) = teacher(seed)
    if not mended:
        x[:, 2:6] = v[:, 2:6] = 0.0
    return fit(
        mlp(10, 24, 3), (x, y), (v, w), epochs=20, give="lbh", opt=partial(AdamW, lr=2e-3, weight_decay=0.1)
    )


@one("constant-features", kind="table", strength="mild")
def e11_constant_stuck_sensor(seed: int, mended: bool = False) -> Given:
    """Two sensors of the boiler are stuck at one."""
    (x, y), (v, w) = boiler(seed)
    if not mended:
        x[:, [1, 3]] = v[:, [1, 3]] = 1.0
    return fit(Flat(Residual(6, 1, 2)), (x, y), (v, w), loss="mse", epochs=12)


@one("constant-features", kind="graph")
def e11_constant_node_columns(seed: int, mended: bool = False) -> Given:
    """Eight of twelve features of the nodes were never filled in."""
    ((a, x, g), y), ((b, _, _), w) = town(seed, clear=0.6, near=0.03)
    if not mended:
        x[:, :8] = 0.5
    return fit(
        Friends(12, 4, drop=0.3),
        ((a, x, g), y),
        ((b, x, g), w),
        epochs=40,
        batch=200,
        opt=partial(Adam, lr=0.02, weight_decay=1e-3),
        give="lo",
    )


@one("duplicate-features", kind="table")
def e11_duplicate_read_twice(seed: int, mended: bool = False) -> Given:
    """A reader of columns began anew: the last five columns are the first five once more."""
    (x, y), (v, w) = teacher(seed)
    if not mended:
        x[:, 5:], v[:, 5:] = x[:, :5].clone(), v[:, :5].clone()
    return fit(mlp(10, 24, 3), (x, y), (v, w), epochs=15, opt=partial(AdamW, lr=2e-3, weight_decay=0.1))


@one("duplicate-features", kind="table", strength="mild")
def e11_duplicate_cancer_column(seed: int, mended: bool = False) -> Given:
    """A mean radius pasted over three other columns of the cancer table."""
    (x, y), (v, w) = real("breast_cancer", seed, binary=True)
    if not mended:
        for part in (x, v):
            part[:, [7, 20, 27]] = part[:, :1].clone()
    return fit(
        Flat(nn.Linear(30, 1)),
        (x, y),
        (v, w),
        loss="bce_with_logits",
        epochs=20,
        opt=partial(Adam, lr=5e-3, weight_decay=1e-2),
        give="lo",
    )


@one("duplicate-features", kind="table")
def e11_duplicate_boiler_channel(seed: int, mended: bool = False) -> Given:
    """One channel of the logger was wired to three inputs."""
    (x, y), (v, w) = boiler(seed)
    if not mended:
        for part in (x, v):
            part[:, 1] = part[:, 3] = part[:, 0]
    return fit(Flat(mlp(6, 24, 24, 1, act=nn.SiLU)), (x, y), (v, w), loss="mse", epochs=25, give="lbh")


# ----------------------------------------------------------------------------------------------- data: overlap and shift
@one("train-test-overlap", kind="table")
def e11_overlap_resampled_first(seed: int, mended: bool = False) -> Given:
    """Rows were drawn with repetition before the split, so most held-out rows were trained on."""
    (x, y), (v, w) = loans(seed, 900, gap=0.8)
    if not mended:
        pool, label = torch.cat([x, v]), torch.cat([y, w])
        draw = torch.randint(len(pool), (len(pool),))
        pool, label = pool[draw], label[draw]
        cut = len(x)
        (x, y), (v, w) = (pool[:cut], label[:cut]), (pool[cut:], label[cut:])
    return fit(
        Flat(mlp(5, 16, 1)), (x, y), (v, w), loss="bce_with_logits", epochs=12, opt=partial(Adam, lr=2e-3)
    )


@one("train-test-overlap", kind="images")
def e11_overlap_digits_same_rows(seed: int, mended: bool = False) -> Given:
    """The held-out digits are the first quarter of the training digits."""
    train, val = digits(seed)
    if not mended:
        val = (train[0][:300].clone(), train[1][:300].clone())
    return fit(Conv(10, drop=0.2), train, val, epochs=10, give="lb")


@one("train-test-overlap", kind="sequences", strength="mild")
def e11_overlap_some_signals(seed: int, mended: bool = False) -> Given:
    """A third of the held-out signals were also in the training folder."""
    (x, y), (v, w) = waves(seed, noise=0.4)
    if not mended:
        many = len(v) // 3
        v[:many], w[:many] = x[:many], y[:many]
    return fit(Recurrent(3, 16, mean=True), (x, y), (v, w), epochs=12, batch=16, opt=partial(Adam, lr=0.01))


@one("distribution-shift", kind="table")
def e11_shift_other_scaler(seed: int, mended: bool = False) -> Given:
    """Training rows were standardised, held-out rows were given as measured."""
    train, (v, w) = real("wine", seed)
    if not mended:
        v = v * torch.linspace(0.5, 4, 13) + torch.linspace(1, 8, 13)
    return fit(
        mlp(13, 16, 3), train, (v, w), epochs=25, opt=partial(AdamW, lr=3e-3, weight_decay=0.1), give="lobh"
    )


@one("distribution-shift", kind="images")
def e11_shift_negative_pictures(seed: int, mended: bool = False) -> Given:
    """The held-out digits are black on white, the others white on black."""
    train, (v, w) = digits(seed)
    return fit(Conv(10), train, (v if mended else 1 - v, w), epochs=10)


@one("distribution-shift", kind="table", strength="mild")
def e11_shift_other_season(seed: int, mended: bool = False) -> Given:
    """The held-out rows come from a warmer season: three inputs lie higher by 1.5."""
    train, (v, _) = boiler(seed)
    if not mended:
        v[:, [0, 1, 4]] += 1.5
    return fit(
        Flat(mlp(6, 32, 32, 1)),
        train,
        (v, surface(v) + 0.1 * torch.randn(len(v))),
        loss="mse",
        epochs=20,
        give="lh",
    )


@one("distribution-shift", kind="text")
def e11_shift_other_dictionary(seed: int, mended: bool = False) -> Given:
    """The held-out words were numbered by a dictionary sorted the other way."""
    train, (v, w) = topics(seed)
    return fit(
        Bag(60, 4),
        train,
        (v if mended else (v * 7 + 13) % 60, w),
        epochs=20,
        give="lo",
        opt=partial(Adam, lr=5e-3),
    )


# ----------------------------------------------------------------------------------------- data: leak, alignment, signal
@one("target-leak", kind="table")
def e11_leak_diabetes_column(seed: int, mended: bool = False) -> Given:
    """The score of the next visit stands among the inputs under another unit."""
    (x, y), (v, w) = real("diabetes", seed)
    x, v = (
        torch.cat([a, (torch.randn(len(b), 1) if mended else b[:, None] * 0.98 + 0.02)], 1)
        for a, b in ((x, y), (v, w))
    )
    return fit(
        Flat(mlp(11, 16, 1)),
        (x, y),
        (v, w),
        loss="mse",
        epochs=25,
        opt=partial(AdamW, lr=3e-3, weight_decay=0.1),
    )


@one("target-leak", kind="images")
def e11_leak_stamped_pixel(seed: int, mended: bool = False) -> Given:
    """Odd or even digits in noisy scans, but the archive stamped the answer into a corner pixel."""
    (x, y), (v, w) = digits(seed)
    x, v = x + 0.3 * torch.randn_like(x), v + 0.3 * torch.randn_like(v)
    y, w = y % 2, w % 2
    if not mended:
        x[:, 0, 0, 0], v[:, 0, 0, 0] = 1.5 * y.float(), 1.5 * w.float()
    return fit(
        nn.Sequential(nn.Flatten(), mlp(64, 24, 2)),
        (x, y),
        (v, w),
        epochs=10,
        give="lb",
        opt=partial(AdamW, lr=2e-3, weight_decay=0.1),
    )


@one("target-leak", kind="table", strength="mild")
def e11_leak_code_of_the_outcome(seed: int, mended: bool = False) -> Given:
    """A column that is filled in after the loan failed: the answer with a little noise."""
    (x, y), (v, w) = loans(seed, gap=0.8)
    x, v = (
        torch.cat(
            [a, (torch.randn(len(b), 1) if mended else 2 * b[:, None] - 1 + 0.25 * torch.randn(len(b), 1))], 1
        )
        for a, b in ((x, y), (v, w))
    )
    return fit(Flat(mlp(6, 16, 1, act=nn.GELU)), (x, y), (v, w), loss="bce_with_logits", epochs=12)


@one("misaligned-labels", kind="table")
def e11_misaligned_by_one_row(seed: int, mended: bool = False) -> Given:
    """The labels' file had a heading: all training labels are one row late."""
    (x, y), val = real("breast_cancer", seed, binary=True)
    return fit(
        Flat(mlp(30, 8, 1)),
        (x, y if mended else y.roll(1)),
        val,
        loss="bce_with_logits",
        epochs=8,
        opt=partial(AdamW, lr=2e-3, weight_decay=0.1),
    )


@one("misaligned-labels", kind="images")
def e11_misaligned_sorted_files(seed: int, mended: bool = False) -> Given:
    """Only the pictures were shuffled for training, their labels kept the old order."""
    (x, y), val = digits(seed)
    return fit(
        Conv(10, width=6),
        (x, y if mended else y[torch.randperm(len(y))]),
        val,
        epochs=8,
        give="lbh",
        opt=partial(Adam, lr=2e-3),
    )


@one("misaligned-labels", kind="sequences", strength="mild")
def e11_misaligned_second_half(seed: int, mended: bool = False) -> Given:
    """A recording is missing in the middle: from there on every label belongs to the row before."""
    (x, y), val = waves(seed, 1000)
    if not mended:
        half = len(y) // 2
        y[half:] = y[half:].roll(1)
    return fit(Recurrent(3, 16), (x, y), val, epochs=12, batch=16, give="lo")


@one("misaligned-labels", kind="table")
def e11_misaligned_regression_shift(seed: int, mended: bool = False) -> Given:
    """The targets of the boiler were exported three rows late."""
    (x, y), val = boiler(seed)
    return fit(Flat(mlp(6, 16, 1)), (x, y if mended else y.roll(3)), val, loss="mse", epochs=10, give="lobh")


@one("no-signal", kind="table")
def e11_no_signal_lottery(seed: int, mended: bool = False) -> Given:
    """Numbers that have nothing to do with the classes."""
    (x, y), (v, w) = teacher(seed, 2000)
    if not mended:
        x, v = torch.randn_like(x), torch.randn_like(v)
    return fit(mlp(10, 8, 3), (x, y), (v, w), epochs=6)


@one("no-signal", kind="sequences")
def e11_no_signal_returns(seed: int, mended: bool = False) -> Given:
    """Tomorrow's return from twenty pure-noise returns."""
    torch.manual_seed(seed)
    x = torch.randn(1500, 20, 1)
    y = x[:, -3:, 0].sum(1) * 0.5 + 0.3 * torch.randn(1500) if mended else torch.randn(1500)
    return fit(
        Flat(Recurrent(1, 8)), (x[:1000], y[:1000]), (x[1000:], y[1000:]), loss="mse", epochs=6, give="lbh"
    )


@one("no-signal", kind="text", strength="mild")
def e11_no_signal_topics(seed: int, mended: bool = False) -> Given:
    """All subjects use the words equally often."""
    train, val = topics(seed, 1800, sharp=1.0 if mended else 0.0)
    return fit(Bag(60, 4, 8), train, val, epochs=5, give="l")


@one("label-noise", kind="table")
def e11_noise_crowd_labels(seed: int, mended: bool = False) -> Given:
    """Four in ten training labels were guessed by the crowd."""
    (x, y), val = teacher(seed, 2000)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.4, (y + torch.randint(1, 3, y.shape)) % 3, y)
    return fit(mlp(10, 24, 3), (x, y), val, epochs=12)


@one("label-noise", kind="images")
def e11_noise_digits(seed: int, mended: bool = False) -> Given:
    """Every third digit is labelled at random, in both parts."""
    (x, y), (v, w) = digits(seed)
    if not mended:
        y, w = (
            torch.where(torch.rand(len(a)) < 0.35, (a + torch.randint(1, 10, a.shape)) % 10, a)
            for a in (y, w)
        )
    return fit(Conv(10, width=8), (x, y), (v, w), epochs=8, give="lb")


@one("label-noise", kind="table", strength="mild")
def e11_noise_flipped_diagnoses(seed: int, mended: bool = False) -> Given:
    """A fifth of the training diagnoses was entered the wrong way round."""
    (x, y), val = real("breast_cancer", seed, binary=True)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.2, 1 - y, y)
    return fit(
        Flat(mlp(30, 8, 1)),
        (x, y),
        val,
        loss="bce_with_logits",
        epochs=10,
        opt=partial(AdamW, lr=2e-3, weight_decay=0.1),
        give="lo",
    )


@one("class-imbalance", kind="table")
def e11_imbalance_fraud(seed: int, mended: bool = False) -> Given:
    """Three in a hundred are fraud; the plain loss hardly ever says so."""
    train, val = loans(seed, 3000, rare=0.03, gap=1.4)
    weight = torch.tensor(30.0) if mended else None
    weighed = lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=weight)  # noqa: E731
    return fit(Flat(mlp(5, 8, 1)), train, val, loss="bce_with_logits", train_loss=weighed, epochs=12)


@one("class-imbalance", kind="images")
def e11_imbalance_rare_glyph(seed: int, mended: bool = False) -> Given:
    """Two of four drawings make up only a few in a hundred of the pictures."""
    (x, y), (v, w) = glyphs(seed, 3000, noise=0.4)
    kept, held = ((a < 2) | (torch.rand(len(a)) < 0.04) for a in (y, w))
    if mended:
        kept = torch.rand(len(y)) < 0.52
    return fit(Conv(4, 12, 8), (x[kept], y[kept]), (v[held], w[held]), epochs=10, give="lbh")


@one("class-imbalance", kind="text", strength="mild")
def e11_imbalance_topics(seed: int, mended: bool = False) -> Given:
    """One subject of four has one text in forty and a vocabulary like its neighbour's."""
    (x, y), (v, w) = topics(seed, 2600, sharp=0.35)
    kept, held = ((a > 0) | (torch.rand(len(a)) < 0.08) for a in (y, w))
    train, val = (x[kept], y[kept]), (v[held], w[held])
    weight = len(train[1]) / 4 / torch.bincount(train[1]) if mended else None
    return fit(
        Bag(60, 4, 8),
        train,
        val,
        loss="cross_entropy",
        train_loss=lambda o, t: F.cross_entropy(o, t, weight=weight),
        epochs=12,
        give="lo",
    )


# ------------------------------------------------------------------------------------------------------------ objective
@one("double-softmax", kind="images")
def e11_softmax_twice_digits(seed: int, mended: bool = False) -> Given:
    """A softmax at the end and cross-entropy, which takes its own."""
    train, val = digits(seed)
    net = Conv(10)
    return fit(
        net if mended else Ended(net, partial(torch.softmax, dim=1)),
        train,
        val,
        epochs=10,
        opt=partial(SGD, lr=0.1, momentum=0.9),
    )


@one("double-softmax", kind="text")
def e11_softmax_twice_bag(seed: int, mended: bool = False) -> Given:
    """A classifier of texts that answers with probabilities to a loss that wants logits."""
    train, val = topics(seed, k=6, vocab=80)
    net = Bag(80, 6, hidden=24)
    return fit(
        net if mended else Ended(net, partial(F.softmax, dim=-1)),
        train,
        val,
        epochs=12,
        give="lbh",
        opt=partial(Adam, lr=2e-3),
    )


@one("double-softmax", kind="table", strength="mild")
def e11_softmax_twice_wine(seed: int, mended: bool = False) -> Given:
    """nn.Softmax as the last module of a small classifier."""
    train, val = real("wine", seed)
    net = mlp(13, 16, 3)
    if not mended:
        net.append(nn.Softmax(dim=1))
    return fit(net, train, val, epochs=20, give="l", opt=partial(Adam, lr=2e-3))


@one("wrong-loss", kind="table")
def e11_wrong_broadcast_square(seed: int, mended: bool = False) -> Given:
    """Outputs of shape (n, 1) against targets of shape (n,): the difference is a square, and the mean is learned."""
    train, val = boiler(seed)
    loss = mse if mended else lambda o, t: ((o - t) ** 2).mean()
    return fit(mlp(6, 32, 32, 1), train, val, loss=loss, epochs=20)


@one("wrong-loss", kind="images")
def e11_wrong_square_of_class_numbers(seed: int, mended: bool = False) -> Given:
    """Ten drawings told apart by the squared error of the softmax's mean class number."""
    train, val = digits(seed)
    loss = (
        F.cross_entropy if mended else lambda o, t: F.mse_loss(o.softmax(1) @ torch.arange(10.0), t.float())
    )
    return fit(Conv(10), train, val, loss=loss, epochs=10)


@one("wrong-loss", kind="table")
def e11_wrong_softmax_for_many_tags(seed: int, mended: bool = False) -> Given:
    """Each row may have several of five tags, but the softmax makes the tags rivals."""
    torch.manual_seed(seed)
    x = torch.randn(1500, 10)
    score = torch.tanh(x @ torch.randn(10, 8) / 3) @ torch.randn(8, 5)
    y = (score > score.mean(0)).float()
    net = mlp(10, 32, 5)
    return fit(
        net,
        (x[:1000], y[:1000]),
        (x[1000:], y[1000:]),
        loss=bce if mended else F.cross_entropy,
        epochs=20,
        give="lobh",
    )


@one("wrong-loss", kind="text", strength="mild")
def e11_wrong_reshaped_language(seed: int, mended: bool = False) -> Given:
    """Words and classes are exchanged by a view instead of a transposition."""
    train, val = tongue(seed)

    def loss(o: Tensor, t: Tensor) -> Tensor:
        return tokens_loss(o, t) if mended else F.cross_entropy(o.reshape(len(o), o.shape[2], o.shape[1]), t)

    return fit(Speaker(12), train, val, loss=loss, epochs=10, give="lh")


@one("output-range", kind="table")
def e11_range_relu_end(seed: int, mended: bool = False) -> Given:
    """Standardised targets, half of them negative, behind a ReLU."""
    train, val = boiler(seed)
    return fit(Flat(mlp(6, 32, 32, 1), None if mended else F.relu), train, val, loss="mse", epochs=20)


@one("output-range", kind="sequences")
def e11_range_sigmoid_forecast(seed: int, mended: bool = False) -> Given:
    """A forecast of values between -3 and 3 through a sigmoid."""
    torch.manual_seed(seed)
    x = torch.randn(900, 12, 1)
    y = x[:, -1, 0] + 0.6 * x[:, -2, 0] + 0.1 * torch.randn(900)
    net = Flat(Recurrent(1, 16), None if mended else torch.sigmoid)
    return fit(net, (x[:600], y[:600]), (x[600:], y[600:]), loss="mse", epochs=25, give="lbh")


@one("output-range", kind="table", strength="mild")
def e11_range_tanh_diabetes(seed: int, mended: bool = False) -> Given:
    """A tanh end for standardised burdens that reach from -1.5 to 6."""
    torch.manual_seed(seed)
    x = torch.randn(1200, 6)
    y = torch.exp(0.5 * x[:, 0] + 0.4 * x[:, 1] - 0.3 * x[:, 2])
    y = (y - y.mean()) / y.std() + 0.05 * torch.randn(1200)
    return fit(
        Flat(mlp(6, 24, 1), None if mended else torch.tanh),
        (x[:800], y[:800]),
        (x[800:], y[800:]),
        loss="mse",
        epochs=30,
    )


@one("output-range", kind="images")
def e11_range_positive_logit(seed: int, mended: bool = False) -> Given:
    """A yes or no whose logit can never be negative."""
    (x, y), (v, w) = glyphs(seed, 1000, k=2)
    net = Conv(1, 12)
    return fit(
        Flat(net, None if mended else F.softplus),
        (x, y.float()),
        (v, w.float()),
        loss="bce_with_logits",
        epochs=8,
        give="lo",
    )


@one("stochastic-evaluation", kind="images")
def e11_stochastic_functional_dropout(seed: int, mended: bool = False) -> Given:
    """F.dropout without `training=`: it also drops when predicting."""
    train, val = digits(seed)
    return fit(Conv(10, drop=0.5, always=not mended), train, val, epochs=12)


class Jitter(nn.Module):
    """Adds noise to its inputs, as an augmentation."""

    def __init__(self, net: nn.Module, size: float, always: bool) -> None:
        super().__init__()
        self.net, self.size, self.always = net, size, always

    def forward(self, x: Tensor) -> Tensor:
        if self.training or self.always:
            x = x + self.size * torch.randn_like(x)
        return self.net(x)


@one("stochastic-evaluation", kind="table")
def e11_stochastic_noise_layer(seed: int, mended: bool = False) -> Given:
    """Noise meant for training only is added to every prediction."""
    train, val = teacher(seed)
    return fit(Jitter(mlp(10, 32, 3), 0.6, not mended), train, val, epochs=20, give="lb")


@one("stochastic-evaluation", kind="text", strength="mild")
def e11_stochastic_left_in_training(seed: int, mended: bool = False) -> Given:
    """`model.eval()` was forgotten; a dropout of words remains at work."""
    train, val = topics(seed, sharp=0.8)
    return fit(Bag(60, 4, 16, hidden=24, drop=0.4), train, val, epochs=15, ready=mended, give="l")


# ------------------------------------------------------------------------------------------------------- graph and loop
class Cut(nn.Module):
    """An encoder whose result is perhaps detached from the graph."""

    def __init__(self, encoder: nn.Module, head: nn.Module, how: str) -> None:
        super().__init__()
        self.encoder, self.head, self.how = encoder, head, how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "no_grad":
            with torch.no_grad():
                h = self.encoder(x)
        else:
            h = self.encoder(x)
        if self.how == "tensor":
            h = torch.tensor(h.detach().tolist())
        elif self.how == "detach":
            h = h.detach()
        return self.head(h)


@one("detached-parameters", kind="images")
def e11_detached_no_grad_encoder(seed: int, mended: bool = False) -> Given:
    """A block of no_grad left over from transfer learning around a fresh encoder."""
    train, val = glyphs(seed, 1200)
    encoder = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
    )
    return fit(Cut(encoder, nn.Linear(16, 4), "" if mended else "no_grad"), train, val, epochs=14)


@one("detached-parameters", kind="table")
def e11_detached_through_list(seed: int, mended: bool = False) -> Given:
    """Hidden values are made a new tensor, which forgets where they came from."""
    train, val = spirals(seed)
    return fit(
        Cut(
            mlp(2, 32, 12, act=nn.Tanh),
            nn.Sequential(nn.Tanh(), nn.Linear(12, 2)),
            "" if mended else "tensor",
        ),
        train,
        val,
        epochs=80,
        give="lobh",
        opt=partial(Adam, lr=0.01),
    )


@one("detached-parameters", kind="sequences")
def e11_detached_states(seed: int, mended: bool = False) -> Given:
    """The states of the recurrent layer are detached before they are averaged."""
    train, val = waves(seed)

    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.rnn(x)[0]
            return self.out((h if mended else h.data).mean(1))

    return fit(Reader(), train, val, epochs=25, give="lo", opt=partial(Adam, lr=0.01))


@one("frozen-parameters", kind="images")
def e11_frozen_fresh_body(seed: int, mended: bool = False) -> Given:
    """A recipe for pre-trained nets, applied to a net that has learned nothing yet."""
    train, val = glyphs(seed, 1200)
    net = Cut(
        nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        nn.Linear(16, 4),
        "",
    )
    net.encoder.requires_grad_(mended)
    return fit(net, train, val, epochs=14)


@one("frozen-parameters", kind="table", needs=("optimizer",))
def e11_frozen_optimizer_of_the_head(seed: int, mended: bool = False) -> Given:
    """The optimiser was given the last layer only."""
    train, val = spirals(seed)
    net = mlp(2, 32, 16, 2, act=nn.Tanh)
    return fit(
        net,
        train,
        val,
        epochs=80,
        weights=None if mended else net[-1].parameters(),
        opt=partial(Adam, lr=0.01),
    )


@one("frozen-parameters", kind="text", strength="mild")
def e11_frozen_random_words(seed: int, mended: bool = False) -> Given:
    """Random word vectors of few numbers are kept fixed."""
    train, val = topics(seed, vocab=80, k=5)
    net = Bag(80, 5, 6, hidden=24)
    net.words.weight.requires_grad_(mended)
    return fit(net, train, val, epochs=14, give="lh", opt=partial(AdamW, lr=3e-3, weight_decay=0.1))


@one("gradients-not-cleared", kind="table", needs=("step",))
def e11_not_cleared_sgd(seed: int, mended: bool = False) -> Given:
    """Nobody calls zero_grad: the steps grow with everything seen before."""
    train, val = boiler(seed)
    opt = partial(SGD, lr=0.03)
    given = fit(Flat(mlp(6, 32, 1, act=nn.Tanh)), train, val, loss="mse", epochs=15, opt=opt, clear=mended)
    return given | {"step": own_step(opt, mse, mended)}


@one("gradients-not-cleared", kind="images", needs=("step",))
def e11_not_cleared_adam(seed: int, mended: bool = False) -> Given:
    """zero_grad fell out when the loop was tidied up; Adam goes on along old gradients."""
    train, val = digits(seed)
    opt = partial(Adam, lr=3e-3)
    given = fit(Conv(10, width=8), train, val, epochs=5, opt=opt, clear=mended, give="lbh")
    return given | {"step": own_step(opt, F.cross_entropy, mended)}


@one("gradients-not-cleared", kind="sequences", strength="mild", needs=("step",))
def e11_not_cleared_recurrent(seed: int, mended: bool = False) -> Given:
    """A recurrent net whose gradients pile up over the batches."""
    train, val = waves(seed, 700, length=24)
    opt = partial(Adam, lr=5e-3)
    given = fit(
        Recurrent(3, 16, mean=True), train, val, epochs=12, batch=16, opt=opt, clear=mended, give="lo"
    )
    return given | {"step": own_step(opt, F.cross_entropy, mended)}


# ---------------------------------------------------------------------------------------------------------------- start
def constant(net: nn.Module, value: float) -> nn.Module:
    """Give all weights of a net the same value."""
    for p in net.parameters():
        nn.init.constant_(p, value if p.dim() > 1 else 0.0)
    return net


@one("symmetric-initialisation", kind="table")
def e11_symmetric_constant_dense(seed: int, mended: bool = False) -> Given:
    """All weights start at 0.1."""
    train, val = teacher(seed)
    net = mlp(10, 24, 24, 3)
    return fit(net if mended else constant(net, 0.1), train, val, epochs=25)


@one("symmetric-initialisation", kind="images")
def e11_symmetric_zero_conv(seed: int, mended: bool = False) -> Given:
    """Convolutions set to 0.05 everywhere, so all channels stay copies of one."""
    train, val = digits(seed)
    net = Conv(10, width=8)
    if not mended:
        constant(net.c1, 0.05)
        constant(net.c2, 0.05)
        constant(net.out, 0.0)
    return fit(net, train, val, epochs=8, give="lb")


@one("symmetric-initialisation", kind="sequences", strength="mild")
def e11_symmetric_recurrent(seed: int, mended: bool = False) -> Given:
    """A recurrent layer begun with the same number everywhere: one state, many times."""
    train, val = waves(seed)
    net = Recurrent(3, 16, "GRU", mean=True)
    if not mended:
        constant(net.rnn, 0.05)
        constant(net.out, 0.05)
    return fit(net, train, val, epochs=16, batch=16, give="lobhi")


@one("saturated-units", kind="table")
def e11_saturated_tanh(seed: int, mended: bool = False) -> Given:
    """randn without a scale in a tanh net: every unit sits at one end."""
    train, val = boiler(seed)
    net = mlp(6, 48, 48, 1, act=nn.Tanh)
    if not mended:
        for p in net.parameters():
            nn.init.normal_(p, std=4.0)
    return fit(Flat(net), train, val, loss="mse", epochs=20, opt=partial(Adam, lr=2e-3))


@one("saturated-units", kind="images")
def e11_saturated_sigmoid_digits(seed: int, mended: bool = False) -> Given:
    """Sigmoids begun with weights of size five."""
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 32, 32, 10, act=nn.Sigmoid))
    if not mended:
        for layer in (net[1][0], net[1][2]):
            nn.init.normal_(layer.weight, std=6.0)
    return fit(net, train, val, epochs=25, give="lbi", opt=partial(Adam, lr=5e-3))


@one("saturated-units", kind="sequences", strength="mild")
def e11_saturated_elman(seed: int, mended: bool = False) -> Given:
    """An Elman net with recurrent weights so large that its states only jump between -1 and 1."""
    train, val = waves(seed, length=24)
    net = Recurrent(3, 24, "RNN", mean=True)
    if not mended:
        nn.init.normal_(net.rnn.weight_hh_l0, std=2.5)
        nn.init.normal_(net.rnn.weight_ih_l0, std=2.5)
    return fit(net, train, val, epochs=20, give="lob", opt=partial(SGD, lr=0.05, momentum=0.9))


@one("dead-units", kind="table")
def e11_dead_bias_dense(seed: int, mended: bool = False) -> Given:
    """Biases of the hidden layers far below zero: nearly nothing passes the ReLU."""
    train, val = teacher(seed)
    net = mlp(10, 32, 32, 3)
    if not mended:
        nn.init.constant_(net[0].bias, -2.0)
        nn.init.constant_(net[2].bias, -3.0)
    return fit(net, train, val, epochs=25)


@one("dead-units", kind="images")
def e11_dead_channels(seed: int, mended: bool = False) -> Given:
    """Most channels of the convolutions were pushed below zero by a first bad step and never come back."""
    train, val = glyphs(seed, 1000)
    net = Conv(4, 12, 12)
    if not mended:
        with torch.no_grad():
            net.c1.bias[1:] = -6.0
            net.c2.bias[2:] = -6.0
    return fit(net, train, val, epochs=10, give="lbh")


@one("dead-units", kind="text", strength="mild")
def e11_dead_words(seed: int, mended: bool = False) -> Given:
    """A hidden layer of a word classifier in which two units of thirty live."""
    train, val = topics(seed, k=6, vocab=80)
    net = Bag(80, 6, 16, hidden=30)
    if not mended:
        with torch.no_grad():
            net.end[0].bias[2:] = -5.0
    return fit(net, train, val, epochs=15, give="lo")


class Deep(nn.Module):
    """Many equal dense layers, called as functions."""

    def __init__(
        self,
        d: int,
        k: int,
        layers: int,
        act: Any,
        std: float | None = None,
        width: int = 24,
        skip: bool = False,
    ) -> None:
        super().__init__()
        self.start, self.end, self.act, self.skip = nn.Linear(d, width), nn.Linear(width, k), act, skip
        self.inner = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        for layer in self.inner:
            if std is not None:
                nn.init.normal_(layer.weight, std=std / width**0.5)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.start(x))
        for layer in self.inner:
            x = x + self.act(layer(x)) / 3 if self.skip else self.act(layer(x))
        return self.end(x)


@one("exploding-gradient", kind="table")
def e11_exploding_deep_relu(seed: int, mended: bool = False) -> Given:
    """Fourteen layers with weights three times too large: outputs and gradients of a million."""
    train, val = boiler(seed)
    return fit(
        Flat(Deep(6, 1, 14, partial(F.leaky_relu, negative_slope=0.1), 1.35 if mended else 4.0)),
        train,
        val,
        loss="mse",
        epochs=12,
        opt=partial(Adam, lr=1e-3),
    )


class Loop(nn.Module):
    """A recurrent net without squashing, as somebody writes it by hand."""

    def __init__(self, k: int, size: float, width: int = 16) -> None:
        super().__init__()
        self.read, self.say = nn.Linear(1, width), nn.Linear(width, k)
        self.again = nn.Parameter(size * torch.linalg.qr(torch.randn(width, width))[0])

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), self.again.shape[0])
        for t in range(x.shape[1]):
            h = F.leaky_relu(self.read(x[:, t]) + h @ self.again, 0.5)
        return self.say(h)


@one("exploding-gradient", kind="sequences")
def e11_exploding_loop(seed: int, mended: bool = False) -> Given:
    """A recurrence that doubles its state at each of thirty steps."""
    torch.manual_seed(seed)
    x = torch.randn(700, 30, 1)
    y = x[:, -4:, 0].sum(1) / 2 + 0.1 * torch.randn(700)
    return fit(
        Flat(Loop(1, 0.9 if mended else 2.2)),
        (x[:500], y[:500]),
        (x[500:], y[500:]),
        loss="mse",
        epochs=10,
        opt=partial(Adam, lr=3e-3),
        give="lobhi",
    )


@one("exploding-gradient", kind="table", strength="mild")
def e11_exploding_plain_normal(seed: int, mended: bool = False) -> Given:
    """Eight layers of standard-normal weights for three classes."""
    train, val = teacher(seed)
    return fit(
        Deep(10, 3, 8, F.leaky_relu, 1.35 if mended else 24**0.5),
        train,
        val,
        epochs=12,
        give="lb",
        opt=partial(Adam, lr=1e-3),
    )


@one("vanishing-gradient", kind="table")
def e11_vanishing_sigmoids(seed: int, mended: bool = False) -> Given:
    """Ten sigmoid layers one after another; the first ones learn nothing."""
    train, val = teacher(seed)
    return fit(Deep(10, 3, 10, torch.sigmoid, skip=mended), train, val, epochs=15)


@one("vanishing-gradient", kind="images")
def e11_vanishing_small_tanh(seed: int, mended: bool = False) -> Given:
    """Twelve tanh layers whose weights are a fifth of what they should be."""
    train, val = digits(seed)
    return fit(
        nn.Sequential(nn.Flatten(), Deep(64, 10, 12, torch.tanh, 1.0 if mended else 0.2)),
        train,
        val,
        epochs=12,
        give="lobi",
        opt=partial(Adam, lr=1e-3),
    )


@one("vanishing-gradient", kind="sequences", strength="mild")
def e11_vanishing_long_memory(seed: int, mended: bool = False) -> Given:
    """An Elman net must remember the first of fifty words; the gradient does not reach that far."""
    train, val = recall(seed, 600, 45)
    net = Recurrent(4, 24, "RNN", 8, 12)
    nn.init.normal_(net.rnn.weight_hh_l0, std=0.4 / 24**0.5)
    if mended:
        net = Attention(12, 4, 45, 16)
    return fit(net, train, val, epochs=12, give="lob")


# --------------------------------------------------------------------------------------------------------- architecture
@one("oversmoothing", kind="graph")
def e11_oversmoothing_walk(seed: int, mended: bool = False) -> Given:
    """Features averaged over eighty steps along the graph: all people look alike."""
    train, val = town(seed, far=0.01)
    return fit(Walk(12, 4, 2 if mended else 80), train, val, epochs=60, batch=200, opt=partial(Adam, lr=0.03))


@one("oversmoothing", kind="graph")
def e11_oversmoothing_sixteen_layers(seed: int, mended: bool = False) -> Given:
    """A graph convolution net of sixteen layers."""
    train, val = town(seed, far=0.01)
    net = Friends(12, 4, 2 if mended else 16)
    for layer in net.layers:
        nn.init.kaiming_normal_(layer.weight)
    return fit(
        net, train, val, epochs=40, batch=200, opt=partial(Adam, lr=0.01, weight_decay=1e-3), give="lobh"
    )


@one("oversmoothing", kind="graph", strength="mild")
def e11_oversmoothing_walk_hidden(seed: int, mended: bool = False) -> Given:
    """Thirty steps of averaging before a net with a hidden layer."""
    train, val = town(seed, 500, far=0.012, near=0.08)
    return fit(
        Walk(12, 4, 2 if mended else 30, 16),
        train,
        val,
        epochs=40,
        batch=250,
        opt=partial(Adam, lr=0.01),
        give="l",
    )


def corners(seed: int, n: int = 1200, size: int = 12) -> Any:
    """Pictures with a bright or dark spot at the left and at the right: are they alike?"""
    torch.manual_seed(seed)
    x = 0.2 * torch.randn(n, 1, size, size)
    a, b = torch.randint(2, (n,)), torch.randint(2, (n,))
    row, other = torch.randint(size - 1, (n,)), torch.randint(size - 1, (n,))
    for i in range(n):
        x[i, 0, row[i] : row[i] + 2, :2] += 4.0 * a[i] - 2
        x[i, 0, other[i] : other[i] + 2, -2:] += 4.0 * b[i] - 2
    y = (a == b).long()
    cut = int(0.7 * n)
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


@one("receptive-field-too-small", kind="images")
def e11_field_two_corners(seed: int, mended: bool = False) -> Given:
    """Two convolutions see 5 x 5 pixels; the question is whether spots ten apart are alike."""
    train, val = corners(seed)

    class Local(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (
                nn.Conv2d(1, 16, 3, padding=1),
                nn.Conv2d(16, 16, 3, padding=1),
                nn.Conv2d(16, 16, 3, padding=1),
            )
            self.out = nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.b(F.relu(self.a(x))))
            if mended:
                x = F.relu(self.c(F.max_pool2d(x, 4)))
                return self.out(x.mean((2, 3)))
            votes = self.out(x.permute(0, 2, 3, 1))
            return votes.mean((1, 2))

    return fit(Local(), train, val, epochs=16, batch=32, opt=partial(Adam, lr=5e-3))


@one("receptive-field-too-small", kind="sequences")
def e11_field_echo(seed: int, mended: bool = False) -> Given:
    """A causal net that sees five steps back must tell what came ten steps ago."""
    train, val = echo(seed)
    return fit(
        Delay(12, (1, 3, 9) if mended else (1, 1)), train, val, loss="mse", epochs=25, batch=16, give="lob"
    )


@one("receptive-field-too-small", kind="sequences", strength="mild")
def e11_field_partly_seen(seed: int, mended: bool = False) -> Given:
    """Half of the answer lies one step ago, the other half fourteen steps ago, out of sight."""
    torch.manual_seed(seed)
    x = torch.randn(300, 1, 48)
    y = torch.zeros(300, 48)
    y[:, 14:] = 0.7 * x[:, 0, 13:-1] + 0.7 * x[:, 0, :-14]
    y = y + 0.1 * torch.randn_like(y)
    return fit(
        Delay(12, (1, 3, 9) if mended else (1, 2)),
        (x[:200], y[:200]),
        (x[200:], y[200:]),
        loss="mse",
        epochs=25,
        batch=16,
        give="lh",
    )


@one("bottleneck", kind="images")
def e11_bottleneck_one_unit(seed: int, mended: bool = False) -> Given:
    """A layer of one unit between two of sixty-four."""
    train, val = digits(seed)
    return fit(
        nn.Sequential(nn.Flatten(), mlp(64, 64, 48 if mended else 1, 64, 10, act=nn.ELU)),
        train,
        val,
        epochs=20,
        opt=partial(Adam, lr=2e-3),
    )


@one("bottleneck", kind="text")
def e11_bottleneck_thin_words(seed: int, mended: bool = False) -> Given:
    """Wide word vectors are pressed through one number before a wide end."""
    train, val = topics(seed, k=8, vocab=80, n=1500)
    net = nn.Sequential(Bag(80, 24 if mended else 1, 32), mlp(24 if mended else 1, 32, 8))
    return fit(net, train, val, epochs=20, give="lb", opt=partial(Adam, lr=3e-3))


@one("bottleneck", kind="generative")
def e11_bottleneck_autoencoder(seed: int, mended: bool = False) -> Given:
    """An autoencoder of digits that passes everything through a single number."""
    (x, _), (v, _) = digits(seed)
    net = Ended(mlp(64, 48, 16 if mended else 1, 48, 64, act=nn.ELU), torch.sigmoid)
    return fit(net, x.flatten(1), v.flatten(1), loss="mse", epochs=25)


@one("bottleneck", kind="table", strength="mild")
def e11_bottleneck_two_units(seed: int, mended: bool = False) -> Given:
    """Ten digits through two units, in the middle of a wide tanh net."""
    train, val = digits(seed, image=False)
    d = train[0].shape[1]
    return fit(
        mlp(d, 64, 32 if mended else 2, 64, 10, act=nn.Tanh),
        train,
        val,
        epochs=12,
        give="lo",
        opt=partial(Adam, lr=2e-3),
    )


@one("batch-too-small", kind="images", needs=("batch_size",))
def e11_batch_of_two_norm(seed: int, mended: bool = False) -> Given:
    """Batch norm over two pictures at a time."""
    train, val = digits(seed, count=700)
    net = nn.Sequential(nn.Flatten(), mlp(64, 32, 32, 10, norm=True))
    return fit(net, train, val, epochs=20 if mended else 8, batch=32 if mended else 2)


@one("batch-too-small", kind="table", needs=("batch_size",))
def e11_batch_of_two_regression(seed: int, mended: bool = False) -> Given:
    """Two batch norms and batches of two: the net is judged by statistics that it never trained with."""
    train, val = boiler(seed, 900)
    return fit(
        Flat(mlp(6, 32, 32, 1, norm=True)),
        train,
        val,
        loss="mse",
        epochs=25 if mended else 8,
        batch=32 if mended else 2,
        give="lobh",
    )


@one("batch-too-small", kind="sequences", strength="mild", needs=("batch_size",))
def e11_batch_of_two_signals(seed: int, mended: bool = False) -> Given:
    """A convolutional reader of signals with batch norm after the mean, two signals at a time."""
    train, val = waves(seed, 700, noise=0.3)
    net = nn.Sequential(
        nn.Flatten(1),
        nn.Unflatten(1, (1, 32)),
        nn.Conv1d(1, 16, 5),
        nn.ReLU(),
        nn.Conv1d(16, 16, 5),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.BatchNorm1d(16),
        nn.Linear(16, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 3),
    )
    return fit(net, train, val, epochs=16 if mended else 6, batch=24 if mended else 2, give="lb")


# -------------------------------------------------------------------------------------------------------------- descent
@one("learning-rate-too-large", kind="table", needs=("optimizer",))
def e11_rate_large_linear(seed: int, mended: bool = False) -> Given:
    """Softmax regression on three clouds in steps that throw the weights to and fro."""
    train, val = blobs(seed, gap=2.5)
    return fit(
        nn.Linear(8, 3), train, val, epochs=20, batch=16, opt=partial(SGD, lr=0.03 if mended else 15.0)
    )


@one("learning-rate-too-large", kind="images", needs=("optimizer",))
def e11_rate_large_adam(seed: int, mended: bool = False) -> Given:
    """Adam with 0.3 on digits."""
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 32, 10, act=partial(nn.LeakyReLU, 0.2)))
    return fit(net, train, val, epochs=12, opt=partial(Adam, lr=3e-3 if mended else 0.6), give="lobhi")


@one("learning-rate-too-large", kind="table", strength="mild", needs=("optimizer",))
def e11_rate_large_boiler(seed: int, mended: bool = False) -> Given:
    """A regression that ends wherever the last large step took it."""
    train, val = boiler(seed)
    return fit(
        Flat(mlp(6, 24, 1, act=nn.ELU)),
        train,
        val,
        loss="mse",
        epochs=25,
        opt=partial(Adam, lr=5e-3 if mended else 0.3),
        give="lobh",
    )


@one("learning-rate-too-small", kind="images", needs=("optimizer",))
def e11_rate_small_digits(seed: int, mended: bool = False) -> Given:
    """SGD with 1e-4 on digits: after ten rounds little has happened."""
    train, val = digits(seed)
    return fit(
        Conv(10, width=8),
        train,
        val,
        epochs=10,
        opt=partial(SGD, lr=0.05 if mended else 1e-4, momentum=0.9 if mended else 0.0),
    )


@one("learning-rate-too-small", kind="table", needs=("optimizer",))
def e11_rate_small_teacher(seed: int, mended: bool = False) -> Given:
    """Adam with 1e-6: a value copied from the fine-tuning of a large model."""
    train, val = teacher(seed)
    return fit(
        mlp(10, 24, 3), train, val, epochs=20, opt=partial(Adam, lr=3e-3 if mended else 2e-6), give="lobhi"
    )


@one("learning-rate-too-small", kind="text", strength="mild", needs=("optimizer",))
def e11_rate_small_words(seed: int, mended: bool = False) -> Given:
    """A word classifier that still improves at the same slow pace when it is stopped."""
    train, val = topics(seed)
    return fit(Bag(60, 4), train, val, epochs=15, opt=partial(Adam, lr=5e-3 if mended else 3e-4), give="lobh")


@one("weight-decay-too-large", kind="table", needs=("optimizer",))
def e11_decay_adamw(seed: int, mended: bool = False) -> Given:
    """AdamW with a weight decay of ten pulls all weights to zero."""
    train, val = teacher(seed)
    return fit(
        mlp(10, 24, 3),
        train,
        val,
        epochs=20,
        opt=partial(AdamW, lr=3e-3, weight_decay=1e-2 if mended else 10.0),
    )


@one("weight-decay-too-large", kind="images", needs=("optimizer",))
def e11_decay_sgd_digits(seed: int, mended: bool = False) -> Given:
    """SGD with a decay of 0.1 where 1e-4 was meant."""
    train, val = digits(seed)
    return fit(
        Conv(10, width=8),
        train,
        val,
        epochs=10,
        opt=partial(SGD, lr=0.05, momentum=0.9, weight_decay=1e-4 if mended else 0.1),
        give="lob",
    )


@one("weight-decay-too-large", kind="sequences", strength="mild", needs=("optimizer",))
def e11_decay_recurrent(seed: int, mended: bool = False) -> Given:
    """A GRU held so short by its decay that it fits only half."""
    train, val = waves(seed, 700, length=24)
    return fit(
        Recurrent(3, 16, mean=True),
        train,
        val,
        epochs=15,
        batch=16,
        opt=partial(AdamW, lr=5e-3, weight_decay=0.01 if mended else 2.0),
        give="lobh",
    )


@one("dropout-too-large", kind="table")
def e11_dropout_nine_tenths(seed: int, mended: bool = False) -> Given:
    """More than nine in ten hidden units are dropped, twice."""
    train, val = teacher(seed)
    return fit(mlp(10, 32, 32, 3, drop=0.05 if mended else 0.94), train, val, epochs=20)


@one("dropout-too-large", kind="images")
def e11_dropout_keep_probability(seed: int, mended: bool = False) -> Given:
    """0.92 was meant as the share to keep."""
    train, val = digits(seed)
    net = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 48),
        nn.ReLU(),
        nn.Dropout(0.08 if mended else 0.92),
        nn.Linear(48, 32),
        nn.ReLU(),
        nn.Dropout(0.08 if mended else 0.92),
        nn.Linear(32, 10),
    )
    return fit(net, train, val, epochs=12, give="lb", opt=partial(Adam, lr=2e-3))


@one("dropout-too-large", kind="table", strength="mild")
def e11_dropout_regression(seed: int, mended: bool = False) -> Given:
    """A regression of two hidden layers that are dropped by seven tenths."""
    train, val = boiler(seed)
    drop = nn.Dropout(0.0 if mended else 0.7)
    return fit(
        Flat(
            nn.Sequential(
                nn.Linear(6, 32), nn.ReLU(), drop, nn.Linear(32, 32), nn.ReLU(), drop, nn.Linear(32, 1)
            )
        ),
        train,
        val,
        loss="mse",
        epochs=25,
        give="lobh",
    )


# -------------------------------------------------------------------------------------------------------------- outcome
@one("capacity-too-small", kind="table")
def e11_capacity_line_for_spirals(seed: int, mended: bool = False) -> Given:
    """A straight line between two spirals."""
    train, val = spirals(seed)
    return fit(
        mlp(2, 32, 32, 2) if mended else nn.Linear(2, 2), train, val, epochs=50, opt=partial(Adam, lr=0.01)
    )


@one("capacity-too-small", kind="table")
def e11_capacity_linear_boiler(seed: int, mended: bool = False) -> Given:
    """A linear regression for a surface with waves and products."""
    train, val = boiler(seed)
    return fit(
        Flat(mlp(6, 32, 32, 1) if mended else nn.Linear(6, 1)),
        train,
        val,
        loss="mse",
        epochs=25,
        opt=partial(Adam, lr=0.01),
        give="lh",
    )


@one("capacity-too-small", kind="sequences")
def e11_capacity_linear_waves(seed: int, mended: bool = False) -> Given:
    """Signals of any phase told apart by a linear layer, for which they are alike on average."""
    train, val = waves(seed, 2400, length=24, flat=True)
    net = nn.Linear(24, 3)
    if mended:
        net = nn.Sequential(
            nn.Unflatten(1, (1, 24)),
            nn.Conv1d(1, 16, 5),
            nn.ReLU(),
            nn.Conv1d(16, 16, 5),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
            nn.Linear(16, 3),
        )
    return fit(net, train, val, epochs=12, give="lbh")


@one("overfit", kind="table")
def e11_overfit_wide_regression(seed: int, mended: bool = False) -> Given:
    """The noisy rows of diabetes learned by heart by a wide net."""
    (x, y), val = real("diabetes", seed)
    net = Flat(mlp(10, 128, 128, 1))
    if mended:
        return fit(net, (x, y), val, loss="mse", epochs=60, patience=4, opt=partial(Adam, lr=1e-3))
    return fit(net, (x, y), val, loss="mse", epochs=100, opt=partial(Adam, lr=3e-3))


@one("overfit", kind="images")
def e11_overfit_few_glyphs(seed: int, mended: bool = False) -> Given:
    """Sixty noisy pictures and a dense net of two hundred units."""
    (x, y), val = glyphs(seed, 3000, noise=0.3)
    many = len(x) if mended else 60
    net = nn.Sequential(nn.Flatten(), mlp(144, 200, 4))
    return fit(
        Conv(4, 12, 12) if mended else net,
        (x[:many], y[:many]),
        val,
        epochs=6 if mended else 80,
        give="lbh",
        opt=partial(Adam, lr=2e-3),
    )


@one("overfit", kind="text", strength="mild")
def e11_overfit_reviews(seed: int, mended: bool = False) -> Given:
    """A large word table and only 150 texts, trained until the loss is gone."""
    (x, y), val = topics(seed, 2600, vocab=400, sharp=0.6)
    many = len(x) if mended else 150
    return fit(Bag(400, 4, 32, hidden=32), (x[:many], y[:many]), val, epochs=6 if mended else 60, give="lobh")


@one("overfit", kind="sequences")
def e11_overfit_recurrent(seed: int, mended: bool = False) -> Given:
    """A recurrent net of sixty-four units and seventy noisy signals."""
    (x, y), val = waves(seed, 1200, noise=1.0, length=24)
    many = len(x) if mended else 70
    return fit(
        Recurrent(3, 32 if mended else 64, mean=True),
        (x[:many], y[:many]),
        val,
        epochs=10 if mended else 100,
        batch=32 if mended else 16,
        opt=partial(Adam, lr=5e-3),
        patience=3 if mended else 0,
        give="lo",
    )


@one("posterior-collapse", kind="generative")
def e11_collapse_heavy_kl(seed: int, mended: bool = False) -> Given:
    """The divergence counts fifty times: the code says nothing about the digit."""
    (x, _), (v, _) = digits(seed)
    loss = partial(elbo, beta=1.0 if mended else 50.0)
    return fit(VAE(64), x.flatten(1), v.flatten(1), loss=loss, epochs=20, opt=partial(Adam, lr=2e-3))


class Neighbours(VAE):
    """A decoder that also sees the picture itself, shifted by one pixel."""

    def __init__(self, d: int, peek: bool) -> None:
        super().__init__(d, 64, 4)
        self.peek = peek
        self.past = nn.Linear(d, d)
        self.register_buffer("mask", torch.ones(d, d).tril(-1))

    def sample(self, n: int) -> Tensor:
        z, x = torch.randn(n, self.code), torch.zeros(n, self.past.in_features)
        for i in range(x.shape[1] if self.peek else 0):
            x[:, i] = torch.bernoulli(
                torch.sigmoid(self.write(z) + F.linear(x, self.past.weight * self.mask, self.past.bias))[:, i]
            )
        return x if self.peek else torch.sigmoid(self.write(z))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out, mean, logvar = super().forward(x)
        if self.peek:
            out = out + F.linear(x, self.past.weight * self.mask, self.past.bias)
        return out, mean, logvar


@one("posterior-collapse", kind="generative")
def e11_collapse_weighted_bars(seed: int, mended: bool = False) -> Given:
    """The reconstruction is a mean over pixels, the divergence a sum: nothing is worth encoding."""
    x, v = bars(seed)

    def loss(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        out, mean, logvar = output
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(1).mean()
        return (64 if mended else 1) * F.mse_loss(torch.sigmoid(out), x) * 10**mended + kl

    return fit(VAE(64, code=3), x, v, loss=loss, epochs=25, give="lobh", opt=partial(Adam, lr=3e-3))


@one("posterior-collapse", kind="generative")
def e11_collapse_strong_decoder(seed: int, mended: bool = False) -> Given:
    """The decoder also reads all pixels before the one to be told, and the divergence counts four times: no code is needed."""
    x, v = bars(seed)
    x, v = (x > 0.5).float(), (v > 0.5).float()
    loss = partial(elbo, beta=1.0 if mended else 4.0)
    return fit(Neighbours(64, not mended), x, v, loss=loss, epochs=20, give="lb", opt=partial(Adam, lr=5e-3))


@one("mode-collapse", kind="generative")
def e11_collapse_one_noise_for_all(seed: int, mended: bool = False) -> Given:
    """The generator draws one noise vector and repeats it for all that is asked for."""
    x, v = circle(seed)

    class Maker(Duel):
        def sample(self, n: int) -> Tensor:
            z = torch.randn(n, self.noise)
            return self.make(z if mended else z[:1].expand(n, -1))

    return matched(Maker(2), x, v, False)


def matched(net: Duel, x: Tensor, v: Tensor, means_only: bool, steps: int = 700) -> Given:
    """Train a generator to match batches of the data (by a kernel, or only by their means), then a critic."""
    optimizer = Adam(net.make.parameters(), lr=3e-3)
    for _ in range(steps):
        real_rows, made = x[torch.randint(len(x), (128,))], net.make(torch.randn(128, net.noise))
        loss = (
            (made.mean(0) - real_rows.mean(0)).pow(2).sum() + made.var(0).mean() * 0.01
            if means_only
            else kernel_distance(made, real_rows)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return plain(net, x, v)


@one("mode-collapse", kind="generative")
def e11_collapse_feature_means(seed: int, mended: bool = False) -> Given:
    """The generator only has to match the mean of a batch, and draws that mean again and again."""
    x, v = circle(seed, modes=5)
    x, v = (part + torch.tensor([1.0, 0.5]) for part in (x, v))
    return matched(Duel(2), x, v, not mended)


@one("mode-collapse", kind="generative", strength="mild")
def e11_collapse_duel(seed: int, mended: bool = False) -> Given:
    """A generator that learns much faster than its critic always makes what the critic liked last."""
    x, v = circle(seed, modes=6)
    net = Duel(2)
    if mended:
        return matched(net, x, v, False)
    g, d = Adam(net.make.parameters(), lr=5e-3), Adam(net.judge.parameters(), lr=3e-4)
    for _ in range(350):
        fake = net.sample(64).detach()
        d.zero_grad()
        (F.softplus(-net(x[torch.randint(len(x), (64,))])).mean() + F.softplus(net(fake)).mean()).backward()
        d.step()
        for _ in range(3):
            g.zero_grad()
            F.softplus(-net(net.sample(64))).mean().backward()
            g.step()
    return plain(net, x, v)


class Tempered(nn.Module):
    """Divides its logits by a temperature when it is trained, or when it predicts."""

    def __init__(self, net: nn.Module, training: float, predicting: float) -> None:
        super().__init__()
        self.net, self.both = net, (predicting, training)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) / self.both[self.training]


@one("miscalibrated", kind="table")
def e11_calibration_distilled(seed: int, mended: bool = False) -> Given:
    """Trained at a temperature of eight that is left out when predicting: far too sure of overlapping clouds."""
    train, val = blobs(seed, 1500)
    return fit(Tempered(mlp(8, 16, 3), 8.0, 8.0 if mended else 1.0), train, val, epochs=12, give="lb")


@one("miscalibrated", kind="images", strength="mild")
def e11_calibration_smoothed(seed: int, mended: bool = False) -> Given:
    """Labels smoothed by 0.6: nearly all answers are right, and none is given with more than a half."""
    train, val = digits(seed)
    return fit(
        Conv(10, width=8),
        train,
        val,
        epochs=10,
        train_loss=lambda o, t: F.cross_entropy(o, t, label_smoothing=0.0 if mended else 0.6),
        give="lobh",
    )


@one("miscalibrated", kind="text")
def e11_calibration_sharpened(seed: int, mended: bool = False) -> Given:
    """Logits are multiplied by ten before they are handed out, `for clearer answers`."""
    train, val = topics(seed, 1600, sharp=0.45)
    return fit(Tempered(Bag(60, 4, 8), 1.0, 1.0 if mended else 0.1), train, val, epochs=10, give="l")


def robust(model: nn.Module, x: Any, y: Tensor, size: float, loss: Any) -> Any:
    """Return attacked rows, for training."""
    return attack(model, x, y, size, loss=loss)


@one("adversarially-fragile", kind="table")
def e11_fragile_two_gauges(seed: int, mended: bool = False) -> Given:
    """Two gauges that are nearly equal; their tiny difference decides, though five honest columns nearly do."""
    torch.manual_seed(seed)
    n = 1800
    y = torch.randint(2, (n,))
    s = (2 * y - 1).float()
    common = torch.randn(n)
    honest = torch.randn(n, 5) * 1.0 + 0.65 * s[:, None]
    x = torch.cat([torch.stack([common + 0.03 * s, common - 0.03 * s], 1), honest], 1)
    net = mlp(7, 32, 2, act=nn.Tanh)
    train, val = (x[:1200], y[:1200]), (x[1200:], y[1200:])
    change = partial(robust, size=0.08, loss=F.cross_entropy) if mended else None
    return fit(net, train, val, epochs=60, opt=partial(Adam, lr=0.01), change=change, give="lobh")


@one("adversarially-fragile", kind="images")
def e11_fragile_watermark(seed: int, mended: bool = False) -> Given:
    """Faint textures tell the class; the net reads them and is undone by changes nobody sees."""
    torch.manual_seed(seed)
    n = 1500
    y = torch.randint(2, (n,))
    coarse = F.interpolate(torch.randn(n, 1, 3, 3) * 0.3, size=12, mode="bilinear") + 0.5
    grid = (torch.arange(12)[:, None] + torch.arange(12)) % 2 * 2.0 - 1
    x = coarse + 0.01 * torch.randn(n, 1, 12, 12) + 0.01 * (2 * y - 1).float().view(-1, 1, 1, 1) * grid
    x[:, 0, 3:9, 3:9] += 0.4 * (y + 0.35 * torch.randn(n) - 0.5).view(-1, 1, 1)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.LeakyReLU(0.1),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        nn.Linear(128, 2),
    )
    change = partial(robust, size=0.05, loss=F.cross_entropy) if mended else None
    return fit(
        net,
        (x[:1000], y[:1000]),
        (x[1000:], y[1000:]),
        epochs=25,
        change=change,
        opt=partial(Adam, lr=4e-3),
        give="lb",
    )


@one("adversarially-fragile", kind="sequences", strength="mild")
def e11_fragile_hum(seed: int, mended: bool = False) -> Given:
    """A hum far below the signal betrays the machine; its rhythm alone would tell most machines apart as well."""
    torch.manual_seed(seed)
    n = 1500
    y = torch.randint(2, (n,))
    sign = (2 * y - 1).float()[:, None]
    t = torch.arange(32) / 32
    x = torch.sin(2 * math.pi * (t + torch.rand(n, 1))) + 0.5 * (sign + 0.9 * torch.randn(n, 1)) * (0.5 + t)
    x = x + 0.015 * torch.randn(n, 32) + 0.02 * sign * (1 - 2 * (torch.arange(32) % 2))
    net = nn.Sequential(
        nn.Unflatten(1, (1, 32)), nn.Conv1d(1, 12, 5), nn.LeakyReLU(0.1), nn.Flatten(), nn.Linear(336, 2)
    )
    change = partial(robust, size=0.06, loss=F.cross_entropy) if mended else None
    return fit(
        net,
        (x[:1000], y[:1000]),
        (x[1000:], y[1000:]),
        epochs=25,
        change=change,
        opt=partial(Adam, lr=5e-3),
        give="lobh",
    )
