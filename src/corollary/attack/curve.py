"""Accuracy under attack, over the radius.

An input that can be changed within a radius can be changed within every larger one, so the curve never rises: each radius
attacks only what the smaller ones left standing. It bounds the robust accuracy from above; a certificate
(:func:`corollary.theory.certified_radius`, :func:`corollary.attack.smooth`) bounds it from below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from corollary import errors
from corollary.attack.base import prepare
from corollary.attack.deepfool import deepfool
from corollary.attack.pgd import fgsm, pgd
from corollary.validation import to_numpy

__all__ = ["RobustnessCurve", "evaluate"]

ATTACKS = ("deepfool", "fgsm", "pgd")
CONFIDENCE = 0.95


@dataclass(frozen=True)
class RobustnessCurve:
    """Accuracy under attack at each radius, beginning with none; :func:`corollary.plot.robustness` draws it.

    Attributes
    ----------
    eps : ndarray of shape (k,)
        Radii, from 0 on.
    accuracy : ndarray of shape (k,)
        Share of the samples that are right at every change that the attack tried.
    low, high : ndarray of shape (k,)
        The 95 % Clopper-Pearson interval of that share, for the samples as a draw from their population.
    radius : ndarray of shape (n,)
        For each sample the smallest of the radii at which it was fooled (for DeepFool its own distance); 0 where the model
        is wrong without attack, infinity where no radius was enough.
    norm, attack : str
        What was measured with.
    """

    eps: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    radius: np.ndarray
    norm: str
    attack: str

    def rows(self) -> list[dict[str, float]]:
        """Return the curve as rows: radius, accuracy, and its interval."""
        columns = {"eps": self.eps, "accuracy": self.accuracy, "low": self.low, "high": self.high}
        return [dict(zip(columns, map(float, row))) for row in zip(*columns.values())]


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    eps: Any,
    norm: str = "linf",
    attack: str = "pgd",
    steps: int = 40,
    bounds: Any,
    random_state: Any = None,
    **options: Any,
) -> RobustnessCurve:
    """Measure the accuracy of a classifier under attack, over the radius.

    Parameters
    ----------
    model, X, y
        As :func:`corollary.attack.pgd` takes them.
    eps : sequence of float
        Radii; 0 is added.
    norm : {"linf", "l2", "l1"}, default="linf"
        In which norm; DeepFool has no l1.
    attack : {"pgd", "fgsm", "deepfool"}, default="pgd"
        What attacks. DeepFool runs once for all radii.
    steps : int, default=40
        Steps of PGD and DeepFool.
    bounds : (low, high) or None
        Range of the inputs.
    random_state : int or RandomState, optional
        Seed of random starts.
    **options
        Further options of the attack, such as ``restarts=5``.

    Returns
    -------
    RobustnessCurve

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, attack
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLPClassifier(random_state=0).fit(X, y)
    >>> curve = attack.evaluate(model, X, y, eps=[0.5, 1.0, 2.0], steps=10, bounds=None, random_state=0)
    >>> bool((np.diff(curve.accuracy) <= 0).all()), curve.eps.tolist()
    (True, [0.0, 0.5, 1.0, 2.0])
    """
    radii = _radii(eps)
    if attack not in ATTACKS:
        raise errors.unknown("evaluate", "attack", str(attack), ATTACKS)
    truth = np.asarray(to_numpy(y))
    wrong = _wrong(model, X, truth)
    radius = np.where(wrong, 0.0, np.inf)
    if attack == "deepfool":
        found = deepfool(model, X, truth, norm=norm, steps=steps, bounds=bounds, **options)
        won, distance = (np.asarray(to_numpy(each)) for each in (found.success, found.distance))
        radius[won & ~wrong] = distance[won & ~wrong]
    else:
        for r in radii[1:]:
            left = np.flatnonzero(np.isinf(radius))
            if not len(left):
                break
            shared = {
                "eps": float(r),
                "norm": norm,
                "bounds": bounds,
                "random_state": random_state,
                **options,
            }
            if attack == "pgd":
                shared["steps"] = steps
            found = (pgd if attack == "pgd" else fgsm)(model, _rows(X, left), truth[left], **shared)
            radius[left[np.asarray(to_numpy(found.success))]] = r
    # the rest is wrong, or fooled within the radius
    count = np.array([int((radius > r).sum()) for r in radii])
    low, high = _interval(count, len(truth))
    return RobustnessCurve(radii, count / len(truth), low, high, radius, norm, attack)


def _radii(eps: Any) -> np.ndarray:
    radii = np.atleast_1d(np.asarray(eps, dtype=np.float64))
    if radii.ndim > 1 or not radii.size or not np.isfinite(radii).all() or radii.min() < 0:
        raise errors.value("evaluate", "eps must be finite radii of at least 0", repr(eps))
    return np.unique(np.append(radii, 0.0))


def _wrong(model: Any, X: Any, y: np.ndarray) -> np.ndarray:
    """Return which samples the model gets wrong without attack."""
    given = prepare(model, X, y, None, "evaluate")
    said = prepare(model, X, None, None, "evaluate").y
    return (given.y != said).cpu().numpy()


def _rows(X: Any, rows: np.ndarray) -> Any:
    """Return some samples of an array, a tensor, a frame or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return [X[i] for i in rows] if isinstance(X, list | tuple) else X[rows]


def _interval(count: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    from corollary.attack.smoothing import clopper_pearson

    tail = (1 - CONFIDENCE) / 2
    return clopper_pearson(count, n, tail), 1 - clopper_pearson(n - count, n, tail)
