"""Perceptron and Boltzmann machine against scikit-learn: at least as fast, equally good."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_classification

from bench.harness import Draw, Pair, claim


@claim("perceptron", peer="scikit-learn", aim=1.0)
def perceptron(draw: Draw) -> Pair:
    """Perceptron, 20 epochs in order"""
    from sklearn.linear_model import Perceptron as Reference

    from corollary.connectionism import Perceptron

    rows, columns = draw.size("rows", 1000, 50000), draw.size("columns", 10, 200)
    X, y = make_classification(
        rows, columns, n_informative=5, n_classes=draw.choice("classes", (2, 4)), random_state=0
    )
    X = draw.array(X, ("float64",))

    def fitted(kind: Any) -> Any:
        return kind(max_iter=20, tol=None, shuffle=False).fit(X, y)

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        np.testing.assert_allclose(ours.coef_, peer.coef_, rtol=1e-6, atol=1e-6)
        return {"accuracy": ours.score(X, y), "peer accuracy": peer.score(X, y)}

    return Pair(lambda: fitted(Perceptron), lambda: fitted(Reference), quality)


@claim("rbm", peer="scikit-learn", aim=1.0)
def boltzmann(draw: Draw) -> Pair:
    """Restricted Boltzmann machine on the digits, 5 epochs"""
    from sklearn.neural_network import BernoulliRBM as Reference

    from corollary.connectionism import BernoulliRBM

    hidden, rows = draw.size("hidden", 32, 512), draw.size("rows", 600, 1797)
    X = (load_digits().data[:rows] > draw.choice("threshold", (4, 8))).astype(
        draw.choice("type", ("float32", "float64"))
    )

    def fitted(kind: Any) -> Any:
        return kind(hidden, n_iter=5, random_state=0).fit(X)

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        mine, theirs = float(ours.score_samples(X).mean()), float(peer.score_samples(X).mean())
        if mine < theirs - 0.01 * abs(theirs):
            raise AssertionError(f"our pseudo-likelihood {mine:.5g} is below the peer's {theirs:.5g}")
        return {"pseudo-likelihood": mine, "peer pseudo-likelihood": theirs}

    return Pair(lambda: fitted(BernoulliRBM), lambda: fitted(Reference), quality)
