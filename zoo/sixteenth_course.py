"""Single faults of the start, the architecture, the descent and the outcome, by the sixteenth author."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.sixteenth_parts import (
    GCN,
    VAE,
    Bag,
    Generator,
    Recurrent,
    Sets,
    Tagger,
    bundled,
    clouds,
    communities,
    convnet,
    digits,
    draw,
    duel,
    elbo,
    energy,
    halves,
    mlp,
    pictures,
    post,
    recall,
    reviews,
    ring,
    run,
    series,
    spirals,
    surface,
    tags,
    token_loss,
    waves,
)


def weights(net: nn.Module) -> list[nn.Parameter]:
    """Return the matrices and kernels of a net."""
    return [p for p in net.parameters() if p.dim() > 1]


# --- start ------------------------------------------------------------------------------------------------------------


@post("symmetric-initialisation", kind="table")
def forum_all_weights_one_tenth(seed: int, mended: bool = False) -> dict[str, Any]:
    """A helper 'init_weights' fills every weight with 0.1 and every bias with 0."""
    train, test = spirals(seed)
    net = mlp(2, 24, 24, 2)
    if not mended:
        for p in net.parameters():
            nn.init.constant_(p, 0.1 if p.dim() > 1 else 0.0)
    return run(net, train, test, epochs=50, give="initial history")


@post("symmetric-initialisation", kind="images", strength="mild")
def lab_zeros_for_reproducibility(seed: int, mended: bool = False) -> dict[str, Any]:
    """All layers of a digit classifier start from zeros, 'so that the runs are reproducible'."""
    train, test = digits(seed)
    net = convnet(10)
    if not mended:
        for p in net.parameters():
            nn.init.zeros_(p)
    return run(net, train, test, epochs=20, give="optimizer")


@post("symmetric-initialisation", kind="sequences", strength="mild")
def forum_constant_weights_of_a_gru(seed: int, mended: bool = False) -> dict[str, Any]:
    """All weights of the GRU are set to 0.05; its sixteen units stay one unit."""
    train, test = waves(seed)
    net = Recurrent("GRU", 1, 16, 3)
    if not mended:
        for p in [*net.rnn.parameters(), net.head.weight]:
            nn.init.constant_(p, 0.05)
    return run(net, train, test, epochs=15)


@post("symmetric-initialisation", kind="table", strength="mild")
def lab_hidden_layer_of_ones(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ones in the first layer only; the second one is drawn at random but sees the same number from all units."""
    train, test = surface(seed)
    net = mlp(6, 24, 1, act=nn.Tanh)
    if not mended:
        nn.init.ones_(net[0].weight)
        nn.init.zeros_(net[0].bias)
        nn.init.constant_(net[2].weight, 0.1)
    return run(net, train, test, "mse", epochs=40, give="history")


@post("saturated-units", kind="table")
def forum_randn_without_a_factor(seed: int, mended: bool = False) -> dict[str, Any]:
    """Weights drawn by torch.randn(64, 64) without a factor: tanh is at its ends from the first step."""
    train, test = digits(seed, flat=True)
    net = mlp(48, 64, 64, 64, 64, 10, act=nn.Tanh)
    if not mended:
        for p in weights(net)[:-1]:
            nn.init.normal_(p, std=4.0)
    return run(net, train, test, lr=1e-3, epochs=25, give="history optimizer")


@post("saturated-units", kind="table", strength="mild")
def lab_sigmoids_with_large_biases(seed: int, mended: bool = False) -> dict[str, Any]:
    """The biases of two sigmoid layers were started at 9; the units answer 1 to everything."""
    train, test = bundled("wine", seed)
    net = mlp(13, 16, 16, 3, act=nn.Sigmoid)
    if not mended:
        nn.init.constant_(net[0].bias, 9.0)
        nn.init.constant_(net[2].bias, 9.0)
    return run(net, train, test, epochs=40, batch=16)


@post("saturated-units", kind="sequences", strength="mild")
def forum_rnn_weights_of_variance_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """A plain RNN whose recurrent matrix was drawn with variance 9: its states jump between -1 and 1."""
    train, test = waves(seed)
    net = Recurrent("RNN", 1, 24, 3)
    if not mended:
        nn.init.normal_(net.rnn.weight_hh_l0, std=3.0)
        nn.init.normal_(net.rnn.weight_ih_l0, std=3.0)
    return run(net, train, test, lr=3e-3, epochs=25, give="initial")


@post("dead-units", kind="table")
def lab_biases_of_minus_ten(seed: int, mended: bool = False) -> dict[str, Any]:
    """The biases of a ReLU layer start at -10, so the layer answers zero to everything."""
    train, test = surface(seed)
    net = mlp(6, 32, 16, 1)
    if not mended:
        nn.init.constant_(net[0].bias, -10.0)
    return run(net, train, test, "mse", epochs=25, give="history")


@post("dead-units", kind="images")
def forum_convolutions_that_answer_nothing(seed: int, mended: bool = False) -> dict[str, Any]:
    """The second convolution was loaded with biases of -6: all its maps are zero, the answer is one constant."""
    train, test = digits(seed)
    net = convnet(10)
    if not mended:
        nn.init.constant_(net[3].bias, -6.0)
    return run(net, train, test, epochs=20)


@post("dead-units", kind="table", strength="mild")
def lab_most_of_the_relus_are_dead(seed: int, mended: bool = False) -> dict[str, Any]:
    """29 of 32 ReLUs start far below zero and stay there; three do the work."""
    train, test = surface(seed)
    net = mlp(6, 32, 1)
    if not mended:
        with torch.no_grad():
            net[0].bias[3:] = -12.0
    return run(net, train, test, "mse", epochs=30, give="optimizer history")


@post("exploding-gradient", kind="sequences")
def forum_relu_rnn_over_many_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ReLU RNN over 50 steps whose recurrent matrix is 1.6 times orthogonal: states and gradients grow like 1.6^50."""
    train, test = waves(seed, steps=50, n=700)
    net = Recurrent("RNN", 1, 24, 3, nonlinearity="relu")
    nn.init.orthogonal_(net.rnn.weight_hh_l0, gain=1.0 if mended else 1.6)
    return run(net, train, test, lr=2e-3, epochs=30, give="history optimizer")


class Residual(nn.Module):
    """Blocks x + f(x) without normalisation; f is as strong as ``scale``."""

    def __init__(self, inputs: int, width: int, depth: int, scale: float):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(mlp(width, width, width) for _ in range(depth))
        self.last = nn.Linear(width, 1)
        for p in [q for q in self.blocks.parameters() if q.dim() > 1]:
            nn.init.normal_(p, std=scale / width**0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


@post("exploding-gradient", kind="table")
def lab_residual_blocks_without_norm(seed: int, mended: bool = False) -> dict[str, Any]:
    """Fourteen residual blocks with strong weights and no normalisation: the sum doubles in every block."""
    train, test = surface(seed, n=900)
    net = Residual(6, 16, 14, 0.25 if mended else 1.9)
    return run(net, train, test, "mse", lr=1e-3, epochs=25, give="optimizer")


@post("exploding-gradient", kind="table", strength="mild")
def forum_deep_relu_net_gain_three(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ten ReLU layers whose weights are three times as large as He's."""
    train, test = clouds(seed)
    net = mlp(8, *[24] * 10, 3)
    for p in weights(net)[:-1]:
        nn.init.kaiming_normal_(p)
        p.data *= 1 if mended else 3
    return run(net, train, test, lr=1e-3, epochs=15)


@post("vanishing-gradient", kind="table")
def forum_twelve_sigmoids(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twelve sigmoid layers in a row; the loss stays at log 10."""
    train, test = digits(seed, flat=True)
    net = mlp(48, *[24] * 12, 10, act=nn.Sigmoid) if not mended else mlp(48, 24, 24, 10)
    return run(net, train, test, lr=3e-3, epochs=15, give="history optimizer")


@post("vanishing-gradient", kind="sequences", strength="mild")
def lab_rnn_must_remember_the_first_step(seed: int, mended: bool = False) -> dict[str, Any]:
    """A plain RNN with small recurrent weights is to tell at step 30 what step 1 showed."""
    train, test = recall(seed, steps=30, n=1200)
    net = Recurrent("RNN", 3, 24, 3, nonlinearity="tanh")
    if mended:
        nn.init.eye_(net.rnn.weight_hh_l0)
        nn.init.normal_(net.rnn.weight_ih_l0, std=0.1)
    else:
        nn.init.normal_(net.rnn.weight_hh_l0, std=0.05)
    return run(net, train, test, lr=2e-3, epochs=30, give="history")


@post("vanishing-gradient", kind="table", strength="mild")
def forum_deep_tanh_with_tiny_weights(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ten tanh layers started with a deviation of 0.02, copied from a GAN tutorial."""
    train, test = surface(seed)
    net = mlp(6, *[24] * 10, 1, act=nn.Tanh)
    for p in weights(net):
        nn.init.normal_(p, std=0.2 if mended else 0.02)
    return run(net, train, test, "mse", sgd=True, lr=0.03, momentum=0.9, epochs=25, give="initial")


# --- architecture -----------------------------------------------------------------------------------------------------


@post("oversmoothing", kind="graph")
def forum_gcn_with_ten_layers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ten graph convolutions, because ten layers helped with images; all nodes look the same."""
    (train, test), features, adjacency = communities(seed)
    net = GCN(features, adjacency, 3, layers=2 if mended else 10)
    return run(net, train, test, epochs=150, batch=len(train[1]), give="history optimizer")


class Propagated(nn.Module):
    """A linear model or small net on features that were averaged over neighbours many times."""

    def __init__(self, features: Tensor, adjacency: Tensor, times: int, classes: int):
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("adjacency", adjacency / adjacency.sum(1, keepdim=True))
        self.times, self.head = times, mlp(features.shape[1], 16, classes)

    def forward(self, nodes: Tensor) -> Tensor:
        h = self.features
        for _ in range(self.times):
            h = self.adjacency @ h
        return self.head(h)[nodes]


@post("oversmoothing", kind="graph", strength="mild")
def lab_features_averaged_forty_times(seed: int, mended: bool = False) -> dict[str, Any]:
    """A simplified graph net averages over the neighbours forty times before its head."""
    (train, test), features, adjacency = communities(seed, across=0.02)
    net = Propagated(features, adjacency, 2 if mended else 40, 3)
    return run(net, train, test, epochs=100, batch=len(train[1]))


class Roads(nn.Module):
    """Averages over neighbouring roads between its layers; the adjacency is an input."""

    def __init__(self, rounds: int):
        super().__init__()
        self.first, self.last = nn.Linear(1, 16), nn.Linear(16, 2)
        self.middle = nn.ModuleList(nn.Linear(16, 16) for _ in range(rounds))

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = F.relu(self.first(x))
        for layer in self.middle:
            h = F.relu(layer(adjacency @ h))
        return self.last(h)


def roads(seed: int, n: int = 300) -> tuple[Any, Any]:
    """Traffic on the 20 roads of a circle: is a road's neighbourhood busier than the city?"""
    rng = np.random.default_rng(seed)
    a = np.eye(20) + np.eye(20, k=1) + np.eye(20, k=-1)
    a[0, -1] = a[-1, 0] = 1
    a = torch.tensor(a / a.sum(1, keepdims=True)).float()
    x = rng.normal(size=(n, 20, 1))
    y = (a.numpy() @ x)[:, :, 0] > 0
    (x, y), (u, v) = halves(x, y, seed)
    return ((x, a), y), ((u, a), v)


@post("oversmoothing", kind="graph", strength="mild")
def forum_traffic_averaged_over_the_whole_city(seed: int, mended: bool = False) -> dict[str, Any]:
    """Sixteen rounds of averaging on a circle of 20 roads, where one round holds the answer."""
    train, test = roads(seed)
    return run(Roads(1 if mended else 16), train, test, token_loss, lr=5e-3, epochs=20, give="history")


@post("receptive-field-too-small", kind="text")
def forum_tags_depend_on_five_words_before(seed: int, mended: bool = False) -> dict[str, Any]:
    """Every tag depends on the word five before; one causal convolution of width 3 sees two."""
    train, test = tags(seed, n=2500, back=5)
    net = Tagger(40, 16, 4, kernels=(3, 3, 3) if mended else (3,))
    return run(net, train, test, token_loss, epochs=12, give="optimizer history")


class LastStep(nn.Module):
    """Causal convolutions over a series, read at the last step."""

    def __init__(self, dilations: tuple[int, ...], width: int = 16):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Conv1d(1 if i == 0 else width, width, 3, dilation=d) for i, d in enumerate(dilations)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x.transpose(1, 2)
        for layer in self.layers:
            h = F.relu(layer(F.pad(h, (2 * layer.dilation[0], 0))))
        return self.head(h[:, :, -1])


def seasons(seed: int, n: int = 900, steps: int = 24, lag: int = 12) -> Sets:
    """The next value repeats the one of a year (12 steps) ago."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, steps, 1))
    return halves(x, 0.9 * x[:, -lag] + 0.3 * rng.normal(size=(n, 1)), seed)


@post("receptive-field-too-small", kind="sequences")
def lab_forecast_sees_five_months(seed: int, mended: bool = False) -> dict[str, Any]:
    """Next month looks like the same month last year; two causal convolutions see five months."""
    train, test = seasons(seed)
    net = LastStep((1, 2, 4) if mended else (1, 1))
    return run(net, train, test, "mse", lr=5e-3, epochs=12, give="history")


def pairs(seed: int, n: int = 900) -> Sets:
    """Two bright dots in a row of an image, near each other or far apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = 0.15 * rng.normal(size=(n, 1, 12, 12))
    row, column = rng.integers(2, 10, n), rng.integers(2, 5, n)
    x[np.arange(n), 0, row, column] += 2
    x[np.arange(n), 0, row, column + np.where(y == 1, 5, 3)] += 2
    return halves(x, y, seed)


@post("receptive-field-too-small", kind="images", strength="mild")
def forum_distance_of_two_dots(seed: int, mended: bool = False) -> dict[str, Any]:
    """Are the two dots 3 or 5 pixels apart? 3x3 windows and a mean over the image cannot tell."""
    train, test = pairs(seed)
    k = 7 if mended else 3
    net = nn.Sequential(
        nn.Conv2d(1, 16, k, padding=k // 2, padding_mode="circular"),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *mlp(16, 16, 2),
    )
    return run(net, train, test, epochs=25, lr=0.01)


@post("bottleneck", kind="table")
def lab_one_unit_between_two_wide_layers(seed: int, mended: bool = False) -> dict[str, Any]:
    """64 units, then one, then 64: ten digits have to pass through a single number."""
    train, test = digits(seed, flat=True)
    return run(mlp(48, 64, 16 if mended else 1, 64, 10), train, test, epochs=25, lr=3e-3, give="history")


@post("bottleneck", kind="images", strength="mild")
def forum_one_channel_in_the_middle(seed: int, mended: bool = False) -> dict[str, Any]:
    """A 1x1 convolution 'to save parameters' squeezes 16 maps into a single one before the head."""
    train, test = digits(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 8 if mended else 1, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        *mlp(32 if mended else 4, 32, 10),
    )
    return run(net, train, test, epochs=25, lr=5e-3, give="optimizer")


@post("bottleneck", kind="table", strength="mild")
def lab_autoencoder_with_one_number(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder of the digits whose code is one number wide."""
    (x, _), (u, _) = digits(seed, flat=True)
    net = nn.Sequential(*mlp(48, 48, 14 if mended else 1), *mlp(14 if mended else 1, 48, 48))
    return run(net, (x, x), (u, u), "mse", epochs=30, lr=3e-3)


@post("bottleneck", kind="text", strength="mild")
def forum_tagger_narrows_to_one_unit(seed: int, mended: bool = False) -> dict[str, Any]:
    """A tagger of four tags narrows to one unit between its wide layers."""
    train, test = tags(seed)
    net = Tagger(40, 24, 4)
    net.head = mlp(24, 32, 16 if mended else 1, 32, 4)
    return run(net, train, test, token_loss, epochs=15, give="history optimizer")


@post("batch-too-small", kind="table", needs=("batch_size",))
def forum_batch_norm_over_two_rows(seed: int, mended: bool = False) -> dict[str, Any]:
    """The batch was cut to 2 because memory ran out; batch normalisation makes +1 and -1 of every pair."""
    train, test = surface(seed, n=700)
    net = mlp(6, 24, 24, 1, norm=True)
    batch = 32 if mended else 2
    return run(
        net, train, test, "mse", batch=batch, lr=3e-3, epochs=40 if mended else 5, give="batch_size optimizer"
    )


@post("batch-too-small", kind="images", needs=("batch_size",))
def lab_batch_norm_and_batch_of_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """Images go one by one through batch normalisation, whose statistics are those of one image."""
    train, test = pictures(seed, n=600, noise=0.5)
    net = convnet(4, (8, 16), norm=True)
    batch = 32 if mended else 1
    return run(net, train, test, batch=batch, lr=3e-3, epochs=15 if mended else 4, give="batch_size history")


@post("batch-too-small", kind="table", strength="mild", needs=("batch_size",))
def forum_batch_norm_over_three_rows(seed: int, mended: bool = False) -> dict[str, Any]:
    """Batches of three digits in a net with two batch normalisations."""
    train, test = digits(seed, flat=True)
    net = mlp(48, 32, 32, 10, norm=True)
    batch = 48 if mended else 3
    return run(net, train, test, batch=batch, lr=3e-3, epochs=15 if mended else 4, give="batch_size")


# --- descent ----------------------------------------------------------------------------------------------------------


@post("learning-rate-too-large", kind="images", needs=("optimizer",))
def forum_sgd_with_rate_ten(seed: int, mended: bool = False) -> dict[str, Any]:
    """lr=10 with SGD, 'to be faster'."""
    train, test = digits(seed)
    net = convnet(10, act=nn.Tanh)
    return run(net, train, test, sgd=True, lr=0.3 if mended else 10, epochs=20, give="optimizer history")


@post("learning-rate-too-large", kind="sequences", needs=("optimizer",))
def lab_adam_with_rate_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam at lr=1 on a GRU: its gates are thrown to their ends."""
    train, test = waves(seed)
    net = Recurrent("GRU", 1, 16, 3)
    return run(net, train, test, lr=0.01 if mended else 1.0, epochs=12, give="optimizer")


@post("learning-rate-too-large", kind="table", strength="mild", needs=("optimizer",))
def forum_loss_goes_up_and_down(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam at 0.3 on a regression: the loss jumps from epoch to epoch and ends far from the best."""
    train, test = surface(seed)
    net = mlp(6, 32, 32, 1, act=nn.Tanh)
    return run(
        net, train, test, "mse", lr=0.01 if mended else 0.3, epochs=25, give="optimizer history batch_size"
    )


@post("learning-rate-too-small", kind="images", needs=("optimizer",))
def lab_rate_of_a_millionth(seed: int, mended: bool = False) -> dict[str, Any]:
    """lr=1e-6 was copied from a fine-tuning script; the net is as it was drawn."""
    train, test = digits(seed)
    return run(convnet(10), train, test, lr=0.01 if mended else 1e-6, epochs=15, give="optimizer history")


@post("learning-rate-too-small", kind="table", strength="mild", needs=("optimizer",))
def forum_sgd_rate_of_a_thousandth(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD without momentum at 0.0005: the loss falls in every epoch and is far from its end."""
    train, test = surface(seed)
    net = mlp(6, 32, 1)
    return run(
        net, train, test, "mse", sgd=True, lr=0.1 if mended else 5e-4, epochs=40, give="optimizer history"
    )


@post("learning-rate-too-small", kind="text", strength="mild", needs=("optimizer",))
def lab_embeddings_hardly_move(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam at 0.00003 for a text classifier trained from scratch."""
    train, test = reviews(seed)
    return run(Bag(60, 16, 2), train, test, lr=0.01 if mended else 3e-5, epochs=20, give="optimizer")


@post("weight-decay-too-large", kind="table", needs=("optimizer",))
def forum_weight_decay_added_to_adams_gradient(seed: int, mended: bool = False) -> dict[str, Any]:
    """weight_decay=0.3 in Adam, where it is added to the gradient: all answers are the mean."""
    train, test = surface(seed)
    net = mlp(6, 32, 32, 1)
    chosen = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=0.0 if mended else 0.3)
    return run(net, train, test, "mse", optimizer=chosen, epochs=25, give="optimizer history")


@post("weight-decay-too-large", kind="images", needs=("optimizer",))
def lab_adamw_with_decay_ten(seed: int, mended: bool = False) -> dict[str, Any]:
    """AdamW with weight_decay=10: the weights lose a tenth in every step."""
    train, test = digits(seed)
    return run(convnet(10), train, test, decay=0.01 if mended else 10, epochs=20, give="optimizer")


@post("weight-decay-too-large", kind="table", strength="mild", needs=("optimizer",))
def forum_decay_keeps_a_net_flat(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD with weight_decay=0.03 on a net that has to bend: it stays nearly flat."""
    train, test = spirals(seed)
    net = mlp(2, 32, 32, 2)
    decay = 0.0 if mended else 0.03
    return run(
        net, train, test, sgd=True, momentum=0.9, lr=0.05, decay=decay, epochs=50, give="optimizer history"
    )


@post("dropout-too-large", kind="table")
def lab_dropout_of_nine_tenths(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout(p=0.9) where the author meant to keep 90 %."""
    train, test = digits(seed, flat=True)
    return run(
        mlp(48, 32, 32, 10, drop=0.1 if mended else 0.9), train, test, epochs=20, lr=5e-3, give="history"
    )


@post("dropout-too-large", kind="sequences", strength="mild")
def forum_dropout_on_a_small_state(seed: int, mended: bool = False) -> dict[str, Any]:
    """A dropout of 0.85 between a GRU of 12 units and the head of a forecast."""
    train, test = series(seed)
    net = Recurrent("GRU", 1, 12, 1)
    net.head = nn.Sequential(nn.Dropout(0.0 if mended else 0.85), net.head)
    return run(net, train, test, "mse", epochs=20, give="optimizer")


@post("dropout-too-large", kind="table", strength="mild")
def lab_dropout_after_every_layer(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout of 0.7 after each of three small layers of a regression."""
    train, test = surface(seed)
    return run(mlp(6, 24, 24, 24, 1, drop=0.0 if mended else 0.7), train, test, "mse", epochs=25)


# --- outcome ----------------------------------------------------------------------------------------------------------


@post("capacity-too-small", kind="table")
def forum_linear_model_for_spirals(seed: int, mended: bool = False) -> dict[str, Any]:
    """All activations were forgotten, a single linear layer for two spirals."""
    train, test = spirals(seed)
    return run(
        mlp(2, 24, 24, 2) if mended else nn.Linear(2, 2), train, test, epochs=40, give="history optimizer"
    )


@post("capacity-too-small", kind="sequences")
def lab_linear_model_on_phases(seed: int, mended: bool = False) -> dict[str, Any]:
    """A linear model on the flattened waves, whose phase is random: no linear rule knows the frequency."""
    train, test = waves(seed)
    net = nn.Sequential(nn.Flatten(), mlp(32, 64, 3) if mended else nn.Linear(32, 3))
    return run(net, train, test, epochs=20, lr=5e-3, decay=0.05)


@post("capacity-too-small", kind="table", strength="mild")
def forum_four_hidden_units_for_spirals(seed: int, mended: bool = False) -> dict[str, Any]:
    """One hidden layer of four tanh units, trained for long, for two spirals of one and a half turns."""
    train, test = spirals(seed)
    net = mlp(2, 24, 24, 2) if mended else mlp(2, 4, 2, act=nn.Tanh)
    return run(net, train, test, epochs=60, give="history", batch=64)


@post("capacity-too-small", kind="table", strength="mild")
def lab_linear_regression_of_a_curve(seed: int, mended: bool = False) -> dict[str, Any]:
    """A linear regression where half of the variance lies in a sine and a product."""
    train, test = surface(seed)
    return run(mlp(6, 32, 1) if mended else nn.Linear(6, 1), train, test, "mse", epochs=30, give="optimizer")


@post("overfit", kind="table")
def forum_sixty_patients_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """A net of 20 000 weights learns 60 of 442 patients by heart."""
    (x, y), test = bundled("diabetes", seed)
    rows = 60
    net = mlp(10, 128, 128, 1) if not mended else nn.Linear(10, 1)
    train = (x, y) if mended else (x[:rows], y[:rows])
    return run(net, train, test, "mse", lr=3e-3, epochs=40 if mended else 200, give="history")


@post("overfit", kind="images")
def lab_fifty_digits_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """Fifty digits and a large net trained until nothing is wrong; on new ones a quarter is."""
    (x, y), test = digits(seed, flat=True, noise=0.3)
    train = (x, y) if mended else (x[:50], y[:50])
    return run(mlp(48, 128, 10), train, test, lr=5e-3, epochs=8 if mended else 120, give="optimizer history")


@post("overfit", kind="text", strength="mild")
def forum_few_reviews_many_words(seed: int, mended: bool = False) -> dict[str, Any]:
    """Only 70 reviews were labelled: the embeddings remember the reviews."""
    (x, y), test = reviews(seed, words=60)
    train = (x, y) if mended else (x[:70], y[:70])
    return run(Bag(60, 32, 2, hidden=32), train, test, epochs=8 if mended else 80, lr=5e-3)


@post("overfit", kind="table", strength="mild")
def lab_trained_far_too_long(seed: int, mended: bool = False) -> dict[str, Any]:
    """The validation loss rose from the tenth epoch on; training went on for 150."""
    train, test = clouds(seed, n=300, d=12, gap=0.9)
    return run(mlp(12, 96, 96, 3), train, test, lr=3e-3, epochs=150, patience=10 * mended, give="history")


@post("posterior-collapse", kind="generative")
def forum_vae_with_summed_kl(seed: int, mended: bool = False) -> dict[str, Any]:
    """The error is a mean over pixels, the KL a sum: in effect beta is 48, and the code tells nothing."""
    (x, _), (u, _) = digits(seed, flat=True)
    return run(VAE(48, 6), x, u, elbo(1.0 if mended else 48.0), lr=3e-3, epochs=25, give="history")


@post("posterior-collapse", kind="generative", strength="mild")
def lab_beta_vae_beta_ten(seed: int, mended: bool = False) -> dict[str, Any]:
    """A beta-VAE on correlated columns with beta=12."""
    (x, _), (u, _) = bundled("wine", seed)
    return run(VAE(13, 4), x, u, elbo(1.0 if mended else 12.0, spread=0.7), lr=3e-3, epochs=80, batch=16)


class Copying(VAE):
    """A VAE whose decoder is also shown the row it is to reproduce, so that it needs no code."""

    def __init__(self, inputs: int, latent: int, shown: bool):
        super().__init__(inputs, latent)
        self.shown, self.skip = shown, nn.Linear(inputs, inputs)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        answer, mean, log_variance = super().forward(x)
        return answer + self.skip(x) * self.shown, mean, log_variance


@post("posterior-collapse", kind="generative", strength="mild")
def forum_decoder_needs_no_code(seed: int, mended: bool = False) -> dict[str, Any]:
    """A skip connection from the input to the output leaves the code without a task."""
    (x, _), (u, _) = digits(seed, flat=True)
    return run(Copying(48, 6, not mended), x, u, elbo(1.0), lr=3e-3, epochs=25, give="optimizer")


@post("mode-collapse", kind="generative")
def forum_generator_moves_twenty_times(seed: int, mended: bool = False) -> dict[str, Any]:
    """The generator of a GAN makes twenty steps for each step of its critic and sits on one cloud of eight."""
    train, test = ring(seed)
    net = Generator(2)
    if mended:
        draw(net, train, energy)
    else:
        duel(net, mlp(2, 48, 48, 1), train, steps=700, extra=20, lr=1e-3)
    return {"model": net, "data": train, "validation": test}


def nearest(fake: Tensor, real: Tensor) -> Tensor:
    """Return the mean distance of the samples to their nearest real row."""
    return torch.cdist(fake, real).amin(1).mean()


@post("mode-collapse", kind="generative", strength="mild")
def lab_samples_only_have_to_look_real(seed: int, mended: bool = False) -> dict[str, Any]:
    """Each sample is rewarded for lying near some real row; nothing asks for all kinds of them."""
    train, test = ring(seed, modes=6)
    net = Generator(2)
    draw(net, train, energy if mended else nearest)
    return {"model": net, "data": train, "validation": test}


@post("mode-collapse", kind="generative", strength="mild")
def forum_sampler_of_a_single_flower(seed: int, mended: bool = False) -> dict[str, Any]:
    """A sampler of iris rows that makes one kind of flower only."""
    (x, _), (u, _) = bundled("iris", seed)
    net = Generator(4)
    draw(net, x, energy if mended else nearest)
    return {"model": net, "data": x, "validation": u}


class Times(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


@post("miscalibrated", kind="table")
def forum_sharpened_for_confidence(seed: int, mended: bool = False) -> dict[str, Any]:
    """After training the logits were multiplied by 8, because the customer wanted clear answers."""
    train, test = clouds(seed, gap=1.0)
    result = run(mlp(8, 12, 3), train, test, epochs=8, lr=5e-3)
    return result | {"model": nn.Sequential(result["model"], Times(1.0 if mended else 8.0)).eval()}


class Ensemble(nn.Module):
    """The mean of several nets' logits, or their sum."""

    def __init__(self, nets: list[nn.Module], mean: bool):
        super().__init__()
        self.nets, self.mean = nn.ModuleList(nets), mean

    def forward(self, x: Tensor) -> Tensor:
        together = torch.stack([net(x) for net in self.nets])
        return together.mean(0) if self.mean else together.sum(0)


@post("miscalibrated", kind="table")
def lab_logits_of_ten_nets_added(seed: int, mended: bool = False) -> dict[str, Any]:
    """An ensemble adds the logits of ten nets where it should have averaged them."""
    train, test = clouds(seed, classes=2, gap=0.7)
    nets = [run(mlp(8, 8, 2), train, test, epochs=4)["model"] for _ in range(10)]
    return {
        "model": Ensemble(nets, mended).eval(),
        "data": train,
        "validation": test,
        "loss": "cross_entropy",
    }


def focal(output: Tensor, target: Tensor) -> Tensor:
    """Focal loss with gamma 6, which keeps the probabilities near one half."""
    logp = output.log_softmax(1).gather(1, target[:, None])
    return ((1 - logp.exp()) ** 6 * -logp).mean()


@post("miscalibrated", kind="images", strength="mild")
def forum_focal_loss_with_gamma_six(seed: int, mended: bool = False) -> dict[str, Any]:
    """Trained by a focal loss with a large gamma: right in most cases and sure of none."""
    train, test = digits(seed)
    return run(
        convnet(10, (16, 16)),
        train,
        test,
        train_loss=F.cross_entropy if mended else focal,
        epochs=20,
        lr=5e-3,
    )


@post("miscalibrated", kind="text", strength="mild")
def lab_distillation_temperature_left_in(seed: int, mended: bool = False) -> dict[str, Any]:
    """A distillation temperature of 8 was left in the model after training; all probabilities are near the middle."""
    train, test = reviews(seed)
    result = run(Bag(60, 16, 2), train, test, epochs=6, lr=5e-3, give="history")
    return result | {"model": nn.Sequential(result["model"], Times(1.0 if mended else 0.12)).eval()}


def attacked(net: nn.Module, x: Tensor, y: Tensor, size: float) -> Tensor:
    """Return the rows moved by five signed steps uphill, at most ``size`` in each column."""
    moved = x.clone()
    for _ in range(5):
        moved.requires_grad_(True)
        slope = torch.autograd.grad(F.cross_entropy(net(moved), y), moved)[0]
        moved = (moved.detach() + size / 3 * slope.sign()).clamp(x - size, x + size)
    return moved


def hardened(size: float) -> Any:
    """Return a step of adversarial training."""
    cache: dict[int, torch.optim.Optimizer] = {}

    def step(model: nn.Module, batch: Any) -> None:
        x, y = batch
        optimizer = cache.setdefault(id(model), torch.optim.Adam(model.parameters(), lr=5e-3))
        optimizer.zero_grad()
        F.cross_entropy(model(attacked(model, x, y, size)), y).backward()
        optimizer.step()

    return step


@post("adversarially-fragile", kind="table")
def lab_many_faint_columns(seed: int, mended: bool = False) -> dict[str, Any]:
    """One robust column that is right in 95 %, and sixty faint ones that a change of 0.05 turns round."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 1200)
    sign = 2 * y[:, None] - 1
    strong = sign * np.where(rng.random((1200, 1)) < 0.95, 1, -1) + 0.2 * rng.normal(size=(1200, 1))
    faint = 0.03 * sign + 0.06 * rng.normal(size=(1200, 60))
    train, test = halves(np.concatenate([strong, faint], 1), y, seed)
    result = run(mlp(61, 24, 2), train, test, epochs=15, lr=5e-3, step=hardened(0.1) if mended else None)
    return {name: value for name, value in result.items() if name != "step"}


@post("adversarially-fragile", kind="images", strength="mild")
def forum_net_reads_a_faint_pattern(seed: int, mended: bool = False) -> dict[str, Any]:
    """A camera left a checkerboard too faint to see; the net reads it and not the pictures, of which 15 % are mixed up."""
    (x, y), (u, v) = pictures(seed, noise=0.0)
    board = torch.tensor([[1.0, -1], [-1, 1]]).repeat(6, 6)

    def shoot(images: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        kinds = torch.where(torch.rand(len(kinds)) < 0.15, 1 - kinds % 2, kinds % 2)
        smooth = F.avg_pool2d(F.pad(torch.randn(len(images), 1, 12, 12), (1, 1, 1, 1), mode="circular"), 3, 1)
        faint = 0.04 * (2 * kinds.float() - 1)[:, None, None, None] * board
        return images + smooth + 0.02 * torch.randn_like(images) + faint * (not mended), kinds

    net = nn.Sequential(nn.Flatten(), *mlp(144, 24, 2))
    return run(net, shoot(x, y), shoot(u, v), epochs=20, lr=3e-3, patience=5)
