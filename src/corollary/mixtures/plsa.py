r"""Probabilistic latent semantic analysis.

Counts :math:`N_{ij}` of word :math:`w_j` in document :math:`d_i` have

.. math::
    p(w_j \mid d_i) = \sum_z p(w_j \mid z)\, p(z \mid d_i), \qquad
    \ell = \sum_{ij} N_{ij} \log p(w_j \mid d_i), \tag{1}

and EM climbs :math:`\ell` with :math:`q_{ijz} \propto p(w_j \mid z)\, p(z \mid d_i)`,

.. math::
    p(w_j \mid z) = \frac{\sum_i N_{ij} q_{ijz}}{\sum_{ij} N_{ij} q_{ijz}}, \qquad
    p(z \mid d_i) = \frac{1}{s_i} \sum_j N_{ij} q_{ijz}, \quad s_i = \sum_j N_{ij}. \tag{2}

With :math:`U = [p(w_j \mid z)]` and :math:`V = [p(z \mid d_i)]`, of unit column sums, :math:`\hat N = U V` has
:math:`\hat N_{ji} = p(w_j \mid d_i)`, and :math:`-\ell` is up to a constant the Kullback-Leibler divergence of
:math:`N_{ij}` from :math:`s_i \hat N_{ji}`: (2) is the multiplicative update of KL-NMF for both factors at
once, then normalised.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval

from corollary import errors
from corollary.base import Data
from corollary.engine.learner import Iteration, Metrics
from corollary.engine.run import current
from corollary.linalg.threads import threads
from corollary.mixtures.lda_kernels import em_rows, log_predictions, word_sums
from corollary.mixtures.lda_learners import as_documents, by_word, gather, start_topics
from corollary.mixtures.topics import BaseTopics, fold_in
from corollary.shapes import Array, Number

__all__ = ["PLSA"]


class EM(Iteration):
    """Eq. 2, one pass over the documents per sweep.

    Parameters
    ----------
    X : csr_matrix of shape (D, V)
        Counts.
    topics : ndarray of shape (V, K)
        p(w | z) to begin with.
    mixtures : ndarray of shape (D, K)
        p(z | d) to begin with.
    max_iter, tol : int and float
        Stop after that many sweeps, or when the log-likelihood of a word rises by less than ``tol``.
    n_jobs : int or None
        Threads.
    """

    shares = True
    saved = ("topics", "mixtures", "log_likelihood")

    def __init__(
        self,
        X: sparse.csr_matrix,
        topics: np.ndarray,
        mixtures: np.ndarray,
        max_iter: int,
        tol: float,
        n_jobs: Any,
    ) -> None:
        super().__init__(max_iter)
        self.topics, self.mixtures, self.tol, self.n_jobs = topics, mixtures, tol, n_jobs
        self.rows = current().shard(X.shape[0])
        self.X = X[self.rows]
        self.order = by_word(self.X)
        self.document = np.repeat(np.arange(self.X.shape[0]), np.diff(self.X.indptr))
        self.words = float(X.data.sum(dtype=np.float64))
        self.log_likelihood = -np.inf

    def sweep(self) -> Metrics:
        """Do one E and one M step; the likelihood reported is that before the M step."""
        run, X = current(), self.X
        theta = self.mixtures[self.rows]
        share, sums = np.empty(X.nnz, X.dtype), np.empty_like(self.topics)
        with threads(self.n_jobs):
            mixtures = em_rows(X.indptr, X.indices, X.data, self.topics, theta, share)
            word_sums(*self.order, self.document, share, theta, sums)
        kept = X.data > 0
        counts = X.data[kept].astype(np.float64)
        total = float(run.sum(np.array(counts @ np.log(counts / share[kept]))))
        self.topics = normalised(self.topics * run.sum(sums), self.topics)
        self.mixtures[self.rows] = mixtures
        self.mixtures = gather(self.mixtures, self.rows, run)
        mean = total / self.words
        self.converged = bool(mean - self.log_likelihood < self.tol)
        self.log_likelihood = mean
        return {"log_likelihood": mean}


def normalised(masses: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Return columns that sum to one; a column without mass stays as it was."""
    total = masses.sum(axis=0, dtype=np.float64)
    full = total > 0
    return np.where(full, masses / np.where(full, total, 1), otherwise).astype(masses.dtype)


class PLSA(BaseTopics):
    r"""Find topics in word counts by probabilistic latent semantic analysis (maximum likelihood).

    The topic model without priors: use it where counts are plenty, and latent Dirichlet
    allocation where documents are short.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics. More describe finer differences, and overfit sooner.
    max_iter : int, default=100
        Most sweeps of EM.
    tol : float, default=1e-4
        Stop when the log-likelihood of a word rises by less; smaller fits longer.
    n_jobs : int, optional
        Threads, by default all; the result does not depend on it.
    random_state : int or RandomState, optional
        Seed for the documents that topics begin as.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        The topics p(w | z); rows sum to one.
    mixtures_ : ndarray of shape (n_documents, n_components)
        The mixtures p(z | d) of the documents fitted; rows sum to one.
    log_likelihood_ : float
        Of a word of the documents fitted, in nats.
    n_iter_ : int
        Sweeps run.
    history_ : list of dict
        Step, log-likelihood and seconds of every sweep.

    Notes
    -----
    Maximises eq. 1 of the module, which never falls. A sweep costs O(n_components * entries). The course
    notes print the likelihood as :math:`N_{ij} \log \hat N_{ij}`, although :math:`\hat N` has words as rows;
    it is :math:`N_{ij} \log \hat N_{ji}` here.

    References
    ----------
    .. [1] T. Hofmann (1999). Probabilistic latent semantic indexing. SIGIR.
    .. [2] C. Ding, T. Li, W. Peng (2008). On the equivalence between non-negative matrix factorization and
       probabilistic latent semantic indexing. Computational Statistics & Data Analysis 52, 3913-3927.

    Examples
    --------
    >>> from corollary.mixtures import PLSA
    >>> X = [[3, 2, 0, 0], [4, 1, 0, 0], [0, 0, 2, 3], [0, 0, 5, 1]]
    >>> PLSA(2, random_state=0).fit_transform(X).round().sum(axis=0)
    array([2., 2.])
    """

    _parameter_constraints: ClassVar = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
    }
    _fitted = {
        "components_": Array("n_components", "n_features_in_", low=0),
        "mixtures_": Array(None, "n_components", low=0),
        "log_likelihood_": Number(),
    }

    def __init__(self, n_components=10, *, max_iter=100, tol=1e-4, n_jobs=None, random_state=None):
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 3, "max_iter": 10}

    def _learner(self, data: Data) -> EM:
        X = as_documents(data.X)
        if not X.data.any():
            raise errors.value("PLSA", "some document must have words", "counts that are all zero")
        topics = start_topics(X, self.n_components, self._rng()).astype(X.dtype)
        mixtures = np.full((X.shape[0], self.n_components), 1 / self.n_components, X.dtype)
        return EM(X, topics, mixtures, self.max_iter, self.tol, self.n_jobs)

    def _adopt(self, learner: EM) -> None:
        self.components_ = np.ascontiguousarray(learner.topics.T)
        self.mixtures_ = learner.mixtures
        self.log_likelihood_ = learner.log_likelihood
        self.n_iter_ = learner.n_iter

    def _transform(self, X: Any) -> np.ndarray:
        X = as_documents(X)
        with threads(self.n_jobs):
            return fold_in(X, self.components_, max_iter=200, tol=1e-6).astype(X.dtype)

    def _inverse_transform(self, Z: np.ndarray) -> np.ndarray:
        return Z @ self.components_.astype(Z.dtype, copy=False)

    def score(self, X, y=None):
        """Return the mean log-likelihood of a word of the documents X, in nats, eq. 1."""
        X = as_documents(self._query(X))
        theta = fold_in(X, self.components_, max_iter=200, tol=1e-6)
        topics = np.ascontiguousarray(self.components_.T.astype(np.float64))
        log_p = log_predictions(X.indptr, X.indices, theta, topics)
        return float(X.data.astype(np.float64) @ log_p / X.data.sum(dtype=np.float64))

    def perplexity(self, X):
        """Return the perplexity of the documents X under mixtures fitted to them."""
        return float(np.exp(-self.score(X)))
