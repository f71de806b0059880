"""One side of one workload in a process of its own: ``python -m bench.side MODULE NAME INDEX SEED (ours | peer | both)``.

"both" runs each side once and says what was drawn and how good the results are. "ours" and "peer" make one
call to warm up (compilation, caches, threads), then answer "time" and "memory" until they are ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.harness import CLAIMS, LEAST, MARK

QUIET = 0.25  # cores that other processes may use while we measure
PATIENCE = float(os.environ.get("BENCH_PATIENCE", 2.0))  # seconds to wait for quiet before measuring anyway


def say(**what: Any) -> None:
    """Tell the harness."""
    sys.stdout.write(f"\n{MARK}{json.dumps(what)}\n")
    sys.stdout.flush()


def sample(call: Callable[[], Any], tries: int = 3) -> float:
    """Return the seconds of a call, from the least disturbed of a few tries.

    A call of a few milliseconds would measure how long threads take to wake after a pause; so one call goes before, and as
    many are timed as fill ``LEAST`` seconds.
    """
    best = (float("inf"), float("inf"))
    for _ in range(tries):
        _wait_for_quiet()
        before, calls = (_busy(), _own(), time.perf_counter()), 1
        call()
        if time.perf_counter() - before[2] < LEAST:
            before, calls = (_busy(), _own(), time.perf_counter()), 0
            while time.perf_counter() - before[2] < LEAST:
                call()
                calls += 1
        wall = time.perf_counter() - before[2]
        others = max(0.0, (_busy() - before[0]) - (_own() - before[1])) / wall
        best = min(best, (others, wall / calls))
        if others < QUIET:
            break
    return best[1]


def peak(call: Callable[[], Any]) -> int | None:
    """Return by how many megabytes a call raises the resident memory at most, where Linux tells."""
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    except OSError:
        return None
    before = _status("VmRSS")
    call()
    return max(0, _status("VmHWM") - before) // 1024


def _status(field: str) -> int:
    """Return a field of /proc/self/status in kilobytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def _wait_for_quiet() -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        busy, start = _busy(), time.perf_counter()
        time.sleep(0.15)
        if (_busy() - busy) / (time.perf_counter() - start) < QUIET:
            return


def _busy() -> float:
    """Return the seconds all cores have been busy since boot."""
    fields = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def main(module: str, name: str, index: int, seed: int, which: str) -> None:
    """Build the workload and serve."""
    import_module(module)
    item = CLAIMS[name]
    pair, drawn = item.pair(index, seed)
    if which == "both":
        quality = pair.quality(pair.ours(), pair.peer())
        numbers = {key: float(f"{value:.6g}") for key, value in quality.items()}
        say(drawn=drawn, quality=numbers, repeats=pair.repeats)
        return
    call = getattr(pair, which)
    call()
    say(ready=True)
    for word in sys.stdin:
        if word.strip() == "time":
            say(seconds=sample(call))
        else:
            say(megabytes=peak(call))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
