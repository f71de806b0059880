"""Latent variable models: mixtures and their EM algorithm, topic models, non-negative factorisation.

``q`` holds responsibilities with one row per sample; a topic model has ``U`` with the words of each
topic in its columns and ``V`` with the topics of each document in its columns.
"""

from __future__ import annotations

import warnings
from itertools import product
from math import log

import numpy as np
from scipy import sparse
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm, poisson

from corollary.formulas._library_tools import fitted
from corollary.formulas.record import Erratum, all_of, at_least, equal, formula
from corollary.formulas.tools import gradient, quadrature, simplex


@formula(
    "lvm-marginal",
    latex=r"p(x) = \sum_z p(x \mid z)\, p(z) \quad \text{or} \quad \int p(x \mid z)\, p(z)\, dz",
    where="000 §16.3; 004 §3",
    right=lambda likelihood, prior: likelihood @ prior,
    wrong=lambda likelihood, prior: likelihood.mean(axis=1),
    systems=("em-mixture",),
)
def lvm_marginal(rng, claim):
    """What is seen has the law of the latent cause averaged out.

    Checked on a finite table, and on a Gaussian mean with a Gaussian law, which is Gaussian again.
    """
    joint = simplex(rng, 12).reshape(4, 3)  # p(x, z)
    prior = joint.sum(axis=0)
    x, sigma = rng.normal(size=5), rng.uniform(0.5, 2)
    z = np.linspace(-10, 10, 2001) * sigma
    weights = norm.pdf(z, 0, sigma) * (z[1] - z[0])
    return all_of(
        equal(claim(joint / prior, prior), joint.sum(axis=1), tol=1e-12),
        equal(claim(norm.pdf(x[:, None], z, 1), weights), norm.pdf(x, 0, np.hypot(1, sigma)), tol=1e-10),
    )


@formula(
    "mix-model",
    latex=r"p(x; \theta) = \sum_z \pi_z\, p(x; \theta_z), \qquad "
    r"p(z \mid x) = \frac{\pi_z\, p(x; \theta_z)}{\sum_\zeta \pi_\zeta\, p(x; \theta_\zeta)}",
    where="004 §3.1",
    right=lambda weights, parts: (parts @ weights, parts * weights / (parts @ weights)[:, None]),
    wrong=lambda weights, parts: (parts @ weights, parts / parts.sum(axis=1, keepdims=True)),
    systems=("em-mixture", "gaussian-mixture"),
    functions=("corollary.mixtures.gaussian.log_joint",),
)
def mix_model(rng, claim):
    """A mixture adds weighted components; a sample belongs to each of them in proportion to its share.

    The density has mass one, and responsibilities average to the weights.
    """
    from corollary.mixtures.gaussian import Parameters, log_joint

    weights, means, scales = np.array([0.5, 0.3, 0.2]), rng.normal(size=3), rng.uniform(0.5, 1.5, size=3)
    weights = rng.permutation(weights)
    density = lambda x: claim(weights, norm.pdf(x[:, None], means, scales))
    x = rng.normal(size=8)
    joint = np.array([[w * norm.pdf(t, m, s) for w, m, s in zip(weights, means, scales)] for t in x])
    model = Parameters(weights, means[:, None], scales[:, None] ** 2, 1 / scales[:, None])
    theirs = log_joint(x[:, None], model, "diag")
    return all_of(
        equal(density(x)[0], np.exp(logsumexp(theirs, axis=1)), tol=1e-10),
        equal(density(x)[1], softmax(theirs, axis=1), tol=1e-10),
        equal(quadrature(lambda x: density(x)[0], -20, 20), 1, tol=1e-8),
        equal(quadrature(lambda x: density(x)[0] * density(x)[1].T, -20, 20), weights, tol=1e-8),
        equal(density(x)[1], joint / joint.sum(axis=1, keepdims=True), tol=1e-12),
    )


@formula(
    "mix-elbo",
    latex=r"\sum_t \log \sum_z \pi_z\, p(x_t; \theta_z) \ge "
    r"\sum_t \Bigl[\sum_z q_{tz} \log p(x_t; \theta_z) - \mathrm{KL}(q_t \Vert \pi)\Bigr],"
    r"\quad \text{equality iff } q_{tz} = p(z \mid x_t)",
    where="004 §3.1",
    right=lambda weights, log_parts, q: (q * log_parts).sum() - (q * np.log(q / weights)).sum(),
    wrong=lambda weights, log_parts, q: (q * log_parts).sum() - (weights * np.log(weights / q)).sum(),
    systems=("em-mixture",),
)
def mix_elbo(rng, claim):
    """Any responsibilities give a lower bound on the log-likelihood; the posterior attains it.

    The gap is the divergence of the responsibilities from the posterior.
    """
    weights, log_parts = simplex(rng, 3), rng.normal(size=(10, 3))
    evidence = logsumexp(log_parts + np.log(weights), axis=1)
    posterior = np.exp(log_parts + np.log(weights) - evidence[:, None])
    outcomes = [equal(claim(weights, log_parts, posterior), evidence.sum(), tol=1e-10)]
    for _ in range(10):
        q = simplex(rng, 10, 3)
        gap = evidence.sum() - claim(weights, log_parts, q)
        outcomes += [equal(gap, (q * np.log(q / posterior)).sum(), tol=1e-9), at_least(gap, 0)]
    return all_of(*outcomes)


def _poisson_em(x, weights, rates, prior=True):
    from corollary.mixtures.components import Poisson

    family, X = Poisson(smoothing=0.0), x[:, None]
    q = softmax(family.log_prob(X, {"rate": rates[:, None]}) + (np.log(weights) if prior else 0), axis=1)
    count = q.sum(axis=0)
    found = family.maximise(q.T @ family.statistics(X) / count[:, None], X.mean(axis=0), count)
    return q, q.mean(axis=0), found["rate"][:, 0]


@formula(
    "mix-em-steps",
    latex=r"\text{E: } q_{tz} \propto \pi_z\, p(x_t; \theta_z); \qquad "
    r"\text{M: } \pi_z = \tfrac{1}{s} \sum_t q_{tz}, \quad "
    r"\theta_z = \arg\max_\theta \sum_t q_{tz} \log p(x_t; \theta)",
    where="004 §3.1",
    right=_poisson_em,
    wrong=lambda x, weights, rates: _poisson_em(x, weights, rates, prior=False),
    systems=("em-mixture",),
    functions=("corollary.mixtures.components.Poisson",),
)
def mix_em_steps(rng, claim):
    """EM: responsibilities from Bayes' rule, then weighted fits; the likelihood never falls.

    Run on Poisson components, whose weighted fit is the weighted mean. The first step closes the gap of
    the bound, the second leaves it no slope in the rates or in the logits of the weights.
    """
    x = rng.poisson(np.where(rng.random(60) < 0.3, 2.0, 9.0)).astype(float)
    weights, rates = np.array([0.8, 0.2]), np.array([3.0, 6.0]) * rng.uniform(0.9, 1.1, size=2)

    def likelihood(weights, rates):
        return np.log(poisson.pmf(x[:, None], rates) @ weights).sum()

    def bound(q, weights, rates):
        return (q * (poisson.logpmf(x[:, None], rates) + np.log(weights / q))).sum()

    trace, outcomes = [likelihood(weights, rates)], []
    for _ in range(8):
        q, new_weights, new_rates = claim(x, weights, rates)
        outcomes.append(equal(bound(q, weights, rates), trace[-1], tol=1e-9))
        weights, rates = new_weights, new_rates
        trace.append(likelihood(weights, rates))
    by_rates = gradient(lambda r: bound(q, weights, r), rates)
    by_logits = gradient(lambda a: bound(q, softmax(a), rates), np.log(weights))
    return all_of(
        *outcomes,
        equal(by_rates, 0, tol=1e-5),
        equal(by_logits, 0, tol=1e-5),
        at_least(np.diff(trace), 0, tol=1e-10),
    )


def _gaussian_em(x, weights, means, points):
    distance = ((points[:, None] - means) ** 2).sum(axis=2)
    q = softmax(np.log(weights) - distance / 2, axis=1)
    return q.mean(axis=0), q.T @ x / q.sum(axis=0)[:, None]


def _printed_gaussian_em(x, weights, means):
    index = np.arange(len(means))[:, None] * np.ones(x.shape[1])  # z in place of x: no data in it
    q = softmax(np.log(weights) - ((index - means) ** 2).sum(axis=1) / 2) * np.ones((len(x), 1))
    return q.mean(axis=0), q.T @ x / q.sum(axis=0)[:, None]


@formula(
    "gmm-em",
    latex=r"q_{tz} \propto \pi_z e^{-\frac{1}{2} \lVert x_t - \mu_z \rVert^2}, \qquad "
    r"\mu_z = \frac{\sum_t q_{tz} x_t}{\sum_t q_{tz}}",
    where="004 §3.1",
    right=lambda x, weights, means: _gaussian_em(x, weights, means, x),
    errata=(
        Erratum(
            "T7",
            printed=r"responsibilities from $\lVert z_t - \mu_z\rVert^2$",
            correction=r"$\lVert x_t - \mu_z\rVert^2$: the distance of the sample to the mean",
            form=_printed_gaussian_em,
            where="004 §3.1",
            kind="typing",
        ),
    ),
    systems=("gaussian-mixture",),
    functions=("corollary.mixtures.GaussianMixture",),
)
def gmm_em(rng, claim):
    """EM for Gaussians of unit variance is a soft version of k-means.

    The likelihood never falls, and well separated means are found.
    """
    from corollary.mixtures import GaussianMixture

    true = np.array([[-4.0, 0.0], [4.0, 1.0], [0.0, 6.0]])
    labels = rng.integers(3, size=600)
    x = true[labels] + rng.normal(size=(600, 2))
    weights, means = np.full(3, 1 / 3), true + rng.uniform(-1.5, 1.5, size=(3, 2))

    def likelihood(weights, means):
        parts = norm.logpdf(x[:, None], means).sum(axis=2)
        return logsumexp(parts + np.log(weights), axis=1).sum()

    start = {"weights_init": weights, "means_init": means, "precisions_init": np.ones(3)}
    model = GaussianMixture(3, covariance_type="unit", tol=0, max_iter=12, random_state=0, **start)
    model, trace = fitted(model, x), [likelihood(weights, means)]
    for _ in range(12):
        weights, means = claim(x, weights, means)
        trace.append(likelihood(weights, means))
    centres = [x[labels == z].mean(axis=0) for z in range(3)]
    return all_of(
        at_least(np.diff(trace), 0, tol=1e-8),
        equal(means, model.means_, tol=1e-8),
        equal(weights, model.weights_, tol=1e-8),
        equal(means, centres, tol=0.1),  # a few samples between the clusters are shared
        equal(weights, np.bincount(labels) / 600, tol=0.02),
    )


def _corpus(rng, documents, words, length=30):
    """Documents as lists of word numbers, and the table of counts."""
    tokens = rng.choice(words, p=simplex(rng, words), size=(documents, length))
    tokens[0, :words] = range(words)  # every word occurs
    counts = np.array([[(row == w).sum() for w in range(words)] for row in tokens])
    return tokens, counts


@formula(
    "topic-bag-of-words",
    latex=r"N_{ij} = \#\{t : x_{it} = w_j\}, \qquad \log p(x_i) = \sum_j N_{ij} \log p(w_j)",
    where="004 §3.2",
    right=lambda tokens, words: np.bincount(tokens, minlength=words),
    wrong=lambda tokens, words: np.minimum(1, np.bincount(tokens, minlength=words)),
    systems=("plsa", "lda"),
)
def topic_bag_of_words(rng, claim):
    """If the order of words does not matter, the counts say all: any two orders are equally likely."""
    words = 6
    p, tokens = simplex(rng, words), rng.integers(words - 1, size=40)  # the last word does not occur
    by_token = sum(log(p[w]) for w in tokens)
    shuffled = rng.permutation(tokens)
    return all_of(
        equal(claim(tokens, words) @ np.log(p), by_token, tol=1e-10),
        equal(claim(shuffled, words), claim(tokens, words), tol=0),
    )


def _library_em(N, U, V):
    """The library's EM after one step: log-likelihood of all tokens before it, words and topics after it."""
    from corollary.mixtures.plsa import EM

    learner = EM(sparse.csr_matrix(N.astype(float)), U.copy(), V.T.copy(), 1, 0.0, 1)
    before = learner.sweep()["log_likelihood"] * N.sum()
    return before, learner.topics, learner.mixtures.T


@formula(
    "topic-plsa",
    latex=r"p(w_j \mid d_i) = \sum_z p(w_j \mid z)\, p(z \mid d_i), \qquad "
    r"\ell = \sum_{ij} N_{ij} \log p(w_j \mid d_i)",
    where="004 §3.2",
    right=lambda N, U, V: (N * np.log(U @ V).T).sum(),
    wrong=lambda N, U, V: (N * (np.log(U) @ V).T).sum(),
    systems=("plsa",),
    functions=("corollary.mixtures.plsa.EM",),
)
def topic_plsa(rng, claim):
    """A document mixes topics and a topic words; the likelihood of all tokens needs only their counts."""
    tokens, N = _corpus(rng, 5, 7)
    U, V = simplex(rng, 3, 7).T, simplex(rng, 5, 3).T
    by_token = sum(log(sum(U[w, z] * V[z, i] for z in range(3))) for i, row in enumerate(tokens) for w in row)
    return all_of(
        equal(claim(N, U, V), by_token, tol=1e-9), equal(claim(N, U, V), _library_em(N, U, V)[0], tol=1e-9)
    )


def _plsa_step(N, U, V):
    ratio = N.T / (U @ V)  # words by documents
    words, topics = U * (ratio @ V.T), V * (U.T @ ratio)
    return words / words.sum(axis=0), topics / topics.sum(axis=0)


def _plsa_step_wrong_axis(N, U, V):
    ratio = N.T / (U @ V)
    words, topics = U * (ratio @ V.T), V * (U.T @ ratio)
    return words / words.sum(axis=1, keepdims=True), topics / topics.sum(axis=0)


@formula(
    "topic-plsa-em",
    latex=r"q_{itz} \propto p(x_{it} \mid z)\, p(z \mid d_i); \qquad p(w_j \mid z) ="
    r"\frac{\sum_{it} q_{itz} \mathbf{1}[x_{it} = w_j]}{\sum_{it} q_{itz}}, \qquad "
    r"p(z \mid d_i) = \tfrac{1}{s_i} \sum_t q_{itz}",
    where="004 §3.2",
    right=_plsa_step,
    wrong=_plsa_step_wrong_axis,
    systems=("plsa",),
    functions=("corollary.mixtures.plsa.EM",),
)
def topic_plsa_em(rng, claim):
    """EM for topics: each token is shared out among the topics, then words and topics are counted.

    One step on the table of counts equals the step token by token, and the likelihood never falls.
    """
    tokens, N = _corpus(rng, 5, 7)
    U, V = simplex(rng, 3, 7).T, simplex(rng, 5, 3).T
    words, topics = np.zeros((7, 3)), np.zeros((3, 5))
    for i, row in enumerate(tokens):
        for w in row:
            q = U[w] * V[:, i]
            words[w] += q / q.sum()
            topics[:, i] += q / q.sum() / len(row)
    first, (_, *theirs) = claim(N, U, V), _library_em(N, U, V)
    outcomes = [
        equal(first[0], theirs[0], tol=1e-10),
        equal(first[1], theirs[1], tol=1e-10),
        equal(first[0], words / words.sum(axis=0), tol=1e-10),
        equal(first[1], topics, tol=1e-10),
    ]
    trace = []
    for _ in range(15):
        trace.append(np.log((U @ V)[tokens, np.arange(5)[:, None]]).sum())
        U, V = claim(N, U, V)
        outcomes.append(equal(np.append(U.sum(axis=0), V.sum(axis=0)), 1, tol=1e-10))
    return all_of(*outcomes, at_least(np.diff(trace), 0, tol=1e-10))


@formula(
    "lda-model",
    latex=r"v \sim \mathrm{Dir}(\alpha),\ p(v) \propto \prod_z v_z^{\alpha_z - 1}, \qquad "
    r"p(X \mid U) = \int \prod_t \Bigl(\sum_z u_{x_t z} v_z\Bigr) p(v; \alpha)\, dv",
    where="004 §3.2",
    right=lambda v, alpha: np.prod(v ** (alpha - 1)[:, None], axis=0),
    wrong=lambda v, alpha: np.prod(v ** alpha[:, None], axis=0),
    systems=("lda",),
    functions=("corollary.mixtures.lda.dirichlet_expectation",),
)
def lda_model(rng, claim):
    """A document's topic shares come from a Dirichlet law, and its words are averaged over them.

    The claim is the unnormalised density. For two topics the integral over the shares equals the sum over
    all assignments of topics to words, each weighted by its Pólya urn; counts add to the parameters.
    """
    from corollary.mixtures.lda import dirichlet_expectation

    alpha, U, x = rng.uniform(2, 4, size=2), simplex(rng, 2, 5).T, rng.integers(5, size=6)

    def density(v, a):  # the second share is the rest
        total = quadrature(lambda s: claim(np.stack([s, 1 - s]), a), 0, 1)
        return claim(np.stack([v, 1 - v]), a) / total

    likelihood = lambda v: np.prod([U[w, 0] * v + U[w, 1] * (1 - v) for w in x], axis=0)
    by_shares = quadrature(lambda v: likelihood(v) * density(v, alpha), 0, 1)
    log_beta = lambda a: gammaln(a).sum() - gammaln(a.sum())
    by_topics = 0.0
    for z in product((0, 1), repeat=len(x)):
        urn = np.exp(log_beta(alpha + np.bincount(z, minlength=2)) - log_beta(alpha))
        by_topics += urn * np.prod(U[x, list(z)])
    counts, v = rng.integers(1, 5, size=2), rng.uniform(0.1, 0.9, size=6)
    posterior = v ** counts[0] * (1 - v) ** counts[1] * density(v, alpha)
    ratio = posterior / density(v, alpha + counts)
    beta_law = np.exp((alpha[0] - 1) * np.log(v) + (alpha[1] - 1) * np.log1p(-v) - log_beta(alpha))
    mean_log = quadrature(lambda s: np.log(s) * density(s, alpha), 0, 1)
    return all_of(
        equal(mean_log, dirichlet_expectation(alpha[None])[0, 0], tol=1e-6),
        equal(by_shares, by_topics, tol=1e-6, relative=True),
        equal(ratio / ratio[0], 1, tol=1e-9),
        equal(density(v, alpha), beta_law, tol=1e-6),
    )


@formula(
    "nmf-likelihood",
    latex=r"\hat N = UV,\quad \hat N_{ji} = p(w_j \mid d_i): \qquad "
    r"\max_{U, V} \sum_{ij} N_{ij} \log \hat N_{ji}",
    where="004 §3.2",
    right=lambda N, estimate: (N * np.log(estimate.T)).sum(),
    errata=(
        Erratum(
            "E38",
            printed=r"$\sum_{ij} N_{ij}\log\hat N_{ij}$",
            correction=r"$\hat N_{ji}$: the counts are documents by words, $UV$ is words by documents",
            form=lambda N, estimate: (N * np.log(estimate)).sum(),
            where="004 §3.2",
            kind="dimensions",
        ),
    ),
    systems=("nmf", "plsa"),
    functions=("corollary.mixtures.plsa.EM",),
)
def nmf_likelihood(rng, claim):
    """The likelihood of a topic model is a non-negative factorisation of the counts.

    There are as many words as documents here, so that the misprint can be evaluated.
    """
    tokens, N = _corpus(rng, 6, 6)
    U, V = simplex(rng, 3, 6).T, simplex(rng, 6, 3).T
    by_token = sum(log(U[w] @ V[:, i]) for i, row in enumerate(tokens) for w in row)
    return all_of(
        equal(claim(N, U @ V), by_token, tol=1e-9),
        equal(claim(N, U @ V), _library_em(N, U, V)[0], tol=1e-9),
        equal((U @ V).sum(axis=0), 1, tol=1e-12),  # columns are laws over words
    )


def _clipped_solve(A, U):
    return np.maximum(0, np.linalg.lstsq(U, A)[0])


@formula(
    "nmf-projected-als",
    latex=r"V \leftarrow \max\{0, \arg\min_V \lVert A - UV \rVert_F\}, \qquad "
    r"U \leftarrow \max\{0, \arg\min_U \lVert A - UV \rVert_F\}",
    where="004 §3.2, footnote 10",
    right=_clipped_solve,
    wrong=lambda A, U: np.linalg.lstsq(U, A)[0],
    systems=("nmf",),
    functions=("corollary.completion.NMF",),
)
def nmf_projected_als(rng, claim):
    """Solve for one factor without the constraint, then clip at zero; a heuristic that works on exact data.

    The claim is one such solve. Nothing guarantees descent, so the best of some starts counts.
    """
    from corollary.completion import NMF

    U, V = rng.gamma(0.7, size=(12, 2)), rng.gamma(0.7, size=(2, 12))
    A = U @ V
    # one sweep of the library's: first W, then H
    U, V = rng.random((12, 2)), rng.random((2, 12))
    model = NMF(2, init="custom", solver="als", max_iter=1, tol=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one sweep does not converge
        W = model.fit_transform(A, W=U.copy(), H=V.copy())
    first = claim(A.T, V.T).T
    # its tiny ridge shows where a factor is nearly singular
    theirs = [equal(first, W, tol=1e-3), equal(claim(A, first), model.components_, tol=1e-3)]
    best, least = np.inf, claim(A, rng.normal(size=(12, 2))).min()  # plain solutions have either sign
    for _ in range(12):
        U = rng.random((12, 2))
        for _ in range(600):
            V = claim(A, U)
            U = claim(A.T, V.T).T
            best = min(best, np.linalg.norm(A - U @ V) / np.linalg.norm(A))
            least = min(least, U.min(), V.min())
            if best < 5e-4:
                break
        if best < 5e-4:
            break
    return all_of(at_least(least, 0), equal(best, 0, tol=1e-3), *theirs)
