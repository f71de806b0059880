"""Fashion-MNIST: a perceptron, convolutional nets and a vision transformer under one small budget."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from corollary import ImageClassifier, MLPClassifier, Training, data
from results.tables import at_least, page, spread

IMAGES, TESTED, EPOCHS, SEEDS = 2_000, 3_000, 6, (0, 1, 2)
TEXT = f"""Test accuracy on {TESTED:,} test images after {EPOCHS} epochs on {IMAGES:,} training images: mean ± standard deviation
over {len(SEEDS)} seeds, each with its own weights and its own draw of training images, the same for all nets.
One plan for all: Adam, learning rate 0.002 falling along a cosine, batches of 64. `MLPClassifier` has
256 hidden units; the others are nets of `ImageClassifier` at its widths for 28 x 28 pixels, made shallow for the budget: one
block in each of three stages (resnet), three layers of growth 8 in each of three blocks (densenet), three layers (vit).
Below, the images of which the residual net was wrongly surest: what it saw, and what it is."""
NETS = {
    "lenet": {},
    "resnet": {"options": {"depth": (1, 1, 1)}},
    "densenet": {"width": 8, "options": {"depth": (3, 3, 3)}},
    "vit": {"options": {"n_layers": 3}},
}
FLOORS = {"mlp": 0.75, "lenet": 0.70, "resnet": 0.72, "densenet": 0.70, "vit": 0.65}


def run(out: Path) -> dict[str, Any]:
    """Fit every net and assert what the budget leads to expect."""
    clothes = data.load("fashion-mnist")
    train, test = clothes.extra["split"]
    X_test, y_test = clothes.X[test[:TESTED]], clothes.y[test[:TESTED]]
    scores: dict[str, list[float]] = {name: [] for name in ("mlp", *NETS)}
    seconds, losses = dict.fromkeys(scores, 0.0), {}
    for seed in SEEDS:
        part = np.random.default_rng(seed).permutation(train)[:IMAGES]
        models = _models(seed)
        for name, model in models.items():
            start = perf_counter()
            model.fit(_input(name, clothes.X[part]), clothes.y[part])
            seconds[name] += (perf_counter() - start) / len(SEEDS)
            scores[name].append(float(model.score(_input(name, X_test), y_test)))
            losses[name] = [row["loss"] for row in model.history_]
    weights = {name: sum(p.numel() for p in model.module_.parameters()) for name, model in models.items()}
    rows = [(name, f"{weights[name]:,}", spread(scores[name]), round(seconds[name])) for name in models]
    rows.append(("one class for all", "0", f"{np.bincount(y_test).max() / len(y_test):.3f}", 0))
    _plot(out / "fashion_mnist.png", X_test, y_test, models["resnet"], clothes.target_names, losses)
    headings = ("net", "weights", "test accuracy", "seconds to fit")
    page(out / "fashion_mnist.md", "Fashion-MNIST under a small budget", TEXT, headings, rows)
    found = {name: float(np.mean(values)) for name, values in scores.items()}
    for name, floor in FLOORS.items():
        at_least(found[name], floor, f"accuracy of {name}")
    return found


def _models(seed: int) -> dict[str, Any]:
    plan = Training(epochs=EPOCHS, batch_size=64, learning_rate=2e-3, schedule="cosine", augment=0)
    models: dict[str, Any] = {"mlp": MLPClassifier((256,), training=plan, random_state=seed)}
    for name, settings in NETS.items():
        models[name] = ImageClassifier(name, training=plan, random_state=seed, **settings)
    return models


def _input(name: str, X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1).astype(np.float32) / 255 if name == "mlp" else X


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
