"""Tables and floors for the results."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from corollary.comparison import trials
from corollary.engine import clock


def page(path: Path, title: str, text: str, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a Markdown page with one table and, if there is one of the same name, its picture."""
    lines = [f"# {title}", "", text, "", "| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for row in rows:
        cells = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    if path.with_suffix(".png").exists():
        lines += ["", f"![{title}]({path.stem}.png)"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def board_page(out: Path, name: str, title: str, text: str, board: Any) -> None:
    """Write a leaderboard as a page with its plot: mean, interval and deviation, ties and baselines marked."""
    board.plot().savefig(out / f"{name}.png", dpi=110)
    rows = []
    for place, row in enumerate(board.rows, 1):
        mark = "=" if row["tied"] and place > 1 else str(place)
        score = row["error"] if row["score"] is None else f"{row['score']:.4g} ± {row['width']:.2g}"
        group = "" if row["group"] == "corollary" else row["group"]
        deviation = "" if row["score"] is None else f"{row['deviation']:.2g}"
        rows.append((mark, f"`{row['name']}`", row["system"], group, score, deviation, row["seconds"]))
    headings = ("", "model", "id", "", board.metric, "deviation of the splits", "seconds")
    page(out / f"{name}.md", title, text, headings, rows)


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return "mean ± standard deviation" of the runs with several seeds."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def at_most(value: float, floor: float, what: str) -> None:
    """Raise unless a measured error is small enough."""
    if not value <= floor:
        raise AssertionError(f"{what} is {value:.4f}; it must be at most {floor}")


def at_least(value: float, floor: float, what: str) -> None:
    """Raise unless a measured score is large enough."""
    if not value >= floor:
        raise AssertionError(f"{what} is {value:.4f}; it must be at least {floor}")


@contextmanager
def processor_time() -> Iterator[None]:
    """Count the time limits of fits in seconds of this process, so that scores do not depend on how busy the machine is.

    Measuring has no limit here; nor have rivals that cannot be asked to stop.
    """
    with (
        mock.patch.object(clock, "monotonic", time.process_time),
        mock.patch.object(trials, "within", lambda seconds: nullcontext()),
    ):
        yield
