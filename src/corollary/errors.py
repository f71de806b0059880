"""The wording of every error: what must hold, what was given, what to do.

>>> raise value("ALS", "ratings must be non-negative", "minimum -2", "Shift them, or use alpha=0.")
Traceback (most recent call last):
    ...
ValueError: ALS: ratings must be non-negative; got minimum -2. Shift them, or use alpha=0.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "CorollaryWarning",
    "Diverged",
    "FitStopped",
    "NoSuchKey",
    "OtherFit",
    "Refused",
    "RunError",
    "closest",
    "kind",
    "missing",
    "no_key",
    "undivided",
    "unknown",
    "value",
    "wording",
]


class CorollaryWarning(UserWarning):
    """Something worth knowing that does not stop the work."""


class Refused(ValueError):
    """A file asks for more than its reader's bounds allow."""


class FitStopped(CorollaryWarning):
    """A fit that was stopped before its end: Ctrl-C, SIGTERM, the time limit."""


class RunError(RuntimeError):
    """A fit that cannot begin or go on because of where it runs: a directory in use, a lost process."""


class OtherFit(ValueError):
    """Work of another model, of other data or of other settings, where only this fit's own may stand."""


class Diverged(FloatingPointError):
    """The objective became NaN or infinite; the last finite state is kept."""


class NoSuchKey(KeyError):
    """A key that is not there; unlike a bare KeyError it reads as a sentence."""

    def __str__(self) -> str:
        """Return the sentence, without quotes around it."""
        return str(self.args[0])


def wording(owner: str, must: str, got: object, do: str = "") -> str:
    """Return the sentence ``Owner: what must hold; got what. What to do.`` of every error."""
    text = f"{owner}: {must}; got {got}."
    return f"{text} {do}" if do else text


def value(owner: str, must: str, got: object, do: str = "") -> ValueError:
    """Return the error for a value that cannot be used."""
    return ValueError(wording(owner, must, got, do))


def kind(owner: str, must: str, got: object, do: str = "") -> TypeError:
    """Return the error for a value of the wrong kind."""
    return TypeError(wording(owner, must, got, do))


def closest(name: str, choices: Iterable[str], n: int = 3) -> str:
    """Return the choices most like ``name``, quoted and comma-separated; all if few, else the first ones."""
    known = sorted(set(map(str, choices)))
    by_case = {c.lower(): c for c in known}
    near = [by_case[c] for c in get_close_matches(str(name).lower(), by_case, n=n, cutoff=0.4)]
    return ", ".join(map(repr, near or known[: 2 * n]))


def unknown(owner: str, what: str, name: str, choices: Iterable[str], do: str = "") -> ValueError:
    """Return the error for a name that does not exist, with the closest ones that do."""
    text = f"{owner}: no {what} named {name!r}. Closest: {closest(name, choices)}."
    return ValueError(f"{text} {do}" if do else text)


def no_key(owner: str, what: str, name: str, choices: Iterable[str], do: str = "") -> NoSuchKey:
    """Return the same for what is looked up in square brackets, as a KeyError."""
    return NoSuchKey(str(unknown(owner, what, name, choices, do)))


def undivided(owner: str, processes: int) -> ValueError:
    """Return the error for work that several processes would only repeat."""
    do = "Leave processes at 1; threads are used all the same."
    return value(owner, "its work cannot be divided among processes", f"{processes} of them", do)


def missing(owner: str, package: str, extra: str) -> ImportError:
    """Return the error for an optional package that is not installed."""
    return ImportError(
        f"{owner}: needs the package {package!r}; it is not installed. pip install 'corollary[{extra}]'."
    )
