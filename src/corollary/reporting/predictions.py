"""Sections about predictions: classes and numbers, where they go wrong, and what they depend on."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from corollary import plot
from corollary.comparison.measures import classes, label_sets, labelled, several
from corollary.data.columns import LEFT_OUT
from corollary.data.dataset import Dataset
from corollary.reporting.pages import Table

__all__ = ["cell", "classified", "coefficients", "files_of", "importances", "predicted"]

WORST, COLUMNS, ROWS = 12, 8, 1000  # cases shown, features shown with them, rows that are permuted


def classified(model: Any, dataset: Dataset) -> Iterator[Any]:
    """Yield measures by class, confusion, ROC, precision and recall, calibration, the worst cases and importances."""
    if (dataset.X.y if dataset.kind == "graph" else dataset.y) is None:
        return
    if getattr(model, "multilabel_", False):
        yield from _several_labels(model, dataset)
        return
    truth, found, chances, known = labelled(model, dataset)
    numbers = classes(model, dataset)
    names, counts = np.unique(truth, return_counts=True)
    common, share = names[counts.argmax()], counts.max() / counts.sum()
    text = f"{numbers['accuracy']:.1%} are right; always saying {common} would be right in {share:.1%}. "
    text += f"Balanced accuracy {numbers['balanced accuracy']:.3f} (chance: {1 / len(names):.3f})."
    yield (
        "By class",
        Table(text, ("class", "precision", "recall", "F1", "true", "predicted"), _by_class(truth, found)),
        None,
    )
    yield "Confusion", "True classes in rows, predicted ones in columns.", plot.confusion(truth, found)
    if hasattr(model, "predict_proba"):
        code = np.searchsorted(known, truth)
        text = f"ROC AUC {numbers['ROC AUC']:.3f}, log-loss {numbers['log-loss']:.3f}; "
        text += f"confidence is off by {numbers['calibration error']:.3f} in the mean."
        yield "Probabilities", text, plot.probabilities(code, chances, [str(c) for c in known])
        right = chances[np.arange(len(code)), code]
        yield from _worst_classes(dataset, truth, found, right)
    yield from importances(model, dataset)
    yield from coefficients(model, dataset)


def _several_labels(model: Any, dataset: Dataset) -> Iterator[Any]:
    """Yield precision and recall of every label, and the samples with the most wrong labels."""
    truth, found = several(model, dataset)
    numbers = label_sets(model, dataset)
    text = f"F1 over all labels {numbers['F1']:.3f}; {numbers['exact']:.1%} of the samples have all labels right, "
    text += f"{numbers['labels right']:.1%} of the labels are."
    rows = []
    for j, label in enumerate(model.classes_.tolist()):
        both = int((truth[:, j] & found[:, j]).sum())
        said, true = int(found[:, j].sum()), int(truth[:, j].sum())
        share = (both / n if n else 0.0 for n in (said, true, said + true))
        precision, recall, half = share
        rows.append((label, precision, recall, 2 * half, true, said))
    yield "By label", Table(text, ("label", "precision", "recall", "F1", "true", "predicted"), rows), None
    order = np.argsort(-(truth != found).sum(1), kind="stable")
    order = order[(truth != found).any(1)[order]][:WORST]
    if len(order):
        names = np.asarray(model.classes_)
        said = lambda row: ", ".join(map(str, names[row.astype(bool)]))
        rows = [(int(i), said(truth[i]), said(found[i]), *_described(dataset, i)) for i in order]
        headings = ("row", "true", "predicted", *_columns(dataset))
        yield "Worst cases", Table("The samples with the most wrong labels.", headings, rows), None


def _by_class(truth: np.ndarray, found: np.ndarray) -> list[tuple[Any, ...]]:
    from sklearn.metrics import precision_recall_fscore_support

    names = np.unique(np.concatenate([truth, found]))
    precision, recall, f1, support = precision_recall_fscore_support(
        truth, found, labels=names, zero_division=0.0
    )
    said = [int(np.sum(found == name)) for name in names]
    return [
        (n, float(p), float(r), float(f), int(s), k)
        for n, p, r, f, s, k in zip(names, precision, recall, f1, support, said)
    ]


def _worst_classes(dataset: Dataset, truth: Any, found: Any, right: np.ndarray) -> Iterator[Any]:
    order = np.argsort(right, kind="stable")
    order = order[(truth != found)[order]][:WORST]
    if not len(order):
        return
    cases = f"{len(order)} cases" if len(order) > 1 else "case"
    text = f"The {cases} in which the true class got the least probability."
    numbers = _numbers(dataset)
    rows = [
        (_row(dataset, numbers[i]), truth[i], found[i], f"{right[i]:.3f}", *_described(dataset, numbers[i]))
        for i in order
    ]
    headings = ("row", "true", "predicted", "probability of the true class", *_columns(dataset))
    yield (
        "Worst cases",
        Table(text, headings, rows),
        _pictured(dataset, order, [f"{truth[i]}, not {found[i]}" for i in order]),
    )


def predicted(model: Any, dataset: Dataset) -> Iterator[Any]:
    """Yield predictions, residuals, the worst cases and importances."""
    if dataset.y is None:
        return
    truth = np.asarray(dataset.y, dtype=np.float64)
    said = np.asarray(model.predict(dataset.X), dtype=np.float64).reshape(truth.shape)
    error = (said - truth).reshape(len(truth), -1)
    text = (
        f"Half of the predictions are within {np.median(np.abs(error)):.4g} of the truth, nine of ten within "
    )
    text += (
        f"{np.quantile(np.abs(error), 0.9):.4g}; the target has a standard deviation of {truth.std():.4g}."
    )
    yield "Predictions", text, plot.predictions(truth, said)
    if truth.ndim == 1:
        text = f"Mean {error.mean():.4g}: left against the prediction, right how they are distributed."
        yield "Residuals", text, plot.residuals(said, truth)
        order = np.argsort(-np.abs(error[:, 0]), kind="stable")[:WORST]
        rows = [
            (_row(dataset, i), float(truth[i]), float(said[i]), float(error[i, 0]), *_described(dataset, i))
            for i in order
        ]
        headings = ("row", "true", "predicted", "error", *_columns(dataset))
        yield "Worst cases", Table("The largest errors.", headings, rows), None
    yield from importances(model, dataset)
    yield from coefficients(model, dataset)


# --- what a case looks like ------------------------------------------------------------------------------


def _numbers(dataset: Dataset) -> np.ndarray:
    """Return the number of each case: of the row, or of the node where only some nodes are measured."""
    mask = getattr(dataset.X, "test_mask", None) if dataset.kind == "graph" else None
    return np.arange(len(dataset)) if mask is None else np.flatnonzero(np.asarray(mask, dtype=bool))


def _nodes(dataset: Dataset) -> Any:
    """Return the names of the nodes of a graph, if they have any."""
    if dataset.kind != "graph":
        return None
    return dataset.extra.get("nodes", getattr(dataset.X, "nodes", None))


def _columns(dataset: Dataset) -> list[str]:
    if (given := dataset.extra.get("given")) is not None:
        return [str(name) for name in given.columns[:COLUMNS]]
    if dataset.kind == "table" and "image_shape" not in dataset.extra and not hasattr(dataset.X, "tocsr"):
        names = dataset.feature_names or [f"x{i}" for i in range(dataset.X.shape[1])]
        return [str(name) for name in names[:COLUMNS]]
    named = ["file"] if files_of(dataset) else ["node"] if _nodes(dataset) is not None else []
    return [*named, *(["text"] if dataset.kind == "text" else [])]


def files_of(dataset: Dataset) -> list[str]:
    """Return the name of the file that each sample comes from, where each has one."""
    files = dataset.extra.get("files") or []
    return [*map(str, files)] if len(files) == len(dataset) else []


def _described(dataset: Dataset, i: int) -> list[Any]:
    if (given := dataset.extra.get("given")) is not None:  # as it stands in the file
        return [cell(value) for value in given.iloc[i, :COLUMNS]]
    file = files_of(dataset)[i : i + 1] if dataset.kind != "table" else []
    if dataset.kind == "text":
        return [*file, _short(str(dataset.X[i]))]
    if file:
        return file
    if (nodes := _nodes(dataset)) is not None:
        return [nodes[i]]
    n = len(_columns(dataset))
    return [float(v) for v in np.asarray(dataset.X[i : i + 1]).ravel()[:n]] if n else []


def _row(dataset: Dataset, i: int) -> int:
    """Return the number of a sample: the row of its file, counted from 1, where that is known."""
    given = dataset.extra.get("given")
    known = given is not None and given.index.dtype.kind in "iu"
    return int(given.index[i]) + 1 if known else int(i)


def cell(value: Any) -> Any:
    """Return a value of a frame as a person would write it."""
    import pandas as pd

    if pd.isna(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return str(value.date() if value == value.normalize() else value)
    return f"{value:.6g}" if isinstance(value, float | np.floating) else _short(str(value))


def _short(text: str, most: int = 240) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _pictured(dataset: Dataset, order: np.ndarray, titles: list[str]) -> Any:
    shape = dataset.extra.get("image_shape")
    if dataset.kind == "image":
        return plot.image_grid(np.asarray(dataset.X)[order], columns=6, titles=titles, inverted=False)
    if not shape:
        return None
    return plot.image_grid(np.asarray(dataset.X)[order].reshape(-1, *shape), columns=6, titles=titles)


# --- what it depends on ----------------------------------------------------------------------------------


def importances(model: Any, dataset: Dataset) -> Iterator[Any]:
    """Yield how much worse the predictions of a table get when one column is shuffled (permutation importance)."""
    from sklearn.inspection import permutation_importance

    given = dataset.extra.get("given")
    sparse = hasattr(dataset.X, "tocsr") and given is None
    if dataset.kind != "table" or sparse or "image_shape" in dataset.extra:
        return
    y = np.asarray(dataset.y)[:ROWS]
    if given is not None:  # a column of the file at a time, whatever numbers it became
        used = {column["name"] for column in model.columns_ if column["kind"] not in LEFT_OUT}
        X = given.iloc[:ROWS, [i for i, name in enumerate(given.columns) if str(name) in used]]
    else:
        X = np.asarray(dataset.X)[:ROWS]
    if not 2 <= X.shape[1] <= 200 or len(X) < 20:
        return
    scoring, measure = _scoring(model, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of classes that the held-out rows lack
        found = permutation_importance(model, X, y, n_repeats=5, random_state=0, scoring=scoring)
    names = [*map(str, X.columns if given is not None else dataset.feature_names or ())]
    names = names or [f"x{i}" for i in range(X.shape[1])]
    order = np.argsort(-found.importances_mean, kind="stable")[:20]
    text = f"How much {measure} falls when a column is shuffled, mean and deviation of five shuffles."
    figure = plot.importances(
        [names[i] for i in order], found.importances_mean[order], found.importances_std[order]
    )
    yield "Importances", text, figure


def _scoring(model: Any, y: np.ndarray) -> tuple[str, str]:
    """Return scikit-learn's name and ours of what importances are measured by; of two classes one may never be predicted."""
    if not hasattr(model, "classes_"):
        return "r2", "R²"
    graded = hasattr(model, "predict_proba") or hasattr(model, "decision_function")
    if graded and len(model.classes_) == len(np.unique(y)) == 2:
        return "roc_auc", "ROC AUC"
    return "balanced_accuracy", "balanced accuracy"


def coefficients(model: Any, dataset: Dataset) -> Iterator[Any]:
    """Yield the coefficients of a linear model, the largest first; with several classes, one column for each."""
    names = [str(name) for name in dataset.feature_names or ()]
    coef = np.atleast_2d(np.asarray(getattr(model, "coef_", np.zeros((0, 0))), dtype=np.float64))
    if not names or coef.ndim != 2 or coef.shape[1] != len(names) or not 1 <= len(coef) <= 10:
        return
    order = np.argsort(-np.abs(coef).max(axis=0), kind="stable")[:20]
    classes = [str(c) for c in getattr(model, "classes_", ())]
    headings = classes if len(classes) == len(coef) else ["coefficient"] * len(coef)
    text = "What a column adds to the linear score, per unit of the column as the model gets it"
    text += f" (towards {classes[1]})." if len(classes) == 2 and len(coef) == 1 else "."
    rows = [(names[j], *(f"{value:.4g}" for value in coef[:, j])) for j in order]
    yield "Coefficients", Table(text, ("column", *headings), rows), None
