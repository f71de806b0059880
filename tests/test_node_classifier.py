"""Node classification on graphs in their several forms."""

from __future__ import annotations

import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse

import corollary
from corollary import NodeClassifier, Run, Training
from corollary.data import Graph
from corollary.graphs.network import LAYERS, GraphNetwork, shares
from corollary.graphs.nodes import LOCAL
from corollary.nn import GATConv
from corollary.nn.sparse import aggregate, features

torch.set_num_threads(1)  # small graphs: waking a second thread takes longer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.data import Data


def blocks(n=60, seed=0):
    """Two groups with many edges inside and few between; features are noise with a hint."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    near = rng.random((n, n)) < np.where(y[:, None] == y, 0.2, 0.02)
    edges = np.stack(np.nonzero(near | near.T))
    x = rng.normal(size=(n, 6)).astype(np.float32)
    x[:, 0] += y
    train = np.zeros(n, bool)
    train[:20] = True
    val = np.zeros(n, bool)
    val[20:30] = True
    return Graph(x, edges, y, train_mask=train, val_mask=val, test_mask=~(train | val))


SMALL = {"hidden_layer_sizes": (8,), "random_state": 0, "training": Training(epochs=60)}


def test_it_learns_from_some_labels_those_of_the_others():
    model = NodeClassifier(**SMALL).fit(blocks())
    assert model.score(blocks()) > 0.85
    assert model.predict_proba(blocks()).shape == (60, 2)
    assert model.n_validation_ == 10
    assert {"loss", "validation_loss", "validation_accuracy"} <= set(model.history_[0])


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_every_layer_learns_and_comes_back_from_its_file(layer, tmp_path):
    model = NodeClassifier(**{**SMALL, "layer": layer, "dropout": 0.2}).fit(blocks())
    assert model.score(blocks()) > 0.65  # ten seeds of every layer reach 0.77; guessing is 0.5
    again = corollary.load(model.save(tmp_path / "nodes.safetensors"))
    np.testing.assert_allclose(again.predict_proba(blocks()), model.predict_proba(blocks()), atol=1e-6)
    for p in model.module_.parameters():
        p.grad = None
    module = model.module_.train()
    g = blocks()
    torch.nn.functional.cross_entropy(
        module(torch.tensor(g.x), torch.tensor(g.edge_index)), torch.tensor(g.y)
    ).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in module.parameters())


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_every_layer_takes_edge_weights(layer):
    g = blocks()
    weight = np.random.default_rng(0).random(g.num_edges).astype(np.float32)
    weighted = Graph(g.x, g.edge_index, g.y, weight)
    model = NodeClassifier(**{**SMALL, "layer": layer, "training": Training(epochs=5)}).fit(weighted)
    changed = Graph(g.x, g.edge_index, g.y, weight[::-1].copy())
    assert not np.allclose(model.predict_proba(weighted), model.predict_proba(changed))


@pytest.mark.parametrize("layer", sorted(LAYERS))
def test_nodes_without_features_get_one_each(layer):
    bare = replace(blocks(), x=None)
    model = NodeClassifier(**{**SMALL, "layer": layer, "training": Training(epochs=3)}).fit(bare)
    told = replace(bare, x=np.eye(60, dtype=np.float32))
    np.testing.assert_allclose(model.predict_proba(told), model.predict_proba(bare), atol=1e-5)
    with pytest.raises(ValueError, match="node features must have width 60; got width 50"):
        model.predict(replace(blocks(50), x=None))


def test_some_labels_of_a_networkx_graph_are_enough():
    G = nx.karate_club_graph()
    G.nodes[0]["y"], G.nodes[33]["y"] = "Mr. Hi", "Officer"  # the two who quarrelled
    model = NodeClassifier(dropout=0.0, random_state=0, training=Training(epochs=100)).fit(G)
    clubs = [club for _, club in G.nodes(data="club")]
    assert model.score(G, clubs) > 0.8  # Kipf and Welling's example; ten seeds reach 0.97


def test_labels_outside_the_training_mask_are_never_seen():
    g = blocks()
    hidden = np.where(g.train_mask | g.val_mask, g.y, -1)
    masked = Graph(g.x, g.edge_index, hidden, train_mask=g.train_mask, val_mask=g.val_mask)
    a, b = NodeClassifier(**SMALL).fit(g), NodeClassifier(**SMALL).fit(masked)
    assert np.array_equal(a.predict_proba(g), b.predict_proba(g))


def test_unlabelled_nodes_need_no_mask():
    g = blocks()
    y = np.where(np.arange(60) < 30, g.y, -1)
    plain = Graph(g.x, g.edge_index)
    model = NodeClassifier(**SMALL).fit(plain, y)
    assert model.classes_.tolist() == [0, 1]
    named = np.array([["red", "blue"][i] if i >= 0 else None for i in y], dtype=object)
    other = NodeClassifier(**SMALL).fit(plain, named)
    assert other.classes_.tolist() == ["blue", "red"]
    assert set(other.predict(plain)) == {"blue", "red"}
    as_float = np.where(y < 0, np.nan, y)
    assert np.array_equal(
        model.predict_proba(plain), NodeClassifier(**SMALL).fit(plain, as_float).predict_proba(plain)
    )


def test_all_forms_of_a_graph_give_the_same():
    g = blocks()
    data = Data(x=torch.tensor(g.x), edge_index=torch.tensor(g.edge_index), y=torch.tensor(g.y),
                train_mask=torch.tensor(g.train_mask), val_mask=torch.tensor(g.val_mask))  # fmt: skip
    ours, theirs = NodeClassifier(**SMALL).fit(g), NodeClassifier(**SMALL).fit(data)
    assert np.array_equal(ours.predict_proba(g), theirs.predict_proba(data).numpy())
    assert isinstance(theirs.predict(data), torch.Tensor)
    net = nx.Graph()
    net.add_nodes_from((i, {"x": g.x[i], "y": int(g.y[i])}) for i in range(60))
    net.add_edges_from(g.edge_index.T.tolist())
    bare = Graph(g.x, g.edge_index, g.y)
    expected = NodeClassifier(**SMALL).fit(bare).predict_proba(bare)
    # The same edges in another order, so the sums differ in the last place, sixty updates long.
    np.testing.assert_allclose(NodeClassifier(**SMALL).fit(net).predict_proba(net), expected, atol=1e-3)


def test_order_of_the_nodes_does_not_matter_in_prediction():
    g = blocks()
    model = NodeClassifier(**SMALL).fit(g)
    order = np.random.default_rng(1).permutation(60)
    place = np.argsort(order)
    turned = Graph(g.x[order], place[g.edge_index])
    np.testing.assert_allclose(model.predict_proba(turned), model.predict_proba(g)[order], atol=1e-6)


def test_edge_weights_count():
    g = blocks()
    weight = np.random.default_rng(0).random(g.num_edges).astype(np.float32)
    weighted = Graph(g.x, g.edge_index, g.y, weight)
    model = NodeClassifier(**SMALL).fit(weighted)
    assert not np.allclose(model.predict_proba(weighted), model.predict_proba(g))


def test_saved_and_loaded_it_predicts_the_same(tmp_path):
    model = NodeClassifier(**SMALL).fit(blocks())
    again = corollary.load(model.save(tmp_path / "nodes.safetensors"))
    assert np.array_equal(again.predict_proba(blocks()), model.predict_proba(blocks()))


def test_a_resumed_fit_equals_an_uninterrupted_one(tmp_path):
    def model(epochs):
        return NodeClassifier(**{**SMALL, "training": Training(epochs=epochs, early_stopping=False)})

    whole = model(12).fit(blocks())
    with Run(tmp_path, progress=False):
        model(5).fit(blocks())
    with Run(tmp_path, resume=True, progress=False):
        rest = model(12).fit(blocks())
    assert [row["step"] for row in rest.history_] == list(range(1, 13))
    assert np.array_equal(rest.predict_proba(blocks()), whole.predict_proba(blocks()))


def test_validation_nodes_stop_the_fit_and_can_be_told_not_to():
    impatient = NodeClassifier(**{**SMALL, "training": Training(epochs=300, patience=2, learning_rate=0.2)})
    assert impatient.fit(blocks()).n_iter_ < 300
    stubborn = NodeClassifier(
        **{**SMALL, "training": Training(epochs=20, early_stopping=False, learning_rate=0.2)}
    )
    assert stubborn.fit(blocks()).n_iter_ == 20


def test_the_global_random_state_is_left_alone():
    before = torch.get_rng_state()
    NodeClassifier(**SMALL).fit(blocks())
    assert torch.equal(before, torch.get_rng_state())


def test_double_stays_double():
    g = blocks()
    double = Graph(g.x.astype(np.float64), g.edge_index, g.y)
    assert NodeClassifier(**SMALL).fit(double).predict_proba(double).dtype == np.float64


def test_one_batch_can_be_learned_by_heart():
    g = blocks()
    model = NodeClassifier(
        hidden_layer_sizes=(64,), dropout=0.0, random_state=0, training=Training(epochs=300)
    )
    assert model.fit(Graph(g.x, g.edge_index[:, :0], g.y)).score(Graph(g.x, g.edge_index[:, :0], g.y)) > 0.95


# --- sparse features --------------------------------------------------------------------------------------


def words(n=60, seed=0, dtype=np.float64):
    """The two groups with counts of words for features, most of them zero."""
    g, rng = blocks(n, seed), np.random.default_rng(seed)
    rates = np.where(g.y[:, None] == np.arange(20) % 2, 0.3, 0.05)
    return replace(g, x=rng.poisson(rates).astype(dtype))


def thin(g, form=sparse.csr_matrix):
    return replace(g, x=form(g.x))


@pytest.mark.parametrize("layer", sorted(LAYERS))
@pytest.mark.parametrize("n_neighbors", [None, 5])
def test_sparse_features_are_learned_from_as_dense_ones_are(layer, n_neighbors):
    # Without dropout both do the same sums, in another order; double precision keeps them together.
    if layer == "spectral" and n_neighbors:
        pytest.skip("every sample of neighbours has its own eigenvectors: slow, and of no use")
    plan = Training(epochs=4, batch_size=8 if n_neighbors else None)
    model = NodeClassifier(layer, dropout=0.0, n_neighbors=n_neighbors, random_state=0, training=plan)
    dense = model.fit(words()).predict_proba(words())
    for form in (sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix):
        assert model.fit(thin(words(), form)).normalized_
        np.testing.assert_allclose(model.predict_proba(thin(words(), form)), dense, atol=1e-6)
        np.testing.assert_allclose(model.predict_proba(words()), dense, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_come_in_and_the_module_takes_them():
    g = words(dtype=np.float32)
    x = torch.tensor(g.x)
    model = NodeClassifier(**SMALL).fit(thin(g))
    expected = model.predict_proba(g)
    for form in (x.to_sparse(), x.to_sparse_csr()):
        data = Data(x=form, edge_index=torch.tensor(g.edge_index), y=torch.tensor(g.y))
        np.testing.assert_allclose(model.predict_proba(data).numpy(), expected, atol=1e-5)
        logits = model.module_(form, data.edge_index)
        np.testing.assert_allclose(logits.detach().softmax(1).numpy(), expected, atol=1e-5)


def test_sparse_features_are_never_made_dense(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise AssertionError("made dense")

    for form in (sparse.csr_matrix, sparse.coo_matrix):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(form, name, refuse)
    # As dense numbers these features would take 480 MB, and each of Adam's and autograd's copies again.
    g, rng = blocks(), np.random.default_rng(0)
    columns = rng.integers(0, 2 * 10**6, size=(60, 5)) // 2 * 2 + g.y[:, None]
    entries = (np.ones(300, np.float32), (np.repeat(np.arange(60), 5), columns.ravel()))
    wide = replace(g, x=sparse.csr_matrix(entries, shape=(60, 2 * 10**6)))
    model = NodeClassifier(hidden_layer_sizes=(2,), random_state=0, training=Training(epochs=2))
    with Run(tmp_path, progress=False):
        assert model.fit(wide).predict_proba(wide).shape == (60, 2)


def test_dropout_of_sparse_features_drops_entries_and_scales_the_rest():
    torch.manual_seed(0)
    x = features(torch.rand(200, 50).bernoulli().to_sparse())
    net = GraphNetwork((50, 2), dropout=0.25)
    dropped = net._dropped(x).weight
    kept = dropped != 0
    assert torch.allclose(dropped[kept], torch.tensor(4 / 3))
    # About 5000 entries: five standard deviations of the share kept are 0.03.
    assert abs(kept.double().mean().item() - 0.75) < 0.03
    assert net.eval()._dropped(x).weight.eq(1).all()


def test_counts_become_shares_and_only_counts_do():
    x = torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    wanted = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    torch.testing.assert_close(shares(x), wanted)
    torch.testing.assert_close(aggregate(shares(features(x.to_sparse())), torch.eye(3)), wanted)
    quick = {**SMALL, "training": Training(epochs=1)}
    assert NodeClassifier(**quick).fit(words()).normalized_
    assert not NodeClassifier(**quick).fit(blocks()).normalized_  # negative numbers
    assert not NodeClassifier(**quick).fit(_with(x=np.ones((60, 2)))).normalized_  # no zeros
    assert not NodeClassifier(**quick, normalize=False).fit(words()).normalized_
    model = NodeClassifier(**quick).fit(words())
    np.testing.assert_allclose(
        model.predict_proba(replace(words(), x=7 * words().x)), model.predict_proba(words()), atol=1e-6
    )


def test_the_defaults_are_those_of_the_papers():
    gcn, gat = (NodeClassifier(layer, training=Training(epochs=1)).fit(words()) for layer in ("gcn", "gat"))
    assert [tuple(p.shape) for p in gcn.module_.parameters()] == [(16,), (16, 20), (2,), (2, 16)]
    assert gcn.module_.dropout.p == 0.5 and gat.module_.dropout.p == 0.6
    attention = gat.module_.layers[0].conv
    assert (attention.heads, attention.out_channels, attention.dropout) == (8, 8, 0.6)
    assert type(gat.module_.activation).__name__ == "ELU"
    plan = gcn._plan()
    assert (plan.optimizer, plan.learning_rate, plan.weight_decay) == ("adam", 0.01, 5e-4)
    assert gat._plan().learning_rate == 0.005


@pytest.mark.parametrize("layer", LOCAL)
@pytest.mark.parametrize("weighted", [False, True])
def test_what_labelled_nodes_see_is_all_that_they_need(layer, weighted, monkeypatch):
    g = blocks()
    ring = np.stack([np.arange(60), (np.arange(60) + 1) % 60])
    edges = np.concatenate([g.edge_index[:, :40], ring], 1)  # few: most nodes are out of sight
    weight = np.random.default_rng(0).random(100) if weighted else None
    few = replace(g, x=g.x.astype(np.float64), edge_index=edges, edge_weight=weight)
    model = NodeClassifier(layer, dropout=0.0, random_state=0, training=Training(epochs=8))
    part = model.fit(few).predict_proba(few)
    monkeypatch.setattr("corollary.graphs.nodes.LOCAL", ())
    # Without dropout the same sums in double precision; eight updates long.
    np.testing.assert_allclose(model.fit(few).predict_proba(few), part, atol=1e-9)


def test_heads_of_the_last_attention_are_averaged():
    g = words(dtype=np.float32)
    net = NodeClassifier("gat", n_output_heads=3, random_state=0, training=Training(epochs=2)).fit(g).module_
    conv = net.layers[-1].conv
    assert (conv.heads, conv.out_channels, conv.concat) == (3, 2, False)
    x, edges = torch.tensor(g.x), torch.tensor(g.edge_index)
    with torch.no_grad():
        hidden = net.states(x, edges)[0]
        each = [GATConv(64, 2) for _ in range(3)]
        for i, head in enumerate(each):
            head.lin.weight.copy_(conv.lin.weight[2 * i : 2 * i + 2])
            head.att_src.copy_(conv.att_src[:, i : i + 1])
            head.att_dst.copy_(conv.att_dst[:, i : i + 1])
            head.bias.copy_(conv.bias)
        mean = torch.stack([head(hidden, edges) for head in each]).mean(0)
        torch.testing.assert_close(net(x, edges), mean, atol=1e-5, rtol=1e-5)


def _with(**changes):
    g = blocks()
    fields = {
        "x": g.x,
        "edge_index": g.edge_index,
        "y": g.y,
        "train_mask": g.train_mask,
        "val_mask": g.val_mask,
    }
    return Graph(**{**fields, **changes})


@pytest.mark.parametrize("graph, error, words", [
    (_with(y=None), ValueError, r"labels must be given as y, or be the graph's y \(60\); got none"),
    (_with(y=np.zeros(60, int)), ValueError, "at least two classes"),
    (_with(y=np.full(60, -1)), ValueError, r"train_mask \(20\) must have a label; got 20 without one. Take them out"),
    (_with(y=np.arange(3)), ValueError, r"one label per node \(60\); got shape \(3,\)"),
    (_with(y=np.linspace(0, 1, 60)), TypeError, "labels must be classes; got real numbers"),
    (_with(train_mask=np.ones((60, 3), bool)), ValueError, r"train_mask must have shape \(n,\); got shape \(60, 3\)"),
    (_with(x=sparse.csr_matrix(np.full((60, 2), np.nan))), ValueError, "node features must be finite"),
    (_with(x=sparse.csr_matrix(np.ones((59, 2)))), ValueError, r"nodes 0 to 58 \(there are 59\); got edge \d+ from"),
    (_with(edge_index=np.array([[0], [60]])), ValueError, r"nodes 0 to 59 \(there are 60\); got edge 0 from 0 to 60. Number"),
    ("graph", TypeError, "a graph must have edge_index"),
])  # fmt: skip
def test_bad_graphs_are_named(graph, error, words):
    with pytest.raises(error, match=words):
        NodeClassifier(**SMALL).fit(graph)


@pytest.mark.parametrize("params, words", [
    ({"layer": "gnc"}, "layer"), ({"dropout": 1.0}, "dropout"), ({"hidden_layer_sizes": (0,)}, "must be positive"),
    ({"activation": "rulu"}, "activation"), ({"layer": "gat", "n_output_heads": 0}, "n_output_heads"),
])  # fmt: skip
def test_bad_parameters_are_named(params, words):
    with pytest.raises(ValueError, match=words):
        NodeClassifier(**params).fit(blocks())


def test_training_must_be_a_training():
    with pytest.raises(TypeError, match="training must be a Training; got 3"):
        NodeClassifier(training=3).fit(blocks())


def test_the_width_of_the_features_is_remembered():
    model = NodeClassifier(**SMALL).fit(blocks())
    with pytest.raises(ValueError, match="node features must have width 6; got width 2"):
        model.predict(_with(x=np.zeros((60, 2))))
