"""A graph as two tables: one of nodes with what is known of them, one of edges between them.

The node table has the ids in a column called ``id``, ``node`` or ``name``, or else in its first one. The other columns are
features, read like those of any table and scaled; ``target`` names the one to predict, where a gap means that the label
is not known. Columns called ``train_mask``, ``val_mask`` and ``test_mask`` are that. Every node counts, also without edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data import tables
from corollary.data.columns import as_columns, learn_columns
from corollary.data.dataset import Dataset
from corollary.data.edges import Edges, by_heading, edges_of, graph_of
from corollary.data.folders import files_in
from corollary.data.graphs import Graph
from corollary.data.labels import names_to_keep
from corollary.data.texts import decode

__all__ = ["from_frames", "node_files", "read_nodes_and_edges"]

_IDS = ("id", "node", "name", "node_id", "nodeid")
_NODES, _EDGES = ("nodes", "node", "vertices"), ("edges", "edge", "links", "edgelist")
_MASKS = ("train_mask", "val_mask", "test_mask")
_SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".edges", ".edgelist")


def node_files(folder: Path) -> tuple[Path, Path] | None:
    """Return the files of nodes and of edges in a folder, if it has both."""
    files = {file.stem.lower(): file for file in files_in(folder, _SUFFIXES)}
    found = [next((files[stem] for stem in stems if stem in files), None) for stems in (_NODES, _EDGES)]
    return None if None in found else (found[0], found[1])  # type: ignore[return-value]


def read_nodes_and_edges(
    nodes: Path, edges: Path, target: str | None, reading: Mapping[str, Any], directed: bool | None = None
) -> Dataset:
    """Read both files as one graph."""
    frame, _ = tables.read_frame(nodes)
    found = edges_of(decode(edges), edges.name, directed)
    name = nodes.parent.name or "graph"
    return _graph(frame, found, target, reading, name, str(nodes.parent))


def from_frames(nodes: Any, edges: Any, target: str | None, directed: bool | None = None) -> Dataset:
    """Return a frame of nodes and one of edges as one graph."""
    if edges.shape[1] < 2:
        raise errors.value("load", "a table of edges must have two columns of nodes", f"shape {edges.shape}")
    known = [["" if gap else _written(v) for v, gap in zip(edges[c], edges[c].isna())] for c in edges.columns]
    rows = [[str(name) for name in edges.columns], *map(list, zip(*known))]
    return _graph(nodes, by_heading(rows, "the table of edges", directed), target, {}, "graph", "")


def _written(value: Any) -> str:
    """Return an id as a table of nodes would have it: whole numbers without a point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _graph(
    frame: Any, found: Edges, target: str | None, reading: Mapping[str, Any], name: str, source: str
) -> Dataset:
    key = next((c for word in _IDS for c in frame.columns if str(c).lower() == word), frame.columns[0])
    ids = _ids(frame[key], str(key))
    place = {str(node): i for i, node in enumerate(ids)}
    ends = np.array([[_end(node, place, name) for node in pair] for pair in found.pairs]).reshape(-1, 2).T
    for node in found.alone:
        _end(node, place, name)
    graph = graph_of(ends, len(ids), found, name, names=ids)
    if target is not None and target not in map(str, frame.columns):
        raise errors.unknown("load", "column", target, [str(c) for c in frame.columns])
    y = None if target is None else _labels(frame[next(c for c in frame.columns if str(c) == target)])
    masks = {str(c): _mask(frame[c]) for c in frame.columns if str(c) in _MASKS}
    rest = frame.drop(columns=[c for c in frame.columns if c == key or str(c) in (target, *_MASKS)])
    x, names, learned = _features(rest, reading)
    graph = Graph(
        x, graph.edge_index, y, graph.edge_weight, num_nodes=len(ids), nodes=names_to_keep(ids), **masks
    )
    extra = {"nodes": ids, **({"reading": learned} if learned else {})}
    return Dataset(graph, y, "graph", name, names, source=source, extra=extra)


def _ids(column: Any, name: str) -> np.ndarray:
    if column.isna().any() or column.duplicated().any():
        got = f"{int(column.isna().sum())} missing, {int(column.duplicated().sum())} again"
        raise errors.value("load", f"every node must have an id of its own in column {name!r}", got)
    ids = np.asarray(column)
    return ids if ids.dtype.kind in "iu" else np.array([str(node) for node in ids])


def _end(node: str, place: dict[str, int], name: str) -> int:
    if node not in place:
        do = "Give every node a row in the table of nodes."
        raise errors.value("load", f"the edges of {name} must join nodes of its table", repr(node), do)
    return place[node]


def _labels(column: Any) -> np.ndarray:
    """Return labels with None where there is none; numbers stay numbers where all are known."""
    if not column.isna().any():
        values = np.asarray(column)
        return values if values.dtype.kind in "iuf" else np.array([str(v) for v in values])
    whole = column.dropna()
    number = whole.dtype.kind in "iuf" and (whole == whole.round()).all()
    known = [None if gap else (int(v) if number else str(v)) for v, gap in zip(column, column.isna())]
    return np.array(known, dtype=object)


def _mask(column: Any) -> np.ndarray:
    words = column.astype(str).str.lower().str.strip()
    return np.asarray(words.isin(["1", "1.0", "true", "yes", "t", "y"]))


def _features(frame: Any, reading: Mapping[str, Any]) -> tuple[Any, list[str] | None, dict[str, Any]]:
    """Return the features (n, d) of the nodes, their names, and how they were read; columns of 0 and 1 are not scaled."""
    if not frame.shape[1]:
        return None, None, {}
    table = tables.as_table(frame, "nodes")
    columns = reading.get("node_columns") or learn_columns(
        table.X, table.feature_names, table.extra.get("columns")
    )
    found = as_columns(table, columns, "load")
    x = np.asarray(found.X, dtype=np.float64)
    shift, scale = reading.get("node_scale") or _scale(x)
    x = ((x - np.asarray(shift)) / np.asarray(scale)).astype(np.float32)
    learned = {"node_columns": columns, "node_scale": [[*map(float, shift)], [*map(float, scale)]]}
    return x, [str(c) for c in found.feature_names or ()], learned


def _scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bits = np.isin(x, (0, 1)).all(0)
    spread = x.std(0)
    return np.where(bits, 0.0, x.mean(0)), np.where(bits | (spread == 0), 1.0, spread)
