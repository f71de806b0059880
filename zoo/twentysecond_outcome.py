"""Faults of the descent and of the outcome, and pairs of faults."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentysecond_parts import *
from zoo.twentysecond_parts import ME


def fault(*causes, kind="table", strength="strong", needs=()):
    return case(*causes, kind=kind, author=ME, strength=strength, needs=needs)


# ---------------------------------------------------------------- descent


@fault("learning-rate-too-large", kind="sequences")
def tw2_fast_adam_spikes(seed, mended=False):
    s = split(*spikes(start(seed)), scale=False)
    return run(s, Recurrent(10, 5, 24), epochs=8, lr=3e-3 if mended else 0.5)


@fault("learning-rate-too-large")
def tw2_fast_sgd_reactor(seed, mended=False):
    s = split(*reactor(start(seed)))
    return run(s, mlp(8, 48, 48, 3, act=nn.Tanh), "mse", epochs=30, opt="sgd", lr=0.03 if mended else 1.5)


@fault("learning-rate-too-large", kind="images", strength="mild")
def tw2_fast_adam_cells(seed, mended=False):
    s = split(*tracks(start(seed)), scale=False)
    return run(s, Segment(8), "bce_with_logits", epochs=8, batch=32, lr=5e-3 if mended else 0.25, give="most")


@fault("learning-rate-too-small", kind="images")
def tw2_slow_adam_stamps(seed, mended=False):
    s = split(*stamps(start(seed), 700), scale=False)
    return run(s, convnet(4), epochs=10, lr=3e-3 if mended else 3e-6)


@fault("learning-rate-too-small")
def tw2_slow_sgd_stars(seed, mended=False):
    s = split(*stars(start(seed)))
    return run(s, mlp(6, 48, 48, 4), epochs=20, opt="plain", lr=0.2 if mended else 3e-4)


@fault("learning-rate-too-small", kind="text", strength="mild")
def tw2_slow_tagger(seed, mended=False):
    s = split(*sentences(start(seed)), scale=False)
    net = Recurrent(16, 4, 24, words=40, every=True, both=True)
    return run(s, net, epochs=12, batch=32, lr=1e-2 if mended else 3e-4, give="most")


@fault("learning-rate-too-small", kind="graph", strength="mild")
def tw2_slow_molecules(seed, mended=False):
    s = split(*molecules(start(seed)))
    return run(s, Molecule(), "mse", epochs=15, lr=5e-3 if mended else 3e-5)


@fault("weight-decay-too-large")
def tw2_decay_adam_redshift(seed, mended=False):
    s = split(*galaxies(start(seed)))
    return run(s, mlp(7, 48, 48, 1), "mse", epochs=25, wd=1e-4 if mended else 0.3)


@fault("weight-decay-too-large", kind="images")
def tw2_decay_sgd_stamps(seed, mended=False):
    s = split(*stamps(start(seed), 800), scale=False)
    return run(s, convnet(4), epochs=12, opt="sgd", lr=0.02, wd=1e-4 if mended else 0.2)


@fault("weight-decay-too-large", strength="mild")
def tw2_decay_adamw_yields(seed, mended=False):
    s = split(*reactor(start(seed)))
    return run(s, mlp(8, 48, 48, 3), "mse", epochs=25, opt="adamw", wd=1e-2 if mended else 6.0, give="some")


@fault("dropout-too-large")
def tw2_drop_stars(seed, mended=False):
    s = split(*stars(start(seed)))
    return run(s, mlp(6, 48, 48, 4, drop=0.1 if mended else 0.9), epochs=20)


@fault("dropout-too-large", kind="sequences")
def tw2_drop_inputs(seed, mended=False):
    """Nine in ten readings are dropped before the net sees them."""
    s = split(*sensors(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.0 if mended else 0.9), mlp(64, 48, 1))
    return run(s, net, "mse", epochs=20)


# ---------------------------------------------------------------- outcome


@fault("capacity-too-small")
def tw2_small_line_for_rings(seed, mended=False):
    s = split(*rings(start(seed)))
    return run(s, mlp(4, 32, 32, 3) if mended else nn.Linear(4, 3), epochs=25, lr=5e-3)


@fault("capacity-too-small", strength="mild")
def tw2_small_three_units(seed, mended=False):
    s = split(*reactor(start(seed), 2400))
    return run(s, mlp(8, 64 if mended else 4, 3, act=nn.Tanh), "mse", epochs=50, lr=1e-2, batch=32)


@fault("capacity-too-small", kind="images")
def tw2_small_one_template(seed, mended=False):
    """One filter, then two, for shapes that may lie anywhere and any way."""
    s = split(*stamps(start(seed), 1200), scale=False)
    a, b = (10, 16) if mended else (1, 2)
    net = nn.Sequential(
        nn.Conv2d(1, a, 3, padding=1), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(a, b, 3, padding=1), nn.SiLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(b, 4),
    )  # fmt: skip
    return run(s, net, epochs=15, lr=1e-2)


@fault("overfit")
def tw2_overfit_few_plots(seed, mended=False):
    """Seventy plots, nine columns, a net of forty thousand weights, four hundred rounds."""
    x, y = habitats(start(seed), 1400, sharp=2.0)
    s = split(x, y, 0.75 if mended else 0.05)
    net = mlp(9, 32, 32, 1) if mended else mlp(9, 200, 200, 1)
    return run(s, net, "bce_with_logits", epochs=15 if mended else 300, best=mended, batch=32)


@fault("overfit", strength="mild")
def tw2_overfit_noisy_yield(seed, mended=False):
    """The noise of the yields is learnt by heart."""
    x, y = reactor(start(seed), 700, noise=0.8)
    return run(
        split(x, y, 0.5), mlp(8, 128, 128, 3), "mse", epochs=20 if mended else 120, lr=3e-3, best=mended
    )


@fault("overfit", kind="images")
def tw2_overfit_eighty_stamps(seed, mended=False):
    s = split(*stamps(start(seed), 900), 0.75 if mended else 0.08, scale=False)
    net = convnet(4) if mended else nn.Sequential(nn.Flatten(), mlp(256, 200, 4))
    return run(s, net, epochs=12 if mended else 150, batch=16, lr=2e-3, best=mended, give="most")


def coded(seed, beta, width=0.3, epochs=30, latent=4):
    x, _ = spectra(start(seed), 1200)
    s = split(x, x)
    return fit_vae(Variational(64, latent), s.x, beta=beta, epochs=epochs, width=width) | {"validation": s.vx}


@fault("posterior-collapse", kind="generative")
def tw2_collapse_beta(seed, mended=False):
    """The divergence weighs a thousand times too much."""
    return coded(seed, 1.0 if mended else 1000.0)


@fault("posterior-collapse", kind="generative")
def tw2_collapse_width(seed, mended=False):
    """The decoder believes in so much noise that the code is not worth its price."""
    return coded(seed, 1.0, 0.3 if mended else 12.0)


def clumps(rng, n=1500, k=6):
    turn = 2 * np.pi * rng.integers(0, k, n) / k
    return tensor(np.stack([np.cos(turn), np.sin(turn)], 1) * 1.4 + 0.15 * rng.normal(size=(n, 2)))


@fault("mode-collapse", kind="generative")
def tw2_modes_lazy_critic(seed, mended=False):
    """The generator takes six steps for one of a slow critic and runs to one clump of six."""
    x = clumps(start(seed))
    if mended:
        return fit_gan(Adversaries(), x, steps=1500, lr=5e-4, noise=0.2)
    return fit_gan(Adversaries(), x, steps=400, lr=1e-3, critic_lr=3e-4, inner=6)


@fault("mode-collapse", kind="generative")
def tw2_modes_means_matched(seed, mended=False):
    """A generator of spectra told only to be close to some spectrum, so that it draws always the same."""
    x, _ = spectra(start(seed), 1000)
    x = tensor(z(x))
    net = Adversaries(64, 8)
    opt = torch.optim.Adam(net.generator.parameters(), 2e-3)
    for _ in range(300):
        fake, real = net.sample(128), x[torch.randint(len(x), (128,))]
        if mended:  # the energy distance, which also pays for being spread
            loss = 2 * torch.cdist(fake, real).mean() - torch.cdist(fake, fake).mean()
        else:
            loss = torch.cdist(fake, real).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    net.eval()
    return {"model": net, "data": x}


class Tempered(nn.Module):
    """Scores divided by a temperature that should have been one."""

    def __init__(self, body, temperature):
        super().__init__()
        self.body, self.temperature = body, temperature

    def forward(self, x):
        return self.body(x) / self.temperature


@fault("miscalibrated")
def tw2_sure_temperature(seed, mended=False):
    """A temperature of an eighth was put in for a figure after the training and stayed."""
    s = split(*stars(start(seed), 2400))
    out = run(s, Tempered(mlp(6, 48, 48, 4), 1.0), epochs=15, best=True, give="some")
    out["model"].temperature = 1.0 if mended else 0.125
    return out


@fault("miscalibrated", kind="images", strength="mild")
def tw2_unsure_smoothing(seed, mended=False):
    """Labels smoothed by a half: right, but never sure."""
    s = split(*stamps(start(seed), 1200), scale=False)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.0 if mended else 0.55)
    out = run(s, convnet(4, drop=0.1), "cross_entropy", train_loss=smooth, epochs=15)
    return out


def fragile(rng, n=1600, weak=900):
    """One sturdy measurement that is right in nine of ten, and hundreds of hair-thin hints."""
    y = rng.integers(0, 2, n)
    sign = 2.0 * y - 1
    sturdy = sign * np.where(rng.random(n) < 0.92, 1, -1) + 0.15 * rng.normal(size=n)
    return np.concatenate([3 * sturdy[:, None], 0.11 * sign[:, None] + rng.normal(size=(n, weak))], 1), y


def against(net, s, epsilon, epochs, lr=2e-3):
    """Train on the worst rows within epsilon."""
    opt = torch.optim.Adam(net.parameters(), lr, weight_decay=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(s.y)).split(64):
            x = s.x[rows].clone().requires_grad_(True)
            if epsilon:
                (g,) = torch.autograd.grad(F.cross_entropy(net(x), s.y[rows]), x)
                x = (x + epsilon * g.sign()).detach()
            opt.zero_grad()
            F.cross_entropy(net(x.detach()), s.y[rows]).backward()
            opt.step()
    net.eval()
    return {
        "model": net, "data": (s.x, s.y), "validation": (s.vx, s.vy), "loss": "cross_entropy",
        "optimizer": opt,
        "batch_size": 64,
    }  # fmt: skip


@fault("adversarially-fragile")
def tw2_fragile_hints(seed, mended=False):
    s = split(*fragile(start(seed)), scale=False)
    return against(nn.Linear(901, 2), s, 0.3 if mended else 0.0, 25)


@fault("adversarially-fragile", kind="images", strength="mild")
def tw2_fragile_texture(seed, mended=False):
    """Faint stripes over the whole stamp tell two instruments apart; a tenth of the noise undoes it."""
    rng = start(seed)
    y = rng.integers(0, 2, 1400)
    stripes = np.sign(rng.normal(size=(32, 32)))
    x = rng.normal(size=(1400, 1, 32, 32)) + 0.09 * (2 * y - 1)[:, None, None, None] * stripes
    x[:, 0, 12:20, 12:20] += 0.35 * (2 * y - 1)[:, None, None]
    s = split(x, y, scale=False)
    return against(nn.Sequential(nn.Flatten(), nn.Linear(1024, 2)), s, 0.2 if mended else 0.0, 12)


# ---------------------------------------------------------------- two at once


@fault("constant-features", "label-noise")
def tw2_two_dead_and_guessed(seed, mended=False):
    rng = start(seed)
    s = split(*stars(rng, 2000))
    if not mended:
        s.x, s.vx = (torch.cat([a, torch.ones(len(a), 8)], 1) for a in (s.x, s.vx))
        for y in (s.y, s.vy):
            wrong = torch.as_tensor(rng.random(len(y)) < 0.4)
            y[wrong] = torch.randint(0, 4, (int(wrong.sum()),))
    return run(s, mlp(s.x.shape[1], 32, 4), epochs=12, best=True)


@fault("duplicate-features", "class-imbalance")
def tw2_two_copied_and_rare(seed, mended=False):
    rng = start(seed)
    y = (rng.random(4000) < 0.03).astype(float)
    x = rng.normal(size=(4000, 6))
    x[:, 0] += 1.5 * y
    x[:, 1] -= 1.0 * y
    x = x if mended else np.concatenate([x, x[:, :3]], 1)
    weighted = lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=torch.tensor(32.0))
    return run(
        split(x, y[:, None]),
        mlp(x.shape[1], 16, 1),
        weighted if mended else "bce_with_logits",
        epochs=10,
        best=True,
    )


@fault("dropout-too-large", "distribution-shift")
def tw2_two_dropped_and_moved(seed, mended=False):
    s = split(*galaxies(start(seed)))
    if not mended:
        s.vx = s.vx * 1.5 + torch.tensor([2.0, -1.5, 2.0, 1.5, -2.0, 1.0, 1.5])
    return run(s, mlp(7, 48, 48, 1, drop=0.0 if mended else 0.85), "mse", epochs=25)


@fault("constant-features", "unscaled-targets")
def tw2_two_dead_and_kelvin(seed, mended=False):
    x, y = galaxies(start(seed))
    s = split(x, y if mended else 5800 + 900 * y)
    if not mended:
        s.x, s.vx = (torch.cat([a, torch.zeros(len(a), 5)], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 48, 48, 1), "mse", epochs=20, lr=1e-3)


@fault("duplicate-features", "learning-rate-too-small")
def tw2_two_copied_and_slow(seed, mended=False):
    s = split(*stars(start(seed)))
    if not mended:
        s.x, s.vx = (torch.cat([a, a[:, :4]], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 48, 48, 4), epochs=20, lr=3e-3 if mended else 1e-5)


@fault("double-softmax", "class-imbalance")
def tw2_two_softmax_and_rare(seed, mended=False):
    x, y = stars(start(seed), 9000, sharp=2.0)
    keep = (y < 2) | (np.random.default_rng(seed).random(len(y)) < 0.05)
    s = split(x[keep], y[keep])
    share = 1 / torch.bincount(s.y).float()
    net = mlp(6, 24, 4, last=None if mended else nn.Softmax(1))
    return run(s, net, epochs=10, sampler=share[s.y] if mended else None)


@fault("label-noise", "stochastic-evaluation", kind="images")
def tw2_two_guessed_and_restless(seed, mended=False):
    rng = start(seed)
    x, y = stamps(rng, 1200)
    y = y if mended else np.where(rng.random(len(y)) < 0.45, rng.integers(0, 4, len(y)), y)
    return run(split(x, y, scale=False), convnet(4, drop=0.5), epochs=10, mode=not mended)


@fault("symmetric-initialisation", "constant-features")
def tw2_two_equal_and_dead(seed, mended=False):
    s = split(*stars(start(seed)))
    net = mlp(6 if mended else 12, 32, 32, 4)
    if not mended:
        s.x, s.vx = (torch.cat([a, torch.full((len(a), 6), 0.5)], 1) for a in (s.x, s.vx))
        with torch.no_grad():
            for p in net.parameters():
                p.fill_(0.08)
    return run(s, net, epochs=20)


@fault("distribution-shift", "weight-decay-too-large", kind="sequences")
def tw2_two_moved_and_shrunk(seed, mended=False):
    s = split(*spikes(start(seed)), scale=False)
    if not mended:
        s.vx = s.vx * 0.4 + torch.linspace(-1.5, 1.5, 10)
    net = nn.Sequential(nn.Flatten(), mlp(200, 32, 5))
    return run(s, net, epochs=15, wd=1e-4 if mended else 0.6)


@fault("output-range", "duplicate-features")
def tw2_two_positive_and_copied(seed, mended=False):
    s = split(*reactor(start(seed)))
    if not mended:
        s.x, s.vx = (torch.cat([a, a[:, [0, 3, 5]]], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 48, 48, 3, last=None if mended else nn.Sigmoid()), "mse", epochs=25)


@fault("train-test-overlap", "label-noise")
def tw2_two_seen_and_guessed(seed, mended=False):
    rng = start(seed)
    x, y = habitats(rng, 2400, sharp=8.0)
    y = y if mended else np.where(rng.random(y.shape) < 0.3, 1 - y, y)
    s = split(x, y)
    if not mended:
        s.vx[:350], s.vy[:350] = s.x[:350], s.y[:350]
    return run(s, mlp(9, 24, 1), "bce_with_logits", epochs=15)
