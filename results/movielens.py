"""MovieLens 100k: every completer on several random splits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

from corollary import (
    ALS,
    NMF,
    BiasBaseline,
    SingularValueProjection,
    SingularValueThresholding,
    TruncatedSVD,
    data,
)
from results.tables import at_most, page

SPLITS = 3
TEXT = f"""Root-mean-square error of predicted ratings on 10 % of them, held out at random: mean ± standard deviation over
{SPLITS} such splits, the same for all models. Where a model has a rank or a threshold, it is in every split the best of those
listed on another 10 % of the training part; then it is fitted to all of that. *SVD of the residuals* takes unknown entries as
zero after the baseline is taken off: the simplest use of an SVD. *NMF* knows that they are missing. Since the splits are of the
same ratings, the differences between two models are steadier than either error: the last column is the mean gain over the
baseline ± its deviation. Seconds are those of the last fit alone, on a busy machine."""


class Residual:
    """The baseline plus a truncated SVD of what it leaves, unknown entries as zeros."""

    def __init__(self, rank: int) -> None:
        self.base, self.svd = BiasBaseline(), TruncatedSVD(rank, random_state=0)

    def fit(self, R: sparse.csr_matrix) -> Residual:
        """Fit the ratings."""
        rows, columns = R.nonzero()
        rest = R.data - self.base.fit(R).predict(np.stack([rows, columns], 1))
        S = sparse.csr_matrix((rest, (rows, columns)), R.shape)
        self.left, self.right = self.svd.fit_transform(S), self.svd.components_
        return self

    def predict(self, pairs: np.ndarray) -> np.ndarray:
        """Return the ratings of (row, column) pairs."""
        low = np.einsum("nk,kn->n", self.left[pairs[:, 0]], self.right[:, pairs[:, 1]])
        return self.base.predict(pairs) + low


class Parts:
    """NMF of the known entries."""

    def __init__(self, rank: int, penalty: float) -> None:
        self.nmf = NMF(rank, init="random", alpha_W=penalty, max_iter=60, tol=0, random_state=0)

    def fit(self, R: sparse.csr_matrix) -> Parts:
        """Fit the ratings."""
        A = np.full(R.shape, np.nan)
        A[R.nonzero()] = R.data
        known = ~np.isnan(A).all(axis=0)
        self.mean, self.left = R.data.mean(), self.nmf.fit_transform(A[:, known])
        self.right = np.zeros((self.left.shape[1], R.shape[1]))
        self.right[:, known] = self.nmf.components_
        return self

    def predict(self, pairs: np.ndarray) -> np.ndarray:
        """Return the ratings of (row, column) pairs, at least 1 and at most 5; of unknown columns the mean."""
        low = np.einsum("nk,kn->n", self.left[pairs[:, 0]], self.right[:, pairs[:, 1]])
        return np.where(low > 0, low, self.mean).clip(1, 5)


def impute(threshold: float) -> SingularValueThresholding:
    """Return soft-impute on what the biases leave."""
    return SingularValueThresholding(threshold, bias=True, random_state=0)


FAMILIES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "`BiasBaseline`": (BiasBaseline, [()]),
    "`ALS` with biases": (ALS, [()]),
    "`SingularValueThresholding(bias=True)`": (impute, [(6.0,), (9.0,), (12.0,), (15.0,)]),
    "`SingularValueProjection(bias=True)`": (
        lambda rank, steps: SingularValueProjection(rank, bias=True, max_iter=steps, random_state=0),
        [(rank, steps) for rank in (2, 5, 10) for steps in (5, 10, 20, 50)],
    ),
    "SVD of the residuals": (Residual, [(4,), (8,), (12,), (16,)]),
    "`NMF` of the known entries": (Parts, [(k, a) for k in (3, 6) for a in (0.0, 2e-4, 1e-3)]),
}


def error(model: Any, known: sparse.csr_matrix, pairs: np.ndarray, values: np.ndarray) -> float:
    """Return the held-out root-mean-square error of a model fitted to ``known``."""
    predicted = model.fit(known).predict(pairs)
    return float(np.sqrt(np.mean((predicted - values) ** 2)))


def split(R: sparse.csr_matrix, seed: int) -> tuple[sparse.csr_matrix, np.ndarray, np.ndarray]:
    """Return nine tenths of the ratings, and pairs and values of the others."""
    pairs = np.stack(R.nonzero(), 1)
    held = np.random.default_rng(seed).random(len(pairs)) < 0.1
    kept = sparse.csr_matrix((R.data[~held], pairs[~held].T), R.shape)
    return kept, pairs[held], R.data[held]


def run(out: Path) -> dict[str, Any]:
    """Choose, fit and test every family on every split, and assert the floors."""
    R = sparse.csr_matrix(data.load("ml-100k").X)
    R.sort_indices()
    found: dict[str, list[float]] = {name: [] for name in FAMILIES}
    chosen: dict[str, list[Any]] = {name: [] for name in FAMILIES}
    seconds: dict[str, list[float]] = {name: [] for name in FAMILIES}
    for seed in range(SPLITS):
        train, *test = split(R, 2 * seed)
        inner, *validation = split(train, 2 * seed + 1)
        for name, (make, settings) in FAMILIES.items():
            trial = partial(_trial, make, inner, validation)
            best = min(settings, key=trial) if len(settings) > 1 else settings[0]
            start = perf_counter()
            model = make(*best).fit(train)
            seconds[name].append(perf_counter() - start)
            found[name].append(float(np.sqrt(np.mean((model.predict(test[0]) - test[1]) ** 2))))
            chosen[name].append(", ".join(map(str, best)) or "defaults")
    base = np.array(found["`BiasBaseline`"])
    rows = [
        (
            name,
            "; ".join(dict.fromkeys(chosen[name])),
            _shown(e),
            _shown(base - e),
            round(np.mean(seconds[name]), 2),
        )
        for name, e in sorted(found.items(), key=lambda item: np.mean(item[1]))
    ]
    means = {name: float(np.mean(errors)) for name, errors in found.items()}
    draw(found, out / "movielens.png")
    headings = ("model", "settings chosen", "root-mean-square error", "gain over the baseline", "seconds")
    page(out / "movielens.md", "MovieLens 100k", TEXT, headings, rows)
    at_most(means["`BiasBaseline`"], 0.955, "the baseline's error")
    for name in ("`ALS` with biases", "`SingularValueThresholding(bias=True)`", "SVD of the residuals"):
        at_most(means[name], min(0.94, base.mean() - 0.01), f"the error of {name}")
    at_most(means["`SingularValueProjection(bias=True)`"], base.mean(), "the error of projection")
    return means


def _trial(make: Callable[..., Any], inner: Any, validation: list[Any], setting: tuple[Any, ...]) -> float:
    return error(make(*setting), inner, *validation)


def _shown(values: Any) -> str:
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}"


def draw(found: dict[str, list[float]], path: Path) -> None:
    """Draw the mean errors as bars with their deviations, and the baseline as a line."""
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    names = sorted(found, key=lambda name: -np.mean(found[name]))
    means, spread = (
        [measure(found[name]) for name in names] for measure in (np.mean, partial(np.std, ddof=1))
    )
    axes.barh([name.replace("`", "") for name in names], means, xerr=spread, color="tab:blue")
    axes.axvline(np.mean(found["`BiasBaseline`"]), color="tab:red", label="baseline")
    axes.set(xlabel="root-mean-square error, held out", xlim=(0.85, None), title="MovieLens 100k")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
