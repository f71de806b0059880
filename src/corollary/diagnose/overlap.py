"""Rows of validation that are rows of training too: equal ones, and copies with a little noise."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.baselines import scaled
from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import Samples
from corollary.diagnose.tables import dense

__all__ = ["overlap", "row_keys"]

FEW = 0.03  # of the rows, that come again in collections that nobody has tampered with: empty texts, posts sent twice


def row_keys(samples: Samples) -> np.ndarray | None:
    """Return a key per row that is equal for equal rows."""
    parts = _row_parts(samples)
    if not parts:
        return None
    joined = np.ascontiguousarray(np.concatenate(parts, 1))
    return (
        joined.view([("", joined.dtype)] * joined.shape[1]).ravel()
        if joined.shape[1] <= 64
        else np.array([hash(row.tobytes()) for row in joined])
    )


def _row_parts(samples: Samples) -> list[np.ndarray]:
    """Return every input that has rows, as a table."""
    parts = [t for _, t in samples.named if t.ndim and len(t) == samples.n and t.layout == torch.strided]
    return [t.detach().cpu().to(torch.float32).reshape(samples.n, -1).numpy() for t in parts]


def overlap(exam: Exam) -> None:
    """Validation rows that are training rows, beyond what repeats by itself."""
    s = exam.subject
    train, valid = s.all_train, s.all_valid
    if valid is None or not valid.n:
        return
    if train.whole or valid.whole:
        if train.n == valid.n and isinstance(train.y, Tensor) and isinstance(valid.y, Tensor):
            same = (train.counted & valid.counted).numpy()
            share = same.sum() / max(1, int(valid.counted.sum()))
            if 0.005 < share and not bool(train.counted.all()):
                said = f"{int(same.sum())} nodes are labelled in training and in validation"
                exam.find(
                    "train-test-overlap", share, said, where=f"nodes {np.flatnonzero(same)[:10].tolist()}"
                )
            if share > 0 or not bool(train.counted.all()):
                return
    a, b = row_keys(train), row_keys(valid)
    if a is None or b is None or a.dtype != b.dtype:
        return
    found = np.isin(b, a)
    if s.valid is s.all_valid:
        exam.facts["shared rows"] = np.flatnonzero(found)
    share = float(found.mean())
    unique, counts = np.unique(a, return_counts=True)
    repeats = 1 - len(unique) / len(a)  # rows that come again inside the training data
    inside = float(counts[counts > 1].sum() / len(a))
    exam.facts["overlap"], exam.facts["repeats"] = share, inside
    # a few rows come again in any collection; many do by chance only, and real numbers never do
    natural = inside < FEW or _must_repeat(train) or (_few_values(train) and _by_chance(train, inside))
    expected = inside if natural else 0.0
    extra = share - expected
    error = 3 * np.sqrt(max(expected * (1 - expected), 1e-6) / len(b))
    discrete = inside > 0.02
    if found.sum() >= 2 and extra > max(0.01, error, 0.5 * expected if discrete else 0.0):
        said = (
            f"{int(found.sum())} of {len(b)} validation rows are training rows ({share:.1%}); inside "
            f"training {inside:.1%} repeat"
        )
        exam.find("train-test-overlap", share, said, where=f"validation rows {np.flatnonzero(found)[:10].tolist()}",
                  evidence={"repeats": repeats})  # fmt: skip
        return
    if not exam.has("train-test-overlap"):
        _near_copies(exam)


def _must_repeat(samples: Samples) -> bool:
    """Whether there are more rows than combinations of the values that the columns have."""
    left = np.log(samples.n)
    for part in _row_parts(samples):
        for column in part.T:
            left -= np.log(len(np.unique(column)))
            if left < 0:
                return False
    return True


def _few_values(samples: Samples) -> bool:
    """Whether equal rows can come about by chance: words, or columns with few values each."""
    x = samples.x
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return True
    flat = dense(x[:2000]).reshape(min(len(x), 2000), -1)
    distinct = len(np.unique(flat, axis=0))
    values = np.sort([len(np.unique(column)) for column in flat[:, :200].T])[::-1]
    return bool(values[0] < max(12, 0.2 * distinct))


def _by_chance(samples: Samples, repeats: float) -> bool:
    r"""Whether rows with such columns repeat as often as these do: the chance that two agree in all columns.

    Two that agree in two columns agree in the next with :math:`\sum_{abc} p_{abc}^2 / \sum_{ab} p_{ab}^2`, of rows that differ;
    that columns further apart hang together, too, may make it a thousand times larger.
    """
    x = samples.x
    if not isinstance(x, Tensor):
        return True
    flat = np.unique(dense(x[:2000]).reshape(min(len(x), 2000), -1), axis=0)
    codes = np.stack([np.unique(c, return_inverse=True)[1] for c in flat.T], 1)
    chance = 1.0
    for j in range(codes.shape[1]):
        context = _agreeing(codes[:, max(0, j - 2) : j])
        chance *= _agreeing(codes[:, max(0, j - 2) : j + 1]) / context if context else 0.0
    return bool(1000 * samples.n * chance > repeats)


def _agreeing(codes: np.ndarray) -> int:
    """Return how many pairs of different rows agree in all columns."""
    if not codes.shape[1]:
        return len(codes) * (len(codes) - 1)
    counts = np.unique(codes, axis=0, return_counts=True)[1]
    return int((counts * (counts - 1)).sum())


def _near_copies(exam: Exam) -> None:
    """Copies with a little noise: nearer to a training row than training rows are to each other."""
    s = exam.subject
    if sum(t.ndim > 0 and len(t) == s.train.n for _, t in s.train.named) > 1:
        return  # one of several inputs is not the row
    x = s.train.x
    if (
        s.valid is None
        or not isinstance(x, Tensor)
        or not x.is_floating_point()
        or s.train.whole
        or s.valid.n < 20
    ):
        return
    a = dense(x).reshape(s.train.n, -1)
    b = dense(s.valid.x).reshape(s.valid.n, -1)
    if a.shape[1] != b.shape[1] or a.shape[1] < 2 or a.shape[1] > 4000:
        return
    a, b = scaled(a), scaled(b, a)
    index = NearestNeighbors(n_neighbors=2).fit(a)
    near = index.kneighbors(b, 1)[0][:, 0]
    inside = index.kneighbors(a[:600])[0][:, 1]
    typical = float(np.median(inside))
    limit = 0.1 * typical
    share, natural = float((near < limit).mean()), float((inside < limit).mean())
    count = int((near < limit).sum())
    if typical > 0 and count >= 3 and share > 0.015 + 2 * natural:
        said = (
            f"{share:.1%} of the validation rows lie ten times nearer to a training row than those to "
            f"each other ({natural:.1%})"
        )
        exam.find("train-test-overlap", share, said, where="near copies", sure=0.9)
