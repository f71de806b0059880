"""Text: one document per line of a file, one per file of a folder, or a column of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.folders import by_class

__all__ = ["decode", "read_documents", "read_lines", "text_column"]


def decode(path: Path) -> str:
    """Return the text of a UTF-8 file (with or without a mark at its head), or say where it is not one."""
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{raw[error.start]:02x} at position {error.start}"
        raise errors.value("load", f"{path.name} must be UTF-8 text", got, "Save it as UTF-8.") from error


def read_lines(path: Path) -> Dataset:
    """Read one document per line; blank lines are left out."""
    lines = [line for line in decode(path).splitlines() if line.strip()]
    if not lines:
        raise errors.value("load", f"{path.name} must have at least one line of text", "an empty file")
    return Dataset(lines, kind="text", name=path.stem, source=str(path))


def read_documents(folder: Path) -> Dataset:
    """Read one document per ``.txt`` file; sub-folders are classes."""
    files, labels = by_class(folder, (".txt",), "text")
    texts = [decode(file) for file in files]
    if not any(text.strip() for text in texts):
        raise errors.value("load", f"some document in {folder.name} must have words", "only empty ones")
    return Dataset(texts, labels, "text", folder.name, source=str(folder))


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
    return _texts(frame[column], table.y, name, source)


def _texts(column: Any, y: np.ndarray | None, name: str, source: str) -> Dataset:
    texts = ["" if missing else str(text) for text, missing in zip(column, column.isna())]
    return Dataset(texts, y, "text", name, source=source)
