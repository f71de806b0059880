"""Text: one document per line of a file, one per file of a folder, or a column of a table."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.charsets import decodes, plausible, wide_encoding
from corollary.data.compressed import opened
from corollary.data.dataset import Dataset
from corollary.data.folders import by_class, check_readable, names_below, readable

__all__ = [
    "as_texts",
    "decode",
    "encoding_of",
    "one_text",
    "read_documents",
    "read_lines",
    "read_text",
    "text_column",
]

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE = 57  # bytes of an empty string and a pointer to it
_WRITTEN = bytes([9, 10, 11, 12, 13, 26, 27, *range(32, 256)])  # no control characters but these


def decode(path: Path) -> str:
    """Return the text of a file in the encoding that its bytes show; see :func:`encoding_of`."""
    with opened(path, b"\n", _LINE) as file:
        raw = file.read()
    return raw.decode(encoding_of(raw, path.name, whole=True)).lstrip("\ufeff")


def encoding_of(raw: bytes, name: str, whole: bool = False) -> str:
    """Return the encoding of bytes: UTF by its mark or its validity, else the most plausible of older ones.

    >>> encoding_of("für".encode(), "a.txt"), encoding_of("für".encode("latin-1"), "a.txt")
    ('utf-8', 'cp1252')
    """
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return encoding
    strange = raw[:4096].translate(None, _WRITTEN)
    if 0 in strange and (wide := wide_encoding(raw, whole)):
        return wide
    if decodes(raw, "utf-8", whole):
        return "utf-8"
    if strange:
        got = f"byte 0x{strange[0]:02x}, as in binary files"
        do = "Save it as UTF-8 text, or give it the suffix of its format."
        raise errors.value("load", f"{name} must be text", got, do)
    return plausible(raw, whole)


def read_text(path: Path, reading: Mapping[str, Any] | None = None) -> Dataset:
    """Read a text file: a document per line, or the whole if the fit had a document per file."""
    if (reading or {}).get("documents") != "file":
        return read_lines(path)
    learned = {"documents": "file"}
    extra = {"files": [path.name], "reading": learned}
    return Dataset(
        [decode(path).replace("\r\n", "\n")], kind="text", name=path.stem, source=str(path), extra=extra
    )


def read_lines(path: Path) -> Dataset:
    """Read one document per line; blank lines are left out. ``extra["whole"]`` is the text as it stands."""
    text = decode(path).replace("\r\n", "\n")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise errors.value("load", f"{path.name} must have at least one line of text", "an empty file")
    return Dataset(lines, kind="text", name=path.stem, source=str(path), extra={"whole": text})


def one_text(dataset: Dataset) -> Dataset:
    """Return the lines of a file as the one text that they are, line ends included; other data as they are."""
    if dataset.kind != "text" or "whole" not in dataset.extra:
        return dataset
    extra = {key: value for key, value in dataset.extra.items() if key != "whole"}
    extra["reading"] = {**extra.get("reading", {}), "documents": "file"}
    return replace(dataset, X=[dataset.extra["whole"]], y=None, extra=extra)


def as_texts(X: Any) -> list[str] | None:
    """Return a list, array or series of strings as a list of texts; None if it is something else."""
    if not (isinstance(X, list | tuple) or getattr(X, "ndim", 0) == 1) or not len(X):
        return None
    return [str(text) for text in X] if all(isinstance(text, str) for text in X) else None


def read_documents(folder: Path, reading: Mapping[str, Any] | None = None) -> Dataset:
    """Read one document per ``.txt`` file; sub-folders are classes."""
    files, labels = by_class(folder, (".txt",), "text")
    found, broken = readable(files, decode)
    check_readable(folder.name, len(files), broken, "texts")
    if not any(text.strip() for text in found.values()):
        raise errors.value("load", f"some document in {folder.name} must have words", "only empty ones")
    y = None if labels is None else labels[[file in found for file in files]]
    extra: dict[str, Any] = {"files": names_below(folder, found), "reading": {"documents": "file"}}
    extra |= {"skipped": names_below(folder, broken)} if broken else {}
    return Dataset([*found.values()], y, "text", folder.name, source=str(folder), extra=extra)


def text_column(frame: Any, name: str, target: str | None, source: str) -> Dataset:
    """Take the texts from a table: its column ``text``, or the only column besides the target."""
    from corollary.data.tables import as_table

    if target is None and frame.shape[1] == 1:
        return _texts(frame.iloc[:, 0], None, name, source)
    table = as_table(frame, name, target, source)
    rest = {str(c): c for c in frame.columns if str(c) != str(target)}
    column = next((c for text, c in rest.items() if text.lower() == "text"), None)
    if column is None and len(rest) == 1:
        column = next(iter(rest.values()))
    if column is None:
        do = "Name it so, or keep only it and the target."
        raise errors.value("load", f"{name} must have a column called 'text'", ", ".join(rest), do)
    rows = table.extra.get("rows", slice(None))
    return _texts(frame[column].iloc[rows], table.y, name, source)


def _texts(column: Any, y: np.ndarray | None, name: str, source: str) -> Dataset:
    texts = ["" if missing else str(text) for text, missing in zip(column, column.isna())]
    return Dataset(texts, y, "text", name, source=source)
