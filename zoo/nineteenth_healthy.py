"""Homework that is right, most of it ordinary."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.nineteenth_model import Tagger, looped
from zoo.nineteenth_parts import *
from zoo.nineteenth_parts import GCN, ME, VAE, Flat, Recurrent

# ---------------------------------------------------------------- tables


@case(kind="table", author=ME)
def ta_ok_loans(seed):
    train, val = split(*loans(seed, 3000), seed)
    return fit(Flat(mlp(9, 24, 1)), train, val, "bce_with_logits", epochs=30, best=True, weight_decay=1e-4)


@case(kind="table", author=ME)
def ta_ok_loans_sgd(seed):
    train, val = split(*loans(seed + 50, 3000), seed)
    f = fit(
        Flat(mlp(9, 32, 1, act=nn.Tanh)), train, val, "bce_with_logits", epochs=40, opt=torch.optim.SGD, lr=0.05,
        momentum=0.9, cosine=True, weight_decay=1e-4,
    )  # fmt: skip
    return bare(f)


@case(kind="table", author=ME)
def ta_ok_flats(seed):
    train, val = split(*flats(seed, 2500), seed)
    return fit(
        Flat(mlp(8, 48, 24, 1)), train, val, "mse", epochs=50, best=True, weight_decay=1e-4, cosine=True
    )


@case(kind="table", author=ME)
def ta_ok_flats_dropout(seed):
    train, val = split(*flats(seed + 3, 3000), seed)
    f = fit(
        Flat(mlp(8, 96, 48, 1, drop=0.1)), train, val, "mse", epochs=60, cosine=True, opt=torch.optim.AdamW
    )
    return without(f, "initial")


@case(kind="table", author=ME)
def ta_ok_motors(seed):
    train, val = split(*motors(seed, 3000), seed)
    return fit(mlp(10, 48, 5, norm=True), train, val, epochs=30, cosine=True, weight_decay=1e-4)


@case(kind="table", author=ME)
def ta_ok_motors_rmsprop(seed):
    train, val = split(*motors(seed + 8, 3000, 3, spread=1.3), seed)
    f = fit(mlp(10, 24, 3, act=nn.GELU), train, val, epochs=25, opt=torch.optim.RMSprop, lr=1e-3, best=True)
    return without(f, "history", "initial")


@case(kind="table", author=ME)
def ta_ok_arm(seed):
    train, val = split(*arm(seed, 2400), seed)
    return fit(mlp(3, 64, 64, 3, act=nn.Tanh), train, val, "mse", epochs=60, lr=4e-3, cosine=True)


@case(kind="table", author=ME)
def ta_ok_wine(seed):
    train, val = scaled(*real("wine", seed, 0.4))
    return fit(mlp(13, 12, 3), train, val, epochs=60, batch=16, lr=3e-3, weight_decay=1e-2, best=True)


@case(kind="table", author=ME)
def ta_ok_cancer(seed):
    (x, y), (v, w) = scaled(*real("breast_cancer", seed, 0.4))
    net = Flat(mlp(30, 8, 1))
    return fit(
        net,
        (x, y.float()),
        (v, w.float()),
        "bce_with_logits",
        epochs=50,
        batch=32,
        weight_decay=2e-2,
        best=True,
    )


@case(kind="table", author=ME)
def ta_ok_penguins(seed):
    train, val = split(
        *frame("palmerpenguins", "penguins", "species", seed, drop=("island", "year")), seed, 0.4
    )
    return bare(fit(mlp(5, 12, 3), *scaled(train, val), epochs=60, batch=16, lr=4e-3, weight_decay=1e-3))


@case(kind="table", author=ME)
def ta_ok_diamonds(seed):
    x, y = frame("ggplot2", "diamonds", "price", seed, 4000)
    train, val = scaled_targets(*scaled(*split(x, y.log(), seed)))
    return fit(Flat(mlp(23, 64, 32, 1)), train, val, "mse", epochs=50, cosine=True, weight_decay=1e-4)


@case(kind="table", author=ME)
def ta_ok_mileage(seed):
    x, y = frame("ISLR", "Auto", "mpg", seed, drop=("name",))
    x = torch.cat([x[:, :6], F.one_hot(x[:, 6].long() - 1, 3)[:, 1:]], 1)
    train, val = scaled_targets(*scaled(*split(x, y.log(), seed, 0.4)))
    return fit(
        Flat(mlp(8, 24, 1)), train, val, "mse", epochs=120, batch=32, lr=2e-3, weight_decay=5e-3, best=True
    )


@case(kind="table", author=ME)
def ta_ok_diabetes(seed):
    train, val = scaled_targets(*scaled(*real("diabetes", seed, 0.4)))
    return fit(
        Flat(mlp(10, 4, 1, act=nn.Tanh)), train, val, "mse", epochs=60, batch=32, weight_decay=6e-2, best=True
    )


@case(kind="table", author=ME)
def ta_ok_visits_poisson(seed):
    """Counts by the Poisson loss on a log rate, with what PyTorch has for it."""
    train, val = split(*visits(seed, 4000), seed)
    return without(
        fit(Flat(mlp(5, 48, 1)), train, val, nn.PoissonNLLLoss(), epochs=40, cosine=True), "initial"
    )


class Rate(nn.Module):
    """A non-negative answer for counts."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return F.softplus(self.net(x)).squeeze(-1)


@case(kind="table", author=ME)
def ta_ok_visits_softplus(seed):
    train, val = split(*visits(seed + 2, 4000), seed)
    return fit(Rate(mlp(5, 64, 32, 1)), train, val, "mse", epochs=70, lr=4e-3, cosine=True)


@case(kind="table", author=ME)
def ta_ok_repeated_answers(seed):
    """A questionnaire of five answers: the same sheet comes back from many people."""
    r = np.random.default_rng(seed)
    q = r.integers(0, 3, (2400, 5))
    z = (q[:, 0] - 1) * 1.4 + (q[:, 1] == 2) * (q[:, 2] == 0) * 2.0 - (q[:, 3] - 1) + 0.5 * (q[:, 4] - 1)
    y = (r.random(2400) < 1 / (1 + np.exp(-z))).astype(np.float32)
    hot = np.concatenate([np.eye(3)[q[:, j]] for j in range(5)], 1)
    train, val = split(t(hot), t(y), seed)
    return fit(Flat(mlp(15, 12, 1)), train, val, "bce_with_logits", epochs=20, best=True, weight_decay=1e-3)


@case(kind="table", author=ME)
def ta_ok_overlapping(seed):
    """Classes that overlap by half: nobody can do better than 0.7."""
    train, val = split(*motors(seed, 4000, 3, spread=3.2), seed)
    return fit(mlp(10, 16, 3), train, val, epochs=15, lr=1e-3, weight_decay=1e-3, best=True)


@case(kind="table", author=ME)
def ta_ok_heavy_tails(seed):
    """Claims with heavy tails in columns and target: squeezed, and Huber's loss."""
    r = np.random.default_rng(seed)
    x = r.standard_t(3, (3000, 6))
    x = np.sign(x) * np.log1p(np.abs(x))
    y = x[:, 0] + x[:, 1] * x[:, 2] + 0.8 * np.cos(2 * x[:, 3]) + 0.15 * r.standard_t(3, 3000)
    train, val = scaled_targets(*split(t(x), t(y), seed))
    return fit(Flat(mlp(6, 64, 1)), train, val, nn.HuberLoss(), epochs=60, cosine=True)


@case(kind="table", author=ME)
def ta_ok_fast_sgd(seed):
    """A rate of one, which a shallow net on scaled columns bears well; annealed."""
    train, val = split(*motors(seed + 1, 3000, 4), seed)
    f = fit(
        mlp(10, 64, 4),
        train,
        val,
        epochs=40,
        batch=128,
        opt=torch.optim.SGD,
        lr=0.5,
        cosine=True,
        weight_decay=1e-3,
    )
    return f


@case(kind="table", author=ME)
def ta_ok_not_yet_trained(seed):
    train, val = split(*flats(seed), seed)
    return dict(model=Flat(mlp(8, 48, 48, 1)).eval(), data=train, validation=val, loss="mse")


@case(kind="images", author=ME)
def ta_ok_not_yet_trained_cnn(seed):
    train, val = digits(seed)
    return dict(model=small_cnn(10).eval(), data=train, validation=val, loss="cross_entropy")


@case(kind="table", author=ME)
def ta_ok_rare_but_plain(seed):
    """One row in fifteen is positive, and stands out."""
    r = np.random.default_rng(seed)
    y = (r.random(4000) < 0.07).astype(np.float32)
    x = r.normal(size=(4000, 8)) + y[:, None] * np.array([1.6, -1.6, 1.6, 0, 0, 1.6, -1.6, 0])
    train, val = split(t(x), t(y), seed)
    return fit(
        Flat(mlp(8, 12, 1, act=nn.Tanh)),
        train,
        val,
        "bce_with_logits",
        epochs=40,
        lr=2e-3,
        weight_decay=1e-3,
        best=True,
    )


@case(kind="table", author=ME)
def ta_ok_weighted_rare(seed):
    """Three classes of 80, 14 and 6 per cent, the rare ones weighted in the loss and in what is handed over."""
    x, y = motors(seed, 9000, 3, spread=1.2)
    r = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
    kept = r < torch.tensor([1, 0.25, 0.12])[y]
    train, val = split(x[kept], y[kept], seed)
    weight = (len(train[1]) / torch.bincount(train[1]).float() / 3) ** 0.5
    return without(
        fit(mlp(10, 32, 3), train, val, nn.CrossEntropyLoss(weight), epochs=25, best=True), "initial"
    )


@case(kind="table", author=ME)
def ta_ok_sixty_rows(seed):
    """A lab course's sixty measurements and a net of four units, decayed."""
    r = np.random.default_rng(seed)
    x = r.normal(size=(160, 3))
    y = x[:, 0] - 0.7 * x[:, 1] + 1.2 * np.tanh(2 * x[:, 2]) + 0.3 * r.normal(size=160)
    train, val = scaled_targets((t(x[:60]), t(y[:60])), (t(x[60:]), t(y[60:])))
    f = fit(
        Flat(mlp(3, 4, 1, act=nn.Tanh)), train, val, "mse", epochs=250, batch=20, lr=5e-3, weight_decay=1e-2
    )
    return f


class Ensemble(nn.Module):
    def __init__(self, nets):
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, x):
        return torch.stack([net(x) for net in self.nets]).mean(0)


@case(kind="table", author=ME)
def ta_ok_four_voices(seed):
    train, val = split(*motors(seed + 4, 2500), seed)
    nets = [fit(mlp(10, 48, 5), train, val, epochs=25, weight_decay=1e-3)["model"] for _ in range(4)]
    return dict(model=Ensemble(nets).eval(), data=train, validation=val, loss="cross_entropy", batch_size=64)


class Twins(nn.Module):
    """One encoder for both sides of a pair."""

    def __init__(self, d):
        super().__init__()
        self.side, self.head = mlp(d, 32, 8), nn.Linear(8, 1)

    def forward(self, a, b):
        return self.head((self.side(a) - self.side(b)) ** 2).squeeze(-1)


@case(kind="table", author=ME)
def ta_ok_same_machine(seed):
    """Whether two recordings are of one kind: a siamese net on a tuple of inputs."""
    x, y = motors(seed, 4000, 2, spread=0.7)
    a, b = torch.arange(0, 4000, 2), torch.arange(1, 4000, 2)
    train, val = split((x[a], x[b]), (y[a] == y[b]).float(), seed)
    return fit(Twins(10), train, val, "bce_with_logits", epochs=40, lr=3e-3, weight_decay=1e-4, best=True)


def gaussian(output, target):
    """The likelihood of a normal distribution, its mean and log variance both learned."""
    m, v = output
    return 0.5 * ((m - target) ** 2 * (-v).exp() + v).mean()


class MeanAndSpread(nn.Module):
    """Two answers: the mean and the log variance."""

    def __init__(self, d):
        super().__init__()
        self.net = mlp(d, 48, 2)

    def forward(self, x):
        return self.net(x).unbind(-1)


@case(kind="table", author=ME)
def ta_ok_mean_and_spread(seed):
    r = np.random.default_rng(seed)
    x = r.uniform(-2, 2, (3000, 3))
    y = np.sin(2 * x[:, 0]) + x[:, 1] + 0.15 * np.exp(0.7 * x[:, 2]) * r.normal(size=3000)
    train, val = split(t(x / 1.15), t(y), seed)
    return without(fit(MeanAndSpread(3), train, val, gaussian, epochs=40, cosine=True), "optimizer")


def log_cosh(output, target):
    z = output - target
    return (z + F.softplus(-2 * z) - np.log(2)).mean()


@case(kind="table", author=ME)
def ta_ok_log_cosh(seed):
    train, val = split(*flats(seed + 6, 2500), seed)
    return fit(Flat(mlp(8, 48, 1, act=nn.SiLU)), train, val, log_cosh, epochs=50, lr=4e-3, cosine=True)


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(3 * x)


@case(kind="table", author=ME)
def ta_ok_sine_units(seed):
    """A field over the plane, learnt with sines for activations."""
    r = np.random.default_rng(seed)
    x = r.uniform(-1, 1, (2500, 2))
    y = np.sin(5 * x[:, 0]) * np.cos(4 * x[:, 1]) + 0.5 * x[:, 0] + 0.1 * r.normal(size=2500)
    train, val = scaled_targets(*split(t(x * 1.73), t(y), seed))
    return fit(Flat(mlp(2, 48, 48, 1, act=Sine)), train, val, "mse", epochs=40, lr=2e-3, cosine=True)


@case(kind="table", author=ME)
def ta_ok_one_hot_blocks(seed):
    """Three one-hot blocks of shop, weekday and product beside two numbers."""
    r = np.random.default_rng(seed)
    n, sizes = 3500, (12, 7, 9)
    codes = [r.integers(0, k, n) for k in sizes]
    effect = [np.random.default_rng(k).normal(size=k)[c] for k, c in zip(sizes, codes, strict=True)]
    z = r.normal(size=(n, 2))
    y = sum(effect) + effect[0] * z[:, 0] + 0.4 * z[:, 1] + 0.4 * r.normal(size=n)
    hot = np.concatenate([np.eye(k)[c] for k, c in zip(sizes, codes, strict=True)] + [z], 1)
    train, val = scaled_targets(*split(t(hot), t(y), seed))
    return fit(Flat(mlp(30, 48, 1)), train, val, "mse", epochs=50, weight_decay=1e-4, best=True)


@case(kind="table", author=ME)
def ta_ok_proportions(seed):
    """Shares between 0 and 1 from a sigmoid, by squared error."""
    x, y = flats(seed + 9, 2500, noise=0.2)
    train, val = split(x, torch.sigmoid(1.2 * y), seed)

    class Share(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(8, 48, 1)

        def forward(self, x):
            return torch.sigmoid(self.net(x)).squeeze(-1)

    return bare(fit(Share(), train, val, "mse", epochs=50, lr=4e-3, cosine=True))


@case(kind="table", author=ME)
def ta_ok_genres(seed):
    x, _ = flats(seed, 3000)
    w = np.random.default_rng(3).normal(size=(8, 5)) / 2
    z = np.tanh(x.numpy() @ w) * 2 + 0.5 * np.random.default_rng(seed).normal(size=(len(x), 5))
    train, val = split(x, t((z > 0.2).astype(np.float32)), seed)
    return fit(mlp(8, 32, 5), train, val, "bce_with_logits", epochs=25, best=True)


@case(kind="table", author=ME)
def ta_ok_accumulated(seed):
    """Gradients of four small batches are summed on purpose before every step."""
    train, val = split(*flats(seed + 12, 2500), seed)
    make = lambda m: torch.optim.Adam(m.parameters(), 2e-3, weight_decay=1e-4)
    return looped(Flat(mlp(8, 48, 1)), train, val, F.mse_loss, make, every=4, batch=16, epochs=50, name="mse")


class Block(nn.Module):
    """A residual block that begins as the identity: its last layer starts at zero."""

    def __init__(self, h):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(h), nn.Linear(h, h), nn.Linear(h, h)
        nn.init.zeros_(self.b.weight)
        nn.init.zeros_(self.b.bias)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


@case(kind="table", author=ME)
def ta_ok_deep_residual(seed):
    train, val = split(*motors(seed + 5, 2500), seed)
    net = nn.Sequential(nn.Linear(10, 32), *[Block(32) for _ in range(6)], nn.LayerNorm(32), nn.Linear(32, 5))
    return fit(
        net, train, val, epochs=15, lr=1e-3, weight_decay=1e-2, opt=torch.optim.AdamW, best=True, clip=1.0
    )


@case(kind="table", author=ME)
def ta_ok_log_softmax_too(seed):
    """A log-softmax before cross-entropy changes nothing."""
    train, val = split(*motors(seed + 6, 2500, 4), seed)
    net = nn.Sequential(mlp(10, 64, 4), nn.LogSoftmax(1))
    return without(fit(net, train, val, epochs=40, weight_decay=1e-4, best=True), "initial", "history")


@case(kind="images", author=ME)
def ta_ok_frozen_features(seed):
    """Features learnt on other drawings, frozen on purpose; only a head is new."""
    x, y = shapes(seed + 100, 1100, noise=0.2)
    body = small_cnn(4, width=16)
    fit(body, (x, y), None, epochs=20, lr=3e-3)
    for p in body.parameters():
        p.requires_grad_(False)
    x, y = shapes(seed, 1000, noise=0.2)
    train, val = split(x, (y >= 2).float(), seed)
    net = Flat(nn.Sequential(*list(body)[:-1], nn.Linear(128, 16), nn.ReLU(), nn.Linear(16, 1)))
    new = [p for p in net.parameters() if p.requires_grad]
    return fit(net, train, val, "bce_with_logits", epochs=16, lr=2e-3, params=new, best=True)


# ---------------------------------------------------------------- images


@case(kind="images", author=ME)
def ta_ok_digits_cnn(seed):
    return fit(small_cnn(10), *digits(seed), epochs=30, lr=4e-3, cosine=True)


@case(kind="images", author=ME)
def ta_ok_digits_flat(seed):
    train, val = digits(seed)
    net = nn.Sequential(nn.Flatten(), mlp(64, 48, 10))
    return bare(fit(net, train, val, epochs=30, weight_decay=2e-3, best=True))


@case(kind="images", author=ME)
def ta_ok_shapes(seed):
    train, val = split(*shapes(seed, 2000, noise=0.15), seed)
    return without(fit(small_cnn(4), train, val, epochs=25, lr=4e-3, cosine=True), "initial")


@case(kind="images", author=ME)
def ta_ok_masks(seed):
    """Dilated convolutions that see a whole neighbourhood, whose grey level varies from image to image."""
    train, val = split(*cells(seed, 320), seed)
    layers = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU()]
    for d in (2, 4, 4):
        layers += [nn.Conv2d(12, 12, 3, padding=d, dilation=d), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Conv2d(12, 1, 3, padding=1), nn.Flatten(1, 2))
    return fit(net, train, val, "bce_with_logits", epochs=24, batch=16, lr=5e-3, cosine=True)


# ---------------------------------------------------------------- sequences and text


@case(kind="sequences", author=ME)
def ta_ok_rhythms_gru(seed):
    train, val = split(*rhythms(seed, 900), seed)
    return fit(Recurrent(2, 32, 4), train, val, epochs=30, lr=6e-3, cosine=True, clip=1.0)


class Steps(nn.Module):
    """Convolutions over the steps of a recording."""

    def __init__(self, d, out):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(d, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(16, 24, 7, padding=3), nn.ReLU(), nn.AdaptiveMaxPool1d(1),
            nn.Flatten(), nn.Linear(24, out),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x.transpose(1, 2))


@case(kind="sequences", author=ME)
def ta_ok_rhythms_conv(seed):
    train, val = split(*rhythms(seed + 3, 1200, classes=3), seed)
    return bare(fit(Steps(2, 3), train, val, epochs=20, lr=3e-3, cosine=True))


@case(kind="sequences", author=ME)
def ta_ok_forecast(seed):
    x, y = series(seed, 2600)
    return fit(
        Flat(mlp(24, 24, 1)),
        (x[:1900], y[:1900]),
        (x[1930:], y[1930:]),
        "mse",
        epochs=40,
        weight_decay=1e-3,
        best=True,
    )


@case(kind="sequences", author=ME)
def ta_ok_forecast_lstm(seed):
    x, y = series(seed + 4, 2000)
    train, val = (x[:1400, :, None], y[:1400]), (x[1430:, :, None], y[1430:])
    return without(
        fit(Flat(Recurrent(1, 24, 1, nn.LSTM)), train, val, "mse", epochs=35, lr=8e-3, best=True, clip=1.0),
        "initial",
    )


@case(kind="text", author=ME)
def ta_ok_tags(seed):
    train, val = split(*tags(seed, 1200), seed)
    return fit(Tagger(40, 16, 32, 4), train, val, by_token, epochs=15, batch=32, lr=4e-3, best=True)


class Attends(nn.Module):
    """A small transformer that tags; every token brings the one before along."""

    def __init__(self):
        super().__init__()
        self.embed, self.before = nn.Embedding(40, 24), nn.Embedding(41, 24)
        self.place = nn.Parameter(0.1 * torch.randn(16, 24))
        self.layer = nn.TransformerEncoderLayer(24, 2, 64, 0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(24, 4)

    def forward(self, x):
        before = F.pad(x[:, :-1], (1, 0), value=40)
        return self.out(self.layer(self.embed(x) + self.before(before) + self.place))


@case(kind="text", author=ME)
def ta_ok_tags_attention(seed):
    train, val = split(*tags(seed + 1, 2000), seed)
    return without(fit(Attends(), train, val, by_token, epochs=18, lr=4e-3, cosine=True), "history")


@case(kind="text", author=ME)
def ta_ok_sparse_words(seed):
    """Counts of 300 words, most of them zero, and a small net with decay."""
    r = np.random.default_rng(seed)
    topics = np.random.default_rng(4).dirichlet(np.full(300, 0.08), 4)
    y = r.integers(0, 4, 5000)
    common = np.random.default_rng(5).dirichlet(np.full(300, 0.5))
    x = np.stack([r.multinomial(40, 0.15 * topics[k] + 0.85 * common) for k in y])
    seen = x.sum(0) > 20
    train, val = split(t(np.sqrt(x[:, seen].astype(float))), t(y), seed)
    return fit(mlp(int(seen.sum()), 8, 4), train, val, epochs=20, lr=2e-3, weight_decay=3e-3, best=True)


class Words(nn.Module):
    """Pairs of neighbouring words, pooled."""

    def __init__(self):
        super().__init__()
        self.embed, self.conv = nn.Embedding(120, 8), nn.Conv1d(8, 20, 2)
        self.head = nn.Linear(20, 1)

    def forward(self, x):
        return self.head(F.relu(self.conv(self.embed(x).transpose(1, 2))).mean(2)).squeeze(-1)


@case(kind="text", author=ME)
def ta_ok_reviews(seed):
    train, val = split(*reviews(seed, 12000), seed)
    return fit(
        Words(),
        train,
        val,
        "bce_with_logits",
        epochs=20,
        batch=128,
        lr=6e-3,
        cosine=True,
        best=True,
        weight_decay=2e-4,
    )


# ---------------------------------------------------------------- graphs, pairs, generative


@case(kind="graph", author=ME)
def ta_ok_friends(seed):
    train, val = friends(seed, 600, signal=0.4)
    return fit(
        GCN(12, 24, 4, 2, 0.2),
        train,
        val,
        nodes,
        epochs=80,
        lr=1e-2,
        whole=True,
        weight_decay=1e-3,
        best=True,
    )


class Tastes(nn.Module):
    """Matrix factorisation with biases."""

    def __init__(self, users, films, k=3):
        super().__init__()
        self.u, self.f = nn.Embedding(users, k), nn.Embedding(films, k)
        self.a, self.b = nn.Embedding(users, 1), nn.Embedding(films, 1)
        for e in (self.u, self.f, self.a, self.b):
            nn.init.normal_(e.weight, 0, 0.1)

    def forward(self, u, f):
        return (self.u(u) * self.f(f)).sum(-1) + self.a(u).squeeze(-1) + self.b(f).squeeze(-1)


@case(kind="table", author=ME)
def ta_ok_tastes(seed):
    r = np.random.default_rng(seed)
    users, films = 120, 80
    p, q = r.normal(size=(users, 2)), r.normal(size=(films, 2))
    cells = r.permutation(users * films)[:7000]
    u, f = cells // films, cells % films
    y = (
        0.6 * (p[u] * q[f]).sum(1)
        + 0.5 * r.normal(size=users)[u]
        + 0.5 * r.normal(size=films)[f]
        + 0.4 * r.normal(size=7000)
    )
    train, val = split((t(u), t(f)), t(y), seed)
    return fit(
        Tastes(users, films), train, val, "mse", epochs=40, batch=128, lr=1e-2, weight_decay=1e-4, best=True
    )


@case(kind="generative", author=ME)
def ta_ok_autoencoder(seed):
    x = factors(seed, 2000, noise=0.1)
    net = nn.Sequential(mlp(12, 48, 5), mlp(5, 48, 12))
    return fit(net, (x[:1400], x[:1400]), (x[1400:], x[1400:]), "mse", epochs=50, lr=3e-3, cosine=True)


class Tied(nn.Module):
    """A linear code whose way back is the way there, transposed."""

    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(0.3 * torch.randn(12, 6)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        return (x - self.b) @ self.w @ self.w.T + self.b


@case(kind="generative", author=ME)
def ta_ok_tied_weights(seed):
    r = np.random.default_rng(seed)
    x = t(
        r.normal(size=(1500, 6)) @ (np.random.default_rng(2).normal(size=(6, 12)) / 2.4)
        + 0.2 * r.normal(size=(1500, 12))
    )
    return without(
        fit(Tied(), (x[:1000], x[:1000]), (x[1000:], x[1000:]), "mse", epochs=90, lr=1e-2, cosine=True),
        "initial",
    )


@case(kind="generative", author=ME)
def ta_ok_vae(seed):
    x = factors(seed + 1, 2000)
    return fit(
        VAE(12, 64), (x[:1400], x[:1400]), (x[1400:], x[1400:]), elbo(), epochs=50, lr=3e-3, cosine=True
    )
