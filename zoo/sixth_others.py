"""Double faults and healthy set-ups by the sixth author."""

from __future__ import annotations

import copy
import math
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from zoo import case
from zoo.sixth_faults import Encoder, Generator, duel, flipped
from zoo.sixth_parts import (
    GCN,
    VAE,
    WORDS,
    Forecaster,
    Reader,
    blocks,
    cancer,
    counts,
    diabetes,
    digits,
    elbo,
    faces,
    fit,
    fit_graph,
    flat,
    floats,
    friedman,
    masked,
    mlp,
    normal,
    parted,
    reviews,
    ring,
    series,
    shapes,
    small_cnn,
    trained,
    waves,
    wine,
)

Given = dict[str, Any]


# ------------------------------------------------------------------ two faults at once


@case("unscaled-inputs", "class-imbalance", kind="table", author="sixth")
def s_cents_and_frauds(seed: int, mended: bool = False) -> Given:
    """Rare frauds, and two columns of amounts in cents."""
    rng = np.random.default_rng(seed)
    y = (rng.random(1800) < 0.03).astype(int)
    x = rng.normal(size=(1800, 8)) + 1.0 * y[:, None] * np.array([1, -1, 1, 0.5, 0, 0, 0, 0])
    if not mended:
        x[:, 4:6] = x[:, 4:6] * 30_000 + 50_000
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = mlp(8, 16, 2)
    weight = torch.tensor([1.0, 30.0])
    return trained(
        net,
        train,
        held,
        loss=(lambda o, t: F.cross_entropy(o, t, weight)) if mended else "cross_entropy",
        optimizer=torch.optim.Adam(net.parameters(), 2e-3),
        epochs=12,
    )


@case("duplicate-features", "train-test-overlap", kind="table", author="sixth")
def s_merged_and_split_badly(seed: int, mended: bool = False) -> Given:
    """A merge doubled columns, and a third of the held-out rows were trained on."""
    train, held = cancer(seed)
    if not mended:
        held = (torch.cat([held[0][:110], train[0][:60]]), torch.cat([held[1][:110], train[1][:60]]))
        train, held = ((torch.cat([x, x[:, 10:18]], 1), y) for x, y in (train, held))
    net = mlp(train[0].shape[1], 24, 2)
    opt = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.1)
    return trained(net, train, held, optimizer=opt, epochs=15, batch_size=32)


@case("label-noise", "learning-rate-too-small", kind="images", author="sixth", needs=("optimizer",))
def s_hasty_and_slow(seed: int, mended: bool = False) -> Given:
    """A third of the labels are wrong, and the rate is a hundredth of what it should be."""
    train, held = digits(seed)
    y = train[1] if mended else flipped(train[1], 0.35, 10, seed)
    net = small_cnn()
    opt = torch.optim.Adam(net.parameters(), 2e-3 if mended else 2e-5)
    return trained(net, (train[0], y), held, optimizer=opt, epochs=8)


@case("target-leak", "constant-features", kind="table", author="sixth")
def s_leak_and_lost_columns(seed: int, mended: bool = False) -> Given:
    """One column foretells the target; two others are constant."""
    train, held = friedman(seed, noise=2.0)
    if not mended:

        def spoil(x: Tensor, y: Tensor) -> Tensor:
            x = x.clone()
            x[:, 1] = x[:, 4] = 0.3
            x[:, 7:] = y + 0.05 * torch.randn_like(y)
            return x

        train, held = (spoil(*train), train[1]), (spoil(*held), held[1])
    net = mlp(8, 32, 1)
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1),
        epochs=15,
    )


@case("double-softmax", "train-test-overlap", kind="images", author="sixth")
def s_softmax_and_copies(seed: int, mended: bool = False) -> Given:
    """A softmax too many, and half of the held-out shapes are training shapes."""
    train, held = shapes(seed)
    if not mended:
        held = (torch.cat([held[0][:120], train[0][:120]]), torch.cat([held[1][:120], train[1][:120]]))
    net = small_cnn(4, 12, 16)
    if not mended:
        net.append(nn.Softmax(-1))
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=12, batch_size=32
    )


@case("stochastic-evaluation", "distribution-shift", kind="sequences", author="sixth")
def s_dropout_on_and_level_gone(seed: int, mended: bool = False) -> Given:
    """Dropout is on for ever, and the later series lies elsewhere."""
    train, held = series(seed)
    if not mended:
        held = (held[0] * 1.5 + 2.5, held[1] * 1.5 + 2.5)

    class Net(Forecaster):
        def forward(self, x: Tensor) -> Tensor:
            return self.out(F.dropout(self.lstm(x)[0][:, -1], 0.25, self.training or not mended))

    net = Net(hidden=32)
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=12
    )


@case("frozen-parameters", "unscaled-targets", kind="sequences", author="sixth")
def s_frozen_and_in_thousands(seed: int, mended: bool = False) -> Given:
    """An untrained recurrent part is frozen, and the target is in units of 3000."""
    train, held = series(seed)
    net = Forecaster()
    if not mended:
        train, held = (train[0], train[1] * 700 + 3000), (held[0], held[1] * 700 + 3000)
        net.lstm.requires_grad_(False)
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
    return trained(net, train, held, loss="mse", optimizer=opt, epochs=12)


@case("output-range", "duplicate-features", kind="table", author="sixth")
def s_relu_end_and_twins(seed: int, mended: bool = False) -> Given:
    """The output cannot be negative, and three columns occur twice."""
    train, held = friedman(seed)
    if not mended:
        train, held = ((torch.cat([x, x[:, [0, 3, 5]]], 1), y) for x, y in (train, held))
    net = mlp(train[0].shape[1], 48, 1)
    if not mended:
        net.append(nn.ReLU())
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=20
    )


@case("bottleneck", "distribution-shift", kind="images", author="sixth")
def s_narrow_and_another_scanner(seed: int, mended: bool = False) -> Given:
    """One unit in the middle, and held-out digits that are inverted."""
    train, held = flat(*digits(seed))
    k = 24 if mended else 1
    if not mended:
        held = (1 - held[0], held[1])
    net = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, k), nn.Linear(k, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=15, batch_size=32
    )


# ------------------------------------------------------------------ healthy


@case(kind="table", author="sixth")
def s_ok_few_wines(seed: int) -> Given:
    """A hundred rows, a small tanh net, plain SGD."""
    train, held = wine(seed)
    net = mlp(13, 8, 3, act=nn.Tanh)
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-2)
    return trained(net, train, held, optimizer=opt, epochs=25, batch_size=16)


@case(kind="table", author="sixth")
def s_ok_rare_but_clear(seed: int) -> Given:
    """One row in twenty-five is positive, and stands apart."""
    rng = np.random.default_rng(seed)
    y = (rng.random(1500) < 0.04).astype(int)
    x = rng.normal(size=(1500, 6)) + 3.2 * y[:, None] * np.array([1, 1, -1, 0, 0, 0])
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = mlp(6, 16, 2)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05)
    return trained(net, train, held, optimizer=opt, epochs=15)


@case(kind="table", author="sixth")
def s_ok_ridge(seed: int) -> Given:
    """Many columns, few rows, and a strong decay that was chosen by validation."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(520, 30))
    y = x @ (rng.normal(size=30) / math.sqrt(30)) + 0.6 * rng.normal(size=520)
    x, y = floats(x), floats(y)[:, None]
    net = nn.Linear(30, 1)
    opt = torch.optim.SGD(net.parameters(), 0.05, weight_decay=0.15)
    return trained(
        net, (x[:220], y[:220]), (x[220:], y[220:]), loss="mse", optimizer=opt, epochs=60, batch_size=30
    )


@case(kind="table", author="sixth")
def s_ok_noisy_patients(seed: int) -> Given:
    """Diabetes: half of the variance cannot be foretold."""
    (x, y), (vx, vy) = diabetes(seed)
    m, s = y.mean(), y.std()
    net = mlp(10, 16, 1)
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.3)
    return trained(
        net,
        (x, ((y - m) / s)[:, None]),
        (vx, ((vy - m) / s)[:, None]),
        loss="mse",
        optimizer=opt,
        epochs=15,
        batch_size=32,
    )


@case(kind="sequences", author="sixth")
def s_ok_lstm_forecast(seed: int) -> Given:
    """An LSTM foretells a series; the later part is held out."""
    train, held = series(seed)
    net = Forecaster()
    return trained(
        net, train, held, loss="mse", optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=15, clip=1.0
    )


@case(kind="text", author="sixth")
def s_ok_gru_reviews(seed: int) -> Given:
    """A GRU reads reviews, with some dropout, and stops in time."""
    train, held = reviews(seed, n=1200, mixed=0.1)
    net = Reader(dim=16, hidden=24, dropout=0.3)
    return trained(
        net,
        train,
        held,
        optimizer=torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.05),
        epochs=9,
        batch_size=32,
    )


@case(kind="text", author="sixth")
def s_ok_transformer(seed: int) -> Given:
    """A transformer with warm-up and cosine decay."""
    train, held = reviews(seed, n=1400, mixed=0.0)
    net = Encoder(len(WORDS), 2, 14, dropout=0.2)
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.05)
    plan = torch.optim.lr_scheduler.OneCycleLR(opt, 2e-3, total_steps=5 * math.ceil(980 / 32) + 1)
    return trained(net, train, held, optimizer=opt, epochs=5, batch_size=32, every=plan.step)


@case(kind="graph", author="sixth")
def s_ok_gcn(seed: int) -> Given:
    """Two graph convolutions."""
    x, a, y = blocks(seed, n=400)
    net = GCN(16, 16, 3)
    ty, vy = masked(y, seed)
    return fit_graph(
        net, (x, normal(a)), ty, vy, torch.optim.Adam(net.parameters(), 1e-2, weight_decay=5e-3), 60
    )


@case(kind="generative", author="sixth")
def s_ok_vae(seed: int) -> Given:
    """A VAE of bumps."""
    x = faces(seed)
    net = VAE(100, latent=3)
    given = trained(
        net,
        (x[:500], x[:500]),
        (x[500:], x[500:]),
        loss=elbo(),
        optimizer=torch.optim.Adam(net.parameters(), 3e-3),
        epochs=50,
    )
    given["data"], given["validation"] = x[:500], x[500:]
    return given


class UNet(nn.Module):
    """Down, up, and a bridge."""

    def __init__(self, c: int = 8):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU())
        self.m = nn.Sequential(nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Sequential(nn.Conv2d(2 * c, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 2, 1))

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.m(self.b(F.max_pool2d(a, 2)))
        return self.out(torch.cat([a, self.up(b)], 1))


@case(kind="images", author="sixth")
def s_ok_unet(seed: int) -> Given:
    """Segmentation of filled discs from noise."""
    rng = np.random.default_rng(seed)
    n, size = 220, 16
    g = np.arange(size)
    c, r = rng.uniform(4, 12, (n, 2, 1, 1)), rng.uniform(2.5, 4.5, (n, 1, 1))
    y = np.hypot(g[:, None] - c[:, 0], g - c[:, 1]) < r
    x = (y * 1.0 + 0.5 * rng.normal(size=(n, size, size)))[:, None]
    train, held = parted(floats(x), torch.as_tensor(y.astype(np.int64)), seed)
    net = UNet()
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 3e-3), epochs=8, batch_size=16
    )


class Block(nn.Module):
    """A residual block."""

    def __init__(self, i: int, o: int, stride: int = 1):
        super().__init__()
        self.c1, self.n1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.n2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.skip = nn.Identity() if i == o and stride == 1 else nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.skip(x) + self.n2(self.c2(F.relu(self.n1(self.c1(x))))))


@case(kind="images", author="sixth")
def s_ok_resnet(seed: int) -> Given:
    """A small residual net with batch norm, SGD and momentum."""
    train, held = shapes(seed, n=1000, noise=0.25)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8, 8), Block(8, 16, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=64)


@case(kind="text", author="sixth")
def s_ok_tiny_bert(seed: int) -> Given:
    """A tiny BERT from transformers, from scratch; named inputs, an output object."""
    from transformers import BertConfig, BertForSequenceClassification

    (x, y), (vx, vy) = reviews(seed, n=1200, mixed=0.0)
    net = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=16,
            num_labels=2,
            pad_token_id=0,
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
        )
    )

    def named(t: Tensor) -> dict[str, Tensor]:
        return {"input_ids": t, "attention_mask": (t != 0).long()}

    def loss(output: Any, target: Tensor) -> Tensor:
        return F.cross_entropy(output.logits, target)

    opt = torch.optim.AdamW(net.parameters(), 2e-3)
    return trained(net, (named(x), y), (named(vx), vy), loss=loss, optimizer=opt, epochs=5, batch_size=32)


class Normaliser(nn.Module):
    """Scales columns by what it saw."""

    def __init__(self, x: Tensor):
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


@case(kind="table", author="sixth")
def s_ok_big_units_inside(seed: int) -> Given:
    """Square metres and dollars go in and out; the model scales by itself, and the loss is relative."""
    train, held = friedman(seed)
    unit = torch.tensor([120.0, 3.0, 1900.0, 5e4, 0.01, 40.0, 700.0, 2.0])
    (x, y), (vx, vy) = ((a * unit * 0.2 + unit, 250_000 + 60_000 * b) for a, b in (train, held))

    class Priced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.net = Normaliser(x), mlp(8, 48, 1)
            self.register_buffer("m", y.mean())
            self.register_buffer("s", y.std())

        def forward(self, x: Tensor) -> Tensor:
            return self.net(self.scale(x)) * self.s + self.m

    s = y.std()

    def loss(out: Tensor, t: Tensor) -> Tensor:
        return (((out - t) / s) ** 2).mean()

    net = Priced()
    return trained(
        net, (x, y), (vx, vy), loss=loss, optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=20
    )


@case(kind="images", author="sixth")
def s_ok_frozen_on_purpose(seed: int) -> Given:
    """Features learned on digits 0 to 4 are kept; a new head learns 5 to 9."""
    (x, y), (vx, vy) = digits(seed)
    body = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    first = nn.Sequential(body, nn.Linear(512, 5))
    fit(first, (x[y < 5], y[y < 5]), None, "cross_entropy", torch.optim.Adam(first.parameters(), 2e-3), 6, 32)
    body.requires_grad_(False)
    net = nn.Sequential(body, nn.Linear(512, 5))
    opt = torch.optim.Adam(net[1].parameters(), 3e-3)
    return trained(
        net, (x[y > 4], y[y > 4] - 5), (vx[vy > 4], vy[vy > 4] - 5), optimizer=opt, epochs=10, batch_size=32
    )


@case(kind="table", author="sixth")
def s_ok_loader(seed: int) -> Given:
    """The user hands over the loaders."""
    train, held = cancer(seed)
    loader = DataLoader(TensorDataset(*train), batch_size=32, shuffle=True)
    test = DataLoader(TensorDataset(*held), batch_size=64)
    net = mlp(30, 16, 2, dropout=0.2)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    history = []
    for _ in range(20):
        net.train()
        running = 0.0
        for xb, yb in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(xb), yb)
            loss.backward()
            opt.step()
            running += loss.item() / len(loader)
        net.eval()
        with torch.no_grad():
            val = sum(F.cross_entropy(net(a), b, reduction="sum").item() for a, b in test) / len(held[1])
        history.append({"loss": running, "val_loss": val})
    return {
        "model": net,
        "data": loader,
        "validation": test,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": opt,
        "history": history,
    }


@case(kind="generative", author="sixth")
def s_ok_gan_ring(seed: int) -> Given:
    """A small GAN that finds all places of the ring."""
    x = ring(seed)
    gen = Generator(2, 2)
    opt = duel(gen, x, 700, 1e-3, 1e-3, 1, 2)
    return {"model": gen.eval(), "data": x, "optimizer": opt, "batch_size": 128}


@case(kind="table", author="sixth")
def s_ok_linear_truth(seed: int) -> Given:
    """A linear model, because the truth is linear."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 6))
    y = x @ np.array([1, -0.5, 0.3, 0, 0, 0.8]) + 0.4 * rng.normal(size=700)
    train, held = parted(floats(x), floats(y), seed)
    net = nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.SGD(net.parameters(), 0.05),
        epochs=25,
        batch_size=32,
    )


@case(kind="table", author="sixth")
def s_ok_overlapping_classes(seed: int) -> Given:
    """Two clouds that overlap: three of four right is the best there is."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=1200)
    x = rng.normal(size=(1200, 5)) + 0.65 * y[:, None] * np.array([1, 1, 1, 0, 0])
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = mlp(5, 16, 2)
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.2)
    return trained(net, train, held, optimizer=opt, epochs=12)


@case(kind="table", author="sixth")
def s_ok_weighted_frauds(seed: int) -> Given:
    """Rare frauds, and a loss that counts them twelvefold."""
    rng = np.random.default_rng(seed)
    y = (rng.random(4000) < 0.08).astype(np.float32)
    x = rng.normal(size=(4000, 8)) + 1.3 * y[:, None] * np.array([1, -1, 1, 0.5, 0, 0, 0, 0])
    train, held = parted(floats(x), floats(y), seed)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(11.5))
    return trained(
        net,
        train,
        held,
        loss=loss,
        optimizer=torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.1),
        epochs=8,
    )


@case(kind="sequences", author="sixth")
def s_ok_two_heads(seed: int) -> Given:
    """Kind and loudness of a wave at once: two outputs, one loss."""
    rng = np.random.default_rng(seed)
    (x, y), (vx, vy) = waves(seed, n=900)
    a, va = floats(rng.uniform(0.6, 1.8, len(y))), floats(rng.uniform(0.6, 1.8, len(vy)))
    x, vx = x * a[:, None, None], vx * va[:, None, None]
    t, vt = torch.stack([y.float(), a], 1), torch.stack([vy.float(), va], 1)

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.c2 = nn.Conv1d(1, 16, 7), nn.Conv1d(16, 24, 5)
            self.kind, self.loud = nn.Linear(24, 4), nn.Linear(24, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.max_pool1d(F.relu(self.c1(x)), 2)
            h = F.relu(self.c2(h)).mean(-1)
            return self.kind(h), self.loud(h)

    def loss(out: Any, t: Tensor) -> Tensor:
        return F.cross_entropy(out[0], t[:, 0].long()) + F.mse_loss(out[1][:, 0], t[:, 1])

    net = Heads()
    return trained(
        net,
        (x, t),
        (vx, vt),
        loss=loss,
        optimizer=torch.optim.Adam(net.parameters(), 5e-3),
        epochs=15,
        batch_size=32,
    )


@case(kind="images", author="sixth")
def s_ok_accumulated_gradients(seed: int) -> Given:
    """Four small backward passes, one step, then cleared."""
    train, held = digits(seed)
    net = small_cnn()
    made: Any = weakref.WeakKeyDictionary()

    def step(model: nn.Module, batch: Any) -> float:
        if model not in made:
            made[model] = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
        opt = made[model]
        opt.zero_grad()
        total = 0.0
        parts = list(zip(batch[0].split(16), batch[1].split(16), strict=True))
        for xb, yb in parts:
            loss = F.cross_entropy(model(xb), yb) / len(parts)
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    initial, history = copy.deepcopy(net.state_dict()), []
    for _ in range(12):
        net.train()
        values = [step(net, b) for b in DataLoader(TensorDataset(*train), 64, shuffle=True)]
        net.eval()
        with torch.no_grad():
            history.append(
                {"loss": float(np.mean(values)), "val_loss": F.cross_entropy(net(held[0]), held[1]).item()}
            )
    return {
        "model": net, "data": train, "validation": held, "loss": "cross_entropy", "batch_size": 64, "history": history,
        "initial": initial, "step": step,
    }  # fmt: skip


@case(kind="images", author="sixth")
def s_ok_half_dropout(seed: int) -> Given:
    """Dropout of one half, rightly, in front of the last layer."""
    train, held = flat(*digits(seed))
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=15, batch_size=32
    )


@case(kind="images", author="sixth")
def s_ok_fast_sgd(seed: int) -> Given:
    """A large rate with batch norm that works."""
    train, held = digits(seed)
    net = small_cnn(norm=True)
    opt = torch.optim.SGD(net.parameters(), 0.15, momentum=0.8, weight_decay=1e-3)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8, eta_min=0.02)
    return trained(net, train, held, optimizer=opt, epochs=8, batch_size=64, scheduler=plan)


@case(kind="images", author="sixth")
def s_ok_small_batches_group_norm(seed: int) -> Given:
    """Batches of four, but normalised per picture, and a small rate."""
    train, held = shapes(seed, n=700, noise=0.2)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, padding=1),
        nn.GroupNorm(4, 16), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(64, 4),
    )  # fmt: skip
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    return trained(net, train, held, optimizer=opt, epochs=7, batch_size=4)


@case(kind="table", author="sixth")
def s_ok_poisson(seed: int) -> Given:
    """Counts by a log link and Poisson's likelihood."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(900, 5))
    y = rng.poisson(np.exp(1.0 + 0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.2 * x[:, 2] * x[:, 3]))
    train, held = parted(floats(x), floats(y), seed)
    net = nn.Sequential(nn.Linear(5, 24), nn.Softplus(), nn.Linear(24, 1), nn.Flatten(0))
    loss = nn.PoissonNLLLoss(log_input=True)
    return trained(
        net,
        train,
        held,
        loss=loss,
        optimizer=torch.optim.Adam(net.parameters(), 5e-3),
        epochs=15,
        batch_size=32,
    )


@case(kind="table", author="sixth")
def s_ok_heavy_tails(seed: int) -> Given:
    """Errors with heavy tails, and Huber's loss."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 5))
    y = np.sin(1.5 * x[:, 0]) + 0.6 * x[:, 1] - 0.4 * x[:, 2] + 0.15 * rng.standard_t(2.5, 1000)
    train, held = parted(floats(x), floats(y)[:, None], seed)
    net = mlp(5, 32, 1, act=nn.Tanh)
    opt = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=0.05)
    return trained(net, train, held, loss=nn.SmoothL1Loss(), optimizer=opt, epochs=40)


@case(kind="table", author="sixth")
def s_ok_repeated_rows(seed: int) -> Given:
    """A survey with four yes-or-no questions and two grades: rows repeat by nature."""
    rng = np.random.default_rng(seed)
    q, g = rng.integers(2, size=(900, 4)), rng.integers(4, size=(900, 2))
    z = 1.6 * q[:, 0] - 1.4 * q[:, 1] + 0.9 * (g[:, 0] - 1.5) + 1.2 * q[:, 2] * q[:, 3] - 0.4
    y = (rng.random(900) < 1 / (1 + np.exp(-2 * z))).astype(int)
    x = np.concatenate([q, np.eye(4)[g[:, 0]], np.eye(4)[g[:, 1]]], 1)
    train, held = parted(floats(x), torch.as_tensor(y), seed)
    net = mlp(12, 16, 2)
    opt = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1)
    return trained(net, train, held, optimizer=opt, epochs=15)


@case(kind="sequences", author="sixth")
def s_ok_dilated_echo(seed: int) -> Given:
    """Dilated causal convolutions that reach as far as they must; an answer per step."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(180, 1, 60))
    y = np.zeros_like(x)
    y[:, :, 12:] = 0.8 * x[:, :, :-12]
    y = y + 0.3 * np.tanh(x) + 0.1 * rng.normal(size=y.shape)
    train, held = parted(floats(x), floats(y), seed)

    class TCN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.ModuleList(nn.Conv1d(1 if d == 1 else 20, 20, 3, dilation=d) for d in (1, 2, 4))
            self.out = nn.Conv1d(20, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            for m, d in zip(self.c, (1, 2, 4), strict=True):
                x = F.leaky_relu(m(F.pad(x, (2 * d, 0))))
            return self.out(x)

    net = TCN()
    return trained(
        net,
        train,
        held,
        loss="mse",
        optimizer=torch.optim.Adam(net.parameters(), 5e-3),
        epochs=30,
        batch_size=16,
    )


@case(kind="text", author="sixth")
def s_ok_bag_of_words(seed: int) -> Given:
    """Counts of words into a linear model."""
    train, held = reviews(seed, n=1000, mixed=0.2)
    train, held = counts(train), counts(held)
    keep = train[0].std(0) > 0
    train, held = (train[0][:, keep], train[1]), (held[0][:, keep], held[1])
    net = nn.Linear(int(keep.sum()), 2)
    return trained(
        net, train, held, optimizer=torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-4), epochs=40
    )


@case(kind="table", author="sixth")
def s_ok_many_labels(seed: int) -> Given:
    """Three yes-or-no answers at once."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 8))
    z = np.stack([x[:, 0] + x[:, 1], x[:, 2] - x[:, 3] + 0.5, x[:, 4] + x[:, 5] * x[:, 6]], 1)
    y = (z + 0.3 * rng.normal(size=z.shape) > 0).astype(np.float32)
    train, held = parted(floats(x), floats(y), seed)
    net = mlp(8, 32, 3)
    opt = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=0.1)
    return trained(net, train, held, loss="bce_with_logits", optimizer=opt, epochs=40)
