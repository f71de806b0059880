"""Claim: full-batch descent on a network sharpens it up to 2 over the step size, and stays there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from corollary import theory
from results._claims import panels, spread, write
from results.tables import at_most

RATES = (0.05, 0.08, 0.005)
SLOW = 0.005  # at this rate the steps end before the sharpness arrives
SEEDS = 3
STEPS = 2000


def run(out: Path) -> dict[str, Any]:
    """Measure, draw, and assert that all but the slow ones settle near the limit."""
    X, y = load_digits(return_X_y=True)
    X, Y = X[:300].astype(np.float32) / 16, np.eye(10, dtype=np.float32)[y[:300]]
    rows = []
    figure, axes = panels()
    for number, rate in enumerate(RATES):
        for seed in range(SEEDS if rate != SLOW else 1):
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                net = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 10))
            found = theory.edge_of_stability(
                net, (X, Y), loss="squared", learning_rate=rate, steps=STEPS, every=40
            )
            label = f"step size {rate:g}" if seed == 0 else None
            axes.plot(found.steps, found.sharpness / found.limit, color=f"C{number}", lw=1, label=label)
            start, last = float(found.sharpness[0]), float(found.losses[-1])
            rows.append((rate, seed, start, found.limit, found.settled, last))
    axes.axhline(1, color="black", lw=0.8, ls=":")
    axes.set(xlabel="step", ylabel="largest eigenvalue · η/2")
    axes.legend(frameon=False)
    settled = [row[4] for row in rows if row[0] != SLOW]
    write(
        out,
        "claim_edge",
        "The edge of stability",
        claim="Gradient descent on all the data raises the largest eigenvalue of the Hessian until it is 2/η, where a "
        "quadratic "
        "would be at the limit of stability, and then keeps it there, while the loss goes on falling.",
        setting="A tanh net (64-24-10) on 300 digits, squared error on one-hot targets summed over classes, "
        f"{STEPS} steps, {SEEDS} seeds for each step size. *Settled* is the median sharpness over the last third, times η/2.",
        found=f"settled at {spread(settled)} times 2/η (claimed 1).",
        change=f"`STEPS = 200` ends before the sharpness arrives, as the step size {SLOW:g} does in the table.",
        headings=("step size", "seed", "sharpness at the start", "2 / step size", "settled", "last loss"),
        rows=rows,
        figure=figure,
    )
    at_most(max(abs(value - 1) for value in settled), 0.2, "distance of the settled sharpness from the limit")
    return {"settled": settled}
