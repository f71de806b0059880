"""Files that may be compressed: gzip, bzip2, xz, or a zip archive of one file, told by their first bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from corollary import errors
from corollary.data.limits import allow

__all__ = ["PACKED", "is_packed", "opened", "plain_suffix"]

PACKED = (".gz", ".bz2", ".xz", ".zip")


def plain_suffix(path: Path) -> str:
    """Return the suffix of what a file holds: ``.csv`` for ``table.csv.gz``.

    >>> plain_suffix(Path("table.csv.gz")), plain_suffix(Path("table.CSV"))
    ('.csv', '.csv')
    """
    inner = Path(path.stem) if path.suffix.lower() in PACKED else path
    return inner.suffix.lower() or path.suffix.lower()


_MARKS = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")


def is_packed(path: Path) -> bool:
    """Whether a file is compressed."""
    with path.open("rb") as file:
        return file.read(6).startswith(_MARKS)


@contextmanager
def opened(path: Path, marks: bytes = b"", each: int = 0) -> Iterator[BinaryIO]:
    """Open a file for reading its bytes, unpacked; every one of the ``marks`` is going to take ``each`` bytes of memory more."""
    import bz2
    import gzip
    import lzma
    import zipfile
    import zlib

    with path.open("rb") as file:
        start = file.read(6)
        file.seek(0)
        try:
            if start.startswith(b"PK\x03\x04"):
                with zipfile.ZipFile(file) as archive, archive.open(_only_member(archive, path)) as inner:
                    yield cast(BinaryIO, io.BufferedReader(_Counted(inner, path, marks, each)))
                return
            packed: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
            unpack = next((unpack for mark, unpack in packed.items() if start.startswith(mark)), None)
            if unpack is None:
                yield file
                return
            with unpack(file, "rb") as inner:
                yield cast(BinaryIO, io.BufferedReader(_Counted(inner, path, marks, each)))
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk's, not the archive's: damage has no number
            raise errors.value("load", f"{path.name} must be a whole compressed file", str(error)) from error


class _Counted(io.RawIOBase):
    """A stream that is unpacked no further than the bounds of the load allow."""

    def __init__(self, inner: object, path: Path, marks: bytes, each: int) -> None:
        self.inner, self.path, self.size = inner, path, path.stat().st_size
        self.marks, self.each = [bytes([mark]) for mark in marks], each

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        count = int(self.inner.readinto(buffer))  # type: ignore[attr-defined]
        read = bytes(memoryview(buffer)[:count]) if self.marks else b""  # type: ignore[arg-type]
        allow(self.path.name, count + self.each * sum(map(read.count, self.marks)), of=self.size)
        self.size = 0  # the file itself is counted once
        return count


def _only_member(archive: object, path: Path) -> str:
    members = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX")]  # type: ignore[attr-defined]
    if len(members) != 1:
        must = f"{path.name} must be an archive of one file"
        raise errors.value("load", must, f"{len(members)}: {', '.join(members[:3])}", "Unpack it first.")
    return str(members[0])
