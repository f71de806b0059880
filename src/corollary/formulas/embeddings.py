"""Word embeddings: co-occurrence counts, skip-gram, negative sampling, mutual information and GloVe.

``N[v, w]`` counts context word v around centre word w; ``zeta`` holds the vectors of centre words in
its rows and ``z`` those of context words.
"""

from __future__ import annotations

from math import log

import numpy as np
from scipy import sparse
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, logit, softmax

from corollary.formulas._library_tools import fitted
from corollary.formulas.record import Erratum, all_of, at_most, equal, formula
from corollary.formulas.tools import gradient, jacobian, simplex


def _window_counts(tokens, words, offsets):
    """Context v (rows) around centre w (columns), by shifting the text against itself."""
    N = np.zeros((words, words))
    for shift in offsets:
        centre = tokens[max(0, -shift) : len(tokens) - max(0, shift)]
        context = tokens[max(0, shift) : len(tokens) + min(0, shift)]
        np.add.at(N, (context, centre), 1)
    return N


def _library_counts(tokens, words, R):
    from corollary.embeddings.corpus import Corpus, window_counts

    text = Corpus(tokens.astype(np.int32), np.array([0, len(tokens)]))
    return window_counts(text, words, R).toarray()


@formula(
    "emb-cooccurrence",
    latex=r"\mathcal C_R = \{(i, j) : 1 \le \lvert i - j \rvert \le R\}, \qquad "
    r"N_{vw} = \#\{(i, j) \in \mathcal C_R : x_i = v,\ x_j = w\} = N_{wv}",
    where="000 §14; 004 §3.3",
    right=lambda tokens, words, R: _library_counts(tokens, words, R),
    wrong=lambda tokens, words, R: _window_counts(tokens, words, range(-R, R + 1)),
    systems=("cooccurrence",),
    functions=("corollary.embeddings.window_counts",),
)
def emb_cooccurrence(rng, claim):
    """Counts of pairs at a distance of at most R, not counting a word with itself; symmetric."""
    tokens, words, R = rng.integers(6, size=60), 6, int(rng.integers(1, 4))
    pairs = [(i, j) for i in range(60) for j in range(60) if 1 <= abs(i - j) <= R]
    table = np.zeros((6, 6))
    for i, j in pairs:
        table[tokens[i], tokens[j]] += 1
    N = claim(tokens, words, R)
    return all_of(equal(N, table, tol=0), equal(N, N.T, tol=0))


def _leading(C, k):
    values, V = np.linalg.eigh(C)
    order = np.argsort(-np.abs(values))[:k]
    return values[order], V[:, order]


def _spectral_embedding(C, k):
    values, V = _leading(C, k)
    return V * np.sqrt(np.abs(values)), np.sign(values)


def _printed_embedding(C, k):
    values, V = _leading(C, k)
    return V * np.sqrt(values.astype(complex)).real, np.ones(k)


def _library_embedding(C, k):
    from corollary.embeddings.cooccurrence import eigen_embedding

    E, values = eigen_embedding(sparse.csr_matrix(C), k, np.random.default_rng(0))
    return E, np.sign(values)


@formula(
    "emb-spectral-factor",
    latex=r"C = V \Lambda V^\top \approx V_k \Lambda_k V_k^\top = E\, \mathrm{sign}(\Lambda_k) E^\top, "
    r"\qquad E = V_k \lvert \Lambda_k \rvert^{1/2}",
    where="000 §14.1.1",
    right=lambda C, k: _library_embedding(C, k),
    wrong=lambda C, k: (_spectral_embedding(C, k)[0], np.ones(k)),
    errata=(
        Erratum(
            "E41",
            printed=r"$V_k\Lambda_k^{1/2}$, as if $C$ were positive semidefinite",
            correction=r"$V_k\lvert\Lambda_k\rvert^{1/2}$ with the signs kept: $C$ is indefinite",
            form=_printed_embedding,
            where="000 §14",
            kind="claim",
            counterexample=r"two words that alternate: $\begin{pmatrix} 0 & 9 \\ 9 & 0 \end{pmatrix}$ has the "
            r"eigenvalues $\pm 9$",
        ),
    ),
    systems=("cooccurrence",),
    functions=("corollary.embeddings.cooccurrence.eigen_embedding",),
)
def emb_spectral_factor(rng, claim):
    """A symmetric table of counts is nearly the product of k-vectors with one sign for each coordinate.

    Words that follow each other but never themselves give negative eigenvalues, so a plain square root
    loses part of the table. The claim gives vectors and signs.
    """
    k, nouns = 3, rng.integers(3, size=150)
    verbs = 3 + rng.integers(3, size=150)
    tokens = np.stack([nouns, verbs], axis=1).ravel()  # the two kinds alternate
    C = _window_counts(tokens, 6, (-1, 1))
    E, signs = claim(C, k)
    # The two leading eigenvalues are opposite, and so are the next: take an even number.
    E2, signs2 = claim(C, 2)
    U, s, Vt = np.linalg.svd(C)
    best = (U[:, :2] * s[:2]) @ Vt[:2]
    lost = np.sqrt((s[k:] ** 2).sum())
    return all_of(
        equal((E2 * signs2) @ E2.T, best, tol=1e-8),
        equal(np.linalg.norm(C - (E * signs) @ E.T), lost, tol=1e-8),
    )


@formula(
    "emb-skipgram-likelihood",
    latex=r"\sum_t \sum_{\delta \in \mathcal I} \log p(x_{t+\delta} \mid x_t) ="
    r"\sum_{vw} N_{vw} \log p(v \mid w)",
    where="000 §14; 004 §3.3",
    right=lambda N, log_p: (N * log_p).sum(),
    wrong=lambda N, log_p: (N * log_p.T).sum(),
    systems=("skipgram-softmax",),
)
def emb_skipgram_likelihood(rng, claim):
    """Context words are independent given their centre, so a text's likelihood needs only pair counts."""
    tokens, offsets = rng.integers(5, size=80), (1, 2)  # one-sided, so that the table is not symmetric
    log_p = np.log(simplex(rng, 5, 5).T)  # log_p[v, w] = log p(v | w)
    by_position = sum(
        log_p[tokens[t + d], tokens[t]] for t in range(80) for d in offsets if 0 <= t + d < len(tokens)
    )
    return equal(claim(_window_counts(tokens, 5, offsets), log_p), by_position, tol=1e-9)


def _scores(zeta, z, b):
    return np.exp(z @ zeta.T + b[:, None])


@formula(
    "emb-skipgram-softmax",
    latex=r"p(v \mid w) = \frac{\exp(\langle \zeta_w, z_v \rangle + b_v)}"
    r"{\sum_u \exp(\langle \zeta_w, z_u \rangle + b_u)}",
    where="000 §14; 003; 004 §3.3",
    right=lambda zeta, z, b: _scores(zeta, z, b) / _scores(zeta, z, b).sum(axis=0),
    errata=(
        Erratum(
            "E39",
            printed=r"$P(w_i\mid w_j) = e^{x_i^\top z_j}/\sum_u e^{x_i^\top z_u}$",
            correction=r"the sum runs over the predicted word: $\sum_u e^{x_u^\top z_j}$",
            form=lambda zeta, z, b: _scores(zeta, z, b) / _scores(zeta, z, b).sum(axis=1, keepdims=True),
            where="000 §14",
            kind="formula",
        ),
    ),
    systems=("skipgram-softmax",),
    functions=("corollary.embeddings.SkipGram",),
)
def emb_skipgram_softmax(rng, claim):
    """A centre word predicts its context by a softmax over the predicted words, with two tables of vectors.

    Columns are laws; the slope of a log-probability is what happened less what was expected.
    """
    from corollary.embeddings import SkipGram

    zeta, z, b = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.normal(size=5)
    p = claim(zeta, z, b)
    v, w = rng.integers(5, size=2)
    slope = gradient(lambda vectors: np.log(claim(zeta, vectors, b)[v, w]), z)
    expected = np.outer(np.eye(5)[v] - softmax(z @ zeta[w] + b), zeta[w])
    columns = np.stack([softmax(z @ vector + b) for vector in zeta], axis=1)
    texts = [" ".join("abcde"[w] for w in row) for row in rng.integers(5, size=(4, 10))]
    model = fitted(SkipGram(3, loss="softmax", min_count=1, epochs=2, random_state=0), texts)
    theirs = model.context_probabilities(model.words_).T
    own = [part.astype(float) for part in (model.vectors_, model.context_vectors_, model.bias_)]
    return all_of(
        equal(claim(*own), theirs, tol=1e-10),
        equal(p.sum(axis=0), 1, tol=1e-12),
        equal(p, columns, tol=1e-12),
        equal(slope, expected, tol=1e-6),
    )


@formula(
    "emb-negative-sampling",
    latex=r"\max \sum_{(i, j) \in S^+} \log \sigma(x_i^\top z_j) +"
    r"\sum_{(i, j) \in S^-} \log \sigma(-x_i^\top z_j)",
    where="000 §14; 004 §3.3",
    right=lambda score, seen, noise: -seen * log_expit(score) - noise * log_expit(-score),
    wrong=lambda score, seen, noise: -seen * log_expit(score) - seen * log_expit(-score),
    errata=(
        Erratum(
            "E40",
            printed=r"negatives enter as $\log(1 - P(D = 0))$",
            correction=r"$\log P(D = 0) = \log\sigma(-x^\top z)$, over pairs of their own",
            form=lambda score, seen, noise: -seen * log_expit(score) - noise * log_expit(score),
            where="000 §14",
            kind="formula",
        ),
        Erratum(
            "E42",
            printed=r"a log-likelihood to be minimised",
            correction=r"it is maximised",
            form=lambda score, seen, noise: seen * log_expit(score) + noise * log_expit(-score),
            where="004 §3.3",
            kind="claim",
            counterexample=r"the least value of $\log\sigma(s)$ is at $s \to -\infty$, where the observed pair is "
            r"impossible",
        ),
    ),
    systems=("skipgram-negative",),
)
def emb_negative_sampling(rng, claim):
    """Embeddings as a classifier of true pairs against noise.

    The claim is what to minimise as a function of a pair's score, seen so often as a true pair and so
    often as noise. Its minimum is the log-ratio of the two, for noise from the product of the
    marginals a shifted mutual information.
    """
    joint, r = simplex(rng, 9).reshape(3, 3) + 0.05, int(rng.integers(2, 6))
    joint /= joint.sum()
    noise = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    search = {"bounds": (-12, 12), "method": "bounded", "options": {"xatol": 1e-7}}
    best = [
        minimize_scalar(lambda s, p=p, q=q: claim(s, p, r * q), **search).x
        for p, q in zip(joint.ravel(), noise.ravel())
    ]
    return equal(best, np.log(joint / noise).ravel() - log(r), tol=1e-4)


def _noise_law(p, alpha):
    return p**alpha / (p**alpha).sum()


@formula(
    "emb-negative-distribution",
    latex=r"q(w) = \frac{p(w)^\alpha}{\sum_u p(u)^\alpha},\ \alpha = \tfrac{3}{4}; \qquad "
    r"\frac{\lvert S^- \rvert}{\lvert S^+ \rvert} = \frac{r}{\lvert \mathcal I \rvert}"
    r"\text{ with } r \text{ negatives per position}",
    where="004 §3.3",
    right=lambda p, alpha, r, window: (_noise_law(p, alpha), r / window),
    wrong=lambda p, alpha, r, window: (_noise_law(p, 1 / alpha), r / window),
    errata=(
        Erratum(
            "E42",
            printed=r"$r$ is the number of negatives for each positive",
            correction=r"the set has $r$ for each position, $r/\lvert\mathcal I\rvert$ for each positive",
            form=lambda p, alpha, r, window: (_noise_law(p, alpha), r),
            where="004 §3.3",
            kind="claim",
            counterexample=r"two offsets and $r = 2$: one negative for each positive",
        ),
    ),
    systems=("skipgram-negative",),
    functions=("corollary.embeddings.skipgram_kernels.noise_table",),
)
def emb_negative_distribution(rng, claim):
    """Noise words come from a flattened word law, so many for each position of the text.

    The law is sampled by rejection and the pairs of both kinds are counted. The claim gives the law and
    the ratio of negative to positive pairs.
    """
    from corollary.embeddings.skipgram_kernels import noise_table

    p, alpha, r, offsets = np.array([0.55, 0.25, 0.15, 0.05]), 0.75, 2, (-2, -1, 1, 2)
    law, ratio = claim(p, alpha, r, len(offsets))
    draws = rng.choice(4, p=p, size=200_000)
    kept = draws[rng.random(len(draws)) < (p.min() / p[draws]) ** (1 - alpha)]  # rare words are kept
    frequency = np.bincount(kept, minlength=4) / len(kept)
    table = np.bincount(noise_table(1000 * p, alpha))  # the library draws by a place in this table
    positions = range(2, 998)
    positive = [(t, t + d) for t in positions for d in offsets]
    negative = [(t, kept[j]) for t in positions for j in range(r)]
    return all_of(
        equal(law, table / table.sum(), tol=1e-5),  # a million places
        equal(law, frequency, tol=0.01),  # about 120000 draws: four deviations are 0.006
        equal(ratio, len(negative) / len(positive), tol=1e-9),
    )


@formula(
    "emb-bayes-logit",
    latex=r"\Pr[\text{true} \mid v, w] = \frac{\pi p}{\pi p + (1 - \pi) q}, \qquad "
    r"h^* = \log \frac{p(v, w)}{q(v, w)} + \log \frac{\pi}{1 - \pi}",
    where="004 §3.3",
    right=lambda p, q, share: np.log(p / q) + log(share / (1 - share)),
    wrong=lambda p, q, share: np.log(p / q),
    systems=("skipgram-negative",),
)
def emb_bayes_logit(rng, claim):
    """The best classifier's logit is the log-ratio of the two laws plus the log-odds of the classes."""
    p, q, share = simplex(rng, 6) + 0.02, simplex(rng, 6) + 0.02, rng.choice([0.2, 0.3, 0.8])
    true, noise = share * p, (1 - share) * q
    # Minimise the expected logistic loss pair by pair with Newton's method, from zero.
    h = np.zeros(6)
    for _ in range(100):
        slope = (true + noise) * expit(h) - true
        h -= np.clip(slope / ((true + noise) * expit(h) * expit(-h)), -1, 1)
    return all_of(
        equal(claim(p, q, share), h, tol=1e-8),
        equal(claim(p, q, share), logit(true / (true + noise)), tol=1e-10),
    )


@formula(
    "emb-pmi",
    latex=r"\mathrm{pmi}(v, w) = \log \frac{P(v, w)}{P(v) P(w)} = \log \frac{P(v \mid w)}{P(v)}",
    where="000 §14; 004 §3.3",
    right=lambda joint: np.log(joint / np.outer(joint.sum(axis=1), joint.sum(axis=0))),
    wrong=lambda joint: np.log(joint / joint.sum(axis=1, keepdims=True)),
    systems=("cooccurrence", "skipgram-negative"),
    functions=("corollary.embeddings.cooccurrence.pmi",),
)
def emb_pmi(rng, claim):
    """Pointwise mutual information: how much more often two words meet than by chance.

    Its mean is the mutual information, the entropies of the parts less that of the pair, and it vanishes
    for independent words.
    """
    from corollary.embeddings.cooccurrence import pmi

    joint = simplex(rng, 12).reshape(3, 4)
    v, w = simplex(rng, 3), simplex(rng, 4)
    entropy = lambda p: -(p * np.log(p)).sum()
    information = entropy(joint.sum(axis=1)) + entropy(joint.sum(axis=0)) - entropy(joint)
    conditional = joint / joint.sum(axis=0)  # P(v | w)
    return all_of(
        equal((joint * claim(joint)).sum(), information, tol=1e-10),
        equal(claim(joint), pmi(sparse.csr_matrix(joint), positive=False).toarray(), tol=1e-10),
        equal(claim(joint), np.log(conditional) - np.log(joint.sum(axis=1))[:, None], tol=1e-10),
        equal(claim(np.outer(v, w)), 0, tol=1e-10),
    )


def _glove_terms(N, zeta, z, most, alpha, power=2):
    seen = N > 0
    rest = (np.log(np.where(seen, N, 1)) - z @ zeta.T) ** power
    return (np.minimum(1, (N / most) ** alpha) * rest)[seen].sum()


def _counts(rng, words=5):
    N = rng.poisson(4.0, size=(words, words)).astype(float)
    N[0, :2], N[1, 0] = (0, 20), 1
    return N


def _library_glove(N, zeta, z, most, alpha):
    from corollary.embeddings.glove import glove_loss

    none = np.zeros(len(N))
    return glove_loss(sparse.csr_matrix(N), zeta, z, none, none, most, alpha)


@formula(
    "emb-glove-loss",
    latex=r"\min \sum_{N_{vw} > 0} f(N_{vw}) \bigl(\log N_{vw} - \langle \zeta_w, z_v \rangle\bigr)^2, "
    r"\qquad f(N) = \min\{1, (N / N_{\max})^\alpha\},\ \alpha = \tfrac{3}{4}",
    where="004 §3.3",
    right=lambda N, zeta, z, most, alpha: _library_glove(N, zeta, z, most, alpha),
    wrong=lambda N, zeta, z, most, alpha: _glove_terms(N, zeta, z, most, alpha, power=1),
    errata=(
        Erratum(
            "E42",
            printed=r"the objective is maximised",
            correction=r"it is minimised, with the square also in the special case",
            form=lambda N, zeta, z, most, alpha: -_glove_terms(N, zeta, z, most, alpha),
            where="004 §3.3",
            kind="claim",
            counterexample=r"a weighted sum of squares has no maximum",
        ),
    ),
    systems=("glove",),
    functions=("corollary.embeddings.glove.glove_loss",),
)
def emb_glove_loss(rng, claim):
    """GloVe fits log-counts by inner products, with rare pairs weighted down and unseen ones left out.

    The claim is what to minimise: it is least, zero, where the inner products equal the log-counts.
    """
    N, most, alpha = _counts(rng), 6.0, 0.75
    zeta, z = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    total = 0.0
    for v in range(5):
        for w in range(5):
            if N[v, w] > 0:
                weight = 1.0 if N[v, w] >= most else (N[v, w] / most) ** alpha
                total += weight * (log(N[v, w]) - sum(zeta[w] * z[v])) ** 2
    exact = np.log(np.maximum(N, 1)), np.eye(5)  # context vectors that reproduce every log-count
    perturbed = [claim(N, exact[1], exact[0] + 0.1 * rng.normal(size=(5, 5)), most, alpha) for _ in range(20)]
    least = claim(N, exact[1], exact[0], most, alpha)
    return all_of(
        equal(claim(N, zeta, z, most, alpha), total, tol=1e-9),
        equal(least, 0, tol=1e-12),
        at_most(least, min(perturbed)),
    )


@formula(
    "emb-glove-factorisation",
    latex=r"\log \hat N_{vw} = \langle \zeta_w, z_v \rangle \iff \log \hat N = V U^\top, \qquad "
    r"f = \min\{1, N\}: \ \lVert \Pi_{N > 0}(\log N - V U^\top) \rVert_F^2",
    where="004 §3.3",
    right=lambda U, V: V @ U.T,
    errata=(
        Erratum(
            "E43",
            printed=r"$\log\hat N = U V^\top$",
            correction=r"$V U^\top$: rows of $N$ are context words",
            form=lambda U, V: U @ V.T,
            where="004 §3.3",
            kind="dimensions",
        ),
    ),
    systems=("glove",),
)
def emb_glove_factorisation(rng, claim):
    """GloVe factorises the table of log-counts: context vectors times centre vectors.

    With the weight one for every seen pair its loss is that of a masked matrix factorisation.
    """
    N, zeta, z = _counts(rng), rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    estimate = claim(zeta, z)
    table = [[zeta[w] @ z[v] for w in range(5)] for v in range(5)]
    seen = N > 0
    loss = sum(min(1, N[v, w]) * (log(N[v, w]) - zeta[w] @ z[v]) ** 2 for v, w in np.argwhere(seen))
    masked = np.linalg.norm(np.where(seen, np.log(np.maximum(N, 1)) - estimate, 0)) ** 2
    return all_of(equal(estimate, table, tol=1e-12), equal(masked, loss, tol=1e-9))


def _glove_step(zeta, z, count, weight, eta, factor=2):
    error = factor * eta * weight * (log(count) - zeta @ z)
    return error * z, error * zeta


@formula(
    "emb-glove-sgd",
    latex=r"\zeta_w \mathrel{+}= 2\eta f(N_{vw}) (\log N_{vw} - \langle \zeta_w, z_v \rangle)\, z_v, \qquad "
    r"z_v \mathrel{+}= 2\eta f(N_{vw}) (\log N_{vw} - \langle \zeta_w, z_v \rangle)\, \zeta_w",
    where="004 §3.3",
    right=_glove_step,
    wrong=lambda zeta, z, count, weight, eta: _glove_step(zeta, z, count, weight, eta, factor=1),
    systems=("glove",),
    functions=("corollary.embeddings.glove.AdaGrad",),
)
def emb_glove_sgd(rng, claim):
    """One stochastic step of GloVe moves the two vectors of a pair along each other by its error."""
    from corollary.embeddings.glove import AdaGrad, GloVe

    zeta, z, count = rng.normal(size=3), rng.normal(size=3), float(rng.integers(2, 9))
    weight, eta = rng.uniform(0.3, 1), rng.uniform(0.1, 0.5)
    term = lambda pair: weight * (log(count) - pair[0] @ pair[1]) ** 2
    slope = jacobian(term, np.stack([zeta, z]))
    # the library's first step, before AdaGrad has gathered anything, in single precision
    model = GloVe(3, n_max=100.0, learning_rate=eta, bias=False, epochs=1)
    learner = AdaGrad(sparse.csr_matrix(([count], ([0], [1])), shape=(2, 2)), model, 1, 0)
    before = learner.inputs[1].astype(float), learner.outputs[0].astype(float)
    learner.step()
    moved = learner.inputs[1] - before[0], learner.outputs[0] - before[1]
    step = claim(*before, count, (count / 100) ** model.alpha, eta)
    return all_of(
        equal(np.stack(claim(zeta, z, count, weight, eta)), -eta * slope, tol=1e-7),
        equal(np.stack(step), np.stack(moved), tol=1e-6),
    )
