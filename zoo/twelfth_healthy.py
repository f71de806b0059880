"""Healthy set-ups of the twelfth author, many of which look suspicious."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from zoo import case
from zoo.twelfth_parts import (
    GCN,
    VAE,
    Attentive,
    Bag,
    Coder,
    Functional,
    Generator,
    Recurrent,
    Residual,
    ResidualCNN,
    Temporal,
    Transformer,
    Update,
    Wrapped,
    adam,
    adamw,
    chain,
    citations,
    clinic,
    clusters,
    cnn,
    elbo,
    fit,
    hand,
    load,
    loop,
    manifold,
    match,
    mlp,
    molecules,
    notes,
    rare,
    seeded,
    sensors,
    sgd,
    spectra,
    split,
    stamps,
    standard,
    tokens_loss,
    waves,
)


def healthy(kind):
    return case(kind=kind, author="twelfth")


# ---- tables ---------------------------------------------------------------------------------------------------------


@healthy("table")
def twelfth_clean_diagnosis(seed):
    """Three diagnoses from laboratory values, AdamW, a plain net."""
    train, held = clinic(seed, n=2500, noise=0.3)
    return hand(fit(mlp(8, 48, 32, 3), train, held, opt=adamw(3e-3, 0.02), epochs=14, schedule=True), "all")


@healthy("table")
def twelfth_clean_yield(seed):
    """A regression on sensors with a residual net."""
    train, held = sensors(seed, n=2500)
    return hand(fit(Residual(8, 1, width=24, depth=2), train, held, "mse", epochs=14, schedule=True), "all")


@healthy("table")
def twelfth_clean_yield_bare(seed):
    """The same with functional calls and a flat target, and nothing else handed over."""
    train, held = sensors(seed, n=2500, column=False)
    return hand(fit(Functional(8, 1, squeeze=True), train, held, "mse", epochs=14, schedule=True))


@healthy("table")
def twelfth_noise_floor(seed):
    """A weak linear effect under much measuring noise: a score of a quarter is all there is."""
    seeded(seed)
    x = torch.randn(3500, 5)
    y = 0.5 * (x @ torch.tensor([1.0, -0.6, 0.4, 0.2, 0.3]))[:, None] / 1.28 + 0.866 * torch.randn(3500, 1)
    train, held = split(x, y, 2500)
    return hand(
        fit(mlp(5, 12, 1), train, held, "mse", opt=adamw(2e-3, 0.05), epochs=15, schedule=True), "all"
    )


@healthy("table")
def twelfth_overlapping(seed):
    """Two overlapping groups, told apart as well as they can be."""
    seeded(seed)
    y = torch.randint(0, 2, (3500,))
    x = torch.randn(3500, 4) + 0.45 * (2 * y[:, None] - 1) * torch.tensor([1.0, 0.6, -0.6, 0.2])
    train, held = split(x, y, 2500)
    return hand(
        fit(mlp(4, 12, 2), train, held, opt=adamw(2e-3, 0.05), epochs=12, schedule=True),
        "optimizer",
        "batch_size",
    )


@healthy("table")
def twelfth_heavy_tails(seed):
    """Student-t measurements, whose far values are real."""
    seeded(seed)
    x = torch.distributions.StudentT(3.0).sample((3200, 6))
    y = standard(
        torch.tanh(x[:, 0]) + 0.5 * torch.tanh(x[:, 1] - x[:, 2]) + 0.3 * torch.sin(x[:, 3].clamp(-3, 3))
    )
    x = x / math.sqrt(3)
    train, held = split(x, y[:, None] + 0.2 * torch.randn(3200, 1), 2400)
    return hand(
        fit(
            mlp(6, 48, 48, 1, act=nn.Tanh),
            train,
            held,
            "mse",
            opt=adamw(3e-3, 0.02),
            epochs=18,
            schedule=True,
        ),
        "all",
    )


@healthy("table")
def twelfth_weighted_rare(seed):
    """An event of 6 per cent, with weights in the loss that bring it out."""
    train, held = rare(seed, n=3000, held=2000, share=0.06, apart=4.2)
    weights = torch.tensor([1.0, (train[1] == 0).sum() / (train[1] == 1).sum()])

    def weighted(output, target):
        return F.cross_entropy(output, target, weight=weights)

    return hand(
        fit(mlp(6, 16, 2), train, held, weighted, opt=adamw(2e-3, 0.05), epochs=10, schedule=True), "all"
    )


@healthy("table")
def twelfth_resampled_rare(seed):
    """The rare event's rows are drawn again until the groups are equal; held-out rows are as they come."""
    (x, y), held = rare(seed, n=3000, held=2000, share=0.08, apart=5.5)
    many, few = (y == 0).nonzero()[:, 0], (y == 1).nonzero()[:, 0]
    rows = torch.cat([many, few[torch.randint(0, len(few), (len(many),))]])
    rows = rows[torch.randperm(len(rows))]
    return hand(
        fit(
            mlp(6, 16, 2),
            (x[rows], y[rows]),
            held,
            opt=adamw(2e-3, 0.05),
            epochs=10,
            batch=128,
            schedule=True,
        ),
        "optimizer",
        "batch_size",
    )


@healthy("table")
def twelfth_mild_imbalance(seed):
    """One in five is ill, and they are found."""
    train, held = rare(seed, n=2500, held=1200, share=0.2, apart=4.0)
    return hand(fit(mlp(6, 16, 2), train, held, opt=adamw(2e-3, 0.02), epochs=10, schedule=True), "all")


@healthy("table")
def twelfth_large_steps(seed):
    """SGD with momentum and a step of 0.2, which falls to nought: fast and good."""
    train, held = clinic(seed, n=2500, k=2)
    return hand(
        fit(mlp(8, 32, 2), train, held, opt=sgd(0.2, 0.8), epochs=12, schedule=True, batch=128), "all"
    )


@healthy("table")
def twelfth_untrained(seed):
    """A net that was just built."""
    train, held = clinic(seed)
    model = mlp(8, 64, 64, 3).eval()
    return {"model": model, "data": train, "validation": held, "loss": "cross_entropy"}


@healthy("images")
def twelfth_untrained_cnn(seed):
    """A convolutional net that was just built, with its optimiser."""
    train, held = stamps(seed)
    model = cnn(4, norm=True).eval()
    return {
        "model": model,
        "data": train,
        "validation": held,
        "loss": "cross_entropy",
        "optimizer": torch.optim.Adam(model.parameters(), 1e-3),
        "batch_size": 32,
    }


@healthy("table")
def twelfth_stopped_early(seed):
    """A wide net on three thousand rows, stopped where the held-out loss was least."""
    train, held = clinic(seed, n=3000, k=2, noise=0.3)
    return hand(
        fit(mlp(8, 64, 2), train, held, opt=adamw(3e-3, 0.05), epochs=25, best=True),
        "optimizer",
        "batch_size",
        "initial",
    )


@healthy("table")
def twelfth_small_study(seed):
    """A hundred and eighty patients, a simple net and honest scores."""
    seeded(seed)
    y = torch.randint(0, 2, (480,))
    x = torch.randn(480, 4) + 1.0 * (2 * y[:, None] - 1) * torch.tensor([0.8, -0.7, 0.5, 0.3])
    train, held = split(x, y, 180)
    return hand(
        fit(mlp(4, 6, 2), train, held, opt=adamw(1e-2, 0.05), epochs=50, batch=32, schedule=True), "all"
    )


@healthy("table")
def twelfth_strong_regularisation(seed):
    """Dropout of a third and weight decay that suit few rows of many columns."""
    seeded(seed)
    x = torch.randn(2700, 24)
    y = (
        (x[:, :8] @ torch.tensor([1.0, -1, 1, -1, 0.8, 0.8, -0.8, 0.8])) + 0.4 * torch.randn(2700) > 0
    ).long()
    train, held = split(x, y, 2000)
    return hand(
        fit(mlp(24, 48, 2, drop=0.35), train, held, opt=adamw(3e-3, 0.1), epochs=14, schedule=True), "all"
    )


@healthy("table")
def twelfth_one_hot(seed):
    """Categories as sparse one-hot columns beside three numbers."""
    seeded(seed)
    n = 3200
    kinds = [
        torch.multinomial(torch.tensor([0.3, 0.25, 0.2, 0.15, 0.1]), n, replacement=True) for _ in range(3)
    ]
    effects = [1.2 * torch.randn(5) for _ in range(3)]
    numbers = torch.randn(n, 3)
    y = sum(e[c] for e, c in zip(effects, kinds)) + numbers[:, 0] * 1.0 + 0.7 * torch.tanh(2 * numbers[:, 1])
    x = torch.cat([numbers] + [F.one_hot(c, 5).float() for c in kinds], 1)
    train, held = split(x, standard(y)[:, None] + 0.15 * torch.randn(n, 1), 2400)
    return hand(fit(mlp(18, 32, 1), train, held, "mse", epochs=14, schedule=True), "all")


@healthy("table")
def twelfth_counts(seed):
    """Counts of accidents, with a Poisson loss on the logarithm of the rate."""
    seeded(seed)
    x = torch.randn(3600, 5)
    rate = torch.exp(0.6 + 0.6 * x[:, 0] - 0.4 * x[:, 1] + 0.3 * torch.sin(2 * x[:, 2]))
    train, held = split(x, torch.poisson(rate)[:, None], 2600)

    def poisson(output, target):
        return F.poisson_nll_loss(output, target)

    return hand(
        fit(mlp(5, 24, 1), train, held, poisson, opt=adamw(3e-3, 0.02), epochs=12, schedule=True), "all"
    )


class Ordinal(nn.Module):
    """Cumulative logits: one score and ordered thresholds."""

    def __init__(self, d, k):
        super().__init__()
        self.score, self.cuts = mlp(d, 24, 1), nn.Parameter(torch.linspace(-1.5, 1.5, k - 1))

    def forward(self, x):
        return self.score(x) - self.cuts


@healthy("table")
def twelfth_ordinal(seed):
    """Grades of severity by cumulative logits."""
    seeded(seed)
    x = torch.randn(3400, 6)
    score = 2.5 * (x[:, 0] + 0.6 * torch.tanh(2 * x[:, 1]) - 0.5 * x[:, 2]) + torch.randn(3400)
    cuts = torch.tensor([-2.0, 0.0, 2.0])
    train, held = split(x, (score[:, None] > cuts).float(), 2400)
    return hand(
        fit(Ordinal(6, 4), train, held, "bce_with_logits", epochs=14, schedule=True),
        "optimizer",
        "batch_size",
        "history",
    )


@healthy("table")
def twelfth_multi_label(seed):
    """Five findings, of which several may hold at once."""
    seeded(seed)
    x = torch.randn(3300, 8)
    scores = 3 * torch.tanh(x @ torch.linalg.qr(torch.randn(8, 8))[0][:, :5] * 1.2) + 0.4 * torch.randn(
        3300, 5
    )
    train, held = split(x, (scores > 0).float(), 2500)
    return hand(
        fit(mlp(8, 32, 5), train, held, "bce_with_logits", opt=adamw(3e-3, 0.02), epochs=14, schedule=True),
        "all",
    )


@healthy("table")
def twelfth_survey(seed):
    """Answers on scales of three: rows repeat by nature, within and across the halves."""
    seeded(seed)
    x = torch.randint(-1, 2, (2800, 5)).float()
    y = (
        (x[:, 0] + x[:, 1] * x[:, 2] + 0.7 * x[:, 3]) * 1.6
        + 0.7 * torch.logit(torch.rand(2800).clamp(1e-5, 1 - 1e-5))
        > 0
    ).long()
    train, held = split(x, y, 1900)
    return hand(fit(mlp(5, 12, 2), train, held, opt=adamw(3e-3, 0.05), epochs=14, schedule=True), "all")


@healthy("table")
def twelfth_quantile(seed):
    """The upper decile of a delay, with the pinball loss."""
    seeded(seed)
    x = torch.randn(3500, 4)
    y = standard(
        x[:, 0] + 0.6 * torch.sin(2 * x[:, 1]) + 0.4 * (1 + 0.5 * torch.tanh(x[:, 2])) * torch.randn(3500)
    )
    train, held = split(x, y[:, None], 2500)

    def pinball(output, target):
        gap = target - output
        return torch.maximum(0.9 * gap, -0.1 * gap).mean()

    return hand(fit(mlp(4, 24, 1), train, held, pinball, epochs=14, schedule=True), "all")


class Mixed(nn.Module):
    """Numbers and a category, which is embedded."""

    def __init__(self, d, kinds, k):
        super().__init__()
        self.embed, self.net = nn.Embedding(kinds, 4), mlp(d + 4, 32, k)

    def forward(self, x, c):
        return self.net(torch.cat([x, self.embed(c)], 1))


@healthy("table")
def twelfth_mixed_inputs(seed):
    """Two inputs: numbers and the ward as a category."""
    seeded(seed)
    x, ward = torch.randn(3300, 5), torch.randint(0, 6, (3300,))
    slope = torch.randn(6)
    y = (2 * x[:, 0] + 1.5 * slope[ward] + x[:, 1] * x[:, 2] + 0.4 * torch.randn(3300) > 0).long()
    train, held = split((x, ward), y, 2500)
    return hand(fit(Mixed(5, 6, 2), train, held, opt=adamw(3e-3, 0.02), epochs=13, schedule=True), "all")


@healthy("table")
def twelfth_small_batches(seed):
    """Batch normalisation with batches of 16, which are enough."""
    train, held = clinic(seed, n=2800, k=3, noise=0.3)
    return hand(
        fit(mlp(8, 32, 32, 3, norm=True), train, held, opt=adam(4e-3), epochs=12, batch=16, schedule=True),
        "all",
    )


@healthy("table")
def twelfth_accumulated(seed):
    """The user's own update, which sums the gradients of two batches and then clears them."""
    train, held = sensors(seed, n=2400)
    step = Update("mse", adam(3e-3), every=2)
    run = loop(mlp(8, 48, 32, 1), train, held, "mse", step, epochs=20, batch=32)
    return {k: run[k] for k in ("model", "data", "validation", "loss", "step", "batch_size", "history")}


# ---- images ---------------------------------------------------------------------------------------------------------


@healthy("images")
def twelfth_shapes(seed):
    """Four shapes, a small convolutional net."""
    train, held = stamps(seed, n=1400)
    return hand(fit(cnn(4, drop=0.2), train, held, opt=adamw(2e-3, 0.02), epochs=7, schedule=True), "all")


@healthy("images")
def twelfth_shapes_residual(seed):
    """Five coloured shapes, a residual net with batch normalisation."""
    train, held = stamps(seed, n=1400, k=5, channels=3, noise=0.8)
    return hand(
        fit(
            ResidualCNN(5, channels=3), train, held, opt=adamw(2e-3, 0.05), epochs=7, batch=32, schedule=True
        ),
        "all",
    )


@healthy("images")
def twelfth_pretrained_trunk(seed):
    """A trunk learnt on six shapes and frozen on purpose; a new head for three other names of them."""
    (x, y), (xv, yv) = stamps(seed, n=1600, held=500, k=6, noise=0.7)
    model = cnn(6)
    fit(model, (x[:800], y[:800]), None, epochs=8, schedule=True)
    for p in model[:6].parameters():
        p.requires_grad_(False)
    model[-1] = nn.Linear(model[-1].in_features, 3)
    run = fit(
        model,
        (x[800:], y[800:] // 2),
        (xv, yv // 2),
        opt=adamw(2e-3, 0.05),
        epochs=20,
        schedule=True,
        parameters=model[-1].parameters(),
    )
    return hand(run, "all")


@healthy("images")
def twelfth_robust(seed):
    """Shapes learnt with adversarial training."""
    train, held = stamps(seed, n=1200, k=3, noise=0.5, shift=1)
    return hand(fit(cnn(3), train, held, opt=adamw(2e-3, 0.02), epochs=9, attack=0.15, schedule=True), "all")


class Fully(nn.Module):
    """Convolutions that keep the size."""

    def __init__(self, out=1, width=12, depth=3):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(1 if i == 0 else width, width, 3, padding=1) for i in range(depth)
        )
        self.last = nn.Conv2d(width, out, 1)

    def forward(self, x):
        for conv in self.convs:
            x = F.relu(conv(x))
        return self.last(x)


@healthy("images")
def twelfth_denoiser(seed):
    """Noisy images in, clean images out."""
    seeded(seed)
    clean = F.interpolate(torch.randn(1400, 1, 4, 4), size=12, mode="bicubic")
    clean = clean / clean.std()
    train, held = split((clean + 0.5 * torch.randn_like(clean)) / 1.118, clean, 1000)
    return hand(fit(Fully(), train, held, "mse", opt=adam(4e-3), epochs=8, batch=32, schedule=True), "all")


@healthy("images")
def twelfth_contrastive(seed):
    """Embeddings of images with a supervised contrastive loss, a callable."""
    train, held = stamps(seed, n=1200, k=4, noise=0.5)
    model = Wrapped(cnn(8), after=lambda z: F.normalize(z, dim=1))

    def contrastive(z, target):
        same = (target[:, None] == target[None]).float() - torch.eye(len(z))
        near = z @ z.T / 0.3 - 1e4 * torch.eye(len(z))
        return -(same * near.log_softmax(1)).sum(1).div(same.sum(1).clamp(min=1)).mean()

    return hand(
        fit(model, train, held, contrastive, opt=adamw(2e-3, 0.02), epochs=7, schedule=True),
        "batch_size",
        "optimizer",
    )


# ---- sequences ------------------------------------------------------------------------------------------------------


@healthy("sequences")
def twelfth_activities(seed):
    """Activities from accelerometer windows with a GRU."""
    train, held = waves(seed, n=1300)
    return hand(
        fit(Recurrent(2, 3, pool=True), train, held, opt=adamw(5e-3, 0.02), epochs=14, schedule=True), "all"
    )


@healthy("sequences")
def twelfth_load_forecast(seed):
    """The next value of a load curve with an LSTM."""
    train, held = load(seed)
    return hand(
        fit(
            Recurrent(1, 1, cell="LSTM", width=16),
            train,
            held,
            "mse",
            opt=adam(6e-3),
            epochs=12,
            batch=32,
            schedule=True,
        ),
        "all",
    )


@healthy("sequences")
def twelfth_trend_differenced(seed):
    """A series with a trend, differenced before dilated convolutions forecast its next change."""
    seeded(seed)
    steps = 1900
    change = torch.zeros(steps)
    for t in range(2, steps):
        change[t] = 1.2 * change[t - 1] - 0.7 * change[t - 2] + 0.5 * torch.randn(())
    level = torch.cumsum(change + 0.8, 0)
    change = torch.diff(level)
    change = (change - change[:1200].mean()) / change[:1200].std()
    windows = change.unfold(0, 17, 1)
    train, held = split(windows[:, :16, None].contiguous(), windows[:, 16:].contiguous(), 1250)
    return hand(
        fit(
            Temporal(1, 1, width=10, dilations=(1, 2, 4)),
            train,
            held,
            "mse",
            opt=adamw(3e-3, 0.05),
            epochs=10,
            schedule=True,
        ),
        "all",
    )


@healthy("sequences")
def twelfth_tagging(seed):
    """A tag per step, where windows of several lengths are padded with -100."""
    seeded(seed)
    x = torch.randn(900, 20, 3)
    past = F.pad(x[:, :-2], (0, 0, 2, 0))
    y = (1.5 * x[..., 0] + 2 * past[..., 1] + 0.2 * torch.randn(900, 20) > 0).long()
    length = torch.randint(10, 21, (900,))
    y = y.masked_fill(torch.arange(20)[None] >= length[:, None], -100)
    train, held = split(x, y, 600)
    return hand(
        fit(
            Temporal(3, 2, width=12, dilations=(1, 2), last=False),
            train,
            held,
            tokens_loss,
            epochs=7,
            batch=32,
            schedule=True,
        ),
        "all",
    )


@healthy("sequences")
def twelfth_series_transformer(seed):
    """Activities with a small transformer on measurements."""
    train, held = waves(seed, n=3200, noise=0.4, length=24)
    model = Wrapped(
        Transformer(0, 3, numeric=8, width=16, drop=0.2), before=lambda x: x.reshape(len(x), 6, 8)
    )
    return hand(fit(model, train, held, opt=adamw(3e-3, 0.02), epochs=9, schedule=True))


# ---- text -----------------------------------------------------------------------------------------------------------


@healthy("text")
def twelfth_topics(seed):
    """Topics of notes from mean embeddings."""
    train, held = notes(seed, n=2000)
    return hand(fit(Bag(60, 4, drop=0.1), train, held, opt=adamw(4e-3, 0.05), epochs=8, schedule=True), "all")


@healthy("text")
def twelfth_topics_attention(seed):
    """Topics with attention over the words."""
    train, held = notes(seed, n=2000, k=3)
    return hand(
        fit(Attentive(60, 3), train, held, opt=adamw(5e-3, 0.05), epochs=9, schedule=True),
        "optimizer",
        "batch_size",
    )


@healthy("text")
def twelfth_next_word(seed):
    """The next word of a random grammar with a GRU, as well as it can be known."""
    (train, held), _ = chain(seed, n=700)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.head = (
                nn.Embedding(20, 12),
                nn.GRU(12, 24, batch_first=True),
                nn.Linear(24, 20),
            )

        def forward(self, x):
            return self.head(self.cell(self.embed(x))[0])

    return hand(
        fit(Reader(), train, held, tokens_loss, opt=adam(8e-3), epochs=9, batch=32, schedule=True), "all"
    )


@healthy("text")
def twelfth_next_word_transformer(seed):
    """The same with a causal transformer."""
    (train, held), _ = chain(seed, n=700)
    return hand(
        fit(
            Transformer(20, 20, causal=True),
            train,
            held,
            tokens_loss,
            opt=adam(6e-3),
            epochs=8,
            batch=32,
            schedule=True,
        ),
        "optimizer",
        "batch_size",
    )


# ---- graphs ---------------------------------------------------------------------------------------------------------


@healthy("graph")
def twelfth_communities(seed):
    """A graph net of two layers on communities."""
    train, held = citations(seed, n=400, strength=1.0, d=8)
    return hand(
        fit(GCN(8, 3, width=8), train, held, opt=adam(1e-2, 2e-3), epochs=110, batch=None),
        "optimizer",
        "initial",
    )


@healthy("graph")
def twelfth_communities_skip(seed):
    """Three layers with skips, and nothing else handed over."""
    train, held = citations(seed, n=400, k=4, strength=1.0, d=8)
    return hand(
        fit(GCN(8, 4, width=8, depth=3, skip=True), train, held, opt=adam(1e-2, 2e-3), epochs=80, batch=None)
    )


@healthy("graph")
def twelfth_molecules(seed):
    """A property of small graphs from two convolutions and a mean."""
    train, held = molecules(seed, n=1200)
    return hand(
        fit(GCN(5, 1, width=32, pool=True), train, held, "mse", opt=adam(5e-3), epochs=25, schedule=True),
        "all",
    )


# ---- generative -----------------------------------------------------------------------------------------------------


@healthy("generative")
def twelfth_good_vae(seed):
    """A variational autoencoder that uses its code."""
    train, held = manifold(seed, n=1500)
    return hand(
        fit(VAE(12, inner=3), train, held, elbo(1.0, 0.1), opt=adam(3e-3), epochs=25, schedule=True), "all"
    )


@healthy("generative")
def twelfth_good_autoencoder(seed):
    """An autoencoder with a code as large as the data need."""
    train, held = manifold(seed, n=1800)
    run = fit(Coder(12, inner=6, width=64), (train, train), (held, held), "mse", epochs=25, schedule=True)
    return hand(run, "all")


@healthy("generative")
def twelfth_good_generator(seed):
    """A generator that covers six clumps."""
    train, held = clusters(seed, spread=0.25)
    model = match(Generator(2, inner=4), train, steps=900)
    return {"model": model, "data": train, "validation": held}


@healthy("generative")
def twelfth_good_generator_table(seed):
    """A generator of correlated measurements."""
    seeded(seed)
    x = standard(torch.randn(1500, 5) @ (torch.eye(5) + 0.6 * torch.randn(5, 5)))
    model = match(Generator(5, inner=5), x[:1000], steps=700)
    return {"model": model, "data": x[:1000], "validation": x[1000:]}


@healthy("table")
def twelfth_responses(seed):
    """Six responses at once."""
    train, held = spectra(seed, n=2500, d=10)
    return hand(
        fit(mlp(10, 48, 48, 6, act=nn.GELU), train, held, "mse", epochs=14, schedule=True),
        "optimizer",
        "batch_size",
    )
