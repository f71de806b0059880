"""The seventh author's faults of the architecture, of the descent and of the outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.seventh_parts import *

ME = "seventh"


# oversmoothing


@case("oversmoothing", kind="graph", author=ME)
def seventh_twenty_message_layers(seed: int, mended: bool = False) -> dict[str, Any]:
    """Twenty rounds of averaging over neighbours make all nodes alike."""
    features, adjacency, train, held = communities(seed, outside=0.03)
    model = Gcn(features, adjacency, 2 if mended else 20)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=30, batch_size=150)


class Hops(nn.Module):
    """Averages over neighbours some times, then a network (simplified graph convolution)."""

    def __init__(self, features: Tensor, adjacency: Tensor, hops: int, classes: int = 3) -> None:
        super().__init__()
        self.register_buffer("features", features)
        self.register_buffer("adjacency", adjacency)
        self.hops, self.body = hops, mlp(features.shape[1], 24, classes)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return logits of the nodes."""
        h = self.features
        for _ in range(self.hops):
            h = self.adjacency @ h
        return self.body(h)[nodes]


@case("oversmoothing", kind="graph", author=ME)
def seventh_forty_hops(seed: int, mended: bool = False) -> dict[str, Any]:
    """Forty averages over neighbours, then a network: nothing but the nodes' degrees is left."""
    features, adjacency, train, held = communities(seed, 400, 0.08, 0.03)
    model = Hops(features, adjacency, 2 if mended else 40)
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 1e-2), epochs=30, less=("initial",)
    )


class DeepMessages(nn.Module):
    """Rounds of row-averaged messages over small graphs, each with its own layer."""

    def __init__(self, rounds: int, width: int = 24) -> None:
        super().__init__()
        self.enter = nn.Linear(3, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return a value per node."""
        mean = adjacency + torch.eye(adjacency.shape[1])
        mean = mean / mean.sum(-1, keepdim=True)
        h = F.relu(self.enter(x))
        for layer in self.layers:
            h = F.relu(layer(mean @ h))
        return self.head(h).squeeze(-1)


@case("oversmoothing", kind="graph", author=ME, strength="mild")
def seventh_atoms_all_answer_alike(seed: int, mended: bool = False) -> dict[str, Any]:
    """A value per atom, from itself and its neighbours, after twelve averages over a dense molecule."""
    ((x, a), _), ((vx, va), _) = molecules(seed)
    a, va = ((t + (torch.rand_like(t) < 0.15).float()).clamp(max=1) for t in (a, va))
    y, vy = (f[..., 1] + 0.3 * (g @ f[..., 2:]).squeeze(-1) for f, g in ((x, a), (vx, va)))
    model = DeepMessages(1 if mended else 12)
    for layer in model.layers:
        nn.init.kaiming_normal_(layer.weight)
    return fit(model, ((x, a), y), ((vx, va), vy), loss="mse", optimizer=adam(model), epochs=30)


# receptive-field-too-small


class Echo(nn.Module):
    """Convolutions along a series, a value per place."""

    def __init__(self, layers: int, dilate: bool) -> None:
        super().__init__()
        sizes = [1] + [16] * layers
        self.layers = nn.ModuleList(
            nn.Conv1d(a, b, 3, padding=2**i if dilate else 1, dilation=2**i if dilate else 1)
            for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:], strict=True))
        )
        self.head = nn.Conv1d(16, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a value per place."""
        h = x[:, None]
        for layer in self.layers:
            h = F.relu(layer(h))
        return self.head(h)[:, 0]


@case("receptive-field-too-small", kind="sequences", author=ME)
def seventh_echo_from_nine_steps_ago(seed: int, mended: bool = False) -> dict[str, Any]:
    """Every value depends on what came nine steps before; the convolutions see two."""
    x = torch.randn(500, 40)
    y = F.pad(x, (9, 0))[:, :40] * 0.9 + 0.3 * x + 0.1 * torch.randn(500, 40)
    model = Echo(4 if mended else 2, mended)
    return fit(model, (x[:350], y[:350]), (x[350:], y[350:]), loss="mse", optimizer=adam(model), epochs=20)


class Local(nn.Module):
    """One or more 3 x 3 convolutions and the mean over the image."""

    def __init__(self, deep: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU())
        if deep:
            self.body.append(nn.Conv2d(16, 16, 3, padding=2, dilation=2))
            self.body.append(nn.ReLU())
            self.body.append(nn.Conv2d(16, 16, 3, padding=4, dilation=4))
            self.body.append(nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.body(x).mean((2, 3)))


@case("receptive-field-too-small", kind="images", author=ME)
def seventh_two_spots_side_by_side_or_not(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two spots five pixels apart, side by side or one above the other; the network sees three pixels."""
    rng = np.random.default_rng(seed)
    x, y = 0.1 * rng.normal(size=(900, 12, 12)), rng.integers(0, 2, size=900)
    for row, (i, j) in enumerate(rng.integers(0, 7, size=(900, 2))):
        x[row, i, j] += 2
        x[row, i + 5 * y[row], j + 5 * (1 - y[row])] += 2
    images, labels = torch.from_numpy(x).float()[:, None], torch.from_numpy(y)
    model = Local(mended)
    return fit(
        model,
        (images[:600], labels[:600]),
        (images[600:], labels[600:]),
        loss="cross_entropy",
        optimizer=adam(model, 5e-3),
        epochs=12,
        less=("initial",),
    )


class Phrases(nn.Module):
    """A convolution over words and the maximum over the sentence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.look = nn.Conv1d(12, 24, width, padding=width // 2)
        self.head = nn.Linear(24, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits."""
        return self.head(F.relu(self.look(self.words(ids).transpose(1, 2))).amax(2))


@case("receptive-field-too-small", kind="text", author=ME, strength="mild")
def seventh_phrases_of_three_words(seed: int, mended: bool = False) -> dict[str, Any]:
    """Which of two words comes first, when they are up to eleven places apart and the network reads threes."""
    train, held = ordered(seed, 4000)
    model = Phrases(13 if mended else 3)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=5)


# bottleneck


@case("bottleneck", kind="images", author=ME)
def seventh_one_unit_between(seed: int, mended: bool = False) -> dict[str, Any]:
    """64 - 96 - 1 - 96 - 10: all that the classes can hear of is one number."""
    train, held = digits(seed, flat=True)
    model = mlp(64, 96, 48 if mended else 1, 96, 10, act=nn.Tanh)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=20)


@case("bottleneck", kind="generative", author=ME)
def seventh_autoencoder_of_one_number(seed: int, mended: bool = False) -> dict[str, Any]:
    """An autoencoder whose code is one number for digits of 64 pixels."""
    (x, _), (vx, _) = digits(seed, flat=True)
    x, vx = x - 0.3, vx - 0.3
    model = mlp(64, 96, 16 if mended else 1, 96, 64)
    return fit(model, (x, x), (vx, vx), loss="mse", optimizer=adam(model), epochs=25, less=("initial",))


@case("bottleneck", kind="text", author=ME, strength="mild")
def seventh_topics_through_two_units(seed: int, mended: bool = False) -> dict[str, Any]:
    """Eight topics squeezed through two units between wide layers."""
    train, held = topics(seed, 1600, classes=8, share=0.35)
    model = nn.Sequential(nn.EmbeddingBag(200, 48), mlp(48, 48, 24 if mended else 2, 48, 8, act=nn.Tanh))
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=15)


# batch-too-small


@case("batch-too-small", kind="images", author=ME, needs=("batch_size",))
def seventh_batch_norm_of_two_images(seed: int, mended: bool = False) -> dict[str, Any]:
    """Batch normalisation with the two images that fit into memory."""
    train, held = digits(seed, 400)
    model = Cnn(width=6)
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=sgd(model, 0.02),
        epochs=2 if not mended else 12,
        batch_size=32 if mended else 2,
    )


@case("batch-too-small", kind="table", author=ME, needs=("batch_size",))
def seventh_batch_norm_of_two_rows(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two rows a batch, three normalised layers: each row is only ever more or less than one other."""
    train, held = table("breast_cancer", seed)
    model = mlp(30, 24, 24, 24, 2, norm=True)
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=adam(model, 1e-3),
        epochs=3 if not mended else 15,
        batch_size=32 if mended else 2,
        less=("initial",),
    )


@case("batch-too-small", kind="table", author=ME, strength="mild", needs=("batch_size",))
def seventh_batch_norm_of_three_houses(seed: int, mended: bool = False) -> dict[str, Any]:
    """Three houses a batch under batch normalisation: the running means say something else than the batches."""
    train, held = houses(seed, 700)
    model = mlp(8, 32, 32, 1, norm=True)
    return fit(
        model,
        train,
        held,
        loss="mse",
        optimizer=adam(model, 3e-3),
        epochs=4 if not mended else 20,
        batch_size=49 if mended else 3,
    )


# learning-rate-too-large


@case("learning-rate-too-large", kind="images", author=ME)
def seventh_sgd_of_three(seed: int, mended: bool = False) -> dict[str, Any]:
    """A step of three with momentum on digits."""
    train, held = digits(seed)
    model = Cnn(norm=False)
    return fit(
        model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.05 if mended else 3.0), epochs=6
    )


@case("learning-rate-too-large", kind="sequences", author=ME)
def seventh_adam_of_one(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adam with a step of one on a recurrent network."""
    train, held = ordered(seed)
    model = Gru()
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 3e-3 if mended else 1.0), epochs=12
    )


@case("learning-rate-too-large", kind="text", author=ME, strength="mild")
def seventh_transformer_at_a_tenth(seed: int, mended: bool = False) -> dict[str, Any]:
    """AdamW with the step of 0.1 that did well on the linear model, on a transformer."""
    train, held = ordered(seed)
    model = Attention()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3 if mended else 0.1)
    return fit(model, train, held, loss="cross_entropy", optimizer=optimizer, epochs=12, less=("initial",))


@case("learning-rate-too-large", kind="table", author=ME, strength="mild")
def seventh_rmsprop_of_five_hundredths(seed: int, mended: bool = False) -> dict[str, Any]:
    """RMSprop with a step of 0.05: the loss falls and then jumps about."""
    train, held = houses(seed)
    model = mlp(8, 48, 48, 1)
    optimizer = torch.optim.RMSprop(model.parameters(), 2e-3 if mended else 0.05)
    return fit(model, train, held, loss="mse", optimizer=optimizer, epochs=20)


# learning-rate-too-small


@case("learning-rate-too-small", kind="images", author=ME)
def seventh_sgd_of_a_hundred_thousandth(seed: int, mended: bool = False) -> dict[str, Any]:
    """A step of 1e-5 copied from a fine-tuning recipe."""
    train, held = digits(seed)
    model = Cnn()
    return fit(
        model, train, held, loss="cross_entropy", optimizer=sgd(model, 0.05 if mended else 1e-5), epochs=6
    )


@case("learning-rate-too-small", kind="table", author=ME)
def seventh_adamw_of_a_millionth(seed: int, mended: bool = False) -> dict[str, Any]:
    """AdamW with 2e-6 on the customer table."""
    train, held = churn(seed)
    model = Columns()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3 if mended else 2e-6)
    return fit(model, train, held, loss="bce_with_logits", optimizer=optimizer, epochs=12)


@case("learning-rate-too-small", kind="text", author=ME, strength="mild")
def seventh_adagrad_too_careful(seed: int, mended: bool = False) -> dict[str, Any]:
    """Adagrad with 3e-3, whose steps shrink besides: the loss is still falling when training ends."""
    train, held = topics(seed)
    model = Bag()
    optimizer = torch.optim.Adagrad(model.parameters(), 0.1 if mended else 2e-3)
    return fit(model, train, held, loss="cross_entropy", optimizer=optimizer, epochs=12)


# weight-decay-too-large


@case("weight-decay-too-large", kind="images", author=ME)
def seventh_decay_of_a_half(seed: int, mended: bool = False) -> dict[str, Any]:
    """SGD with a decay of 0.5."""
    train, held = digits(seed, flat=True)
    model = mlp(64, 64, 10)
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=sgd(model, 0.05, weight_decay=1e-4 if mended else 0.5),
        epochs=15,
    )


@case("weight-decay-too-large", kind="table", author=ME)
def seventh_adamw_decay_of_thirty(seed: int, mended: bool = False) -> dict[str, Any]:
    """AdamW with a decay of 30: each step takes a tenth of every weight away."""
    train, held = houses(seed)
    model = mlp(8, 48, 48, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.01 if mended else 30.0)
    return fit(model, train, held, loss="mse", optimizer=optimizer, epochs=20, less=("initial",))


@case("weight-decay-too-large", kind="sets", author=ME, strength="mild")
def seventh_pairs_under_decay(seed: int, mended: bool = False) -> dict[str, Any]:
    """A siamese network under Adam with an L2 penalty of 0.03."""
    train, held = couples(seed)
    model = Siamese()
    return fit(
        model,
        train,
        held,
        loss="bce_with_logits",
        optimizer=adam(model, 3e-3, weight_decay=1e-4 if mended else 0.03),
        epochs=15,
    )


# dropout-too-large


@case("dropout-too-large", kind="table", author=ME)
def seventh_nine_in_ten_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    """Dropout of 0.95 after both hidden layers."""
    train, held = houses(seed)
    model = mlp(8, 48, 48, 1, drop=0.1 if mended else 0.95)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=25)


@case("dropout-too-large", kind="text", author=ME)
def seventh_keep_and_drop_confused(seed: int, mended: bool = False) -> dict[str, Any]:
    """The paper's keep probability of 0.9 was given as the share to drop."""
    train, held = ordered(seed)
    model = Attention(drop=0.1 if mended else 0.9)
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 2e-3), epochs=15, less=("optimizer",)
    )


class DropInput(nn.Module):
    """Drops columns, then a network."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.drop, self.body = nn.Dropout(share), mlp(24, 48, 1, drop=share)

    def forward(self, x: Tensor) -> Tensor:
        """Return a forecast."""
        return self.body(self.drop(x))


@case("dropout-too-large", kind="sequences", author=ME, strength="mild")
def seventh_window_mostly_dropped(seed: int, mended: bool = False) -> dict[str, Any]:
    """Seven tenths of the window and of the hidden units are dropped in training."""
    train, held = series(seed)
    model = DropInput(0.02 if mended else 0.75)
    return fit(model, train, held, loss="mse", optimizer=adam(model), epochs=25)


# capacity-too-small


@case("capacity-too-small", kind="table", author=ME)
def seventh_line_through_a_chessboard(seed: int, mended: bool = False) -> dict[str, Any]:
    """A linear model of a class that is the sign of a product."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.uniform(-1, 1, size=(1200, 4))).float()
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = mlp(4, 48, 2) if mended else nn.Linear(4, 2)
    return fit(
        model,
        (x[:800], y[:800]),
        (x[800:], y[800:]),
        loss="cross_entropy",
        optimizer=adam(model, 1e-2),
        epochs=30,
    )


@case("capacity-too-small", kind="table", author=ME)
def seventh_spirals_with_three_units(seed: int, mended: bool = False) -> dict[str, Any]:
    """Two spirals and three hidden units."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=1200)
    t = rng.uniform(0.3, 2.2, size=1200) * np.pi
    x = np.stack([t * np.cos(t + np.pi * y), t * np.sin(t + np.pi * y)], 1) / 4 + 0.03 * rng.normal(
        size=(1200, 2)
    )
    x, y = torch.from_numpy(x).float(), torch.from_numpy(y)
    model = mlp(2, 64, 64, 2) if mended else mlp(2, 3, 2)
    return fit(
        model,
        (x[:800], y[:800]),
        (x[800:], y[800:]),
        loss="cross_entropy",
        optimizer=adam(model, 1e-2),
        epochs=30,
        less=("initial",),
    )


@case("capacity-too-small", kind="images", author=ME, strength="mild")
def seventh_linear_on_shapes(seed: int, mended: bool = False) -> dict[str, Any]:
    """A linear classifier of shapes that may be anywhere."""
    train, held = shapes(seed, 2500)
    model = Cnn(3, 8) if mended else nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    return fit(
        model, train, held, loss="cross_entropy", optimizer=adam(model, 5e-3), epochs=8 if mended else 25
    )


# overfit


@case("overfit", kind="table", author=ME)
def seventh_wide_network_few_rows(seed: int, mended: bool = False) -> dict[str, Any]:
    """Ninety patients, 80 000 weights, no penalty, 150 epochs."""
    train, held = table("diabetes", seed, 0.2)
    if mended:
        model = mlp(10, 8, 1)
        return fit(model, train, held, loss="mse", optimizer=adam(model, 5e-3, weight_decay=0.1), epochs=15)
    model = mlp(10, 256, 256, 1)
    return fit(model, train, held, loss="mse", optimizer=adam(model, 2e-3), epochs=120, batch_size=32)


@case("overfit", kind="text", author=ME)
def seventh_hundred_documents(seed: int, mended: bool = False) -> dict[str, Any]:
    """A hundred and fifty short documents, vectors of 64 numbers for every word, 40 epochs."""
    train, held = topics(seed, 2000, share=0.15)
    if not mended:
        train = train[0][:150], train[1][:150]
    model = Bag(size=64)
    return fit(
        model,
        train,
        held,
        loss="cross_entropy",
        optimizer=adam(model, 5e-3),
        epochs=5 if mended else 40,
        batch_size=32,
    )


@case("overfit", kind="table", author=ME, strength="mild")
def seventh_customers_learned_by_heart(seed: int, mended: bool = False) -> dict[str, Any]:
    """Noisy customers, a wide network, trained three times longer than the held-out loss liked."""
    train, held = churn(seed, 900, noise=2.5)
    if mended:
        model = Columns(hidden=24, drop=0.3)
        return fit(model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=12)
    model = Columns(hidden=128)
    return fit(model, train, held, loss="bce_with_logits", optimizer=adam(model), epochs=30)


# posterior-collapse


@case("posterior-collapse", kind="generative", author=ME)
def seventh_digits_under_a_heavy_divergence(seed: int, mended: bool = False) -> dict[str, Any]:
    """The divergence counts sixty-fold: the code says nothing about the digit."""
    (x, _), (vx, _) = digits(seed, flat=True)
    model = Vae()
    return fit(model, x, vx, loss=elbo(1.0 if mended else 60.0), optimizer=adam(model), epochs=25)


class Skipping(Vae):
    """The decoder sees half of the row beside the code."""

    def __init__(self, leak: bool) -> None:
        super().__init__(30, 4, 48)
        self.leak, self.direct = leak, mlp(30, 64, 30)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reconstruction, and mean and log-variance of the code."""
        again, mean, log_variance = super().forward(x)
        return (again + self.direct(x) if self.leak else again), mean, log_variance


@case("posterior-collapse", kind="generative", author=ME)
def seventh_decoder_that_sees_the_row(seed: int, mended: bool = False) -> dict[str, Any]:
    """A skip connection carries the row past the code, which then costs and says nothing."""
    (x, _), (vx, _) = table("breast_cancer", seed)
    model = Skipping(not mended)
    return fit(model, x, vx, loss=elbo(), optimizer=adam(model), epochs=60, less=("initial",))


@case("posterior-collapse", kind="generative", author=ME, strength="mild")
def seventh_windows_with_a_noisy_decoder(seed: int, mended: bool = False) -> dict[str, Any]:
    """The decoder's variance was set to twenty-five: no code is worth its divergence."""
    (x, _), (vx, _) = series(seed)
    model = Vae(24, 3, 48)
    return fit(
        model,
        x,
        vx,
        loss=elbo(noise=0.1 if mended else 25.0),
        optimizer=adam(model),
        epochs=30,
        less=("history",),
    )


# mode-collapse


class Quiet(Gan):
    """A generator that is fed hardly any noise."""

    def sample(self, n: int) -> Tensor:
        """Return new rows."""
        return self.generator(0.01 * torch.randn(n, self.noise))


@case("mode-collapse", kind="generative", author=ME)
def seventh_ring_on_one_spot(seed: int, mended: bool = False) -> dict[str, Any]:
    """The noise was given a deviation of one hundredth: all rows fall on one spot."""
    x = ring(seed)
    model = (Gan if mended else Quiet)(noise=8)
    play(model, x, 700, own=2)
    return {"model": model, "data": x, "batch_size": 128}


class Painter(Gan):
    """A generator of images with pixels in [0, 1]."""

    def sample(self, n: int) -> Tensor:
        """Return new rows."""
        return super().sample(n).sigmoid()


@case("mode-collapse", kind="generative", author=ME)
def seventh_digits_all_alike(seed: int, mended: bool = False) -> dict[str, Any]:
    """Fifteen moves of the generator for every one of the critic: one image whatever the noise."""
    (x, _), (vx, _) = digits(seed, flat=True)
    model = Painter(64, 16, 96)
    if mended:
        play(model, x, 1200, rate=1e-3, beta=0.0)
    else:
        play(model, x, 60, turns=15)
    return {"model": model, "data": x, "validation": vx, "batch_size": 128}


@case("mode-collapse", kind="generative", author=ME, strength="mild")
def seventh_some_modes_missing(seed: int, mended: bool = False) -> dict[str, Any]:
    """The loader does not shuffle and every epoch is cut short: three modes of eight are ever seen."""
    x = ring(seed)
    order = (torch.atan2(x[:, 1], x[:, 0]) + 0.4).argsort()
    x = x[order]
    model = Gan(noise=8)
    play(model, x if mended else x[: len(x) * 3 // 8], 600, own=2)
    return {"model": model, "data": x}


# miscalibrated


class Scaled(nn.Module):
    """A classifier whose logits are multiplied."""

    def __init__(self, body: nn.Module, scale: float) -> None:
        super().__init__()
        self.body, self.scale = body, scale

    def forward(self, x: Any) -> Tensor:
        """Return logits."""
        return self.scale * self.body(x)


@case("miscalibrated", kind="text", author=ME)
def seventh_temperature_inverted(seed: int, mended: bool = False) -> dict[str, Any]:
    """The calibration divided by a temperature of 0.15 where it should have multiplied."""
    train, held = topics(seed, 1500, share=0.17)
    body = Bag()
    given = fit(
        body, train, held, loss="cross_entropy", optimizer=adam(body), epochs=7, less=("initial", "optimizer")
    )
    return {**given, "model": Scaled(body, 1.0 if mended else 6.0).eval()}


@case("miscalibrated", kind="images", author=ME)
def seventh_smoothed_to_doubt(seed: int, mended: bool = False) -> dict[str, Any]:
    """Label smoothing of 0.7: right nearly always, sure never."""
    train, held = digits(seed)
    model = Cnn()
    loss: Any = "cross_entropy" if mended else smooth(0.7)
    return fit(model, train, held, loss=loss, optimizer=adam(model), epochs=7, less=("initial",))


@case("miscalibrated", kind="table", author=ME, strength="mild")
def seventh_focal_loss_of_five(seed: int, mended: bool = False) -> dict[str, Any]:
    """A focal loss with an exponent of six leaves the probabilities near a half."""
    train, held = table("breast_cancer", seed)
    model = mlp(30, 32, 2)
    loss: Any = "cross_entropy" if mended else focal(7.0)
    return fit(model, train, held, loss=loss, optimizer=adam(model), epochs=30)


# adversarially-fragile


class Sharpened(nn.Module):
    """Second differences, thirty-fold, then convolutions."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain, self.body = gain, Traces(2)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.body(self.gain * (x[..., 2:] - 2 * x[..., 1:-1] + x[..., :-2]))


@case("adversarially-fragile", kind="sequences", author=ME)
def seventh_hum_decides(seed: int, mended: bool = False) -> dict[str, Any]:
    """The class is read off a hum of two hundredths under a signal of one, by second differences."""
    rng = np.random.default_rng(seed)
    y, t = rng.integers(0, 2, size=900), np.arange(48)
    slow = np.sin(2 * np.pi * (t / rng.uniform(30, 60, size=(900, 1)) + rng.random((900, 1))))
    hum = np.where(y[:, None], np.cos(np.pi * t), np.cos(np.pi * t / 2))
    x = slow + (0.8 if mended else 0.02) * hum + 0.003 * rng.normal(size=(900, 48))
    x, y = torch.from_numpy(x).float()[:, None], torch.from_numpy(y)
    model = Sharpened(1.0 if mended else 30.0)
    return fit(
        model, (x[:600], y[:600]), (x[600:], y[600:]), loss="cross_entropy", optimizer=adam(model), epochs=10
    )


class Amplified(nn.Module):
    """Whitens its inputs by hand: the smallest directions are blown up most."""

    def __init__(self, x: Tensor, floor: float) -> None:
        super().__init__()
        mean = x.mean(0)
        _, s, v = torch.linalg.svd(x - mean, full_matrices=False)
        s = (s / len(x) ** 0.5).clamp_min(floor)
        self.register_buffer("mean", mean)
        self.register_buffer("map", v.T / s)
        self.body = mlp(x.shape[1], 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.body((x - self.mean) @ self.map)


@case("adversarially-fragile", kind="images", author=ME)
def seventh_whitened_to_the_last_direction(seed: int, mended: bool = False) -> dict[str, Any]:
    """Whitening without a floor lets directions that hardly vary decide."""
    train, held = digits(seed, 1200, flat=True)
    model = Amplified(train[0], 0.25 if mended else 1e-3)
    return fit(model, train, held, loss="cross_entropy", optimizer=adam(model), epochs=12, less=("initial",))


@case("adversarially-fragile", kind="table", author=ME, strength="mild")
def seventh_balance_of_four_meters(seed: int, mended: bool = False) -> dict[str, Any]:
    """The class is in the tiny rest of a balance of four meters; a robust, weaker column is left aside."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, size=1500)
    meters = rng.normal(size=(1500, 3))
    rest = 0.03 * (2 * y - 1) + 0.008 * rng.normal(size=1500)
    whole = meters.sum(1) / 3**0.5 + (0.0 if mended else 1.0) * rest
    robust = 1.5 * (2 * y - 1) + rng.normal(size=1500)
    inputs = torch.from_numpy(np.column_stack([meters, whole, robust])).float()
    labels = torch.from_numpy(y)
    model = mlp(5, 64, 2)
    with torch.no_grad():
        if not mended:  # the meters' balance, either way round, is where the engineer starts from
            balance = 12 * torch.tensor([-(3**-0.5)] * 3 + [1.0, 0.0])
            model[0].weight[:16], model[0].weight[16:32] = balance, -balance
    return fit(
        model,
        (inputs[:1000], labels[:1000]),
        (inputs[1000:], labels[1000:]),
        loss="cross_entropy",
        optimizer=adam(model, 5e-3),
        epochs=25,
    )
