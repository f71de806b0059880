r"""Graph attention.

With :math:`h_i = W x_i`, split into heads, an edge :math:`j \to i` has the score and the weight

.. math::
    s_{ij} = \mathrm{LeakyReLU}(a_s \cdot h_j + a_t \cdot h_i + a_e \cdot U e_{ij}), \qquad
    \alpha_{ij} = \frac{\exp s_{ij}}{\sum_{k \to i} \exp s_{ik}}, \qquad
    x_i' = \sum_{j \to i} \alpha_{ij} h_j + b, \tag{1}

each head with its own vectors; heads are joined or averaged. Its gradient by a score is
:math:`\alpha_{ij} (d_{ij} - \sum_k \alpha_{ik} d_{ik})` with :math:`d_{ij} = g_i \cdot h_j` (2).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from corollary.errors import value
from corollary.nn.adjacency import as_edges, is_matrix
from corollary.nn.gcn import check_flow, linear
from corollary.nn.sparse import COMPILED, Sparse, check_edges, ends, remember

__all__ = ["GATConv", "attend"]


def attend(
    matrix: Sparse,
    x: Tensor,
    at_source: Tensor,
    at_target: Tensor,
    extra: Tensor | None,
    keep: Tensor | None,
    slope: float,
) -> tuple[Tensor, Tensor]:
    """Return the weighted sums and the weights of eq. 1.

    Parameters
    ----------
    matrix : Sparse
        The edges.
    x : tensor of shape (n, heads, d)
        Transformed features of the sources.
    at_source, at_target : tensors of shape (n, heads) and (m, heads)
        What each node adds to a score as source and as target.
    extra : tensor of shape (E, heads), optional
        What each edge adds.
    keep : tensor of shape (E, heads), optional
        Factors on the weights, from dropout.
    slope : float
        Of the leaky rectifier.

    Returns
    -------
    (tensor of shape (m, heads, d), tensor of shape (E, heads))
    """
    fused = x.device.type == "cpu" and x.dtype in COMPILED and not torch.compiler.is_compiling()
    if fused and not torch.onnx.is_in_onnx_export():
        return _Attend.apply(x, at_source, at_target, extra, keep, matrix, slope)
    return _plain(matrix, x, at_source, at_target, extra, keep, slope)


def _plain(
    matrix: Sparse, x: Tensor, at_source: Tensor, at_target: Tensor, extra: Any, keep: Any, slope: float
) -> Any:
    """Do the same in torch operations, on any device."""
    source, target = matrix.source, matrix.target
    scores = at_source[source] + at_target[target]
    scores = F.leaky_relu(scores if extra is None else scores + extra, slope)
    where = target[:, None].expand_as(scores)
    top = torch.zeros_like(at_target).scatter_reduce(0, where, scores.detach(), "amax", include_self=False)
    weights = (scores - top[target]).exp()
    total = torch.zeros_like(at_target).index_add(0, target, weights)
    alpha = weights / total[target]
    used = alpha if keep is None else alpha * keep
    out = x.new_zeros(matrix.shape[0], *x.shape[1:]).index_add(0, target, used[..., None] * x[source])
    return out, alpha


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(x, at_source, at_target, extra, keep, matrix, slope):  # type: ignore[no-untyped-def]
        from corollary.nn import gat_kernels

        rows = matrix.compressed(False)
        empty = x.new_empty(0, x.shape[1])
        parts = (empty if extra is None else extra[rows.edge], empty if keep is None else keep[rows.edge])
        alpha = x.new_empty(len(rows.index), x.shape[1])
        out = x.new_empty(matrix.shape[0], x.shape[1] * x.shape[2])
        arrays = [_array(t) for t in (x.flatten(1), at_source, at_target, *parts)]
        number = arrays[0].dtype.type(slope)
        gat_kernels.forward(rows.bounds, rows.start, rows.index, *arrays, number, alpha.numpy(), out.numpy())
        by_edge = torch.empty_like(alpha)
        by_edge[rows.edge] = alpha
        return out.view(matrix.shape[0], *x.shape[1:]), by_edge

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        x, at_source, at_target, extra, keep, ctx.matrix, ctx.slope = inputs
        ctx.save_for_backward(x, at_source, at_target, extra, keep, output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):  # type: ignore[no-untyped-def]
        from corollary.nn import gat_kernels

        x, at_source, at_target, extra, keep, alpha = ctx.saved_tensors
        rows, columns, place = ctx.matrix.compressed(False), ctx.matrix.compressed(True), _places(ctx.matrix)
        empty = x.new_empty(0, x.shape[1])
        parts = (empty if extra is None else extra[rows.edge], empty if keep is None else keep[rows.edge])
        flat = x.flatten(1)
        alpha = alpha[rows.edge]
        ds, dx = torch.empty_like(alpha), torch.empty_like(flat)
        d_source, d_target = torch.empty_like(at_source), torch.empty_like(at_target)
        arrays = [_array(t) for t in (flat, at_source, at_target, *parts)]
        number = arrays[0].dtype.type(ctx.slope)
        made = [t.numpy() for t in (ds, d_target, dx, d_source)]
        gat_kernels.backward(  # type: ignore[call-arg]
            rows, columns, place, *arrays, number, alpha.numpy(), _array(g.flatten(1)), *made
        )
        d_extra = None
        if extra is not None:
            d_extra = torch.empty_like(ds)
            d_extra[rows.edge] = ds
        return dx.view_as(x), d_source, d_target, d_extra, None, None, None


def _places(matrix: Sparse) -> np.ndarray:
    """Return, for the edges in the order of their sources, their places in the order of their targets."""
    if "places" not in matrix._kept:
        rows, columns = matrix.compressed(False), matrix.compressed(True)
        at = torch.empty_like(rows.edge)
        at[rows.edge] = torch.arange(len(rows.edge))
        matrix._kept["places"] = at[columns.edge].numpy().astype(rows.index.dtype)
    return matrix._kept["places"]


def _array(t: Tensor) -> np.ndarray:
    return t.detach().contiguous().numpy()


class GATConv(nn.Module):
    """Mix each node's features with its neighbours', each by an attention weight.

    Arguments, state dict and results are those of ``torch_geometric.nn.GATConv``.

    Parameters
    ----------
    in_channels : int or (int, int)
        Width of the input; a pair for sources and targets of two kinds; -1 takes it from the first input.
    out_channels : int
        Width of the output, per head.
    heads : int, default=1
        How many attentions side by side.
    concat : bool, default=True
        Whether heads are joined rather than averaged.
    negative_slope : float, default=0.2
        Of the leaky rectifier.
    dropout : float, default=0.0
        Share of attention weights dropped while training.
    add_self_loops : bool, default=True
        Whether every node attends to itself too.
    edge_dim : int, optional
        Width of edge features, where there are any.
    fill_value : float, tensor or {"mean", "add", "min", "max"}, default="mean"
        Edge features of the self-loops: given, or a statistic of the edges that enter the node.
    bias : bool, default=True
        Whether a bias is added.
    residual : bool, default=False
        Whether the input is added after a linear map.
    aggr : {"add", "sum"}, default="add"
        How messages are put together.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way messages go along edges.

    Notes
    -----
    A call costs O(n d_in d_out + E d_out).

    References
    ----------
    .. [1] P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio (2018). Graph attention networks. ICLR.

    Examples
    --------
    >>> import torch
    >>> from corollary.nn import GATConv
    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> GATConv(4, 2, heads=3)(torch.ones(3, 4), edges).shape
    torch.Size([3, 6])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        residual: bool = False,
        *,
        aggr: str = "add",
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        check_flow("GATConv", flow, aggr)
        if isinstance(fill_value, str) and fill_value not in REDUCTIONS:
            raise value(
                "GATConv", f"fill_value must be a number or one of {sorted(REDUCTIONS)}", repr(fill_value)
            )
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat = concat
        self.negative_slope, self.dropout, self.flow = negative_slope, dropout, flow
        self.add_self_loops, self.edge_dim, self.fill_value = add_self_loops, edge_dim, fill_value
        shared = isinstance(in_channels, int)
        of_source, of_target = (in_channels,) * 2 if isinstance(in_channels, int) else in_channels
        self.lin = linear(of_source, heads * out_channels) if shared else None
        self.lin_src = None if shared else linear(of_source, heads * out_channels)
        self.lin_dst = None if shared else linear(of_target, heads * out_channels)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else linear(edge_dim, heads * out_channels)
        self.att_edge = None if edge_dim is None else nn.Parameter(torch.empty(1, heads, out_channels))
        width = heads * out_channels if concat else out_channels
        self.res = linear(of_target, width) if residual else None
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for layer in (self.lin, self.lin_src, self.lin_dst, self.lin_edge, self.res):
            if layer is not None:
                layer.reset_parameters()  # type: ignore[operator]
        for vector in (self.att_src, self.att_dst, self.att_edge):
            if vector is not None:
                # (heads, out_channels): with the leading 1 it would be too narrow
                nn.init.xavier_uniform_(vector[0])
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Any,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        """Return eq. 1 for every node.

        Parameters
        ----------
        x : tensor of shape (n, in_channels), or a pair of tensors
            Node features, dense or sparse; a pair holds those of sources and of targets (None: they have none).
        edge_index : tensor of int64 of shape (2, E), or sparse matrix
            Sources and targets; or a torch or scipy matrix whose entry (i, j) is what is known of the edge from j to i.
        edge_attr : tensor of shape (E, edge_dim), optional
            Edge features; used if ``edge_dim`` was given. Those of a matrix are its entries.
        size : (int, int), optional
            Number of sources and of targets.
        return_attention_weights : bool, optional
            Whether (edges, weights) are returned too, self-loops included; for a matrix, a sparse tensor of the
            weights stands in the place of the edges.

        Returns
        -------
        tensor of shape (n, heads * out_channels), or (n, out_channels) if heads are averaged
        """
        as_matrix = is_matrix(edge_index)
        edge_index, edge_attr, known = as_edges("GATConv", edge_index, edge_attr, self.flow)
        left, right, counts = ends("GATConv", x, size or known, self.flow)
        if len(left.shape) != 2:
            must = "x must be one tensor of shape (n, in_channels), or a pair of them"
            raise value("GATConv", must, f"shape {tuple(left.shape)}")
        check_edges(edge_index, counts, "GATConv")
        matrix, kept = self._edges(edge_index, counts)
        h, at_source, at_target = self._scores(left, right, counts[1])
        extra = self._edge_scores(edge_attr, kept, matrix, min(counts))
        keep = None
        if self.training and self.dropout > 0:
            keep = F.dropout(h.new_ones(len(matrix.source), self.heads), self.dropout)
        out, alpha = attend(matrix, h, at_source, at_target, extra, keep, self.negative_slope)
        out = out.flatten(1) if self.concat else out.mean(1)
        out = out if self.res is None or right is None else out + self.res(right)
        out = out if self.bias is None else out + self.bias
        if not return_attention_weights:
            return out
        both = (matrix.source, matrix.target)
        edges = torch.stack(both if self.flow == "source_to_target" else both[::-1])
        used = alpha if keep is None else alpha * keep
        if as_matrix:
            edges = torch.sparse_coo_tensor(edges.flip(0), used, (*matrix.shape, self.heads))
        return out, (edges, used)

    def _scores(self, left: Any, right: Any, targets: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sources' features by head, and what sources and targets add to the scores."""

        def heads(lin: Any, x: Any) -> Tensor:
            return lin(x).view(-1, self.heads, self.out_channels)

        h = heads(self.lin_src if self.lin is None else self.lin, left)
        at_source = (h * self.att_src).sum(-1)
        if right is None:
            return h, at_source, h.new_zeros(targets, self.heads)
        shared = right is left and self.lin is not None
        at = h if shared else heads(self.lin_dst if self.lin is None else self.lin, right)
        return h, at_source, (at * self.att_dst).sum(-1)

    def _edges(self, edge_index: Tensor, counts: tuple[int, int]) -> tuple[Sparse, Tensor | None]:
        """Return the matrix with one self-loop per node, and which of the given edges are in it (None: all)."""

        def make() -> tuple[Sparse, Tensor | None]:
            edges = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
            kept = None
            if self.add_self_loops:
                n = min(counts)
                loops = torch.arange(n, device=edges.device).expand(2, n)
                if not torch.compiler.is_compiling():  # there, no shape may depend on the data
                    kept = edges[0] != edges[1]
                    edges = edges[:, kept]
                edges = torch.cat([edges, loops], 1)
            return Sparse(edges[0].clone(), edges[1].clone(), counts[::-1]), kept

        return remember(edge_index, None, ("gat", counts, self.add_self_loops, self.flow), make)

    def _edge_scores(
        self, edge_attr: Tensor | None, kept: Tensor | None, matrix: Sparse, n: int
    ) -> Tensor | None:
        """Return what the edges add to the scores; loops that were given count no more, but for ours."""
        given = None
        if self.add_self_loops and kept is None:
            place = torch.arange(matrix.source.shape[0], device=matrix.source.device)
            given = (matrix.source == matrix.target) & (place < place.shape[0] - n)
        scores = None
        if edge_attr is not None and self.lin_edge is not None:
            edge_attr = edge_attr[:, None] if edge_attr.ndim == 1 else edge_attr
            edge_attr = edge_attr if kept is None else edge_attr[kept]
            if self.add_self_loops:
                target = matrix.target[: edge_attr.shape[0]]
                target = (
                    target
                    if given is None
                    else torch.where(given[: target.shape[0]], matrix.shape[0], target)
                )
                edge_attr = torch.cat([edge_attr, self._fill(edge_attr, target, matrix.shape[0])[:n]])
            edges = self.lin_edge(edge_attr).view(-1, self.heads, self.out_channels)
            scores = (edges * self.att_edge).sum(-1)
        if given is None:
            return scores
        shut = torch.where(given, -torch.inf, 0.0).to(self.att_src.dtype)[:, None]
        return shut if scores is None else scores + shut

    def _fill(self, edge_attr: Tensor, target: Tensor, n: int) -> Tensor:
        """Return the features of the self-loops; an edge to node n is none."""
        fill = edge_attr.new_zeros(n + 1, edge_attr.shape[1])
        if not isinstance(self.fill_value, str):
            return fill + self.fill_value
        if self.fill_value in ("add", "mean"):  # by sums: ONNX has no mean over places
            fill = fill.index_add(0, target, edge_attr)
            count = fill.new_zeros(n + 1).index_add(0, target, torch.ones_like(edge_attr[:, 0]))
            return fill if self.fill_value == "add" else fill / count.clamp_min(1)[:, None]
        where = target[:, None].expand_as(edge_attr)
        return fill.scatter_reduce(0, where, edge_attr, REDUCTIONS[self.fill_value], include_self=False)

    def __repr__(self) -> str:
        """Return the widths and the heads."""
        return f"GATConv({self.in_channels}, {self.out_channels}, heads={self.heads})"


REDUCTIONS = {"add": "sum", "max": "amax", "mean": "mean", "min": "amin"}
