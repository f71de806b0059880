"""A harbour in good order, its messages, lanes and generators: healthy set-ups."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.eighteenth_parts import *

ME = "eighteenth"


def healthy(kind):
    return case(kind=kind, author=ME)


# --- text ------------------------------------------------------------------------------------------------------------


@healthy("text")
def k_messages_as_bags(seed):
    return fit(Bag(drop=0.5, width=16), *radio(seed, n=2400), epochs=14, lr=1e-2)


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(60, 12, padding_idx=0)
        self.look, self.answer = nn.Conv1d(12, 24, 3, padding=1), nn.Linear(24, 3)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.answer(self.drop(self.look(self.words(x).transpose(1, 2)).relu().mean(2)))


@healthy("text")
def k_messages_through_windows(seed):
    return fit(Windows(), *radio(seed, n=4000, own=0.5), epochs=7, lr=5e-3, tell=("batch_size", "history"))


class Speller(nn.Module):
    """Guesses the next letter; letters are read and written by the same vectors."""

    def __init__(self, letters=14, width=24):
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        nn.init.normal_(self.letters.weight, std=0.3)
        self.cell, self.bias = nn.GRU(width, width, batch_first=True), nn.Parameter(torch.zeros(letters))

    def forward(self, x):
        return F.linear(self.cell(self.letters(x))[0], self.letters.weight, self.bias)


@healthy("text")
def k_call_signs_letter_by_letter(seed):
    r = rng(seed, 106)
    table = rng(seed, 107).dirichlet(0.3 * np.ones(14), size=14).cumsum(1)
    x = np.zeros((1300, 21), int)
    x[:, 0] = r.integers(14, size=1300)
    for t in range(20):
        x[:, t + 1] = np.minimum((r.random(1300)[:, None] > table[x[:, t]]).sum(1), 13)
    x = whole(x)
    return fit(Speller(), *cut(x[:, :-1], x[:, 1:]), epochs=16, lr=1e-2, cosine=True)


@healthy("text")
def k_hashed_words_counted(seed):
    """Counts of words, mostly noughts, in a small net."""
    parts = [
        (torch.stack([torch.bincount(m[m > 0], minlength=60) for m in x]).float()[:, 1:], y)
        for x, y in radio(seed, n=3000)
    ]
    return fit(mlp(59, 24, 3), *parts, epochs=10, lr=5e-3, wd=0.05)


# --- graphs ----------------------------------------------------------------------------------------------------------


@healthy("graph")
def k_coasts_two_layers(seed):
    x, a, y = lanes(seed, n=400)
    known, rest = masked(y)
    return fit(Coast(), ((x, a), known), ((x, a), rest), epochs=120, lr=1e-2, wd=0.05, full=True)


class Sampled(nn.Module):
    """A port's own features and the mean of a few sampled neighbours' (drawn once, beforehand)."""

    def __init__(self):
        super().__init__()
        self.own, self.near, self.answer = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, neighbours):
        return self.answer((self.own(x) + self.near(neighbours.mean(1))).relu())


@healthy("graph")
def k_ports_and_sampled_neighbours(seed):
    x, a, y = lanes(seed, n=1500, within=0.02, across=0.0015)
    r = rng(seed, 108)
    near = np.stack([r.choice(np.flatnonzero(row), 6) for row in a.numpy()])
    return fit(Sampled(), *cut((x, x[near]), y), epochs=12, lr=8e-3, wd=0.2)


class Passed(nn.Module):
    """Messages along the edges of many small graphs, added up with index_add; the answer from the sum of all."""

    def __init__(self, sources, targets):
        super().__init__()
        self.sources, self.targets = sources, targets
        self.say, self.hear, self.answer = nn.Linear(3, 16), nn.Linear(19, 16), nn.Linear(16, 1)

    def forward(self, x):
        said = self.say(x).relu()[:, self.sources]
        heard = x.new_zeros(len(x), x.shape[1], 16).index_add(1, self.targets, said)
        return self.answer(self.hear(torch.cat([x, heard], 2)).relu().mean(1))


@healthy("graph")
def k_messages_round_the_ring(seed):
    """Eight quays in a ring; jams where two neighbours are both full."""
    r = rng(seed, 109)
    x = r.normal(size=(1800, 8, 3))
    y = (
        np.tanh(x[..., 0] + np.roll(x[..., 0], 1, 1)).sum(1)
        + 0.5 * x[..., 1].sum(1)
        + 0.4 * r.normal(size=1800)
    )
    y = (y - y.mean()) / y.std()
    i = torch.arange(8)
    net = Passed(torch.cat([i, i]), torch.cat([(i + 1) % 8, (i - 1) % 8]))
    return fit(net, *cut(real(x), real(y)[:, None]), "mse", epochs=20, lr=5e-3, cosine=True)


class SmallGraphs(nn.Module):
    """Two rounds over a dense adjacency of each small graph."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.answer = nn.Linear(2, 24), nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x, adjacency):
        h = (adjacency @ self.a(x)).relu()
        return self.answer((adjacency @ self.b(h)).relu().mean(1))


@healthy("graph")
def k_networks_dense_or_loose(seed):
    r = rng(seed, 110)
    n = 2000
    y = r.integers(2, size=n)
    a = np.triu(r.random((n, 9, 9)) < np.where(y, 0.5, 0.3)[:, None, None], 1).astype(float)
    a = a + a.transpose(0, 2, 1)
    x = np.stack([np.ones((n, 9)), r.normal(size=(n, 9))], 2)
    return fit(SmallGraphs(), *cut((real(x), real(a / 3)), whole(y)), epochs=40, lr=5e-3, cosine=True)


# --- generative ------------------------------------------------------------------------------------------------------


@healthy("generative")
def k_tides_in_two_numbers(seed):
    return fit(Tide(width=48), *cut(soundings(seed)), elbo(0.05), epochs=40, lr=4e-3)


@healthy("generative")
def k_tides_four_codes_needed(seed):
    """Four hidden causes, each of them needed."""
    r = rng(seed, 111)
    x = r.normal(size=(1500, 4)) @ np.linalg.qr(r.normal(size=(10, 4)))[0].T * 1.5 + 0.15 * r.normal(
        size=(1500, 10)
    )
    return fit(Tide(code=4, width=48), *cut(real(x)), elbo(0.05), epochs=40, lr=4e-3, tell=("optimizer",))


@healthy("generative")
def k_narrow_code_for_flat_data(seed):
    """An auto-encoder of two numbers: the data have no more."""
    train, valid = cut(soundings(seed))
    net = mlp(10, 32, 2, 32, 10, act=nn.Tanh)
    return fit(net, (train, train), (valid, valid), "mse", epochs=60, lr=8e-3, cosine=True)


@healthy("generative")
def k_linear_code(seed):
    """A linear auto-encoder: principal components by descent."""
    r = rng(seed, 112)
    x = r.normal(size=(1200, 3)) @ r.normal(size=(3, 9)) + 0.2 * r.normal(size=(1200, 9))
    x = (x - x.mean(0)) / x.std(0)
    train, valid = cut(real(x))
    net = nn.Sequential(nn.Linear(9, 3, bias=False), nn.Linear(3, 9, bias=False))
    return fit(net, (train, train), (valid, valid), "mse", epochs=40, lr=8e-3, cosine=True)


@healthy("generative")
def k_denoised_soundings(seed):
    clean = soundings(seed, n=3000)
    noisy = clean + 0.5 * torch.randn_like(clean)
    return fit(mlp(10, 48, 10), *cut(noisy, clean), "mse", epochs=60, lr=5e-3, cosine=True)


class Pilots(Quay):
    """A generator whose noise has two real numbers and a choice of one of four pilots."""

    def __init__(self):
        super().__init__(noise=6)

    def sample(self, n):
        return self(torch.cat([torch.randn(n, 2), F.one_hot(torch.randint(4, (n,)), 4).float()], 1))


@healthy("generative")
def k_quay_by_energy_distance(seed):
    x, net = berths(seed, spread=0.25), Pilots()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 900)
    for _ in range(900):
        optimizer.zero_grad()
        energy_distance(net.sample(192), x[torch.randint(len(x), (192,))]).backward()
        optimizer.step()
        schedule.step()
    return {"model": net.eval(), "data": x}


class Shifted(nn.Module):
    """Half of the numbers shift and stretch the other half; the output is each row's log-density."""

    def __init__(self, layers=6):
        super().__init__()
        self.nets = nn.ModuleList(mlp(1, 24, 2, act=nn.Tanh) for _ in range(layers))

    def forward(self, x):
        z, log_det = x, 0.0
        for net in self.nets:
            a, b = z[:, :1], z[:, 1:]
            s, t = net(a).chunk(2, 1)
            s = 2 * torch.tanh(s / 2)
            z, log_det = torch.cat([b * s.exp() + t, a], 1), log_det + s[:, 0]
        return -0.5 * (z**2).sum(1) - math.log(2 * math.pi) + log_det

    def sample(self, n):
        z = torch.randn(n, 2)
        for net in reversed(self.nets):
            b, a = z[:, :1], z[:, 1:]
            s, t = net(a).chunk(2, 1)
            z = torch.cat([a, (b - t) * (-2 * torch.tanh(s / 2)).exp()], 1)
        return z


@healthy("generative")
def k_flow_along_the_bend(seed):
    r = rng(seed, 113)
    a = r.normal(size=2500)
    x = real(np.c_[a, 0.5 * a**2 - 0.5 + 0.3 * r.normal(size=2500)])
    return fit(Shifted(), *cut(x), lambda o, _: -o.mean(), epochs=25, lr=5e-3, cosine=True)


class Unmixing(nn.Module):
    """Says which noise was added to a place, at a strength that it is told."""

    def __init__(self):
        super().__init__()
        self.net = mlp(3, 64, 64, 2, act=nn.SiLU)

    def forward(self, x, level):
        return self.net(torch.cat([x, level], 1))


@healthy("generative")
def k_noise_guessed_at_every_level(seed):
    x = berths(seed, n=6000)
    level, noise = torch.rand(6000, 1), torch.randn(6000, 2)
    mixed = (1 - level**2).sqrt() * x + level * noise
    return fit(Unmixing(), *cut((mixed, level), noise), "mse", epochs=25, lr=8e-3, batch=128, cosine=True)


@healthy("generative")
def k_two_players_two_berths(seed):
    """A generator and a critic that ends undecided; both berths are served."""
    x = berths(seed, modes=2, spread=0.2)
    net, critic = Quay(noise=3, width=32), mlp(2, 32, 32, 1, act=lambda: nn.LeakyReLU(0.2))
    g = torch.optim.Adam(net.parameters(), lr=1e-3, betas=(0.5, 0.9))
    d = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    mean = [p.detach().clone() for p in net.parameters()]
    for _ in range(500):
        a, b = x[torch.randint(len(x), (128,))], net.sample(128)
        a = a.clone().requires_grad_()
        scores = critic(a)
        slope = torch.autograd.grad(scores.sum(), a, create_graph=True)[0].square().sum(1).mean()
        d.zero_grad()
        (F.softplus(-scores).mean() + F.softplus(critic(b.detach())).mean() + 0.3 * slope).backward()
        d.step()
        g.zero_grad()
        F.softplus(-critic(b)).mean().backward()
        g.step()
        for m, p in zip(mean, net.parameters()):
            m.lerp_(p.detach(), 0.02)
    with torch.no_grad():
        for m, p in zip(mean, net.parameters()):
            p.copy_(m)
    return {"model": net.eval(), "data": x, "optimizer": g, "batch_size": 128}
