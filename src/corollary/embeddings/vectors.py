r"""Words and their vectors: neighbours, analogies, evaluation and files, in one place.

Words are alike by the cosine of their vectors. *a is to b as c is to d* is answered by the word nearest to

.. math:: \hat e_b - \hat e_a + \hat e_c, \tag{1}

unit vectors, the three words themselves left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy.stats import spearmanr
from sklearn.exceptions import NotFittedError

from corollary import errors
from corollary.base import Data, Estimator, Transformer, check_count
from corollary.data.compressed import opened
from corollary.data.limits import reading
from corollary.embeddings.corpus import Corpus, as_tokens, read
from corollary.shapes import Array, List, Maybe, Text

__all__ = ["BaseEmbedding", "Evaluation", "KeyedVectors", "WordVectors", "read_word2vec"]

CHUNK = 1024  # questions answered at once


class Evaluation(NamedTuple):
    """A score, and how many of the questions had only known words."""

    score: float
    n_used: int
    n_total: int


class WordVectors(Transformer):
    """What every embedding of words can do, from ``words_`` and ``vectors_`` (n_words, dimension)."""

    words_: list[str]
    vectors_: np.ndarray
    _fitted = {
        "words_": List(Text()),
        "counts_": Maybe(Array("words_", kind="iu")),
        "vectors_": Array("words_", "width"),
    }

    def _require_fit(self) -> None:
        if not hasattr(self, "words_"):
            raise NotFittedError(f"{type(self).__name__}: there are no vectors yet. Call fit first.")

    @property
    def _index(self) -> dict[str, int]:
        self._require_fit()
        found = self.__dict__.get("_word_index")
        if found is None or len(found) != len(self.words_):
            found = self.__dict__["_word_index"] = {word: i for i, word in enumerate(self.words_)}
        return found

    def _saved_attributes(self) -> dict[str, Any]:
        kept = super()._saved_attributes()  # type: ignore[misc]
        return {key: value for key, value in kept.items() if key != "_word_index"}

    def _unit(self) -> np.ndarray:
        norms = np.linalg.norm(self.vectors_, axis=1, keepdims=True)
        return self.vectors_ / np.maximum(norms, np.finfo(self.vectors_.dtype).tiny)

    def _number(self, word: str) -> int:
        index = self._index
        if word not in index:
            do = "Lower min_count to keep rarer words." if hasattr(self, "min_count") else ""
            raise errors.no_key(type(self).__name__, "word", word, self.words_, do)
        return index[word]

    def __contains__(self, word: str) -> bool:
        return word in self._index

    def __getitem__(self, word: str) -> np.ndarray:
        return self.vectors_[self._number(word)]

    # --- texts -------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> np.ndarray:
        """Return the vector of each word, or the mean vector of each text.

        Parameters
        ----------
        X : list of str or list of lists of str
            Words or texts. Unknown words are left out; a text of unknown words only gets zeros.

        Returns
        -------
        ndarray of shape (len(X), dimension)
        """
        index, texts = self._index, as_tokens(X, type(self).__name__)
        out = np.zeros((len(texts), self.vectors_.shape[1]), self.vectors_.dtype)
        for row, tokens in zip(out, texts):
            known = [index[token] for token in tokens if token in index]
            if known:
                row[:] = self.vectors_[known].mean(axis=0)
        return out

    # --- neighbours --------------------------------------------------------------------------------------

    def similarity(self, first: str, second: str) -> float:
        """Return the cosine of two words' vectors."""
        a, b = (self[word].astype(np.float64) for word in (first, second))
        return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-300))

    def most_similar(
        self, positive: str | Sequence[str], negative: Sequence[str] = (), n: int = 10
    ) -> list[Any]:
        """Return the ``n`` words nearest to the sum of some words minus the sum of others, with their cosines.

        Parameters
        ----------
        positive : str or sequence of str
            Words to be near to.
        negative : sequence of str, default=()
            Words to be far from.
        n : int, default=10
            How many; the words asked about are left out.

        Returns
        -------
        list of (str, float)
        """
        check_count(self, "n", n)
        plus = [self._number(w) for w in ([positive] if isinstance(positive, str) else positive)]
        minus = [self._number(w) for w in ([negative] if isinstance(negative, str) else negative)]
        if not plus + minus:
            raise errors.value(type(self).__name__, "most_similar needs at least one word", "none")
        unit = self._unit()
        cosines = _cosines(unit[plus].sum(axis=0) - unit[minus].sum(axis=0), unit)
        cosines[plus + minus] = -np.inf
        best = np.argsort(-cosines, kind="stable")[: min(n, len(cosines) - len({*plus, *minus}))]
        return [(self.words_[i], float(cosines[i])) for i in best]

    def analogy(self, a: str, b: str, c: str, n: int = 1) -> list[Any]:
        """Return the ``n`` best answers to *a is to b as c is to what?*, eq. 1, with their cosines."""
        return self.most_similar([b, c], [a], n)

    # --- evaluation --------------------------------------------------------------------------------------

    def evaluate_similarity(self, pairs: Any, scores: Any) -> Evaluation:
        """Return Spearman's correlation of the cosines with people's scores.

        Parameters
        ----------
        pairs : frame or array of shape (n, 2)
            Words; tried as they are, then in lower case. Pairs with an unknown word are left out.
        scores : array-like of shape (n,)
            How alike people find them.
        """
        numbers, known = self._known(pairs, 2)
        scores = self._one_each(scores, "score", len(known)).astype(float)
        if known.sum() < 2:
            must = "evaluate_similarity needs at least two pairs of known words"
            raise errors.value(type(self).__name__, must, int(known.sum()))
        unit = self._unit()
        cosines = (unit[numbers[known, 0]] * unit[numbers[known, 1]]).sum(axis=1)
        correlation = float(spearmanr(cosines, scores[known]).statistic)
        return Evaluation(correlation, int(known.sum()), len(known))

    def evaluate_analogies(self, questions: Any, answers: Any) -> Evaluation:
        """Return the share of questions *a is to b as c is to what?* whose first answer is right.

        Parameters
        ----------
        questions : frame or array of shape (n, 3)
            Words a, b, c; tried as they are, then in lower case. Questions with an unknown word are left out.
        answers : array-like of shape (n,)
            The words that are right.
        """
        questions = np.asarray(questions, dtype=object)
        rows = np.column_stack([questions, self._one_each(answers, "answer", len(questions))])
        numbers, known = self._known(rows, 4)
        if not known.any():
            must = "evaluate_analogies needs at least one question of known words"
            raise errors.value(type(self).__name__, must, "none")
        unit, numbers = self._unit(), numbers[known]
        right = 0
        for begin in range(0, len(numbers), CHUNK):
            a, b, c, d = numbers[begin : begin + CHUNK].T
            scores = (unit[b] - unit[a] + unit[c]) @ unit.T
            for word in (a, b, c):
                scores[np.arange(len(word)), word] = -np.inf
            right += int((scores.argmax(axis=1) == d).sum())
        return Evaluation(right / len(numbers), len(numbers), len(known))

    def _one_each(self, values: Any, what: str, n: int) -> np.ndarray:
        array = np.asarray(values, dtype=object)
        if array.shape != (n,):
            must = f"there must be one {what} for each of {n} rows"
            raise errors.value(type(self).__name__, must, f"shape {array.shape}")
        return array

    def _known(self, rows: Any, width: int) -> tuple[np.ndarray, np.ndarray]:
        index = self._index
        words = np.asarray(rows, dtype=object)
        if words.ndim != 2 or words.shape[1] != width:
            must = f"there must be {width} words in every row"
            raise errors.value(type(self).__name__, must, f"shape {words.shape}")
        find = lambda word: index.get(word, index.get(str(word).lower(), -1))
        numbers = np.array([[find(word) for word in row] for row in words], np.int64).reshape(-1, width)
        return numbers, (numbers >= 0).all(axis=1)

    # --- files -------------------------------------------------------------------------------------------

    def save_word2vec(self, path: str | Path, *, binary: bool = False) -> Path:
        """Write the vectors in word2vec's format, which gensim and others read.

        Parameters
        ----------
        path : path
            The file.
        binary : bool, default=False
            Whether numbers are raw float32; otherwise they are text.
        """
        self._require_fit()
        spaced = [word for word in self.words_ if not word or any(c.isspace() for c in word)]
        if spaced:
            must = "words in a word2vec file must be without white space"
            raise errors.value(type(self).__name__, must, repr(spaced[0]), "Join their parts by underscores.")
        vectors = self.vectors_.astype("<f4")
        with open(path, "wb") as file:
            file.write(f"{len(self.words_)} {vectors.shape[1]}\n".encode())
            for word, row in zip(self.words_, vectors):
                body = row.tobytes() if binary else " ".join(map(repr, row.tolist())).encode()
                file.write(word.encode() + b" " + body + b"\n")
        return Path(path)


class BaseEmbedding(WordVectors, Estimator):
    """An estimator that learns its words' vectors from texts."""

    input = "text"

    def _check(self, X: Any, reset: bool) -> Any:
        return as_tokens(X, type(self).__name__)

    def _corpus(self, data: Data) -> Corpus:
        """Return the texts as numbers and keep the words, with their counts."""
        (self.words_, self.counts_), corpus = read(data.X, self.min_count, type(self).__name__)
        self._word_index = None
        return corpus

    def _threads(self) -> int:
        """Return how many threads share the vectors: one, where a seed is to decide everything."""
        alone = self.random_state is not None if self.deterministic == "auto" else self.deterministic
        return 1 if alone else effective_n_jobs(-1 if self.n_jobs is None else self.n_jobs)


def _cosines(query: np.ndarray, unit: np.ndarray) -> np.ndarray:
    return unit @ (query / max(float(np.linalg.norm(query)), 1e-30))


class KeyedVectors(WordVectors):
    """Words and vectors without a model, as read from a file.

    Parameters
    ----------
    words : iterable of str
        The words, all different.
    vectors : array of shape (n_words, dimension)
        Their vectors.

    Examples
    --------
    >>> from corollary.embeddings import KeyedVectors
    >>> vectors = KeyedVectors(["one", "two", "six"], [[1, 0], [1, 1], [0, 1]])
    >>> vectors.most_similar("one", n=1)[0][0]
    'two'
    """

    def __init__(self, words: Iterable[str], vectors: Any) -> None:
        self.words_ = [str(word) for word in words]
        self.vectors_ = np.ascontiguousarray(vectors, dtype=np.float32)
        if self.vectors_.ndim != 2 or len(self.vectors_) != len(self.words_):
            must = f"there must be one vector for each of {len(self.words_)} words"
            raise errors.value("KeyedVectors", must, f"shape {self.vectors_.shape}")
        if len(self._index) != len(self.words_):
            raise errors.value(
                "KeyedVectors", "words must be different", f"{len(self._index)} different ones"
            )


def read_word2vec(path: str | Path, *, binary: bool = False, unicode_errors: str = "replace") -> KeyedVectors:
    """Read vectors in word2vec's format, as its own program, gensim or :meth:`save_word2vec` write them, or GloVe's.

    A text file without the first line that counts words and dimensions, as GloVe's program writes it, is read too, and
    so are files compressed by gzip, bzip2 or xz. Of a word that occurs twice the first vector counts, with a warning.

    Parameters
    ----------
    path : path
        The file.
    binary : bool, default=False
        Whether numbers are raw float32.
    unicode_errors : {"replace", "ignore", "strict", "backslashreplace"}, default="replace"
        What becomes of bytes in a word that are no UTF-8, as in ``bytes.decode``.
    """
    data = _unpacked(Path(path))
    head, _, body = data.partition(b"\n")
    try:
        n, dimension = map(int, head.split())
    except ValueError as error:
        n, dimension, body = data.rstrip().count(b"\n") + 1, len(head.split(b" ")) - 1, data
        if binary or dimension < 1 or not _read_text(head, 1, dimension)[0]:
            must = (
                "the file must begin with the number of words and the dimension, or with a word and numbers"
            )
            raise errors.value("read_word2vec", must, repr(head[:40]), f"Is binary={not binary}?") from error
    least = 4 if binary else 2  # bytes of a number: float32, or a digit and a blank
    if n < 1 or dimension < 1 or n * dimension * least > len(body):
        must = "the file must hold as many numbers as its first line says"
        got = f"{n} words of dimension {dimension} in {len(body)} bytes"
        raise errors.value("read_word2vec", must, got, f"Was it cut short, or is binary={not binary}?")
    raw, vectors = (_read_binary if binary else _read_text)(body, n, dimension)
    words = _decoded(raw, unicode_errors, path)
    if len(words) != n or len(vectors) != n:
        must = f"the file must hold {n} words of dimension {dimension}, as its first line says"
        raise errors.value(
            "read_word2vec", must, f"{len(words)}", f"Was it cut short, or is binary={not binary}?"
        )
    first = {word: i for i, word in reversed([*enumerate(words)])}
    if len(first) < len(words):
        again = next(word for i, word in enumerate(words) if first[word] != i)
        text = (
            f"read_word2vec: {len(words) - len(first)} words of {str(path)!r} occur again, such as {again!r}"
        )
        warnings.warn(f"{text}; the first vector of each counts.", errors.CorollaryWarning, stacklevel=2)
        rows = sorted(first.values())
        words, vectors = [words[i] for i in rows], vectors[rows]
    return KeyedVectors(words, vectors)


def _unpacked(path: Path) -> bytes:
    """Return what a file holds, whatever it was compressed by, within the bounds of readers."""
    try:
        with reading(None), opened(path) as file:
            return file.read()
    except errors.Refused:
        raise
    except ValueError as error:
        must = f"{str(path)!r} must be a whole file"
        raise errors.value("read_word2vec", must, error, "Copy it again.") from error


def _decoded(raw: list[bytes], how: str, path: Any) -> list[str]:
    try:
        return [word.decode("utf-8", how) for word in raw]
    except UnicodeDecodeError as error:
        do = 'Use unicode_errors="replace" or "ignore".'
        raise errors.value("read_word2vec", f"the words of {str(path)!r} must be UTF-8", error, do) from error


def _read_text(body: bytes, n: int, dimension: int) -> tuple[list[bytes], np.ndarray]:
    words, rows = [], np.empty((n, dimension), np.float32)
    for line in body.split(b"\n")[:n]:
        parts = line.rstrip().split(b" ")
        try:
            rows[len(words)] = [float(part) for part in parts[-dimension:]]
        except ValueError:
            break
        words.append(b" ".join(parts[:-dimension]))
    return words, rows[: len(words)]


def _read_binary(body: bytes, n: int, dimension: int) -> tuple[list[bytes], np.ndarray]:
    words, rows, at, size = [], np.empty((n, dimension), np.float32), 0, 4 * dimension
    while len(words) < n:
        space = body.find(b" ", at)
        if space < 0 or space + 1 + size > len(body):
            break
        rows[len(words)] = np.frombuffer(body, "<f4", dimension, space + 1)
        words.append(body[at:space].lstrip(b"\n"))
        at = space + 1 + size
    return words, rows[: len(words)]
