"""Run the benchmarks: ``python -m bench [NAME ...]``; rewrite docs/benchmarks.md from the JSON."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

from bench.first_call import OUT
from bench.harness import CLAIMS, RESULTS, measure

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Ours and the peer interleaved in one run on 2 cores, at equal quality; `make bench` measures them again.
A ratio is the peer's time over ours, and the aim is the least that it should be. Memory is by how much one call raises
the resident size at most, ours and the peer's, in megabytes.

| work | peer | ratio | aim | range | ours (s) | memory | quality |
|---|---|---|---|---|---|---|---|
"""
BELOW = """
## Below the aim

"""
FIRST = """
## The first call

Kernels are compiled at their first call and kept on disk beside the package (or in `NUMBA_CACHE_DIR`). Seconds of a
small fit: where nothing has been compiled, in a new process with a filled cache, and once more in that process.
`python -m bench.first_call` measures them again.

| system | compiling | from the cache | again |
|---|---|---|---|
"""


def table() -> str:
    """Return the page, from what was measured."""
    lines, below = [], []
    for path in sorted(RESULTS.glob("*.json")):
        if path == OUT:
            continue
        r = json.loads(path.read_text())
        low, high = r["range"]
        quality = ", ".join(f"{key} {value:g}" for key, value in r["quality"].items())
        memory = " / ".join(str(r.get(f"{who}_megabytes", "–")) for who in ("ours", "peer"))
        numbers = f"**{r['ratio']}** | {r['floor']:g} | {low}–{high} | {r['ours_seconds']:g} | {memory}"
        lines.append(f"| {r['title']} | {r['peer']} | {numbers} | {quality} |")
        if r["ratio"] < r["floor"]:
            below.append(f"- *{r['title'].rstrip('.')}*: {r.get('limit') or 'not explained.'}")
    first = json.loads(OUT.read_text()) if OUT.exists() else {}
    calls = [
        f"| {name} | {t['compiling']:g} | {t['cached']:g} | {t['again']:g} |" for name, t in first.items()
    ]
    missed = BELOW + "\n".join(below) + "\n" if below else ""
    return HEAD + "\n".join(lines) + "\n" + missed + FIRST + "\n".join(calls) + "\n"


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
