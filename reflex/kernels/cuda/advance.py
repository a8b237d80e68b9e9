"""advance: makes the chosen token the input of the next evaluation, so that decode graphs follow each other unattended. Grid: 1.

cells, ids, positions: the request block. Cell 3 is the stop flag; while it is not 0, evaluations repeat their work and advance
does nothing: 0 running, 1 an end token was chosen, 2 `most` tokens were, 3 the logits hold no number. What recurrent layers keep
goes from place to place of a ring, so that repeated work finds what it began with.
"""

from numba import cuda
from numba.types import float32, float64, int32, int64, uint32, uint64

from . import ptx
from .export import device, kernel
from .sample import RANDOM

THREADS = 128
FIRST_SLOT, STOP = 1, 3  # cells
SOURCE, DESTINATION = 3, 4  # of the only strand
ENDED, FULL, NO_NUMBER = 1, 2, 3
SEED, DRAWS, TOKENS, MOST, PLACE = 0, 1, 2, 3, 4  # state: int64[5]
ENTRIES = 4  # history: uint32 number of tokens, stop flag, two unused; then (id, log-probability) by number


@device
def mixed(z, shift, factor):
    return uint64(uint64(z ^ uint64(z >> uint64(shift))) * uint64(factor))


@device
def uniform(seed, count):
    """reflex.sample.uniform: number `count` of the stream `seed`."""
    z = uint64(uint64(seed) + uint64(uint64(count + 1) * uint64(0x9E3779B97F4A7C15)))
    z = mixed(mixed(z, 30, 0xBF58476D1CE4E5B9), 27, 0x94D049BB133111EB)
    return float64(int64(uint64(z ^ uint64(z >> uint64(31))) >> uint64(11))) * 2.0**-53


@device
def is_end(token, ends, count):
    """Whether the token ends a text; the threads look through the list together."""
    found = int32(0)
    i = int32(cuda.threadIdx.x)
    while i < count:
        if ends[i] == token:
            found = int32(1)
        i = int32(i + THREADS)
    return cuda.syncthreads_or(found)


@device
def report(history, capacity, tokens, token, logprob, stop):
    """Add a token to the history. The host may read up to the number it sees there."""
    place = int32(ENTRIES + ((tokens & (capacity - 1)) << 1))
    ptx.st64(history, place, uint32(token), ptx.f2bits(logprob))
    history[1] = uint32(stop)
    ptx.st_release_sys(history, 0, uint32(tokens + 1))


@kernel("IFFIIIIiLDUiIiFIIi", threads=THREADS)
def advance(
    chosen, logits, stats, ids, positions, cells, ends, end_count, state, settings, history, capacity, recent, recent_count, saved,
    strands, ring, ring_count,
):  # fmt: skip
    """chosen: int32[1], which may be the id of a row of stats. stats, logits: of the evaluated row, stats before a penalty.

    state: seed, draws so far, tokens so far, most tokens, next place in `recent`; settings: see sample.py, gets the next
    random number. history: in memory that the host sees, `capacity` (a power of two) entries in a ring.
    recent: int32[recent_count], the last ids in a ring; saved: their logits before `penalize`. recent_count 0: no penalty.
    strands: of the request; ring: int32[ring_count], the places that states go to in turn. ring_count 0: there are no states."""
    ptx.pdl_launch()
    ptx.pdl_wait()
    t, token, stopped = int32(cuda.threadIdx.x), chosen[0], cells[STOP] != 0
    i = t
    while i < recent_count:
        if recent[i] >= 0:
            logits[recent[i]] = saved[i]
        i = int32(i + THREADS)
    ended = is_end(token, ends, end_count)
    if t == 0 and not stopped:
        tokens = int32(state[TOKENS])
        stop, logprob = int32(0), float32(0)
        if token < 0:
            stop = int32(NO_NUMBER)
        else:
            logprob = float32(float32(logits[token] - stats[0]) - stats[3])
            if ended != 0:
                stop = int32(ENDED)
            elif tokens + 1 >= state[MOST]:
                stop = int32(FULL)
        report(history, capacity, tokens, token, logprob, stop)
        state[TOKENS] = int64(tokens + 1)
        cells[STOP] = stop
        if stop == 0:
            ids[0] = token
            positions[0] = int32(positions[0] + 1)
            cells[FIRST_SLOT] = int32(cells[FIRST_SLOT] + 1)
            settings[RANDOM] = uniform(state[SEED], int64(state[DRAWS] + 1))
            state[DRAWS] = int64(state[DRAWS] + 1)
            if ring_count > 0:
                turn = int32(tokens - ring_count * ptx.quotient(tokens, ring_count))
                strands[SOURCE] = ring[turn]
                strands[DESTINATION] = ring[int32(turn + 1 if turn + 1 < ring_count else 0)]
            if recent_count > 0:
                place = int32(state[PLACE])
                recent[place] = token
                state[PLACE] = int64(0) if place + 1 == recent_count else int64(place + 1)
