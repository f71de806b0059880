"""The slow lane: train on real data, assert the floors, rewrite the tables and pictures of docs/results.

``python -m results [NAME ...]`` (``make results``). A module here has ``run(out: Path) -> dict``; what it
returns is printed.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

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
            found = import_module(f"results.{path.stem}").run(OUT)
            verdict = "ok"
        except AssertionError as error:
            found, verdict = error, "BELOW ITS FLOOR"
            missed += 1
        sys.stdout.write(f"{path.stem}: {verdict} in {time.perf_counter() - start:.0f} s: {found}\n")
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
