"""What the persistent decode kernel multiplies in each phase: the vector that the blocks exchanged, or made in attention."""

from numba import cuda
from numba.types import float32, int32

from . import ptx
from .export import device
from .persistent_attention import attend
from .persistent_exchange import LINE, await_count, count_in, heads_reader, hidden_reader, vector_reader
from .persistent_phases import DOWN, GATE, OUT, entry64
from .persistent_rows import note


@device
def inverse_rms(reduced, width, eps):
    """1 / rms of the vector that was read last, from the warps' sums of squares."""
    a, b, c, d = ptx.ldsf4(reduced, 0)
    e, f, g, h = ptx.ldsf4(reduced, 4)
    squares = float32(((a + b) + (c + d)) + ((e + f) + (g + h)))
    return ptx.rsqrt(float32(squares * ptx.rcp(float32(width)) + eps))


def input_reader(slots, profiled):
    """slots, profiled: see persistent.py, `persistent`."""
    read_vector = vector_reader(slots[0])
    read_heads = heads_reader(slots[1])
    read_hidden = hidden_reader(slots[2])

    @device
    def read_input(
        phase, sh, line, last_layer, exchange, at_q, at_a, at_s, at_h, at_y, at_t, where, inputs, weights, partial, spans, turned,
        reduced, ep, plan, slot, seen, branch, width, heads, query_rows, kv_rows, size, hidden, pairs, flags, blocks, eps,
        query_scale, vector, room, tid, state, clocks, clock,
    ):  # fmt: skip
        """Make the vector in shared memory; returns a factor for the products."""
        lane = int32(tid & 31)
        warp = int32(tid >> 5)
        factor = float32(1)
        if phase == OUT:
            if plan[0] < heads:
                attend(
                    sh, line, last_layer, exchange, at_q, at_a, at_s, where, inputs, weights, partial, spans,
                    turned, ep, plan, slot, seen, branch, query_rows, kv_rows, size, pairs, flags, eps, query_scale,
                    tid, lane, warp, state,
                )  # fmt: skip
            if tid == 0:
                count_in(exchange, int32(at_t + 12 * LINE), int32(cuda.blockIdx.x))
            if profiled:
                note(clocks, 12, clock, tid)
            await_count(exchange, int32(at_t + 12 * LINE), ep, blocks, tid, state)
            read_heads(exchange, at_a, at_s, plan[4], query_rows, size, ep, sh, vector, room, tid, state)
        elif phase == DOWN:
            read_hidden(exchange, at_h, int32(at_t + 8 * LINE), hidden, ep, blocks, sh, vector, room, tid, state)
        else:
            source = int32(0)
            counter = int32(at_t)
            i = int32(line + 128)
            if phase == GATE:
                source = int32(at_y)
                counter = int32(at_t + 4 * LINE)
                i = int32(line + 136)
            norm = entry64(sh, i)
            read_vector(exchange, source, counter, norm, width, ep, blocks, sh, vector, room, reduced, tid, state)
            factor = inverse_rms(reduced, width, eps)
        return factor

    return read_input
