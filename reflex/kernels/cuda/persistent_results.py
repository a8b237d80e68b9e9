"""What the persistent decode kernel does with the products of a phase: sums of rows, published for the other blocks."""

from numba.types import float32, int32, uint32

from . import ptx
from .export import device
from .gated import gelu, silu
from .persistent_dots import SUMS, TEAM
from .persistent_exchange import LINE, count_in, packet
from .persistent_phases import (
    DOWN,
    GATE,
    HEAD,
    LAST_OF_PASS,
    LAST_OF_PHASE,
    OUT,
    PAIRED,
    QKV,
    SEGMENT,
    columns_of,
    entry64,
)  # fmt: skip
from .persistent_rows import add_up, multiply, note
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
def gated(value, other, flags):
    """The gated unit's result."""
    gate = silu(value)
    if (flags & GELU) != 0:
        gate = gelu(value)
    return float32(gate * other)


@device
def publish(sh, line, phase, exchange, at_q, at_y, i, value, residual, scale, flags, ep, query_rows, kv_rows):
    """A row of q, k and v, or a row added to the residual stream, for the other blocks; returns the stream's value."""
    at = int32(i)
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
    ptx.st_rel32(exchange, at, packet(value, mark))
    return residual


@device
def count_block(exchange, at_t, phase, block):
    """Tell the others that this block has published its part of the phase. The last epoch of a token has no layer, but counts."""
    if phase == OUT or phase == HEAD:  # noqa: SIM109
        count_in(exchange, int32(at_t + 4 * LINE), block)
    if phase == GATE or phase == HEAD:  # noqa: SIM109
        count_in(exchange, int32(at_t + 8 * LINE), block)
    if phase == HEAD:  # as attention does in a layer
        count_in(exchange, int32(at_t + 12 * LINE), block)
    if phase == DOWN:
        count_in(exchange, at_t, block)


@device
def multiply_phase(
    sh, partial, full, empty, ring, state, stages, stage_bytes, at, phase, line, exchange, at_q, at_y, at_h, logits, bounds,
    width, query_rows, kv_rows, hidden, flags, vector, room, factor, residual, residual_scale, logit_scale, best, best_at, into, ep,
    tid, lane, warp, clocks, timed,
):  # fmt: skip
    """This block's rows of a phase, whose segments begin at `at`: returns the end of them, the row of the residual stream that
    the thread holds, the best logit so far, its place, and the half of `partial` for the next pass."""
    columns = columns_of(phase, width, query_rows, hidden)
    first = int32(ptx.lds32(bounds, int32(phase * 2)))
    turned = int32(warp & (TEAM - 1))  # the remainder of a stage's work goes to others every time
    team = int32(1 - (warp >> 2))  # two teams take stages in turn
    going = int32(1)
    while going > 0:
        a, b, c, d = ptx.lds128(sh, at)
        at = int32(at + SEGMENT)
        multiply(
            sh, partial, full, empty, ring, state, stages, stage_bytes, line, a, b, c, d, columns, vector, room,
            int32(into + warp * SUMS), team, turned, lane, clocks, timed,
        )  # fmt: skip
        turned = int32(turned ^ (TEAM - 1))
        team = int32(1 - team)
        if (a & uint32(LAST_OF_PASS)) != 0:
            if timed > 0:
                began = ptx.clock32()
            ptx.bar_sync(1, 256)
            if timed > 0:
                began = note(clocks, 14, began, tid)
            rows = int32(int32(c & 65535) + int32((a >> uint32(8)) & 255))
            if phase == GATE:
                rows = int32(max(int32(rows - PAIRED), int32(0)))
            if tid < rows:
                i = int32(first + tid)
                value = float32(add_up(partial, int32(into + tid)) * factor)
                if phase == HEAD:
                    value = float32(value * logit_scale)
                    logits[i] = value
                    best, best_at = better(best, best_at, value, i)
                elif phase == GATE:
                    other = float32(add_up(partial, int32(into + PAIRED + tid)) * factor)
                    ptx.st_rel32(exchange, int32(at_h + i), packet(gated(value, other, flags), ep))
                else:
                    residual = publish(
                        sh, line, phase, exchange, at_q, at_y, i, value, residual, residual_scale, flags, ep,
                        query_rows, kv_rows,
                    )  # fmt: skip
            into = int32(into ^ 2048)
            first = int32(first + rows)
            if timed > 0:
                note(clocks, 15, began, tid)
        if (a & uint32(LAST_OF_PHASE)) != 0:
            going = int32(0)
    return at, residual, best, best_at, into
