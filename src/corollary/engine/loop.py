"""The driver: the one loop that every fit goes through.

``drive`` steps a learner until it is done, and gives it what no learner should have to
write: a history, a progress bar, callbacks, early stopping, a time limit, checkpoints,
exact resume, and a clean end on Ctrl-C.
"""

from __future__ import annotations

import math
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from corollary.engine.learner import Learner, Metrics, State
from corollary.errors import CorollaryWarning, Diverged

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = ["EarlyStopping", "Event", "Journal", "drive", "pause_wanted"]


@dataclass(frozen=True)
class Event:
    """What a callback is told after each step; it returns True to stop the fit."""

    step: int
    metrics: Metrics
    seconds: float
    learner: Learner
    owner: str

    @property
    def module_(self) -> Any:
        """The torch module in training, where there is one."""
        return getattr(self.learner, "module", None)

    @property
    def optimizer(self) -> Any:
        """Its optimiser, where there is one."""
        return getattr(self.learner, "optimizer", None)


@dataclass(frozen=True)
class EarlyStopping:
    """Stop when a metric has not improved for a while, and go back to its best state.

    Parameters
    ----------
    metric : str
        The column of ``history_`` to watch, for instance ``"validation_loss"``.
    patience : int, default=10
        Steps without an improvement before the fit stops.
    min_delta : float, default=0.0
        A change smaller than this is no improvement.
    mode : {"auto", "min", "max"}, default="auto"
        Which way is better; "auto" takes scores, accuracies and likelihoods as
        better when larger, everything else as better when smaller.
    restore_best : bool, default=True
        Whether the model keeps the best state rather than the last one.
    """

    metric: str
    patience: int = 10
    min_delta: float = 0.0
    mode: str = "auto"
    restore_best: bool = True

    def sign(self) -> float:
        """Return +1 if larger is better, else -1."""
        if self.mode != "auto":
            return 1.0 if self.mode == "max" else -1.0
        larger = ("accuracy", "score", "likelihood", "elbo", "lower_bound", "log_prob")
        return 1.0 if any(word in self.metric for word in larger) else -1.0


@dataclass
class Journal:
    """What the loop itself remembers between steps; saved with every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    rows: list[dict[str, float]] = field(default_factory=list)
    best: float = -math.inf
    best_step: int = 0
    stopped: str = ""  # why the loop ended, once it has

    def record(self, metrics: Metrics, seconds: float) -> dict[str, float]:
        """Add a row to the history."""
        self.step += 1
        row = {"step": self.step, **{key: float(value) for key, value in metrics.items()}, "seconds": seconds}
        self.rows.append(row)
        return row


class _Signals:
    """Whether the loop should stop or pause, as the learner may ask in the middle of a step."""

    def __init__(self) -> None:
        self.interrupted = False
        self.deadline = math.inf
        self.checkpoint_due = math.inf
        self.alone = True  # several processes must stop at the same step, so none pauses inside one

    def pause(self) -> bool:
        return self.alone and (self.interrupted or monotonic() >= min(self.deadline, self.checkpoint_due))


_signals: ContextVar[_Signals | None] = ContextVar("corollary_signals", default=None)


def pause_wanted() -> bool:
    """Whether a long step should stop half-way and return ``None``: Ctrl-C, time is up, checkpoint due."""
    signals = _signals.get()
    return signals is not None and signals.pause()


@contextmanager
def _listening() -> Iterator[_Signals]:
    """Turn the first Ctrl-C into a polite request; the second one interrupts as usual."""
    signals = _Signals()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if signals.interrupted:
            raise KeyboardInterrupt
        signals.interrupted = True

    token = _signals.set(signals)
    main = threading.current_thread() is threading.main_thread()
    previous = signal.getsignal(signal.SIGINT) if main else None
    ours = previous is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield signals
    finally:
        _signals.reset(token)
        if ours:
            signal.signal(signal.SIGINT, previous)


def drive(
    learner: Learner,
    run: Run,
    *,
    owner: str,
    fingerprint: State | None = None,
    stopping: EarlyStopping | None = None,
    total: int | None = None,
    notify: Callable[[Event], bool] | None = None,
    progress: bool | None = None,
) -> Journal:
    """Step the learner until it is done, and return the journal of what happened.

    Parameters
    ----------
    learner : Learner
        What learns. It ends in its final state.
    run : Run
        Where and how to run.
    owner : str
        The estimator's name, for messages and directories.
    fingerprint : dict, optional
        What must be equal in a checkpoint for it to be resumed.
    stopping : EarlyStopping, optional
        When to stop before the learner is done; ``run.early_stopping`` is the default.
    total : int, optional
        The number of steps if known, for the progress bar.
    notify : callable, optional
        Told every :class:`Event`; returns True to stop.
    progress : bool, optional
        Whether to show a bar, where the run does not say.
    """
    stopping = stopping or run.early_stopping
    store = run.checkpoints(owner, fingerprint or {})
    journal, best = Journal(), None
    saved = store.latest() if store and run.resume else None
    if saved:
        learner.restore(saved["learner"])
        journal, best = Journal(**saved["journal"]), saved["best"]
    if learner.done or journal.stopped in ("early stopping", "callback"):
        return _finish(learner, journal, best, stopping)

    def keep() -> None:
        if store:
            store.write({"learner": learner.state(), "journal": vars(journal), "best": best})

    with _listening() as signals, run.bar(owner, total, journal.step, progress) as bar:
        begin = monotonic() - journal.seconds
        signals.alone = run.world == 1
        signals.deadline = monotonic() + run.time_limit if run.time_limit is not None else math.inf
        signals.checkpoint_due = monotonic() + run.checkpoint_every if store else math.inf
        journal.stopped = ""
        while not learner.done and not journal.stopped:
            metrics = _step(learner, owner, journal)
            journal.seconds = monotonic() - begin
            if metrics is not None:
                row = journal.record(metrics, journal.seconds)
                bar(row)
                best = _improve(learner, journal, best, stopping)
                event = Event(journal.step, row, journal.seconds, learner, owner)
                calls = [call(event) for call in (*run.callbacks, *((notify,) if notify else ()))]
                journal.stopped = "callback" if any(calls) else _exhausted(journal, stopping)
            journal.stopped = journal.stopped or _ended(signals, run)
            if monotonic() >= signals.checkpoint_due and not learner.done and not journal.stopped:
                keep()
                signals.checkpoint_due = monotonic() + run.checkpoint_every
        keep()
    if journal.stopped in ("Ctrl-C", "time limit"):
        warnings.warn(_how_to_go_on(owner, journal, run), CorollaryWarning, stacklevel=2)
    return _finish(learner, journal, best, stopping)


def _step(learner: Learner, owner: str, journal: Journal) -> Metrics | None:
    """Make one step; if it diverges, the last finite state comes back before the error is raised."""
    good = learner.state() if getattr(learner, "can_diverge", True) else None
    try:
        metrics = learner.step()
        for key, value in (metrics or {}).items():
            if not math.isfinite(value):
                raise Diverged(
                    f"{owner}: {key} must stay finite; got {value} at step {journal.step + 1}. "
                    "Scale the data or raise the regularisation; the last finite state is kept."
                )
    except Diverged:
        if good is not None:
            learner.restore(good)
        raise
    return metrics


def _improve(
    learner: Learner, journal: Journal, best: State | None, stopping: EarlyStopping | None
) -> State | None:
    if stopping is None:
        return best
    row = journal.rows[-1]
    if stopping.metric not in row:
        choices = ", ".join(sorted(set(row) - {"step", "seconds"})) or "none"
        raise ValueError(
            f"EarlyStopping: no metric named {stopping.metric!r} in the history; it has {choices}."
        )
    score = stopping.sign() * row[stopping.metric]
    if score > journal.best + stopping.min_delta:
        journal.best, journal.best_step = score, journal.step
        return learner.state() if stopping.restore_best else None
    return best


def _exhausted(journal: Journal, stopping: EarlyStopping | None) -> str:
    over = stopping is not None and journal.step - journal.best_step >= stopping.patience
    return "early stopping" if over else ""


def _ended(signals: _Signals, run: Run) -> str:
    if run.sum(np.array(float(signals.interrupted))) > 0:
        return "Ctrl-C"
    return "time limit" if run.sum(np.array(float(monotonic() >= signals.deadline))) > 0 else ""


def _finish(
    learner: Learner, journal: Journal, best: State | None, stopping: EarlyStopping | None
) -> Journal:
    if stopping is not None and best is not None:
        learner.restore(best)
    return journal


def _how_to_go_on(owner: str, journal: Journal, run: Run) -> str:
    text = f"{owner}: stopped by {journal.stopped} after {journal.step} steps; the model so far is usable. "
    if run.directory is None:
        return text + 'To be able to go on, fit inside `with corollary.Run("some/directory"):`.'
    return text + f'To go on, fit again inside `with corollary.Run("{run.directory}", resume=True):`.'
