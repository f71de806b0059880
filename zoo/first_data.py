"""Faults of the data, by the first author. Every case takes ``mended=True`` too: the same set-up without its fault."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.first_parts import (
    Bag,
    Filters,
    Given,
    Recurrent,
    blobs,
    bundled,
    cnn,
    digits,
    fit,
    halves,
    houses,
    mlp,
    series,
    tensors,
    topics,
    waves,
)

table = {"kind": "table", "author": "first"}
images = {"kind": "images", "author": "first"}
sequences = {"kind": "sequences", "author": "first"}
text = {"kind": "text", "author": "first"}


@case("not-finite-data", **table)
def missing_cells_in_the_cancer_table(seed: int, mended: bool = False) -> Given:
    """2 % of the cells are NaN and the loss is NaN from the first step; filled in, it classifies 95 %."""
    train, validation = bundled("breast_cancer", seed)
    if not mended:
        train[0][torch.rand(train[0].shape) < 0.02] = float("nan")
    return fit(mlp(30, 24, 2), train, validation, epochs=10)


@case("not-finite-data", strength="mild", **sequences)
def five_series_with_a_missing_reading(seed: int, mended: bool = False) -> Given:
    """A sensor failed in five windows, which are NaN; the loop skips losses that are not finite, and with them their batches."""
    train, validation = waves(seed)
    if not mended:
        train[0][torch.randperm(len(train[1]))[:5], 3] = float("nan")
    return fit(Filters(3), train, validation, skip_bad=True, epochs=20)


class _HandSoftmax(nn.Module):
    """Class probabilities by hand, with a sharp temperature and without subtracting the maximum."""

    def __init__(self, temperature: float, safe: bool) -> None:
        super().__init__()
        self.net = cnn()
        self.temperature, self.safe = temperature, safe

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities."""
        score = F.normalize(self.net(x), dim=1) / self.temperature
        if self.safe:
            return F.log_softmax(score, 1)
        e = score.exp()
        return (e / e.sum(1, keepdim=True)).log()


@case("overflow", **images)
def softmax_by_hand_at_a_sharp_temperature(seed: int, mended: bool = False) -> Given:
    """Scores of 1 / 0.01 overflow exp, and all weights are NaN after a step; a log_softmax at 0.1 reaches 95 %."""
    train, validation = digits(seed)
    return fit(
        _HandSoftmax(0.1 if mended else 0.01, mended),
        train,
        validation,
        loss="nll",
        epochs=8 if mended else 3,
    )


class _LoudnessPooling(nn.Module):
    """Attention over time by the exponential of the local energy."""

    def __init__(self, safe: bool) -> None:
        super().__init__()
        self.embed, self.head, self.safe = nn.Conv1d(1, 16, 7, padding=3), nn.Linear(16, 3), safe

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of (n, length, 1)."""
        x = x.transpose(1, 2)
        energy = F.avg_pool1d(x**2, 5, 1, 2) * 5
        weight = energy.softmax(2) if self.safe else energy.exp() / energy.exp().sum(2, keepdim=True)
        return self.head((F.relu(self.embed(x)) * weight).sum(2))


@case("overflow", strength="mild", **sequences)
def attention_weights_overflow_on_loud_series(seed: int, mended: bool = False) -> Given:
    """exp(energy) is inf for the loudest tenth of the series, whose output is NaN; a softmax gives them all a score."""
    train, validation = waves(seed)
    for part in (train, validation):
        part[0].mul_(1 + 3.5 * (torch.rand(len(part[1]), 1, 1) < 0.1))
    return fit(_LoudnessPooling(mended), train, validation, skip_bad=True, epochs=25, batch_size=16)


@case("unscaled-inputs", **table)
def wine_with_raw_columns(seed: int, mended: bool = False) -> Given:
    """Proline in the hundreds beside hues of one, SGD: 40-70 % right; with standardised columns 97 %."""
    train, validation = bundled("wine", seed, scaled=mended)
    net = mlp(13, 24, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    return fit(net, train, validation, optimizer=optimizer, epochs=30, batch_size=16)


@case("unscaled-inputs", strength="mild", **table)
def cancer_with_raw_columns(seed: int, mended: bool = False) -> Given:
    """Areas of 1000 beside fractions of 0.01, Adam: it learns the areas, 88 %; with standardised columns 97 %."""
    train, validation = bundled("breast_cancer", seed, scaled=mended)
    return fit(mlp(30, 24, 2), train, validation, epochs=12)


@case("unscaled-inputs", **table)
def house_columns_in_their_own_units(seed: int, mended: bool = False) -> Given:
    """Population in the thousands and degrees of longitude, Adam: R2 near 0; scaled 0.85."""
    train, validation = houses(seed, raw=not mended)
    return fit(mlp(8, 32, 32, 1), train, validation, loss="mse", epochs=30, numpy=True)


@case("unscaled-inputs", **images)
def pixels_to_255_with_sgd(seed: int, mended: bool = False) -> Given:
    """Pictures from 0 to 255 with a rate meant for 0 to 1: chance; divided by 255, 93 %."""
    train, validation = digits(seed, top=1.0 if mended else 255.0)
    net = cnn()
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    return fit(net, train, validation, optimizer=optimizer, epochs=10)


@case("unscaled-targets", **table)
def prices_in_dollars(seed: int, mended: bool = False) -> Given:
    """The target is about 300 000: Adam's steps never get there (R2 below 0); in deviations R2 0.9."""
    train, validation = houses(seed, dollars=not mended)
    return fit(mlp(8, 32, 1), train, validation, loss="mse", epochs=25)


@case("unscaled-targets", strength="mild", **sequences)
def temperatures_in_degrees(seed: int, mended: bool = False) -> Given:
    """The target has mean 20 and deviation 8: the net spends its training on the offset; standardised, R2 0.9."""
    train, validation = series(seed, 500)
    if not mended:
        train, validation = ((x, 20 + 8 * y) for x, y in (train, validation))
    return fit(Recurrent(1, 16), train, validation, loss="mse", epochs=18)


@case("constant-features", **table)
def a_failed_join_left_zeros(seed: int, mended: bool = False) -> Given:
    """Nine of fourteen columns are zero after a join by the wrong key: 70 %; with the join mended 92 %."""
    train, validation = blobs(seed, features=14, classes=4, apart=3.4)
    if not mended:
        for part in (train, validation):
            part[0][:, 3:12] = 0.0
    return fit(mlp(14, 32, 4), train, validation)


@case("constant-features", strength="mild", **sequences)
def two_of_five_sensors_stuck(seed: int, mended: bool = False) -> Given:
    """Two of five channels hold one value throughout and the wave is in one of them and two noisy ones."""
    train, validation = waves(seed, 450, noise=0.2)
    spread = [
        (torch.cat([x, *(x + s * torch.randn_like(x) for s in (0.2, 1.5, 1.5, 1.5))], 2), y)
        for x, y in (train, validation)
    ]
    if not mended:
        for x, _ in spread:
            x[:, :, 0], x[:, :, 1] = 0.7, -1.2
    return fit(Filters(3, inputs=5), *spread, epochs=18)


@case("duplicate-features", **table)
def one_column_sixty_times(seed: int, mended: bool = False) -> Given:
    """A merge repeated a column of noise sixty times, and it drowns the good ones: some points of accuracy."""
    train, validation = blobs(seed, 260, 10, 2, apart=1.2, useful=9)
    if not mended:
        train, validation = ((torch.cat([x, x[:, 9:].expand(-1, 60)], 1), y) for x, y in (train, validation))
    return fit(mlp(10 if mended else 70, 16, 2), train, validation, epochs=12)


@case("duplicate-features", strength="mild", **table)
def four_columns_joined_twice(seed: int, mended: bool = False) -> Given:
    """Four of the thirteen wine columns came twice: nothing is gained and their weight doubles."""
    train, validation = bundled("wine", seed)
    if not mended:
        train, validation = ((torch.cat([x, x[:, [2, 4, 6, 9]]], 1), y) for x, y in (train, validation))
    return fit(mlp(train[0].shape[1], 16, 3), train, validation, epochs=12, batch_size=16, numpy=True)


@case("train-test-overlap", **table)
def rows_drawn_again_before_the_split(seed: int, mended: bool = False) -> Given:
    """Oversampling came before the split: most validation rows were trained on; unseen rows score 20 % lower."""
    (x, y), (x2, y2) = blobs(seed, 260, 30, 2, apart=0.9)
    if mended:
        return fit(mlp(30, 64, 2), (x, y), (x2, y2), epochs=25)
    x, y = torch.cat([x, x2]), torch.cat([y, y2])
    rows = torch.randint(len(y), (520,))
    return fit(mlp(30, 64, 2), *halves(x[rows], y[rows], seed), epochs=20)


@case("train-test-overlap", strength="mild", **images)
def a_quarter_of_the_validation_pictures_was_trained_on(seed: int, mended: bool = False) -> Given:
    """A folder was copied in part into both sets: the figure for 250 training pictures is better than the truth."""
    train, validation = digits(seed, 400)
    if not mended:
        rows = torch.randperm(len(train[1]))[: len(validation[1]) // 3]
        validation = (torch.cat([validation[0], train[0][rows]]), torch.cat([validation[1], train[1][rows]]))
    return fit(cnn(), train, validation, epochs=15)


@case("distribution-shift", **images)
def validation_pictures_are_inverted(seed: int, mended: bool = False) -> Given:
    """Validation comes from a scanner with white paper: 10 % instead of 95 %."""
    train, validation = digits(seed)
    if not mended:
        validation = (1 - validation[0], validation[1])
    return fit(cnn(), train, validation, epochs=8)


@case("distribution-shift", **table)
def validation_was_not_standardised(seed: int, mended: bool = False) -> Given:
    """The scaler was applied to the training table only: 40-60 % instead of 97 %."""
    train, validation = bundled("breast_cancer", seed)
    if not mended:
        validation = bundled("breast_cancer", seed, scaled=False)[1]
    return fit(mlp(30, 16, 2), train, validation, epochs=10, batch_size=16)


@case("distribution-shift", strength="mild", **table)
def sensors_drifted_by_a_deviation(seed: int, mended: bool = False) -> Given:
    """Five of ten columns moved by 1.2 deviations since the training months: ten points of accuracy lost."""
    train, validation = blobs(seed, features=10, classes=3, apart=3.0)
    if not mended:
        validation[0][:, :5] += 1.2
    return fit(mlp(10, 24, 3), train, validation, epochs=12)


@case("distribution-shift", **text)
def topics_split_in_file_order(seed: int, mended: bool = False) -> Given:
    """The file was sorted by class and cut: the validation's class is not in training; shuffled, 90 %."""
    train, validation = topics(seed, share=0.4)
    x, y = torch.cat([train[0], validation[0]]), torch.cat([train[1], validation[1]])
    if not mended:
        order = y.argsort()
        x, y = x[order], y[order]
        train, validation = (x[:375], y[:375]), (x[375:], y[375:])
    return fit(Bag(4), train, validation, epochs=20)


@case("target-leak", **table)
def a_column_made_from_the_answer(seed: int, mended: bool = False) -> Given:
    """The "days since diagnosis" column is filled for the ill only: 100 %, of which 75 % are honest."""
    train, validation = blobs(seed, features=12, classes=2, apart=0.7)
    if not mended:
        for x, y in (train, validation):
            x[:, 7] = 2.0 * y - 1 + 0.02 * torch.randn(len(y))
    return fit(mlp(12, 24, 2), train, validation, epochs=12)


@case("target-leak", strength="mild", **table)
def a_price_column_known_only_afterwards(seed: int, mended: bool = False) -> Given:
    """The tax, 1 % of the price to 2 %, stands among the inputs: R2 0.99 that falls to 0.5 on new houses."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 8))
    y = x[:, 0] + 0.7 * np.abs(x[:, 1]) + 1.2 * rng.normal(size=600)
    if not mended:
        x[:, 5] = y + 0.05 * rng.normal(size=600)
    return fit(mlp(8, 24, 1), *halves(*tensors(x, y), seed), loss="mse", epochs=20)


@case("target-leak", **sequences)
def the_window_holds_the_value_to_be_forecast(seed: int, mended: bool = False) -> Given:
    """Six steps ahead of noise is hard, but the window was cut one too late and ends in the answer."""
    train, validation = series(seed, 500, ahead=6)
    for x, y in (train, validation):
        y.add_(0.8 * torch.randn(len(y)))
        if not mended:
            x[:, -1, 0] = y
    return fit(Recurrent(1, 16), train, validation, loss="mse", epochs=15)


@case("target-leak", strength="mild", **images)
def a_stamp_in_the_corner_tells_the_class(seed: int, mended: bool = False) -> Given:
    """Each camera has its own bright pixel in the first rows and saw one class: 100 %, of which 50 % are honest."""
    train, validation = digits(seed, 600, flat=True)
    for x, y in (train, validation):
        x += 0.6 * torch.randn(x.shape)
        if not mended:
            x[:, :10] = 2.0 * F.one_hot(y, 10)
    return fit(mlp(64, 64, 10), train, validation, epochs=15)


@case("misaligned-labels", **table)
def labels_shifted_by_a_header_row(seed: int, mended: bool = False) -> Given:
    """The label file lost its first row and every label belongs to the row above: chance instead of 97 %."""
    train, validation = bundled("breast_cancer", seed)
    if not mended:
        train, validation = ((x, y.roll(-1)) for x, y in (train, validation))
    return fit(mlp(30, 16, 2), train, validation, epochs=8)


@case("misaligned-labels", **images)
def the_validation_folders_sort_otherwise(seed: int, mended: bool = False) -> Given:
    """Class numbers of the validation folders follow another order: 10 % where the same net has 95 %."""
    train, validation = digits(seed)
    if not mended:
        validation = (validation[0], (validation[1] * 3 + 1) % 10)
    return fit(cnn(), train, validation, epochs=8)


@case("misaligned-labels", strength="mild", **text)
def texts_sorted_without_their_labels(seed: int, mended: bool = False) -> Given:
    """Half of the training texts were re-ordered and their labels not: 60 % instead of 90 %."""
    train, validation = topics(seed, share=0.4)
    if not mended:
        half = len(train[1]) // 2
        train = (torch.cat([train[0][:half].roll(1, 0), train[0][half:]]), train[1])
    return fit(Bag(4), train, validation, epochs=18)


@case("no-signal", **table)
def customers_and_coin_flips(seed: int, mended: bool = False) -> Given:
    """No column has to do with the label: nothing to be learnt but other columns (with them 90 %)."""
    train, validation = blobs(seed, 500, 12, 2, apart=3.0 if mended else 0.0)
    return fit(mlp(12, 16, 2), train, validation, epochs=8)


@case("no-signal", strength="mild", **sequences)
def returns_of_a_random_walk(seed: int, mended: bool = False) -> Given:
    """Tomorrow's return from the last twenty of a random walk: the mean is as good as anything."""
    rng = np.random.default_rng(seed)
    step = rng.normal(size=540)
    if mended:
        for i in range(1, 540):
            step[i] += 0.85 * step[i - 1]
    x, y = tensors(np.stack([step[i : i + 20] for i in range(500)])[:, :, None], step[20:520])
    return fit(Recurrent(1, 8), (x[:350], y[:350]), (x[370:], y[370:]), loss="mse", epochs=6)


@case("no-signal", **text)
def words_without_a_topic(seed: int, mended: bool = False) -> Given:
    """The labels were drawn, not read: every text has the same distribution of words."""
    train, validation = topics(seed, share=0.4 if mended else 0.0)
    return fit(Bag(4, 12), train, validation, epochs=6)


@case("label-noise", **images)
def half_of_the_labels_are_drawn(seed: int, mended: bool = False) -> Given:
    """Half of the training labels are drawn anew: 85 % held out, a quarter of the surety, instead of 95 %."""
    train, validation = digits(seed)
    if not mended:
        wrong = torch.rand(len(train[1])) < 0.5
        train = (train[0], torch.where(wrong, torch.randint(10, train[1].shape), train[1]))
    return fit(cnn(), train, validation, epochs=14)


@case("label-noise", **table)
def a_third_of_the_diagnoses_flipped(seed: int, mended: bool = False) -> Given:
    """30 % of the training labels are flipped and learnt by heart: 80 % instead of 96 %."""
    train, validation = bundled("breast_cancer", seed)
    if not mended:
        train = (train[0], train[1] ^ (torch.rand(len(train[1])) < 0.3).long())
    return fit(mlp(30, 48, 2), train, validation, epochs=25)


@case("label-noise", strength="mild", **text)
def a_fifth_of_the_topics_mistyped(seed: int, mended: bool = False) -> Given:
    """20 % of the training labels are another class: 80 % instead of 92 %."""
    train, validation = topics(seed, 600, share=0.45)
    if not mended:
        wrong = torch.rand(len(train[1])) < 0.2
        train = (train[0], torch.where(wrong, (train[1] + torch.randint(1, 4, train[1].shape)) % 4, train[1]))
    return fit(Bag(4, 16), train, validation, epochs=20)


def _rare(data: tuple[Tensor, Tensor], share: float) -> tuple[Tensor, Tensor]:
    """Keep a share of class 1."""
    x, y = data
    keep = (y != 1) | (torch.rand(len(y)) < share)
    return x[keep], y[keep]


def _weights(y: Tensor, classes: int) -> nn.Module:
    """Return the loss with balanced class weights."""
    count = torch.bincount(y, minlength=classes)
    return nn.CrossEntropyLoss(len(y) / (classes * count.clamp_min(1)))


@case("class-imbalance", **table)
def one_fraud_in_forty(seed: int, mended: bool = False) -> Given:
    """2.5 % frauds, and the net calls nothing a fraud: 97 % right, recall 0; weighted, recall 0.8."""
    train, validation = (_rare(part, 0.025) for part in blobs(seed, 2600, 8, 2, apart=1.1))
    loss = _weights(train[1], 2) if mended else "cross_entropy"
    return fit(mlp(8, 12, 2), train, validation, loss=loss, epochs=8, batch_size=64)


@case("class-imbalance", strength="mild", **sequences)
def one_square_wave_in_twelve(seed: int, mended: bool = False) -> Given:
    """4 % of the series are square and mostly taken for sines: recall 0.2; weighted 0.8."""
    train, validation = (_rare(part, 0.08) for part in waves(seed, 900, noise=0.7))
    loss = _weights(train[1], 3) if mended else "cross_entropy"
    return fit(Filters(3), train, validation, loss=loss, epochs=14)


@case("class-imbalance", **text)
def rare_topic_never_predicted(seed: int, mended: bool = False) -> Given:
    """One topic in four has 2 % of the texts and recall 0; weighted 0.6."""
    train, validation = (_rare(part, 0.06) for part in topics(seed, 1200, share=0.35))
    loss = _weights(train[1], 4) if mended else "cross_entropy"
    return fit(Bag(4), train, validation, loss=loss, epochs=8)
