"""What ends a fit early: Ctrl-C, SIGTERM and the time limit; and a time limit for any block of code.

The loop listens for signals (:func:`listening`) and looks at the clock after every step; a learner with long steps asks
:func:`pause_wanted` within a step.
"""

from __future__ import annotations

import gc
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from corollary.engine.clock import now, stands, watching

if TYPE_CHECKING:
    from corollary.engine.run import Run

__all__ = ["OutOfTime", "Signals", "listening", "pause_wanted", "time_box", "time_left"]

SIGNALS: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Signals:
    """Requests to stop or pause: signals, the time limit, a checkpoint that is due. A learner may ask within a step."""

    def __init__(self, run: Run, around: Signals | None = None) -> None:
        self.run = run
        self.around = around  # those of the fit that this one is a part of
        self.interrupted = ""  # "Ctrl-C" or "SIGTERM"
        self.deadline: float = math.inf if around is None else around.deadline
        self.checkpoint_due = math.inf

    def heard(self) -> str:
        """Return the signal that asked for an end ("Ctrl-C", "SIGTERM"), here or in the process that started this one."""
        return self.interrupted or self.run.told_to_stop() or (self.around.heard() if self.around else "")

    def pause(self, together: bool, checkpoint: bool) -> bool:
        """Whether to pause now, as :func:`pause_wanted` says."""
        heard = bool(self.heard())
        wanted = heard or now() >= (min(self.deadline, self.checkpoint_due) if checkpoint else self.deadline)
        if self.run.world == 1:
            return wanted
        return together and bool(self.run.sum(np.array(float(heard or (wanted and self.run.rank == 0)))) > 0)


_signals: ContextVar[Signals | None] = ContextVar("corollary_signals", default=None)


def pause_wanted(together: bool = False, checkpoint: bool = True) -> bool:
    """Whether a long step should pause half-way and return ``None``: on a signal, at the time limit, for a checkpoint.

    Several processes must pause at the same place. With ``together=True`` the first process decides for all, so all of them
    must ask equally often; without it several processes never pause. With ``checkpoint=False`` no pause is made for a
    checkpoint, for work that would have to start again after a pause.
    """
    signals = _signals.get()
    return signals is not None and signals.pause(together, checkpoint)


def time_left() -> float | None:
    """Return the seconds that are left until the time limit of the current fit; None if it has none."""
    signals = _signals.get()
    return None if signals is None or signals.deadline == math.inf else max(0.0, signals.deadline - now())


@contextmanager
def listening(run: Run) -> Iterator[Signals]:
    """Handle Ctrl-C and SIGTERM: the first asks the fit to stop after its step, a second one of a kind ends it at once."""
    signals = Signals(run, _signals.get())

    def on_signal(number: int, frame: FrameType | None) -> None:
        name = SIGNALS[number]
        if signals.interrupted == name:
            if number == signal.SIGTERM:
                raise SystemExit(128 + number)
            raise KeyboardInterrupt
        signals.interrupted = signals.interrupted or name

    token = _signals.set(signals)
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {
            number: handler
            for number in SIGNALS
            if (handler := signal.getsignal(number)) in (signal.default_int_handler, signal.SIG_DFL)
        }
    for number in before:
        signal.signal(number, on_signal)
    try:
        yield signals
    finally:
        _signals.reset(token)
        for number, handler in before.items():
            signal.signal(number, handler)


_until = math.inf  # when the innermost time box of the main thread ends


class OutOfTime(BaseException):
    """Raised by :func:`time_box` when the time is up. Like KeyboardInterrupt, ``except Exception`` does not catch it."""


@contextmanager
def time_box(
    seconds: float | None,
    error: type[BaseException] = OutOfTime,
    unless: Callable[[FrameType | None], bool] | None = None,
) -> Iterator[None]:
    """Limit the time of a block: raise ``error`` inside it once ``seconds`` have passed.

    For work that can be dropped, such as measures and plots; a fit has a time limit of its own. It needs SIGALRM and the main
    thread; elsewhere the block simply runs to its end. Blocks may be nested. The clock stands while
    something is compiled or imported (:mod:`corollary.engine.clock`). While ``unless(frame)`` is true, the error waits for
    another half second.
    """
    if (
        seconds is None
        or not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    global _until
    begin, outer, over, collecting = now(), _until, False, False
    _until = until = min(begin + seconds, outer)

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal collecting
        collecting = phase == "start"

    def ring(number: int, frame: FrameType | None) -> None:
        waits = collecting or stands() or _is_lost(frame) or (unless is not None and unless(frame))
        if not over and not waits and now() >= until - 1e-3:
            raise error(f"it took more than {seconds:.1f} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    left, again = signal.getitimer(signal.ITIMER_REAL)
    gc.callbacks.append(note)
    try:
        # it rings again every half second, for what runs where an exception would be lost, and for time that stood
        signal.setitimer(signal.ITIMER_REAL, max(until - begin, 1e-3), 0.5)
        with watching():
            yield
    finally:
        over, _until = True, outer
        gc.callbacks.remove(note)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:  # the alarm of a box around this one, or of somebody else
            rest = left + begin if outer == math.inf else outer
            signal.setitimer(signal.ITIMER_REAL, max(rest - now(), 1e-3), again or 0.5)


def _is_lost(frame: FrameType | None) -> bool:
    """Return whether Python would drop an exception raised here: in a finaliser or a callback of the garbage collector.

    Callbacks of weak references cannot be told by their frames; those that run in a collection wait for its end.
    """
    callbacks = [getattr(callback, "__code__", None) for callback in gc.callbacks]
    while frame is not None:
        if frame.f_code.co_name == "__del__" or frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False
