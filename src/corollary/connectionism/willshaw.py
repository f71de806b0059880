r"""Willshaw's binary associative memory.

Patterns :math:`x \in \{0, 1\}^n` with exactly :math:`r` ones are stored in one binary matrix,

.. math:: \Theta = \min\Big(1, \sum_t x^t (x^t)^\top\Big), \tag{1}

and recalled by :math:`y_j = 1[(\Theta x)_j \ge \lVert x \rVert_1]` (2): every unit that all active units of the cue
point to. A stored pattern is never recalled with a one missing; a one too many appears where other patterns have
filled all :math:`r` places by chance. With :math:`s` random patterns the share of the matrix beside the diagonal that
is set is

.. math:: q = 1 - \Big(1 - \frac{r (r - 1)}{n (n - 1)}\Big)^s \approx 1 - e^{-s r^2 / n^2}, \tag{3}

so there are about :math:`(n - r)\, q^r` ones too many, the mean taken over the units (4). Half full
with :math:`r = \log_2 n` it holds about
:math:`s = \ln 2\, n^2 / r^2` patterns and close to :math:`\ln 2` bits per entry (5). A row of :math:`\Theta` is kept
as bits of 64-bit words; recall is the conjunction of the rows of the active units.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from scipy import sparse
from sklearn.utils._param_validation import StrOptions

from corollary.base import Data, Estimator, Memory, Transformer
from corollary.engine.learner import Iteration, Metrics

__all__ = ["Capacity", "WillshawMemory"]

WORD = 64
CHUNK = 65536  # patterns stored between two looks at the clock


@njit(cache=True, parallel=True)
def _store(indptr, indices, bits, blocks):  # pragma: no cover - compiled
    """Set the bits of eq. 1; each thread owns a block of rows of the matrix, so none waits for another."""
    n = len(bits)
    for t in prange(blocks):
        low, high = t * n // blocks, (t + 1) * n // blocks
        for p in range(len(indptr) - 1):
            for a in range(indptr[p], indptr[p + 1]):
                i = indices[a]
                if low <= i < high:
                    row = bits[i]
                    for b in range(indptr[p], indptr[p + 1]):
                        j = indices[b]
                        row[j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@njit(cache=True, parallel=True)
def _recall(indptr, indices, bits, out):  # pragma: no cover - compiled
    """Write the conjunction of the rows of the active units, eq. 2, as words; nothing for an empty cue."""
    for p in prange(len(indptr) - 1):
        if indptr[p] == indptr[p + 1]:
            continue
        for word in range(bits.shape[1]):
            value = bits[indices[indptr[p]], word]
            for a in range(indptr[p] + 1, indptr[p + 1]):
                value &= bits[indices[a], word]
            out[p, word] = value


def unpacked(words: np.ndarray, n: int) -> np.ndarray:
    """Return rows of 64-bit words as an array of booleans, (m, n)."""
    return np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :n].astype(bool)


class Capacity(NamedTuple):
    """What a memory holds and could hold."""

    patterns: int
    """Stored so far."""
    ones: float
    """Mean number of ones in a pattern."""
    fill: float
    """Share of the matrix beside its diagonal that is set."""
    expected_fill: float
    """Eq. 3 for random patterns."""
    spurious: float
    """Expected ones too many in a recall, eq. 4."""
    bits_per_entry: float
    """Information in the patterns, log2 of n over r each, per entry of the matrix."""
    best_patterns: float
    """Patterns at which the matrix is half full."""


class _Storing(Iteration):
    """One chunk of patterns after the other."""

    saved = ("bits",)

    def __init__(self, X: Any) -> None:
        self.X, n = X, X.shape[1]
        super().__init__(max_iter=max(1, -(-X.shape[0] // CHUNK)))
        self.bits = np.zeros((n, -(-n // WORD)), np.uint64)

    def sweep(self) -> Metrics:
        part = self.X[(self.n_iter - 1) * CHUNK : self.n_iter * CHUNK]
        _store(part.indptr, part.indices, self.bits, 2)
        return {"fill": float(np.bitwise_count(self.bits).sum()) / len(self.bits) ** 2}


class WillshawMemory(Memory, Transformer, Estimator):
    """Store sparse binary patterns in a binary matrix and recall them from parts of them.

    Takes dense arrays or, for hundreds of thousands of patterns, sparse ones; an entry above 0 is a one.

    Parameters
    ----------
    output : {"auto", "dense", "sparse"}, default="auto"
        What recall returns; "auto" is as the cue came.

    Attributes
    ----------
    bits_ : ndarray of uint64, shape (n_features_in_, ceil(n_features_in_ / 64))
        The matrix of eq. (1), 64 entries a word.
    n_patterns_ : int
        Patterns stored.
    ones_ : float
        Their mean number of ones.
    history_ : list of dict
        Step, fill and seconds, one row per 65536 patterns.

    Notes
    -----
    Storing costs O(r^2) per pattern, recall O(r n / 64) per cue, and the matrix n^2 / 8 bytes. The
    threshold of eq. (2) is the number of ones of the cue, which for a whole pattern is r; a fixed threshold r
    would never recall a pattern with fewer ones. The logarithm in r = log n is to base 2: to base e the
    ones too many grow like n^0.31.

    References
    ----------
    .. [1] D. J. Willshaw, O. P. Buneman, H. C. Longuet-Higgins (1969). Non-holographic associative memory.
       Nature 222, 960-962.

    Examples
    --------
    >>> from corollary import WillshawMemory
    >>> memory = WillshawMemory().fit([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 0]])
    >>> memory.recall([[1, 1, 0, 0, 0, 0]])
    array([[1., 1., 1., 0., 0., 0.]])
    """

    _checks = {"accept_sparse": "csr"}
    _parameter_constraints = {"output": [StrOptions({"auto", "dense", "sparse"})]}

    def __init__(self, output="auto"):
        self.output = output

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {}

    def _learner(self, data: Data) -> _Storing:
        X = _active(data.X)
        self.n_patterns_, self.ones_ = X.shape[0], X.nnz / X.shape[0]
        return _Storing(X)

    def _adopt(self, learner: _Storing) -> None:
        self.bits_ = learner.bits

    def partial_fit(self, X: Any, y: Any = None) -> WillshawMemory:
        """Store further patterns; nothing stored before is lost."""
        if not hasattr(self, "bits_"):
            return self.fit(X)
        X = _active(self._query(X))
        _store(X.indptr, X.indices, self.bits_, 2)
        total = self.n_patterns_ + X.shape[0]
        self.ones_ = (self.ones_ * self.n_patterns_ + X.nnz) / total
        self.n_patterns_ = total
        return self

    def recall(self, X: Any) -> Any:
        """Return, for each cue, all units that its active units point to, eq. (2)."""
        checked = self._query(X)
        if self.output == "sparse" or (self.output == "auto" and sparse.issparse(checked)):
            return self._recalled(checked)
        return super().recall(X)

    def transform(self, X: Any) -> Any:
        """Return what :meth:`recall` does."""
        return self.recall(X)

    def _recall(self, X: Any) -> np.ndarray:
        return self._recalled(X).toarray()

    def _recalled(self, X: Any) -> Any:
        cues, parts = _active(X), []
        for begin in range(0, cues.shape[0], CHUNK // 16):
            part = cues[begin : begin + CHUNK // 16]
            words = np.zeros((part.shape[0], self.bits_.shape[1]), np.uint64)
            _recall(part.indptr, part.indices, self.bits_, words)
            parts.append(sparse.csr_matrix(unpacked(words, len(self.bits_)).astype(X.dtype)))
        return sparse.vstack(parts, format="csr")

    def capacity(self) -> Capacity:
        """Return how full the memory is, and what that means."""
        n, s, r = len(self._stored()), self.n_patterns_, self.ones_
        used = unpacked(self.bits_, n).diagonal()
        fills = (np.bitwise_count(self.bits_).sum(axis=1) - used) / max(1, n - 1)  # of each unit's row
        log_choose = (math.lgamma(n + 1) - math.lgamma(r + 1) - math.lgamma(n - r + 1)) / math.log(2)
        hit = min(max(r * (r - 1), 0.0) / max(1, n * (n - 1)), 1 - 1e-15)  # that a pattern sets an entry
        expected = 1 - math.exp(s * math.log1p(-hit))
        best = -math.log(2) / math.log1p(-hit) if hit else math.inf
        # units that happen to be used more have fuller rows, and attract more ones than the mean fill says
        spurious = (n - r) * float((fills**r).mean())
        return Capacity(s, r, float(fills.mean()), expected, spurious, s * log_choose / n**2, best)

    def _stored(self) -> np.ndarray:
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        return self.bits_

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that the precision stays."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _active(X: Any) -> Any:
    """Return the ones of X, an entry above 0 being one, as CSR."""
    if sparse.issparse(X):
        ones = sparse.csr_matrix(X > 0)
    else:
        ones = sparse.csr_matrix(np.asarray(X) > 0)
    ones.sort_indices()
    return ones
