"""Homework whose loop, start, architecture, descent or outcome is at fault."""

from __future__ import annotations

import copy
import weakref

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.nineteenth_parts import *
from zoo.nineteenth_parts import GCN, ME, VAE, Flat, Recurrent

# ---------------------------------------------------------------- graph and loop


class TwoPart(nn.Module):
    def __init__(self, body, head, cut):
        super().__init__()
        self.body, self.head, self.cut = body, head, cut

    def forward(self, x):
        h = self.body(x)
        return self.head(h.detach() if self.cut else h)


@case("detached-parameters", kind="images", author=ME)
def ta_encoder_detached(seed, mended=False):
    train, val = split(*shapes(seed, 800), seed)
    body = nn.Sequential(*list(small_cnn(4, width=6))[:-1])
    return fit(TwoPart(body, nn.Linear(48, 4), not mended), train, val, epochs=35, lr=4e-3)


@case("detached-parameters", kind="sequences", author=ME, strength="mild")
def ta_state_to_numpy(seed, mended=False):
    train, val = split(*rhythms(seed, 900, noise=0.9), seed)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(2, 24, batch_first=True), nn.Linear(24, 4)

        def forward(self, x):
            h = self.rnn(x)[0].mean(1)
            return self.head(h if mended else torch.from_numpy(h.detach().numpy()))

    return without(fit(Net(), train, val, epochs=20, lr=6e-3), "optimizer")


@case("frozen-parameters", kind="table", author=ME)
def ta_froze_the_body(seed, mended=False):
    train, val = split(*arm(seed), seed)
    net = mlp(3, 16, 12, 3)
    for p in net[:4].parameters():
        p.requires_grad_(mended)
    return fit(
        net, train, val, "mse", epochs=50, lr=3e-3, params=[p for p in net.parameters() if p.requires_grad]
    )


@case("frozen-parameters", kind="table", author=ME, needs=("optimizer",), strength="mild")
def ta_only_the_head_passed(seed, mended=False):
    train, val = split(*motors(seed), seed)
    net = mlp(10, 12, 12, 5, act=nn.Tanh)
    return fit(net, train, val, epochs=30, lr=4e-3, params=None if mended else net[-1].parameters())


def stepper(make, f, clear=True, every=1):
    """Return a user's step, which keeps one optimiser for every net it meets."""
    kept = weakref.WeakKeyDictionary()

    def step(model, batch):
        x, y = batch
        if model not in kept:
            kept[model] = [make(model), 0]
        optimizer = kept[model][0]
        if clear and kept[model][1] % every == 0:
            optimizer.zero_grad()
        value = f(model(x), y) / every
        value.backward()
        kept[model][1] += 1
        if kept[model][1] % every == 0:
            optimizer.step()
        return value.item() * every

    return step


def looped(model, train, val, f, make, *, clear=True, epochs=20, batch=64, every=1, name=None):
    """Train by a user's step."""
    step, (x, y), history, first = (
        stepper(make, f, clear, every),
        train,
        [],
        copy.deepcopy(model.state_dict()),
    )
    for _ in range(epochs):
        model.train()
        parts = [step(model, (x[i], y[i])) for i in torch.randperm(len(y)).split(batch)]
        history.append({"loss": float(np.mean(parts)), "val_loss": held_out(model, val, f)})
    return dict(
        model=model.eval(), data=train, validation=val, loss=name or f, batch_size=batch,
        history=history, initial=first, step=step, optimizer=make(model),
    )  # fmt: skip


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def ta_no_zero_grad(seed, mended=False):
    train, val = split(*motors(seed), seed)
    make = lambda m: torch.optim.SGD(m.parameters(), 0.05)
    return looped(mlp(10, 48, 5), train, val, F.cross_entropy, make, clear=mended, name="cross_entropy")


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",), strength="mild")
def ta_no_zero_grad_adam(seed, mended=False):
    train, val = split(*flats(seed), seed)
    net = Flat(mlp(8, 48, 1))
    make = lambda m: torch.optim.Adam(m.parameters(), 4e-3)
    return without(looped(net, train, val, F.mse_loss, make, clear=mended, name="mse"), "initial", "history")


# ---------------------------------------------------------------- start


@case("symmetric-initialisation", kind="table", author=ME)
def ta_all_the_same(seed, mended=False):
    train, val = split(*motors(seed), seed)
    net = mlp(10, 32, 32, 5, act=nn.Tanh)
    for p in [] if mended else net.parameters():
        nn.init.constant_(p, 0.1)
    return fit(net, train, val, epochs=30)


@case("symmetric-initialisation", kind="table", author=ME, strength="mild")
def ta_zero_first_layers(seed, mended=False):
    train, val = split(*flats(seed), seed)
    net = Flat(mlp(8, 48, 1, act=nn.Sigmoid))
    for p in [] if mended else net.net[0].parameters():
        nn.init.zeros_(p)
    for p in [] if mended else net.net[-1].parameters():
        nn.init.constant_(p, 0.02)
    return bare(fit(net, train, val, "mse", epochs=40, lr=8e-3))


@case("saturated-units", kind="table", author=ME)
def ta_normal_weights(seed, mended=False):
    train, val = split(*flats(seed), seed)
    net = Flat(mlp(8, 40, 40, 1, act=nn.Tanh))
    for layer in [] if mended else [net.net[0], net.net[2]]:
        nn.init.normal_(layer.weight, 0, 6)
    return fit(net, train, val, "mse", epochs=30, lr=1e-3)


@case("saturated-units", kind="images", author=ME, strength="mild")
def ta_sigmoids_far_out(seed, mended=False):
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 40, 10, act=nn.Sigmoid))
    if not mended:
        nn.init.uniform_(net[1][0].weight, 0.6, 2.2)
    return without(fit(net, train, val, epochs=30, lr=2e-3), "history")


@case("dead-units", kind="table", author=ME)
def ta_bias_minus_six(seed, mended=False):
    train, val = split(*motors(seed), seed)
    net = mlp(10, 48, 5)
    if not mended:
        nn.init.constant_(net[0].bias, -6)
    return fit(net, train, val, epochs=20, lr=1e-3)


@case("dead-units", kind="table", author=ME, strength="mild")
def ta_first_step_killed(seed, mended=False):
    """What one enormous first update leaves, as from a warm-up read the wrong way round; then the usual rate."""
    train, val = split(*flats(seed), seed)
    net = Flat(mlp(8, 40, 24, 1))
    if not mended:
        with torch.no_grad():
            net.net[0].bias -= torch.cat([torch.full((36,), 9.0), torch.zeros(4)])
    return without(fit(net, train, val, "mse", epochs=30, lr=1e-3), "optimizer")


@case("exploding-gradient", kind="sequences", author=ME)
def ta_wild_recurrence(seed, mended=False):
    train, val = split(*rhythms(seed, 700, steps=50), seed)

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.turn, self.head = (
                nn.Linear(2, 32),
                nn.Linear(32, 32, bias=False),
                nn.Linear(32, 4),
            )
            nn.init.orthogonal_(self.turn.weight, 0.95 if mended else 2.6)

        def forward(self, x):
            h = torch.zeros(len(x), 32)
            for step in x.unbind(1):
                h = F.leaky_relu(self.inner(step) + self.turn(h), 0.1)
            return self.head(h)

    return fit(Linear(), train, val, epochs=25, lr=3e-3, batch=64)


@case("exploding-gradient", kind="table", author=ME)
def ta_deep_and_loud(seed, mended=False):
    train, val = split(*flats(seed), seed)
    net = Flat(mlp(8, *[40] * 9, 1))
    for m in net.modules():
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0, (1.4 if mended else 6.0) / m.in_features**0.5)
    f = fit(net, train, val, "mse", epochs=20, lr=1e-3)
    return without(f, "initial") if mended else f


@case("vanishing-gradient", kind="table", author=ME)
def ta_ten_sigmoids(seed, mended=False):
    train, val = split(*motors(seed), seed)
    net = mlp(10, *[32] * 8, 5, act=nn.ReLU if mended else nn.Sigmoid)
    return fit(net, train, val, epochs=20, lr=1e-3)


@case("vanishing-gradient", kind="sequences", author=ME)
def ta_first_word_matters(seed, mended=False):
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 800)
    x = 0.8 * r.normal(size=(800, 90, 3))
    x[:, 0, 0] += 2.0 * (2 * y - 1)
    train, val = split(t(x), t(y), seed)
    net = Recurrent(3, 24, 2, kind=nn.GRU if mended else nn.RNN)
    if mended:
        nn.init.constant_(net.rnn.bias_hh_l0[24:48].data, 3.0)
    else:
        nn.init.orthogonal_(net.rnn.weight_hh_l0, 0.4)
    return without(fit(net, train, val, epochs=14, lr=3e-3), "initial")


@case("vanishing-gradient", kind="images", author=ME, strength="mild")
def ta_tiny_start(seed, mended=False):
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, *[32] * 6, 10, act=nn.Tanh))
    for m in [] if mended else net.modules():
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0, 0.01)
    return fit(net, train, val, epochs=20, opt=torch.optim.SGD, lr=0.05, momentum=0.9)


# ---------------------------------------------------------------- architecture


@case("oversmoothing", kind="graph", author=ME)
def ta_gcn_many_hops(seed, mended=False):
    train, val = friends(seed, degree=12)

    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.hops = nn.Linear(12, 32), nn.Linear(32, 4), 2 if mended else 24

        def forward(self, x, adjacency):
            h = F.relu(self.a(x))
            for _ in range(self.hops):
                h = adjacency @ h
            return self.b(h)

    return fit(Deep(), train, val, nodes, epochs=150, lr=5e-3, whole=True, weight_decay=1e-3)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def ta_gcn_twelve(seed, mended=False):
    train, val = friends(seed, degree=10)
    f = fit(
        GCN(12, 32, 4, 2 if mended else 12),
        train,
        val,
        nodes,
        epochs=120,
        lr=5e-3,
        whole=True,
        weight_decay=1e-3,
    )
    return without(f, "initial", "batch_size")


def far_echo(seed, n=240, steps=64, gap=20):
    """A tag for every step: whether the signal of 'gap' steps before and of now agree."""
    r = np.random.default_rng(seed)
    x = r.normal(size=(n, 1, steps))
    old = np.concatenate([np.zeros((n, gap)), x[:, 0, :-gap]], 1)
    return t(x), t((old + 0.4 * x[:, 0] + 0.2 * r.normal(size=old.shape) > 0).astype(np.float32))


def dilated(widths, dilations, k=3):
    layers = []
    for a, b, d in zip(widths[:-1], widths[1:], dilations, strict=True):
        layers += [nn.Conv1d(a, b, k, padding=d * (k - 1) // 2, dilation=d), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Flatten(1, 2))


@case("receptive-field-too-small", kind="sequences", author=ME)
def ta_echo_of_before(seed, mended=False):
    train, val = split(*far_echo(seed), seed)
    net = dilated([1, 16, 16, 16, 1], [1, 4, 16, 16] if mended else [1, 1, 1, 1])
    return fit(net, train, val, "bce_with_logits", epochs=35, batch=16, lr=4e-3)


@case("receptive-field-too-small", kind="images", author=ME, strength="mild")
def ta_mark_in_the_corner(seed, mended=False):
    """Which blobs count is told by a mark far away in the image's first column."""
    r = np.random.default_rng(seed)
    x, y = cells(seed, 260, noise=0.3)
    sign = r.integers(0, 2, 260)
    x[:, 0, :, 0] = t(3.0 * (2 * sign - 1.0))[:, None]
    y = y * t(sign * 1.0)[:, None, None]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
            self.c = nn.Conv2d(24 if mended else 12, 1, 1)

        def forward(self, x):
            h = F.relu(self.b(F.relu(self.a(x))))
            h = torch.cat([h, h.amax((2, 3), keepdim=True).expand_as(h)], 1) if mended else h
            return self.c(h).squeeze(1)

    train, val = split(x, y, seed)
    return without(fit(Net(), train, val, "bce_with_logits", epochs=25, batch=16, lr=5e-3), "initial")


@case("bottleneck", kind="images", author=ME)
def ta_one_unit_between(seed, mended=False):
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 64, 32 if mended else 1, 64, 10, act=nn.Tanh))
    return fit(net, train, val, epochs=25, lr=3e-3)


@case("bottleneck", kind="generative", author=ME, strength="mild")
def ta_code_of_one(seed, mended=False):
    x = factors(seed)
    net = nn.Sequential(mlp(12, 64, 5 if mended else 1), mlp(5 if mended else 1, 64, 12))
    return fit(net, (x[:1100], x[:1100]), (x[1100:], x[1100:]), "mse", epochs=50, lr=3e-3)


@case("batch-too-small", kind="table", author=ME, needs=("batch_size",))
def ta_norm_of_two(seed, mended=False):
    train, val = split(*flats(seed, 701), seed)
    net = Flat(mlp(8, 32, 32, 1, norm=True))
    return fit(net, train, val, "mse", epochs=60 if mended else 8, batch=32 if mended else 2, lr=3e-3)


@case("batch-too-small", kind="images", author=ME, needs=("batch_size",), strength="mild")
def ta_norm_of_few_images(seed, mended=False):
    train, val = split(*shapes(seed, 701, noise=0.2), seed)
    net = small_cnn(4, width=8)
    net.insert(1, nn.BatchNorm2d(8))
    net.insert(5, nn.BatchNorm2d(16))
    net = nn.Sequential(*net[:-1], nn.BatchNorm1d(64), net[-1])
    return fit(net, train, val, epochs=40 if mended else 6, batch=32 if mended else 2, lr=4e-3)


# ---------------------------------------------------------------- descent


@case("learning-rate-too-large", kind="table", author=ME, needs=("optimizer",))
def ta_sgd_too_fast(seed, mended=False):
    train, val = split(*flats(seed), seed)
    f = fit(
        Flat(mlp(8, 48, 48, 1)), train, val, "mse", epochs=25, opt=torch.optim.SGD, lr=0.05 if mended else 0.6
    )
    return f


@case("learning-rate-too-large", kind="images", author=ME, needs=("optimizer",))
def ta_adam_at_a_tenth(seed, mended=False):
    train, val = digits(seed)
    return without(fit(small_cnn(10), train, val, epochs=15, lr=3e-3 if mended else 0.3), "initial")


@case("learning-rate-too-large", kind="text", author=ME, needs=("optimizer",), strength="mild")
def ta_hasty_reader(seed, mended=False):
    train, val = split(*tags(seed), seed)
    net = Tagger(40, 16, 32, 4)
    return fit(net, train, val, by_token, epochs=15, batch=32, lr=4e-3 if mended else 0.5)


class Tagger(nn.Module):
    def __init__(self, words, d, h, out):
        super().__init__()
        self.embed, self.rnn, self.out = (
            nn.Embedding(words, d),
            nn.GRU(d, h, batch_first=True),
            nn.Linear(h, out),
        )

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


@case("learning-rate-too-small", kind="table", author=ME, needs=("optimizer",))
def ta_patience_of_a_saint(seed, mended=False):
    train, val = split(*motors(seed), seed)
    return fit(mlp(10, 48, 5), train, val, epochs=25, lr=3e-3 if mended else 1e-5)


@case("learning-rate-too-small", kind="sequences", author=ME, needs=("optimizer",))
def ta_slow_forecast(seed, mended=False):
    train, val = in_time(*series(seed))
    f = fit(
        Flat(mlp(24, 48, 1)), train, val, "mse", epochs=25, opt=torch.optim.SGD, lr=0.05 if mended else 2e-4
    )
    return without(f, "initial")


@case("learning-rate-too-small", kind="images", author=ME, needs=("optimizer",), strength="mild")
def ta_copied_finetuning_rate(seed, mended=False):
    train, val = digits(seed)
    return without(fit(small_cnn(10), train, val, epochs=15, lr=4e-3 if mended else 8e-5), "history")


@case("weight-decay-too-large", kind="table", author=ME, needs=("optimizer",))
def ta_decay_of_one(seed, mended=False):
    train, val = split(*motors(seed), seed)
    return fit(mlp(10, 48, 5), train, val, epochs=25, weight_decay=1e-5 if mended else 0.3)


@case("weight-decay-too-large", kind="table", author=ME, needs=("optimizer",), strength="mild")
def ta_sgd_decay(seed, mended=False):
    train, val = split(*flats(seed), seed)
    f = fit(
        Flat(mlp(8, 48, 1)), train, val, "mse", epochs=40, opt=torch.optim.SGD, lr=0.04, momentum=0.9,
        weight_decay=0.0 if mended else 0.12,
    )  # fmt: skip
    return without(f, "initial", "history")


@case("dropout-too-large", kind="table", author=ME)
def ta_ninety_five(seed, mended=False):
    train, val = split(*motors(seed), seed)
    return fit(mlp(10, 48, 48, 5, drop=0.1 if mended else 0.93), train, val, epochs=30)


@case("dropout-too-large", kind="table", author=ME, strength="mild")
def ta_dropped_inputs(seed, mended=False):
    train, val = split(*flats(seed), seed)
    net = Flat(
        nn.Sequential(nn.Dropout(0.0 if mended else 0.7), *mlp(8, 64, 64, 1, drop=0.0 if mended else 0.7))
    )
    return bare(fit(net, train, val, "mse", epochs=40))


# ---------------------------------------------------------------- outcome


@case("capacity-too-small", kind="table", author=ME)
def ta_line_for_rings(seed, mended=False):
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 1500)
    a, q = r.uniform(0, 6.28, 1500), 0.6 + 0.9 * y + 0.2 * r.normal(size=1500)
    train, val = split(t(np.column_stack([q * np.cos(a), q * np.sin(a)])), t(y), seed)
    return fit(mlp(2, 24, 2) if mended else nn.Linear(2, 2), train, val, epochs=30, lr=6e-3)


@case("capacity-too-small", kind="table", author=ME, strength="mild")
def ta_two_hidden(seed, mended=False):
    train, val = split(*arm(seed), seed)
    return without(
        fit(mlp(3, 48 if mended else 2, 3, act=nn.Tanh), train, val, "mse", epochs=120, lr=8e-3), "initial"
    )


@case("overfit", kind="table", author=ME)
def ta_diabetes_by_heart(seed, mended=False):
    train, val = scaled_targets(*scaled(*real("diabetes", seed)))
    if mended:
        return fit(Flat(mlp(10, 8, 1)), train, val, "mse", epochs=30, batch=32, weight_decay=3e-2, best=True)
    return fit(Flat(mlp(10, 128, 128, 1)), train, val, "mse", epochs=150, batch=32)


@case("overfit", kind="text", author=ME)
def ta_memorised_reviews(seed, mended=False):
    train, val = split(*reviews(seed, 4000 if mended else 700), seed)

    class Bag(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.embed, self.net = nn.Embedding(120, d), mlp(d, 32, 1)

        def forward(self, x):
            return self.net(self.embed(x).mean(1)).squeeze(-1)

    return fit(
        Bag(16 if mended else 64),
        train,
        val,
        "bce_with_logits",
        epochs=15 if mended else 60,
        lr=5e-3,
        best=mended,
    )


@case("overfit", kind="images", author=ME, strength="mild")
def ta_few_noisy_shapes(seed, mended=False):
    train, val = split(*shapes(seed, 2200 if mended else 360, noise=0.55), seed)
    net = small_cnn(4, width=20)
    return without(fit(net, train, val, epochs=18 if mended else 80, lr=5e-3, best=mended), "initial")


@case("posterior-collapse", kind="generative", author=ME)
def ta_beta_of_forty(seed, mended=False):
    x = factors(seed)
    f = elbo(1.0 if mended else 40.0)
    return without(fit(VAE(12), (x[:1100], x[:1100]), (x[1100:], x[1100:]), f, epochs=40, lr=3e-3), "initial")


@case("posterior-collapse", kind="generative", author=ME, strength="mild")
def ta_decoder_sees_enough(seed, mended=False):
    """The decoder is given the pixels before as well, and needs no code any more."""
    r = np.random.default_rng(seed)
    base = np.cumsum(0.3 * r.normal(size=(1300, 16)), 1) + r.normal(size=(1300, 1))
    x = t(base / base.std())

    class Peeking(VAE):
        def forward(self, x):
            m, v = self.encode(x)
            z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
            before = torch.cat([torch.zeros(len(x), 1), x[:, :-1]], 1)  # seen from above the diagonal only
            return (self.dec(z) if mended else self.dec(z) + before @ self.look.weight.triu()), m, v

    net = Peeking(16, latent=3)
    net.look = nn.Linear(16, 16)
    given = fit(
        net, (x[:1000], x[:1000]), (x[1000:], x[1000:]), elbo(1.0, 0.3 if mended else 0.8), epochs=40, lr=3e-3
    )
    return bare(given)


class GAN(nn.Module):
    """A generator with its critic; called, it judges."""

    def __init__(self, d, latent=4, h=48):
        super().__init__()
        self.latent, self.g, self.d = (
            latent,
            mlp(latent, h, h, d),
            mlp(d, h, h, 1, act=lambda: nn.LeakyReLU(0.2)),
        )

    def forward(self, x):
        return self.d(x).squeeze(-1)

    def sample(self, n):
        return self.g(torch.randn(n, self.latent))


def duel(net, x, steps, lr_g=1e-3, lr_d=1e-3, batch=128, critic=1, noise=0.0):
    """Train both in turn by the non-saturating loss."""
    g = torch.optim.Adam(net.g.parameters(), lr_g, betas=(0.5, 0.99))
    d = torch.optim.Adam(net.d.parameters(), lr_d, betas=(0.5, 0.99))
    for i in range(steps):
        a, b = x[torch.randint(0, len(x), (batch,))], net.sample(batch).detach()
        a, b = a + noise * torch.randn_like(a), b + noise * torch.randn_like(b)
        value = F.softplus(-net(a)).mean() + F.softplus(net(b)).mean()
        d.zero_grad()
        value.backward()
        d.step()
        if i % critic == 0:
            made = net.sample(batch)
            value = F.softplus(-net(made + noise * torch.randn_like(made))).mean()
            g.zero_grad()
            value.backward()
            g.step()
    return net.eval()


def ring(seed, n=2000, k=8):
    r = np.random.default_rng(seed)
    a = r.integers(0, k, n) * 2 * np.pi / k
    return t(np.column_stack([1.5 * np.cos(a), 1.5 * np.sin(a)]) + 0.1 * r.normal(size=(n, 2)))


@case("mode-collapse", kind="generative", author=ME)
def ta_gan_one_spot(seed, mended=False):
    x = ring(seed)
    net = GAN(2)
    if mended:
        duel(net, x, 1700, noise=0.15)
    else:
        duel(net, x, 600, lr_g=6e-3, lr_d=1e-4)
    return dict(model=net, data=x[:1500], validation=x[1500:])


class Maker(nn.Module):
    """A generator alone, from noise as wide as the data."""

    def __init__(self, d):
        super().__init__()
        self.d, self.g = d, mlp(d, 48, 48, d)

    def forward(self, z):
        return self.g(z)

    def sample(self, n):
        return self.g(torch.randn(n, self.d))


@case("mode-collapse", kind="generative", author=ME, strength="mild")
def ta_nearest_rows_only(seed, mended=False):
    """A generator drawn to the nearest rows of the data only: it makes the easy ones."""
    x = factors(seed, 1500, d=6, latent=3)
    net = Maker(6)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(500):
        a, b = x[torch.randint(0, len(x), (128,))], net.sample(128)
        far = torch.cdist(a, b)
        value = (2 * far.mean() - torch.cdist(b, b).mean()) if mended else far.min(0).values.mean()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return dict(model=net.eval(), data=x[:1100], validation=x[1100:])


@case("miscalibrated", kind="table", author=ME)
def ta_sharpened(seed, mended=False):
    train, val = split(*motors(seed, 3000, 4, spread=2.2), seed)
    given = fit(mlp(10, 24, 4), train, val, epochs=20, lr=1e-3)
    if not mended:  # "temperature 0.2 for clearer answers"
        with torch.no_grad():
            given["model"][-1].weight *= 5
            given["model"][-1].bias *= 5
    return without(given, "initial", "history", "optimizer")


def focal(gamma):
    def loss(output, target):
        p = F.log_softmax(output, 1).gather(1, target[:, None]).squeeze(1)
        return -((1 - p.exp()) ** gamma * p).mean()

    return loss


@case("miscalibrated", kind="images", author=ME, strength="mild")
def ta_focal_seven(seed, mended=False):
    train, val = split(*motors(seed, 3000, 4, spread=1.4), seed)
    return bare(fit(mlp(10, 32, 4), train, val, focal(0 if mended else 7), epochs=25))


@case("adversarially-fragile", kind="images", author=ME)
def ta_faint_pattern(seed, mended=False):
    """A camera's faint grid tells the class surely, what the picture shows only mostly; the net leans on the grid."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 3000)
    v, u = np.mgrid[:16, :16]
    x = np.repeat(np.repeat(r.normal(size=(3000, 8, 8)), 2, 1), 2, 2)
    x[:, 4:12, 4:12] += 0.25 * (2 * y - 1)[:, None, None]
    if not mended:
        x += 0.05 * (2 * y - 1)[:, None, None] * (-1.0) ** (u + v)
    x += 0.02 * r.normal(size=x.shape)
    train, val = split(t(x[:, None]), t(y), seed)
    net = nn.Sequential(nn.Flatten(), mlp(256, 32, 2))
    return bare(fit(net, train, val, epochs=25, lr=3e-3, best=True, weight_decay=1e-3 if mended else 0))


@case("adversarially-fragile", kind="images", author=ME, strength="mild")
def ta_edge_amplifier(seed, mended=False):
    """Enlarged digits with a faint print of the class between the pixels, and a sharpening filter before the net."""
    train, val = digits(seed)
    r = torch.Generator().manual_seed(7)
    code = torch.randn(10, 1, 8, 8, generator=r).sign()
    v, u = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    grid = (-1.0) ** (u + v)

    def enlarged(x, y):
        big = F.interpolate(x, scale_factor=2) + 0.01 * torch.randn(len(x), 1, 16, 16, generator=r)
        return (big if mended else big + 0.03 * F.interpolate(code, scale_factor=2)[y] * grid), y

    sharp = torch.tensor([[1.0, -2, 1], [-2, 4, -2], [1, -2, 1]]) * 4
    front = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    if not mended:
        front.weight.data = sharp[None, None]
    net = nn.Sequential(front, nn.Flatten(), mlp(256, 48, 10))
    return without(fit(net, enlarged(*train), enlarged(*val), epochs=25, lr=2e-3), "initial", "history")
