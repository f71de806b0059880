"""Perceptron and Boltzmann machine against scikit-learn: at least as fast, equally good."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification

from bench.harness import Pair, claim


@claim("perceptron", peer="scikit-learn", floor=1.0)
def perceptron() -> Pair:
    """Perceptron, 20000 x 100, 20 epochs in order."""
    from sklearn.linear_model import Perceptron as Reference

    from corollary.connectionism import Perceptron

    X, y = make_classification(20_000, 100, n_informative=20, random_state=0)

    def fitted(kind: Any) -> Any:
        return kind(max_iter=20, tol=None, shuffle=False).fit(X, y)

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-6, atol=1e-6)
        return {"accuracy": ours.score(X, y), "peer accuracy": peer.score(X, y)}

    return Pair(lambda: fitted(Perceptron), lambda: fitted(Reference), quality)


@claim("rbm", peer="scikit-learn", floor=1.0)
def boltzmann() -> Pair:
    """Restricted Boltzmann machine, 1797 digits, 256 hidden units, 5 epochs."""
    from sklearn.neural_network import BernoulliRBM as Reference

    from corollary.connectionism import BernoulliRBM

    X = (load_digits().data > 8).astype(np.float64)

    def fitted(kind: Any) -> Any:
        return kind(256, n_iter=5, random_state=0).fit(X)

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        mine, theirs = float(ours.score_samples(X).mean()), float(peer.score_samples(X).mean())
        if mine < theirs - 0.01 * abs(theirs):
            raise AssertionError(f"our pseudo-likelihood {mine:.5g} is below the peer's {theirs:.5g}")
        return {"pseudo-likelihood": mine, "peer pseudo-likelihood": theirs}

    return Pair(lambda: fitted(BernoulliRBM), lambda: fitted(Reference), quality)
