"""Fashion-MNIST: a perceptron, convolutional nets and a vision transformer under one small budget."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from corollary import ImageClassifier, MLPClassifier, Training, data
from results.tables import at_least, page

IMAGES, TESTED, EPOCHS = 10_000, 10_000, 5
TEXT = f"""Test accuracy on all {TESTED:,} test images after {EPOCHS} epochs on the first {IMAGES:,} training images,
with one seed and the same plan for all: Adam, learning rate 0.002 falling along a cosine, batches of 64. `MLPClassifier` has
256 hidden units; the others are nets of `ImageClassifier` at its widths for 28 x 28 pixels, made shallow for the budget: one
block in each of three stages (resnet), three layers of growth 8 in each of three blocks (densenet), three layers (vit).
Below, the images of which the residual net was wrongly surest: what it saw, and what it is."""
NETS = {
    "lenet": {},
    "resnet": {"options": {"depth": (1, 1, 1)}},
    "densenet": {"width": 8, "options": {"depth": (3, 3, 3)}},
    "vit": {"options": {"n_layers": 3}},
}
FLOORS = {"mlp": 0.82, "lenet": 0.84, "resnet": 0.84, "densenet": 0.84, "vit": 0.80}


def run(out: Path) -> dict[str, Any]:
    """Fit every net and assert what the budget leads to expect."""
    clothes = data.load("fashion-mnist")
    train, test = clothes.extra["split"]
    X, y = clothes.X[train[:IMAGES]], clothes.y[train[:IMAGES]]
    X_test, y_test = clothes.X[test[:TESTED]], clothes.y[test[:TESTED]]
    plan = Training(epochs=EPOCHS, batch_size=64, learning_rate=2e-3, schedule="cosine")
    models: dict[str, Any] = {"mlp": MLPClassifier((256,), training=plan, random_state=0)}
    for name, settings in NETS.items():
        models[name] = ImageClassifier(name, training=plan, random_state=0, **settings)
    found, rows, losses = {}, [], {}
    for name, model in models.items():
        flat = name == "mlp"
        start = perf_counter()
        model.fit(_rows(X) if flat else X, y)
        seconds = perf_counter() - start
        found[name] = float(model.score(_rows(X_test) if flat else X_test, y_test))
        weights = sum(p.numel() for p in model.module_.parameters())
        rows.append((name, f"{weights:,}", found[name], round(seconds)))
        losses[name] = [row["loss"] for row in model.history_]
    _plot(out / "fashion_mnist.png", X_test, y_test, models["resnet"], clothes.target_names, losses)
    headings = ("net", "weights", "test accuracy", "seconds to fit")
    page(out / "fashion_mnist.md", "Fashion-MNIST under a small budget", TEXT, headings, rows)
    for name, floor in FLOORS.items():
        at_least(found[name], floor, f"accuracy of {name}")
    return found


def _rows(X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1).astype(np.float32) / 255


def _plot(path: Path, X: np.ndarray, y: np.ndarray, model: Any, names: Any, losses: Any) -> None:
    """Draw the losses, and the images of which the residual net was wrongly surest."""
    import matplotlib.pyplot as plt

    p = model.predict_proba(X[:2000])
    wrong = np.flatnonzero(p.argmax(1) != y[:2000])
    worst = wrong[np.argsort(-p[wrong].max(1))][:10]
    figure = plt.figure(figsize=(11, 4), layout="constrained")
    grid = figure.add_gridspec(2, 8)
    left = figure.add_subplot(grid[:, :3])
    for name, values in losses.items():
        left.plot(range(1, len(values) + 1), values, marker="o", label=name)
    left.set(xlabel="epoch", ylabel="training loss")
    left.legend()
    for i, index in enumerate(worst):
        axes = figure.add_subplot(grid[i // 5, 3 + i % 5])
        axes.imshow(X[index], cmap="gray_r")
        axes.set_title(f"{names[int(p[index].argmax())]}?\n{names[int(y[index])]}", fontsize=7)
        axes.axis("off")
    figure.savefig(path, dpi=110)
    plt.close(figure)
