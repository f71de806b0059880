"""Probability: rules, moments, densities and generating functions.

Most checks enumerate a random finite law; densities are integrated by quadrature.
"""

from itertools import product

import numpy as np
from scipy import special, stats

from corollary.formulas._probability_tools import (
    EXACT,
    finite_mgf,
    is_product,
    mixed_derivative,
    table_covariance,
)
from corollary.formulas.record import Erratum, all_of, at_least, equal, formula
from corollary.formulas.tools import gauss_hermite, gradient, quadrature, simplex, spd


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
    """Given Z the law of the pair is the product of two; then Y says nothing more about X than Z did."""
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
