"""attention_row: attention of few rows over the paged float16 cache (ops/attention.py), split over the visible slots.

    attention_row_<64|128|any>: 64 and 128 for key_dim = value_dim of that size, any for dims up to 512. 256 threads.
    grid (kv_heads * ceil(group / 8), splits <= 64, rows), group = heads / kv_heads
    dynamic shared memory, in words, with kw = (16 ceil(key_dim / 32) + 4), vw = 4 (ceil(value_dim / 8) | 1):
        tile (kw + vw) + 16 kw + max(16 (tile / 2 + 4), 8 max(key_dim, value_dim))
    partials: rows * grid x * splits * (8 value_dim + 16) floats; counters: rows * grid x words, zero before the first launch

A block takes up to 8 query heads of one key head and every tile of its split; the split's share of the visible slots is computed
from the cells, so that one grid serves a growing context: splits without a tile leave. Of several active splits the last to finish
adds all of them up in order. Products run on tensor cores with q and the weights in two halves each, high part in rows 0 to 7,
low part in rows 8 to 15, so that only keys and values are rounded to float16.

q [rows, heads * key_dim] by q_stride; out [rows, heads * value_dim]. cap 0: no soft cap. window 0: all. tile: slots, a multiple of 32
up to 128. least: tiles that a split takes at least. flags as in attention_inputs, and
    32 inputs: rows = 1, and the kernel does the work of attention_inputs: q, k, v are the plain products
    64 early (with inputs): cells, positions, shared, branch, pages and the cache up to first_slot are read before the wait for the
       kernels before this one. Right when none of these was written since the step's first kernel, and that one was launched
       without programmatic dependence.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_inputs import K_NORM, NEOX, NORM_AFTER, Q_NORM, SELECTED, append, half_pair, make_turned
from .export import device, kernel

INPUTS, EARLY = 32, 64
LOG2E = 1.4426950408889634
HIDDEN = -1e30  # score of a slot that a row does not see
MAX_SPLITS = 64


@device
def capped(score, cap):
    """Soft cap of a score, times log2(e). tanh.approx would be too coarse."""
    x = score * (float32(2 * LOG2E) * ptx.rcp(cap))
    return cap * float32(LOG2E) * (float32(1) - float32(2) * ptx.rcp(float32(1) + ptx.ex2(x)))


@device
def slot_at(index, low, first, branch):
    """The slot of the index-th visible one: [low, low + first), then from branch on."""
    slot = int32(low + index)
    if index >= first:
        slot = int32(branch + index - first)
    return slot


@device
def page_of(pages, slot):
    """Address of the page of a slot. Only the host writes the table."""
    low, high = ptx.ldg64(pages, int32(slot >> 8))
    return int64(int64(low) | (int64(high) << 32))


def make_copy(dim):
    """copy(...): rows of keys or values of one tile on their way into shared memory; dim 0 serves any."""
    parts = dim // 8 if dim else 1
    step = 256 // parts
    passes = 128 // step if dim else 1

    @device
    def copy(sh, to, pitch, pages, offset, width, padded, start, count, skip, low, first, branch, tid):
        """Rows start..start + count of the visible slots, zeros up to a multiple of 32; `skip`: an index that is not touched.

        offset: bytes of this head in a page; width: values of a row, padded: of a row in shared memory.
        """
        full = int32((count + 31) & -32)
        if dim:
            chunk = int32(tid % parts)
            row = int32(tid // parts)
            at = cuda.local.array(passes, int64)
            for i in range(passes):
                slot = slot_at(int32(start + min(int32(row + i * step), int32(count - 1))), low, first, branch)
                at[i] = page_of(pages, slot) + offset + int64((slot & 255) * (2 * dim) + 16 * chunk)
            for i in range(passes):
                if row + i * step < full and start + row + i * step != skip:
                    size = uint32(16)
                    if row + i * step >= count:
                        size = uint32(0)
                    ptx.cp_async16z(sh, int32(to + (row + i * step) * pitch + 4 * chunk), at[i], 0, size)
        else:
            warp = int32(tid >> 5)
            lane = int32(tid & 31)
            r = warp
            while r < full:
                if start + r != skip:
                    slot = slot_at(int32(start + min(r, int32(count - 1))), low, first, branch)
                    here = page_of(pages, slot) + offset + int64((slot & 255) * (2 * width))
                    if width & 7 == 0:
                        c = lane
                        while 8 * c < padded:
                            size = uint32(16)
                            if r >= count or 8 * c >= width:
                                size = uint32(0)
                            ptx.cp_async16z(sh, int32(to + r * pitch + 4 * c), here, int64(16 * min(c, int32((width >> 3) - 1))), size)
                            c = int32(c + 32)
                    else:
                        c = lane
                        while 2 * c < padded:
                            word = uint32(0)
                            if r < count and 2 * c < width:
                                word = uint32(ptx.ld16(here, int64(4 * c)))
                            if r < count and 2 * c + 1 < width:
                                word = uint32(word | (ptx.ld16(here, int64(4 * c + 2)) << 16))
                            ptx.sts32(sh, int32(to + r * pitch + c), word)
                            c = int32(c + 32)
                r = int32(r + 8)

    return copy


@device
def split_halves(stage, base, dim, padded, factor, sh, high, low, lane):
    """factor * stage[base:base + dim] as two float16 rows of `padded` values whose sum it is."""
    w = lane
    while 2 * w < padded:
        a = float32(0)
        b = float32(0)
        if 2 * w < dim:
            a = ptx.ldsf(stage, int32(base + 2 * w)) * factor
        if 2 * w + 1 < dim:
            b = ptx.ldsf(stage, int32(base + 2 * w + 1)) * factor
        h = half_pair(a, b)
        ptx.sts32(sh, int32(high + w), h)
        if low >= 0:
            ptx.sts32(sh, int32(low + w), ptx.f2h2(a - ptx.h2f_lo(h), b - ptx.h2f_hi(h)))
        w = int32(w + 32)


def make(dim):
    name = str(dim) if dim else "any"
    limit = dim if dim else 512
    pairs_of_steps = (limit + 31) // 32  # 32 dims of the scores at a time
    columns = limit // 64  # groups of 8 value dims per warp
    sums = columns * 4
    copy = make_copy(dim)
    turned = make_turned(1 if dim else 4)

    @kernel("FFFFFUFFFIIIIILiiiiiiiiiiifff", threads=256, blocks=2 if dim else 1, name=f"attention_row_{name}")
    def attention_row(
        q, k, v, out, partials, counters, q_norm, k_norm, angles, cells, wanted, positions, shared, branches, pages,
        q_stride, heads, kv_heads, key_dim, value_dim, pairs, layer_at, window, tile, least, flags, scale, cap, eps,
    ):  # fmt: skip
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        tops = cuda.shared.array(64, float32)
        totals = cuda.shared.array(64, float32)
        last = cuda.shared.array(1, int32)
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        warp = int32(tid >> 5)
        row = int32(cuda.blockIdx.z)
        split = int32(cuda.blockIdx.y)
        splits = int32(cuda.gridDim.y)
        kd = int32(dim) if dim else key_dim
        vd = int32(dim) if dim else value_dim
        # which query heads, which key head
        group = int32(heads // kv_heads)
        parts = int32((group + 7) >> 3)
        kv_head = int32(cuda.blockIdx.x) if parts == 1 else int32(cuda.blockIdx.x // parts)
        part = int32(cuda.blockIdx.x - kv_head * parts)
        count = int32(min(int32(8), int32(group - 8 * part)))
        head = int32(kv_head * group + 8 * part)
        # shared memory, in words
        kw = int32(((kd + 31) >> 5) * 16 + 4)
        vw = int32(4 * (((vd + 7) >> 3) | 1))
        pw = int32((tile >> 1) + 4)
        values = int32(tile * kw)
        queries = int32(values + tile * vw)
        weights = int32(queries + 16 * kw)
        key_at = int64(layer_at) * 512 + int64(kv_head * 512) * kd
        value_at = int64(layer_at) * 512 + int64(kv_heads * 512) * kd + int64(kv_head * 512) * vd
        inputs = int32(flags & INPUTS)
        early = int32(0)
        if inputs != 0 and (kd | vd) & 7 == 0:  # other rows are copied with plain loads
            early = int32(flags & EARLY)
        # visible slots: [low, low + first), then from branch to own
        rows = int32(1)
        own = int32(0)
        branch = int32(0)
        first = int32(0)
        low = int32(0)
        if early != 0:
            own = int32(ptx.ldg32(cells, 1))
            branch = int32(ptx.ldg32(branches, 0))
            first = int32(ptx.ldg32(shared, 0))
            low = int32(ptx.ldg32(positions, 0))
        else:
            ptx.pdl_wait()
            rows = int32(cells[0])
            token = row
            if flags & SELECTED != 0:
                rows = int32(cells[2])
                if row < rows:
                    token = int32(wanted[row])
            if row < rows:
                own = int32(cells[1] + token)
                branch = int32(branches[token])
                first = int32(shared[token])
                low = int32(positions[token])
        first = int32(min(first, branch))
        low = int32(max(int32(0), int32(low - window + 1)))
        if window > 0:
            branch = int32(max(branch, int32(own - window + 1)))
        else:
            low = int32(0)
        first = int32(max(int32(0), int32(first - low)))
        seen = int32(first + own + 1 - branch)
        # tiles of this split, from the last to the first: the own slot is in the very last
        tiles = int32(int32(seen + tile - 1) // tile)
        each = int32(max(least, int32(1)))
        if tiles > each * splits:
            each = int32(int32(tiles + splits - 1) // splits)
        active = int32(int32(tiles + each - 1) // each)
        t = int32(min(int32((split + 1) * each), tiles) - 1)
        begin = int32(split * each)
        busy = int32(0)
        if row < rows and begin < tiles:
            busy = int32(1)
        mine = int32(0)  # this block gets the key and value of the own slot from k and v
        skip = int32(-1)
        if inputs != 0 and t == tiles - 1:
            mine = int32(2)
            skip = int32(seen - 1)
        start = int32(t * tile)
        here = int32(min(tile, int32(seen - start)))
        kp = int32((kd + 31) & -32)
        vp = int32((vd + 7) & -8)
        if busy != 0:
            copy(sh, int32(0), kw, pages, key_at, kd, kp, start, here, skip, low, first, branch, tid)
            ptx.cp_async_commit()
            copy(sh, values, vw, pages, value_at, vd, vp, start, here, skip, low, first, branch, tid)
            ptx.cp_async_commit()
        if early != 0:
            ptx.pdl_wait()
        if busy == 0:
            return
        # queries, and the own key and value; the stage of a warp lies where the weights come later
        unit = float32(scale)
        if cap == float32(0):
            unit = float32(scale * float32(LOG2E))
        stage = int32(weights + warp * max(kd, vd))
        item = warp
        while item < count + mine:
            source = q
            norm = q_norm
            at = int32(row * q_stride + (head + item) * kd)
            width = kd
            turns = pairs
            normed = int32(flags & Q_NORM)
            if item == count:
                source = k
                norm = k_norm
                at = int32(kv_head * kd)
                normed = int32(flags & K_NORM)
            if item > count:
                source = v
                at = int32(kv_head * vd)
                width = vd
            if item > count or inputs == 0:
                turns = int32(0)
                normed = int32(0)
            turned(
                sh, stage, source, at, norm, angles, int32(0), width, turns, normed, int32(flags & NORM_AFTER), int32(flags & NEOX),
                eps, lane,
            )  # fmt: skip
            if item < count:
                split_halves(sh, stage, kd, kp, unit, sh, int32(queries + item * kw), int32(queries + (item + 8) * kw), lane)
            else:
                to = int32((here - 1) * kw)
                padded = kp
                offset = key_at
                if item > count:
                    to = int32(values + (here - 1) * vw)
                    padded = vp
                    offset = value_at
                split_halves(sh, stage, width, padded, float32(1), sh, to, int32(-1), lane)
                if part == 0:
                    append(sh, stage, page_of(pages, own) + offset + int64((own & 255) * (2 * width)), width, lane)
            cuda.syncwarp()
            item = int32(item + 8)
        g = int32(lane >> 2)
        pair = int32(lane & 3)
        top = float32(HIDDEN)
        total = float32(0)
        acc = cuda.local.array(sums, float32)
        odd = cuda.local.array(sums, float32)
        for i in range(sums):
            acc[i] = float32(0)
            odd[i] = float32(0)
        score = cuda.local.array(4, float32)
        steps = int32(kp >> 5)
        groups = int32(vp >> 3)
        while t >= begin:
            full = int32((here + 31) & -32)
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            # scores of 8 heads for the slots 8 warp.. and 64 + 8 warp..
            peak = float32(HIDDEN)
            for h in range(2):
                score[2 * h] = float32(HIDDEN)
                score[2 * h + 1] = float32(HIDDEN)
                if 8 * warp + 64 * h < full:
                    c0 = c1 = c2 = c3 = e0 = e1 = e2 = e3 = float32(0)
                    for s in range(pairs_of_steps):
                        if s < steps:
                            at = int32(queries + (lane & 15) * kw + 16 * s + 4 * (lane >> 4))
                            a0, a1, a2, a3 = ptx.ldmatrix_x4(sh, at)
                            a4, a5, a6, a7 = ptx.ldmatrix_x4(sh, int32(at + 8))
                            b0, b1, b2, b3 = ptx.ldmatrix_x4(sh, int32((8 * warp + 64 * h + (lane & 7)) * kw + 16 * s + 4 * (lane >> 3)))
                            c0, c1, c2, c3 = ptx.mma_f16(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)
                            e0, e1, e2, e3 = ptx.mma_f16(a4, a5, a6, a7, b2, b3, e0, e1, e2, e3)
                    at = int32(8 * warp + 64 * h + 2 * pair)
                    x = float32((c0 + e0) + (c2 + e2))
                    y = float32((c1 + e1) + (c3 + e3))
                    if cap > float32(0):
                        x = capped(x, cap)
                        y = capped(y, cap)
                    if at < here:
                        score[2 * h] = x
                    if at + 1 < here:
                        score[2 * h + 1] = y
                    peak = max(peak, max(score[2 * h], score[2 * h + 1]))
            peak = max(peak, ptx.shfl_xor(peak, 1))
            peak = max(peak, ptx.shfl_xor(peak, 2))
            if pair == 0:
                tops[uint32(8 * warp + g)] = peak
            cuda.syncthreads()
            if t > begin:
                copy(sh, int32(0), kw, pages, key_at, kd, kp, int32(start - tile), tile, int32(-1), low, first, branch, tid)
            ptx.cp_async_commit()
            peak = top
            for w in range(8):
                peak = max(peak, tops[uint32(8 * w + g)])
            factor = ptx.ex2(top - peak)
            top = peak
            total *= factor
            for h in range(2):
                if 8 * warp + 64 * h < full:
                    x = ptx.ex2(score[2 * h] - top)
                    y = ptx.ex2(score[2 * h + 1] - top)
                    total += x + y
                    high = ptx.f2h2(x, y)
                    at = int32(weights + g * pw + 4 * warp + 32 * h + pair)
                    ptx.sts32(sh, at, high)
                    ptx.sts32(sh, int32(at + 8 * pw), ptx.f2h2(x - ptx.h2f_lo(high), y - ptx.h2f_hi(high)))
            peak = total + ptx.shfl_xor(total, 1)
            peak += ptx.shfl_xor(peak, 2)
            if pair == 0:
                totals[uint32(8 * warp + g)] = peak
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            # the values of groups of 8 dims, warp, warp + 8, ...
            for i in range(sums):
                acc[i] *= factor
                odd[i] *= factor
            for s in range(4):
                if 32 * s < full:
                    at = int32(weights + (lane & 15) * pw + 16 * s + 4 * (lane >> 4))
                    a0, a1, a2, a3 = ptx.ldmatrix_x4(sh, at)
                    a4, a5, a6, a7 = ptx.ldmatrix_x4(sh, int32(at + 8))
                    for i in range(columns):
                        if warp + 8 * i < groups:
                            b0, b1, b2, b3 = ptx.ldmatrix_x4t(sh, int32(values + (32 * s + lane) * vw + 4 * (warp + 8 * i)))
                            acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3] = ptx.mma_f16(
                                a0, a1, a2, a3, b0, b1, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]
                            )
                            odd[4 * i], odd[4 * i + 1], odd[4 * i + 2], odd[4 * i + 3] = ptx.mma_f16(
                                a4, a5, a6, a7, b2, b3, odd[4 * i], odd[4 * i + 1], odd[4 * i + 2], odd[4 * i + 3]
                            )
            if t > begin:
                cuda.syncthreads()
                copy(sh, values, vw, pages, value_at, vd, vp, int32(start - tile), tile, int32(-1), low, first, branch, tid)
            ptx.cp_async_commit()
            t = int32(t - 1)
            start = int32(start - tile)
            here = tile
        weight = float32(0)
        for w in range(8):
            weight += totals[uint32(8 * w + g)]
        inverse = ptx.rcp(weight)
        place = int32(int32(row * cuda.gridDim.x + cuda.blockIdx.x) * splits)
        record = int32(8 * vd + 16)
        for i in range(columns):
            d = int32(8 * (warp + 8 * i) + 2 * pair)
            x = (acc[4 * i] + odd[4 * i]) + (acc[4 * i + 2] + odd[4 * i + 2])
            y = (acc[4 * i + 1] + odd[4 * i + 1]) + (acc[4 * i + 3] + odd[4 * i + 3])
            if g < count:
                if active == 1:
                    at = int32((row * heads + head + g) * vd + d)
                    if d < vd:
                        out[at] = x * inverse
                    if d + 1 < vd:
                        out[at + 1] = y * inverse
                else:
                    at = int32((place + split) * record + g * vd + d)
                    if d < vd:
                        partials[at] = x
                    if d + 1 < vd:
                        partials[at + 1] = y
        if active == 1:
            return
        if warp == 0 and pair == 0:
            partials[int32((place + split) * record + 8 * vd + g)] = top
            partials[int32((place + split) * record + 8 * vd + 8 + g)] = weight
        ptx.fence_gpu()
        cuda.syncthreads()
        if tid == 0:
            turn = ptx.atom_acqrel_inc(counters, int32(row * cuda.gridDim.x + cuda.blockIdx.x), uint32(active - 1))
            last[0] = int32(turn)
        cuda.syncthreads()
        if last[0] == active - 1:
            combine(sh, partials, out, int32(place * record), record, active, count, vd, int32((row * heads + head) * vd), tid)

    return attention_row


@device
def combine(sh, partials, out, place, record, active, count, dim, to, tid):
    """The splits' sums, in their order, to out."""
    i = tid
    while i < 16 * active:
        ptx.sts32(sh, i, ptx.ldcg32(partials, int32(place + (i >> 4) * record + 8 * dim + (i & 15))))
        i = int32(i + 256)
    cuda.syncthreads()
    x = cuda.local.array(8, float32)
    i = tid
    while i < count * dim:
        g = int32(i // dim)
        top = float32(HIDDEN)
        s = int32(0)
        while s < active:
            top = max(top, ptx.ldsf(sh, int32(16 * s + g)))
            s = int32(s + 1)
        total = float32(0)
        value = float32(0)
        s = int32(0)
        while s < active:
            for j in range(8):
                x[j] = ptx.bits2f(ptx.ldcg32(partials, int32(place + min(int32(s + j), int32(active - 1)) * record + i)))
            for j in range(8):
                if s + j < active:
                    f = ptx.ex2(ptx.ldsf(sh, int32(16 * (s + j) + g)) - top)
                    total += f * ptx.ldsf(sh, int32(16 * (s + j) + 8 + g))
                    value += f * x[j]
            s = int32(s + 8)
        out[to + i] = value * ptx.rcp(total)
        i = int32(i + 256)


for dim in (64, 128, 0):
    make(dim)
