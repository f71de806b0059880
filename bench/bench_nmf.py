"""Non-negative factorisation against scikit-learn, from the same start and with as many sweeps."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from bench.harness import Pair, claim

K = 20


def pair(X: Any, start: tuple[np.ndarray, np.ndarray], loss: Any, **settings: Any) -> Pair:
    from sklearn.decomposition import NMF as Reference

    from corollary.completion import NMF

    def fitted(kind: Any) -> tuple[np.ndarray, np.ndarray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(K, init="custom", tol=0, **settings)
            W = model.fit_transform(X, W=start[0].copy(), H=start[1].copy())
        return W, model.components_

    def quality(ours: Any, peer: Any) -> dict[str, float]:
        mine, theirs = loss(*ours), loss(*peer)
        if mine > theirs * 1.0005:
            raise AssertionError(f"our loss {mine:.7g} is above the peer's {theirs:.7g}")
        return {"loss": mine, "peer loss": theirs}

    return Pair(lambda: fitted(NMF), lambda: fitted(Reference), quality)


@claim("nmf-frobenius", peer="scikit-learn", floor=1.2)
def frobenius() -> Pair:
    """NMF, Frobenius by coordinate descent, 5000 x 1000, 20 parts, 100 sweeps."""
    rng = np.random.default_rng(0)
    n, m = 5000, 1000
    X = rng.gamma(0.5, 1, (n, K)) @ rng.gamma(0.5, 1, (K, m)) + 0.1 * rng.random((n, m))
    X = X.astype(np.float32)
    scale = np.sqrt(X.mean() / K)
    start = (np.abs(rng.standard_normal((n, K))) * scale, np.abs(rng.standard_normal((K, m))) * scale)
    start = tuple(part.astype(np.float32) for part in start)

    def loss(W: np.ndarray, H: np.ndarray) -> float:
        return 0.5 * float(((X - W @ H).astype(float) ** 2).sum())

    return pair(X, start, loss, max_iter=100)


@claim("nmf-kl-sparse", peer="scikit-learn", floor=6.0)
def kullback_leibler() -> Pair:
    """NMF, Kullback-Leibler by multiplicative updates, sparse 5000 x 10000, 20 parts, 50 sweeps."""
    rng = np.random.default_rng(0)
    n, m = 5000, 10_000
    W, H = rng.gamma(0.1, 1, (n, K)), rng.dirichlet(np.full(m, 0.05), K)
    W = (W + 1e-9) / (W + 1e-9).sum(1, keepdims=True)
    rows = [sparse.csr_matrix(rng.multinomial(100, w @ H).astype(np.float32)) for w in W]
    X = sparse.vstack(rows).tocsr()
    start = tuple(0.1 * np.abs(rng.standard_normal(s)).astype(np.float32) for s in ((n, K), (K, m)))

    def loss(W: np.ndarray, H: np.ndarray) -> float:
        rows = np.repeat(np.arange(n), np.diff(X.indptr))
        wh = np.einsum("ek,ek->e", W[rows].astype(float), H.T[X.indices].astype(float))
        total = W.astype(float).sum(0) @ H.astype(float).sum(1)
        return float((X.data * np.log(X.data / np.maximum(wh, 1e-12))).sum() - X.data.sum() + total)

    return pair(X, start, loss, solver="mu", beta_loss="kullback-leibler", max_iter=50)
