"""Healthy trainings of scientists: the ordinary ones first, then those that only look odd."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentysecond_parts import *
from zoo.twentysecond_parts import ME


def healthy(kind):
    return case(kind=kind, author=ME)


# ---------------------------------------------------------------- ordinary


@healthy("table")
def tw2_ok_stars(seed):
    s = split(*stars(start(seed)))
    return run(s, mlp(6, 48, 48, 4), epochs=25, best=True)


@healthy("table")
def tw2_ok_stars_norm_sgd(seed):
    s = split(*stars(start(seed), 2400))
    return run(
        s, mlp(6, 48, 48, 4, norm=True), epochs=25, opt="sgd", lr=0.05, cosine=True, wd=1e-3, give="most"
    )


@healthy("table")
def tw2_ok_redshift(seed):
    s = split(*galaxies(start(seed)))
    return run(s, mlp(7, 64, 64, 1), "mse", epochs=50, best=True, cosine=True)


@healthy("table")
def tw2_ok_redshift_silu(seed):
    s = split(*galaxies(start(seed), 2500))
    return run(
        s, mlp(7, 48, 48, 1, act=nn.SiLU), "mse", epochs=40, opt="adamw", wd=1e-2, cosine=True, give="few"
    )


@healthy("table")
def tw2_ok_habitat(seed):
    s = split(*habitats(start(seed)))
    return run(s, mlp(9, 32, 32, 1), "bce_with_logits", epochs=25, best=True)


@healthy("table")
def tw2_ok_habitat_dropout(seed):
    s = split(*habitats(start(seed), 3000))
    return run(
        s,
        mlp(9, 64, 64, 1, drop=0.2),
        "bce_with_logits",
        epochs=30,
        opt="adamw",
        wd=1e-2,
        cosine=True,
        give="some",
    )


@healthy("table")
def tw2_ok_counts(seed):
    s = split(*counts(start(seed), 5000))
    return run(s, mlp(6, 48, 48, 1), poisson, epochs=30, best=True, give="most")


@healthy("table")
def tw2_ok_reactor(seed):
    s = split(*reactor(start(seed), 2400))
    return run(s, mlp(8, 64, 64, 3, act=nn.SiLU), "mse", epochs=50, best=True, cosine=True)


@healthy("table")
def tw2_ok_reactor_tanh(seed):
    s = split(*reactor(start(seed), 2400, 0.3))
    return run(
        s, mlp(8, 48, 48, 3, act=nn.Tanh), "mse", epochs=50, best=True, opt="sgd", lr=0.03, cosine=True
    )


@healthy("table")
def tw2_ok_rings(seed):
    s = split(*rings(start(seed)))
    return run(s, mlp(4, 32, 32, 3), epochs=30, best=True, wd=1e-4)


@healthy("images")
def tw2_ok_digits(seed):
    start(seed)
    x, y = bundled("digits", seed)
    s = split(x.reshape(-1, 1, 8, 8) / 16, y, scale=False)
    return run(s, convnet(10, 8, 16), epochs=20, best=True)


@healthy("images")
def tw2_ok_digits_flat(seed):
    start(seed)
    x, y = bundled("digits", seed)
    return run(
        split(x / 16 - 0.3, y, scale=False), mlp(64, 128, 10, drop=0.3), epochs=40, wd=1e-4, give="some"
    )


@healthy("images")
def tw2_ok_stamps(seed):
    s = split(*stamps(start(seed), 1200), scale=False)
    return run(s, convnet(4, drop=0.2), epochs=15, best=True)


@healthy("images")
def tw2_ok_cells(seed):
    s = split(*tracks(start(seed)), scale=False)
    return run(s, Segment(), "bce_with_logits", epochs=16, lr=5e-3, batch=32, best=True)


@healthy("sequences")
def tw2_ok_spectra(seed):
    x, y = spectra(start(seed))
    return run(split(x[:, None], y, scale=False), conv1(4, 12), epochs=18, best=True)


@healthy("table")
def tw2_ok_spectra_five_compounds(seed):
    x, y = spectra(start(seed), 1800, k=5)
    return run(split(x, y), mlp(64, 96, 64, 5, drop=0.2), epochs=20, best=True, give="few")


@healthy("sequences")
def tw2_ok_curves(seed):
    s = split(*curves(start(seed), 1200), scale=False)
    return run(s, conv1(4, 16, kernel=7), epochs=18, best=True)


@healthy("sequences")
def tw2_ok_spikes(seed):
    s = split(*spikes(start(seed)), scale=False)
    return run(s, Recurrent(10, 5, 32), epochs=10, best=True, clip=1.0)


@healthy("sequences")
def tw2_ok_frames(seed):
    s = split(*frames(start(seed), 700), scale=False)
    return run(s, Recurrent(6, 4, 24, every=True), epochs=20, lr=1e-2, batch=32, best=True, clip=1.0)


@healthy("sequences")
def tw2_ok_sensors(seed):
    s = split(*sensors(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), mlp(64, 64, 32, 1))
    return run(s, net, "mse", epochs=40, best=True, lr=1e-3, wd=1e-4)


@healthy("sequences")
def tw2_ok_sensors_gru(seed):
    s = split(*sensors(start(seed)), scale=False)
    return run(s, Recurrent(4, 1, 32), "mse", epochs=16, best=True, lr=5e-3, clip=1.0, give="most")


@healthy("text")
def tw2_ok_tagger(seed):
    s = split(*sentences(start(seed), 800), scale=False)
    return run(
        s, Recurrent(16, 4, 24, words=40, every=True, both=True), epochs=20, lr=1e-2, batch=32, best=True
    )


@healthy("text")
def tw2_ok_tagger_conv(seed):
    s = split(*sentences(start(seed), 2500), scale=False)
    return run(s, TagConv(16, 4, 48, words=40, kernel=5), tokens, epochs=14, lr=5e-3, batch=32, best=True)


class Pairs(nn.Module):
    """A sentence's class from its words and word pairs."""

    def __init__(self, words, out):
        super().__init__()
        self.one, self.two = nn.EmbeddingBag(words, 16), nn.EmbeddingBag(words * words, out, mode="sum")
        nn.init.zeros_(self.two.weight)
        self.head, self.words = nn.Linear(16, out), words

    def forward(self, x):
        return self.head(self.one(x)) + self.two(x[:, 1:] * self.words + x[:, :-1])


@healthy("text")
def tw2_ok_dialects(seed):
    s = split(*dialects(start(seed), 1500, sharp=0.25), scale=False)
    return run(s, Pairs(30, 3), epochs=30, best=True, lr=1e-2)


@healthy("graph")
def tw2_ok_guilds(seed):
    s = society(start(seed))
    return run(s, Neighbours(12, 4), epochs=80, lr=1e-2, full=True, best=True, wd=1e-3)


@healthy("graph")
def tw2_ok_molecules(seed):
    s = split(*molecules(start(seed), 1200))
    return run(s, Molecule(), "mse", epochs=30, lr=5e-3, best=True, cosine=True)


@healthy("graph")
def tw2_ok_toxic(seed):
    """Whether a molecule is toxic: its property above the middle, with some doubt."""
    rng = start(seed)
    x, value = molecules(rng, 1600)
    s = split(x, coin(rng, value[:, 0], 3.0))
    return run(s, Molecule(wide=24), "bce_with_logits", epochs=20, lr=4e-3, best=True, give="most")


@healthy("table")
def tw2_ok_wine(seed):
    start(seed)
    return run(
        split(*bundled("wine", seed)), mlp(13, 16, 3), epochs=40, lr=3e-3, batch=16, wd=1e-2, best=True
    )


@healthy("table")
def tw2_ok_breast(seed):
    start(seed)
    x, y = bundled("breast_cancer", seed)
    return run(
        split(x, y[:, None].astype(float)),
        mlp(30, 16, 1),
        "bce_with_logits",
        epochs=25,
        best=True,
        batch=32,
        wd=3e-3,
    )


@healthy("table")
def tw2_ok_diabetes(seed):
    start(seed)
    x, y = bundled("diabetes", seed)
    y = (y - 152) / 77
    return run(split(x, y[:, None]), mlp(10, 8, 1, drop=0.1), "mse", epochs=40, best=True, batch=32, wd=3e-2)


@healthy("generative")
def tw2_ok_vae_digits(seed):
    start(seed)
    x, _ = bundled("digits", seed)
    x = x[:, x.std(0) > 0.5] / 16
    s = split(x, x, scale=False)
    return fit_vae(Variational(x.shape[1], 6, 96), s.x, epochs=60, width=0.2) | {"validation": s.vx}


@healthy("generative")
def tw2_ok_autoencoder(seed):
    x, _ = spectra(start(seed), 1600)
    s = split(x, x)
    s.y, s.vy = s.x, s.vx
    return run(s, mlp(64, 64, 12, 64, 64), "mse", epochs=40, best=True, lr=2e-3)


@healthy("generative")
def tw2_ok_gan(seed):
    rng = start(seed)
    turn = rng.uniform(0, 2 * np.pi, 1500)
    x = np.stack([np.cos(turn), np.sin(turn) * 0.7], 1) + 0.15 * rng.normal(size=(1500, 2))
    return fit_gan(Adversaries(), tensor(x), steps=1500, lr=5e-4, noise=0.2)


# ---------------------------------------------------------------- odd, but right


@healthy("images")
def tw2_ok_frozen_features(seed):
    """Filters learned on one survey's stamps, kept for the next; only the reading-out is trained."""
    rng = start(seed)
    net = convnet(4)
    run(split(*stamps(rng, 1200), scale=False), net, epochs=10)
    for p in net[:-1].parameters():
        p.requires_grad_(False)
    x, y = stamps(rng, 800)
    net[-1].reset_parameters()
    s = split(x, (y + 1) % 4, scale=False)
    return run(s, net, epochs=20, best=True, params=net[-1].parameters(), wd=1e-3)


@healthy("table")
def tw2_ok_survey_codes(seed):
    """Four ordinal codes: rows repeat, in both halves, because there are only 144 kinds of plot."""
    rng = start(seed)
    code = rng.integers(0, [3, 4, 4, 3], (2400, 4))
    logit = 1.4 * (code[:, 0] == 1) + 0.8 * code[:, 1] - 1.1 * (code[:, 2] > 1) * code[:, 3] - 0.8
    x = np.concatenate([np.eye(k)[code[:, i]] for i, k in enumerate((3, 4, 4, 3))], 1)
    return run(
        split(x, coin(rng, logit, 2.0)), mlp(14, 16, 1), "bce_with_logits", epochs=15, best=True, wd=1e-3
    )


@healthy("table")
def tw2_ok_heavy_tails(seed):
    """Fluxes with heavy tails, taken to logarithms by the net itself."""
    rng = start(seed)
    flux = np.exp(1.0 * rng.normal(size=(2400, 5)))
    a = np.log(flux)
    y = np.tanh(a[:, 0] - a[:, 1]) + 0.5 * np.sin(1.5 * a[:, 2]) + 0.3 * a[:, 3] + 0.2 * rng.normal(size=2400)

    class Logs(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(5, 48, 48, 1)

        def forward(self, x):
            return self.net(x.log())

    return run(split(flux, y[:, None], scale=False), Logs(), "mse", epochs=30, best=True, cosine=True)


@healthy("table")
def tw2_ok_overlap(seed):
    """Two morphs that overlap: nobody gets beyond three in four."""
    rng = start(seed)
    x = rng.normal(size=(3000, 5))
    return run(
        split(x, coin(rng, x[:, 0] + x[:, 1] + 0.5 * x[:, 2], 1.2)),
        mlp(5, 16, 1),
        "bce_with_logits",
        epochs=15,
        best=True,
        wd=1e-3,
    )


@healthy("table")
def tw2_ok_rare_but_apart(seed):
    """Pulsars are one in twenty-five, and well apart."""
    rng = start(seed)
    y = (rng.random(4000) < 0.04).astype(float)
    x = rng.normal(size=(4000, 6)) * (1 + 0.3 * y[:, None])
    x[:, 0] += 4.5 * y
    x[:, 2] += 3.5 * y + 0.5 * x[:, 0]
    return run(split(x, y[:, None]), mlp(6, 24, 1), "bce_with_logits", epochs=20, best=True)


@healthy("table")
def tw2_ok_fast_sgd(seed):
    """A step of 0.3 that batch normalisation bears and the cosine ends."""
    s = split(*stars(start(seed), 2400))
    return run(s, mlp(6, 32, 32, 4, norm=True), epochs=20, opt="plain", lr=0.3, batch=128, cosine=True)


@healthy("table")
def tw2_ok_linear(seed):
    """A calibration line is all there is: a single linear layer."""
    rng = start(seed)
    x = rng.normal(size=(1200, 8))
    y = x @ rng.normal(size=(8, 1)) / 2 + 0.3 * rng.normal(size=(1200, 1))
    return run(split(x, y), nn.Linear(8, 1), "mse", epochs=30, lr=1e-2)


@healthy("table")
def tw2_ok_logistic(seed):
    rng = start(seed)
    x = rng.normal(size=(1500, 6))
    return run(
        split(x, choose(rng, x @ rng.normal(size=(6, 3)), 2.5)),
        nn.Linear(6, 3),
        epochs=25,
        lr=1e-2,
        give="few",
    )


@healthy("table")
def tw2_ok_whole_batch(seed):
    s = split(*rings(start(seed), 2000))
    return run(s, mlp(4, 32, 3, act=nn.Tanh), epochs=250, lr=2e-2, full=True, best=True)


@healthy("table")
def tw2_ok_batches_of_four(seed):
    """Batches of four, but nothing in the net looks across the batch, and the step is small."""
    s = split(*rings(start(seed), 800))
    return run(s, mlp(4, 24, 24, 3), epochs=30, lr=1e-3, batch=4, best=True)


@healthy("table")
def tw2_ok_rare_flag(seed):
    """A flag set in three rows of a hundred that matters, beside a nearly copied thermometer."""
    rng = start(seed)
    x, y = galaxies(rng, 2400)
    flag = (rng.random(2400) < 0.03).astype(float)
    x = np.concatenate([x, flag[:, None], x[:, :1] + 0.2 * rng.normal(size=(2400, 1))], 1)
    return run(split(x, y + 1.2 * flag[:, None]), mlp(9, 64, 64, 1), "mse", epochs=40, best=True, cosine=True)


@healthy("images")
def tw2_ok_half_dropped(seed):
    """Dropout of a half on a wide layer, as in the textbooks."""
    start(seed)
    x, y = bundled("digits", seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 256, 10, drop=0.5))
    return run(split(x.reshape(-1, 1, 8, 8) / 8 - 0.6, y, scale=False), net, epochs=40, lr=2e-3)


@healthy("table")
def tw2_ok_sigmoid_units(seed):
    s = split(*rings(start(seed), 2000, 2))
    return run(s, mlp(4, 32, 2, act=nn.Sigmoid), epochs=60, lr=2e-2, best=True)


class Residual(nn.Module):
    """Eight blocks with a shortcut each."""

    def __init__(self, inputs, out, wide=32, depth=8):
        super().__init__()
        self.first, self.head = nn.Linear(inputs, wide), nn.Linear(wide, out)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(wide), mlp(wide, wide, wide)) for _ in range(depth)
        )

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


@healthy("table")
def tw2_ok_deep_residual(seed):
    s = split(*reactor(start(seed), 2000, 0.3))
    return run(s, Residual(8, 3, depth=6), "mse", epochs=25, lr=2e-3, best=True, cosine=True)


@healthy("table")
def tw2_ok_huber(seed):
    """One reading in fifty is wild, and the loss knows it."""
    rng = start(seed)
    x, y = galaxies(rng, 2400)
    n = int(0.75 * len(y))
    wild = (rng.random(len(y)) < 0.02) & (np.arange(len(y)) < n)
    y[wild] += 4 * rng.standard_t(3, (wild.sum(), 1))
    return run(split(x, y), mlp(7, 48, 48, 1), nn.HuberLoss(delta=0.5), epochs=35, best=True, cosine=True)


@healthy("table")
def tw2_ok_many_species(seed):
    """Five species at once, each present or not."""
    rng = start(seed)
    x = rng.normal(size=(2400, 6))
    logit = np.stack([x[:, i] * 1.5 - x[:, i + 1] ** 2 + 1 for i in range(5)], 1)
    y = np.concatenate([coin(rng, logit[:, i], 3.0) for i in range(5)], 1)
    return run(split(x, y), mlp(6, 48, 48, 5), "bce_with_logits", epochs=25, best=True)


@healthy("table")
def tw2_ok_log_softmax(seed):
    """The net ends in a log-softmax and is trained by the negative log-likelihood, as it should."""
    s = split(*stars(start(seed), 2000))
    return run(s, mlp(6, 48, 48, 4, last=nn.LogSoftmax(1)), "nll", epochs=20, best=True)


@healthy("table")
def tw2_ok_cover(seed):
    """Plant cover is a share: a sigmoid at the end is right."""
    rng = start(seed)
    x = rng.normal(size=(2000, 5))
    y = 1 / (1 + np.exp(-(1.2 * x[:, 0] - x[:, 1] ** 2 + np.sin(2 * x[:, 2]) + 0.3 * rng.normal(size=2000))))
    return run(split(x, y[:, None]), mlp(5, 48, 48, 1, last=nn.Sigmoid()), "mse", epochs=40, best=True)


@healthy("table")
def tw2_ok_noisy_yield(seed):
    """Two thirds of the variance is weather."""
    rng = start(seed)
    x = rng.normal(size=(3000, 6))
    y = np.tanh(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 1.2 * rng.normal(size=3000)
    return run(split(x, z(y)[:, None]), mlp(6, 24, 24, 1), "mse", epochs=20, best=True, lr=2e-3, wd=1e-3)


@healthy("sequences")
def tw2_ok_forecast_change(seed):
    """The net adds its answer to the last reading."""
    s = split(*sensors(start(seed), 2000), scale=False)

    class Change(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), mlp(64, 48, 1))

        def forward(self, x):
            return x[:, -1, :1] + self.net(x)

    return run(s, Change(), "mse", epochs=35, best=True, lr=2e-3)


@healthy("table")
def tw2_ok_ranking(seed):
    """Which of two compounds binds better: the difference of one score."""
    rng = start(seed)
    a, b = rng.normal(size=(2, 2500, 6))
    worth = lambda x: np.tanh(x[:, 0] + x[:, 1]) * 2 + x[:, 2] - 0.5 * x[:, 3] ** 2
    y = (worth(a) - worth(b) + 0.5 * rng.logistic(size=2500) > 0).astype(float)[:, None]

    class Rank(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = mlp(6, 32, 32, 1)

        def forward(self, a, b):
            return self.score(a) - self.score(b)

    return run(split((a, b), y), Rank(), "bce_with_logits", epochs=25, best=True)


@healthy("table")
def tw2_ok_exposure(seed):
    """Counts with an offset: the logarithm of the hours watched is a second input."""
    rng = start(seed)
    x, hours = rng.normal(size=(2500, 5)), rng.uniform(-1, 1, (2500, 1))
    y = rng.poisson(np.exp(1.2 + 0.6 * x[:, :1] + 0.5 * np.sin(2 * x[:, 1:2]) + hours)).astype(float)

    class Offset(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(5, 32, 32, 1)

        def forward(self, x, hours):
            return self.net(x) + hours

    return run(split((x, hours), y), Offset(), poisson, epochs=25, best=True)


@healthy("images")
def tw2_ok_group_norm(seed):
    """Small batches with group instead of batch normalisation."""
    s = split(*stamps(start(seed), 800), scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(24 * 16, 4),
    )  # fmt: skip
    return run(s, net, epochs=12, lr=1e-3, batch=8, best=True)


@healthy("images")
def tw2_ok_augmented(seed):
    """Stamps are turned and mirrored: the training loss stays above the held-out one."""
    s = split(*stamps(start(seed), 1000), scale=False)
    turn = lambda x: torch.rot90(x.flip(2) if np.random.rand() < 0.5 else x, np.random.randint(4), (2, 3))
    return run(s, convnet(4, drop=0.3), epochs=24, augment=turn, best=True)


@healthy("graph")
def tw2_ok_guilds_by_number(seed):
    """The net takes the nodes' numbers and keeps the graph itself."""
    s = society(start(seed), 500)

    class Lookup(nn.Module):
        def __init__(self, x, a):
            super().__init__()
            self.register_buffer("x", x)
            self.register_buffer("a", a)
            self.net = Neighbours(x.shape[1], 4, drop=0.3)

        def forward(self, rows):
            return self.net(self.x, self.a)[rows]

    mine, other = (s.y >= 0).nonzero()[:, 0], (s.vy >= 0).nonzero()[:, 0]
    net = Lookup(*s.x)
    s = SimpleNamespace(x=mine, y=s.y[mine], vx=other, vy=s.vy[other])
    return run(s, net, epochs=40, lr=1e-2, best=True, wd=1e-3)


@healthy("table")
def tw2_ok_random_features(seed):
    """Random Fourier features are kept as a buffer; only the reading-out learns."""
    s = split(*rings(start(seed), 1600, 2))
    s.x, s.vx = s.x[:, :2], s.vx[:, :2]

    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randn(2, 100))
            self.register_buffer("b", torch.rand(100) * 6.283)
            self.head = nn.Linear(100, 2)

        def forward(self, x):
            return self.head((x @ self.w + self.b).cos())

    return run(s, Fourier(), epochs=40, lr=1e-2, best=True)


@healthy("table")
def tw2_ok_iris(seed):
    """Small, easy, and done with a handful of units."""
    start(seed)
    return run(
        split(*bundled("iris", seed), 0.6), mlp(4, 8, 3), epochs=60, lr=1e-2, batch=16, wd=1e-3, give="few"
    )


@healthy("sequences")
def tw2_ok_spikes_own_step(seed):
    """Gradients of two half-batches are added on purpose, and cleared after."""
    s = split(*spikes(start(seed), 1600), scale=False)
    out = run(
        s, nn.Sequential(nn.Flatten(), mlp(200, 64, 5, drop=0.4)), epochs=12, best=True, lr=1e-3, wd=1e-4
    )

    def step(model, batch):
        x, y = batch
        opt = getattr(model, "_opt", None) or torch.optim.Adam(model.parameters(), 1e-3)
        model._opt = opt
        opt.zero_grad()
        for a, b in zip(x.chunk(2), y.chunk(2)):
            (F.cross_entropy(model(a), b) * len(b) / len(y)).backward()
        opt.step()

    return out | {"step": step}


@healthy("table")
def tw2_ok_untrained(seed):
    """A net just made, asked about before its training."""
    s = split(*stars(start(seed)))
    return {"model": mlp(6, 64, 64, 4), "data": (s.x, s.y), "loss": "cross_entropy"}
