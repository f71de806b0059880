"""Descriptions of a catalog entry and of the columns of a table, for the command line."""

from __future__ import annotations

import inspect
from itertools import groupby
from typing import Any

from corollary.catalog import Entry
from corollary.cli.console import quoted

__all__ = ["COLUMN_FACTS", "describe", "describe_columns", "formulas_of", "shortened"]

ALIKE = 20  # columns in a row that are read alike, above which one line stands for all
COLUMN_FACTS = ("column", "read as", "gaps", "distinct", "what is done")


def formulas_of(entry: Entry) -> list[dict[str, str]]:
    """Return the formulas that stand behind a system."""
    from corollary.formulas import all_formulas

    return [{"id": f.id, "statement": f.statement} for f in all_formulas() if entry.id in f.systems]


def describe(entry: Entry) -> dict[str, Any]:
    """Return a system's entry, documentation, parameters and formulas as plain values."""
    thing = entry.load()
    params = {}
    if entry.kind in ("estimator", "sampler"):
        params = {key: repr(value) for key, value in thing(**dict(entry.params)).get_params().items()}
    doc = inspect.getdoc(thing) or ""
    return {**entry.as_dict(), "doc": doc, "parameters": params, "formulas": formulas_of(entry)}


def describe_columns(dataset: Any, target: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each column of a table: what it is read as, and what becomes of it in a fit."""
    from corollary.data.columns import frame_of, learn_columns
    from corollary.data.tables import guess_target

    names = [str(name) for name in dataset.feature_names or ()]
    if dataset.kind != "table" or not names or hasattr(dataset.X, "tocsr"):
        return []
    frame = frame_of(dataset.X)
    columns = learn_columns(dataset.X, names, dataset.extra.get("columns"))
    guess = guess_target(dataset) if dataset.y is None else None
    rows = []
    for i, how in enumerate(columns):
        values = _series(frame.iloc[:, i] if frame is not None else dataset.X[:, i])
        done = _what_is_done(how, dataset.extra.get("columns", {}).get(how["name"], {}))
        if how["name"] == guess:
            done += f"; probably the target: --target {quoted(guess)}"
        facts = (how["name"], how["kind"], int(values.isna().sum()), int(values.nunique()), done)
        rows.append(dict(zip(COLUMN_FACTS, facts)))
    if dataset.y is not None and target is not None:
        y = _series(dataset.y)
        kind = "number" if y.dtype.kind in "iufb" else "category"
        rows.append(dict(zip(COLUMN_FACTS, (target, kind, 0, int(y.nunique()), "the target"))))
    return rows


def shortened(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table's columns; many that follow each other and are read alike become one row."""
    found = []
    for _, run in groupby(rows, key=lambda row: (row["read as"], row["gaps"], row["what is done"])):
        alike = list(run)
        if len(alike) <= ALIKE:
            found += alike
            continue
        first, last, distinct = alike[0], alike[-1], [row["distinct"] for row in alike]
        name = f"{first['column']} … {last['column']} ({len(alike)} columns)"
        found.append({**first, "column": name, "distinct": f"{min(distinct)} … {max(distinct)}"})
    return found


def _series(values: Any) -> Any:
    import pandas as pd

    return pd.Series(values)


def _what_is_done(how: dict[str, Any], read: dict[str, Any]) -> str:
    from corollary.data.encodings import headings

    if "why" in how:
        return f"left out ({how['why']})"
    if how["kind"] == "number":
        signs = ["decimal comma"] if how.get("decimal") == "," else []
        signs += [f"in {how['unit']}"] if how.get("unit") else []
        signs += [f"{', '.join(map(repr, read['gaps']))} as gaps"] if read.get("gaps") else []
        signs += [f"gaps filled with {how['fill']:.4g} and marked"] if "missing" in how else []
        signs += ["standardised"] if "mean" in how else []
        return "; ".join(signs) or "as it is"
    wide = len(headings(how))
    if how["kind"] == "date":
        form = f"{how['format']}; " if how.get("format") else ""
        return form + ", ".join(["time", *how["parts"]]).replace("day_of_week", "weekday")
    if how["kind"] == "text":
        return f"{len(how['words'])} words as {wide} topics"
    if "other" in how:
        shown = f"columns for the {wide - 1} commonest values and the others; " if wide else ""
        return f"{shown}with a target, its mean for each value"
    return f"{wide} columns of zeros and ones"
