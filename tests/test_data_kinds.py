"""Validation of inputs: every accepted form of every kind, and every complaint."""

import subprocess
import sys
import warnings
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse

from corollary.data import Graph
from corollary.data.graphs import both_ways, divided, from_networkx
from corollary.data.kinds import (
    check_graph,
    check_graphs,
    check_images,
    check_ratings,
    check_sequences,
    check_sets,
    check_texts,
)
from corollary.errors import CorollaryWarning


@pytest.fixture(scope="module")
def Data():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch_geometric uses torch.jit
        from torch_geometric.data import Data
    return Data


def test_the_border_needs_neither_torch_nor_pandas_nor_scikit_learn():
    code = "import sys, corollary.data, corollary.data.kinds, corollary.data.loading\n"
    code += "sys.exit(any(m in sys.modules for m in ('torch', 'pandas', 'sklearn', 'PIL', 'networkx')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------------------------- images


@pytest.mark.parametrize(
    "images, shape, dtype",
    [
        (np.zeros((2, 5, 6), np.uint8), (2, 1, 5, 6), np.float32),
        (np.ones((2, 3, 5, 6), np.float64), (2, 3, 5, 6), np.float64),
        (np.ones((2, 5, 6), bool), (2, 1, 5, 6), np.float32),
        (np.ones((2, 5, 6), np.float16), (2, 1, 5, 6), np.float32),
        (torch.ones(2, 3, 5, 6), (2, 3, 5, 6), np.float32),
        (torch.ones(2, 5, 6, dtype=torch.bfloat16), (2, 1, 5, 6), np.float32),
        ([np.zeros((5, 6)), np.ones((5, 6))], (2, 1, 5, 6), np.float64),
        (np.zeros((2, 8, 9, 3)), (2, 3, 8, 9), np.float64),
        (np.zeros((2, 9, 8, 1), np.uint8), (2, 1, 9, 8), np.float32),
        (torch.zeros(2, 5, 6, 4), (2, 4, 5, 6), np.float32),
        ([np.zeros((8, 9, 3))], (1, 3, 8, 9), np.float64),
        (np.zeros((2, 3, 9, 3)), (2, 3, 9, 3), np.float64),  # three channels first
        (np.zeros((2, 7, 4, 3)), (2, 7, 4, 3), np.float64),  # could be either: as documented
    ],
)
def test_images_of_every_form(images, shape, dtype):
    found = check_images(images, "CNN")
    assert found.shape == shape and found.dtype == dtype


def test_channels_may_come_last():
    X = np.random.default_rng(0).random((4, 6, 7, 3))
    np.testing.assert_array_equal(check_images(X, "CNN"), X.transpose(0, 3, 1, 2))
    six = check_images(X, "CNN", channels=6)  # six channels were fitted: these come first
    np.testing.assert_array_equal(six, X)


def test_pillow_images_of_every_mode():
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 256, (2, 6, 7, 3), dtype=np.uint8)
    images = [Image.fromarray(c) for c in colour]
    expected = colour.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(check_images(images, "CNN", scale=False), expected)
    see_through = [image.convert("RGBA") for image in images]
    np.testing.assert_array_equal(check_images(see_through, "CNN", scale=False), expected)
    grey = [image.convert("L") for image in images]
    assert check_images(grey, "CNN").shape == (2, 1, 6, 7)
    black = [image.convert("1") for image in images]
    assert set(np.unique(check_images(black, "CNN"))) == {0.0, 1.0}
    mixed = check_images([images[0], grey[1]], "CNN", scale=False)
    np.testing.assert_array_equal(mixed[0], expected[0])
    np.testing.assert_array_equal(mixed[1], np.repeat(np.asarray(grey[1])[None], 3, 0))
    palette = Image.fromarray((colour[0, :, :, 0] > 127).astype(np.uint8), mode="P")
    palette.putpalette([10, 20, 30, 200, 100, 50])  # the colours are meant, not their numbers
    assert set(check_images([palette], "CNN", scale=False)[0, 0].ravel()) == {10, 200}
    with pytest.raises(ValueError, match="one size; got 6 x 7 for image 0 and 5 x 4 for image 1"):
        check_images([images[0], images[1].resize((4, 5))], "CNN")
    with pytest.raises(TypeError, match="a list of images; got a single one. Wrap it in a list"):
        check_images(images[0], "CNN")
    with pytest.raises(TypeError, match=r"arrays or Pillow images; got names of files. Read them: .*load"):
        check_images(["a.png", Path("b.png")], "CNN")


def test_bytes_become_numbers_in_the_unit_interval_unless_told_not_to():
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    np.testing.assert_allclose(check_images(pixels, "CNN")[0, 0].ravel(), np.arange(256) / 255, rtol=1e-6)
    assert check_images(pixels, "CNN", scale=False).dtype == np.uint8
    assert check_images(np.full((1, 2, 2), -3.0), "CNN", bounded=False).min() == -3


@pytest.mark.parametrize(
    "images, options, message",
    [
        (
            np.zeros((3, 784)),
            {},
            r"CNN: images must have shape .* got shape \(3, 784\). .*reshape\(-1, 28, 28\)",
        ),
        (np.zeros((3, 10)), {}, r"shape \(3, 10\). Add the missing axes"),
        (np.zeros((0, 8, 8)), {}, r"at least one image .* got shape \(0, 8, 8\)"),
        ([], {}, "at least one image"),
        (
            [np.zeros((4, 5)), np.zeros((5, 4))],
            {},
            r"one size; got \(4, 5\) for image 0 and \(5, 4\) for image 1",
        ),
        (np.full((1, 2, 2), 16.0), {}, r"must lie in \[0, 1\]; got minimum 16, maximum 16. Divide by 16."),
        (np.full((1, 2, 2), -0.5), {}, "minimum -0.5, maximum -0.5. Shift and scale"),
        (np.full((1, 2, 2), np.nan), {}, "pixels must be finite"),
        (np.zeros((1, 4, 4)), {"size": (8, 8)}, "images must be 8 x 8; got 4 x 4"),
        (np.zeros((1, 4, 4)), {"channels": 3}, "must have 3 channels; got 1"),
    ],
)
def test_wrong_images(images, options, message):
    with pytest.raises(ValueError, match=message):
        check_images(images, "CNN", **options)


def test_whole_numbers_are_no_pixels():
    with pytest.raises(TypeError, match=r"uint16 or float in \[0, 1\]; got int64. Pass X.astype\(np.uint8\)"):
        check_images(np.zeros((1, 2, 2), np.int64), "CNN")
    with pytest.raises(TypeError, match="got int32. Pass X / 70000."):
        check_images(np.full((1, 2, 2), 70000, np.int32), "CNN")


# ---------------------------------------------------------------------------- sequences and sets


@pytest.mark.parametrize(
    "sequences, shapes",
    [
        ([[1, 2, 3], [4]], [(3,), (1,)]),
        ([np.ones((3, 2)), np.ones((1, 2), np.float32)], [(3, 2), (1, 2)]),
        ([np.ones(3), np.ones(1)], [(3, 1), (1, 1)]),
        (np.ones((4, 3, 2)), [(3, 2)] * 4),
        (np.ones((4, 3), int), [(3,)] * 4),
        (torch.ones(2, 3, dtype=torch.long), [(3,)] * 2),
        ([torch.ones(3, 2), torch.ones(2, 2)], [(3, 2), (2, 2)]),
    ],
)
def test_sequences_of_every_form(sequences, shapes):
    found = check_sequences(sequences, "HMM")
    assert [s.shape for s in found] == shapes
    assert all(s.dtype == (np.int64 if s.ndim == 1 else s.dtype) for s in found)


def test_empty_sequences_on_request():
    assert [len(s) for s in check_sequences([[], []], "HMM", min_length=0)] == [0, 0]


def test_strings_are_sequences():
    assert check_sequences(("ab", "c"), "HMM") == ["ab", "c"]


@pytest.mark.parametrize(
    "words",
    [
        [["a", "cat"], ["the"]],
        [("a", "cat"), ("the",)],
        [np.array(["a", "cat"]), np.array(["the"])],
        np.array([["a", "cat"], ["the"]], dtype=object),
    ],
)
def test_lists_of_words_are_sequences(words):
    assert check_sequences(words, "HMM") == [["a", "cat"], ["the"]]
    with pytest.raises(ValueError, match="got length 0 for sequence 1"):
        check_sequences([["a"], []], "HMM")


@pytest.mark.parametrize(
    "sequences, options, message",
    [
        ([], {}, "at least one of the sequences; got an empty list"),
        ([[1], []], {}, "length 1 or more; got length 0 for sequence 1"),
        (["a", ""], {}, "got length 0 for sequence 1"),
        ([[1, -1]], {}, r"codes from 0 \(sequence 0\); got minimum -1"),
        ([[1.0, np.nan]], {}, "sequence 0 must be finite"),
        ([[1, 2], [[1.0, 2.0]]], {}, r"all of integers or all of vectors; got shape \(2,\)"),
        ([np.ones((2, 3)), np.ones((2, 4))], {}, "must have dimension 3; got 4 in sequence 1"),
        ([np.ones((2, 3))], {"dimension": 5}, "must have dimension 5; got 3"),
        ([[1, 9]], {"vocabulary": 9}, "below the vocabulary size 9; got 9 in sequence 0"),
        ([[1]], {"min_length": 2}, "length 2 or more; got length 1"),
        ([np.ones((2, 2, 2))], {}, r"shape \(t,\) or \(t, d\); got shape \(2, 2, 2\)"),
        ([[[1.0], [1.0, 2.0]]], {}, "rows of different lengths"),
        ([3], {}, "must be an array; got a single number"),
    ],
)
def test_wrong_sequences(sequences, options, message):
    with pytest.raises(ValueError, match=message):
        check_sequences(sequences, "HMM", **options)


@pytest.mark.parametrize("sequences", ["word", 3, {"a": [1]}, np.array(3), pd.DataFrame({"a": [1]})])
def test_what_is_no_list_is_refused(sequences):
    with pytest.raises(TypeError, match="HMM: X must be a list of sequences"):
        check_sequences(sequences, "HMM")


def test_sequences_of_objects_are_refused():
    with pytest.raises(TypeError, match="sequence 0 must hold real numbers"):
        check_sequences([["a", "b"], "c"], "HMM")


def test_sets_of_every_form():
    for sets in ([np.ones((3, 2)), torch.ones(1, 2)], np.ones((2, 3, 2), np.float32), [[[1, 2]], [[3, 4]]]):
        assert all(s.shape[1] == 2 and s.dtype.kind == "f" for s in check_sets(sets, "DeepSets"))
    assert check_sets([[1, 2, 3]], "DeepSets")[0].shape == (3, 1)
    assert check_sets([{2.0, 1.0}], "DeepSets")[0].tolist() == [[1], [2]]
    assert check_sets([frozenset([(2, 3), (0, 1)])], "DeepSets")[0].tolist() == [[0, 1], [2, 3]]


def test_an_empty_set_is_as_wide_as_the_others():
    for empty in ([], np.zeros(0), np.zeros((0, 2)), set()):
        for sets in ([empty, np.ones((3, 2), np.float32)], [np.ones((1, 2), np.float32), empty]):
            found = check_sets(sets, "DeepSets", min_size=0)
            assert sorted(s.shape for s in found)[0] == (0, 2)
        assert check_sets([[]], "DeepSets", min_size=0, dimension=2)[0].shape == (0, 2)
        with pytest.raises(ValueError, match="1 or more elements; got 0 in set 0"):
            check_sets([empty], "DeepSets")
    assert check_sets([[], np.ones((1, 2), np.float32)], "DeepSets", min_size=0)[0].dtype == np.float32


@pytest.mark.parametrize(
    "sets, options, message",
    [
        ([np.ones((2, 3)), np.ones((2, 4))], {}, "dimension 3; got 4 in set 1"),
        ([np.ones((2, 3))], {"dimension": 2}, "dimension 2; got 3 in set 0"),
        ([np.ones((0, 3))], {}, "1 or more elements; got 0 in set 0"),
        ([np.full((2, 3), np.inf)], {}, "set 0 must be finite"),
        ([np.ones((2, 3, 4))], {}, r"shape \(m, d\); got shape \(2, 3, 4\)"),
    ],
)
def test_wrong_sets(sets, options, message):
    with pytest.raises(ValueError, match=message):
        check_sets(sets, "DeepSets", **options)


# ---------------------------------------------------------------------------------------- graphs


def test_a_pyg_graph_is_taken_as_it_is(Data):
    edges = torch.tensor([[0, 1], [1, 2]])
    mask = torch.tensor([True, False, True])
    data = Data(
        x=torch.rand(3, 4), edge_index=edges, y=torch.arange(3), edge_attr=torch.ones(2, 5), train_mask=mask
    )
    graph = check_graph(data, "GCN", labels=True)
    np.testing.assert_array_equal(graph.x, data.x.numpy())
    np.testing.assert_array_equal(graph.edge_index, edges.numpy())
    assert graph.edge_index.dtype == np.int64 and graph.train_mask.dtype == bool
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (3, 2, 4)
    assert graph.edge_attr.shape == (2, 5) and graph.val_mask is None
    assert repr(graph) == "Graph(3 nodes, 2 edges, 4 features)"


def test_a_graph_without_features_keeps_its_isolated_nodes(Data):
    data = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=5)
    assert check_graph(data, "node2vec", features=False).num_nodes == 5
    assert Graph(None, np.array([[0], [3]])).num_nodes == 4


def test_networkx_graphs_list_both_directions_of_an_undirected_edge():
    G = nx.Graph()
    G.add_node("a", x=[1.0, 0.0], y=1)
    G.add_node("b", x=[0.0, 1.0], y=0)
    G.add_edge("a", "b", weight=2.0)
    graph = check_graph(G, "GCN", labels=True)
    np.testing.assert_array_equal(graph.edge_index, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(graph.edge_weight, [2, 2])
    np.testing.assert_array_equal(graph.y, [1, 0])
    assert check_graph(nx.DiGraph([(0, 1)]), "GCN", features=False).num_edges == 1


def test_features_may_be_whole_numbers_or_sparse():
    assert check_graph(Graph(np.eye(2, dtype=int), E1), "GCN").x.dtype == np.float32
    repeated = sparse.csr_matrix((np.ones(3, int), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    forms = (sparse.csr_matrix(np.eye(2)), sparse.coo_array(np.eye(2)), torch.eye(2).to_sparse(), repeated)
    for x, corner in zip(forms, (1, 1, 1, 2)):
        graph = check_graph(Graph(x, E1), "GCN")
        assert graph.x.format == "csr" and graph.x.dtype.kind == "f" and graph.x.has_canonical_format
        assert graph.x.toarray().tolist() == [[corner, 0], [0, 1]] and graph.num_features == 2


def test_a_networkx_graph_agrees_with_its_adjacency_matrix():
    G = nx.gnp_random_graph(30, 0.2, seed=0)
    graph = from_networkx(G)
    dense = np.zeros((30, 30))
    dense[tuple(graph.edge_index)] = 1
    np.testing.assert_array_equal(dense, nx.to_numpy_array(G))


@pytest.mark.parametrize("form", [nx.MultiGraph, nx.MultiDiGraph])
def test_parallel_edges_of_multigraphs_are_kept_one_by_one(form):
    G = form([(0, 1), (0, 1), (2, 1), (3, 3)])
    G.add_edge(0, 1, weight=5.0)
    graph = from_networkx(G)
    dense = np.zeros((4, 4))
    np.add.at(dense, tuple(graph.edge_index), graph.edge_weight)
    np.testing.assert_array_equal(dense, nx.to_numpy_array(G))
    assert graph.num_edges == (5 if G.is_directed() else 9)


def test_nodes_of_networkx_may_lack_labels_and_carry_masks():
    G = nx.path_graph(3)
    nx.set_node_attributes(G, {0: "left", 2: "right"}, "y")
    nx.set_node_attributes(G, {1: True}, "val_mask")
    graph = from_networkx(G)
    assert graph.y.tolist() == ["left", None, "right"]
    assert graph.val_mask.tolist() == [False, True, False] and graph.train_mask is None
    assert from_networkx(nx.path_graph(3)).y is None


def test_both_ways_keeps_the_weight_that_is_written_for_a_direction():
    edges, weight = both_ways(np.array([[0, 1, 1, 2], [1, 0, 2, 2]]), np.array([1.0, 5.0, 3.0, 4.0]))
    found = dict(zip(map(tuple, edges.T.tolist()), weight.tolist()))
    assert found == {(0, 1): 1.0, (1, 0): 5.0, (1, 2): 3.0, (2, 1): 3.0, (2, 2): 4.0}


def with_attributes(x=1.0, **of_edge):
    G = nx.path_graph(2)
    nx.set_node_attributes(G, x, "x")
    G.edges[0, 1].update(of_edge)
    return G


X2 = np.ones((2, 3))
E1 = np.array([[0], [1]])


@pytest.mark.parametrize(
    "graph, options, message",
    [
        (Graph(None, E1), {}, r"must have node features x \(n, d\); got none. Set x"),
        (Graph(X2, np.array([[0], [2]])), {}, "join nodes 0 to 1 .there are 2.; got edge 0 from 0 to 2"),
        (Graph(X2, np.array([[-1], [1]])), {}, "got edge 0 from -1 to 1"),
        (Graph(X2, np.zeros((5, 2), int)), {}, r"shape \(2, E\); got shape \(5, 2\). Pass edge_index.T"),
        (Graph(X2, np.zeros((5, 3), int)), {}, "Row 0 holds the sources"),
        (Graph(X2[0], E1), {}, r"x must have shape \(n, d\); got shape \(3,\)"),
        (Graph(X2 * np.nan, E1), {}, "node features must be finite"),
        (Graph(np.ones((0, 3)), E1[:, :0]), {}, "at least one node; got 0"),
        (Graph(None, E1[:, :0]), {"features": False}, "at least one node; got 0"),
        (Graph(X2, E1), {"dimension": 7}, "width 7; got width 3"),
        (Graph(X2, E1), {"labels": True}, r"one y per node \(2\); got none"),
        (Graph(X2, E1, y=np.ones(3)), {"labels": True}, r"one y per node \(2\); got shape \(3,\)"),
        (Graph(X2, E1, edge_weight=np.ones(2)), {}, r"edge_weight must have one row per edge \(1\)"),
        (Graph(X2, E1, edge_weight=np.array([np.nan])), {}, "one finite number per edge; got NaN"),
        (nx.Graph(), {}, "at least one node; got 0 nodes"),
        (Graph(X2, E1, edge_attr=np.ones((3, 2))), {}, "edge_attr must have one row per edge"),
        (Graph(X2, E1, train_mask=np.ones(3, bool)), {}, r"train_mask must have one entry per node \(2\)"),
    ],
)
def test_wrong_graphs(graph, options, message):
    with pytest.raises(ValueError, match=message):
        check_graph(graph, "GCN", **options)


@pytest.mark.parametrize(
    "graph, message",
    [
        (np.eye(3), "must have edge_index .* or be a networkx graph; got ndarray"),
        (Graph(X2, E1.astype(float)), "edge_index must hold integers; got float64"),
        (Graph(X2, E1, test_mask=np.ones(2)), "test_mask must be boolean; got float64"),
        (Graph(X2, E1, test_mask=np.array([1])), r"got int64. Use .* or np.isin\(np.arange\(2\), indices\)"),
        (with_attributes(x="carbon"), "node attribute 'x' must hold numbers; got could not convert .*carbon"),
        (with_attributes(weight="heavy"), "edge attribute 'weight' must be a number; got could not .*heavy"),
    ],
)
def test_wrong_kinds_of_graph(graph, message):
    with pytest.raises(TypeError, match=message):
        check_graph(graph, "GCN")


def test_nodes_must_agree_on_their_attributes():
    G = nx.path_graph(2)
    G.nodes[0]["x"] = [1.0]
    with pytest.raises(ValueError, match="every node must have the attribute 'x', or none; got 1 of 2"):
        check_graph(G, "GCN")
    G.nodes[1]["x"] = [1.0, 2.0]
    with pytest.raises(ValueError, match="must have one shape"):
        check_graph(G, "GCN")


def union():
    """Two graphs whose nodes alternate, the second with a loop."""
    x = np.arange(10.0).reshape(5, 2)
    edges = np.array([[0, 1, 2, 3, 4], [2, 3, 0, 3, 0]])
    return Graph(x, edges, edge_weight=np.arange(5.0)), np.array([0, 1, 0, 1, 0])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_a_union_is_divided_into_its_graphs(form):
    graph, batch = union()
    first, second = divided(
        Graph(form(graph.x), graph.edge_index, edge_weight=graph.edge_weight), batch, "load"
    )
    whole = [sparse.csr_matrix(g.x).toarray() for g in (first, second)]
    assert np.array_equal(whole[0], graph.x[::2]) and np.array_equal(whole[1], graph.x[1::2])
    assert first.edge_index.tolist() == [[0, 1, 2], [1, 0, 0]] and first.edge_weight.tolist() == [0, 2, 4]
    assert second.edge_index.tolist() == [[0, 1], [1, 1]] and second.edge_weight.tolist() == [1, 3]
    lone = divided(Graph(None, np.empty((2, 0), int), num_nodes=3), [1, 0, 2], "load")
    assert [(g.num_nodes, g.num_edges, g.x) for g in lone] == [(1, 0, None)] * 3


@pytest.mark.parametrize("batch, message", [
    ([0, 1, 0], r"number of a graph for every node \(5\); got shape \(3,\) of int64"),
    ([0.0, 1, 0, 1, 0], "got shape .5,. of float64"), (None, "got shape"),
    ([0, 2, 0, 2, 0], r"number the graphs from 0, each with a node; got \[0 2\]"),
    ([0, 0, 0, 1, 0], "edges must stay inside a graph; got edge 1 from graph 0 to 1"),
])  # fmt: skip
def test_a_union_that_cannot_be_divided_is_named(batch, message):
    with pytest.raises(ValueError, match=message):
        divided(union()[0], batch, "load")


def test_graph_collections(Data):
    graphs = check_graphs(
        [Graph(X2, E1), Data(x=torch.ones(4, 3), edge_index=torch.zeros(2, 0).long())], "GIN"
    )
    assert [g.num_nodes for g in graphs] == [2, 4]
    from torch_geometric.data import Batch

    parts = [Data(x=torch.ones(n, 3), edge_index=torch.zeros(2, n).long()) for n in (1, 3)]
    assert [g.num_edges for g in check_graphs(Batch.from_data_list(parts), "GIN")] == [1, 3]
    with pytest.raises(ValueError, match="every graph must have 3 node features; got 1 in graph 1"):
        check_graphs([Graph(X2, E1), Graph(X2[:, :1], E1)], "GIN")
    with pytest.raises(ValueError, match="GIN: graph 0: edges must join"):
        check_graphs([Graph(X2, E1 + 5)], "GIN")
    with pytest.raises(ValueError, match="at least one graph"):
        check_graphs([], "GIN")
    with pytest.raises(TypeError, match="must be a list of graphs; got Graph. Wrap"):
        check_graphs(Graph(X2, E1), "GIN")


# ---------------------------------------------------------------------------------------- ratings


def test_ratings_of_every_form_agree():
    dense = np.array([[5, np.nan, 0], [np.nan, 2, np.nan]])
    frame = pd.DataFrame({"user": [0, 0, 1], "item": [0, 2, 1], "rating": [5, 0, 2]})
    stored = sparse.coo_array((np.array([5.0, 0, 2]), ([0, 0, 1], [0, 2, 1])), shape=(2, 3))
    for ratings in (dense, torch.tensor(dense), frame, stored, stored.tocsr(), sparse.csc_matrix(stored)):
        R = check_ratings(ratings, "ALS")
        assert isinstance(R, sparse.csr_matrix) and R.nnz == 3 and R.dtype.kind == "f"
        np.testing.assert_array_equal(R.toarray(), np.nan_to_num(dense))


def test_labels_of_users_and_items_are_sorted():
    frame = pd.DataFrame({"who": ["b", "a"], "what": ["y", "x"], "how": [1, 2]})
    R, users, items = check_ratings(frame, "ALS", labels=True)
    assert users.tolist() == ["a", "b"] and items.tolist() == ["x", "y"]
    np.testing.assert_array_equal(R.toarray(), [[2, 0], [0, 1]])


def test_ids_may_be_of_several_types():
    frame = pd.DataFrame({"user": [1, "a"], "item": [1, 2], "value": [3, 4]})
    assert check_ratings(frame, "ALS", labels=True)[1].tolist() == [1, "a"]


def test_of_a_repeated_pair_the_last_counts():
    frame = pd.DataFrame({"user": [0, 1, 0], "item": [0, 0, 0], "value": [1, 2, 3]})
    with pytest.warns(CorollaryWarning, match="ALS: 1 ratings repeat a .* the last of each counts"):
        R = check_ratings(frame, "ALS")
    np.testing.assert_array_equal(R.toarray(), [[3], [2]])
    with pytest.warns(CorollaryWarning, match="repeat"):
        R = check_ratings(sparse.coo_matrix(([1.0, 7.0], ([0, 0], [1, 1])), shape=(1, 2)), "ALS")
    assert R[0, 1] == 7


@pytest.mark.parametrize(
    "ratings, options, message",
    [
        (sparse.csr_matrix((3, 4)), {}, r"at least one rating; got none in shape \(3, 4\)"),
        (sparse.csr_matrix([[np.nan, 1]]), {}, "ratings must be finite"),
        (
            sparse.csr_matrix(np.eye(3, 4)),
            {"shape": (4, 3)},
            r"row per user \(4\) .* got shape \(3, 4\). Pass X.T",
        ),
        (sparse.csr_matrix(np.eye(3, 4)), {"shape": (5, 6)}, r"column per item \(6\); got shape \(3, 4\)\.$"),
        (np.ones(3), {}, "a matrix with a row per user"),
        (sparse.coo_array(np.ones(3)), {}, "a matrix with a row per user"),
        (pd.DataFrame({"a": [1], "b": [2]}), {}, r"three columns \(user, item, value\); got 2: a, b"),
        (pd.DataFrame({"user": [1], "item": [2], "value": ["x"]}), {}, "must be numbers"),
        (pd.DataFrame({"user": [1], "item": [2], "value": [np.nan]}), {}, "1 missing of 1. Leave unknown"),
        (
            pd.DataFrame({"user": [-1], "item": [2], "value": [1]}),
            {},
            "user ids must not be negative; got -1",
        ),
        (pd.DataFrame({"user": [1], "item": [None], "value": [1]}), {}, "every item must have an id"),
    ],
)
def test_wrong_ratings(ratings, options, message):
    with pytest.raises(ValueError, match=message):
        check_ratings(ratings, "ALS", **options)


@pytest.mark.parametrize("ratings", [sparse.csr_matrix([[1j]]), "abc", [["a"]]])
def test_ratings_that_are_no_numbers(ratings):
    with pytest.raises(TypeError, match="ALS: ratings must be"):
        check_ratings(ratings, "ALS")


# ------------------------------------------------------------------------------------------ texts


def test_texts_of_every_form():
    for texts in (["a b", ""], ("a b", ""), np.array(["a b", ""]), pd.Series(["a b", ""])):
        assert check_texts(texts, "LDA") == ["a b", ""]


@pytest.mark.parametrize(
    "texts, error, message",
    [
        ("abc", TypeError, "must be a list of strings; got str. Wrap"),
        (["a", 3], TypeError, "every document must be a string; got int at 1"),
        ([b"a"], TypeError, "got bytes at 0. Decode it"),
        ([], ValueError, "at least one of the strings"),
        (["", " "], ValueError, "some document must have words; got 2 empty"),
    ],
)
def test_wrong_texts(texts, error, message):
    with pytest.raises(error, match=message):
        check_texts(texts, "LDA")
