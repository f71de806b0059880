"""Files of graphs: edge lists and GraphML.

An edge list has one edge per line, ``source target [weight]``, between commas, semicolons or tabs if the first
line has one, else between blanks (so that ``Ann Li,Bob`` is one edge). Lines that begin with ``#`` or ``%`` are
comments. It is read as undirected; for a directed graph use GraphML. The distinct ids, sorted, are the nodes (in
``extra["nodes"]``).
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.graphs import Graph, both_ways, from_networkx
from corollary.data.limits import allow
from corollary.data.texts import decode

__all__ = ["read_edges", "read_graphml"]

_HEADERS = {"source", "src", "from", "node1", "u", "id1", "sourcenodeid"}


def read_edges(path: Path) -> Dataset:
    """Read an edge list as an undirected graph without features."""
    rows = _rows(decode(path))
    if rows and rows[0][0].lower() in _HEADERS:
        rows = rows[1:]
    if not rows:
        raise errors.value("load", f"{path.name} must have at least one edge", "none")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]) or len(row) not in (2, 3):
            must = f"every edge of {path.name} must be 'source target' or 'source target weight'"
            raise errors.value("load", must, f"{len(row)} fields in edge {number}")
    edges, nodes = _numbered([row[:2] for row in rows], path.name)
    weight = _weights([row[2] for row in rows], path.name) if len(rows[0]) == 3 else None
    edges, weight = both_ways(edges, weight)
    graph = Graph(None, edges, edge_weight=weight, num_nodes=len(nodes))
    return Dataset(graph, kind="graph", name=path.stem, source=str(path), extra={"nodes": nodes})


def _rows(text: str) -> list[list[str]]:
    """Return the fields of every edge: between commas, semicolons or tabs if the first has one, else between blanks."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] not in "#%"]
    first = lines[0] if lines else ""
    separator = next((sign for sign in "\t,;" if sign in first), None)
    if separator is None:
        return [line.split() for line in lines]
    rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    return [[field.strip() for field in row] for row in rows]


def _numbered(pairs: list[list[str]], name: str) -> tuple[np.ndarray, np.ndarray]:
    width = max(len(node) for pair in pairs for node in pair)  # an array of strings is as wide as the longest
    allow(name, 8 * width * len(pairs), of=sum(len(a) + len(b) for a, b in pairs))
    ids: Any = np.array(pairs)
    if "" in ids:
        raise errors.value("load", f"every edge of {name} must have two ends", "an empty id")
    if all(re.fullmatch("[+-]?[0-9]{1,18}", node) for node in ids.flat):  # otherwise they are names
        ids = ids.astype(np.int64)
        if ids.min() < 0:
            raise errors.value("load", f"node numbers of {name} must not be negative", f"{ids.min()}")
    nodes, places = np.unique(ids, return_inverse=True)
    return places.reshape(ids.shape).T.astype(np.int64), nodes


def _weights(fields: list[str], name: str) -> np.ndarray:
    try:
        weight = np.array(fields, dtype=np.float64).astype(np.float32)
    except ValueError as error:
        raise errors.value("load", f"edge weights of {name} must be numbers", str(error)[:80]) from error
    if not np.isfinite(weight).all():
        raise errors.value("load", f"edge weights of {name} must be finite", "NaN or infinity")
    return weight


def read_graphml(path: Path, target: str | None = None) -> Dataset:
    """Read a GraphML file: numeric node attributes become ``x``, ``target`` names the one for ``y``."""
    try:
        import networkx as nx
    except ImportError as error:
        raise errors.missing("load", "networkx", "graphs") from error
    try:
        G = nx.read_graphml(path)
    except Exception as error:  # whatever the bytes make the XML parser or networkx raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        raise errors.value("load", f"{path.name} must be a GraphML file", got) from error
    if G.number_of_nodes() == 0:
        raise errors.value("load", f"{path.name} must have at least one node", "none")
    attributes = list(dict.fromkeys(key for _, values in G.nodes(data=True) for key in values))
    if target is not None and target not in attributes:
        raise errors.unknown("load", "node attribute", target, attributes)
    columns = [a for a in attributes if a != target and _is_number_everywhere(G, a, path.name)]
    for _, values in G.nodes(data=True):
        features, label = [float(values[c]) for c in columns], values.get(target)
        values.clear()
        values.update({"x": features} if columns else {})
        values.update({"y": label} if target is not None else {})
    graph = from_networkx(G, "load")
    extra = {"nodes": np.array([str(node) for node in G.nodes])}
    return Dataset(graph, graph.y, "graph", path.stem, columns or None, source=str(path), extra=extra)


def _is_number_everywhere(G: Any, attribute: str, name: str) -> bool:
    values = [value.get(attribute) for _, value in G.nodes(data=True)]
    if not all(v is None or isinstance(v, int | float) for v in values):
        return False
    if None in values:
        must = f"numeric attribute {attribute!r} of {name} must be given for every node"
        raise errors.value("load", must, f"{values.count(None)} nodes without it")
    return True
