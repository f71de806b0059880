r"""Which input positions a tensor inside a network can depend on, followed from operation to operation.

A unit :math:`u` of an axis that came from an axis of the input sees :math:`[a + ju,\; a + ju + r - 1]` of it. A window of
:math:`k` units, stride :math:`s`, padding :math:`p` and dilation :math:`d` makes of that (formulas of
:mod:`corollary.theory.convolution`)

.. math:: a' = a - pj, \qquad r' = r + d(k - 1) j, \qquad j' = sj, \tag{1}

branches that meet see the union of their ranges, and a sum over the whole axis sees all of it. The rules below say, for the
operations that torch decomposes a network into, where each axis goes; an operation without a rule that changes the shape
loses track, and nothing is claimed of what follows it. Normalisation counts as a pointwise operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["Axis", "Fields"]

aten = torch.ops.aten


@dataclass(frozen=True)
class Axis:
    """Where an axis of an input went: a dimension of the tensor, and what its units see."""

    source: tuple[int, int]  # which input, which of its dimensions
    extent: int  # how long that is
    dim: int | None  # where it is now; None once it has been summed or picked from
    start: float = 0
    size: float = 1
    jump: float = 1
    spatial: bool = False  # whether a window has slid over it
    block: tuple[tuple[int, ...], int] | None = (
        None  # the sizes merged into that dimension, and its place among them
    )

    def slid(self, k: int, s: float, p: int, d: int) -> Axis:
        """Return what a window's outputs see, eq. 1."""
        return replace(
            self,
            start=self.start - p * self.jump,
            size=self.size + d * (k - 1) * self.jump,
            jump=self.jump * s,
            spatial=True,
        )

    def summed(self) -> Axis:
        """Return what one sum over the axis sees."""
        return replace(self, dim=None, start=0, size=self.extent, jump=self.extent, block=None)


Field = tuple[Axis, ...] | None  # None: lost


class Fields:
    """The axes behind every tensor that has been made so far.

    Parameters
    ----------
    inputs : iterable of Tensor
        What the network is called with; their first dimension is the batch.
    """

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        self.known: Any = WeakTensorKeyDictionary()
        for i, x in enumerate(inputs):
            self.known[x] = tuple(Axis((i, dim), n, dim) for dim, n in enumerate(x.shape) if dim > 0)

    def follow(self, func: Any, args: tuple[Any, ...], out: Any) -> None:
        """Note where the axes of the arguments are in the results of an operation."""
        tensors = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
        before = [(t, self.known[t]) for t in tensors if t in self.known]
        if not before:
            return
        results = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        lost = any(field is None for _, field in before)
        rule = RULES.get(func.overloadpacket)
        for i, result in enumerate(results):
            if lost:
                self.known[result] = None
            elif rule is not None:
                self.known[result] = rule(self, args, result)
            elif func.overloadpacket in LISTS:
                self.known[result] = _parted(self, args, result)
            else:
                self.known[result] = self.same_shape(tensors, result) if i == 0 or result.ndim else ()

    def of(self, t: Any) -> tuple[Axis, ...]:
        """Return the axes of a tensor; none of what does not come from the inputs."""
        found = self.known.get(t) if isinstance(t, Tensor) else None
        return found or ()

    def same_shape(self, tensors: list[Tensor], result: Tensor) -> Field:
        """Return the union over tensors that are combined entry by entry, shapes aligned at the right."""
        gathered: list[Axis] = []
        for t in tensors:
            if t not in self.known:
                continue
            shift = result.ndim - t.ndim
            if shift < 0 or any(n not in (1, m) for n, m in zip(t.shape, result.shape[shift:])):
                return None
            gathered += [a if a.dim is None else replace(a, dim=a.dim + shift) for a in self.of(t)]
        return union(gathered)

    def sizes(self, t: Tensor) -> dict[tuple[int, int], int] | None:
        """Return how many positions of each axis that a window has slid over one unit sees; None if that is not known."""
        if self.known.get(t, ()) is None:
            return None
        found: dict[tuple[int, int], int] = {}
        for axis in self.of(t):
            if axis.spatial:
                found[axis.source] = max(found.get(axis.source, 1), math.ceil(axis.size))
        return found


def union(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """Return the axes with those of the same origin and place as one that sees what either does."""
    found: dict[Any, Axis] = {}
    for a in axes:
        key = (a.source, a.dim, a.block, a.jump)
        if key in found:
            b = found[key]
            start = min(a.start, b.start)
            end = max(a.start + a.size, b.start + b.size)
            a = replace(a, start=start, size=end - start, spatial=a.spatial or b.spatial)
        found[key] = a
    return tuple(found.values())


# --- rules: (fields, arguments, result) -> axes of the result --------------------------------------------

Rule = Callable[[Fields, tuple[Any, ...], Tensor], Field]


def _pick(values: Any, i: int, default: int = 1) -> int:
    if isinstance(values, list | tuple):
        return int(values[i] if len(values) > 1 else values[0]) if values else default
    return int(values)


def _moved(axes: Iterable[Axis], where: Callable[[int], int | None]) -> Field:
    """Return the axes at new dimensions; one that goes nowhere keeps what it sees."""
    return union(
        replace(a, dim=(to := where(a.dim)), block=a.block if to is not None else None)
        if a.dim is not None
        else a
        for a in axes
    )


def _contracted(axes: Iterable[Axis], dims: set[int]) -> list[Axis]:
    return [a.summed() if a.dim in dims else a for a in axes]


def _windowed(x: Tensor, axes: Iterable[Axis], n: int, change: Callable[[Axis, int], Axis]) -> Field:
    """Return the axes after windows over the last ``n`` dimensions; the features before them are summed."""
    first, found = x.ndim - n, []
    for a in axes:
        if a.dim is not None and a.dim >= first:
            if a.block is not None:
                return None
            a = change(a, a.dim - first)
        found.append(a)
    return union(found)


def _convolution(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x, w, _, stride, padding, dilation, transposed = args[:7]
    n = w.ndim - 2

    def change(a: Axis, i: int) -> Axis:
        k, s, p, d = w.shape[2 + i], _pick(stride, i), _pick(padding, i, 0), _pick(dilation, i)
        if not transposed:
            return a.slid(k, s, p, d)
        seen = math.ceil((d * (k - 1) + 1) / s)  # units of the input under one of the output
        return a.slid(seen, 1 / s, 0, 1)

    channel = x.ndim - n - 1
    axes = [a for a in fields.of(x) if a.dim != channel or a.spatial]
    return _windowed(x, _contracted(axes, {channel}), n, change)


def _pooling(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x, kernel, *rest = args
    stride = rest[0] if rest and rest[0] else kernel
    padding = rest[1] if len(rest) > 1 else 0
    dilation = rest[2] if len(rest) > 2 and not isinstance(rest[2], bool) else 1
    n = len(kernel) if isinstance(kernel, list | tuple) and len(kernel) > 1 else 2

    def change(a: Axis, i: int) -> Axis:
        return a.slid(_pick(kernel, i), _pick(stride, i), _pick(padding, i, 0), _pick(dilation, i))

    return _windowed(x, fields.of(x), n, change)


def _adaptive(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x, n = args[0], len(args[1])

    def change(a: Axis, i: int) -> Axis:
        size, out = x.shape[x.ndim - n + i], result.shape[result.ndim - n + i]
        if out == 1:
            return replace(a.summed(), spatial=True)
        return a.slid(math.ceil(size / out) + (size % out > 0), size / out, 0, 1)

    return _windowed(x, fields.of(x), n, change)


def _enlarged(taps: int) -> Rule:
    """Return the rule of an interpolation that reads ``taps`` units for each new one."""

    def rule(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
        x = args[0]

        def change(a: Axis, i: int) -> Axis:
            return a.slid(taps, x.shape[2 + i] / result.shape[2 + i], 0, 1)

        return _windowed(x, fields.of(x), x.ndim - 2, change)

    return rule


def _padded(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x, pad = args[0], args[1]
    left = {x.ndim - 1 - i: pad[2 * i] for i in range(len(pad) // 2)}
    return union(
        replace(a, start=a.start - left.get(a.dim, 0) * a.jump) if a.dim is not None else a
        for a in fields.of(x)
    )


def _permuted(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    order = [d % args[0].ndim for d in args[1]]
    return _moved(fields.of(args[0]), order.index)


def _transposed(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    n = args[0].ndim
    a, b = ((n - 2) % n, (n - 1) % n) if len(args) < 3 else (args[1] % n, args[2] % n)
    return _moved(fields.of(args[0]), lambda dim: {a: b, b: a}.get(dim, dim))


def _unsqueezed(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    at = args[1] % result.ndim
    return _moved(fields.of(args[0]), lambda dim: dim + (dim >= at))


def _squeezed(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x = args[0]
    given = args[1] if len(args) > 1 else range(x.ndim)
    given = [given] if isinstance(given, int) else given
    gone = {d % x.ndim for d in given if x.shape[d] == 1}
    return _moved(fields.of(x), lambda dim: None if dim in gone else dim - sum(g < dim for g in gone))


def _sliced(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x, at, start, _, step = (*args, *(0, None, None, 1)[len(args) - 1 :])[:5]
    at, begin = at % x.ndim, max(0, (start or 0) if (start or 0) >= 0 else x.shape[at] + start)
    return union(
        replace(a, start=a.start + begin * a.jump, jump=a.jump * (step or 1)) if a.dim == at else a
        for a in fields.of(x)
    )


def _selected(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    at = args[1] % args[0].ndim
    return _moved(fields.of(args[0]), lambda dim: None if dim == at else dim - (dim > at))


def _parted(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    at = (args[2] if len(args) > 2 else 0) % args[0].ndim
    axes = fields.of(args[0])
    return None if any(a.dim == at and a.spatial for a in axes) else union(a for a in axes if a.dim != at)


def _joined(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    at = (args[1] if len(args) > 1 else 0) % result.ndim
    axes = [a for t in args[0] for a in fields.of(t)]
    return None if any(a.dim == at and a.spatial for a in axes) else union(a for a in axes if a.dim != at)


def _reduced(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    x = args[0]
    given = args[1] if len(args) > 1 and args[1] is not None and args[1] != [] else range(x.ndim)
    given = [given] if isinstance(given, int) else given
    if any(not isinstance(d, int) for d in given):
        return None
    dims = {d % x.ndim for d in given}
    axes = union(_contracted(fields.of(x), dims))
    if result.ndim == x.ndim:
        return axes
    return _moved(axes, lambda dim: dim - sum(g < dim for g in dims))


def _product(fields: Fields, a: Tensor, b: Tensor) -> list[Axis]:
    """Return the axes of a matrix product, of one or of each of a batch."""
    left = _contracted(fields.of(a), {a.ndim - 1})
    right = _contracted(fields.of(b), {max(b.ndim - 2, 0)})
    return left + right


def _matrix(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    return union(_product(fields, args[0], args[1]))


def _added_matrix(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    rest = fields.same_shape([args[0]], result) if args[0] in fields.known else ()
    return None if rest is None else union([*rest, *_product(fields, args[1], args[2])])


def _mixed(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    """Follow what combines all entries along a dimension and keeps the shape, as softmax does."""
    at = args[1] % args[0].ndim
    return union(
        replace(a, start=0, size=max(a.size, a.extent)) if a.dim == at else a for a in fields.of(args[0])
    )


def _lost(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    return None


def _embedded(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    return union(fields.of(args[1]))


def _viewed(fields: Fields, args: tuple[Any, ...], result: Tensor) -> Field:
    """Follow dimensions that stay, that are merged, and that are parted again as they had been merged."""
    x, found = args[0], []
    groups = _groups(tuple(x.shape), tuple(result.shape))
    if groups is None:
        return None
    for a in fields.of(x):
        if a.dim is None:
            found.append(a)
            continue
        old, new = next(g for g in groups if a.dim in g[0])
        sizes = tuple(x.shape[d] for d in old)
        parts = tuple(result.shape[d] for d in new)
        if len(old) == len(new) == 1:
            found.append(replace(a, dim=new[0]))
        elif len(new) == 1 and a.block is None:
            found.append(replace(a, dim=new[0], block=(sizes, old.index(a.dim))))
        elif len(old) == 1 and a.block is not None and a.block[0] == parts:
            found.append(replace(a, dim=new[a.block[1]], block=None))
        elif not a.spatial:
            continue  # features that are divided, such as into heads
        else:
            return None
    return union(found)


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]] | None:
    """Return the smallest runs of dimensions of equal product, of both shapes."""
    if 0 in old:
        return None
    found, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        a, b = [], []
        m = n = 1
        if i < len(old):
            a, m, i = [i], old[i], i + 1
        if j < len(new):
            b, n, j = [j], new[j], j + 1
        while m != n:
            if m < n and i < len(old):
                a, m, i = [*a, i], m * old[i], i + 1
            elif n < m and j < len(new):
                b, n, j = [*b, j], n * new[j], j + 1
            else:
                return None
        found.append((a, b))
    return found


LISTS = {aten.split, aten.split_with_sizes, aten.chunk}
RULES: dict[Any, Rule] = {
    aten.convolution: _convolution,
    aten.max_pool2d_with_indices: _pooling,
    aten.max_pool3d_with_indices: _pooling,
    aten.avg_pool2d: _pooling,
    aten.avg_pool3d: _pooling,
    aten._adaptive_avg_pool2d: _adaptive,
    aten._adaptive_avg_pool3d: _adaptive,
    aten.adaptive_max_pool2d: _adaptive,
    aten.adaptive_max_pool3d: _adaptive,
    **dict.fromkeys((aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d), _enlarged(1)),
    **dict.fromkeys((aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d), _enlarged(2)),
    aten.upsample_bicubic2d: _enlarged(4),
    **dict.fromkeys(
        (
            aten.constant_pad_nd, aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d,
            aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d,
        ),
        _padded,
    ),
    aten.permute: _permuted,
    aten.transpose: _transposed,
    aten.t: _transposed,
    aten.unsqueeze: _unsqueezed,
    aten.squeeze: _squeezed,
    aten.slice: _sliced,
    aten.select: _selected,
    aten.cat: _joined,
    **dict.fromkeys((aten.mean, aten.sum, aten.amax, aten.amin, aten.max, aten.logsumexp, aten.var), _reduced),
    aten.mm: _matrix,
    aten.bmm: _matrix,
    aten.addmm: _added_matrix,
    aten.baddbmm: _added_matrix,
    aten.embedding: _embedded,
    **dict.fromkeys((aten._softmax, aten._log_softmax, aten.cumsum), _mixed),
    **dict.fromkeys((aten.index, aten.index_select, aten.gather, aten.scatter, aten.roll, aten.flip, aten.sort), _lost),
    **dict.fromkeys((aten.view, aten._unsafe_view, aten.reshape), _viewed),
}  # fmt: skip
