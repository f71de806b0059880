"""Truncated SVD and factor analysis against scikit-learn's."""

import numpy as np
from scipy import sparse
from sklearn import decomposition

from bench.harness import Pair, claim
from corollary.completion.truncated_svd import TruncatedSVD
from corollary.linear.factor_analysis import FactorAnalysis


@claim("truncated-svd-sparse", peer="scikit-learn", aim=2.0)
def sparse_svd(draw):
    """Truncated SVD of sparse matrices"""
    n, m = draw.size("rows", 5000, 80000), draw.size("columns", 1000, 20000)
    k, kind = draw.size("components", 5, 50), draw.choice("type", ("float32", "float64"))
    X = sparse.random(n, m, draw.real("density", 0.0005, 0.005), "csr", kind, draw.rng)
    rows = np.repeat(np.arange(n), np.diff(X.indptr))
    X.data = (X.data * (1 + 3 * (rows % 20 == X.indices % 20))).astype(kind)

    def captured(model):
        return float(np.sum((X @ model.components_.T).astype(np.float64) ** 2))

    def quality(ours, peer):
        assert captured(ours) >= captured(peer) * (1 - 1e-5)
        return {"captured": captured(ours), "peer": captured(peer)}

    def fit(kind):
        return kind(k, random_state=0).fit(X)

    return Pair(lambda: fit(TruncatedSVD), lambda: fit(decomposition.TruncatedSVD), quality)


@claim("factor-analysis", peer="scikit-learn", aim=3.0)
def factors(draw):
    """Factor analysis"""
    rng, n, d = draw.rng, draw.size("rows", 1000, 20000), draw.size("columns", 20, 200)
    k = draw.size("factors", 2, 10)
    noise = rng.gamma(1, size=d) * rng.standard_normal((n, d))
    X = draw.array(rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) + noise)

    def quality(ours, peer):
        assert ours.loglike_[-1] >= peer.loglike_[-1] - 1e-4 * abs(peer.loglike_[-1])
        return {"log_likelihood": ours.loglike_[-1], "peer": peer.loglike_[-1]}

    return Pair(lambda: FactorAnalysis(k).fit(X), lambda: decomposition.FactorAnalysis(k).fit(X), quality)
