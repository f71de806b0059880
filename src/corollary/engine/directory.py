"""The directory of a run: a lock for one fit at a time, and protection of earlier work against overwriting."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

from corollary import errors, io

__all__ = ["Lock", "busy", "fit_folder", "read_object", "refuse_to_overwrite", "tidy"]

try:
    import fcntl
except ImportError:  # a system without it has no lock that dies with its owner
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_held: WeakSet[Lock] = WeakSet()


class Lock:
    """A lock on a directory. It is released when the process that holds it ends, even if it is killed.

    The lock belongs to an open file, so another thread of the same process is refused as well.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.thread = directory, threading.get_ident()
        self.handle: int | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            self._take()
            os.ftruncate(self.handle, 0)
            os.write(self.handle, str(os.getpid()).encode())
        except BlockingIOError:
            owner = os.pread(self.handle, 64, 0).decode(errors="replace") if self.handle is not None else ""
            self.release()
            got = f"a fit of process {owner}" if owner else "another fit"
            raise errors.RunError(
                errors.wording(
                    "Run",
                    f"nothing else may work in {str(directory)!r}",
                    got,
                    "Wait for its end, or name another directory.",
                )
            ) from None
        except OSError as error:
            self.release()
            raise unwritable(directory, error) from error
        _held.add(self)

    def _take(self) -> None:
        if fcntl is not None and self.handle is not None:
            try:
                fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):  # a file system without
                    raise

    def release(self) -> None:
        """Let others work in the directory."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
        _held.discard(self)


def _forget() -> None:
    """Close the locks that a forked process inherits: they are its parent's."""
    for lock in [*_held]:
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def busy(directory: Path) -> bool:
    """Whether a fit is at work in a directory."""
    if fcntl is None or not (directory / LOCK).is_file():
        return False
    try:
        handle = os.open(directory / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def unwritable(directory: Path, error: OSError) -> OSError:
    """Return the error for a place where nothing can be written."""
    text = errors.wording(
        "Run",
        f"{str(directory)!r} must be a directory to write in",
        error.strerror,
        "Name another directory.",
    )
    return type(error)(error.errno, text) if error.errno is not None else OSError(text)


def tidy(directory: Path) -> None:
    """Remove the beginnings of files that a killed process left; call it under the lock."""
    for folder in (directory, *directory.glob("checkpoints/*")):
        for path in [*folder.glob(f".*{io.TEMPORARY}"), *folder.glob("fresh.safetensors")]:
            if path.is_file():
                path.unlink()


def fit_folder(directory: Path, number: int, owner: str) -> Path:
    """Return where the k-th fit of a run keeps its checkpoints."""
    return directory / "checkpoints" / f"{number:03d}-{owner}"


def refuse_to_overwrite(directory: Path, number: int, owner: str, resume: bool) -> None:
    """Raise if the k-th fit of a run would take the place of other work."""
    kept = {
        path.name.partition("-")[2]
        for path in directory.glob(f"checkpoints/{number:03d}-*")
        if any(os.path.lexists(path / name) for name in ("checkpoint.safetensors", "previous.safetensors"))
    }
    model = os.path.lexists(directory / "model.safetensors")
    if not kept and number == 1 and model:
        kept = {str(read_object(directory / "config.json").get("model", owner))}
    elif not kept:
        return
    if not resume:
        must, got = f"{str(directory)!r} must not hold a fit already", f"one of {', '.join(sorted(kept))}"
        do = "Go on with resume=True, name another directory, or delete this one."
        raise errors.OtherFit(errors.wording("Run", must, got, do))
    if kept - {owner}:
        must = f"a resumed run must fit {', '.join(sorted(kept))} as in {str(directory)!r}"
        raise errors.OtherFit(errors.wording("Run", must, owner, "Use the same model, or another directory."))


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, such as ``config.json``; empty if the file is missing or damaged."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
