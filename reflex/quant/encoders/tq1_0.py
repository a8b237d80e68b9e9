"""TQ1_0: as TQ2_0, five levels to a byte: the number with these digits to base 3, as the upper byte of a fraction."""

from .tq2_0 import trits

IMPORTANCE = None


def encoder(v, weighted):
    from numpy import float32 as f

    levels_of, half, whole = trits(v, 52, 54), f(0.5), f(243)

    @v.function
    def digits(levels, first, apart, count):
        number = v.load_ints(levels, first)
        for k in range(1, count):
            number = number * 3 + v.load_ints(levels, first + apart * k)
        return number

    @v.function
    def byte(number):
        """The number of 243ths as 256ths, rounded up."""
        return v.ints((v.floats(number * 256 + 242) + half) / whole)

    @v.function
    def encode(x, w, out, room):
        levels_of(x, room, out)
        for i in range(32):
            v.put_byte(out + i, 54, byte(digits(room, i, 32, 5)))
        for i in range(16):
            v.put_byte(out + 32 + i, 54, byte(digits(room, 160 + i, 16, 5)))
        for i in range(4):
            v.put_byte(out + 48 + i, 54, byte(digits(room, 240 + i, 4, 4) * 3))

    return encode
