"""Checkpoint files of one fit: the last two checkpoints, and append-only files for draws and history.

A checkpoint is one safetensors file. The last two are kept, and both are complete at every moment. Data that only grow (a
sampler's :class:`~corollary.engine.draws.Draws`, the history in blocks) are appended to a file of their own, and the
checkpoint says how much of that file belongs to it. Each block of such a file carries a hash of its content and of the block
before. Bytes after the last block that a checkpoint knows are cut off.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corollary import errors, io
from corollary.engine.draws import Draws, Mark
from corollary.engine.learner import State

__all__ = ["Checkpoints", "plain", "set_aside"]

HISTORY_BLOCK = 256  # rows of the history that are appended at once; the rest stands in the checkpoint
HEADER = struct.Struct("<Q16s")  # the length of a block's content, and the hash of it and all before it


class Checkpoints:
    """The last two checkpoints of one fit.

    Parameters
    ----------
    folder : Path
        Where they are.
    owner : str
        The estimator's name.
    fingerprint : dict
        Parameters and a hash of the data; a checkpoint with other ones is refused.
    writes : bool, default=True
        Whether this process is the one that writes.
    """

    def __init__(self, folder: Path, owner: str, fingerprint: State, writes: bool = True) -> None:
        self.folder = folder
        self.current = folder / "checkpoint.safetensors"
        self.previous = folder / "previous.safetensors"
        self.owner = owner
        self.fingerprint = fingerprint
        self.writes = writes
        self.parts = Parts(folder)

    def found(self) -> list[Path]:
        """Return the checkpoints that are there, newest first, whatever they are."""
        return [path for path in (self.current, self.previous) if os.path.lexists(path)]

    def write(self, state: State) -> None:
        """Keep the last checkpoint under another name and put the new one in its place."""
        if not self.writes:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        state = dict(_map(state, self._appended))
        journal = dict(state["journal"])
        rows = journal.pop("rows", [])
        full = len(rows) - len(rows) % HISTORY_BLOCK
        self.parts.append("history", full, lambda begin: json.dumps(rows[begin:full]).encode())
        state["journal"] = {**journal, "rows": rows[full:]}
        document = {"fingerprint": self.fingerprint, "parts": self.parts.written(), **state}
        fresh = io.write(self.folder / "fresh.safetensors", document, "checkpoint")
        if self.current.exists():
            os.replace(self.current, self.previous)
        os.replace(fresh, self.current)

    def read(self, path: Path) -> State:
        """Return a checkpoint with all its parts; raise :class:`~corollary.io.FileError` if it is damaged.

        One of another fit raises :class:`~corollary.errors.OtherFit`, one of a newer version ``NewerFile``:
        neither is damaged, so neither may be replaced.
        """
        if not path.is_file():
            raise io.FileError(f"load: {path.name} is not a file.")
        state: State = io.read(path, "checkpoint")
        try:
            fingerprint, parts = state.pop("fingerprint"), Parts(self.folder, state.pop("parts"))
            rows = [row for block in parts.blocks("history") for row in json.loads(block)]
            state["journal"]["rows"] = rows + state["journal"]["rows"]
            state = dict(_map(state, parts.marked))
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise io.FileError(f"load: {path.name} lacks a part of itself ({error}).") from error
        self._match(fingerprint)
        self.parts = parts
        return state

    def set_aside(self, path: Path) -> Path:
        """Give a damaged checkpoint another name, so that nothing replaces it."""
        return set_aside(path)

    def _appended(self, value: Any) -> Any:
        """Append new draws to their file; return the reference to them that a checkpoint keeps."""
        if not isinstance(value, Mark):
            return value
        draws = value.draws
        self.parts.append(f"draws_{draws.name}", value.length, lambda begin: value.array(begin).tobytes())
        return {
            "append-only": draws.name,
            "length": value.length,
            "shape": draws.shape,
            "dtype": draws.dtype.str,
        }

    def _match(self, kept: State) -> None:
        for key in sorted({*kept, *self.fingerprint}):
            if kept.get(key) != self.fingerprint.get(key):
                must = f"a resumed fit must have {key}={kept.get(key)!r} as in {self.folder}"
                got = f"{key}={self.fingerprint.get(key)!r}"
                do = "Use the same model and data, or another directory."
                raise errors.OtherFit(errors.wording("Run", must, got, do))


def set_aside(path: Path) -> Path:
    """Rename a file, whatever it is, to the first free name ``kept-N-…`` beside it."""
    number = 1
    while os.path.lexists(aside := path.with_name(f"kept-{number}-{path.name}")):
        number += 1
    os.rename(path, aside)
    return aside


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a state with every node changed; arrays are not looked into."""
    value = change(value)
    if isinstance(value, dict):
        return {key: _map(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_map(part, change) for part in value)
    return value


def plain(state: State) -> State:
    """Return a state with arrays in the place of marks, to be written whole."""
    return dict(_map(state, lambda value: value.array() if isinstance(value, Mark) else value))


class Written(NamedTuple):
    """How much of an append-only file is known: entries, bytes, and the hash of all of them."""

    entries: int = 0
    size: int = 0
    chain: bytes = bytes(16)


class Parts:
    """Append-only files of a folder, as far as one checkpoint knows them."""

    def __init__(self, folder: Path, known: State | None = None) -> None:
        self.folder = folder
        self.known = {
            name: Written(int(entries), int(size), bytes.fromhex(chain))
            for name, (entries, size, chain) in (known or {}).items()
        }
        if any(not name.replace("_", "").isalnum() for name in self.known):
            raise ValueError(f"names of parts must be words; got {sorted(self.known)}")

    def written(self) -> State:
        """Return the lengths and hashes of the files, which a checkpoint keeps."""
        return {name: (each.entries, each.size, each.chain.hex()) for name, each in self.known.items()}

    def path(self, name: str) -> Path:
        """Return the file of a part."""
        return self.folder / f"{name}.part"

    def append(self, name: str, entries: int, content: Callable[[int], bytes]) -> None:
        """Append entries from the last known one on; ``content(begin)`` are their bytes."""
        before = self.known.get(name, Written())
        if entries <= before.entries:
            return
        block = content(before.entries)
        chain = _chain(before.chain, block)
        handle = os.open(self.path(name), os.O_RDWR | os.O_CREAT, 0o644)
        with open(handle, "r+b") as file:
            file.truncate(before.size)  # an append that was cut short, or what another checkpoint knew
            file.seek(before.size)
            file.write(HEADER.pack(len(block), chain) + block)
            file.flush()
            os.fsync(file.fileno())
        self.known[name] = Written(entries, before.size + HEADER.size + len(block), chain)

    def blocks(self, name: str) -> Iterator[bytes]:
        """Yield the content of each known block; raise if one is not what was written."""
        known, chain, at = self.known.get(name, Written()), bytes(16), 0
        if not known.size:
            return
        if not self.path(name).is_file():
            raise ValueError(f"{self.path(name).name} is not there")
        with open(self.path(name), "rb") as file:
            while at < known.size:
                header = file.read(HEADER.size)
                size, kept = HEADER.unpack(header) if len(header) == HEADER.size else (0, b"")
                at += HEADER.size + size
                block = file.read(size) if 0 < at <= known.size else b""
                chain = _chain(chain, block)
                if len(block) != size or chain != kept:
                    raise ValueError(f"{self.path(name).name} was changed or cut short")
                yield block
        if at != known.size or chain != known.chain:
            raise ValueError(f"{self.path(name).name} was changed or cut short")

    def marked(self, value: Any) -> Any:
        """Return a checkpoint's reference to draws as the draws themselves, which an append-only file holds."""
        if not (isinstance(value, dict) and "append-only" in value):
            return value
        draws = Draws(value["append-only"], value["shape"], np.dtype(value["dtype"]))
        name = f"draws_{draws.name}"
        values = np.frombuffer(b"".join(self.blocks(name)), draws.dtype)
        entries = self.known.get(name, Written()).entries
        draws.restore(values.reshape(entries, *draws.shape)[: value["length"]])
        if len(draws) != value["length"]:
            raise ValueError(f"{draws.name} has {len(draws)} of {value['length']} draws")
        return draws.mark()


def _chain(before: bytes, block: bytes) -> bytes:
    return hashlib.blake2b(before + block, digest_size=16).digest()
