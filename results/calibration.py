"""Are the probabilities true? A network's posterior by HMC and by SGLD against one that is trained, on a real table."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from corollary import BayesianClassifier, MLPClassifier, Training
from corollary.bayes import HMC, SGLD, r_hat
from corollary.errors import CorollaryWarning
from corollary.metrics import calibration_error
from results.tables import at_least, at_most, page

ROWS = 150  # about so many are learned from
THIN = 40  # steps of SGLD for each draw that is kept


def run(out: Path, folds: int = 3, draws: int = 500) -> dict[str, float]:
    """Fit all three on small parts of a table, measure on the rest, and write the page."""
    X, y = load_breast_cancer(return_X_y=True)
    models: dict[str, Any] = {
        "posterior by HMC": BayesianClassifier(
            (8,), sampler=HMC(4, draws, draws, max_steps=15), random_state=0
        ),
        "posterior by SGLD": BayesianClassifier(
            (8,),
            sampler=SGLD(4, draws, THIN * draws, thin=THIN, step_size=1e-3, batch_size=50),
            random_state=0,
        ),
        "trained": make_pipeline(
            StandardScaler(),
            MLPClassifier((8,), activation="tanh", training=Training(epochs=300), random_state=0),
        ),
        "none: shares of the classes": DummyClassifier(),
    }
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in models}
    for rest, some in StratifiedKFold(len(y) // ROWS, shuffle=True, random_state=0).split(X, y):
        if len(found["trained"]) == folds:
            break
        for name, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CorollaryWarning)
                chances = model.fit(X[some], y[some]).predict_proba(X[rest])
            found[name].append((*_measured(chances, y[rest]), _mixing(model)))
    mean = {name: np.mean(rows, axis=0) for name, rows in found.items()}
    networks = [name for name in mean if not name.startswith("none")]
    best = [min(networks, key=lambda name: mean[name][i]) for i in (1, 2)]
    text = (
        f"A perceptron of one hidden layer of 8 units learns the {X.shape[1]} columns of the breast cancer table from "
        f"{len(y) // (len(y) // ROWS)} rows; measured on the others, mean ± standard deviation over {folds} such "
        f"parts; 4 chains of {draws} draws, for SGLD every {THIN}th after as many again. "
        "NLL is the mean negative log-likelihood in nats, ECE the expected calibration error over ten bins of confidence. R-hat "
        "is that of the log-density: above 1.01 the chains have not mixed. Priors, step sizes and epochs are first guesses, not "
        f"tuned. The lowest NLL here is that of: {best[0]}; the lowest ECE: {best[1]}."
    )
    rows = [(name, *_columns(np.array(values))) for name, values in found.items()]
    headings = ("weights", "accuracy", "NLL", "ECE", "R-hat")
    page(out / "calibration.md", "Calibration of network posteriors", text, headings, rows)
    for name in networks:
        values = mean[name]
        at_least(values[0], 0.93, f"the accuracy of weights: {name}")
        at_most(values[1], 0.2, f"the NLL of weights: {name}")
    return {f"{name} NLL": float(values[1]) for name, values in mean.items()}


def _measured(chances: np.ndarray, truth: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy, NLL and ECE."""
    right = chances[np.arange(len(truth)), truth].clip(1e-12)
    accuracy = float((chances.argmax(1) == truth).mean())
    return accuracy, float(-np.log(right).mean()), calibration_error(chances, truth)


def _mixing(model: Any) -> float:
    """Return R-hat of the log-density, where there are chains."""
    return (
        float(r_hat(model.statistics_["log_density"])[0]) if hasattr(model, "statistics_") else float("nan")
    )


def _columns(found: np.ndarray) -> list[str]:
    """Return mean and deviation of accuracy, NLL and ECE over the parts, and the mean R-hat where there is one."""
    cells = [f"{column.mean():.3f} ± {column.std(ddof=1):.3f}" for column in found.T[:3]]
    mixing = found[:, 3].mean()
    return [*cells, "" if np.isnan(mixing) else f"{mixing:.3f}"]
