"""20 Newsgroups: which group a post is from, by convolutions over words and by counted words."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import make_pipeline

from corollary import TextCNN, Training, data
from results.tables import at_least, page

TEXT = """Accuracy on the given test part of 20 Newsgroups ({test} posts, later than the {train} to train on; lower-cased letters
only, subject lines and quotations included, 20 groups of about equal size). `TextCNN` reads the first {length} words, of the
{words:,} most frequent that occur at least twice, by {filters} filters each of one and two words: {epochs} epochs of Adam at
{rate} falling along a cosine, seed 0; the best of three settings tried. The baseline is scikit-learn's
logistic regression (C = 10) on its tf-idf of all words. Seconds are those of the fit, on one core that others used too."""
EPOCHS, RATE, LENGTH, WORDS, FILTERS = 8, 8e-3, 400, 30_000, 128


def text_cnn() -> TextCNN:
    """Return the network to fit."""
    plan = Training(EPOCHS, learning_rate=RATE, batch_size=64, schedule="cosine")
    return TextCNN(
        (1, 2), n_filters=FILTERS, embedding_size=64, dropout=0.3, max_words=WORDS, min_count=2, max_length=LENGTH,
        training=plan, random_state=0,
    )  # fmt: skip


def run(out: Path) -> dict[str, Any]:
    """Fit both, assert the floors, draw what is mistaken for what."""
    torch.set_num_threads(1)
    found = data.load("20newsgroups")
    (X, y), (X_test, y_test) = (([found.X[i] for i in part], found.y[part]) for part in found.extra["split"])
    models: dict[str, Any] = {"TextCNN": text_cnn()}
    baseline = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=2), LogisticRegression(C=10, max_iter=300)
    )
    models["tf-idf and logistic regression"] = baseline
    rows, scores = [], {}
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        scores[name] = float(model.score(X_test, y_test))
        rows.append((name, scores[name], round(seconds)))
    draw(confusion_matrix(y_test, models["TextCNN"].predict(X_test)), found.target_names, out)
    text = TEXT.format(
        train=len(X), test=len(X_test), length=LENGTH, words=WORDS, filters=FILTERS, epochs=EPOCHS, rate=RATE,
    )  # fmt: skip
    page(
        out / "newsgroups_text.md",
        "20 Newsgroups by their words",
        text,
        ("model", "accuracy", "seconds"),
        rows,
    )
    at_least(scores["TextCNN"], 0.75, "the accuracy of TextCNN")
    at_least(scores["tf-idf and logistic regression"], 0.82, "the accuracy of the baseline")
    return {name: round(score, 4) for name, score in scores.items()}


def draw(counts: np.ndarray, names: list[str], out: Path) -> None:
    """Draw the confusion matrix, the diagonal left out."""
    wrong = counts - np.diag(np.diag(counts))
    figure, axis = plt.subplots(figsize=(8, 7), layout="constrained")
    image = axis.imshow(wrong, cmap="Blues")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set(xlabel="predicted", ylabel="true", title="Mistakes of TextCNN")
    figure.colorbar(image, shrink=0.8, label="posts")
    figure.savefig(out / "newsgroups_text.png", dpi=110)
    plt.close(figure)
