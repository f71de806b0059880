"""MovieLens 100k: every completer on one fixed split."""

from __future__ import annotations

from collections.abc import Callable
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

TEXT = """Root-mean-square error of predicted ratings on 10 % of them, held out at random with seed 0. Where a model has a rank or
a threshold, it is the best of those listed on another 10 % of the training part; then it is fitted to all of that. *SVD of
the residuals* takes unknown entries as zero after the baseline is taken off: the simplest use of an SVD. *NMF* knows that
they are missing. Seconds are those of the last fit alone."""


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
    """Choose, fit and test every family, and assert the floors."""
    R = sparse.csr_matrix(data.load("ml-100k").X)
    R.sort_indices()
    train, *test = split(R, 0)
    inner, *validation = split(train, 1)
    rows, found = [], {}
    for name, (make, settings) in FAMILIES.items():
        best = (
            min(settings, key=lambda s: error(make(*s), inner, *validation))
            if len(settings) > 1
            else settings[0]
        )
        start = perf_counter()
        model = make(*best).fit(train)
        seconds = perf_counter() - start
        found[name] = float(np.sqrt(np.mean((model.predict(test[0]) - test[1]) ** 2)))
        rows.append((name, ", ".join(map(str, best)) or "defaults", found[name], round(seconds, 2)))
    rows.sort(key=lambda row: row[2])
    draw(rows, found["`BiasBaseline`"], out / "movielens.png")
    headings = ("model", "setting chosen", "root-mean-square error", "seconds")
    page(out / "movielens.md", "MovieLens 100k", TEXT, headings, rows)
    base = found["`BiasBaseline`"]
    at_most(base, 0.95, "the baseline's error")
    for name in ("`ALS` with biases", "`SingularValueThresholding(bias=True)`", "SVD of the residuals"):
        at_most(found[name], min(0.935, base - 0.01), f"the error of {name}")
    at_most(found["`SingularValueProjection(bias=True)`"], base, "the error of projection")
    return found


def draw(rows: list[tuple[Any, ...]], base: float, path: Path) -> None:
    """Draw the errors as bars, with the baseline as a line."""
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    axes.barh(
        [row[0].replace("`", "") for row in rows][::-1], [row[2] for row in rows][::-1], color="tab:blue"
    )
    axes.axvline(base, color="tab:red", label="baseline")
    axes.set(xlabel="root-mean-square error, held out", xlim=(0.85, None), title="MovieLens 100k")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
