"""Graph layers against those of torch_geometric: outputs and gradients with the same weights."""

from __future__ import annotations

import warnings

import pytest
import scipy.sparse
import torch

from corollary import nn
from graph_cases import graph, results

torch.set_num_threads(1)  # small graphs: waking a second thread takes longer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric calls torch.jit.script when imported
    import torch_geometric.nn as pyg
    from torch_geometric import EdgeIndex
    from torch_geometric.utils import to_torch_csr_tensor

GCN = [{}, {"improved": True}, {"normalize": False}, {"add_self_loops": False}, {"bias": False}, {"cached": True},
       {"flow": "target_to_source"}]  # fmt: skip


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


def test_two_kinds_of_nodes_may_send_messages():
    senders, receivers = torch.randn(4, 2), torch.randn(3, 2)
    edges = torch.tensor([[0, 3, 1], [2, 2, 0]])

    class Forward:
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

    def layer(base, name="Sum", **options):
        return type(name, (Forward, base), {})(aggr="add", **options)

    out = layer(nn.MessagePassing)((senders, receivers), edges)
    torch.testing.assert_close(out, layer(pyg.MessagePassing)((senders, receivers), edges))
    torch.testing.assert_close(out, torch.stack([senders[1], torch.zeros(2), senders[0] + senders[3]]))
    torch.testing.assert_close(nn.MessagePassing().propagate(edges, x=(senders, None))[:3], out)
    back = nn.MessagePassing(flow="target_to_source").propagate(edges.flip(0), x=(receivers, senders))
    torch.testing.assert_close(back, out)
    theirs = layer(
        pyg.MessagePassing, "Back", flow="target_to_source"
    )  # it writes code by the name of the class
    torch.testing.assert_close(back, theirs((receivers, senders), edges.flip(0)))
    with pytest.raises(ValueError, match=r"nodes 0 to 2 \(x of targets has 3 rows\); got 0 to 3"):
        nn.MessagePassing().propagate(edges.flip(0), x=(senders, receivers))
    sized = EdgeIndex(edges, sparse_size=(4, 3))
    torch.testing.assert_close(nn.MessagePassing().propagate(sized, x=(senders, None)), out)


def ends_apart(base):
    """Return a layer that takes features of the two ends by two names, and says how large its result is."""

    class Ends(base):
        def __init__(self, **options):
            super().__init__(**options)
            self.in_channels, self.out_channels = 2, 2
            self.reset_parameters()

        def reset_parameters(self):
            super().reset_parameters()

        def forward(self, key, query, edge_index, edge_attr=None):
            return self.propagate(edge_index, key=key, query=query, edge_attr=edge_attr)

        def message(self, key_j, query_i, edge_attr):
            out = key_j * query_i
            return out if edge_attr is None else out * edge_attr.sum(-1, keepdim=True)

    return Ends


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_each_end_may_have_features_of_its_own_name(flow):
    key, query = torch.randn(4, 2), torch.randn(3, 2)
    edges = torch.tensor([[0, 3, 1], [2, 2, 0]])
    edges = edges if flow == "source_to_target" else edges.flip(0)
    ours, theirs = (ends_apart(base)(flow=flow) for base in (nn.MessagePassing, pyg.MessagePassing))
    assert str(ours) == str(theirs) == "Ends(2, 2)"
    out = ours(key, query, edges)
    assert out.shape == (3, 2)
    torch.testing.assert_close(out, theirs(key, query, edges))
    with pytest.raises(
        ValueError, match=r"Ends: query must have a row for each of the 9 nodes of edge_index\[.\]; got 3"
    ):
        ours.propagate(edges, size=(9, 9), query=query, key=torch.randn(9, 2))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_entries_of_a_matrix_are_attributes_only_if_they_are_vectors():
    x, edges, weight, matrix = directed()
    x = x[:, :2]
    layer = ends_apart(nn.MessagePassing)()
    expected = layer(x, x, edges)
    torch.testing.assert_close(layer(x, x, matrix.to_sparse_csr()), expected, atol=1e-5, rtol=1e-5)
    vectors = torch.sparse_coo_tensor(edges.flip(0), torch.stack([weight, weight], 1), (12, 12, 2))
    torch.testing.assert_close(
        layer(x, x, vectors), layer(x, x, edges, torch.stack([weight, weight], 1)), atol=1e-5, rtol=1e-5
    )


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("aggr", [["add", "max"], "mul"])
def test_one_step_over_a_matrix_is_for_one_aggregation_that_has_it(aggr):
    class Fused(nn.MessagePassing):
        def message_and_aggregate(self, adj_t, x):
            raise AssertionError("not for these")

    x, edges, _, matrix = directed()
    expected = nn.MessagePassing(aggr).propagate(edges, x=x)
    torch.testing.assert_close(Fused(aggr).propagate(matrix.to_sparse_csr(), x=x), expected)


@pytest.mark.parametrize(
    "aggr, options", [("std", None), ("softmax", {"t": 0.5}), (["mean", "max"], {"mode": "sum"})]
)
def test_aggregations_of_torch_geometric_have_their_names(aggr, options):
    x, edges, _, _ = directed()

    def layer(base, name):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        return type(name, (base,), {"forward": forward})(aggr, aggr_kwargs=options)

    ours, theirs = layer(nn.MessagePassing, "Ours"), layer(pyg.MessagePassing, "Theirs")
    torch.testing.assert_close(ours(x, edges), theirs(x, edges))
    ours.reset_parameters()
    torch.testing.assert_close(ours(x, edges), theirs(x, edges))


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "mul"])
def test_messages_of_several_tables_at_once_lie_in_order(aggr):
    x, edges, _, _ = directed()
    both = torch.stack([x, 2 * x])
    out = nn.MessagePassing(aggr).propagate(edges, x=both)
    assert out.is_contiguous()
    torch.testing.assert_close(out[1], nn.MessagePassing(aggr).propagate(edges, x=2 * x))


# --- sparse matrices in the place of edges ----------------------------------------------------------------


def directed():
    """Return features, edges that go one way with weights, and the matrix with a row per target."""
    torch.manual_seed(3)
    dense = torch.rand(12, 12) * (torch.rand(12, 12) < 0.3)
    dense.fill_diagonal_(
        0.0
    )  # torch_geometric adds to the loops of a matrix, but keeps those of a list of edges
    targets, sources = dense.nonzero().T
    return torch.randn(12, 5), torch.stack([sources, targets]), dense[targets, sources], dense.to_sparse_coo()


FORMS = {
    "coo": lambda m: m,
    "csr": lambda m: m.to_sparse_csr(),
    "csc": lambda m: m.to_sparse_csc(),
    "scipy": lambda m: scipy.sparse.coo_matrix(
        (m.coalesce().values().numpy(), m.coalesce().indices().numpy()), m.shape
    ),
}
LAYERS = {
    "gcn": lambda: nn.GCNConv(5, 3),
    "cheb": lambda: nn.ChebConv(5, 3, K=3),
    "gin": lambda: nn.GINConv(torch.nn.Linear(5, 3)),
    "mpnn": lambda: nn.MPNNConv(5, 3),
    "spectral": lambda: nn.SpectralConv(5, 3),
    "gat": lambda: nn.GATConv(5, 3, heads=2, edge_dim=1),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC) tensor support")
def test_a_sparse_matrix_stands_for_its_edges(name, form):
    x, edges, weight, matrix = directed()
    layer = LAYERS[name]().eval()
    key = {"gat": "edge_attr"}.get(name, "edge_weight")
    expected = layer(x, edges, **{key: weight})
    for _ in range(2):  # made, and found again
        torch.testing.assert_close(layer(x, FORMS[form](matrix)), expected, atol=1e-5, rtol=1e-5)
    make = {  # its GATConv leaves the entries of torch's matrices out
        "gcn": lambda: pyg.GCNConv(5, 3),
        "gin": lambda: pyg.GINConv(torch.nn.Linear(5, 3)),
    }.get(name)
    if make is not None and form == "csr":
        theirs = make()
        theirs.load_state_dict(layer.state_dict())
        torch.testing.assert_close(theirs(x, matrix.to_sparse_csr()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_sparse_matrix_that_changes_is_read_again_and_has_a_gradient():
    x, edges, weight, matrix = directed()
    layer, rows = nn.GCNConv(5, 3), matrix.clone().to_sparse_csr()
    layer(x, rows)
    rows.values().mul_(3.0)
    torch.testing.assert_close(layer(x, rows), layer(x, edges, 3 * weight), atol=1e-5, rtol=1e-5)
    learned = matrix.to_sparse_csr().requires_grad_()
    w = weight.clone().requires_grad_()
    layer(x, learned).square().sum().backward()
    layer(x, edges, w).square().sum().backward()
    given = torch.sparse_coo_tensor(edges.flip(0), w.grad, matrix.shape).to_dense()
    torch.testing.assert_close(learned.grad.to_dense(), given, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("call, words", [
    (lambda m: nn.GCNConv(5, 3, flow="target_to_source")(torch.ones(12, 5), m), "needs flow='source_to_target'; got"),
    (lambda m: nn.GCNConv(5, 3)(torch.ones(12, 5), m, torch.ones(4)), r"entries, so no others .* shape \(4,\)"),
    (lambda m: nn.GCNConv(5, 3)(torch.ones(3, 5), m), "edges must join nodes 0 to 2"),
    (lambda m: nn.GINConv(torch.nn.Linear(5, 3))((torch.ones(3, 5), None), m), "size says 12 sources"),
])  # fmt: skip
def test_bad_matrices_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call(directed()[3])


# --- what a message passing layer may write ---------------------------------------------------------------


def written(base):
    class Written(base):
        def __init__(self):
            super().__init__(aggr="max")

        def forward(self, x, edge_index, **given):
            return self.propagate(edge_index, x=x, edge=self.edge_updater(edge_index, x=x), **given)

        def edge_update(self, x_i, x_j):
            return x_i - x_j

        def message(self, x_j, edge, scale=2.0):
            return scale * x_j + edge

        def aggregate(self, inputs, index, dim_size=None):
            total = inputs.new_zeros(dim_size, inputs.shape[1]).index_add(0, index, inputs.abs())
            return total, super().aggregate(inputs, index, dim_size=dim_size)

        def update(self, inputs, x):
            return inputs[0] + x, inputs[1]

    return Written()


def test_aggregate_defaults_and_edge_updates_equal_torch_geometric():
    x, edges, _ = graph()
    ours, theirs = written(nn.MessagePassing), written(pyg.MessagePassing)
    for a, b in zip(ours(x, edges), theirs(x, edges, scale=2.0)):  # which has no defaults in a local class
        torch.testing.assert_close(a, b)
    assert not torch.allclose(ours(x, edges)[0], ours(x, edges)[1])


def plain(base, aggr):
    class Plain(base):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

    return Plain(aggr=aggr)


@pytest.mark.parametrize("aggr", ["mul", ["add", "mean", "max"]])
def test_products_and_several_aggregations_equal_torch_geometric(aggr):
    x, edges, _ = graph()
    stack = torch.stack([x, 2 * x])  # several tables on one graph
    for features in (x, stack):
        ours, theirs = (
            plain(base, aggr)(features, edges) for base in (nn.MessagePassing, pyg.MessagePassing)
        )
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_an_aggregation_module_and_hooks_equal_torch_geometric():
    x, edges, _ = graph()
    layers = [
        plain(base, pyg.aggr.SoftmaxAggregation(t=0.5)) for base in (nn.MessagePassing, pyg.MessagePassing)
    ]
    for layer in layers:
        layer.register_message_forward_hook(lambda module, inputs, out: out + inputs[0]["x_j"].mean())
        layer.register_propagate_forward_pre_hook(
            lambda module, inputs: (*inputs[:2], {"x": 2 * inputs[2]["x"]})
        )
    ours, theirs = (layer(x, edges) for layer in layers)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_fused_step_gets_the_matrix():
    x, edges, weight, matrix = directed()

    class Fused(nn.MessagePassing):
        def message(self, x_j, edge_weight):
            return edge_weight[:, None] * x_j

        def message_and_aggregate(self, adj_t, x):
            self.seen = adj_t
            return adj_t @ x

    layer = Fused()
    for form in ("csr", "scipy"):
        fused = layer.propagate(FORMS[form](matrix), x=x)
        assert layer.seen.layout == torch.sparse_csr
        layer.fuse = False
        torch.testing.assert_close(layer.propagate(FORMS[form](matrix), x=x), fused, atol=1e-5, rtol=1e-5)
        layer.fuse = True
    torch.testing.assert_close(layer.propagate(edges, x=x, edge_weight=weight), fused, atol=1e-5, rtol=1e-5)
