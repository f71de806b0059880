"""Clouds of points with default settings: deep sets and PointNet beside a plain PointNet, on clouds moved and scaled."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier

from corollary import DeepSetsClassifier, PointNet, data
from results._plain import SEEDS, PlainPointNet, centred, measured, predicted, shown, trained
from results._scenes_drawn import digit_clouds, moved, solids
from results.tables import at_least, page

EPOCHS = 40
TEXT = f"""Test accuracy, mean ± standard deviation over {len(SEEDS)} seeds, with the processor's seconds of one fit and its
test. Every cloud is scaled by a factor of its own between 1/5 and 5 and moved by up to ten of its sizes; nothing is
set. **Solids**: 300 clouds of 64 noisy points of a ball, box, cylinder, cone or torus, each stretched and turned; 300
to be tested on. **Meshes**: which of 20 meshes of CGAL 64 points were drawn from, 400 clouds turned about one axis,
200 to be tested on. **Digits**: 600 handwritten digits as 32 points in the plane where their ink is, 600 to be tested
on. Beside ours: a plain PointNet without transforms, on clouds with their centre at 0 and their farthest point at 1,
trained with Adam for {EPOCHS} epochs in batches of 32; and a random forest on mean, deviations and quantiles of the
coordinates."""


def sets() -> dict[str, tuple[np.ndarray, ...]]:
    """Return clouds (n, m, d) and labels, to train and to test."""
    meshes = data.load("cgal-shapes")
    train, test = (
        (moved(np.stack([meshes.X[i][:64] for i in rows]), seed), np.asarray(meshes.y)[rows])
        for seed, rows in enumerate(meshes.extra["split"])
    )
    rows = np.random.default_rng(0).permutation(1797)
    return {
        "solids": (*solids(300, 0), *solids(300, 1)),
        "meshes": (*train, *test),
        "digits": (*digit_clouds(rows[:600], 0), *digit_clouds(rows[600:1200], 1)),
    }


def ours(cls: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> float:
    """Return the accuracy by default."""
    return cls(random_state=seed).fit([*X], y).score([*X_test], y_test)


def plain(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> float:
    """Return that of the plain PointNet."""
    torch.manual_seed(seed)
    net = PlainPointNet(X.shape[2], int(y.max()) + 1)
    trained(net, centred(X), torch.as_tensor(y), epochs=EPOCHS)
    return float(np.mean(predicted(net, centred(X_test)) == y_test))


def forest(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> float:
    """Return that of a random forest on moments."""
    described = lambda clouds: np.concatenate(
        [clouds.mean(1), clouds.std(1), *np.quantile(clouds, (0.1, 0.5, 0.9), axis=1)], 1
    )
    return RandomForestClassifier(random_state=seed).fit(described(X), y).score(described(X_test), y_test)


def run(out: Path) -> dict[str, Any]:
    """Measure all; assert that the better of ours is no worse than the plain PointNet, beyond the spread."""
    found = {}
    for name, parts in sets().items():
        methods = {
            "`DeepSetsClassifier()`": partial(ours, DeepSetsClassifier, *parts),
            "`PointNet()`": partial(ours, PointNet, *parts),
            "plain PointNet": partial(plain, *parts),
            "random forest": partial(forest, *parts),
        }
        found[name] = measured(methods, SEEDS)
    rows = [(method, *(shown(found[name][method]) for name in found)) for method in found["solids"]]
    page(out / "defaults_sets.md", "Clouds of points with default settings", TEXT, ("", *found), rows)
    for name, row in found.items():
        usual = row["plain PointNet"]["scores"]
        floor = float(np.mean(usual) - np.std(usual) - 0.02)
        for method in [*row][:2]:
            at_least(float(np.mean(row[method]["scores"])), floor, f"accuracy of {method} on {name}")
    return {name: {m: float(np.mean(r["scores"])) for m, r in row.items()} for name, row in found.items()}
