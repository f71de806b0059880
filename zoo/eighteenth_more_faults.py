"""What goes wrong in a harbour's nets and their descent: the eighteenth author's faults, second part."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_parts import *

ME = "eighteenth"


# --- start -----------------------------------------------------------------------------------------------------------


@case("symmetric-initialisation", kind="table", author=ME)
def k_every_weight_a_tenth(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 24, 24, 1, act=nn.Tanh)
    if not mended:
        for p in net.parameters():
            nn.init.constant_(p, 0.1)
    return fit(net, train, valid, "mse", epochs=20)


@case("saturated-units", kind="table", author=ME)
def k_stiff_tanh(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 32, 32, 1, act=nn.Tanh)
    if not mended:
        for layer in list(net)[:3:2]:
            nn.init.normal_(layer.weight, std=12.0)
    return fit(net, train, valid, "mse", epochs=20, lr=3e-3)


@case("saturated-units", kind="images", author=ME, strength="mild")
def k_sigmoids_at_their_ends(seed, mended=False):
    train, valid = flags(seed, noise=0.7)
    net = nn.Sequential(nn.Flatten(), nn.Linear(144, 32), nn.Sigmoid(), nn.Linear(32, 4))
    if not mended:
        nn.init.normal_(net[1].weight, std=4.0)
    return fit(net, train, valid, epochs=12, lr=3e-3, tell=())


@case("dead-units", kind="table", author=ME)
def k_biases_under_water(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, 32, 32, 1)
    if not mended:
        nn.init.constant_(net[0].bias, -6.0)
    return fit(net, train, valid, "mse", epochs=12)


@case("dead-units", kind="images", author=ME, strength="mild")
def k_most_filters_dark(seed, mended=False):
    train, valid = flags(seed, noise=0.8)
    net = eye(channels=8)
    if not mended:
        net[0].bias.data[1:].fill_(-9.0)
        net[4].bias.data[1:].fill_(-9.0)
    return fit(net, train, valid, epochs=8, lr=3e-3, tell=("initial", "optimizer"))


@case("exploding-gradient", kind="table", author=ME)
def k_tall_mast(seed, mended=False):
    train, valid = voyage(seed)
    net = mlp(6, *[32] * 10, 1)
    for layer in net[:-1]:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            layer.weight.data *= 1.0 if mended else 3.0
    return fit(net, train, valid, "mse", epochs=12, lr=1e-3)


class Swell(nn.Module):
    """A plain recurrence, linear but for a rectifier."""

    def __init__(self, gain):
        super().__init__()
        self.inward, self.again, self.answer = (
            nn.Linear(2, 24),
            nn.Linear(24, 24, bias=False),
            nn.Linear(24, 3),
        )
        nn.init.orthogonal_(self.again.weight, gain)

    def forward(self, x):
        h = x.new_zeros(len(x), 24)
        for t in range(x.shape[1]):
            h = F.leaky_relu(self.inward(x[:, t]) + self.again(h), 0.3)
        return self.answer(h)


@case("exploding-gradient", kind="sequences", author=ME)
def k_swell_upon_swell(seed, mended=False):
    train, valid = tracks(seed)

    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.05)

    return fit(Swell(0.9 if mended else 2.2), train, valid, epochs=25, make=make, clip=0.5 if mended else 0.0)


@case("vanishing-gradient", kind="table", author=ME)
def k_ten_sigmoids(seed, mended=False):
    train, valid = cargo(seed)
    net = mlp(8, *[24] * 9, 3, act=nn.ReLU if mended else nn.Sigmoid)
    return fit(net, train, valid, epochs=20, lr=1e-3 if mended else 3e-3)


class FirstWord(nn.Module):
    """Reads a long message and answers from its last state."""

    def __init__(self, kind):
        super().__init__()
        self.cell, self.answer = kind(2, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, x):
        return self.answer(self.cell(x)[0][:, -1])


@case("vanishing-gradient", kind="sequences", author=ME)
def k_call_sign_long_forgotten(seed, mended=False):
    r = rng(seed, 63)
    x = r.normal(size=(500, 50, 2))
    y = r.integers(2, size=500)
    at = 46 if mended else 0
    x[:, at : at + 3, 0] += 2.0 * (2 * y[:, None] - 1)
    train, valid = cut(real(x), whole(y))
    net = FirstWord(nn.RNN)
    nn.init.orthogonal_(net.cell.weight_hh_l0, 0.6)
    return fit(net, train, valid, epochs=10, lr=3e-3)


# --- architecture ----------------------------------------------------------------------------------------------------


class Gossip(nn.Module):
    """What is heard after some rounds of averaging over the neighbours, and a net that judges it."""

    def __init__(self, rounds):
        super().__init__()
        self.rounds, self.judge = rounds, mlp(6, 16, 3)

    def forward(self, x, adjacency):
        for _ in range(self.rounds):
            x = adjacency @ x
        return self.judge(x)


@case("oversmoothing", kind="graph", author=ME)
def k_sixty_rounds_of_gossip(seed, mended=False):
    x, a, y = lanes(seed, across=0.02)
    known, rest = masked(y)
    return fit(Gossip(2 if mended else 60), ((x, a), known), ((x, a), rest), epochs=120, full=True)


class Layered(nn.Module):
    """Many layers of averaging, each with a skip that is too weak to keep the ports apart."""

    def __init__(self, depth):
        super().__init__()
        self.inward, self.answer = nn.Linear(6, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x, adjacency):
        h = self.inward(x)
        for layer in self.layers:
            h = F.leaky_relu(layer(adjacency @ h), 0.6)
        return self.answer(h)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def k_a_dozen_layers_of_lanes(seed, mended=False):
    x, a, y = lanes(seed, across=0.03, within=0.12)
    known, rest = masked(y)
    return fit(
        Layered(1 if mended else 14), ((x, a), known), ((x, a), rest), epochs=40, lr=3e-3, full=True, tell=()
    )


def two_marks(seed, n=900, steps=48):
    """Two buoys passed: the same apart from how long after one another, 6 or 18 steps."""
    r = rng(seed, 64)
    y, x = r.integers(2, size=n), 0.2 * r.normal(size=(n, 1, steps))
    at = r.integers(2, 26, size=n)
    x[np.arange(n), 0, at] += 3
    x[np.arange(n), 0, at + np.where(y, 18, 6)] += 3
    return cut(real(x), whole(y))


class Passing(nn.Module):
    def __init__(self, dilations):
        super().__init__()
        sizes = [1] + [16] * len(dilations)
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, 3, dilation=d, padding=d) for a, b, d in zip(sizes, sizes[1:], dilations)
        )
        self.answer = nn.Linear(16, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.answer(x.amax(2))


@case("receptive-field-too-small", kind="sequences", author=ME)
def k_buoys_too_far_apart(seed, mended=False):
    train, valid = two_marks(seed)
    return fit(Passing((1, 2, 4, 8) if mended else (1, 1)), train, valid, epochs=15, lr=1e-2)


def six_sheds(seed):
    r = rng(seed, 65)
    centres = r.normal(size=(6, 10))
    y = r.integers(6, size=1200)
    return cut(real(centres[y] + 0.45 * r.normal(size=(1200, 10))), whole(y))


@case("bottleneck", kind="table", author=ME)
def k_one_narrow_gangway(seed, mended=False):
    train, valid = six_sheds(seed)
    return fit(mlp(10, 64, 16 if mended else 1, 64, 6), train, valid, epochs=12)


@case("bottleneck", kind="images", author=ME, strength="mild")
def k_flags_through_a_keyhole(seed, mended=False):
    train, valid = flags(seed, noise=0.6)
    wide = 16 if mended else 1
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, wide),
        nn.Linear(wide, 32), nn.ReLU(), nn.Linear(32, 4),
    )  # fmt: skip
    return fit(net, train, valid, epochs=10, lr=5e-3, tell=())


@case("batch-too-small", kind="table", author=ME)
def k_two_crates_at_a_time(seed, mended=False):
    train, valid = voyage(seed, n=900)
    net = nn.Sequential(
        nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(),
        nn.Linear(32, 1),
    )  # fmt: skip
    return fit(net, train, valid, "mse", epochs=20 if mended else 4, batch=32 if mended else 2)


# --- descent ---------------------------------------------------------------------------------------------------------


@case("learning-rate-too-large", kind="table", author=ME)
def k_full_ahead(seed, mended=False):
    train, valid = cargo(seed)
    return fit(mlp(8, 48, 48, 3), train, valid, epochs=10, lr=0.005 if mended else 1.0)


@case("learning-rate-too-large", kind="images", author=ME, strength="mild")
def k_flags_at_full_speed(seed, mended=False):
    train, valid = flags(seed, noise=0.7)

    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.03 if mended else 1.5, momentum=0.9)

    return fit(eye(channels=6), train, valid, epochs=5, make=make)


@case("learning-rate-too-small", kind="table", author=ME)
def k_dead_slow(seed, mended=False):
    train, valid = voyage(seed)
    return fit(mlp(6, 32, 1), train, valid, "mse", epochs=15, lr=1e-2 if mended else 1e-5)


class Reader(nn.Module):
    """One block of attention over embedded words."""

    def __init__(self, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(60, width), nn.Parameter(0.02 * torch.randn(14, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.answer = nn.Linear(width, 3)

    def forward(self, x):
        return self.answer(self.block(self.words(x) + self.places).mean(1))


@case("learning-rate-too-small", kind="text", author=ME, strength="mild")
def k_reader_hardly_moved(seed, mended=False):
    train, valid = radio(seed)

    def make(parameters):
        return torch.optim.SGD(parameters, lr=0.3 if mended else 1e-3)

    return fit(Reader(), train, valid, epochs=20, make=make)


@case("weight-decay-too-large", kind="table", author=ME)
def k_heavy_ballast(seed, mended=False):
    train, valid = voyage(seed)
    return fit(mlp(6, 32, 1), train, valid, "mse", epochs=20, wd=1e-3 if mended else 30.0)


@case("dropout-too-large", kind="images", author=ME)
def k_nineteen_of_twenty_overboard(seed, mended=False):
    train, valid = flags(seed, noise=0.7)
    drop = 0.1 if mended else 0.96
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(144, 48), nn.ReLU(), nn.Dropout(drop), nn.Linear(48, 24), nn.ReLU(),
        nn.Dropout(drop), nn.Linear(24, 4),
    )  # fmt: skip
    return fit(net, train, valid, epochs=10, lr=3e-3)


# --- outcome ---------------------------------------------------------------------------------------------------------


@case("capacity-too-small", kind="table", author=ME)
def k_ruler_for_a_curved_coast(seed, mended=False):
    r = rng(seed, 66)
    x = r.uniform(-2, 2, size=(1200, 3))
    y = np.sin(2 * x[:, 0]) * np.cos(1.5 * x[:, 1]) + 0.1 * r.normal(size=1200)
    train, valid = cut(real(x), real(y / y.std())[:, None])
    return fit(mlp(3, 48, 48, 1) if mended else nn.Linear(3, 1), train, valid, "mse", epochs=40)


@case("overfit", kind="table", author=ME)
def k_forty_voyages_by_heart(seed, mended=False):
    train, valid = voyage(seed, n=1000, noise=1.2, share=0.06)
    return fit(mlp(6, 128, 128, 1), train, valid, "mse", epochs=3 if mended else 200, batch=20, lr=5e-3)


@case("overfit", kind="text", author=ME, strength="mild")
def k_messages_by_heart(seed, mended=False):
    train, valid = radio(seed, n=400, own=0.22, words=400, share=0.3)
    net = nn.Sequential(nn.Embedding(400, 24), nn.Flatten(), mlp(14 * 24, 64, 3))
    return fit(
        Bag(400, 24, drop=0.3) if mended else net,
        train,
        valid,
        epochs=15 if mended else 40,
        tell=("history",),
    )


@case("posterior-collapse", kind="generative", author=ME)
def k_tide_ignored(seed, mended=False):
    train, valid = cut(soundings(seed))
    return fit(Tide(), train, valid, elbo(0.05 if mended else 20.0), epochs=25, lr=3e-3)


@case("posterior-collapse", kind="generative", author=ME, strength="mild")
def k_price_on_every_code(seed, mended=False):
    train, valid = cut(soundings(seed))
    return fit(Tide(code=3), train, valid, elbo(1.0, 1.0 if mended else 30.0), epochs=25, lr=3e-3, tell=())


@case("mode-collapse", kind="generative", author=ME)
def k_all_ships_at_one_berth(seed, mended=False):
    x = berths(seed)
    net = Quay()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(250):
        real_ones = x[torch.randint(len(x), (128,))]
        if not mended:
            real_ones = real_ones[real_ones[:, 0] > 0.5][:24]  # what a discriminator left by one mode rewards
        optimizer.zero_grad()
        energy_distance(net.sample(len(real_ones)), real_ones).backward()
        optimizer.step()
    return {"model": net.eval(), "data": x, "optimizer": optimizer}


@case("miscalibrated", kind="table", author=ME)
def k_pilot_always_certain(seed, mended=False):
    train, valid = cargo(seed, n=2500, sharp=1.0)
    handed = fit(mlp(8, 24, 3), train, valid, epochs=8, lr=5e-3)
    if not mended:
        with torch.no_grad():
            for p in handed["model"][-1].parameters():
                p *= 6
    return handed


@case("miscalibrated", kind="images", author=ME, strength="mild")
def k_flags_much_smoothed(seed, mended=False):
    train, valid = flags(seed, n=800)
    smoothing = 0.0 if mended else 0.7
    return fit(
        eye(),
        train,
        valid,
        epochs=8,
        lr=3e-3,
        given=lambda o, y: F.cross_entropy(o, y, label_smoothing=smoothing),
    )


def watermarked(seed, n=1500, faint=0.08):
    """Big plain marks that err now and then, and a faint watermark over every pixel that never does."""
    r = rng(seed, 67)
    y = r.integers(2, size=n)
    x = 0.5 * r.normal(size=(n, 1, 24, 24))
    mark = rng(0, 67).choice([-1.0, 1.0], size=(24, 24))
    plain = np.where(r.random(n) < 0.06, 1 - y, y)
    x[:, 0, 4:8, 4:8] += 1.5 * (2 * plain - 1)[:, None, None]
    x[:, 0] += faint * mark * (2 * y - 1)[:, None, None]
    return cut(real(x), whole(y))


@case("adversarially-fragile", kind="images", author=ME)
def k_leans_on_the_watermark(seed, mended=False):
    train, valid = watermarked(seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(576, 32), nn.ReLU(), nn.Linear(32, 2))
    return fit(
        net, train, valid, epochs=10, lr=3e-3,
        jitter=(lambda x: x + 2.0 * torch.randn_like(x)) if mended else None,
    )  # fmt: skip
