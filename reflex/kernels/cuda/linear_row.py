"""linear_row_<TYPE>: y = W x for one row of activations, straight from the blocks of up to three matrices of that type with
the same input; linear_row_32, linear_row_256: the same for matrices of any types with blocks of that many weights.

x: float32[columns]; when `normed` it is first multiplied by norm[columns] and divided by its root mean square (eps). Each
matrix is (weights, ggml type, rows, bias, biased, out); unused ones have 0 rows. columns: a multiple of the types' blocks
and of 32. mode 0: out = y + bias; 1: out += scale * (y + bias), out not being x; 2: out0 = act(y0) * y1 of two matrices of
equal rows (act 0 silu, 1 gelu).

A tile is 16 rows; a block of 8 warps takes 8 / splits tiles at a time, each shared by `splits` warps (1, 2, 4 or 8; at
most 4 in mode 2, whose tiles are gate and up in turn), and, where all have one type, goes on with the tiles `grid` units
further. So the grid may then be anything up to ceil(tiles * splits / 8), tiles being the sum of ceil(rows / 16); of the
kernels for mixed types it must be just that. Dynamic shared memory: 1664 bytes and
9/4 per column, columns rounded up to 256.

Weights are the A operand (quant/fragment.py); B holds x in all columns at once: column n is x where the codes of column n
of a step lie and 0 elsewhere, so that one product gives each scale's sum by itself. The next units' words are asked for as
soon as a unit's are used, the first ones before the kernel waits for its input.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device, kernel
from .fragments import bound, stager
from .gated import FORMULAS

WARPS = 8
THREADS = 32 * WARPS
FORMATS = bound()
TILED = [f for f in FORMATS.values() if f.record.tiled]
ROOMY = 40  # words of a step that a lane holds, above which a multiprocessor has room for one block less
# words of shared memory: two passes' results of each warp; each warp's sum of squares; what undoes the scaling; what mode 1
# adds to; each warp's unit and its turn; zeros, for lanes whose column is not meant; activations
SQUARES = 2 * WARPS * 16
GROW = SQUARES + WARPS
BEFORE = GROW + 4
TURNS = BEFORE + 16 * WARPS
ZEROS = TURNS + 2 * WARPS
X_AT = ZEROS + 4  # of each 128: 64 words of halves, 8 sums of 16
LINE = 72
silu, gelu = FORMULAS.values()


def held(formats):
    return max(2 * (f.record.head + f.record.chunks * f.record.words) for f in formats)


def first_step(format, rest, mixed, o=0):
    """Device function that reads a tile's first step to `raw` from place `o` on, for this format or by `rest`."""
    record, id = format.record, format.block.id
    head, words, chunks, elements = record.head, record.words, record.chunks, record.elements
    block_shift, element_shift = format.block.elements.bit_length() - 1, elements.bit_length() - 1
    nbytes = format.block.nbytes
    place, load_head, load_chunk = format.place, format.load_head, format.load_chunk

    def first(type, w, r, below, step, columns, t, raw):
        """r: the lane's row; below: how far below its second one is. Returns both as an address and a distance in bytes."""
        if type == id or not mixed:
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
        return rest(type, w, r, below, step, columns, t, raw)

    return device(first)


def _scaled(format):
    """Device function: sums of rows g and g + 8 with the products (c0 .. c3) of a part's columns added."""
    head, scales = format.record.head, format.scales
    raised, split = format.record.raised, format.record.split
    narrow = format.record.elements // format.record.parts == 128  # columns of 16
    unit = float32(2.0**24)  # halves are 2**-24 of the codes
    raised_unit = float32(2.0**20)
    less, with_minimum = float32(-format.record.offset), format.record.minimum

    def scaled(y, y8, raw, part, t, sh, line, c0, c1, c2, c3):
        s0, s1, m0, m1 = scales(raw, int64(0), t, part)
        u0, u1, n0, n1 = scales(raw, int64(head), t, part)
        even, odd = unit, unit
        if raised and split and t >= 2:
            even, odd = raised_unit, raised_unit
        if raised and not split:
            odd = raised_unit
        if narrow:
            e0, e1 = ptx.lds64(sh, int32(line + 64 + 2 * t))
            sum0, sum1 = ptx.bits2f(e0), ptx.bits2f(e1)
        else:
            e0, e1, e2, e3 = ptx.lds128(sh, int32(line + LINE * (t >> 1) + 64 + 4 * (t & 1)))
            sum0 = float32(ptx.bits2f(e0) + ptx.bits2f(e1))
            sum1 = float32(ptx.bits2f(e2) + ptx.bits2f(e3))
        if not with_minimum:
            sum0, sum1 = float32(less * sum0), float32(less * sum1)
            y = ptx.fmaf(s1, ptx.fmaf(c1, odd, sum1), ptx.fmaf(s0, ptx.fmaf(c0, even, sum0), y))
            y8 = ptx.fmaf(u1, ptx.fmaf(c3, odd, sum1), ptx.fmaf(u0, ptx.fmaf(c2, even, sum0), y8))
        else:
            y = ptx.fmaf(s0, float32(c0 * even), ptx.fmaf(m0, sum0, y))
            y = ptx.fmaf(s1, float32(c1 * odd), ptx.fmaf(m1, sum1, y))
            y8 = ptx.fmaf(u0, float32(c2 * even), ptx.fmaf(n0, sum0, y8))
            y8 = ptx.fmaf(u1, float32(c3 * odd), ptx.fmaf(n1, sum1, y8))
        return y, y8

    return device(scaled)


@device
def unscaled(y, y8, raw, part, t, sh, line, c0, c1, c2, c3):
    return float32(y + (c0 + c1)), float32(y8 + (c2 + c3))


def _tile(format, rest, mixed):
    """Device function for a warp's share of a tile, whose first step is read already: sums of rows g and g + 8 over the
    lane's columns."""
    record, id = format.record, format.block.id
    head, words, planes, elements, parts = record.head, record.words, record.planes, record.elements, record.parts
    part_chunks, part_words, step_words = record.chunks // parts, elements // parts // 128 * LINE, elements // 128 * LINE
    c_units, j_units, split, blocks_of_lanes = record.c_units, record.j_units, record.split, record.hop == 32
    block, nbytes = format.block.elements, format.block.nbytes
    block_shift = block.bit_length() - 1
    half_steps = block // elements - 1 if block > elements else 0  # log2 of the steps in a block
    step_bytes = max(elements // block, 1) * nbytes
    place, load_head, load_chunk, codes = format.place, format.load_head, format.load_chunk, format.codes
    scaled = unscaled if record.offset is None else _scaled(format)

    def tile(type, row, under, first, splits, columns, lane, raw, sh):
        y, y8 = float32(0), float32(0)
        if mixed and type != id:
            return rest(type, row, under, first, splits, columns, lane, raw, sh)
        last = int32(int32(columns >> block_shift) - 1)
        g, t = int32(lane >> 2), int32(lane & 3)
        # the unit of the lane's column, and where its activations are
        mine, x_at = g, int32(X_AT + LINE * (g >> 2) + 16 * (g & 3) + 4 * t)
        if split:
            mine, x_at = int32(g >> 1), int32(X_AT + 16 * (g >> 1) + 4 * t)
            if blocks_of_lanes:
                x_at = int32(X_AT + LINE * (g >> 2) + 16 * ((g & 2) + (t >> 1)) + 4 * (t & 1))
            if (g & 1) != (t >> 1):
                mine = int32(-1)
        step = first
        while int32(step * elements) < columns:
            coming = int32(step + splits)
            wanted = uint32(int32(coming * elements) < columns)
            at = place(row, coming, t)
            at8 = at + under
            shift = uint32(uint32((int32(row) + (step >> half_steps) * step_bytes) & 2) << uint32(3))
            for part in range(parts):
                a0, a1, a2, a3 = float32(0), float32(0), float32(0), float32(0)
                b0, b1, b2, b3 = float32(0), float32(0), float32(0), float32(0)
                for k in range(part_chunks):
                    c = part * part_chunks + k
                    o = 2 * (head + c * words)
                    for j in range(planes):
                        p0, p1, p2, p3 = codes(raw, int64(0), o, c, j, t, shift)  # for a literal Numba compiles it anew
                        q0, q1, q2, q3 = codes(raw, int64(head), o + words, c, j, t, shift)
                        from_x = int32(ZEROS)
                        if blocks_of_lanes:
                            if mine == int32(k):
                                from_x = int32(x_at + step * step_words + part * part_words + 8 * j)
                        elif mine == int32(c_units * k + j_units * j):
                            from_x = int32(x_at + step * step_words + part * part_words)
                        x0, x1, x2, x3 = ptx.lds128(sh, from_x)
                        a0, a1, a2, a3 = ptx.mma_f16(p0, q0, p1, q1, x0, x1, a0, a1, a2, a3)
                        b0, b1, b2, b3 = ptx.mma_f16(p2, q2, p3, q3, x2, x3, b0, b1, b2, b3)
                    load_chunk(at, coming, t, last, c, wanted, raw, o)
                    load_chunk(at8, coming, t, last, c, wanted, raw, o + words)
                y, y8 = scaled(
                    y, y8, raw, part, t, sh, int32(X_AT + step * step_words + part * part_words), float32(a0 + b0),
                    float32(a1 + b1), float32(a2 + b2), float32(a3 + b3),
                )  # fmt: skip
            load_head(at, coming, t, last, wanted, raw, int64(0))
            load_head(at8, coming, t, last, wanted, raw, int64(head))
            step = coming
        return y, y8

    return device(tile)


@device
def no_first(type, w, r, below, step, columns, t, raw):
    return ptx.address(w, int64(0)), int32(0)


@device
def no_tile(type, row, under, first, splits, columns, lane, raw, sh):
    return float32(0), float32(0)


@device
def activated(act, x):
    if act == 0:
        return silu(x)
    return gelu(x)


@device
def normal(x, norm, normed, i, columns):
    """Four activations, times the norm's weights when `normed`, and the sum of their squares before that."""
    a, b, c, d = float32(0), float32(0), float32(0), float32(0)
    squares = float32(0)
    if i < columns:
        a, b, c, d = ptx.ldf4(x, i)
        squares = float32((a * a + b * b) + (c * c + d * d))
        if normed:
            e, f, g, h = ptx.ldgf4(norm, i)
            a, b, c, d = a * e, b * f, c * g, d * h
    return a, b, c, d, squares


@device
def prepare(x, norm, normed, columns, sh):
    """The activations as float16 (order 0, 2, 1, 3 in each four) and their sums of 16 in shared memory, with what
    undoes the scaling and each warp's sum of squares."""
    tid = ptx.opaque(int32(cuda.threadIdx.x))
    padded = int32((columns + 255) & -256)
    first = int32(tid * 4)
    a0, b0, c0, d0, squares = normal(x, norm, normed, first, columns)
    most = max(max(abs(a0), abs(b0)), max(abs(c0), abs(d0)))
    i = int32(first + 4 * THREADS)
    while i < columns:
        a, b, c, d, more = normal(x, norm, normed, i, columns)
        squares += more
        most = max(most, max(max(abs(a), abs(b)), max(abs(c), abs(d))))
        i = int32(i + 4 * THREADS)
    most = ptx.bits2f(ptx.redux_max(ptx.f2bits(most)))
    if tid & 31 == 0:
        ptx.stsf(sh, int32(tid >> 5), most)
    if tid < 4:
        ptx.sts32(sh, int32(ZEROS + tid), uint32(0))
    cuda.syncthreads()
    for k in range(WARPS // 4):
        a, b, c, d = ptx.ldsf4(sh, int32(4 * k))
        most = max(most, max(max(a, b), max(c, d)))
    exponent = int32(max(int32(ptx.f2bits(most) >> uint32(23)), int32(15)))  # biased by 127
    shrink = ptx.bits2f(uint32(int32(268 - exponent) << 23))
    i = first
    while i < int32((padded + 1023) & -1024):
        a, b, c, d = a0, b0, c0, d0
        if i != first:
            a, b, c, d, more = normal(x, norm, normed, i, columns)
        ac = ptx.f2h2(float32(a * shrink), float32(c * shrink))
        bd = ptx.f2h2(float32(b * shrink), float32(d * shrink))
        total = float32((ptx.h2f_lo(ac) + ptx.h2f_lo(bd)) + (ptx.h2f_hi(ac) + ptx.h2f_hi(bd)))
        total += ptx.shfl_xor(total, int32(1))
        total += ptx.shfl_xor(total, int32(2))
        if i < padded:
            ptx.sts64(sh, int32(X_AT + LINE * (i >> 7) + ((i & 127) >> 1)), ac, bd)
            if tid & 3 == 0:
                ptx.stsf(sh, int32(X_AT + LINE * (i >> 7) + 64 + ((i & 127) >> 4)), total)
        i = int32(i + 4 * THREADS)
    for k in range(5):
        squares += ptx.shfl_xor(squares, int32(16 >> k))
    if tid & 31 == 0:
        ptx.stsf(sh, int32(SQUARES + (tid >> 5)), squares)
    if tid == 0:
        ptx.sts32(sh, GROW, uint32(int32(exponent - 14) << 23))
    cuda.syncthreads()


@device
def undone(sh, normed, eps, columns):
    """What products of the prepared activations are multiplied by."""
    factor = ptx.ldsf(sh, GROW)
    if normed:
        squares = float32(0)
        for k in range(WARPS // 4):
            a, b, c, d = ptx.ldsf4(sh, int32(SQUARES + 4 * k))
            squares += (a + b) + (c + d)
        factor *= ptx.rsqrt(squares / float32(columns) + eps)
    return factor


@device
def locate(index, mode, tiles0, tiles1):
    """(matrix, its tile) of a tile of the launch; behind the last one, rows that the matrix does not have."""
    segment = int32(0)
    if mode == 2:
        segment = int32(index & 1)
        index = int32(index >> 1)
    elif index >= tiles0:
        segment, index = int32(1), int32(index - tiles0)
        if index >= tiles1:
            segment, index = int32(2), int32(index - tiles1)
    return segment, index


@device
def lane_rows(tile, g, rows):
    """(the row of lanes g in a tile, how far below its second row is); rows past the last are read as others."""
    r = int32(min(int32(16 * tile + g), int32(rows - 1)))
    below = int32(0)
    if r + 8 < rows:
        below = int32(8)
    return r, below


@device
def pick(segment, a, b, c):
    if segment == 1:
        a = b
    if segment == 2:
        a = c
    return a


@device
def put(value, row, rows, bias, biased, out, mode, scale, before):
    """Modes 0 and 1 of one row's value; before: what `out` held, in mode 1."""
    if row < rows:
        if biased:
            value += bias[row]
        if mode == 1:
            value = ptx.fmaf(scale, value, before)
        out[row] = value


@device
def total(sh, at, splits):
    """The sum of the warps that share a tile, in their order."""
    value, splits = ptx.ldsf(sh, at), ptx.opaque(splits)  # no comparison is kept from before
    for k in range(1, WARPS):
        if k < splits:
            value += ptx.ldsf(sh, int32(at + 16 * k))
    return value


def _kernel(formats):
    mixed, words = len(formats) > 1, held(formats)
    first, tile, stage = no_first, no_tile, stager(b"" if mixed else formats[0].table, THREADS)
    for format in reversed(formats):
        first, tile = first_step(format, first, mixed), _tile(format, tile, mixed)

    def linear_row(
        x, norm, normed, eps, columns, w0, type0, rows0, bias0, biased0, out0, w1, type1, rows1, bias1, biased1, out1,
        w2, type2, rows2, bias2, biased2, out2, mode, act, scale, splits,
    ):  # fmt: skip
        ptx.pdl_launch()
        tid = int32(cuda.threadIdx.x)
        lane, warp = int32(tid & 31), int32(tid >> 5)
        sh = cuda.shared.array(0, uint32, alignment=128)
        raw = cuda.local.array(words, uint32)
        tiles0, tiles1 = int32(int32(rows0 + 15) >> 4), int32(int32(rows1 + 15) >> 4)
        tiles = int32(tiles0 + tiles1 + int32(int32(rows2 + 15) >> 4))
        log_splits = int32(ptx.popc(uint32(splits - 1)))
        shift = int32(3 - log_splits)  # a unit is 2 ** shift tiles
        goal = int32(int32(tiles + int32(1 << shift) - 1) >> shift)
        unit = int32(cuda.blockIdx.x)
        segment, at = locate(int32(min(int32((unit << shift) + (warp >> log_splits)), int32(tiles - 1))), mode, tiles0, tiles1)
        type = pick(segment, type0, type1, type2)
        r, below = lane_rows(at, int32(lane >> 2), pick(segment, rows0, rows1, rows2))
        w = pick(segment, w0, w1, w2)
        row, under = first(type, w, r, below, int32(warp & (splits - 1)), columns, int32(lane & 3), raw)
        stage(tid)
        ptx.pdl_wait()
        prepare(x, norm, normed, columns, sh)
        side = int32(0)
        while unit < goal:
            tid = ptx.opaque(int32(cuda.threadIdx.x))  # so that nothing made of it waits in registers
            if mode == 1 and splits > 1:  # on its way while the products are made
                index = int32((unit << shift) + (tid >> 4))
                if tid < (16 << shift):
                    segment, at = locate(index, mode, tiles0, tiles1)
                    if 16 * at + (tid & 15) < pick(segment, rows0, rows1, rows2):
                        ptx.cp_async4(sh, int32(BEFORE + tid), pick(segment, out0, out1, out2), int32(16 * at + (tid & 15)))
                ptx.cp_async_commit()
            if not mixed:  # not in registers: there are none left
                ptx.sts64(sh, int32(TURNS + 2 * (tid >> 5)), uint32(unit), uint32(side))
            y, y8 = tile(type, row, under, int32((tid >> 5) & (splits - 1)), splits, columns, int32(tid & 31), raw, sh)
            tid, splits = ptx.opaque(int32(cuda.threadIdx.x)), ptx.opaque(splits)
            log_splits = int32(ptx.popc(uint32(splits - 1)))
            shift = int32(3 - log_splits)
            unit, side = int32(cuda.blockIdx.x), int32(0)
            if not mixed:
                now, turn = ptx.lds64(sh, int32(TURNS + 2 * (tid >> 5)))
                unit, side = int32(now), int32(turn)
            following = goal
            if not mixed:
                following = int32(unit + cuda.gridDim.x)
            if following < goal:  # the next tile's first step, while this tile is finished
                index = int32(min(int32((following << shift) + (tid >> (5 + log_splits))), int32(tiles - 1)))
                segment, at = locate(index, mode, tiles0, tiles1)
                w, share = pick(segment, w0, w1, w2), int32((tid >> 5) & (splits - 1))
                r, below = lane_rows(at, int32((tid >> 2) & 7), pick(segment, rows0, rows1, rows2))
                row, under = first(type, w, r, below, share, columns, int32(tid & 3), raw)
            g, t = int32((tid >> 2) & 7), int32(tid & 3)
            factor = undone(sh, normed, eps, columns)
            y += ptx.shfl_xor(y, int32(1))
            y8 += ptx.shfl_xor(y8, int32(1))
            y = float32(factor * (y + ptx.shfl_xor(y, int32(2))))
            y8 = float32(factor * (y8 + ptx.shfl_xor(y8, int32(2))))
            if t == 1:
                y = y8
            index = int32((unit << shift) + (tid >> 5))  # of this warp's tile; below, of the tile that 16 threads finish
            if splits == 1 and mode < 2:
                if t < 2:
                    segment, at = locate(index, mode, tiles0, tiles1)
                    bias, biased = pick(segment, bias0, bias1, bias2), pick(segment, biased0, biased1, biased2)
                    output, out = int32(16 * at + g + 8 * t), pick(segment, out0, out1, out2)
                    rows, before = pick(segment, rows0, rows1, rows2), float32(0)
                    if mode == 1 and output < rows:
                        before = out[output]
                    put(y, output, rows, bias, biased, out, mode, scale, before)
            else:
                if t < 2:
                    ptx.stsf(sh, int32(side + (tid >> 5) * 16 + g + 8 * t), y)
                cuda.syncthreads()
                index = int32((unit << shift) + (tid >> 4))
                slot = int32(side + (((tid >> 4) << log_splits) << 4) + (tid & 15))
                if mode == 2:
                    index = int32(((unit << shift) >> 1) + (tid >> 4))  # of a pair of tiles
                    row_of_pair = int32(16 * index + (tid & 15))
                    if tid < (8 << shift) and row_of_pair < rows0:
                        slot = int32(side + (((tid >> 4) << log_splits) << 5) + (tid & 15))
                        up = total(sh, int32(slot + (16 << log_splits)), splits)
                        gate = total(sh, slot, splits)
                        if biased0:
                            gate += bias0[row_of_pair]
                        if biased1:
                            up += bias1[row_of_pair]
                        out0[row_of_pair] = float32(activated(act, gate) * up)
                elif tid < (16 << shift):
                    segment, at = locate(index, mode, tiles0, tiles1)
                    bias, biased = pick(segment, bias0, bias1, bias2), pick(segment, biased0, biased1, biased2)
                    before = float32(0)
                    if mode == 1:
                        ptx.cp_async_wait(0)
                        before = ptx.ldsf(sh, int32(BEFORE + tid))
                    put(
                        total(sh, slot, splits), int32(16 * at + (tid & 15)), pick(segment, rows0, rows1, rows2), bias, biased,
                        pick(segment, out0, out1, out2), mode, scale, before,
                    )  # fmt: skip
                side = int32(side ^ (16 * WARPS))
            unit = following

    return linear_row


SIGNATURE = "FFifi" + "BiiFiF" * 3 + "iifi"


def declare(name, formats, module):
    """The kernel of some formats, for the file `module` (a kernel's image is that of its file)."""
    roomy = held(formats) <= ROOMY and not any(f.record.heavy for f in formats)
    blocks = (3 if roomy else 2) - (len(formats) > 1)
    function = _kernel(formats)
    function.__module__ = module
    kernel(SIGNATURE, threads=THREADS, blocks=blocks, name=f"linear_row_{name}")(function)


for _format in TILED:
    declare(_format.block.name, [_format], __name__)
for _size in sorted({f.block.elements for f in TILED} - {1}):
    declare(_size, [f for f in TILED if f.block.elements == _size], __name__)
