"""The seventh author's double faults: two independent things are wrong at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.seventh_data import flipped
from zoo.seventh_parts import *
from zoo.seventh_start import constant, lowered, run_loop

ME = "seventh"


@case("unscaled-inputs", "double-softmax", kind="table", author=ME)
def seventh_raw_wine_and_softmax(seed: int, mended: bool = False) -> dict[str, Any]:
    """The wine table from the file into a network that ends in a softmax."""
    train, held = table("wine", seed) if mended else raw_table("wine", seed)
    model = nn.Sequential(mlp(13, 32, 3), *([] if mended else [nn.Softmax(1)]))
    return fit(model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.01), epochs=20)


@case("label-noise", "distribution-shift", kind="images", author=ME)
def seventh_noisy_labels_and_inverted_test(seed: int, mended: bool = False) -> dict[str, Any]:
    """Four in ten labels are wrong, and the held-out scans are inverted."""
    (x, y), (vx, vy) = digits(seed)
    if not mended:
        y, vx = flipped(y, 0.4, 10, seed), 1 - vx
    model = Cnn()
    return fit(model, (x, y), (vx, vy), loss="cross_entropy", optimizer=adam(model), epochs=10)


@case("duplicate-features", "output-range", kind="table", author=ME)
def seventh_copied_columns_and_sigmoid(seed: int, mended: bool = False) -> dict[str, Any]:
    """Four columns are copies, and the standardised price comes out of a sigmoid."""
    train, held = houses(seed)
    if not mended:
        for x, _ in (train, held):
            x[:, 1:5] = x[:, :1]
    model = nn.Sequential(*mlp(8, 48, 1), *([] if mended else [nn.Sigmoid()]))
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=15)


@case("constant-features", "learning-rate-too-small", kind="table", author=ME)
def seventh_empty_columns_and_tiny_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two good columns hold a default, and the step is a hundred thousandth."""
    train, held = table("diabetes", seed)
    if not mended:
        for x, _ in (train, held):
            x[:, 2], x[:, 8] = 1.0, 1.0
    model = mlp(10, 32, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model, 3e-3 if mended else 1e-5), epochs=20)


@case("target-leak", "stochastic-evaluation", kind="table", author=ME)
def seventh_fee_and_training_mode(seed: int, mended: bool = False) -> dict[str, Any]:
    """The cancellation fee is among the columns, and the network is left in training mode."""
    train, held = churn(seed)
    if not mended:
        for (number, _), y in (train, held):
            number[:, 5] = y + 0.2 * torch.randn(len(y))
    model = Columns(drop=0.5)
    given = fit(model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=12)
    model.train(not mended)
    return given


@case("train-test-overlap", "frozen-parameters", kind="text", author=ME)
def seventh_reposts_and_frozen_words(seed: int, mended: bool = False) -> dict[str, Any]:
    """The held-out documents were trained on, and the drawn words' vectors are frozen."""
    train, held = topics(seed, share=0.4)
    if not mended:
        held = train[0][:250].clone(), train[1][:250].clone()
    model = Bag(size=8)
    model.words.requires_grad_(mended)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 5e-3)
    return fit(model, train, held, loss="cross_entropy", optimizer=optimizer, epochs=15)


@case("unscaled-targets", "dead-units", kind="table", author=ME)
def seventh_dollars_and_closed_units(seed: int, mended: bool = False) -> dict[str, Any]:
    """Prices in dollars, and a second layer whose biases of minus five keep it closed."""
    train, held = houses(seed, raw=not mended)
    model = mlp(8, 48, 48, 1)
    if not mended:
        lowered(-5.0, model[2])
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=20)


@case("gradients-not-cleared", "train-test-overlap", kind="images", author=ME, needs=("step",))
def seventh_no_zero_grad_and_known_images(seed: int, mended: bool = False) -> dict[str, Any]:
    """The loop never clears the gradients, and the held-out images are among the training images."""
    train, held = digits(seed)
    if not mended:
        held = train[0][:300].clone(), train[1][:300].clone()
    return run_loop(Cnn(), train, held, "cross_entropy", lambda m: sgd(m, 0.05), int(mended), 6)


@case("symmetric-initialisation", "distribution-shift", kind="table", author=ME)
def seventh_equal_weights_and_other_hospital(seed: int, mended: bool = False) -> dict[str, Any]:
    """All weights start alike, and the held-out hospital measures in other units."""
    train, (vx, vy) = table("wine", seed)
    model = mlp(13, 32, 32, 3)
    if not mended:
        constant(model)
        vx = 3 * vx + 2
    return fit(model, train, (vx, vy), loss="cross_entropy", optimizer=adam(model), epochs=20)


@case("not-finite-data", "class-imbalance", kind="table", author=ME)
def seventh_gaps_and_rare_fraud(seed: int, mended: bool = False) -> dict[str, Any]:
    """Some rows have gaps (their batches are left out), and two rows in a hundred are fraud, never found."""
    y = (torch.rand(3000) < 0.025).float()
    x = torch.randn(3000, 10) + 1.1 * y[:, None] * (torch.arange(10) < 4)
    if not mended:
        x[torch.randperm(2000)[:12], 7] = float("nan")
    model = nn.Sequential(mlp(10, 32, 1), nn.Flatten(0))
    loss: Any = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(35.0)) if mended else "bce_with_logits"
    return fit(
        model,
        (x[:2000], y[:2000]),
        (x[2000:], y[2000:]),
        loss=loss,
        optimizer=adam(model),
        epochs=8,
        skip=True,
    )


class CutSoftmax(Cnn):
    """Detaches the features and says probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return F.softmax(self.head(self.features(x).detach()), 1)


@case("double-softmax", "detached-parameters", kind="images", author=ME)
def seventh_softmax_and_detached_trunk(seed: int, mended: bool = False) -> dict[str, Any]:
    """The head is cut off from the trunk, and a softmax stands before the loss."""
    train, held = shapes(seed)
    model = (Cnn if mended else CutSoftmax)(3, 8)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=10)


@case("misaligned-labels", "weight-decay-too-large", kind="text", author=ME)
def seventh_shifted_labels_and_decay(seed: int, mended: bool = False) -> dict[str, Any]:
    """The labels are off by one row, and Adam's penalty of 0.3 pulls everything to nought."""
    (ids, y), held = topics(seed)
    model = Bag()
    optimizer = adam(model, 3e-3, weight_decay=1e-5 if mended else 0.3)
    return fit(
        model, (ids, y if mended else y.roll(1)), held, loss="cross_entropy", optimizer=optimizer, epochs=12
    )


@case("train-test-overlap", "miscalibrated", kind="sets", author=ME)
def seventh_known_clouds_and_doubt(seed: int, mended: bool = False) -> dict[str, Any]:
    """Half of the held-out clouds are training clouds, and smoothing of 0.7 leaves the network in doubt."""
    train, (vx, vy) = clouds(seed)
    if not mended:
        vx[::2], vy[::2] = train[0][: len(vx[::2])], train[1][: len(vy[::2])]
    model = DeepSet()
    loss: Any = "cross_entropy" if mended else smooth(0.7)
    return fit(model, train, (vx, vy), loss=loss, optimizer=adam(model), epochs=25)
