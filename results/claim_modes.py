"""Claim: a deep linear network learns the modes of the data one after the other, each in a time of one over its strength."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from corollary import DeepLinearNetwork
from results._claims import panels, spread, write
from results.tables import at_least, at_most

DEPTHS = (2, 1)
SEEDS = 5
SCALE = 1e-3


def half_times(depth: int, seed: int) -> tuple[np.ndarray, np.ndarray, DeepLinearNetwork]:
    """Return the strengths of the modes, the times at which each is half learned, and the network."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))[:1200]
    X = PCA(20).fit_transform(X[rows])
    Y = np.eye(10)[y[rows]]
    options = {"scale": SCALE, "learning_rate": 0.05, "max_iter": 4000, "tol": 1e-3, "random_state": seed}
    model = DeepLinearNetwork(depth, **options).fit(X, Y - Y.mean(0))
    s = model.singular_values_
    keep = s > 0.3 * s[0]
    half = np.array([model.times_[np.argmax(model.modes_[:, i] > s[i] / 2)] for i in np.flatnonzero(keep)])
    return s[keep], half, model


def run(out: Path) -> dict[str, Any]:
    """Measure both depths, draw one run each, and assert order and power."""
    figure, axes = panels(2)
    rows, found = [], {}
    for axis, depth in zip(axes, DEPTHS):
        slopes, orders = [], []
        for seed in range(SEEDS):
            s, half, model = half_times(depth, seed)
            slopes.append(float(np.polyfit(np.log(s), np.log(half), 1)[0]))
            orders.append(float(spearmanr(s, -half).statistic) if np.ptp(half) > 0 else 0.0)
        axis.plot(model.times_, model.modes_ / model.singular_values_)
        axis.set(xlabel="time", title=f"{depth} layer{'s' * (depth > 1)}")
        axis.set_xlim(0, float(1.5 * half.max()))
        found[depth] = (slopes, orders)
        rows.append((depth, len(s), spread(slopes), spread(orders)))
    axes[0].set_ylabel("share of each mode that is learned")
    deep, shallow = found[DEPTHS[0]], found[DEPTHS[1]]
    write(
        out,
        "claim_modes",
        "Linear networks learn mode by mode",
        claim="A linear network of two layers from small weights learns the singular modes of its task one after the "
        "other: mode i "
        "is half learned after a time of about log(s_i / a) / (2 s_i). With one layer all modes are learned together.",
        setting=f"Digits (20 principal components, whitened, to centred one-hot classes), random weights of size {SCALE:g}, "
        f"{SEEDS} seeds, each with other 1,200 digits; the modes above 0.3 times the largest. *Slope*: of the logarithm of the "
        "half time over that of the strength; *order*: rank correlation of strength and speed.",
        found=f"two layers: slope {spread(deep[0])} (claimed about −1), order {spread(deep[1])}; one layer: slope "
        f"{spread(shallow[0])} (claimed 0).",
        change="`SCALE = 1.0` starts with all modes half learned.",
        headings=("layers", "modes", "slope", "order"),
        rows=rows,
        figure=figure,
    )
    at_most(max(abs(value + 1) for value in deep[0]), 0.3, "distance of the slope from -1")
    at_least(min(deep[1]), 0.9, "rank correlation of strength and speed")
    at_most(max(abs(value) for value in shallow[0]), 0.05, "slope with one layer")
    return {"slopes": deep[0], "orders": deep[1], "one layer": shallow[0]}
