"""Topic models against scikit-learn, gensim and tomotopy: 5000 documents of 8000 words, 50 topics."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from bench.harness import Pair, claim

K = 50
ALPHA, ETA = 0.1, 0.02
SWEEPS = 20  # of collapsed variational inference


@cache
def corpus() -> tuple[sparse.csr_matrix, Any]:
    """Return documents from known topics, and held-out ones in two halves."""
    from corollary.mixtures.topics import halve

    rng = np.random.default_rng(0)
    phi = rng.dirichlet(np.full(8000, 0.02), K)
    theta = rng.dirichlet(np.full(K, 0.1), 5500)
    rows = [sparse.csr_matrix(rng.multinomial(rng.poisson(100), t @ phi).astype(np.float64)) for t in theta]
    X = sparse.vstack(rows, format="csr")
    return X[:5000], halve(X[5000:], rng)


def held_out(topics: np.ndarray) -> float:
    from corollary.mixtures.topics import completion_perplexity

    return completion_perplexity(topics, corpus()[1], ALPHA)


def cvb0() -> np.ndarray:
    from corollary.mixtures import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        K, inference="cvb0", doc_topic_prior=ALPHA, topic_word_prior=ETA, max_iter=SWEEPS, random_state=0
    )
    return model.fit(corpus()[0]).components_


def better(ours: np.ndarray, peer: np.ndarray) -> dict[str, float]:
    mine, theirs = held_out(ours), held_out(peer)
    if mine > theirs:
        raise AssertionError(f"held-out perplexity {mine:.0f} is not below the peer's {theirs:.0f}")
    return {"ours_perplexity": mine, "peer_perplexity": theirs}


@claim("lda-batch", peer="scikit-learn", floor=4)
def batch() -> Pair:
    """LDA, variational batch, ten passes of the same updates."""
    from sklearn.decomposition import LatentDirichletAllocation as Peer

    from corollary.mixtures import LatentDirichletAllocation

    X, _ = corpus()

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        difference = abs(ours.bound_ / peer.bound_ - 1)
        if difference > 1e-3:
            raise AssertionError(f"the bounds differ by {difference:.2g}")
        return {"ours_bound": ours.bound_, "peer_bound": peer.bound_}

    return Pair(
        lambda: LatentDirichletAllocation(K, max_iter=10, random_state=0).fit(X),
        lambda: Peer(K, max_iter=10, random_state=0).fit(X),
        quality,
        repeats=2,
    )


@claim("lda-cvb0-scikit-learn", peer="scikit-learn", floor=10)
def against_scikit_learn() -> Pair:
    """LDA by CVB0 at a better held-out perplexity than scikit-learn's batch."""
    from sklearn.decomposition import LatentDirichletAllocation as Peer

    X, _ = corpus()
    return Pair(cvb0, lambda: Peer(K, max_iter=10, random_state=0).fit(X).components_, better, repeats=2)


@claim("lda-cvb0-gensim", peer="gensim", floor=10)
def against_gensim() -> Pair:
    """LDA by CVB0 at a better held-out perplexity than gensim's ten passes."""
    from gensim.models import LdaModel

    X, _ = corpus()
    documents = [[*zip(row.indices.tolist(), row.data.astype(int).tolist())] for row in X]
    words = {i: str(i) for i in range(X.shape[1])}

    def peer() -> np.ndarray:
        return LdaModel(documents, K, id2word=words, passes=10, random_state=0, dtype=np.float32).get_topics()

    return Pair(cvb0, peer, better, repeats=2)


@claim("lda-cvb0-tomotopy", peer="tomotopy", floor=1)
def against_tomotopy() -> Pair:
    """LDA by CVB0 at no worse held-out perplexity than tomotopy's 200 sweeps."""
    import tomotopy

    X, _ = corpus()
    documents = [[str(w) for w, c in zip(row.indices, row.data.astype(int)) for _ in range(c)] for row in X]

    def peer() -> np.ndarray:
        model = tomotopy.LDAModel(k=K, alpha=ALPHA, eta=ETA, seed=0)
        for document in documents:
            model.add_doc(document)
        model.train(200, workers=2)
        topics = np.full((K, X.shape[1]), 1e-9)
        topics[:, [int(w) for w in model.used_vocabs]] = [model.get_topic_word_dist(k) for k in range(K)]
        return topics

    return Pair(cvb0, peer, better, repeats=3)
