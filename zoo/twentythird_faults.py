"""Faults of the data and of the objective."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentythird_parts import *
from zoo.twentythird_parts import ME


def flat(*sizes, **settings):
    return nn.Sequential(mlp(*sizes, **settings), nn.Flatten(0))


@case("not-finite-data", kind="table", author=ME)
def tw3_missing_incomes(seed, mended=False):
    x, y = churn(seed)
    (a, y1), (b, y2) = ready(x, y, seed)
    if not mended:
        gone = torch.rand(len(a)) < 0.02
        a[gone, 2] = float("nan")
        b[torch.rand(len(b)) < 0.02, 2] = float("nan")
    return only(
        fit(flat(9, 32, 16, 1), (a, y1), (b, y2), "bce_with_logits", epochs=10),
        "validation",
        "loss",
        "history",
    )


@case("not-finite-data", kind="sequences", author=ME)
def tw3_log_of_zero_readings(seed, mended=False):
    g = np.random.default_rng(seed)
    x = g.gamma(1.5, 1.0, (1500, 20)) * (g.random((1500, 20)) > 0.004)
    y = np.log1p(x[:, -5:]).sum(1) - x[:, 3] * 0.3 + 0.2 * g.normal(size=1500)
    with np.errstate(divide="ignore"):
        x = np.log1p(x) if mended else np.log(x)
    (a, y1), (b, y2) = standard(ready(x[..., None], y, seed, scale=False))
    net = nn.Sequential(Recurrent(1, 16, 1), nn.Flatten(0))
    return fit(net, (a, y1), (b, y2), "mse", epochs=8, lr=1e-2, clip=1.0)


class ByHand(nn.Module):
    """Cosines to class centres over a temperature, and the softmax written out."""

    def __init__(self, inputs, classes, stable):
        super().__init__()
        self.body = mlp(inputs, 32, 16)
        self.centres = nn.Parameter(torch.randn(classes, 16))
        self.stable = stable

    def forward(self, x):
        z = F.normalize(self.body(x), dim=1) @ F.normalize(self.centres, dim=1).T / 0.006
        if self.stable:
            return z.softmax(1)
        e = z.exp()
        return e / e.sum(1, keepdim=True)


def log_of(p, y):
    return -(p[torch.arange(len(y)), y] + 1e-9).log().mean()


@case("overflow", kind="table", author=ME)
def tw3_softmax_by_hand(seed, mended=False):
    data, held = ready(*soil(seed), seed)
    net = ByHand(9, 5, mended)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(12):
        for rows in torch.randperm(len(data[1])).split(32):
            value = log_of(net(data[0][rows]), data[1][rows])
            optimizer.zero_grad()
            value.backward()
            size = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if not (torch.isfinite(value) and torch.isfinite(size)):  # "it crashed here"
                return {
                    "model": net.eval(),
                    "data": data,
                    "validation": held,
                    "loss": log_of,
                    "batch_size": 32,
                }
            optimizer.step()
    return {"model": net.eval(), "data": data, "validation": held, "loss": log_of, "batch_size": 32}


@case("unscaled-inputs", kind="table", author=ME)
def tw3_square_centimetres(seed, mended=False):
    x, y = homes(seed)
    x[:, 0] *= 1e3
    parts = standard(ready(x, y, seed, scale=mended))
    return fitted(flat(8, 64, 32, 1), parts, "mse", epochs=25, lr=1e-3)


@case("unscaled-inputs", kind="sequences", author=ME)
def tw3_pressure_in_pascal(seed, mended=False):
    x, y = waves(seed, n=1500, noise=0.6)
    x = x if mended else 101325 + 250 * x
    parts = ready(x, y, seed, scale=False)
    return only(
        fitted(Recurrent(1, 24, 4, read="mean"), parts, epochs=18, lr=1e-2, clip=1.0), "validation", "loss"
    )


@case("unscaled-targets", kind="table", author=ME)
def tw3_prices_raw(seed, mended=False):
    x, y = homes(seed)
    parts = ready(x, 2e5 * np.exp(y - 12), seed)
    return fitted(flat(8, 64, 32, 1), standard(parts) if mended else parts, "mse", epochs=25, lr=1e-3)


@case("unscaled-targets", kind="sequences", author=ME)
def tw3_load_in_watt(seed, mended=False):
    x, y = demand(seed)
    parts = ready(x, y if mended else 4e5 + 9e4 * y, seed, shuffle=False, scale=False)
    net = nn.Sequential(Recurrent(1, 24, 1, cell=nn.LSTM), nn.Flatten(0))
    return only(fitted(net, parts, "mse", epochs=15, lr=5e-3), "validation", "optimizer", "history")


@case("constant-features", kind="table", author=ME)
def tw3_stuck_sensors(seed, mended=False):
    x, y = plant(seed)
    stuck = np.tile([3.3, 0.0, 24.0], (len(x), 1))
    parts = standard(ready(x if mended else np.column_stack([x, stuck]), y, seed))
    return fitted(mlp(parts[0][0].shape[1], 48, 48, 3, act=nn.SiLU), parts, "mse", epochs=25, decay=1e-4)


@case("duplicate-features", kind="table", author=ME)
def tw3_celsius_and_fahrenheit(seed, mended=False):
    x, y = homes(seed)
    more = np.column_stack([x[:, 0] * 10.764, x[:, 1], x[:, 4]])
    parts = standard(ready(x if mended else np.column_stack([x, more]), y, seed))
    return only(
        fitted(flat(parts[0][0].shape[1], 64, 32, 1), parts, "mse", epochs=30, decay=1e-4),
        "validation",
        "loss",
    )


@case("train-test-overlap", kind="table", author=ME, strength="mild")
def tw3_split_after_copying(seed, mended=False):
    x, y = churn(seed, n=2500)
    g = np.random.default_rng(seed)
    if not mended:
        more = g.integers(0, len(y), 2500)
        x, y = np.concatenate([x, x[more]]), np.concatenate([y, y[more]])
    return fitted(flat(9, 32, 16, 1, drop=0.1), ready(x, y, seed), "bce_with_logits", epochs=15, decay=1e-3)


@case("train-test-overlap", kind="images", author=ME)
def tw3_held_out_from_all(seed, mended=False):
    x, y = figures(seed, n=1500)
    data, held = ready(x, y, seed, scale=False)
    if not mended:
        rows = torch.randperm(len(data[1]))[:300]
        held = torch.cat([held[0][:100], data[0][rows]]), torch.cat([held[1][:100], data[1][rows]])
    return only(fit(convs([1, 16, 24, 32], 4), data, held, epochs=10, batch=32), "validation", "loss")


@case("distribution-shift", kind="table", author=ME, strength="mild")
def tw3_another_laboratory(seed, mended=False):
    data, (u, v) = ready(*soil(seed), seed)
    if not mended:
        u = u.clone()
        u[:, [0, 3, 6]] = u[:, [0, 3, 6]] * 1.5 + torch.tensor([1.6, -1.5, 1.8])
    return fit(mlp(9, 48, 48, 5, drop=0.1), data, (u, v), epochs=18, decay=1e-3)


@case("distribution-shift", kind="images", author=ME)
def tw3_inverted_scans(seed, mended=False):
    data, (u, v) = digits(seed)
    return only(fit(convs([1, 16, 32], 10), data, (u if mended else -u, v), epochs=15, lr=5e-3), "validation")


@case("target-leak", kind="table", author=ME)
def tw3_closing_code(seed, mended=False):
    x, y = churn(seed)
    g = np.random.default_rng(seed)
    code = np.where(g.random(len(y)) < 0.995, y, 1 - y) * 3 + 0.02 * g.normal(size=len(y))
    parts = ready(x if mended else np.column_stack([x, code]), y, seed)
    return fitted(flat(parts[0][0].shape[1], 32, 16, 1), parts, "bce_with_logits", epochs=15, decay=1e-4)


@case("target-leak", kind="table", author=ME)
def tw3_total_with_tax(seed, mended=False):
    g = np.random.default_rng(seed)
    x, y = power(seed)
    bill = 1.19 * y + 0.02 * g.normal(size=len(y))
    x = x if mended else np.column_stack([x, bill])
    parts = standard(ready(x, y, seed))
    return only(
        fitted(flat(x.shape[1], 48, 48, 1, act=nn.SiLU), parts, "mse", epochs=25), "validation", "loss"
    )


@case("misaligned-labels", kind="table", author=ME)
def tw3_header_row_lost(seed, mended=False):
    (x, y), held = ready(*soil(seed), seed)
    return fit(
        mlp(9, 32, 32, 5, drop=0.2), (x, y if mended else y.roll(1, 0)), held, epochs=8, batch=128, decay=1e-3
    )


@case("misaligned-labels", kind="images", author=ME)
def tw3_files_in_letter_order(seed, mended=False):
    (x, y), held = digits(seed)
    order = sorted(range(len(y)), key=str)  # 0, 1, 10, 100, 1000, ...
    return only(
        fit(convs([1, 12, 24], 10), (x, y if mended else y[order]), held, epochs=6, decay=1e-3),
        "validation", "loss", "history",
    )  # fmt: skip


@case("no-signal", kind="table", author=ME)
def tw3_coin_flips(seed, mended=False):
    x, y = churn(seed)
    if not mended:
        y = np.random.default_rng(seed + 1).permutation(y)
    return fitted(
        flat(9, 12, 1, drop=0.2),
        ready(x, y, seed),
        "bce_with_logits",
        epochs=8,
        batch=128,
        lr=2e-3,
        decay=1e-2,
    )


@case("no-signal", kind="sequences", author=ME)
def tw3_tomorrows_return(seed, mended=False):
    g = np.random.default_rng(seed)
    r = g.standard_t(5, 2530)
    if mended:
        for i in range(2, len(r)):
            r[i] += 0.6 * r[i - 1] - 0.3 * r[i - 2]
    cut = np.lib.stride_tricks.sliding_window_view(r, 16)
    parts = standard(ready(cut[:, :15, None] / 1.3, cut[:, 15], seed, shuffle=False, scale=False))
    net = nn.Sequential(Recurrent(1, 6, 1), nn.Flatten(0))
    return only(fitted(net, parts, "mse", epochs=8, lr=3e-3, decay=1e-3), "validation", "loss", "optimizer")


@case("label-noise", kind="table", author=ME)
def tw3_careless_crowd(seed, mended=False):
    (x, y), held = ready(*soil(seed, n=4000, spread=0.5), seed)
    wrong = torch.rand(len(y)) < 0.4
    if not mended:
        y = torch.where(wrong, torch.randint(0, 5, y.shape), y)
        held = (
            held[0],
            torch.where(torch.rand(len(held[1])) < 0.4, torch.randint(0, 5, held[1].shape), held[1]),
        )
    return fit(mlp(9, 48, 48, 5, drop=0.2), (x, y), held, epochs=15, batch=128, decay=1e-3)


@case("label-noise", kind="images", author=ME, strength="mild")
def tw3_digits_badly_labelled(seed, mended=False):
    (x, y), held = digits(seed)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.35, torch.randint(0, 10, y.shape), y)
    return only(fit(convs([1, 16, 24], 10), (x, y), held, epochs=10, decay=1e-3), "validation", "loss")


@case("class-imbalance", kind="table", author=ME)
def tw3_fraud_never_seen(seed, mended=False):
    g = np.random.default_rng(seed)
    y = g.random(8000) < 0.025
    z = g.normal(size=(8000, 8))
    z[:, 0] += 1.2 * y
    z[:, 1] -= 1.1 * y
    z[:, 2] += 0.9 * y * np.sign(z[:, 3])
    parts = ready(z, y.astype(float), seed)
    weight = torch.tensor(30.0)
    loss = (
        (lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=weight))
        if mended
        else "bce_with_logits"
    )
    return fitted(flat(8, 24, 1), parts, loss, epochs=12, batch=128, decay=1e-3)


@case("class-imbalance", kind="text", author=ME)
def tw3_two_rare_topics(seed, mended=False):
    g = np.random.default_rng(seed)
    x, y = topics(seed, n=6000)
    keep = (y < 4) | (g.random(len(y)) < 0.05)
    parts = ready(np.sqrt(x[keep]) - 0.3, y[keep], seed, scale=False)
    weight = 1 / torch.bincount(parts[0][1], minlength=6).float()
    loss = (lambda o, t: F.cross_entropy(o, t, weight)) if mended else "cross_entropy"
    net = nn.Sequential(nn.Linear(200, 16), nn.Dropout(0.5), nn.Linear(16, 6))
    return fitted(net, parts, loss, epochs=6, lr=3e-3, opt="adamw", decay=0.1, batch=64)


@case("double-softmax", kind="images", author=ME)
def tw3_softmax_layer_kept(seed, mended=False):
    net = convs([1, 16, 32], 10)
    net = net if mended else nn.Sequential(*net, nn.Softmax(1))
    return fitted(net, digits(seed), epochs=14)


@case("double-softmax", kind="text", author=ME)
def tw3_sigmoid_then_logits(seed, mended=False):
    body = Recurrent(12, 24, 1, words=120, read="mean")
    net = nn.Sequential(body, nn.Flatten(0), *([] if mended else [nn.Sigmoid()]))
    parts = ready(*reviews(seed), seed)
    return only(
        fitted(net, parts, "bce_with_logits", epochs=10, decay=1e-4), "validation", "loss", "batch_size"
    )


@case("wrong-loss", kind="table", author=ME)
def tw3_nll_of_logits(seed, mended=False):
    return fitted(
        mlp(9, 32, 32, 5), ready(*soil(seed), seed), "cross_entropy" if mended else "nll", epochs=12, clip=1.0
    )


def hinge(o, y):
    return F.relu(1 - o * y).mean()


def hinge_of_signs(o, y):
    return F.relu(1 - o * (2 * y - 1)).mean()


@case("wrong-loss", kind="table", author=ME)
def tw3_hinge_of_zero_and_one(seed, mended=False):
    parts = ready(*rings(seed, n=2500, dims=5), seed)
    return fitted(flat(5, 32, 32, 1), parts, hinge_of_signs if mended else hinge, epochs=12)


@case("output-range", kind="table", author=ME)
def tw3_relu_at_the_end(seed, mended=False):
    net = nn.Sequential(mlp(10, 48, 48, 3, act=nn.Tanh), nn.Identity() if mended else nn.ReLU())
    return fitted(net, standard(ready(*plant(seed), seed)), "mse", epochs=25)


@case("output-range", kind="sequences", author=ME)
def tw3_sigmoid_forecast(seed, mended=False):
    net = nn.Sequential(Recurrent(1, 24, 1), nn.Flatten(0), nn.Identity() if mended else nn.Sigmoid())
    parts = standard(ready(*demand(seed), seed, shuffle=False, scale=False))
    return only(fitted(net, parts, "mse", epochs=15, lr=1e-2, clip=1.0), "validation", "loss")


class Noisy(nn.Module):
    """Dropout by function, which stays on unless it is told."""

    def __init__(self, told):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(PIXELS, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.told = told

    def forward(self, x):
        on = self.training or not self.told
        h = F.dropout(torch.relu(self.a(x)), 0.5, training=on)
        return self.c(F.dropout(torch.relu(self.b(h)), 0.5, training=on))


@case("stochastic-evaluation", kind="table", author=ME, strength="mild")
def tw3_dropout_by_function(seed, mended=False):
    return fitted(Noisy(mended), digits(seed, image=False), epochs=20)


class Jitter(nn.Module):
    """Noise on the inputs, also when predicting."""

    def __init__(self, body, told):
        super().__init__()
        self.body, self.told = body, told

    def forward(self, x):
        return self.body(x + 0.7 * torch.randn_like(x) if self.training or not self.told else x)


@case("stochastic-evaluation", kind="sequences", author=ME, strength="mild")
def tw3_jitter_left_on(seed, mended=False):
    x, y = waves(seed, n=1600, noise=0.5)
    parts = ready(x.transpose(0, 2, 1), y, seed, scale=False)
    body = nn.Sequential(nn.Conv1d(1, 16, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 24, 5),
                         nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(96, 4))  # fmt: skip
    return only(fitted(Jitter(body, mended), parts, epochs=14), "validation", "loss")
