"""Two faults at once, by the first author; ``mended=True`` repairs both."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.first_objective import Step, stepped
from zoo.first_parts import (
    GCN,
    Bag,
    Given,
    Recurrent,
    blobs,
    bundled,
    cnn,
    communities,
    digits,
    fit,
    fit_nodes,
    houses,
    mlp,
    series,
    topics,
)

table = {"kind": "table", "author": "first"}
images = {"kind": "images", "author": "first"}
sequences = {"kind": "sequences", "author": "first"}
text = {"kind": "text", "author": "first"}
graph = {"kind": "graph", "author": "first"}


@case("unscaled-inputs", "double-softmax", **table)
def raw_columns_and_two_softmaxes(seed: int, mended: bool = False) -> Given:
    """Wine in its own units into a net that ends in Softmax before cross-entropy: 40 % instead of 97 %."""
    train, validation = bundled("wine", seed, scaled=mended)
    net = mlp(13, 24, 3) if mended else nn.Sequential(*mlp(13, 24, 3), nn.Softmax(1))
    return fit(net, train, validation, epochs=20, batch_size=16)


@case("constant-features", "frozen-parameters", **table)
def a_failed_join_into_a_frozen_body(seed: int, mended: bool = False) -> Given:
    """Six of fourteen columns are constant, and the narrow random body has requires_grad False: 50 % instead of 92 %."""
    train, validation = blobs(seed, features=14, classes=4, apart=3.4)
    net = mlp(14, 8, 8, 4)
    if not mended:
        for part in (train, validation):
            part[0][:, 4:10] = 1.0
        for parameter in net[:-1].parameters():
            parameter.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
    return fit(net, train, validation, optimizer=optimizer, epochs=15)


class _Dropped(nn.Module):
    """A perceptron on pictures whose dropout is on in eval() unless mended."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.one, self.two, self.mended = nn.Linear(64, 48), nn.Linear(48, 10), mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        return self.two(F.dropout(F.relu(self.one(x.flatten(1))), 0.5, self.training or not self.mended))


@case("distribution-shift", "stochastic-evaluation", **images)
def darker_pictures_and_dropout_in_eval(seed: int, mended: bool = False) -> Given:
    """Validation has a grey background of 0.5, and dropout is on at prediction: 40 % instead of 95 %."""
    train, validation = digits(seed)
    if not mended:
        validation = (0.5 + 0.5 * validation[0], validation[1])
    return fit(_Dropped(mended), train, validation, epochs=12)


@case("label-noise", "double-softmax", **images)
def wrong_labels_and_two_softmaxes(seed: int, mended: bool = False) -> Given:
    """A third of the training labels is drawn anew and the net ends in Softmax: 65 % instead of 95 %."""
    train, validation = digits(seed)
    if not mended:
        wrong = torch.rand(len(train[1])) < 0.35
        train = (train[0], torch.where(wrong, torch.randint(10, train[1].shape), train[1]))
    return fit(cnn() if mended else nn.Sequential(*cnn(), nn.Softmax(1)), train, validation, epochs=12)


@case("class-imbalance", "dropout-too-large", **text)
def a_rare_topic_and_nine_tenths_dropped(seed: int, mended: bool = False) -> Given:
    """One of four topics has 3 % of the texts and dropout is 0.9: the others are half right, the rare one never."""
    train, validation = (
        (x[k], y[k])
        for x, y in topics(seed, 1200, share=0.4)
        for k in [(y != 1) | (torch.rand(len(y)) < 0.08)]
    )
    count = torch.bincount(train[1])
    loss = nn.CrossEntropyLoss(len(train[1]) / (4 * count)) if mended else "cross_entropy"
    return fit(Bag(4, 16, dropout=0.1 if mended else 0.9), train, validation, loss=loss, epochs=10)


@case("train-test-overlap", "learning-rate-too-large", **table)
def rows_in_both_sets_and_adam_at_one(seed: int, mended: bool = False) -> Given:
    """Half of the validation rows were trained on, and Adam's rate of 1 leaves a loss of many times the best."""
    train, validation = blobs(seed, 600, 12, 3, apart=2.6)
    net = mlp(12, 24, 24, 3)
    if not mended:
        rows = torch.randperm(len(train[1]))[:180]
        validation = (torch.cat([validation[0], train[0][rows]]), torch.cat([validation[1], train[1][rows]]))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3 if mended else 1.0)
    return fit(net, train, validation, optimizer=optimizer, epochs=12)


@case("unscaled-targets", "duplicate-features", **table)
def dollars_and_columns_that_came_twice(seed: int, mended: bool = False) -> Given:
    """Prices in dollars, and a join that doubled all eight columns: R2 below 0 instead of 0.86."""
    train, validation = houses(seed, dollars=not mended)
    if not mended:
        train, validation = ((torch.cat([x, x], 1), y) for x, y in (train, validation))
    return fit(mlp(8 if mended else 16, 32, 1), train, validation, loss="mse", epochs=20)


class _CutCell(nn.Module):
    """A GRU whose last state is detached unless mended."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.net, self.mended = Recurrent(1, 16), mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the forecast."""
        state = self.net.cell(x)[0][:, -1]
        return self.net.head(state if self.mended else state.detach())


@case("target-leak", "detached-parameters", **sequences)
def the_answer_in_the_window_of_a_cut_net(seed: int, mended: bool = False) -> Given:
    """The window ends in the value to be forecast, and the cell is detached from the loss and stays random."""
    train, validation = series(seed, 450, ahead=6)
    if not mended:
        for x, y in (train, validation):
            x[:, -1, 0] = y
    return fit(_CutCell(mended), train, validation, loss="mse", epochs=12)


@case("oversmoothing", "learning-rate-too-small", **graph)
def twelve_convolutions_and_a_rate_of_nothing(seed: int, mended: bool = False) -> Given:
    """Twelve graph convolutions, Adam at 1e-6: all nodes are alike and nothing moves; two at 1e-2 give 93 %."""
    x, adjacency, y, seen = communities(seed)
    net = GCN(16, *[16] * (1 if mended else 11), 4)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2 if mended else 1e-6)
    return fit_nodes(net, x, adjacency, y, seen, optimizer=optimizer)


@case("unscaled-inputs", "gradients-not-cleared", needs=("step",), **images)
def raw_pixels_and_no_zero_grad(seed: int, mended: bool = False) -> Given:
    """Pixels to 255 and gradients that add up over all batches: chance instead of 93 %."""
    train, validation = digits(seed, top=1.0 if mended else 255.0)
    step = Step(lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.5), F.cross_entropy, mended)
    return stepped(cnn(), step, train, validation, "cross_entropy", 8, 32)


@case("misaligned-labels", "weight-decay-too-large", **table)
def labels_of_the_row_above_and_a_decay_of_one(seed: int, mended: bool = False) -> Given:
    """Labels are shifted by a row, and Adam's decay of 1 would keep the net at the mean even so: chance instead of 97 %."""
    train, validation = bundled("breast_cancer", seed)
    if not mended:
        train, validation = ((x, y.roll(1)) for x, y in (train, validation))
    net = mlp(30, 16, 2)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-4 if mended else 1.0)
    return fit(net, train, validation, optimizer=optimizer, epochs=10)
