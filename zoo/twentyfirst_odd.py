"""Healthy trainings that look odd to a rule and are right."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentyfirst_parts import *

table = partial(case, kind="table", author=ME)
images = partial(case, kind="images", author=ME)
sequences = partial(case, kind="sequences", author=ME)
text = partial(case, kind="text", author=ME)


def logistic(z):
    return 1 / (1 + np.exp(-z))


class Scaled(nn.Module):
    """Raw units in, standardised inside; and raw units out if asked."""

    def __init__(self, net, x, y=None):
        super().__init__()
        self.net = net
        self.register_buffer("m", x.mean(0))
        self.register_buffer("s", x.std(0))
        self.register_buffer("a", torch.tensor(0.0) if y is None else y.mean(0))
        self.register_buffer("b", torch.tensor(1.0) if y is None else y.std(0))

    def forward(self, x):
        return self.a + self.b * self.net((x - self.m) / self.s)


@table()
def twentyfirst_odd_faint(seed):
    """Whether a customer clicks can hardly be known, and the probabilities say so."""
    r = generator(seed)
    x = r.normal(0, 1, (14000, 6))
    p = logistic(0.25 * x[:, 0] - 0.2 * x[:, 1] + 0.2 * x[:, 2] * x[:, 3])
    train, val = split(x, (r.random(14000) < p).astype(float), seed, 0.3)
    net = nn.Sequential(perceptron(6, 16, 1, act=nn.Tanh), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.1)
    fit(net, train, val, bce, opt, 25, 256, patience=6)
    return dict(model=net, data=train)


@table()
def twentyfirst_odd_repeated_rows(seed):
    """Who has a health insurance: only categories, so that most people look like somebody else."""
    df = frame("AER", "HealthInsurance")
    df["old"] = (df.age // 10).astype(int)
    cats = codes(
        df, ["health", "limit", "gender", "married", "selfemp", "region", "ethnicity", "education", "old"]
    )
    y = (df.insurance.astype(str) == "yes").to_numpy(float)

    class Additive(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(int(cats[:, j].max()) + 1, 4) for j in range(9))
            self.head = perceptron(36, 24, 1, dropout=0.3)

        def forward(self, c):
            return self.head(torch.cat([t(c[:, j]) for j, t in enumerate(self.tables)], 1)).squeeze(1)

    train, val = split(cats, y, seed)
    net = Additive()
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    history = fit(net, train, val, bce, opt, 25, 128, patience=5)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", history=history)


@table()
def twentyfirst_odd_raw_units(seed):
    """A house's yearly use of energy in kilowatt hours from raw columns: the module scales both."""
    r = generator(seed)
    n = 4000
    area, built, people = r.gamma(9, 15, n), r.uniform(1900, 2020, n), r.integers(1, 6, n).astype(float)
    cold = r.normal(2800, 400, n) - 8 * (built - 1960) * r.uniform(0, 1, n)
    income = np.exp(r.normal(10.6, 0.4, n))
    loss = area * (220 - 1.4 * np.clip(built - 1940, 0, 60)) * cold / 3000
    y = loss + 900 * people**0.8 + 0.02 * income + r.normal(0, 1500, n)
    x = np.column_stack([area, built, people, cold, income])
    train, val = split(x, y, seed, scale=False)
    net = Scaled(nn.Sequential(perceptron(5, 48, 24, 1, act=nn.SiLU), Squeeze()), *train)
    opt = torch.optim.Adam(net.parameters(), 6e-3)
    scale = train[1].var().item()
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    history = fit(net, train, val, lambda o, t: mse(o, t) / scale, opt, 30, 64, schedule=plan)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="mse",
        batch_size=64,
        history=[{k: v * scale for k, v in h.items()} for h in history],
    )


@table()
def twentyfirst_odd_input_norm(seed):
    """Raw columns of very different units go through a batch normalisation first."""
    r = generator(seed)
    n = 4000
    z = r.normal(0, 1, (n, 5))
    units = np.array([1000.0, 0.01, 50.0, 3.0, 20000.0])
    x = (z + np.array([3.0, 2.0, 1.0, 0.0, 5.0])) * units
    y = np.digitize(z[:, 0] + z[:, 1] * z[:, 2] - 0.5 * z[:, 3] ** 2 + r.normal(0, 0.3, n), [-1.2, 0.2])
    train, val = split(x, y, seed, scale=False)
    net = nn.Sequential(nn.BatchNorm1d(5, affine=False), perceptron(5, 48, 24, 3, act=nn.SiLU))
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 25)
    fit(net, train, val, ce, opt, 25, 128, schedule=plan)
    return dict(model=net, data=train)


@table()
def twentyfirst_odd_random_features(seed):
    """The first layer is random and stays so; only the reading is trained."""
    r = generator(seed)
    n = 4000
    x = r.uniform(-1, 1, (n, 4))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.4 * x[:, 3] ** 2 + r.normal(0, 0.15, n)
    train, val = split(x, (y - y.mean()) / y.std(), seed)
    first = nn.Linear(4, 300)
    nn.init.normal_(first.weight, std=0.6)
    nn.init.uniform_(first.bias, -np.pi, np.pi)
    first.requires_grad_(False)

    class Cosine(nn.Module):
        def forward(self, x):
            return torch.cos(x) / 6

    net = nn.Sequential(first, Cosine(), nn.Linear(300, 1), Squeeze())
    opt = torch.optim.LBFGS(net[2].parameters(), 1.0, max_iter=120, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        value = mse(net(train[0]), train[1]) + 1e-4 * (net[2].weight ** 2).sum()
        value.backward()
        return value

    opt.step(closure)
    return dict(model=net.eval(), data=train, validation=val, loss="mse")


@images()
def twentyfirst_odd_frozen_backbone(seed):
    """Filters learned on the digits 0 to 5 and then fixed; a new head for the others."""
    d = datasets.load_digits()
    x, y = torch.tensor(d.images[:, None] / 16 - 0.3, dtype=torch.float32), torch.tensor(d.target)
    body = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
    )
    some = y < 6
    train, val = split(x[some], y[some], seed, scale=False)
    before = nn.Sequential(body, nn.Linear(512, 6))
    fit(before, train, val, ce, torch.optim.Adam(before.parameters(), 3e-3), 12, 64)
    body.requires_grad_(False)
    train, val = split(x[~some], y[~some] - 6, seed, scale=False)
    net = nn.Sequential(body, nn.Dropout(0.3), nn.Linear(512, 4))
    opt = torch.optim.Adam(net[2].parameters(), 3e-3, weight_decay=1e-3)
    history = fit(net, train, val, ce, opt, 30, 64, patience=6)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@table()
def twentyfirst_odd_zero_start(seed):
    """A logistic regression that starts at nought, by the whole data, with a large rate."""
    r = generator(seed)
    x = r.normal(0, 1, (3000, 8)) @ (np.eye(8) + 0.2)
    y = (r.random(3000) < logistic(x @ np.array([1.2, -0.8, 0.5, 0, 0.3, -0.4, 0.6, 0.2]))).astype(float)
    train, val = split(x, y, seed)
    net = nn.Sequential(nn.Linear(8, 1), Squeeze())
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[0].bias)
    opt = torch.optim.SGD(net.parameters(), 1.0)
    fit(net, train, val, bce, opt, 200, len(train[1]))
    return dict(model=net, data=train, validation=val, loss="bce_with_logits")


@table()
def twentyfirst_odd_summed_loss(seed):
    """The loss is summed over the batch, so the rate is tiny."""
    r = generator(seed)
    x = r.normal(0, 1, (3000, 6))
    y = np.tanh(x[:, 0] + x[:, 1]) + 0.6 * np.abs(x[:, 2]) + 0.3 * x[:, 3] + r.normal(0, 0.3, 3000)
    train, val = split(x, (y - y.mean()) / y.std(), seed)

    def summed(o, t):
        return ((o - t) ** 2).sum()

    net = nn.Sequential(perceptron(6, 32, 32, 1, act=nn.Tanh), Squeeze())
    opt = torch.optim.SGD(net.parameters(), 4e-4, momentum=0.9)
    history = []
    for epoch in range(60):
        order = torch.randperm(len(train[1])).split(64)
        total = 0.0
        for g in opt.param_groups:
            g["lr"] = 4e-4 * (1 - epoch / 62)
        for i in order:
            opt.zero_grad()
            value = summed(net(train[0][i]), train[1][i])
            value.backward()
            opt.step()
            total += value.item()
        history.append({"loss": total / len(order)})
    return dict(
        model=net.eval(),
        data=train,
        validation=val,
        loss=summed,
        optimizer=opt,
        batch_size=64,
        history=history,
    )


@table()
def twentyfirst_odd_more_genes_than_people(seed):
    """Seven tissues by 500 genes of 189 samples: a linear map under a heavy decay."""
    x = frame("dslabs", "tissue_gene_expression")
    y = codes(x, ["y"])[:, 0]
    x = x.drop(columns="y").to_numpy(float)
    x, first = np.unique(x, axis=0, return_index=True)
    train, val = split(x, y[first], seed, 0.35)
    net = nn.Linear(x.shape[1], 7)
    nn.init.zeros_(net.weight)
    opt = torch.optim.SGD(net.parameters(), 5e-3, momentum=0.9, weight_decay=0.05)
    history = fit(net, train, val, ce, opt, 60, 32)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@text()
def twentyfirst_odd_words_dropped(seed):
    """A sixth of the words is hidden in training, so its loss is above the held-out one."""
    r = generator(seed)
    n, d = 5000, 150
    y = r.integers(0, 2, n)
    rate = np.where(r.random((2, d)) < 0.2, 0.16, 0.08)
    x = (r.random((n, d)) < rate[y]).astype(float)
    train, val = split(x, y.astype(float), seed, scale=False)
    net = nn.Sequential(nn.Dropout(0.17), nn.Linear(d, 1), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    history = fit(net, train, val, bce, opt, 80, 128, patience=10)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", optimizer=opt, history=history)


@table()
def twentyfirst_odd_outliers(seed):
    """Every twentieth reading of the meter is wild; a Cauchy likelihood does not mind."""
    r = generator(seed)
    n = 4000
    x = r.normal(0, 1, (n, 5))
    y = np.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - x[:, 2] + 0.2 * r.normal(0, 1, n)
    wild = r.random(n) < 0.05
    y[wild] += 8 * r.standard_t(2, wild.sum())
    train, val = split(x, y, seed)

    def cauchy(o, t):
        return torch.log1p(((o - t) / 0.3) ** 2).mean()

    net = nn.Sequential(perceptron(5, 48, 48, 1, act=nn.SiLU), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 25)
    history = fit(net, train, val, cauchy, opt, 25, 64, schedule=plan)
    return dict(
        model=net, data=train, validation=val, loss=cauchy, optimizer=opt, batch_size=64, history=history
    )


@table()
def twentyfirst_odd_one_epoch(seed):
    """So many rows that each is seen once."""
    r = generator(seed)
    n = 50000
    x = r.normal(0, 1, (n, 8))
    score = x[:, 0] * x[:, 1] + x[:, 2] - 0.5 * x[:, 3] ** 2 + 0.5
    y = (r.random(n) < logistic(1.5 * score)).astype(float)
    train, val = split(x, y, seed, 0.1)
    net = nn.Sequential(perceptron(8, 64, 64, 1, act=nn.SiLU), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 8e-3)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 8e-3, total_steps=1407)
    history = fit(net, train, val, bce, opt, 1, 32, schedule=plan, each="batch")
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="bce_with_logits",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@table()
def twentyfirst_odd_restarts(seed):
    """The rate jumps up again three times, and the loss with it; it ends in a valley."""
    r = generator(seed)
    x = r.normal(0, 1, (3500, 6))
    y = (x[:, :3] ** 2).sum(1) - x[:, 3] * x[:, 4]
    y = np.digitize(y + r.normal(0, 0.4, 3500), [1.5, 3.5])
    train, val = split(x, y, seed)
    net = perceptron(6, 48, 48, 3, act=nn.GELU)
    opt = torch.optim.SGD(net.parameters(), 0.2, momentum=0.9, weight_decay=1e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 6, eta_min=1e-3)
    history = fit(net, train, val, ce, opt, 24, 64, schedule=plan)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=64,
        history=history,
    )


@table()
def twentyfirst_odd_prior_corrected(seed):
    """Two in a hundred are frauds: shown evenly in training, then the odds are set right."""
    r = generator(seed)
    n = 16000
    x = np.exp(r.normal(0, 0.6, (n, 6)))
    z = np.log(x)
    y = (r.random(n) < logistic(5 * z[:, 0] / 0.6 + 4 * z[:, 1] * z[:, 2] / 0.36 - 15)).astype(float)
    train, val = split(z, y, seed)
    net = nn.Sequential(perceptron(6, 48, 24, 1, act=nn.SiLU), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 6e-3, weight_decay=0.02)
    rare = np.flatnonzero(train[1].numpy() == 1)
    often = np.flatnonzero(train[1].numpy() == 0)
    for step in range(1300):
        for g in opt.param_groups:
            g["lr"] = 6e-3 * (1 - step / 1310)
        i = np.r_[r.choice(rare, 32), r.choice(often, 96)]
        opt.zero_grad()
        bce(net(train[0][i]), train[1][i]).backward()
        opt.step()
    with torch.no_grad():
        net[0][-1].bias += float(np.log(len(rare) / len(often)) - np.log(1 / 3))
    return dict(model=net.eval(), data=train, validation=val, loss="bce_with_logits", batch_size=128)


@table()
def twentyfirst_odd_sigmoid_inside(seed):
    """The net gives probabilities, and its loss is the one for probabilities."""
    r = generator(seed)
    x = r.normal(0, 1, (3500, 5))
    y = (r.random(3500) < logistic(2 * np.sin(x[:, 0] * 1.5) + x[:, 1] * x[:, 2])).astype(float)
    train, val = split(x, y, seed)
    net = nn.Sequential(perceptron(5, 32, 32, 1, act=nn.SiLU), nn.Sigmoid(), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = fit(net, train, val, F.binary_cross_entropy, opt, 40, 64, patience=6)
    return dict(
        model=net, data=train, validation=val, loss=F.binary_cross_entropy, optimizer=opt, history=history
    )


@table()
def twentyfirst_odd_log_softmax(seed):
    """Logarithms of probabilities and their likelihood, classes of heavy overlap."""
    r = generator(seed)
    y = r.choice(3, 4000, p=[0.5, 0.3, 0.2])
    x = r.normal(0, 1, (4000, 4)) + np.array([[0, 0, 0, 0], [1, 0.5, 0, 0], [0, -1, 1, 0.0]])[y]
    train, val = split(x, y, seed)
    net = nn.Sequential(perceptron(4, 16, 3, act=nn.Tanh), nn.LogSoftmax(1))
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    fit(net, train, val, F.nll_loss, opt, 25, 64, patience=6)
    return dict(model=net, data=train)


@table()
def twentyfirst_odd_shares(seed):
    """A share between nought and one from a sigmoid, by the cross-entropy with soft targets."""
    r = generator(seed)
    n = 3000
    x = r.normal(0, 1, (n, 6))
    z = x[:, 0] - 0.8 * x[:, 1] + np.abs(x[:, 2]) - 0.8
    p = logistic(z)
    y = r.beta(12 * p, 12 * (1 - p))
    train, val = split(x, y, seed)

    def soft(o, t):
        return F.binary_cross_entropy(o, t)

    net = nn.Sequential(perceptron(6, 32, 16, 1, act=nn.GELU), nn.Sigmoid(), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = fit(net, train, val, soft, opt, 30, 64, patience=5)
    return dict(
        model=net, data=train, validation=val, loss=soft, optimizer=opt, batch_size=64, history=history
    )


@table()
def twentyfirst_odd_spread_too(seed):
    """The mean and the logarithm of the variance, which differs from row to row."""
    r = generator(seed)
    n = 4000
    x = r.uniform(-2, 2, (n, 3))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + np.exp(0.6 * x[:, 2] - 1) * r.normal(0, 1, n)
    train, val = split(x, y, seed)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Sequential(perceptron(3, 48, 1, act=nn.Tanh), Squeeze())
            self.spread = nn.Sequential(perceptron(3, 16, 1, act=nn.Tanh), Squeeze())

        def forward(self, x):
            return self.mean(x), self.spread(x)

    def likelihood(o, t):
        return 0.5 * (o[1] + (t - o[0]) ** 2 * torch.exp(-o[1])).mean()

    net = Both()
    opt = torch.optim.Adam(net.parameters(), 8e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    history = fit(net, train, val, likelihood, opt, 40, 64, schedule=plan, clip=5.0)
    return dict(model=net, data=train, validation=val, loss=likelihood, optimizer=opt, history=history)


@table()
def twentyfirst_odd_narrow_middle(seed):
    """Twenty spectra lines from three substances: a linear autoencoder of three is enough."""
    r = generator(seed)
    n = 2500
    pure = np.stack([np.exp(-(((np.arange(20) - c) / w) ** 2)) for c, w in [(4, 2.5), (10, 4.0), (15, 2.0)]])
    x = r.gamma(2, 0.5, (n, 3)) @ pure + r.normal(0, 0.03, (n, 20))
    (x, _), (xv, _) = split(x, np.zeros(n), seed)
    net = nn.Sequential(nn.Linear(20, 3), nn.Linear(3, 20))
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    history = fit(net, (x, x), (xv, xv), mse, opt, 30, 64, schedule=plan)
    return dict(model=net, data=(x, x), validation=(xv, xv), loss="mse", optimizer=opt, history=history)


@images()
def twentyfirst_odd_coordinates(seed):
    """A photograph's brightness as a function of place: sines, and large first weights by design."""
    p = datasets.load_sample_image("flower.jpg").mean(2) / 255.0
    p = p[:420:6, :636:6][:, :105]
    p = (p - p.mean()) / p.std()
    g = np.stack(
        np.meshgrid(np.linspace(-1, 1, p.shape[0]), np.linspace(-1, 1, p.shape[1]), indexing="ij"), 2
    )
    train, val = split(g.reshape(-1, 2), p.reshape(-1), seed, scale=False)

    class Sine(nn.Module):
        def __init__(self, a, b, high):
            super().__init__()
            self.map = nn.Linear(a, b)
            nn.init.uniform_(self.map.weight, -high, high)

        def forward(self, x):
            return torch.sin(self.map(x))

    net = nn.Sequential(Sine(2, 96, 12.0), Sine(96, 96, 0.25), nn.Linear(96, 1), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    history = fit(net, train, val, mse, opt, 30, 128, schedule=plan)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=128, history=history
    )


@table()
def twentyfirst_odd_one_by_one(seed):
    """Every row its own batch, with a rate that falls and an average of the last weights."""
    r = generator(seed)
    n = 3000
    x = r.normal(0, 1, (n, 5))
    y = x[:, 0] - np.maximum(x[:, 1], 0) + 0.5 * x[:, 2] * x[:, 3] + r.normal(0, 0.3, n)
    train, val = split(x, (y - y.mean()) / y.std(), seed)
    net = nn.Sequential(perceptron(5, 24, 1, act=nn.Tanh), Squeeze())
    opt = torch.optim.SGD(net.parameters(), 0.02)
    mean = torch.optim.swa_utils.AveragedModel(net)
    history = []
    for epoch in range(8):
        for g in opt.param_groups:
            g["lr"] = 0.03 / (1 + epoch)
        total = 0.0
        for i in torch.randperm(len(train[1])).tolist():
            value = mse(net(train[0][i : i + 1]), train[1][i : i + 1])
            opt.zero_grad()
            value.backward()
            opt.step()
            total += value.item()
        if epoch > 3:
            mean.update_parameters(net)
        history.append({"loss": total / len(train[1])})
    return dict(
        model=mean.module.eval(), data=train, validation=val, loss="mse", batch_size=1, history=history
    )


@table()
def twentyfirst_odd_deep_selu(seed):
    """Sixteen self-normalising layers on a table, and they pass the gradient."""
    r = generator(seed)
    n = 8000
    x = r.normal(0, 1, (n, 8))
    y = (np.abs(x[:, 0]) + x[:, 1] * x[:, 2] + 0.7 * x[:, 3] + r.normal(0, 0.5, n) > 0.8).astype(int)
    train, val = split(x, y, seed)
    net = perceptron(8, *[32] * 16, 2, act=nn.SELU)
    for m in net:
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=m.in_features**-0.5)
            nn.init.zeros_(m.bias)
    start = kept(net)
    opt = torch.optim.AdamW(net.parameters(), 5e-4, weight_decay=0.1)
    history = fit(net, train, val, ce, opt, 25, 128, patience=5, clip=1.0)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        history=history,
        initial=start,
    )


@table()
def twentyfirst_odd_powers(seed):
    """Powers of one column, which go together almost wholly; a ridge finds the curve."""
    r = generator(seed)
    n = 1500
    t = r.uniform(-1, 1, n)
    y = np.sin(3 * t) + 0.3 * t**2 + r.normal(0, 0.2, n)
    x = np.stack([t**k for k in range(1, 6)], 1)
    train, val = split(x, (y - y.mean()) / y.std(), seed)
    net = nn.Sequential(nn.Linear(5, 1), Squeeze())
    opt = torch.optim.LBFGS(net.parameters(), 1.0, max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        value = mse(net(train[0]), train[1]) + 1e-5 * (net[0].weight ** 2).sum()
        value.backward()
        return value

    opt.step(closure)
    return dict(model=net.eval(), data=train, validation=val, loss="mse", optimizer=opt)


@table()
def twentyfirst_odd_means_by_shop(seed):
    """Only the number of the shop is known: the net learns 300 means and shrinks them."""
    r = generator(seed)
    n = 9000
    shop = r.integers(0, 300, n)
    y = r.normal(0, 1, 300)[shop] + r.normal(0, 1.0, n)

    class Means(nn.Module):
        def __init__(self):
            super().__init__()
            self.each, self.all = nn.Embedding(300, 1), nn.Parameter(torch.tensor(0.0))
            nn.init.zeros_(self.each.weight)

        def forward(self, i):
            return self.all + self.each(i).squeeze(1)

    train, val = split(shop, y, seed, 0.3)
    net = Means()
    opt = torch.optim.SGD(
        [{"params": [net.all], "lr": 0.02}, {"params": net.each.parameters(), "weight_decay": 3e-4}], 10.0
    )
    history = fit(net, train, val, mse, opt, 40, 256)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=256, history=history
    )


@table()
def twentyfirst_odd_experts(seed):
    """Four experts and a gate."""
    r = generator(seed)
    n = 4000
    x = r.normal(0, 1, (n, 5))
    which = (x[:, 0] > 0).astype(int) * 2 + (x[:, 1] > 0)
    w = r.normal(0, 1, (4, 5))
    y = (x * w[which]).sum(1) + r.normal(0, 0.4, n)

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = perceptron(5, 24, 4, act=nn.Tanh)
            self.experts = nn.Linear(5, 4)

        def forward(self, x):
            return (self.gate(x).softmax(1) * self.experts(x)).sum(1)

    train, val = split(x, (y - y.mean()) / y.std(), seed)
    net = Experts()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    fit(net, train, val, mse, opt, 40, 64, schedule=plan)
    return dict(model=net, data=train)


@table()
def twentyfirst_odd_accumulated(seed):
    """Four small batches make one step; the update is handed over."""
    r = generator(seed)
    n = 3000
    x = r.normal(0, 1, (n, 6))
    y = np.digitize(x[:, 0] * x[:, 1] + x[:, 2] + r.normal(0, 0.3, n), [-0.7, 0.7])
    train, val = split(x, y, seed)
    net = perceptron(6, 48, 24, 3, act=nn.GELU)
    start = kept(net)

    def update(model, batch):
        opt = torch.optim.SGD(
            model.parameters(), 0.1, weight_decay=1e-3
        )  # has no memory, so it may be new each time
        a, b = batch
        opt.zero_grad()
        total = 0.0
        for p, q in zip(a.chunk(4), b.chunk(4)):
            value = ce(model(p), q) * len(q) / len(b)
            value.backward()
            total += value.item()
        opt.step()
        return total

    history = []
    for _ in range(50):
        total = 0.0
        for i in torch.randperm(len(train[1])).split(64):
            total += update(net, (train[0][i], train[1][i])) * len(i)
        history.append({"loss": total / len(train[1]), "val_loss": measured(net, val, ce)})
    return dict(
        model=net.eval(),
        data=train,
        validation=val,
        loss="cross_entropy",
        batch_size=64,
        history=history,
        initial=start,
        step=update,
    )


@sequences()
def twentyfirst_odd_reservoir(seed):
    """A random recurrent net that is never trained; only its reading is."""
    r = generator(seed)
    n, t = 3000, 20
    v = np.zeros(n + t + 1)
    v[:2] = 0.1
    for k in range(2, len(v)):
        v[k] = 1 - 1.35 * v[k - 1] ** 2 + 0.3 * v[k - 2]
    v = v + r.normal(0, 0.03, len(v))
    x = np.stack([v[k : k + t] for k in range(0, n)])[..., None]
    y = v[t : t + n]
    cut = 2200
    train, val = hold((tensor(x[:cut]), tensor(y[:cut])), (tensor(x[cut + t :]), tensor(y[cut + t :])))

    class Echo(nn.Module):
        def __init__(self):
            super().__init__()
            self.pool = nn.RNN(1, 100, batch_first=True).requires_grad_(False)
            with torch.no_grad():
                w = torch.randn(100, 100) * (torch.rand(100, 100) < 0.1)
                self.pool.weight_hh_l0.copy_(0.7 * w / torch.linalg.eigvals(w).abs().max())
                self.pool.weight_ih_l0.copy_(torch.randn(100, 1))
            self.head = nn.Linear(100, 1)

        def forward(self, x):
            return self.head(self.pool(x)[0][:, -1]).squeeze(1)

    net = Echo()
    with torch.no_grad():
        h = torch.cat([net.pool(train[0])[0][:, -1], torch.ones(cut, 1)], 1)
        w = torch.linalg.solve(h.T @ h + 0.1 * torch.eye(101), h.T @ train[1])
        net.head.weight.copy_(w[:100][None])
        net.head.bias.copy_(w[100:])
    return dict(model=net.eval(), data=train, validation=val, loss="mse")


@table()
def twentyfirst_odd_preferred(seed):
    """Which of two offers is chosen: one utility for both, so that the order does not matter."""
    r = generator(seed)
    n = 4000
    a, b = r.normal(0, 1, (n, 5)), r.normal(0, 1, (n, 5))

    def worth(x):
        return 1.5 * np.tanh(x[:, 0]) - 0.8 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3]

    y = (r.random(n) < logistic(1.5 * (worth(a) - worth(b)))).astype(float)

    class Utility(nn.Module):
        def __init__(self):
            super().__init__()
            self.worth = perceptron(5, 32, 1, act=nn.GELU)
            self.worth[-1] = nn.Linear(32, 1, bias=False)

        def forward(self, a, b):
            return (self.worth(a) - self.worth(b)).squeeze(1)

    train, val = split((a, b), y, seed)
    net = Utility()
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    fit(net, train, val, bce, opt, 30, 64, patience=5)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits")


@images()
def twentyfirst_odd_unit_vectors(seed):
    """Digits as unit vectors beside learned prototypes; the temperature is learned too."""
    d = datasets.load_digits()
    train, val = split(d.images[:, None] / 16.0 - 0.3, d.target, seed, scale=False)

    class Proto(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.GELU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.GELU(),
                nn.Flatten(),
                nn.Dropout(0.3),
                nn.Linear(512, 32),
            )
            self.proto, self.sharp = nn.Parameter(torch.randn(10, 32)), nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.sharp.exp() * F.normalize(self.tower(x), dim=1) @ F.normalize(self.proto, dim=1).T

    net = Proto()
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    fit(net, train, val, ce, opt, 16, 64, patience=5)
    return dict(model=net, data=train, validation=val, loss=ce)


@table()
def twentyfirst_odd_soft_teacher(seed):
    """A small net is taught another's probabilities; it is judged by them too."""
    r = generator(seed)
    n = 4000
    x = r.normal(0, 1, (n, 6))
    y = np.digitize(x[:, 0] + x[:, 1] * x[:, 2] + r.normal(0, 0.6, n), [-0.8, 0.8])
    train, val = split(x, y, seed)
    teacher = perceptron(6, 96, 96, 3, act=nn.SiLU, dropout=0.2)
    fit(
        teacher,
        train,
        val,
        ce,
        torch.optim.AdamW(teacher.parameters(), 3e-3, weight_decay=0.05),
        15,
        128,
        patience=4,
    )
    with torch.no_grad():
        soft = [(a, teacher(a).softmax(1)) for a, _ in (train, val)]
    hold(*soft)

    def distil(o, t):
        return -(t * o.log_softmax(1)).sum(1).mean()

    net = perceptron(6, 24, 3, act=nn.SiLU)
    opt = torch.optim.Adam(net.parameters(), 6e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    history = fit(net, *soft, distil, opt, 30, 64, schedule=plan)
    return dict(model=net, data=soft[0], validation=soft[1], loss=distil, optimizer=opt, history=history)


@sequences()
def twentyfirst_odd_mostly_filling(seed):
    """Sequences of very different lengths, most of the places filled up; the state at the true end is read."""
    r = generator(seed)
    n, most = 2500, 30
    size = np.minimum(3 + r.geometric(0.15, n), most)
    here = np.arange(most)[None] < size[:, None]
    x = np.where(here, r.normal(0, 1, (n, most)), 0.0)
    y = (np.cumsum(x, 1)[np.arange(n), size - 1] / np.sqrt(size) + r.normal(0, 0.2, n) > 0).astype(float)

    class Ends(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.LSTM(2, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x, size):
            h = self.body(torch.stack([x, (x != 0).float()], 2))[0]
            return self.head(h[torch.arange(len(x)), size - 1]).squeeze(1)

    train, val = split((x, size), y, seed, scale=False)
    net = Ends()
    opt = torch.optim.Adam(net.parameters(), 8e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
    history = fit(net, train, val, bce, opt, 12, 64, schedule=plan, clip=1.0)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", optimizer=opt, history=history)


@table()
def twentyfirst_odd_sorted_rows(seed):
    """The rows lie sorted by their class, and the loop shuffles them."""
    x, y = datasets.load_iris(return_X_y=True)
    x, first = np.unique(x, axis=0, return_index=True)
    (a, b), val = split(x, y[first], seed, 0.3)
    i = b.argsort()
    train = (a[i], b[i])
    hold(train, val)
    net = perceptron(4, 8, 3, act=nn.Tanh)
    opt = torch.optim.Adam(net.parameters(), 2e-2, weight_decay=2e-3)
    fit(net, train, val, ce, opt, 40, 16, patience=10)
    return dict(model=net, data=train, validation=val, loss="cross_entropy")
