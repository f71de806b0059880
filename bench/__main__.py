"""Run the benchmarks: ``python -m bench [NAME ...]``; rewrite docs/benchmarks.md from the JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from bench.harness import CLAIMS, RESULTS, measure

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Ours and the peer interleaved in one run on 2 cores, at equal quality; `make bench` measures them again.
A ratio is the peer's time over ours.

| work | peer | ratio | range | ours (s) | quality |
|---|---|---|---|---|---|
"""


def table() -> str:
    """Return the page, from what was measured."""
    rows = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]
    lines = []
    for r in rows:
        low, high = r["range"]
        quality = ", ".join(f"{key} {value:g}" for key, value in r["quality"].items())
        lines.append(
            f"| {r['title']} | {r['peer']} | **{r['ratio']}** | {low}–{high} | {r['ours_seconds']:g} | {quality} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def main(names: list[str]) -> int:
    """Measure the named claims, or all; return 1 if one misses its floor."""
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        import_module(f"bench.{path.stem}")
    chosen = [c for key, c in CLAIMS.items() if not names or any(key.startswith(name) for name in names)]
    missed = 0
    for item in chosen:
        result = measure(item)
        verdict = "ok" if result["ratio"] >= item.floor else "BELOW"
        missed += verdict != "ok"
        sys.stdout.write(
            f"{item.name:28} {result['ratio']:7.2f}x (floor {item.floor:g}) {verdict}  {result['quality']}\n"
        )
    PAGE.write_text(table())
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
