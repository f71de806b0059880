"""Statistical learning theory: gaps, shattering, VC and PAC-Bayes bounds, and double descent."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import rel_entr, xlogy
from scipy.stats import binom, norm

from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula, within
from corollary.formulas.tools import gauss_hermite, simplex
from corollary.theory import bounds
from corollary.theory.bounds import vc_bound as library_vc_bound


@formula(
    "slt-generalisation-gap",
    latex=r"\mathrm{Gen}(f) = R[f] - R_{emp}[f]",
    where="001 §17.4",
    right=lambda risk, empirical: risk - empirical,
    wrong=lambda risk, empirical: empirical - risk,
    systems=("generalisation",),
)
def generalisation_gap(rng, claim):
    """Risk minus training error is zero on average for a fixed predictor, and positive for a fitted one.

    Shown exactly, over all labellings of a small sample with coin-flip labels.
    """
    n = int(rng.integers(5, 11))
    labels = np.array(list(product([0, 1], repeat=n)))  # all equally likely, so every risk is 1/2
    fixed = rng.integers(2, size=n)
    errors = np.mean(labels != fixed, axis=1)
    fitted = np.minimum(errors, 1 - errors)  # the better of the predictor and its negation
    k = np.arange(n + 1)
    expected = 0.5 - binom.pmf(k, n, 0.5) @ np.minimum(k, n - k) / n
    return all_of(
        equal(np.mean(claim(0.5, errors)), 0.0, tol=1e-12),
        equal(np.mean(claim(0.5, fitted)), expected, tol=1e-12),
    )


def half_plane_patterns(X):
    """All labellings of points in the plane by half-planes: sort along every direction that matters."""
    angles = [np.pi / 2 + np.arctan2(*(X[j] - X[i])[::-1]) for i, j in combinations(range(len(X)), 2)]
    angles = np.sort(np.concatenate([np.mod(angles, np.pi), [0.0, np.pi]]))
    patterns = set()
    for angle in (angles[1:] + angles[:-1]) / 2:
        height = X @ [np.cos(angle), np.sin(angle)]
        for cut in [*height, np.inf]:
            patterns |= {tuple(height < cut), tuple(height >= cut)}
    return patterns


def vc_dimension(counts):
    """The largest n with S(n) = 2^n, from S(1), S(2), ..."""
    return max([0] + [n for n, S in enumerate(counts, 1) if S == 2**n])


@formula(
    "slt-shatter-vc",
    latex=r"S_{\mathcal F}(n) = \max_{x_{1:n}} |\{(f(x_1), \dots, f(x_n)) : f \in \mathcal F\}| \le 2^n, "
    r"\qquad VC(\mathcal F) = \max\{n : S_{\mathcal F}(n) = 2^n\} \le \log_2|\mathcal F|",
    where="002, 003 Statistical learning theory",
    right=vc_dimension,
    wrong=lambda counts: next(n for n, S in enumerate(counts, 1) if S < 2**n),
    systems=("counting",),
)
def shatter_vc(rng, claim):
    """The VC dimension is the size of the largest sample a class can label in all ways.

    It is 1 for thresholds, 2 for intervals, 3 for half-planes, and at most the log of the class size.
    """

    def patterns_on(table, n):  # rows are functions, columns points
        samples = combinations(range(table.shape[1]), n)
        return max(len({tuple(row) for row in table[:, list(s)]}) for s in samples)

    thresholds, intervals, half_planes = [], [], []
    for n in range(1, 6):
        x = np.sort(rng.random(n))
        cuts = [-1.0, *x, 2.0]
        thresholds.append(len({tuple(x > a) for a in cuts}))
        intervals.append(len({tuple((x > a) & (x <= b)) for a in cuts for b in cuts}))
        half_planes.append(max(len(half_plane_patterns(rng.normal(size=(n, 2)))) for _ in range(3)))
    twelve = rng.integers(2, size=(12, 6))
    sixteen = np.array(list(product([0, 1], repeat=4)))  # all functions on four points
    return all_of(
        equal([claim(thresholds), claim(intervals), claim(half_planes)], [1, 2, 3], tol=0.1),
        equal(claim([*(patterns_on(sixteen, n) for n in range(1, 5)), 16]), np.log2(16), tol=0.1),
        at_most(claim([patterns_on(twelve, n) for n in range(1, 6)]), np.log2(12)),
    )


def threshold_deviations(rng, n, trials):
    """Sup over all thresholds t of R(t) - R_n(t), in each of many samples with 10% label noise."""
    x = np.sort(rng.random((trials, n)), axis=1)
    y = (x > 0.5) ^ (rng.random((trials, n)) < 0.1)
    ones_left = np.cumsum(np.pad(y, ((0, 0), (1, 0))), axis=1)
    zeros_right = n - np.arange(n + 1) - (ones_left[:, -1:] - ones_left)
    empirical = (ones_left + zeros_right) / n  # for a threshold between neighbours in the sample
    left, right = np.pad(x, ((0, 0), (1, 0))), np.pad(x, ((0, 0), (0, 1)), constant_values=1.0)
    risks = np.stack([0.1 + 0.8 * np.abs(t - 0.5) for t in (left, right)])
    return (risks - empirical).max((0, 2)), np.abs(risks - empirical).max((0, 2))


@formula(
    "slt-vc-bound",
    latex=r"R(f) \le R_n(f) + 2\sqrt{2\,\frac{\log S_{\mathcal F}(2n) + \log\frac{2}{\delta}}{n}} "
    r"\quad \forall f, \text{ with probability} \ge 1 - \delta",
    where="002 Statistical learning theory",
    right=lambda S, n, delta: 2 * np.sqrt(2 * (np.log(S) + np.log(2 / delta)) / n),
    wrong=lambda S, n, delta: np.sqrt(2 * (np.log(S) + np.log(2 / delta)) / n),
    systems=("generalisation",),
    functions=("corollary.theory.bounds.vc_bound",),
)
def vc_bound(rng, claim):
    """With high probability no function of the class is worse than its training error by more than this.

    The bound is where the tail left by a ghost sample, a union over labellings and Hoeffding falls to delta.
    """
    n, delta = 100, float(rng.uniform(0.01, 0.2))
    S = 2 * n + 1

    def hoeffding(t):  # P(mean of n independent +-1 differences >= t), by the best exponential moment
        return minimize_scalar(lambda s: n * (s * s / 2 - s * t), bounds=(0, 2), method="bounded").fun

    # P(sup R - R_n > eps) <= 2 P(sup R'_n - R_n > eps / 2) <= 2 S(2n) exp(hoeffding(eps / 2))
    tail = brentq(lambda eps: np.log(2 * S) + hoeffding(eps / 2) - np.log(delta), 1e-3, 3.0)
    sup, _ = threshold_deviations(rng, n, 500)
    # thresholds label 2n points in 2n + 1 ways
    return all_of(
        equal(claim(S, n, delta), tail, tol=1e-4),
        equal(claim(S, n, delta), library_vc_bound(n, 1, delta), tol=1e-9),
        at_most(np.mean(sup > claim(S, n, delta)), delta),
    )


@formula(
    "slt-vc-inequality",
    latex=r"P\Big[\sup_{f}|\hat R_s(f) - R(f)| > \epsilon\Big] \le 8\,S(\mathcal F, s)\,e^{-s\epsilon^2/32}",
    where="003 Statistical learning theory",
    right=lambda S, s, epsilon: 8 * S * np.exp(-s * epsilon**2 / 32),
    wrong=lambda S, s, epsilon: 8 * S * np.exp(-s * epsilon**2 / 8),
    systems=("generalisation",),
)
def vc_inequality(rng, claim):
    """Training errors are close to risks uniformly over the class, as soon as labellings grow polynomially.

    Four times, for ghost sample and random signs, the number of labellings times Hoeffding's two tails.
    """
    s, epsilon = 20000, float(rng.uniform(0.2, 0.4))
    S = s + 1

    # Random signs have exponential moment cosh(u)^s; Hoeffding replaces cosh(u) by exp(u^2 / 2).
    def log_tail(moment):
        return minimize_scalar(
            lambda u: s * (moment(u) - u * epsilon / 4),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-10},
        ).fun

    bound = 4 * S * 2 * np.exp(log_tail(lambda u: u * u / 2))
    sharper = 4 * S * 2 * np.exp(log_tail(lambda u: np.log(np.cosh(u))))
    _, sup = threshold_deviations(rng, 2000, 100)
    return all_of(
        equal(np.log(claim(S, s, epsilon)), np.log(bound), tol=1e-6),
        at_least(claim(S, s, epsilon), sharper),
        at_most(np.mean(sup > epsilon), claim(2001, 2000, epsilon)),
    )


@formula(
    "slt-change-of-measure",
    latex=r"\mathbb{E}_Q[\phi] \le KL(Q \Vert P) + \log \mathbb{E}_P[e^{\phi}], \qquad "
    r"\text{with equality at } dQ \propto e^{\phi} dP",
    where="002, 003 Statistical learning theory",
    right=lambda q, p, phi: rel_entr(q, p).sum(-1) + np.log((p * np.exp(phi)).sum(-1)),
    wrong=lambda q, p, phi: rel_entr(p, q).sum(-1) + np.log((p * np.exp(phi)).sum(-1)),
    systems=("generalisation",),
)
def change_of_measure(rng, claim):
    """Moving an expectation to another law costs a divergence and a log moment; the tilted law attains it."""
    q, p, phi = simplex(rng, 300, 6), simplex(rng, 300, 6), 2 * rng.normal(size=(300, 6))
    tilted = p * np.exp(phi)
    tilted /= tilted.sum(1, keepdims=True)
    return all_of(
        at_most((q * phi).sum(1), claim(q, p, phi), tol=1e-12),
        equal(claim(tilted, p, phi), (tilted * phi).sum(1), tol=1e-10),
    )


def pac_bayes_right(kl, s, epsilon):
    """Largest gap of posterior means allowed at failure probability epsilon."""
    return np.sqrt((kl + np.log(2 * np.sqrt(s) / epsilon)) / (2 * s))


@formula(
    "slt-pac-bayes",
    latex=r"\mathbb{E}_Q e_f - \mathbb{E}_Q \hat e_f \le "
    r"\sqrt{\frac{KL(Q \Vert P) + \ln\frac{2\sqrt s}{\epsilon}}{2s}} "
    r"\quad \forall Q, \text{ with probability} \ge 1 - \epsilon",
    where="001 §17.4; 002, 003 Statistical learning theory",
    right=pac_bayes_right,
    errata=(
        Erratum(
            "E84",
            r"$2s\,KL + \ln\frac{2s}{\delta}$ added to the training error",
            r"the root of $(KL + \ln\frac{2\sqrt s}{\epsilon})/(2s)$",
            lambda kl, s, epsilon: 2 * s * kl + np.log(2 * s / epsilon),
            where="001 §17.4",
            kind="formula",
            loose=True,
        ),
        Erratum(
            "E84",
            r"$\sqrt{\frac2s[KL + \ln\frac{2\sqrt s}{\epsilon}]}$ with probability at least $\epsilon$",
            r"with probability at least $1 - \epsilon$, and a quarter under the root",
            lambda kl, s, epsilon: 2 * pac_bayes_right(kl, s, 1 - epsilon),
            where="002 Statistical learning theory",
            kind="formula",
        ),
        Erratum(
            "E84",
            r"$\sqrt{(2KL + \ln\frac{2\sqrt s}{\epsilon})/s}$",
            r"$\sqrt{(KL + \ln\frac{2\sqrt s}{\epsilon})/(2s)}$",
            lambda kl, s, epsilon: np.sqrt((2 * kl + np.log(2 * np.sqrt(s) / epsilon)) / s),
            where="003 Statistical learning theory",
            kind="formula",
            loose=True,
        ),
    ),
    systems=("generalisation",),
    functions=("corollary.theory.bounds.pac_bayes",),
)
def pac_bayes(rng, claim):
    """The test error of a randomised predictor exceeds its training error by little if it is near the prior.

    Tried on a uniform prior over K independent coin-flip predictors and the posterior on the worst of
    them, whose divergence is ln K; the exact binomial tail says what must be allowed.
    """
    s = 1000
    k = np.arange(s + 1)
    log_tail = binom.logsf(k, s, 0.5)  # more than k lucky answers of s
    moment = np.exp(binom.logpmf(k, s, 0.5) + s * np.log(2) + xlogy(k, k / s) + xlogy(s - k, 1 - k / s)).sum()
    exact, bound, room, library = [], [], [], []
    for kl in (0.0, 5.0, 40.0, 80.0):
        epsilon = 10.0 ** -rng.uniform(25, 30)
        # With K = e^kl predictors each may fail with probability about epsilon / K.
        exact.append(k[log_tail <= np.log(epsilon) - kl].min() / s - 0.5)
        bound.append(claim(kl, s, epsilon))
        library.append(bounds.pac_bayes(0.0, kl, s, epsilon, form="root"))
        # What is left of the bound's exponent is the logarithm of its constant, 2 sqrt(s), over the exact moment
        # sum_k Binomial(k; s, p) exp(s kl(k/s, p)), the same for every p and about sqrt(pi s / 2).
        room.append(2 * s * bound[-1] ** 2 - kl + np.log(epsilon) - np.log(moment))
    exact, bound = np.array(exact), np.array(bound)
    # A finite class at an ordinary level: 50 predictors, all posteriors on one of them.
    errors = rng.binomial(s, 0.5, size=(2000, 50)).min(1) / s
    violations = np.mean(0.5 - errors > claim(np.log(50), s, 0.05))
    # Far out the bound loses only ln(2 sqrt s) and the curvature of the relative entropy: under 8%.
    # 2 / sqrt(pi / 2) = 1.596, less what the moment has beyond its leading term
    return all_of(
        at_least(bound, exact),
        equal(bound, library, tol=1e-9),
        within(bound / exact, 0.9, 1.1),
        within(room, np.log(1.5), np.log(1.65)),
        at_most(violations, 0.05),
    )


@formula(
    "slt-stochastic-network",
    latex=r"KL\big(\mathcal N(\theta, \mathrm{diag}\,\sigma^2) \,\Vert\, \mathcal N(\theta_0, \lambda I)\big)"
    r" = \tfrac12 \sum_i \Big[\frac{\sigma_i^2 + (\theta_i - \theta_{0,i})^2}{\lambda} - 1 + "
    r"\ln\frac{\lambda}{\sigma_i^2}\Big]",
    where="002 Statistical learning theory",
    right=lambda theta, theta0, sigma, lam: (
        0.5 * np.sum((sigma**2 + (theta - theta0) ** 2) / lam - 1 + np.log(lam / sigma**2))
    ),
    wrong=lambda theta, theta0, sigma, lam: (
        0.5 * np.sum((sigma**2 + (theta - theta0) ** 2) / lam**2 - 1 + np.log(lam**2 / sigma**2))
    ),
    systems=("generalisation",),
)
def stochastic_network(rng, claim):
    """For Gaussian weights around a trained network the divergence in the PAC-Bayes bound is elementary.

    The prior's lambda is a variance.
    """
    theta, theta0, sigma = rng.normal(size=5), rng.normal(size=5), rng.uniform(0.1, 1.0, size=5)
    lam = float(rng.uniform(0.2, 0.6))
    total = 0.0
    for i in range(5):
        z, weights = gauss_hermite(theta[i], sigma[i] ** 2)
        ratio = norm.logpdf(z, theta[i], sigma[i]) - norm.logpdf(z, theta0[i], np.sqrt(lam))
        total += weights @ ratio[:, 0]
    return equal(claim(theta, theta0, sigma, lam), total, tol=1e-10)


def minimum_norm_errors(rng, n, ratios, trials):
    """Geometric mean test error of minimum-norm fits on p = ratio * n random features."""
    d = 2 * n
    means = []
    for p in (ratios * n).astype(int):
        target = rng.normal(size=(trials, d, 1)) / np.sqrt(d)
        features = rng.normal(size=(trials, d, p)) / np.sqrt(d)
        train, test = rng.normal(size=(2, trials, n, d))
        y = train @ target + 0.3 * rng.normal(size=(trials, n, 1))
        fit = np.linalg.pinv(train @ features) @ y
        errors = np.mean((test @ (features @ fit - target)) ** 2, axis=(1, 2))
        means.append(np.exp(np.log(errors).mean()))
    return np.array(means)


@formula(
    "slt-double-descent",
    latex=r"\arg\max_p \mathrm{Err}_{test}(p) \approx n \quad \text{for minimum-norm fits of } p "
    r"\text{ features to } n \text{ samples}",
    where="001 §17.4; 003 Statistical learning theory",
    right=lambda n: (n, -1),
    wrong=lambda n: (n / 2, -1),
    errata=(
        Erratum(
            "E106",
            printed="beyond the interpolation threshold the test accuracy decreases",
            correction="the test error decreases again, so the accuracy rises",
            form=lambda n: (n, 1),
            where="003 Neural tangent kernel",
            kind="claim",
            counterexample="least-norm fits with four times as many features as samples have less than half the peak's error",
        ),
    ),
    systems=("generalisation",),
)
def double_descent(rng, claim):
    """The test error of minimum-norm fits peaks where features are as many as samples, then falls again.

    The claim is the place of the peak, and the sign of the change of the test error beyond it.
    """
    n = 24
    ratios = np.array([0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 4.0])
    errors = minimum_norm_errors(rng, n, ratios, 24)
    peak = ratios[np.argmax(errors)] * n
    # At the peak the error is several times larger than on either side; the grid has steps of n / 4.
    place, change = claim(n)
    return all_of(
        within(peak / place, 0.8, 1.2),
        equal(np.sign(errors[-1] - errors.max()), change, tol=0.1),
        at_most(errors[[0, -1]], errors.max() / 2),
    )
