r"""The compiled part of alternating least squares: rows solved by conjugate gradients, and places on lists.

Equations 3 and 4 of :mod:`corollary.completion.als`: no row of a side depends on another one of it, so that threads and processes
share the rows, and the result does not depend on their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import get_num_threads, prange

from corollary.compiled import njit
from corollary.engine.run import current

__all__ = ["percentile_ranks", "solve"]

FLAT = {"fastmath": True, "error_model": "numpy", "cache": True}


@njit(**FLAT)
def _add_rows(L, m, v, p, out):  # pragma: no cover - compiled
    """Add the sum over e < m of v_e (L_e . p) L_e, four rows at a time."""
    K = L.shape[1]
    zero = p.dtype.type(0)  # a plain 0 would make every sum double precision
    e = 0
    while e + 4 <= m:
        a, b, c, d = L[e], L[e + 1], L[e + 2], L[e + 3]
        s0 = s1 = s2 = s3 = zero
        for k in range(K):
            q = p[k]
            s0 += a[k] * q
            s1 += b[k] * q
            s2 += c[k] * q
            s3 += d[k] * q
        s0 *= v[e]
        s1 *= v[e + 1]
        s2 *= v[e + 2]
        s3 *= v[e + 3]
        for k in range(K):
            out[k] += s0 * a[k] + s1 * b[k] + s2 * c[k] + s3 * d[k]
        e += 4
    while e < m:
        a = L[e]
        s0 = zero
        for k in range(K):
            s0 += a[k] * p[k]
        s0 *= v[e]
        for k in range(K):
            out[k] += s0 * a[k]
        e += 1


@njit(**FLAT)
def _multiply(G, p, out):  # pragma: no cover - compiled
    """Set out = G p for symmetric G, four columns at a time."""
    K = len(p)
    out[:] = 0
    k = 0
    while k + 4 <= K:
        a, b, c, d = G[k], G[k + 1], G[k + 2], G[k + 3]
        p0, p1, p2, p3 = p[k], p[k + 1], p[k + 2], p[k + 3]
        for j in range(K):
            out[j] += p0 * a[j] + p1 * b[j] + p2 * c[j] + p3 * d[j]
        k += 4
    while k < K:
        for j in range(K):
            out[j] += p[k] * G[k, j]
        k += 1


@njit(**FLAT)
def _apply(G, ridge, last, L, m, v, p, out):  # pragma: no cover - compiled
    """Set out = A p of eq. 3; an empty G counts as zero, the last coordinate has a ridge of its own."""
    if len(G):
        _multiply(G, p, out)
    else:
        out[:] = 0
    for k in range(len(p) - 1):
        out[k] += ridge * p[k]
    out[-1] += last * p[-1]
    _add_rows(L, m, v, p, out)


@njit(**FLAT)
def _descend(G, ridge, last, L, m, v, target, x, r, p, Ap, steps, floor):  # pragma: no cover - compiled
    """Take conjugate gradient steps towards A x = target, in place; r ends as the residual."""
    K = len(x)
    _apply(G, ridge, last, L, m, v, x, r)
    zero = x.dtype.type(0)
    square = zero
    for k in range(K):
        r[k] = target[k] - r[k]
        p[k] = r[k]
        square += r[k] * r[k]
    floor *= square
    for _ in range(steps):
        if square <= floor:
            break
        _apply(G, ridge, last, L, m, v, p, Ap)
        curve = zero
        for k in range(K):
            curve += p[k] * Ap[k]
        if curve <= 0:
            break
        step, fresh = square / curve, zero
        for k in range(K):
            x[k] += step * p[k]
            r[k] -= step * Ap[k]
            fresh += r[k] * r[k]
        ratio = fresh / square
        square = fresh
        for k in range(K):
            p[k] = r[k] + ratio * p[k]


@njit(parallel=True, **FLAT)
def _solve_rows(
    indptr,
    indices,
    data,
    alpha,
    Y,
    shift,
    G,
    ridge,
    last,
    X,
    begin,
    end,
    steps,
    floor,
    longest,
    threads,
    loss,
):  # pragma: no cover - compiled
    """Improve rows begin to end of X towards the solutions of eq. 3; write each row's share of the loss.

    Ratings are CSR; alpha < 0 means explicit ones, from which the shift of their column is taken.
    The gathered rows of Y stay in cache over all steps. No row depends on another, so the result does
    not depend on the number of threads; rows are dealt out in turn, so that long and short ones mix.
    """
    K, one = X.shape[1], X.dtype.type(1)
    for t in prange(threads):
        L, v = np.empty((longest, K), X.dtype), np.empty(longest, X.dtype)
        target, r = np.empty(K, X.dtype), np.empty(K, X.dtype)
        p, Ap = np.empty(K, X.dtype), np.empty(K, X.dtype)
        for i in range(begin + t, end, threads):
            first, m = indptr[i], indptr[i + 1] - indptr[i]
            x = X[i]
            constant = 0.0
            if m == 0:
                x[:] = 0
                loss[i] = 0.0
                continue
            target[:] = 0
            for e in range(m):
                j = indices[first + e]
                y, row = Y[j], L[e]
                if alpha < 0:
                    v[e] = one
                    z = data[first + e] - shift[j]
                    constant += z * z
                else:
                    v[e] = alpha * data[first + e]
                    z = one + v[e]
                    constant += z
                for k in range(K):
                    row[k] = y[k]
                    target[k] += z * y[k]
            _descend(G, ridge[i], last[i], L, m, v, target, x, r, p, Ap, steps, floor)
            for k in range(K):
                constant -= np.float64(x[k]) * np.float64(target[k] + r[k])
            loss[i] = constant


def solve(
    R: Any,
    X: np.ndarray,
    Y: np.ndarray,
    *,
    alpha: float,
    damping: float | None,
    ridge: np.ndarray,
    steps: int,
) -> float:
    """Improve the rows of X, which belong to the rows of R, with Y fixed; return their share of the loss.

    With a damping, X and Y hold biases in their last column, and it is their ridge. Several processes share the rows.
    """
    run, dtype = current(), X.dtype
    design, shift = Y, np.zeros(len(Y), dtype)
    last = ridge
    if damping is not None:
        last = np.full_like(ridge, damping)
        design, shift = Y.copy(), Y[:, -1].copy()
        design[:, -1] = 1
    G = np.empty((0, 0), dtype) if alpha < 0 else np.ascontiguousarray(Y.T @ Y)
    rows = run.shard(len(X))
    longest, loss = int(np.diff(R.indptr).max(initial=0)), np.zeros(len(X))
    floor = dtype.type(np.finfo(dtype).eps ** 2)
    _solve_rows(
        R.indptr, R.indices, R.data, dtype.type(alpha), design, shift, G, ridge, last, X,
        rows.start, rows.stop, steps, floor, longest, get_num_threads(), loss,
    )  # fmt: skip
    if run.world > 1:
        mine = np.zeros_like(X)
        mine[rows] = X[rows]
        X[:] = run.sum(mine)
    return float(run.sum(np.array(loss.sum())))


@njit(parallel=True, cache=True, error_model="numpy")
def percentile_ranks(indptr, indices, U, V, ranks):  # pragma: no cover - compiled
    """Write, for each stored entry, the place of its item among all items of its user: 0 first, 1 last; eq. 4."""
    m = len(V)
    for u in prange(len(U)):
        if indptr[u] == indptr[u + 1]:
            continue
        scores = np.zeros(m, V.dtype)
        for i in range(m):
            for k in range(V.shape[1]):
                scores[i] += V[i, k] * U[u, k]
        ordered = np.sort(scores)
        for e in range(indptr[u], indptr[u + 1]):
            below = np.searchsorted(ordered, scores[indices[e]], side="left")
            up_to = np.searchsorted(ordered, scores[indices[e]], side="right")
            ranks[e] = 1 - 0.5 * (below + up_to - 1) / max(1, m - 1)  # equal scores share their places
