"""A harbour in good order, its tables: odd columns and odd losses that are right."""

from __future__ import annotations

import math

import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_parts import *

ME = "eighteenth"


def healthy(kind="table"):
    return case(kind=kind, author=ME)


# --- columns that look odd -------------------------------------------------------------------------------------------


@healthy()
def k_tide_by_the_clock(seed):
    """Hours and weekdays as sines and cosines."""
    r = rng(seed, 72)
    hour, day = r.uniform(0, 24, size=2400), r.integers(7, size=2400)
    h, d = 2 * np.pi * hour / 24, 2 * np.pi * day / 7
    x = np.c_[np.sin(h), np.cos(h), np.sin(2 * h), np.cos(2 * h), np.sin(d), np.cos(d)]
    y = np.sin(2 * h + 0.5) + 0.5 * np.cos(h) * (day < 5) + 0.3 * r.normal(size=2400)
    return fit(mlp(6, 48, 1), *cut(real(x), real(y)[:, None]), "mse", epochs=25, lr=5e-3, cosine=True)


@healthy()
def k_powers_of_speed(seed):
    r = rng(seed, 73)
    s = r.uniform(-1.5, 1.5, size=(1500, 1))
    x = np.concatenate([s, s**2, s**3, r.normal(size=(1500, 2))], 1)
    y = s[:, 0] ** 3 - s[:, 0] + 0.5 * x[:, 3] + 0.3 * r.normal(size=1500)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return fit(nn.Linear(5, 1), *cut(real(x), real(y)[:, None]), "mse", epochs=30)


@healthy()
def k_gaps_marked_as_gaps(seed):
    (x, y), (vx, vy) = voyage(seed, n=2400)
    parts = []
    for a, b in ((x, y), (vx, vy)):
        gone = torch.rand(len(a), 2) < 0.12
        a = a.clone()
        a[:, [3, 5]] = a[:, [3, 5]].masked_fill(gone, 0.0)
        parts.append((torch.cat([a, gone.float()], 1), b))
    return fit(mlp(8, 48, 1), *parts, "mse", epochs=30, lr=5e-3, cosine=True)


@healthy()
def k_freak_waves(seed):
    """Standardised columns with heavy tails, and an error that forgives outliers."""
    r = rng(seed, 74)
    x = r.standard_t(2.7, size=(2400, 5))
    x /= x.std(0)
    y = x @ r.normal(size=5) / 2 + 0.3 * r.standard_t(3, size=2400)
    return fit(mlp(5, 1), *cut(real(x), real(y / y.std())[:, None]), F.smooth_l1_loss, epochs=20)


@healthy()
def k_rare_goods_one_hot(seed):
    """Forty kinds of goods, most of them seen a few times, one column each."""
    r = rng(seed, 75)
    share = 1 / (np.arange(40) + 2.0) ** 1.3
    kind = r.choice(40, size=4000, p=share / share.sum())
    kind[:40], kind[2900:2940] = np.arange(40), np.arange(40)
    effect = r.normal(size=(40, 3))
    dense = r.normal(size=(4000, 4))
    scores = 1.5 * effect[kind] + dense @ r.normal(size=(4, 3))
    y = (scores + r.gumbel(size=scores.shape)).argmax(1)
    x = np.c_[np.eye(40)[kind], dense]
    return fit(mlp(44, 16, 3), *cut(real(x), whole(y)), epochs=7, lr=5e-3, wd=0.05)


class Consignee(nn.Module):
    def __init__(self):
        super().__init__()
        self.who = nn.Embedding(300, 4)
        nn.init.normal_(self.who.weight, std=0.1)
        self.net = mlp(4 + 5, 32, 1)

    def forward(self, who, x):
        return self.net(torch.cat([self.who(who), x], 1))


@healthy()
def k_three_hundred_consignees(seed):
    """Most of the ids are seen once or twice, some never."""
    r = rng(seed, 76)
    share = 1 / (np.arange(300) + 1.0)
    who = r.choice(300, size=3000, p=share / share.sum())
    x = r.normal(size=(3000, 5))
    y = 0.5 * r.normal(size=300)[who] + x @ r.normal(size=5) / 2 + 0.4 * r.normal(size=3000)
    return fit(
        Consignee(),
        *cut((whole(who), real(x)), real((y - y.mean()) / y.std())[:, None]),
        "mse",
        epochs=12,
        lr=4e-3,
        wd=0.3,
    )


@healthy()
def k_two_gauges_nearly_alike(seed):
    r = rng(seed, 77)
    level = r.normal(size=2000)
    x = np.c_[level[:, None] + 0.2 * r.normal(size=(2000, 2)), r.normal(size=(2000, 3))]
    y = level + 0.5 * x[:, 2] + 0.3 * r.normal(size=2000)
    return fit(mlp(5, 16, 1), *cut(real(x), real(y / y.std())[:, None]), "mse", epochs=12, cosine=True)


@healthy()
def k_forms_with_few_answers(seed):
    """Five questions of two to four answers: the same rows come again by nature, in the held-out part too."""
    r = rng(seed, 78)
    x = np.stack([r.integers(k, size=2400) for k in (2, 3, 4, 2, 3)], 1)
    scores = (x - x.mean(0)) @ r.normal(size=(5, 2)) * 1.2
    y = (scores + r.gumbel(size=scores.shape)).argmax(1)
    return fit(mlp(5, 16, 2), *cut(real((x - x.mean(0)) / x.std(0)), whole(y)), epochs=8, lr=5e-3)


@healthy()
def k_years_in_order(seed):
    """Rows by date, with a season that both parts have seen and no drift."""
    r = rng(seed, 79)
    t = np.arange(2400) / 120
    s = 2 * np.pi * t
    x = np.c_[np.sin(s), np.cos(s), r.normal(size=(2400, 3))]
    y = np.sin(s) * x[:, 2] + 0.6 * x[:, 3] + 0.3 * r.normal(size=2400)
    return fit(
        mlp(5, 32, 1), *cut(real(x), real(y / y.std())[:, None]), "mse", epochs=20, lr=8e-3, cosine=True
    )


@healthy()
def k_small_fleet_with_decay(seed):
    r = rng(seed, 80)
    x = r.normal(size=(360, 6))
    y = x @ r.normal(size=6) / 2 + 0.5 * r.normal(size=360)
    return fit(
        mlp(6, 8, 1, act=nn.Tanh),
        *cut(real(x), real(y / y.std())[:, None], 0.3),
        "mse",
        epochs=60,
        batch=16,
        lr=5e-3,
        wd=0.3,
    )


@healthy()
def k_moored_side_by_side(seed):
    """Two kinds of ship that nobody can tell apart more often than three times in four."""
    r = rng(seed, 81)
    y = r.integers(2, size=2400)
    x = r.normal(size=(2400, 4)) + 0.35 * (2 * y[:, None] - 1) * np.array([1, -1, 1, 1])
    return fit(mlp(4, 12, 2), *cut(real(x), whole(y)), epochs=5, lr=4e-3)


@healthy()
def k_rare_and_plain_to_see(seed):
    r = rng(seed, 82)
    y = (r.random(6000) < 0.05).astype(int)
    x = r.normal(size=(6000, 6))
    x[y == 1, :4] += 2.4
    return fit(mlp(6, 16, 2), *cut(real(x), whole(y)), epochs=8, lr=5e-3, wd=0.05)


@healthy()
def k_weighted_for_the_rare(seed):
    r = rng(seed, 83)
    y = (r.random(3000) < 0.12).astype(int)
    x = r.normal(size=(3000, 6))
    x[y == 1, :3] += 1.7
    weight = torch.tensor([1.0, 2.5])
    return fit(
        mlp(6, 12, 2),
        *cut(real(x), whole(y)),
        lambda o, t: F.cross_entropy(o, t, weight),
        epochs=8,
        lr=5e-3,
        wd=0.05,
    )


@healthy()
def k_wine_landed(seed):
    x, y = load_wine(return_X_y=True)
    order = rng(seed, 84).permutation(len(y))
    x = ((x - x.mean(0)) / x.std(0))[order]
    return fit(
        mlp(13, 8, 3, act=nn.Tanh), *cut(real(x), whole(y[order]), 0.6), epochs=25, batch=16, lr=5e-3, wd=0.5
    )


@healthy()
def k_ship_doctor(seed):
    x, y = load_breast_cancer(return_X_y=True)
    order = rng(seed, 85).permutation(len(y))
    x = ((x - x.mean(0)) / x.std(0))[order]
    net = nn.Sequential(nn.Linear(30, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))
    return fit(net, *cut(real(x), real(y[order])), "bce_with_logits", epochs=12, batch=32, lr=4e-3, wd=0.5)


@healthy()
def k_sailors_sugar(seed):
    x, y = load_diabetes(return_X_y=True, scaled=False)
    order = rng(seed, 86).permutation(len(y))
    x, y = ((x - x.mean(0)) / x.std(0))[order], ((y - y.mean()) / y.std())[order]
    return fit(
        mlp(10, 6, 1, act=nn.Tanh),
        *cut(real(x), real(y)[:, None]),
        "mse",
        epochs=20,
        batch=32,
        lr=4e-3,
        wd=0.5,
        tell=(),
    )


# --- losses ----------------------------------------------------------------------------------------------------------


def risks(seed, salt, n=4000):
    r = rng(seed, salt)
    x = r.normal(size=(n, 5))
    return r, x, 0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * np.tanh(2 * x[:, 2])


@healthy()
def k_boxes_per_hour_poisson(seed):
    r, x, eta = risks(seed, 87)
    y = r.poisson(np.exp(1 + eta))
    return fit(
        mlp(5, 16, 1),
        *cut(real(x), real(y)[:, None]),
        lambda o, t: F.poisson_nll_loss(o, t),
        epochs=16,
        lr=5e-3,
    )


@healthy()
def k_counts_in_counts_out(seed):
    """Whole numbers as inputs, the expected number as the output (a softplus keeps it above nought)."""
    r = rng(seed, 88)
    x = r.poisson([1.0, 2.0, 3.0, 0.5], size=(2400, 4))
    y = r.poisson(0.5 + 0.6 * x[:, 0] + 0.3 * x[:, 1] * (x[:, 2] > 2))
    net = nn.Sequential(mlp(4, 32, 1), nn.Softplus())
    return fit(
        net,
        *cut(real(x), real(y)[:, None]),
        lambda o, t: F.poisson_nll_loss(o, t, log_input=False),
        epochs=15,
        lr=5e-3,
    )


@healthy()
def k_claims_gamma(seed):
    r, x, eta = risks(seed, 89)
    y = r.gamma(2.0, np.exp(eta) / 2)
    return fit(
        mlp(5, 16, 1),
        *cut(real(x), real(y)[:, None]),
        lambda o, t: (o + t * (-o).exp()).mean(),
        epochs=10,
        lr=5e-3,
    )


@healthy()
def k_salvage_tweedie(seed):
    """Most voyages cost nothing; the others cost much."""
    r, x, eta = risks(seed, 90, 3000)
    n = r.poisson(0.6 * np.exp(eta))
    y = np.where(n > 0, r.gamma(np.maximum(n, 1) * 2.0, 0.5), 0.0)

    def tweedie(o, t, p=1.5):
        return (-t * ((1 - p) * o).exp() / (1 - p) + ((2 - p) * o).exp() / (2 - p)).mean()

    return fit(mlp(5, 12, 1), *cut(real(x), real(y)[:, None]), tweedie, epochs=8, lr=5e-3)


@healthy()
def k_arrival_late_rather_than_early(seed):
    """The ninth decile of the delay."""
    r, x, eta = risks(seed, 91)
    y = eta + r.exponential(0.5, size=len(eta))

    def pinball(o, t):
        return torch.maximum(0.9 * (t - o), -0.1 * (t - o)).mean()

    return fit(mlp(5, 24, 1), *cut(real(x), real(y)[:, None]), pinball, epochs=15, lr=5e-3, cosine=True)


@healthy()
def k_arrival_huber(seed):
    r, x, eta = risks(seed, 92)
    y = 2 * eta + 0.4 * r.standard_t(2.5, size=len(eta))
    return fit(mlp(5, 24, 1), *cut(real(x), real(y)[:, None]), F.huber_loss, epochs=10, lr=5e-3, cosine=True)


@healthy()
def k_arrival_log_cosh(seed):
    def log_cosh(o, t):
        e = o - t
        return (e + F.softplus(-2 * e) - math.log(2)).mean()

    return fit(
        mlp(6, 48, 32, 1, act=nn.ReLU), *voyage(seed, n=3000), log_cosh, epochs=30, lr=8e-3, cosine=True
    )


@healthy()
def k_freight_in_logarithms(seed):
    r = rng(seed, 93)
    x = np.exp(r.normal(size=(2400, 4)))
    y = np.exp(9) * x[:, 0] ** 0.7 * x[:, 1] ** -0.4 * (1 + x[:, 2]) * np.exp(0.2 * r.normal(size=2400))
    x, y = np.log(x), np.log(y)
    return fit(
        mlp(4, 24, 1), *cut(real(x), real(y - y.mean())[:, None]), "mse", epochs=20, lr=8e-3, cosine=True
    )


class Unsure(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mean, self.spread = mlp(5, 24, 24), nn.Linear(24, 1), nn.Linear(24, 1)

    def forward(self, x):
        h = self.body(x).relu()
        return self.mean(h), self.spread(h)


@healthy()
def k_delay_and_its_spread(seed):
    r, x, eta = risks(seed, 94)
    y = 1.5 * eta + np.exp(-0.7 + 0.6 * x[:, 3]) * r.normal(size=len(eta))

    def gauss(o, t):
        mean, log_variance = o
        return 0.5 * (log_variance + (t - mean) ** 2 * (-log_variance).exp()).mean()

    return fit(Unsure(), *cut(real(x), real(y)[:, None]), gauss, epochs=12, lr=4e-3, clip=5.0, cosine=True)


class Mixed(nn.Module):
    """A mixture of Gaussians; the mean first, for those who want one number."""

    def __init__(self, parts=3):
        super().__init__()
        self.net = mlp(5, 32, 3 * parts, act=nn.Tanh)

    def forward(self, x):
        weight, place, spread = self.net(x).chunk(3, 1)
        weight = weight.log_softmax(1)
        return (weight.exp() * place).sum(1, keepdim=True), weight, place, spread


@healthy()
def k_two_channels_mixture_density(seed):
    r, x, eta = risks(seed, 95)
    y = eta + np.where(r.random(len(eta)) < 0.5, 1.2, -0.8) + 0.25 * r.normal(size=len(eta))

    def mixture(o, t):
        _, weight, place, spread = o
        return -torch.logsumexp(weight - spread - 0.5 * ((t - place) / spread.exp()) ** 2, 1).mean()

    return fit(Mixed(), *cut(real(x), real(y)[:, None]), mixture, epochs=15, lr=5e-3, cosine=True)


@healthy()
def k_sea_state_in_steps(seed):
    """Sea state 0-4 as four questions: at least one, at least two, ..."""
    r, x, eta = risks(seed, 96)
    state = np.digitize(2.5 * eta + r.logistic(size=len(eta)), [-2, -0.5, 0.5, 2])
    y = (state[:, None] > np.arange(4)).astype(float)
    return fit(mlp(5, 16, 4), *cut(real(x), real(y)), "bce_with_logits", epochs=10, lr=5e-3)


@healthy()
def k_repair_times_cox(seed):
    """Times until repair, negative where the ship left before."""
    r, x, eta = risks(seed, 97)
    t, left = r.exponential(np.exp(-1.5 * eta)), r.exponential(2.0, size=len(eta))
    y = np.where(t < left, t, -left)

    def cox(o, target):
        o, target = o.reshape(-1), target.reshape(-1)
        order = target.abs().argsort(descending=True)
        o, event = o[order], (target[order] > 0).float()
        return -((o - torch.logcumsumexp(o, 0)) * event).sum() / event.sum().clamp(min=1)

    return fit(mlp(5, 16, 1), *cut(real(x), real(y)[:, None]), cox, epochs=10, lr=5e-3, batch=128)


@healthy()
def k_permits_many_at_once(seed):
    r = rng(seed, 98)
    x = r.normal(size=(5000, 8))
    y = (x @ r.normal(size=(8, 5)) + np.array([0, 1, -1, -1.5, 0]) + r.logistic(size=(5000, 5)) > 0).astype(
        float
    )
    return fit(mlp(8, 24, 5), *cut(real(x), real(y)), "bce_with_logits", epochs=8, lr=5e-3)


@healthy()
def k_delay_and_damage_together(seed):
    """Two tasks on one body: the first column is a number, the second a yes or no."""
    r, x, eta = risks(seed, 99)
    y = np.c_[1.5 * eta + 0.4 * r.normal(size=len(eta)), 2 * x[:, 3] - eta + r.logistic(size=len(eta)) > 0]

    def both(o, t):
        return F.mse_loss(o[:, 0], t[:, 0]) + F.binary_cross_entropy_with_logits(o[:, 1], t[:, 1])

    return fit(mlp(5, 32, 2), *cut(real(x), real(y)), both, epochs=12, lr=5e-3, cosine=True)


@healthy()
def k_apprentice_of_the_pilot(seed):
    """A student of a bigger net's probabilities."""
    (x, y), (vx, vy) = cargo(seed, n=3000)
    teacher = fit(mlp(8, 48, 3), (x, y), epochs=5, lr=5e-3, tell=())["model"]
    with torch.no_grad():
        soft, held = teacher(x).softmax(1), teacher(vx).softmax(1)
    return fit(mlp(8, 24, 3), (x, soft), (vx, held), lambda o, t: F.cross_entropy(o, t), epochs=15, lr=5e-3)


@healthy()
def k_margins_hinge(seed):
    return fit(
        mlp(8, 24, 3),
        *cargo(seed, n=4000, sharp=5.0),
        lambda o, y: F.multi_margin_loss(o, y),
        epochs=10,
        lr=5e-3,
    )
