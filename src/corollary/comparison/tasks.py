"""What decides a board: the task that data are meant for, the metric that ranks, settings that fit the data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from corollary import errors
from corollary.comparison import baselines, rivals
from corollary.data.dataset import Dataset
from corollary.data.splitting import splits

__all__ = ["code_size", "task_of"]

EVEN = 1.5  # the most frequent class may be this many times its even share before accuracy stops ranking
RARE = 3.0  # and no class of ten members or more may be so many times below it
FOLDS = 5  # parts that each shall hold out a member of both classes, or else there is no ROC


def task_of(dataset: Dataset) -> str:
    """Return the task that data are most likely meant for."""
    if dataset.kind == "ratings":
        return "completion"
    if dataset.kind == "graph":
        return "links" if dataset.X.y is None else "nodes"
    if "dates" in dataset.extra:
        return "forecasting"
    if dataset.y is None:
        return "language" if dataset.kind == "text" else "density"
    if dataset.kind in ("table", "text", "sequence") and _are_labels(dataset):
        return "multilabel"
    if isinstance(dataset.y, list) and dataset.y and np.ndim(dataset.y[0]) == 1:
        return "tagging"
    y = np.asarray(dataset.y)
    if dataset.kind == "image" and y.ndim >= 3:
        return "segmentation"
    many = y.dtype.kind == "f" and (len(np.unique(y)) > 20 or not np.array_equal(y, np.round(y)))
    return "regression" if many or (y.dtype.kind in "iu" and len(np.unique(y)) > 100) else "classification"


def _are_labels(dataset: Dataset) -> bool:
    """Whether every sample has any number of labels, and not one for each of its parts."""
    from corollary.data.multilabel import label_sets

    if label_sets(dataset.y) is None:
        return False
    X, y = dataset.X, dataset.y
    parts = [len(x) for x in X] if dataset.kind == "sequence" else []
    return not parts or any(len(labels) != n for labels, n in zip(y, parts))


# --- which metric ranks ----------------------------------------------------------------------------------


def ranks_classes(dataset: Dataset) -> tuple[str, str]:
    """Return the metric for the classes at hand, and why."""
    y = dataset.X.y if dataset.kind == "graph" else dataset.y
    names, counts = np.unique(np.asarray(y)[_known(y)], return_counts=True)
    share, common = counts.max() / counts.sum(), names[counts.argmax()]
    if len(names) < 2:
        do = "Name another column, or leave the target out to compare densities."
        raise errors.value("compare", "the target must have two classes or more", f"only {common!s}", do)
    if len(names) == 2 and counts.min() < FOLDS:
        rare = f"{counts.min()} of class {names[counts.argmin()]!s}"
        return "balanced accuracy", f"only {rare}: there is no ROC where none of them is held out"
    if len(names) == 2:
        why = f"two classes: it does not depend on a threshold, and always saying {common!s} gets 0.5, not {share:.3f}"
        return "ROC AUC", why
    rare = counts[counts >= 10].min() if (counts >= 10).any() else counts.max()
    if share * len(names) > EVEN or counts.max() > RARE * rare:
        return (
            "balanced accuracy",
            f"the classes are uneven: always saying {common!s} has accuracy {share:.3f}",
        )
    if counts.max() > RARE * counts.min():
        return "accuracy", f"the {len(names)} classes are about even but for some of few members"
    return "accuracy", f"the {len(names)} classes are about even"


def ranks_ratings(dataset: Dataset) -> tuple[str, str]:
    """Return the error of ratings; where all are equal, how high the items stand that a user turns to."""
    if np.ptp(dataset.X.data) > 0:
        return "RMSE", ""
    return "NDCG@10", "all ratings are equal: what can be told is which items a user turns to"


def ranks_draws(data: Dataset) -> tuple[str, str]:
    """Return the metric of drawn samples, and what it is computed from."""
    images = data.kind == "image" or "image_shape" in data.extra
    of = (
        "random convolutional features of the images"
        if images
        else "the columns, in units of their deviations"
    )
    return "Fréchet distance", f"between Gaussians with the moments of {of}"


def ranks_densities(dataset: Dataset) -> tuple[str, str]:
    """Return bits per dimension for tables, and log-likelihood for what has no fixed number of columns."""
    if dataset.kind in ("table", "image"):
        return "bits per dimension", "the cost of a value in bits, noise of rounding included"
    return "log-likelihood", "samples have no fixed number of values"


def _known(y: Any) -> np.ndarray:
    y = np.asarray(y)
    return y >= 0 if y.dtype.kind == "i" else np.ones(len(y), dtype=bool)


# --- settings that fit the data --------------------------------------------------------------------------


def code_size(data: Dataset) -> int:
    """Return the length of codes that are compared: a quarter of the columns, at most 16."""
    return int(np.clip(data.X.shape[1] // 4, 1, 16))


def code_settings(model: Any, data: Dataset) -> dict[str, Any]:
    """Return codes of one length for all."""
    return _first(model, ("n_components", "latent"), code_size(data))


def density_settings(model: Any, data: Dataset) -> dict[str, Any]:
    """Return a number of components that the rows can bear: one for every eight rows per column, at most 20."""
    if not hasattr(model, "predict"):  # not a mixture: its components are directions
        return {}
    n, d = data.X.shape
    found = _first(model, ("n_components",), int(np.clip(round(n / (8 * d)), 1, 20)))
    return {**found, "reg_covar": 1e-3} if found and "reg_covar" in model.get_params() else found


def group_settings(model: Any, data: Dataset) -> dict[str, Any]:
    """Return as many groups as there are known classes, or eight."""
    return _first(model, ("n_components",), len(np.unique(data.y)) if data.y is not None else 8)


def topic_settings(model: Any, data: Dataset) -> dict[str, Any]:
    """Return twenty topics for all, fewer for few documents."""
    return _first(model, ("n_components",), topic_count(data))


def topic_count(data: Dataset) -> int:
    """Return the number of topics: one for every ten documents, at most 20."""
    return int(np.clip(len(data) // 10, 2, min(20, data.X.shape[1])))


def forecast_settings(model: Any, data: Dataset) -> dict[str, Any]:
    """Return the horizon that is measured."""
    return _first(model, ("horizon",), int(data.extra.get("horizon", 1)))


def _first(model: Any, names: tuple[str, ...], value: Any) -> dict[str, Any]:
    known = model.get_params()
    return {name: value for name in names if name in known}


def of_data(model: Any, data: Dataset, seed: int) -> Any:
    """Return a density model as one of the data as they were given."""
    from corollary.comparison.densities import DensityOfData

    if data.kind != "table" or isinstance(model, DensityOfData):
        return model
    return DensityOfData(model, pixels="image_shape" in data.extra, random_state=seed)


# --- parts -----------------------------------------------------------------------------------------------


def parts_of(
    dataset: Dataset, task: str, n: int, test: float | str, seed: int, groups: Any = None
) -> Iterator[tuple[Dataset, Dataset]]:
    """Yield the train and test parts of a task."""
    if task == "forecasting" and not isinstance(test, str):
        from corollary.comparison.forecasts import in_time

        yield from islice(in_time(dataset, n, test), n)
        return
    if task == "links" and not isinstance(test, str):
        from corollary.comparison.links import edges_held_out

        yield from edges_held_out(dataset, n, float(test), seed)
        return
    stratify = task in ("classification", "nodes", "clustering")
    by = "time" if in_order(dataset, test) else "chance"
    for kept, held in splits(dataset, n, test, seed, stratify=stratify, groups=groups, by=by):
        if dataset.kind == "ratings":
            held = replace(held, extra={**held.extra, "seen": kept.X.tocsr()})
        yield kept, held


def in_order(dataset: Dataset, test: float | str) -> bool:
    """Whether the last examples in time are held out: of ratings whose times are known."""
    return dataset.kind == "ratings" and "times" in dataset.extra and not isinstance(test, str)


# --- who else takes part ---------------------------------------------------------------------------------


def against(*sources: Any) -> Any:
    """Return a function that gathers rivals for a data set."""
    return lambda dataset: [rival for source in sources for rival in source(dataset)]


def label_rivals(dataset: Dataset) -> list[rivals.Rival]:
    """Return the most frequent value of each label, and one logistic regression per label."""
    return [*baselines.of_labels(dataset), *rivals.labellers(dataset)]


class_rivals = against(baselines.of_classes, rivals.classifiers)
number_rivals = against(baselines.of_numbers, rivals.regressors)
density_rivals = against(baselines.of_densities, rivals.densities)
group_rivals = against(baselines.of_groups, rivals.clusterers)
code_rivals = against(baselines.of_codes, rivals.encoders)


def perplexity(model: Any, held: Dataset) -> dict[str, float]:
    """Return bits per character, whatever a model's tokens are; a text's end counts as one character."""
    logs = np.asarray(model.score_samples(held.X), dtype=np.float64)
    letters = sum(len(text) + 1 for text in held.X)
    return {"bits per character": float(-logs.sum() / np.log(2) / letters)}


def topics(model: Any, held: Dataset) -> dict[str, float]:
    """Return the perplexity of half of each document's words given the others, and the topics' coherence."""
    from corollary.mixtures.topics import coherence, completion_perplexity, halve

    weights = np.asarray(model.components_, np.float64)
    # no word is impossible
    shares = 0.99 * weights / weights.sum(axis=1, keepdims=True) + 0.01 / weights.shape[1]
    top = min(10, weights.shape[1])
    return {
        "word perplexity": completion_perplexity(shares, halve(held.X, np.random.default_rng(0))),
        "coherence": float(np.mean(coherence(weights, held.X, top))),
    }
