"""Pictures of generators: densities and draws of two moons, digits drawn pixel by pixel, and what FID measures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits, make_moons

from corollary import catalog, plot
from corollary.metrics import fid, precision_recall
from results._drawings import ACCENT, SOFT, WARM, _label, panels
from results._showing import fitted, titled

__all__ = ["GENERATED", "drawn_digits", "moons"]

WHOLE = 240.0  # seconds at most: a default fit to the end, on a busy machine too


def moons(entry: catalog.Entry) -> Figure:
    """Draw two moons, what a model draws after having seen them, and its density or its field where it has one."""
    X = make_moons(2000, noise=0.06, random_state=0)[0].astype(np.float32)
    model = fitted(entry, X, seconds=WHOLE)
    dense, field = hasattr(model, "score_samples") and entry.id == "flows", hasattr(model, "score_field")
    figure, axes = panels(3 if dense or field else 2, f"{entry.name} on two moons", 3.0, 2.8)
    axes[0].plot(*X.T, ".", ms=1, color=SOFT)
    axes[1].plot(*np.asarray(model.sample(2000)).T, ".", ms=1, color=ACCENT)
    if dense:
        a, b = np.meshgrid(np.linspace(-1.5, 2.5, 120), np.linspace(-1, 1.5, 120))
        height = model.score_samples(np.column_stack([a.ravel(), b.ravel()]).astype(np.float32))
        axes[2].pcolormesh(a, b, np.exp(height).reshape(a.shape), cmap="Blues")
    elif field:
        a, b = np.meshgrid(np.linspace(-1.5, 2.5, 22), np.linspace(-1, 1.5, 18))
        arrows = model.score_field(np.column_stack([a.ravel(), b.ravel()]).astype(np.float32), noise=0.2)
        axes[2].quiver(a.ravel(), b.ravel(), *np.asarray(arrows).T, color=ACCENT, width=0.004)
    for part, title in zip(axes, ("data", "drawn", "density" if dense else "gradient of the log-density")):
        part.set(xlim=(-1.5, 2.5), ylim=(-1, 1.5))
        _label(part, "", "", title)
    return figure


def drawn_digits(entry: catalog.Entry) -> Figure:
    """Draw digits in black and white."""
    X = (load_digits().images > 7).astype(np.float32)
    model = fitted(entry, X, seconds=WHOLE, levels=2)
    figure = plot.image_grid(np.asarray(model.sample(30)).reshape(30, 8, 8), columns=10)
    return titled(figure, f"{entry.name} has learned digits in black and white: what it draws")


def measures() -> Figure:
    """Draw how FID, precision and recall see digits that are blurred by noise, or of which classes are missing."""
    X, y = load_digits(return_X_y=True)
    real, other = X[:800] / 16, X[800:1600] / 16
    rng = np.random.default_rng(0)
    noises, classes = np.linspace(0, 0.5, 9), np.arange(10, 0, -1)
    noisy = [other + s * rng.standard_normal(other.shape) for s in noises]
    some = [other[y[800:1600] < k] for k in classes]
    figure, axes = panels(2, "Digits against other digits, by their pixels", 3.8, 3.0)
    for part, sets, at, label in zip(
        axes, (noisy, some), (noises, 10 - classes), ("noise", "classes missing")
    ):
        part.plot(at, [fid(real, drawn) / 10 for drawn in sets], color=ACCENT, label="FID / 10")
        precision, recall = np.array([precision_recall(real, drawn) for drawn in sets]).T
        part.plot(at, precision, color=WARM, label="precision")
        part.plot(at, recall, color=SOFT, label="recall")
        _label(part, label, "")
    axes[0].legend(frameon=False, fontsize=7)
    return figure


GENERATED: dict[str, Callable[[], Figure]] = {"metrics": measures}
