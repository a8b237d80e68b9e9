"""Python twins of the arithmetic in reflex/kernels/cuda/ptx.py, and of Numba's number types, which wrap."""

import math
import struct
from fractions import Fraction

import numpy


def _integer(name, bits, signed):
    mask, half = (1 << bits) - 1, 1 << (bits - 1)

    def wrapped(value):
        return ((int(value) + half) & mask) - half

    def positive(value):
        return int(value) & mask

    cast = wrapped if signed else positive
    cast.dtype = numpy.dtype(name)
    return cast


def _float(name):
    def cast(value):
        return cast.dtype.type(value)

    cast.dtype = numpy.dtype(name)
    return cast


CASTS = {f"{sign}int{bits}": _integer(f"{sign}int{bits}", bits, not sign) for sign in ("", "u") for bits in (8, 16, 32, 64)}
CASTS |= {name: _float(name) for name in ("float32", "float64")}
int32, uint32, float32, float64 = CASTS["int32"], CASTS["uint32"], numpy.float32, numpy.float64


def bits2f(word):
    return numpy.uint32(word & 0xFFFFFFFF).view(float32)


def f2bits(value):
    return int(float32(value).view(numpy.uint32))


HALVES = list(numpy.arange(65536, dtype=numpy.uint16).view(numpy.float16).astype(float32))


def half(bits):
    return HALVES[bits & 0xFFFF]


def half_bits(value):
    return int(numpy.float16(value).view(numpy.uint16))  # too large gives infinity


def h2f_lo(word):
    return half(word)


def h2f_hi(word):
    return half(word >> 16)


def f2h(value):
    return half_bits(value)


def f2h2(low, high):
    return half_bits(low) | half_bits(high) << 16


def _of_halves(operation, *words):
    low = half_bits(operation(*(float(half(w)) for w in words)))
    return low | half_bits(operation(*(float(half(w >> 16)) for w in words))) << 16


def fma2(a, b, c):
    return _of_halves(lambda x, y, z: x * y + z, a, b, c)


def mul2(a, b):
    return _of_halves(lambda x, y: x * y, a, b)


def add2(a, b):
    return _of_halves(lambda x, y: x + y, a, b)


def sub2(a, b):
    return _of_halves(lambda x, y: x - y, a, b)


def _approximate(function):
    def approximation(x):
        with numpy.errstate(all="ignore"):
            return float32(function(float32(x)))

    return approximation


ex2, lg2, tanh = _approximate(numpy.exp2), _approximate(numpy.log2), _approximate(numpy.tanh)
rsqrt, rcp = _approximate(lambda x: float32(1) / numpy.sqrt(x)), _approximate(lambda x: float32(1) / x)


def fmaf(a, b, c):
    return float32(numpy.longdouble(a) * numpy.longdouble(b) + numpy.longdouble(c))


def fmad(a, b, c):
    if not all(map(math.isfinite, (a, b, c))):
        return float64(a) * b + c
    return float64(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))


def f2i_rn(x):
    return int(numpy.rint(x))


d2i_rn = f2i_rn
i2f = u2f = d2f = float32


def f2d(x):
    return numpy.float64(x)


def _bytes_of(word, code):
    return struct.unpack(code, struct.pack("<I", word & 0xFFFFFFFF))


def dp4a(a, b, c):
    return int32(sum(x * y for x, y in zip(_bytes_of(a, "4b"), _bytes_of(b, "4b"), strict=True)) + c)


def dp4a_us(a, b, c):
    return int32(sum(x * y for x, y in zip(_bytes_of(a, "4B"), _bytes_of(b, "4b"), strict=True)) + c)


def dp2a(a, b, c):
    return int32(sum(x * y for x, y in zip(_bytes_of(a, "<2H"), _bytes_of(b, "4B")[:2], strict=True)) + c)


def prmt(a, b, selector):
    source, out = struct.pack("<II", a & 0xFFFFFFFF, b & 0xFFFFFFFF), 0
    for k in range(4):
        s = selector >> 4 * k & 15
        out |= (source[s & 7] if s < 8 else 255 * (source[s & 7] >> 7)) << 8 * k
    return out


def lop3(a, b, c, table):
    out = 0
    for k in range(8):
        if table >> k & 1:
            out |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return out & 0xFFFFFFFF


def shf_r(low, high, count):
    return ((high & 0xFFFFFFFF) << 32 | low & 0xFFFFFFFF) >> (count & 31) & 0xFFFFFFFF


def popc(a):
    return (a & 0xFFFFFFFF).bit_count()


def clz(a):
    return 32 - (a & 0xFFFFFFFF).bit_length()


def bfe(value, position, length):
    return (value & 0xFFFFFFFF) >> position & (1 << length) - 1


def quotient(a, b):
    return (a & 0xFFFFFFFF) // (b & 0xFFFFFFFF)


def divd(a, b):
    return float64(a) / float64(b)


def mulhi(a, b):
    return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF) >> 32


def opaque(value):
    return value
