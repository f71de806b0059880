"""PCA against scikit-learn's, at no larger an error in the explained variances."""

import numpy as np
from sklearn.decomposition import PCA as Peer

from bench.harness import Pair, claim
from corollary.linear.pca import PCA


def data(n, d, rank=50):
    rng = np.random.default_rng(0)
    scale = 10 * 0.9 ** np.arange(rank)
    signal = (rng.standard_normal((n, rank)) * scale) @ rng.standard_normal((rank, d)) / np.sqrt(d) * 3
    return (signal + rng.standard_normal((n, d))).astype(np.float32)


def pair(n, d, k=20):
    X = data(n, d)
    exact = np.linalg.svd(X.astype(np.float64) - X.mean(axis=0, dtype=np.float64), compute_uv=False)[:k]

    def error(model):
        return np.abs((model.singular_values_.astype(np.float64) / exact) ** 2 - 1).max()

    def quality(ours, peer):
        assert error(ours) < max(2 * error(peer), 2e-6)
        return {"eigenvalue_error": error(ours), "peer_error": error(peer)}

    return Pair(lambda: PCA(k, random_state=0).fit(X), lambda: Peer(k, random_state=0).fit(X), quality)


@claim("pca-tall", peer="scikit-learn", floor=1.3)
def tall():
    """PCA, 20000 x 500 float32, 20 components

    Both sides spend most of their time in the same symmetric product of the data with themselves, at the processor's
    limit; ours saves part of what follows, the eigenvectors.
    """
    return pair(20000, 500)


@claim("pca-wide", peer="scikit-learn", floor=4.0)
def wide():
    """PCA, 2000 x 5000 float32, 20 components

    Ten products of the data with 28 columns. They run at about half of the processor's limit; fewer of them
    would miss the peer's accuracy.
    """
    return pair(2000, 5000)
