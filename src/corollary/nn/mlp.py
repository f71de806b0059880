"""A stack of linear layers with activations between them, the part that many networks share."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from corollary.nn.activations import activation
from corollary.nn.normalisation import norm
from corollary.nn.shortcuts import Residual

__all__ = ["MLP"]


class MLP(nn.Sequential):
    """Linear layers of the given widths with an activation between them.

    Parameters
    ----------
    widths : sequence of int
        Input, hidden and output widths.
    activation : str
        One of ``corollary.nn.activations.ACTIVATIONS``.
    dropout : float
        Share of hidden units dropped while training.
    norm : str or None
        "batch" or "layer" normalisation before each activation, or "weight" normalisation.
    residual : bool
        Whether each hidden layer is added to its input.
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation: str = "relu",
        *,
        dropout: float = 0.0,
        norm: str | None = None,
        residual: bool = False,
    ) -> None:
        layers: list[nn.Module] = []
        for n_in, n_out in zip(widths[:-2], widths[1:-1]):
            block = nn.Sequential(*_hidden(n_in, n_out, activation, dropout, norm))
            layers += [Residual(block, n_in, n_out)] if residual else list(block)
        layers.append(nn.Linear(widths[-2], widths[-1]))
        super().__init__(*layers)


def _hidden(n_in: int, n_out: int, name: str, dropout: float, normalise: str | None) -> list[nn.Module]:
    phi = activation(name)
    pieces = getattr(phi, "k", 1)  # maxout takes the largest of k linear pieces
    linear = norm(normalise, nn.Linear(n_in, n_out * pieces))
    layers: list[nn.Module] = [*linear] if isinstance(linear, nn.Sequential) else [linear]
    layers.append(phi)
    if dropout:
        layers.append(nn.Dropout(dropout))
    return layers
