"""Columns that never change, and columns that repeat another one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary.diagnose.exam import Exam
from corollary.diagnose.samples import Samples
from corollary.diagnose.tables import dense

__all__ = ["columns", "constant_features", "duplicate_features"]

NEAR_ZERO = 1e-7
FEW, EMPTY = 3, 0.1  # empty columns of counts, and their share of the others, that are worth a word
ROUNDED = 64.0  # units of the last place, by which copies of a column differ that were shifted and scaled
TELLS = 0.3  # correlation of the target with the difference of two columns, which rounding has none of
SIDE, STRIPE = 5, 0.2  # pixels of an image; of its lines, that no centred background leaves empty
# columns from which some words are absent by chance; deviations of a background below the mean
WORDS, ABOVE = (50, 0.05)
ALIKE = 0.15  # correlation of neighbouring columns: pixels


def columns(x: Tensor, most: int = 4000, steps_last: bool = False) -> np.ndarray:
    """Return a real input as (rows, features): channels of images and of sequences are features."""
    a = dense(x.movedim(1, 2) if steps_last and x.ndim == 3 else x)
    if a.ndim == 1:
        a = a[:, None]
    elif a.ndim == 3:
        a = a.reshape(-1, a.shape[-1])
    elif a.ndim >= 4:
        a = np.moveaxis(a, 1, -1).reshape(-1, a.shape[1])
    if len(a) > most:
        a = a[np.random.default_rng(0).choice(len(a), most, replace=False)]
    return a


def _table(exam: Exam) -> np.ndarray | None:
    """Return the features of a table, of nodes, or the channels of sequences and images."""
    x = exam.subject.train.x
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2 or len(x) < 5:
        return None
    return columns(x, steps_last=exam.steps_last)


def _joined(samples: Samples) -> bool:
    """Whether a matrix of pairs, such as an adjacency, or the edges of several graphs are among the inputs."""
    if samples.graphs is not None:
        return True
    others = [t for _, t in samples.named if t is not samples.x and t.ndim >= 2]
    return any(t.shape[-1] == t.shape[-2] for t in others)


def _sparse(table: np.ndarray) -> bool:
    """Whether most entries are the same small number: pixels, counts, indicators."""
    low = table.min(0)
    return float((table == low).mean()) > 0.25


def constant_features(exam: Exam) -> None:
    """Columns that never change, of any real input."""
    table = _table(exam)
    samples = exam.subject.all_train
    if table is not None:
        full = dense(samples.x) if samples.x.ndim == 2 else table
        still = _constant(full, samples.x.ndim == 2)
        if _joined(samples):
            still = still[full[0, still] != 1]  # sums of ones over neighbours count them
        _say_constant(exam, still, full.shape[1], "", {"drop_columns": still.tolist()})
        _stripes(exam, exam.subject.train.x)
    for name, t in _further(samples):
        if t.ndim == 2 and len(torch.unique(t)) > 2:  # no mask
            _say_constant(exam, _constant(dense(t), True), t.shape[1], f"{name}, ", {})


def _further(samples: Samples) -> Iterator[tuple[str, Tensor]]:
    """Go through the other real inputs: those of the rows, and tables that all rows share, such as features of nodes."""
    for name, t in samples.named if not samples.whole else ():
        if t is samples.x or t.ndim not in (2, 3) or t.layout != torch.strided or not t.is_floating_point():
            continue
        shared = t.ndim == 2 and len(t) > t.shape[1]  # not of all pairs of nodes
        if len(t) == samples.n or shared:
            yield name, t


def _say_constant(exam: Exam, still: np.ndarray, total: int, owner: str, repair: dict[str, Any]) -> None:
    if len(still):
        said = f"{len(still)} of {total} columns have one value only"
        where = f"{owner}columns {still[:10].tolist()}"
        exam.find("constant-features", len(still), said, where=where, repair=repair)


def _stripes(exam: Exam, x: Tensor) -> None:
    """Whole lines of pixels that never change, more than a background leaves so: between others, or on one side only."""
    if x.ndim != 4 or min(x.shape[2:]) < SIDE or exam.has("constant-features"):
        return
    still = (x.amax(0) - x.amin(0) <= NEAR_ZERO * (1 + x[0].abs())).all(0)
    for name, lines in (("rows", still.all(1)), ("columns", still.all(0))):
        alive = torch.nonzero(~lines)[:, 0].tolist()
        if not alive:
            return
        before, after = alive[0], len(lines) - 1 - alive[-1]
        between = int(lines.sum()) - before - after
        empty = max(between, abs(before - after))
        if empty > STRIPE * len(lines):
            at = torch.nonzero(lines)[:, 0].tolist()
            said = f"{len(at)} of {len(lines)} {name} of pixels have one value in all images, and not as a border has"
            exam.find("constant-features", len(at), said, where=f"{name} {at[:10]}")
            return


def _constant(full: np.ndarray, flat: bool) -> np.ndarray:
    """Return the columns that never change, without those of which that is natural: a background, or rare words."""
    still = np.flatnonzero(np.ptp(full, axis=0) <= NEAR_ZERO * (1 + np.abs(full[0])))
    if not len(still) or len(still) == full.shape[1]:
        return still[:0]
    rest = np.delete(full, still, axis=1)
    lowest = float(full.min())  # the background, which is zero only before pixels are shifted
    held = full[0, still]
    picture = flat and _pixels(full)
    none = (np.abs(held) < NEAR_ZERO) & (picture or not _standardised(full, rest))
    zero = still[none | (held <= lowest + NEAR_ZERO * (1 + abs(lowest)))]
    if not (_sparse(rest) or picture) or len(zero) > 0.5 * full.shape[1]:
        return still
    if flat and not picture and _never_by_chance(rest, len(zero)):
        return still
    return np.setdiff1d(still, zero)


def _standardised(full: np.ndarray, rest: np.ndarray) -> bool:
    """Whether a table of few columns has been standardised: what stands for nothing in the others is below zero, not at it."""
    often = (rest == rest.min(0)).mean(0) > 0.25
    return full.shape[1] < WORDS and bool(often.any()) and bool((rest.min(0)[often] < -ABOVE).all())


def _never_by_chance(rest: np.ndarray, empty: int) -> bool:
    """Whether more columns of counts or indicators are empty than chance leaves so.

    With :math:`f_1` and :math:`f_2` the numbers of columns that one and two rows fill, about
    :math:`f_1 (f_1 - 1) / (2 f_2 + 2)` more are filled by none (Chao's estimate). Pixels, which go with their neighbours,
    are no such columns: their border is empty by nature.
    """
    filled = (rest != 0).sum(0)
    once, twice = int((filled == 1).sum()), int((filled == 2).sum())
    z = (rest - rest.mean(0)) / rest.std(0)
    neighbours = float(np.mean(z[:, 1:] * z[:, :-1])) if rest.shape[1] > 1 else 1.0
    expected = once * (once - 1) / (2 * twice + 2)
    return empty >= max(FEW, EMPTY * rest.shape[1]) and empty > FEW * (1 + expected) and neighbours < ALIKE


def _pixels(full: np.ndarray) -> bool:
    """Whether the columns look like the pixels of an image: a square number of them, neighbours alike."""
    side = round(full.shape[1] ** 0.5)
    if side * side != full.shape[1] or side < 5:
        return False
    std = full.std(0)
    z = (full - full.mean(0)) / np.where(std > 1e-9, std, 1)
    z = z.reshape(len(z), side, side)
    alive = np.mean(std > 1e-9)
    across, down = np.mean(z[:, :, 1:] * z[:, :, :-1]), np.mean(z[:, 1:] * z[:, :-1])
    return float(max(across, down)) > ALIKE * alive


def duplicate_features(exam: Exam) -> None:
    """Columns that repeat another one, up to scale and sign, of any real input."""
    table, samples = _table(exam), exam.subject.train
    # grey images with three channels
    if table is not None and not (samples.x.ndim >= 4 and table.shape[1] <= 4):
        _repeated(exam, table, "")
    for name, t in _further(samples):
        if not exam.has("duplicate-features"):
            _repeated(exam, columns(t), f"{name}, ")


def _tells(exam: Exam, a: np.ndarray, b: np.ndarray, rounding: float) -> bool:
    """Whether the little by which two columns of a table differ, beyond rounding, goes with the target: then none is idle."""
    y = exam.subject.train.y
    if not isinstance(y, Tensor) or y.numel() != len(a) or exam.subject.train.x.ndim != 2:
        return False
    rest = a - (a @ b) / (b @ b) * b
    target = y.detach().float().cpu().numpy().reshape(-1)
    if (
        float(rest.std()) < max(NEAR_ZERO, rounding)
        or not np.isfinite(target).all()
        or float(target.std()) == 0
    ):
        return False
    return bool(abs(np.corrcoef(rest, target)[0, 1]) > max(TELLS, 5 / np.sqrt(len(a))))


def _repeated(exam: Exam, table: np.ndarray, owner: str) -> None:
    """Say which columns of a table repeat another one."""
    if table.shape[1] < 2 or table.shape[1] > 3000:
        return
    std = table.std(0)
    alive = np.flatnonzero(std > 1e-9 * (1 + np.abs(table).max(0)))
    z = (table[:, alive] - table[:, alive].mean(0)) / std[alive]
    few = np.array([len(np.unique(column[:500])) for column in table[:, alive].T])
    R = np.abs(z.T @ z / len(z))
    np.fill_diagonal(R, 0)
    R[few <= 2] = 0  # indicators of two categories mirror each other
    R[:, few <= 2] = 0
    pairs = np.argwhere(np.triu(R > 0.9995))
    last = ROUNDED * np.finfo(table.dtype).eps * (1 + np.abs(table[:, alive]).max(0) / std[alive])
    told = [_tells(exam, z[:, i], z[:, j], last[i] + last[j]) for i, j in pairs]
    pairs = pairs[~np.array(told, bool)] if not owner else pairs
    limit = 0.9995
    if not len(pairs):
        return
    if _pixels(table) or (_sparse(table) and len(pairs) < 0.05 * len(alive)):
        return
    repeated = sorted({int(alive[j]) for _, j in pairs})
    said = f"{len(repeated)} of {table.shape[1]} columns repeat another one (correlation above {limit})"
    first = [[int(alive[i]), int(alive[j])] for i, j in pairs[:10]]
    exam.find(
        "duplicate-features", len(repeated), said, where=f"{owner}columns {first}",
        repair={} if owner else {"drop_columns": repeated},
    )  # fmt: skip
