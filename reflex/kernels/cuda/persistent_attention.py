"""Attention of the persistent decode kernel: one new token over the cache. A block takes two query heads that share a key
head (one, where that number is odd) and a part of the positions.

Eight warps take 8 positions each, in turn: keys with 8 lanes per position, values with 4 columns per lane. The first tile is
in registers before the block looks for the new query, key and value. Heads have up to 128 columns, a multiple of 8.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .export import device
from .persistent_exchange import SPLITS, give_up, late, packet, value_of
from .persistent_phases import LINE, entry64

NONE = -1e30
TILE = 64  # positions that the eight warps take at once
WIDEST = 128  # columns of a head
PAGES = 128  # of 256 positions, that a part may lie in
HALVES = 1  # flag: rotary pairs are (i, i + pairs), not (2 i, 2 i + 1)


@device
def page_at(where, entry):
    """An address in the block's list of pages."""
    low = where[uint32(entry * 2)]
    high = where[uint32(entry * 2 + 1)]
    return int64((int64(high) << 32) | int64(low))


@device
def load_tile(table, page0, layer_at, values_at, head_at, size, tile, top, keys, values, lane):
    """8 positions from `tile`: keys of 2 times 4 positions, 16 columns per lane; values of 8 positions, 4 columns per lane."""
    k_low = int32(min(int32((lane & 7) * 16), int32(size * 2 - 16)))
    k_high = int32(min(int32((lane & 7) * 16 + 128), int32(size * 2 - 16)))
    v_low = int32(min(int32(lane * 8), int32(size * 2 - 8)))
    entry = int32((tile >> 8) - page0)
    page = int64(page_at(table, entry) + layer_at)
    for i in range(2):
        slot = int32(min(int32(tile + i * 4 + (lane >> 3)), top))
        at = int32(head_at + (slot & 255) * (size * 2))
        k = i * 8
        keys[k], keys[k + 1], keys[k + 2], keys[k + 3] = ptx.ldcg128(page, int32(at + k_low))
        keys[k + 4], keys[k + 5], keys[k + 6], keys[k + 7] = ptx.ldcg128(page, int32(at + k_high))
    for i in range(8):
        slot = int32(min(int32(tile + i), top))
        at = int32(values_at + head_at + (slot & 255) * (size * 2))
        values[i * 2], values[i * 2 + 1] = ptx.ldcg64(page, int32(at + v_low))


@device
def warm_tile(table, page0, layer_at, values_at, head_at, size, tile, top, lane):
    """Ask for a tile of the next layer ahead of time."""
    entry = int32((tile >> 8) - page0)
    page = int64(page_at(table, entry) + layer_at)
    slot = int32(min(int32(tile + ((lane >> 1) & 7)), top))
    at = int32(head_at + (slot & 255) * (size * 2) + min(int32((lane & 1) * 128), int32(size * 2 - 2)))
    if lane >= 16:
        at = int32(at + values_at)
    ptx.prefetch_l2(page, at)


@device
def new_token(exchange, source, flag, norm, turned, size, pairs, halves, eps, scale, warp, lane, inputs, place, state):
    """One of query, second query, key and value of the new token into `inputs` (float32, 128 columns each): normed if
    `norm` is an address, turned by the angles in `turned` ({cos, sin} of every pair; none for the value), times scale.
    Returns the two words of float16 pairs of the lane's four columns."""
    column = int32(lane * 4)
    x0 = float32(0)
    x1 = float32(0)
    x2 = float32(0)
    x3 = float32(0)
    w0 = float32(1)
    w1 = float32(1)
    w2 = float32(1)
    w3 = float32(1)
    inside = column < size
    if inside:
        if norm != 0:
            w0, w1, w2, w3 = ptx.ldgf4(norm, int32(column * 4))
        polls = int32(0)
        go = int32(1)
        while go > 0:
            a, b, c, d = ptx.ld_ll4(exchange, int32(source + column))
            bad = late(a, b, c, d, flag)
            x0 = value_of(a)
            x1 = value_of(b)
            x2 = value_of(c)
            x3 = value_of(d)
            polls = int32(polls + 1)
            if bad == 0 or polls > state[0]:
                go = int32(0)
        give_up(polls, state)
    cuda.syncwarp()
    if norm != 0:
        squares = float32(x0 * x0 + x1 * x1 + x2 * x2 + x3 * x3)
        for k in range(5):
            squares += ptx.shfl_xor(squares, 16 >> k)
        factor = ptx.rsqrt(float32(squares * ptx.rcp(float32(size)) + eps))
        x0 *= float32(factor * w0)
        x1 *= float32(factor * w1)
        x2 *= float32(factor * w2)
        x3 *= float32(factor * w3)
    if pairs > 0:
        if halves:  # column i turns with column i + pairs
            other = int32(lane)
            sign = float32(0)
            angle = int32(0)
            if column < pairs:
                other = int32(lane + (pairs >> 2))
                sign = float32(-1)
                angle = int32(column * 2)
            else:
                if column < 2 * pairs:
                    other = int32(lane - (pairs >> 2))
                    sign = float32(1)
                    angle = int32((column - pairs) * 2)
            y0 = ptx.shfl_idx(x0, other)
            y1 = ptx.shfl_idx(x1, other)
            y2 = ptx.shfl_idx(x2, other)
            y3 = ptx.shfl_idx(x3, other)
            if sign != float32(0):
                c0, s0, c1, s1 = ptx.ldsf4(turned, angle)
                c2, s2, c3, s3 = ptx.ldsf4(turned, int32(angle + 4))
                x0 = float32(x0 * c0 + sign * y0 * s0)
                x1 = float32(x1 * c1 + sign * y1 * s1)
                x2 = float32(x2 * c2 + sign * y2 * s2)
                x3 = float32(x3 * c3 + sign * y3 * s3)
        else:
            if column < 2 * pairs:
                c0, s0, c1, s1 = ptx.ldsf4(turned, column)
                y0 = float32(x0 * c0 - x1 * s0)
                y1 = float32(x1 * c0 + x0 * s0)
                y2 = float32(x2 * c1 - x3 * s1)
                y3 = float32(x3 * c1 + x2 * s1)
                x0 = y0
                x1 = y1
                x2 = y2
                x3 = y3
    x0 *= scale
    x1 *= scale
    x2 *= scale
    x3 *= scale
    p = ptx.f2h2(x0, x1)
    q = ptx.f2h2(x2, x3)
    if warp >= 2:  # keys and values are what the cache has of them
        x0 = ptx.h2f_lo(p)
        x1 = ptx.h2f_hi(p)
        x2 = ptx.h2f_lo(q)
        x3 = ptx.h2f_hi(q)
    ptx.stsf4(inputs, int32(place + column), x0, x1, x2, x3)
    return p, q


@device
def attend_tile(keys, values, inputs, weights, tile, end, seen, branch, out, state2, warp, lane):
    """A tile of 8 positions of a warp. out: float32[8], two heads of 4 columns; state2: {maximum, sum} of both."""
    ma = state2[0]
    mb = state2[2]
    s00 = float32(0)
    s01 = float32(0)
    s10 = float32(0)
    s11 = float32(0)
    for i in range(4):
        at = int32((i >> 1) * 64 + (lane & 7) * 8 + (i & 1) * 4)
        a0, a1, a2, a3 = ptx.ldsf4(inputs, at)
        b0, b1, b2, b3 = ptx.ldsf4(inputs, int32(at + WIDEST))
        v0 = ptx.h2f_lo(keys[i * 2])
        v1 = ptx.h2f_hi(keys[i * 2])
        v2 = ptx.h2f_lo(keys[i * 2 + 1])
        v3 = ptx.h2f_hi(keys[i * 2 + 1])
        s00 += v0 * a0 + v1 * a1 + v2 * a2 + v3 * a3
        s10 += v0 * b0 + v1 * b1 + v2 * b2 + v3 * b3
        v0 = ptx.h2f_lo(keys[8 + i * 2])
        v1 = ptx.h2f_hi(keys[8 + i * 2])
        v2 = ptx.h2f_lo(keys[8 + i * 2 + 1])
        v3 = ptx.h2f_hi(keys[8 + i * 2 + 1])
        s01 += v0 * a0 + v1 * a1 + v2 * a2 + v3 * a3
        s11 += v0 * b0 + v1 * b1 + v2 * b2 + v3 * b3
    for k in range(3):
        s00 += ptx.shfl_xor(s00, 1 << k)
        s01 += ptx.shfl_xor(s01, 1 << k)
        s10 += ptx.shfl_xor(s10, 1 << k)
        s11 += ptx.shfl_xor(s11, 1 << k)
    position = int32(tile + (lane >> 3))
    if position >= end or (position >= seen and position < branch):
        s00 = float32(NONE)
        s10 = float32(NONE)
    position = int32(position + 4)
    if position >= end or (position >= seen and position < branch):
        s01 = float32(NONE)
        s11 = float32(NONE)
    m0 = max(s00, s01)
    m1 = max(s10, s11)
    m0 = max(m0, ptx.shfl_xor(m0, 8))
    m1 = max(m1, ptx.shfl_xor(m1, 8))
    m0 = max(ma, max(m0, ptx.shfl_xor(m0, 16)))
    m1 = max(mb, max(m1, ptx.shfl_xor(m1, 16)))
    f0 = ptx.ex2(float32(ma - m0))
    f1 = ptx.ex2(float32(mb - m1))
    s00 = ptx.ex2(float32(s00 - m0))
    s01 = ptx.ex2(float32(s01 - m0))
    s10 = ptx.ex2(float32(s10 - m1))
    s11 = ptx.ex2(float32(s11 - m1))
    state2[0] = m0
    state2[1] = float32(state2[1] * f0 + (s00 + s01))
    state2[2] = m1
    state2[3] = float32(state2[3] * f1 + (s10 + s11))
    if lane & 7 == 0:
        at = int32(warp * 16 + (lane >> 3) * 2)
        ptx.stsf2(weights, at, s00, s10)
        ptx.stsf2(weights, int32(at + 8), s01, s11)
    cuda.syncwarp()
    for i in range(4):
        out[i] *= f0
        out[4 + i] *= f1
    for i in range(8):
        a0, b0 = ptx.ldsf2(weights, int32(warp * 16 + i * 2))
        v0 = ptx.h2f_lo(values[i * 2])
        v1 = ptx.h2f_hi(values[i * 2])
        v2 = ptx.h2f_lo(values[i * 2 + 1])
        v3 = ptx.h2f_hi(values[i * 2 + 1])
        out[0] += a0 * v0
        out[1] += a0 * v1
        out[2] += a0 * v2
        out[3] += a0 * v3
        out[4] += b0 * v0
        out[5] += b0 * v1
        out[6] += b0 * v2
        out[7] += b0 * v3
    cuda.syncwarp()


@device
def attend_new(inputs, out, state2, lane):
    """The new token itself, by one warp."""
    column = int32(lane * 4)
    a0, a1, a2, a3 = ptx.ldsf4(inputs, column)
    b0, b1, b2, b3 = ptx.ldsf4(inputs, int32(WIDEST + column))
    e0, e1, e2, e3 = ptx.ldsf4(inputs, int32(2 * WIDEST + column))
    v0, v1, v2, v3 = ptx.ldsf4(inputs, int32(3 * WIDEST + column))
    s0 = float32(a0 * e0 + a1 * e1 + a2 * e2 + a3 * e3)
    s1 = float32(b0 * e0 + b1 * e1 + b2 * e2 + b3 * e3)
    for k in range(5):
        s0 += ptx.shfl_xor(s0, 1 << k)
        s1 += ptx.shfl_xor(s1, 1 << k)
    m0 = max(state2[0], s0)
    m1 = max(state2[2], s1)
    f0 = ptx.ex2(float32(state2[0] - m0))
    f1 = ptx.ex2(float32(state2[2] - m1))
    s0 = ptx.ex2(float32(s0 - m0))
    s1 = ptx.ex2(float32(s1 - m1))
    state2[0] = m0
    state2[1] = float32(state2[1] * f0 + s0)
    state2[2] = m1
    state2[3] = float32(state2[3] * f1 + s1)
    out[0] = float32(out[0] * f0 + s0 * v0)
    out[1] = float32(out[1] * f0 + s0 * v1)
    out[2] = float32(out[2] * f0 + s0 * v2)
    out[3] = float32(out[3] * f0 + s0 * v3)
    out[4] = float32(out[4] * f1 + s1 * v0)
    out[5] = float32(out[5] * f1 + s1 * v1)
    out[6] = float32(out[6] * f1 + s1 * v2)
    out[7] = float32(out[7] * f1 + s1 * v3)


@device
def store_part(exchange, at_a, at_s, partial, spans, part, split, head, together, query_rows, size, ep, tid):
    """Combine the eight warps' results and publish this part's."""
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
        ptx.st_rel32(exchange, i, packet(float32(value * factor), ep))
        if column == 0 and split > 1:
            i = int32(at_s + ((head + second) * SPLITS + part) * 4)
            ptx.st_ll(exchange, i, ptx.f2bits(peak), ep)
            ptx.st_ll(exchange, int32(i + 2), ptx.f2bits(whole), ep)
    for k in range(8):  # the products expect zeros here
        partial[uint32(k * 256 + tid)] = float32(0)


@device
def plan_attention(plan, block, blocks, heads, kv_heads, slot):
    """plan: int32[head, key head, query heads together, part of the positions, parts, its first slot, past its last, whether
    this block puts the new key and value into the cache]; blocks with a head past the last have nothing to do."""
    group = int32(uint32(heads) // uint32(kv_heads))
    together = int32(2 - (group & 1))
    most = int32(min(int32(SPLITS), int32(uint32(blocks * together) // uint32(heads))))
    split = int32(min(most, int32(max(int32(1), int32((slot + 2 * TILE - 1) >> 7)))))
    item = int32(uint32(block) // uint32(split))
    part = int32(block - item * split)
    head = int32(item * together)
    kv_head = int32(uint32(head) // uint32(group))
    span = int32((int32(uint32(slot + split - 1) // uint32(split)) + 7) & -8)
    plan[0] = head
    plan[1] = kv_head
    plan[2] = together
    plan[3] = part
    plan[4] = split
    plan[5] = int32(part * span)
    plan[6] = int32(min(int32(part * span + span), int32(slot)))
    plan[7] = int32(0)
    if part == 0 and kv_head * group == head:
        plan[7] = int32(1)


@device
def attend(
    sh, line, last_layer, exchange, at_q, at_a, at_s, where, inputs, weights, partial, spans, turned, ep, plan, slot, seen, branch,
    query_rows, kv_rows, size, pairs, flags, eps, query_scale, tid, lane, warp, state,
):  # fmt: skip
    """This block's heads over its part of the positions. line: the layer in the table; plan: see plan_attention; slots
    seen...branch are hidden."""
    head = plan[0]
    kv_head = plan[1]
    together = plan[2]
    part = plan[3]
    split = plan[4]
    begin = plan[5]
    end = plan[6]
    keys = cuda.local.array(16, uint32)
    values = cuda.local.array(16, uint32)
    out = cuda.local.array(8, float32)
    mass = cuda.local.array(4, float32)
    layer_at = entry64(sh, int32(line + 56))
    head_at = int32(kv_head * size * 512)
    values_at = int32(kv_rows * 512)
    page0 = int32(begin >> 8)
    tile = int32(begin + warp * 8)
    top = int32(max(int32(end - 1), int32(0)))
    if tile < end:
        load_tile(where, page0, layer_at, values_at, head_at, size, tile, top, keys, values, lane)
    if not last_layer:
        ahead = entry64(sh, int32(line + LINE + 56))
        i = int32(tile)
        while i < end:
            warm_tile(where, page0, ahead, values_at, head_at, size, i, top, lane)
            i = int32(i + TILE)
    if warp < 4:
        source = int32((head + warp * (together - 1)) * size)
        norm = entry64(sh, int32(line + 144))
        turning = int32(pairs)
        scale = float32(query_scale)
        if warp >= 2:
            scale = float32(1)
            source = int32(query_rows + kv_head * size)
            norm = entry64(sh, int32(line + 152))
        if warp == 3:
            source = int32(source + kv_rows)
            norm = int64(0)
            turning = int32(0)
        a, b = new_token(
            exchange, int32(at_q + source), ep, norm, turned, size, turning, (flags & HALVES) != 0, eps, scale, warp, lane,
            inputs, int32(warp * WIDEST), state,
        )  # fmt: skip
        if warp >= 2 and plan[7] != 0 and lane * 4 < size:
            i = int32(head_at + (slot & 255) * (size * 2) + lane * 8)
            if warp == 3:
                i = int32(i + values_at)
            ptx.st64(int64(page_at(where, PAGES) + layer_at), i, a, b)
    ptx.bar_sync(1, 256)
    for k in range(8):
        out[k] = float32(0)
    mass[0] = float32(NONE)
    mass[1] = float32(0)
    mass[2] = float32(NONE)
    mass[3] = float32(0)
    while tile < end:
        attend_tile(keys, values, inputs, weights, tile, end, seen, branch, out, mass, warp, lane)
        tile = int32(tile + TILE)
        if tile < end:
            load_tile(where, page0, layer_at, values_at, head_at, size, tile, top, keys, values, lane)
    for k in range(2):
        mass[1] += ptx.shfl_xor(mass[1], 8 << k)
        mass[3] += ptx.shfl_xor(mass[3], 8 << k)
    if part == 0 and warp == 7:  # the warp with the fewest tiles
        attend_new(inputs, out, mass, lane)
    ptx.stsf4(partial, int32(warp * 256 + lane * 4), out[0], out[1], out[2], out[3])
    ptx.stsf4(partial, int32(warp * 256 + 128 + lane * 4), out[4], out[5], out[6], out[7])
    if lane == 0:
        ptx.stsf4(spans, int32(warp * 4), mass[0], mass[1], mass[2], mass[3])
    ptx.bar_sync(1, 256)
    store_part(exchange, at_a, at_s, partial, spans, part, split, head, together, query_rows, size, ep, tid)
