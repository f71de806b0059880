"""Shapes of CGAL: which mesh a cloud of points was drawn from, by PointNet and by deep sets."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from corollary import DeepSetsClassifier, PointNet, Training, data
from results.tables import at_least, page, spread

THINNED = (256, 128, 64)  # points of a training cloud, which appears with each number of them
KEPT = (256, 128, 64, 32, 16)  # points of a test cloud
FLOORS = {"pointnet": 0.60, "pointnet, 64 points": 0.45}
EPOCHS, SEEDS = 15, (0, 1, 2)


def run(out: Path) -> dict[str, Any]:
    """Fit both and assert that clouds are recognised, even with a quarter of their points."""
    shapes = data.load("cgal-shapes")
    train, test = shapes.extra["split"]
    X, y = [shapes.X[i] for i in train], shapes.y[train]
    X_test, y_test = [shapes.X[i] for i in test], shapes.y[test]
    plan = Training(epochs=EPOCHS, batch_size=16, learning_rate=2e-3, schedule="cosine", clip_norm=1.0)
    scores: dict[str, list[list[float]]] = {"pointnet": [], "deep sets": []}
    seconds = dict.fromkeys(scores, 0.0)
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        thin = [x[rng.choice(len(x), m, replace=False)] for m in THINNED for x in X]
        fewer = {m: [x[rng.choice(len(x), m, replace=False)] for x in X_test] for m in KEPT}
        models = {
            "pointnet": PointNet(training=plan, random_state=seed),
            "deep sets": DeepSetsClassifier((64, 256), pooling="max", training=plan, random_state=seed),
        }
        for name, model in models.items():
            start = perf_counter()
            model.fit(thin, np.tile(y, len(THINNED)))
            seconds[name] += (perf_counter() - start) / len(SEEDS)
            scores[name].append([100 * model.score(fewer[m], y_test) for m in KEPT])
    weights = {name: sum(p.numel() for p in model.module_.parameters()) for name, model in models.items()}
    rows = [
        (name, f"{weights[name]:,}", *(spread(column, 1) for column in zip(*found)), round(seconds[name]))
        for name, found in scores.items()
    ]
    commonest = 100 * np.bincount(y_test).max() / len(y_test)
    rows.append(("the commonest shape", "0", *(f"{commonest:.1f}" for _ in KEPT), 0))
    curves = {name: np.mean(found, axis=0) for name, found in scores.items()}
    _plot(out / "shapes.png", shapes, curves)
    headings = ("model", "weights", *(f"{m} points" for m in KEPT), "seconds to fit")
    page(out / "shapes.md", "Shapes from points", _text(shapes, thin, X_test), headings, rows)
    found = {
        "pointnet": curves["pointnet"][0] / 100,
        "pointnet, 64 points": curves["pointnet"][KEPT.index(64)] / 100,
    }
    for what, floor in FLOORS.items():
        at_least(found[what], floor, f"accuracy of {what}")
    return {name: dict(zip(KEPT, curve.round(1).tolist())) for name, curve in curves.items()}


def _text(shapes: Any, X: list[np.ndarray], X_test: list[np.ndarray]) -> str:
    n = len(shapes.target_names)
    return f"""Test accuracy in per cent: which of {n} meshes a cloud was drawn from. Every cloud is a new sample of {len(X[0])}
points of a surface, turned about one axis by a random angle: {len(X):,} clouds to train, {len(X_test):,} to test. Both models
are trained for {EPOCHS} epochs on clouds whole, halved and quartered at random, and tested on clouds of which only some points
are left: mean ± standard deviation over {len(SEEDS)} seeds of the weights and of the points that are kept."""


def _plot(path: Path, shapes: Any, curves: dict[str, np.ndarray]) -> None:
    """Draw some clouds, and the accuracy with fewer and fewer points."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(11, 4.4), layout="constrained")
    grid = figure.add_gridspec(2, 8)
    left = figure.add_subplot(grid[:, :3])
    for name, curve in curves.items():
        left.plot(KEPT, curve, marker="o", label=name)
    left.set(xscale="log", xticks=KEPT, xticklabels=KEPT, xlabel="points left", ylabel="test accuracy in %")
    left.minorticks_off()
    left.legend()
    chosen = np.linspace(0, len(shapes.target_names) - 1, 10).astype(int)
    for i, label in enumerate(chosen):
        axes = figure.add_subplot(grid[i // 5, 3 + i % 5], projection="3d")
        cloud = shapes.X[int(np.flatnonzero(shapes.y == label)[0])]
        axes.scatter(*cloud.T, s=2, c=cloud[:, 2], cmap="viridis")
        axes.set_title(shapes.target_names[label], fontsize=8)
        axes.set_axis_off()
    figure.savefig(path, dpi=110)
    plt.close(figure)
