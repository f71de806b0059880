"""``corollary compute``: the functions of the catalog, from the command line."""

from __future__ import annotations

import inspect
from typing import Any

from corollary import errors
from corollary.catalog import Entry
from corollary.cli.fitting import parse_settings

__all__ = ["compute_with"]


def compute_with(entry: Entry, source: str | None, kind: str | None, settings: list[str]) -> Any:
    """Call a function with data as its first argument, if there are any, and with what was set; return plain values."""
    if entry.kind != "function":
        do = (
            f"Use `corollary fit {entry.id}`."
            if entry.kind == "estimator"
            else f"See `corollary show {entry.id}`."
        )
        raise errors.value(entry.name, "compute takes a function of the catalog", entry.kind, do)
    function = entry.load()
    wanted = {name: each for name, each in inspect.signature(function).parameters.items() if _named(each)}
    given = parse_settings(settings, wanted, entry.name)
    if source is not None:
        from corollary import data

        first = next(iter(wanted))
        given = {first: data.load(source, kind).X, **given}
    _complete(wanted, given, entry)
    return _plain(function(**given))


def _named(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)


def _complete(wanted: dict[str, Any], given: dict[str, Any], entry: Entry) -> None:
    missing = [
        name for name, each in wanted.items() if each.default is inspect.Parameter.empty and name not in given
    ]
    if missing:
        must = f"{', '.join(missing)} must be given"
        got = ", ".join(given) or "nothing"
        do = f"Pass --set {missing[0]}=..., or --data for the first; see `corollary show {entry.id}`."
        raise errors.value(entry.name, must, got, do)


def _plain(value: Any) -> Any:
    """Return named fields, and the entries of a sparse matrix, as a dict; JSON takes arrays and numbers as they are."""
    if hasattr(value, "tocoo"):
        entries = value.tocoo()
        return {"shape": entries.shape, "row": entries.row, "column": entries.col, "value": entries.data}
    if hasattr(value, "_asdict"):
        return {key: _plain(each) for key, each in value._asdict().items()}
    return value
