"""Delimited text (CSV and its relatives) as a frame: encoding, separator, decimal sign and header are found in the file.

========================  ==============================================================================
encoding                  UTF-8, UTF-16 or UTF-32 (by its mark or its zero bytes), otherwise the most
                          plausible of Windows', Cyrillic and East Asian ones (:mod:`corollary.data.charsets`)
separator                 the one of ``, ; tab |`` that cuts the first lines into equally many fields;
                          blanks if nothing else does and all fields are numbers
decimal sign              a comma if fields such as ``3,14`` say so and commas do not separate
header                    the first line, unless it looks like the lines below it; two or three if they hold names and units
lines above the header    left out if they hold a single field or far fewer than the table has columns, or begin
                          with ``#``; the last of these may be the names; further lines in or below the table may then too
lines below the table     left out if they hold a single field
gaps                      empty fields and :data:`GAPS`
codes                     digits with leading zeros (``01234``) stay text
========================  ==============================================================================
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from corollary import errors
from corollary.data.charsets import plausible
from corollary.data.compressed import is_packed, opened
from corollary.data.limits import RATIO, check_columns, current, field_error
from corollary.data.texts import encoding_of

__all__ = [
    "GAPS",
    "Dialect",
    "column_names",
    "dialect_of",
    "joined_names",
    "read_delimited",
    "rows_of_names",
    "without_title",
]

# What people write where a value is missing, beside what pandas takes for it.
GAPS: tuple[str, ...] = (
    "?",
    "-",
    "--",
    "—",
    "–",
    ".",
    "..",
    "...",
    "n.a.",
    "n/a",
    "N.A.",
    "na",
    "Na",
    "NIL",
    "nil",
    "NONE",
    "none",
    "Null",
)
GAPS += (
    "missing",
    "Missing",
    "MISSING",
    "#DIV/0!",
    "#VALUE!",
    "#REF!",
    "#NUM!",
    "#NAME?",
    "<missing>",
    "(null)",
    "\\N",
)
_NO_NAMES = {*GAPS, "NA", "N/A", "NULL", "null", "None", "#N/A", "<NA>"}
_HEAD = 2**16  # bytes that are looked at
_LONGEST = 2**22  # bytes of a header
_FIELD = 16  # bytes that a field takes beside its text: where it begins, and its value
_UNIT = 10  # letters of a unit
_LINES = 50  # lines that tell the separator
_MANY = 500  # lines that tell the rest
_SEPARATORS = (",", ";", "\t", "|")
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+")
_POINT = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d*)\.\d+")
_EITHER = re.compile(r"[+-]?\d{1,3}(,\d{3})+")  # 1,234: a thousand or a little more than one
_CODE = re.compile(r"0\d{2,}")


@dataclass(frozen=True)
class Dialect:
    """How a file is written: what :func:`dialect_of` finds in its head."""

    encoding: str
    separator: str
    decimal: str
    names: list[str]  # of the columns
    header: bool  # whether the names stand in the file
    skip: int  # lines above the header or the first row
    codes: tuple[str, ...] = ()  # columns of digits with leading zeros
    plain: bool = False  # whether all fields of the head are numbers or empty
    comments: bool = False  # whether lines above the table begin with #, and so may others


def read_delimited(
    path: Path, separators: Sequence[str] = _SEPARATORS, as_text: Any = ()
) -> tuple[Any, Dialect]:
    """Return a delimited file as a frame, and how it was written; columns named in ``as_text`` stay strings."""
    with opened(path) as file:
        head = file.read(_HEAD)
        while head.count(b"\n") < 2 and len(head) < _LONGEST and (more := file.read(_HEAD)):
            head += more  # of a wide table
        whole = not file.read(1)
    dialect = dialect_of(head, path.name, separators, whole)
    try:
        frame = _parsed(path, dialect, as_text)
    except UnicodeDecodeError:  # the head was plain ASCII, what follows is not
        dialect = replace(dialect, encoding=plausible(_beyond_ascii(path), whole=True))
        try:
            frame = _parsed(path, dialect, as_text)
        except UnicodeDecodeError:  # a damaged line: in Latin-1 every byte has a meaning
            dialect = replace(dialect, encoding="latin-1")
            frame = _parsed(path, dialect, as_text)
    frame = _check_widths(frame, path, dialect)
    _check_fields(frame, path)
    return _named_only(frame, dialect, path.name), dialect


def _beyond_ascii(path: Path) -> bytes:
    """Return the first lines that are not ASCII, about as many bytes as tell an encoding."""
    found, size = [], 0
    with opened(path) as file:
        while size < _HEAD and (line := file.readline(_LONGEST)):
            if not line.isascii():
                found.append(line)
                size += len(line)
    return b"".join(found)


# --- the dialect -----------------------------------------------------------------------------------------


def dialect_of(
    head: bytes, name: str, separators: Sequence[str] = _SEPARATORS, whole: bool = True
) -> Dialect:
    r"""Return how a file is written, from its first bytes.

    >>> found = dialect_of(b"name;price\nsalt;0,99\n", "shop.csv")
    >>> found.separator, found.decimal, found.names
    (';', ',', ['name', 'price'])
    """
    encoding = encoding_of(head, name)
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    lines = text.splitlines(keepends=True)
    lines = lines if whole or len(lines) < 3 else lines[:-1]  # the last may be cut
    if not any(line.strip() for line in lines):
        raise errors.value("load", f"{name} must have at least one row", "an empty file")
    noted = _comments(lines)
    comment, lines = lines[noted - 1][1:] if noted else "", lines[noted:]
    tabbed = name.lower().split(".")[-1] in ("tsv", "tab") or ".tsv." in name.lower()
    clean = [line for line in lines[:_LINES] if not (noted and line.startswith("#"))]
    separator = "\t" if tabbed else _separator(clean, separators, name)
    telling = lines[:_LINES] if _numbers_only(lines[_LINES:_MANY], separator) else lines[:_MANY]
    numbered = [(row, i) for row, i in _rows(telling, separator, name) if any(map(str.strip, row))]
    if not numbered:
        raise errors.value(
            "load", f"{name} must have at least one field that is not empty", "separators only"
        )
    skip, rows = without_title(numbered)
    if (deep := rows_of_names(rows)) > 1:
        skip = numbered[deep - 2 - len(rows)][1]
        rows = [joined_names(*rows[:deep]), *rows[deep:]]
    if noted:
        rows = [*rows[:1], *(row for row in rows[1:] if not row[0].startswith("#"))]
    names, header = column_names(rows)
    if not header and comment:
        given = next(_rows([comment.strip()], separator, name))[0]
        names = column_names([given, *rows[:1]])[0] if len(given) == len(names) else names
    check_columns(name, len(names))
    below = rows[header:]
    columns = list(zip(*(row for row in below if len(row) == len(names))))
    codes = tuple(n for n, fields in zip(names, columns) if _are_codes(fields))
    decimal = _decimal(below, separator)
    plain = not codes and separator in _SEPARATORS and decimal == "." and _all_numbers(below)
    return Dialect(encoding, separator, decimal, names, header, skip + noted, codes, plain, bool(noted))


def _numbers_only(lines: list[str], separator: str) -> bool:
    """Whether lines hold plain numbers only, which tell nothing of names, codes and decimal signs; found without parsing.

    Besides digits there may be signs, points, exponents and separators; a zero that begins a field must be its only digit
    before the point, or else it may begin a code.
    """
    text = "".join(("\n", *lines))
    if len(separator) > 1 or text.encode().translate(None, b"0123456789.+-eE\r\n" + separator.encode()):
        return False
    starts = (separator, "\n")
    zeros = sum(text.count(start + "0") for start in starts)
    return zeros == sum(
        text.count(f"{start}0{end}") for start in starts for end in (".", separator, "\r", "\n")
    )


def _comments(lines: list[str]) -> int:
    """Return how many lines above the table begin with ``#``; one alone that is as wide as the next one is the header."""
    count = 0
    while count < len(lines) - 1 and lines[count].startswith("#"):
        count += 1
    wide = any(lines[0].count(s) == lines[1].count(s) > 0 for s in _SEPARATORS) if count == 1 else False
    return 0 if wide else count


def _separator(lines: Sequence[str], separators: Sequence[str], name: str) -> str:
    """Return the separator that cuts most lines into the number of fields of the first; blanks come last."""
    best, found = (0.0, 0.0, 0), ""
    for separator in (s for s in separators if s != " " and any(s in line for line in lines)):
        counts = [len(row) for row, _ in _rows(lines, separator, name) if row]
        usual, often = Counter(counts).most_common(1)[0] if counts else (1, 0)
        if usual > 1:
            key = (float(counts[0] == usual), often / len(counts), usual)
            best, found = (key, separator) if key > best else (best, found)
    if found:
        return found
    rows = [line.split() for line in lines if line.strip()]
    wide = len(rows[0]) > 1 and len({len(row) for row in rows}) == 1
    blanks = " " in separators or (len(rows) > 1 and all(_is_number(f) for row in rows[1:] for f in row))
    return " " if wide and blanks else ","


def _rows(lines: Iterable[str], separator: str, name: str) -> Iterator[tuple[list[str], int]]:
    """Yield the fields of each row, and the number of lines read so far."""
    if separator == " ":
        yield from ((line.split(), i) for i, line in enumerate(lines, 1))
        return
    if separator == "::":
        lines, separator = (line.replace("::", "\t") for line in lines), "\t"
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    with _long_fields(name):
        yield from ((row, reader.line_num) for row in reader)


@contextmanager
def _long_fields(name: str) -> Iterator[None]:
    limit = csv.field_size_limit(_LONGEST + current().field)
    try:
        yield
    except csv.Error as error:
        raise field_error(name) from error
    finally:
        csv.field_size_limit(limit)


def without_title(numbered: list[tuple[list[str], int]]) -> tuple[int, list[list[str]]]:
    """Return how many lines stand above the table, such as its title, and the rows of the table."""
    rows = [row for row, _ in numbered]
    usual = Counter(map(len, rows)).most_common(1)[0][0]
    above = 0
    while usual > 2 and above < len(rows) - 1 and _is_above(rows[above], usual):
        above += 1
    return (numbered[above - 1][1] if above else 0), rows[above:]


def _is_above(row: list[str], usual: int) -> bool:
    """Whether a row stands above the table: a title, or a fact such as ``printed on;1.3.2024``; a header may lack one name."""
    return sum(bool(field.strip()) for field in row) == 1 or len(row) < usual - 1


def column_names(rows: list[list[str]]) -> tuple[list[str], bool]:
    """Return the names of the columns, and whether they stand in the first row."""
    # a name may stand in several lines
    first, below = ([" ".join(field.split()) for field in rows[0]], rows[1:])
    if first[0].startswith("#"):
        first[0] = first[0].lstrip("# ") or "#"
    if below and all(len(row) == len(first) + 1 and not row[-1].strip() for row in below):
        first = [*first, ""]  # every line but the first ends in a separator
    if _is_data(first, below):
        return [f"x{i}" for i in range(len(first))], False
    seen: Counter[str] = Counter()
    names = []
    for field in first:
        seen[field] += 1
        names.append(field if seen[field] == 1 or not field else f"{field}.{seen[field] - 1}")
    return names, True


def rows_of_names(rows: list[list[str]]) -> int:
    """Return how many of the first rows hold names: up to three of words only, the last of which stands above values.

    ``Blood,,Urine,`` may stand above ``Na,K,Na,K``, and below them units, ``mmol,mmol,mmol,mmol``.
    """
    return next((deep for deep in (3, 2) if _are_names(rows[:deep], rows[deep:])), 1)


def _are_names(over: list[list[str]], below: list[list[str]]) -> bool:
    """Whether rows are names in several lines: the last names nearly all columns, or has units of the columns of numbers."""
    last = over[-1]
    if len(below) < 2 or any(len(row) != len(last) or not any(map(str.strip, row)) for row in over):
        return False
    marks = sum(field.strip() in _NO_NAMES for field in last)  # Na may be sodium
    fields = (field.strip() for row in over for field in row)
    if 2 * marks > len(last) or any(_is_value(field) and field not in _NO_NAMES for field in fields):
        return False
    named = [i for i, field in enumerate(last) if field.strip()]
    filled = ([row[i] for row in below if len(row) > i and row[i].strip()] for i in named)
    above = [sum(map(_is_value, fields)) >= 0.9 * len(fields) for fields in filled]
    if len(named) >= len(last) - 1:
        return sum(above) > len(above) / 2
    units = all(len(last[i].strip()) <= _UNIT and last[i].strip() not in _NO_NAMES for i in named)
    return units and len(named) > 1 and all(above) and all(map(str.strip, over[-2]))


def joined_names(*over: list[str]) -> list[str]:
    """Return the names in several rows as one; a name that was merged counts for the columns to its right.

    It does so up to the next name, in its own row or one above.

    >>> joined_names(["Blood", "", "Urine"], ["Na", "K", "Na"])
    ['Blood Na', 'Blood K', 'Urine Na']
    """
    rows = [[field.strip() for field in row] for row in over]
    for i, row in enumerate(rows[:-1]):
        begins = [any(above[j] for above in over[: i + 1]) for j in range(len(row))]
        for j in range(1, len(row)):
            row[j] = row[j] if begins[j] else row[j - 1]
    return [" ".join(filter(None, parts)) for parts in zip(*rows)]


def _is_value(field: str) -> bool:
    """Whether a field holds a number, a date or the mark of a gap, and no word."""
    field = field.strip()
    return field[:1].isdigit() or field in _NO_NAMES or (bool(field) and _is_number(field))


def _is_data(first: list[str], below: list[list[str]]) -> bool:
    """Whether a first row holds values: numbers only, or numbers and words that come again below them."""
    filled = [(i, field) for i, field in enumerate(first) if field]
    words = [(i, field) for i, field in filled if not _is_number(field)]
    if not words:
        return bool(filled)
    again = all(any(len(row) > i and row[i].strip() == word for row in below) for i, word in words)
    return len(words) < len(filled) and again


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return bool(_COMMA.fullmatch(field))
    return True


def _all_numbers(rows: list[list[str]]) -> bool:
    """Whether rows, a few from everywhere, hold numbers and empty fields only."""
    some = rows[:: max(1, len(rows) // 20)]
    return bool(some) and all(not field.strip() or _is_number(field) for row in some for field in row)


def _are_codes(fields: Sequence[str]) -> bool:
    if not any(field[:1] == "0" and field[1:2].isdigit() and _CODE.fullmatch(field) for field in fields):
        return False
    return all(field.isdigit() for field in fields if field.strip())


def _decimal(rows: list[list[str]], separator: str) -> str:
    if separator == ",":
        return "."
    fields = [field.strip() for row in islice(rows, 2000) for field in row]
    commas = sum(bool(_COMMA.fullmatch(f)) and not _EITHER.fullmatch(f) for f in fields)
    points = sum(bool(_POINT.fullmatch(f)) for f in fields)
    if commas or points:
        return "," if commas > points else "."
    return "," if separator == ";" and any(map(_EITHER.fullmatch, fields)) else "."


# --- the rows --------------------------------------------------------------------------------------------


def _parsed(path: Path, dialect: Dialect, as_text: Any) -> Any:
    import pandas as pd

    names = _distinct(dialect.names)
    strings = {*as_text, *dialect.codes} & set(names)
    options: dict[str, Any] = {
        "sep": dialect.separator,
        "header": None,
        "names": names,
        "decimal": dialect.decimal,
        "dtype": dict.fromkeys(strings, str),
        "na_values": list(GAPS),
        "skipinitialspace": True,
    }
    try:
        frame = _frame(path, dialect, options)
    except UnicodeDecodeError:
        raise
    except pd.errors.EmptyDataError as error:
        raise errors.value("load", f"{path.name} must have at least one row", "only a header") from error
    except (ValueError, OverflowError, pd.errors.ParserWarning) as error:  # ParserError is a ValueError
        raise _no_table(error, path, dialect) from error
    if frame.empty:
        raise errors.value("load", f"{path.name} must have at least one row", "only a header")
    return frame


def _frame(path: Path, dialect: Dialect, options: dict[str, Any]) -> Any:
    if dialect.comments and _comments_below(path, dialect):
        return _uncommented(path, dialect, options)
    if dialect.separator not in (" ", "::") and not is_packed(path):  # pandas is quickest with a path
        where: dict[str, Any] = {"skiprows": dialect.skip, "header": 0 if dialect.header else None}
        where |= {"encoding": dialect.encoding, "compression": None}
        # looking for further gaps and blanks takes as long again as reading
        if dialect.plain and not options["dtype"]:
            plain = {key: options[key] for key in ("sep", "names")}
            frame = _read_csv(path, {**plain, **where})
            if all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in frame.dtypes):
                return frame
        return _read_csv(path, {**options, **where})
    marks = b"\n" if dialect.separator in (" ", "::") else b"\n" + dialect.separator.encode()
    with opened(path, marks, _FIELD) as file, _as_text(file, dialect) as text:
        _to_first_row(text, dialect, path.name)
        if dialect.separator not in (" ", "::"):
            return _read_csv(text, {**options, "low_memory": False})
        cut: Callable[[str], str] = _tabbed if dialect.separator == " " else _single
        return _read_csv(io.StringIO("".join(map(cut, text))), {**options, "sep": "\t", "low_memory": False})


def _comments_below(path: Path, dialect: Dialect) -> bool:
    """Whether lines in or below the table begin with ``#``."""
    with opened(path) as file, _as_text(file, dialect) as text:
        _to_first_row(text, dialect, path.name)
        return any(line.startswith("#") for line in text)


def _uncommented(path: Path, dialect: Dialect, options: dict[str, Any]) -> Any:
    """Return the rows of a file between whose lines stand comments."""
    cut = {" ": _tabbed, "::": _single}.get(dialect.separator, str)
    with (
        opened(path, b"\n" + dialect.separator[:1].encode(), _FIELD) as file,
        _as_text(file, dialect) as text,
    ):
        _to_first_row(text, dialect, path.name)
        lines = "".join(cut(line) for line in text if not line.startswith("#"))
    separator = dialect.separator if len(dialect.separator) == 1 and dialect.separator != " " else "\t"
    return _read_csv(io.StringIO(lines), {**options, "sep": separator, "low_memory": False})


def _read_csv(source: Any, options: dict[str, Any]) -> Any:
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        warnings.simplefilter("error", pd.errors.DtypeWarning)
        try:
            return pd.read_csv(source, **options)
        except pd.errors.DtypeWarning:  # parts of the file look different: they are read as one
            return pd.read_csv(source, **options, low_memory=False)


def _as_text(file: BinaryIO, dialect: Dialect) -> io.TextIOWrapper:
    return io.TextIOWrapper(file, encoding=dialect.encoding, newline="")


def _to_first_row(text: Any, dialect: Dialect, name: str) -> None:
    """Move to the first row of values: past lines above the header, and the header."""
    for _ in range(dialect.skip):
        next(text)
    if not dialect.header:
        return
    reader = csv.reader(text, delimiter=dialect.separator) if len(dialect.separator) == 1 else text
    with _long_fields(name):
        while not any(field.strip() for field in next(reader)):
            pass  # blank lines above the header


def _tabbed(line: str) -> str:
    return "\t".join(line.split()) + "\n"


def _single(line: str) -> str:
    return line.replace("::", "\t")


def _distinct(names: list[str]) -> list[str]:
    """Return the names with one for each column that has none."""
    return [name or f"\x00{i}" for i, name in enumerate(names)]


def _no_table(error: Exception, path: Path, dialect: Dialect) -> ValueError:
    _check_rows(path, dialect)  # knows the line of the file
    got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160].rstrip(".")
    return errors.value("load", f"{path.name} must be a table of one row per line", got)


def _check_widths(frame: Any, path: Path, dialect: Dialect) -> Any:
    """Raise if a row is longer or shorter than the first: pandas makes of that an index, or gaps at its end.

    Notes below the table, lines of a single field such as its source, are left out, with a word about it.
    """
    import pandas as pd

    if isinstance(frame.index, pd.RangeIndex) and not frame.iloc[:, -1].isna().any():
        return frame
    notes = _check_rows(path, dialect)
    if not notes:
        return frame
    said = str(frame.iloc[-notes, 0])[:60]
    text = (
        f"load: left out {notes} {'lines' if notes > 1 else 'line'} below the table of {path.name}: {said!r}."
    )
    warnings.warn(text, errors.CorollaryWarning, stacklevel=6)
    return frame.iloc[:-notes]


def _check_fields(frame: Any, path: Path) -> None:
    """Raise if a field is longer than the bounds allow; only a file that is longer itself can have one."""
    if path.stat().st_size * RATIO > (limit := current().field):
        for name, dtype in frame.dtypes.items():
            if str(dtype) in ("str", "object", "string") and frame[name].str.len().max() > limit:
                raise field_error(path.name, str(name))


def _check_rows(path: Path, dialect: Dialect) -> int:
    """Raise if a row is longer or shorter than the first; return how many notes of a single field stand below the table."""
    wide, notes = len(dialect.names), []
    with opened(path) as file, _as_text(file, dialect) as text:
        for row, line in _rows(text, dialect.separator, path.name):
            short = dialect.header and len(row) == wide - 1 and not dialect.names[-1]  # the header itself
            if line <= dialect.skip or not row or (dialect.comments and row[0].startswith("#")):
                continue
            if len(row) == 1 and wide > 2:
                notes.append(line)
            elif notes or (len(row) != wide and not short):
                must = f"every line of {path.name} must have {wide} fields, as the first"
                do = "Quote fields that hold the separator, or mend that line."
                got = f"1 in line {notes[0]}" if notes else f"{len(row)} in line {line}"
                raise errors.value("load", must, got, do)
    return len(notes)


def _named_only(frame: Any, dialect: Dialect, name: str) -> Any:
    """Leave out columns without a name: an index that pandas wrote, or what follows a last separator."""
    unnamed = [c for c in frame.columns if str(c).startswith("\x00")]
    if not unnamed:
        return frame
    index = [c for c in unnamed if c == frame.columns[0]]
    empty = [c for c in unnamed if frame[c].isna().all()]
    frame = frame.drop(columns=[*index, *empty]) if len(frame.columns) > len(index + empty) else frame
    return frame.rename(columns={c: f"x{c[1:]}" for c in unnamed})
