"""Bytes moved, looked up and made of bits by instructions of processors with AVX-512 VBMI and GFNI, in the code of a Vectors.

Only kernels that are for such processors (host/linear_permuted.py) may use it: others stop the compiler.
"""

from llvmlite import ir

from .intrinsics import declare, i8, i32, i64


class Permutes:
    def __init__(self, v):
        self.v = v

    def multishift(self, value, places):
        """For each byte eight bits of its own 64, from a place on."""
        kind = ir.VectorType(i8, len(places))
        name = f"llvm.x86.avx512.pmultishift.qb.{8 * len(places)}"
        function = declare(self.v.b, name, kind, [kind] * 2)
        return self.v.b.call(function, [self.v.vector(kind, [place % 64 for place in places]), self.v.b.bitcast(value, kind)])

    def permuted(self, table, places):
        """Byte places[i] of a vector as long, whatever higher bits a place has."""
        name = f"llvm.x86.avx512.permvar.qi.{8 * table.type.count}"
        return self.v.b.call(declare(self.v.b, name, table.type, [table.type] * 2), [table, places])

    def affine(self, value, rows, constant):
        """Every byte times a matrix of bits plus a constant, GF2P8AFFINEQB. rows: the bits that make bit 7, then bit 6 and so
        on, as bytes; eight for all or eight for each 64 bits."""
        kind = value.type
        name = f"llvm.x86.vgf2p8affineqb.{8 * kind.count}"
        function = declare(self.v.b, name, kind, [kind, kind, i8])
        return self.v.b.call(function, [value, self.v.vector(kind, rows * (kind.count // len(rows))), i8(constant)])

    def chosen(self, low, high, places):
        """Bytes of two vectors of 64 end to end."""
        kind = low.type
        function = declare(self.v.b, "llvm.x86.avx512.vpermi2var.qi.512", kind, [kind] * 3)
        return self.v.b.call(function, [low, self.v.vector(kind, places), high])

    def permuted_pair(self, table, places):
        """Bytes of a table of 128, for 32 or 64 lanes; the highest bit of a place does not count."""
        kind, count = ir.VectorType(i8, 64), places.type.count
        function = declare(self.v.b, "llvm.x86.avx512.vpermi2var.qi.512", kind, [kind] * 3)
        low, high = (self.v.vector(kind, table[k : k + 64]) for k in (0, 64))
        if count < 64:
            places = self.v.shuffle(places, self.v.const(places.type, 0), [min(k, count) for k in range(64)])
        return self.v.slice(self.v.b.call(function, [low, places, high]), 0, count)

    def looked_up(self, table, places):
        """Bytes of a table of 256, for 64 lanes."""
        kind = places.type
        function = declare(self.v.b, "llvm.x86.avx512.vpermi2var.qi.512", kind, [kind] * 3)
        parts = [self.v.vector(kind, table[k : k + 64]) for k in range(0, 256, 64)]
        low, high = (self.v.b.call(function, [parts[k], places, parts[k + 1]]) for k in (0, 2))
        return self.v.b.select(self.v.b.icmp_signed("<", places, self.v.const(kind, 0)), high, low)

    def extracted(self, value, where):
        """A mask of the 32 bits of an int64 that are set in `where`."""
        function = declare(self.v.b, "llvm.x86.bmi.pext.64", i64, [i64, i64])
        bits = self.v.b.trunc(self.v.b.call(function, [value, ir.Constant(i64, where)]), i32)
        return self.v.b.bitcast(bits, ir.VectorType(ir.IntType(1), 32))

    def first_bytes(self, pointer, count):
        """64 bytes of which no more than the first ones are read; the others are 0."""
        kind, mask = ir.VectorType(i8, 64), ir.VectorType(ir.IntType(1), 64)
        where = self.v.b.bitcast(pointer, kind.as_pointer())
        function = declare(self.v.b, "llvm.masked.load.v64i8.p0", kind, [where.type, i32, mask, kind])
        flags = ir.Constant(mask, [int(k < count) for k in range(64)])
        return self.v.b.call(function, [where, i32(1), flags, self.v.const(kind, 0)])
