"""The ends of a step of the persistent decode kernel: a token's embedding, and the token with the largest logit."""

from numba import cuda
from numba.types import float32, int32, int64, uint32

from ...quant import load
from ...quant.types import TYPES
from . import memory, ptx
from .export import device
from .persistent_attention import NONE
from .persistent_rows import EIGHT, FOUR, SIX

element4, element6, element8 = (device(load(TYPES[code].name).unpack(memory)) for code in (FOUR, SIX, EIGHT))


@device
def embedding(weights, code, columns, token, column):
    """One value of a row of the embedding matrix."""
    value = float32(0)
    if code == FOUR:
        at = int64(weights + (int64(token) * int64(columns >> 8) + int64(column >> 8)) * 144)
        value = float32(element4(at, int64(column & 255)))
    elif code == SIX:
        at = int64(weights + (int64(token) * int64(columns >> 8) + int64(column >> 8)) * 210)
        value = float32(element6(at, int64(column & 255)))
    else:
        at = int64(weights + (int64(token) * int64(columns >> 5) + int64(column >> 5)) * 34)
        value = float32(element8(at, int64(column & 31)))
    return value


@device
def better(value, index, other, other_index):
    """The larger of two logits, the first of equal ones."""
    if other > value or (other == value and other_index < index):
        value = other
        index = other_index
    return value, index


@device
def best_of_block(value, index, reduced, chosen, lane, warp):
    """The largest logit of the eight warps, known to all of them."""
    for k in range(5):
        other = ptx.shfl_xor(value, 1 << k)
        other_at = ptx.shfl_xor_i(index, 1 << k)
        value, index = better(value, index, other, other_at)
    ptx.bar_sync(1, 256)  # all have read reduced[]
    if lane == 0:
        reduced[uint32(warp)] = value
        chosen[uint32(warp)] = uint32(index)
    ptx.fence_gpu()  # keys and values of this token, before it is announced
    ptx.bar_sync(1, 256)
    value = reduced[0]
    index = int32(chosen[0])
    for k in range(1, 8):
        value, index = better(value, index, reduced[k], int32(chosen[k]))
    return value, index


@device
def best_of_all(exchange, at, mark, blocks, reduced, chosen, tid, lane, warp, state):
    """The token with the largest logit of all blocks' packets."""
    value = float32(NONE)
    index = int32(0)
    if tid < blocks:
        polls = int32(0)
        waiting = int32(1)
        while waiting > 0:
            a, fa, b, fb = ptx.ld_ll2(exchange, int32(at + tid * 4))
            value = ptx.bits2f(a)
            index = int32(b)
            polls = int32(polls + 1)
            if ((fa ^ mark) | (fb ^ mark)) == 0 or polls > state[0]:
                waiting = int32(0)
        if polls > state[0]:
            state[0] = int32(1)
            state[1] = int32(1)
    cuda.syncwarp()
    value, index = best_of_block(value, index, reduced, chosen, lane, warp)
    return index


@device
def among(stops, count, token):
    """Whether the token ends the text."""
    found = int32(0)
    i = int32(0)
    while i < count:
        if int32(ptx.ldg32(stops, i)) == token:
            found = int32(1)
        i = int32(i + 1)
    return found
