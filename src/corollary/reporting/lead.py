"""The first sentence of a report: what was learned, and how much better that is than a guess."""

from __future__ import annotations

from typing import Any

import numpy as np

from corollary.base import roles
from corollary.data.dataset import Dataset
from corollary.roletable import TASKS

__all__ = ["lead", "likely_task", "measured"]


def likely_task(model: Any, dataset: Dataset) -> str | None:
    """Return the task that this model does on these data, if they allow one."""
    from corollary.comparison.tasks import task_of

    does, likely = roles(type(model)), task_of(dataset)
    if TASKS[likely].role in does:
        return likely
    if {"classifier", "regressor"} & set(does):
        return None
    return next((name for name, task in TASKS.items() if task.role in does and task.usual), None)


def measured(model: Any, held: Dataset, train: Dataset | None) -> dict[str, Any] | None:
    """Return task, ranking metric, the model's numbers, and those of the best baseline; None if nothing can be measured."""
    task = likely_task(model, held)
    if task is None:
        return None
    job = TASKS[task]
    try:
        numbers = job.numbers(model, held)
        metric, why = job.ranks(held) if job.ranks is not None else (job.metric, "")
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    if metric not in numbers:
        return None
    best = _best_baseline(task, metric, held, train)
    return {"task": task, "metric": metric, "why": why, "numbers": numbers, "baseline": best}


def _best_baseline(
    task: str, metric: str, held: Dataset, train: Dataset | None
) -> tuple[str, dict[str, float]] | None:
    from corollary.comparison.trials import try_out

    job = TASKS[task]
    if job.rivals is None:
        return None
    tried = [
        (rival.name, try_out(rival, task, train or held, held, seconds=10.0).scores)
        for rival in job.rivals(train or held)
        if rival.group == "baseline"
    ]
    sign = 1 if job.directions[metric] else -1
    return max((t for t in tried if metric in t[1]), key=lambda t: sign * t[1][metric], default=None)


def lead(model: Any, dataset: Dataset, train: Dataset | None = None) -> str:
    """Return the sentence, or nothing where no task can be measured."""
    found = measured(model, dataset, train)
    if found is None:
        return ""
    job, metric, base = TASKS[found["task"]], found["metric"], found["baseline"]
    value = found["numbers"][metric]
    where = "on data that the fit did not see" if train is not None else "on the data shown"
    text = f"{_what(found['task'], dataset)}: {metric} {value:.4g} {where}"
    if base is not None:
        gap = (value - base[1][metric]) * (1 if job.directions[metric] else -1)
        tiny = 1e-3 * max(abs(base[1][metric]), 1e-12)
        verdict = "better than" if gap > tiny else "no better than" if gap > -tiny else "worse than"
        text += f", {verdict} the baseline ({base[0]}: {base[1][metric]:.4g})"
    return f"{text}.{_one_class(model, dataset)}"


def _what(task: str, dataset: Dataset) -> str:
    y = dataset.X.y if dataset.kind == "graph" else dataset.y
    if task in ("classification", "nodes") and y is not None:
        names, counts = np.unique(np.asarray(y), return_counts=True)
        shown = ", ".join(
            f"{name} ({count / counts.sum():.1%})" for name, count in zip(names[:6], counts[:6])
        )
        return f"Tells {len(names)} classes apart, {shown}{' …' if len(names) > 6 else ''}"
    titles = {
        "regression": "Predicts numbers",
        "density": "Describes the data",
        "completion": "Predicts held-out ratings",
        "topics": "Explains words by topics",
        "language": "Continues text",
        "forecasting": "Forecasts the last steps",
        "segmentation": "Labels pixels",
        "tagging": "Labels parts",
        "translation": "Turns texts into texts",
        "answering": "Finds answers",
    }
    return titles.get(task, task.capitalize())


def _one_class(model: Any, dataset: Dataset) -> str:
    """Say so if a classifier gives the same answer to everything."""
    if "classifier" not in roles(type(model)):
        return ""
    said = np.unique(np.asarray(model.predict(dataset.X)))
    return (
        f" It answers {said[0]} to everything: it has learned nothing that tells samples apart."
        if len(said) == 1
        else ""
    )
