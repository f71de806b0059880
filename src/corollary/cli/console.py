"""Output of the command line: messages, tables, JSON, errors."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["complain", "note", "quoted", "say", "show_json", "table"]


def say(text: str) -> None:
    """Print one line."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Print one line beside the result."""
    sys.stderr.write(text + "\n")


def complain(error: BaseException) -> None:
    """Print what is wrong, and where it came from if COROLLARY_DEBUG is set."""
    if os.environ.get("COROLLARY_DEBUG"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError) and error.strerror:  # without the number that Python puts before it
        place = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"Error: {error.strerror}{place}\n")
        return
    sys.stderr.write(f"Error: {error or type(error).__name__}\n")


def show_json(value: Any) -> None:
    """Print plain values as JSON."""
    sys.stdout.write(json.dumps(value, indent=1, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def quoted(name: str) -> str:
    """Return a name as it is typed in a shell.

    >>> quoted("gekündigt"), quoted("unit price")
    ('gekündigt', "'unit price'")
    """
    return name if re.fullmatch(r"[\w.,:+-]+", name) else shlex.quote(name)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print a table; cut lines only where the terminal does."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=title, box=None, header_style="bold", title_justify="left", pad_edge=False)
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*("" if cell is None else str(cell) for cell in row))
    wide = None if sys.stdout.isatty() else 160
    Console(width=wide, markup=False, emoji=False).print(grid)  # names of columns have brackets: length [mm]
