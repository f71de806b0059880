"""20 Newsgroups: which group a post is from, by convolutions over words and by counted words."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline

from corollary import TextCNN, Training, data
from results.tables import at_least, page, spread

TEXT = """Accuracy on the given test part of 20 Newsgroups ({test} posts, later than the {train} to train on; lower-cased letters
only, subject lines and quotations included, 20 groups of about equal size). `TextCNN` reads the first {length} words, of the
{words:,} most frequent that occur at least twice: {epochs} epochs of Adam at a rate that falls along a cosine, in batches of 64.
Its setting is the best of {settings} on a fifth of the training part, drawn with the share of every group kept, that it
was not trained on ({found}); it is then fitted to the whole training part with {seeds}
seeds (mean ± standard deviation), and the test part is used once for each. The baseline, which draws nothing, is scikit-learn's
logistic regression (C = 10) on its tf-idf of all words. Seconds: processor time of one fit."""
BASELINE = "tf-idf and logistic regression"
KEPT = "newsgroups_text.json"  # what the search found, so that the seeds can be run without it
EPOCHS, LENGTH, WORDS, SEEDS = 6, 400, 30_000, 3
SETTINGS = [
    {"kernel_sizes": (1, 2), "n_filters": 128, "training__learning_rate": 8e-3},
    {"kernel_sizes": (1, 2), "n_filters": 128, "training__learning_rate": 3e-3},
    {"kernel_sizes": (2, 3, 4), "n_filters": 64, "training__learning_rate": 3e-3},
]


def text_cnn(seed: int = 0) -> TextCNN:
    """Return the net without the setting that is searched for."""
    plan = Training(EPOCHS, batch_size=64, schedule="cosine")
    sizes = {"embedding_dimension": 64, "vocabulary_size": WORDS, "min_count": 2, "max_length": LENGTH}
    return TextCNN(**sizes, dropout=0.3, training=plan, random_state=seed)


def validated(X: list[str], y: np.ndarray, path: Path) -> list[float]:
    """Return the accuracy of every setting on held-out posts of the training part; measured once, then kept in a file."""
    if not path.exists():
        grid = [{name: [choice] for name, choice in setting.items()} for setting in SETTINGS]
        held = StratifiedShuffleSplit(1, test_size=0.2, random_state=0)
        search = GridSearchCV(text_cnn(), grid, cv=held, refit=False).fit(X, y)
        path.write_text(json.dumps(search.cv_results_["mean_test_score"].tolist()) + "\n")
    return list(json.loads(path.read_text()))


def described(scores: list[float]) -> str:
    """Return the validated accuracy of every setting, as the page says it."""
    return "; ".join(
        f"{setting['n_filters']} filters each of {', '.join(map(str, setting['kernel_sizes']))} words at "
        f"{setting['training__learning_rate']:g}: {score:.3f}"
        for setting, score in zip(SETTINGS, scores)
    )


def run(out: Path) -> dict[str, Any]:
    """Choose and fit, assert the floors, draw what is mistaken for what."""
    torch.set_num_threads(1)
    found = data.load("20newsgroups")
    (X, y), (X_test, y_test) = (([found.X[i] for i in part], found.y[part]) for part in found.extra["split"])
    tried = validated(X, y, out / KEPT)
    start = time.process_time()
    nets = [text_cnn(seed).set_params(**SETTINGS[int(np.argmax(tried))]).fit(X, y) for seed in range(SEEDS)]
    seconds = {"TextCNN": (time.process_time() - start) / SEEDS}
    start = time.process_time()
    baseline = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, min_df=2), LogisticRegression(C=10, max_iter=300)
    ).fit(X, y)
    seconds[BASELINE] = time.process_time() - start
    accuracies = [float(net.score(X_test, y_test)) for net in nets]
    scores = {"TextCNN": float(np.mean(accuracies)), BASELINE: float(baseline.score(X_test, y_test))}
    draw(confusion_matrix(y_test, nets[0].predict(X_test)), found.target_names, out)
    text = TEXT.format(
        train=len(X), test=len(X_test), length=LENGTH, words=WORDS, epochs=EPOCHS, settings=len(SETTINGS),
        seeds=SEEDS, found=described(tried),
    )  # fmt: skip
    told = {"TextCNN": spread(accuracies, 4), BASELINE: f"{scores[BASELINE]:.4f}"}
    rows = [(name, told[name], round(seconds[name])) for name in scores]
    headings = ("model", "accuracy", "seconds")
    page(out / "newsgroups_text.md", "20 Newsgroups by their words", text, headings, rows)
    at_least(scores["TextCNN"], 0.75, "the accuracy of TextCNN")
    at_least(scores[BASELINE], 0.82, "the accuracy of the baseline")
    return {name: round(score, 4) for name, score in scores.items()}


def draw(counts: np.ndarray, names: list[str], out: Path) -> None:
    """Draw the confusion matrix, the diagonal left out."""
    wrong = counts - np.diag(np.diag(counts))
    figure, axis = plt.subplots(figsize=(8, 7), layout="constrained")
    image = axis.imshow(wrong, cmap="Blues")
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set(xlabel="predicted", ylabel="true", title="Mistakes of TextCNN, first seed")
    figure.colorbar(image, shrink=0.8, label="posts")
    figure.savefig(out / "newsgroups_text.png", dpi=110)
    plt.close(figure)
