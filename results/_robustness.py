"""Pictures of attacks and defences: small problems in the plane, where everything can be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from corollary import MLPClassifier, Training, attack, data, theory
from results._drawings import ACCENT, INK, SOFT, WARM, _label, panels

__all__ = ["ROBUSTNESS"]

PLAN = {"epochs": 60, "learning_rate": 0.01}


def _moons(**defence: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = make_moons(300, noise=0.1, random_state=0)
    model = MLPClassifier((64, 64), training=Training(**PLAN, **defence), random_state=0)
    return model.fit(X, y), X, y


def _regions(axes: Any, model: Any, X: np.ndarray, y: np.ndarray, title: str = "") -> None:
    a, b = np.meshgrid(np.linspace(-1.6, 2.6, 200), np.linspace(-1.2, 1.7, 200))
    p = model.predict_proba(np.column_stack([a.ravel(), b.ravel()]))[:, 1].reshape(a.shape)
    axes.contourf(a, b, p, levels=[0, 0.5, 1], colors=[ACCENT, WARM], alpha=0.15)
    axes.contour(a, b, p, levels=[0.5], colors=INK, linewidths=0.8)
    axes.scatter(*X.T, c=np.where(y, WARM, ACCENT), s=3)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=9)


def _arrows(axes: Any, X: np.ndarray, found: Any) -> None:
    moves = found.adversarial - X
    axes.quiver(*X.T, *moves.T, color=INK, angles="xy", scale_units="xy", scale=1, width=0.004)


def one_step() -> Figure:
    """Draw the step of each norm from the same points."""
    model, X, y = _moons()
    figure, axes = panels(3, "One step of length 0.3 against the label, in three norms", 2.8, 2.6)
    for part, norm in zip(axes, ("l1", "l2", "linf")):
        _regions(part, model, X[:30], y[:30], norm)
        _arrows(part, X[:30], attack.fgsm(model, X[:30], y[:30], eps=0.3, norm=norm, bounds=None))
    return figure


def ascent() -> Figure:
    """Draw accuracy under attack over the radius: one step, many steps, the smallest changes."""
    digits = data.load("digits", "table")
    X, y = digits.X[:600], digits.y[:600]
    top = float(X.max())
    model = MLPClassifier((64,), training=Training(epochs=20), random_state=0).fit(X, y)
    figure, (axes,) = panels(1, "Digits under attack: more steps find more", 4.6, 3.0)
    eps = top * np.linspace(0.01, 0.15, 8)
    for colour, (label, options) in zip(
        (SOFT, ACCENT, WARM),
        {
            "fgsm": {"attack": "fgsm"},
            "pgd, 20 steps": {"steps": 20},
            "deepfool": {"attack": "deepfool"},
        }.items(),
    ):
        curve = attack.evaluate(model, X, y, eps=eps, bounds=(0, top), random_state=0, **options)
        axes.plot(curve.eps / top, curve.accuracy, color=colour, marker="o", ms=3, label=label)
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "radius (l-infinity), share of the range", "accuracy")
    return figure


def smallest() -> Figure:
    """Draw the way to the nearest boundary from some points."""
    model, X, y = _moons()
    figure, (left, right) = panels(2, "DeepFool walks to the nearest boundary", 3.2, 2.8)
    _regions(left, model, X[:60], y[:60])
    found = attack.deepfool(model, X[:60], y[:60], bounds=None)
    _arrows(left, X[:60], found)
    right.hist(attack.deepfool(model, X, y, bounds=None).distance, bins=30, color=ACCENT)
    _label(right, "distance to the boundary (l2)", "points")
    return figure


def _two(title: str, names: dict[str, dict[str, Any]]) -> Figure:
    figure, axes = panels(3, title, 2.9, 2.7)
    for part, (name, defence), colour in zip(axes, names.items(), (ACCENT, WARM)):
        model, X, y = _moons(**defence)
        _regions(part, model, X, y, name)
        curve = attack.evaluate(
            model, X, y, eps=np.linspace(0.05, 0.6, 8), norm="l2", bounds=None, random_state=0
        )
        axes[2].plot(curve.eps, curve.accuracy, color=colour, marker="o", ms=3, label=name)
    axes[2].legend(fontsize=7, frameon=False)
    _label(axes[2], "radius (l2)", "accuracy under PGD")
    return figure


def trained() -> Figure:
    """Draw the boundaries of a plain and of an adversarially trained network."""
    adversary = attack.PGD(0.3, norm="l2", steps=7)
    return _two(
        "Training on the worst inputs near each sample",
        {"plain": {}, "adversarial": {"adversary": adversary}},
    )


def penalised() -> Figure:
    """Draw the boundaries of a plain and of a network with a penalty on its Jacobian."""
    spectral = {"rate": 0.02, "of": "jacobian"}
    return _two("A penalty on the norm of the Jacobian", {"plain": {}, "penalised": {"spectral": spectral}})


def bounds() -> Figure:
    """Draw what is certified beside what is found."""
    model, X, y = _moons(spectral=0.02)
    figure, (axes,) = panels(1, "The true distance lies between the two", 4.2, 3.2)
    axes.loglog(
        theory.certified_radius(model, X, y),
        attack.deepfool(model, X, y, bounds=None).distance,
        ".",
        color=ACCENT,
    )
    ends = np.array([1e-3, 2.0])
    axes.loglog(ends, ends, color=INK, lw=0.8)
    _label(axes, "certified radius (Lipschitz bound)", "distance that DeepFool finds")
    return figure


def smoothed() -> Figure:
    """Draw the certified radius of a line over the distance to it."""
    line = torch.nn.Linear(1, 1).double().eval()
    with torch.no_grad():
        line.weight.fill_(1.0), line.bias.zero_()
    x = np.linspace(0, 1.5, 60)
    figure, (axes,) = panels(1, "Randomised smoothing of a line", 4.4, 3.0)
    axes.plot(x, x, color=INK, lw=0.8, label="distance to the boundary")
    for colour, n in zip((SOFT, ACCENT, WARM), (100, 1000, 10_000)):
        found = attack.smooth(line, x[:, None], sigma=0.5, n_samples=n, random_state=0)
        axes.plot(x, found.radius, ".", ms=3, color=colour, label=f"certified, {n:,} draws")
    axes.legend(fontsize=7, frameon=False)
    _label(axes, "distance of the input", "radius")
    return figure


ROBUSTNESS: dict[str, Callable[[], Figure]] = {
    "adversarial-training": trained,
    "deepfool": smallest,
    "fgsm": one_step,
    "lipschitz": bounds,
    "pgd": ascent,
    "randomised-smoothing": smoothed,
    "spectral-penalty": penalised,
}
