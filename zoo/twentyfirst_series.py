"""Healthy trainings on sequences and text."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentyfirst_parts import *

sequences = partial(case, kind="sequences", author=ME)
text = partial(case, kind="text", author=ME)


class Last(nn.Module):
    """A recurrent net and a linear reading of its last state, or of all of them."""

    def __init__(self, kind, entering, width, outputs, every=False, two=False, one=False, dropout=0.0):
        super().__init__()
        self.body = kind(entering, width, batch_first=True, bidirectional=two)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(width * (1 + two), outputs))
        self.every, self.one = every, one

    def forward(self, x):
        h = self.body(x)[0]
        made = self.head(h if self.every else h[:, -1])
        return made.squeeze(-1) if self.one else made


def windows(series, past, ahead=1, every=1):
    starts = np.arange(0, len(series) - past - ahead + 1, every)
    x = np.stack([series[s : s + past] for s in starts])
    y = np.stack([series[s + past : s + past + ahead] for s in starts])
    return x, y


def in_time(x, y, share=0.2, gap=0):
    cut = int(len(y) * (1 - share))
    return hold((tensor(x[: cut - gap]), tensor(y[: cut - gap])), (tensor(x[cut:]), tensor(y[cut:])))


def by_blocks(x, y, seed, length, gap):
    """Held out are whole stretches of time; windows that touch them are left out of the training."""
    block = np.arange(len(y)) // length
    held = np.isin(block, generator(seed).permutation(block[-1] + 1)[: (block[-1] + 1) // 5])
    near = np.convolve(held, np.ones(2 * gap + 1), "same") > 0
    x, y = tensor(x), tensor(y)
    return hold((x[~near], y[~near]), (x[held], y[held]))


def load():
    """Half-hourly demand for electricity over twelve weeks, scaled."""
    v = frame("forecast", "taylor").iloc[:, 0].to_numpy(float)
    return (v - v.mean()) / v.std()


@sequences()
def twentyfirst_load_gru(seed):
    """Demand in two hours from the last day: a linear part and what a GRU adds to it."""
    x, y = windows(load().reshape(-1, 2).mean(1), 24, 2)
    train, val = by_blocks(x[..., None], y[:, -1], seed, 84, 24)

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.straight, self.body = nn.Linear(24, 1), Last(nn.GRU, 1, 24, 1)

        def forward(self, x):
            return (self.straight(x[..., 0]) + self.body(x)).squeeze(1)

    net = Sum()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    history = fit(net, train, val, mse, opt, 20, 64, schedule=plan, clip=1.0)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=64, history=history
    )


@sequences()
def twentyfirst_load_day_ahead(seed):
    """A whole day ahead from the last week by hours: a linear map beside a small perceptron."""
    v = load().reshape(-1, 2).mean(1)
    x, y = windows(v, 168, 24)
    train, val = in_time(x, y, gap=48)

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.straight = nn.Linear(168, 24)
            self.bent = nn.Sequential(nn.Linear(168, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 24))

        def forward(self, x):
            return self.straight(x) + self.bent(x)

    net = Sum()
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.02)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 90)
    history = fit(net, train, val, mse, opt, 90, 64, schedule=plan)
    return dict(model=net, data=train, validation=val, loss="mse", optimizer=opt, history=history)


@sequences()
def twentyfirst_load_quantiles(seed):
    """Three quantiles of the demand in an hour, from dilated convolutions."""
    x, y = windows(load(), 48, 2)
    train, val = by_blocks(x[:, None], y[:, -1:].repeat(3, 1), seed, 168, 48)
    q = torch.tensor([0.1, 0.5, 0.9])

    def pinball(o, t):
        return torch.maximum(q * (t - o), (q - 1) * (t - o)).mean()

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = nn.ModuleList(nn.Conv1d(1 if k == 0 else 16, 16, 2, dilation=2**k) for k in range(5))
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            last = x[:, :, -1]
            for c in self.steps:
                x = F.gelu(c(F.pad(x, (c.dilation[0], 0))))
            return self.head(x[:, :, -1]) + last

    net = Causal()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 15)
    history = fit(net, train, val, pinball, opt, 15, 64, schedule=plan)
    return dict(model=net, data=train, validation=val, loss=pinball, history=history)


@sequences()
def twentyfirst_heart_beats(seed):
    """Normal and two kinds of odd beats of an invented electrocardiogram; the odd ones are rarer and weighted."""
    r = generator(seed)
    n, t = 2500, np.linspace(0, 1, 64)
    y = r.choice(3, n, p=[0.7, 0.18, 0.12])

    def wave(at, wide, high):
        return high[:, None] * np.exp(-(((t[None] - at[:, None]) / wide[:, None]) ** 2))

    beat = 0.45 + r.normal(0, 0.03, n)
    x = wave(beat, np.where(y == 1, 0.07, 0.025) * r.uniform(0.8, 1.2, n), r.normal(1.5, 0.2, n))
    x += wave(beat - 0.2, np.full(n, 0.05), np.where(y == 2, 0.05, 0.35) * r.uniform(0.7, 1.3, n))
    x += wave(beat + 0.25, np.full(n, 0.08), r.normal(0.5, 0.1, n) * np.where(y == 1, -0.6, 1))
    x += r.normal(0, 0.12, x.shape) + r.normal(0, 0.2, (n, 1))
    train, val = split(x[:, None], y, seed, scale=False)
    net = nn.Sequential(
        nn.Conv1d(1, 16, 7, padding=3),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(16, 24, 5, padding=2),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.MaxPool1d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(24 * 8, 3),
    )
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.5, 1.5]))
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    history = fit(net, train, val, loss, opt, 12, 64, patience=4)
    return dict(
        model=net, data=train, validation=val, loss=loss, optimizer=opt, batch_size=64, history=history
    )


@sequences()
def twentyfirst_walks_and_runs(seed):
    """Five activities from an accelerometer with three axes, people apart from those held out."""
    r = generator(seed)
    n, t = 2400, np.arange(50) / 25
    y, who = r.integers(0, 5, n), r.integers(0, 30, n)
    own = r.normal(1, 0.08, 30)[who]
    speed = np.array([0.0, 1.8, 2.7, 2.0, 0.4])[y] * own
    strength = np.array([0.05, 0.6, 1.5, 0.8, 0.5])[y] * r.uniform(0.8, 1.2, n)
    phase = r.uniform(0, 2 * np.pi, (n, 1))
    a = 2 * np.pi * speed[:, None] * t + phase
    x = np.stack([np.sin(a), 0.5 * np.sin(2 * a + 0.5), np.cos(a) * np.where(y == 3, 1, 0.2)[:, None]], 1)
    x = x * strength[:, None, None] + np.array([0, 0, 1.0])[None, :, None] * 0.5 + r.normal(0, 0.35, x.shape)
    train, val = split(x, y, seed, scale=False, groups=who)
    net = nn.Sequential(
        nn.Conv1d(3, 24, 5, 2),
        nn.ReLU(),
        nn.Conv1d(24, 32, 5, 2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64, 5),
    )
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 14)
    fit(net, train, val, ce, opt, 14, 64, schedule=plan)
    return dict(model=net, data=train)


@sequences()
def twentyfirst_dna_motif(seed):
    """Whether either of two motifs is in 60 letters of DNA, with mistakes."""
    r = generator(seed)
    n = 5000
    letters = r.integers(0, 4, (n, 60))
    y = (r.random(n) < 0.5).astype(float)
    motifs = [np.array([0, 1, 3, 3, 2, 0, 2]), np.array([2, 2, 1, 0, 3, 1, 3])]
    for i in np.flatnonzero(y):
        m = motifs[r.integers(2)].copy()
        if r.random() < 0.4:
            m[r.integers(7)] = r.integers(4)
        s = r.integers(0, 53)
        letters[i, s : s + 7] = m
    x = np.eye(4)[letters].transpose(0, 2, 1)
    train, val = split(x, y, seed, scale=False)

    class Motif(nn.Module):
        def __init__(self):
            super().__init__()
            self.see, self.head = nn.Conv1d(4, 16, 7), nn.Linear(16, 1)
            self.drop = nn.Dropout(0.1)

        def forward(self, x):
            return self.head(self.drop(F.relu(self.see(x)).amax(2))).squeeze(1)

    net = Motif()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    fit(net, train, val, bce, opt, 30, 64, patience=6)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits")


@sequences()
def twentyfirst_parts_of_speech(seed):
    """A tag for each word of an invented language; sentences are filled up, and the filling is not counted."""
    r = generator(seed)
    n, most, words = 3600, 14, 60
    follow = r.dirichlet(np.full(6, 0.5), 6)
    own = [np.flatnonzero(np.arange(words) % 6 == k) for k in range(6)]
    x, y = np.zeros((n, most), int), np.full((n, most), -100)
    for i in range(n):
        tag = r.integers(6)
        for j in range(r.integers(6, most + 1)):
            y[i, j] = tag
            home = tag if r.random() < 0.75 else (tag + 1) % 6  # words with two uses
            x[i, j] = 1 + r.choice(own[home])
            tag = r.choice(6, p=follow[tag])

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words + 1, 16, padding_idx=0)
            self.body = nn.LSTM(16, 24, batch_first=True, bidirectional=True)
            self.head = nn.Linear(48, 6)

        def forward(self, x):
            return self.head(F.dropout(self.body(self.words(x))[0], 0.2, self.training))

    def per_word(o, t):
        return ce(o.flatten(0, 1), t.flatten(), ignore_index=-100)

    train, val = split(x, y, seed)
    net = Tagger()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    history = fit(net, train, val, per_word, opt, 8, 64, patience=3, clip=1.0)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@sequences()
def twentyfirst_depth_of_brackets(seed):
    """How deep each place of a string of brackets is: a GRU counts."""
    r = generator(seed)
    n, t = 1200, 20
    x, y = np.zeros((n, t), int), np.zeros((n, t), int)
    for i in range(n):
        d = 0
        for j in range(t):
            up = d == 0 or (d < 4 and r.random() < 0.5)
            d += 1 if up else -1
            x[i, j], y[i, j] = int(up) + 2 * int(r.random() < 0.5), d

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.signs, self.body, self.head = (
                nn.Embedding(4, 8),
                nn.GRU(8, 32, batch_first=True),
                nn.Linear(32, 5),
            )

        def forward(self, x):
            return self.head(self.body(self.signs(x))[0])

    def per_place(o, t):
        return ce(o.transpose(1, 2), t)

    train, val = split(x, y, seed)
    net = Counter()
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    history = fit(net, train, val, per_place, opt, 15, 64, clip=1.0)
    return dict(model=net, data=train, validation=val, loss=per_place, batch_size=64, history=history)


@sequences()
def twentyfirst_spring_constant(seed):
    """Stiffness and damping of a spring from its noisy path."""
    r = generator(seed)
    n, t = 2500, np.linspace(0, 4, 26)
    w, c = r.uniform(1.5, 5, n), r.uniform(0.05, 0.8, n)
    x = np.exp(-c[:, None] * t) * np.cos(w[:, None] * t + r.normal(0, 0.2, (n, 1))) + r.normal(
        0, 0.08, (n, 26)
    )
    y = np.column_stack([w, np.log(c)])
    train, val = split(x[..., None], (y - y.mean(0)) / y.std(0), seed, scale=False)
    net = Last(nn.GRU, 1, 24, 2)
    opt = torch.optim.Adam(net.parameters(), 8e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 18)
    fit(net, train, val, mse, opt, 18, 64, schedule=plan, clip=1.0)
    return dict(model=net, data=train, validation=val, loss="mse")


@sequences()
def twentyfirst_storm_paths(seed):
    """Where a storm of the Atlantic will be in a day, from its last four positions; storms apart."""
    df = frame("dplyr", "storms")
    df = df[df.year > 1990]
    df = df[df.hour % 6 == 0]
    x, y, who = [], [], []
    for k, (_, g) in enumerate(df.groupby(["name", "year"])):
        p = g[["lat", "long"]].to_numpy(float)
        w = g.wind.to_numpy(float)
        for s in range(0, len(p) - 7, 2):
            x.append(np.column_stack([(p[s : s + 4] - p[s + 3]), p[s : s + 4], w[s : s + 4]]))
            y.append(p[s + 7] - p[s + 3])
            who.append(k)
    x, y = np.array(x), np.array(y)
    x = (x - x.mean((0, 1))) / x.std((0, 1))
    train, val = split(x, (y - y.mean(0)) / y.std(0), seed, scale=False, groups=np.array(who))
    net = Last(nn.GRU, 5, 24, 2, dropout=0.1)
    opt = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.01)
    fit(net, train, val, nn.SmoothL1Loss(), opt, 20, 64, patience=5)
    return dict(model=net, data=train, validation=val, loss=nn.SmoothL1Loss())


@sequences()
def twentyfirst_sunspots(seed):
    """The mean of the next year's monthly sunspots from the last eleven years, by roots."""
    v = np.sqrt(frame("datasets", "sunspots").value.to_numpy(float))
    v = (v - v.mean()) / v.std()
    starts = np.arange(0, len(v) - 144, 2)
    x = np.stack([v[s : s + 132].reshape(33, 4).mean(1) for s in starts])
    y = np.array([v[s + 132 : s + 144].mean() for s in starts])
    blocks = np.arange(len(y)) // 60
    cut = np.isin(blocks % 5, [seed % 5])
    near = np.zeros(len(y), bool)
    for i in np.flatnonzero(np.diff(cut.astype(int))):
        near[max(0, i - 2) : i + 4] = True
    train, val = hold((tensor(x[~cut & ~near]), tensor(y[~cut & ~near])), (tensor(x[cut]), tensor(y[cut])))
    net = nn.Sequential(nn.Linear(33, 16), nn.Tanh(), nn.Linear(16, 1), Squeeze())
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.3)
    fit(net, train, val, mse, opt, 60, 32, patience=10)
    return dict(model=net, data=train)


@sequences()
def twentyfirst_calls_by_hour(seed):
    """Calls in the next hour, a Poisson rate from the last twelve hours and the clock."""
    r = generator(seed)
    n = 5000
    hour = np.arange(n)
    slow = np.zeros(n)
    for i in range(1, n):
        slow[i] = 0.8 * slow[i - 1] + r.normal(0, 0.12)
    rate = np.exp(1.2 + 0.8 * np.sin(2 * np.pi * hour / 24) + 0.3 * np.cos(4 * np.pi * hour / 24) + slow)
    calls = r.poisson(rate).astype(float)
    clock = np.column_stack([np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24)])
    every = np.column_stack([np.log1p(calls), np.roll(clock, -1, 0)])
    x = np.stack([every[i - 12 : i] for i in range(12, n - 1)])
    y = calls[12 : n - 1]
    train, val = by_blocks(x, y, seed, 96, 12)
    net = Last(nn.GRU, 3, 24, 1, one=True)
    loss = nn.PoissonNLLLoss()
    opt = torch.optim.Adam(net.parameters(), 4e-3)
    history = fit(net, train, val, loss, opt, 18, 64, patience=5, clip=1.0)
    return dict(
        model=net, data=train, validation=val, loss=loss, optimizer=opt, batch_size=64, history=history
    )


@sequences()
def twentyfirst_majority_attention(seed):
    """Which of five signs is marked most often; one layer of attention."""
    r = generator(seed)
    n, t = 3500, 14
    x = r.integers(0, 10, (n, t))  # signs 5-9 are the marked ones
    marked = np.stack([(x == 5 + k).sum(1) for k in range(5)], 1)
    y = marked.argmax(1)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.signs = nn.Embedding(10, 32)
            self.body = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
            self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 5)

        def forward(self, x):
            return self.head(self.norm(self.body(self.signs(x))).mean(1))

    train, val = split(x, y, seed)
    net = Reader()
    opt = torch.optim.AdamW(net.parameters(), 8e-3, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 8e-3, total_steps=14 * 21)
    history = fit(net, train, val, ce, opt, 14, 128, schedule=plan, each="batch")
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@sequences()
def twentyfirst_gas_sensors(seed):
    """Concentrations of two gases from eight sensors that react slowly."""
    r = generator(seed)
    n, t = 3000, 30
    dose = r.gamma(2, 0.5, (n, 2))
    gain = r.normal(0, 1, (2, 8))
    slow = r.uniform(0.05, 0.4, 8)
    steps = np.arange(t)[None, :, None]
    x = np.tanh(dose @ gain)[:, None] * (1 - np.exp(-slow * steps)) * (1 + 0.1 * r.normal(0, 1, (n, 1, 1)))
    x += r.normal(0, 0.1, x.shape)
    y = np.log(dose + 0.1)
    train, val = split(x.transpose(0, 2, 1), (y - y.mean(0)) / y.std(0), seed, scale=False)
    net = nn.Sequential(
        nn.Conv1d(8, 24, 5, 2),
        nn.SiLU(),
        nn.Conv1d(24, 24, 5, 2),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(24 * 5, 2),
    )
    opt = torch.optim.RMSprop(net.parameters(), 1e-3)
    plan = torch.optim.lr_scheduler.ExponentialLR(opt, 0.85)
    fit(net, train, val, mse, opt, 18, 32, schedule=plan)
    return dict(model=net, data=train, validation=val)


# text


def reviews(r, n, length=(8, 30), words=400, mood=0.55):
    """Reviews as word numbers (0 fills up): pleasant and bad words, and a word that turns the next one round."""
    often = 1 / (np.arange(1, words) + 5.0)
    often /= often.sum()
    worth = np.zeros(words)
    chosen = r.permutation(np.arange(10, words))[:120]
    worth[chosen] = r.normal(0, 1.2, 120)
    x, score = np.zeros((n, length[1]), int), np.zeros(n)
    for i in range(n):
        k = r.integers(*length)
        w = 1 + r.choice(words - 1, k, p=often)
        say = worth[w].copy()
        say[1:][w[:-1] == 3] *= -1
        x[i, :k], score[i] = w, say.sum()
    y = (score / score.std() + r.logistic(0, 1 - mood, n) * 0.5 > 0).astype(float)
    return x, y


@text()
def twentyfirst_reviews_bag(seed):
    """Mood of a review from the mean of its words' vectors."""
    x, y = reviews(generator(seed), 12000)

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.EmbeddingBag(400, 16, mode="sum", padding_idx=0), nn.Linear(16, 1)

        def forward(self, x):
            return self.head(self.words(x)).squeeze(1)

    train, val = split(x, y, seed)
    net = Bag()
    nn.init.normal_(net.words.weight, std=0.1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    fit(net, train, val, bce, opt, 20, 64, patience=3)
    return dict(model=net, data=train)


@text()
def twentyfirst_reviews_convolution(seed):
    """The same from pairs of words: convolutions over embeddings, with dropped words."""
    x, y = reviews(generator(seed + 5), 12000)

    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(400, 12, padding_idx=0)
            nn.init.normal_(self.words.weight, std=0.2)
            self.see = nn.Conv1d(12, 32, 2)
            self.head = nn.Linear(32, 1)

        def forward(self, x):
            h = F.relu(self.see(self.words(x).transpose(1, 2))) * (x[:, None, 1:] > 0)
            return self.head(F.dropout(h.sum(2) / 5, 0.4, self.training)).squeeze(1)

    train, val = split(x, y, seed)
    net = Pairs()
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1)
    history = fit(net, train, val, bce, opt, 10, 128, patience=3)
    return dict(
        model=net, data=train, validation=val, loss=bce, optimizer=opt, batch_size=128, history=history
    )


@text()
def twentyfirst_topics_attention(seed):
    """Four topics of short texts; attention chooses the words that matter."""
    r = generator(seed)
    n, t, words = 7000, 20, 300
    y = r.integers(0, 4, n)
    common = 1 / (np.arange(words) + 8.0)
    common /= common.sum()
    topic = np.stack([r.permutation(np.r_[np.full(25, 1 / 25), np.zeros(words - 25)]) for _ in range(4)])
    x = np.zeros((n, t), int)
    for i in range(n):
        k = r.integers(8, t + 1)
        x[i, :k] = 1 + np.where(
            r.random(k) < 0.2, r.choice(words, k, p=topic[y[i]]), r.choice(words, k, p=common)
        )

    class Chooser(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words + 1, 16, padding_idx=0)
            self.ask, self.head = nn.Linear(16, 1), nn.Linear(16, 4)

        def forward(self, x):
            h = self.words(x)
            a = self.ask(torch.tanh(h)).squeeze(2).masked_fill(x == 0, -1e9).softmax(1)
            return self.head(F.dropout((a[..., None] * h).sum(1), 0.2, self.training))

    train, val = split(x, y, seed)
    net = Chooser()
    opt = torch.optim.Adam(net.parameters(), 5e-3, weight_decay=1e-5)
    fit(net, train, val, ce, opt, 12, 64, patience=3)
    return dict(model=net, data=train, validation=val, loss="cross_entropy")


def documentation(least=5):
    """Sentences from the documentation of numpy, torch and pandas, each once."""
    import re

    import pandas

    found: dict[str, int] = {}
    for label, (_module, kinds) in enumerate(
        [(np, [np, np.ndarray]), (torch, [torch, torch.Tensor]), (pandas, [pandas.DataFrame, pandas.Series])]
    ):
        for kind in kinds:
            for name in sorted(dir(kind)):
                try:
                    doc = getattr(kind, name).__doc__
                except Exception:
                    continue
                if not isinstance(doc, str):
                    continue
                for s in re.split(r"(?<=[.:])\s+|\n\s*\n", doc):
                    s = " ".join(re.findall(r"[a-z]+", s.lower()))
                    if least <= len(s.split()) <= 40:
                        found.setdefault(s, label)
    return list(found), np.array(list(found.values()))


@text()
def twentyfirst_docs_fasttext(seed):
    """From which library a sentence of documentation is: hashed words and their endings."""
    import zlib

    lines, y = documentation(9)
    r = generator(seed)
    some = np.concatenate([r.permutation(np.flatnonzero(y == k))[:4000] for k in range(3)])
    x = np.zeros((len(some), 60), int)
    for row, i in enumerate(some):
        w = [
            v
            for v in lines[i].split()
            if v not in ("numpy", "torch", "pandas", "np", "pd", "dataframe", "series")
        ]
        grams = w + [v[-3:] for v in w if len(v) > 4]
        h = [1 + zlib.crc32(g.encode()) % 1200 for g in grams][:60]
        x[row, : len(h)] = h
    train, val = split(x, y[some], seed)

    class Fast(nn.Module):
        def __init__(self):
            super().__init__()
            self.grams, self.head = nn.EmbeddingBag(1201, 12, mode="mean", padding_idx=0), nn.Linear(12, 3)

        def forward(self, x):
            return self.head(F.dropout(self.grams(x), 0.6, self.training))

    net = Fast()
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = fit(net, train, val, ce, opt, 30, 64, patience=3)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@text()
def twentyfirst_docs_tfidf(seed):
    """The same by tf-idf and one hidden layer."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    lines, y = documentation()
    r = generator(seed + 1)
    some = np.concatenate([r.permutation(np.flatnonzero(y == k))[:3000] for k in range(3)])
    banned = {"numpy", "torch", "pandas", "np", "pd", "dataframe", "series"}
    kept_lines = [" ".join(w for w in lines[i].split() if w not in banned) for i in some]
    v = TfidfVectorizer(max_features=300, sublinear_tf=True).fit_transform(kept_lines).toarray()
    _, first = np.unique(v.round(6), axis=0, return_index=True)
    train, val = split(v[first] * 5, y[some][first], seed, scale=False)
    net = perceptron(v.shape[1], 16, 3, dropout=0.5)
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.3)
    history = fit(net, train, val, ce, opt, 30, 64, patience=3)
    return dict(
        model=net,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=64,
        history=history,
    )


@text()
def twentyfirst_words_by_letters(seed):
    """Which of three invented languages a word is from, letter by letter."""
    r = generator(seed)
    n = 10000
    steps = r.dirichlet(np.full(10, 0.3), (3, 10))
    y = r.integers(0, 3, n)
    x = np.zeros((n, 12), int)
    for i in range(n):
        c = r.integers(10)
        for j in range(12 - r.integers(0, 6)):
            x[i, j] = c + 1
            c = r.choice(10, p=0.6 * steps[y[i], c] + 0.04)

    class Speller(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters = nn.Embedding(11, 16, padding_idx=0)
            self.body, self.head = nn.GRU(16, 24, batch_first=True), nn.Linear(24, 3)

        def forward(self, x):
            h = self.body(self.letters(x))[0]
            keep = (x > 0).float()[..., None]
            return self.head(F.dropout((h * keep).sum(1) / keep.sum(1), 0.2, self.training))

    x, first = np.unique(x, axis=0, return_index=True)
    train, val = split(x, y[first], seed)
    net = Speller()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    history = fit(net, train, val, ce, opt, 10, 128, patience=4, clip=1.0)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@text()
def twentyfirst_next_letter(seed):
    """The next letter of documentation, a small language model."""
    lines, _ = documentation()
    r = generator(seed)
    chosen = [lines[i] for i in r.permutation(len(lines)) if len(lines[i]) >= 41][:3200]
    code = {c: i for i, c in enumerate(" abcdefghijklmnopqrstuvwxyz")}
    ids = np.array([[code[c] for c in s[:25]] for s in chosen])

    class Letters(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters, self.body = nn.Embedding(27, 24), nn.GRU(24, 64, batch_first=True)
            self.head = nn.Linear(64, 27)

        def forward(self, x):
            return self.head(self.body(self.letters(x))[0])

    def per_letter(o, t):
        return ce(o.flatten(0, 1), t.flatten())

    _, first = np.unique(ids[:, :20], axis=0, return_index=True)
    train, val = split(ids[first][:, :-1], ids[first][:, 1:], seed)
    net = Letters()
    opt = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    history = fit(net, train, val, per_letter, opt, 10, 48, schedule=plan, clip=1.0)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)
