"""expand_<TYPE>: weights of any block format as float16 (or, where `wide` is 1, float32), in the order of the file. wide 2, for
formats of more than 11 bits: what their float16 leave of them.

For products of many tokens in formats that tensor cores are not fed from directly (linear_tiles then takes the result as
F16), and for weights kept as floats. Values beyond float16 become infinite there. count: a multiple of 8 and of the
blocks, 2**31 - 1 at most. Grid: (ceil(count / VALUES)).

Blocks with fragments (quant/fragment.py) are unpacked as for tensor cores: four lanes share a step, and the scale of a unit
comes from the lane that has its column. Others go through the format's `unpack`, one thread per 8 values at a time.
"""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device, kernel
from .fragments import bound, stager

THREADS = 256
VALUES = 16384  # of a block of threads: 256 for each four lanes, or 8 times 8 for each thread
GROUP = 4 * VALUES // THREADS
AT_ONCE = 8 * THREADS


@device
def put(out, at, wide, v):
    """Eight neighbours from value `at` on."""
    if wide == 1:
        ptx.st128(out, at, ptx.f2bits(v[0]), ptx.f2bits(v[1]), ptx.f2bits(v[2]), ptx.f2bits(v[3]))
        ptx.st128(out, int32(at + 4), ptx.f2bits(v[4]), ptx.f2bits(v[5]), ptx.f2bits(v[6]), ptx.f2bits(v[7]))
    else:
        ptx.st128(out, int32(at >> 1), ptx.f2h2(v[0], v[1]), ptx.f2h2(v[2], v[3]), ptx.f2h2(v[4], v[5]), ptx.f2h2(v[6], v[7]))


def by_value(block):
    element = device(load(block.name).unpack(memory))
    nbytes, shift, last = block.nbytes, block.elements.bit_length() - 1, block.elements - 1
    summed = block.id in _formats and _formats[block.id].record.summed

    def expand(weights, out, count, wide):
        ptx.pdl_launch()
        ptx.pdl_wait()
        v = cuda.local.array(8, float32)
        start = ptx.address(weights, int64(0))
        first = int32(cuda.blockIdx.x * VALUES + cuda.threadIdx.x * 8)
        done = int32(0)
        while done < VALUES and int64(first) + done < count:
            for k in range(8):
                at = int32(first + done + k)
                v[k] = element(start + int64(at >> shift) * nbytes, int64(at & last))
                if summed and wide == 2:
                    v[k] = float32(v[k] - ptx.h2f_lo(ptx.f2h(v[k])))
            put(out, int32(first + done), wide, v)
            done = int32(done + AT_ONCE)

    return expand


def _unit(format):
    """Device function: the eight values of a lane in plane j of chunk c, from scale s and minimum m."""
    codes, gain = format.codes, [2.0**24 / (16**j if format.record.raised else 1) for j in range(2)]
    even, odd = gain

    def unit(raw, o, c, j, t, shift, s, m, v):
        w0, w1, w2, w3 = codes(raw, 0, o, c, j, t, shift)
        grow = float32(even)
        if j == 1:
            grow = float32(odd)
        s = float32(s * grow)
        v[0], v[2] = ptx.fmaf(ptx.h2f_lo(w0), s, m), ptx.fmaf(ptx.h2f_hi(w0), s, m)
        v[1], v[3] = ptx.fmaf(ptx.h2f_lo(w1), s, m), ptx.fmaf(ptx.h2f_hi(w1), s, m)
        v[4], v[6] = ptx.fmaf(ptx.h2f_lo(w2), s, m), ptx.fmaf(ptx.h2f_hi(w2), s, m)
        v[5], v[7] = ptx.fmaf(ptx.h2f_lo(w3), s, m), ptx.fmaf(ptx.h2f_hi(w3), s, m)

    return device(unit)


def by_fragment(format):
    record = format.record
    head, words, chunks, planes, parts, elements = (
        record.head, record.words, record.chunks, record.planes, record.parts, record.elements,
    )  # fmt: skip
    part_chunks, part_elements, all_words = chunks // parts, elements // parts, head + chunks * words
    split, hop, c_units, j_units = record.split, record.hop == 32, record.c_units, record.j_units
    block_shift, element_shift = format.block.elements.bit_length() - 1, elements.bit_length() - 1
    nbytes, steps = format.block.nbytes, GROUP // elements
    half_steps, step_bytes = (1 if format.block.elements > elements else 0), max(elements // format.block.elements, 1) * nbytes
    place, load_head, load_chunk, scales = format.place, format.load_head, format.load_chunk, format.scales
    unit_of, stage = _unit(format), stager(format.table, THREADS)

    @device
    def scale_of(s0, s1, unit, lane):
        source, odd = int32((lane & 28) | (unit >> 1)), int32(unit & 1)
        if split:
            source, odd = int32((lane & 28) | unit), int32((lane >> 1) & 1)
        even_scale, odd_scale = ptx.shfl_idx(s0, source), ptx.shfl_idx(s1, source)
        if odd:
            even_scale = odd_scale
        return even_scale

    def expand(weights, out, count, wide):
        ptx.pdl_launch()
        raw, v = cuda.local.array(all_words, uint32), cuda.local.array(8, float32)
        tid = int32(cuda.threadIdx.x)
        lane, t = int32(tid & 31), int32(tid & 3)
        row, last = ptx.address(weights, int64(0)), int32(int32(count >> block_shift) - 1)
        stage(tid)
        cuda.syncthreads()
        ptx.pdl_wait()
        for k in range(steps):
            own = int64(int32(int32(cuda.blockIdx.x * (THREADS // 4) + (tid >> 2)) * steps + k)) * elements
            step, wanted = int32(min(own, int64(count - 1)) >> element_shift), uint32(1)  # all lanes work: scales travel
            at = place(row, step, t)
            load_head(at, step, t, last, wanted, raw, 0)
            for c in range(chunks):
                load_chunk(at, step, t, last, c, wanted, raw, head + c * words)
            shift = uint32(uint32((int32(row) + (step >> half_steps) * step_bytes) & 2) << uint32(3))
            for c in range(chunks):
                part, i = c // part_chunks, c % part_chunks
                s0, s1, m0, m1 = scales(raw, 0, t, part)
                for j in range(planes):
                    unit = c_units * i + j_units * j
                    first = own + part * part_elements + 32 * unit + 8 * t
                    if hop:
                        unit = i
                        first = own + 64 * c + 16 * j + 8 * (t & 1) + 32 * (t >> 1)
                    s, m = scale_of(s0, s1, int32(unit), lane), scale_of(m0, m1, int32(unit), lane)
                    unit_of(raw, head + c * words, c, j, t, shift, s, m, v)
                    if first < count:
                        put(out, int32(first), wide, v)

    return expand


_formats = bound()
for _block in TYPES.values():
    _in_fragments = _block.elements > 1 and _block.id in _formats
    _function = by_fragment(_formats[_block.id]) if _in_fragments else by_value(_block)
    kernel("BUii", threads=THREADS, name=f"expand_{_block.name}")(_function)
