"""Healthy trainings, by the first author: nothing here should raise an alarm."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.first_objective import Step, stepped
from zoo.first_parts import (
    GCN,
    VAE,
    Bag,
    Given,
    Picked,
    Recurrent,
    Transformer,
    Words,
    blobs,
    bundled,
    cnn,
    communities,
    digits,
    fit,
    fit_nodes,
    halves,
    houses,
    mlp,
    series,
    tensors,
    topics,
    waves,
)

table = {"kind": "table", "author": "first"}
images = {"kind": "images", "author": "first"}
sequences = {"kind": "sequences", "author": "first"}
text = {"kind": "text", "author": "first"}
graph = {"kind": "graph", "author": "first"}
generative = {"kind": "generative", "author": "first"}


@case(**images)
def healthy_pictures_with_batch_normalisation(seed: int) -> Given:
    """A convolutional net with batch normalisation, Adam and batches of 32: about 95 %."""
    return fit(cnn(norm=True), *digits(seed), epochs=8)


@case(**images)
def healthy_flat_digits_with_empty_pixels(seed: int) -> Given:
    """Digits as 64 columns, a few of which are zero in nearly every picture, as pixels are: about 95 %."""
    net = mlp(64, 48, 10)
    return fit(
        net, *digits(seed, 1200, flat=True), optimizer=torch.optim.Adam(net.parameters(), 2e-3), epochs=10
    )


@case(**images)
def healthy_intended_freezing(seed: int) -> Given:
    """A body trained on the digits 0 to 4 and frozen, with a new head for 5 to 9: 93 %, and only the head was to learn."""
    (x, y), (x2, y2) = digits(seed, 1600)
    body = cnn()
    low = y < 5
    fit(body, (x[low], y[low]), epochs=8)
    net = nn.Sequential(*body[:-1], nn.Linear(64, 5))
    for parameter in net[:-1].parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam(net[-1].parameters(), 1e-2)
    train, validation = ((a[b >= 5], b[b >= 5] - 5) for a, b in ((x, y), (x2, y2)))
    return fit(net, train, validation, optimizer=optimizer, epochs=10)


@case(**images)
def healthy_net_before_training(seed: int) -> Given:
    """A well-initialised net that nobody has trained yet."""
    train, validation = digits(seed)
    net = cnn().eval()
    return {"model": net, "data": train, "validation": validation, "loss": "cross_entropy", "batch_size": 32}


@case(**table)
def healthy_cancer_table(seed: int) -> Given:
    """Standardised columns, dropout of 0.1, a few epochs: 97 %."""
    net = mlp(30, 16, 2, dropout=0.1)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3, weight_decay=1e-3)
    return fit(net, *bundled("breast_cancer", seed), optimizer=optimizer, epochs=8)


@case(**table)
def healthy_linear_model_of_a_linear_matter(seed: int) -> Given:
    """Logistic regression where the classes are two Gaussians: as good as can be."""
    net = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    return fit(net, *blobs(seed, 800, 10, 2, apart=1.4), optimizer=optimizer, epochs=12)


@case(**table)
def healthy_rows_that_repeat_by_nature(seed: int) -> Given:
    """Five answers of a questionnaire, three values each: few distinct rows, so training and validation share many."""
    rng = np.random.default_rng(seed)
    answer = rng.integers(3, size=(700, 5))
    chance = 1 / (1 + np.exp(-1.6 * (answer[:, 0] - answer[:, 1] + (answer[:, 2] == 1) - 0.3)))
    y = (rng.random(700) < chance).astype(int)
    train, validation = halves(*tensors(answer - 1.0, y), seed)
    return fit(mlp(5, 12, 2), train, validation, epochs=10)


@case(**table)
def healthy_overlapping_classes(seed: int) -> Given:
    """Two classes whose Gaussians overlap: 75 % is what Bayes' rule reaches, and the net reaches it."""
    net = mlp(4, 8, 2)
    return fit(net, *blobs(seed, 1500, 4, 2, apart=0.7), epochs=8, batch_size=64)


@case(**table)
def healthy_heavy_tails(seed: int) -> Given:
    """Inputs with Student's t of three degrees and a target with rare large errors, fitted by Huber's loss."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, size=(900, 6)) / np.sqrt(3)
    y = (
        np.tanh(x[:, 0])
        + 0.7 * x[:, 1].clip(-2, 2)
        - 0.5 * np.abs(x[:, 2]).clip(0, 2)
        + 0.2 * rng.standard_t(3, 900)
    )
    train, validation = halves(*tensors(x, (y - y.mean()) / y.std()), seed)
    train, validation = ((a, b[:, None]) for a, b in (train, validation))
    return fit(mlp(6, 24, 1), train, validation, loss=nn.HuberLoss(), epochs=15)


@case(**table)
def healthy_fast_sgd(seed: int) -> Given:
    """SGD with momentum at a brisk but stable rate, with the usual small waves of the loss: 96 %."""
    net = mlp(13, 24, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-3)
    return fit(net, *bundled("wine", seed), optimizer=optimizer, epochs=10, batch_size=32)


@case(**table)
def healthy_imbalance_with_weights(seed: int) -> Given:
    """One in twelve is positive and the loss is weighted: recall of both classes near 0.9."""
    train, validation = blobs(seed, 2000, 8, 2, apart=1.4)
    train, validation = (
        (x[k], y[k]) for x, y in (train, validation) for k in [(y == 0) | (torch.rand(len(y)) < 0.09)]
    )
    count = torch.bincount(train[1])
    loss = nn.CrossEntropyLoss(len(train[1]) / (2 * count))
    net = mlp(8, 8, 2)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3)
    return fit(net, train, validation, loss=loss, optimizer=optimizer, epochs=10, batch_size=64)


class _InDollars(nn.Module):
    """A net that knows the mean and deviation of its target and answers in dollars."""

    def __init__(self, net: nn.Module, y: Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", y.mean())
        self.register_buffer("deviation", y.std())

    def forward(self, x: Tensor) -> Tensor:
        """Return prices."""
        return self.mean + self.deviation * self.net(x)


@case(**table)
def healthy_prices_scaled_inside(seed: int) -> Given:
    """Prices of hundreds of thousands, unscaled by the last line of forward: R2 0.9; the loss is divided likewise."""
    train, validation = houses(seed, dollars=True)
    net = _InDollars(mlp(8, 32, 1), train[1])
    unit = train[1].var().item()
    given = fit(net, train, validation, loss=lambda o, t: F.mse_loss(o[:, 0], t) / unit, epochs=20)
    return given


@case(**table)
def healthy_regression_in_numpy(seed: int) -> Given:
    """Scaled columns and prices in NumPy arrays, R2 0.9."""
    return fit(mlp(8, 32, 1), *houses(seed), loss="mse", epochs=18, numpy=True)


@case(**table)
def healthy_noise_of_half_the_variance(seed: int) -> Given:
    """Half of the target's variance is noise: R2 0.5 is the ceiling, and a small net is there."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1200, 6))
    y = x[:, 0] + 0.8 * np.abs(x[:, 1]) - 0.5 * x[:, 2] + 1.2 * rng.normal(size=1200)
    net = mlp(6, 12, 1)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, weight_decay=1e-3)
    train, validation = halves(*tensors(x, (y - y.mean()) / y.std()), seed)
    return fit(net, train, validation, loss="mse", optimizer=optimizer, epochs=10)


@case(**table)
def healthy_few_rows(seed: int) -> Given:
    """Iris: a hundred rows, four columns, a small net with decay: 96 % on the fifty others."""
    train, validation = bundled("iris", seed, share=0.67)
    net = mlp(4, 8, 3)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=1e-3)
    return fit(net, train, validation, optimizer=optimizer, epochs=25, batch_size=16)


@case(**table)
def healthy_stopped_early(seed: int) -> Given:
    """A large net on 200 rows, stopped at its lowest held-out loss, whose weights were taken back."""
    train, validation = blobs(seed, 500, 10, 2, apart=1.3)
    train = (train[0][:200], train[1][:200])
    net = mlp(10, 64, 2)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    initial, best, history, state = copy.deepcopy(net.state_dict()), float("inf"), [], {}
    for _ in range(30):
        past = fit(net, train, validation, optimizer=optimizer, epochs=1)["history"]
        history += past
        if past[0]["val_loss"] < best:
            best, state = past[0]["val_loss"], copy.deepcopy(net.state_dict())
        elif min(h["val_loss"] for h in history[-4:]) > best:
            break
    net.load_state_dict(state)
    return {
        "model": net.eval(),
        "data": train,
        "validation": validation,
        "loss": "cross_entropy",
        "optimizer": optimizer,
        "batch_size": 32,
        "history": history,
        "initial": initial,
    }


@case(**table)
def healthy_several_labels_at_once(seed: int) -> Given:
    """Four yes-or-no labels by bce_with_logits on one output each: 90 % of each right."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(700, 8))
    y = (x @ rng.normal(size=(8, 4)) + 0.5 * rng.normal(size=(700, 4)) > 0).astype(float)
    return fit(mlp(8, 24, 4), *halves(*tensors(x, y), seed), loss="bce_with_logits", epochs=15)


class _EveryFourth(Step):
    """Gradients of four batches added up on purpose, each divided by four, then cleared."""

    count = 0

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
        """Add a batch's gradient, and update at every fourth."""
        if model is not self.model:
            self.model, self.optimizer, self.count = model, self.make(model), 0
        value = self.loss(model(batch[0]), batch[1])
        (value / 4).backward()
        self.count += 1
        if self.count % 4 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return value.item()


@case(**images)
def healthy_gradients_added_up_on_purpose(seed: int) -> Given:
    """Four batches of eight to an update, as memory demands, and cleared after it: 93 %."""
    step = _EveryFourth(lambda m: torch.optim.Adam(m.parameters(), 5e-3), F.cross_entropy, True)
    return stepped(cnn(), step, *digits(seed, 700), "cross_entropy", 8, 8)


@case(**images)
def healthy_own_step(seed: int) -> Given:
    """The user's own update, with its zero_grad: 95 %."""
    step = Step(lambda m: torch.optim.Adam(m.parameters(), 3e-3), F.cross_entropy, True)
    return stepped(cnn(), step, *digits(seed), "cross_entropy", 8, 32)


@case(**sequences)
def healthy_gru_for_waves(seed: int) -> Given:
    """A GRU with clipped gradients that tells waves apart: 90 %."""
    net = Recurrent(3, 16)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    return fit(net, *waves(seed, 450, 24, noise=0.2), optimizer=optimizer, epochs=12, clip=1.0)


@case(**sequences)
def healthy_forecast(seed: int) -> Given:
    """An LSTM that forecasts the next value of two seasons, R2 0.9; neighbouring windows overlap, as windows do."""
    net = Recurrent(1, 16, nn.LSTM)
    return fit(net, *series(seed), loss="mse", optimizer=torch.optim.Adam(net.parameters(), 1e-2), epochs=16)


@case(**text)
def healthy_transformer(seed: int) -> Given:
    """A small transformer with dropout of 0.1 on topics: about 90 %."""
    train, validation = topics(seed, 800, share=0.5)
    return fit(Transformer(4, dropout=0.1), train, validation, epochs=6)


@case(**text)
def healthy_words_with_a_gru(seed: int) -> Given:
    """An embedding and a GRU on plain topics, stopped in time: 90 %."""
    return fit(Words(4, 16), *topics(seed, 900, share=0.6), epochs=6, without=("history", "initial"))


@case(**text)
def healthy_bag_of_words(seed: int) -> Given:
    """The mean of word vectors with decay: 90 %, nothing else handed over but data and loss."""
    net = Bag(4, 16)
    optimizer = torch.optim.AdamW(net.parameters(), 5e-3, weight_decay=0.05)
    given = fit(net, *topics(seed, 900, share=0.45), optimizer=optimizer, epochs=8)
    return {key: given[key] for key in ("model", "data", "validation", "loss")}


@case(**graph)
def healthy_two_graph_convolutions(seed: int) -> Given:
    """Two convolutions on a block model; training and validation are labels of one graph: 90 %."""
    x, adjacency, y, seen = communities(seed, 200, signal=1.0)
    net = GCN(16, 16, 4)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=5e-3)
    return fit_nodes(net, x, adjacency, y, seen, optimizer=optimizer, epochs=50)


@case(**graph)
def healthy_nodes_by_index(seed: int) -> Given:
    """The same, asked by the index of nodes, features and adjacency passed whole."""
    x, adjacency, y, seen = communities(seed, 200, signal=1.0)
    index = torch.arange(len(y))
    data, validation = (((index[m], x, adjacency), y[m]) for m in (seen, ~seen))
    net = Picked(GCN(16, 16, 4))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2, weight_decay=5e-3)
    return fit(net, data, validation, optimizer=optimizer, epochs=40, batch_size=64)


class _Bound:
    """The negative evidence bound with Gaussian pixels."""

    def __call__(self, output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        """Return the loss."""
        picture, mean, log_variance = output
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
        return (10 * ((picture - x) ** 2).sum(1) + kl).mean()


@case(**generative)
def healthy_variational_autoencoder(seed: int) -> Given:
    """A VAE of digits whose code is used: all of its numbers carry information."""
    (x, _), (held, _) = digits(seed, 1200, flat=True)
    given = fit(VAE(latent=4), (x, x), (held, held), loss=_Bound(), epochs=20)
    return given | {"data": x, "validation": held}
