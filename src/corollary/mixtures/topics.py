r"""Base of the topic models: fold-in of new documents, held-out perplexity, coherence, and learning of the prior.

A topic is a distribution :math:`p(w \mid z)` over words. Given topics, a document's mixture
:math:`\theta = p(z \mid d)` is found by EM,

.. math:: \theta_z \propto \alpha_z + \theta_z \sum_w c_w \frac{p(w \mid z)}{\sum_y \theta_y p(w \mid y)}. \tag{1}

*Document completion*: :math:`\theta` is fitted to one half of a document's words and the other half
is predicted,

.. math::
    \text{perplexity} = \exp\Big(\! -\frac{1}{\sum c_{dw}} \sum_{d,w} c_{dw}
    \log \sum_z \theta_{dz}\, p(w \mid z) \Big). \tag{2}

*Coherence* is the mean normalised pointwise mutual information of a topic's top words, counted over documents,

.. math:: \text{npmi}(v, w) = \log \frac{p(v, w)}{p(v)\, p(w)} \Big/ \!\! -\log p(v, w). \tag{3}

The Dirichlet prior of the mixtures, given expected counts :math:`N_{dk}`, has Minka's fixed point

.. math::
    \alpha_k \leftarrow \alpha_k \frac{\sum_d \psi(N_{dk} + \alpha_k) - \psi(\alpha_k)}
    {\sum_d \psi(N_d + \sum_j \alpha_j) - \psi(\sum_j \alpha_j)}. \tag{4}

References
----------
.. [1] H. M. Wallach, I. Murray, R. Salakhutdinov, D. Mimno (2009). Evaluation methods for topic models. ICML.
.. [2] G. Bouma (2009). Normalized (pointwise) mutual information in collocation extraction. GSCL.
.. [3] T. P. Minka (2000). Estimating a Dirichlet distribution. Technical report, MIT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import digamma
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative

from corollary import errors
from corollary.base import Estimator, TopicModel, Transformer
from corollary.mixtures.lda_kernels import fold_in_rows, log_predictions

__all__ = ["BaseTopics", "Halves", "coherence", "completion_perplexity", "fold_in", "halve", "learn_prior"]

PRIOR_FLOOR = 1e-6


class BaseTopics(ClassNamePrefixFeaturesOutMixin, TopicModel, Transformer, Estimator):
    """A model of counts of words, dense or sparse, or of raw texts, with topics in ``components_``."""

    _checks: ClassVar = {"accept_sparse": "csr"}
    _reads_sources = True

    @classmethod
    def _test_data(cls) -> tuple[np.ndarray, None]:
        rng = np.random.default_rng(0)
        rates = rng.dirichlet(np.full(3, 0.2), 40) @ rng.dirichlet(np.full(6, 0.3), 3)
        return rng.poisson(20 * rates).astype(np.float64), None

    def _check(self, X: Any, reset: bool) -> Any:
        X = super()._check(X, reset)
        check_non_negative(X, f"{type(self).__name__}.{'fit' if reset else 'transform'}")
        return X

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def top_words(self, n: int = 10) -> list[list[str]]:
        """Return the ``n`` words that weigh most in each topic; columns have numbers if the fit had no names for them."""
        check_is_fitted(self)
        names = getattr(self, "reading_", {}).get("words") or getattr(self, "feature_names_in_", None)
        names = range(self.components_.shape[1]) if names is None else names
        order = np.argsort(-self.components_, axis=1, kind="stable")[:, :n]
        return [[str(names[j]) for j in row] for row in order]

    def coherence(self, X: Any, n: int = 10) -> np.ndarray:
        """Return how often the ``n`` top words of each topic come together in the documents of X: :func:`coherence`.

        Parameters
        ----------
        X : texts or counts
            Documents, best such that the model has not seen.
        n : int, default=10
            Words per topic.
        """
        return coherence(self.components_, self._query(X), min(n, self.components_.shape[1]))

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that counts are not negative."""
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float32", "float64"]
        return tags


class Halves(NamedTuple):
    """Documents split by their tokens: mixtures are fitted to ``seen`` and predict ``rest``."""

    seen: sparse.csr_matrix
    rest: sparse.csr_matrix


def halve(X: Any, rng: np.random.Generator) -> Halves:
    """Split the words of each document at random into two halves."""
    X = sparse.csr_matrix(X)
    first = rng.random(X.nnz) < 0.5
    parts = []
    for chosen in (first, ~first):
        part = X.copy()
        part.data = np.where(chosen, X.data, 0)
        part.eliminate_zeros()
        parts.append(part)
    return Halves(*parts)


def fold_in(
    X: Any, topics: np.ndarray, alpha: Any = 0.0, max_iter: int = 100, tol: float = 1e-4
) -> np.ndarray:
    """Return the mixture of each document under fixed topics, eq. 1.

    Parameters
    ----------
    X : sparse matrix or array of shape (n_documents, n_words)
        Counts.
    topics : ndarray of shape (n_topics, n_words)
        Rows are distributions, or proportional to them.
    alpha : float or ndarray of shape (n_topics,), default=0.0
        Counts added to every topic; more makes mixtures more even.
    max_iter, tol : int and float
        Stop after that many updates, or when the entries change by less than ``tol`` in mean.

    Returns
    -------
    ndarray of shape (n_documents, n_topics)
        Rows sum to one; a document without words gets the prior's mean.
    """
    X = sparse.csr_matrix(X)
    T = _columns(topics)
    prior = np.broadcast_to(np.asarray(alpha, np.float64), (T.shape[1],)).copy()
    theta = np.full((X.shape[0], T.shape[1]), 1 / T.shape[1])
    fold_in_rows(X.indptr, X.indices, X.data.astype(np.float64), T, prior, theta, max_iter, tol)
    return theta


def completion_perplexity(topics: np.ndarray, halves: Halves, alpha: Any = 0.1) -> float:
    """Return the perplexity of the second halves given the first, eq. 2."""
    theta = fold_in(halves.seen, topics, alpha)
    rest = halves.rest
    log_p = log_predictions(rest.indptr, rest.indices, theta, _columns(topics))
    return float(np.exp(-(rest.data @ log_p) / rest.data.sum()))


def _columns(topics: np.ndarray) -> np.ndarray:
    """Return p(w | z) as (n_words, n_topics), so that a word's row is contiguous."""
    T = np.asarray(topics, np.float64)
    return np.ascontiguousarray((T / T.sum(axis=1, keepdims=True)).T)


def coherence(topics: np.ndarray, X: Any, n_top: int = 10) -> np.ndarray:
    """Return the mean normalised PMI of the top words of each topic over the documents of X, eq. 3.

    Parameters
    ----------
    topics : ndarray of shape (n_topics, n_words)
        Weights of the words.
    X : sparse matrix or array of shape (n_documents, n_words)
        Counts; two words co-occur in a document that has both.
    n_top : int, default=10
        Words per topic; more asks more of a topic.

    Returns
    -------
    ndarray of shape (n_topics,)
        Between -1 (never together) and 1 (always together).
    """
    topics = np.asarray(topics)
    if not 2 <= n_top <= topics.shape[1]:
        raise errors.value("coherence", f"n_top must lie between 2 and the {topics.shape[1]} words", n_top)
    top = np.argsort(-topics, axis=1, kind="stable")[:, :n_top]
    words, where = np.unique(top, return_inverse=True)
    present = (sparse.csc_matrix(X)[:, words] > 0).astype(np.float64)
    joint = (present.T @ present).toarray() / X.shape[0]
    return np.array([_npmi(joint[np.ix_(row, row)]) for row in where.reshape(top.shape)])


def _npmi(joint: np.ndarray) -> float:
    """Return the mean of eq. 3 over the pairs; words never seen together have -1, always and everywhere 1."""
    i, j = np.triu_indices(len(joint), 1)
    p, single = joint[i, j], np.diag(joint)
    out = np.full(len(p), -1.0)
    seen = p > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(p[seen] / (single[i] * single[j])[seen]) / -np.log(p[seen])
    out[seen] = np.where(p[seen] < 1, value, 1.0)
    return float(out.mean())


def learn_prior(
    counts: np.ndarray, alpha: np.ndarray, *, total: Callable[[Any], Any] | None = None, steps: int = 5
) -> np.ndarray:
    """Return the prior (K,) after a few steps of eq. 4.

    Parameters
    ----------
    counts : ndarray of shape (n_documents, n_topics)
        Expected counts of the documents at hand.
    alpha : ndarray of shape (n_topics,)
        The prior so far.
    total : callable, optional
        Adds up over processes that have other documents.
    steps : int, default=5
        Fixed-point steps.
    """
    N = np.maximum(counts.astype(np.float64), 0)
    lengths = N.sum(axis=1)
    alpha = alpha.astype(np.float64)
    total = total or (lambda x: x)
    for _ in range(steps):
        above = total((digamma(N + alpha) - digamma(alpha)).sum(axis=0))
        below = float(total(np.array((digamma(lengths + alpha.sum()) - digamma(alpha.sum())).sum())))
        if not below > 0:
            return alpha
        alpha = np.maximum(alpha * above / below, PRIOR_FLOOR)
    return alpha
