"""NVFP4: four groups of 16, a scale of four bits of exponent and three of mantissa that makes the largest size 6."""

from . import e2m1, search
from .packing import planes

IMPORTANCE = None


def encoder(v, weighted):
    from numpy import float32 as f

    levels_of, largest_of, pack, six = e2m1.nearest(v, 16), search.largest_size(v, 16), planes(v, 36, 4, 32, 8, 4), f(6)
    code_of, value_of = to_scale(v), of_scale(v)

    @v.function
    def encode(x, w, out, room):
        for j in range(4):
            code = code_of(largest_of(v.place(x, 16 * j)) / six)
            v.put_byte(out + j, 36, code)
            levels_of(v.place(x, 16 * j), v.place(room, 16 * j), value_of(code))
        pack(room, out)

    return encode


def to_scale(v):
    """Function (values from 0) -> codes: half of a last place rounds up; from 256 on all become 448, as ggml has it."""
    from numpy import float32 as f

    top, units, half = f(448), f(512), f(0.5)

    @v.function
    def code_of(value):
        value = v.least(value, v.floats(top))
        small = v.least(v.ints(7), v.ints(value * units + half))
        exponent = (v.bits(value) >> 23) - 120
        code = ((v.bits(value) >> 19) + 1 >> 1) - (120 << 3)  # a carry of the mantissa goes into the exponent
        return v.select(exponent <= 0, small, v.select(code >= 15 << 3, 0x7E, code))

    return code_of


def of_scale(v):
    """Function (codes) -> half of what they stand for, since sizes are doubled."""
    from numpy import float32 as f

    unit = f(2.0**-10)

    @v.function
    def value_of(code):
        normal = v.of_bits((code + (119 << 3)) << 20)
        return v.select(code < 8, v.floats(code) * unit, normal)

    return value_of
