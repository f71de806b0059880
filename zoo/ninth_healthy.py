"""Healthy set-ups of the ninth author; most look suspicious and are right."""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC
from torch import nn

from zoo import case
from zoo import ninth_parts as parts
from zoo.ninth_parts import (
    GCN,
    VAE,
    ChurnNet,
    Forecaster,
    GraphNet,
    RoadNet,
    SmallResNet,
    TextConv,
    TextNet,
    TokenGRU,
    UNet,
    WaveCNN,
    acc,
    balanced,
    baseline,
    cells,
    chain,
    churn,
    cosine,
    covered,
    cut,
    digit_cnn,
    digits,
    elbo,
    hand,
    houses,
    load_curve,
    minus_loss,
    mlp,
    molecules,
    note,
    papers,
    r2,
    reviews,
    ring,
    roads,
    sensor,
    shapes,
    start,
    stepper,
    t,
    token_loss,
    topics,
    train,
    warm_cosine,
    wells,
)  # fmt: skip

ME = "ninth"


def done(model, tr, va, run, give="all", score=acc, sk=None, metric=None, **more):
    """Note the held-out score, for the check also that of a baseline, and hand over."""
    note(score(model, va))
    if parts.VERIFY:
        parts.BASE.append(score(model, tr))
        h = [e["val_loss"] for e in run.get("history", []) if "val_loss" in e]
        parts.BASE.append(h[-1] / min(h) if h else 0.0)
    if sk is not None:
        flat = lambda X: (
            np.concatenate([x.reshape(len(x), -1).numpy() for x in X], 1)
            if isinstance(X, tuple)
            else X.reshape(len(X), -1).numpy()
        )  # noqa: E731
        baseline(
            lambda: (metric or (lambda m, a, b: m.score(a, b)))(
                sk.fit(flat(tr[0]), tr[1].numpy()), flat(va[0]), va[1].numpy()
            )
        )
    return hand(model, tr, va, run, give, **more)


# ---- freezing, starting, stopping -----------------------------------------------------------------------------------


@case(kind="images", author=ME)
def ninth_ok_frozen_pretrained(seed):
    """A backbone trained on other digits, frozen on purpose; the head learns the five it has not seen."""
    rng = start(seed, 301)
    tr, va = digits(rng)
    body = nn.Sequential(*list(digit_cnn(16))[:-1])
    old = tr[1] < 5
    pre = nn.Sequential(body, nn.Linear(128, 5))
    train(pre, (tr[0][old], tr[1][old]), None, epochs=15)
    a, b = tr[1] >= 5, va[1] >= 5
    tr, va = (tr[0][a], tr[1][a] - 5), (va[0][b], va[1][b] - 5)
    for p in body.parameters():
        p.requires_grad_(False)
    for m in body:
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 0.0
    model = nn.Sequential(body, nn.Linear(128, 5))
    run = train(model, tr, va, epochs=25, lr=5e-3)
    return done(model, tr, va, run, "all", sk=SVC())


@case(kind="text", author=ME)
def ninth_ok_frozen_embeddings(seed):
    """Word vectors come from a larger corpus of the same language and stay fixed."""
    rng = start(seed, 302)
    big, _ = topics(np.random.default_rng(77), n=4000, train=3990)
    teacher = nn.Sequential(nn.Embedding(90, 12, padding_idx=0), Mean(), nn.Linear(12, 3))
    train(teacher, big, None, epochs=8, lr=1e-2)
    tr, va = topics(rng, n=900, train=400)
    model = nn.Sequential(
        nn.Embedding.from_pretrained(teacher[0].weight.detach().clone(), freeze=True, padding_idx=0),
        Mean(),
        mlp(12, 16, 3),
    )
    run = train(model, tr, va, epochs=20, lr=5e-3, wd=1e-4)
    return done(model, tr, va, run, "all")


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


@case(kind="table", author=ME)
def ninth_ok_random_features(seed):
    """Random Fourier features are fixed by design (buffers); a linear layer is trained on them."""
    rng = start(seed, 303)
    X = rng.uniform(-2, 2, (2000, 2))
    y = np.sin(2 * X[:, 0]) * np.cos(1.5 * X[:, 1]) + 0.15 * rng.standard_normal(2000)
    tr, va = cut(t(X), t(y), 1300)

    class RFF(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.randn(2, 150) * 1.5)
            self.register_buffer("b", torch.rand(150) * 6.2832)
            self.out = nn.Linear(150, 1)

        def forward(self, x):
            return self.out(torch.cos(x @ self.w + self.b) * (2 / 150) ** 0.5 * 4).squeeze(1)

    model = RFF()
    run = train(model, tr, va, "mse", epochs=40, lr=2e-2, schedule=cosine)
    return done(model, tr, va, run, "all", r2, GradientBoostingRegressor())


@case(kind="table", author=ME)
def ninth_ok_untrained_mlp(seed):
    """Asked before the first step."""
    rng = start(seed, 304)
    tr, va = wells(rng)
    model = mlp(12, 64, 64, 3).eval()
    note(acc(model, va))
    return {
        "model": model,
        "data": tr,
        "validation": va,
        "loss": "cross_entropy",
        "optimizer": torch.optim.Adam(model.parameters(), 2e-3),
        "batch_size": 64,
    }


@case(kind="images", author=ME)
def ninth_ok_untrained_resnet(seed):
    rng = start(seed, 305)
    tr, va = shapes(rng)
    model = SmallResNet().eval()
    note(acc(model, va))
    return {"model": model, "data": tr, "validation": va}


@case(kind="sequences", author=ME)
def ninth_ok_untrained_gru(seed):
    rng = start(seed, 306)
    tr, va = load_curve(rng)
    model = Forecaster(24).eval()
    note(r2(model, va))
    return {
        "model": model,
        "data": tr,
        "validation": va,
        "loss": "mse",
        "initial": copy.deepcopy(model.state_dict()),
    }


@case(kind="table", author=ME)
def ninth_ok_stopped_early(seed):
    """The best epoch on validation is kept, as it should be."""
    rng = start(seed, 307)
    tr, va = wells(rng, n=3600, train=2800, noise=0.6)
    model = mlp(12, 64, 64, 3, drop=0.1)
    o = torch.optim.Adam(model.parameters(), 2e-3)
    initial, best, history = copy.deepcopy(model.state_dict()), (9.0, None), []
    for _ in range(40):
        run = train(model, tr, va, opt=o, epochs=1)
        history += run["history"]
        if history[-1]["val_loss"] < best[0]:
            best = (history[-1]["val_loss"], copy.deepcopy(model.state_dict()), len(history))
        elif len(history) - best[2] >= 4:
            break
    model.load_state_dict(best[1])
    run.update(initial=initial, history=history[: best[2]])
    return done(model, tr, va, run, "all", sk=GradientBoostingClassifier(n_estimators=60))


@case(kind="images", author=ME)
def ninth_ok_cosine_to_nought(seed):
    """The schedule ended at rate 0, which is what the optimiser now shows."""
    rng = start(seed, 308)
    tr, va = digits(rng)
    model = digit_cnn(12, drop=0.2)
    run = train(model, tr, va, epochs=12, lr=5e-3, schedule=cosine)
    return done(model, tr, va, run, "all", sk=LogisticRegression(max_iter=500))


@case(kind="table", author=ME)
def ninth_ok_zero_last_layer(seed):
    """The last layer starts at nought on purpose."""
    rng = start(seed, 309)
    tr, va = houses(rng, n=2500, train=1900)
    model = mlp(8, 64, 64, 1, squeeze=True)
    nn.init.zeros_(model[4].weight)
    nn.init.zeros_(model[4].bias)
    run = train(model, tr, va, "mse", epochs=30)
    return done(model, tr, va, run, "all", r2, GradientBoostingRegressor())


class ZeroRes(nn.Module):
    """Residual blocks that start as identities."""

    def __init__(self, d, width=48, blocks=6, outputs=3):
        super().__init__()
        self.inp, self.out = nn.Linear(d, width), nn.Linear(width, outputs)
        self.blocks = nn.ModuleList([mlp(width, width, width, act=nn.GELU) for _ in range(blocks)])
        for b in self.blocks:
            nn.init.zeros_(b[2].weight)
            nn.init.zeros_(b[2].bias)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = x + b(x)
        return self.out(x)


@case(kind="table", author=ME)
def ninth_ok_identity_blocks(seed):
    rng = start(seed, 310)
    tr, va = wells(rng, n=4000, train=3200)
    model = ZeroRes(12, blocks=4)
    run = train(model, tr, va, epochs=12, lr=2e-3, schedule=cosine, wd=1e-4)
    return done(model, tr, va, run, "all", sk=GradientBoostingClassifier(n_estimators=60))


# ---- imbalance, overlap, noise --------------------------------------------------------------------------------------


def bal(m, X, y):
    return float(np.mean([np.mean(m.predict(X)[y == c] == c) for c in np.unique(y)]))


@case(kind="table", author=ME)
def ninth_ok_imbalance_weighted(seed):
    """Five in a hundred, weighted; rare ones are found."""
    rng = start(seed, 311)
    X = rng.standard_normal((5000, 8))
    y = (X[:, 0] + X[:, 1] * 0.8 + 0.5 * rng.standard_normal(5000) > 2.2).astype(int)
    tr, va = cut(t(X), t(y), 3500)
    w = t([1.0, 14.0]).float()
    model = mlp(8, 16, 2)
    run = train(model, tr, va, lambda o, z: F.cross_entropy(o, z, weight=w), epochs=10, wd=1e-4)
    return done(model, tr, va, run, "all", balanced, LogisticRegression(class_weight="balanced"), bal)


@case(kind="images", author=ME)
def ninth_ok_rare_shape_learned(seed):
    """One shape in four is rare (a tenth), and the net finds it nevertheless."""
    rng = start(seed, 312)
    tr, va = shapes(rng, n=2000, train=1400)
    keep = [(p[1] != 1) | (t(rng.random(len(p[1]))) < 0.3) for p in (tr, va)]
    tr, va = ((p[0][k], p[1][k]) for p, k in zip((tr, va), keep, strict=True))
    model = SmallResNet(12, 1)
    run = train(model, tr, va, epochs=8, lr=3e-3)
    return done(model, tr, va, run, "most", balanced)


@case(kind="table", author=ME)
def ninth_ok_overlapping_bayes(seed):
    """Two Gaussians a deviation apart: nobody gets more than about 70 %."""
    rng = start(seed, 313)
    y = rng.integers(0, 2, 3000)
    X = rng.standard_normal((3000, 5)) + 0.45 * (2 * y - 1)[:, None] * np.array([1, 0.6, 0, 0, 0])
    tr, va = cut(t(X), t(y), 2000)
    model = mlp(5, 8, 2, act=nn.Tanh)
    run = train(model, tr, va, epochs=12, wd=1e-3)
    return done(model, tr, va, run, "all", sk=LogisticRegression())


@case(kind="table", author=ME)
def ninth_ok_noise_floor(seed):
    """R2 of 0.35 is all there is."""
    rng = start(seed, 314)
    X = rng.standard_normal((2500, 6))
    y = X[:, 0] + 0.5 * np.tanh(2 * X[:, 1]) + 1.5 * rng.standard_normal(2500)
    tr, va = cut(t(X), t(y), 1800)
    model = mlp(6, 16, 1, squeeze=True)
    run = train(model, tr, va, "mse", epochs=12, wd=1e-3)
    return done(model, tr, va, run, "hist", r2, Ridge())


@case(kind="table", author=ME)
def ninth_ok_diabetes(seed):
    """The well-known 442 patients: R2 of 0.4 to 0.5 is what everybody gets."""
    from sklearn.datasets import load_diabetes

    rng = start(seed, 315)
    X, y = load_diabetes(return_X_y=True)
    i = rng.permutation(len(X))
    X, y = X[i] / X.std(0), (y[i] - y.mean()) / y.std()
    tr, va = cut(t(X), t(y), 300)
    model = nn.Sequential(nn.Linear(10, 1), nn.Flatten(0))
    run = train(model, tr, va, "mse", epochs=60, lr=5e-3, bs=32, wd=1e-2)
    return done(model, tr, va, run, "all", r2, Ridge())


@case(kind="table", author=ME)
def ninth_ok_tiny_with_strong_decay(seed):
    """Seventy rows, a linear model, strong decay chosen for them."""
    rng = start(seed, 316)
    X = rng.standard_normal((470, 10))
    y = (X[:, 0] + X[:, 1] - X[:, 2] + 0.5 * rng.standard_normal(470) > 0).astype(int)
    tr, va = cut(t(X), t(y), 70)
    model = nn.Linear(10, 2)
    run = train(model, tr, va, epochs=60, bs=16, opt="sgd", lr=0.02, wd=0.02)
    return done(model, tr, va, run, "all", sk=LogisticRegression(C=0.3))


# ---- odd looking inputs ---------------------------------------------------------------------------------------------


@case(kind="table", author=ME)
def ninth_ok_heavy_tails_logged(seed):
    """Incomes and counts with heavy tails, after log1p and scaling; some rows still lie six deviations off."""
    rng = start(seed, 317)
    raw = np.exp(1.2 * rng.standard_t(4, (2600, 6)))
    Z = np.log1p(raw)
    X = (Z - Z.mean(0)) / Z.std(0)
    y = (X[:, 0] - X[:, 1] + np.maximum(X[:, 2], 0) + 0.4 * rng.standard_normal(2600) > 0.4).astype(int)
    tr, va = cut(t(X), t(y), 1800)
    model = mlp(6, 32, 2)
    run = train(model, tr, va, epochs=12)
    return done(model, tr, va, run, "all", sk=GradientBoostingClassifier(n_estimators=60))


@case(kind="text", author=ME)
def ninth_ok_bag_of_words(seed):
    """Counts of 90 words: mostly zeros, some words in a dozen rows only."""
    rng = start(seed, 318)
    (A, y), (B, z) = topics(rng, n=2400, train=1700)
    p = np.random.default_rng(2).permutation(90)
    bag = lambda X: F.one_hot(X, 90).sum(1).float()[:, p]  # noqa: E731
    A, B = bag(A), bag(B)
    A[:, :12] *= t(rng.random((len(A), 12))) < 0.04
    B[:, :12] *= t(rng.random((len(B), 12))) < 0.04
    tr, va = (A, y), (B, z)
    model = mlp(90, 16, 3)
    run = train(model, tr, va, epochs=10, wd=1e-3)
    return done(model, tr, va, run, "most", sk=LogisticRegression(max_iter=500))


@case(kind="table", author=ME)
def ninth_ok_one_hot_rare_levels(seed):
    """Four categorical columns as one-hot; the rarest level of forty occurs a few times."""
    rng = start(seed, 319)
    k = [np.minimum(rng.geometric(0.12, 3000), 40) - 1, rng.integers(0, 5, 3000), rng.integers(0, 8, 3000)]
    e = [np.random.default_rng(30 + j).standard_normal(40) for j in range(3)]
    X = np.concatenate([np.eye(m)[c] for c, m in zip(k, (40, 5, 8), strict=True)], 1)
    y = (sum(a[c] for a, c in zip(e, k, strict=True)) * 1.5 + rng.logistic(size=3000) * 0.6 > 0).astype(int)
    tr, va = cut(t(X), t(y), 2200)
    model = mlp(53, 16, 2)
    run = train(model, tr, va, epochs=12, wd=1e-3)
    return done(model, tr, va, run, "all", sk=LogisticRegression())


@case(kind="table", author=ME)
def ninth_ok_questionnaire_repeats(seed):
    """Six yes-or-no questions: 64 possible rows, so every row of validation occurs in training, by nature."""
    rng = start(seed, 320)
    X = rng.integers(0, 2, (1600, 6)).astype(float)
    z = X[:, 0] + X[:, 1] * X[:, 2] * 2 - X[:, 3] - 0.5
    y = (2 * z + rng.logistic(size=1600) > 0).astype(int)
    tr, va = cut(t(X * 2 - 1), t(y), 1100)
    model = mlp(6, 24, 2)
    run = train(model, tr, va, epochs=15, wd=1e-4)
    return done(model, tr, va, run, "all", sk=RandomForestClassifier(max_depth=5))


@case(kind="table", author=ME)
def ninth_ok_correlated_columns(seed):
    """Body measures: every pair is correlated by 0.9 or more, none is a copy."""
    rng = start(seed, 321)
    g = rng.standard_normal((2000, 1))
    X = 0.96 * g + 0.28 * rng.standard_normal((2000, 7))
    y = X[:, 0] - X[:, 1] + 0.7 * X[:, 2] + 0.15 * rng.standard_normal(2000)
    tr, va = cut(t(X), t(y), 1400)
    model = mlp(7, 24, 1, squeeze=True)
    run = train(model, tr, va, "mse", epochs=40, lr=5e-3)
    return done(model, tr, va, run, "most", r2, Ridge(0.1))


@case(kind="table", author=ME)
def ninth_ok_breast_cancer(seed):
    """The well-known table, on which everybody gets 97 %: 30 correlated columns, one of them nearly enough."""
    from sklearn.datasets import load_breast_cancer

    rng = start(seed, 322)
    X, y = load_breast_cancer(return_X_y=True)
    i = rng.permutation(len(X))
    X = (X - X.mean(0)) / X.std(0)
    tr, va = cut(t(X[i]), t(y[i]), 400)
    model = mlp(30, 8, 2)
    run = train(model, tr, va, epochs=15, wd=1e-2, lr=5e-3, bs=32)
    return done(model, tr, va, run, "all", sk=LogisticRegression())


@case(kind="images", author=ME)
def ninth_ok_digits_constant_border(seed):
    """Pixels of the border are zero in every row, as in all data sets of digits."""
    rng = start(seed, 323)
    tr, va = digits(rng)
    pad = lambda X: F.pad(X, (2, 2, 2, 2))  # noqa: E731
    tr, va = (pad(tr[0]), tr[1]), (pad(va[0]), va[1])
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(216, 10),
    )
    run = train(model, tr, va, epochs=16, lr=5e-3, schedule=cosine)
    return done(model, tr, va, run, "loss", sk=LogisticRegression(max_iter=500))


# ---- settings that look wrong ---------------------------------------------------------------------------------------


@case(kind="images", author=ME)
def ninth_ok_rate_of_a_half(seed):
    """Plain descent at rate 0.5 with batch norm: fast, and stable."""
    rng = start(seed, 324)
    tr, va = digits(rng)
    model = digit_cnn(12)
    run = train(model, tr, va, epochs=10, opt="plain", lr=0.5)
    return done(model, tr, va, run, "most", sk=LogisticRegression(max_iter=500))


@case(kind="table", author=ME)
def ninth_ok_dropout_half(seed):
    rng = start(seed, 325)
    tr, va = churn(rng, n=4000, train=3000)
    model = ChurnNet(96, drop=0.5)
    run = train(model, tr, va, epochs=25, lr=3e-3)
    return done(model, tr, va, run, "all", sk=GradientBoostingClassifier(n_estimators=60))


@case(kind="table", author=ME)
def ninth_ok_wide_relu_some_asleep(seed):
    """A wide ReLU net in which many units sleep for most rows, as is usual after training."""
    rng = start(seed, 326)
    tr, va = houses(rng, n=3000, train=2400)
    model = mlp(8, 256, 128, 1, squeeze=True)
    with torch.no_grad():
        model[0].bias.sub_(0.5)
    run = train(model, tr, va, "mse", epochs=15, schedule=cosine)
    return done(model, tr, va, run, "all", r2, GradientBoostingRegressor())


@case(kind="images", author=ME)
def ninth_ok_batch_of_four_group_norm(seed):
    rng = start(seed, 327)
    tr, va = digits(rng, train=800)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1),
        nn.GroupNorm(4, 24), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 10),
    )  # fmt: skip
    run = train(model, tr, va, epochs=6, lr=1e-3, bs=4)
    return done(model, tr, va, run, "all", sk=LogisticRegression(max_iter=500))


@case(kind="table", author=ME)
def ninth_ok_one_row_per_step(seed):
    """Online learning, one row at a time, at a rate small enough for it."""
    rng = start(seed, 328)
    tr, va = houses(rng, n=1500, train=1000, noise=0.5)
    model = mlp(8, 32, 1, squeeze=True)
    run = train(model, tr, va, "mse", opt="plain", lr=0.004, epochs=8, bs=1)
    return done(model, tr, va, run, "most", r2, GradientBoostingRegressor())


@case(kind="sequences", author=ME)
def ninth_ok_label_smoothing(seed):
    rng = start(seed, 329)
    tr, va = sensor(rng, noise=1.0)
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    model = WaveCNN(16)
    run = train(model, tr, va, loss, epochs=12, lr=3e-3)
    return done(model, tr, va, run, "all")


@case(kind="images", author=ME)
def ninth_ok_decay_of_a_tenth_adamw(seed):
    """AdamW's decay of 0.1 sounds large and is usual."""
    rng = start(seed, 330)
    tr, va = shapes(rng)
    model = SmallResNet(12, 2)
    run = train(model, tr, va, epochs=10, opt="adamw", lr=3e-3, wd=0.1, schedule=warm_cosine)
    return done(model, tr, va, run, "all")


@case(kind="sequences", author=ME)
def ninth_ok_clipped_hard(seed):
    """Gradients are clipped at 0.2 nearly always; the LSTM learns well."""
    rng = start(seed, 331)
    tr, va = load_curve(rng)
    model = Forecaster(24, nn.LSTM)
    run = train(model, tr, va, "mse", epochs=25, lr=1e-2, clip=0.2, schedule=cosine)
    return done(model, tr, va, run, "hist", r2, Ridge())


@case(kind="images", author=ME)
def ninth_ok_accumulation_with_step(seed):
    """Gradients of four small batches are added up before each step, and cleared after it."""
    rng = start(seed, 332)
    tr, va = digits(rng)
    model = digit_cnn(12, norm=False)
    run = train(model, tr, va, epochs=18, bs=16, accumulate=4, lr=4e-3)
    run["batch_size"] = 64
    kept: dict = {}

    def step(net, batch):
        if id(net) not in kept:
            kept[id(net)] = (net, torch.optim.Adam(net.parameters(), lr=4e-3))
        o = kept[id(net)][1]
        net.train()
        o.zero_grad()
        for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
            (F.cross_entropy(net(x), y) / 4).backward()
        o.step()

    return done(model, tr, va, run, "all", sk=LogisticRegression(max_iter=500), step=step)


@case(kind="table", author=ME)
def ninth_ok_step_with_clip(seed):
    rng = start(seed, 333)
    tr, va = houses(rng, n=2500, train=1900)
    model = mlp(8, 48, 48, 1, squeeze=True, act=nn.SiLU)
    run = train(model, tr, va, "mse", epochs=30, lr=3e-3, clip=1.0)
    step = stepper("mse", lambda m: torch.optim.Adam(m.parameters(), lr=3e-3), clip=1.0)
    return done(model, tr, va, run, "loss", r2, GradientBoostingRegressor(), step=step)


@case(kind="table", author=ME)
def ninth_ok_deep_selu(seed):
    """Eight self-normalising layers without any norm, rightly drawn."""
    rng = start(seed, 334)
    tr, va = houses(rng, n=3000, train=2400)
    model = mlp(8, *[48] * 8, 1, squeeze=True, act=nn.SELU)
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.kaiming_normal_(m.weight, nonlinearity="linear")
            nn.init.zeros_(m.bias)
    run = train(model, tr, va, "mse", epochs=30, lr=1e-3, schedule=cosine)
    return done(model, tr, va, run, "all", r2, GradientBoostingRegressor())


# ---- objectives that look wrong -------------------------------------------------------------------------------------


@case(kind="images", author=ME)
def ninth_ok_log_softmax_twice(seed):
    """log_softmax before cross_entropy changes nothing: it is its own fixed point."""
    rng = start(seed, 335)
    tr, va = digits(rng)
    model = nn.Sequential(digit_cnn(12), nn.LogSoftmax(1))
    run = train(model, tr, va, epochs=8, lr=3e-3)
    return done(model, tr, va, run, "most", sk=LogisticRegression(max_iter=500))


@case(kind="table", author=ME)
def ninth_ok_target_of_fifty(seed):
    """Targets around 50; the net's output is scaled to them inside."""
    rng = start(seed, 336)
    tr, va = houses(rng, n=2500, train=1900)
    tr, va = (tr[0], tr[1] * 5 + 50), (va[0], va[1] * 5 + 50)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(8, 64, 64, 1, squeeze=True)
            self.register_buffer("m", tr[1].mean())
            self.register_buffer("s", tr[1].std())

        def forward(self, x):
            return self.body(x) * self.s + self.m

    model = Scaled()
    run = train(model, tr, va, "mse", epochs=25, lr=2e-3)
    return done(model, tr, va, run, "all", r2, GradientBoostingRegressor())


@case(kind="images", author=ME)
def ninth_ok_sigmoid_for_coverage(seed):
    """The target is a share between 0 and 1, so the sigmoid at the end is right."""
    rng = start(seed, 337)
    (X, Y), (V, Z) = cells(rng, n=1200, train=900)
    tr, va = (X, Y.float().mean((1, 2)) * 2), (V, Z.float().mean((1, 2)) * 2)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.BatchNorm1d(8),
        nn.Linear(8, 1),
        nn.Sigmoid(),
        nn.Flatten(0),
    )
    run = train(model, tr, va, "mse", epochs=20, lr=1e-2, schedule=cosine)
    return done(model, tr, va, run, "loss", r2)


@case(kind="table", author=ME)
def ninth_ok_poisson_counts(seed):
    """Counts, half of them zero; the loss is Poisson's, with the rate's logarithm as output."""
    rng = start(seed, 338)
    X = rng.standard_normal((3000, 5))
    y = rng.poisson(np.exp(-0.3 + 0.6 * X[:, 0] + 0.4 * np.abs(X[:, 1]) - 0.3 * X[:, 2]))
    tr, va = cut(t(X), t(y).float(), 2200)
    model = mlp(5, 24, 1, squeeze=True)
    run = train(model, tr, va, lambda o, z: F.poisson_nll_loss(o, z), epochs=12, wd=1e-4)
    return done(model, tr, va, run, "all", lambda m, p: minus_loss(m, p, F.poisson_nll_loss))


@case(kind="table", author=ME)
def ninth_ok_huber_with_outliers(seed):
    """One target in fifty is far off; Huber's loss minds little."""
    rng = start(seed, 339)
    tr, va = houses(rng, n=2500, train=1900)
    far = torch.tensor(rng.choice(1900, 38, replace=False))
    clean = va
    tr[1][far] += 25 * torch.randn(38)
    model = mlp(8, 64, 64, 1, squeeze=True)
    run = train(model, tr, va, F.smooth_l1_loss, epochs=15, schedule=cosine)
    return done(model, tr, clean, run, "all", r2, GradientBoostingRegressor())


@case(kind="table", author=ME)
def ninth_ok_stars_by_squares(seed):
    """Ratings from one to five, predicted by their mean square: ordered, so this is right."""
    rng = start(seed, 340)
    X = rng.standard_normal((2400, 7))
    y = np.clip(np.round(3 + X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.4 * rng.standard_normal(2400)), 1, 5)
    tr, va = cut(t(X), t(y), 1800)
    model = mlp(7, 48, 1, squeeze=True)
    with torch.no_grad():
        model[2].bias.fill_(3.0)
    run = train(model, tr, va, "mse", epochs=20, lr=2e-3)
    return done(model, tr, va, run, "most", r2, GradientBoostingRegressor())


@case(kind="images", author=ME)
def ninth_ok_two_heads(seed):
    """A dict of two outputs, a mixed loss; y holds the class and the ink."""
    rng = start(seed, 341)
    (X, y), (V, z) = digits(rng)
    both = lambda A, b: torch.cat([b[:, None].float(), A.mean((1, 2, 3))[:, None] * 10], 1)  # noqa: E731
    tr, va = (X, both(X, y)), (V, both(V, z))

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(*list(digit_cnn(12))[:-1])
            self.kind, self.ink = nn.Linear(96, 10), nn.Linear(96, 1)

        def forward(self, x):
            h = self.body(x)
            return {"kind": self.kind(h), "ink": self.ink(h).squeeze(1)}

    def loss(o, target):
        return F.cross_entropy(o["kind"], target[:, 0].long()) + 0.5 * F.mse_loss(o["ink"], target[:, 1])

    model = Heads()
    run = train(model, tr, va, loss, epochs=10, lr=3e-3)
    return done(
        model,
        tr,
        va,
        run,
        "all",
        lambda m, p: float((m(p[0])["kind"].argmax(1) == p[1][:, 0]).float().mean()),
    )


# ---- sequences, text, graphs ----------------------------------------------------------------------------------------


@case(kind="text", author=ME)
def ninth_ok_tied_language_model(seed):
    """Weights of the input and output embeddings are one; accuracy of 0.6 is near what the chain allows."""
    rng = start(seed, 342)
    tr, va = chain(rng, n=1600, train=1300)
    model = TokenGRU(tie=True)
    run = train(model, tr, va, token_loss, epochs=20, lr=1e-2, schedule=cosine)
    return done(model, tr, va, run, "all")


@case(kind="text", author=ME)
def ninth_ok_padded_transformer(seed):
    """A third of all tokens is padding."""
    rng = start(seed, 343)
    tr, va = topics(rng, n=3200, train=2600, own=0.35)
    model = TextNet(90, length=24, classes=3, drop=0.2)
    run = train(model, tr, va, epochs=7, lr=4e-3, wd=1e-4, schedule=warm_cosine)
    bow = lambda X: F.one_hot(X, 90).sum(1).numpy()[:, 1:]  # noqa: E731
    baseline(lambda: LogisticRegression(max_iter=500, C=0.1).fit(bow(tr[0]), tr[1]).score(bow(va[0]), va[1]))
    return done(model, tr, va, run, "all")


@case(kind="text", author=ME)
def ninth_ok_cosine_classifier(seed):
    """Normalised sentence vectors against normalised class vectors, times a fixed scale."""
    rng = start(seed, 344)
    tr, va = topics(rng, n=2400, train=1800)

    class Cos(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.classes = nn.Embedding(90, 16, padding_idx=0), nn.Parameter(torch.randn(3, 16))

        def forward(self, x):
            return 8 * F.normalize(self.embed(x).mean(1), dim=1) @ F.normalize(self.classes, dim=1).T

    model = Cos()
    run = train(model, tr, va, epochs=10, lr=5e-3)
    bow = lambda X: F.one_hot(X, 90).sum(1).numpy()[:, 1:]  # noqa: E731
    baseline(lambda: LogisticRegression(max_iter=500, C=0.1).fit(bow(tr[0]), tr[1]).score(bow(va[0]), va[1]))
    return done(model, tr, va, run, "none")


@case(kind="graph", author=ME)
def ninth_ok_gcn_two_layers(seed):
    rng = start(seed, 345)
    tr, va = papers(rng)
    model = GCN(drop=0.5)
    run = train(model, tr, va, epochs=60, lr=1e-2, wd=5e-4, whole=True)
    return done(model, tr, va, run, "all")


@case(kind="graph", author=ME)
def ninth_ok_molecules(seed):
    rng = start(seed, 346)
    tr, va = molecules(rng, n=2000, train=1500)
    model = GraphNet()
    run = train(model, tr, va, epochs=25, lr=4e-3, schedule=cosine)
    return done(model, tr, va, run, "most")


@case(kind="graph", author=ME)
def ninth_ok_roads(seed):
    rng = start(seed, 347)
    tr, va = roads(rng)
    model = RoadNet()
    run = train(model, tr, va, "mse", epochs=25, lr=5e-3, schedule=cosine)
    return done(model, tr, va, run, "all", r2)


@case(kind="images", author=ME)
def ninth_ok_unet_small_foreground(seed):
    """One pixel in seven belongs to a cell."""
    rng = start(seed, 348)
    tr, va = cells(rng, n=700, train=500)
    model = UNet()
    run = train(model, tr, va, epochs=14, lr=8e-3, schedule=cosine)
    return done(model, tr, va, run, "all")


# ---- generative -----------------------------------------------------------------------------------------------------


@case(kind="generative", author=ME)
def ninth_ok_autoencoder_bottleneck(seed):
    """Five numbers for rows that have five degrees of freedom: narrow on purpose."""
    rng = start(seed, 349)
    X = rng.standard_normal((2000, 5)) @ rng.standard_normal((5, 30)) / 2.2 + 0.1 * rng.standard_normal(
        (2000, 30)
    )
    X = t(X)
    tr, va = (X[:1500], X[:1500]), (X[1500:], X[1500:])
    model = nn.Sequential(
        nn.Linear(30, 64), nn.GELU(), nn.Linear(64, 5), nn.Linear(5, 64), nn.GELU(), nn.Linear(64, 30)
    )
    run = train(model, tr, va, "mse", epochs=25, lr=3e-3, schedule=cosine)
    return done(model, tr, va, run, "all", r2)


@case(kind="generative", author=ME)
def ninth_ok_vae_some_codes_unused(seed):
    """Of sixteen codes some are not needed and stay at the prior; the others carry the digit."""
    rng = start(seed, 350)
    (X, _), (V, _) = digits(rng, flat=True)
    model = VAE(64, 16)
    run = train(model, (X, None), (V, None), elbo(), epochs=25, lr=2e-3)
    with torch.no_grad():
        m, v = model.encode(V)
        note(float(0.5 * (m**2 + v.exp() - 1 - v).sum(1).mean()))
        baseline(lambda: 1 - ((model(V)[0] - V) ** 2).mean() / V.var())
    return hand(model, X, V, run, "all")


@case(kind="generative", author=ME)
def ninth_ok_ring_all_modes(seed):
    """A generator trained by kernel distances covers the eight modes."""
    start(seed, 351)
    X = ring(np.random.default_rng(seed))

    class Gen(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.critic = mlp(4, 64, 64, 2), mlp(2, 16, 1)

        def forward(self, x):
            return self.critic(x)

        def sample(self, n):
            return self.net(torch.randn(n, 4))

    model = Gen()
    o, c = torch.optim.Adam(model.net.parameters(), 2e-3), torch.optim.Adam(model.critic.parameters(), 2e-3)
    k = lambda u, v: sum(
        torch.exp(-((u[:, None] - v[None]) ** 2).sum(2) / (2 * s)) for s in (0.02, 0.1, 0.5, 1.0)
    ).mean()  # noqa: E731
    for _ in range(450):
        real, fake = X[torch.randint(len(X), (128,))], model.sample(128)
        loss = k(fake, fake) - 2 * k(fake, real)
        o.zero_grad()
        loss.backward()
        o.step()
        c.zero_grad()
        (F.softplus(-model(real)).mean() + F.softplus(model(fake.detach())).mean()).backward()
        c.step()
    model.eval().zero_grad()
    note(covered(model.sample(1000)))
    return {"model": model, "data": X}


# ---- estimators of the library --------------------------------------------------------------------------------------


@case(kind="images", author=ME)
def ninth_ok_library_mlp(seed):
    import corollary

    rng = start(seed, 352)
    tr, va = digits(rng, flat=True)
    model = corollary.MLPClassifier(
        (64,), dropout=0.1, training=corollary.Training(epochs=60, schedule="cosine"), random_state=seed
    )
    model.fit(tr[0].numpy(), tr[1].numpy())
    note(model.score(va[0].numpy(), va[1].numpy()))
    return {
        "model": model,
        "data": (tr[0].numpy(), tr[1].numpy()),
        "validation": (va[0].numpy(), va[1].numpy()),
    }


@case(kind="table", author=ME)
def ninth_ok_library_regressor_prices(seed):
    """Prices in euros: the estimator scales targets itself."""
    import corollary

    rng = start(seed, 353)
    tr, va = houses(rng, n=1800, train=1300)
    y, z = tr[1].numpy() * 4e4 + 3e5, va[1].numpy() * 4e4 + 3e5
    model = corollary.MLPRegressor((64, 64), training=corollary.Training(epochs=30), random_state=seed).fit(
        tr[0].numpy(), y
    )
    note(model.score(va[0].numpy(), z))
    return {"model": model, "data": (tr[0].numpy(), y), "validation": (va[0].numpy(), z)}


@case(kind="sequences", author=ME)
def ninth_ok_library_net_classifier(seed):
    import corollary

    rng = start(seed, 354)
    tr, va = sensor(rng)
    model = corollary.NetClassifier(
        WaveCNN(16), training=corollary.Training(epochs=10, learning_rate=3e-3), random_state=seed
    )
    model.fit(tr[0].numpy(), tr[1].numpy())
    note(model.score(va[0].numpy(), va[1].numpy()))
    return {
        "model": model,
        "data": (tr[0].numpy(), tr[1].numpy()),
        "validation": (va[0].numpy(), va[1].numpy()),
    }


# ---- plain ones -----------------------------------------------------------------------------------------------------


@case(kind="sequences", author=ME)
def ninth_ok_sensor(seed):
    rng = start(seed, 355)
    tr, va = sensor(rng)
    model = WaveCNN()
    run = train(model, tr, va, epochs=10, lr=3e-3)
    return done(model, tr, va, run, "none")


@case(kind="text", author=ME)
def ninth_ok_reviews(seed):
    rng = start(seed, 356)
    tr, va = reviews(rng, n=3400, train=2800)
    model = TextConv(drop=0.2)
    run = train(model, tr, va, epochs=15)
    return done(model, tr, va, run, "all")
