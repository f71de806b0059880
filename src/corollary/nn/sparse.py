r"""Sums over edges: the one product that every graph layer is made of.

A list of edges :math:`e = (s_e \to t_e)` with weights :math:`w_e` is a sparse matrix with one row
per target. Aggregation and its derivatives are three operations that are each other's gradients:

.. math::
    (A_w x)_i = \sum_{e:\, t_e = i} w_e\, x_{s_e}, \qquad
    (A_w^\top g)_j = \sum_{e:\, s_e = j} w_e\, g_{t_e}, \qquad
    \partial \mathcal L / \partial w_e = g_{t_e} \cdot x_{s_e}. \tag{1}

A sparse table of features is such a matrix too, with one row per node and one column per feature, so that
:math:`X W^\top` is the product (1) of :math:`X` with the columns of :math:`W`.

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
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from corollary.errors import kind, value

__all__ = ["Sparse", "aggregate", "features", "project", "ranges", "remember", "sparse"]

BLOCKS = 64  # pieces of equal work per product; more balance better, fewer cost less
COMPILED = (torch.float32, torch.float64)


class Compressed(NamedTuple):
    """One direction of the matrix in CSR form; ``edge`` says which edge each entry is."""

    start: np.ndarray  # (n + 1,)
    index: np.ndarray  # type: ignore[assignment]  # (E,)
    edge: Tensor  # (E,)
    bounds: np.ndarray  # rows at which the blocks of equal work begin
    sorted: bool  # whether the edges were in this order from the first


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
        self._kept: dict[Any, Any] = {}  # of the places only: shared by matrices that differ in their entries
        self._entries: dict[Any, Tensor] = {}

    @property
    def dtype(self) -> torch.dtype:
        """The type of the entries."""
        return torch.get_default_dtype() if self.weight is None else self.weight.dtype

    @property
    def device(self) -> torch.device:
        """Where the entries are."""
        return self.source.device

    def once(self, key: Any, make: Callable[[], Tensor]) -> Tensor:
        """Return what was made of the entries before, or make it; entries are never changed in place."""
        if key not in self._entries:
            self._entries[key] = make()
        return self._entries[key]

    def reweighted(self, weight: Tensor) -> Sparse:
        """Return the matrix with other entries in the same places."""
        other = Sparse(self.source, self.target, self.shape, weight)
        other._kept = self._kept
        return other

    def __getitem__(self, rows: Tensor) -> Sparse:
        """Return the matrix of some of the rows."""
        layout = self.compressed(False)
        start = torch.from_numpy(layout.start).long().to(self.device)
        which, target = ranges(start[rows], (start[1:] - start[:-1])[rows])
        edge = layout.edge.to(self.device)[which]
        weight = None if self.weight is None else self.weight[edge]
        return Sparse(self.source[edge], target, (len(rows), self.shape[1]), weight)

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
        already = bool((np.diff(order) == 1).all())
        return Compressed(start.astype(integer), index, torch.from_numpy(order), bounds, already)

    def entries(self, transposed: bool, dtype: torch.dtype) -> Tensor | None:
        """Return the weights in the order of the CSR form; kept if they are constant."""
        if self.weight is None:
            return None
        key = (transposed, dtype)
        if key in self._entries:
            return self._entries[key]
        layout, found = self.compressed(transposed), self.weight.detach().to(dtype)
        if not layout.sorted:
            found = found[layout.edge.to(found.device)]
        if not self.weight.requires_grad:
            self._entries[key] = found
        return found


def sparse(
    edge_index: Tensor,
    n: int | tuple[int, int],
    weight: Tensor | None = None,
    flow: str = "source_to_target",
) -> Sparse:
    """Return the matrix of the edges between n nodes, or from n[0] to n[1] others.

    The sorted form of the same tensor is made only once.
    """
    sources, targets = (n, n) if isinstance(n, int) else n

    def make() -> Sparse:
        source, target = edge_index if flow == "source_to_target" else edge_index.flip(0)
        # Copies: a view would keep edge_index alive, and the memory of it with it.
        return Sparse(source.clone(), target.clone(), (targets, sources), weight)

    return remember(edge_index, weight, ("plain", n, flow), make)


def ends(owner: str, x: Any, size: tuple[int, int] | None, flow: str) -> tuple[Any, Any, tuple[int, int]]:
    """Return the features of sources and of targets, and how many there are of each.

    ``x`` is one table for both, or a pair; the second of a pair may be None, and ``size`` then says how many
    targets there are (as many as sources if it does not).
    """
    if not isinstance(x, tuple | list):
        x = features(x)
        return x, x, (x.shape[-2], x.shape[-2])
    if flow != "source_to_target":
        raise value(owner, "a pair of features needs flow='source_to_target'", repr(flow), "Flip edge_index.")
    if len(x) != 2:
        raise value(owner, "x must be one tensor, or a pair for sources and targets", f"{len(x)} tensors")
    left, right = features(x[0]), features(x[1])
    sources, targets = size or (left.shape[-2], left.shape[-2] if right is None else right.shape[-2])
    for name, part, n in (("sources", left, sources), ("targets", right, targets)):
        if part is not None and part.shape[-2] != n:
            raise value(owner, f"size says {n} {name}, so x must have as many rows", part.shape[-2])
    return left, right, (sources, targets)


def features(x: Any) -> Any:
    """Return node features as the layers compute with them: a sparse torch tensor becomes a :class:`Sparse`."""
    if not isinstance(x, Tensor) or x.layout == torch.strided:
        return x

    def make() -> Sparse:
        entries = x.detach().to_sparse_coo().coalesce()
        rows, columns = entries.indices()
        return Sparse(columns, rows, tuple(x.shape), entries.values())  # type: ignore[arg-type]

    return remember(x, None, "features", make)


def project(x: Tensor | Sparse, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b; sparse features stay sparse, and so does their part in the gradient of W."""
    if not isinstance(x, Sparse):
        return F.linear(x, weight, bias)
    out = aggregate(x, weight.T)
    return out if bias is None else out + bias


def ranges(begin: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numbers of all ranges, one after the other, and which range each is of."""
    owner = torch.repeat_interleave(torch.arange(len(length), device=length.device), length)
    before = length.cumsum(0) - length
    return torch.arange(len(owner), device=length.device) - before[owner] + begin[owner], owner


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
        return torch.sparse_csr_tensor(*matrix._kept[key], entries, shape, check_invariants=False) @ x  # type: ignore[call-arg, arg-type]


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


# --- what was made of a tensor lives as long as the tensor ------------------------------------------------

_memory: Any = WeakIdKeyDictionary()


def remember(edge_index: Tensor, weight: Tensor | None, options: Any, make: Callable[[], Any]) -> Any:
    """Return what ``make`` made of these very tensors before, if neither has been changed since."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or edge_index.is_inference():  # type: ignore[attr-defined]
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


def check_edges(edge_index: Any, n: int | tuple[int, int], owner: str) -> None:
    """Raise unless the edges are a (2, E) tensor of integers that number nodes; checked once per tensor.

    There are n nodes, or n[0] for the first row and n[1] for the second.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():  # type: ignore[attr-defined]
        return
    if not isinstance(edge_index, Tensor) or edge_index.dtype not in (torch.int64, torch.int32):
        got = getattr(edge_index, "dtype", type(edge_index).__name__)
        raise kind(
            owner, "edge_index must be a tensor of integers", got, "Use torch.as_tensor(edge_index).long()."
        )
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise value(owner, "edge_index must have shape (2, E)", f"shape {tuple(edge_index.shape)}")
    remember(edge_index, None, ("checked", n), lambda: _check_range(edge_index, n, owner))


def _check_range(edge_index: Tensor, n: int | tuple[int, int], owner: str) -> bool:
    parts = (
        [("", edge_index, n)]
        if isinstance(n, int)
        else list(zip((" of sources", " of targets"), edge_index, n))
    )
    for what, row, count in parts:
        if row.numel() and not (0 <= int(row.min()) and int(row.max()) < count):
            must = f"edges must join nodes 0 to {count - 1} (x{what} has {count} rows)"
            do = "Number the nodes from 0, or give x a row for each."
            raise value(owner, must, f"{int(row.min())} to {int(row.max())}", do)
    return True
