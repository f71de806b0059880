r"""Whether targets depend on the position and the scale of a set: how its elements are to be described.

Clouds of points come from anywhere and in any unit, and then place and size are noise that a network learns by heart; the
prices of a basket are what matters. So the data are asked two questions. Sets are **moved** if their means differ by more than
those of :math:`m` elements drawn from one distribution would, **scaled** if their spreads :math:`s_i` do,

.. math:: \frac{\mathrm{Var}_i[\bar x_i]}{\mathrm{E}_i[s_i^2 / m_i]} > 4 \text{ for some feature,} \qquad
   \mathrm{Var}_i[\log s_i] > \frac{4}{2\,\mathrm{E}_i[m_i]}. \tag{1}

Targets **depend** on it if neighbours say so: each set is described by its mean, its extremes and the logarithm of its spread,
and the five nearest sets of the other half of the data vote for its class. With accuracy :math:`a` on :math:`n` sets and
the share :math:`p` of the commonest class, or with the correlation :math:`r` of neighbours' mean and the number itself, if

.. math:: a - p > 3 \sqrt{p (1 - p) / n}, \qquad r > 3 / \sqrt{n}. \tag{2}

Where sets are moved or scaled and targets do not depend on it, elements are seen relative to their set only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["are_moved", "depends_on_place", "what_to_see"]

MOST = 1000  # sets that are asked
FEWEST = 20
NEIGHBOURS = 5
BEYOND = 4.0  # of the variance that chance gives


def what_to_see(sets: Sequence[np.ndarray], target: np.ndarray) -> str:
    """Return "relative" where place and size of sets (m, d) are noise, otherwise "both".

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(9, 2)) + 20 * rng.normal(size=2) for _ in range(100)]
    >>> what_to_see(X, rng.integers(0, 2, 100)), what_to_see(X, np.array([x.mean() for x in X]))
    ('relative', 'both')
    """
    rows = np.random.default_rng(0).permutation(len(sets))[:MOST]
    rows = np.array([i for i in rows if len(sets[i]) > 1], dtype=int)
    if len(rows) < FEWEST:
        return "both"
    few = [np.asarray(sets[i], dtype=np.float64) for i in rows]
    y = np.asarray(target)[rows]
    return "relative" if are_moved(few) and not depends_on_place(few, y) else "both"


def are_moved(sets: Sequence[np.ndarray]) -> bool:
    """Whether sets are moved or scaled, eq. 1."""
    sizes = np.array([len(x) for x in sets])
    means, variances = (np.stack([f(x, axis=0) for x in sets]) for f in (np.mean, np.var))
    chance = (variances / sizes[:, None]).mean(0)
    if (means.var(0) > BEYOND * chance + 1e-12).any():
        return True
    spread = variances.mean(1)
    logs = 0.5 * np.log(spread[spread > 0])
    return bool(len(logs) > 1 and logs.var() > BEYOND / (2 * sizes.mean()))


def depends_on_place(sets: Sequence[np.ndarray], y: np.ndarray) -> bool:
    """Whether neighbours in place and size have like targets, eq. 2: class codes, their shares, or numbers."""
    described = np.stack([np.concatenate([x.mean(0), x.min(0), x.max(0), [_log_spread(x)]]) for x in sets])
    spread = described.std(0)
    described = (described - described.mean(0)) / np.where(spread > 0, spread, 1.0)
    y = y.argmax(1) if y.ndim == 2 and y.dtype.kind == "f" and y.shape[1] > 1 else y.reshape(len(y), -1)[:, 0]
    near = _neighbours(described)
    n = len(y)
    if y.dtype.kind in "iub":
        codes = np.unique(y, return_inverse=True)[1]
        votes = np.stack([(codes[near] == k).sum(1) for k in range(codes.max() + 1)], 1)
        p = float(np.bincount(codes).max() / n)
        return bool((votes.argmax(1) == codes).mean() - p > 3 * (p * (1 - p) / n) ** 0.5)
    guess = y[near].mean(1)
    if guess.std() == 0 or y.std() == 0:
        return False
    return bool(np.corrcoef(guess, y)[0, 1] > 3 / n**0.5)


def _log_spread(x: np.ndarray) -> float:
    return float(np.log(np.sqrt(x.var(0).mean()) + 1e-12))


def _neighbours(described: np.ndarray) -> np.ndarray:
    """Return the nearest rows of the other half for each row."""
    n = len(described)
    near = np.empty((n, min(NEIGHBOURS, n // 2)), dtype=int)
    halves = np.arange(n) % 2
    for half in (0, 1):
        own, other = np.flatnonzero(halves == half), np.flatnonzero(halves != half)
        apart = (described[other] ** 2).sum(1) - 2 * described[own] @ described[other].T  # up to a constant
        near[own] = other[np.argsort(apart, 1)[:, : near.shape[1]]]
    return near
