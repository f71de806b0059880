"""Estimators without a network, and what wraps them: their data and their predictions are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import torch
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from corollary.diagnose.asking import Answers
from corollary.diagnose.samples import IGNORED, Samples
from corollary.diagnose.subject import Subject

__all__ = ["answered", "unpacked"]

TOKENS, WORDS = 200, 997  # of a text that are read, and numbers that words are told apart by


def unpacked(model: Any, data: Any, validation: Any) -> tuple[Any, Any, Any]:
    """Return the estimator inside a search, and the net at the end of a pipeline with the data that reach it."""
    if isinstance(model, type):
        return model, data, validation
    model = getattr(model, "best_estimator_", model)
    steps = getattr(model, "steps", None)
    if not isinstance(steps, list) or not hasattr(steps[-1][1], "module_"):
        return model, data, validation
    before = model[:-1]

    def passed(part: Any) -> Any:
        X, y = split(part)
        return (before.transform(X), y) if y is not None else before.transform(X)

    return steps[-1][1], passed(data), None if validation is None else passed(validation)


def split(data: Any) -> tuple[Any, Any]:
    """Return X and y."""
    if hasattr(data, "X") and hasattr(data, "y"):
        return data.X, data.y
    pair = isinstance(data, (tuple, list)) and len(data) == 2
    return (data[0], data[1]) if pair else (data, None)


def answered(model: Any, data: Any, validation: Any, loss: Any, history: Any) -> Subject:
    """Return the subject of an estimator without a network."""
    net, criterion, parts = None, loss, []
    ready = _fitted(model)
    labels = getattr(model, "classes_", None) if is_classifier(model) else None
    learns = labels is not None or is_classifier(model) or is_regressor(model)
    rows = _Rows()
    for part in (data, validation):
        parts.append(None if part is None else rows.read(part, labels, learns))
    if ready and learns and parts[0].y is not None and rows.plain:
        ask, sure = _asker(model, labels)
        net = Answers(rows.asked(ask), sure).eval()
        criterion = loss if loss is not None else ("nll" if labels is not None else "mse")
    name = type(model).__name__
    what = "its data and its predictions" if net is not None else "its data alone"
    said = f"{name} {'has no network' if ready else 'is not fitted'}: {what} were looked at"
    return Subject(net, *parts, loss=criterion, history=history, owner=model, notes=[("estimator", said)])


def _fitted(model: Any) -> bool:
    """Whether a foreign estimator is fitted; one of the library must be."""
    try:
        check_is_fitted(model)
    except NotFittedError:
        if hasattr(model, "_adopt"):
            raise
        return False
    return True


def _asker(model: Any, labels: Any) -> tuple[Callable[[Any], np.ndarray], bool]:
    """Return what gives log-probabilities of the classes or numbers, and whether it is sure by degrees."""
    if labels is None:
        return lambda X: np.asarray(model.predict(X), float), True
    sure = hasattr(model, "predict_proba")

    def ask(X: Any) -> np.ndarray:
        p = model.predict_proba(X) if sure else np.asarray(model.predict(X))[:, None] == np.asarray(labels)
        return np.log(np.clip(p, 1e-6, None) / np.clip(p, 1e-6, None).sum(1, keepdims=True))

    return ask, sure


class _Rows:
    """Tables that an estimator takes, as numbers; and the way back from the numbers to the rows."""

    def __init__(self) -> None:
        self.plain = True  # whether there is one row of numbers per row of the table
        self.known: dict[bytes, Any] = {}

    def read(self, data: Any, labels: Any, learns: bool) -> Samples:
        """Return samples; targets that the estimator does not learn from are left out."""
        from corollary.diagnose.reading import read

        X, y = split(data)
        y = None if not learns or y is None else _codes(y, labels)
        if _are_texts(X):
            samples = read(
                (torch.from_numpy(_tokens(X)), y) if y is not None else torch.from_numpy(_tokens(X))
            )
        else:
            samples = read((X, y) if y is not None else X)
        x = samples.x
        self.plain &= isinstance(x, torch.Tensor) and len(samples.args) == 1 and len(x) == samples.n
        if self.plain:
            for i, key in enumerate(x.numpy()):
                self.known.setdefault(key.tobytes(), (X, i))
        return samples

    def asked(self, ask: Callable[[Any], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
        """Return the same for rows of numbers, which must be known ones where the estimator takes no numbers."""

        def answer(x: np.ndarray) -> np.ndarray:
            places = [self.known.get(row.tobytes()) for row in np.ascontiguousarray(x)]
            if any(place is None for place in places):
                return ask(x)
            out: list[Any] = [None] * len(places)
            for table in {id(place[0]): place[0] for place in places if place is not None}.values():
                at = [k for k, place in enumerate(places) if place is not None and place[0] is table]
                found = ask(_taken(table, [places[k][1] for k in at]))  # type: ignore[index]
                for k, value in zip(at, found):
                    out[k] = value
            return np.stack(out)

        return answer


def _taken(table: Any, rows: list[int]) -> Any:
    """Return some rows of a table of any kind."""
    if hasattr(table, "iloc"):
        return table.iloc[rows]
    return [table[i] for i in rows] if isinstance(table, (list, tuple)) else table[rows]


def _codes(y: Any, labels: Any) -> Any:
    """Return labels by their place among those of the fit, unknown ones after them; numbers as they are."""
    y = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if labels is None or y.ndim != 1 or isinstance(labels, list):
        return y
    labels = np.asarray(labels)
    place = {value: i for i, value in enumerate(labels.tolist())}
    further = [value for value in np.unique(y[~np.isin(y, labels)]).tolist() if value not in place]
    place.update({value: len(labels) + i for i, value in enumerate(further)})
    return np.array([place.get(value, IGNORED) for value in y.tolist()], np.int64)


def _are_texts(X: Any) -> bool:
    if isinstance(X, np.ndarray) and X.ndim == 1 or hasattr(X, "iloc") and getattr(X, "ndim", 2) == 1:
        X = list(X)
    return isinstance(X, (list, tuple)) and bool(X) and all(isinstance(text, str) for text in X)


def _tokens(texts: Any) -> np.ndarray:
    """Return the words of texts as numbers, filled up with zeros."""
    found = np.zeros((len(texts), TOKENS), np.int64)
    for i, text in enumerate(texts):
        words = [crc32(word.encode()) % WORDS + 1 for word in text.lower().split()[:TOKENS]]
        found[i, : len(words)] = words
    return found[:, : max(1, int((found > 0).sum(1).max()))]
