"""The eighth author's double faults: two independent mistakes in one exercise sheet."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eighth_model import constant, loop, stepper
from zoo.eighth_parts import (
    DeepSet,
    Net,
    Recurrent,
    Transformer,
    adam,
    blobs,
    cancer,
    cnn,
    diabetes,
    digits,
    fit,
    forecast,
    friedman,
    mlp,
    real,
    reviews,
    sets,
    waves,
)

case = partial(case, author="eighth")
Built = dict[str, Any]


@case("unscaled-inputs", "double-softmax", kind="images")
def course_raw_pixels_and_softmax(seed: int, mended: bool = False) -> Built:
    """Pixels from 0 to 255 and a softmax before the cross entropy."""
    (x, y), (u, v) = digits(seed)
    model = cnn()
    if not mended:
        x, u = (x + 1) * 127.5, (u + 1) * 127.5
        model.append(nn.Softmax(dim=1))
    return fit(model, (x, y), (u, v), epochs=8)


@case("constant-features", "learning-rate-too-small", kind="table", needs=("optimizer",))
def course_failed_join_and_tiny_rate(seed: int, mended: bool = False) -> Built:
    """Four columns are constant and Adam runs at 1e-6."""
    (x, y), (u, v) = blobs(seed)
    if not mended:
        x[:, 4:8], u[:, 4:8] = 1.0, 1.0
    return fit(mlp(12, 32, 4), (x, y), (u, v), epochs=15, optimizer=adam(3e-3 if mended else 1e-6))


@case("duplicate-features", "label-noise", kind="table")
def course_joined_twice_and_mislabelled(seed: int, mended: bool = False) -> Built:
    """Ten columns appear twice and three labels in ten are wrong."""
    (x, y), (u, v) = cancer(seed)
    if not mended:
        x, u = torch.cat([x, x[:, :10]], 1), torch.cat([u, u[:, :10]], 1)
        y = torch.where(torch.rand(len(y)) < 0.3, 1 - y, y)
    return fit(mlp(x.shape[1], 16, 1), (x, y), (u, v), loss="bce_with_logits", epochs=12)


@case("train-test-overlap", "dropout-too-large", kind="images")
def course_same_images_and_dropout(seed: int, mended: bool = False) -> Built:
    """Half of the test images were trained on, and dropout is 0.95."""
    (x, y), (u, v) = digits(seed, flat=True, limit=900)
    if not mended:
        k = len(u) // 2
        u, v = torch.cat([u[k:], x[:k]]), torch.cat([v[k:], y[:k]])
    return fit(mlp(64, 48, 48, 10, drop=0.1 if mended else 0.95), (x, y), (u, v), epochs=12)


@case("unscaled-targets", "frozen-parameters", kind="table")
def course_frozen_and_raw_prices(seed: int, mended: bool = False) -> Built:
    """Prices in units and a first layer that was never released."""
    (x, y), (u, v) = friedman(seed)
    model = mlp(8, 6, 32, 1)
    if not mended:
        y, v = y * 3e4 + 2e5, v * 3e4 + 2e5
        model[0].requires_grad_(False)
    return fit(model, (x, y), (u, v), loss="mse", epochs=30)


@case("label-noise", "detached-parameters", kind="images")
def course_detached_and_mislabelled(seed: int, mended: bool = False) -> Built:
    """The encoder is detached, and three labels in ten are wrong."""
    (x, y), test = digits(seed)
    if not mended:
        y = torch.where(torch.rand(len(y)) < 0.3, (y + torch.randint(1, 10, y.shape)) % 10, y)
    encoder = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    between = None if mended else (lambda h: h.detach())
    return fit(Net(encoder, nn.Linear(72, 10), between), (x, y), test, epochs=12)


@case("train-test-overlap", "symmetric-initialisation", kind="table")
def course_constant_start_and_same_rows(seed: int, mended: bool = False) -> Built:
    """All weights start at 0.1, and the scores are those of the training rows."""
    (x, y), (u, v) = real("wine", seed)
    model = mlp(13, 24, 24, 3)
    if not mended:
        constant(model, 0.1)
        u, v = x[:60].clone(), y[:60].clone()
    return fit(model, (x, y), (u, v), epochs=15, give="vib")


@case("distribution-shift", "stochastic-evaluation", kind="sequences")
def course_drift_and_training_mode(seed: int, mended: bool = False) -> Built:
    """The sensor drifts, and dropout is still drawn when predicting."""
    train, (u, v) = waves(seed)
    if not mended:
        u = u * 1.5 + 2.0
    built = fit(
        Recurrent(hidden=16, drop=0.5), train, (u, v), epochs=15, batch=64, optimizer=adam(1e-2), give="vob"
    )
    if not mended:
        built["model"].train()
    return built


@case("duplicate-features", "wrong-loss", kind="table")
def course_broadcast_and_doubled_columns(seed: int, mended: bool = False) -> Built:
    """Half of the columns are copies, and (n, 1) minus (n,) is averaged over (n, n)."""
    (x, y), (u, v) = diabetes(seed)
    if not mended:
        x, u = torch.cat([x, x], 1), torch.cat([u, u], 1)

    def loss(o: Tensor, y: Tensor) -> Tensor:
        return ((o - (y[:, None] if mended else y)) ** 2).mean()

    return fit(mlp(x.shape[1], 24, 1), (x, y), (u, v), loss=loss, epochs=15)


@case("train-test-overlap", "vanishing-gradient", kind="table")
def course_twelve_sigmoids_and_same_rows(seed: int, mended: bool = False) -> Built:
    """Twelve sigmoid layers, and a test set that was trained on."""
    (x, y), (u, v) = blobs(seed)
    if not mended:
        u, v = x[:150].clone(), y[:150].clone()
    model = mlp(12, *[24] * (2 if mended else 12), 4, act=nn.Sigmoid)
    return fit(model, (x, y), (u, v), epochs=15, optimizer=adam(1e-2), give="vohb")


@case("constant-features", "output-range", kind="table")
def course_tanh_and_stuck_columns(seed: int, mended: bool = False) -> Built:
    """Two columns are stuck, and a tanh ends a regression of values from 3 to 9."""
    (x, y), (u, v) = friedman(seed)
    if not mended:
        x[:, [3, 6]], u[:, [3, 6]] = 2.0, 2.0
    model = mlp(8, 32, 1, last=None if mended else nn.Tanh())
    return fit(model, (x, y + 6), (u, v + 6), loss="mse", epochs=25, optimizer=adam(1e-2))


@case("distribution-shift", "dead-units", kind="sets")
def course_dead_and_moved(seed: int, mended: bool = False) -> Built:
    """Biases of -8 silence the points' network, and test clouds are three times larger."""
    train, (u, v) = sets(seed)
    model = DeepSet()
    if not mended:
        nn.init.constant_(model.point[0].bias, -8.0)
        u = u * 3 + 1
    return fit(model, train, (u, v), epochs=15, give="vib")


@case("not-finite-data", "train-test-overlap", kind="table")
def course_holes_and_same_rows(seed: int, mended: bool = False) -> Built:
    """Empty cells, and test rows copied from the training rows."""
    (x, y), (u, v) = real("breast_cancer", seed)
    if not mended:
        u, v = x[:120].clone(), y[:120].clone()
        x[200:, 5][torch.rand(len(x) - 200) < 0.2] = float("nan")
    return fit(mlp(30, 16, 2), (x, y), (u, v), epochs=10, give="vb")


@case("duplicate-features", "gradients-not-cleared", kind="table", needs=("step",))
def course_doubled_columns_and_no_zero_grad(seed: int, mended: bool = False) -> Built:
    """Columns appear twice, and the gradients pile up."""
    (x, y), (u, v) = diabetes(seed)
    if not mended:
        x, u = torch.cat([x, x[:, :4]], 1), torch.cat([u, u[:, :4]], 1)
    step = stepper(adam(1e-2), lambda o, y: F.mse_loss(o[:, 0], y), mended)
    return loop(mlp(x.shape[1], 16, 1), (x, y), (u, v), step, epochs=10, batch=32, loss="mse", give="vb")


@case("distribution-shift", "learning-rate-too-large", kind="text", needs=("optimizer",))
def course_other_tokens_and_large_rate(seed: int, mended: bool = False) -> Built:
    """Test reviews with other ids, and a transformer at a rate of 0.3."""
    train, (u, v) = reviews(seed)
    u = u if mended else (u + 25) % 60
    return fit(Transformer(), train, (u, v), epochs=8, optimizer=adam(3e-3 if mended else 0.3))


@case("target-leak", "weight-decay-too-large", kind="sequences", needs=("optimizer",))
def course_answer_in_window_and_decay(seed: int, mended: bool = False) -> Built:
    """The window holds its answer, and the decay of 1 keeps the net from using it."""
    (x, y), (u, v) = forecast(seed)
    if not mended:
        x, u = torch.cat([x[:, 1:], y[:, None, None]], 1), torch.cat([u[:, 1:], v[:, None, None]], 1)
    return fit(
        Recurrent(hidden=16, outputs=1),
        (x, y),
        (u, v),
        loss="mse",
        epochs=15,
        batch=64,
        optimizer=adam(5e-3, 0.0 if mended else 1.0),
    )
