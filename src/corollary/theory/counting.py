r"""Counting: dichotomies, regions of hyperplane arrangements and of ReLU networks, shattering.

Of n points in general position in :math:`\mathbb R^d` the half-spaces whose boundary passes through the origin cut out

.. math:: C(n, d) = 2 \sum_{i=0}^{d-1} \binom{n-1}{i} \tag{1}

dichotomies (Cover); m hyperplanes in general position cut :math:`\mathbb R^n` into

.. math:: R(m, n) = \sum_{i=0}^{\min(m, n)} \binom{m}{i} \tag{2}

regions (Zaslavsky). A ReLU network with layers of :math:`m_1, \dots, m_L` units can have at least

.. math:: R(m_L, n) \prod_{l < L} \Bigl\lfloor \frac{m_l}{n} \Bigr\rfloor^n \tag{3}

linear regions (Montúfar): that is what the best weights reach, not every network. On a plane the regions of a given network are
convex polygons: each unit cuts those of the layers before it along a line, and its output is affine on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import lsq_linear, nnls
from torch import nn

from corollary.errors import kind, value

__all__ = [
    "Regions",
    "count_dichotomies",
    "count_pieces",
    "count_regions",
    "cover",
    "hard_margin",
    "is_separable",
    "linear_regions",
    "montufar",
    "shattered",
    "vc_dimension",
    "zaslavsky",
]

MOST = 16  # points or hyperplanes whose 2^n labellings are enumerated
MOST_REGIONS = 100_000


def _whole(owner: str, **numbers: Any) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
            raise value(owner, f"{name} must be an integer of at least 1", repr(number))


# --- formulas -----------------------------------------------------------------------------------------------


def cover(n: int, d: int) -> int:
    """Return the number of dichotomies of n points in general position in d-space by half-spaces through the origin, eq. 1.

    Parameters
    ----------
    n : int
        Points.
    d : int
        Dimensions.

    Examples
    --------
    >>> cover(4, 3), cover(6, 3) == 2**5
    (14, True)
    """
    _whole("cover", n=n, d=d)
    return 2 * _binomials(int(n) - 1, int(d) - 1)


def zaslavsky(m: int, n: int) -> int:
    """Return the number of regions that m hyperplanes in general position cut n-space into, eq. 2.

    Examples
    --------
    >>> [zaslavsky(m, 2) for m in range(1, 5)]
    [2, 4, 7, 11]
    """
    _whole("zaslavsky", m=m, n=n)
    return _binomials(int(m), int(n))


def _binomials(m: int, last: int) -> int:
    """Return the sum of the binomial coefficients of m over 0, ..., last, each from the one before; all are 2^m."""
    if last >= m:
        return 1 << m
    total = term = 1
    for i in range(1, last + 1):
        term = term * (m - i + 1) // i
        total += term
    return total


def montufar(widths: Sequence[int], n: int) -> int:
    """Return how many linear regions a ReLU network with these hidden widths on n inputs can at least have, eq. 3.

    Examples
    --------
    >>> montufar([4, 4, 4], 2), zaslavsky(12, 2)
    (176, 79)
    """
    if not len(widths):
        raise value("montufar", "there must be at least one hidden layer", "none")
    _whole("montufar", n=n, **{f"widths[{i}]": width for i, width in enumerate(widths)})
    if len(widths) > 1 and min(widths) < n:
        do = "Count the regions of a small net with linear_regions."
        raise value(
            "montufar", f"every hidden layer must be at least as wide as the {n} inputs", min(widths), do
        )
    folds = 1
    for width in widths[:-1]:
        folds *= (int(width) // int(n)) ** int(n)
    return zaslavsky(widths[-1], n) * folds


# --- enumeration --------------------------------------------------------------------------------------------


def hard_margin(Z: np.ndarray) -> np.ndarray | None:
    """Return the shortest ``w`` with ``Z @ w >= 1``, or None if there is none.

    Least distance programming after Lawson and Hanson: one non-negative least-squares problem.
    """
    E = np.vstack([Z.T, np.ones(len(Z))])
    f = np.append(np.zeros(Z.shape[1]), 1.0)
    residual = E @ nnls(E, f)[0] - f
    if (E.T @ residual).min() < -1e-9:  # scipy's nnls may stop too early when columns tie
        residual = E @ lsq_linear(E, f, bounds=(0, np.inf), method="bvls").x - f
    return None if np.linalg.norm(residual) < 1e-9 else -residual[:-1] / residual[-1]


def is_separable(X: np.ndarray, y: np.ndarray) -> bool:
    """Whether some hyperplane through the origin has every ``x`` on the side its label (-1 or 1) says."""
    return hard_margin(np.asarray(y)[:, None] * X) is not None


def _enumerable(owner: str, n: int, what: str) -> None:
    if n > MOST:
        do = f"Take fewer {what}, or use the formula."
        raise value(owner, f"there must be at most {MOST} {what} to enumerate labellings", f"{n}: 2^{n}", do)


def _table(owner: str, X: Any) -> np.ndarray:
    X = np.asarray(X, np.float64)
    if X.ndim != 2 or not X.size or not np.isfinite(X).all():
        raise value(owner, "points must be finite rows (n, d)", f"shape {X.shape}")
    return X


def count_dichotomies(X: Any) -> int:
    """Return how many of the 2^n labellings of the rows a hyperplane through the origin realises.

    Examples
    --------
    >>> count_dichotomies([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]) == cover(3, 2)
    True
    """
    X = _table("count_dichotomies", X)
    _enumerable("count_dichotomies", len(X), "points")
    signs = (np.array((1, *rest)) for rest in product((-1, 1), repeat=len(X) - 1))
    return 2 * sum(is_separable(X, y) for y in signs)  # a labelling and its negative go together


def count_regions(W: Any, b: Any) -> int:
    """Return how many of the 2^m sign patterns of ``W @ x + b`` some ``x`` realises strictly.

    Examples
    --------
    >>> count_regions([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1.0]) == zaslavsky(3, 2)
    True
    """
    W, b = _table("count_regions", W), np.asarray(b, np.float64)
    _enumerable("count_regions", len(W), "hyperplanes")
    if b.shape != (len(W),):
        raise value("count_regions", f"b must have one entry per hyperplane ({len(W)})", f"shape {b.shape}")
    # With a homogenising coordinate that must be positive this is separability in one more dimension.
    rows = np.vstack([np.column_stack([W, b]), np.eye(W.shape[1] + 1)[-1]])
    patterns = product((-1, 1), repeat=len(W))
    return sum(is_separable(rows, np.array((*pattern, 1))) for pattern in patterns)


def count_pieces(layers: Sequence[tuple[np.ndarray, np.ndarray]], low: float, high: float) -> int:
    """Return the exact number of activation regions of a ReLU network of one input on an interval.

    ``layers`` are the weights and biases of the hidden layers.
    """
    x, h = np.array([low, high]), np.array([[low], [high]])
    for W, b in layers:
        p = h @ W.T + b
        p[np.abs(p) < 1e-9] = 0.0  # a corner that only touches zero
        unit, at = np.nonzero((p[:-1] * p[1:] < 0).T)
        share = p[at, unit] / (p[at, unit] - p[at + 1, unit])
        crossings = x[at] + share * (x[at + 1] - x[at])
        values = p[at] + share[:, None] * (p[at + 1] - p[at])  # affine between breakpoints
        x, order = np.unique(np.append(x, crossings), return_index=True)
        h = np.maximum(np.vstack([p, values])[order], 0)
    return len(x) - 1


# --- shattering ---------------------------------------------------------------------------------------------

Realises = Callable[[np.ndarray, np.ndarray], bool]


def _by_fitting(model: Any) -> Realises:
    """Return whether an estimator, fitted to a labelling, gives it back; the lower bound that training reaches."""
    from sklearn.base import clone

    def realises(X: np.ndarray, y: np.ndarray) -> bool:
        if len(np.unique(y)) == 1:
            return True  # scikit-learn's classifiers want two classes; a constant is in any class of interest
        return bool((clone(model).fit(X, y).predict(X) == y).all())

    return realises


def _as_test(model: Any) -> Realises:
    if hasattr(model, "fit"):
        return _by_fitting(model)
    if not callable(model):
        raise kind(
            "shattered", "the class must be a function (X, y) -> bool or an estimator", type(model).__name__
        )
    return model  # type: ignore[no-any-return]


def shattered(X: Any, model: Any = is_separable) -> bool:
    """Whether a class of functions realises all 2^n labellings of the rows of X.

    Parameters
    ----------
    X : array of shape (n, d)
        At most 16 points.
    model : callable or classifier, default=is_separable
        ``model(X, y)`` says whether the class has a function with the labels y (-1 or 1) on X; by default half-spaces through the
        origin. A classifier is fitted to every labelling, and says no where it does not learn it by heart.

    Examples
    --------
    >>> shattered([[0.0, 1.0], [1.0, 0.0]]), shattered([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    (True, False)
    """
    X, realises = _table("shattered", X), _as_test(model)
    _enumerable("shattered", len(X), "points")
    return all(realises(X, np.array(y)) for y in product((-1, 1), repeat=len(X)))


def vc_dimension(X: Any, model: Any = is_separable) -> int:
    """Return the size of the largest subset of these points that a class shatters: a lower bound of its VC dimension.

    Points in general position and enough of them give the VC dimension itself.

    Parameters
    ----------
    X : array of shape (n, d)
        At most 16 points.
    model : callable or classifier, default=is_separable
        As for :func:`shattered`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(5, 3))
    >>> vc_dimension(X)
    3
    """
    X, realises = _table("vc_dimension", X), _as_test(model)
    _enumerable("vc_dimension", len(X), "points")
    for n in range(1, len(X) + 1):
        if not any(shattered(X[list(chosen)], realises) for chosen in combinations(range(len(X)), n)):
            return n - 1
    return len(X)


# --- the regions of a network on a plane --------------------------------------------------------------------


class Regions(NamedTuple):
    """The linear regions of a network on a square of a plane."""

    polygons: list[np.ndarray]  # corners (k, 2) of each, in order, in coordinates of the plane
    patterns: np.ndarray  # (regions, units): which units are active
    slopes: np.ndarray  # (regions, outputs, 2): the affine map of each, in coordinates of the plane
    offsets: np.ndarray  # (regions, outputs)

    @property
    def count(self) -> int:
        """The number of regions."""
        return len(self.polygons)


def _cut(corners: np.ndarray, heights: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the parts of a convex polygon where an affine function, known at its corners, is positive and negative."""
    scale = np.abs(heights).max()
    heights = np.where(np.abs(heights) <= 1e-12 * scale, 0.0, heights)
    if (heights >= 0).all() or (heights <= 0).all():
        return (corners, None) if heights.sum() > 0 else (None, corners)
    after, up = np.roll(corners, -1, axis=0), np.roll(heights, -1)
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for a, b, p, q in zip(corners, after, heights, up):
        if p >= 0:
            sides[0].append(a)
        if p <= 0:
            sides[1].append(a)
        if p * q < 0:
            crossing = a + p / (p - q) * (b - a)
            sides[0].append(crossing)
            sides[1].append(crossing)
    return np.array(sides[0]), np.array(sides[1])


class _Cell(NamedTuple):
    corners: np.ndarray
    pattern: tuple[bool, ...]
    slope: np.ndarray  # (width, 2) of the present layer
    offset: np.ndarray


def _split(cell: _Cell, leak: float) -> list[_Cell]:
    """Return the parts of a cell on which every unit of the present layer keeps its sign, after the rectifier."""
    parts = [(cell.corners, ())]
    for w, b in zip(cell.slope, cell.offset):
        halves = []
        for corners, signs in parts:
            above, below = _cut(corners, corners @ w + b)
            halves += [(above, (*signs, True))] if above is not None else []
            halves += [(below, (*signs, False))] if below is not None else []
        parts = halves  # type: ignore[assignment]
    cells = []
    for corners, signs in parts:
        factor = np.where(signs, 1.0, leak)
        pattern = (*cell.pattern, *signs)
        cells.append(_Cell(corners, pattern, factor[:, None] * cell.slope, factor * cell.offset))
    return cells


def linear_regions(module: Any, centre: Any = None, directions: Any = None, radius: float = 1.0) -> Regions:
    """Return the linear regions of a ReLU network on a square of a plane, exactly.

    Parameters
    ----------
    module : torch.nn.Module or fitted estimator
        Linear and (leaky) ReLU layers in a row, also Flatten, Identity and Dropout; of an estimator, its ``module_``.
    centre : array of shape (d,), optional
        The middle of the square, in the space of the inputs; the origin by default.
    directions : array of shape (2, d), optional
        What spans the plane; the first two axes by default.
    radius : float, default=1.0
        Half the side of the square, in units of the directions.

    Returns
    -------
    Regions
        ``count`` of them, their polygons, activation patterns and affine maps. ``corollary.plot.regions`` draws them.

    Notes
    -----
    O(regions * units * corners). A unit that does not change sign on a region leaves it whole.

    References
    ----------
    .. [1] G. Montúfar, R. Pascanu, K. Cho, Y. Bengio (2014). On the number of linear regions of deep neural networks. NIPS.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
    >>> linear_regions(net, radius=1e4).count == zaslavsky(5, 2)
    True
    """
    layers = _layers_of(module)
    d = layers[0].in_features
    centre = np.zeros(d) if centre is None else np.asarray(centre, np.float64).reshape(-1)
    span = np.eye(2, d) if directions is None else np.asarray(directions, np.float64).reshape(2, -1)
    if centre.shape != (d,) or span.shape != (2, d) or d < 2 or not radius > 0:
        got = f"shapes {centre.shape} and {span.shape}, radius {radius}"
        raise value("linear_regions", f"centre and directions must have {d} entries, at least 2", got)
    if np.linalg.matrix_rank(span) < 2:
        raise value("linear_regions", "the two directions must span a plane", span.tolist())
    square = radius * np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
    cells = [_Cell(square, (), span.T, centre)]
    for layer in layers:
        if isinstance(layer, nn.Linear):
            W = layer.weight.detach().double().cpu().numpy()
            b = 0.0 if layer.bias is None else layer.bias.detach().double().cpu().numpy()
            cells = [cell._replace(slope=W @ cell.slope, offset=W @ cell.offset + b) for cell in cells]
        else:
            leak = getattr(layer, "negative_slope", 0.0)
            cells = [part for cell in cells for part in _split(cell, leak)]
        if len(cells) > MOST_REGIONS:
            do = "Take a smaller radius or a smaller network."
            raise value("linear_regions", f"there must be at most {MOST_REGIONS} regions", len(cells), do)
    return Regions(
        [cell.corners for cell in cells],
        np.array([cell.pattern for cell in cells], dtype=bool),
        np.stack([cell.slope for cell in cells]),
        np.stack([cell.offset for cell in cells]),
    )


def _layers_of(module: Any) -> list[nn.Module]:
    """Return the linear and rectifying layers of a network that is a plain row of them."""
    module = getattr(module, "module_", module)
    if not isinstance(module, nn.Module):
        raise kind(
            "linear_regions", "module must be a torch.nn.Module or a fitted network", type(module).__name__
        )
    found: list[nn.Module] = []
    row = [module] if isinstance(module, nn.Linear) else list(module.children())
    flat = not isinstance(module, nn.Linear | nn.Sequential)
    while row:
        layer = row.pop(0)
        if isinstance(layer, nn.Sequential):
            row = [*layer.children(), *row]
        elif isinstance(layer, nn.Linear | nn.ReLU | nn.LeakyReLU):
            found.append(layer)
        elif not isinstance(layer, nn.Identity | nn.Flatten | nn.Dropout):
            flat = True
    if flat or not found or not isinstance(found[0], nn.Linear):
        must = "module must be a Sequential of Linear and (leaky) ReLU layers"
        raise value("linear_regions", must, " ".join(str(module).split())[:80])
    return found
