"""How much a file may make a reader allocate: a small file cannot ask for all the memory there is.

A compressed picture of 7 KB can unpack to gigabytes, and a sparse matrix of no entries can have 2**50 columns. Every
reader asks here, with the sizes that the file claims, before it allocates anything.

>>> from corollary.data.limits import Limits, allow, reading
>>> with reading(Limits(bytes=1000)):
...     allow("a.png", 5000, of=12)
Traceback (most recent call last):
    ...
corollary.errors.Refused: load: the data of a.png must fit into 1000 bytes; got 5000 bytes from a file of 12 bytes. ...
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from corollary import errors

__all__ = ["RATIO", "Limits", "allow", "check_columns", "current", "field_error", "reading"]

RATIO = 64  # what is read may take this many times the bytes of its files, whatever the bound


@dataclass(frozen=True)
class Limits:
    """The bounds of one :func:`corollary.data.load`.

    Parameters
    ----------
    bytes : int, default=2**29
        Memory that all files together may unpack to; 64 times their own size is always allowed.
    columns : int, default=100_000
        Columns of a table.
    field : int, default=2**24
        Characters in one field of a table of text.
    memory : int, optional
        Bytes that the decoded images of a folder may take; a larger folder is decoded image by image, as batches need
        them. By default half of the machine's memory.
    """

    bytes: int = 2**29
    columns: int = 100_000
    field: int = 2**24
    memory: int | None = None

    @property
    def in_memory(self) -> int:
        """``memory``, or half of the machine's."""
        if self.memory is not None:
            return self.memory
        try:
            return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        except (AttributeError, ValueError, OSError):  # not on every system
            return 2**32


class _Account:
    """What has been allowed so far within one load."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.needed = self.read = 0


_account: ContextVar[_Account | None] = ContextVar("corollary_limits", default=None)


@contextmanager
def reading(limits: Limits | None) -> Iterator[None]:
    """Count everything that is read in the block against these bounds."""
    if limits is not None and not isinstance(limits, Limits):
        raise errors.kind("load", "limits must be a corollary.data.Limits", type(limits).__name__)
    token = _account.set(_Account(limits or Limits()))
    try:
        yield
    finally:
        _account.reset(token)


def current() -> Limits:
    """Return the bounds of the load that is under way, or the usual ones."""
    account = _account.get()
    return account.limits if account is not None else Limits()


def allow(name: str, needed: int, *, of: int, kept: bool = True) -> None:
    """Raise if a file of ``of`` bytes needs more memory than the bounds leave, all files of a load together.

    What is not ``kept`` is given back at once, and counts alone.
    """
    account = _account.get() if kept else _Account(current())
    account = account or _Account(Limits())
    account.needed, account.read = account.needed + int(needed), account.read + int(of)
    if account.needed > max(account.limits.bytes, RATIO * account.read):
        must = f"the data of {name} must fit into {account.limits.bytes} bytes"
        do = f"If the file can be trusted, raise the bound: load(..., limits=Limits(bytes={account.needed}))."
        got = f"{account.needed} bytes from a file of {account.read} bytes"
        raise errors.Refused(errors.wording("load", must, got, do))


def check_columns(name: str, count: int) -> None:
    """Raise if a table has more columns than the bounds allow."""
    limit = current().columns
    if count > limit:
        do = f"If the file can be trusted, raise the bound: load(..., limits=Limits(columns={count}))."
        raise errors.Refused(errors.wording("load", f"{name} must have at most {limit} columns", count, do))


def field_error(name: str, column: str | None = None) -> ValueError:
    """Return the error for a field with more characters than the bounds allow."""
    limit = current().field
    do = "Close the quotes, or raise the bound: load(..., limits=Limits(field=...))."
    got = "a longer one" + (f" in column {column!r}" if column else "")
    must = f"a field of {name} must have at most {limit} characters"
    return errors.Refused(errors.wording("load", must, got, do))
