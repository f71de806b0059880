r"""Willshaw's binary associative memory.

Pairs of patterns :math:`x \in \{0, 1\}^n`, :math:`y \in \{0, 1\}^m` with few ones are stored in one binary matrix,

.. math:: \Theta = \min\Big(1, \sum_t x^t (y^t)^\top\Big), \tag{1}

and :math:`y` is recalled by :math:`\hat y_j = 1[(\Theta^\top x)_j \ge \lVert x \rVert_1]` (2): every unit that all active
units of the cue point to. With :math:`y = x` the memory associates a pattern with itself, and completes it. Let every
pattern have :math:`r` ones. A stored pattern is never recalled with a one missing; a one too many appears where others have
filled all :math:`r` places by chance. With :math:`s` random patterns the share of the matrix beside the diagonal that
is set is

.. math:: q = 1 - \Big(1 - \frac{r (r - 1)}{n (n - 1)}\Big)^s \approx 1 - e^{-s r^2 / n^2}, \tag{3}

(for pairs :math:`1 - (1 - r_x r_y / nm)^s`, of the whole matrix), so there are about :math:`(n - r)\, q^r` ones too many,
the mean taken over the units (4). A recall with :math:`f` ones too many leaves open which :math:`r` of :math:`r + f` were
stored, so that all patterns together are known by

.. math:: s \Big[ \log_2 \binom{n}{r} - \log_2 \binom{r + f}{r} \Big] \text{ bits.} \tag{5}

Half full with :math:`r = \log_2 n` it holds about :math:`s = \ln 2\, n^2 / r^2` patterns and close to :math:`\ln 2` bits per
entry; overfull it answers with everything, and tells nothing. A row of :math:`\Theta` is kept
as bits of 64-bit words; recall is the conjunction of the rows of the active units.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import prange
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Data, Estimator, Memory, Transformer
from corollary.compiled import njit
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array, Count, Flag, Number
from corollary.validation import to_numpy

__all__ = ["Capacity", "WillshawMemory"]

WORD = 64
CHUNK = 65536  # patterns stored between two looks at the clock


@njit(cache=True, parallel=True)
def _store(indptr, indices, y_indptr, y_indices, bits, blocks):  # pragma: no cover - compiled
    """Set the bits of eq. 1; each thread owns a block of rows of the matrix, so none waits for another."""
    n = len(bits)
    for t in prange(blocks):
        low, high = t * n // blocks, (t + 1) * n // blocks
        for p in range(len(indptr) - 1):
            for a in range(indptr[p], indptr[p + 1]):
                i = indices[a]
                if low <= i < high:
                    row = bits[i]
                    for b in range(y_indptr[p], y_indptr[p + 1]):
                        j = y_indices[b]
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


def pointed_to(bits: np.ndarray, m: int, diagonal: bool, chunk: int = 1024) -> np.ndarray:
    """Return how many units point to each of m units, (m,); without ``diagonal`` none to itself."""
    sums = np.zeros(m, np.int64)
    for begin in range(0, len(bits), chunk):
        part = unpacked(bits[begin : begin + chunk], m)
        sums += part.sum(axis=0)
        if not diagonal:
            sums[begin : begin + chunk] -= part.diagonal(begin)
    return sums


def log2_choose(n: float, r: float) -> float:
    """Return the logarithm to base 2 of n over r, for real numbers too."""
    return (math.lgamma(n + 1) - math.lgamma(r + 1) - math.lgamma(n - r + 1)) / math.log(2)


class Capacity(NamedTuple):
    """What a memory holds and could hold."""

    patterns: int
    """Stored so far."""
    ones: float
    """Mean number of ones in a cue's pattern."""
    fill: float
    """Share of the matrix that is set; of a memory of single patterns, beside its diagonal."""
    expected_fill: float
    """Eq. 3 for random patterns."""
    spurious: float
    """Expected ones too many in a recall, eq. 4."""
    bits_per_entry: float
    """Information in what is recalled, per entry of the matrix, eq. 5."""
    best_patterns: float
    """Patterns at which the matrix is half full."""


class _Storing(Iteration):
    """One chunk of patterns after the other."""

    saved = ("bits",)

    def __init__(self, X: Any, Y: Any) -> None:
        self.X, self.Y = X, Y
        super().__init__(max_iter=max(1, -(-X.shape[0] // CHUNK)))
        self.bits = np.zeros((X.shape[1], -(-Y.shape[1] // WORD)), np.uint64)

    def sweep(self) -> Metrics:
        rows = slice((self.n_iter - 1) * CHUNK, self.n_iter * CHUNK)
        store(self.X[rows], self.Y[rows], self.bits)
        return {"fill": float(np.bitwise_count(self.bits).sum()) / len(self.bits) / self.Y.shape[1]}


def store(X: Any, Y: Any, bits: np.ndarray) -> None:
    """Set the bits of eq. 1 for pairs of CSR rows."""
    _store(X.indptr, X.indices, Y.indptr, Y.indices, bits, 2)


class WillshawMemory(Memory, Transformer, Estimator):
    """Store sparse binary patterns in a binary matrix and recall them from parts of them, or from their partners.

    ``fit(X)`` stores single patterns, which recall completes; ``fit(X, Y)`` with a matrix Y stores pairs, and
    recall answers a row of X with its row of Y. (A vector y, labels, is left unused, as by any transformer.) Takes dense
    arrays or, for hundreds of thousands of patterns, sparse ones; an entry above 0 is a one.

    Parameters
    ----------
    output : {"auto", "dense", "sparse"}, default="auto"
        What recall returns; "auto" is as the cue came.

    Attributes
    ----------
    bits_ : ndarray of uint64, shape (n_features_in_, ceil(n_outputs_ / 64))
        The matrix of eq. (1), 64 entries a word.
    paired_ : bool
        Whether the patterns have partners.
    n_outputs_ : int
        Units of what is recalled: those of a partner, else of a pattern.
    n_patterns_ : int
        Patterns, or pairs, stored.
    ones_, output_ones_ : float
        Mean number of ones of a pattern, and of what is recalled.
    history_ : list of dict
        Step, fill and seconds, one row per 65536 patterns.

    Notes
    -----
    Storing costs O(r^2) per pattern, recall O(r m / 64) per cue, and the matrix n m / 8 bytes. The
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
    >>> WillshawMemory().fit([[1, 1, 0, 0], [0, 0, 1, 1]], [[1, 0, 0], [0, 1, 0]]).recall([[0, 0, 1, 1]])
    array([[0., 1., 0.]])
    """

    _checks = {"accept_sparse": "csr"}
    _parameter_constraints = {"output": [StrOptions({"auto", "dense", "sparse"})]}
    _fitted = {
        "paired_": Flag(),
        "n_outputs_": Count(1),
        "n_patterns_": Count(1),
        "ones_": Number(0),
        "output_ones_": Number(0),
        "bits_": Array("n_features_in_", lambda model: -(-model.n_outputs_ // WORD), kind="u"),
    }

    def __init__(self, output="auto"):
        self.output = output

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {}

    def _check_y(self, X: Any, y: Any) -> Any:
        if y is None or not sparse.issparse(y) and np.asarray(to_numpy(y)).ndim < 2:
            return None
        Y = check_array(to_numpy(y), accept_sparse="csr", input_name="y")
        if Y.shape[0] != X.shape[0]:
            raise errors.value(
                "WillshawMemory", f"Y must have one row per row of X ({X.shape[0]})", Y.shape[0]
            )
        return _active(Y)

    def _learner(self, data: Data) -> _Storing:
        X = _active(data.X)
        Y = X if data.y is None else data.y
        self.paired_, self.n_outputs_ = data.y is not None, Y.shape[1]
        self.n_patterns_, self.ones_, self.output_ones_ = X.shape[0], X.nnz / X.shape[0], Y.nnz / Y.shape[0]
        return _Storing(X, Y)

    def _adopt(self, learner: _Storing) -> None:
        self.bits_ = learner.bits

    def partial_fit(self, X: Any, y: Any = None) -> WillshawMemory:
        """Store further patterns, or pairs if the first were pairs; nothing stored before is lost."""
        if not hasattr(self, "bits_"):
            return self.fit(X, y)
        X = _active(self._query(X))
        Y = self._check_y(X, y)
        width = None if Y is None else Y.shape[1]
        if width != (self.n_outputs_ if self.paired_ else None):
            must = f"Y must have {self.n_outputs_} columns" if self.paired_ else "Y must be left out"
            raise errors.value(
                "WillshawMemory", f"{must}, as in fit", "none" if Y is None else f"{width} columns"
            )
        Y = X if Y is None else Y
        store(X, Y, self.bits_)
        total = self.n_patterns_ + X.shape[0]
        self.ones_ = (self.ones_ * self.n_patterns_ + X.nnz) / total
        self.output_ones_ = (self.output_ones_ * self.n_patterns_ + Y.nnz) / total
        self.n_patterns_ = total
        return self

    def recall(self, X: Any) -> Any:
        """Return, for each cue, all units that its active units point to, eq. (2)."""
        checked = self._query(X)
        if self.output == "sparse" or (self.output == "auto" and sparse.issparse(checked)):
            return self._recalled(checked)
        return super().recall(X)

    def transform(self, X: Any) -> Any:
        """Recall, as :meth:`recall` does: the name that scikit-learn's pipelines call."""
        return self.recall(X)

    def _recall(self, X: Any) -> np.ndarray:
        return self._recalled(X).toarray()

    def _recalled(self, X: Any) -> Any:
        cues, parts = _active(X), []
        for begin in range(0, cues.shape[0], CHUNK // 16):
            part = cues[begin : begin + CHUNK // 16]
            words = np.zeros((part.shape[0], self.bits_.shape[1]), np.uint64)
            _recall(part.indptr, part.indices, self.bits_, words)
            parts.append(sparse.csr_matrix(unpacked(words, self.n_outputs_).astype(X.dtype)))
        return sparse.vstack(parts, format="csr")

    def capacity(self) -> Capacity:
        """Return how full the memory is, and what that means."""
        check_is_fitted(self)
        n, m, s, r, R = len(self.bits_), self.n_outputs_, self.n_patterns_, self.ones_, self.output_ones_
        own = 0 if self.paired_ else 1  # a unit always points to itself: the diagonal says nothing
        fills = pointed_to(self.bits_, m, diagonal=self.paired_) / max(1, n - own)
        hit = min(max(r * (R - own), 0.0) / max(1, n * (m - own)), 1 - 1e-15)  # that a pattern sets an entry
        expected = 1 - math.exp(s * math.log1p(-hit))
        best = -math.log(2) / math.log1p(-hit) if hit else math.inf
        # units that happen to be used more are pointed to more, and come up more often than the mean fill says
        spurious = (m - R) * float((fills**r).mean())
        # which R of all, less which R of those recalled
        told = log2_choose(m, R) - log2_choose(R + spurious, R)
        return Capacity(s, r, float(fills.mean()), expected, spurious, s * told / (n * m), best)

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
