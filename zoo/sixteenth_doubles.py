"""Double faults by the sixteenth author: two causes, both present and both hurting.

``mended`` may also be "one" or "two": then only the first or only the second cause is mended.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.sixteenth_parts import (
    Recurrent,
    Tagger,
    binary,
    clouds,
    communities,
    convnet,
    digits,
    mlp,
    post,
    run,
    series,
    surface,
    tags,
    token_loss,
)

Mended = bool | str


def faults(mended: Mended) -> tuple[bool, bool]:
    """Return whether the first and the second fault are present."""
    return mended not in (True, "one"), mended not in (True, "two")


def spoiled(y: Tensor, share: float, classes: int) -> Tensor:
    """Give a share of the labels another class."""
    flip = torch.rand(len(y)) < share
    return torch.where(flip, (y + torch.randint(1, classes, y.shape)) % classes, y)


@post("unscaled-inputs", "class-imbalance", kind="table")
def forum_raw_amounts_and_few_frauds(seed: int, mended: Mended = False) -> dict[str, Any]:
    """Raw amounts beside scores, and one fraud in thirty."""
    raw, rare = faults(mended)
    (x, y), (u, v) = binary(clouds(seed, n=2000, classes=2, gap=0.85, shares=(0.965, 0.035)))
    if raw:
        x[:, :2], u[:, :2] = 4e4 + 1e4 * x[:, :2], 4e4 + 1e4 * u[:, :2]
    weight = torch.tensor(1.0 if rare else 28.0)

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=weight)

    loss = "bce_with_logits" if rare else weighted
    return run(mlp(8, 16, 1), (x, y), (u, v), loss, lr=2e-3, epochs=15, give="history")


@post("label-noise", "learning-rate-too-large", kind="images", needs=("optimizer",))
def lab_noisy_digits_at_a_large_rate(seed: int, mended: Mended = False) -> dict[str, Any]:
    """A third of the digits has a wrong label and Adam runs at 0.06."""
    noisy, fast = faults(mended)
    (x, y), test = digits(seed, flat=True)
    y = spoiled(y, 0.35 * noisy, 10)
    net = mlp(48, 32, 32, 10, act=nn.Tanh)
    return run(net, (x, y), test, lr=0.06 if fast else 3e-3, epochs=10, give="optimizer history")


@post("output-range", "dropout-too-large", kind="table")
def forum_relu_output_and_much_dropout(seed: int, mended: Mended = False) -> dict[str, Any]:
    """A ReLU at the output of a regression with negative targets, and dropout of 0.8 in a small net."""
    cut, dropping = faults(mended)
    train, test = surface(seed)
    net = mlp(6, 24, 24, 1, drop=0.8 * dropping, end=[nn.ReLU()] * cut)
    return run(net, train, test, "mse", epochs=25, give="history optimizer")


@post("double-softmax", "weight-decay-too-large", kind="images", needs=("optimizer",))
def lab_softmax_twice_and_heavy_decay(seed: int, mended: Mended = False) -> dict[str, Any]:
    """Softmax before CrossEntropyLoss, and weight_decay=2 in AdamW."""
    twice, heavy = faults(mended)
    train, test = digits(seed)
    net = nn.Sequential(*convnet(10), *[nn.Softmax(1)] * twice)
    return run(net, train, test, decay=2.0 if heavy else 0.01, epochs=20, give="optimizer")


@post("distribution-shift", "dropout-too-large", kind="table")
def forum_test_rows_raw_and_much_dropout(seed: int, mended: Mended = False) -> dict[str, Any]:
    """The held-out rows were shifted and stretched by another scaler, and dropout of 0.7 starves the net."""
    shifted, dropping = faults(mended)
    train, (u, v) = surface(seed)
    net = mlp(6, 24, 24, 1, drop=0.7 * dropping)
    return run(net, train, (2.5 * u + 2 if shifted else u, v), "mse", epochs=25, lr=5e-3)


@post("train-test-overlap", "overfit", kind="table")
def lab_overlap_hides_what_was_learned_by_heart(seed: int, mended: Mended = False) -> dict[str, Any]:
    """A third of the validation rows are training rows, which a large net knows by heart; the rest it gets wrong."""
    overlap, heart = faults(mended)
    (x, y), (u, v) = clouds(seed, n=450, d=12, gap=0.8)
    if overlap:
        u, v = torch.cat([u[:100], x[:55]]), torch.cat([v[:100], y[:55]])
    net = mlp(12, 96, 96, 3) if heart else mlp(12, 6, 3)
    return run(net, (x, y), (u, v), epochs=100 if heart else 15, lr=3e-3, give="history")


class DroppingForecast(nn.Module):
    """A GRU forecast with functional dropout and perhaps a ReLU at its end."""

    def __init__(self, always: bool, cut: bool):
        super().__init__()
        self.body, self.head = Recurrent("GRU", 1, 16, 16), nn.Linear(16, 1)
        self.always, self.cut = always, cut

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(F.relu(self.body(x)), 0.6, training=self.always)
        answer = self.head(h)
        return F.relu(answer) if self.cut else answer


@post("stochastic-evaluation", "output-range", kind="sequences")
def forum_forecast_with_functional_dropout_and_relu(seed: int, mended: Mended = False) -> dict[str, Any]:
    """F.dropout is always on, and a ReLU cuts off the negative half of the forecasts."""
    always, cut = faults(mended)
    train, test = series(seed)
    net = DroppingForecast(always, cut)
    if cut:
        nn.init.constant_(net.head.bias, 0.3)
    return run(net, train, test, "mse", epochs=20, lr=5e-3)


class CutDigits(nn.Module):
    """Convolutions and a head, with .detach() between them if asked."""

    def __init__(self, cut: bool):
        super().__init__()
        self.body, self.head, self.cut = convnet(8, (4, 4)), mlp(8, 32, 10), cut

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x).tanh()
        return self.head(h.detach() if self.cut else h)


@post("label-noise", "detached-parameters", kind="images")
def lab_detached_body_and_wrong_labels(seed: int, mended: Mended = False) -> dict[str, Any]:
    """A third of the labels is wrong, and the convolutions are cut off from the loss."""
    noisy, cut = faults(mended)
    (x, y), test = digits(seed)
    return run(CutDigits(cut), (x, spoiled(y, 0.35 * noisy, 10)), test, epochs=20, lr=5e-3, give="history")


@post("bottleneck", "stochastic-evaluation", kind="text")
def forum_narrow_tagger_left_in_training_mode(seed: int, mended: Mended = False) -> dict[str, Any]:
    """One unit between wide layers, and the model was saved in training mode with its dropout."""
    narrow, noisy = faults(mended)
    train, test = tags(seed)
    net = Tagger(40, 24, 4)
    net.head = nn.Sequential(*mlp(24, 32, 1 if narrow else 16, 32), nn.Dropout(0.75), nn.Linear(32, 4))
    return run(net, train, test, token_loss, epochs=20, lr=5e-3, evaluate=not noisy, give="optimizer")


@post("label-noise", "receptive-field-too-small", kind="text")
def lab_short_sight_and_careless_annotators(seed: int, mended: Mended = False) -> dict[str, Any]:
    """A quarter of the tags was set at random, and the convolution does not see the word five before."""
    noisy, short = faults(mended)
    (x, y), test = tags(seed, n=2500, back=5)
    flip = (torch.rand(y.shape) < 0.35 * noisy) & (y >= 0)
    y = torch.where(flip, (y + torch.randint(1, 4, y.shape)) % 4, y)
    net = Tagger(40, 16, 4, kernels=(3,) if short else (3, 3, 3))
    return run(net, (x, y), test, token_loss, epochs=10, lr=5e-3, give="history")


class Smoothed(nn.Module):
    """A net on features averaged over neighbours, with dropout before its head."""

    def __init__(self, features: Tensor, adjacency: Tensor, times: int, drop: float):
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("adjacency", adjacency / adjacency.sum(1, keepdim=True))
        self.times, self.head = times, mlp(features.shape[1], 8, 3, end=[])
        self.noise = nn.Dropout(drop)

    def forward(self, nodes: Tensor) -> Tensor:
        h = self.features
        for _ in range(self.times):
            h = self.adjacency @ h
        return self.head[2](self.noise(self.head[1](self.head[0](h))))[nodes]


@post("oversmoothing", "stochastic-evaluation", kind="graph")
def forum_smoothed_graph_with_dropout_left_on(seed: int, mended: Mended = False) -> dict[str, Any]:
    """Features are averaged four times over a dense graph, and the model is in training mode with dropout 0.6."""
    smooth, noisy = faults(mended)
    (train, test), features, adjacency = communities(seed, across=0.03)
    net = Smoothed(features, adjacency, 4 if smooth else 1, 0.6)
    return run(net, train, test, epochs=150, batch=len(train[1]), evaluate=not noisy)


@post("unscaled-targets", "dead-units", kind="table")
def lab_prices_and_dead_relus(seed: int, mended: Mended = False) -> dict[str, Any]:
    """Targets of 500 plus or minus 100, and a layer in which 14 of 16 ReLUs start at -12."""
    raw, dead = faults(mended)
    (x, y), (u, v) = surface(seed)
    if raw:
        y, v = 500 + 100 * y, 500 + 100 * v
    net = mlp(6, 16, 16, 1)
    if dead:
        with torch.no_grad():
            net[0].bias[2:] = -12.0
    return run(net, (x, y), (u, v), "mse", epochs=40, lr=3e-3, give="optimizer history")
