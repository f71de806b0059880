"""The fifteenth author's faults of the graph, the loop and the start, and some of larger nets."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.fifteenth_parts import (
    ME,
    Attentive,
    Motifs,
    Recurrent,
    Tiles,
    climate,
    cut,
    dice,
    dna,
    dose,
    expression,
    fields,
    fit,
    floats,
    hand,
    light_curves,
    mlp,
    profiles,
    simulator,
    spectra,
    stepper,
    study,
    whole,
)

# ---------------------------------------------------------------- graph and loop


class CutTiles(Tiles):
    """Convolutions computed without a graph."""

    mended = False

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.mended and torch.is_grad_enabled()):
            x = F.max_pool2d(F.relu(self.first(x)), 2)
            x = F.relu(self.second(x))
        return self.head(x.mean((2, 3)))


@case("detached-parameters", kind="images", author=ME)
def convolutions_under_no_grad(seed: int, mended: bool = False) -> dict[str, Any]:
    """To save memory the features are computed without gradients, though nobody pretrained them."""
    net = CutTiles(width=4)
    net.mended = mended
    return study(net, *cut(*fields(seed)), give="ob", epochs=18)


class CutMotifs(Motifs):
    """The scan's answers are detached."""

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.scan(self.letters(x).transpose(1, 2))).detach()
        return self.head(h.amax(2))


@case("detached-parameters", kind="text", author=ME)
def motif_scan_detached(seed: int, mended: bool = False) -> dict[str, Any]:
    """A detach meant for plotting stayed between the scan and the answer."""
    return study(Motifs() if mended else CutMotifs(), *cut(*dna(seed)), epochs=18)


class CutCovariates(nn.Module):
    """A first layer whose result is copied as data."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.inward, self.net, self.mended = nn.Linear(24, 6), mlp(6, 32, 4), mended

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inward(x))
        return self.net(h if self.mended else h.data)


@case("detached-parameters", kind="table", author=ME, strength="mild")
def pathways_as_data(seed: int, mended: bool = False) -> dict[str, Any]:
    """Six pathways are to be learned from the genes, but are passed on as plain data."""
    return study(CutCovariates(mended), *cut(*expression(seed)), give="h", epochs=20)


@case("frozen-parameters", kind="images", author=ME)
def random_filters_frozen(seed: int, mended: bool = False) -> dict[str, Any]:
    """The line that froze a pretrained body was kept when the body was replaced by a fresh one."""
    net = Tiles(width=4)
    for layer in (net.first, net.second):
        layer.requires_grad_(mended)
    return study(net, *cut(*fields(seed)), give="i", epochs=18)


@case("frozen-parameters", kind="table", author=ME, strength="mild", needs=("optimizer",))
def only_the_last_layer_is_given(seed: int, mended: bool = False) -> dict[str, Any]:
    """The optimiser was made for the last layer alone."""
    net = mlp(24, 12, 4)
    chosen = net.parameters() if mended else net[2].parameters()
    return study(net, *cut(*expression(seed)), give="oi", epochs=20, parameters=chosen)


@case("frozen-parameters", kind="sequences", author=ME)
def recurrent_body_frozen(seed: int, mended: bool = False) -> dict[str, Any]:
    """The recurrent body does not take part in the training, and was never trained."""
    net = Recurrent()
    net.body.requires_grad_(mended)
    return study(net, *cut(*climate(seed)), "mse", epochs=12, lr=5e-3)


def heaping(
    model: nn.Module, data: Any, loss: Any, give: str, mended: bool, **options: Any
) -> dict[str, Any]:
    """Train without ever clearing the gradients (unless mended), and hand over the step."""
    train, validation = data
    run = fit(model, train, validation, loss, clear=mended, **options)
    given = hand(model, train, validation, loss, run, give, options.get("batch", 32))
    given["step"] = stepper(loss, options.get("lr", 3e-3), options.get("kind", "adam"), clear=mended)
    return given


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def clearance_gradients_pile_up(seed: int, mended: bool = False) -> dict[str, Any]:
    """Nobody clears the gradients between the steps."""
    return heaping(mlp(8, 32, 1), cut(*dose(seed)), "mse", "oh", mended, epochs=15, kind="sgd", lr=0.02)


@case("gradients-not-cleared", kind="images", author=ME, needs=("step",))
def tile_gradients_pile_up(seed: int, mended: bool = False) -> dict[str, Any]:
    """The line with zero_grad was lost when the loop was rewritten."""
    return heaping(Tiles(), cut(*fields(seed)), "cross_entropy", "b", mended, epochs=15, kind="sgd", lr=0.2)


@case("gradients-not-cleared", kind="text", author=ME, strength="mild", needs=("step",))
def string_gradients_pile_up(seed: int, mended: bool = False) -> dict[str, Any]:
    """Gradients add up over the whole training, under Adam."""
    return heaping(Motifs(), cut(*dna(seed)), "cross_entropy", "", mended, epochs=12, lr=3e-3)


# ---------------------------------------------------------------- start


def constant(*layers: nn.Module, value: float = 0.1) -> None:
    """Set the weights of layers to one value and their biases to zero."""
    for layer in layers:
        nn.init.constant_(layer.weight, value)
        nn.init.zeros_(layer.bias)


@case("symmetric-initialisation", kind="table", author=ME)
def cells_start_all_alike(seed: int, mended: bool = False) -> dict[str, Any]:
    """All weights begin as a tenth, for reproducibility."""
    net = mlp(24, 32, 4)
    if not mended:
        constant(net[0], net[2])
    return study(net, *cut(*expression(seed)), give="oi", epochs=15)


@case("symmetric-initialisation", kind="images", author=ME)
def filters_start_all_alike(seed: int, mended: bool = False) -> dict[str, Any]:
    """Both convolutions and the answer start from the same constant."""
    net = Tiles()
    if not mended:
        constant(net.first, net.second, net.head, value=0.05)
    return study(net, *cut(*fields(seed)), epochs=18)


@case("symmetric-initialisation", kind="table", author=ME, strength="mild")
def last_hidden_layer_alike(seed: int, mended: bool = False) -> dict[str, Any]:
    """The last hidden layer's units begin alike, so they stay alike; the first layer is well."""
    net = mlp(5, 32, 16, 3)
    if not mended:
        constant(net[2], net[4])
    return study(net, *cut(*simulator(seed, outputs=3)), "mse", give="h", epochs=30)


def inflate(model: nn.Module, factor: float) -> None:
    """Multiply all weight matrices."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)


@case("saturated-units", kind="table", author=ME)
def tangents_at_their_ends(seed: int, mended: bool = False) -> dict[str, Any]:
    """A tanh net started with weights forty times too large."""
    net = mlp(8, 32, 32, 1, act=nn.Tanh)
    if not mended:
        inflate(net[:4], 40)
    return study(net, *cut(*dose(seed)), "mse", give="oi", epochs=18)


@case("saturated-units", kind="sequences", author=ME)
def gates_at_their_ends(seed: int, mended: bool = False) -> dict[str, Any]:
    """The recurrent net's gates start from weights of the wrong scale, and are open or shut."""
    net = Recurrent()
    if not mended:
        inflate(net.body, 30)
    return study(net, *cut(*climate(seed)), "mse", epochs=12, lr=3e-3)


@case("saturated-units", kind="table", author=ME, strength="mild")
def sigmoids_of_the_reactor_saturated(seed: int, mended: bool = False) -> dict[str, Any]:
    """Sigmoid units whose weights were drawn with a standard deviation of eight."""
    net = mlp(5, 48, 1, act=nn.Sigmoid)
    if not mended:
        nn.init.normal_(net[0].weight, std=8.0)
    return study(net, *cut(*simulator(seed)), "mse", give="h", epochs=40, lr=1e-2)


@case("dead-units", kind="table", author=ME)
def spectra_below_threshold(seed: int, mended: bool = False) -> dict[str, Any]:
    """The hidden units' thresholds were set so high that none ever answers."""
    net = mlp(40, 32, 4)
    if not mended:
        nn.init.constant_(net[0].bias, -8.0)
    return study(net, *cut(*spectra(seed)), give="ob", epochs=12)


@case("dead-units", kind="images", author=ME)
def filters_below_threshold(seed: int, mended: bool = False) -> dict[str, Any]:
    """A second convolution with biases of minus six is silent everywhere."""
    net = Tiles()
    if not mended:
        nn.init.constant_(net.second.bias, -6.0)
    return study(net, *cut(*fields(seed)), epochs=12)


@case("dead-units", kind="table", author=ME, strength="mild")
def most_reactor_units_silent(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twenty-nine of thirty-two hidden units never answer; three must do all."""
    net = mlp(5, 32, 1)
    if not mended:
        nn.init.constant_(net[0].bias[:29].data, -9.0)
    return study(net, *cut(*simulator(seed)), "mse", give="h", epochs=40, lr=5e-3)


def tower(
    width: int, depth: int, inward: int, out: int, act: type[nn.Module], std: float | None
) -> nn.Sequential:
    """Return a deep net, its weights drawn with a deviation relative to the root of the width."""
    net = mlp(inward, *[width] * depth, out, act=act)
    for layer in net:
        if isinstance(layer, nn.Linear) and std is not None:
            nn.init.normal_(layer.weight, std=std / layer.in_features**0.5)
            nn.init.zeros_(layer.bias)
    return net


@case("exploding-gradient", kind="table", author=ME)
def deep_surrogate_explodes(seed: int, mended: bool = False) -> dict[str, Any]:
    """A dozen layers, each of which more than doubles what it gets."""
    net = tower(24, 12, 5, 1, nn.ReLU, 1.41 if mended else 3.5)
    return study(net, *cut(*simulator(seed)), "mse", give="ohi", epochs=25, lr=1e-3)


@case("exploding-gradient", kind="sequences", author=ME)
def recurrent_weights_too_strong(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ReLU recurrence that doubles its state at each of twenty months."""
    net = Recurrent(kind=lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k))
    nn.init.orthogonal_(net.body.weight_hh_l0, gain=0.9 if mended else 3.0)
    return study(net, *cut(*climate(seed)), "mse", give="i", epochs=15, lr=2e-3)


@case("exploding-gradient", kind="table", author=ME, strength="mild")
def ten_layers_of_genes(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ten layers drawn with twice the proper deviation, no normalisation."""
    net = tower(32, 10, 24, 4, nn.ReLU, 1.41 if mended else 3.0)
    return study(net, *cut(*expression(seed)), give="hi", epochs=10, lr=1e-3)


@case("vanishing-gradient", kind="table", author=ME)
def nine_sigmoid_layers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Nine layers of sigmoids; next to nothing reaches the first."""
    net = tower(24, 9, 8, 1, nn.ReLU if mended else nn.Sigmoid, None)
    return study(net, *cut(*dose(seed)), "mse", give="ob", epochs=20, lr=2e-3)


@case("vanishing-gradient", kind="table", author=ME, strength="mild")
def twelve_faint_tangents(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twelve tanh layers whose weights shrink the signal to a third each."""
    net = tower(24, 12, 24, 4, nn.Tanh, 1.0 if mended else 0.3)
    return study(net, *cut(*expression(seed)), give="i", epochs=12, lr=1e-3)


class Onset(nn.Module):
    """A plain recurrence over a seismogram; the mended one keeps its state by its start."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.body = nn.RNN(2, 24, batch_first=True, nonlinearity="relu" if keep else "tanh")
        self.head = nn.Linear(24, 3)
        with torch.no_grad():
            self.body.weight_hh_l0.copy_(torch.eye(24) if keep else 0.4 * torch.eye(24))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


@case("vanishing-gradient", kind="sequences", author=ME)
def first_motion_forgotten(seed: int, mended: bool = False) -> dict[str, Any]:
    """The first motion tells the kind of the quake, thirty samples before the net is asked."""
    r = dice(seed, 109)
    y = r.integers(3, size=800)
    x = 0.3 * r.normal(size=(800, 30, 2))
    x[:, :3] += np.array([[1.2, 0], [-1.2, 0.6], [0, -1.2]])[y][:, None]
    return study(Onset(mended), *cut(floats(x), whole(y)), give="h", epochs=12, lr=1e-3)


# ---------------------------------------------------------------- others, of larger nets


class Compress(nn.Module):
    """An autoencoder that answers with a dictionary."""

    def __init__(self, code: int = 4) -> None:
        super().__init__()
        self.inward, self.outward = mlp(16, 32, code, act=nn.Tanh), mlp(code, 32, 16, act=nn.Tanh)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        code = self.inward(x)
        return {"code": code, "again": self.outward(code)}


def again(output: dict[str, Tensor], target: Tensor) -> Tensor:
    """Return the squared error of the reconstruction."""
    return F.mse_loss(output["again"], target)


@case("learning-rate-too-large", kind="generative", author=ME)
def profiles_in_giant_steps(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder of lake profiles trained with Adam at three tenths."""
    train, validation = profiles(seed).split([560, 240])
    return study(Compress(), train, validation, again, give="ob", epochs=25, lr=5e-3 if mended else 0.3)


@case("learning-rate-too-small", kind="sequences", author=ME, strength="mild", needs=("optimizer",))
def attention_at_a_snails_pace(seed: int, mended: bool = False) -> dict[str, Any]:
    """Attention over light curves at a hundred-thousandth."""
    x, y = light_curves(seed)
    data = cut(x.transpose(1, 2), y)
    return study(Attentive(1, 3), *data, give="oh", epochs=12, lr=3e-3 if mended else 3e-5)


@case("unscaled-inputs", kind="generative", author=ME)
def profiles_in_millikelvin(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder of profiles reads and writes thousands of millikelvin."""
    x = profiles(seed)
    train, validation = (x if mended else 3000 * x + 9000).split([560, 240])
    return study(Compress(), train, validation, again, epochs=30, lr=5e-3)


@case("duplicate-features", kind="sequences", author=ME)
def station_merged_with_itself(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two of the channels of a climate record are one station, merged twice."""
    x, y = climate(seed)
    x = x if mended else torch.cat([x, x[:, :, :2]], 2)
    return study(Recurrent(x.shape[2]), *cut(x, y), "mse", give="b", epochs=15, lr=5e-3)
