"""One function per picture; each returns a Matplotlib figure and touches no global state."""

from corollary.plot.chains import joint, ranks, trace
from corollary.plot.optimisation import decay, race, sharpness, spectrum, trajectory
from corollary.plot.pictures import (
    codes,
    confusion,
    curves,
    image_grid,
    importances,
    leaderboard,
    pairs,
    predictions,
    probabilities,
    regions,
    residuals,
    robustness,
    save,
    series,
)

__all__ = [
    "codes",
    "confusion",
    "curves",
    "decay",
    "image_grid",
    "importances",
    "joint",
    "leaderboard",
    "pairs",
    "predictions",
    "probabilities",
    "ranks",
    "regions",
    "race",
    "residuals",
    "robustness",
    "save",
    "series",
    "trace",
    "sharpness",
    "spectrum",
    "trajectory",
]
