"""Run the zoo: ``python -m zoo [NAME ...] [--author A] [--withheld] [--seeds N] [--file PATH]``."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from importlib import import_module
from pathlib import Path

from zoo import CASES, examine, score


def main(arguments: list[str]) -> int:
    """Examine the chosen cases, print a line each and the shares."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, by the beginning of their names or of a cause")
    parser.add_argument("--author", help="only the cases of this author")
    parser.add_argument(
        "--withheld", action="store_true", help="without optimiser, batch size, history and start"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--file", type=Path, action="append", default=[], help="a file of further cases")
    given = parser.parse_args(arguments)
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"zoo.{path.stem}")
    for path in given.file:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    chosen = [c for c in CASES.values() if given.author in (None, c.author)]
    if given.names:
        chosen = [c for c in chosen if any(n.startswith(tuple(given.names)) for n in (c.name, *c.causes))]
    outcomes = []
    for item in chosen:
        for seed in range(given.seeds):
            outcome = examine(item, seed, withheld=given.withheld)
            outcomes.append(outcome)
            right = outcome.among_three if len(item.causes) > 1 else outcome.first
            mark = "ok   " if right else "near " if outcome.among_three and item.causes else "WRONG"
            true = "+".join(item.causes) or "healthy"
            print(
                f"{mark} {outcome.seconds:5.1f}s {item.name:44} {true:34} said {', '.join(outcome.found[:4]) or '-'}",
                flush=True,
            )
    for key, value in score(outcomes).items():
        print(f"{key:18} {value:g}" if isinstance(value, int) else f"{key:18} {value:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
