"""The seventh author's faults of the objective, of the graph and the loop, and of the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.seventh_parts import *

ME = "seventh"


# double-softmax


class CnnWithSoftmax(Cnn):
    """Says probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        """Return probabilities."""
        return F.softmax(super().forward(x), dim=1)


@case("double-softmax", kind="images", author=ME)
def seventh_cnn_says_probabilities(seed: int, mended: bool = False) -> dict[str, Any]:
    """Probabilities go into a loss that takes logits."""
    train, held = digits(seed)
    model = Cnn() if mended else CnnWithSoftmax()
    return fit(model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.02), epochs=5)


@case("double-softmax", kind="table", author=ME)
def seventh_sequential_ends_in_softmax(seed: int, mended: bool = False) -> dict[str, Any]:
    """The usual Sequential, and nn.Softmax at its end."""
    train, held = table("wine", seed)
    model = nn.Sequential(mlp(13, 32, 3), *([] if mended else [nn.Softmax(dim=1)]))
    return fit(
        model,
        train,
        held,
        loss=nn.CrossEntropyLoss(),
        optimizer=sgd(model, 0.02),
        epochs=15,
        less=("initial",),
    )


class GruWithSoftmax(Gru):
    """Says probabilities."""

    def forward(self, ids: Tensor) -> Tensor:
        """Return probabilities."""
        return super().forward(ids).softmax(-1)


@case("double-softmax", kind="text", author=ME, strength="mild")
def seventh_gru_says_probabilities(seed: int, mended: bool = False) -> dict[str, Any]:
    """Trained long enough to be right, but the loss cannot fall below 0.31 and the confidences are off."""
    train, held = ordered(seed)
    model = Gru() if mended else GruWithSoftmax()
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=adam(model),
        epochs=12,
        less=("optimizer", "initial"),
    )


# wrong-loss


@case("wrong-loss", kind="table", author=ME)
def seventh_nll_of_logits(seed: int, mended: bool = False) -> dict[str, Any]:
    """The negative log-likelihood of raw logits has no lower bound."""
    train, held = table("breast_cancer", seed)
    model = mlp(30, 32, 2)
    return fit(
        model, train, held, loss="cross_entropy" if mended else "nll", optimizer=adam(model), epochs=15
    )


def broadcast_error(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean square of a difference of (n, 1) and (n,): all rows against all."""
    return ((output - target) ** 2).mean()


@case("wrong-loss", kind="table", author=ME)
def seventh_squares_of_all_against_all(seed: int, mended: bool = False) -> dict[str, Any]:
    """Outputs of shape (n, 1), targets of shape (n,): the difference is (n, n) and the best answer is the mean."""
    (x, y), (vx, vy) = houses(seed)
    model = mlp(8, 48, 1)
    if mended:
        return fit(model, (x, y), (vx, vy), loss="mse", optimizer=adam(model), epochs=15)
    return fit(
        model,
        (x, y[:, 0]),
        (vx, vy[:, 0]),
        loss=broadcast_error,
        optimizer=adam(model),
        epochs=15,
        less=("initial",),
    )


def class_number_error(output: Tensor, target: Tensor) -> Tensor:
    """Return the squared error of the softmax-weighted mean class number."""
    number = torch.arange(output.shape[1], dtype=output.dtype)
    return ((output.softmax(1) * number).sum(1) - target).pow(2).mean()


@case("wrong-loss", kind="images", author=ME, strength="mild")
def seventh_digits_as_quantities(seed: int, mended: bool = False) -> dict[str, Any]:
    """The classes are regressed on as if a nine were more than a one."""
    train, held = digits(seed)
    model = Cnn()
    return fit(
        model,
        train,
        held,
        loss="cross_entropy" if mended else class_number_error,
        optimizer=adam(model),
        epochs=6,
    )


def upside_down(output: Tensor, target: Tensor) -> Tensor:
    """Return the mean log-probability of the true class, with the minus sign forgotten, kept finite."""
    return F.log_softmax(output, 1).gather(1, target[:, None]).clamp_min(-20).mean()


@case("wrong-loss", kind="text", author=ME)
def seventh_sign_forgotten(seed: int, mended: bool = False) -> dict[str, Any]:
    """A home-made cross-entropy without its minus sign makes the true class the least probable."""
    train, held = topics(seed)
    model = Bag()
    loss = F.cross_entropy if mended else upside_down
    return fit(model, train, held, loss=loss, optimizer=adam(model), epochs=10, less=("initial", "history"))


# output-range


@case("output-range", kind="table", author=ME)
def seventh_prices_through_a_sigmoid(seed: int, mended: bool = False) -> dict[str, Any]:
    """Standardised prices from -3 to 3, an output between nought and one."""
    train, held = houses(seed)
    model = nn.Sequential(*mlp(8, 48, 1), *([] if mended else [nn.Sigmoid()]))
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=15)


@case("output-range", kind="sequences", author=ME, strength="mild")
def seventh_forecast_never_below_zero(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ReLU after the last layer; half of the standardised series is negative."""
    train, held = series(seed)
    model = nn.Sequential(
        nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 1), nn.Identity() if mended else nn.ReLU()
    )
    with torch.no_grad():
        model[2].bias.fill_(0.5)
    return fit(model, train, held, loss=nn.HuberLoss(), optimizer=adam(model), epochs=15, less=("initial",))


@case("output-range", kind="generative", author=ME, strength="mild")
def seventh_autoencoder_with_tanh(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder of standardised columns that ends in tanh."""
    (x, _), (vx, _) = table("breast_cancer", seed)
    model = nn.Sequential(*mlp(30, 48, 12, 48, 30), *([] if mended else [nn.Tanh()]))
    return fit(model, (x, x), (vx, vx), loss="mse", optimizer=adam(model), epochs=50)


# stochastic-evaluation


@case("stochastic-evaluation", kind="table", author=ME)
def seventh_left_in_training_mode(seed: int, mended: bool = False) -> dict[str, Any]:
    """The script predicts without model.eval()."""
    train, held = table("diabetes", seed)
    model = mlp(10, 64, 64, 1, drop=0.5)
    given = fit(model, train, held, loss="mse", optimizer=adam(model), epochs=20)
    model.train(mended is False)
    return given


class BagDropping(Bag):
    """Drops features whatever the mode."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always = always

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.head(F.dropout(self.words(ids), 0.5, training=self.always or self.training))


@case("stochastic-evaluation", kind="text", author=ME)
def seventh_functional_dropout(seed: int, mended: bool = False) -> dict[str, Any]:
    """F.dropout without ``training=self.training`` drops words' features in prediction too."""
    train, held = topics(seed)
    model = BagDropping(not mended)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=12, less=("initial",))


class Jittered(nn.Module):
    """Adds augmentation noise inside forward."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always, self.body = always, Traces()

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        if self.always or self.training:
            x = x + 0.8 * torch.randn_like(x)
        return self.body(x)


@case("stochastic-evaluation", kind="sequences", author=ME, strength="mild")
def seventh_augmentation_in_forward(seed: int, mended: bool = False) -> dict[str, Any]:
    """The noise that augments the traces is added at prediction as well."""
    train, held = waves(seed)
    model = Jittered(not mended)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model, 5e-3), epochs=20)


# detached-parameters


class CutCnn(Cnn):
    """Detaches the features from the head."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.features(x).detach())


@case("detached-parameters", kind="images", author=ME)
def seventh_features_detached(seed: int, mended: bool = False) -> dict[str, Any]:
    """A .detach() left over from drawing pictures of the features: the trunk stays at random."""
    train, held = shapes(seed)
    model = (Cnn if mended else CutCnn)(3, 8)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=8)


class NoGradTowers(Towers):
    """Computes the items' side without gradients."""

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Return a rating per row."""
        with torch.no_grad():
            side = self.item(item)
        return (self.user(user) * side).sum(1, keepdim=True)


@case("detached-parameters", kind="sets", author=ME)
def seventh_item_tower_without_gradients(seed: int, mended: bool = False) -> dict[str, Any]:
    """torch.no_grad() round one tower, copied from the index-building script."""
    train, held = visits(seed)
    model = (Towers if mended else NoGradTowers)(3)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=20, less=("initial",))


class RoundedColumns(Columns):
    """Rebuilds the joined columns as a new tensor."""

    def forward(self, number: Tensor, category: Tensor) -> Tensor:
        """Return a logit per row."""
        joined = torch.tensor(self.join({"number": number, "category": category}).tolist())
        return self.body(joined).squeeze(1)


@case("detached-parameters", kind="table", author=ME, strength="mild")
def seventh_embeddings_through_a_list(seed: int, mended: bool = False) -> dict[str, Any]:
    """The joined columns go through a list into a new tensor: the categories' vectors learn nothing."""
    train, held = churn(seed)
    model = Columns(hidden=12) if mended else RoundedColumns(hidden=12)
    for part in model.tables:
        nn.init.normal_(part.weight, std=0.03)
    return fit(model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=8)


# frozen-parameters


@case("frozen-parameters", kind="images", author=ME)
def seventh_random_trunk_frozen(seed: int, mended: bool = False) -> dict[str, Any]:
    """The fine-tuning script freezes the trunk, but nobody loaded the trained weights."""
    train, held = shapes(seed)
    model = Cnn(3, 6)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(mended or name.startswith("head"))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 3e-3)
    return fit(model, train, held, loss="cross_entropy", optimizer=optimizer, epochs=10)


@case("frozen-parameters", kind="text", author=ME)
def seventh_optimiser_got_the_head_only(seed: int, mended: bool = False) -> dict[str, Any]:
    """The optimiser was given model.head.parameters(): words and recurrence stay at random."""
    train, held = ordered(seed)
    model = Gru(hidden=12)
    optimizer = torch.optim.Adam((model if mended else model.head).parameters(), 5e-3)
    return fit(model, train, held, loss="cross_entropy", optimizer=optimizer, epochs=12)


@case("frozen-parameters", kind="graph", author=ME, strength="mild")
def seventh_message_layers_frozen(seed: int, mended: bool = False) -> dict[str, Any]:
    """A debugging line froze all message layers of the graph network as they were drawn."""
    features, adjacency, train, held = communities(seed, outside=0.03)
    model = Gcn(features, adjacency, 2, 6)
    model.layers.requires_grad_(mended)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    return fit(model, train, held, loss="cross_entropy", optimizer=optimizer, epochs=40, batch_size=50)


@case("frozen-parameters", kind="text", author=ME, strength="mild")
def seventh_word_vectors_frozen(seed: int, mended: bool = False) -> dict[str, Any]:
    """The words' vectors are frozen "as usual with pre-trained ones", but they were drawn, not loaded."""
    train, held = topics(seed, share=0.4)
    model = Bag(size=8)
    model.words.requires_grad_(mended)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 5e-3)
    return fit(model, train, held, loss=smooth(0.05), optimizer=optimizer, epochs=15)


# gradients-not-cleared


def looped(
    make: Callable[[nn.Module], torch.optim.Optimizer], loss: Any, clear: int
) -> Callable[[nn.Module, Any], float]:
    """Return a user's update that clears the gradients every ``clear`` batches (never if nought)."""
    criterion = LOSSES[loss] if isinstance(loss, str) else loss
    kept: dict[int, Any] = {}

    def step(model: nn.Module, batch: Any) -> float:
        entry = kept.setdefault(id(model), [model, make(model), 0])
        x, y = batch
        value = criterion(call(model, x), y)
        if clear and entry[2] % clear == 0:
            entry[1].zero_grad()
        value.backward()
        entry[1].step()
        entry[2] += 1
        return value.item()

    return step


def run_loop(
    model: nn.Module, train: Data, held: Data, loss: Any, make: Any, clear: int, epochs: int, batch: int = 64
) -> dict[str, Any]:
    """Train by :func:`looped` and hand over its step."""
    step, initial, history = looped(make, loss, clear), state(model), []
    model.train()
    for _ in range(epochs):
        values = [
            step(model, (rows(train[0], i), train[1][i])) for i in torch.randperm(len(train[1])).split(batch)
        ]
        history.append({"loss": sum(values) / len(values)})
    model.eval()
    return {
        "model": model,
        "data": train,
        "validation": held,
        "loss": loss,
        "batch_size": batch,
        "history": history,
        "initial": initial,
        "step": looped(make, loss, clear),
    }


@case("gradients-not-cleared", kind="images", author=ME, needs=("step",))
def seventh_zero_grad_forgotten(seed: int, mended: bool = False) -> dict[str, Any]:
    """The loop never clears the gradients."""
    train, held = digits(seed)
    return run_loop(Cnn(), train, held, "cross_entropy", lambda m: sgd(m, 0.05, 0.9), int(mended), 6)


@case("gradients-not-cleared", kind="table", author=ME, needs=("step",))
def seventh_zero_grad_forgotten_in_regression(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam follows the sum of all gradients so far."""
    train, held = houses(seed)
    return run_loop(mlp(8, 48, 48, 1), train, held, "mse", lambda m: adam(m, 5e-3), int(mended), 15)


@case("gradients-not-cleared", kind="text", author=ME, strength="mild", needs=("step",))
def seventh_zero_grad_once_in_a_while(seed: int, mended: bool = False) -> dict[str, Any]:
    """The gradients are cleared at the start of an epoch only; steps are taken every batch."""
    train, held = topics(seed)
    return run_loop(Bag(), train, held, "cross_entropy", lambda m: sgd(m, 0.1, 0.9), 1 if mended else 11, 25)


# symmetric-initialisation


def constant(*layers: nn.Module, value: float = 0.05) -> None:
    """Set all weights of the layers to one value and the biases to nought."""
    with torch.no_grad():
        for layer in layers:
            for part in layer.modules():
                for name, parameter in part.named_parameters(recurse=False):
                    parameter.fill_(0.0 if "bias" in name else value)


@case("symmetric-initialisation", kind="table", author=ME)
def seventh_all_weights_alike(seed: int, mended: bool = False) -> dict[str, Any]:
    """Weights set to a constant "for reproducibility": all hidden units are one."""
    train, held = table("wine", seed)
    model = mlp(13, 32, 32, 3)
    if not mended:
        constant(model)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=20)


@case("symmetric-initialisation", kind="sequences", author=ME)
def seventh_gru_at_zero(seed: int, mended: bool = False) -> dict[str, Any]:
    """A recurrent layer and the head start at nought."""
    train, held = ordered(seed)
    model = Gru()
    if not mended:
        constant(model.cell, model.head, value=0.0)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=12, less=("history",))


@case("symmetric-initialisation", kind="images", author=ME, strength="mild")
def seventh_new_head_of_equal_weights(seed: int, mended: bool = False) -> dict[str, Any]:
    """The new two-layer head on a good trunk starts with equal weights: its 32 hidden units stay one unit."""
    train, held = digits(seed)
    model = Cnn(10, 8)
    model.head = mlp(64, 32, 10)
    if not mended:
        constant(model.head)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=8)


# saturated-units


def widened(model: nn.Module, scale: float) -> nn.Module:
    """Multiply all matrices at the start."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model


@case("saturated-units", kind="images", author=ME)
def seventh_tanh_with_wide_weights(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three tanh layers start with weights of deviation two: everything is at plus or minus one."""
    train, held = digits(seed, 700, flat=True)
    model = mlp(64, 64, 64, 64, 10, act=nn.Tanh)
    if not mended:
        for part in model[:-1]:
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=2.0)
    return fit(model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.05), epochs=12)


@case("saturated-units", kind="table", author=ME)
def seventh_sigmoids_with_large_biases(seed: int, mended: bool = False) -> dict[str, Any]:
    """The hidden sigmoids start with biases of twelve: all are at one and hardly move."""
    train, held = houses(seed)
    model = mlp(8, 48, 48, 1, act=nn.Sigmoid)
    if not mended:
        with torch.no_grad():
            model[0].bias.fill_(12.0)
            model[2].bias.fill_(12.0)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=30, less=("initial",))


@case("saturated-units", kind="sets", author=ME, strength="mild")
def seventh_points_through_hard_tanh(seed: int, mended: bool = False) -> dict[str, Any]:
    """A network of sets with tanh units whose first layers start eighty times too wide."""
    train, held = clouds(seed)
    model = DeepSet(act=nn.Tanh)
    if not mended:
        widened(model.point, 80.0)
    return fit(model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.05), epochs=20)


# dead-units


def lowered(value: float, *layers: Any) -> None:
    """Set biases."""
    with torch.no_grad():
        for layer in layers:
            layer.bias.fill_(value)


@case("dead-units", kind="images", author=ME)
def seventh_convolutions_with_negative_biases(seed: int, mended: bool = False) -> dict[str, Any]:
    """Biases of minus four: no ReLU of the second layer ever opens."""
    train, held = shapes(seed)
    model = Cnn(3, 8, norm=False)
    if not mended:
        lowered(-4.0, model.one, model.two)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=10)


@case("dead-units", kind="table", author=ME)
def seventh_hidden_layer_never_opens(seed: int, mended: bool = False) -> dict[str, Any]:
    """A typo in the start of the biases (-5 for 0.5) closes the customer network's second layer."""
    train, held = churn(seed)
    model = Columns()
    if not mended:
        lowered(-5.0, model.body[2])
    return fit(
        model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=12, less=("initial",)
    )


@case("dead-units", kind="table", author=ME, strength="mild")
def seventh_most_units_closed(seed: int, mended: bool = False) -> dict[str, Any]:
    """Forty-six of 48 units of either layer start closed for every house; two remain."""
    train, held = houses(seed)
    model = mlp(8, 48, 48, 1)
    if not mended:
        with torch.no_grad():
            model[0].bias[:46] = -6.0
            model[2].bias[:46] = -6.0
    return fit(model, train, held, loss="mse", optimizer=sgd(model, 0.02), epochs=20)


# exploding-gradient


@case("exploding-gradient", kind="table", author=ME)
def seventh_ten_wide_layers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ten ReLU layers whose weights start with a deviation of one."""
    train, held = houses(seed)
    model = mlp(8, *[32] * 10, 1)
    for part in model:
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=(2 / part.in_features) ** 0.5 if mended else 1.0)
            nn.init.zeros_(part.bias)
    return fit(model, train, held, loss="mse", optimizer=sgd(model, 2e-3), epochs=25)


class Total(nn.Module):
    """A ReLU recurrence over a series."""

    def __init__(self, gain: float, hidden: int = 24) -> None:
        super().__init__()
        self.cell = nn.RNN(1, hidden, nonlinearity="relu", batch_first=True)
        with torch.no_grad():
            nn.init.orthogonal_(self.cell.weight_hh_l0, gain)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a value from the last state."""
        return self.head(self.cell(x[..., None])[0][:, -1])


@case("exploding-gradient", kind="sequences", author=ME)
def seventh_recurrence_that_grows(seed: int, mended: bool = False) -> dict[str, Any]:
    """A ReLU recurrence of gain two over 40 steps, no clipping; the answer is the series' rise."""
    x = torch.randn(700, 40) * 0.5
    y = x.sum(1, keepdim=True) / 3
    model = Total(1.0 if mended else 2.0)
    return fit(
        model,
        (x[:500], y[:500]),
        (x[500:], y[500:]),
        loss="mse",
        optimizer=adam(model, 2e-3),
        epochs=15,
        clip=1.0 if mended else None,
    )


class Stacked(nn.Module):
    """Residual blocks without normalisation, each added with a factor."""

    def __init__(self, blocks: int, factor: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(mlp(10, 32, 10) for _ in range(blocks))
        self.factor, self.head = factor, nn.Linear(10, 1)
        for block in self.blocks:
            nn.init.kaiming_normal_(block[0].weight)
            nn.init.kaiming_normal_(block[2].weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return a value per row."""
        for block in self.blocks:
            x = x + self.factor * block(x)
        return self.head(x)


@case("exploding-gradient", kind="table", author=ME, strength="mild")
def seventh_residuals_without_norm(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twelve residual blocks, each as large as its input: the sums double and double again."""
    train, held = table("diabetes", seed)
    model = Stacked(12, 0.05 if mended else 1.0)
    return fit(model, train, held, loss="mse", optimizer=adam(model, 1e-3), epochs=15)


# vanishing-gradient


@case("vanishing-gradient", kind="table", author=ME)
def seventh_nine_sigmoid_layers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Nine layers of sigmoids: the first ones get no gradient."""
    train, held = table("breast_cancer", seed)
    model = mlp(30, *[24] * 9, 2, act=nn.ReLU if mended else nn.Sigmoid)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model, 2e-3), epochs=20)


@case("vanishing-gradient", kind="images", author=ME)
def seventh_small_weights_in_depth(seed: int, mended: bool = False) -> dict[str, Any]:
    """Eight layers that start with a deviation of 0.02: the signal halves again and again."""
    train, held = digits(seed, flat=True)
    model = mlp(64, *[48] * 8, 10)
    for part in model:
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=(2 / part.in_features) ** 0.5 if mended else 0.02)
            nn.init.zeros_(part.bias)
    return fit(model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.02), epochs=12)


class First(nn.Module):
    """A plain tanh recurrence that must remember the first value."""

    def __init__(self, gain: float, hidden: int = 24) -> None:
        super().__init__()
        self.cell = nn.RNN(1, hidden, batch_first=True)
        with torch.no_grad():
            nn.init.orthogonal_(self.cell.weight_hh_l0, gain)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a value from the last state."""
        return self.head(self.cell(x[..., None])[0][:, -1])


@case("vanishing-gradient", kind="sequences", author=ME, strength="mild")
def seventh_recurrence_that_forgets(seed: int, mended: bool = False) -> dict[str, Any]:
    """The answer is the mean of the first three of 25 values; the recurrence halves what it remembers."""
    x = torch.randn(800, 25) * 0.5
    y = (x[:, :3].mean(1, keepdim=True) * 3).clone()
    model = First(1.0 if mended else 0.5)
    return fit(
        model,
        (x[:550], y[:550]),
        (x[550:], y[550:]),
        loss="mse",
        optimizer=adam(model, 3e-3),
        epochs=25,
        clip=1.0,
    )
