"""PCA against scikit-learn's, at no larger an error in the explained variances."""

import numpy as np
from sklearn.decomposition import PCA as Peer

from bench.harness import Draw, Pair, claim
from corollary.linear.pca import PCA


def pair(draw: Draw, n: int, d: int) -> Pair:
    """Return a fit of data with a decaying spectrum above noise, as scikit-learn's defaults do it."""
    k, rank = draw.size("components", 5, 40), 50
    scale = 10 * draw.real("decay", 0.8, 0.95) ** np.arange(rank)
    rng = draw.rng
    signal = (rng.standard_normal((n, rank)) * scale) @ rng.standard_normal((rank, d)) / np.sqrt(d) * 3
    X = draw.array(signal + rng.standard_normal((n, d)))
    Z = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    exact = np.linalg.eigvalsh(Z.T @ Z if n > d else Z @ Z.T)[::-1][:k]

    def error(model):
        return np.abs(model.singular_values_.astype(np.float64) ** 2 / exact - 1).max()

    def quality(ours, peer):
        assert error(ours) < max(2 * error(peer), 2e-6)
        return {"eigenvalue_error": error(ours), "peer_error": error(peer)}

    return Pair(lambda: PCA(k, random_state=0).fit(X), lambda: Peer(k, random_state=0).fit(X), quality)


@claim("pca-tall", peer="scikit-learn", aim=1.0)
def tall(draw):
    """PCA of tall tables

    Both sides spend most of their time in the same symmetric product of the data with themselves, at the processor's
    limit. Ours saves some of the eigenvectors, and looks for missing values, which is one more pass over the data: where a
    fit takes some ten milliseconds, that shows.
    """
    return pair(draw, draw.size("rows", 5000, 40000), draw.size("columns", 50, 500))


@claim("pca-wide", peer="scikit-learn", aim=1.5)
def wide(draw):
    """PCA of wide tables

    Ten products of the data with a few dozen columns, at about half of the processor's limit; fewer of them
    would miss the peer's accuracy.
    """
    return pair(draw, draw.size("rows", 600, 3000), draw.size("columns", 3000, 8000))
