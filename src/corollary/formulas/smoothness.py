"""Lipschitz and smooth functions, the inequality of Polyak and Lojasiewicz, conditioning."""

import numpy as np
import torch

from corollary.formulas._analysis_tools import (
    EXACT,
    convex_function,
    smoothness_class,
)
from corollary.formulas._library_tools import built, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import hessian, orthogonal, quadrature, spd


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
    functions=("corollary.theory.constants",),
)
def condition_number(rng, claim):
    """The condition number of a positive matrix is the ratio of its largest to its smallest curvature."""
    from corollary.theory import constants

    H = spd(rng, 5, 0.3, rng.uniform(2, 20))
    kappa = claim(np.linalg.eigvalsh(H))
    # The loss of a linear model with five inputs whose second moments are H.
    line = built(lambda: torch.nn.Linear(5, 1, bias=False), weight=np.zeros(5)).requires_grad_(True)
    rows = tensor(np.sqrt(5) * np.linalg.cholesky(H).T)
    found = constants(line, (rows, rows.sum(1, keepdim=True)), loss="half_squared", steps=0)
    stretch = np.linalg.norm(H, 2) * np.linalg.norm(np.linalg.inv(H), 2)
    return all_of(
        equal(kappa, stretch, tol=1e-9),
        equal(kappa, found.condition, tol=1e-6, relative=True),
        at_least(kappa, 1),
        equal(claim(np.ones(3)), 1, tol=EXACT),
    )
