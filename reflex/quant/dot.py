"""How a block format feeds integer dot products: which 64 weights of a block a lane has, and what their scales are.

Four lanes (t = 0 .. 3) share 256 weights b of a row. A lane's 64 weights are four pieces of 16 neighbours; piece k begins at
16 * (place(b, t) ^ pieces[k]). Activations are 15-bit integers with a float32 scale per 32.

`build(ptx, function)` -> (place, load, load_head, codes, factors, finish), plain functions for the device. ptx: the
module of instructions and types; function: makes a function callable from others.
    place(b, t)                              the first piece, counted in pieces of 16 from the start of the row
    load(row, b, t, wanted, raw, o)          reads the lane's codes
    load_head(row, b, t, wanted, raw, o)     reads its scales; together raw[o : o + words]
    codes(raw, o, k, shift)                  -> four words: the codes of piece k as bytes, signed if `signed`, else unsigned
    factors(sh, at, t, f)                    f[0 .. 7]: what `finish` needs of the block's pairs at word `at`
    finish(raw, o, t, n, i, f, shift)        -> the lane's part of the row's sum; n[i + k]: the integer dot product of piece k
row: int64 address; wanted: uint32, 0 to skip the load; raw: a local uint32 array; shift: uint32, 16 where the block lies at an
odd multiple of 2, else 0. Pairs: {scale, scale * sum of 32} of the activations. A piece's dot product starts from -offset
times the sum of its activations. Reads up to 4 bytes behind a block. Nothing here imports a compiler.
"""


class Dot:
    """See above."""

    def __init__(self, words, nbytes, pieces, build, offset=0, signed=False):
        self.words = words
        self.nbytes = nbytes  # of 256 weights
        self.pieces = pieces
        self.build = build
        self.offset = offset
        self.signed = signed
