r"""Skip-gram (word2vec): word vectors that predict the neighbouring words.

A word :math:`w` has an input vector :math:`\zeta_w` and an output vector :math:`z_w`. Wanted are vectors that make
the words :math:`v = x_{t+\delta}` near each :math:`w = x_t` likely. By *softmax*, over the predicted word,

.. math::
    p(v \mid w) = \frac{\exp(\langle \zeta_w, z_v \rangle + b_v)}{\sum_u \exp(\langle \zeta_w, z_u \rangle + b_u)},
    \qquad \ell = \sum_t \sum_{1 \le |\delta| \le R} \log p(x_{t+\delta} \mid x_t)
    = \sum_{vw} N_{vw} \log p(v \mid w), \tag{1}

so that the counts :math:`N_{vw}` are all that is needed. By *negative sampling*, pairs of the text are told from
pairs with words drawn from :math:`q(u) \propto p(u)^\alpha`,

.. math::
    \ell = \sum_{(v, w)} \Big[ \log \sigma(\langle \zeta_w, z_v \rangle)
    + \sum_{i=1}^{r} \log \sigma(-\langle \zeta_w, z_{u_i} \rangle) \Big], \qquad u_i \sim q. \tag{2}

Frequent words are passed over: a word with share :math:`f` of the tokens is kept with probability
:math:`\min\{1, (\sqrt{f / t} + 1)\, t / f\}` (3), and each position draws its own radius from 1 to :math:`R`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from corollary.base import Data
from corollary.embeddings.corpus import Corpus, window_counts
from corollary.embeddings.skipgram_kernels import noise_table, sigmoid_table, train_texts
from corollary.embeddings.vectors import BaseEmbedding
from corollary.engine.learner import Metrics
from corollary.engine.pieces import Piecewise
from corollary.engine.run import current
from corollary.shapes import Array

__all__ = ["NegativeSampling", "SkipGram", "keep_probabilities"]

SLOWEST = 1e-4  # of the learning rate: where its linear fall ends
PIECES = 8  # of a stretch of the texts, for each thread
STRETCH = 200_000  # tokens for each thread, between two looks at the clock


def keep_probabilities(counts: np.ndarray, threshold: float) -> np.ndarray:
    """Return the probability that an occurrence of each word is kept, eq. 3; threshold 0 keeps all."""
    if not threshold:
        return np.ones(len(counts))
    share = counts / counts.sum()
    return np.minimum(1.0, (np.sqrt(share / threshold) + 1) * threshold / share)


class NegativeSampling(Piecewise):
    """Stochastic ascent on eq. 2; a sweep is one pass over the texts.

    Parameters
    ----------
    corpus : Corpus
        Texts as numbers.
    counts : ndarray of shape (n_words,)
        How often each word occurs.
    model : SkipGram
        Its settings.
    threads : int
        More than one work on the same tables without locks, and no two runs are then alike.
    seed : int
        For the start and every draw.
    """

    saved = (*Piecewise.saved, "inputs", "outputs", "loss", "pairs")

    def __init__(self, corpus: Corpus, counts: np.ndarray, model: SkipGram, threads: int, seed: int) -> None:
        super().__init__(model.epochs)
        self.corpus, self.window, self.negative = corpus, model.window, model.negative
        self.rate = model._rate()
        self.threads, self.seed = threads, seed
        self.noise = noise_table(counts, model.alpha)
        self.keep = keep_probabilities(counts, model.subsample)
        self.sigma = sigmoid_table()
        self.loss, self.pairs = 0.0, 0
        shape = (len(counts), model.dimension)
        start = np.random.default_rng(seed).random(shape, dtype=np.float32)
        self.inputs, self.outputs = (start - np.float32(0.5)) / shape[1], np.zeros(shape, np.float32)
        each = 1 if threads == 1 else PIECES * threads
        self.parts = each * max(1, round(len(corpus.tokens) / (STRETCH * threads)))
        self.each = each

    def count(self) -> int:
        """Return the number of stretches of text between which the clock is looked at."""
        return self.parts // self.each

    def piece(self, i: int) -> None:
        """Go over a stretch of the texts; several threads take parts of it in turn, so that none waits for long."""
        start, pieces = self.corpus.start, self.parts
        cuts = np.searchsorted(start, np.linspace(0, start[-1], pieces + 1))
        cuts[[0, -1]] = 0, len(start) - 1
        sequence = np.random.SeedSequence([self.seed, self.n_iter + 1])
        seeds = sequence.generate_state(pieces, np.uint64) | np.uint64(1)
        done = (self.n_iter + np.linspace(0, 1, pieces + 1)) / self.max_iter

        def work(i: int) -> tuple[float, int]:
            return train_texts(
                self.corpus.tokens,
                start,
                cuts[i],
                cuts[i + 1],
                self.inputs,
                self.outputs,
                self.noise,
                self.keep,
                self.window,
                self.negative,
                self.rate * (1 - done[i]),
                self.rate * (1 - done[i + 1]),
                SLOWEST * self.rate,
                seeds[i],
                self.sigma,
            )

        mine = range(i * self.each, (i + 1) * self.each)
        if len(mine) == 1:
            found = [work(mine[0])]
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                found = [*pool.map(work, mine)]
        loss, pairs = map(sum, zip(*found))
        self.loss, self.pairs = self.loss + float(loss), self.pairs + int(pairs)

    def finish(self) -> Metrics:
        """Return the mean loss of a pair."""
        loss, pairs, self.loss, self.pairs = self.loss, self.pairs, 0.0, 0
        return {"loss": loss / pairs} if pairs else {}

    def unfinished(self) -> Metrics:
        """Return the mean so far."""
        return {"loss": self.loss / self.pairs} if self.pairs else {}


def softmax_learner(N: sparse.csr_matrix, model: SkipGram, seed: int) -> Any:
    """Return the gradient learner of eq. 1; its batches are words, with their rows of the counts."""
    import torch
    from torch import nn

    from corollary.engine.batches import Batch, TensorBatches
    from corollary.engine.random import seeded
    from corollary.engine.sgd import GradientLearner
    from corollary.engine.training import Training

    V = N.shape[0]

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inputs = nn.Parameter(torch.randn(V, model.dimension) / model.dimension**0.5)
            self.outputs = nn.Parameter(torch.zeros(V, model.dimension))
            self.bias = nn.Parameter(torch.zeros(V))

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return torch.log_softmax(self.inputs[words] @ self.outputs.T + self.bias, dim=1)

    def objective(module: nn.Module, batch: Batch) -> torch.Tensor:
        (words,) = batch.inputs
        rows = torch.from_numpy(N[words.cpu().numpy()].toarray().astype(np.float32)).to(words.device)
        return -(rows * module(words)).sum() / len(words)

    N = N * (V / N.sum())  # so that the mean over words is the mean over pairs
    with seeded(seed):
        tables = Tables()
    plan = Training(
        epochs=model.epochs, learning_rate=model._rate(), batch_size=256, optimizer="adam"
    ).resolved()
    words = TensorBatches(torch.arange(V).to(current().device))
    return GradientLearner(tables, objective, words, plan, current(), seed=seed, owner="SkipGram")


class SkipGram(BaseEmbedding):
    """Learn skip-gram word vectors, which predict neighbouring words (word2vec).

    Parameters
    ----------
    dimension : int, default=100
        Length of the vectors. Longer tell more apart, and want more text.
    loss : {"negative", "softmax"}, default="negative"
        Negative sampling, eq. 2, for any vocabulary; or the full softmax, eq. 1, whose every step costs
        O(vocabulary).
    window : int, default=5
        Largest distance of a neighbour. Wider windows give topics, narrow ones grammar.
    negative : int, default=5
        Words drawn per position; more are slower, and help small corpora.
    alpha : float, default=0.75
        Exponent of the noise; 0 draws all words alike, 1 as often as they occur.
    min_count : int, default=5
        Rarer words are left out.
    subsample : float, default=1e-3
        t in eq. 3; smaller passes over more of the frequent words, 0 keeps all.
    epochs : int, default=5
        Passes over the texts, or for the softmax over the vocabulary, which wants some hundred.
    learning_rate : float, optional
        By default 0.03, falling linearly to nothing, or 0.02 for the softmax.
    deterministic : bool or "auto", default="auto"
        Whether one thread does all, so that a seed decides everything and a resumed fit equals an uninterrupted
        one bit for bit. Otherwise threads share the tables without locks. "auto" is deterministic if
        ``random_state`` is given.
    n_jobs : int, optional
        Threads where it is not deterministic; by default all.
    random_state : int or RandomState, optional
        Seed for the start and the draws.

    Attributes
    ----------
    words_ : list of str
        The vocabulary, most frequent first.
    counts_ : ndarray of shape (n_words,)
        How often each word occurs.
    vectors_ : ndarray of shape (n_words, dimension)
        The input vectors.
    context_vectors_ : ndarray of shape (n_words, dimension)
        The output vectors.
    bias_ : ndarray of shape (n_words,)
        The output biases; zero for negative sampling.
    n_iter_ : int
        Passes made.
    history_ : list of dict
        Step, seconds, and the mean loss of a pair, summed in float64.

    Notes
    -----
    A pass costs O(tokens * window * (negative + 1) * dimension). The negatives of a position are shared by its
    window. The course notes normalise the softmax over the conditioning word, count a negative pair as
    log(1 - P(D = 0)), and call (2) a loss; here it is normalised over the predicted word, a negative pair counts
    log P(D = 0), and (2) is maximised. They also draw r negatives per position, not per pair, as is done here.
    The first call compiles for some seconds; later processes read the compiled code from disk.

    References
    ----------
    .. [1] T. Mikolov, I. Sutskever, K. Chen, G. Corrado, J. Dean (2013). Distributed representations of words and
       phrases and their compositionality. NIPS.
    .. [2] S. Ji, N. Satish, S. Li, P. Dubey (2016). Parallelizing word2vec in shared and distributed memory.
       arXiv:1604.04661. (shared negatives)
    .. [3] O. Levy, Y. Goldberg (2014). Neural word embedding as implicit matrix factorization. NIPS.

    Examples
    --------
    >>> from corollary.embeddings import SkipGram
    >>> texts = ["red green blue", "one two three", "blue red green", "two three one"] * 50
    >>> model = SkipGram(16, epochs=60, subsample=0, random_state=0).fit(texts)
    >>> sorted(word for word, _ in model.most_similar("red", n=2))
    ['blue', 'green']
    """

    _parameter_constraints: ClassVar = {
        "dimension": [Interval(Integral, 1, None, closed="left")],
        "loss": [StrOptions({"negative", "softmax"})],
        "window": [Interval(Integral, 1, None, closed="left")],
        "negative": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "subsample": [Interval(Real, 0, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [None, Interval(Real, 0, None, closed="neither")],
        "deterministic": ["boolean", StrOptions({"auto"})],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
    }
    _fitted = {"context_vectors_": Array("words_", "width"), "bias_": Array("words_")}

    def __init__(
        self,
        dimension=100,
        *,
        loss="negative",
        window=5,
        negative=5,
        alpha=0.75,
        min_count=5,
        subsample=1e-3,
        epochs=5,
        learning_rate=None,
        deterministic="auto",
        n_jobs=None,
        random_state=None,
    ):
        self.dimension = dimension
        self.loss = loss
        self.window = window
        self.negative = negative
        self.alpha = alpha
        self.min_count = min_count
        self.subsample = subsample
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.deterministic = deterministic
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"dimension": 8, "epochs": 4}

    def _rate(self) -> float:
        return self.learning_rate or (0.03 if self.loss == "negative" else 0.02)

    def _learner(self, data: Data) -> Any:
        corpus = self._corpus(data)
        if self.loss == "softmax":
            return softmax_learner(window_counts(corpus, len(self.words_), self.window), self, self._seed())
        return NegativeSampling(corpus, self.counts_, self, self._threads(), self._seed())

    def _total(self, learner: Any) -> int:
        return self.epochs

    def _adopt(self, learner: Any) -> None:
        if self.loss == "softmax":
            tables = learner.result().cpu()
            self.vectors_, self.context_vectors_ = (
                tables.inputs.detach().numpy(),
                tables.outputs.detach().numpy(),
            )
            self.bias_, self.n_iter_ = tables.bias.detach().numpy(), learner.epoch
        else:
            self.vectors_, self.context_vectors_ = learner.inputs, learner.outputs
            self.bias_, self.n_iter_ = np.zeros(len(learner.inputs), np.float32), learner.n_iter

    def context_probabilities(self, words):
        """Return p(v | w) of eq. 1 for words w, over the whole vocabulary.

        Parameters
        ----------
        words : list of str
            The words to condition on.

        Returns
        -------
        ndarray of shape (len(words), n_words)
            Rows sum to one; for negative sampling the softmax of its scores, which it does not fit.
        """
        check_is_fitted(self)
        rows = self.vectors_[[self._number(word) for word in words]].astype(np.float64)
        scores = rows @ self.context_vectors_.T.astype(np.float64) + self.bias_
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return scores / scores.sum(axis=1, keepdims=True)
