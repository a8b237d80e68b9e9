"""Tables of block formats in shared memory for linear_stream (`tables` and `entries` in quant/stream.py), each word in several
places side by side: lanes as many apart share one, so with 16 two at most meet in a bank, which costs as little as one.
"""

from llvmlite import ir
from numba.cuda import types
from numba.types import int32, uint32

from . import memory, ptx
from .export import device


def constants(data):
    """Function uint32 index -> word `index` of a table in global memory."""
    word, long = ir.IntType(32), ir.IntType(64)

    def codegen(context, builder, signature, arguments):
        at = [long(0), builder.mul(builder.zext(arguments[0], long), long(4))]
        place = builder.gep(memory._constant(builder, data), at)
        value = builder.load(builder.bitcast(place, word.as_pointer(memory.DEVICE_SPACE)), align=4)
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    def typing(typingctx, index):
        return types.uint32(types.uint32), codegen

    return memory._lookup(data, typing, 1)


def stager(data, most):
    """Device functions: put a table into shared memory from word `at` on, once the threads have met; a lane's place in it and the
    bytes from word to word, for `raw`; the word behind it. ways: 1 or 4, 8, .. times that each word is there, or `most`."""
    constant, count = constants(data), len(data) // 4

    @device
    def fill(sh, at, ways, tid, threads):
        ways = int32(min(ways, int32(most)))
        shift, i, most_chunk = int32(ptx.popc(uint32(ways - 1)) - 2), int32(tid), int32(int32(int32(ways * count) >> 2) - 1)
        while i <= most_chunk:
            if ways == 1:
                a, b = constant(uint32(4 * i)), constant(uint32(4 * i + 1))
                ptx.sts128(sh, int32(at + 4 * i), a, b, constant(uint32(4 * i + 2)), constant(uint32(4 * i + 3)))
                i = int32(i + threads)
            else:  # four loads on their way at once
                j, k, n = int32(i + threads), int32(i + 2 * threads), int32(i + 3 * threads)
                a, b = constant(uint32(i >> shift)), constant(uint32(int32(min(j, most_chunk)) >> shift))
                c, d = constant(uint32(int32(min(k, most_chunk)) >> shift)), constant(uint32(int32(min(n, most_chunk)) >> shift))
                ptx.sts128(sh, int32(at + 4 * i), a, a, a, a)
                if j <= most_chunk:
                    ptx.sts128(sh, int32(at + 4 * j), b, b, b, b)
                if k <= most_chunk:
                    ptx.sts128(sh, int32(at + 4 * k), c, c, c, c)
                if n <= most_chunk:
                    ptx.sts128(sh, int32(at + 4 * n), d, d, d, d)
                i = int32(i + 4 * threads)

    @device
    def place(base, at, ways, lane):
        ways = int32(min(ways, int32(most)))
        return uint32(int32(base + 4 * int32(at + (lane & int32(ways - 1))))), uint32(int32(4 * ways))

    @device
    def behind(at, ways):
        return int32(at + count * int32(min(ways, int32(most))))

    return fill, place, behind


def tables_of(format, threads):
    """Device functions of a format's tables, the first from word `at` on: put them into shared memory; what raw begins with."""

    @device
    def nothing(to, at, ways, lane):
        pass

    @device
    def no_place(raw, base, at, ways, lane):
        pass

    if not format.tables:
        return nothing, no_place
    fill, place, behind = stager(*format.tables[0])
    if len(format.tables) == 1:

        @device
        def fill_one(sh, at, ways, tid):
            fill(sh, at, ways, tid, int32(threads))

        @device
        def place_one(raw, base, at, ways, lane):
            raw[0], raw[1] = place(base, at, ways, lane)

        return fill_one, place_one
    fill_second, place_second, _ = stager(*format.tables[1])

    @device
    def fill_both(sh, at, ways, tid):
        fill(sh, at, ways, tid, int32(threads))
        fill_second(sh, behind(at, ways), ways, tid, int32(threads))

    @device
    def place_both(raw, base, at, ways, lane):
        raw[0], raw[1] = place(base, at, ways, lane)
        raw[2], raw[3] = place_second(base, behind(at, ways), ways, lane)

    return fill_both, place_both
