"""Results as they come in: a bar on the terminal, and a line for each fit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from corollary.comparison.trials import Trial

__all__ = ["bar"]


@contextmanager
def bar(wanted: bool | None, total: int, task: str, metric: str) -> Iterator[Callable[[Trial], None]]:
    """Yield a function that shows a trial; silent unless wanted, or on a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda trial: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        line = progress.add_task(task, total=total)

        def show(trial: Trial) -> None:
            said = trial.error or f"{metric} {trial.scores.get(metric, float('nan')):.4f}"
            stopped = ", stopped by the time limit" if trial.stopped else ""
            console.print(
                f"  split {trial.part + 1}  {trial.rival}: {said}  ({trial.seconds:.1f} s{stopped})",
                highlight=False,
                markup=False,  # an error may have brackets
            )
            progress.advance(line)

        yield show
