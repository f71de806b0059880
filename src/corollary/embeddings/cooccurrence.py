r"""Word vectors from the eigenvectors of co-occurrence.

The counts :math:`N_{vw}` of a symmetric window become a symmetric matrix :math:`C`: the counts themselves, their
logarithms :math:`\log(1 + N)`, or the pointwise mutual information

.. math::
    \mathrm{pmi}(v, w) = \log \frac{P(v, w)}{P(v) P(w)} = \log \frac{N_{vw} \sum N}{N_v N_w}, \tag{1}

on the pairs that occur, all of it or its positive part. With the eigenvalues of largest modulus,

.. math:: C = V \Lambda V^\top \approx V_k \Lambda_k V_k^\top, \qquad E = V_k |\Lambda_k|^{1/2}. \tag{2}

:math:`C` is not positive semi-definite, so that :math:`C \approx E S E^\top` with the signs :math:`S` of the
eigenvalues kept beside the vectors.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import eigsh
from sklearn.utils._param_validation import Interval, StrOptions

from corollary import errors
from corollary.base import Data
from corollary.embeddings.corpus import window_counts
from corollary.embeddings.vectors import BaseEmbedding
from corollary.engine.learner import Once, State
from corollary.shapes import Array, Sparse

__all__ = ["CooccurrenceEmbedding", "eigen_embedding", "pmi"]


def pmi(N: sparse.csr_matrix, *, positive: bool = True) -> sparse.csr_matrix:
    """Return the pointwise mutual information of the pairs that occur, eq. 1, or its positive part."""
    entries = N.tocoo()
    row, column = np.asarray(N.sum(axis=1)).ravel(), np.asarray(N.sum(axis=0)).ravel()
    values = np.log(entries.data * N.sum() / (row[entries.row] * column[entries.col]))
    found = sparse.csr_matrix(
        (np.maximum(values, 0) if positive else values, (entries.row, entries.col)), N.shape
    )
    found.eliminate_zeros()
    return found


def eigen_embedding(C: sparse.csr_matrix, k: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return E (n, k) of eq. 2 and the eigenvalues, of largest modulus first."""
    n = C.shape[0]
    if k >= n - 1:  # Lanczos wants room; so small a matrix may be dense
        values, vectors = np.linalg.eigh(C.toarray())
    else:
        values, vectors = eigsh(C.astype(np.float64), k=k, which="LM", v0=rng.uniform(-1, 1, n))
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    values, vectors = values[order], vectors[:, order]
    top = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.where(vectors[top, np.arange(k)] < 0, -1.0, 1.0)
    return vectors * np.sqrt(np.abs(values)), values


class CooccurrenceEmbedding(BaseEmbedding):
    """Embed words by the leading eigenvectors of their co-occurrence.

    No training: counts, then linear algebra. The baseline that the predictive models must beat, and on small
    corpora often hard to beat.

    Parameters
    ----------
    dimension : int, default=100
        Number of eigenvectors. More reconstruct more of the matrix, and its noise.
    window : int, default=5
        Largest distance of a neighbour. Wider windows give topics, narrow ones grammar.
    measure : {"ppmi", "pmi", "log", "count"}, default="ppmi"
        What is factorised: the positive part of the pointwise mutual information, all of it, log(1 + N), or N.
    harmonic : bool, default=False
        Whether a pair at distance d counts 1 / d instead of 1.
    min_count : int, default=5
        Rarer words are left out.
    random_state : int or RandomState, optional
        Seed for the eigensolver's first vector.

    Attributes
    ----------
    words_ : list of str
        The vocabulary, most frequent first.
    counts_ : ndarray of shape (n_words,)
        How often each word occurs.
    cooccurrences_ : csr_matrix of shape (n_words, n_words)
        The counts N.
    eigenvalues_ : ndarray of shape (dimension,)
        Of largest modulus first; their signs are S.
    vectors_ : ndarray of shape (n_words, dimension)
        E of eq. 2.
    n_iter_ : int
        One: there is nothing to iterate.

    Notes
    -----
    Costs O(tokens * window + dimension * stored pairs) times the eigensolver's steps; the matrix stays sparse. The
    course notes take the square root of the eigenvalues as if all were positive; their moduli are meant.

    References
    ----------
    .. [1] O. Levy, Y. Goldberg, I. Dagan (2015). Improving distributional similarity with lessons learned from word
       embeddings. TACL 3, 211-225.

    Examples
    --------
    >>> from corollary.embeddings import CooccurrenceEmbedding
    >>> texts = ["red green blue", "one two three", "blue red green", "two three one"] * 5
    >>> model = CooccurrenceEmbedding(2, random_state=0).fit(texts)
    >>> sorted(word for word, _ in model.most_similar("red", n=2))
    ['blue', 'green']
    """

    _parameter_constraints: ClassVar = {
        "dimension": [Interval(Integral, 1, None, closed="left")],
        "window": [Interval(Integral, 1, None, closed="left")],
        "measure": [StrOptions({"ppmi", "pmi", "log", "count"})],
        "harmonic": ["boolean"],
        "min_count": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }
    _fitted = {"eigenvalues_": Array("width"), "cooccurrences_": Sparse("words_", "words_")}

    def __init__(
        self, dimension=100, *, window=5, measure="ppmi", harmonic=False, min_count=5, random_state=None
    ):
        self.dimension = dimension
        self.window = window
        self.measure = measure
        self.harmonic = harmonic
        self.min_count = min_count
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"dimension": 3}

    def _learner(self, data: Data) -> Once:
        corpus = self._corpus(data)
        n = len(self.words_)
        if self.dimension > n:
            must = f"dimension must be at most the number of words ({n})"
            do = "Lower dimension or min_count."
            raise errors.value("CooccurrenceEmbedding", must, self.dimension, do)

        def solve() -> State:
            N = window_counts(corpus, n, self.window, harmonic=self.harmonic)
            E, values = eigen_embedding(self._matrix(N), self.dimension, self._rng())
            counts = {"data": N.data, "indices": N.indices, "indptr": N.indptr}
            return {"E": E, "values": values, **counts}

        return Once(solve)

    def _matrix(self, N: sparse.csr_matrix) -> sparse.csr_matrix:
        if self.measure == "count":
            return N
        return N.log1p() if self.measure == "log" else pmi(N, positive=self.measure == "ppmi")

    def _adopt(self, learner: Once) -> None:
        found, n = learner.results, len(self.words_)
        self.vectors_, self.eigenvalues_ = np.ascontiguousarray(found["E"]), found["values"]
        self.cooccurrences_ = sparse.csr_matrix((found["data"], found["indices"], found["indptr"]), (n, n))
        self.n_iter_ = learner.n_iter
