"""The eighth author's healthy set-ups, many of which look wrong at first sight."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eighth_model import loop, spikes, stepper
from zoo.eighth_parts import (
    VAE,
    Convolved,
    DeepSet,
    Net,
    Recurrent,
    Signal,
    Transformer,
    adam,
    blobs,
    citations,
    cnn,
    diabetes,
    digits,
    evidence,
    fit,
    forecast,
    friedman,
    matched,
    mlp,
    molecules,
    moons,
    real,
    reviews,
    ring,
    scaled,
    sets,
    sgd,
    split,
    topics,
    waves,
)

case = partial(case, author="eighth")
Built = dict[str, Any]


@case(kind="table")
def course_fine_wine(seed: int) -> Built:
    """The first exercise, done right."""
    train, test = real("wine", seed)
    return fit(mlp(13, 16, 3), train, test, epochs=40, optimizer=adam(5e-3, 1e-3))


@case(kind="images")
def course_fine_transfer(seed: int) -> Built:
    """An encoder trained on other images, frozen on purpose, and a new head."""
    (x, y), test = digits(seed)
    encoder = nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    fit(Net(encoder, nn.Linear(48, 10)), (x[:700], y[:700]), epochs=15)
    encoder.requires_grad_(False)
    return fit(Net(encoder, nn.Linear(48, 10)), (x[700:], y[700:]), test, epochs=20, optimizer=adam(5e-3))


@case(kind="text")
def course_fine_frozen_vectors(seed: int) -> Built:
    """Word vectors taken from another corpus and kept."""
    first, _ = topics(seed + 50, classes=4)
    source = Recurrent(inputs=16, hidden=24, outputs=4, words=60)
    fit(source, first, optimizer=adam(1e-2), epochs=10, batch=64)
    train, test = topics(seed, classes=4)
    model = Recurrent(inputs=16, hidden=24, outputs=4, words=60)
    model.embed.weight.data.copy_(source.embed.weight.data)
    model.embed.weight.requires_grad_(False)
    return fit(model, train, test, epochs=12, batch=64, optimizer=adam(5e-3), give="voib")


@case(kind="table")
def course_fine_repeated_rows(seed: int) -> Built:
    """A survey of five yes-no and three-way questions: rows repeat, in both parts, because there are few answers."""
    rng = np.random.default_rng(seed)
    answers = np.stack([rng.integers(0, k, 900) for k in (2, 3, 2, 3, 2)], 1)
    x = np.concatenate([np.eye(k)[answers[:, i]] for i, k in enumerate((2, 3, 2, 3, 2))], 1)
    chance = 1 / (
        1 + np.exp(-(2.5 * (answers[:, 0] - 0.5) + 1.5 * (answers[:, 1] - 1) * (answers[:, 3] - 1)))
    )
    y = (rng.random(900) < chance).astype(int)
    train, test = split(x - 0.4, y, seed)
    return fit(mlp(12, 16, 2), train, test, epochs=15, optimizer=adam(3e-3, 1e-3))


@case(kind="table")
def course_fine_overlapping_classes(seed: int) -> Built:
    """Two clouds that overlap: four in five is all that can be had."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 900)
    x = rng.normal(size=(900, 5)) + 0.4 * (2 * y[:, None] - 1) * np.array([1, 1, -1, 1, 0.5])
    train, test = split(x, y.astype(float), seed)
    return fit(mlp(5, 8, 1), train, test, loss="bce_with_logits", epochs=15, optimizer=adam(3e-3, 1e-3))


@case(kind="table")
def course_fine_heavy_tails(seed: int) -> Built:
    """Inputs and noise with heavy tails, and a Huber loss because of it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, (900, 6))
    y = np.tanh(x[:, 0]) + 0.5 * np.clip(x[:, 1], -2, 2) + 0.15 * rng.standard_t(3, 900)
    train, test = scaled(*split(x, y, seed))
    return fit(
        mlp(6, 24, 1),
        train,
        test,
        loss=lambda o, t: F.huber_loss(o.reshape(t.shape), t),
        epochs=25,
        give="vohb",
    )


@case(kind="images")
def course_fine_fast_descent(seed: int) -> Built:
    """A large but right rate with momentum; the loss wiggles and ends low."""
    train, test = digits(seed)
    return fit(cnn(norm=True), train, test, epochs=10, batch=64, optimizer=sgd(0.15, 0.9))


@case(kind="sequences")
def course_fine_untrained(seed: int) -> Built:
    """A forecaster that was not trained yet."""
    train, test = forecast(seed)
    return {"model": Recurrent(hidden=16, outputs=1).eval(), "data": train, "validation": test, "loss": "mse"}


@case(kind="images")
def course_fine_untrained_cnn(seed: int) -> Built:
    """A fresh CNN and its data, without anything else."""
    train, _ = digits(seed)
    return {"model": cnn(norm=True).eval(), "data": train, "loss": "cross_entropy"}


@case(kind="table")
def course_fine_imbalance_weighted(seed: int) -> Built:
    """Six rows in a hundred are positive, well apart, and the loss is weighted."""
    rng = np.random.default_rng(seed)
    y = (rng.random(1500) < 0.06).astype(int)
    x = rng.normal(size=(1500, 8)) + 1.5 * y[:, None] * np.array([1, -1, 1, -1, 1, 0, 0, 0])
    train, test = split(x, y, seed)
    weight = torch.tensor([1.0, 6.0])
    return fit(mlp(8, 16, 2), train, test, loss=nn.CrossEntropyLoss(weight), epochs=12, batch=64)


@case(kind="table")
def course_fine_imbalance_separable(seed: int) -> Built:
    """Five in a hundred, and both classes are found without any weight."""
    rng = np.random.default_rng(seed)
    y = (rng.random(2400) < 0.05).astype(int)
    x = rng.normal(size=(2400, 6)) + 3.0 * y[:, None] * np.array([1, -1, 1, 0, 0, 0])
    train, test = split(x, y, seed)
    return fit(mlp(6, 16, 2), train, test, epochs=12, give="vob")


@case(kind="table")
def course_fine_forty_flowers(seed: int) -> Built:
    """Very few rows, a very small net, stopped in time."""
    (x, y), test = real("iris", seed)
    return fit(mlp(4, 6, 3), (x[:45], y[:45]), test, epochs=40, batch=16, optimizer=adam(1e-2, 1e-2))


@case(kind="images")
def course_fine_strong_regularisation(seed: int) -> Built:
    """Noisy digits: dropout of one half and decay, which is right here."""
    (x, y), (u, v) = digits(seed)
    x, u = x + 0.5 * torch.randn_like(x), u + 0.5 * torch.randn_like(u)
    model = nn.Sequential(nn.Flatten(), mlp(64, 96, 10, drop=0.5))
    return fit(model, (x, y), (u, v), epochs=12, optimizer=adam(2e-3, 1e-3))


@case(kind="sequences")
def course_fine_gru(seed: int) -> Built:
    """A forecaster with gradient clipping."""
    train, test = forecast(seed)
    return fit(
        Recurrent(hidden=16, outputs=1),
        train,
        test,
        loss="mse",
        epochs=20,
        batch=64,
        optimizer=adam(5e-3),
        norm=1.0,
    )


@case(kind="text")
def course_fine_transformer(seed: int) -> Built:
    """A small transformer with a little dropout."""
    train, test = reviews(seed)
    return fit(Transformer(drop=0.1), train, test, epochs=6, give="vohb")


@case(kind="graph")
def course_fine_two_graph_layers(seed: int) -> Built:
    """Two graph convolutions."""
    train, test = citations(seed)
    return fit(
        Convolved(16, 12, 4), train, test, epochs=60, batch=None, optimizer=adam(1e-2, 2e-3), give="vohi"
    )


class Residual(nn.Module):
    """Eight graph layers that add to their input."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(16, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        h = first = self.start(x).relu()
        for layer in self.layers:
            h = h + 0.2 * (a @ layer(h)).relu() + 0.1 * first
        return self.head(h)


@case(kind="graph")
def course_fine_eight_residual_graph_layers(seed: int) -> Built:
    """Eight graph layers with skips: deep and not oversmoothed."""
    train, test = citations(seed, n=320, tell=1.0)
    return fit(Residual(), train, test, epochs=25, batch=None, optimizer=adam(5e-3, 1e-2), give="vo")


@case(kind="graph")
def course_fine_molecules(seed: int) -> Built:
    """Graph classification."""
    train, test = molecules(seed, n=1200)
    return fit(Convolved(3, 16, 2, pool=True), train, test, epochs=15, optimizer=adam(5e-3))


@case(kind="sets")
def course_fine_sets(seed: int) -> Built:
    """A deep set."""
    train, test = sets(seed, n=900)
    return fit(DeepSet(), train, test, epochs=25, batch=32, give="vob")


@case(kind="generative")
def course_fine_vae(seed: int) -> Built:
    """A VAE that uses its code."""
    (x, _), (u, _) = digits(seed, flat=True)
    return fit(VAE(), x, u, loss=evidence(), epochs=25, give="vohb")


@case(kind="generative")
def course_fine_generator(seed: int) -> Built:
    """A generator that covers all clumps of a ring."""
    x = ring(800, seed)
    return {"model": matched(x, 4, 64, 700), "data": x}


@case(kind="generative")
def course_fine_autoencoder(seed: int) -> Built:
    """An autoencoder with a code of sixteen."""
    (x, _), (u, _) = digits(seed, flat=True)
    return fit(mlp(64, 48, 16, 48, 64), (x, x), (u, u), loss="mse", epochs=25, give="vohb")


@case(kind="table")
def course_fine_half_explained(seed: int) -> Built:
    """Half of the variance is all that the diabetes table gives."""
    train, test = diabetes(seed)
    return fit(mlp(10, 12, 1), train, test, loss="mse", epochs=20, optimizer=adam(3e-3, 1e-2))


@case(kind="sequences")
def course_fine_wide_view(seed: int) -> Built:
    """Filters wide enough for the pattern."""
    train, test = spikes(seed)
    return fit(Signal((23, 3), 24, 2), train, test, epochs=20, optimizer=adam(5e-3), give="vob")


@case(kind="images")
def course_fine_rate_annealed_to_nothing(seed: int) -> Built:
    """A cosine schedule has ended: the rate in the optimiser is almost zero, as planned."""
    train, test = digits(seed)
    return fit(
        cnn(),
        train,
        test,
        epochs=12,
        optimizer=adam(5e-3),
        scheduler=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 12, 1e-6),
    )


@case(kind="table")
def course_fine_line(seed: int) -> Built:
    """A line for data on a line."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(500, 6))
    y = x @ np.array([1.0, -0.5, 0.3, 0, 0, 0.8]) + rng.normal(0, 0.4, 500)
    train, test = split(x, y, seed)
    return fit(nn.Linear(6, 1), train, test, loss="mse", epochs=30, optimizer=sgd(0.05))


@case(kind="table")
def course_fine_counts(seed: int) -> Built:
    """A Poisson regression: the net gives the logarithm of the rate."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(900, 5))
    y = rng.poisson(np.exp(0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.5)).astype(float)
    train, test = split(x, y, seed)
    loss = nn.PoissonNLLLoss()
    return fit(
        mlp(5, 12, 1), train, test, loss=lambda o, t: loss(o[:, 0], t), epochs=15, optimizer=adam(3e-3, 1e-3)
    )


@case(kind="table")
def course_fine_probabilities(seed: int) -> Built:
    """A sigmoid at the end and plain binary cross entropy, which belong together."""
    train, test = moons(seed, n=900, noise=0.25)
    train, test = (train[0], train[1].float()), (test[0], test[1].float())
    model = mlp(2, 24, 1, last=nn.Sigmoid())
    return fit(
        model,
        train,
        test,
        loss=lambda o, t: F.binary_cross_entropy(o[:, 0], t),
        epochs=30,
        optimizer=adam(1e-2),
        give="vob",
    )


@case(kind="sequences")
def course_fine_deep_and_normed(seed: int) -> Built:
    """Ten tanh layers with layer normalisation and skips."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Linear(40, 32)
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.Tanh()) for _ in range(10)
            )
            self.head = nn.Linear(32, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.start(x.flatten(1))
            for block in self.blocks:
                h = h + 0.3 * block(h)
            return self.head(h)

    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 900)
    t = np.arange(40)
    x = np.sin(2 * np.pi * t / np.where(y, 10, 14)[:, None]) + rng.normal(0, 0.8, (900, 40))
    train, test = split(x[..., None], y, seed)
    return fit(Deep(), train, test, epochs=6, optimizer=adam(1e-3, 1e-3))


@case(kind="table")
def course_fine_own_step(seed: int) -> Built:
    """The user's own step, with zero_grad in its place."""
    train, test = blobs(seed, n=900)
    step = stepper(sgd(0.1), F.cross_entropy, True)
    return loop(mlp(12, 24, 4), train, test, step, epochs=15, batch=32, loss="cross_entropy", give="vbh")


@case(kind="table")
def course_fine_tanh_for_bounded_targets(seed: int) -> Built:
    """A tanh at the end where the targets are correlations between -0.9 and 0.9."""
    (x, y), (u, v) = friedman(seed, n=1000)
    model = mlp(8, 32, 1, last=nn.Tanh())
    return fit(model, (x, (y * 0.8).tanh()), (u, (v * 0.8).tanh()), loss="mse", epochs=30, give="vohb")


@case(kind="sequences")
def course_fine_waves(seed: int) -> Built:
    """An LSTM that knows waves apart."""
    train, test = waves(seed, n=800)
    return fit(
        Recurrent("LSTM", hidden=24),
        train,
        test,
        epochs=25,
        batch=64,
        optimizer=adam(5e-3),
        give="vh",
        norm=1.0,
    )


@case(kind="table")
def course_fine_forest(seed: int) -> Built:
    """Many rows of two swirled classes, no validation rows handed over."""
    x, y = datasets.make_moons(900, noise=0.2, random_state=seed)
    train, test = scaled(*split(x, y, seed))
    return fit(mlp(2, 24, 24, 2), train, test, epochs=20, give="ob")
