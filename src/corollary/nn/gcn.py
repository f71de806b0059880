r"""The graph convolution of Kipf and Welling.

With self-loops added, :math:`\tilde A = A + I`, and degrees :math:`\tilde d_i = \sum_j \tilde a_{ij}`,

.. math::
    X' = \hat A X W^\top + b, \qquad \hat a_{ij} = \tilde a_{ij} / \sqrt{\tilde d_i \tilde d_j}. \tag{1}

The product is taken in the order in which its middle matrix is the narrower one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.adjacency import as_edges
from corollary.nn.sparse import Sparse, aggregate, check_edges, features, project, remember

__all__ = ["GCNConv", "GlorotLinear", "gcn_norm", "self_loops"]


def self_loops(edge_index: Tensor, weight: Tensor, fill: float, n: int) -> tuple[Tensor, Tensor]:
    """Give every node one self-loop: a given one keeps its weight (the last if several), the others get ``fill``.

    Loops that were given stay where they are with weight zero, so that no shape depends on the data.
    """
    source, target = edge_index
    nodes = torch.arange(n, device=edge_index.device)
    loop = source == target
    loops = weight.new_full((n,), fill)
    if source.shape[0]:
        place = torch.where(loop, torch.arange(source.shape[0], device=edge_index.device), -1)
        last = torch.full_like(nodes, -1).scatter_reduce(0, source, place, "amax")
        loops = torch.where(last >= 0, weight[last.clamp(min=0)], loops)
    kept = torch.where(loop, torch.zeros_like(weight), weight)
    return torch.cat([edge_index, nodes.expand(2, n)], 1), torch.cat([kept, loops])


def gcn_norm(
    edge_index: Tensor,
    weight: Tensor | None,
    n: int,
    *,
    fill: float = 1.0,
    loops: bool = True,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Return the edges and the weights of eq. 1; a node without edges or loops gets zero."""
    if weight is None:
        weight, fill = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device), 1.0
    if loops:
        edge_index, weight = self_loops(edge_index, weight.to(dtype), fill, n)
    source, target = edge_index
    degree = torch.zeros(n, dtype=dtype, device=source.device).index_add(0, target, weight)
    scale = torch.where(degree > 0, degree, 1.0).rsqrt() * (degree > 0)
    return edge_index, scale[source] * weight * scale[target]


class GlorotLinear(nn.Linear):
    """A linear map without bias whose weights begin as Glorot and Bengio's."""

    def __init__(self, n_in: int, n_out: int, **options: Any) -> None:
        super().__init__(n_in, n_out, bias=False, **options)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Any) -> Tensor:
        """Map features, dense or sparse."""
        return project(x, self.weight)


class LazyGlorotLinear(nn.LazyLinear):
    """The same, with its input width taken from the first input."""

    cls_to_become = GlorotLinear  # type: ignore[assignment]

    def __init__(self, n_out: int) -> None:
        super().__init__(n_out, bias=False)

    def reset_parameters(self) -> None:
        """Draw new weights, once there are any."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Any) -> Tensor:
        """Map features, dense or sparse."""
        return project(x, self.weight)


def linear(n_in: int, n_out: int) -> nn.Module:
    """Return a Glorot linear map; ``n_in=-1`` waits for the first input."""
    return LazyGlorotLinear(n_out) if n_in == -1 else GlorotLinear(n_in, n_out)


def check_flow(owner: str, flow: str, aggr: str) -> None:
    """Raise unless messages are summed and flow one of the two ways."""
    if flow not in ("source_to_target", "target_to_source"):
        raise value(owner, "flow must be 'source_to_target' or 'target_to_source'", repr(flow))
    if aggr not in ("add", "sum"):
        raise value(
            owner, "aggr must be 'add'", repr(aggr), "Write other aggregations with nn.MessagePassing."
        )


class GCNConv(nn.Module):
    """Mix each node's features with its neighbours', normalised by degrees.

    Arguments, state dict and results are those of ``torch_geometric.nn.GCNConv``.

    Parameters
    ----------
    in_channels : int
        Width of the input; -1 takes it from the first one.
    out_channels : int
        Width of the output.
    improved : bool, default=False
        Whether self-loops weigh 2 rather than 1 (see Notes).
    cached : bool, default=False
        Whether the first graph's matrix serves for every later call. There is rarely a need:
        the matrix of an unchanged ``edge_index`` tensor is found again anyway.
    add_self_loops : bool, optional
        Whether every node gets a self-loop; by default if ``normalize``.
    normalize : bool, default=True
        Whether weights are divided by the degrees.
    bias : bool, default=True
        Whether a bias is added.
    aggr : {"add", "sum"}, default="add"
        How messages are put together.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way messages go along edges.

    Notes
    -----
    A call costs O(n d_in d_out + E min(d_in, d_out)). As in torch_geometric 2.8, ``improved`` acts only
    where ``edge_weight`` is given; pass ones to have :math:`A + 2I` for a graph without weights.

    Examples
    --------
    >>> import torch
    >>> from corollary.nn import GCNConv
    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> GCNConv(4, 2)(torch.ones(3, 4), edges).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        *,
        aggr: str = "add",
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        check_flow("GCNConv", flow, aggr)
        add_self_loops = normalize if add_self_loops is None else add_self_loops
        if add_self_loops and not normalize:
            raise value("GCNConv", "add_self_loops=True needs normalize=True", "normalize=False")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.improved = improved
        self.cached = cached
        self.add_self_loops = add_self_loops
        self.normalize = normalize
        self.flow = flow
        self.lin = linear(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self._cached_edge_index: Sparse | None = (
            None  # set to None, as in torch_geometric, to forget the graph
        )

    def reset_parameters(self) -> None:
        """Draw new weights and forget the cached graph."""
        self.lin.reset_parameters()  # type: ignore[operator]
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self._cached_edge_index = None

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the mixed features, eq. 1.

        Parameters
        ----------
        x : tensor of shape (..., n, in_channels)
            Node features; a sparse (n, in_channels) stays sparse.
        edge_index : tensor of int64 of shape (2, E), or sparse matrix
            Sources and targets; or a torch or scipy matrix whose entry (i, j) is the weight of the edge from j to i.
        edge_weight : tensor of shape (E,), optional
            Weights of the edges.

        Returns
        -------
        tensor of shape (..., n, out_channels)
        """
        x = features(x)
        matrix = self._cached_edge_index
        if matrix is None:
            edges = as_edges("GCNConv", edge_index, edge_weight, self.flow)
            matrix = self._matrix(edges.index, edges.weight, x.shape[-2], x.dtype)
        if self.cached:
            self._cached_edge_index = matrix
        if x.shape[-1] < self.out_channels and not isinstance(x, Sparse):
            out = self.lin(aggregate(matrix, x))
        else:
            out = aggregate(matrix, self.lin(x))
        return out if self.bias is None else out + self.bias

    def _matrix(self, edge_index: Tensor, weight: Tensor | None, n: int, dtype: torch.dtype) -> Sparse:
        check_edges(edge_index, n, "GCNConv")

        def make() -> Sparse:
            edges = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
            w = weight
            if self.normalize:
                fill = 2.0 if self.improved else 1.0
                edges, w = gcn_norm(edges, w, n, fill=fill, loops=self.add_self_loops, dtype=dtype)
            return Sparse(edges[0].clone(), edges[1].clone(), (n, n), w)

        options = ("gcn", n, self.improved, self.add_self_loops, self.normalize, self.flow, dtype)
        return remember(edge_index, weight, options, make)

    def __repr__(self) -> str:
        """Return the widths."""
        return f"GCNConv({self.in_channels}, {self.out_channels})"
