"""Faults of the graph, the loop, the start, the architecture, the descent and the outcome."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentythird_faults import flat
from zoo.twentythird_healthy_signals import Bag, Sampler, match
from zoo.twentythird_parts import *
from zoo.twentythird_parts import ME


class Cut(nn.Module):
    """An encoder and a head; the features are passed on by value."""

    def __init__(self, encoder, head, cut):
        super().__init__()
        self.encoder, self.head, self.cut = encoder, head, cut

    def forward(self, x):
        h = self.encoder(x)
        return self.head(h.detach() if self.cut else h)


@case("detached-parameters", kind="images", author=ME)
def tw3_features_by_value(seed, mended=False):
    encoder = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )  # fmt: skip
    parts = ready(*figures(seed, n=1200), seed, scale=False)
    return fitted(Cut(encoder, nn.Linear(32, 4), not mended), parts, epochs=14, batch=32, lr=5e-3)


@case("detached-parameters", kind="table", author=ME, strength="mild")
def tw3_hidden_data(seed, mended=False):
    net = Cut(mlp(10, 12, 12, act=nn.Tanh), mlp(12, 16, 3), not mended)
    return only(fitted(net, standard(ready(*plant(seed), seed)), "mse", epochs=25), "validation", "loss")


@case("frozen-parameters", kind="text", author=ME)
def tw3_untrained_lstm_frozen(seed, mended=False):
    net = Recurrent(8, 12, 4, cell=nn.LSTM, words=17)
    if not mended:
        net.embed.requires_grad_(False)
        net.cell.requires_grad_(False)
    return fitted(net, ready(*names(seed, n=3000), seed), epochs=14, lr=1e-2)


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def tw3_zero_grad_forgotten(seed, mended=False):
    def step(net, batch):
        if not hasattr(net, "its"):
            net.its = torch.optim.SGD(net.parameters(), 0.02)
        x, y = batch
        if mended:
            net.its.zero_grad()
        value = F.cross_entropy(net(x), y)
        value.backward()
        net.its.step()
        return value.item()

    data, held = ready(*soil(seed), seed)
    net = mlp(9, 32, 32, 5)
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    history = []
    for _ in range(25):
        total = [step(net, (data[0][rows], data[1][rows])) for rows in torch.randperm(len(data[1])).split(32)]
        history.append({"loss": float(np.mean(total))})
    optimizer = net.__dict__.pop("its")
    for p in net.parameters():
        p.grad = None
    return {
        "model": net.eval(), "data": data, "validation": held, "loss": "cross_entropy", "batch_size": 32,
        "history": history, "initial": initial, "optimizer": optimizer, "step": step,
    }  # fmt: skip


@case("symmetric-initialisation", kind="table", author=ME)
def tw3_all_weights_alike(seed, mended=False):
    net = flat(5, 32, 32, 1, act=nn.Tanh)
    if not mended:
        for p in net.parameters():
            nn.init.constant_(p, 0.1)
    parts = ready(*rings(seed, dims=5), seed)
    return fitted(net, parts, "bce_with_logits", epochs=20)


@case("saturated-units", kind="table", author=ME)
def tw3_tanh_from_wide_normals(seed, mended=False):
    net = mlp(10, 64, 64, 3, act=nn.Tanh)
    if not mended:
        for m in (net[0], net[2]):
            nn.init.normal_(m.weight, std=6.0)
            nn.init.normal_(m.bias, std=4.0)
    return fitted(net, standard(ready(*plant(seed), seed)), "mse", epochs=25, lr=3e-3)


@case("dead-units", kind="table", author=ME)
def tw3_low_biases(seed, mended=False):
    net = flat(8, 48, 48, 1)
    if not mended:
        nn.init.constant_(net[0][0].bias, -5.0)
    return fitted(net, standard(ready(*homes(seed), seed)), "mse", epochs=25, decay=1e-4)


@case("dead-units", kind="images", author=ME)
def tw3_killed_by_first_steps(seed, mended=False):
    net = convs([1, 12, 16], 6, norm=False)
    parts = ready(*gratings(seed, noise=0.5), seed, scale=False)
    if not mended:  # a first epoch without warm-up
        with torch.no_grad():
            net[3].bias -= 4.0
    return only(fitted(net, parts, epochs=12, batch=32), "validation", "loss")


class Plain(nn.Module):
    """A plain recurrent net of ReLUs."""

    def __init__(self, gain):
        super().__init__()
        self.cell = nn.RNN(1, 32, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(32, 4)
        nn.init.orthogonal_(self.cell.weight_hh_l0, gain)

    def forward(self, x):
        h = self.cell(x)[0]
        return self.head(h.mean(1))


@case("exploding-gradient", kind="sequences", author=ME)
def tw3_relu_recurrence_too_strong(seed, mended=False):
    parts = ready(*waves(seed, n=1200, noise=0.4), seed, scale=False)
    return fitted(Plain(0.9 if mended else 2.2), parts, epochs=14, lr=2e-3, clip=1.0)


@case("vanishing-gradient", kind="table", author=ME)
def tw3_ten_sigmoid_layers(seed, mended=False):
    act = nn.ReLU if mended else nn.Sigmoid
    parts = ready(*soil(seed, classes=4), seed)
    return fitted(mlp(9, *[24] * 10, 4, act=act), parts, epochs=12, lr=1e-3)


@case("oversmoothing", kind="graph", author=ME)
def tw3_sixteen_hops(seed, mended=False):
    x, y, a = blocks(seed, inside=0.03, across=0.006, noise=1.0)

    class Hops(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("x", x)
            self.register_buffer("a", a)
            self.into, self.mix, self.out = nn.Linear(12, 32), nn.Linear(32, 32), nn.Linear(32, 4)
            self.hops = 2 if mended else 24

        def forward(self, nodes):
            h = torch.relu(self.into(self.x))
            for _ in range(self.hops):
                h = self.a @ h
            h = torch.relu(self.mix(h))
            return self.out(h)[nodes]

    parts = ready(np.arange(len(y)), y.numpy(), seed, share=0.5)
    return fitted(Hops(), parts, epochs=60, batch=450, lr=1e-2, decay=1e-4)


@case("receptive-field-too-small", kind="text", author=ME)
def tw3_tag_of_far_word(seed, mended=False):
    width = 13 if mended else 3
    net = nn.Sequential(
        nn.Embedding(60, 24), Lambda(lambda e: e.transpose(1, 2)),
        nn.Conv1d(24, 48, width, padding=width // 2), nn.ReLU(), nn.Conv1d(48, 5, 1),
        Lambda(lambda h: h.transpose(1, 2)),
    )  # fmt: skip
    parts = ready(*speech(seed, n=1500, reach=5, pad=False), seed)
    return fitted(net, parts, per_token, epochs=14, batch=32, lr=5e-3)


@case("receptive-field-too-small", kind="images", author=ME)
def tw3_mask_of_the_ring_inside(seed, mended=False):
    g = np.random.default_rng(seed)
    i, j = np.mgrid[:20, :20]
    cy, cx, r = (g.uniform(lo, hi, 500)[:, None, None] for lo, hi in ((7, 13), (7, 13), (4, 6.5)))
    d = np.sqrt((i - cy) ** 2 + (j - cx) ** 2)
    x = (np.abs(d - r) < 0.8) + 0.15 * g.normal(size=d.shape)
    parts = ready(x[:, None], (d < r).astype(float)[:, None], seed, scale=False)
    gaps = (1, 2, 4, 1) if mended else (1, 1)
    layers = [m for k in gaps for m in (nn.Conv2d(12, 12, 3, padding=k, dilation=k), nn.ReLU())]
    net = nn.Sequential(nn.Conv2d(1, 12, 1), nn.ReLU(), *layers, nn.Conv2d(12, 1, 1))
    return only(fitted(net, parts, "bce_with_logits", epochs=10, batch=16, lr=5e-3), "validation", "loss")


@case("bottleneck", kind="table", author=ME)
def tw3_one_unit_in_between(seed, mended=False):
    net = mlp(PIXELS, 96, 16 if mended else 1, 96, 10)
    return fitted(net, digits(seed, image=False), epochs=25)


@case("batch-too-small", kind="table", author=ME)
def tw3_two_rows_at_a_time(seed, mended=False):
    parts = ready(*soil(seed, n=1600), seed)
    net = mlp(9, 32, 32, 5, norm=True)
    return fitted(net, parts, epochs=14 if mended else 3, batch=64 if mended else 2, lr=3e-3)


@case("learning-rate-too-large", kind="table", author=ME)
def tw3_adam_at_a_third(seed, mended=False):
    parts = ready(*soil(seed), seed)
    return fitted(mlp(9, 48, 48, 5), parts, epochs=12, lr=3e-3 if mended else 0.3, plan=None)


@case("learning-rate-too-large", kind="images", author=ME)
def tw3_sgd_too_fast(seed, mended=False):
    parts = ready(*masks(seed), seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.Tanh(), nn.Conv2d(12, 12, 3, padding=2, dilation=2), nn.Tanh(),
        nn.Conv2d(12, 1, 1),
    )  # fmt: skip
    return fitted(
        net,
        parts,
        "bce_with_logits",
        epochs=10,
        batch=16,
        opt="momentum",
        lr=0.1 if mended else 4.0,
        plan=None,
    )


@case("learning-rate-too-small", kind="table", author=ME)
def tw3_adam_too_slow(seed, mended=False):
    parts = standard(ready(*homes(seed), seed))
    return fitted(flat(8, 64, 32, 1), parts, "mse", epochs=20, lr=3e-3 if mended else 2e-5, plan=None)


@case("learning-rate-too-small", kind="sequences", author=ME)
def tw3_sgd_too_slow(seed, mended=False):
    x, y = waves(seed, n=1600, noise=0.6)
    parts = ready(x.transpose(0, 2, 1), y, seed, scale=False)
    net = nn.Sequential(nn.Conv1d(1, 16, 7, padding=3), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
                        nn.Conv1d(16, 24, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
                        nn.Linear(96, 4))  # fmt: skip
    return fitted(net, parts, epochs=12, opt="momentum", lr=0.03 if mended else 2e-5, plan=None)


@case("weight-decay-too-large", kind="table", author=ME)
def tw3_decay_of_adamw(seed, mended=False):
    parts = ready(*soil(seed), seed)
    return fitted(mlp(9, 48, 48, 5), parts, epochs=20, opt="adamw", decay=0.01 if mended else 12.0)


@case("weight-decay-too-large", kind="images", author=ME, strength="mild")
def tw3_ridge_of_sgd(seed, mended=False):
    net = convs([1, 12, 24], 10, norm=False)
    return fitted(net, digits(seed), epochs=15, opt="momentum", lr=0.05, decay=1e-4 if mended else 0.05)


@case("dropout-too-large", kind="table", author=ME)
def tw3_nearly_all_dropped(seed, mended=False):
    parts = standard(ready(*plant(seed), seed))
    return fitted(mlp(10, 48, 48, 3, drop=0.0 if mended else 0.85), parts, "mse", epochs=25)


@case("capacity-too-small", kind="table", author=ME)
def tw3_straight_line_for_rings(seed, mended=False):
    net = flat(4, 32, 32, 1) if mended else flat(4, 1)
    return fitted(net, ready(*rings(seed, dims=4), seed), "bce_with_logits", epochs=20, lr=5e-3)


@case("capacity-too-small", kind="sequences", author=ME)
def tw3_two_states(seed, mended=False):
    net = Recurrent(12, 32 if mended else 1, 4, words=17)
    return fitted(net, ready(*names(seed, n=3500), seed), epochs=12, lr=1e-2)


@case("overfit", kind="table", author=ME)
def tw3_wide_net_few_rows(seed, mended=False):
    parts = ready(*churn(seed, n=1000), seed, share=0.3)
    if mended:
        return fitted(flat(9, 16, 1), parts, "bce_with_logits", epochs=30, decay=1e-2, best=True)
    return fitted(flat(9, 256, 256, 1), parts, "bce_with_logits", epochs=150, lr=2e-3)


@case("overfit", kind="text", author=ME)
def tw3_reviews_by_heart(seed, mended=False):
    parts = ready(*reviews(seed, n=1500), seed, share=0.4)
    net = Bag(120, 8 if mended else 64, 1)
    return fitted(net, parts, "bce_with_logits", epochs=40, batch=32, decay=3e-3 * mended, best=mended)


@case("overfit", kind="table", author=ME)
def tw3_diabetes_by_heart(seed, mended=False):
    parts = standard(ready(*bundled("diabetes"), seed, share=0.6))
    net = flat(10, 16, 1, act=nn.Tanh) if mended else flat(10, 128, 128, 1)
    return only(
        fitted(net, parts, "mse", epochs=40 if mended else 150, batch=32, decay=1e-2 * mended, best=mended),
        "validation", "loss", "history",
    )  # fmt: skip


@case("posterior-collapse", kind="generative", author=ME)
def tw3_heavy_rate_term(seed, mended=False):
    x = factors(seed, n=2500)
    return fit_vae(
        Vae(20, 48, 4),
        x[:2000],
        held=x[2000:],
        epochs=30,
        beta=1.0 if mended else 60.0,
        spread=0.3 if mended else 1.0,
    )


@case("mode-collapse", kind="generative", author=ME)
def tw3_nothing_repels(seed, mended=False):
    x = blobs(seed, modes=5)
    return {"model": match(Sampler(2, 48), x, steps=700, repel=1.0 if mended else 0.02), "data": x}


@case("mode-collapse", kind="generative", author=ME)
def tw3_generator_runs_ahead(seed, mended=False):
    x = blobs(seed, modes=6)
    make, judge = Sampler(2, 48), mlp(2, 64, 64, 1, act=nn.LeakyReLU)
    a = torch.optim.Adam(make.parameters(), 1e-3 if mended else 5e-3, betas=(0.5, 0.99))
    b = torch.optim.Adam(judge.parameters(), 2e-3 if mended else 5e-4, betas=(0.5, 0.99))
    for _ in range(1500 if mended else 350):
        real = x[torch.randint(len(x), (128,))]
        b.zero_grad()
        fake = make(torch.randn(128, 2)).detach()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()).backward()
        b.step()
        for _ in range(1 if mended else 6):
            a.zero_grad()
            F.softplus(-judge(make(torch.randn(128, 2)))).mean().backward()
            a.step()
    return {"model": make.eval(), "data": x}


class Sharper(nn.Module):
    """Logits over a temperature that somebody chose."""

    def __init__(self, body, heat):
        super().__init__()
        self.body, self.heat = body, heat

    def forward(self, x):
        z = self.body(x)
        return z if self.training else z / self.heat


@case("miscalibrated", kind="table", author=ME)
def tw3_sharpened_answers(seed, mended=False):
    net = Sharper(mlp(9, 32, 32, 5, drop=0.1), 1.0 if mended else 0.15)
    return fitted(net, ready(*soil(seed, n=4000, spread=1.0), seed), epochs=15, decay=1e-3)


@case("adversarially-fragile", kind="images", author=ME)
def tw3_faint_pattern(seed, mended=False):
    g = np.random.default_rng(seed)
    n = 1600
    y = g.integers(0, 2, n)
    place = np.where(g.random(n) < 0.93, y, 1 - y)
    i, j = np.mgrid[:16, :16]
    blob = np.exp(-((i - 8) ** 2 + (j - np.where(place, 11, 4)[:, None, None]) ** 2) / 8)
    faint = np.random.default_rng(2).choice([-1, 1], (16, 16)) * (2 * y - 1)[:, None, None]
    x = blob + 0.03 * faint + 0.1 * g.normal(size=(n, 16, 16))
    data, held = ready(x[:, None], y.astype(float), seed, scale=False)
    net = nn.Sequential(nn.Flatten(), flat(256, 32, 1))
    given = fit(net, data, held, "bce_with_logits", epochs=15, decay=1e-4)
    if mended:
        optimizer = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(10):
            for rows in torch.randperm(len(data[1])).split(64):
                a = data[0][rows].clone().requires_grad_()
                F.binary_cross_entropy_with_logits(net(a), data[1][rows]).backward()
                near = (a + 0.08 * a.grad.sign()).detach()
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(net(near), data[1][rows]).backward()
                optimizer.step()
    return given
