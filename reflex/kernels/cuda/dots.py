"""Block formats for integer dot products: their DOT records (reflex/quant/dot.py), bound to this backend's instructions and
enumerated from the table of types; and the activations as such dots want them. Called by linear_dot.py.

Shared memory in words, for `padded` columns (a multiple of 256): high bytes [padded / 4], low bytes [padded / 4], {scale,
scale * sum of 32} [padded / 16], sums of 16 as int32 [padded / 16]. A value is scale * (128 * high + low). The pieces of 16
bytes of a plane are swizzled (`swizzled`), so that lanes which read neighbouring blocks meet no bank twice.
"""

from numba import cuda
from numba.types import float32, int32, uint32

from ...quant import load
from ...quant.types import TYPES
from . import ptx
from .export import device

MOST = 8127  # 128 * 63 + 63: a high byte's product with 16 codes of 8 bits and a scale of 6 fits 32 bits
MAGIC = 12582912  # 1.5 * 2 ** 23: a float32 of this size has its integer in the low bits
OFFSET = 0x4B400000 + 64  # bits of MAGIC + 64
AHEAD = 2  # loads of a thread on the way at once


class Bound:
    """A format's record with its functions as device functions."""

    def __init__(self, block, record, instructions):
        self.block, self.record = block, record
        functions = record.build(instructions, device)
        self.place, self.load, self.load_head, self.codes, self.factors, self.finish = map(device, functions)


def bound(instructions=ptx):
    """Every format that has a DOT, by the id of its type. instructions: ptx, or a module with its names."""
    formats = {block.id: (block, getattr(load(block.name), "DOT", None)) for block in TYPES.values()}
    return {id: Bound(block, record, instructions) for id, (block, record) in formats.items() if record}


def swizzled(piece):
    return piece ^ (piece >> 3 & 1) << 2 ^ (piece >> 4 & 1) << 1


@device
def quantize(a, b, c, d, i, columns, padded, tid, sh):
    """Four values of a thread from column i on, whose eight lanes hold a group of 32, into shared memory."""
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
    both = int32(total + ptx.shfl_xor_i(total, int32(4)))
    pq, rs = ptx.prmt(p, q, uint32(0x5410)), ptx.prmt(r, s, uint32(0x5410))
    low = ptx.prmt(pq, rs, uint32(0x6420))
    low = uint32(uint32(uint32(uint32(low & uint32(0x7F7F7F7F)) | uint32(0x80808080)) - uint32(0x40404040)) ^ uint32(0x80808080))
    high = ptx.prmt(uint32(pq << uint32(1)), uint32(rs << uint32(1)), uint32(0x7531))
    if i < columns:
        at = int32((i ^ ((i >> 1) & 64) ^ ((i >> 3) & 32)) >> 2)
        sh[uint32(at)] = high
        sh[uint32(at + (padded >> 2))] = low
        if tid & 3 == 0:
            sh[uint32(int32(9 * padded >> 4) + (i >> 4))] = uint32(total)
        if tid & 7 == 0:
            scale = float32(most * float32(1 / MOST))
            ptx.stsf2(sh, int32((padded >> 1) + (i >> 4)), scale, float32(scale * float32(both)))


def preparer(threads, idle=0):
    """Device function: the activations in shared memory and, when `normed`, each warp's sum of their squares in `parts`. The first
    `idle` threads (whole warps) have no part in it and come to the barrier at its end from elsewhere."""
    stride = 4 * (threads - idle)

    @device
    def prepare(x, norm, normed, columns, sh, parts):
        v = cuda.local.array(16, float32)
        w = cuda.local.array(16, float32)
        tid = int32(cuda.threadIdx.x - idle)
        padded = int32((columns + 255) & -256)
        squares = float32(0)
        base = int32(0)
        while base < columns:
            for k in range(AHEAD):
                i = int32(base + stride * k + 4 * tid)
                wanted = uint32(1 if i < columns else 0)
                v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3] = ptx.ldf4_if(x, i, wanted)
                wanted = uint32(wanted & uint32(normed))
                w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3] = ptx.ldgf4_if(norm, i, wanted)
            for k in range(AHEAD):
                i = int32(base + stride * k + 4 * tid)
                if int32(base + stride * k + 4 * (tid & -32)) < columns:  # the whole warp: its lanes work together
                    a, b, c, d = v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3]
                    if i < columns:
                        squares += a * a + b * b + c * c + d * d
                    if normed:
                        a, b, c, d = a * w[4 * k], b * w[4 * k + 1], c * w[4 * k + 2], d * w[4 * k + 3]
                    quantize(a, b, c, d, i, columns, padded, tid, sh)
            base = int32(base + stride * AHEAD)
        if normed:
            for k in range(5):
                squares += ptx.shfl_xor(squares, int32(16 >> k))
            if tid & 31 == 0:
                parts[uint32(tid >> 5)] = squares
        if not idle:
            cuda.syncthreads()

    return prepare


def adder(warps):
    """Device function: the sum of the squares that the warps left in `parts`."""

    @device
    def sum_of(parts):
        squares = float32(0)
        for k in range(warps):
            squares += parts[uint32(k)]
        return squares

    return sum_of
