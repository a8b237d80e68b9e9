"""Block formats for integer tensor cores: their STREAM records (reflex/quant/stream.py), bound to this backend's instructions and
enumerated from the table of types; and the activations as such products want them. Called by linear_stream.py.

Dynamic shared memory in words, for `padded` columns (a multiple of 256): zeros [128]; from X_AT on 64 words for each step of 128
columns: of each half of the four products, of each group of 32, four words of high bytes and four of low ones; then for each
group {scale, extra} or, of `halves`, {scale, extra of 16, extra of 16, unused}. A value is scale * (128 * high + low); extra is
the sum of the values for minimums, or -offset times the sum of 128 * high + low as an integer. For numbers proper a group's
activations are 16 words of two times 16 bits, by MAGIC_SHORT: 32768 more than they are.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from ...quant import load
from ...quant.stream import NATURAL
from ...quant.types import TYPES
from . import ptx, streamed
from .dots import MAGIC, MOST, OFFSET
from .export import device

X_AT = 128
MOST_SHORT, MAGIC_SHORT = 32767, MAGIC + 32768  # of activations for numbers proper
MOST_AHEAD = 1024  # loads of a block on the way at once


class Bound:
    """A format's record with its functions as device functions."""

    def __init__(self, block, record):
        self.block, self.record = block, record
        self.functions = tuple(map(device, record.build(streamed, device)))
        self.table = record.table() if record.table else b""


def bound():
    """Every format that has a STREAM, by the id of its type."""
    formats = {block.id: (block, getattr(load(block.name), "STREAM", None)) for block in TYPES.values()}
    return {id: Bound(block, record) for id, (block, record) in formats.items() if record}


def _placed(record):
    """Device function: four neighbours' words as the lane should store them, and which word of the group they are."""
    places, natural = sum(place << 4 * q for q, place in enumerate(record.order)), record.order == NATURAL
    selector, mixed, pairs = record.bytes, record.mixed, record.mixed == 4

    def placed(high, low, q):
        if selector != 0x3210:
            high, low = ptx.prmt(high, uint32(0), uint32(selector)), ptx.prmt(low, uint32(0), uint32(selector))
        if not natural:
            q = int32(uint32(uint32(places) >> uint32(4 * q)) & uint32(7))
        return high, low, q

    def mix(high, low, q):
        other_high, other_low = ptx.shfl_xor_u(high, int32(mixed)), ptx.shfl_xor_u(low, int32(mixed))
        k, take = int32(2 * (q >> 2) + (q & 1)), uint32(0x5140)
        if pairs:
            k = int32(q & 3)
        if q & mixed:
            take = uint32(0x3726)
        return ptx.prmt(high, other_high, take), ptx.prmt(low, other_low, take), int32(2 * k + int32((q & mixed) > 0))

    def across(word, q):
        """Bytes of the words of four lanes, transposed among them."""
        other = ptx.shfl_xor_u(word, int32(4))
        take = uint32(0x5410)
        if q & 4:
            take = uint32(0x3276)
        word = ptx.prmt(word, other, take)
        other = ptx.shfl_xor_u(word, int32(2))
        take = uint32(0x6240)
        if q & 2:
            take = uint32(0x3715)
        return ptx.prmt(word, other, take)

    across = device(across)

    def spread(high, low, q):
        return across(high, q), across(low, q), int32(4 * (q & 1) + (q >> 1))

    return device(spread if record.spread else mix if mixed else placed)


def quantizer(record):
    """Device function: four values of a thread from column i on, whose eight lanes hold a group of 32, into shared memory."""
    placed, halves, offset, minimum, meta = _placed(record), record.halves, record.offset, record.minimum, record.meta

    @device
    def quantize(a, b, c, d, i, padded, sh):
        most = max(max(abs(a), abs(b)), max(abs(c), abs(d)))
        most = max(most, ptx.shfl_xor(most, int32(1)))
        most = max(most, ptx.shfl_xor(most, int32(2)))
        most = max(most, ptx.shfl_xor(most, int32(4)))
        grow = float32(float32(MOST) * ptx.rcp(max(most, float32(1e-30))))
        magic = float32(MAGIC + 64)
        p, q = ptx.f2bits(ptx.fmaf(a, grow, magic)), ptx.f2bits(ptx.fmaf(b, grow, magic))
        r, s = ptx.f2bits(ptx.fmaf(c, grow, magic)), ptx.f2bits(ptx.fmaf(d, grow, magic))
        total = int32(int32(p + q + r + s) - int32(4 * OFFSET & 0x7FFFFFFF))
        total = int32(total + ptx.shfl_xor_i(total, int32(1)))
        total = int32(total + ptx.shfl_xor_i(total, int32(2)))
        if not halves:
            total = int32(total + ptx.shfl_xor_i(total, int32(4)))
        pq, rs = ptx.prmt(p, q, uint32(0x5410)), ptx.prmt(r, s, uint32(0x5410))
        low = ptx.prmt(pq, rs, uint32(0x6420))
        low = uint32(
            uint32(uint32(uint32(low & uint32(0x7F7F7F7F)) | uint32(0x80808080)) - uint32(0x40404040)) ^ uint32(0x80808080)
        )
        high = ptx.prmt(uint32(pq << uint32(1)), uint32(rs << uint32(1)), uint32(0x7531))
        word = int32((i >> 2) & 7)
        high, low, place = placed(high, low, word)
        if i < padded:
            at = int32(X_AT + 64 * (i >> 7) + 32 * (place >> 2) + 8 * ((i >> 5) & 3) + (place & 3))
            ptx.sts32(sh, at, high)
            ptx.sts32(sh, int32(at + 4), low)
            scale = float32(most * float32(1 / MOST))
            extra = uint32(int32(-offset * total))
            if minimum:
                extra = ptx.f2bits(float32(scale * float32(total)))
            group = int32(X_AT + (padded >> 1) + meta * (i >> 5))
            if word == 0:
                ptx.sts64(sh, group, ptx.f2bits(scale), extra)
            if halves and word == 4:
                ptx.sts32(sh, int32(group + 2), extra)

    return quantize


@device
def shorten(a, b, c, d, i, padded, sh):
    """The same as pairs of 16 bits."""
    most = max(max(abs(a), abs(b)), max(abs(c), abs(d)))
    most = max(most, ptx.shfl_xor(most, int32(1)))
    most = max(most, ptx.shfl_xor(most, int32(2)))
    most = max(most, ptx.shfl_xor(most, int32(4)))
    grow, magic = float32(float32(MOST_SHORT) * ptx.rcp(max(most, float32(1e-30)))), float32(MAGIC_SHORT)
    p, q = ptx.f2bits(ptx.fmaf(a, grow, magic)), ptx.f2bits(ptx.fmaf(b, grow, magic))
    r, s = ptx.f2bits(ptx.fmaf(c, grow, magic)), ptx.f2bits(ptx.fmaf(d, grow, magic))
    if i < padded:
        ptx.sts64(sh, int32(X_AT + (i >> 1)), ptx.prmt(p, q, uint32(0x5410)), ptx.prmt(r, s, uint32(0x5410)))
        if i & 31 == 0:
            ptx.stsf(sh, int32(X_AT + (padded >> 1) + (i >> 3)), float32(most * float32(1 / MOST_SHORT)))


@device
def lengthened(word):
    """Two activations of 16 bits as float32."""
    high, magic = uint32(0x4B400000), float32(MAGIC_SHORT)
    a, b = ptx.bits2f(ptx.prmt(word, high, uint32(0x7610))), ptx.bits2f(ptx.prmt(word, high, uint32(0x7632)))
    return float32(a - magic), float32(b - magic)


def preparer(record, threads):
    """Device function: the activations in shared memory and, when `normed`, each warp's sum of their squares in `squares`."""
    quantize, stride, run = shorten if record.floats else quantizer(record), 4 * threads, record.run
    ahead = MOST_AHEAD // threads  # loads of a thread on the way at once
    held = 4 * ahead

    @device
    def prepare(x, norm, normed, columns, sh, squares):
        v = cuda.local.array(held, float32)
        w = cuda.local.array(held, float32)
        tid = int32(cuda.threadIdx.x)
        padded = int32((columns + run - 1) & -run)
        total = float32(0)
        if tid < X_AT:
            ptx.sts32(sh, tid, uint32(0))
        base = int32(0)
        while base < padded:
            for k in range(ahead):
                i = int32(base + stride * k + 4 * tid)
                wanted = uint32(1 if i < columns else 0)
                v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3] = ptx.ldf4_if(x, i, wanted)
                wanted = uint32(wanted & uint32(normed))
                w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3] = ptx.ldgf4_if(norm, i, wanted)
            for k in range(ahead):
                i = int32(base + stride * k + 4 * tid)
                a, b, c, d = float32(0), float32(0), float32(0), float32(0)
                if i < columns:
                    a, b, c, d = v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3]
                    total += a * a + b * b + c * c + d * d
                    if normed:
                        a, b, c, d = a * w[4 * k], b * w[4 * k + 1], c * w[4 * k + 2], d * w[4 * k + 3]
                quantize(a, b, c, d, i, padded, sh)
            base = int32(base + stride * ahead)
        if normed:
            for k in range(5):
                total += ptx.shfl_xor(total, int32(16 >> k))
            if tid & 31 == 0:
                squares[uint32(tid >> 5)] = total
        cuda.syncthreads()

    return prepare
