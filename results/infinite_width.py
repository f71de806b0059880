"""Digits by infinitely wide networks: NNGP and tangent kernel against a perceptron that is trained, on MNIST-5k."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split
from sklearn.neighbors import KNeighborsClassifier

from corollary import MLPClassifier, NNGPClassifier, NTKClassifier, Training, data
from corollary.metrics import calibration_error
from results.tables import at_least, page

SPLITS, TRAIN, TEST = 2, 4000, 1000
FEW = 1500  # of the training digits teach the candidates among which each model chooses; the others judge
PLAN = Training(epochs=30, early_stopping=True, patience=5)
CHOICES: dict[str, list[tuple[str, Any]]] = {
    "most frequent class": [("", DummyClassifier())],
    "nearest neighbours": [(f"{k} neighbours", KNeighborsClassifier(k)) for k in (1, 3)],
    "trained perceptron": [
        (f"{len(sizes)} × 512 units", MLPClassifier(sizes, training=PLAN, random_state=0))
        for sizes in ((512,), (512, 512))
    ],
    "NNGP": [(f"{n} layers", NNGPClassifier(n_layers=n)) for n in (1, 3)],
    "NTK": [(f"{n} layers", NTKClassifier(n_layers=n)) for n in (1, 3)],
}
TEXT = """The 5,000 digits of MNIST-5k, of which {train:,} are learned and {test:,} tested, over {splits} random splits (mean and
standard deviation). NNGP is Bayesian inference over all weights of an infinitely wide network of ReLU units, NTK gradient
descent on them to the end (both with `alpha` = 0.01 and the default spreads of weights); the perceptron has 512 units a
layer and stops early on a tenth of the training digits. Each chose its depth, or its neighbours, by learning {few:,} of the
training digits and predicting the others. NLL is the mean negative log-likelihood of the true class in nats, ECE the
calibration error over ten bins. Images are centred and scaled by one mean and one deviation. Best
accuracy here: {best}. The largest difference between NNGP, NTK and the perceptron is {gap:.3f}, the standard deviation of one
test accuracy by the draw of {test:,} digits alone about {noise:.3f}."""


def run(out: Path) -> dict[str, float]:
    """Fit all on every split, measure on the rest, and write the page."""
    parts = [part(split) for split in range(SPLITS)]
    found = {name: [each[name][1] for each in parts] for name in CHOICES}
    chosen = {name: sorted({each[name][0] for each in parts}) for name in CHOICES}
    mean = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    rivals = [float(mean[name][0]) for name in ("trained perceptron", "NNGP", "NTK")]
    text = TEXT.format(
        train=TRAIN,
        few=FEW,
        test=TEST,
        splits=SPLITS,
        best=max(mean, key=lambda name: mean[name][0]),
        gap=max(rivals) - min(rivals),
        noise=float(np.sqrt(rivals[0] * (1 - rivals[0]) / TEST)),
    )
    page(
        out / "infinite_width.md",
        "Digits by infinitely wide networks",
        text,
        ("model", "chosen", "accuracy", "NLL", "ECE"),
        [(name, ", ".join(chosen[name]), *_shown(rows)) for name, rows in found.items()],
    )
    for name in ("trained perceptron", "NNGP", "NTK"):
        at_least(float(mean[name][0]), 0.93, f"the accuracy of {name}")
    at_least(min(rivals[1:]) - rivals[0], -0.02, "kernels less the trained perceptron")
    return {name: round(float(values[0]), 4) for name, values in mean.items()}


def part(split: int) -> dict[str, tuple[str, tuple[float, ...]]]:
    """Return of one split what each model chose, and its accuracy, NLL and ECE."""
    digits = data.load("mnist-5k")
    X = np.asarray(digits.X, np.float64).reshape(len(digits.X), -1)
    y = np.asarray(digits.y)
    cut = StratifiedShuffleSplit(1, train_size=TRAIN, test_size=TEST, random_state=split)
    rows, test = next(cut.split(X, y))
    X = (X - X[rows].mean()) / X[rows].std()
    found = {}
    for name, choices in CHOICES.items():
        label, model = _choice(choices, X[rows], y[rows])
        found[name] = label, _measured(model.fit(X[rows], y[rows]), X[test], y[test])
    return found


def _choice(choices: list[tuple[str, Any]], X: np.ndarray, y: np.ndarray) -> tuple[str, Any]:
    """Return the choice that learns most from few of the rows, by the others."""
    if len(choices) == 1:
        return choices[0]
    few, held = train_test_split(np.arange(len(y)), train_size=FEW, stratify=y, random_state=0)
    scores = [model.fit(X[few], y[few]).score(X[held], y[held]) for _, model in choices]
    return choices[int(np.argmax(scores))]


def _measured(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy, NLL and ECE."""
    chances = np.asarray(model.predict_proba(X), np.float64)
    codes = np.searchsorted(model.classes_, y)
    right = chances[np.arange(len(y)), codes].clip(1e-12)
    return (
        float((chances.argmax(1) == codes).mean()),
        float(-np.log(right).mean()),
        calibration_error(chances, codes),
    )


def _shown(rows: list[tuple[float, ...]]) -> list[str]:
    values = np.array(rows)
    spread = [f"{m:.4f} ± {s:.4f}" for m, s in zip(values[:, :3].mean(0), values[:, :3].std(0, ddof=1))]
    return spread
