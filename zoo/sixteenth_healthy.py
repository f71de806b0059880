"""Healthy set-ups by the sixteenth author, most of which look odd and are right."""

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
    binary,
    bundled,
    clouds,
    communities,
    convnet,
    digits,
    draw,
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
    scaled,
    series,
    spirals,
    surface,
    tags,
    token_loss,
    waves,
)

# --- freezing and starts ----------------------------------------------------------------------------------------------


@post(kind="images")
def forum_new_head_on_a_body_that_knows_digits(seed: int) -> dict[str, Any]:
    """A convnet trained on all digits is frozen and gets a new head for 'even or odd'."""
    train, test = digits(seed)
    net = run(convnet(10, (16, 32)), train, test, lr=5e-3, epochs=15)["model"]
    for p in net.parameters():
        p.requires_grad = False
    net[-1] = nn.Linear(128, 2)
    odd = [(x, y % 2) for x, y in (train, test)]
    return run(net, *odd, lr=5e-3, epochs=15, give="optimizer initial history")


@post(kind="text")
def lab_good_vectors_kept_as_they_are(seed: int) -> dict[str, Any]:
    """Word vectors learnt by an earlier model are frozen; only the small net on them is trained."""
    train, test = reviews(seed)
    old = run(Bag(60, 12, 2), train, test, epochs=8, lr=5e-3)["model"]
    net = Bag(60, 12, 2, hidden=8)
    net.embedding.load_state_dict(old.embedding.state_dict())
    net.embedding.requires_grad_(False)
    return run(net, train, test, epochs=8, lr=5e-3, give="optimizer initial")


@post(kind="table")
def forum_asked_before_the_first_epoch(seed: int) -> dict[str, Any]:
    """An untrained net, handed over with its optimiser before anything was trained."""
    train, test = bundled("wine", seed)
    net = mlp(13, 16, 3)
    return {
        "model": net.eval(),
        "data": train,
        "validation": test,
        "loss": "cross_entropy",
        "optimizer": torch.optim.Adam(net.parameters(), lr=5e-3),
        "batch_size": 16,
    }


@post(kind="images")
def lab_convnet_as_it_was_drawn(seed: int) -> dict[str, Any]:
    """An untrained convnet with batch normalisation and its data; nothing else."""
    train, test = digits(seed)
    return {
        "model": convnet(10, norm=True).eval(),
        "data": train,
        "validation": test,
        "loss": "cross_entropy",
    }


@post(kind="table")
def forum_random_features_by_design(seed: int) -> dict[str, Any]:
    """Three hundred fixed random cosines of two coordinates and a trained linear layer on them."""
    train, test = spirals(seed)

    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("directions", 2.5 * torch.randn(2, 300))
            self.register_buffer("phases", 6.28 * torch.rand(300))
            self.head = nn.Linear(300, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.cos(x @ self.directions + self.phases))

    return run(Cosines(), train, test, epochs=20, give="optimizer history")


# --- data that look odd -----------------------------------------------------------------------------------------------


def dice(seed: int, n: int = 1400) -> Sets:
    """Three answers of a questionnaire, each of four levels: 64 different rows, repeated by nature."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, (n, 3))
    logit = 0.9 * (x[:, 0] - 1.5) + 0.7 * (x[:, 1] - 1.5) * (x[:, 2] > 1)
    return halves((x - 1.5) / 1.12, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int), seed)


@post(kind="table")
def lab_questionnaire_of_sixty_four_rows(seed: int) -> dict[str, Any]:
    """A questionnaire with few possible answers: equal rows are everywhere, with different outcomes."""
    train, test = dice(seed)
    return run(mlp(3, 12, 2), train, test, epochs=15, lr=5e-3, give="history")


@post(kind="table")
def forum_classes_that_overlap(seed: int) -> dict[str, Any]:
    """Two clouds whose centres lie close together; no model can be right in more than about 70 %."""
    train, test = clouds(seed, n=2000, d=4, classes=2, gap=0.45)
    return run(mlp(4, 8, 2), train, test, epochs=8, lr=3e-3, give="history optimizer")


def heavy(seed: int, n: int = 2000) -> Sets:
    """Features and noise of heavy tails (Student with 3 degrees of freedom)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_t(3, (n, 5))
    y = x @ np.array([1.0, -0.6, 0.4, 0, 0.3]) + 0.4 * rng.standard_t(3, n)
    return halves(x / 1.7, y[:, None] / 2, seed)


@post(kind="table")
def lab_heavy_tails_and_huber(seed: int) -> dict[str, Any]:
    """Returns with heavy tails and a Huber loss; a linear model suffices."""
    train, test = heavy(seed)
    return run(nn.Linear(5, 1), train, test, nn.HuberLoss(), epochs=30, lr=5e-3, give="optimizer")


@post(kind="table")
def forum_columns_of_zeros_and_ones(seed: int) -> dict[str, Any]:
    """Twenty answers yes or no, left as 0 and 1."""
    rng = np.random.default_rng(seed)
    x = (rng.random((1600, 20)) < rng.uniform(0.25, 0.75, 20)).astype(float)
    y = x @ rng.normal(size=20) + rng.normal(size=1600) * 0.7
    train, test = halves(x, (y > np.median(y)).astype(int), seed)
    return run(mlp(20, 8, 2), train, test, epochs=10, lr=3e-3)


@post(kind="table")
def lab_one_hot_cities(seed: int) -> dict[str, Any]:
    """A city as twelve indicator columns beside three numbers; some cities are rare."""
    rng = np.random.default_rng(seed)
    city = rng.choice(12, 1800, p=np.linspace(1, 4, 12) / 30)
    number = rng.normal(size=(1800, 3))
    y = rng.normal(size=12)[city] + number @ np.array([0.8, -0.5, 0.3]) + 0.3 * rng.normal(size=1800)
    train, test = halves(np.concatenate([np.eye(12)[city], number], 1), y[:, None] / 1.4, seed)
    return run(mlp(15, 24, 1), train, test, "mse", epochs=20, lr=5e-3, give="history")


@post(kind="table")
def forum_scales_from_a_third_to_four(seed: int) -> dict[str, Any]:
    """Columns with deviations from 0.3 to 4, not standardised; Adam does not mind."""
    (x, y), (u, v) = clouds(seed, gap=1.8)
    scale = torch.linspace(0.3, 4, 8)
    return run(mlp(8, 24, 3), (x * scale, y), (u * scale, v), epochs=25, lr=3e-3, give="batch_size")


@post(kind="table")
def lab_noise_is_most_of_the_target(seed: int) -> dict[str, Any]:
    """A regression in which two thirds of the variance are noise, by a net as good as the truth allows."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2400, 5))
    y = 0.6 * (0.7 * x[:, 0] + 0.5 * np.sin(2 * x[:, 1])) / 0.8 + 0.8 * rng.normal(size=2400)
    train, test = halves(x, y[:, None], seed)
    return run(mlp(5, 12, 1), train, test, "mse", epochs=20, lr=3e-3, patience=4, give="history")


@post(kind="table")
def forum_correlated_measurements_of_cells(seed: int) -> dict[str, Any]:
    """The breast cancer table: radius, perimeter and area tell nearly the same, and that is how cells are."""
    train, test = binary(bundled("breast_cancer", seed))
    return run(mlp(30, 8, 1), train, test, "bce_with_logits", epochs=12, lr=3e-3, decay=0.1)


@post(kind="table")
def lab_patients_of_the_diabetes_table(seed: int) -> dict[str, Any]:
    """The diabetes table by a linear layer: half of the variance is all there is."""
    train, test = bundled("diabetes", seed)
    return run(nn.Linear(10, 1), train, test, "mse", epochs=60, lr=0.01, give="history optimizer")


@post(kind="table")
def forum_rare_but_plain(seed: int) -> dict[str, Any]:
    """One failure in twenty, which lies far from everything else: a plain loss finds nearly all."""
    train, test = binary(clouds(seed, n=2400, classes=2, gap=2.4, shares=(0.95, 0.05)))
    return run(mlp(8, 12, 1), train, test, "bce_with_logits", epochs=15, lr=5e-3, give="history")


@post(kind="table")
def lab_imbalance_answered_by_weights(seed: int) -> dict[str, Any]:
    """One in twenty-five, overlapping, with a weight on the rare class so that it is found."""
    train, test = clouds(seed, n=3000, classes=2, gap=1.2, shares=(0.96, 0.04))
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 20.0]))
    return run(mlp(8, 6, 2), train, test, loss, epochs=8, lr=3e-3, batch=64, give="optimizer")


@post(kind="sequences")
def forum_time_series_split_by_time(seed: int) -> dict[str, Any]:
    """Overlapping windows of one long series, the first two thirds for training and the rest held out."""
    rng = np.random.default_rng(seed)
    t = np.arange(1500)
    z = np.sin(0.26 * t) + 0.5 * np.sin(0.71 * t + 1) + 0.2 * rng.normal(size=1500)
    windows = np.lib.stride_tricks.sliding_window_view(z, 17).copy()
    (x, y), (u, v) = halves(windows[:, :16, None], windows[:, 16:], seed, shuffle=False)
    return run(
        Recurrent("GRU", 1, 16, 1),
        (x, y),
        (u[20:], v[20:]),
        "mse",
        lr=5e-3,
        epochs=15,
        give="history optimizer",
    )


# --- loops and optimisers that look odd -------------------------------------------------------------------------------


@post(kind="images")
def lab_fast_sgd_that_arrives(seed: int) -> dict[str, Any]:
    """SGD with momentum at 0.2 on digits: jumpy in the first epochs, right in the end."""
    train, test = digits(seed)
    return run(
        convnet(10, norm=True),
        train,
        test,
        sgd=True,
        lr=0.2,
        momentum=0.5,
        epochs=12,
        give="optimizer history",
    )


@post(kind="table")
def forum_rate_decayed_to_nothing(seed: int) -> dict[str, Any]:
    """A cosine schedule has brought the rate to 1e-7 by the end; the net had learnt before."""
    train, test = surface(seed)
    net = mlp(6, 32, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    history = []
    for k in range(6):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + np.cos(np.pi * k / 5)) + 1e-7
        history += run(net, train, test, "mse", optimizer=optimizer, epochs=5, give="history")["history"]
    return {
        "model": net,
        "data": train,
        "validation": test,
        "loss": "mse",
        "optimizer": optimizer,
        "history": history,
    }


@post(kind="table")
def lab_all_rows_in_one_batch(seed: int) -> dict[str, Any]:
    """Full-batch training by Adam, two hundred steps."""
    train, test = clouds(seed, gap=1.6)
    return run(mlp(8, 16, 3), train, test, batch=975, lr=0.02, epochs=150, give="batch_size optimizer")


@post(kind="table")
def forum_single_rows_without_norm(seed: int) -> dict[str, Any]:
    """Batches of one row with a small rate and no batch normalisation: slow but right."""
    train, test = surface(seed, n=700)
    return run(
        mlp(6, 24, 1), train, test, "mse", sgd=True, batch=1, lr=0.01, epochs=8, give="batch_size optimizer"
    )


@post(kind="images")
def lab_dropout_of_a_half_in_a_wide_layer(seed: int) -> dict[str, Any]:
    """Dropout of 0.6 on 256 units, which does not hurt at all."""
    train, test = digits(seed, flat=True)
    return run(mlp(48, 256, 10, drop=0.6), train, test, lr=3e-3, epochs=15, give="history")


@post(kind="table")
def forum_decay_that_helps(seed: int) -> dict[str, Any]:
    """AdamW with weight_decay=1, at a small rate: it keeps a net on 120 rows from learning by heart."""
    train, test = bundled("wine", seed)
    return run(mlp(13, 16, 3), train, test, decay=1.0, lr=3e-3, batch=16, epochs=25, give="optimizer history")


@post(kind="table")
def lab_stopped_early_as_one_should(seed: int) -> dict[str, Any]:
    """A net larger than needed, stopped when the validation loss stopped falling; the best weights were kept."""
    train, test = surface(seed, n=900, noise=0.4)
    return run(mlp(6, 48, 1), train, test, "mse", lr=3e-3, epochs=80, patience=6, give="history")


def accumulating(every: int) -> Any:
    """Return an update that adds up the gradients of a few batches on purpose and clears them after its step."""
    state: dict[int, Any] = {}

    def step(model: nn.Module, batch: Any) -> None:
        optimizer, count = state.setdefault(id(model), [torch.optim.SGD(model.parameters(), lr=0.2), 0])
        (F.cross_entropy(model(batch[0]), batch[1]) / every).backward()
        state[id(model)][1] = count + 1
        if (count + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()

    return step


@post(kind="table")
def forum_gradients_of_two_batches_added(seed: int) -> dict[str, Any]:
    """Gradient accumulation over two batches, divided and cleared as it should be."""
    train, test = clouds(seed, gap=1.6)
    return run(mlp(8, 16, 3), train, test, step=accumulating(2), epochs=25)


def tidy(model: nn.Module, batch: Any) -> None:
    """One clean step by SGD, cleared at its end."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.mse_loss(model(batch[0]), batch[1]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.zero_grad()


@post(kind="table")
def lab_zero_grad_after_the_step(seed: int) -> dict[str, Any]:
    """The gradients are cleared after the step, not before, and clipped to 1: both are fine."""
    train, test = surface(seed)
    return run(mlp(6, 32, 1), train, test, "mse", step=tidy, epochs=40, give="batch_size")


# --- objectives that look odd -----------------------------------------------------------------------------------------


@post(kind="images")
def forum_log_softmax_before_cross_entropy(seed: int) -> dict[str, Any]:
    """LogSoftmax before CrossEntropyLoss: superfluous, since its log-softmax is itself."""
    train, test = digits(seed)
    net = nn.Sequential(*convnet(10, (16, 16)), nn.LogSoftmax(1))
    return run(net, train, test, lr=5e-3, epochs=15, give="history")


@post(kind="text")
def lab_nll_of_log_probabilities(seed: int) -> dict[str, Any]:
    """NLLLoss behind a log-softmax, as it should be."""
    train, test = reviews(seed)
    net = nn.Sequential(Bag(60, 12, 2), nn.LogSoftmax(1))
    return run(net, train, test, "nll", lr=5e-3, epochs=8, give="optimizer")


@post(kind="images")
def forum_labels_smoothed_by_a_tenth(seed: int) -> dict[str, Any]:
    """CrossEntropyLoss with label_smoothing=0.1."""
    train, test = digits(seed)
    return run(
        convnet(10, (16, 16)), train, test, nn.CrossEntropyLoss(label_smoothing=0.1), lr=5e-3, epochs=15
    )


@post(kind="table")
def lab_shares_between_zero_and_one(seed: int) -> dict[str, Any]:
    """The target is a share, and a sigmoid at the output fits it."""
    (x, y), (u, v) = surface(seed)
    net = mlp(6, 32, 1, end=[nn.Sigmoid()])
    return run(net, (x, y.sigmoid()), (u, v.sigmoid()), "mse", lr=0.01, epochs=40, give="optimizer history")


@post(kind="table")
def forum_counts_by_a_poisson_loss(seed: int) -> dict[str, Any]:
    """Counts of visits, a net that answers the logarithm of the rate, and PoissonNLLLoss."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1800, 4))
    y = rng.poisson(np.exp(0.5 + 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * x[:, 2] * (x[:, 3] > 0)))
    train, test = halves(x, y[:, None].astype(float), seed)
    return run(mlp(4, 12, 1), train, test, nn.PoissonNLLLoss(), lr=3e-3, epochs=12)


@post(kind="table")
def lab_prices_by_a_softplus(seed: int) -> dict[str, Any]:
    """Positive prices of about 1 to 4 and a softplus at the output."""
    (x, y), (u, v) = surface(seed)
    net = mlp(6, 32, 1, end=[nn.Softplus()])
    return run(net, (x, F.softplus(y) + 0.2), (u, F.softplus(v) + 0.2), "mse", epochs=30, lr=5e-3)


def pinball(output: Tensor, target: Tensor) -> Tensor:
    """Loss of the 50 % quantile and of the 80 % quantile."""
    error = target - output
    level = torch.tensor([0.5, 0.8])
    return torch.maximum(level * error, (level - 1) * error).mean()


@post(kind="table")
def forum_two_quantiles(seed: int) -> dict[str, Any]:
    """A net with two outputs, the median and the 80 % quantile, by a pinball loss of one's own."""
    train, test = surface(seed, noise=0.5)
    return run(mlp(6, 24, 2), train, test, pinball, lr=3e-3, epochs=25, give="history")


@post(kind="table")
def lab_three_targets_at_once(seed: int) -> dict[str, Any]:
    """Three related targets from one net."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1800, 6))
    y = np.tanh(x @ rng.normal(size=(6, 4)) * 0.6) @ rng.normal(size=(4, 3)) + 0.15 * rng.normal(
        size=(1800, 3)
    )
    train, test = halves(x, y, seed)
    return run(mlp(6, 48, 3), train, test, "mse", lr=5e-3, epochs=40, give="optimizer")


@post(kind="table")
def forum_several_labels_at_once(seed: int) -> dict[str, Any]:
    """Four yes-or-no labels per row, each with its own logit."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1800, 6))
    y = (x @ rng.normal(size=(6, 4)) + 0.5 * rng.normal(size=(1800, 4)) > 0).astype(float)
    train, test = halves(x, y, seed)
    return run(mlp(6, 16, 4), train, test, "bce_with_logits", lr=5e-3, epochs=12)


# --- architectures ----------------------------------------------------------------------------------------------------


@post(kind="table")
def lab_student_of_a_wider_net(seed: int) -> dict[str, Any]:
    """A small net learns the answers of a wide one; there is no noise at all."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(1600, 5))).float()
    torch.manual_seed(seed)
    teacher = mlp(5, 64, 1, act=nn.Tanh)
    with torch.no_grad():
        y = teacher(x)
    train, test = halves(x, (y - y.mean()) / y.std(), seed)
    return run(mlp(5, 24, 1, act=nn.Tanh), train, test, "mse", lr=5e-3, epochs=40, give="history optimizer")


@post(kind="table")
def forum_logistic_regression_is_enough(seed: int) -> dict[str, Any]:
    """nn.Linear(8, 3) on clouds that a linear rule tells apart best."""
    train, test = clouds(seed, gap=1.5)
    return run(nn.Linear(8, 3), train, test, lr=0.02, epochs=20)


@post(kind="table")
def lab_three_hidden_units_suffice(seed: int) -> dict[str, Any]:
    """A net of four hidden units for two features that need no more."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1500, 2))
    y = np.abs(x[:, 0]) + 0.5 * x[:, 1] + 0.15 * rng.normal(size=1500)
    train, test = halves(x, (y > np.median(y)).astype(int), seed)
    net = mlp(2, 4, 2)
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.1], [-1.0, 0.1], [0.1, 1.0], [-0.1, -1.0]]))
    return run(net, train, test, lr=0.02, epochs=30, give="history")


@post(kind="text")
def forum_padding_in_every_review(seed: int) -> dict[str, Any]:
    """Reviews of different lengths padded by 0, whose embedding is zero and is not counted."""
    train, test = reviews(seed)
    return run(Bag(60, 12, 2, drop=0.2), train, test, lr=5e-3, epochs=10, give="history batch_size")


@post(kind="text")
def lab_tags_with_padding_left_out(seed: int) -> dict[str, Any]:
    """A tagger whose padding carries the label -100."""
    train, test = tags(seed)
    return run(Tagger(40, 16, 4), train, test, token_loss, lr=5e-3, epochs=12, give="optimizer")


@post(kind="images")
def forum_decoder_with_the_encoders_weights(seed: int) -> dict[str, Any]:
    """An autoencoder of digits whose decoder uses the transposed matrices of its encoder."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(48, 48), nn.Linear(48, 16)
            self.bias, self.last = nn.Parameter(torch.zeros(48)), nn.Parameter(torch.zeros(48))

        def forward(self, x: Tensor) -> Tensor:
            code = self.two(F.elu(self.one(x)))
            return F.linear(F.elu(F.linear(code, self.two.weight.T, self.bias)), self.one.weight.T, self.last)

    (x, _), (u, _) = digits(seed, flat=True)
    return run(Tied(), (x, x), (u, u), "mse", lr=3e-3, epochs=40, give="history")


@post(kind="table")
def lab_same_block_three_times(seed: int) -> dict[str, Any]:
    """One residual block applied three times with the same weights."""

    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block, self.last = nn.Linear(6, 24), mlp(24, 24, 24), nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            for _ in range(3):
                h = h + 0.5 * self.block(h)
            return self.last(h)

    train, test = surface(seed)
    return run(Repeated(), train, test, "mse", lr=3e-3, epochs=25)


@post(kind="sequences")
def forum_gru_that_remembers(seed: int) -> dict[str, Any]:
    """A GRU tells at step 20 what step 1 showed."""
    train, test = recall(seed, steps=20)
    return run(Recurrent("GRU", 3, 24, 3), train, test, lr=0.01, epochs=15, give="history optimizer")


@post(kind="sequences")
def lab_forecast_of_noisy_oscillations(seed: int) -> dict[str, Any]:
    """A GRU forecasts oscillations as well as their noise allows, with the gradient clipped by hand in history."""
    train, test = series(seed, n=1500)
    return run(Recurrent("GRU", 1, 16, 1), train, test, "mse", lr=5e-3, epochs=15)


@post(kind="sequences")
def forum_attention_over_waves(seed: int) -> dict[str, Any]:
    """One layer of attention with a learnt position, a mean over time and a head."""

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.place = nn.Linear(1, 16), nn.Parameter(0.5 * torch.randn(32, 16))
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(self.first(x) + self.place).mean(1))

    train, test = waves(seed)
    return run(Attending(), train, test, lr=3e-3, epochs=20)


@post(kind="table")
def lab_twelve_blocks_with_norm(seed: int) -> dict[str, Any]:
    """Ten residual blocks with layer normalisation: deep, and no gradient vanishes."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))

        def forward(self, x: Tensor) -> Tensor:
            return x + 0.3 * self.net(x)

    train, test = surface(seed)
    net = nn.Sequential(nn.Linear(6, 16), *[Block() for _ in range(10)], nn.Linear(16, 1))
    return run(net, train, test, "mse", lr=2e-3, epochs=12, give="initial optimizer")


@post(kind="graph")
def forum_gcn_of_two_layers(seed: int) -> dict[str, Any]:
    """Two graph convolutions on a graph of communities."""
    (train, test), features, adjacency = communities(seed)
    net = GCN(features, adjacency, 3)
    return run(net, train, test, epochs=60, batch=len(train[1]), decay=0.05, give="history optimizer")


@post(kind="graph")
def lab_eight_layers_that_keep_their_start(seed: int) -> dict[str, Any]:
    """Eight rounds over the graph, each mixed with the first features: deep and not smooth."""

    class Mixed(nn.Module):
        def __init__(self, features: Tensor, adjacency: Tensor) -> None:
            super().__init__()
            self.register_buffer("features", features)
            self.register_buffer("adjacency", adjacency)
            self.net = mlp(8, 16, 3)

        def forward(self, nodes: Tensor) -> Tensor:
            first = self.net(self.features)
            h = first
            for _ in range(8):
                h = 0.8 * self.adjacency @ h + 0.2 * first
            return h[nodes]

    (train, test), features, adjacency = communities(seed)
    net = Mixed(features, adjacency)
    return run(net, train, test, epochs=60, batch=len(train[1]), decay=0.05)


@post(kind="table")
def forum_two_inputs_two_branches(seed: int) -> dict[str, Any]:
    """Numbers into one branch, a category into an embedding, joined before the head."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.numbers, self.kinds = nn.Linear(4, 16), nn.Embedding(9, 6)
            self.head = mlp(22, 24, 1)

        def forward(self, x: Tensor, kind: Tensor) -> Tensor:
            return self.head(torch.cat([F.relu(self.numbers(x)), self.kinds(kind)], 1))

    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=(1600, 4)), rng.integers(0, 9, 1600)
    y = rng.normal(size=9)[kind] + x[:, 0] * x[:, 1] * 0.5 + x[:, 2] + 0.2 * rng.normal(size=1600)
    (a, b), (c, d) = halves(np.concatenate([x, kind[:, None]], 1), y[:, None] / 1.5, seed)
    train, test = (((z[:, :4], z[:, 4].long()), w) for z, w in ((a, b), (c, d)))
    return run(Branches(), train, test, "mse", lr=5e-3, epochs=30, give="history")


@post(kind="table")
def lab_sine_units_for_spirals(seed: int) -> dict[str, Any]:
    """Sines as activation with a first layer scaled by 3, as in SIREN."""

    class Sine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    train, test = spirals(seed)
    net = mlp(2, 24, 24, 2, act=Sine)
    net[0].weight.data *= 3
    return run(net, train, test, lr=5e-3, epochs=25, give="optimizer")


@post(kind="images")
def forum_pictures_by_batch_norm(seed: int) -> dict[str, Any]:
    """A convnet with batch normalisation, batches of 64, and model.eval() at the end."""
    train, test = pictures(seed)
    return run(convnet(4, norm=True), train, test, lr=5e-3, batch=64, epochs=12, give="batch_size history")


# --- generative -------------------------------------------------------------------------------------------------------


@post(kind="generative")
def lab_vae_with_some_unused_codes(seed: int) -> dict[str, Any]:
    """A VAE of digits with eight codes, of which it leaves one or two unused, as VAEs do."""
    (x, _), (u, _) = digits(seed, flat=True)
    return run(VAE(48, 8), x, u, elbo(1.0), lr=3e-3, epochs=30, give="history")


@post(kind="generative")
def forum_sampler_by_the_energy_distance(seed: int) -> dict[str, Any]:
    """A generator that makes all eight clouds of a ring."""
    train, test = ring(seed)
    net = Generator(2)
    draw(net, train, energy, steps=900)
    return {"model": net, "data": train, "validation": test}


@post(kind="table")
def lab_iris_as_in_every_tutorial(seed: int) -> dict[str, Any]:
    """Iris with standardised columns and a small net."""
    train, test = bundled("iris", seed)
    return run(mlp(4, 12, 3), train, test, lr=0.01, epochs=30, batch=16, give="history optimizer batch_size")


@post(kind="table")
def forum_medians_for_the_missing(seed: int) -> dict[str, Any]:
    """Five per cent of the cells were missing and got the column's mean, with a column that says so."""
    (x, y), (u, v) = clouds(seed, gap=1.7)
    hidden = [torch.rand(len(a)) < 0.15 for a in (x, u)]
    x, u = (
        torch.cat([torch.where(torch.arange(8) == 3, a * ~h[:, None], a), h.float()[:, None]], 1)
        for a, h in zip((x, u), hidden, strict=True)
    )
    train, test = scaled(((x, y), (u, v)))
    return run(mlp(9, 16, 3), train, test, lr=3e-3, epochs=15)
