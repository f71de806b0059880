r"""Products of a large dense matrix with a thin one, compiled for the registers they need.

A library's product packs the large matrix into panels first, which for a factor of a few dozen columns costs as much
as the product. Here a tile of the result, ``ROWS`` by up to ``WIDEST`` registers, stays in registers while

.. math:: y_{rk} \leftarrow y_{rk} + \sum_t x_{rt} b_{tk} \tag{1}

runs over :math:`t`, and nothing is packed: twice as fast for 20 columns. The large matrix may have any strides, so
that its transpose is the same loop. Rows go in blocks of ``BLOCK``, few enough to stay in the cache while a second
product, with the transpose, reads them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "BLOCK",
    "accumulate",
    "accumulate_back",
    "back_product",
    "packed",
    "panels",
    "partial_sums",
    "product",
    "unpacked",
]

REGISTER = 32  # bytes
ROWS, WIDEST = 4, 3  # 12 registers of sums, 3 of b and 1 of x: all 16
BLOCK = 16  # rows; more of them lie on more pages than the processor remembers
CHUNK = 2048  # columns of x at a time, so that their rows of b stay in the cache
PARTS = 8  # sums of a transposed product: fixed, so that the result does not depend on the threads
FLAT = {"fastmath": True, "error_model": "numpy", "cache": True, "nogil": True}


def _tile(registers: int) -> Any:
    """Make the loop of eq. 1 for a tile so wide; offsets and strides count elements."""

    @intrinsic
    def tile(typing, y, at_y, y_row, x, at_x, x_row, x_t, b, at_b, b_t, n):  # type: ignore[no-untyped-def]
        whole = types.intp
        signature = types.void(y, whole, whole, x, whole, whole, whole, b, whole, whole, whole)

        def generate(context, builder, _, args):  # type: ignore[no-untyped-def]
            y_, at_y, y_row, x_, at_x, x_row, x_t, b_, at_b, b_t, n = args
            arrays = ((y, y_), (x, x_), (b, b_))
            Y, X, B = (context.make_array(kind)(context, builder, value).data for kind, value in arrays)
            number = context.get_data_type(y.dtype)
            size = context.get_abi_sizeof(number)
            lanes = REGISTER // size
            vector = ir.VectorType(number, lanes)
            splat = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            whole = at_y.type

            def place(base, *steps):  # base + sum of step * count
                at = steps[0]
                for step, count in steps[1]:
                    at = builder.add(at, builder.mul(step, ir.Constant(whole, count)))
                return builder.gep(base, [at])

            def wide(base, at, steps, v):
                pointer = place(base, at, [*steps, (ir.Constant(whole, lanes), v)])
                return builder.bitcast(pointer, vector.as_pointer())

            def load(pointer):
                value = builder.load(pointer)
                value.align = size
                return value

            sums = {}
            for r in range(ROWS):
                for v in range(registers):
                    sums[r, v] = cgutils.alloca_once(builder, vector)
                    builder.store(load(wide(Y, at_y, [(y_row, r)], v)), sums[r, v])
            with cgutils.for_range(builder, n) as loop:
                at_bt = builder.add(at_b, builder.mul(loop.index, b_t))
                at_xt = builder.add(at_x, builder.mul(loop.index, x_t))
                factors = [load(wide(B, at_bt, [], v)) for v in range(registers)]
                for r in range(ROWS):
                    one = builder.load(place(X, at_xt, [(x_row, r)]))
                    nothing = ir.Constant(vector, ir.Undefined)
                    first = builder.insert_element(nothing, one, ir.Constant(ir.IntType(32), 0))
                    same = builder.shuffle_vector(first, nothing, splat)
                    for v in range(registers):
                        term = builder.fmul(same, factors[v], flags=("contract",))
                        total = builder.fadd(builder.load(sums[r, v]), term, flags=("contract",))
                        builder.store(total, sums[r, v])
            for (r, v), held in sums.items():
                builder.store(builder.load(held), wide(Y, at_y, [(y_row, r)], v)).align = size
            return context.get_dummy_value()

        return signature, generate

    return tile


_tile_1, _tile_2, _tile_3 = _tile(1), _tile(2), _tile(3)


@njit(**FLAT)
def _strips(y, at_y, x, at_x, rows, x_row, x_t, b, at_b, n):  # pragma: no cover - compiled
    """Run eq. 1 for ``rows`` rows of y, tile by tile; y and b are one panel of their columns, (rows, width)."""
    width = b.shape[1]
    registers = width * b.itemsize // REGISTER
    for start in range(0, n, CHUNK):
        count = min(CHUNK, n - start)
        c, a = (at_b + start) * width, at_x + start * x_t
        for i in range(0, rows - ROWS + 1, ROWS):
            o, e = (at_y + i) * width, a + i * x_row
            if registers == 3:
                _tile_3(y, o, width, x, e, x_row, x_t, b, c, width, count)
            elif registers == 2:
                _tile_2(y, o, width, x, e, x_row, x_t, b, c, width, count)
            else:
                _tile_1(y, o, width, x, e, x_row, x_t, b, c, width, count)


@njit(**FLAT)
def accumulate(y, at, x, first, count, b):  # pragma: no cover - compiled
    """Add x[first : first + count] b to as many rows of y from ``at``; y and b in panels."""
    row, column = x.strides[0] // x.itemsize, x.strides[1] // x.itemsize
    for p in range(len(b)):
        _strips(y[p], at, x, first * row, count, row, column, b[p], 0, x.shape[1])
        for i in range(count // ROWS * ROWS, count):
            for t in range(x.shape[1]):
                for k in range(b.shape[2]):
                    y[p, at + i, k] += x[first + i, t] * b[p, t, k]


@njit(**FLAT)
def accumulate_back(y, x, first, count, b, at):  # pragma: no cover - compiled
    """Add x[first : first + count]ᵀ b[at : at + count] to y; y and b in panels."""
    row, column = x.strides[0] // x.itemsize, x.strides[1] // x.itemsize
    for p in range(len(b)):
        _strips(y[p], 0, x, first * row, x.shape[1], column, row, b[p], at, count)
        for t in range(count):
            for j in range(x.shape[1] // ROWS * ROWS, x.shape[1]):
                for k in range(b.shape[2]):
                    y[p, j, k] += x[first + t, j] * b[p, at + t, k]


# --- panels ----------------------------------------------------------------------------------------------


def panels(n: int, K: int, dtype: Any) -> np.ndarray:
    """Return zeros (p, n, width) with room for K columns in p panels of one to three registers."""
    lanes = REGISTER // np.dtype(dtype).itemsize
    registers = -(-K // lanes)
    p = -(-registers // WIDEST)
    return np.zeros((p, n, -(-registers // p) * lanes), dtype)


def packed(B: np.ndarray) -> np.ndarray:
    """Return the columns of B (n, K) in panels, zeros behind them."""
    wide = panels(*B.shape, B.dtype)
    width = wide.shape[2]
    for p, panel in enumerate(wide):
        part = B[:, p * width : (p + 1) * width]
        panel[:, : part.shape[1]] = part
    return wide


def unpacked(wide: np.ndarray, K: int) -> np.ndarray:
    """Return the K columns (n, K) that are kept in panels."""
    return wide.transpose(1, 0, 2).reshape(wide.shape[1], -1)[:, :K]


def partial_sums(X: np.ndarray, K: int) -> np.ndarray:
    """Return zeros (parts, p, columns of X, width): the sums of a transposed product."""
    parts = max(1, min(PARTS, len(X) // (4 * BLOCK)))
    return np.zeros((parts, *panels(X.shape[1], K, X.dtype).shape), X.dtype)


# --- whole products --------------------------------------------------------------------------------------


def product(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return X B for a thin B of the same type."""
    Y = panels(len(X), B.shape[1], X.dtype)
    _product(X, packed(B), Y)
    return unpacked(Y, B.shape[1])


def back_product(X: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return Xᵀ B for a thin B of the same type."""
    sums = partial_sums(X, B.shape[1])
    _back_product(X, packed(B), sums)
    return unpacked(sums.sum(0), B.shape[1])


@njit(parallel=True, **FLAT)
def _product(X, B, Y):  # pragma: no cover - compiled
    for block in prange((len(X) + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        accumulate(Y, first, X, first, min(BLOCK, len(X) - first), B)


@njit(parallel=True, **FLAT)
def _back_product(X, B, sums):  # pragma: no cover - compiled
    n, parts = len(X), len(sums)
    for part in prange(parts):
        stop = (part + 1) * n // parts
        for first in range(part * n // parts, stop, BLOCK):
            accumulate_back(sums[part], X, first, min(BLOCK, stop - first), B, first)
