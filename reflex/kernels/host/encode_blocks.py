"""Encoders: for every format of reflex/quant/encoders an entry point that makes packed blocks of float32 rows.

    encode_<NAME>(source, out, rows, columns, importance, scratch, tables)

packs `rows` rows of `columns` values, a whole number of blocks each, and returns -1, or the index of the first value that is not
finite. `importance`: address of `columns` float32, how much the values of a column matter, or 0. `scratch`: SCRATCH bytes.
`tables`: what the format's own `tables` gives, else 0. Eight blocks are done at a time. Where the importance of a block is nothing
but zeros, or has a value that is negative, infinite or no number, that block is made as if all its values mattered alike: what ggml
makes of it can be anything.
"""

from functools import cache

from ...quant.encoders import load, names
from ...quant.types import by_name
from .. import lanewise as v
from ..export import export, helper
from ..intrinsics import load_f32, load_i64, load_u8, load_u32, store_8, store_64, store_f32, to_float

ELEMENTS = 256  # of the largest block
LANES = v.COUNT
WEIGHTS = v.STRIDE * ELEMENTS  # places in the scratch
ROOM = 2 * WEIGHTS  # of the encoder's own
PLACES = 5 * WEIGHTS  # addresses of eight blocks' importance
ROW = PLACES + 64  # number of the row whose mean square was worked out last, and that; then means of eight blocks' rows
TAIL = ROW + 64
TAIL_OUT = TAIL + 4 * LANES * ELEMENTS
SCRATCH = TAIL_OUT + 4096

INFINITE = 0x7F800000


@helper
def turned(source, stride, count, x):
    """Lay `count` values of eight blocks side by side; whether all are finite."""
    v.stay_apart()
    largest = v.ints(0)
    for i in range(count):
        value = v.gather(source + 4 * i, stride)
        v.store(x, i, value)
        largest = v.most(largest, v.bits(value) & 0x7FFFFFFF)
    return not v.some(largest >= INFINITE)


@helper
def turned_importance(places, count, w):
    """The same of the importance at eight stored addresses; ones where that of a block cannot be used."""
    v.stay_apart()
    odd, largest = v.ints(0) != 0, v.ints(0)
    for i in range(count):
        value = v.gather_at(places, 4 * i)
        v.store(w, i, value)
        bits = v.bits(value)
        odd |= (bits < 0) | (bits >= INFINITE)
        largest = v.most(largest, bits)
    odd |= largest == 0
    if v.some(odd):
        for i in range(count):
            v.store(w, i, v.select(odd, 1, v.load(w, i)))
    return 0


@helper
def mean_square(source, count):
    v.stay_apart()
    total = to_float(0)
    for i in range(count):
        total += load_f32(source + 4 * i) * load_f32(source + 4 * i)
    return total / to_float(count)


@helper
def weighted_by(x, w, count, mean):
    """Importance times the root of mean square plus square, which keeps small values from being nothing."""
    v.stay_apart()
    for i in range(count):
        value = v.load(x, i)
        v.store(w, i, v.load(w, i) * v.sqrt(mean + value * value))
    return 0


@helper
def first_odd(source, at):
    """Index of the first value from `at` on that is not finite."""
    while load_u32(source + 4 * at) & 0x7FFFFFFF < INFINITE:
        at += 1
    return at


@helper
def block_mean(x, count, twice):
    v.stay_apart()
    total = v.floats(0)
    for i in range(count):
        value = v.load(x, i)
        total += value * value
    return total * (2 if twice else 1) / count


@cache  # formats share it
def _weighing(count, kind):
    """Function (source, scratch, first, blocks, per_row, importance): weights of eight blocks from block `first` on."""
    by_row, by_block, twice = kind == "row", kind in ("block", "twice the block"), kind == "twice the block"

    @helper
    def weigh(source, scratch, first, blocks, per_row, importance):
        x, w, places = scratch, scratch + WEIGHTS, scratch + PLACES
        for lane in range(LANES):
            number = min(first + lane, blocks - 1)
            store_64(places + 8 * lane, importance + 4 * count * (number % per_row))
        turned_importance(places, count, w)
        if by_row:
            for lane in range(LANES):
                row = min(first + lane, blocks - 1) // per_row
                if row != load_i64(scratch + ROW):
                    store_64(scratch + ROW, row)
                    store_f32(scratch + ROW + 8, mean_square(source + 4 * count * per_row * row, per_row * count))
                store_f32(scratch + ROW + 16 + 4 * lane, load_f32(scratch + ROW + 8))
            weighted_by(x, w, count, v.load(scratch + ROW + 16, 0))
        elif by_block:
            weighted_by(x, w, count, block_mean(x, count, twice))
        return 0

    return weigh


@helper
def copied(source, out, size):
    v.stay_apart()
    for i in range(size):
        store_8(out + i, load_u8(source + i))
    return 0


def _body(record, weighted):
    """The encoder of eight blocks; one without tables ignores their address."""
    body = record.encoder(v, weighted)
    if hasattr(record, "tables"):
        return body

    @helper
    def without_tables(x, w, out, room, tables):
        body(x, w, out, room)
        return 0

    return without_tables


def _encoder(name):
    block, record = by_name(name), load(name)
    count, nbytes = block.elements, block.nbytes
    plain, weigh, uses = _body(record, False), _weighing(count, record.IMPORTANCE), record.IMPORTANCE is not None
    weighted = _body(record, True) if uses and not getattr(record, "NEEDED", False) else plain

    def encode(source, out, rows, columns, importance, scratch, tables):
        per_row = columns // count
        blocks = rows * per_row
        store_64(scratch + ROW, -1)
        for first in range(0, blocks, LANES):
            here, target = source + 4 * count * first, out + nbytes * first
            left = min(LANES, blocks - first)
            if left < LANES:
                here, target = scratch + TAIL, scratch + TAIL_OUT
                copied(source + 4 * count * first, here, 4 * count * left)
                for i in range(4 * count * left, 4 * count * LANES):
                    store_8(here + i, 0)
            if not turned(here, 4 * count, count, scratch):
                return first_odd(source, count * first)
            if uses and importance != 0:
                weigh(source, scratch, first, blocks, per_row, importance)
                weighted(scratch, scratch + WEIGHTS, target, scratch + ROOM, tables)
            else:
                plain(scratch, scratch + WEIGHTS, target, scratch + ROOM, tables)
            if left < LANES:
                copied(target, out + nbytes * first, nbytes * left)
        return -1

    return encode


for _name in names():
    export(_encoder(_name), name=f"encode_{_name}")
