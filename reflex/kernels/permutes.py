"""Bytes moved, looked up and made of bits by instructions of AVX-512 VBMI, BITALG and GFNI, in the code of a Vectors.

Only kernels that are for such processors (host/linear_permuted.py) may use it: others stop the compiler.
"""

from llvmlite import ir

from .intrinsics import constant, declare, i8, i32

KEPT = 3  # registers of a table that stay such


class Permutes:
    def __init__(self, v):
        self.v = v

    def in_memory(self, data):
        """Address of bytes that LLVM does not know: what it knows it keeps in registers, however many."""
        return self.v.hidden(self.v.b.bitcast(constant(self.v.b, data), i8.as_pointer()), again=True)

    def after(self, pointer, value):
        """The same pointer, of which LLVM knows nothing until it has the value."""
        kind = ir.FunctionType(pointer.type, [pointer.type, value.type])
        return self.v.b.asm(kind, "", "=r,0,v", [pointer, value], True)

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
        places = self.v.unknown(self.v.vector(kind, places))  # or LLVM would take it apart
        return self.v.b.call(function, [low, places, high])

    def octets(self, table, places, masks):
        """Bytes of a table of 128, 256 or more, for 64 lanes; masks: bits 8 and higher of places, whose lower ones are given."""
        masks = [self.v.b.bitcast(mask, ir.VectorType(ir.IntType(1), 64)) for mask in masks]
        if len(table) > 128:
            masks = [self.v.b.icmp_signed("<", places, self.v.const(places.type, 0)), *masks]
        return self._read("qi", table, places, masks)

    def words(self, table, places, masks):
        """Words of a table of 256 or more, for 32 lanes; masks: bits 8 and higher of places."""
        b, kind = self.v.b, places.type
        bit = lambda k: b.icmp_unsigned("!=", b.and_(places, self.v.const(kind, 1 << k)), self.v.const(kind, 0))  # noqa: E731
        return self._read("hi", table, places, [bit(6), bit(7), *masks])

    def _read(self, letters, table, places, masks):
        """Lanes of a table of pairs of registers. masks: bits of a place that say which pair, the lowest first. What lies in memory
        is read in the order in which it is put together: left alone, LLVM reads all of it first and has no registers left."""
        v, b, kind = self.v, self.v.b, places.type
        function = declare(b, f"llvm.x86.avx512.vpermi2var.{letters}.512", kind, [kind] * 3)
        size = kind.element.width // 8
        numbers = [int.from_bytes(table[k : k + size], "little") for k in range(0, len(table), size)]
        parts = [v.vector(kind, numbers[k : k + 64 // size]) for k in range(0, len(numbers), 64 // size)]
        kept = [*range(0, len(parts), 2), *range(1, len(parts), 2)][:KEPT]
        where = self.in_memory(table)

        def found(first, masks, where):
            if masks:
                low = found(first, masks[:-1], where)
                high = found(first + (1 << len(masks)), masks[:-1], self.after(where, low))
                return b.select(masks[-1], high, low)
            part = lambda k: parts[k] if k in kept else v.load(v.at(where, 64 * k), kind)  # noqa: E731
            return b.call(function, [part(first), places, part(first + 1)])

        return found(0, masks, where)

    def merged(self, mask, value, other):
        """Bytes whose bits are those of a vector where `mask` has ones, else of another. VPTERNLOG."""
        kind = ir.VectorType(i32, value.type.count // 4)
        function = declare(self.v.b, "llvm.x86.avx512.pternlog.d.512", kind, [kind] * 3 + [i32])
        values = [self.v.b.bitcast(x, kind) for x in (self.v.const(value.type, mask), value, other)]
        return self.v.b.bitcast(self.v.b.call(function, [*values, i32(0xCA)]), value.type)

    def bits(self, value, places):
        """A mask of bits of each 64 of a vector's, which `places` name for each byte. VPSHUFBITQMB."""
        kind, mask = value.type, ir.VectorType(ir.IntType(1), value.type.count)
        function = declare(self.v.b, f"llvm.x86.avx512.vpshufbitqmb.{8 * kind.count}", mask, [kind] * 2)
        return self.v.b.call(function, [value, self.v.vector(kind, places)])

    def first_bytes(self, pointer, count):
        """64 bytes of which no more than the first ones are read; the others are 0."""
        kind, mask = ir.VectorType(i8, 64), ir.VectorType(ir.IntType(1), 64)
        where = self.v.b.bitcast(pointer, kind.as_pointer())
        function = declare(self.v.b, "llvm.masked.load.v64i8.p0", kind, [where.type, i32, mask, kind])
        return self.v.b.call(function, [where, i32(1), self.v.lane_mask(64, (1 << count) - 1), self.v.const(kind, 0)])
