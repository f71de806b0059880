r"""Convolution in the spectrum of a graph.

The eigenvectors of the normalised Laplacian :math:`\mathcal L = U \Lambda U^\top` are the graph's Fourier basis. A filter is
a function of the frequency, here piecewise linear between K knots on [0, 2] with hat functions :math:`\beta_k`,

.. math:: X' = \sum_{k=1}^{K} U \beta_k(\Lambda) U^\top X W_k^\top + b, \tag{1}

so that it can be moved to other graphs, and does not depend on the choice of basis in an eigenspace.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from corollary.errors import value
from corollary.nn.adjacency import as_edges
from corollary.nn.sparse import Sparse, check_edges, features, project, remember

__all__ = ["SpectralConv", "fourier_basis", "hats"]

DENSE = 1500  # nodes up to which all eigenvectors are computed


def fourier_basis(
    edge_index: Tensor, weight: Tensor | None, n: int, rank: int | None
) -> tuple[Tensor, Tensor]:
    """Return the lowest frequencies (r,) of the undirected normalised Laplacian and their vectors (n, r), in double."""
    from scipy import sparse
    from scipy.sparse.linalg import eigsh

    source, target = edge_index.cpu().numpy()
    entries = np.ones(len(source)) if weight is None else weight.detach().cpu().double().numpy()
    A = sparse.coo_matrix((entries * (source != target), (target, source)), shape=(n, n)).tocsr()
    A = (A + A.T) / 2
    degree = np.asarray(A.sum(1)).ravel()
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1.0)), 0.0)
    normal = sparse.diags(scale) @ A @ sparse.diags(scale)
    rank = n if rank is None else min(rank, n)
    if rank > n // 2 or n <= 200:
        values, vectors = np.linalg.eigh(np.diag(1.0 * (degree > 0)) - normal.toarray())
        values, vectors = values[:rank], vectors[:, :rank]
    else:  # the lowest frequencies of L are the highest eigenvalues of I - L
        top, vectors = eigsh(normal, k=rank, which="LA", v0=np.ones(n))
        order = np.argsort(-top)
        values, vectors = 1 - top[order], vectors[:, order]
    return torch.from_numpy(np.clip(values, 0, 2)), torch.from_numpy(np.ascontiguousarray(vectors))


def hats(frequency: Tensor, knots: int) -> Tensor:
    """Return the hat functions of eq. 1: (r,) -> (r, knots); every row sums to one."""
    if knots == 1:
        return torch.ones_like(frequency)[:, None]
    place = frequency * (knots - 1) / 2
    return (1 - (place[:, None] - torch.arange(knots, dtype=place.dtype)).abs()).clamp(min=0)


class SpectralConv(nn.Module):
    """Filter the features of a graph by a learned function of the frequency.

    Parameters
    ----------
    in_channels, out_channels : int
        Widths.
    knots : int, default=8
        Pieces of the filter; more make it sharper in frequency and wider in space.
    rank : int, optional
        How many of the lowest frequencies are used; all by default, but at most 1500.
    bias : bool, default=True
        Whether a bias is added.

    Notes
    -----
    The eigenvectors are found once per edge list, in O(n^3), or O(E rank) for few; a call then costs O(n rank d + rank
    d_in d_out). Directed edges count half in both directions. Use ``ChebConv`` for large graphs.

    References
    ----------
    .. [1] J. Bruna, W. Zaremba, A. Szlam, Y. LeCun (2014). Spectral networks and locally connected networks on graphs.

    Examples
    --------
    >>> import torch
    >>> from corollary.nn import SpectralConv
    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> SpectralConv(4, 2)(torch.ones(3, 4), edges).shape
    torch.Size([3, 2])
    """

    def __init__(
        self, in_channels: int, out_channels: int, knots: int = 8, rank: int | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        if knots < 1:
            raise value("SpectralConv", "knots must be at least 1", knots)
        self.knots = knots
        self.rank = rank
        self.weight = nn.Parameter(torch.empty(knots, out_channels, in_channels))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for weight in self.weight:
            nn.init.xavier_uniform_(weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the filtered features, eq. 1: (n, in_channels) -> (n, out_channels).

        ``edge_index`` may be a sparse matrix, whose entries are the weights.
        """
        x = features(x)
        edge_index, edge_weight, _ = as_edges("SpectralConv", edge_index, edge_weight)
        n = x.shape[0]
        check_edges(edge_index, n, "SpectralConv")
        rank = self.rank if self.rank is not None else min(n, DENSE)

        def make() -> tuple[Tensor, Tensor]:
            frequency, vectors = fourier_basis(edge_index, edge_weight, n, rank)
            return hats(frequency, self.knots).to(x.device, x.dtype), vectors.to(x.device, x.dtype)

        filters, U = remember(
            edge_index, edge_weight, ("spectral", n, rank, self.knots, x.dtype, x.device), make
        )
        if isinstance(x, Sparse):  # the weights first, so that only their output is moved to the spectrum
            spectrum = (U.T @ project(x, self.weight.flatten(0, 1))).unflatten(1, self.weight.shape[:2])
            out = U @ torch.einsum("rk,rko->ro", filters, spectrum)
        else:
            out = U @ torch.einsum("rk,ri,koi->ro", filters, U.T @ x, self.weight)
        return out if self.bias is None else out + self.bias
