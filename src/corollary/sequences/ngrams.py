r"""A linear model of n-gram counts (tf-idf), whose scores are added to those of a network.

A text has the counts :math:`n_f` of its phrases :math:`f` of one to g words, and of those the features

.. math:: v_f = \frac{(1 + \ln n_f)\, \iota_f}{\sqrt{\sum_h (1 + \ln n_h)^2 \iota_h^2}}, \qquad
          \iota_f = 1 + \ln \frac{1 + N}{1 + N_f}, \tag{1}

with :math:`N_f` of the :math:`N` training texts holding f. Their linear scores minimise the convex

.. math:: C \sum_i w_i\, \mathrm{CE}(y_i, W^\top v_i + b) + \tfrac12 \lVert W \rVert^2, \tag{2}

which is logistic regression on tf-idf (where a text has any number of labels, one for each label). The network's output is
added to these scores times :math:`\beta`: it learns what phrases do not tell. On its own training texts (2) is nearly always
right and would leave nothing to learn, so while the network is trained each text is scored by weights fitted to the other
folds. C (3 or 30) and :math:`\beta` are those that make the cross-entropy of these scores least. Of 200 texts and more a tenth is
held out to stop by; if it is not more probable with the network than by phrases alone, the network says nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_matrix, diags
from scipy.special import expit, log_softmax
from sklearn.utils.validation import check_is_fitted
from torch import nn

from corollary.base import Data, as_tensor, check_count
from corollary.engine.clock import now
from corollary.engine.interrupts import time_left
from corollary.engine.run import current
from corollary.engine.training import Training
from corollary.errors import value
from corollary.shapes import Array, List, Maybe, Text

__all__ = ["ScoresPhrases", "cross_fitted", "fit_scores", "folds_of", "phrase_counts", "silence", "weighted"]

WORD = r"(?u)\b\w+\b"
MOST = 100_000  # phrases that are told apart
OFTEN = 200  # texts from which on a phrase must be in two of them
FOLDS = 3
STRENGTHS = (3.0, 30.0)  # C of eq. 2
STEPS = 60  # of L-BFGS, and fewer where weights only help to choose
FEWER = 30
PATIENCE = 2  # epochs without a gain on held-out texts
TEMPERATURES = (-4.0, 4.0)  # bounds of the logarithm of beta


# --- equation 1 ------------------------------------------------------------------------------------------


def phrase_counts(texts: list[str], n: int, phrases: list[str] | None = None) -> tuple[csr_matrix, list[str]]:
    """Return how often each text has each phrase of up to n words, and the phrases, sorted.

    >>> counts, phrases = phrase_counts(["a sea, a sun"], 2)
    >>> phrases, counts.toarray().tolist()
    (['a', 'a sea', 'a sun', 'sea', 'sea a', 'sun'], [[2, 1, 1, 1, 1, 1]])
    """
    from sklearn.feature_extraction.text import CountVectorizer

    least = 2 if len(texts) >= OFTEN else 1
    how = {"ngram_range": (1, n), "token_pattern": WORD}
    if phrases is not None:
        return CountVectorizer(vocabulary=phrases, **how).transform(texts), phrases
    counter = CountVectorizer(min_df=least, max_features=MOST, **how)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no words at all, or none twice
        return csr_matrix((len(texts), 0)), []
    return counts, [str(phrase) for phrase in counter.get_feature_names_out()]


def rarity(counts: csr_matrix) -> np.ndarray:
    """Return the inverse document frequencies, iota of eq. 1."""
    found = np.bincount(counts.indices, minlength=counts.shape[1])
    return 1 + np.log((1 + counts.shape[0]) / (1 + found))


def weighted(counts: csr_matrix, idf: np.ndarray) -> csr_matrix:
    """Return the features v of eq. 1."""
    logs = csr_matrix((1 + np.log(counts.data), counts.indices, counts.indptr), shape=counts.shape)
    logs = logs @ diags(idf, shape=(len(idf), len(idf)))
    norms = np.sqrt(np.asarray(logs.multiply(logs).sum(1)).ravel())
    return csr_matrix(diags(1 / np.where(norms > 0, norms, 1.0)) @ logs)


# --- equation 2 ------------------------------------------------------------------------------------------


def fit_scores(
    V: csr_matrix,
    Y: np.ndarray,
    weight: np.ndarray,
    strength: float,
    until: float = np.inf,
    several: bool = False,
    steps: int = STEPS,
) -> tuple[np.ndarray, np.ndarray]:
    """Return W and b of eq. 2 for targets Y (n, n_classes), one row of probabilities each, by L-BFGS.

    After the time ``until`` the best weights so far are returned. With ``several`` the classes are labels that a text may
    have or not, each by itself.
    """
    d, k = V.shape[1], Y.shape[1]
    turned = V.T.tocsr()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W, b = flat[: d * k].reshape(d, k), flat[d * k :]
        costs, error = losses(V @ W + b, Y, several)
        error *= weight[:, None]
        total = strength * float(weight @ costs) + 0.5 * float((W * W).sum())
        return total, np.concatenate([(strength * (turned @ error) + W).ravel(), strength * error.sum(0)])

    def stop(_: np.ndarray) -> None:
        if now() > until:
            raise StopIteration

    options = {"maxiter": steps, "gtol": 1e-4 * strength, "ftol": 1e-8}
    found = minimize(loss, np.zeros(d * k + k), jac=True, method="L-BFGS-B", callback=stop, options=options)
    return found.x[: d * k].reshape(d, k), found.x[d * k :]


def losses(z: np.ndarray, Y: np.ndarray, several: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the cross-entropy of each text's scores, and its derivative with respect to them."""
    if several:
        return (np.logaddexp(0, z) - Y * z).sum(1), expit(z) - Y
    logs = log_softmax(z, axis=1)
    return -(Y * logs).sum(1), np.exp(logs) * Y.sum(1, keepdims=True) - Y


def cross_fitted(
    V: csr_matrix,
    Y: np.ndarray,
    weight: np.ndarray,
    fold: np.ndarray,
    until: float = np.inf,
    several: bool = False,
) -> tuple[np.ndarray, float, float]:
    """Return scores of every text by weights that have not seen it; beta and C, which make their cross-entropy least."""
    found = []
    for strength in STRENGTHS:
        scores = np.zeros(Y.shape)
        for part in np.unique(fold):
            held, kept = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
            W, b = fit_scores(V[kept], Y[kept], weight[kept], strength, until, several, steps=FEWER)
            scores[held] = V[held] @ W + b
        cost, beta = tempered(scores, Y, weight, several)
        found.append((cost, scores, beta, strength))
        if now() > until:
            break
    return min(found, key=lambda each: each[0])[1:]


def folds_of(texts: list[str]) -> np.ndarray:
    """Return the fold of each text, by a hash of its words: equal texts are in the same fold."""
    return np.array([crc32(text.encode("utf-8", "surrogatepass")) % FOLDS for text in texts])


def tempered(
    scores: np.ndarray, Y: np.ndarray, weight: np.ndarray, several: bool = False
) -> tuple[float, float]:
    """Return the least mean cross-entropy of scores times a positive number, and that number."""

    def cost(log_beta: float) -> float:
        return float(weight @ losses(np.exp(log_beta) * scores, Y, several)[0]) / max(
            float(weight.sum()), np.finfo(float).tiny
        )

    found = minimize_scalar(cost, bounds=TEMPERATURES, method="bounded")
    return float(found.fun), float(np.exp(found.x))


# --- beside a network ------------------------------------------------------------------------------------


class ScoresPhrases:
    """A classifier of texts whose network is called with the linear scores of phrases as its last input.

    It has ``ngrams`` among its parameters, calls ``_measure_phrases(data)`` when it measures its data, and gives
    ``_scores(texts)`` to its network wherever they are not None.
    """

    _fitted: ClassVar[Mapping[str, Any]] = {
        "ngrams_": Maybe(List(Text())),
        "ngram_idf_": Maybe(Array("ngrams_")),
        "ngram_coef_": Maybe(Array("ngrams_", "classes_")),
        "ngram_intercept_": Maybe(Array("classes_")),
    }
    ngrams: int
    classes_: np.ndarray
    training: Training | None

    def top_ngrams(self, n: int = 10) -> dict[Any, list[str]]:
        """Return, for each class, the n phrases with the largest weights in the linear part.

        Parameters
        ----------
        n : int, default=10
            How many.
        """
        check_is_fitted(self)
        check_count(self, "n", n)
        self._check_phrases()
        coef = self.ngram_coef_ - self.ngram_coef_.mean(1, keepdims=True)
        order = np.argsort(-coef, axis=0, kind="stable")[:n]
        return {
            label: [self.ngrams_[i] for i in order[:, j]] for j, label in enumerate(self.classes_.tolist())
        }

    def ngram_scores(self, X: Any) -> np.ndarray:
        """Return the linear scores (n, n_classes) of texts, which the network is called with after the tokens."""
        texts = self._query(X)  # type: ignore[attr-defined]
        self._check_phrases()
        return self._linear(texts)

    def _check_phrases(self) -> None:
        if not hasattr(self, "ngrams_"):
            raise value(
                type(self).__name__, "the model must have a linear part", "none", "Fit it with ngrams=2."
            )

    def _plan(self, n: int | None = None) -> Training:
        """Return how to descend: where there are enough texts, some are held out to stop by."""
        plan = super()._plan(n)  # type: ignore[misc]
        given = Training() if self.training is None else self.training
        if not self.__dict__.get("_holds_out") or given.early_stopping is not None:
            return plan  # type: ignore[no-any-return]
        patience = PATIENCE if given.patience is None else given.patience
        return plan.overridden(early_stopping=True, patience=patience)  # type: ignore[no-any-return]

    def _measure_phrases(self, data: Data) -> None:
        """Fit the linear part, unless there is nothing to count; keep the scores that the network is trained with."""
        for name in ("ngrams_", "ngram_idf_", "ngram_coef_", "ngram_intercept_", "_cross_fitted"):
            self.__dict__.pop(name, None)
        self._holds_out = (
            len(data.X) >= OFTEN and data.validation is None and "_going_on" not in self.__dict__
        )
        if not self.ngrams:
            return
        counts, phrases = phrase_counts(data.X, self.ngrams)
        if not phrases:
            return
        idf = rarity(counts)
        V, k = weighted(counts, idf), len(self.classes_)
        Y = np.eye(k)[data.y] if data.y.ndim == 1 else data.y
        weight = self._weights(data)  # type: ignore[attr-defined]
        weight = np.ones(len(Y)) if weight is None else weight
        begin, limit, several = now(), _seconds(), bool(getattr(self, "multilabel_", False))
        fold = folds_of(data.X)
        scores, beta, strength = cross_fitted(V, Y, weight, fold, begin + 0.5 * limit, several)
        W, b = fit_scores(V, Y, weight, strength, begin + 0.7 * limit, several)
        self.ngrams_, self.ngram_idf_ = phrases, idf.astype(np.float32)
        self.ngram_coef_, self.ngram_intercept_ = ((beta * part).astype(np.float32) for part in (W, b))
        self._cross_fitted = data.X, (beta * scores).astype(np.float32)

    def _linear(self, texts: list[str]) -> np.ndarray:
        counts, _ = phrase_counts(texts, self.ngrams, self.ngrams_)
        V = weighted(counts, self.ngram_idf_.astype(np.float64))
        return (V @ self.ngram_coef_ + self.ngram_intercept_).astype(np.float32)

    def _scores(self, texts: list[str]) -> Any:
        """Return the scores of texts as a tensor on the device; of those of the fit, the cross-fitted ones."""
        if not hasattr(self, "ngrams_"):
            return None
        fitted, scores = self.__dict__.get("_cross_fitted", (None, None))
        scores = scores if fitted is texts else self._linear(texts)
        return as_tensor(scores).to(current().device)

    def _with_scores(
        self, inputs: dict[str, Any], free: dict[str, dict[int, str]]
    ) -> tuple[dict[str, Any], dict[str, dict[int, str]]]:
        """Return the inputs of an ONNX graph with the scores, which ``ngram_scores`` gives, where there are any."""
        if not hasattr(self, "ngrams_"):
            return inputs, free
        n = len(next(iter(inputs.values())))
        scores = as_tensor(np.zeros((n, len(self.classes_)), dtype=np.float32))
        return {**inputs, "scores": scores}, {**free, "scores": {0: "n"}}

    def _adopt(self, learner: Any) -> None:
        super()._adopt(learner)  # type: ignore[misc]
        for name in ("_cross_fitted", "_holds_out"):
            self.__dict__.pop(name, None)
        if hasattr(self, "ngrams_") and learner.validate is not None and not self._helps(learner):
            silence(self.module_.head)

    def _helps(self, learner: Any) -> bool:
        """Whether held-out texts are more probable with the network than by their phrases alone."""
        start = copy.deepcopy(self.module_)
        silence(start.head)
        with torch.no_grad():
            both = [learner.validate(module)["validation_loss"] for module in (self.module_, start)]
        return bool(both[0] < both[1])


def silence(head: nn.Linear) -> None:
    """Make a head say nothing, so that training starts from the scores."""
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)


def _seconds() -> float:
    """Return how long the fit at hand may take."""
    known = [limit for limit in (current().time_limit, time_left()) if limit is not None]
    return min(known, default=np.inf)
