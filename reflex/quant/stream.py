"""How a block format feeds integer tensor cores, one row of activations: from its bytes in shared memory to bytes of codes.

A run is 256 weights of one row, one block or several (512 of `bits`, in four parts). Four lanes (t = 0 .. 3) share a row; in
part p (0 or 1) of a run lane t has the 32 weights of group 4p + t, as eight words of four codes: words 2j and 2j + 1 are what it
gives to the product j. A product adds up what each lane gives by itself, so each lane applies its own scale. Weight 4q + i of the
group is byte i of word `order[q]`. `mixed` (4 or 2): the words of weights 4q and 4(q + mixed) are taken in turn by two words 2k
and 2k + 1, k counting such pairs.

    weight = scale * (code - offset) + minimum

Codes are signed bytes if `signed`, else unsigned. `minimum` says whether there are minimums. `halves`: scales (and minimums)
are those of 16 weights, words 0 .. 3 and 4 .. 7. `powers`: codes of product j are 2**powers[j] times as large (not falling within
a half, the same in both unless there are no halves); scales are then 2**-powers[-1] of what they are, offsets 2**powers[-1].

`piece(k, q)`: where all of a run has one scale, which four weights of it, of 64 times four, are weights 4q .. 4q + 3 of group k.

`bits`: weights are a scale or less that; bit i of a group's one word is set where its weight i is not negative. The four groups of
a part have one scale, columns are a multiple of 128, and there is no head.

`build(ptx, function)` -> (head, load, codes, scales), plain functions for the device. ptx: the module of instructions and
types, of which `at8`, `at16` and so on read shared memory by address; function: makes a function callable from others.
    head(at, t, raw, o)                 reads what both parts share: raw[o : o + head]
    load(at, p, t, raw, o)              reads the lane's words of part p: raw[o : o + words]
    codes(raw, head, o, p, j, t)        -> words 2j and 2j + 1; with `powers`, of products 2j and 2j + 1: words 4j .. 4j + 3;
                                        of `bits`, the one word
    scales(raw, head, o, p, t)          -> (scale, minimum), or (scale, scale, minimum, minimum) of `halves`,
                                        or scale of `bits`
at: int32 address of the run; raw: a local uint32 array, `head` and `o` places in it. Blocks behind a row's last are garbage:
their activations are 0 and their scales are not used, but their codes must not lead out of a table. Reads up to 4 bytes behind
a run. Nothing here imports a compiler.

`tables`: (function -> bytes, words, ways) of what `codes` reads by `entries_of_*`. Kernels put them into shared memory, each word
as often as there is room, up to `ways` (1 or 4, 8, 16) times: fewer lanes then meet in one bank. raw begins with two words for
each.

Numbers proper (`floats`) have runs of 32 weights, of which lane t has the eight from 8t on, and no codes:
`build` -> (load(at, t, raw, o), pair(raw, o, k) -> weights 2k and 2k + 1 as float32). `rounded`: activations beside them are
half floats, as those of prompts are, and ggml's beside F16.
"""

NATURAL = (0, 1, 2, 3, 4, 5, 6, 7)
NIBBLES = (0, 2, 4, 6, 1, 3, 5, 7)  # weights 0 .. 15 in the low halves of 16 bytes, weights 16 .. 31 in the high ones
ROWS = 16  # of a tile
WARPS = 8  # of a block
ROUND = 16 * 32 * WARPS  # columns of activations that a block makes ready at once, where there is room: half as many of wide ones
WIDE = 8192  # columns
PARTS = 8 * ROWS * WARPS  # words of sums that are kept before results are finished


class Stream:
    """See above. `nbytes`: of a run; `runs`: that a warp takes of a row at once, at most."""

    def __init__(
        self, nbytes, runs, head, words, build, order=NATURAL, bits=False, mixed=0, signed=False, halves=False,
        offset=0, minimum=False, tables=(), floats=False, powers=None,
        piece=None, run=256, rounded=False,
    ):  # fmt: skip
        self.nbytes = nbytes
        self.runs = runs
        self.head = head
        self.words = words
        self.build = build
        self.order = order
        self.bits = bits
        self.mixed = mixed
        self.signed = signed
        self.halves = halves
        self.offset = offset
        self.minimum = minimum
        self.tables = tables
        self.floats = floats
        self.rounded = rounded
        self.powers = powers
        self.piece = piece
        self.run = 32 if floats else run
        self.rows = 2 * len(tables), 2 * len(tables) + head + words  # where raw has what belongs to the lane's two rows
        self.meta = 4 if halves or floats else 2  # words beside the activations of 32 weights

    def table_bytes(self, ways):
        """Of all tables, with words in at most so many places."""
        return sum(4 * words * min(most, ways) for _, words, most in self.tables)

    def shared_bytes(self, columns, splits, runs, stages, ways, tall):
        """Dynamic shared memory of linear_stream: what belongs to groups, activations, what they are made of and later sums
        of rows, stages whose rows are an odd number of 16 bytes apart, tables."""
        padded = (columns + self.run - 1) // self.run * self.run
        groups, at_once = (padded // 32 * self.meta + 31) // 32 * 32, ROUND if padded <= WIDE else ROUND // 2
        scratch = max(PARTS, min(padded, at_once) // 2)
        pieces = (splits * runs * self.nbytes + 46) // 16 | 1  # the last one has a word of where the row begins, and room behind
        words = groups + padded // 2 + scratch
        return 4 * words + stages * tall * ROWS * WARPS // splits * 16 * pieces + self.table_bytes(ways)


def entries_of_bytes(ptx, k):
    """Function (raw, word, i, more) -> word `byte i of the word + more` of table k, the lane's own if it has one: a dot
    product takes the byte out of its word and makes the address of it, on other units than shifts and masks."""
    uint32, int32 = ptx.u32, ptx.i32

    def entry(raw, word, i, more):
        base = int32(uint32(uint32(more * raw[2 * k + 1]) + raw[2 * k]))
        return ptx.look(ptx.dp4a_us(word, uint32(raw[2 * k + 1] << uint32(8 * i)), base))

    return entry


def entries_of_halves(ptx, k):
    """Function (raw, word, i) -> word `half i of the word` of table k."""
    uint32, int32 = ptx.u32, ptx.i32

    def entry(raw, word, i):
        return ptx.look(ptx.dp2a(word, uint32(raw[2 * k + 1] << uint32(8 * i)), int32(raw[2 * k])))

    return entry


def unaligned(ptx, count):
    """Functions (address, raw, o): reads `count` words from any address into raw[o : o + count + 2]; and (raw, o, k) -> word k.
    `more`: how many bits further that word begins."""
    uint32, int32 = ptx.u32, ptx.i32

    def read(start, raw, o):
        aligned = int32(start & -4)
        for i in range(count + 1):
            raw[o + i] = ptx.at32(int32(aligned + 4 * i))
        raw[o + count + 1] = uint32(uint32(start & 3) << uint32(3))

    def word(raw, o, k, more):
        return ptx.shf_r(raw[o + k], raw[o + k + 1], uint32(raw[o + count + 1] + more))

    return read, word
