"""One kind of data as another, where there is a natural way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from corollary import errors
from corollary.data.dataset import Dataset

__all__ = ["as_input", "inputs"]


def _pixels(dataset: Dataset) -> Dataset:
    """Return images as rows of pixels; their shape is remembered for the pictures."""
    from corollary.data.kinds import check_images

    images = check_images(dataset.X, "data")
    extra = {**dataset.extra, "image_shape": images.shape[1:]}
    return replace(dataset, X=images.reshape(len(images), -1), kind="table", extra=extra)


def _counts(dataset: Dataset) -> Dataset:
    """Return texts as a sparse matrix of word counts, rare and very common words left out."""
    from sklearn.feature_extraction.text import CountVectorizer

    few = 2 if len(dataset.X) >= 100 else 1
    vectorizer = CountVectorizer(min_df=few, max_df=0.5 if len(dataset.X) >= 100 else 1.0)
    counts = vectorizer.fit_transform(dataset.X)
    names = vectorizer.get_feature_names_out().tolist()
    return replace(dataset, X=counts.astype("float64"), kind="table", feature_names=names)


def _numbers(dataset: Dataset) -> Dataset:
    """Return a table of mixed columns as one of numbers."""
    if not hasattr(dataset.X, "iloc"):
        return dataset
    from corollary.data.tables import numeric

    return replace(dataset, X=numeric(dataset.X))


CONVERSIONS: dict[tuple[str, str], Callable[[Dataset], Dataset]] = {
    ("graphs", "graph"): lambda dataset: dataset,
    ("image", "table"): _pixels,
    ("text", "sequence"): lambda dataset: replace(dataset, kind="sequence"),
    ("text", "table"): _counts,
}


def inputs(kind: str) -> set[str]:
    """Return the input kinds that data of this kind can be given to."""
    return {kind} | {to for source, to in CONVERSIONS if source == kind}


def as_input(dataset: Dataset, kind: str, owner: str) -> Dataset:
    """Return the data as a model with this input kind takes them."""
    if kind == "table" and dataset.kind == "table":
        return _numbers(dataset)
    if dataset.kind == kind:
        return dataset
    if (dataset.kind, kind) not in CONVERSIONS:
        do = f"See `corollary list --input {dataset.kind}` for what takes it."
        raise errors.value(
            owner, f"data must be of kind {kind}", f"{dataset.name!r} of kind {dataset.kind}", do
        )
    return CONVERSIONS[dataset.kind, kind](dataset)
