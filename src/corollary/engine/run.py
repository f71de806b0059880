"""Run settings: directory, resume, device, precision, processes, progress bar, time limit, checkpoints, callbacks.

A :class:`Run` is a context around fits; settings of gradient descent are :class:`~corollary.engine.training.Training`.

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
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from io import StringIO
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, cast

from corollary import __version__, errors, io
from corollary.engine.checkpoints import Checkpoints
from corollary.engine.clock import watching
from corollary.engine.directory import Lock, fit_folder, refuse_to_overwrite, tidy, unwritable
from corollary.engine.learner import State
from corollary.engine.loop import EarlyStopping, Event
from corollary.engine.notebook import display, in_notebook, text_bar

__all__ = ["Checkpoints", "Run", "current"]

_current: ContextVar[Run | None] = ContextVar("corollary_run", default=None)
LAUNCHER = "corollary"  # what TORCHELASTIC_RUN_ID is in a process that a Run started
STRATEGIES = ("ddp", "fsdp")
PROGRESS_DELAY = 1.0  # seconds before a bar appears: short fits stay silent


class Run:
    """Settings of all fits inside a ``with`` block: directory, device, processes, time limit, callbacks.

    Parameters
    ----------
    directory : path, optional
        Where checkpoints, ``config.json``, ``history.csv`` and ``model.safetensors`` go. One fit at a time can
        work in it, and what it holds of another fit is never overwritten.
    resume : bool, default=False
        Whether to go on from the last checkpoint in ``directory``, if there is one.
    device : str, default="auto"
        "auto" takes a GPU if there is one; otherwise "cpu", "cuda", "cuda:1", "mps". One that is not there is
        refused at once.
    precision : str, optional
        A Lightning Fabric precision such as "bf16-mixed"; by default the data's own.
    processes : int, default=1
        How many processes share the work; under ``torchrun`` its world is used. Layers that normalise over a batch see a
        process's own share of it.
    strategy : {"ddp", "fsdp"}, default="ddp"
        How several processes train a network. With "ddp" each of them holds the whole optimiser. With "fsdp" the optimiser
        is sharded: each process holds and updates one slice of the parameters (:mod:`corollary.engine.sharding`). The
        trained network is the same up to rounding.
    progress : bool, optional
        Whether to show a progress bar; by default on a terminal, after a second.
    time_limit : float, optional
        Seconds after which each fit stops, usable and resumable.
    checkpoint_every : float, default=10.0
        Seconds between two checkpoints; 0 writes one after every step.
    early_stopping : EarlyStopping, optional
        For learners that have no stopping rule of their own.
    callbacks : sequence of callable, default=()
        Each is called with an :class:`~corollary.engine.loop.Event` after every step; one that has a method
        ``begin(learner, owner)`` is told of every fit before its first.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        device: str = "auto",
        precision: str | None = None,
        processes: int = 1,
        strategy: str = "ddp",
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
        if strategy not in STRATEGIES:
            raise errors.unknown("Run", "strategy", str(strategy), STRATEGIES)
        if strategy == "fsdp" and precision not in (None, "bf16-mixed"):
            must, do = "strategy='fsdp' takes precision None or 'bf16-mixed'", "Or use strategy='ddp'."
            raise errors.value("Run", must, repr(precision), do)
        _check_device(device)
        _check_callbacks(callbacks)
        self.directory = None if directory is None else Path(directory)
        self.resume = resume
        self.requested_device = device
        self.precision = precision
        self.processes = processes
        self.strategy = strategy
        self.progress = progress
        self.time_limit = time_limit
        self.checkpoint_every = checkpoint_every
        self.early_stopping = early_stopping
        self.callbacks = tuple(callbacks)
        self.notes: dict[str, Any] = {}  # further entries of config.json
        self._fits = 0
        self._fabric: Any = None
        self._lock: Lock | None = None
        self._holders = 0
        self._stop_file: Path | None = None  # its existence asks a process that was started for a fit to end
        self._tokens: list[Token[Run | None]] = []

    def __enter__(self) -> Run:
        self._tokens.append(_current.set(self))
        self._fits = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._tokens.pop())
        self._release()

    # --- device and processes ----------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """The device to compute on, by name."""
        kind = self.requested_device
        if kind == "auto":
            import torch

            kind = "cuda" if torch.cuda.is_available() else "cpu"
        if kind == "cuda" and self.world > 1:  # one GPU for each process, as Fabric gives them out
            return f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        return kind

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
            from corollary.engine.fabric import make_fabric

            self._fabric = make_fabric(self)
        return self._fabric

    def sum(self, x: Any) -> Any:
        """Sum an array or tensor over the processes; the identity on one."""
        if self.world == 1:
            return x
        import torch

        total = self.fabric.all_reduce(torch.as_tensor(x).clone(), reduce_op="sum")
        if isinstance(x, torch.Tensor):
            return total.to(x.device)  # Fabric sums on the device of the run
        return total.cpu().numpy().reshape(getattr(x, "shape", ()))

    def shard(self, n: int) -> slice:
        """Return this process's share of ``n`` rows."""
        world = self.world
        if world == 1:
            return slice(0, n)
        size = -(-n // world)
        return slice(min(n, self.rank * size), min(n, (self.rank + 1) * size))

    def settings(self) -> dict[str, Any]:
        """Return the settings for a worker process; ``callbacks`` are called in this one."""
        names = (
            "directory",
            "resume",
            "precision",
            "processes",
            "strategy",
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

    @property
    def shards(self) -> bool:
        """Whether the optimiser's state of a network is divided among several processes."""
        return self.strategy == "fsdp" and (self.world > 1 or self.launches)

    def listen_to(self, path: Path) -> None:
        """Stop fits when a file appears; the process that started this one writes the signal's name into it."""
        self._stop_file = path

    def told_to_stop(self) -> str:
        """Return which signal reached the process that started this one, if any did."""
        if self._stop_file is None or not self._stop_file.exists():
            return ""
        return self._stop_file.read_text()

    # --- the directory -----------------------------------------------------------------------------------

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock of the directory; inside ``with run:`` until its end."""
        # a worker need not lock the directory: the process that started it does
        if self.directory is None or self.rank > 0 or _started_here():
            with self._watching():
                yield
            return
        if self._lock is None or self._lock.thread != threading.get_ident():
            self._lock = Lock(self.directory)
            tidy(self.directory)
        self._holders += 1
        try:
            with self._watching():
                yield
        finally:
            self._holders -= 1
            self._release()

    def _watching(self) -> AbstractContextManager[None]:
        return nullcontext() if self.time_limit is None else watching()

    def _release(self) -> None:
        if self._lock is not None and not self._holders and not self._tokens:
            self._lock.release()
            self._lock = None

    def next_fit(self, owner: str) -> int:
        """Count a fit of this run, and raise if it would take the place of other work in the directory."""
        self._fits += 1
        if self.directory is not None and self.rank == 0:
            refuse_to_overwrite(self.directory, self._fits, owner, self.resume)
        return self._fits

    def checkpoints(self, owner: str, fingerprint: State, fit: int) -> Checkpoints | None:
        """Return the store of a fit of this run: the k-th fit finds the k-th fit's checkpoints."""
        if self.directory is None:
            return None
        return Checkpoints(fit_folder(self.directory, fit, owner), owner, fingerprint, writes=self.rank == 0)

    def announce(self, estimator: Any) -> None:
        """Write ``config.json`` before the fit, so that an unfinished run can be recognised."""
        if self.directory is not None and self.rank == 0:
            try:
                self._write_config(estimator, None)
            except OSError as error:
                raise unwritable(self.directory, error) from error

    def record(self, estimator: Any) -> None:
        """Write the fitted model, its history and its configuration; if the disk is full, warn and keep the model in memory."""
        if self.directory is None or self.rank > 0:
            return
        try:
            io.save(estimator, self.directory / "model.safetensors")
            self._write_history(estimator.history_)
            self._write_config(estimator, estimator.stopped_)
        except OSError as error:
            text = (
                f"Run: the model could not be written to {str(self.directory)!r} ({error}). "
                "It is whole in memory: save it elsewhere, or make room and fit again with resume=True."
            )
            warnings.warn(text, errors.CorollaryWarning, stacklevel=4)

    def _write_config(self, estimator: Any, stopped: str | None) -> None:
        params = {
            key: value for key, value in estimator.get_params().items() if not hasattr(value, "get_params")
        }
        config: dict[str, Any] = {"model": type(estimator).__name__, "version": __version__, "params": params}
        config |= {"stopped": stopped, **self.notes}  # None: not ended yet
        text = json.dumps(config, indent=1, default=repr) + "\n"
        io.write_text(cast(Path, self.directory) / "config.json", text)

    def _write_history(self, rows: list[dict[str, float]]) -> None:
        names = list(dict.fromkeys(name for row in rows for name in row))
        page = StringIO(newline="")
        table = csv.DictWriter(page, names)
        table.writeheader()
        table.writerows(rows)
        io.write_text(cast(Path, self.directory) / "history.csv", page.getvalue())

    # --- progress ----------------------------------------------------------------------------------------

    @contextmanager
    def bar(
        self, owner: str, total: int | None, start: int, wanted: bool | None = None
    ) -> Iterator[Callable[[dict[str, float]], None]]:
        """Yield a function that shows one row of the history on a progress bar; ``Run.progress`` overrides ``wanted``."""
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


def _launched() -> bool:
    """Whether torchrun, or our own launcher in its manner, started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _started_here() -> bool:
    """Whether another process of ours started this one, and holds the directory for it."""
    return os.environ.get("TORCHELASTIC_RUN_ID") == LAUNCHER


def _check_callbacks(callbacks: Sequence[Any]) -> None:
    """Refuse what cannot be called with an event: a class where an instance is meant, or one callback alone."""
    must = "callbacks must be a sequence of functions of an event"
    if callable(callbacks):
        raise errors.kind("Run", must, repr(callbacks), "Write callbacks=[...] around it.")
    for callback in callbacks:
        if isinstance(callback, type):
            raise errors.kind("Run", must, f"the class {callback.__name__}", f"Write {callback.__name__}().")
        if not callable(callback):
            raise errors.kind("Run", must, repr(callback))


def _check_device(device: str) -> None:
    """Raise if a device is not there, or is none."""
    if device in ("auto", "cpu"):
        return
    import torch

    try:
        kind = torch.device(device).type
    except RuntimeError:
        do = 'Use "auto", "cpu", "cuda", "cuda:1" or "mps".'
        raise errors.value("Run", "device must be one that torch knows", repr(device), do) from None
    module = getattr(torch, kind, None) or getattr(torch.backends, kind, None)
    available = getattr(module, "is_available", None)
    number = torch.device(device).index or 0
    count = getattr(module, "device_count", lambda: number + 1)
    if available is not None and (not available() or number >= count()):
        got = f"{device!r}, and this machine has none"
        if available():
            got = f"{device!r}, and this machine has {count()} of that kind"
        raise errors.value(
            "Run", "device must be there", got, 'Use device="auto", which takes what there is.'
        )


def current() -> Run:
    """Return the surrounding run, or one with the defaults."""
    return _current.get() or Run()
