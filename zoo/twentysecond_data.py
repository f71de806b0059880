"""Faults of the data and of the objective."""

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


# ---------------------------------------------------------------- not finite, overflow


@fault("not-finite-data", kind="sequences")
def tw2_nan_sensor_gaps(seed, mended=False):
    """The second channel drops out now and then, and the logger writes NaN."""
    rng = start(seed)
    s = split(*sensors(rng), scale=False)
    for x in (s.x, s.vx):
        x[..., 1][torch.as_tensor(rng.random(x.shape[:2]) < 0.01)] = 0.0 if mended else float("nan")
    return run(s, Recurrent(4, 1, 24), "mse", epochs=10, lr=5e-3)


@fault("not-finite-data")
def tw2_nan_log_of_nothing(seed, mended=False):
    """A column is the logarithm of a count that may be nought."""
    rng = start(seed)
    s = split(*habitats(rng))
    hits = rng.poisson(6, (2000, 1))
    with np.errstate(divide="ignore"):
        column = tensor(np.log(hits + 1.0) if mended else np.log(hits)) - 1.8
    s.x, s.vx = torch.cat([s.x, column[: s.n]], 1), torch.cat([s.vx, column[s.n :]], 1)
    s.x[5, -1] = s.x[5, -1] if mended else -float("inf")
    return run(s, mlp(10, 32, 32, 1), "bce_with_logits", epochs=15)


@fault("not-finite-data", strength="mild")
def tw2_nan_batches_passed_over(seed, mended=False):
    """Rows without a parallax are NaN, and a batch whose loss is not finite is passed over: nearly all."""
    rng = start(seed)
    s = split(*stars(rng))
    s.x[torch.as_tensor(rng.random(s.n) < 0.06), 5] = 0.0 if mended else float("nan")
    return run(s, mlp(6, 48, 48, 4), epochs=15, skip=True)


class HandSoftmax(nn.Module):
    """Log-probabilities by one's own exponentials, at a low temperature."""

    def __init__(self, body, temperature, safe):
        super().__init__()
        self.body, self.temperature, self.safe = body, temperature, safe

    def forward(self, x):
        h = self.body(x) / self.temperature
        if self.safe:
            return h.log_softmax(1)
        e = h.exp()
        return (e / e.sum(1, keepdim=True)).log()


@fault("overflow")
def tw2_overflow_softmax_by_hand(seed, mended=False):
    s = split(*stars(start(seed)))
    net = HandSoftmax(mlp(6, 48, 48, 4), 0.1 if mended else 0.001, mended)
    return run(s, net, "nll", epochs=15, lr=1e-3)


@fault("overflow", kind="sequences")
def tw2_overflow_half_precision_energy(seed, mended=False):
    """The energy of a spectrum is summed in half precision, which ends at 65504."""
    x, y = spectra(start(seed), 1000)
    s = split(x[:, None], y, scale=False)

    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv1d(1, 16, 9, padding=4), mlp(128, 32, 4)

        def forward(self, x):
            h = self.conv(x).relu() * 600
            h = h if mended else h.half()
            power = F.avg_pool1d((h * h).float(), 8)
            return self.head(power.add(1e-3).log().flatten(1) / 8)

    return run(s, Energy(), epochs=15)


# ---------------------------------------------------------------- scales


UNITS = torch.tensor([5e4, 1.0, 1e-3, 300.0, 1.0, 2e3])


@fault("unscaled-inputs")
def tw2_units_of_a_catalogue(seed, mended=False):
    """Kelvin, magnitudes, milliarcseconds and Julian days side by side."""
    s = split(*stars(start(seed)))
    if not mended:
        s.x, s.vx = s.x * UNITS + 2 * UNITS, s.vx * UNITS + 2 * UNITS
    return run(s, mlp(6, 48, 48, 4), epochs=20)


@fault("unscaled-inputs", kind="images")
def tw2_units_of_a_camera(seed, mended=False):
    """Raw counts of a sixteen-bit camera."""
    s = split(*stamps(start(seed), 700), scale=False)
    if not mended:
        s.x, s.vx = s.x * 3000 + 20000, s.vx * 3000 + 20000
    return run(s, convnet(4), epochs=10, give="some")


@fault("unscaled-inputs", kind="sequences", strength="mild")
def tw2_units_of_pressure(seed, mended=False):
    """One of four channels is in pascals."""
    s = split(*sensors(start(seed)), scale=False)
    if not mended:
        for x in (s.x, s.vx):
            x[..., 2] = 101325 + 400 * x[..., 2]
    return run(s, Recurrent(4, 1, 24), "mse", epochs=12, lr=5e-3)


@fault("unscaled-targets")
def tw2_targets_in_kelvin(seed, mended=False):
    x, y = galaxies(start(seed))
    s = split(x, y if mended else 5800 + 900 * y)
    return run(s, mlp(7, 48, 48, 1), "mse", epochs=25, lr=1e-3)


@fault("unscaled-targets")
def tw2_targets_in_mol(seed, mended=False):
    """Concentrations of a millionth: below what the start of the net and Adam's epsilon can resolve."""
    x, y = reactor(start(seed))
    s = split(x, y if mended else 1e-6 * y)
    return run(s, mlp(8, 48, 48, 3), "mse", epochs=20, give="most")


@fault("unscaled-targets", kind="graph", strength="mild")
def tw2_targets_of_molecules(seed, mended=False):
    """Enthalpies in kilojoules per mole, far from nought."""
    x, y = molecules(start(seed))
    s = split(x, y if mended else 150 * y - 1800)
    return run(s, Molecule(), "mse", epochs=20, lr=2e-3)


# ---------------------------------------------------------------- columns


@fault("constant-features")
def tw2_constant_dead_channels(seed, mended=False):
    """Twenty channels of the array are not connected."""
    rng = start(seed)
    s = split(*galaxies(rng))
    if not mended:
        dead = tensor(rng.normal(size=20))
        s.x, s.vx = (torch.cat([a, dead.expand(len(a), 20)], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 48, 48, 1), "mse", epochs=25, best=True)


@fault("constant-features", strength="mild")
def tw2_constant_country(seed, mended=False):
    """Three one-hot columns of habitats that nobody visited, and the year."""
    s = split(*habitats(start(seed)))
    if not mended:
        s.x, s.vx = (torch.cat([a, torch.zeros(len(a), 3), torch.ones(len(a), 1)], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 32, 32, 1), "bce_with_logits", epochs=15, best=True, give="bare")


@fault("duplicate-features")
def tw2_duplicate_export(seed, mended=False):
    """Two exports of the same table were joined by columns."""
    s = split(*reactor(start(seed)))
    if not mended:
        s.x, s.vx = (torch.cat([a, a], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 48, 48, 3), "mse", epochs=30, best=True)


@fault("duplicate-features", strength="mild")
def tw2_duplicate_one_band(seed, mended=False):
    """One band came with the catalogue and again with the cross-match."""
    s = split(*stars(start(seed)))
    if not mended:
        s.x, s.vx = (torch.cat([a, a[:, 2:3]], 1) for a in (s.x, s.vx))
    return run(s, mlp(s.x.shape[1], 48, 48, 4), epochs=20, best=True, give="few")


# ---------------------------------------------------------------- splits


@fault("train-test-overlap")
def tw2_overlap_revisits(seed, mended=False):
    """Two in three of the held-out plots are also trained on."""
    rng = start(seed)
    s = split(*habitats(rng, 1600))
    if not mended:
        rows = torch.as_tensor(rng.permutation(s.n)[:270])
        s.vx[:270], s.vy[:270] = s.x[rows], s.y[rows]
    return run(s, mlp(9, 32, 32, 1), "bce_with_logits", epochs=20)


@fault("train-test-overlap", kind="images")
def tw2_overlap_stamps(seed, mended=False):
    """The stamps were resampled before they were split."""
    rng = start(seed)
    s = split(*stamps(rng, 800), scale=False)
    if not mended:
        rows = torch.as_tensor(rng.permutation(s.n)[:130])
        s.vx[:130], s.vy[:130] = s.x[rows], s.y[rows]
    return run(s, convnet(4, drop=0.2), epochs=12, give="few")


@fault("train-test-overlap", kind="text", strength="mild")
def tw2_overlap_sentences(seed, mended=False):
    """A third of the held-out sentences are known from the training."""
    rng = start(seed)
    s = split(*sentences(rng), scale=False)
    if not mended:
        s.vx[:50], s.vy[:50] = s.x[:50], s.y[:50]
    return run(s, Recurrent(16, 4, 24, words=40, every=True, both=True), epochs=15, lr=1e-2, batch=32)


@fault("distribution-shift")
def tw2_shift_second_telescope(seed, mended=False):
    """The held-out stars were seen through another filter set: other zero points and gains."""
    s = split(*stars(start(seed)))
    if not mended:
        s.vx = s.vx * torch.tensor([1.6, 0.7, 1.3, 1.5, 0.8, 1.0]) + torch.tensor(
            [1.5, -1.2, 1.0, 2.0, -0.5, 0.8]
        )
    return run(s, mlp(6, 48, 48, 4), epochs=15, best=mended)


@fault("distribution-shift", kind="sequences")
def tw2_shift_wavelength(seed, mended=False):
    """The held-out spectra come from an instrument with its wavelengths six channels off, and brighter."""
    x, y = spectra(start(seed))
    s = split(x[:, None], y, scale=False)
    if not mended:
        s.vx = s.vx.roll(6, -1) * 1.5 + 0.5
    return run(s, conv1(4), epochs=10, give="some")


@fault("distribution-shift", strength="mild")
def tw2_shift_warm_sites(seed, mended=False):
    """Trained on cold and middling sites, asked about the warm ones."""
    x, y = habitats(start(seed), 3000)
    order = np.arange(len(x)) if mended else np.argsort(x[:, 1])
    return run(split(x[order], y[order], 0.8), mlp(9, 32, 32, 1), "bce_with_logits", epochs=15, give="bare")


@fault("target-leak")
def tw2_leak_number_seen(seed, mended=False):
    """The number of animals seen is a column beside their presence."""
    rng = start(seed)
    x, y = habitats(rng)
    seen = y * (1 + rng.poisson(2, y.shape))
    x = x if mended else np.concatenate([x, seen], 1)
    return run(split(x, y), mlp(x.shape[1], 32, 32, 1), "bce_with_logits", epochs=15, best=True)


@fault("target-leak", strength="mild")
def tw2_leak_spectroscopic(seed, mended=False):
    """One column is the spectroscopic redshift of the same galaxy, in other units."""
    rng = start(seed)
    x, y = galaxies(rng, noise=0.5)
    x = x if mended else np.concatenate([x, 300 - 70 * y + 0.7 * rng.normal(size=y.shape)], 1)
    return run(split(x, y), mlp(x.shape[1], 48, 48, 1), "mse", epochs=25, best=True)


@fault("target-leak")
def tw2_leak_plate_number(seed, mended=False):
    """Each compound was measured on its own plates; the plate's number was kept."""
    rng = start(seed)
    x, y = spectra(rng, 1200, noise=0.6)
    x = np.concatenate(
        [
            x,
            (y * 10 + rng.integers(0, 6, y.shape) if not mended else rng.integers(0, 36, y.shape))[:, None]
            * 1.0,
        ],
        1,
    )
    return run(split(x, y), mlp(65, 32, 4, drop=0.3), epochs=25, best=True, give="few")


# ---------------------------------------------------------------- labels


@fault("misaligned-labels")
def tw2_misaligned_header(seed, mended=False):
    """A header line was counted as a star: every label is its neighbour's."""
    x, y = stars(start(seed))
    return run(split(x, y if mended else np.roll(y, 1)), mlp(6, 48, 4), epochs=12, best=True)


@fault("misaligned-labels", kind="sequences")
def tw2_misaligned_frames(seed, mended=False):
    """The tags of the recordings run six frames ahead of the sound."""
    s = split(*frames(start(seed)), scale=False)
    if not mended:
        for y in (s.y, s.vy):
            y[:, :-6] = y[:, 6:].clone()
    return run(s, Recurrent(6, 4, 24, every=True), epochs=20, lr=1e-2, batch=32, best=True)


@fault("misaligned-labels", strength="mild")
def tw2_misaligned_after_a_gap(seed, mended=False):
    """A missing row in the second file shifts all labels after the first third of the training rows."""
    s = split(*galaxies(start(seed)))
    if not mended:
        s.y[750:] = s.y[750:].roll(1, 0)
    return run(s, mlp(7, 48, 48, 1), "mse", epochs=15, best=True)


@fault("no-signal")
def tw2_no_signal_spectra(seed, mended=False):
    """The lot number has nothing to do with the spectrum."""
    rng = start(seed)
    x, y = spectra(rng, 1500)
    return run(
        split(x, y if mended else rng.integers(0, 4, len(y))),
        mlp(64, 32, 4, drop=0.3),
        epochs=8,
        wd=1e-3,
        best=True,
    )


@fault("no-signal", strength="strong")
def tw2_no_signal_yield(seed, mended=False):
    """The yield depends on what was not measured."""
    rng = start(seed)
    x, y = reactor(rng, 2000)
    y = y[:, :1] if mended else rng.normal(size=(2000, 1))
    return run(split(x, y), mlp(8, 24, 1), "mse", epochs=12, wd=1e-2, best=True, give="some")


@fault("label-noise", kind="images")
def tw2_noise_volunteers(seed, mended=False):
    """Volunteers guessed two labels of five."""
    rng = start(seed)
    x, y = stamps(rng, 1200)
    y = y if mended else np.where(rng.random(len(y)) < 0.4, rng.integers(0, 4, len(y)), y)
    return run(split(x, y, scale=False), convnet(4, drop=0.3), epochs=12, best=True)


@fault("label-noise", strength="mild")
def tw2_noise_absences(seed, mended=False):
    """A quarter of the trained-on records are wrong; the held-out ones were checked."""
    rng = start(seed)
    s = split(*habitats(rng, 2400, sharp=8.0))
    if not mended:
        wrong = torch.as_tensor(rng.random(s.n) < 0.28)
        s.y[wrong] = 1 - s.y[wrong]
    return run(s, mlp(9, 32, 32, 1), "bce_with_logits", epochs=12)


@fault("label-noise", kind="sequences")
def tw2_noise_stimulus_log(seed, mended=False):
    """A third of the stimuli were logged wrongly."""
    rng = start(seed)
    x, y = spikes(rng, 1600)
    y = y if mended else np.where(rng.random(len(y)) < 0.4, (y + rng.integers(1, 5, len(y))) % 5, y)
    return run(split(x, y, scale=False), Recurrent(10, 5, 24), epochs=8, clip=1.0, give="most", best=True)


@fault("class-imbalance")
def tw2_imbalance_pulsars(seed, mended=False):
    """One candidate in forty is a pulsar, among many that look alike; nothing makes up for it."""
    rng = start(seed)
    y = (rng.random(4000) < 0.025).astype(float)
    x = rng.normal(size=(4000, 6)) * (1 + 0.3 * y[:, None])
    x[:, 0] += 1.4 * y
    x[:, 2] += 1.0 * y + 0.5 * x[:, 0]
    weighted = lambda o, t: F.binary_cross_entropy_with_logits(o, t, pos_weight=torch.tensor(39.0))
    loss = weighted if mended else "bce_with_logits"
    return run(split(x, y[:, None]), mlp(6, 16, 1), loss, epochs=12, best=True)


@fault("class-imbalance")
def tw2_imbalance_rare_type(seed, mended=False):
    """Two of four types make up one star in twenty-five each; a net trained plainly never names them."""
    rng = start(seed)
    x, y = stars(rng, 9000, sharp=2.0)
    keep = (y < 2) | (rng.random(len(y)) < 0.04)
    s = split(x[keep], y[keep])
    share = 1 / torch.bincount(s.y).float()
    return run(s, mlp(6, 16, 4), epochs=10, best=True, sampler=share[s.y] if mended else None)


# ---------------------------------------------------------------- objective


@fault("double-softmax", kind="sequences")
def tw2_softmax_twice_spikes(seed, mended=False):
    s = split(*spikes(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), mlp(200, 32, 5), *[nn.Softmax(1)] * (not mended))
    return run(s, net, epochs=8, lr=0.01, opt="sgd", give="most")


@fault("double-softmax", kind="images", strength="mild")
def tw2_softmax_twice_digits(seed, mended=False):
    start(seed)
    x, y = bundled("digits", seed)
    s = split(x.reshape(-1, 1, 8, 8) / 16, y, scale=False)
    return run(
        s, nn.Sequential(convnet(10, 8, 8), *[nn.Softmax(1)] * (not mended)), epochs=8, lr=2e-3, give="few"
    )


@fault("double-softmax")
def tw2_sigmoid_twice_habitat(seed, mended=False):
    """A sigmoid before a loss that has its own."""
    s = split(*habitats(start(seed)))
    return run(s, mlp(9, 32, 32, 1, last=None if mended else nn.Sigmoid()), "bce_with_logits", epochs=20)


@fault("wrong-loss")
def tw2_wrong_nll_of_scores(seed, mended=False):
    """The negative log-likelihood of scores that are no log-probabilities."""
    s = split(*stars(start(seed)))
    return run(s, mlp(6, 48, 48, 4), "cross_entropy" if mended else "nll", epochs=15)


@fault("wrong-loss", strength="mild")
def tw2_wrong_one_of_many(seed, mended=False):
    """Five species may all be present, but the loss lets them compete."""
    rng = start(seed)
    x = rng.normal(size=(2000, 6))
    y = np.stack([coin(rng, x[:, i] * 1.5 - x[:, i + 1] ** 2 + 1, 4.0)[:, 0] for i in range(5)], 1)
    return run(split(x, y), mlp(6, 48, 48, 5), "bce_with_logits" if mended else "cross_entropy", epochs=15)


@fault("wrong-loss", strength="mild")
def tw2_wrong_median_of_counts(seed, mended=False):
    """The absolute error of counts that are mostly nought: the median is nought nearly everywhere."""
    rng = start(seed)
    x, y = counts(rng, 2500)
    y = y * (rng.random(y.shape) < 0.45)
    return run(split(x, y / 3), mlp(6, 48, 48, 1), "mse" if mended else F.l1_loss, epochs=15, lr=1e-3)


@fault("output-range")
def tw2_range_sigmoid_redshift(seed, mended=False):
    s = split(*galaxies(start(seed)))
    return run(s, mlp(7, 48, 48, 1, last=None if mended else nn.Sigmoid()), "mse", epochs=25)


@fault("output-range", kind="sequences")
def tw2_range_relu_forecast(seed, mended=False):
    """The forecast cannot be negative; half of the readings are."""
    s = split(*sensors(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), mlp(64, 48, 1), *[nn.Softplus()] * (not mended))
    return run(s, net, "mse", epochs=20, give="few")


@fault("output-range", strength="mild")
def tw2_range_tanh_yields(seed, mended=False):
    s = split(*reactor(start(seed)))
    return run(s, mlp(8, 48, 48, 3, last=None if mended else nn.Tanh()), "mse", epochs=30)


class Restless(nn.Module):
    """A net with a dropout that never rests."""

    def __init__(self, inputs, out, share, mended):
        super().__init__()
        self.a, self.b, self.share, self.mended = nn.Linear(inputs, 64), nn.Linear(64, out), share, mended

    def forward(self, x):
        return self.b(F.dropout(self.a(x).relu(), self.share, training=self.training or not self.mended))


@fault("stochastic-evaluation", kind="sequences")
def tw2_restless_training_mode(seed, mended=False):
    """Nobody called eval()."""
    s = split(*sensors(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), mlp(64, 64, 32, 1, drop=0.2))
    return run(s, net, "mse", epochs=30, mode=not mended)


@fault("stochastic-evaluation", kind="images", strength="mild")
def tw2_restless_brightness(seed, mended=False):
    """The stamp's brightness is jittered as augmentation, inside forward, always."""

    class Jittered(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = convnet(4)

        def forward(self, x):
            return self.net(x * torch.rand(len(x), 1, 1, 1).mul(2.2) if self.training or not mended else x)

    return run(split(*stamps(start(seed), 900), scale=False), Jittered(), epochs=14, give="some")
