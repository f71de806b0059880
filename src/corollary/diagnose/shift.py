"""Validation inputs from another distribution: trees that tell them from training inputs, and single columns."""

from __future__ import annotations

import numpy as np
from scipy.stats import ks_2samp, rankdata
from sklearn.ensemble import ExtraTreesClassifier
from torch import Tensor

from corollary.diagnose.exam import Exam
from corollary.diagnose.overlap import row_keys
from corollary.diagnose.samples import Samples

__all__ = ["shift"]

COMPARED = 700  # rows of each part
CONSECUTIVE = 1000  # rows, as they stand, that tell whether each repeats the one before
FOLDS, TREES = 4, 120
WANDERS = 0.1  # of an AUC or a distance, by which validation is further from a series than its parts are from each other
SINGLE = 0.9  # of the parts of rows, from which they are taken for different ones
LUCK = 1.4  # times that of a given score is the deviation of one whose folds share the parts' chance differences (permuted rows)
WIDER = np.log(1.6)  # of the middle spread of a column, from which other values are usual there


def shift(exam: Exam) -> None:
    """Validation inputs that can be told from training inputs, also where classes are as frequent as there."""
    s = exam.subject
    if s.unseen:
        _unseen_classes(exam)
        return
    if s.valid is None or s.train.n < 20 or exam.has("not-finite-data"):
        return
    rows_a, rows_b = _once(s.train), _once(s.valid)
    if len(rows_b) < 15 or len(rows_a) < 15:
        return
    found = _apart(exam, rows_a, rows_b)
    if found is None or exam.has("train-test-overlap"):
        return
    matched = _as_frequent(s.train, s.valid, rows_a, rows_b)
    if matched is not None and _apart(exam, matched, rows_b) is None:
        return  # sampled by class, which is no shift
    auc, distance, column = found
    said = (
        f"training and validation inputs are told apart with AUC {auc:.2f}; feature {column} differs "
        f"most (KS {distance:.2f})"
    )
    exam.find("distribution-shift", auc, said, where=f"feature {column}", evidence={"distance": distance},
              sure=1.0 if auc > 0.7 or distance > 0.35 else 0.8)  # fmt: skip


def _unseen_classes(exam: Exam) -> None:
    """Classes of validation that the model has no output for."""
    unseen = exam.subject.unseen
    share, names = sum(unseen.values()), ", ".join(list(unseen)[:6]) + (", …" if len(unseen) > 6 else "")
    said = (
        f"{share:.1%} of the validation rows are of classes that the model has no output for ({names}); "
        "they were left out of all that follows"
    )
    exam.find("distribution-shift", share, said, where="validation targets", severity="error")


def _apart(exam: Exam, rows_a: np.ndarray, rows_b: np.ndarray) -> tuple[float, float, int] | None:
    """Return AUC, largest distance and its column, if rows of training and of validation are told apart."""
    rng = np.random.default_rng(0)
    parts = ((exam.subject.train, rows_a), (exam.subject.valid, rows_b))
    shares = [independent(exam.reader(p, np.sort(r)[:CONSECUTIVE])) for p, r in parts]
    known = [share * len(r) for share, r in zip(shares, (rows_a, rows_b))]
    rows_a, rows_b = (np.sort(rng.choice(r, min(len(r), COMPARED), replace=False)) for r in (rows_a, rows_b))
    A, B = exam.reader(exam.subject.train, rows_a), exam.reader(exam.subject.valid, rows_b)
    if A.shape[1] != B.shape[1]:
        return None
    distance, column = _largest_distance(A, B)
    a, b = (min(n, len(X) * independent(X)) for n, X in zip(known, (A, B)))
    blocked = a < 0.3 * len(A) or shares[0] < 0.3
    folds = [_apart_by_parts(p, r) for p, r in ((exam.subject.train, rows_a), (exam.subject.valid, rows_b))]
    auc = _told_apart(A, B, blocked, folds)
    noise = np.sqrt((a + b + 1) / (12 * a * b)) * (1.0 if blocked else LUCK)  # of an AUC, under equality
    exam.facts["shift auc"], exam.facts["shift distance"] = auc, distance
    exam.facts["independent rows"] = [a, b]
    critical = 1.6 * np.sqrt((a + b) / (a * b)) * np.sqrt(1 + np.log(max(1, A.shape[1])) / 2)
    strong = auc - 0.5 > max(0.15, 4 * noise)
    single = distance > max(0.25, 1.5 * critical)
    harmless = exam.score - exam.valid_score < WANDERS  # false of scores that are not known
    if blocked and harmless and (strong or single):
        auc_inside, inside = _inside(A)
        exam.facts["parts of training told apart"] = [auc_inside, inside]
        strong, single = strong and auc > auc_inside + WANDERS, single and distance > inside + WANDERS
    wide = None if blocked and harmless and _wanders(A) else _other_spread(A, B, a, b)
    if wide is not None and not (strong or single):
        exam.facts["other spread"] = wide
        distance, column = (
            max(distance, float(ks_2samp(A[:, wide], B[:, wide], method="asymp").statistic)),
            wide,
        )
    return (auc, distance, column) if strong or single or wide is not None else None


def _inside(A: np.ndarray) -> tuple[float, float]:
    """Return AUC and largest distance of the first and the last part of training: what a series drifts by on its way."""
    first, last = A[: len(A) // 2], A[len(A) // 2 :]
    return _told_apart(first, last, True), _largest_distance(first, last)[0]


def _wanders(A: np.ndarray) -> bool:
    """Whether the spread of a series changes from one half of training to the other."""
    half = len(A) // 2
    (wide, _), (other, _) = _spread(A[:half], half), _spread(A[half:], half)
    both = (wide > 0) & (other > 0)
    return bool((np.abs(np.log(other[both] / wide[both])) > WIDER).any())


def _other_spread(A: np.ndarray, B: np.ndarray, a: float, b: float) -> int | None:
    """Return the column whose middle spread differs most, if chance does not explain it; a column of few values has none."""
    few = np.array([min(len(np.unique(u)), len(np.unique(v))) < 0.5 * len(v) for u, v in zip(A.T, B.T)])
    (wide, error), (other, error_b) = _spread(A, a), _spread(B, b)
    alive = ~few & (wide > 0) & (other > 0)
    off = np.abs(np.log(np.where(alive, other, 1.0) / np.where(alive, wide, 1.0)))
    clear = alive & (off > WIDER) & (off > 6 * np.hypot(error, error_b))
    return int(np.where(clear, off, 0.0).argmax()) if clear.any() else None


def _spread(A: np.ndarray, n: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the ranges between the quantiles at a tenth and nine tenths, and the standard errors of their logarithms.

    A quantile at :math:`p` of :math:`n` numbers with density :math:`f` there has the standard error
    :math:`\sqrt{p (1 - p) / n} / f`; the density is that between the quantiles at :math:`p \pm 0.05`.
    """
    q = np.percentile(A, [5, 10, 15, 85, 90, 95], axis=0)
    wide = q[4] - q[1]
    error = np.sqrt(0.09 / max(n, 1.0)) * np.hypot(q[2] - q[0], q[5] - q[3]) / 0.1
    return wide, error / np.maximum(wide, 1e-12)


def _once(samples: Samples) -> np.ndarray:
    """Return the rows that count, of equal ones the first: copies tell where they come from."""
    rows = np.flatnonzero(samples.counted.numpy())
    keys = None if samples.whole else row_keys(samples)
    return rows if keys is None else np.intersect1d(rows, np.unique(keys, return_index=True)[1])


def _as_frequent(train: Samples, valid: Samples, rows_a: np.ndarray, rows_b: np.ndarray) -> np.ndarray | None:
    """Return rows of training with the classes as frequent as in validation; None without classes, or where one is missing."""
    if any(not isinstance(p.y, Tensor) or p.y.ndim != 1 or p.y.is_floating_point() for p in (train, valid)):
        return None
    ya, yb = train.y.cpu().numpy()[rows_a], valid.y.cpu().numpy()[rows_b]
    share = {c: float((yb == c).mean()) for c in np.unique(yb)}
    n = min((ya == c).sum() / share[c] for c in share)
    if n < max(30, 0.1 * len(ya)):
        return None
    rng = np.random.default_rng(0)
    return np.concatenate([rng.permutation(rows_a[ya == c])[: round(n * share[c])] for c in share])


def independent(X: np.ndarray) -> float:
    """Return the share of rows that count as independent: windows of one series, in their order, repeat each other.

    With the correlation r between neighbouring rows it is (1 - r) / (1 + r), of the columns' upper quartile of r:
    shifted windows of noise agree in their statistics only.
    """
    X = X.astype(np.float64)  # in single precision a constant column seems to vary with its mean's rounding
    std = X.std(0)
    varies = std > 1e-6 * (np.abs(X).max(0) + np.median(std))
    Z = (X - X.mean(0))[:, varies] / std[varies]
    if len(Z) < 10 or not Z.shape[1]:
        return 1.0
    r = float(np.percentile(np.abs((Z[1:] * Z[:-1]).mean(0)), 75))
    noise = 2 / np.sqrt(len(Z))
    return 1.0 if r < noise else float(np.clip((1 - r) / (1 + r), 0.02, 1.0))


def _largest_distance(A: np.ndarray, B: np.ndarray) -> tuple[float, int]:
    best, which = 0.0, 0
    order = np.argsort(-np.abs(A.mean(0) - B.mean(0)) / (A.std(0) + B.std(0) + 1e-9))[:40]
    spread = np.argsort(-np.abs(np.log((A.std(0) + 1e-9) / (B.std(0) + 1e-9))))[:20]
    for j in np.unique(np.concatenate([order, spread])):
        d = ks_2samp(A[:, j], B[:, j], method="asymp").statistic
        if d > best:
            best, which = float(d), int(j)
    return best, which


def _told_apart(
    A: np.ndarray, B: np.ndarray, blocked: bool = False, folds: list[np.ndarray | None] | None = None
) -> float:
    """Return the AUC of trees that tell the two apart, each fold by trees of the others, with as large a share of both in each.

    Out of a bag it would be wrong: trees that weigh few rows as much as many others hardly ever leave one of them out.
    Where rows repeat their neighbours, trees learn from the outer halves and are asked about the inner ones.
    """
    if blocked:
        return _told_apart_in_blocks(A, B)
    rng, found = np.random.default_rng(0), []
    known = folds is not None and any(f is not None for f in folds)
    number = 2 if known else FOLDS
    a, b = (
        rng.permutation(len(X)) % number if folds is None or folds[i] is None else folds[i]
        for i, X in enumerate((A, B))
    )
    for k in range(number):
        learned, asked = ((a >= 0) & (a != k), (b >= 0) & (b != k)), (a == k, b == k)
        found.append(_auc_of_trees(A[learned[0]], B[learned[1]], A[asked[0]], B[asked[1]], TREES // number))
    return float(np.mean(found))


def _apart_by_parts(samples: Samples, rows: np.ndarray) -> np.ndarray | None:
    """Return the half of each row where rows share parts, as pairs of few pictures do, -1 if its own lie in both; else None."""
    parts = [t for t in samples.args if isinstance(t, Tensor) and t.ndim > 1 and len(t) == samples.n]
    if (
        samples.whole
        or len(parts) < 2
        or len(parts) != len(samples.args)
        or len({t.shape for t in parts}) > 1
    ):
        return None
    flat = np.concatenate([t[rows].detach().cpu().reshape(len(rows), -1).numpy() for t in parts])
    which = np.unique(flat, axis=0, return_inverse=True)[1].reshape(len(parts), -1)
    if which.max() + 1 > SINGLE * which.size:
        return None
    half = np.random.default_rng(0).integers(0, 2, which.max() + 1)[which]
    fold = np.where((half == half[0]).all(0), half[0], -1)
    return fold if min((fold == 0).sum(), (fold == 1).sum()) >= 15 else None


def _auc_of_trees(A: np.ndarray, B: np.ndarray, new_a: np.ndarray, new_b: np.ndarray, trees: int) -> float:
    """Return how well trees that learned from the first two tell the other two apart."""
    model = ExtraTreesClassifier(trees, random_state=0, min_samples_leaf=5, class_weight="balanced")
    model.fit(np.concatenate([A, B]), np.repeat([0, 1], [len(A), len(B)]))
    order = rankdata(model.predict_proba(np.concatenate([new_a, new_b]))[:, 1])
    return float((order[len(new_a) :].mean() - (len(new_b) + 1) / 2) / len(new_a))


def _told_apart_in_blocks(A: np.ndarray, B: np.ndarray) -> float:
    found = []
    for a, b in ((A, B), (A[::-1], B[::-1])):
        n, m = len(a) // 2, len(b) // 2
        found.append(_auc_of_trees(a[:n], b[:m], a[n:], b[m:], 60))
    return float(np.mean(found))
