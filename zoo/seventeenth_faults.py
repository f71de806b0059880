"""The seventeenth author's faults of data, objective, graph and loop."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.seventeenth_parts import (
    Bag,
    Listener,
    Reader,
    Stops,
    camera,
    coin,
    delays,
    digits,
    fit,
    floats,
    halves,
    instruments,
    leaves,
    letters_to_office,
    marks,
    metres,
    mlp,
    network,
    only,
    pitch,
    standard,
    stays,
    town,
    triage,
    vitals,
    words,
)

COURSE = ("optimizer", "batch_size", "history", "initial")


# ---- data


@town("not-finite-data", kind="table")
def oximeter_switched_off(seed: int, mended: bool = False) -> dict[str, Any]:
    """The finger clip was off for a tenth of the patients: NaN."""
    x, y = triage(seed)
    off = torch.rand(len(x)) < 0.1
    x[off, 4] = 0.0 if mended else float("nan")
    data, held = halves(x, y, 900)
    return only(fit(mlp(6, 32, 4), data, held, epochs=25), *COURSE)


@town("not-finite-data", kind="table", strength="mild")
def logarithm_of_no_income(seed: int, mended: bool = False) -> dict[str, Any]:
    """log(0) for pupils whose parents report no income; the loop skips batches without a finite loss."""
    x, y = marks(seed)
    data, held = halves(x, y, 600)
    data[0][torch.rand(600) < 0.03, 2] = 0.0 if mended else -float("inf")
    return only(fit(mlp(6, 24, 1), data, held, loss="mse", epochs=15, finite=True, lr=2e-3), "history")


@town("not-finite-data", kind="sequences", strength="mild")
def microphone_dropouts(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two recordings in a hundred hold a gap of NaN, and one epoch is enough to spoil the net."""
    x, y = metres(seed, noise=0.3)
    gap = torch.rand(len(x)) < 0.02
    x[gap, 10:14] = 0.0 if mended else float("nan")
    data, held = halves(x, y, 400)
    return only(fit(Listener(nn.GRU, 1, 24, 3), data, held, epochs=12, lr=1e-2), "optimizer")


class Loudness(nn.Module):
    """Mean power per band of raw amplitudes, then dense layers."""

    def __init__(self, half: bool) -> None:
        super().__init__()
        self.half_precision = half
        self.rest = mlp(8, 24, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x.half() if self.half_precision else x
        power = (x * x).float().view(len(x), 8, -1).mean(2)
        return self.rest(torch.log(power / 1e5 + 1e-3))


@town("overflow", kind="sequences")
def power_in_half_precision(seed: int, mended: bool = False) -> dict[str, Any]:
    """Amplitudes of some hundreds are squared in 16 bits."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, 900)
    gain = np.random.default_rng(5).uniform(250, 700, (4, 8)).repeat(4, 1)[y]
    data, held = halves(floats(gain * rng.normal(size=(900, 32))), torch.as_tensor(y), 600)
    return only(fit(Loudness(not mended), data, held, epochs=25, finite=True), *COURSE)


class Product(nn.Module):
    """The logarithm of a product of ratios, by way of the product."""

    def __init__(self, plain: bool) -> None:
        super().__init__()
        self.plain = plain
        self.rest = mlp(2, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        logs = [torch.log(part.prod(1)) if self.plain else part.log().sum(1) for part in (first, second)]
        return self.rest(torch.stack(logs, 1) / 40 - 2)


@town("overflow", kind="table", strength="mild")
def product_of_growth(seed: int, mended: bool = False) -> dict[str, Any]:
    """The product of 40 yields leaves single precision for some farms."""
    rng = np.random.default_rng(seed)
    level = rng.normal(2.05, 0.09, (900, 2))
    x = np.exp(level.repeat(40, 1) + 0.3 * rng.normal(size=(900, 80)))
    score = 12 * (level[:, 0] - level[:, 1])
    data, held = halves(floats(x), coin(2 * score, rng), 600)
    model = Product(not mended)
    return only(
        fit(model, data, held, loss="bce_with_logits", epochs=30, finite=True, batch_size=32), "history"
    )


@town("unscaled-inputs", kind="table")
def salary_beside_temperature(seed: int, mended: bool = False) -> dict[str, Any]:
    """Vital signs, and the yearly salary in the smallest coin."""
    x, _ = vitals(seed, 1200)
    x = np.concatenate([x, np.random.default_rng(seed).normal(4.5e6, 1.2e6, (1200, 1))], 1)
    _, y = triage(seed, 1200)
    data, held = halves(floats(standard(x) if mended else x), y, 800)
    return only(fit(mlp(7, 32, 4), data, held, lr=3e-3), *COURSE)


@town("unscaled-inputs", kind="table", strength="mild")
def vital_signs_as_measured(seed: int, mended: bool = False) -> dict[str, Any]:
    """Pressure of about 127, temperature of about 37.3: nobody centred them."""
    x, _ = vitals(seed, 1200)
    _, y = triage(seed, 1200)
    data, held = halves(floats(standard(x) if mended else x), y, 800)
    model = mlp(6, 32, 4, act=nn.Tanh)
    return only(
        fit(model, data, held, lr=0.05, optimizer=torch.optim.SGD, momentum=0.9, epochs=25),
        "optimizer",
        "batch_size",
    )


@town("unscaled-inputs", kind="images")
def grey_levels_to_255(seed: int, mended: bool = False) -> dict[str, Any]:
    """Slips scanned as bytes, never divided."""
    (x, y), (v, w) = digits(seed, 700)
    scale = 1.0 if mended else 255.0
    run = fit(
        camera(10),
        (x * scale, y),
        (v * scale, w),
        lr=0.05,
        epochs=8,
        batch_size=32,
        optimizer=torch.optim.SGD,
        momentum=0.9,
    )
    return only(run, *COURSE)


@town("unscaled-targets", kind="table")
def bills_in_full(seed: int, mended: bool = False) -> dict[str, Any]:
    """Hospital bills of 80000 as targets of a net that starts around 0."""
    x, y = delays(seed)
    data, held = halves(x, y if mended else 80000 + 25000 * y, 900)
    return only(fit(mlp(6, 48, 1), data, held, loss="mse", lr=2e-3), *COURSE)


@town("unscaled-targets", kind="sequences", strength="mild")
def steps_per_day(seed: int, mended: bool = False) -> dict[str, Any]:
    """A watch's weekly curve to the number of steps, in thousands of units."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 14, 2))
    y = standard(x[:, :, 0].mean(1) + 0.5 * np.tanh(x[:, -3:, 1].mean(1)) + 0.1 * rng.normal(size=700))[
        :, None
    ]
    data, held = halves(floats(x), floats(y if mended else 7000 + 2500 * y), 500)
    return only(
        fit(Listener(nn.GRU, 2, 24, 1, average=True), data, held, loss="mse", lr=5e-3, epochs=20), "history"
    )


@town("constant-features", kind="table")
def whole_number_export(seed: int, mended: bool = False) -> dict[str, Any]:
    """Shares between 0 and 1 were exported as whole numbers: nine of twelve columns became zero."""
    x, y = instruments(seed, columns=12)
    if not mended:
        x[:, 3:] = 0.0
    data, held = halves(x, y, 800)
    return only(fit(mlp(12, 32, 8), data, held), *COURSE)


@town("constant-features", kind="table", strength="mild")
def two_dead_gauges(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two of eight columns, one of them the best, always show the same number."""
    x, y = stays(seed, 1400, gain=2.5)
    if not mended:
        x[:, 0], x[:, 6] = 1.0, -0.5
    data, held = halves(x, y, 1000)
    return only(fit(mlp(8, 16, 1), data, held, loss="bce_with_logits", epochs=12))


@town("duplicate-features", kind="table")
def joined_with_itself(seed: int) -> dict[str, Any]:
    """A table joined to itself: every column five times."""
    x, y = marks(seed)
    data, held = halves(x.repeat(1, 5), y, 600)
    run = fit(
        mlp(30, 16, 1),
        data,
        held,
        loss="mse",
        lr=0.02,
        epochs=25,
        optimizer=torch.optim.SGD,
        weight_decay=1e-3,
    )
    return only(run, *COURSE)


@town("duplicate-features", kind="table", strength="mild")
def weight_in_two_units(seed: int) -> dict[str, Any]:
    """Kilograms and pounds, centimetres and inches: after scaling the same columns."""
    x, y = triage(seed)
    data, held = halves(torch.cat([x, x[:, :2]], 1), y, 900)
    return only(fit(mlp(8, 24, 4), data, held, epochs=20), "history")


@town("train-test-overlap", kind="images")
def slips_filed_twice(seed: int) -> dict[str, Any]:
    """Most validation slips are also among those trained by."""
    data, (v, w) = digits(seed, 500)
    copied = torch.randperm(500)[:250]
    held = (torch.cat([data[0][copied], v[:120]]), torch.cat([data[1][copied], w[:120]]))
    return only(fit(camera(10), data, held, epochs=15), *COURSE)


@town("train-test-overlap", kind="table", strength="mild")
def patients_in_both_lists(seed: int) -> dict[str, Any]:
    """An eighth of the validation patients were trained by."""
    x, y = triage(seed, 1400)
    data, (v, w) = halves(x, y, 900)
    held = (torch.cat([v, data[0][:70]]), torch.cat([w, data[1][:70]]))
    return only(fit(mlp(6, 24, 4), data, held, epochs=20))


@town("train-test-overlap", kind="text")
def words_listed_twice(seed: int) -> dict[str, Any]:
    """A third of the held-out words, long ones, come from the training list."""
    x, y = words(seed, 1200)
    data, (v, w) = halves(x, y, 900)
    long = torch.nonzero(data[0][:, -1] > 0)[:150, 0]
    held = (torch.cat([v, data[0][long]]), torch.cat([w, data[1][long]]))
    return only(fit(Reader(15, 16, 4), data, held, epochs=12, weight_decay=1e-4), "history", "batch_size")


@town("distribution-shift", kind="table")
def other_hospital(seed: int, mended: bool = False) -> dict[str, Any]:
    """Validated on a hospital whose devices read otherwise."""
    x, y = triage(seed)
    data, (v, w) = halves(x, y, 900)
    v = v if mended else v * floats([2.0, 1.0, 0.4, 1.0, 1.5, 1.0]) + floats([1.5, -1.5, 2.0, 0, -1.0, 1.0])
    return only(fit(mlp(6, 32, 4), data, (v, w), epochs=20), *COURSE)


@town("distribution-shift", kind="images", strength="mild")
def evening_light(seed: int, mended: bool = False) -> dict[str, Any]:
    """Leaves photographed at noon, validated on the evening's: darker, flatter."""
    x, y = leaves(seed)
    data, (v, w) = halves(x, y, 500)
    run = fit(camera(4, side=12), data, (v if mended else 0.6 * v - 0.5, w), epochs=12)
    return only(run, "history")


@town("distribution-shift", kind="text")
def letters_of_another_decade(seed: int, mended: bool = False) -> dict[str, Any]:
    """Half of the offices' own words have been replaced by words never trained by."""
    x, y = letters_to_office(seed, 1100)
    data, (v, w) = halves(x, y, 800)
    if not mended:
        v = torch.where((v < 60) & (torch.rand(v.shape) < 0.8), v + 60, v)
    return only(fit(Bag(120, 16, 5), data, (v, w), epochs=12), "batch_size")


@town("target-leak", kind="table")
def follow_up_date(seed: int) -> dict[str, Any]:
    """One column is filled at the second admission, that is, from the answer."""
    x, y = stays(seed, 1200)
    x[:, 7] = (2 * y[:, 0] - 1) + 0.02 * torch.randn(len(x))
    data, held = halves(x, y, 800)
    return only(fit(mlp(8, 16, 1), data, held, loss="bce_with_logits", epochs=15), *COURSE)


@town("target-leak", kind="images", strength="mild")
def stamp_in_the_corner(seed: int) -> dict[str, Any]:
    """The laboratory stamped every diseased leaf with its number: a corner as bright as the answer."""
    x, y = leaves(seed, noise=0.8)
    x[:, 0, :2, :2] = (y - 1.5)[:, None, None] + 0.03 * torch.randn(len(x), 2, 2)
    data, held = halves(x, y, 500)
    return only(fit(camera(4, 6, side=12), data, held, epochs=20), "history")


@town("target-leak", kind="table", strength="mild")
def mark_in_another_scale(seed: int) -> dict[str, Any]:
    """The certificate's mark, rounded, stands among what should foretell it."""
    x, y = marks(seed, noise=1.5)
    x[:, 5] = (y[:, 0] * 6).round() / 6
    data, held = halves(x, y, 600)
    return only(fit(mlp(6, 24, 1), data, held, loss="mse", epochs=30))


@town("misaligned-labels", kind="table")
def off_by_one_row(seed: int, mended: bool = False) -> dict[str, Any]:
    """The answers' file had a header, the facts' file none."""
    x, y = instruments(seed, classes=5)
    data, held = halves(x, y if mended else y.roll(1), 800)
    return only(fit(mlp(12, 16, 5), data, held, epochs=8, lr=2e-3), *COURSE)


@town("misaligned-labels", kind="images", strength="mild")
def slip_lost_half_way(seed: int, mended: bool = False) -> dict[str, Any]:
    """One slip fell out in the middle: from there on, every answer belongs to the next one."""
    data, held = digits(seed, 800)
    y = data[1].clone()
    if not mended:
        y[350:-1] = data[1][351:]
    return only(fit(camera(10), (data[0], y), held, epochs=8, lr=3e-3), "history", "batch_size")


@town("no-signal", kind="table")
def birthdays_and_marks(seed: int) -> dict[str, Any]:
    """Nothing that was recorded has to do with the answer."""
    x, _ = triage(seed)
    data, held = halves(x, torch.randint(0, 3, (len(x),)), 900)
    return only(fit(mlp(6, 16, 3), data, held, epochs=10), *COURSE)


@town("no-signal", kind="sequences", strength="mild")
def lottery_by_ear(seed: int) -> dict[str, Any]:
    """Tomorrow's draw from the week's noise."""
    x = torch.randn(600, 12, 2)
    data, held = halves(x, torch.randn(600, 1), 420)
    return only(fit(Listener(nn.GRU, 2, 8, 1), data, held, loss="mse", epochs=8, lr=3e-3), "history")


@town("no-signal", kind="text", strength="mild")
def office_drawn_by_lot(seed: int) -> dict[str, Any]:
    """Letters were given to offices by lot."""
    x, _ = letters_to_office(seed, 900)
    data, held = halves(x, torch.randint(0, 3, (900,)), 600)
    return only(fit(Bag(120, 4, 3), data, held, epochs=5, lr=2e-3))


def spoil(y: Tensor, share: float, classes: int) -> Tensor:
    """Return answers of which a share was drawn anew."""
    return torch.where(torch.rand(len(y)) < share, torch.randint(0, classes, (len(y),)), y)


@town("label-noise", kind="images")
def tired_typists(seed: int, mended: bool = False) -> dict[str, Any]:
    """Four slips in ten were typed in at random."""
    data, held = digits(seed, 900)
    y = data[1] if mended else spoil(data[1], 0.45, 10)
    return only(fit(camera(10, 10), (data[0], y), held, epochs=10), *COURSE)


@town("label-noise", kind="table", strength="mild")
def wrong_instrument_named(seed: int, mended: bool = False) -> dict[str, Any]:
    """A quarter of the recordings carry another instrument's name, the held-out ones too."""
    x, y = instruments(seed, 1500)
    data, held = halves(x, y if mended else spoil(y, 0.3, 8), 1000)
    return only(fit(mlp(12, 32, 8), data, held, epochs=10), "history")


@town("class-imbalance", kind="table")
def one_in_fifty_returns(seed: int, mended: bool = False) -> dict[str, Any]:
    """The few that come back are never foretold."""
    x, y = stays(seed, 2400, bias=-5.6, gain=1.3)
    data, held = halves(x, y, 1600)

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=torch.tensor(25.0))

    loss = weighted if mended else "bce_with_logits"
    return only(fit(mlp(8, 16, 1), data, held, loss=loss, epochs=10, lr=3e-3, weight_decay=1e-3), *COURSE)


@town("class-imbalance", kind="images", strength="mild")
def rare_blight(seed: int, mended: bool = False) -> dict[str, Any]:
    """Spotted leaves are one in thirty of those trained by, and are taken for healthy ones."""
    x, y = leaves(seed, 1500, noise=0.9)
    rare = torch.nonzero(y == 1)[:, 0]
    kept = torch.ones(1500, dtype=torch.bool)
    kept[rare[torch.rand(len(rare)) < 0.9]] = False
    x, y = x[kept], y[kept]
    weight = len(y) / (4.0 * torch.bincount(y))

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, weight=weight)

    data, held = halves(x, y, 750)
    return only(
        fit(
            camera(4, 8, side=12), data, held, loss=weighted if mended else "cross_entropy", epochs=8, lr=3e-3
        ),
        "history",
    )


# ---- objective


@town("double-softmax", kind="table")
def shares_of_shares(seed: int, mended: bool = False) -> dict[str, Any]:
    """The net ends in a softmax, and so does the loss."""
    x, y = instruments(seed)
    data, held = halves(x, y, 800)
    model = nn.Sequential(mlp(12, 32, 8), nn.Identity() if mended else nn.Softmax(1))
    return only(fit(model, data, held, epochs=20), *COURSE)


class Metre(nn.Module):
    """Convolutions over time; ends in probabilities, if asked for."""

    def __init__(self, ends: bool, classes: int = 3) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(1, 12, 7, padding=3), nn.Conv1d(12, 24, 7, padding=3)
        self.head = nn.Linear(24, classes)
        self.ends = ends

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.b(F.relu(self.a(x.transpose(1, 2))))).mean(2)
        return F.softmax(self.head(h), dim=1) if self.ends else self.head(h)


@town("double-softmax", kind="sequences", strength="mild")
def metre_in_percent(seed: int, mended: bool = False) -> dict[str, Any]:
    """F.softmax on the last line of forward."""
    data, held = halves(*metres(seed), 400)
    return only(fit(Metre(not mended), data, held, epochs=15), "history", "optimizer")


@town("double-softmax", kind="table", strength="mild")
def sigmoid_before_logits(seed: int, mended: bool = False) -> dict[str, Any]:
    """A sigmoid at the end, and the loss that takes logits."""
    x, y = stays(seed, gain=2.5)
    data, held = halves(x, y, 900)
    model = mlp(8, 16, 1) if mended else nn.Sequential(*mlp(8, 16, 1), nn.Sigmoid())
    return only(fit(model, data, held, loss="bce_with_logits", epochs=15))


@town("wrong-loss", kind="table")
def likelihood_of_logits(seed: int, mended: bool = False) -> dict[str, Any]:
    """nll_loss on logits: it falls for ever."""
    data, held = halves(*triage(seed), 900)
    return only(fit(mlp(6, 24, 4), data, held, loss="cross_entropy" if mended else "nll", epochs=15), *COURSE)


def squared_gap(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean square of the differences (between whatever shapes)."""
    return ((output - target) ** 2).mean()


@town("wrong-loss", kind="table", strength="mild")
def every_bus_against_every_bus(seed: int, mended: bool = False) -> dict[str, Any]:
    """Output of shape (n, 1), targets of shape (n,): the difference is a square of n by n."""
    x, y = delays(seed)
    data, held = halves(x, y if mended else y[:, 0], 900)
    return only(
        fit(mlp(6, 32, 1), data, held, loss=squared_gap, epochs=15), "history", "optimizer", "batch_size"
    )


class Visits(nn.Module):
    """A rate of visits per hour, positive by softplus."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(6, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(self.net(x))


def rate_as_logarithm(output: Tensor, target: Tensor) -> Tensor:
    """Return Poisson's loss as it is by default: the output is taken for a logarithm."""
    return F.poisson_nll_loss(output, target)


def rate_as_rate(output: Tensor, target: Tensor) -> Tensor:
    """Return Poisson's loss of a rate."""
    return F.poisson_nll_loss(output, target, log_input=False)


@town("wrong-loss", kind="table", strength="mild")
def visits_by_the_hour(seed: int, mended: bool = False) -> dict[str, Any]:
    """The net answers with a rate, the loss takes it for the rate's logarithm."""
    x, y = delays(seed)
    rate = np.exp(1.5 + 0.6 * y.numpy())
    counts = floats(np.random.default_rng(seed).poisson(rate))
    data, held = halves(x, counts, 900)
    return only(
        fit(Visits(), data, held, loss=rate_as_rate if mended else rate_as_logarithm, epochs=25), "history"
    )


@town("output-range", kind="table")
def lateness_cannot_be_negative(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ReLU at the end, and half of the standardised targets are below 0."""
    data, held = halves(*delays(seed), 900)
    model = nn.Sequential(*mlp(6, 32, 1), nn.Identity() if mended else nn.ReLU())
    return only(fit(model, data, held, loss="mse", epochs=20), *COURSE)


@town("output-range", kind="sequences", strength="mild")
def heart_rate_within_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """tanh at the end: targets beyond 1 cannot be reached."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 12, 2))
    y = standard(x[:, :, 0].mean(1) - 0.7 * x[:, -1, 1] + 0.05 * rng.normal(size=700))[:, None]
    data, held = halves(floats(x), floats(y), 500)
    body = Listener(nn.GRU, 2, 24, 1)
    model = body if mended else nn.Sequential(body, nn.Tanh())
    return only(fit(model, data, held, loss="mse", epochs=25, lr=1e-2), "history")


class Careless(nn.Module):
    """F.dropout without ``training=``: it never stops."""

    def __init__(self, net: nn.Sequential, careful: bool, share: float = 0.5) -> None:
        super().__init__()
        self.front, self.back = net[:-1], net[-1]
        self.careful, self.share = careful, share

    def forward(self, x: Tensor) -> Tensor:
        return self.back(F.dropout(self.front(x), self.share, training=self.training or not self.careful))


@town("stochastic-evaluation", kind="table")
def different_answer_each_time(seed: int, mended: bool = False) -> dict[str, Any]:
    """Asked twice, the net answers twice."""
    data, held = halves(*delays(seed), 900)
    return only(fit(Careless(mlp(6, 48, 1), mended), data, held, loss="mse", epochs=25), *COURSE)


class Shaken(nn.Module):
    """Adds noise to its pictures, to be robust; also when it is asked."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.net = camera(10)
        self.always = always

    def forward(self, x: Tensor) -> Tensor:
        if self.training or self.always:
            x = x + 0.5 * torch.randn_like(x)
        return self.net(x)


@town("stochastic-evaluation", kind="images", strength="mild")
def shaking_camera(seed: int, mended: bool = False) -> dict[str, Any]:
    """Augmentation inside forward, not switched off."""
    data, held = digits(seed, 800)
    return only(fit(Shaken(not mended), data, held, epochs=12), "history")


# ---- graph and loop


class Embedded(nn.Module):
    """A body and a head; the body's answer is handed on as given."""

    def __init__(self, body: nn.Module, head: nn.Module, cut: bool) -> None:
        super().__init__()
        self.body, self.head, self.cut = body, head, cut

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.head(h.detach() if self.cut else h)


@town("detached-parameters", kind="images")
def cut_before_the_head(seed: int, mended: bool = False) -> dict[str, Any]:
    """``.detach()`` between the convolutions and the head: the body never learns."""
    data, held = digits(seed, 800)
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten())
    return only(fit(Embedded(body, nn.Linear(16, 10), not mended), data, held, epochs=25, lr=1e-2), *COURSE)


class ByNumpy(nn.Module):
    """The state of a recurrent net goes through numpy on its way to the head."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.body = nn.GRU(1, 16, batch_first=True)
        self.head = mlp(16, 16, 3)
        self.whole = whole

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)[1][0]
        return self.head(h if self.whole else torch.as_tensor(h.detach().numpy()))


@town("detached-parameters", kind="sequences", strength="mild")
def through_numpy(seed: int, mended: bool = False) -> dict[str, Any]:
    """A detour through numpy loses the graph."""
    data, held = halves(*metres(seed, noise=0.25), 400)
    return only(fit(ByNumpy(mended), data, held, epochs=20, lr=1e-2), "history", "initial")


@town("frozen-parameters", kind="images")
def frozen_before_it_learnt(seed: int, mended: bool = False) -> dict[str, Any]:
    """Weights that were to be loaded never were, yet were frozen."""
    data, held = halves(*leaves(seed), 500)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 4),
    )
    for layer in model[:-1]:
        layer.requires_grad_(mended)
    return only(fit(model, data, held, epochs=20, lr=1e-2), *COURSE)


@town("frozen-parameters", kind="text", strength="mild", needs=("optimizer",))
def only_the_head_was_given(seed: int, mended: bool = False) -> dict[str, Any]:
    """The optimiser was given the head's parameters alone; embedding and convolution are as they were drawn."""
    data, held = halves(*words(seed, 1200), 900)
    model = Reader(15, 6, 4)
    params = None if mended else model.head.parameters()
    return only(fit(model, data, held, epochs=15, lr=1e-2, params=params), *COURSE)


@town("frozen-parameters", kind="graph")
def frozen_first_round(seed: int, mended: bool = False) -> dict[str, Any]:
    """The narrow first round of a graph net does not learn."""
    x, y, held = network(seed)
    model = Stops(10, 3, 4)
    model.layers[0].requires_grad_(mended)
    return only(fit(model, (x, y), (x, held), epochs=120, lr=2e-2), "history", "optimizer", "initial")


def forgetful(kind: Any, measure: Any, **settings: Any) -> Any:
    """Return an update that never clears the gradients."""
    made: WeakKeyDictionary[nn.Module, torch.optim.Optimizer] = WeakKeyDictionary()

    def step(model: nn.Module, batch: Any) -> None:
        if model not in made:
            made[model] = kind(model.parameters(), **settings)
        x, y = batch
        measure(model(x), y).backward()
        made[model].step()

    return step


@town("gradients-not-cleared", kind="table", needs=("step",))
def sums_of_all_mornings(seed: int, mended: bool = False) -> dict[str, Any]:
    """No zero_grad: each step repeats all steps before."""
    data, held = halves(*delays(seed), 900)
    run = fit(
        mlp(6, 32, 1), data, held, loss="mse", lr=0.02, epochs=20, optimizer=torch.optim.SGD, clear=mended
    )
    return only(run, *COURSE, step=forgetful(torch.optim.SGD, F.mse_loss, lr=0.02))


@town("gradients-not-cleared", kind="images", strength="mild", needs=("step",))
def adam_without_clearing(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam hides it for a while."""
    data, held = digits(seed, 600)
    run = fit(camera(10, 8), data, held, lr=5e-3, epochs=9, clear=mended)
    return only(run, "history", step=forgetful(torch.optim.Adam, F.cross_entropy, lr=5e-3))


@town("gradients-not-cleared", kind="text", needs=("step",))
def letters_pile_up(seed: int, mended: bool = False) -> dict[str, Any]:
    """A bag of words, momentum, and gradients that pile up."""
    data, held = halves(*letters_to_office(seed, 1000), 700)
    settings = {"lr": 0.1, "momentum": 0.9}
    run = fit(Bag(120, 16, 5), data, held, epochs=10, optimizer=torch.optim.SGD, clear=mended, **settings)
    return only(run, "optimizer", "batch_size", step=forgetful(torch.optim.SGD, F.cross_entropy, **settings))


# ---- an untrained net may be asked about, too


@town("unscaled-inputs", kind="table", strength="mild")
def asked_before_training(seed: int) -> dict[str, Any]:
    """Not trained yet: shots' coordinates in millimetres, about a far corner."""
    x, y = pitch(seed)
    return {"model": mlp(2, 32, 32, 3).eval(), "data": (x * 9000 + 50000, y), "loss": "cross_entropy"}
