"""Folders with one file per example and one sub-folder per class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from corollary import errors

__all__ = ["by_class", "files_in"]


def files_in(folder: Path, suffixes: tuple[str, ...] | None = None) -> list[Path]:
    """Return the visible files of a folder with these suffixes, by name."""
    found = (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return sorted(path for path in found if suffixes is None or path.suffix.lower() in suffixes)


def by_class(folder: Path, suffixes: tuple[str, ...], what: str) -> tuple[list[Path], np.ndarray | None]:
    """Return the files and the names of their sub-folders; None for the latter if there are none."""
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    groups = {path.name: files for path in inner if (files := files_in(path, suffixes))}
    loose = files_in(folder, suffixes)
    if loose and groups:
        must = (
            f"the {what} files of {folder.name} must all lie in sub-folders (one per class), or none of them"
        )
        raise errors.value("load", must, f"{len(loose)} beside {len(groups)} sub-folders")
    if not loose and not groups:
        must = f"{folder.name} must hold {what} files ({', '.join(suffixes)}), or sub-folders of them"
        raise errors.value("load", must, "none")
    if loose:
        return loose, None
    files = [file for group in groups.values() for file in group]
    return files, np.array([label for label, group in groups.items() for _ in group])
