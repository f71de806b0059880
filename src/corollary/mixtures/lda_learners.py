"""The learners of latent Dirichlet allocation: variational, collapsed variational and Gibbs sweeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from corollary import errors
from corollary.data.sources import Source
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.run import current
from corollary.linalg.threads import threads
from corollary.mixtures.lda_collapsed import (
    add_changes,
    alias_tables,
    cvb0_sweep,
    draw_topics,
    gibbs_sweep,
    soft_topics,
)
from corollary.mixtures.lda_kernels import e_step, exp_psi, word_sums
from corollary.mixtures.topics import Halves, completion_perplexity, learn_prior
from corollary.shapes import Array, Count, Index

__all__ = [
    "CVB0",
    "Gibbs",
    "Prior",
    "Settings",
    "Variational",
    "as_documents",
    "by_word",
    "expected_topics",
    "gather",
    "infer",
    "start_topics",
]

BLOCKS = 8  # of documents that run at once; constant, so that results do not depend on the machine
PRIOR_EVERY = 5  # sweeps between two updates of the prior
HELD_OUT_RANGE = (1e-3, 1.0)
GOLDEN = (5**0.5 - 1) / 2
NEIGHBOURS = 10  # documents that a topic begins as
MEAN_SHARE = 0.3  # of the mean document, beside them


def as_documents(X: Any) -> sparse.csr_matrix:
    """Return counts as CSR with the words of each document in order; X itself is left alone.

    Of counts on disk only those that are not zero are brought into memory, block by block.
    """
    blocks = X.blocks() if isinstance(X, Source) else [X]
    parts = [sparse.csr_matrix(block) for block in blocks]
    X = parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")
    return X if X.has_sorted_indices else X.sorted_indices()


class Settings(NamedTuple):
    """What every learner must know."""

    n_topics: int
    eta: float
    max_iter: int
    perp_tol: float
    evaluate_every: int
    n_jobs: int | None


class Prior:
    """How the prior of the mixtures changes: not at all, by the evidence, or by held-out documents."""

    def __init__(self, kind: str | None, held_out: Halves | None = None) -> None:
        self.kind = kind
        self.held_out = held_out

    def update(self, step: int, alpha: np.ndarray, learner: Any) -> np.ndarray:
        """Return the prior (K,) to go on with after this sweep."""
        if self.kind is None or step % PRIOR_EVERY:
            return alpha
        if self.kind == "evidence":
            return learn_prior(learner.document_counts(), alpha, total=current().sum)
        return np.full(len(alpha), best_prior(learner.topics().T, self.held_out))


def best_prior(topics: np.ndarray, held_out: Halves | None, evaluations: int = 10) -> float:
    """Return the symmetric prior with the least held-out perplexity, by golden section on its logarithm."""
    low, high = np.log(HELD_OUT_RANGE)
    points = [high - GOLDEN * (high - low), low + GOLDEN * (high - low)]
    values = [completion_perplexity(topics, held_out, np.exp(p)) for p in points]
    for _ in range(evaluations - 2):
        if values[0] < values[1]:
            high, points[1], values[1] = points[1], points[0], values[0]
            points[0] = high - GOLDEN * (high - low)
            values[0] = completion_perplexity(topics, held_out, np.exp(points[0]))
        else:
            low, points[0], values[0] = points[0], points[1], values[1]
            points[1] = low + GOLDEN * (high - low)
            values[1] = completion_perplexity(topics, held_out, np.exp(points[1]))
    return float(np.exp(points[int(np.argmin(values))]))


class _TopicLearner(Iteration):
    """What the three share: when to stop, when to learn the prior."""

    shares = True

    def __init__(self, settings: Settings, alpha: np.ndarray, prior: Prior) -> None:
        super().__init__(settings.max_iter)
        self.settings, self.alpha, self.prior = settings, alpha, prior
        self.perplexity = np.inf

    def _settle(self, perplexity: float | None) -> None:
        """Note the perplexity of this sweep, if it was computed, and update the prior."""
        every = self.settings.evaluate_every
        if perplexity is not None:
            close = abs(self.perplexity - perplexity) < self.settings.perp_tol
            self.converged = bool(close and every > 0 and self.n_iter % every == 0)
            self.perplexity = perplexity
        self.alpha = self.prior.update(self.n_iter, self.alpha, self)


# --- variational inference -------------------------------------------------------------------------------


def expected_topics(lam: np.ndarray) -> np.ndarray:
    """Return exp(E[log beta]) for topics' Dirichlet parameters lam (V, K), in their type."""
    total = exp_psi(lam.sum(axis=0, dtype=np.float64)[None])[0]
    return (exp_psi(lam) / total).astype(lam.dtype, copy=False)


class Inference(NamedTuple):
    """Documents' Dirichlet parameters gamma (D, K), exp(E[log theta]) (D, K), and word shares (nnz,)."""

    gamma: np.ndarray
    theta: np.ndarray
    share: np.ndarray


def infer(
    X: sparse.csr_matrix, Eb: np.ndarray, alpha: np.ndarray, start: np.ndarray, max_iter: int, tol: float
) -> Inference:
    """Fit the documents' Dirichlets from a start (D, K), which is overwritten."""
    theta, share = np.empty_like(start), np.empty(X.nnz, Eb.dtype)
    prior = alpha.astype(Eb.dtype)
    e_step(X.indptr, X.indices, X.data, Eb, prior, start, theta, share, max_iter, float(tol))
    return Inference(start, theta, share)


class Variational(_TopicLearner):
    """Batch or online variational Bayes; a sweep is one pass over the documents.

    Parameters
    ----------
    X : csr_matrix of shape (D, V)
        Counts.
    lam : ndarray of shape (V, K)
        Where the topics' Dirichlet parameters begin.
    rng : RandomState
        Draws where the documents' parameters begin, at every sweep.
    batch_size : int or None
        Documents per update; None for all at once, which is the batch algorithm.
    total : float
        Documents that a batch stands for.
    rate : callable
        Weight of the n-th batch.
    update_iter, update_tol : int and float
        Most updates of a document per sweep, and the mean change below which they stop.
    evaluate : callable
        ``evaluate(X, lam, alpha)`` is the perplexity, where it is asked for.
    """

    saved = ("lam", "alpha", "rng", "n_batches", "perplexity")

    def __init__(
        self,
        X,
        settings,
        alpha,
        prior,
        *,
        lam,
        rng,
        batch_size,
        total,
        rate,
        update_iter,
        update_tol,
        evaluate,
    ):
        super().__init__(settings, alpha, prior)
        self.X, self.lam, self.rng = X, lam, rng
        self.batch_size, self.total, self.rate = batch_size, total, rate
        self.update_iter, self.update_tol, self.evaluate = update_iter, update_tol, evaluate
        self.n_batches = 1
        self.parts = [_Part(X[rows]) for rows in _batches(X.shape[0], batch_size)]

    def sweep(self) -> Metrics:
        """Update the topics once per batch."""
        with threads(self.settings.n_jobs):
            log_likelihood = sum(self._update(part) for part in self.parts)
            words = float(self.X.data.sum(dtype=np.float64))
            metrics = {"log_likelihood": log_likelihood / words} if words else {}
            perplexity = None
            every = self.settings.evaluate_every
            if every > 0 and self.n_iter % every == 0:
                perplexity = metrics["perplexity"] = self.evaluate(self.X, self.lam, self.alpha)
            self._settle(perplexity)
        return metrics

    def _update(self, part: _Part) -> float:
        """Do one E step and one M step; return the expected log-likelihood of the words."""
        run, K = current(), self.settings.n_topics
        start = self.rng.gamma(100.0, 0.01, (part.n, K)).astype(self.lam.dtype, copy=False)
        Eb = expected_topics(self.lam)
        found = infer(part.X, Eb, self.alpha, start[part.rows], self.update_iter, self.update_tol)
        self.gamma = found.gamma
        sums = run.sum(part.word_sums(found)) * Eb
        if self.batch_size is None:
            self.lam = self.settings.eta + sums
        else:
            weight = self.rate(self.n_batches)
            self.lam *= 1 - weight
            self.lam += weight * (self.settings.eta + self.total / part.n * sums)
        self.lam = self.lam.astype(start.dtype, copy=False)
        self.n_batches += 1
        counts = part.X.data.astype(np.float64)
        kept = counts > 0
        return float(run.sum(np.array(counts[kept] @ np.log(counts[kept] / found.share[kept]))))

    def document_counts(self) -> np.ndarray:
        """Return the expected counts of this process's documents in the last batch."""
        return self.gamma - self.alpha

    def topics(self) -> np.ndarray:
        """Return the topics (V, K), not normalised."""
        return self.lam


class _Part:
    """A batch of documents: this process's share of it, and its entries sorted by word."""

    def __init__(self, X: sparse.csr_matrix) -> None:
        self.n = X.shape[0]
        self.rows = current().shard(self.n)
        self.X = X[self.rows]
        self.start, self.order = by_word(self.X)
        self.document = np.repeat(np.arange(self.X.shape[0]), np.diff(self.X.indptr))

    def word_sums(self, found: Inference) -> np.ndarray:
        out = np.empty((self.X.shape[1], found.theta.shape[1]), found.theta.dtype)
        word_sums(self.start, self.order, self.document, found.share, found.theta, out)
        return out


def by_word(X: sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return where each word's entries begin, and the order that sorts the entries by word."""
    entries = sparse.csr_matrix((np.arange(X.nnz), X.indices, X.indptr), X.shape).tocsc()
    return entries.indptr, entries.data


def _batches(n: int, size: int | None) -> list[slice]:
    size = n if size is None else size
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


# --- collapsed inference ---------------------------------------------------------------------------------


def start_topics(X: sparse.csr_matrix, K: int, rng: np.random.Generator) -> np.ndarray:
    """Return p(w | z) (V, K) to begin with: the neighbourhoods of documents far from each other.

    Topics that begin as different documents differ from the first sweep on; from random responsibilities
    it takes many sweeps before they part. The documents are drawn as centres are in k-means++, and each
    topic is mixed with the mean of all, so that no word is impossible.
    """
    D, V = X.shape
    rows = _directions(X)
    m = max(1, min(NEIGHBOURS, D // K))
    mean = np.asarray(X.mean(axis=0), np.float64).ravel() + 1e-3
    # noise, so that two topics that start from the same documents can differ
    T = mean[:, None] * rng.gamma(100.0, 0.01, (V, K))
    T *= MEAN_SHARE * max(X.sum() / D, 1.0) / T.sum(axis=0)
    near = np.zeros(D)  # how near each document is to those drawn: 1 for the neighbours
    for k in range(K):
        far = (1 - near) ** 2
        centre = rng.choice(D, p=far / far.sum() if far.any() else None)
        affinity = rows @ rows[centre].toarray().ravel()
        nearest = np.argsort(-affinity, kind="stable")[:m]
        T[:, k] += np.asarray(X[nearest].mean(axis=0)).ravel()
        near = np.maximum(near, np.minimum(affinity / max(affinity[nearest[-1]], 1e-12), 1.0))
        near[centre] = 1.0
    return (T / T.sum(axis=0)).astype(np.float32)


def _directions(X: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return documents as unit vectors of the roots of their counts, rare words weighing more."""
    D, V = X.shape
    rarity = np.log1p(D / np.maximum(np.bincount(X.indices, minlength=V), 1))
    rows = sparse.csr_matrix((np.sqrt(X.data) * rarity[X.indices], X.indices, X.indptr), X.shape)
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
    rows.data /= np.repeat(np.maximum(norms, 1e-12), np.diff(X.indptr))
    return rows


class _Collapsed(_TopicLearner):
    """Sweeps over counts. Every process has all documents and works on its own, in blocks."""

    can_diverge = False

    def __init__(self, X: sparse.csr_matrix, settings: Settings, alpha: np.ndarray, prior: Prior) -> None:
        super().__init__(settings, alpha, prior)
        self.X = X
        self.rows = current().shard(X.shape[0])
        self.tokens = float(X.data.sum(dtype=np.float64))
        self.lengths = np.asarray(X.sum(axis=1), np.float64).ravel()[self.rows]
        first, last = X.indptr[self.rows.start], X.indptr[self.rows.stop]
        self.bounds = np.searchsorted(X.indptr, np.linspace(first, last, BLOCKS + 1))
        self.bounds[[0, -1]] = self.rows.start, self.rows.stop

    def _metrics(self, log_likelihood: float, run: Any) -> Metrics:
        """Return the perplexity of each token given all others, once the documents' lengths are divided out."""
        norm = self.lengths @ np.log(np.maximum(self.lengths - 1, 0) + self.alpha.sum())
        total = float(run.sum(np.array(log_likelihood - norm)))
        perplexity = float(np.exp(-total / self.tokens)) if self.tokens else 1.0
        self._settle(perplexity)
        return {"perplexity": perplexity}


def gather(array: np.ndarray, mine: slice, run: Any) -> np.ndarray:
    """Return the array with every process's own rows."""
    if run.world == 1:
        return array
    own = np.zeros_like(array)
    own[mine] = array[mine]
    return run.sum(own)


class CVB0(_Collapsed):
    """Collapsed variational inference of zeroth order: eq. 1 of ``lda_collapsed`` with expected counts.

    Parameters
    ----------
    X : csr_matrix of shape (D, V)
        Counts, words in order within each document.
    settings, alpha, prior : Settings, ndarray of shape (K,), Prior
        What to do.
    rng : Generator
        For the start.
    """

    saved = ("gamma", "nd", "nw", "alpha", "perplexity")

    def __init__(
        self,
        X: sparse.csr_matrix,
        settings: Settings,
        alpha: np.ndarray,
        prior: Prior,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(X, settings, alpha, prior)
        (D, V), K = X.shape, settings.n_topics
        self.counts = X.data.astype(np.float32)
        self.split = _word_ranges(X, BLOCKS)
        self.gamma, self.nd = np.empty((X.nnz, K), np.float32), np.zeros((D, K), np.float32)
        soft_topics(X.indptr, X.indices, self.counts, start_topics(X, K, rng), self.gamma, self.nd)
        start, order = by_word(X)
        self.nw = np.empty((V, K), np.float32)
        word_sums(start, order, np.arange(X.nnz), self.counts, self.gamma, self.nw)

    def sweep(self) -> Metrics:
        """Go once over the words of all documents."""
        run = current()
        before = self.nw.copy() if run.world > 1 else None
        eta, alpha = np.float32(self.settings.eta), self.alpha.astype(np.float32)
        with threads(self.settings.n_jobs):
            found = cvb0_sweep(
                self.bounds, self.split, self.X.indices, self.counts, self.gamma, self.nd, self.nw, alpha, eta
            )
            if before is not None:
                self.nw = before + run.sum(self.nw - before)
            entries = slice(self.X.indptr[self.rows.start], self.X.indptr[self.rows.stop])
            self.gamma, self.nd = gather(self.gamma, entries, run), gather(self.nd, self.rows, run)
            return self._metrics(float(found.sum()), run)

    def document_counts(self) -> np.ndarray:
        """Return the expected counts of this process's documents."""
        return self.nd[self.rows]

    def topics(self) -> np.ndarray:
        """Return the topics (V, K), not normalised."""
        return self.nw + np.float32(self.settings.eta)


def _word_ranges(X: sparse.csr_matrix, parts: int) -> np.ndarray:
    """Return where in each document the words of each of ``parts`` ranges begin: (D, parts + 1)."""
    D, V = X.shape
    seen = np.concatenate([[0], np.cumsum(np.bincount(X.indices, minlength=V))])
    ranges = np.searchsorted(seen, np.linspace(0, X.nnz, parts + 1))
    ranges[[0, -1]] = 0, V
    position = np.repeat(np.arange(D, dtype=np.int64), np.diff(X.indptr)) * V + X.indices
    return np.searchsorted(position, np.arange(D, dtype=np.int64)[:, None] * V + ranges)


class Gibbs(_Collapsed):
    """Collapsed Gibbs sampling; the topics are the mean over the second half of the sweeps."""

    saved = ("topic", "nw", "total", "n_kept", "alpha", "perplexity")
    varying = {
        "topic": Index("word", below=lambda learner: learner.settings.n_topics),
        "nw": Array(
            lambda learner: learner.X.shape[1], lambda learner: learner.settings.n_topics, kind="i", low=0
        ),
        "n_kept": Count(),
    }

    def __init__(
        self, X: sparse.csr_matrix, settings: Settings, alpha: np.ndarray, prior: Prior, seed: int
    ) -> None:
        super().__init__(X, settings, alpha, prior)
        (_, V), K = X.shape, settings.n_topics
        counts = X.data.astype(np.int64)
        if (counts != X.data).any():
            raise errors.value(
                "LatentDirichletAllocation",
                "inference='gibbs' needs whole counts",
                f"{X.data[counts != X.data][0]:g}",
                "Round them, or use inference='cvb0'.",
            )
        self.seed = seed
        self.word = np.repeat(X.indices, counts)
        self.start = np.concatenate([[0], np.cumsum(counts)])[X.indptr]
        rng = np.random.default_rng(seed)
        self.topic = draw_topics(self.word, start_topics(X, K, rng), rng.random(len(self.word)))
        self.nw = np.zeros((V, K), np.int32)
        np.add.at(self.nw, (self.word, self.topic), 1)
        self.total, self.n_kept = np.zeros((V, K)), 0
        self.tables = (np.empty((V, K)), np.empty((V, K)), np.empty((V, K), np.int32), np.empty(V))
        self.copies = np.empty((BLOCKS, V, K), np.int32)

    def sweep(self) -> Metrics:
        """Draw the topic of every token once."""
        run, eta, alpha = current(), float(self.settings.eta), self.alpha.astype(np.float64)
        entropy = np.random.SeedSequence([self.seed, self.n_iter, run.rank])
        seeds = entropy.generate_state(BLOCKS, np.uint64) | np.uint64(1)
        found = np.zeros(BLOCKS)
        with threads(self.settings.n_jobs):
            nk = self.nw.sum(axis=0, dtype=np.int64)
            alias_tables(self.nw, nk, alpha, eta, *self.tables)
            tokens = (self.start, self.word, self.topic)
            gibbs_sweep(
                self.bounds, *tokens, self.nw, nk, alpha, eta, *self.tables, seeds, self.copies, found
            )
            before = self.nw.copy() if run.world > 1 else None
            add_changes(self.nw, self.copies)
            if before is not None:
                self.nw = before + run.sum(self.nw - before)
            self.topic = gather(
                self.topic, slice(self.start[self.rows.start], self.start[self.rows.stop]), run
            )
            if 2 * self.n_iter > self.max_iter:
                self.total += self.nw
                self.n_kept += 1
            return self._metrics(float(found.sum()), run)

    def document_counts(self) -> np.ndarray:
        """Return the counts of this process's documents."""
        D, K = self.X.shape[0], self.settings.n_topics
        document = np.repeat(np.arange(D), np.diff(self.start))
        counts = np.bincount(document * K + self.topic, minlength=D * K).reshape(D, K)
        return counts[self.rows]

    def topics(self) -> np.ndarray:
        """Return the topics (V, K), not normalised."""
        return (self.total / self.n_kept if self.n_kept else self.nw) + self.settings.eta
