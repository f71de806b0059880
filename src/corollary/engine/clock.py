"""The clock of time limits. It stands still while its thread compiles or loads kernels, or imports modules.

Both happen once in a process, at the first use: a limit that counted them would leave the first fit fewer steps than the
second. Numba tells of its compilations; imports are seen at the function that finds and loads what is not yet in
``sys.modules``, which is replaced only inside :func:`watching`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import _bootstrap as _importing
from time import monotonic
from typing import Any, NamedTuple

__all__ = ["now", "stands", "watching"]

COMPILER = "numba:compiler_lock"  # held while a kernel is compiled, or read from the disk


class _State(NamedTuple):
    stops: int = 0  # how many compilations and imports are under way
    since: float = 0.0  # when the first of them began
    lost: float = 0.0  # seconds that the clock has stood


class _Thread(threading.local):
    """Each thread has a clock: what another one imports, or waits for to be compiled, is not its own work."""

    state = _State()


_machinery: Any = _importing
_thread = _Thread()
_lock = threading.RLock()
_watchers, _listens = 0, False


def now() -> float:
    """Return the seconds of ``time.monotonic`` without those in which this thread has compiled or imported something."""
    stops, since, lost = _thread.state
    return (since if stops else monotonic()) - lost


def stands() -> bool:
    """Whether the clock of this thread stands still."""
    return _thread.state.stops > 0


def _turn(stops: int) -> None:
    """Let so many stops be under way. The state is replaced whole, as a signal's handler may read it at any moment."""
    before, since, lost = _thread.state
    time = monotonic()
    _thread.state = _State(
        stops, since if before and stops else time, lost + (time - since if before and not stops else 0.0)
    )


def _stop(event: Any = None) -> None:
    _turn(_thread.state.stops + 1)


def _go(event: Any = None) -> None:
    if _thread.state.stops:  # else the end of a compilation that had begun before anybody listened
        _turn(_thread.state.stops - 1)


@contextmanager
def watching() -> Iterator[None]:
    """Let the clock stand for imports and compilations inside the block.

    It goes at the start of the block, also where the block is a part of a module that is being imported, or where an
    interrupted compilation never told of its end.
    """
    global _watchers
    around = _thread.state.stops
    _turn(0)
    with _lock:
        if not _watchers:
            _listen()
            _machinery._find_and_load = _imported
        _watchers += 1
    try:
        yield
    finally:
        with _lock:
            _watchers -= 1
            if not _watchers:
                _machinery._find_and_load = _find_and_load
        _turn(around)


_find_and_load = _machinery._find_and_load  # what an import statement calls for a module that is new


def _imported(*given: Any) -> Any:
    before = _thread.state.stops
    try:
        _stop()
        return _find_and_load(*given)
    finally:
        if not before:
            _listen()
        _turn(before)


def _listen() -> None:
    """Hear of numba's compilations from now on, if anybody has imported numba."""
    global _listens
    event = sys.modules.get("numba.core.event")
    if _listens or not hasattr(event, "register"):
        return

    class Compilation(event.Listener):  # type: ignore[name-defined, misc, union-attr]
        on_start, on_end = staticmethod(_stop), staticmethod(_go)

    event.register(COMPILER, Compilation())  # type: ignore[union-attr]
    _listens = True
