"""Non-negative factorisation against scikit-learn, from the same start and with as many sweeps."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from bench.harness import Draw, Pair, claim


def pair(X: Any, start: tuple[np.ndarray, ...], loss: Any, **settings: Any) -> Pair:
    from sklearn.decomposition import NMF as Reference

    from corollary.completion import NMF

    def fitted(kind: Any) -> tuple[np.ndarray, np.ndarray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(start[0].shape[1], init="custom", tol=0, **settings)
            W = model.fit_transform(X, W=start[0].copy(), H=start[1].copy())
        return W, model.components_

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        mine, theirs = loss(*ours), loss(*peer)
        if mine > theirs * 1.0005:
            raise AssertionError(f"our loss {mine:.7g} is above the peer's {theirs:.7g}")
        return {"loss": mine, "peer loss": theirs}

    return Pair(lambda: fitted(NMF), lambda: fitted(Reference), quality)


@claim("nmf-frobenius", peer="scikit-learn", aim=1.2)
def frobenius(draw: Draw) -> Pair:
    """NMF, Frobenius by coordinate descent, 50 sweeps"""
    rng, k = draw.rng, draw.size("parts", 5, 40)
    n, m = draw.size("rows", 500, 8000), draw.size("columns", 100, 2000)
    X = draw.array(rng.gamma(0.5, 1, (n, k)) @ rng.gamma(0.5, 1, (k, m)) + 0.1 * rng.random((n, m)))
    scale = np.sqrt(X.mean() / k)
    start = (np.abs(rng.standard_normal((n, k))) * scale, np.abs(rng.standard_normal((k, m))) * scale)
    start = tuple(part.astype(X.dtype) for part in start)

    def loss(W: np.ndarray, H: np.ndarray) -> float:
        return 0.5 * float(((X - W @ H).astype(float) ** 2).sum())

    return pair(X, start, loss, max_iter=50)


@claim("nmf-kl-sparse", peer="scikit-learn", aim=3.0)
def kullback_leibler(draw: Draw) -> Pair:
    """NMF, Kullback-Leibler by multiplicative updates on sparse counts, 30 sweeps"""
    rng, k = draw.rng, draw.size("parts", 5, 40)
    n, m = draw.size("rows", 500, 6000), draw.size("columns", 1000, 12000)
    X = sparse.random(
        n, m, draw.real("density", 0.002, 0.03), "csr", draw.choice("type", ("float32", "float64")), rng
    )
    X.data = np.ceil(5 * X.data**3).astype(X.dtype)
    start = tuple(0.1 * np.abs(rng.standard_normal(s)).astype(X.dtype) for s in ((n, k), (k, m)))

    def loss(W: np.ndarray, H: np.ndarray) -> float:
        rows = np.repeat(np.arange(n), np.diff(X.indptr))
        wh = np.einsum("ek,ek->e", W[rows].astype(float), H.T[X.indices].astype(float))
        total = W.astype(float).sum(0) @ H.astype(float).sum(1)
        return float((X.data * np.log(X.data / np.maximum(wh, 1e-12))).sum() - X.data.sum() + total)

    return pair(X, start, loss, solver="mu", beta_loss="kullback-leibler", max_iter=30)
