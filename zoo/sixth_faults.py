"""Faults by the sixth author. ``mended=True`` builds the same thing without its fault."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from zoo import case
from zoo.sixth_parts import (
    GCN,
    VAE,
    WORDS,
    Forecaster,
    Reader,
    blobs,
    blocks,
    cancer,
    circles,
    counts,
    diabetes,
    digits,
    elbo,
    faces,
    fit,
    fit_graph,
    flat,
    floats,
    friedman,
    masked,
    mlp,
    normal,
    parted,
    recall,
    reviews,
    ring,
    series,
    shapes,
    small_cnn,
    standard,
    trained,
    waves,
    wine,
)

Given = dict[str, Any]


# ------------------------------------------------------------------ data: not finite


@case("not-finite-data", kind="table", author="sixth")
def s_nan_cells_skipped(seed: int, mended: bool = False) -> Given:
    """Some cells of the table are NaN; the loop skips every batch whose loss is."""
    train, held = cancer(seed)
    x = train[0].clone()
    if not mended:
        rng = np.random.default_rng(seed)
        x[rng.choice(len(x), 25, replace=False), rng.integers(30, size=25)] = float("nan")
    model = mlp(30, 32, 2)
    return trained(
        model,
        (x, train[1]),
        held,
        optimizer=torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-3),
        epochs=20,
        batch_size=32,
        skip=True,
    )


@case("not-finite-data", kind="table", author="sixth")
def s_log_of_zero_counts(seed: int, mended: bool = False) -> Given:
    """log of a count that is sometimes zero; weights become NaN."""
    rng = np.random.default_rng(seed)
    c = rng.poisson(4.0, size=(600, 6))
    y = (np.sqrt(c[:, 0]) - np.sqrt(c[:, 1]) + 0.4 * np.sqrt(c[:, 2]) > 0.6).astype(int)
    with np.errstate(divide="ignore"):
        x = np.log1p(c) if mended else np.log(c)
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    given = trained(net, train, held, optimizer=opt, epochs=25)
    return given


@case("not-finite-data", kind="sequences", author="sixth", strength="mild")
def s_nan_in_held_out_targets(seed: int, mended: bool = False) -> Given:
    """The sensor fell out during the held-out weeks: some of their targets are NaN, the training rows are fine."""
    train, (vx, vy) = series(seed)
    if not mended:
        vy = vy.clone()
        vy[40:52] = float("nan")
    net = Forecaster()
    return trained(
        net,
        train,
        (vx, vy),
        loss="mse",
        optimizer=torch.optim.Adam(net.parameters(), 1e-2),
        epochs=12,
        batch_size=64,
    )


@case("not-finite-data", kind="images", author="sixth", strength="mild")
def s_one_infinite_picture(seed: int, mended: bool = False) -> Given:
    """One picture was divided by its own maximum of zero."""
    train, held = digits(seed)
    x = train[0].clone()
    x[17] = 0.0
    if not mended:
        x[17] = x[17] / x[17].max()
    net = small_cnn()
    return trained(
        net,
        (x, train[1]),
        held,
        optimizer=torch.optim.Adam(net.parameters(), 2e-3),
        epochs=6,
        batch_size=32,
        skip=True,
    )


# ------------------------------------------------------------------ data: overflow


class HomeAttention(nn.Module):
    """One head, written by hand."""

    def __init__(self, words: int, dim: int = 64, classes: int = 2, safe: bool = False):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.q, self.k, self.v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.head = nn.Linear(dim, classes)
        self.dim, self.safe = dim, safe

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed(tokens) * self.dim**0.5
        s = self.q(h) @ self.k(h).transpose(1, 2)
        if self.safe:
            w = torch.softmax(s / self.dim, -1)
        else:
            w = torch.exp(s) / torch.exp(s).sum(-1, keepdim=True)
        return self.head((w @ self.v(h)).mean(1))


@case("overflow", kind="text", author="sixth")
def s_home_made_softmax(seed: int, mended: bool = False) -> Given:
    """exp of unscaled scores is infinite; infinity over infinity."""
    train, held = reviews(seed)
    net = HomeAttention(len(WORDS), safe=mended)
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=50, skip=True)


class Loudness(nn.Module):
    """Energy per band in half precision, as on the device."""

    def __init__(self, half: bool):
        super().__init__()
        self.half_, self.conv, self.out = half, nn.Conv1d(1, 12, 9), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        bands = self.conv(x) * 100
        energy = bands.half() ** 2 if self.half_ else bands**2
        return self.out(torch.log1p(energy.float().mean(-1)))


@case("overflow", kind="sequences", author="sixth", strength="mild")
def s_half_precision_energy(seed: int, mended: bool = False) -> Given:
    """Squares beyond 65504 in a few loud recordings."""
    rng = np.random.default_rng(seed)
    (x, y), (vx, vy) = waves(seed, channels=1)
    loud, vloud = rng.lognormal(0, 0.5, (len(x), 1, 1)), rng.lognormal(0, 0.5, (len(vx), 1, 1))
    net = Loudness(not mended)
    return trained(
        net,
        (x * floats(loud), y),
        (vx * floats(vloud), vy),
        optimizer=torch.optim.Adam(net.parameters(), 1e-2),
        epochs=15,
        batch_size=8,
        skip=True,
    )


@case("overflow", kind="table", author="sixth")
def s_log_of_a_full_sigmoid(seed: int, mended: bool = False) -> Given:
    """A home-made log-loss takes log(1 - p) where p has rounded to one."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 5))
    z = 4 * x[:, 0] - 3 * x[:, 1] + 2 * x[:, 2]
    y = (z > 0).astype(float)
    train, held = parted(floats(x), floats(y), seed)
    body = mlp(5, 24, 1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Tensor) -> Tensor:
            z = self.body(x).squeeze(1)
            return z if mended else torch.sigmoid(z)

    def loss(p: Tensor, t: Tensor) -> Tensor:
        return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).mean()

    net = Net()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    return trained(
        net,
        train,
        held,
        loss="bce_with_logits" if mended else loss,
        optimizer=opt,
        epochs=60,
        batch_size=8,
        skip=True,
    )


@case("overflow", kind="graph", author="sixth")
def s_isolated_nodes_degree(seed: int, mended: bool = False) -> Given:
    """The net divides by the root of the degree; some nodes have no neighbour."""
    x, a, y = blocks(seed, inside=0.03)
    a = a - torch.eye(len(a))
    if mended:
        a = a + torch.eye(len(a))
    model = GCN(16, 16, 3)

    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gcn = model

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            r = a.sum(1).pow(-0.5)
            return self.gcn(x, r[:, None] * a * r[None])

    net = Normalised()
    ty, vy = masked(y, seed)
    return fit_graph(net, (x, a), ty, vy, torch.optim.Adam(net.parameters(), 1e-2), 60)


# ------------------------------------------------------------------ data: scales


@case("unscaled-inputs", kind="table", author="sixth")
def s_raw_tumours_sgd(seed: int, mended: bool = False) -> Given:
    """Areas of thousands beside fractions of a hundredth."""
    train, held = cancer(seed, scaled=mended)
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    return trained(model, train, held, optimizer=opt, epochs=20, batch_size=32)


@case("unscaled-inputs", kind="images", author="sixth")
def s_pixels_up_to_255(seed: int, mended: bool = False) -> Given:
    """Grey values 0..255 into a tanh net."""
    train, held = flat(*digits(seed))
    k = 1.0 if mended else 255.0
    net = nn.Sequential(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 10))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    return trained(
        net, (train[0] * k, train[1]), (held[0] * k, held[1]), optimizer=opt, epochs=20, batch_size=32
    )


@case("unscaled-inputs", kind="table", author="sixth", strength="mild")
def s_income_in_cents(seed: int, mended: bool = False) -> Given:
    """One column of eight is in another unit."""
    train, held = friedman(seed, n=800)
    k = torch.ones(8)
    if not mended:
        k[6] = 150.0
    net = mlp(8, 48, 48, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    return trained(
        net, (train[0] * k, train[1]), (held[0] * k, held[1]), loss="mse", optimizer=opt, epochs=25
    )


@case("unscaled-inputs", kind="sequences", author="sixth")
def s_kelvin_and_pascal(seed: int, mended: bool = False) -> Given:
    """A recurrent net reads temperatures in kelvin and pressures in pascal."""
    rng = np.random.default_rng(seed)
    n, length = 700, 24
    t = np.arange(length)
    up = rng.integers(2, size=n)
    phase = rng.uniform(0, 6.28, (n, 1))
    a = np.sin(2 * np.pi * t / 12 + phase) + 0.3 * rng.normal(size=(n, length))
    b = np.sin(2 * np.pi * t / 12 + phase + np.where(up, 1.2, -1.2)[:, None]) + 0.3 * rng.normal(
        size=(n, length)
    )
    x = np.stack([a, b], 2)
    if not mended:
        x = x * np.array([6.0, 400.0]) + np.array([288.0, 101325.0])
    train, held = parted(floats(x), torch.as_tensor(up), seed)
    net = Forecaster(2, 24, 2)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15)


@case("unscaled-targets", kind="table", author="sixth")
def s_prices_in_dollars(seed: int, mended: bool = False) -> Given:
    """House prices as they are."""
    train, held = friedman(seed, n=800)

    def money(y: Tensor) -> Tensor:
        return y if mended else 240_000 + 80_000 * y

    model = mlp(8, 64, 1)
    return trained(
        model,
        (train[0], money(train[1])),
        (held[0], money(held[1])),
        loss="mse",
        optimizer=torch.optim.Adam(model.parameters(), lr=5e-3),
        epochs=25,
        batch_size=32,
    )


@case("unscaled-targets", kind="sequences", author="sixth")
def s_visitors_per_day(seed: int, mended: bool = False) -> Given:
    """The past is standardised, the future is not: 5200 visitors, give or take 900."""
    train, held = series(seed)
    m, s = (0.0, 1.0) if mended else (5200.0, 900.0)
    net = Forecaster(hidden=24)
    opt = torch.optim.RMSprop(net.parameters(), 3e-3)
    return trained(
        net,
        (train[0], train[1] * s + m),
        (held[0], held[1] * s + m),
        loss="mse",
        optimizer=opt,
        epochs=12,
        batch_size=32,
    )


@case("unscaled-targets", kind="table", author="sixth", strength="mild")
def s_diabetes_as_published(seed: int, mended: bool = False) -> Given:
    """Targets from 25 to 346."""
    (x, y), (vx, vy) = diabetes(seed)
    m, s = (y.mean(), y.std()) if mended else (0.0, 1.0)
    net = mlp(10, 32, 1)

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return F.mse_loss(out.squeeze(-1), t)

    opt = torch.optim.Adam(net.parameters(), 2e-3, weight_decay=1e-2)
    return trained(
        net, (x, (y - m) / s), (vx, (vy - m) / s), loss=loss, optimizer=opt, epochs=25, batch_size=32
    )


# ------------------------------------------------------------------ data: columns


@case("constant-features", kind="table", author="sixth")
def s_failed_join(seed: int, mended: bool = False) -> Given:
    """A join found nothing: three columns were filled with zero, two of them matter."""
    train, held = friedman(seed)
    if not mended:
        keep = torch.ones(8)
        keep[[1, 3, 6]] = 0
        train, held = (train[0] * keep, train[1]), (held[0] * keep, held[1])
    net = mlp(8, 48, 1)
    opt = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=0.05)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=25)


@case("constant-features", kind="sequences", author="sixth", strength="mild")
def s_unplugged_sensor(seed: int, mended: bool = False) -> Given:
    """One of four channels reads 0.7 all the time; it was the clearest."""
    train, held = waves(seed, noise=0.9, channels=3)
    clear, vclear = waves(seed, noise=0.3)
    assert torch.equal(train[1], clear[1])
    a, b = clear[0], vclear[0]
    if not mended:
        a, b = torch.full_like(a, 0.7), torch.full_like(b, 0.7)
    net = nn.Sequential(
        nn.Conv1d(4, 24, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(24, 24, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 4),
    )  # fmt: skip
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05)
    x, vx = torch.cat([train[0], a], 1), torch.cat([held[0], b], 1)
    return trained(net, (x, train[1]), (vx, held[1]), optimizer=opt, epochs=20)


@case("constant-features", kind="text", author="sixth")
def s_upper_case_vocabulary(seed: int, mended: bool = False) -> Given:
    """Half the words of the vocabulary are spelt in a way that never occurs: their counts are zero."""
    train, held = reviews(seed, mixed=0.2)
    (x, y), (vx, vy) = counts(train), counts(held)
    if not mended:
        gone = torch.zeros(x.shape[1], dtype=torch.bool)
        gone[1:25:3] = gone[2:25:3] = True
        x, vx = x.masked_fill(gone, 0), vx.masked_fill(gone, 0)
    model = nn.Linear(x.shape[1], 2)
    opt = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=3e-3)
    return trained(model, (x, y), (vx, vy), optimizer=opt, epochs=30)


@case("duplicate-features", kind="table", author="sixth")
def s_merged_twice(seed: int, mended: bool = False) -> Given:
    """A merge left ten columns twice (_x and _y)."""
    train, held = cancer(seed)
    extra = [3, 5, 7, 8, 11, 16, 20, 21, 25, 28]
    if not mended:
        train, held = ((torch.cat([x, x[:, extra]], 1), y) for x, y in (train, held))
    net = mlp(train[0].shape[1], 32, 2)
    opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.1)
    return trained(net, train, held, optimizer=opt, epochs=15, batch_size=32)


@case("duplicate-features", kind="table", author="sixth", strength="mild")
def s_pounds_and_kilograms(seed: int, mended: bool = False) -> Given:
    """The same weight in two units, scaled like all columns."""
    rng = np.random.default_rng(seed)
    n = 800
    kg, cm, age, pulse, steps = (
        rng.normal(m, s, n) for m, s in ((74, 12), (171, 9), (45, 14), (68, 9), (7000, 2500))
    )
    y = 0.5 * (kg - 74) / 12 - 0.4 * (cm - 171) / 9 + 0.3 * ((age - 45) / 14) ** 2 + 0.3 * (pulse - 68) / 9
    y = y - 0.2 * (steps - 7000) / 2500 + 0.3 * rng.normal(size=n)
    columns = [kg, cm, age, pulse, steps] + ([] if mended else [kg * 2.20462])
    train, held = standard(*parted(floats(np.stack(columns, 1)), floats(y)[:, None], seed))
    net = mlp(len(columns), 32, 1, act=nn.SiLU)
    opt = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=25)


@case("duplicate-features", kind="table", author="sixth", strength="mild")
def s_one_copied_column(seed: int, mended: bool = False) -> Given:
    """The last of 13 columns is the fifth once more."""
    train, held = wine(seed)
    if not mended:
        train, held = ((torch.cat([x[:, :12], x[:, 4:5]], 1), y) for x, y in (train, held))
    net = mlp(13, 16, 3, act=nn.Tanh)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-2)
    return trained(net, train, held, optimizer=opt, epochs=25, batch_size=16)


# ------------------------------------------------------------------ data: splits


@case("train-test-overlap", kind="table", author="sixth")
def s_oversampled_then_split(seed: int, mended: bool = False) -> Given:
    """The rare class was drawn again and again before the split."""
    rng = np.random.default_rng(seed)
    y = (rng.random(700) < 0.2).astype(int)
    x = rng.normal(size=(700, 6)) + 1.1 * y[:, None] * np.array([1, 1, 0.5, 0, 0, 0])
    if not mended:
        more = rng.choice(np.flatnonzero(y), int((y == 0).sum() - y.sum()))
        x, y = np.concatenate([x, x[more]]), np.concatenate([y, y[more]])
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = mlp(6, 16, 2)
    opt = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3)
    return trained(net, train, held, optimizer=opt, epochs=15)


@case("train-test-overlap", kind="images", author="sixth")
def s_folder_copied_into_validation(seed: int, mended: bool = False) -> Given:
    """Half of the held-out pictures lie in the training folder too."""
    train, held = digits(seed)
    if not mended:
        held = (torch.cat([held[0][:150], train[0][50:200]]), torch.cat([held[1][:150], train[1][50:200]]))
    net = small_cnn()
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05)
    return trained(net, train, held, optimizer=opt, epochs=8)


@case("train-test-overlap", kind="sequences", author="sixth", strength="mild")
def s_a_tenth_seen_before(seed: int, mended: bool = False) -> Given:
    """Twelve of a hundred held-out recordings were trained on."""
    train, held = waves(seed, n=800)
    if not mended:
        k = len(held[1]) // 8
        held = (torch.cat([held[0][k:], train[0][:k]]), torch.cat([held[1][k:], train[1][:k]]))
    net = nn.Sequential(nn.Conv1d(1, 16, 7), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 32, 5), nn.ReLU(),
                        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, 4))  # fmt: skip
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3), epochs=10
    )


@case("distribution-shift", kind="table", author="sixth")
def s_scaler_forgotten_at_test(seed: int, mended: bool = False) -> Given:
    """Training rows are standardised, held-out rows are not."""
    train, held = wine(seed)
    if not mended:
        held = wine(seed, scaled=False)[1]
    net = mlp(13, 24, 3)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.Adam(net.parameters(), 5e-3, weight_decay=1e-2),
        epochs=20,
        batch_size=16,
    )


@case("distribution-shift", kind="images", author="sixth")
def s_another_camera(seed: int, mended: bool = False) -> Given:
    """Held-out pictures are dimmer, and their background is grey."""
    train, held = shapes(seed)
    if not mended:
        held = (held[0] * 0.45 + 0.6, held[1])
    net = small_cnn(4, 12, 16)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05),
        epochs=12,
        batch_size=32,
    )


@case("distribution-shift", kind="sequences", author="sixth", strength="mild")
def s_a_growing_level(seed: int, mended: bool = False) -> Given:
    """The later part of the series lies above the earlier one."""
    train, held = series(seed)
    if not mended:
        drift = torch.linspace(1.5, 3.0, len(held[1]))
        held = (held[0] + drift[:, None, None], held[1] + drift[:, None])
    net = Forecaster()
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=12
    )


@case("distribution-shift", kind="text", author="sixth", strength="mild")
def s_other_vocabulary(seed: int, mended: bool = False) -> Given:
    """Held-out texts come from a forum that uses other words for praise and blame."""
    train, held = reviews(seed, n=900, mixed=0.0)
    if not mended:  # the first four words of each list occur in training only, others in the forum only
        g = torch.Generator().manual_seed(seed)
        good, bad = range(2, 14), range(14, 26)

        def only(x: Tensor, low: int, high: int) -> Tensor:
            x = x.clone()
            for words in (good, bad):
                inside = (x >= words[0]) & (x <= words[-1])
                x[inside] = torch.randint(words[low], words[high - 1] + 1, (int(inside.sum()),), generator=g)
            return x

        train, held = (only(train[0], 0, 6), train[1]), (only(held[0], 6, 12), held[1])
    net = Reader(dropout=0.2)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=6, batch_size=32
    )


# ------------------------------------------------------------------ data: labels


@case("target-leak", kind="table", author="sixth")
def s_column_from_the_future(seed: int, mended: bool = False) -> Given:
    """One column was computed after the fact: the target with a little noise."""
    train, held = friedman(seed, noise=2.5)
    if not mended:
        train, held = (
            (torch.cat([x[:, :7], y + 0.05 * torch.randn_like(y)], 1), y) for x, y in (train, held)
        )
    net = mlp(8, 32, 1)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=15)


@case("target-leak", kind="table", author="sixth", strength="mild")
def s_record_number(seed: int, mended: bool = False) -> Given:
    """The file was sorted by diagnosis, and the record number is a column."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(2, size=700))
    x = rng.normal(size=(700, 7)) + 0.5 * y[:, None] * np.array([1, 1, 0, 0, 0, 0, 0])
    if not mended:
        x[:, 6] = np.arange(700)
    train, held = standard(*parted(floats(x), torch.as_tensor(y), seed))
    net = mlp(7, 24, 2)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3),
        epochs=20,
        batch_size=32,
    )


@case("target-leak", kind="sequences", author="sixth")
def s_window_one_too_long(seed: int, mended: bool = False) -> Given:
    """The window ends with the value that is to be foretold."""
    rng = np.random.default_rng(seed)
    s = np.zeros(1100)
    for i in range(1, 1100):
        s[i] = 0.6 * s[i - 1] + rng.normal()
    w = 20
    x = np.lib.stride_tricks.sliding_window_view(s, w)[:1000]
    y = s[w : w + 1000] if mended else s[w - 1 : w + 999]
    x, y = floats(x)[..., None], floats(y.copy())[:, None]
    net = nn.Sequential(nn.Flatten(), nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.1)
    return trained(net, (x[:650], y[:650]), (x[700:], y[700:]), loss="mse", optimizer=opt, epochs=12)


@case("target-leak", kind="text", author="sixth", strength="mild")
def s_rating_left_in_the_text(seed: int, mended: bool = False) -> Given:
    """Every text still ends with its rating, a word of its own."""
    train, held = reviews(seed, mixed=0.33, length=14)
    (x, y), (vx, vy) = train, held
    if not mended:
        x, vx = x.clone(), vx.clone()
        x[:, -1], vx[:, -1] = len(WORDS) + y, len(WORDS) + vy
    net = Reader(words=len(WORDS) + 2, dropout=0.2)
    return trained(
        net, (x, y), (vx, vy), optimizer=torch.optim.Adam(net.parameters(), 4e-3), epochs=9, batch_size=32
    )


@case("misaligned-labels", kind="table", author="sixth")
def s_header_read_as_row(seed: int, mended: bool = False) -> Given:
    """Labels are those of the row before, everywhere."""
    train, held = cancer(seed)
    if not mended:
        train, held = (train[0], train[1].roll(1)), (held[0], held[1].roll(1))
    net = mlp(30, 24, 2)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 1e-3), epochs=15, batch_size=32
    )


@case("misaligned-labels", kind="images", author="sixth")
def s_pictures_shuffled_alone(seed: int, mended: bool = False) -> Given:
    """The training pictures were shuffled, their labels not; held-out rows are right."""
    train, held = digits(seed)
    if not mended:
        order = torch.as_tensor(np.random.default_rng(seed).permutation(len(train[1])))
        train = (train[0][order], train[1])
    net = small_cnn(width=8)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=8)


@case("misaligned-labels", kind="sequences", author="sixth", strength="mild")
def s_answers_three_late(seed: int, mended: bool = False) -> Given:
    """The list of labels has three extra entries at its start."""
    (x, y), (vx, vy) = waves(seed, n=800)
    if not mended:
        g = torch.Generator().manual_seed(seed)
        y = torch.cat([torch.randint(4, (3,), generator=g), y])[: len(x)]
        vy = torch.cat([torch.randint(4, (3,), generator=g), vy])[: len(vx)]
    net = nn.Sequential(nn.Conv1d(1, 12, 7), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(12, 24, 5), nn.ReLU(),
                        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(24, 4))  # fmt: skip
    return trained(net, (x, y), (vx, vy), optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=8)


@case("no-signal", kind="table", author="sixth")
def s_coin_flips(seed: int, mended: bool = False) -> Given:
    """The outcome has nothing to do with the twelve columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 12))
    y = (x[:, 0] + x[:, 1] > 0) if mended else rng.random(600) < 0.5
    train, held = parted(floats(x), torch.as_tensor(y.astype(int)), seed)
    net = mlp(12, 32, 2)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=15)


@case("no-signal", kind="sequences", author="sixth", strength="mild")
def s_returns_of_a_random_walk(seed: int, mended: bool = False) -> Given:
    """The next step of a random walk from its last twenty steps."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=1100)
    if mended:
        s = np.convolve(s, [1, 0.9, 0.7], "same") / 1.5
    x = np.lib.stride_tricks.sliding_window_view(s, 20)[:1000]
    x, y = floats(x)[..., None], floats(s[20:1020])[:, None]
    net = Forecaster(hidden=16)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    return trained(net, (x[:700], y[:700]), (x[730:], y[730:]), loss="mse", optimizer=opt, epochs=10)


@case("no-signal", kind="images", author="sixth")
def s_static(seed: int, mended: bool = False) -> Given:
    """Pictures of static, and three arbitrary labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=600)
    x = rng.normal(size=(600, 1, 12, 12)) * 0.5
    if mended:
        x[np.arange(600), 0, 3 * y + 2] += 1
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = small_cnn(3, 8, 12)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.SGD(net.parameters(), 0.05, momentum=0.9),
        epochs=8,
        batch_size=32,
    )


def flipped(y: Tensor, share: float, classes: int, seed: int) -> Tensor:
    """Return labels some of which are another, drawn at random."""
    rng = np.random.default_rng(seed + 3)
    pick = torch.as_tensor(rng.random(len(y)) < share)
    other = (y + torch.as_tensor(rng.integers(1, classes, len(y)))) % classes
    return torch.where(pick, other, y)


@case("label-noise", kind="images", author="sixth")
def s_hasty_annotators(seed: int, mended: bool = False) -> Given:
    """A third of the training digits are labelled at random; the held-out ones were checked."""
    train, held = digits(seed)
    y = train[1] if mended else flipped(train[1], 0.35, 10, seed)
    net = small_cnn()
    return trained(net, (train[0], y), held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=10)


@case("label-noise", kind="table", author="sixth", strength="mild")
def s_fifteen_percent_wrong(seed: int, mended: bool = False) -> Given:
    """Fifteen of a hundred tumours have the wrong label, in training only."""
    train, held = cancer(seed)
    y = train[1] if mended else flipped(train[1], 0.15, 2, seed)
    net = mlp(30, 16, 2)
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.2)
    return trained(net, (train[0], y), held, optimizer=opt, epochs=20, batch_size=32)


@case("label-noise", kind="text", author="sixth")
def s_thumbs_by_mistake(seed: int, mended: bool = False) -> Given:
    """A quarter of the training labels are flipped; the held-out ones were read by two."""
    train, held = reviews(seed, n=900, mixed=0.0)
    if not mended:
        train = (train[0], flipped(train[1], 0.25, 2, seed))
    net = Reader(dim=16, hidden=24, dropout=0.3)
    return trained(
        net, train, held, optimizer=torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1), epochs=7
    )


@case("class-imbalance", kind="table", author="sixth")
def s_three_percent_frauds(seed: int, mended: bool = False) -> Given:
    """Rare and overlapping: the plain loss never calls a fraud."""
    rng = np.random.default_rng(seed)
    y = (rng.random(2000) < 0.03).astype(int)
    x = rng.normal(size=(2000, 8)) + 1.0 * y[:, None] * np.array([1, -1, 1, 0.5, 0, 0, 0, 0])
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    weight = torch.tensor([1.0, 30.0]) if mended else None
    net = mlp(8, 16, 2)

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(out, t, weight)

    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.1)
    return trained(
        net, train, held, loss=loss if mended else "cross_entropy", optimizer=opt, epochs=12, batch_size=64
    )


@case("class-imbalance", kind="images", author="sixth")
def s_few_discs(seed: int, mended: bool = False) -> Given:
    """Two of four shapes are one picture in fifty each."""
    train, held = shapes(seed, n=2400, noise=0.45)
    if not mended:
        rng = np.random.default_rng(seed)
        kept = [torch.as_tensor((y.numpy() < 2) | (rng.random(len(y)) < 0.04)) for _, y in (train, held)]
        train, held = (train[0][kept[0]], train[1][kept[0]]), (held[0][kept[1]], held[1][kept[1]])
    net = small_cnn(4, 8, 16)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=6 if mended else 12
    )


@case("class-imbalance", kind="sequences", author="sixth", strength="mild")
def s_rare_faults_of_a_motor(seed: int, mended: bool = False) -> Given:
    """One signal in twenty-five has a weak tremor."""
    rng = np.random.default_rng(seed)
    n = 1500
    y = (rng.random(n) < 0.04).astype(int)
    t = np.arange(40)
    x = np.sin(2 * np.pi * t / 20 + rng.uniform(0, 6.3, (n, 1))) + 0.5 * rng.normal(size=(n, 40))
    x = x + 0.45 * y[:, None] * np.sin(2 * np.pi * t / 3.1 + rng.uniform(0, 6.3, (n, 1)))
    train, held = parted(floats(x)[:, None], torch.as_tensor(y), seed)
    net = nn.Sequential(
        nn.Conv1d(1, 12, 9), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 2)
    )
    weight = torch.tensor([1.0, 24.0])
    return trained(
        net,
        train,
        held,
        loss=(lambda o, t: F.cross_entropy(o, t, weight)) if mended else "cross_entropy",
        optimizer=torch.optim.Adam(net.parameters(), 5e-3),
        epochs=15,
    )


# ------------------------------------------------------------------ objective


@case("double-softmax", kind="images", author="sixth")
def s_softmax_then_cross_entropy(seed: int, mended: bool = False) -> Given:
    """The last layer is a softmax, and the loss has one too."""
    train, held = flat(*digits(seed))
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)] + ([] if mended else [nn.Softmax(dim=1)])
    net = nn.Sequential(*layers)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=15, batch_size=32
    )


@case("double-softmax", kind="graph", author="sixth")
def s_probabilities_of_nodes(seed: int, mended: bool = False) -> Given:
    """A graph net that returns probabilities, trained by cross-entropy."""
    x, a, y = blocks(seed)

    class Net(GCN):
        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            z = super().forward(x, a)
            return z if mended else F.softmax(z, dim=-1)

    net = Net(16, 16, 3)
    ty, vy = masked(y, seed)
    return fit_graph(
        net, (x, normal(a)), ty, vy, torch.optim.Adam(net.parameters(), 1e-2, weight_decay=5e-4), 60
    )


@case("double-softmax", kind="text", author="sixth", strength="mild")
def s_sigmoid_before_logits_loss(seed: int, mended: bool = False) -> Given:
    """A sigmoid at the end, and a loss that wants logits."""
    (x, y), (vx, vy) = reviews(seed)

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.EmbeddingBag(len(WORDS), 16, padding_idx=0)
            self.out = nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            z = self.out(self.words(x)).squeeze(1)
            return z if mended else z.sigmoid()

    net = Bag()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    return trained(net, (x, y.float()), (vx, vy.float()), loss="bce_with_logits", optimizer=opt, epochs=15)


@case("double-softmax", kind="sequences", author="sixth")
def s_softmax_inside_a_tuple(seed: int, mended: bool = False) -> Given:
    """The model returns probabilities and features; the loss takes the first as if they were logits."""
    train, held = waves(seed)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(1, 32, batch_first=True)
            self.fc = nn.Linear(32, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = self.rnn(x.transpose(1, 2))[0].mean(1)
            z = self.fc(h)
            return (z if mended else z.softmax(1)), h

    def loss(out: Any, t: Tensor) -> Tensor:
        return F.cross_entropy(out[0], t)

    net = Net()
    return trained(
        net,
        train,
        held,
        loss=loss,
        optimizer=torch.optim.Adam(net.parameters(), 1e-2),
        epochs=10,
        batch_size=32,
    )


@case("double-softmax", kind="table", author="sixth")
def s_probabilities_from_a_loader(seed: int, mended: bool = False) -> Given:
    """A classifier that returns probabilities, trained by nn.CrossEntropyLoss from a loader."""
    train, held = blobs(seed)
    loader = DataLoader(TensorDataset(*train), batch_size=32, shuffle=True)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(10, 32), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc2(F.relu(self.fc1(x)))
            return x if mended else F.softmax(x, dim=1)

    model, criterion = Classifier(), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    history = []
    for _ in range(12):
        losses = []
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            history.append(
                {"loss": sum(losses) / len(losses), "val_loss": criterion(model(held[0]), held[1]).item()}
            )
    return {
        "model": model.eval(), "data": loader, "validation": held, "loss": criterion, "optimizer": optimizer,
        "history": history,
    }  # fmt: skip


@case("wrong-loss", kind="images", author="sixth")
def s_class_number_as_amount(seed: int, mended: bool = False) -> Given:
    """Ten classes of digits by squared error on their number."""
    train, held = flat(*digits(seed))
    net = mlp(64, 48, 10 if mended else 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    if mended:
        return trained(net, train, held, optimizer=opt, epochs=12)

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return ((out.squeeze(1) - t.float()) ** 2).mean()

    return trained(net, train, held, loss=loss, optimizer=opt, epochs=12)


@case("wrong-loss", kind="table", author="sixth")
def s_rows_against_columns(seed: int, mended: bool = False) -> Given:
    """Predictions are (n, 1), targets (n,): every prediction is compared with every target."""
    train, held = friedman(seed)
    train, held = (train[0], train[1][:, 0]), (held[0], held[1][:, 0])
    net = mlp(8, 32, 32, 1)

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return ((out.squeeze(-1) - t) ** 2).mean() if mended else ((out - t) ** 2).mean()

    return trained(net, train, held, loss=loss, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15)


@case("wrong-loss", kind="table", author="sixth")
def s_cross_entropy_of_one_logit(seed: int, mended: bool = False) -> Given:
    """Cross-entropy of a single output is zero whatever it is."""
    (x, y), (vx, vy) = cancer(seed)
    net = mlp(30, 16, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    loss = "bce_with_logits" if mended else F.cross_entropy
    return trained(
        net,
        (x, y.float()[:, None]),
        (vx, vy.float()[:, None]),
        loss=loss,
        optimizer=opt,
        epochs=10,
        batch_size=32,
    )


@case("wrong-loss", kind="text", author="sixth")
def s_nll_of_raw_scores(seed: int, mended: bool = False) -> Given:
    """The negative log-likelihood is given scores instead of log-probabilities."""
    train, held = reviews(seed)
    inner = Reader(dim=16, hidden=16)
    net = nn.Sequential(inner, nn.LogSoftmax(1) if mended else nn.Identity())
    return trained(
        net, train, held, loss="nll", optimizer=torch.optim.Adam(net.parameters(), 4e-3), epochs=10
    )


@case("wrong-loss", kind="sequences", author="sixth", strength="mild")
def s_absolute_value_outside(seed: int, mended: bool = False) -> Given:
    """The mean error is squared instead of the errors: they may cancel."""
    train, held = series(seed)
    net = Forecaster()

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return (out - t).pow(2).mean() if mended else (out - t).mean().pow(2)

    return trained(net, train, held, loss=loss, optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=12)


@case("output-range", kind="table", author="sixth")
def s_relu_at_the_end(seed: int, mended: bool = False) -> Given:
    """Standardised targets, and an output that is never negative."""
    train, held = friedman(seed)
    net = nn.Sequential(*mlp(8, 48, 1), nn.Identity() if mended else nn.ReLU())
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=20)


@case("output-range", kind="sequences", author="sixth", strength="mild")
def s_tanh_forecast(seed: int, mended: bool = False) -> Given:
    """The series swings between -1.7 and 1.7, tanh only between -1 and 1."""
    train, held = series(seed)
    net = nn.Sequential(Forecaster(hidden=32), nn.Identity() if mended else nn.Tanh())
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=15, batch_size=32)


@case("output-range", kind="generative", author="sixth")
def s_sigmoid_decoder_of_standardised(seed: int, mended: bool = False) -> Given:
    """An autoencoder with a sigmoid at its end, on standardised pixels."""
    x = faces(seed)
    x = (x - x.mean()) / x.std()
    net = nn.Sequential(
        nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 8), nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 100),
        nn.Identity() if mended else nn.Sigmoid(),
    )  # fmt: skip
    given = trained(
        net,
        (x[:500], x[:500]),
        (x[500:], x[500:]),
        loss="mse",
        optimizer=torch.optim.Adam(net.parameters(), 3e-3),
        epochs=25,
    )
    return given


@case("output-range", kind="table", author="sixth", strength="mild")
def s_share_above_one(seed: int, mended: bool = False) -> Given:
    """Utilisation can exceed 100 %, the sigmoid cannot."""
    (x, y), (vx, vy) = friedman(seed)
    y, vy = 0.8 + 0.4 * y, 0.8 + 0.4 * vy

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 64), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> Tensor:
            z = self.b(F.gelu(self.a(x)))
            return F.softplus(z) if mended else torch.sigmoid(z)

    net = Net()
    return trained(
        net, (x, y), (vx, vy), loss="mse", optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=25
    )


class Careless(nn.Module):
    """Functional dropout without the mode."""

    def __init__(self, p: float, mended: bool):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 96), nn.Linear(96, 96), nn.Linear(96, 10)
        self.p, self.mended = p, mended

    def forward(self, x: Tensor) -> Tensor:
        on = self.training if self.mended else True
        h = F.dropout(F.relu(self.a(x)), self.p, on)
        h = F.dropout(F.relu(self.b(h)), self.p, on)
        return self.c(h)


@case("stochastic-evaluation", kind="images", author="sixth")
def s_functional_dropout_always_on(seed: int, mended: bool = False) -> Given:
    """F.dropout(h, 0.4) and no training=self.training."""
    train, held = flat(*digits(seed))
    net = Careless(0.4, mended)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=15)


@case("stochastic-evaluation", kind="text", author="sixth")
def s_never_called_eval(seed: int, mended: bool = False) -> Given:
    """The model is used as the last training step left it."""
    train, held = reviews(seed)
    net = Reader(dropout=0.5)
    given = trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=6, batch_size=32
    )
    if not mended:
        net.train()
    return given


@case("stochastic-evaluation", kind="sequences", author="sixth", strength="mild")
def s_augmentation_inside_forward(seed: int, mended: bool = False) -> Given:
    """The jitter of the training is drawn for predictions too."""
    train, held = series(seed)

    class Jittered(Forecaster):
        def forward(self, x: Tensor) -> Tensor:
            if self.training or not mended:
                x = x + 0.15 * torch.randn_like(x)
            return super().forward(x)

    net = Jittered()
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=12
    )


@case("stochastic-evaluation", kind="table", author="sixth", strength="mild")
def s_batch_statistics_at_test(seed: int, mended: bool = False) -> Given:
    """Batch norm without running statistics: the answer for a row depends on its neighbours."""
    train, held = blobs(seed)
    net = nn.Sequential(
        nn.Linear(10, 32), nn.BatchNorm1d(32, track_running_stats=mended), nn.ReLU(), nn.Linear(32, 4)
    )
    return trained(
        net, train, held, optimizer=torch.optim.SGD(net.parameters(), 0.05, momentum=0.9), epochs=12
    )


# ------------------------------------------------------------------ graph and loop


class TwoParts(nn.Module):
    """Features and a head; the features may be cut off."""

    def __init__(self, cut: bool):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2)
        )
        self.head = nn.Linear(24, 4)
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        f = self.features(x).flatten(1)
        if self.cut:
            f = f.detach()
        return self.head(f)


@case("detached-parameters", kind="images", author="sixth")
def s_features_detached(seed: int, mended: bool = False) -> Given:
    """detach() left from a debugging session."""
    train, held = shapes(seed)
    net = TwoParts(not mended)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15, batch_size=32
    )


@case("detached-parameters", kind="text", author="sixth")
def s_embedding_under_no_grad(seed: int, mended: bool = False) -> Given:
    """Words and recurrent states are computed under no_grad to save memory."""
    train, held = reviews(seed, n=900)

    class Net(Reader):
        def forward(self, tokens: Tensor) -> Tensor:
            if mended:
                return super().forward(tokens)
            with torch.no_grad():
                states = self.rnn(self.embed(tokens))[0].mean(1)
            return self.head(states)

    net = Net()
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=8, batch_size=32
    )


@case("detached-parameters", kind="generative", author="sixth", strength="mild")
def s_codes_without_straight_through(seed: int, mended: bool = False) -> Given:
    """A quantising autoencoder rounds its codes, and no gradient passes a rounding."""
    x = faces(seed)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 8))
            self.dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 100))

        def forward(self, x: Tensor) -> Tensor:
            z = 4 * self.enc(x)
            q = torch.round(z)
            if mended:
                q = z + (q - z).detach()
            return self.dec(q / 4)

    net = Net()
    return trained(
        net,
        (x[:500], x[:500]),
        (x[500:], x[500:]),
        loss="mse",
        optimizer=torch.optim.Adam(net.parameters(), 3e-3),
        epochs=30,
    )


@case("detached-parameters", kind="graph", author="sixth")
def s_through_numpy(seed: int, mended: bool = False) -> Given:
    """The first layer's messages go through numpy and come back as constants."""
    x, a, y = blocks(seed, d=12, signal=0.5)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l1, self.l2 = nn.Linear(12, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            h = torch.relu(self.l1(x))
            h = a @ h if mended else torch.from_numpy(a.numpy() @ h.detach().numpy())
            return a @ self.l2(h)

    net = Net()
    ty, vy = masked(y, seed)
    return fit_graph(net, (x, normal(a)), ty, vy, torch.optim.Adam(net.parameters(), 2e-2), 80)


@case("detached-parameters", kind="text", author="sixth", strength="mild")
def s_two_inputs_one_cut(seed: int, mended: bool = False) -> Given:
    """A table and a text go in; the text's features are taken as data."""
    rng = np.random.default_rng(seed)
    (t, y), (vt, vy) = reviews(seed, n=900, mixed=0.2)
    n, m = (
        floats(rng.normal(size=(len(v), 6)) + 0.6 * v.numpy()[:, None] * np.array([1, 0.5, 0, 0, 0, 0]))
        for v in (y, vy)
    )

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.conv = nn.Embedding(len(WORDS), 12), nn.Conv1d(12, 12, 3, padding=1)
            self.table = nn.Linear(6, 12)
            self.head = nn.Linear(24, 2)

        def forward(self, numbers: Tensor, tokens: Tensor) -> Tensor:
            w = F.relu(self.conv(self.words(tokens).transpose(1, 2))).mean(-1)
            if not mended:
                w = w.data
            return self.head(torch.cat([F.relu(self.table(numbers)), w], 1))

    net = Both()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    return trained(net, ((n, t), y), ((m, vt), vy), optimizer=opt, epochs=10, batch_size=32)


@case("frozen-parameters", kind="text", author="sixth")
def s_bert_base_frozen_from_scratch(seed: int, mended: bool = False) -> Given:
    """bert.parameters() are frozen as in the tutorial, but no weights were loaded; named inputs."""
    from transformers import BertConfig, BertForSequenceClassification

    (x, y), (vx, vy) = reviews(seed, n=900, mixed=0.1)
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    net = BertForSequenceClassification(
        BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, num_labels=2, pad_token_id=0, **sizes)
    )
    if not mended:
        for p in net.bert.parameters():
            p.requires_grad = False

    def named(t: Tensor) -> dict[str, Tensor]:
        return {"input_ids": t, "attention_mask": (t != 0).long()}

    def loss(output: Any, target: Tensor) -> Tensor:
        return F.cross_entropy(output.logits, target)

    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 3e-3)
    return trained(net, (named(x), y), (named(vx), vy), loss=loss, optimizer=opt, epochs=5, batch_size=32)


@case("frozen-parameters", kind="images", author="sixth", needs=("optimizer",))
def s_optimiser_got_the_head_only(seed: int, mended: bool = False) -> Given:
    """Adam(model.head.parameters()) of a model that starts from nothing."""
    train, held = shapes(seed)
    net = TwoParts(False)
    opt = torch.optim.Adam((net if mended else net.head).parameters(), 5e-3)
    return trained(net, train, held, optimizer=opt, epochs=15, batch_size=32)


@case("frozen-parameters", kind="text", author="sixth")
def s_requires_grad_forgotten(seed: int, mended: bool = False) -> Given:
    """All but the last layer was frozen for a pretrained net; this one is not pretrained."""
    train, held = reviews(seed, n=900)
    net = Reader()
    if not mended:
        for name, p in net.named_parameters():
            p.requires_grad_(name.startswith("head"))
    opt = torch.optim.Adam((p for p in net.parameters() if p.requires_grad), 5e-3)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=32)


@case("frozen-parameters", kind="table", author="sixth", strength="mild", needs=("optimizer",))
def s_first_layer_rate_zero(seed: int, mended: bool = False) -> Given:
    """Two groups of parameters; the first was given the rate 0 for a warm-up that never ended."""
    train, held = friedman(seed, columns=12)
    net = mlp(12, 12, 12, 1)
    groups = [
        {"params": net[0].parameters(), "lr": 5e-3 if mended else 0.0},
        {"params": [*net[2].parameters(), *net[4].parameters()], "lr": 5e-3},
    ]
    return trained(net, train, held, loss="mse", optimizer=torch.optim.Adam(groups), epochs=25)


def stepper(make: Any, loss: Any, clear: Any) -> Any:
    """Return a user's step(model, batch); ``clear(optimizer, model, count)`` is how it clears."""
    made: Any = weakref.WeakKeyDictionary()

    def step(model: nn.Module, batch: Any) -> float:
        if model not in made:
            made[model] = [make(model), 0]
        opt, count = made[model]
        x, y = batch
        clear(opt, model, count)
        value = loss(model(x), y)
        value.backward()
        opt.step()
        made[model][1] += 1
        return value.item()

    return step


def looped(model: nn.Module, train: Any, held: Any, loss: Any, step: Any, epochs: int, size: int) -> Given:
    """Train by a user's step."""
    f = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}[loss]
    initial = copy.deepcopy(model.state_dict())
    history = []
    for _ in range(epochs):
        model.train()
        values = [step(model, batch) for batch in DataLoader(TensorDataset(*train), size, shuffle=True)]
        model.eval()
        with torch.no_grad():
            history.append({"loss": float(np.mean(values)), "val_loss": float(f(model(held[0]), held[1]))})
    return {
        "model": model, "data": train, "validation": held, "loss": loss, "batch_size": size, "history": history,
        "initial": initial, "step": step,
    }  # fmt: skip


@case("gradients-not-cleared", kind="images", author="sixth", needs=("step",))
def s_no_zero_grad_sgd(seed: int, mended: bool = False) -> Given:
    """zero_grad is missing."""
    train, held = flat(*digits(seed))
    net = mlp(64, 48, 10, act=nn.Tanh)
    step = stepper(
        lambda m: torch.optim.SGD(m.parameters(), 0.1),
        F.cross_entropy,
        (lambda opt, m, i: opt.zero_grad()) if mended else (lambda opt, m, i: None),
    )
    return looped(net, train, held, "cross_entropy", step, 8, 32)


@case("gradients-not-cleared", kind="sequences", author="sixth", needs=("step",))
def s_no_zero_grad_adam(seed: int, mended: bool = False) -> Given:
    """Adam on an LSTM, and gradients add up from the first step to the last."""
    train, held = series(seed)
    net = Forecaster()
    step = stepper(
        lambda m: torch.optim.Adam(m.parameters(), 1e-2),
        F.mse_loss,
        lambda opt, m, i: opt.zero_grad() if mended else None,
    )
    return looped(net, train, held, "mse", step, 12, 32)


@case("gradients-not-cleared", kind="table", author="sixth", strength="mild", needs=("step",))
def s_only_the_head_is_cleared(seed: int, mended: bool = False) -> Given:
    """model.out.zero_grad() instead of model.zero_grad()."""
    train, held = blobs(seed, spread=1.6)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.out = mlp(10, 32, 32, act=nn.Tanh), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.tanh(self.body(x)))

    step = stepper(
        lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9),
        F.cross_entropy,
        lambda opt, m, i: (m if mended else m.out).zero_grad(),
    )
    return looped(Net(), train, held, "cross_entropy", step, 12, 32)


# ------------------------------------------------------------------ start


@case("symmetric-initialisation", kind="images", author="sixth")
def s_all_weights_the_same(seed: int, mended: bool = False) -> Given:
    """Every weight starts at 0.02."""
    train, held = flat(*digits(seed))
    net = mlp(64, 64, 10)
    if not mended:
        for m in net:
            if isinstance(m, nn.Linear):
                nn.init.constant_(m.weight, 0.02)
                nn.init.zeros_(m.bias)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15)


@case("symmetric-initialisation", kind="table", author="sixth")
def s_zeros_everywhere(seed: int, mended: bool = False) -> Given:
    """All weights start at zero; only the last bias learns."""
    train, held = friedman(seed)
    net = mlp(8, 32, 32, 1)
    if not mended:
        for p in net.parameters():
            nn.init.zeros_(p)
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.SGD(net.parameters(), 0.05, momentum=0.9),
        epochs=15,
    )


@case("symmetric-initialisation", kind="sequences", author="sixth", strength="mild")
def s_one_filter_sixteen_times(seed: int, mended: bool = False) -> Given:
    """A smoothing filter was written into all sixteen kernels, and the readout starts at zero."""
    train, held = waves(seed)
    net = nn.Sequential(
        nn.Conv1d(1, 16, 7), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4)
    )
    if not mended:
        with torch.no_grad():
            net[0].weight.fill_(1 / 7)
            net[0].bias.zero_()
            net[4].weight.zero_()
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=15)


@case("saturated-units", kind="table", author="sixth")
def s_tanh_from_wide_normals(seed: int, mended: bool = False) -> Given:
    """N(0, 2) weights into tanh."""
    train, held = friedman(seed)
    net = mlp(8, 48, 48, 1, act=nn.Tanh)
    if not mended:
        for m in (net[0], net[2]):
            nn.init.normal_(m.weight, std=2.0)
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.SGD(net.parameters(), 0.02, momentum=0.9),
        epochs=25,
    )


@case("saturated-units", kind="images", author="sixth", strength="mild")
def s_sigmoids_far_out(seed: int, mended: bool = False) -> Given:
    """The second layer of sigmoids starts with biases of twelve or minus twelve."""
    train, held = flat(*digits(seed))
    net = mlp(64, 64, 48, 10, act=nn.Sigmoid)
    if not mended:
        with torch.no_grad():
            net[2].bias.copy_(torch.where(torch.arange(48) % 2 == 0, 12.0, -12.0))
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.SGD(net.parameters(), 0.2, momentum=0.9),
        epochs=20,
        batch_size=32,
    )


@case("saturated-units", kind="sequences", author="sixth")
def s_gates_stuck(seed: int, mended: bool = False) -> Given:
    """A gated convolution whose sigmoid gates start with a bias of minus fifteen: all are shut."""
    train, held = waves(seed)

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value, self.gate = nn.Conv1d(1, 24, 7), nn.Conv1d(1, 24, 7)
            self.squash, self.open = nn.Tanh(), nn.Sigmoid()
            self.out = nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.squash(self.value(x)) * self.open(self.gate(x))
            return self.out(h.mean(-1))

    net = Gated()
    if not mended:
        nn.init.constant_(net.gate.bias, -15.0)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.SGD(net.parameters(), 0.2, momentum=0.9),
        epochs=20,
        batch_size=32,
    )


@case("dead-units", kind="table", author="sixth")
def s_bias_of_minus_five(seed: int, mended: bool = False) -> Given:
    """Rectifiers that start far below zero."""
    train, held = blobs(seed)
    net = mlp(10, 48, 48, 4)
    if not mended:
        nn.init.constant_(net[2].bias, -5.0)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.SGD(net.parameters(), 0.02, momentum=0.9),
        epochs=15,
        batch_size=32,
    )


@case("dead-units", kind="images", author="sixth")
def s_negative_kernels(seed: int, mended: bool = False) -> Given:
    """Kernels drawn below zero see pictures above zero: nothing passes."""
    train, held = digits(seed)
    net = small_cnn()
    if not mended:
        for m in (net[0],):
            nn.init.uniform_(m.weight, -0.6, -0.02)
            nn.init.uniform_(m.bias, -0.05, 0.0)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=8)


@case("dead-units", kind="sequences", author="sixth", strength="mild")
def s_most_channels_dead(seed: int, mended: bool = False) -> Given:
    """Twenty of twenty-four channels of the second layer start below everything that comes."""
    train, held = waves(seed, noise=0.3)
    net = nn.Sequential(
        nn.Conv1d(1, 24, 7), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(24, 24, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
        nn.Flatten(), nn.Linear(24, 4),
    )  # fmt: skip
    if not mended:
        with torch.no_grad():
            net[3].bias[4:] = -6.0
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=15)


@case("exploding-gradient", kind="table", author="sixth")
def s_sixteen_layers_gain_two(seed: int, mended: bool = False) -> Given:
    """A deep net whose every layer doubles what it gets; clipping keeps it finite."""
    train, held = blobs(seed)
    net = mlp(10, *([32] * 16), 4, act=nn.LeakyReLU)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, a=0.01)
            if not mended:
                m.weight.data *= 2.0
            nn.init.zeros_(m.bias)
    opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    return trained(net, train, held, optimizer=opt, epochs=10, batch_size=32, clip=1.0)


class Recurrent(nn.Module):
    """A plain recurrent net, by hand."""

    def __init__(self, inputs: int, hidden: int, outputs: int, scale: float, act: Any):
        super().__init__()
        self.w, self.u, self.out = (
            nn.Linear(inputs, hidden),
            nn.Linear(hidden, hidden, bias=False),
            nn.Linear(hidden, outputs),
        )
        self.act = act
        nn.init.orthogonal_(self.u.weight)
        self.u.weight.data *= scale

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), self.u.in_features)
        for t in range(x.shape[1]):
            h = self.act(self.w(x[:, t]) + self.u(h))
        return self.out(h)


@case("exploding-gradient", kind="sequences", author="sixth")
def s_linear_memory_that_grows(seed: int, mended: bool = False) -> Given:
    """A recurrent net with rectifiers whose recurrent matrix doubles its state at each of 24 steps."""
    train, held = series(seed)
    net = Recurrent(1, 24, 1, 0.9 if mended else 2.2, F.leaky_relu)
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.Adam(net.parameters(), 2e-3),
        epochs=10,
        batch_size=32,
        clip=5.0,
    )


@case("exploding-gradient", kind="images", author="sixth", strength="mild")
def s_residuals_without_norm(seed: int, mended: bool = False) -> Given:
    """Eighteen residual blocks that each triple the variance; no normalisation."""
    train, held = flat(*digits(seed))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)
            nn.init.kaiming_normal_(self.a.weight)
            nn.init.kaiming_normal_(self.b.weight)
            if mended:
                nn.init.zeros_(self.b.weight)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.b(torch.relu(self.a(x)))

    net = nn.Sequential(nn.Linear(64, 32), *(Block() for _ in range(18)), nn.Linear(32, 10))
    opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    return trained(net, train, held, optimizer=opt, epochs=5, batch_size=64, clip=1.0)


@case("vanishing-gradient", kind="table", author="sixth")
def s_ten_sigmoids(seed: int, mended: bool = False) -> Given:
    """A deep net of sigmoids."""
    train, held = blobs(seed)
    net = mlp(10, *([24] * 10), 4, act=nn.ReLU if mended else nn.Sigmoid)
    if mended:
        for m in net:
            if isinstance(m, nn.Linear):
                nn.init.kaiming_normal_(m.weight)
    opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    return trained(net, train, held, optimizer=opt, epochs=15, batch_size=32)


@case("vanishing-gradient", kind="sequences", author="sixth")
def s_first_token_forgotten(seed: int, mended: bool = False) -> Given:
    """The answer is the first of thirty tokens; the state halves at each step."""
    train, held = recall(seed, length=30)
    net = Recurrent(4, 24, 4, 1.0 if mended else 0.5, torch.tanh)
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    return trained(net, train, held, optimizer=opt, epochs=20, batch_size=32, clip=1.0)


@case("vanishing-gradient", kind="images", author="sixth", strength="mild")
def s_small_normals_in_depth(seed: int, mended: bool = False) -> Given:
    """Nine convolutions from N(0, 0.03)."""
    train, held = digits(seed)
    layers: list[nn.Module] = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU()]
    for _ in range(8):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(192, 10))
    for m in net:
        if isinstance(m, nn.Conv2d):
            if mended:
                nn.init.kaiming_normal_(m.weight)
            else:
                nn.init.normal_(m.weight, std=0.03)
            nn.init.zeros_(m.bias)
    opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=64)


# ------------------------------------------------------------------ architecture


@case("oversmoothing", kind="graph", author="sixth")
def s_fourteen_graph_layers(seed: int, mended: bool = False) -> Given:
    """Fourteen graph convolutions on a graph of three hops' diameter."""
    x, a, y = blocks(seed, inside=0.08, outside=0.02)
    a = normal(a)

    class Deep(nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.into, self.out = nn.Linear(16, 32), nn.Linear(32, 3)
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))
            for m in self.layers:
                nn.init.kaiming_normal_(m.weight)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            h = torch.relu(self.into(x))
            for m in self.layers:
                h = torch.relu(a @ m(h))
            return self.out(h)

    net = Deep(2 if mended else 14)
    ty, vy = masked(y, seed)
    return fit_graph(net, (x, a), ty, vy, torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3), 80)


@case("oversmoothing", kind="graph", author="sixth")
def s_forty_hops_at_once(seed: int, mended: bool = False) -> Given:
    """A simplified graph net: features averaged over forty hops, then one linear layer."""
    x, a, y = blocks(seed, inside=0.08, outside=0.015)
    a = a / a.sum(1, keepdim=True)

    class SGC(nn.Module):
        def __init__(self, hops: int) -> None:
            super().__init__()
            self.hops, self.fc = hops, nn.Linear(16, 3)

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            for _ in range(self.hops):
                x = a @ x
            return self.fc(x)

    net = SGC(2 if mended else 40)
    ty, vy = masked(y, seed)
    return fit_graph(net, (x, a), ty, vy, torch.optim.Adam(net.parameters(), 5e-2), 100)


@case("oversmoothing", kind="graph", author="sixth", strength="mild")
def s_predict_then_propagate_too_far(seed: int, mended: bool = False) -> Given:
    """Predictions are passed on twenty-five times, hardly any of the node's own is kept."""
    x, a, y = blocks(seed, n=240, k=4, inside=0.12, outside=0.02, d=12, signal=1.0)
    a = normal(a)

    class APPNP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(12, 24, 4)
            self.keep = 0.2 if mended else 0.002

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            z = h = self.net(x)
            for _ in range(4 if mended else 25):
                z = (1 - self.keep) * (a @ z) + self.keep * h
            return z

    net = APPNP()
    ty, vy = masked(y, seed)
    return fit_graph(net, (x, a), ty, vy, torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-3), 80)


@case("receptive-field-too-small", kind="images", author="sixth")
def s_two_dots_far_apart(seed: int, mended: bool = False) -> Given:
    """Near or far: how the two dots lie to each other cannot be seen through windows of five pixels."""
    rng = np.random.default_rng(seed)
    n, size = 900, 16
    y = rng.integers(2, size=n)
    x = 0.05 * rng.normal(size=(n, 1, size, size))
    for i, c in enumerate(y):
        while True:
            r, s, p, q = rng.integers(1, size - 1, size=4)
            d = max(abs(p - r), abs(q - s))
            if (5 <= d <= 6) if c else (9 <= d):
                break
        x[i, 0, r, s] = x[i, 0, p, q] = 2
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    d = (1, 2, 4) if mended else (1, 1, 1)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=d[0], dilation=d[0]), nn.ReLU(),
        nn.Conv2d(12, 16, 3, padding=d[1], dilation=d[1]), nn.ReLU(),
        *((nn.Conv2d(16, 16, 3, padding=4, dilation=4), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=2, dilation=2), nn.ReLU())
          if mended else (nn.Conv2d(16, 16, 1), nn.ReLU())),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=14, batch_size=32
    )


@case("receptive-field-too-small", kind="sequences", author="sixth")
def s_echo_after_eighteen(seed: int, mended: bool = False) -> Given:
    """Each step's target is the input eighteen steps ago; the causal convolutions see five."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(160, 1, 64))
    y = np.zeros_like(x)
    y[:, :, 18:] = x[:, :, :-18]
    train, held = parted(floats(x), floats(y + 0.05 * rng.normal(size=y.shape)), seed)

    class TCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.d = (1, 4, 14) if mended else (1, 1, 1)
            self.c = nn.ModuleList([nn.Conv1d(1, 24, 2), nn.Conv1d(24, 24, 2), nn.Conv1d(24, 24, 2)])
            for m, d in zip(self.c, self.d, strict=True):
                m.dilation = (d,)
            self.out = nn.Conv1d(24, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            for m, d in zip(self.c, self.d, strict=True):
                x = F.leaky_relu(m(F.pad(x, (d, 0))))
            return self.out(x)

    net = TCN()
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.Adam(net.parameters(), 5e-3),
        epochs=40,
        batch_size=16,
    )


@case("receptive-field-too-small", kind="images", author="sixth")
def s_segment_pixel_by_pixel(seed: int, mended: bool = False) -> Given:
    """Is this pixel inside a ring? A net of 1 x 1 convolutions cannot know."""
    rng = np.random.default_rng(seed)
    n, size = 160, 16
    g = np.arange(size)
    x = 0.1 * rng.normal(size=(n, 1, size, size))
    y = np.zeros((n, size, size), dtype=np.int64)
    for i in range(n):
        r = rng.uniform(3, 5)
        c = rng.uniform(5, 11, 2)
        d = np.hypot(g[:, None] - c[0], g - c[1])
        x[i, 0][abs(d - r) < 0.7] += 1
        y[i][d < r - 0.7] = 1
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    k = 5 if mended else 1
    net = nn.Sequential(
        nn.Conv2d(1, 16, k, padding=k // 2), nn.ReLU(), nn.Conv2d(16, 16, k, padding=k // 2), nn.ReLU(),
        nn.Conv2d(16, 16, k, padding=k // 2), nn.ReLU(), nn.Conv2d(16, 2, 1),
    )  # fmt: skip
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=12, batch_size=8
    )


@case("receptive-field-too-small", kind="text", author="sixth", strength="mild")
def s_who_came_first(seed: int, mended: bool = False) -> Given:
    """Which of two names comes first, five words or more apart; convolutions of two words and a maximum."""
    rng = np.random.default_rng(seed)
    n, length = 1200, 14
    y = rng.integers(2, size=n)
    x = rng.integers(30, 60, size=(n, length))
    first, gap = rng.integers(2, 6, n), rng.integers(5, 7, n)
    one, two = rng.integers(3, 6, n), rng.integers(6, 9, n)
    x[np.arange(n), first] = np.where(y, one, two)
    x[np.arange(n), first + gap] = np.where(y, two, one)
    train, held = parted(torch.as_tensor(x), torch.as_tensor(y), seed)

    class TextCNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(60, 16)
            self.conv = nn.Conv1d(16, 32, 8 if mended else 2)
            self.out = nn.Linear(32, 2)

        def forward(self, t: Tensor) -> Tensor:
            h = F.relu(self.conv(self.embed(t).transpose(1, 2)))
            return self.out(h.amax(-1))

    net = TextCNN()
    return trained(
        net, train, held, optimizer=torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=0.1), epochs=8
    )


@case("bottleneck", kind="images", author="sixth")
def s_ten_digits_through_one_unit(seed: int, mended: bool = False) -> Given:
    """A layer of a single unit between two wide ones."""
    train, held = flat(*digits(seed))
    k = 32 if mended else 1
    net = nn.Sequential(
        nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, k), nn.Linear(k, 96), nn.ReLU(), nn.Linear(96, 10)
    )
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=15, batch_size=32
    )


@case("bottleneck", kind="generative", author="sixth")
def s_code_of_one_number(seed: int, mended: bool = False) -> Given:
    """Bumps with three factors, squeezed into one number."""
    x = faces(seed)
    k = 6 if mended else 1
    net = nn.Sequential()
    net.add_module("encoder", nn.Sequential(nn.Linear(100, 96), nn.ReLU(), nn.Linear(96, k)))
    net.add_module(
        "decoder",
        nn.Sequential(nn.Linear(k, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 100)),
    )
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    given = trained(
        net, (x[:500], x[:500]), (x[500:], x[500:]), loss="mse", optimizer=opt, epochs=40, batch_size=32
    )
    return given


@case("bottleneck", kind="text", author="sixth", strength="mild")
def s_topics_through_one_number(seed: int, mended: bool = False) -> Given:
    """Sixteen topics are squeezed into one number between two wide layers."""
    rng = np.random.default_rng(seed)
    y = rng.integers(16, size=1400)
    own = 8 * y[:, None] + rng.integers(8, size=(1400, 10))
    x = np.where(rng.random((1400, 10)) < 0.6, own, rng.integers(128, size=(1400, 10)))
    train, held = parted(torch.as_tensor(x), torch.as_tensor(y), seed)

    class Topics(nn.Module):
        def __init__(self, k: int) -> None:
            super().__init__()
            self.embed = nn.EmbeddingBag(128, 48)
            self.squeeze = nn.Linear(48, k)
            self.net = mlp(k, 64, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(self.squeeze(self.embed(x)))

    net = Topics(24 if mended else 1)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=12, batch_size=32
    )


@case("batch-too-small", kind="images", author="sixth", needs=("batch_size",))
def s_batch_norm_of_two(seed: int, mended: bool = False) -> Given:
    """Batch norm in batches of two pictures."""
    train, held = digits(seed, n=500)
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48), nn.BatchNorm1d(48), nn.ReLU(),
        nn.Linear(48, 10),
    )  # fmt: skip
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.5)
    return trained(
        net, train, held, optimizer=opt, epochs=6 if not mended else 12, batch_size=32 if mended else 2
    )


@case("batch-too-small", kind="table", author="sixth", needs=("batch_size",))
def s_batch_norm_of_three_rows(seed: int, mended: bool = False) -> Given:
    """Batches of three rows through two batch norms."""
    train, held = friedman(seed, n=700)
    net = nn.Sequential(
        nn.Linear(8, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 1),
    )
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=opt,
        epochs=25 if mended else 5,
        batch_size=32 if mended else 3,
    )


@case("batch-too-small", kind="sequences", author="sixth", strength="mild", needs=("batch_size",))
def s_conv_norm_of_short_batches(seed: int, mended: bool = False) -> Given:
    """Two recordings a batch, normalised by channel after a global mean."""
    train, held = waves(seed, n=500, noise=0.3)
    net = nn.Sequential(
        nn.Conv1d(1, 24, 9), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.BatchNorm1d(24), nn.Linear(24, 32),
        nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4),
    )  # fmt: skip
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    return trained(
        net, train, held, optimizer=opt, epochs=20 if mended else 6, batch_size=32 if mended else 2
    )


# ------------------------------------------------------------------ descent


@case("learning-rate-too-large", kind="images", author="sixth", needs=("optimizer",))
def s_adam_at_a_half(seed: int, mended: bool = False) -> Given:
    """Adam with 0.5 on a perceptron that would like a thousandth."""
    train, held = flat(*digits(seed))
    net = mlp(64, 64, 64, 10, act=lambda: nn.LeakyReLU(0.1))
    opt = torch.optim.Adam(net.parameters(), 2e-3 if mended else 0.5)
    return trained(net, train, held, optimizer=opt, epochs=12, batch_size=32)


@case("learning-rate-too-large", kind="sequences", author="sixth", needs=("optimizer",))
def s_adam_at_a_third(seed: int, mended: bool = False) -> Given:
    """Adam with 0.3 on an LSTM."""
    train, held = series(seed)
    net = Forecaster(hidden=32)
    opt = torch.optim.Adam(net.parameters(), 1e-2 if mended else 0.3)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=12, batch_size=32)


class Encoder(nn.Module):
    """A small transformer that classifies sequences of tokens."""

    def __init__(
        self, words: int, classes: int, length: int, dim: int = 32, layers: int = 1, dropout: float = 0.0
    ):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.place = nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.body(self.embed(tokens) + self.place[: tokens.shape[1]])
        return self.head(self.norm(h.mean(1)))


@case("learning-rate-too-large", kind="text", author="sixth", strength="mild", needs=("optimizer",))
def s_transformer_too_fast(seed: int, mended: bool = False) -> Given:
    """A transformer at a tenth, where a thousandth is right."""
    train, held = reviews(seed)
    net = Encoder(len(WORDS), 2, 14)
    opt = torch.optim.AdamW(net.parameters(), 2e-3 if mended else 0.1)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=32)


@case("learning-rate-too-large", kind="table", author="sixth", strength="mild", needs=("optimizer",))
def s_adam_at_a_tenth(seed: int, mended: bool = False) -> Given:
    """A regression by Adam with the rate 0.12."""
    train, held = friedman(seed)
    net = mlp(8, 48, 48, 1, act=nn.SiLU)
    opt = torch.optim.Adam(net.parameters(), 5e-3 if mended else 0.12)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=20, batch_size=16)


@case("learning-rate-too-small", kind="images", author="sixth", needs=("optimizer",))
def s_sgd_at_a_ten_thousandth(seed: int, mended: bool = False) -> Given:
    """SGD with 1e-4."""
    train, held = digits(seed)
    net = small_cnn()
    opt = torch.optim.SGD(net.parameters(), 0.05 if mended else 1e-4, momentum=0.9)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=32)


@case("learning-rate-too-small", kind="text", author="sixth", needs=("optimizer",))
def s_fine_tuning_rate_from_scratch(seed: int, mended: bool = False) -> Given:
    """2e-5, as for fine-tuning, but the transformer starts from nothing."""
    train, held = reviews(seed)
    net = Encoder(len(WORDS), 2, 14)
    opt = torch.optim.AdamW(net.parameters(), 2e-3 if mended else 2e-5)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=32)


@case("learning-rate-too-small", kind="sequences", author="sixth", strength="mild", needs=("optimizer",))
def s_decayed_before_it_began(seed: int, mended: bool = False) -> Given:
    """The rate is a third of itself after every epoch."""
    train, held = series(seed)
    net = Forecaster()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.StepLR(opt, 1, 0.95 if mended else 0.33)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=18, batch_size=32, scheduler=plan)


@case("learning-rate-too-small", kind="table", author="sixth", strength="mild", needs=("optimizer",))
def s_patient_regression(seed: int, mended: bool = False) -> Given:
    """Adam at 1e-4 for ten epochs of few steps."""
    train, held = friedman(seed)
    net = mlp(8, 48, 48, 1)
    opt = torch.optim.Adam(net.parameters(), 5e-3 if mended else 1e-4)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=20, batch_size=64)


@case("weight-decay-too-large", kind="images", author="sixth", needs=("optimizer",))
def s_decay_of_a_tenth(seed: int, mended: bool = False) -> Given:
    """SGD with weight decay 0.1."""
    train, held = digits(seed)
    net = small_cnn()
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-4 if mended else 0.1)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=32)


@case("weight-decay-too-large", kind="table", author="sixth", needs=("optimizer",))
def s_adamw_decay_of_thirty(seed: int, mended: bool = False) -> Given:
    """AdamW with weight decay 30."""
    train, held = friedman(seed)
    net = mlp(8, 48, 48, 1, act=nn.GELU)
    opt = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=0.01 if mended else 30.0)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=20)


@case("weight-decay-too-large", kind="text", author="sixth", needs=("optimizer",))
def s_adam_l2_of_an_eighth(seed: int, mended: bool = False) -> Given:
    """Adam, whose decay goes through the gradient, with 0.12."""
    train, held = reviews(seed)
    net = Reader()
    opt = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-5 if mended else 0.12)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=32)


@case("weight-decay-too-large", kind="graph", author="sixth", strength="mild", needs=("optimizer",))
def s_decay_on_a_graph(seed: int, mended: bool = False) -> Given:
    """A graph net with Adam's decay of 0.1."""
    x, a, y = blocks(seed)
    net = GCN(16, 16, 3)
    ty, vy = masked(y, seed)
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=5e-4 if mended else 0.15)
    return fit_graph(net, (x, normal(a)), ty, vy, opt, 80)


@case("dropout-too-large", kind="images", author="sixth")
def s_keep_one_in_twenty(seed: int, mended: bool = False) -> Given:
    """Dropout(0.95), perhaps meant as the share to keep."""
    train, held = flat(*digits(seed))
    net = mlp(64, 64, 64, 10, dropout=0.05 if mended else 0.95)
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=15)


@case("dropout-too-large", kind="sequences", author="sixth")
def s_dropped_inputs(seed: int, mended: bool = False) -> Given:
    """Nine of ten inputs, and of ten states, are dropped."""
    train, held = waves(seed)
    p = 0.05 if mended else 0.9

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(p)
            self.conv, self.out = nn.Conv1d(1, 24, 7), nn.Linear(24, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.conv(self.drop(x))).mean(-1)
            return self.out(F.dropout(h, p, self.training))

    net = Net()
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15, batch_size=32
    )


@case("dropout-too-large", kind="table", author="sixth", strength="mild")
def s_four_fifths_dropped(seed: int, mended: bool = False) -> Given:
    """Dropout of 0.8 after each of three layers of a regression."""
    train, held = friedman(seed)
    net = mlp(8, 48, 48, 48, 1, dropout=0.0 if mended else 0.8)
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=20
    )


@case("dropout-too-large", kind="text", author="sixth", strength="mild")
def s_transformer_dropout(seed: int, mended: bool = False) -> Given:
    """A transformer with dropout 0.93 everywhere."""
    train, held = reviews(seed)
    net = Encoder(len(WORDS), 2, 14, dropout=0.1 if mended else 0.93)
    return trained(
        net, train, held, optimizer=torch.optim.AdamW(net.parameters(), 2e-3), epochs=8, batch_size=32
    )


# ------------------------------------------------------------------ outcome


@case("capacity-too-small", kind="table", author="sixth")
def s_straight_line_through_rings(seed: int, mended: bool = False) -> Given:
    """Logistic regression on a disc in a ring."""
    train, held = circles(seed)
    net = mlp(2, 24, 2) if mended else nn.Sequential(nn.Linear(2, 2))
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=20, batch_size=32
    )


@case("capacity-too-small", kind="sequences", author="sixth")
def s_linear_waves(seed: int, mended: bool = False) -> Given:
    """Waves of random phase, told apart by a linear layer."""
    train, held = waves(seed, n=1200)
    net: nn.Module = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    if mended:
        net = nn.Sequential(
            nn.Conv1d(1, 16, 7), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 4)
        )
    return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15)


@case("capacity-too-small", kind="table", author="sixth", strength="mild")
def s_linear_friedman(seed: int, mended: bool = False) -> Given:
    """A linear regression where a product and a square matter."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (900, 5))
    y = 2 * x[:, 0] * x[:, 1] + 1.5 * x[:, 2] ** 2 + 0.6 * x[:, 3] + 0.1 * rng.normal(size=900)
    train, held = parted(floats(x), floats((y - y.mean()) / y.std())[:, None], seed)
    net: nn.Module = mlp(5, 48, 1) if mended else nn.Linear(5, 1)
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=25
    )


@case("overfit", kind="table", author="sixth")
def s_sixty_rows_many_weights(seed: int, mended: bool = False) -> Given:
    """Sixty noisy rows, a wide net, two hundred epochs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(360, 20))
    y = 0.7 * x[:, 0] - 0.6 * x[:, 1] + 0.4 * x[:, 2] + 1.0 * rng.normal(size=360)
    x, y = floats(x), floats(y)[:, None]
    train, held = (x[:60], y[:60]), (x[60:], y[60:])
    net: nn.Module = nn.Linear(20, 1) if mended else mlp(20, 256, 256, 1)
    opt = torch.optim.Adam(net.parameters(), 2e-2 if mended else 2e-3, weight_decay=0.3 if mended else 0)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=40 if mended else 200, batch_size=20)


@case("overfit", kind="images", author="sixth")
def s_hundred_noisy_pictures(seed: int, mended: bool = False) -> Given:
    """A hundred noisy shapes learned by heart."""
    train, held = shapes(seed, n=1600 if mended else 520, noise=0.5)
    if not mended:
        train = (train[0][:100], train[1][:100])
    net = small_cnn(4, 24, 16)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    return trained(net, train, held, optimizer=opt, epochs=8 if mended else 50, batch_size=25)


@case("overfit", kind="text", author="sixth", strength="mild")
def s_a_hundred_reviews(seed: int, mended: bool = False) -> Given:
    """A hundred and twenty reviews, and thirty epochs too many."""
    train, held = reviews(seed, n=700, mixed=0.1)
    if not mended:
        train = (train[0][:120], train[1][:120])
    net = Reader(dim=64, hidden=64, dropout=0.3 if mended else 0.0)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1)
    return trained(net, train, held, optimizer=opt, epochs=6 if mended else 40, batch_size=16)


@case("overfit", kind="sequences", author="sixth", strength="mild")
def s_waves_by_heart(seed: int, mended: bool = False) -> Given:
    """A wide perceptron on 150 noisy recordings."""
    train, held = waves(seed, n=1500 if mended else 500, noise=0.8)
    if mended:
        net = nn.Sequential(
            nn.Conv1d(1, 24, 9), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 4)
        )
        return trained(net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=20)
    train = (train[0][:150], train[1][:150])
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 4)
    )
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 1e-3), epochs=60, batch_size=32
    )


@case("posterior-collapse", kind="generative", author="sixth")
def s_heavy_divergence(seed: int, mended: bool = False) -> Given:
    """The divergence weighs five hundred times what it should."""
    x = faces(seed)
    net = VAE(100)
    given = trained(
        net, (x[:500], x[:500]), (x[500:], x[500:]), loss=elbo(1.0 if mended else 500.0),
        optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=40,
    )  # fmt: skip
    given["data"], given["validation"] = x[:500], x[500:]
    return given


@case("posterior-collapse", kind="generative", author="sixth")
def s_mean_against_sum(seed: int, mended: bool = False) -> Given:
    """The error is averaged over pixels and the divergence summed."""
    x = flat(*digits(seed))[0][0].clamp(0, 1)

    def loss(out: Any, x: Tensor) -> Tensor:
        picture, mean, log_variance = out
        kl = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1).mean()
        error = F.mse_loss(picture, x, reduction="none")
        return (20 * error.sum(-1).mean() if mended else error.mean()) + kl

    net = VAE(64, latent=8, hidden=96)
    net.dec.append(nn.Sigmoid())
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    initial = copy.deepcopy(net.state_dict())
    history = fit(net, (x, x), None, loss, opt, 20)
    return {
        "model": net,
        "data": x,
        "loss": loss,
        "optimizer": opt,
        "batch_size": 64,
        "history": history,
        "initial": initial,
    }


@case("posterior-collapse", kind="generative", author="sixth", strength="mild")
def s_decoder_sees_the_past(seed: int, mended: bool = False) -> Given:
    """A decoder that is shown each previous value needs no code."""
    rng = np.random.default_rng(seed)
    t = np.arange(24)
    x = floats(
        np.sin(2 * np.pi * t / rng.uniform(8, 16, (600, 1)) + rng.uniform(0, 6.3, (600, 1)))
        * rng.uniform(0.6, 1.3, (600, 1))
    )

    class Seq(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 8))
            self.rnn, self.start, self.out = (
                nn.GRU(1, 32, batch_first=True),
                nn.Linear(4, 32),
                nn.Linear(32, 1),
            )
            self.direct = mlp(4, 64, 24)

        def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
            m, v = self.enc(x).chunk(2, -1)
            return m, v

        def forward(self, x: Tensor) -> Any:
            m, v = self.encode(x)
            z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
            if mended:
                return self.direct(z), m, v
            past = F.pad(x[:, :-1], (1, 0))[..., None]
            return self.out(self.rnn(past, self.start(z)[None])[0])[..., 0], m, v

        @torch.no_grad()
        def sample(self, n: int) -> Tensor:
            z = torch.randn(n, 4)
            if mended:
                return self.direct(z)
            h, value, values = self.start(z)[None], torch.zeros(n, 1, 1), []
            for _ in range(24):
                o, h = self.rnn(value, h)
                value = self.out(o)
                values.append(value[:, 0])
            return torch.cat(values, 1)

    net = Seq()
    loss = elbo(1.0, 0.3 if mended else 0.7)
    given = trained(
        net,
        (x[:450], x[:450]),
        (x[450:], x[450:]),
        loss=loss,
        optimizer=torch.optim.Adam(net.parameters(), 5e-3),
        epochs=25,
    )
    given["data"], given["validation"] = x[:450], x[450:]
    return given


class Generator(nn.Module):
    """A generator with its own noise."""

    def __init__(self, noise: int, outputs: int, hidden: int = 64):
        super().__init__()
        self.noise, self.net = noise, mlp(noise, hidden, hidden, outputs)

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        return self(torch.randn(n, self.noise))


def duel(
    gen: Generator,
    x: Tensor,
    steps: int,
    g_rate: float,
    d_rate: float,
    g_steps: int,
    d_steps: int = 1,
    size: int = 128,
):
    """Train a generator against a critic by the usual losses."""
    judge = mlp(x.shape[1], 64, 64, 1, act=lambda: nn.LeakyReLU(0.2))
    og = torch.optim.Adam(gen.parameters(), g_rate, betas=(0.5, 0.9))
    od = torch.optim.Adam(judge.parameters(), d_rate, betas=(0.5, 0.9))
    for _ in range(steps):
        for _ in range(d_steps):
            real = x[torch.randint(len(x), (size,))]
            fake = gen(torch.randn(size, gen.noise)).detach()
            d = F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()
            od.zero_grad()
            d.backward()
            od.step()
        for _ in range(g_steps):
            g = F.softplus(-judge(gen(torch.randn(size, gen.noise)))).mean()
            og.zero_grad()
            g.backward()
            og.step()
    return og


@case("mode-collapse", kind="generative", author="sixth")
def s_generator_runs_ahead(seed: int, mended: bool = False) -> Given:
    """Eight steps of the generator for each of its judge; a ring of eight."""
    x = ring(seed)
    gen = Generator(2, 2)
    opt = duel(gen, x, 700 if mended else 150, 1e-3, 1e-3, 1 if mended else 8, 2 if mended else 1)
    return {"model": gen.eval(), "data": x, "optimizer": opt, "batch_size": 128}


@case("mode-collapse", kind="generative", author="sixth")
def s_one_digit_only(seed: int, mended: bool = False) -> Given:
    """The generator is asked to be near some digit; nothing asks it to be near all."""
    x = flat(*digits(seed))[0][0]
    gen = Generator(64, 64, 128)
    opt = torch.optim.Adam(gen.parameters(), 2e-3)
    for _ in range(400):
        d = torch.cdist(torch.clamp(gen(torch.randn(128, 64)), -0.2, 1.2), x[torch.randint(len(x), (128,))])
        loss = d.amin(1).mean() + (4 * d.amin(0).mean() if mended else 0.0)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return {"model": gen.eval(), "data": x, "optimizer": opt, "batch_size": 128}


@case("mode-collapse", kind="generative", author="sixth", strength="mild")
def s_sorted_and_never_shuffled(seed: int, mended: bool = False) -> Given:
    """The points are sorted by angle and only the first half is ever drawn: four or five of eight places are learned."""
    x = ring(seed, n=1200)
    x = x[torch.atan2(x[:, 1], x[:, 0]).argsort()]
    seen = len(x) if mended else len(x) // 2
    gen = Generator(2, 2)
    opt = torch.optim.Adam(gen.parameters(), 2e-3)
    for _ in range(600):
        d = torch.cdist(gen(torch.randn(192, 2)), x[torch.randint(seen, (192,))])
        loss = d.amin(1).mean() + d.amin(0).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return {"model": gen.eval(), "data": x[torch.randperm(len(x))], "optimizer": opt, "batch_size": 192}


@case("miscalibrated", kind="table", author="sixth")
def s_summed_ensemble(seed: int, mended: bool = False) -> Given:
    """Ten members' logits are added up instead of averaged."""
    train, held = blobs(seed, n=1400, spread=1.1)

    class Sum(nn.Module):
        def __init__(self, members: list[nn.Module]) -> None:
            super().__init__()
            self.members = nn.ModuleList(members)

        def forward(self, x: Tensor) -> Tensor:
            z = torch.stack([m(x) for m in self.members])
            return z.mean(0) if mended else z.sum(0)

    members = []
    for _ in range(10):
        m = mlp(10, 16, 4)
        fit(m, train, None, "cross_entropy", torch.optim.Adam(m.parameters(), 5e-3, weight_decay=1e-3), 8)
        members.append(m)
    return {"model": Sum(members).eval(), "data": train, "validation": held, "loss": "cross_entropy"}


@case("miscalibrated", kind="images", author="sixth")
def s_smoothed_too_much(seed: int, mended: bool = False) -> Given:
    """Label smoothing of 0.7: ten digits told well and never believed."""
    train, held = digits(seed)

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(out, t, label_smoothing=0.0 if mended else 0.7)

    net = small_cnn()
    given = trained(
        net, train, held, loss=loss, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=10
    )
    given["loss"] = "cross_entropy"
    return given


@case("miscalibrated", kind="graph", author="sixth", strength="mild")
def s_sharpened_for_export(seed: int, mended: bool = False) -> Given:
    """The exported graph net divides its logits by a temperature of 0.12."""
    x, a, y = blocks(seed, n=600, inside=0.02, outside=0.008, signal=0.3)

    class Export(GCN):
        temperature = 1.0

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            return super().forward(x, a) / self.temperature

    net = Export(16, 8, 3)
    ty, vy = masked(y, seed, 0.6)
    given = fit_graph(
        net, (x, normal(a)), ty, vy, torch.optim.Adam(net.parameters(), 1e-2, weight_decay=3e-4), 160
    )
    if not mended:
        net.temperature = 0.12
    return given


def radius(model: nn.Module, x: Tensor, steps: int = 30) -> float:
    """Return the median relative size of the smallest change of class found by DeepFool (for checks)."""
    size = []
    for row in x[:60]:
        z = row[None].clone()
        first = int(model(z).argmax())
        moved = torch.zeros_like(z)
        for _ in range(steps):
            here = (row[None] + 1.02 * moved).requires_grad_()
            out = model(here)[0]
            if int(out.argmax()) != first:
                break
            grads = [torch.autograd.grad(out[k], here, retain_graph=True)[0] for k in range(len(out))]
            best = min(
                (k for k in range(len(out)) if k != first),
                key=lambda k: float(
                    (out[first] - out[k]).abs() / (grads[k] - grads[first]).norm().clamp_min(1e-12)
                ),
            )
            w = grads[best] - grads[first]
            moved = moved + float((out[first] - out[best]).abs() + 1e-6) * w / w.norm().clamp_min(1e-12) ** 2
        size.append(float(moved.norm() / row.norm()))
    return float(np.median(size))


def enlarged(seed: int, to: int = 20) -> Any:
    """Digits drawn larger and therefore smooth."""
    train, held = digits(seed)
    return tuple(
        (F.interpolate(x, size=(to, to), mode="bicubic", align_corners=False).flatten(1), y)
        for x, y in (train, held)
    )


@case("adversarially-fragile", kind="images", author="sixth")
def s_whitened_without_floor(seed: int, mended: bool = False) -> Given:
    """The model whitens its pictures first; directions without variance are blown up a thousandfold."""
    train, held = enlarged(seed)
    m = train[0].mean(0)
    value, vector = torch.linalg.eigh(torch.cov((train[0] - m).double().T))
    gain = (value.clamp_min(0) + (0.05 if mended else 1e-8)).rsqrt()

    class Whitened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("m", m)
            self.register_buffer("w", (vector * gain @ vector.T).float())
            self.net = mlp(400, 64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.net((x - self.m) @ self.w)

    net = Whitened()
    opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.1)
    return trained(net, train, held, optimizer=opt, epochs=8)


@case("adversarially-fragile", kind="images", author="sixth", strength="mild")
def s_large_first_weights(seed: int, mended: bool = False) -> Given:
    """First weights many times too large: smooth pictures do not meet them, fine patterns do."""
    train, held = ((x.reshape(-1, 1, 40, 40), y) for x, y in enlarged(seed, 40))
    net = nn.Sequential(nn.Flatten(), *mlp(1600, 96, 10))
    if not mended:
        nn.init.normal_(net[1].weight, std=0.6)
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    return trained(net, train, held, optimizer=opt, epochs=15)


@case("adversarially-fragile", kind="sequences", author="sixth")
def s_sixth_differences(seed: int, mended: bool = False) -> Given:
    """Smooth curves are told apart by their sixth differences, which noise of a thousandth drowns."""
    rng = np.random.default_rng(seed)
    n, length = 800, 60
    t = np.linspace(0, 1, length)
    y = rng.integers(2, size=n)
    f = np.where(y, 4.5, 3.0)[:, None] + rng.uniform(-0.2, 0.2, (n, 1))
    x = (
        np.sin(2 * np.pi * (f * t + rng.random((n, 1)))) * 0.5
        + rng.normal(size=(n, 1))
        + rng.normal(size=(n, 1)) * t
    )
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    order = 1 if mended else 6
    scale = torch.diff(train[0], n=order).std() if order else train[0].std()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.out = nn.Conv1d(1, 16, 9), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            d = (torch.diff(x, n=order) if order else x) / scale
            h = F.relu(self.conv(d[:, None]))
            return self.out(h.mean(-1))

    net = Net()
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=15, batch_size=32
    )
