"""MXFP4: the power of two in the largest size gives the scale.

ggml takes the whole part of log2f, whose rounding to single precision lifts sizes just below a power of two over it.
"""

from . import e2m1, search
from .packing import planes

IMPORTANCE = None
LOG_2 = 0.6931471805599453


def encoder(v, weighted):
    levels_of, largest_of, pack = e2m1.nearest(v, 32), search.largest_size(v, 32), planes(v, 17, 1, 16, 16, 4)
    exponent_of = whole_logarithm(v)

    @v.function
    def encode(x, w, out, room):
        largest = largest_of(x)
        code = v.select(largest > 0, (exponent_of(largest) + 125) & 255, 0)
        v.put_byte(out, 17, code)
        half = v.select(code < 2, v.ints(0x200000) << code, (code - 1) << 23)  # of 2 ** (code - 127), since sizes are doubled
        levels_of(x, room, v.of_bits(half))
        pack(room, out)

    return encode


def whole_logarithm(v):
    """Function (positive values) -> floor(log2f(value)) as ints."""
    from numpy import float32 as f

    log_2 = f(LOG_2)

    @v.function
    def logarithm(value):
        tiny = v.bits(value) < 0x800000  # below 2**-126: the mantissa as a whole number, exactly
        scaled = v.bits(v.select(tiny, v.floats(v.bits(value)), value))
        exponent = (scaled >> 23) - v.select(tiny, v.ints(127 + 149), v.ints(127))
        above = exponent + 1
        # Just below `above`, half a unit in the last place of the logarithm is power * 2**-24; a value that is short of the power
        # of two by the fraction k * 2**-24 is short by k * 2**-24 / log(2) in logarithm.
        size = v.select(above > 0, above - 1, -above)
        power = v.of_bits(v.bits(v.floats(size)) & 0x7F800000)
        missing = 0x1000000 - ((scaled & 0x7FFFFF) | 0x800000)
        return v.select(v.floats(missing) <= power * log_2, above, exponent)

    return logarithm
