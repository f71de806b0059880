r"""Compiled Gibbs sweeps of the Chinese restaurant process: rows are customers, components are tables.

A table keeps the posterior of its parameters in four arrays, row by row of :class:`Tables`:

=============  ==========================  ==========================================  ==============================
family         ``a``                       ``B``                                       ``c``
=============  ==========================  ==========================================  ==============================
full           posterior mean              Cholesky factor of the scale, upper         log-normaliser of the t law
diagonal       posterior mean              scale of every feature                      log-normaliser of the t law
spherical      posterior mean              one scale                                   log-normaliser of the t law
categorical    counts with pseudo-counts   their logarithms                            minus logarithms of the totals
poisson        sums with the shape         logarithm of rate + 1                       what does not depend on x
exponential    sums with the rate          unused                                      what does not depend on x
=============  ==========================  ==========================================  ==============================

The last row is the empty table, whose posterior is the prior. A customer who comes or goes changes a scale matrix by
:math:`\pm \frac{\kappa}{\kappa \pm 1} (x - m)(x - m)^\top`, which is a rank-one update of its Cholesky factor (1).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from corollary.compiled import njit

__all__ = ["Prior", "Tables", "place", "predictive", "seat", "split_or_merge"]

FULL, DIAGONAL, SPHERICAL, CATEGORICAL, POISSON, EXPONENTIAL = range(6)
SPARE = 4  # tables that must be free: one for a new customer, three for a split and its opposite
OPTIONS = {"cache": True, "error_model": "numpy"}


class Prior(NamedTuple):
    """What all tables share: the family, strength of the mean, degrees of freedom, and gamma or Dirichlet parameters."""

    family: int
    kappa: float
    nu: float
    shape: np.ndarray
    rate: np.ndarray


class Tables(NamedTuple):
    """Customers (C,), and the posterior (C, f), (C, g, h), (C,) of every table."""

    n: np.ndarray
    a: np.ndarray
    B: np.ndarray
    c: np.ndarray


# --- one table -------------------------------------------------------------------------------------------


@njit(**OPTIONS)
def _normalise(prior, t, k):  # pragma: no cover - compiled
    """Set the constant of a table's predictive density from the rest of the row."""
    n, a, B = t.n[k], t.a[k], t.B[k]
    d, total = len(a), 0.0
    kappa, nu = prior.kappa + n, prior.nu + n
    if prior.family == FULL:
        for i in range(d):
            total -= math.log(B[i, i])
        total += math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * (nu - d + 1))
        total -= 0.5 * d * math.log(math.pi * (kappa + 1) / kappa)
    elif prior.family == DIAGONAL:
        for i in range(d):
            total -= 0.5 * math.log(B[0, i])
        total += d * (math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu))
        total -= 0.5 * d * math.log(math.pi * (kappa + 1) / kappa)
    elif prior.family == SPHERICAL:
        nu = prior.nu + n * d
        total = math.lgamma(0.5 * (nu + d)) - math.lgamma(0.5 * nu)
        total -= 0.5 * d * math.log(math.pi * (kappa + 1) / kappa * B[0, 0])
    elif prior.family == CATEGORICAL:
        for j in range(len(prior.rate)):
            total -= math.log(prior.rate[j] + n)
    elif prior.family == POISSON:
        for j in range(d):
            rate = prior.rate[j] + n
            B[0, j] = math.log(rate + 1)
            total += a[j] * (math.log(rate) - B[0, j]) - math.lgamma(a[j])
    else:
        for j in range(d):
            total += math.log(prior.shape[j] + n) + (prior.shape[j] + n) * math.log(a[j])
    t.c[k] = total


@njit(**OPTIONS)
def _rank_one(U, v, sign):  # pragma: no cover - compiled
    """Turn the upper factor of S into that of S + sign v v', overwriting v; eq. 1."""
    d = len(v)
    for i in range(d):
        r = math.sqrt(U[i, i] * U[i, i] + sign * v[i] * v[i])
        cosine, sine = r / U[i, i], v[i] / U[i, i]
        U[i, i] = r
        for j in range(i + 1, d):
            U[i, j] = (U[i, j] + sign * sine * v[j]) / cosine
            v[j] = cosine * v[j] - sine * U[i, j]


@njit(**OPTIONS)
def _move(prior, t, k, x, sign, w):  # pragma: no cover - compiled
    """Let x sit down at table k (sign 1) or get up from it (sign -1)."""
    a, B = t.a[k], t.B[k]
    d = len(a)
    kappa = prior.kappa + t.n[k]
    t.n[k] += sign
    if prior.family <= SPHERICAL:
        weight = kappa / (kappa + sign)
        total = 0.0
        for i in range(d):
            gap = x[i] - a[i]
            a[i] += sign * gap / (kappa + sign)
            w[i] = gap * math.sqrt(weight)
            total += w[i] * w[i]
        if prior.family == FULL:
            _rank_one(B, w, sign)
        elif prior.family == DIAGONAL:
            for i in range(d):
                B[0, i] += sign * w[i] * w[i]
        else:
            B[0, 0] += sign * total
    elif prior.family == CATEGORICAL:
        for j in range(len(x)):
            symbol = int(x[j])
            a[symbol] += sign
            B[0, symbol] = math.log(a[symbol])
    else:
        for j in range(d):
            a[j] += sign * x[j]
    _normalise(prior, t, k)


@njit(**OPTIONS)
def _log_predictive(prior, t, k, x, w):  # pragma: no cover - compiled
    """Return the log-density of x given the customers of table k."""
    n, a, B = t.n[k], t.a[k], t.B[k]
    d, total = len(a), t.c[k]
    kappa, nu = prior.kappa + n, prior.nu + n
    shrink = kappa / (kappa + 1)
    if prior.family == FULL:
        q = 0.0
        for i in range(d):
            w[i] = x[i] - a[i]
        for i in range(d):
            w[i] /= B[i, i]
            q += w[i] * w[i]
            for j in range(i + 1, d):
                w[j] -= B[i, j] * w[i]
        total -= 0.5 * (nu + 1) * math.log1p(shrink * q)
    elif prior.family == DIAGONAL:
        product = 1.0
        for i in range(d):
            gap = x[i] - a[i]
            product *= 1 + shrink * gap * gap / B[0, i]
            if product > 1e100:  # a logarithm now and then, instead of one per feature
                total -= 0.5 * (nu + 1) * math.log(product)
                product = 1.0
        total -= 0.5 * (nu + 1) * math.log(product)
    elif prior.family == SPHERICAL:
        q = 0.0
        for i in range(d):
            q += (x[i] - a[i]) ** 2
        total -= 0.5 * (prior.nu + n * d + d) * math.log1p(shrink * q / B[0, 0])
    elif prior.family == CATEGORICAL:
        for j in range(len(x)):
            total += B[0, int(x[j])]
    elif prior.family == POISSON:
        for j in range(d):
            total += math.lgamma(a[j] + x[j]) - x[j] * B[0, j]
    else:
        for j in range(d):
            total -= (prior.shape[j] + n + 1) * math.log(a[j] + x[j])
    return total


@njit(**OPTIONS)
def _copy(t, source, target):  # pragma: no cover - compiled
    t.n[target], t.c[target] = t.n[source], t.c[source]
    t.a[target] = t.a[source]
    t.B[target] = t.B[source]


# --- all of them -----------------------------------------------------------------------------------------


@njit(**OPTIONS)
def place(X, z, prior, t):  # pragma: no cover - compiled
    """Fill empty tables with the customers that z gives them."""
    w = np.empty(t.a.shape[1])
    for i in range(len(X)):
        if z[i] >= 0:
            _move(prior, t, z[i], X[i], 1, w)


@njit(**OPTIONS)
def predictive(X, prior, t):  # pragma: no cover - compiled
    """Return the log-densities (n, C) of rows under every table."""
    w, out = np.empty(t.a.shape[1]), np.empty((len(X), len(t.n)))
    for i in range(len(X)):
        for k in range(len(t.n)):
            out[i, k] = _log_predictive(prior, t, k, X[i], w)
    return out


@njit(**OPTIONS)
def _draw(logs, count, u):  # pragma: no cover - compiled
    """Return an index below ``count`` with probability proportional to exp(logs), by a uniform u."""
    largest, total = logs[:count].max(), 0.0
    for k in range(count):
        logs[k] = math.exp(logs[k] - largest)
        total += logs[k]
    u *= total
    for k in range(count - 1):
        u -= logs[k]
        if u < 0:
            return k
    return count - 1


@njit(**OPTIONS)
def seat(X, z, order, u, begin, prior, t, slots, K, alpha):  # pragma: no cover - compiled
    """Seat customers anew, eq. 3 of the process, from place ``begin`` of the order on.

    The first K of ``slots`` are the tables in use; a table of -1 is that of a customer without one yet.
    Returns where it stopped, which is before the end if tables ran short, and the new K.
    """
    empty, w, logs = len(t.n) - 1, np.empty(t.a.shape[1]), np.empty(len(t.n))
    for p in range(begin, len(order)):
        if K + SPARE > empty:
            return p, K
        i = order[p]
        x, old = X[i], z[i]
        if old >= 0:
            _move(prior, t, old, x, -1, w)
            if t.n[old] == 0:
                K -= 1
                for s in range(K):
                    if slots[s] == old:
                        slots[s], slots[K] = slots[K], old
                        break
        for s in range(K):
            k = slots[s]
            logs[s] = math.log(t.n[k]) + _log_predictive(prior, t, k, x, w)
        logs[K] = math.log(alpha) + _log_predictive(prior, t, empty, x, w)
        s = _draw(logs, K + 1, u[p])
        if s == K:
            _copy(t, empty, slots[K])
            K += 1
        z[i] = slots[s]
        _move(prior, t, slots[s], x, 1, w)
    return len(order), K


@njit(**OPTIONS)
def split_or_merge(X, z, order, u, accept, prior, t, slots, K, alpha):  # pragma: no cover - compiled
    """Try to split the table of the first two of ``order``, or to merge their two tables, eq. 5; return the new K.

    The others at those tables are allocated one after the other, in the given order, to one of the two; for a merge
    that is only how probable the way back would be.
    """
    empty, w, logs = len(t.n) - 1, np.empty(t.a.shape[1]), np.empty(2)
    i, j = order[0], order[1]
    first, second = z[i], z[j]
    split = first == second
    left, right, both = slots[K], slots[K + 1], slots[K + 2]
    for k in (left, right, both):
        _copy(t, empty, k)
    chosen = np.empty(len(order), np.bool_)
    proposal = evidence = 0.0
    for p in range(len(order)):
        m = order[p]
        if z[m] != first and z[m] != second:
            continue
        x = X[m]
        evidence -= _log_predictive(prior, t, both, x, w)
        _move(prior, t, both, x, 1, w)
        a, b = _log_predictive(prior, t, left, x, w), _log_predictive(prior, t, right, x, w)
        if p < 2:
            chosen[p] = p == 0
        else:
            logs[0], logs[1] = math.log(t.n[left]) + a, math.log(t.n[right]) + b
            gap = logs[0] - logs[1]
            chosen[p] = _draw(logs, 2, u[p]) == 0 if split else z[m] == first
            signed = gap if chosen[p] else -gap
            proposal += min(signed, 0.0) - math.log1p(math.exp(-abs(signed)))
        evidence += a if chosen[p] else b
        _move(prior, t, left if chosen[p] else right, x, 1, w)
    tables = math.lgamma(t.n[left]) + math.lgamma(t.n[right]) - math.lgamma(t.n[both])
    ratio = math.log(alpha) + tables + evidence - proposal
    if math.log(accept) >= (ratio if split else -ratio):
        return K
    if not split:
        for p in range(len(order)):
            if z[order[p]] == second:
                z[order[p]] = first
        _copy(t, both, first)
        for s in range(K):
            if slots[s] == second:
                slots[s], slots[K - 1] = slots[K - 1], second
        return K - 1
    for p in range(len(order)):
        if z[order[p]] == first and not chosen[p]:
            z[order[p]] = right
    _copy(t, left, first)
    slots[K], slots[K + 1] = right, left
    return K + 1
