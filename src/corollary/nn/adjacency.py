"""Graphs as sparse matrices: what every graph layer takes in place of a list of edges.

Entry (i, j) of the matrix is the weight of the edge from j to i, so that row i holds what node i receives; as in
torch_geometric, a matrix of entries (source, target) is passed transposed. Explicit zeros are edges too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from scipy import sparse as scipy_sparse
from torch import Tensor

from corollary.errors import value
from corollary.nn.sparse import remember

__all__ = ["Edges", "as_edges", "is_matrix"]

COMPRESSED_ROWS, COMPRESSED_COLUMNS = torch.sparse_csr, torch.sparse_csc


class Edges(NamedTuple):
    """A graph as its layers read it."""

    index: Tensor  # type: ignore[assignment]  # (2, E): sources and targets
    weight: Tensor | None  # (E,), or (E, d) where the matrix has vectors for entries
    size: tuple[int, int] | None  # sources and targets, where a matrix says it


def is_matrix(graph: Any) -> bool:
    """Whether a graph is given as a sparse matrix rather than as a list of edges."""
    return scipy_sparse.issparse(graph) or (isinstance(graph, Tensor) and graph.layout != torch.strided)


def as_edges(owner: str, graph: Any, weight: Tensor | None = None, flow: str = "source_to_target") -> Edges:
    """Return the edges of a graph.

    Parameters
    ----------
    owner : str
        The layer, for messages.
    graph : tensor of int64 of shape (2, E), or sparse matrix of shape (n_targets, n_sources)
        Sources and targets; or a torch tensor in COO, CSR or CSC form or a scipy matrix of any form.
    weight : tensor of shape (E,), optional
        Weights of a list of edges; those of a matrix are its entries.
    flow : str
        Which way messages go; along the rows of a matrix it is fixed.
    """
    if not is_matrix(graph):
        return Edges(graph, weight, None)
    if flow != "source_to_target":
        do = "Transpose the matrix, or pass edges."
        raise value(owner, "a sparse matrix needs flow='source_to_target'", repr(flow), do)
    if weight is not None:
        must = "the weights of a sparse matrix are its entries, so no others may be given"
        raise value(owner, must, f"a tensor of shape {tuple(weight.shape)}")
    if len(graph.shape) < 2:
        raise value(owner, "a sparse matrix must have rows and columns", f"shape {tuple(graph.shape)}")
    size = (int(graph.shape[1]), int(graph.shape[0]))
    if not isinstance(graph, Tensor):
        return Edges(*_of_scipy(graph), size)
    if graph.requires_grad:
        return Edges(*_of_torch(graph), size)
    entries = graph.values() if graph.layout != torch.sparse_coo else graph._values()
    index, values = remember(graph, None, ("edges", entries._version), lambda: _of_torch(graph))
    return Edges(index, values, size)


def _of_scipy(matrix: Any) -> tuple[Tensor, Tensor]:
    entries = matrix.tocoo()
    index = torch.stack([torch.from_numpy(end.astype("int64")) for end in (entries.col, entries.row)])
    weight = torch.from_numpy(entries.data.copy())
    return index, weight if weight.is_floating_point() else weight.to(torch.get_default_dtype())


def _of_torch(matrix: Tensor) -> tuple[Tensor, Tensor]:
    if matrix.layout in (COMPRESSED_ROWS, COMPRESSED_COLUMNS):
        by_rows = matrix.layout == COMPRESSED_ROWS
        start = matrix.crow_indices() if by_rows else matrix.ccol_indices()
        inner = matrix.col_indices() if by_rows else matrix.row_indices()
        outer = torch.repeat_interleave(torch.arange(len(start) - 1, device=start.device), start.diff())
        rows, columns = (outer, inner) if by_rows else (inner, outer)
        weight = matrix.values()
    else:
        entries = matrix.to_sparse_coo().coalesce()
        rows, columns = entries.indices()
        weight = entries.values()
    weight = weight if weight.is_floating_point() else weight.to(torch.get_default_dtype())
    return torch.stack([columns, rows]).long(), weight
