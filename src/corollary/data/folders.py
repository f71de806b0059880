"""Folders with one file per example and one sub-folder per class."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors

__all__ = ["by_class", "check_readable", "files_in", "names_below", "readable"]


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


def readable(files: Iterable[Path], read: Callable[[Path], Any]) -> tuple[dict[Path, Any], dict[Path, str]]:
    """Return what can be read of files, and why the others cannot."""
    found, broken = {}, {}
    for file in files:
        try:
            found[file] = read(file)
        except errors.Refused:
            raise
        except (ValueError, OSError) as error:
            broken[file] = str(error).removeprefix("load: ")
    return found, broken


def check_readable(name: str, count: int, broken: dict[Path, str], what: str) -> None:
    """Say which files are left out because they cannot be read; raise if none or most cannot."""
    if not broken:
        return
    if count == 1:
        raise ValueError(f"load: {next(iter(broken.values()))}")
    first, reason = next(iter(broken.items()))
    if 2 * len(broken) > count:
        must = f"most of the {count} {what} of {name} must be readable"
        raise errors.value("load", must, f"{len(broken)} that are not; {reason}")
    listed = ", ".join(file.name for file in list(broken)[:5]) + (" and others" if len(broken) > 5 else "")
    text = f"load: left out {len(broken)} of {count} {what} of {name} that cannot be read: {listed}. {reason}"
    warnings.warn(text, errors.CorollaryWarning, stacklevel=3)


def names_below(root: Path, files: Iterable[Path]) -> list[str]:
    """Return the names of files from a folder on, such as ``cat/1.png``."""
    return [file.relative_to(root).as_posix() for file in files]
