"""Score matching, annealed Langevin sampling and the diffusion that runs backwards."""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy.stats import norm

from corollary.formulas._library_tools import tensor
from corollary.formulas.record import Erratum, all_of, equal, exponent, formula
from corollary.formulas.tools import gauss_hermite, gradient, quadrature


def two_bumps(rng):
    """Weights, means and standard deviations of a mixture of two Gaussians."""
    w, means = rng.uniform(0.3, 0.7), np.array([-1.5, 1.0]) + 0.3 * rng.normal(size=2)
    return np.array([w, 1 - w]), means, rng.uniform(0.3, 0.6, size=2)


@formula(
    "score-definition",
    latex=r"\nabla_x \log p(x) = \frac{\nabla p(x)}{p(x)}",
    where="003 Score-based models",
    right=lambda density, slope: slope / density,
    wrong=lambda density, slope: slope,
    systems=("score",),
)
def score_definition(rng, claim):
    """The score is the slope of the log-density, so an unknown normaliser drops out."""
    W, x = rng.normal(size=(4, 3)), rng.normal(size=3)
    energy = lambda z: 0.5 * np.sum(z**2) + np.sum(np.cos(W @ z))
    scores = []
    for normaliser in (1.0, 7.3):
        density = lambda z, n=normaliser: np.exp(-energy(z)) / n
        scores.append(claim(density(x), gradient(density, x)))
    return equal(scores, np.tile(gradient(lambda z: -energy(z), x), (2, 1)), tol=1e-6)


@formula(
    "score-fisher-divergence",
    latex=r"\mathbb{E}_p\lVert\nabla\log p - s_\theta\rVert^2 = "
    r"\mathbb{E}_p\big[\lVert s_\theta\rVert^2 + 2\,\mathrm{Tr}(\nabla s_\theta)\big] + C, \qquad "
    r"C = \mathbb{E}_p\lVert\nabla\log p\rVert^2",
    where="003 Score-based models",
    right=lambda square, trace: square + 2 * trace,
    wrong=lambda square, trace: square + trace,
    systems=("score",),
)
def fisher_divergence(rng, claim):
    """Integration by parts trades the unknown score for the divergence of the model's.

    Checked for a linear model on Gaussian data, and for a curved one on a mixture.
    """
    M, precision = rng.normal(size=(3, 3)), np.diag(rng.uniform(0.5, 2.0, size=3))
    x, weights = gauss_hermite(np.zeros(3), np.linalg.inv(precision), 3)
    model, true = x @ M.T, -x @ precision
    direct = weights @ np.sum((true - model) ** 2, axis=1)
    traded = weights @ claim(np.sum(model**2, axis=1), np.trace(M)) + weights @ np.sum(true**2, axis=1)
    w, means, stds = two_bumps(rng)

    def parts(z):
        bumps = w[:, None] * norm.pdf(z, means[:, None], stds[:, None])
        slope = np.sum(-(z - means[:, None]) / stds[:, None] ** 2 * bumps, axis=0)
        return bumps.sum(0), slope / bumps.sum(0)

    def integrands(z):
        p, score = parts(z)
        s = np.tanh(z)
        return p * np.stack([(score - s) ** 2, claim(s**2, 1 - s**2) + score**2])

    curved = quadrature(integrands, -8, 8)
    return all_of(equal(traded, direct, tol=1e-9), equal(curved[1], curved[0], tol=1e-7))


@formula(
    "score-sliced",
    latex=r"\mathbb{E}[vv^\top] = I: \; \mathbb{E}_p\mathbb{E}_v\big[(v^\top s)^2 + 2v^\top\nabla s\,v\big]"
    r" = \mathbb{E}_p\big[\lVert s\rVert^2 + 2\,\mathrm{Tr}(\nabla s)\big]",
    where="003 Score-based models",
    right=lambda d: np.array(list(product([-1.0, 1.0], repeat=d))),
    errata=(
        Erratum(
            "E104",
            r"$v$ uniform on the unit sphere, without the factor $d$",
            r"$\mathbb{E}[vv^\top] = I$: Gaussian or random signs",
            lambda d: np.array(list(product([-1.0, 1.0], repeat=d))) / np.sqrt(d),
            where="003 Score",
            kind="formula",
        ),
    ),
    systems=("score",),
    functions=("corollary.generative.score.divergence",),
)
def sliced(rng, claim):
    """Random directions with identity covariance estimate the objective without bias.

    The claim lists equally likely directions; unit vectors would give only 1/d of the objective.
    """
    from corollary.generative.score import divergence

    d = 4
    M, N = rng.normal(size=(2, d, d))
    V = claim(d)
    x = tensor(rng.normal(size=(10, d)) - 1.0).requires_grad_(True)
    s = torch.tanh(x @ tensor(N).T) @ tensor(M).T
    slices = ((s @ tensor(V).T) ** 2).mean(1) + 2 * divergence(s, x, tensor(V))
    bend = 1 - np.tanh(x.detach().numpy() @ N.T) ** 2
    traces = np.einsum("ij,nj,ji->n", M, bend, N)
    return equal(slices, (s**2).sum(1).detach().numpy() + 2 * traces, tol=1e-9)


def annealed_objective(smoothed, levels, weights, model, noisy=True):
    """Weighted Fisher divergences of the model from the data smoothed at each noise level."""

    def divergence(sigma):
        p, score = smoothed(sigma if noisy else 0.0)
        return quadrature(lambda x: p(x) * (score(x) - model(x, sigma)) ** 2, -12, 12)

    return sum(weight * divergence(sigma) for sigma, weight in zip(levels, weights))


@formula(
    "score-annealed",
    latex=r"\sum_i \lambda(i)\,\mathbb{E}_{p_{\sigma_i}}\lVert\nabla\log p_{\sigma_i}(x) - s_\theta\rVert^2, "
    r"\qquad p_\sigma = p * \mathcal N(0, \sigma^2 I)",
    where="003 Score-based models",
    right=annealed_objective,
    wrong=lambda *given: annealed_objective(*given, noisy=False),
    systems=("score",),
)
def annealed(rng, claim):
    """One model learns the scores of the data blurred at many noise levels.

    Up to a constant this is denoising: predicting the added noise from the noisy point.
    """
    w, means, stds = two_bumps(rng)
    levels, weights = np.array([0.4, 0.8, 1.6]), rng.uniform(0.5, 2.0, size=3)

    def smoothed(sigma):
        spread = np.sqrt(stds**2 + sigma**2)[:, None]
        bumps = lambda x: w[:, None] * norm.pdf(x, means[:, None], spread)
        score = lambda x: np.sum(-(x - means[:, None]) / spread**2 * bumps(x), axis=0) / bumps(x).sum(0)
        return (lambda x: bumps(x).sum(0)), score

    models = [lambda x, sigma: -x / (1 + sigma), lambda x, sigma: -0.3 * x + np.sin(x) / (1 + sigma)]

    def denoising(model):
        total = 0.0
        for sigma, weight in zip(levels, weights):
            for share, mean, std in zip(w, means, stds):
                nodes, mass = gauss_hermite([mean, 0.0], np.diag([std**2, 1.0]), 30)
                clean, eps = nodes.T
                total += weight * share * mass @ (model(clean + sigma * eps, sigma) + eps / sigma) ** 2
        return total

    objective = [claim(smoothed, levels, weights, model) for model in models]
    return equal(objective[0] - objective[1], denoising(models[0]) - denoising(models[1]), tol=1e-6)


def langevin(x, score, eta, z):
    """One step of the library's unadjusted Langevin sampler."""
    from corollary.bayes.langevin import langevin_step

    return langevin_step(tensor(x), tensor(score(x)), eta, tensor(z)).numpy()


@formula(
    "langevin-ula",
    latex=r"x_{t+1} \sim \mathcal N\big(x_t + \eta\nabla\log p(x_t),\, 2\eta I\big)",
    where="003 Score-based models",
    right=langevin,
    wrong=lambda x, score, eta, z: x + eta * score(x) + np.sqrt(eta) * z,
    systems=("langevin", "score"),
    functions=("corollary.bayes.langevin.langevin_step",),
)
def ula(rng, claim):
    """Gradient steps with noise of twice their size sample the density as the step goes to zero.

    For a standard normal the stationary variance is 1 / (1 - eta / 2); for any density one step keeps
    every mean to second order in the step.
    """
    eta = float(rng.uniform(0.05, 0.5))
    gain = claim(1.0, lambda x: -x, eta, 0.0)
    kick = claim(0.0, lambda x: -x, eta, 1.0)
    x = np.linspace(-4, 4, 801)
    shape = np.exp(-(x**4) / 2 + x**2 + 0.3 * x)
    weights = shape / shape.sum()
    z, mass = gauss_hermite(0.0, 1.0, 30)
    steps = np.array([0.02, 0.01, 0.005])
    changes = []
    for step in steps:
        moved = claim(x[:, None], lambda y: -2 * y**3 + 2 * y + 0.3, step, z[:, 0])
        changes.append(abs(weights @ (np.cos(moved) @ mass - np.cos(x))))
    return all_of(
        equal(kick**2 / (1 - gain**2), 1 / (1 - eta / 2), tol=1e-10), exponent(steps, changes, 2.0, tol=0.25)
    )


@formula(
    "sde-forward-reverse",
    latex=r"dx = f\,dt + g\,dW \quad\text{reverses to}\quad "
    r"dx = \big[f - g^2\nabla\log p_t\big]dt + g\,d\bar W",
    where="003 Score-based models",
    right=lambda f, g, score: f - g**2 * score,
    wrong=lambda f, g, score: f - 0.5 * g**2 * score,
    systems=("score",),
)
def forward_reverse(rng, claim):
    """Run backwards, a diffusion is a diffusion again, with the score in its drift.

    The marginals of a noised mixture solve the Fokker-Planck equation of the reversed process.
    """
    w, means, stds = (torch.tensor(part) for part in two_bumps(rng))
    g = float(rng.uniform(0.5, 1.5))
    x = torch.linspace(-3, 3, 41, dtype=torch.float64).requires_grad_(True)
    t = torch.full_like(x, float(rng.uniform(0.2, 1.0))).requires_grad_(True)
    # dx = -x / 2 dt + g dW turns each bump into a Gaussian again.
    fade = torch.exp(-t / 2)[:, None]
    variance = fade**2 * stds**2 + g**2 * (1 - fade**2)
    p = (w * torch.exp(-((x[:, None] - fade * means) ** 2) / (2 * variance)) / variance.sqrt()).sum(1)
    slope = lambda y, by: torch.autograd.grad(y.sum(), by, create_graph=True)[0]
    p_x = slope(p, x)
    flow = slope(claim(-x / 2, g, p_x / p) * p, x)
    return equal(-slope(p, t), flow + 0.5 * g**2 * slope(p_x, x), tol=1e-10)
