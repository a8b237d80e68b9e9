"""linear_dot_<TYPE>: y = W x for one row of activations, by integer dot products straight from the blocks of up to three
matrices of that type with the same input.

x: float32[columns]; when `normed` it is first multiplied by norm[columns] and divided by its root mean square (eps). Each
matrix is (weights, ggml type, rows, bias, biased, out); unused ones have 0 rows. columns: a multiple of 256. mode 0: out = y +
bias; 1: out += scale * (y + bias), out not being x; 2: out0 = act(y0) * y1 of two matrices of equal rows (act 0 silu, 1 gelu).

Every block rounds the activations to 15-bit integers with a scale per 32 (dots.py). A strand is 16 lanes, which read four
blocks of 256 weights of two rows at a time; `splits` (1, 2, 4, 8, 16) strands share these rows by columns. Units of two
neighbouring rows of a matrix (mode 2: of one row of both) are dealt to the strands; a block of 256 threads takes 16 / splits
units at a time and goes on with those `grid` times as many further: grid may be anything up to ceil(units * splits / 16), units
being the sum of ceil(rows / 2) (mode 2: rows). Dynamic shared memory: 5/2 bytes per column.

mode may have flags: LATE lets the next launch start only when this one has waited, and a launch with BESIDE behind it does not
wait before it begins, but before it ends: two products of one input, with 0 as their mode, run at once.

The first blocks are asked for before the kernel waits for its input, the next ones as soon as a block's words are used.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .dots import adder, bound, preparer, swizzled
from .export import device, kernel
from .gated import FORMULAS

WARPS = 8
LATE, BESIDE = 4, 8  # flags of mode
THREADS = 32 * WARPS
STRANDS = THREADS // 16
HELD = 2  # rows of a strand
PARTS = 2 * HELD * WARPS + WARPS
FORMATS = bound()
silu, gelu = FORMULAS.values()
prepare, sum_of = preparer(THREADS), adder(WARPS)


@device
def activated(act, x):
    if act == 0:
        return silu(x)
    return gelu(x)


@device
def pick(segment, a, b, c):
    if segment == 1:
        a = b
    if segment == 2:
        a = c
    return a


@device
def locate(unit, mode, rows0, rows1):
    """(matrix, first row) of a unit."""
    segment, row = int32(0), unit
    if mode != 2:
        row = int32(HELD * unit)
        if row >= int32((rows0 + HELD - 1) & -HELD):
            segment, row = int32(1), int32(row - int32((rows0 + HELD - 1) & -HELD))
            if row >= int32((rows1 + HELD - 1) & -HELD):
                segment, row = int32(2), int32(row - int32((rows1 + HELD - 1) & -HELD))
    return segment, row


@device
def strand_sum(sums, held, lane):
    """The sum over a strand: of the first row in even lanes, of the second, if there is one, in odd lanes."""
    y = sums[0]
    if held == 2:
        give = sums[1]
        if lane & 1:
            y, give = give, y
        y += ptx.shfl_xor(give, int32(1))
    else:
        y += ptx.shfl_xor(y, int32(1))
    y += ptx.shfl_xor(y, int32(2))
    y += ptx.shfl_xor(y, int32(4))
    return float32(y + ptx.shfl_xor(y, int32(8)))


def stepper(format, held):
    """Device function: adds a block's products to the sums of `held` rows; then asks for the next block."""
    record = format.record
    words, offset, signed, nbytes = record.words, record.offset, record.signed, record.nbytes
    place, codes, factors, finish = format.place, format.codes, format.factors, format.finish
    places = tuple(4 * swizzled(piece) for piece in record.pieces)
    p0, p1, p2, p3 = places
    plain = tuple(record.pieces)
    s0, s1, s2, s3 = plain
    load, load_head = format.load, format.load_head
    counts, eights = 4 * held, 8

    @device
    def step(sums, raw, b, t, at, below, padded, sh, from_at, from_below, from_b, wanted):
        n = cuda.local.array(counts, int32)
        f = cuda.local.array(eights, float32)
        first = place(b, t)
        x_at = int32(4 * (first ^ ((first >> 1) & 4) ^ ((first >> 3) & 2)))
        shifts = cuda.local.array(held, uint32)
        for r in range(held):  # of rows of 2 more than a multiple of 4 bytes they differ
            shifts[r] = uint32(uint32((int32(at + r * below) + nbytes * b) & 2) << uint32(3))
        for k in range(4):
            here, sum_at = int32(x_at ^ p0), int32(first ^ s0)
            if k == 1:
                here, sum_at = int32(x_at ^ p1), int32(first ^ s1)
            if k == 2:
                here, sum_at = int32(x_at ^ p2), int32(first ^ s2)
            if k == 3:
                here, sum_at = int32(x_at ^ p3), int32(first ^ s3)
            h0, h1, h2, h3 = ptx.lds128(sh, here)
            l0, l1, l2, l3 = ptx.lds128(sh, int32(here + (padded >> 2)))
            start = int32(0)
            if offset:
                start = int32(int32(ptx.lds32(sh, int32(int32(9 * padded >> 4) + sum_at))) * -offset)
            for r in range(held):
                q0, q1, q2, q3 = codes(raw, r * words, k, shifts[r])
                if signed:
                    high = ptx.dp4a(q0, h0, ptx.dp4a(q1, h1, int32(0)))
                    high = ptx.dp4a(q2, h2, ptx.dp4a(q3, h3, high))
                    low = ptx.dp4a(q0, l0, ptx.dp4a(q1, l1, start))
                    low = ptx.dp4a(q2, l2, ptx.dp4a(q3, l3, low))
                else:
                    high = ptx.dp4a_us(q0, h0, ptx.dp4a_us(q1, h1, int32(0)))
                    high = ptx.dp4a_us(q2, h2, ptx.dp4a_us(q3, h3, high))
                    low = ptx.dp4a_us(q0, l0, ptx.dp4a_us(q1, l1, start))
                    low = ptx.dp4a_us(q2, l2, ptx.dp4a_us(q3, l3, low))
                n[4 * r + k] = int32(int32(high << 7) + low)
        for r in range(held):
            load(from_at + r * from_below, from_b, t, wanted, raw, r * words)
        factors(sh, int32((padded >> 1) + 16 * b), t, f)
        for r in range(held):
            sums[r] += finish(raw, r * words, t, n, 4 * r, f, shifts[r])
            load_head(from_at + r * from_below, from_b, t, wanted, raw, r * words)

    return step


def _kernel(format):
    words = HELD * format.record.words
    load, load_head, step = format.load, format.load_head, stepper(format, HELD)
    nbytes, row_words = format.record.nbytes, format.record.words

    @device
    def start_of(unit, mode, columns, w0, rows0, w1, rows1, w2, rows2):
        """(address of a unit's first row, bytes to its second)."""
        segment, row = locate(unit, mode, rows0, rows1)
        stride = int64(int32(columns >> 8) * nbytes)
        at = ptx.address(pick(segment, w0, w1, w2), row * stride)
        below = int64(0)
        if mode == 2:
            below = ptx.address(w1, int64(0)) - ptx.address(w0, int64(0))
        elif row + 1 < pick(segment, rows0, rows1, rows2):
            below = stride
        return at, below

    @device
    def before(
        index, which, owner, units, mode, rows0, rows1, rows2, bias0, bias1, bias2, biased0, biased1, biased2, out0, out1, out2,
    ):  # fmt: skip
        """What lies in `out` (mode 1) or the bias (others) of a row, asked for early: it takes a while."""
        value = float32(0)
        if owner and index < units:
            segment, row = locate(index, mode, rows0, rows1)
            if mode == 2:
                segment = which
            else:
                row = int32(row + which)
            if row < pick(segment, rows0, rows1, rows2):
                if mode == 1:
                    value = ptx.ldf(pick(segment, out0, out1, out2), row)
                elif pick(segment, biased0, biased1, biased2):
                    value = ptx.ldf(pick(segment, bias0, bias1, bias2), row)
        return value

    @device
    def finished(tid, splits, log_splits):
        """Of the row that a thread finishes: which of the units, which of its rows, and whether there is one."""
        lane = int32(tid & 31)
        turn, which = int32((tid >> 4) >> log_splits), int32(lane & 1)
        owner = int32(1 if int32(lane & int32(16 * splits - 1)) < HELD else 0)
        if splits > 2:
            turn, owner = int32(tid >> 1), int32(1 if tid < int32(HELD << int32(4 - log_splits)) else 0)
        return turn, which, owner

    def linear_dot(
        x, norm, normed, eps, columns, w0, type0, rows0, bias0, biased0, out0, w1, type1, rows1, bias1, biased1, out1,
        w2, type2, rows2, bias2, biased2, out2, how, act, scale, splits,
    ):  # fmt: skip
        mode = int32(how & 3)
        if how & LATE == 0:
            ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=128)
        parts = cuda.shared.array(PARTS, float32, alignment=16)
        raw = cuda.local.array(words, uint32)
        sums = cuda.local.array(HELD, float32)
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        t = int32(lane & 3)
        blocks = int32(columns >> 8)
        padded = int32(blocks << 8)
        units = rows0
        if mode != 2:
            units = int32(int32((rows0 + 1) >> 1) + int32((rows1 + 1) >> 1) + int32((rows2 + 1) >> 1))
        log_splits = int32(ptx.popc(uint32(splits - 1)))
        log_units = int32(4 - log_splits)
        strand = int32(tid >> 4)
        first = int32(4 * (strand & (splits - 1)) + ((lane >> 2) & 3))
        mine = int32(strand >> log_splits)
        goal = int32(int32(units + int32(1 << log_units) - 1) >> log_units)
        group = int32(cuda.blockIdx.x)
        unit = int32(min(int32((group << log_units) + mine), int32(units - 1)))
        at, below = start_of(unit, mode, columns, w0, rows0, w1, rows1, w2, rows2)
        wanted = uint32(1 if first < blocks else 0)
        for r in range(HELD):
            load(at + r * below, first, t, wanted, raw, r * row_words)
            load_head(at + r * below, first, t, wanted, raw, r * row_words)
        if how & BESIDE:
            ptx.pdl_beside()
        else:
            ptx.pdl_wait()
        if how & LATE:
            ptx.pdl_launch()
        turn, which, owner = finished(tid, splits, log_splits)
        early = float32(0)
        if mode == 1 or biased0 + biased1 + biased2:
            early = before(
                int32((group << log_units) + turn), which, owner, units, mode, rows0, rows1, rows2, bias0, bias1, bias2, biased0,
                biased1, biased2, out0, out1, out2,
            )  # fmt: skip
        prepare(x, norm, normed, columns, sh, parts)
        side = int32(WARPS)
        while group < goal:
            following = int32(group + cuda.gridDim.x)
            for r in range(HELD):
                sums[r] = float32(0)
            b = first
            while b < blocks:
                from_at, from_below, from_b = at, below, int32(b + 4 * splits)
                wanted = uint32(1)
                if from_b >= blocks:
                    mine = int32((ptx.opaque(int32(cuda.threadIdx.x)) >> 4) >> log_splits)
                    unit = int32(min(int32((following << log_units) + mine), int32(units - 1)))
                    from_at, from_below = start_of(unit, mode, columns, w0, rows0, w1, rows1, w2, rows2)
                    from_b, wanted = first, uint32(1 if following < goal else 0)
                step(sums, raw, b, t, at, below, padded, sh, from_at, from_below, from_b, wanted)
                at, below, b = from_at, from_below, int32(b + 4 * splits)
            cuda.syncwarp()
            tid = ptx.opaque(int32(cuda.threadIdx.x))  # so that nothing made of it waits in registers
            lane = int32(tid & 31)
            turn, which, owner = finished(tid, splits, log_splits)
            factor = float32(1)
            if normed:
                factor = ptx.rsqrt(sum_of(parts) / float32(columns) + eps)
            y = strand_sum(sums, HELD, lane)
            if splits > 1:
                y += ptx.shfl_xor(y, int32(16))
            if splits > 2:
                if lane < HELD:
                    parts[uint32(side + HELD * (tid >> 5) + lane)] = y
                cuda.syncthreads()
                if owner:
                    slot = int32(side + HELD * (turn << (log_splits - 1)) + which)
                    y = parts[uint32(slot)]
                    for k in range(1, WARPS):
                        if k < splits >> 1:
                            y += parts[uint32(slot + HELD * k)]
                side = int32(4 * WARPS - side)
            y *= factor
            index = int32((group << log_units) + turn)
            if mode != 1:
                y += early
            if mode == 2:
                up = ptx.shfl_xor(y, int32(1))
                if owner and which == 0 and index < units:
                    out0[index] = float32(activated(act, y) * up)
            elif owner and index < units:
                segment, row = locate(index, mode, rows0, rows1)
                row = int32(row + which)
                if row < pick(segment, rows0, rows1, rows2):
                    if mode == 1:
                        if pick(segment, biased0, biased1, biased2):
                            y += pick(segment, bias0, bias1, bias2)[row]
                        y = ptx.fmaf(scale, y, early)
                    pick(segment, out0, out1, out2)[row] = y
            group = following
            if group < goal and (mode == 1 or biased0 + biased1 + biased2):
                early = before(
                    int32((group << log_units) + turn), which, owner, units, mode, rows0, rows1, rows2, bias0, bias1, bias2,
                    biased0, biased1, biased2, out0, out1, out2,
                )  # fmt: skip
        if how & BESIDE:
            ptx.pdl_wait()

    return linear_dot


SIGNATURE = "FFifi" + "BiiFiF" * 3 + "iifi"

for _format in FORMATS.values():
    _blocks = 3 if HELD * _format.record.words < 30 else 2
    kernel(SIGNATURE, threads=THREADS, blocks=_blocks, name=f"linear_dot_{_format.block.name}")(_kernel(_format))
