"""Pictures of the regularisers: what each does to a small problem whose answer is known, beside that answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.datasets import make_moons

from corollary import (
    BaggingClassifier,
    ContrastivePredictiveCoding,
    Curriculum,
    ImageClassifier,
    MLPClassifier,
    MLPRegressor,
    MultiTaskNet,
    PatchPretrainer,
    RotationPretrainer,
    SelfTraining,
    Training,
    data,
)
from corollary.regularisation.distillation import tempered
from corollary.regularisation.tasks import shuffled
from results._drawings import ACCENT, INK, SOFT, WARM, _label, panels

__all__ = ["REGULARISERS"]

CURVATURES = np.geomspace(0.01, 1.0, 40)


def _shares(**training: Any) -> np.ndarray:
    """Return how much of each weight of a linear model is learned, one curvature per weight, all targets 1."""
    n = len(CURVATURES)
    X = np.diag(np.sqrt(n * CURVATURES))
    X = np.concatenate([X, -X])  # so that nothing is left for the bias
    y = np.concatenate([np.sqrt(n * CURVATURES), -np.sqrt(n * CURVATURES)])
    plan = Training(**{"optimizer": "gd", "learning_rate": 0.9, "epochs": 3000, **training})
    model = MLPRegressor((), training=plan, random_state=0)
    model.fit(X, y)
    return np.ravel(model.coefs_[0]) * model.target_scale_  # standardised while training


def weight_decay() -> Figure:
    """Draw the share of every weight that decay leaves, beside lambda / (lambda + mu)."""
    figure, (axes,) = panels(1, "Weight decay shrinks what the data say little about", 5.2, 3.2)
    for mu, colour in ((0.01, SOFT), (0.05, ACCENT), (0.3, WARM)):
        axes.semilogx(CURVATURES, _shares(weight_decay=mu), ".", color=colour, label=f"μ = {mu}")
        axes.semilogx(CURVATURES, CURVATURES / (CURVATURES + mu), color=colour, lw=0.8)
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "curvature λ of the loss", "share of the weight that is learned")
    return figure


def lasso() -> Figure:
    """Draw the weights of a digit classifier with and without the penalty."""
    digits = data.load("digits", "table")
    figure, axes = panels(3, "The weights of class 3, from less to more L1 penalty", 2.2, 2.6)
    for part, rate in zip(axes, (None, 0.003, 0.01)):
        plan = Training(epochs=30, optimizer="sgd", learning_rate=0.1, l1=rate)
        model = MLPClassifier((), training=plan, random_state=0).fit(digits.X, digits.y)
        W = model.coefs_[0][:, 3].reshape(8, 8)
        part.imshow(W, cmap="RdBu", vmin=-np.abs(W).max(), vmax=np.abs(W).max())
        zero = np.mean(model.coefs_[0] == 0)
        part.set_title(f"l1 = {rate or 0:g}: {zero:.0%} zeros", fontsize=9)
        part.set(xticks=[], yticks=[])
    return figure


def ball() -> Figure:
    """Draw the way of projected descent, and where it ends."""
    figure, (axes,) = panels(1, "Projected gradient descent stays in the ball", 4.2, 3.6)
    H, best, r = np.diag([1.0, 0.25]), np.array([1.6, 1.2]), 1.0
    u, v = np.meshgrid(np.linspace(-1.3, 2.2, 120), np.linspace(-1.3, 1.9, 120))
    axes.contour(
        u, v, 0.5 * ((u - best[0]) ** 2 + 0.25 * (v - best[1]) ** 2), 12, colors=SOFT, linewidths=0.6
    )
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(r * np.cos(angle), r * np.sin(angle), color=INK, lw=1)
    way = [np.array([-0.8, -0.3])]
    for _ in range(60):
        step = way[-1] - 0.4 * H @ (way[-1] - best)
        way.append(min(1.0, r / np.linalg.norm(step)) * step)
    axes.plot(*np.array(way).T, ".-", color=ACCENT, lw=1, ms=3)
    axes.plot(*best, "*", color=WARM, ms=9)
    axes.set_aspect("equal")
    _label(axes, "first weight", "second weight")
    return figure


def stopping() -> Figure:
    """Draw the shares after some steps beside those of weight decay, and a fit that was stopped."""
    figure, (left, right) = panels(2, "To stop early is to decay weights", 3.9, 3.1)
    for t, colour in ((10, WARM), (100, ACCENT)):
        left.semilogx(CURVATURES, 1 - (1 - 0.1 * CURVATURES) ** t, color=colour, label=f"{t} steps of 0.1")
        mu = 1 / (0.1 * t)
        left.semilogx(CURVATURES, CURVATURES / (CURVATURES + mu), "--", color=colour, label=f"decay {mu:g}")
    left.legend(fontsize=7, frameon=False)
    _label(left, "curvature λ of the loss", "share of the weight that is learned")
    X, y = make_moons(160, noise=0.35, random_state=0)
    far = make_moons(2000, noise=0.35, random_state=1)
    plan = Training(epochs=150, learning_rate=0.01)
    model = MLPClassifier((100, 100), training=plan, random_state=0).fit(X, y, validation=far)
    history = model.history_frame()
    right.plot(history["loss"], color=SOFT, label="training")
    right.plot(history["validation_loss"], color=ACCENT, label="held out")
    right.axvline(history["validation_loss"].idxmin(), color=WARM, lw=1)
    right.legend(fontsize=7, frameon=False)
    _label(right, "epoch", "loss")
    return figure


def dropout() -> Figure:
    """Draw what the passes of Monte-Carlo dropout say of points near to and far from the data."""
    rng = np.random.default_rng(0)
    x = np.sort(np.concatenate([rng.uniform(-3, -1, 60), rng.uniform(1, 3, 60)]))[:, None]
    y = np.sin(2 * x[:, 0]) + 0.1 * rng.normal(size=120)
    plan = Training(epochs=400, learning_rate=3e-3)
    model = MLPRegressor((100, 100), dropout=0.1, training=plan, random_state=0).fit(x, y)
    grid = np.linspace(-4.5, 4.5, 300)[:, None]
    mean, std = model.predict(grid, dropout_samples=200, return_std=True)
    figure, (axes,) = panels(1, "Monte-Carlo dropout: passes disagree where there are no data", 5.6, 3.2)
    axes.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=ACCENT, alpha=0.2, lw=0)
    axes.plot(grid, mean, color=ACCENT, label="mean of 200 passes, ± 2 deviations")
    axes.plot(grid, model.predict(grid), color=WARM, lw=0.9, label="one pass with rescaled weights")
    axes.plot(x, y, ".", color=INK, ms=3)
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "input", "prediction")
    return figure


def noise() -> Figure:
    """Draw the slope that noisy inputs leave beside that of ridge regression."""
    X = np.random.default_rng(0).choice([-1.0, 1.0], size=(2000, 1))
    scales = np.linspace(0, 2, 9)
    slopes = []
    for scale in scales:
        plan = Training(input_noise=float(scale), learning_rate=0.01, epochs=25, average=0.99)
        slopes.append(MLPRegressor((), training=plan, random_state=0).fit(X, X[:, 0]).coefs_[0].item())
    figure, (axes,) = panels(1, "Noise on the inputs is Tikhonov regularisation", 5.2, 3.2)
    fine = np.linspace(0, 2, 100)
    axes.plot(fine, 1 / (1 + fine**2), color=SOFT, label="ridge regression, 1 / (1 + σ²)")
    axes.plot(scales, slopes, "o", color=ACCENT, ms=4, label="Training(input_noise=σ)")
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "standard deviation σ of the noise", "slope (1 without noise)")
    return figure


def smoothing() -> Figure:
    """Draw how sure a classifier is of held-out digits, with and without smoothing."""
    digits = data.load("digits", "table")
    figure, axes = panels(3, "How sure a network is of held-out digits", 2.6, 2.6)
    for part, share in zip(axes, (0.0, 0.1, 0.3)):
        plan = Training(epochs=60, label_smoothing=share)
        model = MLPClassifier((64,), training=plan, random_state=0).fit(digits.X[::2], digits.y[::2])
        sure = model.predict_proba(digits.X[1::2]).max(1)
        part.hist(sure, np.linspace(0.2, 1, 33), color=ACCENT)
        part.axvline(1 - share + share / 10, color=WARM, lw=1)
        accuracy = model.score(digits.X[1::2], digits.y[1::2])
        _label(part, "largest probability", "", f"ε = {share:g}: {accuracy:.1%} right")
    return figure


def curriculum() -> Figure:
    """Draw which samples are seen in each epoch."""
    seen: list[np.ndarray] = []

    class Watch:
        def on_batch(self, batch: Any, module: Any, rng: Any) -> Any:
            seen.append(batch.inputs[0][:, 0].numpy().astype(int))
            return batch

    X = np.arange(60, dtype=np.float32)[:, None]
    plan = Training(
        epochs=16, batch_size=60, curriculum=Curriculum(X[:, 0], start=0.25), regularisers=(Watch(),)
    )
    MLPRegressor((4,), training=plan, random_state=0).fit(X, X[:, 0])
    page = np.zeros((60, len(seen)))
    for t, rows in enumerate(seen):
        page[rows, t] = 1
    figure, (axes,) = panels(1, "The samples that each epoch sees, of 60", 5.2, 3.0)
    axes.imshow(page, aspect="auto", origin="lower", cmap="Blues", vmax=1.6)
    _label(axes, "epoch", "sample, from easy to hard")
    return figure


def bagging() -> Figure:
    """Draw the accuracy of one, two, three members together on held-out digits, and what the bags say of it."""
    digits = data.load("digits", "table")
    order = np.random.default_rng(0).permutation(len(digits.y))  # the file has its writers one after another
    X, y = digits.X[order[:400]], digits.y[order[:400]]
    held, truth = digits.X[order[400:]], digits.y[order[400:]]
    member = MLPClassifier((32,), training=Training(epochs=40, learning_rate=3e-3))
    model = BaggingClassifier(member, 20, random_state=0).fit(X, y)
    each = np.array([member.predict_proba(held) for member in model.estimators_])
    together = np.cumsum(each, 0) / np.arange(1, 21)[:, None, None]
    figure, (axes,) = panels(1, "Members together, 400 digits to learn from", 5.4, 3.2)
    axes.plot(
        np.arange(1, 21), [np.mean(p.argmax(1) == truth) for p in each], ".", color=SOFT, label="each member"
    )
    axes.plot(
        np.arange(1, 21), [np.mean(p.argmax(1) == truth) for p in together], color=ACCENT, label="averaged"
    )
    oob = [row["oob_score"] for row in model.history_]
    axes.plot(np.arange(1, 21), oob, "--", color=WARM, label="out of the bags: no data held out")
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "members", "accuracy on new digits")
    return figure


def distillation() -> Figure:
    """Draw what a teacher says of one held-out digit at three temperatures."""
    digits = data.load("digits", "table")
    teacher = MLPClassifier((64,), training=Training(epochs=40), random_state=0)
    teacher.fit(digits.X[:1000], digits.y[:1000])
    said = teacher.predict_proba(digits.X[1000:])
    unsure = int(np.argsort(said.max(1))[20])
    figure, axes = panels(4, "What a teacher thinks of a digit, warmer and warmer", 2.1, 2.4)
    axes[0].imshow(digits.X[1000 + unsure].reshape(8, 8), cmap="gray_r")
    axes[0].set(xticks=[], yticks=[])
    for part, T in zip(axes[1:], (1.0, 2.0, 5.0)):
        part.bar(np.arange(10), tempered(said[[unsure]], T)[0], color=ACCENT)
        part.set(xticks=np.arange(10), ylim=(0, 1))
        _label(part, "class", "", f"T = {T:g}")
    return figure


def transfer() -> Figure:
    """Draw the accuracy on the digits 5 to 9 by the number of labels, from scratch and from weights that know 0 to 4."""
    digits = data.load("digits")
    order = np.random.default_rng(0).permutation(len(digits.y))
    low, high = order[digits.y[order] < 5], order[digits.y[order] >= 5]
    plan = Training(epochs=60, learning_rate=2e-3, batch_size=32)
    new = ImageClassifier("lenet", training=plan, random_state=0)
    base = clone(new).set_params(training__epochs=15).fit(digits.X[low], digits.y[low])
    counts = (20, 50, 100, 200)
    lines: dict[str, list[float]] = {"from scratch": [], "fine-tuned": [], "new head only": []}
    held = digits.X[high[200:]], digits.y[high[200:]]
    for n in counts:
        few = digits.X[high[:n]], digits.y[high[:n]]
        lines["from scratch"].append(clone(new).fit(*few).score(*held))
        lines["fine-tuned"].append(base.fine_tune(*few, training=plan).score(*held))
        lines["new head only"].append(base.fine_tune(*few, freeze=-1, training=plan).score(*held))
    figure, (axes,) = panels(1, "Digits 5 to 9, after learning the digits 0 to 4 or not", 5.4, 3.2)
    for (name, values), colour in zip(lines.items(), (SOFT, ACCENT, WARM)):
        axes.semilogx(counts, values, "o-", ms=3, color=colour, label=name)
    axes.set_xticks(counts, counts)
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "labels", "accuracy on held-out digits")
    return figure


def multi_task() -> Figure:
    """Draw the accuracy of digits by the number of their labels, alone and beside a task that all samples have."""
    digits = data.load("digits", "table")
    order = np.random.default_rng(0).permutation(len(digits.y))
    X, y = digits.X[order], digits.y[order]
    seen, held = slice(0, 1000), slice(1000, None)
    plan = Training(epochs=40, learning_rate=2e-3)
    counts = (20, 50, 100, 200)
    lines: dict[str, list[float]] = {"alone": [], "with odd or even of 1,000": []}
    for n in counts:
        few = np.where(np.arange(1000) < n, y[seen].astype(float), np.nan)
        alone = MultiTaskNet(training=plan, random_state=0).fit(X[:n], y[:n])
        both = MultiTaskNet(training=plan, random_state=0, tasks={"digit": "classification"})
        both.fit(X[seen], {"digit": few, "odd": y[seen] % 2 == 1})
        lines["alone"].append(alone.score(X[held], y[held]))
        lines["with odd or even of 1,000"].append(float(np.mean(both.predict(X[held])["digit"] == y[held])))
    figure, (axes,) = panels(1, "Which digit it is, with a second head or without", 5.4, 3.2)
    for (name, values), colour in zip(lines.items(), (SOFT, ACCENT)):
        axes.semilogx(counts, values, "o-", ms=3, color=colour, label=name)
    axes.set_xticks(counts, counts)
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "labels of the digit", "accuracy on held-out digits")
    return figure


def self_training() -> Figure:
    """Draw the round in which each sample of two moons got its label."""
    X, _ = make_moons(300, noise=0.08, random_state=0)
    y = make_moons(300, noise=0.08, random_state=0)[1]
    few = np.full(300, -1)
    for k in (0, 1):
        few[np.flatnonzero(y == k)[:4]] = k
    net = MLPClassifier((32,), training=Training(epochs=150, learning_rate=0.01))
    model = SelfTraining(net, threshold=0.95, random_state=0).fit(X, few)
    figure, (axes,) = panels(1, "Pseudo-labels: the round in which each sample got one", 5.2, 3.4)
    shown = axes.scatter(
        *X.T, c=np.where(model.labeled_iter_ < 0, np.nan, model.labeled_iter_), s=14, cmap="viridis"
    )
    axes.scatter(*X[few >= 0].T, s=60, facecolors="none", edgecolors=WARM)
    figure.colorbar(shown, ax=axes, label="round (0: given, circled)")
    return figure


def rotation() -> Figure:
    """Draw held-out digits as they were turned, with what the net makes of it."""
    digits = data.load("digits")
    model = RotationPretrainer("lenet", training=Training(epochs=15), random_state=0).fit(digits.X[:1400])
    images = np.concatenate([np.rot90(digits.X[1400:1403], k, (1, 2)) for k in range(4)])
    with torch.no_grad():
        found = model.module_(torch.tensor(images[:, None], dtype=torch.float32)).argmax(1).numpy()
    figure, axes = panels(12, "Held-out digits, turned, and by how many degrees the net says", 0.9, 1.7)
    for i, part in enumerate(axes):
        part.imshow(images[i], cmap="gray_r")
        part.set(xticks=[], yticks=[])
        part.set_title(
            f"{model.classes_[found[i]]}°", fontsize=8, color=ACCENT if found[i] == i // 3 else WARM
        )
    return figure


def patches() -> Figure:
    """Draw digits, their patches in another order, and how often the order is told."""
    digits = data.load("digits")
    model = PatchPretrainer("lenet", training=Training(epochs=15), random_state=0).fit(digits.X)
    orders, which = torch.from_numpy(model.permutations_), torch.tensor([0, 5, 9, 14, 23])
    x = torch.tensor(digits.X[:5, None], dtype=torch.float32)
    moved = shuffled(x, orders, which, 2)
    figure, axes = panels(
        6, "Digits whose quarters have changed places; how often the net tells the order", 1.5, 2.0
    )
    for part, image in zip(axes, moved):
        part.imshow(image[0], cmap="gray_r")
        part.set(xticks=[], yticks=[])
    axes[5].plot([row["accuracy"] for row in model.history_], color=ACCENT)
    _label(axes[5], "epoch", "", "accuracy")
    return figure


def coding() -> Figure:
    """Draw the bound on the information about rows to come, for batches of several sizes."""
    digits = data.load("digits")
    figure, (axes,) = panels(
        1, "Information about the rows of a digit to come, as far as a batch can show it", 5.6, 3.2
    )
    for size, colour in ((8, SOFT), (32, ACCENT), (128, WARM)):
        plan = Training(epochs=12, batch_size=size)
        model = ContrastivePredictiveCoding(32, training=plan, random_state=0).fit(digits.X)
        axes.plot(model.history_frame()["information"], color=colour, label=f"batches of {size}")
        axes.axhline(np.log(size), color=colour, lw=0.6, ls=":")
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "epoch", "bound in nats (dotted: log N)")
    return figure


REGULARISERS: dict[str, Callable[[], Figure]] = {
    "bagging": bagging,
    "curriculum": curriculum,
    "distillation": distillation,
    "dropout": dropout,
    "early-stopping": stopping,
    "l1": lasso,
    "label-smoothing": smoothing,
    "multi-task": multi_task,
    "noise": noise,
    "norm-ball": ball,
    "patches": patches,
    "rotation": rotation,
    "self-supervised": coding,
    "self-training": self_training,
    "transfer": transfer,
    "weight-decay": weight_decay,
}
