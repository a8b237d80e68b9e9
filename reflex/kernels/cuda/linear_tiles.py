"""linear_tiles_<TOKENS>: y = W h + b for many tokens, on tensor cores, straight from the blocks of up to three matrices.

h is given by `halves` (xh, factor) for `count` tokens of `columns` values; columns: a multiple of 32 and of the types'
blocks. Each matrix is (weights, ggml type, rows, bias, biased, out, stride): out[token * stride + row]; unused ones have
0 rows. mode 0: out = y + bias; 1: out += scale * (y + bias); 2: out0 = act(y0) * y1 of two matrices of equal type and rows
(act 0 silu, 1 gelu).

A block computes R weight rows (in mode 2 R / 2 of both matrices) for TOKENS tokens: R is 64 for 32 tokens (32 in `_narrow`,
for matrices of few rows: more blocks, each reading all tokens), 128 for 64. Grid:
(ceil(count / TOKENS), sum over the matrices of ceil(rows / R)), in mode 2 (.., ceil(2 * rows0 / R)). Dynamic shared memory:
65536 bytes. The weights are read before the kernel waits for the one in front.

Weights are the A operand (quant/fragment.py): a warp turns its own 32 rows into float16 in registers, nothing is
converted twice in a block. Tokens are the B operand: they pass through shared memory in stages of 128 columns, ahead of
their use; words of the weights are asked for one or two chunks ahead. `splits` groups of warps share the rows of a block
and take steps in turn; their sums are added in order at the end.
"""

from functools import cache
from struct import pack

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device
from .fragments import bound
from .gated import FORMULAS

SIGNATURE = "UFii" + 3 * "BiiFiFi" + "iif"
FORMATS = [f for f in bound().values() if f.record.tiled]
SHRUNK = 2.0**-9  # codes are halves of code * 2**-24 * gain; they become code * SHRUNK, scales are divided by it
STAGE_COLUMNS = 128
STAGE_WORDS, STAGE_PIECES, PIECE_BITS = 64, 16, 4  # of a token in a stage
LINE = 36  # words of 32 rows in shared memory, so that 4 lanes' tokens and 8 rows meet no bank twice
BATCH = 8  # tokens whose results are written together
LANE_ROWS = 4  # rows that a lane holds: g, g + 8, g + 16, g + 24
RAW = max(LANE_ROWS * (f.record.head + f.record.words) for f in FORMATS)
silu, gelu = FORMULAS.values()


def halves_of(value):
    """Two float16 of this value, as a word."""
    return int.from_bytes(2 * pack("<e", value), "little")


class Shape:
    """Tokens of a block, warps along its rows, groups of warps that share the columns, stages of tokens in shared memory."""

    def __init__(self, tokens, row_warps, splits, stages):
        self.tokens, self.row_warps, self.splits, self.stages = tokens, row_warps, splits, stages
        self.threads = 32 * row_warps * splits
        self.rows = 32 * row_warps


@cache
def _weights(format):
    """Device function: a lane's halves of one row in a unit, from its codes."""
    record = format.record
    plain, with_minimum, codes = record.offset is None, record.minimum, format.codes
    raised = record.raised
    gain, raised_gain, less = (halves_of(v) for v in (SHRUNK * 2.0**24, SHRUNK * 2.0**20, -SHRUNK * (record.offset or 0)))

    def weights(raw, head, o, c, j, shift, scale, minimum):
        w0, w1, w2, w3 = codes(raw, head, o, c, j, int32(cuda.threadIdx.x & 3), shift)
        if not plain:
            grow, sink = uint32(gain), uint32(less)
            if raised and j == 1:
                grow = uint32(raised_gain)
            w0, w1 = ptx.fma2(w0, grow, sink), ptx.fma2(w1, grow, sink)
            w2, w3 = ptx.fma2(w2, grow, sink), ptx.fma2(w3, grow, sink)
            if with_minimum:
                w0, w1 = ptx.fma2(w0, scale, minimum), ptx.fma2(w1, scale, minimum)
                w2, w3 = ptx.fma2(w2, scale, minimum), ptx.fma2(w3, scale, minimum)
            else:
                w0, w1, w2, w3 = ptx.mul2(w0, scale), ptx.mul2(w1, scale), ptx.mul2(w2, scale), ptx.mul2(w3, scale)
        return w0, w1, w2, w3

    return device(weights)


def fetcher(shape):
    """Device function: tokens' words of a stage, from `column` on, into shared memory; zeros behind the last column and token.
    Pieces of 16 bytes trade places in odd tokens, so that two tokens do not meet in a bank."""
    pieces, piece_rows = shape.tokens * STAGE_PIECES // (32 * shape.row_warps), 32 * shape.row_warps // STAGE_PIECES

    def fetch(xh, sh, to, column, count, columns, token0, tid):
        line = int32(((columns + 31) & -32) >> 1)
        piece, row = int32(tid & (STAGE_PIECES - 1)), int32(tid >> PIECE_BITS)
        column += int32(piece * 4)
        left = int32(count - token0 - row)
        if column >= line:
            left = int32(0)
        x = ptx.address(xh, int64(token0 + row) * line + column)
        for i in range(pieces):
            size = uint32(16)
            if i * piece_rows >= left:
                size = uint32(0)
            goal = int32(to + (row + i * piece_rows) * STAGE_WORDS + 4 * (piece ^ (6 * ((row + i * piece_rows) & 1))))
            ptx.cp_async16z(sh, goal, x, int32(i * piece_rows * line * 4), size)

    return device(fetch)


@cache
def _scales(format):
    """Device functions: a lane keeps its columns' scales of a part, as halves; (scale, minimum) of a row in a unit, each twice."""
    record, scales = format.record, format.scales
    head, split, with_minimum, grow = record.head, record.split, record.minimum, 1 / SHRUNK

    def keep(raw, t, part, kept):
        for r in range(LANE_ROWS):
            s0, s1, m0, m1 = scales(raw, r * head, t, part)
            s0, s1 = float32(s0 * float32(grow)), float32(s1 * float32(grow))
            if with_minimum:
                kept[2 * r], kept[2 * r + 1] = ptx.f2h2(s0, m0), ptx.f2h2(s1, m1)
            else:
                kept[2 * r] = ptx.f2h2(s0, s1)

    def hand_out(kept, r, unit, lane):
        odd = int32(unit & 1)
        source = int32((lane & 28) | (unit >> 1))
        if split:
            odd = int32((lane >> 1) & 1)
            source = int32((lane & 28) | unit)
        if with_minimum:
            first, second = kept[2 * r], kept[2 * r + 1]
            if split:  # lanes differ in which one they need
                first, second = ptx.shfl_idx_u(first, source), ptx.shfl_idx_u(second, source)
            if odd:
                first = second
            if not split:
                first = ptx.shfl_idx_u(first, source)
            return ptx.prmt(first, first, uint32(0x1010)), ptx.prmt(first, first, uint32(0x3232))
        both = ptx.shfl_idx_u(kept[2 * r], source)
        return ptx.prmt(both, both, uint32(0x1010 + 0x2222 * odd)), uint32(0)

    return device(keep), device(hand_out)


def _multiply(shape):
    """Device function: products of a warp's 32 rows (halves a) and a unit's columns of all tokens, added to its sums."""
    tiles = shape.tokens // 8

    def multiply(a, sh, from_x, sums):
        b = cuda.local.array(16, uint32)
        for n in range(0, tiles, 4):
            for i in range(4):
                b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3] = ptx.lds128(sh, int32(from_x + (n + i) * 8 * STAGE_WORDS))
            for s in range(2):
                for i in range(4):
                    for m in range(2):
                        k, p, q, x = 4 * (m * tiles + n + i), 8 * m + 2 * s, 8 * m + 4 + 2 * s, 4 * i + 2 * s
                        sums[k], sums[k + 1], sums[k + 2], sums[k + 3] = ptx.mma_f16(
                            a[p], a[q], a[p + 1], a[q + 1], b[x], b[x + 1], sums[k], sums[k + 1], sums[k + 2], sums[k + 3]
                        )

    return device(multiply)


def looper(format, rest, shape, fetch):
    """Device function that adds a warp's products over its steps to `sums`, for this format or by `rest`; fetch is that of
    `fetcher`, or like it."""
    record, id = format.record, format.block.id
    head, words, chunks, planes, elements = record.head, record.words, record.chunks, record.planes, record.elements
    block, nbytes = format.block.elements, format.block.nbytes
    place, load_head, load_chunk = format.place, format.load_head, format.load_chunk
    weights, multiply = _weights(format), _multiply(shape)
    keep, hand_out = _scales(format)
    hop, c_units, j_units, plain = record.hop == 32, record.c_units, record.j_units, record.offset is None
    part_chunks, part_units = chunks // record.parts, elements // record.parts // 32
    half_steps = 1 if block > elements else 0  # log2 of the steps in a block
    step_bytes = max(elements // block, 1) * nbytes
    heads, chunk_words = LANE_ROWS * head, LANE_ROWS * words  # raw: what all units of a step share, then a chunk
    heads_or_one = max(heads, 1)  # an array has a length
    deep = words <= 2 or shape.tokens == 32  # are there registers for the words of two chunks ahead?
    distance = 2 if deep else 1
    splits, stages, group = shape.splits, shape.stages, 32 * shape.row_warps
    group_bits = group.bit_length() - 1
    region, ring = shape.tokens * STAGE_WORDS, shape.stages * shape.tokens * STAGE_WORDS
    stage_chunks, stage_bits = chunks * STAGE_COLUMNS // elements, elements // STAGE_COLUMNS - 1  # log2 of the stages in a step
    last_stage = (1 << stage_bits) - 1
    ready = stages - 2

    @device
    def ask(xh, sh, to, stage, there, goal, warps, count, columns, token0, tid):
        """Start the next stage's way into shared memory; returns the stage after it and its place."""
        if stage < goal:
            column = int32(((stage >> stage_bits) * splits + warps) * (elements // 2) + (stage & last_stage) * STAGE_WORDS)
            fetch(xh, sh, int32(to + there), column, count, columns, token0, tid)
        ptx.cp_async_commit()
        there = int32(there + region)
        if there == ring:
            there = int32(0)
        return int32(stage + 1), there

    def loop(type, row, xh, sh, count, columns, token0, tid, raw, sums):
        if type == id:
            lane, t = int32(tid & 31), int32(tid & 3)
            warps = int32(tid >> group_bits)  # which group
            mine = int32(tid & (group - 1))
            kept = cuda.local.array(8, uint32)
            a = cuda.local.array(16, uint32)
            following = cuda.local.array(heads_or_one, uint32)  # what the next step needs; words of the next two chunks
            near = cuda.local.array(chunk_words, uint32)
            late = cuda.local.array(chunk_words, uint32)
            last = int32(columns // block - 1)
            steps = int32((columns + elements - 1) // elements)
            step = int32(min(warps, int32(steps - 1)))
            for r in range(LANE_ROWS):
                at = place(row[r], step, t)
                load_head(at, step, t, last, uint32(1), raw, r * head)
                load_chunk(at, step, t, last, int32(0), uint32(1), raw, heads + r * words)
                if deep:
                    load_chunk(at, step, t, last, int32(1), uint32(1), near, r * words)
            ptx.pdl_wait()
            g = int32(lane >> 2)
            odd = int32(g & 1)
            to = int32(warps * ring)
            x_at = int32(to + g * STAGE_WORDS + 4 * (t ^ (2 * odd)))
            if hop:
                x_at = int32(to + g * STAGE_WORDS + 4 * (t & 1) + 16 * ((t >> 1) ^ odd))
            goal = int32(((steps + splits - 1) // splits) << stage_bits)  # stages of this group
            stage, there, now = int32(0), int32(0), int32(-region)  # the next to fetch, its place; that of the present one
            for _ in range(stages - 1):
                stage, there = ask(xh, sh, to, stage, there, goal, warps, count, columns, token0, mine)
            index = int32(warps)  # of the step, behind the last one too, so that all warps meet at the barriers
            while index < steps + warps:
                step = int32(min(index, int32(steps - 1)))
                coming = int32(min(int32(index + splits), int32(steps - 1)))
                for r in range(LANE_ROWS):
                    load_head(place(row[r], coming, t), coming, t, last, uint32(1), following, r * head)
                c = int32(0)
                while c < chunks:
                    if c & (stage_chunks - 1) == 0:
                        ptx.cp_async_wait(ready)
                        cuda.syncthreads()
                        stage, there = ask(xh, sh, to, stage, there, goal, warps, count, columns, token0, mine)
                        now = int32(now + region)
                        if now == ring:
                            now = int32(0)
                    if not plain and c & (part_chunks - 1) == 0:
                        keep(raw, t, int32(c // part_chunks), kept)
                    soon, soon_c = step, int32(c + distance)
                    if soon_c >= chunks:
                        soon, soon_c = coming, int32(soon_c - chunks)
                    for r in range(LANE_ROWS):
                        load_chunk(place(row[r], soon, t), soon, t, last, soon_c, uint32(1), late, r * words)
                    for j in range(planes):
                        unit = int32(c_units * (c & (part_chunks - 1)) + j_units * j)
                        if hop:
                            unit = int32(c & (part_chunks - 1))
                        for r in range(LANE_ROWS):
                            scale, minimum = uint32(0), uint32(0)
                            if not plain:
                                scale, minimum = hand_out(kept, r, unit, lane)
                            shift = uint32(int32(int32(row[r] + int64(step >> half_steps) * step_bytes) & 2) << 3)
                            a[4 * r], a[4 * r + 1], a[4 * r + 2], a[4 * r + 3] = weights(
                                raw, r * head, heads + r * words, c, j, shift, scale, minimum
                            )
                        from_x = int32(now + x_at + 16 * (((int32(c // part_chunks) * part_units + unit) & 3) ^ odd))
                        if hop:
                            from_x = int32(now + x_at + 32 * (c & 1) + 8 * (j ^ odd))
                        multiply(a, sh, from_x, sums)
                    for i in range(chunk_words):
                        raw[heads + i] = late[i]
                        if deep:
                            raw[heads + i] = near[i]
                            near[i] = late[i]
                    c = int32(c + 1)
                for i in range(heads):
                    raw[i] = following[i]
                index = int32(index + splits)
        else:
            rest(type, row, xh, sh, count, columns, token0, tid, raw, sums)

    return device(loop)


@device
def no_loop(type, row, xh, sh, count, columns, token0, tid, raw, sums):
    ptx.pdl_wait()


@device
def bytes_of_row(type, columns):
    """Bytes of a row of this type."""
    return int64(0)


def row_bytes_of(format, rest):
    id, nbytes, elements = format.block.id, format.block.nbytes, format.block.elements

    def row_bytes(type, columns):
        if type == id:
            return int64(columns // elements) * nbytes
        return rest(type, columns)

    return device(row_bytes)


@device
def activated(act, x):
    if act == 0:
        return silu(x)
    return gelu(x)


@device
def own_place(sh, token):
    """The row of the results that is a token's."""
    return int64(token)


@device
def own_factor(factor, sh, token):
    """What a token's products are multiplied by."""
    return factor[token]


def finisher(shape, place_of, factor_of):
    """Device function: the sums of a block through shared memory to `out`, added over the groups of warps in their order."""
    splits, row_warps, tokens = shape.splits, shape.row_warps, shape.tokens
    tiles, share = tokens // 8, tokens // splits
    warp_words = tokens * LINE  # of a warp's sums in shared memory: LINE for each token
    group_words = row_warps * warp_words
    group_bits = (32 * row_warps).bit_length() - 1

    @device
    def total(sh, at):
        value = ptx.ldsf(sh, at)
        for k in range(1, splits):
            value += ptx.ldsf(sh, int32(at + k * group_words))
        return value

    def epilogue(
        sums, sh, tid, factor, count, token0, row0, rows, bias, biased, bias1, biased1, skipped, out, stride, mode, act, scale
    ):
        """skipped: floats before the first row's in both biases."""
        lane, warp, split = int32(tid & 31), int32((tid >> 5) & (row_warps - 1)), int32(tid >> group_bits)
        value, grow = cuda.local.array(BATCH, float32), cuda.local.array(BATCH, float32)
        old = cuda.local.array(BATCH, float32)
        place = int32((tid >> 5) * warp_words + 2 * LINE * (lane & 3) + (lane >> 2))
        cuda.syncthreads()
        for m in range(2):
            for n in range(tiles):
                k = 4 * (m * tiles + n)
                to = int32(place + 16 * m + 8 * n * LINE)
                ptx.stsf(sh, to, sums[k])
                ptx.stsf(sh, int32(to + LINE), sums[k + 1])
                ptx.stsf(sh, int32(to + 8), sums[k + 2])
                ptx.stsf(sh, int32(to + LINE + 8), sums[k + 3])
        cuda.syncthreads()
        row = int32(row0 + lane)
        k, step = int32(split * share), int32(1)
        at = int32(warp * warp_words + lane)
        if mode == 2:  # 16 rows of two tokens
            row, k, step, at = int32(row0 + (lane & 15)), int32(k + (lane >> 4)), int32(2), int32(warp * warp_words + (lane & 15))
        more, more1 = float32(0), float32(0)
        if row < rows:
            if biased:
                more = bias[int32(row + skipped)]
            if mode == 2 and biased1:
                more1 = bias1[int32(row + skipped)]
        end = int32(min(int32((split + 1) * share), int32(count - token0)))
        weight = float32(1)
        if mode == 1:
            weight = scale
        while k < end and row < rows:
            for i in range(BATCH):  # all loads before the first use
                token = int32(min(int32(k + i * step), int32(end - 1)))
                value[i], old[i] = total(sh, int32(at + token * LINE)), float32(0)
                grow[i] = factor_of(factor, sh, int32(token0 + token))
            if mode == 1:
                for i in range(BATCH):
                    token = int32(min(int32(k + i * step), int32(end - 1)))
                    old[i] = out[place_of(sh, int32(token0 + token)) * stride + row]
            for i in range(BATCH):
                value[i] = value[i] * grow[i] + more
            if mode == 2:
                for i in range(BATCH):
                    token = int32(min(int32(k + i * step), int32(end - 1)))
                    value[i] = float32(activated(act, value[i]) * (total(sh, int32(at + 16 + token * LINE)) * grow[i] + more1))
            for i in range(BATCH):
                if k + i * step < end:
                    out[place_of(sh, int32(token0 + k + i * step)) * stride + row] = ptx.fmaf(weight, value[i], old[i])
            k = int32(k + BATCH * step)

    return device(epilogue)


def product(shape, module):
    """The kernel of a shape, for the file `module` (a kernel's image is that of its file)."""
    loop, row_bytes = no_loop, bytes_of_row
    fetch = fetcher(shape)
    for format in reversed(FORMATS):
        loop, row_bytes = looper(format, loop, shape, fetch), row_bytes_of(format, row_bytes)
    epilogue = finisher(shape, own_place, own_factor)
    row_warps, tokens, block_rows = shape.row_warps, shape.tokens, shape.rows

    @device
    def locate(tile, warp, rows0, rows1, mode):
        """(matrix, first row of a warp) of a block."""
        segment = int32(0)
        if mode != 2 and tile * block_rows >= rows0:
            segment, tile = int32(1), int32(tile - int32(rows0 + block_rows - 1) // block_rows)
            if tile * block_rows >= rows1:
                segment, tile = int32(2), int32(tile - int32(rows1 + block_rows - 1) // block_rows)
        row0 = int32(tile * block_rows + warp * 32)
        if mode == 2:
            row0 = int32(row0 >> 1)
        return segment, row0

    count_sums = tokens  # of a lane: 32 rows x tokens / 32 lanes

    def linear_tiles(
        xh, factor, count, columns, w0, type0, rows0, bias0, biased0, out0, stride0, w1, type1, rows1, bias1, biased1,
        out1, stride1, w2, type2, rows2, bias2, biased2, out2, stride2, mode, act, scale,
    ):  # fmt: skip
        ptx.pdl_launch()
        tid = int32(cuda.threadIdx.x)
        lane, warp = int32(tid & 31), int32((tid >> 5) & (row_warps - 1))
        g = int32(lane >> 2)
        sh = cuda.shared.array(0, uint32, alignment=128)
        raw = cuda.local.array(RAW, uint32)
        row_at = cuda.local.array(LANE_ROWS, int64)
        sums = cuda.local.array(count_sums, float32)
        for k in range(count_sums):
            sums[k] = float32(0)
        token0 = int32(cuda.blockIdx.x * tokens)
        segment, row0 = locate(int32(cuda.blockIdx.y), warp, rows0, rows1, mode)
        w, type, rows = w0, type0, rows0
        if segment == 1:
            w, type, rows = w1, type1, rows1
        elif segment == 2:
            w, type, rows = w2, type2, rows2
        line = row_bytes(type, columns)
        for r in range(LANE_ROWS):
            row = int32(row0 + g + 8 * r)
            matrix = w
            if mode == 2:
                row = int32(row0 + g + 8 * (r & 1))
                if r >= 2:
                    matrix = w1
            row_at[r] = ptx.address(matrix, int64(min(row, int32(rows - 1))) * line)
        loop(type, row_at, xh, sh, count, columns, token0, tid, raw, sums)
        # Found again, so that it needs no registers in the loop.
        segment, row0 = locate(ptx.opaque(int32(cuda.blockIdx.y)), warp, rows0, rows1, mode)
        rows, bias, biased, out, stride = rows0, bias0, biased0, out0, stride0
        if segment == 1:
            rows, bias, biased, out, stride = rows1, bias1, biased1, out1, stride1
        elif segment == 2:
            rows, bias, biased, out, stride = rows2, bias2, biased2, out2, stride2
        epilogue(
            sums, sh, tid, factor, count, token0, row0, rows, bias, biased, bias1, biased1, int32(0), out, stride, mode, act,
            scale,
        )

    linear_tiles.__module__ = module
    return linear_tiles
