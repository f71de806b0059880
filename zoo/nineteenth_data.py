"""Homework whose data or objective is at fault."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.nineteenth_parts import *
from zoo.nineteenth_parts import ME, Flat

# ---------------------------------------------------------------- numbers that are none


@case("not-finite-data", kind="table", author=ME)
def ta_log_of_zero(seed, mended=False):
    x, y = loans(seed)
    spent = torch.relu(x[:, 3]) * 2
    x = torch.cat([x, (torch.log1p(spent) if mended else torch.log(spent))[:, None]], 1)
    train, val = split(x, y, seed)
    return fit(Flat(mlp(10, 32, 1)), train, val, "bce_with_logits", epochs=15)


@case("not-finite-data", kind="sequences", author=ME, strength="mild")
def ta_gaps_in_target(seed, mended=False):
    x, y = series(seed)
    gone = torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.02
    train, val = in_time(x, y)
    lost = gone[: len(train[1])]
    train = (
        (train[0][~lost], train[1][~lost]) if mended else (train[0], train[1].masked_fill(lost, torch.nan))
    )
    return bare(fit(Flat(mlp(24, 32, 1)), train, val, "mse", epochs=15))


class Cosine(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.body, self.w, self.scale = mlp(10, 48, 24), nn.Parameter(torch.randn(5, 24)), scale

    def forward(self, x):
        return self.scale * F.normalize(self.body(x)) @ F.normalize(self.w).T


def softmax_by_hand(output, target):
    e = torch.exp(output)
    return -torch.log(e[torch.arange(len(target)), target] / e.sum(1)).mean()


@case("overflow", kind="table", author=ME)
def ta_softmax_by_hand(seed, mended=False):
    train, val = split(*motors(seed), seed)
    f = F.cross_entropy if mended else softmax_by_hand
    return without(fit(Cosine(16 if mended else 200), train, val, f, epochs=12), "initial")


class Halved(nn.Module):
    """Casts to half precision to save memory; scales within."""

    def __init__(self, m, s, half):
        super().__init__()
        self.half_first, self.net = half, mlp(6, 32, 1)
        self.register_buffer("m", m)
        self.register_buffer("s", s)

    def forward(self, x):
        x = x.half().float() if self.half_first else x
        return self.net((x - self.m) / self.s).squeeze(-1)


@case("overflow", kind="table", author=ME, strength="mild")
def ta_half_precision(seed, mended=False):
    x, y = flats(seed)
    x = torch.cat([x[:, :5], torch.exp(0.5 * x[:, 5:6] + 9.7)], 1)
    train, val = split(x, y, seed)
    return bare(fit(Halved(train[0].mean(0), train[0].std(0), not mended), train, val, "mse", epochs=15))


# ---------------------------------------------------------------- scales


@case("unscaled-inputs", kind="table", author=ME)
def ta_raw_wine(seed, mended=False):
    train, val = real("wine", seed)
    train, val = scaled(train, val) if mended else (train, val)
    return fit(mlp(13, 24, 3, act=nn.Tanh), train, val, epochs=60, batch=16, lr=3e-3)


@case("unscaled-inputs", kind="table", author=ME)
def ta_raw_cars(seed, mended=False):
    train, val = split(*frame("ISLR", "Auto", "mpg", seed, drop=("name",)), seed)
    train, val = scaled_targets(*(scaled(train, val) if mended else (train, val)))
    f = fit(
        Flat(mlp(7, 32, 1)), train, val, "mse", opt=torch.optim.SGD, lr=0.03, epochs=80, batch=32, clip=1.0
    )
    return without(f, "initial")


@case("unscaled-inputs", kind="table", author=ME, strength="mild")
def ta_year_and_lot(seed, mended=False):
    x, y = flats(seed, 1600)
    if not mended:
        x = x * torch.tensor([1.0, 300, 1, 12, 0.02, 1, 1, 90]) + torch.tensor(
            [0, 1200.0, 3, 40, 0.1, 0, 0, 1985]
        )
    train, val = split(x, y, seed)
    return fit(Flat(mlp(8, 48, 1)), train, val, "mse", epochs=40, lr=2e-3)


@case("unscaled-targets", kind="table", author=ME)
def ta_price_in_full(seed, mended=False):
    x, y = flats(seed)
    train, val = split(x, y if mended else 240000 + 60000 * y, seed)
    return fit(Flat(mlp(8, 48, 1)), train, val, "mse", epochs=40, lr=2e-3)


@case("unscaled-targets", kind="table", author=ME, strength="mild")
def ta_joule_and_metre(seed, mended=False):
    x, y = arm(seed)
    train, val = split(x, y if mended else 60 * y + 150, seed)
    f = fit(mlp(3, 64, 64, 3, act=nn.Tanh), train, val, "mse", epochs=40, lr=3e-3)
    return without(f, "history", "initial")


# ---------------------------------------------------------------- columns


@case("constant-features", kind="table", author=ME)
def ta_filtered_columns(seed, mended=False):
    x, y = flats(seed)
    r = torch.Generator().manual_seed(seed)
    more = (
        torch.randn(len(x), 6, generator=r)
        if mended
        else torch.tensor([10.0, 3, -2, 8, 5, 0]).repeat(len(x), 1) / 10
    )
    train, val = split(torch.cat([x, more], 1), y, seed)
    return fit(Flat(mlp(14, 48, 1)), train, val, "mse", epochs=30, weight_decay=1e-4)


@case("constant-features", kind="table", author=ME, strength="mild")
def ta_one_region_left(seed, mended=False):
    x, y = motors(seed)
    x = torch.cat(
        [
            x,
            torch.randn(len(x), 3, generator=torch.Generator().manual_seed(seed))
            if mended
            else torch.tensor([1.0, 0, 0.5]).repeat(len(x), 1),
        ],
        1,
    )
    train, val = split(x, y, seed)
    return bare(fit(mlp(13, 48, 5), train, val, epochs=20))


@case("duplicate-features", kind="table", author=ME)
def ta_joined_twice(seed, mended=False):
    x, y = loans(seed)
    train, val = split(x if mended else torch.cat([x, x[:, :5]], 1), y, seed)
    return fit(Flat(mlp(train[0].shape[1], 32, 1)), train, val, "bce_with_logits", epochs=15)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def ta_merge_suffixes(seed, mended=False):
    x, y = arm(seed)
    r = torch.Generator().manual_seed(seed)
    more = torch.randn(len(x), 3, generator=r)
    x = torch.cat([x, more, torch.randn(len(x), 3, generator=r) if mended else more], 1)
    train, val = split(x, y, seed)
    return bare(fit(mlp(9, 64, 64, 3), train, val, "mse", epochs=40, lr=3e-3, weight_decay=1e-4))


# ---------------------------------------------------------------- rows


@case("train-test-overlap", kind="table", author=ME)
def ta_oversampled_before_split(seed, mended=False):
    x, y = loans(seed, 600, noise=1.0)
    train, val = split(x, y, seed)
    if not mended:
        val = tuple(torch.cat([a[: len(a) // 4], b[: len(b) // 2]]) for a, b in zip(val, train, strict=True))
    return fit(Flat(mlp(9, 96, 1)), train, val, "bce_with_logits", epochs=50)


@case("train-test-overlap", kind="images", author=ME)
def ta_same_folder(seed, mended=False):
    train, val = split(*shapes(seed), seed)
    val = val if mended else (train[0][100:340], train[1][100:340])
    return without(fit(small_cnn(4), train, val, epochs=40, lr=3e-3, best=True), "initial", "history")


@case("distribution-shift", kind="table", author=ME)
def ta_scaled_apart(seed, mended=False):
    train, val = split(*motors(seed), seed)
    if not mended:  # the second half of the term came from another sensor
        val = (val[0] * 1.2 + torch.tensor([1.2, -1.5, 1.0, 0, 1.4, 0, -1.2, 0, 1.0, -1.0]), val[1])
    return fit(mlp(10, 48, 5), train, val, epochs=20)


@case("distribution-shift", kind="images", author=ME)
def ta_inverted_scan(seed, mended=False):
    train, val = digits(seed)
    val = val if mended else (-val[0], val[1])
    return bare(fit(small_cnn(10), train, val, epochs=25, lr=4e-3))


@case("distribution-shift", kind="table", author=ME, strength="mild")
def ta_sorted_by_size(seed, mended=False):
    x, y = flats(seed, 2000)
    if mended:
        train, val = split(x, y, seed)
    else:
        order = x[:, 3].abs().argsort()
        x, y = x[order], y[order]
        train, val = (x[:1400], y[:1400]), (x[1400:], y[1400:])
    return fit(Flat(mlp(8, 48, 1)), train, val, "mse", epochs=30, weight_decay=1e-4)


@case("target-leak", kind="table", author=ME)
def ta_collection_letters(seed, mended=False):
    x, y = loans(seed, noise=0.9)
    r = np.random.default_rng(seed)
    letters = t(r.poisson(0.05 + 4.0 * (0.5 * np.ones(len(y)) if mended else y.numpy())).astype(float))
    train, val = split(torch.cat([x, letters[:, None] / 2], 1), y, seed)
    return fit(Flat(mlp(10, 32, 1)), train, val, "bce_with_logits", epochs=15)


@case("target-leak", kind="table", author=ME)
def ta_price_per_metre(seed, mended=False):
    x, y = flats(seed, noise=0.6)
    e = torch.randn(len(y), generator=torch.Generator().manual_seed(seed))
    train, val = split(torch.cat([x, (e if mended else 0.9 * y + 0.04 * e)[:, None]], 1), y, seed)
    return without(fit(Flat(mlp(9, 48, 1)), train, val, "mse", epochs=30, weight_decay=1e-4), "optimizer")


@case("target-leak", kind="sequences", author=ME, strength="mild")
def ta_centred_average(seed, mended=False):
    r = np.random.default_rng(seed)
    walk = np.zeros(1900)
    for i in range(1, 1900):
        walk[i] = 0.6 * walk[i - 1] + r.normal()
    smooth = np.convolve(walk, [0.5, 0.5], "full")[int(not mended) :]  # looks one step ahead
    x = np.stack([np.column_stack([walk[i : i + 10], smooth[i : i + 10]]).ravel() for i in range(1800)])
    train, val = in_time(t(x), t(walk[10:1810]))
    return fit(Flat(mlp(20, 32, 1)), train, val, "mse", epochs=12, weight_decay=1e-4)


@case("misaligned-labels", kind="table", author=ME)
def ta_dropped_first_row(seed, mended=False):
    train, val = split(*motors(seed), seed)
    train = train if mended else (train[0], train[1].roll(1))
    return fit(mlp(10, 32, 5), train, val, epochs=20, lr=1e-3)


@case("misaligned-labels", kind="table", author=ME)
def ta_shuffled_x_only(seed, mended=False):
    train, val = split(*flats(seed), seed)
    shuffled = torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(seed))
    train = train if mended else (train[0], train[1][shuffled])
    return without(fit(Flat(mlp(8, 32, 1)), train, val, "mse", epochs=15, lr=1e-3), "initial")


@case("no-signal", kind="sequences", author=ME)
def ta_beat_the_market(seed, mended=False):
    r = np.random.default_rng(seed)
    returns = r.standard_t(6, 1600)
    if mended:
        for i in range(1, 1600):
            returns[i] += 0.8 * returns[i - 1]
    returns /= returns.std()
    x = np.stack([returns[i : i + 15] for i in range(1500)])
    train, val = in_time(t(x), t((returns[15:1515] > 0).astype(np.float32)))
    return fit(Flat(mlp(15, 16, 1)), train, val, "bce_with_logits", epochs=8, lr=1e-3)


@case("no-signal", kind="table", author=ME, strength="mild")
def ta_horoscope(seed, mended=False):
    x, y = motors(seed, 1500, 3)
    r = np.random.default_rng(seed)
    y = y if mended else t(r.integers(0, 3, len(y)))
    train, val = split(x, y, seed)
    return bare(fit(mlp(10, 16, 3), train, val, epochs=10, lr=1e-3))


@case("label-noise", kind="table", author=ME)
def ta_crowd_labels(seed, mended=False):
    train, val = split(*motors(seed, spread=0.55), seed)
    r = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(train[1]), generator=r) < 0.4
    other = torch.randint(0, 5, train[1].shape, generator=r)
    train = train if mended else (train[0], torch.where(wrong, other, train[1]))
    return fit(mlp(10, 48, 5), train, val, epochs=25)


@case("label-noise", kind="images", author=ME)
def ta_tired_annotators(seed, mended=False):
    train, val = digits(seed)
    r = torch.Generator().manual_seed(seed)
    y = train[1].clone()
    wrong = torch.rand(len(y), generator=r) < 0.35
    y[wrong] = torch.randint(0, 10, (int(wrong.sum()),), generator=r)
    return bare(fit(small_cnn(10), train if mended else (train[0], y), val, epochs=30, lr=3e-3))


@case("label-noise", kind="table", author=ME, strength="mild")
def ta_stars_misread(seed, mended=False):
    train, val = split(*loans(seed, 2400, noise=0.1), seed)
    wrong = torch.rand(len(train[1]), generator=torch.Generator().manual_seed(seed)) < 0.27
    train = train if mended else (train[0], torch.where(wrong, 1 - train[1], train[1]))
    return fit(Flat(mlp(9, 48, 1)), train, val, "bce_with_logits", epochs=40, lr=3e-3)


def rare(x, y, seed, keep):
    """Keep only a share of the positives."""
    r = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
    kept = (y == 0) | (r < keep)
    return x[kept], y[kept]


@case("class-imbalance", kind="table", author=ME)
def ta_card_fraud(seed, mended=False):
    x, y = rare(*loans(seed, 7000, noise=1.2), seed, 0.03)
    train, val = split(x, y, seed)
    f = (
        nn.BCEWithLogitsLoss(pos_weight=(1 - train[1]).sum() / train[1].sum())
        if mended
        else "bce_with_logits"
    )
    return fit(Flat(mlp(9, 16, 1)), train, val, f, epochs=12, batch=128, lr=1e-3)


@case("class-imbalance", kind="images", author=ME)
def ta_few_cracks(seed, mended=False):
    r = torch.rand(400, generator=torch.Generator().manual_seed(seed))
    v, u = torch.meshgrid(torch.arange(20), torch.arange(20), indexing="ij")
    spot = torch.randint(3, 17, (2, 400, 1, 1), generator=torch.Generator().manual_seed(seed + 1))
    y = (((u - spot[0]) ** 2 + (v - spot[1]) ** 2 < 2) & (r[:, None, None] < 0.8)).float()
    x = (y + 0.75 * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed + 2)))[:, None]
    train, val = split(x, y, seed)
    weight = (1 - train[1]).sum() / train[1].sum()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1), nn.Flatten(1, 2)
    )
    f = nn.BCEWithLogitsLoss(pos_weight=weight) if mended else "bce_with_logits"
    return without(fit(net, train, val, f, epochs=20, batch=16, lr=4e-3), "initial")


@case("class-imbalance", kind="table", author=ME, strength="mild")
def ta_rare_species(seed, mended=False):
    x, y = motors(seed, 5000, 4, spread=1.25)
    r = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
    kept = r < torch.tensor([1, 1, 0.03, 0.03])[y]
    train, val = split(x[kept], y[kept], seed)
    weight = len(train[1]) / torch.bincount(train[1]).float() / 4
    f = nn.CrossEntropyLoss(weight) if mended else "cross_entropy"
    return bare(fit(mlp(10, 24, 4), train, val, f, epochs=12, lr=1e-3))


# ---------------------------------------------------------------- objective


@case("double-softmax", kind="images", author=ME)
def ta_softmax_layer(seed, mended=False):
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 32, 10), *([] if mended else [nn.Softmax(1)]))
    return fit(net, train, val, epochs=30, lr=1e-3)


class Gate(nn.Module):
    def __init__(self, net, on):
        super().__init__()
        self.net, self.on = net, on

    def forward(self, x):
        z = self.net(x).squeeze(-1)
        return torch.sigmoid(z) if self.on else z


@case("double-softmax", kind="table", author=ME)
def ta_sigmoid_twice(seed, mended=False):
    train, val = scaled(*real("breast_cancer", seed))
    train, val = (train[0], train[1].float()), (val[0], val[1].float())
    return bare(fit(Gate(mlp(30, 16, 1), not mended), train, val, "bce_with_logits", epochs=40))


@case("double-softmax", kind="text", author=ME, strength="mild")
def ta_tagger_probabilities(seed, mended=False):
    train, val = split(*tags(seed), seed)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = (
                nn.Embedding(40, 16),
                nn.GRU(16, 32, batch_first=True),
                nn.Linear(32, 4),
            )

        def forward(self, x):
            z = self.out(self.rnn(self.embed(x))[0])
            return z if mended else F.softmax(z, -1)

    return without(fit(Tagger(), train, val, by_token, epochs=12, batch=32, lr=3e-3), "optimizer")


@case("wrong-loss", kind="table", author=ME)
def ta_class_numbers(seed, mended=False):
    train, val = split(*motors(seed, classes=5), seed)
    if mended:
        return fit(mlp(10, 48, 5), train, val, epochs=25)
    train, val = (train[0], train[1].float()), (val[0], val[1].float())
    return fit(Flat(mlp(10, 48, 1)), train, val, "mse", epochs=25)


@case("wrong-loss", kind="table", author=ME)
def ta_genres_by_softmax(seed, mended=False):
    x, _ = flats(seed)
    w = np.random.default_rng(3).normal(size=(8, 6))
    z = np.tanh(x.numpy() @ w) * 2 + 0.4 * np.random.default_rng(seed).normal(size=(len(x), 6))
    train, val = split(x, t((z > 0.3).astype(np.float32)), seed)
    return fit(mlp(8, 48, 6), train, val, "bce_with_logits" if mended else "cross_entropy", epochs=25)


@case("wrong-loss", kind="images", author=ME)
def ta_nll_of_logits(seed, mended=False):
    train, val = split(*shapes(seed), seed)
    net = nn.Sequential(small_cnn(4), *([nn.LogSoftmax(1)] if mended else []))
    return without(fit(net, train, val, "nll", epochs=35, lr=2e-3), "initial")


@case("wrong-loss", kind="table", author=ME, strength="mild")
def ta_nll_of_probabilities(seed, mended=False):
    train, val = digits(seed)
    net = nn.Sequential(small_cnn(10), nn.LogSoftmax(1) if mended else nn.Softmax(1))
    return bare(fit(net, train, val, "nll", epochs=25, batch=32, opt=torch.optim.SGD, lr=0.03, momentum=0.9))


class Tailed(nn.Module):
    def __init__(self, net, tail):
        super().__init__()
        self.net, self.tail = net, tail

    def forward(self, x):
        return self.tail(self.net(x)).squeeze(-1)


@case("output-range", kind="table", author=ME)
def ta_relu_at_the_end(seed, mended=False):
    train, val = split(*flats(seed), seed)
    return fit(Tailed(mlp(8, 48, 1), nn.Identity() if mended else nn.ReLU()), train, val, "mse", epochs=30)


@case("output-range", kind="sequences", author=ME)
def ta_sigmoid_forecast(seed, mended=False):
    train, val = in_time(*series(seed))
    tail = nn.Identity() if mended else nn.Sigmoid()
    return bare(fit(Tailed(mlp(24, 32, 1), tail), train, val, "mse", epochs=30))


@case("output-range", kind="generative", author=ME, strength="mild")
def ta_tanh_decoder(seed, mended=False):
    x = factors(seed, 1200, noise=0.1) * 1.6
    net = nn.Sequential(mlp(12, 48, 5), mlp(5, 48, 12))
    net = net if mended else nn.Sequential(*net, nn.Tanh())
    return without(fit(net, (x[:900], x[:900]), (x[900:], x[900:]), "mse", epochs=50, lr=3e-3), "initial")


class AlwaysDropping(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.a, self.b, self.c, self.mended = nn.Linear(10, 96), nn.Linear(96, 64), nn.Linear(64, 5), mended

    def forward(self, x):
        on = self.training if self.mended else True
        x = F.dropout(F.relu(self.a(x)), 0.5, on)
        return self.c(F.dropout(F.relu(self.b(x)), 0.4, on))


@case("stochastic-evaluation", kind="table", author=ME)
def ta_functional_dropout(seed, mended=False):
    train, val = split(*motors(seed), seed)
    return fit(AlwaysDropping(mended), train, val, epochs=25, lr=3e-3)


@case("stochastic-evaluation", kind="sequences", author=ME)
def ta_forgot_eval(seed, mended=False):
    train, val = in_time(*series(seed))
    given = fit(Flat(mlp(24, 64, 64, 1, drop=0.3)), train, val, "mse", epochs=30)
    given["model"].train(not mended)
    return bare(given)


@case("stochastic-evaluation", kind="generative", author=ME, strength="mild")
def ta_noisy_code(seed, mended=False):
    x = factors(seed)

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = mlp(12, 48, 5), mlp(5, 48, 12)

        def forward(self, x):
            z = self.enc(x)
            return self.dec(z + (0 if mended else 0.6) * torch.randn_like(z))

    return fit(Noisy(), (x[:1100], x[:1100]), (x[1100:], x[1100:]), "mse", epochs=30, lr=3e-3)
