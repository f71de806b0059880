"""Healthy trainings on tables."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentythird_parts import *
from zoo.twentythird_parts import ME


@case(kind="table", author=ME)
def tw3_churn_all_given(seed):
    parts = ready(*churn(seed), seed)
    net = nn.Sequential(mlp(9, 32, 16, 1, drop=0.1), nn.Flatten(0))
    return fitted(net, parts, "bce_with_logits", epochs=25, decay=1e-4)


@case(kind="table", author=ME)
def tw3_homes_onecycle(seed):
    parts = standard(ready(*homes(seed), seed))
    net = nn.Sequential(mlp(8, 64, 32, 1, act=nn.GELU), nn.Flatten(0))
    return fitted(net, parts, "mse", epochs=40, lr=1e-2, opt="adamw", decay=1e-3, plan="onecycle")


@case(kind="table", author=ME)
def tw3_plant_three_targets(seed):
    parts = standard(ready(*plant(seed), seed))
    return only(
        fitted(mlp(10, 48, 48, 3, act=nn.SiLU), parts, "mse", epochs=30, decay=1e-4), "validation", "loss"
    )


@case(kind="table", author=ME)
def tw3_soil_batchnorm(seed):
    parts = ready(*soil(seed), seed)
    return fitted(mlp(9, 48, 48, 5, norm=True), parts, epochs=15, batch=128, opt="momentum", lr=0.05)


class Rate(nn.Module):
    """Gives the expected count itself."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return F.softplus(self.body(x)).squeeze(1) + 1e-4


def poisson_of_rate(output, y):
    return F.poisson_nll_loss(output, y, log_input=False)


@case(kind="table", author=ME)
def tw3_claims_counts(seed):
    parts = ready(*claims(seed), seed)
    return fitted(Rate(mlp(4, 32, 16, 1, act=nn.Tanh)), parts, poisson_of_rate, epochs=20, batch=128)


class Embedded(nn.Module):
    """An embedding per column of categories, products of all, and a small net."""

    def __init__(self, sizes, width, out=1, numbers=0):
        super().__init__()
        self.parts = nn.ModuleList(nn.Embedding(s, width) for s in sizes)
        self.body = mlp(width * len(sizes) + numbers, 48, 24, out, drop=0.1)
        for p in self.parts:
            nn.init.normal_(p.weight, std=0.3)

    def forward(self, codes, numbers=None):
        h = torch.cat([part(codes[:, i]) for i, part in enumerate(self.parts)], 1)
        return self.body(h if numbers is None else torch.cat([h, numbers], 1)).squeeze(1)


@case(kind="table", author=ME)
def tw3_clicks_integer_codes(seed):
    parts = ready(*clicks(seed), seed)
    return fitted(
        Embedded((12, 7, 24, 5), 6), parts, "bce_with_logits", epochs=18, batch=256, lr=5e-3, decay=1e-5
    )


@case(kind="table", author=ME)
def tw3_wide_and_codes(seed):
    x, y = churn(seed, n=8000)
    (a, y1), (b, y2) = ready(x[:, :5], y, seed)
    (c, _), (d, _) = ready(x[:, 5:].argmax(1)[:, None], y, seed)
    return only(
        fitted(
            Embedded((4,), 3, numbers=5),
            (((c, a), y1), ((d, b), y2)),
            "bce_with_logits",
            epochs=25,
            decay=1e-4,
        ),
        "validation",
    )


@case(kind="table", author=ME)
def tw3_loans_rare_but_told(seed):
    parts = ready(*loans(seed), seed)
    net = nn.Sequential(mlp(7, 24, 24, 1, act=nn.ELU), nn.Flatten(0))
    return only(
        fitted(net, parts, "bce_with_logits", epochs=20, batch=128, decay=1e-4),
        "validation",
        "loss",
        "history",
    )


@case(kind="table", author=ME)
def tw3_loans_moderately_rare(seed):
    parts = ready(*loans(seed, rare=0.2), seed)
    net = nn.Sequential(mlp(7, 32, 32, 1), nn.Flatten(0))
    return fitted(net, parts, "bce_with_logits", epochs=15, batch=64, opt="adamw", decay=0.01)


def huber(output, y):
    return F.smooth_l1_loss(output.reshape(y.shape), y)


@case(kind="table", author=ME)
def tw3_power_huber(seed):
    parts = standard(ready(*power(seed), seed))
    net = nn.Sequential(mlp(5, 64, 64, 1, act=nn.Tanh), nn.Flatten(0))
    return fitted(net, parts, huber, epochs=30, lr=5e-3)


@case(kind="table", author=ME)
def tw3_breast_logistic(seed):
    x, y = bundled("breast_cancer")
    parts = ready(x, y.astype(float), seed, share=0.6)
    net = nn.Sequential(nn.Linear(30, 1), nn.Flatten(0))
    return fitted(net, parts, "bce_with_logits", epochs=120, batch=16, opt="sgd", lr=0.1, decay=1e-3)


@case(kind="table", author=ME)
def tw3_wine_softmax(seed):
    parts = ready(*bundled("wine"), seed, share=0.6)
    return only(
        fitted(mlp(13, 12, 3, act=nn.Tanh), parts, epochs=60, batch=16, lr=5e-3, decay=1e-2), "validation"
    )


@case(kind="table", author=ME)
def tw3_iris_small(seed):
    parts = ready(*bundled("iris"), seed, share=0.6)
    return fitted(mlp(4, 8, 3, act=nn.Tanh), parts, epochs=80, batch=16, lr=1e-2, decay=1e-3)


@case(kind="table", author=ME)
def tw3_diabetes_shrunk(seed):
    parts = standard(ready(*bundled("diabetes"), seed, share=0.7))
    net = nn.Sequential(mlp(10, 16, 1, act=nn.Tanh), nn.Flatten(0))
    return fitted(net, parts, "mse", epochs=40, batch=32, opt="adamw", lr=3e-3, decay=0.1, best=True)


@case(kind="table", author=ME)
def tw3_digits_flat_dropout(seed):
    parts = digits(seed, image=False)
    return only(
        fitted(mlp(PIXELS, 96, 10, drop=0.3), parts, epochs=30, decay=1e-4), "validation", "optimizer"
    )


@case(kind="table", author=ME)
def tw3_raw_columns_into_norm(seed):
    parts = ready(*churn(seed), seed, scale=False)
    net = nn.Sequential(nn.BatchNorm1d(9), mlp(9, 32, 16, 1), nn.Flatten(0))
    return only(
        fitted(net, parts, "bce_with_logits", epochs=20, batch=128, lr=5e-3, decay=1e-4), "validation", "loss"
    )


class Dollars(nn.Module):
    """Standardises its inputs and gives prices in dollars by constants of the training rows."""

    def __init__(self, body, x, y):
        super().__init__()
        self.body = body
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("sd", x.std(0))
        self.register_buffer("unit", torch.stack([y.mean(), y.std()]))

    def forward(self, x):
        return self.body((x - self.mean) / self.sd).squeeze(1) * self.unit[1] + self.unit[0]


@case(kind="table", author=ME)
def tw3_prices_in_dollars(seed):
    x, y = homes(seed)
    parts = ready(x, 200 * np.exp(y - 7), seed, scale=False)
    sd = parts[0][1].std().item()
    return fitted(
        Dollars(mlp(8, 64, 32, 1, act=nn.SiLU), *parts[0]),
        parts,
        lambda o, t: F.mse_loss(o / sd, t / sd),
        epochs=40,
        lr=5e-3,
        decay=1e-4,
    )


class Fourier(nn.Module):
    """Fixed random cosines and a trained linear head (random kitchen sinks)."""

    def __init__(self, inputs, width, out, scale):
        super().__init__()
        self.into = nn.Linear(inputs, width).requires_grad_(False)
        nn.init.normal_(self.into.weight, std=scale)
        nn.init.uniform_(self.into.bias, 0, 2 * np.pi)
        self.head = nn.Linear(width, out)

    def forward(self, x):
        return self.head(torch.cos(self.into(x)) * (2 / self.into.out_features) ** 0.5 * 4)


@case(kind="table", author=ME)
def tw3_random_features_frozen(seed):
    parts = ready(*rings(seed, dims=2), seed)
    net = nn.Sequential(Fourier(2, 300, 1, 1.5), nn.Flatten(0))
    return fitted(net, parts, "bce_with_logits", epochs=30, lr=1e-2, decay=1e-4)


@case(kind="table", author=ME)
def tw3_overlapping_classes(seed):
    g = np.random.default_rng(seed)
    x = g.normal(size=(4000, 8))
    y = (x @ g.normal(size=8) * 0.35 + g.logistic(size=4000) > 0).astype(float)
    parts = ready(x, y, seed)
    net = nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    return fitted(net, parts, "bce_with_logits", epochs=15, opt="momentum", lr=0.02)


@case(kind="table", author=ME)
def tw3_heavy_tails_absolute(seed):
    g = np.random.default_rng(seed)
    x = g.normal(size=(4000, 6))
    y = 3 * np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + 0.25 * g.standard_t(2.2, 4000)
    net = nn.Sequential(mlp(6, 64, 64, 1, act=nn.GELU), nn.Flatten(0))
    return fitted(net, standard(ready(x, y, seed)), F.l1_loss, epochs=30, decay=1e-4)


@case(kind="table", author=ME)
def tw3_probabilities_out(seed):
    parts = ready(*soil(seed, classes=4), seed)
    net = nn.Sequential(mlp(9, 48, 48, 4), nn.LogSoftmax(1))
    return fitted(net, parts, "nll", epochs=20, decay=1e-3, opt="adamw")


@case(kind="table", author=ME)
def tw3_log_softmax_few_given(seed):
    parts = ready(*bundled("wine"), seed, share=0.65)
    net = nn.Sequential(nn.Linear(13, 3), nn.LogSoftmax(1))
    return only(fitted(net, parts, "nll", epochs=60, batch=16, lr=2e-2, decay=1e-2), "validation", "loss")


class Residual(nn.Module):
    """Pre-norm residual blocks whose last layers begin at zero."""

    def __init__(self, inputs, width, out, depth):
        super().__init__()
        self.into, self.head = nn.Linear(inputs, width), nn.Linear(width, out)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Dropout(0.1),
                nn.Linear(width, width),
            )
            for _ in range(depth)
        )
        for b in self.blocks:
            nn.init.zeros_(b[-1].weight)
            nn.init.zeros_(b[-1].bias)

    def forward(self, x):
        h = self.into(x)
        for b in self.blocks:
            h = h + b(h)
        return self.head(h)


@case(kind="table", author=ME)
def tw3_deep_residual_zero_start(seed):
    parts = ready(*soil(seed), seed)
    return fitted(Residual(9, 32, 5, 6), parts, epochs=12, batch=128, opt="adamw", decay=0.05)


@case(kind="table", author=ME)
def tw3_survey_repeated_rows(seed):
    g = np.random.default_rng(seed)
    x = g.integers(1, 6, (5000, 4))
    z = (x[:, 0] > 3) * 1.0 + (x[:, 1] - 3) * (x[:, 2] - 3) * 0.6 - 0.4 * (x[:, 3] - 3)
    y = (g.random(5000) < 1 / (1 + np.exp(-z))).astype(float)
    parts = ready(x.astype(float), y, seed)
    net = nn.Sequential(mlp(4, 24, 12, 1, act=nn.Tanh), nn.Flatten(0))
    return fitted(net, parts, "bce_with_logits", epochs=25, lr=5e-3, batch=128)


@case(kind="table", author=ME)
def tw3_not_trained_yet(seed):
    (x, y), _ = ready(*soil(seed), seed)
    return {"model": mlp(9, 32, 32, 5).eval(), "data": (x, y)}


@case(kind="table", author=ME)
def tw3_not_trained_regression(seed):
    parts = standard(ready(*plant(seed), seed))
    net = mlp(10, 64, 64, 3, norm=True).eval()
    return {
        "model": net,
        "data": parts[0],
        "validation": parts[1],
        "loss": "mse",
        "optimizer": torch.optim.Adam(net.parameters(), 1e-3),
        "batch_size": 64,
    }


class Factors(nn.Module):
    """Users, items and their biases: a rating is a dot product."""

    def __init__(self, users, items, width, mean):
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mean = nn.Parameter(torch.tensor(mean))
        for e in (self.users, self.items, self.user_bias, self.item_bias):
            nn.init.normal_(e.weight, std=0.1)

    def forward(self, pairs):
        u, i = pairs.T
        return (
            (self.users(u) * self.items(i)).sum(1)
            + self.user_bias(u).squeeze(1)
            + self.item_bias(i).squeeze(1)
            + self.mean
        )


@case(kind="table", author=ME)
def tw3_ratings_factorised(seed):
    g = np.random.default_rng(seed)
    n, users, items = 12000, 120, 80
    pairs = np.column_stack([g.integers(0, users, n), g.integers(0, items, n)])
    pairs = np.unique(pairs, axis=0)
    p, q, b, c = (
        g.normal(size=(users, 2)),
        g.normal(size=(items, 2)),
        g.normal(size=users),
        g.normal(size=items),
    )
    u, i = pairs.T
    y = 3.4 + 0.45 * (p[u] * q[i]).sum(1) + 0.4 * b[u] + 0.5 * c[i] + 0.4 * g.normal(size=len(u))
    parts = ready(pairs, y, seed, share=0.85)
    return fitted(
        Factors(users, items, 4, float(parts[0][1].mean())),
        parts,
        "mse",
        epochs=25,
        batch=128,
        lr=1e-2,
        decay=1e-4,
    )


@case(kind="table", author=ME)
def tw3_fast_sgd(seed):
    parts = ready(*soil(seed, classes=3), seed)
    return fitted(mlp(9, 64, 3), parts, epochs=25, batch=256, opt="sgd", lr=0.5)


@case(kind="table", author=ME)
def tw3_missing_with_flags(seed):
    g = np.random.default_rng(seed)
    x, y = homes(seed)
    x[g.random(x.shape[0]) < 0.15, 1] = np.nan
    x[g.random(x.shape[0]) < 0.1, 4] = np.nan
    flags = np.isnan(x[:, [1, 4]]).astype(float)
    x = np.where(np.isnan(x), np.nanmedian(x, 0), x)
    parts = standard(ready(np.column_stack([x, flags]), y, seed))
    net = nn.Sequential(mlp(10, 64, 32, 1), nn.Flatten(0))
    return only(
        fitted(net, parts, "mse", epochs=30, decay=1e-4), "validation", "loss", "optimizer", "batch_size"
    )


class Spread(nn.Module):
    """Mean and log variance of a regression whose noise varies."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        mean, log_variance = self.body(x).unbind(1)
        return mean, log_variance.clamp(-6, 4)


def gaussian(output, y):
    mean, log_variance = output
    return F.gaussian_nll_loss(mean, y, log_variance.exp())


@case(kind="table", author=ME)
def tw3_varying_noise(seed):
    g = np.random.default_rng(seed)
    x = g.uniform(-1, 1, (3000, 4))
    y = 2 * np.sin(3 * x[:, 0]) + x[:, 1] + np.exp(x[:, 2] - 1) * g.normal(size=3000)
    net = Spread(mlp(4, 48, 48, 2, act=nn.Tanh))
    return fitted(net, standard(ready(x, y, seed)), gaussian, epochs=30, lr=3e-3)


@case(kind="table", author=ME)
def tw3_quantile(seed):
    x, y = power(seed)
    net = nn.Sequential(mlp(5, 48, 48, 1, act=nn.SiLU), nn.Flatten(0))
    return fitted(
        net,
        standard(ready(x, y, seed)),
        lambda o, t: torch.maximum(0.5 * (t - o), -0.5 * (t - o)).mean(),
        epochs=30,
        lr=5e-3,
    )


@case(kind="table", author=ME)
def tw3_several_labels(seed):
    g = np.random.default_rng(seed)
    x = g.normal(size=(4000, 10))
    z = np.tanh(x @ g.normal(size=(10, 6))) @ g.normal(size=(6, 4)) * 1.5
    y = (g.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)
    return fitted(
        mlp(10, 48, 4, act=nn.ReLU), ready(x, y, seed), "bce_with_logits", epochs=20, batch=128, decay=3e-4
    )


@case(kind="table", author=ME)
def tw3_swiss_only_data(seed):
    parts = ready(*soil(seed, n=2000, spread=0.9), seed)
    return only(fitted(mlp(9, 40, 5, drop=0.1), parts, epochs=25, decay=1e-3))
