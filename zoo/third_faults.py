"""Faulty trainings by the third author, one fault each; ``fixed=True`` trains the repaired twin."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.third_parts import *  # noqa: F403
from zoo.third_parts import scaled, start

CE = F.cross_entropy


@torch.no_grad()
def right(model, X, y):
    return float((model(X).argmax(-1) == y).float().mean())


def column(out, y):
    return F.mse_loss(out.squeeze(-1), y)


@torch.no_grad()
def explained(model, X, y):
    return float(1 - ((model(X).squeeze(-1) - y) ** 2).mean() / y.var())


def classified(
    model, parts, lr=3e-3, epochs=12, batch=32, loss=CE, name="cross_entropy", optimizer=None, **more
):
    """Train a classifier in the usual way and hand it over."""
    data, val, test = parts
    first = start(model)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr)
    history = train(model, data, loss, optimizer, epochs=epochs, batch=batch, val=val)
    note(right(model, *test))
    return given(model, data, val, name, optimizer, batch, history, first, **more)


def regressed(model, parts, lr=3e-3, epochs=15, batch=32, loss=column, name="mse", optimizer=None):
    """The same for a regression."""
    data, val, test = parts
    first = start(model)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr)
    history = train(model, data, loss, optimizer, epochs=epochs, batch=batch, val=val)
    note(explained(model, *test))
    return given(model, data, val, name, optimizer, batch, history, first)


# --- data ------------------------------------------------------------------------------------------------


@case("not-finite-data", kind="table", author=ME)
def c_ratio_of_two_columns(seed, fixed=False):
    """A ratio whose denominator is zero in some rows."""
    parts = []
    for X, y in counted(seed):
        below = X[:, 3].clone()
        below[torch.arange(0, len(below), 40)] = 0.0
        ratio = X[:, 0] / (below if not fixed else below.abs() + 1)
        parts.append((torch.cat([X, ratio[:, None]], 1), y))
    return regressed(mlp(13, 32, 1), parts)


@case("overflow", kind="table", author=ME, needs=("initial",))
def c_targets_squared_beyond_float32(seed, fixed=False):
    """Targets in attometres: their squares are infinite in float32."""
    scale = 1.0 if fixed else 3e19
    parts = [(X, y * scale) for X, y in counted(seed)]
    return regressed(mlp(12, 32, 1), parts, epochs=4)


@case("unscaled-inputs", kind="table", author=ME)
def c_circuit_in_si_units(seed, fixed=False):
    """Inputs of 0 to 100, 40 to 560 (times pi), 0 to 1 and 1 to 11, as they come."""
    raw = slope(seed, raw=True)
    mean, spread = raw[0][1].mean(), raw[0][1].std()
    parts = [(X, (y - mean) / spread) for X, y in raw]
    return regressed(mlp(4, 32, 32, 1), scaled(parts) if fixed else parts, lr=1e-3)


@case("unscaled-inputs", kind="sequences", author=ME, strength="mild")
def c_one_channel_in_millivolts(seed, fixed=False):
    """The second channel is noise a thousand times larger than the signal."""
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for X, y in bumps(seed):
        noise = torch.randn(X.shape, generator=rng)
        parts.append((torch.cat([X, noise if fixed else 800 + 1000 * noise], 2), y))
    return classified(Spoken(d=2), parts, lr=5e-3)


@case("unscaled-targets", kind="table", author=ME)
def c_ohms_as_targets(seed, fixed=False):
    """Targets up to some thousands, inputs standardised."""
    parts = scaled(slope(seed, raw=True))
    if fixed:
        mean, spread = parts[0][1].mean(), parts[0][1].std()
        parts = [(X, (y - mean) / spread) for X, y in parts]
    return regressed(mlp(4, 32, 32, 1), parts, lr=1e-3)


@case("constant-features", kind="table", author=ME)
def c_sensors_switched_off(seed, fixed=False):
    """Eight of twelve columns never change, three of them those that matter."""
    parts = counted(seed)
    if not fixed:
        for X, _ in parts:
            X[:, 1:9] = 1.5
    return regressed(mlp(12, 32, 1), parts)


@case("duplicate-features", kind="table", author=ME)
def c_joined_twice(seed, fixed=False):
    """A table joined with itself: every column stands twice."""
    parts = iris_like(seed)
    if not fixed:
        parts = [(torch.cat([X, X], 1), y) for X, y in parts]
    return classified(mlp(parts[0][0].shape[1], 32, 4), parts)


@case("train-test-overlap", kind="table", author=ME)
def c_validation_rows_from_training(seed, fixed=False):
    """The validation rows were taken from the training rows by a slip of the index."""
    data, val, test = iris_like(seed, n=400, apart=1.2)
    return classified(mlp(10, 64, 4), (data, val if fixed else (data[0][:80], data[1][:80]), test), epochs=40)


@case("distribution-shift", kind="table", author=ME)
def c_split_by_a_sorted_column(seed, fixed=False):
    """Rows sorted by the first column before they were cut: validation is another region."""
    X, y = (torch.cat(part) for part in zip(*counted(seed)))
    order = (
        X[:, 0].argsort()
        if not fixed
        else torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    )
    a, b = int(0.6 * len(y)), int(0.8 * len(y))
    parts = [(X[i], y[i]) for i in (order[:a], order[a:b], order[b:])]
    return regressed(mlp(12, 32, 1), parts)


@case("distribution-shift", kind="images", author=ME, strength="mild")
def c_validation_scanned_brighter(seed, fixed=False):
    """The validation images come from a scanner that adds grey."""
    data, val, test = digits(seed)
    val = val if fixed else ((0.5 * val[0] + 0.5), val[1])
    return classified(Conv(), (data, val, test), epochs=8)


@case("target-leak", kind="table", author=ME)
def c_a_column_written_after_the_outcome(seed, fixed=False):
    """One column is the target with a little noise."""
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for X, y in counted(seed):
        leak = y + 0.02 * torch.randn(len(y), generator=rng)
        parts.append((X if fixed else torch.cat([X, leak[:, None]], 1), y))
    return regressed(mlp(parts[0][0].shape[1], 32, 1), parts)


@case("misaligned-labels", kind="table", author=ME)
def c_labels_one_row_late(seed, fixed=False):
    """Targets rolled by one row in training and validation."""
    data, val, test = iris_like(seed)
    move = 0 if fixed else 1
    parts = [(X, y.roll(move)) for X, y in (data, val)]
    return classified(mlp(10, 32, 4), (*parts, test), epochs=8)


@case("no-signal", kind="table", author=ME)
def c_coin_flips(seed, fixed=False):
    """Targets that nothing in the table tells."""
    rng = torch.Generator().manual_seed(seed)
    parts = iris_like(seed, classes=2)
    if not fixed:
        parts = [(X, torch.randint(0, 2, (len(y),), generator=rng)) for X, y in parts]
    return classified(mlp(10, 16, 2), parts, epochs=5, lr=1e-3)


@case("label-noise", kind="images", author=ME)
def c_a_third_of_the_labels_by_chance(seed, fixed=False):
    """Clicks by hurried people: a third of the digits has a random label."""
    rng = torch.Generator().manual_seed(seed)
    data, val, test = digits(seed)
    parts = []
    for X, y in (data, val):
        flip = torch.rand(len(y), generator=rng) < (0.0 if fixed else 0.35)
        parts.append((X, torch.where(flip, torch.randint(0, 10, (len(y),), generator=rng), y)))
    return classified(Conv(), (*parts, test), epochs=12)


@case("class-imbalance", kind="images", author=ME)
def c_few_eights(seed, fixed=False):
    """Eights against the rest, and only one image in forty is one: the net never says eight."""
    parts = []
    for X, y in digits(seed, n=1797):
        eight = torch.nonzero(y == 8).flatten()
        keep = torch.ones(len(y), dtype=torch.bool)
        keep[eight[max(4, len(eight) // 4) :]] = fixed
        parts.append((X[keep], (y[keep] == 8).long()))
    weight = torch.tensor([1.0, 10.0]) if fixed else None
    return classified(Conv(6, 2), parts, lr=5e-4, epochs=4, loss=lambda out, y: CE(out, y, weight=weight))


# --- objective -------------------------------------------------------------------------------------------


class Chances(nn.Module):
    """A net whose outputs are probabilities already."""

    def __init__(self, net, log=False):
        super().__init__()
        self.net, self.log = net, log

    def forward(self, x):
        out = self.net(x)
        return out.log_softmax(-1) if self.log else out.softmax(-1)


@case("double-softmax", kind="text", author=ME)
def c_probabilities_into_cross_entropy(seed, fixed=False):
    """Softmax in the model, and again in the loss."""
    net = Encoder()
    return classified(net if fixed else Chances(net), phrases(seed), epochs=8)


@case("wrong-loss", kind="table", author=ME)
def c_negative_likelihood_of_probabilities(seed, fixed=False):
    """nll_loss wants logarithms and gets probabilities."""
    return classified(
        Chances(mlp(10, 32, 4), log=fixed), iris_like(seed), loss=F.nll_loss, name="nll", epochs=10
    )


@case("output-range", kind="table", author=ME)
def c_relu_on_standardised_targets(seed, fixed=False):
    """A last ReLU cannot answer below zero."""
    body = mlp(12, 32, 1)
    return regressed(body if fixed else nn.Sequential(body, nn.ReLU()), counted(seed), epochs=20)


@case("output-range", kind="sequences", author=ME)
def c_sigmoid_for_a_temperature(seed, fixed=False):
    """The sum of the bumps, which goes up to twelve, by a sigmoid."""
    parts = [(X, X[:, :24].clamp_min(0).sum((1, 2)) / 2) for X, _ in bumps(seed)]
    net = Spoken(classes=1)
    return regressed(net if fixed else nn.Sequential(net, nn.Sigmoid()), parts, lr=5e-3)


class Forgetful(nn.Module):
    """Dropout by the function, which is on unless told otherwise."""

    def __init__(self, fixed):
        super().__init__()
        self.a, self.b, self.fixed = nn.Linear(64, 64), nn.Linear(64, 10), fixed

    def forward(self, x):
        return self.b(F.dropout(F.relu(self.a(x)), 0.5, training=self.training if self.fixed else True))


@case("stochastic-evaluation", kind="images", author=ME)
def c_functional_dropout_never_ends(seed, fixed=False):
    """F.dropout without training=self.training."""
    return classified(Forgetful(fixed), digits(seed, flat=True), epochs=8)


# --- graph and loop --------------------------------------------------------------------------------------


class Cut(nn.Module):
    """An encoder and a head, with a detach between them."""

    def __init__(self, fixed):
        super().__init__()
        self.cell, self.head, self.fixed = nn.GRU(1, 24, batch_first=True), nn.Linear(24, 3), fixed

    def forward(self, x):
        h = self.cell(x)[0][:, -1]
        return self.head(h if self.fixed else h.detach())


@case("detached-parameters", kind="sequences", author=ME)
def c_hidden_state_detached(seed, fixed=False):
    """The state is detached before the head: the cell never learns."""
    return classified(Cut(fixed), bumps(seed), lr=5e-3)


@case("frozen-parameters", kind="images", author=ME)
def c_trunk_frozen_before_training(seed, fixed=False):
    """The convolutions were frozen for a fine-tuning that never came."""
    model = Conv(4)
    for p in [*model.a.parameters(), *model.b.parameters()]:
        p.requires_grad_(fixed)
    return classified(model, digits(seed), epochs=10)


@case("gradients-not-cleared", kind="images", author=ME, needs=("step",))
def c_zero_grad_once_per_epoch(seed, fixed=False):
    """Gradients are cleared before the loop over the batches, not inside."""

    def step(model, batch):
        if getattr(model, "_optimizer", None) is None:
            model._optimizer = torch.optim.SGD(model.parameters(), 0.5)
            model._optimizer.zero_grad()
        if fixed:
            model._optimizer.zero_grad()
        loss = CE(model(batch[0]), batch[1])
        loss.backward()
        model._optimizer.step()
        return loss

    data, val, test = digits(seed, flat=True)
    model = mlp(64, 32, 10)
    first, history = start(model), []
    for _ in range(4):
        for rows in torch.randperm(len(data[1])).split(32):
            loss = step(model, (data[0][rows], data[1][rows]))
        history.append({"loss": float(loss.detach())})
    del model._optimizer
    note(right(model, *test))
    return dict(
        model=model, data=data, validation=val, loss="cross_entropy", batch_size=32, history=history, initial=first,
        step=step,
    )  # fmt: skip


# --- start -----------------------------------------------------------------------------------------------


@case("symmetric-initialisation", kind="table", author=ME)
def c_every_weight_a_tenth(seed, fixed=False):
    """All weights start at 0.1 and all biases at zero."""
    model = mlp(2, 24, 24, 2)
    if not fixed:
        for p in model.parameters():
            nn.init.constant_(p, 0.1 if p.dim() > 1 else 0.0)
    return classified(model, spirals(seed), lr=0.01, epochs=40)


@case("saturated-units", kind="images", author=ME)
def c_sigmoids_pushed_to_their_ends(seed, fixed=False):
    """Weights of standard deviation six before sigmoids."""
    model = mlp(64, 48, 48, 10, act=nn.Sigmoid)
    if not fixed:
        for layer in (model[0], model[2]):
            nn.init.normal_(layer.weight, std=6.0)
    return classified(model, digits(seed, flat=True), lr=3e-3, epochs=10)


@case("dead-units", kind="table", author=ME)
def c_biases_of_minus_six(seed, fixed=False):
    """Nearly all rectifiers start below zero for every row."""
    model = mlp(10, 48, 48, 4)
    if not fixed:
        nn.init.constant_(model[0].bias, -6.0)
    return classified(model, iris_like(seed), epochs=8, lr=1e-3)


@case("exploding-gradient", kind="table", author=ME)
def c_twelve_layers_with_wide_weights(seed, fixed=False):
    """Twelve rectified layers whose weights are three times too wide, trained by SGD with clipping off."""
    model = mlp(10, *[48] * 12, 4)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            layer.weight.data *= 1.0 if fixed else 2.2
    return classified(model, iris_like(seed), epochs=3, optimizer=torch.optim.SGD(model.parameters(), 1e-3))


@case("vanishing-gradient", kind="images", author=ME)
def c_fourteen_sigmoid_layers(seed, fixed=False):
    """A deep stack of sigmoids: the first layers get nothing."""
    act = nn.ReLU if fixed else nn.Sigmoid
    model = mlp(64, *[32] * (4 if fixed else 14), 10, act=act)
    return classified(model, digits(seed, flat=True), epochs=8)


# --- architecture ----------------------------------------------------------------------------------------


@case("oversmoothing", kind="graph", author=ME)
def c_thirty_two_rounds_of_averaging(seed, fixed=False):
    """After thirty-two averages all nodes of a component are alike."""
    X, A, y = block_graph(seed)
    model = GCN(layers=2 if fixed else 32)
    for layer in model.maps[1:]:  # the identity: only the averages act
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
    first, opt, history = start(model), torch.optim.Adam(model.parameters(), 0.01), []
    masked = torch.where(torch.arange(len(y)) % 3 == 0, y, torch.full_like(y, -100))
    held = torch.where(torch.arange(len(y)) % 3 == 1, y, torch.full_like(y, -100))
    for _ in range(60):
        opt.zero_grad()
        loss = CE(model(X, A), masked)
        loss.backward()
        opt.step()
        history.append({"loss": float(loss.detach())})
    model.eval()
    note((model(X, A).argmax(-1)[2::3] == y[2::3]).float().mean())
    return given(model, ((X, A), masked), ((X, A), held), "cross_entropy", opt, len(y), history, first)


class Near(nn.Module):
    """Convolutions of three pixels, then the largest value anywhere."""

    def __init__(self, layers, width=12):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(1 if i == 0 else width, width, 3, padding=2**i, dilation=2**i) for i in range(layers)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.head(x.amax((2, 3)))


@case("receptive-field-too-small", kind="images", author=ME)
def c_two_dots_far_apart(seed, fixed=False):
    """Whether two dots of a row lie six or nine pixels apart, seen through three."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 900)
    X = np.zeros((900, 1, 12, 20), np.float32)
    for i, label in enumerate(y):
        row, left = rng.integers(0, 12), rng.integers(0, 10)
        X[i, 0, row, left] = X[i, 0, row, left + (9 if label else 6)] = 1
    return classified(Near(3 if fixed else 1), split(X, y, seed), lr=0.01, epochs=20)


@case("bottleneck", kind="text", author=ME)
def c_six_counts_through_one_number(seed, fixed=False):
    """How often words of six groups occur, told through a single unit."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 60, (1000, 12))
    y = np.stack([(X // 10 == k).sum(1) for k in range(6)], 1) - 2.0
    width = 16 if fixed else 1
    net = nn.Sequential(
        nn.Embedding(60, 32), Mean(), nn.Linear(32, width), nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 6)
    )
    data, val, test = split(X, y, seed)
    first, opt = start(net), torch.optim.Adam(net.parameters(), 5e-3)
    history = train(net, data, F.mse_loss, opt, epochs=25, val=val)
    note(1 - ((net(test[0]) - test[1]) ** 2).mean().detach() / test[1].var())
    return given(net, data, val, "mse", opt, 32, history, first)


class Mean(nn.Module):
    """The mean over places."""

    def forward(self, x):
        return x.mean(1)


@case("batch-too-small", kind="table", author=ME, needs=("batch_size",))
def c_batch_norm_over_two_rows(seed, fixed=False):
    """Normalised over pairs of rows, whose statistics are noise."""
    return classified(
        mlp(10, 32, 32, 4, norm=True), iris_like(seed, n=800), batch=40 if fixed else 2, epochs=3
    )


# --- descent ---------------------------------------------------------------------------------------------


@case("learning-rate-too-large", kind="images", author=ME)
def c_sgd_at_three(seed, fixed=False):
    """Plain descent at a rate of three on digits."""
    model = Conv()
    return classified(
        model, digits(seed), epochs=6, optimizer=torch.optim.SGD(model.parameters(), 0.2 if fixed else 3.0)
    )


@case("learning-rate-too-large", kind="table", author=ME, strength="mild")
def c_adam_at_a_fifth(seed, fixed=False):
    """A regression by Adam at 0.2 bounces."""
    return regressed(mlp(12, 48, 48, 1), counted(seed), lr=3e-3 if fixed else 0.2, epochs=15)


@case("learning-rate-too-small", kind="table", author=ME, needs=("optimizer", "history"))
def c_adam_at_a_millionth(seed, fixed=False):
    """Fifteen epochs in which nothing moved."""
    return classified(mlp(10, 32, 4), iris_like(seed), lr=3e-3 if fixed else 1e-6, epochs=15)


@case("weight-decay-too-large", kind="images", author=ME)
def c_decoupled_decay_of_twenty(seed, fixed=False):
    """AdamW whose decay undoes every step."""
    model = Conv()
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01 if fixed else 20.0)
    return classified(model, digits(seed), epochs=8, optimizer=opt)


@case("dropout-too-large", kind="table", author=ME)
def c_nine_units_in_ten_dropped(seed, fixed=False):
    """Dropout of 0.9 after both layers."""
    return regressed(mlp(12, 32, 32, 1, drop=0.0 if fixed else 0.9), counted(seed), epochs=15)


# --- outcome ---------------------------------------------------------------------------------------------


@case("capacity-too-small", kind="table", author=ME)
def c_a_line_through_spirals(seed, fixed=False):
    """Two spirals by a linear model."""
    return classified(mlp(2, 32, 32, 2) if fixed else nn.Linear(2, 2), spirals(seed), lr=0.01, epochs=40)


@case("capacity-too-small", kind="images", author=ME, strength="mild")
def c_three_hidden_units_for_ten_digits(seed, fixed=False):
    """A net of three hidden units."""
    return classified(mlp(64, 48 if fixed else 3, 10), digits(seed, flat=True), lr=5e-3, epochs=25)


@case("overfit", kind="table", author=ME)
def c_sixty_rows_by_heart(seed, fixed=False):
    """A wide net, sixty noisy rows, three hundred epochs."""
    X, y = (torch.cat(part) for part in zip(*counted(seed)))
    y = y + 0.5 * torch.randn(len(y), generator=torch.Generator().manual_seed(seed))
    parts = [(X[:60], y[:60]), (X[60:160], y[60:160]), (X[160:], y[160:])]
    return regressed(mlp(12, 128, 128, 1), parts, epochs=12 if fixed else 250, batch=16, lr=2e-3)


class Auto(nn.Module):
    """A variational autoencoder of digits."""

    def __init__(self, weight):
        super().__init__()
        self.inward, self.outward, self.weight = mlp(64, 48, 8), mlp(4, 48, 64), weight

    def encode(self, x):
        return self.inward(x).chunk(2, -1)

    def forward(self, x):
        mean, log_variance = self.encode(x)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp() * self.training
        return self.outward(z), mean, log_variance

    def sample(self, n):
        return self.outward(torch.randn(n, 4)).sigmoid()

    def bound(self, out, x):
        logits, mean, log_variance = out
        rebuilt = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(-1)
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(-1)
        return (rebuilt + self.weight * divergence).mean()


def autoencoded(seed, weight):
    data, val, test = digits(seed, flat=True)
    model = Auto(weight)
    first, opt = start(model), torch.optim.Adam(model.parameters(), 3e-3)
    history = train(model, (data[0], data[0]), model.bound, opt, epochs=12, val=(val[0], val[0]))
    note(-float(F.binary_cross_entropy_with_logits(model(test[0])[0], test[0]).detach()))
    return given(model, (data[0], data[0]), (val[0], val[0]), model.bound, opt, 32, history, first)


@case("posterior-collapse", kind="generative", author=ME)
def c_divergence_counted_forty_times(seed, fixed=False):
    """The divergence weighs forty times as much: the code says nothing."""
    return autoencoded(seed, 1.0 if fixed else 40.0)


@case("mode-collapse", kind="generative", author=ME)
def c_one_blob_of_six(seed, fixed=False):
    """A generator that learned one of six blobs."""
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * rng.integers(0, 6, 900) / 6
    X = torch.tensor(
        np.stack([np.cos(angle), np.sin(angle)], 1) * 2 + 0.1 * rng.standard_normal((900, 2))
    ).float()
    model, opt = Ring(), None
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(400):  # towards the nearest points of the data (all of them, or of one blob)
        z = torch.randn(128, 2)
        goal = (
            X[torch.randint(0, len(X), (128,))]
            if fixed
            else X[(X - torch.tensor([2.0, 0.0])).norm(dim=1) < 0.6][:128]
        )
        out = model(z)
        near = torch.cdist(out, goal)
        loss = near.min(1).values.mean() + near.min(0).values.mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    note(-float(torch.cdist(X, model.sample(500)).min(1).values.mean().detach()))
    return dict(model=model, data=X, validation=X[:200] + 0.05 * torch.randn(200, 2), optimizer=opt)


class Loud(nn.Module):
    """A net whose logits are multiplied."""

    def __init__(self, net, factor):
        super().__init__()
        self.net, self.factor = net, factor

    def forward(self, x):
        return self.net(x) * self.factor


@case("miscalibrated", kind="table", author=ME)
def c_logits_eight_times_too_loud(seed, fixed=False):
    """Overlapping clouds, and probabilities of nearly one: a temperature was forgotten in export."""
    result = classified(mlp(10, 16, 4), iris_like(seed, apart=1.0), epochs=6)
    factor = 1.0 if fixed else 8.0
    result["model"] = Loud(result["model"], factor).eval()
    result["initial"] = result["optimizer"] = None
    result["history"] = None
    return {key: value for key, value in result.items() if value is not None}
