"""``compare``: all rivals on the same splits, in rounds, until the splits or the time are used up."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from corollary import data, errors
from corollary.comparison.board import INTERRUPTED, Leaderboard, board_of
from corollary.comparison.cautions import cautions
from corollary.comparison.chosen import Chosen
from corollary.comparison.progress import bar
from corollary.comparison.rivals import Rival, find
from corollary.comparison.tasks import in_order, parts_of, task_of
from corollary.comparison.trials import Trial, fit, prepare, try_out
from corollary.data.columns import left_out, unused_columns
from corollary.data.convert import as_input
from corollary.data.dataset import Dataset
from corollary.data.texts import one_text
from corollary.engine.clock import now
from corollary.roletable import TASKS

__all__ = ["compare"]

LEAST = 0.5  # seconds that a fit gets even if the total is nearly used up


def compare(
    source: Any,
    y: Any = None,
    *,
    target: str | None = None,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    task: str | None = None,
    systems: Sequence[Any] | None = None,
    metric: str | None = None,
    splits: int = 5,
    test: float | str = 0.2,
    groups: Any = "auto",
    search: int = 0,
    seed: int = 0,
    time_limit: float | None = 60.0,
    total_time: float | None = None,
    n_jobs: int = 1,
    rivals: str = "all",
    progress: bool | None = None,
    announce: Callable[[Trial], None] | None = None,
) -> Leaderboard:
    """Fit every system that can do the task to the same splits, beside baselines, and rank them on held-out data.

    Parameters
    ----------
    source : data, path or name
        As for :func:`corollary.data.load`: a file, a name, a frame, an array, lists, a graph, ratings.
    y : array-like, optional
        The target of data in memory.
    target : str, optional
        The column to predict.
    kind : str, optional
        What the data are, if their form does not tell.
    columns : dict of str to str, optional
        What columns of a table are, where the reader would see it otherwise; as for :func:`corollary.data.load`.
    task : str, optional
        One of ``TASKS``; by default what the data are most likely meant for.
    systems : sequence of str or estimator, optional
        Names or ids, and estimators or pipelines of your own; by default all that can do the task.
    metric : str, optional
        What ranks; by default what fits the data (the board says why).
    splits : int, default=5
        How many train and test parts. With ``test=0.2`` the first five are those of cross-validation.
    test : float or "published", default=0.2
        The share held out each time.
    groups : "auto", str or array-like, optional
        A column, or a label per row: rows with the same label stay on one side of each split. "auto" takes a column
        whose name says that it is an id and whose values come again; None takes none.
    search : int, default=0
        Number of settings to try for each system, inside each training part and in the time of its fit: by successive
        halving for classification, regression and densities, by one inner part for other tasks. Not for codes
        (reconstruction), groups and nodes of graphs.
    seed : int, default=0
        For the splits and for every ``random_state``.
    time_limit : float, default=60
        Seconds for each fit. Systems of the library stop then and are measured as they stand; others have no result.
    total_time : float, optional
        Seconds for the whole board, reading and measuring included. Rounds go split by split, so that everyone has a
        score before anyone has two; a round that the time ends is left out if there is a whole one.
    n_jobs : int, default=1
        Processes, through joblib.
    rivals : {"all", "baselines", "none"}, default="all"
        Who takes part besides the systems: baselines and scikit-learn's usual estimators, or only baselines.
    progress : bool, optional
        Whether to show a bar with results as they come in; by default on a terminal.
    announce : callable, optional
        Told every :class:`~corollary.comparison.trials.Trial` as it is ready.

    Returns
    -------
    Leaderboard
        ``board.best`` is the first system, fitted to all the data; ``board.frame``, ``board.to_html()`` and
        ``board.plot()`` show all of it.

    Examples
    --------
    >>> from corollary import compare
    >>> board = compare("iris", systems=["softmax-regression"], rivals="baselines")
    >>> board.task, board.metric, board.winner["system"]
    ('classification', 'accuracy', 'softmax-regression')
    """
    clock = _Clock(time_limit, total_time)
    if splits < 1:
        raise errors.value("compare", "splits must be at least 1", splits)
    dataset = _loaded(source, y, kind, target, columns)
    untold = "" if task else _no_target(dataset)
    task = task or task_of(dataset)
    if task not in TASKS:
        raise errors.unknown("compare", "task", task, TASKS)
    if task == "forecasting":
        dataset = as_input(dataset, "sequence", "compare")
    job, notes = TASKS[task], []
    ranking = _ranking(job, dataset, metric)
    chosen = _entrants(find(systems, job.role, dataset, task, job.settings), job, dataset, rivals)
    dataset, groups, grouped = _grouped(dataset, groups)
    said = (grouped, _of_no_use(dataset), untold, *cautions(dataset, task))
    notes += [text for text in said if text]
    if in_order(dataset, test):
        notes.append(
            "Each part holds out the ratings that follow in time; users who come later are answered as the average one."
        )
    if task == "language":
        dataset = one_text(dataset)
    parts = parts_of(dataset, task, splits, test, seed, groups)
    if search:
        from corollary.comparison.search import check_search

        notes += [said] if (said := check_search(task, dataset)) else []
    how = {"seed": seed, "search": _searcher(search, ranking[0]) if search else None}
    trials: list[Trial] = []
    with bar(progress, len(chosen) * (1 if test == "published" else splits), task, ranking[0]) as show:
        try:
            for trial in _rounds(chosen, task, parts, how, clock, n_jobs):
                trials.append(trial)
                show(trial)
                if announce is not None:
                    announce(trial)
        except KeyboardInterrupt:
            if not any(trial.scores for trial in trials):
                raise
            notes.append(INTERRUPTED)
    if clock.cut and INTERRUPTED not in notes:
        notes.append(f"The total of {total_time:g} s was used up before all splits were done.")
    again = partial(_again, {rival.id: rival for rival in chosen}, task, dataset, how, time_limit)
    return board_of(trials, chosen, dataset, task, ranking, job.directions, _ratio(test), notes, again)


def _ratio(test: float | str) -> float:
    """Return how many examples are held out for each that is fitted."""
    return test / (1 - test) if isinstance(test, float) else 0.25


def _loaded(source: Any, y: Any, kind: str | None, target: str | None, columns: Any) -> Dataset:
    if y is None:
        return data.load(source, kind, target, columns=columns)
    return data.load(source, kind, target, y=y, columns=columns)


def _ranking(job: Any, dataset: Dataset, metric: str | None) -> tuple[str, str]:
    if metric is not None:
        if metric not in job.directions:
            raise errors.unknown("compare", "metric", metric, job.directions)
        return metric, "as asked"
    return job.ranks(dataset) if job.ranks is not None else (job.metric, "")


def _entrants(found: list[Rival], job: Any, dataset: Dataset, wanted: str) -> list[Rival]:
    """Return systems and baselines with ids of their own; baselines come first, since they cost nothing."""
    if wanted not in ("all", "baselines", "none"):
        raise errors.unknown("compare", "choice of rivals", str(wanted), ("all", "baselines", "none"))
    others = job.rivals(dataset) if wanted != "none" and job.rivals is not None else []
    others = [rival for rival in others if wanted == "all" or rival.group == "baseline"]
    seen: dict[str, int] = {}
    chosen = []
    for rival in [*others, *found]:
        seen[rival.id] = seen.get(rival.id, 0) + 1
        chosen.append(rival if seen[rival.id] == 1 else replace(rival, id=f"{rival.id}-{seen[rival.id]}"))
    return chosen


def _of_no_use(dataset: Dataset) -> str:
    """Return a sentence about the columns that no system gets: ids, constants, copies; or nothing."""
    if dataset.kind != "table" or not hasattr(dataset.X, "iloc"):
        return ""
    return left_out(unused_columns(dataset.X, dataset.extra.get("columns")), "compare")


def _no_target(dataset: Dataset) -> str:
    """Return a sentence that says how to predict a column of a table, if none was named; or nothing."""
    names = [str(name) for name in dataset.feature_names or getattr(dataset.X, "columns", ())]
    if dataset.kind != "table" or task_of(dataset) != "density" or len(names) < 2:
        return ""
    do = f"To predict a column, name it: --target {shlex.quote(names[-1])} or target={names[-1]!r}."
    return f"No target was named, so densities are compared. {do}"


# --- groups ----------------------------------------------------------------------------------------------


def _grouped(dataset: Dataset, groups: Any) -> tuple[Dataset, Any, str]:
    """Return the data without the column that groups it, the labels, and a sentence that says so."""
    frame = dataset.X if hasattr(dataset.X, "iloc") else None
    if groups is None or (isinstance(groups, str) and groups == "auto" and dataset.kind != "table"):
        return dataset, None, ""
    if isinstance(groups, str):
        names = [str(name) for name in dataset.feature_names or (frame.columns if frame is not None else ())]
        name = next(filter(partial(_is_group, dataset, names), names), None) if groups == "auto" else groups
        if name is None:
            return dataset, None, ""
        if name not in names:
            raise errors.unknown(
                "compare", "column", name, names, "groups= names a column, or is a list of labels."
            )
        labels = _column(dataset, names.index(name))
        rest = [i for i, other in enumerate(names) if other != name]
        X = frame.iloc[:, rest] if frame is not None else dataset.X[:, rest]
        said = f"Rows with the same {name!r} stay on one side of each split; the column is not a feature."
        return replace(dataset, X=X, feature_names=[names[i] for i in rest]), labels, said
    labels = np.asarray(groups)
    return dataset, labels, f"Rows of the same of {len(np.unique(labels.astype(str)))} groups stay together."


def _is_group(dataset: Dataset, names: list[str], name: str) -> bool:
    """Whether a column is called an id and its values come again, so that rows of one value belong together."""
    if (
        not name.lower().rstrip("_ ").endswith(("_id", " id", "-id"))
        and name.lower() != "id"
        and name[-2:] != "Id"
    ):
        return False
    labels = _column(dataset, names.index(name)).astype(str)
    distinct = len(np.unique(labels))
    return 10 <= distinct < 0.9 * len(labels)


def _column(dataset: Dataset, j: int) -> np.ndarray:
    X = dataset.X
    return np.asarray(X.iloc[:, j] if hasattr(X, "iloc") else X[:, j])


# --- rounds ----------------------------------------------------------------------------------------------


class _Clock:
    """How long a fit may take, of what is left; reading the data is counted too."""

    def __init__(self, each: float | None, total: float | None) -> None:
        self.each, self.total = each, total
        self.start, self.cut = now(), False  # cut: whether something was left undone

    def left(self) -> float:
        return float("inf") if self.total is None else self.total - (now() - self.start)

    def over(self) -> bool:
        return self.left() < LEAST

    def cuts(self) -> bool:
        """Return whether the time is used up; asked where there is more to do."""
        self.cut = self.cut or self.over()
        return self.cut

    def around(self) -> float | None:
        """Return the limit for reading before a fit and for measuring after it, if there is a total."""
        return None if self.total is None else max(LEAST, self.left())

    def seconds(self, waiting: int, jobs: int) -> float | None:
        """Return the limit for the next fit: in the first round everyone who waits gets an equal share."""
        share = max(LEAST, self.left() * jobs / max(1, waiting) / 1.5)  # 1.5: the grace of `trials`
        limits = [limit for limit in (self.each, share) if limit is not None and np.isfinite(limit)]
        return min(limits) if limits else None


def _rounds(
    rivals: list[Rival], task: str, parts: Iterator[Any], how: dict[str, Any], clock: _Clock, n_jobs: int
) -> Iterator[Trial]:
    """Yield trials, split by split; who fails once is not tried again."""
    failed: set[str] = set()
    for j, (kept, held) in enumerate(parts):
        if j and clock.cuts():
            return
        waiting = [rival for rival in rivals if rival.id not in failed]
        for trial in _round(waiting, task, kept, held, j, how, clock, n_jobs):
            if trial.error:
                failed.add(trial.rival)
            yield trial


def _round(
    waiting: list[Rival],
    task: str,
    kept: Any,
    held: Any,
    j: int,
    how: dict[str, Any],
    clock: _Clock,
    n_jobs: int,
) -> Iterator[Trial]:
    if n_jobs == 1:
        for i, rival in enumerate(waiting):
            if clock.cuts():
                return
            limits = {"seconds": clock.seconds(len(waiting) - i, 1), "around": clock.around()}
            yield try_out(rival, task, kept, held, part=j, **limits, **how)
        return
    from joblib import Parallel, cpu_count, delayed

    jobs = n_jobs if n_jobs > 0 else max(1, cpu_count() + 1 + n_jobs)
    limits = {"seconds": clock.seconds(len(waiting), jobs), "around": clock.around()}
    call = delayed(try_out)
    yield from Parallel(n_jobs, return_as="generator_unordered")(
        call(rival, task, kept, held, part=j, **limits, **how) for rival in waiting
    )


def _searcher(n: int, metric: str) -> Any:
    from corollary.comparison.search import searched

    return partial(searched, n=n, metric=metric)


def _again(
    rivals: dict[str, Rival],
    task: str,
    dataset: Dataset,
    how: dict[str, Any],
    seconds: float | None,
    system: str,
) -> Chosen:
    """Return a system fitted to all the data."""
    from corollary.comparison.forecasts import LONGEST

    if task == "forecasting":
        dataset = replace(dataset, extra={**dataset.extra, "horizon": LONGEST})
    model, train, reader = prepare(rivals[system], task, dataset, how["seed"], how["search"])
    fit(model, task, train, seconds)
    model = getattr(model, "best_estimator_", model)
    if dataset.kind == "ratings" and hasattr(model, "_name"):
        model._name(dataset.extra.get("users"), dataset.extra.get("items"))
    return Chosen(model, reader, dataset, task)
