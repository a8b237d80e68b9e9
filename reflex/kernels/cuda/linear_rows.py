"""linear_rows_<TOKENS>_<TYPE>: y = W h + b for up to 8 or 16 tokens, straight from the blocks of up to three matrices of that type.

h is given by `halves` (xh, factor) for `count` tokens of `columns` values; columns: a multiple of the type's blocks and of
32. Each matrix is (weights, ggml type, rows, bias, biased, out, stride): out[token * stride + row]; unused ones have 0 rows.
mode 0: out = y + bias; 1: out += scale * (y + bias); 2: out0 = act(y0) * y1 of two matrices of equal rows (act 0 silu,
1 gelu). Tiles and `splits` are those of linear_row. Grid: ceil(tiles * splits / 8). No dynamic
shared memory.

Weights are the A operand (quant/fragment.py), made float16 with their scales in registers (scales below 2**7); tokens are B,
read through L1.
"""

from struct import pack

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device, kernel
from .linear_row import FORMATS, WARPS, activated, first_step, held, lane_rows, locate, no_first, pick

THREADS = 32 * WARPS
SHRUNK = 2.0**-9  # codes become code * SHRUNK, their scales are divided by it: both fit float16


def twice(value):
    """Two float16 of this value, as a word."""
    return int.from_bytes(2 * pack("<e", value), "little")


def _weights(format):
    """Device function: a lane's halves of one row in a unit, scaled."""
    record, codes = format.record, format.codes
    plain, with_minimum, raised = record.offset is None, record.offset == 0, record.raised
    gain, raised_gain, less = (twice(v) for v in (SHRUNK * 2.0**24, SHRUNK * 2.0**20, -SHRUNK * (record.offset or 0)))

    def weights(raw, head, o, c, j, t, shift, scale, minimum):
        w0, w1, w2, w3 = codes(raw, head, o, c, j, t, shift)
        if not plain:
            grow, sink = uint32(gain), uint32(less)
            if raised and j == 1:
                grow = uint32(raised_gain)
            w0, w1, w2, w3 = ptx.fma2(w0, grow, sink), ptx.fma2(w1, grow, sink), ptx.fma2(w2, grow, sink), ptx.fma2(w3, grow, sink)
            if with_minimum:
                w0, w1 = ptx.fma2(w0, scale, minimum), ptx.fma2(w1, scale, minimum)
                w2, w3 = ptx.fma2(w2, scale, minimum), ptx.fma2(w3, scale, minimum)
            else:
                w0, w1, w2, w3 = ptx.mul2(w0, scale), ptx.mul2(w1, scale), ptx.mul2(w2, scale), ptx.mul2(w3, scale)
        return w0, w1, w2, w3

    return device(weights)


@device
def chosen(pair, odd):
    """One half of a pair, twice."""
    selector = uint32(0x1010)
    if odd:
        selector = uint32(0x3232)
    return ptx.prmt(pair, pair, selector)


def _scale(format):
    """Device function: (scale, minimum) of a row in a unit, as halves, each twice, from the lane that holds that column's."""
    split, with_minimum = format.record.split, format.record.offset == 0

    def scale(scales, minimums, unit, lane):
        source, odd = int32((lane & 28) | (unit >> 1)), int32(unit & 1)
        if split:
            source, odd = int32((lane & 28) | unit), int32((lane >> 1) & 1)
        value, minimum = chosen(ptx.shfl_idx_u(scales, source), odd), uint32(0)
        if with_minimum:
            minimum = chosen(ptx.shfl_idx_u(minimums, source), odd)
        return value, minimum

    return device(scale)


def _tile(format, tokens):
    """Device function for a warp's share of a tile, as in linear_row: adds to `sums`, four floats per eight tokens."""
    record = format.record
    head, words, planes, elements, parts = record.head, record.words, record.planes, record.elements, record.parts
    part_chunks, step_words = record.chunks // parts, elements // 2
    c_units, j_units, hop = record.c_units, record.j_units, record.hop == 32
    block, nbytes, plain = format.block.elements, format.block.nbytes, record.offset is None
    block_shift, part_units = block.bit_length() - 1, elements // parts // 32
    half_steps = block // elements - 1 if block > elements else 0  # log2 of the steps in a block
    step_bytes, tails = max(elements // block, 1) * nbytes, block < elements
    place, load_head, load_chunk, scales = format.place, format.load_head, format.load_chunk, format.scales
    weights, scale, groups, grow = _weights(format), _scale(format), tokens // 8, 1 / SHRUNK

    def tile(xh, count, row, under, first, splits, columns, lane, raw, sums):
        last = int32(int32(columns >> block_shift) - 1)
        g, t = int32(lane >> 2), int32(lane & 3)
        line = int32(int32((columns + 31) & -32) >> 1)
        near = ptx.address(xh, int32(min(g, int32(count - 1)) * line))
        far = int32(int32(min(int32(g + 8), int32(count - 1)) - min(g, int32(count - 1))) * line * 4)
        x_at = int32(16 * t)  # bytes
        if hop:
            x_at = int32(16 * (t & 1) + 64 * (t >> 1))
        step = first
        while int32(step * elements) < columns:
            coming = int32(step + splits)
            wanted = uint32(int32(coming * elements) < columns)
            at = place(row, coming, t)
            at8 = at + under
            shift = uint32(uint32((int32(row) + (step >> half_steps) * step_bytes) & 2) << uint32(3))
            for part in range(parts):
                k, k8, m, m8 = uint32(0), uint32(0), uint32(0), uint32(0)
                if not plain:
                    s0, s1, m0, m1 = scales(raw, 0, t, part)
                    k, m = ptx.f2h2(float32(s0 * float32(grow)), float32(s1 * float32(grow))), ptx.f2h2(m0, m1)
                    s0, s1, m0, m1 = scales(raw, head, t, part)
                    k8, m8 = ptx.f2h2(float32(s0 * float32(grow)), float32(s1 * float32(grow))), ptx.f2h2(m0, m1)
                for i in range(part_chunks):
                    c = part * part_chunks + i
                    o = 2 * (head + c * words)
                    for j in range(planes):
                        unit = c_units * i + j_units * j
                        if hop:
                            unit = i
                        a, b = uint32(0), uint32(0)
                        e, f = uint32(0), uint32(0)
                        if not plain:
                            a, b = scale(k, m, int32(unit), lane)
                            e, f = scale(k8, m8, int32(unit), lane)
                        p0, p1, p2, p3 = weights(raw, 0, o, c, j, t, shift, a, b)
                        q0, q1, q2, q3 = weights(raw, head, o + words, c, j, t, shift, e, f)
                        x = int32(x_at + step * (step_words * 4) + 64 * (part * part_units + unit))
                        if hop:
                            x = int32(x_at + step * (step_words * 4) + 128 * i + 32 * j)
                        for n in range(groups):
                            x0, x1, x2, x3 = uint32(0), uint32(0), uint32(0), uint32(0)
                            if not tails or x < 4 * line:
                                x0, x1, x2, x3 = ptx.ld128(near, int32(x + n * far))
                            d = 4 * n
                            s0, s1, s2, s3 = ptx.mma_f16(
                                p0, q0, p1, q1, x0, x1, sums[d], sums[d + 1], sums[d + 2], sums[d + 3]
                            )
                            sums[d], sums[d + 1], sums[d + 2], sums[d + 3] = ptx.mma_f16(p2, q2, p3, q3, x2, x3, s0, s1, s2, s3)
                    load_chunk(at, coming, t, last, c, wanted, raw, o)
                    load_chunk(at8, coming, t, last, c, wanted, raw, o + words)
            load_head(at, coming, t, last, wanted, raw, 0)
            load_head(at8, coming, t, last, wanted, raw, head)
            step = coming

    return device(tile)


def _finish(tokens):
    """Device function: what the warps of a unit have left in `parts` [warp][token][16 rows], into the matrices' outputs."""
    warp_sums = 16 * tokens

    def value_of(parts, tile, log_splits, inside):
        at = int32((tile << log_splits) * warp_sums + inside)
        value = parts[uint32(at)]
        for k in range(1, WARPS):
            if k < (1 << log_splits):
                value += parts[uint32(at + k * warp_sums)]
        return value

    return device(value_of)


def _kernel(format, tokens):
    first, tile, value_of = first_step(format, no_first, False), _tile(format, tokens), _finish(tokens)
    words, floats, warp_sums, all_sums = held([format]), tokens // 2, 16 * tokens, WARPS * 16 * tokens

    def linear_rows(
        xh, factor, count, columns, w0, type0, rows0, bias0, biased0, out0, stride0, w1, type1, rows1, bias1, biased1, out1,
        stride1, w2, type2, rows2, bias2, biased2, out2, stride2, mode, act, scale, splits,
    ):  # fmt: skip
        ptx.pdl_launch()
        tid = int32(cuda.threadIdx.x)
        parts = cuda.shared.array(all_sums, float32, alignment=16)
        raw = cuda.local.array(words, uint32)
        sums = cuda.local.array(floats, float32)
        tiles0, tiles1 = int32(int32(rows0 + 15) >> 4), int32(int32(rows1 + 15) >> 4)
        tiles = int32(tiles0 + tiles1 + int32(int32(rows2 + 15) >> 4))
        log_splits = int32(ptx.popc(uint32(splits - 1)))
        shift = int32(3 - log_splits)  # a unit is 2 ** shift tiles
        unit = int32(cuda.blockIdx.x)
        index = int32(min(int32((unit << shift) + (tid >> (5 + log_splits))), int32(tiles - 1)))
        segment, at = locate(index, mode, tiles0, tiles1)
        r, below = lane_rows(at, int32((tid >> 2) & 7), pick(segment, rows0, rows1, rows2))
        share = int32((tid >> 5) & (splits - 1))
        row, under = first(type0, pick(segment, w0, w1, w2), r, below, share, columns, int32(tid & 3), raw)
        ptx.pdl_wait()
        for i in range(floats):
            sums[i] = float32(0)
        tile(xh, count, row, under, share, splits, columns, int32(tid & 31), raw, sums)
        tid = ptx.opaque(int32(cuda.threadIdx.x))
        for i in range(floats):  # sums: [eight tokens][g, g + 8][tokens 2t, 2t + 1]
            token = 8 * (i >> 2) + 2 * (tid & 3) + (i & 1)
            inside = 16 * token + ((tid >> 2) & 7) + 8 * ((i >> 1) & 1)
            parts[uint32((tid >> 5) * warp_sums + inside)] = sums[i]
        cuda.syncthreads()
        done = int32(tid)
        while done < int32(warp_sums << shift):
            index, inside = int32(done // warp_sums), int32(done & (warp_sums - 1))  # tile of the unit, place in it
            token = int32(inside >> 4)
            if token < count and mode == 2:
                at = int32(((unit << shift) >> 1) + (index >> 1))
                output = int32(16 * at + (inside & 15))
                if index & 1 == 0 and output < rows0:
                    gate = float32(value_of(parts, index, log_splits, inside) * factor[token])
                    up = float32(value_of(parts, int32(index + 1), log_splits, inside) * factor[token])
                    if biased0:
                        gate += bias0[output]
                    if biased1:
                        up += bias1[output]
                    out0[int64(token) * stride0 + output] = float32(activated(act, gate) * up)
            elif token < count and (unit << shift) + index < tiles:
                segment, at = locate(int32((unit << shift) + index), mode, tiles0, tiles1)
                output = int32(16 * at + (inside & 15))
                if output < pick(segment, rows0, rows1, rows2):
                    value = float32(value_of(parts, index, log_splits, inside) * factor[token])
                    if pick(segment, biased0, biased1, biased2):
                        value += pick(segment, bias0, bias1, bias2)[output]
                    out = pick(segment, out0, out1, out2)
                    place = int64(token) * pick(segment, stride0, stride1, stride2) + output
                    if mode == 1:
                        value = ptx.fmaf(scale, value, out[place])
                    out[place] = value
            done = int32(done + THREADS)

    return linear_rows


SIGNATURE = "UFii" + "BiiFiFi" * 3 + "iifi"
for _tokens in (8, 16):
    for _format in FORMATS.values():
        kernel(SIGNATURE, threads=THREADS, blocks=2, name=f"linear_rows_{_tokens}_{_format.block.name}")(_kernel(_format, _tokens))
