r"""The restricted Boltzmann machine.

Binary visible units :math:`v` and hidden units :math:`h` with

.. math::
    E(v, h) = -b^\top v - c^\top h - h^\top W v, \qquad p(v, h) \propto e^{-E(v, h)}, \tag{1}

are independent given each other, :math:`p(h_k = 1 \mid v) = \sigma(W v + c)_k`,
:math:`p(v_i = 1 \mid h) = \sigma(W^\top h + b)_i` (2), and

.. math::
    F(v) = -b^\top v - \textstyle\sum_k \log(1 + e^{(Wv + c)_k}), \qquad p(v) \propto e^{-F(v)}. \tag{3}

The gradient of the log-likelihood is a difference of means, over the data and over the model,

.. math::
    \nabla_W = \mathbb E_{\text{data}}[h v^\top] - \mathbb E_{\text{model}}[h v^\top], \tag{4}

whose second part is taken from Gibbs chains that go on from update to update (persistent contrastive divergence).
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import check_random_state, gen_even_slices
from sklearn.utils._param_validation import Interval
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.base import Data, Estimator, Generator, Transformer
from corollary.engine.learner import Iteration, Metrics
from corollary.shapes import Array, Maybe, Seed
from corollary.validation import as_given

__all__ = ["BernoulliRBM", "free_energy"]

WATCHED = 100  # rows on which the history's pseudo-likelihood is taken
BURN_IN = 1000  # Gibbs steps before a sample is drawn


def mean_hidden(v: Any, W: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return p(h = 1 | v), eq. 2; (m, d) -> (m, k)."""
    p = safe_sparse_dot(v, W.T, dense_output=True)
    p += c
    return expit(p, out=p)


def mean_visible(h: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return p(v = 1 | h), eq. 2; (m, k) -> (m, d)."""
    p = h @ W
    p += b
    return expit(p, out=p)


def free_energy(v: Any, W: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return F(v), eq. 3; (m, d) -> (m,)."""
    hidden = np.logaddexp(0, safe_sparse_dot(v, W.T, dense_output=True) + c).sum(axis=1)
    return -safe_sparse_dot(v, b) - hidden


class _Persistent(Iteration):
    """Ascend eq. 4; a sweep is an epoch."""

    saved = ("W", "b", "c", "chains", "rng")

    def __init__(
        self, model: BernoulliRBM, X: Any, W: Any, b: Any, c: Any, chains: Any, rng: Any, n_iter: int
    ) -> None:
        super().__init__(max_iter=n_iter)
        self.X, self.rate, self.rng = X, float(model.learning_rate), rng
        self.W, self.b, self.c, self.chains = W, b, c, chains
        count = -(-X.shape[0] // model.batch_size)
        self.slices = list(gen_even_slices(count * model.batch_size, count, n_samples=X.shape[0]))
        self.watched = X[:WATCHED]

    def sweep(self) -> Metrics:
        for rows in self.slices:
            self.update(self.X[rows])
        places = np.random.default_rng(0).integers(0, self.X.shape[1], self.watched.shape[0])
        score = pseudo_likelihood(self.watched, places, self.W, self.b, self.c)
        return {"pseudo_likelihood": float(score.mean(dtype=np.float64))}

    def update(self, v: Any) -> None:
        """Make one step of eq. 4, and one of the chains."""
        h = mean_hidden(v, self.W, self.c)
        p = mean_visible(self.chains, self.W, self.b)
        v_model = (self.rng.uniform(size=p.shape) < p).astype(self.W.dtype)
        h_model = mean_hidden(v_model, self.W, self.c)
        rate = self.rate / v.shape[0]
        # all of one memory order: (k, d) row by row, as W is
        change = np.ascontiguousarray((v.T @ h).T) if sparse.issparse(v) else h.T @ v
        change -= h_model.T @ v_model
        change *= self.W.dtype.type(rate)
        change += self.W
        self.W = change
        # sums of a batch in double precision: rounding them would add up over the updates
        hidden, visible = (part.sum(axis=0, dtype=np.float64) for part in (h_model, v_model))
        self.c = (self.c + rate * (h.sum(axis=0, dtype=np.float64) - hidden)).astype(self.c.dtype)
        data = np.asarray(v.sum(axis=0), dtype=np.float64).reshape(-1)
        self.b = (self.b + rate * (data - visible)).astype(self.b.dtype)
        self.chains = (self.rng.uniform(size=h_model.shape) < h_model).astype(self.W.dtype)


def pseudo_likelihood(v: Any, places: np.ndarray, W: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return d log p(v_i | the rest), with one place i per row flipped; (m, d), (m,) -> (m,)."""
    rows = np.arange(v.shape[0])
    if sparse.issparse(v):
        flips = 1 - 2 * np.asarray(v[rows, places]).ravel()
        other = v + sparse.csr_matrix((flips, (rows, places)), shape=v.shape)
    else:
        other = v.copy()
        other[rows, places] = 1 - other[rows, places]
    gap = free_energy(other, W, b, c) - free_energy(v, W, b, c)
    return -v.shape[1] * np.logaddexp(0, -gap)


class BernoulliRBM(ClassNamePrefixFeaturesOutMixin, Transformer, Generator, Estimator):
    """Learn binary features with a restricted Boltzmann machine.

    A drop-in for scikit-learn's class that resumes and draws samples.

    Parameters
    ----------
    n_components : int, default=256
        Hidden units. More model finer structure.
    learning_rate : float, default=0.1
        Step of the updates; too large ones diverge.
    batch_size : int, default=10
        Samples per update, and Gibbs chains.
    n_iter : int, default=10
        Epochs.
    verbose : int, default=0
        Whether to show a progress bar, as ``Run(progress=True)`` does for any fit.
    random_state : int or RandomState, optional
        Seed for first weights, chains and samples.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features_in_)
        The weights W.
    intercept_hidden_ : ndarray of shape (n_components,)
        The biases c of the hidden units.
    intercept_visible_ : ndarray of shape (n_features_in_,)
        The biases b of the visible units.
    h_samples_ : ndarray of shape (batch_size, n_components)
        Hidden states of the chains.
    history_ : list of dict
        Step, pseudo-likelihood of the first 100 rows and seconds.

    Notes
    -----
    An epoch costs O(n d k). ``score_samples`` is the pseudo-likelihood, as in scikit-learn: the likelihood
    itself needs the partition function.

    References
    ----------
    .. [1] T. Tieleman (2008). Training restricted Boltzmann machines using approximations to the
       likelihood gradient. ICML.

    Examples
    --------
    >>> from corollary import BernoulliRBM
    >>> X = [[0, 0, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    >>> BernoulliRBM(2, random_state=0).fit(X).transform(X).shape
    (4, 2)
    """

    _expected_failures: ClassVar[dict[str, str]] = {
        name: "score_samples flips a random entry of each row, by its place among the rows, as scikit-learn's does"
        for name in ("check_methods_sample_order_invariance", "check_methods_subset_invariance")
    }
    _checks = {"accept_sparse": "csr"}
    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 0, None, closed="left")],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _fitted = {
        "components_": Array("hidden", "n_features_in_"),
        "h_samples_": Array(None, "hidden"),
        "intercept_visible_": Array("n_features_in_"),
        "intercept_hidden_": Array("hidden"),
        "random_state_": Maybe(Seed()),
    }

    def __init__(
        self, n_components=256, *, learning_rate=0.1, batch_size=10, n_iter=10, verbose=0, random_state=None
    ):
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def _test_params(cls) -> dict[str, Any]:
        return {"n_components": 4, "n_iter": 3}

    def _numpy_rng(self) -> np.random.RandomState:
        """Return scikit-learn's generator for an integer seed, a private one for None."""
        return check_random_state(self._seed() if self.random_state is None else self.random_state)

    def _learner(self, data: Data) -> _Persistent:
        X, rng, k = data.X, self._numpy_rng(), self.n_components
        W = rng.normal(0, 0.01, (k, X.shape[1])).astype(X.dtype)
        zeros = [np.zeros(shape, X.dtype) for shape in (X.shape[1], k, (self.batch_size, k))]
        return _Persistent(self, X, W, *zeros, rng, self.n_iter)

    def _adopt(self, learner: _Persistent) -> None:
        self.components_, self.h_samples_ = learner.W, learner.chains
        self.intercept_visible_, self.intercept_hidden_ = learner.b, learner.c

    def partial_fit(self, X: Any, y: Any = None) -> BernoulliRBM:
        """Make one update from the rows of X, as one batch."""
        first = not hasattr(self, "components_")
        with self._rolled_back_on_failure():
            self._validate_params()
            X = self._check(self._read_batch(X, y, first)[0], reset=first)
            if not hasattr(self, "random_state_"):
                self.random_state_ = self._numpy_rng()
            if first:
                k, d = self.n_components, X.shape[1]
                self.components_ = self.random_state_.normal(0, 0.01, (k, d))
                self.intercept_hidden_, self.intercept_visible_ = np.zeros(k), np.zeros(d)
                self.h_samples_ = np.zeros((self.batch_size, k))
            state = (self.components_, self.intercept_visible_, self.intercept_hidden_, self.h_samples_)
            learner = _Persistent(self, X, *state, self.random_state_, 1)
            learner.update(X)
            self._adopt(learner)
        return self

    def _transform(self, X: Any) -> np.ndarray:
        return self._mean_hiddens(X)

    def _mean_hiddens(self, v: Any) -> np.ndarray:
        return mean_hidden(v, self.components_, self.intercept_hidden_)

    def _sample_hiddens(self, v: Any, rng: Any) -> np.ndarray:
        p = self._mean_hiddens(v)
        return rng.uniform(size=p.shape) < p

    def _sample_visibles(self, h: Any, rng: Any) -> np.ndarray:
        p = mean_visible(h, self.components_, self.intercept_visible_)
        return rng.uniform(size=p.shape) < p

    def gibbs(self, v: Any) -> np.ndarray:
        """Return visible states after one step of the chain from ``v``: hidden, then visible."""
        check_is_fitted(self)
        if np.shape(v)[-1:] != self.components_.shape[1:]:
            must = f"v must have one column per visible unit ({self.components_.shape[1]})"
            raise errors.value("BernoulliRBM", must, f"shape {np.shape(v)}")
        if not hasattr(self, "random_state_"):
            self.random_state_ = self._numpy_rng()
        return self._sample_visibles(self._sample_hiddens(v, self.random_state_), self.random_state_)

    def _sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        chains = self.h_samples_[rng.integers(0, len(self.h_samples_), n)]
        for _ in range(BURN_IN):
            v = self._sample_visibles(chains, rng)
            chains = self._sample_hiddens(v, rng)
        return v.astype(self.components_.dtype)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the pseudo-likelihood of each row, one random entry of it being flipped."""
        v = self._query(X)
        places = self._numpy_rng().randint(0, v.shape[1], v.shape[0])
        weights = (self.components_, self.intercept_visible_, self.intercept_hidden_)
        return as_given(X, pseudo_likelihood(v, places, *weights))

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that the precision stays."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
