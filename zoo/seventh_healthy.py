"""The seventh author's healthy set-ups: nothing is wrong with them, though some look odd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.seventh_course import Echo, Hops
from zoo.seventh_parts import *
from zoo.seventh_start import Total, run_loop

ME = "seventh"


@case(kind="images", author=ME)
def seventh_well_digits(seed: int) -> dict[str, Any]:
    """A small convolutional network on digits, with shifts of a pixel as augmentation."""
    train, held = digits(seed)

    def shifted(x: Tensor) -> Tensor:
        return x.roll(int(torch.randint(-1, 2, ())), 3)

    model = Cnn()
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=10, augment=shifted)


@case(kind="images", author=ME)
def seventh_well_pretrained_trunk(seed: int) -> dict[str, Any]:
    """A trunk trained on digits 0 to 4 and frozen on purpose; only the head learns 5 to 9."""
    (x, y), (vx, vy) = digits(seed, 1200)
    model = Cnn(5)
    low = y < 5
    fit(model, (x[low], y[low]), loss="cross_entropy", optimizer=adam(model), epochs=8)
    model.requires_grad_(False)
    model.head = nn.Linear(96, 5)
    keep = vy >= 5
    optimizer = torch.optim.Adam(model.head.parameters(), 1e-2)
    return fit(
        model,
        (x[~low], y[~low] - 5),
        (vx[keep], vy[keep] - 5),
        loss="cross_entropy",
        optimizer=optimizer,
        epochs=15,
    )


@case(kind="table", author=ME)
def seventh_well_repeated_rows(seed: int) -> dict[str, Any]:
    """A survey of four coarse answers: the same rows come again and again, in both parts, by nature."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, size=(1500, 4))
    logit = 0.8 * (x[:, 0] - 1.5) + 0.6 * (x[:, 1] - 1.5) * (x[:, 2] > 1) - 0.5 * (x[:, 3] - 1.5)
    y = (logit + rng.logistic(size=1500) * 0.6 > 0).astype(np.int64)
    x = torch.from_numpy((x - 1.5) / 1.1).float()
    model = mlp(4, 16, 2)
    train, held = (x[:1000], torch.from_numpy(y[:1000])), (x[1000:], torch.from_numpy(y[1000:]))
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=12)


@case(kind="table", author=ME)
def seventh_well_overlapping_classes(seed: int) -> dict[str, Any]:
    """Two classes that overlap: seven in ten is the best that can be had, and it is had."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=2000)
    x = torch.from_numpy(
        rng.normal(size=(2000, 6)) + 0.25 * (2 * y[:, None] - 1) * (np.arange(6) < 4)
    ).float()
    labels = torch.from_numpy(y)
    model = mlp(6, 12, 2)
    train, held = (x[:1400], labels[:1400]), (x[1400:], labels[1400:])
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 2e-3, weight_decay=1e-3), epochs=8
    )


@case(kind="table", author=ME)
def seventh_well_heavy_tails(seed: int) -> dict[str, Any]:
    """Columns with Student tails of four degrees, Huber loss."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(4, size=(1500, 6))
    y = np.tanh(x[:, 0]) + 0.5 * np.clip(x[:, 1], -2, 2) + 0.2 * rng.standard_t(4, size=1500)
    inputs, target = torch.from_numpy(x / x[:1000].std(0)).float(), torch.from_numpy(y).float()[:, None]
    model = mlp(6, 32, 1)
    return fit(
        model,
        (inputs[:1000], target[:1000]),
        (inputs[1000:], target[1000:]),
        loss=nn.HuberLoss(),
        optimizer=adam(model),
        epochs=15,
    )


@case(kind="images", author=ME)
def seventh_well_fast_sgd(seed: int) -> dict[str, Any]:
    """SGD with a step of 0.3 and a cosine schedule on normalised layers: fast, not too fast."""
    train, held = digits(seed)
    model = Cnn()
    optimizer = sgd(model, 0.3, 0.0, nesterov=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=optimizer,
        epochs=8,
        schedule=schedule,
        less=("optimizer",),
    )


@case(kind="images", author=ME)
def seventh_well_untrained_network(seed: int) -> dict[str, Any]:
    """A network as it was made, asked about before training."""
    train, held = digits(seed)
    return {"model": Cnn().eval(), "data": train, "validation": held, "loss": "cross_entropy"}


@case(kind="table", author=ME)
def seventh_well_untrained_columns(seed: int) -> dict[str, Any]:
    """The customer network before training, with the optimiser it will have."""
    train, held = churn(seed)
    model = Columns()
    return {
        "model": model.eval(),
        "data": train,
        "validation": held,
        "loss": "bce_with_logits",
        "optimizer": adam(model),
        "batch_size": 64,
    }


@case(kind="table", author=ME)
def seventh_well_weighted_fraud(seed: int) -> dict[str, Any]:
    """Five rows in a hundred are fraud, and the loss is weighted so that they are found."""
    rng = np.random.default_rng(seed + 9)
    label = (rng.random(3000) < 0.05).astype(np.float32)
    x = torch.from_numpy(rng.normal(size=(3000, 10)) + 1.3 * label[:, None] * (np.arange(10) < 4)).float()
    y = torch.from_numpy(label)
    model = nn.Sequential(mlp(10, 16, 1), nn.Flatten(0))
    loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(10.0))
    return fit(
        model, (x[:2000], y[:2000]), (x[2000:], y[2000:]), loss=loss, optimizer=adam(model, 2e-3), epochs=8
    )


@case(kind="text", author=ME)
def seventh_well_oversampled_topic(seed: int) -> dict[str, Any]:
    """A topic of one document in twelve; its training documents are repeated after the split."""
    (ids, y), held = topics(seed, 1600, classes=2, share=0.4)
    few = torch.nonzero(y == 1)[:50, 0]
    many = torch.nonzero(y == 0)[:, 0]
    index = torch.cat([many, few.repeat(8)])
    index = index[torch.randperm(len(index))]
    model = Bag(classes=2, drop=0.3)
    return fit(
        model, (ids[index], y[index]), held, loss="cross_entropy", optimizer=adam(model, 3e-3), epochs=6
    )


@case(kind="table", author=ME)
def seventh_well_small_data(seed: int) -> dict[str, Any]:
    """Wine, all of it: 124 rows, a small network, a little decay."""
    train, held = table("wine", seed)
    model = mlp(13, 16, 3)
    return fit(
        model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.03, weight_decay=1e-3), epochs=20
    )


@case(kind="table", author=ME)
def seventh_well_ridge_on_few_rows(seed: int) -> dict[str, Any]:
    """Forty columns, 120 noisy rows: a strong penalty is what they need."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(420, 40))
    y = x @ (rng.normal(size=40) * 0.16) + 0.8 * rng.normal(size=420)
    inputs, target = torch.from_numpy(x).float(), torch.from_numpy(y).float()[:, None]
    model = nn.Linear(40, 1)
    optimizer = sgd(model, 0.02, 0.9, weight_decay=0.3)
    return fit(
        model,
        (inputs[:120], target[:120]),
        (inputs[120:], target[120:]),
        loss="mse",
        optimizer=optimizer,
        epochs=40,
        batch_size=120,
    )


@case(kind="table", author=ME)
def seventh_well_noisy_regression(seed: int) -> dict[str, Any]:
    """Diabetes: half of the variance is all there is."""
    train, held = table("diabetes", seed)
    model = mlp(10, 12, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model, weight_decay=1e-2), epochs=12)


class Tags(nn.Module):
    """Several yes-or-no tags of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.EmbeddingBag(120, 24), nn.Linear(24, 5)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a logit per tag."""
        return self.head(self.words(ids))


@case(kind="text", author=ME)
def seventh_well_several_tags(seed: int) -> dict[str, Any]:
    """Five tags, each by its own words, any number at once; the labels are floats."""
    rng = np.random.default_rng(seed)
    y = (rng.random((1500, 5)) < 0.4).astype(np.float32)
    ids = rng.integers(51, 120, size=(1500, 24))
    for tag in range(5):
        place = rng.integers(0, 24, size=(1500, 3))
        word = rng.integers(1 + 10 * tag, 11 + 10 * tag, size=(1500, 3))
        for k in range(3):
            row = np.flatnonzero(y[:, tag])
            ids[row, place[row, k]] = word[row, k]
    x, target = torch.from_numpy(ids).long(), torch.from_numpy(y)
    model = Tags()
    return fit(
        model,
        (x[:1000], target[:1000]),
        (x[1000:], target[1000:]),
        loss="bce_with_logits",
        optimizer=adam(model, 1e-2),
        epochs=12,
    )


@case(kind="generative", author=ME)
def seventh_well_autoencoder(seed: int) -> dict[str, Any]:
    """An autoencoder of digits with a code of sixteen: narrow on purpose, and wide enough."""
    (x, _), (vx, _) = digits(seed, flat=True)
    model = nn.Sequential(*mlp(64, 96, 16, 96, 64), nn.Sigmoid())
    return fit(model, (x, x), (vx, vx), loss="mse", optimizer=adam(model), epochs=25)


@case(kind="generative", author=ME)
def seventh_well_vae(seed: int) -> dict[str, Any]:
    """A variational autoencoder of digits whose code is used."""
    (x, _), (vx, _) = digits(seed, flat=True)
    model = Vae(code=3)
    return fit(model, x, vx, loss=elbo(noise=0.05), optimizer=adam(model), epochs=30)


@case(kind="generative", author=ME)
def seventh_well_gan(seed: int) -> dict[str, Any]:
    """A generator that covers all four heaps."""
    x = ring(seed, modes=4, spread=0.35)
    model = Gan(noise=8)
    play(model, x, 700, own=2)
    return {"model": model, "data": x, "batch_size": 128}


@case(kind="graph", author=ME)
def seventh_well_communities(seed: int) -> dict[str, Any]:
    """A two-layer graph network on communities."""
    features, adjacency, train, held = communities(seed)
    model = Gcn(features, adjacency, 2, 16)
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 1e-2, weight_decay=1e-4), epochs=25
    )


@case(kind="graph", author=ME)
def seventh_well_three_hops(seed: int) -> dict[str, Any]:
    """Three averages over neighbours, which help, then a small network."""
    features, adjacency, train, held = communities(seed, 400)
    model = Hops(features, adjacency, 3)
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 1e-2), epochs=15, less=("initial",)
    )


@case(kind="graph", author=ME)
def seventh_well_molecules(seed: int) -> dict[str, Any]:
    """Whole graphs as (features, adjacency)."""
    train, held = molecules(seed)
    model = GraphNet()
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=35)


@case(kind="text", author=ME)
def seventh_well_transformer(seed: int) -> dict[str, Any]:
    """A small transformer, AdamW with a decay of 0.05, clipping, label smoothing."""
    train, held = ordered(seed)
    model = Attention(drop=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    return fit(model, train, held, loss=smooth(0.05), optimizer=optimizer, epochs=12, clip=1.0)


@case(kind="text", author=ME)
def seventh_well_gru(seed: int) -> dict[str, Any]:
    """A recurrent classifier, without a history."""
    train, held = ordered(seed)
    model = Gru()
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=adam(model),
        epochs=10,
        less=("history", "initial"),
    )


@case(kind="table", author=ME)
def seventh_well_one_epoch(seed: int) -> dict[str, Any]:
    """Forty thousand rows seen once."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(44_000, 8)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] + x[:, 2] + 0.5 * rng.logistic(size=44_000) > 0).astype(np.int64)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    model = mlp(8, 32, 32, 2)
    return fit(
        model,
        (inputs[:40_000], labels[:40_000]),
        (inputs[40_000:], labels[40_000:]),
        loss="cross_entropy",
        optimizer=adam(model, 5e-3),
        epochs=1,
        batch_size=128,
    )


@case(kind="table", author=ME)
def seventh_well_churn(seed: int) -> dict[str, Any]:
    """Numbers and categories, stopped before it learns by heart, dropout of 0.2."""
    train, held = churn(seed)
    model = Columns(drop=0.2)
    return fit(model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=8)


@case(kind="sequences", author=ME)
def seventh_well_forecast(seed: int) -> dict[str, Any]:
    """Windows of a series, the later part held out."""
    train, held = series(seed)
    model = mlp(24, 24, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=15)


@case(kind="sequences", author=ME)
def seventh_well_traces(seed: int) -> dict[str, Any]:
    """Traces of three kinds, RMSprop, no held-out rows."""
    train, _ = waves(seed)
    model = Traces()
    optimizer = torch.optim.RMSprop(model.parameters(), 3e-3)
    return fit(model, train, loss="cross_entropy", optimizer=optimizer, epochs=12)


@case(kind="sequences", author=ME)
def seventh_well_echo(seed: int) -> dict[str, Any]:
    """Dilated convolutions that see far enough, a value per place."""
    x = torch.randn(500, 40)
    y = F.pad(x, (6, 0))[:, :40] * 0.9 + 0.3 * x + 0.2 * torch.randn(500, 40)
    model = Echo(4, True)
    return fit(model, (x[:350], y[:350]), (x[350:], y[350:]), loss="mse", optimizer=adam(model), epochs=15)


@case(kind="sequences", author=ME)
def seventh_well_clipped_recurrence(seed: int) -> dict[str, Any]:
    """A ReLU recurrence of gain one over 30 steps, clipped."""
    x = torch.randn(900, 30) * 0.5
    y = x.sum(1, keepdim=True) / 2.7
    model = Total(1.0)
    return fit(
        model,
        (x[:600], y[:600]),
        (x[600:], y[600:]),
        loss="mse",
        optimizer=adam(model, 1e-3),
        epochs=30,
        clip=1.0,
    )


@case(kind="sets", author=ME)
def seventh_well_clouds(seed: int) -> dict[str, Any]:
    """A network of sets."""
    train, held = clouds(seed)
    model = DeepSet()
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=25, less=("optimizer",)
    )


@case(kind="sets", author=ME)
def seventh_well_two_towers(seed: int) -> dict[str, Any]:
    """Users and items as a tuple, L1 loss."""
    train, held = visits(seed)
    model = Towers()
    return fit(model, train, held, loss=nn.L1Loss(), optimizer=adam(model), epochs=15)


@case(kind="table", author=ME)
def seventh_well_loop_of_ones_own(seed: int) -> dict[str, Any]:
    """The user's own loop, gradients cleared."""
    train, held = houses(seed)
    return run_loop(mlp(8, 32, 1), train, held, "mse", lambda m: adam(m, 5e-3), 1, 15)


@case(kind="text", author=ME)
def seventh_well_bag_without_settings(seed: int) -> dict[str, Any]:
    """A bag of words, handed over with its data and nothing else."""
    train, held = topics(seed, share=0.4)
    model = Bag()
    given = fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=11)
    return {key: given[key] for key in ("model", "data", "validation")}
