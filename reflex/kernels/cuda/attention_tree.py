"""attention_tree_<64|128|any>: attention_row (see there) for rows whose slots lie in several runs.

`lists`: per row where its runs are listed, counted from `lists` on in words: (first slot, slots) of each run between
[0, shared) and [branch, own]. Flags 32 and 64 are not for this kernel; 16: rows before cells[4] are left to attention_tile, and
grid z counts the others. Tiles make up to 64 parts, `least` each where that is enough, and a part's sums are joined with those of
the parts behind it. grid y 1: a block has all parts of a row; else, as many as a row may have parts: a block for each, same bits.
"""

from .attention_row import DIMS, SIGNATURE, make
from .export import kernel

for dim in DIMS:
    kernel(SIGNATURE, threads=256, blocks=2 if dim else 1, name=f"attention_tree_{dim or 'any'}")(make(dim, __name__, tree=True))
