r"""Stacks of graph layers, which the node, graph and link estimators share.

.. math::
    H^0 = X, \qquad H^\ell = \phi(\mathrm{conv}_\ell(\mathrm{drop}(H^{\ell-1}), E)), \qquad \ell = 1, \dots, L, \tag{1}

the last layer without :math:`\phi`. A layer changes with the nodes' order as the nodes do, and so does the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from corollary.errors import unknown
from corollary.nn.activations import activation as activation_of

__all__ = ["LAYERS", "GraphNetwork"]


def _gcn(n_in: int, n_out: int, last: bool, options: dict[str, Any]) -> nn.Module:
    from corollary.nn.gcn import GCNConv

    return GCNConv(n_in, n_out)


LAYERS: dict[str, Callable[..., nn.Module]] = {"gcn": _gcn}


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
    **options
        What the layer takes besides.
    """

    def __init__(
        self,
        widths: Sequence[int],
        layer: str = "gcn",
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        if layer not in LAYERS:
            raise unknown("GraphNetwork", "layer", layer, LAYERS)
        pairs = list(zip(widths[:-1], widths[1:]))
        self.layers = nn.ModuleList(
            LAYERS[layer](n_in, n_out, i == len(pairs) - 1, options) for i, (n_in, n_out) in enumerate(pairs)
        )
        self.activation = activation_of(activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the output of the last layer for every node, eq. 1."""
        for i, layer in enumerate(self.layers):
            x = layer(self.dropout(x if i == 0 else self.activation(x)), edge_index, edge_weight)
        return x
