"""Codes that are points of a table, in the turned order of a group (quant/lanes.py), in the code that a Vectors builds.

Two ways to read a table: a load per point, put into lanes under masks, or gather instructions. Kernels for processors that permute
bytes have their own (quant/combed.py).
"""

from llvmlite import ir

from .intrinsics import constant, declare, f64, i8, i16, i32, i64
from .vector import vector

LOADED, GATHERED, PERMUTED = "loaded", "gathered", "permuted"
GROUPS = 8  # of 32 weights
BYTES64 = vector(i8, 64)


class Points:
    """Reads points of one table of bytes, entries of `size` bytes end to end, for `points_of` (quant/lanes.py)."""

    def __init__(self, v, way):
        self.v, self.way = v, way

    def units(self, table, size, indices):
        """Function (unit, count) -> 32 x count bytes. indices: function (first, count) -> int64 values where points are loaded;
        where gathered, a vector of 16-bit lanes or, for points of four bytes, (64 bytes, their ninth bits or None)."""
        return {LOADED: self._loaded, GATHERED: self._gathered}[self.way](table, size, indices)

    def _loaded(self, table, size, indices):
        v, b, each, halves = self.v, self.v.b, 8 // size, {}
        base = b.bitcast(constant(b, table), ir.IntType(8 * size).as_pointer())

        def half(h):
            """Of every second unit from h on its points, since indices lie side by side where points do not."""
            if h not in halves:
                rows = [indices(4 * each * m, 4 * each) for m in range(4 * h, 4 * h + 4)]
                scalars = [[b.load(b.gep(base, [i]), align=size) for i in row] for row in rows]
                columns = [[row[each * k + e] for row in scalars for e in range(each)] for k in range(4)]
                halves[h] = [b.bitcast(self._merged(column), vector(i8, 32)) for column in columns]
            return halves[h]

        def unit(i, count):
            return half(i % 2)[i // 2] if count == 1 else v.join(half(0)[i // 2], half(1)[i // 2])

        return unit

    def _merged(self, scalars):
        """Scalars as lanes: broadcasts under a mask where there are masks, since other ways to set a lane take a shuffle each."""
        v, count = self.v, len(scalars)
        if not v.target.vnni:
            if scalars[0].type.width == 64:  # whose loads LLVM joins by one instruction for two only if they are numbers
                scalars = [v.b.load(v.b.bitcast(x.operands[0], f64.as_pointer()), align=8) for x in scalars]
            return v.gather(scalars)
        value = v.splat(scalars[0], count)
        for k in range(1, count):
            value = v.b.select(v.slice(v.lane_mask(8, 1 << k), 0, count), v.splat(scalars[k], count), value)
        return v.hidden(value)  # or LLVM joins halves first, and single lanes after all

    def _gathered(self, table, size, indices):
        """One instruction for 64 bytes."""
        v, b, count = self.v, self.v.b, 64 // size
        base = b.bitcast(constant(b, table), i8.as_pointer())
        kind, mask, ones = vector(ir.IntType(8 * size), count), vector(ir.IntType(1), count), (1 << count) - 1
        lanes, letters = {8: (vector(i64, 8), "qpq"), 4: (vector(i32, 16), "dpi")}[size]
        gather = declare(b, f"llvm.x86.avx512.mask.gather.{letters}.512", kind, [kind, i8.as_pointer(), lanes, mask, i32])

        def unit(i, count):
            if size == 8:
                wide = b.bitcast(indices, lanes)
                places = b.and_(b.lshr(wide, v.const(lanes, 16 * (i // 2))), v.const(lanes, 0xFFFF))
            else:
                places = self._places(i // 2, *indices)
            all_lanes = b.bitcast(ir.Constant(ir.IntType(mask.count), ones), mask)
            return b.bitcast(b.call(gather, [v.const(kind, 0), base, places, all_lanes, i32(size)]), BYTES64)

        return unit

    def _places(self, k, octets, high):
        """Indices of unit 2 k's points of four, of which `octets` are the lowest 8 bits and `high`, an int64 or None, the ninth."""
        v, b, kind = self.v, self.v.b, vector(i32, 16)
        taken = [place for m in range(GROUPS) for e in (0, 1) for place in (8 * m + 2 * k + e, 64, 64, 64)]
        places = b.bitcast(v.shuffle(octets, v.const(BYTES64, 0), taken), kind)
        if high is None:
            return places
        extract = declare(b, "llvm.x86.bmi.pext.64", i64, [i64, i64])
        bits = b.trunc(b.call(extract, [high, i64(0x0303030303030303 << 2 * k)]), i16)
        ninth = b.bitcast(bits, vector(ir.IntType(1), 16))
        return b.select(ninth, b.or_(places, v.const(kind, 256)), places)
