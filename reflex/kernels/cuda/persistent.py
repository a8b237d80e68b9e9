"""persistent: whole decode steps of a dense model in one cooperative kernel, one block per multiprocessor (from sm_90).

Eight warps compute, a ninth streams this block's rows of all matrices through shared memory (persistent_stream.py); blocks
exchange activations through flagged packets (persistent_exchange.py); products in persistent_dots.py, attention in
persistent_attention.py. Shapes, layer count and the format of every matrix are run-time values. Greedy steps may follow one
another in a launch. Norms are RMSNorm before both halves of a layer; the feed-forward is gated.

Launch: `blocks` = multiprocessors (all must be resident: cooperative launch), 288 threads, dynamic shared memory
stages * STAGE + 2.5 * room + 64 + (layers + 1) * 192 bytes, at most 232448 less the static part; room: the largest number of
columns, rounded up to 256. Needs width <= 256 * blocks, blocks <= 256, at most two heads (one, where an odd number shares a key head) per block, heads of at most 128 columns (a multiple of 8).

Table: int64[layers + 1][24] in device memory. A layer: 0-6 addresses of q, k, v, o, gate, up, down; 7 byte offset of the
layer in a cache page; 8-14 shapes of the seven matrices; 16 and 17 addresses of the two norms' weights; 18 and 19 of the
query's and key's head norms or 0; 20-22 of the biases of q, k, v or 0. The last entry: 0 and 8 output matrix, 1 and 9
embedding matrix, 16 output norm. A shape: bits 0-7 ggml type, 8-15 rows of a chunk (8, 16 or 32), 16-31 units of 256 columns
of a chunk, 32-47 bytes between rows in a stage, 48-63 bytes of a unit; see `shape_of` in the run time.

Exchange: uint32[4 width + 2 (heads + 2 kv_heads) size + 4 heads size + 16 heads + hidden + 128 + 4 blocks], zeroed once. Every
launch takes tokens * (layers + 1) epochs, starting with `epoch` >= 1; they must stay below 65536: zero it and start again.
"""

from numba import cuda
from numba.types import float32, float64, int32, int64, uint8, uint32

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device, kernel
from .gated import gelu, silu
from .persistent_attention import NONE, PAGES, TILE, WIDEST, attend_new, attend_tile, load_tile, new_token, warm_tile
from .persistent_dots import eight_bits, four_bits, six_bits
from .persistent_exchange import SPLITS, heads_reader, hidden_reader, vector_reader
from .persistent_stream import (
    DOWN, ENTRY, GATE, HEAD, LIMIT, OUT, PAIRED, PASS, QKV, STAGE, advance, await_barrier, drain, rows_of, stream_rows,
)  # fmt: skip
from .rope import rotation

FOUR, SIX, EIGHT = 12, 14, 8  # ggml ids of the formats there are products for
HALVES, GELU = 1, 2  # flags: rotary pairs are (i, i + pairs); the gate is gelu
MOST_STAGES = 16
element4, element6, element8 = (device(load(TYPES[code].name).unpack(memory)) for code in (FOUR, SIX, EIGHT))


@device
def entry64(sh, at):
    """A word of the table in shared memory."""
    low, high = ptx.lds64(sh, at)
    return int64((int64(high) << 32) | int64(low))


@device
def embedding(weights, code, columns, token, column):
    """One value of a row of the embedding matrix."""
    value = float32(0)
    if code == FOUR:
        at = int64(weights + (int64(token) * int64(columns >> 8) + int64(column >> 8)) * 144)
        value = float32(element4(at, int64(column & 255)))
    elif code == SIX:
        at = int64(weights + (int64(token) * int64(columns >> 8) + int64(column >> 8)) * 210)
        value = float32(element6(at, int64(column & 255)))
    else:
        at = int64(weights + (int64(token) * int64(columns >> 5) + int64(column >> 5)) * 34)
        value = float32(element8(at, int64(column & 31)))
    return value


@device
def columns_of(phase, width, attended, hidden):
    columns = int32(width)
    if phase == OUT:
        columns = int32(attended)
    if phase == DOWN:
        columns = int32(hidden)
    return columns


@device
def first_matrix(phase):
    matrix = int32(0)
    if phase == OUT:
        matrix = int32(3)
    if phase == GATE:
        matrix = int32(4)
    if phase == DOWN:
        matrix = int32(6)
    return matrix


@device
def matrices_of(phase):
    count = int32(1)
    if phase == QKV:
        count = int32(3)
    if phase == GATE:
        count = int32(2)
    return count


@device
def share(total, block, blocks):
    """First of a block's part of `total` rows."""
    return int32(uint32(total * block) // uint32(blocks))


@device
def rows_total(phase, width, qkv_rows, hidden, vocabulary):
    total = int32(width)
    if phase == QKV:
        total = int32(qkv_rows)
    if phase == GATE:
        total = int32(hidden)
    if phase == HEAD:
        total = int32(vocabulary)
    return total


@device
def stream(sh, full, empty, halt, ring, state, stages, tab, layers, width, heads, kv_heads, size, hidden, vocabulary, tokens, lane):
    """The ninth warp: all weights of this block, for every token."""
    block = int32(cuda.blockIdx.x)
    blocks = int32(cuda.gridDim.x)
    query_rows = int32(heads * size)
    kv_rows = int32(kv_heads * size)
    step_ahead = int32(0)
    while step_ahead < tokens and state[2] == 0:
        layer = int32(0)
        while layer <= layers:
            phase = int32(QKV)
            past = int32(HEAD)
            if layer == layers:
                phase = int32(HEAD)
                past = int32(HEAD + 1)
            while phase < past:
                columns = columns_of(phase, width, query_rows, hidden)
                total = rows_total(phase, width, int32(query_rows + 2 * kv_rows), hidden, vocabulary)
                first = share(total, block, blocks)
                end = share(total, int32(block + 1), blocks)
                most = int32(PASS)
                if phase == GATE:
                    most = int32(PAIRED)
                while first < end and state[2] == 0:
                    last = int32(min(int32(first + most), end))
                    matrix = int32(0)
                    while matrix < matrices_of(phase):
                        row, row_end, place = rows_of(phase, matrix, first, last, query_rows, kv_rows)
                        at = int32(tab + (layer * ENTRY + first_matrix(phase) + matrix) * 8)
                        if row < row_end:
                            stream_rows(
                                sh, full, empty, halt, ring, state, stages, entry64(sh, at), entry64(sh, int32(at + 64)), columns, row,
                                row_end, lane,
                            )  # fmt: skip
                        matrix = int32(matrix + 1)
                    first = last
                phase = int32(phase + 1)
            layer = int32(layer + 1)
        step_ahead = int32(step_ahead + 1)
    drain(full, ring, state, stages)


@device
def multiply(sh, partial, full, empty, ring, state, stages, tab, layer, phase, first, last, columns, query_rows, kv_rows, vector, room, into, warp, lane):
    """Rows first...last of a phase: every warp's part of each row's sum into partial[into + 256 warp + row]. The units of all
    tiles are dealt out to the warps in turn, so that an odd number of units per row costs nothing."""
    sums = cuda.local.array(2, float32)
    dealt = int32(0)
    matrix = int32(0)
    while matrix < matrices_of(phase):
        row, row_end, place = rows_of(phase, matrix, first, last, query_rows, kv_rows)
        at = int32(tab + (layer * ENTRY + first_matrix(phase) + matrix) * 8)
        shape = entry64(sh, int32(at + 64))
        offset, unused = ptx.lds64(sh, at)
        offset = int32(offset & uint32(15))
        code = int32(shape & 255)
        taken = int32((shape >> 8) & 255)
        chunk = int32((shape >> 16) & 65535)
        stride = int32((shape >> 32) & 65535)
        unit_bytes = int32((shape >> 48) & 65535)
        row_bytes = int32((unit_bytes * columns) >> 8)
        units = int32((columns + 255) >> 8)
        while row < row_end:
            count = int32(min(taken, int32(row_end - row)))
            sums[0] = float32(0)
            sums[1] = float32(0)
            unit = int32(0)
            while unit < units:
                here = int32(min(chunk, int32(units - unit)))
                await_barrier(full, int32(ring[0]), int32(ring[1]), state)
                tile = int32(0)
                while tile < count:
                    rows = int32(min(int32(16), int32(count - tile)))
                    r = int32(tile + min(int32(lane >> 2), int32(rows - 1)))
                    left = int32(ring[0] * STAGE + r * stride + ((offset + (row + r) * row_bytes + unit * unit_bytes) & 15))
                    r = int32(tile + min(int32((lane >> 2) + 8), int32(rows - 1)))
                    right = int32(ring[0] * STAGE + r * stride + ((offset + (row + r) * row_bytes + unit * unit_bytes) & 15))
                    u = int32((warp - dealt) & 7)
                    while u < here:
                        o = int32(u * unit_bytes)
                        if code == FOUR:
                            four_bits(sh, int32(left + o), int32(right + o), vector, room, int32(unit + u), lane, sums)
                        elif code == SIX:
                            six_bits(sh, int32(left + o), int32(right + o), vector, room, int32(unit + u), lane, sums)
                        else:
                            eight_bits(sh, int32(left + o), int32(right + o), vector, room, int32(unit + u), columns, lane, sums)
                        u = int32(u + 8)
                    dealt = int32(dealt + here)
                    if unit + here == units:
                        v = sums[0]
                        w = sums[1]
                        v += ptx.shfl_xor(v, 1)
                        w += ptx.shfl_xor(w, 1)
                        v += ptx.shfl_xor(v, 2)
                        w += ptx.shfl_xor(w, 2)
                        r = int32(lane >> 2)
                        if lane & 3 == 0:
                            if r < rows:
                                partial[uint32(into + warp * PASS + place + tile + r)] = v
                            if r + 8 < rows:
                                partial[uint32(into + warp * PASS + place + tile + r + 8)] = w
                        sums[0] = float32(0)
                        sums[1] = float32(0)
                    tile = int32(tile + 16)
                cuda.syncwarp()
                if lane == 0:
                    ptx.mbar_arrive(empty, int32(2 * ring[0]))
                advance(ring, stages)
                unit = int32(unit + chunk)
            row = int32(row + taken)
            place = int32(place + taken)
        matrix = int32(matrix + 1)


@device
def add_up(partial, at):
    """The sum of the eight warps' parts of a row."""
    value = float32(0)
    for k in range(8):
        value += partial[uint32(at + k * PASS)]
    return value


@device
def better(value, index, other, other_index):
    """The larger of two logits, the first of equal ones."""
    if other > value or (other == value and other_index < index):
        value = other
        index = other_index
    return value, index


def persistent(slots):
    """The kernel whose threads hold `slots` = (stream, attention output, hidden) times 4 values of a vector at once."""
    read_vector = vector_reader(slots[0])
    read_heads = heads_reader(slots[1])
    read_hidden = hidden_reader(slots[2])

    def decode(
        table, frequencies, pages, cells, ids, positions, shared, branches, stops, exchange, logits, out, status,
        layers, width, heads, kv_heads, size, hidden, vocabulary, pairs, flags, stages, room, tokens, stop_count,
        epoch, eps, query_scale, embed_scale, residual_scale, logit_scale, magnitude,
    ):  # fmt: skip
        """cells, ids, positions, shared, branches: the request block with one row (see attention); later tokens of a launch
        follow at the next slots and positions. stops: ids that end the launch. out: [tokens made, their ids ...]. logits:
        float32[vocabulary] of the last token. status: uint32[blocks], not 0 where a wait failed (the result is then void)."""
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        warp = int32(tid >> 5)
        block = int32(cuda.blockIdx.x)
        blocks = int32(cuda.gridDim.x)
        sh = cuda.shared.array(0, uint8, alignment=128)
        partial = cuda.shared.array(4096, float32, alignment=16)  # [2][8][256]; attention: a row of 256 per warp
        inputs = cuda.shared.array(512, float32, alignment=16)
        spans = cuda.shared.array(32, float32, alignment=16)
        weights = cuda.shared.array(128, float32, alignment=16)
        turned = cuda.shared.array(128, float32, alignment=16)
        reduced = cuda.shared.array(8, float32, alignment=16)
        chosen = cuda.shared.array(8, uint32, alignment=16)
        where = cuda.shared.array(258, uint32, alignment=16)  # addresses of pages, the new token's last
        full = cuda.shared.array(32, uint32, alignment=16)
        empty = cuda.shared.array(32, uint32, alignment=16)
        halt = cuda.shared.array(4, uint32, alignment=16)
        ring = cuda.local.array(2, int32)
        state = cuda.local.array(3, int32)
        ring[0] = int32(0)
        ring[1] = int32(0)
        state[0] = int32(LIMIT)
        state[1] = int32(0)
        state[2] = int32(0)
        vector = int32(stages * STAGE)
        tab = int32(vector + room * 2 + (room >> 1) + 64)
        i = int32(tid)
        while i < (layers + 1) * ENTRY:
            a, b = ptx.ldg64(table, i)
            ptx.sts64(sh, int32(tab + i * 8), a, b)
            i = int32(i + 288)
        if tid < 16:
            ptx.sts32(sh, int32(tab - 64 + tid * 4), uint32(0))
        if tid == 0:
            halt[0] = uint32(0)
            i = int32(0)
            while i < stages:
                ptx.mbar_init(full, int32(2 * i), uint32(1))
                ptx.mbar_init(empty, int32(2 * i), uint32(8))
                i = int32(i + 1)
            ptx.mbar_fence()
        cuda.syncthreads()
        query_rows = int32(heads * size)
        kv_rows = int32(kv_heads * size)
        if warp == 8:
            stream(
                sh, full, empty, halt, ring, state, stages, tab, layers, width, heads, kv_heads, size, hidden, vocabulary, tokens, lane
            )
            ptx.pdl_wait()
            if lane == 0 and state[1] > 0:
                status[block] = uint32(2)
        else:
            ptx.pdl_wait()
            at_y = int32(2 * width)
            at_q = int32(4 * width)
            at_a = int32(at_q + 2 * (query_rows + 2 * kv_rows))
            at_s = int32(at_a + SPLITS * query_rows)
            at_h = int32(at_s + SPLITS * 4 * heads)
            at_t = int32(at_h + hidden)
            group = int32(uint32(heads) // uint32(kv_heads))
            together = int32(2 - (group & 1))  # query heads of an item
            keys_bytes = int32(kv_rows * 512)
            most_splits = int32(min(int32(SPLITS), int32(uint32(blocks * together) // uint32(heads))))
            own = share(width, block, blocks)
            owned = int32(share(width, int32(block + 1), blocks) - own)
            slot0 = int32(ptx.ld32(cells, 1))
            position0 = int32(ptx.ld32(positions, 0))
            seen = int32(ptx.ld32(shared, 0))
            branch = int32(ptx.ld32(branches, 0))
            token = int32(ptx.ld32(ids, 0))
            ep = uint32(epoch)
            into = int32(0)
            residual = float32(0)
            kr = cuda.local.array(16, uint32)
            vr = cuda.local.array(16, uint32)
            attended = cuda.local.array(8, float32)
            mass = cuda.local.array(4, float32)
            made = int32(0)
            go_on = int32(1)
            while go_on > 0:
                slot = int32(slot0 + made)
                # ---- this token's part in the attention, angles, embedding
                split = int32(min(most_splits, int32(max(int32(1), int32((slot + TILE - 1) >> 6)))))
                item = int32(uint32(block) // uint32(split))
                part = int32(block - item * split)
                head = int32(item * together)
                kv_head = int32(uint32(head) // uint32(group))
                span = int32((int32(uint32(slot + split - 1) // uint32(split)) + 7) & -8)
                begin = int32(part * span)
                end = int32(min(int32(begin + span), slot))
                i = int32((begin >> 8) + tid)
                if tid < PAGES and i * 256 < end:
                    a, b = ptx.ld64(pages, i)
                    ptx.sts64(where, int32(tid * 2), a, b)
                if tid == PAGES:
                    a, b = ptx.ld64(pages, int32(slot >> 8))
                    ptx.sts64(where, int32(PAGES * 2), a, b)
                if tid < owned:
                    at = int32(tab + layers * (ENTRY * 8) + 8)
                    shape = entry64(sh, int32(at + 64))
                    residual = float32(embedding(entry64(sh, at), int32(shape & 255), width, token, int32(own + tid)) * embed_scale)
                    ptx.st_ll(exchange, int32((own + tid) * 2), ptx.f2bits(residual), ep)
                if tid == 0:
                    ptx.red_relaxed_add(exchange, at_t, uint32(1))
                if tid < pairs:
                    c, s = rotation(float64(position0 + made) * frequencies[tid])
                    ptx.stsf2(turned, int32(tid * 2), float32(float32(c) * magnitude), float32(float32(s) * magnitude))
                best = float32(NONE)
                best_at = int32(0)
                layer = int32(0)
                while layer <= layers:
                    phase = int32(QKV)
                    past = int32(HEAD)
                    if layer == layers:
                        phase = int32(HEAD)
                        past = int32(HEAD + 1)
                    while phase < past:
                        tid = int32(ptx.opaque(tid))
                        lane = int32(tid & 31)
                        warp = int32(tid >> 5)
                        line = int32(tab + layer * (ENTRY * 8))
                        wanted = uint32(ep * uint32(blocks))
                        # ---- the phase's input
                        if phase == OUT:
                            if head < heads:
                                layer_at = entry64(sh, int32(line + 56))
                                head_at = int32(kv_head * size * 512)
                                tile = int32(begin + warp * 8)
                                top = int32(max(int32(end - 1), int32(0)))
                                if tile < end:
                                    load_tile(where, int32(begin >> 8), layer_at, keys_bytes, head_at, size, tile, top, kr, vr, lane)
                                if layer + 1 < layers:
                                    ahead = entry64(sh, int32(line + ENTRY * 8 + 56))
                                    i = int32(tile)
                                    while i < end:
                                        warm_tile(where, int32(begin >> 8), ahead, keys_bytes, head_at, size, i, top, lane)
                                        i = int32(i + TILE)
                                if warp < 4:
                                    source = int32(head * size)
                                    norm = entry64(sh, int32(line + 144))
                                    turning = int32(pairs)
                                    scale = float32(query_scale)
                                    if warp == 1:
                                        source = int32((head + together - 1) * size)
                                    if warp >= 2:
                                        scale = float32(1)
                                    if warp == 2:
                                        source = int32(query_rows + kv_head * size)
                                        norm = entry64(sh, int32(line + 152))
                                    if warp == 3:
                                        source = int32(query_rows + kv_rows + kv_head * size)
                                        norm = int64(0)
                                        turning = int32(0)
                                    a, b = new_token(
                                        exchange, int32(at_q + source * 2), ep, norm, turned, size, turning, (flags & HALVES) != 0, eps,
                                        scale, warp, lane, inputs, int32(warp * WIDEST), state,
                                    )  # fmt: skip
                                    if warp >= 2 and part == 0 and kv_head * group == head and lane * 4 < size:
                                        p0 = where[uint32(PAGES * 2)]
                                        p1 = where[uint32(PAGES * 2 + 1)]
                                        page = int64((int64(p1) << 32) | int64(p0)) + layer_at
                                        i = int32(head_at + (slot & 255) * (size * 2) + lane * 8)
                                        if warp == 3:
                                            i = int32(i + keys_bytes)
                                        ptx.st64(page, i, a, b)
                                ptx.bar_sync(1, 256)
                                for k in range(8):
                                    attended[k] = float32(0)
                                mass[0] = float32(NONE)
                                mass[1] = float32(0)
                                mass[2] = float32(NONE)
                                mass[3] = float32(0)
                                while tile < end:
                                    attend_tile(kr, vr, inputs, weights, tile, end, seen, branch, attended, mass, warp, lane)
                                    tile = int32(tile + TILE)
                                    if tile < end:
                                        load_tile(where, int32(begin >> 8), layer_at, keys_bytes, head_at, size, tile, top, kr, vr, lane)
                                for k in range(2):
                                    mass[1] += ptx.shfl_xor(mass[1], 8 << k)
                                    mass[3] += ptx.shfl_xor(mass[3], 8 << k)
                                if part == 0 and warp == 0:
                                    attend_new(inputs, attended, mass, lane)
                                ptx.stsf4(partial, int32(warp * 256 + lane * 4), attended[0], attended[1], attended[2], attended[3])
                                ptx.stsf4(partial, int32(warp * 256 + 128 + lane * 4), attended[4], attended[5], attended[6], attended[7])
                                if lane == 0:
                                    ptx.stsf4(spans, int32(warp * 4), mass[0], mass[1], mass[2], mass[3])
                                ptx.bar_sync(1, 256)
                                second = int32(tid >> 7)
                                column = int32(tid & 127)
                                if column < size and second < together:
                                    peak = float32(NONE)
                                    for k in range(8):
                                        peak = max(peak, spans[uint32(k * 4 + second * 2)])
                                    value = float32(0)
                                    whole = float32(0)
                                    for k in range(8):
                                        factor = ptx.ex2(float32(spans[uint32(k * 4 + second * 2)] - peak))
                                        whole += factor * spans[uint32(k * 4 + second * 2 + 1)]
                                        value += factor * partial[uint32(k * 256 + tid)]
                                    factor = float32(0)
                                    if whole > float32(0):
                                        factor = ptx.rcp(whole)
                                    i = int32(at_a + part * query_rows + (head + second) * size + column)
                                    ptx.st_rel32(exchange, i, uint32((ptx.f2h2(float32(value * factor), float32(0)) & 65535) | (ep << uint32(16))))
                                    if column == 0 and split > 1:
                                        i = int32(at_s + ((head + second) * SPLITS + part) * 4)
                                        ptx.st_ll(exchange, i, ptx.f2bits(peak), ep)
                                        ptx.st_ll(exchange, int32(i + 2), ptx.f2bits(whole), ep)
                            read_heads(exchange, at_a, at_s, split, query_rows, size, ep, sh, vector, room, tid, state)
                        elif phase == DOWN:
                            read_hidden(exchange, at_h, int32(at_t + 64), wanted, hidden, uint32(ep << uint32(16)), sh, vector, room, tid, state)
                        else:
                            source = int32(0)
                            counter = int32(at_t)
                            i = int32(line + 128)
                            if phase == GATE:
                                source = int32(at_y)
                                counter = int32(at_t + 32)
                                i = int32(line + 136)
                            norm = entry64(sh, i)
                            read_vector(exchange, source, counter, wanted, norm, width, ep, sh, vector, room, reduced, tid, state)
                        tid = int32(ptx.opaque(tid))
                        lane = int32(tid & 31)
                        warp = int32(tid >> 5)
                        # ---- products and what becomes of them, a pass of rows at a time
                        columns = columns_of(phase, width, query_rows, hidden)
                        total = rows_total(phase, width, int32(query_rows + 2 * kv_rows), hidden, vocabulary)
                        first = share(total, block, blocks)
                        past_row = share(total, int32(block + 1), blocks)
                        most = int32(PASS)
                        if phase == GATE:
                            most = int32(PAIRED)
                        while first < past_row:
                            last = int32(min(int32(first + most), past_row))
                            multiply(
                                sh, partial, full, empty, ring, state, stages, tab, layer, phase, first, last, columns, query_rows,
                                kv_rows, vector, room, into, warp, lane,
                            )  # fmt: skip
                            ptx.bar_sync(1, 256)
                            i = int32(first + tid)
                            if i < last:
                                value = add_up(partial, int32(into + tid))
                                factor = float32(1)
                                if phase != OUT and phase != DOWN:
                                    r0, r1, r2, r3 = ptx.ldsf4(reduced, 0)
                                    r4, r5, r6, r7 = ptx.ldsf4(reduced, 4)
                                    squares = float32(((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)))
                                    factor = ptx.rsqrt(float32(squares * ptx.rcp(float32(width)) + eps))
                                value = float32(value * factor)
                                if phase == QKV:
                                    bias = int64(0)
                                    o = int32(i)
                                    if i < query_rows:
                                        bias = entry64(sh, int32(line + 160))
                                    elif i < query_rows + kv_rows:
                                        bias = entry64(sh, int32(line + 168))
                                        o = int32(i - query_rows)
                                    else:
                                        bias = entry64(sh, int32(line + 176))
                                        o = int32(i - query_rows - kv_rows)
                                    if bias != 0:
                                        value += ptx.ldgf(bias, int32(o * 4))
                                    ptx.st_ll(exchange, int32(at_q + i * 2), ptx.f2bits(value), ep)
                                elif phase == GATE:
                                    other = float32(add_up(partial, int32(into + PAIRED + tid)) * factor)
                                    if (flags & GELU) != 0:
                                        value = float32(gelu(value) * other)
                                    else:
                                        value = float32(silu(value) * other)
                                    value = min(max(value, float32(-65000)), float32(65000))
                                    word = uint32((ptx.f2h2(value, float32(0)) & 65535) | (ep << uint32(16)))
                                    ptx.st_rel32(exchange, int32(at_h + i), word)
                                elif phase == HEAD:
                                    value = float32(value * logit_scale)
                                    logits[i] = value
                                    best, best_at = better(best, best_at, value, i)
                                else:
                                    residual = float32(residual + value * residual_scale)
                                    if phase == OUT:
                                        ptx.st_ll(exchange, int32(at_y + i * 2), ptx.f2bits(residual), ep)
                                    else:
                                        ptx.st_ll(exchange, int32(i * 2), ptx.f2bits(residual), uint32(ep + uint32(1)))
                            into = int32(into ^ 2048)
                            first = last
                        if tid == 0:
                            if phase == OUT:
                                ptx.red_relaxed_add(exchange, int32(at_t + 32), uint32(1))
                            if phase == GATE:
                                ptx.red_relaxed_add(exchange, int32(at_t + 64), uint32(1))
                            if phase == DOWN:
                                ptx.red_relaxed_add(exchange, at_t, uint32(1))
                            if phase == HEAD:  # this epoch has no residual after attention and no hidden vector
                                ptx.red_relaxed_add(exchange, int32(at_t + 32), uint32(1))
                                ptx.red_relaxed_add(exchange, int32(at_t + 64), uint32(1))
                        phase = int32(phase + 1)
                    ep = uint32(ep + uint32(1))
                    layer = int32(layer + 1)
                # ---- the largest logit of this block, then of all
                mark = uint32(ep - uint32(1))
                for k in range(5):
                    other = ptx.shfl_xor(best, 1 << k)
                    other_at = ptx.shfl_xor_i(best_at, 1 << k)
                    best, best_at = better(best, best_at, other, other_at)
                ptx.bar_sync(1, 256)  # all have read reduced[]
                if lane == 0:
                    reduced[uint32(warp)] = best
                    chosen[uint32(warp)] = uint32(best_at)
                ptx.fence_gpu()  # keys and values of this token, before it is announced
                ptx.bar_sync(1, 256)
                if tid == 0:
                    for k in range(1, 8):
                        best, best_at = better(best, best_at, reduced[k], int32(chosen[k]))
                    ptx.st_ll(exchange, int32(at_t + 128 + block * 4), ptx.f2bits(best), mark)
                    ptx.st_ll(exchange, int32(at_t + 128 + block * 4 + 2), uint32(best_at), mark)
                made = int32(made + 1)
                go_on = int32(0)
                if made < tokens or block == 0:
                    best = float32(NONE)
                    best_at = int32(0)
                    if tid < blocks:
                        polls = int32(0)
                        waiting = int32(1)
                        while waiting > 0:
                            a, fa, b, fb = ptx.ld_ll2(exchange, int32(at_t + 128 + tid * 4))
                            best = ptx.bits2f(a)
                            best_at = int32(b)
                            polls = int32(polls + 1)
                            if (fa ^ mark) | (fb ^ mark) == 0 or polls > state[0]:
                                waiting = int32(0)
                        if polls > state[0]:
                            state[0] = int32(1)
                            state[1] = int32(1)
                    cuda.syncwarp()
                    for k in range(5):
                        other = ptx.shfl_xor(best, 1 << k)
                        other_at = ptx.shfl_xor_i(best_at, 1 << k)
                        best, best_at = better(best, best_at, other, other_at)
                    ptx.bar_sync(1, 256)
                    if lane == 0:
                        reduced[uint32(warp)] = best
                        chosen[uint32(warp)] = uint32(best_at)
                    ptx.fence_gpu()
                    ptx.bar_sync(1, 256)
                    best = reduced[0]
                    best_at = int32(chosen[0])
                    for k in range(1, 8):
                        best, best_at = better(best, best_at, reduced[k], int32(chosen[k]))
                    token = int32(best_at)
                    if block == 0 and tid == 0:
                        out[made] = token
                        out[0] = made
                    if made < tokens:
                        go_on = int32(1)
                        i = int32(0)
                        while i < stop_count:
                            if int32(ptx.ldg32(stops, i)) == token:
                                go_on = int32(0)
                            i = int32(i + 1)
                    ptx.bar_sync(1, 256)
            if tid == 0:
                ptx.sts32(halt, 0, uint32(1))
                if made < tokens:  # keep the counters in step with the epochs
                    left = uint32((tokens - made) * (layers + 1))
                    ptx.red_relaxed_add(exchange, at_t, left)
                    ptx.red_relaxed_add(exchange, int32(at_t + 32), left)
                    ptx.red_relaxed_add(exchange, int32(at_t + 64), left)
            if state[1] > 0:
                status[block] = uint32(1)

    return decode


SIGNATURE = "LDLIIIIIIUFIU" + "i" * 13 + "u" + "f" * 6
kernel(SIGNATURE, threads=288, name="persistent", since=90)(persistent((4, 4, 6)))
kernel(SIGNATURE, threads=288, name="persistent_narrow", since=90)(persistent((1, 2, 3)))
