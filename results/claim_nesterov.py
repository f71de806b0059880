"""Claim: acceleration needs the root of the steps. Nesterov's rate against the condition, on least squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from corollary import theory
from results._claims import panels, write
from results.tables import at_least, at_most

NAMES = ("gd", "nesterov")
CONDITIONS = (10, 30, 100, 300, 1000)
SEEDS = 3


def steps_per_e(name: str, condition: int, seed: int) -> float:
    """Return the steps in which the gap falls by a factor e."""
    rng = np.random.default_rng([seed, condition])
    Q = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    X = np.sqrt(8 * np.linspace(1, condition, 8))[:, None] * Q
    model = nn.Linear(8, 1, bias=False)
    steps = 60 + (int(6 * condition**0.5) if name == "nesterov" else 4 * condition)
    data = (X, X @ rng.standard_normal(8))
    found = theory.decay(model, data, name, loss="half_squared", steps=steps)
    if not found.holds:
        raise AssertionError(f"{name} is above its bound at condition {condition}")
    return float(-1 / np.log(found.factor))


def run(out: Path) -> dict[str, Any]:
    """Measure, draw, and assert the two powers."""
    measured = {
        n: [float(np.median([steps_per_e(n, k, s) for s in range(SEEDS)])) for k in CONDITIONS] for n in NAMES
    }
    slopes = {n: float(np.polyfit(np.log(CONDITIONS[1:]), np.log(measured[n][1:]), 1)[0]) for n in NAMES}
    figure, axes = panels()
    for name in NAMES:
        axes.loglog(CONDITIONS, measured[name], marker="o", label=f"{name}: slope {slopes[name]:.2f}")
    axes.set(xlabel="condition", ylabel="steps for a factor e")
    axes.legend(frameon=False)
    write(
        out,
        "claim_nesterov",
        "Nesterov's root of the condition",
        claim="On a loss with condition κ, gradient descent closes the gap by a factor e in about κ/2 steps, Nesterov's "
        "method in about √κ.",
        setting="Least squares with eigenvalues evenly spread from 1 to κ, a random rotation and a random start for each of "
        f"{SEEDS} seeds; steps per factor e are −1 / log(measured factor per step), the median over seeds.",
        found=f"the slopes of the lines, on logarithmic axes, are {slopes['gd']:.2f} for gradient descent (claimed 1) and "
        f"{slopes['nesterov']:.2f} for Nesterov's method (claimed ½).",
        change='`NAMES = ("gd", "heavy-ball")` keeps the root on these quadratics, `("gd", "gd")` loses it.',
        headings=("condition", *NAMES),
        rows=[(k, *(measured[n][i] for n in NAMES)) for i, k in enumerate(CONDITIONS)],
        figure=figure,
    )
    at_least(slopes["gd"], 0.9, "power of the condition for gradient descent")
    at_most(abs(slopes["nesterov"] - 0.5), 0.1, "distance of Nesterov's power from a half")
    return slopes
