"""Healthy set-ups of the thirteenth author that were verified."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.thirteenth_parts import Residual, bce, begin, blobs, floor, halves, mlp, real, t, trained

A = "thirteenth"


@case(kind="table", author=A)
def h13_wine_logistic(seed):
    """Wine, standardised, multinomial logistic regression with a little weight decay."""
    begin(seed)
    tr, va = real("wine", seed)
    return trained(nn.Linear(13, 3), tr, va, "cross_entropy", epochs=60, lr=0.02, batch=16, wd=1e-3)


@case(kind="table", author=A)
def h13_cancer_one_logit(seed):
    """Breast cancer, one logit, logistic regression."""
    begin(seed)
    (a, ya), (b, yb) = real("breast_cancer", seed)
    return trained(
        nn.Linear(30, 1),
        (a, ya.float()[:, None]),
        (b, yb.float()[:, None]),
        "bce_with_logits",
        epochs=40,
        lr=0.01,
        batch=32,
        wd=3e-3,
    )


@case(kind="table", author=A)
def h13_diabetes_ridge(seed):
    """Diabetes progression, linear regression by gradient descent; half of the variance is noise."""
    begin(seed)
    (a, ya), (b, yb) = real("diabetes", seed, y_scale=True)
    return trained(
        nn.Linear(10, 1), (a, ya[:, None]), (b, yb[:, None]), "mse", epochs=40, lr=0.01, batch=32, wd=1e-2
    )


@case(kind="table", author=A)
def h13_digits_table_dropout(seed):
    """Digits as a table of the pixels that vary, a net with dropout."""
    begin(seed)
    tr, va = real("digits", seed)
    return trained(
        mlp(tr[0].shape[1], 64, 10, drop=0.2), tr, va, "cross_entropy", epochs=20, lr=2e-3, wd=1e-4
    )


@case(kind="table", author=A)
def h13_linear_noise_floor(seed):
    """A linear law with as much noise as signal, linear model, plain SGD."""
    rng = begin(seed)
    x = t(rng.normal(size=(2500, 12)))
    w = t(rng.normal(size=(12, 1)) / math.sqrt(12))
    e = t(rng.normal(size=(2500, 1)))
    tr, va = halves(x, x @ w + e, 1800)
    floor((e[1800:] ** 2).mean())
    return trained(nn.Linear(12, 1), tr, va, "mse", epochs=25, lr=0.02, opt="plain", batch=32)


@case(kind="table", author=A)
def h13_friedman(seed):
    """Friedman's first function with its five idle columns, target standardised."""
    rng = begin(seed)
    x = rng.random((3000, 10))
    f = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    e = rng.normal(size=3000)
    y = (f + e - 14.4) / 5
    tr, va = halves(t((x - 0.5) * math.sqrt(12)), t(y)[:, None], 2200)
    floor((e[2200:] ** 2).mean() / 25)
    return trained(mlp(10, 48, 24, 1, act=nn.SiLU), tr, va, "mse", epochs=40, lr=4e-3, wd=1e-4, patience=10)


@case(kind="table", author=A)
def h13_three_outputs(seed):
    """Three targets at once, each with its own noise."""
    rng = begin(seed)
    x = t(rng.normal(size=(3000, 6)))
    f = torch.stack(
        [torch.sin(x[:, 0]) + 0.5 * x[:, 1], x[:, 2] * x[:, 3] * 0.7, torch.tanh(x[:, 4] - x[:, 5])], 1
    )
    e = t(rng.normal(size=(3000, 3))) * torch.tensor([0.2, 0.4, 0.3])
    tr, va = halves(x, f + e, 2200)
    floor((e[2200:] ** 2).mean())
    return trained(mlp(6, 48, 48, 3, act=nn.GELU), tr, va, "mse", epochs=40, lr=3e-3, wd=1e-4, patience=10)


@case(kind="table", author=A)
def h13_multi_label(seed):
    """Five labels that are drawn independently given the inputs, one logit each."""
    rng = begin(seed)
    x = t(rng.normal(size=(3500, 8)))
    logits = 2.0 * x @ t(rng.normal(size=(8, 5)) / 1.6)
    y = (t(rng.random((3500, 5))) < torch.sigmoid(logits)).float()
    tr, va = halves(x, y, 2500)
    floor(bce(logits[2500:], y[2500:]))
    return trained(nn.Linear(8, 5), tr, va, "bce_with_logits", epochs=25, lr=0.01, wd=1e-4)


def poisson(output, target):
    """Poisson negative log-likelihood of the log-rate."""
    return F.poisson_nll_loss(output.reshape(target.shape), target, log_input=True)


@case(kind="table", author=A)
def h13_counts_poisson(seed):
    """Counts with a log-linear rate, trained by the Poisson likelihood."""
    rng = begin(seed)
    x = rng.normal(size=(3000, 6))
    rate = 0.8 + x @ (rng.normal(size=6) * 0.3)
    y = rng.poisson(np.exp(rate)).astype(float)
    tr, va = halves(t(x), t(y)[:, None], 2000)
    floor(poisson(t(rate[2000:, None]), va[1]))
    return trained(nn.Linear(6, 1), tr, va, poisson, epochs=25, lr=0.01)


def pinball(output, target):
    """Loss of the ninth decile."""
    gap = target - output.reshape(target.shape)
    return torch.maximum(0.9 * gap, -0.1 * gap).mean()


@case(kind="table", author=A)
def h13_ninth_decile(seed):
    """Regression of an upper quantile, where the noise grows with an input."""
    rng = begin(seed)
    x = rng.uniform(-1, 1, size=(3500, 3))
    s = 0.2 + 0.3 * (x[:, 1] > 0) * x[:, 1]
    f = np.sin(3 * x[:, 0]) + x[:, 2]
    y = f + s * rng.normal(size=3500)
    tr, va = halves(t(x), t(y)[:, None], 2500)
    floor(pinball(t((f + 1.2816 * s)[2500:, None]), va[1]))
    return trained(mlp(3, 32, 32, 1), tr, va, pinball, epochs=40, lr=3e-3, wd=1e-5)


@case(kind="table", author=A)
def h13_overlap_at_bayes(seed):
    """Four overlapping Gaussians; a linear model reaches the Bayes rate and no more is possible."""
    rng = begin(seed)
    x, y, logits = blobs(rng, 3500, 6, 4, 1.6)
    tr, va = halves(x, y, 2500)
    floor(F.cross_entropy(logits[2500:], y[2500:]))
    return trained(nn.Linear(6, 4), tr, va, "cross_entropy", epochs=25, lr=0.01, batch=64)


@case(kind="table", author=A)
def h13_rings(seed):
    """Two rings that touch, two inputs, a small net."""
    rng = begin(seed)
    y = rng.integers(2, size=2500)
    r, a = 1 + 1.0 * y + 0.22 * rng.normal(size=2500), rng.uniform(0, 2 * np.pi, 2500)
    tr, va = halves(t(np.stack([r * np.cos(a), r * np.sin(a)], 1)), t(y), 1700)
    return trained(mlp(2, 32, 16, 2), tr, va, "cross_entropy", epochs=40, lr=4e-3, give="")


@case(kind="table", author=A)
def h13_imbalance_handled(seed):
    """One row in twelve is of the rare class, which is told apart well without weights."""
    rng = begin(seed)
    x, y, logits = blobs(rng, 4000, 8, 2, 2.6, weights=[11 / 12, 1 / 12])
    tr, va = halves(x, y, 2800)
    floor(F.cross_entropy(logits[2800:], y[2800:]))
    return trained(nn.Linear(8, 2), tr, va, "cross_entropy", epochs=25, lr=0.01)


WEIGHTS = torch.tensor([0.6, 3.0])


def weighted(output, target):
    """Cross-entropy that counts the rare class more."""
    return F.cross_entropy(output, target, weight=WEIGHTS)


@case(kind="table", author=A)
def h13_weighted_rare_class(seed):
    """A rare class with a weighted loss; the classes lie well apart."""
    rng = begin(seed)
    x, y, _ = blobs(rng, 3500, 10, 2, 4.2, weights=[5 / 6, 1 / 6])
    tr, va = halves(x, y, 2400)
    return trained(mlp(10, 16, 2), tr, va, weighted, epochs=12, lr=3e-3, wd=1e-3)


class Mixed(nn.Module):
    """Numbers beside two embedded categories."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Embedding(12, 4), nn.Embedding(5, 3)
        self.net = mlp(5 + 7, 32, 1)

    def forward(self, numbers, codes):
        return self.net(torch.cat([numbers, self.one(codes[:, 0]), self.two(codes[:, 1])], 1))


@case(kind="table", author=A)
def h13_categories_embedded(seed):
    """Numbers and two categories in a tuple, regression."""
    rng = begin(seed)
    n = 3500
    x, c = rng.normal(size=(n, 5)), np.stack([rng.integers(12, size=n), rng.integers(5, size=n)], 1)
    f = x[:, 0] * 0.6 + rng.normal(size=12)[c[:, 0]] * 0.7 + rng.normal(size=5)[c[:, 1]] * x[:, 1] * 0.5
    e = 0.3 * rng.normal(size=n)
    tr, va = halves((t(x), t(c)), t(f + e)[:, None], 2600)
    floor((e[2600:] ** 2).mean())
    return trained(Mixed(), tr, va, "mse", epochs=35, lr=5e-3, wd=1e-5, patience=8)


@case(kind="table", author=A)
def h13_residual_layernorm(seed):
    """A residual net with layer normalisation on a smooth regression."""
    rng = begin(seed)
    x = t(rng.uniform(-2, 2, size=(3000, 5)))
    f = torch.sin(x[:, :1] * 1.5) + 0.3 * x[:, 1:2] * x[:, 2:3] - 0.4 * x[:, 3:4].abs()
    e = 0.25 * t(rng.normal(size=(3000, 1)))
    tr, va = halves(x, f + e, 2200)
    floor((e[2200:] ** 2).mean())
    return trained(Residual(5, 32, 1, 3), tr, va, "mse", epochs=25, lr=2e-3, wd=1e-3, opt="adamw", patience=8)


@case(kind="table", author=A)
def h13_batchnorm_net(seed):
    """Batch normalisation, five classes."""
    rng = begin(seed)
    x, y, logits = blobs(rng, 3500, 10, 5, 2.8)
    tr, va = halves(x, y, 2500)
    floor(F.cross_entropy(logits[2500:], y[2500:]))
    return trained(
        mlp(10, 24, 5, norm=nn.BatchNorm1d), tr, va, "cross_entropy", epochs=12, lr=3e-3, wd=1e-3, batch=125
    )


@case(kind="table", author=A)
def h13_fast_sgd(seed):
    """Momentum SGD with a brisk learning rate that falls to a tenth."""
    rng = begin(seed)
    x = t(rng.normal(size=(3000, 4)))
    f = torch.tanh(x[:, :1] * 2) * x[:, 1:2] + 0.5 * x[:, 2:3]
    e = 0.2 * t(rng.normal(size=(3000, 1)))
    tr, va = halves(x, f + e, 2200)
    floor((e[2200:] ** 2).mean())
    return trained(
        mlp(4, 40, 40, 1),
        tr,
        va,
        "mse",
        epochs=35,
        opt="sgd",
        lr=0.05,
        schedule=lambda k: 0.005 + 0.045 * (1 + math.cos(math.pi * k / 35)) / 2,
    )


@case(kind="table", author=A)
def h13_heavy_tails_huber(seed):
    """Student noise of three degrees of freedom, Huber's loss."""
    rng = begin(seed)
    x = t(rng.normal(size=(3000, 8)))
    e = t(0.4 * rng.standard_t(3, size=(3000, 1)))
    f = x @ t(rng.normal(size=(8, 1)) / 2.8)
    tr, va = halves(x, f + e, 2000)
    floor(F.huber_loss(f[2000:], va[1]))
    return trained(nn.Linear(8, 1), tr, va, nn.HuberLoss(), epochs=25, lr=0.01)


class Fourier(nn.Module):
    """Fixed sines and cosines before a linear layer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.arange(1, 9).float())
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.cat([torch.sin(x * self.k), torch.cos(x * self.k)], 1))


@case(kind="table", author=A)
def h13_fourier_features(seed):
    """A periodic function of one variable by fixed Fourier features."""
    rng = begin(seed)
    x = rng.uniform(-np.pi, np.pi, size=(1500, 1))
    f = np.sin(2 * x) + 0.5 * np.cos(5 * x)
    e = 0.2 * rng.normal(size=x.shape)
    tr, va = halves(t(x), t(f + e), 1000)
    floor((e[1000:] ** 2).mean())
    return trained(Fourier(), tr, va, "mse", epochs=40, lr=0.01, batch=32, give="bh")
