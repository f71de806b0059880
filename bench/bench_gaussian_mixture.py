"""The Gaussian mixture against scikit-learn's: the same sweeps from the same start."""

import warnings

import numpy as np
from sklearn.mixture import GaussianMixture as Peer

from bench.harness import Draw, Pair, claim
from corollary.mixtures.gaussian import GaussianMixture


def pair(draw: Draw, covariance: str, n: int, d: int) -> Pair:
    """Return twenty sweeps of EM from the same start."""
    k, rng = draw.size("components", 3, 20), draw.rng
    z = rng.integers(k, size=n)
    A = 0.3 * rng.standard_normal((k, d, d)) + np.eye(d)
    noise = rng.standard_normal((n, d))
    X = np.empty((n, d))
    for c in range(k):
        X[z == c] = noise[z == c] @ A[c].T + 2 * rng.standard_normal(d)
    X = draw.array(X)
    precision = {
        "full": np.repeat(np.linalg.inv(np.cov(X.T.astype(float)))[None], k, axis=0),
        "tied": np.linalg.inv(np.cov(X.T.astype(float))),
        "diag": np.repeat(1 / X.var(axis=0, dtype=float)[None], k, axis=0),
        "spherical": np.full(k, 1 / X.var(axis=0, dtype=float).mean()),
    }[covariance]
    start = {"weights_init": np.full(k, 1 / k), "means_init": X[:k], "precisions_init": precision}

    def fit(cls):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cls(k, covariance_type=covariance, max_iter=20, tol=0, **start).fit(X)

    def quality(ours, peer):
        # float32 sums of up to 10^5 terms differ in their sixth digit between two orders of summation
        allowed = 1e-8 if X.dtype == np.float64 else 1e-4
        assert abs(ours.score(X) - peer.score(X)) < allowed * abs(peer.score(X))
        return {"log_likelihood": ours.score(X), "peer": peer.score(X)}

    return Pair(lambda: fit(GaussianMixture), lambda: fit(Peer), quality)


@claim("gaussian-mixture", peer="scikit-learn", aim=4.0)
def full(draw):
    """Gaussian mixture, full covariances, 20 sweeps of EM"""
    return pair(draw, "full", draw.size("rows", 5000, 60000), draw.size("columns", 4, 40))


@claim("gaussian-mixture-other", peer="scikit-learn", aim=1.5)
def other(draw):
    """Gaussian mixture, diagonal, spherical and tied covariances, 20 sweeps of EM"""
    covariance = draw.choice("covariance", ("diag", "diag", "spherical", "tied"))
    return pair(draw, covariance, draw.size("rows", 5000, 100000), draw.size("columns", 4, 60))
