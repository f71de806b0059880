"""The slow lane: train on real data, assert the floors, rewrite the tables and pictures of docs/results.

``python -m results [NAME ...]`` (``make results``). A module here has ``run(out: Path) -> dict``; what it
returns is printed.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent.parent / "docs" / "results"


def main(names: list[str]) -> int:
    """Run the named results, or all; return 1 if a floor is missed."""
    OUT.mkdir(parents=True, exist_ok=True)
    missed = 0
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        if path.stem == "tables" or (names and path.stem not in names):
            continue
        start = time.perf_counter()
        try:
            with _ended_by_signals():
                found = import_module(f"results.{path.stem}").run(OUT)
            verdict = "ok"
        except AssertionError as error:
            found, verdict = error, "BELOW ITS FLOOR"
            missed += 1
        sys.stdout.write(f"{path.stem}: {verdict} in {time.perf_counter() - start:.0f} s: {found}\n")
        sys.stdout.flush()
    return int(missed > 0)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the program: a fit that heard them would stop early, and its page would be written."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
