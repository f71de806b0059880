"""Faults that show in the outcome, and two faults at once, by the second author."""

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


@case("capacity-too-small", kind="table", author=ME, strength="mild")
def b_four_units_for_a_wavy_curve(seed, fixed=False):
    """Four hidden units for a surface with many bends: the fit stops far below; sixty-four follow it."""
    g = np.random.default_rng(seed)
    x = g.uniform(-1, 1, (900, 2)).astype("float32")
    y = (
        np.sin(4 * x[:, 0]) + np.cos(4 * x[:, 1]) + np.sin(3 * x[:, 0] * x[:, 1]) + 0.1 * g.normal(size=900)
    ).astype("float32")
    train, val, test = three(2 * x, y, seed)
    k = 64 if fixed else 4
    model = mlp(2, k, *([k] if fixed else []), 1, act=nn.Tanh)
    opt = torch.optim.Adam(model.parameters(), 0.02)
    history = fit(model, *train, column, opt, epochs=80 if fixed else 40, val=val)
    held(r2(model, *test))
    return dict(
        model=model, data=train, validation=val, loss=column, optimizer=opt, batch_size=32, history=history
    )


@case("overfit", kind="text", author=ME)
def b_texts_learned_by_heart(seed, fixed=False):
    """Embeddings of 64 for 1000 rare words and 120 texts: training is perfect, validation loss triples; stopped early, better."""
    train, val, test = texts(seed, 200, vocabulary=1000, share=0.1)
    model = BagText(1000, 64, hidden=128)
    opt = torch.optim.Adam(model.parameters(), 5e-3 if fixed else 0.01)
    history = fit(model, *train, F.cross_entropy, opt, epochs=7 if fixed else 60, val=val)
    held(acc(model, *test))
    with torch.no_grad():
        held(-F.cross_entropy(model(test[0]), test[1]))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


def elbo(beta, averaged=False):
    def loss(out, x):
        recon, mean, log_variance = out
        error = F.binary_cross_entropy(recon, x, reduction="none")
        error = error.mean() if averaged else error.sum(1).mean()
        return error + beta * -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()

    return loss


def _vae(seed, loss, epochs=12):
    train, val, test = digits(seed, 700, flat=True)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    history = fit(model, train[0], train[0], loss, opt, epochs=epochs)
    held(r2(model, test[0], test[0]))
    return model, train[0], val[0], opt, history


@case("posterior-collapse", kind="generative", author=ME)
def b_vae_with_beta_of_thirty(seed, fixed=False):
    """beta = 30: the code says nothing about the digit and every reconstruction is the mean; at 1 it carries it."""
    loss = elbo(1.0 if fixed else 30.0)
    model, X, V, opt, history = _vae(seed, loss)
    return dict(model=model, data=X, validation=V, loss=loss, optimizer=opt, batch_size=32, history=history)


def ring(n, g, modes=8):
    a = 2 * np.pi * torch.randint(0, modes, (n,), generator=g) / modes
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.08 * torch.randn(n, 2, generator=g)


def covered(points, modes=8):
    a = 2 * np.pi * torch.arange(modes) / modes
    centres = torch.stack([a.cos(), a.sin()], 1) * 2
    near = torch.cdist(points, centres)
    share = torch.stack([(near.argmin(1) == k).float().mean() for k in range(modes)])
    return (share > 0.02).float().mean()


def mmd(a, b, widths=(0.1, 0.4, 1.6)):
    k = lambda u, v: sum(torch.exp(-(torch.cdist(u, v) ** 2) / (2 * w)) for w in widths).mean()  # noqa: E731
    return k(a, a) + k(b, b) - 2 * k(a, b)


@case("mode-collapse", kind="generative", author=ME)
def b_generator_outruns_the_critic(seed, fixed=False):
    """Six generator steps for each step of a weak critic: one or two of eight modes; by moment matching it covers all."""
    g = torch.Generator().manual_seed(seed)
    X = ring(1000, g)
    model = Generator()
    history = []
    if fixed:
        opt = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(600):
            loss = mmd(model.sample(128), X[torch.randint(0, 1000, (128,), generator=g)])
            opt.zero_grad()
            loss.backward()
            opt.step()
    else:
        critic = mlp(2, 32, 1, act=nn.Tanh)
        opt, co = torch.optim.Adam(model.parameters(), 3e-3), torch.optim.Adam(critic.parameters(), 1e-3)
        for t in range(80):
            real, fake = X[torch.randint(0, 1000, (64,), generator=g)], model.sample(64).detach()
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
            co.zero_grad()
            loss.backward()
            co.step()
            for _ in range(8):
                gl = F.softplus(-critic(model.sample(64))).mean()
                opt.zero_grad()
                gl.backward()
                opt.step()
            if t % 10 == 9:
                history.append({"loss": gl.item()})
    model.eval()
    with torch.no_grad():
        held(covered(model.sample(1000)))
        held(-mmd(model.sample(500), X[:500]))
    return dict(model=model, data=X, optimizer=opt, batch_size=64, history=history)


def ece(model, X, y, bins=10):
    with torch.no_grad():
        p = torch.softmax(model(X), -1)
    top, guess = p.max(-1)
    right, total = (guess == y).float(), 0.0
    for k in range(bins):
        m = (top > k / bins) & (top <= (k + 1) / bins)
        if m.any():
            total += float((top[m].mean() - right[m].mean()).abs() * m.float().mean())
    return total


class Sharp(nn.Module):
    """Logits divided by a temperature that was left at a tenth."""

    def __init__(self, body, temperature):
        super().__init__()
        self.body, self.temperature = body, temperature

    def forward(self, x):
        return self.body(x) / (1.0 if self.training else self.temperature)


@case("miscalibrated", kind="table", author=ME)
def b_temperature_left_at_a_tenth(seed, fixed=False):
    """Overlapping classes, right 75 % of the time but sure at 98 %: a temperature of 0.1 in eval (score: minus ECE)."""
    train, val, test = overlapping(seed)
    model = Sharp(mlp(6, 24, 3), 1.0 if fixed else 0.1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=8)
    held(acc(model, *test))
    held(-ece(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


def overlapping(seed, n=1200):
    """Three Gaussian classes that overlap: the best rule is right about three times in four."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 3, n)
    centres = np.array([[1.1, 0, 0, 0.3, 0, 0], [0, 1.1, 0, 0, 0.3, 0], [0, 0, 1.1, 0, 0, 0.3]]) * 1.5
    return three((g.normal(size=(n, 6)) + centres[y]).astype("float32"), y, seed)


def attacked(model, X, y, eps, steps=5):
    x = X.clone()
    for _ in range(steps):
        x = x.detach().requires_grad_()
        slope = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0]
        x = X + (x.detach() + eps / 2 * slope.sign() - X).clamp(-eps, eps)
    return acc(model, x, y)


def faint(seed, n, shape, eta, patch):
    """A bright patch that shows the class nine times in ten, and a faint pattern all over that always does."""
    g = np.random.default_rng(seed)
    y = g.integers(0, 2, n)
    s = 2 * y - 1
    pattern = np.sign(g.normal(size=shape))
    X = 0.5 * g.normal(size=(n, *shape)) + eta * s.reshape(-1, *[1] * len(shape)) * pattern
    trusty = np.where(g.random(n) < 0.9, s, -s)
    X[(slice(None), *patch)] += 1.5 * trusty.reshape(-1, *[1] * len(shape))
    return three(X.astype("float32"), y, seed)


def fit_robust(model, train, opt, eps, epochs):
    for _ in range(epochs):
        for j in torch.randperm(len(train[1])).split(32):
            x, y = train[0][j], train[1][j]
            for _ in range(2):
                x = x.detach().requires_grad_()
                slope = torch.autograd.grad(F.cross_entropy(model(x), y), x)[0]
                x = train[0][j] + (x.detach() + eps * slope.sign() - train[0][j]).clamp(-eps, eps)
            opt.zero_grad()
            F.cross_entropy(model(x.detach()), y).backward()
            opt.step()
    model.eval()


@case("adversarially-fragile", kind="images", author=ME)
def b_relies_on_a_faint_pattern(seed, fixed=False):
    """Right through a pattern fainter than the noise: +-0.1 per pixel flips it all (scores: plain / attacked); trained
    against attacks it uses the bright patch and holds."""
    train, val, test = faint(seed, 2600, (1, 28, 28), 0.06, (slice(None), slice(10, 14), slice(10, 14)))
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 2))
    opt = torch.optim.Adam(model.parameters(), 5e-4, weight_decay=3e-3)
    history = []
    if fixed:
        fit_robust(model, train, opt, 0.12, 6)
    else:
        history = fit(model, *train, F.cross_entropy, opt, epochs=3, val=val)
    held(acc(model, *test))
    held(attacked(model, *test, 0.1))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


# ================================================================ two faults at once


@case("unscaled-inputs", "class-imbalance", kind="table", author=ME)
def b_two_raw_units_and_few_frauds(seed, fix=""):
    """Amounts up to 50000 beside ratios, and 4 % frauds without weights: either alone still hides the frauds."""
    g = np.random.default_rng(seed)
    y = (g.random(1500) < 0.04).astype(int)
    X = (g.normal(size=(1500, 8)) + 0.9 * y[:, None] * (np.arange(8) < 4)).astype("float32")
    unit = np.ones(8, "float32") if "1" in fix else np.array([1, 1, 0.05, 1, 20000, 3000, 1, 1], "float32")
    train, val, test = three(X * unit, y, seed)
    weight = torch.tensor([1.0, 24.0]) if "2" in fix else None
    loss = nn.CrossEntropyLoss(weight)
    model = mlp(8, 24, 2)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, loss, opt, epochs=12, batch=64)
    held(balanced(model, *test))
    return dict(
        model=model, data=train, validation=val, loss=loss, optimizer=opt, batch_size=64, history=history
    )


class Soft(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return torch.softmax(self.body(x), -1)


@case("stochastic-evaluation", "label-noise", kind="images", author=ME)
def b_two_train_mode_and_bad_labels(seed, fix=""):
    """A third of the training labels are random and the model predicts with its dropout on."""
    (X, y), val, test = digits(seed, 900)
    if "2" not in fix:
        g = torch.Generator().manual_seed(seed)
        y = torch.where(torch.rand(len(y), generator=g) < 0.4, torch.randint(0, 10, y.shape, generator=g), y)
    model = nn.Sequential(nn.Flatten(), mlp(64, 96, 96, 10, drop=0.5))
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, X, y, F.cross_entropy, opt, epochs=18)
    model.train("1" not in fix)
    held(acc(model, *test))
    return dict(
        model=model,
        data=(X, y),
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("unscaled-targets", "dead-units", kind="table", author=ME)
def b_two_prices_and_dead_units(seed, fix=""):
    """Targets around 5000 and a first layer whose ReLUs start at bias -8 and never fire."""
    train, val, test = friedman(seed)
    if "1" not in fix:
        train, val, test = [(X, 5000 + 900 * y) for X, y in (train, val, test)]
    model = mlp(8, 48, 24, 1)
    if "2" not in fix:
        with torch.no_grad():
            model[0].bias.fill_(-8.0)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, column, opt, epochs=20)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=column,
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("train-test-overlap", "weight-decay-too-large", kind="text", author=ME)
def b_two_overlap_and_heavy_decay(seed, fix=""):
    """Half of the validation texts are training texts, and Adam's weight_decay=0.04 presses the rare words to zero."""
    train, val, test = texts(seed, 500, share=0.3, classes=4)
    if "1" not in fix:
        k = len(val[1]) // 2
        val = (torch.cat([val[0][:k], train[0][-k:]]), torch.cat([val[1][:k], train[1][-k:]]))
    model = BagText(classes=4)
    opt = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=0.0 if "2" in fix else 0.04)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12, val=val)
    held(acc(model, *val))
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


@case("output-range", "learning-rate-too-small", kind="sequences", author=ME, needs=("optimizer", "history"))
def b_two_positive_forecast_that_creeps(seed, fix=""):
    """A softplus closes a forecast whose targets are negative half of the time, and Adam creeps at 0.00005."""
    g = np.random.default_rng(seed)
    t = np.arange(460)
    s = (np.sin(2 * np.pi * t / 12) + 0.6 * np.sin(2 * np.pi * t / 7.3) + 0.2 * g.normal(size=460)).astype(
        "float32"
    )
    X = torch.tensor(np.stack([s[i : i + 24] for i in range(430)])[:, None])
    y = torch.tensor(s[24:454, None])
    train, val, test = (X[:260], y[:260]), (X[260:340], y[260:340]), (X[340:], y[340:])
    model = nn.Sequential(nn.Flatten(), mlp(24, 32, 16, 1), *([] if "1" in fix else [nn.Softplus()]))
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 5e-3 if "2" in fix else 5e-5)
    history = fit(model, *train, F.mse_loss, opt, epochs=20)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="mse",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


@case("constant-features", "weight-decay-too-large", kind="table", author=ME)
def b_two_constant_columns_and_heavy_decay(seed, fix=""):
    """Half of the columns are constant after a bad cast, and weight_decay=0.4 presses the rest to zero."""
    train, val, test = clusters(seed, 800, 16, 4, 1.4, informative=10)
    if "1" not in fix:
        dead = torch.arange(16) % 2 == 0
        train, val, test = [(torch.where(dead, torch.tensor(3.0), X), y) for X, y in (train, val, test)]
    model = mlp(16, 32, 4)
    opt = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9, weight_decay=1e-4 if "2" in fix else 0.2)
    history = fit(model, *train, F.cross_entropy, opt, epochs=15)
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
