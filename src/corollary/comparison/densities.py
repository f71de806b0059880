r"""Densities that can be compared: of the data as they were given, whatever a model was fitted to.

A continuous density of values on a grid (grey levels, counts, rounded numbers) can be made as large as one
likes: it only has to peak at the grid points. So a column with step :math:`h` gets uniform noise
:math:`u \in [0, h)` in both parts, and what is measured is the bound

.. math::
    \log P(x) = \log \int_{[0, h)} p(x + u)\, du \;\ge\; \mathbb E_u \log p(x + u) + \log h, \tag{1}

a logarithm of a *probability*, the same in every unit. Models are fitted to columns in normal shape,
:math:`z_j = \Phi^{-1}(F_j(x_j + u_j))` with the distribution functions :math:`F_j` of the training part (histograms),
and their density :math:`q` is brought back by

.. math::
    \log p(x + u) = \log q(z) + \textstyle\sum_j \log F_j'(x_j + u_j) - \log \varphi(z_j). \tag{2}

A standard normal :math:`q` is therefore the board's baseline, independent columns; what a model gains over it
is what it knows of their dependence. A column that lies on no grid keeps its density in its own units. Bits per
dimension are :math:`-\log_2` of all that, divided by the number of columns.

References
----------
.. [1] L. Theis, A. van den Oord, M. Bethge (2016). A note on the evaluation of generative models. ICLR. Section 3.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import cauchy, norm
from sklearn.base import BaseEstimator, clone

from corollary import errors, io

__all__ = ["DensityOfData", "Gaussians", "Histograms", "bits_of_plain", "grid_steps"]

MOST_LEVELS = 2**17  # a grid finer than this is taken as continuous
KEPT = ("varies_", "first_row_", "step_", "offset_", "model_")  # fitted attributes that are written to files
ROUNDING = 2.0**-45  # of the largest number: levels that are nearer than this are one
TOLERANCE = 2e-6  # of the range: what rounding to 32 bits may move a value by


def grid_steps(X: np.ndarray, shared: bool = False) -> np.ndarray:
    """Return the step of the grid that each column lies on; 0 for a continuous column, NaN for a constant one.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The data.
    shared : bool, default=False
        Whether all columns have one grid, as pixels do.

    Examples
    --------
    >>> X = np.array([[0.0, 0.1, 5.0], [0.5, 0.4, 5.0], [1.5, 0.2, 5.0]])
    >>> grid_steps(X).round(6)
    array([0.5, 0.1, nan])
    """
    if shared:
        return np.full(X.shape[1], _step(np.unique(X), X.size))
    return np.array([_step(np.unique(column), len(column)) for column in X.T])


def _step(levels: np.ndarray, n: int) -> float:
    """Return the greatest common divisor of the gaps between sorted values, up to rounding."""
    levels = levels[np.append(True, np.diff(levels) > ROUNDING * np.abs(levels).max())]
    if len(levels) < 2:
        return np.nan
    gaps, span = np.diff(levels), levels[-1] - levels[0]
    tolerance = TOLERANCE * span
    step = 0.0
    for gap in np.unique(gaps):
        a, b = gap, step
        while b > tolerance:
            a, b = b, abs(a - b * round(a / b))
        step = a
        if step * MOST_LEVELS < span:
            break
    places = (levels - levels[0]) / step
    if step * MOST_LEVELS >= span and np.abs(places - np.round(places)).max() < 0.01:
        return float(span / round(span / step))
    repeated = len(levels) < 0.95 * n  # some values come again and again: at least those are no continuum
    return float(gaps.min()) if repeated else 0.0


def bits_of_plain(
    model: Any, X: np.ndarray, *labels: Any, pixels: bool = False, seed: int = 1
) -> tuple[float, float]:
    """Return bits per dimension and mean log-likelihood (eq. 1) of a density that was fitted to data as they are.

    Columns whose grid the model has found and fills with noise itself get none here. ``labels`` are those of the rows, for a
    conditional model.
    """
    step = grid_steps(X, pixels)
    own = np.broadcast_to(np.ravel((getattr(model, "scaling_", None) or {}).get("step", 0.0)), step.shape) > 0
    noisy = (step > 0) & ~own
    X = X + np.random.default_rng(seed).uniform(size=X.shape) * np.where(noisy, step, 0.0)
    if own.any():
        nats = -float(np.mean(model.bits_per_dimension(X, *labels))) * X.shape[1] * np.log(2)
    else:
        nats = float(model.score(X, *labels))
    nats += float(np.log(step[noisy]).sum())
    return float(-nats / np.log(2) / max(1, int((~np.isnan(step)).sum()))), nats


class DensityOfData(BaseEstimator):
    """A density model of data as they were given: noise on grids, columns made normal, and all of it undone.

    Parameters
    ----------
    model : density estimator, optional
        What is fitted to the columns in normal shape; None leaves them independent.
    margins : {"histogram", "gaussian"}, default="histogram"
        How a column is brought to normal shape: by its histogram, or by its mean and deviation only.
    pixels : bool, default=False
        Whether all columns lie on one grid.
    random_state : int, default=0
        For the noise.

    Attributes
    ----------
    step_, offset_ : ndarray of shape (n_features that vary,)
        Step and first point of each column's grid (step 0: none).
    varies_ : ndarray of bool, shape (n_features,)
        Columns that are not constant; the others have no density and are left out.
    margins_ : Histograms or Gaussians
        The columns' own distributions.
    model_ : fitted estimator
        The density of the columns in normal shape.
    """

    def __init__(
        self, model: Any = None, margins: str = "histogram", pixels: bool = False, random_state: int = 0
    ) -> None:
        self.model = model
        self.margins = margins
        self.pixels = pixels
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> DensityOfData:
        """Learn grids, margins and density from the training part."""
        X = _dense(X)
        step = grid_steps(X, self.pixels)
        self.varies_, self.first_row_ = ~np.isnan(step), X[0]
        if not self.varies_.any():
            raise errors.value("compare", "some column must vary to have a density", "constants only")
        self.step_, self.offset_ = step[self.varies_], X[:, self.varies_].min(0)
        noisy = self._noisy(X, self.random_state)
        self.margins_ = (Histograms if self.margins == "histogram" else Gaussians)(
            noisy, self.step_, self.offset_
        )
        self.model_ = None if self.model is None else clone(self.model).fit(self._normal(noisy))
        return self

    def _noisy(self, X: np.ndarray, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        X = X[:, self.varies_]
        return X + rng.uniform(size=X.shape) * self.step_

    def _normal(self, noisy: np.ndarray) -> np.ndarray:
        """Return columns in normal shape; networks see single precision, which halves their time."""
        z = self.margins_.normal(noisy)
        return z.astype(np.float32) if hasattr(self.model, "training") else z

    def score_samples(self, X: Any) -> np.ndarray:
        """Return eq. 1 for each row in nats: a log-probability on grids, a log-density elsewhere."""
        noisy = self._noisy(_dense(X), self.random_state + 1)
        logs = self.margins_.log_densities(noisy).sum(1) + np.log(self.step_[self.step_ > 0]).sum()
        if self.model_ is not None:
            z = self._normal(noisy)
            logs += np.asarray(self.model_.score_samples(z), dtype=np.float64) - norm.logpdf(z).sum(1)
        return logs

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of :meth:`score_samples`."""
        return float(np.mean(self.score_samples(X)))

    def bits_per_dimension(self, X: Any) -> float:
        """Return the negative mean in bits, per column that varies."""
        return self.bits(self.score(X))

    def bits(self, nats: float) -> float:
        """Return a mean log-density in bits per column that varies."""
        return -nats / np.log(2) / int(self.varies_.sum())

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw rows in the units and on the grids of the data."""
        z = np.random.default_rng(self.random_state).standard_normal((n_samples, len(self.step_)))
        if self.model_ is not None:
            z = self.model_.sample(n_samples)
        z = np.asarray(z[0] if isinstance(z, tuple) else z, dtype=np.float64)
        x = self.margins_.inverse(z)
        step = np.where(self.step_ > 0, self.step_, 1.0)
        on_grid = self.offset_ + np.floor((x - self.offset_) / step) * step
        X = np.tile(self.first_row_, (len(z), 1))
        X[:, self.varies_] = np.where(self.step_ > 0, on_grid, x)
        return X

    # --- files -------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write grids, margins and model as one safetensors file; :meth:`load` reads it."""
        kept = {name: getattr(self, name) for name in KEPT}
        return io.write(
            path, {**self.get_params(deep=False), **kept, "margins_": vars(self.margins_)}, "density"
        )

    @classmethod
    def load(cls, path: str | Path) -> DensityOfData:
        """Read what :meth:`save` wrote; nothing in the file is executed."""
        kept = io.read(path, "density")
        found = cls(*(kept[name] for name in ("model", "margins", "pixels", "random_state")))
        for name in KEPT:
            setattr(found, name, kept[name])
        kind = Histograms if found.margins == "histogram" else Gaussians
        found.margins_ = kind.__new__(kind)
        vars(found.margins_).update(kept["margins_"])
        return found


class Gaussians:
    """Columns by mean and deviation."""

    def __init__(self, X: np.ndarray, step: np.ndarray, offset: np.ndarray) -> None:
        self.mean, self.scale = X.mean(0), X.std(0)

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Return the log-density of every entry."""
        return norm.logpdf(X, self.mean, self.scale)

    def normal(self, X: np.ndarray) -> np.ndarray:
        """Return the columns standardised."""
        return (X - self.mean) / self.scale

    def inverse(self, Z: np.ndarray) -> np.ndarray:
        """Undo :meth:`normal`."""
        return Z * self.scale + self.mean


class Histograms:
    """Columns by histogram; a Cauchy distribution, worth one row, makes nothing impossible.

    On a grid every bin is one or several whole cells.
    """

    def __init__(self, X: np.ndarray, step: np.ndarray, offset: np.ndarray) -> None:
        self.n, self.middle, self.scale = len(X), X.mean(0), X.std(0)
        most = int(np.clip(np.sqrt(len(X)), 4, 64))
        self.bins = [_histogram(*column, most) for column in zip(X.T, step, offset)]

    def log_densities(self, X: np.ndarray) -> np.ndarray:
        """Return the log-density of every entry."""
        density = np.empty_like(X)
        for j, (edges, masses) in enumerate(self.bins):
            place = np.searchsorted(edges, X[:, j], side="right") - 1
            inside = (place >= 0) & (place < len(masses))
            heights = masses / np.diff(edges)
            density[:, j] = np.where(inside, heights[place.clip(0, len(masses) - 1)], 0.0)
        return np.log((self.n * density + cauchy.pdf(X, self.middle, self.scale)) / (self.n + 1))

    def _cdf(self, X: np.ndarray, j: int) -> np.ndarray:
        edges, masses = self.bins[j]
        counted = np.interp(X, edges, np.append(0.0, np.cumsum(masses)))
        return (self.n * counted + cauchy.cdf(X, self.middle[j], self.scale[j])) / (self.n + 1)

    def normal(self, X: np.ndarray) -> np.ndarray:
        """Return the columns in normal shape: the normal quantile of each entry's distribution function."""
        return ndtri(np.column_stack([self._cdf(column, j) for j, column in enumerate(X.T)]))

    def inverse(self, Z: np.ndarray) -> np.ndarray:
        """Undo :meth:`normal`, exactly at the edges of bins and linearly between them."""
        out, tails = np.empty_like(Z), cauchy.ppf(np.linspace(0.001, 0.999, 999))
        for j, (edges, _) in enumerate(self.bins):
            x = np.union1d(edges, self.middle[j] + self.scale[j] * tails)
            out[:, j] = np.interp(ndtr(Z[:, j]), self._cdf(x, j), x)
        return out


def _histogram(column: np.ndarray, step: float, offset: float, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and masses of bins."""
    edges: Any = most
    if step > 0:
        cells = int((column.max() - offset) / step) + 1
        width = step * max(1, round(cells / most))
        edges = offset + width * np.arange(int(cells * step / width) + 2)
    counts, edges = np.histogram(column, bins=edges)
    return edges, counts / counts.sum()


def _dense(X: Any) -> np.ndarray:
    X = X.toarray() if hasattr(X, "toarray") else X
    return np.asarray(X, dtype=np.float64)
