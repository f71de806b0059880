"""The seventeenth author's double faults: both are there, and both matter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.seventeenth_faults import Careless, forgetful, spoil
from zoo.seventeenth_parts import (
    camera,
    delays,
    digits,
    fit,
    halves,
    instruments,
    leaves,
    marks,
    mlp,
    only,
    stays,
    town,
    triage,
)

COURSE = ("optimizer", "batch_size", "history", "initial")


@town("class-imbalance", "train-test-overlap", kind="table")
def rare_and_counted_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """Few come back, none is found, and half of the validation stays were trained by."""
    x, y = stays(seed, 2600, bias=-5.4, gain=1.3)
    data, (v, w) = halves(x, y, 1800)
    held = (v, w) if mended else (torch.cat([v[:400], data[0][:400]]), torch.cat([w[:400], data[1][:400]]))

    def weighted(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, target, pos_weight=torch.tensor(20.0))

    loss = weighted if mended else "bce_with_logits"
    return only(fit(mlp(8, 16, 1), data, held, loss=loss, epochs=10, lr=3e-3, weight_decay=1e-3), *COURSE)


@town("duplicate-features", "label-noise", kind="table")
def copied_and_misnamed(seed: int, mended: bool = False) -> dict[str, Any]:
    """Every column thrice, and two names in five at random."""
    x, y = instruments(seed, 1500)
    data, held = halves(x if mended else x.repeat(1, 3), y if mended else spoil(y, 0.4, 8), 1000)
    return only(fit(mlp(12 if mended else 36, 24, 8), data, held, epochs=8), "history", "optimizer")


@town("distribution-shift", "label-noise", kind="images")
def evening_and_wrong_names(seed: int, mended: bool = False) -> dict[str, Any]:
    """Leaves of noon, a third wrongly named; validated in the evening's light."""
    x, y = leaves(seed, 900)
    data, (v, w) = halves(x, y, 650)
    train = (data[0], data[1] if mended else spoil(data[1], 0.45, 4))
    run = fit(camera(4, 8, side=12), train, (v if mended else 0.4 * v - 0.8, w), epochs=8)
    return only(run, *COURSE)


@town("constant-features", "learning-rate-too-small", kind="table", needs=("optimizer",))
def slow_and_half_blind(seed: int, mended: bool = False) -> dict[str, Any]:
    """Half of the columns are stuck, and SGD at 1e-3 hardly moves."""
    x, y = instruments(seed)
    if not mended:
        x[:, :6] = 1.0
    data, held = halves(x, y, 800)
    run = fit(
        mlp(12, 32, 8),
        data,
        held,
        lr=0.1 if mended else 1e-3,
        epochs=15,
        optimizer=torch.optim.SGD,
        momentum=0.5,
    )
    return only(run, *COURSE)


@town("output-range", "stochastic-evaluation", kind="table")
def never_early_never_the_same(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ReLU at the end of a net whose dropout never stops."""
    data, held = halves(*delays(seed), 900)
    body = Careless(mlp(6, 48, 1), mended, 0.4)
    model = body if mended else nn.Sequential(body, nn.ReLU())
    return only(fit(model, data, held, loss="mse", epochs=25), "history", "batch_size")


@town("train-test-overlap", "label-noise", kind="images")
def filed_twice_typed_badly(seed: int, mended: bool = False) -> dict[str, Any]:
    """Slips typed at random, two in five; half of the validation is a copy, errors included."""
    data, (v, w) = digits(seed, 900)
    if not mended:
        data = (data[0], spoil(data[1], 0.4, 10))
        w = spoil(w, 0.4, 10)
        v, w = torch.cat([v[:250], data[0][:250]]), torch.cat([w[:250], data[1][:250]])
    return only(fit(camera(10), data, (v, w), epochs=10), *COURSE)


@town("frozen-parameters", "dropout-too-large", kind="images")
def frozen_and_mostly_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    """Random filters, frozen, and a dropout of 0.9 before the head."""
    data, held = digits(seed, 800)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.ReLU(),
        nn.MaxPool2d(3),
        nn.Flatten(),
        nn.Dropout(0.1 if mended else 0.9),
        nn.Linear(24, 10),
    )
    for parameter in model[0].parameters():
        parameter.requires_grad_(mended)
    return only(fit(model, data, held, epochs=20, lr=1e-2), *COURSE)


@town("unscaled-inputs", "train-test-overlap", kind="table")
def raw_and_counted_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """Columns of some thousands, one of some thousandths; a third of the validation was trained by."""
    x, y = triage(seed, 1400)
    if not mended:
        x = x * torch.tensor([3000.0, 0.001, 1.0, 500.0, 0.01, 1.0]) + torch.tensor(
            [20000.0, 0.0, 37.0, 900.0, 0.0, 50.0]
        )
    data, (v, w) = halves(x, y, 900)
    held = (v, w) if mended else (torch.cat([v, data[0][:250]]), torch.cat([w, data[1][:250]]))
    return only(fit(mlp(6, 32, 4), data, held, lr=3e-3, epochs=20), "history", "optimizer", "batch_size")


@town("duplicate-features", "output-range", kind="table")
def copied_and_cut_off(seed: int, mended: bool = False) -> dict[str, Any]:
    """Marks in deviations by a sigmoid, from columns that stand there twice."""
    x, y = marks(seed)
    data, held = halves(x if mended else x.repeat(1, 2), y, 600)
    model = mlp(6, 16, 1) if mended else nn.Sequential(*mlp(12, 16, 1), nn.Sigmoid())
    return only(fit(model, data, held, loss="mse", epochs=25), "history")


@town("bottleneck", "label-noise", kind="images")
def one_unit_and_tired_typists(seed: int, mended: bool = False) -> dict[str, Any]:
    """All digits through one unit, a third of their names at random."""
    data, held = digits(seed, 1000, flat=True)
    train = data if mended else (data[0], spoil(data[1], 0.35, 10))
    model = mlp(64, 48, 24 if mended else 1, 48, 10, act=nn.Tanh)
    return only(fit(model, train, held, epochs=20), *COURSE)


@town("dead-units", "duplicate-features", kind="table")
def copied_and_almost_silent(seed: int, mended: bool = False) -> dict[str, Any]:
    """All but two hidden units are off for ever, and every column stands there twice."""
    x, y = triage(seed)
    data, held = halves(x if mended else x.repeat(1, 2), y, 900)
    model = mlp(6 if mended else 12, 32, 4)
    if not mended:
        with torch.no_grad():
            model[0].bias[1:] = -15.0
    return only(fit(model, data, held, epochs=20), *COURSE)


@town("train-test-overlap", "stochastic-evaluation", kind="table")
def guessing_about_known_patients(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout never stops, and half of the validation patients are known."""
    x, y = triage(seed)
    data, (v, w) = halves(x, y, 900)
    held = (v, w) if mended else (torch.cat([v[:300], data[0][:300]]), torch.cat([w[:300], data[1][:300]]))
    return only(fit(Careless(mlp(6, 40, 4), mended, 0.7), data, held, epochs=20), "history", "initial")


@town("constant-features", "gradients-not-cleared", kind="table", needs=("step",))
def stuck_gauges_and_piled_gradients(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three of six columns are stuck, and gradients are never cleared."""
    x, y = delays(seed)
    if not mended:
        x[:, [0, 2, 4]] = 0.5
    data, held = halves(x, y, 900)
    run = fit(
        mlp(6, 32, 1), data, held, loss="mse", lr=0.02, epochs=20, optimizer=torch.optim.SGD, clear=mended
    )
    return only(run, *COURSE, step=forgetful(torch.optim.SGD, F.mse_loss, lr=0.02))
