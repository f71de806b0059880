"""Graphs: what one is, and the validation of inputs of the graph models.

A graph is anything with ``edge_index`` of shape ``(2, E)`` and ``x`` or ``num_nodes``, such as the
``Data`` of PyTorch Geometric, or a networkx graph, whose node attributes ``x`` and ``y`` and edge
attribute ``weight`` are read. Models compute with ``edge_weight``; other features of edges, ``edge_attr``, are kept
for those who ask for them. :func:`check_graph` turns all of them into a :class:`Graph` of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from corollary import errors
from corollary.data.arrays import as_array
from corollary.data.labels import names_to_keep

__all__ = ["Graph", "both_ways", "check_graph", "check_graphs", "divided", "from_networkx"]

_MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph as arrays, with the field names of PyTorch Geometric's ``Data``.

    Parameters
    ----------
    x : ndarray or scipy sparse matrix of shape (n, d), optional
        Node features.
    edge_index : ndarray of shape (2, E)
        Sources and targets. An undirected edge is listed in both directions.
    y : ndarray, optional
        One label or number per node, or one for the graph.
    edge_weight : ndarray of shape (E,), optional
        Weights of the edges; 1 if absent.
    edge_attr : ndarray of shape (E, k), optional
        Features of the edges.
    train_mask, val_mask, test_mask : boolean ndarrays of shape (n,), optional
        Which nodes are for what.
    num_nodes : int, optional
        Number of nodes; read from ``x``, else the largest end of an edge decides.
    nodes : ndarray of shape (n,), optional
        Names of the nodes, strings or integers.
    """

    x: Any
    edge_index: np.ndarray
    y: Any = None
    edge_weight: np.ndarray | None = None
    edge_attr: np.ndarray | None = None
    train_mask: np.ndarray | None = None
    val_mask: np.ndarray | None = None
    test_mask: np.ndarray | None = None
    num_nodes: int | None = None
    nodes: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.num_nodes is None:
            object.__setattr__(self, "num_nodes", _count_nodes(self.x, self.edge_index))

    @property
    def num_edges(self) -> int:
        """The number of directed edges."""
        return int(self.edge_index.shape[1])

    @property
    def num_features(self) -> int:
        """The width of ``x``; 0 without features."""
        return 0 if self.x is None else int(self.x.shape[1])

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges, {self.num_features} features)"


def _count_nodes(x: Any, edge_index: np.ndarray) -> int:
    if x is not None:
        return int(x.shape[0])
    return int(edge_index.max()) + 1 if edge_index.size else 0


# ------------------------------------------------------------------------------------ validation


def check_graph(
    X: Any, owner: str, *, features: bool = True, labels: bool = False, dimension: int | None = None
) -> Graph:
    """Return one graph as arrays, or say what is wrong with it.

    Parameters
    ----------
    X : Graph, PyTorch Geometric Data, networkx graph, or anything with those fields
        The graph.
    owner : str
        Name of the estimator, used at the start of error messages.
    features : bool, default=True
        Whether node features ``x`` are needed.
    labels : bool, default=False
        Whether one ``y`` per node is needed.
    dimension : int, optional
        The width that ``x`` must have.

    Returns
    -------
    Graph
        ``x`` float (CSR if it came sparse), ``edge_index`` int64, masks boolean.
    """
    X = from_networkx(X, owner) if _is_networkx(X) else X
    if not hasattr(X, "edge_index") or X.edge_index is None:
        must = "a graph must have edge_index (2, E) and x, or be a networkx graph"
        raise errors.kind(owner, must, type(X).__name__, "Make one with corollary.data.Graph(x, edge_index).")
    x = _features(getattr(X, "x", None), owner, features, dimension)
    edge_index = _edges(X.edge_index, owner)
    told = getattr(X, "num_nodes", None) if x is None else None
    n = int(told or _count_nodes(x, edge_index))
    _check_range(edge_index, n, owner)
    y = _targets(getattr(X, "y", None), n, owner, labels)
    weight = _per_edge(getattr(X, "edge_weight", None), "edge_weight", edge_index, owner)
    attr = _per_edge(getattr(X, "edge_attr", None), "edge_attr", edge_index, owner)
    masks = {name: _mask(getattr(X, name, None), name, n, owner) for name in _MASKS}
    return Graph(x, edge_index, y, weight, attr, **masks, num_nodes=n, nodes=_names(X, n, owner))


def _names(X: Any, n: int, owner: str) -> np.ndarray | None:
    """Return the names of the nodes of a graph of ours."""
    names = X.nodes if isinstance(X, Graph) else None
    if names is not None and len(names) != n:
        raise errors.value(owner, f"the graph must have one name per node ({n})", len(names))
    return names


def check_graphs(X: Any, owner: str, *, features: bool = True, dimension: int | None = None) -> list[Graph]:
    """Return a list of graphs, or a ``Batch`` of PyTorch Geometric, as arrays; with features, of the same width."""
    X = X.to_data_list() if hasattr(X, "to_data_list") else X
    if _is_networkx(X) or hasattr(X, "edge_index") or isinstance(X, str) or not isinstance(X, Iterable):
        raise errors.kind(
            owner, "X must be a list of graphs", type(X).__name__, "Wrap a single graph in a list."
        )
    graphs = [check_graph(g, f"{owner}: graph {i}", features=features) for i, g in enumerate(X)]
    if not graphs:
        do = "Pass a list of corollary.data.Graph, of Data of PyTorch Geometric or of networkx graphs."
        raise errors.value(owner, "X must hold at least one graph", "an empty list", do)
    width = graphs[0].num_features if dimension is None else dimension
    for i, graph in enumerate(graphs):
        if features and graph.num_features != width:
            must = f"every graph must have {width} node features"
            do = "Give the nodes of all graphs the same features, or pad them with zeros."
            raise errors.value(owner, must, f"{graph.num_features} in graph {i}", do)
    return graphs


def _features(x: Any, owner: str, needed: bool, dimension: int | None) -> Any:
    if x is None:
        if needed:
            do = "Set x, for instance to np.eye(n) or to the node degrees."
            raise errors.value(owner, "the graph must have node features x (n, d)", "none", do)
        return None
    sparse = _as_csr(x)
    array = as_array(x) if sparse is None else sparse
    if array.ndim != 2:
        raise errors.value(owner, "node features x must have shape (n, d)", f"shape {array.shape}")
    if array.shape[0] == 0:
        raise errors.value(owner, "the graph must have at least one node", "0 nodes")
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float32)
    if not np.isfinite(array if sparse is None else array.data).all():
        raise errors.value(owner, "node features must be finite", "NaN or infinity", "Impute them first.")
    if dimension is not None and array.shape[1] != dimension:
        do = "Pass the features that the model was fitted with."
        raise errors.value(owner, f"node features must have width {dimension}", f"width {array.shape[1]}", do)
    return array


def _as_csr(x: Any) -> Any:
    """Return scipy's or torch's sparse matrix in canonical CSR form, and None for anything else."""
    if hasattr(x, "tocsr"):
        matrix = x.tocsr()
    elif str(getattr(x, "layout", "torch.strided")) != "torch.strided":
        from scipy.sparse import csr_matrix

        entries = x.detach().cpu().to_sparse_coo().coalesce()
        matrix = csr_matrix(
            (as_array(entries.values()), tuple(as_array(entries.indices()))), shape=tuple(x.shape)
        )
    else:
        return None
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _edges(edge_index: Any, owner: str) -> np.ndarray:
    edges = as_array(edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2:
        turned = edges.ndim == 2 and edges.shape[1] == 2
        do = "Pass edge_index.T." if turned else "Row 0 holds the sources, row 1 the targets."
        raise errors.value(owner, "edge_index must have shape (2, E)", f"shape {edges.shape}", do)
    if not (np.issubdtype(edges.dtype, np.integer) or edges.size == 0):
        raise errors.kind(
            owner, "edge_index must hold integers", str(edges.dtype), "Use edge_index.astype(int)."
        )
    return np.ascontiguousarray(edges, dtype=np.int64)


def _check_range(edges: np.ndarray, n: int, owner: str) -> None:
    if n == 0:
        raise errors.value(owner, "the graph must have at least one node", "0 nodes")
    bad = np.flatnonzero((edges < 0).any(0) | (edges >= n).any(0))
    if bad.size:
        a, b = edges[:, bad[0]]
        must = f"edges must join nodes 0 to {n - 1} (there are {n})"
        do = "Number the nodes from 0, and give x a row for each."
        raise errors.value(owner, must, f"edge {bad[0]} from {a} to {b}", do)


def _targets(y: Any, n: int, owner: str, needed: bool) -> np.ndarray | None:
    array = None if y is None else as_array(y)
    if needed and (array is None or array.ndim == 0 or array.shape[0] != n):
        got = "none" if array is None else f"shape {array.shape}"
        raise errors.value(owner, f"the graph must have one y per node ({n})", got)
    return array


def _per_edge(values: Any, name: str, edges: np.ndarray, owner: str) -> np.ndarray | None:
    if values is None:
        return None
    array = as_array(values)
    if array.ndim == 0 or array.shape[0] != edges.shape[1]:
        must = f"{name} must have one row per edge ({edges.shape[1]})"
        raise errors.value(owner, must, f"shape {array.shape}")
    if name == "edge_weight":
        array = array.reshape(len(array), -1)[:, 0] if array.ndim > 1 and array.size == len(array) else array
        if array.ndim != 1 or not np.isfinite(array.astype(float)).all():
            got = f"shape {array.shape}" if array.ndim != 1 else "NaN or infinity"
            raise errors.value(owner, "edge_weight must be one finite number per edge", got)
        array = array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float32)
    return array


def _mask(values: Any, name: str, n: int, owner: str) -> np.ndarray | None:
    if values is None:
        return None
    mask = as_array(values)
    if mask.dtype != bool:
        do = f"Use {name}.astype(bool), or np.isin(np.arange({n}), indices) for the numbers of nodes."
        raise errors.kind(owner, f"{name} must be boolean", str(mask.dtype), do)
    if mask.shape[:1] != (n,):
        raise errors.value(owner, f"{name} must have one entry per node ({n})", f"shape {mask.shape}")
    return mask


# ----------------------------------------------------------------------------------- conversions


def divided(graph: Graph, batch: Any, owner: str) -> list[Graph]:
    """Return the graphs of a union; ``batch`` (n,) says which one each node belongs to, from 0 on."""
    of = as_array(batch)
    if of.shape != (graph.num_nodes,) or not np.issubdtype(of.dtype, np.integer):
        must = f"batch must have the number of a graph for every node ({graph.num_nodes})"
        raise errors.value(owner, must, f"shape {of.shape} of {of.dtype}")
    if of.min() < 0 or of.max() >= len(of) or not np.bincount(of).all():
        raise errors.value(owner, "batch must number the graphs from 0, each with a node", np.unique(of))
    crossing = np.flatnonzero(of[graph.edge_index[0]] != of[graph.edge_index[1]])
    if crossing.size:
        a, b = of[graph.edge_index[:, crossing[0]]]
        raise errors.value(
            owner, "edges must stay inside a graph", f"edge {crossing[0]} from graph {a} to {b}"
        )
    owner_of_edge, counts = of[graph.edge_index[0]], np.bincount(of)
    place = np.argsort(np.argsort(of, kind="stable"))  # where a node stands once they are sorted by graph
    edges = place[graph.edge_index] - (np.cumsum(counts) - counts)[owner_of_edge]

    def parts(values: Any, key: np.ndarray) -> list[Any]:
        if values is None:
            return [None] * len(counts)
        order, ends = np.argsort(key, kind="stable"), np.cumsum(np.bincount(key, minlength=len(counts)))
        return [values[rows] for rows in np.split(order, ends[:-1])]

    fields = (parts(graph.x, of), parts(edges.T, owner_of_edge))
    weights, attributes = (parts(v, owner_of_edge) for v in (graph.edge_weight, graph.edge_attr))
    return [
        Graph(x, np.ascontiguousarray(ends.T), edge_weight=weight, edge_attr=attr, num_nodes=int(n))
        for x, ends, weight, attr, n in zip(*fields, weights, attributes, counts)
    ]


def _is_networkx(X: Any) -> bool:
    return hasattr(X, "adj") and callable(getattr(X, "is_directed", None)) and hasattr(X, "nodes")


def from_networkx(G: Any, owner: str = "from_networkx") -> Graph:
    """Return a networkx graph as arrays; its nodes are numbered in the order of ``G.nodes``, and keep their names.

    The node attribute ``x`` holds features, ``y`` a label (a node without one is unlabelled), ``train_mask`` and its like
    whether a node is for that (no, if absent), and the edge attribute ``weight`` a weight (1 if absent). An undirected
    edge is listed in both directions, a loop once, and parallel edges of a multi-graph one by one.
    """
    if len(G) == 0:
        raise errors.value(owner, "the graph must have at least one node", "0 nodes")
    place = {node: i for i, node in enumerate(G.nodes)}
    ends = np.array([(place[a], place[b]) for a, b in G.edges()], dtype=np.int64).reshape(-1, 2).T
    weight = _edge_weights(G, owner)
    if not G.is_directed():
        turned = ends[0] != ends[1]
        ends = np.concatenate([ends, ends[::-1, turned]], axis=1)
        order = np.lexsort(ends[::-1])
        ends = ends[:, order]
        weight = None if weight is None else np.concatenate([weight, weight[turned]])[order]
    masks = {name: _node_mask(G, name) for name in _MASKS}
    names = names_to_keep(G.nodes)
    features, labels = _node_features(G, owner), _node_labels(G)
    return Graph(features, ends, labels, weight, **masks, num_nodes=len(place), nodes=names)


def _edge_weights(G: Any, owner: str) -> np.ndarray | None:
    given = [attributes.get("weight") for _, _, attributes in G.edges(data=True)]
    if all(w is None for w in given):
        return None
    try:
        return np.array([1.0 if w is None else float(w) for w in given], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise errors.kind(owner, "the edge attribute 'weight' must be a number", str(error)) from error


def _node_features(G: Any, owner: str) -> np.ndarray | None:
    values = [attributes.get("x") for _, attributes in G.nodes(data=True)]
    have = sum(v is not None for v in values)
    if have == 0:
        return None
    if have < len(values):
        must = "every node must have the attribute 'x', or none"
        raise errors.value(owner, must, f"{have} of {len(values)} nodes")
    try:
        rows = [as_array(v).astype(np.float32) for v in values]
    except (TypeError, ValueError) as error:
        do = "Make them numbers first, for instance one indicator per category."
        raise errors.kind(owner, "the node attribute 'x' must hold numbers", str(error), do) from error
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        got = f"shapes {shapes[0]} and {shapes[1]}"
        raise errors.value(owner, "the node attribute 'x' must have one shape", got)
    return np.stack(rows).reshape(len(rows), -1)


def _node_labels(G: Any) -> np.ndarray | None:
    values = [attributes.get("y") for _, attributes in G.nodes(data=True)]
    if any(v is None for v in values):
        return None if all(v is None for v in values) else np.array(values, dtype=object)
    return np.array(values)


def _node_mask(G: Any, name: str) -> np.ndarray | None:
    values = [attributes.get(name) for _, attributes in G.nodes(data=True)]
    return None if all(v is None for v in values) else np.array([bool(v) for v in values])


def both_ways(edges: np.ndarray, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return each edge once per direction, sorted; where one is given twice the last weight counts.

    >>> both_ways(np.array([[0, 1, 2], [1, 0, 2]]))[0]
    array([[0, 1, 2],
           [1, 0, 2]])
    """
    n = int(edges.max()) + 1 if edges.size else 1
    forward, backward = edges[0] * n + edges[1], edges[1] * n + edges[0]
    # np.unique keeps the first of equals: as written before turned round, last before first.
    keys = np.concatenate([forward[::-1], backward[::-1]])
    kept, where = np.unique(keys, return_index=True)
    twice = None if weight is None else np.concatenate([weight[::-1], weight[::-1]])[where]
    return np.stack([kept // n, kept % n]), twice
