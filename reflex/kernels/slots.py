"""What kernels of attention share: the parameter block of a layer, the runs of a token, and sums of weighted rows."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .export import helper
from .intrinsics import I64, f32, i64, load_i64
from .vector import Vectors, vector

# Addresses in the parameter block of one attention layer (int64 each). WINDOW: see first_visible. SINKS: float32 per head, 0 where
# there are none.
(
    QUERIES, OUT, KEYS, VALUES, HEADS, KV_HEADS, KEY_DIM, VALUE_DIM, CAPACITY, SCALE, WINDOW, SOFTCAP, ROWS, TOKENS,
    BATCH, SCRATCH, SCRATCH_BYTES, NEW_KEYS, NEW_VALUES, TOKEN_COUNT, SINKS,
) = (8 * i for i in range(21))  # fmt: skip
# Addresses in the batch block: what the tokens of this evaluation are.
# LISTS: 0 where no token has runs, else per token the address of its list: count, then first slot and end of each run.
POSITIONS, SHARED, BRANCH, FIRST_SLOT, LISTS = 0, 8, 16, 24, 32


@helper
def runs_of(batch, token):
    """Address of the list of runs of a token; 0: it has none."""
    lists = load_i64(batch + LISTS)
    return load_i64(lists + 8 * token) if lists != 0 else 0


@helper
def first_visible(position, window):
    """First position that a token sees. window: how many, the own one included; negative: those since its last multiple; 0: all."""
    if window > 0:
        return max(0, position - window + 1)
    return position - position % -window if window < 0 else 0


def _weighted_rows(width, name):
    """f(weights, rows, stride, count, out): out[width] += sum over j of weights[j] x rows[j][width]."""
    lanes = 8 if width >= 8 else 1

    def codegen(context, builder, signature, arguments):
        v = Vectors(builder)
        weights, rows, stride, count, out = arguments
        weights, rows, out = v.pointer(weights), v.pointer(rows), v.pointer(out)
        kind = vector(f32, lanes)
        places = range(0, 4 * width, 4 * lanes)
        sums = [v.cell(v.load(v.at(out, o), kind)) for o in places]
        with v.loop(count) as j:
            w = v.splat(v.load(builder.gep(weights, [builder.mul(j, ir.Constant(i64, 4))]), f32), lanes)
            row = builder.gep(rows, [builder.mul(j, stride)])
            for o, total in zip(places, sums, strict=True):
                builder.store(v.fma(w, v.load(v.at(row, o), kind), builder.load(total)), total)
        for o, total in zip(places, sums, strict=True):
            v.store(builder.load(total), v.at(out, o))
        return context.get_dummy_value()

    def typing(typingctx, weights, rows, stride, count, out):
        return types.void(I64, I64, I64, I64, I64), codegen

    typing.__name__ = typing.__qualname__ = name
    return intrinsic(typing)


rows_64 = _weighted_rows(64, "rows_64")
rows_8 = _weighted_rows(8, "rows_8")
rows_1 = _weighted_rows(1, "rows_1")


@helper
def add_weighted(weights, rows, stride, dim, count, out):
    """out[dim] += weights[count] . rows[count][dim], rows `stride` bytes apart."""
    done = 0
    while done + 64 <= dim:
        rows_64(weights, rows + 4 * done, stride, count, out + 4 * done)
        done += 64
    while done + 8 <= dim:
        rows_8(weights, rows + 4 * done, stride, count, out + 4 * done)
        done += 8
    while done < dim:
        rows_1(weights, rows + 4 * done, stride, count, out + 4 * done)
        done += 1
    return 0
