r"""Texts as numbers: tokens, vocabulary, and how often words stand near each other.

With :math:`x_1, \dots, x_T` the words of a text, the counts in a window of radius :math:`R` are

.. math:: N_{vw} = \sum_t \sum_{1 \le |\delta| \le R} c_\delta\, [x_{t+\delta} = v,\ x_t = w], \tag{1}

with weights :math:`c_\delta = 1` or :math:`1 / |\delta|`; they are symmetric.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, count, repeat
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from corollary import errors
from corollary.compiled import njit
from corollary.data.kinds import check_texts

__all__ = ["Corpus", "Vocabulary", "as_tokens", "encode", "read", "window_counts"]

CHUNK = 2**20  # tokens whose pairs are held at once


class Vocabulary(NamedTuple):
    """Words from the most to the least frequent, and how often each occurs."""

    words: list[str]
    counts: np.ndarray

    @property
    def index(self) -> dict[str, int]:
        """The number of each word."""
        return {word: i for i, word in enumerate(self.words)}


class Corpus(NamedTuple):
    """Texts as word numbers (n_tokens,), one after the other; text i is ``tokens[start[i]:start[i + 1]]``."""

    tokens: np.ndarray
    start: np.ndarray


def as_tokens(X: Any, owner: str) -> list[list[str]]:
    """Return texts as lists of tokens: strings are split at white space, lists of strings are taken as they are.

    >>> as_tokens(["to be", ["or", "not"]], "SkipGram")
    [['to', 'be'], ['or', 'not']]
    """
    if not isinstance(X, str | bytes | dict) and isinstance(X, Iterable) and getattr(X, "ndim", 1) == 1:
        X = list(X)
        if any(isinstance(text, list | tuple) for text in X):
            return [_tokens(text, i, owner) for i, text in enumerate(X)]
    return [text.split() for text in check_texts(X, owner)]


def _tokens(text: Any, i: int, owner: str) -> list[str]:
    if isinstance(text, str):
        return text.split()
    if not isinstance(text, list | tuple):
        raise _no_tokens(f"{type(text).__name__} at {i}", owner)
    return text  # type: ignore[return-value]


def _no_tokens(got: str, owner: str) -> TypeError:
    return errors.kind(
        owner, "every text must be a string or a list of strings", got, "Use str() on the tokens."
    )


def read(texts: list[list[str]], min_count: int, owner: str) -> tuple[Vocabulary, Corpus]:
    """Return the words that occur at least ``min_count`` times, ties in alphabetical order, and the texts in them."""
    number: dict[str, int] = defaultdict(count().__next__)  # a new word gets the next number, in one pass
    lengths = np.fromiter(map(len, texts), np.int64, count=len(texts))
    try:
        codes = np.fromiter(
            map(number.__getitem__, chain.from_iterable(texts)), np.int64, count=int(lengths.sum())
        )
    except TypeError:
        raise _no_tokens("a list within a list", owner) from None
    words = list(number)
    strange = next((word for word in words if not isinstance(word, str)), None)
    if strange is not None:
        raise _no_tokens(f"the token {strange!r}", owner)
    counts = np.bincount(codes, minlength=len(words))
    order = sorted(
        (i for i in range(len(words)) if counts[i] >= min_count), key=lambda i: (-counts[i], words[i])
    )
    if len(order) < 2:
        got = f"{len(order)} of {len(words)} words"
        must = f"at least two words must occur min_count={min_count} times"
        raise errors.value(owner, must, got, "Lower min_count or give more text.")
    rank = np.full(len(words), -1, np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    found = Vocabulary([str(words[i]) for i in order], counts[order])
    corpus = _without_unknown(rank[codes], lengths)
    if np.diff(corpus.start).max() < 2:
        raise errors.value(owner, "some text must have two known words", "texts of single words")
    return found, corpus


def encode(texts: list[list[str]], index: dict[str, int]) -> Corpus:
    """Return texts as numbers; words that are not in the index are left out."""
    lengths = np.fromiter(map(len, texts), np.int64, count=len(texts))
    numbers = np.fromiter(
        map(index.get, chain.from_iterable(texts), repeat(-1)), np.int32, count=int(lengths.sum())
    )
    return _without_unknown(numbers, lengths)


def _without_unknown(numbers: np.ndarray, lengths: np.ndarray) -> Corpus:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    known = numbers >= 0
    if known.all():
        return Corpus(numbers, ends)
    return Corpus(numbers[known], np.concatenate([[0], np.cumsum(known)])[ends])


@njit(cache=True)
def _pairs(tokens, start, first, last, window, harmonic):  # pragma: no cover - compiled
    """Return (left, right, weight) for every pair within a window whose left token is in first .. last."""
    left, right = np.empty((last - first) * window, np.int32), np.empty((last - first) * window, np.int32)
    weight = np.empty((last - first) * window, np.float32)
    n, text = 0, np.searchsorted(start, first, side="right") - 1
    for t in range(first, last):
        while t >= start[text + 1]:
            text += 1
        for u in range(t + 1, min(t + window + 1, start[text + 1])):
            left[n], right[n] = tokens[t], tokens[u]
            weight[n] = 1 / (u - t) if harmonic else 1.0
            n += 1
    return left[:n], right[:n], weight[:n]


def window_counts(corpus: Corpus, n_words: int, window: int, *, harmonic: bool = False) -> sparse.csr_matrix:
    """Count how often words stand within ``window`` of each other, eq. 1; windows end with the text.

    Parameters
    ----------
    corpus : Corpus
        Texts as numbers.
    n_words : int
        Size of the vocabulary.
    window : int
        Largest distance.
    harmonic : bool, default=False
        Whether a pair at distance d counts 1 / d instead of 1.

    Returns
    -------
    csr_matrix of shape (n_words, n_words)
        Symmetric.
    """
    total = sparse.csr_matrix((n_words, n_words))
    for first in range(0, len(corpus.tokens), CHUNK):
        last = min(first + CHUNK, len(corpus.tokens))
        left, right, weight = _pairs(corpus.tokens, corpus.start, first, last, window, harmonic)
        part = sparse.coo_matrix((weight.astype(np.float64), (left, right)), (n_words, n_words))
        total = total + part.tocsr()
    return (total + total.T).tocsr()
