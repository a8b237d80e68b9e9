"""persistent: whole decode steps of a dense model in one cooperative kernel, one block per multiprocessor (from sm_90).

Eight warps compute, a ninth streams this block's rows of all matrices through shared memory (persistent_stream.py); blocks
exchange activations through flagged packets (persistent_exchange.py); products in persistent_rows.py and persistent_dots.py,
attention in persistent_attention.py. Shapes, layer count and the format of every matrix are run-time values. Greedy steps may
follow one another in a launch. Norms are RMSNorm before both halves of a layer; the feed-forward is gated.

Launch: one block per multiprocessor (cooperative: all must be resident), 384 threads, dynamic shared memory of
stages * stage_bytes + 2.5 * room + 128 + (layers + 1) * 192 + 16 bytes per segment (see persistent_phases.py), with the static
part at most 232448; room: the largest number of columns, rounded up to 256. Needs width <= 128 * blocks, at least as many rows
of every kind as blocks, blocks <= 256, at most two heads (one, where an odd number shares a key head) per block, heads of at
most 128 columns (a multiple of 8).

Table: int64[layers + 1][24] in device memory. A layer: 0-6 addresses of q, k, v, o, gate, up, down; 7 byte offset of the
layer in a cache page; 8-14 shapes of the seven matrices; 16 and 17 addresses of the two norms' weights; 18 and 19 of the
query's and key's head norms or 0; 20-22 of the biases of q, k, v or 0; 15 where the list of its segments begins, 23 the first
layer with the same shapes. The last entry: 0 and 8 output matrix, 1 and 9 embedding matrix, 16 output norm, 15 and 23 as above. A
shape: bits 0-7 ggml type, 8-15 rows and 16-23 blocks of 256 columns of a stage, 32-47 bytes of such a block, 48-63 bytes from
row to row in a stage; see backends/cuda/persistent.py. Matrices begin at a multiple of 16.

Exchange: uint32[2 width + (heads + 2 kv_heads) size + 4 heads size + 16 heads + hidden + 544 + 4 blocks], zeroed once. It also
keeps the number of epochs, layers + 1 for a token, so that all launches have the same parameters.
"""

from numba import cuda
from numba.types import float32, float64, int32, uint8, uint32

from . import ptx
from .export import device, kernel
from .persistent_attention import NONE, PAGES, plan_attention
from .persistent_dots import TEAM, vector_end
from .persistent_exchange import COUNTERS, SPLITS, count_in, packet
from .persistent_inputs import input_reader
from .persistent_phases import (
    ENTRY,
    HEAD,
    LINE,
    LISTED,
    NAMESAKE,
    OUT,
    SEGMENT,
    entry64,
    first_of_share,
    list_segments,
    phases_of,
    rows_of,
)  # fmt: skip
from .persistent_results import count_block, multiply_phase
from .persistent_rows import note
from .persistent_stream import start_ring, stream
from .persistent_token import among, best_of_all, best_of_block, embedding
from .rope import rotation

THREADS = 384


BEST = COUNTERS + 32  # words of the exchange: every block's largest logit
USED = COUNTERS  # word of the exchange, behind the counters: epochs that there were


@device
def prepare(
    sh, table, tab, partial, layers, full, empty, halt, bounds, stages, width, query_rows, kv_rows, hidden, vocabulary, tid
):
    """Shared memory before the first token: the table, zeros, barriers, this block's rows of every phase, lists of segments."""
    i = int32(tid)
    while i < 4096:
        partial[uint32(i)] = float32(0)
        i = int32(i + THREADS)
    i = int32(tid)
    while i < (layers + 1) * ENTRY:
        a, b = ptx.ldg64(table, i)
        ptx.sts64(sh, int32(tab + i * 8), a, b)
        i = int32(i + THREADS)
    if tid >= 32 and tid < 37:
        phase = int32(tid - 32)
        total = rows_of(phase, width, query_rows, kv_rows, hidden, vocabulary)
        first = first_of_share(total, int32(cuda.blockIdx.x), int32(cuda.gridDim.x))
        last = first_of_share(total, int32(cuda.blockIdx.x + 1), int32(cuda.gridDim.x))
        ptx.sts64(bounds, int32(phase * 2), uint32(first), uint32(last))
    if tid == 0:
        ptx.sts32(halt, 0, uint32(0))
        i = int32(0)
        while i < stages:
            ptx.mbar_init(full, int32(2 * i), uint32(1))
            ptx.mbar_init(empty, int32(2 * i), uint32(TEAM))
            i = int32(i + 1)
        ptx.mbar_fence()
    cuda.syncthreads()
    lists = int32(tab + (layers + 1) * LINE)
    i = int32(tid >> 5)
    while i <= layers:
        line = int32(tab + i * LINE)
        if tid & 31 == 0 and int32(ptx.lds32(sh, int32(line + NAMESAKE * 8))) == i:
            phase, past = phases_of(i, layers)
            at = int32(lists + int32(ptx.lds32(sh, int32(line + LISTED * 8))) * SEGMENT)
            list_segments(
                sh, at, tab, i, phase, past, width, query_rows, kv_rows, hidden, vocabulary, int32(cuda.blockIdx.x),
                int32(cuda.gridDim.x),
            )  # fmt: skip
        i = int32(i + (THREADS >> 5))
    cuda.syncthreads()


@device
def find_pages(pages, where, begin, end, slot, tid):
    """Addresses of the pages that this block reads, and of the new token's."""
    i = int32((begin >> 8) + tid)
    if tid < PAGES and i * 256 < end:
        a, b = ptx.ld64(pages, i)
        ptx.sts64(where, int32(tid * 2), a, b)
    if tid == PAGES:
        a, b = ptx.ld64(pages, int32(slot >> 8))
        ptx.sts64(where, int32(PAGES * 2), a, b)


@device
def places(width, query_rows, kv_rows, heads, hidden):
    """Where the exchange has y, q with k and v, the parts of heads, their {maximum, sum}, the hidden vector, and its counters; x is
    at 0."""
    at_q = int32(2 * width)
    at_a = int32(at_q + query_rows + 2 * kv_rows)
    at_s = int32(at_a + SPLITS * query_rows)
    at_h = int32(at_s + SPLITS * 4 * heads)
    return int32(width), at_q, at_a, at_s, at_h, int32(at_h + hidden)


@device
def spoil_parts(exchange, at_a, split, query_rows, ep, block, blocks, tid):
    """Mark the results of parts that attention does not have now as old: eight bits of a flag would not outlast many tokens."""
    i = int32(split * query_rows + block * 256 + tid)
    while i < SPLITS * query_rows:
        ptx.st_rel32(exchange, int32(at_a + i), uint32(uint32(ep - uint32(1)) & 255))
        i = int32(i + blocks * 256)


@device
def begin_token(
    sh, tab, pages, where, plan, bounds, frequencies, turned, exchange, at_a, at_t, layers, width, heads, kv_heads, size, slot,
    position, token, pairs, embed_scale, magnitude, ep, block, blocks, residual, tid,
):  # fmt: skip
    """This block's part in the attention; angles; the embedding, of which the thread's row is returned."""
    plan_attention(plan, block, blocks, heads, kv_heads, slot)
    find_pages(pages, where, plan[5], plan[6], slot, tid)
    spoil_parts(exchange, at_a, plan[4], int32(heads * size), ep, block, blocks, tid)
    a, b = ptx.lds64(bounds, OUT * 2)
    if tid < int32(b - a):
        line = int32(tab + layers * LINE)
        weight_at = entry64(sh, int32(line + 8))
        code = int32(ptx.lds32(sh, int32(line + 72)) & 255)
        i = int32(int32(a) + tid)
        residual = float32(embedding(weight_at, code, width, token, i) * embed_scale)
        ptx.st_rel32(exchange, i, packet(residual, ep))
    if tid == 0:
        count_in(exchange, at_t, block)
    if tid < pairs:
        c, s = rotation(float64(position) * frequencies[tid])
        ptx.stsf2(turned, int32(tid * 2), float32(float32(c) * magnitude), float32(float32(s) * magnitude))
    return residual


@device
def end_token(
    exchange, at_t, mark, best, best_at, made, tokens, stops, stop_count, out, block, blocks, reduced, chosen, token, tid, lane,
    warp, state,
):  # fmt: skip
    """The largest logit of this block, then of all: the next token, and whether to go on with it."""
    best, best_at = best_of_block(best, best_at, reduced, chosen, lane, warp)
    if tid == 0:
        i = int32(at_t + BEST + block * 4)
        ptx.st_ll(exchange, i, ptx.f2bits(best), mark)
        ptx.st_ll(exchange, int32(i + 2), uint32(best_at), mark)
    going = int32(0)
    if made < tokens or block == 0:
        token = best_of_all(exchange, int32(at_t + BEST), mark, blocks, reduced, chosen, tid, lane, warp, state)
        if block == 0 and tid == 0:
            out[made] = token
            out[0] = made
        if made < tokens:
            going = int32(1 - among(stops, stop_count, token))
        ptx.bar_sync(1, 256)
    return token, going


@device
def finish(exchange, at_t, halt, ep, block):
    """Stop the weights; count the epochs, which all blocks have read by now."""
    ptx.sts32(halt, 0, uint32(1))
    if block == 0:
        exchange[at_t + USED] = uint32(ep - uint32(1))


@device
def start_clocks(clocks, tid):
    if tid < 16:
        ptx.sts32(clocks, tid, uint32(0))
    ptx.bar_sync(1, 256)
    return ptx.clock32()


@device
def leave_clocks(status, at, clocks, began, tid):
    note(clocks, 10, began, tid)
    if tid == 0:
        for k in range(16):
            status[at + k] = ptx.lds32(clocks, k)


def persistent(slots, profiled=False):
    """The kernel whose threads hold `slots` = (stream, attention output, hidden) times 4 values of a vector at once.

    `profiled`: also leaves cycles in status[blocks + 16 block ...], see bench/persistent_device.py: input of the phases QKV to
    HEAD, their products (from 5) with what becomes of them, all (10); of these, a warp's waits for weights (11) and the
    attention before its result is read (12)."""
    read_input = input_reader(slots, profiled)
    timed = 1 if profiled else 0

    def decode(
        table, frequencies, pages, cells, ids, positions, shared, branches, stops, exchange, logits, out, status,
        layers, width, heads, kv_heads, size, hidden, vocabulary, pairs, flags, stages, stage_bytes, room, tokens, stop_count,
        eps, query_scale, embed_scale, residual_scale, logit_scale, magnitude,
    ):  # fmt: skip
        """cells, ids, positions, shared, branches: the request block with one row (see attention); later tokens of a launch
        follow at the next slots and positions. query_scale: of the scores, times log2(e). stops: ids that end the launch.
        out: int32[tokens made, their ids ...]. logits: float32[vocabulary] of the last token. status: uint32[blocks], not 0
        where a wait failed (the result is then void)."""
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        warp = int32(tid >> 5)
        block = int32(cuda.blockIdx.x)
        blocks = int32(cuda.gridDim.x)
        sh = cuda.shared.array(0, uint8, alignment=128)
        partial = cuda.shared.array(4096, float32, alignment=16)  # [2][warp][row of the pass]; attention: a row of 256 per warp
        inputs = cuda.shared.array(512, float32, alignment=16)  # query, second query, key, value
        spans = cuda.shared.array(32, float32, alignment=16)
        weights = cuda.shared.array(128, float32, alignment=16)
        turned = cuda.shared.array(128, float32, alignment=16)
        reduced = cuda.shared.array(8, float32, alignment=16)
        chosen = cuda.shared.array(8, uint32, alignment=16)
        where = cuda.shared.array(258, uint32, alignment=16)
        bounds = cuda.shared.array(16, uint32, alignment=16)
        full = cuda.shared.array(32, uint32, alignment=16)
        empty = cuda.shared.array(32, uint32, alignment=16)
        halt = cuda.shared.array(4, uint32, alignment=16)
        clocks = cuda.shared.array(16, uint32, alignment=16)
        ring = cuda.local.array(2, int32)
        state = cuda.local.array(3, int32)
        start_ring(ring, state)
        query_rows = int32(heads * size)
        kv_rows = int32(kv_heads * size)
        vector = int32(stages * stage_bytes)
        tab = int32(vector_end(vector, room))
        lists = int32(tab + (layers + 1) * LINE)
        prepare(
            sh, table, tab, partial, layers, full, empty, halt, bounds, stages, width, query_rows, kv_rows, hidden, vocabulary, tid
        )
        if warp >= 8:
            stream(
                sh, full, empty, halt, ring, state, stages, stage_bytes, tab, lists, layers, tokens, width, query_rows, hidden,
                int32(warp - 8), lane,
            )  # fmt: skip
            ptx.pdl_wait()
            if lane == 0 and state[1] > 0:
                status[block] = uint32(2)
        else:
            ptx.pdl_wait()
            at_y, at_q, at_a, at_s, at_h, at_t = places(width, query_rows, kv_rows, heads, hidden)
            plan = cuda.local.array(8, int32)
            slot = int32(ptx.ld32(cells, 1))
            position = int32(ptx.ld32(positions, 0))
            seen = int32(ptx.ld32(shared, 0))
            branch = int32(ptx.ld32(branches, 0))
            token = int32(ptx.ld32(ids, 0))
            ep = uint32(ptx.ld32(exchange, int32(at_t + USED)) + uint32(1))
            into = int32(0)
            residual = float32(0)  # a row of the stream: thread i holds this block's i-th one
            made = int32(0)
            going = int32(1)
            clock = uint32(0)
            if profiled:
                began = start_clocks(clocks, tid)
                clock = began
            while going > 0:
                residual = begin_token(
                    sh, tab, pages, where, plan, bounds, frequencies, turned, exchange, at_a, at_t, layers, width, heads, kv_heads,
                    size, slot, position, token, pairs, embed_scale, magnitude, ep, block, blocks, residual, tid,
                )  # fmt: skip
                best = float32(NONE)
                best_at = int32(0)
                layer = int32(0)
                while layer <= layers:
                    phase, past = phases_of(layer, layers)
                    at = int32(lists + int32(ptx.lds32(sh, int32(tab + layer * LINE + LISTED * 8))) * SEGMENT)
                    while phase < past:
                        # the thread's number again, unknown to the compiler, which would keep dozens of addresses otherwise
                        tid = int32(ptx.opaque(tid))
                        lane = int32(tid & 31)
                        warp = int32(tid >> 5)
                        line = int32(tab + layer * LINE)
                        factor = read_input(
                            phase, sh, line, layer + 1 == layers, exchange, at_q, at_a, at_s, at_h, at_y, at_t, where, inputs,
                            weights, partial, spans, turned, reduced, ep, plan, slot, seen, branch, width, heads, query_rows,
                            kv_rows, size, hidden, pairs, flags, blocks, eps, query_scale, vector, room, tid, state, clocks,
                            clock,
                        )  # fmt: skip
                        tid = int32(ptx.opaque(tid))
                        lane = int32(tid & 31)
                        warp = int32(tid >> 5)
                        if profiled:
                            clock = note(clocks, phase, clock, tid)
                        at, residual, best, best_at, into = multiply_phase(
                            sh, partial, full, empty, ring, state, stages, stage_bytes, at, phase, line, exchange, at_q,
                            at_y, at_h, logits, bounds, width, query_rows, kv_rows, hidden, flags, vector, room, factor, residual,
                            residual_scale, logit_scale, best, best_at, into, ep, tid, lane, warp, clocks, timed,
                        )  # fmt: skip
                        if tid == 0:
                            count_block(exchange, at_t, phase, block)
                        if profiled:
                            clock = note(clocks, int32(phase + 5), clock, tid)
                        phase = int32(phase + 1)
                    ep = uint32(ep + uint32(1))
                    layer = int32(layer + 1)
                made = int32(made + 1)
                slot = int32(slot + 1)
                position = int32(position + 1)
                token, going = end_token(
                    exchange, at_t, uint32(ep - uint32(1)), best, best_at, made, tokens, stops, stop_count, out, block, blocks,
                    reduced, chosen, token, tid, lane, warp, state,
                )  # fmt: skip
            if tid == 0:
                finish(exchange, at_t, halt, ep, block)
            if profiled:
                leave_clocks(status, int32(blocks + block * 16), clocks, began, tid)
            if state[1] > 0:  # no number, so that the token is refused
                status[block] = uint32(1)
                logits[ptx.lds32(bounds, HEAD * 2)] = ptx.bits2f(uint32(0x7FFFFFFF))

    return decode


SIGNATURE = "LDLIIIIIIUFIU" + "i" * 14 + "f" * 6
kernel(SIGNATURE, threads=THREADS, name="persistent", since=90, before=120)(persistent((4, 4, 6)))
kernel(SIGNATURE, threads=THREADS, name="persistent_narrow", since=90, before=120)(persistent((1, 2, 3)))
