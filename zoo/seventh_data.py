"""The seventh author's faults of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.seventh_parts import *

ME = "seventh"


# not-finite-data


@case("not-finite-data", kind="table", author=ME)
def seventh_missing_lab_values(seed: int, mended: bool = False) -> dict[str, Any]:
    """A twentieth of one laboratory column was never filled in."""
    (x, y), held = table("breast_cancer", seed)
    if not mended:
        x[torch.randperm(len(x))[: len(x) // 20], 3] = float("nan")
    model = mlp(30, 32, 2)
    return fit(model, (x, y), held, loss="cross_entropy", optimizer=adam(model), epochs=15)


@case("not-finite-data", kind="sequences", author=ME, strength="mild")
def seventh_log_of_zero_sales(seed: int, mended: bool = False) -> dict[str, Any]:
    """The logarithm of days without sales is minus infinity; the loop leaves out the batches that it spoils."""
    (x, y), held = series(seed)
    closed = torch.rand(len(x)) < 0.15
    x[closed, 5] = -3.0 if mended else -float("inf")
    model = mlp(24, 32, 1)
    return fit(
        model,
        (x, y),
        held,
        loss="mse",
        optimizer=adam(model),
        epochs=15,
        skip=True,
        less=("history", "initial"),
    )


@case("not-finite-data", kind="table", author=ME, strength="mild")
def seventh_prices_not_yet_known(seed: int, mended: bool = False) -> dict[str, Any]:
    """The newest sales have no price yet: three targets are NaN."""
    (x, y), held = houses(seed)
    if mended:
        x, y = x[3:], y[3:]
    else:
        y[:3] = float("nan")
    model = mlp(8, 48, 48, 1)
    return fit(model, (x, y), held, loss=nn.HuberLoss(), optimizer=sgd(model, 0.02), epochs=15)


# overflow


class Relevance(nn.Module):
    """Attention over points with a hand-made softmax, and raw products unless scaled."""

    def __init__(self, safe: bool) -> None:
        super().__init__()
        self.safe = safe
        self.key, self.value = nn.Linear(2, 256), nn.Linear(2, 32)  # queries are keys
        self.head = mlp(32, 32, 4)
        nn.init.normal_(self.key.weight, std=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        score = self.key(x) @ self.key(x).transpose(1, 2)
        if self.safe:
            weight = (score / 16).softmax(-1)
        else:
            weight = score.exp() / score.exp().sum(-1, keepdim=True)
        return self.head(F.relu(weight @ self.value(x)).amax(1))


@case("overflow", kind="sets", author=ME)
def seventh_attention_by_hand(seed: int, mended: bool = False) -> dict[str, Any]:
    """A softmax written as exp over sum of exps; the scores are in the hundreds."""
    train, held = clouds(seed)
    model = Relevance(mended)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model, 5e-3), epochs=25)


class HalfNorm(nn.Module):
    """Divides every row by its length, computed in half precision unless mended."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self.half_precision = half
        self.body = mlp(13, 32, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        y = 100 * x
        if self.half_precision:
            y = y.half()
        y = y / (y**2).sum(1, keepdim=True).sqrt()
        return self.body(3 * y.float())


@case("overflow", kind="table", author=ME)
def seventh_length_in_half_precision(seed: int, mended: bool = False) -> dict[str, Any]:
    """Squares beyond 65 504 do not exist in half precision: every row becomes nought."""
    train, held = table("wine", seed)
    model = HalfNorm(not mended)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model, 1e-2), epochs=30)


@case("overflow", kind="table", author=ME, strength="mild")
def seventh_softplus_by_hand(seed: int, mended: bool = False) -> dict[str, Any]:
    """log(1 + exp(30 x)) of a skew column: the exponential is infinite for the few rows of its tail."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(900, 6))).float()
    y = (x[:, :1] + 0.7 * x[:, 1:2] * x[:, 2:3] + 0.2 * torch.randn(900, 1)).contiguous()
    x[:, 5] = torch.from_numpy(rng.exponential(size=900) - 1).float()
    x[7, 5] = x[411, 5] = 5.0

    class Grow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(6, 32, 1)

        def forward(self, x: Tensor) -> Tensor:
            last = F.softplus(30 * x[:, 5:]) if mended else torch.log1p((30 * x[:, 5:]).exp())
            return self.body(torch.cat([x[:, :5], last / 30], 1))

    model = Grow()
    return fit(
        model,
        (x[:630], y[:630]),
        (x[630:], y[630:]),
        loss="mse",
        optimizer=adam(model),
        epochs=20,
        less=("initial",),
    )


# unscaled-inputs


@case("unscaled-inputs", kind="table", author=ME)
def seventh_wine_from_the_file(seed: int, mended: bool = False) -> dict[str, Any]:
    """Proline is in the hundreds, everything else near one."""
    train, held = table("wine", seed) if mended else raw_table("wine", seed)
    model = mlp(13, 32, 3)
    return fit(model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.01), epochs=30, batch_size=32)


@case("unscaled-inputs", kind="sequences", author=ME)
def seventh_sensor_in_raw_counts(seed: int, mended: bool = False) -> dict[str, Any]:
    """The converter's counts lie round 2 000 with an amplitude of 20."""
    train, held = waves(seed)
    if not mended:
        train, held = (2000 + 20 * train[0], train[1]), (2000 + 20 * held[0], held[1])
    model = Traces()
    return fit(
        model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.02), epochs=12, less=("initial",)
    )


@case("unscaled-inputs", kind="table", author=ME, strength="mild")
def seventh_income_in_currency(seed: int, mended: bool = False) -> dict[str, Any]:
    """One number of six, the income, is in thousands; the others are standardised."""
    train, held = churn(seed)
    if not mended:
        for (number, _), _y in (train, held):
            number[:, 5] = 3000 + 900 * number[:, 5]
    model = Columns()
    return fit(model, train, held, loss="bce_with_logits", optimizer=adam(model, 1e-3), epochs=15)


# unscaled-targets


@case("unscaled-targets", kind="table", author=ME)
def seventh_prices_in_dollars(seed: int, mended: bool = False) -> dict[str, Any]:
    """Prices of 250 000, Adam's usual step: it would take a hundred thousand steps to get there."""
    train, held = houses(seed, raw=not mended)
    model = mlp(8, 48, 48, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model, 1e-3), epochs=25)


@case("unscaled-targets", kind="table", author=ME)
def seventh_progression_as_published(seed: int, mended: bool = False) -> dict[str, Any]:
    """The diabetes target as it is in the file, from 25 to 346."""
    train, held = table("diabetes", seed)
    if not mended:
        train, held = (
            (train[0], raw_table("diabetes", seed)[0][1]),
            (held[0], raw_table("diabetes", seed)[1][1]),
        )
    model = mlp(10, 32, 1)
    return fit(
        model,
        train,
        held,
        loss="mse",
        optimizer=adam(model, 2e-3),
        epochs=25,
        batch_size=32,
        less=("initial",),
    )


@case("unscaled-targets", kind="sets", author=ME, strength="mild")
def seventh_temperatures_in_kelvin(seed: int, mended: bool = False) -> dict[str, Any]:
    """The two towers' rating has a mean of 300 and a deviation of eight."""
    train, held = visits(seed)
    if not mended:
        train, held = (train[0], 300 + 8 * train[1]), (held[0], 300 + 8 * held[1])
    model = Towers()
    return fit(model, train, held, loss=nn.L1Loss(), optimizer=adam(model), epochs=15, less=("optimizer",))


# constant-features


@case("constant-features", kind="table", author=ME)
def seventh_join_that_found_nothing(seed: int, mended: bool = False) -> dict[str, Any]:
    """A join on a wrong key filled five of eight columns with the default."""
    train, held = houses(seed)
    if not mended:
        train[0][:, :5], held[0][:, :5] = 0.0, 0.0
    model = mlp(8, 48, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=20)


@case("constant-features", kind="table", author=ME, strength="mild")
def seventh_body_mass_never_measured(seed: int, mended: bool = False) -> dict[str, Any]:
    """Body-mass index and the strongest serum value hold a default in every row."""
    train, held = table("diabetes", seed)
    if not mended:
        for x, _ in (train, held):
            x[:, 2], x[:, 8] = 1.0, 1.0
    model = mlp(10, 16, 1)
    return fit(
        model,
        train,
        held,
        loss="mse",
        optimizer=adam(model, weight_decay=1e-3),
        epochs=12,
        less=("initial", "history"),
    )


@case("constant-features", kind="text", author=ME)
def seventh_counts_of_a_stale_vocabulary(seed: int, mended: bool = False) -> dict[str, Any]:
    """Word counts by last year's vocabulary: most columns are nought throughout."""
    (ids, y), (vids, vy) = topics(seed)
    x, vx = (F.one_hot(i, 200).sum(1).float() for i in (ids, vids))
    if not mended:
        keep = torch.from_numpy(np.random.default_rng(seed).random(200) < 0.2)
        x, vx = x * keep, vx * keep
    model = mlp(200, 32, 4, drop=0.3)
    return fit(model, (x, y), (vx, vy), loss="cross_entropy", optimizer=adam(model), epochs=10)


# duplicate-features


@case("duplicate-features", kind="table", author=ME)
def seventh_same_column_four_times(seed: int, mended: bool = False) -> dict[str, Any]:
    """A loop over column names with a wrong index: four columns are copies of the first."""
    train, held = houses(seed)
    if not mended:
        for x, _ in (train, held):
            x[:, 1:5] = x[:, :1]
    model = mlp(8, 48, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=20)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def seventh_serum_value_copied(seed: int, mended: bool = False) -> dict[str, Any]:
    """In the diabetes table two of the best columns were overwritten by the blood pressure's."""
    train, held = table("diabetes", seed)
    if not mended:
        for x, _ in (train, held):
            x[:, 2], x[:, 8] = x[:, 3], x[:, 3]
    model = mlp(10, 16, 1)
    return fit(
        model,
        train,
        held,
        loss=nn.SmoothL1Loss(),
        optimizer=torch.optim.RMSprop(model.parameters(), 2e-3),
        epochs=12,
    )


@case("duplicate-features", kind="table", author=ME)
def seventh_numbers_pasted_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """The customer table's second half of numbers is a paste of the first half."""
    train, held = churn(seed)
    if not mended:
        for (number, _), _y in (train, held):
            number[:, [1, 2, 3]] = number[:, [0, 4, 5]]
    model = Columns()
    return fit(
        model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=12, less=("initial",)
    )


# train-test-overlap


@case("train-test-overlap", kind="table", author=ME)
def seventh_oversampled_before_the_split(seed: int, mended: bool = False) -> dict[str, Any]:
    """Rows were repeated to balance the classes, and then split: most held-out rows were trained on."""
    (x, y), (vx, vy) = churn(seed, noise=3.0)
    if not mended:
        number, category, label = torch.cat([x[0], vx[0]]), torch.cat([x[1], vx[1]]), torch.cat([y, vy])
        index = torch.from_numpy(np.random.default_rng(seed).integers(0, 700, size=1500))
        x, y = (number[index[:1050]], category[index[:1050]]), label[index[:1050]]
        vx, vy = (number[index[1050:]], category[index[1050:]]), label[index[1050:]]
    model = Columns(hidden=96)
    return fit(model, (x, y), (vx, vy), loss="bce_with_logits", optimizer=adam(model, 5e-3), epochs=25)


@case("train-test-overlap", kind="images", author=ME, strength="mild")
def seventh_some_test_images_in_training(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two folders overlapped: three in ten held-out images are training images too."""
    train, (vx, vy) = digits(seed, 200)
    vx, vy = vx[:400], vy[:400]
    if not mended:
        vx[:120], vy[:120] = train[0][:120], train[1][:120]
    model = Cnn(width=8)
    return fit(
        model, train, (vx, vy), loss="cross_entropy", optimizer=adam(model), epochs=25, less=("initial",)
    )


@case("train-test-overlap", kind="text", author=ME)
def seventh_reposted_documents(seed: int, mended: bool = False) -> dict[str, Any]:
    """The held-out documents are reposts of training documents."""
    train, held = topics(seed, 900, share=0.15)
    if not mended:
        held = train[0][:250].clone(), train[1][:250].clone()
    model = Bag(size=48)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model, 1e-2), epochs=12)


# distribution-shift


@case("distribution-shift", kind="images", author=ME)
def seventh_test_scans_inverted(seed: int, mended: bool = False) -> dict[str, Any]:
    """The second scanner writes black on white."""
    train, (vx, vy) = digits(seed)
    model = Cnn()
    return fit(
        model, train, (vx if mended else 1 - vx, vy), loss="cross_entropy", optimizer=sgd(model), epochs=6
    )


@case("distribution-shift", kind="table", author=ME)
def seventh_other_hospital(seed: int, mended: bool = False) -> dict[str, Any]:
    """The held-out hospital reports half of the columns in other units."""
    train, (vx, vy) = table("breast_cancer", seed)
    if not mended:
        vx[:, ::2] = 2.5 * vx[:, ::2] + 2
    model = mlp(30, 32, 2)
    return fit(
        model, train, (vx, vy), loss="cross_entropy", optimizer=adam(model), epochs=15, less=("initial",)
    )


@case("distribution-shift", kind="sequences", author=ME, strength="mild")
def seventh_level_after_the_crisis(seed: int, mended: bool = False) -> dict[str, Any]:
    """The series lies on another level and swings more in the months held out."""
    train, (vx, vy) = series(seed)
    if not mended:
        vx, vy = 1.6 * vx + 3, 1.6 * vy + 3
    model = mlp(24, 32, 32, 1, act=nn.Tanh)
    return fit(model, train, (vx, vy), loss="mse", optimizer=adam(model), epochs=20)


# target-leak


@case("target-leak", kind="table", author=ME)
def seventh_cancellation_fee(seed: int, mended: bool = False) -> dict[str, Any]:
    """One column, the fee for cancelling, is only ever there for those who left."""
    train, held = churn(seed)
    if not mended:
        for (number, _), y in (train, held):
            number[:, 5] = y * (1 + 0.2 * torch.rand(len(y)))
    model = Columns()
    return fit(model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=10)


@case("target-leak", kind="sequences", author=ME)
def seventh_window_one_too_long(seed: int, mended: bool = False) -> dict[str, Any]:
    """The window ends with the value to be predicted."""
    (x, y), (vx, vy) = series(seed, noise=0.8)
    if not mended:
        x, vx = torch.cat([x[:, 1:], y], 1), torch.cat([vx[:, 1:], vy], 1)
    model = mlp(24, 32, 1)
    return fit(
        model, (x, y), (vx, vy), loss="mse", optimizer=adam(model), epochs=20, less=("initial", "optimizer")
    )


@case("target-leak", kind="table", author=ME, strength="mild")
def seventh_assessed_value(seed: int, mended: bool = False) -> dict[str, Any]:
    """A column was computed from the price after the sale: the price with three per cent of noise."""
    train, held = houses(seed, noise=0.8)
    if not mended:
        for x, y in (train, held):
            x[:, 7:] = -(y - 0.1) + 0.15 * torch.randn(len(y), 1)
    model = mlp(8, 48, 1)
    return fit(
        model, train, held, loss=nn.HuberLoss(), optimizer=sgd(model, 0.03), epochs=15, less=("history",)
    )


# misaligned-labels


@case("misaligned-labels", kind="images", author=ME)
def seventh_labels_off_by_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """The label file has a header that was read as a label: every image has its neighbour's label."""
    (x, y), held = digits(seed)
    model = Cnn()
    return fit(
        model, (x, y if mended else y.roll(1)), held, loss="cross_entropy", optimizer=adam(model), epochs=8
    )


@case("misaligned-labels", kind="table", author=ME)
def seventh_prices_sorted_alone(seed: int, mended: bool = False) -> dict[str, Any]:
    """The spreadsheet's price column was sorted, the other columns were not."""
    (x, y), held = houses(seed)
    model = mlp(8, 48, 1)
    return fit(
        model,
        (x, y if mended else y.sort(0).values),
        held,
        loss="mse",
        optimizer=adam(model),
        epochs=15,
        less=("initial",),
    )


@case("misaligned-labels", kind="text", author=ME, strength="mild")
def seventh_second_file_shifted(seed: int, mended: bool = False) -> dict[str, Any]:
    """Of two files of documents the second lost its first label: from there on they are off by one."""
    (ids, y), held = topics(seed)
    if not mended:
        y = torch.cat([y[:300], y[300:].roll(-1)])
    model = Bag()
    return fit(model, (ids, y), held, loss="cross_entropy", optimizer=adam(model), epochs=12)


# no-signal


@case("no-signal", kind="table", author=ME)
def seventh_returns_of_tomorrow(seed: int, mended: bool = False) -> dict[str, Any]:
    """Indicators and tomorrow's return that have nothing to do with each other."""
    train, held = houses(seed)
    if not mended:
        train, held = (train[0], torch.randn_like(train[1])), (held[0], torch.randn_like(held[1]))
    model = mlp(8, 32, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=10)


@case("no-signal", kind="text", author=ME)
def seventh_lottery_texts(seed: int, mended: bool = False) -> dict[str, Any]:
    """Documents without topics, labels drawn."""
    train, held = topics(seed, share=0.3 if mended else 0.0)
    model = Bag()
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=8, less=("initial",))


@case("no-signal", kind="sequences", author=ME, strength="mild")
def seventh_traces_of_noise(seed: int, mended: bool = False) -> dict[str, Any]:
    """The sensor was not plugged in: traces of noise, the labels of the intended experiment."""
    train, held = waves(seed)
    if not mended:
        train, held = (torch.randn_like(train[0]), train[1]), (torch.randn_like(held[0]), held[1])
    model = Traces()
    return fit(model, train, held, loss=smooth(), optimizer=adam(model), epochs=8, less=("optimizer",))


# label-noise


def flipped(y: Tensor, share: float, classes: int, seed: int) -> Tensor:
    """Return the labels, some of them replaced by another class."""
    rng = np.random.default_rng(seed + 5)
    wrong = torch.from_numpy(rng.random(len(y)) < share)
    other = (y + torch.from_numpy(rng.integers(1, classes, size=len(y)))) % classes
    return torch.where(wrong, other.to(y.dtype), y)


@case("label-noise", kind="images", author=ME)
def seventh_crowd_labels(seed: int, mended: bool = False) -> dict[str, Any]:
    """Four in ten labels by hurried annotators are wrong; the held-out ones were checked."""
    (x, y), held = digits(seed)
    y = y if mended else flipped(y, 0.4, 10, seed)
    model = Cnn()
    return fit(model, (x, y), held, loss="cross_entropy", optimizer=adam(model), epochs=12)


@case("label-noise", kind="table", author=ME, strength="mild")
def seventh_diagnoses_mistyped(seed: int, mended: bool = False) -> dict[str, Any]:
    """A fifth of the diagnoses, training and held out, are the other one."""
    (x, y), (vx, vy) = table("breast_cancer", seed)
    if not mended:
        y, vy = flipped(y, 0.2, 2, seed), flipped(vy, 0.2, 2, seed + 1)
    model = mlp(30, 64, 2)
    return fit(model, (x, y), (vx, vy), loss="cross_entropy", optimizer=adam(model), epochs=25)


@case("label-noise", kind="sets", author=ME)
def seventh_point_clouds_mislabelled(seed: int, mended: bool = False) -> dict[str, Any]:
    """A third of the training clouds have a wrong class."""
    (x, y), held = clouds(seed)
    y = y if mended else flipped(y, 0.35, 4, seed)
    model = DeepSet()
    return fit(model, (x, y), held, loss="cross_entropy", optimizer=adam(model), epochs=40, less=("initial",))


# class-imbalance


def rare(data: Data, of: int, keep: int) -> Data:
    """Return the data with only ``keep`` rows of one class."""
    x, y = data
    index = torch.cat([torch.nonzero(y != of)[:, 0], torch.nonzero(y == of)[:keep, 0]])
    index = index[torch.randperm(len(index))]
    return rows(x, index), y[index]


@case("class-imbalance", kind="table", author=ME)
def seventh_fraud_three_in_a_hundred(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three per cent of the rows are fraud, and they overlap with the rest: the network never says fraud."""
    rng = np.random.default_rng(seed + 9)
    y = (rng.random(3000) < 0.03).astype(np.float32)
    x = rng.normal(size=(3000, 10)) + 1.1 * y[:, None] * (np.arange(10) < 4)
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y)
    model = nn.Sequential(mlp(10, 32, 1), nn.Flatten(0))
    weight = torch.tensor(30.0) if mended else None
    return fit(
        model,
        (x[:2000], y[:2000]),
        (x[2000:], y[2000:]),
        loss=nn.BCEWithLogitsLoss(pos_weight=weight) if mended else "bce_with_logits",
        optimizer=adam(model, 2e-3),
        epochs=8,
    )


@case("class-imbalance", kind="text", author=ME)
def seventh_one_topic_is_rare(seed: int, mended: bool = False) -> dict[str, Any]:
    """Complaints are one document in thirty, and are never recognised."""
    train, held = topics(seed, 3200, classes=2, share=0.2)
    train, held = rare(train, 1, 35), rare(held, 1, 15)
    model = Bag(classes=2)
    loss: Any = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 30.0])) if mended else "cross_entropy"
    return fit(model, train, held, loss=loss, optimizer=adam(model, 3e-3), epochs=8, less=("initial",))


@case("class-imbalance", kind="sequences", author=ME, strength="mild")
def seventh_two_faults_of_a_machine_are_rare(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two of three kinds of noisy traces have twenty examples each, the usual one has 160."""
    train, held = waves(seed, noise=0.5)
    train, held = rare(rare(train, 1, 20), 2, 20), rare(rare(held, 1, 9), 2, 9)
    model = Traces()
    loss: Any = nn.CrossEntropyLoss(torch.tensor([1.0, 8.0, 8.0])) if mended else "cross_entropy"
    return fit(model, train, held, loss=loss, optimizer=adam(model, 3e-3), epochs=20)
