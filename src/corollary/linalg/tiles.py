r"""Matrix-product kernels whose sums stay in vector registers, written as LLVM IR because compilers spill them.

Each is made for a number of registers, and called from compiled code with arrays, offsets and strides, which
count elements. A register holds as many numbers as fit into its bytes: ``REGISTER``, or ``WIDE`` where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["REGISTER", "WIDE", "gather", "spread", "tile"]

REGISTER = 32  # bytes
WIDE = 64 if binding.get_host_cpu_features().get("avx512f") else REGISTER  # bytes of this processor's widest
whole = types.intp


class _Code:
    """What the loops are written with: vectors of the numbers of one array, in registers and in memory."""

    def __init__(self, context: Any, builder: Any, kind: Any, size: int = REGISTER) -> None:
        self.context, self.builder = context, builder
        self.number = context.get_data_type(kind.dtype)
        self.lanes = size // context.get_abi_sizeof(self.number)
        self.vector = ir.VectorType(self.number, self.lanes)
        self.count = context.get_value_type(whole)

    def data(self, kind: Any, value: Any) -> Any:
        """Return where an array's numbers begin."""
        return self.context.make_array(kind)(self.context, self.builder, value).data

    def plus(self, at: Any, *steps: Any) -> Any:
        """Return ``at`` and each step times its whole number."""
        for step, times in steps:
            step = ir.Constant(self.count, step) if isinstance(step, int) else step
            times = ir.Constant(self.count, times) if isinstance(times, int) else times
            at = self.builder.add(at, self.builder.mul(step, times))
        return at

    def load(self, base: Any, at: Any) -> Any:
        """Return one number."""
        return self.builder.load(self.builder.gep(base, [at]))

    def load_vector(self, base: Any, at: Any) -> Any:
        """Return a register of neighbours."""
        value = self.builder.load(self._wide(base, at))
        value.align = 4
        return value

    def store_vector(self, value: Any, base: Any, at: Any) -> None:
        """Write a register."""
        self.builder.store(value, self._wide(base, at)).align = 4

    def _wide(self, base: Any, at: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [at]), self.vector.as_pointer())

    def everywhere(self, number: Any) -> Any:
        """Return a register full of one number."""
        nothing, short = ir.Constant(self.vector, ir.Undefined), ir.IntType(32)
        first = self.builder.insert_element(nothing, number, ir.Constant(short, 0))
        zeros = ir.Constant(ir.VectorType(short, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, nothing, zeros)

    def fused(self, total: Any, a: Any, b: Any) -> Any:
        """Return total + a b."""
        return self.builder.fadd(total, self.builder.fmul(a, b, flags=("contract",)), flags=("contract",))

    def held(self, value: Any) -> Any:
        """Return a place for a register that changes; the compiler keeps it out of memory."""
        place = cgutils.alloca_once(self.builder, self.vector)
        self.builder.store(value, place)
        return place


def tile(rows: int, registers: int, size: int) -> Callable[..., None]:
    """Make y[r, :] += sum_t x[r, t] b[t, :] for so many rows, and columns that fill registers of ``size`` bytes."""

    @intrinsic
    def run(typing, y, at_y, y_row, x, at_x, x_row, x_t, b, at_b, b_t, n):  # type: ignore[no-untyped-def]
        def generate(context, builder, _, args):  # type: ignore[no-untyped-def]
            code = _Code(context, builder, y, size)
            y_, at_y, y_row, x_, at_x, x_row, x_t, b_, at_b, b_t, n = args
            Y, X, B = code.data(y, y_), code.data(x, x_), code.data(b, b_)
            places = {
                (r, v): code.plus(at_y, (y_row, r), (code.lanes, v))
                for r in range(rows)
                for v in range(registers)
            }
            sums = {key: code.held(code.load_vector(Y, at)) for key, at in places.items()}
            with cgutils.for_range(builder, n) as loop:
                row, column = code.plus(at_b, (b_t, loop.index)), code.plus(at_x, (x_t, loop.index))
                factors = [code.load_vector(B, code.plus(row, (code.lanes, v))) for v in range(registers)]
                for r in range(rows):
                    same = code.everywhere(code.load(X, code.plus(column, (x_row, r))))
                    for v in range(registers):
                        total = code.fused(builder.load(sums[r, v]), same, factors[v])
                        builder.store(total, sums[r, v])
            for key, at in places.items():
                code.store_vector(builder.load(sums[key]), Y, at)
            return context.get_dummy_value()

        return types.void(y, whole, whole, x, whole, whole, whole, b, whole, whole, whole), generate

    return run


def _parts(code: _Code, at: Any, registers: int, width: Any) -> list[Any]:
    """Return where the registers of ``width`` numbers begin; the last ends with them and may overlap another."""
    last = code.builder.sub(width, ir.Constant(code.count, code.lanes))
    return [code.plus(at, (code.lanes, v)) for v in range(registers - 1)] + [code.plus(at, (last, 1))]


def _sparse(registers: int, collects: bool) -> Callable[..., None]:
    """Make the loop over entries ``first`` to ``last`` of a sparse row; rows of y and b are ``row`` numbers apart."""

    @intrinsic
    def run(typing, y, at_y, value, index, first, last, b, at_b, row, width):  # type: ignore[no-untyped-def]
        def generate(context, builder, _, args):  # type: ignore[no-untyped-def]
            code = _Code(context, builder, y)
            y_, at_y, value_, index_, first, last, b_, at_b, row, width = args
            Y, B, values, indices = (
                code.data(k, v) for k, v in ((y, y_), (b, b_), (value, value_), (index, index_))
            )
            mine = _parts(code, at_y if collects else at_b, registers, width)
            zero = ir.Constant(code.vector, [0.0] * code.lanes)
            kept = [code.held(zero if collects else code.load_vector(B, at)) for at in mine]
            with cgutils.for_range_slice(builder, first, last, ir.Constant(code.count, 1)) as (e, _):
                same = code.everywhere(code.load(values, e))
                other = builder.load(builder.gep(indices, [e]))
                other = other if other.type == code.count else builder.sext(other, code.count)
                start = code.plus(at_b if collects else at_y, (row, other))
                there = _parts(code, start, registers, width)
                found = [code.load_vector(B if collects else Y, at) for at in there]
                for k, at, old in zip(kept, there, found):
                    if collects:
                        builder.store(code.fused(builder.load(k), same, old), k)
                    else:
                        code.store_vector(code.fused(old, same, builder.load(k)), Y, at)
            if collects:
                for k, at in zip(kept, mine):
                    code.store_vector(builder.load(k), Y, at)
            return context.get_dummy_value()

        return types.void(y, whole, value, index, whole, whole, b, whole, whole, whole), generate

    return run


def gather(registers: int) -> Callable[..., None]:
    """Make y[:] = sum_e value[e] b[index[e], :] for one row of y."""
    return _sparse(registers, True)


def spread(registers: int) -> Callable[..., None]:
    """Make y[index[e], :] += value[e] b[:] for one row of b."""
    return _sparse(registers, False)
