"""expert_down_<TYPE> (see expert_dot.py) for formats whose blocks are read in small words: a block of threads first copies the
rows it has of each expert, which lie together, to shared memory, all at once, and unpacks them from there.

`out`, `mode`, `scale`, `splits` and the grid are those of expert_dot's, with one row per unit. own =
STRANDS // splits rows of a matrix are a multiple of 16 bytes, as are `stride` and the place of the first matrix. Dynamic shared
memory: 5/2 bytes for each of used * hidden columns and own rows of each expert.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx, staged
from .dots import bound
from .expert_dot import DOWN, MOST_USED, held_down, strand_sum, weigher
from .export import kernel
from .linear_dot import stepper

THREADS = 768
STRANDS = THREADS // 16
FORMATS = [format for format in bound(staged).values() if held_down(format) == 1]


def _down(format):
    words, nbytes = format.record.words, format.record.nbytes
    load, load_head, step = format.load, format.load_head, stepper(format, 1)
    weighted = weigher()

    def expert_down(g, hidden, w, stride, rows, routes, used, out, mode, scale, splits):
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=128)
        parts = cuda.shared.array(STRANDS, float32)
        ids, weights = cuda.shared.array(MOST_USED, int32), cuda.shared.array(MOST_USED, float32)
        raw, sums, v = cuda.local.array(words, uint32), cuda.local.array(1, float32), cuda.local.array(8, float32)
        tid = int32(cuda.threadIdx.x)
        lane, strand, t = int32(tid & 31), int32(tid >> 4), int32(tid & 3)
        row_blocks = int32(hidden >> 8)
        blocks = int32(row_blocks * used)
        columns, line = int32(blocks << 8), int32(row_blocks * nbytes)
        own = ptx.quotient(int32(STRANDS), splits)
        row0, w_at = int32(cuda.blockIdx.x * own), int32(5 * columns >> 3)  # words
        segment = int32(own * line)
        pieces = int32(segment >> 4)
        present = int32((min(own, int32(rows - row0)) * line + 15) >> 4)
        ptx.pdl_wait()
        if tid < used:
            weights[uint32(tid)] = ptx.ldf(routes, tid)
            ids[uint32(tid)] = int32(ptx.ldf(routes, int32(tid + used)))
        for k in range(2):
            i = int32(4 * THREADS * k + 4 * tid)
            v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3] = ptx.ldf4_if(g, i, uint32(1 if i < columns else 0))
        before = float32(0)
        owner = int32(1 if tid < own and row0 + tid < rows else 0)
        if owner and mode == 1:
            before = ptx.ldf(out, int32(row0 + tid))
        cuda.syncthreads()
        early = ptx.quotient(int32(4 * splits + row_blocks - 1), row_blocks)
        early = int32(min(early, used))  # experts of the strands' first blocks
        piece, last = tid, int32(early * pieces)
        for _ in range(2):  # two groups of copies
            while piece < last:
                slot = ptx.quotient(piece, pieces)
                at = int32(piece - slot * pieces)
                if at < present:
                    source = ptx.address(w, ids[uint32(slot)] * stride + int64(row0) * line)
                    ptx.cp_async16(sh, int32(w_at + 4 * piece), source, int32(16 * at))
                piece = int32(piece + THREADS)
            ptx.cp_async_commit()
            last = int32(used * pieces)
        weighted(v, 0, int32(4 * tid), columns, hidden, used, weights, tid, sh)
        weighted(v, 4, int32(4 * tid + 4 * THREADS), columns, hidden, used, weights, tid, sh)
        i = int32(4 * tid + 8 * THREADS)
        while i - 4 * lane < columns:
            v[0], v[1], v[2], v[3] = ptx.ldf4_if(g, i, uint32(1 if i < columns else 0))
            weighted(v, 0, i, columns, hidden, used, weights, tid, sh)
            i = int32(i + 4 * THREADS)
        mine = ptx.quotient(strand, splits)
        row = int32(min(min(mine, int32(own - 1)), int32(rows - 1 - row0)))
        b = int32(4 * (strand - mine * splits) + ((lane >> 2) & 3))
        start = int32(0)
        sums[0] = float32(0)
        while start < blocks:
            if start == 0:
                ptx.cp_async_wait(1)
            else:
                ptx.cp_async_wait(0)
            cuda.syncthreads()
            if b < blocks:
                slot = ptx.quotient(b, row_blocks)
                at = int64(ptx.smem_addr(sh, w_at) + slot * segment + (row - slot) * line)
                load(at, b, t, uint32(1), raw, 0)
                load_head(at, b, t, uint32(1), raw, 0)
                step(sums, raw, b, t, at, int64(0), columns, sh, at, int64(0), b, uint32(0))
            b, start = int32(b + 4 * splits), int32(start + 4 * splits)
        cuda.syncwarp()
        y = strand_sum(sums, 1, lane)
        if tid & 15 == 0:
            parts[uint32(strand)] = y
        cuda.syncthreads()
        if owner:
            y = float32(0)
            for k in range(splits):
                y += parts[uint32(tid * splits + k)]
            if mode == 1:
                y = ptx.fmaf(scale, y, before)
            out[int32(row0 + tid)] = y

    return expert_down


for _format in FORMATS:
    kernel(DOWN, threads=THREADS, name=f"expert_down_{_format.block.name}", since=80)(_down(_format))
