"""Files of graphs: edge lists and GraphML.

An edge list has one edge per line, ``source target [weight]``, between commas, semicolons or tabs if the first
line has one, else between blanks (so that ``Ann Li,Bob`` is one edge). A header may name the columns in any order,
further ones are left alone; ``Type``, as Gephi writes it, says whether an edge is directed. A line with one name is a node
without edges. What ``networkx.write_edgelist`` puts behind an edge, ``{'weight': 2}``, is its weight. Lines that begin with
``#`` or ``%`` are comments; one that says "directed graph" makes it one, and otherwise it is undirected unless ``directed``
says so. The distinct ids, sorted, are the nodes (in ``extra["nodes"]``).
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corollary import errors
from corollary.data.dataset import Dataset
from corollary.data.graphs import Graph, both_ways, from_networkx
from corollary.data.labels import names_to_keep
from corollary.data.limits import allow
from corollary.data.texts import decode

__all__ = ["Edges", "attributed", "by_heading", "edges_of", "graph_of", "read_edges", "read_graphml"]

_HEADERS = {"source", "src", "from", "node1", "u", "id1", "sourcenodeid"}
_ENDS = {"target", "dst", "to", "node2", "v", "id2", "targetnodeid"}
_WEIGHTS = {"weight", "w", "value"}
_ATTRIBUTES = re.compile(r"^(.*?)[\s,;]*\{([^{}]*)\}\s*$")
_WEIGHT = re.compile(r"""['"]weight['"]\s*:\s*([^,]+)""")
_DIRECTED = re.compile(r"\b(un)?directed\b", re.IGNORECASE)


class Edges(NamedTuple):
    """What a list of edges says: ends and lone nodes by name, weights, and which edges go one way only."""

    pairs: list[list[str]]
    alone: list[str]
    weights: list[str] | None
    one_way: np.ndarray


def read_edges(path: Path, directed: bool | None = None) -> Dataset:
    """Read an edge list as a graph without features."""
    found = edges_of(decode(path), path.name, directed)
    ids, nodes = _numbered(found, path.name)
    graph = graph_of(ids, len(nodes), found, path.name, names=nodes)
    return Dataset(graph, kind="graph", name=path.stem, source=str(path), extra={"nodes": nodes})


def graph_of(ids: np.ndarray, n: int, found: Edges, name: str, names: Any = None) -> Graph:
    """Return the graph of numbered edges: each both ways, but for those that go one way only."""
    weight = None if found.weights is None else _weights(found.weights, name)
    if not found.one_way.any():
        edges, weight = both_ways(ids, weight)
    else:
        turned = ~found.one_way & (ids[0] != ids[1])
        edges = np.concatenate([ids, ids[::-1, turned]], axis=1)
        weight = None if weight is None else np.concatenate([weight, weight[turned]])
    return Graph(None, edges, edge_weight=weight, num_nodes=n, nodes=names_to_keep(names))


def edges_of(text: str, name: str, directed: bool | None = None) -> Edges:
    """Return the edges of a text."""
    lines = [line for line in text.splitlines() if line.strip()]
    comments = [line for line in lines if line.strip()[0] in "#%"]
    said = _DIRECTED.search(" ".join(comments))
    if directed is None and said:
        directed = said.group(1) is None
    rows, behind = _rows([line for line in lines if line.strip()[0] not in "#%"])
    if rows and rows[0][0].lower() in _HEADERS:
        return by_heading(rows, name, directed)
    pairs: list[list[str]] = []
    alone, weights = [], []
    first = len(rows[0]) if rows else 0
    for number, (row, more) in enumerate(zip(rows, behind), 1):
        if len(row) == 1 != first:
            alone.append(row[0])
            continue
        if len(row) != first or len(row) not in (2, 3):
            must = f"every edge of {name} must be 'source target' or 'source target weight'"
            raise errors.value("load", must, f"{len(row)} fields in edge {number}")
        pairs.append(row[:2])
        weights.append(row[2] if len(row) == 3 else more)
    if not pairs:
        raise errors.value("load", f"{name} must have at least one edge", "none")
    known = [weight or "1" for weight in weights] if any(weights) else None
    return Edges(pairs, alone, known, np.full(len(pairs), bool(directed)))


def _rows(lines: list[str]) -> tuple[list[list[str]], list[str]]:
    """Return the fields of every line, and the weight in the attributes behind each, if it has any.

    Fields lie between commas, semicolons or tabs if the first line has one, else between blanks.
    """
    parts = [match.groups() if (match := _ATTRIBUTES.match(line)) else (line, "") for line in lines]
    first = parts[0][0] if parts else ""
    separator = next((sign for sign in "\t,;" if sign in first), None)
    found = [(m.group(1).strip() if (m := _WEIGHT.search(more)) else "") for _, more in parts]
    plain = [line for line, _ in parts]
    if separator is None:
        return [line.split() for line in plain], found
    rows = csv.reader(plain, delimiter=separator, skipinitialspace=True)
    return [[field.strip() for field in row] for row in rows], found


def by_heading(rows: list[list[str]], name: str, directed: bool | None) -> Edges:
    """Return edges whose first row names the columns; an edge without a second end is a node alone."""
    heading = [field.lower() for field in rows[0]]

    def column(words: set[str], otherwise: int | None) -> Any:
        return next((i for i, word in enumerate(heading) if word in words), otherwise)

    begin, end, kind = column(_HEADERS, 0), column(_ENDS, 1), column({"type"}, None)
    weight = column(_WEIGHTS, 2 if len(heading) == 3 and kind is None else None)
    if len(rows) < 2:
        raise errors.value("load", f"{name} must have at least one edge", "none")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(heading):
            must = f"every edge of {name} must have the {len(heading)} fields of the header"
            raise errors.value("load", must, f"{len(row)} fields in edge {number}")
    kept = [row for row in rows[1:] if row[end] or not row[begin]]
    told = directed is not None or kind is None
    return Edges(
        [[row[begin], row[end]] for row in kept],
        [row[begin] for row in rows[1:] if row[begin] and not row[end]],
        None if weight is None else [row[weight] or "1" for row in kept],
        np.array([bool(directed) if told else row[kind].lower() == "directed" for row in kept], dtype=bool),
    )


def _numbered(found: Edges, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends (2, E) as numbers, and the ids, sorted; integers are sorted as such."""
    pairs, listed = found.pairs, [*(node for pair in found.pairs for node in pair), *found.alone]
    width = max(len(node) for node in listed)  # an array of strings is as wide as the longest
    allow(name, 8 * width * len(pairs), of=sum(map(len, listed)))
    ids: Any = np.array(listed)
    if "" in ids:
        raise errors.value("load", f"every edge of {name} must have two ends", "an empty id")
    if all(re.fullmatch("[+-]?[0-9]{1,18}", node) for node in listed):  # otherwise they are names
        ids = ids.astype(np.int64)
        if ids.min() < 0:
            raise errors.value("load", f"node numbers of {name} must not be negative", f"{ids.min()}")
    nodes, places = np.unique(ids, return_inverse=True)
    return places[: 2 * len(pairs)].reshape(-1, 2).T.astype(np.int64), nodes


def _weights(fields: list[str], name: str) -> np.ndarray:
    try:
        weight = np.array(fields, dtype=np.float64).astype(np.float32)
    except ValueError as error:
        raise errors.value("load", f"edge weights of {name} must be numbers", str(error)[:80]) from error
    if not np.isfinite(weight).all():
        raise errors.value("load", f"edge weights of {name} must be finite", "NaN or infinity")
    return weight


def read_graphml(path: Path, target: str | None = None) -> Dataset:
    """Read a GraphML or GML file: numeric node attributes become ``x``, ``target`` names the one for ``y``."""
    try:
        import networkx as nx
    except ImportError as error:
        raise errors.missing("load", "networkx", "graphs") from error
    read, what = (nx.read_gml, "GML") if path.suffix.lower() == ".gml" else (nx.read_graphml, "GraphML")
    try:
        G = read(path)
    except Exception as error:  # whatever the bytes make the XML parser or networkx raise
        got = f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]
        raise errors.value("load", f"{path.name} must be a {what} file", got) from error
    if G.number_of_nodes() == 0:
        raise errors.value("load", f"{path.name} must have at least one node", "none")
    graph, columns = attributed(G, target, "load", path.name)
    extra = {"nodes": np.array([str(node) for node in G.nodes])}
    return Dataset(graph, graph.y, "graph", path.stem, columns or None, source=str(path), extra=extra)


def attributed(G: Any, target: str | None, owner: str, name: str) -> tuple[Graph, list[str]]:
    """Return a networkx graph with one node attribute as y and all numeric ones as features, and the names of those.

    An attribute ``x`` holds all features where there is one.
    """
    attributes = list(dict.fromkeys(key for _, values in G.nodes(data=True) for key in values))
    if target is not None and target not in attributes:
        raise errors.unknown(owner, "node attribute", target, [str(key) for key in attributes])
    masks = ("train_mask", "val_mask", "test_mask")
    columns = [
        a
        for a in attributes
        if a != target and "x" not in attributes and a not in masks and _is_number_everywhere(G, a, name)
    ]
    plain = G.copy()
    for (_, values), (_, given) in zip(plain.nodes(data=True), G.nodes(data=True)):
        kept = {key: given[key] for key in ("x", *masks) if key in given}
        values.clear()
        values.update(kept | ({"x": [float(given[c]) for c in columns]} if columns else {}))
        if target is not None:
            values["y"] = given.get(target)
    return from_networkx(plain, owner), [str(c) for c in columns]


def _is_number_everywhere(G: Any, attribute: str, name: str) -> bool:
    values = [value.get(attribute) for _, value in G.nodes(data=True)]
    if not all(v is None or isinstance(v, int | float) for v in values):
        return False
    if None in values:
        must = f"numeric attribute {attribute!r} of {name} must be given for every node"
        raise errors.value("load", must, f"{values.count(None)} nodes without it")
    return True
