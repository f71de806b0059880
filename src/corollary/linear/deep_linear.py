r"""Deep linear networks: the learning dynamics of a product of matrices.

On whitened inputs the loss of :math:`W = W_L \cdots W_1` is, up to a constant, :math:`\frac12 \lVert W - \Gamma \rVert_F^2`
with :math:`\Gamma = \frac1n Y^\top X` (1), and

.. math::
    \partial_{W_\ell} = (W_L \cdots W_{\ell+1})^\top (W - \Gamma) (W_{\ell-1} \cdots W_1)^\top. \tag{2}

Let :math:`\Gamma = \sum_i s_i u_i v_i^\top`. If the layers start balanced and aligned with these pairs, the modes
:math:`a_i = u_i^\top W v_i` do not meet, and under gradient flow

.. math:: \dot a = L\, a^{2 - 2/L} (s - a), \tag{3}

so that one layer has :math:`a(t) = s + (a_0 - s) e^{-t}` and two have
:math:`a(t) = s\, e^{2 s t} / (e^{2 s t} - 1 + s / a_0)` (4): large modes are learned first, each after a plateau of about
:math:`\ln(s / a_0) / 2 s`. The critical products of full rank are :math:`\Gamma` restricted to a choice of pairs; all but the
choice of the largest are saddle points (5).

References
----------
.. [1] A. Saxe, J. McClelland, S. Ganguli (2014). Exact solutions to the nonlinear dynamics of learning in
   deep linear neural networks. ICLR.
"""

from __future__ import annotations

from itertools import combinations
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data, Estimator, Regressor
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array, Either, Flag, List, Number

__all__ = ["CriticalPoint", "DeepLinearNetwork", "critical_points", "layer_gradients", "mode_trajectory"]


def product(layers: list[np.ndarray]) -> np.ndarray:
    """Return W_L ... W_1 for layers (W_1, ..., W_L)."""
    W = layers[0]
    for layer in layers[1:]:
        W = layer @ W
    return W


def layer_gradients(layers: list[np.ndarray], gamma: np.ndarray) -> list[np.ndarray]:
    """Return the gradients of half the squared distance to ``gamma``, eq. 2."""
    below, above = [np.eye(layers[0].shape[1])], [np.eye(layers[-1].shape[0])]
    for layer in layers[:-1]:
        below.append(layer @ below[-1])
    for layer in layers[:0:-1]:
        above.append(above[-1] @ layer)
    error = layers[-1] @ below[-1] - gamma
    return [up.T @ error @ down.T for up, down in zip(above[::-1], below)]


def mode_trajectory(s: float, start: float, times: np.ndarray, n_layers: int) -> np.ndarray:
    """Return the strength of a mode under gradient flow, eq. 3; in closed form for one and two layers, eq. 4."""
    times = np.asarray(times, np.float64)
    if n_layers == 1:
        return s + (start - s) * np.exp(-times)
    if n_layers == 2:
        decay = np.exp(-2 * s * times)
        return s / (1 - decay + (s / start) * decay)
    flow = lambda t, a: n_layers * np.maximum(a, 0) ** (2 - 2 / n_layers) * (s - a)
    return solve_ivp(flow, (0, float(times.max())), [start], t_eval=times, rtol=1e-10, atol=1e-12).y[0]


class CriticalPoint(NamedTuple):
    """A choice of singular pairs, the product it stands for, its loss, and whether it is the minimum."""

    pairs: tuple[int, ...]
    W: np.ndarray
    loss: float
    minimum: bool


def critical_points(gamma: np.ndarray, width: int) -> list[CriticalPoint]:
    """Return every critical product of full rank for hidden layers of this width, eq. 5; the minimum first."""
    U, s, Vt = np.linalg.svd(gamma, full_matrices=False)
    rank = int((s > s[0] * 1e-12).sum())
    count = min(width, rank)
    points = []
    for pairs in combinations(range(rank), count):
        kept = list(pairs)
        left = 0.5 * float(np.delete(s, kept) @ np.delete(s, kept))
        points.append(
            CriticalPoint(pairs, (U[:, kept] * s[kept]) @ Vt[kept], left, pairs == tuple(range(count)))
        )
    return sorted(points, key=lambda point: point.loss)


class Descent(Iteration):
    """Full-batch gradient descent on the layers; the strength of every mode is recorded."""

    saved = ("layers", "modes")

    def __init__(
        self, layers: list[np.ndarray], gamma: np.ndarray, rate: float, max_iter: int, tol: float
    ) -> None:
        super().__init__(max_iter)
        self.layers, self.gamma, self.rate, self.tol = layers, gamma, rate, tol
        self.U, self.s, self.Vt = np.linalg.svd(gamma, full_matrices=False)
        self.modes = np.zeros((max_iter + 1, len(self.s)))
        self.modes[0] = self.strengths()

    def strengths(self) -> np.ndarray:
        """Return u_iᵀ W v_i."""
        return np.einsum("ij,ji->i", self.U.T @ product(self.layers), self.Vt.T)

    def sweep(self) -> Metrics:
        """Take one step, eq. 2."""
        gradients = layer_gradients(self.layers, self.gamma)
        self.layers = [layer - self.rate * g for layer, g in zip(self.layers, gradients)]
        self.modes[self.n_iter] = self.strengths()
        distance = float(np.linalg.norm(product(self.layers) - self.gamma))
        steepest = max(float(np.abs(g).max()) for g in gradients)
        scale = max(float(np.linalg.norm(self.gamma)), 1e-300)
        self.converged = distance <= self.tol * scale
        return {"loss": 0.5 * distance**2, "gradient": steepest}


class DeepLinearNetwork(Regressor, Estimator):
    r"""Train a deep linear network, and record how fast each singular mode of the map is learned.

    Parameters
    ----------
    n_layers : int, default=2
        Layers; deeper ones have longer plateaus and sharper transitions.
    width : int, optional
        Hidden units; by default as many as inputs or outputs, whichever are fewer. Fewer bound the rank.
    init : {"random", "aligned"}, default="random"
        Random layers, or balanced layers aligned with the solution, for which (3) is exact.
    scale : float, default=0.3
        Size of the first layers; smaller means longer plateaus.
    learning_rate : float, default=0.1
        Step, in units of the largest stable curvature.
    max_iter : int, default=3000
        Most steps.
    tol : float, default=1e-6
        Stop at this relative distance from the solution.
    random_state : int or RandomState, optional
        Seed for random layers.

    Attributes
    ----------
    layers_ : list of ndarray
        W_1 to W_L, of whitened inputs.
    singular_values_ : ndarray of shape (r,)
        The s_i of the solution.
    modes_, times_ : ndarray of shape (n_iter_ + 1, r) and (n_iter_ + 1,)
        Strength of each mode after each step, and the time of gradient flow.
    coef_, intercept_ : ndarray
        The map as one matrix of the raw inputs.
    n_iter_ : int
        Steps.

    Notes
    -----
    Minimises the squared error, which for a product is not convex; all local minima are global. A step costs
    O(L d² w), whatever the number of samples. With enough width the end is least squares. Of the notes, 002 prints
    :math:`\Gamma = \frac{1}{2s} X Y^\top`, transposed and halved (erratum E27), and transposes the gradients of two
    layers (E29); 003 whitens to :math:`X X^\top = I` and still divides by the number of samples (E28); 000 has the step
    size of the flow in the wrong place (E31). Equations (1) and (2) are what finite differences confirm.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from corollary import DeepLinearNetwork
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(DeepLinearNetwork(n_layers=3, random_state=0).fit(X, y).score(X, y), 2)
    0.52
    """

    _multi_output = True
    _checks = {"ensure_min_samples": 2}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"random", "aligned"})],
        "scale": [Interval(Real, 0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {
        "_single": Flag(),
        "layers_": List(Array(None, None)),
        "singular_values_": Array(None),
        "modes_": Array("steps", None),
        "times_": Array("steps"),
        "coef_": Either(Array("n_features_in_"), Array("targets", "n_features_in_")),
        "intercept_": Either(Number(), Array("targets")),
    }

    def __init__(
        self,
        n_layers=2,
        *,
        width=None,
        init="random",
        scale=0.3,
        learning_rate=0.1,
        max_iter=3000,
        tol=1e-6,
        random_state=None,
    ):
        self.n_layers = n_layers
        self.width = width
        self.init = init
        self.scale = scale
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 300}

    def _learner(self, data: Data) -> Descent:
        X, Y = data.X.astype(np.float64), data.y.reshape(len(data.y), -1).astype(np.float64)
        self._single = data.y.ndim == 1
        x_mean, y_mean = X.mean(axis=0), Y.mean(axis=0)
        U, s, Vt = np.linalg.svd(X - x_mean, full_matrices=False)
        keep = s > s.max(initial=0.0) * 1e-10
        if not keep.any():
            raise errors.value("DeepLinearNetwork", "some feature must vary", "constant features alone")
        whitening = np.sqrt(len(X)) * (Vt[keep].T / s[keep])  # (d, r)
        unit = float(np.abs(Y - y_mean).max()) or 1.0
        gamma = (Y - y_mean).T @ ((X - x_mean) @ whitening) / len(X) / unit
        layers = self._layers(gamma)
        largest = max(float(np.linalg.norm(gamma, 2)), float(np.linalg.norm(product(layers), 2)), 1e-12)
        rate = self.learning_rate / (self.n_layers * largest ** (2 - 2 / self.n_layers))
        learner = Descent(layers, gamma, rate, self.max_iter, self.tol)
        learner.frame = (whitening, x_mean, y_mean, unit, data.X.dtype)
        return learner

    def _layers(self, gamma: np.ndarray) -> list[np.ndarray]:
        out, r = gamma.shape
        width = self.width or max(1, min(out, r))
        sizes = [r, *[width] * (self.n_layers - 1), out]
        if self.init == "random":
            rng = self._rng()
            return [self.scale * rng.standard_normal((b, a)) / np.sqrt(a) for a, b in zip(sizes, sizes[1:])]
        U, _, Vt = np.linalg.svd(gamma, full_matrices=False)
        k = min(*sizes)
        layers = [self.scale * np.eye(b, a) for a, b in zip(sizes, sizes[1:])]
        layers[0], layers[-1] = layers[0] @ _square(Vt, r), _square(U.T, out).T @ layers[-1]
        if self.n_layers == 1:
            layers = [self.scale * U[:, :k] @ Vt[:k]]
        return layers

    def _adopt(self, learner: Descent) -> None:
        whitening, x_mean, y_mean, unit, dtype = learner.frame
        coef = unit * product(learner.layers) @ whitening.T
        intercept = y_mean - coef @ x_mean
        self.layers_, self.singular_values_ = [layer.copy() for layer in learner.layers], learner.s
        self.modes_ = learner.modes[: learner.n_iter + 1].copy()
        self.times_ = learner.rate * np.arange(len(self.modes_))
        self.coef_ = (coef[0] if self._single else coef).astype(dtype)
        self.intercept_ = dtype.type(intercept[0]) if self._single else intercept.astype(dtype)
        self.n_iter_ = learner.n_iter

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return X @ self.coef_.T + self.intercept_


def _square(rows: np.ndarray, size: int) -> np.ndarray:
    """Complete orthonormal rows to an orthogonal matrix."""
    Q = np.linalg.qr(np.vstack([rows, np.eye(size)]).T)[0].T
    Q[: len(rows)] = rows
    return Q
