"""Calls at which threads meet, as functions of the argument tuples of all lanes: shuffles, matrix products, barriers."""

import numpy
from emulated_memory import bytes_at, ld32, ld128, try_wait
from emulated_numbers import float32, int32, uint32


def _shuffle(source):
    """Lanes take the value of lane source(lane, operand); a lane outside of the warp gives them their own."""

    def shuffled(lanes):
        out = []
        for lane, (value, operand) in enumerate(lanes):
            other = source(lane, operand)
            out.append(lanes[other][0] if 0 <= other < 32 else value)
        return out

    return shuffled


LANES = numpy.arange(32)
ROW, PAIR = LANES >> 2, 2 * (LANES & 3)  # of a lane in an accumulator


def _words(lanes, count):
    """The first `count` arguments of every lane as uint32[32, count]."""
    return numpy.array([[int(w) & 0xFFFFFFFF for w in lane[:count]] for lane in lanes], numpy.uint32)


def _operands(a_words, b_words, per_word, words, kind):
    """A[16, k] and B[k, 8] from the registers of a warp, as the fragments lie in the PTX manual."""
    a, b = (words[:, :a_words], words[:, a_words:])
    depth = 4 * per_word * b_words
    first = (LANES & 3) * per_word
    out_a, out_b = numpy.zeros((16, depth), kind[0]), numpy.zeros((depth, 8), kind[1])
    values_a = numpy.ascontiguousarray(a).view(kind[0]).reshape(32, a_words, per_word)
    values_b = numpy.ascontiguousarray(b).view(kind[1]).reshape(32, b_words, per_word)
    for e in range(per_word):
        for q in range(a_words):
            out_a[ROW + 8 * (q & 1), first + 4 * per_word * (q >> 1) + e] = values_a[:, q, e]
        for q in range(b_words):
            out_b[first + 4 * per_word * q + e, ROW] = values_b[:, q, e]
    return out_a, out_b


def _fragments(product):
    return numpy.stack([product[ROW, PAIR], product[ROW, PAIR + 1], product[ROW + 8, PAIR], product[ROW + 8, PAIR + 1]], 1)


def _mma(depth):
    """D = A B + C of float16 pairs, accumulated in float32."""
    a_words, b_words = depth // 4, depth // 8

    def product(lanes):
        a, b = _operands(a_words, b_words, 2, _words(lanes, a_words + b_words), (numpy.float16, numpy.float16))
        sums = numpy.array([lane[a_words + b_words :] for lane in lanes], float32)
        return list(map(tuple, _fragments(a.astype(float32) @ b.astype(float32)) + sums))

    return product


def _mma_bytes(kind):
    """m16n8k32 of bytes: A of numpy `kind`, B signed."""

    def product(lanes):
        a, b = _operands(4, 2, 4, _words(lanes, 6), (kind, numpy.int8))
        sums = numpy.array([[int(c) for c in lane[6:]] for lane in lanes])
        return [tuple(map(int32, lane)) for lane in _fragments(a.astype(int) @ b.astype(int)) + sums]

    return product


def _mma_bits(lanes):
    """m16n8k128: how many bits A and B both have."""
    a, b = _operands(2, 1, 1, _words(lanes, 3), (numpy.uint32, numpy.uint32))
    both = (a[:, :, None] & b[None]).view(numpy.uint8).reshape(16, 4, 8, 4)
    counts = numpy.unpackbits(both, axis=3).sum(axis=(1, 3), dtype=int)
    sums = numpy.array([[int(c) for c in lane[3:]] for lane in lanes])
    return [tuple(map(int32, lane)) for lane in _fragments(counts) + sums]


def _ldmatrix(count, transposed=False):
    def load(lanes):
        out = []
        for q in range(count):
            rows = b""
            for place, index in lanes[8 * q : 8 * q + 8]:
                array, offset = bytes_at(place, index, 16, 16, "s")
                rows += bytes(array.raw[offset : offset + 16])
            matrix = numpy.frombuffer(rows, numpy.uint16).reshape(8, 8)
            words = numpy.ascontiguousarray(matrix.T if transposed else matrix).view(numpy.uint32)
            out.append(words[ROW, LANES & 3].tolist())
        return list(zip(*out, strict=True)) if count > 1 else out[0]

    return load


def _all_lanes(function):
    """One result from the only argument of every lane, the same for each."""
    return lambda lanes: [function([lane[0] for lane in lanes])] * len(lanes)


_XOR, _INDEX = _shuffle(lambda lane, mask: lane ^ mask), _shuffle(lambda lane, index: index & 31)
_DOWN, _UP = _shuffle(lambda lane, by: lane + by), _shuffle(lambda lane, by: lane - by)
WARP = {  # name -> function of the 32 argument tuples that gives 32 results
    **dict.fromkeys(("shfl_xor", "shfl_xor_i", "shfl_xor_u"), _XOR),
    **dict.fromkeys(("shfl_idx", "shfl_idx_i", "shfl_idx_u"), _INDEX),
    "shfl_four": _shuffle(lambda lane, index: lane & 28 | index & 3),
    **dict.fromkeys(("shfl_down", "shfl_down_i"), _DOWN),
    **dict.fromkeys(("shfl_up", "shfl_up_i"), _UP),
    "ballot": _all_lanes(lambda values: sum(bool(v) << lane for lane, v in enumerate(values))),
    "redux_add": _all_lanes(lambda values: int32(sum(values))),
    "redux_max": _all_lanes(lambda values: max(uint32(v) for v in values)),
    "redux_min": _all_lanes(lambda values: min(uint32(v) for v in values)),
    **{f"ldmatrix_x{n}": _ldmatrix(n) for n in (1, 2, 4)},
    **{f"ldmatrix_x{n}t": _ldmatrix(n, True) for n in (1, 2, 4)},
    "mma_f16": _mma(16),
    "mma_f16_k8": _mma(8),
    "mma_b1": _mma_bits,
    "mma_s8": _mma_bytes(numpy.int8),
    "mma_us8": _mma_bytes(numpy.uint8),
    "syncwarp": lambda lanes: [None] * 32,
}
BLOCK = {
    "syncthreads": lambda threads: [None] * len(threads),
    "syncthreads_or": _all_lanes(lambda values: int(any(values))),
    "syncthreads_and": _all_lanes(lambda values: int(all(values))),
    "syncthreads_count": _all_lanes(lambda values: sum(map(bool, values))),
}
SPIN = {  # loads in waiting loops: others run before the answer
    "ld_acquire": ld32,
    "ld_rel32": ld32,
    "ld_ll2": ld128,
    "ld_ll4": ld128,
    "mbar_try_wait": try_wait,
}
NAMED = "bar_sync"  # (barrier, threads): some warps of the block
NOT_EMULATED = {"tma_2d", "setmaxnreg_inc", "setmaxnreg_dec"} | {
    f"wgmma_{what}" for what in ("fence", "commit", "wait", "n64", "n128", "n256")
}
