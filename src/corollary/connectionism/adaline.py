r"""Adaline, the adaptive linear unit, and its delta rule (least mean squares).

:math:`\hat y = w^\top x + b`, and after every sample Widrow and Hoff's delta rule,

.. math:: w \leftarrow w + \eta_t (y - \hat y)\, x, \qquad b \leftarrow b + \eta_t (y - \hat y), \tag{1}

which is stochastic gradient descent on :math:`\frac12 (y - \hat y)^2`. With a step that falls as
:math:`\eta_t = \eta / (1 + t / T)`, where :math:`t` counts epochs, it tends to the least-squares solution; with a
constant step it hovers around it. The normalised rule divides the step by :math:`1 + \lVert x \rVert^2`, after
which any :math:`\eta < 2` is stable.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval

from corollary.base import Data, Estimator, Regressor
from corollary.compiled import njit
from corollary.engine.learner import Iteration, Metrics
from corollary.errors import Diverged
from corollary.shapes import Array, Dtype, Number

__all__ = ["Adaline"]


@njit(cache=True)
def _delta_epoch(X, y, order, w, step, normalize):  # pragma: no cover - compiled
    """Apply eq. 1 once per row, in the given order; w ends with the bias. Return the sum of squared errors."""
    d, total = X.shape[1], 0.0
    for i in order:
        x = X[i]
        error, square = y[i] - w[d], 1.0
        for j in range(d):
            error -= w[j] * x[j]
            square += x[j] * x[j]
        total += error * error
        move = step * error / square if normalize else step * error
        for j in range(d):
            w[j] += move * x[j]
        w[d] += move
    return total


class _Delta(Iteration):
    saved = ("w", "loss", "rng")

    def __init__(self, model: Adaline, X: np.ndarray, y: np.ndarray) -> None:
        super().__init__(model.max_iter)
        self.X, self.y, self.model, self.rng = X, y, model, model._rng()
        self.w, self.loss = np.zeros(X.shape[1] + 1), np.inf

    def sweep(self) -> Metrics:
        model = self.model
        step = (
            model.learning_rate / (1 + (self.n_iter - 1) / model.decay)
            if model.decay
            else model.learning_rate
        )
        before = self.w.copy()
        order = self.rng.permutation(len(self.X))
        total = _delta_epoch(self.X, self.y, order, self.w, step, model.normalize)
        self.loss = 0.5 * total / len(self.X)
        if not np.isfinite(self.loss):
            raise Diverged(
                f"Adaline: loss became {self.loss} at step {self.n_iter} (learning_rate={model.learning_rate:g}). "
                "Lower learning_rate, scale the data, or set normalize=True; the last finite state is kept."
            )
        change = np.abs(self.w - before).max()
        self.converged = bool(change <= model.tol * max(1e-300, np.abs(self.w).max()))
        return {"loss": self.loss}


class Adaline(Regressor, Estimator):
    """Fit a linear function by the delta rule (least mean squares): stochastic gradient descent on the squared error.

    Parameters
    ----------
    learning_rate : float, default=0.5
        Step of the first epoch. Larger is faster; from 2 on it diverges.
    decay : float, default=5.0
        Epochs after which the step has halved; 0 keeps it constant, so that the weights go on hovering.
    normalize : bool, default=True
        Whether the step is divided by the squared length of the input, which suits any scale.
    max_iter : int, default=300
        Most epochs.
    tol : float, default=1e-5
        Stop when an epoch changes no weight by more than this share of the largest one.
    random_state : int or RandomState, optional
        Seed for the order of the samples.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features_in_,)
        The weights.
    intercept_ : float
        The bias.
    n_iter_ : int
        Epochs run.
    history_ : list of dict
        Step, loss and seconds; the loss is half the mean squared error met on the way.

    Notes
    -----
    Eq. (1) of the module's page; O(n d) per epoch. Inputs of very different scales slow it down. The
    normalised rule weighs each row by the inverse of its squared length: where the targets are not
    linear in the inputs, its limit is that weighted least-squares solution.

    References
    ----------
    .. [1] B. Widrow, M. E. Hoff (1960). Adaptive switching circuits. IRE WESCON Convention Record 4, 96-104.

    Examples
    --------
    >>> import numpy as np
    >>> from corollary import Adaline
    >>> X = np.random.default_rng(0).standard_normal((50, 2))
    >>> Adaline(random_state=0).fit(X, X @ [1, -2] + 3).coef_.round(2)
    array([ 1., -2.])
    """

    _parameter_constraints = {
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "decay": [Interval(Real, 0, None, closed="left")],
        "normalize": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"dtype_": Dtype(), "coef_": Array("n_features_in_"), "intercept_": Number()}

    def __init__(
        self, learning_rate=0.5, *, decay=5.0, normalize=True, max_iter=300, tol=1e-5, random_state=None
    ):
        self.learning_rate = learning_rate
        self.decay = decay
        self.normalize = normalize
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"max_iter": 100}

    def _fitted_sizes(self, data: Data) -> dict[str, Any]:
        return {"dtype_": str(data.X.dtype)}

    def _learner(self, data: Data) -> _Delta:
        return _Delta(self, data.X.astype(np.float64), data.y.astype(np.float64))

    def _adopt(self, learner: _Delta) -> None:
        self.coef_ = learner.w[:-1].astype(self.dtype_)
        self.intercept_ = float(learner.w[-1])
        self.n_iter_ = learner.n_iter

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return (X @ self.coef_ + self.intercept_).astype(X.dtype)
