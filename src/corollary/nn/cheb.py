r"""Chebyshev filters on a graph.

With the Laplacian :math:`L` rescaled to :math:`\hat L = \frac{2}{\lambda_{\max}} L - I`, whose spectrum lies in
:math:`[-1, 1]`, and the recursion :math:`T_0 = I`, :math:`T_1 = \hat L`, :math:`T_k = 2 \hat L T_{k-1} - T_{k-2}`,

.. math:: X' = \sum_{k=0}^{K-1} T_k(\hat L)\, X W_k^\top + b. \tag{1}

Where the output is narrower than the input, the sum is taken by Clenshaw's recursion
:math:`B_k = X W_k^\top + 2 \hat L B_{k+1} - B_{k+2}`, :math:`X' = X W_0^\top + \hat L B_1 - B_2 + b` (2), which is the
same polynomial with its sparse products in the width of the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.adjacency import as_edges
from corollary.nn.gcn import check_flow, linear
from corollary.nn.sparse import Sparse, aggregate, check_edges, features, project, remember

__all__ = ["ChebConv", "laplacian", "scaled_laplacian"]


def laplacian(
    edge_index: Tensor,
    weight: Tensor | None,
    n: int,
    kind: str | None = "sym",
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (edges, their entries, the diagonal) of D - A, or of its symmetric or random-walk normal form.

    Self-loops do not count; they keep their place with entry zero.
    """
    source, target = edge_index
    weight = (
        torch.ones(source.shape, dtype=dtype, device=source.device) if weight is None else weight.to(dtype)
    )
    weight = torch.where(source == target, torch.zeros_like(weight), weight)
    degree = torch.zeros(n, dtype=dtype, device=source.device).index_add(0, source, weight)
    safe = torch.where(degree > 0, degree, torch.ones_like(degree))
    some = (degree > 0).to(dtype)
    if kind is None:
        return edge_index, -weight, degree
    if kind == "sym":
        scale = safe.rsqrt() * some
        return edge_index, -scale[source] * weight * scale[target], torch.ones_like(degree)
    return edge_index, -(some / safe)[source] * weight, torch.ones_like(degree)


def scaled_laplacian(
    edge_index: Tensor,
    weight: Tensor | None,
    n: int,
    kind: str | None,
    largest: float | Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parts of 2 L / lambda_max - I; by default twice the largest entry bounds the spectrum."""
    edges, entries, diagonal = laplacian(edge_index, weight, n, kind, dtype)
    if largest is None:
        largest = 2.0 * torch.cat([entries, diagonal]).max()
    by_node = torch.as_tensor(largest, dtype=dtype, device=edges.device)
    by_edge = by_node[edges[0]] if by_node.ndim and by_node.numel() > 1 else by_node
    entries, diagonal = 2.0 * entries / by_edge, 2.0 * diagonal / by_node
    entries, diagonal = (part.masked_fill(part.abs() == torch.inf, 0.0) for part in (entries, diagonal))
    return edges, entries, diagonal - 1.0


class ChebConv(nn.Module):
    """Filter the features of a graph with a polynomial of its Laplacian.

    Arguments, state dict and results are those of ``torch_geometric.nn.ChebConv``.

    Parameters
    ----------
    in_channels, out_channels : int
        Widths; ``in_channels=-1`` takes it from the first input.
    K : int
        Number of terms; the filter reaches ``K - 1`` hops.
    normalization : {"sym", "rw", None}, default="sym"
        Which Laplacian.
    bias : bool, default=True
        Whether a bias is added.
    aggr : {"add", "sum"}, default="add"
        How messages are put together.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way messages go along edges.

    Notes
    -----
    A call costs O(K (n d_in d_out + E min(d_in, d_out))).

    References
    ----------
    .. [1] M. Defferrard, X. Bresson, P. Vandergheynst (2016). Convolutional neural networks on graphs with fast
       localized spectral filtering. NIPS.

    Examples
    --------
    >>> import torch
    >>> from corollary.nn import ChebConv
    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> ChebConv(4, 2, K=3)(torch.ones(3, 4), edges).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int,
        normalization: str | None = "sym",
        bias: bool = True,
        *,
        aggr: str = "add",
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        check_flow("ChebConv", flow, aggr)
        if K < 1:
            raise value("ChebConv", "K must be at least 1", K)
        if normalization not in (None, "sym", "rw"):
            raise value("ChebConv", "normalization must be None, 'sym' or 'rw'", repr(normalization))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.normalization = normalization
        self.flow = flow
        self.lins = nn.ModuleList(linear(in_channels, out_channels) for _ in range(K))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for lin in self.lins:
            lin.reset_parameters()  # type: ignore[operator]
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        lambda_max: float | Tensor | None = None,
    ) -> Tensor:
        """Return the filtered features, eq. 1.

        Parameters
        ----------
        x : tensor of shape (..., n, in_channels)
            Node features; a sparse (n, in_channels) stays sparse.
        edge_index : tensor of int64 of shape (2, E), or sparse matrix
            Sources and targets; or a torch or scipy matrix whose entry (i, j) is the weight of the edge from j to i.
        edge_weight : tensor of shape (E,), optional
            Weights of the edges.
        batch : tensor of int64 of shape (n,), optional
            Which graph each node belongs to, where ``lambda_max`` has one entry per graph.
        lambda_max : float or tensor, optional
            The largest eigenvalue of the Laplacian; 2 bounds that of the normalised one.

        Returns
        -------
        tensor of shape (..., n, out_channels)
        """
        x, K = features(x), len(self.lins)
        if K == 1:
            out = self.lins[0](x)
        else:
            edge_index, edge_weight, _ = as_edges("ChebConv", edge_index, edge_weight, self.flow)
            L, diagonal = self._laplacian(edge_index, edge_weight, batch, lambda_max, x.shape[-2], x.dtype)

            def apply(h: Tensor) -> Tensor:
                product = aggregate(L, h)
                return product if diagonal is None else torch.addcmul(product, diagonal, h)

            narrow = self.out_channels < x.shape[-1] or isinstance(x, Sparse)
            out = self._clenshaw(self._terms(x), apply) if narrow else self._forward(x, apply)
        return out if self.bias is None else out + self.bias

    def _forward(self, x: Tensor, apply) -> Tensor:  # type: ignore[no-untyped-def]
        before, now = x, apply(x)
        out = self.lins[0](before) + self.lins[1](now)
        for lin in self.lins[2:]:
            before, now = now, 2.0 * apply(now) - before
            out = out + lin(now)
        return out

    def _terms(self, x: Any) -> Sequence[Tensor]:
        """Return X W_k^T for every k."""
        if isinstance(self.lins[0], nn.LazyLinear):
            return [lin(x) for lin in self.lins]
        return project(x, torch.cat([lin.get_parameter("weight") for lin in self.lins])).split(
            self.out_channels, -1
        )

    def _clenshaw(self, terms: Sequence[Tensor], apply) -> Tensor:  # type: ignore[no-untyped-def]
        now, after = terms[-1].contiguous(), None
        for term in terms[-2:0:-1]:
            step = torch.add(term, apply(now), alpha=2.0)
            now, after = (step if after is None else step - after), now
        out = terms[0] + apply(now)
        return out if after is None else out - after

    def _laplacian(
        self, edge_index: Tensor, weight: Tensor | None, batch: Tensor | None, largest: float | Tensor | None, n: int,
        dtype: torch.dtype,
    ) -> tuple[Sparse, Tensor | None]:  # fmt: skip
        check_edges(edge_index, n, "ChebConv")
        if isinstance(largest, Tensor) and batch is not None and largest.numel() > 1:
            largest = largest[batch]

        def make() -> tuple[Sparse, Tensor | None]:
            edges, entries, diagonal = scaled_laplacian(
                edge_index, weight, n, self.normalization, largest, dtype
            )
            source, target = edges if self.flow == "source_to_target" else edges.flip(0)
            exact_zero = (
                self.normalization == "sym" and not torch.compiler.is_compiling() and not diagonal.any()
            )
            return Sparse(source.clone(), target.clone(), (n, n), entries), None if exact_zero else diagonal[
                :, None
            ]

        if isinstance(largest, Tensor):  # its value may change under the same name
            return make()
        return remember(edge_index, weight, ("cheb", n, self.normalization, self.flow, largest, dtype), make)

    def __repr__(self) -> str:
        """Return the widths and the order."""
        widths = f"{self.in_channels}, {self.out_channels}"
        return f"ChebConv({widths}, K={len(self.lins)}, normalization={self.normalization})"
