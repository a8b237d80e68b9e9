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


def _mma(depth):
    """D = A B + C of float16 pairs, accumulated in float32, as the fragments lie in the PTX manual."""
    a_words, b_words = depth // 4, depth // 8

    def product(lanes):
        words = numpy.array([[int(w) & 0xFFFFFFFF for w in lane[: a_words + b_words]] for lane in lanes], numpy.uint32)
        halves = words.view(numpy.float16).reshape(32, -1, 2).astype(float32)
        a, b = numpy.zeros((16, depth), float32), numpy.zeros((depth, 8), float32)
        for lane in range(32):
            row, pair = lane >> 2, 2 * (lane & 3)
            for q in range(a_words):
                a[row + 8 * (q & 1), pair + 8 * (q >> 1) :][:2] = halves[lane, q]
            for q in range(b_words):
                b[pair + 8 * q : pair + 8 * q + 2, row] = halves[lane, a_words + q]
        return _fragments(a @ b, [lane[a_words + b_words :] for lane in lanes])

    return product


def _mma_bytes(kind):
    """m16n8k32 of bytes: A of numpy `kind`, B signed."""

    def product(lanes):
        words = numpy.array([[int(w) & 0xFFFFFFFF for w in lane[:6]] for lane in lanes], numpy.uint32)
        left, right = words[:, :4].copy().view(kind).astype(int), words[:, 4:].copy().view(numpy.int8).astype(int)
        a, b = numpy.zeros((16, 32), int), numpy.zeros((32, 8), int)
        for lane in range(32):
            row, four = lane >> 2, 4 * (lane & 3)
            for q in range(4):
                a[row + 8 * (q & 1), four + 16 * (q >> 1) :][:4] = left[lane, 4 * q : 4 * q + 4]
            for q in range(2):
                b[four + 16 * q : four + 16 * q + 4, row] = right[lane, 4 * q : 4 * q + 4]
        return [tuple(map(int32, lane)) for lane in _fragments(a @ b, [lane[6:] for lane in lanes])]

    return product


def _fragments(product, sums):
    out = []
    for lane, c in enumerate(sums):
        row, column = lane >> 2, 2 * (lane & 3)
        d = (product[row, column], product[row, column + 1], product[row + 8, column], product[row + 8, column + 1])
        out.append(tuple(x + y for x, y in zip(d, c, strict=True)))
    return out


def _ldmatrix(count, transposed=False):
    def load(lanes):
        out = [[] for _ in range(32)]
        for q in range(count):
            rows = []
            for place, index in lanes[8 * q : 8 * q + 8]:
                array, offset = bytes_at(place, index, 16, 16, "s")
                rows.append(numpy.frombuffer(array.raw[offset : offset + 16], numpy.uint16))
            matrix = numpy.stack(rows)
            words = (numpy.ascontiguousarray(matrix.T) if transposed else matrix).view(numpy.uint32)
            for lane in range(32):
                out[lane].append(int(words[lane >> 2, lane & 3]))
        return [tuple(words) if count > 1 else words[0] for words in out]

    return load


def _all_lanes(function):
    """One result from the only argument of every lane, the same for each."""
    return lambda lanes: [function([lane[0] for lane in lanes])] * len(lanes)


_XOR, _INDEX = _shuffle(lambda lane, mask: lane ^ mask), _shuffle(lambda lane, index: index & 31)
_DOWN, _UP = _shuffle(lambda lane, by: lane + by), _shuffle(lambda lane, by: lane - by)
WARP = {  # name -> function of the 32 argument tuples that gives 32 results
    **dict.fromkeys(("shfl_xor", "shfl_xor_i", "shfl_xor_u"), _XOR),
    **dict.fromkeys(("shfl_idx", "shfl_idx_i", "shfl_idx_u"), _INDEX),
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
