"""How a block format feeds tensor cores: codes straight from the file's bytes as float16 pairs in registers.

A step is a run of `elements` weights of one row, 128 or 256; four lanes (t = 0 .. 3) share a row. The step is cut into
`chunks` loads of up to two `planes`; plane j of chunk c is a unit of 32 weights, eight per lane, which are eight
neighbours of the row: lane t holds those from `first(c, j, t)` of the step on, as four registers of two halves each:
(0, 2), (1, 3), (4, 6), (5, 7). Registers 0 and 1 go to one m16n8k16 (as a0 and a2 of row g, a1 and a3 of row g + 8),
registers 2 and 3 to the next; activations in the same order (0, 2, 1, 3 within each four) are 16 bytes of B.

A half holds base + gain * code, gain being 16 ** j in `raised` formats (high nibbles stay in place) and 1 in others. `base`
is what `build` was given: 0x64006400 (1024 twice, so that halves are ordinary numbers below 2048) or 0: then a half is the
subnormal gain * code * 2**-24, which tensor cores and float16 arithmetic take without loss. Weights proper (`offset` None)
are just halves.

    weight = scale * (code - offset) + minimum

Codes may be negative where `offset` is 0. `minimum` says whether there are minimums; it is so for an offset of 0 by default.

Scales belong to columns: runs of 32 weights, or of 16 where units are `split` (lanes 0, 1 hold the first column of a unit
and lanes 2, 3 the next). A step is one or two `parts` of eight columns, 0 .. 7 along the row.

`build(ptx, base, function)` -> (place, load_head, load_chunk, codes, scales), plain functions for the device. ptx: the
module of instructions and types; function: makes a function callable from others.
    place(row, step, t)                                        address that the loads of a step start from
    load_head(at, step, t, last, wanted, raw, o)               reads what all units share: raw[o : o + head]
    load_chunk(at, step, t, last, c, wanted, raw, o)           reads chunk c: raw[o : o + words]
    codes(raw, head, o, c, j, t, shift)                        -> the four registers; lanes come here together and may shuffle
    scales(raw, head, t, part)                                 -> of columns 2t, 2t + 1 of a part: scales, minimums (s0, s1, m0, m1)
row: int64 address; last: the row's last block; wanted: uint32, 0 to skip the load; raw: a local uint32 array, `head` and
`o` places in it; shift: uint32, 16 where the step's first block lies at an odd multiple of 2, else 0. Blocks past the last
are read as the last: their activations must be 0. Words of skipped loads must not be unpacked: they may be places in a
table. Reads up to 4 bytes behind a block. Nothing here imports a compiler.

Kernels are made for every format with up to 16 tokens, or 32 (linear_rows). Those for other numbers of tokens cost as much to build
and to load again: `tiled` formats have them, others become MANY first.
"""

MANY = "F16"  # the format that weights of formats which are not tiled take for many tokens


class Fragment:
    """See above. `head` and `words`: registers per lane and row; `hop` 32: lanes 0, 1 and 2, 3 hold blocks of their own;
    `units`: (c_units, j_units) where it is not the usual order; `heavy`: unpacking takes many registers; `table`: function
    -> the bytes that `codes` reads by `ptx.words`, of which kernels put a copy into shared memory first."""

    def __init__(
        self, elements, head, chunks, words, build, planes=1, parts=1, raised=True, offset=0, hop=16, minimum=None, units=None,
        tiled=True, heavy=False, table=None,
    ):  # fmt: skip
        self.elements = elements
        self.head = head
        self.chunks = chunks
        self.words = words
        self.build = build
        self.planes = planes
        self.summed = planes == 2 and units == (1, 0)  # planes are parts of the same weights, which have more than 11 bits
        self.parts = parts
        self.raised = raised and planes == 2
        self.offset = offset
        self.hop = hop
        self.split = elements // parts == 128 or hop == 32
        # plane j of chunk c is unit c_units * c + j_units * j of its part
        self.c_units, self.j_units = units or ((1, 2) if planes == 2 and self.split else (planes, 1))
        self.minimum = offset == 0 if minimum is None else minimum
        self.tiled = tiled
        self.heavy = heavy
        self.table = table

    def first(self, c, j, t):
        """The first of lane t's eight weights in the step."""
        if self.hop == 32:
            return 64 * c + 16 * j + 8 * (t & 1) + 32 * (t >> 1)
        part, c = divmod(c, self.chunks // self.parts)
        return self.elements // self.parts * part + 32 * (self.c_units * c + self.j_units * j) + 8 * t
