"""Linear latent-variable models in closed form, and the variational bound of autoencoders."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import multivariate_normal

from corollary.formulas._library_tools import built, fitted, seeded, tensor
from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gauss_hermite, gaussian_kl, orthogonal, quadrature, spd


def _factor_analysis(rng, n=40, d=5):
    """The library's model of random data with two factors; the data."""
    from corollary.linear import FactorAnalysis

    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + rng.normal(size=(n, d)) + 1
    return fitted(FactorAnalysis(2, max_iter=20), X), X


@formula(
    "fa-model",
    latex=r"z \sim \mathcal N(0, I_m), \; x = \mu + Wz + \eta, \; \eta \sim \mathcal N(0, \Sigma) "
    r"\;\Rightarrow\; x \sim \mathcal N(\mu, WW^\top + \Sigma)",
    where="001 §19.2; 002, 003 Factor analysis",
    right=lambda W, noise: W @ W.T + np.diag(noise),
    wrong=lambda W, noise: W @ W.T + np.diag(noise**2),
    systems=("factor-analysis", "ppca"),
    functions=("corollary.linear.FactorAnalysis",),
)
def fa_model(rng, claim):
    """A few latent factors plus independent noise make a Gaussian with covariance low rank plus diagonal.

    Its moment generating function is the product of those of factors and noise.
    """
    W, noise = 0.5 * rng.normal(size=(5, 2)), rng.uniform(0.2, 0.6, size=5)
    z, weights = gauss_hermite(0.0, 1.0, 40)
    outcomes = []
    for t in rng.normal(size=(5, 5)):
        scales = np.concatenate([W.T @ t, np.sqrt(noise) * t])  # of the seven independent unit normals
        log_product = np.log(weights @ np.exp(z * scales)).sum()
        outcomes.append(equal(0.5 * t @ claim(W, noise) @ t, log_product, tol=1e-9))
    model, _ = _factor_analysis(rng)
    covariance = claim(model.components_.T, model.noise_variance_)
    return all_of(*outcomes, equal(covariance, model.get_covariance(), tol=1e-9))


@formula(
    "fa-nonidentifiable",
    latex=r"(WQ)(WQ)^\top = WW^\top \quad \text{for } Q \in O(m)",
    where="001 §19.2; 002, 003 Factor analysis",
    right=lambda W, M: W @ np.linalg.qr(M)[0],
    wrong=lambda W, M: W @ M,
    systems=("factor-analysis", "ppca"),
)
def fa_nonidentifiable(rng, claim):
    """Rotating the factors changes the loadings but not the law of the data; other linear maps do."""
    W, noise, X = rng.normal(size=(4, 2)), np.diag(rng.uniform(0.2, 0.6, size=4)), rng.normal(size=(6, 4))
    other = claim(W, rng.normal(size=(2, 2)))
    before = multivariate_normal.logpdf(X, cov=W @ W.T + noise)
    after = multivariate_normal.logpdf(X, cov=other @ other.T + noise)
    return all_of(equal(after, before, tol=1e-9), at_least(np.linalg.norm(other - W), 1e-3))


def fa_posterior_right(W, noise, shifted):
    """Posterior mean and covariance of the factors, from x - mu."""
    gain = W.T @ np.linalg.inv(W @ W.T + np.diag(noise))
    return gain @ shifted, np.eye(W.shape[1]) - gain @ W


@formula(
    "fa-posterior",
    latex=r"\mu_{z \mid x} = W^\top(WW^\top + \Sigma)^{-1}(x - \mu), \qquad "
    r"\Sigma_{z \mid x} = I - W^\top(WW^\top + \Sigma)^{-1}W",
    where="001 §19.2; 002, 003 Factor analysis",
    right=fa_posterior_right,
    wrong=lambda W, noise, shifted: (
        W.T @ (shifted / noise),
        np.eye(W.shape[1]) - (W.T / noise) @ W,
    ),
    systems=("factor-analysis", "ppca"),
    functions=("corollary.linear.FactorAnalysis", "corollary.linear.ProbabilisticPCA"),
)
def fa_posterior(rng, claim):
    """Given the data the factors are Gaussian, with a mean linear in x and a covariance that ignores it.

    The same follows from adding precisions: the identity from the prior, and W' Sigma^-1 W.
    """
    from corollary.linear import ProbabilisticPCA

    W, noise, shifted = rng.normal(size=(5, 2)), rng.uniform(0.2, 0.6, size=5), rng.normal(size=5)
    mean, covariance = claim(W, noise, shifted)
    precision = np.eye(2) + sum(np.outer(row, row) / v for row, v in zip(W, noise))
    model, X = _factor_analysis(rng)
    theirs = []
    for found in (model, ProbabilisticPCA(2).fit(X)):
        means, own = found.posterior(X[:1])
        given = claim(found.components_.T, found.noise_variance_ * np.ones(5), X[0] - found.mean_)
        theirs += [equal(given[0], means[0], tol=1e-9), equal(given[1], own.reshape(2, 2), tol=1e-9)]
    return all_of(
        *theirs,
        equal(covariance, np.linalg.inv(precision), tol=1e-10),
        equal(mean, np.linalg.solve(precision, W.T @ (shifted / noise)), tol=1e-10),
    )


@formula(
    "fa-zero-noise-limit",
    latex=r"\lim_{\sigma^2 \to 0} W^\top(WW^\top + \sigma^2 I)^{-1} = W^+, \qquad \Sigma_{z \mid x} \to 0, "
    r"\qquad W^+ = W^\top \text{ if } W^\top W = I",
    where="001 §19.2",
    right=np.linalg.pinv,
    errata=(
        Erratum(
            "E93",
            r"$W^+ = W^\top$ for orthogonal columns",
            "for orthonormal columns",
            lambda W: W.T,
            where="001 §19.2",
            kind="claim",
            counterexample=r"$W = 2e_1$: $W^+ = \frac12 e_1^\top$, $W^\top = 2e_1^\top$",
        ),
    ),
    systems=("ppca",),
    functions=("corollary.linear.latent.posterior",),
)
def zero_noise_limit(rng, claim):
    """Without noise the posterior mean is the pseudo-inverse, the transpose only for orthonormal columns."""
    from corollary.linear.latent import Holes, Latent, posterior

    variance = 1e-8
    basis = orthogonal(rng, 5)[:, :2]
    outcomes = []
    for W in (basis, basis * [2.0, 3.0], basis * rng.uniform(1.5, 3.0, size=2)):
        model = Latent(tensor(W), tensor(np.zeros(5)), tensor(variance))
        gain = posterior(Holes.of(np.eye(5)), model).mean.numpy().T  # of each unit vector
        outcomes += [equal(claim(W), gain, tol=1e-6), equal(np.eye(2) - claim(W) @ W, 0.0, tol=1e-6)]
    return all_of(*outcomes)


def gaussian_log_likelihood(sign):
    """Log-likelihood of k centred samples up to a constant, with this sign before the log-determinant."""

    def value(S, k, A):
        return -k / 2 * (torch.trace(torch.linalg.solve(A, S)) + sign * torch.logdet(A))

    return value


@formula(
    "fa-log-likelihood",
    latex=r"\log p(X; A) = -\tfrac k2\big(\mathrm{Tr}(SA^{-1}) + \log\det A\big) + c, \qquad "
    r"S = \tfrac1k \sum_i x_i x_i^\top, \qquad \hat A = S, \qquad \nabla_W = 2(\nabla_A)W",
    where="000 §16; 001 §19.2; 002, 003 Factor analysis",
    right=gaussian_log_likelihood(1.0),
    errata=(
        Erratum(
            "E90",
            r"$-\frac k2(\mathrm{Tr}(SA^{-1}) - \log\det A)$",
            r"plus $\log\det A$",
            gaussian_log_likelihood(-1.0),
            where="000 §16",
            kind="formula",
        ),
    ),
    systems=("factor-analysis", "ppca"),
    functions=("corollary.linear.FactorAnalysis",),
)
def fa_log_likelihood(rng, claim):
    """A Gaussian sees the data through their covariance S only; S itself is the unconstrained maximum.

    For loadings the chain rule doubles the gradient and multiplies it by W.
    """
    k, n = 20, 4
    X, A, B = rng.normal(size=(k, n)), spd(rng, n), 3 * spd(rng, n)
    S = torch.tensor(X.T @ X / k)
    value = lambda M: claim(S, k, torch.tensor(M))
    exact = [multivariate_normal.logpdf(X, cov=M).sum() for M in (A, B)]
    peak = S.clone().requires_grad_(True)
    (at_peak,) = torch.autograd.grad(claim(S, k, peak), peak)
    W = torch.tensor(rng.normal(size=(n, 2)), requires_grad=True)
    low_rank = W @ W.T + torch.eye(n, dtype=torch.float64)
    by_W, by_A = torch.autograd.grad(claim(S, k, low_rank), (W, low_rank))
    model, data = _factor_analysis(rng)
    centred = tensor(data - data.mean(axis=0))
    said = claim(centred.T @ centred / len(data), len(data), tensor(model.get_covariance()))
    return all_of(
        equal(said - data.size / 2 * np.log(2 * np.pi), model.score_samples(data).sum(), tol=1e-7),
        equal(value(A) - value(B), exact[0] - exact[1], tol=1e-8),
        equal(at_peak, 0.0, tol=1e-9),
        equal(by_W, 2 * by_A @ W, tol=1e-9),
    )


def ppca_claim(pairs_of=None, root=None, product=None, shrink=None):
    """Maximum-likelihood loadings with as many columns as rows, S W, and the side that must equal W."""
    pairs_of = pairs_of or (lambda X: X @ X.T / X.shape[1])
    root = root or (lambda excess: np.sqrt(np.maximum(0, excess)))
    product = product or (lambda W, lam: W * lam)
    shrink = shrink or (lambda W, variance: np.linalg.inv(variance * np.eye(len(W)) + W @ W.T))

    def claim(X, variance):
        lam, U = np.linalg.eigh(pairs_of(X))
        W = U * root(lam - variance)
        return W, product(W, lam), (X @ X.T / X.shape[1]) @ shrink(W, variance) @ W

    return claim


@formula(
    "fa-ppca-mle",
    latex=r"S(\sigma^2 I + WW^\top)^{-1}W = W, \qquad w_i = \rho_i u_i, \quad "
    r"\rho_i^2 = \max\{0, \lambda_i - \sigma^2\}, \quad Su_i = \lambda_i u_i, "
    r"\qquad SW = W\,\mathrm{diag}(\lambda)",
    where="000 §16; 001 §19.2; 003 Probabilistic PCA",
    right=ppca_claim(),
    errata=(
        Erratum(
            "E91",
            r"$SW = \mathrm{diag}(\lambda)W$",
            r"$SW = W\,\mathrm{diag}(\lambda)$",
            ppca_claim(product=lambda W, lam: lam[:, None] * W),
            where="000 §16",
            kind="dimensions",
        ),
        Erratum(
            "E92",
            r"$\rho_i = \max\{0, \sqrt{\lambda_i - \sigma^2}\}$",
            r"$\sqrt{\max\{0, \lambda_i - \sigma^2\}}$",
            ppca_claim(root=lambda excess: np.maximum(0, np.sqrt(excess))),
            where="001 §19.2",
            kind="formula",
        ),
        Erratum(
            "E94",
            r"eigenpairs of $XX^\top$",
            r"of $\frac1s XX^\top$",
            ppca_claim(pairs_of=lambda X: X @ X.T),
            where="003 PPCA",
            kind="formula",
        ),
        Erratum(
            "T18",
            r"$S(W + WW^\top)^{-1}W$",
            r"$S(\sigma^2 I + WW^\top)^{-1}W$",
            ppca_claim(shrink=lambda W, variance: np.linalg.pinv(W + W @ W.T)),
            where="000 §16",
            kind="typing",
        ),
    ),
    systems=("ppca",),
    functions=("corollary.linear.ProbabilisticPCA",),
)
def ppca_mle(rng, claim):
    """With equal noise the best loadings are leading eigenvectors, scaled by the variance above the noise.

    They are stationary and no nearby loadings have a higher likelihood.
    """
    from corollary.linear import ProbabilisticPCA

    n, s, variance = 4, 30, rng.uniform(0.7, 0.9)
    X = orthogonal(rng, n) @ (np.array([[0.4], [0.7], [2.0], [3.0]]) * rng.normal(size=(n, s)))
    S = X @ X.T / s

    def log_likelihood(W):
        C = variance * np.eye(n) + W @ W.T
        return -0.5 * (np.trace(np.linalg.solve(C, S)) + np.linalg.slogdet(C)[1])

    W, SW, fixed = claim(X, variance)
    nearby = [log_likelihood(W + 0.05 * rng.normal(size=W.shape)) for _ in range(50)]
    # The library finds the noise too; with all factors but one it is the least eigenvalue.
    centred = X - X.mean(axis=1, keepdims=True)
    model = ProbabilisticPCA(n - 1).fit(centred.T)
    own = claim(centred, model.noise_variance_)[0]
    return all_of(
        equal(S @ W, SW, tol=1e-9),
        equal(fixed, W, tol=1e-9),
        at_most(nearby, log_likelihood(W), tol=1e-12),
        equal(own @ own.T, model.components_.T @ model.components_, tol=1e-8),
    )


@formula(
    "vae-elbo",
    latex=r"\log p_\theta(x) \ge \mathbb{E}_{q}[\log p_\theta(x \mid z)] - KL(q(z \mid x) \Vert p(z)) "
    r"= \log p_\theta(x) - KL(q(z \mid x) \Vert p_\theta(z \mid x))",
    where="000 §18.1; 001 §19.1; 002, 003 Variational autoencoders; 004 §5.2",
    right=lambda reconstruction, divergence: reconstruction - divergence,
    wrong=lambda reconstruction, divergence: reconstruction + divergence,
    systems=("vae",),
    functions=("corollary.generative.vae.elbo", "corollary.generative.vae.importance_log_prob"),
)
def vae_elbo(rng, claim):
    """Reconstruction minus divergence from the prior is the evidence minus divergence from the posterior.

    Shown in a linear Gaussian model, where everything is known; at the exact posterior nothing is lost.
    """
    from corollary.generative.vae import VAEModule, elbo, importance_log_prob

    W, variance, x = rng.normal(size=(3, 2)), 0.5, rng.normal(size=3)
    evidence = multivariate_normal.logpdf(x, cov=W @ W.T + variance * np.eye(3))
    posterior_cov = np.linalg.inv(np.eye(2) + W.T @ W / variance)
    posterior_mean = posterior_cov @ W.T @ x / variance
    outcomes = []
    diagonal = np.diag(rng.uniform(0.2, 1.0, 2))
    for mean, cov in ((rng.normal(size=2), diagonal), (posterior_mean, posterior_cov)):
        z, weights = gauss_hermite(mean, cov, 3)
        reconstruction = weights @ multivariate_normal.logpdf(x - z @ W.T, cov=variance * np.eye(3))
        ratio = multivariate_normal.logpdf(z, mean, cov) - multivariate_normal.logpdf(z, np.zeros(2))
        bound = claim(reconstruction, weights @ ratio)
        lost = gaussian_kl(mean, cov, posterior_mean, posterior_cov)
        outcomes += [equal(bound, evidence - lost, tol=1e-9), at_most(bound, evidence, tol=1e-9)]
    outcomes.append(equal(bound, evidence, tol=1e-9))
    # The library's autoencoder with the first of the two encoders, whatever x is.
    mean, spread = rng.normal(size=2), np.diag(diagonal)
    module = built(
        lambda: VAEModule(torch.nn.Linear(3, 4), torch.nn.Linear(2, 3), "gaussian", None),
        encoder__weight=np.zeros((4, 3)),
        encoder__bias=np.concatenate([mean, np.log(spread)]),
        decoder__weight=W,
        decoder__bias=np.zeros(3),
        log_noise=np.log(variance),
    )
    row = tensor(x[None])
    # With one draw the weighted bound is the bound; averaged over all draws it is exact.
    noise, weights = gauss_hermite(np.zeros(2), np.eye(2), 3)
    theirs = weights @ [float(importance_log_prob(module, row, tensor(e[None, None]))) for e in noise]
    z = mean + np.sqrt(spread) * noise
    reconstruction = weights @ module.log_likelihood(row, tensor(z)[:, None])[:, 0].numpy()
    divergence = gaussian_kl(mean, diagonal, np.zeros(2), np.eye(2))
    outcomes.append(equal(claim(reconstruction, divergence), theirs, tol=1e-9))
    # One random draw has the same divergence.
    with seeded(0):
        drawn = float(elbo(module, row))
    with seeded(0):
        said = float(module(row)[0])
    return all_of(*outcomes, equal(claim(said, divergence), drawn, tol=1e-9))


@formula(
    "vae-reparameterisation",
    latex=r"z = \mu + \Sigma^{1/2}\epsilon, \qquad \epsilon \sim \mathcal N(0, I) "
    r"\qquad (\text{diagonal: } z = \mu + \sigma \odot \epsilon)",
    where="001 §19.1; 002, 003 Variational autoencoders; 004 §5.2",
    right=lambda mu, Sigma, eps: mu + eps @ torch.linalg.cholesky(Sigma).T,
    wrong=lambda mu, Sigma, eps: mu + eps @ Sigma,
    systems=("vae",),
    functions=("corollary.generative.vae.reparametrise",),
)
def reparameterisation(rng, claim):
    """Mean plus a root of the covariance times standard noise has the right law and passes gradients on."""
    from corollary.generative.vae import reparametrise

    eps, weights = (torch.tensor(part) for part in gauss_hermite(np.zeros(2), np.eye(2)))
    mu, Sigma = torch.tensor(rng.normal(size=2)), torch.tensor(spd(rng, 2))
    z = claim(mu, Sigma, eps)
    mean = weights @ z
    covariance = (weights[:, None] * (z - mean)).T @ (z - mean)
    # Gradients in one dimension, against E[sin z] = sin(mu) exp(-sigma^2 / 2).
    m, s = (torch.tensor(float(v), dtype=torch.float64, requires_grad=True) for v in rng.uniform(0.5, 0.9, 2))
    path = torch.sin(claim(m, (s**2).reshape(1, 1), eps[:, :1])[:, 0])
    slopes = torch.autograd.grad(weights @ path, (m, s))
    mv, sv = m.item(), s.item()
    exact = np.array([np.cos(mv), -sv * np.sin(mv)]) * np.exp(-(sv**2) / 2)
    variances = tensor(rng.uniform(0.2, 2.0, size=2))
    with seeded(0):
        drawn = reparametrise(mu[None], variances.log()[None])
    with seeded(0):
        noise = torch.randn_like(mu[None])
    return all_of(
        equal(claim(mu, torch.diag(variances), noise), drawn, tol=1e-12),
        equal(mean, mu, tol=1e-10),
        equal(covariance, Sigma, tol=1e-10),
        equal(torch.stack(slopes), exact, tol=1e-8),
    )


def _library_kl(mu, sigma):
    from corollary.generative.vae import gaussian_kl as divergence

    return float(divergence(tensor(mu[None]), tensor(np.log(sigma**2)[None])))


@formula(
    "vae-gaussian-kl",
    latex=r"KL\big(\mathcal N(\mu, \mathrm{diag}\,\sigma^2) \,\Vert\, \mathcal N(0, I)\big) = "
    r"\tfrac12 \sum_i (\mu_i^2 + \sigma_i^2 - 1 - \ln\sigma_i^2)",
    where="003 Variational autoencoders; 004 §5.2",
    right=lambda mu, sigma: _library_kl(mu, sigma),
    wrong=lambda mu, sigma: 0.5 * np.sum(mu**2 + sigma**2 - 1 - np.log(sigma)),
    systems=("vae",),
    functions=("corollary.generative.vae.gaussian_kl",),
)
def latent_divergence(rng, claim):
    """The divergence of a diagonal Gaussian from the standard one is a sum over coordinates."""
    mu, sigma = rng.normal(size=3), rng.uniform(0.3, 0.8, size=3)
    total = 0.0
    for m, s in zip(mu, sigma):

        def integrand(z, m=m, s=s):
            q = np.exp(-0.5 * ((z - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
            return q * (0.5 * z**2 - 0.5 * ((z - m) / s) ** 2 - np.log(s))

        total += quadrature(integrand, m - 12 * s, m + 12 * s)
    return equal(claim(mu, sigma), total, tol=1e-10)
