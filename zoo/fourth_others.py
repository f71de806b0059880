"""Double faults and healthy set-ups of the fourth author.

A double fault takes ``fixed=True``, which repairs both; "first" and "second" repair one of them.
"""

from __future__ import annotations

import functools
import weakref

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

from zoo import case
from zoo.fourth_faults import (
    Sharp,
    adam,
    bound,
    divergence,
    make_points,
    mislabel,
    pixels,
    run_alone,
    sgd,
)
from zoo.fourth_parts import *

mine = functools.partial(case, author=ME)
healthy = functools.partial(case, author=ME)


def good(fixed):
    """Which of the two faults are repaired."""
    return fixed in (True, "first"), fixed in (True, "second")


# ---- two faults ----------------------------------------------------------------------------------


@mine("unscaled-inputs", "class-imbalance", kind="table")
def raw_units_and_a_rare_class(seed, fixed=False):
    """Left readings in raw units and three per cent of positives unweighted."""
    scale, weigh = good(fixed)
    rng = np.random.default_rng(seed)
    y = (rng.random(2400) < 0.04).astype(float)
    X = rng.standard_normal((2400, 6)) + np.array([1.2, -1.0, 1.0, 0.7, 0, 0]) * y[:, None]
    X = X * np.array([1.0, 300.0, 0.02, 40.0, 2000.0, 1.0]) + np.array([0, 1500, 0.5, 200, 9000, 3])
    parts = cut(X, y[:, None], seed)
    parts = standardise(parts) if scale else parts
    weight = torch.tensor(24.0)
    loss = lambda out, target: F.binary_cross_entropy_with_logits(out, target, pos_weight=weight)
    return run(
        mlp(6, 24, 1), parts, loss if weigh else "bce_with_logits", adam(2e-3), score=balanced, epochs=12
    )


@mine("double-softmax", "learning-rate-too-small", kind="images")
def softmax_twice_and_a_tiny_rate(seed, fixed=False):
    """Put a softmax before CrossEntropyLoss and trained by SGD with a rate of 1e-4."""
    single, fast = good(fixed)
    model = ConvNet() if single else nn.Sequential(ConvNet(), nn.Softmax(dim=1))
    make = sgd(0.05 if fast else 1e-4)
    return run(model, digits(seed), "cross_entropy", make, score=less_loss("cross_entropy"), epochs=10)


@mine("target-leak", "duplicate-features", kind="table")
def outcome_among_copied_columns(seed, fixed=False):
    """Merged a table twice and kept a column that is made from the outcome."""
    closed, single = good(fixed)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1200, 8))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.8 * rng.standard_normal(1200)
    X[:, 7] = rng.standard_normal(1200) if closed else y / y.std() + 0.05 * rng.standard_normal(1200)
    parts = standardise(cut(X, y[:, None], seed), targets=True)
    parts[2][0][:, 7] = 0.0
    parts = parts if single else [(torch.cat([X, X[:, :7]], 1), y) for X, y in parts]
    model = mlp(8 if single else 15, 32, 1)
    return run(model, parts, "mse", adam(2e-3), score=r2, epochs=15)


@mine("dropout-too-large", "weight-decay-too-large", kind="images")
def far_too_much_of_two_restraints(seed, fixed=False):
    """Fought a feared overfit with a dropout of 0.85 and a weight decay of a fifth."""
    wet, light = good(fixed)
    model = ConvNet(drop=0.1 if wet else 0.85)
    make = adam(3e-3, weight_decay=1e-4 if light else 0.2)
    return run(model, digits(seed), "cross_entropy", make, score=accuracy, epochs=10)


@mine("label-noise", "train-test-overlap", kind="text")
def wrong_stars_and_repeated_reviews(seed, fixed=False):
    """A quarter of the labels is wrong, and half of the validation texts were trained on."""
    clean, apart = good(fixed)
    train, val, fresh = topics(seed)
    if not clean:
        train, val = ((X, mislabel(y, 0.3, 5, seed + i)) for i, (X, y) in enumerate((train, val)))
    if not apart:
        half = len(val[1]) // 2
        val = tuple(torch.cat([v[:half], t[:half]]) for v, t in zip(val, train))
    model = TextNet(words=150, width=24, classes=5)
    return run(model, [train, val, fresh], "cross_entropy", adam(2e-3), score=accuracy, epochs=8)


@mine("symmetric-initialisation", "unscaled-targets", kind="table")
def equal_weights_and_raw_prices(seed, fixed=False):
    """Started all weights at the same value and regressed prices in hundreds."""
    broken, scaled = good(fixed)
    parts = standardise([(X, 1000 * y) for X, y in house(seed)], targets=scaled)
    model = mlp(8, 48, 1)
    if not broken:
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.1)
    return run(model, parts, "mse", adam(5e-3), score=r2, epochs=25)


@mine("oversmoothing", "stochastic-evaluation", kind="graph")
def deep_graph_net_left_in_training_mode(seed, fixed=False):
    """Stacked ten graph convolutions with dropout and never called eval."""
    shallow, quiet = good(fixed)
    parts = communities(seed)
    model = GCN(width=24, layers=2 if shallow else 10, drop=0.6)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    given = run(model, parts, "cross_entropy", adam(5e-3), score=lambda *_: 0, epochs=60, batch=None)
    model.train(not quiet)
    KEPT.pop()
    keep(accuracy(model, parts[2]))
    return given


@mine("constant-features", "distribution-shift", kind="sequences")
def stuck_channel_and_another_gain(seed, fixed=False):
    """One microphone hung at one value, and the validation recordings have another gain and offset."""
    alive, same = good(fixed)
    parts = waves(seed, n=900, noise=0.6, channels=2)
    for X, _ in parts:
        if not alive:
            X[:, :, 1] = 0.4
    if not same:
        parts = [parts[0], *((torch.cat([2.0 * X[:, :, :1] + 1.2, X[:, :, 1:]], 2), y) for X, y in parts[1:])]
    model = Recurrent(2, 24, 3, bidirectional=True, mean=True)
    return run(model, parts, "cross_entropy", adam(5e-3), score=accuracy, epochs=10)


@mine("posterior-collapse", "output-range", kind="generative")
def squashed_decoder_and_heavy_divergence(seed, fixed=False):
    """Restored standardised pixels through a tanh and weighed the divergence thirty times."""
    informed, free = good(fixed)
    parts = [X for X, _ in digits(seed, flat=True)]
    mean, spread = parts[0].mean(), parts[0].std()
    parts = [(X - mean) / spread for X in parts]
    squares = lambda restored, x: 0.5 * ((restored - x) ** 2).sum(1).mean()
    model = VAE(last=None if free else nn.Tanh())
    return run_alone(
        model, parts, bound(1.0 if informed else 30.0, squares), adam(3e-3), divergence, epochs=20
    )


@mine("saturated-units", "misaligned-labels", kind="images")
def wild_start_and_shifted_labels(seed, fixed=False):
    """Drew tanh weights with spread three and read the labels one line late."""
    calm, aligned = good(fixed)
    (X, y), val, fresh = digits(seed, flat=True)
    model = mlp(64, 48, 48, 10, act=nn.Tanh)
    if not calm:
        for layer in (model[0], model[2]):
            nn.init.normal_(layer.weight, std=3)
    parts = [(X, y if aligned else y.roll(1)), val, fresh]
    return run(model, parts, "cross_entropy", sgd(0.02), score=accuracy, epochs=8)


# ---- nothing is wrong ----------------------------------------------------------------------------


@healthy(kind="images")
def head_trained_on_a_pretrained_trunk(seed):
    """Froze a trunk that was trained on five digits and trained a head for the other five."""
    parts = digits(seed, n=1797)
    low = [(X[y < 5], y[y < 5]) for X, y in parts]
    high = [(X[y >= 5], y[y >= 5] - 5) for X, y in parts]
    model = ConvNet(widths=(16, 32), classes=5, hidden=48)
    fit(model, low, "cross_entropy", optim.Adam(model.parameters(), lr=2e-3), epochs=8)
    model.features.requires_grad_(False)
    model.classifier = nn.Sequential(nn.Linear(128, 5))
    optimizer = optim.Adam(model.classifier.parameters(), lr=5e-3)
    return run(model, high, "cross_entropy", optimizer, score=accuracy, epochs=15)


@healthy(kind="table")
def answers_on_a_short_scale(seed):
    """Five questions with three answers each: many people answer alike, in both parts."""
    rng = np.random.default_rng(seed)
    X = rng.choice([-1.0, 0.0, 1.0], (1200, 5), p=[0.25, 0.5, 0.25])
    chance = 1 / (1 + np.exp(-1.5 * (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3])))
    y = (rng.random(1200) < chance).astype(float)[:, None]
    make = lambda parameters: optim.Adagrad(parameters, lr=0.05)
    return run(mlp(5, 16, 1), cut(X, y, seed), "bce_with_logits", make, score=accuracy, epochs=10)


@healthy(kind="table")
def classes_that_overlap_by_nature(seed):
    """Two clouds so close that the best rule errs on three rows in ten."""
    parts = clouds(seed, n=1500, d=5, classes=2, apart=0.52, binary=True)
    return run(mlp(5, 12, 1), parts, "bce_with_logits", adam(2e-3), score=accuracy, epochs=8)


class LogFirst(nn.Module):
    """Takes signed logarithms before anything else."""

    def __init__(self, d, width=32):
        super().__init__()
        self.norm, self.net = nn.BatchNorm1d(d), mlp(d, width, 1)

    def forward(self, x):
        return self.net(self.norm(x.sign() * x.abs().log1p()))


@healthy(kind="table")
def heavy_tails_tamed_by_the_net(seed):
    """Incomes and counts with heavy tails enter a net that takes logarithms itself."""
    rng = np.random.default_rng(seed)
    X = np.exp(1.3 * rng.standard_normal((1200, 5)) + 1)
    log = np.log1p(X)
    y = (log[:, 0] - log[:, 1] + 0.5 * np.sin(2 * log[:, 2]) + 0.3 * rng.standard_normal(1200))[:, None]
    return run(LogFirst(5), cut(X, y, seed), "mse", adam(3e-3), score=r2, epochs=25)


@healthy(kind="images")
def fast_descent_with_momentum(seed):
    """SGD with Nesterov momentum and a rate near the edge, cooled along a cosine."""
    schedule = lambda made: optim.lr_scheduler.CosineAnnealingLR(made, 12)
    make = sgd(0.1, nesterov=True, weight_decay=1e-4)
    return run(
        ConvNet(norm=True), digits(seed), "cross_entropy", make, score=accuracy, epochs=12, schedule=schedule
    )


@healthy(kind="images")
def not_trained_yet(seed):
    """Asks before the first step."""
    train, val, fresh = digits(seed)
    model = ConvNet(norm=True).eval()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    keep(accuracy(model, fresh))
    return dict(
        model=model, data=train, validation=val, loss="cross_entropy", optimizer=optimizer, batch_size=32
    )


@healthy(kind="text")
def transformer_not_trained_yet(seed):
    """Asks about a transformer as it was built."""
    train, val, fresh = reviews(seed)
    model = TextNet().eval()
    keep(accuracy(model, fresh))
    return dict(model=model, data=train, validation=val, loss="cross_entropy")


@healthy(kind="table")
def rare_class_with_weights(seed):
    """One positive in twenty, weighed by twenty."""
    rng = np.random.default_rng(seed)
    y = (rng.random(2400) < 0.05).astype(float)
    X = rng.standard_normal((2400, 6)) + np.array([1.2, -1.0, 1.0, 0, 0, 0]) * y[:, None]
    weight = torch.tensor(19.0)
    loss = lambda out, target: F.binary_cross_entropy_with_logits(out, target, pos_weight=weight)
    return run(mlp(6, 8, 1), cut(X, y[:, None], seed), loss, adam(3e-3), score=balanced, epochs=8)


@healthy(kind="table")
def little_wine_well_learned(seed):
    """A hundred wines, standardised, a small net, a little decay."""
    make = lambda parameters: optim.AdamW(parameters, lr=5e-3, weight_decay=0.05)
    return run(
        mlp(13, 16, 3), standardise(wine(seed)), "cross_entropy", make, score=accuracy, epochs=15, batch=16
    )


@healthy(kind="images")
def labels_smoothed_a_little(seed):
    """Digits with the customary label smoothing of a tenth."""
    loss = lambda out, target: F.cross_entropy(out, target, label_smoothing=0.1)
    return run(ConvNet(norm=True), digits(seed), loss, adam(2e-3), score=accuracy, epochs=10)


class Priced(nn.Module):
    """Answers in dollars, but its layers work in units of the spread."""

    def __init__(self, mean, spread):
        super().__init__()
        self.net = mlp(8, 48, 48, 1)
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)

    def forward(self, x):
        return self.mean + self.spread * self.net(x)


@healthy(kind="table")
def dollars_scaled_inside(seed):
    """Prices in dollars; the net rescales its answer and the loss is divided by the variance."""
    parts = standardise([(X, 1e5 * y) for X, y in house(seed)])
    mean, spread = parts[0][1].mean(), parts[0][1].std()
    loss = lambda out, target: F.mse_loss(out / spread, target / spread)
    return run(Priced(mean, spread), parts, loss, adam(2e-3), score=r2, epochs=20)


@healthy(kind="sequences")
def waves_by_a_two_way_recurrence(seed):
    """Shapes of waves by a bidirectional GRU with clipped gradients."""
    model = Recurrent(1, 24, 3, bidirectional=True, mean=True)
    return run(model, waves(seed), "cross_entropy", adam(5e-3), score=accuracy, epochs=12, clip=1.0)


@healthy(kind="sequences")
def next_value_of_a_noisy_series(seed):
    """A forecast that can explain only part of the variance, by an LSTM."""
    model = Recurrent(1, 24, 1, cell=nn.LSTM)
    return run(model, forecast(seed), "mse", adam(5e-3), score=r2, epochs=10)


class Mixed(nn.Module):
    """Numbers and categories in a dict."""

    def __init__(self, kinds=12):
        super().__init__()
        self.embed, self.net = nn.Embedding(kinds, 6), mlp(10, 32, 2, norm=True)

    def forward(self, batch):
        return self.net(torch.cat([batch["numbers"], self.embed(batch["shop"])], 1))


@healthy(kind="table")
def numbers_and_shops(seed):
    """A dict of numbers and of shops by their number, embedded."""
    rng = np.random.default_rng(seed)
    numbers, shop = rng.standard_normal((1200, 4)), rng.integers(0, 12, 1200)
    bonus = rng.standard_normal(12)
    y = (numbers[:, 0] + bonus[shop] * (1 + numbers[:, 1]) + 0.3 * rng.standard_normal(1200) > 0).astype(int)
    parts = cut({"numbers": numbers, "shop": shop}, y, seed)
    return run(Mixed(), parts, "cross_entropy", adam(3e-3), score=accuracy, epochs=12)


@healthy(kind="text")
def reviews_by_a_transformer(seed):
    """Padded reviews by a small transformer with a warm-up."""
    schedule = lambda made: optim.lr_scheduler.LambdaLR(made, lambda epoch: min(1, (epoch + 1) / 3))
    return run(
        TextNet(width=24, drop=0.1),
        reviews(seed),
        "cross_entropy",
        adam(2e-3),
        score=accuracy,
        epochs=8,
        schedule=schedule,
    )


class Tagger(nn.Module):
    """A label for every word."""

    def __init__(self, words=60, width=16, tags=3):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.cell = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, tokens):
        return self.head(self.cell(self.embed(tokens))[0])


@healthy(kind="text")
def tags_of_padded_sentences(seed):
    """Tags each word by its kind and the kind of the word before; padding does not count."""
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 60, (500, 14))
    before = np.concatenate([np.zeros((500, 1), int), X[:, :-1] % 2], 1)
    y = np.where(X < 15, 0, np.where(before == 1, 1, 2))
    short = np.arange(14) >= rng.integers(8, 15, (500, 1))
    X[short], y[short] = 0, -100
    loss = lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten(), ignore_index=-100)
    return run(Tagger(), cut(X, y, seed), loss, adam(1e-2), score=accuracy, epochs=12)


@healthy(kind="graph")
def two_graph_convolutions(seed):
    """Communities by the customary two convolutions with dropout and decay."""
    return run(
        GCN(width=16, drop=0.5),
        communities(seed),
        "cross_entropy",
        adam(1e-2, weight_decay=5e-4),
        score=accuracy,
        epochs=60,
        batch=None,
    )


@healthy(kind="graph")
def bonds_counted_in_molecules(seed):
    """Counts bonds in small graphs by messages."""
    return run(MolNet(), molecules(seed, n=900), "mse", adam(2e-3), score=r2, epochs=20)


@healthy(kind="generative")
def digits_by_a_variational_net(seed):
    """PyTorch's example of a variational auto-encoder, on digits."""
    parts = [X for X, _ in digits(seed, flat=True)]
    return run_alone(VAE(code=8), parts, bound(1.0, pixels), adam(3e-3), divergence, epochs=20)


@healthy(kind="generative")
def points_by_energy_distance(seed):
    """Eight blobs by a generator trained with the whole energy distance."""
    return make_points(seed, repel=True)


@healthy(kind="generative")
def narrow_code_that_suffices(seed):
    """Thirty readings driven by three causes, restored from a code of three."""
    rng = np.random.default_rng(seed)
    cause = rng.standard_normal((1000, 3))
    X = np.tanh(cause @ rng.standard_normal((3, 30))) + 0.1 * rng.standard_normal((1000, 30))
    parts = [(X, X) for X, _ in cut(X, np.zeros(1000), seed)]
    return run(AutoEncoder(d=30, hidden=64, code=3), parts, "mse", adam(3e-3), score=r2, epochs=25)


class Block(nn.Module):
    """A residual block with a norm before it."""

    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )

    def forward(self, x):
        return x + 0.3 * self.net(x)


@healthy(kind="table")
def deep_but_residual(seed):
    """Ten residual blocks with layer norm on a census."""
    model = nn.Sequential(
        nn.Linear(8, 32), *(Block(32) for _ in range(10)), nn.LayerNorm(32), nn.Linear(32, 1)
    )
    parts = standardise(house(seed), targets=True)
    return run(model, parts, "mse", adam(1e-3), score=r2, epochs=12)


@healthy(kind="images")
def half_of_many_units_dropped(seed):
    """A wide net that bears a dropout of a half."""
    model = mlp(64, 256, 128, 10, drop=0.5)
    return run(model, digits(seed, flat=True), "cross_entropy", adam(1e-3), score=accuracy, epochs=15)


@healthy(kind="images")
def gradients_added_on_purpose(seed):
    """Adds the gradients of four batches, each a quarter, before it steps and clears them."""
    parts, model, made = digits(seed), ConvNet(), weakref.WeakKeyDictionary()

    def step(model, batch):
        X, y = batch
        if model not in made:
            made[model] = [optim.Adam(model.parameters(), lr=4e-3), 0]
        state = made[model]
        value = F.cross_entropy(model(X), y)
        (value / 4).backward()
        state[1] += 1
        if state[1] % 4 == 0:
            state[0].step()
            state[0].zero_grad()
        return value.item()

    optimizer = optim.Adam(model.parameters(), lr=4e-3)
    return run(
        model,
        parts,
        "cross_entropy",
        optimizer,
        score=accuracy,
        epochs=15,
        batch=16,
        step=step,
        kwargs={"step": step},
    )


@healthy(kind="table")
def diabetes_as_far_as_it_goes(seed):
    """A regression that can explain less than half, stopped in time."""
    return run(mlp(10, 16, 1), diabetes(seed), "mse", adam(2e-3, weight_decay=1e-2), score=r2, epochs=20)


@healthy(kind="table")
def counts_with_a_logarithmic_link(seed):
    """Counts by Poisson's likelihood; the net gives the logarithm of the rate."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1200, 6))
    y = rng.poisson(np.exp(0.5 + 0.6 * X[:, 0] - 0.4 * X[:, 1] * X[:, 2])).astype(float)[:, None]
    loss = lambda out, target: F.poisson_nll_loss(out, target)
    return run(mlp(6, 24, 1), cut(X, y, seed), loss, adam(3e-3), score=less_loss(loss), epochs=12)


@healthy(kind="table")
def categories_as_ones_and_zeros(seed):
    """Columns of ones and zeros from categories, some of them rare, beside two numbers."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(10, 1200, p=[0.25, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.04, 0.02, 0.01])
    numbers = rng.standard_normal((1200, 2))
    y = rng.standard_normal(10)[kind] + numbers[:, 0] * numbers[:, 1] + 0.3 * rng.standard_normal(1200)
    parts = cut(np.concatenate([np.eye(10)[kind], numbers], 1), (y - y.mean())[:, None] / y.std(), seed)
    make = lambda parameters: optim.NAdam(parameters, lr=3e-3)
    return run(mlp(12, 32, 1), parts, "mse", make, score=r2, epochs=25)


@healthy(kind="table")
def clouds_with_a_learned_temperature(seed):
    """Overlapping classes whose scores were divided by a temperature fitted on the validation rows."""
    model, parts = Sharp(mlp(8, 24, 3), 1.0), clouds(seed, apart=1.5)
    given = run(model, parts, "cross_entropy", adam(2e-3), score=accuracy, epochs=10)
    X, y = parts[1]
    tried = np.linspace(0.5, 1.5, 41)
    with torch.no_grad():
        scores = model.net(X)
        model.by = float(tried[np.argmin([F.cross_entropy(t * scores, y).item() for t in tried])])
    return given
