"""Distributions, the inequalities of their tails, and exchangeable sequences."""

from itertools import product

import numpy as np
from scipy import special, stats

from corollary.formulas._probability_tools import (
    EXACT,
    best_mixture,
    exact_tails,
    gaussian_bump,
    iid_law,
)
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula
from corollary.formulas.tools import gradient, quadrature, simplex, spd


@formula(
    "dist-gaussian",
    latex=r"\mathcal{N}(x; \mu, \Sigma) = \frac{1}{\sqrt{(2\pi)^d \det\Sigma}}"
    r" \exp\!\Big(-\tfrac12 (x - \mu)^\top \Sigma^{-1} (x - \mu)\Big)",
    where="000, 001 §1; 002 Distributions; 003 Background",
    right=lambda x, mu, S: gaussian_bump(x, mu, S) / np.sqrt(np.linalg.det(2 * np.pi * S)),
    wrong=lambda x, mu, S: gaussian_bump(x, mu, S) / np.sqrt(2 * np.pi * np.linalg.det(S)),
    errata=(
        Erratum(
            "T10",
            r"normaliser $\frac{1}{(2\pi)^d \det\Sigma}$",
            r"its square root, $\frac{1}{\sqrt{(2\pi)^d \det\Sigma}}$",
            lambda x, mu, S: gaussian_bump(x, mu, S) / np.linalg.det(2 * np.pi * S),
            where="000 §1",
            kind="typing",
        ),
    ),
    systems=("gaussian-mixture",),
)
def gaussian(rng, claim):
    """The multivariate normal density; in one dimension it integrates to one."""
    mu, S, x = rng.normal(size=3), spd(rng, 3), rng.normal(size=(10, 3))
    one = quadrature(lambda t: claim(t[:, None], mu[:1], S[:1, :1]), mu[0] - 15, mu[0] + 15)
    return all_of(
        equal(claim(x, mu, S), stats.multivariate_normal(mu, S).pdf(x), tol=1e-10, relative=True),
        equal(one, 1, tol=1e-10),
    )


@formula(
    "dist-gaussian-mle",
    latex=r"\hat\mu = \frac1n \sum_i x_i, \qquad"
    r" \hat\Sigma = \frac1n \sum_i (x_i - \hat\mu)(x_i - \hat\mu)^\top",
    where="000, 001 §1",
    right=lambda X: (X.mean(axis=0), (X - X.mean(0)).T @ (X - X.mean(0)) / len(X)),
    wrong=lambda X: (X.mean(axis=0), (X - X.mean(0)).T @ (X - X.mean(0)) / (len(X) - 1)),
    systems=("gaussian-mixture",),
)
def gaussian_mle(rng, claim):
    """The likelihood is stationary at the sample mean and the covariance with divisor n."""
    X = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 2)) + rng.normal(size=2)
    mu, Sigma = claim(X)
    scale = np.linalg.cholesky(Sigma)  # unit-free: perturb in the metric of Sigma itself

    def log_likelihood(u):
        S = scale @ (np.eye(2) + u[1:] + u[1:].T) @ scale.T
        return stats.multivariate_normal(mu + scale @ u[0], S).logpdf(X).sum()

    return equal(gradient(log_likelihood, np.zeros((3, 2))), 0, tol=1e-5)


def _condition(mu, S, k, z, sign=-1):
    gain = S[k:, :k] @ np.linalg.inv(S[:k, :k])
    return mu[k:] + gain @ (z - mu[:k]), S[k:, k:] + sign * gain @ S[:k, k:]


@formula(
    "dist-gaussian-conditional",
    latex=r"a_2 \mid a_1 = z \sim \mathcal{N}\big(u_2 + \Sigma_{21}\Sigma_{11}^{-1}(z - u_1),\;"
    r" \Sigma_{22} - \Sigma_{21}\Sigma_{11}^{-1}\Sigma_{12}\big), \qquad \Sigma_{11}, \Sigma_{22} \succeq 0",
    where="000, 001 §1",
    right=lambda mu, S, k, z: (*_condition(mu, S, k, z), ("11", "22")),
    wrong=lambda mu, S, k, z: (*_condition(mu, S, k, z, sign=1), ("11", "22")),
    errata=(
        Erratum(
            "E4",
            r"the blocks $\Sigma_{12}, \Sigma_{21}$ are positive semi-definite too",
            r"only $\Sigma_{11}$, $\Sigma_{22}$, $\Sigma$; $\Sigma_{12}$ need not even be square",
            lambda mu, S, k, z: (*_condition(mu, S, k, z), ("11", "12", "21", "22")),
            where="000, 001 §1",
            kind="claim",
            counterexample=r"a block of size $2 \times 3$ is not even square, and $\Sigma_{12} = -\frac12 I$ "
            r"beside $\Sigma_{11} = \Sigma_{22} = I$ is negative",
        ),
    ),
    systems=("ppca", "factor-analysis", "nngp"),
)
def gaussian_conditional(rng, claim):
    """Conditioning a Gaussian shifts its mean linearly and shrinks its covariance by a Schur complement."""
    mu, S, a = rng.normal(size=5), spd(rng, 5, 0.2, 3), rng.normal(size=(6, 5))
    blocks = {"11": S[:2, :2], "12": S[:2, 2:], "21": S[2:, :2], "22": S[2:, 2:]}
    joint, marginal = stats.multivariate_normal(mu, S), stats.multivariate_normal(mu[:2], S[:2, :2])
    outcomes = []
    for row in a:
        mean, cov, semidefinite = claim(mu, S, 2, row[:2])
        log_ratio = joint.logpdf(row) - marginal.logpdf(row[:2])
        outcomes.append(equal(stats.multivariate_normal(mean, cov).logpdf(row[2:]), log_ratio, tol=1e-9))
    for name in semidefinite:
        B = blocks[name]
        square = B.shape[0] == B.shape[1] and np.allclose(B, B.T)
        outcomes.append(equal(square and np.linalg.eigvalsh(B).min() >= -1e-12, 1, tol=0.1))
    return all_of(*outcomes)


def _families(x, k, rate, p, n, scale=None):
    scale = rate if scale is None else scale
    return (
        scale * np.exp(-rate * x),
        p ** (k % 2) * (1 - p) ** (1 - k % 2),
        special.comb(n, k) * p**k * (1 - p) ** (n - k),
        rate**k * np.exp(-rate) / special.factorial(k),
    )


@formula(
    "dist-basic-families",
    latex=r"\lambda e^{-\lambda x}\ (x \ge 0), \quad p^x (1 - p)^{1 - x},"
    r" \quad \binom{n}{x} p^x (1 - p)^{n - x}, \quad \frac{\lambda^x e^{-\lambda}}{x!}",
    where="002 Distributions; 003 Background",
    right=_families,
    wrong=lambda x, k, rate, p, n: _families(x, k, rate, p, n, scale=1.0),
    systems=("em-mixture",),
)
def basic_families(rng, claim):
    """Exponential, Bernoulli, binomial and Poisson laws, each of total mass one."""
    n, x, k = 9, rng.exponential(size=8), np.arange(10)
    rate, p = rng.uniform(1.5, 3), rng.uniform(0.1, 0.9)
    known = (
        stats.expon(scale=1 / rate).pdf(x),
        stats.bernoulli(p).pmf(k % 2),
        stats.binom(n, p).pmf(k),
        stats.poisson(rate).pmf(k),
    )
    total = quadrature(lambda t: claim(t, k, rate, p, n)[0], 0, 40 / rate)
    pairs = zip(claim(x, k, rate, p, n), known)
    return all_of(equal(total, 1, tol=1e-8), *(equal(ours, theirs, tol=EXACT) for ours, theirs in pairs))


@formula(
    "dist-exponential-family",
    latex=r"p(y; v) = h(y) \exp\big(y \cdot v - \psi(v)\big), \qquad \nabla\psi(v) = \mathbb{E}[y]",
    where="002 Optimization/Losses",
    right=gradient,
    wrong=lambda psi, v: gradient(lambda w: np.exp(psi(w)), v),
    systems=("learning-from-loss",),
)
def exponential_family(rng, claim):
    """In an exponential family the gradient of the log-partition function is the mean statistic."""
    y, h, v = rng.normal(size=(8, 2)) + 1.5, rng.uniform(1, 3, size=8), rng.normal(size=2)
    p = h * np.exp(y @ v) / np.sum(h * np.exp(y @ v))
    logit, x = rng.normal(), np.array([0.0, 1.0])
    coin = np.exp(logit * x - np.logaddexp(0, logit))
    return all_of(
        equal(claim(lambda w: special.logsumexp(y @ w, b=h), v), p @ y, tol=1e-7),
        equal(claim(lambda w: np.logaddexp(0, w).sum(), np.array([logit])), coin @ x, tol=1e-7),
        equal(coin.sum(), 1, tol=EXACT),
    )


@formula(
    "ineq-chebyshev",
    latex=r"P(|X - \mu| \ge \epsilon) \le \frac{\sigma^2}{\epsilon^2}",
    where="000, 001 §1",
    right=lambda variance, eps: variance / eps**2,
    wrong=lambda variance, eps: variance / (2 * eps**2),
)
def chebyshev(rng, claim):
    """A variable is rarely many standard deviations from its mean; three-point laws reach the bound."""
    p, x = simplex(rng, 200, 6), rng.normal(size=(200, 6))
    mean = (p * x).sum(1, keepdims=True)
    tail, eps = exact_tails(p, np.abs(x - mean))
    variance = (p * (x - mean) ** 2).sum(1, keepdims=True)
    eps_tight = rng.uniform(1, 3)
    mass = rng.uniform(0.1, 0.9)  # half of it at -eps, half at +eps, the rest at 0
    return all_of(
        at_most(tail, claim(variance, eps)),
        equal(claim(mass * eps_tight**2, eps_tight), mass, tol=EXACT),
    )


def _markov(x, p, a):
    return (p @ x) / a if x.min() >= 0 and a > 0 else np.inf


@formula(
    "ineq-markov",
    latex=r"X \ge 0,\ a > 0: \qquad P(X \ge a) \le \frac{\mathbb{E}[X]}{a}",
    where="002, 003 Background",
    right=_markov,
    wrong=lambda x, p, a: _markov(x, p, a) / 2,
    errata=(
        Erratum(
            "E6",
            r"$P(X \ge a) \le \mathbb E[X] / a$ for any $X$",
            r"needs $X \ge 0$ and $a > 0$",
            lambda x, p, a: (p @ x) / a,
            where="002 Background",
            kind="claim",
            counterexample=r"$X = \pm 1$ with equal chance and $a = 1$: $\frac12 \le 0$",
        ),
    ),
)
def markov(rng, claim):
    """A non-negative variable exceeds a at most with its mean over a; two-point laws reach the bound."""
    outcomes = []
    for _ in range(20):
        p, x = simplex(rng, 5), rng.exponential(size=5)
        outcomes += [at_most(p @ (x >= a), claim(x, p, a)) for a in x]
    half, a, q = np.array([0.5, 0.5]), rng.uniform(1, 2), rng.uniform(0.2, 0.8)
    return all_of(
        *outcomes,
        at_most(0.5, claim(np.array([-1.0, 1.0]), half, 1.0)),  # a symmetric sign
        equal(claim(np.array([0.0, a]), np.array([1 - q, q]), a), q, tol=EXACT),
    )


@formula(
    "ineq-hoeffding",
    latex=r"Z_i \in [a_i, b_i] \text{ independent}: \quad"
    r" P\Big(\tfrac1n \sum_i (Z_i - \mathbb{E}Z_i) \ge t\Big)"
    r" \le \exp\!\Big(-\frac{2 n^2 t^2}{\sum_i (b_i - a_i)^2}\Big)",
    where="002, 003 Background",
    right=lambda t, widths: np.exp(-2 * len(widths) ** 2 * t**2 / np.sum(widths**2)),
    wrong=lambda t, widths: np.exp(-4 * len(widths) ** 2 * t**2 / np.sum(widths**2)),
    errata=(
        Erratum(
            "E5",
            r"exponent $-2nt^2 / \sum_i (b_i - a_i)^2$",
            r"exponent $-2n^2t^2 / \sum_i (b_i - a_i)^2$",
            lambda t, widths: np.exp(-2 * len(widths) * t**2 / np.sum(widths**2)),
            where="002 Background",
            kind="formula",
            loose=True,
        ),
    ),
    systems=("generalisation",),
)
def hoeffding(rng, claim):
    """A mean of bounded independent variables leaves its expectation with exponentially small chance."""
    bits = np.array(list(product([0, 1], repeat=8)))
    p, widths = rng.uniform(0.2, 0.8, size=8), rng.uniform(0.5, 2, size=8)
    chance = np.prod(np.where(bits, p, 1 - p), axis=1)
    gap = ((bits - p) * widths).mean(axis=1)
    levels = gap[gap > 0]
    tails = (gap[:, None] >= levels).T @ chance
    # Fair coins of two values, half of them each: the exact exponent of a far but not extreme tail of
    # their sum is that of the bound, up to the log of a polynomial.
    n, share = 100_000, 0.05
    ranges = np.repeat(rng.uniform([0.3, 1.5], [0.6, 2.5]), n // 2)
    t, coin, heads = share * ranges.mean(), stats.binom(n // 2, 0.5), np.arange(n // 2 + 1)
    needed = np.ceil((n * t + ranges.sum() / 2 - ranges[0] * heads) / ranges[-1])
    exact = special.logsumexp(coin.logpmf(heads) + coin.logsf(needed - 1))
    return all_of(
        at_most(tails, [claim(level, widths) for level in levels]),
        equal(np.log(claim(t, ranges)) / exact, 1, tol=0.03),
    )


@formula(
    "ineq-union-bound",
    latex=r"P\Big(\bigcup_i A_i\Big) \le \sum_i P(A_i)",
    where="002 Background",
    right=np.sum,
    wrong=lambda chances: 1 - np.prod(1 - chances),
)
def union_bound(rng, claim):
    """Some event of many happens at most with the sum of their chances, exactly so if they are disjoint."""
    outcomes = []
    for _ in range(30):
        p, events = simplex(rng, 12), rng.random((4, 12)) < 0.3
        outcomes.append(at_most(p @ events.any(axis=0), claim(events @ p), tol=EXACT))
    disjoint = simplex(rng, 12).reshape(4, 3).sum(axis=1)
    return all_of(*outcomes, equal(claim(disjoint), 1.0, tol=EXACT))


@formula(
    "thm-de-finetti",
    latex=r"P(x_1, \dots, x_N) = \int \prod_{i=1}^N p(x_i \mid z)\, p(z)\, dz"
    r" \quad \text{if the sequence is exchangeable without end}",
    where="000 §16.3; 004 §3.2 (exchangeability)",
    right=lambda law, endless: best_mixture(law) if endless else np.full_like(law, np.nan),
    wrong=lambda law, endless: iid_law(law) if endless else np.full_like(law, np.nan),
    errata=(
        Erratum(
            "E8",
            r"every finite exchangeable sample is a mixture of i.i.d. samples",
            r"the sample must extend to an infinite exchangeable sequence",
            lambda law, endless: best_mixture(law),
            where="000 §16.3",
            kind="claim",
            counterexample=r"$P(01) = P(10) = \frac12$ has covariance $-\frac14$; no mixture has a negative one",
        ),
    ),
    systems=("plsa", "lda"),
)
def de_finetti(rng, claim):
    """An endless exchangeable sequence is a mixture of i.i.d. ones; a finite one need not be."""
    a, b, n = rng.uniform(0.7, 2), rng.uniform(0.7, 2), 5
    urn = np.zeros(n + 1)
    for x in product([0, 1], repeat=n):  # Polya's urn, ball by ball
        chance, ones = 1.0, 0
        for i, ball in enumerate(x):
            chance *= ((a + ones) if ball else (b + i - ones)) / (a + b + i)
            ones += ball
        urn[ones] += chance
    pair = np.array([0.0, 1.0, 0.0])  # two balls, one of each colour, drawn without replacement
    said = claim(pair, False)
    return all_of(
        equal(claim(urn, True), urn, tol=1e-8),
        equal(np.where(np.isnan(said), pair, said), pair, tol=1e-8),
    )
