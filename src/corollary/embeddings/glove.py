r"""GloVe: word vectors from the logarithms of co-occurrence counts.

With the counts :math:`N_{vw}` of a window, vectors :math:`\zeta_w, z_v` and biases :math:`a_w, b_v` minimise

.. math::
    \ell = \sum_{N_{vw} > 0} f(N_{vw}) \big( \langle \zeta_w, z_v \rangle + a_w + b_v - \log N_{vw} \big)^2, \qquad
    f(N) = \min\{1, (N / N_{\max})^\alpha\}. \tag{1}

A step on one entry with residual :math:`r = \langle \zeta_w, z_v \rangle + a_w + b_v - \log N_{vw}` is

.. math::
    \zeta_w \mathrel{-}= \eta\, 2 f r\, z_v / \sqrt{G}, \qquad
    z_v \mathrel{-}= \eta\, 2 f r\, \zeta_w / \sqrt{G'}, \qquad
    a_w \mathrel{-}= \eta\, 2 f r / \sqrt{g}, \quad b_v \mathrel{-}= \eta\, 2 f r / \sqrt{g'}, \tag{2}

where each number has its own sum :math:`G` of squared gradients so far, which begins at 1 (AdaGrad).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions

from corollary.base import Data
from corollary.compiled import njit
from corollary.embeddings.corpus import window_counts
from corollary.embeddings.vectors import BaseEmbedding
from corollary.engine.learner import Metrics
from corollary.engine.pieces import Piecewise
from corollary.shapes import Array

__all__ = ["AdaGrad", "GloVe", "glove_loss"]

STRETCH = 10**8  # products for each thread, between two looks at the clock
OPTIONS = {"nogil": True, "cache": True, "fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}


def weights(N: np.ndarray, n_max: float, alpha: float) -> np.ndarray:
    """Return f(N) of eq. 1."""
    return np.minimum(1.0, (N / n_max) ** alpha)


def glove_loss(
    N: sparse.spmatrix, inputs: Any, outputs: Any, a: Any, b: Any, n_max: float, alpha: float
) -> float:
    """Return eq. 1 for counts N (v by w), inputs zeta (n_words, d), outputs z (n_words, d) and biases."""
    entries = N.tocoo()
    v, w, n = entries.row, entries.col, entries.data.astype(np.float64)
    r = (np.asarray(inputs, np.float64)[w] * outputs[v]).sum(axis=1) + a[w] + b[v] - np.log(n)
    return float(weights(n, n_max, alpha) @ r**2)


@njit(**OPTIONS)
def _steps(
    order, v, w, target, f, inputs, outputs, a, b, G, H, g, h, rate, bias
):  # pragma: no cover - compiled
    """Make the steps of eq. 2 on the entries named by ``order``; return the sum of f r² before each."""
    loss, d = 0.0, inputs.shape[1]
    for e in order:
        i, j = w[e], v[e]
        x, z, sx, sz = inputs[i], outputs[j], G[i], H[j]
        r = np.float32(a[i] + b[j] - target[e])
        for k in range(d):
            r += x[k] * z[k]
        loss += f[e] * r * r
        c = 2 * f[e] * r
        for k in range(d):
            gx, gz = c * z[k], c * x[k]
            x[k] -= rate * gx / np.sqrt(sx[k])
            z[k] -= rate * gz / np.sqrt(sz[k])
            sx[k] += gx * gx
            sz[k] += gz * gz
        if bias:
            a[i] -= rate * c / np.sqrt(g[i])
            b[j] -= rate * c / np.sqrt(h[j])
            g[i] += c * c
            h[j] += c * c
    return loss


class AdaGrad(Piecewise):
    """Descend on eq. 1; a sweep is one pass over the counts in a new order.

    Parameters
    ----------
    N : csr_matrix of shape (n_words, n_words)
        Counts.
    model : GloVe
        Its settings.
    threads : int
        More than one work on the same vectors without locks.
    seed : int
        For the start and the orders.
    """

    saved = (*Piecewise.saved, "inputs", "outputs", "a", "b", "G", "H", "g", "h", "total")

    def __init__(self, N: sparse.csr_matrix, model: GloVe, threads: int, seed: int) -> None:
        super().__init__(model.epochs)
        entries = N.tocoo()
        self.v, self.w = entries.row.astype(np.int32), entries.col.astype(np.int32)
        self.target = np.log(entries.data).astype(np.float32)
        self.f = weights(entries.data, model.n_max, model.alpha).astype(np.float32)
        self.rate, self.bias, self.threads, self.seed = (
            np.float32(model.learning_rate),
            model.bias,
            threads,
            seed,
        )
        self.total = 0.0
        self.order: tuple[int, np.ndarray] | None = None  # the number of a pass, and its order
        n, d = N.shape[0], model.dimension
        start = np.random.default_rng(seed).random((2, n, d), dtype=np.float32)
        self.inputs, self.outputs = (start - np.float32(0.5)) / d
        self.a, self.b = np.zeros(n, np.float32), np.zeros(n, np.float32)
        self.G, self.H = np.ones((n, d), np.float32), np.ones((n, d), np.float32)
        self.g, self.h = np.ones(n, np.float32), np.ones(n, np.float32)

    def count(self) -> int:
        """Return the number of parts of the counts between which the clock is looked at."""
        return max(1, round(len(self.f) * self.inputs.shape[1] / (STRETCH * self.threads)))

    def piece(self, i: int) -> None:
        """Go over a part of the counts."""
        if self.order is None or self.order[0] != self.n_iter:
            rng = np.random.default_rng([self.seed, self.n_iter + 1])
            self.order = self.n_iter, rng.permutation(len(self.f))
        order = self.order[1]
        first, last = np.linspace(0, len(order), self.count() + 1).astype(int)[i : i + 2]

        def work(part: np.ndarray) -> float:
            counts, sums = (self.v, self.w, self.target, self.f), (self.G, self.H, self.g, self.h)
            return _steps(
                part, *counts, self.inputs, self.outputs, self.a, self.b, *sums, self.rate, self.bias
            )

        if self.threads == 1:
            self.total += float(work(order[first:last]))
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                self.total += float(sum(pool.map(work, np.array_split(order[first:last], self.threads))))

    def finish(self) -> Metrics:
        """Return the mean loss of a count."""
        total, self.total = self.total, 0.0
        return {"loss": total / len(self.f)}


class GloVe(BaseEmbedding):
    """Learn GloVe word vectors, whose products are the logarithms of co-occurrence counts.

    Parameters
    ----------
    dimension : int, default=100
        Length of the vectors. Longer tell more apart, and want more text.
    window : int, default=10
        Largest distance of a neighbour, which counts one over its distance.
    n_max : float, default=100.0
        Counts from here on weigh alike; larger makes rare pairs weigh less.
    alpha : float, default=0.75
        Exponent of the weights; 0 weighs all counts alike.
    bias : bool, default=True
        Whether words have biases; without them eq. 1 is a masked factorisation of log N.
    min_count : int, default=5
        Rarer words are left out.
    epochs : int, default=25
        Passes over the counts.
    learning_rate : float, default=0.05
        Step size of AdaGrad. Too small is slow, too large diverges.
    deterministic : bool or "auto", default="auto"
        Whether one thread does all, so that a seed decides everything and a resumed fit equals an uninterrupted
        one bit for bit. "auto" is deterministic if ``random_state`` is given.
    n_jobs : int, optional
        Threads where it is not deterministic; by default all.
    random_state : int or RandomState, optional
        Seed for the start and the orders.

    Attributes
    ----------
    words_ : list of str
        The vocabulary, most frequent first.
    counts_ : ndarray of shape (n_words,)
        How often each word occurs.
    vectors_ : ndarray of shape (n_words, dimension)
        The sums of the two vectors of each word.
    input_vectors_, output_vectors_ : ndarray of shape (n_words, dimension)
        The input vectors zeta and output vectors z of eq. 1.
    input_bias_, output_bias_ : ndarray of shape (n_words,)
        The biases a and b of eq. 1.
    n_iter_ : int
        Passes made.
    history_ : list of dict
        Step, seconds, and the mean of f r² over the counts, summed in float64.

    Notes
    -----
    A pass costs O(stored counts * dimension). The course notes say that the objective is maximised and write
    log N as U Vᵀ; it is minimised, and log N_vw = <zeta_w, z_v> makes it V Uᵀ.

    References
    ----------
    .. [1] J. Pennington, R. Socher, C. D. Manning (2014). GloVe: global vectors for word representation. EMNLP.

    Examples
    --------
    >>> from corollary.embeddings import GloVe
    >>> texts = ["red green blue", "one two three", "blue red green", "two three one"] * 50
    >>> GloVe(4, random_state=0).fit(texts).transform(["red", "one two"]).shape
    (2, 4)
    """

    _parameter_constraints: ClassVar = {
        "dimension": [Interval(Integral, 1, None, closed="left")],
        "window": [Interval(Integral, 1, None, closed="left")],
        "n_max": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "bias": ["boolean"],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "deterministic": ["boolean", StrOptions({"auto"})],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
    }
    _fitted = {
        "input_vectors_": Array("words_", "width"),
        "output_vectors_": Array("words_", "width"),
        "input_bias_": Array("words_"),
        "output_bias_": Array("words_"),
    }

    def __init__(
        self,
        dimension=100,
        *,
        window=10,
        n_max=100.0,
        alpha=0.75,
        bias=True,
        min_count=5,
        epochs=25,
        learning_rate=0.05,
        deterministic="auto",
        n_jobs=None,
        random_state=None,
    ):
        self.dimension = dimension
        self.window = window
        self.n_max = n_max
        self.alpha = alpha
        self.bias = bias
        self.min_count = min_count
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.deterministic = deterministic
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"dimension": 4, "epochs": 4}

    def _learner(self, data: Data) -> AdaGrad:
        corpus = self._corpus(data)
        N = window_counts(corpus, len(self.words_), self.window, harmonic=True)
        return AdaGrad(N, self, self._threads(), self._seed())

    def _adopt(self, learner: AdaGrad) -> None:
        self.input_vectors_, self.output_vectors_ = learner.inputs, learner.outputs
        self.input_bias_, self.output_bias_ = learner.a, learner.b
        self.vectors_ = learner.inputs + learner.outputs
        self.n_iter_ = learner.n_iter
