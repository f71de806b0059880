"""Faults of the graph, the loop, the start and the architecture."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from zoo import case
from zoo.twentysecond_parts import *
from zoo.twentysecond_parts import ME


def fault(*causes, kind="table", strength="strong", needs=()):
    return case(*causes, kind=kind, author=ME, strength=strength, needs=needs)


def every(net, weight=None, bias=None, kinds=(nn.Linear, nn.Conv1d, nn.Conv2d)):
    """Start every weighted layer again."""
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, kinds):
                if weight:
                    weight(layer.weight)
                if bias is not None:
                    layer.bias.fill_(bias)
    return net


# ---------------------------------------------------------------- graph and loop


@fault("detached-parameters", kind="images")
def tw2_detached_filters(seed, mended=False):
    """The features are detached before the reading-out, left over from a plot of them."""

    class Stamp(nn.Module):
        def __init__(self):
            super().__init__()
            self.filters = nn.Sequential(
                nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(6, 12, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(),
            )  # fmt: skip
            self.head = nn.Linear(12, 4)

        def forward(self, x):
            h = self.filters(x)
            return self.head(h if mended else h.detach())

    return run(split(*stamps(start(seed)), scale=False), Stamp(), epochs=15, lr=5e-3)


@fault("detached-parameters", kind="graph")
def tw2_detached_messages(seed, mended=False):
    """The messages along the bonds are computed from .data."""

    class Messages(Molecule):
        def forward(self, x, a):
            for own, near in zip(self.own, self.near):
                x = (own(x) + a @ near(x)).relu()
                x = x if mended else x.data
            return self.head(x.mean(1))

    s = split(*molecules(start(seed)))
    return run(s, Messages(wide=8, depth=3), "mse", epochs=20, lr=5e-3, give="most")


@fault("frozen-parameters")
def tw2_frozen_body(seed, mended=False):
    """A body that was to be loaded and frozen was frozen, but not loaded."""
    s = split(*rings(start(seed)))
    net = mlp(4, 8, 4, 3)
    for p in net[:3].parameters():
        p.requires_grad_(mended)
    return run(s, net, epochs=40, lr=1e-2, params=[p for p in net.parameters() if p.requires_grad])


@fault("frozen-parameters", kind="images", needs=("optimizer",))
def tw2_frozen_out_of_optimizer(seed, mended=False):
    """Only the last layer is in the optimiser."""
    s = split(*stamps(start(seed)), scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 10, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(10, 4),
    )  # fmt: skip
    return run(s, net, epochs=15, lr=5e-3, params=None if mended else net[-1].parameters())


@fault("frozen-parameters", kind="text", strength="mild")
def tw2_frozen_words(seed, mended=False):
    """Embedding and recurrent cell are frozen as they were drawn."""
    s = split(*sentences(start(seed)), scale=False)
    net = Recurrent(4, 4, 8, words=40, every=True)
    for p in [*net.embed.parameters(), *net.cell.parameters()]:
        p.requires_grad_(mended)
    return run(s, net, epochs=25, lr=1e-2, batch=32, params=[p for p in net.parameters() if p.requires_grad])


def piled(s, net, loss, kind, lr, mended, epochs, batch=64):
    """Train without (or with) clearing the gradients, and hand over that step."""
    of = LOSSES[loss]

    def make(model):
        return make_optimizer(kind, model.parameters(), lr, 0.0)

    def update(model, opt, x, y):
        value = of(model(x), y)
        if mended:
            opt.zero_grad()
        value.backward()
        opt.step()
        return value.item()

    def step(model, batch):
        if getattr(model, "_own", None) is None:
            model._own = make(model)
        return update(model, model._own, *batch)

    initial = copy.deepcopy(net.state_dict())
    opt, history = make(net), []
    for _ in range(epochs):
        losses = [update(net, opt, s.x[rows], s.y[rows]) for rows in torch.randperm(len(s.y)).split(batch)]
        with torch.no_grad():
            history.append({"loss": float(np.mean(losses)), "val_loss": of(net(s.vx), s.vy).item()})
    net.eval()
    return {
        "model": net, "data": (s.x, s.y), "validation": (s.vx, s.vy), "loss": loss, "optimizer": opt,
        "batch_size": batch, "history": history, "initial": initial, "step": step,
    }  # fmt: skip


@fault("gradients-not-cleared", needs=("step",))
def tw2_piled_redshift(seed, mended=False):
    s = split(*galaxies(start(seed)))
    return piled(s, mlp(7, 48, 48, 1), "mse", "plain", 0.03, mended, 25)


@fault("gradients-not-cleared", kind="sequences", needs=("step",))
def tw2_piled_spikes(seed, mended=False):
    s = split(*spikes(start(seed), 1000), scale=False)
    return piled(s, nn.Sequential(nn.Flatten(), mlp(200, 32, 5)), "cross_entropy", "adam", 5e-3, mended, 8)


# ---------------------------------------------------------------- start


@fault("symmetric-initialisation")
def tw2_symmetric_constant(seed, mended=False):
    s = split(*stars(start(seed)))
    net = mlp(6, 32, 32, 4)
    net = net if mended else every(net, lambda w: w.fill_(0.1), 0.0)
    return run(s, net, epochs=25)


@fault("symmetric-initialisation", kind="images")
def tw2_symmetric_filters(seed, mended=False):
    """All filters start equal, and the pooled reading-out too."""
    s = split(*stamps(start(seed)), scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    return run(s, net if mended else every(net, lambda w: w.fill_(0.05), 0.0), epochs=15, lr=5e-3)


@fault("symmetric-initialisation", strength="mild")
def tw2_symmetric_zero_tanh(seed, mended=False):
    """Nought everywhere: with tanh nothing but the last bias ever learns."""
    s = split(*reactor(start(seed)))
    net = mlp(8, 48, 48, 3, act=nn.Tanh)
    return run(s, net if mended else every(net, lambda w: w.zero_(), 0.0), "mse", epochs=20, give="most")


@fault("saturated-units")
def tw2_saturated_tanh(seed, mended=False):
    s = split(*galaxies(start(seed)))
    net = mlp(7, 48, 48, 48, 1, act=nn.Tanh)
    if not mended:
        every(net[:-1], lambda w: w.normal_(0, 6.0))
    return run(s, net, "mse", epochs=25, lr=2e-3)


@fault("saturated-units", kind="sequences")
def tw2_saturated_sigmoid_spikes(seed, mended=False):
    s = split(*spikes(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), mlp(200, 32, 32, 5, act=nn.Sigmoid))
    if not mended:
        every(net[1][:-1], lambda w: w.normal_(0, 8.0))
    return run(s, net, epochs=15)


@fault("dead-units", kind="images")
def tw2_dead_filters(seed, mended=False):
    s = split(*stamps(start(seed), 800), scale=False)
    net = convnet(4)
    if not mended:
        every(net[3], None, -12.0)
    return run(s, net, epochs=10, give="some")


@fault("dead-units", kind="sequences", strength="mild")
def tw2_dead_most(seed, mended=False):
    """Thirty of thirty-two hidden units never wake."""
    s = split(*spikes(start(seed)), scale=False)
    net = nn.Sequential(nn.Flatten(), mlp(200, 32, 5))
    if not mended:
        with torch.no_grad():
            net[1][0].bias[:30] = -30.0
    return run(s, net, epochs=20)


@fault("exploding-gradient")
def tw2_exploding_deep(seed, mended=False):
    """Ten layers, each three times too strong."""
    s = split(*stars(start(seed)))
    net = mlp(6, *[32] * 10, 4)
    every(net, nn.init.kaiming_normal_, 0.0)
    if not mended:
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(3.0)
    return run(s, net, epochs=15, lr=1e-3, opt="adam" if mended else "plain")


@fault("exploding-gradient", kind="sequences")
def tw2_exploding_recurrent(seed, mended=False):
    """A recurrent ReLU net whose state grows by half at every step."""
    s = split(*frames(start(seed)), scale=False)

    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.RNN(6, 24, nonlinearity="relu", batch_first=True), nn.Linear(24, 4)
            nn.init.orthogonal_(self.cell.weight_hh_l0)
            if not mended:
                self.cell.weight_hh_l0.data.mul_(2.2)

        def forward(self, x):
            return self.head(self.cell(x)[0])

    return run(s, Growing(), epochs=20, lr=5e-3, batch=32, clip=1.0 if mended else None)


@fault("vanishing-gradient")
def tw2_vanishing_sigmoids(seed, mended=False):
    s = split(*stars(start(seed)))
    depth = 2 if mended else 9
    return run(s, mlp(6, *[32] * depth, 4, act=nn.Sigmoid), epochs=20, lr=5e-3)


@fault("vanishing-gradient", kind="images")
def tw2_vanishing_small_filters(seed, mended=False):
    """Seven convolutions that start a tenth as strong as they should."""
    s = split(*stamps(start(seed), 700), scale=False)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    for _ in range(6):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4))
    every(net, nn.init.kaiming_normal_, 0.0)
    if not mended:
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(0.1)
    return run(s, net, epochs=12, lr=1e-3)


@fault("vanishing-gradient", kind="sequences", strength="mild")
def tw2_vanishing_memory(seed, mended=False):
    """What matters is said in the first frame, and a plain recurrent net must carry it over forty."""
    rng = start(seed)
    y = rng.integers(0, 3, 1200)
    x = 0.5 * rng.normal(size=(1200, 40, 4))
    x[np.arange(1200), 0, y] += 3
    s = split(x, y, scale=False)
    net = Recurrent(4, 3, 24, cell=nn.GRU if mended else nn.RNN, mean=mended)
    if not mended:
        net.cell.weight_hh_l0.data.mul_(0.5)
    return run(s, net, epochs=10)


# ---------------------------------------------------------------- architecture


@fault("oversmoothing", kind="graph")
def tw2_smooth_powers(seed, mended=False):
    """Features are averaged over forty hops before a linear layer."""
    s = society(start(seed))

    class Powers(nn.Module):
        def __init__(self):
            super().__init__()
            self.hops, self.head = 2 if mended else 40, mlp(12, 24, 4)

        def forward(self, x, a):
            for _ in range(self.hops):
                x = a @ x
            return self.head(x)

    return run(s, Powers(), epochs=80, lr=1e-2, full=True)


@fault("oversmoothing", kind="graph")
def tw2_smooth_layers(seed, mended=False):
    """Eight graph convolutions without a shortcut on a dense graph."""
    s = society(start(seed), inside=0.12, outside=0.03)
    net = Neighbours(12, 4, depth=2 if mended else 8)
    if not mended:
        every(net, nn.init.kaiming_normal_, 0.0)
    return run(s, net, epochs=60, lr=5e-3, full=True, best=mended)


@fault("receptive-field-too-small", kind="sequences")
def tw2_field_frames(seed, mended=False):
    """A frame's tag was decided ten frames ago; the net sees three."""
    s = split(*frames(start(seed)), scale=False)
    return run(
        s,
        TagConv(6, 4, 32, kernel=9 if mended else 3, depth=4 if mended else 1),
        epochs=20,
        lr=5e-3,
        batch=32,
    )


@fault("receptive-field-too-small", kind="text", strength="mild")
def tw2_field_words(seed, mended=False):
    """Some words take their tag from the word before; the net sees one word."""
    s = split(*sentences(start(seed), 800), scale=False)
    return run(
        s, TagConv(16, 4, 32, words=40, kernel=5 if mended else 1), epochs=20, lr=5e-3, batch=32, give="most"
    )


@fault("receptive-field-too-small", kind="images")
def tw2_field_pixels(seed, mended=False):
    """Filters of one pixel for a mask that must see a cell through strong noise."""
    rng = start(seed)
    x, y = tracks(rng)
    s = split(x + 0.9 * rng.normal(size=x.shape), y, scale=False)
    wide = lambda a, b: nn.Conv2d(a, b, 5 if mended else 1, padding=2 if mended else 0)
    net = nn.Sequential(wide(1, 12), nn.ReLU(), wide(12, 12), nn.ReLU(), wide(12, 1))
    return run(s, net, "bce_with_logits", epochs=8, lr=5e-3, batch=32)


@fault("bottleneck")
def tw2_neck_stars(seed, mended=False):
    s = split(*stars(start(seed), 2400))
    return run(s, mlp(6, 48, 24 if mended else 1, 48, 4), epochs=25, best=True)


@fault("bottleneck", kind="images")
def tw2_neck_digits(seed, mended=False):
    start(seed)
    x, y = bundled("digits", seed)
    s = split(x.reshape(-1, 1, 8, 8) / 16, y, scale=False)
    return run(
        s,
        nn.Sequential(
            convnet(32 if mended else 1, 8),
            nn.ReLU() if mended else nn.Tanh(),
            mlp(32 if mended else 1, 32, 10),
        ),
        epochs=20,
    )


@fault("bottleneck", kind="generative", strength="mild")
def tw2_neck_autoencoder(seed, mended=False):
    """Spectra with a dozen free parameters through a code of two."""
    x, _ = spectra(start(seed), 1600)
    s = split(x, x)
    s.y, s.vy = s.x, s.vx
    return run(s, mlp(64, 64, 12 if mended else 2, 64, 64), "mse", epochs=30, lr=2e-3)


@fault("batch-too-small")
def tw2_batch_of_two(seed, mended=False):
    """Batch normalisation over two rows."""
    s = split(*stars(start(seed), 1200))
    return run(
        s, mlp(6, 32, 32, 4, norm=True), epochs=8 if not mended else 25, batch=64 if mended else 2, lr=3e-3
    )


@fault("batch-too-small", kind="images", strength="mild")
def tw2_batch_of_three_stamps(seed, mended=False):
    s = split(*stamps(start(seed), 600), scale=False)
    net = nn.Sequential(
        nn.Conv2d(1, 10, 3, padding=1), nn.BatchNorm2d(10), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(),
        nn.Linear(160, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4),
    )  # fmt: skip
    return run(s, net, epochs=12, batch=32 if mended else 2, lr=3e-3)
