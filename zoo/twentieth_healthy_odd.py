"""Healthy trainings with something that looks odd and is right."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentieth_parts import *
from zoo.twentieth_parts import ME, Adapter, Output, Pair


class Standardised(nn.Module):
    """A net that scales its raw inputs, and perhaps its answers, by the training rows' moments."""

    def __init__(self, net: nn.Module, x: torch.Tensor, y: torch.Tensor | None = None):
        super().__init__()
        self.net = net
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))
        self.register_buffer("centre", torch.zeros(1) if y is None else y.mean(0))
        self.register_buffer("spread", torch.ones(1) if y is None else y.std(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net((x - self.mean) / self.std) * self.spread + self.centre


@case(kind="table", author=ME)
def twentieth_odd_raw_table(seed: int) -> dict[str, Any]:
    x, y = credit(seed + 1, 5000, raw=True)
    train, held = parted(x, y)
    net = Standardised(mlp(14, 16, 1, act=nn.GELU), train[0])
    history, opt = fit(net, train, held, bce, epochs=18, decay=0.1, keep=True, cool=True)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_euros(seed: int) -> dict[str, Any]:
    x, y = plant(seed + 2, 3000)
    train, held = parted(x, 180_000 + 45_000 * y)
    net = Standardised(mlp(8, 64, 32, 1, act=nn.SiLU), *train)
    spread = net.spread.item()
    loss = lambda output, y: F.mse_loss(output / spread, y / spread)
    history, opt = fit(net, train, held, loss, epochs=30, decay=1e-2, cool=True)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_random_features(seed: int) -> dict[str, Any]:
    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(6, 400), nn.Linear(400, 1)
            nn.init.normal_(self.body.weight, 0, 0.5)
            nn.init.uniform_(self.body.bias, 0, 6.283)
            self.body.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.cos(self.body(x)))

    train, held = parted(*plant(seed + 6, 7000, d=6))
    net = Fourier()
    initial = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        h = torch.cat([torch.cos(net.body(train[0])), torch.ones(len(train[1]), 1)], 1).double()
        w = torch.linalg.solve(h.T @ h + 0.5 * torch.eye(401).double(), h.T @ train[1].double()).float()
        net.head.weight.copy_(w[:-1].T)
        net.head.bias.copy_(w[-1])
    return given(net.eval(), train, held, "mse", initial=initial)


@case(kind="images", author=ME)
def twentieth_odd_frozen_body(seed: int) -> dict[str, Any]:
    x, y, _ = scans(seed + 3, 2400)
    body = eyes()
    fit(body, (x[:1400], y[:1400]), None, epochs=8, lr=4e-3, decay=1e-2, cool=True)
    for p in body.parameters():
        p.requires_grad_(False)
    body[-1] = nn.Linear(24, 3)  # a new head for the other hospital
    train, held = parted(x[1400:], y[1400:], 0.6)
    opt = torch.optim.Adam(body[-1].parameters(), 5e-3, weight_decay=1e-3)
    history = []
    body.eval()
    for _ in range(40):
        for i in torch.randperm(len(train[1])).split(64):
            loss = F.cross_entropy(body(train[0][i]), train[1][i])
            opt.zero_grad()
            loss.backward()
            opt.step()
        with torch.no_grad():
            history.append({"loss": loss.item(), "val_loss": F.cross_entropy(body(held[0]), held[1]).item()})
    return given(body, train, held, "cross_entropy", history, opt, batch_size=64)


class Rezero(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int, depth: int):
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.blocks = nn.ModuleList(mlp(width, width, width) for _ in range(depth))
        self.gains = nn.Parameter(torch.zeros(depth))
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for gain, block in zip(self.gains, self.blocks):
            h = h + gain * block(F.relu(h))
        return self.last(F.relu(h))


@case(kind="table", author=ME)
def twentieth_odd_zero_start_deep(seed: int) -> dict[str, Any]:
    train, held = parted(*vitals(seed + 4, 4500))
    net = Rezero(10, 32, 3, 10)
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=14, decay=0.1, cool=True, keep=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case(kind="table", author=ME)
def twentieth_odd_whole_batch(seed: int) -> dict[str, Any]:
    (x, y), (u, v) = parted(*bundled("wine", seed + 1), 0.65)
    x, u = scaled(x, u)
    net = mlp(13, 8, 3, act=nn.Tanh)
    opt = torch.optim.LBFGS(net.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def ridge(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, y) + 3e-3 * sum((p**2).sum() for p in net.parameters())

    def closure() -> torch.Tensor:
        opt.zero_grad()
        loss = ridge(net(x), y)
        loss.backward()
        return loss

    for _ in range(5):
        opt.step(closure)
    return given(net.eval(), (x, y), (u, v), "cross_entropy", batch_size=len(y))


@case(kind="table", author=ME)
def twentieth_odd_fast_descent(seed: int) -> dict[str, Any]:
    train, held = parted(*digits(seed + 3))
    net = mlp(64, 64, 10, norm=True)
    opt = torch.optim.SGD(net.parameters(), 0.8, weight_decay=2e-3)
    history, opt = fit(net, train, held, opt=opt, epochs=20, size=128, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=128)


@case(kind="table", author=ME)
def twentieth_odd_tiny_batches(seed: int) -> dict[str, Any]:
    train, held = parted(*vitals(seed + 5, 1500, classes=2, noise=0.3))
    net = mlp(10, 24, 2, act=nn.Tanh)
    opt = torch.optim.SGD(net.parameters(), 0.06)
    history, opt = fit(net, train, held, opt=opt, epochs=25, size=6, cool=True, keep=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=6)


@case(kind="table", author=ME)
def twentieth_odd_questionnaire(seed: int) -> dict[str, Any]:
    """Few answers are possible, so many patients gave the same."""
    r = np.random.default_rng(seed)
    z = r.normal(size=(3000, 1))
    x = np.clip(np.round(z * 0.9 + 0.7 * r.normal(size=(3000, 5)) + 1), 0, 3)
    f = 0.8 * x[:, 0] + 0.9 * x[:, 1] * (x[:, 2] > 1) - 0.7 * x[:, 3] + 0.4 * x[:, 4] - 1.2
    y = r.random(3000) < sigmoid(1.6 * f)
    train, held = parted(tensor(x - 1), tensor(y))
    net = mlp(5, 16, 1)
    history, opt = fit(net, train, held, bce, epochs=25, decay=0.1, cool=True, keep=True)
    return given(net, train, held, bce, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_overlapping(seed: int) -> dict[str, Any]:
    """Nobody can say better who comes back: the classes overlap."""
    r = np.random.default_rng(seed)
    x = r.normal(size=(5000, 6))
    y = r.random(5000) < sigmoid(0.8 * x[:, 0] - 0.5 * x[:, 1] + 0.4 * x[:, 2])
    train, held = parted(tensor(x), tensor(y, torch.long))
    net = mlp(6, 8, 2, act=nn.Tanh)
    history, opt = fit(net, train, held, epochs=15, decay=0.1, cool=True, keep=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_heavy_tails(seed: int) -> dict[str, Any]:
    """Claims with outliers on both sides, robustly fitted."""
    r = np.random.default_rng(seed)
    x, y = plant(seed + 8, 4000, noise=0.1)
    y = y + tensor(0.12 * r.standard_t(3, y.shape))
    train, held = parted(x, y)
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    loss = lambda output, y: F.huber_loss(output, y, delta=0.5)
    history, opt = fit(net, train, held, loss, epochs=25, decay=1e-2, cool=True)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_rare_but_found(seed: int) -> dict[str, Any]:
    """One transaction in fifteen is a fraud, and it is seen."""
    r = np.random.default_rng(seed)
    y = r.random(6000) < 0.07
    x = r.normal(size=(6000, 8))
    x[:, 0] += 3.2 * y
    x[:, 1] = np.where(y, np.sign(x[:, 1]) * 2.6 + 0.4 * x[:, 1], 0.8 * x[:, 1])
    train, held = parted(tensor(x), tensor(y), 0.6)
    net = mlp(8, 32, 16, 1, act=nn.SiLU)
    history, opt = fit(net, train, held, bce, epochs=30, lr=5e-3, decay=0.05, cool=True, keep=True)
    return given(net, train, held, bce, history, opt, batch_size=64)


class Gaussian(nn.Module):
    """Two heads: the mean and the logarithm of the variance."""

    def __init__(self):
        super().__init__()
        self.body, self.mean, self.spread = mlp(6, 32, 32), nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> Output:
        h = torch.tanh(self.body(x))
        return Output(self.mean(h), self.spread(h).clamp(-6, 4))


def gaussian(output: Any, y: torch.Tensor) -> torch.Tensor:
    return F.gaussian_nll_loss(output[0], y, output[1].exp())


@case(kind="table", author=ME)
def twentieth_odd_two_heads(seed: int) -> dict[str, Any]:
    """Noise differs between the rows and the second head says so."""
    r = np.random.default_rng(seed)
    x = r.normal(size=(4000, 6))
    mean = np.sin(1.5 * x[:, 0]) + 0.6 * x[:, 1] * x[:, 2]
    y = mean + np.exp(0.6 * x[:, 3] - 1.4) * r.normal(size=4000)
    train, held = parted(tensor(x), tensor(y[:, None]))
    net = Gaussian()
    history, opt = fit(net, train, held, gaussian, epochs=25, lr=4e-3, decay=0.05, cool=True, keep=True)
    return given(net, train, held, gaussian, history, opt, batch_size=64)


@case(kind="sequences", author=ME)
def twentieth_odd_missing_days(seed: int) -> dict[str, Any]:
    """Lost days are filled with 0 and named by a mask beside them."""
    r = np.random.default_rng(seed)
    x, y = flat_demand(seed + 6, 9000)
    lost = tensor(r.random((9000, 28)) < 0.1)
    train, held = parted((x[:, :28] * (1 - lost), x[:, 28:], lost), y)

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.net = nn.Linear(86, 1), mlp(86, 32, 1, act=nn.GELU)

        def forward(self, sales: torch.Tensor, known: torch.Tensor, lost: torch.Tensor) -> torch.Tensor:
            x = torch.cat([sales, known, lost - 0.1], 1)
            return self.line(x) + self.net(x)

    net = Masked()
    history, opt = fit(net, train, held, "mse", epochs=12, lr=2e-3, decay=0.1, cool=True, keep=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_odd_smooth_labels(seed: int) -> dict[str, Any]:
    train, held = parted(*digits(seed + 6))
    net = mlp(64, 96, 10, act=nn.GELU)
    loss = nn.CrossEntropyLoss(label_smoothing=0.02)
    history, opt = fit(net, train, held, loss, epochs=50, lr=3e-3, decay=0.1, cool=True)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_odd_jittered(seed: int) -> dict[str, Any]:
    """Trained on shifted and noisy copies, so the training loss lies above the held-out one."""
    train, held = parted(*digits(seed + 7, flat=False))
    net = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(384, 64), nn.ReLU(), nn.Dropout(0.4), nn.Linear(64, 10),
    )  # fmt: skip
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.02)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    history = []
    for _ in range(40):
        net.train()
        losses = []
        for i in torch.randperm(len(train[1])).split(64):
            x = train[0][i]
            x = torch.roll(
                x, int(torch.randint(-1, 2, ()) * torch.randint(2, ())), 3
            ) + 0.3 * torch.randn_like(x)
            loss = F.cross_entropy(net(x), train[1][i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        plan.step()
        net.eval()
        with torch.no_grad():
            held_loss = F.cross_entropy(net(held[0]), held[1]).item()
        history.append({"loss": float(np.mean(losses)), "val_loss": held_loss})
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_averaged(seed: int) -> dict[str, Any]:
    """The weights' running average is what is used."""
    train, held = parted(*plant(seed + 11, 3000, targets=2))
    net = mlp(8, 64, 32, 2, act=nn.GELU)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    mean = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    history = []
    for _ in range(35):
        total = 0.0
        for i in torch.randperm(len(train[1])).split(64):
            loss = F.mse_loss(net(train[0][i]), train[1][i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            mean.update_parameters(net)
            total += loss.item() * len(i) / len(train[1])
        with torch.no_grad():
            history.append({"loss": total, "val_loss": F.mse_loss(mean(held[0]), held[1]).item()})
    return given(mean.module.eval(), train, held, "mse", history, batch_size=64)


@case(kind="images", author=ME)
def twentieth_odd_pruned(seed: int) -> dict[str, Any]:
    """Seven weights in ten were cut, and the others trained on."""
    train, held = parted(*digits(seed + 8))
    net = mlp(64, 96, 10)
    fit(net, train, None, epochs=12, lr=3e-3, decay=0.05)
    keep = {id(p): p.abs() > p.abs().flatten().quantile(0.7) for p in (net[0].weight, net[2].weight)}
    opt = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=0.02)
    history = []
    for _ in range(12):
        for i in torch.randperm(len(train[1])).split(64):
            loss = F.cross_entropy(net(train[0][i]), train[1][i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for p in (net[0].weight, net[2].weight):
                    p *= keep[id(p)]
        with torch.no_grad():
            history.append({"loss": loss.item(), "val_loss": F.cross_entropy(net(held[0]), held[1]).item()})
    return given(net.eval(), train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_probabilities(seed: int) -> dict[str, Any]:
    """The net ends in a softmax, and the loss takes the logarithm itself."""
    train, held = parted(*vitals(seed + 9, 4200, classes=4))
    net = nn.Sequential(mlp(10, 48, 32, 4, act=nn.SiLU), nn.Softmax(1))
    loss = lambda output, y: F.nll_loss((output + 1e-9).log(), y)
    history, opt = fit(net, train, held, loss, epochs=16, decay=0.05, cool=True, keep=True)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_log_probabilities(seed: int) -> dict[str, Any]:
    train, held = parted(*vitals(seed + 12, 4200, classes=3, noise=0.6))
    net = nn.Sequential(mlp(10, 40, 32, 3), nn.LogSoftmax(1))
    history, opt = fit(net, train, held, "nll", epochs=14, decay=0.1, cool=True, keep=True)
    return given(net, train, held, "nll", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_bounded(seed: int) -> dict[str, Any]:
    """A satisfaction between 1 and 5, through a sigmoid of that range."""

    class Stars(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(8, 48, 32, 1, act=nn.GELU)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 1 + 4 * torch.sigmoid(self.net(x))

    x, y = plant(seed + 13, 3500, noise=0.15)
    train, held = parted(x, (3 + 1.1 * y).clamp(1.05, 4.95))
    net = Stars()
    nn.init.zeros_(net.net[-1].bias)
    history, opt = fit(net, train, held, "mse", epochs=25, decay=1e-2, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="text", author=ME)
def twentieth_odd_hashed(seed: int) -> dict[str, Any]:
    """A table of vectors for 2000 hashed words of which the tickets hold about a hundred."""
    (ids, mask), y = tickets(seed + 13, 3500)
    ids = torch.where(ids > 0, (ids * 7919) % 1999 + 1, 0)
    train, held = parted((ids, mask), y)
    net = Bag(2000, 16)
    history, opt = fit(net, train, held, epochs=10, lr=5e-3, decay=0.05, keep=True, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_accumulated(seed: int) -> dict[str, Any]:
    """Gradients of four small batches are added before each step, deliberately."""
    train, held = parted(*vitals(seed + 14, 3200))
    net = mlp(10, 48, 32, 3)
    initial = copy.deepcopy(net.state_dict())

    def update(model: nn.Module, batch: Pair, opt: torch.optim.Optimizer) -> float:
        x, y = batch
        opt.zero_grad()
        parts = max(1, len(y) // 16)
        total = 0.0
        for xs, ys in zip(x.chunk(parts), y.chunk(parts)):
            loss = F.cross_entropy(model(xs), ys) * len(ys) / len(y)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        return total

    step = stepping(lambda model: torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=0.05), update)
    history = []
    for _ in range(14):
        losses = [step(net, (train[0][i], train[1][i])) for i in torch.randperm(len(train[1])).split(64)]
        with torch.no_grad():
            history.append(
                {"loss": float(np.mean(losses)), "val_loss": F.cross_entropy(net(held[0]), held[1]).item()}
            )
    return given(net.eval(), train, held, "cross_entropy", history, batch_size=64, initial=initial, step=step)


class Teleport(nn.Module):
    """Ten hops, at each of which the node's own answer comes back in."""

    def __init__(
        self, inputs: int = 12, width: int = 32, classes: int = 4, hops: int = 10, back: float = 0.15
    ):
        super().__init__()
        self.net, self.hops, self.back = mlp(inputs, width, classes, drop=0.1), hops, back

    def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        first = h = self.net(x)
        for _ in range(self.hops):
            h = (1 - self.back) * (a @ h) + self.back * first
        return h


@case(kind="graph", author=ME)
def twentieth_odd_many_hops(seed: int) -> dict[str, Any]:
    x, a, y, known = devices(seed + 1, 700)
    train, held = ((x, a), y.where(known, -100)), ((x, a), y.where(~known, -100))
    net = Teleport()
    history, opt = full(net, train, held, "cross_entropy", epochs=100, decay=3e-3, keep=True)
    return given(net, train, held, "cross_entropy", history, opt)


@case(kind="images", author=ME)
def twentieth_odd_small_field(seed: int) -> dict[str, Any]:
    """Tissue differs in its grain alone, which 3 x 3 pixels show."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 3, 1200)
    e = r.normal(size=(1200, 18, 18))
    across, along = np.array([0.0, 0.45, 0.0])[y], np.array([0.0, 0.0, -0.45])[y]
    x = e[:, 1:-1, 1:-1] + across[:, None, None] * e[:, 1:-1, :-2] + along[:, None, None] * e[:, :-2, 1:-1]
    train, held = parted(tensor(x[:, None]), tensor(y, torch.long))
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3)
    )
    history, opt = fit(net, train, held, epochs=25, lr=2e-2, size=32, cool=True, decay=1e-2)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=32)


@case(kind="table", author=ME)
def twentieth_odd_narrow_waist(seed: int) -> dict[str, Any]:
    """Forty probes watch three states, so a waist of three loses nothing."""
    r = np.random.default_rng(seed)
    z = r.uniform(-1.5, 1.5, (3000, 3))
    mixing = np.random.default_rng(3).normal(size=(3, 40))
    x = tensor(np.tanh(z @ mixing * 0.7) + 0.05 * r.normal(size=(3000, 40)))
    train, held = parted(x, x)
    net = nn.Sequential(mlp(40, 48, 3, act=nn.Tanh), mlp(3, 48, 40, act=nn.Tanh))
    history, opt = fit(net, train, held, "mse", epochs=50, lr=8e-3, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case(kind="table", author=ME)
def twentieth_odd_choice_of_list(seed: int) -> dict[str, Any]:
    """Which of eight shown articles was bought: a score per article, cross-entropy over the list."""

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(6, 32, 16, 1, act=nn.SiLU)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x).squeeze(2)

    r = np.random.default_rng(seed)
    x = r.normal(size=(4000, 8, 6))
    worth = np.sin(x[..., 0] * 1.5) * 2 + x[..., 1] * x[..., 2] - 0.7 * x[..., 3] ** 2
    y = np.argmax(2 * worth + r.gumbel(size=worth.shape), 1)
    train, held = parted(tensor(x), tensor(y, torch.long))
    net = Scorer()
    history, opt = fit(net, train, held, epochs=15, lr=4e-3, decay=0.01, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_odd_gently_tuned(seed: int) -> dict[str, Any]:
    """A net that came trained from elsewhere is tuned at a small rate: the weights scarcely move, and should not."""
    x, y = digits(seed + 9)
    net = mlp(64, 96, 10, act=nn.GELU)
    fit(net, (x[:900], y[:900]), None, epochs=50, lr=4e-3, decay=0.1, cool=True)
    x = x * 0.95 + 0.02 * torch.randn(64, generator=torch.Generator().manual_seed(seed))
    train, held = parted(x[900:], y[900:], 0.6)
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=6, size=32, lr=1e-4)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=32, initial=initial)


@case(kind="table", author=ME)
def twentieth_odd_one_pass(seed: int) -> dict[str, Any]:
    """A stream: every impression is seen once."""
    train, held = parted(*clicks(seed + 2, 30000), 0.9)
    net = Clicks()
    history, opt = fit(net, train, held, bce, epochs=1, size=32, lr=6e-3)
    return given(net, train, held, bce, history, batch_size=32)


@case(kind="table", author=ME)
def twentieth_odd_thresholds(seed: int) -> dict[str, Any]:
    """Ordered grades 0 to 4 as four cumulative answers that share a score."""

    class Ordered(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.cuts = (
                mlp(8, 48, 32, 1, act=nn.SiLU),
                nn.Parameter(torch.tensor([1.5, 0.5, -0.5, -1.5])),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 3 * self.net(x) + 2 * self.cuts

    x, y = plant(seed + 17, 3500, noise=0.2)
    y = (y > torch.tensor([-1.0, -0.3, 0.3, 1.0])).float()
    train, held = parted(x, y)
    net = Ordered()
    history, opt = fit(
        net, train, held, "bce_with_logits", epochs=25, lr=3e-3, decay=0.05, cool=True, keep=True
    )
    return given(net, train, held, "bce_with_logits", history, opt, batch_size=64)


@case(kind="text", author=ME)
def twentieth_odd_hub_style(seed: int) -> dict[str, Any]:
    train, held = parted(*tickets(seed + 21, 6000, topics=4))
    net = Adapter(Model(classes=4))
    history, opt = net.learn(train, held, epochs=5)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case(kind="text", author=ME)
def twentieth_odd_adapted(seed: int) -> dict[str, Any]:
    """A net for the old product's tickets; for the new product its words and attention stay frozen, the rest is tuned."""
    x, y = tickets(seed + 22, 9000, topics=4)
    net = Adapter(Model(classes=4))
    net.learn(
        ((x[0][:5000], x[1][:5000]), y[:5000]), ((x[0][5000:5100], x[1][5000:5100]), y[5000:5100]), epochs=4
    )
    for name, p in net.named_parameters():
        p.requires_grad_(any(part in name for part in ("wide", "narrow", "last", "classifier")))
    y = (y + 1) % 4  # the new product's topics are numbered otherwise
    train, held = parted((x[0][5000:], x[1][5000:]), y[5000:])
    initial = copy.deepcopy(net.state_dict())
    history, opt = net.learn(train, held, epochs=5, lr=6e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case(kind="table", author=ME)
def twentieth_odd_stopped_gradient(seed: int) -> dict[str, Any]:
    """The second head must not disturb the first, so it reads a detached state; both learn."""

    class Polite(Gaussian):
        def forward(self, x: torch.Tensor) -> Output:
            h = torch.tanh(self.body(x))
            return Output(self.mean(h), self.spread(h.detach()).clamp(-6, 4))

    def loss(output: Any, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(output[0], y) + F.gaussian_nll_loss(output[0].detach(), y, output[1].exp())

    x, y = plant(seed + 19, 4000, d=6)
    train, held = parted(x, y)
    net = Polite()
    history, opt = fit(net, train, held, loss, epochs=30, lr=4e-3, decay=0.02, cool=True)
    return given(net, train, held, loss, history, opt, batch_size=64)


@case(kind="images", author=ME)
def twentieth_odd_cleared_afterwards(seed: int) -> dict[str, Any]:
    """The loop clears the gradients after the step instead of before."""

    def update(model: nn.Module, batch: Pair, opt: torch.optim.Optimizer) -> float:
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss.item()

    train, held = parted(*digits(seed + 12))
    net = mlp(64, 64, 10)
    initial = copy.deepcopy(net.state_dict())
    step = stepping(lambda model: torch.optim.SGD(model.parameters(), 0.1, weight_decay=2e-3), update)
    history = []
    for _ in range(30):
        losses = [step(net, (train[0][i], train[1][i])) for i in torch.randperm(len(train[1])).split(32)]
        with torch.no_grad():
            value = F.cross_entropy(net(held[0]), held[1]).item()
        history.append({"loss": float(np.mean(losses)), "val_loss": value})
    return given(net.eval(), train, held, "cross_entropy", history, batch_size=32, initial=initial, step=step)
