"""Two independent faults at once; ``mended`` may be "a" (the first is repaired), "b" (the second) or True (both)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.tenth_parts import *

ME = "tenth"
TABLE = {"kind": "table", "author": ME}
IMAGES = {"kind": "images", "author": ME}
SEQ = {"kind": "sequences", "author": ME}
TEXT = {"kind": "text", "author": ME}
GRAPH = {"kind": "graph", "author": ME}


def which(mended):
    """Whether the first and whether the second fault is repaired."""
    return mended in (True, "a"), mended in (True, "b")


def flip(y, share, k, seed):
    g = torch.Generator().manual_seed(seed + 5)
    other = (y + torch.randint(1, k, y.shape, generator=g)) % k
    return torch.where(torch.rand(y.shape, generator=g) < share, other, y)


def freeze(module):
    for p in module.parameters():
        p.requires_grad_(False)
    return module


@case("unscaled-inputs", "frozen-parameters", **TABLE)
def t10_dollars_and_frozen_layers(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = friedman(seed)
    if not a:
        X, Xv = X.clone(), Xv.clone()
        for v in (X, Xv):
            v[:, 3] = 30000 + 9000 * v[:, 3]

    def net():
        m = mlp(8, 16, 16, 1)
        if not b:
            freeze(m[0]), freeze(m[2])
        return Squeeze(m)

    return train(seed, (X, y, Xv, yv), net, loss="mse", opt=adam(3e-3), epochs=25, give="all")


@case("label-noise", "learning-rate-too-small", needs=("optimizer",), **IMAGES)
def t10_noisy_labels_and_tiny_rate(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = digits(seed, flat=False)
    y = y if a else flip(y, 0.45, 10, seed)
    return train(seed, (X, y, Xv, yv), lambda: Conv(10), opt=adam(3e-3 if b else 3e-5), epochs=10, give="all")


@case("class-imbalance", "distribution-shift", **TABLE)
def t10_rare_class_in_another_place(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = blobs(seed, n=3000, held=1500, k=2, d=8, sep=0.7)
    g = torch.Generator().manual_seed(seed)
    keep, keepv = (
        (y == 0) | (torch.rand(len(y), generator=g) < 0.05),
        (yv == 0) | (torch.rand(len(yv), generator=g) < 0.2),
    )
    X, y, Xv, yv = X[keep], y[keep], Xv[keepv], yv[keepv]
    if not b:
        Xv = 0.5 * Xv - 2.5
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 18.0])) if a else nn.CrossEntropyLoss()
    return train(
        seed, (X, y, Xv, yv), lambda: mlp(8, 16, 2), loss=loss, opt=adam(2e-3), epochs=12, give="all"
    )


@case("train-test-overlap", "stochastic-evaluation", **TABLE)
def t10_seen_rows_and_dropout_on(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = blobs(seed, n=300, sep=0.8)
    if not a:
        Xv, yv = torch.cat([Xv[:40], X[:160]]), torch.cat([yv[:40], y[:160]])

    class Net(Dense):
        def forward(self, x):
            on = self.training or not b
            x = F.dropout(F.relu(self.fc1(x)), 0.3, on)
            return self.out(F.dropout(F.relu(self.fc2(x)), 0.3, on))

    return train(seed, (X, y, Xv, yv), lambda: Net(12, 5, width=128), epochs=50, give="opt")


@case("duplicate-features", "double-softmax", **TABLE)
def t10_repeated_columns_and_two_softmaxes(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = blobs(seed, d=10)
    if not a:
        X, Xv = X.clone(), Xv.clone()
        X[:, 5:], Xv[:, 5:] = X[:, :5].clone(), Xv[:, :5].clone()
    end = () if b else (nn.Softmax(1),)
    return train(seed, (X, y, Xv, yv), lambda: mlp(10, 64, 64, 5, end=end), epochs=15, give="loss")


@case("label-noise", "output-range", **TABLE)
def t10_wild_targets_and_relu_end(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = friedman(seed)
    if not a:
        g = torch.Generator().manual_seed(seed)
        bad = torch.rand(len(y), generator=g) < 0.25
        y = torch.where(bad, 3 * torch.randn(len(y), generator=g), y)
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 64, 64, 1), None if b else F.relu),
        loss="mse",
        epochs=20,
        give="hist",
    )


@case("unscaled-targets", "detached-parameters", **TABLE)
def t10_prices_and_list_of_layers(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = friedman(seed)
    if not a:
        y, yv = 20000 + 5000 * y, 20000 + 5000 * yv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            hidden = [nn.Linear(8, 16), nn.Linear(16, 16)]
            self.hidden = nn.ModuleList(hidden) if b else hidden
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            for layer in self.hidden:
                x = F.relu(layer(x))
            return self.out(x).squeeze(1)

    return train(seed, (X, y, Xv, yv), Net, loss="mse", opt=adam(5e-3), epochs=25, give="all")


@case("constant-features", "symmetric-initialisation", **TABLE)
def t10_empty_columns_and_equal_weights(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = blobs(seed, d=10)
    if not a:
        X, Xv = X.clone(), Xv.clone()
        X[:, 6:], Xv[:, 6:] = 1.0, 1.0

    def net():
        m = mlp(10, 48, 48, 5)
        if not b:
            for name, p in m.named_parameters():
                nn.init.constant_(p, 0.0 if name.endswith("bias") else 0.05)
        return m

    return train(seed, (X, y, Xv, yv), net, opt=sgd(0.03), epochs=15, give="opt")


@case("label-noise", "bottleneck", **IMAGES)
def t10_noisy_digits_through_one_unit(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = digits(seed)
    y = y if a else flip(y, 0.4, 10, seed)
    return train(seed, (X, y, Xv, yv), lambda: mlp(64, 64, 32 if b else 1, 64, 10), epochs=15, give="all")


@case("distribution-shift", "gradients-not-cleared", needs=("step",), **TABLE)
def t10_other_scaler_and_old_gradients(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = blobs(seed)
    if not a:
        Xv = 0.4 * Xv + 1.5
    clear = "always" if b else "never"
    step = Step("cross_entropy", sgd(0.05, 0.0), clear)
    given = train(
        seed,
        (X, y, Xv, yv),
        lambda: Dense(12, 5),
        opt=sgd(0.05, 0.0),
        epochs=20,
        give="all",
        update=lambda m, o, x, t: step(m, (x, t)),
    )
    given["step"] = Step("cross_entropy", sgd(0.05, 0.0), clear)
    return given


@case("constant-features", "learning-rate-too-large", needs=("optimizer",), **IMAGES)
def t10_black_half_and_wild_rate(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = digits(seed, flat=False)
    if not a:
        X, Xv = X.clone(), Xv.clone()
        X[:, :, 3:], Xv[:, :, 3:] = -0.6, -0.6
    return train(seed, (X, y, Xv, yv), lambda: Conv(10), opt=adam(3e-3 if b else 0.15), epochs=8, give="opt")


@case("misaligned-labels", "saturated-units", **IMAGES)
def t10_shifted_half_and_saturated(seed, mended=False):
    """From the middle on labels are one row late, and the tanh net starts saturated."""
    a, b = which(mended)
    X, y, Xv, yv = digits(seed)
    if not a:
        y = y.clone()
        y[400:] = torch.roll(y[400:], 1)

    def net():
        m = mlp(64, 64, 64, 64, 10, act=nn.Tanh)
        if not b:
            for layer in list(m)[:-1]:
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, 0, 3.0)
        return m

    return train(seed, (X, y, Xv, yv), net, opt=adam(1e-3), epochs=12, give="all")


@case("label-noise", "oversmoothing", **GRAPH)
def t10_noisy_nodes_and_sixty_rounds(seed, mended=False):
    a, b = which(mended)
    X, A, edges, y, tr = community(seed, n=240, inside=0.12, outside=0.02)
    noisy = y if a else flip(y, 0.4, 4, seed)

    class Propagate(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(8, 32, 4)

        def forward(self, x, A):
            P, h = A / A.sum(1, keepdim=True).clamp(min=1), self.net(x)
            for _ in range(2 if b else 50):
                h = 0.5 * h + 0.5 * P @ h
            return h

    data = ((X, A), torch.where(tr, noisy, -100), (X, A), torch.where(tr, -100, y))
    return train(seed, data, Propagate, opt=adam(1e-2), batch=len(y), epochs=60, give="opt")


@case("not-finite-data", "class-imbalance", **TABLE)
def t10_holes_and_rare_class(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = blobs(seed, n=2400, held=1200, k=2, d=8, sep=0.55)
    g = torch.Generator().manual_seed(seed)
    keep, keepv = (
        (y == 0) | (torch.rand(len(y), generator=g) < 0.05),
        (yv == 0) | (torch.rand(len(yv), generator=g) < 0.1),
    )
    X, y, Xv, yv = X[keep], y[keep], Xv[keepv], yv[keepv]
    hole = torch.rand(X.shape, generator=g) < 0.005
    X = X.masked_fill(hole, 0.0 if a else float("nan"))
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 20.0])) if b else nn.CrossEntropyLoss()
    return train(
        seed, (X, y, Xv, yv), lambda: mlp(8, 16, 2), loss=loss, opt=adam(1e-3), epochs=12, give="loss"
    )


@case("wrong-loss", "unscaled-inputs", **TABLE)
def t10_broadcast_and_units(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = friedman(seed)
    if not b:
        X, Xv = X.clone(), Xv.clone()
        for v in (X, Xv):
            v[:, 3] = 30000 + 9000 * v[:, 3]
    net = (lambda: Squeeze(mlp(8, 64, 64, 1))) if a else (lambda: mlp(8, 64, 64, 1))
    return train(
        seed,
        (X, y, Xv, yv),
        net,
        loss=lambda out, t: ((out - t) ** 2).mean(),
        opt=adam(1e-3),
        epochs=20,
        give="opt",
    )


@case("distribution-shift", "dead-units", **TEXT)
def t10_other_words_and_dead_head(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = topics(seed)
    if not a:
        Xv = torch.where(Xv >= 40, 40 + (Xv - 40) // 3, (Xv + 8) % 40)

    def net():
        m = Bag(80, 5)
        if not b:
            nn.init.constant_(m.net[0].bias, -5.0)
            m.net[0].bias.data[:2] = 0.0
        return m

    return train(seed, (X, y, Xv, yv), net, opt=adam(3e-3), epochs=15, give="loss")


@case("label-noise", "capacity-too-small", **TABLE)
def t10_flipped_spirals_and_a_line(seed, mended=False):
    a, b = which(mended)
    X, y, Xv, yv = spirals(seed)
    if not a:
        y = flip(y, 0.33, 2, seed)
    net = (lambda: mlp(2, 32, 32, 2)) if b else (lambda: nn.Linear(2, 2))
    return train(seed, (X, y, Xv, yv), net, opt=adam(1e-2), epochs=40, give="hist")
