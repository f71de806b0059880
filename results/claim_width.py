"""Claim: the test error over the width of a network falls, rises to a peak where it can just fit the data, and falls again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from corollary import theory
from results._claims import panels, write
from results.tables import at_least, at_most

SEEDS = 5
N_TRAIN = 200
FEATURES = (20, 50, 100, 150, 180, 200, 220, 260, 400, 800, 2000, 4000)
NOISE = 0.2  # share of the training labels that are drawn anew, for the trained networks
WIDTHS = (1, 2, 4, 7, 10, 14, 20, 28, 40, 80, 160, 320)
STEPS = 2000
WEIGHT_DECAY = 0.0


def trained(width: int, seed: int) -> tuple[float, float]:
    """Return training and test error (squared) of a two-layer network after many steps of Adam on all the data."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    labels = y.copy()
    some = order[: int(NOISE * N_TRAIN)]
    labels[some] = rng.integers(10, size=len(some))
    A = torch.tensor((X - X.mean(0)) / X.std(), dtype=torch.float32)[order]
    Y, clean = (torch.eye(10)[torch.tensor(part[order])] for part in (labels, y))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        for _ in range(STEPS):
            optimizer.zero_grad()
            (net(A[:N_TRAIN]) - Y[:N_TRAIN]).square().sum(1).mean().backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        errors = (net(A) - Y).square().sum(1)[:N_TRAIN], (net(A) - clean).square().sum(1)[N_TRAIN:]
    return float(errors[0].mean()), float(errors[1].mean())


def run(out: Path) -> dict[str, Any]:
    """Measure random features and trained networks, draw both, and assert the two descents."""
    X, y = load_digits(return_X_y=True)
    fixed = theory.bounds.double_descent(
        X, np.eye(10)[y], FEATURES, n_train=N_TRAIN, repeats=SEEDS, random_state=0
    )
    errors = np.array([[trained(width, seed) for seed in range(SEEDS)] for width in WIDTHS])
    medians = np.median(errors, axis=1)
    figure, (left, right) = panels(2)
    left.loglog(fixed.sizes, fixed.test, marker=".", label="test")
    left.axvline(N_TRAIN, color="black", lw=0.8, ls=":")
    left.set(xlabel="random features", ylabel="squared error")
    right.loglog(WIDTHS, medians[:, 1], marker=".", label="test")
    right.loglog(WIDTHS, np.maximum(medians[:, 0], 1e-6), marker=".", label="training")
    right.axvline(N_TRAIN * 10 / 75, color="black", lw=0.8, ls=":")
    right.set(xlabel="width of a trained network")
    right.legend(frameon=False)
    peak = int(medians[:, 1].argmax())
    rise = [float(fixed.test.max() / end) for end in (fixed.test[:5].min(), fixed.test[-1])]
    trained_rise = [float(medians[peak, 1] / part) for part in (medians[: peak + 1, 1].min(), medians[-1, 1])]
    rows = [
        ("random features", s, float(a), float(b)) for s, a, b in zip(fixed.sizes, fixed.train, fixed.test)
    ]
    rows += [("trained", w, float(a), float(b)) for w, (a, b) in zip(WIDTHS, medians)]
    write(
        out,
        "claim_width",
        "Double descent over width",
        claim="The test error falls with the width, rises to a peak where the network can just fit the training data, "
        "and falls "
        "again beyond, below the first valley.",
        setting=f"{N_TRAIN} real digits to learn from, the others to test on, one-hot targets, squared error summed "
        f"over classes; "
        f"medians over {SEEDS} seeds, each with another division. Left: least-norm fits of random ReLU features. Right: both "
        f"layers trained ({STEPS} steps of Adam on all data), {NOISE:.0%} of the training labels drawn anew; the dotted lines "
        "are at as many features as samples, and at as many weights as targets.",
        found=f"random features peak at {fixed.peak} ({N_TRAIN} samples), {rise[0]:.1f} times the valley before and "
        f"{rise[1]:.1f} "
        f"times the widest; trained networks at width {WIDTHS[peak]}, {trained_rise[0]:.2f} and {trained_rise[1]:.2f} times.",
        change="`WEIGHT_DECAY = 0.3` flattens the peak of the trained networks.",
        headings=("network", "width", "training error", "test error"),
        rows=rows,
        figure=figure,
    )
    at_most(abs(fixed.peak / N_TRAIN - 1), 0.15, "relative distance of the peak from the number of samples")
    at_least(min(rise), 2.0, "height of the peak of random features")
    at_least(min(trained_rise), 1.1, "height of the peak of trained networks")
    return {"peak": fixed.peak, "height": rise, "trained peak": WIDTHS[peak], "trained height": trained_rise}
