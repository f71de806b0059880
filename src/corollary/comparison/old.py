"""Which of these works on my data? One leaderboard over every system that can do the task.

Systems are found in the catalog by role, fitted on the same split with their defaults, and measured
alike; one that fails says why in its row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from corollary import catalog, data, errors
from corollary.data.convert import as_input, inputs
from corollary.data.dataset import Dataset
from corollary.engine.run import Run
from corollary.roletable import TASKS, Task

__all__ = ["TASKS", "Leaderboard", "Task", "compare", "task_of"]


# --- measures --------------------------------------------------------------------------------------------


def _accuracy(model: Any, held: Dataset) -> float:
    return float(np.mean(model.predict(held.X) == held.y))


def _node_accuracy(model: Any, held: Dataset) -> float:
    mask = np.asarray(held.X.test_mask, dtype=bool)
    return float(np.mean(np.asarray(model.predict(held.X))[mask] == np.asarray(held.X.y)[mask]))


def _rmse(model: Any, held: Dataset) -> float:
    return float(np.sqrt(np.mean((np.asarray(model.predict(held.X)) - held.y) ** 2)))


def _completion_rmse(model: Any, held: Dataset) -> float:
    return -float(model.score(held.X))


def _log_likelihood(model: Any, held: Dataset) -> float:
    return float(model.score(held.X))


def _own_score(model: Any, held: Dataset) -> float:
    return float(model.score(held.X) if held.y is None else model.score(held.X, held.y))


def _rand(model: Any, held: Dataset) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(held.y, model.predict(held.X)))


def _silhouette(model: Any, held: Dataset) -> float:
    from sklearn.metrics import silhouette_score

    labels = model.predict(held.X)
    return float(silhouette_score(held.X, labels)) if len(np.unique(labels)) > 1 else -1.0


def _perplexity(model: Any, held: Dataset) -> float:
    return float(model.perplexity(held.X))


def _document_completion(model: Any, held: Dataset) -> float:
    """Return the perplexity of one half of each document's words given the other: the models' own measures differ."""
    from corollary.mixtures.topics import completion_perplexity, halve

    topics = np.asarray(model.components_, np.float64)
    topics = (
        0.99 * topics / topics.sum(axis=1, keepdims=True) + 0.01 / topics.shape[1]
    )  # no word is impossible
    return completion_perplexity(topics, halve(held.X, np.random.default_rng(0)))


def _reconstruction(model: Any, held: Dataset) -> float:
    again = model.inverse_transform(model.transform(held.X))
    return float(np.mean((np.asarray(again) - held.X) ** 2))


def _frechet(model: Any, held: Dataset) -> float:
    """Return the Fréchet distance between the Gaussians of drawn and of held-out rows."""
    from corollary.metrics import frechet_distance

    return frechet_distance(held.X, model.sample(len(held.X)))


# --- what densities are compared on ----------------------------------------------------------------------


def _standardised(dataset: Dataset) -> Dataset:
    """Return columns of mean 0 and variance 1; constants are left out, and integers get the noise of rounding.

    Densities of integers would be unbounded: uniform noise of width one makes their density at most that
    of the counts (dequantisation).
    """
    X = np.asarray(dataset.X, dtype=float)
    if np.array_equal(X, np.round(X)):
        X = X + np.random.default_rng(0).uniform(size=X.shape) * (X.std(0) > 0)
    X = X[:, X.std(0) > 0]
    return replace(dataset, X=(X - X.mean(0)) / X.std(0))


def task_of(dataset: Dataset) -> str:
    """Return the task that data are most likely meant for."""
    if dataset.kind == "ratings":
        return "completion"
    if dataset.kind == "graph":
        return "nodes"
    if dataset.y is None:
        return "language" if dataset.kind == "text" else "density"
    if isinstance(dataset.y, list) and dataset.y and np.ndim(dataset.y[0]) == 1:
        return "tagging"
    y = np.asarray(dataset.y)
    if dataset.kind == "image" and y.ndim >= 3:
        return "segmentation"
    many = y.dtype.kind == "f" and (len(np.unique(y)) > 20 or not np.array_equal(y, np.round(y)))
    return "regression" if many or (y.dtype.kind in "iu" and len(np.unique(y)) > 100) else "classification"


@dataclass(frozen=True)
class Leaderboard:
    """The result of a comparison: rows, best first."""

    task: str
    metric: str
    data: str
    rows: list[dict[str, Any]]

    def __repr__(self) -> str:
        lines = [f"{self.task} on {self.data}: {self.metric}"]
        width = max([len(row["system"]) for row in self.rows], default=0)
        for row in self.rows:
            score = row["error"] if row["score"] is None else f"{row['score']:.4f}"
            lines.append(f"  {row['system']:{width}}  {score:>10}  {row['seconds']:7.1f} s")
        return "\n".join(lines)

    def plot(self) -> Any:
        """Return the scores as bars."""
        from corollary.plot import leaderboard

        return leaderboard(self.rows, self.metric)


def compare(
    source: Any,
    *,
    target: str | None = None,
    task: str | None = None,
    systems: Sequence[str] | None = None,
    test: float | str = 0.2,
    seed: int = 0,
    time_limit: float | None = None,
    announce: Callable[[dict[str, Any]], None] | None = None,
) -> Leaderboard:
    """Fit every system that can do the task on the same split and rank them on held-out data.

    Parameters
    ----------
    source : data, path or name
        As for :func:`corollary.data.load`.
    target : str, optional
        The column to predict.
    task : str, optional
        One of ``TASKS``; by default what the data are most likely meant for.
    systems : sequence of str, optional
        Names or ids to compare; by default all that can do the task.
    test : float or "published", default=0.2
        The share held out.
    seed : int, default=0
        For the split and for every ``random_state``.
    time_limit : float, optional
        Seconds for each fit.
    announce : callable, optional
        Told every row as it is ready.

    Returns
    -------
    Leaderboard

    Examples
    --------
    >>> from corollary import compare
    >>> board = compare("iris", systems=["mlp"])
    >>> board.task, board.rows[0]["system"]
    ('classification', 'mlp')
    """
    dataset = data.load(source, target=target)
    task = task or task_of(dataset)
    if task not in TASKS:
        raise errors.unknown("compare", "task", task, TASKS)
    job = TASKS[task]
    chosen = _systems(systems, job, dataset, task)
    rows: list[dict[str, Any]] = []
    parts: dict[str, tuple[Dataset, Dataset]] = {}  # the same split for all that take one kind
    for entry in chosen:
        row = _measure(entry, job, dataset, parts, test, seed, time_limit)
        rows.append(row)
        if announce is not None:
            announce(row)
    sign = -1 if job.larger_is_better else 1
    rows.sort(key=lambda row: (row["score"] is None, sign * (row["score"] or 0.0)))
    return Leaderboard(task, job.metric, dataset.name, rows)


def _systems(names: Sequence[str] | None, job: Task, dataset: Dataset, task: str) -> list[catalog.Entry]:
    if names:
        return [catalog.find(name) for name in names]
    kinds = inputs(dataset.kind)
    found = [
        entry
        for entry in catalog.entries(role=job.role, kind="estimator")
        if kinds & {entry.input, *entry.also}
    ]
    if task == "reconstruction":
        found = [entry for entry in found if hasattr(entry.load(), "inverse_transform")]
    if not found:
        must = f"some system must do {task} on data of kind {dataset.kind}"
        raise errors.value("compare", must, "none in the catalog", f"Tasks: {', '.join(TASKS)}.")
    return found


def _measure(
    entry: catalog.Entry,
    job: Task,
    dataset: Dataset,
    parts: dict[str, tuple[Dataset, Dataset]],
    test: float | str,
    seed: int,
    time_limit: float | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"system": entry.id, "name": entry.name, "score": None, "seconds": 0.0, "error": ""}
    start = perf_counter()
    try:
        if entry.input not in parts:
            parts[entry.input] = data.split(
                job.prepare(as_input(dataset, entry.input, entry.name)), test, seed
            )
        kept, held = parts[entry.input]
        model = entry.create()
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        start = perf_counter()
        with Run(time_limit=time_limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(kept.X, kept.y) if kept.y is not None else model.fit(kept.X)
            row["seconds"] = round(perf_counter() - start, 3)
            score = job.measure(model, held)
        row["score"] = score if np.isfinite(score) else None
        row["error"] = "" if np.isfinite(score) else f"score is {score}"
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        RuntimeError,
        ImportError,
        AttributeError,
        MemoryError,
    ) as error:
        row["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        row["seconds"] = round(perf_counter() - start, 3)
    return row
