"""The seventeenth author's healthy set-ups, many of which look odd and are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from zoo.seventeenth_parts import (
    Bag,
    Draws,
    Listener,
    Rows,
    Stops,
    Vae,
    bins,
    camera,
    circles,
    coin,
    delays,
    digits,
    energy_distance,
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
    panels,
    pitch,
    standard,
    stays,
    town,
    train_vae,
    triage,
    tunes,
    vitals,
    wards,
    words,
)

COURSE = ("optimizer", "batch_size", "history", "initial")


def bundled(load: Any, seed: int, first: int, scaled: bool = True) -> Rows:
    """Return one of scikit-learn's tables, shuffled, its columns and any measured answer standardised."""
    x, y = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    x = floats(standard(x)[order] if scaled else x[order])
    y = torch.as_tensor(y[order]) if y.dtype.kind == "i" else floats(standard(y)[order])[:, None]
    return halves(x, y, first)


# ---- tables


@town(kind="images")
def body_kept_head_renewed(seed: int) -> dict[str, Any]:
    """A body trained on one library's slips is frozen on purpose; only the head learns the other's."""
    (x, y), held = digits(seed, 1100)
    old = fit(camera(10), (x[:600], y[:600]), epochs=20, weight_decay=1e-4)["model"]
    model = nn.Sequential(*old[:-1], nn.Linear(96, 10))
    for layer in model[:-1]:
        layer.requires_grad_(False)
    return only(
        fit(model, (x[600:], y[600:]), held, epochs=40, params=model[-1].parameters(), weight_decay=1e-4),
        *COURSE,
    )


@town(kind="table")
def five_questions(seed: int) -> dict[str, Any]:
    """A questionnaire of five yes-or-no questions: rows repeat, and answers to the same row differ."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (1400, 5))
    data, held = halves(
        floats(x), coin(1.5 * x[:, 0] - 1.2 * x[:, 1] + 2 * x[:, 2] * x[:, 3] - 0.8, rng), 1000
    )
    return only(fit(mlp(5, 8, 1), data, held, loss="bce_with_logits", epochs=15), *COURSE)


@town(kind="table")
def home_draw_away(seed: int) -> dict[str, Any]:
    """The outcome of matches: half of it is luck, and that is all one can know."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2400, 4))
    y = bins(0.7 * x[:, 0] - 0.5 * x[:, 1] + 0.3 * x[:, 2] + rng.logistic(size=2400), 3)
    data, held = halves(floats(x), y, 1700)
    return only(fit(mlp(4, 12, 3), data, held, epochs=10, lr=3e-3), *COURSE)


@town(kind="table")
def waiting_times_have_tails(seed: int) -> dict[str, Any]:
    """Columns with Student's tails of three degrees, Huber's loss."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, (1600, 5))
    y = (x[:, 0] - 0.6 * x[:, 1] + 0.3 * x[:, 2]) / 2 + 0.25 * rng.standard_t(3, 1600)
    data, held = halves(floats(x), floats(y)[:, None], 1100)
    return only(
        fit(mlp(5, 16, 1), data, held, loss=F.huber_loss, epochs=20, lr=3e-3, weight_decay=1e-4), "history"
    )


@town(kind="table")
def fast_and_right(seed: int) -> dict[str, Any]:
    """SGD at 0.1 with momentum 0.9: fast, and arrives."""
    data, held = halves(*instruments(seed, 2900, spread=1.5), 2200)
    settings = {"momentum": 0.9, "cosine": True, "weight_decay": 4e-3}
    return only(
        fit(mlp(12, 16, 8), data, held, lr=0.1, epochs=8, optimizer=torch.optim.SGD, **settings), *COURSE
    )


@town(kind="table")
def rare_returns_weighed(seed: int) -> dict[str, Any]:
    """One in fifteen comes back; the loss weighs them, and they are found."""
    x, y = stays(seed, 3000, bias=-4.6, gain=1.3)
    weight = float((1 - y).sum() / y.sum())

    def weighed(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=torch.tensor(weight))

    data, held = halves(x, y, 2200)
    return only(fit(mlp(8, 12, 1), data, held, loss=weighed, epochs=12, lr=3e-3, weight_decay=3e-3), *COURSE)


@town(kind="images")
def slips_before_training(seed: int) -> dict[str, Any]:
    """A convolutional net at torch's usual start, asked about before it is trained."""
    data, held = digits(seed, 800)
    model = camera(10, norm=True)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    return {
        "model": model.eval(),
        "data": data,
        "validation": held,
        "loss": "cross_entropy",
        "optimizer": opt,
        "batch_size": 64,
    }


@town(kind="table")
def not_trained_either(seed: int) -> dict[str, Any]:
    """A small net for bus delays at its usual start."""
    data, held = halves(*delays(seed), 1000)
    return {"model": mlp(6, 48, 48, 1).eval(), "data": data, "validation": held, "loss": "mse"}


@town(kind="table")
def stopped_in_time(seed: int) -> dict[str, Any]:
    """A wide net on few rows that went back to its best epoch."""
    data, held = halves(*stays(seed, 2600, gain=1.2), 1800)
    run = fit(
        mlp(8, 32, 1), data, held, loss="bce_with_logits", lr=2e-3, epochs=20, best=True, weight_decay=3e-3
    )
    return only(run, "optimizer", "batch_size", "initial")


def pinball(output: Tensor, target: Tensor) -> Tensor:
    """Return the loss whose best answer is the quantile of 0.8."""
    gap = target - output
    return torch.maximum(0.8 * gap, -0.2 * gap).mean()


@town(kind="table")
def late_four_days_in_five(seed: int) -> dict[str, Any]:
    """The delay that is not exceeded in four runs of five."""
    data, held = halves(*delays(seed, 1800), 1300)
    return only(
        fit(mlp(6, 32, 1), data, held, loss=pinball, epochs=25, weight_decay=1e-4), "history", "optimizer"
    )


@town(kind="table")
def typing_errors_in_the_marks(seed: int) -> dict[str, Any]:
    """One mark in fifty is far off; smooth L1 does not mind."""
    x, y = marks(seed, 1500)
    wrong = torch.rand(len(y)) < 0.02
    y[wrong] += 4 * torch.randn(int(wrong.sum()), 1)
    data, held = halves(x, y, 1000)
    return only(fit(mlp(6, 8, 1), data, held, loss=F.smooth_l1_loss, epochs=25, weight_decay=1e-4), *COURSE)


def poisson(output: Tensor, target: Tensor) -> Tensor:
    """Return Poisson's loss of a logarithmic rate."""
    return F.poisson_nll_loss(output, target, log_input=True)


@town(kind="table")
def loans_per_day(seed: int) -> dict[str, Any]:
    """Counts of loans; the net answers with the rate's logarithm."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1800, 4))
    counts = rng.poisson(np.exp(1.0 + 0.4 * x[:, 0] - 0.3 * x[:, 1] + 0.2 * x[:, 2] * x[:, 3]))
    data, held = halves(floats(x), floats(counts)[:, None], 1300)
    return only(
        fit(mlp(4, 16, 1), data, held, loss=poisson, epochs=20, lr=3e-3, weight_decay=1e-3),
        "history",
        "batch_size",
    )


@town(kind="table")
def bills_by_logarithm(seed: int) -> dict[str, Any]:
    """Bills over three powers of ten, as standardised logarithms."""
    x, y = delays(seed, 1600)
    bills = torch.exp(8 + 1.3 * y)
    logs = floats(standard(bills.log().numpy()))
    data, held = halves(x, logs, 1100)
    return only(
        fit(mlp(6, 32, 1), data, held, loss="mse", epochs=25, weight_decay=1e-4, cosine=True), *COURSE
    )


@town(kind="table")
def half_dropped(seed: int) -> dict[str, Any]:
    """Dropout of 0.5 on a wide layer."""
    data, held = halves(*instruments(seed, 1800, spread=1.5), 1300)
    return only(fit(mlp(12, 128, 8, drop=0.5), data, held, epochs=12, lr=3e-3), *COURSE)


@town(kind="table")
def bounded_slopes(seed: int) -> dict[str, Any]:
    """Spectral normalisation on the hidden layers."""
    data, held = halves(*delays(seed, 1600), 1100)
    model = nn.Sequential(
        spectral_norm(nn.Linear(6, 48)),
        nn.ReLU(),
        spectral_norm(nn.Linear(48, 48)),
        nn.ReLU(),
        nn.Linear(48, 1),
    )
    return only(fit(model, data, held, loss="mse", epochs=30, lr=5e-3, weight_decay=1e-4), "history")


class Shortcut(nn.Module):
    """x + f(norm(x))."""

    def __init__(self, width: int, drop: float = 0.0) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(drop), nn.Linear(width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


@town(kind="table")
def twelve_shortcuts(seed: int) -> dict[str, Any]:
    """Twelve residual blocks for a table."""
    data, held = halves(*delays(seed, 1800), 1300)
    model = nn.Sequential(
        nn.Linear(6, 16), *(Shortcut(16, 0.1) for _ in range(12)), nn.LayerNorm(16), nn.Linear(16, 1)
    )
    run = fit(
        model,
        data,
        held,
        loss="mse",
        lr=2e-3,
        epochs=12,
        cosine=True,
        optimizer=torch.optim.AdamW,
        weight_decay=1e-2,
    )
    return only(run, *COURSE)


@town(kind="table")
def cosine_to_nothing(seed: int) -> dict[str, Any]:
    """The schedule ended at a rate of 0; the optimiser still says so."""
    data, held = halves(*triage(seed, 2400, noise=0.6), 1800)
    return only(fit(mlp(6, 16, 4), data, held, lr=1e-2, epochs=15, cosine=True, weight_decay=3e-4), *COURSE)


@town(kind="table")
def ninety_irises(seed: int) -> dict[str, Any]:
    """Ninety flowers and a linear model."""
    data, held = bundled(load_iris, seed, 90)
    return only(
        fit(nn.Linear(4, 3), data, held, lr=1e-1, epochs=120, batch_size=16, weight_decay=1e-3),
        "history",
        "optimizer",
    )


@town(kind="table")
def wines_of_three_farms(seed: int) -> dict[str, Any]:
    """118 wines, one small hidden layer, much decay."""
    data, held = bundled(load_wine, seed, 118)
    run = fit(mlp(13, 8, 3), data, held, lr=1e-2, epochs=25, batch_size=16, weight_decay=1e-2)
    return only(run, "history", "batch_size")


@town(kind="table")
def cells_by_logistic_regression(seed: int) -> dict[str, Any]:
    """Breast cancer by logistic regression: its columns are strongly correlated, as they are."""
    data, held = bundled(load_breast_cancer, seed, 400)
    data, held = (data[0], data[1].float()[:, None]), (held[0], held[1].float()[:, None])
    run = fit(nn.Linear(30, 1), data, held, loss="bce_with_logits", lr=1e-2, epochs=40, weight_decay=1e-2)
    return only(run, *COURSE)


@town(kind="table")
def diabetes_after_a_year(seed: int) -> dict[str, Any]:
    """Half of the variance cannot be foretold by anybody."""
    data, held = bundled(load_diabetes, seed, 320)
    run = fit(
        mlp(10, 6, 1), data, held, loss="mse", lr=5e-3, epochs=14, batch_size=32, weight_decay=3e-2, best=True
    )
    return only(run, "history", "batch_size")


class Ladder(nn.Module):
    """One score and ordered thresholds: logits of 'above the k-th level'."""

    def __init__(self, inputs: int, levels: int) -> None:
        super().__init__()
        self.score = mlp(inputs, 16, 1)
        self.first, self.gaps = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.zeros(levels - 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.score(x) + self.first - torch.cat([torch.zeros(1), F.softplus(self.gaps).cumsum(0)])


@town(kind="table")
def urgency_is_ordered(seed: int) -> dict[str, Any]:
    """Ordinal levels of urgency as 'above 1, above 2, above 3'."""
    x, y = triage(seed, 2200, noise=0.6)
    steps = (y[:, None] > torch.arange(3)).float()
    data, held = halves(x, steps, 1700)
    run = fit(Ladder(6, 4), data, held, loss="bce_with_logits", epochs=20, lr=1e-2, weight_decay=5e-4)
    return only(run, "history", "optimizer")


@town(kind="table")
def several_diagnoses(seed: int) -> dict[str, Any]:
    """Five diagnoses, each there or not."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1900, 10))
    way = np.random.default_rng(3).normal(size=(10, 5))
    y = rng.random((1900, 5)) < 1 / (1 + np.exp(-1.2 * x @ way))
    data, held = halves(floats(x), floats(y), 1400)
    return only(
        fit(mlp(10, 24, 5), data, held, loss="bce_with_logits", epochs=15, lr=3e-3, weight_decay=1e-3),
        *COURSE,
    )


@town(kind="table")
def twenty_birds_few_songs(seed: int) -> dict[str, Any]:
    """Twenty kinds and some thirty songs of each."""
    data, held = halves(*instruments(seed, 1000, classes=20, columns=16, spread=1.2), 640)
    return only(fit(mlp(16, 48, 20), data, held, epochs=15, weight_decay=1e-3), "history", "initial")


class ByHospital(nn.Module):
    """A vector per hospital beside the facts."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Embedding(60, 4)
        nn.init.normal_(self.place.weight, std=0.1)
        self.rest = mlp(10, 24, 1)

    def forward(self, facts: Tensor, place: Tensor) -> Tensor:
        return self.rest(torch.cat([facts, self.place(place)], 1))


@town(kind="table")
def hospitals_seen_once(seed: int) -> dict[str, Any]:
    """Sixty hospitals, many of which sent few patients: rare ids in an embedding."""
    rng = np.random.default_rng(seed)
    place = (rng.zipf(1.3, 1900) - 1) % 60
    x = rng.normal(size=(1900, 6))
    lift = np.random.default_rng(4).normal(size=60)
    y = standard(
        x[:, 0] - 0.5 * x[:, 1] + 0.5 * np.abs(x[:, 2]) + 0.7 * lift[place] + 0.4 * rng.normal(size=1900)
    )
    data, held = halves((floats(x), torch.as_tensor(place)), floats(y)[:, None], 1400)
    return only(fit(ByHospital(), data, held, loss="mse", epochs=15, weight_decay=3e-4), *COURSE)


@town(kind="table")
def line_as_one_hot(seed: int) -> dict[str, Any]:
    """Bus lines as 15 columns of zeros and ones, some of which are almost always zero."""
    rng = np.random.default_rng(seed)
    line = (rng.zipf(1.5, 1800) - 1) % 15
    x = np.concatenate([rng.normal(size=(1800, 4)), np.eye(15)[line]], 1)
    y = x[:, 0] + 0.6 * x[:, 1] * x[:, 2] + np.linspace(-1, 1, 15)[line] + 0.4 * rng.normal(size=1800)
    data, held = halves(floats(x), floats(standard(y))[:, None], 1300)
    return only(
        fit(mlp(19, 24, 1), data, held, loss="mse", epochs=18, weight_decay=6e-4), "history", "batch_size"
    )


class Readings(nn.Module):
    """Takes vital signs as measured, and knows their means and deviations."""

    def __init__(self, x: Tensor, net: nn.Module) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("deviation", x.std(0))
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net((x - self.mean) / self.deviation)


@town(kind="table")
def scaled_inside(seed: int) -> dict[str, Any]:
    """Raw vital signs, standardised by the model itself."""
    x, _ = vitals(seed, 2200)
    _, y = triage(seed, 2200, noise=0.35)
    data, held = halves(floats(x), y, 1700)
    model = Readings(data[0], mlp(6, 16, 4))
    return only(fit(model, data, held, epochs=20, weight_decay=3e-4), *COURSE)


class InMinutes(nn.Module):
    """Answers in minutes: the net's answer is scaled back."""

    def __init__(self, net: nn.Module, mean: float, deviation: float) -> None:
        super().__init__()
        self.net, self.mean, self.deviation = net, mean, deviation

    def forward(self, x: Tensor) -> Tensor:
        return self.mean + self.deviation * self.net(x)


@town(kind="table")
def minutes_scaled_back(seed: int) -> dict[str, Any]:
    """Targets of about 12 minutes, give or take 6, which the last line of the model knows of."""
    x, y = delays(seed, 1700)
    data, held = halves(x, 12 + 6 * y, 1200)
    return only(
        fit(InMinutes(mlp(6, 32, 1), 12.0, 6.0), data, held, loss="mse", epochs=25, weight_decay=1e-4),
        "history",
    )


@town(kind="table")
def share_of_seats(seed: int) -> dict[str, Any]:
    """The share of seats taken, between 0 and 1, by a sigmoid."""
    x, y = delays(seed, 1700)
    data, held = halves(x, torch.sigmoid(1.2 * y - 0.3), 1200)
    model = nn.Sequential(*mlp(6, 32, 1), nn.Sigmoid())
    return only(fit(model, data, held, loss="mse", epochs=25), *COURSE)


class Waves(nn.Module):
    """Fixed random waves (a buffer, meant to stay) and a linear layer on them."""

    def __init__(self, inputs: int, waves: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("frequency", 1.6 * torch.randn(inputs, waves))
        self.register_buffer("phase", 6.28 * torch.rand(waves))
        self.head = nn.Linear(waves, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cos(x @ self.frequency + self.phase))


@town(kind="table")
def random_waves_kept(seed: int) -> dict[str, Any]:
    """Random Fourier features on spirals: only the head is meant to learn."""
    data, held = halves(*pitch(seed, 1500, noise=0.12), 1100)
    return only(
        fit(Waves(2, 100, 3), data, held, lr=1e-2, epochs=30, weight_decay=1e-4), "history", "optimizer"
    )


@town(kind="table")
def slow_but_there(seed: int) -> dict[str, Any]:
    """Plain SGD at 0.02 with small batches, long enough."""
    data, held = halves(*marks(seed, 1300), 900)
    run = fit(
        nn.Linear(6, 1), data, held, loss="mse", lr=0.02, epochs=20, batch_size=16, optimizer=torch.optim.SGD
    )
    return only(run, *COURSE)


class Twins(nn.Module):
    """Both recordings through one net; the distance decides."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(12, 32, 8)
        self.scale, self.offset = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(2.0))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.offset - self.scale * (self.net(a) - self.net(b)).pow(2).sum(1, keepdim=True)).clamp(
            -8, 8
        )


@town(kind="table")
def same_instrument_or_not(seed: int) -> dict[str, Any]:
    """Shared weights, two inputs, one question."""
    rng = np.random.default_rng(seed)
    x, y = instruments(seed, 3600, classes=6, spread=1.0)
    a, b = torch.arange(1800), torch.arange(1800, 3600)
    like = torch.as_tensor(rng.random(1800) < 0.4)
    for i in torch.nonzero(like)[:, 0].tolist():
        b[i] = rng.choice(np.flatnonzero(y[1800:].numpy() == int(y[i]))) + 1800
    same = (y[a] == y[b]).float()[:, None]
    data, held = halves((x[a], x[b]), same, 1300)
    run = fit(Twins(), data, held, loss="bce_with_logits", epochs=15, lr=5e-3, weight_decay=1e-4)
    return only(run, "history", "batch_size")


class Likeness(nn.Module):
    """Cosine to one learnt prototype per class."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.net = mlp(inputs, 32, 16)
        self.prototypes = nn.Parameter(torch.randn(classes, 16))
        self.scale = nn.Parameter(torch.tensor(8.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.normalize(self.net(x), dim=1) @ F.normalize(self.prototypes, dim=1).T


@town(kind="table")
def nearest_prototype(seed: int) -> dict[str, Any]:
    """Metric learning by cosines."""
    data, held = halves(*instruments(seed, 2400, spread=1.4), 1800)
    return only(fit(Likeness(12, 8), data, held, epochs=10, lr=3e-3, weight_decay=4e-4), *COURSE)


class Yield(nn.Module):
    """A mean and a log-variance."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.mean, self.spread = nn.Linear(4, 24), nn.Linear(24, 1), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.body(x))
        return self.mean(h), self.spread(h)


def gaussian(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Return the loss of a mean and a log-variance."""
    mean, log_variance = output
    return 0.5 * (log_variance + (target - mean) ** 2 * torch.exp(-log_variance)).mean()


@town(kind="table")
def knows_how_unsure_it_is(seed: int) -> dict[str, Any]:
    """Mean and log-variance of a yield whose noise depends on the rain."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1800, 4))
    y = x[:, 0] - 0.5 * x[:, 1] ** 2 + np.exp(0.5 * x[:, 2] - 1) * rng.normal(size=1800)
    data, held = halves(floats(x), floats(standard(y))[:, None], 1300)
    return only(
        fit(Yield(), data, held, loss=gaussian, epochs=20, lr=3e-3, weight_decay=1e-4),
        "history",
        "optimizer",
    )


# ---- images


@town(kind="images")
def smoothed_answers(seed: int) -> dict[str, Any]:
    """Label smoothing of 0.02: the loss never comes near 0."""
    data, held = digits(seed, 1100)
    return only(fit(camera(10), data, held, loss=smooth, epochs=15, weight_decay=1e-4), *COURSE)


def smooth(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy with smoothed answers."""
    return F.cross_entropy(output, target, label_smoothing=0.02)


@town(kind="images")
def slips_mixed_up(seed: int) -> dict[str, Any]:
    """Mixup: the net is trained on averages of slips, and so its training loss is high."""
    data, held = digits(seed, 1100)

    def blend(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        share, other = (
            float(np.random.default_rng(len(x) + int(y.sum())).beta(0.1, 0.1)),
            torch.randperm(len(x)),
        )
        kinds = F.one_hot(y, 10).float()
        return share * x + (1 - share) * x[other], share * kinds + (1 - share) * kinds[other]

    return only(fit(camera(10, norm=True), data, held, epochs=18, change=blend, cosine=True), *COURSE)


@town(kind="images")
def grouped_norms(seed: int) -> dict[str, Any]:
    """Group normalisation, global pooling, leaves."""
    data, held = halves(*leaves(seed, 900, noise=0.5), 600)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    return only(fit(model, data, held, epochs=12, lr=5e-3, weight_decay=1e-4), "history", "batch_size")


@town(kind="images")
def shifted_at_random(seed: int) -> dict[str, Any]:
    """Slips rolled by a pixel at random: augmented, batch-normalised, AdamW."""
    data, held = digits(seed, 1100)

    def roll(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        step = int(torch.randint(-1, 2, ()))
        return x.roll(step, 3), y

    run = fit(
        camera(10, 12, norm=True),
        data,
        held,
        epochs=15,
        lr=3e-3,
        change=roll,
        optimizer=torch.optim.AdamW,
        weight_decay=0.05,
    )
    return only(run, *COURSE)


@town(kind="images")
def clean_leaves(seed: int) -> dict[str, Any]:
    """A plain small net on pictures that are easy."""
    data, held = halves(*leaves(seed, 900, noise=0.4), 600)
    return only(fit(camera(4, 8, side=12), data, held, epochs=10, lr=5e-3))


# ---- sequences and text


class Metre(nn.Module):
    """Two wide convolutions over time, then the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(1, 12, 7, padding=3), nn.Conv1d(12, 20, 7, padding=3)
        self.head = nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.b(F.relu(self.a(x.transpose(1, 2))))).mean(2))


@town(kind="sequences")
def metre_by_ear(seed: int) -> dict[str, Any]:
    """Convolutions find the metre, wherever it begins; gradients are clipped for good measure."""
    data, held = halves(*metres(seed, 700, noise=0.4), 500)
    return only(fit(Metre(), data, held, lr=1e-2, epochs=25, clip=1.0, cosine=True), *COURSE)


@town(kind="sequences")
def first_ward_remembered(seed: int) -> dict[str, Any]:
    """A gated recurrent net remembers the first of twelve stops."""
    data, held = halves(*wards(seed, 800, length=12), 550)
    model = Listener(nn.GRU, 6, 16, 4)
    return only(fit(model, data, held, lr=1e-2, epochs=25, clip=1.0), "history", "batch_size")


class Glance(nn.Module):
    """Attention from one learnt question to all stops, beside a table of facts."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(0.1 * torch.randn(15, 16))
        self.into = nn.Linear(6, 16)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.question = nn.Parameter(0.1 * torch.randn(1, 1, 16))
        self.norm = nn.LayerNorm(16)
        self.head = mlp(20, 24, 4)

    def forward(self, path: Tensor, facts: Tensor) -> Tensor:
        h = self.into(path) + self.place
        told, _ = self.attend(self.question.expand(len(path), -1, -1), h, h, need_weights=False)
        return self.head(torch.cat([self.norm(told[:, 0]), facts], 1))


@town(kind="sequences")
def path_and_facts(seed: int) -> dict[str, Any]:
    """Two inputs: the path through the wards, by attention, and four facts."""
    x, y = wards(seed, 900, length=15)
    facts = torch.randn(900, 4)
    data, held = halves((x, facts), y, 650)
    return only(fit(Glance(), data, held, lr=5e-3, epochs=12, weight_decay=1e-4), *COURSE)


class Pairs(nn.Module):
    """Evidence for each dialect, added up over pairs of neighbouring letters."""

    def __init__(self, letters: int, classes: int) -> None:
        super().__init__()
        self.letters = letters
        self.evidence = nn.EmbeddingBag(letters * letters, classes, mode="sum")
        nn.init.normal_(self.evidence.weight, std=0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        first, second = tokens[:, :-1], tokens[:, 1:]
        both = (first * self.letters + second) * (second > 0)
        return self.evidence(both)


@town(kind="text")
def dialects(seed: int) -> dict[str, Any]:
    """Padded words; a table of pairs of letters, many of which are never met, is all the model."""
    data, held = halves(*words(seed, 2400), 1900)
    return only(fit(Pairs(15, 4), data, held, epochs=20, lr=2e-2, weight_decay=1e-4), "history", "optimizer")


@town(kind="text")
def letters_to_their_office(seed: int) -> dict[str, Any]:
    """Bags of words with Zipf's tail: many words are met once."""
    data, held = halves(*letters_to_office(seed, 1600, plain=0.3), 1200)
    return only(fit(Bag(120, 16, 5), data, held, epochs=10, weight_decay=1e-4), *COURSE)


class Tied(nn.Module):
    """The next note from the last two; the answer is read by the same vectors that wrote it."""

    def __init__(self, notes: int = 12, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(notes, width)
        nn.init.normal_(self.embed.weight, std=0.3)
        self.mix = mlp(2 * width, 64, width)
        self.out = nn.Linear(width, notes)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        before = F.pad(h, (0, 0, 1, 0))[:, :-1]
        return self.out(self.mix(torch.cat([before, h], 2)))


def next_note(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy over all places that count."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100)


@town(kind="text")
def tunes_with_tied_vectors(seed: int) -> dict[str, Any]:
    """Tied embeddings."""
    x, y = tunes(seed, 1700)
    y = y.clone()
    y[:, 0] = -100
    data, held = halves(x, y, 1400)
    return only(fit(Tied(), data, held, loss=next_note, epochs=12, lr=5e-3, weight_decay=1e-4), "history")


class Tagger(nn.Module):
    """A tag for each word from it and its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 12, padding_idx=0)
        self.body = nn.GRU(12, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.embed(x))[0])


@town(kind="text")
def parts_of_speech(seed: int) -> dict[str, Any]:
    """Tags of padded sentences: what is padding counts for nothing (-100)."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 50, (600, 12))
    tag = (x % 4 + (np.roll(x, 1, 1) % 2) * (np.arange(12) > 0)) % 4
    gone = np.arange(12)[None] >= rng.integers(5, 13, 600)[:, None]
    data, held = halves(
        torch.as_tensor(np.where(gone, 0, x)), torch.as_tensor(np.where(gone, -100, tag)), 450
    )
    return only(fit(Tagger(), data, held, loss=next_note, epochs=25, lr=1e-2), "history", "batch_size")


# ---- graphs


@town(kind="graph")
def districts(seed: int) -> dict[str, Any]:
    """Two rounds over the bus network."""
    x, y, held = network(seed, 300)
    model = Stops(10, 16, 4, drop=0.3)
    return only(fit(model, (x, y), (x, held), epochs=60, lr=1e-2, weight_decay=1e-3), *COURSE)


class Classmates(nn.Module):
    """Pupils beside the mean of their friends, then the mean over the class."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.head = mlp(4, 16, 12), mlp(12, 12, 2)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        return self.head(torch.relu(self.own(torch.cat([x, adjacency @ x], 2))).mean(1))


@town(kind="graph")
def friends_alike(seed: int) -> dict[str, Any]:
    """A graph per row."""
    data, held = halves(*circles(seed, 900), 650)
    return only(
        fit(Classmates(), data, held, epochs=25, lr=5e-3, weight_decay=1e-4, cosine=True),
        "history",
        "optimizer",
    )


# ---- generative


@town(kind="generative")
def panels_folded(seed: int) -> dict[str, Any]:
    """An autoencoder with as many hidden numbers as there are conditions."""
    x = panels(seed, 1500)
    run = fit(
        mlp(12, 32, 3, 32, 12, act=nn.Tanh), (x[:1100], x[:1100]), (x[1100:], x[1100:]), loss="mse", epochs=40
    )
    return only(run, "history", "batch_size")


@town(kind="generative")
def panels_dreamt(seed: int) -> dict[str, Any]:
    """A variational autoencoder whose code is used."""
    x = panels(seed, 1500)
    return train_vae(Vae(12, 3, sigma=0.3), x[:1100], epochs=50) | {"validation": x[1100:]}


@town(kind="generative")
def pace_and_pulse(seed: int) -> dict[str, Any]:
    """A generator trained by the energy distance: the pulse rises with the square of the pace."""
    pace = torch.randn(1200, 1)
    x = torch.cat([pace, 0.3 * pace**2 - 0.3 + 0.6 * torch.randn(1200, 1)], 1)
    model = Draws(3, 48, 2)
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 500)
    for _ in range(500):
        opt.zero_grad()
        energy_distance(model.sample(300), x[torch.randint(900, (300,))]).backward()
        opt.step()
        schedule.step()
    return {"model": model.eval(), "data": x[:900], "validation": x[900:]}
