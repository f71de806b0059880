"""Claim: with noisy labels the test error over the training time falls, rises while the noise is learned, and falls again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from results._claims import panels, spread, write
from results.tables import at_least, at_most

SEEDS = 5
N_TRAIN = 1000
WIDTH = 256
NOISE = 0.2
STEPS = 2500


def errors(seed: int, noise: float = NOISE) -> np.ndarray:
    """Return step, training error (of the noisy labels) and test error (of the clean ones) along the training."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    labels = y[order].copy()
    some = np.arange(int(noise * N_TRAIN))
    labels[some] = (labels[some] + rng.integers(1, 10, size=len(some))) % 10
    A = torch.tensor(X[order] / 16, dtype=torch.float32)
    noisy, clean = torch.tensor(labels), torch.tensor(y[order])
    at = {0, *np.unique(np.logspace(0, np.log10(STEPS), 60).astype(int))}
    found = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
        )
        optimizer = torch.optim.Adam(net.parameters(), 1e-3)
        for step in range(STEPS + 1):
            if step in at:
                with torch.no_grad():
                    said = net(A).argmax(1)
                wrong = (said[:N_TRAIN] != noisy[:N_TRAIN], said[N_TRAIN:] != clean[N_TRAIN:])
                found.append((step, *(float(w.double().mean()) for w in wrong)))
            rows = torch.tensor(rng.integers(N_TRAIN, size=128))
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(A[rows]), noisy[rows]).backward()
            optimizer.step()
    return np.array(found)


def shape(found: np.ndarray) -> tuple[float, float, float]:
    """Return the first valley, the peak after it, and the last value of the test error (means of neighbouring points)."""
    test = np.convolve(found[:, 2], np.ones(3) / 3, "valid")
    valley = int(test[: len(test) * 2 // 3].argmin())
    peak = valley + int(test[valley:].argmax())
    return float(test[valley]), float(test[peak]), float(test[-3:].mean())


def run(out: Path) -> dict[str, Any]:
    """Train with and without noise, draw both, and assert what was seen."""
    figure, axes = panels()
    runs = [errors(seed) for seed in range(SEEDS)]
    clean = errors(0, 0.0)
    for seed, found in enumerate(runs):
        axes.semilogx(found[1:, 0], found[1:, 2], color="C1", lw=1, label="test" if seed == 0 else None)
        axes.semilogx(found[1:, 0], found[1:, 1], color="C0", lw=1, label="training" if seed == 0 else None)
    axes.semilogx(clean[1:, 0], clean[1:, 2], color="grey", ls="--", label="test, without noise")
    axes.set(xlabel="updates", ylabel="error")
    axes.legend(frameon=False)
    found = [shape(part) for part in runs]
    rows = [(seed, *part) for seed, part in enumerate(found)]
    rise, fall = [peak - valley for valley, peak, _ in found], [peak - last for _, peak, last in found]
    write(
        out,
        "claim_epochs",
        "Double descent over epochs",
        claim="With some wrong labels, a wide network's test error falls, rises while the wrong labels are learned, "
        "and falls again.",
        setting=f"{N_TRAIN} real digits, {NOISE:.0%} of their labels wrong, the others to test on with right labels; "
        f"two hidden layers "
        f"of {WIDTH}, Adam, {STEPS} updates of 128 samples, {SEEDS} seeds, each with another division.",
        found=f"the first two thirds of it: the error rises by {spread([100 * r for r in rise])} points after its valley. It "
        f"falls by only {spread([100 * f for f in fall])} points after the peak: a second descent worth the name is not "
        "reproduced within this budget.",
        change="`NOISE = 0.0` takes the peak away, as the dashed line shows.",
        headings=("seed", "valley", "peak after it", "end"),
        rows=rows,
        figure=figure,
    )
    at_least(min(rise), 0.02, "rise after the valley")
    at_most(max(fall), 0.02, "second descent, which is said not to be there")
    return {"rise": rise, "fall": fall}
