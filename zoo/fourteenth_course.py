"""Single faults as they are met in industry: of the start, the architecture, the descent, and the outcome."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.fourteenth_parts import *

ME = "fourteenth"

# ================================================================ start


@case("symmetric-initialisation", kind="table", author=ME)
def all_weights_one_twentieth(seed, mended=False):
    """nn.init.constant_ on every weight."""
    g = start(seed)
    train, valid = sensors(g)
    model = mlp(10, 48, 48, 1)
    if not mended:
        for p in model.parameters():
            nn.init.constant_(p, 0.05)
    return go(model, train, valid, "mse", "all", epochs=25)


@case("symmetric-initialisation", kind="images", author=ME, strength="mild")
def filters_all_ones(seed, mended=False):
    """A custom init gives each filter of both convolutions the same value; the head is drawn."""
    g = start(seed)
    train, valid = inspection(g)
    model = Inspector()
    if not mended:
        for c in (model.c1, model.c2):
            nn.init.constant_(c.weight, 1 / c.weight[0].numel())
            nn.init.zeros_(c.bias)
        nn.init.constant_(model.head.weight, 0.01)
    return go(model, train, valid, "cross_entropy", "little", epochs=12)


@case("symmetric-initialisation", kind="sequences", author=ME)
def recurrent_cell_of_equal_units(seed, mended=False):
    """Every weight of the GRU and the head starts at a tenth."""
    g = start(seed)
    train, valid = waves(g, n=500, keep=350, length=24, noise=0.2)
    train, valid = ((x.transpose(1, 2).contiguous(), y) for x, y in (train, valid))
    model = Recurrent(1, 24, 4, "GRU")
    if not mended:
        for p in model.parameters():
            nn.init.constant_(p, 0.1)
    return go(model, train, valid, "cross_entropy", "start", epochs=25, lr=1e-2)


@case("saturated-units", kind="table", author=ME)
def sigmoids_with_huge_weights(seed, mended=False):
    """normal_(0, 6) in a sigmoid net of three layers."""
    g = start(seed)
    train, valid = sensors(g)
    model = mlp(10, 48, 48, 48, 1, act=nn.Sigmoid)
    for layer in model:
        if isinstance(layer, nn.Linear):
            if mended:
                nn.init.xavier_uniform_(layer.weight, 2.0)
            elif layer.out_features > 1:
                nn.init.normal_(layer.weight, 0, 6)
    return go(model, train, valid, "mse", "all", epochs=30, lr=5e-3)


@case("saturated-units", kind="images", author=ME, strength="mild")
def tanh_inspector_far_out(seed, mended=False):
    """tanh layers whose weights were drawn from normal_(0, 1)."""
    g = start(seed)
    train, valid = inspection(g, n=1700, keep=1400)
    model = nn.Sequential(nn.Flatten(), mlp(256, 64, 64, 64, 4, act=nn.Tanh))
    for layer in model[1]:
        if isinstance(layer, nn.Linear) and layer.out_features > 4 and not mended:
            nn.init.normal_(layer.weight, 0, 1)
    return go(model, train, valid, "cross_entropy", "little", epochs=10, lr=1e-3)


@case("saturated-units", kind="sequences", author=ME)
def gates_stuck(seed, mended=False):
    """An LSTM whose weights were multiplied by forty: the gates are open or shut."""
    g = start(seed)
    train, valid = demand(g)
    model = Recurrent(4, 24, 1, "LSTM")
    if not mended:
        with torch.no_grad():
            for p in model.rnn.parameters():
                p *= 40
    return go(model, train, valid, "mse", "most", epochs=20, lr=1.2e-2)


@case("dead-units", kind="table", author=ME)
def biases_far_below(seed, mended=False):
    """Biases of minus five: hardly a ReLU opens."""
    g = start(seed)
    train, valid = sensors(g)
    model = mlp(10, 48, 48, 1)
    if not mended:
        nn.init.constant_(model[2].bias, -5.0)
        nn.init.constant_(model[0].bias, -1.0)
    return go(model, train, valid, "mse", "all", epochs=20)


@case("dead-units", kind="images", author=ME, strength="mild")
def most_filters_dead(seed, mended=False):
    """A converted checkpoint left the bias of all filters but one far below zero."""
    g = start(seed)
    train, valid = inspection(g, noise=0.6)
    model = Inspector()
    if not mended:
        with torch.no_grad():
            model.c2.bias[1:] = -12.0
    return go(model, train, valid, "cross_entropy", "curve", epochs=12)


@case("dead-units", kind="text", author=ME)
def ticket_net_fell_silent(seed, mended=False):
    """The hidden layer of a text classifier starts with biases of minus two: nothing passes."""
    g = start(seed)
    train, valid = tickets(g)
    model = Bag()
    if not mended:
        nn.init.constant_(model.net[0].bias, -2.0)
    return go(model, train, valid, "cross_entropy", "little", epochs=12, lr=2e-3)


def deep(d, width, out, layers, act):
    return mlp(d, *[width] * layers, out, act=act)


@case("exploding-gradient", kind="table", author=ME)
def twelve_layers_with_gain(seed, mended=False):
    """Weights of standard deviation 0.45 in twelve layers of width 48: each layer doubles."""
    g = start(seed)
    train, valid = sensors(g)
    model = deep(10, 48, 1, 12, nn.ReLU)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0, (2 / layer.in_features) ** 0.5 if mended else 0.45)
            nn.init.zeros_(layer.bias)
    return go(model, train, valid, "mse", "all", epochs=20, lr=1e-3)


@case("exploding-gradient", kind="sequences", author=ME, strength="mild")
def recurrence_that_grows(seed, mended=False):
    """A ReLU recurrence whose matrix has a spectral radius of 1.65, over forty steps, without clipping."""
    g = start(seed)
    train, valid = demand(g, length=40)
    model = Recurrent(4, 24, 1, "RNN")
    model.rnn = nn.RNN(4, 24, nonlinearity="relu", batch_first=True)
    nn.init.orthogonal_(model.rnn.weight_hh_l0, 0.9 if mended else 1.65)
    return go(model, train, valid, "mse", "start", epochs=15, lr=2e-3)


@case("exploding-gradient", kind="graph", author=ME)
def messages_summed_ten_times(seed, mended=False):
    """Ten rounds of messages with weights that are drawn too wide, no norm."""
    g = start(seed)
    train, valid = molecules(g)
    model = MoleculeNet(24, 2 if mended else 8)
    if not mended:
        for k in range(8):
            nn.init.normal_(model.own[k].weight, 0, 0.7)
            nn.init.normal_(model.near[k].weight, 0, 0.7)
    return go(model, train, valid, "mse", "most", epochs=20, lr=2e-3)


@case("vanishing-gradient", kind="table", author=ME)
def fourteen_sigmoid_layers(seed, mended=False):
    """Sigmoids all the way down."""
    g = start(seed)
    train, valid = churn(g)
    model = deep(13, 32, 2, 2 if mended else 14, nn.Sigmoid)
    return go(model, train, valid, "cross_entropy", "all", epochs=20)


@case("vanishing-gradient", kind="sequences", author=ME, strength="mild")
def plain_rnn_over_sixty_steps(seed, mended=False):
    """What happened at the start of the log does not reach the last state of a plain RNN."""
    g = start(seed)
    train, valid = first_event(g, n=500, keep=360)
    if mended:
        train, valid = ((x.flip(1), y) for x, y in (train, valid))
    model = Recurrent(4, 20, 3, "RNN")
    nn.init.orthogonal_(model.rnn.weight_hh_l0, 0.6)
    return go(model, train, valid, "cross_entropy", "little", epochs=15, lr=2e-3)


@case("vanishing-gradient", kind="images", author=ME)
def deep_tanh_with_small_weights(seed, mended=False):
    """Eight convolutions with tanh and weights of 0.01."""
    g = start(seed)
    train, valid = inspection(g, n=500, keep=360)
    layers, width = [], 8
    for k in range(8):
        c = nn.Conv2d(1 if k == 0 else width, width, 3, padding=1, stride=2 if k in (1, 3) else 1)
        if not mended:
            nn.init.normal_(c.weight, 0, 0.01)
            nn.init.zeros_(c.bias)
        else:
            nn.init.xavier_normal_(c.weight, 1.2)
        layers += [c, nn.Tanh()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 16, 4))
    return go(model, train, valid, "cross_entropy", "some", epochs=10, lr=2e-3)


# ================================================================ architecture


class Simplified(nn.Module):
    """Features averaged over neighbours many times, and one layer."""

    def __init__(self, hops, d=12, out=3):
        super().__init__()
        self.hops, self.layer = hops, nn.Linear(d, out)

    def forward(self, x, a):
        for _ in range(self.hops):
            x = a @ x
        return self.layer(x)


@case("oversmoothing", kind="graph", author=ME)
def sixty_hops_of_averaging(seed, mended=False):
    """Simplified graph convolution with sixty hops."""
    g = start(seed)
    x, a, y, yv = accounts(g, inside=0.07, outside=0.012)
    model = Simplified(2 if mended else 60)
    return go(model, ((x, a), y), ((x, a), yv), "cross_entropy", "all", epochs=150, lr=2e-2, whole=True)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def ten_graph_layers(seed, mended=False):
    """Ten graph convolutions on a small, dense graph."""
    g = start(seed)
    x, a, y, yv = accounts(g, inside=0.1, outside=0.03)
    model = GCN(layers=2 if mended else 10, width=24, drop=0.0)
    for layer in model.layers:
        nn.init.xavier_uniform_(layer.weight, 1.4)
    return go(model, ((x, a), y), ((x, a), yv), "cross_entropy", "little", epochs=60, lr=5e-3, whole=True)


class Diffused(nn.Module):
    """Twenty-four averaging steps between two layers, adjacency inside the module."""

    def __init__(self, a, hops, d=12, out=3):
        super().__init__()
        self.register_buffer("a", a)
        self.one, self.two, self.hops = nn.Linear(d, 24), nn.Linear(24, out), hops

    def forward(self, x):
        h = F.relu(self.one(x))
        for _ in range(self.hops):
            h = self.a @ h
        return self.two(h)


@case("oversmoothing", kind="graph", author=ME)
def diffusion_without_return(seed, mended=False):
    """Forty steps of diffusion and no teleport back to one's own features."""
    g = start(seed)
    x, a, y, yv = accounts(g, inside=0.08, outside=0.015)
    model = Diffused(a, 2 if mended else 40)
    return go(model, (x, y), (x, yv), "cross_entropy", "most", epochs=100, lr=1e-2, whole=True)


class Knocks(nn.Module):
    """Convolutions over a wave and a maximum."""

    def __init__(self, dilations):
        super().__init__()
        channels = [1] + [16] * len(dilations)
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, 3, dilation=k, padding=k) for a, b, k in zip(channels, channels[1:], dilations)
        )
        self.head = mlp(16, 16, 2)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.head(x.amax(2))


@case("receptive-field-too-small", kind="sequences", author=ME)
def two_knocks_out_of_sight(seed, mended=False):
    """Two kernels of three see five samples; the distance of the knocks is eight to twenty-four."""
    g = start(seed)
    train, valid = pulses(g)
    model = Knocks((1, 2, 4, 8) if mended else (1, 1, 1))
    return go(model, train, valid, "cross_entropy", "all", epochs=25, lr=6e-3)


@case("receptive-field-too-small", kind="text", author=ME)
def clicks_one_at_a_time(seed, mended=False):
    """Kernel one over clicks and a maximum: which came first cannot be seen."""
    g = start(seed)
    train, valid = ordered_clicks(g)
    k = 15 if mended else 1

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 16)
            self.conv = nn.Conv1d(16, 32, k, padding=k // 2)
            self.conv2 = nn.Conv1d(32, 32, 1)
            self.head = nn.Linear(32, 2)

        def forward(self, x):
            h = F.relu(self.conv(self.words(x).transpose(1, 2)))
            return self.head(F.relu(self.conv2(h)).amax(2))

    return go(Net(), train, valid, "cross_entropy", "little", epochs=20, lr=4e-3)


def marks(g, n=800, keep=600):
    """Two marks on a plate: side by side or one above the other, far apart."""
    y = g.integers(0, 2, n)
    x = 0.15 * g.normal(size=(n, 1, 18, 18))
    for r in range(n):
        gap = g.integers(7, 10)
        p, q = g.integers(1, 16 - gap), g.integers(1, 15)
        a, b = ((p, q), (p + gap, q)) if y[r] else ((q, p), (q, p + gap))
        for u, v in (a, b):
            x[r, 0, u : u + 2, v : v + 2] += 1.8
    return cut(t(x), i(y), keep)


@case("receptive-field-too-small", kind="images", author=ME, strength="mild")
def marks_far_apart(seed, mended=False):
    """Two 3x3 kernels and a global maximum cannot relate marks that are eight pixels apart."""
    g = start(seed)
    train, valid = marks(g)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 12, 3), nn.Conv2d(12, 24, 3)
            self.c = nn.Conv2d(24, 24, 5) if mended else nn.Conv2d(24, 24, 1)
            self.head = nn.Linear(24, 2)

        def forward(self, x):
            x = F.relu(self.a(x))
            if mended:
                x = F.max_pool2d(x, 2)
            x = F.relu(self.b(x))
            return self.head(F.relu(self.c(x)).amax((2, 3)))

    return go(Net(), train, valid, "cross_entropy", "some", epochs=12, lr=4e-3)


@case("bottleneck", kind="images", author=ME)
def one_number_in_the_middle(seed, mended=False):
    """Ten digits through a layer of one unit."""
    g = start(seed)
    train, valid = digits(g)
    model = nn.Sequential(nn.Flatten(), mlp(64, 64, 32 if mended else 1, 64, 10))
    return go(model, train, valid, "cross_entropy", "all", epochs=25)


@case("bottleneck", kind="table", author=ME, strength="mild")
def six_outputs_through_two_units(seed, mended=False):
    """Six readings to be told from twelve, through a layer of two."""
    g = start(seed)
    x = g.normal(size=(1000, 12))
    y = x @ g.normal(size=(12, 6)) / 3.5 + np.sin(x[:, :6]) + 0.15 * g.normal(size=(1000, 6))
    train, valid = cut(t(x), t(y / y.std(0)), 750)
    model = mlp(12, 96, 32 if mended else 2, 96, 6)
    return go(model, train, valid, "mse", "little", epochs=30)


@case("bottleneck", kind="text", author=ME)
def word_vectors_of_one_number(seed, mended=False):
    """Queues of tickets behind an embedding whose projection has one unit."""
    g = start(seed)
    train, valid = tickets(g, n=1500, keep=1100, classes=8, vocabulary=200)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(200, 32)
            self.narrow = nn.Linear(32, 16 if mended else 1)
            self.net = mlp(16 if mended else 1, 64, 64, 8)

        def forward(self, x):
            return self.net(self.narrow(self.words(x).mean(1)))

    return go(Net(), train, valid, "cross_entropy", "curve", epochs=20, lr=5e-3)


@case("batch-too-small", kind="images", author=ME, needs=("batch_size",))
def batch_norm_over_two_pictures(seed, mended=False):
    """Batch norm with two pictures a batch."""
    g = start(seed)
    train, valid = inspection(g, n=800, keep=520)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(256, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64),
        nn.ReLU(), nn.Linear(64, 4),
    )  # fmt: skip
    return go(
        model, train, valid, "cross_entropy", "all", epochs=12 if mended else 5, batch=50 if mended else 2
    )


@case("batch-too-small", kind="table", author=ME, strength="mild", needs=("batch_size",))
def two_rows_and_batch_norm(seed, mended=False):
    """A churn net with batch norm, fed with two rows at a time."""
    g = start(seed)
    train, valid = sensors(g)
    model = mlp(10, 48, 48, 1, norm=nn.BatchNorm1d)
    return go(
        model, train, valid, "mse", "some", epochs=40 if mended else 3, batch=50 if mended else 2, lr=2e-3
    )


@case("batch-too-small", kind="sequences", author=ME, needs=("batch_size",))
def waves_two_at_a_time(seed, mended=False):
    """The memory was short, so the batch was set to two; the net has batch norm behind the mean."""
    g = start(seed)
    train, valid = waves(g, n=600, keep=420)
    model = nn.Sequential(
        nn.Conv1d(1, 16, 9, stride=4, padding=4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 48),
        nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4),
    )  # fmt: skip
    return go(
        model, train, valid, "cross_entropy", "most", epochs=12 if mended else 4, batch=60 if mended else 2
    )


# ================================================================ descent


@case("learning-rate-too-large", kind="table", author=ME, needs=("optimizer",))
def plant_adam_at_three_tenths(seed, mended=False):
    """Adam at 0.3."""
    g = start(seed)
    train, valid = sensors(g)
    model = mlp(10, 48, 48, 1)
    return go(model, train, valid, "mse", "all", epochs=20, lr=3e-3 if mended else 0.3)


@case("learning-rate-too-large", kind="text", author=ME, needs=("optimizer",))
def ticket_transformer_runs_wild(seed, mended=False):
    """A transformer with Adam at 0.3, without warm-up."""
    g = start(seed)
    train, valid = tickets(g, n=900, keep=650)
    model = Attentive()
    return go(model, train, valid, "cross_entropy", "some", epochs=10, lr=2e-3 if mended else 0.3)


@case("learning-rate-too-large", kind="images", author=ME, strength="mild", needs=("optimizer",))
def inspector_at_a_fast_rate(seed, mended=False):
    """SGD with momentum at a rate that hovers."""
    g = start(seed)
    train, valid = inspection(g)
    rate = 0.02 if mended else 0.35
    return go(Inspector(), train, valid, "cross_entropy", "most", epochs=12, opt="sgd", lr=rate)


@case("learning-rate-too-large", kind="sequences", author=ME, strength="mild", needs=("optimizer",))
def forecaster_hovers(seed, mended=False):
    """An LSTM forecaster with Adam at 0.5."""
    g = start(seed)
    train, valid = demand(g)
    return go(Recurrent(4, 24, 1), train, valid, "mse", "some", epochs=20, lr=1.2e-2 if mended else 0.5)


@case("learning-rate-too-small", kind="table", author=ME, needs=("optimizer",))
def a_zero_too_many(seed, mended=False):
    """3e-6 in the place of 3e-3."""
    g = start(seed)
    train, valid = sensors(g)
    return go(mlp(10, 48, 48, 1), train, valid, "mse", "all", epochs=25, lr=3e-3 if mended else 3e-6)


@case("learning-rate-too-small", kind="images", author=ME, strength="mild", needs=("optimizer",))
def careful_sgd(seed, mended=False):
    """SGD without momentum at 2e-3 for twelve epochs."""
    g = start(seed)
    train, valid = inspection(g)
    rate = 0.2 if mended else 2e-3
    return go(
        Inspector(),
        train,
        valid,
        "cross_entropy",
        "most",
        epochs=12,
        opt="sgd",
        lr=rate,
        momentum=0.0,
        batch=32,
    )


@case("learning-rate-too-small", kind="graph", author=ME, needs=("optimizer",))
def graph_net_hardly_moves(seed, mended=False):
    """Adam at 2e-5 over a hundred steps."""
    g = start(seed)
    x, a, y, yv = accounts(g)
    return go(
        GCN(), ((x, a), y), ((x, a), yv), "cross_entropy", "most", epochs=100, lr=1e-2 if mended else 2e-5, whole=True
    )  # fmt: skip


@case("weight-decay-too-large", kind="table", author=ME, needs=("optimizer",))
def decay_of_a_half(seed, mended=False):
    """weight_decay=0.5 in Adam."""
    g = start(seed)
    train, valid = sensors(g)
    return go(mlp(10, 48, 48, 1), train, valid, "mse", "all", epochs=25, wd=0 if mended else 0.5)


@case("weight-decay-too-large", kind="images", author=ME, strength="mild", needs=("optimizer",))
def inspector_shrinks(seed, mended=False):
    """SGD with a decay of 0.1."""
    g = start(seed)
    train, valid = inspection(g)
    return go(
        Inspector(), train, valid, "cross_entropy", "some", epochs=12, opt="sgd", lr=0.02, wd=1e-4 if mended else 0.1
    )  # fmt: skip


@case("weight-decay-too-large", kind="text", author=ME, needs=("optimizer",))
def clicks_under_heavy_decay(seed, mended=False):
    """weight_decay=0.1 in Adam, embedding and all."""
    g = start(seed)
    train, valid = clicks(g)
    return go(
        Bag(40, 8, 2, 16), train, valid, "cross_entropy", "start", epochs=25, lr=5e-3, wd=1e-4 if mended else 0.1
    )  # fmt: skip


@case("dropout-too-large", kind="table", author=ME)
def nine_of_ten_dropped(seed, mended=False):
    """Dropout(0.9) after each layer."""
    g = start(seed)
    train, valid = sensors(g)
    model = mlp(10, 48, 48, 1, drop=0.1 if mended else 0.9)
    return go(model, train, valid, "mse", "all", epochs=30)


@case("dropout-too-large", kind="text", author=ME, strength="mild")
def four_of_five_dropped(seed, mended=False):
    """Dropout of 0.85 on word vectors and on the hidden layer."""
    g = start(seed)
    train, valid = tickets(g, classes=6)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(160, 24)
            self.drop = nn.Dropout(0.1 if mended else 0.85)
            self.a, self.b = nn.Linear(24, 32), nn.Linear(32, 6)

        def forward(self, x):
            return self.b(self.drop(F.relu(self.a(self.drop(self.words(x).mean(1))))))

    return go(Net(), train, valid, "cross_entropy", "most", epochs=20, lr=5e-3)


@case("dropout-too-large", kind="images", author=ME)
def inspector_in_the_dark(seed, mended=False):
    """Three dropouts of 0.8 in a net of fully connected layers."""
    g = start(seed)
    train, valid = digits(g)
    model = nn.Sequential(nn.Flatten(), mlp(64, 48, 48, 48, 10, drop=0.1 if mended else 0.8))
    return go(model, train, valid, "cross_entropy", "little", epochs=25)


# ================================================================ outcome


@case("capacity-too-small", kind="table", author=ME)
def straight_line_through_curves(seed, mended=False):
    """A linear model on readings whose effects are products and sines."""
    g = start(seed)
    x = g.normal(size=(1300, 6))
    y = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + np.abs(x[:, 3]) + 0.3 * x[:, 4] + 0.15 * g.normal(size=1300)
    train, valid = cut(t(x), t(((y - y.mean()) / y.std())[:, None]), 1000)
    model = mlp(6, 64, 64, 1) if mended else nn.Linear(6, 1)
    return go(model, train, valid, "mse", "all", epochs=25, lr=5e-3)


@case("capacity-too-small", kind="table", author=ME, strength="mild")
def five_hidden_units(seed, mended=False):
    """Four states of a machine that lie in many patches; five tanh units."""
    g = start(seed)
    centres = g.normal(size=(28, 5)) * 1.7
    k = g.integers(0, 28, 1600)
    x = centres[k] + 0.45 * g.normal(size=(1600, 5))
    train, valid = cut(t(x), i(k % 4), 1200)
    model = mlp(5, 64 if mended else 5, 4, act=nn.Tanh)
    return go(model, train, valid, "cross_entropy", "little", epochs=50, lr=1e-2)


@case("capacity-too-small", kind="images", author=ME)
def logistic_regression_on_defects(seed, mended=False):
    """One linear layer on pixels, for shapes that are anywhere."""
    g = start(seed)
    train, valid = inspection(g, n=4200, keep=3700)
    model = Inspector() if mended else nn.Sequential(nn.Flatten(), nn.Linear(256, 4))
    return go(model, train, valid, "cross_entropy", "some", epochs=4 if mended else 10, lr=2e-3, wd=3e-3)


@case("overfit", kind="table", author=ME)
def eighty_rows_for_a_wide_net(seed, mended=False):
    """Eighty machines, forty columns, a wide net and 150 epochs: who fails is learned by heart."""
    g = start(seed)
    n = 1800 if mended else 80
    x = g.normal(size=(n + 400, 40))
    w = np.concatenate([g.normal(size=6), np.zeros(34)])
    y = (x @ w / np.sqrt((w**2).sum()) + 0.15 * g.normal(size=n + 400) > 0).astype(int)
    train, valid = cut(t(x), i(y), n)
    return go(
        mlp(40, 128, 128, 2), train, valid, "cross_entropy", "all", epochs=3 if mended else 150, batch=40, lr=2e-3
    )  # fmt: skip


@case("overfit", kind="text", author=ME, strength="mild")
def hundred_tickets_by_heart(seed, mended=False):
    """A hundred and ten tickets with a large vocabulary, learned by heart."""
    g = start(seed)
    n = 1600 if mended else 110
    train, valid = tickets(g, n=n + 300, keep=n, own=(2, 5), stray=3)
    return go(
        Bag(160, 64, 5, 64), train, valid, "cross_entropy", "curve", epochs=6 if mended else 100, lr=5e-3, batch=32
    )  # fmt: skip


@case("overfit", kind="images", author=ME)
def ninety_pictures_by_heart(seed, mended=False):
    """Ninety pictures, a wide fully connected net, no regularisation."""
    g = start(seed)
    n = 1500 if mended else 90
    train, valid = inspection(g, n=n + 250, keep=n, noise=0.6)
    model = Inspector() if mended else nn.Sequential(nn.Flatten(), mlp(256, 128, 64, 4))
    return go(model, train, valid, "cross_entropy", "most", epochs=8 if mended else 60, batch=32, lr=2e-3)


def fit_rows(model, x, xv, loss, level, **how):
    """Fit a model of rows alone."""
    run = fit(model, x, x, loss, valid=(xv, xv), **how)
    return pack(model, x, xv, loss, level, run)


@case("posterior-collapse", kind="generative", author=ME)
def beta_of_a_hundred(seed, mended=False):
    """A beta that was copied from another scale."""
    g = start(seed)
    x, xv = factors(g)
    model = VAE(16)
    return fit_rows(model, x, xv, elbo(1.0 if mended else 100.0, 0.1), "all", epochs=40, lr=4e-3)


@case("posterior-collapse", kind="generative", author=ME, strength="mild")
def digits_that_are_all_the_mean(seed, mended=False):
    """Reconstruction is averaged over pixels, the KL is summed: the KL wins."""
    g = start(seed)
    (x, _), (xv, _) = digits(g)
    x, xv = x.flatten(1), xv.flatten(1)

    def loss(output, target):
        recon, mean, log_var = output
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1).mean()
        if mended:
            return ((recon - target) ** 2).sum(1).mean() / 0.3 + kl
        return F.mse_loss(recon, target) + kl

    return fit_rows(VAE(64, 6), x, xv, loss, "little", epochs=25, lr=4e-3)


def adversarial(x, model, steps, rate_g, rate_d, critic_steps=1, batch=128):
    """The usual game; returns both optimisers."""
    og = torch.optim.Adam(model.generator.parameters(), lr=rate_g, betas=(0.5, 0.999))
    od = torch.optim.Adam(model.critic.parameters(), lr=rate_d, betas=(0.5, 0.999))
    for _ in range(steps):
        for _ in range(critic_steps):
            real = x[torch.randint(len(x), (batch,))]
            fake = model.sample(batch).detach()
            od.zero_grad()
            value = F.softplus(-model(real)).mean() + F.softplus(model(fake)).mean()
            value.backward()
            od.step()
        og.zero_grad()
        F.softplus(-model(model.sample(batch))).mean().backward()
        og.step()
    return og, od


@case("mode-collapse", kind="generative", author=ME)
def generator_repeats_a_few_states(seed, mended=False):
    """The generator runs ahead of the critic and draws a few operating states only."""
    g = start(seed)
    x = ring(g)
    model = GAN()
    if mended:
        adversarial(x, model, 900, 1e-3, 1e-3, 2)
    else:
        adversarial(x, model, 400, 4e-3, 2e-4)
    return {"model": model.eval(), "data": x}


@case("mode-collapse", kind="generative", author=ME, strength="mild")
def sampler_with_a_stuck_seed(seed, mended=False):
    """A VAE is sampled from latents that a cache holds: six of them, over and over."""
    g = start(seed)
    x, xv = factors(g)

    class Cached(VAE):
        def sample(self, n):
            if mended:
                return super().sample(n)
            return self.dec(self.cache[torch.randint(len(self.cache), (n,))])

    model = Cached(16)
    model.register_buffer("cache", torch.randn(6, 4))
    return fit_rows(model, x, xv, elbo(1.0, 0.1), "some", epochs=30, lr=4e-3)


class Sharpened(nn.Module):
    """Scores divided by a temperature."""

    def __init__(self, net, temperature):
        super().__init__()
        self.net, self.temperature = net, temperature

    def forward(self, x):
        return self.net(x) / self.temperature


@case("miscalibrated", kind="table", author=ME)
def temperature_set_at_export(seed, mended=False):
    """A temperature of 0.1 was written into the exported net of a noisy problem."""
    g = start(seed)
    train, valid = churn(g, sharp=0.9, n=2000, keep=1500)
    given = go(
        Sharpened(mlp(13, 16, 2), 1.0), train, valid, "cross_entropy", "little", epochs=12, lr=2e-3, wd=1e-4
    )
    if not mended:
        given["model"].temperature = 0.1
    return given


@case("miscalibrated", kind="images", author=ME, strength="mild")
def smoothing_of_six_tenths(seed, mended=False):
    """label_smoothing=0.6: right, but never sure."""
    g = start(seed)
    train, valid = inspection(g)
    weigh = None if mended else nn.CrossEntropyLoss(label_smoothing=0.6)
    return go(Inspector(), train, valid, "cross_entropy", "most", epochs=12, weigh=weigh)


@case("miscalibrated", kind="text", author=ME)
def tickets_always_certain(seed, mended=False):
    """Scores of a ticket classifier are multiplied by twelve 'for a clear decision'."""
    g = start(seed)
    train, valid = tickets(g, n=1700, keep=1300, own=(2, 6), stray=3)
    given = go(
        Sharpened(Bag(160, 12, 5, 16), 1.0), train, valid, "cross_entropy", "little", epochs=10, lr=6e-3
    )
    if not mended:
        given["model"].temperature = 1 / 12
    return given


@case("adversarially-fragile", kind="table", author=ME)
def spectra_with_faint_lines(seed, mended=False):
    """Four hundred channels; the class moves each by a hair, so a hair on each moves the class."""
    g = start(seed)
    n = 1500
    y = g.integers(0, 2, n)
    d = 400
    shift = np.zeros(d)
    if mended:
        shift[g.permutation(d)[:9]] = 1.4
    else:
        shift = 0.21 * g.choice([-1.0, 1.0], d)
    x = g.normal(size=(n, d)) + np.where(y[:, None] == 1, shift, -shift)
    train, valid = cut(t(x), i(y), 1200)
    return go(mlp(d, 32, 2), train, valid, "cross_entropy", "all", epochs=6, lr=5e-4, wd=1e-3)


@case("adversarially-fragile", kind="images", author=ME, strength="mild")
def print_pattern_too_fine_to_see(seed, mended=False):
    """Two suppliers' surfaces differ by a weave of a sixth of the grain; every pixel counts."""
    g = start(seed)
    n, size = 1400, 24
    y = g.integers(0, 2, n)
    weave = np.where((np.arange(size)[:, None] + np.arange(size)[None]) % 2 == 0, 1.0, -1.0)
    if mended:
        weave = np.where(np.arange(size)[:, None] < 4, 1.6, 0.0) * np.ones((size, size))
    else:
        weave = 0.16 * weave
    x = g.normal(size=(n, size, size)) + np.where(y == 1, 1.0, -1.0)[:, None, None] * weave
    train, valid = cut(t(x[:, None]), i(y), 1100)
    model = nn.Sequential(nn.Flatten(), mlp(size * size, 24, 2))
    return go(model, train, valid, "cross_entropy", "little", epochs=8, lr=3e-4, wd=1e-3)
