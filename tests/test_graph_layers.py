"""Graph layers: the identities that they must satisfy, their forms, and what they refuse."""

from __future__ import annotations

import gc
import shutil
import weakref

import onnxruntime
import pytest
import torch

from corollary import nn
from corollary.nn import gat, sparse, sparse_kernels
from corollary.nn.cheb import laplacian
from corollary.nn.spectral import fourier_basis
from graph_cases import graph, results

torch.set_num_threads(1)  # small graphs: waking a second thread takes longer


def test_gin_sums_what_a_mean_cannot_tell_apart():
    two, three = torch.tensor([[1, 2], [0, 0]]), torch.tensor([[1, 2, 3], [0, 0, 0]])
    layer = nn.GINConv(torch.nn.Linear(1, 1))
    assert not torch.allclose(layer(torch.ones(4, 1), two)[0], layer(torch.ones(4, 1), three)[0])


def test_gat_gradients_with_dropout_and_its_torch_form():
    x, edges, _ = graph(dtype=torch.float64)
    matrix = sparse.sparse(edges, 12)
    h = torch.randn(12, 2, 3, dtype=torch.float64, requires_grad=True)
    a, b = (torch.randn(12, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    extra = torch.randn(edges.shape[1], 2, dtype=torch.float64, requires_grad=True)
    keep = (torch.rand(edges.shape[1], 2, dtype=torch.float64) > 0.4) / 0.6
    call = lambda h, a, b, extra: gat.attend(matrix, h, a, b, extra, keep, 0.2)[0]
    assert torch.autograd.gradcheck(call, (h, a, b, extra))
    plain = gat._plain(matrix, h, a, b, extra, keep, 0.2)
    for one, other in zip(gat.attend(matrix, h, a, b, extra, keep, 0.2), plain):
        torch.testing.assert_close(one, other)


def test_gat_drops_attention_only_while_training():
    torch.manual_seed(0)
    x, edges, _ = graph()
    layer = nn.GATConv(5, 3, dropout=0.5)
    assert not torch.equal(layer(x, edges), layer(x, edges))
    layer.eval()
    assert torch.equal(layer(x, edges), layer(x, edges))


def test_gat_survives_scores_of_any_size():
    x, edges, _ = graph()
    layer = nn.GATConv(5, 3)
    layer.att_src.data.mul_(1e4)
    assert torch.isfinite(layer(x, edges)).all()


def test_gcn_equals_the_dense_formula():
    x, edges, weight = graph(dtype=torch.float64)
    A = torch.zeros(12, 12, dtype=torch.float64).index_put((edges[1], edges[0]), weight, accumulate=True)
    A = A + torch.eye(12) * (A.diagonal() == 0)
    scale = A.sum(1).rsqrt()
    layer = nn.GCNConv(5, 3).double()
    expected = scale[:, None] * A * scale @ x @ layer.lin.weight.T + layer.bias
    torch.testing.assert_close(layer(x, edges, weight), expected)


def test_first_and_second_derivatives():
    x, edges, weight = graph(dtype=torch.float64)
    layer = nn.GCNConv(5, 2).double()
    inputs = (x.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, w: layer(x, edges, w), inputs)
    assert torch.autograd.gradgradcheck(lambda x, w: layer(x, edges, w), inputs)


@pytest.mark.parametrize("weighted", [True, False])
def test_several_threads_sum_as_one_does(weighted, monkeypatch):
    x, edges, _ = graph()
    found = []
    for small in (0, 2**30):
        monkeypatch.setattr(sparse_kernels, "SMALL", small)
        weight = torch.linspace(-1, 1, edges.shape[1]).requires_grad_() if weighted else None
        y = x.clone().requires_grad_()
        out = sparse.aggregate(sparse.sparse(edges, 12, weight), y)
        out.square().sum().backward()
        found.append((out.detach(), y.grad, weight.grad if weighted else out.detach()))
    for one, other in zip(*found):
        assert torch.equal(one, other)  # every row is summed by one thread, in the order of its edges
    torch.testing.assert_close(found[0][0], torch.zeros(12, x.shape[1]).index_add(
        0, edges[1], x[edges[0]] * (weight.detach()[:, None] if weighted else 1)
    ))  # fmt: skip


def test_stacked_features_are_one_product_each():
    x, edges, _ = graph()
    layer = nn.GCNConv(5, 3)
    stack = torch.stack([x, 2 * x, -x])
    torch.testing.assert_close(layer(stack, edges), torch.stack([layer(s, edges) for s in stack]))


def test_lazy_width_is_that_of_the_first_input():
    x, edges, _ = graph()
    layer = nn.GCNConv(-1, 3)
    assert layer(x, edges).shape == (12, 3)
    assert layer.lin.weight.shape == (3, 5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near_single(dtype):
    x, edges, _ = graph()
    layer = nn.GCNConv(5, 3)
    expected = layer(x, edges)
    torch.testing.assert_close(layer.to(dtype)(x.to(dtype), edges).float(), expected, atol=0.05, rtol=0.05)


def test_torch_kernels_equal_the_compiled_ones(monkeypatch):
    x, edges, weight = graph()
    layer = nn.GCNConv(5, 3)
    compiled = results(layer, x, edges, weight)
    layer.zero_grad()
    monkeypatch.setattr(sparse, "_product", sparse._torch_product)
    for a, b in zip(results(layer, x, edges, weight), compiled, strict=True):
        torch.testing.assert_close(a, b)


def test_a_changed_edge_list_is_seen():
    x, edges, weight = graph()
    layer = nn.GCNConv(5, 3)
    before = layer(x, edges, weight)
    assert torch.equal(layer(x, edges, weight), before)
    weight *= torch.linspace(1, 2, len(weight))
    assert not torch.allclose(layer(x, edges, weight), before)
    torch.testing.assert_close(layer(x, edges, weight), layer(x, edges.clone(), weight.clone()))
    edges[1, 0] = 11
    torch.testing.assert_close(layer(x, edges, weight), layer(x, edges.clone(), weight.clone()))


def test_the_memory_of_a_graph_dies_with_it():
    x, edges, weight = graph()
    layer = nn.GCNConv(5, 3)
    layer(x, edges, weight)
    ghost = weakref.ref(edges)
    del edges
    gc.collect()
    assert ghost() is None


def test_cached_keeps_the_first_graph():
    x, edges, _ = graph()
    layer = nn.GCNConv(5, 3, cached=True)
    first = layer(x, edges)
    assert torch.equal(layer(x, edges[:, :3]), first)
    layer.reset_parameters()
    assert not torch.allclose(layer(x, edges[:, :3]), layer.lin(x) * 0)
    assert layer._cached_edge_index.shape == (12, 12)


def test_a_graph_of_one_node_and_a_graph_without_edges():
    layer = nn.GCNConv(5, 3)
    none = torch.empty(2, 0, dtype=torch.long)
    for n in (1, 4):
        x = torch.randn(n, 5)
        torch.testing.assert_close(layer(x, none), layer.lin(x) + layer.bias)


@pytest.mark.parametrize("edges, error, words", [
    (torch.tensor([[0, 12], [1, 1]]), ValueError, r"edges must join nodes 0 to 11 .*got 0 to 12"),
    (torch.tensor([[0, -1], [1, 1]]), ValueError, r"got -1 to 1"),
    (torch.zeros(4, 2, dtype=torch.long), ValueError, r"edge_index must have shape \(2, E\); got shape \(4, 2\)"),
    (torch.zeros(2, 4), TypeError, r"edge_index must be a tensor of integers; got torch.float32"),
    ([[0], [1]], TypeError, r"got list"),
])  # fmt: skip
def test_bad_edges_are_named(edges, error, words):
    with pytest.raises(error, match=words):
        nn.GCNConv(5, 3)(graph()[0], edges)


@pytest.mark.parametrize("options, words", [
    ({"normalize": False, "add_self_loops": True}, "add_self_loops=True needs normalize=True"),
    ({"flow": "up"}, "flow must be 'source_to_target' or 'target_to_source'; got 'up'"),
    ({"aggr": "max"}, "aggr must be 'add'; got 'max'"),
])  # fmt: skip
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        nn.GCNConv(5, 3, **options)


LAYERS = {
    "gcn": lambda: nn.GCNConv(5, 3),
    "cheb": lambda: nn.ChebConv(5, 3, 3),
    "gin": lambda: nn.GINConv(torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU())),
    "gat": lambda: nn.GATConv(5, 3, heads=2),
    "mpnn": lambda: nn.MPNNConv(5, 3),
    "spectral": lambda: nn.SpectralConv(5, 3),
}


LOOP = torch.zeros(2, 1, dtype=torch.long)


@pytest.mark.parametrize("make, words", [
    (lambda: nn.ChebConv(5, 3, 0), "K must be at least 1; got 0"),
    (lambda: nn.ChebConv(5, 3, 2, "left"), "normalization must be None, 'sym' or 'rw'; got 'left'"),
    (lambda: nn.GATConv(5, 3, fill_value="median"), "fill_value must be a number or one of"),
    (lambda: nn.GATConv(5, 3)(torch.ones(2, 3, 5), torch.zeros(2, 1, dtype=torch.long)), "x must be one tensor"),
    (lambda: nn.GATConv(5, 3, flow="target_to_source")((torch.ones(2, 5), None), LOOP), "Flip edge_index"),
    (lambda: nn.GATConv(5, 3)((torch.ones(2, 5),) * 3, LOOP), "a pair for sources and targets; got 3 tensors"),
    (lambda: nn.GINConv(torch.nn.Linear(5, 3))((torch.ones(2, 5), None), LOOP, (3, 4)), "says 3 sources.*; got 2"),
    (lambda: nn.GINConv(torch.nn.Linear(5, 3))((torch.ones(2, 5), torch.ones(1, 5)), LOOP + 1),
     r"nodes 0 to 0 \(x of targets has 1 rows\); got 1 to 1. Number the nodes from 0"),
    (lambda: nn.GINConv(torch.nn.ReLU())(torch.eye(2).to_sparse(), LOOP), "begins with torch.nn.Linear; got ReLU"),
])  # fmt: skip
def test_bad_settings_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("name", LAYERS)
def test_permuting_the_nodes_permutes_the_output(name):
    x, edges, _ = graph()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    place = torch.empty_like(order)
    place[order] = torch.arange(12)
    layer = LAYERS[name]()
    torch.testing.assert_close(layer(x[order], place[edges]), layer(x, edges)[order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("n", [1, 4])
def test_graphs_without_edges_and_of_one_node(name, n):
    layer = LAYERS[name]()
    out = layer(torch.randn(n, 5), torch.empty(2, 0, dtype=torch.long))
    assert out.shape[0] == n and torch.isfinite(out).all()
    out.sum().backward()


@pytest.mark.parametrize("name", LAYERS)
def test_other_precisions(name):
    x, edges, _ = graph()
    layer = LAYERS[name]().eval()
    expected = layer(x, edges)
    torch.testing.assert_close(layer.double()(x.double(), edges).float(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(layer.bfloat16()(x.bfloat16(), edges).float(), expected, atol=0.1, rtol=0.1)


# SpectralConv is missing: the eigenvectors of a graph that is not known yet are no operation of an exported program.
EXPORTED = {
    "gcn": LAYERS["gcn"],
    "cheb": LAYERS["cheb"],
    "mpnn": LAYERS["mpnn"],
    "gin": LAYERS["gin"],
    "gat": lambda: nn.GATConv(5, 3, heads=2, edge_dim=1),
    "gat, maxima for loops": lambda: nn.GATConv(5, 3, edge_dim=1, fill_value="max"),
}


@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_exported_compiled_and_onnx_programs_agree(name, tmp_path):
    x, edges, weight = graph()
    inputs = (x, edges) if name == "gin" else (x, edges, weight - 0.5 * name.startswith("gat"))
    layer = EXPORTED[name]().eval()
    with torch.no_grad():
        expected = layer(*inputs)
        torch.testing.assert_close(torch.compile(layer, backend="eager", fullgraph=True)(*inputs), expected)
        program = torch.export.export(layer, inputs)
        torch.testing.assert_close(program.module()(*inputs), expected, atol=1e-5, rtol=1e-5)
        torch.onnx.export(program, (), tmp_path / "layer.onnx", verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "layer.onnx")
    named = {slot.name: value.numpy() for slot, value in zip(session.get_inputs(), inputs, strict=True)}
    torch.testing.assert_close(torch.from_numpy(session.run(None, named)[0]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow  # a compiler is called many times
@pytest.mark.parametrize("name", EXPORTED)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # of the compiler, about its own parts
def test_inductor_gives_the_same(name):
    torch._dynamo.reset()
    x, edges, weight = graph()
    inputs = (x, edges) if name == "gin" else (x, edges, weight - 0.5 * name.startswith("gat"))
    layer = EXPORTED[name]().eval()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(layer)(*inputs), layer(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(LAYERS) - {"spectral", "mpnn"}))
def test_exported_layers_without_weights_agree(name):
    x, edges, _ = graph()
    layer = LAYERS[name]().eval()
    torch.testing.assert_close(
        torch.export.export(layer, (x, edges)).module()(x, edges), layer(x, edges), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_features_give_what_dense_ones_do(name, layout):
    # The same products without the zeros, in another order: some units of the last place of float64.
    x, edges, weight = graph(dtype=torch.float64)
    x = x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.3)
    x[3] = 0  # a node without any
    thin = x.to_sparse() if layout == "coo" else x.to_sparse_csr()
    torch.manual_seed(0)
    layer = LAYERS[name]().double()
    results = []
    for features in (x, thin):
        layer.zero_grad()
        out = layer(features, edges)
        (out * torch.arange(out.numel()).reshape(out.shape).cos()).sum().backward()
        results.append([out, *(p.grad for p in layer.parameters())])
    for dense, sparse_one in zip(*results, strict=True):
        torch.testing.assert_close(sparse_one, dense, atol=1e-10, rtol=1e-10)


def test_sparse_features_fit_lazy_widening_and_paired_layers():
    x, edges, _ = graph()
    thin = (x * (x > 0.5)).to_sparse()
    for layer in (
        nn.GCNConv(-1, 9),
        nn.ChebConv(-1, 9, 2),
        nn.GATConv(-1, 9),
        nn.GATConv((-1, -1), 9, residual=True),
    ):
        torch.testing.assert_close(layer(thin, edges), layer(thin.to_dense(), edges), atol=1e-5, rtol=1e-5)
    layer = nn.GINConv(torch.nn.Linear(5, 9))
    pair = (thin.to_dense(), thin.to_dense())
    torch.testing.assert_close(layer((thin, thin), edges), layer(pair, edges), atol=1e-5, rtol=1e-5)


def test_rows_and_other_entries_of_a_sparse_matrix():
    x, _, _ = graph()
    x = x * (x > 0)
    matrix = sparse.features(x.to_sparse())
    assert matrix.shape == (12, 5) and matrix.dtype == torch.float32
    rows = torch.tensor([7, 0, 7, 3])
    eye = torch.eye(5)
    torch.testing.assert_close(sparse.aggregate(matrix[rows], eye), x[rows])
    twice = matrix.reweighted(2 * matrix.weight)
    torch.testing.assert_close(sparse.aggregate(twice, eye), 2 * x)
    torch.testing.assert_close(sparse.aggregate(matrix, eye), x)  # as it was


def test_many_layers_smooth_towards_the_square_root_of_the_degrees():
    # Not to a constant, as one sometimes reads: the top eigenvector of the normalised matrix is sqrt(d + 1).
    edges = torch.tensor([[0, 0, 0, 0, 1, 2, 3, 4], [1, 2, 3, 4, 0, 0, 0, 0]])
    layer = nn.GCNConv(1, 1, bias=False).double()
    layer.lin.weight.data.fill_(1.0)
    x = torch.rand(5, 1, dtype=torch.float64)
    for _ in range(200):
        x = layer(x, edges)
    assert (x[0] / x[1]).item() == pytest.approx((5 / 2) ** 0.5, rel=1e-6)


def test_a_convolution_is_message_passing_with_messages_of_one_end():
    x, edges, weight = graph()

    class Sum(nn.MessagePassing):
        def message(self, x_j, weight):
            return weight[:, None] * x_j

    torch.testing.assert_close(
        Sum().propagate(edges, x=x, weight=weight), sparse.aggregate(sparse.sparse(edges, 12, weight), x)
    )
    assert torch.equal(
        nn.MessagePassing().propagate(edges, x=x, size=(12, 12)), nn.MessagePassing().propagate(edges, x=x)
    )


WIDE = {
    "gcn": lambda: nn.GCNConv(5, 64),
    "gin": lambda: nn.GINConv(torch.nn.Linear(5, 64)),
    "gat": lambda: nn.GATConv(5, 64),
    "mpnn": lambda: nn.MPNNConv(5, 64),
    "spectral": lambda: nn.SpectralConv(5, 64),
}  # "cheb" divides by the number of edges that leave a node: where there are none, it hears nothing either


@pytest.mark.parametrize("name", WIDE)
def test_isolated_nodes_one_way_edges_and_several_between_two_nodes(name):
    torch.manual_seed(0)
    x, one_way = torch.randn(3, 5), torch.tensor([[0], [1]])
    layer = WIDE[name]().eval()
    at_source, at_target = x.clone(), x.clone()
    at_source[0] += 1.0
    at_target[1] += 1.0
    before, after, back = (layer(features, one_way) for features in (x, at_source, at_target))
    assert not torch.allclose(before[0], after[0]) and not torch.allclose(before[1], after[1])
    assert torch.allclose(before[2], after[2]) and torch.allclose(before[2], back[2])  # told of nothing
    if name != "spectral":  # which takes the mean of both directions
        assert torch.allclose(before[0], back[0])
    if name != "spectral":  # after division by degrees, equals cancel out
        twice = layer(x, torch.cat([one_way, one_way], 1))
        assert not torch.allclose(twice[1], before[1]) and torch.allclose(twice[2], before[2])


@pytest.mark.parametrize("call, words", [
    (lambda: nn.MessagePassing("middle"), "aggr must be one of .*; got 'middle'"),
    (lambda: nn.MessagePassing(flow="up"), "flow must be"),
    (lambda: nn.MessagePassing().propagate(torch.zeros(2, 1, dtype=torch.long), h=torch.ones(3, 1)), "must be told size="),
    (lambda: nn.MessagePassing().propagate(torch.zeros(2, 1, dtype=torch.long), (1, 1), h=1), "message needs x_j"),
    (lambda: nn.SpectralConv(2, 3, knots=0), "knots must be at least 1; got 0"),
])  # fmt: skip
def test_bad_messages_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_spectral_filter_is_a_function_of_the_laplacian():
    # With a filter linear in the frequency, theta(lambda) = lambda, the layer is the Laplacian itself.
    x, edges, _ = graph(dtype=torch.float64)
    edges = torch.cat([edges, edges.flip(0)], 1)
    layer = nn.SpectralConv(5, 5, knots=3, bias=False).double()
    layer.weight.data = (
        torch.eye(5, dtype=torch.float64) * torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)[:, None, None]
    )
    ends, entries, diagonal = laplacian(edges, None, 12, "sym", torch.float64)
    L = torch.diag(diagonal * (torch.bincount(edges[0][edges[0] != edges[1]], minlength=12) > 0))
    L = L.index_put((ends[1], ends[0]), entries, accumulate=True)
    torch.testing.assert_close(layer(x, edges), L @ x, atol=1e-9, rtol=1e-9)


def test_few_frequencies_are_the_lowest_of_all():
    g = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 300, (2, 2000), generator=g)
    some, vectors = fourier_basis(edges, None, 300, 6)
    every, _ = fourier_basis(edges, None, 300, None)
    torch.testing.assert_close(some, every[:6], atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(6, dtype=torch.float64), atol=1e-8, rtol=0)
