"""Information theory: entropies and divergences, in natural units (nats)."""

import numpy as np
import torch
from scipy import optimize, special
from scipy.spatial import distance

from corollary.formulas.record import Erratum, all_of, at_least, at_most, equal, formula
from corollary.formulas.tools import gauss_hermite, simplex, spd


def _entropy(p):
    return -special.xlogy(p, p).sum(-1)


def _kl(p, q):
    return special.rel_entr(p, q).sum(-1)


@formula(
    "it-entropy",
    latex=r"H(X) = -\sum_x p(x) \log p(x) = \mathbb{E}[-\log p(X)], \qquad 0 \le H \le \log n",
    where="000, 001 §5; 002, 003 Background",
    right=_entropy,
    wrong=lambda p: -special.xlogy(p, p).sum(-1) / np.log(2),
    systems=("learning-from-loss",),
)
def entropy(rng, claim):
    """Entropy is the mean surprise: zero for a sure outcome and greatest for the uniform law."""
    p, n, h = simplex(rng, 50, 6), 6, 1e-5
    # the entropy is minus the slope of sum p^s at s = 1
    slope = ((p ** (1 + h)).sum(-1) - (p ** (1 - h)).sum(-1)) / (2 * h)
    # and the growth rate of the number of rearrangements of a long sequence with these shares
    counts = np.round(1e9 * p[0])
    rearrangements = special.gammaln(counts.sum() + 1) - special.gammaln(counts + 1).sum()
    return all_of(
        equal(claim(p), -slope, tol=1e-7),
        equal(claim(p[0]), rearrangements / counts.sum(), tol=1e-6),
        at_least(claim(p), 0),
        at_most(claim(p), np.log(n)),
        equal(claim(np.full(n, 1 / n)), np.log(n), tol=1e-12),
        equal(claim(np.eye(n)[0]), 0, tol=1e-12),
    )


@formula(
    "it-cross-entropy",
    latex=r"H(p, q) = -\sum_x p(x) \log q(x) = H(p) + KL(p \,\|\, q) \ge H(p)",
    where="000, 001 §5; 002 Losses",
    right=lambda p, q: _entropy(p) + _kl(p, q),
    wrong=lambda p, q: _entropy(p) + _kl(q, p),
    systems=("learning-from-loss", "softmax-regression"),
)
def cross_entropy(rng, claim):
    """The mean code length under the wrong law is the entropy plus the divergence, least at q = p."""
    counts = rng.integers(1, 9, size=5)
    sample, p = np.repeat(np.arange(5), counts), counts / counts.sum()
    q = simplex(rng, 200, 5) * 0.95 + 0.01
    code_length = -np.log(q[:, sample]).mean(axis=1)
    return all_of(
        equal(claim(p, q), code_length, tol=1e-12),
        at_least(claim(p, q), -np.log(p[sample]).mean()),
        equal(claim(p, p), -np.log(p[sample]).mean(), tol=1e-12),
    )


@formula(
    "it-kl",
    latex=r"KL(p \,\|\, q) = \sum_x p(x) \log \frac{p(x)}{q(x)} = H(p, q) - H(p) \ge 0,"
    r" \qquad = 0 \iff p = q",
    where="000, 001 §5; 002, 003",
    right=_kl,
    wrong=lambda p, q: _kl(q, p),
    errata=(
        Erratum(
            "T5",
            r"$KL(p, q) = H(p) - H(q)$",
            r"$H(p, q) - H(p)$",
            lambda p, q: _entropy(p) - _entropy(q),
            where="000 §5",
            kind="typing",
        ),
    ),
    systems=("vae",),
)
def kl(rng, claim):
    """The divergence is the mean log-ratio: never negative, zero only for equal laws, not symmetric."""
    counts = rng.integers(1, 9, size=5)
    sample, p = np.repeat(np.arange(5), counts), counts / counts.sum()
    q = simplex(rng, 200, 5)
    ratio = np.log(p[sample] / q[:, sample]).mean(axis=1)
    near = p + 1e-3 * np.array([1, -1, 0, 0, 0])
    hole, full = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    return all_of(
        equal(claim(p, q), ratio, tol=1e-11),
        at_least(claim(q, p), 0),
        equal(claim(p, p), 0, tol=1e-12),
        at_least(claim(p, near), 1e-7),
        equal(claim(hole, full), np.log(2), tol=1e-12),
        equal(np.isinf(claim(full, hole)), True, tol=0.1),  # mass where q has none
    )


def _kl_gaussians(mu_p, S_p, mu_q, S_q, sign=1):
    inverse, gap = np.linalg.inv(S_q), mu_q - mu_p
    ratio = np.linalg.slogdet(S_p)[1] - np.linalg.slogdet(S_q)[1]
    return 0.5 * (gap @ inverse @ gap + np.trace(inverse @ S_p) - sign * ratio - len(gap))


@formula(
    "it-kl-gaussians",
    latex=r"KL(\mathcal{N}_P \,\|\, \mathcal{N}_Q) = \tfrac12\Big["
    r"(\mu_Q - \mu_P)^\top \Sigma_Q^{-1} (\mu_Q - \mu_P)"
    r" + \mathrm{Tr}(\Sigma_Q^{-1}\Sigma_P) - \ln\frac{|\Sigma_P|}{|\Sigma_Q|} - n\Big]",
    where="003 Background",
    right=_kl_gaussians,
    wrong=lambda mu_p, S_p, mu_q, S_q: _kl_gaussians(mu_p, S_p, mu_q, S_q, sign=-1),
    systems=("vae", "ddpm"),
)
def kl_gaussians(rng, claim):
    """The divergence of two Gaussians in closed form: distance, shape and volume."""
    (mu_p, mu_q), S_p, S_q = rng.normal(size=(2, 2)), spd(rng, 2, 0.3, 1), spd(rng, 2, 1.2, 3)
    x, w = gauss_hermite(mu_p, S_p, 4)  # the log-ratio is a quadratic, so four nodes are exact

    def log_density(mu, S):
        L = np.linalg.cholesky(S)
        z = np.linalg.solve(L, (x - mu).T)
        return -0.5 * (z**2).sum(0) - np.log(np.diag(L)).sum()

    return equal(
        claim(mu_p, S_p, mu_q, S_q), w @ (log_density(mu_p, S_p) - log_density(mu_q, S_q)), tol=1e-10
    )


def _covering(w, m, s):
    mean = w @ m
    return mean, np.sqrt(w @ (s**2 + m**2) - mean**2)


def _seeking(w, m, s):
    return m[w.argmax()], s[w.argmax()]


@formula(
    "it-forward-reverse-kl",
    latex=r"\arg\max_q \mathbb{E}_p[\log q] = \arg\min_q KL(p \,\|\, q) \text{ (covers the mass)}, \qquad"
    r" \arg\min_q KL(q \,\|\, p) \text{ (seeks a mode)}",
    where="002 Generative",
    right=lambda w, m, s: (_covering(w, m, s), _seeking(w, m, s)),
    wrong=lambda w, m, s: (_seeking(w, m, s), _covering(w, m, s)),
    systems=("vae", "gan"),
)
def forward_reverse_kl(rng, claim):
    """One Gaussian fitted forward matches a mixture's moments; fitted in reverse it takes one mode."""
    w = np.array([0.65, 0.35]) + rng.uniform(-0.05, 0.05) * np.array([1, -1])
    m, s = np.array([-4.0, 4.0]) + rng.uniform(-0.5, 0.5, size=2), rng.uniform(0.6, 1, size=2)
    z, weight = gauss_hermite(0, 1, 40)
    z = z[:, 0]
    points, mass = (m[:, None] + s[:, None] * z).ravel(), (w[:, None] * weight).ravel()

    def forward(q):  # -E_p[log q] and its gradient
        gap = (points - q[0]) / np.exp(q[1])
        return mass @ (0.5 * gap**2 + q[1]), np.array([-mass @ gap / np.exp(q[1]), 1 - mass @ gap**2])

    def reverse(q):  # E_q[log q - log p] and its gradient, by reparametrisation
        x = q[0] + np.exp(q[1]) * z
        terms = np.log(w / s) - 0.5 * ((x[:, None] - m) / s) ** 2
        score = (special.softmax(terms, axis=1) * (m - x[:, None]) / s**2).sum(1)
        slope = np.array([-weight @ score, -1 - weight @ (score * np.exp(q[1]) * z)])
        return weight @ (-0.5 * z**2 - q[1] - special.logsumexp(terms, axis=1)), slope

    def best(objective):
        fits = [optimize.minimize(objective, [start, 0.0], jac=True) for start in (-3, 0, 3)]
        fit = min(fits, key=lambda fit: fit.fun)
        return fit.x[0], np.exp(fit.x[1])

    said_forward, said_reverse = claim(w, m, s)
    return all_of(
        equal(said_forward, best(forward), tol=1e-3),  # a numerical minimiser
        equal(said_reverse, best(reverse), tol=1e-2),  # the far mode still pulls a little
    )


def _jensen_shannon(p, q):
    middle = (p + q) / 2
    return (_kl(p, middle) + _kl(q, middle)) / 2


@formula(
    "it-jsd",
    latex=r"JS(P, Q) = \tfrac12 KL(P \,\|\, M) + \tfrac12 KL(Q \,\|\, M), \quad M = \tfrac12(P + Q);"
    r" \qquad 0 \le JS \le \log 2",
    where="001 §5; 002, 003 GAN",
    right=lambda p, q: (_jensen_shannon(p, q), np.log(2)),
    wrong=lambda p, q: ((_kl(p, q) + _kl(q, p)) / 2, np.log(2)),
    errata=(
        Erratum(
            "E19",
            r"$JS \in [0, \log n]$",
            r"$JS \in [0, \log 2]$",
            lambda p, q: (_jensen_shannon(p, q), np.log(p.shape[-1])),
            where="001 §5",
            kind="formula",
            loose=True,
        ),
    ),
    systems=("metrics", "gan"),
    functions=("corollary.metrics.jensen_shannon",),
)
def jsd(rng, claim):
    """The Jensen-Shannon divergence is symmetric and at most log 2, reached by disjoint supports."""
    from corollary.metrics import jensen_shannon

    p, q = simplex(rng, 2, 200, 8)
    p, q = p**3, q**3  # sharper laws, further apart
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    value, bound = claim(p, q)
    zeros = np.zeros(4)
    apart, most = claim(np.append(simplex(rng, 4), zeros), np.append(zeros, simplex(rng, 4)))
    return all_of(
        equal(value, distance.jensenshannon(p, q, axis=1) ** 2, tol=1e-10),
        equal(value, [jensen_shannon(*pair) for pair in zip(p, q)], tol=1e-12),
        equal(value, claim(q, p)[0], tol=1e-12),
        at_least(value, 0),
        at_most(value, bound),
        equal(apart, most, tol=1e-12),
    )


@formula(
    "it-soft-target-ce",
    latex=r"-\sum_j y_j \log v_j \ \ge\ -\sum_j y_j \log y_j = H(y)",
    where="002 Losses",
    right=lambda y, v: _entropy(y),
    wrong=lambda y, v: np.zeros(y.shape[:-1]),
    errata=(
        Erratum(
            "T17",
            r"lower bound $-\sum_j y_j \log v_j = H(y)$",
            r"$-\sum_j y_j \log y_j = H(y)$",
            lambda y, v: -special.xlogy(y, v).sum(-1),
            where="002 Losses",
            kind="typing",
        ),
    ),
    systems=("learning-from-loss", "distillation", "label-smoothing"),
    functions=("corollary.engine.regularisers.smoothed",),
)
def soft_target_ce(rng, claim):
    """With soft targets the cross-entropy cannot fall below the entropy of the targets, and reaches it."""
    from corollary.engine.regularisers import smoothed

    y, v = simplex(rng, 5), simplex(rng, 100, 5)
    fit = optimize.minimize(
        lambda z: special.logsumexp(z) - y @ z, np.zeros(5), jac=lambda z: special.softmax(z) - y
    )
    bound = claim(np.broadcast_to(y, v.shape), v)
    share = float(rng.uniform(0.1, 0.4))
    label = smoothed(torch.eye(5, dtype=torch.float64)[2], share, 5).numpy()
    rest, top = share / 5, 1 - 4 * share / 5
    return all_of(
        # the least loss of a smoothed label is not zero
        equal(claim(label, label), -top * np.log(top) - 4 * rest * np.log(rest), tol=1e-12),
        at_least(-(label * np.log(v)).sum(-1), claim(label, label)),
        at_least(-(y * np.log(v)).sum(-1), bound),
        equal(bound, fit.fun, tol=1e-6),
        equal(special.softmax(fit.x), y, tol=1e-3),
    )
