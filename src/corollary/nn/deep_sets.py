r"""Deep sets: permutation-invariant and -equivariant networks.

Every permutation-invariant function of a set has the form

.. math:: f(X) = \rho\Bigl(\textstyle\sum_{x \in X} \phi(x)\Bigr), \tag{1}

and a linear map of elements to elements commutes with permutations exactly if it is

.. math:: y_i = \Lambda x_i + \Gamma \textstyle\sum_j x_j + b, \tag{2}

where the sum may as well be a mean or a maximum. The empty set has sum, mean and maximum 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["DeepSets", "EquivariantLinear", "set_pool"]

POOLINGS = ("sum", "mean", "max")


def set_pool(x: Tensor, lengths: Tensor | None, how: str) -> Tensor:
    """Return one vector (b, d) for each set of x (b, m, d), of which ``lengths`` (b,) elements count."""
    if lengths is None:
        if not x.shape[1]:
            return x.new_zeros(x.shape[0], x.shape[2])
        return x.sum(1) if how == "sum" else x.mean(1) if how == "mean" else x.amax(1)
    n = lengths.to(x.device)
    inside = (torch.arange(x.shape[1], device=x.device) < n[:, None])[..., None]
    if how == "max":
        if not x.shape[1]:
            return x.new_zeros(x.shape[0], x.shape[2])
        return x.masked_fill(~inside, -torch.inf).amax(1).masked_fill(n[:, None] == 0, 0.0)
    total = x.masked_fill(~inside, 0.0).sum(1)
    return total if how == "sum" else total / n[:, None].clamp_min(1).to(x.dtype)


class EquivariantLinear(nn.Module):
    """Equation 2: each element by itself, and all of them together.

    Parameters
    ----------
    n_in, n_out : int
        Widths of the elements.
    pooling : {"sum", "mean", "max"}
        What of all elements each one is told.
    """

    def __init__(self, n_in: int, n_out: int, pooling: str = "mean") -> None:
        super().__init__()
        self.pooling = pooling
        self.own = nn.Linear(n_in, n_out)
        self.all = nn.Linear(n_in, n_out, bias=False)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Map sets (b, m, n_in) to (b, m, n_out)."""
        return self.own(x) + self.all(set_pool(x, lengths, self.pooling))[:, None]


class DeepSets(nn.Module):
    """Sets (b, m, d) to vectors (b, n_out), or element by element to (b, m, n_out).

    Parameters
    ----------
    n_in, n_out : int
        Widths of elements and output.
    hidden_layer_sizes : sequence of int
        Widths of phi, eq. 1, or of the equivariant layers; rho has one hidden layer of the last width.
    pooling : {"sum", "mean", "max", "both"}
        How elements are joined. Sums can count; means and maxima cannot. "both" gives rho the sum and the maximum.
    equivariant : bool
        Whether there is one output per element, by layers as in eq. 2.
    dropout : float
        Share of activations dropped in rho while training.
    size : float
        What sums are divided by before rho reads them: the usual number of elements keeps them in range, and they still count.

    References
    ----------
    .. [1] M. Zaheer et al. (2017). Deep sets. NeurIPS.

    Examples
    --------
    >>> import torch
    >>> net = DeepSets(3, 2)
    >>> x = torch.randn(1, 5, 3)
    >>> torch.allclose(net(x), net(x[:, [4, 2, 0, 1, 3]]), atol=1e-6)
    True
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        *,
        pooling: str = "sum",
        equivariant: bool = False,
        dropout: float = 0.0,
        size: float = 1.0,
    ) -> None:
        super().__init__()
        self.pooling, self.equivariant = pooling, equivariant
        self.scale = 1 / size if pooling in ("sum", "both") else 1.0
        widths = [n_in, *hidden_layer_sizes]
        pairs = list(zip(widths[:-1], widths[1:]))
        if equivariant:
            self.phi = nn.ModuleList(
                EquivariantLinear(a, b, pooling) for a, b in [*pairs, (widths[-1], n_out)]
            )
            return
        self.phi = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        last = widths[-1]
        self.rho = nn.Sequential(
            nn.Linear(last * (1 + (pooling == "both")), last),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(last, n_out),
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Read padded sets; no lengths mean that all are full."""
        if self.equivariant:
            for i, layer in enumerate(self.phi):
                x = layer(torch.relu(x) if i else x, lengths)
            return x
        for i, layer in enumerate(self.phi):
            x = layer(torch.relu(x) if i else x)
        found = []
        if self.pooling in ("sum", "both"):  # a linear end can count up and down
            found.append(self.scale * set_pool(x, lengths, "sum"))
        if self.pooling != "sum":
            found.append(set_pool(torch.relu(x), lengths, "max" if self.pooling == "both" else self.pooling))
        return self.rho(torch.cat(found, 1) if len(found) > 1 else found[0])
