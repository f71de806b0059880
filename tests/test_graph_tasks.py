"""Whole graphs, links, and training on sampled neighbourhoods."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

import corollary
from corollary import GraphClassifier, LinkPredictor, NodeClassifier, Training
from corollary.data import Graph
from corollary.graphs import split_links
from corollary.graphs.network import LAYERS
from corollary.graphs.sampling import neighbourhood
from corollary.graphs.whole import Union
from corollary.nn.sparse import sparse
from corollary.testing import check_estimator

torch.set_num_threads(1)


def shapes(count=60, seed=0):
    """Rings and stars of different sizes, whose features are constant."""
    rng = np.random.default_rng(seed)
    graphs, y = [], []
    for i in range(count):
        n = int(rng.integers(4, 12))
        G = nx.cycle_graph(n) if i % 2 else nx.star_graph(n - 1)
        ends = np.array(G.edges).T
        graphs.append(
            Graph(np.ones((n, 2), np.float32), np.concatenate([ends, ends[::-1]], 1), y=np.array(i % 2))
        )
        y.append(i % 2)
    return graphs, np.array(y)


QUICK = {"hidden_layer_sizes": (16,), "random_state": 0, "training": Training(epochs=60, learning_rate=0.01)}


@pytest.mark.parametrize("layer", ["gin", "cheb", "mpnn", "spectral"])
def test_structure_alone_tells_rings_from_stars(layer):
    graphs, y = shapes()
    model = GraphClassifier(layer, **QUICK).fit(graphs[:40], y[:40])
    assert model.score(graphs[40:], y[40:]) > 0.9


@pytest.mark.parametrize("layer", sorted(LAYERS))
@pytest.mark.parametrize("readout", ["sum", "mean", "max"])
def test_a_graph_does_not_depend_on_its_order_or_its_company(layer, readout):
    graphs, y = shapes(12)
    rng = np.random.default_rng(1)
    graphs = [Graph(rng.normal(size=g.x.shape).astype(np.float32), g.edge_index) for g in graphs]
    params = {**QUICK, "training": Training(epochs=2)}
    model = GraphClassifier(layer, readout=readout, **params).fit(graphs, y)
    together = model.predict_proba(graphs)
    for g, expected in zip(graphs, together):
        order = rng.permutation(g.num_nodes)
        turned = Graph(g.x[order], np.argsort(order)[g.edge_index])
        np.testing.assert_allclose(model.predict_proba([turned])[0], expected, atol=1e-4)


def test_a_union_is_its_graphs_side_by_side():
    graphs, _ = shapes(5)
    weighted = Graph(
        graphs[0].x, graphs[0].edge_index, edge_weight=np.arange(graphs[0].num_edges, dtype=np.float32)
    )
    union = Union([weighted, *graphs[1:]], "cpu", torch.float32)
    x, edges, weight, owner, n = union.take(torch.tensor([3, 0]))
    first = graphs[3].num_nodes
    assert (
        n == 2
        and len(x) == first + weighted.num_nodes
        and owner.tolist() == [0] * first + [1] * weighted.num_nodes
    )
    assert np.array_equal(edges[:, : graphs[3].num_edges], graphs[3].edge_index)
    assert np.array_equal(edges[:, graphs[3].num_edges :] - first, weighted.edge_index)
    assert weight[: graphs[3].num_edges].eq(1).all() and np.array_equal(
        weight[graphs[3].num_edges :], weighted.edge_weight
    )


def test_labels_may_come_with_the_graphs_and_single_nodes_are_graphs():
    graphs, y = shapes(20)
    model = GraphClassifier(**QUICK).fit(graphs)
    assert np.array_equal(
        model.predict_proba(graphs), GraphClassifier(**QUICK).fit(graphs, y).predict_proba(graphs)
    )
    lone = Graph(np.ones((1, 2), np.float32), np.empty((2, 0), int))
    assert np.isfinite(model.predict_proba([lone])).all()


@pytest.mark.parametrize("make, words", [
    (lambda g, y: GraphClassifier().fit([Graph(g[0].x, g[0].edge_index)] * 2), "each graph must have one; got none"),
    (lambda g, y: GraphClassifier().fit(g, y[:3]), "one entry per sample"),
    (lambda g, y: GraphClassifier(hidden_layer_sizes=()).fit(g, y), "at least one layer"),
    (lambda g, y: LinkPredictor(hidden_layer_sizes=()).fit(g[0]), "at least one layer"),
    (lambda g, y: LinkPredictor().fit(Graph(g[0].x, g[0].edge_index[:, :0])), "edges to learn from; got none"),
    (lambda g, y: LinkPredictor(**QUICK).fit(g[0]).score(g[1]), "the graph must have"),
    (lambda g, y: split_links(g[0], 1.5), "share between 0 and 1; got 1.5"),
    (lambda g, y: NodeClassifier(neighbours=(3, 3, 3)).fit(g[0], y[: g[0].num_nodes]), "one for each of the 2 layers"),
])  # fmt: skip
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make(*shapes(20))


def communities(n=80, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 4
    near = np.triu(rng.random((n, n)) < np.where(y[:, None] == y, 0.5, 0.02), 1)
    edges = np.stack(np.nonzero(near | near.T))
    return Graph(np.eye(n, dtype=np.float32), edges, y)


def test_held_out_edges_are_found():
    rest, held = split_links(communities(), test=0.15)
    assert rest.num_edges + held.num_edges == communities().num_edges
    both = {tuple(e) for e in held.edge_index.T.tolist()}
    assert all((b, a) in both for a, b in both)
    model = LinkPredictor(random_state=0, training=Training(epochs=100)).fit(rest)
    assert model.score(held) > 0.75  # even the true groups reach only 0.87
    assert model.transform(rest).shape == (80, 32)
    np.testing.assert_allclose(model.transform(rest), model.embedding_, atol=1e-5)
    assert model.link_probability([[0, 4], [0, 1]]).shape == (2,)


@pytest.mark.parametrize("model", [GraphClassifier, LinkPredictor], ids=lambda c: c.__name__)
@pytest.mark.filterwarnings("ignore")
def test_they_keep_the_contract(model):
    check_estimator(model(**model._test_params(), random_state=0))


def test_link_files_hold_all_of_it(tmp_path):
    model = LinkPredictor(**LinkPredictor._test_params(), random_state=0).fit(communities())
    again = corollary.load(model.save(tmp_path / "links.safetensors"))
    assert np.array_equal(again.link_probability([[0, 1]]), model.link_probability([[0, 1]]))


# --- sampled neighbourhoods ------------------------------------------------------------------------------


def test_sampled_edges_are_edges_and_never_too_many():
    g = communities()
    matrix = sparse(torch.tensor(g.edge_index), 80)
    seeds = torch.tensor([5, 70, 3])
    nodes, edges, which = neighbourhood(matrix, seeds, (4, 2), seed=1)
    assert nodes[:3].tolist() == [5, 70, 3] and len(set(nodes.tolist())) == len(nodes)
    assert np.array_equal(nodes[edges].numpy(), g.edge_index[:, which.numpy()])
    assert len(set(which.tolist())) == len(which)
    counts = torch.bincount(edges[1], minlength=len(nodes))
    assert (counts[:3] <= 4).all() and (counts[3:] <= 2).all()
    again = neighbourhood(matrix, seeds, (4, 2), seed=1)
    assert torch.equal(again[1], edges) and not torch.equal(
        neighbourhood(matrix, seeds, (4, 2), seed=2)[2], which
    )


def test_sampling_everything_is_the_neighbourhood_itself():
    g = communities()
    matrix = sparse(torch.tensor(g.edge_index), 80)
    nodes, edges, which = neighbourhood(matrix, torch.tensor([7]), (1000,), seed=0)
    assert set(nodes[edges[0]].tolist()) == set(g.edge_index[0][g.edge_index[1] == 7].tolist())


def test_every_edge_is_drawn_equally_often():
    star = torch.stack([torch.arange(1, 11), torch.zeros(10, dtype=torch.long)])
    matrix = sparse(star, 11)
    drawn = torch.cat([neighbourhood(matrix, torch.tensor([0]), (3,), seed=s)[2] for s in range(2000)])
    counts = torch.bincount(drawn, minlength=10)
    assert counts.sum() == 6000
    # Each count is binomial(2000, 0.3): five standard deviations are 102.
    assert (counts - 600).abs().max() < 102


def test_sampled_training_learns_and_resumes():
    g = communities()
    training = Training(epochs=15, batch_size=16)
    model = NodeClassifier(neighbours=5, hidden_layer_sizes=(16,), random_state=0, training=training)
    assert model.fit(g).score(g) > 0.9
    check_estimator(
        NodeClassifier(
            neighbours=(3,), hidden_layer_sizes=(), random_state=0, training=Training(epochs=3, batch_size=8)
        )
    )
