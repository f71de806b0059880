"""The eighth author's faults of objective, graph, loop, start and architecture, as students bring them to the exercise class."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eighth_parts import (
    After,
    Convolved,
    DeepSet,
    Net,
    Recurrent,
    Signal,
    adam,
    blobs,
    cancer,
    citations,
    cnn,
    diabetes,
    digits,
    fit,
    forecast,
    friedman,
    letters,
    mlp,
    molecules,
    reviews,
    sets,
    sgd,
    split,
    waves,
)

case = partial(case, author="eighth")
Built = dict[str, Any]

# objective


@case("double-softmax", kind="images")
def course_softmax_then_cross_entropy(seed: int, mended: bool = False) -> Built:
    """A softmax layer at the end of a CNN that is trained with cross entropy."""
    train, test = digits(seed)
    model = cnn()
    if not mended:
        model.append(nn.Softmax(dim=1))
    return fit(model, train, test, epochs=8, optimizer=sgd(0.05, 0.9))


@case("double-softmax", kind="text")
def course_probabilities_from_a_gru(seed: int, mended: bool = False) -> Built:
    """F.softmax at the end of forward, nn.CrossEntropyLoss in the loop."""
    train, test = letters(seed)
    model: nn.Module = Recurrent(inputs=12, hidden=32, outputs=27, words=27)
    if not mended:
        model = After(model, lambda o: F.softmax(o, dim=-1))
    loss = nn.CrossEntropyLoss()
    return fit(model, train, test, loss=loss, optimizer=adam(5e-3), epochs=6, batch=64, give="vob")


@case("double-softmax", kind="table", strength="mild")
def course_sigmoid_twice(seed: int, mended: bool = False) -> Built:
    """nn.Sigmoid and BCEWithLogitsLoss together."""
    train, test = cancer(seed)
    model = mlp(30, 16, 1, last=None if mended else nn.Sigmoid())
    return fit(model, train, test, loss="bce_with_logits", epochs=15, give="vhb")


@case("wrong-loss", kind="images")
def course_squared_error_of_class_ids(seed: int, mended: bool = False) -> Built:
    """One output, and the squared distance to the digit's number."""
    train, test = digits(seed)
    if mended:
        return fit(cnn(), train, test, epochs=10)
    return fit(cnn(1), train, test, loss=lambda o, y: F.mse_loss(o.squeeze(1), y.float()), epochs=10)


@case("wrong-loss", kind="sequences")
def course_nll_of_raw_scores(seed: int, mended: bool = False) -> Built:
    """nn.NLLLoss without a log-softmax: the loss goes to minus infinity."""
    train, test = waves(seed)
    model: nn.Module = Signal((7, 7), 16, 3, pool="mean")
    if mended:
        model = After(model, lambda o: o.log_softmax(1))
    return fit(model, train, test, loss="nll", epochs=20)


@case("wrong-loss", kind="table")
def course_targets_broadcast(seed: int, mended: bool = False) -> Built:
    """(n, 1) minus (n,) is (n, n): every prediction is pulled to every target."""
    train, test = diabetes(seed)
    return fit(
        mlp(10, 24, 1),
        train,
        test,
        loss=lambda o, y: ((o - (y[:, None] if mended else y)) ** 2).mean(),
        epochs=20,
        give="vohb",
    )


@case("wrong-loss", kind="text", strength="mild")
def course_nll_of_probabilities(seed: int, mended: bool = False) -> Built:
    """Softmax instead of log-softmax before nn.NLLLoss."""
    train, test = letters(seed)
    model = After(
        Recurrent(inputs=12, hidden=32, outputs=27, words=27),
        (lambda o: o.log_softmax(1)) if mended else (lambda o: o.softmax(1)),
    )
    return fit(model, train, test, loss="nll", optimizer=adam(5e-3), epochs=6, batch=64, give="vob")


@case("wrong-loss", kind="sets", strength="mild")
def course_softmax_over_the_batch(seed: int, mended: bool = False) -> Built:
    """A hand-written cross entropy whose softmax runs over the rows of the batch."""
    train, test = sets(seed)

    def loss(o: Tensor, y: Tensor) -> Tensor:
        p = torch.softmax(o, dim=1 if mended else 0)
        return -torch.log(p.gather(1, y[:, None]) + 1e-9).mean()

    return fit(DeepSet(), train, test, loss=loss, epochs=20, batch=16)


@case("output-range", kind="table")
def course_tanh_for_thousands(seed: int, mended: bool = False) -> Built:
    """A tanh at the end, targets between 2 and 8 (thousands)."""
    (x, y), (u, v) = friedman(seed)
    model = mlp(8, 32, 1, last=None if mended else nn.Tanh())
    return fit(model, (x, 1.2 * y + 5), (u, 1.2 * v + 5), loss="mse", epochs=40, optimizer=adam(1e-2))


@case("output-range", kind="sequences", strength="mild")
def course_relu_for_signed_targets(seed: int, mended: bool = False) -> Built:
    """A ReLU at the end of a forecaster whose targets are of both signs."""
    train, test = forecast(seed)
    model: nn.Module = Recurrent(hidden=16, outputs=1)
    if not mended:
        model = After(model, F.relu)
    return fit(model, train, test, loss="mse", epochs=25, batch=64, optimizer=adam(1e-2), give="vob")


@case("output-range", kind="generative")
def course_sigmoid_decoder_for_standardised_rows(seed: int, mended: bool = False) -> Built:
    """An autoencoder of standardised measurements with a sigmoid at the end."""
    (x, _), (u, _) = cancer(seed)
    model = mlp(30, 24, 12, 24, 30, last=None if mended else nn.Sigmoid())
    return fit(model, (x, x), (u, u), loss="mse", epochs=30, give="vhb")


@case("stochastic-evaluation", kind="table")
def course_functional_dropout(seed: int, mended: bool = False) -> Built:
    """F.dropout without training=self.training."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(64, 48), nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x).relu()
            return self.b(F.dropout(h, 0.5, training=self.training) if mended else F.dropout(h, 0.5))

    train, test = digits(seed, flat=True)
    return fit(Model(), train, test, epochs=12)


@case("stochastic-evaluation", kind="sequences", strength="mild")
def course_left_in_training_mode(seed: int, mended: bool = False) -> Built:
    """model.eval() was never called; dropout 0.5 is drawn at every prediction."""
    train, test = waves(seed, noise=0.5)
    built = fit(
        Recurrent(hidden=10, drop=0.5), train, test, epochs=20, batch=64, optimizer=adam(1e-2), give="vob"
    )
    if not mended:
        built["model"].train()
    return built


@case("stochastic-evaluation", kind="sets", strength="mild")
def course_jitter_for_ever(seed: int, mended: bool = False) -> Built:
    """Augmentation inside forward: points are jittered when predicting too."""

    class Jittered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = DeepSet()

        def forward(self, x: Tensor) -> Tensor:
            if self.training or not mended:
                x = x + 0.3 * torch.randn_like(x)
            return self.net(x)

    train, test = sets(seed)
    return fit(Jittered(), train, test, epochs=20, give="v")


# graph and loop


@case("detached-parameters", kind="images")
def course_detach_before_the_head(seed: int, mended: bool = False) -> Built:
    """.detach() left in from looking at the features."""
    train, test = digits(seed)
    encoder = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten()
    )
    return fit(
        Net(encoder, nn.Linear(8, 10), None if mended else (lambda h: h.detach())), train, test, epochs=12
    )


@case("detached-parameters", kind="sequences")
def course_tensor_of_a_tensor(seed: int, mended: bool = False) -> Built:
    """torch.tensor(h) in the middle of forward, 'to be sure that it is a tensor'."""
    train, test = waves(seed)

    def again(h: Tensor) -> Tensor:
        return torch.tensor(h.tolist())

    model = Recurrent(hidden=16, between=None if mended else again)
    return fit(model, train, test, epochs=15, batch=64, optimizer=adam(1e-2), give="vo")


@case("detached-parameters", kind="graph")
def course_message_through_data(seed: int, mended: bool = False) -> Built:
    """Messages are computed from .data of the hidden state: the first layer never learns."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 16), nn.Linear(16, 2)

        def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
            h = self.a(x).relu()
            h = self.b(adjacency @ (h if mended else h.data)).relu()
            return self.c((h * x[..., :1]).mean(1))

    train, test = molecules(seed)
    return fit(Model(), train, test, epochs=25, give="vib")


@case("detached-parameters", kind="table", strength="mild")
def course_argmax_gate(seed: int, mended: bool = False) -> Built:
    """Experts chosen by a hard argmax: nothing flows into the gate."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = mlp(8, 16, 4)
            self.experts = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            g = self.gate(x)
            w = g.softmax(1) if mended else F.one_hot(g.argmax(1), 4).float()
            return (w * self.experts(x)).sum(1)

    train, test = friedman(seed)
    return fit(Experts(), train, test, loss="mse", epochs=40, optimizer=adam(1e-2), give="voib")


@case("frozen-parameters", kind="images")
def course_frozen_random_encoder(seed: int, mended: bool = False) -> Built:
    """The encoder was frozen as in the transfer tutorial, but its weights were never loaded."""
    train, test = digits(seed)
    encoder = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Flatten()
    )
    encoder.requires_grad_(mended)
    return fit(Net(encoder, nn.Linear(6, 10)), train, test, epochs=12)


@case("frozen-parameters", kind="text", needs=("optimizer",))
def course_layer_replaced_after_the_optimizer(seed: int, mended: bool = False) -> Built:
    """The optimiser was made for the old embedding and recurrent layer; then they were replaced."""
    train, test = reviews(seed)
    model = Recurrent(inputs=12, hidden=16, outputs=2, words=60)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.embed = nn.Embedding(60, 12)
    model.rnn = nn.GRU(12, 16, batch_first=True)
    if mended:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return fit(model, train, test, optimizer=optimizer, epochs=20, batch=64)


@case("frozen-parameters", kind="table", strength="mild")
def course_hidden_layer_left_frozen(seed: int, mended: bool = False) -> Built:
    """Of three layers the first, with four units, was frozen for an experiment and never released."""
    train, test = friedman(seed)
    model = mlp(8, 4, 32, 1)
    model[0].requires_grad_(mended)
    return fit(model, train, test, loss="mse", epochs=40, give="vhb")


def loop(
    model: nn.Module, data: Any, test: Any, step: Any, *, epochs: int, batch: int, loss: Any, give: str = "v"
) -> Built:
    """Train by the user's own step."""
    x, y = data
    history = []
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(len(y)).split(batch):
            step(model, (x[rows], y[rows]))
        model.eval()
        with torch.no_grad():
            value = F.cross_entropy(model(x), y) if y.dtype == torch.int64 else F.mse_loss(model(x)[:, 0], y)
            history.append({"loss": value.item()})
    built: Built = {"model": model.eval(), "data": data, "validation": test, "loss": loss, "step": step}
    if "b" in give:
        built["batch_size"] = batch
    if "h" in give:
        built["history"] = history
    return built


def stepper(make: Any, measure: Any, clear: bool) -> Any:
    """Return a step that makes one optimiser per model and clears its gradients or not."""
    made: dict[int, Any] = {}

    def step(model: nn.Module, batch: Any) -> None:
        if id(model) not in made:
            made[id(model)] = (model, make(model.parameters()))
        optimizer = made[id(model)][1]
        x, y = batch
        if clear:
            optimizer.zero_grad()
        measure(model(x), y).backward()
        optimizer.step()

    return step


@case("gradients-not-cleared", kind="images", needs=("step",))
def course_no_zero_grad(seed: int, mended: bool = False) -> Built:
    """zero_grad forgotten with SGD."""
    train, test = digits(seed)
    step = stepper(sgd(0.1), F.cross_entropy, mended)
    return loop(cnn(), train, test, step, epochs=6, batch=32, loss="cross_entropy", give="vbh")


@case("gradients-not-cleared", kind="table", strength="mild", needs=("step",))
def course_no_zero_grad_adam(seed: int, mended: bool = False) -> Built:
    """zero_grad forgotten with Adam: it circles around the minimum."""
    train, test = diabetes(seed)
    step = stepper(adam(1e-2), lambda o, y: F.mse_loss(o[:, 0], y), mended)
    return loop(mlp(10, 16, 1), train, test, step, epochs=10, batch=32, loss="mse", give="vb")


@case("gradients-not-cleared", kind="sequences", needs=("step",))
def course_zero_grad_commented_out(seed: int, mended: bool = False) -> Built:
    """A GRU whose loop lost zero_grad when the scaler was taken out."""
    train, test = waves(seed)
    step = stepper(sgd(0.1, 0.5), F.cross_entropy, mended)
    return loop(
        Signal((7, 7), 16, 3, pool="mean"), train, test, step, epochs=15, batch=32, loss="cross_entropy"
    )


# start


def constant(module: nn.Module, value: float) -> None:
    """Fill all weights with one number and the biases with zero."""
    for p in module.parameters():
        nn.init.constant_(p, value if p.dim() > 1 else 0.0)


@case("symmetric-initialisation", kind="table")
def course_all_zeros(seed: int, mended: bool = False) -> Built:
    """All weights zero, as one may start a logistic regression."""
    train, test = blobs(seed)
    model = mlp(12, 32, 32, 4)
    if not mended:
        constant(model, 0.0)
    return fit(model, train, test, epochs=15)


@case("symmetric-initialisation", kind="images")
def course_constant_convolutions(seed: int, mended: bool = False) -> Built:
    """nn.init.constant_ of 0.05 everywhere."""
    train, test = digits(seed)
    model = cnn()
    if not mended:
        constant(model, 0.05)
    return fit(model, train, test, epochs=10, give="vib")


@case("symmetric-initialisation", kind="sets", strength="mild")
def course_constant_point_network(seed: int, mended: bool = False) -> Built:
    """Only the network per point was started with ones divided by the width: all its features are one feature."""
    train, test = sets(seed)
    model = DeepSet()
    if not mended:
        constant(model.point, 1 / 32)
    return fit(model, train, test, epochs=20, give="voh")


@case("saturated-units", kind="table")
def course_tanh_with_normal_weights(seed: int, mended: bool = False) -> Built:
    """torch.randn for the weights of a tanh network with 64 inputs."""
    train, test = digits(seed, flat=True)
    model = mlp(64, 48, 48, 10, act=nn.Tanh)
    if not mended:
        for layer in model[:3]:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, 0, 3.0)
    return fit(model, train, test, epochs=12, optimizer=sgd(0.05))


@case("saturated-units", kind="sequences", strength="mild")
def course_sigmoids_pushed_to_one(seed: int, mended: bool = False) -> Built:
    """A sigmoid layer whose biases start at 9."""
    train, test = forecast(seed)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(24, 32), nn.Sigmoid())
    if not mended:
        nn.init.constant_(encoder[1].bias, 9.0)
    return fit(
        Net(encoder, nn.Linear(32, 1)), train, test, loss="mse", epochs=40, optimizer=sgd(0.01), give="vib"
    )


@case("saturated-units", kind="text", strength="mild")
def course_embeddings_times_thirty(seed: int, mended: bool = False) -> Built:
    """Embeddings scaled by sqrt(d_model) twice and more: the recurrent tanh and gates sit at their ends."""
    train, test = reviews(seed)
    model = Recurrent("RNN", inputs=16, hidden=24, outputs=2, words=60)
    if not mended:
        with torch.no_grad():
            model.embed.weight.mul_(30)
    return fit(model, train, test, epochs=15, batch=64, give="vohb")


@case("dead-units", kind="table")
def course_biases_of_minus_ten(seed: int, mended: bool = False) -> Built:
    """Biases of -10 in the first layer: no ReLU ever fires."""
    train, test = blobs(seed)
    model = mlp(12, 32, 32, 4)
    if not mended:
        nn.init.constant_(model[0].bias, -10.0)
    return fit(model, train, test, epochs=15)


@case("dead-units", kind="images", strength="mild")
def course_most_filters_dead(seed: int, mended: bool = False) -> Built:
    """Seven of eight first filters have a bias that keeps them silent."""
    train, test = digits(seed)
    model = cnn()
    if not mended:
        with torch.no_grad():
            model[0].bias[1:] = -6.0
    return fit(model, train, test, epochs=10, give="vib")


@case("dead-units", kind="sets")
def course_negative_weights(seed: int, mended: bool = False) -> Built:
    """The head's first layer got weights from -|N|: after a ReLU nothing positive is left."""
    train, test = sets(seed)
    model = DeepSet()
    if not mended:
        model.point.append(nn.ReLU())
        with torch.no_grad():
            model.head[0].weight.copy_(-model.head[0].weight.abs())
            model.head[0].bias.fill_(-0.1)
    return fit(model, train, test, epochs=20, give="vo")


@case("exploding-gradient", kind="table", needs=("initial",))
def course_deep_net_with_large_weights(seed: int, mended: bool = False) -> Built:
    """Ten ReLU layers started with a standard deviation of 0.5."""
    train, test = friedman(seed)
    model = mlp(8, *[48] * 10, 1)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0, math.sqrt(2 / layer.in_features) if mended else 0.5)
            nn.init.zeros_(layer.bias)
    return fit(model, train, test, loss="mse", epochs=15, optimizer=adam(1e-3))


@case("exploding-gradient", kind="sequences", strength="mild")
def course_identity_rnn_too_large(seed: int, mended: bool = False) -> Built:
    """A ReLU RNN whose recurrent matrix starts at 1.25 times the identity, over forty steps, without clipping."""

    class Identity(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(1, 24, nonlinearity="relu", batch_first=True)
            self.head = nn.Linear(24, 3)
            with torch.no_grad():
                self.rnn.weight_hh_l0.copy_(torch.eye(24) * (0.9 if mended else 1.25))

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    train, test = waves(seed)
    return fit(Identity(), train, test, epochs=12, batch=64, optimizer=adam(2e-3), give="vib")


@case("exploding-gradient", kind="images", needs=("initial",))
def course_residual_sum_without_norm(seed: int, mended: bool = False) -> Built:
    """Twelve residual blocks whose branches start three times too large and no normalisation."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Linear(64, 32)
            self.blocks = nn.ModuleList(mlp(32, 32, 32) for _ in range(12))
            self.head = nn.Linear(32, 10)
            for block in self.blocks:
                nn.init.normal_(block[0].weight, 0, 0.25)
                nn.init.normal_(block[2].weight, 0, 0.03 if mended else 0.18)

        def forward(self, x: Tensor) -> Tensor:
            h = self.start(x)
            for block in self.blocks:
                h = h + block(h)
            return self.head(h)

    train, test = digits(seed, flat=True)
    return fit(Residual(), train, test, epochs=12, optimizer=sgd(0.02), give="voib")


@case("vanishing-gradient", kind="table")
def course_fifteen_sigmoids(seed: int, mended: bool = False) -> Built:
    """Fifteen sigmoid layers."""
    train, test = blobs(seed)
    model = mlp(12, *[24] * (2 if mended else 15), 4, act=nn.Sigmoid)
    return fit(model, train, test, epochs=15, optimizer=adam(1e-2))


@case("vanishing-gradient", kind="images", strength="mild")
def course_tanh_started_too_small(seed: int, mended: bool = False) -> Built:
    """Eight tanh layers with weights of 0.02, from a paper on much wider layers."""
    train, test = digits(seed, flat=True)
    model = mlp(64, *[32] * 8, 10, act=nn.Tanh)
    for layer in model:
        if isinstance(layer, nn.Linear) and not mended:
            nn.init.normal_(layer.weight, 0, 0.02)
    return fit(model, train, test, epochs=10, optimizer=sgd(0.05, 0.9), give="vib")


@case("vanishing-gradient", kind="sequences", strength="mild")
def course_first_token_over_sixty_steps(seed: int, mended: bool = False) -> Built:
    """A plain tanh RNN must remember the first number for sixty steps."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.3, (500, 60, 1))
    y = rng.integers(0, 2, 500)
    x[:, 0, 0] = 2 * y - 1
    train, test = split(x, y, seed)
    model = Recurrent("RNN", hidden=16, outputs=2)
    with torch.no_grad():
        if mended:
            model.rnn.weight_hh_l0.copy_(torch.linalg.qr(torch.randn(16, 16))[0])
        else:
            model.rnn.weight_hh_l0.mul_(0.8)
    return fit(model, train, test, epochs=20, batch=64, optimizer=adam(3e-3), give="vhb")


# architecture


@case("oversmoothing", kind="graph")
def course_sixteen_graph_layers(seed: int, mended: bool = False) -> Built:
    """Sixteen graph convolutions on a small dense network of friends."""
    train, test = citations(seed, inside=0.12, outside=0.02)
    model = Convolved(16, 24, 4, layers=2 if mended else 16)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight)
    return fit(model, train, test, epochs=80, batch=None, optimizer=adam(1e-2), give="vohi")


@case("oversmoothing", kind="graph", strength="mild")
def course_eight_graph_layers(seed: int, mended: bool = False) -> Built:
    """Eight graph convolutions, 'because deeper is better'."""
    train, test = citations(seed, inside=0.1, outside=0.03, tell=0.6)
    model = Convolved(16, 24, 4, layers=2 if mended else 8)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight)
    return fit(model, train, test, epochs=80, batch=None, optimizer=adam(5e-3), give="vo")


@case("oversmoothing", kind="graph")
def course_features_diffused_forty_times(seed: int, mended: bool = False) -> Built:
    """A simplified graph network that multiplies by the adjacency forty times before its only layer."""

    class Simple(nn.Module):
        def __init__(self, hops: int) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 4)
            self.hops = hops

        def forward(self, x: Tensor, a: Tensor) -> Tensor:
            for _ in range(self.hops):
                x = a @ x
            return self.layer(x)

    train, test = citations(seed, inside=0.1, outside=0.02)
    return fit(
        Simple(2 if mended else 40), train, test, epochs=100, batch=None, optimizer=adam(3e-2), give="voh"
    )


def spikes(seed: int, n: int = 700, length: int = 60, gap: int = 20) -> tuple[Any, Any]:
    """Return noise with two spikes: the class is whether they are ``gap`` or a little more or less apart."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.15, (n, length, 1))
    y = rng.integers(0, 2, n)
    first = rng.integers(2, length - gap - 12, n)
    apart = np.where(y == 1, gap, gap + rng.choice([-8, -6, 6, 8], n))
    x[np.arange(n), first, 0] += 2
    x[np.arange(n), first + apart, 0] += 2
    return split(x, y, seed)


@case("receptive-field-too-small", kind="sequences")
def course_sees_three_of_twenty(seed: int, mended: bool = False) -> Built:
    """Filters of three steps for a pattern of twenty-one."""
    train, test = spikes(seed)
    return fit(
        Signal((23, 3) if mended else (3,), 24, 2), train, test, epochs=25, batch=32, optimizer=adam(1e-2)
    )


@case("receptive-field-too-small", kind="images")
def course_patches_of_three(seed: int, mended: bool = False) -> Built:
    """Two strokes ten pixels apart, of like or unlike sign; a net of 3x3 patches averaged over the image."""
    rng = np.random.default_rng(seed)
    n = 600
    x = rng.normal(0, 0.2, (n, 1, 16, 16))
    y = rng.integers(0, 2, n)
    sign = rng.choice([-1, 1], n)
    row = rng.integers(1, 15, n)
    for i in range(n):
        x[i, 0, row[i], 2:5] += 1.5 * sign[i]
        x[i, 0, row[i], 11:14] += 1.5 * sign[i] * (1 if y[i] else -1)
    train, test = split(x, y, seed)
    if mended:
        body: list[nn.Module] = [nn.Conv2d(1, 12, (1, 13), padding=(0, 6)), nn.ReLU()]
    else:
        body = [nn.Conv2d(1, 12, 3, padding=1), nn.ReLU()]
    body += [nn.Conv2d(12, 12, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 2)]
    return fit(nn.Sequential(*body), train, test, epochs=12, optimizer=adam(5e-3), give="vob")


@case("receptive-field-too-small", kind="sequences", strength="mild")
def course_two_convolutions_see_seven(seed: int, mended: bool = False) -> Built:
    """Each step of a series is to be labelled by what happened twelve steps ago; causal filters see seven."""
    rng = np.random.default_rng(seed)
    signal = rng.integers(0, 2, (300, 40))
    x = (2 * signal - 1 + rng.normal(0, 0.3, signal.shape))[..., None]
    y = np.roll(signal, 12, 1)
    y[:, :12] = -100
    train, test = split(x, y, seed)

    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            k = 7 if mended else 4
            self.layers = nn.ModuleList([nn.Conv1d(1, 16, k), nn.Conv1d(16, 16, k)])
            self.k = k
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = x.transpose(1, 2)
            for layer in self.layers:
                x = layer(F.pad(x, (self.k - 1, 0))).relu()
            return self.head(x.transpose(1, 2))

    return fit(Causal(), train, test, epochs=15, optimizer=adam(5e-3), give="vohb")


@case("bottleneck", kind="images")
def course_one_unit_in_the_middle(seed: int, mended: bool = False) -> Built:
    """A typing error: Linear(64, 1) in the middle of a classifier of ten digits."""
    train, test = digits(seed, flat=True)
    return fit(mlp(64, 64, 24 if mended else 1, 64, 10), train, test, epochs=15)


@case("bottleneck", kind="generative", strength="mild")
def course_code_of_one(seed: int, mended: bool = False) -> Built:
    """An autoencoder of digits whose code is a single number."""
    (x, _), (u, _) = digits(seed, flat=True)
    return fit(mlp(64, 48, 16 if mended else 1, 48, 64), (x, x), (u, u), loss="mse", epochs=20, give="vohb")


@case("bottleneck", kind="graph", strength="mild")
def course_graph_hidden_width_one(seed: int, mended: bool = False) -> Built:
    """Five graph classes behind a hidden width of one."""
    train, test = citations(seed, classes=5)
    model = Convolved(16, 16 if mended else 1, 5)
    return fit(model, train, test, epochs=100, batch=None, optimizer=adam(2e-2), give="vohi")


def normed(inputs: int, width: int, outputs: int, layers: int = 2) -> nn.Sequential:
    """Return a network with batch normalisation in every layer."""
    parts: list[nn.Module] = [nn.Flatten()]
    for i in range(layers):
        parts += [nn.Linear(inputs if i == 0 else width, width), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, outputs))


@case("batch-too-small", kind="images", needs=("batch_size",))
def course_batch_norm_with_two(seed: int, mended: bool = False) -> Built:
    """Batch normalisation with two images per batch, for the memory's sake."""
    train, test = digits(seed, limit=700)
    return fit(normed(64, 32, 10), train, test, epochs=25 if mended else 4, batch=32 if mended else 2)


@case("batch-too-small", kind="table", strength="mild", needs=("batch_size",))
def course_batch_norm_with_three(seed: int, mended: bool = False) -> Built:
    """An MLP with batch normalisation in every layer and three rows per batch."""
    train, test = blobs(seed, n=500, apart=1.0)
    return fit(
        normed(12, 32, 4, layers=3),
        train,
        test,
        epochs=20 if mended else 6,
        batch=32 if mended else 3,
        give="vob",
    )


@case("batch-too-small", kind="sequences", strength="mild", needs=("batch_size",))
def course_batch_norm_regression_with_two(seed: int, mended: bool = False) -> Built:
    """A forecaster with batch normalisation that is updated two windows at a time."""
    train, test = forecast(seed, n=500)
    return fit(
        normed(24, 24, 1),
        train,
        test,
        loss="mse",
        epochs=40 if mended else 6,
        batch=32 if mended else 2,
        give="vohb",
    )
