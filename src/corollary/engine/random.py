"""Random number generators of a fit, for every device and thread; the global ones are left as they were.

What takes a ``torch.Generator`` gets a local one. torch's initialisers and dropout take none: they draw from the global
generators, one per device. A :class:`Stream` is a state of those that takes their place while a module is called. A lock
makes sure that only one thread draws at a time; the states are exchanged only when another stream has drawn in between, so a
fit that is alone pays for one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

__all__ = ["Stream", "generator", "seeded"]

States = dict[str, Tensor]

_lock = threading.RLock()
_in_use = 0  # how many streams are being drawn from
_before: States = {}  # what the global generators were before the first of them
_owner: Stream | None = None  # whose state the global generators hold


def _devices(device: Any = "cpu") -> list[str]:
    """Return the devices whose generators a fit on ``device`` draws from."""
    kind = torch.device(device).type
    return ["cpu"] if kind in ("cpu", "meta") else ["cpu", str(device)]


def _get(devices: Any) -> States:
    states = {}
    for name in devices:
        kind = torch.device(name).type
        if kind == "cpu":
            states[name] = torch.get_rng_state()
        else:
            place = () if kind == "mps" else (name,)
            states[name] = torch.get_device_module(kind).get_rng_state(*place)
    return states


def _set(states: States) -> None:
    for name, state in states.items():
        kind = torch.device(name).type
        if kind == "cpu":
            torch.set_rng_state(state)
        else:
            place = () if kind == "mps" else (name,)
            torch.get_device_module(kind).set_rng_state(state, *place)


def _seed(devices: list[str], seed: int) -> None:
    # torch.manual_seed would also keep a stack trace for every kind of device that is not there.
    torch.default_generator.manual_seed(seed)
    for name in devices[1:]:
        kind = torch.device(name).type
        if kind == "mps":
            torch.mps.manual_seed(seed)
        else:
            with torch.device(name):
                torch.get_device_module(kind).manual_seed(seed)


@contextmanager
def seeded(seed: int, device: Any = "cpu") -> Iterator[None]:
    """Draw from torch's global generators from a seed on, alone, and leave them as they were."""
    devices = _devices(device)
    with _lock:
        kept = _get(devices)
        _seed(devices, seed)
        try:
            yield
        finally:
            _set(kept)


def generator(seed: int, device: Any = "cpu") -> torch.Generator:
    """Return a local generator on a device."""
    return torch.Generator(_devices(device)[-1]).manual_seed(seed)


class Stream:
    """A stream of random numbers for what draws from torch's global generators.

    ``with stream.open():`` surrounds its use, and gives the global generators back in the end; ``with stream:`` surrounds
    each piece of work that draws.

    Parameters
    ----------
    seed : int
        Where it begins.
    device : str or torch.device, default="cpu"
        Where the work is done; the processor's generator is always part of the stream.
    """

    def __init__(self, seed: int, device: Any = "cpu") -> None:
        self.devices = _devices(device)
        with seeded(seed, device):
            self.states = _get(self.devices)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let the stream take over the global generators, which are put back when no stream is open."""
        global _in_use, _owner
        with _lock:
            _in_use += 1
            _before.update(_get([name for name in self.devices if name not in _before]))
        try:
            yield
        finally:
            with _lock:
                if _owner is self:
                    self.states, _owner = _get(self.devices), None
                _in_use -= 1
                if not _in_use:
                    _set(_before)
                    _before.clear()

    def __enter__(self) -> Stream:
        global _owner
        _lock.acquire()
        if _owner is not self:
            if _owner is not None:
                _owner.states = _get(_owner.devices)
            _set(self.states)
            _owner = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _lock.release()

    def now(self) -> States:
        """Return copies of the states as they are at this moment."""
        with _lock:
            return _get(self.devices) if _owner is self else {k: v.clone() for k, v in self.states.items()}

    def go(self, states: States) -> None:
        """Go to states that :meth:`now` has returned."""
        global _owner
        with _lock:
            self.states = {name: state.clone() for name, state in states.items()}
            if _owner is self:
                _owner = None
