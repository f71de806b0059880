"""``corollary compare``: the leaderboard on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from corollary.cli.console import say, show_json, table

__all__ = ["leaderboard"]


def leaderboard(
    source: str,
    kind: str | None,
    target: str | None,
    out: Path | None,
    as_json: bool,
    options: dict[str, Any],
) -> Any:
    """Compare, print and plot; return the result."""
    from corollary import data
    from corollary.comparison import compare
    from corollary.plot import save

    def announce(row: dict[str, Any]) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"  {row['system']}: {row['error'] or format(row['score'], '.4f')}\n")

    board = compare(data.load(source, kind, target), announce=announce, **options)
    if as_json:
        show_json({"task": board.task, "metric": board.metric, "data": board.data, "rows": board.rows})
    else:
        rows = [
            (
                r["system"],
                r["name"],
                "" if r["score"] is None else f"{r['score']:.4f}",
                f"{r['seconds']:.1f}",
                r["error"],
            )
            for r in board.rows
        ]
        title = f"{board.task} on {board.data}"
        table(("system", "name", board.metric, "seconds", ""), rows, title)
    if out is None and not as_json:
        out = Path("runs") / f"compare-{board.data}-{board.task}.png"
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        save(board.plot(), out)
        if not as_json:
            say(f"plot in {out}")
    return board
