r"""The Fréchet distance between two samples, each taken as a Gaussian.

Between :math:`N(\mu, A)` and :math:`N(\nu, B)` the squared Wasserstein-2 distance is

.. math:: \|\mu - \nu\|^2 + \operatorname{tr} A + \operatorname{tr} B - 2 \operatorname{tr} (A^{1/2} B A^{1/2})^{1/2}. \tag{1}

Of the activations of an Inception network it is the "Fréchet inception distance".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary import errors

__all__ = ["frechet_distance"]


def frechet_distance(real: Any, drawn: Any) -> float:
    """Return the squared Fréchet distance (1) between the Gaussians of two samples.

    Parameters
    ----------
    real, drawn : array-like of shape (n, ...) and (m, ...)
        Samples; all axes but the first are flattened.

    Returns
    -------
    float
        0 if mean and covariance agree. Costs O((n + m) d² + d³).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> round(frechet_distance(X, X + [1.0, 2.0, 2.0]), 6)
    9.0
    """
    x, y = (np.asarray(sample, dtype=float) for sample in (real, drawn))
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    if x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        must = "both samples must have at least two rows and the same number of features"
        raise errors.value("frechet_distance", must, f"shapes {np.shape(real)} and {np.shape(drawn)}")
    means = x.mean(0) - y.mean(0)
    a, b = np.atleast_2d(np.cov(x.T)), np.atleast_2d(np.cov(y.T))
    values, vectors = np.linalg.eigh(a)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    cross = np.sqrt(np.linalg.eigvalsh(root @ b @ root).clip(0)).sum()
    return float(means @ means + np.trace(a) + np.trace(b) - 2 * cross)
