"""Truncated SVD and factor analysis against scikit-learn's."""

import numpy as np
from scipy import sparse
from sklearn import decomposition

from bench.harness import Pair, claim
from corollary.completion.truncated_svd import TruncatedSVD
from corollary.linear.factor_analysis import FactorAnalysis


@claim("truncated-svd-sparse", peer="scikit-learn", floor=2.5)
def sparse_svd():
    """Truncated SVD, sparse 50000 x 10000 float32, density 0.002, 20 components"""
    X = sparse.random(50000, 10000, 0.002, format="csr", random_state=0, dtype=np.float32)
    rows = np.repeat(np.arange(50000), np.diff(X.indptr))
    X.data = (X.data * (1 + 3 * (rows % 20 == X.indices % 20))).astype(np.float32)

    def captured(model):
        return float(np.sum((X @ model.components_.T).astype(np.float64) ** 2))

    def quality(ours, peer):
        assert captured(ours) >= captured(peer) * (1 - 1e-5)
        return {"captured": captured(ours), "peer": captured(peer)}

    ours = lambda: TruncatedSVD(20, random_state=0).fit(X)
    return Pair(ours, lambda: decomposition.TruncatedSVD(20, random_state=0).fit(X), quality)


@claim("factor-analysis", peer="scikit-learn", floor=1.0)
def factors():
    """Factor analysis, 10000 x 100, 10 factors"""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10000, 10)) @ rng.standard_normal((10, 100)) + rng.gamma(
        1, size=100
    ) * rng.standard_normal((10000, 100))

    def quality(ours, peer):
        assert ours.loglike_[-1] >= peer.loglike_[-1] - 1.0
        return {"log_likelihood": ours.loglike_[-1], "peer": peer.loglike_[-1]}

    return Pair(lambda: FactorAnalysis(10).fit(X), lambda: decomposition.FactorAnalysis(10).fit(X), quality)
