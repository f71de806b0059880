"""Evaluation of generative models: perplexity, inception score and Fréchet distance."""

from __future__ import annotations

import numpy as np
from scipy.linalg import sqrtm
from scipy.special import rel_entr
from scipy.stats import entropy, gmean, norm

from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import orthogonal, quadrature, simplex, spd


@formula(
    "metric-perplexity",
    latex=r"PPL = b^{H}, \qquad H = -\frac1N \sum_i \log_b q(x_i \mid x_{<i})",
    where="001 §15.2",
    right=lambda q, base: base ** (-np.mean(np.log(q) / np.log(base))),
    errata=(
        Erratum(
            "E20",
            r"$2^H$ with $H$ in natural logarithms",
            r"base of the power = base of the logarithm: $e^H$ or $2^{H_2}$",
            lambda q, base: 2 ** (-np.mean(np.log(q))),
            where="001 §15.2",
            kind="claim",
            counterexample=r"uniform over 50 words: $2^{\ln 50} = 15$, and $e^{\ln 50} = 50$",
        ),
    ),
    systems=("metrics", "gpt"),
    functions=("corollary.metrics.perplexity",),
)
def perplexity(rng, claim):
    """The inverse geometric mean of the predicted probabilities, in any base used twice.

    A uniform guess among V symbols has perplexity V.
    """
    from corollary.metrics import perplexity

    q, V = rng.uniform(0.01, 1.0, size=40), int(rng.integers(10, 100))
    outcomes = []
    for base in (2.0, np.e, 10.0):
        outcomes += [
            equal(claim(q, base), 1 / gmean(q), tol=1e-10),
            equal(claim(q, base), perplexity(np.log(q)), tol=1e-10),
            equal(claim(np.full(20, 1 / V), base), V, tol=1e-10),
        ]
    return all_of(*outcomes)


def library_inception(P):
    """The library's inception score of class probabilities, samples by classes."""
    from corollary.metrics import inception_score

    return inception_score(P)


@formula(
    "metric-inception-score",
    latex=r"IS = \exp\big(\mathbb{E}_x KL(p(y \mid x) \Vert p(y))\big) \in [1, K], "
    r"\qquad p(y) = \mathbb{E}_x p(y \mid x)",
    where="003 Evaluation metrics",
    right=library_inception,
    wrong=lambda P: np.exp(rel_entr(P, 1 / P.shape[1]).sum(1).mean()),
    systems=("metrics",),
    functions=("corollary.metrics.inception_score",),
)
def inception_score(rng, claim):
    """The exponential of the information between samples and predicted classes: one at worst, K at best."""
    n, K = 50, 6
    weights = np.array([4.0, 2.0, 1.0, 1.0, 0.5, 0.5])
    P = simplex(rng, n, K) * weights
    P /= P.sum(1, keepdims=True)
    information = entropy(P.mean(0)) - entropy(P, axis=1).mean()
    alike, apart = np.tile(P[0], (n, 1)), np.tile(np.eye(K), (8, 1))
    return all_of(
        equal(claim(P), np.exp(information), tol=1e-10),
        equal(claim(alike), 1.0, tol=1e-10),
        equal(claim(apart), K, tol=1e-10),
        at_least(claim(P), 1.0),
        at_most(claim(P), K),
    )


def frechet(mean, cov, other_mean, other_cov):
    """Squared 2-Wasserstein distance of two Gaussians, by the library."""
    from corollary.metrics.frechet import gaussian_distance

    return gaussian_distance(mean, cov, other_mean, other_cov)


@formula(
    "metric-fid",
    latex=r"FID = \lVert\mu - \mu_\theta\rVert^2 + "
    r"\mathrm{Tr}\big(\Sigma + \Sigma_\theta - 2(\Sigma\Sigma_\theta)^{1/2}\big) = W_2^2",
    where="003 Evaluation metrics",
    right=frechet,
    wrong=lambda mean, cov, other_mean, other_cov: (
        np.sum((mean - other_mean) ** 2) + np.sum((sqrtm(cov) - sqrtm(other_cov)) ** 2)
    ),
    errata=(
        Erratum(
            "E105",
            "the Wasserstein distance of the fitted Gaussians",
            "the square of the 2-Wasserstein distance",
            lambda *moments: np.sqrt(frechet(*moments)),
            where="003 Metrics",
            kind="definition",
            counterexample=r"equal covariances and means $(2, 2)$ apart: 8, while $W_2 = 2.83$",
        ),
    ),
    systems=("metrics",),
    functions=("corollary.metrics.frechet.gaussian_distance",),
)
def fid(rng, claim):
    """The squared transport distance between Gaussians fitted to features.

    On the line it is the mean squared difference of quantiles; in general the best coupling is linear.
    """
    (m, other_m), (s, other_s) = rng.random(2) + [3.0, 0.0], rng.uniform(0.5, 2.0, size=2)
    line = claim(np.array([m]), np.array([[s**2]]), np.array([other_m]), np.array([[other_s**2]]))
    quantiles = quadrature(lambda z: (m - other_m + (s - other_s) * z) ** 2 * norm.pdf(z), -12, 12)
    mean, other_mean = rng.normal(size=(2, 4))
    cov, other_cov = spd(rng, 4, 0.1, 3.0), spd(rng, 4, 0.1, 3.0)
    # Couplings y = B Q A^-1 x with A A' = cov, B B' = other and Q orthogonal; the best Q is a polar factor.
    A, B = np.linalg.cholesky(cov), np.linalg.cholesky(other_cov)
    U, values, Vt = np.linalg.svd(A.T @ B)
    shift = np.sum((mean - other_mean) ** 2)
    spread = lambda Q: shift + np.trace(cov + other_cov) - 2 * np.trace(A @ Q @ B.T)
    value = claim(mean, cov, other_mean, other_cov)
    return all_of(
        equal(line, quantiles, tol=1e-8),
        equal(value, spread(U @ Vt), tol=1e-7),
        at_most(value, [spread(orthogonal(rng, 4)) for _ in range(30)], tol=1e-7),
        equal(claim(mean, cov, mean, cov), 0.0, tol=1e-7),
    )
