"""One trial: a rival, fitted to one training part and measured on its held-out part, within a time limit.

Fits of the library end by themselves when the time is up and are measured as they stand. What cannot be asked to stop
is interrupted by an alarm, and has no result.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from corollary.comparison.measures import drawn_images, image_shape
from corollary.comparison.rivals import Reader, Rival
from corollary.data.dataset import Dataset
from corollary.engine.clock import now
from corollary.engine.loop import time_box
from corollary.engine.run import Run
from corollary.errors import CorollaryWarning
from corollary.roletable import TASKS

__all__ = ["Trial", "delicate", "fit", "prepare", "try_out", "within"]

GRACE = 0.5  # of the limit, and at least half a second: for what a step takes after the limit

# Seconds for reading, importing and compiling before a fit, and for measuring after it; more if a fit has more.
AROUND = 60.0
SMALL = 500_000  # entries of a table


class OutOfTime(Exception):
    """Raised inside what runs longer than it may."""


@dataclass
class Trial:
    """What came of it."""

    rival: str
    part: int
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""
    stopped: bool = False  # by the time limit, with a result
    drawn: Any = field(default=None, repr=False, compare=False)  # some images of a generator


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raise :class:`OutOfTime` in the block when the time is up; only the main thread can be interrupted so."""
    with time_box(seconds, OutOfTime, delicate):
        yield


def delicate(frame: FrameType | None) -> bool:
    """Whether a module is being imported or compiled, which must not be left half done."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("importlib._bootstrap", "llvmlite.", "numba.")):
            return True
        frame = frame.f_back
    return False


def prepare(
    rival: Rival, task: str, kept: Dataset, seed: int, search: Any = None
) -> tuple[Any, Dataset, Reader]:
    """Return the model to fit, the training part as it takes it, and how it reads other parts."""
    reader = Reader(rival)
    train = reader.learn(kept, {"classification": "classes", "regression": "numbers"}.get(task))
    model = rival.make(train, seed)
    adapt = TASKS[task].adapt
    model = adapt(model, train, seed) if adapt is not None else model
    return search(model, task, train, seed) if search is not None else model, train, reader


def fit(model: Any, task: str, train: Dataset, seconds: float | None) -> bool:
    """Fit, and return whether the time limit stopped it."""
    with (
        Run(time_limit=seconds, progress=False),
        _threads(train),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        with_y = train.y is not None and train.kind != "graph" and task not in ("density", "generation")
        model.fit(train.X, train.y) if with_y else model.fit(train.X)
    if getattr(model, "stopped_", "") in ("Ctrl-C", "SIGTERM"):  # politely, but meant for the board
        raise KeyboardInterrupt
    ended = [str(w.message) for w in caught if issubclass(w.category, CorollaryWarning)]
    return any("time limit" in text for text in ended)


@contextmanager
def _threads(train: Dataset) -> Iterator[None]:
    """Use one thread for small tables: several wait for each other longer than they work, most of all on a busy machine."""
    from threadpoolctl import threadpool_limits

    if train.kind != "table" or train.X.shape[0] * train.X.shape[1] > SMALL:
        yield
        return
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 1
    with threadpool_limits(1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def _import_before(rival: Rival, model: Any) -> None:
    """Import what torch's optimisers import at their first use, for seconds: or else the first who descends pays for all."""
    if rival.group == "corollary" and any(name.endswith("training") for name in model.get_params()):
        import torch._dynamo  # noqa: F401


def _strip(model: Any, held: Dataset) -> np.ndarray | None:
    """Return ten drawn images (10, ..., h, w) in [0, 1], where the data are images."""
    shape = image_shape(held)
    return drawn_images(model, held, 10).reshape(-1, *shape) if shape else None


def try_out(
    rival: Rival,
    task: str,
    kept: Dataset,
    held: Dataset,
    *,
    part: int = 0,
    seed: int = 0,
    seconds: float | None = None,
    around: float | None = None,
    search: Any = None,
) -> Trial:
    """Fit, measure, and return what came of it; whatever goes wrong becomes a line of text.

    ``seconds`` limits the fit, ``around`` the reading before it and the measuring after it.
    """
    trial, start = Trial(rival.id, part), now()
    hard = None if seconds is None else seconds + max(0.5, GRACE * seconds)
    other = None if seconds is None else min(max(AROUND, seconds), around or AROUND + seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with within(other):
                model, train, reader = prepare(rival, task, kept, seed, search)
                _import_before(rival, model)
            start = now()
            with within(hard):
                trial.stopped = fit(model, task, train, seconds)
            model = getattr(model, "best_estimator_", model)
            trial.seconds = now() - start
            with within(other):
                found = TASKS[task].numbers(model, reader(held))
                if task == "generation" and part == 0:
                    trial.drawn = _strip(model, reader(held))
        trial.scores = {name: value for name, value in found.items() if np.isfinite(value)}
        if not trial.scores:
            trial.error = f"no finite score: {found}"
    except OutOfTime:
        trial.error = f"no result within {seconds:.3g} s" if not trial.seconds else "measuring took too long"
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        trial.error = f"{type(error).__name__}: {error}".splitlines()[0]
    trial.seconds = trial.seconds or now() - start
    return trial
