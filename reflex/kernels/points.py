"""Codes that are points of a table, in the turned order of a group (quant/lanes.py), in the code that a Vectors builds.

Three ways to read a table: a load per point, put into lanes under masks; gather instructions; or, for small tables of few levels,
registers that hold a word per point, a few bits for each of its coordinates.
"""

from llvmlite import ir

from .intrinsics import constant, declare, i8, i16, i32, i64
from .vector import vector

LOADED, GATHERED, PERMUTED = "loaded", "gathered", "permuted"
GROUPS = 8  # of 32 weights
BYTES64, WORDS32 = vector(i8, 64), vector(i16, 32)


def _affine(levels):
    """(8 bytes, byte): the matrix and the constant that make bytes of the numbers 0, 1, 2 in the lowest two bits of bytes."""
    start, second, third = levels
    columns = second ^ start, third ^ start
    return [sum((columns[j] >> bit & 1) << j for j in (0, 1)) for bit in range(7, -1, -1)], start


class Points:
    """Reads points of one table of bytes, entries of `size` bytes end to end, for `points_of` (quant/lanes.py)."""

    def __init__(self, v, way):
        self.v, self.way = v, way
        self.permutes = way == PERMUTED

    def planes(self, octets):
        """Of 64 bytes, eight for every 64 bits: bit 7 - k of byte j is bit j of byte k. GF2P8AFFINEQB, its matrix the bytes."""
        function = declare(self.v.b, "llvm.x86.vgf2p8affineqb.512", BYTES64, [BYTES64, BYTES64, i8])
        return self.v.b.call(function, [self.v.vector(BYTES64, [1 << j % 8 for j in range(64)]), octets, i8(0)])

    def units(self, table, size, indices):
        """Function (unit, count) -> 32 x count bytes. indices: function (first, count) -> int64 values where points are loaded;
        where gathered, a vector of 16-bit lanes or, for points of four bytes, (64 bytes, their ninth bits or None); where permuted,
        (registers of words, masks of their bits above the seventh)."""
        return {LOADED: self._loaded, GATHERED: self._gathered, PERMUTED: self._permuted}[self.way](table, size, indices)

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

    def _permuted(self, table, size, indices):
        """A word of a register holds a point, 2 or 4 bits for a coordinate; VPERMI2W reads 32 of 64 words, VPMULTISHIFTQB spreads
        four of them over 64 bytes and VPERMB makes coordinates of the lowest bits of those."""
        v, b, bits = self.v, self.v.b, 2 * 8 // size
        levels = sorted(set(table))
        digits = [sum(levels.index(table[p + j]) << bits * j for j in range(size)) for p in range(0, len(table), size)]
        parts = [v.vector(WORDS32, digits[k : k + 32]) for k in range(0, len(digits), 32)]
        # every second part stays in memory: with all of them LLVM has no registers left, and moves constants about
        packed = b"".join(d.to_bytes(2, "little") for d in digits)
        rest = v.hidden(b.bitcast(constant(b, packed), i8.as_pointer()), again=True)
        parts[1::2] = [v.load(v.at(rest, 64 * k), WORDS32) for k in range(1, len(parts), 2)]
        found = [self._chosen(parts, words, masks) for words, masks in zip(*indices, strict=True)]
        level = _affine(levels) if bits == 2 else v.vector(BYTES64, [levels[k % 8] for k in range(64)])

        def unit(i, count):
            k, each = i // 2, 4 // len(found)
            start = 64 // each * (k % each)
            spread = v.permutes.multishift(found[k // each], [start + bits * j for j in range(8)] * 8)
            return v.permutes.affine(spread, *level) if bits == 2 else v.permutes.permuted(level, spread)

        return unit

    def _chosen(self, parts, words, masks):
        """Words of a table of registers; `masks` say bits 8 and higher of the indices, whose lower bits `words` have."""
        v, b, bit = self.v, self.v.b, 6
        name = "llvm.x86.avx512.vpermi2var.hi.512"
        pair = declare(b, name, WORDS32, [WORDS32] * 3)
        found = [b.call(pair, [parts[k], words, parts[k + 1]]) for k in range(0, len(parts), 2)]
        while len(found) > 1:
            if bit - 8 in range(len(masks)):
                mask = masks[bit - 8]
            else:
                mask = b.icmp_unsigned("!=", b.and_(words, v.const(WORDS32, 1 << bit)), v.const(WORDS32, 0))
            found = [b.select(mask, high, low) for low, high in zip(found[::2], found[1::2], strict=True)]
            bit += 1
        return found[0]
