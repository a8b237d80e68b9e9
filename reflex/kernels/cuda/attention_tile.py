"""attention_tile: attention of many rows over the paged float16 cache (ops/attention.py), on tensor cores with online softmax.

    attention_tile_<64|80|96|128|256>: key_dim = value_dim of that size. 128 threads.
    grid (ceil(rows / 64), heads)
    dynamic shared memory, in bytes: 2 * slots * pitch, slots = 64 and pitch = 2 dim + 16; dim 256: slots = 32, and 64 * pitch more

A block computes 64 rows of one query head, 16 per warp, over the tiles of slots that any of its rows sees; a tile lies in one
page. q (scaled) and the weights are rounded to float16, sums are float32.

q [rows, heads * dim] by q_stride; out [rows, heads * dim]. cap 0: no soft cap; window 0: all; layer_at in units of 512 bytes; flags:
16 row r of q is the batch's token wanted[r]. Every key and value of the batch is in the cache.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_inputs import SELECTED, half_pair
from .attention_row import HIDDEN, LOG2E, capped, page_of
from .export import device, kernel

FLOOR = -1e29  # above HIDDEN: a row that sees nothing of the first tiles gives them weight 0
NOWHERE = 1 << 30


def make_copy(dim, slots):
    passes = slots * dim // 8 // 128
    row_parts = dim // 8
    pitch = dim // 2 + 4

    @device
    def copy(sh, to, pages, offset, slot, end, tid):
        """Rows of the slots from `slot` on their way to shared memory, zeros from slot `end` on."""
        here = page_of(pages, slot) + offset + int64((slot & 255) * (2 * dim))
        for i in range(passes):
            part = int32(tid + 128 * i)
            row = int32(uint32(part) // uint32(row_parts))
            size = uint32(16)
            if slot + row >= end:
                size = uint32(0)
            ptx.cp_async16z(sh, int32(to + row * pitch + 4 * (part - row * row_parts)), here, int64(16 * part), size)

    return copy


@device
def query_pair(q, at, unit):
    a, b = ptx.ldf2(q, at)
    return half_pair(a * unit, b * unit)


def make(dim):
    slots = 64 if dim <= 128 else 32
    in_registers = dim <= 128
    depth, columns, groups = dim // 16, dim // 8, slots // 8
    pitch = dim // 2 + 4
    values, queries = slots * pitch, 2 * slots * pitch
    fragments = 4 * depth if in_registers else 4
    sums, scores = 4 * columns, 4 * groups
    pairs_of_columns, pairs_of_groups = columns // 2, groups // 2
    copy = make_copy(dim, slots)

    @kernel("FFIIIIILiiiiiiff", threads=128, blocks=2, name=f"attention_tile_{dim}")
    def attention_tile(
        q, out, cells, wanted, positions, shared, branches, pages, q_stride, heads, kv_heads, layer_at, window, flags, scale, cap
    ):
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        lows = cuda.shared.array(64, int32)
        ends = cuda.shared.array(64, int32)
        begins = cuda.shared.array(64, int32)
        owns = cuda.shared.array(64, int32)
        tid = int32(cuda.threadIdx.x)
        lane = int32(tid & 31)
        warp = int32(tid >> 5)
        head = int32(cuda.blockIdx.y)
        first_row = int32((cuda.gridDim.x - 1 - cuda.blockIdx.x) * 64)  # the rows that see most start first
        ptx.pdl_wait()
        rows = int32(cells[0])
        end = int32(cells[1] + rows)
        if flags & SELECTED != 0:
            rows = int32(cells[2])
        if first_row >= rows:
            return
        # what each row sees: [low, shared) and [branch, own]
        if tid < 64:
            token = int32(min(int32(first_row + tid), int32(rows - 1)))
            if flags & SELECTED != 0:
                token = int32(wanted[token])
            own = int32(cells[1] + token)
            branch = int32(branches[token])
            stop = int32(min(int32(shared[token]), branch))
            low = int32(0)
            if window > 0:
                low = int32(max(int32(0), int32(positions[token] - window + 1)))
                branch = int32(max(branch, int32(own - window + 1)))
            if low >= stop:
                low = int32(NOWHERE)
                stop = int32(0)
            lows[uint32(tid)] = low
            ends[uint32(tid)] = stop
            begins[uint32(tid)] = branch
            owns[uint32(tid)] = own
        cuda.syncthreads()
        # what any row sees, and what all do
        i = uint32(lane)
        j = uint32(lane + 32)
        some_low = int32(ptx.redux_min(uint32(min(lows[i], lows[j]))))
        some_stop = int32(ptx.redux_max(uint32(max(ends[i], ends[j]))))
        some_branch = int32(ptx.redux_min(uint32(min(begins[i], begins[j]))))
        some_own = int32(ptx.redux_max(uint32(max(owns[i], owns[j]))))
        all_low = int32(ptx.redux_max(uint32(max(lows[i], lows[j]))))
        all_stop = int32(ptx.redux_min(uint32(min(ends[i], ends[j]))))
        all_branch = int32(ptx.redux_max(uint32(max(begins[i], begins[j]))))
        all_own = int32(ptx.redux_min(uint32(min(owns[i], owns[j]))))
        tile_a = int32(some_low // slots)
        tiles_a = int32(max(int32(0), int32(int32(some_stop + slots - 1) // slots - tile_a)))
        tile_b = int32(some_branch // slots)
        if tiles_a > 0:
            tile_b = int32(max(tile_b, int32(tile_a + tiles_a)))
        tiles = int32(tiles_a + max(int32(0), int32(some_own // slots + 1 - tile_b)))
        g = int32(lane >> 2)
        pair = int32(lane & 3)
        mine = uint32(16 * warp + g)
        low0 = lows[mine]
        low1 = lows[mine + 8]
        stop0 = ends[mine]
        stop1 = ends[mine + 8]
        branch0 = begins[mine]
        branch1 = begins[mine + 8]
        own0 = owns[mine]
        own1 = owns[mine + 8]
        furthest = owns[uint32(16 * warp + 15)]  # own slots ascend with the rows
        live = first_row + 16 * warp < rows
        kv_head = int32(head // int32(heads // kv_heads))
        key_at = int64(layer_at) * 512 + int64(kv_head) * (512 * dim)
        value_at = int64(layer_at) * 512 + int64(kv_heads + kv_head) * (512 * dim)
        t = int32(0)
        slot = int32(tile_a * slots)
        if tiles_a == 0:
            slot = int32(tile_b * slots)
        copy(sh, int32(0), pages, key_at, slot, end, tid)
        ptx.cp_async_commit()
        copy(sh, int32(values), pages, value_at, slot, end, tid)
        ptx.cp_async_commit()
        # queries as A fragments
        unit = float32(scale)
        if cap == float32(0):
            unit = float32(scale * float32(LOG2E))
        f = cuda.local.array(fragments, uint32)
        at0 = int32(min(int32(first_row + 16 * warp + g), int32(rows - 1)) * q_stride + head * dim + 2 * pair)
        at1 = int32(min(int32(first_row + 16 * warp + g + 8), int32(rows - 1)) * q_stride + head * dim + 2 * pair)
        for k in range(depth):
            a0 = query_pair(q, int32(at0 + 16 * k), unit)
            a1 = query_pair(q, int32(at1 + 16 * k), unit)
            a2 = query_pair(q, int32(at0 + 16 * k + 8), unit)
            a3 = query_pair(q, int32(at1 + 16 * k + 8), unit)
            if in_registers:
                f[4 * k] = a0
                f[4 * k + 1] = a1
                f[4 * k + 2] = a2
                f[4 * k + 3] = a3
            else:
                at = int32(queries + (16 * warp + g) * pitch + 8 * k + pair)
                ptx.sts32(sh, at, a0)
                ptx.sts32(sh, int32(at + 8 * pitch), a1)
                ptx.sts32(sh, int32(at + 4), a2)
                ptx.sts32(sh, int32(at + 8 * pitch + 4), a3)
        acc = cuda.local.array(sums, float32)
        for n in range(sums):
            acc[n] = float32(0)
        s = cuda.local.array(scores, float32)
        top0 = float32(FLOOR)
        top1 = float32(FLOOR)
        total0 = float32(0)
        total1 = float32(0)
        while t < tiles:
            following = int32(slot + slots)
            if t + 1 == tiles_a:
                following = int32(tile_b * slots)
            busy = live and slot <= furthest
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            if busy:
                for n in range(scores):
                    s[n] = float32(0)
                for k in range(depth):
                    if not in_registers:
                        f[0], f[1], f[2], f[3] = ptx.ldmatrix_x4(
                            sh, int32(queries + (16 * warp + (lane & 15)) * pitch + 8 * k + 4 * (lane >> 4))
                        )
                    o = 4 * k if in_registers else 0
                    for n in range(pairs_of_groups):
                        at = int32((16 * n + (lane & 7) + ((lane >> 4) << 3)) * pitch + 8 * k + 4 * ((lane >> 3) & 1))
                        b0, b1, b2, b3 = ptx.ldmatrix_x4(sh, at)
                        s[8 * n], s[8 * n + 1], s[8 * n + 2], s[8 * n + 3] = ptx.mma_f16(
                            f[o], f[o + 1], f[o + 2], f[o + 3], b0, b1, s[8 * n], s[8 * n + 1], s[8 * n + 2], s[8 * n + 3]
                        )
                        s[8 * n + 4], s[8 * n + 5], s[8 * n + 6], s[8 * n + 7] = ptx.mma_f16(
                            f[o], f[o + 1], f[o + 2], f[o + 3], b2, b3, s[8 * n + 4], s[8 * n + 5], s[8 * n + 6], s[8 * n + 7]
                        )
            cuda.syncthreads()
            if t + 1 < tiles:
                copy(sh, int32(0), pages, key_at, following, end, tid)
            ptx.cp_async_commit()
            factor0 = float32(1)
            factor1 = float32(1)
            if busy:
                if cap > float32(0):
                    for n in range(scores):
                        s[n] = capped(s[n], cap)
                inside = slot >= all_low and slot + slots <= all_stop
                if not (inside or (slot >= all_branch and slot + slots - 1 <= all_own)):
                    for n in range(groups):
                        for e in range(2):
                            at = int32(slot + 8 * n + 2 * pair + e)
                            if not ((at >= low0 and at < stop0) or (at >= branch0 and at <= own0)):
                                s[4 * n + e] = float32(HIDDEN)
                            if not ((at >= low1 and at < stop1) or (at >= branch1 and at <= own1)):
                                s[4 * n + 2 + e] = float32(HIDDEN)
                peak0 = top0
                peak1 = top1
                for n in range(groups):
                    peak0 = max(peak0, max(s[4 * n], s[4 * n + 1]))
                    peak1 = max(peak1, max(s[4 * n + 2], s[4 * n + 3]))
                peak0 = max(peak0, ptx.shfl_xor(peak0, 1))
                peak1 = max(peak1, ptx.shfl_xor(peak1, 1))
                peak0 = max(peak0, ptx.shfl_xor(peak0, 2))
                peak1 = max(peak1, ptx.shfl_xor(peak1, 2))
                factor0 = ptx.ex2(top0 - peak0)
                factor1 = ptx.ex2(top1 - peak1)
                top0 = peak0
                top1 = peak1
                total0 *= factor0
                total1 *= factor1
                for n in range(groups):
                    for e in range(2):
                        s[4 * n + e] = ptx.ex2(s[4 * n + e] - top0)
                        s[4 * n + 2 + e] = ptx.ex2(s[4 * n + 2 + e] - top1)
                        total0 += s[4 * n + e]
                        total1 += s[4 * n + 2 + e]
                for n in range(columns):
                    acc[4 * n] *= factor0
                    acc[4 * n + 1] *= factor0
                    acc[4 * n + 2] *= factor1
                    acc[4 * n + 3] *= factor1
            ptx.cp_async_wait(1)
            cuda.syncthreads()
            if busy:
                for k in range(pairs_of_groups):
                    a0 = ptx.f2h2(s[8 * k], s[8 * k + 1])
                    a1 = ptx.f2h2(s[8 * k + 2], s[8 * k + 3])
                    a2 = ptx.f2h2(s[8 * k + 4], s[8 * k + 5])
                    a3 = ptx.f2h2(s[8 * k + 6], s[8 * k + 7])
                    for n in range(pairs_of_columns):
                        at = int32(values + (16 * k + (lane & 15)) * pitch + 8 * n + 4 * (lane >> 4))
                        b0, b1, b2, b3 = ptx.ldmatrix_x4t(sh, at)
                        acc[8 * n], acc[8 * n + 1], acc[8 * n + 2], acc[8 * n + 3] = ptx.mma_f16(
                            a0, a1, a2, a3, b0, b1, acc[8 * n], acc[8 * n + 1], acc[8 * n + 2], acc[8 * n + 3]
                        )
                        acc[8 * n + 4], acc[8 * n + 5], acc[8 * n + 6], acc[8 * n + 7] = ptx.mma_f16(
                            a0, a1, a2, a3, b2, b3, acc[8 * n + 4], acc[8 * n + 5], acc[8 * n + 6], acc[8 * n + 7]
                        )
            cuda.syncthreads()
            if t + 1 < tiles:
                copy(sh, int32(values), pages, value_at, following, end, tid)
            ptx.cp_async_commit()
            slot = following
            t = int32(t + 1)
        total0 += ptx.shfl_xor(total0, 1)
        total1 += ptx.shfl_xor(total1, 1)
        total0 = ptx.rcp(total0 + ptx.shfl_xor(total0, 2))
        total1 = ptx.rcp(total1 + ptx.shfl_xor(total1, 2))
        row = int32(first_row + 16 * warp + g)
        at0 = int32((row * heads + head) * dim + 2 * pair)
        for n in range(columns):
            if row < rows:
                ptx.stf2(out, int32(at0 + 8 * n), acc[4 * n] * total0, acc[4 * n + 1] * total0)
            if row + 8 < rows:
                ptx.stf2(out, int32(at0 + 8 * heads * dim + 8 * n), acc[4 * n + 2] * total1, acc[4 * n + 3] * total1)

    return attention_tile


for dim in (64, 80, 96, 128, 256):
    make(dim)
