r"""The Fréchet distance between two samples, each taken as a Gaussian.

Between :math:`N(\mu, A)` and :math:`N(\nu, B)` the squared Wasserstein-2 distance is

.. math:: \|\mu - \nu\|^2 + \operatorname{tr} A + \operatorname{tr} B - 2 \operatorname{tr} (A^{1/2} B A^{1/2})^{1/2}. \tag{1}

With :math:`A = L L^\top`, the last root has the trace of :math:`(L^\top B L)^{1/2}` (2): a Cholesky factor, two products of
which a quarter is needed, the eigenvalues of a symmetric matrix, and no root of a matrix that is not symmetric. Of the
activations of an Inception network it is the "Fréchet inception distance" (FID).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.metrics.features import feature_blocks

__all__ = ["Moments", "fid", "frechet_distance", "gaussian_distance"]

COLUMNS = 256  # and rows of the product in eq. 2 that are made at a time


class Moments:
    """Mean and covariance of rows that come block by block, in float64.

    Blocks are merged by the update of Chan, Golub and LeVeque, which does not cancel for data far from zero.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3)) + 1e6
    >>> moments = Moments()
    >>> for block in np.array_split(X, 7):
    ...     moments.update(block)
    >>> bool(np.allclose(moments.covariance, np.cov(X.T)))
    True
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean: Any = 0.0
        self.scatter: Any = 0.0  # sum of the outer products of differences from the mean

    def update(self, rows: Any) -> None:
        """Take in a block (m, f)."""
        x = torch.as_tensor(np.asarray(rows, dtype=np.float64))
        m, mean = len(x), x.mean(0)
        gap = mean - self.mean
        x = x - mean
        self.scatter = self.scatter + x.T @ x + torch.outer(gap, gap) * (self.n * m / (self.n + m))
        self.n += m
        self.mean = self.mean + gap * (m / self.n)

    @property
    def covariance(self) -> np.ndarray:
        """The covariance (f, f), divided by n - 1."""
        found: np.ndarray = (self.scatter / max(self.n - 1, 1)).numpy()
        return found


def gaussian_distance(mean_a: Any, cov_a: Any, mean_b: Any, cov_b: Any) -> float:
    """Return eq. 1 for two Gaussians given by means (f,) and covariances (f, f).

    Examples
    --------
    >>> import numpy as np
    >>> gaussian_distance([0.0, 0.0], np.eye(2), [3.0, 4.0], np.eye(2))
    25.0
    """
    mu, nu, A, B = (
        torch.as_tensor(np.asarray(part, dtype=np.float64)) for part in (mean_a, mean_b, cov_a, cov_b)
    )
    if not (mu.shape == nu.shape and A.shape == B.shape == (len(mu), len(mu))):
        must = "means must be (f,) and covariances (f, f)"
        got = f"{tuple(mu.shape)}, {tuple(A.shape)}, {tuple(nu.shape)} and {tuple(B.shape)}"
        raise errors.value("gaussian_distance", must, got)
    cross = torch.linalg.eigvalsh(_product(A, B), UPLO="L").clamp_min(0).sqrt().sum()
    gap = mu - nu
    return max(0.0, float(gap @ gap + A.trace() + B.trace() - 2 * cross))


def _product(A: Tensor, B: Tensor) -> Tensor:
    """Return the lower triangle of LᵀBL, eq. 2, also where A = LLᵀ is only semi-definite."""
    L: Tensor
    L, failed = torch.linalg.cholesky_ex(A)
    if int(failed):
        values, vectors = torch.linalg.eigh(A)
        L = vectors * values.clamp_min(0).sqrt()
        return L.T @ B @ L
    C = torch.zeros_like(B)
    for j in range(0, len(L), COLUMNS):  # L is zero above its diagonal: what is below j needs no row before j
        Y = B[j:, j:] @ L[j:, j : j + COLUMNS]
        for i in range(j, len(L), COLUMNS):
            C[i : i + COLUMNS, j : j + COLUMNS] = L[i:, i : i + COLUMNS].T @ Y[i - j :]
    return C


def fid(real: Any, fake: Any, features: Any = None) -> float:
    """Return the Fréchet distance between the features of two samples; 0 is best.

    Parameters
    ----------
    real, fake : array-like of shape (n, ...) and (m, ...), or iterators of blocks of rows
        Samples. An iterator is read once, so that neither side need fit into memory.
    features : callable, torch.nn.Module or estimator, optional
        What is compared; by default the numbers of a table as they are, and random convolutional features of
        images, with a warning.

    Returns
    -------
    float
        Eq. 1 of the module. Costs O((n + m) f² + f³) for f features.

    References
    ----------
    .. [1] M. Heusel et al. (2017). GANs trained by a two time-scale update rule converge to a local Nash
       equilibrium. NeurIPS, eq. 6.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> round(fid(X, X + [1.0, 2.0, 2.0]), 6)
    9.0
    """
    sides = []
    for name, sample in (("real", real), ("fake", fake)):
        moments = Moments()
        for block in feature_blocks(sample, features, "fid"):
            moments.update(block)
        if moments.n < 2:
            raise errors.value("fid", f"{name} must have at least two samples", moments.n)
        sides.append(moments)
    a, b = sides
    if len(a.mean) != len(b.mean):
        must = "real and fake must have the same number of features"
        raise errors.value("fid", must, f"{len(a.mean)} and {len(b.mean)}")
    return gaussian_distance(a.mean, a.covariance, b.mean, b.covariance)


def frechet_distance(real: Any, drawn: Any) -> float:
    """Return the Fréchet distance between the numbers of two samples, all axes but the first flattened.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((50, 4, 4))
    >>> round(frechet_distance(images, images), 6)
    0.0
    """
    rows = (np.asarray(sample) for sample in (real, drawn))
    real, drawn = (x[:, None] if x.ndim == 1 else x for x in rows)
    return fid(real, drawn, features=lambda block: block.reshape(len(block), -1))
