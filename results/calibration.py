"""Are the probabilities true? A network's posterior by HMC and by SGLD against one that is trained, on a real table."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from corollary import BayesianClassifier, MLPClassifier, Training
from corollary.bayes import HMC, SGLD
from corollary.errors import CorollaryWarning
from corollary.metrics import calibration_error
from results.tables import at_least, at_most, page

ROWS = 150  # learned from: where data are few, being sure is a mistake


def run(out: Path, folds: int = 3, draws: int = 150) -> dict[str, float]:
    """Fit all three on small parts of a table, measure on the rest, and write the page."""
    X, y = load_breast_cancer(return_X_y=True)
    models: dict[str, Any] = {
        "posterior by HMC": BayesianClassifier(
            (8,), sampler=HMC(4, draws, draws, max_steps=15), random_state=0
        ),
        "posterior by SGLD": BayesianClassifier(
            (8,),
            sampler=SGLD(4, draws, 10 * draws, thin=10, step_size=1e-3, batch_size=50),
            random_state=0,
        ),
        "trained": make_pipeline(
            StandardScaler(),
            MLPClassifier((8,), activation="tanh", training=Training(epochs=300), random_state=0),
        ),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    for rest, some in StratifiedKFold(len(y) // ROWS, shuffle=True, random_state=0).split(X, y):
        if len(found["trained"]) == folds:
            break
        for name, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CorollaryWarning)
                chances = model.fit(X[some], y[some]).predict_proba(X[rest])
            right = chances[np.arange(len(rest)), y[rest]].clip(1e-12)
            accuracy = float((chances.argmax(1) == y[rest]).mean())
            found[name].append((accuracy, float(-np.log(right).mean()), calibration_error(chances, y[rest])))
    mean = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    text = (
        f"A perceptron of one hidden layer of 8 units learns the {X.shape[1]} columns of the breast cancer table from "
        f"{len(y) // (len(y) // ROWS)} rows; measured on the other rows, means over {folds} such parts. NLL is the mean "
        "negative log-likelihood in nats, ECE the expected calibration error over ten bins of confidence."
    )
    rows = [(name, *(float(v) for v in values)) for name, values in mean.items()]
    page(
        out / "calibration.md",
        "Calibration of network posteriors",
        text,
        ("weights", "accuracy", "NLL", "ECE"),
        rows,
    )
    for name in ("posterior by HMC", "posterior by SGLD"):
        at_least(mean[name][0], 0.93, f"the accuracy of the {name}")
        at_most(mean[name][1], mean["trained"][1], f"the NLL of the {name}")
    return {f"{name} NLL": float(values[1]) for name, values in mean.items()}
