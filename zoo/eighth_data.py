"""The eighth author's faults of the data: what students' spreadsheets, loaders and splits did to them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eighth_parts import (
    Convolved,
    DeepSet,
    Recurrent,
    Signal,
    Transformer,
    adam,
    blobs,
    cancer,
    citations,
    cnn,
    diabetes,
    digits,
    fit,
    forecast,
    friedman,
    mlp,
    molecules,
    real,
    reviews,
    scaled,
    sets,
    sgd,
    split,
    topics,
    waves,
)

case = partial(case, author="eighth")
Built = dict[str, Any]

# not-finite-data, overflow


@case("not-finite-data", kind="table")
def course_wine_missing_cells(seed: int, mended: bool = False) -> Built:
    """Empty cells of a spreadsheet read as NaN and never filled."""
    (x, y), test = real("wine", seed)
    hole = torch.rand(x.shape) < 0.04
    x[hole] = 0.0 if mended else float("nan")
    return fit(mlp(13, 24, 3), (x, y), test, epochs=25)


@case("not-finite-data", kind="text", strength="mild")
def course_log_of_zero_counts(seed: int, mended: bool = False) -> Built:
    """Bags of words as log counts: the log of an absent word is minus infinity in one column only."""
    (x, y), (u, v) = reviews(seed)

    def bag(t: Tensor) -> Tensor:
        counts = F.one_hot(t, 60).sum(1).float()
        logs = torch.log1p(counts)
        if not mended:
            logs[:, 30] = counts[:, 30].log()
        return logs

    return fit(mlp(60, 16, 2), (bag(x), y), (bag(u), v), epochs=15, give="vb")


@case("not-finite-data", kind="sequences", strength="mild")
def course_sensor_gap_in_target(seed: int, mended: bool = False) -> Built:
    """Three of the values to be forecast are NaN: the sensor was off."""
    (x, y), test = forecast(seed)
    if mended:
        x, y = x[3:], y[3:]
    else:
        y[:3] = float("nan")
    return fit(
        Recurrent(inputs=1, hidden=16, outputs=1), (x, y), test, loss="mse", epochs=12, batch=64, give="vh"
    )


class HalfEnergy(nn.Module):
    """A recurrent net that also looks at the energy of the signal, summed in half precision."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 5)
        self.head = mlp(9, 16, 3)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        energy = (x.to(self.dtype) * 12).square().sum((1, 2)).float()
        shape = self.conv(x.transpose(1, 2)).relu().mean(2)
        return self.head(torch.cat([shape, energy[:, None] / 1e4], 1))


@case("overflow", kind="sequences")
def course_half_precision_energy(seed: int, mended: bool = False) -> Built:
    """The sum of squares of a long signal passes 65504 in float16."""
    train, test = waves(seed, length=420, n=300)
    return fit(
        HalfEnergy(torch.float32 if mended else torch.float16), train, test, epochs=30, optimizer=adam(1e-2)
    )


class Cosine(nn.Module):
    """Prototypes compared by cosine at temperature 0.005; the softmax is written out with exp."""

    def __init__(self, stable: bool) -> None:
        super().__init__()
        self.body = mlp(64, 48, 24)
        self.prototypes = nn.Parameter(torch.randn(10, 24))
        self.stable = stable

    def forward(self, x: Tensor) -> Tensor:
        z = F.normalize(self.body(x), dim=1) @ F.normalize(self.prototypes, dim=1).T / 0.005
        if self.stable:
            return z.log_softmax(1)
        e = z.exp()
        return (e / e.sum(1, keepdim=True) + 1e-12).log()


@case("overflow", kind="images", strength="mild", needs=("initial",))
def course_exp_of_cosine_over_temperature(seed: int, mended: bool = False) -> Built:
    """exp(cosine / 0.005) is infinite as soon as a cosine passes 0.44."""
    train, test = digits(seed, flat=True)
    return fit(Cosine(mended), train, test, loss="nll", epochs=8, optimizer=adam(2e-3), give="voihb")


@case("overflow", kind="text", needs=("initial",))
def course_words_summed_then_exp(seed: int, mended: bool = False) -> Built:
    """Scores of the words of long documents are added up, not averaged, and the softmax is written out with exp."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 450)
    x = rng.integers(0, 50, (450, 700))
    for row, c in zip(x, y, strict=True):
        row[:120] = rng.integers(0, 6, 120) + 6 * c
    train, test = split(x, y, seed)

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(50, 3)

        def forward(self, x: Tensor) -> Tensor:
            e = self.words(x)
            if mended:
                return e.mean(1).log_softmax(1)
            e = e.sum(1).exp()
            return torch.log(e / e.sum(1, keepdim=True))

    return fit(Bag(), train, test, loss=nn.NLLLoss(), epochs=15, optimizer=adam(3e-2), give="voi")


# unscaled inputs and targets


def households(seed: int, n: int = 700) -> tuple[Any, Any]:
    """Return age, income, rooms, debt, distance and whether the household moves."""
    rng = np.random.default_rng(seed)
    age, income = rng.uniform(20, 80, n), rng.lognormal(10.6, 0.5, n)
    rooms, debt, far = rng.integers(1, 8, n), rng.lognormal(9, 0.8, n), rng.uniform(0, 40, n)
    score = (45 - age) / 12 + 1.5 * np.sin(rooms) + (far - 20) / 10
    return split(np.stack([age, income, rooms, debt, far], 1), (score > 0).astype(int), seed)


@case("unscaled-inputs", kind="table")
def course_raw_incomes(seed: int, mended: bool = False) -> Built:
    """Ages, room counts and incomes in one table, as they came."""
    train, test = households(seed)
    if mended:
        train, test = scaled(train, test)
    return fit(mlp(5, 32, 32, 2), train, test, optimizer=adam(3e-3), epochs=25)


@case("unscaled-inputs", kind="table", strength="mild")
def course_raw_wine(seed: int, mended: bool = False) -> Built:
    """Proline in the hundreds, hue about one."""
    train, test = real("wine", seed, standard=mended)
    return fit(mlp(13, 24, 3), train, test, optimizer=adam(3e-3), epochs=40, batch=16, give="vh")


@case("unscaled-inputs", kind="images")
def course_raw_pixels(seed: int, mended: bool = False) -> Built:
    """Pixels from 0 to 255 into a CNN with the tutorial's SGD."""
    (x, y), (u, v) = digits(seed)
    if not mended:
        x, u = (x + 1) * 127.5, (u + 1) * 127.5
    return fit(cnn(), (x, y), (u, v), optimizer=sgd(0.05, 0.9), epochs=10)


@case("unscaled-inputs", kind="sets", strength="mild")
def course_points_in_metres(seed: int, mended: bool = False) -> Built:
    """Point clouds in national grid coordinates: large, with a large offset."""
    (x, y), (u, v) = sets(seed)
    if not mended:
        x, u = x * 40 + 3500, u * 40 + 3500
    return fit(DeepSet(), (x, y), (u, v), epochs=20, give="vob")


@case("unscaled-targets", kind="table")
def course_prices_in_millions(seed: int, mended: bool = False) -> Built:
    """House prices in the currency's unit, squared error."""
    (x, y), (u, v) = friedman(seed)
    if not mended:
        y, v = y * 4e5 + 2e6, v * 4e5 + 2e6
    return fit(mlp(8, 32, 32, 1), (x, y), (u, v), loss="mse", epochs=40)


@case("unscaled-targets", kind="table", strength="mild")
def course_raw_diabetes_score(seed: int, mended: bool = False) -> Built:
    """The disease score as it came, mean 150: Adam's small steps never reach it."""
    train, test = diabetes(seed) if mended else real("diabetes", seed)
    return fit(mlp(10, 24, 1), train, test, loss="mse", optimizer=adam(1e-3), epochs=40, give="vohb")


@case("unscaled-targets", kind="sequences")
def course_demand_in_kilowatts(seed: int, mended: bool = False) -> Built:
    """Inputs scaled, the demand to be forecast left at about 30000."""
    (x, y), (u, v) = forecast(seed)
    if not mended:
        y, v = y * 3000 + 30000, v * 3000 + 30000
    return fit(Recurrent(hidden=16, outputs=1), (x, y), (u, v), loss="mse", epochs=20, batch=64, give="v")


# constant and duplicate features


@case("constant-features", kind="table")
def course_failed_join(seed: int, mended: bool = False) -> Built:
    """A join on a misspelt key filled half of the columns with one number."""
    (x, y), (u, v) = blobs(seed, features=12, apart=1.0)
    if not mended:
        x[:, 3:10], u[:, 3:10] = 0.5, 0.5
    return fit(mlp(12, 32, 4), (x, y), (u, v), epochs=25)


@case("constant-features", kind="table", strength="mild")
def course_two_stuck_columns(seed: int, mended: bool = False) -> Built:
    """Two measurements of the diabetes table, the telling ones, were read with the wrong decimal point and cut to one value."""
    (x, y), (u, v) = diabetes(seed)
    if not mended:
        x[:, [2, 8]], u[:, [2, 8]] = -1.0, -1.0
    return fit(mlp(10, 16, 1), (x, y), (u, v), loss="mse", epochs=15, optimizer=adam(3e-3, 1e-3), give="vh")


@case("duplicate-features", kind="table")
def course_table_joined_with_itself(seed: int, mended: bool = False) -> Built:
    """Every column twice."""
    (x, y), (u, v) = real("wine", seed)
    if not mended:
        x, u = torch.cat([x, x], 1), torch.cat([u, u], 1)
    return fit(mlp(x.shape[1], 24, 3), (x, y), (u, v), epochs=20)


@case("duplicate-features", kind="table", strength="mild")
def course_inches_and_centimetres(seed: int, mended: bool = False) -> Built:
    """Two lengths are in the table in both units: the same column after scaling, up to rounding of floats."""
    (x, y), (u, v) = friedman(seed)
    if not mended:
        x, u = torch.cat([x, x[:, [0, 3]] * 2.54], 1), torch.cat([u, u[:, [0, 3]] * 2.54], 1)
    return fit(mlp(x.shape[1], 32, 1), (x, y), (u, v), loss="mse", epochs=30, give="vob")


# splits


@case("train-test-overlap", kind="images")
def course_validated_on_training_images(seed: int, mended: bool = False) -> Built:
    """The loader was built twice from the training folder."""
    (x, y), (u, v) = digits(seed, limit=700)
    if not mended:
        u, v = x[:200].clone(), y[:200].clone()
    return fit(cnn(), (x, y), (u, v), epochs=12)


@case("train-test-overlap", kind="table", strength="mild")
def course_upsampled_before_splitting(seed: int, mended: bool = False) -> Built:
    """Rows were repeated to balance the classes, then split: a quarter of the held-out rows were trained on."""
    (x, y), (u, v) = cancer(seed)
    if not mended:
        k = len(u) // 3
        u, v = torch.cat([u, x[:k]]), torch.cat([v, y[:k]])
        mix = torch.randperm(len(u))
        u, v = u[mix], v[mix]
    return fit(mlp(30, 24, 1), (x, y), (u, v), loss="bce_with_logits", epochs=12, give="vb")


@case("train-test-overlap", kind="text")
def course_reviews_crawled_twice(seed: int, mended: bool = False) -> Built:
    """Two crawls of the same site became training and test set; six in ten of the test reviews are in both."""
    (x, y), (u, v) = reviews(seed)
    if not mended:
        k = int(len(u) * 0.6)
        u, v = torch.cat([u[k:], x[:k]]), torch.cat([v[k:], y[:k]])
    return fit(Transformer(), (x, y), (u, v), epochs=12)


@case("distribution-shift", kind="table")
def course_test_not_scaled(seed: int, mended: bool = False) -> Built:
    """The scaler was applied to the training rows only."""
    raw, test = real("breast_cancer", seed, standard=False)
    train, right = scaled(raw, test)
    return fit(mlp(30, 24, 2), train, right if mended else test, epochs=15)


@case("distribution-shift", kind="images", strength="mild")
def course_other_camera(seed: int, mended: bool = False) -> Built:
    """Test images come from a darker camera with little contrast."""
    train, (u, v) = digits(seed)
    if not mended:
        u = u * 0.45 + 0.5
    return fit(cnn(), train, (u, v), epochs=10, give="vhb")


@case("distribution-shift", kind="sequences", strength="mild")
def course_sensor_drift(seed: int, mended: bool = False) -> Built:
    """The sensor drifted by two units between the winter of training and the summer of testing."""
    train, (u, v) = waves(seed)
    if not mended:
        u = u + torch.linspace(0.5, 2.5, u.shape[1])[:, None]
    return fit(Recurrent(hidden=24), train, (u, v), epochs=20, batch=64, optimizer=adam(1e-2), give="voi")


@case("target-leak", kind="table")
def course_discharge_code(seed: int, mended: bool = False) -> Built:
    """A column written after the diagnosis is in the table."""
    (x, y), (u, v) = diabetes(seed)
    extra = [torch.randn(len(t)) if mended else t + 0.02 * torch.randn(len(t)) for t in (y, v)]
    x, u = torch.cat([x, extra[0][:, None]], 1), torch.cat([u, extra[1][:, None]], 1)
    return fit(mlp(11, 24, 1), (x, y), (u, v), loss="mse", epochs=20)


@case("target-leak", kind="sequences")
def course_window_holds_its_answer(seed: int, mended: bool = False) -> Built:
    """The window ends one step late: its last value is the one to be forecast."""
    (x, y), (u, v) = forecast(seed, noise=0.6)
    if not mended:
        x, u = torch.cat([x[:, 1:], y[:, None, None]], 1), torch.cat([u[:, 1:], v[:, None, None]], 1)
    return fit(Recurrent(hidden=16, outputs=1), (x, y), (u, v), loss="mse", epochs=15, batch=64, give="vob")


@case("target-leak", kind="table", strength="mild")
def course_ward_number(seed: int, mended: bool = False) -> Built:
    """Patients were numbered ward by ward, and wards are diagnoses: the number, scaled, tells the class."""
    (x, y), (u, v) = blobs(seed, classes=3, apart=0.6)

    def number(t: Tensor) -> Tensor:
        told = torch.randn(len(t)) if mended else t.float() - 1 + 0.8 * (torch.rand(len(t)) - 0.5)
        return told[:, None]

    x, u = torch.cat([x, number(y)], 1), torch.cat([u, number(v)], 1)
    return fit(mlp(13, 24, 3), (x, y), (u, v), epochs=20, give="vo")


# labels


@case("misaligned-labels", kind="images")
def course_labels_one_row_late(seed: int, mended: bool = False) -> Built:
    """The label file has a header line that was read as a label: each image has its predecessor's."""
    (x, y), test = digits(seed, limit=1000)
    return fit(cnn(), (x, y if mended else y.roll(1)), test, epochs=12)


@case("misaligned-labels", kind="table")
def course_sorted_by_hand(seed: int, mended: bool = False) -> Built:
    """Someone inserted five rows at the top of one of two files."""
    (x, y), (u, v) = real("wine", seed)
    if not mended:
        y, v = y.roll(5), v.roll(5)
    return fit(mlp(13, 24, 3), (x, y), (u, v), epochs=25, give="vhb")


@case("misaligned-labels", kind="sequences", strength="mild")
def course_targets_two_windows_off(seed: int, mended: bool = False) -> Built:
    """Independent windows and their answers, two rows apart; no validation set."""
    (x, y), test = forecast(seed)
    return fit(
        Recurrent(hidden=16, outputs=1),
        (x, y if mended else y.roll(-2)),
        test,
        loss="mse",
        epochs=12,
        batch=64,
        give="ob",
    )


@case("no-signal", kind="images")
def course_coin_toss_labels(seed: int, mended: bool = False) -> Built:
    """The column of labels is a coin toss."""
    (x, y), (u, v) = digits(seed, limit=900)
    if mended:
        y, v = y % 2, v % 2
    else:
        y, v = torch.randint(0, 2, y.shape), torch.randint(0, 2, v.shape)
    return fit(cnn(2), (x, y), (u, v), epochs=12)


@case("no-signal", kind="sequences")
def course_returns_from_past_returns(seed: int, mended: bool = False) -> Built:
    """Tomorrow's return from the returns of the past weeks, all independent."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(5, (700, 15, 1)) * 0.7
    y = x[:, -1, 0] * 0.8 + rng.normal(0, 0.3, 700) if mended else rng.standard_t(5, 700) * 0.7
    train, test = split(x, y, seed)
    return fit(Recurrent(hidden=12, outputs=1), train, test, loss="mse", epochs=12, batch=64, give="vhb")


@case("no-signal", kind="table", strength="mild")
def course_horoscope(seed: int, mended: bool = False) -> Built:
    """Three classes from twelve columns that have nothing to do with them; the user took care not to overfit."""
    (x, y), (u, v) = blobs(seed, classes=3)
    if not mended:
        y, v = y[torch.randperm(len(y))], v[torch.randperm(len(v))]
    return fit(mlp(12, 8, 3), (x, y), (u, v), epochs=10, optimizer=adam(3e-3, 1e-3), give="vob")


@case("label-noise", kind="images")
def course_crowd_workers(seed: int, mended: bool = False) -> Built:
    """Two labels in five are some other class."""
    (x, y), test = digits(seed)
    if not mended:
        wrong = torch.rand(len(y)) < 0.4
        y = torch.where(wrong, (y + torch.randint(1, 10, y.shape)) % 10, y)
    return fit(cnn(channels=12), (x, y), test, epochs=20)


@case("label-noise", kind="table", strength="mild")
def course_tired_annotator(seed: int, mended: bool = False) -> Built:
    """A quarter of the diagnoses flipped, in training and test rows alike."""
    (x, y), (u, v) = cancer(seed)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.25, 1 - y, y)
        v = torch.where(torch.rand(len(v)) < 0.25, 1 - v, v)
    return fit(mlp(30, 16, 1), (x, y), (u, v), loss="bce_with_logits", epochs=12, give="vob")


@case("label-noise", kind="text")
def course_stars_clicked_at_random(seed: int, mended: bool = False) -> Built:
    """A third of the users clicked the wrong star."""
    (x, y), (u, v) = topics(seed)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.35, (y + torch.randint(1, 4, y.shape)) % 4, y)
    return fit(
        Recurrent(inputs=12, hidden=16, outputs=4, words=60),
        (x, y),
        (u, v),
        optimizer=adam(5e-3),
        epochs=12,
        batch=64,
    )


def rare(seed: int, n: int, share: float, apart: float) -> tuple[Any, Any]:
    """Return two overlapping classes of unequal size."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    x = rng.normal(size=(n, 8)) + apart * y[:, None] * np.array([1, -1, 1, 0, 0, 0.5, 0, 0])
    return split(x, y, seed)


@case("class-imbalance", kind="table")
def course_three_frauds_in_a_hundred(seed: int, mended: bool = False) -> Built:
    """Three frauds in a hundred: the net calls nothing a fraud and is right 97 times in 100."""
    train, test = rare(seed, 1500, 0.03, 0.8)
    weight = torch.tensor([1.0, 32.0])
    loss: Any = (lambda o, y: F.cross_entropy(o, y, weight)) if mended else "cross_entropy"
    return fit(mlp(8, 16, 2), train, test, loss=loss, epochs=8, batch=64)


@case("class-imbalance", kind="images", strength="mild")
def course_few_defects(seed: int, mended: bool = False) -> Built:
    """One image in fifteen shows a faint defect and most of them are missed."""
    rng = np.random.default_rng(seed)
    y = (rng.random(1200) < 0.07).astype(int)
    x = rng.normal(0, 1, (1200, 1, 8, 8))
    x[:, :, 2:6, 2:6] += 0.45 * y[:, None, None, None]
    train, test = split(x, y, seed)
    weight = torch.tensor([1.0, 13.0])
    loss: Any = (lambda o, y: F.cross_entropy(o, y, weight)) if mended else "cross_entropy"
    return fit(cnn(2, channels=4), train, test, loss=loss, epochs=5, optimizer=adam(2e-3), give="vob")


@case("class-imbalance", kind="sequences", strength="mild")
def course_rare_wave(seed: int, mended: bool = False) -> Built:
    """The third kind of wave is one recording in twenty and is taken for one of the others."""
    (x, y), (u, v) = waves(seed, n=1300, noise=0.5)
    kept, left = (y != 2) | (torch.rand(len(y)) < 0.1), (v != 2) | (torch.rand(len(v)) < 0.1)
    x, y, test = x[kept], y[kept], (u[left], v[left])
    weight = 1 / torch.bincount(y).float()
    loss: Any = nn.CrossEntropyLoss(weight / weight.mean()) if mended else "cross_entropy"
    return fit(Signal((9, 9), 16, 3, pool="mean"), (x, y), test, loss=loss, epochs=15, optimizer=adam(1e-3))


@case("misaligned-labels", kind="graph", strength="mild")
def course_graphs_and_labels_shifted(seed: int, mended: bool = False) -> Built:
    """The list of graphs lost its first entry, the labels did not."""
    ((x, a), y), test = molecules(seed)
    model = Convolved(3, 24, 2, pool=True)
    return fit(model, ((x, a), y if mended else y.roll(-1)), test, epochs=25, optimizer=adam(1e-2))


@case("unscaled-inputs", kind="graph", strength="mild")
def course_node_features_in_bytes(seed: int, mended: bool = False) -> Built:
    """Two of sixteen node features count bytes and are in the tens of thousands."""
    ((x, a), y), ((_, _), v) = citations(seed)
    if not mended:
        x = x.clone()
        x[:, :2] = torch.randn(len(x), 2).exp() * 2e4
    model = Convolved(16, 16, 4)
    return fit(model, ((x, a), y), ((x, a), v), epochs=60, batch=None, optimizer=adam(1e-2), give="vo")


@case("distribution-shift", kind="text")
def course_other_vocabulary(seed: int, mended: bool = False) -> Built:
    """The test reviews were tokenised with another vocabulary: all ids moved by twenty."""
    train, (u, v) = reviews(seed)
    return fit(
        Transformer(), train, (u if mended else (u + 20) % 60, v), epochs=12, optimizer=adam(3e-3), give="vh"
    )


@case("constant-features", kind="sequences", strength="mild")
def course_stuck_accelerometer(seed: int, mended: bool = False) -> Built:
    """Of three channels the two that tell most were cut at the logger: they are the same value throughout."""
    (x, y), (u, v) = waves(seed, noise=0.2)

    def channels(t: Tensor) -> Tensor:
        others = [t + 0.5 * torch.randn_like(t) if mended else torch.full_like(t, 0.7) for _ in range(2)]
        return torch.cat([t + 1.5 * torch.randn_like(t), *others], 2)

    model = Signal((7, 7), 16, 3, inputs=3, pool="mean")
    return fit(model, (channels(x), y), (channels(u), v), epochs=20, give="vob")


@case("duplicate-features", kind="images", strength="mild")
def course_pixels_twice(seed: int, mended: bool = False) -> Built:
    """Flattened digits with the four middle rows appended a second time by a wrong slice."""
    (x, y), (u, v) = digits(seed, flat=True, limit=900)
    inked = x.std(0) > 0.05  # the always blank pixels were dropped
    x, u = x[:, inked], u[:, inked]
    if not mended:
        x, u = torch.cat([x, x[:, 16:48]], 1), torch.cat([u, u[:, 16:48]], 1)
    return fit(mlp(x.shape[1], 32, 10), (x, y), (u, v), epochs=15, give="vh")
