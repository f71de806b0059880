"""Colour refinement against networkx and grakel, on graphs some of which are copies."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from bench.harness import Draw, Pair, claim

ROUNDS = 3


class Graphs(NamedTuple):
    """Random graphs; every tenth is the one before with other names."""

    ends: list[np.ndarray]
    nodes: int

    def networkx(self) -> list[Any]:
        import networkx as nx

        graphs = []
        for ends in self.ends:
            G = nx.Graph()
            G.add_nodes_from(range(self.nodes))
            G.add_edges_from(ends.tolist())
            graphs.append(G)
        return graphs

    def arrays(self) -> list[Any]:
        from corollary.data import Graph

        return [
            Graph(None, np.concatenate([e, e[:, ::-1]]).T.copy(), num_nodes=self.nodes) for e in self.ends
        ]


def _graphs(draw: Draw) -> Graphs:
    rng, count, nodes = draw.rng, draw.size("graphs", 100, 1500), draw.size("nodes", 20, 400)
    edges, made = nodes * draw.size("degree", 2, 8) // 2, list[np.ndarray]()
    for i in range(count):
        if i % 10 == 9:
            made.append(rng.permutation(nodes)[made[-1]])
        else:
            ends = np.sort(rng.integers(0, nodes, (edges, 2)), 1)
            made.append(np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0))
    return Graphs(made, nodes)


def _theirs(graphs: list[Any]) -> list[str]:
    import networkx as nx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # degrees are its first round
        return [nx.weisfeiler_lehman_graph_hash(G, iterations=ROUNDS + 1) for G in graphs]


def _same_classes(ours: np.ndarray, peer: list[str]) -> dict[str, float]:
    def classes(values: Any) -> list[int]:
        first: dict[Any, int] = {}
        return [first.setdefault(v, i) for i, v in enumerate(values)]

    if classes(ours.tolist()) != classes(peer):
        raise AssertionError("the graphs fall into different classes")
    return {"classes": len(set(peer))}


@claim("wl-arrays", peer="networkx", aim=20)
def wl_arrays(draw: Draw) -> Pair:
    """Weisfeiler-Lehman hashes, ours from arrays"""
    from corollary.graphs import weisfeiler_lehman

    made = _graphs(draw)
    graphs, theirs = made.arrays(), made.networkx()
    return Pair(lambda: weisfeiler_lehman(graphs, ROUNDS), lambda: _theirs(theirs), _same_classes, repeats=3)


@claim("wl-networkx", peer="networkx", aim=3)
def wl_networkx(draw: Draw) -> Pair:
    """Weisfeiler-Lehman hashes of networkx graphs"""
    from corollary.graphs import weisfeiler_lehman

    graphs = _graphs(draw).networkx()
    return Pair(lambda: weisfeiler_lehman(graphs, ROUNDS), lambda: _theirs(graphs), _same_classes, repeats=3)


@claim("wl-kernel", peer="grakel", aim=5)
def wl_kernel(draw: Draw) -> Pair:
    """Weisfeiler-Lehman kernel matrix"""
    import grakel

    from corollary.graphs import weisfeiler_lehman_kernel

    made = _graphs(draw)
    graphs = made.arrays()
    theirs = [
        grakel.Graph({v: list(G.adj[v]) for v in G}, node_labels=dict(G.degree)) for G in made.networkx()
    ]

    def peer() -> np.ndarray:
        return grakel.WeisfeilerLehman(n_iter=ROUNDS, base_graph_kernel=grakel.VertexHistogram).fit_transform(
            theirs
        )

    def same(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
        if not np.array_equal(a, b):
            raise AssertionError("the kernel matrices differ")
        return {"difference": float(np.abs(a - b).max())}

    return Pair(lambda: weisfeiler_lehman_kernel(graphs, iterations=ROUNDS), peer, same, repeats=3)
