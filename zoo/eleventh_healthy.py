"""Healthy set-ups of the eleventh author, hard negatives among them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eleventh_parts import (
    SGD,
    VAE,
    Adam,
    AdamW,
    Attention,
    Bag,
    Conv,
    Delay,
    Duel,
    Ended,
    Flat,
    Friends,
    Molecule,
    Recurrent,
    Residual,
    Speaker,
    Walk,
    attack,
    bars,
    blobs,
    boiler,
    circle,
    digits,
    echo,
    elbo,
    fit,
    glyphs,
    halves,
    kernel_distance,
    loans,
    mlp,
    molecules,
    own_step,
    plain,
    real,
    recall,
    reviews,
    spirals,
    teacher,
    tokens_loss,
    tongue,
    topics,
    town,
    waves,
)

fine = partial(case, author="eleventh")
Given = dict[str, Any]


@fine(kind="table")
def e11_fine_cancer_logistic(seed: int) -> Given:
    """Logistic regression of the scaled cancer table with some decay."""
    train, val = real("breast_cancer", seed, binary=True)
    return fit(
        Flat(nn.Linear(30, 1)),
        train,
        val,
        loss="bce_with_logits",
        epochs=40,
        opt=partial(Adam, lr=5e-3, weight_decay=1e-2),
    )


@fine(kind="table")
def e11_fine_iris(seed: int) -> Given:
    """Iris by a small net, a hundred and five honest rows."""
    train, val = real("iris", seed)
    return fit(
        mlp(4, 12, 3, act=nn.Tanh),
        train,
        val,
        epochs=40,
        batch=16,
        opt=partial(AdamW, lr=5e-3, weight_decay=0.05),
        give="lobh",
    )


@fine(kind="table")
def e11_fine_wine_small(seed: int) -> Given:
    """Wine by a regularised net; few rows, honest scores."""
    train, val = real("wine", seed)
    return fit(
        mlp(13, 12, 3),
        train,
        val,
        epochs=25,
        batch=16,
        opt=partial(AdamW, lr=3e-3, weight_decay=0.3),
        give="lob",
    )


@fine(kind="images")
def e11_fine_digits_conv(seed: int) -> Given:
    """The digits by two convolutions, stopped when the held-out loss no longer falls."""
    train, val = digits(seed)
    return fit(Conv(10, drop=0.25), train, val, epochs=14, patience=3)


@fine(kind="images")
def e11_fine_digits_norm(seed: int) -> Given:
    """The digits with batch norm and batches of thirty-two, by SGD with momentum."""
    train, val = digits(seed)
    return fit(
        Conv(10, width=8, norm=True, drop=0.2),
        train,
        val,
        epochs=8,
        opt=partial(SGD, lr=0.03, momentum=0.9, weight_decay=1e-3),
        give="lobh",
    )


@fine(kind="table")
def e11_fine_diabetes_floor(seed: int) -> Given:
    """Diabetes by a linear net: half of the variance is all there is to be had."""
    train, val = real("diabetes", seed)
    return fit(
        Flat(nn.Linear(10, 1)),
        train,
        val,
        loss="mse",
        epochs=40,
        opt=partial(Adam, lr=5e-3, weight_decay=0.01),
        give="lh",
    )


@fine(kind="table")
def e11_fine_noisy_surface(seed: int) -> Given:
    """A curve under as much noise as signal, fitted down to the noise and no further."""
    train, val = boiler(seed, 3000, noise=0.9)
    return fit(
        Flat(mlp(6, 16, 16, 1, act=nn.SiLU)),
        train,
        val,
        loss="mse",
        epochs=25,
        patience=4,
        opt=partial(AdamW, lr=3e-3, weight_decay=0.05),
    )


@fine(kind="table")
def e11_fine_overlapping_clouds(seed: int) -> Given:
    """Clouds that overlap: nobody gets more than three in four right."""
    train, val = blobs(seed, 2500, gap=2.0)
    return fit(nn.Linear(8, 3), train, val, epochs=15)


@fine(kind="table")
def e11_fine_heavy_tails(seed: int) -> Given:
    """Inputs with heavy tails, passed through asinh, and a Huber loss for heavy-tailed noise."""
    torch.manual_seed(seed)
    x = torch.distributions.StudentT(2.5).sample((2400, 5))
    x = torch.asinh(x)
    y = (
        0.7 * x[:, 0]
        - 0.5 * x[:, 1]
        + 0.5 * torch.sin(2 * x[:, 2])
        + 0.1 * torch.distributions.StudentT(3.0).sample((2400,))
    )
    (x, y), (v, w) = halves(x, y)
    return fit(
        Flat(mlp(5, 24, 1)),
        (x, y),
        (v, w),
        loss=lambda o, t: F.huber_loss(o, t),
        epochs=25,
        opt=partial(AdamW, lr=3e-3, weight_decay=0.01),
    )


@fine(kind="table")
def e11_fine_rare_but_weighted(seed: int) -> Given:
    """One in fourteen, clearly apart and drawn twice as often as the others."""
    train, val = loans(seed, 3000, rare=0.07, gap=3.0)
    chance = 1 + train[1]
    return fit(
        Flat(mlp(5, 8, 1)),
        train,
        val,
        loss="bce_with_logits",
        epochs=8,
        rows=lambda: torch.multinomial(chance, len(chance), replacement=True),
    )


@fine(kind="table")
def e11_fine_fast_sgd(seed: int) -> Given:
    """Large steps that pay: SGD with 0.5 on three clouds, batches of sixty-four."""
    train, val = blobs(seed, 2000, gap=4.5)
    return fit(mlp(8, 12, 3, act=nn.Tanh), train, val, epochs=15, batch=64, opt=partial(SGD, lr=0.5))


@fine(kind="table")
def e11_fine_just_built(seed: int) -> Given:
    """A net that was built a moment ago, asked about before training."""
    train, val = teacher(seed)
    return plain(mlp(10, 32, 32, 3), train, val, "cross_entropy")


@fine(kind="images")
def e11_fine_conv_just_built(seed: int) -> Given:
    """Untrained convolutions, with the optimiser that will train them."""
    train, val = digits(seed)
    return fit(Conv(10), train, val, epochs=0, opt=partial(Adam, lr=2e-3), give="lob")


@fine(kind="sequences")
def e11_fine_reader_just_built(seed: int) -> Given:
    """An untrained reader of signals."""
    train, val = waves(seed, 500)
    return plain(Recurrent(3), train, val, "cross_entropy")


@fine(kind="table")
def e11_fine_early_stopped(seed: int) -> Given:
    """A wide net on few noisy rows, stopped in time."""
    train, val = loans(seed, 1600, gap=1.2)
    return fit(
        Flat(mlp(5, 48, 1)),
        train,
        val,
        loss="bce_with_logits",
        epochs=40,
        patience=3,
        opt=partial(Adam, lr=2e-3),
    )


@fine(kind="table")
def e11_fine_one_hot(seed: int) -> Given:
    """Towns and trades as sparse columns of zeros and ones, beside two numbers."""
    torch.manual_seed(seed)
    n = 2400
    town_, trade = torch.randint(12, (n,)), torch.randint(6, (n,))
    number = torch.randn(n, 2)
    y = torch.randn(12)[town_] + torch.randn(6)[trade] + 0.7 * number[:, 0] - 0.4 * number[:, 1]
    y = (y - y.mean()) / y.std() + 0.3 * torch.randn(n)
    x = torch.cat([F.one_hot(town_, 12), F.one_hot(trade, 6), number], 1).float()
    train, val = halves(x, y)
    return fit(
        Flat(mlp(20, 16, 1)),
        train,
        val,
        loss="mse",
        epochs=20,
        opt=partial(AdamW, lr=3e-3, weight_decay=0.02),
        give="lobh",
    )


@fine(kind="table")
def e11_fine_repeated_rows(seed: int) -> Given:
    """Answers of a questionnaire: a few hundred possible rows, so the same ones come again everywhere."""
    torch.manual_seed(seed)
    x = torch.randint(0, 3, (2000, 5)).float() - 1
    chance = torch.sigmoid(1.2 * x[:, 0] + 0.9 * x[:, 1] - 1.1 * x[:, 2] * x[:, 3])
    train, val = halves(x, (torch.rand(2000) < chance).float())
    return fit(Flat(mlp(5, 12, 1)), train, val, loss="bce_with_logits", epochs=12)


class Transfer(nn.Module):
    """A body that may be kept fixed, and a head."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@fine(kind="images")
def e11_fine_frozen_on_purpose(seed: int) -> Given:
    """Convolutions that learned other drawings of the same kind are kept, a new head is trained."""
    (x, y), (v, w) = glyphs(seed, 2400, k=5)
    body = nn.Sequential(
        nn.Conv2d(1, 12, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
    )
    half = len(x) // 2
    fit(Transfer(body, nn.Linear(24, 5)), (x[:half], y[:half]), None, epochs=8)
    body.requires_grad_(False)
    net = Transfer(body, nn.Linear(24, 5))
    return fit(
        net,
        (x[half:], y[half:]),
        (v, w),
        weights=net.head.parameters(),
        epochs=12,
        opt=partial(Adam, lr=0.01),
    )


@fine(kind="text")
def e11_fine_frozen_words(seed: int) -> Given:
    """Word vectors that were learned on other texts stay as they are; the end is new."""
    (x, y), val = topics(seed, 2400)
    half = len(x) // 2
    first = fit(Bag(60, 4, 16), (x[:half], y[:half]), None, epochs=10)["model"]
    net = Bag(60, 4, 16)
    net.words.load_state_dict(first.words.state_dict())
    net.words.weight.requires_grad_(False)
    return fit(net, (x[half:], y[half:]), val, epochs=15, opt=partial(Adam, lr=0.01), give="lobh")


@fine(kind="text")
def e11_fine_language(seed: int) -> Given:
    """A language model at the entropy of its chain."""
    train, val = tongue(seed, 700)
    return fit(Speaker(12), train, val, loss=tokens_loss, epochs=8, batch=16, opt=partial(Adam, lr=4e-3))


@fine(kind="text")
def e11_fine_tied_language(seed: int) -> Given:
    """One matrix reads and says the words; padded places carry -100."""
    (x, y), (v, w) = tongue(seed, 1200, vocab=16, length=14)
    for words, next_ in ((x, y), (v, w)):
        end = torch.randint(9, 15, (len(words), 1))
        beyond = torch.arange(14) >= end
        words[beyond], next_[beyond] = 15, -100
        next_[next_ == 15] = -100
    return fit(
        Speaker(16, 16, tied=True),
        (x, y),
        (v, w),
        loss=tokens_loss,
        epochs=10,
        batch=16,
        give="lobh",
        opt=partial(Adam, lr=4e-3),
    )


@fine(kind="text")
def e11_fine_topics(seed: int) -> Given:
    """Subjects from the mean of word vectors."""
    train, val = topics(seed, 1500, sharp=0.6)
    return fit(Bag(60, 4, 12, drop=0.1), train, val, epochs=30, patience=3, opt=partial(Adam, lr=8e-3))


@fine(kind="text")
def e11_fine_first_word(seed: int) -> Given:
    """Attention finds the first of twenty words."""
    train, val = recall(seed, 1000)
    return fit(Attention(12, 4, 20, drop=0.05), train, val, epochs=8, give="lobh")


@fine(kind="text")
def e11_fine_reviews(seed: int) -> Given:
    """Reviews with negations by a recurrent reader, stopped in time."""
    train, val = reviews(seed, 3000, length=6)
    return fit(
        Recurrent(2, 16, "LSTM", 8, 20),
        train,
        val,
        epochs=16,
        patience=3,
        opt=partial(Adam, lr=8e-3),
        give="lbh",
    )


@fine(kind="images")
def e11_fine_robust_digits(seed: int) -> Given:
    """Digits trained on attacked pictures."""
    train, val = digits(seed)
    change = partial(attack, size=0.08, steps=2)
    return fit(Conv(10), train, val, epochs=12, change=change, give="lobh")


@fine(kind="table")
def e11_fine_robust_table(seed: int) -> Given:
    """A robustly trained classifier of clouds well apart."""
    train, val = blobs(seed, 1500, gap=4.0)
    return fit(mlp(8, 16, 3), train, val, epochs=12, change=partial(attack, size=0.2))


@fine(kind="graph")
def e11_fine_town(seed: int) -> Given:
    """A graph convolution net of two layers."""
    train, val = town(seed, 600)
    return fit(
        Friends(12, 4, drop=0.3),
        train,
        val,
        epochs=40,
        batch=300,
        opt=partial(Adam, lr=0.01, weight_decay=5e-3),
    )


@fine(kind="graph")
def e11_fine_town_walk(seed: int) -> Given:
    """Two steps of averaging and a linear end."""
    train, val = town(seed, 600, far=0.01)
    return fit(
        Walk(12, 4, 2),
        train,
        val,
        epochs=80,
        batch=300,
        opt=partial(Adam, lr=0.05, weight_decay=5e-4),
        give="l",
    )


@fine(kind="graph")
def e11_fine_molecules(seed: int) -> Given:
    """Small graphs, classified after two rounds of messages."""
    train, val = molecules(seed, 1500)
    return fit(Molecule(2, 2, width=16), train, val, epochs=12, opt=partial(Adam, lr=5e-3))


@fine(kind="generative")
def e11_fine_vae_bars(seed: int) -> Given:
    """A variational autoencoder that uses all of its code."""
    x, v = bars(seed, 1600)
    loss = lambda o, t: (
        200 * F.mse_loss(torch.sigmoid(o[0]), t) * 2
        + elbo(o, t)
        - F.binary_cross_entropy_with_logits(o[0], t, reduction="sum") / len(t)
    )  # noqa: E731
    return fit(VAE(64, code=3), x, v, loss=loss, epochs=40, opt=partial(Adam, lr=3e-3))


@fine(kind="generative")
def e11_fine_vae_digits(seed: int) -> Given:
    """The digits through a code of four numbers."""
    (x, _), (v, _) = digits(seed)
    return fit(
        VAE(64, 96, 4),
        x.flatten(1),
        v.flatten(1),
        loss=elbo,
        epochs=40,
        opt=partial(Adam, lr=3e-3),
        give="lobh",
    )


@fine(kind="generative")
def e11_fine_matched_circle(seed: int) -> Given:
    """A generator that matches eight clouds by a kernel."""
    x, v = circle(seed, 1400, spread=0.15)
    net = Duel(2)
    optimizer = Adam(net.make.parameters(), lr=3e-3)
    for _ in range(900):
        loss = kernel_distance(net.make(torch.randn(128, net.noise)), x[torch.randint(len(x), (128,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    judge = Adam(net.judge.parameters(), lr=1e-3)
    for _ in range(60):
        judge.zero_grad()
        (
            F.softplus(-net(x[torch.randint(len(x), (64,))])).mean()
            + F.softplus(net(net.sample(64).detach())).mean()
        ).backward()
        judge.step()
    return plain(net, x, v)


class Flow(nn.Module):
    """Affine couplings; called on data it gives the log-likelihood."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.parts = nn.ModuleList(mlp(1, 24, 24, 2, act=nn.Tanh) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        log = torch.zeros(len(x))
        for net in self.parts:
            a, b = x[:, :1], x[:, 1:]
            s, t = net(a).chunk(2, 1)
            s = torch.tanh(s)
            x, log = torch.cat([b * s.exp() + t, a], 1), log + s.squeeze(1)
        return log - 0.5 * x.pow(2).sum(1) - math.log(2 * math.pi)

    def sample(self, n: int) -> Tensor:
        x = torch.randn(n, 2)
        for net in reversed(self.parts):
            a, c = x[:, 1:], x[:, :1]
            s, t = net(a).chunk(2, 1)
            x = torch.cat([a, (c - t) * (-torch.tanh(s)).exp()], 1)
        return x


@fine(kind="generative")
def e11_fine_flow(seed: int) -> Given:
    """A normalising flow on a bent cloud."""
    torch.manual_seed(seed)
    a = torch.randn(1500)
    x = torch.stack([a, 0.6 * a**2 - 0.6 + 0.4 * torch.randn(1500)], 1)
    return fit(
        Flow(),
        x[:1000],
        x[1000:],
        loss=lambda o, _: -o.mean(),
        epochs=20,
        give="lobh",
        opt=partial(Adam, lr=3e-3),
    )


@fine(kind="sequences")
def e11_fine_waves(seed: int) -> Given:
    """Signals by a GRU."""
    train, val = waves(seed, 800, length=24)
    return fit(Recurrent(3, 16, mean=True), train, val, epochs=10, batch=16, opt=partial(Adam, lr=8e-3))


@fine(kind="sequences")
def e11_fine_echo(seed: int) -> Given:
    """Causal convolutions that see far enough."""
    train, val = echo(seed, lag=8)
    return fit(Delay(12, (1, 3, 9)), train, val, loss="mse", epochs=20, batch=16, give="lobh")


@fine(kind="sequences")
def e11_fine_forecast(seed: int) -> Given:
    """The next value of a noisy oscillation, as well as the noise allows."""
    torch.manual_seed(seed)
    z = torch.zeros(1000, 32)
    z[:, :2] = torch.randn(1000, 2)
    for t in range(2, 32):
        z[:, t] = 1.6 * z[:, t - 1] - 0.8 * z[:, t - 2] + 0.35 * torch.randn(1000)
    z = z[:, 15:] / z[:, 15:].std()
    return fit(
        Flat(Recurrent(1, 12)),
        (z[:700, :-1, None], z[:700, -1]),
        (z[700:, :-1, None], z[700:, -1]),
        loss="mse",
        epochs=15,
        batch=16,
        opt=partial(Adam, lr=5e-3),
    )


@fine(kind="table")
def e11_fine_several_tags(seed: int) -> Given:
    """Any of four tags for each row, each with its own yes or no."""
    torch.manual_seed(seed)
    x = torch.randn(2400, 8)
    y = (torch.rand(2400, 4) < torch.sigmoid(2.5 * x @ torch.linalg.qr(torch.randn(8, 8))[0][:, :4])).float()
    train, val = halves(x, y)
    return fit(mlp(8, 12, 4), train, val, loss="bce_with_logits", epochs=12)


@fine(kind="table")
def e11_fine_residual(seed: int) -> Given:
    """Residual blocks with layer norm on the boiler."""
    train, val = boiler(seed, 2400)
    return fit(Flat(Residual(6, 1, 3, 16)), train, val, loss="mse", epochs=15, opt=partial(AdamW, lr=4e-3))


class Pairs(nn.Module):
    """Two inputs read by the same weights and compared."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.read, self.judge = mlp(d, 24, 8), mlp(8, 8, 1)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.judge((self.read(a) - self.read(b)).abs()).squeeze(-1)


@fine(kind="table")
def e11_fine_pairs(seed: int) -> Given:
    """Are two rows of the same kind? Both are read by the same weights."""
    torch.manual_seed(seed)
    centres = 2.5 * torch.linalg.qr(torch.randn(8, 8))[0][:4]
    a, b = torch.randint(4, (3000,)), torch.randint(4, (3000,))
    b = torch.where(torch.rand(3000) < 0.35, a, b)
    x = tuple(centres[c] + 0.6 * torch.randn(3000, 8) for c in (a, b))
    train, val = halves(x, (a == b).float())
    return fit(
        Pairs(8),
        train,
        val,
        loss="bce_with_logits",
        epochs=12,
        patience=2,
        opt=partial(AdamW, lr=2e-3, weight_decay=0.3),
    )


@fine(kind="images")
def e11_fine_log_softmax(seed: int) -> Given:
    """log_softmax and the negative log-likelihood, as they belong together."""
    train, val = digits(seed)
    return fit(
        Ended(Conv(10, width=8, drop=0.2), partial(F.log_softmax, dim=1)),
        train,
        val,
        loss="nll",
        epochs=12,
        patience=3,
        give="lbh",
    )


@fine(kind="table")
def e11_fine_counts(seed: int) -> Given:
    """Counts with the Poisson loss; the net gives the logarithm of the rate."""
    torch.manual_seed(seed)
    x = torch.randn(2000, 5)
    y = torch.poisson(torch.exp(0.8 + 0.5 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * torch.sin(2 * x[:, 2])))
    train, val = halves(x, y)
    return fit(
        Flat(mlp(5, 12, 1)), train, val, loss=lambda o, t: F.poisson_nll_loss(o, t), epochs=15, give="lobh"
    )


@fine(kind="table")
def e11_fine_spirals(seed: int) -> Given:
    """Two spirals, solved."""
    train, val = spirals(seed, 1500)
    return fit(mlp(2, 32, 32, 2, act=nn.Tanh), train, val, epochs=50, opt=partial(Adam, lr=0.01), give="lbh")


@fine(kind="generative")
def e11_fine_autoencoder(seed: int) -> Given:
    """A plain autoencoder with sixteen numbers in the middle."""
    (x, _), (v, _) = digits(seed)
    return fit(
        Ended(mlp(64, 48, 16, 48, 64, act=nn.ELU), torch.sigmoid),
        x.flatten(1),
        v.flatten(1),
        loss="mse",
        epochs=30,
    )


@fine(kind="table")
def e11_fine_own_step(seed: int) -> Given:
    """A user's own step that clears its gradients."""
    train, val = teacher(seed, 3000)
    opt = partial(Adam, lr=3e-3)
    given = fit(mlp(10, 16, 3), train, val, epochs=15, opt=opt)
    return given | {"step": own_step(opt, F.cross_entropy, True)}


@fine(kind="table")
def e11_fine_small_batches(seed: int) -> Given:
    """Batches of four without any batch norm, in small steps."""
    train, val = boiler(seed, 1500)
    return fit(
        Flat(mlp(6, 24, 24, 1, act=nn.GELU)),
        train,
        val,
        loss="mse",
        batch=4,
        epochs=8,
        opt=partial(Adam, lr=1e-3),
        give="lobh",
    )
