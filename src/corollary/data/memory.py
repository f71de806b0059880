"""Data in memory: what kind it is, and its canonical form; also the arrays of an ``.npz`` file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from corollary import errors
from corollary.data import kinds, tables, texts
from corollary.data.arrays import as_array, concatenated, sparse_from
from corollary.data.columns import frame_of
from corollary.data.dataset import Dataset
from corollary.data.edges import attributed
from corollary.data.frames import as_frame
from corollary.data.graphs import divided
from corollary.data.limits import allow
from corollary.data.node_tables import from_frames
from corollary.data.ratings import times_of
from corollary.data.series import as_series, has_dates
from corollary.data.splitting import subset

__all__ = ["from_arrays", "from_memory", "no_target", "with_target"]

_X_KEYS = ("X", "x", "data", "features", "images", "inputs")
_Y_KEYS = ("y", "Y", "target", "targets", "label", "labels")


def no_target(target: str | None, name: str) -> None:
    """Refuse a target where there is nothing to take it from."""
    if target is not None:
        do = "Leave target out; classes are the names of sub-folders."
        raise errors.value("load", f"{name} has no columns to take a target from", f"target={target!r}", do)


def from_memory(
    source: Any,
    kind: str | None,
    target: str | None,
    name: str,
    columns: Any = None,
    directed: bool | None = None,
) -> Dataset:
    """Return data in memory as a data set of this kind, or of the kind that its form tells."""
    if kind in (None, "graph") and _two_frames(source):
        nodes, edges = (frame_of(part) for part in source)
        return from_frames(nodes, edges, target, directed)
    if target is not None and kind in (None, "graph") and hasattr(source, "adj"):
        graph, features = attributed(source, target, "load", name)
        extra = {} if graph.nodes is None else {"nodes": graph.nodes}
        return Dataset(graph, graph.y, "graph", name, features or None, extra=extra)
    plain = kind in (None, "table", "text")
    frame = as_frame(source, words=kind == "table") if plain else frame_of(source)
    if frame is not None and kind in (None, "table"):
        return tables.as_table(frame, name, target, columns=columns)
    if frame is not None and kind == "text":
        return texts.text_column(frame, name, target, "")
    if frame is not None and kind == "sequence":
        dated = tables.as_table(frame, name, target, columns=columns)
        if has_dates(dated):
            return as_series(dated, {})
    no_target(target, name)
    kind = kind or _kind_of(source)
    X = _canonical(source, kind)
    if kind == "ratings":
        extra = {"users": X[1], "items": X[2]}
        if frame is not None and (times := times_of(frame, X[0])) is not None:
            extra["times"] = times
        return Dataset(X[0], kind=kind, name=name, extra=extra)
    extra = {"nodes": X.nodes} if kind == "graph" and X.nodes is not None else {}
    return Dataset(X, X.y if kind == "graph" else None, kind, name, extra=extra)


def _two_frames(source: Any) -> bool:
    """Whether these are a table of nodes and one of edges."""
    pair = isinstance(source, list | tuple) and len(source) == 2
    return pair and all(frame_of(part) is not None for part in source)


def _kind_of(X: Any) -> str:
    if hasattr(X, "tocsr"):
        return "ratings"
    if hasattr(X, "edge_index") or hasattr(X, "adj"):
        return "graph"
    if isinstance(X, list | tuple) and len(X):
        first = X[0]
        if isinstance(first, str):
            return "text"
        if hasattr(first, "getbands"):  # a Pillow image
            return "image"
        if isinstance(first, list | tuple) and first and isinstance(first[0], str):
            return "sequence"
        if hasattr(first, "edge_index") or hasattr(first, "adj"):
            return "graphs"
        if hasattr(first, "shape"):
            return "sequence"
    ndim = _dimensions(X)
    if ndim in (3, 4):
        return "image"
    return "table"


def _dimensions(X: Any) -> int:
    if hasattr(X, "ndim"):
        return int(X.ndim)
    try:
        return np.ndim(X)
    except ValueError:
        return 0


def _canonical(X: Any, kind: str) -> Any:
    if kind == "table":
        return _numeric_table(X)
    if kind == "image":
        images = kinds.check_images(X, "load", scale=False)
        return images[:, 0] if _dimensions(X) == 3 else images
    checks: dict[str, Any] = {
        "sequence": kinds.check_sequences,
        "set": partial(kinds.check_sets, min_size=0),  # a model that needs elements says so
        "text": kinds.check_texts,
    }
    if kind in checks:
        return checks[kind](X, "load")
    if kind == "ratings":
        return kinds.check_ratings(X, "load", labels=True)
    check: Any = kinds.check_graph if kind == "graph" else kinds.check_graphs
    return check(X, "load", features=False)


def _numeric_table(X: Any) -> Any:
    try:
        array = X.tocsr() if hasattr(X, "tocsr") else as_array(X)
    except (TypeError, ValueError) as error:
        raise errors.value("load", "the rows of a table must have one length", "different lengths") from error
    array = _without_objects(array)
    if array.ndim != 2 or 0 in array.shape:
        do = "Pass kind= if it is not a table."
        raise errors.value("load", "a table must have rows and columns", f"shape {array.shape}", do)
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
        do = "Pass a DataFrame if the columns are of different types."
        raise errors.kind("load", "a table must hold real numbers", str(array.dtype), do)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)


def _without_objects(array: Any) -> Any:
    """Return an array of Python's numbers as one of floats; anything else as it is."""
    if array.dtype != object:
        return array
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        return array


# ------------------------------------------------------------------------------ arrays of one file


def from_arrays(arrays: dict[str, np.ndarray], kind: str | None, target: str | None, name: str) -> Dataset:
    """Return the arrays of an ``.npz`` file as a data set; the keys tell which is what."""
    if kind in (None, "ratings", "table") and target is None:
        matrix = _guarded(sparse_from, arrays, name)
        if matrix is not None:
            return from_memory(matrix, kind or "ratings", None, name)
    if target is not None and target not in arrays:
        raise errors.unknown("load", "array", target, arrays, f"{name}.npz holds no other.")
    key = target or next((k for k in _Y_KEYS if k in arrays), None)
    if "edge_index" in arrays and kind in (None, "graph", "graphs"):
        graph = _ArraysOf(arrays, key)
        allow(f"{name}.npz", 8 * graph.claimed, of=sum(array.nbytes for array in arrays.values()))
        if kind == "graph" or (kind is None and "batch" not in arrays):
            return from_memory(graph, "graph", None, name)
        union = kinds.check_graph(graph, "load", features=False)
        graphs = divided(union, arrays.get("batch"), "load")
        return _labelled(graphs, union.y, "graphs", name, False)
    if {"x_train", "x_test"} <= set(arrays):
        return _with_split(arrays, kind, name)
    rest = {k: v for k, v in arrays.items() if k != key}
    y: Any = arrays[key] if key else None
    lengths = rest.get("lengths")
    X = _examples(rest, kind, name)
    if y is not None and lengths is not None and y.ndim == 1 and len(y) == lengths.sum() != len(lengths):
        y = concatenated(y, lengths, "load")  # one label per step
    return _labelled(X, y, kind, name, lengths is not None)


class _ArraysOf:
    """Arrays of a file as the fields of a graph."""

    edge_index: np.ndarray

    def __init__(self, arrays: dict[str, np.ndarray], target: str | None):
        self.__dict__.update(arrays)
        self.y = arrays[target] if target else None
        self.num_nodes = int(arrays["num_nodes"]) if "num_nodes" in arrays else None

    @property
    def claimed(self) -> int:
        """The number of nodes that these arrays claim."""
        numbers = self.edge_index.dtype.kind in "iu" and self.edge_index.size
        return max(int(self.num_nodes or 0), int(self.edge_index.max()) + 1 if numbers else 0)


def _examples(arrays: dict[str, np.ndarray], kind: str | None, name: str) -> Any:
    key = next((k for k in _X_KEYS if k in arrays), None)
    if key and "lengths" in arrays:
        return concatenated(arrays[key], arrays["lengths"], "load")
    if key:
        return arrays[key]
    if kind in ("sequence", "set", "image"):
        return list(arrays.values())
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    do = "Save the data under the key X, or pass kind='sequence' if every array is an example."
    raise errors.value("load", f"{name}.npz must have an array X", ", ".join(arrays) or "only a target", do)


def _with_split(arrays: dict[str, np.ndarray], kind: str | None, name: str) -> Dataset:
    try:
        X = np.concatenate([arrays["x_train"], arrays["x_test"]])
        y = np.concatenate([arrays["y_train"], arrays["y_test"]]) if "y_train" in arrays else None
    except (KeyError, ValueError) as error:
        must = f"x_train, y_train, x_test and y_test of {name}.npz must fit together"
        raise errors.value("load", must, str(error)[:120]) from error
    n = len(arrays["x_train"])
    extra = {"split": (np.arange(n), np.arange(n, len(X)))}
    return replace(_labelled(X, y, kind, name, False), extra=extra)


def _labelled(X: Any, y: Any, kind: str | None, name: str, cut: bool) -> Dataset:
    kind = kind or ("sequence" if cut else None)
    dataset = from_memory(X, kind, None, name)
    return dataset if y is None else with_target(dataset, y)


def with_target(dataset: Dataset, y: Any) -> Dataset:
    """Return the data with this target: an array, a list, or one list of labels per sequence."""
    if isinstance(y, str):
        must = f"y must have one entry per example ({len(dataset)})"
        raise errors.value("load", must, f"the string {y!r}", f"A column is named by target={y!r}.")
    uneven = isinstance(y, list | tuple) and len({np.shape(part) for part in y}) > 1
    y = list(y) if uneven else as_array(y)  # labels of the steps of sequences stay a list
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1 and dataset.kind in ("table", "text", "image", "graph"):
        y = y[:, 0]  # a frame of one column
    if getattr(y, "ndim", 1) == 0 or len(y) != len(dataset):
        must = f"the target must have one entry per example ({len(dataset)})"
        raise errors.value("load", must, f"shape {y.shape}" if hasattr(y, "shape") else len(y))
    if dataset.kind == "graph":
        return replace(dataset, X=replace(dataset.X, y=y), y=y)
    labelled, absent = replace(dataset, y=y), _absent(y)
    if not absent.any():
        return labelled
    rows = tables.with_target_only(~absent, "" if dataset.name == "data" else dataset.name, "a target")
    found = subset(replace(labelled, extra={**dataset.extra, "rows": np.arange(len(y))}), rows)
    return replace(found, y=np.asarray(found.y.tolist())) if y.dtype == object else found


def _absent(y: Any) -> np.ndarray:
    """Return which entries of a target of one axis are None, NaN or NaT; those of others are the model's affair."""
    if getattr(y, "ndim", 0) != 1 or y.dtype.kind not in "fOM":
        return np.zeros(len(y), dtype=bool)
    import pandas as pd

    return np.asarray(pd.isna(y))


def _guarded(function: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    try:
        return function(arrays)
    except errors.Refused:
        raise
    except Exception as error:  # whatever inconsistent arrays make scipy raise
        must = f"{name}.npz must be a sparse matrix as scipy.sparse.save_npz writes it"
        raise errors.value("load", must, f"{type(error).__name__}: {error}"[:160]) from error
