"""Ring of 8 and grid of 25 Gaussians: modes found by every loss of the GAN, alternating and by extragradient."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from corollary import GAN, Training
from results.tables import at_least, page, spread

SEEDS = {
    "ring": int(os.environ.get("RINGS_SEEDS", "5")),
    "grid": int(os.environ.get("RINGS_GRID_SEEDS", "5")),
}
EPOCHS = {
    "ring": int(os.environ.get("RINGS_EPOCHS", "100")),
    "grid": int(os.environ.get("RINGS_EPOCHS", "100")) * 2,
}
CACHE = os.environ.get("RINGS_CACHE")  # a folder: what was measured before is not measured again
LOSSES = ("minimax", "non-saturating", "wasserstein", "wasserstein-gp")
DEVIATION = 0.05
TEXT = """2,000 points of 8 Gaussians on a circle of radius 2, or of 25 on a grid of spacing 1, deviation 0.05. *Modes*: with at
least 1 % (grid: 0.5 %) of 2,000 draws within four deviations, the least of all seeds in brackets; *good*: share of draws that are
within four deviations of some mode. *Noise*, the trivial generator: a Gaussian with the data's mean and covariance. `GAN` with
its defaults but for loss and moves; {ring} epochs of 32 updates and {ring_seeds} seeds on the ring, {grid} epochs and
{grid_seeds} seeds on the grid: means ± standard deviations."""


def centres(kind: str) -> np.ndarray:
    """Return the means of the ring or the grid."""
    if kind == "grid":
        side = np.arange(5) - 2.0
        return np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    angle = 2 * np.pi * np.arange(8) / 8
    return 2 * np.stack([np.cos(angle), np.sin(angle)], 1)


def judged(drawn: np.ndarray, means: np.ndarray) -> tuple[int, float]:
    """Return how many modes are found, and the share of good draws."""
    distance = np.linalg.norm(drawn[:, None] - means, axis=2)
    good = distance.min(1) < 4 * DEVIATION
    hits = np.bincount(distance.argmin(1)[good], minlength=len(means))
    return int((hits >= (0.01 if len(means) < 10 else 0.005) * len(drawn)).sum()), float(good.mean())


def measured(model: GAN, X: np.ndarray, means: np.ndarray) -> list[float]:
    """Return modes and share of good draws of a model, fitted to the data unless that was done before."""
    name = f"{len(means)}-{model.loss}-{model.rule}-{model.training.epochs}-{model.random_state}.json"
    path = None if CACHE is None else Path(CACHE) / name
    if path is not None and path.exists():
        return list(json.loads(path.read_text()))
    found = [float(v) for v in judged(model.fit(X.astype(np.float32)).sample(2000), means)]
    if path is not None:
        path.write_text(json.dumps(found))
    return found


def run(out: Path) -> dict[str, Any]:
    """Fit them all; the best two games must find 7.5 of the 8 modes of the ring on average, and the default be one."""
    rows, found = [], {}
    for kind in ("ring", "grid"):
        means = centres(kind)
        rng = np.random.default_rng(0)
        X = means[rng.integers(len(means), size=2000)] + DEVIATION * rng.standard_normal((2000, 2))
        noise = judged(rng.multivariate_normal(X.mean(0), np.cov(X.T), 2000), means)
        rows.append((kind, "noise", "", f"{noise[0]} of {len(means)}", noise[1]))
        for loss in LOSSES:
            for rule in ("alternating", "extragradient"):
                plan = Training(epochs=EPOCHS[kind])
                scores = [
                    measured(GAN(loss, rule=rule, training=plan, random_state=seed), X, means)
                    for seed in range(SEEDS[kind])
                ]
                modes, good = zip(*scores)
                told = f"{spread(modes, 1)} of {len(means)} ({min(modes):.0f})"
                rows.append((kind, loss, rule, told, spread(good)))
                found[kind, loss, rule] = float(np.mean(modes))
                print(*rows[-1], flush=True)
    headings = ("data", "loss", "moves", "modes", "good")
    sizes = {"ring": EPOCHS["ring"], "grid": EPOCHS["grid"]}
    sizes |= {"ring_seeds": SEEDS["ring"], "grid_seeds": SEEDS["grid"]}
    page(out / "rings.md", "Modes of a ring and a grid", TEXT.format(**sizes), headings, rows)
    best = sorted((modes for (kind, *_), modes in found.items() if kind == "ring"), reverse=True)
    at_least(best[1], 7.5, "modes of the second best game on the ring")
    at_least(found["ring", "wasserstein-gp", "alternating"], 7.5, "modes of the default on the ring")
    return {" ".join(key): modes for key, modes in found.items()}
