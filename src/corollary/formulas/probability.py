"""Probability and distributions: rules, moments, generating functions, Gaussians, tail inequalities.

Most checks enumerate a random finite law; densities are integrated by quadrature.
"""

from itertools import product

import numpy as np
from scipy import special, stats

from corollary.formulas._probability_tools import (
    best_mixture,
    exact_tails,
    finite_mgf,
    gaussian_bump,
    iid_law,
    is_product,
    mixed_derivative,
    table_covariance,
)
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gauss_hermite, gradient, quadrature, simplex, spd

EXACT = 1e-12  # sums of a few dozen terms of order one


def _joint_and_marginal(conditional, marginal):
    joint = conditional * marginal[:, None]
    return joint, joint.sum(axis=0)


def _joint_and_marginal_wrong_axis(conditional, marginal):
    joint = conditional * marginal
    return joint, joint.sum(axis=0)


@formula(
    "prob-sum-product-rule",
    latex=r"P(X, Y) = P(Y \mid X)\, P(X), \qquad P(Y = y) = \sum_i P(X = x_i, Y = y)",
    where="000 §1; 001 §1",
    right=_joint_and_marginal,
    wrong=_joint_and_marginal_wrong_axis,
)
def sum_product_rule(rng, claim):
    """A joint law is a conditional times a marginal; summing one variable out leaves the other's law."""
    pairs = np.concatenate([rng.integers(0, 4, size=(300, 2)), [(0, 0)] * 100, [(i, 0) for i in range(4)]])
    x, y = pairs.T
    marginal = np.array([(x == i).mean() for i in range(4)])
    conditional = np.array([[(y[x == i] == j).mean() for j in range(4)] for i in range(4)])
    joint, of_y = claim(conditional, marginal)
    counted = np.array([[((x == i) & (y == j)).mean() for j in range(4)] for i in range(4)])
    return all_of(
        equal(joint, counted, tol=EXACT),
        equal(of_y, [(y == j).mean() for j in range(4)], tol=EXACT),
    )


@formula(
    "prob-bayes-rule",
    latex=r"P(Y_k \mid X) = \frac{P(X \mid Y_k)\, P(Y_k)}{\sum_i P(X \mid Y_i)\, P(Y_i)}",
    where="000 §1; 001 §1, §15.2",
    right=lambda likelihood, prior: likelihood * prior[:, None] / (prior @ likelihood),
    wrong=lambda likelihood, prior: likelihood * prior[:, None] / likelihood.sum(axis=0),
)
def bayes_rule(rng, claim):
    """The posterior is likelihood times prior, divided by their sum over all causes."""
    counts = rng.integers(1, 20, size=(3, 5)) * np.array([[1], [3], [9]])
    prior = counts.sum(axis=1) / counts.sum()
    likelihood = counts / counts.sum(axis=1, keepdims=True)
    return equal(claim(likelihood, prior), counts / counts.sum(axis=0), tol=EXACT)


@formula(
    "prob-independence",
    latex=r"X \perp Y \iff P(X, Y) = P(X)\, P(Y); \qquad X \perp Y \Rightarrow \mathrm{Cov}(X, Y) = 0",
    where="000 §1; 001 §1",
    right=lambda joint, x, y: is_product(joint),
    wrong=lambda joint, x, y: abs(table_covariance(joint, x, y)) < 1e-12,
)
def independence(rng, claim):
    """Independence is a joint law equal to the product of its marginals; uncorrelated alone is weaker."""
    x = np.array([-1.0, 0.0, 1.0])
    separate = np.outer(simplex(rng, 3), simplex(rng, 3))
    side = rng.uniform(0.1, 0.4)
    squared = np.array([[0, 0, side], [0, 1 - 2 * side, 0], [0, 0, side]])  # Y = X^2
    mixed = simplex(rng, 9).reshape(3, 3)
    tables = (separate, squared, mixed)
    return all_of(
        equal([claim(t, x, x) for t in tables], [True, False, False], tol=0.1),
        equal([table_covariance(separate, x, x), table_covariance(squared, x, x)], 0.0, tol=EXACT),
    )


def _from_conditionals(joint):
    pz = joint.sum(axis=(0, 1))
    return np.einsum("xz,yz->xyz", joint.sum(1) / pz, joint.sum(0) / pz)


@formula(
    "prob-conditional-independence",
    latex=r"X \perp Y \mid Z \iff P(X, Y \mid Z) = P(X \mid Z) P(Y \mid Z) \iff P(X \mid Y, Z) = P(X \mid Z)",
    where="000 §1; 001 §1",
    right=_from_conditionals,
    wrong=lambda joint: np.multiply.outer(np.outer(joint.sum((1, 2)), joint.sum((0, 2))), np.ones(3)),
)
def conditional_independence(rng, claim):
    """Given Z the pair factorises; then knowing Y as well as Z tells nothing more about X."""
    pz, px, py = simplex(rng, 3), simplex(rng, 3, 4).T, simplex(rng, 3, 5).T
    joint = np.einsum("z,xz,yz->xyz", pz, px, py)
    xor = np.zeros((2, 2, 3))  # Z = X xor Y: independent a priori, dependent given Z
    xor[[0, 1], [0, 1], 0] = xor[[0, 1], [1, 0], 1] = 0.2
    xor[..., 2] = 0.05
    x_given_yz = joint / joint.sum(axis=0)
    return all_of(
        equal(claim(joint), joint / joint.sum(axis=(0, 1)), tol=EXACT),
        equal(claim(joint) / py, x_given_yz, tol=1e-10),
        at_least(np.abs(claim(xor) - xor / xor.sum(axis=(0, 1))).max(), 0.2),
    )


@formula(
    "prob-expectation",
    latex=r"\mathbb{E}[X] = \int t\, f_X(t)\, dt",
    where="000 §1; 001 §1",
    right=lambda t, density: t * density,
    errata=(
        Erratum(
            "T10",
            r"$\mathbb E[X] = \int f_X(t)\,dt$",
            r"$\int t f_X(t)\,dt$",
            lambda t, density: density,
            where="000 §1",
            kind="typing",
        ),
    ),
)
def expectation(rng, claim):
    """The mean weighs each value by its density; it equals the area above the cdf minus that below."""
    a, b = rng.uniform(1.5, 4), rng.uniform(2.1, 3)
    laws = [stats.gamma(a, scale=b), stats.norm(a, b), stats.norm(-a, b), stats.gumbel_r(b, 1)]
    outcomes = []
    for law in laws:
        low, high = min(law.ppf(1e-14), 0.0), max(law.isf(1e-14), 0.0)
        mean = quadrature(law.sf, 0, high, 400) - quadrature(law.cdf, low, 0, 400)
        got = quadrature(lambda t, law=law: claim(t, law.pdf(t)), low, high, 400)
        outcomes.append(equal(got, mean, tol=1e-6))
    return all_of(*outcomes)


@formula(
    "prob-variance",
    latex=r"\mathrm{Var}[X] = \mathrm{Cov}(X, X) = \mathbb{E}[(X - \mathbb{E}X)^2]"
    r" = \mathbb{E}[X^2] - \mathbb{E}[X]^2",
    where="000, 001 §1; 002 Background",
    right=lambda p, x: p @ x**2 - (p @ x) ** 2,
    wrong=lambda p, x: p @ x**2 - p @ x,
)
def variance(rng, claim):
    """The variance is the second moment less the squared mean, half the mean squared gap of two copies."""
    p, x = simplex(rng, 7), rng.normal(2, 1, size=7)
    gaps = 0.5 * p @ (x[:, None] - x) ** 2 @ p
    return all_of(
        equal(claim(p, x), gaps, tol=EXACT),
        equal(claim(p, x), np.cov(x, aweights=p, ddof=0), tol=EXACT),
    )


@formula(
    "prob-covariance",
    latex=r"\mathrm{Cov}(X, Y) = \mathbb{E}[(X - \mathbb{E}X)(Y - \mathbb{E}Y)^\top]"
    r" = \mathbb{E}[XY^\top] - \mathbb{E}[X]\mathbb{E}[Y]^\top",
    where="000, 001 §1; 002 Background",
    right=lambda p, X, Y: (X.T * p) @ Y - np.outer(p @ X, p @ Y),
    wrong=lambda p, X, Y: (X.T * p) @ Y - np.outer(p @ Y, p @ X),
)
def covariance(rng, claim):
    """The covariance of two vectors is their mean outer product less the outer product of the means."""
    p, X, Y = simplex(rng, 8), rng.normal(size=(8, 3)) + [3, 0, -1], rng.normal(size=(8, 3))
    return equal(claim(p, X, Y), np.cov(X.T, Y.T, aweights=p, ddof=0)[:3, 3:], tol=EXACT)


def _bilinear(a, b, c, d, C):
    return a * c * C[0, 2] + a * d * C[0, 3] + b * c * C[1, 2] + b * d * C[1, 3]


@formula(
    "prob-cov-bilinear",
    latex=r"\mathrm{Cov}(aX + bY, cW + dV) = ac\, C_{XW} + ad\, C_{XV} + bc\, C_{YW} + bd\, C_{YV}",
    where="002 Background",
    right=_bilinear,
    wrong=lambda a, b, c, d, C: a * c * C[0, 2] + b * d * C[1, 3],
)
def cov_bilinear(rng, claim):
    """Covariance is linear in each argument, so a covariance of sums has every cross term."""
    data = rng.normal(size=(4, 4)) @ rng.normal(size=(4, 30))
    a, b, c, d = rng.choice([-1, 1], size=4) * rng.uniform(0.5, 2, size=4)
    true = np.cov(a * data[0] + b * data[1], c * data[2] + d * data[3])[0, 1]
    return equal(claim(a, b, c, d, np.cov(data)), true, tol=1e-11)


@formula(
    "prob-var-affine",
    latex=r"\mathrm{Var}[A\mathbf{X} + \mathbf{b}] = A\, \mathrm{Var}[\mathbf{X}]\, A^\top,"
    r" \qquad \mathrm{Var}[aX + b] = a^2\, \mathrm{Var}[X]",
    where="000, 001 §1",
    right=lambda A, C: A @ C @ A.T,
    wrong=lambda A, C: A.T @ C @ A,
)
def var_affine(rng, claim):
    """A linear map acts on the covariance from both sides, and a shift leaves it alone."""
    X, A, b = rng.normal(size=(3, 40)) * [[1], [2], [3]], rng.normal(size=(3, 3)), rng.normal(size=(3, 1))
    scalar = np.array([[rng.normal()]])
    return all_of(
        equal(claim(A, np.cov(X)), np.cov(A @ X + b), tol=1e-11),
        equal(claim(scalar, np.cov(X[:1]).reshape(1, 1)), np.cov(scalar[0, 0] * X[0] + 5), tol=1e-11),
    )


def _variance_of_sum(a, C, factor):
    i, j = np.triu_indices(len(a), k=1)
    return a**2 @ np.diag(C) + factor * np.sum(a[i] * a[j] * C[i, j])


@formula(
    "prob-var-weighted-sum",
    latex=r"\mathrm{Var}\Big[\sum_i a_i X_i\Big] = \sum_i a_i^2 \mathrm{Var}[X_i]"
    r" + 2 \sum_{i<j} a_i a_j \mathrm{Cov}(X_i, X_j)",
    where="000, 001 §1",
    right=lambda a, C: _variance_of_sum(a, C, 2),
    errata=(
        Erratum(
            "T1",
            r"$\sum_i a_i^2 \mathrm{Var}[X_i] + \sum_{i<j} a_i a_j \mathrm{Cov}(X_i, X_j)$",
            r"factor $2$ before the sum over $i<j$, or a sum over $i \neq j$",
            lambda a, C: _variance_of_sum(a, C, 1),
            where="000 §1",
            kind="typing",
        ),
    ),
)
def var_weighted_sum(rng, claim):
    """A weighted sum's variance has each variance once and each pair's covariance twice."""
    common = rng.normal(size=50)
    X = common + 0.5 * rng.normal(size=(4, 50))  # positively correlated: the cross terms do not cancel
    a = rng.uniform(0.5, 2, size=4)
    return equal(claim(a, np.cov(X)), (a @ X).var(ddof=1), tol=1e-11)


@formula(
    "prob-second-moment-psd",
    latex=r"\mathbf{X}\mathbf{X}^\top \succeq 0 \quad\Rightarrow\quad \mathrm{Cov}(\mathbf{X}) \succeq 0",
    where="000, 001 §1",
    right=lambda X: X @ X.T,
    wrong=lambda X: X @ X,
)
def second_moment_psd(rng, claim):
    """A matrix times its own transpose has no negative direction, hence no covariance matrix has one."""
    X, v = rng.normal(size=(6, 6)), rng.normal(size=(6, 20))
    M = claim(X)
    centred = X - X.mean(axis=1, keepdims=True)
    return all_of(
        equal(np.einsum("iv,ij,jv->v", v, M, v), ((X.T @ v) ** 2).sum(axis=0), tol=1e-10),
        at_least(np.linalg.eigvalsh((M + M.T) / 2).min(), 0, tol=1e-10),
        equal(claim(centred) / 5, np.cov(X), tol=1e-10),
    )


@formula(
    "prob-cdf-pdf",
    latex=r"\frac{d}{dt} P(X \le t) = F_X'(t) = f_X(t)",
    where="000, 001 §1",
    right=lambda cdf, t, h: (cdf(t + h) - cdf(t - h)) / (2 * h),
    wrong=lambda cdf, t, h: (cdf(t - h) - cdf(t + h)) / (2 * h),
)
def cdf_pdf(rng, claim):
    """A density is the slope of its cumulative distribution function."""
    a, b, t = rng.uniform(2.5, 5), rng.uniform(0.5, 2), rng.uniform(1, 4, size=20)
    normal = np.exp(-0.5 * ((t - a) / b) ** 2) / (b * np.sqrt(2 * np.pi))
    gamma = t ** (a - 1) * np.exp(-t) / special.gamma(a)
    return all_of(
        equal(claim(stats.norm(a, b).cdf, t, 1e-4), normal, tol=1e-6),
        equal(claim(stats.gamma(a).cdf, t, 1e-4), gamma, tol=1e-6),
    )


@formula(
    "prob-scale-density",
    latex=r"f_{\alpha Y}(z) = \frac{1}{|\alpha|}\, f_Y\!\left(\frac{z}{\alpha}\right), \qquad \alpha \neq 0",
    where="000, 001 §1",
    right=lambda f, alpha, z: f(z / alpha) / abs(alpha),
    wrong=lambda f, alpha, z: f(z / alpha),
    errata=(
        Erratum(
            "E1",
            r"$f_{\alpha Y}(z) = \frac{1}{\alpha} f_Y(z / \alpha)$",
            r"$\frac{1}{|\alpha|} f_Y(z / \alpha)$",
            lambda f, alpha, z: f(z / alpha) / alpha,
            where="000, 001 §1",
            kind="formula",
        ),
    ),
)
def scale_density(rng, claim):
    """Stretching a variable by a factor thins its density by the size of that factor, not by its sign."""
    law, outcomes = stats.gumbel_r(0.5, 1), []
    for alpha in (rng.uniform(1.5, 3), -rng.uniform(1.5, 3)):
        ends = np.sort(alpha * np.array([-0.5, 1.5]))
        mass = abs(law.cdf(ends[1] / alpha) - law.cdf(ends[0] / alpha))
        got = quadrature(lambda z, alpha=alpha: claim(law.pdf, alpha, z), *ends)
        outcomes.append(equal(got, mass, tol=1e-10))
    return all_of(*outcomes)


@formula(
    "prob-mgf-definition",
    latex=r"M_X(t) = \mathbb{E}\big[e^{t^\top X}\big]",
    where="000 §1, §16; 001 §1; 002, 003 Background",
    right=lambda t, x: np.exp(x @ t),
    wrong=lambda t, x: np.exp(-x @ t),
)
def mgf_definition(rng, claim):
    """The moment generating function is the mean of the exponential of the inner product with t."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    low, high, t = rng.uniform(-1, 0, 2), rng.uniform(1.5, 3, 2), rng.uniform(0.3, 1, 2)
    sides = low + (high - low) * (nodes[:, None] + 1) / 2
    box = np.array(list(product(*sides.T)))
    mean = np.outer(weights, weights).ravel() / 4 @ claim(t, box)
    return equal(mean, np.prod((np.exp(t * high) - np.exp(t * low)) / (t * (high - low))), tol=1e-10)


@formula(
    "prob-mgf-moments",
    latex=r"\mathbb{E}[X_1^{k_1} \cdots X_n^{k_n}] = \left."
    r" \frac{\partial^{k_1 + \dots + k_n} M_X}{\partial t_1^{k_1} \cdots \partial t_n^{k_n}} \right|_{t=0}",
    where="000 §16; 003 Background",
    right=mixed_derivative,
    wrong=lambda M, orders: mixed_derivative(lambda t: np.log(M(t)), orders),
)
def mgf_moments(rng, claim):
    """Every mixed moment is a derivative of the generating function at zero (of its log: a cumulant)."""
    mu, Sigma = rng.uniform(0.6, 1.0, size=2), spd(rng, 2, 0.2, 0.5)
    x, w = gauss_hermite(mu, Sigma)

    def M(t):
        return np.exp(t @ mu + 0.5 * np.einsum("...i,ij,...j", t, Sigma, t))

    orders = [(1, 1), (2, 1), (2, 2), (0, 3)]
    moments = [w @ (x[:, 0] ** a * x[:, 1] ** b) for a, b in orders]
    return equal([claim(M, k) for k in orders], moments, tol=1e-9)


def _two_points_only(support, t, values):
    return np.linalg.lstsq(np.exp(np.outer(t[:2], support)), values[:2])[0]


@formula(
    "prob-mgf-uniqueness",
    latex=r"M_X(t) = M_Y(t) < \infty \ \text{for } |t| < \epsilon \quad\Rightarrow\quad X \overset{d}{=} Y",
    where="000 §1, §16",
    right=lambda support, t, values: np.linalg.solve(np.exp(np.outer(t, support)), values),
    wrong=_two_points_only,
)
def mgf_uniqueness(rng, claim):
    """A generating function finite near zero determines its law; here its values give back the masses."""
    support, t = np.arange(5.0), np.linspace(-1, 1, 5)
    weights = simplex(rng, 5) * 0.5 + 0.5 * np.array([0.5, 0, 0, 0, 0.5])  # away from the min-norm one
    sample = np.repeat(support, np.round(1000 * weights).astype(int) + 1)
    masses = np.array([(sample == s).mean() for s in support])
    return equal(claim(support, t, np.exp(np.outer(t, sample)).mean(axis=1)), masses, tol=1e-8)


def _mgf_of_sum(joint, x, y, a, b, t):
    factors = finite_mgf(joint.sum(1), x, a * t) * finite_mgf(joint.sum(0), y, b * t)
    return factors if is_product(joint) else np.full_like(factors, np.nan)


@formula(
    "prob-mgf-of-sums",
    latex=r"X_i \text{ independent} \ \Rightarrow\ M_{\sum_i a_i X_i}(t) = \prod_i M_{X_i}(a_i t)",
    where="000, 001 §1; 000 §16; 002, 003 Background",
    right=_mgf_of_sum,
    wrong=lambda joint, x, y, a, b, t: (
        a * finite_mgf(joint.sum(1), x, t) * b * finite_mgf(joint.sum(0), y, t)
    ),
    errata=(
        Erratum(
            "E7",
            r"$M_{X+Y} = M_X M_Y$ for any $X, Y$",
            r"only for independent $X, Y$",
            lambda joint, x, y, a, b, t: (
                finite_mgf(joint.sum(1), x, a * t) * finite_mgf(joint.sum(0), y, b * t)
            ),
            where="002, 003 Background",
            kind="claim",
            counterexample=r"$Y = X$ standard normal: $e^{2t^2}$ against $e^{t^2}$",
        ),
    ),
)
def mgf_of_sums(rng, claim):
    """Generating functions of independent variables multiply; for dependent ones nothing is claimed."""
    x, t = np.array([-1.0, 0.5, 2.0]), np.linspace(-1, 1, 7)
    a, b = rng.uniform(0.5, 2, size=2)
    same = np.diag(simplex(rng, 3) * 0.4 + 0.2)  # Y = X
    outcomes = []
    for joint in (np.outer(simplex(rng, 3), simplex(rng, 3)), same):
        true = np.exp(np.multiply.outer(t, a * x[:, None] + b * x)).reshape(7, -1) @ joint.ravel()
        said = claim(joint, x, x, a, b, t)
        outcomes.append(equal(np.where(np.isnan(said), true, said), true, tol=1e-11))
    silent = np.isnan(claim(np.outer([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]), x, x, a, b, t)).any()
    return all_of(*outcomes, equal(silent, 0, tol=0.1))


def _discrete_mgfs(t, p, n, rate):
    one = p * np.exp(t) + 1 - p
    return np.array([one, one**n, np.exp(rate * (np.exp(t) - 1))])


def _discrete_mgfs_swapped(t, p, n, rate):
    one = p + (1 - p) * np.exp(t)
    return np.array([one, one**n, np.exp(rate * (np.exp(t) - 1))])


@formula(
    "prob-mgf-bernoulli-binomial-poisson",
    latex=r"M_{\mathrm{Be}(p)} = p e^t + 1 - p, \quad M_{\mathrm{Bin}(n,p)} = (p e^t + 1 - p)^n,"
    r" \quad M_{\mathrm{Pois}(\lambda)} = e^{\lambda (e^t - 1)}",
    where="000, 001 §1",
    right=_discrete_mgfs,
    wrong=_discrete_mgfs_swapped,
)
def mgf_bernoulli_binomial_poisson(rng, claim):
    """Generating functions of a coin, of n coins and of a Poisson count."""
    t, p, n, rate = np.linspace(-1, 1, 5), rng.uniform(0.1, 0.4), 6, rng.uniform(0.5, 3)
    k = np.arange(80)
    pmfs = [stats.bernoulli(p).pmf(k), stats.binom(n, p).pmf(k), stats.poisson(rate).pmf(k)]
    return equal(claim(t, p, n, rate), [finite_mgf(pmf, k, t) for pmf in pmfs], tol=1e-9)


@formula(
    "prob-mgf-gamma",
    latex=r"X \sim \Gamma(\text{shape } \alpha, \text{scale } \beta):\quad M_X(t) = (1 - \beta t)^{-\alpha},"
    r"\quad t < 1/\beta",
    where="000, 001 §1",
    right=lambda t, alpha, beta: (1 - beta * t) ** (-alpha),
    errata=(
        Erratum(
            "E2",
            r"$\left(\frac{\alpha}{\alpha + \beta t}\right)^\alpha$",
            r"$(1 - \beta t)^{-\alpha}$ for $t < 1/\beta$",
            lambda t, alpha, beta: (alpha / (alpha + beta * t)) ** alpha,
            where="000 §1",
            kind="formula",
        ),
        Erratum(
            "E2",
            r"$\left(\frac{1}{\alpha - \beta t}\right)^\alpha$",
            r"$(1 - \beta t)^{-\alpha}$ for $t < 1/\beta$",
            lambda t, alpha, beta: (1 / (alpha - beta * t)) ** alpha,
            where="001 §1",
            kind="formula",
        ),
    ),
)
def mgf_gamma(rng, claim):
    """The Gamma law's generating function, finite for t below the inverse scale."""
    alpha, beta = rng.uniform(1.5, 3), rng.uniform(0.5, 1.5)
    t = np.array([-1.0, 0.0, 0.3, 0.5]) / beta
    law = stats.gamma(alpha, scale=beta)
    true = quadrature(lambda x: np.exp(np.outer(t, x)) * law.pdf(x), 0, 120 * beta, 600)
    slope = gradient(lambda s: claim(s, alpha, beta), 0.0)
    return all_of(
        equal(claim(t, alpha, beta), true, tol=1e-5),  # x**alpha is not smooth at 0
        equal(slope, law.mean(), tol=1e-6),
    )


@formula(
    "prob-mgf-gaussian",
    latex=r"X \sim \mathcal{N}(\mu, \Sigma):\quad M_X(t)"
    r" = \exp\big(t^\top \mu + \tfrac12 t^\top \Sigma t\big)",
    where="000, 001 §1; 002, 003 Background",
    right=lambda t, mu, Sigma: np.exp(t @ mu + 0.5 * t @ Sigma @ t),
    wrong=lambda t, mu, Sigma: np.exp(t @ mu + t @ Sigma @ t),
)
def mgf_gaussian(rng, claim):
    """A Gaussian's generating function is the exponential of a quadratic."""
    mu, Sigma, t = rng.normal(size=2), spd(rng, 2), rng.uniform(0.4, 1, size=2)
    x, w = gauss_hermite(mu, Sigma, 30)
    return equal(claim(t, mu, Sigma), w @ np.exp(x @ t), tol=1e-9, relative=True)


@formula(
    "prob-sum-density",
    latex=r"X \perp Y,\ Z = X + Y:\quad f_Z(z) = \int f_X(t)\, f_Y(z - t)\, dt",
    where="000, 001 §1",
    right=lambda f, g, z, t: f(t) * g(z - t),
    wrong=lambda f, g, z, t: f(t) * g(t - z),
)
def sum_density(rng, claim):
    """The density of an independent sum is the convolution of the two densities."""
    a, b, z = rng.uniform(0.5, 1.5), rng.uniform(2, 3), rng.uniform(1, 3)
    first, second = stats.norm(a, 1).pdf, stats.norm(b, 0.7).pdf
    gaussian = quadrature(lambda t: claim(first, second, z, t), -12, 16)
    first, second = stats.expon(scale=1 / a).pdf, stats.expon(scale=1 / b).pdf
    # the second exponential ends at t = z, so the two smooth parts are integrated apart
    waits = sum(quadrature(lambda t: claim(first, second, z, t), *e) for e in ((0, z), (z, 40)))
    return all_of(
        equal(gaussian, stats.norm(a + b, np.hypot(1, 0.7)).pdf(z), tol=1e-8),
        equal(waits, a * b / (b - a) * (np.exp(-a * z) - np.exp(-b * z)), tol=1e-8),
    )


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
