"""A checksum of many bytes as LLVM code: 64 bits against damage and mix-ups, not against an adversary.

Sixteen lanes of 64 bits each take every sixteenth word; a word changes its lane by a bijection (exclusive or, a product with an odd
number, a rotation), and so does all that follows, so that a change within one lane is always seen, any other one missed with a
chance of about 2**-64. The factor has 32 bits, because that is what vector units multiply. Used by kernels/host/state.py and
kernels/host/fetch.py; files of states hold its results, so another one needs another version of theirs.
"""

from numba.extending import intrinsic

from .export import helper
from .intrinsics import I64, i64, load_i64, load_u8, shift_right
from .vector import Vectors, vector

LANES = 16
STRIPE = 8 * LANES  # bytes
FACTOR = 0x9E3779B1
# Odd constants of splitmix64, as signed numbers.
FIRST, SECOND, THIRD = -7046029254386353131, -4658895280553007687, -7723592293110705685


def _signed(number):
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@intrinsic
def _stripes(typingctx, address, count, seed):
    """What the lanes hold after `count` stripes, as one number."""

    def codegen(context, builder, signature, arguments):
        v, kind = Vectors(builder), vector(i64, LANES)
        pointer = v.pointer(arguments[0])
        starts = v.vector(kind, [_signed(FIRST * (2 * lane + 1)) for lane in range(LANES)])
        lanes = v.cell(builder.add(v.splat(arguments[2], LANES), starts))
        shift = v.const(kind, 32)
        with v.loop(arguments[1]) as i:
            x = builder.xor(builder.load(lanes), v.load(v.at(pointer, builder.mul(i, i64(STRIPE))), kind))
            high = builder.lshr(x, shift)
            low = builder.and_(builder.xor(x, high), v.const(kind, 0xFFFFFFFF))  # else a high bit would change few others
            product = builder.add(
                builder.mul(low, v.const(kind, FACTOR)), builder.shl(builder.mul(high, v.const(kind, FACTOR)), shift)
            )
            builder.store(builder.or_(builder.shl(product, v.const(kind, 31)), builder.lshr(product, v.const(kind, 33))), lanes)
        found, total = builder.load(lanes), arguments[2]
        for lane in range(LANES):
            word = builder.add(total, builder.mul(builder.extract_element(found, i64(lane)), i64(SECOND)))
            total = builder.mul(builder.or_(builder.shl(word, i64(31)), builder.lshr(word, i64(33))), i64(FIRST))
        return total

    return I64(I64, I64, I64), codegen


@helper
def _taken(total, word):
    """A number after another word."""
    total += word * SECOND
    return ((total << 31) | shift_right(total, 33)) * FIRST


@helper
def _scattered(word):
    word = (word ^ shift_right(word, 33)) * SECOND
    word = (word ^ shift_right(word, 29)) * THIRD
    return word ^ shift_right(word, 32)


@helper
def digest_of(address, size, seed):
    """64 bits of `size` bytes and the number `seed`."""
    stripes = size // STRIPE
    total = _stripes(address, stripes, seed) + size
    at, end = address + stripes * STRIPE, address + size
    while at + 8 <= end:
        total = _taken(total, load_i64(at))
        at += 8
    while at < end:
        total = _taken(total, load_u8(at))
        at += 1
    return _scattered(total)
