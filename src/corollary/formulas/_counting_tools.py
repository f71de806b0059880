"""Networks that fold their input, for the topics that count regions; what counts is in ``theory.counting``."""

from __future__ import annotations

import numpy as np

__all__ = ["count_folded_square", "folding_network"]


def folding_network(rng, m, L):
    """L layers of m units: all but the last fold the unit interval m times onto itself."""
    fold = m * np.ones((m, 1)), -np.arange(m, dtype=float)
    readout = (-1.0) ** np.arange(m) * np.append(1, 2 * np.ones(m - 1))
    thresholds = (np.arange(m) + rng.uniform(0.2, 0.8, size=m)) / m
    layers, before = [], np.ones((1, 1))
    for _ in range(L - 1):
        layers.append((fold[0] @ before, fold[1]))
        before = readout[None, :]
    return [*layers, (np.ones((m, 1)) @ before, -thresholds)]


def count_folded_square(rng, L, side=400):
    """Regions of the unit square under L layers of four units: all but the last fold either coordinate twice.

    The last layer draws four lines in general position, all crossings inside the square. A fine grid sees every
    region.
    """
    line = (np.arange(side) + 0.5) / side
    points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    codes = np.zeros(len(points), dtype=int)
    for _ in range(L - 1):
        codes = 4 * codes + (points > 0.5) @ [1, 2]
        points = 1 - np.abs(2 * points - 1)
    angles = np.pi / 4 * np.arange(4) + rng.uniform(-0.1, 0.1, size=4)
    sides = (points - 0.5) @ np.array([np.cos(angles), np.sin(angles)]) > np.array([0.12, -0.12, 0.12, 0.12])
    return len(np.unique(16 * codes + sides @ [1, 2, 4, 8]))
