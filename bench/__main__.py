"""Run the benchmarks: ``python -m bench [NAME ...] [--seed S]``; rewrite docs/benchmarks.md from the JSON.

``--check`` runs the first workload of each, untimed, and writes nothing: does every claim still run, and at equal quality?
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.first_call import OUT
from bench.harness import CLAIMS, LEAST, RESULTS, Claim, check, measure

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Ours and a peer at equal quality on 2 cores; `make bench` measures them again. A claim is a family of workloads: sizes,
types, row- or column-major layout, densities are drawn from ranges (the second table shows every draw; `python -m bench --seed 1`
draws others). Each side runs in a process of its own, the two take turns, and a ratio is the peer's median
time over ours: the geometric mean over the family, and the worst workload beside it. Calls shorter than a fifth of a second are
repeated for that long, after one that is not counted; where a † stands they were timed one by one, after a pause, which adds the
milliseconds that threads take to wake. Before that, a third process runs
both and checks that their results are equally good. Memory is by how much one call raises the resident size at most, in
megabytes, largest over the family, ours and the peer's.

| work | peer | ratio | worst | aim | memory | bounded by |
|---|---|---|---|---|---|---|
"""
EACH = """
## Every workload

| work | drawn | ratio | ours (s) | quality |
|---|---|---|---|---|
"""
FIRST = """
## The first call

Kernels are compiled at their first call and kept on disk beside the package (or in `NUMBA_CACHE_DIR`). Seconds of a
small fit: where nothing has been compiled, in a new process with a filled cache, and once more in that process.
`python -m bench.first_call` measures them again.

| system | compiling | from the cache | again |
|---|---|---|---|
"""


def _family(r: dict[str, Any]) -> str:
    memory = " / ".join(_most(r, who) for who in ("ours", "peer"))
    # as the claim words it now, which may be better known than when it was measured
    limit = CLAIMS[r["name"]].limit if r["name"] in CLAIMS else r["limit"]
    reason = (limit or "not explained") if r["ratio"] < r["aim"] or r["worst"] < 1 else ""
    return f"| {r['title']}{_once(r)} | {r['peer']} | **{r['ratio']}** | {r['worst']} | {r['aim']:g} | {memory} | {reason} |"


def _once(r: dict[str, Any]) -> str:
    """Return a mark where short calls were not repeated."""
    return " †" if "least" not in r and any(w["ours_seconds"] < LEAST for w in r["workloads"]) else ""


def _most(r: dict[str, Any], who: str) -> str:
    found = [w[f"{who}_megabytes"] for w in r["workloads"] if w[f"{who}_megabytes"] is not None]
    return str(max(found)) if found else "–"


def _workload(r: dict[str, Any], w: dict[str, Any]) -> str:
    drawn = ", ".join(f"{key} {value}" for key, value in w["drawn"].items())
    quality = ", ".join(f"{key} {value:g}" for key, value in w["quality"].items())
    return f"| {r['title']} ({r['peer'].split()[0]}) | {drawn} | {w['ratio']:.2f} | {w['ours_seconds']:g} | {quality} |"


def page() -> str:
    """Return the page, from what was measured."""
    files = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json")) if path != OUT]
    found = [r for r in files if "workloads" in r]  # others were measured before claims were families
    first = json.loads(OUT.read_text()) if OUT.exists() else {}
    calls = [
        f"| {name} | {t['compiling']:g} | {t['cached']:g} | {t['again']:g} |" for name, t in first.items()
    ]
    families = "\n".join(map(_family, found))
    workloads = "\n".join(_workload(r, w) for r in found for w in r["workloads"])
    return f"{HEAD}{families}\n{EACH}{workloads}\n{FIRST}" + "\n".join(calls) + "\n"


def _checked(item: Claim, seed: int) -> bool:
    """Run the first workload of a family, untimed; return True, or raise RuntimeError."""
    found = check(item, seed)
    quality = ", ".join(f"{key} {value:g}" for key, value in found["quality"].items())
    sys.stdout.write(f"{item.name:28} runs: {quality}\n")
    return True


def _measured(item: Claim, seed: int) -> bool:
    """Measure a family and rewrite the page; return whether the family meets its aim."""
    result = measure(item, seed)
    met: bool = result["ratio"] >= item.aim
    verdict = "ok" if met else "BELOW"
    each = " ".join(f"{w['ratio']:.2f}" for w in result["workloads"])
    sys.stdout.write(
        f"{item.name:28} {result['ratio']:7.2f}x (aim {item.aim:g}, worst {result['worst']}) {verdict}  [{each}]\n"
    )
    PAGE.write_text(page())
    return met


def main(arguments: list[str]) -> int:
    """Measure the named families, or all; return 1 if one misses its aim."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="families to measure, in this order, by the beginning of their names"
    )
    parser.add_argument("--seed", type=int, default=0, help="which workloads are drawn")
    parser.add_argument(
        "--check", action="store_true", help="run one workload of each, untimed, and write nothing"
    )
    given = parser.parse_args(arguments)
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        import_module(f"bench.{path.stem}")
    named = {key: c for name in given.names or [""] for key, c in CLAIMS.items() if key.startswith(name)}
    run = _checked if given.check else _measured
    missed = 0
    for item in named.values():
        try:
            missed += not run(item, given.seed)
        except RuntimeError as error:
            missed += 1
            sys.stdout.write(f"{item.name:28} FAILED: {error}\n")
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
