"""Boltzmann machines and nonparametric priors: what the notes name in words, as formulas."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import poisson

from corollary.formulas._connectionism_tools import binary_inputs
from corollary.formulas.record import all_of, equal, formula


def _conditionals(v, h, W, b, c):
    from corollary.connectionism.rbm import mean_hidden, mean_visible

    return mean_hidden(v, W, c), mean_visible(h, W, b)


def _energies(W, b, c):
    """Energies of all states of a restricted Boltzmann machine, visible by hidden; W is (hidden, visible)."""
    v, h = binary_inputs(len(b)), binary_inputs(len(c))
    return v, h, -(v @ b)[:, None] - h @ c - v @ W.T @ h.T


@formula(
    "rbm-conditionals",
    latex=r"p(v, h) \propto e^{b^\top v + c^\top h + h^\top W v}: \qquad "
    r"p(h_j = 1 \mid v) = \sigma(c_j + W_j v), \qquad p(v_i = 1 \mid h) = \sigma(b_i + h^\top W_{\cdot i})",
    where="000 §16.3",
    right=_conditionals,
    wrong=lambda v, h, W, b, c: _conditionals(v, h, W, 0 * b, 0 * c),
    systems=("rbm",),
    functions=("corollary.connectionism.BernoulliRBM",),
)
def rbm_conditionals(rng, claim):
    """In a restricted Boltzmann machine the units of one layer are independent given the other.

    All states of a small machine are summed; the law of a layer given the other is the product of its units'.
    """
    from corollary.connectionism import BernoulliRBM

    W, b, c = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=3)
    v, h, energy = _energies(W, b, c)
    joint = np.exp(-energy) / np.exp(-energy).sum()
    given_v, given_h = joint / joint.sum(1, keepdims=True), (joint / joint.sum(0)).T
    hidden, visible = claim(v.astype(float), h.astype(float), W, b, c)
    independent = np.prod(np.where(h == 1, hidden[:, None], 1 - hidden[:, None]), axis=-1)
    model = BernoulliRBM(3, n_iter=1, random_state=0).fit(v)
    theirs, _ = claim(
        v.astype(float), h.astype(float), model.components_, model.intercept_visible_, model.intercept_hidden_
    )
    return all_of(
        equal(hidden, given_v @ h, tol=1e-12),
        equal(visible, given_h @ v, tol=1e-12),
        equal(independent, given_v, tol=1e-12),
        equal(theirs, model.transform(v), tol=1e-8),
    )


def _free_energy(v, W, b, c):
    from corollary.connectionism.rbm import free_energy

    return free_energy(v, W, b, c)


@formula(
    "rbm-free-energy",
    latex=r"F(v) = -b^\top v - \sum_j \log\bigl(1 + e^{c_j + W_j v}\bigr), \qquad p(v) = \frac{e^{-F(v)}}{Z}",
    where="000 §16.3",
    right=_free_energy,
    wrong=lambda v, W, b, c: -(v @ b) - np.maximum(0, v @ W.T + c).sum(1),
    systems=("rbm",),
    functions=("corollary.connectionism.rbm.free_energy",),
)
def rbm_free_energy(rng, claim):
    """Summing the hidden units out of a Boltzmann machine leaves a softplus for each of them."""
    W, b, c = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=3)
    v, _, energy = _energies(W, b, c)
    return equal(claim(v.astype(float), W, b, c), -logsumexp(-energy, axis=1), tol=1e-12)


def _partitions(n):
    """All ways to seat n customers, as restricted growth strings."""
    for labels in product(range(n), repeat=n):
        if all(label <= max(labels[:i], default=-1) + 1 for i, label in enumerate(labels)):
            yield labels


def _seating(counts, alpha):
    from corollary.mixtures.dirichlet_process import expected_tables, log_seating

    return log_seating(counts, alpha), expected_tables(int(np.sum(counts)), alpha)


@formula(
    "dp-chinese-restaurant",
    latex=r"P(z_{n+1} = k) = \frac{n_k}{n + \alpha},\ P(\text{new}) = \frac{\alpha}{n + \alpha}: \qquad "
    r"P(z) = \frac{\Gamma(\alpha)}{\Gamma(\alpha + n)}\,\alpha^K \prod_k \Gamma(n_k), \qquad "
    r"\mathbb E[K] = \sum_{i=0}^{n-1}\frac{\alpha}{\alpha + i}",
    where="000 §16.3",
    right=_seating,
    wrong=lambda counts, alpha: (_seating(counts, alpha)[0], alpha * np.log(np.sum(counts))),
    systems=("dirichlet-process",),
    functions=("corollary.mixtures.dirichlet_process.log_seating",),
)
def chinese_restaurant(rng, claim):
    """In a Chinese restaurant (Dirichlet process) the chance of a seating does not depend on the order of arrival.

    All seatings of five customers are enumerated, one arrival at a time.
    """
    n, alpha = 5, rng.uniform(0.5, 2)
    outcomes, total, tables = [], 0.0, 0.0
    for labels in _partitions(n):
        chance, counts = 1.0, []
        for i, label in enumerate(labels):
            if label == len(counts):
                counts.append(0)
            chance *= (counts[label] or alpha) / (i + alpha)
            counts[label] += 1
        log_chance, expected = claim(np.array(counts), alpha)
        outcomes.append(equal(log_chance, np.log(chance), tol=1e-10))
        total, tables = total + chance, tables + chance * len(counts)
    return all_of(*outcomes, equal(total, 1.0, tol=1e-12), equal(expected, tables, tol=1e-12))


@formula(
    "dp-stick-breaking",
    latex=r"\pi_k = v_k \prod_{l < k}(1 - v_l),\ v_k \sim \mathrm{Beta}(1, \alpha): \qquad "
    r"\mathbb E[\pi_k] = \frac{1}{1 + \alpha}\Bigl(\frac{\alpha}{1 + \alpha}\Bigr)^{k-1}",
    where="000 §16.3",
    right=lambda v: v * np.concatenate([[1.0], np.cumprod(1 - v)[:-1]]),
    wrong=lambda v: v * np.cumprod(1 - v),
    systems=("dirichlet-process",),
)
def stick_breaking(rng, claim):
    """A Dirichlet process breaks a stick for ever: each weight is a share of what the earlier ones left.

    The shares are independent, so the mean of a product is a product of means; quadrature over two of them
    gives also the chance alpha / (1 + alpha) that two draws differ.
    """
    alpha = rng.uniform(0.5, 2)
    u = (np.arange(2000) + 0.5) / 2000
    shares = 1 - (1 - u) ** (1 / alpha)  # quantiles of Beta(1, alpha)
    v = rng.choice(shares, size=6)
    left = [1.0]
    for share in v:
        left.append(left[-1] * (1 - share))
    first, second = shares.mean(), (shares**2).mean()
    kept = ((1 - shares) ** 2).mean()
    means = claim(np.full(6, first))  # linear in each share
    expected = [1 / (1 + alpha) * (alpha / (1 + alpha)) ** k for k in range(6)]
    return all_of(
        equal(claim(v), -np.diff(left), tol=1e-12),
        equal(means, expected, tol=1e-3),  # 2000 quantiles
        equal(second / (1 - kept), 1 / (1 + alpha), tol=1e-3),  # two draws agree
    )


def _buffet(Z, alpha):
    from corollary.mixtures.indian_buffet import harmonic, log_buffet

    return log_buffet(Z, alpha), alpha * harmonic(len(Z))


@formula(
    "ibp-dishes",
    latex=r"P([Z]) = \frac{\alpha^K e^{-\alpha H_n}}{\prod_h K_h!}\prod_k \frac{(n - m_k)!\,(m_k - 1)!}{n!}, \qquad "
    r"K \sim \mathrm{Poisson}(\alpha H_n)",
    where="000 §16.3",
    right=_buffet,
    wrong=lambda Z, alpha: (_buffet(Z, alpha)[0], alpha * np.log(len(Z))),
    systems=("dirichlet-process",),
    functions=("corollary.mixtures.indian_buffet.log_buffet",),
)
def indian_buffet(rng, claim):
    """In the Indian buffet (beta process) customer i takes a dish that m had with chance m/i, and new ones.

    For two customers and up to six dishes all tables are summed: the number of dishes is Poisson.
    """
    alpha, outcomes = rng.uniform(0.5, 1.5), []
    for dishes in range(7):
        log_chances = []
        for only_first in range(dishes + 1):
            for both in range(dishes + 1 - only_first):
                kinds = [(1, 0)] * only_first + [(1, 1)] * both + [(0, 1)] * (dishes - only_first - both)
                Z = np.array(kinds, dtype=int).reshape(-1, 2).T
                log_chance, rate = claim(Z, alpha)
                # Poisson(alpha) dishes first, half of them again, Poisson(alpha / 2) new ones.
                first, new = only_first + both, dishes - only_first - both
                steps = poisson(alpha).logpmf(first) + poisson(alpha / 2).logpmf(new) - first * np.log(2)
                steps += gammaln(first + 1) - gammaln(both + 1) - gammaln(only_first + 1)
                outcomes.append(equal(log_chance, steps, tol=1e-10))
                log_chances.append(log_chance)
        outcomes.append(equal(np.exp(logsumexp(log_chances)), poisson(rate).pmf(dishes), tol=1e-12))
    return all_of(*outcomes)
