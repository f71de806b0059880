r"""Sums over edges: the one product that every graph layer is made of.

A list of edges :math:`e = (s_e \to t_e)` with weights :math:`w_e` is a sparse matrix with one row
per target. Aggregation and its derivatives are three operations that are each other's gradients:

.. math::
    (A_w x)_i = \sum_{e:\, t_e = i} w_e\, x_{s_e}, \qquad
    (A_w^\top g)_j = \sum_{e:\, s_e = j} w_e\, g_{t_e}, \qquad
    \partial \mathcal L / \partial w_e = g_{t_e} \cdot x_{s_e}. \tag{1}

The edges are sorted by target and by source once (CSR of the matrix and of its transpose) and kept for
as long as the tensor they came from lives, so that training pays for it in the first epoch only.
A product costs :math:`O(E d)` and is summed in a fixed order.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from corollary.errors import kind, value

__all__ = ["Sparse", "aggregate", "remember", "sparse"]

BLOCKS = 64  # pieces of equal work per product; more balance better, fewer cost less
COMPILED = (torch.float32, torch.float64)


class Compressed(NamedTuple):
    """One direction of the matrix in CSR form; ``edge`` says which edge each entry is."""

    start: np.ndarray  # (n + 1,)
    index: np.ndarray  # (E,)
    edge: Tensor  # (E,)
    bounds: np.ndarray  # rows at which the blocks of equal work begin


class Sparse:
    """A matrix with one entry per edge, rows for targets and columns for sources.

    Parameters
    ----------
    source, target : tensor of int64 of shape (E,)
        The ends of the edges; an edge may be listed several times.
    shape : (int, int)
        Number of targets and of sources.
    weight : tensor of shape (E,), optional
        The entries; 1 if absent.
    """

    def __init__(
        self, source: Tensor, target: Tensor, shape: tuple[int, int], weight: Tensor | None = None
    ) -> None:
        self.source = source
        self.target = target
        self.shape = shape
        self.weight = weight
        self._kept: dict[Any, Any] = {}

    def compressed(self, transposed: bool) -> Compressed:
        """Return the CSR form of the matrix or of its transpose."""
        if transposed not in self._kept:
            self._kept[transposed] = self._compress(transposed)
        return self._kept[transposed]

    def _compress(self, transposed: bool) -> Compressed:
        from corollary.nn.sparse_kernels import counting_sort

        rows, columns = (self.source, self.target) if transposed else (self.target, self.source)
        n = self.shape[transposed]
        start, order = counting_sort(rows.cpu().numpy(), n)
        integer = np.int32 if max(*self.shape, order.size) < 2**31 else np.int64
        bounds = np.searchsorted(start, np.linspace(0, order.size, BLOCKS + 1)[1:-1])
        bounds = np.concatenate([[0], np.minimum(bounds, n), [n]]).astype(np.int64)
        index = columns.cpu().numpy()[order].astype(integer)
        return Compressed(start.astype(integer), index, torch.from_numpy(order), bounds)

    def entries(self, transposed: bool, dtype: torch.dtype) -> Tensor | None:
        """Return the weights in the order of the CSR form; kept if they are constant."""
        if self.weight is None:
            return None
        key = ("entries", transposed, dtype)
        if key in self._kept:
            return self._kept[key]
        order = self.compressed(transposed).edge.to(self.weight.device)
        found = self.weight.detach().to(dtype)[order]
        if not self.weight.requires_grad:
            self._kept[key] = found
        return found


def sparse(
    edge_index: Tensor, n: int, weight: Tensor | None = None, flow: str = "source_to_target"
) -> Sparse:
    """Return the n x n matrix of the edges; the sorted form of the same tensor is made only once."""

    def make() -> Sparse:
        source, target = edge_index if flow == "source_to_target" else edge_index.flip(0)
        # Copies: a view would keep edge_index alive, and the memory of it with it.
        return Sparse(source.clone(), target.clone(), (n, n), weight)

    return remember(edge_index, weight, ("plain", n, flow), make)


def aggregate(matrix: Sparse, x: Tensor) -> Tensor:
    """Return the weighted sums of the sources' features at each target, eq. 1.

    Parameters
    ----------
    matrix : Sparse
        The edges.
    x : tensor of shape (..., n_sources, d)
        Features.

    Returns
    -------
    tensor of shape (..., n_targets, d)
    """
    if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
        return _plain(matrix, x)
    if x.ndim == 2:
        return _Aggregate.apply(x, matrix.weight, matrix, False)
    if x.ndim == 1:
        return _Aggregate.apply(x[:, None], matrix.weight, matrix, False)[:, 0]
    columns = x.movedim(-2, 0)  # one sparse product for the whole stack
    out = _Aggregate.apply(columns.reshape(columns.shape[0], -1), matrix.weight, matrix, False)
    return out.reshape(-1, *columns.shape[1:]).movedim(0, -2)


def _plain(matrix: Sparse, x: Tensor) -> Tensor:
    """Do the same in torch operations that compilers and exporters know."""
    messages = x.index_select(-2, matrix.source)
    if matrix.weight is not None:
        messages = messages * matrix.weight.to(x.dtype)[:, None]
    out = x.new_zeros(*x.shape[:-2], matrix.shape[0], x.shape[-1])
    return out.index_add(-2, matrix.target, messages)


class _Aggregate(torch.autograd.Function):
    """The product with a sparse matrix or its transpose, differentiable in both factors, to any order."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor | None, matrix: Sparse, transposed: bool) -> Tensor:
        return _product(matrix, x, transposed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, ctx.matrix, ctx.transposed = inputs
        ctx.save_for_backward(x if weight is not None and weight.requires_grad else None, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = _Aggregate.apply(g, weight, ctx.matrix, not ctx.transposed)
        if ctx.needs_input_grad[1]:
            at_target, at_source = (x, g) if ctx.transposed else (g, x)
            dw = _EdgeDot.apply(at_target, at_source, ctx.matrix).to(weight.dtype)
        return dx, dw, None, None


class _EdgeDot(torch.autograd.Function):
    """One inner product per edge: the gradient of the weights."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, matrix: Sparse) -> Tensor:
        if a.device.type != "cpu" or a.dtype not in COMPILED:
            return (a[matrix.target] * b[matrix.source]).sum(1)
        from corollary.nn.sparse_kernels import edge_dot

        out = a.new_empty(len(matrix.target))
        edge_dot(matrix.target.numpy(), matrix.source.numpy(), _array(a), _array(b), out.numpy())
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, ctx.matrix = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        a, b = ctx.saved_tensors
        matrix = Sparse(ctx.matrix.source, ctx.matrix.target, ctx.matrix.shape, u)
        return _Aggregate.apply(b, u, matrix, False), _Aggregate.apply(a, u, matrix, True), None


def _product(matrix: Sparse, x: Tensor, transposed: bool) -> Tensor:
    if x.dtype not in COMPILED:  # half precision is summed in single
        return _product(matrix, x.float(), transposed).to(x.dtype)
    if x.device.type != "cpu":
        return _torch_product(matrix, x, transposed)
    from corollary.nn.sparse_kernels import product

    rows = matrix.compressed(transposed)
    out = x.new_empty(matrix.shape[transposed], x.shape[1])
    entries = matrix.entries(transposed, x.dtype)
    values = None if entries is None else entries.numpy()
    product(rows.bounds, rows.start, rows.index, values, _array(x), out.numpy())
    return out


def _torch_product(matrix: Sparse, x: Tensor, transposed: bool) -> Tensor:
    """Multiply with torch's own sparse kernels, on any device."""
    rows = matrix.compressed(transposed)
    key = ("csr", transposed, x.device)
    if key not in matrix._kept:
        matrix._kept[key] = tuple(torch.from_numpy(part).to(x.device) for part in (rows.start, rows.index))
    entries = matrix.entries(transposed, x.dtype)
    entries = x.new_ones(rows.index.size) if entries is None else entries
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        shape = (matrix.shape[transposed], x.shape[0])
        return torch.sparse_csr_tensor(*matrix._kept[key], entries, shape, check_invariants=False) @ x


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


# --- what was made of a tensor lives as long as the tensor ------------------------------------------------

_memory: Any = WeakIdKeyDictionary()


def remember(edge_index: Tensor, weight: Tensor | None, options: Any, make: Callable[[], Any]) -> Any:
    """Return what ``make`` made of these very tensors before, if neither has been changed since."""
    if torch.compiler.is_compiling() or edge_index.is_inference():
        return make()
    if weight is not None and (weight.requires_grad or weight.is_inference()):
        return make()
    kept = _memory.setdefault(edge_index, {})
    stamp = (edge_index._version, None if weight is None else weight._version)
    found = kept.get(options)
    if found is None or found[0] != stamp or found[1]() is not weight:
        found = (stamp, weakref.ref(weight) if weight is not None else lambda: None, make())
        kept[options] = found
    return found[2]


def check_edges(edge_index: Any, n: int, owner: str) -> None:
    """Raise unless the edges are a (2, E) tensor of integers between 0 and n - 1; checked once per tensor."""
    if torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export():
        return
    if not isinstance(edge_index, Tensor) or edge_index.dtype not in (torch.int64, torch.int32):
        got = getattr(edge_index, "dtype", type(edge_index).__name__)
        raise kind(
            owner, "edge_index must be a tensor of integers", got, "Use torch.as_tensor(edge_index).long()."
        )
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise value(owner, "edge_index must have shape (2, E)", f"shape {tuple(edge_index.shape)}")
    remember(edge_index, None, ("checked", n), lambda: _check_range(edge_index, n, owner))


def _check_range(edge_index: Tensor, n: int, owner: str) -> bool:
    if edge_index.numel() and not (0 <= int(edge_index.min()) and int(edge_index.max()) < n):
        got = f"{int(edge_index.min())} to {int(edge_index.max())}"
        raise value(owner, f"edges must join nodes 0 to {n - 1} (x has {n} rows)", got)
    return True
