"""Texts with default settings: networks beside tf-idf and logistic regression, on three sets and several seeds."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from corollary import BERTClassifier, TextCNN, data
from results.tables import at_least, page

SEEDS, TEXTS, SLOW = range(5), 2000, 2
SETS = ("20newsgroups", "imdb", "rotten-tomatoes")
GROUPS = (
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
)
OURS = ("TextCNN", "BERTClassifier")
PLAIN, BEST = "tf-idf + logistic regression", "the same, sublinear with pairs of words, C = 10"
TEXT = f"""Accuracy on {TEXTS} held-out texts after {TEXTS} to learn from, both drawn anew for each of {len(SEEDS)} seeds, which
also seed the networks: mean ± standard deviation over the seeds. Nothing is set. The usual tool is scikit-learn's
`TfidfVectorizer` and `LogisticRegression` as they come, and once more with the settings that are usual for texts (sublinear
counts, pairs of words, C = 10), which is what the boards of `compare` have. The networks score phrases linearly beside what
they learn; without that part (`ngrams=0`) TextCNN is the network that most people would write. Learned from scratch, nothing
pre-trained. 20 Newsgroups are five groups about computers, test posts from the published test part; IMDB are whole reviews of
films, Rotten Tomatoes single sentences. `BERTClassifier` and TextCNN without its linear part, which take longest, have the first
{SLOW} seeds only. The last column but one is the mean difference from the usual tool on the same texts,
± its standard deviation. Seconds are those of a fit on one busy core."""


def parts(name: str, seed: int) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    """Return texts and labels to learn from, and others to measure with."""
    found = data.load(name)
    X, y, rng = np.array(found.X, dtype=object), np.asarray(found.y), np.random.default_rng(seed)
    if name == "20newsgroups":
        wanted = np.isin(y, [list(found.target_names).index(group) for group in GROUPS])
        train, test = (rows[wanted[rows]] for rows in found.extra["split"])
        train, test = rng.permutation(train)[:TEXTS], rng.permutation(test)[:TEXTS]
    else:
        train, test = np.split(rng.permutation(len(y))[: 2 * TEXTS], 2)
    return X[train].tolist(), y[train], X[test].tolist(), y[test]


def models(seed: int) -> dict[str, Any]:
    """Return everyone, ours first."""
    return {
        "TextCNN": TextCNN(random_state=seed),
        "BERTClassifier": BERTClassifier(random_state=seed),
        "TextCNN(ngrams=0)": TextCNN(ngrams=0, random_state=seed),
        PLAIN: make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)),
        BEST: make_pipeline(
            TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2),
            LogisticRegression(C=10, max_iter=1000),
        ),
        "most frequent class": DummyClassifier(),
    }


def measured(name: str, seed: int, wanted: tuple[str, ...] | None = None) -> dict[str, tuple[float, float]]:
    """Return accuracy and seconds of everyone that has this seed, or of some."""
    X, y, X_test, y_test = parts(name, seed)
    found = {}
    for label, model in models(seed).items():
        slow = label == "BERTClassifier" or "ngrams=0" in label
        if (slow and seed >= SLOW) or (wanted is not None and label not in wanted):
            continue
        start = perf_counter()
        model.fit(X, y)
        found[label] = float(model.score(X_test, y_test)), perf_counter() - start
    return found


def run(out: Path) -> dict[str, Any]:
    """Measure, write the page, and assert that ours are not below the usual tool."""
    torch.set_num_threads(1)
    rows, gains = [], {}
    for name in SETS:
        found = [measured(name, seed) for seed in SEEDS]
        for label in found[0]:
            some = [each for each in found if label in each]
            scores, seconds = np.array([each[label] for each in some]).T
            gain = scores - [each[PLAIN][0] for each in some]
            shown = "" if label == PLAIN else f"{gain.mean():+.3f} ± {gain.std():.3f}"
            spread = f"{scores.mean():.3f} ± {scores.std():.3f}"
            title = f"`{label}`" if label in OURS else label
            rows.append((name, title, len(some), spread, shown, f"{seconds.mean():.1f}"))
            gains[name, label] = float(gain.mean())
    headings = ("texts", "model", "seeds", "accuracy", "against the usual tool", "seconds")
    page(out / "defaults_text.md", "Texts with default settings", TEXT, headings, rows)
    for (name, label), gain in gains.items():
        if label in OURS:
            at_least(gain, 0.0, f"the gain of {label} over tf-idf and logistic regression on {name}")
    return {f"{label} on {name}": round(gain, 4) for (name, label), gain in gains.items()}
