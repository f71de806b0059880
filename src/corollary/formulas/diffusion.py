"""Diffusion models in DDPM notation: beta is a variance, alpha = 1 - beta.

The barred alpha, the product of all alphas so far, is called ``kept`` here: the share of the data's
variance that is left. Notes 004 write alpha and beta for the roots of these.
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import logsumexp
from scipy.stats import norm

from corollary.formulas._library_tools import tensor
from corollary.formulas.record import Erratum, all_of, at_most, equal, exponent, formula
from corollary.formulas.tools import gauss_hermite, gaussian_kl


def random_schedule(rng, T):
    """Noise variances of T steps, and the share of the data's variance kept after each."""
    betas = rng.uniform(0.05, 0.5, size=T)
    return betas, np.cumprod(1 - betas)


@formula(
    "diff-forward",
    latex=r"q(x_t \mid x_{t-1}) = \mathcal N\big(\sqrt{1 - \beta_t}\,x_{t-1},\, \beta_t I\big)",
    where="001 §19.5; 003 Diffusion models; 004 §5.4",
    right=lambda beta: (np.sqrt(1 - beta), beta),
    wrong=lambda beta: (1 - beta, beta),
    systems=("ddpm",),
)
def forward(rng, claim):
    """Each step shrinks the signal and adds noise so that unit variance is kept.

    Two steps are one step with a larger beta, and each is a stretch of the process dx = -x/2 ds + dW.
    In notes 004 the roots of the two factors are named.
    """
    first, second = rng.uniform(0.05, 0.6, size=2)
    (a, v), (b, w) = claim(first), claim(second)
    joint = claim(1 - (1 - first) * (1 - second))
    # Mean and variance of that process, from the value 1, after the time in which it forgets the share beta.
    flow = solve_ivp(
        lambda s, z: [-z[0] / 2, 1 - z[1]], (0, -np.log1p(-first)), [1, 0], rtol=1e-10, atol=1e-12
    )
    eps, weights = gauss_hermite(0.0, 1.0, 3)
    x = np.concatenate([a * sign + np.sqrt(v) * eps[:, 0] for sign in (-1.0, 1.0)])  # data are fair signs
    return all_of(
        equal(np.tile(weights / 2, 2) @ x**2, 1.0, tol=1e-12),
        equal([b * a, b**2 * v + w], joint, tol=1e-12),
        equal([a, v], flow.y[:, -1], tol=1e-8),
    )


@formula(
    "diff-shortcut",
    latex=r"q(x_t \mid x_0) = \mathcal N\big(\sqrt{\bar\alpha_t}\,x_0,\, (1 - \bar\alpha_t) I\big), \qquad "
    r"\bar\alpha_t = \prod_{i \le t}(1 - \beta_i)",
    where="001 §19.5; 003 Diffusion models; 004 §5.4",
    right=lambda betas: (np.sqrt(np.prod(1 - betas)), 1 - np.prod(1 - betas)),
    errata=(
        Erratum(
            "T16",
            r"$\alpha_t$ where $\bar\alpha_t$ is meant",
            r"$\bar\alpha_t = \prod_{i \le t} \alpha_i$",
            lambda betas: (np.sqrt(1 - betas[-1]), betas[-1]),
            where="003 Diffusion",
            kind="typing",
        ),
    ),
    systems=("ddpm",),
    functions=("corollary.generative.ddpm.Levels",),
)
def shortcut(rng, claim):
    """Any number of steps is one Gaussian step, with the product of the single shares."""
    from corollary.generative.ddpm import Levels

    levels = Levels.of("cosine", int(rng.integers(5, 50)))
    kept = float(levels.kept[2])
    betas, _ = random_schedule(rng, 8)
    scale, variance = 1.0, 0.0
    for beta in betas:
        scale, variance = np.sqrt(1 - beta) * scale, (1 - beta) * variance + beta
    return all_of(
        equal(claim(betas), [scale, variance], tol=1e-12),
        equal(claim(levels.beta[:3].numpy()), [np.sqrt(kept), 1 - kept], tol=1e-12),
    )


@formula(
    "diff-limit",
    latex=r"x_t \mid x_0 \to \mathcal N(0, I) \iff \bar\alpha_t \to 0 \iff \sum_t \beta_t = \infty",
    where="003 Diffusion models; 004 §5.4",
    right=lambda betas: np.exp(np.log1p(-betas).sum()),
    wrong=lambda betas: np.exp(np.log1p(-(betas**2)).sum()),
    errata=(
        Erratum(
            "E102",
            r"$\bar\alpha_t \to 0$ is taken for granted, and $\lim_t \beta_t = 0$ asked for",
            r"$\sum_t \beta_t = \infty$ (and every $\beta_t$ small, for a Gaussian reverse step)",
            lambda betas: 0.0,
            where="004 §5.4",
            kind="claim",
            counterexample=r"$\beta_t = \frac{1}{2t^2}$: a share of $\sin(\pi/\sqrt2)/(\pi/\sqrt2) = 0.36$ of the "
            r"signal's variance is never lost",
        ),
    ),
    systems=("ddpm",),
)
def limit(rng, claim):
    """The signal is forgotten exactly if the noise variances have an infinite sum.

    The claim is the share of the signal's variance that is left. For variances a^2/t^2, with a finite sum, Euler's
    product gives its limit, sin(pi a)/(pi a); for c/t it falls like t^-c, to zero. What is left says how
    far the state is from standard normal noise.
    """
    t, a, c = np.arange(1, 100_001.0), rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.9)
    kept = [claim(c / t[:size]) for size in (1000, 10_000, 100_000)]
    short, x0 = rng.uniform(0.05, 0.3, size=12), rng.normal()
    mean, variance = x0, 0.0
    for beta in short:  # the moments of the state, step by step
        mean, variance = np.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
    share = claim(short)
    distance = gaussian_kl([np.sqrt(share) * x0], [[1 - share]], [0.0], [[1.0]])
    # the rest of the sum is a^2/1e5
    return all_of(
        equal(claim(a**2 / t**2), np.sin(np.pi * a) / (np.pi * a), tol=1e-5),
        exponent([1e3, 1e4, 1e5], kept, -c, tol=1e-3),
        equal(distance, gaussian_kl([mean], [[variance]], [0.0], [[1.0]]), tol=1e-10),
    )


def two_levels(beta, kept_before):
    """The library's levels of noise of a step with this variance and of the step before it."""
    from corollary.generative.ddpm import Levels

    return Levels(tensor([1 - kept_before, beta]), tensor([kept_before, (1 - beta) * kept_before]))


def posterior_moments(xt, x0, beta, kept_before):
    """Mean and variance of x_{t-1} given x_t and x_0, by the library."""
    mean, variance = two_levels(beta, kept_before).posterior(tensor(x0), tensor(xt), 1)
    return mean.numpy(), variance


def denoised_mean(xt, eps, beta, kept):
    """Mean of the step back with predicted noise, by the library: through the data that the noise implies."""
    levels = two_levels(beta, kept / (1 - beta))
    x0, _ = levels.both(tensor(eps), tensor(xt), 1, "epsilon")
    return levels.posterior(x0, tensor(xt), 1)[0].numpy()


@formula(
    "diff-posterior",
    latex=r"q(x_{t-1} \mid x_t, x_0) = \mathcal N(\tilde\mu_t, \tilde\beta_t I), \quad "
    r"\tilde\mu_t = \frac{1}{\sqrt{\alpha_t}}\Big(x_t - \frac{1 - \alpha_t}{\sqrt{1 - \bar\alpha_t}}"
    r"\epsilon_t\Big), \quad \epsilon_t = \frac{x_t - \sqrt{\bar\alpha_t}x_0}{\sqrt{1 - \bar\alpha_t}}, "
    r"\quad \tilde\beta_t = \frac{1 - \bar\alpha_{t-1}}{1 - \bar\alpha_t}\beta_t",
    where="003 Diffusion models",
    right=lambda *given: (*posterior_moments(*given), True),
    wrong=lambda xt, x0, beta, kept: (posterior_moments(xt, x0, beta, kept)[0], beta, True),
    errata=(
        Erratum(
            "E103",
            "only approximately Gaussian",
            "exactly Gaussian",
            lambda *given: (*posterior_moments(*given), False),
            where="003 Diffusion",
            kind="claim",
            counterexample=r"a product of Gaussian densities: the logarithm is a quadratic",
        ),
    ),
    systems=("ddpm",),
    functions=("corollary.generative.ddpm.Levels",),
)
def posterior(rng, claim):
    """Given both ends, the step back is Gaussian, exactly: a product of two Gaussian densities."""
    x0, xt = rng.normal(size=2)
    beta, kept = rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.9)
    mean, variance, exact = claim(xt, x0, beta, kept)
    x = np.linspace(-12, 12, 4001)
    log_product = norm.logpdf(x, np.sqrt(kept) * x0, np.sqrt(1 - kept))
    log_product += norm.logpdf(xt, np.sqrt(1 - beta) * x, np.sqrt(beta))
    log_product -= logsumexp(log_product) + np.log(x[1] - x[0])
    p = np.exp(log_product) * (x[1] - x[0])
    true_mean = p @ x
    true_variance = p @ (x - true_mean) ** 2
    gap = np.abs(log_product - norm.logpdf(x, true_mean, np.sqrt(true_variance)))
    return all_of(
        equal([mean, variance], [true_mean, true_variance], tol=1e-9),
        equal(exact, gap[np.abs(x) < 6].max() < 1e-8, tol=0.1),
    )


@formula(
    "diff-reverse-model",
    latex=r"p_\theta(x_{t-1} \mid x_t) = \mathcal N(\mu_\theta(x_t, t), \Sigma), \qquad "
    r"\mu_\theta = \frac{1}{\sqrt{\alpha_t}}\Big(x_t - \frac{1 - \alpha_t}{\sqrt{1 - \bar\alpha_t}}"
    r"\epsilon_\theta(x_t, t)\Big)",
    where="001 §19.5; 003 Diffusion models; 004 §5.4",
    right=denoised_mean,
    wrong=lambda xt, eps, beta, kept: (xt - np.sqrt(1 - kept) * eps) / np.sqrt(1 - beta),
    systems=("ddpm",),
    functions=("corollary.generative.ddpm.Levels",),
)
def reverse_model(rng, claim):
    """The learned step back subtracts the predicted noise; the best prediction makes it the conditional mean.

    For Gaussian data both are linear, and follow from the joint covariance of two successive states.
    """
    data, xt = float(rng.uniform(0.2, 3.0)), rng.normal(size=5)
    beta, before = rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.9)
    kept = (1 - beta) * before
    # Coordinates: data, noise up to t - 1, noise of step t; the states are linear in them.
    previous = np.array([np.sqrt(before * data), np.sqrt(1 - before), 0.0])
    current = np.sqrt(1 - beta) * previous + [0.0, 0.0, np.sqrt(beta)]
    noise = (current - [np.sqrt(kept * data), 0.0, 0.0]) / np.sqrt(1 - kept)
    best_noise = (noise @ current) / (current @ current) * xt
    expected = (previous @ current) / (current @ current) * xt
    return equal(claim(xt, best_noise, beta, kept), expected, tol=1e-12)


@formula(
    "diff-variational-bound",
    latex=r"-\log p_\theta(x_0) \le \mathbb{E}_q\Big[KL(q(x_T \mid x_0) \Vert p(x_T)) + "
    r"\sum_{t \ge 2} KL(q(x_{t-1} \mid x_t, x_0) \Vert p_\theta(x_{t-1} \mid x_t)) - "
    r"\log p_\theta(x_0 \mid x_1)\Big]",
    where="003 Diffusion models",
    right=lambda prior, transitions, reconstruction: prior + np.sum(transitions) + reconstruction,
    wrong=lambda prior, transitions, reconstruction: np.sum(transitions) + reconstruction,
    systems=("ddpm",),
    functions=("corollary.generative.ddpm.Levels",),
)
def variational_bound(rng, claim):
    """The bound for a chain splits into a divergence at the end, one per step, and a reconstruction."""
    T, x0 = 3, 1.5 + rng.random()
    betas, kept = random_schedule(rng, T)
    slopes, offsets, spreads = rng.uniform(0.6, 1.0, T), 0.2 * rng.normal(size=T), rng.uniform(0.2, 0.6, T)
    ends = [gauss_hermite(np.sqrt(k) * x0, 1 - k, 4) for k in kept]  # q(x_t | x_0), t = 1..T
    prior = gaussian_kl([np.sqrt(kept[-1]) * x0], [[1 - kept[-1]]], [0.0], [[1.0]])
    transitions = []
    for t in range(1, T):
        terms = []
        for xt in ends[t][0][:, 0]:
            mean, variance = posterior_moments(xt, x0, betas[t], kept[t - 1])
            terms.append(gaussian_kl([mean], [[variance]], [slopes[t] * xt + offsets[t]], [[spreads[t]]]))
        transitions.append(ends[t][1] @ terms)
    back = lambda t, x, given: norm.logpdf(x, slopes[t] * given + offsets[t], np.sqrt(spreads[t]))
    bound = claim(prior, transitions, -ends[0][1] @ back(0, x0, ends[0][0][:, 0]))
    # The same bound unsplit: the mean over whole paths of log q(path | x_0) - log p(x_0, path).
    eps, weights = gauss_hermite(np.zeros(T), np.eye(T), 3)
    path, log_ratio = [np.full(len(eps), x0)], np.zeros(len(eps))
    for t in range(T):
        mean = np.sqrt(1 - betas[t]) * path[-1]
        path.append(mean + np.sqrt(betas[t]) * eps[:, t])
        log_ratio += norm.logpdf(path[-1], mean, np.sqrt(betas[t])) - back(t, path[-2], path[-1])
    log_ratio -= norm.logpdf(path[-1])
    mean, variance = 0.0, 1.0
    for t in reversed(range(T)):
        mean, variance = slopes[t] * mean + offsets[t], slopes[t] ** 2 * variance + spreads[t]
    return all_of(
        equal(bound, weights @ log_ratio, tol=1e-9), at_most(-norm.logpdf(x0, mean, np.sqrt(variance)), bound)
    )


def loss_term(beta, before, gap, alpha=True):
    """Weight of the squared error of the noise in the bound."""
    kept = (1 - beta) * before
    tilde = (1 - before) / (1 - kept) * beta
    return beta**2 * gap / (2 * ((1 - beta) if alpha else 1) * (1 - kept) * tilde)


@formula(
    "diff-loss-term",
    latex=r"L_t = \frac{\lVert\tilde\mu_t - \mu_\theta\rVert^2}{2\tilde\beta_t} = "
    r"\frac{(1 - \alpha_t)^2}{2\alpha_t(1 - \bar\alpha_t)\tilde\beta_t}"
    r"\lVert\epsilon - \epsilon_\theta\rVert^2",
    where="003 Diffusion models",
    right=loss_term,
    wrong=lambda beta, before, gap: loss_term(beta, before, gap, alpha=False),
    systems=("ddpm",),
    functions=("corollary.generative.ddpm.Levels",),
)
def diffusion_loss_term(rng, claim):
    """Each divergence of the bound is a weighted squared error of the predicted noise."""
    beta, before = rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.9)
    kept = (1 - beta) * before
    x0, eps, guess = rng.normal(size=(3, 4))
    xt = np.sqrt(kept) * x0 + np.sqrt(1 - kept) * eps
    guessed_x0 = (xt - np.sqrt(1 - kept) * guess) / np.sqrt(kept)
    mean, variance = posterior_moments(xt, x0, beta, before)
    guessed_mean, _ = posterior_moments(xt, guessed_x0, beta, before)
    divergence = gaussian_kl(mean, variance * np.eye(4), guessed_mean, variance * np.eye(4))
    return equal(claim(beta, before, np.sum((eps - guess) ** 2)), divergence, tol=1e-10)


def with_noise(x0, eps, kept):
    """Data with noise, of which a share of the variance is kept, by the library."""
    from corollary.generative.ddpm import noisy

    return noisy(tensor(x0), tensor(eps), tensor(kept)).numpy()


@formula(
    "diff-simple-loss",
    latex=r"\mathbb{E}_{t, x_0, \epsilon}\big\lVert\epsilon - \epsilon_\theta\big(\sqrt{\bar\alpha_t}\,x_0 + "
    r"\sqrt{1 - \bar\alpha_t}\,\epsilon,\, t\big)\big\rVert^2",
    where="001 §19.5; 003 Diffusion models; 004 §5.4",
    right=lambda model, kept, x0, eps: (eps - model(with_noise(x0, eps, kept))) ** 2,
    wrong=lambda model, kept, x0, eps: (eps - model(np.sqrt(kept) * x0 + (1 - kept) * eps)) ** 2,
    systems=("ddpm",),
    functions=("corollary.generative.ddpm.noisy",),
)
def simple_loss(rng, claim):
    """Regress the noise on the noisy state: its conditional mean is best, and linear for Gaussian data."""
    data, mean = float(rng.uniform(0.2, 3.0)), float(rng.normal())
    nodes, weights = gauss_hermite([mean, 0.0], np.diag([data, 1.0]), 4)
    x0, eps = nodes.T
    outcomes = []
    for kept in rng.uniform(0.1, 0.9, size=4):
        centre = np.sqrt(kept) * mean
        loss = [weights @ claim(lambda x, c=c, m=centre: c * (x - m), kept, x0, eps) for c in (-1, 0, 1)]
        best = (loss[0] - loss[2]) / (2 * (loss[0] - 2 * loss[1] + loss[2]))  # vertex of the parabola
        # Conditional mean at one state, by Bayes on a grid of noise values.
        e, xt = np.linspace(-9, 9, 2001), centre + 1.0
        like = norm.pdf(e) * norm.pdf(xt - np.sqrt(1 - kept) * e, centre, np.sqrt(kept * data))
        # Regressed on the square of the state instead, the slope is E[eps x^2] / E[x^4].
        square = [weights @ claim(lambda x, c=c: c * x**2, kept, x0, eps) for c in (-1, 0, 1)]
        on_square = (square[0] - square[2]) / (2 * (square[0] - 2 * square[1] + square[2]))
        spread = kept * data + 1 - kept
        fourth = centre**4 + 6 * centre**2 * spread + 3 * spread**2
        outcomes += [
            equal(best, (like @ e) / like.sum(), tol=1e-8),
            equal(on_square, 2 * centre * np.sqrt(1 - kept) / fourth, tol=1e-8),
        ]
    return all_of(*outcomes)


def sampling_step(x, eps, beta, kept, sigma, z, power=1.0):
    """One step back; the coefficient of the noise is beta^power over the root of 1 - kept."""
    return (x - beta**power / np.sqrt(1 - kept) * eps) / np.sqrt(1 - beta) + sigma * z


@formula(
    "diff-sampling",
    latex=r"x_{t-1} = \frac{1}{\sqrt{\alpha_t}}\Big(x_t - \frac{\beta_t}{\sqrt{1 - \bar\alpha_t}}"
    r"\epsilon_\theta(x_t, t)\Big) + \sigma_t z, "
    r"\qquad x_T \sim \mathcal N(0, I), \; z = 0 \text{ at } t = 1",
    where="003 Diffusion models; 004 §5.4",
    right=sampling_step,
    errata=(
        Erratum(
            "E100",
            r"$\frac{\beta_t}{\bar\beta_t}$ in the notation of 004",
            r"$\frac{\beta_t^2}{\bar\beta_t}$ in that notation",
            lambda *given: sampling_step(*given, power=0.5),
            where="004 §5.4",
            kind="formula",
        ),
    ),
    systems=("ddpm",),
)
def sampling(rng, claim):
    """From pure noise, remove predicted noise and add a little back at every step: the data's law comes out.

    With the exact predictor of Gaussian data every variance on the way is known.
    """
    T, data = 1000, float(rng.uniform(0.1, 0.5))
    betas = np.linspace(1e-4, 0.02, T)
    kept = np.cumprod(1 - betas)
    before = np.append(1.0, kept[:-1])
    spread = kept * data + 1 - kept  # variance of x_t
    predictor = np.sqrt(1 - kept) / spread  # E[noise | x_t] per unit of x_t
    sigma = np.sqrt(betas * (1 - before) / (1 - kept))
    gain = claim(np.ones(T), predictor, betas, kept, sigma, 0.0)
    added = claim(np.zeros(T), 0.0, betas, kept, sigma, 1.0)
    variance = 1.0
    for t in reversed(range(T)):
        variance = gain[t] ** 2 * variance + (added[t] ** 2 if t else 0.0)
    # The exact step keeps the true variances if the noise has the true conditional variance.
    earlier = before * data + 1 - before
    conditional = earlier - (1 - betas) * earlier**2 / spread
    # sigma ignores the spread of the data: with a thousand steps the result is off by about 1%.
    return all_of(
        equal(np.sqrt(variance / data), 1.0, tol=0.04),
        equal(gain**2 * spread + conditional, earlier, tol=1e-10),
    )


@formula(
    "diff-sigma",
    latex=r"\sigma_t^2 \in \Big\{\beta_t,\; \frac{1 - \bar\alpha_{t-1}}{1 - \bar\alpha_t}\beta_t\Big\} "
    r"\;\hat=\; \Big\{\beta_t^2,\; \frac{\bar\beta_{t-1}^2}{\bar\beta_t^2}\beta_t^2\Big\} \text{ in 004}",
    where="003 Diffusion models; 004 §5.4",
    right=lambda b, bar, bar_before: (b**2, b**2 * bar_before**2 / bar**2),
    errata=(
        Erratum(
            "E101",
            r"$\sigma_t^2 \in \{\beta_t, \bar\beta_t\}$ in the notation of 004",
            r"$\{\beta_t^2, \beta_t^2\bar\beta_{t-1}^2/\bar\beta_t^2\}$",
            lambda b, bar, bar_before: (b, bar),
            where="004 §5.4",
            kind="formula",
        ),
    ),
    systems=("ddpm",),
)
def reverse_variance(rng, claim):
    """The two usual noise levels are the exact ones for data of unit variance and for a single data point.

    The claim takes the roots, as notes 004 write them.
    """
    beta, before = rng.uniform(0.01, 0.5), rng.uniform(0.05, 0.95)
    kept = (1 - beta) * before
    exact = []
    for data in (1.0, 0.0):
        previous = np.array([np.sqrt(before * data), np.sqrt(1 - before), 0.0])
        current = np.sqrt(1 - beta) * previous + [0.0, 0.0, np.sqrt(beta)]
        left = previous - (previous @ current) / (current @ current) * current  # residual of the regression
        exact.append(left @ left)
    return equal(claim(np.sqrt(beta), np.sqrt(1 - kept), np.sqrt(1 - before)), exact, tol=1e-12)
