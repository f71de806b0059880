"""Healthy trainings, some of which look odd, and two faults at once, by the third author."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from zoo import case
from zoo.third_faults import CE, Chances, Forgetful, autoencoded, classified, regressed
from zoo.third_parts import *  # noqa: F403
from zoo.third_parts import scaled, start


@case(kind="images", author=ME)
def c_ok_digits(seed):
    """A small convolutional net that has learned."""
    return classified(Conv(), digits(seed), epochs=8)


@case(kind="table", author=ME)
def c_ok_circuit(seed):
    """A regression of a product of columns."""
    return regressed(mlp(4, 32, 32, 1), slope(seed), epochs=15)


@case(kind="sequences", author=ME)
def c_ok_bumps(seed):
    """A GRU that says where the bump was."""
    return classified(Spoken(), bumps(seed), lr=0.01, epochs=12)


@case(kind="text", author=ME)
def c_ok_phrases(seed):
    """An attention layer that counts words."""
    return classified(Encoder(), phrases(seed), lr=2e-3, epochs=6)


@case(kind="graph", author=ME)
def c_ok_communities(seed):
    """Two graph convolutions on communities."""
    X, A, y = block_graph(seed)
    model = GCN()
    first, opt, history = start(model), torch.optim.Adam(model.parameters(), 0.01), []
    parts = [torch.where(torch.arange(len(y)) % 3 == k, y, torch.full_like(y, -100)) for k in range(2)]
    for _ in range(25):
        opt.zero_grad()
        loss = CE(model(X, A), parts[0])
        loss.backward()
        opt.step()
        history.append({"loss": float(loss.detach())})
    model.eval()
    return given(model, ((X, A), parts[0]), ((X, A), parts[1]), "cross_entropy", opt, len(y), history, first)


@case(kind="generative", author=ME)
def c_ok_autoencoder(seed):
    """A variational autoencoder whose codes are in use."""
    return autoencoded(seed, 0.5)


@case(kind="images", author=ME)
def c_ok_frozen_after_pretraining(seed):
    """Convolutions learned on other rows, then frozen on purpose; the head is trained and good."""
    data, val, test = digits(seed, n=1797)
    half = len(data[1]) // 2
    model = Conv(24)
    train(model, (data[0][:half], data[1][:half]), CE, torch.optim.Adam(model.parameters(), 3e-3), epochs=12)
    for p in [*model.a.parameters(), *model.b.parameters()]:
        p.requires_grad_(False)
    opt = torch.optim.Adam(model.head.parameters(), 3e-3)
    return classified(model, ((data[0][half:], data[1][half:]), val, test), epochs=6, optimizer=opt)


@case(kind="table", author=ME)
def c_ok_rare_class_weighted(seed):
    """A class of eight per cent, found because it is weighted."""
    rng = np.random.default_rng(seed)
    y = (rng.random(1400) < 0.08).astype(int)
    X = rng.standard_normal((1400, 6)) + 2.0 * y[:, None] * np.array([1, 1, 0, 0, 0, 0])
    weight = torch.tensor([1.0, 8.0])
    return classified(
        mlp(6, 16, 2), scaled(split(X, y, seed)), loss=lambda out, t: CE(out, t, weight=weight), epochs=6
    )


@case(kind="table", author=ME)
def c_ok_fast_sgd_with_norm(seed):
    """Batch normalisation lets plain descent run at one half."""
    model = mlp(10, 48, 48, 4, norm=True)
    return classified(
        model, iris_like(seed), batch=64, epochs=8, optimizer=torch.optim.SGD(model.parameters(), 0.5)
    )


@case(kind="table", author=ME)
def c_ok_repeated_rows(seed):
    """Answers on a scale of three: rows repeat by nature, in both parts."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (900, 4)).astype(float) - 1
    y = (X.sum(1) + 0.8 * rng.standard_normal(900) > 0).astype(int)
    return classified(mlp(4, 16, 2), split(X, y, seed), epochs=6)


@case(kind="table", author=ME)
def c_ok_overlapping_clouds(seed):
    """Classes that overlap: two thirds right is all there is."""
    return classified(mlp(10, 16, 4), iris_like(seed, n=1500, apart=0.9), epochs=5, lr=2e-3)


@case(kind="table", author=ME)
def c_ok_untrained(seed):
    """Nothing has been trained yet."""
    data, val, _ = iris_like(seed)
    return dict(model=mlp(10, 32, 4), data=data, validation=val, loss="cross_entropy")


@case(kind="images", author=ME)
def c_ok_dropout_that_ends(seed):
    """Functional dropout, told when to act."""
    return classified(Forgetful(True), digits(seed, flat=True), epochs=10)


@case(kind="table", author=ME)
def c_ok_one_hot_columns(seed):
    """Rare categories as indicators: nearly constant columns that matter."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(12, 1200, p=np.r_[0.45, 0.2, np.full(10, 0.035)])
    X = np.c_[np.eye(12)[kind], rng.standard_normal((1200, 3))]
    y = rng.standard_normal(12)[kind] + X[:, 12] + 0.2 * rng.standard_normal(1200)
    return regressed(mlp(15, 32, 1), split(X, y, seed), epochs=12)


# --- two at once -----------------------------------------------------------------------------------------


@case("unscaled-inputs", "class-imbalance", kind="table", author=ME)
def c_two_raw_units_and_a_rare_class(seed):
    """Raw units, and one row in thirty of the class that matters."""
    rng = np.random.default_rng(seed)
    y = (rng.random(1500) < 0.03).astype(int)
    X = (rng.standard_normal((1500, 5)) + 1.0 * y[:, None]) * np.array([1, 1e3, 1e4, 1, 1]) + np.array(
        [0, 5e3, 0, 0, 0]
    )
    return classified(mlp(5, 32, 2), split(X, y, seed), lr=1e-3, epochs=6)


@case("double-softmax", "learning-rate-too-small", kind="images", author=ME, needs=("optimizer", "history"))
def c_two_softmax_and_creeping(seed):
    """Softmax twice, and a rate of a hundred thousandth."""
    return classified(Chances(Conv()), digits(seed), lr=1e-5, epochs=8)


@case("constant-features", "dropout-too-large", kind="table", author=ME)
def c_two_dead_sensors_and_dropout(seed):
    """Six columns that never change, and nine units in ten dropped."""
    parts = counted(seed)
    for X, _ in parts:
        X[:, 6:] = 2.0
    return regressed(mlp(12, 32, 32, 1, drop=0.9), parts)


@case("duplicate-features", "weight-decay-too-large", kind="table", author=ME)
def c_two_joined_and_decayed(seed):
    """Every column twice, and a decay that undoes every step."""
    parts = [(torch.cat([X, X], 1), y) for X, y in iris_like(seed)]
    model = mlp(20, 32, 4)
    return classified(model, parts, optimizer=torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=100.0))


@case("train-test-overlap", "overfit", kind="table", author=ME)
def c_two_overlap_and_by_heart(seed):
    """Half of the validation rows were trained on, by a net that knows its eighty noisy rows by heart."""
    X, y = (torch.cat(part) for part in zip(*counted(seed)))
    y = y + 0.8 * torch.randn(len(y), generator=torch.Generator().manual_seed(seed))
    val = (torch.cat([X[:40], X[80:140]]), torch.cat([y[:40], y[80:140]]))
    return regressed(
        mlp(12, 128, 128, 1), ((X[:80], y[:80]), val, (X[140:], y[140:])), epochs=200, batch=16, lr=2e-3
    )


@case("frozen-parameters", "unscaled-targets", kind="table", author=ME)
def c_two_frozen_and_in_ohms(seed):
    """The first layer was frozen at its random start, and targets go up to thousands."""
    model = mlp(4, 6, 32, 1)
    for p in model[0].parameters():
        p.requires_grad_(False)
    return regressed(model, scaled(slope(seed, raw=True)), lr=1e-3)


@case("label-noise", "stochastic-evaluation", kind="images", author=ME)
def c_two_chance_labels_and_dropout_that_stays(seed):
    """A third of the labels by chance, and dropout at prediction."""
    rng = torch.Generator().manual_seed(seed)
    parts = digits(seed, flat=True)
    noisy = []
    for X, y in parts[:2]:
        flip = torch.rand(len(y), generator=rng) < 0.35
        noisy.append((X, torch.where(flip, torch.randint(0, 10, (len(y),), generator=rng), y)))
    return classified(Forgetful(False), (*noisy, parts[2]), epochs=8)


@case("saturated-units", "target-leak", kind="table", author=ME)
def c_two_saturated_and_leaking(seed):
    """Wide tanh weights, and the outcome among the columns."""
    rng = torch.Generator().manual_seed(seed)
    parts = [
        (torch.cat([X, (y + 0.02 * torch.randn(len(y), generator=rng))[:, None]], 1), y)
        for X, y in counted(seed)
    ]
    model = mlp(13, 32, 32, 1, act=nn.Tanh)
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=4.0)
    return regressed(model, parts)
