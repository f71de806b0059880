"""The training loop: the one loop that every fit goes through, classical or deep.

:func:`drive` calls ``step`` of a learner until the learner is done. The loop writes the history, shows the progress bar, calls
the callbacks, stops early, keeps to the time limit, writes checkpoints, resumes exactly, and ends cleanly on Ctrl-C.

The time limit is checked after every step, by a clock that stands while kernels are compiled (``engine/clock.py``). A
learner that can pause (``pauses = True``) also checks it within a step. For one that cannot, the next step is
left out if it would end more than ``GRACE`` seconds late, should it take as long as the last.
A fit inside a step of another fit has the limit of that one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corollary import errors, io
from corollary.engine.checkpoints import Checkpoints
from corollary.engine.clock import now
from corollary.engine.finite import LastFinite
from corollary.engine.interrupts import OutOfTime, Signals, listening, pause_wanted, time_box, time_left
from corollary.engine.learner import Learner, Metrics, State, gathered
from corollary.errors import CorollaryWarning, FitStopped

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = [  # those of `interrupts` too, where learners of other packages have found them
    "EarlyStopping",
    "Event",
    "Journal",
    "OutOfTime",
    "check_divisible",
    "drive",
    "listening",
    "pause_wanted",
    "time_box",
    "time_left",
]

DONE = "done"  # the learner converged, or its own budget is spent
FINAL = ("callback", "early stopping")  # verdicts: resuming does not go on
STOPS = ("Ctrl-C", "SIGTERM", "time limit")  # the fit could have gone on
REASONS = ("", *FINAL, *STOPS)
GRACE = 1.0  # seconds that a fit may end after its time limit, to finish a step


@dataclass(frozen=True)
class Event:
    """What a callback is called with after each step: step number, metrics, seconds, learner, name of the estimator.

    A callback that returns True stops the fit.
    """

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
    r"""Stop when a metric has not improved for a while, and go back to its best state.

    ``Training(early_stopping=True, patience=10)`` holds a part of the data out and watches its loss; with
    ``fit(..., validation=(X, y))`` it watches those data instead.

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

    Notes
    -----
    On a quadratic with Hessian :math:`Q \Lambda Q^\top` and minimum :math:`\theta^*`, :math:`t` gradient steps from zero give

    .. math:: \theta_t = Q\, [I - (I - \eta \Lambda)^t]\, Q^\top \theta^*. \tag{1}

    Weight decay :math:`\mu` gives :math:`Q\, \Lambda (\Lambda + \mu I)^{-1} Q^\top \theta^*`: the same for each curvature
    where :math:`(1 - \eta \lambda)^t = \mu / (\lambda + \mu)`, hence about :math:`t = 1 / (\eta \mu)` steps (2). To stop early
    is to decay weights, with the strength chosen by the held-out data.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from corollary import MLPClassifier, Training
    >>> X, y = load_iris(return_X_y=True)
    >>> plan = Training(epochs=500, learning_rate=0.02, early_stopping=True, patience=5)
    >>> model = MLPClassifier(training=plan, random_state=0).fit(X, y)
    >>> model.stopped_, len(model.history_) < 500
    ('early stopping', True)
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
    """The record of a fit: steps, seconds, history, best value, reason of the end. Saved with every checkpoint."""

    step: int = 0
    seconds: float = 0.0
    rows: list[dict[str, float]] = field(default_factory=list)
    best: float = -math.inf
    best_step: int = 0
    stopped: str = ""  # why the loop ended, once it has: one of REASONS
    unfinished: dict[str, float] = field(default_factory=dict)  # the row of a step that was left half-way

    def saved(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: a step left half-way will be finished, and has no row yet."""
        return {key: value for key, value in vars(self).items() if key != "unfinished"}

    def history(self) -> list[dict[str, float]]:
        """Return all rows, with that of a step left half-way."""
        return [*self.rows, self.unfinished] if self.unfinished else self.rows

    def leave_half_way(self, learner: Learner) -> None:
        """Write down what the learner can say of a step that it has not finished."""
        metrics = learner.unfinished() if hasattr(learner, "unfinished") else {}
        numbers = {key: float(value) for key, value in metrics.items()}
        self.unfinished = {"step": self.step + 1, **numbers, "seconds": self.seconds}

    def record(self, metrics: Metrics, seconds: float) -> dict[str, float]:
        """Add a row to the history."""
        self.step += 1
        row = {"step": self.step, **{key: float(value) for key, value in metrics.items()}, "seconds": seconds}
        self.rows.append(row)
        return row


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
    fit: int | None = None,
    since: float | None = None,
) -> Journal:
    """Step the learner until it is done, and return the journal of what happened.

    Parameters
    ----------
    learner : Learner
        What is stepped, in place. It ends in its final state.
    run : Run
        Where and how to run.
    owner : str
        Name of the estimator, used at the start of messages and in the names of directories.
    fingerprint : dict, optional
        Parameters and a hash of the data; a checkpoint with other ones is refused.
    stopping : EarlyStopping, optional
        When to stop before the learner is done; ``run.early_stopping`` is the default.
    total : int, optional
        The number of steps if known, for the progress bar.
    notify : callable, optional
        Told every :class:`Event`; returns True to stop.
    progress : bool, optional
        Whether to show a bar, where the run does not say.
    fit : int, optional
        Which fit of the run this is, if ``run.next_fit`` has been asked already.
    since : float, optional
        When the fit began, by ``engine.clock``: preparing the data counts towards the time limit.
    """
    check_divisible(learner, run, owner, run.world)
    with run.hold():
        store = run.checkpoints(owner, fingerprint or {}, run.next_fit(owner) if fit is None else fit)
        journal, best = _resumed(learner, store, run) if store and run.resume else (Journal(), None)
        if learner.done or journal.stopped in FINAL:
            return _finish(learner, journal, best, stopping or run.early_stopping)
        loop = _Loop(learner, run, owner, journal, best, stopping or run.early_stopping, store)
        told = (*run.callbacks, *((notify,) if notify else ()))
        for call in told:
            if hasattr(call, "begin"):
                call.begin(learner, owner)
        with listening(run) as signals, run.bar(owner, total, journal.step, progress) as bar:
            loop.go(signals, bar, told, now() if since is None else since)
    return _finish(learner, journal, loop.best, stopping or run.early_stopping)


def check_divisible(learner: Learner, run: Run, owner: str, processes: int) -> None:
    """Raise unless so many processes can share the learner's work by the run's strategy."""
    if processes > 1 and not getattr(learner, "shares", True):
        raise errors.undivided(owner, processes)
    if processes > 1 and run.strategy == "fsdp" and not hasattr(learner, "gathered"):
        must = "strategy='fsdp' shards the optimiser of a model that is trained by gradients"
        do = "Use strategy='ddp', with which the processes share the data."
        raise errors.value(owner, must, "a model without one", do)


class _Loop:
    """One running fit: the learner, its journal and best state, and the store of its checkpoints."""

    def __init__(
        self,
        learner: Learner,
        run: Run,
        owner: str,
        journal: Journal,
        best: State | None,
        stopping: EarlyStopping | None,
        store: Checkpoints | None,
    ) -> None:
        self.learner, self.run, self.owner = learner, run, owner
        self.journal, self.best, self.stopping = journal, best, stopping
        self.store = store
        self.finite = LastFinite(learner)
        self.lasts = 0.0  # seconds that the last step took, of a learner that cannot pause inside one
        self.failed = ""  # why the last checkpoint could not be written

    def go(self, signals: Signals, bar: Any, told: Sequence[Any], since: float) -> None:
        """Step until the learner is done or something asks for an end; then keep what there is."""
        run, journal = self.run, self.journal
        begin = now() - journal.seconds
        if run.time_limit is not None:
            signals.deadline = min(signals.deadline, since + run.time_limit)
        self._schedule(signals)
        journal.stopped, metrics, before = "", None, journal.seconds
        while not self.learner.done and not journal.stopped:
            metrics = self.finite.step(self.owner, journal.step + 1)
            journal.seconds = now() - begin
            if not getattr(self.learner, "pauses", False):
                self.lasts, before = journal.seconds - before, journal.seconds
            asked = ""
            if metrics is not None:
                row = journal.record(metrics, journal.seconds)
                bar(row)
                self.best = _improve(self.learner, journal, self.best, self.stopping)
                event = Event(journal.step, row, journal.seconds, self.learner, self.owner)
                asked = (
                    "callback" if any([call(event) for call in told]) else _exhausted(journal, self.stopping)
                )
            journal.stopped, due = self._agreed(signals, asked)
            if due and not self.learner.done and not journal.stopped:
                self.keep()
                self._schedule(signals)
        if self.learner.done and journal.stopped in STOPS:
            journal.stopped = ""  # a signal or a limit after the last step ends nothing
        journal.stopped = journal.stopped or DONE
        self.keep()
        if metrics is None:
            journal.leave_half_way(self.learner)
        if self.failed:
            warnings.warn(_unkept(self.owner, run, self.failed), CorollaryWarning, stacklevel=4)
        if journal.stopped in STOPS:
            warnings.warn(_how_to_go_on(self.owner, journal, run), FitStopped, stacklevel=4)

    def _schedule(self, signals: Signals) -> None:
        signals.checkpoint_due = now() + self.run.checkpoint_every if self.store else math.inf

    def _agreed(self, signals: Signals, asked: str) -> tuple[str, bool]:
        """Return why to stop, and whether a checkpoint is due: the first process says so for all of them."""
        heard, time = signals.heard(), now()
        over = time >= signals.deadline or time + self.lasts > signals.deadline + GRACE
        reason = asked or heard or ("time limit" if over else "")
        due = time >= signals.checkpoint_due
        if self.run.world == 1:
            return reason, due
        if self.run.rank > 0:  # the first process decides; only a signal may come to any of them
            reason, due = heard, False
        votes = np.zeros(len(REASONS) + 1)
        votes[REASONS.index(reason)], votes[-1] = 1.0, float(due)
        votes = self.run.sum(votes)
        return next((name for name, n in zip(REASONS[1:], votes[1:-1]) if n > 0), ""), bool(votes[-1] > 0)

    def keep(self) -> None:
        """Write a checkpoint; one that cannot be written is tried again when the next is due."""
        if self.store is None:
            return
        best = None if self.best is None else gathered(self.learner, self.best)
        last = gathered(self.learner, self.learner.state())
        state = {"learner": last, "journal": self.journal.saved(), "best": best}
        try:
            self.store.write(state)
        except (OSError, MemoryError) as error:
            if not self.failed:
                text = f"Run: no checkpoint of {self.owner} could be written ({error}). The fit goes on and tries again."
                warnings.warn(text, CorollaryWarning, stacklevel=5)
            self.failed = str(error)
        else:
            self.failed = ""


def _resumed(learner: Learner, store: Checkpoints, run: Run) -> tuple[Journal, State | None]:
    """Put the learner where the newest usable checkpoint was; return its journal and its best state.

    A checkpoint that is damaged in any way is set aside, and the one before it is tried. The first process
    tries; the others take the one that it took.
    """
    names = (store.current, store.previous)
    if run.rank > 0:
        chosen = int(run.sum(np.array(0.0)))
        return _taken(learner, store, names[chosen]) if chosen < len(names) else (Journal(), None)
    fresh, found = learner.state(), store.found()
    for path in found:
        try:
            result = _taken(learner, store, path)
        except (io.NewerFile, errors.OtherFit, MemoryError):
            raise
        except Exception as error:
            learner.restore(fresh)
            aside = store.set_aside(path)
            then = (
                "Trying the one before it." if path != found[-1] else "No other is left: the fit starts anew."
            )
            text = f"Run: the checkpoint {path} cannot be used ({error}); it is kept as {aside.name}. {then}"
            warnings.warn(text, CorollaryWarning, stacklevel=4)
        else:
            run.sum(np.array(float(names.index(path))))
            return result
    run.sum(np.array(float(len(names))))
    return Journal(), None


def _taken(learner: Learner, store: Checkpoints, path: Path) -> tuple[Journal, State | None]:
    saved = store.read(path)
    journal, best = Journal(**saved["journal"]), saved["best"]
    learner.restore(saved["learner"])
    return journal, best


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


def _finish(
    learner: Learner, journal: Journal, best: State | None, stopping: EarlyStopping | None
) -> Journal:
    if stopping is not None and best is not None:
        learner.restore(best)
    return journal


def _how_to_go_on(owner: str, journal: Journal, run: Run) -> str:
    part = " and part of the next" if journal.unfinished else ""
    text = f"{owner}: stopped by {journal.stopped} after {journal.step} steps{part}; the model so far is usable. "
    if run.directory is None:
        return text + 'To be able to go on, fit inside `with corollary.Run("some/directory"):`.'
    return text + f'To go on, fit again inside `with corollary.Run("{run.directory}", resume=True):`.'


def _unkept(owner: str, run: Run, why: str) -> str:
    return (
        f"Run: the last state of {owner} could not be written to {str(run.directory)!r} ({why}). "
        "The fitted model is whole in memory: save it elsewhere."
    )
