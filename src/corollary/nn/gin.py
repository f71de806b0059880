r"""The graph isomorphism layer.

.. math:: x_i' = h\Big((1 + \epsilon)\, x_i + \sum_{j \to i} x_j\Big), \tag{1}

with a network :math:`h`. The sum tells multisets of neighbours apart that a mean or a maximum cannot, so a
stack of such layers distinguishes whatever colour refinement does. A linear first layer of :math:`h` commutes with
the sum: it is applied before it if it narrows the features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.adjacency import as_edges
from corollary.nn.gcn import check_flow
from corollary.nn.sparse import Sparse, aggregate, check_edges, ends, project, sparse

__all__ = ["GINConv"]


class GINConv(nn.Module):
    """Sum each node's features with its neighbours' and pass them through a network.

    Arguments, state dict and results are those of ``torch_geometric.nn.GINConv``.

    Parameters
    ----------
    nn : torch.nn.Module
        The network of eq. 1.
    eps : float, default=0.0
        The extra weight of a node's own features.
    train_eps : bool, default=False
        Whether it is learned.
    aggr : {"add", "sum"}, default="add"
        How messages are put together.
    flow : {"source_to_target", "target_to_source"}, default="source_to_target"
        Which way messages go along edges.

    Notes
    -----
    A call costs O(E d) and one call of the network, for d the smaller of its first two widths. Unlike
    torch_geometric's, ``forward`` also takes ``edge_weight``, which multiplies the messages, and sparse ``x``.

    References
    ----------
    .. [1] K. Xu, W. Hu, J. Leskovec, S. Jegelka (2019). How powerful are graph neural networks? ICLR.

    Examples
    --------
    >>> import torch
    >>> from corollary.nn import GINConv
    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> GINConv(torch.nn.Linear(4, 2))(torch.ones(3, 4), edges).shape
    torch.Size([3, 2])
    """

    eps: Tensor

    def __init__(
        self,
        nn: nn.Module,
        eps: float = 0.0,
        train_eps: bool = False,
        *,
        aggr: str = "add",
        flow: str = "source_to_target",
    ) -> None:
        super().__init__()
        check_flow("GINConv", flow, aggr)
        self.nn = nn
        self.initial_eps = eps
        self.flow = flow
        start = torch.full((1,), float(eps))
        if train_eps:
            self.eps = torch.nn.Parameter(start)
        else:
            self.register_buffer("eps", start)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for layer in self.nn.modules():
            if layer is not self.nn and hasattr(layer, "reset_parameters"):
                layer.reset_parameters()  # type: ignore[operator]
        self.eps.data.fill_(self.initial_eps)

    def forward(
        self,
        x: Any,
        edge_index: Tensor,
        size: tuple[int, int] | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Return eq. 1 for every node.

        Parameters
        ----------
        x : tensor of shape (n, d), or a pair of tensors
            Node features, dense or sparse; a pair holds those of sources and of targets (None: they have none).
        edge_index : tensor of int64 of shape (2, E), or sparse matrix
            Sources and targets; or a torch or scipy matrix whose entry (i, j) is the weight of the edge from j to i.
        size : (int, int), optional
            Number of sources and of targets.
        edge_weight : tensor of shape (E,), optional
            Weights of the messages.

        Returns
        -------
        tensor of shape (n, d')
        """
        edge_index, edge_weight, known = as_edges("GINConv", edge_index, edge_weight, self.flow)
        left, right, counts = ends("GINConv", x, size or known, self.flow)
        check_edges(edge_index, counts, "GINConv")
        matrix = sparse(edge_index, counts, edge_weight, self.flow)
        first, rest = _first_layer(self.nn)
        thin = isinstance(left, Sparse)
        if thin and first is None:
            must = "sparse features need a network that begins with torch.nn.Linear"
            raise value("GINConv", must, type(self.nn).__name__)
        if first is None or (first.out_features >= first.in_features and not thin):
            return self.nn(self._sum(matrix, left, right))
        mapped = project(left, first.weight)
        own = mapped if right is left else right if right is None else project(right, first.weight)
        out = self._sum(matrix, mapped, own)
        out = out if first.bias is None else out + first.bias
        for layer in rest:
            out = layer(out)
        return out

    def _sum(self, matrix: Sparse, x: Tensor, own: Tensor | None) -> Tensor:
        around = aggregate(matrix, x)
        if own is None:
            return around
        if self.eps.device.type == "cpu" and not (self.eps.requires_grad or torch.compiler.is_compiling()):
            return torch.add(around, own, alpha=1.0 + self.eps.item())
        return torch.addcmul(around, 1.0 + self.eps, own)

    def __repr__(self) -> str:
        """Return the network inside."""
        return f"GINConv(nn={self.nn})"


def _first_layer(network: nn.Module) -> tuple[nn.Linear | None, list[nn.Module]]:
    """Return a network's first layer if that is a plain linear one, and the layers after it."""
    layers = list(network.children()) if type(network) is nn.Sequential else [network]
    plain = bool(layers) and type(layers[0]) is nn.Linear and not layers[0]._forward_hooks
    return (layers[0], layers[1:]) if plain else (None, [])  # type: ignore[return-value]
