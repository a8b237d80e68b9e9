"""attention_scores: of few rows, the scores that attention_tile makes weights of, to the bit; attention_sums does the rest.

    attention_scores_<64|32>: tiles of so many slots: 64 for key_dim = value_dim = dim up to 128, 32 for more. 128 threads.
    grid (tiles of slots, kv_heads, any), group = heads / kv_heads
    dynamic shared memory, in bytes: (slots + 16) * (2 dim + 16)

Rows are those that continue the timeline itself. A block takes 16 pairs of a row and a head, those of a key head row by row,
times the keys of one tile, then every (grid z)th 16. Tiles are counted from the first that any row sees; grid x must do for the
furthest. Parameters as in attention_tile.

scores [ceil(rows * group / 16)][kv_heads][tiles][held][4][slots / 4]: of a pair the four lanes that attention_tile has for it,
hidden slots included; tops [the same][kv_heads][tiles][held]: the largest of each. held: pairs that 16 are at most, or fewer.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .attention_cache import PARTED, PLAIN, over, page_of
from .attention_inputs import half_pair
from .attention_join import HIDDEN
from .attention_row import capped, unit_of
from .attention_tile import bounds_of
from .export import device, kernel

PAIRS = 16


@device
def row_of(pair, group):
    row = pair
    if group > 1:
        row = over(pair, group)
    return row


@device
def rows_of(cells, flags, few):
    """How many rows there are to compute, 0 where they are attention_tile's. May be read before the wait for earlier kernels: the
    host wrote these cells before the first of them."""
    rows = int32(ptx.ldg32(cells, 0))
    if flags & PARTED != 0:
        rows = int32(ptx.ldg32(cells, PLAIN))
    if rows > few:
        rows = int32(0)
    return rows


@device
def tiles_seen(rows, slots, window, cells, positions, shared, branches):
    """(first, last) tile that any row sees: the first row sees the first, the last row the last."""
    low, _, begin, _ = bounds_of(int32(0), window, cells, positions, shared, branches)
    return over(int32(min(low, begin)), slots), over(int32(int32(ptx.ldg32(cells, 1)) + rows - 1), slots)


@device
def put_pair_bounds(bounds, fragment, rows, group, window, cells, positions, shared, branches, tid):
    """The bounds of 16 pairs, those beyond the last as of the last."""
    if tid < PAIRS:
        pair = int32(min(int32(PAIRS * fragment + tid), int32(rows * group - 1)))
        low, stop, begin, own = bounds_of(row_of(pair, group), window, cells, positions, shared, branches)
        bounds[uint32(tid)] = low
        bounds[uint32(16 + tid)] = stop
        bounds[uint32(32 + tid)] = begin
        bounds[uint32(48 + tid)] = own


def make_copies(slots):
    """(bring, put_queries) for heads of up to 128 values, or 256 with tiles of 32 slots."""
    most = 8192 // slots
    parts, words = most // 8, most // 2  # of a row: 16 bytes, pairs of values
    shift, values = parts.bit_length() - 1, PAIRS * words // 64

    @device
    def bring(sh, pages, offset, dim, slot, end, tid):
        """The keys of a tile on their way to shared memory, zeros from slot `end` on."""
        pitch, here = int32((dim >> 1) + 4), page_of(pages, slot) + offset + int64((slot & 255) * 2 * dim)
        for i in range(slots * parts // 128):
            row, part = int32((tid + 128 * i) >> shift), int32(tid & (parts - 1))
            if 8 * part < dim:
                size = uint32(16)
                if slot + row >= end:
                    size = uint32(0)
                ptx.cp_async16z(sh, int32(row * pitch + 4 * part), here, int64(2 * dim * row + 16 * part), size)

    @device
    def put_queries(sh, queries, q, dim, fragment, rows, group, kv_head, q_stride, unit, tid):
        """16 rows of float16, as attention_tile rounds them; zeros beyond the last pair. All loads come before a value is used."""
        x = cuda.local.array(values, float32)
        for i in range(values // 2):
            at, column = int32((tid + 128 * i) >> (shift + 2)), int32((tid + 128 * i) & (words - 1))
            pair = int32(PAIRS * fragment + at)
            x[2 * i], x[2 * i + 1] = float32(0), float32(0)
            if 2 * column < dim and pair < rows * group:
                row = row_of(pair, group)
                head = int32(kv_head * group + pair - row * group)
                x[2 * i], x[2 * i + 1] = ptx.ldf2(q, int32(row * q_stride + head * dim + 2 * column))
        for i in range(values // 2):
            at, column = int32((tid + 128 * i) >> (shift + 2)), int32((tid + 128 * i) & (words - 1))
            if 2 * column < dim:
                word = half_pair(x[2 * i] * unit, x[2 * i + 1] * unit)
                ptx.sts32(sh, int32(queries + at * ((dim >> 1) + 4) + column), word)

    return bring, put_queries


@device
def hidden(score, bounds, i, at):
    """The score, or that of a slot which pair `i` does not see."""
    seen = at >= bounds[uint32(i)] and at < bounds[uint32(16 + i)]
    if not (seen or (at >= bounds[uint32(32 + i)] and at <= bounds[uint32(48 + i)])):
        score = float32(HIDDEN)
    return score


def make_multiply(depth):
    """`depth`: products of 16 values that the widest head takes."""

    @device
    def fetch(sh, f, to, query, key, k):
        f[to], f[to + 1], f[to + 2], f[to + 3] = ptx.ldmatrix_x4(sh, int32(query + 8 * k))
        f[to + 4], f[to + 5], f[to + 6], f[to + 7] = ptx.ldmatrix_x4(sh, int32(key + 8 * k))

    @device
    def multiply(sh, queries, pitch, dim, s, warp, lane):
        """s = 16 queries times the 16 keys of the warp."""
        f = cuda.local.array(16, uint32)
        query = int32(queries + (lane & 15) * pitch + 4 * (lane >> 4))
        key = int32((16 * warp + (lane & 7) + ((lane >> 4) << 3)) * pitch + 4 * ((lane >> 3) & 1))
        for n in range(8):
            s[n] = float32(0)
        fetch(sh, f, 0, query, key, 0)
        for k in range(depth):
            if 16 * k < dim:
                o = 8 * (k & 1)
                if 16 * k + 16 < dim:
                    fetch(sh, f, 8 - o, query, key, k + 1)
                s[0], s[1], s[2], s[3] = ptx.mma_f16(
                    f[o], f[o + 1], f[o + 2], f[o + 3], f[o + 4], f[o + 5], s[0], s[1], s[2], s[3]
                )
                s[4], s[5], s[6], s[7] = ptx.mma_f16(
                    f[o], f[o + 1], f[o + 2], f[o + 3], f[o + 6], f[o + 7], s[4], s[5], s[6], s[7]
                )

    return multiply


@device
def put_peaks(peaks, s, warp, lane):
    """The largest of a warp's scores of each pair."""
    peak0 = max(max(s[0], s[1]), max(s[4], s[5]))
    peak1 = max(max(s[2], s[3]), max(s[6], s[7]))
    peak0 = max(peak0, ptx.shfl_xor(peak0, 1))
    peak1 = max(peak1, ptx.shfl_xor(peak1, 1))
    peak0 = max(peak0, ptx.shfl_xor(peak0, 2))
    peak1 = max(peak1, ptx.shfl_xor(peak1, 2))
    if lane & 3 == 0:
        peaks[uint32(16 * warp + (lane >> 2))] = peak0
        peaks[uint32(16 * warp + (lane >> 2) + 8)] = peak1


def make(slots):
    workers = slots // 16  # warps
    (bring, put_queries), multiply = make_copies(slots), make_multiply(512 // slots)

    @kernel("FFFIIIILiiiiiiiiiff", threads=128, blocks=6, name=f"attention_scores_{slots}", since=80)
    def attention_scores(
        q, scores, tops, cells, positions, shared, branches, pages, q_stride, dim, held, heads, kv_heads, layer_at, window, few,
        flags, scale, cap,
    ):  # fmt: skip
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=16)
        bounds, peaks = cuda.shared.array(64, int32), cuda.shared.array(64, float32)
        tid = int32(cuda.threadIdx.x)
        lane, warp = int32(tid & 31), int32(tid >> 5)
        kv_head, fragment = int32(cuda.blockIdx.y), int32(cuda.blockIdx.z)
        group, rows = over(heads, kv_heads), rows_of(cells, flags, few)
        slot = int32(0)
        if rows > 0:
            first, last = tiles_seen(rows, int32(slots), window, cells, positions, shared, branches)
            slot = int32((first + int32(cuda.blockIdx.x)) * slots)
        if rows <= 0 or slot > last * slots:
            ptx.pdl_wait()
            return
        old = int32(ptx.ldg32(cells, 1))
        end = int32(old + int32(ptx.ldg32(cells, 0)))
        key_at = int64(layer_at) * 512 + int64(kv_head) * 512 * dim
        pitch = int32((dim >> 1) + 4)
        queries = int32(slots * pitch)
        early = slot + slots <= old  # keys of earlier batches are there whatever else is not
        if not early:
            ptx.pdl_wait()
        bring(sh, pages, key_at, dim, slot, end, tid)
        ptx.cp_async_commit()
        if early:
            ptx.pdl_wait()
        pair0 = int32(lane >> 2)
        pair1 = int32(pair0 + 8)
        s = cuda.local.array(8, float32)
        while PAIRS * fragment < rows * group:
            put_pair_bounds(bounds, fragment, rows, group, window, cells, positions, shared, branches, tid)
            put_queries(sh, queries, q, dim, fragment, rows, group, kv_head, q_stride, unit_of(scale, cap), tid)
            ptx.cp_async_wait(0)
            cuda.syncthreads()
            place = int32((fragment * kv_heads + kv_head) * int32(cuda.gridDim.x) + int32(cuda.blockIdx.x))
            pairs = int32(rows * group - PAIRS * fragment)
            if warp < workers:
                multiply(sh, queries, pitch, dim, s, warp, lane)
                if cap > float32(0):
                    for n in range(8):
                        s[n] = capped(s[n], cap)
                for n in range(2):
                    for e in range(2):
                        at = int32(slot + 16 * warp + 8 * n + 2 * (lane & 3) + e)
                        s[4 * n + e] = hidden(s[4 * n + e], bounds, pair0, at)
                        s[4 * n + e + 2] = hidden(s[4 * n + e + 2], bounds, pair1, at)
                part = int32((lane & 3) * (slots // 4) + 4 * warp)
                if pair0 < pairs:
                    ptx.stf4(scores, int32((place * held + pair0) * slots + part), s[0], s[1], s[4], s[5])
                if pair1 < pairs:
                    ptx.stf4(scores, int32((place * held + pair1) * slots + part), s[2], s[3], s[6], s[7])
                put_peaks(peaks, s, warp, lane)
            cuda.syncthreads()
            if tid < PAIRS and tid < pairs:
                top = peaks[uint32(tid)]
                for w in range(1, workers):
                    top = max(top, peaks[uint32(16 * w + tid)])
                tops[int32(place * held + tid)] = top
            fragment = int32(fragment + int32(cuda.gridDim.z))

    return attention_scores


for slots in (64, 32):
    make(slots)
