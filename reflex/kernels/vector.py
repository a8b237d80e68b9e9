"""Eight-lane vector code for host kernels, written as LLVM IR for the target of this build process.

`Vectors` wraps one IR builder. Its few verbs (load, dot of unsigned by signed bytes, fused multiply-add, lane splat)
are where instruction sets differ; kernels and block formats are written once in terms of them. Sums are always taken in
the order written here, never reassociated, so that a token's result does not depend on which other tokens it is
computed with.
"""

from functools import reduce

from llvmlite import ir
from numba.core import cgutils

from .intrinsics import declare, f16, f32, half_to_single, has_halves, i8, i16, i32, i64
from .permutes import Permutes
from .target import current

LANES = 8
UNDEF = ir.Undefined


def vector(kind, lanes=LANES):
    return ir.VectorType(kind, lanes)


V8F, V8I = vector(f32), vector(i32)
V16F = vector(f32, 16)
V32B, V16B = vector(i8, 32), vector(i8, 16)


class Vectors:
    int8, int16, int32, int64 = i8, i16, i32, i64
    float1 = f32
    float8 = V8F
    ints2, ints4, ints8, ints16 = (vector(i32, n) for n in (2, 4, 8, 16))
    words4, words8, words32 = (vector(i16, n) for n in (4, 8, 32))
    bytes8 = vector(i8)
    bytes16 = V16B
    bytes32 = V32B
    bytes64 = vector(i8, 64)
    longs8 = vector(i64)

    def __init__(self, builder):
        self.b = builder
        self.target = current()
        self.constants = {}
        self.permutes = Permutes(self)  # only in kernels for processors that do

    # ---- constants, addresses, memory ----
    def const(self, kind, value):
        if isinstance(kind, ir.VectorType):
            return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)
        return ir.Constant(kind, value)

    def vector(self, kind, values):
        """A constant of that many lanes."""
        return ir.Constant(kind, [ir.Constant(kind.element, value) for value in values])

    def bytes(self, count):
        return vector(i8, count)

    def bits(self, count):
        return ir.IntType(count)

    def pointer(self, address):
        """An i8* from an int64 address."""
        return self.b.inttoptr(address, i8.as_pointer())

    def at(self, pointer, offset):
        """pointer + offset bytes; offset is a Python int or an int64 value."""
        return self.b.gep(pointer, [ir.Constant(i64, offset) if isinstance(offset, int) else offset]) if offset != 0 else pointer

    def load(self, pointer, kind):
        return self.b.load(self.b.bitcast(pointer, kind.as_pointer()), align=1)

    def prefetch(self, pointer):
        """Ask for the cache line at an address, which may be any."""
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        known = self.b.module.globals.get("llvm.prefetch.p0") or ir.Function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(known, [pointer, i32(0), i32(3), i32(1)])

    def store(self, value, pointer):
        self.b.store(value, self.b.bitcast(pointer, value.type.as_pointer()), align=1)

    def half(self, pointer):
        """A half at `pointer` as float32."""
        return half_to_single(self.b, self.load(pointer, i16))

    def half_of(self, bits):
        """The float32 of a half's 16 bits."""
        return half_to_single(self.b, bits)

    def half_splat(self, pointer, lanes):
        """A half at `pointer` as that many equal float32 lanes."""
        if not has_halves():
            return self.splat(self.half(pointer), lanes)
        return self.b.fpext(self.b.bitcast(self.splat(self.load(pointer, i16), lanes), vector(f16, lanes)), vector(f32, lanes))

    def half_runs(self, pointers, lanes):
        """A half at each of one or two pointers as that many equal float32 lanes, end to end."""
        if len(pointers) == 1 or not self.target.vnni:
            return self.joined([self.half_splat(p, lanes) for p in pointers])
        low, high = (self.splat(self.load(p, i16), 2 * lanes) for p in pointers)
        mask = self.lane_mask(2 * lanes, (1 << lanes) - 1 << lanes)
        return self.b.fpext(self.b.bitcast(self.b.select(mask, high, low), vector(f16, 2 * lanes)), vector(f32, 2 * lanes))

    def halves(self, pointer, stride, count=LANES):
        """`count` halves `stride` bytes apart, as float32 lanes."""
        if not has_halves():
            return self.gather([self.half(self.at(pointer, i * stride)) for i in range(count)])
        halves = self.strided(pointer, stride, count, f16) if stride > 2 else self.load(pointer, vector(f16, count))
        return self.b.fpext(halves, vector(f32, count))

    def half_pairs(self, pointer, stride, count=LANES):
        """`count` times two neighbouring halves, `stride` bytes apart: (first ones, second ones) as float32 lanes."""
        if not has_halves():
            return self.halves(pointer, stride, count), self.halves(self.at(pointer, 2), stride, count)
        pairs = self.strided(pointer, stride, count, i32)
        second = self.b.lshr(pairs, self.const(pairs.type, 16))
        words, halves, floats = (vector(kind, count) for kind in (i16, f16, f32))
        return tuple(self.b.fpext(self.b.bitcast(self.b.trunc(x, words), halves), floats) for x in (pairs, second))

    def strided(self, pointer, stride, count, kind):
        """`count` values of a kind, `stride` bytes apart, as lanes."""
        return self.gather([self.load(self.at(pointer, i * stride), kind) for i in range(count)])

    def scalars(self, pointer, kind, count):
        """`count` neighbouring unsigned integers as int64 values."""
        size = kind.width // 8
        return [self.b.zext(self.load(self.at(pointer, size * i), kind), i64) for i in range(count)]

    def hidden(self, value, again=False):
        """The same value, of which LLVM knows nothing; again: not even that it is the same in every turn of a loop."""
        kind = ir.FunctionType(value.type, [value.type])
        register = "v" if isinstance(value.type, ir.VectorType) else "r"
        return self.b.asm(kind, "", f"={register},0", [value], again)

    def bits_of(self, value):
        """Function (first, count) -> 32 x count lanes of a mask: bits 32 x first and following of 32 bytes."""
        if self.target.vnni:  # what is to be a mask is cheaper read from memory than taken out, as LLVM would if it saw its origin
            where = self.space(32)
            self.store(value, where)
            where = self.hidden(where)
            flags = lambda k, n: self.load(self.at(where, 4 * k), ir.IntType(32 * n))  # noqa: E731
            return lambda first, count: self.b.bitcast(flags(first, count), vector(ir.IntType(1), 32 * count))

        def part(first, count):
            spread = self.pick(value, [4 * first + k // 8 for k in range(32 * count)])
            bit = self.vector(spread.type, [1 << k % 8 for k in range(32 * count)])
            return self.b.icmp_unsigned("==", self.b.and_(spread, bit), bit)

        return part

    def negated(self, value, mask):
        """Signed bytes, those under a mask negated."""
        if self.target.vnni or self.target.machine != "x86_64":
            return self.b.select(mask, self.b.sub(self.const(value.type, 0), value), value)
        return self._sign(value, self.b.or_(self.b.sext(mask, value.type), self.const(value.type, 1)))

    def lane_mask(self, count, bits):
        """Constant lanes of a mask that LLVM does not know, or it would take the broadcasts for shuffles."""
        return self.b.bitcast(self.unknown(ir.Constant(ir.IntType(count), bits)), vector(ir.IntType(1), count))

    def unknown(self, constant):
        """A constant that LLVM does not know, made once."""
        if str(constant) not in self.constants:
            with self.b.goto_entry_block():
                self.constants[str(constant)] = self.hidden(constant)
        return self.constants[str(constant)]

    def bfloat(self, pointer):
        """A bfloat16 at `pointer` as float32."""
        bits = self.b.zext(self.load(pointer, i16), i32)
        return self.b.bitcast(self.b.shl(bits, ir.Constant(i32, 16)), f32)

    def bfloats(self, pointer):
        """Eight consecutive bfloat16 as float32 lanes."""
        bits = self.b.zext(self.load(pointer, vector(i16)), V8I)
        return self.b.bitcast(self.b.shl(bits, self.const(V8I, 16)), V8F)

    # ---- lanes ----
    def shuffle(self, a, b, lanes):
        return self.b.shuffle_vector(a, b, ir.Constant(vector(i32, len(lanes)), lanes))

    def splat(self, scalar, lanes=LANES):
        kind = vector(scalar.type, lanes)
        one = self.b.insert_element(ir.Constant(kind, UNDEF), scalar, ir.Constant(i32, 0))
        return self.shuffle(one, ir.Constant(kind, UNDEF), [0] * lanes)

    def twice(self, value):
        """Every lane followed by a copy of itself."""
        return self.pick(value, [i for i in range(value.type.count) for _ in (0, 1)])

    def fours(self, value, first, count):
        """`count` lanes of `value` from lane `first` on, each four times."""
        return self.pick(value, [first + i for i in range(count) for _ in range(4)])

    def fit(self, value, lanes):
        """A vector with the same sum in `lanes` lanes: zeros behind a narrower one, the halves of a wider one added."""
        count = value.type.count
        if count > lanes:
            return self.fit(self.b.fadd(self.slice(value, 0, count // 2), self.slice(value, count // 2, count // 2)), lanes)
        if count < lanes:
            return self.shuffle(value, self.const(value.type, 0.0), [*range(count), *([count] * (lanes - count))])
        return value

    def interleaved(self, first, second):
        """Lanes of two vectors in turn."""
        count = first.type.count
        return self.shuffle(first, second, [k // 2 + k % 2 * count for k in range(2 * count)])

    def join(self, low, high):
        """Two vectors end to end."""
        return self.shuffle(low, high, list(range(low.type.count + high.type.count)))

    def gather(self, scalars):
        """Scalars as the lanes of one vector."""
        value = ir.Constant(vector(scalars[0].type, len(scalars)), UNDEF)
        for i, scalar in enumerate(scalars):
            value = self.b.insert_element(value, scalar, ir.Constant(i32, i))
        return value

    def runs(self, scalars, starts, count):
        """Lanes that are the scalar whose start, in ascending order, is the last not behind them."""
        value = self.splat(scalars[0], count)
        for scalar, start in zip(scalars[1:], starts[1:], strict=True):
            behind = ir.Constant(vector(ir.IntType(1), count), [int(k >= start) for k in range(count)])
            value = self.b.select(behind, self.splat(scalar, count), value)
        return value

    def pair(self, low, high):
        """Two 32-bit integers as a vector of two."""
        value = self.b.insert_element(ir.Constant(vector(i32, 2), UNDEF), low, ir.Constant(i32, 0))
        return self.b.insert_element(value, high, ir.Constant(i32, 1))

    def fields(self, value, starts, bits):
        """Bits [start, start + bits) for each start: of one integer, or of the lane of that place."""
        if not isinstance(value.type, ir.VectorType):
            value = self.splat(value, len(starts))
        kind = value.type
        moved = self.b.lshr(value, self.vector(kind, starts))
        return self.b.and_(moved, self.const(kind, (1 << bits) - 1))

    def pick(self, value, lanes):
        return self.shuffle(value, ir.Constant(value.type, UNDEF), list(lanes))

    def joined(self, parts):
        """Vectors of one kind, a power of two of them, end to end."""
        half = len(parts) // 2
        return self.join(self.joined(parts[:half]), self.joined(parts[half:])) if half else parts[0]

    def slice(self, value, start, count):
        return self.shuffle(value, ir.Constant(value.type, UNDEF), list(range(start, start + count)))

    # ---- arithmetic ----
    @property
    def fuses(self):
        """Whether there is an instruction for a x b + c; without, llvm.fma would call libm."""
        return self.target.machine != "x86_64" or self.target.avx2

    def fma(self, a, b, c):
        if not self.fuses:
            return self.b.fadd(self.b.fmul(a, b), c)
        kind = a.type
        name = f"llvm.fma.v{kind.count}f32" if isinstance(kind, ir.VectorType) else "llvm.fma.f32"
        return self.b.call(declare(self.b, name, kind, [kind] * 3), [a, b, c])

    def unary(self, operation, value):
        """llvm.<operation> lane by lane: fabs, rint, sqrt."""
        kind = value.type
        return self.b.call(declare(self.b, f"llvm.{operation}.v{kind.count}f32", kind, [kind]), [value])

    def maximum(self, a, b):
        return self.b.select(self.b.fcmp_ordered(">", a, b), a, b)

    def floats(self, value):
        """Unsigned integer lanes to float32."""
        return self.b.uitofp(value, vector(f32, value.type.count))

    def ints(self, value):
        """Unsigned integer lanes to 32 bits."""
        return self.b.zext(value, vector(i32, value.type.count))

    def words(self, value):
        """Unsigned integer lanes to 16 bits."""
        return self.b.zext(value, vector(i16, value.type.count))

    def signed_floats(self, value):
        return self.b.sitofp(value, vector(f32, value.type.count))

    def fold(self, value, operation):
        """Combine eight lanes pairwise, always in the order (0 4) (1 5) (2 6) (3 7), then halves again."""
        width = value.type.count
        while width > 1:
            width //= 2
            value = operation(self.slice(value, 0, width), self.slice(value, width, width))
        return self.b.extract_element(value, ir.Constant(i32, 0))

    def sum(self, value):
        return self.fold(value, self.b.fadd)

    def sum_int(self, value):
        return self.fold(value, self.b.add)

    # ---- bytes ----
    def lookup(self, table, value):
        """Byte value[i] of a table of 16, for each lane."""
        if self.target.machine != "x86_64":
            return self._chosen(table, value)
        size, widest = value.type.count, 32 * self.subs if self.target.avx2 else 16
        if size > widest:
            return self.joined([self.lookup(table, self.slice(value, o, widest)) for o in range(0, size, widest)])
        name = {16: "ssse3.pshuf.b.128", 32: "avx2.pshuf.b", 64: "avx512.pshuf.b.512"}[size]
        function = declare(self.b, f"llvm.x86.{name}", value.type, [value.type] * 2)
        return self.b.call(function, [self.vector(value.type, [table[i % 16] for i in range(size)]), value])

    def float_levels(self, table, places):
        """Number of a table of 16 that the lowest four bits of each of 16 lanes say, where registers have 512 bits."""
        kind = vector(f32, 16)
        function = declare(self.b, "llvm.x86.avx512.permvar.sf.512", kind, [kind, places.type])
        return self.b.call(function, [self.vector(kind, table), places])

    def _chosen(self, table, value):
        """The same bit by bit, since an instruction of another machine than the compiler's stops Numba."""
        entries = [self.const(value.type, entry) for entry in table]
        for bit in range(4):
            clear = self.b.icmp_unsigned("==", self.b.and_(value, self.const(value.type, 1 << bit)), self.const(value.type, 0))
            entries = [self.b.select(clear, low, high) for low, high in zip(entries[::2], entries[1::2], strict=True)]
        return entries[0]

    def flags(self, bits, kind, value):
        """Lanes of a kind: `value` where the lane's bit of an integer is set, else 0."""
        return self.masked(self.b.bitcast(bits, vector(ir.IntType(1), kind.count)), kind.element, value)

    def masked(self, mask, element, value):
        """`value` where a lane of the mask is set, else 0."""
        kind = vector(element, mask.type.count)
        return self.b.select(mask, self.const(kind, value), self.const(kind, 0))

    def words_in(self, value):
        """The type of a vector's bytes as 16-bit lanes."""
        return vector(i16, value.type.count * value.type.element.width // 16)

    def high_product(self, value, factor):
        """The upper half of the products of unsigned 16-bit lanes with a number."""
        wide = vector(i32, value.type.count)
        product = self.b.mul(self.b.zext(value, wide), self.const(wide, factor))
        return self.b.trunc(self.b.lshr(product, self.const(wide, 16)), value.type)

    def low_nibbles(self, value):
        return self.b.and_(value, self.const(value.type, 15))

    def high_nibbles(self, value):
        return self.b.lshr(value, self.const(value.type, 4))

    def nibbles(self, pointers):
        """From 16 bytes at each pointer 32: the low halves of the bytes, then the high halves."""
        loads = [self.load(p, V16B) for p in pointers]
        return self.nibble_planes(loads[0] if len(loads) == 1 else self.join(*loads), 0, 2, 16)

    def nibble_planes(self, value, first, count, width=32):
        """Of each `width` bytes of value: `count` planes from `first` on (0 the low halves, 1 the high halves)."""
        if count == 1:
            return self.high_nibbles(value) if first else self.low_nibbles(value)
        return self.bit_planes(value, [0, 4], 4, 0, width)

    def bit_planes(self, value, starts, bits, to, width=32):
        """For each `width` bytes of value and each start: its bits [start, start + bits) of every byte, moved to bit `to`."""
        runs = [range(k, k + width) for k in range(0, value.type.count, width)]
        spread = self.pick(value, [i for run in runs for _ in starts for i in run])
        words = vector(i16, spread.type.count // 2)
        moved = self.b.bitcast(spread, words)
        for operation, sign in ((self.b.shl, 1), (self.b.lshr, -1)):
            distances = [max(0, sign * (to - start)) for _ in runs for start in starts for _ in range(width // 2)]
            if any(distances):
                moved = operation(moved, ir.Constant(words, [ir.Constant(i16, d) for d in distances]))
        return self.b.and_(self.b.bitcast(moved, spread.type), self.const(spread.type, ((1 << bits) - 1) << to))

    def bit_bytes(self, pointers, value):
        """Of the 32 bits at each pointer 32 bytes: `value` where bit i is set, else 0."""
        count = 32 * len(pointers)
        bits = self.load(pointers[0], i32)
        if len(pointers) == 2:
            high = self.b.shl(self.b.zext(self.load(pointers[1], i32), i64), ir.Constant(i64, 32))
            bits = self.b.or_(self.b.zext(bits, i64), high)
        return self.flags(bits, vector(i8, count), value)

    @property
    def subs(self):
        """Sub-blocks of 32 codes that one byte vector holds: two with 512-bit registers."""
        return 2 if self.target.vnni else 1

    def dot_bytes(self, *pairs, into=None):
        """Unsigned by signed bytes: int32 sums of four neighbours of all pairs of vectors, added to `into`. What two neighbours of
        all pairs add up to must fit 16 bits."""
        b, count = self.b, pairs[0][0].type.count
        if self.target.vnni:
            ints, kind = vector(i32, count // 4), vector(i8, count)
            function = declare(b, f"llvm.x86.avx512.vpdpbusd.{8 * count}", ints, [ints, kind, kind])
            for u, s in pairs:
                into = b.call(function, [into or self.const(ints, 0), u, s])
            return into
        if self.target.avx2:
            total = self._madd(pairs, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", 32)
        elif self.target.machine == "x86_64":
            names = "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd", 16
            halves = [[[self.slice(x, at, 16) for x in pair] for pair in pairs] for at in (0, 16)]
            total = self.join(*(self._madd(half, *names) for half in halves))
        else:
            words = vector(i16, 32)
            total = self._widened([b.mul(b.zext(u, words), b.sext(s, words)) for u, s in pairs])
        return b.add(into, total) if into is not None else total

    def _madd(self, pairs, bytes_to_words, words_to_ints, count):
        kind, words, ints = vector(i8, count), vector(i16, count // 2), vector(i32, count // 4)
        products = (self.b.call(declare(self.b, bytes_to_words, words, [kind, kind]), pair) for pair in pairs)
        total = reduce(self.b.add, products)
        return self.b.call(declare(self.b, words_to_ints, ints, [words, words]), [total, self.const(words, 1)])

    def _widened(self, products):
        """The same sums of products of 16 bits with plain arithmetic, for targets without a byte dot product."""
        b, half = self.b, self.const(vector(i32, 16), 16)
        ints = [b.bitcast(product, half.type) for product in products]  # two in each
        total = reduce(b.add, [part for x in ints for part in (b.ashr(b.shl(x, half), half), b.ashr(x, half))])
        return b.add(self.pick(total, range(0, 16, 2)), self.pick(total, range(1, 16, 2)))

    @property
    def biased(self):
        """Whether signed codes are dotted as code + 128 (their minimum then carries -128 x scale)."""
        return self.target.vnni

    def dot_signed(self, w, x):
        """32 signed by 32 signed bytes, for targets that are not `biased`."""
        b = self.b
        if self.target.machine != "x86_64":
            return self._widened([b.mul(b.sext(w, vector(i16, 32)), b.sext(x, vector(i16, 32)))])
        return self.dot_bytes((self._sign(w, w), self._sign(x, w)))

    def _sign(self, a, by):
        """a negated where `by` is negative, zeroed where it is zero."""
        if self.target.avx2:
            return self.b.call(declare(self.b, "llvm.x86.avx2.psign.b", V32B, [V32B, V32B]), [a, by])
        f = declare(self.b, "llvm.x86.ssse3.psign.b.128", V16B, [V16B, V16B])
        return self.join(*(self.b.call(f, [self.slice(a, o, 16), self.slice(by, o, 16)]) for o in (0, 16)))

    # ---- exponential ----
    def exp(self, x):
        """e^x of float32 lanes to 2 units in the last place, 0 below -87.3 (Cephes expf coefficients)."""
        b, lanes = self.b, x.type.count
        c = lambda value: self.const(vector(f32, lanes), value)  # noqa: E731
        ints = vector(i32, lanes)
        small = b.fcmp_ordered("<", x, c(-87.3))
        x = self.maximum(c(-87.3), b.select(b.fcmp_ordered("<", x, c(88.3)), x, c(88.3)))
        n = self.unary("rint", b.fmul(x, c(1.4426950408889634)))
        r = self.fma(n, c(-0.693359375), x)
        r = self.fma(n, c(2.12194440e-4), r)
        p = c(1.9875691500e-4)
        for k in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            p = self.fma(p, r, c(k))
        y = b.fadd(self.fma(p, b.fmul(r, r), r), c(1.0))
        power = b.bitcast(b.shl(b.add(b.fptosi(n, ints), self.const(ints, 127)), self.const(ints, 23)), x.type)
        return b.select(small, c(0.0), b.fmul(y, power))

    def sigmoid(self, x):
        one = self.const(x.type, 1.0)
        return self.b.fdiv(one, self.b.fadd(one, self.exp(self.b.fneg(x))))

    def tanh(self, x):
        """1 - 2 / (e^2x + 1)."""
        b, c = self.b, lambda value: self.const(x.type, value)
        return b.fsub(c(1.0), b.fdiv(c(2.0), b.fadd(self.exp(b.fadd(x, x)), c(1.0))))

    # ---- loops ----
    def loop(self, count):
        """`with v.loop(n) as i:` repeats for int64 i in [0, n)."""
        return _Loop(self.b, count)

    def space(self, size):
        """`size` bytes of the stack, at a multiple of 64."""
        with self.b.goto_entry_block():
            where = self.b.alloca(ir.ArrayType(i8, size))
        where.align = 64
        return self.b.bitcast(where, i8.as_pointer())

    def cell(self, value):
        """A mutable local: LLVM promotes it to a register."""
        where = cgutils.alloca_once(self.b, value.type)
        self.b.store(value, where)
        return where


class _Loop:
    def __init__(self, builder, count):
        self.manager = cgutils.for_range(builder, count, intp=i64)

    def __enter__(self):
        return self.manager.__enter__().index

    def __exit__(self, *error):
        return self.manager.__exit__(*error)
