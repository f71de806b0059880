"""Claim: a code of a linear VAE collapses to its prior exactly if its direction varies less than the decoder's noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from corollary import VAE, Training
from results._claims import panels, write
from results.tables import at_least, at_most

EPOCHS = 500
NOISES = (0.2, 0.3, 0.4, 0.5, 0.7)
SEEDS = 3
LATENT = 20
USED = 0.05  # variance of a code's posterior mean, 1 - noise² / variance in theory, from which on it counts as in use


def active(X: np.ndarray, noise: float | None, seed: int) -> int:
    """Return how many directions of the code tell samples apart: the optimum does not care how the code is turned."""
    plan = Training(epochs=EPOCHS, learning_rate=1e-2, batch_size=128, schedule="cosine")
    options = {"likelihood": "gaussian", "noise": noise, "warmup": 0}
    model = VAE(LATENT, hidden_layer_sizes=(), training=plan, random_state=seed, **options).fit(X)
    return int((np.linalg.eigvalsh(np.cov(model.transform(X).T)) > USED).sum())


def run(out: Path) -> dict[str, Any]:
    """Count the codes for several noises, draw the counts, and assert that theory tells them."""
    X = (load_digits().data / 16).astype(np.float32)
    variances = np.sort(np.linalg.eigvalsh(np.cov(X.T)))[::-1]
    rows, wrong = [], []
    expected = [min(LATENT, int(((1 - USED) * variances > noise**2).sum())) for noise in NOISES]
    counts = [[active(X, noise, seed) for seed in range(SEEDS)] for noise in NOISES]
    for noise, want, found in zip(NOISES, expected, counts):
        wrong += [abs(count - want) for count in found]
        rows.append((noise, want, ", ".join(map(str, found)), LATENT - want))
    learned = [active(X, None, seed) for seed in range(SEEDS)]
    rows.append(("learned", LATENT, ", ".join(map(str, learned)), 0))
    figure, axes = panels()
    fine = np.linspace(min(NOISES), max(NOISES), 200)
    axes.step(
        fine, [min(LATENT, ((1 - USED) * variances > s**2).sum()) for s in fine], color="grey", label="theory"
    )
    for seed in range(SEEDS):
        axes.plot(NOISES, [count[seed] for count in counts], "o", mfc="none", label=f"seed {seed}")
    axes.set(xlabel="standard deviation of the decoder's noise", ylabel="codes in use")
    axes.legend(frameon=False)
    write(
        out,
        "claim_collapse",
        "Posterior collapse",
        claim="In a linear VAE whose decoder has noise of variance σ², exactly those codes stay in use whose "
        "principal direction of "
        "the data has a variance above σ²; the posterior of the others collapses to the prior. Nothing is wrong with the "
        "optimiser: it is the optimum of the bound.",
        setting=f"Digits, {LATENT} codes, linear encoder and decoder, {EPOCHS} epochs, {SEEDS} seeds. A code is "
        f"in use if the variance of its posterior mean over the data is above {USED} (1 for one that knows all).",
        found=f"{sum(w == 0 for w in wrong)} of {len(wrong)} counts are exactly those of theory, the others off by at most "
        f"{max(wrong)}; with learned noise {', '.join(map(str, learned))} of {LATENT} are in use.",
        change="`NOISES = (None,)` lets the noise be learned: then no code collapses.",
        headings=("noise", "variances above its square", "codes in use, by seed", "collapsed, in theory"),
        rows=rows,
        figure=figure,
    )
    at_most(max(wrong), LATENT // 10, "difference of a count from theory")
    at_least(sum(w == 0 for w in wrong) / len(wrong), 0.6, "share of exact counts")
    at_least(min(learned), LATENT - 1, "codes in use with learned noise")
    return {"wrong": wrong, "learned": learned}
