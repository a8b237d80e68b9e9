"""expert_gate_<TYPE>, expert_down_<TYPE>: what a row's experts make of it, by integer dot products as in linear_dot, each in
one launch.

expert_gate: out[j, r] = act(G_j[r] . h) * (U_j[r] . h) for the `used` experts of the row, with h as in linear_dot (x, norm,
normed, eps, columns). Expert e's matrices begin e * stride bytes behind those of the first, gate and up; `rows` rows are used
of each. expert_down: out = y (mode 0) or out += scale * y (mode 1), y[r] = sum_j w_j D_j[r] . g[j], the sums of all experts as
one of used * hidden columns; g: float32[used, hidden] from expert_gate; out: float32[rows].

Every block of expert_gate finds the experts by itself, from the router's logits without a bias or groups (experts: up to 128;
the settings are those of route.py), and the first one writes `routes` as route does; where `routed` says so, `routes` holds
them already. used: up to 32; columns and hidden: multiples of 256.

A strand of 16 lanes has a row of gate and up (expert_down: `held` neighbouring rows), which `splits` strands, any number, share
by columns. A block has STRANDS // splits such units; grid: ceil(units / that), units being used * rows, or ceil(rows / held).
Dynamic shared memory: 5/2 bytes per column (expert_down: of used * hidden).
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from . import ptx
from .dots import adder, bound, preparer, quantize
from .exponential import exponential
from .export import device, kernel
from .linear_dot import activated, stepper, strand_sum
from .reductions import warp_sum
from .route import NARROW, SOFTMAX, TAKEN, key_of, logit_of, value_of, weigh

MOST_USED = 32
FORMATS = bound()
def threads_of(format, held):
    """Of a block that has a multiprocessor for itself: as many as have the registers for a block of weights of `held` rows."""
    return 768 if held * format.record.words < 30 else 512


@device
def rank(logits, experts, used, keys, ids, chosen, tid):
    """NARROW threads count, each for one expert, how many are better: the first `used` go to `ids`, their logits to `chosen`."""
    logit, key = float32(0), uint32(TAKEN)
    if tid < experts:
        logit = logit_of(logits, tid)
        key = key_of(logit)
    keys[uint32(tid)] = key
    ptx.bar_sync(int32(1), int32(NARROW))
    better, own = int32(0), int32(tid >> 2)
    for q in range(NARROW // 4):
        least = key
        if q < own:  # the lower index is the better one among equals
            least = uint32(key - uint32(1))
        a, b, c, d = ptx.lds128(keys, int32(4 * q))
        better = int32(better + int32(a > least) + int32(b > least) + int32(c > least) + int32(d > least))
    for k in range(3):
        if tid & 3 > k and keys[uint32(4 * own + k)] == key:
            better = int32(better + 1)
    if tid < experts and better < used:
        ids[uint32(better)] = tid
        chosen[uint32(better)] = logit


@device
def weights_of(keys, chosen, used, gating, renormalize, scale, lane):
    """The weights of the ranked experts, by one warp."""
    total = float32(0)
    if gating == SOFTMAX and renormalize == 0:
        for k in range(NARROW // 32):
            key = keys[uint32(lane + 32 * k)]
            if key != uint32(TAKEN):
                total = float32(total + exponential(float32(value_of(key) - chosen[uint32(0)])))
        total = warp_sum(total)
    logit = chosen[uint32(min(lane, int32(used - 1)))]
    return weigh(logit, chosen[uint32(0)], total, used, gating, renormalize, scale, lane)


def _gate(format):
    words, nbytes, threads = format.record.words, format.record.nbytes, threads_of(format, 2)
    warps, strands, all_words = threads // 32, threads // 16, 2 * format.record.words
    partials = 2 * strands
    load, load_head, step = format.load, format.load_head, stepper(format, 2)
    prepare, sum_of = preparer(threads, idle=NARROW), adder(warps - NARROW // 32)

    def expert_gate(
        x, norm, normed, eps, columns, gate, up, stride, rows, logits, routes, routed, experts, used, gating, renormalize, scale,
        out, act, splits,
    ):  # fmt: skip
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=128)
        squares = cuda.shared.array(warps, float32)
        parts = cuda.shared.array(partials, float32)
        ids, chosen = cuda.shared.array(MOST_USED, int32), cuda.shared.array(MOST_USED, float32)
        keys = cuda.shared.array(NARROW, uint32, alignment=16)
        raw, sums = cuda.local.array(all_words, uint32), cuda.local.array(2, float32)
        tid = int32(cuda.threadIdx.x)
        lane, strand, t = int32(tid & 31), int32(tid >> 4), int32(tid & 3)
        blocks = int32(columns >> 8)
        ptx.pdl_wait()
        if tid >= NARROW:
            prepare(x, norm, normed, columns, sh, squares)
        elif routed:
            if tid < used:
                ids[uint32(tid)] = int32(ptx.ldf(routes, int32(tid + used)))
        else:
            rank(logits, experts, used, keys, ids, chosen, tid)
        cuda.syncthreads()
        mine = ptx.quotient(strand, splits)
        first = int32(4 * (strand - mine * splits) + ((lane >> 2) & 3))
        own = ptx.quotient(int32(strands), splits)
        units = int32(used * rows)
        unit = int32(min(int32(cuda.blockIdx.x * own + min(mine, int32(own - 1))), int32(units - 1)))
        slot = ptx.quotient(unit, rows)
        at = ptx.address(gate, ids[uint32(slot)] * stride + int64(unit - slot * rows) * int64(blocks * nbytes))
        below = ptx.address(up, int64(0)) - ptx.address(gate, int64(0))
        wanted = uint32(1 if first < blocks else 0)
        for r in range(2):
            load(at + r * below, first, t, wanted, raw, r * words)
            load_head(at + r * below, first, t, wanted, raw, r * words)
        if cuda.blockIdx.x == 0 and tid < 32 and routed == 0:
            weight = weights_of(keys, chosen, used, gating, renormalize, scale, lane)
            if lane < used:
                routes[lane] = weight
                routes[int32(lane + used)] = float32(ids[uint32(lane)])
        sums[0], sums[1] = float32(0), float32(0)
        b = first
        while b < blocks:
            coming = int32(b + 4 * splits)
            wanted = uint32(1 if coming < blocks else 0)
            step(sums, raw, b, t, at, below, int32(blocks << 8), sh, at, below, coming, wanted)
            b = coming
        cuda.syncwarp()
        tid = ptx.opaque(int32(cuda.threadIdx.x))
        y = strand_sum(sums, 2, int32(tid & 31))
        if tid & 15 < 2:
            parts[uint32(2 * (tid >> 4) + (tid & 1))] = y
        cuda.syncthreads()
        index = int32(cuda.blockIdx.x * own + tid)
        if tid < own and index < units:
            g, u = float32(0), float32(0)
            for k in range(splits):
                place = int32(2 * (tid * splits + k))
                g += parts[uint32(place)]
                u += parts[uint32(place + 1)]
            if normed:
                factor = ptx.rsqrt(sum_of(squares) / float32(columns) + eps)
                g, u = float32(g * factor), float32(u * factor)
            out[index] = float32(activated(act, g) * u)

    return expert_gate


def weigher():
    """Device function: four values of g times their expert's weight, as linear_dot wants activations."""

    @device
    def weighted(v, o, i, columns, hidden, used, weights, tid, sh):
        if i - 4 * (tid & 31) < columns:  # the whole warp: its lanes work together
            w = weights[uint32(min(ptx.quotient(i, hidden), int32(used - 1)))]
            a, b, c, d = float32(v[o] * w), float32(v[o + 1] * w), float32(v[o + 2] * w), float32(v[o + 3] * w)
            quantize(a, b, c, d, i, columns, columns, tid, sh)

    return weighted


def _down(format, held):
    words, nbytes, threads = format.record.words, format.record.nbytes, threads_of(format, held)
    strands, all_words, half, stride4 = threads // 16, held * format.record.words, held >> 1, 4 * threads
    partials = held * strands
    load, load_head, step = format.load, format.load_head, stepper(format, held)
    weighted = weigher()

    @device
    def place_of(w, stride, line, row, b, row_blocks, ids, used):
        """Where virtual block 0 of a row would be, for the expert to which virtual block b belongs."""
        slot = int32(min(ptx.quotient(b, row_blocks), int32(used - 1)))
        return ptx.address(w, ids[uint32(slot)] * stride + int64(row - slot) * line)

    def expert_down(g, hidden, w, stride, rows, routes, used, out, mode, scale, splits):
        ptx.pdl_launch()
        sh = cuda.shared.array(0, uint32, alignment=128)
        parts = cuda.shared.array(partials, float32)
        ids, weights = cuda.shared.array(MOST_USED, int32), cuda.shared.array(MOST_USED, float32)
        raw, sums, v = cuda.local.array(all_words, uint32), cuda.local.array(held, float32), cuda.local.array(8, float32)
        tid = int32(cuda.threadIdx.x)
        lane, strand, t = int32(tid & 31), int32(tid >> 4), int32(tid & 3)
        row_blocks = int32(hidden >> 8)
        blocks = int32(row_blocks * used)
        columns, line = int32(blocks << 8), int64(row_blocks * nbytes)
        mine = ptx.quotient(strand, splits)
        first = int32(4 * (strand - mine * splits) + ((lane >> 2) & 3))
        own = ptx.quotient(int32(strands), splits)
        row = int32(min(int32((cuda.blockIdx.x * own + min(mine, int32(own - 1))) << half), int32(rows - 1)))
        below = int64(0)
        if held == 2 and row + 1 < rows:
            below = line
        index = int32(((cuda.blockIdx.x * own) << half) + tid)  # the row that a thread finishes
        owner = int32(1 if tid < own << half and index < rows else 0)
        ptx.pdl_wait()
        if tid < used:
            weights[uint32(tid)] = ptx.ldf(routes, tid)
            ids[uint32(tid)] = int32(ptx.ldf(routes, int32(tid + used)))
        for k in range(2):
            i = int32(stride4 * k + 4 * tid)
            v[4 * k], v[4 * k + 1], v[4 * k + 2], v[4 * k + 3] = ptx.ldf4_if(g, i, uint32(1 if i < columns else 0))
        before = float32(0)
        if owner and mode == 1:
            before = ptx.ldf(out, index)
        cuda.syncthreads()
        wanted = uint32(1 if first < blocks else 0)
        at = place_of(w, stride, line, row, first, row_blocks, ids, used)
        for r in range(held):
            load(at + r * below, first, t, wanted, raw, r * words)
            load_head(at + r * below, first, t, wanted, raw, r * words)
        weighted(v, 0, int32(4 * tid), columns, hidden, used, weights, tid, sh)
        weighted(v, 4, int32(4 * tid + stride4), columns, hidden, used, weights, tid, sh)
        i = int32(4 * tid + 2 * stride4)
        while i - 4 * lane < columns:
            v[0], v[1], v[2], v[3] = ptx.ldf4_if(g, i, uint32(1 if i < columns else 0))
            weighted(v, 0, i, columns, hidden, used, weights, tid, sh)
            i = int32(i + stride4)
        cuda.syncthreads()
        for r in range(held):
            sums[r] = float32(0)
        b = first
        while b < blocks:
            coming = int32(b + 4 * splits)
            wanted = uint32(1 if coming < blocks else 0)
            next_at = place_of(w, stride, line, row, coming, row_blocks, ids, used)
            step(sums, raw, b, t, at, below, columns, sh, next_at, below, coming, wanted)
            b, at = coming, next_at
        cuda.syncwarp()
        y = strand_sum(sums, held, lane)
        if tid & 15 < held:
            parts[uint32(held * strand + (tid & (held - 1)))] = y
        cuda.syncthreads()
        if owner:
            y = float32(0)
            for k in range(splits):
                y += parts[uint32(held * ((tid >> half) * splits + k) + (tid & (held - 1)))]
            if mode == 1:
                y = ptx.fmaf(scale, y, before)
            out[index] = y

    return expert_down


GATE = "FFifi" + "BBli" + "FFiiiiif" + "Fii"
DOWN = "FiBliFiFifi"


def held_down(format):
    """Rows of a strand of expert_down: two where registers allow 768 threads with them."""
    return 2 if threads_of(format, 2) == 768 else 1


for _format in FORMATS.values():
    kernel(GATE, threads=threads_of(_format, 2), name=f"expert_gate_{_format.block.name}")(_gate(_format))
    if held_down(_format) == 2:  # others: expert_staged.py
        kernel(DOWN, threads=threads_of(_format, 2), name=f"expert_down_{_format.block.name}")(_down(_format, 2))
