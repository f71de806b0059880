"""Healthy trainings, many of which look like a fault at first sight, by the second author."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.second_parts import *  # noqa: F403

ME = "second"


def column(out, y):
    return F.mse_loss(out.squeeze(-1), y)


@case(kind="table", author=ME)
def b_ok_wine_with_skips(seed):
    """Standardised wine, residual MLP, early enough stopped."""
    train, val, test = wine(seed)
    model = SkipMLP(13, 24, 3, 2)
    start = start_of(model)
    opt = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.05)
    history = fit(model, *train, F.cross_entropy, opt, epochs=10, batch=16, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=16,
        history=history,
        initial=start,
    )


@case(kind="sequences", author=ME)
def b_ok_gru_on_waves(seed):
    """Frequencies by a GRU."""
    train, val, test = signals(seed, 600, 32, 3, 0.2)
    model = Recurrent(1, 24, 3)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit(model, *train, F.cross_entropy, opt, epochs=14, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=nn.CrossEntropyLoss(),
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case(kind="graph", author=ME)
def b_ok_gcn_on_blocks(seed):
    """Two graph convolutions on a stochastic block model, labels of other nodes hidden by -100."""
    X, A, (train, val, test) = sbm(seed)
    model = GCN(drop=0.3)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 0.01, weight_decay=5e-4)
    history = fit_graph(model, X, A, train, opt, 70, val)
    held(acc(model, (X, A), test))
    return dict(
        model=model,
        data=((X, A), train),
        validation=((X, A), val),
        loss="cross_entropy",
        optimizer=opt,
        history=history,
        initial=start,
    )


@case(kind="generative", author=ME)
def b_ok_vae_on_digits(seed):
    """A VAE whose code is used: some dimensions may be idle, most are not."""
    train, val, test = digits(seed, 800, flat=True)

    def loss(out, x):
        recon, mean, log_variance = out
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy(recon, x, reduction="none").sum(1).mean() + kl

    model = VAE(latent=4)
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    history = fit(model, train[0], train[0], loss, opt, epochs=20)
    held(r2(model, test[0], test[0]))
    return dict(
        model=model,
        data=train[0],
        validation=val[0],
        loss=loss,
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case(kind="images", author=ME)
def b_ok_pretrained_backbone_frozen(seed):
    """The convolutions were trained on digits 5 to 9 before and are frozen on purpose; the head for 0 to 4 does well."""
    (X, y), (vx, vy), (tx, ty) = digits(seed, 1200)
    model = SmallCNN(5)
    old = y > 4
    fit(model, X[old], y[old] - 5, F.cross_entropy, torch.optim.Adam(model.parameters(), 4e-3), epochs=4)
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("head"))
    model.head.reset_parameters()
    start = start_of(model)
    opt = torch.optim.Adam(model.head.parameters(), 0.01)
    train, val, test = (X[~old], y[~old]), (vx[vy < 5], vy[vy < 5]), (tx[ty < 5], ty[ty < 5])
    history = fit(model, *train, F.cross_entropy, opt, epochs=6, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case(kind="table", author=ME)
def b_ok_overlapping_classes(seed):
    """Three classes overlap and 75 % is the best possible; the net reaches it and is calibrated."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 3, 1500)
    X = g.normal(size=(1500, 6)) + 1.7 * np.eye(3, 6)[y]
    train, val, test = three(X.astype("float32"), y, seed)
    model = mlp(6, 16, 3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=5, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case(kind="images", author=ME)
def b_ok_fast_sgd(seed):
    """Plain SGD at 0.5 on a net with batch normalisation: fast, noisy, and fine."""
    train, val, test = digits(seed, 1000)
    model = nn.Sequential(nn.Flatten(), mlp(64, 64, 10, norm=nn.BatchNorm1d))
    start = start_of(model)
    opt = torch.optim.SGD(model.parameters(), 0.4)
    history = fit(model, *train, F.cross_entropy, opt, epochs=8, batch=64, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=64,
        history=history,
        initial=start,
    )


@case(kind="table", author=ME)
def b_ok_untrained_regression(seed):
    """A fresh regression net with its optimiser, before the first step."""
    train, val, _ = friedman(seed)
    model = SkipMLP(8, 32, 1)
    return dict(
        model=model.eval(),
        data=train,
        validation=val,
        loss=column,
        optimizer=torch.optim.Adam(model.parameters(), 3e-3),
        batch_size=32,
    )


@case(kind="images", author=ME)
def b_ok_log_softmax_before_cross_entropy(seed):
    """log_softmax before cross_entropy looks like a double softmax, but log_softmax of it changes nothing."""
    train, val, test = digits(seed, 900)
    model = nn.Sequential(SmallCNN(), nn.LogSoftmax(-1))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=6)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


class ScalesItself(nn.Module):
    """Standardises its inputs and restores the units of its target inside."""

    def __init__(self, X, y, body):
        super().__init__()
        for name, value in (("m", X.mean(0)), ("s", X.std(0)), ("ym", y.mean()), ("ys", y.std())):
            self.register_buffer(name, value)
        self.body = body

    def forward(self, x):
        return self.body((x - self.m) / self.s) * self.ys + self.ym


@case(kind="table", author=ME)
def b_ok_batch_norm_on_raw_inputs(seed):
    """Raw clinical units, but the first layer is a batch normalisation: as good as standardised."""
    train, val, test = cancer(seed, scale=False)
    model = nn.Sequential(nn.BatchNorm1d(30, affine=False), mlp(30, 16, 2))
    opt = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.05)
    history = fit(model, *train, F.cross_entropy, opt, epochs=7, val=val, drop_last=True)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


class Tagger(nn.Module):
    def __init__(self, vocabulary=60, width=16, tags=3):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, tags)

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0]).transpose(1, 2)


@case(kind="text", author=ME)
def b_ok_tagger_with_padding(seed):
    """A tag per word by a bidirectional GRU; padding is labelled -100 and padded ids are 0."""
    g = np.random.default_rng(seed)
    X = g.integers(1, 60, (400, 14))
    before = np.concatenate([np.zeros((400, 1), int), X[:, :-1]], 1)
    y = np.where(before < 12, 2, (X % 2 == 0).astype(int))
    pad = np.arange(14)[None] >= g.integers(8, 15, 400)[:, None]
    X[pad], y[pad] = 0, -100
    train, val, test = three(X, y, seed)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit(model, *train, F.cross_entropy, opt, epochs=8, val=val)
    with torch.no_grad():
        keep = test[1] >= 0
        held((model(test[0]).argmax(1)[keep] == test[1][keep]).float().mean())
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case(kind="images", author=ME)
def b_ok_dropout_of_one_half(seed):
    """A wide net with the usual dropout of one half: training loss lies above validation loss, as it should."""
    train, val, test = digits(seed, 1000)
    model = nn.Sequential(nn.Flatten(), mlp(64, 256, 10, drop=0.5))
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case(kind="generative", author=ME)
def b_ok_autoencoder_with_the_right_code(seed):
    """A code of three for data of rank three: narrow on purpose, reconstructs all but the noise; tied weights."""
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(700, 3, generator=g) @ torch.randn(3, 20, generator=g) + 0.1 * torch.randn(
        700, 20, generator=g
    )

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.W = nn.Parameter(0.2 * torch.randn(3, 20))
            self.b = nn.Parameter(torch.zeros(20))

        def forward(self, x):
            return F.linear(F.linear(x, self.W), self.W.T, self.b)

    X, V, T = X[:450], X[450:570], X[570:]
    model = Tied()
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit(model, X, X, F.mse_loss, opt, epochs=20, val=(V, V))
    held(r2(model, T, T))
    return dict(
        model=model, data=(X, X), validation=(V, V), loss="mse", optimizer=opt, batch_size=32, history=history
    )


class Bags(nn.Module):
    """Categorical codes and numbers together: two inputs."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(500, 8, mode="mean")
        self.head = mlp(12, 24, 2)

    def forward(self, codes, numbers):
        return self.head(torch.cat([self.bag(codes), numbers], 1))


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.what, self.ink = mlp(64, 64, 48), nn.Linear(48, 10), nn.Linear(48, 1)

    def forward(self, x):
        h = F.relu(self.body(x.flatten(1)))
        return self.what(h), self.ink(h)


@case(kind="images", author=ME)
def b_ok_two_outputs(seed):
    """Logits and an auxiliary output (ink) as a tuple; the loss adds a small penalty on the second."""
    train, val, test = digits(seed, 1000)
    model = TwoHeads()
    loss = lambda out, y: F.cross_entropy(out[0], y) + 0.001 * out[1].pow(2).mean()  # noqa: E731
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, loss, opt, epochs=8, val=val)
    held(acc(model, *test))
    return dict(
        model=model, data=train, validation=val, loss=loss, optimizer=opt, batch_size=32, history=history
    )


@case(kind="sequences", author=ME)
def b_ok_windows_of_one_series(seed):
    """Overlapping windows of a load curve, split in time: neighbours resemble each other, which is no leak."""
    g = np.random.default_rng(seed)
    t = np.arange(560)
    s = (
        np.sin(2 * np.pi * t / 12) + 0.5 * np.sin(2 * np.pi * t / 7.3 + 1) + 0.2 * g.normal(size=560)
    ).astype("float32")
    X, y = torch.tensor(np.stack([s[i : i + 24] for i in range(530)])[:, None]), torch.tensor(s[24:554, None])
    train, val, test = (X[:340], y[:340]), (X[340:430], y[340:430]), (X[430:], y[430:])
    model = Recurrent(1, 16, 1)
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit(model, *train, F.mse_loss, opt, epochs=15, val=val)
    held(r2(model, *test))
    return dict(
        model=model, data=train, validation=val, loss="mse", optimizer=opt, batch_size=32, history=history
    )
