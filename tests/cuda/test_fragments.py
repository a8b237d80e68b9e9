"""What FRAGMENT records unpack is what formats decode, exactly or within the rounding of one multiplication; no kernel needed."""

from types import SimpleNamespace

import emulated_memory
import emulated_numbers
import numpy
import pytest
from blocks import random_blocks
from emulator import PTX, aligned

from reflex import quant
from reflex.quant.types import TYPES

FORMATS = [block for block in TYPES.values() if hasattr(quant.load(block.name), "FRAGMENT")]
CASTS = emulated_numbers.CASTS
INSTRUCTIONS = SimpleNamespace(
    **vars(PTX), i32=CASTS["int32"], u32=CASTS["uint32"], f32=numpy.float32, words=emulated_memory.lookup
)
ORDER = (0, 2, 1, 3, 4, 6, 5, 7)  # of a lane's eight weights in the halves of its four registers
EXPECTED = {"F32": 2.0**-21, "BF16": 2.0**-11}  # what is lost of a weight at most; of others, a multiplication's last bit


class Four:
    """shfl_four among lanes that run one after another: what lanes give is heard first, and taken the second time."""

    def __init__(self):
        self.given, self.lane, self.at, self.taking = [[], [], [], []], 0, 0, False

    def begin(self, lane, taking):
        self.lane, self.at, self.taking = lane, 0, taking
        if not taking:
            self.given[lane] = []

    def __call__(self, value, source):
        self.at += 1
        if self.taking:
            return self.given[source & 3][self.at - 1]
        self.given[self.lane].append(value)
        return 0


INSTRUCTIONS.shfl_four = Four()


def loaded(record, functions, row, last, step, t):
    """What lane t reads of a step."""
    place, load_head, load_chunk, _, _ = functions
    raw = [None] * (record.head + record.chunks * record.words)
    at = place(row, step, t)
    load_head(at, step, t, last, 1, raw, 0)
    for c in range(record.chunks):
        load_chunk(at, step, t, last, c, 1, raw, record.head + c * record.words)
    return raw


def lane(record, functions, raw, shift, t):
    """Of a lane: {place in the step: code}, {column of the step: (scale, minimum)}."""
    _, _, _, codes, scales = functions
    found = {}
    for c in range(record.chunks):
        for j in range(record.planes):
            words = codes(raw, 0, record.head + c * record.words, c, j, t, shift)
            first = record.first(c, j, t)
            gain = 1 if record.offset is None else 2.0**24 / (16**j if record.raised else 1)
            for k, value in zip(ORDER, (half(w) for w in words for half in (PTX.h2f_lo, PTX.h2f_hi)), strict=True):
                found.setdefault(first + k, []).append(float(value) * gain)
    if record.offset is None:
        return {k: sum(v) for k, v in found.items()}, dict.fromkeys(range(8 * record.parts), (1, 0))
    own = [(part * 8 + 2 * t + i, scales(raw, 0, t, part)[i::2]) for part in range(record.parts) for i in (0, 1)]
    return {k: v for k, (v,) in found.items()}, dict(own)


def four_lanes(record, functions, row, block, last, step):
    """`lane` of each of the four."""
    raw = [loaded(record, functions, row, last, step, t) for t in range(4)]
    shift = 8 * (int(row) + step * record.elements // block.elements * block.nbytes & 2)
    for taking in (False, True):
        lanes = []
        for t in range(4):
            INSTRUCTIONS.shfl_four.begin(t, taking)
            lanes.append(lane(record, functions, raw[t], shift, t))
    return lanes


def unpacked(block, blocks, columns, start):
    """float32[columns] of one row that begins `start` bytes behind a multiple of 256, through the record."""
    record = quant.load(block.name).FRAGMENT
    functions = record.build(INSTRUCTIONS, 0, lambda f: f)
    memory = aligned(start + blocks.size + 256)
    memory[start : start + blocks.size] = blocks.reshape(-1)
    array = emulated_memory.Array(memory)
    emulated_memory.State.arrays, emulated_memory.State.thread = [array], None
    last = columns // block.elements - 1
    out = numpy.zeros((columns + record.elements - 1) // record.elements * record.elements, "f4")
    for step in range(len(out) // record.elements):
        lanes = four_lanes(record, functions, array.address + start, block, last, step)
        columns_of = {k: v for _, own in lanes for k, v in own.items()}
        for found, _ in lanes:
            for k, value in found.items():
                scale, minimum = columns_of[k * 8 * record.parts // record.elements]
                value = scale * numpy.float32(value - (record.offset or 0))
                out[step * record.elements + k] = value + minimum if record.minimum else value
    return out[:columns]


@pytest.mark.parametrize("block", FORMATS, ids=lambda b: b.name)
def test_unpacking(block):
    random = numpy.random.default_rng(block.id)
    size = max(block.elements, 32)
    for columns in (512 + size % 256, size):
        blocks = random_blocks(block, columns // block.elements, random)
        if block.elements == 1:
            numbers = random.uniform(-2, 2, columns)
            kind = "f2" if block.name == "F16" else "f4"
            blocks = numbers.astype(kind).view("u1").reshape(columns, -1)[:, -block.nbytes :].copy()
        wanted = quant.load(block.name).decode(blocks).reshape(-1)
        for start in {columns // block.elements * block.nbytes * row % 256 for row in range(4)}:
            found = unpacked(block, blocks, columns, start)
            error = numpy.abs(found - wanted).max() / numpy.abs(wanted).max()
            assert error <= EXPECTED.get(block.name, 3e-7), (columns, start)
