"""What the persistent decode kernel does with the products of a phase: sums of rows, published for the other blocks."""

from numba.types import float32, int32, uint32

from . import ptx
from .export import device
from .gated import gelu, silu
from .persistent_phases import DOWN, GATE, HEAD, OUT, PAIRED, QKV, columns_of, entry64, rows_in_pass, slices_of, stride_of
from .persistent_rows import add_up, multiply
from .persistent_token import better

GELU, BIASED = 2, 4  # flags beside HALVES: the gate is gelu; q, k and v have biases


@device
def bias_of(sh, line, row, query_rows, kv_rows):
    """The bias of a row of q, k and v."""
    at = int32(line + 160)
    i = int32(row)
    if row >= query_rows:
        at = int32(line + 168)
        i = int32(row - query_rows)
    if i >= kv_rows and row >= query_rows:
        at = int32(line + 176)
        i = int32(i - kv_rows)
    bias = entry64(sh, at)
    value = float32(0)
    if bias != 0:
        value = ptx.ldgf(bias, int32(i * 4))
    return value


@device
def hidden_packet(value, other, flags, ep):
    """The gated unit's result as a packet."""
    gate = silu(value)
    if (flags & GELU) != 0:
        gate = gelu(value)
    product = min(max(float32(gate * other), float32(-65000)), float32(65000))
    return uint32((ptx.f2h2(product, float32(0)) & 65535) | (ep << uint32(16)))


@device
def publish(sh, line, phase, exchange, at_q, at_y, i, value, residual, scale, flags, ep, query_rows, kv_rows):
    """A row of q, k and v, or a row added to the residual stream, for the other blocks; returns the stream's value."""
    at = int32(i * 2)
    mark = uint32(ep)
    if phase == QKV:
        if (flags & BIASED) != 0:
            value += bias_of(sh, line, i, query_rows, kv_rows)
        at = int32(at + at_q)
    else:
        residual = float32(residual + value * scale)
        value = residual
        if phase == OUT:
            at = int32(at + at_y)
        else:
            mark = uint32(ep + uint32(1))
    ptx.st_ll(exchange, at, ptx.f2bits(value), mark)
    return residual


@device
def count_block(exchange, at_t, phase):
    """Tell the others that this block has published its part of the phase."""
    if phase == OUT or phase == HEAD:  # noqa: SIM109
        ptx.red_relaxed_add(exchange, int32(at_t + 32), uint32(1))
    if phase == GATE or phase == HEAD:  # noqa: SIM109 (the last epoch of a token has neither, but counts as the others)
        ptx.red_relaxed_add(exchange, int32(at_t + 64), uint32(1))
    if phase == DOWN:
        ptx.red_relaxed_add(exchange, at_t, uint32(1))


@device
def multiply_phase(
    sh, partial, full, empty, ring, state, stages, stage_bytes, tab, layer, phase, line, exchange, at_q, at_y, at_h, logits, bounds,
    width, query_rows, kv_rows, hidden, flags, vector, room, factor, residual, residual_scale, logit_scale, best, best_at, into, ep,
    tid, lane, warp, clocks, timed,
):  # fmt: skip
    """This block's rows of a phase: returns the row of the residual stream that the thread holds, the best logit so far, its
    place, and the half of `partial` for the next pass."""
    columns = columns_of(phase, width, query_rows, hidden)
    slices = slices_of(columns)
    stride = stride_of(columns)
    a, b = ptx.lds64(bounds, int32(phase * 2))
    first = int32(a)
    past_row = int32(b)
    while first < past_row:  # a pass of rows at a time
        last = int32(min(int32(first + rows_in_pass(phase, columns)), past_row))
        multiply(
            sh, partial, full, empty, ring, state, stages, stage_bytes, tab, layer, phase, first, last, columns,
            query_rows, kv_rows, vector, room, into, warp, lane, clocks, timed,
        )  # fmt: skip
        ptx.bar_sync(1, 256)
        i = int32(first + tid)
        if i < last:
            value = float32(add_up(partial, int32(into + tid), slices, stride) * factor)
            if phase == HEAD:
                value = float32(value * logit_scale)
                logits[i] = value
                best, best_at = better(best, best_at, value, i)
            elif phase == GATE:
                other = float32(add_up(partial, int32(into + PAIRED + tid), slices, stride) * factor)
                ptx.st_rel32(exchange, int32(at_h + i), hidden_packet(value, other, flags, ep))
            else:
                residual = publish(
                    sh, line, phase, exchange, at_q, at_y, i, value, residual, residual_scale, flags, ep,
                    query_rows, kv_rows,
                )  # fmt: skip
        into = int32(into ^ 2048)
        first = last
    return residual, best, best_at, into
