"""recurrence_<rule>_<lanes>: a matrix of state per head over the strands of a batch (ops/delta_rule.py, ops/state_scan.py).

Grid: (ceil(columns / width), heads) with width = 128 / lanes. `lanes` threads share a column of a head's matrix and keep it in
registers while the tokens pass, one after another: thread j has rows 4 (j + lanes i) to 4 (j + lanes i) + 3 for i < 4. Keys,
queries and all else that a token brings come through shared memory, `room` tokens while the ones before them are computed. A sum
over rows is four chains of a thread, then a butterfly of the lanes: the same for a token whatever is computed with it.
Variants of 8 lanes keep up to 128 rows; those for `any` number, a power of two up to 32, 16 rows a lane. Rules: delta, channels (a
delta rule whose dt has a number per row), scan.
places, strands, offset: as of conv. Dynamic shared memory: two of room (copies 16 lanes + width + 4) float32, copies 2, of channels
3; room at most 16.
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
LANES, SHIFT = 8, 5  # of variants for the usual sizes
TOKENS = 8  # whose keys and queries a warp measures together
SUMS = 2 * TOKENS


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
def copy_piece(sh, to, x, at, row, size):
    """Four values, of which those from `size` on are zeros."""
    if size & 3 == 0 and row < size:
        ptx.cp_async16(sh, to, x, at)
    else:
        for i in range(4):
            if row + i < size:
                ptx.cp_async4(sh, int32(to + i), x, int32(at + i))
            else:
                ptx.stsf(sh, int32(to + i), float32(0))


@device
def folded(low, high, lane, bit):
    """Lanes without `bit` get the sum of `low` over themselves and their partner, the others that of `high`."""
    mine, other = low, high
    if lane & bit:
        mine, other = high, low
    return float32(mine + ptx.shfl_xor(other, bit))


@device
def inverse_lengths(sh, k_at, q_at, facts, first, count, padded, eps, lane):
    """1 / sqrt(sum of squares + eps) of the keys and queries of TOKENS tokens, by a warp."""
    sums = cuda.local.array(SUMS, float32)
    for n in range(SUMS):
        sums[n] = float32(0)
    i = int32(lane << 2)
    while i < padded:
        for n in range(TOKENS):
            at = int32(min(int32(first + n), int32(count - 1)) * padded + i)
            a, b, c, d = ptx.ldsf4(sh, int32(k_at + at))
            sums[2 * n] = ptx.fmaf(a, a, ptx.fmaf(b, b, ptx.fmaf(c, c, ptx.fmaf(d, d, sums[2 * n]))))
            a, b, c, d = ptx.ldsf4(sh, int32(q_at + at))
            sums[2 * n + 1] = ptx.fmaf(a, a, ptx.fmaf(b, b, ptx.fmaf(c, c, ptx.fmaf(d, d, sums[2 * n + 1]))))
        i = int32(i + 128)
    for n in range(8):  # lanes 2 n and 2 n + 1 end with sum n
        sums[n] = folded(sums[n], sums[n + 8], lane, int32(16))
    for n in range(4):
        sums[n] = folded(sums[n], sums[n + 4], lane, int32(8))
    for n in range(2):
        sums[n] = folded(sums[n], sums[n + 2], lane, int32(4))
    total = folded(sums[0], sums[1], lane, int32(2))
    total = float32(total + ptx.shfl_xor(total, int32(1)))
    token = int32(first + (lane >> 2))
    if lane & 1 == 0 and token < count:
        ptx.stsf(sh, int32(facts + 4 * token + 2 + (lane >> 1 & 1)), ptx.rsqrt(float32(total + eps)))


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
        padded, item = int32(4 << shift), int32(token * heads + head)
        at, e = int32((token * key_heads + source) * rows), tid
        while e < count << shift:
            row, goal = int32((e & ((1 << shift) - 1)) << 2), int32(to + 4 * e)
            here = int32(at + (e >> shift) * key_heads * rows + row)
            copy_piece(sh, goal, k, here, row, rows)
            copy_piece(sh, int32(goal + room * padded), q, here, row, rows)
            if channels:
                here = int32((item + (e >> shift) * heads) * rows + row)
                copy_piece(sh, int32(goal + 2 * room * padded), dt, here, row, rows)
            e = int32(e + THREADS)
        log_pieces, e = int32(7 - shift), tid  # a token has `width` values: so many pieces
        values = int32(to + copies * room * padded)
        while e < count << log_pieces:
            column = int32((e & ((1 << log_pieces) - 1)) << 2)
            here = int32((item + (e >> log_pieces) * heads) * columns + first + column)
            copy_piece(sh, int32(values + 4 * e), v, here, column, int32(columns - first))
            e = int32(e + THREADS)
        facts = int32(values + room * (4 << log_pieces))
        if tid < count:
            if not channels:
                ptx.cp_async4(sh, int32(facts + 4 * tid), dt, int32(item + tid * heads))
            if delta:
                ptx.cp_async4(sh, int32(facts + 4 * tid + 1), beta, int32(item + tid * heads))
        ptx.cp_async_commit()

    @device
    def prepare(sh, at, facts, bias, count, head, rate, rows, room, padded, flags, eps, tid):
        """The facts of tokens that have arrived: factor of the state, beta or dt, factors of the key and the query."""
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
        if delta:
            first = int32(TOKENS * ((tid >> 5) - 2))  # of warps that have nothing to do above
            if flags & NORMED != 0 and first >= 0 and first < count:
                inverse_lengths(sh, at, int32(at + room * padded), facts, first, count, padded, eps, int32(tid & 31))
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
            lanes, shift = int32(LANES), int32(SHIFT)
        else:
            shift = int32(33 - ptx.clz(uint32(lanes)))  # a row has 4 << shift places in shared memory
        padded, width = int32(4 << shift), int32(512 >> shift)
        part = int32(room * (copies * padded + width + 4))
        mine = int32((tid & (lanes - 1)) << 2)  # first row of the thread
        own = int32(tid >> (shift - 2))
        first = int32(cuda.blockIdx.x * width)
        column = int32(first + own)
        source = int32(head - key_heads * ptx.quotient(head, key_heads))
        if flags & GROUPED != 0:
            source = ptx.quotient(head, ptx.quotient(heads, key_heads))
        rate, direct = ptx.ldgf(a, head), float32(0)
        if not delta:
            direct = ptx.ldgf(d, head)
        cell = int32(4 * (head * rows * columns + min(column, int32(columns - 1))))  # of row 0 in the matrix, bytes
        writes = mine == 0 and column < columns
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
            goal, turn = int32((token * heads + head) * columns + column), int32(heads * columns)  # of the next result
            found, factor, more, ready = float32(0), float32(0), float32(0), False  # of the token before; ready: there is one
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
                values = int32(at + copies * room * padded)
                facts = int32(values + room * width)
                prepare(sh, at, facts, bias, count, head, rate, rows, room, padded, flags, eps, tid)
                cuda.syncthreads()
                place, values = int32(at + mine), int32(values + own)
                until = int32(place + count * padded)
                load(sh, place, lanes, key)
                while place < until:
                    gate, weight, of_key, of_query = ptx.ldsf4(sh, facts)
                    value = ptx.ldsf(sh, values)
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
                    place, facts, values = int32(place + padded), int32(facts + 4), int32(values + width)
                    load(sh, int32(min(place, int32(until - padded))), lanes, key)
                    if ready and writes:
                        out[int32(goal - turn)] = result
                    goal, ready = int32(goal + turn), True
                token, at, count = int32(token + count), int32(part - at), coming
            result = ptx.fmaf(factor, over_lanes(found, lanes), more)
            if ready and writes:
                out[int32(goal - turn)] = result
            for i in range(HELD):
                row = int32(mine + 4 * lanes * (i // 4) + i % 4)
                if after != 0 and row < rows and column < columns:
                    ptx.stf(after, int64(int32(cell + 4 * row * columns)), s[i])
            strand = int32(strand + 4)

    return recurrence


SIGNATURE = "FFFFFFFFFLIiiiiiiiiff"
for _rule in ("delta", "channels", "scan"):
    for _name, _fixed in ((str(LANES), True), ("any", False)):
        kernel(SIGNATURE, threads=THREADS, name=f"recurrence_{_rule}_{_name}")(_recurrence(_rule, _fixed))
