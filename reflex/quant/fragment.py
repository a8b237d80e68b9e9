"""How a block format feeds tensor cores: codes straight from the file's bytes as float16 pairs in registers.

A step is a run of `elements` weights of one row, 128 or 256; four lanes (t = 0 .. 3) share a row. The step is cut into
`chunks` loads of up to two `planes`; plane j of chunk c is a unit of 32 weights, eight per lane, which are eight
neighbours of the row: lane t holds those from `first(c, j, t)` of the step on, as four registers of two halves each:
(0, 2), (1, 3), (4, 6), (5, 7). Registers 0 and 1 go to one m16n8k16 (as a0 and a2 of row g, a1 and a3 of row g + 8),
registers 2 and 3 to the next; activations in the same order (0, 2, 1, 3 within each four) are 16 bytes of B.

A half holds base + gain * code, gain being 16 ** j in `raised` formats (high nibbles stay in place) and 1 in others. `base`
is what `build` was given: 0x6400 twice (1024, so that halves are ordinary numbers below 2048) or 0: then a half is the
subnormal gain * code * 2**-24, which tensor cores and float16 arithmetic take without loss. Weights proper (`offset` None:
F16) are just halves.

    weight = scale * (code - offset) + minimum

The codes of a column of a step have one scale: column `column(c, j, t)`, 0 .. 7. Where the columns of a unit differ,
lanes 0, 1 hold the first and 2, 3 the next (`split`). Columns are numbered along the row: each has elements / 8 weights.

`build(ptx, base, function)` -> (load_head, load_chunk, codes, scales), plain functions for the device. ptx: the module of
instructions and types; function: makes a function callable from others.
    load_head(w, row, step, last, t, wanted, raw, at)         reads what all units share: raw[at : at + head]
    load_chunk(w, row, step, last, t, c, wanted, raw, at)     reads chunk c: raw[at : at + words]
    codes(raw, head, at, c, j, t, row, step)                  -> the four registers
    scales(raw, head, t, row, step)                           -> scales and minimums of columns 2t, 2t + 1: (s0, s1, m0, m1)
w: uint8 pointer; row: int64 byte offset of the row; last: its last block; wanted: uint32, 0 to skip the load; raw: a local
uint32 array. Blocks past the last are read as the last: their activations must be 0. Nothing here imports a compiler.
"""


class Fragment:
    """See above. `elements` per step; `head` and `words`: registers per lane and row; `far`: plane j is `far` units on."""

    def __init__(self, elements, head, chunks, words, build, planes=1, far=1, raised=True, offset=0, hop=16):
        self.elements = elements
        self.head = head
        self.chunks = chunks
        self.words = words
        self.build = build
        self.planes = planes
        self.far = far
        self.raised = raised
        self.offset = offset
        self.hop = hop  # distance of lanes 0, 1 and 2, 3 in a unit: 16, or 32 where they hold blocks of their own
        self.split = elements == 128 or hop == 32

    def unit(self, c, j):
        """Where in the row unit (c, j) lies, in units."""
        return c + self.far * j if self.far > 1 or self.planes == 1 else self.planes * c + j

    def first(self, c, j, t):
        """The first of lane t's eight weights in the step."""
        if self.hop == 32:
            return 64 * c + 16 * j + 8 * (t & 1) + 32 * (t >> 1)
        return 32 * self.unit(c, j) + 8 * t

    def column(self, c, j, t):
        return self.first(c, j, t) * 8 // self.elements


