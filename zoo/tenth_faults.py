"""Single faults as forums and fault benchmarks report them, each with its repaired twin (``mended=True``)."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.tenth_parts import *

ME = "tenth"
TABLE = {"kind": "table", "author": ME}
IMAGES = {"kind": "images", "author": ME}
SEQ = {"kind": "sequences", "author": ME}
TEXT = {"kind": "text", "author": ME}
GRAPH = {"kind": "graph", "author": ME}
GEN = {"kind": "generative", "author": ME}


# ================================================================ data
def _holes(X, share, value, seed):
    X = X.clone()
    X[torch.rand(X.shape, generator=torch.Generator().manual_seed(seed)) < share] = value
    return X


@case("not-finite-data", **TABLE)
def t10_sensor_dropouts(seed, mended=False):
    """Missing cells of a table were left as NaN."""
    X, y, Xv, yv = blobs(seed)
    X, Xv = (_holes(v, 0.01, float("nan"), seed) for v in (X, Xv))
    if mended:
        X, Xv = X.nan_to_num(0), Xv.nan_to_num(0)
    return train(seed, (X, y, Xv, yv), lambda: Dense(12, 5), epochs=12, give="all")


@case("not-finite-data", **TABLE)
def t10_log_of_zero_column(seed, mended=False):
    """A column was put through log and holds minus infinity where it was zero."""
    X, y, Xv, yv = friedman(seed)
    for v in (X, Xv):
        raw = torch.clamp(v[:, 6] + 1, min=0)
        v[:, 6] = torch.log1p(raw) if mended else torch.log(raw)
    return train(seed, (X, y, Xv, yv), lambda: Squeeze(mlp(8, 48, 1)), loss="mse", give="bare", form="numpy")


@case("not-finite-data", **SEQ)
def t10_target_nan_gaps(seed, mended=False):
    """A few targets of a forecast are NaN because the meter was off."""
    X, y, Xv, yv = series(seed)
    gone = torch.arange(17, len(y), 120)
    y = y.clone()
    if mended:
        keep = torch.ones(len(y), dtype=torch.bool)
        keep[gone] = False
        X, y = X[keep], y[keep]
    else:
        y[gone] = float("nan")
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=10,
        give="hist",
    )


@case("not-finite-data", strength="mild", **IMAGES)
def t10_one_broken_image(seed, mended=False):
    """One picture was divided by its own zero maximum."""
    X, y, Xv, yv = shapes(seed)
    X = X.clone()
    X[33] = 0 if mended else float("nan")
    return train(seed, (X, y, Xv, yv), lambda: Conv(4, 12, flat=False), epochs=8, give="loss")


class HandSoftmax(nn.Module):
    """Softmax written with exp, and logits multiplied by a large temperature factor."""

    def __init__(self, d, k, sharp, safe):
        super().__init__()
        self.body, self.sharp, self.safe = mlp(d, 64, k), sharp, safe

    def forward(self, x):
        z = self.sharp * self.body(x)
        if self.safe:
            return F.log_softmax(z, 1)
        e = torch.exp(z)
        return torch.log(e / e.sum(1, keepdim=True))


@case("overflow", **TABLE)
def t10_hand_written_softmax(seed, mended=False):
    return train(
        seed,
        digits(seed),
        lambda: HandSoftmax(64, 10, 120.0, mended),
        loss="nll",
        epochs=8,
        opt=adam(1e-3),
        give="all",
    )


@case("overflow", **TABLE)
def t10_log_of_sigmoid(seed, mended=False):
    """Binary cross-entropy by hand: log of a probability that is exactly 0 or 1."""

    def hand(out, y):
        if mended:
            return F.binary_cross_entropy_with_logits(out, y)
        p = torch.sigmoid(out)
        return -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()

    data = cancer(seed)
    return train(
        seed,
        data,
        lambda: Squeeze(mlp(30, 64, 64, 1), lambda z: 25 * z),
        loss=hand,
        opt=adam(3e-3),
        epochs=25,
        give="hist",
    )


class HalfInside(nn.Module):
    """The sum of squares of the features is taken in float16 'to save memory'."""

    def __init__(self, half):
        super().__init__()
        self.scale, self.net, self.half_ = nn.Linear(64, 64), mlp(65, 64, 10), half

    def forward(self, x):
        h = 60 * self.scale(x)
        h = h.half() if self.half_ else h
        norm = (h * h).sum(1, keepdim=True).sqrt().float()
        return self.net(torch.cat([h.float() / 60, norm / 480], 1))


@case("overflow", **IMAGES)
def t10_half_precision_norm(seed, mended=False):
    return train(seed, digits(seed), lambda: HalfInside(not mended), epochs=8, give="loss")


class SteepSoftplus(nn.Module):
    """A softplus with slope, written as log(1 + exp(b x)) / b: infinite for some rows."""

    def __init__(self, d, right):
        super().__init__()
        self.a, self.b, self.right = nn.Linear(d, 64), nn.Linear(64, 1), right

    def forward(self, x):
        h = self.a(x)
        h = F.softplus(h, beta=40.0) if self.right else torch.log(1 + torch.exp(40 * h)) / 40
        return self.b(h).squeeze(1)


@case("overflow", strength="mild", **TABLE)
def t10_softplus_by_hand(seed, mended=False):
    return train(seed, friedman(seed), lambda: SteepSoftplus(8, mended), loss="mse", epochs=12, give="opt")


@case("unscaled-inputs", **TABLE)
def t10_mixed_units(seed, mended=False):
    """Grams, kilometres and years in one table, as they came."""
    X, y, Xv, yv = blobs(seed)
    if not mended:
        unit = 10.0 ** torch.linspace(-3, 4, 12)
        X, Xv = X * unit + 3 * unit, Xv * unit + 3 * unit
    return train(
        seed, (X, y, Xv, yv), lambda: Dense(12, 5), opt=sgd(0.02), epochs=15, give="all", form="numpy"
    )


@case("unscaled-inputs", **IMAGES)
def t10_raw_bytes_tanh(seed, mended=False):
    """Pictures in 0..255 into a tanh net."""
    X, y, Xv, yv = digits(seed)
    if not mended:
        X, Xv = (X + 0.6) * 127, (Xv + 0.6) * 127
    return train(
        seed, (X, y, Xv, yv), lambda: mlp(64, 48, 48, 10, act=nn.Tanh), opt=sgd(0.02), epochs=12, give="opt"
    )


@case("unscaled-inputs", **SEQ)
def t10_pressure_in_pascal(seed, mended=False):
    """A series about 101325 with changes of some hundreds."""
    X, y, Xv, yv = series(seed)
    if not mended:
        X, Xv = 101325 + 300 * X, 101325 + 300 * Xv
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=10,
        give="loss",
    )


@case("unscaled-inputs", strength="mild", **TABLE)
def t10_income_not_scaled(seed, mended=False):
    """One important column in single dollars, the others standardised."""
    X, y, Xv, yv = friedman(seed)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        for v in (X, Xv):
            v[:, 3] = 30000 + 9000 * v[:, 3]
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 64, 64, 1)),
        loss="mse",
        opt=adam(1e-3),
        epochs=20,
        give="hist",
    )


@case("unscaled-targets", **TABLE)
def t10_house_prices(seed, mended=False):
    X, y, Xv, yv = friedman(seed)
    if not mended:
        y, yv = 300000 + 80000 * y, 300000 + 80000 * yv
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 64, 64, 1)),
        loss="mse",
        opt=adam(1e-3),
        epochs=25,
        give="all",
    )


@case("unscaled-targets", **SEQ)
def t10_load_in_watt(seed, mended=False):
    X, y, Xv, yv = series(seed)
    if not mended:
        y, yv = 5000 + 2000 * y, 5000 + 2000 * yv
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Recurrent(1, 1, squeeze=True),
        loss=nn.MSELoss(),
        opt=adam(5e-3),
        epochs=10,
        give="opt",
    )


@case("unscaled-targets", strength="mild", **TABLE)
def t10_area_targets(seed, mended=False):
    """Targets of some hundreds with plain SGD at a rate small enough not to burst."""
    X, y, Xv, yv = friedman(seed)
    if not mended:
        y, yv = 900 + 150 * y, 900 + 150 * yv
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 48, 48, 1, act=nn.Tanh)),
        loss="mse",
        opt=adam(3e-3),
        epochs=25,
        give="bare",
        form="numpy",
    )


@case("constant-features", **TABLE)
def t10_integer_division(seed, mended=False):
    """Five of the columns were cast to small integers and are zero everywhere."""
    X, y, Xv, yv = blobs(seed, d=10)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        X[:, :5] = 0.0
        Xv[:, :5] = 0.0
    return train(seed, (X, y, Xv, yv), lambda: Dense(10, 5), epochs=15, give="all")


@case("constant-features", **IMAGES)
def t10_half_picture_black(seed, mended=False):
    """The loader fills only the upper half of each picture."""
    X, y, Xv, yv = digits(seed, flat=False)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        X[:, :, 3:] = -0.6
        Xv[:, :, 3:] = -0.6
    return train(seed, (X, y, Xv, yv), lambda: Conv(10), epochs=8, give="opt")


@case("constant-features", strength="mild", **TABLE)
def t10_clipped_columns(seed, mended=False):
    """Two informative columns were clipped at an upper bound below their values."""
    X, y, Xv, yv = friedman(seed)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        for v in (X, Xv):
            v[:, [1, 3]] = v[:, [1, 3]].clamp(min=2.0, max=2.0)
    return train(seed, (X, y, Xv, yv), lambda: Squeeze(mlp(8, 64, 64, 1)), loss="mse", epochs=15, give="bare")


@case("duplicate-features", **TABLE)
def t10_join_wrote_twice(seed, mended=False):
    """A join wrote the first five columns over the last five."""
    X, y, Xv, yv = blobs(seed, d=10)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        X[:, 5:], Xv[:, 5:] = X[:, :5].clone(), Xv[:, :5].clone()
    return train(seed, (X, y, Xv, yv), lambda: Dense(10, 5), epochs=15, give="hist")


@case("duplicate-features", strength="mild", **TABLE)
def t10_one_column_read_four_times(seed, mended=False):
    X, y, Xv, yv = friedman(seed)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        for v in (X, Xv):
            v[:, [1, 3, 4]] = v[:, [0]]
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 64, 64, 1)),
        loss="mse",
        epochs=15,
        give="bare",
        form="numpy",
    )


@case("duplicate-features", **TABLE)
def t10_same_channel_twice(seed, mended=False):
    """Each second column is a copy of the one before it."""
    X, y, Xv, yv = blobs(seed, d=16, k=4, sep=1.0)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        X[:, 1::2], Xv[:, 1::2] = X[:, ::2].clone(), Xv[:, ::2].clone()
    return train(seed, (X, y, Xv, yv), lambda: mlp(16, 64, 4), opt=sgd(0.05), epochs=15, give="opt")


@case("train-test-overlap", **TABLE)
def t10_validation_is_training(seed, mended=False):
    """The validation rows were drawn from the training rows."""
    X, y, Xv, yv = blobs(seed, n=400, sep=0.9)
    if not mended:
        Xv, yv = X[:200].clone(), y[:200].clone()
    return train(seed, (X, y, Xv, yv), lambda: Dense(12, 5), epochs=40, give="all")


@case("train-test-overlap", **TABLE)
def t10_oversampled_before_split(seed, mended=False):
    """The rare class was repeated sixfold and the split made afterwards."""
    r = np.random.default_rng(seed)
    X, y, Xv, yv = blobs(seed, n=700, held=300, k=2, d=12, sep=0.7, flip=0.15)
    X, y = torch.cat([X, Xv]), torch.cat([y, yv])
    rare = torch.nonzero(y == 1)[:120, 0]
    X, y = torch.cat([X[y == 0], X[rare]]), torch.cat([y[y == 0], y[rare]])
    if mended:
        order = torch.as_tensor(r.permutation(len(y)))
        a, b = order[200:], order[:200]
        extra = a[y[a] == 1].repeat(5)
        return train(
            seed,
            (X[torch.cat([a, extra])], y[torch.cat([a, extra])], X[b], y[b]),
            lambda: Dense(12, 2),
            epochs=25,
            give="opt",
        )
    more = torch.cat([torch.arange(len(y)), torch.nonzero(y == 1)[:, 0].repeat(5)])
    order = more[torch.as_tensor(r.permutation(len(more)))]
    a, b = order[300:], order[:300]
    return train(seed, (X[a], y[a], X[b], y[b]), lambda: Dense(12, 2), epochs=25, give="opt")


@case("train-test-overlap", strength="mild", **IMAGES)
def t10_forty_percent_seen(seed, mended=False):
    """Two in five validation pictures are also in training, because two folders were merged."""
    X, y, Xv, yv = shapes(seed, n=400, noise=0.55)
    if not mended:
        Xv, yv = torch.cat([Xv[:90], X[40:100]]), torch.cat([yv[:90], y[40:100]])
    return train(seed, (X, y, Xv, yv), lambda: Conv(4, 12), epochs=25, give="hist")


@case("train-test-overlap", **TEXT)
def t10_copied_reviews(seed, mended=False):
    """The same reviews were scraped twice and fell on both sides of the split."""
    X, y, Xv, yv = reviews(seed, n=300, vocab=400, held=300)
    if not mended:
        Xv, yv = torch.cat([Xv[:40], X[100:260]]), torch.cat([yv[:40], y[100:260]])
    return train(seed, (X, y, Xv, yv), lambda: Bag(400, 2), opt=adam(1e-2), epochs=20, give="bare")


@case("distribution-shift", **TABLE)
def t10_scaler_fitted_apart(seed, mended=False):
    """Training rows were scaled by their own scaler, the new rows left in raw units of another size."""
    X, y, Xv, yv = blobs(seed)
    if not mended:
        Xv = Xv * 0.4 + 1.5
    return train(seed, (X, y, Xv, yv), lambda: Dense(12, 5), epochs=12, give="all")


@case("distribution-shift", **IMAGES)
def t10_inverted_validation(seed, mended=False):
    """Validation pictures are dark on white, training pictures white on dark."""
    X, y, Xv, yv = digits(seed, flat=False)
    if not mended:
        Xv = 0.8 - Xv
    return train(seed, (X, y, Xv, yv), lambda: Conv(10), epochs=8, give="opt")


@case("distribution-shift", strength="mild", **SEQ)
def t10_trend_after_split(seed, mended=False):
    """The series drifts upwards: the later part lies above all that was seen."""
    X, y, Xv, yv = series(seed)
    if not mended:
        drift = torch.linspace(0, 12, len(X) + len(Xv))
        X, y = X + drift[: len(X), None, None], y + drift[: len(X)]
        Xv, yv = Xv + drift[len(X) :, None, None], yv + drift[len(X) :]
        m, s = y.mean(), y.std()
        X, y, Xv, yv = (X - m) / s, (y - m) / s, (Xv - m) / s, (yv - m) / s
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=12,
        give="hist",
    )


@case("distribution-shift", **TEXT)
def t10_other_tokeniser(seed, mended=False):
    """The new sentences were numbered by another vocabulary."""
    X, y, Xv, yv = topics(seed)
    if not mended:
        Xv = torch.where(Xv >= 40, 40 + (Xv - 40) // 3, (Xv + 8) % 40)
    return train(seed, (X, y, Xv, yv), lambda: Bag(80, 5), opt=adam(1e-2), epochs=12, give="loss")


@case("distribution-shift", strength="mild", **TABLE)
def t10_other_hospital(seed, mended=False):
    """Five columns of the second hospital are measured by another device."""
    X, y, Xv, yv = cancer(seed)
    if not mended:
        Xv = Xv.clone()
        Xv[:, 20:28] = 2.0 * Xv[:, 20:28] + 2.5
    return train(
        seed, (X, y, Xv, yv), lambda: Squeeze(mlp(30, 32, 1)), loss="bce_with_logits", epochs=12, give="bare"
    )


@case("target-leak", **TABLE)
def t10_outcome_code_column(seed, mended=False):
    """A column written after the outcome was known."""
    X, y, Xv, yv = blobs(seed, k=2, sep=0.5, flip=0.3)
    if not mended:
        g = torch.Generator().manual_seed(seed)
        add = lambda t: (2.0 * t - 1 + 0.1 * torch.randn(len(t), generator=g))[:, None]  # noqa: E731
        X, Xv = torch.cat([X, add(y)], 1), torch.cat([Xv, add(yv)], 1)
    return train(seed, (X, y, Xv, yv), lambda: Dense(X.shape[1], 2, 32), epochs=10, give="all")


@case("target-leak", **TABLE)
def t10_price_per_area(seed, mended=False):
    """Regression: one column is the target in another unit with a little noise."""
    X, y, Xv, yv = friedman(seed, noise=6.0)
    if not mended:
        g = torch.Generator().manual_seed(seed)
        X, Xv = X.clone(), Xv.clone()
        X[:, 7] = -0.9 * y + 0.05 * torch.randn(len(y), generator=g)
        Xv[:, 7] = -0.9 * yv + 0.05 * torch.randn(len(yv), generator=g)
    return train(
        seed, (X, y, Xv, yv), lambda: Squeeze(mlp(8, 48, 1)), loss="mse", epochs=10, give="bare", form="numpy"
    )


@case("target-leak", **IMAGES)
def t10_label_stamp(seed, mended=False):
    """The scanner printed the class as a bright pixel in the margin."""
    X, y, Xv, yv = shapes(seed, noise=1.1)
    if not mended:
        X, Xv = X.clone(), Xv.clone()
        X[torch.arange(len(y)), 0, 0, 2 * y] = 4.0
        Xv[torch.arange(len(yv)), 0, 0, 2 * yv] = 4.0
    return train(seed, (X, y, Xv, yv), lambda: Conv(4, 12), epochs=8, give="opt")


@case("target-leak", strength="mild", **SEQ)
def t10_window_holds_answer(seed, mended=False):
    """Windows of a noisy series that end one step too late, on the value to be foretold."""
    r = np.random.default_rng(seed)
    s = torch.as_tensor(r.normal(size=1200) + 0.5 * np.sin(np.arange(1200) / 4), dtype=torch.float32)
    off = 0 if mended else 1
    X = torch.stack([s[i + off : i + off + 10] for i in range(1100)])[..., None]
    y = s[10:1110]
    return train(
        seed,
        (X[:800], y[:800], X[800:], y[800:]),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=12,
        give="loss",
    )


@case("misaligned-labels", **TABLE)
def t10_shuffled_features_only(seed, mended=False):
    """The training rows were shuffled, their labels not; validation is right."""
    X, y, Xv, yv = blobs(seed)
    if not mended:
        X = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))]
    return train(seed, (X, y, Xv, yv), lambda: Dense(12, 5), epochs=12, give="all")


@case("misaligned-labels", **IMAGES)
def t10_label_file_off_by_one(seed, mended=False):
    """The label file has a header line that was read as a label: all labels one row late, on both sides."""
    X, y, Xv, yv = digits(seed, flat=False)
    if not mended:
        y, yv = torch.roll(y, 1), torch.roll(yv, 1)
    return train(seed, (X, y, Xv, yv), lambda: Conv(10), epochs=8, give="opt")


@case("misaligned-labels", **TEXT)
def t10_sorted_sentences(seed, mended=False):
    """Sentences were sorted by their first words for speed, their labels were not."""
    X, y, Xv, yv = topics(seed)
    if not mended:
        X = X[torch.argsort(X[:, 0] * 100 + X[:, 1])]
    return train(seed, (X, y, Xv, yv), lambda: Bag(80, 5), opt=adam(1e-2), epochs=10, give="bare")


@case("misaligned-labels", strength="mild", **TABLE)
def t10_late_by_two_from_the_middle(seed, mended=False):
    """From a third of the file on, targets are two rows late; validation is right."""
    X, y, Xv, yv = friedman(seed)
    if not mended:
        y = y.clone()
        y[300:] = torch.roll(y[300:], 2)
    return train(seed, (X, y, Xv, yv), lambda: Squeeze(mlp(8, 64, 64, 1)), loss="mse", epochs=15, give="hist")


@case("no-signal", **TABLE)
def t10_random_labels(seed, mended=False):
    X, y, Xv, yv = blobs(seed, k=3)
    if not mended:
        g = torch.Generator().manual_seed(seed)
        y, yv = torch.randint(0, 3, y.shape, generator=g), torch.randint(0, 3, yv.shape, generator=g)
    return train(seed, (X, y, Xv, yv), lambda: Dense(12, 3), epochs=15, give="all")


@case("no-signal", **SEQ)
def t10_returns_of_a_random_walk(seed, mended=False):
    """Tomorrow's return from ten returns that do not depend on each other."""
    X, y, Xv, yv = series(seed)
    if not mended:
        s = torch.randn(1200, generator=torch.Generator().manual_seed(seed))
        X = torch.stack([s[i : i + 12] for i in range(1100)])[..., None]
        y = s[12:1112]
        X, y, Xv, yv = X[:800], y[:800], X[800:], y[800:]
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=10,
        give="opt",
    )


@case("no-signal", **TEXT)
def t10_sentences_without_topic(seed, mended=False):
    X, y, Xv, yv = topics(seed)
    if not mended:
        g = torch.Generator().manual_seed(seed)
        X, Xv = torch.randint(0, 80, X.shape, generator=g), torch.randint(0, 80, Xv.shape, generator=g)
    return train(seed, (X, y, Xv, yv), lambda: TextRnn(80, 5), opt=adam(5e-3), epochs=6, give="loss")


def _flip(y, share, k, seed):
    g = torch.Generator().manual_seed(seed + 5)
    other = (y + torch.randint(1, k, y.shape, generator=g)) % k
    return torch.where(torch.rand(y.shape, generator=g) < share, other, y)


@case("label-noise", **TABLE)
def t10_careless_annotators(seed, mended=False):
    X, y, Xv, yv = digits(seed)
    y = y if mended else _flip(y, 0.4, 10, seed)
    return train(seed, (X, y, Xv, yv), lambda: Dense(64, 10), epochs=20, give="all")


@case("label-noise", **IMAGES)
def t10_crowd_labels(seed, mended=False):
    """Noise on both sides."""
    X, y, Xv, yv = shapes(seed)
    if not mended:
        y, yv = _flip(y, 0.35, 4, seed), _flip(yv, 0.35, 4, seed + 1)
    return train(seed, (X, y, Xv, yv), lambda: Conv(4, 12), epochs=15, give="opt")


@case("label-noise", strength="mild", **TEXT)
def t10_stars_clicked_by_mistake(seed, mended=False):
    X, y, Xv, yv = topics(seed, share=0.4)
    y = y if mended else _flip(y, 0.25, 5, seed)
    return train(seed, (X, y, Xv, yv), lambda: Bag(80, 5), opt=adam(1e-2), epochs=15, give="bare")


@case("label-noise", strength="mild", **TABLE)
def t10_typed_in_wrong_digits(seed, mended=False):
    """One target in five is wild."""
    X, y, Xv, yv = friedman(seed)
    if not mended:
        g = torch.Generator().manual_seed(seed)
        bad = torch.rand(len(y), generator=g) < 0.2
        y = torch.where(bad, 3 * torch.randn(len(y), generator=g), y)
    return train(seed, (X, y, Xv, yv), lambda: Squeeze(mlp(8, 64, 64, 1)), loss="mse", epochs=20, give="hist")


def _thin(X, y, c, keep, seed):
    g = torch.Generator().manual_seed(seed)
    rows = (y != c) | (torch.rand(len(y), generator=g) < keep)
    return (tuple(v[rows] for v in X) if isinstance(X, tuple) else X[rows]), y[rows]


@case("class-imbalance", **TABLE)
def t10_fraud_ignored(seed, mended=False):
    """Three per cent fraud, overlapping with the rest; plain loss."""
    X, y, Xv, yv = blobs(seed, n=2400, held=1200, k=2, d=8, sep=0.55)
    X, y = _thin(X, y, 1, 0.05, seed)
    Xv, yv = _thin(Xv, yv, 1, 0.1, seed)
    w = torch.tensor([1.0, 20.0])
    loss = nn.CrossEntropyLoss(weight=w) if mended else nn.CrossEntropyLoss()
    return train(
        seed, (X, y, Xv, yv), lambda: mlp(8, 16, 2), loss=loss, opt=adam(1e-3), epochs=12, give="all"
    )


@case("class-imbalance", **IMAGES)
def t10_is_it_an_eight(seed, mended=False):
    """Grainy pictures, four in a hundred show an eight; the plain loss never says so."""
    g = torch.Generator().manual_seed(seed)
    X, y, Xv, yv = digits(seed, n=1250, held=540, flat=False)
    X, Xv = X + 1.0 * torch.randn(X.shape, generator=g), Xv + 1.0 * torch.randn(Xv.shape, generator=g)
    X, y = _thin(X, (y == 8).long(), 1, 0.5, seed)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 18.0])) if mended else "cross_entropy"
    return train(
        seed,
        (X, y, Xv, (yv == 8).long()),
        lambda: Conv(2, width=6),
        loss=loss,
        opt=adam(1e-3),
        epochs=6,
        give="opt",
    )


@case("class-imbalance", strength="mild", **TEXT)
def t10_rare_topic(seed, mended=False):
    X, y, Xv, yv = topics(seed, n=1600, held=800, k=3, share=0.16)
    X, y = _thin(X, y, 0, 0.09, seed)
    Xv, yv = _thin(Xv, yv, 0, 0.15, seed)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([10.0, 1.0, 1.0])) if mended else "cross_entropy"
    return train(
        seed, (X, y, Xv, yv), lambda: Bag(80, 3, dim=8), loss=loss, opt=adam(3e-3), epochs=8, give="bare"
    )


# ================================================================ objective
@case("double-softmax", **IMAGES)
def t10_softmax_layer_then_cross_entropy(seed, mended=False):
    end = None if mended else nn.Softmax(1)
    return train(seed, digits(seed, flat=False), lambda: Conv(10, end=end), epochs=6, give="all")


@case("double-softmax", **TEXT)
def t10_softmax_in_forward_text(seed, mended=False):
    class Net(Bag):
        def forward(self, tokens):
            out = super().forward(tokens)
            return out if mended else F.softmax(out, dim=-1)

    return train(
        seed,
        topics(seed),
        lambda: Net(80, 5),
        opt=adam(5e-3),
        epochs=8,
        loss=nn.CrossEntropyLoss(),
        give="loss",
    )


@case("double-softmax", strength="mild", **TABLE)
def t10_softmax_few_classes(seed, mended=False):
    end = () if mended else (nn.Softmax(dim=1),)
    return train(
        seed,
        blobs(seed, k=3),
        lambda: mlp(12, 48, 48, 3, end=end),
        opt=sgd(0.02),
        epochs=15,
        give="loss",
        form="loader",
    )


@case("double-softmax", **TABLE)
def t10_sigmoid_then_bce_with_logits(seed, mended=False):
    act = None if mended else torch.sigmoid
    return train(
        seed,
        cancer(seed),
        lambda: Squeeze(mlp(30, 32, 1), act),
        loss="bce_with_logits",
        opt=adam(3e-3),
        epochs=15,
        give="opt",
    )


@case("double-softmax", **GRAPH)
def t10_graph_softmax_then_cross_entropy(seed, mended=False):
    class Net(EdgeNet):
        def forward(self, x, edge_index):
            out = super().forward(x, edge_index)
            return out if mended else out.softmax(1)

    X, A, edges, y, tr = community(seed)
    data = ((X, edges), torch.where(tr, y, -100), (X, edges), torch.where(tr, -100, y))
    return train(
        seed, data, lambda: Net(8, 4, own=False), opt=adam(1e-2), batch=len(y), epochs=40, give="opt"
    )


@case("wrong-loss", **TABLE)
def t10_broadcast_mse(seed, mended=False):
    """Output (n, 1) against targets (n,): the difference is n by n."""
    net = (lambda: Squeeze(mlp(8, 64, 64, 1))) if mended else (lambda: mlp(8, 64, 64, 1))
    return train(
        seed, friedman(seed), net, loss=lambda out, y: ((out - y) ** 2).mean(), epochs=12, give="all"
    )


@case("wrong-loss", **TABLE)
def t10_logits_into_nll(seed, mended=False):
    """NLLLoss on raw scores, without log_softmax."""
    end = (nn.LogSoftmax(1),) if mended else ()
    return train(
        seed, blobs(seed), lambda: mlp(12, 48, 5, end=end), loss="nll", opt=adam(1e-3), epochs=12, give="opt"
    )


@case("wrong-loss", **IMAGES)
def t10_softmax_over_the_batch(seed, mended=False):
    """log_softmax along dimension 0: rows compete instead of classes."""

    def loss(out, y):
        return F.nll_loss(F.log_softmax(out, dim=1 if mended else 0), y)

    return train(seed, shapes(seed), lambda: Conv(4, 12, flat=False), loss=loss, epochs=8, give="hist")


@case("wrong-loss", **TABLE)
def t10_class_numbers_by_mse(seed, mended=False):
    """Ten digits' names predicted as numbers with squared error and the same net's single output."""
    X, y, Xv, yv = digits(seed)
    if mended:
        return train(seed, (X, y, Xv, yv), lambda: Dense(64, 10), epochs=12, give="loss")
    mse = lambda out, t: ((out.squeeze(1) - t.float()) ** 2).mean()  # noqa: E731
    return train(seed, (X, y, Xv, yv), lambda: Dense(64, 1), loss=mse, epochs=12, give="loss")


@case("wrong-loss", strength="mild", **TABLE)
def t10_cross_entropy_for_many_labels(seed, mended=False):
    """Six independent yes-no targets per row, and a softmax cross-entropy in which they compete."""
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(1400, 12)), dtype=torch.float32)
    W = torch.as_tensor(r.normal(size=(12, 6)), dtype=torch.float32)
    y = (X @ W > 0).float()
    loss = "bce_with_logits" if mended else "cross_entropy"
    return train(
        seed,
        (X[:1000], y[:1000], X[1000:], y[1000:]),
        lambda: mlp(12, 48, 6),
        loss=loss,
        epochs=12,
        give="opt",
    )


@case("wrong-loss", **SEQ)
def t10_sign_of_the_loss(seed, mended=False):
    """Negative log-likelihood with the minus forgotten (bounded by a clamp on the scores)."""

    class Net(Conv1):
        def forward(self, x):
            return 6 * torch.tanh(super().forward(x) / 6)

    def loss(out, y):
        chosen = out.log_softmax(1).gather(1, y[:, None]).mean()
        return -chosen if mended else chosen

    return train(seed, waves(seed), lambda: Net(4), loss=loss, epochs=5, give="all")


@case("output-range", **TABLE)
def t10_relu_at_the_end(seed, mended=False):
    act = None if mended else F.relu
    return train(
        seed, friedman(seed), lambda: Squeeze(mlp(8, 64, 64, 1), act), loss="mse", epochs=15, give="all"
    )


@case("output-range", **TABLE)
def t10_sigmoid_for_ratings(seed, mended=False):
    """Ratings from 1 to 5 from a sigmoid."""
    X, y, Xv, yv = friedman(seed)
    y, yv = (3 + y).clamp(1, 5), (3 + yv).clamp(1, 5)
    act = None if mended else torch.sigmoid
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 64, 64, 1), act),
        loss="mse",
        epochs=20,
        give="bare",
        form="numpy",
    )


@case("output-range", strength="mild", **SEQ)
def t10_tanh_forecast(seed, mended=False):
    """A tanh at the end for values between -1.8 and 1.8."""

    class Net(Recurrent):
        def forward(self, x):
            out = super().forward(x)
            return out if mended else torch.tanh(out)

    return train(
        seed, series(seed), lambda: Net(1, 1, squeeze=True), loss="mse", opt=adam(5e-3), epochs=12, give="opt"
    )


@case("output-range", **IMAGES)
def t10_relu_on_the_logits(seed, mended=False):
    """ReLU after the last layer of a binary classifier: probabilities below one half cannot be said."""
    X, y, Xv, yv = shapes(seed)
    y, yv = (y == 3).float(), (yv == 3).float()
    act = None if mended else F.relu
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(Conv(1, 12, flat=False), act),
        loss="bce_with_logits",
        epochs=8,
        give="loss",
    )


@case("output-range", **GEN)
def t10_autoencoder_sigmoid_standardised(seed, mended=False):
    """An autoencoder with a sigmoid decoder on standardised pixels."""
    X, _, Xv, _ = digits(seed)
    keep = X.std(0) > 0.05
    m, s = X[:, keep].mean(0), X[:, keep].std(0)
    X, Xv = (X[:, keep] - m) / s, (Xv[:, keep] - m) / s
    d = X.shape[1]
    end = () if mended else (nn.Sigmoid(),)
    return train(
        seed, (X, X, Xv, Xv), lambda: mlp(d, 64, 24, 64, d, end=end), loss="mse", epochs=12, give="opt"
    )


class DropAlways(nn.Module):
    """F.dropout called without its training flag."""

    def __init__(self, d, k, right, p=0.5):
        super().__init__()
        self.a, self.b, self.c, self.right, self.p = (
            nn.Linear(d, 64),
            nn.Linear(64, 64),
            nn.Linear(64, k),
            right,
            p,
        )

    def forward(self, x):
        on = {"training": self.training} if self.right else {}
        x = F.dropout(F.relu(self.a(x)), self.p, **on)
        x = F.dropout(F.relu(self.b(x)), self.p, **on)
        return self.c(x)


@case("stochastic-evaluation", **TABLE)
def t10_functional_dropout(seed, mended=False):
    return train(seed, blobs(seed), lambda: DropAlways(12, 5, mended, 0.4), epochs=20, give="all")


@case("stochastic-evaluation", **IMAGES)
def t10_eval_never_called(seed, mended=False):
    """The model is used in training mode: dropout is on when it predicts."""
    net = lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Dropout2d(0.3),
        nn.Flatten(),
        nn.Linear(1024, 48),  # noqa: E731
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(48, 10),
    )
    return train(
        seed,
        digits(seed, flat=False),
        net,
        epochs=8,
        give="opt",
        after=None if mended else (lambda m: m.train()),
    )


@case("stochastic-evaluation", **SEQ)
def t10_noise_layer_left_on(seed, mended=False):
    class Net(Conv1):
        def forward(self, x):
            if self.training or not mended:
                x = x + 0.7 * torch.randn_like(x)
            return super().forward(x)

    return train(
        seed, waves(seed, noise=0.1), lambda: Net(4, norm=False), opt=adam(5e-3), epochs=25, give="loss"
    )


@case("stochastic-evaluation", strength="mild", **TABLE)
def t10_reparametrised_classifier(seed, mended=False):
    """A variational layer that goes on sampling when it predicts; output is a dict."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.head = mlp(8, 48, 16), mlp(8, 32, 1)

        def forward(self, x):
            m, v = self.enc(x).chunk(2, 1)
            m = F.layer_norm(m, (8,))
            z = m if mended and not self.training else m + 0.5 * torch.randn_like(m)
            return {"mean": self.head(z).squeeze(1), "latent": m}

    return train(
        seed, friedman(seed), Net, loss=lambda out, y: F.mse_loss(out["mean"], y), epochs=20, give="opt"
    )


@case("stochastic-evaluation", **IMAGES)
def t10_batch_statistics_at_use(seed, mended=False):
    """Batch norm without running statistics; the validation set comes sorted, so its neighbours matter."""
    net = lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.BatchNorm1d(64, track_running_stats=mended),
        nn.ReLU(),  # noqa: E731
        nn.Linear(64, 64),
        nn.BatchNorm1d(64, track_running_stats=mended),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    return train(seed, digits(seed, flat=False), net, epochs=10, give="all")


# ================================================================ graph and loop
class ListOfLayers(nn.Module):
    def __init__(self, d, k, right, width=24, depth=3):
        super().__init__()
        hidden = [nn.Linear(d if i == 0 else width, width) for i in range(depth)]
        self.hidden = nn.ModuleList(hidden) if right else hidden
        self.out = nn.Linear(width, k)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


@case("detached-parameters", **TABLE)
def t10_python_list_of_layers(seed, mended=False):
    return train(
        seed, spirals(seed), lambda: ListOfLayers(2, 2, mended), opt=adam(1e-2), epochs=30, give="all"
    )


class NoGradEncoder(nn.Module):
    def __init__(self, right):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 6, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.head, self.right = nn.Linear(24, 4), right

    def forward(self, x):
        with torch.set_grad_enabled(self.right and torch.is_grad_enabled()):
            h = self.encoder(x)
        return self.head(h)


@case("detached-parameters", **IMAGES)
def t10_no_grad_left_in_forward(seed, mended=False):
    return train(
        seed, shapes(seed, n=1000), lambda: NoGradEncoder(mended), opt=adam(5e-3), epochs=15, give="opt"
    )


@case("detached-parameters", **SEQ)
def t10_hidden_state_detached_each_step(seed, mended=False):
    """The state of a hand-written recurrence is detached after each step."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.inp, self.head = nn.GRUCell(8, 24), nn.Linear(1, 8), nn.Linear(24, 1)

        def forward(self, x):
            h = x.new_zeros(len(x), 24)
            for t in range(x.shape[1]):
                h = self.cell(self.inp(x[:, t]), h)
                h = h if mended else h.detach()
            return self.head(h).squeeze(1)

    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(900, 8, 1)), dtype=torch.float32)
    y = torch.tanh(X[:, 0, 0] * X[:, 3, 0]) + X[:, 5, 0].abs() - 0.8
    return train(
        seed, (X[:600], y[:600], X[600:], y[600:]), Net, loss="mse", opt=adam(1e-2), epochs=30, give="init"
    )


@case("detached-parameters", **TEXT)
def t10_embedding_through_numpy(seed, mended=False):
    """Word vectors are turned into a new tensor on the way (tiny vectors, so they must be learned)."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.net = nn.Embedding(80, 2), mlp(2, 24, 5)

        def forward(self, tokens):
            e = self.emb(tokens)
            e = e if mended else torch.tensor(e.detach().numpy())
            return self.net(e.mean(1))

    return train(seed, topics(seed), Net, opt=adam(1e-2), epochs=15, give="loss")


@case("detached-parameters", strength="mild", **TABLE)
def t10_data_attribute(seed, mended=False):
    """The middle of the net is read through .data."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 2)

        def forward(self, x):
            x = torch.relu(self.a(x))
            x = torch.relu(self.b(x))
            return self.c(x if mended else x.data)

    return train(seed, spirals(seed), Net, opt=adam(1e-2), epochs=30, give="bare")


def _freeze(module):
    for p in module.parameters():
        p.requires_grad_(False)
    return module


@case("frozen-parameters", **TABLE)
def t10_requires_grad_left_off(seed, mended=False):
    def net():
        m = mlp(2, 16, 16, 2)
        if not mended:
            _freeze(m[0]), _freeze(m[2])
        return m

    return train(seed, spirals(seed), net, opt=adam(1e-2), epochs=30, give="all")


@case("frozen-parameters", needs=("optimizer",), **IMAGES)
def t10_optimiser_of_the_head_only(seed, mended=False):
    """Random convolutions; only the head was given to the optimiser."""
    opt = adam(3e-3) if mended else (lambda m: torch.optim.Adam(m.head.parameters(), lr=3e-3))
    return train(seed, shapes(seed), lambda: Conv(4, 12, width=4, flat=False), opt=opt, epochs=12, give="all")


@case("frozen-parameters", needs=("optimizer",), **TEXT)
def t10_optimiser_of_an_older_model(seed, mended=False):
    """The model was made again after the optimiser: nothing of it moves."""
    opt = adam(1e-2) if mended else (lambda m: torch.optim.Adam(Bag(80, 5).parameters(), lr=1e-2))
    return train(seed, topics(seed), lambda: Bag(80, 5), opt=opt, epochs=8, give="all")


@case("frozen-parameters", strength="mild", **SEQ)
def t10_recurrent_weights_frozen(seed, mended=False):
    """A small LSTM whose recurrent layer was frozen for a warm-up and never thawed."""

    def net():
        m = Recurrent(1, 4, width=8, cell=nn.LSTM, channels_first=True)
        if not mended:
            _freeze(m.rnn)
        return m

    return train(seed, waves(seed, length=24), net, opt=adam(1e-2), epochs=20, give="loss")


@case("frozen-parameters", **GRAPH)
def t10_graph_layers_frozen(seed, mended=False):
    X, A, edges, y, tr = community(seed, strength=0.5, d=16)
    nodes = torch.arange(len(y))

    def net():
        m = NodeLookup(X, A, Gcn(16, 4, width=3))
        if not mended:
            _freeze(m.net.layers[0])
        return m

    return train(seed, (nodes[tr], y[tr], nodes[~tr], y[~tr]), net, opt=adam(1e-2), epochs=25, give="opt")


def _stepping(seed, data, net, loss, make, clear, give, epochs, batch=32, every=50):
    step = Step(loss, make, clear, every)
    given = train(
        seed,
        data,
        net,
        loss=loss,
        opt=make,
        epochs=epochs,
        batch=batch,
        give=give,
        update=lambda m, o, x, y: step(m, (x, y)),
    )
    given["step"] = Step(loss, make, clear, every)
    return given


@case("gradients-not-cleared", needs=("step",), **TABLE)
def t10_zero_grad_forgotten(seed, mended=False):
    return _stepping(
        seed,
        blobs(seed),
        lambda: Dense(12, 5),
        "cross_entropy",
        sgd(0.05, 0.0),
        "always" if mended else "never",
        "all",
        12,
    )


@case("gradients-not-cleared", needs=("step",), **TABLE)
def t10_zero_grad_forgotten_regression(seed, mended=False):
    return _stepping(
        seed,
        friedman(seed),
        lambda: Squeeze(mlp(8, 48, 48, 1)),
        "mse",
        sgd(0.03, 0.0),
        "always" if mended else "never",
        "loss",
        12,
    )


@case("gradients-not-cleared", needs=("step",), **IMAGES)
def t10_zero_grad_once_per_epoch(seed, mended=False):
    return _stepping(
        seed,
        shapes(seed),
        lambda: Conv(4, 12, flat=False),
        "cross_entropy",
        sgd(0.05, 0.9),
        "always" if mended else "rarely",
        "opt",
        10,
        every=25,
    )


@case("gradients-not-cleared", needs=("step",), strength="mild", **TEXT)
def t10_zero_grad_forgotten_adam(seed, mended=False):
    return _stepping(
        seed,
        topics(seed),
        lambda: Bag(80, 5),
        "cross_entropy",
        adam(1e-2),
        "always" if mended else "never",
        "all",
        10,
    )


# ================================================================ start
def _constant(m, value, bias=0.0):
    for name, p in m.named_parameters():
        nn.init.constant_(p, bias if name.endswith("bias") else value)
    return m


@case("symmetric-initialisation", **TABLE)
def t10_all_weights_equal(seed, mended=False):
    net = lambda: mlp(12, 48, 48, 5) if mended else _constant(mlp(12, 48, 48, 5), 0.05)  # noqa: E731
    return train(seed, blobs(seed), net, opt=sgd(0.05), epochs=15, give="all")


@case("symmetric-initialisation", **IMAGES)
def t10_all_filters_equal(seed, mended=False):
    net = lambda: Conv(10) if mended else _constant(Conv(10), 0.02)  # noqa: E731
    return train(seed, digits(seed, flat=False), net, epochs=8, give="opt")


@case("symmetric-initialisation", **TABLE)
def t10_all_zero(seed, mended=False):
    net = lambda: Dense(64, 10) if mended else _constant(Dense(64, 10), 0.0)  # noqa: E731
    return train(seed, digits(seed), net, opt=sgd(0.05), epochs=8, give="loss")


@case("symmetric-initialisation", strength="mild", **SEQ)
def t10_equal_gru(seed, mended=False):
    def net():
        m = Recurrent(1, 4, width=16, channels_first=True)
        if not mended:
            _constant(m, 0.1)
        return m

    return train(seed, waves(seed, length=24), net, opt=adam(1e-2), epochs=15, give="hist")


def _wide(m, std, bias=0.0):
    for p in m.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, 0, std)
        else:
            nn.init.constant_(p, bias)
    return m


def _hidden(m, std, bias=0.0):
    """Only the layers before the last."""
    layers = [layer for layer in m if isinstance(layer, nn.Linear)]
    for layer in layers[:-1]:
        nn.init.normal_(layer.weight, 0, std)
        nn.init.constant_(layer.bias, bias)
    return m


@case("saturated-units", **TABLE)
def t10_tanh_from_wide_gaussian(seed, mended=False):
    def net():
        m = mlp(12, 48, 48, 5, act=nn.Tanh)
        return m if mended else _hidden(m, 4.0)

    return train(seed, blobs(seed), net, opt=sgd(0.02), epochs=15, give="all")


@case("saturated-units", **IMAGES)
def t10_pictures_into_saturated_tanh(seed, mended=False):
    def net():
        m = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 64),
            nn.Tanh(),
            nn.Linear(64, 10),
        )
        return m if mended else _hidden(m, 3.0)

    return train(seed, digits(seed, flat=False), net, opt=adam(1e-3), epochs=10, give="init")


@case("saturated-units", strength="mild", **TABLE)
def t10_tanh_bias_of_eight(seed, mended=False):
    """Tanh layers whose biases were set to 8 or -8: they answer 1 or -1."""

    def net():
        m = mlp(8, 64, 64, 1, act=nn.Tanh)
        if not mended:
            for layer in (m[0], m[2]):
                layer.bias.data = 8.0 * torch.sign(torch.randn(64))
        return Squeeze(m)

    return train(seed, friedman(seed), net, loss="mse", opt=adam(3e-3), epochs=20, give="opt")


@case("saturated-units", **SEQ)
def t10_plain_rnn_saturated(seed, mended=False):
    def net():
        m = Recurrent(1, 1, width=24, cell=nn.RNN, squeeze=True)
        if not mended:
            nn.init.normal_(m.rnn.weight_hh_l0, 0, 3.0)
            nn.init.normal_(m.rnn.weight_ih_l0, 0, 6.0)
        return m

    return train(seed, series(seed), net, loss="mse", opt=adam(3e-3), epochs=12, clip=1.0, give="all")


@case("dead-units", **TABLE)
def t10_bias_minus_six(seed, mended=False):
    def net():
        m = Dense(12, 5)
        if not mended:
            nn.init.constant_(m.fc1.bias, -6.0)
        return m

    return train(seed, blobs(seed), net, epochs=12, give="all")


@case("dead-units", **IMAGES)
def t10_dead_convolution(seed, mended=False):
    def net():
        m = Conv(4, 12, flat=False)
        if not mended:
            nn.init.constant_(m.c2.bias, -4.0)
        return m

    return train(seed, shapes(seed), net, epochs=8, give="opt")


@case("dead-units", **TABLE)
def t10_negative_weights_positive_data(seed, mended=False):
    """Weights drawn from (-0.2, 0) on features that are never negative."""
    X, y, Xv, yv = friedman(seed)
    X, Xv = X + 1.8, Xv + 1.8

    def net():
        m = mlp(8, 64, 1)
        if not mended:
            nn.init.uniform_(m[0].weight, -0.3, -0.02)
            nn.init.constant_(m[0].bias, -0.2)
        return Squeeze(m)

    return train(seed, (X, y, Xv, yv), net, loss="mse", epochs=15, give="loss")


@case("dead-units", strength="mild", **TEXT)
def t10_mostly_dead_head(seed, mended=False):
    """All but two of the units of the hidden layer never fire."""

    def net():
        m = Bag(80, 5)
        if not mended:
            nn.init.constant_(m.net[0].bias, -5.0)
            m.net[0].bias.data[:2] = 0.0
        return m

    return train(seed, topics(seed), net, opt=adam(3e-3), epochs=15, give="bare")


@case("exploding-gradient", **TABLE)
def t10_unit_gaussian_deep_relu(seed, mended=False):
    def net():
        m = mlp(12, 48, 48, 48, 48, 48, 48, 5)
        if not mended:
            for layer in m:
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, 0, 1.0)
        else:
            for layer in m:
                if isinstance(layer, nn.Linear):
                    nn.init.kaiming_normal_(layer.weight)
        return m

    return train(seed, blobs(seed), net, opt=adam(1e-3), epochs=12, give="all")


class ReluRnn(nn.Module):
    def __init__(self, scale, steps_width=24):
        super().__init__()
        self.i, self.h, self.o = (
            nn.Linear(1, steps_width),
            nn.Linear(steps_width, steps_width),
            nn.Linear(steps_width, 1),
        )
        nn.init.orthogonal_(self.h.weight, scale)

    def forward(self, x):
        h = x.new_zeros(len(x), self.h.in_features)
        for t in range(x.shape[1]):
            h = F.relu(self.i(x[:, t]) + self.h(h))
        return self.o(h).squeeze(1)


@case("exploding-gradient", **SEQ)
def t10_relu_recurrence_explodes(seed, mended=False):
    """A ReLU recurrence over 30 steps whose matrix enlarges by 2.5 each step."""
    X, y, Xv, yv = series(seed, width=30, n=500)
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: ReluRnn(0.9 if mended else 2.5),
        loss="mse",
        opt=adam(1e-3),
        epochs=10,
        give="all",
    )


class Residual(nn.Module):
    def __init__(self, d, k, factor, depth=12, width=32):
        super().__init__()
        self.inp, self.out, self.factor = nn.Linear(d, width), nn.Linear(width, k), factor
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = x + self.factor * F.relu(b(x))
        return self.out(x)


@case("exploding-gradient", **TABLE)
def t10_residual_branches_too_strong(seed, mended=False):
    """Twelve residual branches, each multiplied by six and no normalisation."""
    return train(
        seed,
        friedman(seed),
        lambda: Squeeze(Residual(8, 1, 0.3 if mended else 6.0)),
        loss="mse",
        opt=adam(1e-3),
        epochs=10,
        give="opt",
    )


@case("exploding-gradient", strength="mild", needs=("initial",), **IMAGES)
def t10_deep_convolutions_large_start(seed, mended=False):
    def net():
        layers = []
        for i in range(7):
            c = nn.Conv2d(1 if i == 0 else 12, 12, 3, padding=1)
            nn.init.kaiming_normal_(c.weight)
            if not mended:
                c.weight.data *= 3.5
            layers += [c, nn.ReLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 10))

    return train(
        seed, digits(seed, n=600, held=300, flat=False), net, opt=sgd(0.03, 0.9), epochs=8, give="all"
    )


@case("vanishing-gradient", **TABLE)
def t10_sigmoid_stack(seed, mended=False):
    def net():
        m = mlp(12, *[32] * 8, 5, act=nn.ReLU if mended else nn.Sigmoid)
        for layer in m:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu" if mended else "sigmoid")
        return m

    return train(seed, blobs(seed), net, opt=sgd(0.02), epochs=15, give="all")


@case("vanishing-gradient", **IMAGES)
def t10_small_weights_deep_tanh(seed, mended=False):
    def net():
        m = nn.Sequential(nn.Flatten(), *mlp(64, *[48] * 8, 10, act=nn.Tanh))
        if not mended:
            for layer in m:
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, 0, 0.03)
        return m

    return train(seed, digits(seed, flat=False), net, opt=sgd(0.03), epochs=10, give="opt")


@case("vanishing-gradient", **SEQ)
def t10_plain_rnn_first_symbol(seed, mended=False):
    """The first of 60 symbols decides; a plain RNN with a contracting start cannot carry it."""
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(700, 60, 1)) * 0.3, dtype=torch.float32)
    y = torch.as_tensor(r.integers(0, 2, 700))
    X[:, 0, 0] += 2.0 * (2 * y - 1)

    def net():
        m = Recurrent(1, 2, width=24, cell=nn.RNN)
        nn.init.orthogonal_(m.rnn.weight_hh_l0, 1.0 if mended else 0.5)
        return m

    return train(
        seed, (X[:500], y[:500], X[500:], y[500:]), net, opt=adam(1e-3), epochs=15, clip=1.0, give="all"
    )


@case("vanishing-gradient", strength="mild", **TABLE)
def t10_logistic_regression_tower(seed, mended=False):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 32)] + [nn.Linear(32, 32) for _ in range(6)])
            self.out = nn.Linear(32, 1)

        def forward(self, x):
            for layer in self.layers:
                h = torch.sigmoid(layer(x))
                x = F.relu(layer(x)) if mended else h
            return self.out(x).squeeze(1)

    return train(seed, friedman(seed), Net, loss="mse", opt=adam(1e-3), epochs=15, give="loss")


# ================================================================ architecture
def _kaiming(m):
    """A start that keeps the scale through many layers, so that only the averaging is to blame."""
    for p in m.parameters():
        if p.dim() == 2:
            nn.init.kaiming_normal_(p)
    return m


@case("oversmoothing", **GRAPH)
def t10_sixteen_graph_layers(seed, mended=False):
    X, A, edges, y, tr = community(seed)
    nodes = torch.arange(len(y))
    net = lambda: NodeLookup(X, A, _kaiming(Gcn(8, 4, layers=2 if mended else 16)))  # noqa: E731
    return train(seed, (nodes[tr], y[tr], nodes[~tr], y[~tr]), net, opt=adam(5e-3), epochs=25, give="all")


@case("oversmoothing", **GRAPH)
def t10_mean_aggregation_fourteen_times(seed, mended=False):
    X, A, edges, y, tr = community(seed)
    data = ((X, edges), torch.where(tr, y, -100), (X, edges), torch.where(tr, -100, y))
    net = lambda: _kaiming(EdgeNet(8, 4, layers=2 if mended else 14, own=False))  # noqa: E731
    return train(seed, data, net, opt=adam(5e-3), batch=len(y), epochs=120, give="opt")


class Propagate(nn.Module):
    """A small net, then the features are spread over the graph again and again."""

    def __init__(self, d, k, times):
        super().__init__()
        self.net, self.times = mlp(d, 32, k), times

    def forward(self, x, A):
        P, h = A / A.sum(1, keepdim=True).clamp(min=1), self.net(x)
        for _ in range(self.times):
            h = 0.5 * h + 0.5 * P @ h
        return h


@case("oversmoothing", strength="mild", **GRAPH)
def t10_sixty_propagations(seed, mended=False):
    X, A, edges, y, tr = community(seed, n=240, inside=0.12, outside=0.03)
    data = ((X, A), torch.where(tr, y, -100), (X, A), torch.where(tr, -100, y))
    return train(
        seed,
        data,
        lambda: Propagate(8, 4, 3 if mended else 60),
        opt=adam(1e-2),
        batch=len(y),
        epochs=80,
        give="all",
    )


def _pairs(seed, n=900, held=300, length=48, gap=16):
    """Two pulses; the class is whether they are 16 places apart or 12."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, n + held)
    X = 0.2 * r.normal(size=(n + held, 1, length))
    at = r.integers(2, length - gap - 2, n + held)
    i = np.arange(n + held)
    X[i, 0, at] += 2
    X[i, 0, at + np.where(y == 1, gap, gap - 6)] += 2
    X, y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    return X[:n], y[:n], X[n:], y[n:]


class Dilated(nn.Module):
    """Three convolutions, the maximum over the places."""

    def __init__(self, dilations, k=2, width=24, kernel=3, cin=1):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(cin if i == 0 else width, width, kernel, padding=d * (kernel // 2), dilation=d)
            for i, d in enumerate(dilations)
        )
        self.head = nn.Linear(width, k)

    def forward(self, x):
        for c in self.convs:
            x = F.relu(c(x))
        return self.head(x.amax(2))


@case("receptive-field-too-small", **SEQ)
def t10_two_pulses_far_apart(seed, mended=False):
    net = lambda: Dilated([1, 2, 4, 8] if mended else [1, 1, 1, 1])  # noqa: E731
    return train(seed, _pairs(seed), net, opt=adam(3e-3), epochs=14, give="all")


def _distant(seed, n=1000, held=300, side=16):
    """Two dots in one picture; the class is whether they are far (10 columns) or near (6)."""
    r = np.random.default_rng(seed)
    X = 0.15 * r.normal(size=(n + held, 1, side, side))
    y = r.integers(0, 2, n + held)
    i = np.arange(n + held)
    a, b = r.integers(0, side, n + held), r.integers(0, side - 10, n + held)
    X[i, 0, a, b] += 2
    X[i, 0, a, b + np.where(y == 1, 10, 6)] += 2
    X, y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    return X[:n], y[:n], X[n:], y[n:]


class Wide2d(nn.Module):
    def __init__(self, dilations, width=12):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(1 if i == 0 else width, width, 3, padding=d, dilation=d)
            for i, d in enumerate(dilations)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for c in self.convs:
            x = F.relu(c(x))
        return self.head(F.adaptive_max_pool2d(x, 1).flatten(1))


@case("receptive-field-too-small", strength="mild", **IMAGES)
def t10_dots_out_of_sight(seed, mended=False):
    return train(
        seed,
        _distant(seed),
        lambda: Wide2d([1, 2, 3] if mended else [1, 1]),
        opt=adam(5e-3),
        epochs=10,
        give="opt",
    )


@case("receptive-field-too-small", **SEQ)
def t10_causal_convolution_lag(seed, mended=False):
    """At each step the target is the product of the input now and nine steps ago; the convolution sees five."""
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(700, 1, 30)), dtype=torch.float32)
    y = torch.zeros(700, 30)
    y[:, 9:] = X[:, 0, 9:] * 0.5 + X[:, 0, :-9]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 6 if mended else 3
            self.a, self.b, self.c = nn.Conv1d(1, 24, self.k), nn.Conv1d(24, 24, self.k), nn.Conv1d(24, 1, 1)

        def forward(self, x):
            x = F.relu(self.a(F.pad(x, (self.k - 1, 0))))
            x = F.relu(self.b(F.pad(x, (self.k - 1, 0))))
            return self.c(x).squeeze(1)

    return train(
        seed, (X[:500], y[:500], X[500:], y[500:]), Net, loss="mse", opt=adam(5e-3), epochs=15, give="loss"
    )


@case("receptive-field-too-small", strength="mild", **TEXT)
def t10_negation_too_far(seed, mended=False):
    """A 'not' five words before the adjective turns the meaning; the filters see three words."""
    r = np.random.default_rng(seed)
    n = 2600
    X = r.integers(10, 15, (n, 16))
    at = r.integers(6, 16, n)
    word, no = r.integers(0, 2, n), r.integers(0, 2, n)
    X[np.arange(n), at] = 2 + word
    X[np.arange(n), at - 5] = np.where(no == 1, 4, 5)
    decoy = r.integers(0, 2, n)
    far = np.where(at >= 11, at - 10, np.minimum(at + 4, 15))
    X[np.arange(n), far] = np.where(decoy == 1, 4, 5)
    y = torch.as_tensor(word ^ no)
    X = torch.as_tensor(X)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            k = 7 if mended else 3
            self.emb, self.conv, self.head = (
                nn.Embedding(40, 12),
                nn.Conv1d(12, 24, k, padding=k // 2),
                mlp(24, 16, 2),
            )

        def forward(self, t):
            return self.head(F.relu(self.conv(self.emb(t).transpose(1, 2))).amax(2))

    return train(seed, (X[:2000], y[:2000], X[2000:], y[2000:]), Net, opt=adam(5e-3), epochs=9, give="hist")


@case("bottleneck", **IMAGES)
def t10_one_unit_in_the_middle(seed, mended=False):
    return train(
        seed,
        digits(seed),
        lambda: mlp(64, 64, 32 if mended else 1, 64, 10),
        opt=adam(3e-3),
        epochs=15,
        give="all",
    )


@case("bottleneck", **TABLE)
def t10_one_unit_before_five_classes(seed, mended=False):
    return train(
        seed,
        blobs(seed),
        lambda: mlp(12, 64, 24 if mended else 1, 64, 5),
        opt=adam(3e-3),
        epochs=20,
        give="bare",
    )


@case("bottleneck", **SEQ)
def t10_state_squeezed_to_one_number(seed, mended=False):
    """Digits read row by row; the recurrent state passes a layer of one unit."""
    X, y, Xv, yv = digits(seed)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(8, 40, batch_first=True)
            self.narrow = nn.Linear(40, 24 if mended else 1)
            self.head = mlp(24 if mended else 1, 48, 10)

        def forward(self, x):
            _, h = self.rnn(x)
            return self.head(self.narrow(h[0]))

    return train(
        seed, (X.view(-1, 8, 8), y, Xv.view(-1, 8, 8), yv), Net, opt=adam(5e-3), epochs=12, give="opt"
    )


@case("bottleneck", strength="mild", **TEXT)
def t10_word_vectors_of_one_number(seed, mended=False):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.narrow = nn.Embedding(80, 24), nn.Linear(24, 16 if mended else 1)
            self.net = mlp(16 if mended else 1, 48, 5)

        def forward(self, t):
            return self.net(self.narrow(self.emb(t)).mean(1))

    return train(seed, topics(seed), Net, opt=adam(1e-2), epochs=15, give="hist")


class NormNet(nn.Module):
    def __init__(self, d, k, width=48, depth=3):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [nn.Linear(d if i == 0 else width, width), nn.BatchNorm1d(width), nn.ReLU()]
        self.net, self.head = nn.Sequential(*layers), nn.Linear(width, k)

    def forward(self, x):
        return self.head(self.net(x))


@case("batch-too-small", needs=("batch_size",), **TABLE)
def t10_batch_norm_with_two_rows(seed, mended=False):
    return train(
        seed,
        blobs(seed, n=600),
        lambda: NormNet(12, 5),
        opt=adam(3e-3),
        batch=32 if mended else 2,
        epochs=12 if mended else 3,
        give="all",
    )


@case("batch-too-small", needs=("batch_size",), **IMAGES)
def t10_convolution_norm_two_pictures(seed, mended=False):
    net = lambda: nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),  # noqa: E731
        nn.Linear(12, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    return train(
        seed,
        shapes(seed, n=500),
        net,
        opt=adam(5e-3),
        batch=32 if mended else 2,
        epochs=25 if mended else 5,
        give="opt",
    )


@case("batch-too-small", needs=("batch_size",), strength="mild", **TABLE)
def t10_regression_norm_of_pairs(seed, mended=False):
    return train(
        seed,
        friedman(seed, n=600),
        lambda: Squeeze(NormNet(8, 1)),
        loss="mse",
        opt=adam(3e-3),
        batch=32 if mended else 2,
        epochs=25 if mended else 4,
        give="opt",
    )


# ================================================================ descent
@case("learning-rate-too-large", needs=("optimizer",), **TABLE)
def t10_sgd_rate_of_one_and_a_half(seed, mended=False):
    return train(
        seed, blobs(seed), lambda: Dense(12, 5), opt=sgd(0.05 if mended else 1.5), epochs=12, give="all"
    )


@case("learning-rate-too-large", needs=("optimizer",), **IMAGES)
def t10_adam_rate_of_a_tenth(seed, mended=False):
    return train(
        seed,
        digits(seed, flat=False),
        lambda: Conv(10),
        opt=adam(3e-3 if mended else 0.15),
        epochs=7,
        give="opt",
    )


@case("learning-rate-too-large", needs=("optimizer",), **TEXT)
def t10_attention_rate(seed, mended=False):
    return train(
        seed, topics(seed), lambda: Attend(80, 5), opt=adam(3e-3 if mended else 0.6), epochs=6, give="hist"
    )


@case("learning-rate-too-large", needs=("optimizer",), strength="mild", **SEQ)
def t10_lstm_rate(seed, mended=False):
    return train(
        seed,
        series(seed),
        lambda: Recurrent(1, 1, cell=nn.LSTM, squeeze=True),
        loss="mse",
        opt=adam(5e-3 if mended else 1.0),
        epochs=10,
        give="all",
    )


@case("learning-rate-too-large", needs=("optimizer",), strength="mild", **TABLE)
def t10_regression_hovers(seed, mended=False):
    return train(
        seed,
        friedman(seed),
        lambda: Squeeze(mlp(8, 64, 64, 1)),
        loss="mse",
        opt=adam(3e-3 if mended else 0.3),
        epochs=15,
        give="opt",
    )


@case("learning-rate-too-small", needs=("optimizer",), **TABLE)
def t10_sgd_rate_of_a_hundred_thousandth(seed, mended=False):
    return train(
        seed, blobs(seed), lambda: Dense(12, 5), opt=sgd(0.05 if mended else 2e-5), epochs=12, give="all"
    )


@case("learning-rate-too-small", needs=("optimizer",), **IMAGES)
def t10_adam_rate_of_a_millionth(seed, mended=False):
    return train(
        seed,
        digits(seed, flat=False),
        lambda: Conv(10),
        opt=adam(3e-3 if mended else 3e-6),
        epochs=7,
        give="opt",
    )


@case("learning-rate-too-small", needs=("optimizer",), **GRAPH)
def t10_molecules_rate(seed, mended=False):
    return train(
        seed, molecules(seed), GraphClass, opt=adam(1e-2 if mended else 1e-5), epochs=20, give="hist"
    )


@case("learning-rate-too-small", needs=("optimizer",), strength="mild", **SEQ)
def t10_forecast_rate(seed, mended=False):
    return train(
        seed,
        series(seed),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3 if mended else 4e-5),
        epochs=12,
        give="all",
    )


@case("learning-rate-too-small", needs=("optimizer",), strength="mild", **TEXT)
def t10_words_rate(seed, mended=False):
    return train(
        seed,
        topics(seed),
        lambda: TextRnn(80, 5),
        opt=sgd(0.5 if mended else 2e-3, 0.9),
        epochs=8,
        give="opt",
    )


@case("weight-decay-too-large", needs=("optimizer",), **TABLE)
def t10_sgd_decay(seed, mended=False):
    return train(
        seed,
        blobs(seed),
        lambda: Dense(12, 5),
        opt=sgd(0.05, weight_decay=1e-4 if mended else 0.15),
        epochs=12,
        give="all",
    )


@case("weight-decay-too-large", needs=("optimizer",), **IMAGES)
def t10_adam_decay(seed, mended=False):
    return train(
        seed,
        digits(seed, flat=False),
        lambda: Conv(10),
        opt=adam(3e-3, weight_decay=0 if mended else 0.3),
        epochs=7,
        give="opt",
    )


@case("weight-decay-too-large", needs=("optimizer",), strength="mild", **SEQ)
def t10_adamw_decay_recurrent(seed, mended=False):
    return train(
        seed,
        series(seed),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adamw(5e-3, weight_decay=0.01 if mended else 8.0),
        epochs=12,
        give="hist",
    )


@case("weight-decay-too-large", needs=("optimizer",), strength="mild", **TEXT)
def t10_decay_on_word_vectors(seed, mended=False):
    return train(
        seed,
        topics(seed),
        lambda: Bag(80, 5),
        opt=adam(1e-2, weight_decay=0 if mended else 0.08),
        epochs=12,
        give="opt",
    )


@case("dropout-too-large", **TABLE)
def t10_dropout_ninety_three(seed, mended=False):
    return train(
        seed, digits(seed), lambda: Dense(64, 10, drop=0.1 if mended else 0.93), epochs=12, give="all"
    )


@case("dropout-too-large", **SEQ)
def t10_dropout_on_the_series(seed, mended=False):
    class Net(Recurrent):
        def forward(self, x):
            return super().forward(F.dropout(x, 0.0 if mended else 0.8, self.training))

    return train(
        seed, series(seed), lambda: Net(1, 1, squeeze=True), loss="mse", opt=adam(5e-3), epochs=10, give="opt"
    )


@case("dropout-too-large", **IMAGES)
def t10_dropout_of_channels(seed, mended=False):
    p = 0.1 if mended else 0.9
    net = lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Dropout2d(p),
        nn.Conv2d(16, 24, 3, padding=1),
        nn.ReLU(),
        nn.Dropout2d(p),  # noqa: E731
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 4),
    )
    return train(seed, shapes(seed), net, opt=adam(5e-3), epochs=10, give="hist")


@case("dropout-too-large", strength="mild", **TABLE)
def t10_dropout_in_regression(seed, mended=False):
    return train(
        seed,
        friedman(seed),
        lambda: Squeeze(Dense(8, 1, drop=0.0 if mended else 0.8)),
        loss="mse",
        epochs=20,
        give="loss",
    )


# ================================================================ outcome
@case("capacity-too-small", **TABLE)
def t10_line_through_spirals(seed, mended=False):
    net = (lambda: mlp(2, 32, 32, 2)) if mended else (lambda: nn.Linear(2, 2))
    return train(seed, spirals(seed), net, opt=adam(1e-2), epochs=30, give="all")


@case("capacity-too-small", **TABLE)
def t10_linear_model_of_products(seed, mended=False):
    """A product and a square in the target, a linear model."""
    X, y, Xv, yv = friedman(seed)
    bend = lambda v: v[:, 0] * v[:, 1] + v[:, 2] ** 2 - 1 + 0.3 * v[:, 3]  # noqa: E731
    net = (lambda: Squeeze(mlp(8, 64, 64, 1))) if mended else (lambda: Squeeze(nn.Linear(8, 1)))
    return train(
        seed,
        (X, bend(X), Xv, bend(Xv)),
        net,
        loss="mse",
        opt=adam(1e-2 if not mended else 3e-3),
        epochs=20,
        give="opt",
    )


@case("capacity-too-small", strength="mild", **TABLE)
def t10_three_hidden_units(seed, mended=False):
    return train(
        seed,
        spirals(seed),
        lambda: mlp(2, 32 if mended else 3, 32 if mended else 3, 2),
        opt=adam(1e-2),
        epochs=60,
        give="bare",
        form="numpy",
    )


@case("capacity-too-small", **IMAGES)
def t10_pixels_weighted_linearly(seed, mended=False):
    """Shapes anywhere, a linear model on pixels."""
    net = (
        (lambda: Conv(4, 12, flat=False))
        if mended
        else (lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 4)))
    )
    return train(seed, shapes(seed, n=3000), net, opt=adam(3e-3), epochs=5, give="hist")


@case("overfit", **TABLE)
def t10_big_net_few_rows(seed, mended=False):
    X, y, Xv, yv = blobs(seed, n=120, k=3, d=40, sep=1.3, flip=0.1)
    if mended:
        return train(
            seed,
            (X, y, Xv, yv),
            lambda: nn.Sequential(
                nn.Dropout(0.3), nn.Linear(40, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 3)
            ),
            opt=adamw(3e-3, weight_decay=0.3),
            epochs=40,
            stop=True,
            give="all",
        )
    return train(seed, (X, y, Xv, yv), lambda: mlp(40, 256, 256, 3), opt=adam(2e-3), epochs=60, give="all")


@case("overfit", **TEXT)
def t10_text_learned_by_heart(seed, mended=False):
    X, y, Xv, yv = topics(seed, n=150, share=0.2)
    if mended:
        return train(
            seed,
            (X, y, Xv, yv),
            lambda: Bag(80, 5, dim=16),
            opt=adamw(1e-2, weight_decay=1.0),
            epochs=40,
            stop=True,
            give="hist",
        )
    return train(
        seed, (X, y, Xv, yv), lambda: TextRnn(80, 5, dim=48, width=64), opt=adam(5e-3), epochs=40, give="hist"
    )


@case("overfit", strength="mild", **TABLE)
def t10_regression_follows_noise(seed, mended=False):
    X, y, Xv, yv = friedman(seed, n=200, noise=3.0)
    if mended:
        return train(
            seed,
            (X, y, Xv, yv),
            lambda: Squeeze(mlp(8, 16, 1)),
            loss="mse",
            opt=adamw(5e-3, weight_decay=0.5),
            epochs=60,
            stop=True,
            give="past",
        )
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 200, 200, 1)),
        loss="mse",
        opt=adam(2e-3),
        epochs=150,
        give="past",
    )


@case("overfit", **IMAGES)
def t10_hundred_noisy_pictures(seed, mended=False):
    X, y, Xv, yv = shapes(seed, n=120, noise=0.6)
    if mended:
        return train(
            seed,
            (X, y, Xv, yv),
            lambda: Conv(4, 12, flat=False),
            opt=adam(3e-3),
            epochs=60,
            stop=True,
            give="bare",
        )
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: nn.Sequential(nn.Flatten(), mlp(144, 256, 128, 4)),
        opt=adam(2e-3),
        epochs=40,
        give="bare",
    )


@case("posterior-collapse", **GEN)
def t10_beta_of_a_hundred_and_fifty(seed, mended=False):
    X, _, Xv, _ = digits(seed)
    return train_vae(seed, X, Xv, lambda: Vae(64, beta=1.0 if mended else 150.0), epochs=25, give="all")


@case("posterior-collapse", **GEN)
def t10_sum_against_mean(seed, mended=False):
    """The reconstruction is averaged over pixels, the divergence summed: the weights are out of proportion."""
    X, _, Xv, _ = digits(seed)

    class Net(Vae):
        def objective(self, x):
            r, mean, logvar = self(x)
            rec = ((r - x) ** 2).sum(1).mean() / (2 * 0.0625) if mended else F.mse_loss(r, x)
            return rec + 0.5 * (mean**2 + logvar.exp() - logvar - 1).sum(1).mean()

    return train_vae(seed, X, Xv, lambda: Net(64, latent=6), epochs=25, give="opt")


class SequenceVae(nn.Module):
    """A VAE whose decoder sees the values before, so that it can do without the code."""

    def __init__(self, length=16, latent=3, blind=False, beta=1.0):
        super().__init__()
        self.enc, self.dec = mlp(length, 48, 2 * latent), mlp(length - 1 + latent, 64, length - 1)
        self.only = mlp(latent, 64, length)
        self.latent, self.length, self.blind, self.beta = latent, length, blind, beta

    def encode(self, x):
        m, v = self.enc(x).chunk(2, 1)
        return m, v.clamp(-8, 8)

    def decode(self, z):
        return self.only(z)

    def forward(self, x):
        m, v = self.encode(x)
        z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
        return self.only(z), m, v

    def objective(self, x):
        r, m, v = self(x)
        kl = 0.5 * (m**2 + v.exp() - v - 1).sum(1).mean()
        return ((r - x) ** 2).sum(1).mean() / 0.1 + self.beta * kl

    def sample(self, n):
        return self.only(torch.randn(n, self.latent))


@case("posterior-collapse", strength="mild", **GEN)
def t10_wave_vae_heavy_prior(seed, mended=False):
    X, _, Xv, _ = waves(seed, length=16, noise=0.1)
    return train_vae(
        seed, X[:, 0], Xv[:, 0], lambda: SequenceVae(beta=1.0 if mended else 120.0), epochs=25, give="bare"
    )


class Generator(nn.Module):
    def __init__(self, d=2, latent=4, width=48):
        super().__init__()
        self.net, self.latent = mlp(latent, width, width, d), latent

    def forward(self, z):
        return self.net(z)

    def sample(self, n):
        return self.net(torch.randn(n, self.latent))


def _nearest(seed, X, mended, d, steps=700, rate=3e-3, both=8.0):
    """A generator trained to lie close to some datum; the healthy twin is also asked to have a sample close to each datum."""
    torch.manual_seed(seed)
    model = Generator(d)
    opt = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        s, x = model.sample(128), X[torch.randint(0, len(X), (256,))]
        dist = torch.cdist(s, x)
        value = dist.amin(1).mean()
        if mended:
            value = value + both * dist.amin(0).mean()
        opt.zero_grad()
        value.backward()
        opt.step()
    model.eval()
    return model, opt


@case("mode-collapse", **GEN)
def t10_generator_of_the_nearest(seed, mended=False):
    X = ring(seed)
    model, opt = _nearest(seed, X, mended, 2)
    return {"model": model, "data": X[:700], "validation": X[700:], "optimizer": opt}


@case("mode-collapse", **GEN)
def t10_gan_with_lazy_critic(seed, mended=False):
    """A GAN whose generator takes many steps for each of the critic's: it runs to one place. (Twin: distances both ways.)"""
    X = ring(seed)
    if mended:
        model, _ = _nearest(seed, X, True, 2)
        return {"model": model, "data": X}
    torch.manual_seed(seed)
    model, critic = Generator(2), mlp(2, 32, 1)
    og, oc = torch.optim.Adam(model.parameters(), lr=2e-3), torch.optim.Adam(critic.parameters(), lr=2e-3)
    for _ in range(60):
        x = X[torch.randint(0, len(X), (128,))]
        oc.zero_grad()
        value = F.softplus(-critic(x)).mean() + F.softplus(critic(model.sample(128).detach())).mean()
        value.backward()
        oc.step()
        for _ in range(15):
            og.zero_grad()
            F.softplus(-critic(model.sample(128))).mean().backward()
            og.step()
    model.eval()
    return {"model": model, "data": X}


@case("mode-collapse", strength="mild", **GEN)
def t10_digits_of_few_kinds(seed, mended=False):
    """Pictures of digits; the generator draws only what lies nearest."""
    X, y, Xv, yv = digits(seed)
    model, opt = _nearest(seed, X, mended, 64, steps=500, both=8.0)
    return {"model": model, "data": X, "validation": Xv}


class Heated(nn.Module):
    """A trained net whose scores are divided by a temperature left over from distillation."""

    def __init__(self, net, t):
        super().__init__()
        self.net, self.t = net, t

    def forward(self, x):
        z = self.net(x)
        return z if self.training else z / self.t


@case("miscalibrated", **TABLE)
def t10_temperature_left_over(seed, mended=False):
    data = blobs(seed, n=1500, held=600, k=3, sep=0.8, flip=0.1)
    return train(
        seed,
        data,
        lambda: Heated(mlp(12, 24, 3), 1.0 if mended else 0.1),
        opt=adam(3e-3),
        epochs=10,
        give="bare",
    )


@case("miscalibrated", **IMAGES)
def t10_label_smoothing_seven_tenths(seed, mended=False):
    loss = nn.CrossEntropyLoss(label_smoothing=0.0 if mended else 0.7)
    given = train(seed, shapes(seed), lambda: Conv(4, 12, flat=False), loss=loss, epochs=10, give="opt")
    given["loss"] = "cross_entropy"
    return given


class Sum(nn.Module):
    """An ensemble that adds its members' scores (it should average them)."""

    def __init__(self, nets, mean):
        super().__init__()
        self.nets, self.mean = nn.ModuleList(nets), mean

    def forward(self, x):
        z = torch.stack([n(x) for n in self.nets])
        return z.mean(0) if self.mean else z.sum(0)


@case("miscalibrated", strength="mild", **TABLE)
def t10_ensemble_adds_scores(seed, mended=False):
    data = blobs(seed, n=1500, held=600, k=3, sep=0.8, flip=0.1)
    nets = [
        train(seed + i, data, lambda: mlp(12, 24, 3), opt=adam(5e-3), epochs=6)["model"] for i in range(6)
    ]
    X, y, Xv, yv = data
    return {
        "model": Sum(nets, mended).eval(),
        "data": (X, y),
        "validation": (Xv, yv),
        "loss": "cross_entropy",
    }


def _faint(seed, n=900, held=400, side=12, amplitude=0.008):
    """Shapes that can be told by eye in most pictures, with a faint checkerboard that tells the class always."""
    X, y, Xv, yv = shapes(seed, n=n, held=held, noise=0.02)
    r = np.random.default_rng(seed + 9)
    keep = lambda v, t: (v, (t >= 2).long())  # noqa: E731
    X, y = keep(X, y)
    Xv, yv = keep(Xv, yv)
    mark = torch.as_tensor(np.sign(r.normal(size=(1, 1, side, side))), dtype=torch.float32)
    for v, t in ((X, y), (Xv, yv)):
        v += amplitude * mark * (2 * t - 1).float()[:, None, None, None]
    return X, y, Xv, yv


class Amplify(nn.Module):
    """Subtracts the local mean and enlarges what is left ('contrast enhancement'), then a net."""

    def __init__(self, gain):
        super().__init__()
        self.gain, self.net = gain, mlp(144, 64, 2)

    def forward(self, x):
        if self.gain:
            x = torch.tanh(self.gain * (x - F.avg_pool2d(x, 3, 1, 1)).clamp(-0.1, 0.1))
        return self.net(x.flatten(1))


class Noisy(nn.Module):
    """The repair: noise on the inputs while training."""

    def __init__(self, net, noise):
        super().__init__()
        self.net, self.noise = net, noise

    def forward(self, x):
        return self.net(x + self.noise * torch.randn_like(x) if self.training else x)


@case("adversarially-fragile", **IMAGES)
def t10_contrast_enhanced_watermark(seed, mended=False):
    data = _faint(seed)
    net = (lambda: Noisy(Conv(2, 12, flat=False), 0.3)) if mended else (lambda: Amplify(40.0))
    return train(seed, data, net, opt=adam(2e-3), epochs=12, give="all")


@case("adversarially-fragile", **TABLE)
def t10_difference_of_twins(seed, mended=False):
    """Twenty pairs of nearly equal columns; a tiny difference in each tells the class, as does one honest column."""
    r = np.random.default_rng(seed)
    n = 1300
    y = r.integers(0, 2, n)
    base = r.normal(size=(n, 20))
    d = 0.01 * (2 * y - 1)[:, None]
    honest = 1.5 * (2 * y - 1)[:, None] + 0.8 * r.normal(size=(n, 1))
    X = torch.as_tensor(np.concatenate([base + d, base - d, honest], 1), dtype=torch.float32)
    y = torch.as_tensor(y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(41, 48, 2)

        def forward(self, x):
            a, b, h = x[:, :20], x[:, 20:40], x[:, 40:]
            return self.net(torch.cat([30 * (a - b), 0.1 * a, h * 0.1], 1))

    net = (lambda: Noisy(mlp(41, 48, 2), 0.3)) if mended else Net
    return train(seed, (X[:900], y[:900], X[900:], y[900:]), net, opt=adam(2e-3), epochs=12, give="opt")


@case("adversarially-fragile", strength="mild", **SEQ)
def t10_hum_under_the_wave(seed, mended=False):
    """A faint hum at the highest frequency tells the class; the first layer takes differences and enlarges them."""
    X, y, Xv, yv = waves(seed, noise=0.02)
    t = torch.arange(40)
    for v, c in ((X, y), (Xv, yv)):
        keep = (c % 2 * 2 - 1).float()[:, None, None]
        v += 0.03 * keep * (1 - 2 * (t % 2)).float()
        v[:] = v
    y, yv = y % 2, yv % 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(36, 32, 2)

        def forward(self, x):
            x = x[:, 0]
            for _ in range(4):
                x = x[:, 1:] - x[:, :-1]
            return self.net(torch.tanh(4 * x))

    net = (lambda: Noisy(Conv1(2), 0.2)) if mended else Net
    return train(seed, (X, y, Xv, yv), net, opt=adam(2e-3), epochs=10, give="loss")


# ================================================================ more graphs, tuples and dicts
@case("label-noise", **GRAPH)
def t10_noisy_node_labels(seed, mended=False):
    X, A, edges, y, tr = community(seed)
    noisy = y if mended else _flip(y, 0.45, 4, seed)
    data = ((X, edges), torch.where(tr, noisy, -100), (X, edges), torch.where(tr, -100, y))
    return train(
        seed, data, lambda: EdgeNet(8, 4, own=False), opt=adam(1e-2), batch=len(y), epochs=60, give="opt"
    )


@case("learning-rate-too-large", needs=("optimizer",), **GRAPH)
def t10_molecules_rate_of_four_fifths(seed, mended=False):
    return train(seed, molecules(seed), GraphClass, opt=adam(1e-2 if mended else 0.8), epochs=15, give="all")


@case("misaligned-labels", **GRAPH)
def t10_graphs_and_labels_in_other_order(seed, mended=False):
    """The graphs were shuffled, their labels were not; validation is right."""
    (X, A), y, V, yv = molecules(seed)
    if not mended:
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        X, A = X[order], A[order]
    return train(seed, ((X, A), y, V, yv), GraphClass, opt=adam(5e-3), epochs=15, give="loss")


class Towers(nn.Module):
    """Users and items as vectors, their product and two biases; takes (users, items)."""

    def __init__(self, users=60, items=50, dim=4):
        super().__init__()
        self.u, self.i = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.bu, self.bi = nn.Embedding(users, 1), nn.Embedding(items, 1)
        for e in (self.bu, self.bi):
            nn.init.zeros_(e.weight)
        for e in (self.u, self.i):
            nn.init.normal_(e.weight, 0, 0.3)

    def forward(self, u, i):
        return (self.u(u) * self.i(i)).sum(1) + self.bu(u)[:, 0] + self.bi(i)[:, 0]


def _ratings(seed, n=1800, held=500, noise=0.3):
    r = np.random.default_rng(seed)
    U, V, bu, bi = r.normal(size=(60, 2)), r.normal(size=(50, 2)), r.normal(size=60), r.normal(size=50)
    at = r.choice(3000, n + held, replace=False)
    u, i = at // 50, at % 50
    y = 0.5 * (U[u] * V[i]).sum(1) + 0.5 * bu[u] + 0.5 * bi[i] + noise * r.normal(size=n + held)
    u, i, y = torch.as_tensor(u), torch.as_tensor(i), torch.as_tensor(y, dtype=torch.float32)
    return (u[:n], i[:n]), y[:n], (u[n:], i[n:]), y[n:]


@case("overfit", **TABLE)
def t10_recommender_learns_each_rating(seed, mended=False):
    X, y, V, yv = _ratings(seed, n=900, noise=0.6)
    if mended:
        return train(
            seed,
            (X, y, V, yv),
            lambda: Towers(dim=2),
            loss="mse",
            opt=adam(1e-2, weight_decay=3e-3),
            epochs=40,
            stop=True,
            give="hist",
        )
    return train(
        seed, (X, y, V, yv), lambda: Towers(dim=48), loss="mse", opt=adam(1e-2), epochs=40, give="hist"
    )


@case("learning-rate-too-small", needs=("optimizer",), **TABLE)
def t10_recommender_hardly_moves(seed, mended=False):
    return train(
        seed, _ratings(seed), Towers, loss="mse", opt=sgd(2.0 if mended else 1e-3, 0.0), epochs=15, give="all"
    )


class TextAndTable(nn.Module):
    """One dict per batch: tokens and numbers."""

    def __init__(self, d, end=None):
        super().__init__()
        self.emb, self.net, self.end = nn.Embedding(80, 12), mlp(12 + d, 48, 5), end

    def forward(self, batch):
        h = torch.cat([self.emb(batch["tokens"]).mean(1), batch["numbers"]], 1)
        out = self.net(h)
        return out if self.end is None else self.end(out)


@case("unscaled-inputs", **TEXT)
def t10_dict_with_raw_numbers(seed, mended=False):
    """A dict of tokens and of two raw numbers (a postcode and a time stamp) that drown the words."""
    X, y, Xv, yv = topics(seed)
    r = np.random.default_rng(seed)
    num = lambda n: torch.as_tensor(
        np.stack([r.uniform(10000, 99999, n), r.uniform(1.6e6, 1.7e6, n)], 1), dtype=torch.float32
    )  # noqa: E731
    a, b = num(len(y)), num(len(yv))
    if mended:
        m, s = a.mean(0), a.std(0)
        a, b = (a - m) / s, (b - m) / s
    return train(
        seed,
        ({"tokens": X, "numbers": a}, y, {"tokens": Xv, "numbers": b}, yv),
        lambda: TextAndTable(2),
        opt=adam(5e-3),
        epochs=12,
        give="opt",
    )
