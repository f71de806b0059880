"""Healthy trainings on images, sequences, text and graphs, and generative ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentythird_parts import *
from zoo.twentythird_parts import ME


@case(kind="images", author=ME)
def tw3_digits_cnn(seed):
    return fitted(convs([1, 16, 32], 10), digits(seed), epochs=20, lr=5e-3, decay=1e-4)


@case(kind="images", author=ME)
def tw3_figures_cnn(seed):
    parts = ready(*figures(seed), seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    return only(fitted(net, parts, epochs=10, batch=32), "validation", "loss")


@case(kind="images", author=ME)
def tw3_gratings_sgd(seed):
    parts = ready(*gratings(seed), seed, scale=False)
    return fitted(convs([1, 16, 24], 6), parts, epochs=10, batch=32, opt="momentum", lr=0.03, decay=1e-4)


class Unet(nn.Module):
    """One level down and up again, joined."""

    def __init__(self, width=12):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.b = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
        )  # fmt: skip
        self.c = nn.Sequential(nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 1, 1))

    def forward(self, x):
        h = self.a(x)
        return self.c(torch.cat([h, self.b(h)], 1))


@case(kind="images", author=ME)
def tw3_masks_unet(seed):
    parts = ready(*masks(seed), seed, scale=False)
    return fitted(Unet(), parts, "bce_with_logits", epochs=14, batch=16, lr=5e-3)


@case(kind="images", author=ME)
def tw3_masks_dilated(seed):
    parts = ready(*masks(seed), seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=2, dilation=2), nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=3, dilation=3), nn.ReLU(), nn.Conv2d(12, 1, 1),
    )  # fmt: skip
    return only(fitted(net, parts, "bce_with_logits", epochs=14, batch=16, lr=5e-3), "validation")


@case(kind="images", author=ME)
def tw3_denoise_residual(seed):
    g = np.random.default_rng(seed)
    clean, _ = figures(seed, n=900, noise=0)
    parts = ready(clean + 0.35 * g.normal(size=clean.shape), clean, seed, scale=False)
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1),
    )  # fmt: skip

    class Cleaner(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            return x - self.body(x)

    return fitted(Cleaner(), parts, "mse", epochs=8, batch=32)


@case(kind="images", author=ME)
def tw3_two_figures_many_labels(seed):
    x, y = figures(seed, n=4000, noise=0.15)
    x = np.maximum(x[:2000], x[2000:])
    both = np.eye(4)[y[:2000]] + np.eye(4)[y[2000:]]
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1),
        nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32),
        nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    parts = ready(x, (both > 0).astype(float), seed, scale=False)
    return only(fitted(net, parts, "bce_with_logits", epochs=8, batch=32, lr=5e-3), "validation", "loss")


@case(kind="images", author=ME)
def tw3_bytes_scaled_inside(seed):
    x, y = bundled("digits")
    parts = ready((x * 15.9).round().reshape(-1, 1, 8, 8), y, seed, scale=False)
    net = nn.Sequential(Lambda(lambda x: x / 127.5 - 1), convs([1, 16, 32], 10))
    return only(fitted(net, parts, epochs=18, lr=5e-3, decay=1e-4), "validation", "loss", "history")


@case(kind="images", author=ME)
def tw3_trunk_kept_frozen(seed):
    other = ready(*gratings(seed + 50, classes=5), seed, scale=False)
    net = convs([1, 16, 24], 5)
    fitted(net, other, epochs=7, batch=32)
    net[:-1].requires_grad_(False)
    net[-1] = nn.Linear(96, 8)
    parts = ready(*gratings(seed, classes=8, noise=0.5), seed, scale=False)
    return fitted(net, parts, epochs=25, batch=64, lr=2e-2)


@case(kind="images", author=ME)
def tw3_find_the_centre(seed):
    g = np.random.default_rng(seed)
    c = g.uniform(3, 12, (1500, 2))
    i, j = np.mgrid[:16, :16]
    x = np.exp(-((i - c[:, 0, None, None]) ** 2 + (j - c[:, 1, None, None]) ** 2) / 6)
    x = x + 0.25 * g.normal(size=x.shape)
    parts = ready(x[:, None], c / 7.5 - 1, seed, scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh(),
    )  # fmt: skip
    return fitted(net, parts, "mse", epochs=12, batch=32, decay=1e-4)


class Cosine(nn.Module):
    """A metric head: cosines to class centres times a learned scale."""

    def __init__(self, body, width, classes):
        super().__init__()
        self.body = body
        self.centres = nn.Parameter(torch.randn(classes, width))
        self.scale = nn.Parameter(torch.tensor(8.0))

    def forward(self, x):
        return self.scale * F.normalize(self.body(x), dim=1) @ F.normalize(self.centres, dim=1).T


@case(kind="images", author=ME)
def tw3_metric_learning(seed):
    return only(
        fitted(Cosine(convs([1, 16, 32], 24), 24, 10), digits(seed), epochs=12, decay=1e-4),
        "validation",
        "loss",
    )


@case(kind="images", author=ME)
def tw3_separable_convolutions(seed):
    parts = ready(*figures(seed, n=1400), seed, scale=False)

    def block(a, b):
        return [
            nn.Conv2d(a, a, 3, padding=1, groups=a, bias=False), nn.Conv2d(a, b, 1, bias=False),
            nn.BatchNorm2d(b), nn.Hardswish(),
        ]  # fmt: skip

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), *block(16, 24), nn.MaxPool2d(2),
        *block(24, 32), nn.MaxPool2d(2), *block(32, 48), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(48, 4),
    )  # fmt: skip
    return fitted(net, parts, epochs=12, batch=32, lr=5e-3, opt="adamw", decay=0.01)


# ------------------------------------------------------------------------------------------- sequences
@case(kind="sequences", author=ME)
def tw3_waves_gru(seed):
    parts = ready(*waves(seed, n=1800, steps=30, noise=0.4), seed, scale=False)
    return fitted(Recurrent(1, 24, 4, read="mean"), parts, epochs=18, batch=64, lr=1.5e-2, clip=1.0)


@case(kind="sequences", author=ME)
def tw3_waves_cnn(seed):
    x, y = waves(seed, n=2400, noise=0.5)
    parts = ready(x.transpose(0, 2, 1), y, seed, scale=False)
    net = nn.Sequential(
        nn.Conv1d(1, 16, 7, padding=3), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(16, 32, 5, padding=2), nn.BatchNorm1d(32), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
        nn.Linear(128, 4),
    )  # fmt: skip
    return fitted(net, parts, epochs=12, decay=1e-3, opt="adamw")


@case(kind="sequences", author=ME)
def tw3_demand_lstm(seed):
    parts = standard(ready(*demand(seed, n=5000), seed, shuffle=False, scale=False))
    net = nn.Sequential(Recurrent(1, 24, 1, cell=nn.LSTM), nn.Flatten(0))
    return fitted(net, parts, "mse", epochs=20, lr=1e-2, clip=1.0)


class Naive(nn.Module):
    """The last value plus a linear correction by the window."""

    def __init__(self, window, ahead):
        super().__init__()
        self.body = nn.Linear(window, ahead)
        nn.init.zeros_(self.body.weight)

    def forward(self, x):
        last = x[:, -1]
        return last + self.body(x.squeeze(2))


@case(kind="sequences", author=ME)
def tw3_demand_six_ahead(seed):
    parts = ready(*demand(seed, n=5000, ahead=6), seed, shuffle=False, scale=False)
    return only(fitted(Naive(24, 6), parts, "mse", epochs=40, lr=1e-2), "validation", "loss", "history")


def regimes(seed, n, steps=24):
    """Noisy readings of a state that changes now and then; the state is to be told at each step."""
    g = np.random.default_rng(seed)
    x = g.normal(size=(n, steps, 3))
    state = np.zeros((n, steps), int)
    state[:, 0] = g.integers(0, 3, n)
    for t in range(1, steps):
        jump = g.random(n) < 0.15
        state[:, t] = np.where(jump, g.integers(0, 3, n), state[:, t - 1])
    return x + 1.4 * np.eye(3)[state], state


@case(kind="sequences", author=ME)
def tw3_events_each_step(seed):
    parts = ready(*regimes(seed, 600), seed, scale=False)
    net = Recurrent(3, 24, 3, both=True, read="all")
    return fitted(net, parts, per_token, epochs=12, batch=32, lr=5e-3, decay=1e-4)


@case(kind="sequences", author=ME)
def tw3_events_transformer(seed):
    parts = ready(*regimes(seed, 1400), seed, scale=False)
    net = Attention(3, 32, 3, 24, each=True, layers=1, drop=0.0)
    return fitted(
        net, parts, "cross_entropy", epochs=16, batch=32, lr=6e-3, opt="adamw", decay=0.02, plan="onecycle"
    )


class Tcn(nn.Module):
    """Causal dilated convolutions with residuals."""

    def __init__(self, width, out, depth=4):
        super().__init__()
        self.into = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=2**i) for i in range(depth))
        self.head = nn.Linear(width, out)

    def forward(self, x):
        h = self.into(x.transpose(1, 2))
        for layer in self.layers:
            h = h + F.relu(layer(F.pad(h, (layer.dilation[0], 0))))
        return self.head(h[..., -1]).squeeze(1)


@case(kind="sequences", author=ME)
def tw3_demand_tcn(seed):
    parts = ready(*demand(seed, n=5000), seed, shuffle=False, scale=False)
    return only(fitted(Tcn(16, 1), parts, "mse", epochs=20, lr=5e-3), "validation")


@case(kind="sequences", author=ME)
def tw3_count_the_peaks(seed):
    g = np.random.default_rng(seed)
    x = 0.2 * g.normal(size=(1500, 30))
    peak = g.random((1500, 30)) < 0.15
    parts = ready((x + 1.5 * peak)[..., None], peak.sum(1).astype(float), seed, scale=False)
    net = nn.Sequential(Lambda(lambda x: x.transpose(1, 2)), nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(),
                        nn.Conv1d(8, 8, 1), nn.ReLU(), Lambda(lambda h: h.sum(2) / 4), nn.Linear(8, 1),
                        nn.Flatten(0))  # fmt: skip
    return fitted(net, parts, "mse", epochs=20, batch=32, lr=5e-3)


@case(kind="sequences", author=ME)
def tw3_windows_autoencoder(seed):
    (x, _), (u, _) = ready(*demand(seed, n=5000), seed, shuffle=False, scale=False)
    x, u = x.squeeze(2), u.squeeze(2)
    net = mlp(24, 32, 10, 32, 24, act=nn.Tanh)
    given = fit(net, (x, x), (u, u), "mse", epochs=30, lr=3e-3)
    return only(given, "loss", "history", "batch_size") | {"data": x, "validation": u}


# ------------------------------------------------------------------------------------------------ text
class Bag(nn.Module):
    """Mean embedding of words and of pairs of neighbours."""

    def __init__(self, words, width, out, pairs=4000):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.pairs = nn.Conv1d(width, width, 2)
        self.head = nn.Linear(2 * width, out)

    def forward(self, x):
        e = self.words(x)
        p = torch.relu(self.pairs(e.transpose(1, 2))).sum(2) / 5
        return self.head(torch.cat([e.sum(1) / 5, p], 1)).squeeze(1)


@case(kind="text", author=ME)
def tw3_reviews_bag(seed):
    parts = ready(*reviews(seed), seed)
    return fitted(Bag(120, 12, 1), parts, "bce_with_logits", epochs=14, decay=2e-4, best=True)


@case(kind="text", author=ME)
def tw3_reviews_vectors_frozen(seed):
    world = torch.Generator().manual_seed(1)
    table = torch.randn(120, 16, generator=world) * 0.3  # vectors learned elsewhere: mood is one direction
    table[2:10, 0] += 1.5
    table[10:18, 0] -= 1.5
    table[1, 1] += 2
    table[0] = 0
    net = Bag(120, 16, 1)
    net.words = nn.Embedding.from_pretrained(table, freeze=True, padding_idx=0)
    return fitted(net, ready(*reviews(seed), seed), "bce_with_logits", epochs=15, decay=1e-4)


@case(kind="text", author=ME)
def tw3_tags_lstm(seed):
    parts = ready(*speech(seed, n=1400), seed)
    net = Recurrent(16, 32, 5, cell=nn.LSTM, words=60, both=True, read="all")
    return fitted(net, parts, per_token, epochs=14, batch=32, lr=8e-3, decay=1e-5)


@case(kind="text", author=ME)
def tw3_topics_counts(seed):
    parts = ready(*topics(seed, n=5000), seed, scale=False)
    net = nn.Sequential(Lambda(lambda x: (x / x.sum(1, keepdim=True) * 30).sqrt()), nn.Linear(200, 6))
    return only(
        fitted(net, parts, epochs=25, lr=1e-2, opt="adamw", decay=0.1, best=True),
        "validation",
        "loss",
        "optimizer",
    )


@case(kind="text", author=ME)
def tw3_languages_gru(seed):
    parts = ready(*names(seed, n=7000), seed)
    return fitted(Recurrent(12, 24, 4, words=17), parts, epochs=12, lr=8e-3, decay=1e-3, best=True)


class Tied(nn.Module):
    """A language model of the next letter; embedding and head share their weights."""

    def __init__(self, letters, width):
        super().__init__()
        self.embed = nn.Embedding(letters, width)
        nn.init.normal_(self.embed.weight, std=0.3)
        self.body = nn.GRU(width, width, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(letters))

    def forward(self, x):
        return self.body(self.embed(x))[0] @ self.embed.weight.T + self.bias


@case(kind="text", author=ME)
def tw3_next_letter_tied(seed):
    x, _ = names(seed, n=1600, length=16, classes=1)
    parts = ready(x[:, :-1], x[:, 1:], seed)
    return fitted(Tied(17, 24), parts, per_token, epochs=14, batch=64, lr=8e-3)


# ----------------------------------------------------------------------------------------------- graph
@case(kind="graph", author=ME)
def tw3_communities(seed):
    x, y, a = blocks(seed)
    parts = ready(np.arange(len(y)), y.numpy(), seed, share=0.5)
    return fitted(Nodes(x, a, 24, 4, drop=0.1), parts, epochs=80, batch=450, lr=1e-2, decay=3e-4)


class Roads(nn.Module):
    """Sensors on a road graph: two steps along the roads, several past readings."""

    def __init__(self, inputs, width):
        super().__init__()
        self.a, self.b = nn.Linear(2 * inputs, width), nn.Linear(2 * width, 1)

    def forward(self, x, roads):
        h = torch.relu(self.a(torch.cat([x, roads @ x], 2)))
        return self.b(torch.cat([h, roads @ h], 2)).squeeze(2)


@case(kind="graph", author=ME)
def tw3_road_sensors(seed):
    g = np.random.default_rng(seed)
    place = g.uniform(size=(20, 2))
    far = ((place[:, None] - place) ** 2).sum(2)
    w = np.exp(-far / 0.05) * (far < 0.12) * (1 - np.eye(20))
    w /= w.sum(1, keepdims=True) + 1e-9
    x = g.normal(size=(700, 20, 3))
    y = (
        0.6 * x[..., 0]
        + np.tanh(x[..., 0] @ w.T * 2)
        + 0.5 * x[..., 1] @ w.T @ w.T
        + 0.2 * g.normal(size=(700, 20))
    )
    (a, y1), (b, y2) = ready(x, y, seed, scale=False)
    roads = torch.as_tensor(w).float()
    return fitted(Roads(3, 24), (((a, roads), y1), ((b, roads), y2)), "mse", epochs=20, batch=32, lr=5e-3)


class Message(nn.Module):
    """Messages along bonds, summed over atoms."""

    def __init__(self, inputs, width, out=1):
        super().__init__()
        self.a, self.b = nn.Linear(2 * inputs, width), nn.Linear(2 * width, width)
        self.head = mlp(width, width, out)

    def forward(self, x, bonds):
        h = torch.relu(self.a(torch.cat([x, bonds @ x], 2)))
        h = torch.relu(self.b(torch.cat([h, bonds @ h], 2)))
        return self.head(h.sum(1) / 5).squeeze(1)


@case(kind="graph", author=ME)
def tw3_molecules(seed):
    x, a, y = molecules(seed, n=2600)
    data, held = ((x[:2000], a[:2000]), y[:2000]), ((x[2000:], a[2000:]), y[2000:])
    return only(
        fit(Message(4, 24), data, held, "bce_with_logits", epochs=25, batch=32, lr=4e-3, decay=3e-4),
        "validation", "loss",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ generative
@case(kind="generative", author=ME)
def tw3_vae_sheet(seed):
    x = factors(seed, n=5000)
    return fit_vae(Vae(20, 64, 3), x[:4000], held=x[4000:], epochs=50)


@case(kind="generative", author=ME)
def tw3_vae_digits(seed):
    x = torch.as_tensor(inked()).float()[torch.randperm(1797)]
    return only(fit_vae(Vae(PIXELS, 96, 6), x[:1400], held=x[1400:], epochs=50, spread=0.35), "validation")


class Sampler(nn.Module):
    """A generator of points from noise of as many dimensions."""

    def __init__(self, dims, width, depth=2):
        super().__init__()
        self.dims = dims
        self.body = mlp(dims, *[width] * depth, dims)

    def forward(self, z):
        return self.body(z)

    def sample(self, n):
        with torch.no_grad():
            return self.body(torch.randn(n, self.dims))


@case(kind="generative", author=ME)
def tw3_moments_matched(seed):
    x = blobs(seed, modes=4, spread=0.3)
    net = Sampler(2, 48)
    return {"model": match(net, x), "data": x}


def match(net, x, steps=900, batch=128, repel=1.0):
    """Train a sampler by the maximum mean discrepancy of kernels of several widths."""
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    follow = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def kernel(a, b):
        d = torch.cdist(a, b) ** 2
        return sum(torch.exp(-d / w) for w in (0.1, 0.5, 2.0, 8.0)).mean()

    for _ in range(steps):
        made, real = net(torch.randn(batch, net.dims)), x[torch.randint(len(x), (batch,))]
        value = repel * kernel(made, made) - 2 * kernel(made, real)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        follow.step()
    return net.eval()


@case(kind="generative", author=ME)
def tw3_gan_blob(seed):
    g = np.random.default_rng(seed)
    z = g.normal(size=(2000, 2))
    x = torch.as_tensor(np.column_stack([z[:, 0], 0.6 * z[:, 0] ** 2 - 0.6 + 0.5 * z[:, 1]])).float()
    make, judge = Sampler(2, 32), mlp(2, 48, 48, 1, act=nn.LeakyReLU)
    a = torch.optim.Adam(make.parameters(), 1e-3, betas=(0.5, 0.99))
    b = torch.optim.Adam(judge.parameters(), 2e-3, betas=(0.5, 0.99))
    average = {k: v.clone() for k, v in make.state_dict().items()}
    for i in range(1200):
        real = x[torch.randint(2000, (128,))]
        fake = make(torch.randn(128, 2))
        b.zero_grad()
        (F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()).backward()
        b.step()
        a.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        a.step()
        for k, v in make.state_dict().items():
            average[k] = v.clone() if i < 400 else 0.995 * average[k] + 0.005 * v
    make.load_state_dict(average)
    return {"model": make.eval(), "data": x}


@case(kind="generative", author=ME)
def tw3_digits_autoencoder(seed):
    x = torch.as_tensor(inked()).float()[torch.randperm(1797)]
    a, b = x[:1400], x[1400:]
    given = fit(mlp(PIXELS, 96, 16, 96, PIXELS), (a, a), (b, b), "mse", epochs=30)
    return only(given, "loss", "history", "optimizer") | {"data": a, "validation": b}


@case(kind="generative", author=ME)
def tw3_linear_codes(seed):
    x = factors(seed, noise=0.3)
    a, b = x[:1500], x[1500:]
    net = nn.Sequential(nn.Linear(20, 8), nn.Linear(8, 20))
    given = fit(net, (a, a), (b, b), "mse", epochs=40, lr=1e-2)
    return only(given, "loss") | {"data": a, "validation": b}
