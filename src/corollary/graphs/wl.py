r"""The Weisfeiler-Lehman test: colour refinement.

Every node begins with a colour (its label, or its degree) and takes, in each round,

.. math:: c_i \leftarrow \mathrm{hash}\big(c_i, \{\!\{ (e_{ij}, c_j) : j \to i \}\!\}\big), \tag{1}

with the label :math:`e_{ij}` of the edge, where edges have some.

Isomorphic graphs have equal colour histograms in every round; the converse fails, for instance for a ring of six
and two rings of three. No message-passing network tells apart what (1) does not. The number of equal pairs of
colours over all rounds is a kernel between graphs,

.. math:: k(G, G') = \sum_{t=0}^{T} \sum_c n_t(c, G)\, n_t(c, G'). \tag{2}

Colours are 64-bit hashes, the same in every call; two different ones collide with probability
:math:`2^{-64}` per pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from corollary.data.graphs import Graph, check_graphs
from corollary.errors import kind, value

__all__ = ["colour_refinement", "weisfeiler_lehman", "weisfeiler_lehman_kernel"]


class Union(NamedTuple):
    """Several graphs as one: neighbours of node v are ``index[start[v]:start[v + 1]]``."""

    start: np.ndarray
    index: np.ndarray
    offsets: np.ndarray  # where each graph's nodes begin
    # of the edges, in the order of ``index``; empty for none
    labels: np.ndarray = np.empty(0, dtype=np.uint64)


def weisfeiler_lehman(
    graphs: Any, iterations: int = 3, *, labels: Any = None, edge_labels: Any = None
) -> Any:
    """Return a hash of each graph that isomorphic graphs share.

    Parameters
    ----------
    graphs : graph or list of graphs
        networkx graphs, PyTorch Geometric ``Data`` or ``corollary.data.Graph``.
    iterations : int, default=3
        Rounds of refinement; more tell more graphs apart, up to the number of nodes.
    labels : list of arrays of int, optional
        Colours to begin with, one array per graph (or one array for a single graph); degrees by default.
    edge_labels : str or list of arrays of int, optional
        Labels of the edges: the name of an attribute of networkx's edges, whatever its values, or one array per graph
        (or one for a single graph) in the order of ``edge_index``. Without ``labels``, all nodes then begin alike.

    Returns
    -------
    ndarray of uint64 of shape (n_graphs,), or one int for a single graph

    Notes
    -----
    Cost O(iterations * edges). networkx counts the degrees as the first iteration, we do not. A directed
    edge tells its target of its source.

    References
    ----------
    .. [1] B. Weisfeiler, A. Lehman (1968). A reduction of a graph to a canonical form and an algebra arising
       during this reduction.

    Examples
    --------
    >>> import networkx as nx
    >>> from corollary.graphs import weisfeiler_lehman
    >>> ring, triangles = nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    >>> weisfeiler_lehman(ring) == weisfeiler_lehman(triangles), weisfeiler_lehman(ring) == weisfeiler_lehman(nx.path_graph(6))
    (True, False)
    """
    alone = _is_one(graphs)
    labels, edge_labels = (
        part if part is None or isinstance(part, str) or not alone else [part]
        for part in (labels, edge_labels)
    )
    hashes = _refined([graphs] if alone else graphs, iterations, labels, edge_labels)[2]
    return int(hashes[0]) if alone else hashes


def colour_refinement(
    graph: Any, iterations: int = 3, *, labels: Any = None, edge_labels: Any = None
) -> np.ndarray:
    """Return the colours of a graph's nodes in every round, eq. 1.

    Parameters
    ----------
    graph : graph
        One graph.
    iterations : int, default=3
        Rounds.
    labels : array of int of shape (n,), optional
        Colours to begin with; degrees by default.
    edge_labels : str or array of int of shape (E,), optional
        Labels of the edges, as in :func:`weisfeiler_lehman`.

    Returns
    -------
    ndarray of uint64 of shape (iterations + 1, n)
    """
    edges = edge_labels if edge_labels is None or isinstance(edge_labels, str) else [edge_labels]
    return _refined([graph], iterations, None if labels is None else [labels], edges)[1]


def weisfeiler_lehman_kernel(
    X: Sequence[Any],
    Y: Sequence[Any] | None = None,
    *,
    iterations: int = 3,
    labels: Any = None,
    edge_labels: Any = None,
    normalize: bool = False,
) -> np.ndarray:
    """Return the subtree kernel between graphs, eq. 2, for instance for ``SVC(kernel="precomputed")``.

    Parameters
    ----------
    X, Y : lists of graphs
        Rows and columns; ``Y=None`` takes ``X`` for both.
    iterations : int, default=3
        Rounds of refinement.
    labels : list of arrays of int, optional
        Colours to begin with, of X and then of Y; degrees by default.
    edge_labels : str or list of arrays of int, optional
        Labels of the edges, of X and then of Y, as in :func:`weisfeiler_lehman`.
    normalize : bool, default=False
        Whether to divide by the square root of the graphs' kernels with themselves.

    Returns
    -------
    ndarray of shape (len(X), len(Y))

    References
    ----------
    .. [1] N. Shervashidze et al. (2011). Weisfeiler-Lehman graph kernels. JMLR 12, 2539-2561.

    Examples
    --------
    >>> import networkx as nx
    >>> from corollary.graphs import weisfeiler_lehman_kernel
    >>> weisfeiler_lehman_kernel([nx.cycle_graph(4), nx.path_graph(4)], iterations=1)
    array([[32.,  8.],
           [ 8., 16.]])
    """
    for part in (X, Y):
        if _is_one(part):
            got = type(part).__name__
            raise kind(
                "weisfeiler_lehman_kernel", "X and Y must be lists of graphs", got, "Wrap it in a list."
            )
    rows = list(X)
    everything = rows + (list(Y) if Y is not None else [])
    union, colours, _ = _refined(everything, iterations, labels, edge_labels)
    F = _histograms(colours, union.offsets)
    left, right = F[: len(rows)], F[len(rows) :] if Y is not None else F
    K = np.asarray((left @ right.T).todense(), dtype=np.float64)
    if normalize:
        scale = np.sqrt(np.asarray(F.multiply(F).sum(1)).ravel())
        scale = np.where(scale > 0, scale, 1.0)
        K /= np.outer(scale[: len(rows)], scale[len(rows) :] if Y is not None else scale)
    return K


def _histograms(colours: np.ndarray, offsets: np.ndarray) -> Any:
    """Return how often each graph has each colour of each round, as a sparse matrix."""
    from scipy import sparse

    n = len(offsets) - 1
    owner = np.repeat(np.arange(n), np.diff(offsets))
    blocks = []
    for row in colours:
        found, code = np.unique(row, return_inverse=True)
        ones = np.ones(len(row), dtype=np.float64)
        blocks.append(sparse.csr_matrix((ones, (owner, code)), shape=(n, len(found))))
    return sparse.hstack(blocks, format="csr")


def _refined(
    graphs: Iterable[Any], iterations: int, labels: Any, edge_labels: Any = None
) -> tuple[Union, np.ndarray, np.ndarray]:
    from corollary.graphs.wl_kernels import refine

    if isinstance(iterations, bool) or not isinstance(iterations, int | np.integer) or iterations < 0:
        raise value("weisfeiler_lehman", "iterations must be an integer of at least 0", repr(iterations))
    union = _union(list(graphs), edge_labels)
    colours = np.empty((iterations + 1, len(union.start) - 1), dtype=np.uint64)
    if labels is not None:
        colours[0] = _labels(labels, np.diff(union.offsets), "node")
    else:
        colours[0] = np.diff(union.start) if edge_labels is None else 0
    hashes = np.empty(len(union.offsets) - 1, dtype=np.uint64)
    refine(union.start, union.index, union.offsets, union.labels, colours, hashes)
    return union, colours, hashes


def _labels(labels: Any, sizes: np.ndarray, what: str) -> np.ndarray:
    parts = [np.asarray(part) for part in labels]
    got = [len(part) for part in parts]
    if got != sizes.tolist():
        wrong = next((i for i, (a, b) in enumerate(zip(got, sizes)) if a != b), min(len(got), len(sizes)))
        raise value(
            "weisfeiler_lehman",
            f"there must be one label per {what} of every graph",
            f"a mismatch at graph {wrong}",
        )
    joined = np.concatenate(parts)
    if not np.issubdtype(joined.dtype, np.integer):
        raise kind(
            "weisfeiler_lehman", "labels must be integers", str(joined.dtype), "Number the labels from 0."
        )
    return joined.astype(np.int64).view(np.uint64)


def _is_one(graphs: Any) -> bool:
    return hasattr(graphs, "edge_index") or hasattr(graphs, "adj")


def _union(graphs: list[Any], edge_labels: Any) -> Union:
    simple = bool(graphs) and all(_is_simple_networkx(G) for G in graphs)
    if simple and (edge_labels is None or isinstance(edge_labels, str)):
        return _from_networkx(graphs, edge_labels)
    if edge_labels is not None and (isinstance(edge_labels, str) or any(hasattr(g, "adj") for g in graphs)):
        must = (
            "edge_labels must name an attribute of plain networkx graphs, or be arrays for graphs of arrays"
        )
        raise value("weisfeiler_lehman", must, repr(edge_labels)[:40], "Use corollary.data.Graph and arrays.")
    if graphs and all(isinstance(g, Graph) and _is_plain(g) for g in graphs):
        union, wrong = _from_arrays(graphs, edge_labels)
        if not wrong:
            return union
    return _from_arrays(check_graphs(graphs, "weisfeiler_lehman", features=False), edge_labels)[0]


def _is_plain(g: Graph) -> bool:
    """Whether a graph is already in the form that input validation would give it, but for the range of its edges."""
    edges = g.edge_index
    form = isinstance(edges, np.ndarray) and edges.dtype == np.int64 and edges.ndim == 2 and len(edges) == 2
    return form and bool(g.num_nodes)


def _is_simple_networkx(G: Any) -> bool:
    return hasattr(G, "_adj") and not G.is_directed() and not G.is_multigraph() and len(G) > 0


def _from_networkx(graphs: list[Any], attribute: str | None = None) -> Union:
    """Read the adjacency dicts straight into arrays."""
    sizes = np.array([len(G) for G in graphs])
    adjacency = [G._adj for G in graphs]
    lengths = np.fromiter(
        chain.from_iterable(map(len, adj.values()) for adj in adjacency), np.int64, sizes.sum()
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    start = np.concatenate([[0], np.cumsum(lengths)])
    parts = (chain.from_iterable(adj.values()) if _numbered(adj) else _renumbered(adj) for adj in adjacency)
    index = np.fromiter(chain.from_iterable(parts), np.int64, start[-1])
    index += np.repeat(offsets[:-1], np.diff(start[offsets]))
    if attribute is None:
        return Union(start, index, offsets)
    codes: dict[str, int] = {}
    found = (edge for adj in adjacency for around in adj.values() for edge in around.values())
    labels = np.fromiter((_code(edge, attribute, codes) for edge in found), np.uint64, start[-1])
    return Union(start, index, offsets, labels)


def _code(edge: dict[str, Any], attribute: str, codes: dict[str, int]) -> int:
    """Return the number of an edge's label, the same in every call."""
    if attribute not in edge:
        known = ", ".join(map(repr, edge)) or "none"
        must = f"every edge must have the attribute {attribute!r}"
        raise value("weisfeiler_lehman", must, f"an edge with {known}")
    text = str(edge[attribute])
    if text not in codes:
        codes[text] = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    return codes[text]


def _numbered(adj: Any) -> bool:
    return all(type(node) is int and node == i for i, node in enumerate(adj))


def _renumbered(adj: Any) -> Iterable[int]:
    place = {node: i for i, node in enumerate(adj)}
    return map(place.__getitem__, chain.from_iterable(adj.values()))


def _from_arrays(graphs: list[Graph], edge_labels: Any = None) -> tuple[Union, bool]:
    """Return the union of graphs, and whether some edge leaves its graph (then the union is of no use)."""
    from corollary.nn.sparse_kernels import counting_sort

    sizes = np.array([g.num_nodes for g in graphs])
    counts = np.array([g.num_edges for g in graphs])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    edges = np.concatenate([g.edge_index for g in graphs], axis=1)
    # Taken as unsigned, a negative number is larger than any size.
    if (edges.view(np.uint64) >= np.repeat(sizes, counts).view(np.uint64)).any():
        return Union(offsets, edges[0], offsets), True
    edges += np.repeat(offsets[:-1], counts)
    start, order = counting_sort(edges[1], int(offsets[-1]))
    if edge_labels is None:
        return Union(start, edges[0][order], offsets), False
    labels = _labels(edge_labels, counts, "edge")
    return Union(start, edges[0][order], offsets, labels[order]), False
