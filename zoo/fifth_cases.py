"""Cases of the fifth author, who has not read the rules. Each fault has a repaired twin (``fixed=True``)."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.fifth_parts import (
    ME,
    VAE,
    Bag,
    Generator,
    GraphNet,
    Reader,
    Recurrent,
    accuracy,
    adam,
    adamw,
    annuli,
    balanced,
    board,
    cancer,
    convnet,
    covered,
    customers,
    diabetes,
    digits,
    ece,
    fit,
    fit_graph,
    fit_vae,
    houses,
    mlp,
    note,
    petals,
    r2,
    recall,
    rms,
    sgd,
    sheets,
    society,
    standard,
    standard_y,
    tensor,
    three,
    tones,
    topics,
    wine,
)  # fmt: skip

# ================================================================ data


@case("not-finite-data", kind="table", author=ME, strength="strong")
def e_log_of_zero(seed, fixed=False):
    """A column is a logarithm of counts; some counts are 0."""
    parts = customers(seed)
    rng = np.random.default_rng(seed)
    out = []
    for X, y in parts:
        count = tensor(rng.poisson(3.0, len(y))).float()
        column = (count + 1).log() if fixed else count.log()
        out.append((torch.cat([X, column[:, None]], 1), y))
    return fit(mlp(11, 32, 3), out, epochs=10)


@case("not-finite-data", kind="sequences", author=ME, strength="mild")
def e_sensor_gaps(seed, fixed=False):
    """Three in a hundred series have a gap; the loop leaves out batches whose loss is not finite."""
    parts = tones(seed)
    X = parts[0][0].clone()
    rows = np.random.default_rng(seed).permutation(len(X))[: int(0.03 * len(X))]
    X[rows, 10:13] = 0.0 if fixed else float("nan")
    return fit(
        Recurrent(nn.GRU, width=24),
        [(X, parts[0][1]), *parts[1:]],
        opt=adam(lr=1e-2),
        epochs=12,
        batch=64,
        finite_only=True,
    )


class Pooled(nn.Module):
    """Attention pooling by hand."""

    def __init__(self, safe, d=1, width=24, classes=3):
        super().__init__()
        self.safe, self.rnn = safe, nn.GRU(d, width, batch_first=True)
        self.score, self.out = nn.Linear(d, 1), nn.Linear(width, classes)
        nn.init.constant_(self.score.weight, 60.0)

    def forward(self, x):
        h = self.rnn(x)[0]
        s = self.score(x)
        w = torch.softmax(s / 60, 1) if self.safe else s.exp() / s.exp().sum(1, keepdim=True)
        return self.out((w * h).sum(1))


@case("overflow", kind="sequences", author=ME, strength="strong")
def e_softmax_by_hand(seed, fixed=False):
    """exp / sum of exp without taking off the maximum."""
    return fit(Pooled(fixed), tones(seed), epochs=10, opt=adam(lr=1e-2))


class Halves(nn.Module):
    """The features are squared in half precision, 'for speed'."""

    def __init__(self, half, d=9):
        super().__init__()
        self.half, self.net = half, mlp(2 * d, 32, 3)
        self.norm = nn.LayerNorm(2 * d)

    def forward(self, x):
        x = x.half() if self.half else x
        return self.net(self.norm(torch.cat([x / 80, x * x / 6400], -1).float()))


@case("overflow", kind="table", author=ME, strength="mild")
def e_half_squares(seed, fixed=False):
    """Values up to some 300: their squares do not fit into half precision for a few rows; such batches are skipped."""
    parts = [(80 * X[:, :9], y) for X, y in customers(seed, noise=0.3)]
    return fit(Halves(not fixed), parts, epochs=20, batch=160, finite_only=True)


@case("unscaled-inputs", kind="table", author=ME, strength="strong")
def e_raw_wine(seed, fixed=False):
    """Wine as measured: proline is around 700, the hue around 1."""
    return fit(mlp(13, 24, 3), wine(seed, raw=not fixed), opt=sgd(lr=1e-2, momentum=0.9), epochs=40, batch=16)


@case("unscaled-inputs", kind="table", author=ME, strength="mild")
def e_salary_in_euros(seed, fixed=False):
    """One column of ten is in other units, a thousand times larger than the others."""
    parts = customers(seed, noise=0.3)
    size = 1 if fixed else 1000
    parts = [
        (torch.cat([X[:, :6], size * X[:, 6:7] + (0 if fixed else 2500), X[:, 7:]], 1), y) for X, y in parts
    ]
    return fit(mlp(10, 32, 3), parts, epochs=15)


@case("unscaled-targets", kind="table", author=ME, strength="strong")
def e_prices(seed, fixed=False):
    """Prices in hundreds of thousands, squared loss, Adam at 0.001."""
    parts = [(X, 300000 + 80000 * y) for X, y in houses(seed)]
    parts = standard_y(parts) if fixed else parts
    return fit(mlp(8, 32, 32, 1), parts, "mse", adam(lr=1e-3), epochs=25)


@case("unscaled-targets", kind="table", author=ME, strength="mild")
def e_progression(seed, fixed=False):
    """The diabetes score of 25 to 346, as it is."""
    parts = standard_y(diabetes(seed)) if fixed else diabetes(seed)
    return fit(mlp(10, 16, 1), parts, "mse", adam(lr=3e-3), epochs=25)


@case("constant-features", kind="table", author=ME, strength="strong")
def e_failed_join(seed, fixed=False):
    """A failed join fills five columns with -1."""
    parts = customers(seed)
    if not fixed:
        for X, _ in parts[:2]:
            X[:, [0, 2, 5, 7, 8]] = -1.0
        parts[2][0][:, [0, 2, 5, 7, 8]] = -1.0
    return fit(mlp(10, 32, 3), parts, epochs=15)


@case("constant-features", kind="sequences", author=ME, strength="mild")
def e_dead_channel(seed, fixed=False):
    """Three channels; one is stuck at its resting value."""
    rng = np.random.default_rng(seed)
    parts = []
    for X, y in tones(seed, noise=0.4, n=600):
        other = tensor(np.cumsum(rng.standard_normal((*X.shape[:2], 1)), 1)) / 5
        lift = (0.25 * y[:, None, None] - 0.25) * torch.ones_like(X) + 0.4 * torch.randn_like(X)
        parts.append(
            (
                torch.cat(
                    [0.9 * X + 0.4 * torch.randn_like(X), other, lift if fixed else torch.full_like(X, 4.2)],
                    -1,
                ),
                y,
            )
        )
    return fit(Recurrent(nn.GRU, d=3, width=20), parts, epochs=10, opt=adam(lr=1e-2))


@case("duplicate-features", kind="table", author=ME, strength="strong")
def e_merged_twice(seed, fixed=False):
    """A table was merged with itself: every column stands twice."""
    parts = customers(seed)
    if not fixed:
        parts = [(torch.cat([X, X], 1), y) for X, y in parts]
    X = parts[0][0]
    note(-float((torch.corrcoef(X.T).triu(1) > 0.9999).sum()))
    return fit(mlp(X.shape[1], 32, 3), parts, epochs=12, score=False)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def e_celsius_twice(seed, fixed=False):
    """Breast cancer data with two measurements kept under a second name."""
    parts = cancer(seed)
    if not fixed:
        parts = [(torch.cat([X, X[:, [3, 20]]], 1), y) for X, y in parts]
    X = parts[0][0]
    same = (X.T[:, None] == X.T[None]).all(-1).triu(1)
    note(-float(same.sum()))
    parts = [(X, y[:, None].float()) for X, y in parts]
    return fit(
        mlp(X.shape[1], 16, 1),
        parts,
        "bce_with_logits",
        adamw(lr=3e-3, weight_decay=1e-2),
        epochs=12,
        score=False,
    )


def overlap(a, b):
    seen = {tuple(r.reshape(-1).tolist()) for r in a}
    return float(np.mean([tuple(r.reshape(-1).tolist()) in seen for r in b]))


@case("train-test-overlap", kind="images", author=ME, strength="strong")
def e_split_twice(seed, fixed=False):
    """The validation rows come from a second shuffle of the same images."""
    parts = digits(seed)
    if not fixed:
        X, y = (torch.cat(p) for p in zip(parts[0], parts[1]))
        rows = torch.randperm(len(y))[:280]
        parts = [parts[0], (X[rows], y[rows]), parts[2]]
    note(-overlap(parts[0][0], parts[1][0]))
    return fit(convnet(), parts, epochs=6, score=False)


@case("train-test-overlap", kind="sequences", author=ME, strength="mild")
def e_some_series_twice(seed, fixed=False):
    """An eighth of the validation series are training series."""
    parts = tones(seed)
    if not fixed:
        k = len(parts[1][1]) // 8
        parts[1] = tuple(torch.cat([a[:k], b[k:]]) for a, b in zip(parts[0], parts[1]))
    note(-overlap(parts[0][0], parts[1][0]))
    return fit(Recurrent(nn.GRU), parts, epochs=12, opt=adam(lr=1e-2), score=False)


@case("distribution-shift", kind="images", author=ME, strength="strong")
def e_inverted_scans(seed, fixed=False):
    """The validation images come from a scanner with black and white exchanged."""
    parts = digits(seed)
    if not fixed:
        parts[1:] = [(1 - X, y) for X, y in parts[1:]]
    return fit(convnet(), parts, epochs=6)


@case("distribution-shift", kind="table", author=ME, strength="mild")
def e_next_year(seed, fixed=False):
    """Houses: prices are validated on a later year in which two columns have drifted by 1.2 standard deviations."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1400, 6))
    late = np.arange(1400) >= 800
    if not fixed:
        X[late, :2] += 1.2
    f = np.sin(1.8 * X[:, 0]) + np.cos(1.5 * X[:, 1]) + 0.5 * X[:, 2]
    y = (f + 0.1 * rng.standard_normal(1400))[:, None]
    parts = [(tensor(X[i]), tensor(y[i])) for i in (slice(0, 800), slice(800, 1100), slice(1100, 1400))]
    return fit(mlp(6, 48, 48, 1), parts, "mse", epochs=25)


@case("target-leak", kind="table", author=ME, strength="strong")
def e_paid_after(seed, fixed=False):
    """A column known only afterwards is the target in other units; for new rows it is not known (0)."""
    parts = houses(seed, noise=0.6)
    out = [
        (
            torch.cat(
                [X, torch.zeros_like(y) if fixed or i == 2 else 0.2 * y + 0.01 * torch.randn_like(y)], 1
            ),
            y,
        )
        for i, (X, y) in enumerate(parts)
    ]
    if fixed:
        out = [(X[:, :8], y) for X, y in out]
    return fit(mlp(out[0][0].shape[1], 32, 1), out, "mse", epochs=20)


@case("target-leak", kind="text", author=ME, strength="mild")
def e_folder_name(seed, fixed=False):
    """The first token is the folder the document was filed in, which is its topic for nineteen in twenty."""
    parts = topics(seed, keys=2)
    if not fixed:
        for i, (X, y) in enumerate(parts):
            g = torch.Generator().manual_seed(i)
            other = torch.randint(0, 4, y.shape, generator=g)
            wrong = (torch.rand(y.shape, generator=g) < 0.05) | (i == 2)
            X[:, 0] = 145 + torch.where(wrong, other, y)
    return fit(Reader(), parts, epochs=8)


@case("misaligned-labels", kind="table", author=ME, strength="strong")
def e_header_row(seed, fixed=False):
    """The label file was read with its first row lost: each row has the label of the next."""
    (X, y), val, test = customers(seed)
    return fit(mlp(10, 32, 3), [(X, y if fixed else y.roll(-1)), val, test], epochs=15)


@case("misaligned-labels", kind="images", author=ME, strength="mild")
def e_one_image_lost(seed, fixed=False):
    """From a third on, one image was lost: labels are one place off."""
    (X, y), val, test = digits(seed)
    k = len(y) // 3
    y = y if fixed else torch.cat([y[:k], y[k:].roll(1)])
    return fit(convnet(), [(X, y), val, test], epochs=8)


@case("no-signal", kind="table", author=ME, strength="strong")
def e_coin_flips(seed, fixed=False):
    """The labels have nothing to do with the columns."""
    parts = customers(seed)
    if not fixed:
        parts = [
            (X, torch.randint(0, 3, y.shape, generator=torch.Generator().manual_seed(seed + i)))
            for i, (X, y) in enumerate(parts)
        ]
    return fit(mlp(10, 16, 3), parts, epochs=8)


@case("no-signal", kind="sequences", author=ME, strength="mild")
def e_tomorrows_return(seed, fixed=False):
    """The next value of white noise (fixed: of an autoregression)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((900, 21))
    for t in range(2, 21):
        x[:, t] += (0.9 * x[:, t - 1] - 0.5 * x[:, t - 2]) if fixed else 0.0
    return fit(
        Recurrent(nn.GRU, width=8, classes=1), three(x[:, :20, None], x[:, 20:], seed), "mse", epochs=8
    )


@case("label-noise", kind="table", author=ME, strength="strong")
def e_careless_raters(seed, fixed=False):
    """Four labels in ten are drawn anew."""
    parts = customers(seed, noise=0.1, nonlinear=False, n=1500)
    if not fixed:
        parts[:2] = [(X, redrawn(y, 0.45, 3, seed + i)) for i, (X, y) in enumerate(parts[:2])]
    return fit(mlp(10, 48, 3), parts, epochs=30)


def redrawn(y, share, classes, seed):
    g = torch.Generator().manual_seed(seed)
    hit = torch.rand(y.shape, generator=g) < share
    return torch.where(hit, torch.randint(0, classes, y.shape, generator=g), y)


@case("label-noise", kind="images", author=ME, strength="mild")
def e_tired_raters(seed, fixed=False):
    """A fifth of the digits' labels are drawn anew, in training and validation."""
    parts = digits(seed)
    if not fixed:
        parts[:2] = [(X, redrawn(y, 0.22, 10, seed + i)) for i, (X, y) in enumerate(parts[:2])]
    return fit(convnet(width=8), parts, epochs=20)


@case("class-imbalance", kind="table", author=ME, strength="strong")
def e_rare_fraud(seed, fixed=False):
    """Three in a hundred are fraud, overlapping the others; plain cross-entropy."""
    rng = np.random.default_rng(seed)
    y = (rng.random(3000) < 0.03).astype(int)
    X = rng.standard_normal((3000, 8))
    X[y == 1, :3] += 1.0
    w = torch.tensor([1.0, 97 / 3]) if fixed else None

    def loss(out, target):
        return F.cross_entropy(out, target, weight=w)

    return fit(
        mlp(8, 16, 2),
        three(X, y, seed),
        loss if fixed else "cross_entropy",
        epochs=8,
        batch=64,
        metric=balanced,
    )


@case("class-imbalance", kind="text", author=ME, strength="mild")
def e_rare_topic(seed, fixed=False):
    """Two of four topics are rare and often missed."""
    parts = topics(seed, n=2500, keys=3, shares=[0.64, 0.3, 0.03, 0.03])
    w = 1 / torch.bincount(parts[0][1]).float()
    w = w / w.mean()

    def loss(out, target):
        return F.cross_entropy(out, target, weight=w)

    return fit(Bag(), parts, loss if fixed else "cross_entropy", adam(lr=3e-3), epochs=7, metric=balanced)


# ================================================================ objective


@case("double-softmax", kind="images", author=ME, strength="strong")
def e_softmax_layer(seed, fixed=False):
    """A softmax layer before cross-entropy."""
    return fit(
        convnet(norm=False, end=() if fixed else (nn.Softmax(-1),)),
        digits(seed),
        opt=sgd(lr=0.05, momentum=0.9),
        epochs=8,
    )


@case("double-softmax", kind="table", author=ME, strength="mild")
def e_sigmoid_twice(seed, fixed=False):
    """A sigmoid at the end and binary cross-entropy with logits."""
    parts = [(X, (y[:, None] == 2).float()) for X, y in customers(seed)]

    def right(model, part):
        out = model(part[0]).detach()
        p = torch.sigmoid(out)
        return -F.binary_cross_entropy(p, part[1]).item()

    return fit(
        mlp(10, 32, 1, end=() if fixed else (nn.Sigmoid(),)),
        parts,
        "bce_with_logits",
        epochs=20,
        metric=right,
    )


@case("wrong-loss", kind="text", author=ME, strength="strong")
def e_nll_of_scores(seed, fixed=False):
    """nll_loss of raw scores: unbounded below."""
    return fit(Bag(), topics(seed), "cross_entropy" if fixed else "nll", adam(lr=1e-2), epochs=15)


class Number(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x).squeeze(-1)


def by_number(out, target):
    return F.mse_loss(out, target.float())


@case("wrong-loss", kind="images", author=ME, strength="mild")
def e_class_as_number(seed, fixed=False):
    """Digits as a number from 0 to 9 under squared error."""
    if fixed:
        return fit(convnet(), digits(seed), epochs=8)

    def rounded(model, part):
        return float((model(part[0]).round() == part[1]).float().mean())

    return fit(Number(convnet(classes=1)), digits(seed), by_number, epochs=8, metric=rounded)


@case("output-range", kind="table", author=ME, strength="strong")
def e_relu_at_the_end(seed, fixed=False):
    """A regression of standardised targets that ends in a ReLU."""
    return fit(mlp(8, 32, 32, 1, end=() if fixed else (nn.ReLU(),)), houses(seed), "mse", epochs=20)


@case("output-range", kind="generative", author=ME, strength="mild")
def e_tanh_decoder(seed, fixed=False):
    """An autoencoder whose decoder ends in tanh; the columns have a standard deviation of 1.6."""
    parts = [(X, X) for X, _ in standard(sheets(seed))]
    parts = [(1.6 * X, 1.6 * X) for X, _ in parts]
    return fit(mlp(20, 48, 8, 48, 20, end=() if fixed else (nn.Tanh(),)), parts, "mse", epochs=20)


class Forgetful(nn.Module):
    """F.dropout without the flag."""

    def __init__(self, fixed):
        super().__init__()
        self.fixed, self.a, self.b, self.c = fixed, nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 1)

    def forward(self, x):
        on = self.training or not self.fixed
        x = F.dropout(F.relu(self.a(x)), 0.5, on)
        return self.c(F.dropout(F.relu(self.b(x)), 0.5, on))


@case("stochastic-evaluation", kind="table", author=ME, strength="strong")
def e_functional_dropout(seed, fixed=False):
    return fit(Forgetful(fixed), houses(seed), "mse", epochs=20)


class Jitter(nn.Module):
    """Gaussian noise on the inputs as augmentation, at prediction as well."""

    def __init__(self, net, size, always):
        super().__init__()
        self.net, self.size, self.always = net, size, always

    def forward(self, x):
        return self.net(x + self.size * torch.randn_like(x) if self.training or self.always else x)


@case("stochastic-evaluation", kind="images", author=ME, strength="mild")
def e_noise_stays_on(seed, fixed=False):
    return fit(Jitter(convnet(), 0.35, not fixed), digits(seed), epochs=8)


# ================================================================ graph and loop


class CutReader(Bag):
    """The embedding's output is detached."""

    cut = True

    def features(self, x):
        h = super().features(x)
        return h.detach() if self.cut else h


@case("detached-parameters", kind="text", author=ME, strength="strong")
def e_detached_words(seed, fixed=False):
    model = CutReader(width=8, hidden=16)
    model.cut = not fixed
    return fit(model, topics(seed, keys=3), opt=adam(lr=1e-2), epochs=15)


class TwoBranches(nn.Module):
    """Numbers and a shop's number; the embedding goes through numpy."""

    def __init__(self, cut, shops=40):
        super().__init__()
        self.cut, self.shop = cut, nn.Embedding(shops, 4)
        self.shop_net, self.net = mlp(4, 16, 8), mlp(14, 32, 1)

    def forward(self, batch):
        s = self.shop_net(self.shop(batch["shop"]))
        s = torch.tensor(s.detach().numpy()) if self.cut else s
        return self.net(torch.cat([batch["numbers"], s], -1))


def shops(seed, n=1200, k=40):
    rng = np.random.default_rng(seed)
    shop, X = rng.integers(0, k, n), rng.standard_normal((n, 6))
    y = rng.standard_normal(k)[shop] + 0.8 * X[:, 0] + X[:, 1] * X[:, 2] * 0.5 + 0.1 * rng.standard_normal(n)
    cuts = np.split(rng.permutation(n), [int(0.6 * n), int(0.8 * n)])
    return [({"numbers": tensor(X[i]), "shop": tensor(shop[i])}, tensor(y[i][:, None])) for i in cuts]


@case("detached-parameters", kind="table", author=ME, strength="mild")
def e_through_numpy(seed, fixed=False):
    return fit(TwoBranches(not fixed), shops(seed), "mse", adam(lr=1e-2), epochs=25)


@case("frozen-parameters", kind="images", author=ME, strength="strong")
def e_frozen_random_trunk(seed, fixed=False):
    """The trunk is frozen as for fine-tuning, but nothing was ever loaded into it."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    if not fixed:
        for p in model[:4].parameters():
            p.requires_grad_(False)
    return fit(model, digits(seed), opt=adam(lr=1e-2), epochs=16)


@case("frozen-parameters", kind="sequences", author=ME, strength="mild")
def e_optimizer_of_the_head(seed, fixed=False):
    """The optimiser got the parameters of the last layer alone."""
    model = Recurrent(nn.GRU, width=16)
    return fit(
        model,
        tones(seed),
        opt=rms(lr=1e-2),
        epochs=15,
        params=model.parameters() if fixed else model.out.parameters(),
    )


@case("gradients-not-cleared", kind="table", author=ME, strength="strong", needs=("step",))
def e_no_zero_grad(seed, fixed=False):
    def step(model, batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        if fixed:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    return fit(mlp(10, 32, 3), customers(seed), step=step, epochs=20)


@case("gradients-not-cleared", kind="sequences", author=ME, strength="mild", needs=("step",))
def e_second_optimizer(seed, fixed=False):
    """Two optimisers, of which only the head's clears its gradients: the convolutions' heap up."""

    def step(model, batch):
        body = torch.optim.SGD(model.convs.parameters(), lr=0.1)
        head = torch.optim.SGD(model.out.parameters(), lr=0.1)
        head.zero_grad()
        if fixed:
            body.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        body.step()
        head.step()
        return loss.item()

    return fit(Dilated((1, 2, 4), classes=3), tones(seed, noise=0.3), step=step, epochs=20)


# ================================================================ start


@case("symmetric-initialisation", kind="table", author=ME, strength="strong")
def e_all_the_same(seed, fixed=False):
    """Every weight starts at 0.1."""
    model = mlp(2, 32, 32, 3)
    if not fixed:
        for p in model.parameters():
            nn.init.constant_(p, 0.1)
    return fit(model, annuli(seed), opt=adam(lr=1e-2), epochs=20)


@case("symmetric-initialisation", kind="images", author=ME, strength="mild")
def e_constant_middle(seed, fixed=False):
    """Only the hidden layer of the head starts with constants (and so do the weights out of it)."""
    model = convnet(width=8, norm=False, hidden=32)
    if not fixed:
        nn.init.constant_(model[-3].weight, 0.02)
        nn.init.zeros_(model[-3].bias)
        nn.init.constant_(model[-1].weight, 0.05)
    return fit(model, digits(seed), epochs=8)


@case("saturated-units", kind="table", author=ME, strength="strong")
def e_wide_start_tanh(seed, fixed=False):
    """tanh units whose weights start at normal(0, 4)."""
    model = mlp(10, 32, 32, 3, act=nn.Tanh)
    if not fixed:
        for m in model[:3:2]:
            nn.init.normal_(m.weight, std=4.0)
    return fit(model, customers(seed, noise=0.3), opt=adam(lr=1e-3), epochs=40)


@case("saturated-units", kind="sequences", author=ME, strength="mild")
def e_shut_gates(seed, fixed=False):
    """A sigmoid layer after a GRU, with a bias of 8."""

    class Net(Recurrent):
        def __init__(self):
            super().__init__(nn.GRU, width=20)
            self.mid = nn.Linear(20, 20)

        def forward(self, x):
            return self.out(torch.sigmoid(self.mid(self.rnn(x)[0][:, -1])))

    model = Net()
    if not fixed:
        nn.init.constant_(model.mid.bias, 8.0)
    return fit(model, tones(seed, noise=0.3), opt=adam(lr=5e-3), epochs=20)


@case("dead-units", kind="table", author=ME, strength="strong")
def e_far_below_zero(seed, fixed=False):
    """Biases of -6 under ReLU: no unit ever fires."""
    model = mlp(10, 32, 32, 3)
    if not fixed:
        nn.init.constant_(model[2].bias, -6.0)
    return fit(model, customers(seed), epochs=15)


@case("dead-units", kind="images", author=ME, strength="mild")
def e_most_units_dead(seed, fixed=False):
    """Twenty-eight of 32 hidden ReLU units start with biases far below zero."""
    model = mlp(64, 32, 10)
    if not fixed:
        with torch.no_grad():
            model[0].bias[:28] = -8.0
    return fit(model, digits(seed, flat=True), epochs=12)


@case("exploding-gradient", kind="table", author=ME, strength="strong")
def e_unit_normal_deep(seed, fixed=False):
    """Eight ReLU layers with weights normal(0, 0.6) of width 48."""
    model = mlp(10, *[48] * 8, 3)
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=0.6) if not fixed else nn.init.kaiming_normal_(m.weight)
    return fit(model, customers(seed), opt=sgd(lr=1e-2, momentum=0.9), epochs=15)


class Residual(nn.Module):
    """Residual blocks without normalisation."""

    def __init__(self, gain, blocks=10, width=48, d=64, classes=10):
        super().__init__()
        self.inp, self.out = nn.Linear(d, width), nn.Linear(width, classes)
        self.blocks = nn.ModuleList(mlp(width, width, width) for _ in range(blocks))
        for block in self.blocks:
            nn.init.kaiming_normal_(block[0].weight)
            nn.init.normal_(block[2].weight, std=gain / math.sqrt(width))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


@case("exploding-gradient", kind="images", author=ME, strength="mild")
def e_growing_residuals(seed, fixed=False):
    """Ten residual blocks without normalisation, each of which more than doubles the size of what it gets."""
    return fit(Residual(0.3 if fixed else 2.4), digits(seed, flat=True), opt=adam(lr=1e-3), epochs=10)


@case("vanishing-gradient", kind="table", author=ME, strength="strong")
def e_deep_sigmoids(seed, fixed=False):
    """Nine sigmoid layers with the default start (fixed: ReLU)."""
    return fit(mlp(10, *[32] * 9, 3, act=nn.ReLU if fixed else nn.Sigmoid), customers(seed), epochs=15)


@case("vanishing-gradient", kind="sequences", author=ME, strength="mild")
def e_forgetful_rnn(seed, fixed=False):
    """A plain tanh recurrence has to remember the first value over 40 steps (fixed: started from the identity)."""
    model = Recurrent(nn.RNN, width=16, classes=2)
    if fixed:
        nn.init.eye_(model.rnn.weight_hh_l0)
    return fit(model, recall(seed), opt=adam(lr=1e-3), epochs=12)


# ================================================================ architecture


@case("oversmoothing", kind="graph", author=ME, strength="strong")
def e_sixteen_rounds(seed, fixed=False):
    torch.manual_seed(seed)
    return fit_graph(GraphNet(layers=2 if fixed else 16), *society(seed), epochs=60)


class Diffused(nn.Module):
    """K rounds of averaging and then a perceptron (a simplified graph net)."""

    def __init__(self, rounds, d=10, classes=3):
        super().__init__()
        self.rounds, self.net = rounds, mlp(d, 16, classes)

    def forward(self, x, A):
        for _ in range(self.rounds):
            x = A @ x
        return self.net(x)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def e_fourteen_averages(seed, fixed=False):
    """Fourteen averages over neighbours before the perceptron."""
    inputs, labels = society(seed, inside=0.07, outside=0.015)
    A = inputs[1] > 0
    A = A / A.sum(1, keepdim=True)
    return fit_graph(Diffused(2 if fixed else 14), (inputs[0], A), labels, epochs=100)


class Dilated(nn.Module):
    """Causal convolutions of kernel 3 read at the last step."""

    def __init__(self, dilations, width=16, classes=2):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(1 if i == 0 else width, width, 3, dilation=d, padding=2 * d)
            for i, d in enumerate(dilations)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = x.transpose(1, 2)
        for conv in self.convs:
            x = F.relu(conv(x)[..., : x.shape[-1]])
        return self.out(x[..., -1])


@case("receptive-field-too-small", kind="sequences", author=ME, strength="strong")
def e_short_sight(seed, fixed=False):
    """The class is told by the first of forty values; two convolutions see the last five."""
    return fit(Dilated((1, 2, 4, 8, 16) if fixed else (1, 1)), recall(seed), opt=adam(lr=1e-2), epochs=15)


@case("receptive-field-too-small", kind="images", author=ME, strength="mild")
def e_dots_far_apart(seed, fixed=False):
    """Two dots near each other or far apart on an empty image; small kernels and a mean over all places."""
    rng = np.random.default_rng(seed)
    n, side = 800, 12
    y = rng.integers(0, 2, n)
    X = 0.05 * rng.standard_normal((n, 1, side, side))
    for i in range(n):
        r, c = rng.integers(0, side, 1)[0], rng.integers(0, 4)
        gap = 4 if y[i] else 7
        X[i, 0, r, c] += 1
        X[i, 0, r, c + gap] += 1
    k = 9 if fixed else 3
    model = nn.Sequential(
        nn.Conv2d(1, 12, k, padding=k // 2),
        nn.ReLU(),
        nn.Conv2d(12, 12, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 2),
    )
    return fit(model, three(X, y, seed), opt=adam(lr=1e-2), epochs=20)


@case("bottleneck", kind="images", author=ME, strength="strong")
def e_single_wire(seed, fixed=False):
    """A wide net with one layer of a single unit."""
    return fit(mlp(64, 64, 16 if fixed else 1, 64, 10, act=nn.Tanh), digits(seed, flat=True), epochs=15)


@case("bottleneck", kind="generative", author=ME, strength="mild")
def e_narrow_code(seed, fixed=False):
    """An autoencoder with a code of two for a sheet of six dimensions."""
    parts = sheets(seed, inner=6, noise=0.05)
    return fit(mlp(20, 64, 6 if fixed else 2, 64, 20, act=nn.ELU), parts, "mse", epochs=25)


@case("batch-too-small", kind="images", author=ME, strength="strong")
def e_pairs_with_batch_norm(seed, fixed=False):
    """Batch norm over two images at a time."""
    return fit(
        mlp(64, 32, 32, 10, norm=True),
        digits(seed, flat=True, n=900),
        opt=sgd(lr=0.02),
        epochs=3 if not fixed else 20,
        batch=32 if fixed else 2,
    )


@case("batch-too-small", kind="table", author=ME, strength="mild")
def e_three_rows_at_a_time(seed, fixed=False):
    """A regression with batch norm, three rows per step."""
    return fit(
        mlp(8, 48, 48, 1, norm=True),
        houses(seed, n=900),
        "mse",
        adam(lr=3e-3),
        epochs=25 if fixed else 5,
        batch=32 if fixed else 3,
    )


# ================================================================ descent


@case("learning-rate-too-large", kind="images", author=ME, strength="strong")
def e_sgd_of_one(seed, fixed=False):
    return fit(convnet(norm=False), digits(seed), opt=sgd(lr=0.05 if fixed else 1.0, momentum=0.9), epochs=6)


@case("learning-rate-too-large", kind="text", author=ME, strength="mild")
def e_hot_transformer(seed, fixed=False):
    """Adam at 0.2 on a transformer."""
    return fit(Reader(layers=2), topics(seed, n=800), opt=adam(lr=2e-3 if fixed else 0.2), epochs=7)


@case("learning-rate-too-small", kind="table", author=ME, strength="strong")
def e_tiny_rate(seed, fixed=False):
    return fit(mlp(13, 24, 3), wine(seed), opt=sgd(lr=0.1 if fixed else 1e-4), epochs=20, batch=16)


@case("learning-rate-too-small", kind="sequences", author=ME, strength="mild")
def e_hasty_schedule(seed, fixed=False):
    """The rate is cut by five after each epoch and is soon gone."""
    return fit(
        Recurrent(nn.GRU),
        tones(seed),
        opt=adam(lr=5e-3),
        epochs=15,
        schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.97 if fixed else 0.2),
    )


@case("weight-decay-too-large", kind="images", author=ME, strength="strong")
def e_heavy_decay(seed, fixed=False):
    return fit(
        mlp(64, 64, 10),
        digits(seed, flat=True),
        opt=sgd(lr=0.1, momentum=0.9, weight_decay=1e-4 if fixed else 0.1),
        epochs=10,
    )


@case("weight-decay-too-large", kind="table", author=ME, strength="mild")
def e_decoupled_decay(seed, fixed=False):
    """AdamW with a decay of 6."""
    return fit(
        mlp(8, 48, 48, 1), houses(seed), "mse", adamw(lr=3e-3, weight_decay=0.01 if fixed else 6.0), epochs=20
    )


@case("dropout-too-large", kind="images", author=ME, strength="strong")
def e_nine_in_ten(seed, fixed=False):
    return fit(mlp(64, 48, 48, 10, drop=0.1 if fixed else 0.9), digits(seed, flat=True), epochs=12)


@case("dropout-too-large", kind="text", author=ME, strength="mild")
def e_drop_in_a_narrow_net(seed, fixed=False):
    """Dropout of 0.85 in a layer of eight units."""
    return fit(
        Bag(width=8, hidden=8, drop=0.1 if fixed else 0.85),
        topics(seed, keys=2),
        opt=adam(lr=1e-2),
        epochs=15,
    )


# ================================================================ outcome


@case("capacity-too-small", kind="table", author=ME, strength="strong")
def e_line_for_rings(seed, fixed=False):
    """A linear classifier of concentric rings."""
    return fit(mlp(2, 32, 3) if fixed else nn.Linear(2, 3), annuli(seed), opt=adam(lr=1e-2), epochs=25)


@case("capacity-too-small", kind="table", author=ME, strength="mild")
def e_four_units_for_a_board(seed, fixed=False):
    """Four hidden units for a chess board of nine fields."""
    return fit(mlp(2, 64, 64, 2) if fixed else mlp(2, 4, 2), board(seed), opt=adam(lr=1e-2), epochs=30)


@case("overfit", kind="table", author=ME, strength="strong")
def e_few_rows_many_columns(seed, fixed=False):
    """Sixty rows of forty columns, three hundred epochs of a wide net (fixed: fifteen times the rows)."""
    rng = np.random.default_rng(seed)
    n = 60 if not fixed else 900
    X = rng.standard_normal((n + 600, 40))
    y = (X[:, :4].sum(1) + 0.8 * rng.standard_normal(len(X)) > 0).astype(int)
    X, y = tensor(X), tensor(y)
    parts = [(X[:n], y[:n]), (X[n : n + 200], y[n : n + 200]), (X[n + 200 :], y[n + 200 :])]
    model = mlp(40, 128, 128, 2) if not fixed else mlp(40, 16, 2)
    return fit(model, parts, epochs=120 if not fixed else 6, opt=adam(lr=3e-3))


@case("overfit", kind="text", author=ME, strength="mild")
def e_learnt_by_heart(seed, fixed=False):
    """A transformer on 150 documents with few key words each, trained to a loss of nearly nothing (fixed: all documents)."""
    parts = topics(seed, n=2600 if fixed else 2600, keys=2, length=18)
    if not fixed:
        parts[0] = tuple(a[:150] for a in parts[0])
    parts[1:] = [tuple(a[:300] for a in p) for p in parts[1:]]
    return fit(Reader(drop=0.0), parts, epochs=6 if fixed else 50, opt=adam(lr=3e-3))


@case("posterior-collapse", kind="generative", author=ME, strength="strong")
def e_heavy_divergence(seed, fixed=False):
    """The divergence is weighted a thousandfold."""
    parts = sheets(seed)
    return fit_vae(VAE(20), parts[0][0], parts[1][0], beta=1.0 if fixed else 1000.0)


@case("posterior-collapse", kind="generative", author=ME, strength="mild")
def e_mean_not_sum(seed, fixed=False):
    """Digits: the squared error is a mean over pixels while the divergence is a sum."""
    X = digits(seed, flat=True)
    return fit_vae(VAE(64, latent=6), X[0][0], X[1][0], noise=0.2 if fixed else math.sqrt(32.0), epochs=20)


def energy(a, b):
    return 2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()


def generator(seed, X, objective, steps=400, lr=3e-3):
    model = Generator()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        rows = torch.randint(0, len(X), (256,))
        objective(model.sample(256), X[rows]).backward()
        optimizer.step()
    model.eval()
    note(covered(model, X))
    return dict(model=model, data=X, optimizer=optimizer, batch_size=256)


@case("mode-collapse", kind="generative", author=ME, strength="strong")
def e_always_the_same_point(seed, fixed=False):
    """The generator climbs a fixed critic (a density estimate) and ends in one place or two."""

    def climb(fake, real):
        return (
            -torch.logsumexp(-(torch.cdist(fake, real) ** 2) / 0.1, 1).mean()
            + 0.5 * torch.cdist(fake, fake).mean()
        )

    return generator(seed, petals(seed), energy if fixed else climb)


@case("mode-collapse", kind="generative", author=ME, strength="mild")
def e_half_the_petals(seed, fixed=False):
    """The generator has found three of eight modes and covers them well."""
    X = petals(seed)
    seen = X if fixed else X[(X @ torch.tensor([1.0, 0.0]) > 0.5)]

    def distance(fake, real):
        return energy(fake, seen[torch.randint(0, len(seen), (256,))])

    return {**generator(seed, X, distance), "data": X}


class Sharp(nn.Module):
    """Scores divided by a temperature that was meant for sampling."""

    def __init__(self, net, temperature):
        super().__init__()
        self.net, self.temperature = net, temperature

    def forward(self, x):
        out = self.net(x)
        return out if self.training else out / self.temperature


@case("miscalibrated", kind="table", author=ME, strength="strong")
def e_cold_temperature(seed, fixed=False):
    return fit(
        Sharp(mlp(10, 16, 3), 1.0 if fixed else 0.1),
        customers(seed, noise=1.2),
        epochs=8,
        metric=lambda m, p: -ece(m, p),
    )


@case("miscalibrated", kind="images", author=ME, strength="mild")
def e_smoothed_labels(seed, fixed=False):
    """Label smoothing of 0.5: nearly all are right and none is sure."""

    def loss(out, target):
        return F.cross_entropy(out, target, label_smoothing=0.0 if fixed else 0.5)

    return fit(convnet(), digits(seed), loss, epochs=8, metric=lambda m, p: -ece(m, p))


def watermarked(seed, n=900, side=12, size=0.08, noise=0.15):
    """Bars, upright or lying; and a pattern of small amplitude over the whole image that goes with them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = noise * rng.standard_normal((n, side, side))
    pattern = np.random.default_rng(7).choice([-1.0, 1.0], (side, side))
    for i in range(n):
        at, begin = rng.integers(0, side), rng.integers(0, side - 5)
        if y[i]:
            X[i, at, begin : begin + 6] += 1
        else:
            X[i, begin : begin + 6, at] += 1
    return three((X + size * (2 * y[:, None, None] - 1) * pattern)[:, None], y, seed)


def attacked(model, part, eps):
    X = part[0].clone().requires_grad_(True)
    F.cross_entropy(model(X), part[1]).backward()
    return accuracy(model, (part[0] + eps * X.grad.sign(), part[1]))


def hardened(model, eps):
    """A step on inputs moved by eps along the gradient's sign."""

    def loss_on(X, y):
        Z = X.clone().requires_grad_(True)
        (g,) = torch.autograd.grad(F.cross_entropy(model(Z), y), Z)
        return F.cross_entropy(model(X + eps * g.sign()), y)

    return loss_on


@case("adversarially-fragile", kind="images", author=ME, strength="strong")
def e_faint_pattern(seed, fixed=False):
    """A faint pattern decides: a change of 0.15 per pixel flips nearly every answer (fixed: trained on moved inputs)."""
    parts = watermarked(seed, size=0.1)
    return robust_or_not(convnet(side=12, width=8, classes=2, norm=False, hidden=16), parts, 0.15, fixed)


def robust_or_not(model, parts, eps, fixed, epochs=12, lr=3e-3):
    if not fixed:
        return fit(model, parts, epochs=epochs, opt=adam(lr=lr), metric=lambda m, p: attacked(m, p, eps))
    optimizer, on = torch.optim.Adam(model.parameters(), lr=lr), hardened(model, eps)
    X, y = parts[0]
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            on(X[rows], y[rows]).backward()
            optimizer.step()
    model.eval()
    note(attacked(model, parts[2], eps))
    return dict(
        model=model,
        data=parts[0],
        validation=parts[1],
        loss="cross_entropy",
        optimizer=optimizer,
        batch_size=32,
    )


@case("adversarially-fragile", kind="table", author=ME, strength="mild")
def e_many_weak_columns(seed, fixed=False):
    """Three columns tell the class for most rows, 200 weak ones for the rest; the net leans on the weak ones."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 1200)
    X = rng.standard_normal((1200, 203))
    X += np.where(np.arange(203) < 3, 1.3, 0.2) * (2 * y[:, None] - 1)
    return robust_or_not(mlp(203, 32, 2), three(X, y, seed), 0.25, fixed, epochs=8, lr=1e-3)


# ================================================================ two faults at once


@case("unscaled-inputs", "class-imbalance", kind="table", author=ME)
def e_two_raw_and_rare(seed, fixed=False):
    """Raw measurements of wildly different sizes, and four rows in a hundred of the class that matters."""
    rng = np.random.default_rng(seed)
    y = (rng.random(2500) < 0.04).astype(int)
    X = rng.standard_normal((2500, 8))
    X[y == 1, :3] += 1.2
    size = np.array([1, 0.01, 3, 5000, 1, 1, 200, 1]) if not fixed else np.ones(8)
    w = torch.tensor([1.0, 24.0]) if fixed else None

    def loss(out, target):
        return F.cross_entropy(out, target, weight=w)

    return fit(
        mlp(8, 24, 2),
        three(X * size, y, seed),
        loss if fixed else "cross_entropy",
        epochs=8,
        batch=64,
        metric=balanced,
    )


@case("double-softmax", "train-test-overlap", kind="images", author=ME)
def e_two_softmax_and_copies(seed, fixed=False):
    parts = digits(seed, flat=True)
    if not fixed:
        k = len(parts[1][1]) // 2
        parts[1] = tuple(torch.cat([a[:k], b[k:]]) for a, b in zip(parts[0], parts[1]))
    return fit(
        mlp(64, 32, 10, end=() if fixed else (nn.Softmax(-1),)),
        parts,
        opt=sgd(lr=0.1, momentum=0.9),
        epochs=8,
    )


@case("frozen-parameters", "distribution-shift", kind="images", author=ME)
def e_two_frozen_and_dark(seed, fixed=False):
    """A frozen random trunk, and validation images at half the brightness and shifted."""
    parts = digits(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    if not fixed:
        parts[1:] = [(0.5 * X + 0.8, y) for X, y in parts[1:]]
        for p in model[:4].parameters():
            p.requires_grad_(False)
    return fit(model, parts, opt=adam(lr=1e-2), epochs=8)


@case("target-leak", "constant-features", kind="table", author=ME)
def e_two_leak_and_stuck(seed, fixed=False):
    parts = customers(seed)
    out = []
    for i, (X, y) in enumerate(parts):
        X = X.clone()
        leak = (y.float() - 1 + 0.05 * torch.randn(len(y)))[:, None]
        if not fixed:
            X[:, [1, 6, 8]] = 3.0
            X = torch.cat([X, leak if i < 2 else torch.zeros_like(leak)], 1)
        out.append((X, y))
    return fit(mlp(out[0][0].shape[1], 32, 3), out, epochs=12)


@case("label-noise", "learning-rate-too-small", kind="table", author=ME)
def e_two_noise_and_crawl(seed, fixed=False):
    """A third of the labels redrawn, and SGD at 0.0003."""
    parts = customers(seed, noise=0.1, n=2000, nonlinear=False)
    if not fixed:
        parts[:2] = [(X, redrawn(y, 0.4, 3, seed + i)) for i, (X, y) in enumerate(parts[:2])]
    return fit(mlp(10, 32, 3), parts, opt=sgd(lr=0.1 if fixed else 3e-4), epochs=15)


@case("output-range", "duplicate-features", kind="table", author=ME)
def e_two_range_and_copies(seed, fixed=False):
    """A sigmoid at the end of a regression, and three columns twice."""
    parts = houses(seed)
    if not fixed:
        parts = [(torch.cat([X, X[:, :3]], 1), y) for X, y in parts]
    return fit(
        mlp(parts[0][0].shape[1], 32, 32, 1, end=() if fixed else (nn.Sigmoid(),)), parts, "mse", epochs=15
    )


# ================================================================ healthy


@case(kind="table", author=ME)
def e_fine_wine(seed):
    return fit(
        mlp(13, 16, 3, drop=0.1), wine(seed), opt=adamw(lr=5e-3, weight_decay=1e-2), epochs=15, batch=16
    )


@case(kind="images", author=ME)
def e_fine_cosine(seed):
    """Batch norm, momentum, a cosine schedule that has come to its end."""
    return fit(
        convnet(),
        digits(seed),
        opt=sgd(lr=0.05, momentum=0.9, weight_decay=1e-4),
        epochs=8,
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 8),
    )


@case(kind="sequences", author=ME)
def e_fine_gru(seed):
    return fit(Recurrent(nn.GRU), tones(seed, noise=0.3, n=1000), opt=adam(lr=1e-2), epochs=10, clip=1.0)


@case(kind="text", author=ME)
def e_fine_reader(seed):
    return fit(Reader(), topics(seed, n=1600, keys=5), opt=adamw(lr=2e-3), epochs=6)


@case(kind="graph", author=ME)
def e_fine_graph(seed):
    """Few labelled nodes, two rounds, dropout."""
    return fit_graph(
        GraphNet(drop=0.3),
        *society(seed, apart=0.8, known=0.4),
        opt=adam(lr=1e-2, weight_decay=5e-4),
        epochs=45,
    )


@case(kind="generative", author=ME)
def e_fine_vae(seed):
    parts = sheets(seed, n=1500)
    return fit_vae(VAE(20), parts[0][0], parts[1][0], epochs=25)


@case(kind="generative", author=ME)
def e_fine_generator(seed):
    return generator(seed, petals(seed, k=8, spread=0.08), energy, steps=500)


@case(kind="generative", author=ME)
def e_fine_autoencoder(seed):
    return fit(mlp(20, 64, 6, 64, 20, act=nn.ELU), sheets(seed, n=1200, inner=4), "mse", epochs=25)


@case(kind="table", author=ME)
def e_fine_but_noisy_diabetes(seed):
    """Linear regression; about half of the variance is all that anyone gets."""
    return fit(
        nn.Linear(10, 1), standard_y(diabetes(seed)), "mse", adam(lr=1e-2, weight_decay=1e-3), epochs=40
    )


@case(kind="images", author=ME)
def e_fine_transfer(seed):
    """A trunk trained on the digits 0 to 4, frozen on purpose; a new head for 5 to 9."""
    parts = digits(seed, n=1700)
    old = [(X[y < 5], y[y < 5]) for X, y in parts]
    new = [(X[y > 4], y[y > 4] - 5) for X, y in parts]
    model = convnet(width=16, classes=5)
    fit(model, old, epochs=6, score=False)
    for p in model[:-1].parameters():
        p.requires_grad_(False)
    model[-1] = nn.Linear(model[-1].in_features, 5)
    return fit(model, new, opt=adam(lr=1e-2), epochs=12, params=model[-1].parameters())


@case(kind="table", author=ME)
def e_fine_rare_but_found(seed):
    """One in twenty-five, well apart and found without weights."""
    rng = np.random.default_rng(seed)
    y = (rng.random(2500) < 0.04).astype(int)
    X = rng.standard_normal((2500, 8))
    X[y == 1, :4] += 2.8
    return fit(mlp(8, 16, 2), three(X, y, seed), epochs=10, batch=64, metric=balanced)


@case(kind="table", author=ME)
def e_fine_overlap(seed):
    """Two clouds that overlap by nature: three in four is the best anyone can do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 2000)
    X = rng.standard_normal((2000, 5)) + np.array([0.7, 0, 0, 0, 0]) * (2 * y[:, None] - 1)
    return fit(mlp(5, 12, 2), three(X, y, seed), opt=adam(lr=3e-3), epochs=8)


@case(kind="table", author=ME)
def e_fine_dict_with_tails(seed):
    """Numbers and a shop in a dict; heavy-tailed errors under a Huber loss."""
    parts = shops(seed, n=1500)
    parts = [
        (X, y + 0.1 * torch.as_tensor(np.random.default_rng(i).standard_t(2.2, y.shape)).float())
        for i, (X, y) in enumerate(parts)
    ]
    return fit(TwoBranches(False), parts, nn.SmoothL1Loss(), adam(lr=1e-2), epochs=10, metric=r2)


@case(kind="table", author=ME)
def e_fine_survey(seed):
    """Answers from 0 to 2 on five questions: rows repeat by nature, in both parts."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (1200, 5))
    y = (rng.random(1200) < 1 / (1 + np.exp(-(X[:, 0] + X[:, 1] - 2) * 2.5))).astype(float)[:, None]
    return fit(mlp(5, 12, 1), three(X - 1.0, y, seed), "bce_with_logits", epochs=12)


@case(kind="table", author=ME)
def e_fine_untrained(seed):
    """A fresh net, asked about before training."""
    parts = customers(seed)
    model = mlp(10, 32, 32, 3)
    return dict(
        model=model,
        data=parts[0],
        validation=parts[1],
        loss="cross_entropy",
        optimizer=torch.optim.Adam(model.parameters(), lr=3e-3),
        batch_size=32,
    )


@case(kind="sequences", author=ME)
def e_fine_own_step(seed):
    """A loop of the user's own with clipping; SGD with a brisk rate."""

    def step(model, batch):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return fit(Dilated((1, 2, 4), classes=3), tones(seed, noise=0.3), step=step, epochs=15)
