"""Graph layers against torch_geometric, and the identities that they must satisfy."""

from __future__ import annotations

import gc
import shutil
import warnings
import weakref

import onnxruntime
import pytest
import torch

from corollary import nn
from corollary.nn import gat, sparse
from corollary.nn.cheb import laplacian
from corollary.nn.spectral import fourier_basis

torch.set_num_threads(1)  # small graphs: waking a second thread takes longer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric calls torch.jit.script when imported
    import torch_geometric.nn as pyg
    from torch_geometric.utils import to_torch_csr_tensor

GCN = [{}, {"improved": True}, {"normalize": False}, {"add_self_loops": False}, {"bias": False}, {"cached": True},
       {"flow": "target_to_source"}]  # fmt: skip


def graph(n=12, edges=40, width=5, seed=0, dtype=torch.float32):
    """Directed, with several edges between the same nodes, two self-loops and an isolated node."""
    g = torch.Generator().manual_seed(seed)
    ends = torch.stack(
        [torch.randint(0, 5, (edges,), generator=g), torch.randint(5, n - 1, (edges,), generator=g)]
    )
    ends = torch.cat([ends, ends[:, :9].flip(0), torch.tensor([[2, 7], [2, 7]])], 1)
    ends = ends[:, torch.randperm(ends.shape[1], generator=g)]
    x = torch.randn(n, width, generator=g, dtype=dtype)
    return x, ends, torch.rand(ends.shape[1], generator=g, dtype=dtype) + 0.1


def results(layer, x, edges, *rest):
    """Return the output of a layer and the gradients of a loss by input, weights and parameters."""
    x = x.clone().requires_grad_()
    rest = tuple(r if r is None else r.clone().requires_grad_() for r in rest)
    out = layer(x, edges, *rest)
    (out * torch.arange(out.numel()).reshape(out.shape).cos()).sum().backward()
    return [out, x.grad, *(r.grad for r in rest if r is not None), *(p.grad for p in layer.parameters())]


def agree(ours, theirs, *data, strict=True):
    # The same sums of float32 numbers in another order: some units of the last place.
    ours.load_state_dict(theirs.state_dict(), strict=strict)
    for a, b in zip(results(ours, *data), results(theirs, *data), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", GCN, ids=str)
@pytest.mark.parametrize("widths", [(5, 3), (5, 9)], ids=["narrowing", "widening"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_equals_torch_geometric(options, widths, weighted):
    torch.manual_seed(0)
    x, edges, weight = graph()
    agree(
        nn.GCNConv(*widths, **options),
        pyg.GCNConv(*widths, **options),
        x,
        edges,
        weight if weighted else None,
    )


CHEB = [{}, {"normalization": "rw"}, {"normalization": None}, {"bias": False}, {"flow": "target_to_source"}]


@pytest.mark.parametrize("options", CHEB, ids=str)
@pytest.mark.parametrize("widths", [(5, 3, 1), (5, 3, 2), (5, 3, 4), (5, 9, 2), (5, 9, 4)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_cheb_equals_torch_geometric(options, widths, weighted):
    torch.manual_seed(0)
    x, edges, weight = graph()
    agree(
        nn.ChebConv(*widths, **options),
        pyg.ChebConv(*widths, **options),
        x,
        edges,
        weight if weighted else None,
    )


@pytest.mark.parametrize("largest", [1.7, torch.tensor(1.7), torch.tensor([1.5, 1.9])], ids=str)
def test_cheb_takes_the_largest_eigenvalue(largest):
    x, edges, _ = graph()
    batch = (torch.arange(12) > 6).long()
    ours, theirs = nn.ChebConv(5, 3, 3), pyg.ChebConv(5, 3, 3)
    ours.load_state_dict(theirs.state_dict())
    got, expected = (layer(x, edges, batch=batch, lambda_max=largest) for layer in (ours, theirs))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"eps": 0.3}, {"eps": 0.3, "train_eps": True}], ids=str)
@pytest.mark.parametrize("network", ["narrow", "wide", "linear"])
def test_gin_equals_torch_geometric(options, network):
    def make():
        torch.manual_seed(0)
        width = 3 if network == "narrow" else 9
        layers = [
            torch.nn.Linear(5, width),
            torch.nn.BatchNorm1d(width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 4),
        ]
        return layers[0] if network == "linear" else torch.nn.Sequential(*layers)

    x, edges, _ = graph()
    agree(nn.GINConv(make(), **options), pyg.GINConv(make(), **options), x, edges)


def test_gin_sums_what_a_mean_cannot_tell_apart():
    two, three = torch.tensor([[1, 2], [0, 0]]), torch.tensor([[1, 2, 3], [0, 0, 0]])
    layer = nn.GINConv(torch.nn.Linear(1, 1))
    assert not torch.allclose(layer(torch.ones(4, 1), two)[0], layer(torch.ones(4, 1), three)[0])


GAT = [
    {}, {"heads": 3}, {"heads": 2, "concat": False}, {"heads": 2, "add_self_loops": False}, {"negative_slope": 0.4},
    {"bias": False, "residual": True}, {"heads": 8, "flow": "target_to_source"},
]  # fmt: skip


@pytest.mark.parametrize("options", GAT, ids=str)
@pytest.mark.parametrize("width", [3, 8])
def test_gat_equals_torch_geometric(options, width):
    torch.manual_seed(0)
    x, edges, _ = graph()
    agree(nn.GATConv(5, width, **options), pyg.GATConv(5, width, **options), x, edges)


@pytest.mark.parametrize("fill", ["mean", "add", "min", "max", 0.5])
@pytest.mark.parametrize("loops", [True, False])
def test_gat_with_edge_features_equals_torch_geometric(fill, loops):
    torch.manual_seed(0)
    x, edges, _ = graph()
    options = {"heads": 2, "edge_dim": 4, "fill_value": fill, "add_self_loops": loops}
    agree(nn.GATConv(5, 3, **options), pyg.GATConv(5, 3, **options), x, edges, torch.randn(edges.shape[1], 4))


@pytest.mark.parametrize("name, sizes, options", [
    ("GCNConv", (90, 60), {}), ("ChebConv", (90, 60, 3), {}), ("GATConv", (90, 60), {"heads": 40, "edge_dim": 50}),
    ("GATConv", ((90, 30), 60), {"heads": 40, "residual": True}),
])  # fmt: skip
def test_initial_weights_are_spread_as_those_of_torch_geometric(name, sizes, options):
    torch.manual_seed(0)
    ours, theirs = (getattr(library, name)(*sizes, **options).state_dict() for library in (nn, pyg))
    for key, values in theirs.items():
        # The largest of 1800 or more uniform numbers is within 1 % of the bound, but for one draw in 10^7.
        torch.testing.assert_close(ours[key].abs().max(), values.abs().max(), atol=0, rtol=0.02, msg=key)


def test_gat_returns_its_weights_which_sum_to_one():
    torch.manual_seed(0)
    x, edges, _ = graph()
    ours, theirs = nn.GATConv(5, 3, heads=2), pyg.GATConv(5, 3, heads=2)
    ours.load_state_dict(theirs.state_dict())
    (_, (ends, alpha)), (_, (their_ends, their_alpha)) = (
        f(x, edges, return_attention_weights=True) for f in (ours, theirs)
    )
    assert torch.equal(ends, their_ends)
    torch.testing.assert_close(alpha, their_alpha, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(torch.zeros(12, 2).index_add(0, ends[1], alpha), torch.ones(12, 2))


PAIRS = [
    {"in_channels": (5, 4)}, {"in_channels": (5, 4), "heads": 3, "concat": False, "residual": True},
    {"in_channels": (5, 4), "heads": 2, "add_self_loops": False, "edge_dim": 3}, {"in_channels": 5, "edge_dim": 3},
    {"in_channels": 5, "heads": 2}, {"in_channels": (5, 4), "edge_dim": 3, "fill_value": torch.tensor([1.0, 2.0, 3.0])},
]  # fmt: skip


def between(sources=8, targets=6, edges=25, seed=0):
    g = torch.Generator().manual_seed(seed)
    ends = [torch.randint(0, n, (edges,), generator=g) for n in (sources, targets)]
    return torch.stack(ends), torch.randn(edges, 3, generator=g)


@pytest.mark.parametrize("options", PAIRS, ids=str)
@pytest.mark.parametrize("headless", [False, True])
def test_gat_between_two_kinds_of_nodes_equals_torch_geometric(options, headless):
    torch.manual_seed(0)
    edges, attr = between()
    ours, theirs = nn.GATConv(out_channels=3, **options), pyg.GATConv(out_channels=3, **options)
    ours.load_state_dict(theirs.state_dict())
    width = options["in_channels"][1] if isinstance(options["in_channels"], tuple) else 5
    results = []
    for layer in (ours, theirs):
        torch.manual_seed(1)
        left, right = torch.randn(8, 5).requires_grad_(), torch.randn(6, width).requires_grad_()
        pair, size = ((left, None), (8, 6)) if headless else ((left, right), None)
        out, (ends, alpha) = layer(pair, edges, attr, size=size, return_attention_weights=True)
        (out * torch.arange(out.numel()).reshape(out.shape).cos()).sum().backward()
        grads = [p.grad for p in layer.parameters() if p.grad is not None and p.grad.any()]
        results.append([out, alpha, ends, left.grad, *grads, *([] if headless else [right.grad])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_gat_with_two_maps_of_one_kind_of_nodes_equals_torch_geometric():
    x, edges, _ = graph()
    agree(nn.GATConv((5, 5), 3, heads=2), pyg.GATConv((5, 5), 3, heads=2), x, edges)


@pytest.mark.parametrize("width", [2, 9])
@pytest.mark.parametrize("headless", [False, True])
@pytest.mark.parametrize("train_eps", [False, True])
def test_gin_between_two_kinds_of_nodes_equals_torch_geometric(width, headless, train_eps):
    edges, _ = between()
    torch.manual_seed(0)
    left, right = torch.randn(8, 5), None if headless else torch.randn(6, 5)
    network = torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))
    ours, theirs = (layer(network, 0.3, train_eps) for layer in (nn.GINConv, pyg.GINConv))
    ours.load_state_dict(theirs.state_dict())
    expected = theirs((left, right), edges, (8, 6))
    torch.testing.assert_close(ours((left, right), edges, (8, 6)), expected, atol=1e-5, rtol=1e-5)


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
    assert layer._first.shape == (12, 12)


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


def test_the_csr_form_of_torch_geometric_gives_the_same():
    x, edges, weight = graph()
    theirs = pyg.GCNConv(5, 3, normalize=False)
    ours = nn.GCNConv(5, 3, normalize=False)
    ours.load_state_dict(theirs.state_dict())
    edges = torch.unique(edges, dim=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        csr = to_torch_csr_tensor(edges.flip(0), weight[: edges.shape[1]], size=(12, 12))
    torch.testing.assert_close(ours(x, edges, weight[: edges.shape[1]]), theirs(x, csr), atol=1e-5, rtol=1e-5)


# --- messages and spectra --------------------------------------------------------------------------------


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_message_passing_equals_torch_geometric(aggr, flow):
    def layer(base):
        class Edgewise(base):
            def forward(self, x, edge_index, weight):
                return self.propagate(edge_index, x=x, weight=weight, extra=2 * x)

            def message(self, x_i, x_j, extra_j, weight):
                return weight[:, None] * (x_i * x_j - extra_j)

            def update(self, inputs, x):
                return inputs + x

        return Edgewise(aggr=aggr, flow=flow)

    data = graph()
    expected = layer(pyg.MessagePassing)(*data)
    torch.testing.assert_close(layer(nn.MessagePassing)(*data), expected, atol=1e-5, rtol=1e-5)


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


def test_two_kinds_of_nodes_may_send_messages():
    senders, receivers = torch.randn(4, 2), torch.randn(3, 2)
    edges = torch.tensor([[0, 3, 1], [2, 2, 0]])

    def layer(base):
        class Sum(base):
            def forward(self, x, edge_index):
                return self.propagate(edge_index, x=x)

        return Sum(aggr="add")

    out = layer(nn.MessagePassing)((senders, receivers), edges)
    torch.testing.assert_close(out, layer(pyg.MessagePassing)((senders, receivers), edges))
    torch.testing.assert_close(out, torch.stack([senders[1], torch.zeros(2), senders[0] + senders[3]]))
    torch.testing.assert_close(nn.MessagePassing().propagate(edges, x=(senders, None))[:3], out)
    back = nn.MessagePassing(flow="target_to_source").propagate(edges.flip(0), x=(senders, receivers))
    torch.testing.assert_close(back, out)
    with pytest.raises(ValueError, match=r"nodes 0 to 2 \(x of targets has 3 rows\); got 0 to 3"):
        nn.MessagePassing().propagate(edges.flip(0), x=(senders, receivers))


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
    (lambda: nn.MessagePassing("median"), "aggr must be one of .*; got 'median'"),
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
