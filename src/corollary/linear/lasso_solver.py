"""Coordinate descent on a working set of features: the solver of the lasso.

Equations are those of :mod:`corollary.linear.lasso`. The Gram matrix of the working set is at hand, the other features are
looked at once a round, and only those that the duality gap has not ruled out.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.linalg.lapack import dposv

from corollary.compiled import njit
from corollary.engine.learner import Iteration, Metrics
from corollary.linalg import Rows
from corollary.shapes import Array, Either, Index, Maybe

__all__ = [
    "AllFeatures",
    "Features",
    "FromSums",
    "Path",
    "WorkingSet",
    "as_float64",
    "column_means",
    "offsets_are_small",
]

OFFSET = {4: 10.0, 8: 1e4}  # means over spreads from which on a centred copy is made, by bytes of a number
BATCH = 16  # features that a path takes in together
GROWTH = 64  # features that join the working set at least, if as many are promising
SWEEPS = 100  # over the working set, before the first jump
BETWEEN = 10  # sweeps at least between jumps
JUMPS = 200  # in one round
STALE = 10  # times that sweeps and jumps may leave the gap as it is
RIDGE = 1e-13  # of the diagonal: more features than samples
TINY = 1e-300
SINGLE = 6e-8  # rounding of float32
INNER = 0.3  # share of the tolerance that the working set must reach before the rest is looked at


def as_float64(X: np.ndarray) -> np.ndarray:
    """Return the table in float64, in the layout that it has."""
    return X.astype(np.float64, order="K", copy=False)


def column_means(X: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Return the (weighted) means of the columns, summed in float64."""
    if weight is None:
        return X.mean(axis=0, dtype=np.float64)
    return np.average(X, axis=0, weights=weight).astype(np.float64)


def offsets_are_small(X: np.ndarray, mean: np.ndarray) -> bool:
    """Whether eq. 6 loses few digits: the means are not much larger than the spread of some sixty samples."""
    spread = np.sqrt(np.square(X[:: max(1, len(X) // 64)] - mean).mean(axis=0))
    return bool((np.abs(mean) <= OFFSET[X.dtype.itemsize] * spread + (mean == 0)).all())


@njit(cache=True, fastmath=True, error_model="numpy")  # pragma: no cover
def _descend(G, c, w, y2, level, target, max_sweeps):
    """Sweep eq. 2 over the working set until its own gap, eq. 3, is below ``target``; return the gap."""
    m, gap = len(w), np.inf
    q = np.zeros(m)  # G w, without waking another library's threads
    for j in range(m):
        if w[j] != 0.0:
            for i in range(m):
                q[i] += w[j] * G[j, i]
    for sweep in range(max_sweeps):
        for j in range(m):
            if G[j, j] == 0.0:
                continue
            u = c[j] - q[j] + G[j, j] * w[j]
            new = max(abs(u) - level, 0.0) / G[j, j]
            new = new if u > 0 else -new
            change = new - w[j]
            if change != 0.0:
                w[j] = new
                row = G[j]
                for i in range(m):
                    q[i] += change * row[i]
        if sweep % 5 == 4:
            steepest, length, fit, curve = 0.0, 0.0, 0.0, 0.0
            for j in range(m):
                steepest = max(steepest, abs(c[j] - q[j]))
                length += abs(w[j])
                fit += c[j] * w[j]
                curve += q[j] * w[j]
            r2, yr = y2 - 2 * fit + curve, y2 - fit
            s = min(1.0, level / steepest) if steepest > 0 else 1.0
            gap = 0.5 * r2 + level * length - s * yr + 0.5 * s * s * r2
            if gap <= target:
                break
    return gap


def descend(G, c, w, y2, level, target):
    """Sweep, and jump whenever sweeps alone are slow, until the working set's gap is below ``target``; return the gap."""
    gap = _descend(G, c, w, y2, level, target, SWEEPS)
    best, stale, jumps, last = gap, 0, 0, 1
    while gap > target and jumps < JUMPS and stale < STALE:
        work = last * np.count_nonzero(w) ** 2 // len(w)  # sweeps that take as long as the last jumps
        gap = _descend(G, c, w, y2, level, target, max(BETWEEN, work))
        best, stale = (gap, 0) if gap < 0.9 * best else (best, stale + 1)
        last = 0
        while gap > target and last < JUMPS:
            last += 1
            if not _jump(G, c, w, level):
                break
        jumps += last
    return gap if gap <= target else _descend(G, c, w, y2, level, target, BETWEEN)


def _jump(G, c, w, level):
    """Move the weights that are not zero towards the minimum of (1) for their signs, to the least (1) on the way.

    On the line (1) is a parabola between the points where weights change their sign, and its slope grows there. Returns whether
    it ended at such a point: then that weight is zero, and the others may go on.
    """
    used = np.flatnonzero(w)
    A, x = G[np.ix_(used, used)], w[used]
    slope = A @ x - c[used] + level * np.sign(x)
    _, step, failed = dposv(A + np.diag(RIDGE * A.diagonal()), -slope) if len(used) else (A, x, True)
    if failed:  # the ridge is lost in rounding
        return False
    curve = max(step @ A @ step, TINY)  # none where features outnumber the samples
    turning = np.flatnonzero(x * step < 0)
    turning = turning[np.argsort(-x[turning] / step[turning])]
    times = -x[turning] / step[turning]
    slopes = slope @ step + np.concatenate([[0.0], 2 * level * np.abs(step[turning]).cumsum()])
    k = int(np.searchsorted(slopes[:-1] + times * curve, 0.0))  # both terms grow
    reached, last = -slopes[k] / curve, times[k - 1] if k else 0.0
    new = x + max(reached, last) * step
    if not np.isfinite(new).all():
        return False
    if k and reached <= last:
        new[turning[k - 1]] = 0.0
    w[used] = new
    return bool(k) and reached <= last


class Features:
    """The columns of a table as rows, read as they lie; centred and weighted when they are gathered.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The table, row- or column-major, float32 or float64.
    mean : ndarray of shape (d,), optional
        What is subtracted from each feature.
    root : ndarray of shape (n,), optional
        Square roots of the samples' weights.
    """

    def __init__(self, X: np.ndarray, mean: np.ndarray | None = None, root: np.ndarray | None = None) -> None:
        self.X = torch.from_numpy(X if X.flags.writeable else X.copy())
        self.n, self.d = X.shape
        self.mean = None if mean is None else torch.from_numpy(mean)
        self.root = None if root is None else torch.from_numpy(root)
        self.by_column = X.flags.f_contiguous

    def dot(self, r: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
        """Return the products of (some) features with a residual (n,) that is weighted and centred, eq. 6."""
        r = r if self.root is None else r * self.root
        few = index is not None and self.by_column and 4 * len(index) < self.d
        rows = self.X.T[index] if few else self.X.T
        g = (rows @ r.to(self.X.dtype)).double()
        return g if index is None or few else g[index]

    def take(self, index: torch.Tensor, out: torch.Tensor) -> None:
        """Write features into the rows of ``out`` (a, n)."""
        out.copy_(self.X.T[index] if self.by_column else self.X[:, index].T)
        if self.mean is not None:
            out -= self.mean[index, None]
        if self.root is not None:
            out *= self.root

    def norms(self) -> torch.Tensor:
        """Return the lengths of the features, rounded up: (4) may only be too careful."""
        squares = (
            self.X.square() if self.root is None else (self.X * self.root[:, None].to(self.X.dtype)).square()
        )
        lengths = squares.sum(0, dtype=torch.float64)
        if self.mean is None:
            return lengths.sqrt()
        total = self.n if self.root is None else float(self.root @ self.root)
        return (lengths * (1 + 1e-6) - total * self.mean.square()).clamp_min(0).sqrt()


class WorkingSet(Iteration):
    """Rounds of descent on a working set; ``solve`` for one level after another makes a path."""

    saved = ("active", "w", "G", "c", "gap", "inner", "kept")
    varying = {
        "active": Index("size", below="d"),
        "w": Array("size"),
        "G": Array("size", "size"),
        "c": Array("size"),
        "kept": Maybe(Either(Index(None, below="d"), Array("d", kind="b"))),
    }

    def __init__(self, features: Features, y: np.ndarray, level: float, tol: float, max_iter: int) -> None:
        super().__init__(max_iter)
        self.features, self.n, self.d = features, features.n, features.d
        self.y = torch.from_numpy(np.ascontiguousarray(y, np.float64))
        self.y2 = float(self.y @ self.y) / self.n
        self.target = tol * self.y2
        self.inner = INNER * self.target
        self.active = np.zeros(0, np.int64)
        self.w, self.G, self.c = np.zeros(0), np.zeros((0, 0)), np.zeros(0)
        self.level, self.gap = level, np.inf
        self.spent = self.stuck = False  # a descent that ended before its aim; and no features to take in
        self.room, self.filled = self.y.new_empty(0, self.n), 0
        self.kept: Any = None  # features that (4) has not ruled out
        self.slopes: Any = None  # |g| of those, at the last look

    @cached_property
    def norms(self) -> torch.Tensor:
        """Norms of the features; computed when (4) can first rule out anything."""
        return self.features.norms()

    def steepest(self) -> float:
        """Return the level from which on all weights are zero."""
        return float(self.features.dot(self.y).abs().max()) / self.n

    def solve(self, level: float) -> np.ndarray:
        """Return the weights for one level, from where the last one ended."""
        before, self.level, self.converged, rounds = self.level, level, False, 0
        self.stuck = False
        self.inner = INNER * self.target
        if self.slopes is not None and self.kept is None:
            self._foresee(2 * level - before)
        self.kept = None
        while not (self.converged or self.stuck) and rounds < self.max_iter:
            self.sweep()
            rounds += 1
        return self.weights()

    def weights(self) -> np.ndarray:
        """Return all weights (d,)."""
        w = np.zeros(self.d)
        w[self.active] = self.w
        return w

    def sweep(self) -> Metrics:
        """Descend on the working set, look at all features, and take in those that promise most."""
        if len(self.w):
            self.spent = descend(self.G, self.c, self.w, self.y2, self.level, self.inner) > self.inner
        g, r2, yr = self._look()
        g = self.slopes = g.abs()
        steepest = float(g.max()) if len(g) else 0.0
        s = min(1.0, self.level / steepest) if steepest > 0 else 1.0
        objective = 0.5 * r2 + self.level * float(np.abs(self.w).sum())
        self.gap = objective - s * yr + 0.5 * s * s * r2
        self.converged = self.gap <= self.target
        if not self.converged:
            self._extend(g, s)
        return {"objective": objective, "gap": max(self.gap, 0.0)}

    def _look(self) -> tuple[torch.Tensor, float, float]:
        """Return g of the features that are not ruled out, and the mean squares r·r and y·r."""
        r = self._residual()
        return self.features.dot(r, self.kept) / self.n, float(r @ r) / self.n, float(self.y @ r) / self.n

    def _residual(self) -> torch.Tensor:
        used = np.flatnonzero(self.w)
        rows = self._rows() if 2 * len(used) > len(self.w) else self._rows()[torch.from_numpy(used)]
        return self.y - rows.T @ torch.from_numpy(self.w if len(rows) == len(self.w) else self.w[used])

    def _extend(self, g: torch.Tensor, s: float) -> None:
        """Forget what (4) rules out, and take in the features that violate the optimum most."""
        index = torch.arange(self.d) if self.kept is None else self.kept
        reach = np.sqrt(2 * max(self.gap, 0.0) / self.n)
        if len(self.G) and np.sqrt(self.n * self.G.diagonal().min()) * reach < self.level:
            alive = s * g + self.norms[index] * reach >= self.level * (1 - 1e-6)
            if float(alive.double().mean()) < 0.8:
                index, g = index[alive], g[alive]
                self.kept = index
        index, g = self._unknown(index, g, self.level * (1 - 1e-6))
        if not len(index):
            self.inner *= 0.1  # nothing to add: the working set itself must be more exact
            self.stuck = self.spent
            return
        count = min(len(index), max(GROWTH, int(np.count_nonzero(self.w))))
        self._take_in(index[g.topk(count).indices].sort().values)

    def _foresee(self, threshold: float) -> None:
        """Add the features that the sequential strong rule keeps for the next penalty."""
        index, _ = self._unknown(torch.arange(self.d), self.slopes, threshold)
        if len(index):
            self._take_in(index)

    def _unknown(
        self, index: torch.Tensor, g: torch.Tensor, least: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features outside the working set whose slopes are above ``least``, and those."""
        fresh = g > least
        known = torch.zeros(self.d, dtype=torch.bool)
        known[torch.from_numpy(self.active)] = True
        fresh &= ~known[index]
        return index[fresh], g[fresh]

    def _take_in(self, new: torch.Tensor) -> None:
        old = self._rows()
        self.active = np.concatenate([self.active, new.numpy()])
        A = self._rows()[len(old) :]
        cross, own = (old @ A.T / self.n).numpy(), (A @ A.T / self.n).numpy()
        self.G = np.block([[self.G, cross], [cross.T, own]])
        self.c = np.concatenate([self.c, (A @ self.y / self.n).numpy()])
        self.w = np.concatenate([self.w, np.zeros(len(new))])

    def _rows(self) -> torch.Tensor:
        """Return the working set's features as rows, gathering those that are new (all, after a resume)."""
        wanted = len(self.active)
        if wanted > len(self.room):
            room = self.y.new_empty(max(2 * wanted, 4 * GROWTH), self.n)
            room[: self.filled] = self.room[: self.filled]
            self.room = room
        if wanted > self.filled:
            new = torch.from_numpy(self.active[self.filled :])
            self.features.take(new, self.room[self.filled : wanted])
            self.filled = wanted
        return self.room[:wanted]


class Path(WorkingSet):
    """A working set that knows its products with all features, eq. 5; in float32, which a path's tolerance allows."""

    def __init__(self, X: np.ndarray, y: np.ndarray, tol: float, max_iter: int) -> None:
        super().__init__(Features(X), y, 0.0, tol, max_iter)
        self.all = Rows(self.features.X.T.float().contiguous())
        self.first = self.features.dot(self.y) / self.n
        self.cross = torch.empty(0, self.d)

    def _look(self) -> tuple[torch.Tensor, float, float]:
        size = float(np.abs(self.w).sum() * np.linalg.norm(self.w) * self.G.diagonal().max(initial=0.0))
        if SINGLE * size > self.target:  # what rounding to float32 may change the gap by, once weights cancel
            return super()._look()
        g = self.first - (torch.from_numpy(self.w).float() @ self.cross).double()
        q = self.G @ self.w
        g[torch.from_numpy(self.active)] = torch.from_numpy(self.c - q)  # at the level itself: exact
        fit, curve = float(self.c @ self.w), float(q @ self.w)
        return g if self.kept is None else g[self.kept], self.y2 - 2 * fit + curve, self.y2 - fit

    def _foresee(self, threshold: float) -> None:
        super()._foresee(self.level)  # a look costs little: nothing is taken in on suspicion

    def _take_in(self, new: torch.Tensor) -> None:
        if len(new) < BATCH and self.kept is None:  # one pass over the data serves as many
            promise = self.slopes.clone()
            promise[torch.from_numpy(self.active)] = -1.0
            promise[new] = torch.inf
            new = promise.topk(min(BATCH, self.d - len(self.active))).indices.sort().values
        super()._take_in(new)
        fresh = self.all.dot(self._rows()[-len(new) :].float().T) / self.n
        self.cross = torch.cat([self.cross, fresh.T])


class FromSums(WorkingSet):
    """A working set that knows all products of features, from one pass over rows that stay on disk.

    Parameters
    ----------
    G : ndarray of shape (d, d)
        Mean products of the features.
    c : ndarray of shape (d,)
        Mean products of features and target.
    y2 : float
        Mean square of the target.
    n : int
        Number of rows.
    level, tol, max_iter
        As for :class:`WorkingSet`.
    """

    shares = True  # the pass over the rows

    def __init__(
        self, G: np.ndarray, c: np.ndarray, y2: float, n: int, level: float, tol: float, max_iter: int
    ) -> None:
        super().__init__(Features(np.zeros((n, 0))), np.zeros(0), level, tol, max_iter)
        self.d, self.y2, self.target = len(c), y2, tol * y2
        self.inner = INNER * self.target
        self.all, self.first = G, c

    @cached_property
    def norms(self) -> torch.Tensor:
        """Norms of the features."""
        return torch.from_numpy(np.sqrt(self.n * self.all.diagonal().clip(0)))

    def _look(self) -> tuple[torch.Tensor, float, float]:
        q = self.all[:, self.active] @ self.w
        fit, curve = float(self.c @ self.w), float(q[self.active] @ self.w)
        g = torch.from_numpy(self.first - q)
        return g if self.kept is None else g[self.kept], self.y2 - 2 * fit + curve, self.y2 - fit

    def _take_in(self, new: torch.Tensor) -> None:
        self.active = np.concatenate([self.active, new.numpy()])
        self.G = np.ascontiguousarray(self.all[np.ix_(self.active, self.active)])
        self.c = self.first[self.active]
        self.w = np.concatenate([self.w, np.zeros(len(new))])


class AllFeatures(FromSums):
    """The working set of small tables: all features, whose products take less time than a search among them."""

    def __init__(self, X: np.ndarray, y: np.ndarray, tol: float, max_iter: int) -> None:
        n = len(y)
        super().__init__(X.T @ X / n, X.T @ y / n, float(y @ y) / n, n, 0.0, tol, max_iter)
        self.active, self.G, self.c, self.w = np.arange(self.d), self.all, self.first, np.zeros(self.d)

    def steepest(self) -> float:
        """Return the level from which on all weights are zero."""
        return float(np.abs(self.first).max())

    def solve(self, level: float) -> np.ndarray:
        """Return the weights for one level, from where the last one ended."""
        self.gap = descend(self.G, self.c, self.w, self.y2, level, self.target)
        return self.w
