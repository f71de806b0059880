r"""What a place of a text tells by the words around it, where each place has a class of its own.

The number of a word says nothing, so simple models get what is known of it. With :math:`n_{o,w,k}` places of class :math:`k`
that have word :math:`w` at offset :math:`o`, and :math:`p_k` the share of the class, a place gets for each offset

.. math:: f_{o,k}(w) = \frac{n_{o,w,k} + a \, p_k}{\sum_j n_{o,w,j} + a}, \tag{1}

counted on other samples: for a training place on those of other folds, for a validation place on all of training. Rare words
tell little more than :math:`p`. Of many offsets those are kept whose frequencies foretell held-out classes best, of many
classes the directions in which the frequencies of words differ most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corollary.diagnose.samples import IGNORED

__all__ = ["Words", "told"]

FOLDS = 5
PRIOR = 3.0  # places that the shares of the classes stand for, a in eq. 1
WORDS, CLASSES = 2000, 64  # that are told apart, the most frequent
# that are kept: those that tell most, and those next to the place, which may tell together only
OFFSETS, NEAR = (6, 1)
NUMBERS = 6  # of an offset
OUTSIDE, RARE = 0, 1  # codes of what lies outside of a sample, and of words that are not told apart


class Words(NamedTuple):
    """Places of texts: all texts and their classes (n, steps), the places (m, 2) looked at, and the offsets around them."""

    x: np.ndarray
    y: np.ndarray
    at: np.ndarray
    offsets: range


class Codes:
    """Numbers of the words and classes that are told apart."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        ids, counts = np.unique(x, return_counts=True)
        self.ids = np.sort(ids[np.argsort(-counts, kind="stable")[:WORDS]])
        classes, counts = np.unique(y, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:CLASSES]
        self.classes = np.sort(classes[order])

    def words(self, x: np.ndarray, at: np.ndarray, offset: int) -> np.ndarray:
        """Return the codes of the words at an offset from places."""
        place = at[:, 1] + offset
        inside = (place >= 0) & (place < x.shape[1])
        found = x[at[:, 0], np.where(inside, place, 0)]
        index = np.searchsorted(self.ids, found).clip(0, len(self.ids) - 1)
        known = np.where(self.ids[index] == found, index + 2, RARE)
        return np.where(inside, known, OUTSIDE)

    def labels(self, y: np.ndarray) -> np.ndarray:
        """Return the codes of classes; those that are not told apart have the last one."""
        index = np.searchsorted(self.classes, y).clip(0, len(self.classes) - 1)
        return np.where(self.classes[index] == y, index, len(self.classes))


def told(train: Words, valid: Words | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return what is known of the words around places, and the same of validation as counted on training."""
    at = np.argwhere(train.y != IGNORED)
    y = train.y[tuple(at.T)]
    codes = Codes(train.x[np.unique(at[:, 0])], y)
    labels = codes.labels(y)
    folds = np.random.default_rng(0).permutation(len(train.x)) % FOLDS
    k = len(codes.classes) + 1
    prior = (np.bincount(labels, minlength=k) + 1.0) / (len(labels) + k)
    parts: dict[int, tuple[float, np.ndarray, np.ndarray | None]] = {}
    for o in train.offsets:
        words = codes.words(train.x, at, o)
        size = len(codes.ids) + 2
        cell = (folds[at[:, 0]] * size + words) * k + labels
        n = np.bincount(cell, minlength=FOLDS * size * k).reshape(FOLDS, size, k).astype(np.float64)
        everywhere, elsewhere = _shares(n.sum(0), prior), _shares(n.sum(0) - n, prior)
        gained = np.log(elsewhere[folds[at[:, 0]], words, labels] / prior[labels]).mean()
        Q = _directions(everywhere - prior, n.sum((0, 2)))
        mine = (elsewhere[folds[train.at[:, 0]], codes.words(train.x, train.at, o)] - prior) @ Q
        other = None if valid is None else (everywhere[codes.words(valid.x, valid.at, o)] - prior) @ Q
        parts[o] = float(gained), mine, other
    best = sorted(parts, key=lambda o: -parts[o][0])[:OFFSETS]
    chosen = [o for o in parts if (o in best and parts[o][0] > 0) or abs(o) <= NEAR]
    S = np.concatenate([*(parts[o][1] for o in chosen), train.at[:, 1:]], 1)
    if valid is None:
        return S, None
    return S, np.concatenate([*(parts[o][2] for o in chosen), valid.at[:, 1:]], 1)  # type: ignore[misc]


def _shares(n: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Return the shares of the classes by word, eq. 1."""
    return (n + PRIOR * prior) / (n.sum(-1, keepdims=True) + PRIOR)


def _directions(rest: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the directions in which the shares of words differ most; all classes where they are few."""
    k = rest.shape[1]
    if k - 1 <= NUMBERS:
        return np.eye(k)[:, : k - 1]
    return np.linalg.svd(rest * np.sqrt(counts)[:, None], full_matrices=False)[2][:NUMBERS].T
