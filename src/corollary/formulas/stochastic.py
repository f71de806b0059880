"""Stochastic gradients and adaptive steps: unbiased noise, its floor, averaging, and methods that scale coordinates."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy import signal

from corollary.formulas import _optimisation_tools as tools
from corollary.formulas._library_tools import tensor
from corollary.formulas.record import (
    Erratum,
    all_of,
    at_most,
    equal,
    formula,
    within,
)
from corollary.formulas.tools import gradient


@formula(
    "opt-sgd",
    latex=r"f = \frac1n\sum_i f_i:\quad \mathbb E\,\nabla f_I = \nabla f,\quad "
    r"V = \frac1n\sum_i\lVert\nabla f_i - \nabla f\rVert^2,\quad \text{batch of } r: V/r",
    where="002, 003 SGD; 004 §4.2",
    right=lambda each, r: (each.mean(0), ((each - each.mean(0)) ** 2).sum(1).mean() / r),
    wrong=lambda each, r: (each.mean(0), ((each - each.mean(0)) ** 2).sum(1).mean() / r**2),
    errata=(
        Erratum(
            "E63",
            printed=r"$f = \sum_i f_i$ and $\mathbb E\,\nabla f_I = \nabla f$",
            correction=r"$f = \frac1n\sum_i f_i$",
            form=lambda each, r: (each.sum(0), ((each - each.mean(0)) ** 2).sum(1).mean() / r),
            where="002 SGD",
            kind="formula",
        ),
    ),
    systems=("sgd", "minibatch"),
)
def sgd(rng, claim):
    """A random summand's gradient is unbiased for the mean; a batch of r divides its variance by r."""
    each, r = rng.normal(size=(5, 3)), 3
    batches = np.array([each[list(batch)].mean(0) for batch in product(range(5), repeat=r)])
    centre, variance = claim(each, r)
    return all_of(
        equal(centre, batches.mean(0), tol=1e-12),
        equal(variance, batches.var(axis=0).sum(), tol=1e-12),
    )


@formula(
    "sgd-one-step",
    latex=r"\lVert\theta_t - \theta_*\rVert^2 - \mathbb E\lVert\theta_{t+1} - \theta_*\rVert^2"
    r" = 2\eta(\theta_t - \theta_*)^\top\nabla f - \eta^2\,\mathbb E\lVert\nabla f_i\rVert^2",
    where="003 SGD",
    right=lambda offset, each, eta: 2 * eta * offset @ each.mean(0) - eta**2 * (each**2).sum(1).mean(),
    wrong=lambda offset, each, eta: 2 * eta * offset @ each.mean(0) - eta**2 * (each.mean(0) ** 2).sum(),
    systems=("sgd",),
)
def sgd_one_step(rng, claim):
    """One random step gains the full gradient's progress and loses the mean squared gradient."""
    each, theta, best, eta = rng.normal(size=(6, 3)), rng.normal(size=3), rng.normal(size=3), 0.3
    after = ((theta - eta * each - best) ** 2).sum(1).mean()
    return equal(claim(theta - best, each, eta), ((theta - best) ** 2).sum() - after, tol=1e-12)


@formula(
    "opt-robbins-monro",
    latex=r"\sum_t\alpha_t = \infty, \quad \sum_t\alpha_t^2 < \infty: \qquad "
    r"\alpha_t = t^{-p} \text{ qualifies iff } \tfrac12 < p \le 1",
    where="001 §11.3; 002 SGD",
    right=lambda p: (p <= 1, 2 * p > 1),
    wrong=lambda p: (p < 1, 2 * p > 1),
    errata=(
        Erratum(
            "E57",
            printed=r"$1/\sqrt t$ satisfies both conditions",
            correction=r"only the first; $1/t$ satisfies both",
            form=lambda p: (p <= 1, 2 * p >= 1),
            where="001 §11.3",
            kind="claim",
            counterexample=r"$\sum_t (1/\sqrt t)^2 = \sum_t 1/t = \infty$",
        ),
    ),
    systems=("schedules", "sgd"),
    functions=("corollary.optim.schedule", "corollary.optim.schedule.robbins_monro"),
)
def robbins_monro(rng, claim):
    """Steps must add up to infinity while their squares do not.

    The claim says, for the steps t^-p, whether each of the two conditions holds.
    """
    from corollary.optim import schedule
    from corollary.optim.schedule import robbins_monro as qualifies

    powers = [1.0, 0.5, 1 / 3, rng.uniform(0.6, 0.9), rng.uniform(1.1, 1.5)]
    t = np.arange(1.0, 2**15 + 1)

    def diverges(terms):  # a series of powers does iff its dyadic blocks do not shrink
        blocks = np.add.reduceat(terms, [0, 2**13, 2**14])
        return blocks[2] / blocks[1] > 0.999

    truth = [[diverges(t**-p), not diverges(t ** (-2 * p))] for p in powers]
    named = {"1/t": 1.0, "1/sqrt": 0.5, "constant": 0.0}  # the library's schedules that are powers of t
    steps = [[schedule(name, s, 10) for s in range(10)] for name in named]
    return all_of(
        equal([claim(p) for p in powers], truth, tol=0.1),
        equal(steps, [t[:10] ** -p for p in named.values()], tol=1e-12),
        equal([all(claim(p)) for p in named.values()], [qualifies(name) for name in named], tol=0.1),
    )


@formula(
    "sgd-constant-step",
    latex=r"\mathbb E\lVert x_k - x^*\rVert^2 \le A^k\lVert x_0 - x^*\rVert^2 + B,\quad "
    r"A = 1 - 2\eta\mu(1 - \eta L),\quad B = \frac{\eta\sigma^2}{\mu(1 - \eta L)},\quad \eta < \tfrac1L",
    where="002, 003 SGD",
    right=lambda mu, L, eta: (1 - 2 * eta * mu * (1 - eta * L), eta / (mu * (1 - eta * L)), 1 / L),
    wrong=lambda mu, L, eta: (1 - 2 * eta * mu * (1 - eta * L), eta / (mu * (1 - eta * L)), 1 / mu),
    errata=(
        Erratum(
            "E64",
            printed=r"$B = \frac{\eta\sigma^2}{\mu - \eta L}$ for $\eta \le 1/\mu$",
            correction=r"$B = \frac{\eta\sigma^2}{\mu(1 - \eta L)}$ for $\eta < 1/L$, $\sigma^2$ at $x^*$",
            form=lambda mu, L, eta: (1 - 2 * eta * mu * (1 - eta * L), eta / (mu - eta * L), 1 / mu),
            where="002, 003 SGD",
            kind="formula",
        ),
    ),
    systems=("sgd", "rates"),
)
def sgd_constant_step(rng, claim):
    """With a fixed step SGD converges geometrically to a noise floor, if the step is below 1/L.

    The claim is the factor A, the floor B for unit noise at the optimum, and the largest step.
    """
    outcomes = []
    for share in (0.1, 0.5, 0.9):
        a, b = rng.uniform(0.5, 2, size=6), rng.normal(size=6)
        best, mu, L = (a * b).sum() / a.sum(), a.mean(), a.max()
        at_best = a * (best - b)  # gradients of a_i (x - b_i)^2 / 2 at the optimum
        eta, mean, second = share / L, 2.0, 4.0
        A, B, _ = claim(mu, L, eta)
        moments, bounds = [second], [A**0 * 4.0 + B * (at_best**2).mean()]
        for k in range(1, 40):  # exact first and second moments of the error
            second = (
                ((1 - eta * a) ** 2).mean() * second
                - 2 * eta * ((1 - eta * a) * at_best).mean() * mean
                + eta**2 * (at_best**2).mean()
            )
            mean = (1 - eta * a).mean() * mean
            moments.append(second)
            bounds.append(A**k * 4.0 + B * (at_best**2).mean())
        outcomes.append(at_most(moments, bounds))
    # equal curvatures .01: stationary variance eta / (mu (2 - eta mu)), half the floor for small steps
    mu, eta = 0.01, 2.0
    stationary = eta**2 / (1 - (1 - eta * mu) ** 2)
    limit = claim(1.0, 5.0, 0.1)[2]
    return all_of(
        *outcomes,
        within(stationary / claim(mu, mu, eta)[1], 0.45, 0.55),
        at_most(claim(1.0, 5.0, 0.99 * limit)[0], 1.0),
    )


@formula(
    "opt-polyak-averaging",
    latex=r"\bar\theta_{t+1} = \frac{t}{t+1}\bar\theta_t + \frac{1}{t+1}\theta_{t+1},"
    r"\qquad \text{or}\quad \bar\theta \leftarrow (1 - \beta)\bar\theta + \beta\theta",
    where="001 §11.3; 002, 003 SGD",
    right=lambda mean, average, new, t, beta: (
        t / (t + 1) * mean + new / (t + 1),
        (1 - beta) * average + beta * new,
    ),
    wrong=lambda mean, average, new, t, beta: (
        (t - 1) / t * mean + new / t,
        beta * average + (1 - beta) * new,
    ),
    systems=("polyak-average",),
)
def polyak_averaging(rng, claim):
    """The running update keeps the plain mean of the iterates, or an exponentially weighted one."""
    path, beta = rng.normal(size=(20, 3)), 0.2
    mean = average = path[0]
    for t in range(1, 20):
        mean, average = claim(mean, average, path[t], t, beta)
    start = (1 - beta) * path[:1]
    weighted = signal.lfilter([beta], [1, beta - 1], path[1:], axis=0, zi=start)[0][-1]
    return all_of(equal(mean, path.mean(0), tol=1e-12), equal(average, weighted, tol=1e-12))


_AVERAGED = {"convex": (0.5, 0.5), "strongly convex": (1.0, 1.0), "strongly convex, smooth": (1.0, 1.0)}


@formula(
    "averaged-sgd-rates",
    latex=r"\text{convex, } \eta_t \propto t^{-1/2}: O(t^{-1/2}); \quad "
    r"\mu\text{-strongly convex, } \eta_t = \tfrac{1}{\mu t}: O\big(\tfrac{\log t}{t}\big);"
    r"\quad \text{and smooth}: O\big(\tfrac1t\big)",
    where="001 §11.3; 003 SGD",
    right=lambda kind: _AVERAGED[kind],
    errata=(
        Erratum(
            "E61",
            printed=r"averaged SGD reaches $O(1/t)$ on convex problems",
            correction=r"$O(1/\sqrt t)$; $O(1/t)$ needs strong convexity and smoothness",
            form=lambda kind: (_AVERAGED | {"convex": (0.5, 1.0)})[kind],
            where="001 §11.3",
            kind="claim",
            counterexample=r"$f = \pm x/\sqrt T$ on $[-1, 1]$ with unit noise: no method tells the two signs "
            r"apart in $T$ steps, and the gap is of order $1/\sqrt T$",
        ),
        Erratum(
            "E62",
            printed=r"$O(1/\sqrt t)$ for convex $f$ with $\eta_t \propto 1/t$",
            correction=r"with $\eta_t \propto 1/\sqrt t$",
            form=lambda kind: (_AVERAGED | {"convex": (1.0, 0.5)})[kind],
            where="003 SGD",
            kind="claim",
            counterexample=r"$f = x^4$: the gap times $\sqrt t$ grows from 0.4 to 6 between $t = 10^2$ and $10^6$",
        ),
    ),
    systems=("polyak-average", "sgd", "rates"),
)
def averaged_sgd_rates(rng, claim):
    """How fast the averaged iterates of SGD close the gap, for convex and strongly convex functions.

    The claim is, for each kind, the power of t in the step and in the rate.
    """
    times, noise = (64, 256, 1024), rng.choice([-1.0, 1.0], size=(1024, 600))

    def slope(gaps, at=times):
        return np.polyfit(np.log(at), np.log(gaps), 1)[0]

    power, rate = claim("convex")
    # the convex worst case tilts with the horizon: x / sqrt(T) on [-1, 1]
    tilted = [
        tools.averaged_sgd(lambda x, T=T: T**-0.5, noise, power, (T,), clip=1.0)[0].mean() + 1 for T in times
    ]
    worst = slope(np.array(tilted) / np.sqrt(times))
    # x^4 is so flat that steps 1/t stall
    x, mean, flat = 1.0, 1.0, []
    for t in range(1, 30_001):
        x -= 0.4 * t**-power * x**3
        mean += (x - mean) / (t + 1)
        if t in (1000, 30_000):
            flat.append(mean**4)
    outcomes = [
        equal(worst, -rate, tol=0.08),  # 600 runs leave 0.01 in the slope, slow terms 0.03
        at_most(slope(flat, (1000, 30_000)), -rate, tol=0.04),
    ]
    power, rate = claim("strongly convex, smooth")
    ends = tools.averaged_sgd(lambda x: x, noise, power, times)
    outcomes.append(equal(slope((ends**2).mean(1) / 2), -rate, tol=0.15))  # 6 % noise in each variance
    power, rate = claim("strongly convex")
    ends = tools.averaged_sgd(lambda x: x + np.sign(x), noise, power, times)
    gaps = (np.abs(ends) + ends**2 / 2).mean(1)
    outcomes.append(at_most(slope(gaps * times / np.log(times)), 1 - rate, tol=0.1))
    return all_of(*outcomes)


def reduced(here, anchor, i):
    """The library's gradient of summand i with its variance reduced by an anchor."""
    from corollary.optim.directions import variance_reduced

    return variance_reduced(tensor(here[i]), tensor(anchor[i]), tensor(anchor.mean(0))).numpy()


@formula(
    "opt-svrg",
    latex=r"\theta_{t+1} = \theta_t"
    r" - \eta\,[\nabla f_i(\theta_t) - \nabla f_i(\vartheta) + \nabla f(\vartheta)]",
    where="002, 003 SGD",
    right=reduced,
    wrong=lambda here, anchor, i: here[i] + anchor[i] - anchor.mean(0),
    systems=("svrg",),
    functions=("corollary.optim.directions.variance_reduced",),
)
def svrg(rng, claim):
    """Subtracting the noise seen at an anchor keeps the gradient unbiased and removes its variance there."""
    X, y = rng.normal(size=(8, 3)), rng.normal(size=8)

    def each(theta):
        return (X @ theta - y)[:, None] * X

    def full(theta):
        return gradient(lambda t: ((X @ t - y) ** 2).mean() / 2, theta)

    theta, anchor = rng.normal(size=(2, 3))  # the full gradient is zero at neither
    estimates = np.array([claim(each(theta), each(anchor), i) for i in range(8)])
    at_anchor = np.array([claim(each(anchor), each(anchor), i) for i in range(8)])
    return all_of(
        equal(estimates.mean(0), full(theta), tol=1e-8),
        equal(at_anchor, np.tile(full(anchor), (8, 1)), tol=1e-8),
    )


@formula(
    "opt-signsgd",
    latex=r"\theta_{k+1} = \theta_k - \eta_k\,\mathrm{sign}(\nabla f_i(\theta_k))",
    where="002, 003 SGD",
    right=lambda g, eta: -eta * np.sign(g),
    wrong=lambda g, eta: -eta * g / np.linalg.norm(g),
    systems=("signsgd",),
    functions=("corollary.optim.SignSGD",),
)
def signsgd(rng, claim):
    """The sign step is steepest descent when a step is measured by its largest coordinate."""
    g, eta = rng.normal(size=6), rng.uniform(0.1, 1)
    corners = eta * np.array(list(product([-1.0, 1.0], repeat=6)))
    moved = tools.library_path("signsgd", lambda _: g, np.zeros(6), 1, lr=eta)[0]
    return all_of(
        equal(claim(g, eta), corners[np.argmin(corners @ g)], tol=1e-12),
        equal(claim(g, eta), moved, tol=1e-12),
    )


def _scaled(rng):
    """A gradient with unequal curvatures, its minimiser, and a start."""
    A, best = np.diag([0.2, 1.0, 5.0]), rng.normal(size=3)
    return lambda x: A @ (x - best), best, best + rng.choice([-1, 1], size=3) * rng.uniform(1, 2, size=3)


@formula(
    "opt-adagrad",
    latex=r"\gamma_i \leftarrow \gamma_i + g_i^2, \qquad "
    r"\theta_i \leftarrow \theta_i - \frac{\eta}{\sqrt{\gamma_i} + \delta}\,g_i",
    where="000 §13.8; 002, 003 Adaptivity; 004 §4.2",
    right=tools.adagrad,
    errata=(
        Erratum(
            "E65",
            printed=r"division by $\delta + \gamma_i^2 = \delta + \sum g_i^2$",
            correction=r"by $\delta + \sqrt{\sum g_i^2}$",
            form=tools.adagrad_without_root,
            where="000 §13.8",
            kind="formula",
        ),
        Erratum(
            "T11",
            printed=r"gradient taken at $x^*$",
            correction=r"at $x^k$",
            form=lambda g, x, best, *rest: tools.adagrad(lambda _: g(best), x, best, *rest),
            where="002 Adaptivity",
            kind="typing",
        ),
    ),
    systems=("adagrad",),
    functions=("corollary.optim.create",),
)
def adagrad(rng, claim):
    """AdaGrad divides each coordinate by the root of its summed squares; the loss's scale drops out."""
    grad, best, start = _scaled(rng)
    path = claim(grad, start, best, 0.3, 1e-10, 20)
    rescaled = claim(lambda x: 100 * grad(x), start, best, 0.3, 1e-10, 20)
    damped = claim(grad, start, best, 0.3, 0.2, 20)  # large enough to show where it is added
    references = [tools.library_path("adagrad", grad, start, 20, lr=0.3, eps=eps) for eps in (1e-10, 0.2)]
    return all_of(equal([path, damped], references, tol=1e-9), equal(rescaled, path, tol=1e-8))


@formula(
    "opt-rmsprop",
    latex=r"v \leftarrow \beta v + (1 - \beta)g^2,"
    r"\qquad \theta \leftarrow \theta - \frac{\alpha}{\sqrt v + \epsilon}\,g",
    where="001 §11.3",
    right=tools.rmsprop,
    wrong=lambda grad, x, alpha, beta, *rest: tools.rmsprop(grad, x, alpha, 1 - beta, *rest),
    systems=("rmsprop",),
    functions=("corollary.optim.create",),
)
def rmsprop(rng, claim):
    """RMSprop divides by the root of a decaying mean of squared gradients."""
    grad, _, start = _scaled(rng)
    reference = tools.library_path("rmsprop", grad, start, 20, lr=0.1, alpha=0.9, eps=1e-8)
    return equal(claim(grad, start, 0.1, 0.9, 1e-8, 20), reference, tol=1e-9)


@formula(
    "opt-adam",
    latex=r"m \leftarrow \beta_1 m + (1 - \beta_1)g,\quad v \leftarrow \beta_2 v + (1 - \beta_2)g^2,\quad "
    r"\theta \leftarrow \theta - \alpha\,\frac{m/(1 - \beta_1^t)}{\sqrt{v/(1 - \beta_2^t)} + \epsilon}",
    where="001 §11.3; 002, 003 Adaptivity; 004 §4.2",
    right=tools.adam,
    wrong=lambda *args: tools.adam(*args, corrected=False),
    errata=(
        Erratum(
            "E66",
            printed=r"$\theta + \frac{\eta}{\gamma/(1-\beta) + \delta}\,\frac{\Delta}{1-\alpha}$",
            correction=r"$\theta - \frac{\eta}{\gamma/\sqrt{1-\beta^t} + \delta}\,\frac{\Delta}{1-\alpha^t}$",
            form=tools.adam_printed,
            where="003 Adam",
            kind="formula",
        ),
    ),
    systems=("adam",),
    functions=("corollary.optim.create",),
)
def adam(rng, claim):
    """Adam divides a mean gradient by a mean size, both corrected for their start; step one is alpha."""
    grad, _, start = _scaled(rng)
    outcomes = []
    for epsilon in (1e-10, 0.2):  # the second is large enough to show where it is added
        path = claim(grad, start, 0.1, (0.9, 0.99), epsilon, 20)
        reference = tools.library_path("adam", grad, start, 20, lr=0.1, betas=(0.9, 0.99), eps=epsilon)
        g = np.abs(grad(start))
        outcomes += [
            equal(path, reference, tol=1e-9),
            equal(np.abs(path[0] - start), 0.1 * g / (g + epsilon), tol=1e-8),
        ]
    return all_of(*outcomes)


@formula(
    "opt-amsgrad",
    latex=r"\tilde v_{t+1} = \max(v_{t+1}, \tilde v_t), \qquad \text{otherwise as Adam}",
    where="002, 003 Adaptivity",
    right=lambda *args: tools.adam(*args, largest=True),
    wrong=tools.adam,
    systems=("amsgrad",),
    functions=("corollary.optim.create",),
)
def amsgrad(rng, claim):
    """AMSGrad is Adam with a denominator that never shrinks."""
    grad, _, start = _scaled(rng)
    options = {"lr": 0.2, "betas": (0.9, 0.8), "eps": 1e-10}
    reference = tools.library_path("amsgrad", grad, start, 30, **options)
    return equal(claim(grad, start, 0.2, (0.9, 0.8), 1e-10, 30), reference, tol=1e-9)


def _muon(gradients, mu, eta):
    M = sum(mu ** (len(gradients) - 1 - t) * G for t, G in enumerate(gradients))
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    return -eta * np.sqrt(M.shape[0] / M.shape[1]) * U @ Vt


def _muon_inverse_scale(gradients, mu, eta):
    d_out, d_in = gradients[0].shape
    return _muon(gradients, mu, eta) * d_in / d_out


@formula(
    "opt-muon",
    latex=r"M_t = \mu M_{t-1} + \nabla_W = U\Sigma V^\top, \qquad "
    r"W \leftarrow W - \eta\sqrt{d_{\mathrm{out}}/d_{\mathrm{in}}}\;UV^\top",
    where="001 §11.3",
    right=_muon,
    wrong=_muon_inverse_scale,
    systems=("muon",),
    functions=("corollary.optim.create",),
)
def muon(rng, claim):
    """Muon steps along the orthogonal factor of the momentum, moving outputs by eta in root mean square."""
    outcomes, eta, mu = [], 0.1, 0.9
    for shape in ((6, 3), (3, 6)):
        gradients = rng.normal(size=(4, *shape))
        momentum = np.zeros(shape)
        for G in gradients:
            momentum = mu * momentum + G
        step = claim(gradients, mu, eta)
        # Newton and Schulz: X <- X (3 - X'X) / 2 drives every singular value to 1
        X = momentum / np.linalg.norm(momentum)
        for _ in range(60):
            X = 1.5 * X - 0.5 * X @ X.T @ X
        # the library's steps, with the same iteration, in the half precision that torch's Muon computes with
        waiting = iter(gradients)
        options = {"lr": eta, "momentum": mu, "nesterov": False, "weight_decay": 0.0}
        options |= {"ns_coefficients": (1.5, -0.5, 0.0), "ns_steps": 30}
        theirs = tools.library_path("muon", lambda _, w=waiting: next(w), np.zeros(shape), 4, **options)
        last = theirs[-1] - theirs[-2]
        x = np.linalg.svd(momentum)[2][0]  # an input that the step moves
        moved = np.sqrt(np.mean((step @ x) ** 2) / np.mean(x**2))
        outcomes += [
            equal(step / np.linalg.norm(step, 2), -X, tol=1e-8),
            equal(step / np.linalg.norm(step, 2), last / np.linalg.norm(last, 2), tol=0.05),
            equal(moved, eta, tol=1e-10),
        ]
    return all_of(*outcomes)
