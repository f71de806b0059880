r"""The posterior of logistic regression, with its gradient in closed form.

Labels :math:`y_i \in \{0, 1\}` of rows :math:`x_i` have the probability :math:`\sigma(w^\top x_i)` of being 1, and weights the
prior :math:`\mathcal N(0, s^2 I)`:

.. math:: \log p(w \mid X, y) = \sum_i \big(y_i w^\top x_i - \log(1 + e^{w^\top x_i})\big) - \frac{\lVert w\rVert^2}{2 s^2}
    + \text{const}, \tag{1}

.. math:: \nabla\log p = X^\top\big(y - \sigma(X w)\big) - w / s^2. \tag{2}

Two products with :math:`X` for all chains at once: no graph is recorded, and a path needs no values between its ends. On a
processor whole transitions of Hamiltonian Monte Carlo are compiled (:mod:`corollary.bayes.logistic_paths`).
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from corollary import errors
from corollary.bayes.density import Posterior

__all__ = ["LogisticPosterior"]


class LogisticPosterior(Posterior):
    """The log-density of the weights of a logistic regression, for any sampler.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows; a column of ones gives an intercept. Samplers mix best if the columns are of one scale.
    y : array-like of shape (n,)
        Labels of two classes; the second in their order is the one whose probability is modelled.
    prior : float, default=1.0
        Standard deviation of the normal prior of every weight; less shrinks more.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary.bayes import HMC, LogisticPosterior
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + rng.logistic(size=200) > 0  # the true weights are 1 and 0
    >>> sampler = HMC(n_draws=200, warmup=200, random_state=0).fit(LogisticPosterior(X, y), np.zeros(2))
    >>> bool((abs(sampler.summary()["mean"] - [1, 0]) < 0.6).all())
    True
    """

    def __init__(self, X: Any, y: Any, prior: float = 1.0) -> None:
        rows, labels = (
            np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part) for part in (X, y)
        )
        if rows.ndim != 2 or rows.dtype.kind not in "fiub" or not np.isfinite(rows).all():
            raise errors.value("LogisticPosterior", "X must be finite rows (n, d)", f"shape {rows.shape}")
        if labels.shape != rows.shape[:1]:
            must = f"y must have one label for each of {len(rows)} rows"
            raise errors.value("LogisticPosterior", must, f"shape {labels.shape}")
        classes = np.unique(labels)
        if len(classes) != 2:
            raise errors.value("LogisticPosterior", "y must hold two classes", f"{len(classes)} of them")
        if not isinstance(prior, Real) or isinstance(prior, bool) or not 0 < prior < np.inf:
            raise errors.value("LogisticPosterior", "prior must be a positive number", repr(prior))
        kind = np.float32 if rows.dtype == np.float32 else np.float64
        self.prior = float(prior)
        super().__init__(
            self._normal, self._bernoulli, rows.astype(kind), (labels == classes[1]).astype(kind)
        )
        self._typed: dict[Any, tuple[Tensor, Tensor]] = {}
        self._tiles: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    def _normal(self, theta: Tensor) -> Tensor:
        return -0.5 / self.prior**2 * theta.square().sum(1)

    def _bernoulli(self, theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
        z = theta @ X.to(theta).T
        return z * y.to(theta) - F.softplus(z)

    def _rows_as(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return the data in the type and on the device of the weights."""
        key = theta.dtype, theta.device
        if key not in self._typed:
            self._typed[key] = self.data[0].to(theta), self.data[1].to(theta)
        return self._typed[key]

    def __call__(self, theta: Tensor) -> Tensor:
        """Return eq. 1, (chains, d) -> (chains,)."""
        X, y = self._rows_as(theta)
        z = theta @ X.T
        return z @ y - F.softplus(z).sum(1) + self._normal(theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """Return eq. 2, (chains, d) -> (chains, d)."""
        X, y = self._rows_as(theta)
        left = y - (theta @ X.T).sigmoid_()
        return torch.addmm(theta, left, X, beta=-1 / self.prior**2)

    def transition(
        self, theta: Tensor, log_p: Tensor, gradient: Tensor, y: Tensor, log_u: Tensor, step: float, n_steps: int,
        variance: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Return position, log-density and gradient of each chain after a path, accepted or not, and its statistics.

        ``y`` (chains, d) are momenta, ``log_u`` (chains,) logarithms of uniform numbers, ``variance`` (d,) is the inverse mass;
        told (chains, 4) are the energies before and after the path, the probability of accepting its end, and the energy kept.
        """
        from numba import get_num_threads

        from corollary.bayes.logistic_paths import transition

        X, t = self._tiles_as(theta)
        wanted = (len(theta), X.shape[1])  # what the compiled loop counts on
        shapes = {part.shape for part in (theta, gradient, y)}
        if {*shapes, *((*part.shape, *variance.shape) for part in (log_p, log_u))} != {wanted}:
            raise errors.value("LogisticPosterior", f"there must be {X.shape[1]} weights", theta.shape[1])
        ends = [
            part.detach().clone(memory_format=torch.contiguous_format) for part in (theta, log_p, gradient, y)
        ]
        told, kind = np.empty((len(theta), 4)), X.dtype.type
        threads = min(torch.get_num_threads(), get_num_threads(), len(theta))
        transition(
            X, t, len(self.data[0]), *(part.numpy() for part in ends), log_u.numpy(), variance.contiguous().numpy(), kind(step),
            int(n_steps), kind(1 / self.prior**2), threads, told,
        )  # fmt: skip
        return ends[0], ends[1], ends[2], torch.from_numpy(told)

    def _tiles_as(self, theta: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return the data as the compiled loop reads them, in the type of the weights."""
        from corollary.bayes.logistic_paths import tiles

        if theta.dtype not in self._tiles:
            X, t = self._rows_as(theta)
            self._tiles[theta.dtype] = tiles(X.numpy(), t.numpy())
        return self._tiles[theta.dtype]
