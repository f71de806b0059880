"""Claim: stopping gradient descent after t steps of size η is a penalty of about 1/(ηt) on the squared weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from results._claims import panels, spread, write
from results.tables import at_most

SEEDS = 5
N_TRAIN = 150
TIMES = np.unique(np.logspace(0, 5, 60).astype(int))


def penalty(rate: float, t: int) -> float:
    """Return the penalty that t steps stand for."""
    return 1 / (rate * t)


def paths(seed: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Return the test errors along descent and ridge, that of neither, and how far descent is from its exact penalty."""
    X, y = load_diabetes(return_X_y=True)
    X = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    scaler = StandardScaler().fit(X[train])
    A, B = scaler.transform(X[train]), scaler.transform(X[test])
    mean, scale = y[train].mean(), y[train].std()
    a, b = (y[train] - mean) / scale, (y[test] - mean) / scale
    H, g = A.T @ A / N_TRAIN, A.T @ a / N_TRAIN
    values, Q = np.linalg.eigh(H)
    values = values.clip(0)
    rate, w = 1 / values[-1], np.zeros(len(g))
    errors, exact = [], 0.0
    for t in range(1, TIMES[-1] + 1):
        w = w - rate * (H @ w - g)
        if t in TIMES:
            ridge = np.linalg.solve(H + penalty(rate, t) * np.eye(len(g)), g)
            errors.append([np.mean((B @ v - b) ** 2) for v in (w, ridge)])
            left = (1 - rate * values) ** t  # what descent has not learned yet, direction by direction
            gain = np.where(values > 1e-12, (1 - left) / values.clip(1e-12), rate * t)
            exact = max(exact, float(np.abs(w - Q @ (gain * (Q.T @ g))).max()))
    found = np.array(errors)
    plain = float(np.mean((B @ np.linalg.pinv(A, rcond=1e-10) @ a - b) ** 2))
    return found[:, 0], found[:, 1], plain, exact


def run(out: Path) -> dict[str, Any]:
    """Measure both paths, draw one, and assert that their best errors are equal."""
    found = [paths(seed) for seed in range(SEEDS)]
    best = [float(stopped.min() / ridge.min()) for stopped, ridge, _, _ in found]
    worst = [float(np.max(np.maximum(stopped / ridge, ridge / stopped))) for stopped, ridge, _, _ in found]
    figure, axes = panels()
    stopped, ridge, plain, _ = found[0]
    axes.semilogx(TIMES, stopped, label="stopped after t steps")
    axes.semilogx(TIMES, ridge, ls="--", label="ridge with 1/(ηt)")
    axes.axhline(plain, color="grey", lw=0.8, ls=":", label="least squares")
    axes.set(xlabel="t", ylabel="test error / variance", ylim=(0.4, 1.3))
    axes.legend(frameon=False)
    rows = [
        (seed, float(s.min()), float(r.min()), p, int(TIMES[s.argmin()]), int(TIMES[r.argmin()]), worst[seed])
        for seed, (s, r, p, _) in enumerate(found)
    ]
    headings = (
        "seed",
        "best stopped",
        "best ridge",
        "neither",
        "best t",
        "best 1/(ηλ)",
        "largest ratio on the path",
    )
    write(
        out,
        "claim_early_stopping",
        "Early stopping is an L2 penalty",
        claim="On a quadratic loss, gradient descent from zero stopped after t steps of size η equals a quadratic "
        "penalty exactly "
        "(one factor per direction), and is close to the plain L2 penalty λ = 1/(ηt): the risks are within a factor 1.69.",
        setting=f"Diabetes with squares and products (65 features, {N_TRAIN} samples to learn from), least squares; {SEEDS} "
        "seeds, each with another division. Errors are on the rest, per variance of the targets.",
        found=f"best error of stopping over best error of ridge {spread(best)}; the largest ratio along the path "
        f"{max(worst):.3f} (claimed at most 1.69); the exact penalty differs from descent by {max(f[3] for f in found):.0e}.",
        change="`return 1 / (rate * t) ** 2` in `penalty` is another path.",
        headings=headings,
        rows=rows,
        figure=figure,
    )
    at_most(max(abs(value - 1) for value in best), 0.05, "difference of the best errors")
    at_most(max(worst), 1.69, "ratio of the errors along the path")
    at_most(max(f[3] for f in found), 1e-8, "deviation from the exact penalty")
    return {"best": best, "worst": worst}
