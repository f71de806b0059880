"""What every board has to beat: guesses that look at no feature, one for each task.

scikit-learn's dummies are used where there are any.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from corollary.comparison.rivals import Rival, scikit
from corollary.data.dataset import Dataset

__all__ = ["FirstText", "Letters", "NodesAlone", "OneGroup", "OneTopic", "SamePart", "SamePixel"]


def of_classes(dataset: Dataset) -> list[Rival]:
    """Return the most frequent class with the shares of all."""
    from sklearn.dummy import DummyClassifier

    title = "always the most frequent class"
    if dataset.kind == "graph":
        return [Rival("prior", title, "baseline", None, lambda data, seed: NodesAlone(DummyClassifier()))]
    return [Rival("prior", title, "baseline", None, lambda data, seed: DummyClassifier())]


class FrequentLabels(BaseEstimator):
    """Give every sample the labels that most samples have."""

    def fit(self, X: Any, y: Any) -> FrequentLabels:
        """Count them."""
        from corollary.data.multilabel import label_sets

        found = label_sets(y)
        self.classes_, table = found if found is not None else (np.arange(np.shape(y)[1]), np.asarray(y))
        self.labels_ = (table.mean(0) > 0.5).astype(np.int64)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the same labels for each."""
        return np.tile(self.labels_, (X.shape[0] if hasattr(X, "shape") else len(X), 1))


def of_labels(dataset: Dataset) -> list[Rival]:
    """Return the labels that most samples have."""
    title = "the labels of most samples"
    return [Rival("prior", title, "baseline", None, lambda data, seed: FrequentLabels())]


def of_numbers(dataset: Dataset) -> list[Rival]:
    """Return the mean and the median of the target."""
    from sklearn.dummy import DummyRegressor

    return [
        Rival("mean", "always the mean", "baseline", None, lambda data, seed: DummyRegressor()),
        Rival(
            "median",
            "always the median",
            "baseline",
            None,
            lambda data, seed: DummyRegressor(strategy="median"),
        ),
    ]


class NodesAlone(ClassifierMixin, BaseEstimator):
    """A classifier of rows on the nodes of a graph, without its edges."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, graph: Any, y: Any = None) -> NodesAlone:
        """Fit to the features of the training nodes."""
        mask = getattr(graph, "train_mask", None)
        mask = slice(None) if mask is None else np.asarray(mask, dtype=bool)
        self.model_ = clone(self.model).fit(_features(graph)[mask], np.asarray(graph.y)[mask])
        self.classes_ = self.model_.classes_
        return self

    def predict(self, graph: Any) -> np.ndarray:
        """Return the class of every node."""
        return self.model_.predict(_features(graph))

    def predict_proba(self, graph: Any) -> np.ndarray:
        """Return the probabilities of every node."""
        return self.model_.predict_proba(_features(graph))


def _features(graph: Any) -> Any:
    """Return the features of the nodes; of a graph that has none a column of zeros: without edges nothing is known."""
    if graph.x is None:
        return np.zeros((graph.num_nodes, 1))
    return graph.x.tocsr() if hasattr(graph.x, "tocsr") else np.asarray(graph.x)


# --- densities, groups, codes ----------------------------------------------------------------------------


def of_densities(dataset: Dataset) -> list[Rival]:
    """Return independent columns, by histogram and by Gaussians."""
    from corollary.comparison.densities import DensityOfData

    if dataset.kind not in ("table", "image"):
        return [Rival("independent", "independent steps", "baseline", None, lambda data, seed: Steps())]
    pixels = dataset.kind == "image"

    def make(margins: str) -> Any:
        return lambda data, seed: DensityOfData(None, margins, pixels, seed)

    return [
        Rival("histograms", "independent columns, by histogram", "baseline", "table", make("histogram")),
        Rival("gaussians", "independent columns, Gaussian", "baseline", "table", make("gaussian")),
    ]


class Steps(BaseEstimator):
    """Steps of waves or codes without order: each amplitude as often as in training, on WaveNet's levels."""

    def fit(self, X: Any, y: Any = None) -> Steps:
        """Count the levels."""
        counts = np.bincount(np.concatenate([self._levels(part) for part in X]), minlength=256) + 1.0
        self.logs_ = np.log(counts / counts.sum())
        return self

    def _levels(self, part: Any) -> np.ndarray:
        from corollary.sequences.wavenet import mu_encode

        part = np.asarray(part)
        return part.ravel() if part.dtype.kind in "iu" else mu_encode(part.ravel().clip(-1, 1), 256)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-probability of a sequence."""
        return float(np.mean([self.logs_[self._levels(part)].sum() for part in X]))


class OneGroup(BaseEstimator):
    """Put everything into one group."""

    def fit(self, X: Any, y: Any = None) -> OneGroup:
        """Learn nothing."""
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return group 0 for each row."""
        return np.zeros(X.shape[0], dtype=np.int64)


def of_groups(dataset: Dataset) -> list[Rival]:
    """Return one group."""
    return [Rival("one-group", "one group for all", "baseline", "table", lambda data, seed: OneGroup())]


class Middle(BaseEstimator):
    """Code every row by nothing: it is decoded to the mean."""

    def fit(self, X: Any, y: Any = None) -> Middle:
        """Take the mean."""
        self.mean_ = np.asarray(X.mean(0)).ravel()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return empty codes."""
        return np.empty((X.shape[0], 0))

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """Return the mean for each."""
        return np.tile(self.mean_, (len(Z), 1))


def of_codes(dataset: Dataset) -> list[Rival]:
    """Return the mean row."""
    return [Rival("mean", "always the mean row", "baseline", "table", lambda data, seed: Middle())]


def of_ratings(dataset: Dataset) -> list[Rival]:
    """Return the mean rating with items by popularity."""
    from corollary.comparison.ranking import Popular

    return [
        Rival(
            "popular", "mean rating, popular items first", "baseline", "ratings", lambda data, seed: Popular()
        )
    ]


# --- texts -----------------------------------------------------------------------------------------------


class OneTopic(BaseEstimator):
    """One topic: the words' frequencies."""

    def fit(self, X: Any, y: Any = None) -> OneTopic:
        """Count."""
        self.components_ = np.asarray(X.sum(0), dtype=np.float64).reshape(1, -1) + 1e-9
        return self


def of_topics(dataset: Dataset) -> list[Rival]:
    """Return the unigram model, and scikit-learn's topics."""
    from sklearn.decomposition import NMF, LatentDirichletAllocation

    from corollary.comparison.tasks import topic_count

    def sk(data: Dataset, seed: int) -> Any:
        return LatentDirichletAllocation(topic_count(data), random_state=seed)

    def nmf(data: Dataset, seed: int) -> Any:
        return NMF(topic_count(data), random_state=seed)

    return [
        Rival("unigram", "one topic: word frequencies", "baseline", "table", lambda data, seed: OneTopic()),
        scikit("sk-lda", "LatentDirichletAllocation", "table", sk),
        scikit("sk-nmf", "NMF", "table", nmf),
    ]


class Letters(BaseEstimator):
    """Characters by frequency given the last ``order`` ones, each order smoothed by the one before (Witten-Bell)."""

    def __init__(self, order: int = 0) -> None:
        self.order = order

    def fit(self, X: Any, y: Any = None) -> Letters:
        """Count characters after every context of up to ``order`` characters."""
        self.counts_: dict[str, Counter[str]] = {}
        for text in X:
            ended = text + "\0"
            for i, letter in enumerate(ended):
                for n in range(min(self.order, i) + 1):
                    self.counts_.setdefault(ended[i - n : i], Counter())[letter] += 1
        self.alphabet_ = len(self.counts_[""]) + 1
        return self

    def _chance(self, context: str, letter: str) -> float:
        chance = 1 / self.alphabet_
        for n in range(len(context) + 1):
            seen = self.counts_.get(context[len(context) - n :] if n else "")
            if seen:
                total, kinds = seen.total(), len(seen)
                chance = (seen[letter] + kinds * chance) / (total + kinds)
        return chance

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log-probability of each text, with its end."""
        ended = [text + "\0" for text in X]
        return np.array(
            [
                sum(np.log(self._chance(t[max(0, i - self.order) : i], c)) for i, c in enumerate(t))
                for t in ended
            ]
        )


def of_language(dataset: Dataset) -> list[Rival]:
    """Return characters by frequency, alone and after five others."""
    return [
        Rival("unigram", "characters by frequency", "baseline", "text", lambda data, seed: Letters()),
        Rival("5-gram", "characters after five others", "baseline", "text", lambda data, seed: Letters(5)),
    ]


class FirstText(BaseEstimator):
    """Answer every text with the most frequent answer, or with the text itself."""

    def __init__(self, copy: bool = False) -> None:
        self.copy = copy

    def fit(self, X: Any, y: Any) -> FirstText:
        """Count the answers."""
        self.answer_ = Counter(map(str, y)).most_common(1)[0][0]
        return self

    def predict(self, X: Any) -> list[Any]:
        """Return an answer to each."""
        return [x if self.copy and isinstance(x, str) else self.answer_ for x in X]

    def score(self, X: Any, y: Any) -> float:
        """Return the share of exact answers."""
        return float(np.mean([a == b for a, b in zip(self.predict(X), y)]))


def of_texts(dataset: Dataset) -> list[Rival]:
    """Return the text itself, and the most frequent answer."""
    return [
        Rival("copy", "the text itself", "baseline", None, lambda data, seed: FirstText(copy=True)),
        Rival("frequent", "the most frequent answer", "baseline", None, lambda data, seed: FirstText()),
    ]


# --- parts of samples ------------------------------------------------------------------------------------


class SamePart(BaseEstimator):
    """Label every part with the label that it had most often in training, or else with the most frequent one."""

    def fit(self, X: Any, y: Any) -> SamePart:
        """Count the labels of equal parts."""
        by_part: dict[Any, Counter[Any]] = {}
        for x, labels in zip(X, y):
            for part, label in zip(_parts(x), labels):
                by_part.setdefault(part, Counter())[label] += 1
        self.label_ = {part: counts.most_common(1)[0][0] for part, counts in by_part.items()}
        self.frequent_ = sum(by_part.values(), Counter()).most_common(1)[0][0]
        return self

    def predict(self, X: Any) -> list[np.ndarray]:
        """Return the labels of each sample's parts."""
        return [np.array([self.label_.get(part, self.frequent_) for part in _parts(x)]) for x in X]


def _parts(x: Any) -> list[Any]:
    if isinstance(x, str):
        return x.split()
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in x]


def of_parts(dataset: Dataset) -> list[Rival]:
    """Return the most frequent label of each part."""
    return [
        Rival("frequent", "each part's most frequent label", "baseline", None, lambda data, seed: SamePart())
    ]


class SamePixel(BaseEstimator):
    """Give every pixel the class that is most frequent at its place."""

    def fit(self, X: Any, y: Any) -> SamePixel:
        """Count the classes at each place."""
        masks = np.asarray(y)
        self.classes_ = np.unique(masks)
        counts = np.stack([(masks == c).mean(0) for c in self.classes_])
        self.mask_ = self.classes_[counts.argmax(0)]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the same mask for each."""
        return np.tile(self.mask_, (len(X), *(1,) * self.mask_.ndim))

    def score(self, X: Any, y: Any) -> float:
        """Return the mean intersection over union of the classes."""
        found, truth = self.predict(X), np.asarray(y)
        shared = [
            ((found == c) & (truth == c)).sum() / max(1, ((found == c) | (truth == c)).sum())
            for c in self.classes_
        ]
        return float(np.mean(shared))


def of_pixels(dataset: Dataset) -> list[Rival]:
    """Return the most frequent class at each place."""
    title = "each pixel's most frequent class"
    return [Rival("frequent", title, "baseline", None, lambda data, seed: SamePixel())]
