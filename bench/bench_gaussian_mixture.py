"""The Gaussian mixture against scikit-learn's: the same sweeps from the same start, both in float64."""

import warnings

import numpy as np
from sklearn.mixture import GaussianMixture as Peer

from bench.harness import Pair, claim
from corollary.mixtures.gaussian import GaussianMixture


@claim("gaussian-mixture", peer="scikit-learn", floor=7.0)
def full():
    """Gaussian mixture, 50000 x 20, 10 full components, 20 sweeps of EM in float64"""
    rng = np.random.default_rng(0)
    n, d, k = 50000, 20, 10
    z = rng.integers(k, size=n)
    A = 0.3 * rng.standard_normal((k, d, d)) + np.eye(d)
    X = np.einsum("nij,nj->ni", A[z], rng.standard_normal((n, d))) + 2 * rng.standard_normal((k, d))[z]
    start = {
        "weights_init": np.full(k, 1 / k),
        "means_init": X[:k],
        "precisions_init": np.repeat(np.linalg.inv(np.cov(X.T))[None], k, axis=0),
    }

    def fit(cls):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cls(k, max_iter=20, tol=0, **start).fit(X)

    def quality(ours, peer):
        assert ours.n_iter_ == peer.n_iter_ == 20
        np.testing.assert_allclose(ours.lower_bounds_, peer.lower_bounds_, rtol=1e-9)
        return {"log_likelihood": ours.lower_bound_, "peer": peer.lower_bound_}

    return Pair(lambda: fit(GaussianMixture), lambda: fit(Peer), quality)
