"""Graph matrices against networkx and closed forms; symmetry on C4 and S3."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from corollary.data import Graph
from corollary.graphs import GraphNetwork
from corollary.graphs.links import LinkNetwork
from corollary.theory import graphs as tg
from corollary.theory import symmetry as ts

torch.set_num_threads(1)


def weighted(seed=0, n=12):
    G = nx.gnp_random_graph(n, 0.4, seed=seed)
    rng = np.random.default_rng(seed)
    nx.set_edge_attributes(G, {e: float(rng.random() + 0.5) for e in G.edges}, "weight")
    return G


def test_matrices_equal_those_of_networkx():
    G = weighted()
    # Weights of networkx graphs are read in single precision.
    np.testing.assert_allclose(tg.adjacency(G).toarray(), nx.to_numpy_array(G), atol=1e-6)
    np.testing.assert_allclose(tg.laplacian(G).toarray(), nx.laplacian_matrix(G).toarray(), atol=1e-6)
    normal = nx.normalized_laplacian_matrix(G).toarray()
    np.testing.assert_allclose(tg.laplacian(G, "normalised").toarray(), normal, atol=1e-6)
    walk = np.eye(12) - nx.to_numpy_array(G) / nx.to_numpy_array(G).sum(1, keepdims=True)
    np.testing.assert_allclose(tg.laplacian(G, "random-walk").toarray(), walk, atol=1e-6)


def test_incidence_gives_the_laplacian():
    G = weighted()
    B, w = tg.incidence(G)
    assert B.shape == (G.number_of_edges(), 12) and (B.sum(axis=1) == 0).all()
    np.testing.assert_allclose((B.T @ np.diag(w) @ B), tg.laplacian(G).toarray(), atol=1e-12)


def test_the_normalised_spectrum_lies_between_0_and_2():
    values, U = tg.graph_fourier(weighted())
    assert values[0] == pytest.approx(0, abs=1e-12) and values[-1] <= 2
    np.testing.assert_allclose(U @ U.T, np.eye(12), atol=1e-12)
    assert tg.graph_fourier(nx.complete_bipartite_graph(3, 4))[0][-1] == pytest.approx(2)
    isolated = tg.laplacian(nx.empty_graph(3), "normalised").toarray()
    assert not isolated.any()


def test_a_polynomial_filter_is_local():
    G = nx.path_graph(9)
    x = np.eye(9)[4]
    L = tg.laplacian(G, "normalised").toarray()
    out = tg.graph_filter(G, x, lambda f: 1 + 2 * f - f**2)
    np.testing.assert_allclose(out, x + 2 * L @ x - L @ L @ x, atol=1e-12)
    assert np.abs(out[[0, 1, 7, 8]]).max() < 1e-12


def test_dirichlet_energy_is_the_sum_of_squared_differences():
    G = weighted()
    x = np.random.default_rng(0).normal(size=(12, 3))
    expected = sum(w * ((x[u] - x[v]) ** 2).sum() for u, v, w in G.edges(data="weight"))
    assert tg.dirichlet_energy(G, x) == pytest.approx(expected, rel=1e-6)
    assert tg.dirichlet_energy(G, np.ones(12)) == pytest.approx(0, abs=1e-9)


def test_smoothing_ends_at_the_square_root_of_degrees_at_the_predicted_rate():
    G = nx.star_graph(4)
    found = tg.oversmoothing(G, np.random.default_rng(0).normal(size=(5, 3)), 60)
    assert found.distance[-1] < 1e-10 and 0 < found.distance[0] < 1
    kept = 1 - found.distance
    # ||h_k - P h_k||^2 <= rate^(2k) ||h_0 - P h_0||^2, and the projected part keeps its norm.
    outside = found.distance / kept
    assert all(outside[k] <= found.rate ** (2 * k) * outside[0] + 1e-12 for k in range(60))
    assert found.energy[-1] < 1e-9 < found.energy[0]


def test_smoothing_of_a_trained_stack_is_measured_layer_by_layer():
    torch.manual_seed(0)
    module = GraphNetwork((3, 8, 8, 2), "gcn").train()
    found = tg.oversmoothing(nx.cycle_graph(6), np.random.default_rng(0).normal(size=(6, 3)), module=module)
    assert found.energy.shape == (4,) and module.training
    assert not module.layers[0]._forward_hooks


def test_influence_stops_at_the_reach_of_the_layers_and_falls_with_distance():
    torch.manual_seed(0)
    module = GraphNetwork((3, 8, 2), "gcn")
    influence = tg.oversquashing(
        module, nx.path_graph(8), np.random.default_rng(0).normal(size=(8, 3)), target=2
    )
    assert (influence[5:] == 0).all() and (influence[1:4] > 0).all() and influence[2] > influence[4]


def test_weights_of_edges_reach_the_module():
    G = nx.path_graph(3)
    nx.set_edge_attributes(G, {(0, 1): 3.0, (1, 2): 0.5}, "weight")
    net = GraphNetwork((2, 4)).double()
    # One linear layer: the Jacobian is the entry of the normalised matrix times the weights.
    A = nx.to_numpy_array(G) + np.eye(3)
    P = A / np.sqrt(np.outer(A.sum(1), A.sum(1)))
    found = tg.oversquashing(net, G, np.ones((3, 2)), 1)
    np.testing.assert_allclose(found, P[1] * net.layers[0].lin.weight.detach().norm().item(), rtol=1e-6)
    plain, weighted = (tg.oversmoothing(H, np.eye(3)[:, :2], module=net) for H in (nx.path_graph(3), G))
    assert not np.allclose(plain.energy[1], weighted.energy[1])
    linked = tg.oversmoothing(G, np.eye(3)[:, :2], module=LinkNetwork(net))
    np.testing.assert_array_equal(linked.energy, weighted.energy)


def test_only_stacks_have_layers_to_measure():
    with pytest.raises(
        TypeError, match="must be a stack with layers; got Linear. Pass the module_ of a fitted"
    ):
        tg.oversmoothing(nx.path_graph(3), np.eye(3), module=torch.nn.Linear(3, 3))


@pytest.mark.parametrize("call, words", [
    (lambda: tg.oversmoothing(nx.path_graph(3), np.ones((2, 1))), r"one row per node \(3\); got shape \(2, 1\)"),
    (lambda: tg.graph_filter(nx.path_graph(3), np.ones(2), np.exp), r"one row per node \(3\); got shape \(2,\)"),
    (lambda: tg.oversquashing(GraphNetwork((1, 1)), nx.path_graph(3), np.ones((4, 1)), 0), "one row per node"),
    (lambda: tg.laplacian(nx.path_graph(3), "graph"), "no kind named 'graph'"),
    (lambda: tg.laplacian(Graph(None, np.array([[0], [1]]))), "the graph must be undirected"),
    (lambda: tg.graph_fourier(nx.path_graph(3), "random-walk"), "must be symmetric"),
    (lambda: tg.dirichlet_energy(nx.path_graph(3), [1.0, 2.0]), r"one row per node \(3\)"),
    (lambda: tg.oversquashing(GraphNetwork((1, 1)), nx.path_graph(3), np.ones((3, 1)), 5), "target must be a node"),
    (lambda: ts.cyclic(0), "n must be at least 1"), (lambda: ts.symmetric(9), "between 1 and 6"),
    (lambda: ts.group_average(len, []), "there must be actions"),
    (lambda: ts.group_convolution(ts.cyclic(3), torch.ones(4), torch.ones(3)), "must have 3 entries"),
    (lambda: ts.equivariance(len, torch.ones(3), []), "there must be actions"),
])  # fmt: skip
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# --- symmetry --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [ts.cyclic(6), ts.symmetric(3)], ids=["C6", "S3"])
def test_tables_are_groups_and_act(group):
    n, product = group.order, group.product
    for g in range(n):
        assert product[g, group.inverse[g]] == 0 == product[group.inverse[g], g]
        assert sorted(product[g].tolist()) == list(range(n))
        for h in range(n):
            assert torch.equal(product[product[g, h]], product[g, product[h]])
            x = torch.randn(n)
            assert torch.equal(group.act(g, group.act(h, x)), group.act(int(product[g, h]), x))
    assert torch.equal(product[0], torch.arange(n))


@pytest.mark.parametrize("group", [ts.cyclic(5), ts.symmetric(3)], ids=["C5", "S3"])
def test_group_convolution_is_equivariant(group):
    x, theta = torch.randn(4, group.order, dtype=torch.float64), torch.randn(group.order, dtype=torch.float64)
    for h in range(group.order):
        moved = ts.group_convolution(group, group.act(h, x), theta)
        torch.testing.assert_close(moved, group.act(h, ts.group_convolution(group, x, theta)))


def test_convolution_on_a_ring_is_circular_correlation():
    x, theta = torch.randn(7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    expected = torch.stack([(x * theta.roll(g)).sum() for g in range(7)])
    torch.testing.assert_close(ts.group_convolution(ts.cyclic(7), x, theta), expected)


def test_averaging_makes_any_function_invariant_or_equivariant():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.Linear(16, 5), torch.nn.Tanh())
    x, turns = torch.randn(4, 4), ts.rotations()
    assert not ts.invariance(net, x, turns).holds
    assert ts.invariance(ts.group_average(net, turns), x, turns).holds
    conv = torch.nn.Conv2d(1, 1, 3, padding=1)
    image = torch.randn(1, 1, 6, 6)
    back = [lambda y, r=r: torch.rot90(y, -r, (-2, -1)) for r in range(4)]
    assert not ts.equivariance(conv, image, turns).holds
    assert ts.equivariance(ts.group_average(conv, turns, back), image, turns).holds


def test_a_module_is_tested_in_evaluation_mode_and_left_as_it_was():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)).train()
    found = ts.equivariance(module, torch.randn(8, 3), ts.permute_rows(8))
    assert found.holds and found.error < 1e-5 and module.training
    mixing = torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.Linear(24, 2))
    broken = ts.invariance(mixing, torch.randn(8, 3), ts.permute_rows(8))
    assert not broken.holds and broken.worst > 0
