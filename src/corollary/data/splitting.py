"""Hold some of any kind of data out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.kinds import check_graph, check_ratings
from corollary.data.sources import Source

__all__ = ["split", "splits", "subset"]


def split(
    dataset: Dataset, test: float | str = 0.2, seed: int = 0, *, by: str = "chance"
) -> tuple[Dataset, Dataset]:
    """Return a train and a test part.

    Examples (rows, documents, sequences, sets, graphs) are divided. Of a single text, the end is held
    out. Of ratings, entries are: both parts keep all users and items. Of a graph, nodes are: both parts are the whole graph with
    ``train_mask`` and ``test_mask``, since edges join them.

    Parameters
    ----------
    dataset : Dataset
        What to divide.
    test : float or "published", default=0.2
        The share that is held out, between 0 and 1; ``"published"`` takes the split that came with
        the data (without its validation part).
    seed : int, default=0
        The order in which examples are drawn depends on it alone.
    by : {"chance", "time"}, default="chance"
        Whether ratings are held out at random, or the last ones by their times (``extra["times"]``): what a recommender
        meets when it is used.

    Returns
    -------
    (Dataset, Dataset)

    Examples
    --------
    >>> from corollary import data
    >>> train, test = data.split(data.load("iris"), test=0.2, seed=1)
    >>> train
    Dataset 'iris': table, X (120, 4), y (120,)
    """
    if test == "published":
        return _published(dataset)
    if isinstance(test, str) or not 0 < test < 1:
        raise errors.value("split", "test must be a share between 0 and 1, or 'published'", repr(test))
    if _is_one_text(dataset):
        return _piece(dataset, 1 - float(test), 1.0)
    if _by_time(dataset, by, "split"):
        return next(_in_time(dataset, 1, float(test)))
    rng = np.random.default_rng(seed)
    if dataset.kind == "ratings":
        return _entries(dataset, float(test), rng)
    kept, held = _shuffled(len(dataset), float(test), rng)
    return _masked(dataset, kept, held) if dataset.kind == "graph" else _divided(dataset, kept, held)


def splits(
    dataset: Dataset,
    n: int = 5,
    test: float | str = 0.2,
    seed: int = 0,
    *,
    stratify: bool = False,
    groups: Any = None,
    by: str = "chance",
) -> Iterator[tuple[Dataset, Dataset]]:
    """Yield ``n`` train and test parts, to measure a spread as well as a mean.

    If ``test`` is close to 1/k, the parts are those of k-fold cross-validation, repeated with another order
    after k of them; otherwise every part is drawn anew. What is divided is as for :func:`split`; of a single text,
    one piece after the other is held out.

    Parameters
    ----------
    dataset : Dataset
        What to divide.
    n : int, default=5
        How many divisions.
    test : float or "published", default=0.2
        The share held out each time; ``"published"`` yields the one split that came with the data.
    seed : int, default=0
        The order of the examples depends on it.
    stratify : bool, default=False
        Whether every part shall have each class of ``y`` in about the same share.
    groups : array-like, optional
        One label per example; examples with the same label stay on the same side.
    by : {"chance", "time"}, default="chance"
        As for :func:`split`. By time, each part is held out of what came before it; the first is the last in time, and each
        further one begins half its length earlier.

    Yields
    ------
    (Dataset, Dataset)

    Examples
    --------
    >>> from corollary import data
    >>> parts = list(data.splits(data.load("iris"), 5, stratify=True))
    >>> [len(held) for kept, held in parts]
    [30, 30, 30, 30, 30]
    """
    if test == "published":
        yield _published(dataset)
        return
    if isinstance(test, str) or not 0 < test < 1:
        raise errors.value("splits", "test must be a share between 0 and 1, or 'published'", repr(test))
    if _is_one_text(dataset):
        k = max(2, round(1 / test))
        yield from (_piece(dataset, i / k, (i + 1) / k) for i in reversed(range(max(0, k - n), k)))
        return
    if _by_time(dataset, by, "splits"):
        yield from _in_time(dataset, n, float(test))
        return
    if dataset.kind == "ratings":
        size, divide = check_ratings(dataset.X, "splits").nnz, _divide_entries
    else:
        size, divide = len(dataset), _masked if dataset.kind == "graph" else _divided
    labels = _labels(dataset) if stratify else None
    if groups is not None and len(groups) != size:
        raise errors.value("splits", f"groups must have one label per example ({size})", len(groups))
    for kept, held in islice(_divisions(size, float(test), seed, labels, groups), n):
        yield divide(dataset, kept, held)


def _by_time(dataset: Dataset, by: str, owner: str) -> bool:
    if by not in ("chance", "time"):
        raise errors.unknown(owner, "way to divide", str(by), ("chance", "time"))
    if by == "time" and (dataset.kind != "ratings" or "times" not in dataset.extra):
        must, do = "dividing by time needs ratings with times", "Give the table a column called timestamp."
        raise errors.value(owner, must, f"{dataset.name!r} of kind {dataset.kind} without any", do)
    return by == "time"


def _in_time(dataset: Dataset, n: int, test: float) -> Iterator[tuple[Dataset, Dataset]]:
    """Yield ratings up to a time, and those of the share ``test`` that follow; the last ones first."""
    order = np.argsort(dataset.extra["times"], kind="stable")
    size = max(1, round(test * len(order)))
    for i in range(n):
        end = len(order) - i * max(1, size // 2)
        if end - size < 1:
            return
        yield _divide_entries(dataset, np.sort(order[: end - size]), np.sort(order[end - size : end]))


def _labels(dataset: Dataset) -> np.ndarray | None:
    """Return what to stratify by: classes that occur at least twice each, or nothing."""
    y = getattr(dataset.X, "y", None) if dataset.kind == "graph" else dataset.y
    if y is None or np.ndim(y) != 1:
        return None
    codes, sizes = np.unique(np.asarray(y).astype(str), return_inverse=True, return_counts=True)[1:]
    return codes if sizes.min() >= 2 else None


def _divisions(
    n: int, test: float, seed: int, labels: np.ndarray | None, groups: Any
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield sorted row numbers of train and test parts, without end."""
    from sklearn import model_selection as parts

    if n < 2:
        raise errors.value("splits", "there must be two examples or more to divide", n)
    folds = min(round(1 / test), n)
    whole = folds > 1 and abs(1 / folds - test) < 0.02
    for repeat in count(seed):
        if groups is not None:
            folds = min(max(2, folds), len(np.unique(np.asarray(groups).astype(str))))
            kind = parts.GroupKFold if labels is None else parts.StratifiedGroupKFold
            rule = kind(folds, shuffle=True, random_state=repeat)
        elif whole:
            kind = parts.KFold if labels is None else parts.StratifiedKFold
            rule = kind(folds, shuffle=True, random_state=repeat)
        else:
            kind = parts.ShuffleSplit if labels is None else parts.StratifiedShuffleSplit
            rule = kind(1, test_size=test, random_state=repeat)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a class with fewer members than folds
            yield from (
                (np.sort(kept), np.sort(held)) for kept, held in rule.split(np.zeros(n), labels, groups)
            )


def _shuffled(n: int, test: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if n < 2:
        raise errors.value("split", "there must be two examples or more to divide", n)
    held = min(max(int(test * n + 0.5), 1), n - 1)
    order = rng.permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


def _is_one_text(dataset: Dataset) -> bool:
    return dataset.kind == "text" and len(dataset) == 1 and dataset.y is None


def _piece(dataset: Dataset, begin: float, end: float) -> tuple[Dataset, Dataset]:
    """Return what lies around a piece of a text, and the piece; both begin and end at the end of a line if one is near."""
    text = dataset.X[0]
    first, last = (_line_end(text, round(share * len(text))) for share in (begin, end))
    around = [part for part in (text[:first], text[last:]) if part]
    if not around or first >= last:
        raise errors.value("split", "a text must be long enough to divide", f"{len(text)} characters")
    return replace(dataset, X=around), replace(dataset, X=[text[first:last]])


def _line_end(text: str, at: int) -> int:
    """Return the place after the last line end in the eighth of the text before ``at``, or ``at``."""
    found = text.rfind("\n", max(0, at - len(text) // 8), at)
    return found + 1 if 0 <= found and at < len(text) else at


def _published(dataset: Dataset) -> tuple[Dataset, Dataset]:
    if dataset.kind == "graph" and getattr(dataset.X, "test_mask", None) is not None:
        return dataset, dataset
    if "split" not in dataset.extra:
        do = "Pass a share such as test=0.2."
        got = f"{dataset.name!r} without one"
        raise errors.value("split", "the data must come with a published split", got, do)
    kept, held = dataset.extra["split"]
    return _divided(dataset, kept, held)


def _divided(dataset: Dataset, kept: np.ndarray, held: np.ndarray) -> tuple[Dataset, Dataset]:
    return subset(dataset, kept), subset(dataset, held)


def subset(dataset: Dataset, part: np.ndarray) -> Dataset:
    """Return some of the examples, with all that belongs to them."""
    extra = {
        key: value for key, value in dataset.extra.items() if key not in ("split", "validation", "whole")
    }
    return replace(
        dataset,
        X=_rows(dataset.X, part),
        y=None if dataset.y is None else _rows(dataset.y, part),
        extra={key: _extra(value, part, len(dataset)) for key, value in extra.items()},
    )


def _extra(value: Any, part: np.ndarray, n: int) -> Any:
    """Cut what has one entry per example along with the examples."""
    per_example = isinstance(value, list | np.ndarray) and len(value) == n
    return _rows(value, part) if per_example else value


def _rows(values: Any, part: np.ndarray) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[part]
    if isinstance(values, Source):
        return values.take(part)
    return values[part] if hasattr(values, "shape") else [values[i] for i in part]


def _entries(dataset: Dataset, test: float, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    kept, held = _shuffled(check_ratings(dataset.X, "split").nnz, test, rng)
    return _divide_entries(dataset, kept, held)


def _divide_entries(dataset: Dataset, kept: np.ndarray, held: np.ndarray) -> tuple[Dataset, Dataset]:
    R, times = check_ratings(dataset.X, "split").tocoo(), dataset.extra.get("times")

    def part(rows: np.ndarray) -> Dataset:
        extra = dataset.extra if times is None else {**dataset.extra, "times": np.asarray(times)[rows]}
        return replace(dataset, X=_kept(R, rows), extra=extra)

    return part(kept), part(held)


def _kept(R: Any, part: np.ndarray) -> Any:
    from scipy import sparse

    return sparse.csr_matrix((R.data[part], (R.row[part], R.col[part])), shape=R.shape)


def _masked(dataset: Dataset, kept: np.ndarray, held: np.ndarray) -> tuple[Dataset, Dataset]:
    graph = check_graph(dataset.X, "split", features=False)
    masks = np.zeros((2, len(dataset)), dtype=bool)
    masks[0, kept] = masks[1, held] = True
    marked = replace(dataset, X=replace(graph, train_mask=masks[0], val_mask=None, test_mask=masks[1]))
    return marked, marked
