"""Colour refinement against networkx and grakel: 1000 graphs of 200 nodes, some of them copies."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from bench.harness import Pair, claim

GRAPHS, NODES, EDGES, ROUNDS = 1000, 200, 600, 3


@cache
def _edges() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    made: list[np.ndarray] = []
    for i in range(GRAPHS):
        if i % 10 == 9:  # the one before with other names
            made.append(rng.permutation(NODES)[made[-1]])
        else:
            ends = np.sort(rng.integers(0, NODES, (EDGES, 2)), 1)
            made.append(np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0))
    return made


@cache
def _networkx() -> list[Any]:
    import networkx as nx

    graphs = []
    for ends in _edges():
        G = nx.Graph()
        G.add_nodes_from(range(NODES))
        G.add_edges_from(ends.tolist())
        graphs.append(G)
    return graphs


def _arrays() -> list[Any]:
    from corollary.data import Graph

    return [Graph(None, np.concatenate([e, e[:, ::-1]]).T.copy(), num_nodes=NODES) for e in _edges()]


def _theirs() -> list[str]:
    import networkx as nx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            nx.weisfeiler_lehman_graph_hash(G, iterations=ROUNDS + 1) for G in _networkx()
        ]  # degrees are its first round


def _same_classes(ours: np.ndarray, peer: list[str]) -> dict[str, float]:
    def classes(values: Any) -> list[int]:
        first: dict[Any, int] = {}
        return [first.setdefault(v, i) for i, v in enumerate(values)]

    if classes(ours.tolist()) != classes(peer):
        raise AssertionError("the graphs fall into different classes")
    return {"classes": len(set(peer))}


@claim("wl-arrays", peer="networkx", floor=40.0)
def wl_arrays() -> Pair:
    """Weisfeiler-Lehman hashes of 1000 graphs of 200 nodes, ours from arrays."""
    from corollary.graphs import weisfeiler_lehman

    graphs = _arrays()
    return Pair(lambda: weisfeiler_lehman(graphs, ROUNDS), _theirs, _same_classes, repeats=3)


@claim("wl-networkx", peer="networkx", floor=4.0)
def wl_networkx() -> Pair:
    """Weisfeiler-Lehman hashes of 1000 networkx graphs of 200 nodes."""
    from corollary.graphs import weisfeiler_lehman

    return Pair(lambda: weisfeiler_lehman(_networkx(), ROUNDS), _theirs, _same_classes, repeats=3)


@claim("wl-kernel", peer="grakel", floor=8.0)
def wl_kernel() -> Pair:
    """Weisfeiler-Lehman kernel matrix of 1000 graphs of 200 nodes."""
    import grakel

    from corollary.graphs import weisfeiler_lehman_kernel

    graphs = _arrays()
    theirs = [grakel.Graph({v: list(G.adj[v]) for v in G}, node_labels=dict(G.degree)) for G in _networkx()]

    def peer() -> np.ndarray:
        return grakel.WeisfeilerLehman(n_iter=ROUNDS, base_graph_kernel=grakel.VertexHistogram).fit_transform(
            theirs
        )

    def same(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
        if not np.array_equal(a, b):
            raise AssertionError("the kernel matrices differ")
        return {"difference": float(np.abs(a - b).max())}

    return Pair(lambda: weisfeiler_lehman_kernel(graphs, iterations=ROUNDS), peer, same, repeats=3)
