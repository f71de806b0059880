"""Healthy trainings on tables, as practitioners do them."""

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


@table()
def twentyfirst_diamonds_price(seed):
    """Logarithm of a diamond's price from its cut and size."""
    df = frame("ggplot2", "diamonds").sample(9000, random_state=seed)
    df = df.drop_duplicates(["carat", "cut", "color", "clarity", "depth", "table"])
    cats = np.stack(
        [
            df.cut.astype(str).map({"Fair": 0, "Good": 1, "Very Good": 2, "Premium": 3, "Ideal": 4}),
            df.color.astype(str).map({c: i for i, c in enumerate("JIHGFED")}),
            df.clarity.astype(str).map(
                {c: i for i, c in enumerate(["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"])}
            ),
        ],
        1,
    ).astype(float)
    x = np.column_stack([np.log(df.carat), df.depth, df.table, cats])
    y = np.log(df.price.to_numpy(float))
    train, val = split(x, (y - y.mean()) / y.std(), seed)
    net = nn.Sequential(perceptron(6, 64, 64, 1, act=nn.SiLU), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=1e-4)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 25)
    history = fit(net, train, val, mse, opt, 25, 128, schedule=plan)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=128, history=history
    )


@table()
def twentyfirst_wage_embeddings(seed):
    """Logarithm of a worker's wage; embeddings of the categories."""
    df = frame("ISLR", "Wage")
    cats = codes(df, ["maritl", "race", "education", "jobclass", "health", "health_ins"])
    y = np.log(df.wage.to_numpy(float))
    train, val = split((cats, df[["year", "age"]].to_numpy(float)), (y - y.mean()) / y.std(), seed)
    net = Mixed([int(cats[:, j].max()) + 1 for j in range(6)], 2, 1, 48, 0.1, one=True)
    opt = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4)
    history = fit(net, train, val, mse, opt, 40, 64, patience=6)
    return dict(model=net, data=train, validation=val, loss=mse, optimizer=opt, history=history)


@table()
def twentyfirst_default_rare(seed):
    """Three in a hundred customers default; a missed one weighs five times."""
    df = frame("ISLR", "Default")
    x = np.column_stack([df.balance, df.income, (df.student.astype(str) == "Yes").to_numpy(float)])
    y = (df.default.astype(str) == "Yes").to_numpy(float)
    train, val = split(x, y, seed)
    net = nn.Sequential(perceptron(3, 16, 16, 1, act=nn.Tanh), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(5.0))
    history = fit(net, train, val, loss, opt, 30, 128, patience=6)
    return dict(model=net, data=train, validation=val, loss=loss, optimizer=opt, history=history)


@table()
def twentyfirst_churn_weighted(seed):
    """Telephone customers who leave, with a weight for the smaller class that is given with the loss."""
    df = frame("modeldata", "mlc_churn")
    numeric = [
        "account_length",
        "number_vmail_messages",
        "total_day_minutes",
        "total_day_calls",
        "total_eve_minutes",
        "total_eve_calls",
        "total_night_minutes",
        "total_night_calls",
        "total_intl_minutes",
        "total_intl_calls",
        "number_customer_service_calls",
    ]
    x = columns(df, numeric, ["international_plan"])
    y = (df.churn.astype(str) == "yes").to_numpy(int)
    train, val = split(x, y, seed)
    net = perceptron(12, 48, 24, 2, act=nn.ReLU, dropout=0.2)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=1e-2)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
    history = fit(net, train, val, loss, opt, 40, 64, patience=8)
    return dict(
        model=net, data=train, validation=val, loss=loss, optimizer=opt, batch_size=64, history=history
    )


@table()
def twentyfirst_cells_bagged(seed):
    """Well or poorly segmented cells from 50 measures: a strongly regularised perceptron."""
    df = frame("modeldata", "cells")
    numeric = [c for c in df.columns if c not in ("case", "class")]
    x = df[numeric].to_numpy(float)
    x = x[:, x.std(0) > 0]
    c = np.abs(np.corrcoef(x.T))
    chosen = [j for j in range(x.shape[1]) if not (c[j, :j] > 0.97).any()]
    y = (df["class"].astype(str) == "WS").to_numpy(float)
    train, val = split(np.sign(x[:, chosen]) * np.log1p(np.abs(x[:, chosen])), y, seed)
    net = nn.Sequential(perceptron(len(chosen), 32, 1, dropout=0.3), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    history = fit(net, train, val, bce, opt, 40, 32, patience=6)
    return dict(
        model=net, data=train, validation=val, loss=bce, optimizer=opt, batch_size=32, history=history
    )


@table()
def twentyfirst_concrete_ensemble(seed):
    """Strength of concrete from its mixture, its ratios and the logarithm of its age; the mean of eight small nets by LBFGS."""
    df = frame("modeldata", "concrete")
    mix = [c for c in df.columns if c not in ("compressive_strength", "age")]
    df = df.drop_duplicates([*mix, "age"])
    binder = df.cement + df.blast_furnace_slag + df.fly_ash
    ratios = np.column_stack([df.water / binder, df.cement / binder, df.superplasticizer / binder])
    x = np.column_stack([df[mix].to_numpy(float), ratios, np.log(df.age.to_numpy(float))])
    y = df.compressive_strength.to_numpy(float)
    train, val = split(x, (y - y.mean()) / y.std(), seed)

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(
                nn.Sequential(perceptron(11, 16, 1, act=nn.Tanh), Squeeze()) for _ in range(8)
            )

        def forward(self, x):
            return torch.stack([n(x) for n in self.nets]).mean(0)

    model = Mean()
    for net in model.nets:
        opt = torch.optim.LBFGS(net.parameters(), 1.0, max_iter=200, line_search_fn="strong_wolfe")

        def closure(net=net, opt=opt):
            opt.zero_grad()
            value = mse(net(train[0]), train[1]) + 1.5e-3 * sum((p**2).sum() for p in net.parameters())
            value.backward()
            return value

        opt.step(closure)
    return dict(model=model.eval(), data=train, validation=val, loss="mse")


@table()
def twentyfirst_hpc_classes(seed):
    """How long a job will run, in four classes that overlap."""
    df = frame("modeldata", "hpc_data")
    raw = df[["compounds", "input_fields", "iterations", "num_pending"]].to_numpy(float)
    x = np.log1p(raw)
    x = np.column_stack(
        [x, x[:, 0] - x[:, 1], np.minimum(raw[:, 2], 200), raw[:, 3] > 0, df.hour.to_numpy(float)]
    )
    cats = codes(df, ["protocol", "day"])
    y = df["class"].astype(str).map({"VF": 0, "F": 1, "M": 2, "L": 3}).to_numpy(int)
    train, val = split((cats, x), y, seed)
    net = Mixed([14, 7], 8, 4, 128, 0.3)
    opt = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.02)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    history = fit(net, train, val, ce, opt, 40, 128, schedule=plan, patience=15)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=128,
        history=history,
    )


@table()
def twentyfirst_olive_regions(seed):
    """Nine regions of olive oils by their fatty acids; label smoothing would not be needed."""
    df = frame("dslabs", "olive")
    x = df.drop(columns=["region", "area"]).to_numpy(float)
    y = codes(df, ["area"])[:, 0]
    train, val = split(x, y, seed)
    net = perceptron(8, 32, 9, act=nn.ReLU)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
    fit(net, train, val, ce, opt, 60, 32, patience=12)
    return dict(model=net, data=train)


@table()
def twentyfirst_ames_residual(seed):
    """Sale prices of houses (logarithms), a residual perceptron."""
    df = frame("modeldata", "ames")
    df = df[df.Sale_Condition.astype(str) == "Normal"]
    numeric = [
        "Lot_Area",
        "Year_Built",
        "Year_Remod_Add",
        "Total_Bsmt_SF",
        "First_Flr_SF",
        "Second_Flr_SF",
        "Full_Bath",
        "Bedroom_AbvGr",
        "TotRms_AbvGrd",
        "Fireplaces",
        "Garage_Area",
        "Latitude",
        "Longitude",
    ]
    x = columns(
        df, numeric, ["Neighborhood", "Bldg_Type", "Kitchen_Qual" if "Kitchen_Qual" in df else "Exter_Cond"]
    )
    x[:, 0] = np.log(x[:, 0])
    y = np.log(df.Sale_Price.to_numpy(float))
    x, first = np.unique(x, axis=0, return_index=True)
    y = y[first]
    train, val = split(x, (y - y.mean()) / y.std(), seed)
    net = nn.Sequential(
        nn.Linear(x.shape[1], 32), Residual(32, 0.2), Residual(32, 0.2), nn.Linear(32, 1), Squeeze()
    )
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    history = fit(net, train, val, nn.SmoothL1Loss(), opt, 40, 64, patience=8)
    return dict(model=net, data=train, validation=val, loss=nn.SmoothL1Loss(), optimizer=opt, history=history)


@table()
def twentyfirst_doctor_visits(seed):
    """Yearly visits to the doctor, a Poisson rate by its logarithm."""
    df = frame("AER", "NMES1988")
    numeric = ["chronic", "age", "school", "income"]
    x = columns(df, numeric, ["health", "adl", "region", "gender", "insurance", "medicaid"])
    x[:, 3] = np.arcsinh(x[:, 3])
    train, val = split(x, df.visits.to_numpy(float), seed)
    net = nn.Sequential(perceptron(x.shape[1], 16, 1, act=nn.Softplus), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    loss = nn.PoissonNLLLoss()
    history = fit(net, train, val, loss, opt, 30, 128, patience=6)
    return dict(model=net, data=train, validation=val, loss=loss, history=history)


@table()
def twentyfirst_california_like_blocks(seed):
    """House values by place: two centres and a coast, trained with one cycle of the rate."""
    r = generator(seed)
    n = 8000
    place = r.uniform(-1, 1, (n, 2))
    income = np.exp(r.normal(0, 0.4, n)) * (1 + 0.4 * np.exp(-4 * ((place - 0.4) ** 2).sum(1)))
    age, rooms = r.gamma(4, 7, n), np.exp(r.normal(1.6, 0.25, n))
    people = np.exp(r.normal(1.0, 0.3, n)) + 0.1 * rooms
    x = np.column_stack([place, np.log(income), age, np.log(rooms), np.log(people)])
    y = (
        0.9 * np.log(income)
        + 0.8 * np.exp(-6 * ((place - 0.4) ** 2).sum(1))
        + 0.6 * np.exp(-6 * ((place + [0.5, 0.2]) ** 2).sum(1))
        + 0.4 * np.tanh(3 * (place[:, 0] + place[:, 1]))
        + 0.3 * np.log(rooms / people)
        - 0.004 * age
        + r.normal(0, 0.25, n)
    )
    train, val = split(x, (y - y.mean()) / y.std(), seed)
    net = nn.Sequential(perceptron(6, 64, 64, 1, act=nn.GELU), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-3)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, total_steps=18 * 47)
    fit(net, train, val, mse, opt, 18, 128, schedule=plan, each="batch")
    return dict(model=net, data=train, validation=val, loss="mse")


@table()
def twentyfirst_wine_small(seed):
    """178 wines: a linear softmax with a ridge, trained to the end."""
    x, y = datasets.load_wine(return_X_y=True)
    train, val = split(x, y, seed, 0.3)
    net = nn.Linear(13, 3)
    opt = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9, weight_decay=0.02)
    history = fit(net, train, val, ce, opt, 60, 32, patience=15)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@table()
def twentyfirst_breast_cancer(seed):
    """Tumours by their nuclei; the columns that say the same twice are left out."""
    x, y = datasets.load_breast_cancer(return_X_y=True)
    c = np.abs(np.corrcoef(x.T))
    chosen = [j for j in range(30) if not (c[j, :j] > 0.95).any()]
    train, val = split(np.log(x[:, chosen] + 0.01), y.astype(float), seed, 0.3)
    net = nn.Sequential(perceptron(len(chosen), 16, 1, act=nn.Tanh, dropout=0.2), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 5e-3, weight_decay=1e-3)
    fit(net, train, val, bce, opt, 40, 32, patience=8)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits")


@table()
def twentyfirst_diabetes_bayes(seed):
    """Progress of diabetes in 442 people: half of it cannot be known, and the net does not try."""
    x, y = datasets.load_diabetes(return_X_y=True)
    train, val = split(x, (y - y.mean()) / y.std(), seed, 0.3)
    net = nn.Sequential(perceptron(10, 8, 1, act=nn.Tanh), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.3)
    history = fit(net, train, val, mse, opt, 80, 32, patience=15)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=32, history=history
    )


@table()
def twentyfirst_faults_of_bearings(seed):
    """Five states of a machine from twelve correlated sensors; batch norm and mixup."""
    r = generator(seed)
    n = 4000
    y = r.choice(5, n, p=[0.3, 0.2, 0.2, 0.15, 0.15])
    mix = r.normal(0, 1, (4, 12))
    centres = r.normal(0, 1.8, (5, 4))
    hidden = centres[y] + r.normal(0, 0.8, (n, 4))
    x = np.tanh(hidden @ mix / 2) * 3 + 0.3 * hidden[:, :1] ** 2 + r.normal(0, 0.6, (n, 12))
    train, val = split(x, y, seed)
    net = perceptron(12, 32, 32, 5, norm=True)
    opt = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)

    def mixup(a, b):
        share = torch.distributions.Beta(0.1, 0.1).sample()
        i = torch.randperm(len(a))
        t = F.one_hot(b, 5).float()
        return share * a + (1 - share) * a[i], share * t + (1 - share) * t[i]

    history = fit(net, train, val, ce, opt, 20, 64, change=mixup, schedule=plan)
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
def twentyfirst_many_labels(seed):
    """Six properties of a document at once from 40 measures, each its own sigmoid."""
    r = generator(seed)
    n = 4000
    z = r.normal(0, 1, (n, 6))
    x = np.column_stack([z @ r.normal(0, 1, (6, 20)), np.maximum(z @ r.normal(0, 1, (6, 20)), 0)])
    x += r.normal(0, 1.0, x.shape)
    y = (z + 0.6 * np.roll(z, 1, 1) * np.roll(z, 2, 1) + r.normal(0, 0.5, z.shape) > 0.4).astype(float)
    train, val = split(x, y, seed)
    net = perceptron(40, 96, 48, 6, dropout=0.1)
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.02)
    fit(net, train, val, bce, opt, 30, 64, patience=5)
    return dict(model=net, data=train)


@table()
def twentyfirst_quantile_delivery(seed):
    """The time by which nine in ten deliveries have come: pinball loss."""
    df = frame("modeldata", "deliveries")
    x = columns(df, ["hour", "distance"], ["day"])
    x = np.column_stack([x, df[[c for c in df.columns if c.startswith("item_")]].sum(axis=1).to_numpy(float)])
    train, val = split(x, df.time_to_delivery.to_numpy(float) / 10, seed)

    def pinball(o, t, q=0.9):
        return torch.maximum(q * (t - o), (q - 1) * (t - o)).mean()

    net = nn.Sequential(perceptron(x.shape[1], 64, 32, 1, act=nn.GELU), Squeeze())
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    history = fit(net, train, val, pinball, opt, 20, 128, schedule=plan)
    return dict(model=net, data=train, validation=val, loss=pinball, optimizer=opt, history=history)


@table()
def twentyfirst_two_towers_rating(seed):
    """Ratings of invented films: user and film vectors and their biases."""
    r = generator(seed)
    users, films, n = 250, 120, 12000
    u, f = r.normal(0, 0.6, (users, 3)), r.normal(0, 0.6, (films, 3))
    a, b = r.normal(0, 0.4, users), r.normal(0, 0.5, films)
    pairs = r.permutation(users * films)[:n]
    who, what = pairs // films, pairs % films
    y = (u[who] * f[what]).sum(1) + a[who] + b[what] + r.normal(0, 0.4, n)

    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.f = nn.Embedding(users, 4), nn.Embedding(films, 4)
            self.a, self.b = nn.Embedding(users, 1), nn.Embedding(films, 1)
            for t in (self.u, self.f):
                nn.init.normal_(t.weight, std=0.1)
            for t in (self.a, self.b):
                nn.init.zeros_(t.weight)

        def forward(self, i, j):
            return (self.u(i) * self.f(j)).sum(1) + self.a(i).squeeze(1) + self.b(j).squeeze(1)

    train, val = split((who, what), y, seed, 0.2)
    net = Factors()
    opt = torch.optim.Adam(net.parameters(), 0.01, weight_decay=3e-4)
    history = fit(net, train, val, mse, opt, 25, 256, patience=5)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=256, history=history
    )


@table()
def twentyfirst_engine_two_targets(seed):
    """Torque and temperature of an engine from six settings."""
    r = generator(seed)
    n = 3000
    x = r.uniform(-1, 1, (n, 6))
    x[:, 3] += 0.6 * x[:, 0]
    torque = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] ** 2
    heat = np.exp(0.6 * x[:, 1]) + 0.5 * x[:, 4] * x[:, 0] + 0.3 * np.abs(x[:, 5])
    y = np.column_stack([torque, heat]) + r.normal(0, 0.15, (n, 2))
    train, val = split(x, (y - y.mean(0)) / y.std(0), seed)
    net = perceptron(6, 48, 48, 2, act=nn.Tanh)
    opt = torch.optim.RMSprop(net.parameters(), 2e-3)
    plan = torch.optim.lr_scheduler.ExponentialLR(opt, 0.93)
    fit(net, train, val, mse, opt, 50, 64, schedule=plan)
    return dict(model=net, data=train, validation=val)


@table()
def twentyfirst_missing_shown(seed):
    """Blood values of which a fifth is missing: filled with the mean and told by an indicator."""
    r = generator(seed)
    n = 8000
    z = r.normal(0, 1, (n, 3))
    full = z @ r.normal(0, 1, (3, 8)) + r.normal(0, 0.7, (n, 8))
    p = 1 / (1 + np.exp(-(1.5 * z[:, 0] - z[:, 1] * z[:, 2] + 0.5)))
    y = (r.random(n) < p).astype(float)
    gone = r.random((n, 8)) < 0.2
    x = np.column_stack([np.where(gone, full.mean(0), full), gone.astype(float)])
    train, val = split(x, y, seed)
    net = nn.Sequential(perceptron(16, 32, 16, 1, dropout=0.2), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    history = fit(net, train, val, bce, opt, 40, 64, patience=6)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits", optimizer=opt, history=history)


@table()
def twentyfirst_survival_logistic(seed):
    """Hazard of each of six years for 5000 patients: years after leaving do not count."""
    r = generator(seed)
    n = 5000
    x = np.column_stack([r.normal(60, 10, n), r.gamma(2, 1.5, n), r.integers(0, 2, n), r.normal(0, 1, n)])
    risk = 0.05 * (x[:, 0] - 60) + 0.3 * np.log1p(x[:, 1]) - 0.7 * x[:, 2] + 0.4 * x[:, 3] ** 2
    hazard = 1 / (1 + np.exp(-(risk[:, None] - 2.5 + 0.1 * np.arange(6))))
    dies = r.random((n, 6)) < hazard
    left = r.integers(2, 9, n)
    when = np.where(dies.any(1), dies.argmax(1), 9)
    label = np.zeros((n, 6))
    label[np.arange(n)[when < 6], when[when < 6]] = 1
    seen = np.arange(6)[None] <= np.minimum(when, left)[:, None]
    label = np.where(seen, label, -1.0)

    def hazards(o, t):
        return (bce(o, t.clamp(min=0), reduction="none") * (t >= 0)).sum() / (t >= 0).sum()

    train, val = split(x, label, seed)
    net = perceptron(4, 32, 6, act=nn.SiLU)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = fit(net, train, val, hazards, opt, 25, 128, patience=5)
    return dict(model=net, data=train, validation=val, loss=hazards, history=history)


@table()
def twentyfirst_ordinal_credit(seed):
    """Five grades in order: one score and four thresholds (cumulative logits)."""
    r = generator(seed)
    n = 4000
    x = r.normal(0, 1, (n, 7))
    x[:, 1] = np.exp(0.5 * x[:, 1])
    score = (
        x[:, 0] - np.log(x[:, 1]) + 0.8 * x[:, 2] * (x[:, 3] > 0) + 0.5 * x[:, 4] ** 2 + r.logistic(0, 0.5, n)
    )
    y = np.searchsorted(np.quantile(score, [0.2, 0.4, 0.6, 0.8]), score)

    class Cumulative(nn.Module):
        """Log-probabilities of the grades."""

        def __init__(self):
            super().__init__()
            self.score = nn.Sequential(perceptron(7, 32, 32, 1, act=nn.SiLU), Squeeze())
            self.first, self.gaps = nn.Parameter(torch.tensor(-1.0)), nn.Parameter(torch.zeros(3))

        def forward(self, x):
            cut = torch.cat([self.first[None], self.first + F.softplus(self.gaps).cumsum(0)])
            above = torch.sigmoid(self.score(x)[:, None] - cut)
            one, none = torch.ones(len(x), 1), torch.zeros(len(x), 1)
            return (torch.cat([one, above], 1) - torch.cat([above, none], 1)).clamp(min=1e-6).log()

    train, val = split(x, y, seed)
    net = Cumulative()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    fit(net, train, val, F.nll_loss, opt, 30, 64, patience=6)
    return dict(model=net, data=train)
