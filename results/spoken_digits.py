"""Spoken digits: recurrent nets, a linear recurrence and a temporal convolution under one budget."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split

from corollary import LogisticRegression, SequenceClassifier, Training, data
from results.tables import at_least, page

CELLS, SEEDS, EPOCHS, FRAMES = ("lstm", "gru", "lru", "tcn"), (0, 1, 2), 10, 12
WIDTH, LAYERS = 64, 2
TEXT = f"""3,000 spoken digits of six people (`spoken-digits`: 13 mel-frequency cepstral coefficients for each of 6 to 92
frames), a fifth of them held out, the same for all nets; the people are not told apart, so each is heard in both
parts. Every net is a `SequenceClassifier` of {LAYERS} layers of {WIDTH} units whose states are averaged over time, trained
for {EPOCHS} epochs by the same plan: Adam, learning rate 0.003 falling along a cosine, batches of 32, dropout 0.2, no
tuning. Mean and spread over {len(SEEDS)} seeds of weights and order. Below them, for comparison, a logistic regression on
{FRAMES} frames taken evenly from each recording."""
FLOOR = 0.95  # a linear model on a dozen frames reaches 0.96


def run(out: Path) -> dict[str, Any]:
    """Fit every net with every seed; assert what such nets reach."""
    digits = data.load("spoken-digits")
    train, test = train_test_split(np.arange(len(digits.X)), test_size=0.2, random_state=0, stratify=digits.y)
    (X, y), (X_test, y_test) = (([digits.X[i] for i in rows], digits.y[rows]) for rows in (train, test))
    plan = Training(epochs=EPOCHS, batch_size=32, learning_rate=3e-3, schedule="cosine")
    found, rows, losses, last = {}, [], {}, {}
    for cell in CELLS:
        scores, start = [], perf_counter()
        for seed in SEEDS:
            model = SequenceClassifier(
                cell,
                width=WIDTH,
                n_layers=LAYERS,
                pooling="mean",
                dropout=0.2,
                training=plan,
                random_state=seed,
            ).fit(X, y)
            scores.append(float(model.score(X_test, y_test)))
        seconds = (perf_counter() - start) / len(SEEDS)
        weights = sum(p.numel() for p in model.module_.parameters())
        found[cell], losses[cell], last[cell] = float(np.mean(scores)), model.history_, model
        rows.append(
            (cell, f"{weights:,}", f"{np.mean(scores):.4f} ± {np.std(scores):.4f}", round(seconds, 1))
        )
    start = perf_counter()
    linear = LogisticRegression(max_iter=2000).fit(_resampled(X), y)
    found["logistic"] = float(linear.score(_resampled(X_test), y_test))
    size = f"{linear.coef_.size + linear.intercept_.size:,}"
    rows.append(("logistic", size, f"{found['logistic']:.4f}", round(perf_counter() - start, 1)))
    best = max(CELLS, key=found.__getitem__)
    _plot(
        out / "spoken_digits.png",
        X_test[0],
        confusion_matrix(y_test, last[best].predict(X_test)),
        best,
        losses,
    )
    page(
        out / "spoken_digits.md",
        "Spoken digits",
        TEXT,
        ("net", "weights", "test accuracy", "seconds to fit"),
        rows,
    )
    for cell in CELLS:
        at_least(found[cell], FLOOR, f"accuracy of {cell}")
    return found


def _resampled(X: list[np.ndarray]) -> np.ndarray:
    """Return FRAMES frames of each recording, side by side."""
    places = [np.linspace(0, len(x) - 1, FRAMES).round().astype(int) for x in X]
    rows = np.stack([x[place].ravel() for x, place in zip(X, places)])
    return rows / rows.std(0)


def _plot(
    path: Path, recording: np.ndarray, confusion: np.ndarray, best: str, losses: dict[str, Any]
) -> None:
    """Draw one recording, the losses, and what the best net confuses."""
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    left.imshow(recording.T, aspect="auto", origin="lower", cmap="viridis")
    left.set(xlabel="frame", ylabel="coefficient", title="one recording")
    for name, history in losses.items():
        middle.plot([row["step"] for row in history], [row["loss"] for row in history], label=name)
    middle.set(xlabel="epoch", ylabel="training loss", yscale="log")
    middle.legend()
    right.imshow(confusion, cmap="Blues", norm="symlog")
    for (i, j), count in np.ndenumerate(confusion):
        if count:
            right.text(
                j, i, count, ha="center", va="center", fontsize=7, color="white" if i == j else "black"
            )
    right.set(
        xlabel="said", ylabel="was", title=f"{best} on the test part", xticks=range(10), yticks=range(10)
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)
