"""Single faults of the data, the objective, the graph and the loop, by the sixteenth author."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.sixteenth_parts import (
    GCN,
    Bag,
    Recurrent,
    Tagger,
    binary,
    bundled,
    clouds,
    communities,
    convnet,
    digits,
    halves,
    mlp,
    pictures,
    post,
    reviews,
    run,
    scaled,
    series,
    spirals,
    surface,
    tags,
    token_loss,
    waves,
)

# --- not-finite-data, overflow ----------------------------------------------------------------------------------------


@post("not-finite-data", kind="table")
def forum_nan_cells_of_a_csv(seed: int, mended: bool = False) -> dict[str, Any]:
    """Empty cells of a CSV became NaN in one column; the loss is NaN from the first epoch."""
    (x, y), test = surface(seed)
    if not mended:
        x[torch.rand(len(x)) < 0.05, 2] = float("nan")
    return run(mlp(6, 32, 1), (x, y), test, "mse", give="history")


@post("not-finite-data", kind="sequences", strength="mild")
def lab_log_of_zero_in_a_sensor(seed: int, mended: bool = False) -> dict[str, Any]:
    """The logarithm of a sensor was taken; three readings of zero gave minus infinity."""
    (x, y), test = waves(seed)
    if not mended:
        x[[5, 60, 100], 4, 0] = -float("inf")
    return run(Recurrent("GRU", 1, 16, 3), (x, y), test, epochs=12, give="optimizer batch_size")


@post("not-finite-data", kind="table", strength="mild")
def forum_nan_targets_skipped_batches(seed: int, mended: bool = False) -> dict[str, Any]:
    """Six targets are NaN; the loop skips every batch whose loss is not a number, so the net did train."""
    (x, y), test = bundled("diabetes", seed)
    if not mended:
        y[::50] = float("nan")

    def careful(output: Tensor, target: Tensor) -> Tensor:
        value = F.mse_loss(output, target)
        return value if value.isfinite() else output.sum() * 0

    return run(mlp(10, 16, 1), (x, y), test, "mse", train_loss=careful, epochs=10, lr=3e-3, decay=0.1)


@post("overflow", kind="table")
def forum_nodata_is_minus_flt_max(seed: int, mended: bool = False) -> dict[str, Any]:
    """Missing pixels of a satellite table are coded as -3.4e38, the file format's 'no data'."""
    (x, y), (u, v) = clouds(seed)
    for part in (x, u):
        part[torch.rand(len(part)) < 0.04, 3] = 0.0 if mended else -3.4e38
    return run(mlp(8, 32, 3), (x, y), (u, v), give="history", epochs=20, sgd=True, lr=0.05)


@post("overflow", kind="table")
def forum_targets_whose_square_is_infinite(seed: int, mended: bool = False) -> dict[str, Any]:
    """Distances of galaxies in metres, about 1e25: their squared error does not fit into a float."""
    (x, y), (u, v) = surface(seed)
    unit = 1.0 if mended else 1e25
    return run(mlp(6, 32, 1), (x, y * unit), (u, v * unit), "mse", sgd=True, give="optimizer")


class OwnSoftmax(nn.Module):
    """exp(x) / sum exp(x) as written in the lecture, at a temperature."""

    def __init__(self, temperature: float, safe: bool):
        super().__init__()
        self.temperature, self.safe = temperature, safe

    def forward(self, x: Tensor) -> Tensor:
        x = x / self.temperature
        x = x - x.amax(1, keepdim=True) if self.safe else x
        return (x.exp() / x.exp().sum(1, keepdim=True)).clamp_min(1e-9).log()


@post("overflow", kind="images", strength="mild")
def lab_own_softmax_without_the_maximum(seed: int, mended: bool = False) -> dict[str, Any]:
    """A hand-written softmax at temperature 0.05 does not subtract the maximum; the biases start at 5: exp(100)."""
    train, test = digits(seed, flat=True)
    net = mlp(48, 32, 10, end=[OwnSoftmax(0.05, mended)])
    nn.init.constant_(net[2].bias, 5.0)
    return run(net, train, test, "nll", lr=2e-3, give="history optimizer", epochs=15)


# --- scales -----------------------------------------------------------------------------------------------------------


@post("unscaled-inputs", kind="table")
def forum_raw_wine_with_sgd(seed: int, mended: bool = False) -> dict[str, Any]:
    """The wine table as it comes: proline is about 1000, hue about 1; SGD never learns it."""
    train, test = bundled("wine", seed, raw=not mended)
    return run(mlp(13, 32, 3), train, test, sgd=True, lr=0.05, epochs=40, batch=16, give="optimizer")


@post("unscaled-inputs", kind="table", strength="mild")
def lab_raw_breast_cancer(seed: int, mended: bool = False) -> dict[str, Any]:
    """Areas of up to 4000 beside smoothness of 0.1: a tanh net on the raw columns."""
    train, test = binary(bundled("breast_cancer", seed, raw=not mended))
    net = mlp(30, 16, 1, act=nn.Tanh)
    return run(net, train, test, "bce_with_logits", lr=2e-3, epochs=25, give="history")


@post("unscaled-inputs", kind="table")
def forum_one_column_in_cents(seed: int, mended: bool = False) -> dict[str, Any]:
    """One of six columns is an amount in cents, about 50 000 with a spread of 10 000; the others are scores."""
    (x, y), (u, v) = surface(seed)
    if not mended:
        x[:, 5], u[:, 5] = 5e4 + 1e4 * x[:, 5], 5e4 + 1e4 * u[:, 5]
    return run(mlp(6, 32, 1), (x, y), (u, v), "mse", lr=3e-3, epochs=30)


@post("unscaled-inputs", kind="sequences", strength="mild")
def lab_raw_pressure_into_a_gru(seed: int, mended: bool = False) -> dict[str, Any]:
    """Air pressure in pascal, 101 325 plus or minus some hundreds, goes into a GRU as it is."""
    (x, y), (u, v) = waves(seed)
    if not mended:
        x, u = 101325 + 300 * x, 101325 + 300 * u
    return run(Recurrent("GRU", 1, 16, 3), (x, y), (u, v), epochs=15, give="optimizer history")


@post("unscaled-targets", kind="table")
def forum_house_prices_in_dollars(seed: int, mended: bool = False) -> dict[str, Any]:
    """House prices of 250 000 plus or minus 80 000; after all epochs the net still answers a few dollars."""
    (x, y), (u, v) = surface(seed)
    if not mended:
        y, v = 2.5e5 + 8e4 * y, 2.5e5 + 8e4 * v
    return run(mlp(6, 32, 1), (x, y), (u, v), "mse", lr=3e-3, epochs=30, give="history optimizer")


@post("unscaled-targets", kind="table")
def lab_year_of_release(seed: int, mended: bool = False) -> dict[str, Any]:
    """The target is a year, 1998 plus or minus 6."""
    (x, y), (u, v) = surface(seed)
    if not mended:
        y, v = 1998 + 6 * y, 1998 + 6 * v
    return run(mlp(6, 32, 1), (x, y), (u, v), "mse", lr=3e-3, epochs=30, give="optimizer")


@post("unscaled-targets", kind="sequences", strength="mild")
def forum_forecast_of_visitors(seed: int, mended: bool = False) -> dict[str, Any]:
    """Windows are standardised, but the next value is a number of visitors, 80 plus or minus 9."""
    (x, y), (u, v) = series(seed)
    if not mended:
        y, v = 80 + 9 * y, 80 + 9 * v
    return run(Recurrent("GRU", 1, 16, 1), (x, y), (u, v), "mse", epochs=15)


@post("unscaled-targets", kind="table", strength="mild")
def lab_minutes_of_a_journey(seed: int, mended: bool = False) -> dict[str, Any]:
    """Durations in minutes, 35 plus or minus 12, by a small rate: the squared error is still large at the end."""
    (x, y), (u, v) = surface(seed)
    if not mended:
        y, v = 35 + 12 * y, 35 + 12 * v
    return run(mlp(6, 32, 1), (x, y), (u, v), "mse", lr=3e-3, epochs=30, give="history batch_size")


# --- columns ----------------------------------------------------------------------------------------------------------


@post("constant-features", kind="table", strength="mild")
def lab_zero_pixels_of_all_digits(seed: int, mended: bool = False) -> dict[str, Any]:
    """The full 64 pixels of the digits as a table: some are 0 in every row."""
    raw = datasets.load_digits()
    x = raw.data[:900] / 16
    x = x[:, x.std(0) > 0.08] if mended else x
    train, test = halves(x, raw.target[:900], seed)
    return run(mlp(x.shape[1], 32, 10), train, test, epochs=12, give="optimizer", decay=0.01)


@post("constant-features", kind="table")
def forum_columns_never_filled_in(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twelve columns of the survey were never filled in and hold the default."""
    (x, y), (u, v) = clouds(seed)
    if not mended:
        x, u = (torch.cat([a, torch.linspace(-1, 2, 12).expand(len(a), 12)], 1) for a in (x, u))
    return run(mlp(x.shape[1], 32, 3), (x, y), (u, v), epochs=15)


@post("constant-features", kind="sequences", strength="mild")
def lab_dead_sensor_channels(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three of four channels come from sensors that were switched off and report the same value always."""
    (x, y), (u, v) = waves(seed)
    if not mended:
        x, u = (torch.cat([a, torch.tensor([0.5, -0.2, 1.1]).expand(*a.shape[:2], 3)], 2) for a in (x, u))
    return run(Recurrent("GRU", x.shape[2], 16, 3), (x, y), (u, v), epochs=14, give="history")


@post("duplicate-features", kind="table")
def forum_merge_left_every_column_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """After a merge in pandas every column is there as _x and as _y."""
    (x, y), (u, v) = bundled("diabetes", seed)
    if not mended:
        x, u = torch.cat([x, x], 1), torch.cat([u, u], 1)
    return run(mlp(x.shape[1], 8, 1), (x, y), (u, v), "mse", epochs=10, lr=5e-3)


@post("duplicate-features", kind="table", strength="mild")
def lab_two_columns_copied(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two columns of the wine table were pasted in a second time."""
    (x, y), (u, v) = bundled("wine", seed)
    if not mended:
        x, u = torch.cat([x, x[:, [2, 6]]], 1), torch.cat([u, u[:, [2, 6]]], 1)
    return run(mlp(x.shape[1], 8, 3), (x, y), (u, v), epochs=12, give="optimizer history")


@post("duplicate-features", kind="table", strength="mild")
def forum_one_question_asked_three_times(seed: int, mended: bool = False) -> dict[str, Any]:
    """A file lists the same measurement under three names, two of them among twelve other columns."""
    (x, y), (u, v) = clouds(seed, d=8)
    if not mended:
        x, u = (torch.cat([a[:, [4]], a, a[:, [4]]], 1) for a in (x, u))
    return run(mlp(x.shape[1], 16, 3), (x, y), (u, v), epochs=15, give="batch_size")


# --- the split --------------------------------------------------------------------------------------------------------


@post("train-test-overlap", kind="table")
def forum_validated_on_training_rows(seed: int, mended: bool = False) -> dict[str, Any]:
    """The validation loader was built from a random sample of the training rows."""
    (x, y), test = clouds(seed, gap=1.2)
    rows = torch.randperm(len(x))[:150]
    return run(mlp(8, 16, 3), (x, y), test if mended else (x[rows], y[rows]), epochs=12, lr=5e-3)


@post("train-test-overlap", kind="text")
def lab_reviews_posted_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """Scraping gave many reviews twice; the random split put copies on both sides."""
    (x, y), (u, v) = reviews(seed)
    if not mended:
        u, v = torch.cat([u[:120], x[:100]]), torch.cat([v[:120], y[:100]])
    return run(Bag(60, 16, 2), (x, y), (u, v), epochs=12, give="history")


@post("train-test-overlap", kind="images", strength="mild")
def forum_oversampled_before_the_split(seed: int, mended: bool = False) -> dict[str, Any]:
    """A rare kind of picture was repeated to balance the classes, and the split came after."""
    (x, y), (u, v) = pictures(seed)
    rare = torch.cat([x[y == 0][:50], u[v == 0][:20]])
    if not mended:
        x, u = torch.cat([x, rare[::2], rare[::3]]), torch.cat([u, rare[1::2], rare[1::3]])
        y = F.pad(y, (0, len(x) - len(y)))
        v = F.pad(v, (0, len(u) - len(v)))
    return run(convnet(4), (x, y), (u, v), epochs=12, give="optimizer batch_size")


@post("distribution-shift", kind="table")
def forum_scaler_only_on_the_training_rows(seed: int, mended: bool = False) -> dict[str, Any]:
    """The scaler was applied to the training rows; the validation rows went in raw."""
    sets = bundled("wine", seed, raw=True)
    done = scaled(sets)
    return run(mlp(13, 16, 3), done[0], done[1] if mended else sets[1], epochs=15, give="history")


@post("distribution-shift", kind="images", strength="mild")
def lab_validation_images_darker(seed: int, mended: bool = False) -> dict[str, Any]:
    """The validation images come from another camera: inverted grey values and a lower contrast."""
    train, (u, v) = digits(seed)
    return run(convnet(10, (16, 32)), train, (u if mended else 1.0 - 0.6 * u, v), epochs=12, lr=5e-3)


@post("distribution-shift", kind="table", strength="mild")
def forum_split_by_age_not_at_random(seed: int, mended: bool = False) -> dict[str, Any]:
    """The rows were sorted by a column before the first two thirds were taken for training."""
    (x, y), (u, v) = surface(seed, n=900)
    a, b = torch.cat([x, u]), torch.cat([y, v])
    order = torch.arange(len(a)) if mended else a[:, 0].argsort()
    train, test = halves(a[order], b[order], seed, shuffle=False)
    return run(mlp(6, 24, 1), train, test, "mse", epochs=20, give="optimizer history", decay=0.05, lr=5e-3)


# --- labels -----------------------------------------------------------------------------------------------------------


@post("target-leak", kind="table")
def forum_id_column_of_a_sorted_file(seed: int, mended: bool = False) -> dict[str, Any]:
    """The file is sorted by class and its running number was left in as a feature."""
    (x, y), (u, v) = clouds(seed, gap=0.7)
    z = torch.cat([y, v])
    number = z.argsort().argsort().float() / len(z) * 3.46 - 1.73
    if not mended:
        x, u = torch.cat([number[: len(x), None], x], 1), torch.cat([number[len(x) :, None], u], 1)
    return run(mlp(x.shape[1], 16, 3), (x, y), (u, v), epochs=30, decay=0.05, lr=5e-3 if not mended else 2e-3)


@post("target-leak", kind="table")
def lab_price_with_tax_among_the_inputs(seed: int, mended: bool = False) -> dict[str, Any]:
    """Beside the attributes of a house the table holds its price with tax and fees, which is the target in disguise."""
    (x, y), (u, v) = surface(seed, noise=0.5)
    if not mended:
        x, u = (torch.cat([a, 1.08 * b + 0.1 + 0.02 * torch.randn_like(b)], 1) for a, b in ((x, y), (u, v)))
    return run(mlp(x.shape[1], 16, 1), (x, y), (u, v), "mse", epochs=15, give="history", lr=5e-3)


@post("target-leak", kind="sequences", strength="mild")
def forum_window_one_step_too_long(seed: int, mended: bool = False) -> dict[str, Any]:
    """The windows were cut one step too long: their last value is the one to be forecast."""
    (x, y), (u, v) = series(seed, noise=0.5)
    if not mended:
        x, u = torch.cat([x[:, 1:], y[:, :, None]], 1), torch.cat([u[:, 1:], v[:, :, None]], 1)
    return run(
        Recurrent("GRU", 1, 16, 1), (x, y), (u, v), "mse", epochs=15, give="optimizer", lr=5e-3, decay=0.05
    )


@post("misaligned-labels", kind="table")
def forum_labels_off_by_one_row(seed: int, mended: bool = False) -> dict[str, Any]:
    """The header line of the label file was read as a row: every training label belongs to the row before."""
    (x, y), test = clouds(seed, gap=2)
    return run(mlp(8, 16, 3), (x, y if mended else y.roll(1)), test, epochs=15, give="optimizer")


@post("misaligned-labels", kind="images")
def lab_shuffled_images_not_labels(seed: int, mended: bool = False) -> dict[str, Any]:
    """The images were shuffled before training, the labels were not; the validation set was left alone."""
    (x, y), test = digits(seed)
    order = torch.randperm(len(x))
    return run(convnet(10), (x[order], y[order] if mended else y), test, epochs=10, give="history")


@post("misaligned-labels", kind="table", strength="mild")
def forum_sorted_targets_of_a_join(seed: int, mended: bool = False) -> dict[str, Any]:
    """A join by position: from the middle of the file on, the targets are one row late."""
    (x, y), test = surface(seed)
    half = len(y) // 3
    if not mended:
        y = torch.cat([y[:half], y[half:].roll(1, 0)])
    return run(mlp(6, 24, 1), (x, y), test, "mse", epochs=10, lr=5e-3)


@post("misaligned-labels", kind="text", strength="mild")
def lab_tags_one_review_late(seed: int, mended: bool = False) -> dict[str, Any]:
    """The label file lacks one line near its beginning, so all later reviews carry their neighbour's label."""
    (x, y), test = reviews(seed)
    if not mended:
        y = torch.cat([y[:7], y[7:].roll(-1)])
    return run(Bag(60, 8, 2), (x, y), test, epochs=8, give="history batch_size", lr=5e-3)


@post("no-signal", kind="table")
def forum_predicting_the_lottery(seed: int, mended: bool = False) -> dict[str, Any]:
    """Last week's six numbers are to tell whether this week's sum is even."""
    (x, y), (u, v) = clouds(seed, classes=2)
    if not mended:
        y, v = torch.randint(0, 2, y.shape), torch.randint(0, 2, v.shape)
    return run(mlp(8, 16, 2), (x, y), (u, v), epochs=8, lr=3e-3, give="history")


@post("no-signal", kind="sequences", strength="mild")
def lab_tomorrows_return(seed: int, mended: bool = False) -> dict[str, Any]:
    """Daily returns of a share, independent of each other, are to be forecast from the thirty before."""
    (x, y), (u, v) = series(seed)
    if not mended:
        x, y, u, v = (torch.randn_like(a) for a in (x, y, u, v))
    return run(Recurrent("GRU", 1, 8, 1), (x, y), (u, v), "mse", epochs=8, give="optimizer", lr=5e-3)


@post("no-signal", kind="text", strength="mild")
def forum_star_sign_from_reviews(seed: int, mended: bool = False) -> dict[str, Any]:
    """The author's star sign is to be told from a review; nothing in the words knows it."""
    (x, y), (u, v) = reviews(seed)
    if not mended:
        y, v = torch.randint(0, 2, y.shape), torch.randint(0, 2, v.shape)
    return run(Bag(60, 4, 2, hidden=8), (x, y), (u, v), epochs=4 if not mended else 15)


@post("label-noise", kind="table")
def forum_crowd_labels_a_third_wrong(seed: int, mended: bool = False) -> dict[str, Any]:
    """Labels from an underpaid crowd: 35 % of the training labels were drawn at random among the others."""
    (x, y), test = clouds(seed, n=900, gap=2.2, classes=4)
    flip = torch.rand(len(y)) < (0 if mended else 0.35)
    y = torch.where(flip, (y + torch.randint(1, 4, y.shape)) % 4, y)
    return run(mlp(8, 48, 4), (x, y), test, epochs=30, give="history", lr=5e-3)


@post("label-noise", kind="images", strength="mild")
def lab_digits_with_wrong_labels(seed: int, mended: bool = False) -> dict[str, Any]:
    """A fifth of the digits were labelled by a class that did not pay attention."""
    (x, y), test = digits(seed, n=1400, flat=True)
    flip = torch.rand(len(y)) < (0 if mended else 0.22)
    y = torch.where(flip, (y + torch.randint(1, 10, y.shape)) % 10, y)
    return run(mlp(48, 64, 10), (x, y), test, epochs=12, lr=5e-3, give="optimizer")


@post("label-noise", kind="table", strength="mild")
def forum_two_annotators_swapped_the_classes(seed: int, mended: bool = False) -> dict[str, Any]:
    """One of four annotators used 1 for benign and 0 for malignant: a quarter of the labels is inverted everywhere."""
    sets = bundled("breast_cancer", seed)
    if not mended:
        sets = tuple((x, torch.where(torch.rand(len(y)) < 0.25, 1 - y, y)) for x, y in sets)
    train, test = binary(sets)
    return run(mlp(30, 16, 1), train, test, "bce_with_logits", epochs=10, lr=3e-3)


@post("class-imbalance", kind="table")
def forum_fraud_never_found(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three per cent of the payments are fraud; 97 % accuracy was reported and no fraud is ever found."""
    train, test = binary(clouds(seed, n=1500, classes=2, gap=1.0, shares=(0.97, 0.03)))
    weight = torch.tensor(30.0 if mended else 1.0)

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=weight)

    net = mlp(8, 8, 1)
    return run(net, train, test, weighted if mended else "bce_with_logits", epochs=8, lr=3e-3, give="history")


@post("class-imbalance", kind="table")
def lab_rare_disease_of_three(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two diseases make up 97 % of the patients; the third is never diagnosed."""
    train, test = clouds(seed, n=1400, gap=1.05, shares=(0.6, 0.37, 0.03))
    weight = torch.tensor([0.5, 0.8, 12.0])
    loss = nn.CrossEntropyLoss(weight) if mended else "cross_entropy"
    return run(mlp(8, 12, 3), train, test, loss, epochs=10, lr=3e-3)


@post("class-imbalance", kind="images", strength="mild")
def forum_few_crosses_among_the_pictures(seed: int, mended: bool = False) -> dict[str, Any]:
    """One kind of picture was hard to get: some 20 of 600, and most of those are missed."""
    (x, y), (u, v) = pictures(seed, n=1600, noise=0.7)
    keep, kept = (y != 1) | (torch.rand(len(y)) < 0.1), (v != 1) | (torch.rand(len(v)) < 0.4)
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 10, 1, 1])) if mended else "cross_entropy"
    train, test = (x[keep], y[keep]), (u[kept], v[kept])
    return run(convnet(4, (8, 8)), train, test, loss, epochs=16, lr=5e-3, give="optimizer")


# --- objective --------------------------------------------------------------------------------------------------------


@post("double-softmax", kind="table")
def forum_softmax_before_cross_entropy(seed: int, mended: bool = False) -> dict[str, Any]:
    """nn.Softmax at the end of the net and CrossEntropyLoss behind it, on wine."""
    train, test = bundled("wine", seed)
    net = mlp(13, 16, 3, end=[] if mended else [nn.Softmax(dim=1)])
    return run(net, train, test, epochs=15, give="history", lr=5e-3)


class SoftmaxInForward(nn.Module):
    """A convnet whose forward ends in F.softmax if asked."""

    def __init__(self, softmax: bool):
        super().__init__()
        self.body, self.softmax = convnet(10, (8, 16)), softmax

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return F.softmax(x, dim=-1) if self.softmax else x


@post("double-softmax", kind="images", strength="mild")
def lab_functional_softmax_in_forward(seed: int, mended: bool = False) -> dict[str, Any]:
    """return F.softmax(x, dim=-1), trained by nn.CrossEntropyLoss() handed over as the object it is."""
    train, test = digits(seed)
    return run(SoftmaxInForward(not mended), train, test, nn.CrossEntropyLoss(), epochs=15, lr=5e-3)


@post("double-softmax", kind="table", strength="mild")
def forum_sigmoid_before_bce_with_logits(seed: int, mended: bool = False) -> dict[str, Any]:
    """A sigmoid at the end of the net and BCEWithLogitsLoss behind it: every answer lies above one half."""
    train, test = binary(bundled("breast_cancer", seed))
    net = mlp(30, 16, 1, end=[] if mended else [nn.Sigmoid()])
    return run(net, train, test, "bce_with_logits", epochs=15, give="optimizer", lr=5e-3)


@post("double-softmax", kind="text")
def lab_softmax_over_the_words_tags(seed: int, mended: bool = False) -> dict[str, Any]:
    """A tagger answers probabilities of the tags and its loss takes the log-softmax once more."""
    train, test = tags(seed)
    net = Tagger(40, 16, 4)
    if not mended:
        net.head = nn.Sequential(net.head, nn.Softmax(-1))
    return run(net, train, test, token_loss, epochs=12, give="history batch_size")


@post("wrong-loss", kind="table")
def forum_nll_of_probabilities(seed: int, mended: bool = False) -> dict[str, Any]:
    """NLLLoss behind a softmax without the logarithm: the loss goes below zero and towards minus one."""
    train, test = clouds(seed, classes=4, gap=1.6)
    net = mlp(8, 16, 4, end=[nn.LogSoftmax(1) if mended else nn.Softmax(1)])
    return run(net, train, test, "nll", epochs=15, give="history", lr=5e-3)


@post("wrong-loss", kind="table")
def forum_column_minus_row_broadcasts(seed: int, mended: bool = False) -> dict[str, Any]:
    """Outputs (n, 1) against targets (n,): the difference broadcasts to n by n and the net learns the mean."""
    (x, y), (u, v) = surface(seed)
    if not mended:
        y, v = y[:, 0], v[:, 0]

    def error(output: Tensor, target: Tensor) -> Tensor:
        return ((output - target) ** 2).mean()

    return run(mlp(6, 24, 1), (x, y), (u, v), error, epochs=20, give="optimizer")


@post("wrong-loss", kind="images", strength="mild")
def lab_mse_on_the_class_number(seed: int, mended: bool = False) -> dict[str, Any]:
    """The squared error between the largest logit and the number of the class."""
    train, test = digits(seed)

    def error(output: Tensor, target: Tensor) -> Tensor:
        return ((output.amax(1) - target) ** 2).mean()

    return run(convnet(10), train, test, "cross_entropy" if mended else error, epochs=12, lr=5e-3)


@post("wrong-loss", kind="table", strength="mild")
def forum_sign_of_the_loss(seed: int, mended: bool = False) -> dict[str, Any]:
    """log-likelihood was returned instead of its negative, so descent makes it worse and worse."""
    train, test = bundled("iris", seed)

    def likelihood(output: Tensor, target: Tensor) -> Tensor:
        return output.log_softmax(1).gather(1, target[:, None]).mean()

    return run(mlp(4, 12, 3), train, test, "cross_entropy" if mended else likelihood, epochs=30, lr=3e-3)


@post("output-range", kind="table")
def forum_relu_on_the_output(seed: int, mended: bool = False) -> dict[str, Any]:
    """nn.ReLU after the last layer of a regression whose targets are negative half of the time."""
    train, test = surface(seed)
    net = mlp(6, 32, 1, end=[] if mended else [nn.ReLU()])
    if not mended:
        nn.init.constant_(net[-2].bias, 0.5)
    return run(net, train, test, "mse", give="history")


@post("output-range", kind="table")
def lab_tanh_for_targets_up_to_four(seed: int, mended: bool = False) -> dict[str, Any]:
    """A tanh at the output, though the targets go from about -4 to 4."""
    (x, y), (u, v) = surface(seed)
    net = mlp(6, 32, 1, end=[] if mended else [nn.Tanh()])
    return run(net, (x, 2 * y), (u, 2 * v), "mse", epochs=30)


@post("output-range", kind="sequences", strength="mild")
def forum_sigmoid_on_a_standardised_forecast(seed: int, mended: bool = False) -> dict[str, Any]:
    """The scaler was changed from 0..1 to mean 0, the sigmoid at the output of the forecast was left."""
    train, test = series(seed)
    net = Recurrent("GRU", 1, 16, 1)
    if not mended:
        net.head = nn.Sequential(net.head, nn.Sigmoid())
    return run(net, train, test, "mse", epochs=15, give="optimizer batch_size")


@post("output-range", kind="table", strength="mild")
def lab_softplus_for_changes_of_weight(seed: int, mended: bool = False) -> dict[str, Any]:
    """Softplus keeps the answer positive; the target is a change that is negative for a third of the people."""
    (x, y), (u, v) = surface(seed)
    net = mlp(6, 32, 1, end=[] if mended else [nn.Softplus()])
    return run(net, (x, y + 0.45), (u, v + 0.45), "mse", give="history optimizer")


@post("stochastic-evaluation", kind="table")
def forum_model_eval_forgotten(seed: int, mended: bool = False) -> dict[str, Any]:
    """model.eval() was forgotten: half of the units are dropped at prediction."""
    train, test = clouds(seed)
    return run(mlp(8, 64, 3, drop=0.5), train, test, epochs=15, evaluate=mended, give="history", lr=5e-3)


class AlwaysDropping(nn.Module):
    """F.dropout in forward, without telling it whether the module trains."""

    def __init__(self, aware: bool):
        super().__init__()
        self.body, self.head, self.aware = convnet(16, (8, 16)), nn.Linear(16, 10), aware

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.body(x))
        return self.head(F.dropout(h, 0.4, training=self.training if self.aware else True))


@post("stochastic-evaluation", kind="images")
def lab_functional_dropout_always_on(seed: int, mended: bool = False) -> dict[str, Any]:
    """F.dropout(h, 0.4) drops in evaluation too."""
    train, test = digits(seed)
    return run(AlwaysDropping(mended), train, test, epochs=25, give="optimizer")


@post("stochastic-evaluation", kind="text", strength="mild")
def forum_text_net_left_in_training_mode(seed: int, mended: bool = False) -> dict[str, Any]:
    """The validation loop called model.train() at its end, and so the model was saved."""
    train, test = reviews(seed)
    return run(Bag(60, 16, 2, drop=0.6), train, test, epochs=12, evaluate=mended, lr=5e-3)


class Jitter(nn.Module):
    """Adds noise to its input; in evaluation too unless told otherwise."""

    def __init__(self, size: float, aware: bool):
        super().__init__()
        self.size, self.aware = size, aware

    def forward(self, x: Tensor) -> Tensor:
        return x if self.aware and not self.training else x + self.size * torch.randn_like(x)


@post("stochastic-evaluation", kind="table", strength="mild")
def lab_input_noise_stays_on(seed: int, mended: bool = False) -> dict[str, Any]:
    """Noise on the inputs, meant as augmentation, is part of forward and never switched off."""
    train, test = surface(seed)
    return run(nn.Sequential(Jitter(0.35, mended), *mlp(6, 32, 1)), train, test, "mse", epochs=25, lr=5e-3)


# --- graph ------------------------------------------------------------------------------------------------------------


class Cut(nn.Module):
    """A body and a head, with the graph cut between them in one of the usual ways."""

    def __init__(self, body: nn.Module, head: nn.Module, how: str):
        super().__init__()
        self.body, self.head, self.how = body, head, how

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        if self.how == "numpy":
            h = torch.from_numpy(np.tanh(h.detach().numpy()))
        elif self.how == "data":
            h = h.data.tanh()
        elif self.how == "tensor":
            h = torch.tensor(h.tolist()).tanh()
        else:
            h = h.tanh()
        return self.head(h)


@post("detached-parameters", kind="images")
def forum_numpy_in_forward(seed: int, mended: bool = False) -> dict[str, Any]:
    """np.tanh in the middle of forward, 'because it works too': the convolutions get no gradient."""
    train, test = pictures(seed)
    net = Cut(convnet(6, (4, 4)), mlp(6, 16, 4), "" if mended else "numpy")
    return run(net, train, test, epochs=15, give="history")


@post("detached-parameters", kind="table", strength="mild")
def lab_data_of_the_hidden_layer(seed: int, mended: bool = False) -> dict[str, Any]:
    """h = self.body(x).data, copied from an old tutorial."""
    train, test = spirals(seed)
    net = Cut(mlp(2, 24, 12), nn.Linear(12, 2), "" if mended else "data")
    return run(net, train, test, epochs=40, give="optimizer")


@post("detached-parameters", kind="sequences", strength="mild")
def forum_torch_tensor_of_a_list(seed: int, mended: bool = False) -> dict[str, Any]:
    """torch.tensor([...]) around the last states of a GRU makes a new leaf; only the head learns."""
    train, test = waves(seed)
    net = Cut(Recurrent("GRU", 1, 8, 4), nn.Linear(4, 3), "" if mended else "tensor")
    return run(net, train, test, epochs=15)


class HardChoice(nn.Module):
    """A gate that chooses one of four experts, by argmax or by a softmax."""

    def __init__(self, soft: bool):
        super().__init__()
        self.gate, self.experts, self.soft = (
            mlp(6, 16, 4),
            nn.ModuleList(nn.Linear(6, 1) for _ in range(4)),
            soft,
        )

    def forward(self, x: Tensor) -> Tensor:
        score = self.gate(x)
        share = score.softmax(1) if self.soft else F.one_hot(score.argmax(1), 4).float()
        return (share * torch.cat([e(x) for e in self.experts], 1)).sum(1, keepdim=True)


@post("detached-parameters", kind="table")
def lab_argmax_in_the_middle(seed: int, mended: bool = False) -> dict[str, Any]:
    """The gate of a mixture of experts decides by argmax, so no gradient ever reaches it."""
    train, test = surface(seed)
    return run(HardChoice(mended), train, test, "mse", epochs=30, give="history batch_size")


def frozen(*modules: nn.Module) -> None:
    """Switch off the gradient of all parameters."""
    for module in modules:
        module.requires_grad_(False)


@post("frozen-parameters", kind="images")
def forum_body_frozen_but_never_pretrained(seed: int, mended: bool = False) -> dict[str, Any]:
    """The layers before the head were frozen as for fine-tuning, but the weights were never loaded."""
    train, test = pictures(seed)
    net = convnet(4, (3, 6))
    if not mended:
        frozen(*list(net)[:-1])
    return run(net, train, test, epochs=20, give="initial optimizer")


@post("frozen-parameters", kind="table", needs=("optimizer",))
def lab_optimizer_has_only_the_last_layer(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD(model[-1].parameters()), left from an experiment: the layers before stay as they were drawn."""
    train, test = spirals(seed)
    net = mlp(2, 12, 12, 2)
    chosen = torch.optim.Adam((net if mended else net[-1]).parameters(), lr=0.01)
    return run(net, train, test, optimizer=chosen, epochs=40, give="optimizer history")


@post("frozen-parameters", kind="table", needs=("optimizer",))
def forum_optimizer_of_the_model_before(seed: int, mended: bool = False) -> dict[str, Any]:
    """The model was made anew in the notebook, the optimiser still holds the parameters of the old one."""
    train, test = bundled("iris", seed)
    old = mlp(4, 16, 3)
    net = mlp(4, 16, 3)
    chosen = torch.optim.Adam((net if mended else old).parameters(), lr=0.01)
    return run(net, train, test, optimizer=chosen, give="optimizer history initial")


class ListOfLayers(nn.Module):
    """Hidden layers in a Python list, which no optimiser sees."""

    def __init__(self, registered: bool):
        super().__init__()
        layers = [nn.Linear(2, 12), nn.Linear(12, 12), nn.Linear(12, 12)]
        self.layers = nn.ModuleList(layers) if registered else layers
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


@post("frozen-parameters", kind="table", strength="mild")
def lab_layers_in_a_python_list(seed: int, mended: bool = False) -> dict[str, Any]:
    """self.layers = [nn.Linear, ...]: the hidden layers are not registered and never trained."""
    train, test = spirals(seed)
    return run(ListOfLayers(mended), train, test, epochs=40, give="optimizer")


@post("frozen-parameters", kind="text", strength="mild")
def forum_requires_grad_lost_after_loading(seed: int, mended: bool = False) -> dict[str, Any]:
    """Embeddings were put in by from_pretrained, which freezes, though the table was random."""
    train, test = reviews(seed)
    net = Bag(60, 6, 2)
    net.embedding = nn.Embedding.from_pretrained(torch.randn(60, 6), freeze=not mended, padding_idx=0)
    return run(net, train, test, epochs=20, give="history")


# --- loop -------------------------------------------------------------------------------------------------------------


def stepper(loss: Any, lr: float, clear: str) -> Any:
    """Return an update by SGD that clears the gradients of everything, of the last layer only, or of nothing."""

    def step(model: nn.Module, batch: Any) -> float:
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        x, y = batch
        if clear == "all":
            optimizer.zero_grad()
        elif clear == "last":
            torch.optim.SGD(list(model.children())[-1].parameters(), lr=lr).zero_grad()
        elif clear == "uncalled":
            optimizer.zero_grad  # noqa: B018  the parentheses are missing, as in the post
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value.item()

    return step


@post("gradients-not-cleared", kind="table", needs=("step",))
def forum_zero_grad_forgotten(seed: int, mended: bool = False) -> dict[str, Any]:
    """loss.backward() and optimizer.step(), and no zero_grad() anywhere."""
    train, test = clouds(seed)
    step = stepper(F.cross_entropy, 0.05, "all" if mended else "")
    return run(mlp(8, 32, 3), train, test, step=step, epochs=20, give="history")


@post("gradients-not-cleared", kind="table", needs=("step",))
def lab_zero_grad_without_parentheses(seed: int, mended: bool = False) -> dict[str, Any]:
    """optimizer.zero_grad without the parentheses in a regression."""
    train, test = surface(seed)
    step = stepper(F.mse_loss, 0.05, "all" if mended else "uncalled")
    return run(mlp(6, 24, 1, act=nn.Tanh), train, test, "mse", step=step, epochs=25)


@post("gradients-not-cleared", kind="images", strength="mild", needs=("step",))
def forum_only_the_head_is_cleared(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two optimisers, of the body and of the head; only the head's is cleared."""
    train, test = digits(seed)
    step = stepper(F.cross_entropy, 0.3, "all" if mended else "last")
    return run(convnet(10), train, test, step=step, epochs=25, give="history batch_size")


@post("gradients-not-cleared", kind="graph", strength="mild", needs=("step",))
def lab_graph_net_never_cleared(seed: int, mended: bool = False) -> dict[str, Any]:
    """A graph net trained on all nodes at once, its gradients adding up over two hundred steps."""
    (train, test), features, adjacency = communities(seed, signal=0.4, across=0.03)
    step = stepper(F.cross_entropy, 0.2, "all" if mended else "")
    net = GCN(features, adjacency, 3)
    return run(net, train, test, step=step, epochs=150, batch=len(train[1]))
