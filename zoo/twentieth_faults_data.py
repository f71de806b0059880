"""Faults of the data and of the objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentieth_parts import *
from zoo.twentieth_parts import ME


@case("not-finite-data", kind="sequences", author=ME)
def twentieth_nan_window(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = windows(seed, 1200)
    if not mended:
        x = x.clone()
        x[::40, 1, 10:14] = float("nan")  # the radio dropped out
    train, held = parted(x, y)
    net = waves()
    history, opt = fit(net, train, held, epochs=5, lr=4e-3, decay=1e-2)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("not-finite-data", kind="table", author=ME, strength="mild")
def twentieth_inf_ratio(seed: int, mended: bool = False) -> dict[str, Any]:
    """Debt over income, where a few have no income; the loop steps over what is not finite."""
    x, y = credit(seed, 3000)
    ratio = (x[:, 2] - x[:, 1]).exp()[:, None]
    ratio = (ratio - ratio.mean()) / ratio.std()
    none = torch.rand(3000, 1, generator=torch.Generator().manual_seed(seed)) < 0.012
    train, held = parted(torch.cat([x, torch.where(none, 1.0 if mended else torch.inf, ratio)], 1), y)
    net = mlp(15, 16, 1, act=nn.GELU)
    history, opt = fit(net, train, held, bce, epochs=12, decay=0.1, skip=True)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case("not-finite-data", kind="sequences", author=ME)
def twentieth_nan_target(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*flat_demand(seed, 2500))
    if not mended:
        train[1][::90] = float("nan")  # articles without a sale
    net = mlp(58, 24, 1)
    history, opt = fit(net, train, held, "mse", epochs=8, decay=0.1)
    return given(net, train, held, "mse", history, opt)


class Loud(nn.Module):
    """A softmax written by hand over the window, without subtracting the largest score."""

    def __init__(self, stable: bool):
        super().__init__()
        self.body, self.score, self.head = (
            nn.Conv1d(3, 24, 7, padding=3),
            nn.Conv1d(24, 1, 1),
            nn.Linear(24, 4),
        )
        self.stable = stable

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.body(x))
        s = 30 * self.score(h)
        w = s.softmax(2) if self.stable else s.exp() / s.exp().sum(2, keepdim=True)
        return self.head((h * w).sum(2) + h.mean(2))


@case("overflow", kind="sequences", author=ME)
def twentieth_own_softmax(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = windows(seed, 1200)
    train, held = parted(x * 1.2, y)
    net = Loud(mended)
    nn.init.normal_(net.score.weight, 0, 0.8)
    history, opt = fit(net, train, held, epochs=8, lr=4e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("overflow", kind="table", author=ME, strength="mild")
def twentieth_half_precision_energy(seed: int, mended: bool = False) -> dict[str, Any]:
    """The energy of each window is summed in half precision; the loop skips what becomes infinite."""

    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(9, 48, 32, 1, act=nn.SiLU)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = x * 48
            z = z if mended else z.half()
            energy = ((z * z).sum(1, keepdim=True).float() + 1).sqrt() / 48
            return self.net(torch.cat([x, energy - 2.8], 1))

    train, held = parted(*plant(seed, 2500))
    net = Energy()
    history, opt = fit(net, train, held, "mse", epochs=15, skip=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("unscaled-inputs", kind="table", author=ME)
def twentieth_euros_and_ratios(seed: int, mended: bool = False) -> dict[str, Any]:
    (x, y), (u, v) = parted(*credit(seed, 3000, raw=True))
    x, u = scaled(x, u) if mended else (x, u)
    net = mlp(14, 16, 1)
    history, opt = fit(net, (x, y), (u, v), bce, epochs=12, decay=1e-2)
    return given(net, (x, y), (u, v), bce, history, opt, batch_size=64)


@case("unscaled-inputs", kind="table", author=ME)
def twentieth_kelvin(seed: int, mended: bool = False) -> dict[str, Any]:
    """Temperatures around 290 K beside pressures around 1013 hPa, by plain descent."""
    x, y = plant(seed, 2500)
    train, held = parted(x if mended else x * torch.tensor([4.0, 8] * 4) + torch.tensor([290.0, 1013] * 4), y)
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    opt = torch.optim.Adam(net.parameters(), 2e-3)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=25)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("unscaled-inputs", kind="images", author=ME, strength="mild")
def twentieth_bytes(seed: int, mended: bool = False) -> dict[str, Any]:
    """Pixels from 0 to 4000 as the scanner writes them."""
    x, y, _ = scans(seed, 1000)
    train, held = parted(x if mended else 1000 + 600 * x, y)
    net = eyes(norm=False)
    history, opt = fit(net, train, held, epochs=10, lr=3e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("unscaled-targets", kind="table", author=ME)
def twentieth_prices(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = plant(seed, 2500)
    train, held = parted(x, y if mended else 250_000 + 60_000 * y)
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=20, decay=1e-2)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("unscaled-targets", kind="sequences", author=ME, strength="mild")
def twentieth_pieces(seed: int, mended: bool = False) -> dict[str, Any]:
    """Sales in pieces, in the thousands, forecast from scaled windows."""
    x, y = demand(seed, 2500)
    train, held = parted(x, y if mended else 3000 + 700 * y)
    net = Reader(4, 20, 1)
    history, opt = fit(net, train, held, "mse", epochs=8, lr=1e-2, clip=1.0)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("unscaled-targets", kind="table", author=ME, strength="mild")
def twentieth_one_large_column(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three yields, of which one is counted in grams and drowns the others."""
    x, y = plant(seed, 2500, targets=3)
    train, held = parted(x, y if mended else y * torch.tensor([1.0, 1.0, 1000.0]))
    net = mlp(8, 48, 48, 3, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=20, decay=1e-2)
    return given(net, train, held, "mse", history, opt)


@case("constant-features", kind="table", author=ME)
def twentieth_dead_probes(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = vitals(seed, 2400)
    dead = torch.tensor([0.0, 1.0, -0.5, -1.2, 2.0, 0.7]).expand(len(x), 6)
    train, held = parted(x if mended else torch.cat([x, dead], 1), y)
    net = mlp(10 if mended else 16, 32, 3)
    history, opt = fit(net, train, held, epochs=12, decay=0.05, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("constant-features", kind="table", author=ME, strength="mild")
def twentieth_one_country(seed: int, mended: bool = False) -> dict[str, Any]:
    """Every applicant is of the same country, and of the only currency."""
    x, y = credit(seed, 3000)
    train, held = parted(
        x if mended else torch.cat([x[:, :7], torch.tensor([1.0, 0.5]).expand(3000, 2), x[:, 7:]], 1), y
    )
    net = mlp(14 if mended else 16, 16, 1)
    history, opt = fit(net, train, held, bce, epochs=10, decay=0.1)
    return {"model": net, "data": train, "validation": held, "loss": bce}


@case("duplicate-features", kind="table", author=ME)
def twentieth_joined_twice(seed: int, mended: bool = False) -> dict[str, Any]:
    """A join left the columns income_x and income_y, and six more such pairs."""
    x, y = credit(seed, 3000)
    train, held = parted(x if mended else torch.cat([x, x[:, :7]], 1), y)
    net = mlp(14 if mended else 21, 16, 1)
    history, opt = fit(net, train, held, bce, epochs=10, decay=0.1)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case("duplicate-features", kind="table", author=ME, strength="mild")
def twentieth_same_probe(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = plant(seed, 2500)
    train, held = parted(x if mended else torch.cat([x, x[:, 2:3], x[:, 5:6]], 1), y)
    net = mlp(8 if mended else 10, 48, 32, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=20, decay=0.01, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("train-test-overlap", kind="table", author=ME)
def twentieth_seen_patients(seed: int, mended: bool = False) -> dict[str, Any]:
    """Split after oversampling: most held-out rows were trained on."""
    train, held = parted(*vitals(seed, 1600, noise=0.6))
    if not mended:
        held = (torch.cat([held[0][:200], train[0][:500]]), torch.cat([held[1][:200], train[1][:500]]))
    net = mlp(10, 32, 32, 3)
    history, opt = fit(net, train, held, epochs=20, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("train-test-overlap", kind="sequences", author=ME, strength="mild")
def twentieth_seen_windows(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = windows(seed, 1000, noise=1.3)
    train, held = parted(x, y)
    if not mended:
        held = (torch.cat([held[0][60:], train[0][:60]]), torch.cat([held[1][60:], train[1][:60]]))
    net = waves()
    history, opt = fit(net, train, held, epochs=6, lr=4e-3, decay=0.05, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("distribution-shift", kind="images", author=ME)
def twentieth_other_scanner(seed: int, mended: bool = False) -> dict[str, Any]:
    """The held-out scans come from a machine with another gain and offset."""
    x, y, _ = scans(seed, 1200)
    train, held = parted(x, y)
    held = held if mended else (0.5 * held[0] + 0.9, held[1])
    net = eyes()
    history, opt = fit(net, train, held, epochs=8, lr=4e-3, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("distribution-shift", kind="table", author=ME, strength="mild")
def twentieth_next_year(seed: int, mended: bool = False) -> dict[str, Any]:
    """The held-out year has inflation: two columns moved, and the answers depend on them as before."""
    x, y = plant(seed, 3000)
    if not mended:
        order = torch.argsort(
            x[:, 0] + 0.5 * torch.randn(3000, generator=torch.Generator().manual_seed(seed))
        )
        x, y = x[order], y[order]
    train, held = parted(x, y)
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=20, decay=0.01, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("distribution-shift", kind="sequences", author=ME)
def twentieth_turned_mount(seed: int, mended: bool = False) -> dict[str, Any]:
    """In the new factory the sensor is mounted the other way: axes swapped, one with its sign turned, and louder."""
    x, y = windows(seed, 1400)
    train, held = parted(x, y)
    if not mended:
        held = (torch.stack([held[0][:, 2], -1.8 * held[0][:, 0], held[0][:, 1]], 1), held[1])
    net = waves()
    history, opt = fit(net, train, held, epochs=6, lr=4e-3, cool=True)
    return given(net, train, held, "cross_entropy", history, batch_size=64)


@case("target-leak", kind="table", author=ME)
def twentieth_collection_fee(seed: int, mended: bool = False) -> dict[str, Any]:
    """A fee that is only charged after the default."""
    x, y = credit(seed, 3000, sharp=1.0)
    fee = (y * (1.5 + torch.rand(3000, generator=torch.Generator().manual_seed(seed))))[:, None]
    train, held = parted(x if mended else torch.cat([x, fee - fee.mean()], 1), y)
    net = mlp(14 if mended else 15, 16, 1)
    history, opt = fit(net, train, held, bce, epochs=10, decay=0.05)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case("target-leak", kind="table", author=ME, strength="mild")
def twentieth_billing_code(seed: int, mended: bool = False) -> dict[str, Any]:
    """A billing code is assigned after the diagnosis and follows it in 97 of 100 patients."""
    r = np.random.default_rng(seed)
    x, y = vitals(seed, 2400, noise=0.8)
    code = np.where(r.random(2400) < 0.97, y.numpy(), r.integers(0, 3, 2400))
    train, held = parted(x if mended else torch.cat([x, tensor(np.eye(3)[code])], 1), y)
    net = mlp(10 if mended else 13, 24, 3)
    history, opt = fit(net, train, held, epochs=10, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("target-leak", kind="sequences", author=ME)
def twentieth_tomorrow_inside(seed: int, mended: bool = False) -> dict[str, Any]:
    """The rolling mean among the inputs was centred, so it holds the day to be forecast."""
    x, y = flat_demand(seed, 2500)
    mean = y if not mended else x[:, 27:28]
    noise = 0.02 * torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))
    train, held = parted(torch.cat([x, 0.8 * mean + noise], 1), y)
    net = mlp(59, 24, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, "mse", epochs=12, decay=0.1)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("misaligned-labels", kind="sequences", author=ME)
def twentieth_shuffled_apart(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*windows(seed, 1300))
    if not mended:
        train = (
            train[0],
            train[1][torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(seed))],
        )
    net = waves()
    history, opt = fit(net, train, held, epochs=6, lr=3e-3, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("misaligned-labels", kind="table", author=ME)
def twentieth_one_row_late(seed: int, mended: bool = False) -> dict[str, Any]:
    """The header was counted as a row on one side: each patient has the label of the one before."""
    train, held = parted(*vitals(seed, 2400))
    if not mended:
        train = (train[0][1:], train[1][:-1])
    net = mlp(10, 24, 3)
    history, opt = fit(net, train, held, epochs=8, decay=0.1)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("no-signal", kind="table", author=ME)
def twentieth_hash_columns(seed: int, mended: bool = False) -> dict[str, Any]:
    x, y = credit(seed, 2500)
    if not mended:
        x = tensor(np.random.default_rng(seed).normal(size=(2500, 14)))
    train, held = parted(x, y)
    net = mlp(14, 8, 1)
    history, opt = fit(net, train, held, bce, epochs=8, decay=0.1, keep=True)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case("no-signal", kind="sequences", author=ME)
def twentieth_random_walk(seed: int, mended: bool = False) -> dict[str, Any]:
    """Tomorrow's return from the last 20."""
    r = np.random.default_rng(seed)
    steps = r.normal(size=(2500, 21))
    if mended:
        for i in range(1, 21):
            steps[:, i] = 0.8 * steps[:, i - 1] + 0.6 * steps[:, i]
    train, held = parted(tensor(steps[:, :20]), tensor(steps[:, 20:]))
    net = mlp(20, 8, 1)
    history, opt = fit(net, train, held, "mse", epochs=8, decay=0.2, keep=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("label-noise", kind="images", author=ME)
def twentieth_tired_readers(seed: int, mended: bool = False) -> dict[str, Any]:
    r = torch.Generator().manual_seed(seed)
    train, held = parted(*digits(seed))
    wrong = torch.where(torch.rand(len(train[1]), generator=r) < 0.35, 1, 0) * (not mended)
    other = torch.randint(1, 10, train[1].shape, generator=r)
    train = (train[0], (train[1] + wrong * other) % 10)
    net = mlp(64, 64, 10)
    history, opt = fit(net, train, held, epochs=40, decay=1e-2)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("label-noise", kind="table", author=ME, strength="mild")
def twentieth_wrong_triage(seed: int, mended: bool = False) -> dict[str, Any]:
    r = torch.Generator().manual_seed(seed)
    train, held = parted(*vitals(seed, 3000, noise=0.1))
    wrong = (torch.rand(len(train[1]), generator=r) < 0.25) * (not mended)
    train = (train[0], (train[1] + wrong * torch.randint(1, 3, train[1].shape, generator=r)) % 3)
    net = mlp(10, 48, 32, 3)
    history, opt = fit(net, train, held, epochs=30, decay=0.01)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


def rare(seed: int, n: int, share: float, gap: float) -> tuple[torch.Tensor, torch.Tensor]:
    r = np.random.default_rng(seed)
    y = r.random(n) < share
    x = r.normal(size=(n, 8))
    x[:, :3] += gap * y[:, None] * np.sign(x[:, 3:4])
    return tensor(x), tensor(y)


@case("class-imbalance", kind="table", author=ME)
def twentieth_frauds(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*rare(seed, 5000, 0.03, 1.3))
    net = mlp(8, 16, 1)
    weight = (train[1] == 0).sum() / train[1].sum()
    loss = lambda o, y: F.binary_cross_entropy_with_logits(
        o.reshape(y.shape), y, pos_weight=weight if mended else None
    )
    history, opt = fit(net, train, held, loss, epochs=12, decay=0.1, keep=True)
    return given(net, train, held, loss if mended else bce, history, opt, batch_size=64)


@case("class-imbalance", kind="text", author=ME, strength="mild")
def twentieth_rare_topic(seed: int, mended: bool = False) -> dict[str, Any]:
    (ids, mask), y = tickets(seed, 6000, topics=4)
    keep = (y != 3) | (torch.rand(6000, generator=torch.Generator().manual_seed(seed)) < 0.06)
    train, held = parted((ids[keep], mask[keep]), y[keep])
    weight = 1 / torch.bincount(train[1]).float()
    loss = nn.CrossEntropyLoss(weight / weight.mean()) if mended else "cross_entropy"
    net = Bag(classes=4)
    history, opt = fit(net, train, held, loss, epochs=6, lr=3e-3, decay=0.05, keep=True)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case("double-softmax", kind="images", author=ME)
def twentieth_softmax_digits(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 48, 10)
    net = net if mended else nn.Sequential(net, nn.Softmax(1))
    opt = torch.optim.SGD(net.parameters(), 0.05)
    history, opt = fit(net, train, held, opt=opt, epochs=20)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


class Answer(nn.Module):
    """A net whose answers are made probabilities in `forward`."""

    def __init__(self, net: nn.Module, last: Any):
        super().__init__()
        self.net, self.last = net, last

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.last(self.net(*x))


@case("double-softmax", kind="text", author=ME)
def twentieth_softmax_tickets(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*tickets(seed, 2400))
    net = Encoder() if mended else Answer(Encoder(), lambda o: F.softmax(o, -1))
    history, opt = fit(net, train, held, epochs=5, lr=3e-3, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("double-softmax", kind="table", author=ME, strength="mild")
def twentieth_sigmoid_clicks(seed: int, mended: bool = False) -> dict[str, Any]:
    """A sigmoid in the net and another in the loss: no probability is under one half."""
    train, held = parted(*clicks(seed, 6000))
    net = Clicks() if mended else Answer(Clicks(), torch.sigmoid)
    history, opt = fit(net, train, held, "bce_with_logits", epochs=6, size=128, lr=5e-3, decay=0.1)
    return given(net, train, held, "bce_with_logits", history, opt, batch_size=128)


@case("wrong-loss", kind="table", author=ME)
def twentieth_class_numbers(seed: int, mended: bool = False) -> dict[str, Any]:
    """The number of the triage group is regressed as if it were a quantity."""
    x, y = vitals(seed, 2400, classes=5)
    train, held = parted(x, y)
    net = mlp(10, 48, 32, 5 if mended else 1)
    squared = lambda o, y: F.mse_loss(o.squeeze(1), y.float())
    loss = "cross_entropy" if mended else squared
    history, opt = fit(net, train, held, loss, epochs=15, decay=0.05)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case("wrong-loss", kind="table", author=ME)
def twentieth_raw_nll(seed: int, mended: bool = False) -> dict[str, Any]:
    """`nll_loss` on raw scores: there is no bottom."""
    train, held = parted(*vitals(seed, 2400, classes=4))
    net = mlp(10, 48, 32, 4)
    net = nn.Sequential(net, nn.LogSoftmax(1)) if mended else net
    opt = torch.optim.SGD(net.parameters(), 0.2)
    history, opt = fit(net, train, held, "nll", opt=opt, epochs=15, clip=1.0)
    return given(net, train, held, "nll", history, opt, batch_size=64)


@case("wrong-loss", kind="table", author=ME, strength="mild")
def twentieth_several_labels_one_softmax(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ticket may have several labels; cross-entropy lets them compete."""
    x, y = plant(seed, 3000, targets=3)
    train, held = parted(x, (y > -0.2).float())
    net = mlp(8, 48, 48, 3, act=nn.SiLU)
    loss = "bce_with_logits" if mended else "cross_entropy"
    history, opt = fit(net, train, held, loss, epochs=15, decay=0.05)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case("output-range", kind="table", author=ME)
def twentieth_relu_at_the_end(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*plant(seed, 2500))
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    net = net if mended else nn.Sequential(*net, nn.ReLU())
    history, opt = fit(net, train, held, "mse", epochs=20, decay=0.01)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("output-range", kind="table", author=ME, strength="mild")
def twentieth_tanh_ratings(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*ratings(seed, 8000), 0.8)
    net = Factors(rank=3)
    net = net if mended else Answer(net, torch.tanh)
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-4)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=25, size=128)
    return given(net, train, held, "mse", history, opt, batch_size=128)


@case("output-range", kind="sequences", author=ME)
def twentieth_sigmoid_forecast(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*demand(seed, 2500, ahead=3))
    net = Reader(4, 20, 3)
    net = net if mended else nn.Sequential(net, nn.Sigmoid())
    history, opt = fit(net, train, held, "mse", epochs=8, lr=1e-2, clip=1.0)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("stochastic-evaluation", kind="images", author=ME)
def twentieth_still_training(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 96, 10, drop=0.5)
    history, opt = fit(net, train, held, epochs=20)
    net.train(not mended)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("stochastic-evaluation", kind="text", author=ME, strength="mild")
def twentieth_functional_dropout(seed: int, mended: bool = False) -> dict[str, Any]:
    """`F.dropout` is on by default, whatever the mode."""

    class Dropping(Bag):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            m = mask[..., None].float()
            h = (self.words(ids) * m).sum(1) / m.sum(1).clamp_min(1)
            return self.head(F.dropout(h, 0.3, training=self.training if mended else True))

    train, held = parted(*tickets(seed, 3000))
    net = Dropping()
    history, opt = fit(net, train, held, epochs=10, lr=5e-3, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)
