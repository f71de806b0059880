"""What networks can approximate, and with how many units.

Density theorems are shown by fits whose largest error shrinks, or stalls where a hypothesis is missing.
"""

from __future__ import annotations

from itertools import product
from math import comb, factorial

import numpy as np
from scipy.special import gamma

from corollary.formulas._approximation_tools import largest_error, rectifier
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_most,
    equal,
    exponent,
    formula,
)


def _bernstein(f, n, x):
    k = np.arange(n + 1)
    weights = np.array([comb(n, i) for i in k], dtype=float)
    return (f(k / n) * weights * x[:, None] ** k * (1 - x[:, None]) ** (n - k)).sum(axis=1)


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
            errors[:, j] = [largest_error(basis(x), basis(grid), f(x), f(grid)) for f in functions]
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
    units = [np.tanh, rectifier, np.sin, lambda x: np.logaddexp(0, x), np.square, lambda x: x**3]
    target = lambda x: np.cos(4 * x) + x**2
    scales = rng.uniform(1, 6, size=60) * rng.choice([-1, 1], size=60)
    centres = np.linspace(-1.2, 1.2, 60) + rng.uniform(-0.01, 0.01, size=60)
    outcomes = []
    for sigma in units:
        reached = []
        for radius in (1, 1000):
            x, grid = np.linspace(-radius, radius, 300), np.linspace(-radius, radius, 701)
            features = lambda t, sigma=sigma: sigma(scales * (t[:, None] - centres))
            reached.append(largest_error(features(x), features(grid), target(x), target(grid)) < 0.1)
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
        errors.append(largest_error(*features, target(X), target(grid)))
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
