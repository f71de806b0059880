r"""Approximation: piecewise linear functions as networks, exactly; rates and universality, measured.

A continuous piecewise linear function on the line is a layer of rectified units, one per change of slope:

.. math:: g(x) = y_0 + a (x - x_0) + \sum_i c_i (x - x_i)_+, \qquad c_i = \text{change of slope at } x_i, \tag{1}

a difference of two convex ones, :math:`g = \max_i (\theta_i x + b_i) - \max_j (\theta'_j x + b'_j)` (2), by the signs of the
:math:`c_i`; any ReLU network is such a difference, since :math:`(p - n)_+ = \max(p, n) - n` keeps both parts convex (3). In
:math:`\mathbb R^n` a maximum of any number of affine functions is a signed sum of maxima of at most :math:`n + 1` of them
(k-hinges), because more than that have an affine relation between their slopes (4).

If :math:`f` is a combination of units :math:`\sum_j c_j g_j` of norm at most 1 with :math:`\sum_j |c_j| = V`, finite or not,
then taking m units greedily and fitting their weights leaves (Barron, Jones)

.. math:: \lVert f - f_m \rVert^2 \le \frac{V^2}{m} \tag{5}

in any dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from corollary.errors import kind, value
from corollary.nn.activations import activation as named_activation
from corollary.theory.counting import _layers_of

__all__ = [
    "Rate",
    "ReLUSpline",
    "barron_rate",
    "convex_parts",
    "difference_of_convex",
    "k_hinge",
    "relu_spline",
    "universality",
]

MOST_PIECES = 14  # affine functions whose k-hinges are listed: their number grows as 2^n


class ReLUSpline(NamedTuple):
    """A continuous piecewise linear function on the line, eq. 1; it continues straight beyond its first and last piece."""

    start: tuple[float, float]  # a point on the first piece
    slope: float  # of the first piece
    knots: np.ndarray  # where the slope changes
    weights: np.ndarray  # by how much

    def __call__(self, x: Any) -> np.ndarray:
        """Return the values at x, of any shape."""
        x = np.asarray(x, np.float64)
        bends = np.maximum(x[..., None] - self.knots, 0) @ self.weights
        return self.start[1] + self.slope * (x - self.start[0]) + bends

    def module(self) -> nn.Sequential:
        """Return the same function as a network with one hidden layer of ReLU units, from (n, 1) to (n, 1)."""
        x0, y0 = self.start
        shifts = np.concatenate([-self.knots, [-x0, x0]])
        signs = np.concatenate([np.ones(len(self.knots) + 1), [-1.0]])
        out = np.concatenate([self.weights, [self.slope, -self.slope]])  # a x = a (x)_+ - a (-x)_+
        net = nn.Sequential(nn.Linear(1, len(signs)), nn.ReLU(), nn.Linear(len(signs), 1)).double()
        parts = {"0.weight": signs[:, None], "0.bias": shifts, "2.weight": out[None], "2.bias": [y0]}
        net.load_state_dict({name: torch.tensor(np.asarray(part)) for name, part in parts.items()})
        return net


def _points(owner: str, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 or not np.isfinite([x, y]).all():
        got = f"shapes {x.shape} and {y.shape}"
        raise value(owner, "x and y must be finite, of one length of at least 2", got)
    order = np.argsort(x)
    x, y = x[order], y[order]
    if (np.diff(x) <= 0).any():
        twice = float(x[:-1][np.diff(x) <= 0][0])
        raise value(owner, "every x must occur once", f"{twice} twice", "Take the mean of its values.")
    return x, y


def relu_spline(x: Any, y: Any) -> ReLUSpline:
    """Return the piecewise linear function through points as one layer of ReLU units, exactly, eq. 1.

    Parameters
    ----------
    x, y : arrays of shape (n,)
        The points, n of at least 2, in any order.

    Examples
    --------
    >>> g = relu_spline([0, 1, 2], [0.0, 1.0, 0.0])
    >>> g([0.5, 1.5]), g.weights
    (array([0.5, 0.5]), array([-2.]))
    """
    x, y = _points("relu_spline", x, y)
    slopes = np.diff(y) / np.diff(x)
    return ReLUSpline((float(x[0]), float(y[0])), float(slopes[0]), x[1:-1], np.diff(slopes))


def difference_of_convex(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the piecewise linear function through points as a difference of two maxima, eq. 2.

    Parameters
    ----------
    x, y : arrays of shape (n,)
        The points, n of at least 2, in any order.

    Returns
    -------
    tuple of two ndarrays of shape (k, 2)
        Slope and intercept of the affine functions in the first and in the second maximum.

    Examples
    --------
    >>> plus, minus = difference_of_convex([0, 1, 2], [0.0, 1.0, 0.0])
    >>> plus, minus
    (array([[1., 0.]]), array([[ 0.,  0.],
           [ 2., -2.]]))
    """
    g = relu_spline(x, y)
    up = np.maximum(g.weights, 0)
    first = g.start[1] - g.slope * g.start[0]
    return _lines(first, g.slope, g.knots, up), _lines(0.0, 0.0, g.knots, up - g.weights)


def _lines(start: float, slope: float, knots: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Return the affine pieces of start + slope x + sum of changes (x - knot)_+, as (slope, intercept) rows."""
    knots, changes = knots[changes != 0], changes[changes != 0]
    slopes = slope + np.concatenate([[0], np.cumsum(changes)])
    return np.column_stack([slopes, start - np.concatenate([[0], np.cumsum(changes * knots)])])


def convex_parts(module: Any) -> tuple[Callable[[Any], Tensor], Callable[[Any], Tensor]]:
    """Return two convex functions whose difference is a given ReLU network, eq. 3.

    Parameters
    ----------
    module : torch.nn.Module or fitted estimator
        Linear and ReLU layers in a row; of an estimator, its ``module_``.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    >>> g, h = convex_parts(net)
    >>> x = torch.randn(5, 2).double()
    >>> bool(torch.allclose(g(x) - h(x), net(x)))
    True
    """
    layers = _layers_of(module)
    if any(isinstance(layer, nn.LeakyReLU) for layer in layers):
        raise value("convex_parts", "all activations must be ReLU", "a leaky one")

    def both(x: Any) -> tuple[Tensor, Tensor]:
        p = torch.as_tensor(x).to(layers[0].weight)  # type: ignore[arg-type]
        n = torch.zeros_like(p)
        with torch.no_grad():
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    up, down = layer.weight.clamp(min=0), (-layer.weight).clamp(min=0)
                    p, n = p @ up.T + n @ down.T, n @ up.T + p @ down.T
                    p = p if layer.bias is None else p + layer.bias
                else:
                    p = torch.maximum(p, n)
        return p, n

    return lambda x: both(x)[0], lambda x: both(x)[1]


def k_hinge(slopes: Any, offsets: Any) -> dict[tuple[int, ...], int]:
    """Return a maximum of affine functions on n-space as a signed sum of maxima of at most n + 1 of them, eq. 4.

    Parameters
    ----------
    slopes : array of shape (k, n)
        At most 14 affine functions.
    offsets : array of shape (k,)
        Their values at the origin.

    Returns
    -------
    dict
        The coefficient, an integer, of the maximum over each tuple of functions.

    Notes
    -----
    Weights w with sum w = 0 and sum w slope = 0, supported on n + 2 of the functions and oriented so that sum w offset is
    not positive, split them into those with positive weight, P, and the rest: at every point some function of P lies below
    the maximum M over the rest. So the minimum over P of max(a, M) is M, and the max-min identity can be solved for the
    maximum over all.

    References
    ----------
    .. [1] S. Wang, X. Sun (2005). Generalization of hinging hyperplanes. IEEE Transactions on Information Theory 51.

    Examples
    --------
    >>> k_hinge([[-1.0], [0.0], [1.0]], [0.0, 0.5, 0.0])
    {(0, 1): 1, (1, 2): 1, (1,): -1}
    """
    slopes, offsets = np.asarray(slopes, np.float64), np.asarray(offsets, np.float64)
    if slopes.ndim != 2 or offsets.shape != (len(slopes),) or not len(slopes):
        raise value("k_hinge", "slopes (k, n) and offsets (k,) must fit", f"{slopes.shape}, {offsets.shape}")
    if len(slopes) > MOST_PIECES:
        do = "Use difference_of_convex, or fewer pieces."
        raise value("k_hinge", f"there must be at most {MOST_PIECES} affine functions", len(slopes), do)
    left, done = {tuple(range(len(slopes))): 1}, dict[tuple[int, ...], int]()
    while left:
        members, times = left.popitem()
        if len(members) <= slopes.shape[1] + 1:
            done[members] = done.get(members, 0) + times
            continue
        for sign, part in _radon(slopes, offsets, members):
            left[part] = left.get(part, 0) + sign * times
    return {
        members: times for members, times in sorted(done.items(), key=lambda e: (-len(e[0]), e[0])) if times
    }


def _radon(
    slopes: np.ndarray, offsets: np.ndarray, members: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...]]]:
    """Return the maximum over the members as signed maxima over fewer of them."""
    some = list(members[: slopes.shape[1] + 2])
    weights = np.linalg.svd(np.vstack([slopes[some].T, np.ones(len(some))]))[2][-1]
    weights = weights * (-1 if weights @ offsets[some] > 0 else 1)
    weights[np.abs(weights) < 1e-12] = 0
    P = tuple(i for i, w in zip(some, weights) if w > 0)
    rest = tuple(i for i in members if i not in P)
    sign = (-1) ** (len(P) + 1)
    parts = [S for size in range(1, len(P)) for S in combinations(P, size)]
    return [(sign, rest)] + [(sign * (-1) ** len(S), tuple(sorted(S + rest))) for S in parts]


# --- rates --------------------------------------------------------------------------------------------------


class Rate(NamedTuple):
    """Errors over the number of units."""

    sizes: np.ndarray
    errors: np.ndarray

    @property
    def exponent(self) -> float:
        """The slope of log error over log size."""
        kept = self.errors > self.errors[0] * 1e-24
        return float(np.polyfit(np.log(self.sizes[kept]), np.log(self.errors[kept]), 1)[0])


class _Ridge(NamedTuple):
    """All units phi(w x + b) on the samples X, to choose from."""

    X: np.ndarray
    phi: nn.Module

    def random(self, n_units: int, rng: np.random.Generator) -> np.ndarray:
        """Return weights and biases (n_units, d + 1) of units whose kinks lie among the data."""
        W = rng.normal(size=(n_units, self.X.shape[1]))
        W *= (rng.exponential(3.0, size=n_units) / self.X.std() / np.linalg.norm(W, axis=1))[:, None]
        centres = self.X[rng.integers(len(self.X), size=n_units)]
        return np.column_stack([W, -(W * centres).sum(1)])

    def outputs(self, units: Tensor) -> Tensor:
        """Return the outputs (n, units)."""
        return self.phi(torch.from_numpy(self.X) @ units[:, :-1].T + units[:, -1])  # type: ignore[no-any-return]

    def best(self, residual: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Return the output of the unit that is most correlated with the residual: the best of these, then climbing."""
        r = torch.from_numpy(residual)

        def cosine(theta: Tensor) -> Tensor:
            g = self.outputs(theta)
            return ((r @ g) / g.square().sum(0).clamp(min=1e-300).sqrt()).abs()

        def downhill(theta: np.ndarray) -> tuple[float, np.ndarray]:
            free = torch.from_numpy(theta[None].copy()).requires_grad_(True)
            lost = -cosine(free).sum()
            return float(lost.detach()), torch.autograd.grad(lost, free)[0][0].numpy()

        start = units[int(cosine(torch.from_numpy(units)).argmax())]
        found = minimize(downhill, start, jac=True, method="L-BFGS-B", options={"maxiter": 50}).x
        return self.outputs(torch.from_numpy(found[None]))[:, 0].numpy()  # type: ignore[no-any-return]


def barron_rate(
    X: Any,
    y: Any,
    sizes: Sequence[int] = (1, 2, 4, 8, 16, 32),
    *,
    activation: str = "sigmoid",
    n_units: int = 500,
    dictionary: Any = None,
    random_state: int | None = None,
) -> Rate:
    """Measure how the mean squared error falls with the number of hidden units, chosen greedily, eq. 5.

    Parameters
    ----------
    X, y : arrays of shape (n, d) and (n,)
        Samples of the function to approximate.
    sizes : sequence of int
        Numbers of units at which the error is measured.
    activation : str, default="sigmoid"
        Of the random ridge units that are chosen from.
    n_units : int, default=500
        How many there are; from the best of them the search goes on by gradients.
    dictionary : array of shape (n, units), optional
        Outputs of units of one's own instead.
    random_state : int, optional
        Seed of the units.

    Returns
    -------
    Rate
        ``errors`` at the ``sizes``, and their ``exponent``: -1 or less where equation 5 applies.

    Notes
    -----
    Orthogonal greedy algorithm: each step takes the unit that is most correlated with the residual and fits all weights anew;
    O(n (d + m) units) a step.

    References
    ----------
    .. [1] A. Barron (1993). Universal approximation bounds for superpositions of a sigmoidal function. IEEE Transactions on
       Information Theory 39.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 4))
    >>> rate = barron_rate(X, np.cos(X.sum(1)), random_state=0)
    >>> bool(rate.exponent < -1)
    True
    """
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64).reshape(-1)
    if X.ndim != 2 or len(X) != len(y):
        raise value("barron_rate", "X (n, d) and y (n,) must fit", f"shapes {X.shape} and {y.shape}")
    rng = np.random.default_rng(random_state)
    most = len(y) if dictionary is None else min(np.shape(dictionary))
    if max(sizes) > most:
        raise value("barron_rate", f"sizes must be at most {most}", max(sizes))
    if dictionary is None:
        ridge = _Ridge(X, named_activation(activation))
        units = ridge.random(n_units, rng)
        choose = lambda r: ridge.best(r, units)  # noqa: E731
    else:
        G = np.asarray(dictionary, np.float64)
        G = G / np.maximum(np.linalg.norm(G, axis=0), np.finfo(float).tiny)
        choose = lambda r: G[:, np.abs(G.T @ r).argmax()]  # noqa: E731
    errors, basis, residual = [], np.empty((len(y), 0)), y.copy()
    for m in range(1, max(sizes) + 1):
        g = choose(residual)
        for _ in range(2):  # Gram-Schmidt, twice for precision
            g = g - basis @ (basis.T @ g)
        norm = np.linalg.norm(g)
        if norm > 1e-12:
            basis = np.column_stack([basis, g / norm])
            residual = residual - basis[:, -1] * (basis[:, -1] @ residual)
        if m in sizes:
            errors.append(float(np.mean(residual**2)))
    return Rate(np.array(sorted(set(sizes))), np.array(errors))


def universality(
    f: Callable[[np.ndarray], np.ndarray],
    sizes: Sequence[int] = (4, 16, 64),
    *,
    activation: Any = "tanh",
    low: float = -1.0,
    high: float = 1.0,
    random_state: int | None = None,
) -> Rate:
    """Measure the largest error of one hidden layer of random units with fitted output weights, on an interval.

    It falls with the size for any activation that is not a polynomial, and stalls for a polynomial.

    Parameters
    ----------
    f : callable
        A continuous function of arrays.
    sizes : sequence of int
        Hidden units.
    activation : str or callable, default="tanh"
        A name of ``corollary.nn.activations``, or a function of arrays.
    low, high : float
        The interval.
    random_state : int, optional
        Seed of the units.

    Examples
    --------
    >>> universal = universality(np.exp, random_state=0)
    >>> polynomial = universality(np.exp, activation=np.square, random_state=0)
    >>> bool(universal.errors[-1] < 1e-3), bool(polynomial.errors[-1] > 1e-2)
    (True, True)
    """
    if not callable(f):
        raise kind("universality", "f must be a function", type(f).__name__)
    rng = np.random.default_rng(random_state)
    middle, half = (low + high) / 2, (high - low) / 2
    x = middle + half * np.cos(np.pi * (np.arange(4 * max(sizes)) + 0.5) / (4 * max(sizes)))
    grid = np.linspace(low, high, 1001)
    phi = activation
    if isinstance(activation, str):
        layer = named_activation(activation)
        phi = lambda z: np.asarray(layer(torch.from_numpy(z)))  # noqa: E731
    errors = []
    for m in sizes:
        scale = rng.normal(size=m) * 4 / half
        centre = rng.uniform(low, high, size=m)
        train, test = (
            np.column_stack([phi(scale * (t[:, None] - centre)), np.ones_like(t)]) for t in (x, grid)
        )
        weights = np.linalg.lstsq(train, f(x), rcond=1e-12)[0]
        errors.append(float(np.abs(test @ weights - f(grid)).max()))
    return Rate(np.array(sizes), np.array(errors))
