"""Faults of the data and of the objective, by the second author."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from zoo import case
from zoo.second_parts import *  # noqa: F403

ME = "second"


@case("not-finite-data", kind="table", author=ME)
def b_missing_values_left_as_nan(seed, fixed=False):
    """3 % of a clinical table is missing and stays NaN: the loss is nan from step one; imputed, 95 % accuracy."""
    (X, y), val, test = cancer(seed)
    X = X.clone()
    X[torch.rand(X.shape) < 0.03] = 0.0 if fixed else float("nan")
    model = mlp(30, 32, 2)
    start = start_of(model)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, X, y, F.cross_entropy, opt, epochs=8)
    held(acc(model, *test))
    return dict(
        model=model,
        data=(X, y),
        validation=val,
        loss="cross_entropy",
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


class HalfEnergy(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.filters = nn.Conv1d(1, 8, 9, padding=4)
        self.out = nn.Linear(8, 3)
        self.wide = wide

    def forward(self, x):
        h = self.filters(x.float() if self.wide else x.half())
        energy = (h * h).sum(-1)
        return self.out(energy / h.shape[-1]).float()


@case("overflow", kind="sequences", author=ME, needs=("initial",))
def b_half_precision_energy(seed, fixed=False):
    """Signal energy summed in half precision passes 65504 and becomes inf, so nan; in float32 the classes separate."""
    train, val, test = signals(seed, 300, 600, 3, 0.3)
    train, val, test = [(40 * X, y) for X, y in (train, val, test)]
    model = HalfEnergy(True)
    with torch.no_grad():
        model.filters.weight.copy_(model.filters.weight * 3)
    if not fixed:
        model = model.half()
        model.wide = False
    start = start_of(model)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    history = []
    if fixed:
        model.out.weight.data *= 0.01
        opt = torch.optim.Adam(model.parameters(), 1e-2)
        history = fit(model, *train, F.cross_entropy, opt, epochs=15)
    else:
        history = fit(model, *train, F.cross_entropy, opt, epochs=3)
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


class Cosine(nn.Module):
    """Class prototypes and a temperature of 0.006, with a softmax written out by hand."""

    def __init__(self, safe):
        super().__init__()
        self.body, self.prototypes, self.safe = mlp(64, 64, 8), nn.Parameter(torch.randn(10, 8)), safe

    def forward(self, x):
        s = F.normalize(self.body(x.flatten(1)), dim=-1) @ F.normalize(self.prototypes, dim=-1).T / 0.006
        if self.safe:
            return torch.softmax(s, -1)
        e = torch.exp(s)
        return e / e.sum(-1, keepdim=True)


@case("unscaled-inputs", kind="table", author=ME)
def b_wine_in_raw_units(seed, fixed=False):
    """Proline runs to 1600 and hue around 1: SGD with momentum stays near the majority; standardised, above 95 %."""
    train, val, test = wine(seed, scale=fixed)
    model = mlp(13, 32, 16, 3)
    start = start_of(model)
    opt = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    history = fit(model, *train, F.cross_entropy, opt, epochs=40, batch=16, val=val)
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


@case("unscaled-inputs", kind="images", author=ME)
def b_pixels_up_to_255(seed, fixed=False):
    """Bytes go into the convolutions undivided: SGD at 0.05 dies at once; divided by 255, 95 %."""
    train, val, test = digits(seed, 800)
    if not fixed:
        train, val, test = [(255 * X, y) for X, y in (train, val, test)]
    model = SmallCNN(norm=False)
    start = start_of(model)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    history = fit(model, *train, F.cross_entropy, opt, epochs=10)
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


@case("unscaled-targets", kind="table", author=ME)
def b_prices_in_dollars(seed, fixed=False):
    """House prices around 300000 as they are: Adam moves the output by thousandths; standardised, R2 about 0.8."""
    train, val, test = friedman(seed)
    if not fixed:
        train, val, test = [(X, 300000 + 90000 * y) for X, y in (train, val, test)]
    model = mlp(8, 48, 24, 1)
    start = start_of(model)
    loss = lambda out, y: F.mse_loss(out.squeeze(-1), y)  # noqa: E731
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, loss, opt, epochs=25, val=val)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=loss,
        optimizer=opt,
        batch_size=32,
        history=history,
        initial=start,
    )


def _load(seed, n=420, length=32):
    """Windows of a seasonal load curve and its next value, standardised."""
    g = np.random.default_rng(seed)
    t = np.arange(n + length + 1)
    s = np.sin(2 * np.pi * t / 12) + 0.6 * np.sin(2 * np.pi * t / 7.3) + 0.25 * g.normal(size=len(t))
    s = ((s - s.mean()) / s.std()).astype("float32")
    X = np.stack([s[i : i + length] for i in range(n)])[:, None]
    y = s[length : length + n]
    cut = (int(0.6 * n), int(0.8 * n))
    X, y = torch.tensor(X), torch.tensor(y)
    return [(X[a:b], y[a:b, None]) for a, b in ((0, cut[0]), cut, (cut[1], n))]


@case("constant-features", kind="table", author=ME)
def b_integer_cast_kills_columns(seed, fixed=False):
    """astype(int) before scaling turns most of thirty columns into constants; kept as floats, error falls by half."""
    g = np.random.default_rng(seed)
    X = g.random((600, 24)).astype("float32") * 0.9
    X[:, :4] *= 60
    w = g.normal(size=24)
    y = (((X / np.r_[[60] * 4, [1] * 20] - 0.45) @ w) > 0).astype(int)
    if not fixed:
        X = X.astype(int).astype("float32")
    parts = three(X, y, seed)
    m, s = parts[0][0].mean(0), parts[0][0].std(0)
    train, val, test = [((X - m) / s.clamp(min=1e-6), y) for X, y in parts]
    model = mlp(24, 32, 2)
    opt = torch.optim.AdamW(model.parameters(), 5e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=15, val=val)
    held(acc(model, *test))
    return dict(model=model, data=train, validation=val, loss="cross_entropy", optimizer=opt, history=history)


@case("duplicate-features", kind="sequences", author=ME)
def b_loader_copies_channel_zero(seed, fixed=False):
    """The loader writes channel 0 into all six channels, the class shows in two of them: 50 %; with the true channels 95 %."""
    g = np.random.default_rng(seed)
    t, bits = np.arange(32) / 32, g.integers(0, 2, (500, 2))
    X = 0.5 * g.normal(size=(500, 6, 32))
    X[:, :2] += np.sin(2 * np.pi * ((3 + 4 * bits)[..., None] * t + g.random((500, 2, 1))))
    train, val, test = three(X.astype("float32"), bits @ np.array([1, 2]), seed)
    if not fixed:
        train, val, test = [(X[:, :1].repeat(1, 6, 1), y) for X, y in (train, val, test)]
    model = nn.Sequential(
        nn.Conv1d(6, 24, 7, padding=3),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.Conv1d(24, 24, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(24, 4),
    )
    opt = torch.optim.Adam(model.parameters(), 2e-3, weight_decay=1e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12)
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


@case("train-test-overlap", kind="images", author=ME)
def b_oversampled_before_splitting(seed, fixed=False):
    """Few digits copied four times and then split: validation says 100 %, new digits say far less (scores: val/new)."""
    (X, y), _, test = digits(seed, 130)
    noise = torch.Generator().manual_seed(seed)
    X = X + 0.25 * torch.randn(X.shape, generator=noise)
    test = (test[0] + 0.25 * torch.randn(test[0].shape, generator=noise), test[1])
    j = torch.arange(len(y)) if fixed else torch.arange(len(y)).repeat(4)
    j = j[torch.randperm(len(j), generator=noise)]
    k = int(0.75 * len(j))
    train, val = (X[j[:k]], y[j[:k]]), (X[j[k:]], y[j[k:]])
    model = SmallCNN()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
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


@case("distribution-shift", kind="images", author=ME)
def b_validation_images_not_normalised(seed, fixed=False):
    """Training images are normalised, validation images come raw (0 to 16): 97 % falls by twenty points."""
    train, val, test = digits(seed, 800)
    m, s = train[0].mean(), train[0].std()
    if not fixed:
        val, test = [(16 * X, y) for X, y in (val, test)]
    else:
        val, test = [((X - m) / s, y) for X, y in (val, test)]
    train = ((train[0] - m) / s, train[1])
    model = SmallCNN()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
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


@case("distribution-shift", kind="sequences", author=ME, strength="mild")
def b_validation_from_another_recorder(seed, fixed=False):
    """The validation signals come from a recorder with an offset and half the gain; calibrated, they score like training."""
    train, val, test = signals(seed, 400, 28, 3, 0.25)
    if not fixed:
        val, test = [(0.5 * X + 1.5, y) for X, y in (val, test)]
    model = Recurrent(1, 20, 3)
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit(model, *train, F.cross_entropy, opt, epochs=12)
    held(acc(model, *test))
    return dict(model=model, data=train, validation=val, loss="cross_entropy", history=history)


@case("target-leak", kind="text", author=ME)
def b_label_token_left_in_the_text(seed, fixed=False):
    """The crawled pages still hold their own category tag as a token; on pages without it accuracy drops."""
    parts = texts(seed, 500, vocabulary=130, share=0.35)
    out = []
    for i, (X, y) in enumerate(parts):
        X = X.clone()
        X[:, 3] = 5 if fixed or i == 2 else 125 + y
        out.append((X, y))
    train, val, test = out
    model = TinyTransformer(130)
    opt = torch.optim.AdamW(model.parameters(), 3e-3)
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
    )


@case("misaligned-labels", kind="images", author=ME)
def b_images_shuffled_without_their_labels(seed, fixed=False):
    """The training images were shuffled, their labels not (validation is right): chance; aligned, 95 %."""
    (X, y), val, test = digits(seed, 700)
    if not fixed:
        X = X[torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))]
    model = SmallCNN()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, X, y, F.cross_entropy, opt, epochs=6, val=val)
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


@case("misaligned-labels", kind="sequences", author=ME, strength="mild")
def b_a_row_dropped_in_the_middle(seed, fixed=False):
    """A broken recording was dropped from the signals but not from the labels: all later labels are one row off."""
    (X, y), val, test = signals(seed, 600, 32, 4, 0.4)
    if not fixed:
        k = len(y) // 3
        X, y = torch.cat([X[:k], X[k + 1 :]]), y[:-1]
    model = nn.Sequential(
        nn.Conv1d(1, 24, 7, padding=3),
        nn.ReLU(),
        nn.Conv1d(24, 24, 5),
        nn.ReLU(),
        nn.AdaptiveMaxPool1d(2),
        nn.Flatten(),
        nn.Linear(48, 4),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, X, y, F.cross_entropy, opt, epochs=30, val=val)
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


@case("no-signal", kind="sequences", author=ME)
def b_next_return_of_a_random_walk(seed, fixed=False):
    """Tomorrow's return of a random walk from the last twenty: there is nothing to learn; another target is needed."""
    if fixed:
        parts = _load(seed)
    else:
        g = np.random.default_rng(seed)
        r = g.standard_t(8, size=521).astype("float32")
        X, y = (
            torch.tensor(np.stack([r[i : i + 20] for i in range(500)])[:, None]),
            torch.tensor(r[20:520, None]),
        )
        parts = [(X[a:b], y[a:b]) for a, b in ((0, 320), (320, 410), (410, 500))]
    train, val, test = parts
    model = Recurrent(1, 16, 1, nn.LSTM)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.mse_loss, opt, epochs=10, val=val)
    held(r2(model, *test))
    return dict(
        model=model, data=train, validation=val, loss="mse", optimizer=opt, batch_size=32, history=history
    )


@case("label-noise", kind="text", author=ME, strength="mild")
def b_topics_by_keyword_rules(seed, fixed=False):
    """A quarter of all labels (validation too) come from wrong keyword rules; with true labels new texts score higher."""
    train, val, test = texts(seed, 800, share=0.4)
    if not fixed:
        g = torch.Generator().manual_seed(seed)
        train, val = [
            (
                X,
                torch.where(
                    torch.rand(len(y), generator=g) < 0.27,
                    (y + 1 + torch.randint(0, 2, y.shape, generator=g)) % 3,
                    y,
                ),
            )
            for X, y in (train, val)
        ]
    model = BagText()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, F.cross_entropy, opt, epochs=20, val=val)
    held(acc(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=nn.CrossEntropyLoss(),
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("class-imbalance", kind="table", author=ME)
def b_fraud_is_two_percent(seed, fixed=False):
    """2.5 % frauds, plain BCE: 97 % accuracy and hardly a fraud found; weighted, balanced accuracy rises by a fifth."""
    g = np.random.default_rng(seed)
    y = (g.random(1600) < 0.03).astype(int)
    X = (g.normal(size=(1600, 10)) + 0.75 * y[:, None] * (np.arange(10) < 4)).astype("float32")
    train, val, test = three(X, y, seed, (0.5, 0.2))
    weight = torch.tensor(32.0 if fixed else 1.0)
    loss = lambda o, y: F.binary_cross_entropy_with_logits(o.squeeze(-1), y.float(), pos_weight=weight)  # noqa: E731
    model = mlp(10, 16, 1)
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    history = fit(model, *train, loss, opt, epochs=12, batch=64, val=val)
    held(balanced(model, *test))
    return dict(
        model=model, data=train, validation=val, loss=loss, optimizer=opt, batch_size=64, history=history
    )


class SoftmaxCNN(SmallCNN):
    def forward(self, x):
        return F.softmax(self.head(self.features(x)), dim=1)


@case("double-softmax", kind="images", author=ME)
def b_softmax_before_cross_entropy(seed, fixed=False):
    """softmax in forward and cross_entropy outside: the loss cannot fall below 1.46; without it, better and sooner."""
    train, val, test = digits(seed, 800)
    model = SmallCNN(norm=False) if fixed else SoftmaxCNN(norm=False)
    start = start_of(model)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    history = fit(model, *train, F.cross_entropy, opt, epochs=8, val=val)
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


@case("double-softmax", kind="table", author=ME, strength="mild")
def b_sigmoid_before_bce_with_logits(seed, fixed=False):
    """Sigmoid twice: probabilities between 0.5 and 0.73 only (scores: accuracy / mean log-likelihood of the label)."""
    train, val, test = cancer(seed)
    train, val, test = [(X, y.float()[:, None]) for X, y in (train, val, test)]
    model = nn.Sequential(mlp(30, 16, 1), *([] if fixed else [nn.Sigmoid()]))
    opt = torch.optim.SGD(model.parameters(), 0.02, momentum=0.5)
    history = fit(model, *train, F.binary_cross_entropy_with_logits, opt, epochs=12, val=val)
    with torch.no_grad():
        held(-F.binary_cross_entropy_with_logits(model(test[0]), test[1]))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss="bce_with_logits",
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("wrong-loss", kind="images", author=ME)
def b_nll_on_raw_logits(seed, fixed=False):
    """nll_loss fed with raw logits: the loss runs to minus infinity and the network learns to shout; log_softmax repairs."""
    train, val, test = digits(seed, 700)
    body = SmallCNN(norm=False)
    model = nn.Sequential(body, nn.LogSoftmax(-1)) if fixed else body
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    history = fit(model, *train, F.nll_loss, opt, epochs=8, val=val)
    held(acc(model, *test))
    return dict(
        model=model, data=train, validation=val, loss="nll", optimizer=opt, batch_size=32, history=history
    )


@case("wrong-loss", kind="table", author=ME, strength="mild")
def b_class_numbers_by_squared_error(seed, fixed=False):
    """Five unordered classes fitted as the numbers 0..4 by mse and rounded: the order is invented; cross-entropy gains."""
    train, val, test = clusters(seed, 800, 10, 5, 1.6)
    if fixed:
        model, loss = mlp(10, 48, 5), F.cross_entropy
    else:
        train, val = [(X, y.float()[:, None]) for X, y in (train, val)]
        model, loss = mlp(10, 48, 1), F.mse_loss
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    history = fit(model, *train, loss, opt, epochs=20)
    with torch.no_grad():
        out = model(test[0])
    guess = out.argmax(-1) if fixed else out[:, 0].round().clamp(0, 4)
    held((guess == test[1]).float().mean())
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=nn.MSELoss() if not fixed else loss,
        optimizer=opt,
        batch_size=32,
        history=history,
    )


@case("output-range", kind="sequences", author=ME, strength="mild")
def b_tanh_forecast(seed, fixed=False):
    """A tanh forecasts a load curve that often passes +-1: its peaks are cut off; a linear output reaches them."""
    train, val, test = [(X, 1.3 * y) for X, y in _load(seed)]

    class Forecast(Recurrent):
        def forward(self, x):
            out = super().forward(x)
            return out if fixed else torch.tanh(out)

    model = Forecast(1, 20, 1)
    opt = torch.optim.Adam(model.parameters(), 0.01)
    history = fit(model, *train, nn.MSELoss(), opt, epochs=14)
    held(r2(model, *test))
    return dict(
        model=model,
        data=train,
        validation=val,
        loss=nn.MSELoss(),
        optimizer=opt,
        batch_size=32,
        history=history,
    )


class AutoEncoder(nn.Module):
    def __init__(self, d, latent, close=None, width=64):
        super().__init__()
        self.enc, self.dec, self.close = mlp(d, width, latent), mlp(latent, width, d), close

    def forward(self, x):
        out = self.dec(self.enc(x))
        return self.close(out) if self.close else out


@case("stochastic-evaluation", kind="table", author=ME)
def b_model_left_in_train_mode(seed, fixed=False):
    """Nobody calls eval(): dropout of 0.4 at prediction; with eval() R2 rises and repeats agree."""
    train, val, test = friedman(seed)
    model = mlp(8, 48, 48, 1, drop=0.4)
    loss = lambda o, y: F.mse_loss(o[:, 0], y)  # noqa: E731
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    history = fit(model, *train, loss, opt, epochs=20)
    model.train(not fixed)
    held(r2(model, *test))
    return dict(
        model=model, data=train, validation=val, loss=loss, optimizer=opt, batch_size=32, history=history
    )


class FunctionalDropout(SmallCNN):
    always = True

    def forward(self, x):
        return self.head(F.dropout(self.features(x), 0.4, training=True if self.always else self.training))
