"""Analysis and convexity: inequalities, convex functions, expansions, constraints, small calculus.

An inequality is tried on many random instances and must be reached where the theorem says so.
"""

from math import factorial

import numpy as np
import torch
from scipy import optimize, special, stats

from corollary.formulas._analysis_tools import (
    EXACT,
    convex_function,
    count_minimisers,
    is_convex_on_grid,
)
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gradient, hessian, quadrature, simplex, spd


@formula(
    "analysis-log-trick",
    latex=r"\nabla_\theta p_\theta(x) = p_\theta(x)\, \nabla_\theta \log p_\theta(x)",
    where="000, 001 §2",
    right=lambda density, score: density * score,
    wrong=lambda density, score: score / density,
)
def log_trick(rng, claim):
    """The gradient of a density is the density times the gradient of its logarithm."""
    mean, deviation, x = rng.normal(), rng.uniform(0.7, 1.5), rng.normal()
    gap = (x - mean) / deviation
    score = np.array([gap / deviation, (gap**2 - 1) / deviation])
    slope = gradient(lambda theta: stats.norm(*theta).pdf(x), np.array([mean, deviation]))
    return equal(claim(stats.norm(mean, deviation).pdf(x), score), slope, tol=1e-8)


@formula(
    "analysis-cauchy-schwarz",
    latex=r"\langle u, v\rangle \le |\langle u, v\rangle| \le \|u\|\,\|v\|,"
    r" \qquad \Big(\sum_i x_i y_i\Big)^2 \le \sum_i x_i^2 \sum_i y_i^2",
    where="000, 001 §2; 002 Background",
    right=lambda u, v: np.sqrt((u**2).sum(-1) * (v**2).sum(-1)),
    wrong=lambda u, v: np.abs(u).max(-1) * np.sqrt((v**2).sum(-1)),
)
def cauchy_schwarz(rng, claim):
    """An inner product is at most the product of the lengths, and reaches it for parallel vectors."""
    u, v = rng.normal(size=(2, 300, 5))
    c = rng.normal(size=(300, 1))
    return all_of(
        at_most(np.abs((u * v).sum(-1)), claim(u, v)),
        equal(claim(u, c * u), np.abs((u * c * u).sum(-1)), tol=1e-11),
    )


@formula(
    "analysis-cauchy-schwarz-expectation",
    latex=r"\mathbb{E}[XY]^2 \le \mathbb{E}[X^2]\, \mathbb{E}[Y^2]",
    where="001 §2",
    right=lambda p, x, y: (p * x**2).sum(-1) * (p * y**2).sum(-1),
    errata=(
        Erratum(
            "E3",
            r"$\mathbb E[XY]^2 \le \mathbb E[X]^2\, \mathbb E[Y^2]$",
            r"$\mathbb E[XY]^2 \le \mathbb E[X^2]\, \mathbb E[Y^2]$",
            lambda p, x, y: (p * x).sum(-1) ** 2 * (p * y**2).sum(-1),
            where="001 §2",
            kind="formula",
        ),
    ),
)
def cauchy_schwarz_expectation(rng, claim):
    """The squared mean of a product is at most the product of the second moments."""
    p = simplex(rng, 300, 6)
    x, y = rng.normal(size=(2, 300, 6))
    c = rng.normal(size=(300, 1))
    return all_of(
        at_most((p * x * y).sum(-1) ** 2, claim(p, x, y)),
        equal(claim(p, x, c * x), (p * x * c * x).sum(-1) ** 2, tol=1e-10),
    )


def _norm(v, p):
    return np.abs(v).max(-1) if np.isinf(p) else (np.abs(v) ** p).sum(-1) ** (1 / p)


@formula(
    "analysis-holder",
    latex=r"|v^\top u| \le \|v \odot u\|_1 \le \|v\|_p \|u\|_{p^*}, \qquad \frac1p + \frac1{p^*} = 1",
    where="002, 003 Background",
    right=lambda v, u, p: _norm(v, p) * _norm(u, np.inf if p == 1 else p / (p - 1)),
    wrong=lambda v, u, p: _norm(v, p) * _norm(u, p),
    systems=("fgsm", "pgd", "deepfool"),
)
def holder(rng, claim):
    """Dual norms bound the inner product; equality where the dual powers are proportional."""
    v, u = rng.normal(size=(2, 200, 5))
    outcomes = []
    for p in (1, 1.3, 2, 3, 6):
        tight = np.sign(v) * np.abs(v) ** (p - 1)
        outcomes += [
            at_most(np.abs(v * u).sum(-1), claim(v, u, p)),
            at_most(np.abs((v * u).sum(-1)), np.abs(v * u).sum(-1)),
            equal(claim(v, tight, p), (v * tight).sum(-1), tol=1e-11, relative=True),
        ]
    return all_of(*outcomes)


@formula(
    "analysis-jensen",
    latex=r"f \text{ convex}: \quad f\Big(\sum_i \lambda_i x_i\Big) \le \sum_i \lambda_i f(x_i),"
    r" \qquad f(\mathbb{E}X) \le \mathbb{E} f(X)",
    where="000, 001 §2; 002, 003 Background",
    right=lambda f, weights, x: (f((weights[..., None] * x).sum(-2)), (weights * f(x)).sum(-1)),
    errata=(
        Erratum(
            "T2",
            r"$\sum_i \lambda_i f(x_i) \le f(\sum_i \lambda_i x_i)$ for convex $f$",
            r"$f(\sum_i \lambda_i x_i) \le \sum_i \lambda_i f(x_i)$",
            lambda f, weights, x: ((weights * f(x)).sum(-1), f((weights[..., None] * x).sum(-2))),
            where="000 §2",
            kind="typing",
        ),
    ),
    systems=("vae", "em-mixture"),
)
def jensen(rng, claim):
    """A convex function of a mean is at most the mean of the function; concave ones turn it round.

    The claim gives the smaller and the larger side. For the squared length they differ by the variance,
    for an affine function not at all, and minus the logarithm gives the inequality of the means.
    """
    f, _ = convex_function(rng, 3)
    w, x = simplex(rng, 100, 4), rng.normal(size=(100, 4, 3))
    y = rng.exponential(size=(100, 4, 1))
    smaller, larger = claim(f, w, x)
    low, high = claim(lambda t: -np.log(t[..., 0]), w, y)  # the logarithm is concave
    squared_mean, mean_square = claim(lambda t: (t**2).sum(-1), w, x)
    # the variance as half the mean squared gap of two draws
    pairs = ((x[:, :, None] - x[:, None]) ** 2).sum(-1)
    variance = np.einsum("ni,nj,nij->n", w, w, pairs) / 2
    means = [stats.gmean(values, weights=weights) for values, weights in zip(y[..., 0], w)]
    return all_of(
        at_most(smaller, larger),
        at_most(low, high),
        equal(np.exp(-high), means, tol=1e-10),
        equal(mean_square - squared_mean, variance, tol=1e-10),
        equal(*claim(lambda t: 2 * t[..., 0] - 1, w, x), tol=EXACT),
    )


@formula(
    "convex-set-and-function",
    latex=r"\lambda x + (1 - \lambda) x' \in S, \qquad"
    r" f(\lambda x + (1 - \lambda) x') \le \lambda f(x) + (1 - \lambda) f(x')",
    where="000, 001 §2; 002, 003 Optimization",
    right=lambda lam, at_x, at_y: lam * at_x + (1 - lam) * at_y,
    wrong=lambda lam, at_x, at_y: (1 - lam) * at_x + lam * at_y,
)
def convex_set_and_function(rng, claim):
    """A convex set holds its chords, and a convex function lies below its own."""
    f, _ = convex_function(rng, 2)
    x, y = rng.normal(size=(2, 200, 2)) * 2
    lam = rng.random(200)
    middle = y + lam[:, None] * (x - y)
    slope = rng.normal(size=2)
    radius = np.linalg.norm([x, y], axis=-1).max(0)  # both ends lie in the ball of this radius
    wave = np.sin(middle[:, 0]) - claim(lam, np.sin(x[:, 0]), np.sin(y[:, 0]))
    return all_of(
        at_most(f(middle), claim(lam, f(x), f(y))),
        equal(middle @ slope, claim(lam, x @ slope, y @ slope), tol=1e-11),
        at_most(np.linalg.norm(middle, axis=-1), radius),
        at_least(wave.max(), 0.1),  # the sine is not convex
    )


@formula(
    "convex-first-order",
    latex=r"f \text{ convex} \iff f(y) \ge f(x) + \nabla f(x)^\top (y - x) \quad \forall x, y",
    where="000, 001 §2; 002, 003",
    right=lambda fx, gx, gy, step: fx + (gx * step).sum(-1),
    wrong=lambda fx, gx, gy, step: fx + (gy * step).sum(-1),
)
def convex_first_order(rng, claim):
    """A differentiable function is convex exactly if it lies above each of its tangents."""
    f, g = convex_function(rng, 3)
    x, y = rng.normal(size=(2, 200, 3)) * 2
    near = x + 1e-4 * (y - x)
    gap = f(y) - claim(f(x), g(x), g(y), y - x)
    touching = f(near) - claim(f(x), g(x), g(near), near - x)
    a, b = rng.uniform(-3, 3, size=(2, 200, 1))
    wave = np.sin(b)[:, 0] - claim(np.sin(a)[:, 0], np.cos(a), np.cos(b), b - a)
    return all_of(at_least(gap, 0), at_most(touching, 1e-5), at_most(wave.min(), -0.1))


@formula(
    "convex-second-order",
    latex=r"f \text{ convex} \iff \nabla^2 f(x) \succeq 0 \quad \forall x"
    r" \qquad (f'' \ge 0 \text{ on the line})",
    where="000, 001 §2; 004 Lemma 6",
    right=lambda first, second: second.min() >= 0,
    wrong=lambda first, second: second.max() >= 0,
    errata=(
        Erratum(
            "E9",
            r"$f'(x) \ge 0$",
            r"$f''(x) \ge 0$",
            lambda first, second: first.min() >= 0,
            where="000, 001 §2",
            kind="formula",
        ),
    ),
)
def convex_second_order(rng, claim):
    """Convexity is a second derivative that is nowhere negative; the sign of the slope is irrelevant."""
    a, x = rng.uniform(0.5, 2), np.linspace(-3, 3, 201)
    cases = {
        "square": (a * x**2, 2 * a * x, np.full_like(x, 2 * a)),
        "exponential": (np.exp(-a * x), -a * np.exp(-a * x), a**2 * np.exp(-a * x)),
        "cube": (a * x**3, 3 * a * x**2, 6 * a * x),
        "wave": (np.sin(a * x), a * np.cos(a * x), -(a**2) * np.sin(a * x)),
        "softplus": (np.logaddexp(0, x), special.expit(x), special.expit(x) * special.expit(-x)),
        "cap": (-0.2 * a * x**2, -0.4 * a * x, np.full_like(x, -0.4 * a)),  # hardly bent, and not convex
    }
    chords = {name: f[:-2:2] + f[2::2] - 2 * f[1:-1:2] for name, (f, _, _) in cases.items()}
    truth = [chord.min() >= -EXACT for chord in chords.values()]
    said = [claim(first, second) for _, first, second in cases.values()]
    f, g = convex_function(rng, 3)
    point = rng.normal(size=3)
    many = claim(g(point), np.linalg.eigvalsh(hessian(f, point)))
    return all_of(equal(said, truth, tol=0.1), equal(many, True, tol=0.1))


@formula(
    "convex-closure-rules",
    latex=r"\alpha f + \beta g\ (\alpha, \beta \ge 0), \quad \max(f, g), \quad"
    r" h \circ f\ (h \text{ convex, non-decreasing}) \quad \text{are convex}",
    where="000, 001 §2",
    right=lambda weights, rising: min(weights) >= 0 and rising,
    wrong=lambda weights, rising: min(weights) >= 0,
)
def convex_closure_rules(rng, claim):
    """Non-negative sums, maxima and rising convex functions of convex functions stay convex."""
    x = np.linspace(-2, 2, 201)
    f = convex_function(rng)[0](x[:, None])
    a, b, c = rng.uniform(0.5, 2, size=3)
    bowl, steep = x**2 - c, a * x**4
    # per case: the values, the weights of the sum, whether the outer function rises
    cases = [
        (a * f + b * bowl, (a, b), True),
        (bowl - b / 4 * steep, (1, -b / 4), True),  # a weight just below zero
        (np.maximum(f, bowl), (1, 1), True),
        (np.exp(a * f), (1,), True),
        (np.maximum(bowl, 0) ** 2, (1,), True),
        (bowl**2, (1,), False),  # the square falls on the negative axis
        (np.exp(-a * bowl), (1,), False),
    ]
    truth = [is_convex_on_grid(values) for values, _, _ in cases]
    return equal([claim(weights, rising) for _, weights, rising in cases], truth, tol=0.1)


@formula(
    "convex-minima",
    latex=r"f \text{ convex}: \text{local minima are global}; \qquad"
    r" f \text{ strictly convex}: \ \big|\arg\min f\big| \le 1",
    where="000, 001 §2; 000 §13.3",
    right=lambda strict, coercive: (1 if coercive else 0, 1 if strict else np.inf),
    wrong=lambda strict, coercive: (1 if coercive else 0, 1),
    errata=(
        Erratum(
            "E10",
            r"a strictly convex function has exactly one global minimum",
            r"at most one; existence needs coercivity, for instance by strong convexity",
            lambda strict, coercive: (1, 1) if strict else (1 if coercive else 0, np.inf),
            where="000 §2, §13.3; 001 §2",
            kind="claim",
            counterexample=r"$e^x$ is strictly convex and has no minimum; $\|x\|$ has exactly one and is not "
            r"strictly convex",
        ),
    ),
)
def convex_minima(rng, claim):
    """A convex function's local minima are global; strict convexity makes them unique if there are any."""
    a, c = rng.uniform(0.2, 0.5), rng.uniform(1, 3)
    cases = [  # function, strictly convex, coercive
        (lambda x: (x - 1) ** 2 * c, True, True),
        (lambda x: np.cosh(a * x), True, True),
        (lambda x: np.exp(a * x), True, False),
        (lambda x: np.logaddexp(0, a * x), True, False),
        (lambda x: c * np.abs(x), False, True),  # one minimiser without strict convexity
        (lambda x: np.maximum(np.abs(x) - c, 0), False, True),
        (lambda x: np.maximum(x, 0) * c, False, False),
        (lambda x: a * x, False, False),
    ]
    bounds = np.array([claim(strict, coercive) for _, strict, coercive in cases], dtype=float)
    counts = np.array([count_minimisers(f) for f, _, _ in cases])
    inside = (bounds[:, 0] <= counts) & (counts <= bounds[:, 1])
    f, g = convex_function(rng, 2)
    x = rng.normal(size=(5, 2)) * 3
    for _ in range(400):
        x = x - 0.05 * g(x)
    return all_of(equal(inside, True, tol=0.1), equal(f(x), f(x).min(), tol=1e-4))


@formula(
    "convex-strong",
    latex=r"f(y) \ge f(x) + \nabla f(x)^\top (y - x) + \frac{\mu}{2} \|y - x\|^2",
    where="000 §13.3; 001 §2; 002, 003; 004 Def 21",
    right=lambda fx, gx, step, mu: fx + (gx * step).sum(-1) + mu / 2 * (step**2).sum(-1),
    wrong=lambda fx, gx, step, mu: fx + (gx * step).sum(-1) + mu * (step**2).sum(-1),
    systems=("rates",),
)
def convex_strong(rng, claim):
    """A strongly convex function lies above a parabola of curvature mu at each of its tangent points."""
    mu = rng.uniform(0.3, 0.8)
    H, c = spd(rng, 4, mu, 5), rng.normal(size=4)

    def f(x):
        return 0.5 * np.einsum("...i,ij,...j", x, H, x) + x @ c

    x, y = rng.normal(size=(2, 200, 4))
    flat = x + rng.normal(size=(200, 1)) * np.linalg.eigh(H)[1][:, 0]
    return all_of(
        at_least(f(y), claim(f(x), x @ H + c, y - x, mu)),
        equal(f(flat), claim(f(x), x @ H + c, flat - x, mu), tol=1e-10),
    )


@formula(
    "convex-strong-monotone",
    latex=r"\langle \nabla f(x) - \nabla f(y),\, x - y \rangle \ge \mu \|x - y\|^2",
    where="000 §13.3",
    right=lambda gx, gy, x, y: ((gx - gy) * (x - y)).sum(-1),
    errata=(
        Erratum(
            "E11",
            r"$\langle \nabla f(x) - \nabla f(y), y - x \rangle \ge \mu \|y - x\|^2$",
            r"$\langle \nabla f(x) - \nabla f(y), x - y \rangle \ge \mu \|x - y\|^2$",
            lambda gx, gy, x, y: ((gx - gy) * (y - x)).sum(-1),
            where="000 §13.3",
            kind="formula",
        ),
    ),
    systems=("rates",),
)
def convex_strong_monotone(rng, claim):
    """The gradient of a strongly convex function turns the way one walks, at the rate mu at least."""
    mu = rng.uniform(0.3, 0.8)
    f, g = convex_function(rng, 3)
    x, y = rng.normal(size=(2, 100, 3))
    gap = mu * ((x - y) ** 2).sum(-1)
    return all_of(
        at_least(claim(g(x) + mu * x, g(y) + mu * y, x, y), gap),
        equal(claim(mu * x, mu * y, x, y), gap, tol=EXACT),
    )


@formula(
    "taylor-integral-remainder",
    latex=r"f(x) = \sum_{k=0}^{n} \frac{f^{(k)}(x_0)}{k!} (x - x_0)^k"
    r" + \int_{x_0}^{x} \frac{f^{(n+1)}(t)}{n!} (x - t)^n\, dt",
    where="000, 001 §2",
    right=lambda gap, n: gap**n / factorial(n),
    wrong=lambda gap, n: gap ** (n + 1) / factorial(n + 1),
)
def taylor_integral_remainder(rng, claim):
    """Taylor's polynomial misses the function by the next derivative, integrated against a power."""
    start, x = rng.uniform(-1, 0), rng.uniform(1, 2)
    turn = np.pi / 2  # the k-th derivative of the sine is the sine advanced by k quarter turns
    outcomes = []
    for n in (0, 1, 3):
        terms = [(x - start) ** k / factorial(k) for k in range(n + 1)]
        exponential = np.exp(start) * sum(terms)
        exponential += quadrature(lambda t, n=n: np.exp(t) * claim(x - t, n), start, x, 40)
        sine = sum(np.sin(start + k * turn) * term for k, term in enumerate(terms))
        sine += quadrature(lambda t, n=n: np.sin(t + (n + 1) * turn) * claim(x - t, n), start, x, 40)
        outcomes += [equal(exponential, np.exp(x), tol=1e-10), equal(sine, np.sin(x), tol=1e-10)]
    return all_of(*outcomes)


@formula(
    "lagrangian",
    latex=r"\max f \text{ s.t. } g = c: \qquad \nabla \mathcal{L} = 0, \quad"
    r" \mathcal{L} = f - \gamma\,(g - c)",
    where="000, 001 §2",
    right=lambda slope_f, slope_g, gamma: slope_f - gamma * slope_g,
    wrong=lambda slope_f, slope_g, gamma: slope_f + gamma * slope_g,
    systems=("pca",),
)
def lagrangian(rng, claim):
    """At a constrained optimum the gradients align; the multiplier is the price of the constraint."""
    A, c = spd(rng, 2, 0.5, 3), rng.uniform(0.5, 2)

    def best(c):  # search along the circle of squared radius c, coarse and then fine
        at = lambda angle: np.sqrt(c) * np.array([np.cos(angle), np.sin(angle)])
        value = lambda angle: at(angle) @ A @ at(angle)
        near = max(np.linspace(0, np.pi, 41), key=value)
        fine = optimize.minimize_scalar(
            lambda angle: -value(angle),
            bounds=(near - 0.1, near + 0.1),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return value(fine.x), at(fine.x)

    x = best(c)[1]
    price = (best(c + 0.1)[0] - best(c - 0.1)[0]) / 0.2  # the best value is proportional to c
    return equal(claim(2 * A @ x, 2 * x, price), 0, tol=1e-6)  # the angle is known to about 1e-8


def moved_along(f, x):
    """The slope by which the library's subgradient method moves from x."""
    from corollary.optim import Subgradient

    at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    f(at).backward()
    Subgradient([at], lr=1.0, schedule="constant").step()
    return x - at.item()


@formula(
    "subdifferential",
    latex=r"\partial f(x) = \{g : f(y) \ge f(x) + g^\top (y - x) \ \ \forall y\}",
    where="001 §4.6; 002 Rectified",
    right=lambda f, x, g, y: np.all(f(y) >= f(x) + g * (y - x) - EXACT),
    wrong=lambda f, x, g, y: np.all(f(y) >= f(x) + g * y - EXACT),
    systems=("subgradient",),
    functions=("corollary.optim.Subgradient",),
)
def subdifferential(rng, claim):
    """A subgradient is the slope of a line that touches the function and stays below it."""
    y, points = np.linspace(-3, 3, 601), (-rng.uniform(0.5, 2), 0.0, rng.uniform(0.5, 2))
    slopes = np.concatenate([[-1, 0, 1], rng.uniform(-1.5, 1.5, size=12)])
    known = {  # interval of slopes left of, at and right of zero
        np.abs: ((-1, -1), (-1, 1), (1, 1)),
        lambda x: np.maximum(x, 0): ((0, 0), (0, 1), (1, 1)),
        np.square: tuple((2 * x, 2 * x) for x in points),
    }
    slopes = np.append(slopes, 2 * np.array(points))
    said, truth = [], []
    for f, intervals in known.items():
        for x, (low, high) in zip(points, intervals):
            said += [claim(f, x, g, y) for g in slopes]
            truth += list((low <= slopes) & (slopes <= high))
    for kinked, f in (
        (torch.abs, np.abs),
        (torch.relu, lambda x: np.maximum(x, 0)),
        (torch.square, np.square),
    ):
        for x in points:  # what the library's optimiser moves along, also at a kink
            said.append(claim(f, x, moved_along(kinked, x), y))
            truth.append(True)
    return equal(said, truth, tol=0.1)


def _identities(a, r, n, terms, x, boundary, other):
    i, j = np.triu_indices(len(terms), k=1)
    geometric = a * (1 - r ** (n + 1)) / (1 - r)
    square = (terms**2).sum() + 2 * (terms[i] * terms[j]).sum()
    return geometric, a / (1 - r), square, boundary - other, x


def _identities_short(a, r, n, terms, x, boundary, other):
    return (a * (1 - r**n) / (1 - r), *_identities(a, r, n, terms, x, boundary, other)[1:])


@formula(
    "calculus-identities",
    latex=r"\sum_{k=0}^{n} a r^k = a\frac{1 - r^{n+1}}{1 - r} \to \frac{a}{1 - r}, \quad"
    r" \Big(\sum_i a_i\Big)^2 = \sum_i a_i^2 + 2\sum_{i<j} a_i a_j, \quad"
    r" \int f g' = fg - \int f' g, \quad \log(1 + x) \approx x",
    where="002, 003 Background",
    right=_identities,
    wrong=_identities_short,
)
def calculus_identities(rng, claim):
    """Geometric series, square of a sum, integration by parts, and the logarithm near one."""
    a, r, n, terms = rng.uniform(1, 2), rng.uniform(0.3, 0.8), int(rng.integers(3, 9)), rng.normal(size=5)
    u, x = rng.uniform(1, 2), rng.uniform(0, 0.1, size=50)
    boundary = u**2 * np.sin(u)  # f = t^2, g = sin t on [0, u]
    other = quadrature(lambda t: 2 * t * np.sin(t), 0, u, 40)
    partial, limit, square, parts, near_log = claim(a, r, n, terms, x, boundary, other)
    return all_of(
        equal(partial, sum(a * r**k for k in range(n + 1)), tol=1e-11),
        equal(limit, sum(a * r**k for k in range(400)), tol=1e-11),
        equal(square, terms.sum() ** 2, tol=1e-11),
        equal(parts, quadrature(lambda t: t**2 * np.cos(t), 0, u, 40), tol=1e-11),
        at_most(np.abs(near_log - np.log1p(x)), x**2 / 2),
    )
