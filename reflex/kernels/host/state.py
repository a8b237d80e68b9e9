"""What state files need of native code: a digest of many bytes, and values moved between two arrangements.

The digest is a checksum against damage and mix-ups, not against an adversary. Four lanes of 64 bits each take every fourth word;
a word changes its lane by a bijection, and so does all that follows, so that a change within one lane is always seen, any other
one missed with a chance of about 2**-64. One core takes about 16 bytes per cycle of it.
"""

from ..export import export, helper
from ..intrinsics import load_f32, load_i64, load_u8, load_u16, load_u32, shift_right, store_16, store_32, store_f16, store_f32
from ..memory import f16

# Odd constants of splitmix64, as signed numbers.
FIRST, SECOND, THIRD = -7046029254386353131, -4658895280553007687, -7723592293110705685


@helper
def turned(word, bits):
    return (word << bits) | shift_right(word, 64 - bits)


@helper
def taken(lane, word):
    """A lane after its next word."""
    return turned(lane + word * SECOND, 31) * FIRST


@helper
def scattered(word):
    word = (word ^ shift_right(word, 33)) * SECOND
    word = (word ^ shift_right(word, 29)) * THIRD
    return word ^ shift_right(word, 32)


@export
def digest(address, size, seed):
    """64 bits of `size` bytes and the number `seed`."""
    a, b, c, d = seed + FIRST, seed + SECOND, seed + THIRD, seed
    at, end = address, address + size
    while at + 32 <= end:
        a = taken(a, load_i64(at))
        b = taken(b, load_i64(at + 8))
        c = taken(c, load_i64(at + 16))
        d = taken(d, load_i64(at + 24))
        at += 32
    total = turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18) + size
    while at < end:
        total = taken(total, load_u8(at))
        at += 1
    return scattered(total)


# Words of the block of `rearrange`: addresses, bytes of a value in each (2: float16, 4: float32), then four pairs of dimensions,
# outermost first: (count, bytes from one to the next in the source, in the target).
SOURCE, TARGET, SOURCE_BYTES, TARGET_BYTES, DIMENSIONS = 0, 8, 16, 24, 32


@helper
def line(source, target, block, count, step, out):
    """The innermost dimension."""
    narrow, wide = load_i64(block + SOURCE_BYTES), load_i64(block + TARGET_BYTES)
    if narrow == wide:
        if narrow == 4:
            for i in range(count):
                store_32(target + i * out, load_u32(source + i * step))
        else:
            for i in range(count):
                store_16(target + i * out, load_u16(source + i * step))
    elif narrow == 4:
        for i in range(count):
            store_f16(target + i * out, load_f32(source + i * step))
    else:
        for i in range(count):
            store_f32(target + i * out, f16(source + i * step))
    return 0


@export
def rearrange(block):
    """Copy values from one arrangement of four dimensions to another, as the words of `block` say."""
    dims = block + DIMENSIONS
    source, target = load_i64(block + SOURCE), load_i64(block + TARGET)
    for i in range(load_i64(dims)):
        for j in range(load_i64(dims + 24)):
            for k in range(load_i64(dims + 48)):
                x = source + i * load_i64(dims + 8) + j * load_i64(dims + 32) + k * load_i64(dims + 56)
                y = target + i * load_i64(dims + 16) + j * load_i64(dims + 40) + k * load_i64(dims + 64)
                line(x, y, block, load_i64(dims + 72), load_i64(dims + 80), load_i64(dims + 88))
    return 0
