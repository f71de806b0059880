"""Rectified units as piecewise linear functions, and how many pieces they have."""

from __future__ import annotations

from itertools import combinations, product
from math import comb

import numpy as np
from scipy.optimize import linprog

from corollary.formulas._approximation_tools import largest_error, rectifier
from corollary.formulas._counting_tools import count_folded_square, folding_network
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_least,
    at_most,
    equal,
    exponent,
    formula,
)
from corollary.formulas.tools import gradient
from corollary.theory.approximation import difference_of_convex, k_hinge, relu_spline
from corollary.theory.counting import count_pieces, count_regions, montufar, zaslavsky


def _spline(x, knots, values, weights):
    slopes = np.diff(values) / np.diff(knots)
    bends = rectifier(x[:, None] - knots[1:-1]) @ weights(slopes)
    return values[0] + slopes[0] * (x - knots[0]) + bends


@formula(
    "apx-relu-splines",
    latex=r"g(x) = ax + b + \sum_i c_i (x - x_i)_+, \qquad c_i = \text{change of slope at } x_i",
    where="000 §6; 002, 003 Rectified units",
    right=lambda x, knots, values: _spline(x, knots, values, np.diff),
    wrong=lambda x, knots, values: _spline(x, knots, values, lambda slopes: slopes[1:]),
    systems=("approximation",),
    functions=("corollary.theory.approximation.relu_spline",),
)
def apx_relu_splines(rng, claim):
    """A continuous piecewise linear function on the line is one layer of rectified units, exactly.

    Each breakpoint takes a unit weighted by its change of slope. Interpolation of a smooth function then
    has an error of second order; absolute values do as well, up to a linear function.
    """
    knots = np.concatenate([[0], np.sort(rng.uniform(0.05, 0.95, size=6)), [1]])
    values, x = rng.normal(size=8), rng.random(200)
    sizes, errors = [8, 16, 32, 64], []
    for n in sizes:
        even = np.linspace(0, 1, n + 1)
        errors.append(np.abs(claim(x, even, np.sin(6 * even)) - np.sin(6 * x)).max())
    absolute = np.column_stack([np.abs(x[:, None] - knots[1:-1]), x, np.ones_like(x)])
    interpolant = np.interp(x, knots, values)
    return all_of(
        equal(claim(x, knots, values), interpolant, tol=1e-10),
        equal(claim(x, knots, values), relu_spline(knots, values)(x), tol=1e-10),
        exponent(sizes, errors, -2.0, tol=0.3),  # 200 points need not hit the worst place of a piece
        equal(largest_error(absolute, absolute, interpolant, interpolant), 0, tol=1e-8),
    )


def _hinges(slopes, offsets, side):
    """N + 2 affine functions on n-space: their maximum as signed maxima of at most n + 1 of them.

    Their slopes satisfy an affine relation (Radon). Oriented so that the positive part P lies below the
    negative part N on average, some function of P is below the maximum M over N at every point, so the
    minimum over P of max(a_i, M) is M itself; the max-min identity solves for the maximum over all.
    """
    weights = np.linalg.svd(np.vstack([slopes.T, np.ones(len(slopes))]))[2][-1]
    weights = weights * -np.sign(weights @ offsets) * side
    P, N = tuple(np.flatnonzero(weights > 0)), tuple(np.flatnonzero(weights <= 0))
    sign = (-1) ** (len(P) + 1)
    parts = [S for size in range(1, len(P)) for S in combinations(P, size)]
    return [(sign, N)] + [(sign * (-1) ** len(S), S + N) for S in parts]


@formula(
    "apx-khinge-decomposition",
    latex=r"g = \sum_j \pm \max_{i \in S_j} (\theta_i \cdot x + b_i), \qquad \lvert S_j \rvert \le n + 1",
    where="002, 003 Rectified units",
    right=lambda slopes, offsets: _hinges(slopes, offsets, side=1),
    wrong=lambda slopes, offsets: _hinges(slopes, offsets, side=-1),
    systems=("approximation",),
    functions=("corollary.theory.approximation.k_hinge",),
)
def apx_khinge_decomposition(rng, claim):
    """Continuous piecewise linear functions in n-space are signed sums of maxima of n + 1 affine functions.

    The crucial case: a maximum of n + 2 of them is such a sum. The claim lists its signs and members.
    """
    outcomes = []
    for n in (1, 1, 2, 2, 3):
        slopes, offsets = rng.normal(size=(n + 2, n)), rng.normal(size=n + 2)
        terms = claim(slopes, offsets)
        # Beside random points, one where either part of the relation is constant: there a wrong split shows.
        weights = np.linalg.svd(np.vstack([slopes.T, np.ones(n + 2)]))[2][-1]
        system = np.column_stack([slopes, -1.0 * (weights > 0), -1.0 * (weights <= 0)])
        centre = np.linalg.lstsq(system, -offsets)[0][:n]
        x = np.vstack([centre, centre + rng.normal(size=(200, n)), 10 * rng.normal(size=(100, n))])
        planes = x @ slopes.T + offsets
        total = sum(sign * planes[:, list(members)].max(axis=1) for sign, members in terms)
        outcomes += [
            equal(total, planes.max(axis=1), tol=1e-9),
            equal(
                total,
                sum(c * planes[:, list(S)].max(axis=1) for S, c in k_hinge(slopes, offsets).items()),
                tol=1e-9,
            ),
            at_most([len(members) for _, members in terms], n + 1),
        ]
    return all_of(*outcomes)


@formula(
    "apx-polyhedral",
    latex=r"\mathrm{epi} f = \bigcap_{i \in A} \{(x, t) : t \ge \theta_i \cdot x + b_i\} \iff "
    r"f(x) = \max_{i \in A} \theta_i \cdot x + b_i",
    where="002, 003 Rectified units",
    right=lambda theta, b, x: (theta @ x + b).max(),
    wrong=lambda theta, b, x: (theta @ x + b).min(),
    systems=("approximation",),
)
def apx_polyhedral(rng, claim):
    """A function over a finite intersection of half-spaces is a maximum of affine functions, and conversely.

    Its value is the lowest height above the point that all half-spaces allow, a linear programme.
    """
    theta, b = rng.normal(size=(5, 2)), rng.normal(size=5)
    values, lowest = [], []
    for x in rng.normal(size=(6, 2)):
        # Variables (x, t): minimise t subject to theta x - t <= -b, with x held fixed by its bounds.
        bounds = [(x[0], x[0]), (x[1], x[1]), (None, None)]
        result = linprog([0, 0, 1], A_ub=np.column_stack([theta, -np.ones(5)]), b_ub=-b, bounds=bounds)
        lowest.append(result.fun)
        values.append(claim(theta, b, x))
    return equal(values, lowest, tol=1e-7)


def _lines(start, slope, knots, changes):
    """The affine pieces of start + slope x + sum of changes (x - knot)_+, as (slope, intercept) rows."""
    slopes = slope + np.concatenate([[0], np.cumsum(changes)])
    intercepts = start - np.concatenate([[0], np.cumsum(changes * knots)])
    return np.column_stack([slopes, intercepts])


def _difference_of_maxima(knots, values, split=True):
    slopes = np.diff(values) / np.diff(knots)
    changes, inner = np.diff(slopes), knots[1:-1]
    up = np.where(changes > 0, changes, 0) if split else changes
    start = values[0] - slopes[0] * knots[0]
    return _lines(start, slopes[0], inner, up), _lines(0.0, 0.0, inner, up - changes)


@formula(
    "apx-dc-maxout",
    latex=r"g = \max_i (\theta_i \cdot x + b_i) - \max_j (\theta'_j \cdot x + b'_j)",
    where="002, 003 Rectified units",
    right=_difference_of_maxima,
    wrong=lambda knots, values: _difference_of_maxima(knots, values, split=False),
    systems=("approximation",),
    functions=("corollary.theory.approximation.difference_of_convex",),
)
def apx_dc_maxout(rng, claim):
    """A continuous piecewise linear function is the difference of two convex ones, so two maxout units do.

    On the line the slope changes are split by their sign. The claim gives the affine pieces of both.
    """
    knots = rng.uniform(1, 2) + np.concatenate([[0], np.sort(rng.uniform(0.05, 0.95, size=6)), [1]])
    values, x = rng.normal(size=8), knots[0] + rng.random(300)
    values[2:4] = values[1] + np.array([1.0, 0.0])  # a peak, so that the function is not convex
    plus, minus = claim(knots, values)
    maxout = lambda pieces: (np.outer(x, pieces[:, 0]) + pieces[:, 1]).max(axis=1)
    library = [maxout(pieces) for pieces in difference_of_convex(knots, values)]
    return all_of(
        equal(maxout(plus) - maxout(minus), np.interp(x, knots, values), tol=1e-9),
        equal(maxout(plus) - maxout(minus), library[0] - library[1], tol=1e-9),
    )


def _local_map(W, b, v, c, x):
    pattern = W @ x + b > 0
    return (v * pattern) @ W, (v * pattern) @ b + c, 2 ** len(W)


@formula(
    "apx-activation-patterns",
    latex=r"\kappa(x) = \mathbf{1}[Wx + b > 0] \in \{0, 1\}^m, \qquad "
    r"f(x) = v^\top \mathrm{diag}(\kappa) (Wx + b) + c \text{ on } X_\kappa, \qquad "
    r"\#\{\kappa\} \le 2^m",
    where="002, 003 Rectified units",
    right=_local_map,
    wrong=lambda W, b, v, c, x: (_local_map(W, b, v, c, x)[0], v @ b + c, 2 ** len(W)),
    systems=("approximation", "counting"),
)
def apx_activation_patterns(rng, claim):
    """A rectified network is one affine map where the same units are active; at most 2^m patterns exist.

    The claim gives that map at a point and the largest number of patterns, which m units in m dimensions
    attain.
    """
    n, m = 3, 3
    W, b, v, c = rng.normal(size=(m, n)), 10 * rng.normal(size=m), rng.normal(size=m), rng.normal()
    network = lambda x: v @ rectifier(W @ x + b) + c
    # One point in each cell: with as many units as dimensions every pattern has one.
    wanted = 2.0 * np.array(list(product((0, 1), repeat=m))) - 1
    cells = np.linalg.solve(W, wanted.T - b[:, None]).T
    outcomes = []
    for x in cells:
        slope, offset, most = claim(W, b, v, c, x)
        near = x + 0.1 / np.linalg.norm(W) * rng.uniform(-1, 1, size=(5, n))  # margins are one: no unit flips
        outcomes += [
            equal([slope @ y + offset for y in near], [network(y) for y in near], tol=1e-10),
            equal(slope, gradient(network, x), tol=1e-6),
        ]
    patterns = {tuple(W @ x + b > 0) for x in np.vstack([cells, 5 * rng.normal(size=(500, n))])}
    return all_of(*outcomes, equal(len(patterns), most, tol=0))


@formula(
    "apx-zaslavsky",
    latex=r"R(m) = \sum_{i=0}^{\min(m, n)} \binom{m}{i}",
    where="003 Rectified units",
    right=zaslavsky,
    wrong=lambda m, n: 2 * sum(comb(m - 1, i) for i in range(n)),
    systems=("counting",),
    functions=(
        "corollary.theory.counting.zaslavsky",
        "corollary.theory.counting.count_regions",
    ),
)
def apx_zaslavsky(rng, claim):
    """So many regions do m hyperplanes in general position cut n-space into, and never more."""
    sizes = [(4, 1), (3, 2), (5, 2), (4, 3), (5, 3), (2, 3)]
    counted = [count_regions(rng.normal(size=size), rng.normal(size=size[0])) for size in sizes]
    parallel = rng.normal(size=(4, 2))
    parallel[1] = 2 * parallel[0]
    fewer = count_regions(parallel, rng.normal(size=4))
    return all_of(
        equal([claim(m, n) for m, n in sizes], counted, tol=0),
        at_most(fewer, claim(4, 2) - 1),
    )


@formula(
    "apx-montufar",
    latex=r"\max_\theta \#\text{regions} \ge R(m) \Bigl\lfloor \frac{m}{n} \Bigr\rfloor^{n(L-1)} ="
    r"\Omega\bigl((m/n)^{(L-1)n} m^n\bigr)",
    where="000 §6; 003 Rectified units",
    right=lambda m, n, L, folding: montufar([m] * L, n) if folding else 1,
    wrong=lambda m, n, L, folding: zaslavsky(m, n) ** L if folding else 1,
    errata=(
        Erratum(
            "E45",
            printed=r"every network in general position has at least that many (003); $O(\cdot)$ (000)",
            correction=r"a lower bound for the largest number over all weights",
            form=lambda m, n, L, folding: montufar([m] * L, n),
            where="000 §6; 003 Rectified units",
            kind="claim",
            counterexample=r"all weights zero: one region",
        ),
    ),
    systems=("counting",),
    functions=(
        "corollary.theory.counting.montufar",
        "corollary.theory.counting.count_pieces",
    ),
)
def apx_montufar(rng, claim):
    """Deep rectified networks can have exponentially many regions in their depth; few do.

    The claim is the least number of regions of a network that folds its input, or of any network. The
    folding one on a line has just that many on the unit interval; random ones have far fewer.
    """
    outcomes = []
    for m, L in ((2, 2), (2, 4), (3, 3), (4, 4)):
        pieces = count_pieces(folding_network(rng, m, L), 0.0, 1.0)
        outcomes.append(equal(claim(m, 1, L, True), pieces, tol=0))
    for L in (2, 3):  # four units fold each coordinate of the square twice, then draw four lines
        outcomes.append(equal(claim(4, 2, L, True), count_folded_square(rng, L), tol=0))
    for _ in range(10):
        shapes = [(4, 1), (4, 4), (4, 4), (4, 4)]
        layers = [(rng.normal(size=shape), rng.normal(size=4)) for shape in shapes]
        outcomes.append(at_least(count_pieces(layers, -1e3, 1e3), claim(4, 1, 4, False)))
    return all_of(*outcomes)
