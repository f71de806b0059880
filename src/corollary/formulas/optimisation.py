"""Gradient methods and their convergence: update rules, step sizes, momentum and rates."""

from __future__ import annotations

from itertools import combinations
from math import ceil

import numpy as np
import torch
from scipy import integrate, linalg, optimize

from corollary.formulas import _optimisation_tools as tools
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_least,
    at_most,
    equal,
    exponent,
    formula,
    within,
)
from corollary.formulas.tools import gradient, spd


def _descent_and_flow(H, theta, eta, steps):
    path = tools.library_path("gd", lambda x: H @ x, theta, steps, lr=eta)
    return path[-1], linalg.expm(-eta * steps * H) @ theta


def _descent_as_flow(H, theta, eta, steps):
    end = tools.descend(lambda x: H @ x, theta, eta, steps)[-1]
    return end, end


@formula(
    "opt-gradient-descent",
    latex=r"\theta_{t+1} = \theta_t - \eta\,\nabla f(\theta_t):"
    r"\quad \text{an Euler step of the flow } \dot\theta = -\nabla f(\theta)",
    where="000 §13.2; 001 §11.3; 002, 003 Optimisation; 004 §4.2",
    right=_descent_and_flow,
    wrong=lambda H, theta, eta, steps: _descent_and_flow(-H, theta, eta, steps),
    errata=(
        Erratum(
            "E60",
            printed=r"gradient flow is the numerical integration of $\dot x = -\nabla f(x)$",
            correction=r"gradient descent is; gradient flow is the equation's exact solution",
            form=_descent_as_flow,
            where="001 §11.3",
            kind="claim",
            counterexample=r"$f = \frac12 x^2$ from 1: two steps of $\frac12$ end at $\frac14$, the flow after "
            r"the same time at $e^{-1}$",
        ),
    ),
    systems=("gd",),
    functions=("corollary.optim.create",),
)
def gradient_descent(rng, claim):
    """Gradient descent is Euler's method for gradient flow, from which it strays by O(step)."""
    H, theta, time = spd(rng, 3), rng.normal(size=3), 1.0
    counts = np.array([20, 40, 80, 160])
    flow = integrate.solve_ivp(
        lambda t, x: -H @ x, (0, time), theta, method="DOP853", rtol=1e-11, atol=1e-12
    ).y[:, -1]
    claims = [claim(H, theta, time / n, n) for n in counts]
    gaps = [np.linalg.norm(descent - flow) for descent, _ in claims]
    return all_of(
        equal([end for _, end in claims], np.tile(flow, (4, 1)), tol=1e-8),
        exponent(time / counts, gaps, 1.0, tol=0.1),  # the next order adds 2 % over this range
    )


@formula(
    "opt-expected-gradient",
    latex=r"\nabla\,\mathbb E[\ell(\theta)] = \mathbb E[\nabla\ell(\theta)], \qquad "
    r"\mathbb E\Big[\frac1r\sum_{i \in B}\nabla\ell_i\Big] = \nabla\Big(\frac1n\sum_i\ell_i\Big)",
    where="000 §13.1; 002, 003 Optimisation",
    right=lambda gradients, n: gradients.mean(0),
    wrong=lambda gradients, n: gradients.sum(0) / n,
    systems=("minibatch", "sgd"),
    functions=("corollary.optim.create",),
)
def expected_gradient(rng, claim):
    """Gradient and expectation commute, so the gradient of a random batch is right on average."""
    n, r = 6, 3
    X, y, theta = rng.normal(size=(n, 4)), rng.normal(size=n), rng.normal(size=4)
    weights = torch.tensor(theta, requires_grad=True)
    (full,) = torch.autograd.grad(torch.mean((torch.tensor(X) @ weights - torch.tensor(y)) ** 2), weights)
    each = 2 * (X @ theta - y)[:, None] * X
    picks = [list(batch) for batch in combinations(range(n), r)]
    batches = [claim(each[batch], n) for batch in picks]

    def mean_gradient(batch):  # of the squared errors of a batch
        return lambda t: 2 * X[batch].T @ (X[batch] @ t - y[batch]) / r

    moved = [tools.library_path("minibatch", mean_gradient(batch), theta, 1, lr=0.1)[0] for batch in picks]
    return all_of(
        equal(np.mean(batches, axis=0), full, tol=1e-12),
        equal(theta - 0.1 * np.array(batches), moved, tol=1e-12),
    )


@formula(
    "opt-newton",
    latex=r"f(\theta + \Delta) \approx f + \nabla f^\top\Delta + \tfrac12\Delta^\top\nabla^2 f\,\Delta"
    r"\ \Rightarrow\ \Delta = -[\nabla^2 f]^{-1}\nabla f,"
    r"\qquad \nabla^2 f = \tfrac1\eta I: \Delta = -\eta\nabla f",
    where="000 §2; 002, 003 Optimisation",
    right=lambda g, H: -np.linalg.solve(H, g),
    wrong=lambda g, H: -H @ g,
    systems=("newton",),
    functions=("corollary.optim.Newton",),
)
def newton(rng, claim):
    """Newton's step minimises the quadratic model; an isotropic Hessian turns it into descent."""
    from corollary.optim import Newton

    A, b, theta, eta = spd(rng, 4, 0.5, 5.0), rng.normal(size=4), rng.normal(size=4), rng.uniform(0.1, 0.5)

    def f(x):
        return x @ A @ x / 2 - b @ x

    g = gradient(f, theta)
    point = torch.tensor(theta, requires_grad=True)
    step = Newton([point], damping=0.0, tol=1e-12).step
    step(lambda: point @ torch.tensor(A) @ point / 2 - torch.tensor(b) @ point)
    return all_of(
        equal(gradient(f, theta + claim(g, A)), np.zeros(4), tol=1e-8),
        equal(claim(g, A), point.detach().numpy() - theta, tol=1e-8),  # g are central differences
        equal(claim(g, np.eye(4) / eta), -eta * g, tol=1e-12),
    )


@formula(
    "opt-second-order-step",
    latex=r"\mathcal R(\theta - \eta g) \approx \mathcal R - \eta\lVert g\rVert^2"
    r" + \tfrac{\eta^2}{2}\,g^\top H g:\quad "
    r"\text{no progress once } \tfrac\eta2\,g^\top H g \ge \lVert g\rVert^2",
    where="000 §13.4",
    right=lambda R, g, H, eta: R - eta * g @ g + eta**2 / 2 * g @ H @ g,
    errata=(
        Erratum(
            "T8",
            printed=r"$\frac{\eta^2}{2} g^\top H g / \lVert g\rVert^2$",
            correction=r"$\frac{\eta^2}{2} g^\top H g$",
            form=lambda R, g, H, eta: R - eta * g @ g + eta**2 / 2 * (g @ H @ g) / (g @ g),
            where="000 §13.4",
            kind="typing",
        ),
        Erratum(
            "E68",
            printed=r"the curvature term is positive for every risk, its Hessian being semidefinite",
            correction=r"only for convex $\mathcal R$; $g^\top H g$ may have either sign",
            form=lambda R, g, H, eta: R - eta * g @ g + eta**2 / 2 * abs(g @ H @ g),
            where="000 §13.4",
            kind="claim",
            counterexample=r"$-x^2$ has curvature $-2$",
        ),
    ),
    systems=("gd",),
)
def second_order_step(rng, claim):
    """To second order a step gains its squared gradient and pays the curvature along it."""
    theta, outcomes = rng.normal(size=4), []
    for H in (spd(rng, 4, 3.0, 8.0), -spd(rng, 4, 3.0, 8.0)):

        def risk(x, H=H):
            return x @ H @ x / 2

        g = H @ theta
        for eta in (0.1, 2 * (g @ g) / (g @ H @ g)):  # the second step is where progress ends
            predicted = claim(risk(theta), g, H, eta)
            outcomes.append(equal(predicted, risk(theta - eta * g), tol=1e-9))
        outcomes.append(equal(predicted, risk(theta), tol=1e-9))
    return all_of(*outcomes)


@formula(
    "opt-descent-lemma",
    latex=r"f\!\left(\theta - \tfrac1L\nabla f(\theta)\right)"
    r" \le f(\theta) - \frac{1}{2L}\lVert\nabla f(\theta)\rVert^2",
    where="003 Optimisation",
    right=lambda value, g, L: value - g @ g / (2 * L),
    wrong=lambda value, g, L: value - g @ g / L,
    systems=("gd", "rates"),
)
def descent_lemma(rng, claim):
    """On an L-smooth function a step 1/L gains at least the squared gradient over 2L."""
    reached, bounds = [], []
    for _ in range(10):
        f, g, L, _ = tools.cosine_landscape(rng, 3)
        for x in rng.normal(size=(5, 3)):
            reached.append(f(x - g(x) / L))
            bounds.append(claim(f(x), g(x), L))
    x, L = rng.normal(size=3), rng.uniform(1, 3)
    tight = equal(claim(L * x @ x / 2, L * x, L), 0.0, tol=1e-12)  # the bowl, solved in one step
    return all_of(at_most(reached, bounds), tight)


@formula(
    "opt-step-size",
    latex=r"\eta = \tfrac1L \text{ converges}, \qquad \eta \ge \tfrac2L \text{ does not}, \qquad "
    r"\eta^* = \frac{2}{\mu + L} = \arg\min_\eta\max_{\lambda \in [\mu, L]}\lvert 1 - \eta\lambda\rvert",
    where="000 §13.3; 001 §2, §11.3; 004 §4.2",
    right=lambda mu, L: (1 / L, 2 / (mu + L)),
    errata=(
        Erratum(
            "E58",
            printed=r"$\eta = 2/L$ as a usual choice",
            correction=r"$\eta < 2/L$ is needed: at $2/L$ the iterates oscillate",
            form=lambda mu, L: (2 / L, 2 / (mu + L)),
            where="000 §13.3",
            kind="claim",
            counterexample=r"$f = \frac12 x^2$, $L = 1$: $x \to -x \to x$ for ever",
        ),
        Erratum(
            "E59",
            printed=r"a fixed $\eta \le 1/L$ is optimal",
            correction=r"safe, not optimal: $2/(\mu + L)$ contracts faster",
            form=lambda mu, L: (1 / L, 1 / L),
            where="001 §11.3",
            kind="claim",
            counterexample=r"curvatures 1 and 9: a step $\frac19$ leaves $\frac89$ of the error, a step $\frac15$ "
            r"leaves $\frac45$",
        ),
        Erratum(
            "E112",
            printed=r"a step size of the order of the curvature",
            correction=r"of the order of one over the curvature",
            form=lambda mu, L: (L, 2 / (mu + L)),
            where="002 Optimization",
            kind="claim",
            counterexample=r"$f = \frac32 x^2$: a step of 3 multiplies $x$ by $-8$",
        ),
    ),
    systems=("gd", "rates"),
)
def step_size(rng, claim):
    """A step of 1/L converges, one of 2/L does not, and 2/(mu + L) is the best for a quadratic."""
    mu, L = rng.uniform(0.3, 0.5), rng.uniform(2, 4)
    A = spd(rng, 4, mu, L)
    safe, best = claim(mu, L)
    start = rng.normal(size=4)
    end = tools.descend(lambda x: A @ x, start, safe, 400)[-1]
    search = optimize.minimize_scalar(
        lambda eta: np.abs(np.linalg.eigvalsh(np.eye(4) - eta * A)).max(),
        bounds=(0, 2 / L),
        method="bounded",
        options={"xatol": 1e-10},
    )
    ratio = np.linalg.norm(end) / np.linalg.norm(start)
    return all_of(at_most(ratio, 0.0, tol=1e-6), equal(best, search.x, tol=1e-6))


@formula(
    "gd-critical-point-rate",
    latex=r"\min_{s \le k}\lVert\nabla\ell(\theta_s)\rVert \le \epsilon"
    r"\quad\text{for}\quad k = \frac{2L(\ell_0 - \ell^*)}{\epsilon^2}, \qquad \eta = \tfrac1L",
    where="004 Lemma 18",
    right=lambda L, gap, epsilon: (2 * L * gap / epsilon**2, -L),
    wrong=lambda L, gap, epsilon: (2 * L * gap / epsilon, -L),
    errata=(
        Erratum(
            "E67",
            printed=r"smoothness is sufficient to find local minima",
            correction=r"to find $\epsilon$-critical points, which may be saddles",
            form=lambda L, gap, epsilon: (2 * L * gap / epsilon**2, 0.0),
            where="004 §4.2",
            kind="claim",
            counterexample=r"$x^2 - y^2$ from $(1, 0)$ ends at the saddle",
        ),
    ),
    systems=("gd", "rates"),
)
def critical_point_rate(rng, claim):
    """Descent soon meets a small gradient, with no promise about the curvature there.

    The claim is the number of steps, and the least curvature that smoothness guarantees.
    """
    outcomes, epsilon = [], 0.05
    for _ in range(3):
        f, g, L, floor = tools.cosine_landscape(rng, 2)
        x, steps = rng.normal(size=2) * 2, 0
        allowed = claim(L, f(x) - floor, epsilon)[0]
        while np.linalg.norm(g(x)) > epsilon and steps < allowed + 1000:
            x, steps = x - g(x) / L, steps + 1
        outcomes.append(at_most(steps, allowed))
    # a long slope just steeper than epsilon: every step gains slope^2 / L, half of what the lemma pays for
    L, slope = 1.0, 1.0001 * epsilon
    x, steps = rng.uniform(15, 20), 0
    allowed = claim(L, tools.huber(x, L, slope)[0], epsilon)[0]
    while abs(tools.huber(x, L, slope)[1]) > epsilon:
        x, steps = x - tools.huber(x, L, slope)[1] / L, steps + 1
    # x^2 - y^2 from (1, 0) stops at the saddle
    saddle = tools.descend(lambda p: np.array([2.0, -2.0]) * p, np.array([1.0, 0.0]), 0.4, 60)[-1]
    curvature = np.linalg.eigvalsh(np.diag([2.0, -2.0]))[0] if np.linalg.norm(saddle) < 1e-6 else np.nan
    return all_of(
        *outcomes, within(steps / allowed, 0.485, 0.515), at_least(curvature, claim(2.0, 1.0, epsilon)[1])
    )


@formula(
    "gd-convex-rate",
    latex=r"f(\theta_t) - f^* \le \frac{L}{2t}\lVert\theta_0 - \theta^*\rVert^2"
    r"\quad\Big(\text{the notes, valid but up to four times looser: } \frac{2L}{t+1}\lVert\theta_0 - \theta^*\rVert^2\Big),"
    r"\qquad \eta = \tfrac1L",
    where="000 §13.3",
    right=lambda L, t, distance2: (L * distance2 / (2 * t), 2 * L * distance2 / (t + 1)),
    wrong=lambda L, t, distance2: (L * distance2 / (2 * t**2), 2 * L * distance2 / (t + 1) ** 2),
    errata=(
        Erratum(
            "E13",
            printed=r"$O(1/t)$ is a linear rate, of $\theta$",
            correction=r"sublinear, and of $\mathcal R(\theta_t) - \mathcal R^*$; linear means $O(c^t)$",
            form=lambda L, t, distance2: (L * distance2 / 2 * 0.5**t, 2 * L * distance2 * 0.5**t),
            where="000 §13.3",
            kind="claim",
            counterexample=r"$1/t$ loses no constant factor per step: $\frac{1/(t+1)}{1/t} \to 1$",
        ),
    ),
    systems=("gd", "rates"),
)
def convex_rate(rng, claim):
    """On a convex L-smooth function descent with step 1/L closes the gap in value like 1/t."""
    outcomes, times = [], np.array([1, 3, 10, 30, 100])
    A = spd(rng, 5, 0.0, rng.uniform(1, 3))
    L, start = np.linalg.eigvalsh(A)[-1], rng.normal(size=5)
    path = tools.descend(lambda x: A @ x, start, 1 / L, 100)
    for bound in claim(L, times, start @ start):
        outcomes.append(at_most([path[t] @ A @ path[t] / 2 for t in times], bound))
    reached = []
    distance = rng.uniform(2, 3)
    for t in times:  # a function for which t steps do worst: exactly L distance^2 / (4t + 2)
        x, delta = distance, distance / (2 * t + 1)
        for _ in range(t):
            x -= tools.huber(x, L, delta)[1] / L
        reached.append(tools.huber(x, L, delta)[0])
    standard, notes = claim(L, times, distance**2)
    return all_of(
        *outcomes,
        within(reached / standard, 0.33, 0.5),  # 2t / (4t + 2)
        within(reached / notes, 0.12, 0.17),  # (t + 1) / (8t + 4)
    )


@formula(
    "gd-linear-rate",
    latex=r"f(\theta_t) - f^* \le \left(1 - \frac\mu L\right)^t (f(\theta_0) - f^*), \qquad \eta = \tfrac1L",
    where="000 §13.3; 001 §2; 003 Optimisation; 004 Lemma 20",
    right=lambda mu, L, t, gap: (1 - mu / L) ** t * gap,
    wrong=lambda mu, L, t, gap: (1 - np.sqrt(mu / L)) ** t * gap,
    errata=(
        Erratum(
            "T20",
            printed=r"linear rate $O(e^k)$",
            correction=r"$O(c^k)$ with $c < 1$",
            form=lambda mu, L, t, gap: np.exp(t) * gap,
            where="001 §2",
            kind="typing",
        ),
    ),
    systems=("gd", "rates"),
)
def linear_rate(rng, claim):
    """Strong convexity, or the weaker Polyak-Lojasiewicz inequality, makes descent converge geometrically."""
    times = np.arange(0, 60)
    mu, L = rng.uniform(0.02, 0.05), rng.uniform(1, 2)
    A = spd(rng, 4, mu, L)
    slowest = np.linalg.eigh(A)[1][:, 0]
    outcomes = []
    for start in (rng.normal(size=4), slowest):
        values = np.array([x @ A @ x / 2 for x in tools.descend(lambda x: A @ x, start, 1 / L, 59)])
        outcomes.append(at_most(values, claim(mu, L, times, values[0])))
    # along the slowest direction the truth is (1 - mu/L)^(2t): the exponent is right up to a factor 2
    shrink = np.log(values[-1] / values[0]) / np.log(claim(mu, L, 59, 1.0))
    # x^2 + 3 sin^2 x is not convex but satisfies the inequality with mu = 1/32, L = 8
    path = tools.descend(lambda x: 2 * x + 3 * np.sin(2 * x), rng.uniform(2, 4), 1 / 8, 59)
    values = path**2 + 3 * np.sin(path) ** 2
    outcomes.append(at_most(values, claim(1 / 32, 8, times, values[0])))
    return all_of(*outcomes, equal(shrink, 2.0, tol=1e-3))


@formula(
    "opt-gradient-clipping",
    latex=r"g \leftarrow g\,\min\left\{1, \frac{c}{\lVert g\rVert}\right\}",
    where="000 §13.4; 002 Optimisation",
    right=lambda g, c: g * min(1.0, c / np.linalg.norm(g)),
    wrong=lambda g, c: g * c / np.linalg.norm(g),
    systems=("clipping",),
    functions=("corollary.engine.regularisers.ClipNorm",),
)
def gradient_clipping(rng, claim):
    """Clipping shortens a long gradient to length c, keeps its direction, and leaves short ones alone."""
    from corollary.engine.regularisers import ClipNorm

    outcomes, c = [], rng.uniform(1.5, 3)
    for size in (0.2, 5.0):
        g = rng.normal(size=6)
        g *= size / np.linalg.norm(g)
        x = torch.zeros(6, dtype=torch.float64)
        x.grad = torch.tensor(g)
        ClipNorm(c).on_gradient([x])
        clipped = claim(g, c)
        outcomes += [
            equal(clipped, x.grad, tol=1e-5),  # torch adds 1e-6 to the norm
            at_most(np.linalg.norm(clipped), c),
            equal(clipped @ g, np.linalg.norm(clipped) * np.linalg.norm(g), tol=1e-12),
        ]
    return all_of(*outcomes)


def _heavy_ball(gradients, eta, beta):
    weights = beta ** np.arange(len(gradients))[::-1]
    return -eta * weights @ gradients, -eta / (1 - beta) * gradients[-1]


def _heavy_ball_printed(gradients, eta, beta):
    return _heavy_ball(gradients, eta, beta)[0], eta * beta / (1 - beta) * gradients[-1]


@formula(
    "opt-heavy-ball",
    latex=r"x_{k+1} = x_k - \eta\nabla f(x_k) + \beta(x_k - x_{k-1}):\quad "
    r"x_{t+1} - x_t = -\eta\sum_{k \le t}\beta^{t-k}\nabla f(x_k) \to -\frac{\eta}{1 - \beta}\nabla f",
    where="001 §11.3; 002, 003 Optimisation; 004 §4.2",
    right=_heavy_ball,
    wrong=lambda gradients, eta, beta: _heavy_ball(gradients[::-1], eta, beta),
    errata=(
        Erratum(
            "T12",
            printed=r"terminal step $\frac{\eta\beta}{1-R}\nabla f$, without sign",
            correction=r"$-\frac{\eta}{1-\beta}\nabla f$",
            form=_heavy_ball_printed,
            where="003 Momentum",
            kind="typing",
        ),
    ),
    systems=("heavy-ball",),
    functions=("corollary.optim.create",),
)
def heavy_ball(rng, claim):
    """Momentum adds up past gradients with geometric weights; on a constant slope it gains 1/(1 - beta)."""
    eta, beta, A = 0.1, rng.uniform(0.5, 0.8), spd(rng, 3)
    path, gradients = [rng.normal(size=3)] * 2, []
    for _ in range(12):
        gradients.append(A @ path[-1])
        path.append(path[-1] - eta * gradients[-1] + beta * (path[-1] - path[-2]))
    slope, x, before = rng.normal(size=3), np.zeros(3), np.zeros(3)
    for _ in range(300):
        x, before = x - eta * slope + beta * (x - before), x
    constant = np.tile(slope, (300, 1))
    theirs = tools.library_path("heavy-ball", lambda x: A @ x, path[0], 12, lr=eta, momentum=beta)
    return all_of(
        equal(claim(np.array(gradients), eta, beta)[0], theirs[-1] - theirs[-2], tol=1e-12),
        equal(claim(np.array(gradients), eta, beta)[0], path[-1] - path[-2], tol=1e-12),
        equal(claim(constant, eta, beta)[1], x - before, tol=1e-10),
    )


@formula(
    "opt-nesterov",
    latex=r"y_k = x_k + \beta(x_k - x_{k-1}), \qquad x_{k+1} = y_k - \eta\nabla f(y_k)",
    where="001 §11.3; 002, 003 Optimisation; 004 §4.2",
    right=tools.nesterov,
    errata=(
        Erratum(
            "T9",
            printed=r"$x_{k+1} = y_k - \eta\nabla f(y_{k+1})$",
            correction=r"$x_{k+1} = y_k - \eta\nabla f(y_k)$",
            form=tools.nesterov_ahead,
            where="003 Momentum",
            kind="typing",
        ),
    ),
    systems=("nesterov",),
    functions=("corollary.optim.create",),
)
def nesterov(rng, claim):
    """Nesterov extrapolates first, then takes the gradient and the step at the extrapolated point."""
    eta, beta, A, steps = 0.2, rng.uniform(0.5, 0.8), spd(rng, 3), 12
    start = rng.normal(size=3)
    path = claim(lambda x: A @ x, start, eta, beta, steps)
    # torch keeps the extrapolated points
    ahead = tools.library_path("nesterov", lambda x: A @ x, start, steps, lr=eta, momentum=beta)
    return equal(path[1:] + beta * (path[1:] - path[:-1]), ahead, tol=1e-10)


@formula(
    "nesterov-rates",
    latex=r"f_k - f^* \le L\Big(1 - \frac{1}{\sqrt\kappa}\Big)^k\lVert x_0 - x^*\rVert^2"
    r"\ \Big(\beta = \tfrac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\Big); \qquad "
    r"\text{convex: } f_t - f^* \le \frac{2L\lVert x_0 - x^*\rVert^2}{(t+1)^2}",
    where="000 §13.3; 002, 003 Optimisation",
    right=lambda L, kappa, k: (L * (1 - 1 / np.sqrt(kappa)) ** k, 2 * L / (k + 1) ** 2),
    wrong=lambda L, kappa, k: (L * (1 - 1 / kappa) ** k, L / (2 * k)),
    systems=("nesterov", "rates"),
)
def nesterov_rates(rng, claim):
    """Acceleration replaces the condition number by its root, and 1/t by its square.

    The claim gives both bounds for a start at distance one.
    """
    outcomes, L = [], rng.uniform(2, 3)
    # the rate is the spectral radius of a step in the slowest mode; at k = 0 it bounds L/2
    for kappa in (
        4.0,
        20.0,
    ):
        root = np.sqrt(kappa)
        beta = (root - 1) / (root + 1)
        step = np.array([[(1 + beta) * (1 - 1 / kappa), -beta * (1 - 1 / kappa)], [1, 0]])
        bounds = claim(L, kappa, np.array([0, 1, 2]))[0]
        radius = np.abs(np.linalg.eigvals(step)).max()
        outcomes += [
            equal(bounds[1:] / bounds[:-1], radius, tol=1e-6),
            equal(bounds[0], 2 * L / 2, tol=1e-12),
        ]
    for kappa in (100.0, 1000.0, 10000.0):
        spectrum = np.concatenate([[L / kappa, L], rng.uniform(L / kappa, L, size=4)])
        start = np.full(6, 1 / np.sqrt(6))
        steps, root = ceil(8 * np.sqrt(kappa)), np.sqrt(kappa)
        path = tools.nesterov(lambda x, s=spectrum: s * x, start, 1 / L, (root - 1) / (root + 1), steps)
        values = (path**2 * spectrum).sum(1) / 2
        bounds = claim(L, kappa, np.arange(1, steps + 1))[0]
        outcomes.append(at_most(values[1:], bounds))
        # the slowest mode decays like k^2 (1 - 1/sqrt(kappa))^(2k), the bound like its root
        outcomes.append(within(np.log(values[-1] / L) / np.log(bounds[-1] / L), 1.0, 3.0))
    for t in (8, 16, 32):  # no first-order method beats 3L / (32 (t + 1)^2) on this quadratic
        A, b, best = tools.hard_quadratic(2 * t + 1, L)
        end = tools.nesterov(lambda x, A=A, b=b: A @ x - b, 0 * b, 1 / L, tools.convex_momentum, t)[-1]
        gap = (end - best) @ A @ (end - best) / 2
        outcomes.append(within(gap / (claim(L, 1e9, t)[1] * best @ best), 3 / 64, 1.0))
    t = 8  # of the functions that are linear beyond some distance the worst one comes to 0.71 of the bound
    corners = np.geomspace(2, 5, 40) / (t + 1) ** 2
    end = tools.nesterov(
        lambda x: L * np.clip(x, -corners, corners), np.ones(40), 1 / L, tools.convex_momentum, t
    )[-1]
    gap = max(tools.huber(x, L, corner)[0] for x, corner in zip(end, corners))
    return all_of(*outcomes, within(gap / claim(L, 1e9, t)[1], 0.69, 0.73))
