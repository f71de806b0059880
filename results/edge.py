"""Claim: full-batch descent on a network sharpens it up to 2 over the step size, and stays there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from corollary import plot, theory
from results.tables import at_most, page

RATES = (0.1, 0.2)
SEEDS = 2
STEPS = 400
TEXT = """The claim: gradient descent on all the data raises the largest eigenvalue of the Hessian until it is 2/η, where a
quadratic would be at the limit of stability, and then keeps it there. A tanh net (64-24-10) on 300 digits, squared error
on one-hot targets summed over classes, {steps} steps, {seeds} seeds for each step size. *Settled* is the median sharpness
over the last third of the training, times η/2: the claim is 1. To see it break, lower η until {steps} steps end before the
sharpness arrives."""


def run(out: Path) -> dict[str, Any]:
    """Measure, draw the first, and assert that all settle near the limit."""
    X, y = load_digits(return_X_y=True)
    X, Y = X[:300].astype(np.float32) / 16, np.eye(10, dtype=np.float32)[y[:300]]
    rows, first = [], None
    for rate in RATES:
        for seed in range(SEEDS):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                net = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10))
            found = theory.edge_of_stability(
                net, (X, Y), loss="squared", learning_rate=rate, steps=STEPS, every=10
            )
            first = first or found
            rows.append(
                (rate, seed, float(found.sharpness[0]), found.limit, found.settled, float(found.losses[-1]))
            )
    plot.save(plot.sharpness(first), out / "edge.png")
    headings = ("step size", "seed", "sharpness at the start", "2 / step size", "settled", "last loss")
    page(out / "edge.md", "The edge of stability", TEXT.format(steps=STEPS, seeds=SEEDS), headings, rows)
    at_most(max(abs(row[4] - 1) for row in rows), 0.15, "distance of the settled sharpness from the limit")
    return {"settled": [row[4] for row in rows]}
