"""Classes of series with default settings: recurrent and convolutional nets beside a plain GRU, random kernels, neighbours."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import RidgeClassifierCV
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from corollary import SequenceClassifier, data
from results._plain import SEEDS, gru_classes
from results.tables import at_least, page

KERNELS = 500
SETS = ("japanese-vowels", "italy-power-demand", "gun-point")
TEXT = f"""Accuracy on the published test part, mean ± standard deviation over {len(SEEDS)} seeds of everything that has one, and
the processor's seconds of a fit. Nothing is set: `SequenceClassifier` as it is, and with temporal convolutions, as
deep as lets them see the whole series. Beside ours: a GRU of the same width, trained by a plain loop for 30 epochs in
batches of 32; ridge regression on the largest value and the share of positive values of {KERNELS} random convolutions
(as in ROCKET); the nearest neighbour; and the commonest class. Japanese vowels: 270 utterances of nine speakers, 12
numbers a step; electricity in Italy: 67 days by the hour, winter or summer; gun or point: 50 tracks of a hand over
150 steps. Batch size and epochs follow from the number of series (`corollary.engine.budget`)."""


def resampled(X: list[np.ndarray], steps: int) -> np.ndarray:
    """Return series of one length, (n, steps, d)."""
    places = [np.linspace(0, len(x) - 1, steps) for x in X]
    return np.stack(
        [np.stack([np.interp(p, np.arange(len(x)), c) for c in x.T], 1) for x, p in zip(X, places)]
    )


def random_kernels(X: np.ndarray, seed: int) -> np.ndarray:
    """Return the maximum and the share of positive values of random dilated convolutions of (n, t, d)."""
    rng, (_, steps, d), out = np.random.default_rng(seed), X.shape, []
    series_ = torch.as_tensor(X.transpose(0, 2, 1), dtype=torch.float32)
    for _ in range(KERNELS):
        size = int(rng.choice([7, 9, 11]))
        dilation = int(2 ** rng.uniform(0, np.log2(max(1.0, (steps - 1) / (size - 1)))))
        kernel = rng.normal(size=(1, d, size))
        kernel -= kernel.mean()
        weight, bias = torch.as_tensor(kernel, dtype=torch.float32), float(rng.uniform(-1, 1))
        padding = (size - 1) * dilation // 2 * int(rng.integers(2))
        padding = max(padding, ((size - 1) * dilation + 2 - steps) // 2)
        found = nn.functional.conv1d(series_, weight, padding=padding, dilation=dilation)[:, 0] + bias
        out += [found.amax(1), (found > 0).float().mean(1)]
    return torch.stack(out, 1).numpy()


def classes(name: str) -> dict[str, Any]:
    """Return the test accuracy of each method; and seconds for one fit of ours."""
    found_set = data.load(name)
    (X, y), (X_test, y_test) = (
        ([found_set.X[i] for i in rows], np.asarray(found_set.y)[rows]) for rows in found_set.extra["split"]
    )
    found: dict[str, Any] = {key: [] for key in ("ours", "ours, tcn", "plain GRU", "random kernels")}
    steps = max(24, int(np.median([len(x) for x in X])))
    even, even_test = resampled(X, steps), resampled(X_test, steps)
    mean, spread = even.mean((0, 1)), even.std((0, 1))
    even, even_test = (even - mean) / spread, (even_test - mean) / spread
    seconds = [0.0, 0.0]
    for seed in SEEDS:
        for i, (key, cell) in enumerate((("ours", "gru"), ("ours, tcn", "tcn"))):
            start = process_time()
            model = SequenceClassifier(cell, random_state=seed).fit(X, y)
            seconds[i] += (process_time() - start) / len(SEEDS)
            found[key].append(model.score(X_test, y_test))
        found["plain GRU"].append(np.mean(gru_classes(X, y, X_test, seed) == y_test))
        features, test_features = random_kernels(even, seed), random_kernels(even_test, seed)
        scale = features.std(0) + 1e-6
        ridge = RidgeClassifierCV(np.logspace(-3, 3, 7)).fit((features - features.mean(0)) / scale, y)
        found["random kernels"].append(ridge.score((test_features - features.mean(0)) / scale, y_test))
    flat, flat_test = even.reshape(len(even), -1), even_test.reshape(len(even_test), -1)
    found["nearest"] = KNeighborsClassifier(1).fit(flat, y).score(flat_test, y_test)
    found["commonest"] = float(np.mean(y_test == np.bincount(y).argmax()))
    return {**found, "seconds": seconds}


def run(out: Path) -> dict[str, Any]:
    """Measure all; assert that both of ours hold against the plain GRU within their spread."""
    found = {name: classes(name) for name in SETS}
    rows = []
    for name, c in found.items():
        shown = [f"{np.mean(c[key]):.3f} ± {np.std(c[key]):.3f}" for key in [*c][:4]]
        fits = " and ".join(f"{s:.1f}" for s in c["seconds"])
        rows.append((name, *shown, f"{c['nearest']:.3f}", f"{c['commonest']:.3f}", fits))
    headings = (
        "data",
        "`SequenceClassifier()`",
        '`SequenceClassifier("tcn")`',
        "plain GRU",
        "random kernels",
    )
    headings = (*headings, "nearest neighbour", "commonest", "seconds of our fits")
    page(out / "defaults_sequences.md", "Classes of series with default settings", TEXT, headings, rows)
    for name, c in found.items():
        for key in ("ours", "ours, tcn"):
            floor = float(np.mean(c["plain GRU"]) - np.std(c["plain GRU"]) - 0.01)
            at_least(float(np.mean(c[key])), floor, f"accuracy of {key} on {name}")
    return {name: {key: float(np.mean(v)) for key, v in row.items()} for name, row in found.items()}
