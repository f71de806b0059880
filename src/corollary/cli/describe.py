"""What there is to say about a catalog entry."""

from __future__ import annotations

import inspect
from typing import Any

from corollary.catalog import Entry

__all__ = ["describe", "formulas_of"]


def formulas_of(entry: Entry) -> list[dict[str, str]]:
    """Return the formulas that stand behind a system."""
    from corollary.formulas import all_formulas

    return [{"id": f.id, "statement": f.statement} for f in all_formulas() if entry.id in f.systems]


def describe(entry: Entry) -> dict[str, Any]:
    """Return a system's entry, documentation, parameters and formulas as plain values."""
    thing = entry.load()
    params = {}
    if entry.kind == "estimator":
        params = {key: repr(value) for key, value in thing(**dict(entry.params)).get_params().items()}
    doc = inspect.getdoc(thing) or ""
    return {**entry.as_dict(), "doc": doc, "parameters": params, "formulas": formulas_of(entry)}
