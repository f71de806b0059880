"""Healthy set-ups; most look suspicious (hard negatives) but are right."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from sklearn import datasets
from torch import nn

from zoo import case
from zoo.tenth_parts import *

ME = "tenth"
TABLE = {"kind": "table", "author": ME}
IMAGES = {"kind": "images", "author": ME}
SEQ = {"kind": "sequences", "author": ME}
TEXT = {"kind": "text", "author": ME}
GRAPH = {"kind": "graph", "author": ME}
GEN = {"kind": "generative", "author": ME}


# ---------------------------------------------------------------- plain
@case(**IMAGES)
def t10_fine_digits_convolution(seed):
    return train(seed, digits(seed, n=1200, flat=False), lambda: Conv(10), epochs=8, give="all")


@case(**TABLE)
def t10_fine_cancer_bce(seed):
    return train(
        seed,
        cancer(seed),
        lambda: Squeeze(mlp(30, 16, 1)),
        loss="bce_with_logits",
        opt=adamw(3e-3, weight_decay=0.05),
        epochs=12,
        give="opt",
        form="numpy",
    )


@case(**TABLE)
def t10_fine_friedman(seed):
    return train(seed, friedman(seed), lambda: Squeeze(mlp(8, 64, 64, 1)), loss="mse", epochs=20, give="hist")


@case(**TEXT)
def t10_fine_topics_attention(seed):
    return train(seed, topics(seed, n=1500, share=0.4), lambda: Attend(80, 5), epochs=6, give="opt")


@case(**SEQ)
def t10_fine_waves_recurrent(seed):
    return train(
        seed,
        waves(seed, length=24, noise=0.15),
        lambda: Recurrent(1, 4, channels_first=True),
        opt=adam(1e-2),
        epochs=15,
        give="loss",
    )


@case(**GRAPH)
def t10_fine_molecules(seed):
    return train(seed, molecules(seed), GraphClass, opt=adam(1e-2), epochs=20, give="all")


@case(**GRAPH)
def t10_fine_community_edges(seed):
    X, A, edges, y, tr = community(seed)
    data = ((X, edges), torch.where(tr, y, -100), (X, edges), torch.where(tr, -100, y))
    return train(
        seed,
        data,
        lambda: EdgeNet(8, 4, own=False),
        opt=adamw(1e-2, weight_decay=0.05),
        batch=len(y),
        epochs=80,
        give="opt",
    )


@case(**IMAGES)
def t10_fine_shapes_loader(seed):
    return train(seed, shapes(seed), lambda: Conv(4, 12, flat=False), epochs=10, give="opt", form="loader")


@case(**SEQ)
def t10_fine_forecast_bare(seed):
    """The last value tells much of the next one, as it should."""
    return train(
        seed,
        series(seed),
        lambda: Recurrent(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=12,
        give="bare",
    )


@case(**GEN)
def t10_fine_vae_digits(seed):
    X, _, Xv, _ = digits(seed)
    return train_vae(seed, X, Xv, lambda: Vae(64), epochs=30, give="all")


@case(**GEN)
def t10_fine_ring_generator(seed):
    """A generator trained with distances both ways reaches all modes."""
    X = ring(seed, noise=0.2)
    torch.manual_seed(seed)

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(4, 48, 48, 2)

        def forward(self, z):
            return self.net(z)

        def sample(self, n):
            return self.net(torch.randn(n, 4))

    model = Generator()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for i in range(900):
        for g in opt.param_groups:
            g["lr"] = 3e-3 * (1 - i / 900) + 1e-5
        s, x = model.sample(192), X[torch.randint(0, len(X), (192,))]
        value = (
            torch.cdist(s, x).mean() * 2
            - torch.cdist(s, s).sum() / (192 * 191)
            - torch.cdist(x, x).sum() / (192 * 191)
        )
        opt.zero_grad()
        value.backward()
        opt.step()
    return {"model": model.eval(), "data": X[:700], "validation": X[700:]}


# ---------------------------------------------------------------- hard negatives
@case(**TABLE)
def t10_log_softmax_then_cross_entropy(seed):
    """log_softmax twice is log_softmax once."""
    return train(
        seed,
        digits(seed),
        lambda: mlp(64, 64, 10, end=(nn.LogSoftmax(1),)),
        opt=adam(2e-3),
        epochs=10,
        give="all",
    )


@case(**TABLE)
def t10_overlapping_classes(seed):
    """Two Gaussians one and a half standard deviations apart: nobody does better than 77 %."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 2000)
    X = r.normal(size=(2000, 6))
    X[:, 0] += 1.5 * y
    X, y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    return train(
        seed,
        (X[:1400], y[:1400], X[1400:], y[1400:]),
        lambda: mlp(6, 8, 2),
        opt=adamw(3e-3, weight_decay=0.05),
        epochs=8,
        give="all",
    )


@case(**TABLE)
def t10_diabetes_low_r2(seed):
    """Half of the variance cannot be explained by anybody."""
    X, y = datasets.load_diabetes(return_X_y=True)
    X, y = X / X.std(0), (y - y.mean()) / y.std()
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = torch.as_tensor(X[order], dtype=torch.float32), torch.as_tensor(y[order], dtype=torch.float32)
    return train(
        seed,
        (X[:300], y[:300], X[300:], y[300:]),
        lambda: Squeeze(nn.Linear(10, 1)),
        loss="mse",
        opt=adam(1e-2),
        epochs=25,
        give="hist",
    )


@case(**TABLE)
def t10_imbalance_weighted(seed):
    """Thirteen per cent of the rows are positive; the loss is weighted and both classes are found."""
    X, y, Xv, yv = blobs(seed, n=4000, held=1500, k=2, d=8, sep=1.6)
    keep = (y == 0) | (torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.15)
    keepv = (yv == 0) | (torch.rand(len(yv), generator=torch.Generator().manual_seed(seed)) < 0.15)
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 4.0]))
    return train(
        seed,
        (X[keep], y[keep], Xv[keepv], yv[keepv]),
        lambda: mlp(8, 32, 2),
        loss=loss,
        opt=adam(3e-3),
        epochs=10,
        give="all",
    )


@case(**IMAGES)
def t10_rare_but_easy(seed):
    """One class in thirty, told apart without trouble."""
    X, y, Xv, yv = shapes(seed, n=1200, held=900, noise=0.15)
    a = (y != 3) | (torch.arange(len(y)) % 8 == 0)
    b = (yv != 3) | (torch.arange(len(yv)) % 8 == 0)
    return train(seed, (X[a], y[a], Xv[b], yv[b]), lambda: Conv(4, 12, flat=False), epochs=10, give="opt")


@case(**TABLE)
def t10_questionnaire_repeated_rows(seed):
    """Five yes-no questions: rows of training and validation are equal because there are only 32 of them."""
    r = np.random.default_rng(seed)
    X = r.integers(0, 2, (900, 5)).astype(np.float32)
    p = 1 / (1 + np.exp(-(2.5 * X[:, 0] - 2 * X[:, 1] + 3 * X[:, 2] * X[:, 3] - 1)))
    y = (r.uniform(size=900) < p).astype(np.int64)
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    return train(
        seed,
        (X[:600], y[:600], X[600:], y[600:]),
        lambda: mlp(5, 16, 2),
        opt=adam(3e-3),
        epochs=15,
        give="opt",
    )


@case(**TABLE)
def t10_untrained_dense(seed):
    """A net that has not been trained yet; good start, scaled data."""
    X, y, Xv, yv = blobs(seed)
    torch.manual_seed(seed)
    model = Dense(12, 5)
    return {
        "model": model.eval(),
        "data": (X, y),
        "validation": (Xv, yv),
        "loss": "cross_entropy",
        "optimizer": torch.optim.Adam(model.parameters(), lr=3e-3),
        "batch_size": 32,
    }


@case(**IMAGES)
def t10_fast_sgd_with_norm(seed):
    """Rate 0.3 with batch norm and a schedule: fast, not too fast."""
    net = lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, padding=1),  # noqa: E731
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 10),
    )
    return train(
        seed,
        digits(seed, flat=False),
        net,
        opt=sgd(0.3, 0.0),
        epochs=14,
        batch=64,
        give="all",
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 14, eta_min=0.03),
    )


@case(**IMAGES)
def t10_cosine_ended_at_nothing(seed):
    """The schedule has ended: the rate in the optimiser is a millionth."""
    plan = lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10, eta_min=1e-6)  # noqa: E731
    return train(
        seed,
        shapes(seed),
        lambda: Conv(4, 12, flat=False),
        opt=adam(5e-3),
        schedule=plan,
        epochs=10,
        give="all",
    )


@case(**TABLE)
def t10_wide_dropout_half(seed):
    return train(
        seed, digits(seed), lambda: Dense(64, 10, width=192, drop=0.5), epochs=15, opt=adam(2e-3), give="hist"
    )


@case(**TABLE)
def t10_adamw_decay_that_helps(seed):
    return train(
        seed,
        wine(seed),
        lambda: mlp(13, 24, 3),
        opt=adamw(5e-3, weight_decay=0.3),
        epochs=25,
        give="all",
        form="numpy",
    )


@case(**TABLE)
def t10_two_units_are_enough(seed):
    """A target of one linear combination passes a layer of width one without loss."""
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(1300, 10)), dtype=torch.float32)
    w = torch.as_tensor(r.normal(size=10) / np.sqrt(10), dtype=torch.float32)
    y = torch.sin(1.5 * X @ w) + 0.1 * torch.as_tensor(r.normal(size=1300), dtype=torch.float32)
    net = lambda: Squeeze(nn.Sequential(nn.Linear(10, 2), nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)))  # noqa: E731
    return train(
        seed, (X[:900], y[:900], X[900:], y[900:]), net, loss="mse", opt=adam(5e-3), epochs=30, give="opt"
    )


@case(**TABLE)
def t10_linear_on_linear(seed):
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(1000, 15)), dtype=torch.float32)
    y = X @ torch.as_tensor(r.normal(size=15) / 4, dtype=torch.float32) + 0.3 * torch.as_tensor(
        r.normal(size=1000), dtype=torch.float32
    )
    return train(
        seed,
        (X[:700], y[:700], X[700:], y[700:]),
        lambda: Squeeze(nn.Linear(15, 1)),
        loss=nn.MSELoss(),
        opt=sgd(0.02),
        epochs=12,
        give="all",
    )


@case(**TABLE)
def t10_twelve_residual_blocks(seed):
    """Deep, but each block starts as the identity (its second matrix is zero)."""

    class Block(nn.Module):
        def __init__(self, w):
            super().__init__()
            self.a, self.b = nn.Linear(w, w), nn.Linear(w, w)
            nn.init.zeros_(self.b.weight), nn.init.zeros_(self.b.bias)

        def forward(self, x):
            return x + self.b(torch.tanh(self.a(x)))

    net = lambda: Squeeze(nn.Sequential(nn.Linear(8, 24), *[Block(24) for _ in range(12)], nn.Linear(24, 1)))  # noqa: E731
    return train(seed, friedman(seed), net, loss="mse", opt=adam(2e-3), epochs=20, give="all")


@case(**TABLE)
def t10_sigmoid_hidden_layer(seed):
    """One layer of sigmoids is no tower of them."""
    return train(
        seed, digits(seed), lambda: mlp(64, 64, 10, act=nn.Sigmoid), opt=adam(1e-2), epochs=15, give="opt"
    )


@case(**TABLE)
def t10_counts_from_relu_head(seed):
    """Counts cannot be negative: softplus at the end and the Poisson likelihood."""
    X, y, Xv, yv = friedman(seed, n=1200)
    g = torch.Generator().manual_seed(seed)
    y, yv = (
        torch.poisson(torch.exp(0.8 * y + 0.7), generator=g),
        torch.poisson(torch.exp(0.8 * yv + 0.7), generator=g),
    )
    loss = lambda out, t: (out - t * torch.log(out + 1e-6)).mean()  # noqa: E731
    return train(
        seed, (X, y, Xv, yv), lambda: Squeeze(mlp(8, 32, 1), F.softplus), loss=loss, epochs=15, give="loss"
    )


@case(**SEQ)
def t10_tanh_end_bounded_target(seed):
    """A tanh at the end of a regression whose targets are angles between -1 and 1."""
    X, y, Xv, yv = series(seed)
    X, y, Xv, yv = X / 2, y / 2, Xv / 2, yv / 2

    class Net(Recurrent):
        def forward(self, x):
            return torch.tanh(super().forward(x))

    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Net(1, 1, squeeze=True),
        loss="mse",
        opt=adam(5e-3),
        epochs=15,
        give="opt",
    )


@case(**TABLE)
def t10_probabilities_with_plain_bce(seed):
    """A sigmoid at the end is right for BCELoss."""
    return train(
        seed,
        cancer(seed),
        lambda: Squeeze(mlp(30, 16, 1), torch.sigmoid),
        loss=nn.BCELoss(),
        opt=adamw(3e-3, weight_decay=0.05),
        epochs=12,
        give="all",
    )


@case(**IMAGES)
def t10_batch_of_four_group_norm(seed):
    """Small batches do not hurt group norm."""
    net = lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(3),
        nn.Flatten(),  # noqa: E731
        nn.Linear(144, 32),
        nn.LayerNorm(32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    return train(seed, digits(seed, flat=False), net, opt=adam(5e-4), batch=4, epochs=6, give="all")


@case(**GRAPH)
def t10_eight_graph_layers_with_skips(seed):
    """Deep, but each layer keeps the start (initial residual)."""

    class Net(nn.Module):
        def __init__(self, d, k, width=24):
            super().__init__()
            self.inp, self.out = nn.Linear(d, width), nn.Linear(width, k)
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(8))

        def forward(self, x, A):
            P, h0 = normalised(A), F.relu(self.inp(x))
            h = h0
            for layer in self.layers:
                h = h + 0.3 * F.relu(layer(0.7 * (P @ h) + 0.3 * h0))
            return self.out(h)

    X, A, edges, y, tr = community(seed, outside=0.004)
    nodes = torch.arange(len(y))
    return train(
        seed,
        (nodes[tr], y[tr], nodes[~tr], y[~tr]),
        lambda: NodeLookup(X, A, Net(8, 4)),
        opt=adamw(3e-3, weight_decay=0.1),
        epochs=20,
        give="all",
    )


@case(**SEQ)
def t10_small_field_local_pattern(seed):
    """Convolutions that see three places find a pattern of three."""
    r = np.random.default_rng(seed)
    y = r.integers(0, 2, 1200)
    X = 0.3 * r.normal(size=(1200, 1, 60))
    at = r.integers(1, 58, 1200)
    for i in range(1200):
        X[i, 0, at[i] - 1 : at[i] + 2] += [1.5, -1.5, 1.5] if y[i] else [-1.5, 1.5, -1.5]
    X, y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.h = nn.Conv1d(1, 12, 3), nn.Linear(12, 2)

        def forward(self, x):
            return self.h(F.relu(self.c(x)).amax(2))

    return train(seed, (X[:900], y[:900], X[900:], y[900:]), Net, opt=adam(1e-2), epochs=10, give="opt")


@case(**GEN)
def t10_vae_with_spare_codes(seed):
    """Sixteen codes, more than the noise level can fill: each says little and some next to nothing, which is all right."""
    X, _, Xv, _ = digits(seed)
    return train_vae(seed, X, Xv, lambda: Vae(64, latent=16, noise=0.6), epochs=30, give="opt")


@case(**TABLE)
def t10_scaler_inside(seed):
    """Columns of all sizes, and the first layer of the model is a batch norm."""
    X, y, Xv, yv = blobs(seed, n=2500)
    unit = 10.0 ** torch.linspace(-3, 3, 12)
    net = lambda: nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 5))  # noqa: E731
    return train(seed, (X * unit, y, Xv * unit, yv), net, opt=adam(3e-3), epochs=20, give="all")


@case(**IMAGES)
def t10_bytes_divided_in_forward(seed):
    class Net(Conv):
        def forward(self, x):
            return super().forward(x / 127.0 - 0.6)

    X, y, Xv, yv = digits(seed, flat=False)
    return train(seed, ((X + 0.6) * 127, y, (Xv + 0.6) * 127, yv), lambda: Net(10), epochs=8, give="loss")


@case(**TABLE)
def t10_prices_scaled_inside(seed):
    """Targets in dollars; the model's last act is to multiply and add, and the loss divides."""
    X, y, Xv, yv = friedman(seed)
    y, yv = 300000 + 80000 * y, 300000 + 80000 * yv
    loss = lambda out, t: (((out - t) / 80000) ** 2).mean()  # noqa: E731
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 64, 64, 1), lambda z: 300000 + 80000 * z),
        loss=loss,
        epochs=20,
        give="opt",
    )


@case(**TABLE)
def t10_heavy_tails_huber(seed):
    """Student noise with two degrees of freedom, and Huber's loss."""
    r = np.random.default_rng(seed)
    X, y, Xv, yv = friedman(seed, n=1200)
    y = y + 0.15 * torch.as_tensor(r.standard_t(2, len(y)), dtype=torch.float32)
    yv = yv + 0.15 * torch.as_tensor(r.standard_t(2, len(yv)), dtype=torch.float32)
    return train(
        seed,
        (X, y, Xv, yv),
        lambda: Squeeze(mlp(8, 48, 1)),
        loss=nn.SmoothL1Loss(beta=0.3),
        opt=adamw(3e-3, weight_decay=0.05),
        epochs=15,
        give="hist",
    )


@case(**TABLE)
def t10_heavy_tailed_inputs(seed):
    """Log-normal columns, one of them spanning three decades, enter through log1p in the model."""
    X, y, Xv, yv = blobs(seed, n=2500)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(12, 128, 5)

        def forward(self, x):
            return self.net(torch.log(x))

    return train(seed, (torch.exp(X), y, torch.exp(Xv), yv), Net, opt=adam(3e-3), epochs=20, give="opt")


@case(**IMAGES)
def t10_pretrained_and_frozen(seed):
    """The encoder was trained on other pictures of the same kind and is frozen on purpose."""
    first = train(seed + 50, shapes(seed + 50), lambda: Conv(4, 12, flat=False), epochs=10)["model"]
    for p in list(first.c1.parameters()) + list(first.c2.parameters()):
        p.requires_grad_(False)
    first.head = nn.Linear(32, 4)
    opt = lambda m: torch.optim.Adam(m.head.parameters(), lr=1e-2)  # noqa: E731
    return train(seed, shapes(seed), lambda: first, opt=opt, epochs=8, give="all")


@case(**TABLE)
def t10_random_features_on_purpose(seed):
    """Four hundred fixed random features and a trained ridge on top: as good as the trained net."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("W", torch.randn(64, 400) / 4)
            self.register_buffer("b", 6.3 * torch.rand(400))
            self.head = nn.Linear(400, 10)

        def forward(self, x):
            return self.head(torch.cos(0.5 * x @ self.W + self.b))

    return train(seed, digits(seed), Net, opt=adamw(5e-3, weight_decay=0.01), epochs=15, give="all")


@case(**SEQ)
def t10_accumulate_four(seed):
    """Gradients are kept for four batches on purpose, divided by four, and then cleared."""

    class Accumulate:
        def __init__(self):
            self.known = {}

        def __call__(self, model, batch):
            x, y = batch
            if id(model) not in self.known:
                self.known[id(model)] = [model, torch.optim.Adam(model.parameters(), lr=1e-2), 0]
            entry = self.known[id(model)]
            value = F.cross_entropy(model(x), y)
            (value / 4).backward()
            entry[2] += 1
            if entry[2] % 4 == 0:
                entry[1].step()
                entry[1].zero_grad()
            return value.detach()

    step = Accumulate()
    given = train(
        seed,
        waves(seed),
        lambda: Conv1(4),
        opt=adam(1e-2),
        batch=16,
        epochs=10,
        give="all",
        update=lambda m, o, x, y: step(m, (x, y)),
    )
    for p in given["model"].parameters():
        p.grad = None
    given["step"] = Accumulate()
    return given


@case(**TABLE)
def t10_step_in_order(seed):
    """A user's own step that clears first."""
    step = Step("mse", adam(3e-3), "always")
    given = train(
        seed,
        friedman(seed),
        lambda: Squeeze(mlp(8, 64, 64, 1)),
        loss="mse",
        epochs=20,
        give="opt",
        update=lambda m, o, x, y: step(m, (x, y)),
    )
    given["step"] = Step("mse", adam(3e-3), "always")
    return given


@case(**TABLE)
def t10_stopped_early_best_kept(seed):
    """The history shows the validation loss turning, but the best weights were put back."""
    return train(
        seed,
        blobs(seed, n=1000, k=3, sep=1.0),
        lambda: mlp(12, 64, 3),
        opt=adam(5e-3),
        epochs=40,
        stop=True,
        give="all",
    )


@case(**IMAGES)
def t10_interpolates_and_is_right(seed):
    """No training error at all, and the validation is as good."""
    return train(
        seed,
        digits(seed, n=1290, held=500, flat=False),
        lambda: Conv(10),
        opt=adam(2e-3),
        epochs=18,
        give="opt",
    )


@case(**TABLE)
def t10_full_batch_lbfgs(seed):
    X, y, Xv, yv = cancer(seed)
    torch.manual_seed(seed)
    model = Squeeze(nn.Linear(30, 1))
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=30)
    history = []

    def closure():
        opt.zero_grad()
        value = F.binary_cross_entropy_with_logits(model(X), y) + 5e-3 * model.body.weight.square().sum()
        value.backward()
        return value

    for _ in range(4):
        history.append({"loss": float(opt.step(closure))})
    return {
        "model": model.eval(),
        "data": (X, y),
        "validation": (Xv, yv),
        "loss": "bce_with_logits",
        "optimizer": opt,
        "batch_size": len(y),
        "history": history,
    }


@case(**TEXT)
def t10_language_model_tied(seed):
    """Next-token prediction with tied embeddings; padding is -100; the chain is noisy by nature."""
    r = np.random.default_rng(seed)
    vocab, n, length = 20, 700, 16
    nxt = r.integers(1, vocab, (vocab, 2))
    T = np.zeros((n, length + 1), dtype=np.int64)
    T[:, 0] = r.integers(1, vocab, n)
    for t in range(length):
        pick = np.where(r.uniform(size=n) < 0.75, 0, 1)
        T[:, t + 1] = nxt[T[:, t], pick]
    X, y = torch.as_tensor(T[:, :-1]), torch.as_tensor(T[:, 1:]).clone()
    cut = torch.as_tensor(r.integers(9, length + 1, n))
    y[torch.arange(length)[None] >= cut[:, None]] = -100

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn = nn.Embedding(vocab, 24), nn.GRU(24, 24, batch_first=True)

        def forward(self, t):
            h, _ = self.rnn(self.emb(t))
            return (h @ self.emb.weight.T).transpose(1, 2)

    return train(seed, (X[:500], y[:500], X[500:], y[500:]), Net, opt=adam(1e-2), epochs=12, give="opt")


@case(**TABLE)
def t10_siamese_pairs(seed):
    """Two inputs, one shared net: are these digits the same? Tuple input, one score."""
    X, y, Xv, yv = digits(seed, n=1200, held=500)
    g = torch.Generator().manual_seed(seed)

    def pairs(X, y, n):
        a = torch.randint(0, len(y), (n,), generator=g)
        b = torch.randint(0, len(y), (n,), generator=g)
        same = torch.rand(n, generator=g) < 0.45
        for i in torch.nonzero(same)[:, 0]:
            mates = torch.nonzero(y == y[a[i]])[:, 0]
            b[i] = mates[torch.randint(0, len(mates), (1,), generator=g)]
        return (X[a], X[b]), (y[a] == y[b]).float()

    P, t = pairs(X, y, 3000)
    Q, u = pairs(Xv, yv, 600)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.bias, self.scale = (
                mlp(64, 64, 24),
                nn.Parameter(torch.tensor(2.0)),
                nn.Parameter(torch.tensor(1.0)),
            )

        def forward(self, a, b):
            d = (self.f(a) - self.f(b)).square().sum(1)
            return self.bias - self.scale * d

    return train(seed, (P, t, Q, u), Net, loss="bce_with_logits", opt=adam(2e-3), epochs=8, give="opt")


@case(**TABLE)
def t10_two_heads_in_a_dict(seed):
    """A dict of two outputs, both in the loss."""
    X, y, Xv, yv = friedman(seed, n=1500, noise=1.0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.mean, self.spread = mlp(8, 64, 64), nn.Linear(64, 1), nn.Linear(64, 1)

        def forward(self, x):
            h = F.relu(self.body(x))
            return {"mean": self.mean(h).squeeze(1), "log_variance": self.spread(h).squeeze(1).clamp(-6, 6)}

    def loss(out, t):
        return 0.5 * (out["log_variance"] + (t - out["mean"]) ** 2 * torch.exp(-out["log_variance"])).mean()

    return train(seed, (X, y, Xv, yv), Net, loss=loss, opt=adam(2e-3), epochs=15, stop=True, give="opt")


@case(**TABLE)
def t10_many_labels_at_once(seed):
    """Five yes-no targets per row with BCE; one of them is rare."""
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(1600, 12)), dtype=torch.float32)
    W = torch.as_tensor(r.normal(size=(12, 5)), dtype=torch.float32)
    y = (X @ W > torch.tensor([0.0, 0.0, 1.0, -1.0, 4.0])).float()
    return train(
        seed,
        (X[:1200], y[:1200], X[1200:], y[1200:]),
        lambda: mlp(12, 48, 5),
        loss=nn.BCEWithLogitsLoss(),
        opt=adam(5e-3),
        epochs=15,
        give="opt",
    )


@case(**TEXT)
def t10_large_vocabulary_mostly_unused(seed):
    """Nine in ten word vectors never get a gradient, because these words do not occur."""
    return train(
        seed, topics(seed, n=1200, share=0.4), lambda: Bag(800, 5), opt=adam(1e-2), epochs=7, give="all"
    )


@case(**SEQ)
def t10_causal_mask_of_infinities(seed):
    """Attention with minus infinity in its mask; float64 all the way."""
    X, y, Xv, yv = series(seed)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inp, self.qkv, self.ff, self.out = (
                nn.Linear(1, 16),
                nn.Linear(16, 48),
                mlp(16, 32, 16),
                nn.Linear(16, 1),
            )
            self.pos = nn.Parameter(0.3 * torch.randn(12, 16))

        def forward(self, x):
            h = self.inp(x) + self.pos
            q, k, v = self.qkv(h).chunk(3, -1)
            s = q @ k.transpose(1, 2) / 4
            s = s.masked_fill(torch.triu(torch.ones(12, 12, dtype=torch.bool), 1), float("-inf"))
            h = h + s.softmax(-1) @ v
            h = h + self.ff(h)
            return self.out(h[:, -1]).squeeze(-1)

    return train(
        seed,
        (X.double(), y.double(), Xv.double(), yv.double()),
        lambda: Net().double(),
        loss="mse",
        opt=adam(5e-3),
        epochs=20,
        give="opt",
    )


@case(**TABLE)
def t10_sorted_by_class(seed):
    """The table is sorted by its classes; the loader shuffles."""
    X, y, Xv, yv = digits(seed)
    a, b = torch.argsort(y), torch.argsort(yv)
    return train(
        seed, (X[a], y[a], Xv[b], yv[b]), lambda: Dense(64, 10), opt=adam(2e-3), epochs=8, give="opt"
    )


@case(**TABLE)
def t10_one_hot_complements(seed):
    """One-hot columns: some are each other's complement, one category is very rare."""
    r = np.random.default_rng(seed)
    n = 1500
    a, b, c = r.integers(0, 2, n), r.choice(4, n, p=[0.5, 0.3, 0.18, 0.02]), r.normal(size=(n, 4))
    X = np.concatenate([np.eye(2)[a], np.eye(4)[b], c], 1)
    y = c[:, 0] * (2 * a - 1) + np.array([0, 1, -1, 2])[b] + 0.3 * r.normal(size=n)
    X, y = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y / y.std(), dtype=torch.float32)
    return train(
        seed,
        (X[:1000], y[:1000], X[1000:], y[1000:]),
        lambda: Squeeze(mlp(10, 48, 1)),
        loss="mse",
        opt=adam(5e-3),
        epochs=15,
        give="bare",
        form="numpy",
    )


@case(**TABLE)
def t10_median_by_absolute_error(seed):
    """L1 on purpose; the target is skew."""
    X, y, Xv, yv = friedman(seed)
    return train(
        seed,
        (X, torch.exp(0.5 * y), Xv, torch.exp(0.5 * yv)),
        lambda: Squeeze(mlp(8, 64, 64, 1)),
        loss=nn.L1Loss(),
        opt=adam(2e-3),
        epochs=20,
        give="opt",
    )


@case(**SEQ)
def t10_lstm_large_forget_bias(seed):
    """Forget gates start nearly open on purpose: saturated, and right for a long memory."""
    r = np.random.default_rng(seed)
    X = torch.as_tensor(r.normal(size=(900, 25, 1)) * 0.5, dtype=torch.float32)
    y = torch.as_tensor(r.integers(0, 2, 900))
    X[:, 0, 0] += 2.0 * (2 * y - 1)

    def net():
        m = Recurrent(1, 2, width=16, cell=nn.LSTM)
        m.rnn.bias_hh_l0.data[16:32] = 4.0
        return m

    return train(seed, (X[:600], y[:600], X[600:], y[600:]), net, opt=adam(1e-2), epochs=10, give="all")


@case(**TEXT)
def t10_smoothing_a_little(seed):
    """Label smoothing of 0.05 and a dict as output."""

    class Net(Bag):
        def forward(self, tokens):
            h = self.emb(tokens).mean(1)
            return {"logits": self.net(h), "features": h}

    ce = nn.CrossEntropyLoss(label_smoothing=0.02)
    return train(
        seed,
        topics(seed, n=1500, share=0.4),
        lambda: Net(80, 5),
        loss=lambda out, y: ce(out["logits"], y),
        opt=adam(5e-3),
        epochs=10,
        give="opt",
    )


@case(**TABLE)
def t10_ratings_two_towers(seed):
    """A recommender with two inputs of numbers (users, items) and a noise that nobody can explain."""
    r = np.random.default_rng(seed)
    U, V, bu, bi = r.normal(size=(60, 2)), r.normal(size=(50, 2)), r.normal(size=60), r.normal(size=50)
    at = r.choice(3000, 2600, replace=False)
    u, i = at // 50, at % 50
    y = 0.5 * (U[u] * V[i]).sum(1) + 0.5 * bu[u] + 0.5 * bi[i] + 0.3 * r.normal(size=2600)
    u, i, y = torch.as_tensor(u), torch.as_tensor(i), torch.as_tensor(y, dtype=torch.float32)

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.u, self.i = nn.Embedding(60, 2), nn.Embedding(50, 2)
            self.bu, self.bi = nn.Embedding(60, 1), nn.Embedding(50, 1)
            for e in (self.u, self.i, self.bu, self.bi):
                nn.init.normal_(e.weight, 0, 0.2)

        def forward(self, u, i):
            return (self.u(u) * self.i(i)).sum(1) + self.bu(u)[:, 0] + self.bi(i)[:, 0]

    return train(
        seed,
        ((u[:2100], i[:2100]), y[:2100], (u[2100:], i[2100:]), y[2100:]),
        Towers,
        loss="mse",
        opt=adam(1e-2, weight_decay=1e-3),
        epochs=20,
        give="all",
    )


@case(**TEXT)
def t10_dict_in_dict_out(seed):
    """A dict of tokens and numbers goes in, a dict of scores comes out."""
    X, y, Xv, yv = topics(seed, n=1300, share=0.4)
    g = torch.Generator().manual_seed(seed)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.net = nn.Embedding(80, 12), mlp(14, 32, 5)

        def forward(self, batch):
            return {"logits": self.net(torch.cat([self.emb(batch["tokens"]).mean(1), batch["numbers"]], 1))}

    a, b = torch.randn(len(y), 2, generator=g), torch.randn(len(yv), 2, generator=g)
    return train(
        seed,
        ({"tokens": X, "numbers": a}, y, {"tokens": Xv, "numbers": b}, yv),
        Net,
        loss=lambda out, t: F.cross_entropy(out["logits"], t),
        opt=adam(5e-3),
        epochs=8,
        give="opt",
    )
