"""Simple models on simple features: what can be learned from these data at all.

Trees, neighbours and a line are fitted to the training rows; each is scored on rows it did not see (out of the bag, leaving
one out) and on the validation rows. Inputs of any kind become a table first (``tables``).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.samples import IGNORED, Samples
from corollary.diagnose.tables import Reader
from corollary.diagnose.windows import (
    Places,
    Reach,
    places_of,
    windows,
    words_around,
)
from corollary.diagnose.words import Words, told

__all__ = ["Baselines", "Problem", "baselines", "foretells", "line", "problem"]

ROWS = 1200  # rows of the simple models
NEIGHBOURS = 7
WINDOW = 40  # columns of the window around a position, at most
ROUNDING = 1e-6  # of a column's size, that single precision may add to a constant


@dataclass
class Problem:
    """A table with targets: rows are samples, or positions of samples where each has a target of its own."""

    X: np.ndarray
    y: np.ndarray
    classes: bool
    rows: np.ndarray  # which sample each row comes from
    places: np.ndarray | None = None  # which place of it, along each side
    words: Words | None = None  # of texts, what simple models look at in the stead of the table


def problem(
    samples: Samples, task: str, reader: Reader, seed: int = 0, rows: np.ndarray | None = None
) -> Problem | None:
    """Return the task as a table, or None where there are no targets."""
    y = samples.y
    if not isinstance(y, Tensor) or not y.ndim or samples.n < 8:
        return None
    rng = np.random.default_rng(seed)
    counted = np.flatnonzero(samples.counted.numpy()) if rows is None else rows
    if len(counted) > ROWS:
        counted = np.sort(rng.choice(counted, ROWS, replace=False))
    y = y.detach().cpu()
    classes = task in ("classes", "binary", "multilabel", "embedding", "ordinal") or (
        not y.is_floating_point() and len(torch.unique(y)) <= max(20, int(0.05 * len(y)))
    )
    x = samples.x
    soft = y.is_floating_point() and task == "classes"
    if classes and y.ndim > 1 + soft and y[0].numel() > 1 and isinstance(x, Tensor) and not samples.whole:
        table = task == "multilabel" and x.ndim < 3  # as many labels as columns
        local = None if table else _positions(samples, task, reader.steps_last, counted, rng)
        if local is not None:
            return local
    if classes and y.ndim > 1 and not soft and y[0].numel() > 1:
        y = y.reshape(len(y), -1)
        y = y[:, reader.one_column(y)]
    elif classes and y.is_floating_point() and y.ndim == 2 and y.shape[1] > 1:
        y = y.argmax(1)
    y = y.reshape(len(y), -1).numpy()
    if classes:
        target = y[counted, 0]
        target = np.round(target).astype(int)
    else:
        target = y[counted].astype(np.float64)
        target = (reader.one_target(target) if target.shape[1] > 1 else target).reshape(len(counted))
    keep = np.isfinite(target) & (target != IGNORED)
    X = reader(samples, counted)
    return Problem(X[keep], target[keep], classes, counted[keep])


def _positions(
    samples: Samples, task: str, steps_last: bool, rows: np.ndarray, rng: np.random.Generator
) -> Problem | None:
    """Return windows around places, where every place has a class."""
    x, y = samples.x.detach().cpu(), samples.y.detach().cpu()
    found = next((f for last in (steps_last, not steps_last) if (f := places_of(x, y, task, last))), None)
    if found is None:
        return None
    rows, sides = rows[:400], found.sides
    some = torch.as_tensor(rows)
    found = found._replace(classes=True)  # of numbers that are few, too
    near = found._replace(x=found.x[some], y=found.y[some].round().long())
    target = near.y.reshape(-1).numpy()
    keep = np.flatnonzero(target != IGNORED)
    keep = np.sort(rng.choice(keep, min(len(keep), 2 * ROWS), replace=False))
    at = np.stack(np.unravel_index(keep, (len(rows), *sides)), 1)
    reach = _reach(found, foretells(x, y))
    X = np.nan_to_num(windows(near, at, reach)[:, : -len(sides)])
    at[:, 0] = rows[at[:, 0]]
    return Problem(X, target[keep], True, at[:, 0], at[:, 1:], words_around(found, at, reach))


def _reach(found: Places, next_word: bool) -> Reach:
    """Return how far a window reaches; the next word is not to be looked at."""
    if len(found.sides) == 2:
        return ((3, 3), (3, 3))
    steps, width = found.sides[0], found.x.shape[2]
    if found.words:
        half = min(16, steps - 1)
    else:
        half = next((h for h in (16, 8, 4) if (2 * h + 1) * width <= WINDOW and h <= steps // 2), 4)
    return ((2 * half, 0),) if next_word else ((half, half),)


def foretells(x: Any, y: Any) -> bool:
    """Whether targets are the next inputs, where they are counted; steps come second, or last behind channels."""
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or y.ndim not in (2, 3) or x.shape != y.shape:
        return False
    for steps in range(1, y.ndim):
        n = y.shape[steps] - 1
        now, following = y.narrow(steps, 0, n), x.narrow(steps, 1, n)
        if bool((following == now)[now != IGNORED].float().mean() > 0.9):
            return True
    return False


# --- simple models ---------------------------------------------------------------------------------------


@dataclass
class Baselines:
    """Scores of the simple models: on rows of training they did not see, and on validation."""

    problem: Problem
    chance: float  # score of a constant answer
    valid_chance: float = float("nan")  # the same on validation, where classes may be as frequent or not
    held: dict[str, float] = field(default_factory=dict)  # out of sample, within the training data
    valid: dict[str, float] = field(default_factory=dict)
    guesses: dict[str, np.ndarray] = field(default_factory=dict)  # out-of-sample probabilities or numbers
    valid_guesses: dict[str, np.ndarray] = field(default_factory=dict)
    valid_problem: Problem | None = None
    labels: np.ndarray | None = None

    @property
    def best(self) -> str:
        """The model that does best out of sample."""
        return max(self.held, key=lambda k: self.held[k])

    @property
    def score(self) -> float:
        """Its score."""
        return self.held[self.best] if self.held else float("nan")

    @property
    def valid_score(self) -> float:
        """The best score on validation of those models."""
        return max(self.valid.values()) if self.valid else float("nan")

    @property
    def reached(self) -> float:
        """What the best of them gains on validation, as a share of what is possible there."""
        return (self.valid_score - self.valid_chance) / max(1e-9, 1 - self.valid_chance)

    @property
    def error(self) -> float:
        """The standard error of a score at chance."""
        n = max(2, len(self.problem.y))
        if not self.problem.classes:
            return float(np.sqrt(2 / n))
        return float(np.sqrt(self.chance * (1 - self.chance) / n))

    @property
    def balanced(self) -> float:
        """The mean recall of the best of them, on rows it did not see."""
        y = self.problem.y
        found = [self.labels[g.argmax(1)] for g in self.guesses.values()]
        return max(float(np.mean([(said[y == k] == k).mean() for k in self.labels])) for said in found)

    @property
    def gain(self) -> float:
        """The score above chance, as a share of what is possible."""
        return (self.score - self.chance) / max(1e-9, 1 - self.chance)


def scaled(X: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
    """Return columns by their scale, cut at five deviations; one that differs by rounding only is zero."""
    like = np.asarray(X if like is None else like, np.float64)
    mean, std = like.mean(0), like.std(0)
    varies = std > ROUNDING * np.abs(mean) + 1e-12
    return np.where(varies, np.clip((X - mean) / np.where(varies, std, 1), -5, 5), 0.0)


def baselines(
    train: Problem, valid: Problem | None = None, trees: int = 40, quick: bool = False
) -> Baselines:
    """Fit the simple models and score them."""
    y = train.y
    labels = np.unique(y) if train.classes else None
    found = Baselines(
        train, _chance(train), float("nan") if valid is None else _chance(valid), valid_problem=valid, labels=labels
    )  # fmt: skip
    if len(y) < 8 or (train.classes and len(labels) < 2):
        return found
    X, U = train.X, None if valid is None else valid.X
    if train.words is not None:
        X, U = told(train.words, None if valid is None else valid.words)
    S, V = scaled(X), None if U is None else scaled(U, X)
    if valid is not None and V.shape[1] != S.shape[1]:
        valid = V = None
    target = _codes(y, labels) if train.classes else (y - y.mean())[:, None]
    for name, fit in (("trees", _trees), ("neighbours", _near), ("line", line)):
        if quick and name == "line":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inside, outside = fit(S, V, y, target, labels, trees)
        _note(found, name, inside, outside, valid)
    return found


def _chance(p: Problem) -> float:
    """Return the score of a constant answer: the share of the commonest class, nothing of the variance of numbers."""
    return float(np.unique(p.y, return_counts=True)[1].max() / len(p.y)) if p.classes and len(p.y) else 0.0


def _note(
    found: Baselines, name: str, inside: np.ndarray, outside: np.ndarray | None, valid: Problem | None
) -> None:
    y, labels = found.problem.y, found.labels
    found.guesses[name] = inside
    found.held[name] = score_of(inside, y, labels)
    if outside is not None and valid is not None:
        found.valid_guesses[name] = outside
        found.valid[name] = score_of(outside, valid.y, labels)


def score_of(guess: np.ndarray, y: np.ndarray, labels: np.ndarray | None) -> float:
    """Return the accuracy of probabilities, or the share of variance that numbers explain."""
    if labels is not None:
        return float((labels[guess.argmax(1)] == y).mean())
    keep = np.isfinite(guess)
    return 1 - float(np.square(guess[keep] - y[keep]).mean()) / max(1e-300, float(np.var(y)))


def _codes(y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (y[:, None] == labels[None]).astype(np.float64)


def _trees(
    S: Any, V: Any, y: Any, target: Any, labels: Any, trees: int
) -> tuple[np.ndarray, np.ndarray | None]:
    options = {
        "n_estimators": trees,
        "bootstrap": True,
        "oob_score": True,
        "random_state": 0,
        "min_samples_leaf": 2,
    }
    wide = S.shape[1] > 60
    if labels is not None:
        model = ExtraTreesClassifier(**options, max_features="sqrt").fit(S, y)
        inside = np.nan_to_num(model.oob_decision_function_, nan=1 / len(labels))
        return inside, None if V is None else model.predict_proba(V)
    model = ExtraTreesRegressor(**options, max_features=0.33 if wide else 1.0).fit(S, y)
    return model.oob_prediction_, None if V is None else model.predict(V)


def _near(
    S: Any, V: Any, y: Any, target: Any, labels: Any, trees: int
) -> tuple[np.ndarray, np.ndarray | None]:
    k = min(NEIGHBOURS, len(S) - 1)
    index = NearestNeighbors(n_neighbors=k).fit(S)
    inside = target[index.kneighbors(return_distance=False)].mean(1)
    outside = None if V is None else target[index.kneighbors(V, return_distance=False)].mean(1)
    if labels is None:
        return inside[:, 0] + y.mean(), None if outside is None else outside[:, 0] + y.mean()
    return inside, outside


def line(
    S: Any, V: Any, y: Any, target: Any, labels: Any, trees: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Ridge regression, out of sample by the leverages; for classes on their indicators."""
    n, d = S.shape
    D = np.concatenate([S, np.ones((n, 1))], 1)
    best, chosen = None, None
    for penalty in (1e-2 * n, 1e-1 * n, n) if d > n / 4 else (1e-3 * n, 1e-1 * n):
        G = D.T @ D
        G[np.diag_indices(d)] += penalty
        H = np.linalg.solve(G, D.T)
        W = H @ target
        leverage = np.einsum("nd,dn->n", D, H)
        inside = D @ W
        inside = (inside - leverage[:, None] * target) / np.maximum(1e-6, 1 - leverage)[:, None]
        loss = float(np.square(inside - target).mean())
        if best is None or loss < best:
            best, chosen = loss, (inside, W)
    inside, W = chosen
    outside = None if V is None else np.concatenate([V, np.ones((len(V), 1))], 1) @ W
    if labels is None:
        return inside[:, 0] + y.mean(), None if outside is None else outside[:, 0] + y.mean()
    return inside, outside
