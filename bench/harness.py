"""Ours and a peer, interleaved in one run, at equal quality.

A benchmark module defines functions decorated with :func:`claim`. Each returns a
:class:`Pair`: two calls that do the same work, and a check that their results are equally
good. Machines are shared and noisy, so the two are timed in turns, a sample disturbed by
other processes is taken again, and the ratio of medians is what counts.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

THREADS = 2
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(THREADS)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

RESULTS = Path(__file__).parent / "results"
QUIET = 0.25  # cores that other processes may use while we measure
PATIENCE = float(os.environ.get("BENCH_PATIENCE", 2.0))  # seconds to wait for quiet before measuring anyway


@dataclass
class Pair:
    """Two calls to compare; ``quality(ours, peer)`` returns named numbers and raises if they are not equal."""

    ours: Callable[[], Any]
    peer: Callable[[], Any]
    quality: Callable[[Any, Any], dict[str, float]]
    repeats: int = 5


@dataclass
class Claim:
    """A ratio that we say we reach."""

    name: str
    peer: str  # distribution name, for its version
    floor: float
    make: Callable[[], Pair]
    title: str = ""
    limit: str = ""  # what bounds it, where it is below the floor
    result: dict[str, Any] = field(default_factory=dict)


CLAIMS: dict[str, Claim] = {}


def claim(name: str, *, peer: str, floor: float) -> Callable[[Callable[[], Pair]], Callable[[], Pair]]:
    """Register a benchmark; its docstring is its title and, below, what bounds it."""

    def register(make: Callable[[], Pair]) -> Callable[[], Pair]:
        title, _, limit = inspect.cleandoc(make.__doc__ or name).partition("\n")
        CLAIMS[name] = Claim(name, peer, floor, make, title, " ".join(limit.split()))
        return make

    return register


def measure(item: Claim) -> dict[str, Any]:
    """Run one claim and write its JSON."""
    with open(Path(tempfile.gettempdir()) / "corollary-bench.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one benchmark at a time on this machine
        pair = item.make()
        ours, peer = pair.ours(), pair.peer()  # warm: compilation, caches, threads
        quality = pair.quality(ours, peer)
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        for _ in range(pair.repeats):
            times["peer"].append(_sample(pair.peer))
            times["ours"].append(_sample(pair.ours))
        memory = {"ours": _peak(pair.ours), "peer": _peak(pair.peer)}
    median = {key: float(np.median(values)) for key, values in times.items()}
    ratios = [p / o for p, o in zip(times["peer"], times["ours"])]
    item.result = {
        "name": item.name,
        "title": item.title,
        "peer": f"{item.peer} {version(item.peer)}",
        "ratio": round(float(np.median(ratios)), 2),
        "range": [round(min(ratios), 2), round(max(ratios), 2)],
        "floor": item.floor,
        "limit": item.limit,
        "ours_seconds": round(median["ours"], 4),
        "peer_seconds": round(median["peer"], 4),
        "ours_megabytes": memory["ours"],
        "peer_megabytes": memory["peer"],
        "quality": {key: float(f"{value:.6g}") for key, value in quality.items()},
        "machine": {
            "cpu": _cpu(),
            "threads": THREADS,
            "python": platform.python_version(),
            "torch": version("torch"),
        },
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{item.name}.json").write_text(json.dumps(item.result, indent=1) + "\n")
    return item.result


def _sample(call: Callable[[], Any], tries: int = 3) -> float:
    best = (float("inf"), float("inf"))
    for _ in range(tries):
        _wait_for_quiet()
        busy, own, start = _busy(), _own(), time.perf_counter()
        call()
        wall = time.perf_counter() - start
        others = max(0.0, (_busy() - busy) - (_own() - own)) / max(wall, 1e-9)
        best = min(best, (others, wall))
        if others < QUIET:
            break
    return best[1]


def _peak(call: Callable[[], Any]) -> int | None:
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


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
