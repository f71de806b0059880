"""Healthy set-ups as they are met in industry, hard negatives among them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.fourteenth_course import Knocks, adversarial, fit_rows
from zoo.fourteenth_parts import *

ME = "fourteenth"

# ================================================================ tables


@case(kind="table", author=ME)
def plant_efficiency(seed):
    """An MLP on scaled process values, cosine schedule."""
    train, valid = sensors(start(seed), n=2200, keep=1700)
    return go(mlp(10, 64, 32, 1), train, valid, "mse", "all", epochs=30, lr=4e-3, cosine=True, wd=1e-5)


@case(kind="table", author=ME)
def plant_three_outputs_residual(seed):
    """Three outputs, residual blocks with layer norm."""
    train, valid = sensors(start(seed), n=2400, keep=1900, outputs=3)
    return go(
        Residual(10, 48, 3, 2),
        train,
        valid,
        "mse",
        "most",
        epochs=22,
        lr=3e-3,
        cosine=True,
        opt="adamw",
        wd=1e-2,
    )


@case(kind="table", author=ME)
def churn_with_one_hot_columns(seed):
    """Contract and payment as one-hot columns; weight decay; calibrated."""
    train, valid = churn(start(seed), n=3000, keep=2300)
    return go(mlp(13, 32, 2), train, valid, "cross_entropy", "all", epochs=25, lr=4e-3, wd=3e-4, cosine=True)


@case(kind="table", author=ME)
def churn_that_overlaps(seed):
    """Leaving is half chance: two thirds right is the best there is, and the net knows it."""
    train, valid = churn(start(seed), n=3600, keep=2800, sharp=0.7)
    return go(
        mlp(13, 12, 2), train, valid, "cross_entropy", "little", epochs=18, lr=3e-3, wd=1e-3, cosine=True
    )


@case(kind="table", author=ME)
def churn_one_logit(seed):
    """One logit, binary cross-entropy."""
    train, valid = churn(start(seed), n=3000, keep=2300)
    train, valid = ((x, y.float()[:, None]) for x, y in (train, valid))
    return go(
        mlp(13, 32, 1), train, valid, "bce_with_logits", "some", epochs=25, lr=4e-3, wd=3e-4, cosine=True
    )


def weighted(output, target):
    return F.cross_entropy(output, target, weight=torch.tensor([1.0, 9.0]))


@case(kind="table", author=ME)
def fraud_with_class_weights(seed):
    """One in ten is fraud; the weights of the loss say so."""
    g = start(seed)
    train, valid = payments(g, n=4000, keep=3000, rate=0.1)
    return go(mlp(12, 12, 2), train, valid, weighted, "most", epochs=12, lr=2e-3, wd=1e-3, cosine=True)


@case(kind="table", author=ME)
def rare_but_plain_faults(seed):
    """Six of a hundred parts are bad, and the columns show it: no weights are needed."""
    g = start(seed)
    y = (g.random(3000) < 0.06).astype(int)
    x = g.normal(size=(3000, 8))
    x[y == 1, :3] += 2.6
    train, valid = cut(t(x), i(y), 2200)
    return go(mlp(8, 8, 2), train, valid, "cross_entropy", "all", epochs=30, lr=4e-3, wd=1e-3, cosine=True)


@case(kind="table", author=ME)
def claims_by_poisson(seed):
    """Counts with a log rate and the Poisson loss."""
    train, valid = claims(start(seed), n=3600, keep=2800)
    return go(mlp(8, 32, 1), train, valid, poisson, "all", epochs=20, lr=2e-3, wd=1e-4, cosine=True)


@case(kind="table", author=ME)
def repair_costs_with_huber(seed):
    """Heavy tails: one in twenty costs is far off, and the loss is robust."""
    g = start(seed)
    (x, y), (xv, yv) = sensors(g, n=2200, keep=1700)
    y = y + t(g.standard_t(2, size=y.shape)) * 0.25
    yv = yv + t(g.standard_t(2, size=yv.shape)) * 0.25
    return go(mlp(10, 48, 24, 1), (x, y), (xv, yv), huber, "some", epochs=20, lr=3e-3, cosine=True, wd=1e-5)


@case(kind="table", author=ME)
def shops_with_embedded_codes(seed):
    """Two inputs: numbers, and the code of the shop through an embedding."""
    train, valid = shop(start(seed), n=2600, keep=2000)
    return go(Categories(), train, valid, "mse", "all", epochs=25, lr=4e-3, cosine=True, wd=1e-5)


@case(kind="table", author=ME)
def same_product_or_not(seed):
    """A siamese net with shared weights."""
    train, valid = pairs(start(seed), n=3000, keep=2300)
    return go(Siamese(), train, valid, "bce_with_logits", "most", epochs=20, lr=2e-2, wd=1e-5, cosine=True)


@case(kind="table", author=ME)
def fresh_net_for_the_plant(seed):
    """Not trained yet; a sane start."""
    train, valid = sensors(start(seed))
    return {"model": mlp(10, 48, 48, 1).eval(), "data": train, "validation": valid, "loss": "mse"}


@case(kind="images", author=ME)
def fresh_inspector(seed):
    """A CNN before its first step."""
    train, valid = inspection(start(seed))
    model = Inspector(norm=True).eval()
    return {"model": model, "data": train, "validation": valid, "loss": "cross_entropy"}


@case(kind="table", author=ME)
def plant_with_fast_sgd(seed):
    """SGD with momentum at a brisk rate that falls to zero."""
    train, valid = sensors(start(seed), n=2200, keep=1700)
    more = {"step": Step(lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=1e-4), F.mse_loss)}
    return go(
        mlp(10, 48, 24, 1),
        train,
        valid,
        "mse",
        "all",
        epochs=25,
        opt="sgd",
        lr=0.05,
        cosine=True,
        wd=1e-4,
        more=more,
    )


@case(kind="table", author=ME)
def answers_to_a_questionnaire(seed):
    """Five questions with three answers: rows repeat by nature, in training and in validation."""
    g = start(seed)
    x = g.integers(-1, 2, size=(3200, 5)).astype(float)
    score = 1.2 * x[:, 0] - x[:, 1] + 1.1 * x[:, 2] * x[:, 3]
    y = (g.random(3200) < 1 / (1 + np.exp(-1.5 * score))).astype(int)
    train, valid = cut(t(x), i(y), 2400)
    return go(mlp(5, 24, 2), train, valid, "cross_entropy", "most", epochs=20, lr=4e-3, wd=3e-4, cosine=True)


@case(kind="table", author=ME)
def wine_with_a_small_net(seed):
    """A small bundled table, a small net, weight decay."""
    from sklearn.datasets import load_wine

    g = start(seed)
    x, y = load_wine(return_X_y=True)
    order = g.permutation(len(y))
    x, y = x[order], y[order]
    x = (x - x[:120].mean(0)) / x[:120].std(0)
    train, valid = cut(t(x), i(y), 120)
    return go(
        mlp(13, 8, 3),
        train,
        valid,
        "cross_entropy",
        "all",
        epochs=25,
        lr=1e-2,
        batch=16,
        opt="adamw",
        wd=3e-2,
        best=True,
    )


@case(kind="table", author=ME)
def tumours_by_logistic_regression(seed):
    """One linear layer is right for this bundled table."""
    from sklearn.datasets import load_breast_cancer

    g = start(seed)
    x, y = load_breast_cancer(return_X_y=True)
    order = g.permutation(len(y))
    x, y = x[order], y[order]
    x = (x - x[:400].mean(0)) / x[:400].std(0)
    train, valid = cut(t(x), i(y), 400)
    return go(
        nn.Linear(30, 2),
        train,
        valid,
        "cross_entropy",
        "some",
        epochs=40,
        lr=5e-3,
        wd=1e-3,
        batch=32,
        cosine=True,
    )


@case(kind="text", author=ME)
def word_counts_mostly_zero(seed):
    """Sparse counts of words of a ticket, log-scaled."""
    g = start(seed)
    train, valid = tickets(g, n=2600, keep=2000, own=(2, 5))
    train, valid = ((torch.log1p(F.one_hot(x, 160).sum(1).float())[:, 1:], y) for x, y in (train, valid))
    seen = train[0].std(0) > 0
    train, valid = ((x[:, seen], y) for x, y in (train, valid))
    return go(
        mlp(int(seen.sum()), 32, 5), train, valid, "cross_entropy", "all", epochs=10, lr=3e-3, wd=1e-3, cosine=True
    )  # fmt: skip


@case(kind="table", author=ME)
def wide_net_with_dropout(seed):
    """Dropout of one half in a wide net, where it helps."""
    train, valid = sensors(start(seed), n=2000, keep=1500, noise=0.6)
    return go(mlp(10, 256, 256, 1, drop=0.4), train, valid, "mse", "most", epochs=30, lr=1.5e-3, cosine=True)


@case(kind="table", author=ME)
def six_residual_blocks(seed):
    """Six blocks with skip connections."""
    train, valid = churn(start(seed), n=2600, keep=2000)
    return go(
        Residual(13, 24, 2, 6, drop=0.1), train, valid, "cross_entropy", "all", epochs=10, lr=2e-3, opt="adamw", wd=0.05,
        cosine=True,
    )  # fmt: skip


@case(kind="table", author=ME)
def stopped_early(seed):
    """Training kept the weights of the best epoch."""
    train, valid = churn(start(seed), n=3200, keep=2500)
    return go(mlp(13, 24, 2), train, valid, "cross_entropy", "most", epochs=18, lr=3e-3, wd=3e-4, best=True)


@case(kind="table", author=ME)
def states_in_patches(seed):
    """Four states of a machine in many patches; enough tanh units."""
    g = start(seed)
    centres = g.normal(size=(12, 6)) * 2.2
    k = g.integers(0, 12, 2600)
    train, valid = cut(t(centres[k] + 0.6 * g.normal(size=(2600, 6))), i(k % 4), 2000)
    return go(
        mlp(6, 64, 4, act=nn.Tanh), train, valid, "cross_entropy", "little", epochs=30, lr=8e-3, cosine=True
    )


@case(kind="table", author=ME)
def several_tags_per_machine(seed):
    """Multi-label: four alarms, each on or off."""
    g = start(seed)
    x = g.normal(size=(3000, 10))
    score = x @ g.normal(size=(10, 4)) * 0.8 + np.stack(
        [x[:, 0] * x[:, 1], x[:, 2], -x[:, 3], x[:, 4] * x[:, 5]], 1
    )
    y = (g.random(score.shape) < 1 / (1 + np.exp(-1.6 * score))).astype(float)
    train, valid = cut(t(x), t(y), 2300)
    return go(
        mlp(10, 32, 4), train, valid, "bce_with_logits", "some", epochs=20, lr=3e-3, wd=1e-4, cosine=True
    )


# ================================================================ sequences


@case(kind="sequences", author=ME)
def demand_by_gru(seed):
    """Next day's sales of an article by a GRU, clipped gradients."""
    train, valid = demand(start(seed), n=1500, keep=1200, length=21)
    return go(
        Recurrent(4, 24, 1, "GRU"),
        train,
        valid,
        "mse",
        "all",
        epochs=18,
        batch=96,
        lr=1.5e-2,
        clip=1.0,
        cosine=True,
    )


@case(kind="sequences", author=ME)
def demand_by_lstm(seed):
    """The same by an LSTM."""
    train, valid = demand(start(seed), n=1500, keep=1200)
    return go(
        Recurrent(4, 32, 1, "LSTM"), train, valid, "mse", "little", epochs=24, lr=1e-2, clip=1.0, cosine=True
    )


@case(kind="sequences", author=ME)
def demand_by_convolution(seed):
    """A convolution over two weeks and a linear head."""
    train, valid = demand(start(seed), n=2400, keep=1900)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(4, 24, 14, stride=7)
            self.head = mlp(24 * 3 + 4, 32, 1)

        def forward(self, x):
            h = F.relu(self.conv(x.transpose(1, 2))).flatten(1)
            return self.head(torch.cat([h, x[:, -1]], 1))

    return go(Net(), train, valid, "mse", "most", epochs=30, lr=3e-3, cosine=True, wd=1e-5)


@case(kind="sequences", author=ME)
def bearing_by_wavenet(seed):
    """Strided convolutions with batch norm on vibration."""
    train, valid = waves(start(seed), n=1500, keep=1100)
    return go(
        WaveNet(width=10), train, valid, "cross_entropy", "all", epochs=10, lr=4e-3, cosine=True, wd=1e-4
    )


@case(kind="sequences", author=ME)
def bearing_in_noise(seed):
    """Loud noise: errors remain, and the probabilities say so."""
    train, valid = waves(start(seed), n=2600, keep=2100, noise=1.3, classes=3)
    return go(WaveNet(3, 6), train, valid, "cross_entropy", "some", epochs=8, lr=3e-3, cosine=True, wd=1e-3)


@case(kind="sequences", author=ME)
def knocks_with_dilations(seed):
    """Dilated kernels that see the whole wave."""
    train, valid = pulses(start(seed), n=1400, keep=1050)
    return go(
        Knocks((1, 2, 4, 8)), train, valid, "cross_entropy", "most", epochs=9, lr=5e-3, cosine=True, wd=1e-4
    )


@case(kind="sequences", author=ME)
def first_alarm_by_lstm(seed):
    """An LSTM keeps what the log began with for half a dozen steps."""
    train, valid = first_event(start(seed), n=1500, keep=1200, length=8)
    return go(
        Recurrent(4, 16, 3),
        train,
        valid,
        "cross_entropy",
        "all",
        epochs=18,
        lr=1e-2,
        clip=1.0,
        cosine=True,
        best=True,
    )


# ================================================================ texts and logs


@case(kind="text", author=ME)
def tickets_by_mean(seed):
    """Mean of word vectors."""
    train, valid = tickets(start(seed), n=2400, keep=1900)
    return go(
        Bag(160, 16, 5, 16, drop=0.2),
        train,
        valid,
        "cross_entropy",
        "all",
        epochs=12,
        lr=5e-3,
        wd=1e-5,
        cosine=True,
    )


@case(kind="text", author=ME)
def tickets_by_transformer(seed):
    """A transformer layer with dropout."""
    train, valid = tickets(start(seed), n=2400, keep=1900)
    return go(
        Attentive(width=16, drop=0.3),
        train,
        valid,
        "cross_entropy",
        "most",
        epochs=8,
        lr=4e-3,
        opt="adamw",
        wd=0.05,
        cosine=True,
    )


@case(kind="text", author=ME)
def padded_tickets(seed):
    """Tickets of different lengths, padded with zero, averaged over what is there."""
    g = start(seed)
    train, valid = tickets(g, n=2400, keep=1900)
    for x, _ in (train, valid):
        length = torch.as_tensor(g.integers(11, 21, len(x)))
        x[torch.arange(20)[None] >= length[:, None]] = 0

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(160, 16, padding_idx=0)
            self.net = mlp(16, 24, 5, drop=0.2)

        def forward(self, x):
            there = (x != 0).float()
            return self.net(self.words(x).sum(1) / there.sum(1, keepdim=True))

    return go(Net(), train, valid, "cross_entropy", "little", epochs=14, lr=5e-3, cosine=True, wd=1e-5)


@case(kind="text", author=ME)
def clicks_to_a_sale(seed):
    """Sessions that sell with a probability; mean of vectors, one layer."""
    train, valid = clicks(start(seed), n=3600, keep=2900, sharp=1.5)
    return go(
        Bag(40, 3, 2, 6), train, valid, "cross_entropy", "some", epochs=12, lr=6e-3, wd=5e-4, cosine=True
    )


@case(kind="text", author=ME)
def search_before_cart(seed):
    """The order of two clicks, by a GRU."""
    train, valid = ordered_clicks(start(seed), n=1500, keep=1200)
    return go(Clicker(), train, valid, "cross_entropy", "all", epochs=10, lr=1e-2, clip=1.0, cosine=True)


class Language(nn.Module):
    """A GRU language model whose last layer is its embedding."""

    def __init__(self, vocabulary=18, width=24):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, vocabulary)
        self.out.weight = self.words.weight
        nn.init.normal_(self.words.weight, 0, 0.3)

    def forward(self, x):
        return self.out(self.rnn(self.words(x))[0])


@case(kind="text", author=ME)
def log_language_model(seed):
    """Next event of a log; tied weights."""
    train, valid = log_lines(start(seed), n=700, keep=550)
    return go(Language(), train, valid, per_token, "all", epochs=14, lr=1e-2, cosine=True, clip=1.0)


@case(kind="text", author=ME)
def log_transformer(seed):
    """The same with a causal transformer."""
    train, valid = log_lines(start(seed), n=700, keep=550)
    model = Attentive(18, 24, 18, 24, causal=True)
    return go(model, train, valid, per_token, "most", epochs=12, lr=5e-3, cosine=True)


@case(kind="text", author=ME)
def log_tagger_with_padding(seed):
    """A tag for every event; padded places carry minus one hundred."""
    g = start(seed)
    x = g.integers(1, 20, size=(900, 15))
    y = (x + np.roll(x, 1, 1) * (np.arange(15) > 0)) % 3
    length = g.integers(8, 16, 900)
    gone = np.arange(15)[None] >= length[:, None]
    x[gone], y[gone] = 0, -100
    train, valid = cut(i(x), i(y), 700)

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 16, padding_idx=0)
            self.conv = nn.Conv1d(16, 64, 3, padding=1)
            self.out = mlp(64, 32, 3)

        def forward(self, x):
            return self.out(F.relu(self.conv(self.words(x).transpose(1, 2))).transpose(1, 2))

    return go(Tagger(), train, valid, per_token, "some", epochs=25, lr=8e-3, batch=32, cosine=True)


# ================================================================ images


@case(kind="images", author=ME)
def defects_by_cnn(seed):
    """Two convolutions; weight decay; enough pictures."""
    train, valid = inspection(start(seed), n=2000, keep=1600)
    return go(
        Inspector(width=10, drop=0.3),
        train,
        valid,
        "cross_entropy",
        "all",
        epochs=11,
        lr=3e-3,
        wd=1e-4,
        cosine=True,
    )


@case(kind="images", author=ME)
def defects_with_batch_norm(seed):
    """The same with batch norm."""
    train, valid = inspection(start(seed), n=1800, keep=1400, noise=0.5)
    return go(
        Inspector(width=8, norm=True, drop=0.3), train, valid, "cross_entropy", "little", epochs=7, lr=3e-3, wd=1e-4,
        cosine=True,
    )  # fmt: skip


@case(kind="images", author=ME)
def digits_by_cnn(seed):
    """Bundled digits."""
    train, valid = digits(start(seed), n=1797, keep=1400)
    return go(
        Inspector(10, 12, size=8, drop=0.3),
        train,
        valid,
        "cross_entropy",
        "most",
        epochs=14,
        lr=4e-3,
        cosine=True,
    )


@case(kind="images", author=ME)
def fine_tuned_on_a_new_line(seed):
    """A backbone trained on another line's pictures, frozen; a new head for three of the classes."""
    g = start(seed)
    model = Inspector(width=12)
    fit(
        model,
        *inspection(g, n=1500, keep=1400, noise=0.3)[0],
        "cross_entropy",
        epochs=10,
        lr=3e-3,
        cosine=True,
    )
    for p in (*model.c1.parameters(), *model.c2.parameters()):
        p.requires_grad_(False)
    model.head = nn.Linear(24 * 16, 3)
    (x, y), (xv, yv) = inspection(g, n=1700, keep=1300, noise=0.3)
    train, valid = (x[y > 0], y[y > 0] - 1), (xv[yv > 0], yv[yv > 0] - 1)
    return go(model, train, valid, "cross_entropy", "all", epochs=10, lr=3e-3, wd=1e-3, cosine=True)


@case(kind="images", author=ME)
def one_convolution_used_thrice(seed):
    """A shared convolution with a skip connection, used three times."""
    train, valid = inspection(start(seed), n=1600, keep=1300)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv2d(1, 12, 3, stride=2, padding=1)
            self.again = nn.Conv2d(12, 12, 3, padding=1)
            self.head = nn.Linear(12 * 16, 4)

        def forward(self, x):
            x = F.relu(self.enter(x))
            for _ in range(3):
                x = x + 0.5 * F.relu(self.again(x))
            return self.head(F.max_pool2d(x, 2).flatten(1))

    return go(Net(), train, valid, "cross_entropy", "some", epochs=10, lr=4e-3, wd=3e-4, cosine=True)


# ================================================================ graphs


@case(kind="graph", author=ME)
def account_groups_by_gcn(seed):
    """A GCN of two layers with dropout."""
    x, a, y, yv = accounts(start(seed), n=400)
    return go(
        GCN(), ((x, a), y), ((x, a), yv), "cross_entropy", "all", epochs=120, lr=1e-2, wd=1e-3, whole=True, cosine=True
    )  # fmt: skip


class Skipping(nn.Module):
    """Three graph layers that keep their own features; the adjacency is a buffer."""

    def __init__(self, a):
        super().__init__()
        self.register_buffer("a", a)
        self.enter, self.leave = nn.Linear(12, 16), nn.Linear(16, 3)
        self.near = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        x = F.relu(self.enter(x))
        for layer in self.near:
            x = x + F.relu(F.dropout(layer(self.a @ x), 0.3, self.training))
        return self.leave(x)


@case(kind="graph", author=ME)
def account_groups_with_skips(seed):
    """Graph layers with skip connections."""
    x, a, y, yv = accounts(start(seed), n=500, inside=0.05, signal=0.8)
    return go(
        Skipping(a), (x, y), (x, yv), "cross_entropy", "some", epochs=70, lr=1e-2, wd=5e-3, whole=True, cosine=True
    )  # fmt: skip


@case(kind="graph", author=ME)
def property_of_molecules(seed):
    """Messages along bonds for a batch of small molecules."""
    train, valid = molecules(start(seed), n=2000, keep=1600)
    return go(MoleculeNet(24), train, valid, "mse", "most", epochs=20, lr=4e-3, cosine=True)


# ================================================================ generative


@case(kind="generative", author=ME)
def machine_states_by_vae(seed):
    """A VAE of a table with three hidden states."""
    x, xv = factors(start(seed), n=2000, keep=1600)
    return fit_rows(VAE(16, 3), x, xv, elbo(1.0, 0.15), "all", epochs=30, lr=4e-3, cosine=True)


@case(kind="generative", author=ME)
def digits_by_vae(seed):
    """A VAE of small pictures."""
    (x, _), (xv, _) = digits(start(seed), n=1797, keep=1500)
    return fit_rows(
        VAE(64, 6, 96), x.flatten(1), xv.flatten(1), elbo(1.0, 0.15), "some", epochs=35, lr=4e-3, cosine=True
    )


@case(kind="generative", author=ME)
def plant_states_by_gan(seed):
    """A GAN that draws all operating states."""
    x = ring(start(seed), n=1200, modes=3, spread=0.4)
    model = GAN()
    adversarial(x, model, 900, 1e-3, 1e-3, 1, batch=96)
    return {"model": model.eval(), "data": x}


@case(kind="generative", author=ME)
def readings_by_autoencoder(seed):
    """An autoencoder with as many units in the middle as the machine has states."""
    x, xv = factors(start(seed), n=2400, keep=2000)
    model = nn.Sequential(mlp(16, 48, 3), mlp(3, 48, 16))
    return fit_rows(model, x, xv, "mse", "most", epochs=30, lr=4e-3, cosine=True)
