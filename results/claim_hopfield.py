"""Claim: Hebb's rule stores 0.138 random patterns per unit, and then loses all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from corollary.connectionism import capacity_curve
from results._claims import panels, spread, write
from results.tables import at_least, at_most

RULE = "hebb"
UNITS = (250, 500, 1000)
SEEDS = 3
LOADS = (0.1, 0.11, 0.12, 0.125, 0.13, 0.135, 0.14, 0.145, 0.15, 0.155, 0.16, 0.17, 0.18)


def run(out: Path) -> dict[str, Any]:
    """Measure the fall for several sizes, draw it, and assert where it lies in the largest."""
    figure, axes = panels()
    rows, critical = [], {}
    for n in UNITS:
        curves = [
            capacity_curve(RULE, n_units=n, loads=LOADS, repeats=1, random_state=seed)
            for seed in range(SEEDS)
        ]
        overlap = np.mean([curve.overlaps for curve in curves], axis=0)
        critical[n] = [curve.critical for curve in curves]
        axes.plot(LOADS, overlap, marker=".", label=f"{n} units")
        rows.append((n, spread(critical[n]), float(overlap[LOADS.index(0.12)]), float(overlap[-1])))
    other = capacity_curve("pseudo-inverse", n_units=250, loads=LOADS, repeats=1, random_state=0)
    axes.plot(LOADS, other.overlaps, color="grey", ls="--", label="projection rule, 250 units")
    rows.append(("250, projection", "none up to 0.18", float(other.overlaps[2]), float(other.overlaps[-1])))
    axes.axvline(0.138, color="black", lw=0.8, ls=":")
    axes.set(xlabel="patterns per unit", ylabel="overlap of pattern and recall")
    axes.legend(frameon=False)
    largest = float(np.mean(critical[UNITS[-1]]))
    write(
        out,
        "claim_hopfield",
        "Hopfield's 0.138",
        claim="With Hebb's rule the fixed point next to a stored pattern keeps an overlap of 0.967 with it up to "
        "0.138 patterns "
        "per unit, and is lost beyond.",
        setting=f"Random patterns, recalled from themselves; {SEEDS} seeds for each size. *Critical* is the load at which the "
        "overlap falls through 0.967, interpolated; the mean, and the range over seeds.",
        found=f"{largest:.3f} patterns per unit at {UNITS[-1]} units (claimed 0.138 for infinitely many).",
        change='`RULE = "pseudo-inverse"` stores far more, as the grey line shows.',
        headings=("units", "critical load", "overlap at 0.12", "overlap at 0.18"),
        rows=rows,
        figure=figure,
    )
    at_most(abs(largest - 0.138), 0.01, "distance of the critical load from 0.138")
    at_least(float(other.overlaps.min()), 0.999, "overlap with the projection rule")
    return {str(n): float(np.mean(values)) for n, values in critical.items()}
