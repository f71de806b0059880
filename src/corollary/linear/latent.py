r"""The linear-Gaussian latent-variable model with missing values: posterior, density and EM.

Of the row :math:`x = \mu + W z + \varepsilon`, :math:`z \sim \mathcal N(0, I_q)`,
:math:`\varepsilon \sim \mathcal N(0, \sigma^2 I_d)`, only the entries :math:`O` are seen. With
:math:`M_O = W_O^\top W_O + \sigma^2 I` and :math:`r = x_O - \mu_O`

.. math::
    \langle z \rangle = M_O^{-1} W_O^\top r, \qquad
    \langle z z^\top \rangle = \sigma^2 M_O^{-1} + \langle z \rangle \langle z \rangle^\top, \tag{1}

.. math::
    \log p(x_O) = -\tfrac12 \Big[ |O| \log 2\pi + (|O| - q) \log \sigma^2 + \log |M_O|
    + \sigma^{-2} \big( r^\top r - r^\top W_O \langle z \rangle \big) \Big]. \tag{2}

EM alternates (1) with one least-squares problem per feature over the rows that have it,
for :math:`\tilde z = (z, 1)`, and the mean squared residual over all :math:`N` entries seen:

.. math::
    (w_j, \mu_j) = \Big( \sum_{i \ni j} \langle \tilde z_i \tilde z_i^\top \rangle \Big)^{-1}
    \sum_{i \ni j} x_{ij} \langle \tilde z_i \rangle, \qquad
    \sigma^2 = \frac1N \sum_{i \ni j} \Big[ (x_{ij} - \mu_j - w_j^\top \langle z_i \rangle)^2
    + w_j^\top \operatorname{cov}(z_i) w_j \Big]. \tag{3}

A latent of mean :math:`m` and covariance :math:`\Sigma_z = L L^\top`, those of the posterior over all
rows, describes the data no worse; it is put into the parameters (parameter-expanded EM [1]_),

.. math:: \mu \leftarrow \mu + W m, \qquad W \leftarrow W L, \tag{4}

without which EM creeps where the noise is small. Rows with the same holes share :math:`M_O`, so
complete data cost one inverse.

References
----------
.. [1] C. Liu, D. Rubin, Y. Wu (1998). Parameter expansion to accelerate EM: the PX-EM
   algorithm. Biometrika 85, 755-770.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from corollary import errors
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.run import current

__all__ = ["EM", "Holes", "Latent", "posterior"]

CHUNK = 8192  # rows whose outer products are held at once
SMALL = 1e-12  # of the variance: below it, sigma² is kept from vanishing


class Latent(NamedTuple):
    """The parameters: W (d, q), mu (d,), sigma2, all float64."""

    W: Tensor
    mu: Tensor
    sigma2: Tensor


class Holes(NamedTuple):
    """Rows with zeros for what is missing, and the patterns of what is seen."""

    X: Tensor  # (n, d)
    seen: Tensor  # (n, d), 1.0 or 0.0
    patterns: Tensor  # (p, d)
    which: Tensor  # (n,), the row's pattern

    @classmethod
    def of(cls, X: np.ndarray) -> Holes:
        """Find the patterns of NaN in X."""
        gone = np.isnan(X)
        if not gone.any():
            seen, which = np.ones((1, X.shape[1]), bool), np.zeros(len(X), np.int64)
        else:
            seen, which = np.unique(~gone, axis=0, return_inverse=True)
        filled = torch.from_numpy(np.where(gone, 0.0, X).astype(np.float64))
        patterns = torch.from_numpy(seen.astype(np.float64))
        rows = torch.from_numpy(which.reshape(-1))
        return cls(
            filled, patterns[rows] if len(patterns) > 1 else patterns.expand(len(X), -1), patterns, rows
        )


class Posterior(NamedTuple):
    """What eq. 1 and 2 give: means (n, q), covariances (p, q, q) by pattern, log-densities (n,)."""

    mean: Tensor
    covariance: Tensor
    log_prob: Tensor


def posterior(data: Holes, model: Latent) -> Posterior:
    """Return the posterior over z and the density of what is seen, eq. 1 and 2."""
    W, mu, sigma2 = model
    q = W.shape[1]
    outer = (W[:, :, None] * W[:, None, :]).reshape(len(W), q * q)
    M = (data.patterns @ outer).view(-1, q, q) + sigma2 * torch.eye(q, dtype=W.dtype)
    L = torch.linalg.cholesky(M)
    inverse = torch.cholesky_inverse(L)
    r = (data.X - mu) * data.seen
    b = r @ W
    z = _by_pattern(inverse, data.which, b)
    count = data.patterns.sum(1)
    log_det = (count - q) * sigma2.log() + 2 * L.diagonal(dim1=1, dim2=2).log().sum(1)
    constant = count * math.log(2 * math.pi) + log_det
    log_prob = -0.5 * (constant[data.which] + (r.square().sum(1) - (b * z).sum(1)) / sigma2)
    return Posterior(z, sigma2 * inverse, log_prob)


def _by_pattern(inverse: Tensor, which: Tensor, b: Tensor) -> Tensor:
    if len(inverse) == 1:
        return b @ inverse[0]
    parts = [
        torch.bmm(inverse[w], v[:, :, None])[:, :, 0] for w, v in zip(which.split(CHUNK), b.split(CHUNK))
    ]
    return torch.cat(parts)


class EM(Iteration):
    """Maximise the likelihood of the entries seen, eq. 3.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The data, NaN where nothing is known.
    start : Latent
        Where to begin.
    max_iter, tol : int and float
        Stop after that many sweeps, or when the mean log-likelihood rises by less than ``tol``.
    """

    shares = True
    saved = ("W", "mu", "sigma2", "log_likelihood")

    def __init__(self, X: np.ndarray, start: Latent, max_iter: int, tol: float) -> None:
        super().__init__(max_iter)
        run = current()
        self.n = len(X)
        self.shift = np.nanmean(X, axis=0, dtype=np.float64)  # so that squares do not cancel
        self.data = Holes.of(X[run.shard(self.n)] - self.shift)
        self.W, self.mu, self.sigma2 = start.W, start.mu - torch.from_numpy(self.shift), start.sigma2
        self.tol = tol
        self.log_likelihood = -math.inf
        self.floor = SMALL * float(np.nanvar(X))

    @property
    def model(self) -> Latent:
        """The parameters now."""
        return Latent(self.W, self.mu + torch.from_numpy(self.shift), self.sigma2)

    def sweep(self) -> Metrics:
        """Do one E step and one M step; the likelihood reported is that before the M step."""
        run, data, q = current(), self.data, self.W.shape[1]
        E = posterior(data, Latent(self.W, self.mu, self.sigma2))
        rows = torch.cat([E.mean, torch.ones_like(E.mean[:, :1])], 1)  # z with a one behind it
        second = _second_moments(rows, E.covariance, data)  # (p, q + 1, q + 1)
        total = run.sum((data.patterns.T @ second.flatten(1)).view(-1, q + 1, q + 1))
        cross = run.sum(data.X.T @ rows)
        solved = torch.linalg.solve(total, cross)
        W, mu = solved[:, :q], solved[:, q]
        # The sum in eq. 3 with the new w_j and mu_j, from the same moments.
        squares = run.sum(torch.linalg.vector_norm(data.X) ** 2)
        seen = run.sum(data.seen.sum())
        explained = (solved * cross).sum()
        self.sigma2 = ((squares - explained) / seen).clamp(min=self.floor)
        self.W, self.mu = _standardised(W, mu, run.sum(second.sum(0)) / self.n)
        mean = float(run.sum(E.log_prob.sum())) / self.n
        self.converged = mean - self.log_likelihood < self.tol
        self.log_likelihood = mean
        return {"log_likelihood": mean}


def _standardised(W: Tensor, mu: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Give the latents mean zero and unit covariance again, eq. 4."""
    q = W.shape[1]
    centre = moments[:q, q]
    spread = moments[:q, :q] - torch.outer(centre, centre)
    return W @ torch.linalg.cholesky(spread), mu + W @ centre


def _second_moments(rows: Tensor, covariance: Tensor, data: Holes) -> Tensor:
    """Return, for each pattern, the sum of <z zᵀ> over its rows, z with a one behind it."""
    p, m = len(covariance), rows.shape[1]
    if p == 1:
        sums = (rows.T @ rows)[None]
    else:
        sums = torch.zeros(p, m * m, dtype=rows.dtype)
        for part, which in zip(rows.split(CHUNK), data.which.split(CHUNK)):
            sums.index_add_(0, which, (part[:, :, None] * part[:, None, :]).flatten(1))
        sums = sums.view(p, m, m)
    counts = torch.bincount(data.which, minlength=p).to(rows.dtype)
    sums[:, : m - 1, : m - 1] += counts[:, None, None] * covariance
    return sums


def check_holes(X: np.ndarray, owner: str) -> None:
    """Raise if a column has no entry at all."""
    empty = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(empty):
        raise errors.value(
            owner,
            "every column must have at least one value that is not NaN",
            f"none in column {', '.join(map(str, empty[:5]))}",
            "Leave those columns out.",
        )


def principal(model: Latent) -> tuple[Any, Any]:
    """Return the eigenvalues of W Wᵀ, descending, and their eigenvectors as rows."""
    U, s, _ = torch.linalg.svd(model.W, full_matrices=False)
    return s.square(), U.T
