r"""Stacks of graph layers, which the node, graph and link estimators share.

.. math::
    H^0 = X, \qquad H^\ell = \phi(\mathrm{conv}_\ell(\mathrm{drop}(H^{\ell-1}), E)), \qquad \ell = 1, \dots, L, \tag{1}

the last layer without :math:`\phi`. A layer changes with the nodes' order as the nodes do, and so does the stack.
Counts of words are first divided by their sum over each node, :math:`x_{ij} / \sum_k |x_{ik}|` (2). Sparse features stay
sparse: only their entries are divided and dropped, and the first layer multiplies them with its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corollary.errors import unknown
from corollary.nn.activations import activation as activation_of
from corollary.nn.sparse import Sparse, features

__all__ = ["LAYERS", "GraphNetwork", "shares"]


def shares(x: Tensor | Sparse) -> Tensor | Sparse:
    """Divide each row by the sum of its sizes, eq. 2; a row of zeros stays one."""
    if not isinstance(x, Sparse):
        return x / x.abs().sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)

    def divided() -> Tensor:
        sums = x.weight.new_zeros(x.shape[0]).index_add(0, x.target, x.weight.abs())
        return x.weight / sums.clamp_min(torch.finfo(x.dtype).tiny)[x.target]

    return x.reweighted(x.once("shares", divided))


def _gcn(n_in: int, n_out: int, last: bool, options: Mapping[str, Any]) -> nn.Module:
    from corollary.nn.gcn import GCNConv

    return GCNConv(n_in, n_out)


def _cheb(n_in: int, n_out: int, last: bool, options: Mapping[str, Any]) -> nn.Module:
    from corollary.nn.cheb import ChebConv

    return ChebConv(n_in, n_out, options.get("order", 3))


class _GAT(nn.Module):
    """Attention of a given width, its heads joined or averaged; edge weights are edge features of width 1."""

    def __init__(
        self, n_in: int, n_out: int, n_heads: int, joined: bool, dropout: float, weighted: bool
    ) -> None:
        super().__init__()
        from corollary.nn.gat import GATConv

        width = n_out // n_heads if joined else n_out
        edge_dim = 1 if weighted else None
        self.conv = GATConv(n_in, width, n_heads, concat=joined, dropout=dropout, edge_dim=edge_dim)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.conv(x, edge_index, edge_weight)


def _gat(n_in: int, n_out: int, last: bool, options: Mapping[str, Any]) -> nn.Module:
    n_heads = options.get("n_output_heads", 1) if last else options.get("n_heads", 8)
    joined = not last and n_out % n_heads == 0
    return _GAT(n_in, n_out, n_heads, joined, options.get("dropout", 0.0), options.get("weighted", False))


def _gin(n_in: int, n_out: int, last: bool, options: Mapping[str, Any]) -> nn.Module:
    from corollary.nn.gin import GINConv
    from corollary.nn.normalisation import BatchNorm1d

    hidden = max(n_out, min(n_in, 64))
    first = (nn.Linear(n_in, hidden), BatchNorm1d(hidden), nn.ReLU())  # sums grow with the degree: normalised
    return GINConv(nn.Sequential(*first, nn.Linear(hidden, n_out)))


def _mpnn(n_in: int, n_out: int, last: bool, options: Mapping[str, Any]) -> nn.Module:
    from corollary.nn.message import MPNNConv

    return MPNNConv(n_in, n_out, options.get("aggr", "mean"))


def _spectral(n_in: int, n_out: int, last: bool, options: Mapping[str, Any]) -> nn.Module:
    from corollary.nn.spectral import SpectralConv

    return SpectralConv(n_in, n_out)


LAYERS: dict[str, Callable[..., nn.Module]] = {
    "cheb": _cheb,
    "gat": _gat,
    "gcn": _gcn,
    "gin": _gin,
    "mpnn": _mpnn,
    "spectral": _spectral,
}


class GraphNetwork(nn.Module):
    """Graph layers with an activation and dropout between them.

    Parameters
    ----------
    widths : sequence of int
        Input, hidden and output widths.
    layer : str, default="gcn"
        Which layer; one of ``corollary.graphs.network.LAYERS``.
    activation : str, default="relu"
        One of ``corollary.nn.activations.ACTIVATIONS``.
    dropout : float, default=0.0
        Share of each layer's input dropped while training.
    normalize : bool, default=False
        Whether each node's features are divided by their sum, eq. 2.
    **options
        ``n_heads`` of the hidden layers of "gat", joined if their number divides the width and else averaged,
        ``n_output_heads`` of its last, averaged; ``order`` (terms) of "cheb"; ``aggr`` of "mpnn"; ``weighted`` if edges
        have weights.
    """

    def __init__(
        self,
        widths: Sequence[int],
        layer: str = "gcn",
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        normalize: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if layer not in LAYERS:
            raise unknown("GraphNetwork", "layer", layer, LAYERS)
        options = {**options, "dropout": dropout}
        pairs = list(zip(widths[:-1], widths[1:]))
        self.layers = nn.ModuleList(
            LAYERS[layer](n_in, n_out, i == len(pairs) - 1, options) for i, (n_in, n_out) in enumerate(pairs)
        )
        self.activation = activation_of(activation)
        self.dropout = nn.Dropout(dropout)
        self.normalize = normalize

    def forward(self, x: Any, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the output of the last layer for every node, eq. 1; ``x`` may be a sparse tensor."""
        return self.states(x, edge_index, edge_weight)[-1]

    def states(self, x: Any, edge_index: Tensor, edge_weight: Tensor | None = None) -> list[Tensor]:
        """Return the output of every layer for every node, the activation of all but the last applied."""
        x = features(x)
        x, states = shares(x) if self.normalize else x, []
        for layer in self.layers:
            if states:
                x = states[-1] = self.activation(states[-1])
            states.append(layer(self._dropped(x), edge_index, edge_weight=edge_weight))
        return states

    def _dropped(self, x: Any) -> Any:
        """Drop entries; those of sparse features that are zero need no draw, since dropping them changes nothing."""
        return x.reweighted(self.dropout(x.weight)) if isinstance(x, Sparse) else self.dropout(x)
