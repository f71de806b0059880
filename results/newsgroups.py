"""20 Newsgroups: topics by every topic model here, and by scikit-learn, gensim and tomotopy."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from corollary import data
from corollary.completion import NMF
from corollary.mixtures import PLSA, LatentDirichletAllocation
from corollary.mixtures.topics import coherence, completion_perplexity, halve
from results.tables import at_most, page, spread

K, DOCUMENTS, SEEDS = 20, 1500, (0, 1, 2)
ALPHA, ETA = 0.1, 0.02
BATCH = 512  # documents per online update, for scikit-learn and for us; gensim's own choice is 2000
TEXT = """{k} topics of {n} documents of the training part of 20 Newsgroups ({v} words: English stop words, words in fewer
than ten documents and in more than 30 % left out). The documents are shuffled: the corpus comes sorted by group, and an
online update, of {batch} documents here, must see a sample of all. *Perplexity*: a mixture is fitted to half of the words
of each of {held} test documents and predicts the other half; every system's topics are mixed with 1 % of the corpus's word
frequencies first, so that no word is impossible. *Coherence*: mean normalised pointwise mutual information of the top ten
words of a topic in the training documents. Mean ± standard deviation over
{seeds} seeds of the start and of the draws. *Word frequencies* is one topic for all. Seconds are those of one fit
on a busy machine."""


def counts() -> tuple[sparse.csr_matrix, Any, list[str]]:
    """Return training counts, test documents in two halves, and the words."""
    found = data.load("20newsgroups")
    train, test = found.extra["split"]
    reader = CountVectorizer(min_df=10, max_df=0.3, stop_words="english", max_features=8000)
    rng = np.random.default_rng(0)
    X = reader.fit_transform([found.X[i] for i in rng.permutation(train)[:DOCUMENTS]]).astype(np.float64)
    held = reader.transform([found.X[i] for i in rng.permutation(test)[:500]]).astype(np.float64)
    return X[np.diff(X.indptr) > 0], halve(held, rng), reader.get_feature_names_out().tolist()


def lda(X: sparse.csr_matrix, seed: int, inference: str, max_iter: int) -> np.ndarray:
    """Fit ours."""
    options = {"doc_topic_prior": ALPHA, "topic_word_prior": ETA, "batch_size": BATCH, "random_state": seed}
    return LatentDirichletAllocation(K, inference=inference, max_iter=max_iter, **options).fit(X).components_


def scikit_learn(X: sparse.csr_matrix, seed: int, method: str) -> np.ndarray:
    """Fit scikit-learn's variational inference."""
    from sklearn.decomposition import LatentDirichletAllocation as Peer

    options = {"doc_topic_prior": ALPHA, "topic_word_prior": ETA, "batch_size": BATCH, "random_state": seed}
    return Peer(K, max_iter=10, learning_method=method, **options).fit(X).components_


def gensim(X: sparse.csr_matrix, seed: int) -> np.ndarray:
    """Fit gensim's online variational inference, ten passes."""
    from gensim.models import LdaModel

    texts = [[*zip(row.indices.tolist(), row.data.astype(int).tolist())] for row in X]
    words = {i: str(i) for i in range(X.shape[1])}
    options = {"alpha": [ALPHA] * K, "eta": ETA, "passes": 10, "random_state": seed}
    return LdaModel(texts, K, id2word=words, **options).get_topics()


def tomotopy(X: sparse.csr_matrix, seed: int) -> np.ndarray:
    """Fit tomotopy's Gibbs sampling, 200 sweeps."""
    import tomotopy as tp

    model = tp.LDAModel(k=K, alpha=ALPHA, eta=ETA, seed=seed)
    for row in X:
        model.add_doc([str(w) for w, c in zip(row.indices, row.data.astype(int)) for _ in range(c)])
    model.train(200, workers=1)
    topics = np.zeros((K, X.shape[1]))
    topics[:, [int(w) for w in model.used_vocabs]] = [model.get_topic_word_dist(k) for k in range(K)]
    return topics


def nmf(X: sparse.csr_matrix, seed: int) -> np.ndarray:
    """Fit ours by the Kullback-Leibler divergence."""
    model = NMF(K, beta_loss="kullback-leibler", solver="mu", init="nndsvda", max_iter=60, random_state=seed)
    return model.fit(X).components_


SYSTEMS: dict[str, Callable[..., np.ndarray]] = {
    "LDA, CVB0, 80 sweeps": partial(lda, inference="cvb0", max_iter=80),
    "LDA, Gibbs, 150 sweeps": partial(lda, inference="gibbs", max_iter=150),
    "LDA, variational batch, 10 passes": partial(lda, inference="batch", max_iter=10),
    "LDA, variational online, 10 passes": partial(lda, inference="online", max_iter=10),
    "PLSA": lambda X, seed: PLSA(K, max_iter=60, random_state=seed).fit(X).components_,
    "NMF, KL": nmf,
    "tomotopy LDA, 200 sweeps": tomotopy,
    "scikit-learn LDA, batch, 10 passes": partial(scikit_learn, method="batch"),
    "scikit-learn LDA, online, 10 passes": partial(scikit_learn, method="online"),
    "gensim LDA, 10 passes": gensim,
    "word frequencies": lambda X, seed: np.asarray(X.sum(axis=0)).reshape(1, -1),
}


def run(out: Path) -> dict[str, Any]:
    """Fit them all; ours must predict held-out words better than all peers."""
    X, held, words = counts()
    frequency = np.asarray(X.sum(axis=0)).ravel() / X.sum()
    rows, found = [], {}
    for name, fit in SYSTEMS.items():
        start, scores = time.perf_counter(), []
        for seed in SEEDS if name != "word frequencies" else SEEDS[:1]:
            topics = fit(X, seed)
            topics = 0.99 * topics / topics.sum(axis=1, keepdims=True) + 0.01 * frequency
            scores.append((completion_perplexity(topics, held, ALPHA), float(coherence(topics, X).mean())))
        seconds = (time.perf_counter() - start) / len(scores)
        mean = np.mean(scores, axis=0)
        cells = (
            [f"{mean[0]:.0f}", f"{mean[1]:.3f}"]
            if len(scores) == 1
            else [spread(values, digits) for values, digits in zip(zip(*scores), (0, 3))]
        )
        rows.append((float(mean[0]), (name, *cells, round(seconds, 1))))
        found[name] = (float(mean[0]), topics)
    rows.sort()
    best = found["LDA, CVB0, 80 sweeps"]
    draw(best[1], words, coherence(best[1], X), out / "newsgroups.png")
    text = TEXT.format(
        k=K, n=X.shape[0], v=X.shape[1], held=held.rest.shape[0], batch=BATCH, seeds=len(SEEDS)
    )
    page(
        out / "newsgroups.md",
        "Topics of 20 Newsgroups",
        text,
        ("system", "perplexity", "coherence", "seconds"),
        [row for _, row in rows],
    )
    for peer in ("tomotopy LDA, 200 sweeps", "scikit-learn LDA, batch, 10 passes", "gensim LDA, 10 passes"):
        at_most(best[0], found[peer][0], f"perplexity of CVB0 against {peer}")
    for method in ("batch", "online"):  # the same updates from the same start: only rounding differs
        ours = found[f"LDA, variational {method}, 10 passes"][0]
        theirs = found[f"scikit-learn LDA, {method}, 10 passes"][0]
        at_most(ours, 1.01 * theirs, f"perplexity of our {method} inference against scikit-learn's")
    return {name: round(value[0]) for name, value in found.items()}


def draw(topics: np.ndarray, words: list[str], scores: np.ndarray, path: Path) -> None:
    """Draw the top words of the twelve most coherent topics."""
    figure, axes = plt.subplots(3, 4, figsize=(12, 8), layout="constrained")
    for axis, k in zip(axes.ravel(), np.argsort(-scores)):
        top = np.argsort(-topics[k])[:8][::-1]
        axis.barh([words[i] for i in top], topics[k, top], color="tab:blue")
        axis.set_title(f"topic {k}, coherence {scores[k]:.2f}", fontsize=9)
        axis.tick_params(labelsize=8)
    figure.suptitle("20 Newsgroups: topics by collapsed variational inference")
    figure.savefig(path, dpi=110)
    plt.close(figure)
