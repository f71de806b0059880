"""Colour refinement against networkx and grakel, and the pairs it is known to fail on."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from corollary.data import Graph
from corollary.graphs import colour_refinement, weisfeiler_lehman, weisfeiler_lehman_kernel


def random_graphs(count=40, n=12, seed=0):
    """Random graphs, some of them copies with other names for the nodes."""
    rng = np.random.default_rng(seed)
    graphs = []
    for i in range(count):
        if i % 3 == 2:
            names = [f"v{k}" for k in rng.permutation(len(graphs[-1]))]
            graphs.append(nx.relabel_nodes(graphs[-1], dict(zip(graphs[-1], names))))
        else:
            graphs.append(nx.gnp_random_graph(n, 0.2, seed=int(rng.integers(10**6))))
    return graphs


def arrays(G):
    place = {v: i for i, v in enumerate(G)}
    pairs = [(place[a], place[b]) for a, b in G.edges]
    ends = np.array([*pairs, *((b, a) for a, b in pairs if a != b)], dtype=np.int64).reshape(-1, 2).T
    return Graph(None, ends, num_nodes=len(place))


def classes(hashes):
    first = {}
    return [first.setdefault(h, i) for i, h in enumerate(hashes)]


@pytest.mark.filterwarnings("ignore:The hashes produced")
@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_the_classes_are_those_of_networkx(rounds):
    graphs = random_graphs()
    if rounds:  # networkx counts the degrees as the first round
        expected = classes(nx.weisfeiler_lehman_graph_hash(G, iterations=rounds + 1) for G in graphs)
    else:
        expected = classes(tuple(sorted(d for _, d in G.degree)) for G in graphs)
    assert classes(weisfeiler_lehman(graphs, rounds).tolist()) == expected
    assert classes(weisfeiler_lehman([arrays(G) for G in graphs], rounds).tolist()) == expected


def test_isomorphic_graphs_share_a_hash_in_every_form():
    graphs = random_graphs()
    assert np.array_equal(weisfeiler_lehman(graphs), weisfeiler_lehman([arrays(G) for G in graphs]))
    assert (
        weisfeiler_lehman(graphs[1]) == weisfeiler_lehman(graphs[2]) == weisfeiler_lehman(arrays(graphs[1]))
    )


def test_known_pairs_it_cannot_tell_apart():
    ring, triangles = nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    assert weisfeiler_lehman(ring, 10) == weisfeiler_lehman(triangles, 10)
    decalin = nx.Graph(
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (4, 6), (6, 7), (7, 8), (8, 9), (9, 5)]
    )
    bicyclopentyl = nx.Graph(
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 5)]
    )
    assert weisfeiler_lehman(decalin, 10) == weisfeiler_lehman(bicyclopentyl, 10)
    assert not nx.is_isomorphic(decalin, bicyclopentyl)


def test_labels_tell_more_apart():
    G = nx.cycle_graph(4)
    assert weisfeiler_lehman(G, labels=[0, 1, 0, 1]) != weisfeiler_lehman(G, labels=[0, 0, 1, 1])
    assert weisfeiler_lehman(G, labels=[0, 1, 0, 1]) == weisfeiler_lehman(G, labels=[1, 0, 1, 0])
    assert weisfeiler_lehman(G, labels=[-1, 1, -1, 1]) != weisfeiler_lehman(G, labels=[2, 1, 2, 1])


def test_colours_refine_the_colours_before():
    colours = colour_refinement(nx.gnp_random_graph(60, 0.05, seed=3), 5)
    assert colours.shape == (6, 60)
    for before, after in zip(colours, colours[1:]):
        pairs = {(b, a) for b, a in zip(before, after)}
        assert len({a for _, a in pairs}) == len(pairs) >= len(set(before))


def test_directed_edges_and_multigraphs_count():
    there, back = nx.DiGraph([(0, 1), (1, 2)]), nx.DiGraph([(1, 0), (1, 2)])
    assert weisfeiler_lehman(there) != weisfeiler_lehman(back)
    once, twice = Graph(None, np.array([[0], [1]])), Graph(None, np.array([[0, 0], [1, 1]]))
    assert weisfeiler_lehman(once) != weisfeiler_lehman(twice)


def test_graphs_of_one_node_and_self_loops():
    one, loop = nx.empty_graph(1), nx.Graph([(0, 0)])
    assert weisfeiler_lehman(one) != weisfeiler_lehman(loop)
    assert weisfeiler_lehman([one, loop, nx.empty_graph(2)]).shape == (3,)


def test_parallel_edges_and_directions_count():
    once, twice = nx.path_graph(3), nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    assert weisfeiler_lehman(once) == weisfeiler_lehman(nx.MultiGraph(once)) != weisfeiler_lehman(twice)
    assert weisfeiler_lehman(nx.DiGraph([(0, 1), (1, 2)])) != weisfeiler_lehman(nx.DiGraph([(0, 1), (2, 1)]))


def test_the_kernel_counts_equal_colours():
    graphs = random_graphs(12)
    K = weisfeiler_lehman_kernel(graphs, iterations=2)
    for i, a in enumerate(graphs):
        for j, b in enumerate(graphs):
            rows = zip(colour_refinement(a, 2), colour_refinement(b, 2))
            assert K[i, j] == sum((x[:, None] == y).sum() for x, y in rows)
    assert np.linalg.eigvalsh(K).min() > -1e-8
    assert np.array_equal(weisfeiler_lehman_kernel(graphs[:4], graphs[4:], iterations=2), K[:4, 4:])
    normal = weisfeiler_lehman_kernel(graphs, iterations=2, normalize=True)
    np.testing.assert_allclose(normal, K / np.sqrt(np.outer(K.diagonal(), K.diagonal())))


def test_the_kernel_equals_that_of_grakel():
    grakel = pytest.importorskip("grakel", exc_type=ImportError)
    graphs = [G for i, G in enumerate(random_graphs(15)) if i % 3 != 2 and G.number_of_edges()]
    theirs = [grakel.Graph({v: list(G.adj[v]) for v in G}, node_labels=dict(G.degree)) for G in graphs]
    kernel = grakel.WeisfeilerLehman(n_iter=3, base_graph_kernel=grakel.VertexHistogram)
    assert np.array_equal(weisfeiler_lehman_kernel(graphs), kernel.fit_transform(theirs))


@pytest.mark.parametrize("call, error, words", [
    (lambda G: weisfeiler_lehman(G, -1), ValueError, "iterations must be an integer of at least 0; got -1"),
    (lambda G: weisfeiler_lehman(G, labels=[0]), ValueError, "one label per node of every graph; got a mismatch at graph 0"),
    (lambda G: weisfeiler_lehman(G, labels=[0.5] * 4), TypeError, "labels must be integers; got float64"),
    (lambda G: weisfeiler_lehman([Graph(None, np.array([[0], [5]]), num_nodes=3)]), ValueError, "join nodes 0 to 2"),
    (lambda G: weisfeiler_lehman([Graph(None, np.array([[-1], [0]]), num_nodes=3)]), ValueError, "edge 0 from -1 to 0"),
    (lambda G: weisfeiler_lehman([]), ValueError, "at least one graph"),
    (lambda G: weisfeiler_lehman([3]), TypeError, "a graph must have edge_index"),
    (lambda G: weisfeiler_lehman_kernel(G), TypeError, "must be lists of graphs; got Graph. Wrap it in a list"),
    (lambda G: weisfeiler_lehman_kernel([G], G), TypeError, "must be lists of graphs; got Graph. Wrap it in a list"),
])  # fmt: skip
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call(nx.cycle_graph(4))


# --- labels of edges ------------------------------------------------------------------------------------------


def labelled(kinds=2, seed=0):
    """Random graphs with labels on their edges; in some, two labels have changed places."""
    rng, graphs = np.random.default_rng(seed), []
    for G in random_graphs(count=30, n=8, seed=seed):
        G = G.copy()
        nx.set_edge_attributes(G, {edge: int(rng.integers(kinds)) for edge in G.edges}, "bond")
        names = dict(zip(G, [f"v{k}" for k in rng.permutation(len(G))]))
        other = G.copy()
        edges = list(other.edges)
        if len(edges) > 1:
            a, b = (edges[i] for i in rng.choice(len(edges), 2, replace=False))
            other.edges[a]["bond"], other.edges[b]["bond"] = other.edges[b]["bond"], other.edges[a]["bond"]
        graphs += [G, nx.relabel_nodes(G, names), other]
    return graphs


@pytest.mark.filterwarnings("ignore:The hashes produced")
@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("with_nodes", [False, True])
def test_edge_attributes_tell_apart_what_networkx_does(rounds, with_nodes):
    graphs = labelled()
    colours = [np.arange(len(G)) % 2 for G in graphs] if with_nodes else None
    for G, own in zip(graphs, colours or []):
        nx.set_node_attributes(G, dict(zip(G, own.tolist())), "kind")
    attributes = {"edge_attr": "bond", "node_attr": "kind" if with_nodes else None}
    theirs = [nx.weisfeiler_lehman_graph_hash(G, iterations=rounds, **attributes) for G in graphs]
    ours = weisfeiler_lehman(graphs, rounds, labels=colours, edge_labels="bond")
    assert classes(ours) == classes(theirs)
    plain = weisfeiler_lehman(graphs, rounds, labels=colours)
    assert len(set(ours)) > len(set(plain))  # some differ in their edges' labels only


def test_edge_labels_as_arrays_and_alone():
    G = labelled(kinds=3)[0]
    place = {v: i for i, v in enumerate(G)}
    pairs = [(place[a], place[b], d["bond"]) for a, b, d in G.edges(data=True)]
    both = np.array([*pairs, *((b, a, label) for a, b, label in pairs)])
    order = np.random.default_rng(0).permutation(len(both))
    graph = Graph(None, both[:, :2].T.copy(), num_nodes=len(G))
    turned = Graph(None, both[order, :2].T.copy(), num_nodes=len(G))
    first = weisfeiler_lehman(graph, edge_labels=both[:, 2])
    assert first == weisfeiler_lehman([turned], edge_labels=[both[order, 2]])[0]
    assert first != weisfeiler_lehman(graph, edge_labels=(both[:, 2] + 1) % 3)
    assert isinstance(weisfeiler_lehman(G, edge_labels="bond"), int)
    shades = colour_refinement(G, edge_labels="bond")
    assert len(np.unique(shades[0])) == 1 and len(np.unique(shades[-1])) > 1
    K = weisfeiler_lehman_kernel([G, nx.path_graph(3)], iterations=0, edge_labels=None)
    assert K.shape == (2, 2)


@pytest.mark.parametrize("labels, words", [
    ("bind", "every edge must have the attribute 'bind'; got an edge with 'bond'"),
    ([np.zeros(3, int)], "must name an attribute of plain networkx graphs, or be arrays"),
])  # fmt: skip
def test_bad_edge_labels_are_named(labels, words):
    with pytest.raises(ValueError, match=words):
        weisfeiler_lehman(labelled()[:1], edge_labels=labels)
    graph = Graph(None, np.array([[0, 1], [1, 0]]), num_nodes=2)
    with pytest.raises(ValueError, match="one label per edge of every graph; got a mismatch at graph 0"):
        weisfeiler_lehman([graph], edge_labels=[np.zeros(3, int)])
