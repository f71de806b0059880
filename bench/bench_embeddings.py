"""Word vectors against gensim: texts whose words have topics."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bench.harness import Draw, Pair, claim

TOPICS = 50


class Corpus(NamedTuple):
    texts: list[list[str]]
    topic: np.ndarray  # of each word; -1 for words that stand in any sentence
    held: list[list[str]]


class Tables(NamedTuple):
    words: list[str]
    inputs: np.ndarray
    outputs: np.ndarray


def corpus(rng: np.random.Generator, V: int, tokens: int, LENGTH: int) -> Corpus:
    """Return sentences, 60 % of whose words are of one topic."""
    weight = 1 / np.arange(1, V + 1)
    topic = rng.integers(0, TOPICS, V)
    topic[:200] = -1  # words that stand in any sentence
    n = tokens // LENGTH + 2000
    words = rng.choice(V, size=(n, LENGTH), p=weight / weight.sum())
    of = rng.integers(0, TOPICS, n)
    for t in range(TOPICS):
        members = np.flatnonzero(topic == t)
        chosen = (rng.random((n, LENGTH)) < 0.6) & (of == t)[:, None]
        words[chosen] = rng.choice(members, size=chosen.sum(), p=weight[members] / weight[members].sum())
    texts = [[str(w) for w in row] for row in words.tolist()]
    return Corpus(texts[:-2000], topic, texts[-2000:])


def precision(tables: Tables, data: Corpus) -> float:
    """Return how many of the ten nearest words are of the word's topic, for words of middling frequency."""
    topic = data.topic[[int(w) for w in tables.words]]
    E = tables.inputs / np.linalg.norm(tables.inputs, axis=1, keepdims=True)
    asked = np.arange(300, min(3000, len(topic)))
    asked = asked[topic[asked] >= 0]
    cosines = E[asked] @ E[:5000].T
    cosines[np.arange(len(asked)), asked] = -np.inf
    nearest = np.argpartition(-cosines, 10, axis=1)[:, :10]
    return float((topic[nearest] == topic[asked][:, None]).mean())


def held_out_loss(tables: Tables, data: Corpus) -> float:
    """Return the loss of eq. 2 per pair of held-out sentences, five negatives each, the same for all."""
    rng, V = np.random.default_rng(1), len(data.topic)
    index = {word: i for i, word in enumerate(tables.words)}
    rows = [[index[w] for w in text if w in index] for text in data.held]
    pairs = np.array(
        [
            (row[i], row[j])
            for row in rows
            for i in range(len(row))
            for j in (i - 2, i + 1)
            if 0 <= j < len(row)
        ]
    )
    counts = np.bincount([int(w) for text in data.texts for w in text], minlength=V) ** 0.75
    noise = rng.choice(V, size=(len(pairs), 5), p=counts / counts.sum())
    number = np.array([index.get(str(w), 0) for w in range(V)])
    x = tables.inputs[pairs[:, 0]].astype(np.float64)
    true = (x * tables.outputs[pairs[:, 1]]).sum(1)
    false = np.einsum("nd,nkd->nk", x, tables.outputs[number[noise]].astype(np.float64))
    return float((np.logaddexp(0, -true) + np.logaddexp(0, false).sum(1)).mean())


@claim("skipgram", peer="gensim", aim=2)
def skipgram(draw: Draw) -> Pair:
    """Skip-gram with negative sampling, one pass, two threads"""
    from gensim.models import Word2Vec

    from corollary.embeddings import SkipGram

    words, tokens = draw.size("words", 5000, 40000), draw.size("tokens", 500_000, 3_000_000)
    data = corpus(draw.rng, words, tokens, draw.choice("length", (10, 20, 40)))
    texts, dimension, window = (
        data.texts,
        draw.choice("dimension", (50, 100, 200)),
        draw.choice("window", (3, 5, 8)),
    )

    def ours() -> Tables:
        model = SkipGram(
            dimension, window=window, epochs=1, min_count=1, learning_rate=0.03, deterministic=False, n_jobs=2
        )
        model.fit(texts)
        return Tables(model.words_, model.vectors_, model.context_vectors_)

    def peer() -> Tables:
        options = {
            "vector_size": dimension,
            "window": window,
            "negative": 5,
            "sg": 1,
            "min_count": 1,
            "sample": 1e-3,
        }
        model = Word2Vec(texts, workers=2, epochs=1, seed=1, **options)
        return Tables(model.wv.index_to_key, model.wv.vectors, model.syn1neg)

    def quality(mine: Any, theirs: Any) -> dict[str, float]:
        found = {
            "ours_precision": precision(mine, data),
            "peer_precision": precision(theirs, data),
            "ours_loss": held_out_loss(mine, data),
            "peer_loss": held_out_loss(theirs, data),
        }
        if found["ours_precision"] < found["peer_precision"] - 0.01:
            raise AssertionError(f"nearest neighbours are worse: {found}")
        if found["ours_loss"] > 1.01 * found["peer_loss"]:
            raise AssertionError(f"the held-out loss is worse: {found}")
        return found

    return Pair(ours, peer, quality, repeats=3)
