"""Where and how to run: directory, resume, device, precision, processes, progress, time.

A :class:`Run` surrounds fits; how to descend is :class:`~corollary.engine.training.Training`.

>>> import corollary
>>> with corollary.Run(time_limit=60, progress=False) as run:
...     run.device
'cpu'
"""

from __future__ import annotations

import csv
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

from corollary import __version__, errors, io
from corollary.engine.learner import State
from corollary.engine.loop import EarlyStopping, Event
from corollary.engine.notebook import display, in_notebook, text_bar

__all__ = ["Checkpoints", "Run", "current"]

_current: ContextVar[Run | None] = ContextVar("corollary_run", default=None)
PROGRESS_DELAY = 1.0  # seconds before a bar appears: short fits stay silent


class Run:
    """Where the fits inside the ``with`` block run.

    Parameters
    ----------
    directory : path, optional
        Where checkpoints, ``config.json``, ``history.csv`` and ``model.safetensors`` go.
    resume : bool, default=False
        Whether to go on from the last checkpoint in ``directory``, if there is one.
    device : str, default="auto"
        "auto" takes a GPU if there is one; otherwise "cpu", "cuda", "cuda:1", "mps".
    precision : str, optional
        A Lightning Fabric precision such as "bf16-mixed"; by default the data's own.
    processes : int, default=1
        How many processes share the work; under ``torchrun`` its world is used.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal, after a second.
    time_limit : float, optional
        Seconds after which each fit stops, usable and resumable.
    checkpoint_every : float, default=10.0
        Seconds between two checkpoints; 0 writes one after every step.
    early_stopping : EarlyStopping, optional
        For learners that have no stopping rule of their own.
    callbacks : sequence of callable, default=()
        Each is called with an :class:`~corollary.engine.loop.Event` after every step.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        device: str = "auto",
        precision: str | None = None,
        processes: int = 1,
        progress: bool | None = None,
        time_limit: float | None = None,
        checkpoint_every: float = 10.0,
        early_stopping: EarlyStopping | None = None,
        callbacks: Sequence[Callable[[Event], bool | None]] = (),
    ) -> None:
        if resume and directory is None:
            raise errors.value(
                "Run", "resume=True needs a directory", "directory=None", "Name the run's directory."
            )
        if processes < 1:
            raise errors.value("Run", "processes must be at least 1", processes)
        self.directory = None if directory is None else Path(directory)
        self.resume = resume
        self.requested_device = device
        self.precision = precision
        self.processes = processes
        self.progress = progress
        self.time_limit = time_limit
        self.checkpoint_every = checkpoint_every
        self.early_stopping = early_stopping
        self.callbacks = tuple(callbacks)
        self._fits = 0
        self._fabric: Any = None
        self._tokens: list[Token[Run | None]] = []

    def __enter__(self) -> Run:
        self._tokens.append(_current.set(self))
        self._fits = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._tokens.pop())

    # --- device and processes ----------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """The device to compute on, by name."""
        if self.requested_device != "auto":
            return self.requested_device
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def world(self) -> int:
        """How many processes take part in this fit."""
        return int(os.environ.get("WORLD_SIZE", 1)) if _launched() else 1

    @property
    def rank(self) -> int:
        """Which of them this one is."""
        return int(os.environ.get("RANK", 0)) if _launched() else 0

    @property
    def fabric(self) -> Any:
        """Lightning Fabric, or None where plain PyTorch on one CPU process will do."""
        if self._fabric is None and (self.world > 1 or self.precision or self.device != "cpu"):
            from lightning_fabric import Fabric

            local = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if _launched() else 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._fabric = Fabric(
                    accelerator=self.device.split(":")[0],
                    devices=local,
                    num_nodes=max(1, self.world // local),
                    strategy="ddp" if self.world > 1 else "auto",
                    precision=self.precision or "32-true",  # type: ignore[arg-type]
                )
                self._fabric.launch()
        return self._fabric

    def sum(self, x: Any) -> Any:
        """Sum an array or tensor over the processes; the identity on one."""
        if self.world == 1:
            return x
        import torch

        total = self.fabric.all_reduce(torch.as_tensor(x).clone(), reduce_op="sum")
        return total if isinstance(x, torch.Tensor) else total.numpy().reshape(getattr(x, "shape", ()))

    def shard(self, n: int) -> slice:
        """Return this process's share of ``n`` rows."""
        size = -(-n // self.world)
        return slice(min(n, self.rank * size), min(n, (self.rank + 1) * size))

    def launch(self, work: Callable[[], State]) -> State:
        """Run ``work`` in ``processes`` new processes; return what the first one returns."""
        from corollary.engine.processes import launch

        return launch(work, self)

    def settings(self) -> dict[str, Any]:
        """Return what a process that takes part must be told."""
        names = (
            "directory",
            "resume",
            "precision",
            "processes",
            "progress",
            "time_limit",
            "checkpoint_every",
        )
        kept = {name: getattr(self, name) for name in names}
        return {**kept, "device": self.requested_device, "early_stopping": self.early_stopping}

    @property
    def launches(self) -> bool:
        """Whether a fit here must first start the other processes."""
        return self.processes > 1 and not _launched()

    # --- checkpoints and progress ------------------------------------------------------------------------

    def checkpoints(self, owner: str, fingerprint: State) -> Checkpoints | None:
        """Return the store for the next fit of this run: the k-th fit finds the k-th fit's checkpoints."""
        if self.directory is None:
            return None
        self._fits += 1
        folder = self.directory / "checkpoints" / f"{self._fits:03d}-{owner}"
        return Checkpoints(folder, owner, fingerprint, writes=self.rank == 0)

    def record(self, estimator: Any) -> None:
        """Write the fitted model, its history and its configuration into the directory."""
        if self.directory is None or self.rank > 0:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        io.save(estimator, self.directory / "model.safetensors")
        params = {
            key: value for key, value in estimator.get_params().items() if not hasattr(value, "get_params")
        }
        config = {"model": type(estimator).__name__, "version": __version__, "params": params}
        (self.directory / "config.json").write_text(json.dumps(config, indent=1, default=repr) + "\n")
        rows = estimator.history_
        names = list(dict.fromkeys(name for row in rows for name in row))
        with open(self.directory / "history.csv", "w", newline="") as file:
            table = csv.DictWriter(file, names)
            table.writeheader()
            table.writerows(rows)

    @contextmanager
    def bar(
        self, owner: str, total: int | None, start: int, wanted: bool | None = None
    ) -> Iterator[Callable[[dict[str, float]], None]]:
        """Yield a function that shows one row of the history on a progress bar; the run's own wish comes first."""
        progress_wanted = wanted if self.progress is None else self.progress
        show = (sys.stderr.isatty() or in_notebook()) if progress_wanted is None else progress_wanted
        if not show or self.rank > 0:
            yield lambda row: None
            return
        if in_notebook():
            yield _notebook_bar(owner, total, 0.0 if progress_wanted else PROGRESS_DELAY)
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, TextColumn("{task.fields[metrics]}"), console=Console(stderr=True))
        task = progress.add_task(owner, total=total, completed=start, metrics="")
        begin = monotonic()

        def update(row: dict[str, float]) -> None:
            progress.update(task, completed=row["step"], metrics=_shown(row))
            if not progress.live.is_started and (progress_wanted or monotonic() - begin > PROGRESS_DELAY):
                progress.start()

        try:
            yield update
        finally:
            if progress.live.is_started:
                progress.stop()


def _shown(row: dict[str, float]) -> str:
    return "  ".join(f"{key} {value:.4g}" for key, value in row.items() if key not in ("step", "seconds"))


def _notebook_bar(owner: str, total: int | None, delay: float) -> Callable[[dict[str, float]], None]:
    """Return a function that shows a row as one line of a notebook, which changes in place."""
    begin, place = monotonic(), None

    def update(row: dict[str, float]) -> None:
        nonlocal place
        if place is not None or monotonic() - begin >= delay:
            place = display({"text/plain": text_bar(owner, int(row["step"]), total, _shown(row))}, place)

    return update


class Checkpoints:
    """The last two checkpoints of one fit; both are whole at every moment."""

    def __init__(self, folder: Path, owner: str, fingerprint: State, writes: bool = True) -> None:
        self.current = folder / "checkpoint.safetensors"
        self.previous = folder / "previous.safetensors"
        self.owner = owner
        self.fingerprint = fingerprint
        self.writes = writes

    def write(self, state: State) -> None:
        """Keep the last checkpoint under another name and put the new one in its place."""
        if not self.writes:
            return
        self.current.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.current.with_name("fresh.safetensors")
        io.write(fresh, {"fingerprint": self.fingerprint, **state}, "checkpoint")
        if self.current.exists():
            os.replace(self.current, self.previous)
        os.replace(fresh, self.current)

    def latest(self) -> State | None:
        """Return the newest whole checkpoint; a damaged one is reported and the one before it is used."""
        for path in (self.current, self.previous):
            if not path.exists():
                continue
            try:
                state: State = io.read(path, "checkpoint")
            except io.FileError as error:
                warnings.warn(
                    f"Run: {error} Trying the checkpoint before it.", errors.CorollaryWarning, stacklevel=3
                )
                continue
            self._match(state.pop("fingerprint"))
            return state
        return None

    def _match(self, kept: State) -> None:
        for key in sorted({*kept, *self.fingerprint}):
            if kept.get(key) != self.fingerprint.get(key):
                raise errors.value(
                    "Run",
                    f"a resumed fit must have {key}={kept.get(key)!r} as in {self.current.parent}",
                    f"{key}={self.fingerprint.get(key)!r}",
                    "Use the same model and data, another directory, or resume=False.",
                )


def _launched() -> bool:
    """Whether torchrun, or our own launcher in its manner, started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def current() -> Run:
    """Return the surrounding run, or one with the defaults."""
    return _current.get() or Run()
