"""Hold some of any kind of data out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.kinds import check_graph, check_ratings

__all__ = ["split"]


def split(dataset: Dataset, test: float | str = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Return a train and a test part.

    Examples (rows, documents, sequences, sets, graphs) are divided. Of ratings, entries are: both
    parts keep all users and items. Of a graph, nodes are: both parts are the whole graph with
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
    rng = np.random.default_rng(seed)
    if dataset.kind == "ratings":
        return _entries(dataset, float(test), rng)
    kept, held = _shuffled(len(dataset), float(test), rng)
    return _masked(dataset, kept, held) if dataset.kind == "graph" else _divided(dataset, kept, held)


def _shuffled(n: int, test: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    if n < 2:
        raise errors.value("split", "there must be two examples or more to divide", n)
    held = min(max(int(test * n + 0.5), 1), n - 1)
    order = rng.permutation(n)
    return np.sort(order[held:]), np.sort(order[:held])


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
    return _part(dataset, kept), _part(dataset, held)


def _part(dataset: Dataset, part: np.ndarray) -> Dataset:
    extra = {key: value for key, value in dataset.extra.items() if key not in ("split", "validation")}
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
    return values[part] if hasattr(values, "shape") else [values[i] for i in part]


def _entries(dataset: Dataset, test: float, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    R = check_ratings(dataset.X, "split").tocoo()
    kept, held = _shuffled(R.nnz, test, rng)
    return replace(dataset, X=_kept(R, kept)), replace(dataset, X=_kept(R, held))


def _kept(R: Any, part: np.ndarray) -> Any:
    from scipy import sparse

    return sparse.csr_matrix((R.data[part], (R.row[part], R.col[part])), shape=R.shape)


def _masked(dataset: Dataset, kept: np.ndarray, held: np.ndarray) -> tuple[Dataset, Dataset]:
    graph = check_graph(dataset.X, "split", features=False)
    masks = np.zeros((2, len(dataset)), dtype=bool)
    masks[0, kept] = masks[1, held] = True
    marked = replace(dataset, X=replace(graph, train_mask=masks[0], val_mask=None, test_mask=masks[1]))
    return marked, marked
