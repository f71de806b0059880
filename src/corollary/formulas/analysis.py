"""Analysis and convexity: inequalities, convex and smooth functions, stationarity, small calculus.

An inequality is tried on many random instances and must be reached where the theorem says so.
"""

from math import factorial

import numpy as np
from scipy import optimize, special, stats

from corollary.formulas._analysis_tools import (
    convex_function,
    count_minimisers,
    is_convex_on_grid,
    smoothness_class,
)
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gradient, hessian, orthogonal, quadrature, simplex, spd

EXACT = 1e-12


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
    pairs = ((x[:, :, None] - x[:, None]) ** 2).sum(
        -1
    )  # the variance as half the mean squared gap of two draws
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
    "lipschitz-function",
    latex=r"\|f(x_1) - f(x_2)\| \le L \|x_1 - x_2\|, \qquad L = \sup_x |f'(x)| \ \text{ on } \mathbb{R}",
    where="000 §13.3; 001 §2",
    right=lambda slopes: np.abs(slopes).max(),
    wrong=lambda slopes: slopes.max(),
    systems=("spectral-penalty",),
)
def lipschitz_function(rng, claim):
    """The least Lipschitz constant of a differentiable function on the line is its largest slope in size."""
    a, b, phase = rng.uniform(0.5, 2), rng.uniform(2, 4), rng.uniform(0, np.pi)
    x = np.linspace(-4, 4, 20001)
    f = -b * np.tanh(a * x) + 0.1 * np.sin(x + phase)  # steepest where it falls
    L = claim(-a * b / np.cosh(a * x) ** 2 + 0.1 * np.cos(x + phase))
    i, j = rng.integers(0, len(x), size=(2, 2000))
    steepest = np.abs(np.diff(f) / np.diff(x)).max()
    return all_of(
        at_most(np.abs(f[i] - f[j]), L * np.abs(x[i] - x[j])),
        equal(steepest / L, 1, tol=1e-5),
    )


def _chain(c1, lipschitz, uniform):
    return (not c1 or lipschitz) and (not lipschitz or uniform)


def _chain_reversed(c1, lipschitz, uniform):
    return (not lipschitz or c1) and (not uniform or lipschitz)


@formula(
    "lipschitz-inclusions",
    latex=r"\text{on } [a, b]: \quad C^1 \subset \text{Lipschitz} \subset \text{uniformly continuous}",
    where="000 §13.3",
    right=_chain,
    wrong=_chain_reversed,
)
def lipschitz_inclusions(rng, claim):
    """On a compact interval a continuous slope gives Lipschitz, and that gives uniform continuity."""
    a, c = rng.uniform(0.5, 2), rng.integers(60, 200) / 256 + 1 / 512
    examples = [
        lambda x: np.sin(a * x),
        lambda x: a * np.abs(x - c),
        lambda x: a * np.sqrt(x),
        lambda x: a * (x > c),
    ]
    seen = {tuple(bool(v) for v in smoothness_class(f)) for f in examples}
    patterns = [tuple(bool(k & bit) for bit in (4, 2, 1)) for k in range(8)]
    return equal([claim(*pattern) for pattern in patterns], [p in seen for p in patterns], tol=0.1)


@formula(
    "smooth-gradient-lipschitz",
    latex=r"\|\nabla f(x) - \nabla f(y)\| \le L \|x - y\|, \qquad"
    r" \|\nabla^2 f\|_2 \le L \text{ for } f \in C^2",
    where="000 §13.3; 001; 002; 003; 004 Def 16",
    right=lambda H, gradients: np.abs(np.linalg.eigvalsh(H)).max(),
    wrong=lambda H, gradients: np.linalg.norm(H),
    errata=(
        Erratum(
            "E13",
            r"$L$ tells how large the gradient can be",
            r"$L$ bounds how fast the gradient changes; $f = c \cdot x$ has $L = 0$",
            lambda H, gradients: np.linalg.norm(gradients, axis=-1).max(),
            where="000 §13.3",
            kind="claim",
            counterexample=r"$f = c \cdot x$ has $L = 0$ and the gradient $c$",
        ),
    ),
    systems=("rates",),
)
def smooth_gradient_lipschitz(rng, claim):
    """Smoothness bounds the change of the gradient by the largest curvature, not the gradient itself."""
    Q, c = orthogonal(rng, 4), rng.normal(size=4) * 5
    outcomes = []
    for H in ((Q * rng.uniform(-3, 2, size=4)) @ Q.T, np.zeros((4, 4))):
        x, y = rng.normal(size=(2, 200, 4))
        L = claim(H, x @ H + c)
        stiff = np.linalg.svd(H)[2][0]  # the direction that H stretches most
        outcomes += [
            at_most(np.linalg.norm((x - y) @ H, axis=-1), L * np.linalg.norm(x - y, axis=-1)),
            equal(np.linalg.norm(H @ stiff), L, tol=1e-10),
        ]
    return all_of(*outcomes)


def _upper_bound(fy, slope, length, L):
    return fy + slope + L / 2 * length**2


@formula(
    "smooth-quadratic-upper-bound",
    latex=r"f \ L\text{-smooth} \ \Rightarrow"
    r"\ f(x) \le f(y) + \nabla f(y)^\top (x - y) + \frac{L}{2}\|x - y\|^2"
    r" \quad (\Leftarrow \text{ if } f \text{ is convex})",
    where="002, 003 Optimization",
    right=lambda fy, slope, n, L, convex: (_upper_bound(fy, slope, n, L), L if convex else np.inf),
    wrong=lambda fy, slope, n, L, convex: (_upper_bound(fy, slope, n, 2 * L), L if convex else np.inf),
    errata=(
        Erratum(
            "E12",
            r"the bound is equivalent to an $L$-Lipschitz gradient for every $f$",
            r"it follows from one; the converse needs convexity",
            lambda fy, slope, n, L, convex: (_upper_bound(fy, slope, n, L), L),
            where="002 Optimization",
            kind="claim",
            counterexample=r"$-x^4$ lies below all its tangents, and its gradient is not Lipschitz",
        ),
    ),
    systems=("rates",),
)
def smooth_quadratic_upper_bound(rng, claim):
    """A smooth function lies below a parabola; only for convex ones does that bound the gradient's change."""
    L = rng.uniform(2, 5)
    H, (x, y) = spd(rng, 3, 0.1, L), rng.normal(size=(2, 200, 3))
    top = y + rng.normal(size=(200, 1)) * np.linalg.eigh(H)[1][:, -1]

    def f(x):
        return 0.5 * np.einsum("ni,ij,nj->n", x, H, x)

    def said(x):
        return claim(f(y), ((y @ H) * (x - y)).sum(-1), np.linalg.norm(x - y, axis=-1), L, True)

    bound, lipschitz = said(x)
    a, b = rng.uniform(-10, 10, size=(2, 500))
    cap, quartic = claim(-(b**4), -4 * b**3 * (a - b), np.abs(a - b), 1.0, False)  # -x^4: concave
    return all_of(
        at_most(f(x), bound),
        equal(f(top), said(top)[0], tol=1e-10),
        at_most(np.linalg.norm((x - y) @ H, axis=-1) / np.linalg.norm(x - y, axis=-1), lipschitz),
        at_most(-(a**4), cap, tol=1e-8),
        at_most(np.abs((4 * a**3 - 4 * b**3) / (a - b)), quartic),
    )


@formula(
    "smooth-integral-identity",
    latex=r"f(x) - f(y) - \nabla f(y)^\top (x - y)"
    r" = \int_0^1 \big[\nabla f(y + s(x - y)) - \nabla f(y)\big]^\top (x - y)\, ds",
    where="003 Optimization",
    right=lambda along, at_y, step: (along - at_y) @ step,
    wrong=lambda along, at_y, step: along @ step,
)
def smooth_integral_identity(rng, claim):
    """What a function exceeds its tangent by is the gradient's change, summed along the segment."""
    f, g = convex_function(rng, 3)
    x, y = rng.normal(size=(2, 3))
    integral = quadrature(lambda s: claim(g(y + s[:, None] * (x - y)), g(y), x - y), 0, 1, 60)
    return equal(integral, f(x) - f(y) - g(y) @ (x - y), tol=1e-9)


@formula(
    "smooth-strong-hessian",
    latex=r"\mu I \preceq \nabla^2 f(x) \preceq L I; \qquad"
    r" \text{ridge logistic loss}: \mu = \lambda,\ L = \lambda + \tfrac{1}{4n}\lambda_{\max}(X^\top X)",
    where="002, 003 Optimization",
    right=lambda X, ridge: (ridge, ridge + np.linalg.norm(X, 2) ** 2 / (4 * len(X))),
    wrong=lambda X, ridge: (ridge, ridge + np.linalg.norm(X, 2) ** 2 / len(X)),
    systems=("rates", "logistic"),
)
def smooth_strong_hessian(rng, claim):
    """Strong convexity and smoothness are the lower and the upper bound on the curvature."""
    X, ridge = rng.normal(size=(10, 3)), rng.uniform(0.1, 1)
    X[:, 0] = rng.uniform(0.8, 2, size=10)
    low, high = claim(X, ridge)

    def curvatures(theta):
        loss = lambda t: np.logaddexp(0, X @ t).mean() + ridge / 2 * t @ t
        return np.linalg.eigvalsh(hessian(loss, theta, 1e-3))

    found = np.array([curvatures(rng.normal(size=3) * size) for size in (0.5, 1, 3)])
    far = curvatures(np.array([40.0, 0, 0]))  # every logistic unit is saturated there
    sharpest = curvatures(np.zeros(3)).max()
    return all_of(
        at_least(found, low, tol=1e-4),  # second differences
        at_most(found, high, tol=1e-4),
        equal(sharpest, high, tol=1e-4),  # at zero every sample has the largest slope, 1/4
        equal(far, low, tol=1e-3),
    )


@formula(
    "epsilon-stationarity",
    latex=r"x \text{ is } \epsilon\text{-critical} \iff \|\nabla f(x)\| \le \epsilon",
    where="002; 003; 004 Def 17",
    right=lambda g, eps: np.linalg.norm(g, axis=-1) <= eps,
    wrong=lambda g, eps: (g**2).sum(-1) <= eps,
    systems=("rates",),
)
def epsilon_stationarity(rng, claim):
    """At an epsilon-critical point no direction changes the function faster than epsilon."""
    H, eps = spd(rng, 2), rng.uniform(0.05, 0.2)
    aim = eps * np.array([0.9, 1.1, 0.5, 2.0])[:, None] * orthogonal(rng, 2)[0]
    x = aim @ np.linalg.inv(H)  # points whose gradient is known
    angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    directions = np.stack([np.cos(angle), np.sin(angle)])
    step = 1e-4

    def f(x):
        return 0.5 * np.einsum("...i,ij,...j", x, H, x)

    move = step * directions.T
    speed = (f(x[:, None] + move) - f(x[:, None] - move)) / (2 * step)
    return equal(claim(x @ H, eps), speed.max(axis=1) <= eps, tol=0.1)


@formula(
    "pl-condition",
    latex=r"\tfrac12 \|\nabla f(x)\|^2 \ge \mu\, (f(x) - f^*)",
    where="001 §2; 002; 003; 004 Def 19",
    right=lambda squared_gradient, mu: squared_gradient / (2 * mu),
    wrong=lambda squared_gradient, mu: squared_gradient / mu,
    systems=("rates",),
)
def pl_condition(rng, claim):
    """The gradient is large wherever the value is far from the optimum, even without convexity."""
    A = rng.normal(size=(3, 5))  # rank deficient: f = |Ax - b|^2 / 2 is not strongly convex
    b, x = rng.normal(size=3), rng.normal(size=(200, 5)) * 3
    residual = x @ A.T - b
    mu = np.linalg.eigvalsh(A @ A.T).min()
    weakest = np.linalg.eigh(A @ A.T)[1][:, 0]
    t = np.linspace(-10, 10, 4001)
    slope = 2 * t + 3 * np.sin(2 * t)
    return all_of(
        at_most(0.5 * (residual**2).sum(-1), claim(((residual @ A) ** 2).sum(-1), mu), tol=1e-9),
        equal(0.5, claim(((weakest @ A) ** 2).sum(), mu), tol=1e-9),
        at_most(t**2 + 3 * np.sin(t) ** 2, claim(slope**2, 1 / 32)),  # not convex, yet PL
    )


@formula(
    "strong-convexity-implies-pl",
    latex=r"f \ \mu\text{-strongly convex} \ \Rightarrow\ \tfrac12\|\nabla f(x)\|^2 \ge \mu\,(f(x) - f^*)",
    where="001; 003; 004 Lemma 22",
    right=lambda mu: mu,
    wrong=lambda mu: 2 * mu,
    systems=("rates",),
)
def strong_convexity_implies_pl(rng, claim):
    """Strong convexity gives the Polyak-Lojasiewicz inequality with the very same constant."""
    mu = rng.uniform(0.3, 0.8)
    H, centre, x = spd(rng, 4, mu, 6), rng.normal(size=4), rng.normal(size=(200, 4)) * 2
    gap = 0.5 * np.einsum("ni,ij,nj->n", x - centre, H, x - centre)
    flat = np.linalg.eigh(H)[1][:, 0]
    f, g = convex_function(rng, 2)  # strongly convex after adding mu / 2 |x|^2
    z, best = rng.normal(size=(100, 2)), np.zeros(2)
    for _ in range(500):
        best = best - 0.05 * (g(best) + mu * best)
    height = f(z) + mu / 2 * (z**2).sum(-1) - f(best) - mu / 2 * best @ best
    return all_of(
        at_least(0.5 * (((x - centre) @ H) ** 2).sum(-1), claim(mu) * gap),
        equal(0.5 * ((H @ flat) ** 2).sum(), claim(mu) * 0.5 * flat @ H @ flat, tol=1e-10),
        at_least(0.5 * ((g(z) + mu * z) ** 2).sum(-1), claim(mu) * height, tol=1e-9),
    )


@formula(
    "condition-number",
    latex=r"\kappa(H) = \frac{\lambda_{\max}(H)}{\lambda_{\min}(H)} = \frac{L}{\mu} \ge 1, \qquad H \succ 0",
    where="001 §2; 000 §13.3",
    right=lambda eigenvalues: eigenvalues.max() / eigenvalues.min(),
    wrong=lambda eigenvalues: eigenvalues.min() / eigenvalues.max(),
    systems=("rates",),
)
def condition_number(rng, claim):
    """The condition number of a positive matrix is the ratio of its largest to its smallest curvature."""
    H = spd(rng, 5, 0.3, rng.uniform(2, 20))
    kappa = claim(np.linalg.eigvalsh(H))
    stretch = np.linalg.norm(H, 2) * np.linalg.norm(np.linalg.inv(H), 2)
    return all_of(equal(kappa, stretch, tol=1e-9), at_least(kappa, 1), equal(claim(np.ones(3)), 1, tol=EXACT))


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


@formula(
    "subdifferential",
    latex=r"\partial f(x) = \{g : f(y) \ge f(x) + g^\top (y - x) \ \ \forall y\}",
    where="001 §4.6; 002 Rectified",
    right=lambda f, x, g, y: np.all(f(y) >= f(x) + g * (y - x) - EXACT),
    wrong=lambda f, x, g, y: np.all(f(y) >= f(x) + g * y - EXACT),
    systems=("subgradient",),
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
