"""Ours and a peer at equal quality: a family of workloads, each side in its own process, in turns.

A benchmark module defines functions decorated with :func:`claim`. Each is given a :class:`Draw`, from which it takes
the sizes, types and layouts of one workload, and returns a :class:`Pair`: two calls that do the same work, and a check
that their results are equally good. Two libraries in one process disturb each other (their thread pools spin against
each other), so each side runs in a process of its own; the two are timed in turns, and a sample that other processes
disturbed is taken again. The ratio of a workload is the median over its turns; the figure of a family is the geometric mean over
its workloads, with the worst beside it.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

THREADS = 2
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(THREADS)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
LEAST = 0.2  # seconds that short calls are timed for
SPIN = 0.4  # seconds after which the idle side's thread pools have gone to sleep
MARK = "@bench "  # begins the lines that a side says to the harness; libraries print what they like beside it


@dataclass
class Pair:
    """Two calls to compare; ``quality(ours, peer)`` returns named numbers and raises if they are not equal."""

    ours: Callable[[], Any]
    peer: Callable[[], Any]
    quality: Callable[[Any, Any], dict[str, float]]
    repeats: int = 3


class Draw:
    """The workload at one place of a family: each value comes from a range that the family covers evenly.

    The range of every value is cut into as many parts as there are workloads, and each workload gets one part, in an order
    that depends on the family, the value's name and the seed: five workloads see small, middling and large sizes.
    """

    def __init__(self, family: str, index: int, count: int, seed: int = 0) -> None:
        self.family, self.index, self.count, self.seed = family, index, count, seed
        self.rng = np.random.default_rng([seed, crc32(family.encode()), index])
        self.drawn: dict[str, Any] = {}

    def _place(self, name: str) -> float:
        rng = np.random.default_rng([self.seed, crc32(f"{self.family} {name}".encode())])
        order, inside = rng.permutation(self.count), rng.random(self.count)
        return float((order[self.index] + inside[self.index]) / self.count)

    def size(self, name: str, low: int, high: int) -> int:
        """Return a whole number, evenly spread over the logarithms."""
        at = math.exp(math.log(low) + self._place(name) * math.log(high / low))
        self.drawn[name] = value = round(at) if at < 100 else int(float(f"{at:.2g}"))
        return value

    def real(self, name: str, low: float, high: float) -> float:
        """Return a positive number, evenly spread over the logarithms."""
        self.drawn[name] = value = float(f"{low * (high / low) ** self._place(name):.3g}")
        return value

    def choice(self, name: str, values: Sequence[Any]) -> Any:
        """Return one of several values; a family takes each about equally often."""
        value = values[min(int(self._place(name) * len(values)), len(values) - 1)]
        self.drawn[name] = getattr(value, "__name__", value)
        return value

    def array(self, X: np.ndarray, dtype: Sequence[str] = ("float32", "float64")) -> np.ndarray:
        """Return the array as users have them: of a drawn type, row- or column-major."""
        kind, order = self.choice("type", dtype), self.choice("order", ("C", "F"))
        return np.array(X, dtype=kind, order=order)


@dataclass
class Claim:
    """A ratio that we say we reach over a family of workloads."""

    name: str
    peer: str  # distribution name, for its version, or what the peer is
    aim: float  # of the geometric mean
    make: Callable[[Draw], Pair]
    title: str = ""
    limit: str = ""  # what bounds it, where it is below the aim or a workload is below 1
    count: int = 5

    def pair(self, index: int, seed: int) -> tuple[Pair, dict[str, Any]]:
        """Return one workload and what was drawn for it."""
        draw = Draw(self.name, index, self.count, seed)
        return self.make(draw), draw.drawn


CLAIMS: dict[str, Claim] = {}


def claim(name: str, *, peer: str, aim: float, count: int = 5) -> Callable[[Any], Any]:
    """Register a family; its docstring is its title and, below, what bounds it."""

    def register(make: Callable[[Draw], Pair]) -> Callable[[Draw], Pair]:
        title, _, limit = inspect.cleandoc(make.__doc__ or name).partition("\n")
        CLAIMS[name] = Claim(name, peer, aim, make, title.rstrip("."), " ".join(limit.split()), count)
        return make

    return register


class Side:
    """One side of one workload, warm and waiting in a process of its own."""

    def __init__(self, item: Claim, index: int, seed: int, which: str) -> None:
        command = [
            sys.executable,
            "-m",
            "bench.side",
            item.make.__module__,
            item.name,
            str(index),
            str(seed),
            which,
        ]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )

    def hear(self) -> dict[str, Any]:
        """Return the next thing that the process says."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                said: dict[str, Any] = json.loads(line.removeprefix(MARK))
                return said
        self.log.seek(0)
        raise RuntimeError("".join(self.log.readlines()[-12:]) or "the process ended without a word")

    def ask(self, word: str) -> dict[str, Any]:
        """Say a word and return the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self) -> None:
        """Let the process go."""
        self.process.kill()
        self.process.wait()


def measure_one(item: Claim, index: int, seed: int) -> dict[str, Any]:
    """Return the figures of one workload: quality from a process that runs both, times from one process a side."""
    judge = Side(item, index, seed, "both")
    sides = {
        which: Side(item, index, seed, which) for which in ("peer", "ours")
    }  # built while the judge works
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    try:
        checked = judge.hear()
        for side in sides.values():
            side.hear()  # built and warm
        for _ in range(checked["repeats"]):
            for which, side in sides.items():
                time.sleep(SPIN)
                times[which].append(side.ask("time")["seconds"])
        memory = {which: side.ask("memory")["megabytes"] for which, side in sides.items()}
    finally:
        for side in (judge, *sides.values()):
            side.end()
    median = {which: float(np.median(values)) for which, values in times.items()}
    return {
        "drawn": checked["drawn"],
        "ratio": round(median["peer"] / median["ours"], 3),
        "ours_seconds": float(f"{median['ours']:.3g}"),
        "peer_seconds": float(f"{median['peer']:.3g}"),
        "ours_megabytes": memory["ours"],
        "peer_megabytes": memory["peer"],
        "quality": checked["quality"],
    }


def check(item: Claim, seed: int = 0) -> dict[str, Any]:
    """Run both sides of a family's first workload, untimed, and return what was drawn and how good they are."""
    judge = Side(item, 0, seed, "both")
    try:
        return judge.hear()
    finally:
        judge.end()


def measure(item: Claim, seed: int = 0) -> dict[str, Any]:
    """Run all workloads of a family and write its JSON."""
    with open(Path(tempfile.gettempdir()) / "corollary-bench.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one benchmark at a time on this machine
        workloads = [measure_one(item, index, seed) for index in range(item.count)]
    ratios = [w["ratio"] for w in workloads]
    result = {
        "name": item.name,
        "title": item.title,
        "peer": _named(item.peer),
        "ratio": round(math.exp(float(np.mean(np.log(ratios)))), 2),
        "worst": round(min(ratios), 2),
        "aim": item.aim,
        "limit": item.limit,
        "seed": seed,
        "least": LEAST,
        "workloads": workloads,
        "machine": {
            "cpu": _cpu(),
            "threads": THREADS,
            "python": platform.python_version(),
            "torch": version("torch"),
        },
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{item.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def _named(peer: str) -> str:
    """Return a distribution with its version; what is none, or lives in an environment of its own, as it is called."""
    try:
        return f"{peer} {version(peer)}"
    except PackageNotFoundError:
        return peer


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
