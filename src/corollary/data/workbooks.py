"""Excel workbooks as frames: a sheet as people keep them, with a title above the table and names in two rows.

Rows above the table that hold a single cell are left out, and so are empty rows and columns. The names of the columns stand
in the first row; if one or two more hold words too, above columns of numbers, all are the names (``blood Na mmol/l``): cells that
were merged count for all columns below them.
"""

from __future__ import annotations

import warnings
from math import prod
from pathlib import Path
from typing import Any

from corollary import errors
from corollary.data.delimited import column_names, joined_names, rows_of_names, without_title

__all__ = ["extent", "sheet"]

_HEAD = 200  # rows that tell where the table begins


def extent(archive: Any) -> tuple[int, int]:
    """Return rows and columns of the largest sheet: a cell that says where it stands makes all before it cells of the frame."""
    return max(
        (_extent(archive, name) for name in archive.namelist() if "sheets/" in name), key=prod, default=(0, 0)
    )


def _extent(archive: Any, name: str) -> tuple[int, int]:
    from xml.parsers import expat

    here, most = [0, 0], [0, 0]  # row and column, counted from 1

    def begin(tag: str, facts: dict[str, str]) -> None:
        kind = tag.rpartition(":")[2]
        if kind == "row":
            here[:] = [int(facts.get("r", here[0] + 1)), 0]
        elif kind == "c":
            letters = facts.get("r", "").rstrip("0123456789").replace("$", "")
            digits = facts.get("r", "")[len(letters) :]
            here[0] = int(digits) if digits else here[0]
            here[1] = _column_number(letters) if letters else here[1] + 1
            most[:] = [*map(max, most, here)]

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    with archive.open(name) as file:
        parser.ParseFile(file)
    return most[0], most[1]


def _column_number(letters: str) -> int:
    """Return the number of a column: A is 1, Z 26, AA 27."""
    number = 0
    for letter in letters.upper():
        number = 26 * number + ord(letter) - 64
    return number


def sheet(path: Path) -> Any:
    """Return the first sheet of a workbook that is a table, with a word about the others.

    One of a single column, such as a cover or remarks, is read if there is no other.
    """
    import pandas as pd

    with pd.ExcelFile(path, engine="openpyxl") as book:
        names = book.sheet_names
        name, raw = names[0], pd.DataFrame()
        for other in names:
            cells = pd.read_excel(book, other, header=None)
            cells = cells.dropna(axis=0, how="all").dropna(axis=1, how="all")
            if min(cells.shape[1], 2) > min(raw.shape[1], 2):
                name, raw = other, cells
            if raw.shape[1] > 1:
                break
    if len(names) > 1:
        others = ", ".join(repr(other) for other in names if other != name)
        text = f"load: read sheet {name!r} of {path.name}; not read: {others}. Save another one as a file of its own."
        warnings.warn(text, errors.CorollaryWarning, stacklevel=6)
    return _table(raw) if len(raw) else raw


def _table(raw: Any) -> Any:
    cells = [["" if v != v or v is None else str(v) for v in row] for row in raw.head(_HEAD).to_numpy(object)]
    skip, rows = without_title([(row, i) for i, row in enumerate(cells, 1)])
    raw = raw.iloc[skip:]
    deep = rows_of_names(rows)
    names, above = column_names([joined_names(*rows[:deep]), *rows[deep:]] if deep > 1 else rows)
    body = raw.iloc[deep if deep > 1 else int(above) :].reset_index(drop=True)
    names = [name or f"x{i}" for i, name in enumerate(names)]
    return body.set_axis(names, axis=1).infer_objects()
