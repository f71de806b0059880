"""Faults of the objective, of the graph of the computation and of the loop, by the first author."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.first_parts import (
    VAE,
    Bag,
    Given,
    Recurrent,
    Transformer,
    Words,
    blobs,
    bundled,
    cnn,
    digits,
    fit,
    houses,
    mlp,
    series,
    topics,
    waves,
)

table = {"kind": "table", "author": "first"}
images = {"kind": "images", "author": "first"}
sequences = {"kind": "sequences", "author": "first"}
text = {"kind": "text", "author": "first"}
generative = {"kind": "generative", "author": "first"}


# --- double-softmax -----------------------------------------------------------------------------------------


@case("double-softmax", **images)
def a_softmax_layer_before_cross_entropy(seed: int, mended: bool = False) -> Given:
    """The net ends in Softmax and the loss takes another: the loss cannot fall below 1.46; without it 95 % at 0.15."""
    net = cnn() if mended else nn.Sequential(*cnn(), nn.Softmax(1))
    return fit(net, *digits(seed), epochs=8)


@case("double-softmax", strength="mild", **table)
def a_sigmoid_before_bce_with_logits(seed: int, mended: bool = False) -> Given:
    """A Sigmoid before bce_with_logits: probabilities from 0.5 to 0.73 only; without it a loss of 0.1, not 0.45."""
    train, validation = ((x, y.float()) for x, y in bundled("breast_cancer", seed))
    net = mlp(30, 16, 1) if mended else nn.Sequential(*mlp(30, 16, 1), nn.Sigmoid())
    return fit(net, train, validation, loss="bce_with_logits", epochs=12)


class _Probable(nn.Module):
    """A text net that returns probabilities by a functional call."""

    def __init__(self, softmax: bool) -> None:
        super().__init__()
        self.net, self.softmax = Words(4), softmax

    def forward(self, x: Tensor) -> Tensor:
        """Return class probabilities."""
        return F.softmax(self.net(x), -1) if self.softmax else self.net(x)


@case("double-softmax", strength="mild", **text)
def probabilities_from_a_recurrent_net_into_cross_entropy(seed: int, mended: bool = False) -> Given:
    """F.softmax in forward and nn.CrossEntropyLoss outside: slower and never sure; without it a third of the loss."""
    train, validation = topics(seed, share=0.45)
    return fit(_Probable(not mended), train, validation, loss=nn.CrossEntropyLoss(), epochs=10)


# --- wrong-loss ---------------------------------------------------------------------------------------------


@case("wrong-loss", **images)
def squared_error_of_the_digit(seed: int, mended: bool = False) -> Given:
    """One output, and the squared distance to the class number as if digits were amounts: 30-40 % when rounded, not 95 %."""
    train, validation = digits(seed)
    if mended:
        return fit(cnn(), train, validation, epochs=8)
    return fit(cnn(classes=1), train, validation, loss="mse", epochs=8)


def _forgotten_axis(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean square of (n, 1) minus (n,), which is n x n."""
    return ((output - target) ** 2).mean()


@case("wrong-loss", **table)
def outputs_of_one_column_minus_a_row_of_targets(seed: int, mended: bool = False) -> Given:
    """The difference broadcasts to n x n and the best answer is the mean: R2 0 instead of 0.9."""
    train, validation = houses(seed)
    return fit(mlp(8, 32, 1), train, validation, loss="mse" if mended else _forgotten_axis, epochs=15)


@case("wrong-loss", **text)
def nll_of_raw_scores(seed: int, mended: bool = False) -> Given:
    """The loss "nll" takes scores for log-probabilities and falls without bound; with log_softmax 90 %, calibrated."""
    train, validation = topics(seed, share=0.4)
    net: nn.Module = Bag(4)
    if mended:
        net = nn.Sequential(net, nn.LogSoftmax(1))
    return fit(net, train, validation, loss="nll", epochs=15)


def _one_hot_mean(output: Tensor, target: Tensor) -> Tensor:
    """Return the absolute error to one-hot targets."""
    return (output - F.one_hot(target, output.shape[1]).float()).abs().mean()


@case("wrong-loss", strength="mild", **sequences)
def absolute_error_to_one_hot_targets(seed: int, mended: bool = False) -> Given:
    """L1 to one-hot rows is least at "no class": 35 % instead of 90 %."""
    train, validation = waves(seed)
    return fit(Recurrent(3), train, validation, loss="cross_entropy" if mended else _one_hot_mean, epochs=15)


# --- output-range -------------------------------------------------------------------------------------------


@case("output-range", **table)
def a_relu_after_the_last_layer(seed: int, mended: bool = False) -> Given:
    """Half of the standardised prices are negative and ReLU cannot say so: R2 0.6 instead of 0.9."""
    net = mlp(8, 32, 1) if mended else nn.Sequential(*mlp(8, 32, 1), nn.ReLU())
    return fit(net, *houses(seed), loss="mse", epochs=20)


@case("output-range", strength="mild", **sequences)
def a_tanh_for_values_to_two(seed: int, mended: bool = False) -> Given:
    """A Tanh ends the net and a third of the targets lies beyond 1: R2 0.8 instead of 0.9."""
    net = Recurrent(1, 16)
    return fit(
        net if mended else nn.Sequential(net, nn.Tanh()),
        *series(seed, 500),
        loss="mse",
        epochs=16,
        numpy=True,
    )


def _reconstruction(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    """Return the negative bound, summed over the pixels, a tenth of the prior's part."""
    picture, mean, log_variance = output
    kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)
    return (((picture - x) ** 2).sum(1) + 0.1 * kl).mean()


@case("output-range", **generative)
def a_sigmoid_decoder_for_standardised_pictures(seed: int, mended: bool = False) -> Given:
    """Pixels from -2 to 3 and a decoder that ends in Sigmoid: half of the variance cannot be drawn."""
    (x, _), (held, _) = digits(seed, flat=True)
    mean, deviation = x.mean(), x.std()
    x, held = (x - mean) / deviation, (held - mean) / deviation
    net = VAE(last=None if mended else nn.Sigmoid())
    given = fit(net, (x, x), (held, held), loss=_reconstruction, epochs=15)
    return given | {"data": x, "validation": held}


# --- stochastic-evaluation ----------------------------------------------------------------------------------


class _AlwaysDropped(nn.Module):
    """Dropout by a functional call that does not know of eval()."""

    def __init__(self, share: float, mended: bool) -> None:
        super().__init__()
        self.one, self.two, self.share, self.mended = nn.Linear(64, 48), nn.Linear(48, 10), share, mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        h = F.relu(self.one(x.flatten(1)))
        return self.two(F.dropout(h, self.share, training=self.training or not self.mended))


@case("stochastic-evaluation", **images)
def functional_dropout_in_eval(seed: int, mended: bool = False) -> Given:
    """F.dropout without training=self.training drops half at prediction too: 80 % and never twice the same; fixed 95 %."""
    return fit(_AlwaysDropped(0.6, mended), *digits(seed), epochs=15)


@case("stochastic-evaluation", strength="mild", **text)
def predictions_in_train_mode(seed: int, mended: bool = False) -> Given:
    """eval() was forgotten and dropout of 0.5 is still on when the net predicts; with it some points more, repeatably."""
    given = fit(Bag(4, 32, dropout=0.5), *topics(seed, share=0.35), epochs=20)
    given["model"].train(not mended)
    return given


class _Noisy(nn.Module):
    """A regression net that adds noise to its inputs, always."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.net, self.mended = mlp(8, 32, 1), mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions."""
        return self.net(x + 0.3 * torch.randn_like(x) if self.training or not self.mended else x)


@case("stochastic-evaluation", strength="mild", **table)
def input_noise_left_on(seed: int, mended: bool = False) -> Given:
    """The augmentation's noise is added at prediction too: R2 0.75 instead of 0.88, other figures on every call."""
    return fit(_Noisy(mended), *houses(seed), loss="mse", epochs=20, without=("history",))


# --- detached-parameters ------------------------------------------------------------------------------------


class _Cut(nn.Module):
    """A convolutional encoder whose features are detached on their way to the head."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()
        )
        self.head, self.mended = nn.Linear(16, 10), mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        h = self.encoder(x)
        return self.head(h if self.mended else h.detach())


@case("detached-parameters", **images)
def features_detached_before_the_head(seed: int, mended: bool = False) -> Given:
    """A .detach() from a debugging session: the encoder stays random, 45 % instead of 85 %."""
    net = _Cut(mended)
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    return fit(net, *digits(seed), optimizer=optimizer, epochs=12)


class _NoGrad(nn.Module):
    """A recurrent net whose embedding is computed under no_grad."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.words, self.rest, self.mended = nn.Embedding(80, 4), Recurrent(4, 12, inputs=4), mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        with torch.set_grad_enabled(self.mended and torch.is_grad_enabled()):
            h = self.words(x)
        return self.rest(h)


@case("detached-parameters", **text)
def embedding_under_no_grad(seed: int, mended: bool = False) -> Given:
    """The words' random vectors are computed under no_grad and never learnt: 40 % instead of 75 %."""
    return fit(_NoGrad(mended), *topics(seed, share=0.5), epochs=14)


class _Hard(nn.Module):
    """A gate by comparison, through which nothing flows back."""

    def __init__(self, mended: bool) -> None:
        super().__init__()
        self.gate, self.head, self.mended = nn.Linear(8, 16), nn.Linear(16, 1), mended

    def forward(self, x: Tensor) -> Tensor:
        """Return the predictions."""
        return self.head(torch.sigmoid(self.gate(x)) if self.mended else (self.gate(x) > 0).float())


@case("detached-parameters", strength="mild", **table)
def a_gate_by_comparison(seed: int, mended: bool = False) -> Given:
    """Units of (h > 0) have no gradient, so the first layer stays random: R2 0.6; sigmoid units learn, 0.85."""
    net = _Hard(mended)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    return fit(net, *houses(seed), loss="mse", optimizer=optimizer, epochs=20)


# --- frozen-parameters --------------------------------------------------------------------------------------


@case("frozen-parameters", **images)
def a_random_body_left_frozen(seed: int, mended: bool = False) -> Given:
    """requires_grad is False from a transfer script, but no weights were loaded: 60 % instead of 93 %."""
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.ReLU(),
        nn.Conv2d(3, 6, 3),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(6, 10),
    )
    for parameter in net[:-1].parameters():
        parameter.requires_grad_(mended)
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], 1e-2)
    return fit(net, *digits(seed), optimizer=optimizer, epochs=12)


@case("frozen-parameters", strength="mild", needs=("optimizer", "initial"), **table)
def the_optimiser_was_given_the_head_only(seed: int, mended: bool = False) -> Given:
    """Adam got the last layer's parameters; eight random hidden units do not move: 65 % instead of 90 %."""
    net = mlp(2, 8, 8, 3)
    optimizer = torch.optim.Adam((net if mended else net[-1]).parameters(), 2e-2)
    return fit(net, *blobs(seed, 600, 2, 3, apart=5.0, per_class=2), optimizer=optimizer, epochs=20)


@case("frozen-parameters", needs=("optimizer", "initial"), **sequences)
def the_cell_was_replaced_after_the_optimiser_was_made(seed: int, mended: bool = False) -> Given:
    """The recurrent cell was swapped for a wider one and the optimiser still holds the old one: 50 % instead of 85 %."""
    net = Recurrent(3, 12)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    if not mended:
        net.cell = nn.GRU(1, 12, batch_first=True)
    return fit(net, *waves(seed, 400, 24), optimizer=optimizer, epochs=12)


# --- gradients-not-cleared ----------------------------------------------------------------------------------


class Step:
    """The user's own update. It makes an optimiser for each model that it is given; ``clear`` is what he forgot."""

    def __init__(
        self, make: Callable[[nn.Module], torch.optim.Optimizer], loss: Callable[..., Tensor], clear: bool
    ) -> None:
        self.make, self.loss, self.clear = make, loss, clear
        self.model: nn.Module | None = None

    def __call__(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> float:
        """Update once and return the loss."""
        if model is not self.model:
            self.model, self.optimizer = model, self.make(model)
        if self.clear:
            self.optimizer.zero_grad()
        value = self.loss(model(batch[0]), batch[1])
        value.backward()
        self.optimizer.step()
        return value.item()


def stepped(
    model: nn.Module, step: Step, data: tuple, validation: tuple, loss: str, epochs: int, size: int
) -> Given:
    """Train by the user's own step."""
    history, initial = [], copy.deepcopy(model.state_dict())
    for _ in range(epochs):
        values = [step(model, (data[0][r], data[1][r])) for r in torch.randperm(len(data[1])).split(size)]
        with torch.no_grad():
            held = step.loss(model(validation[0]), validation[1]).item()
        history.append({"loss": sum(values) / len(values), "val_loss": held})
    return {
        "model": model,
        "data": data,
        "validation": validation,
        "loss": loss,
        "optimizer": step.optimizer,
        "batch_size": size,
        "history": history,
        "initial": initial,
        "step": step,
    }


@case("gradients-not-cleared", needs=("step",), **images)
def zero_grad_forgotten_with_sgd(seed: int, mended: bool = False) -> Given:
    """The gradients of all earlier batches are added up: the loss swings; with zero_grad 93 %."""
    step = Step(lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9), F.cross_entropy, mended)
    return stepped(cnn(), step, *digits(seed), "cross_entropy", 8, 32)


@case("gradients-not-cleared", strength="mild", needs=("step",), **table)
def zero_grad_forgotten_with_adam(seed: int, mended: bool = False) -> Given:
    """Adam follows the sum of all gradients and overshoots: a higher loss that waves; with zero_grad R2 0.9."""
    train, validation = ((x, y[:, None]) for x, y in houses(seed))
    step = Step(lambda m: torch.optim.Adam(m.parameters(), 3e-3), F.mse_loss, mended)
    return stepped(mlp(8, 32, 1), step, train, validation, "mse", 15, 32)


@case("gradients-not-cleared", needs=("step",), **text)
def zero_grad_forgotten_in_a_transformer(seed: int, mended: bool = False) -> Given:
    """The same in a small transformer with AdamW: 50-70 % instead of 85 %."""
    step = Step(lambda m: torch.optim.AdamW(m.parameters(), 5e-3), F.cross_entropy, mended)
    return stepped(Transformer(4), step, *topics(seed, share=0.4), "cross_entropy", 8, 32)
