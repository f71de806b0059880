"""Faults of the data that are seen in the tables themselves: values, scales, columns, repeated rows, other distributions.

What needs a model to be seen (leaks, noise, missing signal, imbalance) is in ``labels``.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import ks_2samp
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from corollary.diagnose.arithmetic import overflow
from corollary.diagnose.baselines import scaled
from corollary.diagnose.exam import Exam
from corollary.diagnose.subject import IGNORED, Samples
from corollary.diagnose.tables import dense
from corollary.diagnose.trace import NORMS, WEIGHTED

__all__ = ["CHECKS"]

LARGE, SMALL = 8.0, 0.02  # sizes of an input beyond which it is looked at; between them a default start fits
PLAIN = 30.0  # from here on no confirmation is needed: the condition number is near a thousand
NEAR_ZERO = 1e-7
COMPARED = 700  # rows of each part


def _named(samples: Samples) -> list[tuple[str, Tensor]]:
    found = [(f"input {i}" if len(samples.args) > 1 else "X", a) for i, a in enumerate(samples.args)]
    found += list(samples.kwargs.items())
    return [(name, t) for name, t in found if isinstance(t, Tensor)]


# --- not finite ------------------------------------------------------------------------------------------


def not_finite(exam: Exam) -> None:
    """NaN or infinite values in inputs or targets."""
    s = exam.subject
    for part, samples in (("training", s.all_train), ("validation", s.all_valid)):
        if samples is None:
            continue
        for name, t in [*_named(samples), ("y", samples.y)]:
            if not isinstance(t, Tensor) or not t.is_floating_point() or t.layout != torch.strided:
                continue
            bad = ~torch.isfinite(t)
            count = int(bad.sum())
            if not count:
                continue
            where = f"{part} {name}"
            if t.ndim >= 2 and name != "y":
                columns = torch.nonzero(
                    bad.reshape(-1, t.shape[-1] if t.ndim != 4 else t[0].numel()).any(0)
                ).ravel()
                where += f", columns {columns[:8].tolist()}" if t.ndim == 2 else ""
            rows = torch.nonzero(bad.reshape(len(t), -1).any(1)).ravel() if t.ndim else torch.zeros(1)
            said = f"{count} of {t.numel()} values of the {where} are NaN or infinite, in {len(rows)} rows"
            exam.find(
                "not-finite-data", count / t.numel(), said, where=where, evidence={"rows": rows[:50].tolist()}
            )
            return


# --- scales ----------------------------------------------------------------------------------------------


def sizes(x: Tensor) -> np.ndarray:
    """Return the typical size of every feature: median and middle spread, which few extreme values do not move."""
    flat = columns(x)
    middle = np.median(flat, 0)
    low, high = np.percentile(flat, [10, 90], axis=0)
    spread = (high - low) / 2.56
    rare = spread <= 0
    spread = np.where(rare, flat.std(0), spread)
    return np.sqrt(middle**2 + spread**2)


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


def unscaled_inputs(exam: Exam) -> None:
    """Features whose size, where they enter the first weights, is far from one."""
    s = exam.subject
    x = s.train.x
    if not isinstance(x, Tensor) or not x.is_floating_point() or s.train.n < 4:
        return
    entering = x
    if exam.trace is not None:
        names = WEIGHTED | NORMS | {"matmul", "mm"}
        for c in exam.trace.calls:
            if c.name in names:
                if c.name in NORMS:
                    return
                if (
                    isinstance(c.entered, Tensor)
                    and c.entered.is_floating_point()
                    and c.name not in ("matmul", "mm")
                ):
                    entering = c.entered
                break
        if entering is not x and entering.shape[1:] != x.shape[1:]:
            entering = x if entering.numel() < x.numel() / 8 else entering
    if entering.ndim > x.ndim:
        entering = x
    typical = sizes(entering)
    typical = typical[typical > 0]
    if not len(typical):
        return
    largest, middle = float(typical.max()), float(np.median(typical))
    smallest = float(np.percentile(typical, 5))
    exam.facts["input size"] = [smallest, middle, largest]
    where = f"column {int(np.argmax(sizes(entering)))}" if entering.ndim == 2 else "X"
    said = f"features that enter the first weights are of size {smallest:.3g} to {largest:.3g}; a start expects about 1"
    repair = {"standardise_inputs": True}
    evidence = {"sizes": sizes(entering)[:200]}
    if largest > PLAIN or largest < SMALL / 10:
        exam.find("unscaled-inputs", largest, said, where=where, evidence=evidence, repair=repair)
    elif largest > LARGE or largest < SMALL:
        exam.facts["scale suspected"] = (largest, said, where, evidence, repair)


def unscaled_targets(exam: Exam) -> None:
    """Real targets that are far from the size of outputs at the start."""
    s = exam.subject
    y = s.train.y
    if s.task != "regression" or not isinstance(y, Tensor) or not y.is_floating_point():
        return
    y = y.reshape(len(y), -1).float()
    y = y[(y != IGNORED).all(1)]
    size = float(sizes(y).max())
    std = float(y.std(0, unbiased=False).max())
    exam.facts["target size"] = size
    large, small = size > 10, std < 0.02
    if not large and not small:
        return
    score = exam.valid_score if np.isfinite(exam.valid_score) else exam.score
    reachable = exam.baselines.score if exam.baselines is not None and exam.baselines.held else 0.5
    well = np.isfinite(score) and score > max(0.5, reachable - 0.1)
    if well:
        return  # the net undoes the scale itself
    said = (
        f"targets are of size {size:.3g} with deviation {std:.3g}; outputs start near 1, and explain "
        f"{score:.2f} of their variance"
    )
    exam.find("unscaled-targets", size if large else std, said, where="y", sure=1.0 if size > 30 or small else 0.85,
              repair={"standardise_targets": True})  # fmt: skip


# --- columns ---------------------------------------------------------------------------------------------


def _table(exam: Exam) -> np.ndarray | None:
    """Return the features of a table, of nodes, or the channels of sequences and images."""
    x = exam.subject.train.x
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2 or len(x) < 5:
        return None
    return columns(x, steps_last=exam.steps_last)


def _sparse(table: np.ndarray) -> bool:
    """Whether most entries are the same small number: pixels, counts, indicators."""
    low = table.min(0)
    return float((table == low).mean()) > 0.25


def constant_features(exam: Exam) -> None:
    """Columns that never change."""
    table = _table(exam)
    if table is None:
        return
    x = exam.subject.all_train.x
    full = dense(x) if x.ndim == 2 else table
    still = np.flatnonzero(np.ptp(full, axis=0) <= NEAR_ZERO * (1 + np.abs(full[0])))
    if not len(still) or len(still) == full.shape[1]:
        return
    rest = np.delete(full, still, axis=1)
    lowest = float(full.min())  # the background, which is zero only before pixels are shifted
    held = full[0, still]
    zero = still[(np.abs(held) < NEAR_ZERO) | (held <= lowest + NEAR_ZERO * (1 + abs(lowest)))]
    natural = _sparse(rest) or (x.ndim == 2 and _pixels(full))
    counted = np.setdiff1d(still, zero) if natural else still
    if natural and len(zero) and len(zero) > 0.5 * full.shape[1]:
        counted = still
    if not len(counted):
        return
    said = f"{len(counted)} of {full.shape[1]} columns have one value only"
    exam.find("constant-features", len(counted), said, where=f"columns {counted[:10].tolist()}",
              repair={"drop_columns": counted.tolist()})  # fmt: skip


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
    return float(max(across, down)) > 0.15 * alive


def duplicate_features(exam: Exam) -> None:
    """Columns that repeat another one, up to scale and sign."""
    table = _table(exam)
    if table is None or table.shape[1] < 2 or table.shape[1] > 3000:
        return
    x = exam.subject.train.x
    if x.ndim >= 4 and table.shape[1] <= 4:
        return  # grey images with three channels
    std = table.std(0)
    alive = np.flatnonzero(std > 1e-9 * (1 + np.abs(table).max(0)))
    z = (table[:, alive] - table[:, alive].mean(0)) / std[alive]
    few = np.array([len(np.unique(column[:500])) for column in table[:, alive].T])
    R = np.abs(z.T @ z / len(z))
    np.fill_diagonal(R, 0)
    R[few <= 2] = 0  # indicators of two categories mirror each other
    R[:, few <= 2] = 0
    pairs = np.argwhere(np.triu(R > 0.9995))
    limit = 0.9995
    if not len(pairs):
        return
    if _pixels(table) or (_sparse(table) and len(pairs) < 0.05 * len(alive)):
        return
    repeated = sorted({int(alive[j]) for _, j in pairs})
    said = f"{len(repeated)} of {table.shape[1]} columns repeat another one (correlation above {limit})"
    first = [[int(alive[i]), int(alive[j])] for i, j in pairs[:10]]
    exam.find(
        "duplicate-features", len(repeated), said, where=f"columns {first}", repair={"drop_columns": repeated}
    )


# --- rows ------------------------------------------------------------------------------------------------


def _keys(samples: Samples) -> np.ndarray | None:
    """Return a key per row that is equal for equal rows."""
    parts = [t for _, t in _named(samples) if t.ndim and len(t) == samples.n and t.layout == torch.strided]
    if not parts:
        return None
    flat = [
        np.ascontiguousarray(t.detach().cpu().to(torch.float32).reshape(samples.n, -1).numpy()) for t in parts
    ]
    joined = np.ascontiguousarray(np.concatenate(flat, 1))
    return (
        joined.view([("", joined.dtype)] * joined.shape[1]).ravel()
        if joined.shape[1] <= 64
        else np.array([hash(row.tobytes()) for row in joined])
    )


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
    a, b = _keys(train), _keys(valid)
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
    expected = (
        inside if _few_values(train) and _by_chance(train, inside) else 0.0
    )  # real numbers do not repeat by chance
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
    """Whether rows with such columns repeat as often as these do: the chance that two agree in all columns.

    Columns are taken as independent; that those of real data hang together may make it a thousand times larger.
    """
    x = samples.x
    if not isinstance(x, Tensor):
        return True
    flat = dense(x[:2000]).reshape(min(len(x), 2000), -1)
    agree = [np.log(np.square(np.unique(c, return_counts=True)[1] / len(c)).sum()) for c in flat.T]
    return bool(1000 * samples.n * np.exp(np.sum(agree)) > repeats)


def _near_copies(exam: Exam) -> None:
    """Copies with a little noise: nearer to a training row than training rows are to each other."""
    s = exam.subject
    if sum(t.ndim > 0 and len(t) == s.train.n for _, t in _named(s.train)) > 1:
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


# --- distributions ---------------------------------------------------------------------------------------


def shift(exam: Exam) -> None:
    """Validation inputs that can be told from training inputs, also where classes are as frequent as there."""
    s = exam.subject
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


def _apart(exam: Exam, rows_a: np.ndarray, rows_b: np.ndarray) -> tuple[float, float, int] | None:
    """Return AUC, largest distance and its column, if rows of training and of validation are told apart."""
    rng = np.random.default_rng(0)
    rows_a, rows_b = (np.sort(rng.choice(r, min(len(r), COMPARED), replace=False)) for r in (rows_a, rows_b))
    A, B = exam.reader(exam.subject.train, rows_a), exam.reader(exam.subject.valid, rows_b)
    if A.shape[1] != B.shape[1]:
        return None
    distance, column = _largest_distance(A, B)
    a, b = len(A) * independent(A), len(B) * independent(B)
    auc = _told_apart(A, B, blocked=a < 0.3 * len(A))
    noise = np.sqrt((a + b + 1) / (12 * a * b))  # of an AUC, under equality
    exam.facts["shift auc"], exam.facts["shift distance"] = auc, distance
    exam.facts["independent rows"] = [a, b]
    critical = 1.6 * np.sqrt((a + b) / (a * b)) * np.sqrt(1 + np.log(max(1, A.shape[1])) / 2)
    strong = auc - 0.5 > max(0.15, 4 * noise)
    single = distance > max(0.25, 1.5 * critical)
    return (auc, distance, column) if strong or single else None


def _once(samples: Samples) -> np.ndarray:
    """Return the rows that count, of equal ones the first: copies tell where they come from."""
    rows = np.flatnonzero(samples.counted.numpy())
    keys = None if samples.whole else _keys(samples)
    return rows if keys is None else np.intersect1d(rows, np.unique(keys, return_index=True)[1])


def _as_frequent(train: Samples, valid: Samples, rows_a: np.ndarray, rows_b: np.ndarray) -> np.ndarray | None:
    """Return rows of training with the classes as frequent as in validation; None without classes, or where one is missing."""
    if any(not isinstance(p.y, Tensor) or p.y.ndim != 1 or p.y.is_floating_point() for p in (train, valid)):
        return None
    ya, yb = train.y.cpu().numpy()[rows_a], valid.y.cpu().numpy()[rows_b]
    share = {c: float((yb == c).mean()) for c in np.unique(yb)}
    n = min((ya == c).sum() / share[c] for c in share)
    if n < max(30, 0.2 * len(ya)):
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


def _told_apart(A: np.ndarray, B: np.ndarray, blocked: bool = False) -> float:
    """Return the AUC of trees that tell the two apart, out of the bag; both as often.

    Where rows repeat their neighbours, trees learn from the outer halves and are asked about the inner ones.
    """
    if blocked:
        return _told_apart_in_blocks(A, B)
    X = np.concatenate([A, B])
    y = np.repeat([0, 1], [len(A), len(B)])
    model = ExtraTreesClassifier(
        60, bootstrap=True, oob_score=True, random_state=0, min_samples_leaf=5, class_weight="balanced"
    ).fit(X, y)
    p = np.nan_to_num(model.oob_decision_function_[:, 1], nan=0.5)
    order = p.argsort(kind="stable").argsort() + 1.0
    return float((order[y == 1].mean() - (len(B) + 1) / 2) / len(A))


def _told_apart_in_blocks(A: np.ndarray, B: np.ndarray) -> float:
    found = []
    for flip in (False, True):
        a, b = (A[::-1], B[::-1]) if flip else (A, B)
        n, m = len(a) // 2, len(b) // 2
        model = ExtraTreesClassifier(60, random_state=0, min_samples_leaf=5, class_weight="balanced")
        model.fit(np.concatenate([a[:n], b[:m]]), np.repeat([0, 1], [n, m]))
        p = model.predict_proba(np.concatenate([a[n:], b[m:]]))[:, 1]
        order = p.argsort(kind="stable").argsort() + 1.0
        k = len(b) - m
        found.append(float((order[len(a) - n :].mean() - (k + 1) / 2) / (len(a) - n)))
    return float(np.mean(found))


CHECKS = (
    not_finite, overflow, unscaled_inputs, unscaled_targets, constant_features, duplicate_features, overlap, shift,
)  # fmt: skip
