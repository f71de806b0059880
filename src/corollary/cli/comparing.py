"""``corollary compare``: the board on the terminal, as a page and as a picture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from corollary import errors
from corollary.cli.console import say, show_json, table

__all__ = ["leaderboard", "print_board"]


def leaderboard(
    source: str,
    kind: str | None,
    target: str | None,
    out: Path | None,
    as_json: bool,
    options: dict[str, Any],
) -> Any:
    """Compare, print, and write a page (or only a picture, if ``out`` ends in .png); return the board."""
    from corollary.comparison import compare
    from corollary.plot import save

    _check_out(out)
    board = compare(source, kind=kind, target=target, **options)
    if as_json:
        facts = ("task", "metric", "why", "data", "verdict", "notes")
        show_json({**{key: getattr(board, key) for key in facts}, "rows": board.rows})
    else:
        print_board(board)
    if out is None and not as_json:
        out = Path("runs") / f"compare-{board.data}-{board.task}.html"
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(board.plot(), out) if out.suffix == ".png" else board.to_html(out)
        if not as_json:
            say(f"board in {out}")
    return board


def _check_out(out: Path | None) -> None:
    """Raise for a page that cannot be written, before the minutes that the board takes."""
    if out is None:
        return
    if out.suffix.lower() not in (".html", ".htm", ".png"):
        raise errors.value("--out", "the file must end in .html or .png", repr(out.suffix))
    beside = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if out.is_dir() or not os.access(beside, os.W_OK):
        raise errors.value(
            "--out", "it must be a file that can be written", repr(str(out)), "Name another one."
        )


def print_board(board: Any) -> None:
    """Print a board: every metric, the ranking one first, with the half width of its interval."""
    others = [metric for metric in board.directions if metric != board.metric]
    arrow = {metric: "↑" if larger else "↓" for metric, larger in board.directions.items()}
    headings = ("", "system", "", f"{board.metric} {arrow[board.metric]}", "±")
    rows = []
    for place, row in enumerate(board.rows, 1):
        mark = "=" if row["tied"] and place > 1 else place
        label = "" if row["group"] == "corollary" else row["group"]
        if row["score"] is None:
            rows.append(("", row["system"], label, row["error"], *[""] * (len(others) + 2)))
            continue
        cells = [f"{row['scores'][m]:.4g}" if m in row["scores"] else "" for m in others]
        width = "" if row["width"] != row["width"] else f"{row['width']:.2g}"
        rows.append(
            (mark, row["system"], label, f"{row['score']:.4g}", width, *cells, f"{row['seconds']:.1f}")
        )
    title = f"{board.task} on {board.data}" + (
        f", ranked by {board.metric}: {board.why}" if board.why else ""
    )
    table((*headings, *(f"{m} {arrow[m]}" for m in others), "seconds"), rows, title)
    for line in (board.verdict, *board.notes):
        say(line)
