"""Plain rows: for every block format an entry point that expands packed blocks to float32.

    decode_<NAME>(source, destination, elements)

reads `elements` values, a whole number of blocks, at address `source`, and writes them as float32 at `destination`.
The embedding step calls these, and so does matrix multiplication in formats without vector code of their own.
Enumerates reflex/quant: a new format file needs no change here.
"""

from ...quant import load
from ...quant.types import TYPES
from .. import memory
from ..export import export, helper
from ..intrinsics import store_f32

RUN = 16  # elements of a block done with constant low index bits, so that shifts and scales are settled once for all of them


def _decoder(block):
    element = helper(load(block.name).unpack(memory))
    count, nbytes, run = block.elements, block.nbytes, min(RUN, block.elements)
    runs = count // run

    def decode(source, destination, elements):
        for b in range(elements // count):
            for g in range(runs):
                for i in range(run):
                    store_f32(destination + 4 * (b * count + g * run + i), element(source + b * nbytes, g * run + i))
        return 0

    return decode


DECODERS = {block.name: export(_decoder(block), name=f"decode_{block.name}") for block in TYPES.values()}
