"""The type stub of the package: its names are resolved when first used, which editors and type checkers cannot follow."""

from __future__ import annotations

from pathlib import Path

import corollary
from corollary import catalog

__all__ = ["STUB", "stub"]

STUB = Path(corollary.__file__).parent / "__init__.pyi"


def stub() -> str:
    """Return ``corollary/__init__.pyi``: every public name, imported from where it is made."""
    systems = {e.name: e.module for e in catalog.entries() if e.module.startswith("corollary.")}
    names = {**systems, **corollary._TOOLS}
    lines = ["# Written by `make docs` from the catalog.", ""]
    lines += [f"from corollary import {module} as {module}" for module in sorted(corollary._MODULES)]
    by_place = sorted(((module, name) for name, module in names.items()), key=_order)
    lines += [f"from {module} import {name} as {name}" for module, name in by_place]
    return "\n".join([*lines, "", "__version__: str", ""])


def _order(line: tuple[str, str]) -> tuple[str, bool, bool, str]:
    """Sort as the linter does: by module, then names in capitals, classes, functions."""
    module, name = line
    return module, not name.isupper(), not name[0].isupper(), name
