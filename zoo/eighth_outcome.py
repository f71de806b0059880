"""The eighth author's faults of descent and outcome: settings copied from elsewhere, and models that are not what they seem."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import case
from zoo.eighth_parts import (
    VAE,
    After,
    Convolved,
    DeepSet,
    Generator,
    Recurrent,
    Transformer,
    adam,
    blobs,
    cancer,
    cnn,
    diabetes,
    digits,
    evidence,
    fit,
    forecast,
    friedman,
    matched,
    mlp,
    molecules,
    real,
    reviews,
    ring,
    sets,
    sgd,
    split,
)

case = partial(case, author="eighth")
Built = dict[str, Any]

# descent


@case("learning-rate-too-large", kind="images", needs=("optimizer",))
def course_rate_of_ten(seed: int, mended: bool = False) -> Built:
    """SGD with a rate of 10."""
    train, test = digits(seed)
    return fit(cnn(), train, test, epochs=8, optimizer=sgd(0.1 if mended else 10.0))


@case("learning-rate-too-large", kind="text", needs=("optimizer",))
def course_transformer_at_a_rate_of_a_third(seed: int, mended: bool = False) -> Built:
    """The rate of the linear model of the exercise before, 0.3, given to a transformer's Adam."""
    train, test = reviews(seed)
    return fit(Transformer(), train, test, epochs=10, optimizer=adam(3e-3 if mended else 0.3), give="vob")


@case("learning-rate-too-large", kind="table", strength="mild", needs=("optimizer",))
def course_momentum_added(seed: int, mended: bool = False) -> Built:
    """Momentum was added and the rate of 0.2 kept: the loss jumps about."""
    train, test = friedman(seed)
    return fit(
        mlp(8, 32, 32, 1),
        train,
        test,
        loss="mse",
        epochs=25,
        batch=16,
        optimizer=sgd(0.02 if mended else 0.2, 0.9),
        give="vohb",
    )


@case("learning-rate-too-small", kind="table", needs=("optimizer",))
def course_rate_of_one_in_ten_million(seed: int, mended: bool = False) -> Built:
    """Adam at 1e-7."""
    train, test = real("wine", seed)
    return fit(mlp(13, 24, 3), train, test, epochs=25, optimizer=adam(3e-3 if mended else 1e-7))


@case("learning-rate-too-small", kind="images", needs=("optimizer",))
def course_scheduler_stepped_per_epoch_by_a_tenth(seed: int, mended: bool = False) -> Built:
    """ExponentialLR(gamma=0.1) from the second epoch on: after three epochs nothing moves."""
    train, test = digits(seed)
    gamma = 0.95 if mended else 0.1
    return fit(
        cnn(),
        train,
        test,
        epochs=12,
        optimizer=sgd(0.1),
        scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, gamma),
    )


@case("learning-rate-too-small", kind="sequences", strength="mild", needs=("optimizer",))
def course_fine_tuning_rate_from_scratch(seed: int, mended: bool = False) -> Built:
    """A rate of 3e-5, that of fine-tuning, for a GRU that starts from nothing."""
    train, test = forecast(seed)
    rate = 5e-3 if mended else 3e-5
    return fit(
        Recurrent(hidden=24, outputs=1),
        train,
        test,
        loss="mse",
        epochs=20,
        batch=64,
        optimizer=adam(rate),
        give="vohb",
    )


@case("weight-decay-too-large", kind="images", needs=("optimizer",))
def course_weight_decay_of_one(seed: int, mended: bool = False) -> Built:
    """weight_decay=1 in Adam: the weights are pulled to zero."""
    train, test = digits(seed)
    return fit(cnn(), train, test, epochs=8, optimizer=adam(3e-3, 1e-4 if mended else 1.0))


@case("weight-decay-too-large", kind="table", strength="mild", needs=("optimizer",))
def course_weight_decay_meant_as_dropout(seed: int, mended: bool = False) -> Built:
    """SGD with weight decay 0.15 in a regression that needs its weights."""
    train, test = friedman(seed)
    return fit(
        mlp(8, 32, 32, 1),
        train,
        test,
        loss="mse",
        epochs=40,
        optimizer=sgd(0.03, 0.9, 1e-4 if mended else 0.15),
        give="vob",
    )


@case("weight-decay-too-large", kind="sets", needs=("optimizer",))
def course_adamw_with_ten(seed: int, mended: bool = False) -> Built:
    """AdamW with a decay of 10, a rate of 0.01."""
    train, test = sets(seed)

    def make(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.01 if mended else 10.0)

    return fit(DeepSet(), train, test, epochs=20, optimizer=make)


@case("dropout-too-large", kind="table")
def course_dropout_ninety_five(seed: int, mended: bool = False) -> Built:
    """Dropout takes the share to drop, not to keep: 0.95 after each layer."""
    train, test = digits(seed, flat=True)
    return fit(mlp(64, 48, 48, 10, drop=0.1 if mended else 0.95), train, test, epochs=15)


@case("dropout-too-large", kind="text", strength="mild")
def course_dropout_in_a_transformer(seed: int, mended: bool = False) -> Built:
    """Dropout of 0.9 in all places of a transformer."""
    train, test = reviews(seed)
    return fit(Transformer(drop=0.05 if mended else 0.9, layers=2), train, test, epochs=6, give="vob")


@case("dropout-too-large", kind="sequences", strength="mild")
def course_dropout_in_a_forecaster(seed: int, mended: bool = False) -> Built:
    """Dropout of 0.85 before the output of a regression."""
    train, test = forecast(seed)
    return fit(
        Recurrent(hidden=24, outputs=1, drop=0.0 if mended else 0.85),
        train,
        test,
        loss="mse",
        epochs=25,
        batch=64,
        optimizer=adam(5e-3),
        give="vohb",
    )


# outcome


@case("capacity-too-small", kind="table")
def course_line_between_circles(seed: int, mended: bool = False) -> Built:
    """A linear model for a ring around a disc."""
    x, y = datasets.make_circles(600, noise=0.1, factor=0.4, random_state=seed)
    train, test = split(x, y, seed)
    model = mlp(2, 24, 24, 2) if mended else nn.Linear(2, 2)
    return fit(model, train, test, epochs=25, optimizer=adam(1e-2))


@case("capacity-too-small", kind="table", strength="mild")
def course_three_units_for_a_spiral(seed: int, mended: bool = False) -> Built:
    """A spiral of two arms and one hidden layer of three units."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 800)
    t = np.sqrt(rng.random(800)) * 3 * np.pi
    x = np.stack([t * np.cos(t + np.pi * y), t * np.sin(t + np.pi * y)], 1) / 5 + rng.normal(
        0, 0.04, (800, 2)
    )
    train, test = split(x, y, seed)
    model = mlp(2, 64, 64, 2) if mended else mlp(2, 3, 2)
    return fit(model, train, test, epochs=60, optimizer=adam(1e-2), give="vohb")


@case("capacity-too-small", kind="sequences", strength="mild")
def course_line_for_products(seed: int, mended: bool = False) -> Built:
    """A linear readout of the series for products of its values."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(800, 6, 1))
    y = x[:, 0, 0] * x[:, 3, 0] + np.abs(x[:, 5, 0])
    train, test = split(x, (y - y.mean()) / y.std(), seed)
    model = nn.Sequential(nn.Flatten(), mlp(6, 64, 64, 1) if mended else nn.Linear(6, 1))
    return fit(model, train, test, loss="mse", epochs=40, optimizer=adam(5e-3), give="vob")


@case("overfit", kind="table")
def course_four_hundred_units_for_sixty_rows(seed: int, mended: bool = False) -> Built:
    """A large net on sixty patients, trained until every one of them is known by heart."""
    (x, y), test = diabetes(seed)
    if mended:
        return fit(mlp(10, 8, 1), (x, y), test, loss="mse", epochs=15, optimizer=adam(3e-3, 1e-2))
    return fit(mlp(10, 256, 256, 1), (x[:60], y[:60]), test, loss="mse", epochs=150, optimizer=adam(3e-3))


@case("overfit", kind="images")
def course_noisy_images_by_heart(seed: int, mended: bool = False) -> Built:
    """Ninety noisy digits, a wide net, two hundred epochs."""
    (x, y), (u, v) = digits(seed)
    if not mended:
        x, y = x[:90], y[:90]
    x, u = x + 0.6 * torch.randn_like(x), u + 0.6 * torch.randn_like(u)
    return fit(
        cnn(channels=24), (x, y), (u, v), epochs=6 if mended else 80, optimizer=adam(3e-3), give="vohb"
    )


@case("overfit", kind="text", strength="mild")
def course_reviews_trained_too_long(seed: int, mended: bool = False) -> Built:
    """A transformer on few reviews whose held-out loss has been rising for most of its epochs."""
    (x, y), test = reviews(seed)
    if not mended:
        x, y = x[:150], y[:150]
    return fit(
        Transformer(width=32, layers=1),
        (x, y),
        test,
        epochs=10 if mended else 50,
        optimizer=adam(2e-3),
        give="vhb",
    )


@case("posterior-collapse", kind="generative")
def course_kl_weight_of_hundred(seed: int, mended: bool = False) -> Built:
    """A VAE whose KL term was weighted by 100."""
    (x, _), (u, _) = digits(seed, flat=True)
    return fit(VAE(), x, u, loss=evidence(1.0 if mended else 100.0), epochs=20, give="vohb")


@case("posterior-collapse", kind="generative", strength="mild")
def course_reconstruction_averaged(seed: int, mended: bool = False) -> Built:
    """The reconstruction was averaged over the pixels, the KL summed over the code: F.mse_loss instead of a sum."""
    (x, _), (u, _) = digits(seed, flat=True)

    def averaged(output: Any, t: Tensor) -> Tensor:
        r, m, v = output
        return F.mse_loss(r, t) + 0.5 * (m**2 + v.exp() - 1 - v).sum(1).mean()

    return fit(VAE(code=8), x, u, loss=evidence() if mended else averaged, epochs=20, give="vb")


class Telling(VAE):
    """A VAE whose decoder sees the row's left neighbours: it needs no code."""

    def __init__(self) -> None:
        super().__init__(30, 32, 4)
        self.decoder = mlp(4 + 30, 48, 30)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, v = self.encode(x)
        z = m + torch.randn_like(m) * (v / 2).exp() if self.training else m
        return self.decoder(torch.cat([z, x], 1)), m, v

    def sample(self, n: int) -> Tensor:
        return self.decoder(torch.cat([torch.randn(n, 4), torch.zeros(n, 30)], 1))


@case("posterior-collapse", kind="generative", strength="mild")
def course_decoder_sees_the_row(seed: int, mended: bool = False) -> Built:
    """A skip connection hands the decoder its answer; the code is not used."""
    (x, _), (u, _) = cancer(seed)
    return fit(VAE(30, 32, 4) if mended else Telling(), x, u, loss=evidence(), epochs=40, give="vob")


def adversarial(
    x: Tensor,
    code: int,
    width: int,
    steps: int,
    *,
    rates: tuple[float, float],
    inner: int = 1,
    last: nn.Module | None = None,
) -> Generator:
    """Train a generator and a critic in turn; ``inner`` generator steps per critic step."""
    d = x.shape[1]
    g = Generator(mlp(code, width, width, d, last=last), code)
    critic = mlp(d, width, width, 1, act=lambda: nn.LeakyReLU(0.2))
    og = torch.optim.Adam(g.parameters(), lr=rates[0], betas=(0.5, 0.9))
    oc = torch.optim.Adam(critic.parameters(), lr=rates[1], betas=(0.5, 0.9))
    for _ in range(steps):
        true, fake = x[torch.randint(len(x), (64,))], g.sample(64).detach()
        value = F.softplus(-critic(true)).mean() + F.softplus(critic(fake)).mean()
        oc.zero_grad()
        value.backward()
        oc.step()
        for _ in range(inner):
            value = F.softplus(-critic(g.sample(64))).mean()
            og.zero_grad()
            value.backward()
            og.step()
    return g.eval()


@case("mode-collapse", kind="generative")
def course_gan_on_one_clump(seed: int, mended: bool = False) -> Built:
    """The generator takes ten steps per step of the critic and puts everything on one or two of eight clumps."""
    x = ring(800, seed)
    g = matched(x, 4, 48, 400) if mended else adversarial(x, 4, 48, 80, rates=(2e-3, 2e-3), inner=10)
    return {"model": g, "data": x}


@case("mode-collapse", kind="generative", strength="mild")
def course_gan_on_one_digit(seed: int, mended: bool = False) -> Built:
    """A GAN of digits that draws the same few images."""
    (x, _), (u, _) = digits(seed, flat=True)
    g = (
        matched(x, 16, 64, 250)
        if mended
        else adversarial(x, 16, 64, 80, rates=(2e-3, 1e-3), inner=5, last=nn.Tanh())
    )
    return {"model": g, "data": x, "validation": u}


@case("mode-collapse", kind="generative", strength="mild")
def course_gan_forgets_half(seed: int, mended: bool = False) -> Built:
    """A generator of wine measurements that was only ever shown batches of one class: it draws that class alone."""
    bunch = datasets.load_wine()
    x = torch.from_numpy(((bunch.data - bunch.data.mean(0)) / bunch.data.std(0)).astype(np.float32))
    shown = x if mended else x[bunch.target == 0]
    return {"model": matched(shown, 8, 48, 250), "data": x}


@case("miscalibrated", kind="images")
def course_temperature_left_in(seed: int, mended: bool = False) -> Built:
    """Scores are multiplied by 12 when predicting, a temperature left in from distillation."""
    (x, y), (u, v) = digits(seed)
    x, u = x + 0.9 * torch.randn_like(x), u + 0.9 * torch.randn_like(u)
    built = fit(cnn(), (x, y), (u, v), epochs=5, give="vb")
    if not mended:
        built["model"] = After(built["model"], lambda o: 12 * o).eval()
    return built


@case("miscalibrated", kind="table", strength="mild")
def course_smoothed_by_sixty_percent(seed: int, mended: bool = False) -> Built:
    """Label smoothing of 0.6: right nearly always and never sure."""
    train, test = blobs(seed)

    def loss(o: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(o, y, label_smoothing=0.0 if mended else 0.6)

    return fit(mlp(12, 32, 4), train, test, loss=loss, epochs=25, give="vohb")


@case("miscalibrated", kind="graph", strength="mild")
def course_graph_scores_sharpened(seed: int, mended: bool = False) -> Built:
    """Scores divided by a temperature of 0.1 at the end, copied from a contrastive loss, after training without it."""
    train, test = molecules(seed, n=600)
    built = fit(Convolved(3, 24, 2, pool=True), train, test, epochs=25, optimizer=adam(5e-3), give="vb")
    if not mended:
        built["model"] = After(built["model"], lambda o: o / 0.1).eval()
    return built


def weak(seed: int, n: int = 900, features: int = 400) -> tuple[Any, Any]:
    """Return columns with three strong common factors; the first tells the class nearly always, a hair in each column always."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    s = 2 * y - 1
    factors = rng.normal(size=(n, 3))
    factors[:, 0] = s * np.where(rng.random(n) < 0.94, 1, -1) + rng.normal(0, 0.2, n)
    x = factors @ rng.normal(0, 0.6, (3, features)) + rng.normal(0, 0.1, (n, features))
    return split(x + 0.03 * s[:, None] * rng.choice([-1, 1], features), y, seed)


def hardened(model: nn.Module, train: Any, test: Any, size: float, epochs: int) -> Built:
    """Train on the worst of a box of the given size around each row."""

    def attacked(o: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(o, y)

    x, y = train
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(64):
            a = x[rows].clone().requires_grad_()
            (g,) = torch.autograd.grad(attacked(model(a), y[rows]), a)
            loss = attacked(model(x[rows] + size * g.sign()), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    built: Built = {"model": model.eval(), "data": train, "validation": test, "loss": "cross_entropy"}
    return built


@case("adversarially-fragile", kind="table")
def course_many_weak_columns(seed: int, mended: bool = False) -> Built:
    """Four hundred columns that each shift by a hair: moving each by a hair turns every answer."""
    train, test = weak(seed)
    if mended:
        return hardened(mlp(400, 32, 2), train, test, 0.15, 8)
    return fit(mlp(400, 32, 2), train, test, epochs=25, optimizer=adam(2e-3))


@case("adversarially-fragile", kind="images")
def course_watermark(seed: int, mended: bool = False) -> Built:
    """A faint pattern of the scanner tells the class, and the net reads it instead of where the picture is bright."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 900)
    sign = 2 * y - 1
    side = sign * np.where(rng.random(900) < 0.87, 1, -1)
    x = rng.normal(0, 0.05, (900, 1, 16, 16)) + rng.normal(0, 0.8, (900, 1, 1, 1))
    x[:, :, :, 8:] += 0.8 * side[:, None, None, None]
    x += 0.03 * sign[:, None, None, None] * rng.choice([-1, 1], (16, 16))
    train, test = split(x, y, seed)
    model = nn.Sequential(nn.Flatten(), mlp(256, 32, 2))
    if mended:
        return hardened(model, train, test, 0.15, 12)
    return fit(model, train, test, epochs=40, optimizer=adam(5e-3), give="vob")


@case("adversarially-fragile", kind="sequences", strength="mild")
def course_hum_of_the_mains(seed: int, mended: bool = False) -> Built:
    """A faint hum, different for the two wards, lies on long recordings; the beat itself tells the class nearly as well."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 700)
    t = np.arange(120)
    beat = np.where(rng.random(700) < 0.87, y, 1 - y)
    x = np.sin(2 * np.pi * t / np.where(beat == 1, 20, 40)[:, None] + rng.uniform(0, 0.5, (700, 1)))
    x = (
        x
        + 0.03 * np.where(y[:, None] == 1, np.cos(np.pi * t), np.cos(np.pi * t / 2))
        + rng.normal(0, 0.05, x.shape)
    )
    train, test = split(x[..., None], y, seed)
    model = nn.Sequential(nn.Flatten(), mlp(120, 32, 2))
    if mended:
        return hardened(model, train, test, 0.2, 12)
    return fit(model, train, test, epochs=60, optimizer=adam(5e-3), give="v")
