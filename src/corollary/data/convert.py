"""One kind of data as another, where there is a natural way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from corollary import errors
from corollary.data.columns import as_columns, as_counts, learn_columns
from corollary.data.dataset import Dataset
from corollary.data.detect import Reading
from corollary.data.series import as_series, has_dates

__all__ = ["as_input", "inputs"]


def _pixels(dataset: Dataset, reading: Reading) -> Dataset:
    """Return images as rows of pixels; their shape is remembered for the pictures."""
    from corollary.data.images import levels_of
    from corollary.data.kinds import check_images

    levels = reading.get("levels") or levels_of(dataset.X)
    images = check_images(dataset.X, "data", levels=levels)
    extra = {**dataset.extra, "image_shape": images.shape[1:]}
    flat = replace(dataset, X=images.reshape(len(images), -1), kind="table", extra=extra)
    return _remembered(flat, {"levels": levels}) if levels else flat


def _counts(dataset: Dataset, reading: Reading) -> Dataset:
    """Return texts as word counts; which words is remembered."""
    found = as_counts(dataset, reading.get("words"))
    return _remembered(found, {"words": found.feature_names})


def _table(dataset: Dataset, reading: Reading, sparse: bool = False) -> Dataset:
    """Return a table as numbers; how its columns were read is remembered."""
    columns = reading.get("columns") or learn_columns(
        dataset.X, dataset.feature_names, dataset.extra.get("columns"), sparse=sparse
    )
    if not columns:
        return dataset
    return _remembered(as_columns(dataset, columns, "load", sparse=sparse), {"columns": columns})


def _remembered(dataset: Dataset, reading: Reading) -> Dataset:
    known = dataset.extra.get("reading", {})
    return replace(dataset, extra={**dataset.extra, "reading": {**known, **reading}})


CONVERSIONS: dict[tuple[str, str], Callable[[Dataset, Reading], Dataset]] = {
    ("graphs", "graph"): lambda dataset, reading: dataset,
    ("image", "table"): _pixels,
    ("table", "table"): _table,
    ("text", "sequence"): lambda dataset, reading: replace(dataset, kind="sequence"),
    ("text", "table"): _counts,
}


def inputs(kind: str) -> set[str]:
    """Return the input kinds that data of this kind can be given to."""
    return {kind} | {to for source, to in CONVERSIONS if source == kind}


def as_input(
    dataset: Dataset,
    kind: str,
    owner: str,
    reading: Reading | None = None,
    also: tuple[str, ...] = (),
    sparse: bool = False,
) -> Dataset:
    """Return the data as a model with this input kind takes them.

    ``extra["reading"]`` of the result says how tables and texts became columns; given again with new data, it makes
    the same columns of them. Data of a kind in ``also`` stay as they are. ``sparse`` allows a large table of categories to
    be a sparse matrix.
    """
    if dataset.kind in also:
        return dataset
    if dataset.kind == kind == "table":
        return _table(dataset, reading or {}, sparse)
    if (dataset.kind, kind) == ("table", "sequence") and has_dates(dataset):  # as a choice, not by its kind
        return as_series(dataset, reading or {})
    if (dataset.kind, kind) in CONVERSIONS:
        return CONVERSIONS[dataset.kind, kind](dataset, reading or {})
    if dataset.kind == kind:
        return dataset
    do = f"See `corollary list --input {dataset.kind}` for what takes it."
    if (dataset.kind, kind) == ("ratings", "table"):
        do = "Pass kind='table' (--kind table) to take the matrix as it is, its gaps as zeros."
    raise errors.value(owner, f"data must be of kind {kind}", f"{dataset.name!r} of kind {dataset.kind}", do)
