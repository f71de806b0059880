r"""Fidelity and diversity of samples by nearest neighbours.

Around each sample :math:`x_i` of a set lies the ball :math:`B_k(x_i)` whose radius is the distance to its k-th nearest
neighbour in the set.

.. math::
    \text{precision} &= \tfrac1m \textstyle\sum_j 1[\,y_j \in \bigcup_i B_k(x_i)\,], \qquad
    \text{recall} = \tfrac1n \textstyle\sum_i 1[\,x_i \in \bigcup_j B_k(y_j)\,], \tag{1} \\
    \text{density} &= \tfrac1{km} \textstyle\sum_j \sum_i 1[\,y_j \in B_k(x_i)\,], \qquad
    \text{coverage} = \tfrac1n \textstyle\sum_i 1[\,\exists j: y_j \in B_k(x_i)\,]. \tag{2}
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from corollary import errors
from corollary.metrics.features import features_of

__all__ = ["density_coverage", "precision_recall"]

BLOCK = 1024  # rows whose distances to all others are in memory at a time


def precision_recall(real: Any, fake: Any, n_neighbors: int = 3, features: Any = None) -> tuple[float, float]:
    """Return the share of drawn samples that look real, and the share of real samples that can be drawn, eq. 1.

    Parameters
    ----------
    real, fake : array-like of shape (n, ...) and (m, ...)
        Samples.
    n_neighbors : int, default=3
        Which neighbour sets the radius; more gives larger balls and higher values.
    features : callable, torch.nn.Module or estimator, optional
        As for :func:`corollary.metrics.fid`.

    References
    ----------
    .. [1] T. Kynkäänniemi et al. (2019). Improved precision and recall metric for assessing generative models. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> precision_recall(X[:100], X[100:] + 50)
    (0.0, 0.0)
    """
    x, y = _both(real, fake, n_neighbors, features, "precision_recall")
    inside = _inside(x, _radii(x, n_neighbors), y).any(0)
    found = _inside(y, _radii(y, n_neighbors), x).any(0)
    return float(inside.double().mean()), float(found.double().mean())


def density_coverage(real: Any, fake: Any, n_neighbors: int = 5, features: Any = None) -> tuple[float, float]:
    """Return density (how deep drawn samples lie among real ones) and coverage (real balls that are hit), eq. 2.

    A single outlier among the real samples hardly changes them, unlike precision and recall. Density may
    exceed 1.

    Parameters
    ----------
    real, fake, n_neighbors, features
        As for :func:`precision_recall`.

    References
    ----------
    .. [1] M. Naeem et al. (2020). Reliable fidelity and diversity metrics for generative models. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> density_coverage(X, X)[1]
    1.0
    """
    x, y = _both(real, fake, n_neighbors, features, "density_coverage")
    found = Balls(x, n_neighbors).judge(y)
    return found["density"], found["coverage"]


class Balls:
    """The balls of real samples (n, f), found once to judge one set of drawn samples after the other."""

    def __init__(self, real: Tensor, n_neighbors: int) -> None:
        self.real, self.n_neighbors = real, n_neighbors
        self.radii = _radii(real, n_neighbors)

    def judge(self, drawn: Tensor) -> dict[str, float]:
        """Return density and coverage, eq. 2, and as ``near`` the precision of eq. 1."""
        hits = _inside(self.real, self.radii, drawn)
        return {
            "coverage": float(hits.any(1).double().mean()),
            "near": float(hits.any(0).double().mean()),
            "density": float(hits.sum().double() / (self.n_neighbors * len(drawn))),
        }


def _both(real: Any, fake: Any, n_neighbors: int, features: Any, owner: str) -> tuple[Tensor, Tensor]:
    x, y = (torch.from_numpy(features_of(sample, features, owner)) for sample in (real, fake))
    if x.shape[1] != y.shape[1]:
        must = "real and fake must have the same number of features"
        raise errors.value(owner, must, f"{x.shape[1]} and {y.shape[1]}")
    if not 1 <= n_neighbors < min(len(x), len(y)):
        must = f"n_neighbors must lie between 1 and the smaller sample less one ({min(len(x), len(y)) - 1})"
        raise errors.value(owner, must, n_neighbors)
    return x, y


def _radii(x: Tensor, k: int) -> Tensor:
    """Return each row's distance to its k-th nearest other row."""
    parts = [torch.cdist(rows, x).kthvalue(k + 1, dim=1).values for rows in torch.split(x, BLOCK)]
    return torch.cat(parts)


def _inside(centres: Tensor, radii: Tensor, points: Tensor) -> Tensor:
    """Return whether each point lies in each ball, (centres, points)."""
    parts = [
        torch.cdist(c, points) <= r[:, None]
        for c, r in zip(torch.split(centres, BLOCK), torch.split(radii, BLOCK))
    ]
    return torch.cat(parts)
