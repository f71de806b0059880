"""Roles: mixins with the public methods of classifiers, regressors, transformers, densities, recommenders and others.

A public method validates its input, calls one private hook of the concrete class, and converts the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, ClusterMixin, RegressorMixin, TransformerMixin
from sklearn.utils import check_array, compute_class_weight, compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.labels import as_names, names_to_keep, places, places_of_pairs
from corollary.data.multilabel import indicators, label_sets
from corollary.data.ratings import check_ratings
from corollary.shapes import Flag, Labels, Maybe
from corollary.validation import as_given, check_complete, check_count, check_target, finite, to_numpy

__all__ = [
    "Classifier",
    "Clusterer",
    "Completer",
    "Density",
    "Generator",
    "LanguageModel",
    "Linker",
    "Memory",
    "Recommender",
    "Regressor",
    "Tagger",
    "TopicModel",
    "Transformer",
    "roles",
]


def given_target(owner: Any, X: Any, y: Any) -> Any:
    """Return y, or the target of a Dataset if y is left out."""
    if y is not None:
        return y
    if getattr(X, "y", None) is None or not isinstance(X, Dataset):
        must = "score needs targets"
        raise errors.value(type(owner).__name__, must, "none", "Pass y, or a Dataset with a target.")
    return X.y


class Classifier(ClassifierMixin):  # type: ignore[misc]
    """Predicts one of several classes. Hook: ``_predict_proba(X)`` of shape (n, n_classes)."""

    role = "classifier"
    _fitted: ClassVar[Mapping[str, Any]] = {"classes_": Labels(), "multilabel_": Maybe(Flag())}
    classes_: np.ndarray
    _soft_targets: ClassVar[bool] = False  # whether y may be probabilities (n, n_classes)
    _several_labels: ClassVar[bool] = False  # whether a sample may have any number of labels

    def _check_y(self, X: Any, y: Any) -> Any:
        self.__dict__.pop("multilabel_", None)
        several = label_sets(y) if y is not None else None
        if several is not None:
            self.classes_, y = several[0], self._check_labels(X, several[1])
            self.multilabel_ = True
            return y
        soft = self._soft_targets and _columns(y) > 1
        y = check_target(self, X, y, multi_output=soft)
        if soft:
            self.classes_ = np.arange(y.shape[1])
            return self._check_probabilities(y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise errors.value(
                type(self).__name__,
                "y must have at least two classes",
                f"the one class {self.classes_.tolist()[0]!r}",
            )
        return codes

    def _check_labels(self, X: Any, y: np.ndarray) -> np.ndarray:
        """Return which labels each sample has (n, n_labels)."""
        owner = type(self).__name__
        if not self._several_labels:
            do = "Use a model that takes several (MLPClassifier, TextCNN, BERTClassifier, SequenceClassifier), or scikit-learn's "
            raise errors.value(
                owner,
                "y must have one label per sample",
                "several",
                do + "MultiOutputClassifier around this one.",
            )
        if getattr(self, "class_weight", None) is not None:
            must = "class_weight is for one label per sample"
            raise errors.value(
                owner, must, f"several, and class_weight={self.class_weight!r}", "Leave it out."
            )  # type: ignore[attr-defined]
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(y) != rows:
            raise errors.value(owner, f"y must have one entry per sample ({rows})", len(y))
        return y

    def _check_probabilities(self, y: np.ndarray) -> np.ndarray:
        """Return soft targets (n, n_classes), whose classes are 0, 1, ..."""
        if y.dtype.kind not in "fiub" or y.min() < 0 or not np.allclose(y.sum(1), 1.0, atol=1e-4):
            got = f"shape {y.shape}, which are none"
            do = "Pass one label per sample, or rows that are not negative and sum to 1."
            raise errors.value(type(self).__name__, "y of two axes must hold probabilities", got, do)
        return y.astype(np.float64)

    def _weights(self, data: Any) -> np.ndarray | None:
        """Return each sample's weight, times that of its class where the model has a ``class_weight``."""
        if getattr(self, "class_weight", None) is None:
            return data.sample_weight  # type: ignore[no-any-return]
        by_class = class_weights(self.class_weight, self.classes_, data.y)  # type: ignore[attr-defined]
        return np.asarray(by_class if data.sample_weight is None else by_class * data.sample_weight)

    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each class, in the order of ``classes_``; of several labels, each by itself."""
        return as_given(X, finite(self, self._answer(self._predict_proba, X)))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy; the labels are those of the Dataset by default. Of several labels, all must be right."""
        y = given_target(self, X, y)
        if getattr(self, "multilabel_", False):
            y = indicators(y, self.classes_, type(self).__name__).astype(np.int64)
        return float(super().score(X, y, sample_weight))

    def predict(self, X: Any) -> Any:
        """Return the most probable class; where samples have several labels, which of ``classes_`` each has (n, n_labels)."""
        chances = np.asarray(finite(self, self._answer(self._predict_proba, X)))  # type: ignore[attr-defined]
        if getattr(self, "multilabel_", False):
            return as_given(X, (chances > 0.5).astype(np.int64))
        return as_given(X, self.classes_[chances.argmax(axis=-1)])

    @available_if(lambda self: self._several_labels)  # type: ignore[untyped-decorator]
    def predict_labels(self, X: Any) -> list[list[Any]]:
        """Return the labels of each sample, the most probable first."""
        chances = np.asarray(self.predict_proba(X))
        if not getattr(self, "multilabel_", False):
            return [[label] for label in self.classes_[chances.argmax(1)].tolist()]
        order = np.argsort(-chances, axis=1, kind="stable")
        return [
            [self.classes_[j].item() for j in places_ if row[j] > 0.5] for row, places_ in zip(chances, order)
        ]


def _columns(y: Any) -> int:
    """Return the number of columns of a two-dimensional target; 1 for any other, ragged ones included."""
    try:
        shape = np.asarray(to_numpy(y)).shape
    except ValueError:
        return 1
    return int(shape[1]) if len(shape) == 2 else 1


def class_weights(class_weight: Any, classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the weight of each sample's class, for codes (n,) or probabilities (n, n_classes)."""
    if y.ndim == 1:
        return np.asarray(compute_sample_weight(class_weight, classes[y]))
    if class_weight == "balanced":  # n / (n_classes * size of the class), whose sizes may be fractions here
        return np.asarray(y @ (len(y) / (y.shape[1] * y.sum(0).clip(np.finfo(float).tiny))))
    return np.asarray(y @ compute_class_weight(class_weight, classes=classes, y=classes))


class Regressor(RegressorMixin):  # type: ignore[misc]
    """Predicts numbers. Hook: ``_predict(X)`` of the shape of y."""

    role = "regressor"
    _multi_output: ClassVar[bool] = False

    def _check_y(self, X: Any, y: Any) -> Any:
        y = check_target(self, X, y, multi_output=self._multi_output)
        try:
            return y.astype(X.dtype if getattr(X, "dtype", None) in (np.float32, np.float64) else np.float64)
        except (TypeError, ValueError) as error:
            do = "Use a classifier if they are labels."
            raise errors.value(
                type(self).__name__, "y must hold numbers", repr(y.ravel()[:1].tolist()[0]), do
            ) from error

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination; the targets are those of the Dataset by default."""
        return float(super().score(X, given_target(self, X, y), sample_weight))

    def predict(self, X: Any) -> Any:
        """Return the predicted targets."""
        return as_given(X, finite(self, self._answer(self._predict, X)))  # type: ignore[attr-defined]

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn whether several targets at once are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._multi_output
        return tags


class Tagger:
    """Labels every part of a sequence, a set or a text. Hook: ``_probabilities(X)``, one array (parts, n_classes) each."""

    role = "tagger"
    _fitted: ClassVar[Mapping[str, Any]] = {"classes_": Labels()}
    classes_: np.ndarray
    _whole: ClassVar[str] = "sequence"
    _parts: ClassVar[str] = "steps"

    def predict_proba(self, X: Any) -> list[np.ndarray]:
        """Return, for each sample, the probabilities (parts, n_classes) of the labels of its parts."""
        return [finite(self, part) for part in self._probabilities(self._query(X))]  # type: ignore[attr-defined, no-any-return]

    def predict(self, X: Any) -> list[np.ndarray]:
        """Return, for each sample, the most probable label of every part."""
        return [self.classes_[p.argmax(1)] for p in self.predict_proba(X)]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the share of parts that are labelled rightly."""
        y = given_target(self, X, y)
        wanted, found = self._labels(self._query(X), y), self.predict(X)  # type: ignore[attr-defined]
        return float(np.mean(np.concatenate(wanted) == np.concatenate(found)))

    def _labels(self, X: Any, y: Any) -> list[np.ndarray]:
        owner, must = type(self).__name__, f"y must have one list of labels per {self._whole} ({len(X)})"
        if y is None or isinstance(y, str) or not hasattr(y, "__len__"):
            raise errors.kind(owner, must, type(y).__name__, f"Pass the labels of all {self._parts} as y.")
        if len(y) != len(X):
            raise errors.value(owner, must, len(y), "Leave out what has no labels.")
        listed = (part.tolist() if hasattr(part, "tolist") else part for part in y)
        labels = [np.asarray(list(part) if hasattr(part, "__iter__") else part) for part in listed]
        for i, (part, x) in enumerate(zip(labels, X)):
            if part.shape != (len(x),):
                must = f"{self._whole} {i} has {len(x)} {self._parts} and must have as many labels"
                do = f"Give the {self._parts} that have none a label of their own."
                raise errors.value(owner, must, f"labels of shape {part.shape}", do)
        return labels

    def _weights(self, codes: list[np.ndarray], sample_weight: np.ndarray | None) -> list[np.ndarray]:
        """Return the weight of every part: that of its sequence times that of its class."""
        flat = np.ones(sum(map(len, codes)))
        if getattr(self, "class_weight", None) is not None:
            flat = class_weights(self.class_weight, self.classes_, np.concatenate(codes))  # type: ignore[attr-defined]
        parts = np.split(flat, np.cumsum([len(part) for part in codes])[:-1])
        return parts if sample_weight is None else [part * w for part, w in zip(parts, sample_weight)]

    def _check_y(self, X: Any, y: Any) -> list[np.ndarray]:
        labels = self._labels(X, y)
        flat = np.concatenate(labels)
        check_complete(type(self).__name__, flat)
        check_classification_targets(flat)
        self.classes_, codes = np.unique(flat, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"only {self.classes_.tolist()[0]!r}"
            raise errors.value(type(self).__name__, "y must have at least two classes", got)
        return np.split(codes, np.cumsum([len(part) for part in labels])[:-1])


class Transformer(TransformerMixin):  # type: ignore[misc]
    """Maps data to features. Hooks: ``_transform(X)`` and, where it can be undone, ``_inverse_transform(Z)``."""

    role = "transformer"

    def transform(self, X: Any) -> Any:
        """Return the features of X."""
        return as_given(X, finite(self, self._answer(self._transform, X)))  # type: ignore[attr-defined]

    @available_if(lambda self: hasattr(self, "_inverse_transform"))  # type: ignore[untyped-decorator]
    def inverse_transform(self, X: Any) -> Any:
        """Return data from features: the inverse of ``transform``, or the nearest to it."""
        check_is_fitted(self)
        Z = check_array(to_numpy(X), dtype=(np.float64, np.float32), input_name="X")
        return as_given(X, finite(self, self._inverse_transform(Z)))  # type: ignore[attr-defined]


class Density:
    """Has a density. Hook: ``_log_prob(X)`` of shape (n,)."""

    role = "density"

    def score_samples(self, X: Any) -> Any:
        """Return the log-density of each sample, in nats."""
        return as_given(X, finite(self, self._answer(self._log_prob, X), log=True))  # type: ignore[attr-defined]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density per sample, in nats."""
        return float(np.mean(np.asarray(self._answer(self._log_prob, X), dtype=np.float64)))  # type: ignore[attr-defined]


class Generator:
    """Draws new samples. Hook: ``_sample(n, rng)``."""

    role = "generator"

    def sample(self, n_samples: int = 1) -> Any:
        """Draw new samples; with an integer ``random_state`` every call draws the same ones."""
        check_is_fitted(self)
        check_count(self, "n_samples", n_samples)
        return finite(self, self._sample(n_samples, self._rng()))  # type: ignore[attr-defined]


class Clusterer(ClusterMixin):  # type: ignore[misc]
    """Clusters samples. Hook: ``_predict(X)`` of shape (n,)."""

    role = "clusterer"

    def predict(self, X: Any) -> Any:
        """Return the cluster of each sample."""
        return as_given(X, finite(self, self._answer(self._predict, X)))  # type: ignore[attr-defined]

    def fit_predict(self, X: Any, y: Any = None) -> Any:
        """Fit and return the cluster of each sample."""
        return self.fit(X, y).predict(X)  # type: ignore[attr-defined]


class Completer:
    """Fills in missing entries. Hooks: ``_predict(users, items)`` of shape (n,); ``_average()``.

    ``_average()`` returns the overall mean and the biases of rows and columns, which are the prediction for users and items
    that the fit did not see. A model fitted to a table of (user, item, value) takes and returns the names of that table.
    """

    role = "completer"
    _fitted: ClassVar[Mapping[str, Any]] = {
        "users_": Maybe(Labels("shape_.0")),
        "items_": Maybe(Labels("shape_.1")),
    }
    shape_: tuple[int, int]

    def predict(self, pairs: Any) -> np.ndarray:
        """Return the value of each (row, column) pair; ``pairs`` has shape (n, 2).

        Rows and columns are numbers, or, where the model was fitted to a table of (user, item, value), the names that it
        has. Users and items that the table did not have are answered as the average one, with a warning.
        """
        check_is_fitted(self)
        owner, what = (
            type(self).__name__,
            ("user", "item") if self._is_named() else ("row", "column"),
        )
        rows, columns = places_of_pairs(pairs, self._names(), self.shape_, what, owner, strangers=True)
        return self._values(rows, columns)

    def _values(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the values of entries by row and column number; -1 stands for an unknown user or item."""
        known = (rows >= 0) & (columns >= 0)
        if known.all():
            return np.asarray(finite(self, self._predict(rows, columns)))  # type: ignore[attr-defined]
        mean, by_row, by_column = self._average()  # type: ignore[attr-defined]
        found = (
            mean + np.where(rows >= 0, by_row[rows], 0.0) + np.where(columns >= 0, by_column[columns], 0.0)
        )
        if known.any():
            found[known] = self._predict(rows[known], columns[known])  # type: ignore[attr-defined]
        return np.asarray(finite(self, found))

    def _by_number(self, pairs: Any) -> np.ndarray:
        """Return the value of each pair of row and column numbers, whatever names there are."""
        return self._values(*np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T)

    def complete(self, X: Any) -> np.ndarray:
        """Return X, of the fitted shape, as a full array: known entries kept, the others predicted."""
        known = self._query(X)  # type: ignore[attr-defined]
        n, m = known.shape
        full = np.empty((n, m), known.dtype)
        every = np.arange(m)
        for i in range(n):
            full[i] = self._predict(np.full(m, i), every)  # type: ignore[attr-defined]
        full[np.repeat(np.arange(n), np.diff(known.indptr)), known.indices] = known.data
        return full

    def score(self, X: Any, y: Any = None) -> float:
        """Return the negative root-mean-square error on the stored entries of a ratings matrix, or on a table of them."""
        check_is_fitted(self)
        table = self._table(X)
        if table is None:
            held = self._query(X).tocoo()  # type: ignore[attr-defined]
            rows, columns, values = held.row, held.col, held.data
        else:
            R, users, items = table
            held = R.tocoo()
            rows, columns = self._placed(users)[held.row], self._placed(items, 1)[held.col]
            values = held.data
        errors_ = values - self._values(rows, columns)
        return -float(np.sqrt(np.mean(errors_.astype(np.float64) ** 2)))

    # --- names -------------------------------------------------------------------------------------------

    def _names(self) -> tuple[Any, Any]:
        return getattr(self, "users_", None), getattr(self, "items_", None)

    def _is_named(self) -> bool:
        return any(names is not None for names in self._names())

    def _placed(self, values: Any, axis: int = 0, strangers: bool = True) -> np.ndarray:
        """Return row (or column) numbers of users (or items), which are given by name where the fit had names."""
        names, what = self._names()[axis], ("user", "item")[axis]
        return places(values, names, self.shape_[axis], what, type(self).__name__, strangers=strangers)

    def _name(self, users: Any, items: Any) -> None:
        """Keep the names of users and items, unless they are just 0, 1, 2, ..."""
        for key, labels in (("users_", users), ("items_", items)):
            self.__dict__.pop(key, None)
            if (names := names_to_keep(labels)) is not None:
                setattr(self, key, names)

    def _table(self, X: Any) -> tuple[Any, Any, Any] | None:
        """Return a table of (user, item, value), or a data set with names, as a matrix with its names; None for others."""
        if not self._is_named():
            return None
        return _triples(X, type(self).__name__)

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
        found = _triples(X, type(self).__name__)
        self._name(*(found[1:] if found else (None, None)))
        return super()._read(X if found is None else found[0], y)  # type: ignore[misc, no-any-return]

    def _read_again(self, X: Any) -> Any:
        """Return new ratings in the rows and columns of the fit, found by their names."""
        table = self._table(X)
        if table is None:
            return super()._read_again(X)  # type: ignore[misc]
        from scipy.sparse import csr_matrix

        R = table[0].tocoo()
        rows, columns = (
            self._placed(labels, axis, False)[places_]
            for axis, (labels, places_) in enumerate(zip(table[1:], (R.row, R.col)))
        )
        return csr_matrix((R.data, (rows, columns)), shape=self.shape_)


def _triples(X: Any, owner: str) -> tuple[Any, Any, Any] | None:
    """Return the matrix and the names of a frame of triples, or of a data set of ratings that has names."""
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        return check_ratings(X, owner, labels=True)  # type: ignore[no-any-return]
    if isinstance(X, Dataset) and X.kind == "ratings" and {"users", "items"} <= X.extra.keys():
        return check_ratings(X.X, owner), X.extra["users"], X.extra["items"]
    return None


class Recommender:
    """Ranks items for users. Hook: ``_recommend(users, n, seen, items, exclude)``, all by number, as ``recommend`` says."""

    role = "recommender"

    def recommend(
        self, users: Any, n: int = 10, *, seen: Any = "fitted", items: Any = None, exclude: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the ``n`` best items for each user, and their scores, best first.

        Where fewer are left, the rest are -1 (or the empty name) with the score minus infinity.

        Parameters
        ----------
        users : array-like
            Row numbers of the fitted ratings, or names if the model was fitted to a table of them; users that the table
            did not have get what the average user would.
        n : int, default=10
            How many items each.
        seen : sparse matrix, None or "fitted", default="fitted"
            Ratings, with one row per entry of ``users``, whose items are left out: by default those that the model was
            fitted on. None leaves out none.
        items : array-like, optional
            The only items to choose from.
        exclude : array-like, optional
            Items to leave out.

        Returns
        -------
        items : ndarray of shape (n_users, n)
            Numbers, or names if there are any.
        scores : ndarray of shape (n_users, n)
        """
        check_is_fitted(self)
        check_count(self, "n", n)
        if isinstance(seen, str) and seen != "fitted":
            raise errors.value(type(self).__name__, "seen must be ratings, None or 'fitted'", repr(seen))
        users = self._placed(users)  # type: ignore[attr-defined]
        items, exclude = (
            None if some is None else self._placed(some, 1, False)  # type: ignore[attr-defined]
            for some in (items, exclude)
        )
        found, scores = self._recommend(users, n, seen, items, exclude)  # type: ignore[attr-defined]
        return as_names(found, getattr(self, "items_", None)), finite(self, scores, log=True)


class Linker:
    """Predicts the probability of edges between nodes. Hook: ``_probability(rows, columns)`` of shape (n,), by number."""

    role = "link-predictor"
    shape_: tuple[int, int]

    def link_probability(self, pairs: Any) -> np.ndarray:
        """Return the probability of an edge for pairs (m, 2) of nodes of the fitted graph.

        Nodes are the names that the graph has (``nodes_``), or numbers from 0 in the order of the rows of ``x``.
        """
        check_is_fitted(self)
        names = getattr(self, "nodes_", None)
        ends = places_of_pairs(pairs, (names, names), self.shape_, ("node", "node"), type(self).__name__)
        return np.asarray(finite(self, self._probability(*ends)))  # type: ignore[attr-defined]


class LanguageModel:
    """Continues text.

    Hooks: ``_token_log_probs(X, stride)``, one array of log-probabilities per text, and
    ``_generate(prompts, max_new_tokens, seed, **how)``, a list of continued prompts.
    """

    role = "language-model"
    reads_whole_files = True  # a text file is one text, not a document a line

    def perplexity(self, X: Any, *, stride: int | None = None) -> float:
        """Return exp of the mean negative log-probability (in nats) of a token, over all texts together.

        Parameters
        ----------
        X : list of str
            The texts.
        stride : int, optional
            Step between the windows over a long text. A smaller one gives each token more context, and costs more.
            Half the context by default.
        """
        texts = self._query(X)  # type: ignore[attr-defined]
        if stride is not None:
            check_count(self, "stride", stride)
        logs = np.concatenate(self._token_log_probs(texts, stride))  # type: ignore[attr-defined]
        return float(np.exp(-logs.mean(dtype=np.float64)))

    def generate(
        self,
        prompts: Any = "",
        *,
        max_new_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float = 1.0,
        beam_size: int = 1,
        length_penalty: float = 1.0,
    ) -> Any:
        """Continue prompts; with an integer ``random_state`` every call draws the same.

        Parameters
        ----------
        prompts : str, list of str, or list of sequences of int, default=""
            What to continue; prompts of different lengths go together.
        max_new_tokens : int, default=100
            The most tokens to add to each; a text may end sooner.
        temperature : float, default=1.0
            Above 1 more varied, below 1 more predictable; 0 always takes the most probable token.
        top_k : int, optional
            Draw only among the k most probable tokens.
        top_p : float, optional
            Draw only among the fewest most probable tokens that together have this probability.
        repetition_penalty : float, default=1.0
            Above 1, tokens that have occurred become less probable: positive logits are divided by it, negative ones
            multiplied.
        beam_size : int, default=1
            Above 1, beam search for the most probable text with so many candidates at a time; nothing is drawn.
        length_penalty : float, default=1.0
            In beam search, log-probabilities are divided by the length of the text to this power.

        Returns
        -------
        str or list
            The prompt with its continuation, or a list of those for a list of prompts.
        """
        check_is_fitted(self)
        name = type(self).__name__
        check_count(self, "max_new_tokens", max_new_tokens)
        if not isinstance(temperature, Real) or not temperature >= 0:
            raise errors.value(name, "temperature must be a number that is not negative", repr(temperature))
        if top_k is not None:
            check_count(self, "top_k", top_k)
        if top_p is not None and not (isinstance(top_p, Real) and 0 < top_p <= 1):
            raise errors.value(name, "top_p must lie in (0, 1]", repr(top_p))
        alone = isinstance(prompts, str)
        if not isinstance(prompts, Iterable) or isinstance(prompts, bytes | dict):
            raise errors.kind(name, "prompts must be a string or a list of prompts", type(prompts).__name__)
        listed = [prompts] if alone else list(prompts)
        if not listed:
            raise errors.value(name, "there must be at least one prompt", "an empty list")
        for key, number in (("repetition_penalty", repetition_penalty), ("length_penalty", length_penalty)):
            if not isinstance(number, Real) or not (number > 0 or key == "length_penalty"):
                raise errors.value(name, f"{key} must be a positive number", repr(number))
        check_count(self, "beam_size", beam_size)
        if beam_size > 1 and (top_k, top_p, temperature) not in ((None, None, 0), (None, None, 1)):
            got = f"temperature={temperature}, top_k={top_k}, top_p={top_p}"
            raise errors.value(name, "beam search draws nothing", got, "Leave them out, or use beam_size=1.")
        how = {"temperature": float(temperature), "top_k": top_k, "top_p": top_p}
        how |= {"repetition_penalty": float(repetition_penalty)}
        how |= {"beam_size": beam_size, "length_penalty": float(length_penalty)}
        made = self._generate(listed, max_new_tokens, self._seed(), **how)  # type: ignore[attr-defined]
        return made[0] if alone else made


class TopicModel:
    """Explains counts of words by topics: has ``components_`` (topics, words) and ``perplexity(X)``."""

    role = "topic-model"


class Memory:
    """Recalls stored patterns. Hook: ``_recall(X)`` of the shape of X."""

    role = "memory"

    def recall(self, X: Any) -> Any:
        """Return, for each damaged pattern (cue), the stored state that recall ends in."""
        return as_given(X, finite(self, self._recall(self._query(X))))  # type: ignore[attr-defined]


def roles(cls: type) -> tuple[str, ...]:
    """Return the roles of an estimator class, from its mixins, as names of :mod:`corollary.roletable`."""
    return tuple(dict.fromkeys(base.__dict__["role"] for base in cls.__mro__ if "role" in base.__dict__))
