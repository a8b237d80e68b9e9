"""recurrence_<rule>_<lanes>: a matrix of state per head over the strands of a batch (ops/delta_rule.py, ops/state_scan.py).

Grid: (ceil(columns / width), heads) with width = 128 / lanes. `lanes` threads share a column of a head's matrix and keep it in
registers while the tokens pass, one after another: thread j has rows 4 (j + lanes i) to 4 (j + lanes i) + 3 for i < 4. Keys,
queries and all else that a token brings come through shared memory, `room` tokens while the ones before them are computed. A sum
over rows is four chains of a thread, then a butterfly of the lanes: the same for a token whatever is computed with it.
Variants of 8 lanes keep up to 128 rows; `any` number of lanes, a power of two up to 32, is worth 16 rows each.
Rules: delta, channels (a delta rule whose dt has a number per row), scan. places, strands, offset: as of conv.
Dynamic shared memory: two of room (copies 16 lanes + width + 4) float32, copies 2, of channels 3.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .conv import place_of, word_of
from .exponential import exponential
from .export import device, kernel
from .gated import sigmoid
from .unary import softplus

THREADS, HELD = 128, 16  # rows that a thread keeps
GROUPED, STEPS, SIGMOID, NORMED = 1, 2, 4, 8  # flags: dt = softplus(dt + bias); beta = sigmoid(beta); q and k have length 1 first
FIXED, FIXED_SHIFT = 8, 5  # lanes of the variants for the usual sizes


@device
def over_lanes(value, lanes):
    """Sum over the lanes of a column, the same bits in all of them."""
    for step in range(5):
        if 1 << step < lanes:
            value = float32(value + ptx.shfl_xor(value, int32(1 << step)))
    return value


@device
def both_over_lanes(x, y, lanes):
    """The sums of two values, whose exchanges need not wait for each other."""
    for step in range(5):
        if 1 << step < lanes:
            there = ptx.shfl_xor(y, int32(1 << step))
            x = float32(x + ptx.shfl_xor(x, int32(1 << step)))
            y = float32(y + there)
    return x, y


@device
def copy_rows(sh, to, x, at, stride, count, size, shift, tid):
    """`size` values of each of `count` tokens to shared memory, 4 << shift places each; zeros behind."""
    e = tid
    while e < count << shift:
        row, goal = int32((e & ((1 << shift) - 1)) << 2), int32(to + 4 * e)
        source = int32(at + (e >> shift) * stride + row)
        if size & 3 == 0 and row < size:
            ptx.cp_async16(sh, goal, x, source)
        else:
            for i in range(4):
                if row + i < size:
                    ptx.cp_async4(sh, int32(goal + i), x, int32(source + i))
                else:
                    ptx.stsf(sh, int32(goal + i), float32(0))
        e = int32(e + THREADS)


@device
def copy_values(sh, to, x, at, stride, count, size, log_width, tid):
    """The same of up to 1 << log_width values."""
    e = tid
    while e < count << log_width:
        column = int32(e & ((1 << log_width) - 1))
        if column < size:
            ptx.cp_async4(sh, int32(to + e), x, int32(at + (e >> log_width) * stride + column))
        else:
            ptx.stsf(sh, int32(to + e), float32(0))
        e = int32(e + THREADS)


@device
def inverse_lengths(sh, k_at, q_at, facts, count, padded, eps, tid):
    """1 / sqrt(sum of squares + eps) of every token's key and query; a warp per token."""
    lane, token = int32(tid & 31), int32(tid >> 5)
    while token < count:
        x, y = float32(0), float32(0)
        i = lane
        while i < padded:
            a, b = ptx.ldsf(sh, int32(k_at + token * padded + i)), ptx.ldsf(sh, int32(q_at + token * padded + i))
            x, y = ptx.fmaf(a, a, x), ptx.fmaf(b, b, y)
            i = int32(i + 32)
        x, y = both_over_lanes(x, y, int32(32))
        if lane == 0:
            ptx.stsf2(sh, int32(facts + 4 * token + 2), ptx.rsqrt(float32(x + eps)), ptx.rsqrt(float32(y + eps)))
        token = int32(token + THREADS // 32)


def _recurrence(rule, fixed):
    delta, channels = rule != "scan", rule == "channels"
    copies = 3 if channels else 2

    @device
    def stepped(dt, bias, at, flags):
        if flags & STEPS != 0:
            dt = softplus(float32(dt + ptx.ldgf(bias, at)))
        return dt

    @device
    def fetch(sh, to, q, k, v, dt, beta, token, count, head, source, first, heads, key_heads, rows, columns, room, shift, tid):
        """Begin to copy what some tokens bring."""
        log_width = int32(9 - shift)
        padded, width = int32(4 << shift), int32(1 << log_width)
        at, item = int32((token * key_heads + source) * rows), int32(token * heads + head)
        copy_rows(sh, to, k, at, int32(key_heads * rows), count, rows, shift, tid)
        copy_rows(sh, int32(to + room * padded), q, at, int32(key_heads * rows), count, rows, shift, tid)
        if channels:
            copy_rows(sh, int32(to + 2 * room * padded), dt, int32(item * rows), int32(heads * rows), count, rows, shift, tid)
        values = int32(to + copies * room * padded)
        copy_values(
            sh, values, v, int32(item * columns + first), int32(heads * columns), count, int32(columns - first), log_width, tid
        )
        facts = int32(values + room * width)
        if tid < count:
            if not channels:
                ptx.cp_async4(sh, int32(facts + 4 * tid), dt, int32(item + tid * heads))
            if delta:
                ptx.cp_async4(sh, int32(facts + 4 * tid + 1), beta, int32(item + tid * heads))
        ptx.cp_async_commit()

    @device
    def prepare(sh, at, bias, count, head, rate, rows, room, shift, flags, eps, tid):
        """The facts of tokens that have arrived: factor of the state, beta or dt, factors of the key and the query."""
        padded, width = int32(4 << shift), int32(512 >> shift)
        facts = int32(at + room * (copies * padded + width))
        if tid < count:
            place = int32(facts + 4 * tid)
            step, weight = float32(0), float32(0)
            if not channels:
                step = stepped(ptx.ldsf(sh, place), bias, head, flags)
                ptx.stsf(sh, place, exponential(float32(rate * step)))
            if delta:
                weight = ptx.ldsf(sh, int32(place + 1))
                if flags & SIGMOID != 0:
                    weight = sigmoid(weight)
            else:
                weight = step
            ptx.stsf(sh, int32(place + 1), weight)
            if flags & NORMED == 0:
                ptx.stsf2(sh, int32(place + 2), float32(1), float32(1))
        if flags & NORMED != 0:
            inverse_lengths(sh, at, int32(at + room * padded), facts, count, padded, eps, tid)
        if channels:
            e, gates = tid, int32(at + 2 * room * padded)
            while e < count * padded:
                row = int32(e & (padded - 1))
                gate = float32(0)
                if row < rows:
                    step = stepped(ptx.ldsf(sh, int32(gates + e)), bias, int32(head * rows + row), flags)
                    gate = exponential(float32(rate * step))
                ptx.stsf(sh, int32(gates + e), gate)
                e = int32(e + THREADS)

    @device
    def load(sh, at, lanes, x):
        """A thread's rows of a token."""
        for i in range(HELD // 4):
            x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3] = ptx.ldsf4(sh, int32(at + 4 * lanes * i))

    @device
    def dot(x, s):
        a, b, c, d = float32(0), float32(0), float32(0), float32(0)
        for i in range(HELD // 4):
            a, b = ptx.fmaf(x[4 * i], s[4 * i], a), ptx.fmaf(x[4 * i + 1], s[4 * i + 1], b)
            c, d = ptx.fmaf(x[4 * i + 2], s[4 * i + 2], c), ptx.fmaf(x[4 * i + 3], s[4 * i + 3], d)
        return float32(float32(a + b) + float32(c + d))

    def recurrence(
        q, k, v, dt, beta, bias, out, a, d, places, strands, offset, heads, key_heads, rows, columns, lanes, room, flags, scale, eps
    ):  # fmt: skip
        """q, k: float32[tokens, key_heads * rows]; v, out: float32[tokens, heads * columns]; dt: float32[tokens, heads], of
        channels [tokens, heads * rows], and bias one row of it, read with STEPS; beta: [tokens, heads], not of a scan; a, d:
        float32[heads], the latter of a scan."""
        sh = cuda.shared.array(0, float32, alignment=16)
        s = cuda.local.array(HELD, float32)
        key = cuda.local.array(HELD, float32)
        query = cuda.local.array(HELD, float32)
        gates = cuda.local.array(HELD, float32)
        ptx.pdl_launch()
        tid, head = int32(cuda.threadIdx.x), int32(cuda.blockIdx.y)
        if fixed:
            lanes, shift = int32(FIXED), int32(FIXED_SHIFT)
        else:
            shift = int32(33 - ptx.clz(uint32(lanes)))  # a row has 4 << shift places in shared memory
        padded, width = int32(4 << shift), int32(512 >> shift)
        part = int32(room * (copies * padded + width + 4))
        mine = int32((tid & (lanes - 1)) << 2)  # first row of the thread
        own = int32(tid >> (shift - 2))
        first = int32(cuda.blockIdx.x * width)
        column = int32(first + own)
        live, writes = column < columns, column < columns and mine == 0
        source = int32(head - key_heads * ptx.quotient(head, key_heads))
        if flags & GROUPED != 0:
            source = ptx.quotient(head, ptx.quotient(heads, key_heads))
        rate, direct = ptx.ldgf(a, head), float32(0)
        if not delta:
            direct = ptx.ldgf(d, head)
        cell = int32(4 * (head * rows * columns + min(column, int32(columns - 1))))  # of row 0 in the matrix, bytes
        strand, end = int32(1), int32(1 + 4 * word_of(strands, int32(0)))
        while strand < end:
            token = word_of(strands, strand)
            last = int32(token + word_of(strands, int32(strand + 1)))
            before = place_of(places, word_of(strands, int32(strand + 2)), offset)
            after = place_of(places, word_of(strands, int32(strand + 3)), offset)
            ptx.pdl_wait()
            cuda.syncthreads()  # what other threads have left of a strand before
            for i in range(HELD):
                s[i] = float32(0)
            if before != 0:
                for i in range(HELD):  # rows behind the last are read as it: their keys and queries are zeros
                    row = int32(min(int32(mine + 4 * lanes * (i // 4) + i % 4), int32(rows - 1)))
                    s[i] = ptx.ldf(before, int64(int32(cell + 4 * row * columns)))
            found, factor, more, item = float32(0), float32(0), float32(0), int32(-1)
            at, count = part, int32(0)  # of the tokens that are there: none yet
            while token < last:
                ptx.cp_async_wait(0)
                cuda.syncthreads()
                coming = int32(min(room, int32(last - token - count)))
                if coming > 0:
                    fetch(
                        sh, int32(part - at), q, k, v, dt, beta, int32(token + count), coming, head, source, first, heads,
                        key_heads, rows, columns, room, shift, tid,
                    )  # fmt: skip
                prepare(sh, at, bias, count, head, rate, rows, room, shift, flags, eps, tid)
                cuda.syncthreads()
                values = int32(at + copies * room * padded)
                place = int32(at + mine)
                load(sh, place, lanes, key)
                t = int32(0)
                while t < count:
                    gate, weight, of_key, of_query = ptx.ldsf4(sh, int32(values + room * width + 4 * t))
                    value = ptx.ldsf(sh, int32(values + t * width + own))
                    load(sh, int32(place + room * padded), lanes, query)
                    if channels:
                        load(sh, int32(place + 2 * room * padded), lanes, gates)
                        for i in range(HELD):
                            s[i] = float32(gates[i] * s[i])
                        gate = float32(1)
                    if delta:
                        read, found = both_over_lanes(dot(key, s), found, lanes)
                        new = float32(of_key * float32(weight * float32(value - float32(gate * of_key) * read)))
                    else:
                        found = over_lanes(found, lanes)
                        new = float32(weight * value)
                    result = ptx.fmaf(factor, found, more)
                    for i in range(HELD):
                        s[i] = ptx.fmaf(key[i], new, s[i] if channels else float32(gate * s[i]))
                    found, factor = dot(query, s), float32(scale * of_query)
                    if not delta:
                        more = float32(direct * value)
                    place = int32(place + padded)
                    load(sh, int32(min(place, int32(at + mine + (count - 1) * padded))), lanes, key)
                    if writes and item >= 0:
                        out[int32(item * columns + column)] = result
                    item = int32((token + t) * heads + head)
                    t = int32(t + 1)
                token, at, count = int32(token + count), int32(part - at), coming
            result = ptx.fmaf(factor, over_lanes(found, lanes), more)
            if writes and item >= 0:
                out[int32(item * columns + column)] = result
            if after != 0 and live:
                for i in range(HELD):
                    row = int32(mine + 4 * lanes * (i // 4) + i % 4)
                    if row < rows:
                        ptx.stf(after, int64(int32(cell + 4 * row * columns)), s[i])
            strand = int32(strand + 4)

    return recurrence


for _rule in ("delta", "channels", "scan"):
    for _lanes in (FIXED, 0):
        kernel("FFFFFFFFFLIiiiiiiiiff", threads=THREADS, name=f"recurrence_{_rule}_{_lanes or 'any'}")(_recurrence(_rule, _lanes))
