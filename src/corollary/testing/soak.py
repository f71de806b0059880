"""A soak: fits of every system are killed, starved of disk, damaged and raced, and must end as if nothing had been.

``python -m corollary.testing.soak --minutes 5 --seed 0`` takes systems of the catalog in random order and does to
each one of:

kill
    SIGKILL, SIGTERM or SIGINT at a random moment, up to three times, then a resume.
full
    Nothing can be written for some of the steps (a limit on the size of files), then a resume.
tear
    SIGKILL, then a checkpoint or a part is cut short, overwritten, or becomes a directory or a pipe; then a resume.
race
    Two processes start in one directory at the same time.

Every round ends with a fitted model, which is compared bit for bit with that of a fit that was left alone. One
that differs, or that fails, is *lost*. The processes are forked from one that has computed nothing, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corollary import __version__, catalog, errors, io
from corollary.engine.run import Run
from corollary.testing.checks import sample_data
from corollary.validation import digest

__all__ = ["Round", "main", "soak"]

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 300.0  # seconds after which a process counts as hung
COUNTS = ("rounds", "killed", "interrupted after a checkpoint", "writes refused", "files damaged", "races",
          "resumed identical", "lost")  # fmt: skip


class Round(NamedTuple):
    """What was done to one fit, and what became of it."""

    system: str
    fault: str
    counts: Counter[str]
    trouble: str


# --- in a forked process: one fit ------------------------------------------------------------------------


def fingerprint(model: Any) -> str:
    """Return a hash of all that a model's file would hold, but for the seconds of its history."""
    arrays: dict[str, np.ndarray] = {}
    body = _without_seconds(io.encode(model, arrays))
    return digest((json.dumps(body, sort_keys=True), [arrays[name] for name in sorted(arrays, key=int)]))


def _without_seconds(body: Any) -> Any:
    """Return plain values without the seconds of any history, those of members included."""
    if isinstance(body, list):
        return [_without_seconds(part) for part in body]
    if isinstance(body, dict):
        return {key: _without_seconds(part) for key, part in body.items() if key != "seconds"}
    return body


def _fit(
    system: str, directory: Path, tell: Callable[[str], None], slow: float, starve: tuple[int, int]
) -> str:
    """Fit a system with its test settings; return the fingerprint of the model."""
    import torch

    torch.set_num_threads(1)
    cls = catalog.find(system).load()
    model = cls(**(cls._test_params() if hasattr(cls, "_test_params") else {}))
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    X, y = model._test_data() if hasattr(model, "_test_data") else sample_data(model.input)
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def after(event: Any) -> None:
        tell("step")
        time.sleep(slow)
        full = starve[0] <= event.step < starve[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 if full else most, most))

    try:
        with Run(directory, resume=True, checkpoint_every=0, callbacks=[after], progress=False):
            model.fit(X, y)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    tell(f"stopped {model.stopped_}")
    return fingerprint(model)


class Child:
    """A fit in a forked process, which tells every step and its end through a pipe."""

    def __init__(
        self, system: str, directory: Path, slow: float = 0.0, starve: tuple[int, int] = (0, 0)
    ) -> None:
        self.reader, writer = os.pipe()
        self.lines: list[str] = []
        self._rest = b""
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        os.close(self.reader)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        warnings.simplefilter("ignore")
        tell = lambda text: os.write(writer, f"{text}\n".encode())
        try:
            tell(f"done {_fit(system, directory, tell, slow, starve)}")
        except errors.RunError:
            tell("refused")
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            tell(f"error {type(error).__name__}: {error} ({where})".replace("\n", " "))
        os._exit(0)

    def read(self, seconds: float) -> bool:
        """Read what it tells for a while; return whether it has ended."""
        ready, _, _ = select.select([self.reader], [], [], max(0.0, seconds))
        if ready:
            content = os.read(self.reader, 65536)
            if not content:
                return True
            *whole, self._rest = (self._rest + content).split(b"\n")
            self.lines += [line.decode() for line in whole]
        return False

    def wait(self, steps: int | None = None) -> bool:
        """Wait for a number of steps, or for the end; return whether it has ended."""
        deadline = time.monotonic() + PATIENCE
        while steps is None or self.lines.count("step") < steps:
            if self.read(0.5):
                return True
            if time.monotonic() > deadline:
                os.kill(self.pid, signal.SIGKILL)
                self.lines.append(f"error hung for {PATIENCE:.0f} s")
        return False

    def end(self) -> str:
        """Wait for the end, and return the last thing that was told."""
        self.wait()
        os.waitpid(self.pid, 0)
        os.close(self.reader)
        last = [line for line in self.lines if line.startswith(("done", "refused", "error"))]
        return last[-1] if last else "gone"


# --- the rounds ------------------------------------------------------------------------------------------


def _kill(system: str, folder: Path, steps: int, rng: random.Random, counts: Counter[str]) -> None:
    for _ in range(rng.randint(1, 3)):
        child = Child(system, folder, slow=rng.choice((0.0, 0.02)))
        child.wait(rng.randint(0, max(1, steps - 1)))
        ended = child.read(rng.uniform(0.0, 0.1))
        if not ended:
            written = any(folder.rglob("checkpoint.safetensors"))
            os.kill(child.pid, rng.choice(SIGNALS))
            counts["killed"] += 1
            counts["interrupted after a checkpoint"] += written
        told = child.end()
        if told.startswith("error") and "KeyboardInterrupt" not in told:
            raise AssertionError(told)


def _full(system: str, folder: Path, steps: int, rng: random.Random, counts: Counter[str]) -> None:
    begin = rng.randint(1, max(1, steps))
    told = Child(system, folder, starve=(begin, begin + rng.randint(1, steps + 1))).end()
    counts["writes refused"] += 1
    if not told.startswith("done"):
        raise AssertionError(f"a full disk ended the fit: {told}")


def _tear(system: str, folder: Path, steps: int, rng: random.Random, counts: Counter[str]) -> None:
    child = Child(system, folder, slow=0.02)
    child.wait(rng.randint(1, max(1, steps - 1)))
    os.kill(child.pid, signal.SIGKILL)
    child.end()
    counts["killed"] += 1
    files = sorted(p for p in folder.glob("checkpoints/*/*") if p.is_file())
    for path in rng.sample(files, min(len(files), rng.randint(1, 2))):
        rng.choice((_cut, _overwrite, _to_folder, _to_pipe))(path, rng)
        counts["files damaged"] += 1


def _cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randint(0, path.stat().st_size))


def _overwrite(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes()) or bytearray(1)
    at = rng.randrange(len(content))
    content[at : at + 8] = rng.randbytes(8)
    path.write_bytes(content)


def _to_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _to_pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _race(system: str, folder: Path, steps: int, rng: random.Random, counts: Counter[str]) -> None:
    children = [Child(system, folder, slow=0.01) for _ in range(2)]
    told = [child.end() for child in children]
    counts["races"] += 1
    good = [line for line in told if line.startswith("done")]
    if not good or any(not line.startswith(("done", "refused")) for line in told):
        raise AssertionError(f"a race ended in {told}")


FAULTS: dict[str, Callable[..., None]] = {"kill": _kill, "full": _full, "tear": _tear, "race": _race}


def _round(system: str, fault: str, whole: tuple[str, int], rng: random.Random, place: Path) -> Round:
    """Do one thing to one fit, let it end, and compare."""
    folder, counts, trouble = place / "run", Counter(rounds=1), ""
    try:
        FAULTS[fault](system, folder, whole[1], rng, counts)
        told = Child(system, folder).end()
        if told != whole[0]:
            trouble = f"a fit left alone gives {whole[0]}, this one {told}"
    except AssertionError as error:
        trouble = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts["lost" if trouble else "resumed identical"] += 1
    return Round(system, fault, counts, trouble)


def soak(
    seconds: float,
    seed: int = 0,
    systems: Sequence[str] = (),
    rounds: int | None = None,
    announce: Callable[[Round], None] = lambda done: None,
) -> list[Round]:
    """Run rounds until the time is up or there were enough; return what happened.

    Parameters
    ----------
    seconds : float
        How long to go on; a round that has begun is finished.
    seed : int, default=0
        Decides systems, faults and moments.
    systems : sequence of str, optional
        Ids of the catalog; by default all estimators.
    rounds : int, optional
        How many at most.
    announce : callable, optional
        Told every round as it ends.
    """
    import torch  # noqa: F401  before any process is forked: each would import it again

    rng, begin = random.Random(seed), time.monotonic()
    names = list(systems) or [entry.id for entry in catalog.entries(kind="estimator")]
    for name in names:
        catalog.find(name).load()
    whole: dict[str, tuple[str, int]] = {}
    found: list[Round] = []
    with tempfile.TemporaryDirectory() as place:
        queue: list[str] = []
        while time.monotonic() - begin < seconds and (rounds is None or len(found) < rounds):
            queue = queue or rng.sample(names, len(names))
            system = queue.pop()
            if system not in whole:
                child = Child(system, Path(place) / "whole")
                whole[system] = child.end(), child.lines.count("step")
                shutil.rmtree(Path(place) / "whole", ignore_errors=True)
            fault = rng.choice((*FAULTS, "kill"))
            found.append(_round(system, fault, whole[system], rng, Path(place)))
            announce(found[-1])
    return found


# --- the page --------------------------------------------------------------------------------------------


def page(found: Sequence[Round], seconds: float, seed: int) -> str:
    """Return the figures and the threat model as Markdown."""
    total = sum((each.counts for each in found), Counter())
    systems = len({each.system for each in found})
    lines = [
        "# Soak: what fits survive",
        "",
        f"Written by `python -m corollary.testing.soak --minutes {seconds / 60:g} --seed {seed}` (corollary "
        f"{__version__}): {len(found)} rounds over {systems} systems of the catalog. What is done to a fit is told by "
        "the module's documentation; a round is *lost* if its model differs in a bit from that of a fit left alone.",
        "",
        "| | " + " | ".join((*FAULTS, "all")) + " |",
        "|---" * (len(FAULTS) + 2) + "|",
    ]
    for name in COUNTS:
        by_fault = [sum(each.counts[name] for each in found if each.fault == fault) for fault in FAULTS]
        lines.append(f"| {name} | " + " | ".join(map(str, (*by_fault, total[name]))) + " |")
    lost = [each for each in found if each.trouble]
    lines += (
        ["", "## Lost", "", *[f"- {each.system}, {each.fault}: {each.trouble}" for each in lost]]
        if lost
        else []
    )
    return "\n".join([*lines, "", THREATS])


THREATS = """## What files, data and directories can and cannot do

- **A model file** from a stranger is data: reading it runs nothing of what it holds, imports nothing outside the catalog, and
  checks checksum, types, shapes and ranges before a module or a compiled kernel sees it. It cannot crash the process or take
  more than a small multiple of its own size. It can hold a bad model: whom the weights came from is for you to know.
- **A checkpoint** is read by the same rules. One that is damaged in any way is kept aside under another name, the one before it
  is tried, and if none is left the fit says that it starts anew. One of other data, other settings, another system or a newer
  version is refused and left alone.
- **A data set** can be wrong, and it can be large; readers bound what they allocate (`limits=`). A resumed fit compares a
  128-bit hash of all of its data. The hash finds accidents; it is no signature against someone who wants to deceive.
- **A run directory** is held by one fit at a time, by a lock of the operating system that ends with the process. On file systems
  without such locks (some network ones) there is none. Whoever can write in the directory can delete it.
- **A full disk** costs checkpoints, never the fit: it goes on, tries again and ends with the model in memory.
- **Power cuts**: a file is on disk before its name is, so a name never stands for half a file. What was done since the last
  checkpoint is done again, to the same bits on the same machine with the same number of threads.
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run from the command line; return 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m corollary.testing.soak", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="decides systems, faults and moments")
    parser.add_argument(
        "--systems", default="", help="ids of the catalog, separated by commas; all if left out"
    )
    parser.add_argument("--rounds", type=int, help="how many at most")
    parser.add_argument("--page", type=Path, help="a Markdown file for the figures")
    given = parser.parse_args(words)
    names = [name for name in given.systems.split(",") if name]

    def announce(done: Round) -> None:
        if done.trouble:
            sys.stderr.write(f"lost: {done.system}, {done.fault}: {done.trouble}\n")

    found = soak(60 * given.minutes, given.seed, names, given.rounds, announce)
    total = sum((each.counts for each in found), Counter())
    sys.stdout.write(json.dumps({name: total[name] for name in COUNTS}, indent=1) + "\n")
    if given.page is not None:
        io.write_text(given.page, page(found, 60 * given.minutes, given.seed))
    return int(total["lost"] > 0)


if __name__ == "__main__":
    sys.exit(main())
