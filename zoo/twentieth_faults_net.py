"""Faults of the graph, the loop, the start, the architecture, the descent and the outcome."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twentieth_healthy_plain import Table, Vae, train_vae
from zoo.twentieth_parts import *
from zoo.twentieth_parts import ME, Adapter


@case("detached-parameters", kind="text", author=ME)
def twentieth_detached_words(seed: int, mended: bool = False) -> dict[str, Any]:
    """The words' vectors pass through `.detach()`."""

    class Cut(Bag):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            h = self.words(ids)
            h = h if mended else h.detach()
            m = mask[..., None].float()
            return self.head((h * m).sum(1) / m.sum(1).clamp_min(1))

    train, held = parted(*tickets(seed, 3000))
    net = Cut(width=6)
    history, opt = fit(net, train, held, epochs=14, lr=5e-3, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("detached-parameters", kind="sequences", author=ME)
def twentieth_no_grad_left(seed: int, mended: bool = False) -> dict[str, Any]:
    """The encoder runs under `no_grad`, a remainder of the evaluation's code."""

    class Leftover(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(4, 12, batch_first=True), nn.Linear(12, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.set_grad_enabled(mended and torch.is_grad_enabled()):
                h = self.rnn(x)[0][:, -1]
            return self.head(h)

    train, held = parted(*demand(seed, 2500))
    net = Leftover()
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, "mse", epochs=8, lr=1e-2, clip=1.0)
    return given(net, train, held, "mse", history, opt, batch_size=64, initial=initial)


@case("detached-parameters", kind="table", author=ME, strength="mild")
def twentieth_one_tower_cut(seed: int, mended: bool = False) -> dict[str, Any]:
    """The items' vectors are read through `.data`; the users' learn."""

    class Half(Factors):
        def forward(self, pair: torch.Tensor) -> torch.Tensor:
            u, i = pair[:, 0], pair[:, 1]
            q = self.item.weight if mended else self.item.weight.data
            return self.user_bias(u) + self.item_bias(i) + (self.user(u) * q[i]).sum(1, keepdim=True)

    train, held = parted(*ratings(seed, 8000), 0.8)
    net = Half(rank=3, size=0.3)
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-4)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=25, size=128)
    return given(net, train, held, "mse", history, opt, batch_size=128)


@case("frozen-parameters", kind="images", author=ME)
def twentieth_frozen_random_body(seed: int, mended: bool = False) -> dict[str, Any]:
    """The body was frozen for fine-tuning, but its checkpoint was never loaded."""
    x, y, _ = scans(seed, 1200)
    train, held = parted(x, y)
    net = eyes(width=6)
    for p in net[:-1].parameters():
        p.requires_grad_(mended)
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 4e-3)
    history, opt = fit(net, train, held, opt=opt, epochs=10)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("frozen-parameters", kind="text", author=ME)
def twentieth_from_pretrained(seed: int, mended: bool = False) -> dict[str, Any]:
    """`Embedding.from_pretrained` freezes by default, and the file held noise."""
    train, held = parted(*tickets(seed, 3000))
    net = Bag(width=8)
    net.words = nn.Embedding.from_pretrained(0.5 * torch.randn(120, 8), freeze=not mended)
    history, opt = fit(net, train, held, epochs=14, lr=5e-3, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("frozen-parameters", kind="table", author=ME, strength="mild", needs=("optimizer", "initial"))
def twentieth_head_only_in_optimizer(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, 24, 16, 3)
    initial = copy.deepcopy(net.state_dict())
    opt = torch.optim.Adam((net if mended else net[-1]).parameters(), 5e-3)
    history, opt = fit(net, train, held, opt=opt, epochs=12)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


def learnt(net: nn.Module, train: Pair, step: Any, epochs: int, size: int = 64) -> list[dict[str, float]]:
    history = []
    net.train()
    for _ in range(epochs):
        losses = [step(net, (train[0][i], train[1][i])) for i in torch.randperm(len(train[1])).split(size)]
        history.append({"loss": float(np.mean(losses))})
    net.eval()
    return history


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def twentieth_never_cleared(seed: int, mended: bool = False) -> dict[str, Any]:
    def update(model: nn.Module, batch: Pair, opt: torch.optim.Optimizer) -> float:
        if mended:
            opt.zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    train, held = parted(*plant(seed, 2500))
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    step = stepping(lambda model: torch.optim.Adam(model.parameters(), 3e-3), update)
    history = learnt(net, train, step, 15)
    return given(net, train, held, "mse", history, batch_size=64, step=step)


@case("gradients-not-cleared", kind="images", author=ME, needs=("step",))
def twentieth_cleared_too_early(seed: int, mended: bool = False) -> dict[str, Any]:
    """`model.zero_grad` is called for the head alone, after a rewrite into body and head."""

    def update(model: nn.Module, batch: Pair, opt: torch.optim.Optimizer) -> float:
        (model if mended else model[-1]).zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    train, held = parted(*digits(seed))
    net = mlp(64, 48, 32, 10)
    step = stepping(lambda model: torch.optim.SGD(model.parameters(), 0.1), update)
    history = learnt(net, train, step, 20)
    return given(net, train, held, "cross_entropy", history, batch_size=64, step=step)


@case("symmetric-initialisation", kind="images", author=ME)
def twentieth_all_equal(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 48, 32, 10, act=nn.Tanh)
    if not mended:
        for layer in net[::2]:
            nn.init.constant_(layer.weight, 0.02)
            nn.init.zeros_(layer.bias)
    history, opt = fit(net, train, held, epochs=20)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("symmetric-initialisation", kind="table", author=ME, strength="mild")
def twentieth_equal_hidden(seed: int, mended: bool = False) -> dict[str, Any]:
    """Only the first layer was filled with one number; the second starts at zero, as some advise for heads."""
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, 32, 3)
    initial = copy.deepcopy(net.state_dict())
    if not mended:
        nn.init.constant_(net[0].weight, 0.1)
        nn.init.constant_(net[0].bias, 0.0)
        nn.init.zeros_(net[2].weight)
        initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=15, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("saturated-units", kind="table", author=ME)
def twentieth_steep_tanh(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*plant(seed, 2500))
    net = mlp(8, 48, 32, 1, act=nn.Tanh)
    if not mended:
        for layer in (net[0], net[2]):
            nn.init.normal_(layer.weight, 0, 8)
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, "mse", epochs=20)
    return given(net, train, held, "mse", history, opt, batch_size=64, initial=initial)


@case("saturated-units", kind="images", author=ME)
def twentieth_steep_sigmoid(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 40, 24, 10, act=nn.Sigmoid)
    if not mended:
        nn.init.normal_(net[0].weight, 0, 4)
        nn.init.normal_(net[2].weight, 0, 8)
    history, opt = fit(net, train, held, epochs=25, lr=5e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("dead-units", kind="table", author=ME)
def twentieth_cold_relu(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, 48, 32, 3)
    if not mended:
        nn.init.constant_(net[2].bias, -12)
    history, opt = fit(net, train, held, epochs=12, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("dead-units", kind="images", author=ME, strength="mild")
def twentieth_mostly_cold(seed: int, mended: bool = False) -> dict[str, Any]:
    """All but four of the hidden units never wake."""
    train, held = parted(*digits(seed))
    net = mlp(64, 48, 10)
    if not mended:
        nn.init.constant_(net[0].bias[4:].data, 0)
        with torch.no_grad():
            net[0].bias[4:] = -25.0
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=20)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("exploding-gradient", kind="sequences", author=ME)
def twentieth_growing_state(seed: int, mended: bool = False) -> dict[str, Any]:
    """A recurrent net with ReLU whose recurrent weights are too large, without clipping."""
    x, y = windows(seed, 1200, length=40)
    train, held = parted(x.transpose(1, 2).contiguous(), y)
    net = Reader(3, 24, 4, nn.RNN, nonlinearity="relu")
    nn.init.eye_(net.rnn.weight_hh_l0)
    if not mended:
        nn.init.normal_(net.rnn.weight_hh_l0, 0, 0.42)
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=10, lr=2e-3, clip=1.0 if mended else None)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("exploding-gradient", kind="table", author=ME)
def twentieth_loud_start(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, *[48] * 8, 3)
    for layer in net[::2]:
        nn.init.normal_(layer.weight, 0, (2 / layer.in_features) ** 0.5 * (1 if mended else 3))
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=12, lr=1e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("vanishing-gradient", kind="table", author=ME)
def twentieth_deep_sigmoid(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, *[32] * (2 if mended else 12), 3, act=nn.Sigmoid)
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=20, lr=1e-2)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("vanishing-gradient", kind="sequences", author=ME)
def twentieth_forgotten_start(seed: int, mended: bool = False) -> dict[str, Any]:
    """What matters stands in the first five of forty steps, and the plain recurrent net forgets."""
    r = np.random.default_rng(seed)
    x = r.normal(size=(1200, 40, 3))
    y = r.integers(0, 3, 1200)
    x[:, :5] += 1.5 * np.eye(3)[y][:, None]
    train, held = parted(tensor(x), tensor(y, torch.long))
    net = Reader(3, 24, 3, nn.GRU if mended else nn.RNN)
    if mended:
        nn.init.constant_(net.rnn.bias_hh_l0.data[24:48], 3.0)
    else:
        net.rnn.weight_hh_l0.data *= 0.7
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=12, lr=4e-3, clip=1.0)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("vanishing-gradient", kind="images", author=ME)
def twentieth_faint_start(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, *[40] * 7, 10, act=nn.Tanh)
    for layer in net[::2]:
        nn.init.normal_(layer.weight, 0, layer.in_features**-0.5 if mended else 0.02)
    initial = copy.deepcopy(net.state_dict())
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    history, opt = fit(net, train, held, opt=opt, epochs=12)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("oversmoothing", kind="graph", author=ME)
def twentieth_too_many_rounds(seed: int, mended: bool = False) -> dict[str, Any]:
    """The device's own reading matters, but forty averages over neighbours precede the net."""

    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(12, 32, 4)

        def forward(self, x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
            for _ in range(2 if mended else 40):
                x = a @ x
            return self.net(x)

    x, a, y, known = devices(seed)
    train, held = ((x, a), y.where(known, -100)), ((x, a), y.where(~known, -100))
    net = Averaged()
    history, opt = full(net, train, held, "cross_entropy", epochs=80, decay=5e-3)
    return given(net, train, held, "cross_entropy", history, opt)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def twentieth_several_convolutions(seed: int, mended: bool = False) -> dict[str, Any]:
    x, a, y, known = devices(seed + 1)
    train, held = ((x, a), y.where(known, -100)), ((x, a), y.where(~known, -100))
    net = Graph(width=24, hops=2 if mended else 6, drop=0.0)
    history, opt = full(net, train, held, "cross_entropy", epochs=80, decay=1e-3)
    return given(net, train, held, "cross_entropy", history, opt)


class Tagging(nn.Module):
    """Convolutions over words."""

    def __init__(self, kernel: int):
        super().__init__()
        self.words = nn.Embedding(40, 12)
        self.first, self.second = nn.Conv1d(12, 40, kernel, padding=kernel // 2), nn.Conv1d(40, 40, 1)
        self.head = nn.Linear(40, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.second(F.relu(self.first(self.words(ids).transpose(1, 2)))))
        return self.head(h.transpose(1, 2))


@case("receptive-field-too-small", kind="text", author=ME)
def twentieth_two_words_away(seed: int, mended: bool = False) -> dict[str, Any]:
    """The tag depends on the word three before; the net sees one to each side."""
    train, held = parted(*tagged(seed, 1200, reach=3))
    net = Tagging(7 if mended else 3)
    history, opt = fit(net, train, held, tags_loss, epochs=7, size=32, lr=4e-3)
    return given(net, train, held, tags_loss, history, opt, batch_size=32)


@case("receptive-field-too-small", kind="sequences", author=ME)
def twentieth_sample_by_sample(seed: int, mended: bool = False) -> dict[str, Any]:
    """Kernels of one sample see no rhythm."""
    train, held = parted(*windows(seed, 1300))
    net = waves(kernel=7 if mended else 1)
    history, opt = fit(net, train, held, epochs=10, lr=4e-3, decay=0.01)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("receptive-field-too-small", kind="images", author=ME)
def twentieth_pixel_by_pixel(seed: int, mended: bool = False) -> dict[str, Any]:
    """Lesions are outlined from each pixel alone."""
    x, _, mask = scans(seed, 800, noise=0.45)
    train, held = parted(x, mask)
    k = 5 if mended else 1
    net = nn.Sequential(
        nn.Conv2d(1, 12, k, padding=k // 2),
        nn.ReLU(),
        nn.Conv2d(12, 12, k, padding=k // 2),
        nn.ReLU(),
        nn.Conv2d(12, 1, 1),
    )
    history, opt = fit(net, train, held, "bce_with_logits", epochs=16, size=32, lr=5e-3, cool=True)
    return given(net, train, held, "bce_with_logits", history, opt, batch_size=32)


@case("bottleneck", kind="table", author=ME)
def twentieth_one_wide(seed: int, mended: bool = False) -> dict[str, Any]:
    """Between two wide layers stands one of a single unit."""
    train, held = parted(*vitals(seed, 3000, classes=5))
    net = mlp(10, 64, 32 if mended else 1, 64, 5, act=nn.Tanh)
    history, opt = fit(net, train, held, epochs=15, lr=4e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("bottleneck", kind="images", author=ME, strength="mild")
def twentieth_two_codes(seed: int, mended: bool = False) -> dict[str, Any]:
    x, _ = digits(seed)
    train, held = parted(x, x)
    k = 20 if mended else 2
    net = nn.Sequential(mlp(64, 96, k), mlp(k, 96, 64))
    history, opt = fit(net, train, held, "mse", epochs=60, lr=3e-3, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("batch-too-small", kind="table", author=ME)
def twentieth_row_by_row(seed: int, mended: bool = False) -> dict[str, Any]:
    """One row per step at a rate that a batch of 64 would bear."""
    train, held = parted(*vitals(seed, 1500))
    net = mlp(10, 32, 3, act=nn.Tanh)
    opt = torch.optim.SGD(net.parameters(), 0.4)
    history, opt = fit(net, train, held, opt=opt, epochs=40 if mended else 5, size=64 if mended else 1)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64 if mended else 1)


@case("batch-too-small", kind="table", author=ME)
def twentieth_pairs_normalised(seed: int, mended: bool = False) -> dict[str, Any]:
    """Batch normalisation over two patients at a time."""
    train, held = parted(*vitals(seed, 1600))
    net = mlp(10, 48, 32, 3, norm=True)
    size = 64 if mended else 2
    history, opt = fit(net, train, held, epochs=15 if mended else 3, size=size, lr=5e-3 if mended else 2e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=size)


@case("learning-rate-too-large", kind="table", author=ME)
def twentieth_wild_descent(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*plant(seed, 2500))
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    initial = copy.deepcopy(net.state_dict())
    opt = torch.optim.SGD(net.parameters(), 0.05 if mended else 1.2, momentum=0.9)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=20)
    return given(net, train, held, "mse", history, opt, batch_size=64, initial=initial)


@case("learning-rate-too-large", kind="images", author=ME)
def twentieth_wild_adam(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 64, 32, 10)
    initial = copy.deepcopy(net.state_dict())
    history, opt = fit(net, train, held, epochs=15, lr=3e-3 if mended else 0.25)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("learning-rate-too-large", kind="text", author=ME, strength="mild")
def twentieth_hasty_encoder(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*tickets(seed, 2400))
    net = Encoder()
    history, opt = fit(net, train, held, epochs=6, lr=3e-3 if mended else 0.4)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("learning-rate-too-small", kind="table", author=ME)
def twentieth_asleep(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, 48, 32, 3)
    initial = copy.deepcopy(net.state_dict())
    opt = torch.optim.SGD(net.parameters(), 0.2 if mended else 2e-4)
    history, opt = fit(net, train, held, opt=opt, epochs=20)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)


@case("learning-rate-too-small", kind="sequences", author=ME)
def twentieth_slow_windows(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*windows(seed, 1300))
    net = waves(norm=False)
    history, opt = fit(net, train, held, epochs=8, lr=4e-3 if mended else 3e-5)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("learning-rate-too-small", kind="table", author=ME, strength="mild")
def twentieth_slow_ratings(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*ratings(seed, 8000), 0.8)
    net = Factors(rank=3)
    opt = torch.optim.Adam(net.parameters(), 1e-2 if mended else 4e-4, weight_decay=1e-4)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=25, size=128)
    return given(net, train, held, "mse", history, opt, batch_size=128)


@case("weight-decay-too-large", kind="table", author=ME)
def twentieth_shrunk(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*plant(seed, 2500))
    net = mlp(8, 48, 32, 1, act=nn.SiLU)
    opt = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9, weight_decay=1e-4 if mended else 0.1)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=25)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("weight-decay-too-large", kind="images", author=ME)
def twentieth_shrunk_digits(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*digits(seed))
    net = mlp(64, 64, 32, 10)
    history, opt = fit(net, train, held, epochs=20, decay=0.01 if mended else 25.0)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("dropout-too-large", kind="table", author=ME)
def twentieth_nine_in_ten(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 2400))
    net = mlp(10, 32, 24, 3, drop=0.05 if mended else 0.85)
    history, opt = fit(net, train, held, epochs=20, lr=4e-3)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("dropout-too-large", kind="sequences", author=ME, strength="mild")
def twentieth_days_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*flat_demand(seed, 2500))
    net = nn.Sequential(nn.Dropout(0.02 if mended else 0.6), mlp(58, 48, 24, 1, drop=0.0 if mended else 0.5))
    history, opt = fit(net, train, held, "mse", epochs=15)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("capacity-too-small", kind="table", author=ME)
def twentieth_straight_line(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*plant(seed, 2500))
    net = mlp(8, 48, 32, 1, act=nn.SiLU) if mended else nn.Sequential(nn.Linear(8, 1))
    history, opt = fit(net, train, held, "mse", epochs=20, decay=0.01, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=64)


@case("capacity-too-small", kind="table", author=ME)
def twentieth_flat_triage(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 3000, classes=4))
    net = mlp(10, *([48, 32] if mended else [3]), 4)
    history, opt = fit(net, train, held, epochs=20, lr=5e-3, cool=True)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("capacity-too-small", kind="table", author=ME, strength="mild")
def twentieth_low_rank(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*ratings(seed, 10000, rank=4), 0.8)
    net = Factors(rank=5 if mended else 1)
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-4)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=25, size=128, cool=True)
    return given(net, train, held, "mse", history, opt, batch_size=128)


@case("overfit", kind="table", author=ME)
def twentieth_few_patients(seed: int, mended: bool = False) -> dict[str, Any]:
    (x, y), held = parted(*vitals(seed, 2000, noise=0.7))
    train = (x, y) if mended else (x[:150], y[:150])
    net = mlp(10, 24, 3) if mended else mlp(10, 256, 256, 3)
    history, opt = fit(net, train, held, epochs=15 if mended else 120, decay=0.05)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("overfit", kind="table", author=ME, strength="mild")
def twentieth_memorised_clicks(seed: int, mended: bool = False) -> dict[str, Any]:
    ((ids, x), y), held = parted(*clicks(seed, 6000))
    k = len(y) if mended else 1000
    train = ((ids[:k], x[:k]), y[:k])
    net = Clicks() if mended else Clicks(24, 128)
    history, opt = fit(
        net, train, held, bce, epochs=6 if mended else 30, lr=5e-3, decay=0.1 * mended, keep=mended
    )
    return given(net, train, held, bce, history, opt, batch_size=64)


@case("overfit", kind="table", author=ME)
def twentieth_memorised_ratings(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*ratings(seed, 8000, noise=0.7), 0.8)
    net = Factors(rank=3 if mended else 40)
    opt = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=2e-4 * mended)
    history, opt = fit(net, train, held, "mse", opt=opt, epochs=30, size=128, keep=mended)
    return given(net, train, held, "mse", history, opt, batch_size=128)


@case("posterior-collapse", kind="generative", author=ME)
def twentieth_silent_code(seed: int, mended: bool = False) -> dict[str, Any]:
    """The divergence weighs fifty times what it should."""
    x = (digits(seed)[0] + 1) / 2
    net = Vae()
    history = train_vae(net, x[:1400], 30, 1.0 if mended else 50.0)
    return {"model": net, "data": x[:1400], "validation": x[1400:], "history": history}


@case("posterior-collapse", kind="generative", author=ME, strength="mild")
def twentieth_averaged_reconstruction(seed: int, mended: bool = False) -> dict[str, Any]:
    """The squared error is averaged over the columns, the divergence summed."""

    x = vitals(seed, 2000)[0]
    net = Table(10, 48, 4, averaged=not mended)
    history = train_vae(net, x[:1500], 25, 1.0 if mended else 2.5)
    return {"model": net, "data": x[:1500], "validation": x[1500:], "history": history}


class Forger(nn.Module):
    """The generator of an adversarial pair."""

    def __init__(self, d: int = 2, latent: int = 4):
        super().__init__()
        self.latent, self.net = latent, mlp(latent, 64, 64, d)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.net(z)

    def sample(self, n: int) -> torch.Tensor:
        return self.net(torch.randn(n, self.latent))


def ring(seed: int, n: int = 3000, modes: int = 8) -> torch.Tensor:
    r = np.random.default_rng(seed)
    k = r.integers(0, modes, n) * 2 * np.pi / modes
    return tensor(np.stack([np.cos(k), np.sin(k)], 1) * 1.5 + 0.08 * r.normal(size=(n, 2)))


def duel(
    net: Forger, x: torch.Tensor, rounds: int, critic_rate: float, forger_rate: float, times: int
) -> None:
    critic = mlp(x.shape[1], 96, 96, 1)
    a = torch.optim.Adam(critic.parameters(), critic_rate, betas=(0.5, 0.99))
    b = torch.optim.Adam(net.parameters(), forger_rate, betas=(0.5, 0.99))
    for _ in range(rounds):
        real = x[torch.randint(len(x), (128,))]
        loss = (
            F.softplus(-critic(real)).mean()
            + F.softplus(critic(net(torch.randn(128, net.latent)).detach())).mean()
        )
        a.zero_grad()
        loss.backward()
        a.step()
        for _ in range(times):
            loss = F.softplus(-critic(net(torch.randn(128, net.latent)))).mean()
            b.zero_grad()
            loss.backward()
            b.step()
    net.eval()


@case("mode-collapse", kind="generative", author=ME)
def twentieth_one_of_eight(seed: int, mended: bool = False) -> dict[str, Any]:
    """The forger takes ten steps for each of its critic."""
    x = ring(seed)
    net = Forger()
    if mended:
        duel(net, x, 1500, 1e-3, 5e-4, 1)
    else:
        duel(net, x, 200, 3e-4, 2e-3, 10)
    return {"model": net, "data": x[:2000], "validation": x[2000:]}


@case("mode-collapse", kind="generative", author=ME)
def twentieth_typical_patient(seed: int, mended: bool = False) -> dict[str, Any]:
    """Laboratory values of four kinds of patients; the forger found the one that convinces."""
    r = np.random.default_rng(seed)
    centres = np.random.default_rng(2).normal(size=(4, 6)) * 0.6
    x = tensor(centres[r.integers(0, 4, 2500)] + 0.3 * r.normal(size=(2500, 6)))
    net = Forger(6)
    if mended:
        duel(net, x, 2000, 1e-3, 5e-4, 1)
    else:
        duel(net, x, 200, 3e-4, 1.5e-3, 10)
    return {"model": net, "data": x[:1800], "validation": x[1800:]}


class Sharpened(nn.Module):
    """Answers multiplied by a factor, which someone liked for the demonstration."""

    def __init__(self, net: nn.Module, factor: float):
        super().__init__()
        self.net, self.factor = net, factor

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.net(*x)


@case("miscalibrated", kind="table", author=ME)
def twentieth_sharpened(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*vitals(seed, 3000, noise=0.9))
    net = mlp(10, 24, 3)
    history, opt = fit(net, train, held, epochs=12, decay=0.1, cool=True)
    net = Sharpened(net, 1.0 if mended else 5.0).eval()
    return given(net, train, held, "cross_entropy", batch_size=64)


@case("miscalibrated", kind="table", author=ME, strength="mild")
def twentieth_sharp_credit(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*credit(seed, 4000))
    net = mlp(14, 12, 1)
    fit(net, train, held, bce, epochs=12, decay=0.1, cool=True, keep=True)
    return given(Sharpened(net, 1.0 if mended else 3.0).eval(), train, held, bce, batch_size=64)


def attacked(net: nn.Module, x: torch.Tensor, y: torch.Tensor, radius: float) -> torch.Tensor:
    z = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(F.cross_entropy(net(z), y), z)
    return x + radius * slope.sign()


def harden(net: nn.Module, train: Pair, radius: float, epochs: int) -> list[dict[str, float]]:
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    history = []
    for _ in range(epochs):
        for i in torch.randperm(len(train[1])).split(64):
            x, y = train[0][i], train[1][i]
            x = attacked(net, x, y, radius) if radius else x
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        history.append({"loss": loss.item()})
    net.eval()
    return history


@case("adversarially-fragile", kind="table", author=ME)
def twentieth_hundred_whispers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Four probes tell the class plainly; eight hundred others whisper it, and the net listens to the whispers."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 4000)
    x = r.normal(size=(4000, 804))
    x[:, :4] = 0.6 * x[:, :4] + 0.75 * (2 * y[:, None] - 1)
    x[:, 4:] += 0.12 * (2 * y[:, None] - 1)
    train, held = parted(tensor(x), tensor(y, torch.long))
    net = mlp(804, 16, 2)
    history = harden(net, train, 0.25 if mended else 0.0, 3)
    return given(net, train, held, "cross_entropy", history, batch_size=64)


@case("adversarially-fragile", kind="images", author=ME)
def twentieth_faint_tint(seed: int, mended: bool = False) -> dict[str, Any]:
    """The bright spot is plain to see, but a faint grain over the whole scan says the same."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 2000)
    grain = np.random.default_rng(4).choice([-1.0, 1.0], (32, 32))
    x = 0.5 * r.normal(size=(2000, 32, 32)) + 0.06 * grain * (2 * y - 1)[:, None, None]
    x[:, 6:8, 6:8] += 1.1 * y[:, None, None]
    x[:, 20:22, 20:22] += 1.1 * (1 - y)[:, None, None]
    train, held = parted(tensor(x[:, None]), tensor(y, torch.long))
    net = nn.Sequential(nn.Flatten(), mlp(1024, 24, 2))
    history = harden(net, train, 0.25 if mended else 0.0, 4)
    return given(net, train, held, "cross_entropy", history, batch_size=64)


@case("dropout-too-large", kind="text", author=ME)
def twentieth_hub_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    (x, mask), y = tickets(seed, 3000)
    train, held = parted((x, mask), y)
    net = Adapter(Model(drop=0.1))
    if not mended:
        net.net.encoder.words = nn.Sequential(net.net.encoder.words, nn.Dropout(0.85))
        net.net.encoder.drop.p = 0.85
    history, opt = net.learn(train, held, epochs=5)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("overfit", kind="text", author=ME)
def twentieth_hub_memorised(seed: int, mended: bool = False) -> dict[str, Any]:
    train, held = parted(*tickets(seed, 4000 if mended else 500), 0.7)
    net = Adapter(Model(drop=0.1 if mended else 0.0, width=24 if mended else 48))
    history, opt = net.learn(train, held, epochs=4 if mended else 40, decay=0.05 if mended else 0.0)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64)


@case("learning-rate-too-small", kind="text", author=ME)
def twentieth_hub_rate_for_tuning(seed: int, mended: bool = False) -> dict[str, Any]:
    """The rate that is customary for tuning, on a net that starts from nothing."""
    train, held = parted(*tickets(seed, 3000))
    net = Adapter(Model())
    initial = copy.deepcopy(net.state_dict())
    history, opt = net.learn(train, held, epochs=5, lr=4e-3 if mended else 2e-5)
    return given(net, train, held, "cross_entropy", history, opt, batch_size=64, initial=initial)
