"""linear_rows_<TOKENS>_<TYPE>: y = W h + b for up to 8 or 16 tokens, straight from the blocks of up to three matrices of that
type; linear_rows_32.py, linear_rows_untiled.py: up to 32.

h is given by `halves` (xh, factor) for `count` tokens of `columns` values; columns: a multiple of the type's blocks and of
32. Each matrix is (weights, ggml type, rows, bias, biased, out, stride): out[token * stride + row]; unused ones have 0 rows.
mode 0: out = y + bias; 1: out += scale * (y + bias); 2: out0 = act(y0) * y1 of two matrices of equal rows (act 0 silu,
1 gelu). A tile is 16 rows; a block of 8 warps takes 8 / splits tiles, each shared by `splits` warps (1, 2, 4 or 8; at most 4 in
mode 2, whose tiles are gate and up in turn); for 32 tokens, in formats that are `tiled`, a warp has two tiles (in mode 2 a gate
and its up), and `splits` may be 8 in every mode. Grid: ceil(ceil(tiles / 1 or 2) * splits / 8). No dynamic shared memory.

Formats that are not `tiled` serve pairs of a row and one of its experts as well, where `each` is not 0: as in expert_tiles.py,
order and cut (its tiles) are those of expert_order.py with 32 pairs in a tile, of pair p the halves are row p / each, its results
go to out[p * stride + row], the matrices of the next expert begin next0 and next1 bytes behind those of one, its biases bias_stride
floats. Grid: (as above, tiles of pairs). Else these parameters are 0.

Weights are the A operand (quant/fragment.py), made float16 with their scales in registers (scales below 2**7); tokens are B,
read through L1.
"""

from functools import cache
from struct import pack

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .expert_order import tile_of
from .export import device, kernel
from .fragments import bound, stager
from .row_tiles import WARPS, activated, lane_rows, locate, pick

THREADS = 32 * WARPS
FORMATS = bound()
TILED = [f for f in FORMATS.values() if f.record.tiled]
UNTILED = 32  # tokens of the kernels for formats that are not tiled, which take less where there are fewer
SHRUNK = 2.0**-9  # codes become code * SHRUNK, their scales are divided by it: both fit float16


def twice(value):
    """Two float16 of this value, as a word."""
    return int.from_bytes(2 * pack("<e", value), "little")


def held(format):
    """Words of a step that a lane holds."""
    return 2 * (format.record.head + format.record.chunks * format.record.words)


@cache
def _weights(format):
    """Device function: a lane's halves of one row in a unit, scaled."""
    record, codes = format.record, format.codes
    plain, with_minimum, raised = record.offset is None, record.minimum, record.raised
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


@cache
def _scales(format):
    """Device functions: a lane keeps the scales s0, s1 and minimums m0, m1 of its columns, as halves, from place `o` on; (scale,
    minimum) of a row in a unit, each twice, from the lane that holds that column's."""
    split, with_minimum = format.record.split, format.record.minimum

    def keep(s0, s1, m0, m1, kept, o):
        if with_minimum:
            kept[o], kept[o + 1] = ptx.f2h2(s0, m0), ptx.f2h2(s1, m1)
        else:
            kept[o] = ptx.f2h2(s0, s1)

    def hand_out(kept, o, unit, lane):
        odd, source = int32(unit & 1), int32((lane & 28) | int32(unit >> 1))
        if split:
            odd, source = int32((lane >> 1) & 1), int32((lane & 28) | int32(unit))
        if not with_minimum:
            both = ptx.shfl_idx_u(kept[o], source)
            return ptx.prmt(both, both, uint32(0x1010 + 0x2222 * odd)), uint32(0)
        first, second = kept[o], kept[o + 1]
        if split:  # lanes differ in which one they need
            first, second = ptx.shfl_idx_u(first, source), ptx.shfl_idx_u(second, source)
        if odd:
            first = second
        if not split:
            first = ptx.shfl_idx_u(first, source)
        return ptx.prmt(first, first, uint32(0x1010)), ptx.prmt(first, first, uint32(0x3232))

    return device(keep), device(hand_out)


def at_once(format, tokens):
    """Groups of eight tokens that are always there: kernels of formats that are not tiled also serve half as many tokens as their
    own, and look at the others only where there are any."""
    return tokens // 8 if format.record.tiled else UNTILED // 16


@cache
def _fetch(format, groups, group=0):
    """Device function: a lane's halves of the tokens in a unit of the step at byte `at` of their rows, to x from place `o` on.
    group: the first of the groups of eight."""
    record = format.record
    planes, hop, tails = record.planes, record.hop == 32, format.block.elements < record.elements
    part_chunks, part_units = record.chunks // record.parts, record.elements // record.parts // 32
    c_units, j_units = record.c_units, record.j_units

    def fetch(near, far, at, unit, line, x, o):
        c, j = unit // planes, unit % planes
        at = int32(at + 64 * (c // part_chunks * part_units + c % part_chunks * c_units + j * j_units))
        if hop:
            at = int32(at + 128 * c + 32 * j - 64 * (c * c_units + j * j_units))
        for n in range(groups):
            d = o + 4 * n
            x0, x1, x2, x3 = uint32(0), uint32(0), uint32(0), uint32(0)
            if not tails or at < 4 * line:
                x0, x1, x2, x3 = ptx.ld128(near, int32(at + far[group + n]))
            x[d], x[d + 1], x[d + 2], x[d + 3] = x0, x1, x2, x3

    return device(fetch)


def reads_ahead(format, pairs):
    """Whether tokens are read a unit before their use: there are registers for it."""
    return pairs > 1 and format.record.offset is not None


@cache
def _multiply(groups):
    """Device function: adds the products of a lane's halves of rows g (p) and g + 8 (q) in a unit to the sums of its tokens."""

    def multiply(p0, p1, p2, p3, q0, q1, q2, q3, x, f, sums, e):
        for n in range(groups):
            a, b = f + 4 * n, e + 4 * n
            s0, s1, s2, s3 = ptx.mma_f16(p0, q0, p1, q1, x[a], x[a + 1], sums[b], sums[b + 1], sums[b + 2], sums[b + 3])
            sums[b], sums[b + 1], sums[b + 2], sums[b + 3] = ptx.mma_f16(p2, q2, p3, q3, x[a + 2], x[a + 3], s0, s1, s2, s3)

    return device(multiply)


def _plane(format, tokens, pairs):
    """Device function: the products of plane j of a step's chunk c."""
    record = format.record
    head, words, planes, elements = record.head, record.words, record.planes, record.elements
    part_chunks, units, ahead = record.chunks // record.parts, record.chunks * planes, reads_ahead(format, pairs)
    c_units, j_units, hop, plain = record.c_units, record.j_units, record.hop == 32, record.offset is None
    block, nbytes, held_words, groups = format.block.elements, format.block.nbytes, held(format), tokens // 8
    half_steps = block // elements - 1 if block > elements else 0  # log2 of the steps in a block
    step_bytes, x_half = max(elements // block, 1) * nbytes, ahead * tokens // 2
    first_groups = at_once(format, tokens)
    further = groups - first_groups
    more_words = max(4 * further, 1)
    weights, (_, scale) = _weights(format), _scales(format)
    fetch, fetch_more = _fetch(format, first_groups), _fetch(format, further, first_groups)
    multiply, multiply_more = _multiply(first_groups), _multiply(further)

    def plane(c, j, near, far, count, at, following, line, row, under, step, lane, raw, x, factors, sums):
        t, i = int32(lane & 3), c % part_chunks
        unit, done = c_units * i + j_units * j, c * planes + j
        if hop:
            unit = i
        if not ahead:
            fetch(near, far, at, done, line, x, 0)
        elif done + 1 < units:
            fetch(near, far, at, done + 1, line, x, (done + 1) % 2 * x_half)
        else:
            fetch(near, far, following, 0, line, x, 0)
        for p in range(pairs):
            b, d, o = p * held_words, 4 * p, p * held_words + 2 * (head + c * words)
            shift = uint32(uint32((int32(row[p]) + (step >> half_steps) * step_bytes) & 2) << uint32(3))
            v, m, v8, m8 = uint32(0), uint32(0), uint32(0), uint32(0)
            if not plain:
                v, m = scale(factors, d, unit, lane)
                v8, m8 = scale(factors, d + 2, unit, lane)
            p0, p1, p2, p3 = weights(raw, b, o, c, j, t, shift, v, m)
            q0, q1, q2, q3 = weights(raw, b + head, o + words, c, j, t, shift, v8, m8)
            multiply(p0, p1, p2, p3, q0, q1, q2, q3, x, done % 2 * x_half, sums, p * 4 * groups)
            if further and ptx.opaque(count) > 8 * first_groups:
                y = cuda.local.array(more_words, uint32)
                fetch_more(near, far, at, done, line, y, 0)
                multiply_more(p0, p1, p2, p3, q0, q1, q2, q3, y, 0, sums, 4 * first_groups)

    return device(plane)


def _chunk(format, tokens, pairs):
    """Device function: the products of a step's chunk c, whose words are replaced by the coming step's. Numbers are no literals,
    for each of which Numba would compile what is called anew."""
    record = format.record
    head, words, planes, part_chunks = record.head, record.words, record.planes, record.chunks // record.parts
    plain, held_words, grow = record.offset is None, held(format), 1 / SHRUNK
    place, load_chunk, scales, plane = format.place, format.load_chunk, format.scales, _plane(format, tokens, pairs)
    keep, _ = _scales(format)

    def chunk(c, near, far, count, at, following, line, row, under, step, coming, wanted, last, lane, raw, x, factors, sums):
        t, part = int32(lane & 3), c // part_chunks
        if not plain and c % part_chunks == 0:
            for p in range(pairs):
                b, d = p * held_words, 4 * p
                s0, s1, m0, m1 = scales(raw, b, t, part)
                keep(float32(s0 * float32(grow)), float32(s1 * float32(grow)), m0, m1, factors, d)
                s0, s1, m0, m1 = scales(raw, b + head, t, part)
                keep(float32(s0 * float32(grow)), float32(s1 * float32(grow)), m0, m1, factors, d + 2)
        plane(c, int64(0), near, far, count, at, following, line, row, under, step, lane, raw, x, factors, sums)
        if planes > 1:
            plane(c, int64(1), near, far, count, at, following, line, row, under, step, lane, raw, x, factors, sums)
        if planes > 2:
            plane(c, int64(2), near, far, count, at, following, line, row, under, step, lane, raw, x, factors, sums)
            plane(c, int64(3), near, far, count, at, following, line, row, under, step, lane, raw, x, factors, sums)
        for p in range(pairs):
            o, from_row = p * held_words + 2 * (head + c * words), place(row[p], coming, t)
            load_chunk(from_row, coming, t, last, c, wanted, raw, o)
            load_chunk(from_row + under[p], coming, t, last, c, wanted, raw, o + words)

    return device(chunk)


def _chunks(chunk, chunks):
    """Device function: the chunks of a step one after another; a loop of this size LLVM would not unroll."""

    def whole(near, far, count, at, then, line, row, under, step, next, want, last, lane, raw, x, held, sums):
        chunk(int64(0), near, far, count, at, then, line, row, under, step, next, want, last, lane, raw, x, held, sums)
        if chunks > 1:
            chunk(int64(1), near, far, count, at, then, line, row, under, step, next, want, last, lane, raw, x, held, sums)
        if chunks > 2:
            chunk(int64(2), near, far, count, at, then, line, row, under, step, next, want, last, lane, raw, x, held, sums)
            chunk(int64(3), near, far, count, at, then, line, row, under, step, next, want, last, lane, raw, x, held, sums)

    return device(whole)


@device
def token_of(order, first, each, i, count):
    """Which row of the halves is a tile's i-th; behind the last one stands that one again."""
    i = int32(min(i, int32(count - 1)))
    if each > 0:
        i = ptx.quotient(int32(ptx.ld32(order, int32(first + i))), each)
    return i


@device
def aim(xh, far, groups, order, first, each, count, columns, lane):
    """The address of a lane's first token; `far`: how many bytes from it to those 8, 16, .. tokens further on."""
    g, line = int32(lane >> 2), int32(int32((columns + 31) & -32) >> 1)
    own = token_of(order, first, each, g, count)
    for n in range(groups):
        far[n] = int32(int32(token_of(order, first, each, int32(g + 8 * n), count) - own) * line * 4)
    return ptx.address(xh, int64(own) * line)


def tiler(format, tokens, pairs):
    """Device function for a warp's share of `pairs` tiles: adds to `sums` [tile][eight tokens][4]."""
    record = format.record
    head, elements, ahead, hop = record.head, record.elements, reads_ahead(format, pairs), record.hop == 32
    block_shift, held_words, x_bytes, factor_words = format.block.elements.bit_length() - 1, held(format), 2 * elements, 4 * pairs
    place, load_head, x_words = format.place, format.load_head, (1 + ahead) * 4 * at_once(format, tokens)
    fetch, chunks = _fetch(format, at_once(format, tokens)), _chunks(_chunk(format, tokens, pairs), record.chunks)

    def tile(near, far, count, row, under, first, splits, columns, lane, raw, sums):
        x = cuda.local.array(x_words, uint32)
        factors = cuda.local.array(factor_words, uint32)
        last, t = int32(int32(columns >> block_shift) - 1), int32(lane & 3)
        line = int32(int32((columns + 31) & -32) >> 1)
        x_at = int32(16 * t)  # bytes
        if hop:
            x_at = int32(16 * (t & 1) + 64 * (t >> 1))
        step = first
        if ahead and int32(step * elements) < columns:
            fetch(near, far, int32(x_at + step * x_bytes), 0, line, x, 0)
        while int32(step * elements) < columns:
            coming, following = int32(step + splits), step
            wanted = uint32(int32(coming * elements) < columns)
            if wanted:
                following = coming
            at, following = int32(x_at + step * x_bytes), int32(x_at + following * x_bytes)
            chunks(near, far, count, at, following, line, row, under, step, coming, wanted, last, lane, raw, x, factors, sums)
            for p in range(pairs):
                from_row = place(row[p], coming, t)
                load_head(from_row, coming, t, last, wanted, raw, p * held_words)
                load_head(from_row + under[p], coming, t, last, wanted, raw, p * held_words + head)
            step = coming

    return device(tile)


@cache
def _finish(tokens, pairs):
    """Device function: what the warps of a unit have left in `parts` [warp][tile][token][16 rows], for the outputs."""
    tile_sums = 16 * tokens
    warp_sums = pairs * tile_sums

    def value_of(parts, tile, log_splits, inside):
        at = int32((tile // pairs << log_splits) * warp_sums + tile % pairs * tile_sums + inside)
        value = parts[uint32(at)]
        for k in range(1, WARPS):
            if k < (1 << log_splits):
                value += parts[uint32(at + k * warp_sums)]
        return value

    return device(value_of)


@cache
def _first(format, o):
    """Device function that reads a tile's first step to `raw` from place `o` on."""
    record = format.record
    head, words, chunks, elements = record.head, record.words, record.chunks, record.elements
    block_shift, element_shift = format.block.elements.bit_length() - 1, elements.bit_length() - 1
    nbytes = format.block.nbytes
    place, load_head, load_chunk = format.place, format.load_head, format.load_chunk

    def first(w, r, below, step, columns, t, raw):
        """r: the lane's row; below: how far below its second one is. Returns both as an address and a distance in bytes."""
        last = int32(int32(columns >> block_shift) - 1)
        stride = int32((last + 1) * nbytes)
        row, under = ptx.address(w, int64(r) * stride), int32(below * stride)
        step = int32(min(step, int32(int32(columns - 1) >> element_shift)))  # of a warp without steps: never used
        at = place(row, step, t)
        at8 = at + under
        wanted = uint32(1)
        load_head(at, step, t, last, wanted, raw, int64(o))
        load_head(at8, step, t, last, wanted, raw, int64(o + head))
        for c in range(chunks):
            load_chunk(at, step, t, last, c, wanted, raw, o + 2 * (head + c * words))
            load_chunk(at8, step, t, last, c, wanted, raw, o + 2 * (head + c * words) + words)
        return row, under

    return device(first)


def made(format, tokens, pairs, module=__name__):
    """The kernel of a format, for up to `tokens`, with `pairs` tiles per warp, declared by `module`."""
    tile, value_of, groups = tiler(format, tokens, pairs), _finish(tokens, pairs), tokens // 8
    words, floats, tile_sums = held(format), tokens // 2, 16 * tokens
    all_words, all_floats, warp_sums, all_sums = pairs * words, pairs * floats, pairs * tile_sums, WARPS * pairs * tile_sums
    first, second = _first(format, 0), _first(format, words * (pairs - 1))
    stage, staged, routed = stager(format.table, THREADS), bool(format.table), not format.record.tiled

    def linear_rows(
        xh, factor, count, columns, w0, type0, rows0, bias0, biased0, out0, stride0, w1, type1, rows1, bias1, biased1, out1,
        stride1, w2, type2, rows2, bias2, biased2, out2, stride2, mode, act, scale, splits, each, order, cut, next0, next1,
        bias_stride,
    ):  # fmt: skip
        ptx.pdl_launch()
        tid = int32(cuda.threadIdx.x)
        parts = cuda.shared.array(all_sums, float32, alignment=16)
        raw = cuda.local.array(all_words, uint32)
        sums = cuda.local.array(all_floats, float32)
        row, under = cuda.local.array(pairs, int64), cuda.local.array(pairs, int32)
        far = cuda.local.array(groups, int32)
        expert, start = int32(0), int32(0)
        if not routed:
            each = int32(0)
        if each > 0:
            ptx.pdl_wait()
            expert, start, count = tile_of(cut, int32(cuda.blockIdx.y))
            if count == 0:
                return
        tiles0, tiles1 = int32(int32(rows0 + 15) >> 4), int32(int32(rows1 + 15) >> 4)
        tiles = int32(tiles0 + tiles1 + int32(int32(rows2 + 15) >> 4))
        log_splits = int32(ptx.popc(uint32(splits - 1)))
        shift = int32(3 - log_splits)  # a unit is 2 ** shift times `pairs` tiles
        unit = int32(int32(cuda.blockIdx.x) << shift)
        share = int32((tid >> 5) & (splits - 1))
        for p in range(pairs):
            index = int32(min(int32((unit + (tid >> (5 + log_splits))) * pairs + p), int32(tiles - 1)))
            segment, at = locate(index, mode, tiles0, tiles1)
            r, below = lane_rows(at, int32((tid >> 2) & 7), pick(segment, rows0, rows1, rows2))
            matrix = ptx.address(pick(segment, w0, w1, w2), pick(segment, next0, next1, int64(0)) * expert)
            if p == 0:
                row[p], under[p] = first(matrix, r, below, share, columns, int32(tid & 3), raw)
            else:
                row[p], under[p] = second(matrix, r, below, share, columns, int32(tid & 3), raw)
        stage(tid)
        if staged:
            cuda.syncthreads()
        ptx.pdl_wait()
        for i in range(all_floats):
            sums[i] = float32(0)
        near = aim(xh, far, groups, order, start, each, count, columns, int32(tid & 31))
        tile(near, far, count, row, under, share, splits, columns, int32(tid & 31), raw, sums)
        tid = ptx.opaque(int32(cuda.threadIdx.x))
        for i in range(all_floats):  # sums: [tile][eight tokens][g, g + 8][tokens 2t, 2t + 1]
            token = 8 * (i % floats >> 2) + 2 * (tid & 3) + (i & 1)
            inside = i // floats * tile_sums + 16 * token + ((tid >> 2) & 7) + 8 * ((i >> 1) & 1)
            parts[uint32((tid >> 5) * warp_sums + inside)] = sums[i]
        cuda.syncthreads()
        done, offset = int32(tid), int32(expert * bias_stride)
        while done < int32(warp_sums << shift):
            index, inside = int32(done // tile_sums), int32(done & (tile_sums - 1))  # tile of the unit, place in it
            token = int32(inside >> 4)
            if token < count and (mode == 2 or unit * pairs + index < tiles):
                segment, at = locate(int32(unit * pairs + index), mode, tiles0, tiles1)
                output = int32(16 * at + (inside & 15))
                if output < pick(segment, rows0, rows1, rows2) and (mode != 2 or segment == 0):
                    source, goal = token, token
                    if each > 0:
                        goal = int32(ptx.ld32(order, int32(start + token)))
                        source = ptx.quotient(goal, each)
                    grow = factor[source]
                    value = float32(value_of(parts, index, log_splits, inside) * grow)
                    if pick(segment, biased0, biased1, biased2):
                        value += pick(segment, bias0, bias1, bias2)[int32(output + offset)]
                    place = int64(goal) * pick(segment, stride0, stride1, stride2) + output
                    out = pick(segment, out0, out1, out2)
                    if mode == 2:
                        up = float32(value_of(parts, int32(index + 1), log_splits, inside) * grow)
                        if biased1:
                            up += bias1[int32(output + offset)]
                        value = float32(activated(act, value) * up)
                    old, weight = float32(0), float32(1)
                    if mode == 1:
                        old, weight = out[place], scale
                    out[place] = ptx.fmaf(weight, value, old)  # no -0, as linear_tiles has none
            done = int32(done + THREADS)

    linear_rows.__module__ = module
    return linear_rows


SIGNATURE = "UFii" + "BiiFiFi" * 3 + "iifi" + "iIIlli"
for _tokens in (8, 16):
    for _format in TILED:
        kernel(SIGNATURE, threads=THREADS, blocks=2, name=f"linear_rows_{_tokens}_{_format.block.name}")(made(_format, _tokens, 1))
