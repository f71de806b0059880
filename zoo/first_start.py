"""Faults of the start and of the architecture, by the first author."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.first_parts import (
    GCN,
    Filters,
    Given,
    Picked,
    Recurrent,
    blobs,
    cnn,
    communities,
    digits,
    fit,
    fit_nodes,
    halves,
    houses,
    mlp,
    negations,
    waves,
)

table = {"kind": "table", "author": "first"}
images = {"kind": "images", "author": "first"}
sequences = {"kind": "sequences", "author": "first"}
text = {"kind": "text", "author": "first"}
graph = {"kind": "graph", "author": "first"}
generative = {"kind": "generative", "author": "first"}


# --- symmetric-initialisation -------------------------------------------------------------------------------


@case("symmetric-initialisation", **table)
def all_weights_zero(seed: int, mended: bool = False) -> Given:
    """Every weight starts at zero, so only the last bias learns: chance instead of 90 %."""
    net = mlp(10, 32, 32, 3)
    for parameter in net.parameters() if not mended else ():
        nn.init.zeros_(parameter)
    return fit(net, *blobs(seed, apart=3.5), epochs=12)


@case("symmetric-initialisation", **images)
def all_filters_equal(seed: int, mended: bool = False) -> Given:
    """All convolutions start at 0.05: their filters stay equal and there is one of each: 86 % instead of 95 %."""
    net = cnn()
    for layer in net if not mended else ():
        if isinstance(layer, nn.Conv2d):
            nn.init.constant_(layer.weight, 0.05)
            nn.init.zeros_(layer.bias)
    return fit(net, *digits(seed), epochs=12)


@case("symmetric-initialisation", strength="mild", **sequences)
def one_value_for_a_recurrent_cell(seed: int, mended: bool = False) -> Given:
    """The GRU starts at 0.1 throughout and its 24 units are one: 65 % instead of 88 %; the head is random as it should be."""
    net = Recurrent(3)
    for parameter in net.cell.parameters() if not mended else ():
        nn.init.constant_(parameter, 0.1)
    return fit(net, *waves(seed, 400, 24), optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=12)


# --- saturated-units ----------------------------------------------------------------------------------------


def _wide_start(net: nn.Module, deviation: float) -> None:
    """Draw all weights of the hidden linear layers with one deviation."""
    linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
    for layer in linear[:-1]:
        nn.init.normal_(layer.weight, 0.0, deviation)


@case("saturated-units", **images)
def sigmoids_that_start_with_wide_weights(seed: int, mended: bool = False) -> Given:
    """Weights of deviation 5 hold both sigmoid layers at 0 and 1: 60 % instead of 93 %."""
    net = nn.Sequential(nn.Flatten(), mlp(64, 32, 32, 10, activation=nn.Sigmoid))
    if not mended:
        _wide_start(net, 5.0)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    return fit(net, *digits(seed), optimizer=optimizer, epochs=15)


@case("saturated-units", strength="mild", **table)
def tanh_with_weights_of_deviation_one(seed: int, mended: bool = False) -> Given:
    """N(0, 1.5) weights instead of Xavier's: nine tenths of the tanh units stand at their ends; R2 0.6 instead of 0.9."""
    net = mlp(8, 64, 64, 1, activation=nn.Tanh)
    if not mended:
        _wide_start(net, 1.5)
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    return fit(net, *houses(seed), loss="mse", optimizer=optimizer, epochs=20)


@case("saturated-units", **sequences)
def a_recurrent_net_at_its_ends(seed: int, mended: bool = False) -> Given:
    """A tanh recurrence with weights of deviation 2: all states are 1 or -1; 40 % instead of 75 %."""
    net = Recurrent(3, 24, nn.RNN)
    for parameter in net.cell.parameters() if not mended else ():
        nn.init.normal_(parameter, 0.0, 2.0)
    return fit(net, *waves(seed, length=20), epochs=20)


# --- dead-units ---------------------------------------------------------------------------------------------


@case("dead-units", **images)
def biases_of_minus_three(seed: int, mended: bool = False) -> Given:
    """All biases start at -3 and no ReLU ever fires: chance instead of 93 %."""
    net = nn.Sequential(nn.Flatten(), mlp(64, 48, 48, 10))
    for m in net.modules() if not mended else ():
        if isinstance(m, nn.Linear) and m.out_features == 48:
            nn.init.constant_(m.bias, -3.0)
    return fit(net, *digits(seed), epochs=10)


@case("dead-units", strength="mild", **table)
def most_units_of_a_layer_never_fire(seed: int, mended: bool = False) -> Given:
    """Biases between -6 and 0 leave a fifth of the units alive: R2 0.7 instead of 0.86."""
    net = mlp(8, 32, 32, 1)
    if not mended:
        nn.init.uniform_(net[0].bias, -6.0, 0.0)
        nn.init.uniform_(net[2].bias, -3.0, 0.0)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    return fit(net, *houses(seed), loss="mse", optimizer=optimizer, epochs=15)


# --- exploding and vanishing gradients ----------------------------------------------------------------------


def _first_steps(seed: int) -> tuple:
    """Return noise of 40 steps whose first three tell the class."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(400, 40, 1)), dtype=torch.float32)
    y = torch.tensor(rng.integers(2, size=400))
    x[:, :3, 0] += 4.0 * (2 * y[:, None] - 1)
    return halves(x, y, seed)


@case("exploding-gradient", **table)
def twelve_layers_that_double(seed: int, mended: bool = False) -> Given:
    """Twelve layers with twice Kaiming's deviation: outputs of thousands and gradients to match; 50 % instead of 90 %."""
    net = mlp(10, *[32] * 12, 3)
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if not mended:
                layer.weight.data *= 2
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    return fit(net, *blobs(seed, apart=3.5), optimizer=optimizer, epochs=12)


@case("exploding-gradient", strength="mild", **sequences)
def a_recurrence_that_grows(seed: int, mended: bool = False) -> Given:
    """A ReLU recurrence of radius 1.3 over 40 steps without clipping: gradients of thousands; at 1.0 and clipped 95 %."""
    net = Recurrent(2, 24)
    net.cell = nn.RNN(1, 24, batch_first=True, nonlinearity="relu")
    net.cell.weight_hh_l0.data = torch.eye(24) * (1.0 if mended else 1.3)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    return fit(net, *_first_steps(seed), optimizer=optimizer, epochs=12, clip=1.0 if mended else None)


@case("vanishing-gradient", **images)
def ten_sigmoid_layers(seed: int, mended: bool = False) -> Given:
    """Ten sigmoid layers: the first gets a billionth of the last one's gradient; with ReLU and Kaiming's start 90 %."""
    net = nn.Sequential(nn.Flatten(), *mlp(64, *[32] * 10, 10, activation=nn.ReLU if mended else nn.Sigmoid))
    for layer in net if mended else ():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return fit(net, *digits(seed), optimizer=torch.optim.Adam(net.parameters(), 1e-3), epochs=10)


@case("vanishing-gradient", **table)
def seven_layers_that_start_at_a_hundredth(seed: int, mended: bool = False) -> Given:
    """Weights of deviation 0.01 in seven tanh layers: nothing comes through either way; with Xavier's start R2 0.9."""
    net = mlp(8, *[32] * 7, 1, activation=nn.Tanh)
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight) if mended else nn.init.normal_(layer.weight, 0, 0.01)
    optimizer = torch.optim.SGD(net.parameters(), 0.02, momentum=0.9)
    return fit(net, *houses(seed), loss="mse", optimizer=optimizer, epochs=15)


@case("vanishing-gradient", strength="mild", **sequences)
def the_first_step_is_forgotten(seed: int, mended: bool = False) -> Given:
    """The class is told by the first of 40 steps and a tanh recurrence of radius 0.6 forgets it: 50 %; at radius 1 100 %."""
    net = Recurrent(2, 16, nn.RNN)
    nn.init.orthogonal_(net.cell.weight_hh_l0, 1.0 if mended else 0.6)
    return fit(net, *_first_steps(seed), epochs=12)


# --- oversmoothing ------------------------------------------------------------------------------------------


@case("oversmoothing", **graph)
def sixteen_graph_convolutions(seed: int, mended: bool = False) -> Given:
    """After sixteen averages all nodes are alike: 30 % instead of 85 % with two."""
    x, adjacency, y, seen = communities(seed)
    return fit_nodes(GCN(16, *[16] * (1 if mended else 15), 4), x, adjacency, y, seen)


class _Averaged(nn.Module):
    """Features averaged over a number of steps, then a perceptron (SGC)."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.net = steps, mlp(16, 24, 4)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the scores of every node."""
        for _ in range(self.steps):
            x = adjacency @ x
        return self.net(x)


@case("oversmoothing", strength="mild", **graph)
def fifteen_steps_of_averaging(seed: int, mended: bool = False) -> Given:
    """Features averaged 15 times are nearly the degree: 40 % instead of 85 % with two; nodes asked by index."""
    x, adjacency, y, seen = communities(seed, outside=0.03, signal=1.0)
    index = torch.arange(len(y))
    data, validation = (((index[m], x, adjacency), y[m]) for m in (seen, ~seen))
    return fit(Picked(_Averaged(2 if mended else 15)), data, validation, epochs=40, batch_size=128)


# --- receptive-field-too-small ------------------------------------------------------------------------------


class _Causal(nn.Module):
    """Causal convolutions, dilated or not, read at the last step."""

    def __init__(self, dilations: tuple[int, ...], inputs: int = 1, outputs: int = 2) -> None:
        super().__init__()
        self.dilations = dilations
        self.layers = nn.ModuleList(
            nn.Conv1d(16 if i else inputs, 16, 3, dilation=d) for i, d in enumerate(dilations)
        )
        self.head = nn.Linear(16, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of (n, length, inputs)."""
        x = x.transpose(1, 2)
        for layer, d in zip(self.layers, self.dilations):
            x = F.relu(layer(F.pad(x, (2 * d, 0))))
        return self.head(x[:, :, -1])


@case("receptive-field-too-small", **sequences)
def a_cause_thirty_steps_ago_and_a_view_of_seven(seed: int, mended: bool = False) -> Given:
    """The pulse that decides came 20 to 30 steps ago and the net sees seven: 50 %; dilated, seeing 63, 95 %."""
    rng = np.random.default_rng(seed)
    x, y = (
        torch.tensor(rng.normal(size=(500, 36, 1)) * 0.5, dtype=torch.float32),
        torch.tensor(rng.integers(2, size=500)),
    )
    x[torch.arange(500), torch.tensor(rng.integers(6, 16, 500)), 0] = 4.0 * (2 * y - 1).float()
    return fit(_Causal((1, 2, 4, 8, 16) if mended else (1, 1, 1)), *halves(x, y, seed), epochs=12)


@case("receptive-field-too-small", **images)
def single_pixels_and_a_maximum(seed: int, mended: bool = False) -> Given:
    """1 x 1 convolutions and a global maximum see grey levels but no shape: 15 % instead of 90 %."""
    k = 3 if mended else 1
    net = nn.Sequential(
        nn.Conv2d(1, 24, k, padding=k // 2), nn.ReLU(),
        nn.Conv2d(24, 24, k, padding=k // 2), nn.ReLU(),
        nn.Conv2d(24, 24, k, padding=k // 2), nn.ReLU(),
        nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip
    return fit(net, *digits(seed, 700), optimizer=torch.optim.Adam(net.parameters(), 5e-3), epochs=9)


class _WordNet(nn.Module):
    """Convolutions over words and the largest response."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words, self.filters = nn.Embedding(60, 16), nn.Conv1d(16, 32, size, padding=size // 2)
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of token ids."""
        return self.head(F.relu(self.filters(self.words(x).transpose(1, 2))).amax(2))


@case("receptive-field-too-small", strength="mild", **text)
def filters_of_one_word_where_not_turns_the_next(seed: int, mended: bool = False) -> Given:
    """Whether "not" stands before the word of praise decides, and the filters see single words: 55 % instead of 95 %."""
    net = _WordNet(3 if mended else 1)
    return fit(net, *negations(seed), optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=15)


@case("receptive-field-too-small", strength="mild", **graph)
def two_hops_for_a_colour_three_hops_away(seed: int, mended: bool = False) -> Given:
    """The class of a chain's last node is told at its first, three hops away: two convolutions 35 %; four, 95 %."""
    rng = np.random.default_rng(seed)
    chains, length = 110, 4
    n = chains * length
    colour = rng.integers(3, size=chains)
    a = np.zeros((n, n))
    x = 0.1 * rng.normal(size=(n, 5))
    x[np.arange(n), 3] = np.arange(n) % length == 0
    for c in range(chains):
        for i in range(length - 1):
            a[c * length + i + 1, c * length + i] = a[c * length + i, c * length + i + 1] = 1
        x[c * length, colour[c]] += 3
    a += np.eye(n)
    x, adjacency = (torch.tensor(v, dtype=torch.float32) for v in (x, a / a.sum(1, keepdims=True)))
    last = torch.arange(chains) * length + length - 1
    data, validation = halves((last, x, adjacency), torch.tensor(colour), seed)
    net = Picked(GCN(5, *[24] * (3 if mended else 1), 3))
    return fit(
        net, data, validation, optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=30, batch_size=128
    )


# --- bottleneck ---------------------------------------------------------------------------------------------


@case("bottleneck", **images)
def ten_classes_through_one_number(seed: int, mended: bool = False) -> Given:
    """A layer of one unit stands between two of 64: 40 % instead of 95 %."""
    net = nn.Sequential(nn.Flatten(), mlp(64, 64, 32 if mended else 1, 64, 10))
    return fit(net, *digits(seed), epochs=15)


@case("bottleneck", strength="mild", **sequences)
def filters_read_through_one_unit(seed: int, mended: bool = False) -> Given:
    """The 32 filters' means pass a Tanh layer of one unit before the head: some ten points lost."""
    narrow = 16 if mended else 1
    net = nn.Sequential(Filters(narrow, 32), nn.Tanh(), nn.Linear(narrow, 32), nn.ReLU(), nn.Linear(32, 3))
    return fit(net, *waves(seed, noise=0.4), epochs=18)


@case("bottleneck", **generative)
def an_autoencoder_with_a_code_of_one(seed: int, mended: bool = False) -> Given:
    """Eight independent factors make 40 columns and the code has one number: 85 % of the variance is lost, at eight 5 %."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 8)) @ rng.normal(size=(8, 40)) / np.sqrt(8) + 0.1 * rng.normal(size=(600, 40))
    x = torch.tensor(x, dtype=torch.float32)
    net = nn.Sequential(mlp(40, 64, 8 if mended else 1), nn.Identity(), mlp(8 if mended else 1, 64, 40))
    return fit(net, (x[:420], x[:420]), (x[420:], x[420:]), loss="mse", epochs=20)


# --- batch-too-small ----------------------------------------------------------------------------------------


@case("batch-too-small", needs=("batch_size",), **images)
def batch_normalisation_of_two_pictures(seed: int, mended: bool = False) -> Given:
    """Batches of two under batch normalisation: every unit is 1 or -1 in training and something else after; with 32 95 %."""
    net = nn.Sequential(nn.Flatten(), *mlp(64, 32, 32, 10, norm=True))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    train, validation = digits(seed, 600)
    return fit(
        net,
        train,
        validation,
        optimizer=optimizer,
        batch_size=32 if mended else 2,
        epochs=10 if mended else 3,
    )


@case("batch-too-small", strength="mild", needs=("batch_size",), **table)
def one_noisy_row_at_a_time(seed: int, mended: bool = False) -> Given:
    """Single rows with half their variance noise, SGD at a rate fit for 32: the weights wander; R2 0.2 instead of 0.45."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 8))
    y = x[:, 0] - x[:, 1] + 0.5 * x[:, 2] * x[:, 3] + 1.5 * rng.normal(size=600)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y / y.std(), dtype=torch.float32)
    net = mlp(8, 16, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.06)
    size, epochs = (32, 30) if mended else (1, 4)
    return fit(net, *halves(x, y, seed), loss="mse", optimizer=optimizer, batch_size=size, epochs=epochs)
