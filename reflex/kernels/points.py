"""Codes that are points of a table, 64 bytes or fewer at a time, in the code that a Vectors builds."""

from llvmlite import ir

from .intrinsics import constant, declare, i8, i32, i64
from .vector import vector


class Points:
    """Reads points of one table of bytes, entries of `size` bytes end to end; an index is below their number."""

    def __init__(self, v, gathers):
        self.v = v
        self.gathers = gathers  # whether with gather instructions

    def at(self, table, size, indices):
        """The points of int64 values or, where this gathers, of unsigned lanes, end to end."""
        return self._gathered(table, size, indices) if self.gathers else self._loaded(table, size, indices)

    def _loaded(self, table, size, indices):
        v, kind, count = self.v, ir.IntType(8 * size), size * len(indices)
        base = v.b.bitcast(constant(v.b, table), kind.as_pointer())
        found = [v.b.load(v.b.gep(base, [i]), align=size) for i in indices]
        points = self._merged(found) if count == 64 else v.gather(found)
        return v.b.bitcast(points, vector(i8, count))

    def _gathered(self, table, size, indices):
        """One instruction for 64 bytes."""
        v, count = self.v, indices.type.count
        kind, mask, lanes = vector(ir.IntType(8 * size), count), vector(ir.IntType(1), count), vector(i32, count)
        name = {8: "llvm.x86.avx512.mask.gather.dpq.512", 4: "llvm.x86.avx512.mask.gather.dpi.512"}[size]
        gather = declare(v.b, name, kind, [kind, i8.as_pointer(), lanes, mask, i32])
        base = v.b.bitcast(constant(v.b, table), i8.as_pointer())
        found = v.b.call(gather, [v.const(kind, 0), base, v.ints(indices), v.const(mask, 1), i32(size)])
        return v.b.bitcast(found, vector(i8, 64))

    def _merged(self, scalars):
        """Scalars as lanes of 512 bits: broadcasts under a mask, since taking the vector from 128-bit pieces is up to one unit."""
        v, count, each = self.v, len(scalars), len(scalars) // 4
        columns = [v.splat(scalar, count) for scalar in scalars[:each]]
        for part in range(1, 4):
            mask = v.lane_mask(count, ((1 << each) - 1) << each * part)
            columns = [v.b.select(mask, v.splat(scalars[each * part + k], count), old) for k, old in enumerate(columns)]
        if each == 4:
            pairs = [4 * (k // 4) + k % 4 // 2 + k % 2 * count for k in range(count)]
            columns = [v.b.bitcast(v.shuffle(*columns[k : k + 2], pairs), vector(i64, 8)) for k in (0, 2)]
        return v.shuffle(*columns, [2 * (k // 2) + k % 2 * 8 for k in range(8)])
