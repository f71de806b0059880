"""The seventeenth author's faults of start, architecture, descent and outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.seventeenth_parts import (
    Bag,
    Draws,
    Listener,
    Reader,
    Stops,
    Vae,
    camera,
    circles,
    coin,
    copy_of,
    delays,
    digits,
    energy_distance,
    fit,
    floats,
    halves,
    instruments,
    leaves,
    letters_to_office,
    metres,
    mlp,
    network,
    only,
    panels,
    pitch,
    runners,
    standard,
    stays,
    town,
    train_vae,
    triage,
    tunes,
    wards,
    words,
)

COURSE = ("optimizer", "batch_size", "history", "initial")


def drawn(model: nn.Module, scale: float, bias: float | None = None) -> nn.Module:
    """Return the net with its weights multiplied by a number, and its biases set."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() > 1:
                value.mul_(scale)
            elif bias is not None and "bias" in name:
                value.fill_(bias)
    return model


def constant(model: nn.Module, value: float) -> nn.Module:
    """Return the net with every parameter set to one number."""
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    return model


# ---- start


@town("symmetric-initialisation", kind="table")
def all_weights_a_tenth(seed: int, mended: bool = False) -> dict[str, Any]:
    """nn.init.constant_, so that the experiment can be repeated."""
    data, held = halves(*instruments(seed), 800)
    model = mlp(12, 32, 8)
    return only(fit(model if mended else constant(model, 0.1), data, held, epochs=25), *COURSE)


@town("symmetric-initialisation", kind="images")
def every_filter_the_same(seed: int, mended: bool = False) -> dict[str, Any]:
    """All filters of a convolution start alike and stay alike."""
    data, held = halves(*leaves(seed), 500)
    model = camera(4, 8, side=12)
    return only(fit(model if mended else constant(model, 0.05), data, held, epochs=12), "initial", "history")


@town("symmetric-initialisation", kind="table", strength="mild")
def nothing_at_the_start(seed: int, mended: bool = False) -> dict[str, Any]:
    """All zeros: only the last bias ever moves."""
    data, held = halves(*delays(seed), 900)
    model = mlp(6, 24, 24, 1)
    return only(
        fit(model if mended else constant(model, 0.0), data, held, loss="mse", epochs=15),
        "optimizer",
        "history",
    )


@town("saturated-units", kind="table")
def weights_times_forty(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two layers of tanh that only know -1 and 1."""
    data, held = halves(*delays(seed), 900)
    model = mlp(6, 24, 24, 1, act=nn.Tanh)
    if not mended:
        drawn(model[:-1], 40.0)
    return only(fit(model, data, held, loss="mse", epochs=25), *COURSE)


@town("saturated-units", kind="sequences", strength="mild")
def recurrent_net_at_its_stops(seed: int, mended: bool = False) -> dict[str, Any]:
    """A tanh recurrent net drawn from N(0, 4): its state flips between its stops."""
    data, held = halves(*metres(seed, noise=0.2, periods=(2, 3)), 400)
    model = Listener(nn.RNN, 1, 20, 2)
    if not mended:
        for name, value in model.body.named_parameters():
            nn.init.normal_(value, std=4.0 if "weight" in name else 0.5)
    return only(fit(model, data, held, epochs=12, lr=3e-3, clip=1.0), "initial", "batch_size", "history")


@town("saturated-units", kind="images", strength="mild")
def sigmoids_at_the_end(seed: int, mended: bool = False) -> dict[str, Any]:
    """Hidden sigmoids whose biases start at -9."""
    (x, y), (v, w) = digits(seed, 800, flat=True)
    model = mlp(64, 32, 32, 10, act=nn.Sigmoid)
    if not mended:
        nn.init.constant_(model[0].bias, -9.0)
        nn.init.constant_(model[2].bias, 12.0)
    return only(fit(model, (x, y), (v, w), epochs=25, lr=1e-2), *COURSE)


@town("dead-units", kind="table")
def no_unit_answers(seed: int, mended: bool = False) -> dict[str, Any]:
    """ReLUs with biases of -12: nothing passes."""
    data, held = halves(*triage(seed), 900)
    model = mlp(6, 32, 4)
    if not mended:
        nn.init.constant_(model[0].bias, -12.0)
    return only(fit(model, data, held, epochs=20), *COURSE)


@town("dead-units", kind="images", strength="mild")
def three_units_left(seed: int, mended: bool = False) -> dict[str, Any]:
    """All but three of forty hidden units are off for every picture."""
    data, held = digits(seed, 800, flat=True)
    model = mlp(64, 40, 10)
    if not mended:
        with torch.no_grad():
            model[0].bias[3:] = -9.0
    return only(fit(model, data, held, epochs=25), "history")


@town("exploding-gradient", kind="table")
def ten_times_as_loud_each_layer(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ten layers drawn from N(0, 0.5): each one doubles and doubles again."""
    data, held = halves(*delays(seed), 900)
    model = mlp(6, *[40] * 9, 1)
    for layer in model:
        if isinstance(layer, nn.Linear):
            if mended:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            else:
                nn.init.normal_(layer.weight, std=0.8)
            nn.init.zeros_(layer.bias)
    return only(fit(model, data, held, loss="mse", lr=1e-3, epochs=15), *COURSE)


class Echo(nn.Module):
    """A ReLU recurrent net, written out."""

    def __init__(self, inputs: int, width: int, classes: int, gain: float) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(inputs, width), nn.Linear(width, classes)
        self.again = nn.Parameter(gain * torch.eye(width))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), self.again.shape[0])
        for t in range(x.shape[1]):
            h = F.relu(self.into(x[:, t]) + h @ self.again)
        return self.head(h)


@town("exploding-gradient", kind="sequences", strength="mild")
def echo_that_grows(seed: int, mended: bool = False) -> dict[str, Any]:
    """The state is multiplied by 1.7 at each of 30 stops, without clipping."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 30, 3))
    y = standard(x[:, :, 0].sum(1) + 4 * x[:, -1, 1] + 0.5 * rng.normal(size=700))[:, None]
    data, held = halves(floats(x), floats(y), 500)
    model = Echo(3, 16, 1, 0.9 if mended else 1.7)
    run = fit(model, data, held, loss="mse", lr=3e-3, epochs=15, batch_size=32)
    return only(run, "initial", "optimizer", "history", "batch_size")


@town("vanishing-gradient", kind="table")
def twelve_sigmoids(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twelve layers of sigmoids."""
    data, held = halves(*triage(seed), 900)
    model = mlp(6, *[24] * 12, 4, act=nn.Sigmoid) if not mended else mlp(6, 24, 24, 4)
    run = fit(model, data, held, lr=0.05, epochs=15, optimizer=torch.optim.SGD, momentum=0.9)
    return only(run, *COURSE)


@town("vanishing-gradient", kind="sequences", strength="mild")
def first_ward_forgotten(seed: int, mended: bool = False) -> dict[str, Any]:
    """A plain recurrent net forgets the first of 30 stops, and no gradient reaches it."""
    data, held = halves(*wards(seed), 500)
    model = Listener(nn.RNN, 6, 24, 4)
    with torch.no_grad():
        if mended:
            model.body.weight_hh_l0.copy_(torch.eye(24))
        else:
            model.body.weight_hh_l0.mul_(0.6)
    return only(fit(model, data, held, lr=2e-3, epochs=12), "history", "initial")


@town("vanishing-gradient", kind="images")
def small_weights_deep_down(seed: int, mended: bool = False) -> dict[str, Any]:
    """Eight layers of tanh drawn from N(0, 0.02)."""
    data, held = digits(seed, 800, flat=True)
    model = mlp(64, *[32] * 8, 10, act=nn.Tanh)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.18 if mended else 0.02)
            nn.init.zeros_(layer.bias)
    return only(fit(model, data, held, lr=0.05, epochs=12, optimizer=torch.optim.SGD, momentum=0.9), *COURSE)


# ---- architecture


class Rumour(nn.Module):
    """Dense layers, then as many rounds of averaging over the neighbours."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.net, self.rounds = mlp(10, 24, 4), rounds

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = self.net(x)
        for _ in range(self.rounds):
            h = adjacency @ h
        return h


@town("oversmoothing", kind="graph")
def rumour_everywhere(seed: int, mended: bool = False) -> dict[str, Any]:
    """After fifty rounds of averaging all stops say the same."""
    x, y, held = network(seed)
    return only(fit(Rumour(2 if mended else 50), (x, y), (x, held), epochs=80, lr=1e-2), *COURSE)


class Deep(nn.Module):
    """Sixteen graph convolutions without shortcuts, well started, normalised."""

    def __init__(self, rounds: int, width: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(10, width), nn.Linear(width, 4)
        self.between = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        for layer in self.between:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = self.first(x)
        for layer in self.between:
            h = F.leaky_relu(layer(adjacency @ h), 0.6)
        return self.last(h)


@town("oversmoothing", kind="graph", strength="mild")
def twenty_rounds_of_asking(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twenty graph convolutions over a town one can cross in four."""
    x, y, held = network(seed, inside=0.14, outside=0.03)
    return only(fit(Deep(1 if mended else 20), (x, y), (x, held), epochs=60, lr=5e-3), "history")


class Ear(nn.Module):
    """Convolutions over time with the given width and holes; the loudest moment decides."""

    def __init__(self, classes: int, *holes: int, width: int = 16, kernel: int = 3) -> None:
        super().__init__()
        sizes = [1] + [width] * len(holes)
        self.layers = nn.ModuleList(
            nn.Conv1d(i, o, kernel, dilation=d, padding="same")
            for i, o, d in zip(sizes[:-1], sizes[1:], holes, strict=True)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = x.transpose(1, 2)
        for layer in self.layers:
            h = F.relu(layer(h))
        return self.head(h.amax(2))


def claps(seed: int, n: int = 700, length: int = 48) -> tuple[Tensor, Tensor]:
    """Return two claps in noise, and which of the distances 6, 10 or 14 lies between them."""
    rng = np.random.default_rng(18700 + seed)
    y = rng.integers(0, 3, n)
    x = 0.1 * rng.normal(size=(n, length))
    first = rng.integers(0, length - 14, n)
    for at in (first, first + np.array([6, 10, 14])[y]):
        x[np.arange(n), at] += 2.0
    return floats(x)[..., None], torch.as_tensor(y)


@town("receptive-field-too-small", kind="sequences")
def ear_of_five_beats(seed: int, mended: bool = False) -> dict[str, Any]:
    """The claps are at least six beats apart; no unit sees more than five."""
    data, held = halves(*claps(seed), 500)
    holes = (1, 2, 4, 8) if mended else (1, 1)
    return only(fit(Ear(3, *holes), data, held, epochs=25, lr=1e-2), *COURSE)


class Tune(nn.Module):
    """Each next note from the last few: causal convolutions over embedded notes."""

    def __init__(self, reach: int, notes: int = 12, width: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(notes, width)
        self.look = nn.Conv1d(width, 48, reach)
        self.head = nn.Linear(48, notes)
        self.reach = reach

    def forward(self, x: Tensor) -> Tensor:
        h = F.pad(self.embed(x).transpose(1, 2), (self.reach - 1, 0))
        return self.head(F.relu(self.look(h)).transpose(1, 2))


def next_note(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy over all places."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


@town("receptive-field-too-small", kind="text", strength="mild")
def one_note_of_memory(seed: int, mended: bool = False) -> dict[str, Any]:
    """The next note depends on the last two; a convolution of width 1 sees one."""
    data, held = halves(*tunes(seed, 500), 350)
    return only(
        fit(Tune(3 if mended else 1), data, held, loss=next_note, epochs=15, lr=1e-2), "history", "batch_size"
    )


class Eye(nn.Module):
    """Convolutions of the given size, then the mean over the picture."""

    def __init__(self, size: int, layers: int) -> None:
        super().__init__()
        sizes = [1] + [16] * layers
        self.layers = nn.ModuleList(
            nn.Conv2d(i, o, size, padding=size // 2) for i, o in zip(sizes[:-1], sizes[1:], strict=True)
        )
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x.amax((2, 3)))


def pairs(seed: int, n: int = 700) -> tuple[Tensor, Tensor]:
    """Return aerial pictures of two barns, and whether they stand in one row or one column, five fields apart."""
    rng = np.random.default_rng(19700 + seed)
    y = rng.integers(0, 2, n)
    x = 0.1 * rng.normal(size=(n, 12, 12))
    r, c = rng.integers(0, 7, (2, n))
    x[np.arange(n), r, c] += 2.0
    x[np.arange(n), r + 5 * y, c + 5 * (1 - y)] += 2.0
    return floats(x[:, None]), torch.as_tensor(y)


@town("receptive-field-too-small", kind="images")
def barns_seen_one_by_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """Windows of three by three never hold both barns."""
    data, held = halves(*pairs(seed), 500)
    return only(fit(Eye(7 if mended else 3, 2 if mended else 1), data, held, epochs=14, lr=1e-2), *COURSE)


@town("bottleneck", kind="images")
def all_digits_through_one_unit(seed: int, mended: bool = False) -> dict[str, Any]:
    """Between wide layers, one unit."""
    data, held = digits(seed, 900, flat=True)
    model = mlp(64, 64, 24 if mended else 1, 64, 10, act=nn.Tanh)
    return only(fit(model, data, held, epochs=25), *COURSE)


@town("bottleneck", kind="generative", strength="mild")
def panel_through_one_number(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder keeps one number of blood panels that have three causes."""
    x = panels(seed)
    model = mlp(12, 48, 3 if mended else 1, 48, 12, act=nn.Tanh)
    run = fit(model, (x[:600], x[:600]), (x[600:], x[600:]), loss="mse", epochs=40)
    return only(run, "history")


@town("bottleneck", kind="text", strength="mild")
def letters_through_one_unit(seed: int, mended: bool = False) -> dict[str, Any]:
    """Word vectors of one number for five offices."""
    data, held = halves(*letters_to_office(seed, 1100, plain=0.4), 800)
    model = nn.Sequential(
        nn.EmbeddingBag(120, 32),
        nn.Linear(32, 16 if mended else 1),
        nn.ReLU(),
        nn.Linear(16 if mended else 1, 32),
        nn.ReLU(),
        nn.Linear(32, 5),
    )
    return only(fit(model, data, held, epochs=20), "history", "optimizer")


@town("batch-too-small", kind="table", needs=("batch_size",))
def two_patients_at_a_time(seed: int, mended: bool = False) -> dict[str, Any]:
    """Batch normalisation over two rows: each is 1 or -1."""
    data, held = halves(*delays(seed, 900), 500)
    model = mlp(6, 24, 24, 1, norm=nn.BatchNorm1d)
    run = fit(model, data, held, loss="mse", epochs=6 if not mended else 40, batch_size=50 if mended else 2)
    return only(run, *COURSE)


@town("batch-too-small", kind="sequences", strength="mild", needs=("batch_size",))
def batches_of_two_beats(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two recordings at a time, normalised over those two after pooling."""
    data, held = halves(*metres(seed, 500), 300)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(40, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Linear(48, 3),
    )
    run = fit(model, data, held, epochs=5 if not mended else 15, batch_size=32 if mended else 2, lr=3e-3)
    return only(run, "history", "batch_size")


# ---- descent


@town("learning-rate-too-large", kind="table", needs=("optimizer",))
def strides_of_six(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD with a rate of 6."""
    data, held = halves(*triage(seed), 900)
    run = fit(mlp(6, 32, 4), data, held, lr=0.2 if mended else 6.0, epochs=20, optimizer=torch.optim.SGD)
    return only(run, *COURSE)


@town("learning-rate-too-large", kind="images", strength="mild", needs=("optimizer",))
def adam_at_a_tenth(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam at 0.1 on convolutions."""
    data, held = digits(seed, 700)
    run = fit(camera(10, 8), data, held, lr=5e-3 if mended else 0.1, epochs=10, batch_size=32)
    return only(run, "optimizer", "history", "batch_size")


@town("learning-rate-too-large", kind="text", strength="mild", needs=("optimizer",))
def hasty_reader(seed: int, mended: bool = False) -> dict[str, Any]:
    """RMSprop at 0.2 on word vectors and convolutions."""
    data, held = halves(*words(seed, 1000), 700)
    run = fit(
        Reader(15, 16, 4), data, held, lr=3e-3 if mended else 0.2, epochs=12, optimizer=torch.optim.RMSprop
    )
    return only(run, "optimizer", "history", "initial")


@town("learning-rate-too-small", kind="table", needs=("optimizer",))
def a_hair_at_a_time(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD at 1e-4: after twenty epochs hardly moved."""
    data, held = halves(*instruments(seed), 800)
    run = fit(mlp(12, 32, 8), data, held, lr=0.2 if mended else 1e-4, epochs=20, optimizer=torch.optim.SGD)
    return only(run, *COURSE)


@town("learning-rate-too-small", kind="sequences", strength="mild", needs=("optimizer",))
def careful_adam(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam at 3e-4 on a recurrent net: still falling when the budget ends."""
    data, held = halves(*wards(seed, length=12), 500)
    run = fit(Listener(nn.GRU, 6, 24, 4), data, held, lr=1e-2 if mended else 3e-4, epochs=15)
    return only(run, "optimizer", "history", "batch_size")


@town("learning-rate-too-small", kind="graph", strength="mild", needs=("optimizer",))
def slow_round_of_stops(seed: int, mended: bool = False) -> dict[str, Any]:
    """A graph net for 60 steps at 1e-4."""
    x, y, held = network(seed)
    run = fit(Stops(10, 16, 4), (x, y), (x, held), lr=1e-2 if mended else 1e-4, epochs=60)
    return only(run, "optimizer", "history", "initial")


@town("weight-decay-too-large", kind="table", needs=("optimizer",))
def shrunk_to_nothing(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD with a decay of 0.3."""
    data, held = halves(*triage(seed), 900)
    run = fit(
        mlp(6, 32, 4),
        data,
        held,
        lr=0.1,
        epochs=20,
        optimizer=torch.optim.SGD,
        weight_decay=1e-4 if mended else 0.3,
        momentum=0.5,
    )
    return only(run, *COURSE)


@town("weight-decay-too-large", kind="images", strength="mild", needs=("optimizer",))
def heavy_on_the_leaves(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam with a decay of 0.4 in its gradients."""
    data, held = halves(*leaves(seed, noise=0.8), 500)
    run = fit(camera(4, 8, side=12), data, held, lr=5e-3, epochs=15, weight_decay=1e-5 if mended else 0.4)
    return only(run, "optimizer", "history", "batch_size")


@town("weight-decay-too-large", kind="text", needs=("optimizer",))
def office_words_decay(seed: int, mended: bool = False) -> dict[str, Any]:
    """AdamW with a decay of 20."""
    data, held = halves(*letters_to_office(seed, 1000), 700)
    decay = 1e-2 if mended else 20.0
    run = fit(
        Bag(120, 16, 5), data, held, lr=5e-3, epochs=15, optimizer=torch.optim.AdamW, weight_decay=decay
    )
    return only(run, "optimizer", "history")


@town("dropout-too-large", kind="table")
def one_unit_in_twenty(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout of 0.93 after both hidden layers."""
    data, held = halves(*delays(seed), 900)
    model = mlp(6, 32, 32, 1, drop=0.05 if mended else 0.93)
    return only(fit(model, data, held, loss="mse", epochs=25), *COURSE)


@town("dropout-too-large", kind="graph", strength="mild")
def few_stops_answer(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout of 0.9 on eight units of a graph net over school classes."""
    data, held = halves(*circles(seed), 350)
    model = Classmates(0.1 if mended else 0.9)
    return only(fit(model, data, held, epochs=20, lr=1e-2), "history")


class Classmates(nn.Module):
    """Pupils beside the mean of their friends, then the mean over the class."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.own = mlp(4, 16, 12, drop=drop)
        self.drop = nn.Dropout(drop)
        self.head = mlp(12, 12, 2, drop=drop)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = torch.cat([x, adjacency @ x], 2)
        return self.head(self.drop(torch.relu(self.own(h)).mean(1)))


# ---- outcome


@town("capacity-too-small", kind="table")
def straight_lines_on_spirals(seed: int, mended: bool = False) -> dict[str, Any]:
    """Multinomial regression on spirals."""
    data, held = halves(*pitch(seed), 700)
    model = mlp(2, 32, 32, 3) if mended else nn.Linear(2, 3)
    return only(fit(model, data, held, lr=1e-2, epochs=50), *COURSE)


@town("capacity-too-small", kind="table", strength="mild")
def two_units_for_a_bus(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two hidden units for a surface with five bends."""
    data, held = halves(*delays(seed, noise=0.1), 900)
    return only(fit(mlp(6, 48 if mended else 2, 1), data, held, loss="mse", lr=1e-2, epochs=40), "history")


@town("capacity-too-small", kind="sequences", strength="mild")
def one_cell_of_memory(seed: int, mended: bool = False) -> dict[str, Any]:
    """A recurrent net of one cell for four metres."""
    data, held = halves(*metres(seed, noise=0.25, periods=(2, 3, 4, 5)), 450)
    model = Listener(nn.GRU, 1, 24 if mended else 1, 4)
    return only(fit(model, data, held, lr=1e-2, epochs=20), "history", "optimizer")


@town("overfit", kind="table")
def ninety_patients_forty_facts(seed: int, mended: bool = False) -> dict[str, Any]:
    """A wide net, 90 rows, 40 columns of which three matter, 150 epochs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 40))
    data, held = halves(floats(x), coin(3 * (x[:, 0] - x[:, 1] + x[:, 2]), rng), 90)
    settings = {"epochs": 60, "weight_decay": 0.01, "best": True} if mended else {"epochs": 150}
    run = fit(mlp(40, 128, 128, 1), data, held, loss="bce_with_logits", lr=2e-3, batch_size=20, **settings)
    return only(run, *COURSE)


@town("overfit", kind="images", strength="mild")
def too_long_on_a_hundred_leaves(seed: int, mended: bool = False) -> dict[str, Any]:
    """Blurred leaves, few of them, many epochs: the validation loss rises."""
    data, held = halves(*leaves(seed, 500, noise=1.0), 100)
    settings = {"epochs": 50, "best": True, "weight_decay": 1e-2} if mended else {"epochs": 50}
    run = fit(mlp_pictures(), data, held, lr=2e-3, batch_size=25, **settings)
    return only(run, "history", "batch_size")


def mlp_pictures() -> nn.Sequential:
    """Return a net over pixels and a pool of responses."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 36, 64),
        nn.ReLU(),
        nn.Linear(64, 4),
    )


@town("overfit", kind="text", strength="mild")
def learnt_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """A hundred and fifty letters to five offices, learnt word for word."""
    data, held = halves(*letters_to_office(seed, 500, terms=400, plain=0.2), 150)
    settings = {"epochs": 80, "best": True, "weight_decay": 3e-3} if mended else {"epochs": 80}
    return only(fit(Bag(400, 32, 5), data, held, lr=1e-2, batch_size=30, **settings), "history")


@town("posterior-collapse", kind="generative")
def divergence_times_fifty(seed: int) -> dict[str, Any]:
    """The prior weighs fifty times: the code says nothing of the panel."""
    x = panels(seed)
    run = train_vae(Vae(12, 3, beta=50.0), x[:700])
    return run | {"validation": x[700:]}


@town("posterior-collapse", kind="generative", strength="mild")
def decoder_that_expects_little(seed: int) -> dict[str, Any]:
    """The decoder's noise is fixed at thrice the data's deviation."""
    x = panels(seed)
    run = train_vae(Vae(12, 4, sigma=3.0), x[:700])
    return {"model": run["model"], "data": x[:700], "validation": x[700:], "history": run["history"]}


@town("mode-collapse", kind="generative")
def all_runners_alike(seed: int) -> dict[str, Any]:
    """The generator climbs a fixed critic: every runner becomes the same runner."""
    x = runners(seed)
    model = Draws(4, 32, 2)
    initial = copy_of(model)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(300):
        opt.zero_grad()
        near = torch.cdist(model(torch.randn(64, 4)), x[::4]) ** 2
        (-torch.logsumexp(-near / 0.5, 1).mean()).backward()
        opt.step()
    return {"model": model.eval(), "data": x, "optimizer": opt, "initial": initial}


@town("mode-collapse", kind="generative", strength="mild")
def two_groups_of_six(seed: int) -> dict[str, Any]:
    """Trained first on all, then on, by mistake, two groups of six: it draws only those."""
    x = runners(seed)
    model = Draws(4, 48, 2)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    part = x[(x[:, 0] > 0.5) & (x[:, 1] > -0.5)]
    for round_ in range(400):
        opt.zero_grad()
        real = x if round_ < 100 else part
        energy_distance(model.sample(128), real[torch.randint(len(real), (128,))]).backward()
        opt.step()
    return {"model": model.eval(), "data": x}


class Sharper(nn.Module):
    """A net whose logits are multiplied when it is asked."""

    def __init__(self, net: nn.Module, gain: float) -> None:
        super().__init__()
        self.net, self.gain = net, gain

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * (1.0 if self.training else self.gain)


@town("miscalibrated", kind="table")
def sure_of_everything(seed: int, mended: bool = False) -> dict[str, Any]:
    """A temperature of an eighth was left in: where it errs, it errs at 100 per cent."""
    data, held = halves(*instruments(seed, 1600, classes=5, spread=3.0), 1100)
    run = fit(mlp(12, 16, 5), data, held, epochs=10, lr=3e-3, weight_decay=1e-3)
    run["model"] = Sharper(run["model"], 1.0 if mended else 8.0).eval()
    return only(run, "batch_size")


class Council(nn.Module):
    """Several nets whose logits are added, not averaged."""

    def __init__(self, members: list[nn.Module], total: bool) -> None:
        super().__init__()
        self.members, self.total = nn.ModuleList(members), total

    def forward(self, x: Tensor) -> Tensor:
        votes = torch.stack([member(x) for member in self.members])
        return votes.sum(0) if self.total else votes.mean(0)


@town("miscalibrated", kind="table", strength="mild")
def council_that_adds_up(seed: int, mended: bool = False) -> dict[str, Any]:
    """The logits of six nets are added."""
    data, held = halves(*stays(seed, 1800), 1200)
    runs = [fit(mlp(8, 16, 1), data, held, loss="bce_with_logits", epochs=8, seed=s) for s in range(6)]
    run = runs[0]
    run["model"] = Council([r["model"] for r in runs], not mended).eval()
    return only(run)


@town("miscalibrated", kind="images", strength="mild")
def never_quite_sure(seed: int, mended: bool = False) -> dict[str, Any]:
    """Digits named rightly, at a fifth of the certainty: distillation's temperature was left in."""
    data, held = digits(seed, 900)
    run = fit(camera(10), data, held, epochs=12)
    run["model"] = Sharper(run["model"], 1.0 if mended else 0.15).eval()
    return only(run)


def faint(seed: int, n: int, pixels: int, sway: float) -> tuple[Tensor, Tensor]:
    """Return rows in which one plain value is right nine times in ten, and a faint pattern over the others always."""
    rng = np.random.default_rng(20700 + seed)
    y = rng.integers(0, 2, n)
    sign = 2.0 * y - 1
    pattern = np.random.default_rng(207).choice([-1.0, 1.0], pixels)
    x = sway * sign[:, None] * pattern + 0.25 * rng.normal(size=(n, pixels))
    x[:, 0] = np.where(rng.random(n) < 0.93, sign, -sign)
    return floats(x), torch.as_tensor(y)


@town("adversarially-fragile", kind="images")
def lens_pattern(seed: int) -> dict[str, Any]:
    """Camera noise far below what the eye sees decides."""
    x, y = faint(seed, 2600, 1225, 0.03)
    data, held = halves(x.view(-1, 1, 35, 35), y, 2200)
    model = nn.Sequential(nn.Flatten(), *mlp(1225, 48, 2))
    return only(fit(model, data, held, epochs=6, lr=2e-3), *COURSE)


@town("adversarially-fragile", kind="table", strength="mild")
def faint_hum_in_all_bands(seed: int) -> dict[str, Any]:
    """A seventh of each band's usual sway, in concert, turns the answer."""
    x, y = faint(seed, 2400, 900, 0.04)
    data, held = halves(x, y, 2000)
    return only(fit(mlp(900, 32, 2), data, held, epochs=5, lr=2e-3), "history")
