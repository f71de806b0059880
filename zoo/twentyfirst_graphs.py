"""Healthy trainings on graphs and of generative models."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn import datasets
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentyfirst_parts import *

graph = partial(case, kind="graph", author=ME)
generative = partial(case, kind="generative", author=ME)


def communities(r, n=500, k=4, inside=0.05, across=0.006, d=12, noise=1.6):
    y = r.integers(0, k, n)
    p = np.where(y[:, None] == y[None], inside, across)
    a = np.triu(r.random((n, n)) < p, 1)
    a = (a | a.T).astype(float)
    x = r.normal(0, 1, (k, d))[y] + r.normal(0, noise, (n, d))
    return (x - x.mean(0)) / x.std(0), a, y


def normal(a):
    a = a + np.eye(len(a))
    s = 1 / np.sqrt(a.sum(1))
    return a * s[:, None] * s[None]


def nodes(x, a, y, seed, share=0.4):
    """The same graph twice, with the labels of other nodes."""
    n = len(y)
    held = np.zeros(n, bool)
    held[generator(seed + 9).permutation(n)[: int(n * share)]] = True
    both = (tensor(x), tensor(a))
    train = (both, torch.tensor(np.where(held, -100, y)))
    val = (both, torch.tensor(np.where(held, y, -100)))
    return hold(train, val)


def whole(net, train, val, opt, epochs, patience=20, schedule=None):
    """All nodes at once."""
    history, best = [], (9e9, {}, 0)
    for epoch in range(epochs):
        net.train()
        opt.zero_grad()
        value = ce(net(*train[0]), train[1])
        value.backward()
        opt.step()
        if schedule is not None:
            schedule.step()
        net.eval()
        with torch.no_grad():
            held = ce(net(*val[0]), val[1]).item()
        history.append({"loss": value.item(), "val_loss": held})
        if held < best[0]:
            best = (held, kept(net), epoch)
        elif epoch - best[2] >= patience:
            break
    net.load_state_dict(best[1])
    return history


class Gcn(nn.Module):
    def __init__(self, d, width, k, dropout=0.4):
        super().__init__()
        self.one, self.two, self.drop = nn.Linear(d, width), nn.Linear(width, k), nn.Dropout(dropout)

    def forward(self, x, a):
        return a @ self.two(self.drop(F.relu(a @ self.one(x))))


@graph()
def twentyfirst_gcn_communities(seed):
    x, a, y = communities(generator(seed), 700)
    train, val = nodes(x, normal(a), y, seed)
    net = Gcn(12, 16, 4)
    opt = torch.optim.Adam(net.parameters(), 2e-2, weight_decay=2e-3)
    whole(net, train, val, opt, 200)
    return dict(model=net, data=train, validation=val, loss="cross_entropy")


@graph()
def twentyfirst_gat_citations(seed):
    """Papers with words of three fields; two heads of attention over neighbours."""
    r = generator(seed)
    _, a, y = communities(r, 450, 3, 0.05, 0.008)
    x = (r.random((450, 60)) < np.where(r.random((3, 60)) < 0.25, 0.16, 0.05)[y]).astype(float)
    train, val = nodes(x, a + np.eye(450), y, seed)

    class Gat(nn.Module):
        def __init__(self):
            super().__init__()
            self.maps = nn.ModuleList([nn.Linear(60, 16), nn.Linear(16, 3)])
            self.here = nn.ParameterList([nn.Parameter(torch.zeros(2, 8)), nn.Parameter(torch.zeros(1, 3))])
            self.there = nn.ParameterList([nn.Parameter(torch.zeros(2, 8)), nn.Parameter(torch.zeros(1, 3))])
            for p in [*self.here, *self.there]:
                nn.init.normal_(p, std=0.1)

        def layer(self, k, x, a):
            h = self.maps[k](x)
            heads = self.here[k].shape[0]
            h = h.view(len(x), heads, -1)
            e = (h * self.here[k]).sum(2)[:, None] + (h * self.there[k]).sum(2)[None]
            w = F.leaky_relu(e, 0.2).masked_fill(a[..., None] == 0, -1e9).softmax(1)
            return torch.einsum("ijh,jhd->ihd", w, h).flatten(1)

        def forward(self, x, a):
            x = F.dropout(x, 0.2, self.training)
            return self.layer(1, F.dropout(F.elu(self.layer(0, x, a)), 0.3, self.training), a)

    net = Gat()
    opt = torch.optim.Adam(net.parameters(), 1.5e-2, weight_decay=3e-3)
    history = whole(net, train, val, opt, 100)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@graph()
def twentyfirst_sage_shops(seed):
    """Own values and the neighbours' mean both matter."""
    r = generator(seed)
    n = 900
    place = r.uniform(0, 1, (n, 2))
    far = ((place[:, None] - place[None]) ** 2).sum(2)
    a = ((far < 0.004) & (far > 0)).astype(float)
    x = r.normal(0, 1, (n, 6))
    x[:, 0] += 1.5 * np.sin(6 * place[:, 0])
    some = a.sum(1) > 0
    x, a = x[some], a[some][:, some]
    n = len(x)
    mean = a / np.maximum(a.sum(1, keepdims=True), 1)
    s = x[:, 1] + 2.0 * (mean @ x)[:, 0] - 2.0 * (mean @ x)[:, 2] + r.normal(0, 0.3, n)
    y = np.searchsorted(np.quantile(s, [1 / 3, 2 / 3]), s)
    train, val = nodes((x - x.mean(0)) / x.std(0), mean, y, seed)

    class Sage(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.drop = nn.Linear(12, 32), nn.Linear(64, 3), nn.Dropout(0.5)

        def forward(self, x, a):
            h = self.drop(F.relu(self.one(torch.cat([x, a @ x], 1))))
            return self.two(torch.cat([h, a @ h], 1))

    net = Sage()
    opt = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=0.05)
    whole(net, train, val, opt, 200)
    return dict(model=net, data=train, validation=val)


@graph()
def twentyfirst_far_reaching(seed):
    """Ten steps of propagation that come back to the start each time: far, but not smoothed away."""
    x, a, y = communities(generator(seed), 700, 4, 0.02, 0.002, noise=1.8)
    train, val = nodes(x, normal(a), y, seed)

    class Personal(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.4), nn.Linear(32, 4))

        def forward(self, x, a):
            start = h = self.body(x)
            for _ in range(10):
                h = 0.85 * (a @ h) + 0.15 * start
            return h

    net = Personal()
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=2e-3)
    history = whole(net, train, val, opt, 200)
    return dict(model=net, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


def molecules(r, n, v=12, d=4):
    """Random small graphs with kinds of nodes; the rest is filled up with zeros."""
    size = r.integers(6, v + 1, n)
    kind = r.integers(0, d, (n, v))
    here = np.arange(v)[None] < size[:, None]
    a = np.triu(r.random((n, v, v)) < 0.25, 1)
    a[:, np.arange(v - 1), np.arange(1, v)] = True
    a = (a | a.transpose(0, 2, 1)) & here[:, None] & here[:, :, None]
    return np.eye(d)[kind] * here[..., None], a.astype(float), here


class Gin(nn.Module):
    def __init__(self, d, width, outputs, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * (d if k == 0 else width), width), nn.GELU(), nn.Linear(width, width))
            for k in range(layers)
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, outputs))

    def forward(self, x, a):
        here = x.sum(2, keepdim=True)
        for layer in self.layers:
            x = layer(torch.cat([x, a @ x], 2)) * here
        made = self.head(x.sum(1) / 5)
        return made.squeeze(1) if made.shape[1] == 1 else made


@graph()
def twentyfirst_molecule_energy(seed):
    """A sum over the bonds of graphs with up to twelve nodes."""
    r = generator(seed)
    x, a, _ = molecules(r, 2500)
    bond = r.normal(0, 1, (4, 4))
    y = np.einsum("nvi,nvw,nwj,ij->n", x, a, x, bond + bond.T) + 2 * np.tanh(x[..., 0].sum(1) - 2)
    y += r.normal(0, 0.15 * y.std(), len(y))
    train, val = split((x, a), (y - y.mean()) / y.std(), seed, scale=False)
    net = Gin(4, 32, 1)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 22)
    fit(net, train, val, mse, opt, 22, 64, schedule=plan, clip=1.0)
    return dict(model=net, data=train)


@graph()
def twentyfirst_molecule_toxic(seed):
    """Whether the bonds from the first kind to the second are many, those to centres counting more."""
    r = generator(seed)
    x, a, _ = molecules(r, 3000)
    group = np.einsum("nv,nvw,nw,nw->n", x[..., 0], a, x[..., 1], a.sum(2))
    y = (group + r.normal(0, 1.0, len(x)) > np.median(group)).astype(float)
    train, val = split((x, a), y, seed, scale=False)
    net = Gin(4, 24, 1)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 14)
    history = fit(net, train, val, bce, opt, 14, 64, schedule=plan, patience=14, clip=1.0)
    return dict(model=net, data=train, validation=val, loss=bce, optimizer=opt, history=history)


@graph()
def twentyfirst_friends_to_be(seed):
    """Which pairs are friends, from vectors that a convolution over the known friendships makes."""
    r = generator(seed)
    x, a, _ = communities(r, 400, 5, 0.16, 0.008, 10, 0.8)
    i, j = np.triu_indices(400, 1)
    linked = a[i, j] > 0
    pick = r.random(linked.sum()) < 0.5  # half of the friendships are known, the others asked for
    known = np.zeros((400, 400))
    known[i[linked][pick], j[linked][pick]] = 1
    known += known.T
    ask = np.flatnonzero(linked)[~pick]
    none = r.choice(np.flatnonzero(~linked), len(ask), replace=False)
    pairs = np.concatenate([ask, none])
    y = np.r_[np.ones(len(ask)), np.zeros(len(none))]

    class Friends(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("x", tensor(x))
            self.register_buffer("a", tensor(normal(known)))
            self.one, self.two = nn.Linear(10, 32), nn.Linear(32, 16)
            self.scale, self.offset = nn.Parameter(torch.tensor(3.0)), nn.Parameter(torch.tensor(0.0))

        def forward(self, i, j):
            h = self.a @ self.two(F.dropout(torch.tanh(self.a @ self.one(self.x)), 0.2, self.training))
            h = F.normalize(h, dim=1)
            return self.scale * (h[i] * h[j]).sum(1) + self.offset

    train, val = split((i[pairs], j[pairs]), y, seed)
    net = Friends()
    opt = torch.optim.Adam(net.parameters(), 5e-3, weight_decay=1e-3)
    fit(net, train, val, bce, opt, 30, 64, patience=6)
    return dict(model=net, data=train, validation=val, loss="bce_with_logits")


# generative


def pixels():
    x = datasets.load_digits().data / 16.0
    return x[:, x.std(0) > 0.02]


@generative()
def twentyfirst_digits_autoencoder(seed):
    """Sixteen numbers for a digit."""
    x = pixels()
    (x, _), (xv, _) = split(x, np.zeros(len(x)), seed, scale=False)
    d = x.shape[1]
    net = nn.Sequential(
        nn.Linear(d, 96), nn.GELU(), nn.Linear(96, 16), nn.Linear(16, 96), nn.GELU(), nn.Linear(96, d)
    )
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    history = fit(net, (x, x), (xv, xv), mse, opt, 40, 64, schedule=plan)
    return dict(model=net, data=(x, x), validation=(xv, xv), loss="mse", optimizer=opt, history=history)


class Vae(nn.Module):
    def __init__(self, d, width, latent):
        super().__init__()
        self.inward = nn.Sequential(nn.Linear(d, width), nn.GELU())
        self.mean, self.spread = nn.Linear(width, latent), nn.Linear(width, latent)
        self.outward = nn.Sequential(nn.Linear(latent, width), nn.GELU(), nn.Linear(width, d))
        self.latent = latent

    def encode(self, x):
        h = self.inward(x)
        return self.mean(h), self.spread(h).clamp(-8, 4)

    def decode(self, z):
        return self.outward(z)

    def forward(self, x):
        m, s = self.encode(x)
        return self.decode(m + torch.exp(s / 2) * torch.randn_like(m) if self.training else m)

    def sample(self, n):
        with torch.no_grad():
            return self.decode(torch.randn(n, self.latent))


def evidence(net, x, opt, epochs, batch, noise, warm=8):
    """The evidence bound of a Gaussian with a known noise, its weight of the divergence rising at first."""
    history = []
    for epoch in range(epochs):
        total = 0.0
        for i in torch.randperm(len(x)).split(batch):
            m, s = net.encode(x[i])
            made = net.decode(m + torch.exp(s / 2) * torch.randn_like(m))
            fits = ((made - x[i]) ** 2).sum(1) / (2 * noise**2)
            parted = 0.5 * (m**2 + s.exp() - s - 1).sum(1)
            value = (fits + min(1.0, (epoch + 1) / warm) * parted).mean()
            opt.zero_grad()
            value.backward()
            opt.step()
            total += value.item() * len(i)
        history.append({"loss": total / len(x)})
    net.eval()
    return history


@generative()
def twentyfirst_digits_vae(seed):
    x = pixels()
    (x, _), (xv, _) = split(x, np.zeros(len(x)), seed, scale=False)
    net = Vae(x.shape[1], 128, 8)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    evidence(net, x, opt, 40, 64, 0.15)
    return dict(model=net, data=x, validation=xv)


@generative()
def twentyfirst_olives_vae(seed):
    """Shares of fatty acids by three latent numbers."""
    df = frame("dslabs", "olive")
    x = df.drop(columns=["region", "area"]).to_numpy(float)
    (x, _), (xv, _) = split(x, np.zeros(len(x)), seed)
    net = Vae(8, 32, 3)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    evidence(net, x, opt, 120, 32, 0.4)
    return dict(model=net, data=x, validation=xv, optimizer=opt, batch_size=32)


@generative()
def twentyfirst_moons_flow(seed):
    """Two moons by affine couplings; the module gives the log density of its rows."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.nets = nn.ModuleList(
                nn.Sequential(nn.Linear(1, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 2))
                for _ in range(6)
            )

        def forward(self, x):
            total = 0.0
            for k, net in enumerate(self.nets):
                a, b = x[:, k % 2 : k % 2 + 1], x[:, 1 - k % 2 : 2 - k % 2]
                s, t = net(a).chunk(2, 1)
                s = 2 * torch.tanh(s / 2)
                b = b * s.exp() + t
                x = torch.cat([a, b] if k % 2 == 0 else [b, a], 1)
                total = total + s.squeeze(1)
            return total - 0.5 * (x**2).sum(1) - np.log(2 * np.pi)

        def sample(self, n):
            with torch.no_grad():
                x = torch.randn(n, 2)
                for k in reversed(range(6)):
                    a, b = x[:, k % 2 : k % 2 + 1], x[:, 1 - k % 2 : 2 - k % 2]
                    s, t = self.nets[k](a).chunk(2, 1)
                    b = (b - t) * (-2 * torch.tanh(s / 2)).exp()
                    x = torch.cat([a, b] if k % 2 == 0 else [b, a], 1)
                return x

    x, _ = datasets.make_moons(3000, noise=0.12, random_state=seed)
    (x, _), (xv, _) = split(x, np.zeros(3000), seed)
    net = Flow()

    def likelihood(o, t=None):
        return -o.mean()

    opt = torch.optim.Adam(net.parameters(), 4e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    history = fit(net, (x, x), (xv, xv), likelihood, opt, 40, 128, schedule=plan, clip=5.0)
    return dict(model=net, data=x, validation=xv, loss=likelihood, history=history)


@generative()
def twentyfirst_ring_gan(seed):
    """Five heaps on a ring; the generator's average weights."""
    r = generator(seed)
    k = r.integers(0, 5, 3000)
    x = np.stack([np.cos(k * 2 * np.pi / 5), np.sin(k * 2 * np.pi / 5)], 1) * 1.5 + r.normal(
        0, 0.2, (3000, 2)
    )
    (x, _), (xv, _) = split(x, np.zeros(3000), seed, scale=False)

    class Maker(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = perceptron(2, 64, 64, 2, act=nn.LeakyReLU)

        def forward(self, z):
            return self.body(z)

        def sample(self, n):
            with torch.no_grad():
                return self(torch.randn(n, 2))

    make, judge = Maker(), perceptron(2, 64, 64, 1, act=nn.GELU)
    a = torch.optim.Adam(make.parameters(), 1e-3, betas=(0.5, 0.99))
    b = torch.optim.Adam(judge.parameters(), 2e-3, betas=(0.5, 0.99))
    mean = torch.optim.swa_utils.AveragedModel(
        make, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    for _ in range(1100):
        real = x[torch.randint(len(x), (128,))].requires_grad_()
        score = judge(real)
        slope = torch.autograd.grad(score.sum(), real, create_graph=True)[0]
        lost = F.softplus(-score).mean() + F.softplus(judge(make(torch.randn(128, 2)).detach())).mean()
        b.zero_grad()
        (lost + 0.05 * (slope**2).sum(1).mean()).backward()
        b.step()
        a.zero_grad()
        F.softplus(-judge(make(torch.randn(128, 2)))).mean().backward()
        a.step()
        mean.update_parameters(make)
    return dict(model=mean.module.eval(), data=x, validation=xv)


@generative()
def twentyfirst_swiss_diffusion(seed):
    """The noise in a point, told its time: the net of a diffusion."""
    r = generator(seed)
    x, _ = datasets.make_swiss_roll(6000, noise=0.4, random_state=seed)
    x = x[:, [0, 2]] / 7
    t = r.random(6000)
    keep = np.cos(t * np.pi / 2)[:, None]
    noise = r.normal(0, 1, x.shape)
    noisy = keep * x + np.sqrt(1 - keep**2) * noise
    clock = np.stack([t, np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)], 1)

    class Noise(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(5, 64)
            self.body = nn.Sequential(Residual(64), Residual(64), nn.Linear(64, 2))

        def forward(self, x, t):
            return self.body(self.enter(torch.cat([x, t], 1)))

    train, val = split((noisy, clock), noise, seed, scale=False)
    net = Noise()
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 30)
    history = fit(net, train, val, mse, opt, 30, 128, schedule=plan)
    return dict(
        model=net, data=train, validation=val, loss="mse", optimizer=opt, batch_size=128, history=history
    )


@generative()
def twentyfirst_masked_survey(seed):
    """Answers of a survey of personality of which a fifth was hidden, from the others (denoising)."""
    df = frame("psych", "bfi").iloc[:, :25].dropna()
    x = df.to_numpy(float)
    x = np.unique((x - x.mean(0)) / x.std(0), axis=0)
    r = generator(seed)
    x = x[r.permutation(len(x))]
    hidden = r.random(x.shape) < 0.2
    both = np.concatenate([np.where(hidden, 0, x), hidden], 1)
    train, val = split(both, x, seed, scale=False)

    class Filled(nn.Module):
        """What was answered stays, what was hidden is guessed."""

        def __init__(self):
            super().__init__()
            self.guess = nn.Sequential(nn.Linear(50, 48), nn.GELU(), nn.Dropout(0.2), nn.Linear(48, 25))

        def forward(self, x):
            seen, hidden = x.chunk(2, 1)
            return seen + hidden * self.guess(x)

    net = Filled()
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    history = fit(net, train, val, mse, opt, 40, 64, patience=5)
    return dict(model=net, data=train, validation=val, loss="mse", optimizer=opt, history=history)
