"""What networks can approximate and how many linear pieces they have.

Density theorems are shown by fits whose largest error shrinks, or stalls where a hypothesis is missing;
counts are compared with exact enumeration.
"""

from __future__ import annotations

from itertools import combinations, product
from math import comb, factorial

import numpy as np
from scipy.optimize import linprog
from scipy.special import gamma

from corollary.formulas._counting_tools import (
    count_folded_square,
    count_pieces,
    count_regions,
    folding_network,
)
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


def _relu(x):
    return np.maximum(x, 0)


def _bernstein(f, n, x):
    k = np.arange(n + 1)
    weights = np.array([comb(n, i) for i in k], dtype=float)
    return (f(k / n) * weights * x[:, None] ** k * (1 - x[:, None]) ** (n - k)).sum(axis=1)


def _fit(train, test, target_train, target_test):
    """The largest error on the test points of the least-squares fit to the training points."""
    weights = np.linalg.lstsq(train, target_train, rcond=1e-12)[0]
    return np.abs(test @ weights - target_test).max()


@formula(
    "apx-uniform-definitions",
    latex=r"g_m \to f \text{ uniformly} \iff \forall \epsilon > 0\ \exists M\ \forall m \ge M:"
    r"\lVert g_m - f \rVert_\infty < \epsilon",
    where="000 §6; 002 Approximation",
    right=lambda errors, tolerances: all((errors[len(errors) // 2 :] < eps).all() for eps in tolerances),
    errata=(
        Erratum(
            "E47",
            printed=r"$\forall\epsilon\ \exists m \ge 1: \lVert g_m - f\rVert_\infty < \epsilon$",
            correction=r"from some $M$ on every $m$ must satisfy it",
            form=lambda errors, tolerances: all((errors < eps).any() for eps in tolerances),
            where="002 Approximation",
            kind="definition",
            counterexample=r"errors $0, 1, 0, 1, \dots$",
        ),
    ),
    systems=("approximation",),
)
def apx_uniform_definitions(rng, claim):
    """A sequence converges uniformly if its largest error stays below any tolerance from some point on.

    The claim judges a finite stretch of errors. Bernstein polynomials converge; powers of x tend to zero
    at every point below one but not uniformly; a sequence that is right at every second step does not
    converge at all.
    """
    x = np.linspace(0, 1, 101)
    slope = rng.uniform(0.5, 1.5)
    f = lambda t: slope * np.abs(t - 0.5)
    bernstein = np.array([np.abs(_bernstein(f, n, x) - f(x)).max() for n in range(1, 61)])
    powers = np.array([np.abs(x[:-1] ** m).max() for m in range(1, 61)])
    alternating = np.tile([0.0, 1.0], 30)
    tolerances = (0.4, 0.3, 0.2)  # the error at m = 30 is 0.11 at most, those of the powers above 0.5
    verdicts = [claim(errors, tolerances) for errors in (bernstein, powers, alternating)]
    return equal(verdicts, [True, False, False], tol=0)


@formula(
    "apx-universal-definition",
    latex=r"\mathcal G \text{ universal} \iff C(S) \subseteq \overline{\mathcal G(S)}"
    r"\text{ for every compact } S \subset \mathbb R^n",
    where="002, 003 Approximation",
    right=lambda errors, tolerance: (errors < tolerance).all(),
    wrong=lambda errors, tolerance: (errors.min(axis=1) < tolerance).all(),
    systems=("approximation",),
)
def apx_universal_definition(rng, claim):
    """A universal family comes close to every continuous function on every compact set, not only on one.

    The claim judges a table of errors, functions by sets. Even polynomials pass on the interval from 0
    to 1 but not on one around zero, so they are not universal; all polynomials are.
    """
    kink = rng.uniform(0.2, 0.6)
    functions = [np.exp, lambda x: np.abs(x - kink)]
    sets = [(0, 1), (-1, 1), (-1.5, 1)]
    cosines = np.cos(np.pi * (np.arange(200) + 0.5) / 200)

    def table(even):
        errors = np.zeros((len(functions), len(sets)))
        for j, (low, high) in enumerate(sets):
            x, grid = (low + high) / 2 + (high - low) / 2 * cosines, np.linspace(low, high, 401)
            size = max(abs(low), abs(high))
            scale = lambda t, size=size: 2 * (t / size) ** 2 - 1 if even else t / size
            basis = lambda t, scale=scale: np.polynomial.chebyshev.chebvander(scale(t), 40)
            errors[:, j] = [_fit(basis(x), basis(grid), f(x), f(grid)) for f in functions]
        return errors

    # Degree 40 leaves about 0.02 at the kink; an even function misses exp by sinh(1), about 1.2.
    return equal([claim(table(False), 0.1), claim(table(True), 0.1)], [True, False], tol=0)


def _interpolate(f, n, x):
    """The polynomial through the values at n + 1 equal steps, in barycentric form."""
    k = np.arange(n + 1)
    weights = np.array([(-1.0) ** i * comb(n, i) for i in k])
    terms = weights / (x[:, None] - k / n)
    return (terms * f(k / n)).sum(axis=1) / terms.sum(axis=1)


@formula(
    "apx-weierstrass",
    latex=r"\lVert B_n f - f \rVert_\infty \to 0, \qquad "
    r"B_n f(x) = \sum_{k=0}^n f\bigl(\tfrac{k}{n}\bigr) \binom{n}{k} x^k (1 - x)^{n-k}",
    where="000 §6; 002, 003 Approximation",
    right=_bernstein,
    wrong=_interpolate,
    systems=("approximation",),
)
def apx_weierstrass(rng, claim):
    """Polynomials come arbitrarily close to any continuous function on an interval: Bernstein's do.

    At a kink their error falls like the inverse root of the degree; interpolation at the same points
    diverges.
    """
    f, degrees = (lambda t: np.abs(t - 0.5)), [8, 16, 32, 64]
    x = np.append(0.5 + 1e-9, rng.uniform(0.01, 0.99, size=400))
    errors = [np.abs(claim(f, n, x) - f(x)).max() for n in degrees]
    # At a kink at p the error is the mean deviation of a binomial share, which De Moivre knew in closed form.
    p, expected = rng.uniform(0.3, 0.7), []
    at_kink = [claim(lambda t: np.abs(t - p), n, np.array([p]))[0] for n in degrees]
    for n in degrees:
        m = int(n * p) + 1
        expected.append(2 * m * comb(n, m) * p**m * (1 - p) ** (n - m + 1) / n)
    return all_of(exponent(degrees, errors, -0.5, tol=0.03), equal(at_kink, expected, tol=1e-12))


def _is_polynomial(sigma):
    return np.abs(np.diff(sigma(np.arange(-4, 4.5, 0.5)), n=6)).max() < 1e-8


def _is_bounded(sigma):
    return np.abs(sigma(np.array([-1e6, 1e6]))).max() < 1e3


@formula(
    "apx-uat",
    latex=r"\sigma \text{ continuous}: \qquad \overline{\mathrm{span}}\{\sigma(\theta \cdot x + b)\} = C(K)"
    r"\ \forall\, K \text{ compact} \iff \sigma \text{ is not a polynomial}",
    where="000 §6.3; 002, 003 Approximation; 004 §4",
    right=lambda sigma: (not _is_polynomial(sigma), False),
    wrong=lambda sigma: (True, False),
    errata=(
        Erratum(
            "E44",
            printed=r"for bounded $\sigma$ (such as ReLU), with accuracy at all $x \in \mathbb R^d$",
            correction=r"for non-polynomial $\sigma$, uniformly on compact sets",
            form=lambda sigma: (_is_bounded(sigma), True),
            where="000 §6.3; 004 §4",
            kind="claim",
            counterexample=r"no bounded unit follows $x^2$ on $\mathbb R$, and the rectifier is not bounded",
        ),
    ),
    systems=("approximation",),
)
def apx_uat(rng, claim):
    """One hidden layer follows any continuous function on a compact set, unless its unit is a polynomial.

    The claim predicts whether a unit succeeds on an interval and on the whole line; least-squares fits
    on a short and on a very long interval decide.
    """
    units = [np.tanh, _relu, np.sin, lambda x: np.logaddexp(0, x), np.square, lambda x: x**3]
    target = lambda x: np.cos(4 * x) + x**2
    scales = rng.uniform(1, 6, size=60) * rng.choice([-1, 1], size=60)
    centres = np.linspace(-1.2, 1.2, 60) + rng.uniform(-0.01, 0.01, size=60)
    outcomes = []
    for sigma in units:
        reached = []
        for radius in (1, 1000):
            x, grid = np.linspace(-radius, radius, 300), np.linspace(-radius, radius, 701)
            features = lambda t, sigma=sigma: sigma(scales * (t[:, None] - centres))
            reached.append(_fit(features(x), features(grid), target(x), target(grid)) < 0.1)
        outcomes.append(equal(claim(sigma), reached, tol=0))
    return all_of(*outcomes)


def _polarisation(x):
    n = len(x)
    signs = np.array(list(product((-1, 1), repeat=n)))
    return (signs.prod(axis=1) * (signs @ x) ** n).sum() / (2**n * factorial(n))


@formula(
    "apx-ridge-span",
    latex=r"\overline{\mathrm{span}}\{\phi(x \cdot \theta)\} = C(K): \qquad "
    r"\prod_{i=1}^n x_i = \frac{1}{2^n n!} \sum_{\epsilon \in \{\pm1\}^n} \Bigl(\prod_i \epsilon_i\Bigr)"
    r"(\epsilon \cdot x)^n, \quad xy = \tfrac{1}{4} [(x+y)^2 - (x-y)^2]",
    where="002 Approximation",
    right=_polarisation,
    wrong=lambda x: _polarisation(x) * factorial(len(x)),
    systems=("approximation",),
)
def apx_ridge_span(rng, claim):
    """Functions of one direction each span everything, since every monomial is a sum of powers of them."""
    outcomes = []
    for n in (2, 3, 4):
        x = rng.uniform(0.5, 2, size=n) * rng.choice([-1, 1], size=n)
        outcomes.append(equal(claim(x), np.prod(x), tol=1e-10))
        # With repeated factors the same identity gives every monomial of the degree.
        powers = np.repeat(x[:2], [n - 1, 1])
        outcomes.append(equal(claim(powers), x[0] ** (n - 1) * x[1], tol=1e-10))
    return all_of(*outcomes)


@formula(
    "apx-dimension-lifting",
    latex=r"\overline{\mathrm{span}}\{\sigma(ax + b)\} = C(\mathbb R) \;\Longrightarrow\;"
    r"\overline{\mathrm{span}}\{\sigma(\theta \cdot x + b)\} = C(\mathbb R^n)",
    where="000 §6; 002 Approximation",
    right=lambda sigma, X, theta, b: sigma(X @ theta.T + b),
    wrong=lambda sigma, X, theta, b: (
        sigma(X * theta[:, None] + b[:, None, None]).transpose(1, 0, 2).reshape(len(X), -1)
    ),
    systems=("approximation",),
)
def apx_dimension_lifting(rng, claim):
    """A unit that is universal on the line is universal in any dimension, if it looks in all directions.

    The claim gives the features. Units that see one coordinate each only make sums of functions of one
    variable, which can never follow a product.
    """
    X, grid = rng.uniform(-1, 1, size=(500, 2)), rng.uniform(-1, 1, size=(500, 2))
    target = lambda P: np.sin(2 * P[:, 0] * P[:, 1]) + P[:, 0]
    errors = []
    for width in (10, 40, 120):
        theta, b = 1.5 * rng.normal(size=(width, 2)), rng.uniform(-2, 2, size=width)
        features = [claim(np.tanh, P, theta, b) for P in (X, grid)]
        errors.append(_fit(*features, target(X), target(grid)))
    # Along its direction each unit is the unit of the line, and across it constant.
    one, point = theta[0], rng.normal(size=2)
    along, across = point @ one / (one @ one) * one, np.array([-one[1], one[0]])
    alone = claim(np.tanh, np.array([point, along, along + across]), theta[:1], b[:1])
    return all_of(
        equal(
            alone,
            np.tanh(np.linalg.norm(one) * np.sign(along @ one) * np.linalg.norm(along) + b[0]),
            tol=1e-12,
        ),
        at_most(errors[2], 0.02),
        at_most(errors[2], errors[0] / 5),
    )


def _step_network(x, beta, theta, b, b0):
    return (x @ theta.T + b > 0) @ beta + b0


@formula(
    "apx-barron",
    latex=r"C_g = \int \lVert \omega \rVert \lvert \hat g(\omega) \rvert d\omega < \infty: \qquad "
    r"\int_{rB} (g - f_m)^2 d\mu \le \frac{(2 r C_g)^2}{m}, \quad "
    r"f_m(x) = \sum_{j=1}^m \beta_j \sigma(\theta_j \cdot x + b_j) + b_0",
    where="002 Approximation",
    right=lambda r, C, m, *network: (_step_network(*network), (2 * r * C) ** 2 / m),
    wrong=lambda r, C, m, *network: (_step_network(*network), (2 * r * C) ** 2 / m**2),
    errata=(
        Erratum(
            "E46",
            printed=r"$\sum_j(\beta_j\sigma(\theta_j + b_j) + b_0)$, error over all of $\mathbb R^n$",
            correction=r"$\sum_j\beta_j\sigma(\theta_j\cdot x + b_j) + b_0$, error over the ball $rB$",
            form=lambda r, C, m, x, beta, theta, b, b0: (
                np.full(len(x), ((theta.sum(axis=1) + b > 0) * beta + b0).sum()),
                (2 * r * C) ** 2 / m,
            ),
            where="002 Barron",
            kind="formula",
        ),
    ),
    systems=("approximation",),
)
def apx_barron(rng, claim):
    """A function whose gradient has an integrable spectrum needs about 1/error units, in any dimension.

    The Gaussian bump is a mean of steps drawn from its own spectrum, as in Barron's proof; networks of m
    of these are within the bound, and their error falls like 1/m. The claim gives output and bound.
    """
    r, sizes, trials, outcomes = 1.5, [8, 32, 128], 120, []
    for n in (2, 6):
        C = np.sqrt(2) * gamma((n + 1) / 2) / gamma(n / 2)  # mean length of a standard normal vector
        x = rng.normal(size=(200, n))
        x *= r * rng.random((200, 1)) ** (1 / n) / np.linalg.norm(x, axis=1, keepdims=True)
        g = np.exp(-(x**2).sum(axis=1) / 2)
        errors = []
        for m in sizes:
            squares, heights, outputs = [], [], []
            for _ in range(trials):
                theta = rng.normal(size=(m, n))  # frequencies with density |omega| times the spectrum
                length = np.sqrt(rng.chisquare(n + 1, size=m))
                theta *= (length / np.linalg.norm(theta, axis=1))[:, None]
                t = rng.random(m) * length * r
                # cos(z) - 1 is minus the integral of sin(t) over the steps 1[z > t] and 1[-z > t].
                beta = -2 * r * C * np.sin(t) / m
                f, bound = claim(r, C, m, x, beta, theta, -t, 1.0)
                squares.append(((g - f) ** 2).mean())
                heights.append(np.abs(m * beta).max())
                outputs.append(f)
            errors.append(np.mean(squares))
            # The bound is the variance of m independent steps of the largest height that occurs.
            outcomes += [at_most(errors[-1], bound), equal(max(heights) ** 2 / m / bound, 1, tol=0.02)]
        # The mean network is the function: 120 of 128 units leave about 0.02 at a point.
        outcomes.append(equal(np.mean(outputs, axis=0), g, tol=0.15))
        # 120 networks leave about 12 % in each mean, 0.06 in the slope.
        outcomes.append(exponent(sizes, errors, -1.0, tol=0.25))
    return all_of(*outcomes)


@formula(
    "apx-fourier-gradient",
    latex=r"\widehat{\nabla g}(\omega) = i \omega\, \hat g(\omega)",
    where="002 Approximation",
    right=lambda omega, spectrum: 1j * omega * spectrum,
    errata=(
        Erratum(
            "E46",
            printed=r"$\widehat{\nabla g}(\omega) = \omega\,\hat g(\omega)$",
            correction=r"the factor $i$ is missing",
            form=lambda omega, spectrum: omega * spectrum,
            where="002 Barron",
            kind="formula",
        ),
    ),
    systems=("approximation",),
)
def apx_fourier_gradient(rng, claim):
    """Differentiation multiplies the spectrum by i times the frequency, in each coordinate."""
    n, k = 32, np.arange(1, 6)
    a, b = rng.normal(size=(2, 5))
    t = 2 * np.pi * np.arange(n) / n
    omega = np.fft.fftfreq(n, 1 / n)
    wave = lambda u: np.sin(np.multiply.outer(u, k)) @ a + np.cos(np.multiply.outer(u, k)) @ b
    slope = lambda u: np.cos(np.multiply.outer(u, k)) @ (a * k) - np.sin(np.multiply.outer(u, k)) @ (b * k)
    line = np.fft.ifft(claim(omega, np.fft.fft(wave(t))))
    x, y = np.meshgrid(t, t, indexing="ij")
    plane = np.fft.ifft2(claim(omega[None, :], np.fft.fft2(wave(x + 2 * y))))  # the slope in y
    return all_of(equal(line, slope(t), tol=1e-10), equal(plane, 2 * slope(x + 2 * y), tol=1e-10))


@formula(
    "apx-depth-radial",
    latex=r"\psi(\lVert x \rVert) = \Psi\Bigl(\sum_i x_i^2\Bigr): \qquad "
    r"n \sqrt{n / \epsilon} + O(n / \sqrt{\epsilon}) \text{ units in two layers suffice}",
    where="002 Approximation",
    right=lambda n, eps: np.sqrt(n / eps),
    wrong=lambda n, eps: np.sqrt(1 / eps),
    systems=("approximation",),
)
def apx_depth_radial(rng, claim):
    """Two hidden layers follow a radial function with few units: square each coordinate, add, then bend.

    Few means polynomially many in the dimension, where one layer needs exponentially many. The claim is
    the number of pieces a coordinate needs for the sum of squares on the cube to be right within a
    tolerance: fewer are not enough, and the whole network inherits the tolerance.
    """
    outcomes, eps = [], 0.02
    psi = lambda s: np.cos(np.sqrt(s))  # as a function of the square: slope at most 1/2, curvature 1/12

    def squares(x, pieces):
        knots = np.linspace(-1, 1, pieces + 1)
        return np.interp(x, knots, knots**2).sum(axis=1)

    def worst_points(n, pieces):  # every coordinate in the middle of a piece, where the spline is worst
        return -1 + (2 * rng.integers(pieces, size=(50, n)) + 1) / pieces

    for n in (2, 8, 32):
        pieces = int(np.ceil(claim(n, eps)))
        fewer = int(0.8 * claim(n, eps))
        x, y = worst_points(n, pieces), worst_points(n, fewer)
        second = np.linspace(0, n, int(np.ceil(n / np.sqrt(eps))) + 1)  # error at most eps / 96
        output = np.interp(squares(x, pieces), second, psi(second))
        outcomes += [
            at_most(squares(x, pieces) - (x**2).sum(axis=1), eps, tol=1e-9),
            # the error of the sum is the tolerance when the pieces are just as many as claimed
            equal(squares(y, fewer) - (y**2).sum(axis=1), eps * (claim(n, eps) / fewer) ** 2, tol=1e-9),
            at_most(np.abs(output - np.cos(np.linalg.norm(x, axis=1))), 0.52 * eps, tol=1e-9),
        ]
    return all_of(*outcomes)


def _spline(x, knots, values, weights):
    slopes = np.diff(values) / np.diff(knots)
    bends = _relu(x[:, None] - knots[1:-1]) @ weights(slopes)
    return values[0] + slopes[0] * (x - knots[0]) + bends


@formula(
    "apx-relu-splines",
    latex=r"g(x) = ax + b + \sum_i c_i (x - x_i)_+, \qquad c_i = \text{change of slope at } x_i",
    where="000 §6; 002, 003 Rectified units",
    right=lambda x, knots, values: _spline(x, knots, values, np.diff),
    wrong=lambda x, knots, values: _spline(x, knots, values, lambda slopes: slopes[1:]),
    systems=("approximation",),
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
        exponent(sizes, errors, -2.0, tol=0.3),  # 200 points need not hit the worst place of a piece
        equal(_fit(absolute, absolute, interpolant, interpolant), 0, tol=1e-8),
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
    return equal(maxout(plus) - maxout(minus), np.interp(x, knots, values), tol=1e-9)


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
    network = lambda x: v @ _relu(W @ x + b) + c
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


def _zaslavsky(m, n):
    return sum(comb(m, i) for i in range(min(m, n) + 1))


@formula(
    "apx-zaslavsky",
    latex=r"R(m) = \sum_{i=0}^{\min(m, n)} \binom{m}{i}",
    where="003 Rectified units",
    right=_zaslavsky,
    wrong=lambda m, n: 2 * sum(comb(m - 1, i) for i in range(n)),
    systems=("counting",),
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


def _montufar(m, n, L):
    return _zaslavsky(m, n) * (m // n) ** (n * (L - 1))


@formula(
    "apx-montufar",
    latex=r"\max_\theta \#\text{regions} \ge R(m) \Bigl\lfloor \frac{m}{n} \Bigr\rfloor^{n(L-1)} ="
    r"\Omega\bigl((m/n)^{(L-1)n} m^n\bigr)",
    where="000 §6; 003 Rectified units",
    right=lambda m, n, L, folding: _montufar(m, n, L) if folding else 1,
    wrong=lambda m, n, L, folding: _zaslavsky(m, n) ** L if folding else 1,
    errata=(
        Erratum(
            "E45",
            printed=r"every network in general position has at least that many (003); $O(\cdot)$ (000)",
            correction=r"a lower bound for the largest number over all weights",
            form=lambda m, n, L, folding: _montufar(m, n, L),
            where="000 §6; 003 Rectified units",
            kind="claim",
            counterexample=r"all weights zero: one region",
        ),
    ),
    systems=("counting",),
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
